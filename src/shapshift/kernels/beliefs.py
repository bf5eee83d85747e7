"""The rank kernel for rows that match a label with a probability: turns distances into values, in place.

Values are linear in the matches a_r of :mod:`shapshift.kernels.rank`, so the expected value of a row over random labels
is the value at their probabilities. The formula of a tie group, with S the sum of its probabilities instead of m:

    v_i = a_i mean + (S - a_i)/(n-1) (c_hi - mean) + T,    then T += S/n (c_hi - c_lo)
"""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]


@kernel
def belief_values(
    tile: Floats,
    order: npt.NDArray[np.int64],
    beliefs: Floats,
    targets: npt.NDArray[np.int32],
    bases: Floats,
    c: Floats,
    average: bool,
) -> None:
    """Overwrite each row of ``tile`` (distances to the training rows) with that validation point's values.

    Parameters
    ----------
    tile : float64 (b, N)
        Distances in, values out.
    order : int64 (b, N)
        Rows of each point from near to far, ties by row number.
    beliefs : float64 (C + 1, N)
        Probability of each label for each row; the last line, zeros, is for labels without rows.
    targets : int32 (b,)
        Class of each point; -1 if no training row has it.
    bases : float64 (b,)
        Starting value of the farthest group.
    c : float64 (N,)
        Rank table.
    average : bool
        Average over ties, or break them by row number.
    """
    for p in range(tile.shape[0]):
        row, match = tile[p], beliefs[targets[p]]
        value = bases[p]
        hi = row.size
        while hi > 0:
            lo = hi - 1
            while average and lo > 0 and row[order[p, lo - 1]] == row[order[p, hi - 1]]:
                lo -= 1
            n = hi - lo
            total, mean = 0.0, 0.0
            for r in range(lo, hi):
                total += match[order[p, r]]
                mean += c[r] / n
            shared = (c[hi - 1] - mean) / (n - 1) if n > 1 else 0.0
            for r in range(lo, hi):
                i = order[p, r]
                row[i] = match[i] * mean + (total - match[i]) * shared + value
            if lo > 0:
                value += total / n * (c[hi - 1] - c[lo - 1])
            hi = lo
