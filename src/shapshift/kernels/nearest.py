"""The nearest rows of a validation point, without sorting the others.

Distances come strip by strip. Rows within the wanted rank of those seen so far are collected. When the space is full,
the collection is cut to the nearest. So each row is read once, and each cut handles as many rows as were added since:
linear time for any order of the rows. A sample of the distances gives a first guess of the wanted distance, which saves
most cuts; a point that collects too few rows because of it starts again. Only the final rows are sorted.

Lists of different lengths are concatenated: the list of point p is ``[ends[p]:ends[p + 1]]``. Candidate lists of
:class:`shapshift.ValuationStore` hold more rows than needed, so that some can be removed without a new search, and are
complete up to a distance, their reach.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.distance import (
    NEARLY_PARALLEL,
    _add,
    add_product,
    inverse_length,
    of_nearly_parallel,
    one_minus_cosine,
    squared_length,
)
from shapshift.kernels.panels import ROWS, START, STRIP, as_float, panels_of, short_squared_sums
from shapshift.kernels.rank import _long_sort, sort_run

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]


class Lists(NamedTuple):
    """The nearest rows of a few validation points, as concatenated lists.

    Attributes
    ----------
    ends : int64 (b + 1,)
        The list of point p is ``[ends[p]:ends[p + 1]]``.
    rows : int64
    distances : float64
        Row numbers and distances, nearest first, ties by row number.
    certain : int64 (b,)
        Number of rows at the head of each list that are certainly the nearest ones in order.
    ranks : float64 (b, r)
        Zero-based rank, averaged over ties, of each requested row; rows outside the list share the middle rank of all
        of them.
    """

    ends: Indices
    rows: Indices
    distances: Floats
    certain: Indices
    ranks: Floats


class Collected(NamedTuple):
    """Rows that may be among the nearest ones of each point.

    Attributes
    ----------
    rows : int64 (b, room)
    keys : float64 (b, room)
        Row numbers, ascending, and distances collected so far; space for twice the wanted number, or for all rows.
    counts : int64 (b,)
        Numbers of these; -1 if too many rows are tied with the last wanted one for half the space.
    limits : float64 (b,)
        Distance beyond which rows need not be collected; at first a guess, or infinite.
    """

    rows: Indices
    keys: Floats
    counts: Indices
    limits: Floats


class Rounded(NamedTuple):
    """Training rows of a type shorter than float64, and validation points rounded to float32.

    Attributes
    ----------
    panels : ndarray (k, 4, d, 8)
    n_rows : int
    points : float64 (b, d)
    short : float32 (b, d)
    lost : float64 (b,)
        Largest distance of each rounded point from the point.
    """

    panels: npt.NDArray[Any]
    n_rows: int
    points: Floats
    short: npt.NDArray[np.float32]
    lost: Floats


class HashTables(NamedTuple):
    """Buckets of L hash tables over N rows.

    Attributes
    ----------
    keys : uint64
        Buckets of each table in ascending order, table after table.
    key_ends : int64 (L + 1,)
        Ends of each table's buckets in ``keys``.
    starts : int64 (keys.size + 1,)
        Start of each bucket in ``members``.
    members : uint32 (L * N,)
        Row numbers, bucket by bucket.
    """

    keys: npt.NDArray[np.uint64]
    key_ends: Indices
    starts: Indices
    members: npt.NDArray[np.uint32]


@kernel
def collect_nearest(tile: Floats, first: int, wanted: int, collected: Collected) -> None:
    """Collect rows that may be among the nearest ones of each point.

    Parameters
    ----------
    tile : float64 (b, w)
        Distances of b points to the rows ``first``, ``first + 1``, ..
    wanted : int
        Number of nearest rows to find.
    collected : Collected
        Updated.
    """
    rows, keys, counts, limits = collected
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
def collect_by_bounds(rounded: Rounded, wanted: int, collected: Collected) -> None:
    """Collect the rows of :func:`collect_nearest` among all rows, reading most of them in float32 only.

    Sums of squared differences in float32 cost half of those in float64, and their error is a share of the distance
    itself, wherever the origin is. Let x be a row, which float32 numbers hold without error, t a point, s what rounding
    leaves of it, and u = 2**-24. A difference x_j - s_j is rounded once, by a factor within 1 +- u, and squared as it
    is; each addition rounds once, by such a factor or, where numbers are too small for that, by 2**-150. So the sum has

        S <= (1 + u)^(d+2) |x - s|^2 + d 2^-150,    |x - s| <= |x - t| + |t - s|

    and a float64 distance of x and t that is no larger than L has |x - t|^2 <= L (1 + (d+3) 2^-53), likewise. Rows with

        S > (L^(1/2) + |t - s|)^2 (1 + 2^-20) / (1 - (d+2) u) + d 2^-149

    are therefore farther than L: (1 + u)^k <= 1 / (1 - k u), and 2^-20 is more than what rounding does to a distance,
    to L^(1/2) and to the limit itself. All others are measured in float64, to the bits of a tile, while their panel is
    in the cache. Sums must not overflow, and d must be below 2**16.

    Parameters
    ----------
    rounded : Rounded
    wanted : int
        Number of nearest rows to find.
    collected : Collected
        Updated.
    """
    panels, n_rows, points, short, lost = rounded
    rows, keys, counts, limits = collected
    n_points, room = points.shape[0], rows.shape[1]
    sums, within = np.empty((n_points, ROWS), np.float32), np.empty(n_points, np.float32)
    which, places = np.empty(n_points * ROWS, np.int64), np.empty(n_points * ROWS, np.int64)
    distances = np.empty(n_points * ROWS)
    for p in range(n_points):
        within[p] = _short_limit(limits[p], lost[p], points.shape[1])
    last_panel = panels_of(n_rows) - 1
    for k in range(last_panel + 1):
        short_squared_sums(panels[k], short, sums, 0, panels[min(k + 1, last_panel)])
        found, first, last = 0, k * ROWS, min(ROWS, n_rows - k * ROWS)
        for p in range(n_points):
            if counts[p] >= 0:
                for i in range(last):
                    which[found], places[found] = p, i
                    found += sums[p, i] <= within[p]
        if found > 0:
            _measure_pairs(panels[k], points, which[:found], places[:found], distances)
        for pair in range(found):
            p, distance, count = which[pair], distances[pair], counts[which[pair]]
            if count < 0 or distance > limits[p]:
                continue
            if count == room:
                count, limits[p] = _cut_back(rows[p], keys[p], count, wanted)
                counts[p] = count if count <= room // 2 else -1
                within[p] = _short_limit(limits[p], lost[p], points.shape[1])
                if count > room // 2 or distance > limits[p]:
                    continue
            rows[p, count], keys[p, count] = first + places[pair], distance
            counts[p] = count + 1


@kernel
def _short_limit(limit, lost, n_features):
    """Return an upper bound on the float32 sum of a row within a limit."""
    root = np.sqrt(limit) + lost
    share = (1.0 + 2.0**-20) / (1.0 - (n_features + 2) * 2.0**-24)
    return np.float32((root * root * share + n_features * 2.0**-149) * (1.0 + 2.0**-23))


@kernel
def _measure_pairs(panel, points, which, places, distances):
    """Squared distances of pairs of a point and a row of a panel, with the bits of a tile."""
    d, size = points.shape[1], which.size
    # Four at a time, because a sum waits for its last addition.
    for pair in range(0, size, 4):
        a, b, c, e = pair, min(pair + 1, size - 1), min(pair + 2, size - 1), min(pair + 3, size - 1)
        p, q, r, s = which[a], which[b], which[c], which[e]
        at_p, at_q, at_r, at_s = places[a], places[b], places[c], places[e]
        strip_p, strip_q, strip_r, strip_s = at_p // STRIP, at_q // STRIP, at_r // STRIP, at_s // STRIP
        in_p, in_q, in_r, in_s = at_p % STRIP, at_q % STRIP, at_r % STRIP, at_s % STRIP
        of_p = of_q = of_r = of_s = 0.0
        for j in range(d):
            of_p = _add(as_float(panel[strip_p, j, in_p]) - points[p, j], of_p)
            of_q = _add(as_float(panel[strip_q, j, in_q]) - points[q, j], of_q)
            of_r = _add(as_float(panel[strip_r, j, in_r]) - points[r, j], of_r)
            of_s = _add(as_float(panel[strip_s, j, in_s]) - points[s, j], of_s)
        distances[a], distances[b], distances[c], distances[e] = of_p, of_q, of_r, of_s


@kernel
def likely_limits(sample: Floats, n_rows: int, wanted: int, limits: Floats) -> None:
    """Guess a distance that rarely lies below the wanted rank, from distances to some of the rows."""
    rank = wanted * sample.shape[1] / n_rows
    place = int(rank + 3 * np.sqrt(rank) + 1)
    if place < sample.shape[1]:
        for p in range(sample.shape[0]):
            limits[p] = np.partition(sample[p], place)[place]


@kernel
def order_collected(wanted: int, whole: bool, collected: Collected, ends: Indices) -> None:
    """Sort the collected rows, in place.

    Parameters
    ----------
    wanted : int
        As in :func:`collect_nearest`; points with too few get empty lists.
    whole : bool
        Whether to include all rows tied with the last one; otherwise exactly ``wanted`` rows, ties by row number.
    collected : Collected
    ends : int64 (b + 1,)
        Receives the end of each list if the lists were concatenated.
    """
    rows, keys, counts, _ = collected
    ends[0] = 0
    for p in range(counts.size):
        count = counts[p] if counts[p] >= wanted else 0
        if count > wanted:
            count, _ = _cut_back(rows[p], keys[p], count, wanted)
        if count > 0:
            # The rows are in ascending order, which a stable sort preserves among ties.
            _long_sort(keys[p], rows[p], 0, count)
        ends[p + 1] = ends[p] + (count if whole else min(count, wanted))


@kernel
def join_collected(collected: Collected, ends: Indices, found: Indices, distances: Floats) -> None:
    """Concatenate sorted lists: row numbers and distances."""
    # Not returned by the sorting kernel: if an interrupt arrives while a kernel runs, it is noticed when the kernel's
    # arrays are converted to Python's, and Numba turns it into a SystemError.
    for p in range(ends.size - 1):
        size = ends[p + 1] - ends[p]
        found[ends[p] : ends[p + 1]] = collected.rows[p, :size]
        distances[ends[p] : ends[p + 1]] = collected.keys[p, :size]


@kernel
def _cut_back(rows, keys, count, wanted):
    """Keep the rows up to the wanted rank, in their order; return their number and the last distance."""
    limit = np.partition(keys[:count], wanted - 1)[wanted - 1]
    kept = 0
    for i in range(count):
        rows[kept], keys[kept] = rows[i], keys[i]
        kept += keys[i] <= limit
    return kept, limit


@kernel
def order_nearest(rows: Indices, keys: Floats, wanted: int) -> int:
    """Move the nearest of some rows, given in any order, sorted to the front; return their number including ties."""
    count = rows.size
    if count > wanted:
        count, _ = _cut_back(rows, keys, count, wanted)
    by_row = np.argsort(rows[:count])
    keys[:count], rows[:count] = keys[:count][by_row], rows[:count][by_row]
    _long_sort(keys, rows, 0, count)
    return count


@kernel
def take_heads(ends: Indices, rows: Numbers, keys: Floats, wanted: int, whole: bool) -> tuple[Indices, Indices, Floats]:
    """Return the nearest rows of each list.

    Parameters
    ----------
    ends, rows, keys
        Lists and distances.
    wanted : int
        Number of rows to take; shorter lists are taken whole.
    whole : bool
        Whether to include rows tied with the last one.

    Returns
    -------
    ends, rows, keys
    """
    heads = np.zeros_like(ends)
    room = rows.size if whole else min(rows.size, wanted * (ends.size - 1))
    taken, distances = np.empty(room, np.int64), np.empty(room)
    size = 0
    for p in range(ends.size - 1):
        first = size
        for i in range(ends[p], ends[p + 1]):
            if size - first >= wanted and not (whole and keys[i] == distances[size - 1]):
                break
            taken[size], distances[size] = rows[i], keys[i]
            size += 1
        heads[p + 1] = size
    return heads, taken[:size], distances[:size]


@kernel
def merge_new(
    ends: Indices, rows: Numbers, keys: Floats, reach: Floats, tile: Floats, first: int
) -> tuple[Indices, Numbers, Floats]:
    """Insert new rows into the lists that reach them, after rows at the same distance.

    Parameters
    ----------
    ends, rows, keys
        Lists and distances.
    reach : float64 (b,)
        Lists are complete up to this distance.
    tile : float64 (b, k)
        Distances to the new rows.
    first : int
        Number of the first new row; new rows have higher numbers than all others.

    Returns
    -------
    ends, rows, keys
    """
    merged = np.zeros_like(ends)
    for p in range(reach.size):
        merged[p + 1] = merged[p] + ends[p + 1] - ends[p] + np.sum(tile[p] <= reach[p])
    numbers, distances = np.empty(merged[-1], np.int32), np.empty(merged[-1])
    new, new_keys = np.empty(tile.shape[1], np.int32), np.empty(tile.shape[1])
    for p in range(reach.size):
        count = 0
        for k in range(tile.shape[1]):
            if tile[p, k] <= reach[p]:
                new[count], new_keys[count] = first + k, tile[p, k]
                count += 1
        sort_run(new_keys, new, 0, count)  # stable, so that ties stay in order
        # From the far end, so that among equals the new rows come first.
        old, at = ends[p + 1] - 1, merged[p + 1] - 1
        while count > 0:
            if old >= ends[p] and keys[old] > new_keys[count - 1]:
                numbers[at], distances[at] = rows[old], keys[old]
                old -= 1
            else:
                count -= 1
                numbers[at], distances[at] = new[count], new_keys[count]
            at -= 1
        left = old + 1 - ends[p]
        numbers[merged[p] : merged[p] + left] = rows[ends[p] : old + 1]
        distances[merged[p] : merged[p] + left] = keys[ends[p] : old + 1]
    return merged, numbers, distances


@kernel
def squared_to_rows(table: Floats, x: Floats, rows: Indices, out: Floats) -> None:
    """Squared distance of ``x`` to some rows of ``table`` (N, d), with the bits of a tile."""
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
    own = inverse_length(squared_length(x))
    for i in range(rows.size):
        row = table[rows[i]]
        total, rest, squared, squared_rest = START, 0.0, START, 0.0
        for j in range(x.size):
            total, rest = add_product(row[j], x[j], total, rest)
            squared, squared_rest = add_product(row[j], row[j], squared, squared_rest)
        other = inverse_length((squared, squared_rest))
        out[i] = one_minus_cosine((total, rest), own, other)
        if out[i] < NEARLY_PARALLEL:
            out[i] = of_nearly_parallel(x, row, own, other, out[i])


@kernel
def bucket_rows(
    hashes: npt.NDArray[np.uint64], tables: HashTables, seen: npt.NDArray[np.uint32], stamp: int, rows: Indices
) -> int:
    """Collect the rows that share a bucket with one point in any table, each once, in any order.

    Parameters
    ----------
    hashes : uint64 (L,)
        Bucket of the point in each table.
    tables : HashTables
    seen : uint32 (N,)
        Scratch; no entry equals ``stamp``.
    stamp : int
    rows : int64 (N,)
        Out: row numbers.

    Returns
    -------
    int
        Number of rows.
    """
    keys, key_ends, starts, members = tables
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
