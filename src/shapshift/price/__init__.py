"""Turn values into payments: who is paid what, how far that holds, and a statement for each owner."""

from shapshift.price._allocate import allocate_budget
from shapshift.price._allocation import Allocation
from shapshift.price._audit import PayoutAudit, audit_payouts
from shapshift.price._game import owner_values
from shapshift.price._money import Policy, show_money
from shapshift.price._owner_result import OwnerValues
from shapshift.price._replication import ReplicationCheck, replication_gain
from shapshift.price._statement import cell as safe_cell
from shapshift.price._statement import write_statements

__all__ = [
    "Allocation",
    "OwnerValues",
    "PayoutAudit",
    "Policy",
    "ReplicationCheck",
    "allocate_budget",
    "audit_payouts",
    "owner_values",
    "replication_gain",
    "safe_cell",
    "show_money",
    "write_statements",
]
