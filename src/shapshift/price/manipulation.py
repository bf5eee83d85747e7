"""Attacks that raise one owner's payout by manipulating a share of the validation points."""

from collections.abc import Hashable
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.labels import check_owners, owner_column
from shapshift.exceptions import InputError
from shapshift.io.results import to_table
from shapshift.io.shown import Shown
from shapshift.price.allocation import draw_keys
from shapshift.price.money import show_money, to_decimal
from shapshift.price.points import (
    Floats,
    Indices,
    PointRange,
    PointValues,
    Slots,
    any_points,
    check_points_model,
    make_slots,
    most_payout,
)
from shapshift.price.policy import Policy, Terms

Cents = npt.NDArray[np.int64]

#: Kinds of attack on validation points.
ATTACKS = ("choose", "duplicate", "labels", "points")
# Number of steps in which points are changed, and most choices in each.
STEPS, ROUNDS = 10, 5
# Most training rows at whose places points are put.
MOST_PLACES = 2048


@dataclass(frozen=True, eq=False, repr=False)
class ValidationAttack(Shown):
    """A manipulated validation set that raises one owner's payout.

    Attributes
    ----------
    owner : hashable
        Owner who gains from the attack.
    kind : {"choose", "duplicate", "labels", "points"}
    allowed : int
        Number of points that the attacker may change.
    owners : tuple
        Owners, in order of first appearance.
    before, after : ndarray of shape (n_owners,)
        Payouts on the honest and on the manipulated set, in cents.
    bound_cents : int
        Upper bound of the owner's payout under any attack of this kind on as many points.
    X, y : table, ndarray
        The manipulated validation set; features in the order of the training columns.
    honest : ndarray of shape (n_points,)
        Position in the honest set of each point of the manipulated one; -1 for points that were added or changed.
    currency : str
    digits : int
        Decimals of the currency.
    table_kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".
    """

    owner: Any
    kind: str
    allowed: int
    owners: tuple[Any, ...]
    before: Cents
    after: Cents
    bound_cents: int
    X: Any
    y: npt.NDArray[Any]
    honest: Indices
    currency: str
    digits: int
    table_kind: str

    @property
    def gain(self) -> Decimal:
        """Increase of the owner's payout."""
        at = self.owners.index(self.owner)
        return to_decimal(self.after[at] - self.before[at], self.digits)

    @property
    def bound(self) -> Decimal:
        """Upper bound of the increase by any attack of this kind."""
        return to_decimal(self.bound_cents - self.before[self.owners.index(self.owner)], self.digits)

    @property
    def changed(self) -> npt.NDArray[np.bool_]:
        """Whether each point of the manipulated set was added or changed."""
        return np.asarray(self.honest < 0)

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the payouts.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per owner: ``owner``, ``before``, ``after`` and ``change``, in units of the currency.
        """
        unit = 10**self.digits
        columns: dict[str, npt.NDArray[Any]] = {
            "owner": owner_column(self.owners),
            "before": self.before / unit,
            "after": self.after / unit,
            "change": (self.after - self.before) / unit,
        }
        return to_table(columns, None, kind or self.table_kind)

    def __repr__(self) -> str:
        at = self.owners.index(self.owner)
        first, last = (show_money(cents[at], digits=self.digits) for cents in (self.before, self.after))
        most = show_money(self.bound_cents, self.currency, self.digits)
        return (
            f"ValidationAttack({self.owner!r}, {self.kind!r}, up to {self.allowed} points: {first} to {last}, "
            f"at most {most})"
        )


def attack_validation(
    model: Any,
    X_val: Any,
    y_val: Any,
    budget: Any,
    *,
    owners: Any,
    owner: Any,
    kind: str = "points",
    share: float = 0.05,
    policy: Policy | None = None,
    currency: str = "EUR",
) -> ValidationAttack:
    """Manipulate a share of the validation points so that one owner is paid as much as possible.

    Use it to learn how much such an attack could gain, and whether :func:`audit_influence` finds it.

    Parameters
    ----------
    model : fitted KNN model
        As in :func:`audit_influence`.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The honest validation set.
    budget, owners, policy, currency
        As in :func:`allocate_budget`.
    owner : hashable
        Owner whose payout to raise.
    kind : {"choose", "duplicate", "labels", "points"}, default="points"
        Manipulation of points: leave them out; replace them by copies of other validation points; give them other
        labels; or move them to training rows, with any label.
    share : float, default=0.05
        Share of the points that may be changed, rounded down to whole points.

    Returns
    -------
    ValidationAttack

    Notes
    -----
    For a fixed set of counted rows, the choice of points is a fractional linear problem (Dinkelbach), solved by
    sorting: for all points at once, and in 10 steps that update the counted rows. The better set is kept. Under
    ``Policy(negatives="carry")`` the first is optimal as long as no owner's total changes its sign.

    The values of all training rows on single points are held in memory, or computed again in every step if there are
    more than 33 million: for large tables, take a sample of the points.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import attack_validation
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNNShapley().fit(X[::2], y[::2])
    >>> attack_validation(model, X[1::2], y[1::2], 1000, owners=["ann", "bob", "cid"] * 25, owner="ann", share=0.1)
    ValidationAttack('ann', 'points', up to 7 points: 325.92 to 358.69, at most 478.07 EUR)
    """
    caller = "attack_validation"
    check.check_choice(caller, "kind", kind, ATTACKS)
    check.check_number(caller, "share", share, most=1.0)
    terms = Terms.check(caller, budget, policy, currency)
    quiet: Any = check_points_model(caller, model)
    X = quiet._check_points(X_val)
    y = _labels.check_labels(y_val, "y_val", X.shape[0], "X_val")
    ownership = check_owners(owners, quiet.ids_)
    if not isinstance(owner, Hashable) or owner not in ownership.names:
        raise InputError(
            f"The 'owner' parameter of {caller} must be one of the owners: {check.some(ownership.names)}. Got "
            f"{check.quoted(owner)} instead."
        )
    at, negatives = ownership.names.index(owner), terms.policy.negatives
    allowed = int(share * y.size + 1e-9)
    if kind == "choose":
        allowed = min(allowed, y.size - 1)
    points = PointValues(quiet, X, y, ownership, negatives)
    put = _replacements(quiet, points, kind, at)
    weights, copies = _search(points, put, at, allowed, kind)
    kept, added = np.repeat(np.arange(y.size), weights), np.empty(0, dtype=np.int64)
    X_new, y_new = X[kept], y[kept]
    if put is not None and copies.any():
        added = np.repeat(np.arange(put.size), copies)
        X_new = sparse.vstack([X_new, put.X[added]]).tocsr() if sparse.issparse(X) else np.vstack([X_new, put.X[added]])
        y_new = np.concatenate([y_new, put.y[added]])
    keys = draw_keys(ownership, quiet.ids_, terms.budget)
    paid = [terms.pay(_contributions(points, put, *how), keys)[0] for how in ((1.0, 0.0), (weights, copies))]
    most = most_payout(terms, len(ownership.names), _bound(quiet, points, put, at, allowed, kind).most_share())
    return ValidationAttack(
        owner=owner,
        kind=kind,
        allowed=allowed,
        owners=ownership.names,
        before=paid[0],
        after=paid[1],
        bound_cents=max(most, int(paid[0][at])),
        X=_in_columns(quiet, X_new),
        y=y_new,
        honest=np.concatenate([kept, np.full(added.size, -1)]),
        currency=currency,
        digits=terms.digits,
        table_kind=quiet._kind,
    )


def _in_columns(model: Any, rows: Any) -> Any:
    """Return rows as a table with the training columns if the training rows were a table."""
    if model._columns is None or model._index.metric == "precomputed" or sparse.issparse(rows):
        return rows
    return to_table({name: rows[:, at] for at, name in enumerate(model._columns)}, None, model._kind)


def _replacements(model: Any, points: PointValues, kind: str, at: int) -> PointValues | None:
    """Return the points that may be added; for other labels, the points of each class in turn."""
    if kind == "choose":
        return None
    if kind == "duplicate":
        return points
    if not hasattr(model, "classes_"):
        raise InputError(
            f"The 'kind' parameter of attack_validation is {kind!r}, which needs class labels. "
            f"{type(model).__name__} has none; use 'choose' or 'duplicate'."
        )
    classes = model.classes_
    if kind == "labels":
        places = np.tile(np.arange(points.size), len(classes))
        return PointValues(model, points.X[places], np.repeat(classes, points.size), points.ownership, points.negatives)
    index = model._index
    if index.metric == "precomputed" or index.in_file:
        raise InputError(
            "The 'kind' parameter of attack_validation is 'points', which puts points at training rows: it needs their "
            "features in memory. Use 'choose', 'duplicate' or 'labels'."
        )
    # The owner's rows first; the order of equal rows, and so of the table, has no effect.
    order = np.lexsort((model.codes_, index.content_hash(), points.ownership.codes != at))
    rows = index.take(order[: max(1, MOST_PLACES // len(classes))]).unscaled()
    places = np.tile(np.arange(rows.shape[0]), len(classes))
    return PointValues(model, rows[places], np.repeat(classes, rows.shape[0]), points.ownership, points.negatives)


def _contributions(points: PointValues, put: PointValues | None, weights: Any, copies: Any) -> Floats:
    """Contributions when points are repeated according to their weights, and added points according to ``copies``."""
    return points.contributions(_totals(points, put, weights, copies))


def _totals(points: PointValues, put: PointValues | None, weights: Any, copies: Any) -> Floats:
    totals = points.totals(np.broadcast_to(np.asarray(weights, dtype=np.float64), points.size))
    if put is not None and np.any(copies):
        totals = totals + put.totals(np.broadcast_to(np.asarray(copies, dtype=np.float64), put.size))
    return totals


def _search(points: PointValues, put: PointValues | None, at: int, allowed: int, kind: str) -> tuple[Indices, Indices]:
    """Return how often the best set found contains each point, and each candidate point.

    Tries all points at once, with the counted rows of the unchanged set; and a few points at a time, with updated
    counted rows.
    """
    found = [_grow(points, put, at, allowed, kind, steps) for steps in (1, STEPS)]
    return max(found, key=lambda one: points.share(_totals(points, put, *one), at))


def _grow(
    points: PointValues, put: PointValues | None, at: int, allowed: int, kind: str, steps: int
) -> tuple[Indices, Indices]:
    """Change points in steps, as long as the owner's share grows."""
    weights, copies = np.ones(points.size, dtype=np.int64), np.zeros(put.size if put else 0, dtype=np.int64)
    own, totals = points.units_of(at), points.totals()
    share = points.share(totals, at)
    for step in range(steps):
        counted = totals > 0
        counted[own] |= not counted[own].any()
        given = points.counted(counted)
        new = np.zeros((0, given.shape[1])) if put is None else given if put is points else put.counted(counted)
        size, before = allowed * (step + 1) // steps - allowed * step // steps, (weights, copies)
        for _ in range(ROUNDS):  # Dinkelbach: the share after one choice determines the next choice
            # Each point's effect on the owner's contribution, minus the owner's share of its effect on all
            # contributions.
            leave, enter = share * given.sum(axis=1) - given[:, at], new[:, at] - share * new.sum(axis=1)
            leave = np.where(before[0] > 0, leave, -np.inf)
            if kind == "points":
                enter = np.where(before[1] > 0, -np.inf, enter)
            out, put_in = _choose(leave, enter, size, kind)
            changed = before[0] - out, before[1] + put_in
            reached = points.share(_totals(points, put, *changed), at)
            if reached <= share:
                break
            share, (weights, copies) = reached, changed
        totals = _totals(points, put, weights, copies)
    return weights, copies


