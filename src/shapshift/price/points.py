"""Contribution of single validation points to each owner, and bounds on an owner's share if some points change."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.checks import inputs as check
from shapshift.checks.labels import Ownership
from shapshift.engine.rows.distances import index_rows
from shapshift.knn import KNNShapley, SemiSupervisedKNNShapley
from shapshift.knn.base import KNNModel
from shapshift.price.policy import Terms

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Most values of all training rows on single points held at a time; values on further points are recomputed when needed.
HELD_NUMBERS = 2**25
# Halvings of an interval of shares, or of rates: the last is below the spacing of floats.
HALVINGS = 60
# Sums below this share of the sum of absolute values are rounding errors.
ROUNDED = 1e-12
# Step between the keys of equal points: odd, the golden ratio times 2**64.
NEXT_KEY = np.uint64(0x9E3779B97F4A7C15)


def check_points_model(caller: str, model: Any) -> KNNModel:
    """Refuse a model that cannot value all rows on single points; return a quiet copy that computes on the CPU."""
    expected = "a fitted KNN model: KNNShapley, ThresholdKNNShapley, WeightedKNNShapley or KNNRegressionShapley"
    check.check_type(caller, "model", model, KNNModel, expected)
    quiet: Any = check.check_model(caller, model)
    if hasattr(quiet, "device"):
        quiet.device = "cpu"
    quiet._errors, quiet._quiet_labels = False, True  # sampling errors are not needed here
    found: KNNModel = quiet
    return found


@dataclass(frozen=True, eq=False)
class PointValues:
    """Values of the training rows on each point of a set, summed up by owner.

    A contribution is the sum over an owner's units: of the positive parts of its rows where the policy clips negative
    rows, or its total, which may be negative, where it carries them.

    Attributes
    ----------
    model : KNNModel
        As :func:`check_points_model` returns it.
    X, y : ndarray or csr_array, ndarray
        Points, as the model's training rows are, and labels.
    ownership : Ownership
    negatives : {"clip", "carry"}
    own : ndarray of shape (n_points,) or None
        The training row used as each point, left out of that point's game.
    """

    model: Any
    X: Any
    y: Any
    ownership: Ownership
    negatives: str
    own: Indices | None = None

    @property
    def size(self) -> int:
        """Number of points."""
        return len(self.y)

    @cached_property
    def _to_owners(self) -> Any:
        codes = self.ownership.codes
        shape = (len(self.ownership.names), codes.size)
        return sparse.csr_array((np.ones(codes.size), (codes, np.arange(codes.size))), shape=shape)

    @cached_property
    def _owner_of_unit(self) -> Any:
        return self._to_owners if self.negatives == "clip" else sparse.eye_array(len(self.ownership.names)).tocsr()

    def _value(self, here: slice) -> Floats:
        model, rows, own = self.model, self.X[here], None if self.own is None else self.own[here]
        if model._index.metric != "precomputed":
            rows = check.Table(rows, model._columns, None, model._kind)
        given = model._prepare(rows, self.y[here], matrix=True, own=own)
        values = model._run(given, model._runner()).points.values.T
        return np.ascontiguousarray(values if self.negatives == "clip" else self._to_owners @ values)

    @cached_property
    def _held(self) -> list[tuple[slice, Floats]]:
        return list(self._made())

    @property
    def room(self) -> int:
        """Most numbers held at a time."""
        memory = check.parse_memory(self.model.max_memory)
        return HELD_NUMBERS if memory is None else min(HELD_NUMBERS, memory // 64)

    def _made(self) -> Iterator[tuple[slice, Floats]]:
        step = max(1, self.room // (4 * self.ownership.codes.size))
        for start in range(0, self.size, step):
            here = slice(start, min(start + step, self.size))
            yield here, self._value(here)

    def blocks(self) -> Iterator[tuple[slice, Floats]]:
        """Yield slices of the points and the values of all units on them, of shape (n_units, size of the slice)."""
        units = self.ownership.codes.size if self.negatives == "clip" else len(self.ownership.names)
        yield from self._held if units * self.size <= self.room else self._made()

    def totals(self, weights: Floats | None = None) -> Floats:
        """Sum of each unit's values over the points, each multiplied by its weight.

        Weights of shape (n_points, n_sets) give the sums of several sets, of shape (n_units, n_sets).
        """
        weights = np.ones(self.size) if weights is None else weights
        return self.settle(np.asarray(sum(values @ weights[here] for here, values in self.blocks())))

    @cached_property
    def _rounding(self) -> Floats:
        return ROUNDED * np.asarray(sum(np.abs(values).sum(axis=1) for _, values in self.blocks()))

    def settle(self, totals: Floats) -> Floats:
        """Set sums of units, of shape (n_units, ...), to 0 if they are rounding errors."""
        least = self._rounding.reshape(-1, *[1] * (totals.ndim - 1))
        return np.where(np.abs(totals) > least, totals, 0.0)

    def by_owner(self, change: Callable[[Floats], Floats]) -> Floats:
        """Sum changed values of units by owner, for each point: shape (n_points, n_owners)."""
        out = np.empty((self.size, len(self.ownership.names)))
        for here, values in self.blocks():
            out[here] = (self._owner_of_unit @ change(values)).T
        return out

    def counted(self, units: npt.NDArray[np.bool_]) -> Floats:
        """Sum the values of some units by owner, for each point."""
        return self.by_owner(lambda values: values * units[:, None])

    def contributions(self, totals: Floats) -> Floats:
        """Contribution of each owner, from the sums of its units."""
        return np.asarray(self._owner_of_unit @ self._counting(self.settle(totals)))

    def without_one(self, totals: Floats) -> Floats:
        """Contribution of each owner without each point: shape (n_points, n_owners)."""
        return self.by_owner(lambda values: self._counting(self.settle(totals[:, None] - values)))

    def _counting(self, totals: Floats) -> Floats:
        return totals if self.negatives == "carry" else np.maximum(totals, 0.0)

    def units_of(self, owner: int) -> Indices:
        """Numbers of an owner's units."""
        return np.flatnonzero(self.ownership.codes == owner) if self.negatives == "clip" else np.array([owner])

    def share(self, totals: Floats, owner: int) -> float:
        """Share of an owner in the sum of contributions; 0 if nobody contributes."""
        contributions = np.maximum(self.contributions(totals), 0.0)
        return float(contributions[owner] / contributions.sum()) if contributions[owner] > 0 else 0.0


