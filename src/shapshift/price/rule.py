"""Rule: what owners are paid for; pay_owners: from tables to payouts."""

from collections.abc import Mapping
from dataclasses import astuple, dataclass, field, replace
from inspect import signature
from typing import Any

from sklearn.base import clone

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.coefficients import BY_SIZE, Banzhaf, Beta, check_semivalue
from shapshift.exceptions import InputError
from shapshift.io.shown import Shown
from shapshift.perturb.containers import count_rows, take_rows
from shapshift.price.allocation import Allocation, allocate_budget
from shapshift.price.clusters import Clusters as Clusters
from shapshift.price.clusters import Counted, read_order
from shapshift.price.clusters import find_clusters as find_clusters
from shapshift.price.owners import OwnerValues, owner_values
from shapshift.price.policy import Policy
from shapshift.price.privacy import Privacy
from shapshift.price.sampling import random_blocks
from shapshift.valuation import Valuation

#: What is paid for: rows that vote, all rows, owners as players, or rows in the order of submission.
PAY_BY = ("clusters", "rows", "owners", "precedence")
#: How subsets are weighted under the rule that copies and random rows gain nothing from.
SAFE_SEMIVALUE: Any = "filled"

_VOTES = {
    "clusters": "Rows of equal label that are equal or nearly equal count once, for the owner who submitted the first.",
    "rows": "Every row counts, copies of other rows included.",
    "owners": "Rows of equal label that are equal or nearly equal count once, for the owner who submitted the first.",
    "precedence": "Rows are valued in the order in which they were submitted: earlier ones do not know later ones.",
}
_RECORD = (
    "The order of submission must be the operator's own record, not a column that sellers fill in: with an early date "
    "a copy takes the vote of the row that it copies."
)
_EARLY = (
    "The order of submission must be the operator's own record, not a column that sellers fill in: an early date is "
    "paid for."
)
# What takes the place of a sentence where a ledger records the order.
_RECORDED = {
    _RECORD: "Whoever submits a row first has its vote, in later rounds too. Where features have few different values, "
    "sellers have equal rows without copying, and being first is paid for.",
    _EARLY: "",
}
_INVITES = {
    "clusters": [
        _RECORD,
        "Copies with so much noise that they are outside the radius are paid like new rows.",
        "So are averages of an owner's own rows (mixup), which help the buyer.",
    ],
    "rows": ["Paying for all rows invites copies, of own rows and of those of others: every copy is paid too."],
    "owners": [
        _RECORD,
        "Paying for owners as players invites splitting: two names are paid more than one. Verify who is behind them.",
        "Copies with so much noise that they are outside the radius are paid like new rows.",
    ],
    "precedence": [
        _EARLY,
        "Precedence invites being first with anything, and near copies of earlier rows, which are paid like new rows.",
    ],
}
# How subsets are weighted, for people who are paid.
_SUBSETS = {
    "shapley": "on average over random subsets of the other {others}, all sizes alike (Shapley values)",
    "banzhaf": "on average over random subsets that have each of the other {others} or not, by the toss of a coin "
    "(Banzhaf values)",
    "loo": "beside all other {others} (leave-one-out values)",
    "calibrated": "on average over random subsets that lack few of the other {others} (calibrated Shapley values)",
    "filled": "on average over random subsets of the other {others}, without the small ones, "
    "which any row would improve (Shapley values without small subsets)",
}
# What is known of values beside the rule, by the parameter that says it.
_MADE = {
    "point_weight": "with weights of validation rows",
    "pool": "pooled with training rows",
    **dict.fromkeys(("correction", "posterior"), "corrected for noise in the validation rows"),
}


