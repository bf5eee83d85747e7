"""The rank kernel for training rows that share their features with others.

Rows with equal features are at the same distance from every point. They need one distance and one place in the sort for
all of them, and those with the same label (a unit) have the same value. The formulas are those of
:mod:`shapshift.kernels.rank` with tie groups that are known beforehand, and so are the bits of the values.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.rank import neighbor_entropy, order_rows, sort_run, tie_values

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

_INDEX = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_HALF = np.uint64(32)


class Layout(NamedTuple):
    """Which rows are where.

    Attributes
    ----------
    units : int64 (n_places + 1,)
        Place q has the units ``units[q]`` up to ``units[q + 1]``.
    codes : int32 (n_units,)
        The label of each unit.
    rows : int64 (n_units + 1,)
    members : int64 (N,)
        Unit u has the rows ``members[rows[u]:rows[u + 1]]``, ascending.
    """

    units: Indices
    codes: Codes
    rows: Indices
    members: Indices


@kernel
def place_values(
    tile: Floats,
    layout: Layout,
    targets: Codes,
    c: Floats,
    bases: Floats,
    depth: int,
    reference: Indices,
    work: npt.NDArray[np.uint64],
    keys: Floats,
    counts: Floats,
    entropy: Floats,
    nearest: Indices,
    ranks: Floats,
    values: Floats,
) -> None:
    """Turn distances to places into the values of units.

    Parameters that :func:`shapshift.kernels.rank.rank_values` has mean the same here; ties are averaged.

    Parameters
    ----------
    tile : float64 (b, n_places)
        Non-negative finite distances.
    layout : Layout
    reference : int64 (b, r)
        Places, not rows.
    work : uint64 (2, n_places)
    keys : float64 (n_places,)
    nearest : int64 (b, k)
        Out: rows, not places.
    values : float64 (b, n_units)
        Out.
    """
    unlabelled = np.zeros(tile.shape[1], np.int32)
    for p in range(tile.shape[0]):
        row = tile[p]
        order, _ = order_rows(row, unlabelled, -1, work)
        for r in range(reference.shape[1]):
            ranks[p, r] = _rank_of(row, layout, row[reference[p, r]])
        if nearest.shape[1] > 0:
            _nearest_rows(row, order, layout, nearest[p])
        _walk(row, order, layout, targets[p], c, bases[p], depth, counts, keys, values[p])
        entropy[p] = neighbor_entropy(counts, depth)


@kernel
def _place(element):
    return np.int64((element & _INDEX) >> _ONE)


@kernel
def _walk(row, order, layout, target, c, value, depth, counts, keys, values):
    """Write the values of units, from the far end of ``order`` to the near one."""
    units, codes, rows = layout.units, layout.codes, layout.rows
    matched, above, hi = 0.0, c.size, row.size
    while hi > 0:
        lo = hi - 1
        image = order[lo] >> _HALF
        while lo > 0 and order[lo - 1] >> _HALF == image:
            lo -= 1
        if hi - lo > 1:
            for r in range(lo, hi):
                keys[r] = row[_place(order[r])]
            sort_run(keys, order, lo, hi)
        end = hi
        while end > lo:
            start = end - 1
            while start > lo and keys[start - 1] == keys[end - 1]:
                start -= 1
            n = matches = 0
            for r in range(start, end):
                place = _place(order[r])
                for u in range(units[place], units[place + 1]):
                    n += rows[u + 1] - rows[u]
                    matches += (rows[u + 1] - rows[u]) * np.int64(codes[u] == target)
            first, last = above - n, c[above - 1]
            if first < depth:
                _count_labels(order, start, end, layout, (min(above, depth) - first) / n, counts)
            if (matches == 0) | (matches == n):
                match = np.float64(matches > 0)
                value += (match - matched) * last
                matching, other, matched = value, value, match
            else:
                value -= matched * last
                mean = 0.0
                for r in range(first, above):
                    mean += c[r]
                mean /= n
                matching, other = tie_values(mean, last, matches, n)
                matching, other = matching + value, other + value
                if first > 0:
                    value += matches / n * (last - c[first - 1])
                matched = 0.0
            for r in range(start, end):
                place = _place(order[r])
                for u in range(units[place], units[place + 1]):
                    values[u] = matching if codes[u] == target else other
            above, end = first, start
        hi = lo


@kernel
def _count_labels(order, start, end, layout, share, counts):
    for r in range(start, end):
        place = _place(order[r])
        for u in range(layout.units[place], layout.units[place + 1]):
            for _ in range(layout.rows[u + 1] - layout.rows[u]):  # added, not multiplied: the same bits as row by row
                counts[layout.codes[u]] += share


@kernel
def _rank_of(row, layout, distance):
    """Rank of the rows at a distance, ties averaged."""
    below = equal = 0
    for place in range(row.size):
        size = layout.rows[layout.units[place + 1]] - layout.rows[layout.units[place]]
        below += size * np.int64(row[place] < distance)
        equal += size * np.int64(row[place] == distance)
    return below + (equal - 1) / 2


@kernel
def _nearest_rows(row, order, layout, nearest):
    """Find the nearest rows, ties by row number."""
    k = nearest.size
    places = found = 0
    # Whole runs of one image, in which the places are not in order yet, until there are rows enough.
    while places < order.size and (found < k or order[places] >> _HALF == order[places - 1] >> _HALF):
        place = _place(order[places])
        for u in range(layout.units[place], layout.units[place + 1]):
            found += min(layout.rows[u + 1] - layout.rows[u], k)  # more of one unit are never needed
        places += 1
    rows, distances = np.empty(found, np.int64), np.empty(found)
    at = 0
    for r in range(places):
        place = _place(order[r])
        for u in range(layout.units[place], layout.units[place + 1]):
            for i in range(layout.rows[u], min(layout.rows[u + 1], layout.rows[u] + k)):
                rows[at], distances[at] = layout.members[i], row[place]
                at += 1
    by_number = np.argsort(rows)
    by_distance = np.argsort(distances[by_number], kind="mergesort")
    nearest[:] = rows[by_number][by_distance[:k]]
