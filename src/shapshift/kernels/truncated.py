"""Values from the nearest rows alone: everything farther is one tie group.

The list of a point holds its t nearest rows in order. The other N - t rows, of which m carry the point's label, could
stand in any order on the ranks behind, so they get the expectation over a random one: two numbers, one for matching and
one for other rows, that class sizes and the table c decide without any distance. So a point's values are those two
numbers everywhere, plus a correction on the t rows of its list, and that is how they are added up.

How far that can be off. c falls from rank to rank, for every semivalue (see :mod:`shapshift.engine.coefficients`). With
an arbitrary order behind rank t, n = N - t, drops d_j = c_{j-1} - c_j >= 0, and beta left out on both sides:

* A row of the list misses only S = -sum of d_j over the matching ranks j > t. That lies between -(c_t - c_N) and 0, and
  -m/n (c_t - c_N) was put in its place: the error is at most max(m/n, 1 - m/n) (c_t - c_N).
* A matching row behind is worth c_r - (some of the drops after its rank r), between c_N and c_{t+1}.
* Another row behind is worth -(some of the drops after its rank), between -(c_{t+1} - c_N) and 0.

The error is at most the distance from what was put in place to the farther end. With no match behind, or nothing else,
the order does not matter and all three are zero. Averages over ties are averages over orders, so they are covered.
Where only the first s < t rows of a list are certain, the exact values and the given ones are both worths of some order
that begins with those s, and lie in ranges of at most c_s - c_N (c_1 - c_N for s = 0).
"""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.rank import neighbor_entropy, tie_values

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@kernel
def truncated_values(
    ends: Indices,
    rows: Indices,
    keys: Floats,
    certain: Indices,
    codes: npt.NDArray[np.int32],
    targets: npt.NDArray[np.int32],
    sizes: Indices,
    c: Floats,
    beyond: Floats,
    bases: Floats,
    average: bool,
    depth: int,
    counts: Floats,
    tails: Floats,
    bounds: Floats,
    entropy: Floats,
    changes: Floats,
) -> None:
    """Value a few points from the lists of their nearest rows.

    Parameters
    ----------
    ends, rows, keys
        Lists of nearest rows and their distances, as :func:`shapshift.kernels.nearest.order_collected` makes them;
        none shorter than ``depth``.
    certain : int64 (b,)
        How many rows at the head of each list are certainly the nearest ones in their order.
    codes, targets
        As in :func:`shapshift.kernels.rank.rank_values`; codes may have entries of rows that are gone.
    sizes : int64 (n_classes + 1,)
        Training rows per class; the last entry, for labels without any, is 0.
    c : float64 (N,)
        Rank table.
    beyond : float64 (N + 1,)
        ``beyond[t]`` is the sum of ``c[t:]``.
    bases : float64 (b,)
        beta(M) of each point.
    average, depth, counts, entropy
        As in :func:`shapshift.kernels.rank.rank_values`.
    tails : float64 (b, 2)
        Out: value of the other and of the matching rows behind each list.
    bounds : float64 (b, 3)
        Out: largest errors of other rows behind, matching rows behind, and rows of the list.
    changes : float64 (like keys)
        Out: what a row of the list is worth beyond the value of its class behind the list.
    """
    n_rows = c.size
    for p in range(targets.size):
        first, end = ends[p], ends[p + 1]
        here = rows[first:end]
        t = here.size
        n = n_rows - t
        match = np.empty(t, np.bool_)
        for r in range(t):
            match[r] = codes[here[r]] == targets[p]
        m = sizes[targets[p]] - match.sum()
        total = _tail(c, beyond, t, n, m, bases[p], tails[p], bounds[p])
        if certain[p] < t:
            bounds[p] = c[max(certain[p] - 1, 0)] - c[n_rows - 1] if 0 < sizes[targets[p]] < n_rows else 0.0
        change = changes[first:end]
        hi = t
        while hi > 0:
            lo = hi - 1
            while average and lo > 0 and keys[first + lo - 1] == keys[first + hi - 1]:
                lo -= 1
            if hi - lo > 1:
                total = _group(match, lo, hi, c, total, change)
            else:  # nearly always: no branch, which could not be foreseen
                one = np.float64(match[lo])
                change[lo] = one * c[lo] + total
                total += one * (c[lo] - c[max(lo - 1, 0)])
            if lo < depth:
                for r in range(lo, hi):
                    counts[codes[here[r]]] += (min(hi, depth) - lo) / (hi - lo)
            hi = lo
        for r in range(t):
            change[r] -= tails[p, np.int64(match[r])]
        entropy[p] = neighbor_entropy(counts, depth)