def has_training_points(model: Any) -> bool:
    """Whether training rows can serve as points, each left out of its own game."""
    index = getattr(model, "_index", None)
    return not (
        index is None
        or isinstance(model, SemiSupervisedKNNShapley)  # its beliefs would have to be computed without each row
        or index.metric == "precomputed"
        or index.in_file
        or index.n_rows < 2
    )


def training_points(model: Any, ownership: Ownership, negatives: str, most: int) -> PointValues:
    """Return training rows as points, each left out of its own game."""
    own = _by_content(model)[:most]
    labels = model.classes_[model.codes_[own]] if hasattr(model, "classes_") else model._targets[own]
    return PointValues(model, model._index.take(own).unscaled(), labels, ownership, negatives, own)


def without_a_row(points: PointValues) -> PointValues:
    """Return points that each leave a training row of their label out of their game, as training rows do themselves.

    A point and the rows of its game are then comparable to a training row and the others. A hash of the point's
    features, and its number among equal points, choose the row, so that row order does not matter. Points with a label
    that no row has leave out any row.
    """
    model = points.model
    rows, keys = _by_content(model), index_rows(points.X, model.metric).content_hash()
    targets = model._read_targets(points.y)
    order = np.lexsort((targets, keys))
    first = np.flatnonzero(np.append(True, np.diff(keys[order]) != 0))
    number = np.arange(keys.size) - np.repeat(first, np.diff(np.append(first, keys.size)))
    keys[order] += number.astype(np.uint64) * NEXT_KEY
    own = rows[(keys % np.uint64(rows.size)).astype(np.int64)]
    for label in np.unique(targets) if hasattr(model, "classes_") else []:
        alike, here = rows[model.codes_[rows] == label], targets == label
        if alike.size:
            own[here] = alike[(keys[here] % np.uint64(alike.size)).astype(np.int64)]
    return replace(points, own=own)


def _by_content(model: Any) -> Indices:
    """Training rows in a pseudo-random order that depends only on their content."""
    order: Indices = np.lexsort((model._targets, model._index.content_hash()))
    return order


def float_payouts(terms: Terms, contributions: Floats) -> Floats:
    """Payouts before rounding, in units of the currency.

    Parameters
    ----------
    terms : Terms
    contributions : ndarray of shape (..., n_owners)
    """
    unit = 10**terms.digits
    floor, cap, reserve = terms.limits
    left = (terms.budget - reserve) / unit
    whole = np.maximum(contributions, 0.0).sum(axis=-1, keepdims=True)
    shares: Floats = np.divide(contributions, whole, out=np.zeros_like(contributions), where=whole > 0)
    if terms.deposit:
        charged = np.maximum(left * np.minimum(shares, 0.0), -terms.deposit / unit)
        plain = replace(terms, policy=replace(terms.policy, deposit=0))
        return np.asarray(float_payouts(plain, contributions) + charged)
    shares = np.maximum(shares, 0.0)
    if not floor and cap is None:
        return np.asarray(left * shares)
    most = np.where(shares > 0, left if cap is None else cap / unit, floor / unit)
    # The rate at which the clamped payouts add up, see split_cents: from 0 to all for the smallest share.
    low = np.zeros_like(whole)
    high = left / np.min(np.where(shares > 0, shares, 1.0), axis=-1, keepdims=True)
    for _ in range(2 * HALVINGS):
        rate = (low + high) / 2
        over = np.clip(rate * shares, floor / unit, most).sum(axis=-1, keepdims=True) > left
        low, high = np.where(over, low, rate), np.where(over, rate, high)
    payouts: Floats = np.clip(low * shares, floor / unit, most)
    return payouts


