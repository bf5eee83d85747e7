"""The rank kernel for training rows with duplicates.

Rows with equal features are at the same distance from every point. They share one distance and one position in the
sort, and those with the same label (a unit) have the same value. The formulas are those of
:mod:`shapshift.kernels.rank` with tie groups known in advance, and the values have the same bits.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.images import count_among
from shapshift.kernels.rank import (
    Batch,
    Findings,
    RankScratch,
    Rule,
    neighbor_entropy,
    order_rows,
    row_of,
    sort_run,
    tie_group,
)

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

_HALF = np.uint64(32)


class Layout(NamedTuple):
    """Rows of each unit, and units of each place.

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


class Places(NamedTuple):
    """Places of one point, from near to far.

    Attributes
    ----------
    row : float64 (n_places,)
        Distances.
    order : uint64 (n_places,)
        Elements as made by :func:`shapshift.kernels.rank.order_rows`.
    layout : Layout
    """

    row: Floats
    order: npt.NDArray[np.uint64]
    layout: Layout


@kernel
def place_values(
    tile: Floats, layout: Layout, batch: Batch, rule: Rule, scratch: RankScratch, found: Findings, values: Floats
) -> None:
    """Turn distances to places into the values of units.

    Parameters shared with :func:`shapshift.kernels.rank.rank_values` have the same meaning; ties are averaged.

    Parameters
    ----------
    tile : float64 (b, n_places)
        Non-negative finite distances.
    layout : Layout
    batch : Batch
        Its reference has places, not rows.
    rule : Rule
    scratch : RankScratch
        For the order of n_places.
    found : Findings
        Out. Nearest are rows, not places.
    values : float64 (b, n_units)
        Out.
    """
    unlabelled = np.zeros(tile.shape[1], np.int32)
    reference, nearest = batch.reference, found.nearest
    sizes = layout.rows[layout.units[1:]] - layout.rows[layout.units[:-1]]
    for p in range(tile.shape[0]):
        row = tile[p]
        order, _ = order_rows(row, unlabelled, -1, scratch.work)
        if reference.shape[1] > 0:
            found.ranks[p] = -0.5  # the row ties with itself, which adds 0.5
            count_among(row, sizes, row[reference[p]], found.ranks[p])
        places = Places(row, order, layout)
        if nearest.shape[1] > 0:
            _nearest_rows(places, nearest[p])
        _walk(places, batch.targets[p], rule, batch.bases[p], scratch, values[p])
        found.entropy[p] = neighbor_entropy(scratch.counts, rule.depth)


@kernel
def _walk(places, target, rule, value, scratch, values):
    """Write the values of units, from the far end of the order to the near one."""
    row, order, layout = places.row, places.order, places.layout
    units, codes, rows = layout.units, layout.codes, layout.rows
    c, depth, keys = rule.c, rule.depth, scratch.keys
    matched, above, hi = np.int64(0), c.size, row.size
    while hi > 0:
        lo = hi - 1
        image = order[lo] >> _HALF
        while lo > 0 and order[lo - 1] >> _HALF == image:
            lo -= 1
        if hi - lo > 1:
            for r in range(lo, hi):
                keys[r] = row[row_of(order[r])]
            sort_run(keys, order, lo, hi)
        end = hi
        while end > lo:
            start = end - 1
            while start > lo and keys[start - 1] == keys[end - 1]:
                start -= 1
            n = matches = 0
            for r in range(start, end):
                place = row_of(order[r])
                for u in range(units[place], units[place + 1]):
                    n += rows[u + 1] - rows[u]
                    matches += (rows[u + 1] - rows[u]) * np.int64(codes[u] == target)
            first = above - n
            if first < depth:
                _count_labels(places, start, end, (min(above, depth) - first) / n, scratch.counts)
            last = c[above - 1]
            if (matches == 0) | (matches == n):
                match = np.int64(matches > 0)
                value += (match - matched) * last
                matching, other, matched = value, value, match
            else:
                matching, other, value = tie_group(c, (first, above), matches, value - matched * last)
                matched = np.int64(0)
            for r in range(start, end):
                place = row_of(order[r])
                for u in range(units[place], units[place + 1]):
                    values[u] = matching if codes[u] == target else other
            above, end = first, start
        hi = lo


@kernel
def _count_labels(places, start, end, share, counts):
    order, layout = places.order, places.layout
    for r in range(start, end):
        place = row_of(order[r])
        for u in range(layout.units[place], layout.units[place + 1]):
            for _ in range(layout.rows[u + 1] - layout.rows[u]):  # added, not multiplied: the same bits as row by row
                counts[layout.codes[u]] += share


@kernel
def _nearest_rows(places, nearest):
    """Find the nearest rows, ties by row number."""
    row, order, layout = places
    k = nearest.size
    taken = found = 0
    # Take whole runs of one image, whose places are not yet in order, until there are enough rows.
    while taken < order.size and (found < k or order[taken] >> _HALF == order[taken - 1] >> _HALF):
        place = row_of(order[taken])
        for u in range(layout.units[place], layout.units[place + 1]):
            found += min(layout.rows[u + 1] - layout.rows[u], k)  # no more rows of a unit are needed
        taken += 1
    rows, distances = np.empty(found, np.int64), np.empty(found)
    at = 0
    for r in range(taken):
        place = row_of(order[r])
        for u in range(layout.units[place], layout.units[place + 1]):
            for i in range(layout.rows[u], min(layout.rows[u + 1], layout.rows[u] + k)):
                rows[at], distances[at] = layout.members[i], row[place]
                at += 1
    by_number = np.argsort(rows)
    by_distance = np.argsort(distances[by_number], kind="mergesort")
    nearest[:] = rows[by_number][by_distance[:k]]
