"""Candidate lists of :class:`shapshift.ValuationStore`: their heads, and new rows put into them.

Lists of different lengths lie one behind the other, as in :mod:`shapshift.kernels.nearest`. A list ends at a distance
up to which it is complete, its reach. It holds more rows than matter, so that some can go without a new search.
"""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.rank import sort_run

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]


@kernel
def take_heads(ends: Indices, rows: Numbers, keys: Floats, wanted: int, whole: bool) -> tuple[Indices, Indices, Floats]:
    """Return the nearest rows of each list.

    Parameters
    ----------
    ends, rows, keys
        Lists and distances.
    wanted : int
        How many to take; shorter lists are taken as they are.
    whole : bool
        Also take those that are as far away as the last one.

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
    """Put new rows into the lists that reach them, behind rows at the same distance.

    Parameters
    ----------
    ends, rows, keys
        Lists and distances.
    reach : float64 (b,)
        Lists are complete up to this distance.
    tile : float64 (b, k)
        Distances to the new rows.
    first : int
        Number of the first of them; they come after all others.

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
        # From the far end, so that of equals the new ones are met first.
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