@kernel
def _tail(c, beyond, t, n, m, base, tail, bound):
    """Values and bounds behind the list (see the module's formulas); returns the sum that nearer rows start from."""
    bound[:] = 0.0
    tail[:] = base
    if n == 0:
        return base
    last = c[c.size - 1]
    step = c[t - 1] - last if t > 0 else 0.0
    if m == n:
        tail[1] += last
        return base - step
    if m == 0:
        return base
    mean = beyond[t] / n
    matching, other = tie_values(mean, last, m, n)
    tail[0] += other
    tail[1] += matching
    bound[0] = max(-other, c[t] - last + other)
    bound[1] = max(matching - last, c[t] - matching)
    bound[2] = max(m, n - m) / n * step
    return base - m / n * step


@kernel
def _group(match, lo, hi, c, total, values):
    """Write the values of a tie group on ranks lo..hi-1, of more than one row; returns the sum for the ranks before."""
    n = hi - lo
    last = c[hi - 1]
    m = match[lo:hi].sum()
    mean = c[lo:hi].mean()
    matching, other = tie_values(mean, last, m, n)
    for r in range(lo, hi):
        values[r] = (matching if match[r] else other) + total
    return total + m / n * (last - c[lo - 1]) if lo > 0 else total


@kernel
def add_points(
    ends: Indices,
    rows: Indices,
    changes: Floats,
    tails: Floats,
    targets: npt.NDArray[np.int32],
    cells: Indices,
    sums: Floats,
    others: Floats,
    extras: Floats,
) -> None:
    """Add each point to the cell that ``cells`` names, in order: corrections to ``sums``, the rest to two small sums.

    Parameters
    ----------
    ends, rows, changes, tails, targets
        As in :func:`truncated_values`.
    cells : int64 (b,)
    sums : float64 (n_cells, N)
    others : float64 (n_cells,)
        What every row gets.
    extras : float64 (n_cells, n_classes)
        What the rows of each class get beyond that.
    """
    for p in range(targets.size):
        out = sums[cells[p]]
        for i in range(ends[p], ends[p + 1]):
            out[rows[i]] += changes[i]
        others[cells[p]] += tails[p, 0]
        if targets[p] >= 0:
            extras[cells[p], targets[p]] += tails[p, 1] - tails[p, 0]


@kernel
def add_bounds(
    ends: Indices,
    rows: Indices,
    codes: npt.NDArray[np.int32],
    targets: npt.NDArray[np.int32],
    bounds: Floats,
    sums: Floats,
    others: Floats,
    extras: Floats,
) -> None:
    """As :func:`add_points`, for the bounds, of which there is one cell."""
    for p in range(targets.size):
        for i in range(ends[p], ends[p + 1]):
            sums[rows[i]] += bounds[p, 2] - bounds[p, np.int64(codes[rows[i]] == targets[p])]
        others[0] += bounds[p, 0]
        if targets[p] >= 0:
            extras[targets[p]] += bounds[p, 1] - bounds[p, 0]


@kernel
def whole_rows(
    ends: Indices,
    rows: Indices,
    changes: Floats,
    tails: Floats,
    codes: npt.NDArray[np.int32],
    targets: npt.NDArray[np.int32],
    out: Floats,
) -> None:
    """Write the value of every training row on each point; arguments as in :func:`truncated_values`."""
    for p in range(targets.size):
        for i in range(codes.size):
            out[p, i] = tails[p, np.int64(codes[i] == targets[p])]
        for i in range(ends[p], ends[p + 1]):
            out[p, rows[i]] += changes[i]
