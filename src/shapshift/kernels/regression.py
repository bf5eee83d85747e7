r"""Values of a KNN regressor: a tile of distances becomes a tile of values, in place, in O(N) once rows are ordered.

A subset is worth minus the squared error of its prediction, A(S) = (sum of its voters' targets) / w, w = K (hard) or
the number of voters (soft). Two rows on neighbouring ranks i and i + 1 can stand in for each other in every subset, so
their values differ by the mean over subsets S of the others of U(S + i) - U(S + i + 1):

    v_i - v_{i+1} = (y_i - y_{i+1}) (2 t c_i - (y_i + y_{i+1}) d_i - 2 e_i sum_{j<i} y_j - 2 sum_{j>i+1} f_j y_j)

with t the validation target. c_i and d_i are the mean of 1/w and 1/w^2 over the subsets that leave i a vote, e_i and
f_j the mean of 1/w^2 over those in which i and a nearer row j, or a farther row j, both vote. That the last two depend
on one rank only is what makes running sums do. For the Shapley value all four have closed forms, see
:mod:`shapshift.knn.regression`.

Rows at equal distance form a tie group, and values are expectations over its random order. The bracket is symmetric in
y_i and y_{i+1}, so within a group the expected value per rank is constant: it is the group's mean value. From one group
to the next it changes by the expected difference at the rank where they meet. Within a group, the two rows of a pair
stand in for each other at a random place among the others, which gives

    v_i - v_k = phi(y_i) - phi(y_k),    phi(y) = (2 t C - 2 E P - 2 F - 2 m W) y + (2 W - D) y^2

with C, D, E the means of c, d, e over the group's ranks but the last, P the sum of the targets nearer than the group,
F the weighted sum of those farther, m the sum of the group's targets, and W the mean of e or f over the places that a
third member of the group can have beside the pair.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class RegressionTable(NamedTuple):
    """Coefficients of one (N, K, utility), see the module.

    Attributes
    ----------
    c, d, e, f : float64 (N,)
        By zero-based rank.
    base : float64 (6,)
        Coefficients of the farthest row's value.
    """

    c: Floats
    d: Floats
    e: Floats
    f: Floats
    base: Floats


@kernel
def regression_values(
    tile: Floats, order: Indices, y: Floats, targets: Floats, average: bool, table: RegressionTable
) -> None:
    """Overwrite each row of ``tile`` (distances to the training rows) with that validation point's values.

    Parameters
    ----------
    tile : float64 (b, N)
    order : int64 (b, n)
        Training rows that take part, n of them, from near to far.
    y : float64 (N,)
        Targets of the training rows, minus the baseline.
    targets : float64 (b,)
        Targets of the validation points, minus the baseline.
    average : bool
        Average over ties, or keep them in the given order.
    table : RegressionTable
    """
    c, d, e, f, base = table
    n_rows = order.shape[1]
    prefix = np.empty(n_rows + 1)
    for p in range(tile.shape[0]):
        row = tile[p]
        ranked = order[p]
        t = targets[p]
        prefix[0] = 0.0
        squares = 0.0
        for r in range(n_rows):
            prefix[r + 1] = prefix[r] + y[ranked[r]]
            squares += y[ranked[r]] ** 2
        total = prefix[n_rows]
        value = 0.0  # mean value of the present group
        farther = 0.0  # F: weighted sum of the targets beyond it
        # For the farther group: its sum, mean, mean square, the f of its later ranks, and F beyond it.
        sum_2, mean_2, square_2, inner_2, farther_2 = 0.0, 0.0, 0.0, 0.0, 0.0
        hi = n_rows
        while hi > 0:
            lo = hi - 1
            if average:
                while lo > 0 and row[ranked[lo - 1]] == row[ranked[hi - 1]]:
                    lo -= 1
            n = hi - lo
            m = 0.0
            square = 0.0
            for r in range(lo, hi):
                m += y[ranked[r]]
                square += y[ranked[r]] ** 2
            mean = m / n
            square /= n
            nearer = prefix[lo]
            if hi == n_rows:
                value = _last(t, mean, square, total, squares, n_rows, base)
            else:
                r = hi - 1
                value += 2 * t * c[r] * (mean - mean_2) - d[r] * (square - square_2)
                value -= 2 * e[r] * ((mean - mean_2) * nearer + m * mean - square - mean_2 * (m - mean))
                value -= 2 * (mean - mean_2) * farther_2
                value -= 2 * inner_2 * (mean * (sum_2 - mean_2) - mean_2 * sum_2 + square_2)
            f_sum = 0.0
            for r in range(lo, hi):
                f_sum += f[r]
            if n == 1:
                row[ranked[lo]] = value
                inner = 0.0
            else:
                linear, quadratic = _within(t, m, nearer, farther, lo, hi, table)
                shift = value - linear * mean - quadratic * square
                # The distances of this group are not needed any more.
                for r in range(lo, hi):
                    at = y[ranked[r]]
                    row[ranked[r]] = linear * at + quadratic * at * at + shift
                inner = (f_sum - f[lo]) / (n - 1)
            sum_2, mean_2, square_2, inner_2, farther_2 = m, mean, square, inner, farther
            farther += mean * f_sum
            hi = lo


@kernel
def _last(t, mean, square, total, squares, n_rows, base):
    """Return the expected value of the farthest rank: its contribution to subsets so small that all rows vote.

    ``mean`` and ``square`` are those of the farthest group, ``total`` and ``squares`` sums over all rows.
    """
    linear = 2 * t * base[0] * mean
    quadratic = base[2] * square
    if n_rows > 1:
        others = (total - mean) / (n_rows - 1)
        linear -= 2 * t * base[1] * others
        quadratic += 2 * base[3] * (total * mean - square) / (n_rows - 1)
        quadratic += base[4] * (squares - square) / (n_rows - 1)
    if n_rows > 2:
        pairs = total * total - 2 * total * mean + 2 * square - squares
        quadratic += base[5] * pairs / ((n_rows - 1) * (n_rows - 2))
    return (linear - quadratic) / n_rows


@kernel
def _within(t, m, nearer, farther, lo, hi, table):
    """Coefficients of y and y^2 in phi, see the module; the group is on zero-based ranks lo..hi-1."""
    c, d, e, f, _ = table
    n = hi - lo
    c_sum, d_sum, e_sum, w_sum = 0.0, 0.0, 0.0, 0.0
    f_beyond = 0.0  # f summed over ranks r + 2..hi-1
    for r in range(hi - 2, lo - 1, -1):
        c_sum += c[r]
        d_sum += d[r]
        e_sum += e[r]
        w_sum += (r - lo) * e[r] + f_beyond
        f_beyond += f[r + 1]
    w = w_sum / ((n - 1) * (n - 2)) if n > 2 else 0.0
    linear = 2 * (t * c_sum - e_sum * nearer) / (n - 1) - 2 * farther - 2 * m * w
    return linear, 2 * w - d_sum / (n - 1)
