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
from shapshift.kernels.images import Labels, Near
from shapshift.kernels.rank import Ordered, RankScratch, Rule, neighbor_entropy, order_rows, walk

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# The lower bits of a packed word hold bounds, and the upper ones values.
BOUND_BITS = 28
# Number of rows whose packed sums are updated together.
ROWS = 2**13

_INDEX = np.uint64(0xFFFFFFFF)
_ONE, _TWO = np.uint64(1), np.uint64(2)


class Curve(NamedTuple):
    """The rank table with the quantities needed for bounds.

    Attributes
    ----------
    c : float64 (N,)
    at : float64 (N + 3, 2)
        c[r-1] and the sum of c[:r], for a bucket that begins at zero-based rank r. They are adjacent so that one memory
        access loads all that a bucket needs: these, c[r] and c[r+1]. An empty last bucket begins at rank N.
    inverse : float64 (N + 1, 2)
        ``1 / n`` and ``1 / (n - 1)``; 0 instead of infinity.
    convex_from : int
        The drops no longer grow from this rank on.
    """

    c: Floats
    at: Floats
    inverse: Floats
    convex_from: int


class Rules(NamedTuple):
    """Limits on the coarseness of buckets, and scales of packed words.

    Attributes
    ----------
    buckets : int
        At most 2**15.
    allowed : float
        Largest sum of bounds over the rows of one point.
    peak : float
        Largest bound of a row on one point.
    least : int
        Number of nearest rows that must have been ordered exactly.
    value_scale, bound_scale : float
        Units of a packed value or bound per 1.
    square_shift : int
        Lower bits of a packed word dropped before squaring, so that sums of squares do not overflow.
    weight_scale : float
        Units of a weight in a product with a value, as coarse as a square; 0 if points have no weights.
    """

    buckets: int
    allowed: float
    peak: float
    least: int
    value_scale: float
    bound_scale: float
    square_shift: int
    weight_scale: float = 0.0


class Game(NamedTuple):
    """Inputs common to all points.

    Attributes
    ----------
    curve : Curve
    rules : Rules
    average : bool
        Average over ties, or break them by row number.
    depth : int
        Number of nearest rows that decide whether a point is a boundary point.
    edges : float64 (l - 1,)
        Edges between the levels of entropy.
    """

    curve: Curve
    rules: Rules
    average: bool
    depth: int
    edges: Floats


class Scratch(NamedTuple):
    """Arrays of one worker for the near rows of a point; only ``counts`` must be zero on entry, and is on exit."""

    codes: Codes
    work: npt.NDArray[np.uint64]
    keys: Floats
    counts: Floats


class Settled(NamedTuple):
    """Results of the buckets of a batch of points.

    Attributes
    ----------
    tables : int64 (b, 2 * buckets)
        Packed value and bound for each image, multiplied by the weight of the point unless that is 0.
    levels : int64 (b,)
        Number of the entropy level.
    done : bool (b,)
        False for points whose buckets are too coarse for the rules.
    entropy : float64 (b,)
    nearest : int64 (b, k)
    weights : float64 (b,)
        Weights of the points; those of weight 0 are left out.
    """

    tables: Indices
    levels: Indices
    done: npt.NDArray[np.bool_]
    entropy: Floats
    nearest: Indices
    weights: Floats


class Cells(NamedTuple):
    """Sums to which points are added.

    Attributes
    ----------
    packed : int64 (cells, w)
        Sums of the buckets, read by :func:`unpack`: values with their bounds, and squares in separate cells.
    sums : float64 (cells, w)
        Values of the exactly ordered rows, and their squares.
    n_levels : int
        Number of cells of levels. They are followed by the cell of the squares of all points, then by the cell of each
        group with its squares; products follow squares.
    kept : int64 (k,)
        Rows whose values on each point are kept, in ascending order.
    values : float64 (b, k)
        Their values.
    """

    packed: Indices
    sums: Floats
    n_levels: int
    kept: Indices
    values: Floats


@kernel
def count_images(images: npt.NDArray[np.uint16], histograms: npt.NDArray[np.uint32]) -> None:
    """Count how often each point has each image."""
    for p in range(images.shape[0]):
        histogram = histograms[p]
        histogram[:] = 0
        for image in images[p]:
            histogram[image] += np.uint32(1)