@dataclass(frozen=True)
class Rule(Shown):
    """What owners are paid for, and how.

    Parameters
    ----------
    pay_by : {"clusters", "rows", "owners", "precedence"}, default="clusters"
        "clusters": rows of equal label within a radius have one vote, which belongs to the earliest of them, and owners
        are paid for the sum of the values of their rows that vote. "rows": the values of all rows. "owners": owners as
        players, on the rows that vote, see :func:`shapshift.price.owner_values`. "precedence": values of all rows in
        the order of submission (asymmetric Shapley).
    semivalue : str, Beta or Banzhaf, optional
        How subsets are weighted. By default Shapley values; for "clusters" "filled", those over subsets of at least
        2K rows, see :class:`shapshift.KNNShapley`. "filled" and "calibrated" are for values of rows, not for "owners"
        and "precedence".
    radius : float, optional
        Largest distance of near copies, see :func:`shapshift.price.find_clusters`; by default from the data.
    policy : Policy
        How the budget is shared out.
    near_copies : bool, default=False
        Test each owner for copies with more noise than the radius, see :func:`shapshift.price.find_clusters`.

    Notes
    -----
    Under the default neither copying one's own rows, nor copying those of others later than them, nor splitting into
    names with positive totals changes any payout beyond rounding. :meth:`invites` lists the tricks that still gain.

    Examples
    --------
    >>> from shapshift.price import Rule
    >>> print(Rule().sentences()[0])
    Rows of equal label that are equal or nearly equal count once, for the owner who submitted the first.
    >>> print(Rule("rows").invites()[0])
    Paying for all rows invites copies, of own rows and of those of others: every copy is paid too.
    """

    pay_by: str = "clusters"
    semivalue: Any = None
    radius: float | None = None
    policy: Policy = field(default_factory=Policy)
    near_copies: bool = False

    def __post_init__(self) -> None:
        check.check_choice("Rule", "pay_by", self.pay_by, PAY_BY)
        check.check_type("Rule", "policy", self.policy, Policy, "a Policy, such as Policy(deposit=50)")
        if self.radius is not None:
            check.check_number("Rule", "radius", self.radius)
        check.check_type("Rule", "near_copies", self.near_copies, bool, "True or False")
        for name, given in (("radius", self.radius is not None), ("near_copies", self.near_copies)):
            if given and not self.votes_once:
                raise InputError(
                    f"The {name!r} parameter of Rule goes with pay_by='clusters' or 'owners'. Got "
                    f"pay_by={self.pay_by!r}; leave one of them out."
                )
        if self.semivalue is None:
            object.__setattr__(self, "semivalue", SAFE_SEMIVALUE if self.pay_by == "clusters" else "shapley")
        elif isinstance(self.semivalue, str) or not hasattr(self.semivalue, "__dataclass_fields__"):
            check_semivalue("Rule", self.semivalue)
        if self.semivalue in BY_SIZE and self.pay_by in ("owners", "precedence"):
            raise InputError(
                f"The 'semivalue' parameter of Rule, {self.semivalue!r}, does not go with pay_by={self.pay_by!r}: such "
                "subsets are of rows that join in any order. Use 'shapley', or pay_by='clusters'."
            )

    @property
    def votes_once(self) -> bool:
        """Whether rows of a cluster have one vote together."""
        return self.pay_by in ("clusters", "owners")

    def sentences(self, currency: str = "", digits: int = 2, parameters: Mapping[str, Any] | None = None) -> list[str]:
        """Say in three sentences what is paid, and in one more each what floor, cap and reserve do.

        Parameters
        ----------
        currency : str
        digits : int
            Decimals of an amount.
        parameters : mapping, optional
            Those of the values that are paid: weights, pooling and correction are named.
        """
        whom = "an owner's rows together add" if self.pay_by == "owners" else "it adds"
        what, others = ("an owner", "owners") if self.pay_by == "owners" else ("a row", "rows")
        spelled = _spelled(self.semivalue)
        how = _SUBSETS.get(spelled, f"on average over random subsets of the other {{others}} ({spelled})")
        if self.pay_by == "precedence":
            how = "on average over the orders in which rows submitted together can come"
            how += "" if spelled == "shapley" else f" ({spelled})"
        made = dict.fromkeys(words for name, words in _MADE.items() if name in (parameters or {}))
        paid = "their values" if self.pay_by == "owners" else "the sum of their rows' values"
        first, *more = self.policy.limits_in_words(currency, digits)
        return [
            _VOTES[self.pay_by],
            f"The value of {what} is what {whom} to the accuracy on the validation rows, {how.format(others=others)}"
            + "".join(f", {words}" for words in made)
            + ".",
            f"Owners are paid in proportion to {paid}. {first}",
            *more,
        ]

    def invites(self, ledger: bool = False) -> list[str]:
        """Say by which tricks an owner can gain under the rule, one sentence each.

        Parameters
        ----------
        ledger : bool
            Whether a ledger records the order of submission.
        """
        said = [_RECORDED.get(words, words) if ledger else words for words in _INVITES[self.pay_by]]
        return [*filter(None, said), *self.policy.invites()]

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters, ready for JSON."""
        return {
            "pay_by": self.pay_by,
            "semivalue": _spelled(self.semivalue),
            "radius": self.radius,
            "policy": self.policy.to_dict(),
            "near_copies": self.near_copies,
        }

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> "Rule":
        """Make a rule of what :meth:`to_dict` returned."""
        name, _, shape = str(given["semivalue"]).partition(":")
        kinds: dict[str, Any] = {"beta": Beta, "banzhaf": Banzhaf}
        semivalue = kinds[name](*map(float, shape.split(","))) if shape and name in kinds else name
        return cls(given["pay_by"], semivalue, given["radius"], Policy(**given["policy"]), given["near_copies"])


def _spelled(semivalue: Any) -> str:
    """Write a semivalue as the command line does: ``shapley``, ``banzhaf:0.1``, ``beta:4,1``."""
    if isinstance(semivalue, str):
        return semivalue
    shapes = [repr(float(shape)).removesuffix(".0") for shape in astuple(semivalue)]
    return f"{type(semivalue).__name__.lower()}:{','.join(shapes)}"


def pay_owners(
    model: Any,
    X: Any,
    y: Any,
    X_val: Any,
    y_val: Any,
    owners: Any,
    budget: Any,
    *,
    rule: Rule | None = None,
    order: Any = None,
    ids: Any = None,
    earlier: Any = None,
    currency: str = "EUR",
    privacy: Privacy | None = None,
    intervals: bool = True,
    progress: bool | None = None,
) -> Allocation:
    """Value the rows of owners on a validation set and share a budget out among them, by a rule.

    Parameters
    ----------
    model : estimator
        Fitted anew, on the rows that count; the one passed stays as it is. Its ``semivalue`` is replaced by the rule's.
    X, y : table of shape (n_train, n_features), array-like of shape (n_train,)
        Training rows of all owners and their labels.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The validation set.
    owners : array-like of shape (n_train,)
        One owner per training row; a pandas Series is matched by its index.
    budget, currency, privacy
        As in :func:`allocate_budget`.
    rule : Rule, optional
    order : array-like of shape (n_train,), optional
        When each row was submitted, see :func:`find_clusters`. Rows of equal order are in the order of the table.
    ids : array-like of shape (n_train,), optional
        By default the table's index, or positions.
    earlier : array-like of bool of shape (n_train,), optional
        Rows that do not vote, see :func:`find_clusters`; where all rows vote, they do as well.
    intervals : bool, default=True
        Whether to compute what another sample of validation points would pay, which takes longer than the payouts.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Returns
    -------
    Allocation
        Of all rows. Those that do not vote are worth 0; ``first`` names the rows that vote for them.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import pay_owners
    >>> X, y = [[0.0], [1.0], [3.0], [1.0], [4.0]], ["a", "b", "b", "b", "a"]
    >>> owners, X_val, y_val = ["ann", "bob", "cid", "eve", "ann"], [[0.9], [2.5]], ["b", "b"]
    >>> pay = pay_owners(KNNShapley(n_neighbors=1), X, y, X_val, y_val, owners, 100)
    >>> {owner: str(amount) for owner, amount in pay.payouts.items()}
    {'ann': '0.00', 'bob': '64.71', 'cid': '35.29', 'eve': '0.00'}
    """
    rule = Rule() if rule is None else rule
    check.check_type("pay_owners", "rule", rule, Rule, "a Rule, such as Rule(pay_by='rows')")
    if hasattr(model, "progress"):
        model = clone(model).set_params(progress=progress)
    fitted = count_by(model, rule, X, y, owners=owners, order=order, ids=ids, earlier=earlier)
    more: dict[str, Any] = {"currency": currency, "privacy": privacy, "intervals": intervals, "progress": progress}
    return pay_counted(fitted, rule, X_val, y_val, owners, budget, **more)


def count_by(
    model: Any,
    rule: Rule,
    X: Any,
    y: Any,
    *,
    owners: Any = None,
    order: Any = None,
    ids: Any = None,
    earlier: Any = None,
    clusters: Clusters | None = None,
) -> Counted:
    """Fit a clone of a model on the rows that count by a rule; it values all rows.

    Parameters
    ----------
    model : estimator
    rule : Rule
    X, y, owners, order, ids, earlier
        As in :func:`pay_owners`.
    clusters : Clusters, optional
        Where they are known.
    """
    fresh = clone(model)
    if "semivalue" in fresh.get_params():
        fresh.set_params(semivalue=rule.semivalue)
    n = count_rows(X) if X is not None else count_rows(y)
    row_ids = _labels.check_ids(ids, _labels.pandas_index(X, y)[0], n)
    if not rule.votes_once:
        return counted(fresh.fit(X, y, ids=ids), row_ids, rule, order=order)
    if getattr(model, "metric", None) == "precomputed":
        raise InputError(
            f"pay_by={rule.pay_by!r} looks for copies among the features of rows, and there are none with "
            "metric='precomputed'. Use pay_by='rows', which invites copies."
        )
    if clusters is None:
        given = {"owners": owners, "order": order, "radius": rule.radius, "near_copies": rule.near_copies, "ids": ids}
        clusters = find_clusters(X, y, **given, earlier=earlier, progress=False)
    own = clusters.representatives
    labels = _labels.check_labels(y, "y", n, "X")
    return counted(fresh.fit(take_rows(X, own), labels[own], ids=row_ids[own]), row_ids, rule, clusters)


def counted(model: Any, ids: Any, rule: Rule, clusters: Clusters | None = None, order: Any = None) -> Counted:
    """Make a model that values all rows by a rule.

    Parameters
    ----------
    model : fitted estimator
        On the rows that vote, where ``clusters`` are given.
    ids : ndarray of shape (n_train,)
        Of all rows.
    rule : Rule
    clusters : Clusters, optional
    order : array-like of shape (n_train,), optional
        As in :func:`pay_owners`.
    """
    if rule.pay_by != "precedence":
        return Counted(model, ids, clusters)
    if order is None:
        raise InputError("pay_by='precedence' needs to know when each row was submitted. Pass 'order'.")
    if "order" not in signature(model.value).parameters:
        raise InputError(f"pay_by='precedence' needs a model that values rows in an order, not {type(model).__name__}.")
    return Counted(model, ids, order=read_order("pay_owners", order, ids))


def pay_counted(
    model: Counted,
    rule: Rule,
    X_val: Any,
    y_val: Any,
    owners: Any,
    budget: Any,
    *,
    currency: str = "EUR",
    privacy: Privacy | None = None,
    intervals: bool = True,
    progress: bool | None = None,
) -> Allocation:
    """Pay by a rule with a model that :func:`count_by` fitted."""
    valuation, values = value_counted(model, rule, X_val, y_val, owners, intervals=intervals, progress=progress)
    terms: dict[str, Any] = {"policy": rule.policy, "currency": currency, "privacy": privacy}
    made = allocate_budget(valuation, budget, owners=owners, values=values, **terms)
    return marked(made, rule, model)


def value_counted(
    model: Counted,
    rule: Rule,
    X_val: Any,
    y_val: Any,
    owners: Any,
    *,
    intervals: bool = True,
    progress: bool | None = None,
) -> tuple[Valuation, OwnerValues | None]:
    """Return what a rule pays for, whatever its policy: values of rows, and those of owners where these are players."""
    n_val, asked = count_rows(y_val), {}
    if intervals and n_val > 1 and "groups" in signature(model.value).parameters:
        asked["groups"] = random_blocks(n_val, model.ids_.size)
    valuation = model.value(X_val, y_val, **asked)
    if rule.pay_by != "owners":
        return valuation, None
    more: dict[str, Any] = {"semivalue": rule.semivalue, "progress": progress}
    return valuation, model.owner_values(owner_values, X_val, y_val, owners, **more)


def marked(allocation: Allocation, rule: Rule, model: Counted) -> Allocation:
    """Note the rule in an allocation, and which rows vote."""
    facts: dict[str, Any] = {"rule": rule.to_dict()}
    found = model.clusters
    if found is not None:
        facts["clusters"] = {
            "radius": found.radius,
            "honest": found.honest,
            "rows_that_vote": int(found.representatives.size),
        }
    ends = allocation.sampling_low, allocation.sampling_high
    low, high = model.settle(ends, allocation.cents, allocation.codes)
    return replace(
        allocation,
        first=None if found is None else found.first,
        parameters={**allocation.parameters, **facts},
        sampling_low=low,
        sampling_high=high,
    )