@dataclass(frozen=True)
class Slots:
    """Effects of an attacker who may change up to ``k`` points; additive over the changed points.

    Attributes
    ----------
    k : int
    paid, others : float
        Contribution of the owner, and of the others together, without changes.
    more, less : ndarray of shape (n_points,)
        Increase of the owner's contribution, and decrease of the others', if a point is left out.
    added : callable
        For a share, the maximum of (1 - share) times the contribution of a replacement point to the owner, minus share
        times its contribution to the others: a number, or one for each point.
    """

    k: int
    paid: float
    others: float
    more: Floats
    less: Floats
    added: Callable[[float], Any] = lambda share: 0.0

    def surplus(self, share: float) -> float:
        """Return the maximum of (1 - share) times the owner's contribution, minus share times that of the others."""
        scores = (1 - share) * self.more + share * self.less + self.added(share)
        best = np.partition(scores, scores.size - self.k)[scores.size - self.k :] if self.k else scores[:0]
        return float((1 - share) * self.paid - share * self.others + np.maximum(best, 0.0).sum())

    def most_share(self) -> float:
        """Largest share at which the surplus is not negative: no choice of up to ``k`` points gives a larger share.

        The surplus is a maximum of straight lines, not negative at 0: if it is negative at 1, it crosses 0 once.
        """
        if not self.k:
            # Under "carry" the others together may have a negative contribution.
            return 0.0 if self.paid <= 0 else 1.0 if self.others <= 0 else self.paid / (self.paid + self.others)
        low, high = 0.0, 1.0
        if self.surplus(high) >= 0:
            return 1.0
        for _ in range(HALVINGS):
            middle = (low + high) / 2
            low, high = (middle, high) if self.surplus(middle) >= 0 else (low, middle)
        return high


@dataclass(frozen=True)
class PointRange:
    """Bounds of sums of values of some training rows on any possible point, for Shapley values of the KNN utilities.

    Let k - 1 rows of a set be nearer than a matching row of the set at rank j. It adds c_j to the sum of the set and
    lowers the k - 1 nearer ones by c_(j-1) - c_j each; a matching row outside the set only lowers it. So m matching
    rows add at most F(m), the sum over k = 1..m of the largest c_j - (k - 1)(c_(j-1) - c_j), j >= k; beyond rank K the
    largest is at j = 2k - 1 or 2k. Seen from the rows that do not match, the smallest sum is the same: n of them are
    worth at least n (c_N + beta) - F(n).

    Attributes
    ----------
    c : ndarray of shape (n_train,)
        Rank table.
    voters : int
        Number of voting ranks when all rows are present.
    vote : float
        Contribution of a matching row among them to the utility.
    empty : float
        Utility of the empty set.
    bases : ndarray of shape (n_classes + 1,)
        beta(M) of points of each class; the last entry is for a class that no row has.
    """

    c: Floats
    voters: int
    vote: float
    empty: float
    bases: Floats

    @classmethod
    def of(cls, model: Any) -> "PointRange | None":
        """Range of a model; None for anything but Shapley values of KNNShapley."""
        if not isinstance(model, KNNShapley) or model.semivalue != "shapley":
            return None
        n, table, n_classes = len(model.codes_), model._rank_table(len(model.codes_)), len(model.classes_)
        voters = min(int(model.n_neighbors), n)
        vote = 1 / voters if model.utility == "soft" else 1 / int(model.n_neighbors)
        counts = np.append(np.bincount(model.codes_, minlength=n_classes), 0)
        bases = table.per_match * counts - table.empty / n_classes
        return cls(table.c, voters, vote, n * table.empty / n_classes, bases)

    def matching(self, most: int, share: float = 0.0) -> Floats:
        """F(0), ..., F(most), less ``share`` times what the rows add to the utility of all rows."""
        n, before = self.c.size, np.arange(most)
        ranks = np.clip(before[:, None] * [1, 2, 2] + [0, 0, 1], np.maximum(before, self.voters)[:, None], n - 1)
        ranks[:, 0] = before
        falls = np.append(0.0, self.c[:-1] - self.c[1:])[ranks]
        terms = self.c[ranks] - before[:, None] * falls - share * self.vote * (ranks < self.voters)
        return np.append(0.0, np.cumsum(terms.max(axis=1)))

    def most_clipped(self, of_class: Indices) -> float:
        """Largest sum of the positive values of an owner's rows on a point, given their number in each class."""
        sums = self.matching(int(of_class.max()))
        return max(
            float((sums[: n + 1] + np.arange(n + 1) * base).max())
            for n, base in zip(of_class, self.bases[:-1], strict=True)
        )

    def least(self, of_class: Indices) -> float:
        """Smallest sum of the values of some rows on a point, given their number in each class."""
        n = int(of_class.sum())
        sums = self.matching(n)[n - np.append(of_class, 0)]
        found = n * (self.c[-1] + self.bases) - sums
        found[-1] = n * self.bases[-1]  # no row matches
        return float(found.min())

    def most_carried(self, of_class: Indices, share: float) -> float:
        """Largest sum of an owner's rows minus ``share`` times that of all rows on a point."""
        sums = self.matching(int(of_class.max()), share)[np.append(of_class, 0)]
        return float((sums + of_class.sum() * self.bases).max()) + share * self.empty


