"""The nearest rows of a validation point, without ordering the others.

A small sample, evenly spaced in the table, says about how far the wanted rank is. One pass over the distances collects
what is no farther, and whenever twice as much as is wanted has come together, that is cut back to the nearest. So each
row is looked at once and each cut is paid for by as many rows as it handles: linear time for any order of the rows.
Should the sample have misled, the pass is made again without it. Only what is left in the end is put in order.

Lists of different lengths lie one behind the other: the list of point p is ``[ends[p]:ends[p + 1]]``.
"""

import numpy as np
import numpy.typing as npt

from shapshift._numba import fma, kernel
from shapshift.kernels.distance import _add, _cosine_distance
from shapshift.kernels.rank import _long_sort

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Distances that a first guess rests on.
SAMPLE = 2048


@kernel
def select_nearest(
    tile: Floats, wanted: int, whole: bool, rows: Indices, keys: Floats
) -> tuple[Indices, Indices, Floats]:
    """Nearest rows of each point, from a tile of distances.

    Parameters
    ----------
    tile : float64 (b, N)
        Distances, one validation point per row.
    wanted : int
        How many rows; at most N.
    whole : bool
        Also take all rows that are as far as the last one, or stop at exactly ``wanted``, ties by row number.
    rows : int64 (N,)
    keys : float64 (N,)
        Scratch.

    Returns
    -------
    ends : int64 (b + 1,)
    found : int64
        Row numbers, nearest first, ties by row number.
    distances : float64
    """
    n_points = tile.shape[0]
    ends = np.zeros(n_points + 1, np.int64)
    found = np.empty(n_points * wanted, np.int64)
    distances = np.empty(found.size)
    for p in range(n_points):
        count = _collect(tile[p], wanted, rows, keys)
        if count > wanted:
            count, _ = _cut_back(rows, keys, count, wanted)
        # The rows are in ascending order, which a stable sort keeps among equals.
        _long_sort(keys, rows, 0, count)
        if not whole:
            count = min(count, wanted)
        ends[p + 1] = ends[p] + count
        if ends[p + 1] > found.size:
            room = np.empty(ends[p + 1], np.int64)  # ties fill it beyond what was wanted
            found, distances = np.append(found, room), np.append(distances, np.empty(room.size))
        found[ends[p] : ends[p + 1]] = rows[:count]
        distances[ends[p] : ends[p + 1]] = keys[:count]
    return ends, found[: ends[-1]], distances[: ends[-1]]


@kernel
def _collect(row, wanted, rows, keys):
    """Write rows in ascending order, the nearest ``wanted`` and all that tie with them among them; returns how many."""
    limit = _likely_limit(row, wanted)
    while True:
        count = 0
        room = 2 * wanted + SAMPLE
        for i in range(row.size):
            if row[i] <= limit:
                rows[count], keys[count] = i, row[i]
                count += 1
                if count == room:
                    count, limit = _cut_back(rows, keys, count, wanted)
                    room = 2 * count + SAMPLE  # ties can leave more than was wanted
        if count >= wanted:
            return count
        limit = np.inf


@kernel
def _likely_limit(row, wanted):
    """Distance that the wanted rank is hardly beyond."""
    rank = wanted * SAMPLE / row.size
    place = np.int64(rank + 3 * np.sqrt(rank) + 1)
    if place >= SAMPLE // 2:
        return np.inf
    sample = np.empty(SAMPLE)
    for i in range(SAMPLE):
        sample[i] = row[i * row.size // SAMPLE]
    return np.partition(sample, place)[place]


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
    """Cosine distance of unit rows; arguments as in :func:`squared_to_rows`."""
    for i in range(rows.size):
        row = table[rows[i]]
        total, product = 0.0, 0.0
        for j in range(x.size):
            total = _add(row[j] - x[j], total)
            product = fma(row[j], x[j], product)
        out[i] = _cosine_distance(product, total)


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
