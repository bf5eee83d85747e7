"""The bucket kernels: values in linear time, each with a bound on its error.

The distances of one validation point are put into buckets, and each bucket is treated as a tie group (the formulas of
:mod:`shapshift.kernels.rank`). No sort is needed: a histogram gives each bucket its ranks lo+1..hi and its number of
matches, and every row reads its value from a table with one entry per bucket and match. The nearest rows, where ranks
weigh most, share the first bucket, and that one is ordered exactly.

What this costs in accuracy is known. Let ``D_j = c_{j-1} - c_j`` be the drops of the rank table, none of them negative,
and take a bucket of n rows, m of which match, with ``T`` the sum over everything farther away. In whatever order its
rows really are,

    a matching row has   c_hi + (drops at the other rows behind it) + T,       at most n-m of them
    another row has           - (drops at the matches behind it) + T,          at most m of them
    and T grows by            - (drops at the m matches)

so each is off by no more than the distance of the tie group's value from either end of its range, plus what the buckets
farther away have added to the uncertainty of ``T``. Where the table is convex, as it is beyond rank K for the Shapley
value, the first drop is the largest, and the mean of the first m drops, being convex in m, lies below the straight line
from the first drop to the mean of all: the drops at m rows sum to their share of all drops, give or take m (n-m)/(n-1)
times the difference of the first drop and the mean. Buckets whose rows all match, or none does, are exact.

Values and bounds are added up as integers, both in one 64-bit word: the order of additions has no influence, and a row
costs one load and one addition for both.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.images import Near
from shapshift.kernels.rank import Ordered, RankScratch, Rule, neighbor_entropy, order_rows, walk

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# The lower bits of a packed word hold bounds, the upper ones values.
BOUND_BITS = 28
# Rows whose packed sums are added to together.
ROWS = 2**15

_INDEX = np.uint64(0xFFFFFFFF)
_ONE, _TWO = np.uint64(1), np.uint64(2)


class Curve(NamedTuple):
    """The rank table with what bounds need to know of it.

    Attributes
    ----------
    c : float64 (N,)
    at : float64 (N + 3, 2)
        c[r-1] and the sum of c[:r], for a bucket that begins at zero-based rank r. Side by side, because one visit to
        memory then gets all that a bucket asks for: these, c[r] and c[r+1]. An empty last bucket begins at rank N.
    inverse : float64 (N + 1, 2)
        ``1 / n`` and ``1 / (n - 1)``; 0 where that is infinite.
    convex_from : int
        The drops do not grow any more from this rank on.
    """

    c: Floats
    at: Floats
    inverse: Floats
    convex_from: int


class Rules(NamedTuple):
    """How coarse the buckets may be.

    Attributes
    ----------
    buckets : int
        At most 2**15.
    allowed : float
        Largest sum of bounds over the rows of one point.
    peak : float
        Largest bound of a row on one point.
    least : int
        So many nearest rows must have been ordered exactly.
    value_scale, bound_scale : float
        Units of a packed value or bound per 1.
    """

    buckets: int
    allowed: float
    peak: float
    least: int
    value_scale: float
    bound_scale: float


class Scratch(NamedTuple):
    """Space of one worker; only ``counts`` must be zero on entry, and is on exit."""

    histogram: npt.NDArray[np.uint32]
    tables: Indices  # one for each point of a batch
    levels: Indices
    codes: Codes
    work: npt.NDArray[np.uint64]
    keys: Floats
    counts: Floats


@kernel
def bucket_sums(
    images: npt.NDArray[np.uint16],
    near: Near,
    codes: Codes,
    targets: Codes,
    curve: Curve,
    rules: Rules,
    bases: Floats,
    average: bool,
    depth: int,
    edges: Floats,
    groups: Indices,
    scratch: Scratch,
    packed: Indices,
    sums: Floats,
    entropy: Floats,
    nearest: Indices,
    values: Floats,
    done: npt.NDArray[np.bool_],
) -> None:
    """Add the values and bounds of each point to the sums of its entropy level and of its group.

    Parameters that :func:`shapshift.kernels.rank.rank_values` has mean the same here.

    Parameters
    ----------
    images, near
        From :func:`shapshift.kernels.images.bucket_images`.
    edges : float64 (l - 1,)
        What separates the levels of entropy.
    groups : int64 (b,)
        Row of ``packed`` and ``sums`` for each point's group; -1 for none.
    packed : int64 (cells, N)
        Values and bounds of the buckets, to be read by :func:`unpack`; the first l cells belong to the levels.
    sums : float64 (cells, N)
        Values of the rows that were ordered exactly.
    values : float64 (b, N) or (0, N)
        Out: each point's values, when there is room for them.
    done : bool (b,)
        Out: False for points whose buckets are too coarse for the rules. Nothing was added for them.
    """
    for p in range(images.shape[0]):
        n_near = near.found[p]
        done[p] = rules.least <= n_near <= near.members.shape[1]
        if not done[p]:
            continue
        _count(images[p], scratch.histogram)
        table = scratch.tables[p]
        done[p], total = fill_table(curve, rules, bases[p], scratch.histogram, table)
        if not done[p]:
            continue
        members, distances = near.members[p, :n_near], near.distances[p, :n_near]
        entropy[p], level = settle(
            members, distances, codes, targets[p], curve, total, rules, average, depth, edges, scratch, nearest[p]
        )
        scratch.levels[p] = level
        _add_near(members, distances, sums[level])
        if groups[p] >= 0:
            _add_near(members, distances, sums[groups[p]])
        if values.shape[0] > 0:
            for i in range(images.shape[1]):
                values[p, i] = (table[images[p, i]] >> BOUND_BITS) / rules.value_scale
            for k in range(n_near):
                values[p, members[k]] = distances[k]
    # All points for one stretch of rows before the next, so that its sums stay in the cache.
    for lo in range(0, images.shape[1], ROWS):
        hi = min(lo + ROWS, images.shape[1])
        for p in range(images.shape[0]):
            if done[p]:
                add_images(images[p, lo:hi], scratch.tables[p], packed[scratch.levels[p], lo:hi])
                if groups[p] >= 0:
                    add_images(images[p, lo:hi], scratch.tables[p], packed[groups[p], lo:hi])


@kernel
def settle(
    members: Codes,
    distances: Floats,
    codes: Codes,
    target: int,
    curve: Curve,
    total: float,
    rules: Rules,
    average: bool,
    depth: int,
    edges: Floats,
    scratch: Scratch,
    nearest: Indices,
) -> tuple[float, int]:
    """Order the near rows of one point exactly: ``distances`` becomes their values.

    Returns
    -------
    entropy : float
    level : int
        Number of the level that the entropy belongs to.
    """
    near_codes = scratch.codes[: members.size]
    for k in range(members.size):
        near_codes[k] = codes[members[k]]
    order, _ = order_rows(distances, near_codes, target, scratch.work)
    space = RankScratch(scratch.work, scratch.keys, scratch.counts)
    walk(Ordered(distances, order, near_codes), Rule(curve.c, average, depth), total, rules.least, space)
    for r in range(nearest.size):
        nearest[r] = members[np.int64((order[r] & _INDEX) >> _ONE)]
    entropy = neighbor_entropy(scratch.counts, depth)
    level = 0 if entropy == 0.0 else max(np.searchsorted(edges, entropy), min(1, edges.size))
    return entropy, level


@kernel
def unpack(packed: Indices, rules: Rules, sums: Floats, bounds: Floats) -> None:
    """Add packed values to ``sums`` and packed bounds to ``bounds``, unless that is empty, and clear ``packed``."""
    for i in range(bounds.size):
        bounds[i] += (packed[i] & ((1 << BOUND_BITS) - 1)) / rules.bound_scale
    for i in range(packed.size):
        sums[i] += (packed[i] >> BOUND_BITS) / rules.value_scale
        packed[i] = 0


@kernel
def add_images(images: npt.NDArray[np.uint16], table: Indices, packed: Indices) -> None:
    """Add to each row the packed word that its image has in the table."""
    for i in range(images.size):
        packed[i] += table[images[i]]


@kernel
def _add_near(members, values, sums):
    for k in range(members.size):
        sums[members[k]] += values[k]


@kernel
def _count(images, histogram):
    histogram[:] = 0
    for i in range(images.size):
        histogram[images[i]] += np.uint32(1)


@kernel
def fill_table(
    curve: Curve, rules: Rules, base: float, histogram: npt.NDArray[np.uint32], table: Indices
) -> tuple[bool, float]:
    """Walk the buckets from the farthest to the second.

    Returns
    -------
    done : bool
        Whether the rules were kept.
    total : float
        What the rows of the first bucket start from; their table entries carry its uncertainty and nothing else.
    """
    at, inverse = curve.at, curve.inverse
    total, uncertain, spent, largest = base, 0.0, 0.0, 0.0
    hi = np.uint64(curve.c.size)  # unsigned, because Numba guards signed indices against being negative
    convex_from = np.uint64(curve.convex_from)
    last, sum_hi = at[hi, 0], at[hi, 1]
    for bucket in range(rules.buckets - 1, 0, -1):
        k = np.uint64(bucket) << _ONE
        n_others, n_matches = histogram[k], histogram[k | _ONE]
        others, matches = np.float64(np.int64(n_others)), np.float64(np.int64(n_matches))
        n = np.uint64(n_others) + np.uint64(n_matches)
        lo = hi - n
        before, sum_lo, first, second = at[lo, 0], at[lo, 1], at[lo + _ONE, 0], at[lo + _TWO, 0]
        # No branch on what is in the bucket, which nobody could predict: an empty one, or one whose rows all match or
        # do not, comes out right by itself, with errors of zero. (And no `max`, which takes care of NaN.)
        fall, one_of, one_of_others = before - last, inverse[n, 0], inverse[n, 1]
        mean_drop = fall * one_of
        share = ((sum_hi - sum_lo) * one_of - last) * one_of_others
        rest = first - second - share
        own = (share if share > rest else rest) if (n_others != 0) & (n_matches != 0) else 0.0
        passed = matches * others * one_of_others * (before - first - mean_drop)
        if lo <= convex_from:
            own, passed = _without_convexity(matches, others, first - last, fall, share)
        of_matching = others * own + uncertain
        of_other = matches * own + uncertain
        spent += matches * of_matching + others * of_other
        worse = (of_matching if of_matching > of_other else of_other) + passed
        largest = worse if worse > largest else largest
        table[k] = _pack(total - matches * share, of_other, rules)
        table[k | _ONE] = _pack(total + last + others * share, of_matching, rules)
        total -= matches * mean_drop
        uncertain += passed
        hi, last, sum_hi = lo, before, sum_lo
    table[:2] = _pack(0.0, uncertain, rules)
    return bool((largest <= rules.peak) & (spent + np.float64(hi) * uncertain <= rules.allowed)), total


@kernel
def _without_convexity(matches, others, own_fall, fall, share):
    """Errors per row of the other kind, and of the sum that is passed on, from the sum of the drops alone."""
    if matches == 0.0 or others == 0.0:
        return 0.0, 0.0
    average = matches / (matches + others) * fall
    # Times the number of the other kind, which is at least one, this is no less than the whole range.
    return max(own_fall - share, share), max(fall - average, average)


@kernel
def _pack(value, bound, rules):
    """Both numbers in one word; values are rounded towards zero, bounds up."""
    return (np.int64(value * rules.value_scale) << BOUND_BITS) + np.int64(bound * rules.bound_scale + 1.0)