def make_slots(points: PointValues, k: int, owners: Sequence[int], *, replaced: str = "") -> list[Slots]:
    """Return the possible effects of leaving out up to ``k`` points, for each of some owners.

    The owner's contribution is bounded from above: a unit with total x that loses values v on k points keeps at most
    the sum of the positive parts of x/k - v. The others' contribution is bounded from below by the units that count on
    all points. Totals of owners under "carry" are exact either way; so is leaving out a single point.

    Parameters
    ----------
    points : PointValues
    k : int
    owners : sequence of int
    replaced : {"", "known", "any"}, default=""
        Whether points are replaced by others: known ones, or any. For any, the units of others all count under
        "carry", so that the sum over all owners is that of the utility.
    """
    totals, one = points.totals(), k == 1 and not replaced
    contributions, clip = np.maximum(points.contributions(totals), 0.0), points.negatives == "clip"
    parts, least = totals[:, None] / max(k, 1), 0.0 if clip else -np.inf
    if one:
        kept = np.maximum(points.without_one(totals), 0.0)
        values, others = contributions - kept, contributions
    else:
        kept = points.by_owner(lambda values: np.maximum(parts - values, least))
        counted = np.ones(totals.size, dtype=bool) if replaced == "any" and not clip else totals > 0
        values = points.counted(counted)
        others = values.sum(axis=0)
    paid = contributions if clip or one else totals
    of_all, whole = values.sum(axis=1), float(others.sum())
    return [
        Slots(
            k,
            float(paid[at]),
            whole - float(others[at]),
            kept[:, at] - paid[at] / max(k, 1),
            of_all - values[:, at],
        )
        for at in owners
    ]


def any_points(points: PointValues, k: int, owners: Sequence[int], ranges: PointRange | None) -> list[Slots]:
    """Return the possible effects of replacing up to ``k`` points by any others; see :class:`PointRange`.

    Parameters
    ----------
    points : PointValues
    k : int
    owners : sequence of int
    ranges : PointRange or None
        None if no bound is known: replacing one point may then gain everything.
    """
    made = make_slots(points, k, owners, replaced="any")
    if ranges is None:
        return [replace(slots, added=lambda share: np.inf) for slots in made]
    classes, codes = points.model.codes_, points.ownership.codes
    n_classes = ranges.bases.size - 1
    counted = points.totals() > 0 if points.negatives == "clip" else None

    def added(at: int) -> Callable[[float], float]:
        of_class = np.bincount(classes[codes == at], minlength=n_classes)
        if counted is None:
            return lambda share: ranges.most_carried(of_class, share)
        most = ranges.most_clipped(of_class)
        least = ranges.least(np.bincount(classes[counted & (codes != at)], minlength=n_classes))
        return lambda share: (1 - share) * most - share * least

    return [replace(slots, added=added(at)) for slots, at in zip(made, owners, strict=True)]


def most_payout(terms: Terms, n_owners: int, share: float) -> int:
    """Largest payout, in cents, of an owner whose share of the contributions is at most ``share``.

    Floors of others only lower the pay per unit of contribution. Caps of others can raise it without limit.
    """
    floor, cap, reserve = terms.limits
    left = terms.budget - reserve
    most = left - (n_owners - 1) * floor
    if cap is not None:
        return max(floor, min(cap, most))
    return max(floor, min(most, math.ceil(left * share) + 1))
