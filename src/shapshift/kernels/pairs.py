"""Pairs of rows within a small distance of each other, without comparing all pairs.

Rows are sorted by the first coordinate of a sketch: a few coordinates whose distances bound those of the rows. Only
rows near each other in that coordinate are compared, nearly all of them by their sketches alone.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


# Number of rows whose sketches are compared together.
STRIP = 512


class SortedRows(NamedTuple):
    """Rows in ascending order of ``sketch[0]``: dense columns, then sparse ones, and the sketch.

    Attributes
    ----------
    dense : float64 (n, d)
    data, indices, indptr
        Of the sparse columns, as in a csr_array with sorted indices.
    sketch : float64 (s, n)
    number : int64 (n,)
        Number of each row before it was sorted.
    limit, sketch_limit, window : float
        Largest squared distance of near rows, largest squared distance of their sketches, and the root of the latter.
    """

    dense: Floats
    data: Floats
    indices: npt.NDArray[np.int32]
    indptr: Indices
    sketch: Floats
    number: Indices
    limit: float
    sketch_limit: float
    window: float


@kernel
def near_pairs(
    rows: SortedRows,
    start: int,
    stop: int,
    groups: Indices,
    bits: npt.NDArray[np.int8],
    nearest: Floats,
    partner: Indices,
    seen: npt.NDArray[np.int8],
) -> None:
    """Compare rows ``start`` to ``stop - 1`` with later rows in the order.

    Parameters
    ----------
    rows : SortedRows
    start, stop : int
    groups : int64 (n,)
        Rows of different groups are not compared.
    bits : int8 (n,)
        Flags collected from near rows.
    nearest, partner : float64 (n,), int64 (n,)
        Updated: squared distance of the nearest row and its number, the lowest of several.
    seen : int8 (n,)
        Updated: ``bits`` of all near rows, joined by "or".
    """
    number = rows.number
    found = np.empty(STRIP)
    for i in range(start, stop):
        end = np.searchsorted(rows.sketch[0], rows.sketch[0, i] + rows.window, side="right")
        for lo in range(i + 1, end, STRIP):
            hi = min(lo + STRIP, end)
            _sketch_distances(rows, i, lo, hi, found)
            for j in range(lo, hi):
                if found[j - lo] > rows.sketch_limit or groups[i] != groups[j]:
                    continue
                squared = _squared(rows, i, j)
                if squared > rows.limit:
                    continue
                seen[i] |= bits[j]
                seen[j] |= bits[i]
                for one, other in ((i, j), (j, i)):
                    lower = number[other] < partner[one]
                    if squared < nearest[one] or (squared == nearest[one] and lower):
                        nearest[one], partner[one] = squared, number[other]


@kernel
def gather_stars(rows: SortedRows, order: Indices, echo: float, leader: Indices) -> None:
    """Give each row a leader: itself, or that of the first row before it in ``order`` that is near enough.

    Parameters
    ----------
    rows : SortedRows
    order : int64 (n,)
        Places in ``rows``, in the order in which rows become leaders.
    echo : float
        Rows that lead themselves lead all that are near; others pass their leader on within this part of that distance.
    leader : int64 (n,)
        Out, by position: number of the leader.
    """
    leader[:] = -1
    found = np.empty(STRIP)
    for i in order:
        part = echo
        if leader[i] < 0:
            leader[i], part = rows.number[i], 1.0
        if part == 0:
            continue
        limit, sketch_limit = part**2 * rows.limit, part**2 * rows.sketch_limit
        here, window = rows.sketch[0, i], part * rows.window
        start = np.searchsorted(rows.sketch[0], here - window)
        end = np.searchsorted(rows.sketch[0], here + window, side="right")
        for lo in range(start, end, STRIP):
            hi = min(lo + STRIP, end)
            _sketch_distances(rows, i, lo, hi, found)
            for j in range(lo, hi):
                if leader[j] < 0 and found[j - lo] <= sketch_limit and _squared(rows, i, j) <= limit:
                    leader[j] = leader[i]


@kernel
def _sketch_distances(rows, i, lo, hi, found):
    """Write the squared distances of sketch i to those from lo to hi - 1."""
    found[: hi - lo] = 0.0
    for coordinate in rows.sketch:
        here = coordinate[i]
        for j in range(lo, hi):
            found[j - lo] += (coordinate[j] - here) * (coordinate[j] - here)


@kernel
def _squared(rows, i, j):
    """Squared distance of two rows; if above the limit, any number above it."""
    dense, indices = rows.dense, rows.indices
    total = 0.0
    for c in range(dense.shape[1]):
        total += (dense[i, c] - dense[j, c]) ** 2
        if total > rows.limit:
            return total
    a, b, end_a, end_b = rows.indptr[i], rows.indptr[j], rows.indptr[i + 1], rows.indptr[j + 1]
    while (a < end_a or b < end_b) and total <= rows.limit:
        if b == end_b or (a < end_a and indices[a] < indices[b]):
            total += rows.data[a] ** 2
            a += 1
        elif a == end_a or indices[b] < indices[a]:
            total += rows.data[b] ** 2
            b += 1
        else:
            total += (rows.data[a] - rows.data[b]) ** 2
            a += 1
            b += 1
    return total
