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

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.nearest import Lists
from shapshift.kernels.rank import Batch, Rule, neighbor_entropy, tie_group, tie_values

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


class ListValues(NamedTuple):
    """Values of a few points: those of the rows on their lists, and of all rows behind.

    Attributes
    ----------
    ends, rows
        Lists of nearest rows, as in :class:`shapshift.kernels.nearest.Lists`.
    changes : float64 (like rows)
        What a row of the list is worth beyond the value of its class behind the list.
    tails : float64 (b, 2)
        Value of the other and of the matching rows behind each list.
    bounds : float64 (b, 3)
        Largest errors of other rows behind, matching rows behind, and rows of the list.
    entropy : float64 (b,)
        Neighbour-label entropy of each point, in nats.
    """

    ends: Indices
    rows: Indices
    changes: Floats
    tails: Floats
    bounds: Floats
    entropy: Floats


class ListSums(NamedTuple):
    """Sums over points, in cells.

    Attributes
    ----------
    rows : float64 (n_cells, N)
        What the rows of lists get beyond the other two.
    others : float64 (n_cells,)
        What every row gets.
    extras : float64 (n_cells, n_classes)
        What the rows of each class get beyond that.
    """

    rows: Floats
    others: Floats
    extras: Floats


@kernel
def truncated_values(
    lists: Lists, codes: Codes, batch: Batch, rule: Rule, sizes: Indices, beyond: Floats, values: ListValues
) -> None:
    """Value a few points from the lists of their nearest rows.

    Parameters
    ----------
    lists : Lists
        Where one is shorter than the depth of the rule, rows behind it fill up the neighbours in expectation.
    codes : int32
        Class of each training row; may have entries of rows that are gone.
    batch : Batch
    rule : Rule
    sizes : int64 (n_classes + 1,)
        Training rows per class; the last entry, for labels without any, is 0.
    beyond : float64 (N + 1,)
        ``beyond[t]`` is the sum of ``c[t:]``.
    values : ListValues
        Out, but for the lists.
    """
    c, average, depth = rule
    ends, keys, certain, targets = lists.ends, lists.distances, lists.certain, batch.targets
    tails, bounds = values.tails, values.bounds
    n_rows, counts = c.size, np.zeros(sizes.size)
    for p in range(targets.size):
        first, end = ends[p], ends[p + 1]
        here = lists.rows[first:end]
        t = here.size
        match = np.empty(t, np.bool_)
        for r in range(t):
            match[r] = codes[here[r]] == targets[p]
        m = sizes[targets[p]] - match.sum()
        total = _tail(c, beyond, t, m, batch.bases[p], tails[p], bounds[p])
        if certain[p] < t:
            bounds[p] = c[max(certain[p] - 1, 0)] - c[n_rows - 1] if 0 < sizes[targets[p]] < n_rows else 0.0
        change = values.changes[first:end]
        hi = t
        while hi > 0:
            lo = hi - 1
            while average and lo > 0 and keys[first + lo - 1] == keys[first + hi - 1]:
                lo -= 1
            if hi - lo > 1:
                matching, other, total = tie_group(c, (lo, hi), match[lo:hi].sum(), total)
                for r in range(lo, hi):
                    change[r] = matching if match[r] else other
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
        if t < depth:
            for k in range(counts.size):
                counts[k] += (sizes[k] - counts[k]) * ((depth - t) / (n_rows - t))
        values.entropy[p] = neighbor_entropy(counts, depth)


@kernel
def _tail(c, beyond, t, m, base, tail, bound):
    """Values and bounds behind a list of t rows, m matches behind; returns the sum that nearer rows start from."""
    bound[:] = 0.0
    tail[:] = base
    n = c.size - t
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
def add_points(
    values: ListValues,
    codes: Codes,
    targets: Codes,
    weights: Floats,
    cells: Indices,
    squares: Indices,
    products: bool,
    sums: ListSums,
) -> None:
    """Add each point's weighted values to the cell that ``cells`` names, and their squares to that of ``squares``.

    In order. With ``products``, weighted values times weights are added to the cell behind that of the squares.
    """
    ends, rows, changes = values.ends, values.rows, values.changes
    for p in range(targets.size):
        cell, square, weight = cells[p], squares[p], weights[p]
        out, squared = sums.rows[cell], sums.rows[square]
        other, matching = weight * values.tails[p, 0], weight * values.tails[p, 1]
        for i in range(ends[p], ends[p + 1]):
            tail = matching if codes[rows[i]] == targets[p] else other
            change = weight * changes[i]
            out[rows[i]] += change
            squared[rows[i]] += change * (change + 2.0 * tail)
            if products:
                sums.rows[square + 1, rows[i]] += weight * change
        sums.others[cell] += other
        sums.others[square] += other**2
        if products:
            sums.others[square + 1] += weight * other
        if targets[p] >= 0:
            sums.extras[cell, targets[p]] += matching - other
            sums.extras[square, targets[p]] += matching**2 - other**2
            if products:
                sums.extras[square + 1, targets[p]] += weight * (matching - other)


@kernel
def add_bounds(values: ListValues, codes: Codes, targets: Codes, weights: Floats, sums: ListSums) -> None:
    """As :func:`add_points`, for the bounds, of which there is one cell."""
    ends, rows, bounds, out = values.ends, values.rows, values.bounds, sums.rows[0]
    for p in range(targets.size):
        weight = weights[p]
        for i in range(ends[p], ends[p + 1]):
            out[rows[i]] += weight * (bounds[p, 2] - bounds[p, np.int64(codes[rows[i]] == targets[p])])
        sums.others[0] += weight * bounds[p, 0]
        if targets[p] >= 0:
            sums.extras[0, targets[p]] += weight * (bounds[p, 1] - bounds[p, 0])


@kernel
def keep_values(
    values: ListValues, codes: Codes, targets: Codes, kept: Indices, columns: npt.NDArray[np.int32], out: Floats
) -> None:
    """Write the values of the rows ``kept`` on each point; ``columns`` says where each row goes, -1 for nowhere."""
    for p in range(targets.size):
        for k in range(kept.size):
            out[p, k] = values.tails[p, np.int64(codes[kept[k]] == targets[p])]
        for i in range(values.ends[p], values.ends[p + 1]):
            column = columns[values.rows[i]]
            if column >= 0:
                out[p, column] += values.changes[i]