@kernel
def settle_points(
    near: Near,
    histograms: npt.NDArray[np.uint32],
    labels: Labels,
    game: Game,
    scratch: Scratch,
    settled: Settled,
) -> None:
    """Fill the tables of a batch of points, and order their near rows exactly: distances become values.

    Parameters
    ----------
    near : Near
        Near rows among all training rows; nothing changes for points that are not done.
    histograms : uint32 (b, 2 * buckets)
        Likewise.
    labels : Labels
        With the classes of all training rows.
    game : Game
    scratch : Scratch
    settled : Settled
        Out.
    """
    rules = game.rules
    for p in range(histograms.shape[0]):
        n_near = near.found[p]
        settled.done[p] = rules.least <= n_near <= near.members.shape[1]
        settled.levels[p] = 0
        if not settled.done[p]:
            continue
        weight = settled.weights[p] if settled.weights[p] > 0.0 else 1.0
        settled.done[p], total = fill_table(
            game.curve, rules, labels.bases[p], weight, histograms[p], settled.tables[p]
        )
        if not settled.done[p]:
            continue
        members, values = near.members[p, :n_near], near.distances[p, :n_near]
        codes = scratch.codes[:n_near]
        for k in range(n_near):
            codes[k] = labels.codes[members[k]]
        order, _ = order_rows(values, codes, labels.targets[p], scratch.work)
        space = RankScratch(scratch.work, scratch.keys, scratch.counts)
        rule = Rule(game.curve.c, game.average, game.depth)
        walk(Ordered(values, order, codes), rule, total, rules.least, space)
        for k in range(n_near):
            values[k] *= weight
        for r in range(settled.nearest.shape[1]):
            settled.nearest[p, r] = members[np.int64((order[r] & _INDEX) >> _ONE)]
        entropy = neighbor_entropy(scratch.counts, game.depth)
        settled.entropy[p] = entropy
        if entropy != 0.0:
            settled.levels[p] = np.searchsorted(game.edges, entropy)


@kernel
def add_points(
    images: npt.NDArray[np.uint16],
    first: int,
    near: Near,
    settled: Settled,
    groups: Indices,
    cells: Cells,
    rules: Rules,
) -> None:
    """Add a batch of points to the sums of some training rows, without points that are not done.

    Parameters
    ----------
    images : uint16 (b, w)
        Of the rows first..first+w-1.
    first : int
    near : Near
        Near rows of each point, in ascending order, and their values.
    settled : Settled
    groups : int64 (b,)
        Cell for each point's group; -1 for none.
    cells : Cells
    rules : Rules
    """
    w, n_levels, kept = images.shape[1], cells.n_levels, cells.kept
    from_kept, to_kept = np.searchsorted(kept, first), np.searchsorted(kept, first + w)
    for p in range(images.shape[0]):
        if not settled.done[p]:
            continue
        members, values = near.members[p, : near.found[p]], near.distances[p, : near.found[p]]
        lo, hi = np.searchsorted(members, first), np.searchsorted(members, first + w)
        weight = settled.weights[p]
        for cell, square in ((settled.levels[p], n_levels), (groups[p], groups[p] + 1)):
            if cell >= 0 and weight > 0.0:
                for k in range(lo, hi):
                    cells.sums[cell, members[k] - first] += values[k]
                    cells.sums[square, members[k] - first] += values[k] * values[k]
                    if rules.weight_scale > 0.0:
                        cells.sums[square + 1, members[k] - first] += weight * values[k]
        weight = weight if weight > 0.0 else 1.0
        at = lo
        for column in range(from_kept, to_kept):
            while at < hi and members[at] < kept[column]:
                at += 1
            if at < hi and members[at] == kept[column]:
                cells.values[p, column] = values[at] / weight
            else:
                image = images[p, kept[column] - first]
                cells.values[p, column] = (settled.tables[p, image] >> BOUND_BITS) / rules.value_scale / weight
    # All points for one stretch of rows before the next stretch, so that its sums stay in the cache.
    for start in range(0, w, ROWS):
        here = slice(start, min(start + ROWS, w))
        for p in range(images.shape[0]):
            if settled.done[p] and settled.weights[p] > 0.0:
                for cell, square in ((settled.levels[p], n_levels), (groups[p], groups[p] + 1)):
                    if cell >= 0:
                        packed, squares = cells.packed[cell, here], cells.packed[square, here]
                        _add_images(images[p, here], settled.tables[p], packed, squares, rules.square_shift)
                        if rules.weight_scale > 0.0:
                            weight = np.int64(settled.weights[p] * rules.weight_scale)
                            products = cells.packed[square + 1, here]
                            _add_products(images[p, here], settled.tables[p], products, weight, rules.square_shift)


