"""The nearest rows of a validation point, without ordering the others.

Distances come strip by strip. What is not beyond the wanted rank of what came before is collected, and when there is no
room left, that is cut back to the nearest. So each row is looked at once and each cut is paid for by as many rows as it
handles: linear time for any order of the rows. A sample of the distances saves most cuts, by a guess how far the wanted
rank is; who collects too few because of it has to begin again. Only what is left in the end is put in order.

Lists of different lengths lie one behind the other: the list of point p is ``[ends[p]:ends[p + 1]]``.
"""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.distance import (
    NEARLY_PARALLEL,
    START,
    _add,
    add_product,
    inverse_length,
    of_nearly_parallel,
    one_minus_cosine,
)
from shapshift.kernels.rank import _long_sort

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@kernel
def collect_nearest(
    tile: Floats, first: int, wanted: int, rows: Indices, keys: Floats, counts: Indices, limits: Floats
) -> None:
    """Collect what may be among the nearest rows of each point.

    Parameters
    ----------
    tile : float64 (b, w)
        Distances of b points to the rows ``first``, ``first + 1``, ..
    wanted : int
        How many nearest rows are looked for.
    rows : int64 (b, room)
    keys : float64 (b, room)
        Row numbers, ascending, and distances collected so far; room for twice as many as wanted, or for all rows.
    counts : int64 (b,)
        How many those are; -1 from when so many are tied with the last wanted one that half the room is not enough.
    limits : float64 (b,)
        What is farther need not be collected; at first a guess, or infinite.
    """
    room = rows.shape[1]
    for p in range(tile.shape[0]):
        row, count, limit = tile[p], counts[p], limits[p]
        if count < 0:
            continue
        for i in range(row.size):
            if row[i] <= limit:
                if count == room:
                    count, limit = _cut_back(rows[p], keys[p], count, wanted)
                    if count > room // 2:
                        count = -1
                        break
                    if row[i] > limit:
                        continue
                rows[p, count], keys[p, count] = first + i, row[i]
                count += 1
        counts[p], limits[p] = count, limit


@kernel
def likely_limits(sample: Floats, n_rows: int, wanted: int, limits: Floats) -> None:
    """Guess a distance that the wanted rank is hardly beyond, from distances to some of the rows."""
    rank = wanted * sample.shape[1] / n_rows
    place = int(rank + 3 * np.sqrt(rank) + 1)
    if place < sample.shape[1]:
        for p in range(sample.shape[0]):
            limits[p] = np.partition(sample[p], place)[place]


@kernel
def order_collected(wanted: int, whole: bool, rows: Indices, keys: Floats, counts: Indices, ends: Indices) -> None:
    """Put what was collected in order, in place.

    Parameters
    ----------
    wanted, rows, keys, counts
        As in :func:`collect_nearest`; points with too few get empty lists.
    whole : bool
        Also take all rows that are as far as the last one, or stop at exactly ``wanted``, ties by row number.
    ends : int64 (b + 1,)
        Receives where each list would end if they were behind one another.
    """
    ends[0] = 0
    for p in range(counts.size):
        count = counts[p] if counts[p] >= wanted else 0
        if count > wanted:
            count, _ = _cut_back(rows[p], keys[p], count, wanted)
        if count > 0:
            # The rows are in ascending order, which a stable sort keeps among equals.
            _long_sort(keys[p], rows[p], 0, count)
        ends[p + 1] = ends[p] + (count if whole else min(count, wanted))


@kernel
def join_collected(rows: Indices, keys: Floats, ends: Indices, found: Indices, distances: Floats) -> None:
    """Write lists that are in order behind one another: row numbers and distances."""
    # Not returned by the kernel that orders them: an interrupt that comes while a kernel is at work is noticed when its
    # arrays are turned into Python's, and Numba makes a SystemError of it.
    for p in range(ends.size - 1):
        size = ends[p + 1] - ends[p]
        found[ends[p] : ends[p + 1]] = rows[p, :size]
        distances[ends[p] : ends[p + 1]] = keys[p, :size]


