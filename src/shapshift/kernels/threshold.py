"""Rows within a radius: their counts, and their values."""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]


@kernel
def count_inside(tile: Floats, codes: Codes, targets: Codes, limit: float, counts: Floats) -> None:
    """Fill ``counts`` (b, 2) with the numbers of matching and of other rows within the limit of each point."""
    for p in range(tile.shape[0]):
        matching = 0
        inside = 0
        for i in range(tile.shape[1]):
            here = tile[p, i] <= limit
            inside += here
            matching += here and codes[i] == targets[p]
        counts[p, 0] = matching
        counts[p, 1] = inside - matching


@kernel
def threshold_values(tile: Floats, codes: Codes, targets: Codes, limit: float, worth: Floats) -> None:
    """Overwrite distances with ``worth[p, 0]`` for matching rows within the limit, ``worth[p, 1]`` for others, or 0."""
    for p in range(tile.shape[0]):
        for i in range(tile.shape[1]):
            if tile[p, i] <= limit:
                tile[p, i] = worth[p, 0] if codes[i] == targets[p] else worth[p, 1]
            else:
                tile[p, i] = 0.0
