"""Who the nearest rows are, and where given rows stand in the order, from a tile of distances."""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@kernel
def nearest_rows(tile: Floats, nearest: Indices) -> None:
    """Fill ``nearest[p]`` with the positions of the smallest entries of ``tile[p]``, ties by position."""
    k = nearest.shape[1]
    best = np.empty(k)
    for p in range(tile.shape[0]):
        row = tile[p]
        found = 0
        for i in range(row.size):
            if found == k and row[i] >= best[k - 1]:
                continue
            place = min(found, k - 1)
            while place > 0 and best[place - 1] > row[i]:
                best[place] = best[place - 1]
                nearest[p, place] = nearest[p, place - 1]
                place -= 1
            best[place] = row[i]
            nearest[p, place] = i
            found = min(found + 1, k)


@kernel
def ranks_of(tile: Floats, rows: Indices, ranks: Floats) -> None:
    """Fill ``ranks[p, r]`` with the zero-based rank of training row ``rows[p, r]`` for point p, averaged over ties."""
    for p in range(tile.shape[0]):
        row = tile[p]
        for r in range(rows.shape[1]):
            at = row[rows[p, r]]
            below = 0
            equal = 0
            for i in range(row.size):
                below += row[i] < at
                equal += row[i] == at
            ranks[p, r] = below + (equal - 1) / 2