@kernel
def _cut_back(rows, keys, count, wanted):
    """Keep what is not beyond the wanted rank, in its order; returns how many those are and the last distance."""
    limit = np.partition(keys[:count], wanted - 1)[wanted - 1]
    kept = 0
    for i in range(count):
        rows[kept], keys[kept] = rows[i], keys[i]
        kept += keys[i] <= limit
    return kept, limit


@kernel
def order_nearest(rows: Indices, keys: Floats, wanted: int) -> int:
    """Bring the nearest of some rows, given in any order, to the front and in order; returns how many with ties."""
    count = rows.size
    if count > wanted:
        count, _ = _cut_back(rows, keys, count, wanted)
    by_row = np.argsort(rows[:count])
    keys[:count], rows[:count] = keys[:count][by_row], rows[:count][by_row]
    _long_sort(keys, rows, 0, count)
    return count


@kernel
def squared_to_rows(table: Floats, x: Floats, rows: Indices, out: Floats) -> None:
    """Squared distance of ``x`` to some rows of ``table`` (N, d): the same bits as a tile has."""
    for i in range(rows.size):
        row = table[rows[i]]
        total = 0.0
        for j in range(x.size):
            total = _add(row[j] - x[j], total)
        out[i] = total


@kernel
def manhattan_to_rows(table: Floats, x: Floats, rows: Indices, out: Floats) -> None:
    """Sum of absolute differences; arguments as in :func:`squared_to_rows`."""
    for i in range(rows.size):
        row = table[rows[i]]
        total = 0.0
        for j in range(x.size):
            total += abs(row[j] - x[j])
        out[i] = total


@kernel
def cosine_to_rows(table: Floats, x: Floats, rows: Indices, out: Floats) -> None:
    """Cosine distance of rows no longer than 1; arguments as in :func:`squared_to_rows`."""
    total, rest = START, 0.0
    for j in range(x.size):
        total, rest = add_product(x[j], x[j], total, rest)
    own, own_low = inverse_length(total, rest)
    for i in range(rows.size):
        row = table[rows[i]]
        total, rest, squared, squared_rest = START, 0.0, START, 0.0
        for j in range(x.size):
            total, rest = add_product(row[j], x[j], total, rest)
            squared, squared_rest = add_product(row[j], row[j], squared, squared_rest)
        other, other_low = inverse_length(squared, squared_rest)
        high, low = one_minus_cosine(total, rest, own, own_low, other, other_low)
        out[i] = high + low
        if out[i] < NEARLY_PARALLEL:
            out[i] = of_nearly_parallel(x, row, own, own_low, other, other_low, out[i])


@kernel
def bucket_rows(
    hashes: npt.NDArray[np.uint64],
    keys: npt.NDArray[np.uint64],
    key_ends: Indices,
    starts: Indices,
    members: npt.NDArray[np.uint32],
    seen: npt.NDArray[np.uint32],
    stamp: int,
    rows: Indices,
) -> int:
    """Collect the rows that share a bucket with one point in any table, each once, in any order.

    Parameters
    ----------
    hashes : uint64 (L,)
        Bucket of the point in each table.
    keys : uint64
        Buckets of each table in ascending order, one table behind the other.
    key_ends : int64 (L + 1,)
        Where the buckets of each table begin and end in ``keys``.
    starts : int64 (keys.size + 1,)
        Where each bucket begins in ``members``.
    members : uint32 (L * N,)
        Row numbers, bucket by bucket.
    seen : uint32 (N,)
        Scratch; nowhere equal to ``stamp``.
    stamp : int
    rows : int64 (N,)
        Out: row numbers.

    Returns
    -------
    int
        How many.
    """
    count = 0
    for table in range(hashes.size):
        first, last = key_ends[table], key_ends[table + 1]
        at = first + np.searchsorted(keys[first:last], hashes[table])
        if at == last or keys[at] != hashes[table]:
            continue
        for i in range(starts[at], starts[at + 1]):
            row = members[i]
            if seen[row] != stamp:
                seen[row] = stamp
                rows[count] = row
                count += 1
    return count
