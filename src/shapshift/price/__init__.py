"""Turn values into payments: payouts of owners, how reliable they are, and a statement for each owner."""

from shapshift.price.allocation import Allocation, allocate_budget
from shapshift.price.copies import CopyDiscount
from shapshift.price.influence import InfluenceAudit, audit_influence
from shapshift.price.manipulation import ValidationAttack, attack_validation
from shapshift.price.money import show_money
from shapshift.price.owners import OwnerValues, owner_values
from shapshift.price.payout_audit import PayoutAudit, audit_payouts
from shapshift.price.policy import Policy
from shapshift.price.privacy import Privacy
from shapshift.price.rule import Clusters, Rule, find_clusters, pay_owners
from shapshift.price.sampling import random_blocks
from shapshift.price.statements import cell as safe_cell
from shapshift.price.statements import write_statements

__all__ = [
    "Allocation",
    "Clusters",
    "CopyDiscount",
    "InfluenceAudit",
    "OwnerValues",
    "PayoutAudit",
    "Policy",
    "Privacy",
    "Rule",
    "ValidationAttack",
    "allocate_budget",
    "attack_validation",
    "audit_influence",
    "audit_payouts",
    "find_clusters",
    "owner_values",
    "pay_owners",
    "random_blocks",
    "safe_cell",
    "show_money",
    "write_statements",
]