def _choose(leave: Floats, enter: Floats, size: int, kind: str) -> tuple[Indices, Indices]:
    """Choose up to ``size`` points to leave out, and as many to add; scores are their gains."""
    out = np.zeros(leave.size, dtype=np.int64)
    put_in = np.zeros(enter.size, dtype=np.int64)
    gains, put = leave, None
    if kind == "labels":
        by_class = enter.reshape(-1, leave.size)
        put = by_class.argmax(axis=0) * leave.size + np.arange(leave.size)
        gains = leave + enter[put]
    chosen = np.argsort(-gains, kind="stable")[:size]
    if kind == "duplicate":
        put = np.full(leave.size, enter.argmax())
        gains = leave + enter.max()
    elif kind == "points":
        chosen = chosen[: enter.size]
        put = np.zeros(leave.size, dtype=np.int64)
        put[chosen] = np.argsort(-enter, kind="stable")[: chosen.size]
        gains = leave + enter[put]
    chosen = chosen[gains[chosen] > 0]
    out[chosen] = 1
    if put is not None:
        np.add.at(put_in, put[chosen], 1)
    return out, put_in


def _bound(model: Any, points: PointValues, put: PointValues | None, at: int, allowed: int, kind: str) -> Slots:
    """Return the bound for a kind of attack."""
    if kind == "points":
        return any_points(points, allowed, [at], PointRange.of(model))[0]
    (slots,) = make_slots(points, allowed, [at], replaced="" if put is None else "known")
    if put is None:
        return slots
    positive = put.by_owner(lambda values: np.maximum(values, 0.0) if put.negatives == "clip" else values)[:, at]
    values = put.counted(points.totals() > 0)
    others = values.sum(axis=1) - values[:, at]

    def added(share: float) -> Any:
        scores = (1 - share) * positive - share * others
        return scores.reshape(-1, points.size).max(axis=0) if kind == "labels" else scores.max()

    return replace(slots, added=added)