@kernel
def _add_images(images, table, packed, squares, shift):
    for i in range(images.size):
        word = table[images[i]]
        packed[i] += word
        value = word >> shift
        squares[i] += value * value


@kernel
def _add_products(images, table, products, weight, shift):
    for i in range(images.size):
        products[i] += weight * (table[images[i]] >> shift)


@kernel
def unpack(packed: Indices, rules: Rules, sums: Floats, bounds: Floats) -> None:
    """Add packed values to ``sums`` and packed bounds to ``bounds``, unless that is empty, and clear ``packed``."""
    for i in range(bounds.size):
        bounds[i] += (packed[i] & ((1 << BOUND_BITS) - 1)) / rules.bound_scale
    for i in range(packed.size):
        sums[i] += (packed[i] >> BOUND_BITS) / rules.value_scale
        packed[i] = 0


@kernel
def unpack_squares(packed: Indices, rules: Rules, sums: Floats) -> None:
    """Add packed squares to ``sums``, and clear ``packed``."""
    scale = rules.value_scale / 2.0 ** (rules.square_shift - BOUND_BITS)
    for i in range(packed.size):
        sums[i] += packed[i] / scale / scale
        packed[i] = 0


@kernel
def unpack_products(packed: Indices, rules: Rules, sums: Floats) -> None:
    """Add packed products to ``sums``, and clear ``packed``."""
    scale = rules.value_scale / 2.0 ** (rules.square_shift - BOUND_BITS)
    for i in range(packed.size):
        sums[i] += packed[i] / scale / rules.weight_scale
        packed[i] = 0


@kernel
def fill_table(
    curve: Curve, rules: Rules, base: float, weight: float, histogram: npt.NDArray[np.uint32], table: Indices
) -> tuple[bool, float]:
    """Fill the table, from the farthest bucket to the second; the weight enters only the table.

    Returns
    -------
    done : bool
        Whether the limits of the rules were kept.
    total : float
        Starting value of the rows of the first bucket; their table entries hold only its uncertainty.
    """
    at, inverse = curve.at, curve.inverse
    total, uncertain, spent, largest = base, 0.0, 0.0, 0.0
    hi = np.uint64(curve.c.size)  # unsigned, because Numba checks signed indices for negative values
    convex_from = np.uint64(curve.convex_from)
    last, sum_hi = at[hi, 0], at[hi, 1]
    for bucket in range(rules.buckets - 1, 0, -1):
        k = np.uint64(bucket) << _ONE
        n_others, n_matches = histogram[k], histogram[k | _ONE]
        others, matches = np.float64(np.int64(n_others)), np.float64(np.int64(n_matches))
        n = np.uint64(n_others) + np.uint64(n_matches)
        lo = hi - n
        before, sum_lo, first, second = at[lo, 0], at[lo, 1], at[lo + _ONE, 0], at[lo + _TWO, 0]
        # No branch on the content of a bucket, which is unpredictable: an empty bucket, or one with all or no rows
        # matching, gives the correct result with errors of zero. (And no `max`, which handles NaN.)
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
        table[k] = _pack(weight * (total - matches * share), weight * of_other, rules)
        table[k | _ONE] = _pack(weight * (total + last + others * share), weight * of_matching, rules)
        total -= matches * mean_drop
        uncertain += passed
        hi, last, sum_hi = lo, before, sum_lo
    table[:2] = _pack(0.0, weight * uncertain, rules)
    return bool((largest <= rules.peak) & (spent + np.float64(hi) * uncertain <= rules.allowed)), total


@kernel
def _without_convexity(matches, others, own_fall, fall, share):
    """Errors per row of the other kind, and of the sum passed on, from the sum of the drops alone."""
    if matches == 0.0 or others == 0.0:
        return 0.0, 0.0
    average = matches / (matches + others) * fall
    # Times the number of rows of the other kind, at least one, this is no less than the whole range.
    return max(own_fall - share, share), max(fall - average, average)


@kernel
def _pack(value, bound, rules):
    """Pack both numbers into one word; values are rounded towards zero, bounds up."""
    return (np.int64(value * rules.value_scale) << BOUND_BITS) + np.int64(bound * rules.bound_scale + 1.0)
