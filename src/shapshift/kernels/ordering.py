"""How far two orders of the same rows agree: ranks and pair counts in O(N log N), arrays in, numbers out."""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@kernel
def rank_sorted(values: Floats, order: Integers, ranks: Floats, dense: Integers) -> int:
    """Rank values whose ascending order is known.

    Parameters
    ----------
    values, order : ndarray of shape (n,)
        ``values[order]`` ascends.
    ranks : ndarray of shape (n,)
        Output: rank from 1, ties averaged.
    dense : ndarray of shape (n,)
        Output: number, from 0, of the distinct value each row has.

    Returns
    -------
    int
        Number of pairs of rows with equal values.
    """
    n = values.size
    pairs = 0
    distinct = 0
    start = 0
    while start < n:
        stop = start + 1
        while stop < n and values[order[stop]] == values[order[start]]:
            stop += 1
        rank = (start + stop + 1) / 2
        for i in range(start, stop):
            ranks[order[i]] = rank
            dense[order[i]] = distinct
        pairs += (stop - start) * (stop - start - 1) // 2
        distinct += 1
        start = stop
    return pairs


@kernel
def count_pairs(order: Integers, dense: Integers, other: Integers, starts: Integers) -> tuple[int, int]:
    """Count the pairs of rows that two rankings order the other way round, and those tied in both.

    Parameters
    ----------
    order : ndarray of shape (n,)
        Rows in ascending order of the first ranking.
    dense, other : ndarray of shape (n,)
        Number, from 0, of the distinct value each row has in the first and in the second ranking.
    starts : ndarray of shape (n_distinct,)
        How many rows come before each distinct value of the second ranking.

    Returns
    -------
    (int, int)
        Discordant pairs and jointly tied pairs.
    """
    n = order.size
    here, there = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    # Sort by the second ranking and, within its ties, by the first: rows arrive in the order of the first.
    filled = starts.copy()
    for i in range(n):
        row = order[i]
        here[filled[other[row]]] = dense[row]
        filled[other[row]] += 1
    joint = 0
    for group in range(starts.size):
        run = 0
        for i in range(starts[group] + 1, filled[group]):
            run = run + 1 if here[i] == here[i - 1] else 0
            joint += run
    # Each inversion left in the first ranking is a discordant pair; a bottom-up merge sort counts them.
    discordant = 0
    width = 1
    while width < n:
        for left in range(0, n, 2 * width):
            middle = min(left + width, n)
            right = min(left + 2 * width, n)
            i, j = left, middle
            for k in range(left, right):
                if i < middle and (j >= right or here[i] <= here[j]):
                    there[k] = here[i]
                    i += 1
                else:
                    there[k] = here[j]
                    discordant += middle - i
                    j += 1
        here, there = there, here
        width *= 2
    return discordant, joint
