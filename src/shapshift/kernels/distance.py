"""Distance tiles by direct differences in float64, summed in column order.

Direct differences cost little more than a matrix product and are worth it: rows that are equal get equal bits, features
far from the origin lose nothing, and dense and sparse input agree to the last bit, because skipping a column in which
both rows are zero skips the addition of an exact zero. Squares are added with one rounding (a fused multiply-add) in
every kernel, so that a distance has the same bits wherever it is computed.

Cosine distances are more delicate: lengths are irrational, so rows at the same angle would hardly ever get the same
bits. They are computed as sums of two floats, to about 100 bits, and rounded to a float once, at the end. Angles that
are equal then have equal distances, as long as they are no closer than 2**-40 or so of their last digit to the middle
between two floats.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._numba import fma, kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[Any]

# Training rows handled at once: a few columns of them stay in the first-level cache while all points pass by.
BLOCK = 2048
# What inner products of cosine distances are added to: see add_product.
START = 3.0
# Cosine distances below this are computed in another way, because 1 - cos has lost too many digits.
NEARLY_PARALLEL = 2.0**-24


@kernel
def squared_euclidean(columns: Floats, first: int, points: Floats, tile: Floats) -> None:
    """Fill ``tile[p, i]`` with the squared distance of ``points[p]`` to row ``first + i``; ``columns`` is (d, N)."""
    d, b = columns.shape[0], points.shape[0]
    fours = b - b % 4
    for lo in range(0, tile.shape[1], BLOCK):
        hi = min(lo + BLOCK, tile.shape[1])
        tile[:, lo:hi] = 0.0
        for j in range(0, d - 3, 4):
            for p in range(0, fours, 4):
                _four_by_four(columns[j : j + 4], first, points[p : p + 4], j, tile[p : p + 4], lo, hi)
        for j in range(d):
            # What the fours leave over: the last columns of all points, all columns of the last points.
            for p in range(0 if j >= d - d % 4 else fours, b):
                column, at, out = columns[j, first + lo : first + hi], points[p, j], tile[p, lo:hi]
                for i in range(hi - lo):
                    out[i] = _add(column[i] - at, out[i])


@kernel
def _four_by_four(columns, first, points, j, tile, lo, hi):
    """Add four columns, from column j on, to the distances of four points: sixteen terms for four loads."""
    begin, end = first + lo, first + hi
    a0, a1, a2, a3 = columns[0, begin:end], columns[1, begin:end], columns[2, begin:end], columns[3, begin:end]
    out0, out1, out2, out3 = tile[0, lo:hi], tile[1, lo:hi], tile[2, lo:hi], tile[3, lo:hi]
    x, y, z, w = points[0, j : j + 4], points[1, j : j + 4], points[2, j : j + 4], points[3, j : j + 4]
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    y0, y1, y2, y3 = y[0], y[1], y[2], y[3]
    z0, z1, z2, z3 = z[0], z[1], z[2], z[3]
    w0, w1, w2, w3 = w[0], w[1], w[2], w[3]
    for i in range(hi - lo):
        b0, b1, b2, b3 = a0[i], a1[i], a2[i], a3[i]
        out0[i] = _add(b3 - x3, _add(b2 - x2, _add(b1 - x1, _add(b0 - x0, out0[i]))))
        out1[i] = _add(b3 - y3, _add(b2 - y2, _add(b1 - y1, _add(b0 - y0, out1[i]))))
        out2[i] = _add(b3 - z3, _add(b2 - z2, _add(b1 - z1, _add(b0 - z0, out2[i]))))
        out3[i] = _add(b3 - w3, _add(b2 - w2, _add(b1 - w1, _add(b0 - w0, out3[i]))))


@kernel
def _add(difference, total):
    """Total plus the squared difference, rounded once."""
    return fma(difference, difference, total)


@kernel
def manhattan(columns: Floats, first: int, points: Floats, tile: Floats) -> None:
    """Fill ``tile`` with sums of absolute differences; arguments as in :func:`squared_euclidean`."""
    for lo in range(0, tile.shape[1], BLOCK):
        hi = min(lo + BLOCK, tile.shape[1])
        for p in range(points.shape[0]):
            out = tile[p, lo:hi]
            out[:] = 0.0
            for j in range(columns.shape[0]):
                column, at = columns[j, first + lo : first + hi], points[p, j]
                for i in range(hi - lo):
                    out[i] += abs(column[i] - at)


@kernel
def cosine(columns: Floats, first: int, points: Floats, tile: Floats) -> None:
    """Fill ``tile`` with cosine distances of rows no longer than 1; arguments as in :func:`squared_euclidean`."""
    d = columns.shape[0]
    sums, inverses, near = np.empty((2, BLOCK)), np.empty((2, BLOCK)), np.empty(BLOCK, np.int64)
    for lo in range(0, tile.shape[1], BLOCK):
        size = min(BLOCK, tile.shape[1] - lo)
        begin, end = first + lo, first + lo + size
        total, rest = sums[0, :size], sums[1, :size]
        inverse = inverses[0, :size], inverses[1, :size]
        total[:], rest[:] = START, 0.0
        for j in range(d):
            _add_squares(columns[j, begin:end], total, rest)
        for i in range(size):
            inverse[0][i], inverse[1][i] = inverse_length((total[i], rest[i]))
        for p in range(points.shape[0]):
            x, out = points[p], tile[p, lo : lo + size]
            own = inverse_length(squared_length(x))
            total[:], rest[:] = START, 0.0
            for j in range(0, d - 3, 4):
                _add_four_products(columns[j : j + 4], begin, end, x[j : j + 4], total, rest)
            for j in range(d - d % 4, d):
                _add_products(columns[j, begin:end], x[j], total, rest)
            _to_distances(total, rest, own, inverse, out)
            found = 0
            for i in range(size):
                near[found] = i
                found += out[i] < NEARLY_PARALLEL
            if found > 0:
                _measure_again(columns, begin, x, near[:found], own, inverse, out)


@kernel
def _add_squares(column, total, rest):
    for i in range(column.size):
        total[i], rest[i] = add_product(column[i], column[i], total[i], rest[i])


@kernel
def _add_products(column, at, total, rest):
    for i in range(column.size):
        total[i], rest[i] = add_product(column[i], at, total[i], rest[i])


@kernel
def _add_four_products(columns, begin, end, x, total, rest):
    """Four columns at a time: sums are loaded and stored once for them."""
    a0, a1, a2, a3 = columns[0, begin:end], columns[1, begin:end], columns[2, begin:end], columns[3, begin:end]
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    for i in range(total.size):
        t, r = add_product(a0[i], x0, total[i], rest[i])
        t, r = add_product(a1[i], x1, t, r)
        t, r = add_product(a2[i], x2, t, r)
        total[i], rest[i] = add_product(a3[i], x3, t, r)


@kernel
def _to_distances(total, rest, own, inverse, out):
    high, low = inverse
    for i in range(out.size):
        out[i] = one_minus_cosine((total[i], rest[i]), own, (high[i], low[i]))


@kernel
def add_product(a, b, total, rest):
    """Add a * b to ``total + rest``, which began as START + 0, to about twice the digits of a float.

    ``total`` stays within a factor of two of START, so what a rounded addition really added to it is a difference
    without a rounding of its own, and what it did not add is left for ``rest``.
    """
    larger = fma(a, b, total)
    return larger, rest + fma(a, b, total - larger)


@kernel
def squared_length(x):
    """Squared length, as :func:`add_product` makes it."""
    total, rest = START, 0.0
    for j in range(x.size):
        total, rest = add_product(x[j], x[j], total, rest)
    return total, rest


# From here on, numbers with about twice the digits of a float are pairs of floats: the sum of the two.


@kernel
def inverse_length(squares):
    """Inverse root of a sum that :func:`add_product` made, as a pair; 0 for a row of zeros."""
    total, rest = squares
    squared = (total - START) + rest
    low = rest - (squared - (total - START))
    if squared == 0.0:
        return 0.0, 0.0
    root = 1.0 / np.sqrt(squared)
    square, square_low = _product(root, root)
    one, one_low = _product(squared, square)
    missing = ((1.0 - one) - one_low) - (squared * square_low + low * square)
    return root, root * missing / 2


@kernel
def one_minus_cosine(products, inverse, other):
    """Cosine distance from a sum of products that :func:`add_product` made, and two inverse lengths."""
    total, rest = products
    scale, scale_low = _multiply(inverse, other)
    inner = total - START
    product, product_low = _product(inner, scale)
    product_low += inner * scale_low + rest * scale
    distance = 1.0 - product
    return distance + (((1.0 - distance) - product) - product_low)


@kernel
def of_nearly_parallel(x, row, inverse, other, distance):
    """Cosine distance of nearly parallel vectors, where 1 - cos has few digits left, or none.

    With p the largest feature of x, the vector w = x_p row - row_p x is known to all its digits, and exactly zero for
    parallel vectors. It is x_p times row less a multiple of x; what it has across x is at least a d-th of its squared
    length, so that it can be taken as a difference:

        |w|^2 - (w x)^2 / |x|^2  =  x_p^2 |row|^2 sin^2,    1 - cos = sin^2 / (1 + cos)
    """
    p = _largest_feature(x)
    squares, along = (0.0, 0.0), (0.0, 0.0)
    for j in range(x.size):
        squares, along = _add_across(x[p], row[p], x[j], row[j], squares, along)
    return _from_across(x[p], squares, along, inverse, other, distance)


@kernel
def _measure_again(columns, begin, x, near, own, inverse, out):
    """Do what :func:`of_nearly_parallel` does for several rows, feature by feature."""
    p, size = _largest_feature(x), near.size
    largest, column = np.empty(size), np.empty(size)
    squares, along = (np.zeros(size), np.zeros(size)), (np.zeros(size), np.zeros(size))
    for k in range(size):
        largest[k] = columns[p, begin + near[k]]
    for j in range(x.size):
        for k in range(size):
            column[k] = columns[j, begin + near[k]]
        _add_column_across(x[p], largest, x[j], column, squares, along)
    for k in range(size):
        i = near[k]
        sums = (squares[0][k], squares[1][k]), (along[0][k], along[1][k])
        out[i] = _from_across(x[p], sums[0], sums[1], own, (inverse[0][i], inverse[1][i]), out[i])


@kernel
def _add_column_across(x_largest, largest, at, column, squares, along):
    squared, squared_low = squares
    inner, inner_low = along
    for k in range(column.size):
        (squared[k], squared_low[k]), (inner[k], inner_low[k]) = _add_across(
            x_largest, largest[k], at, column[k], (squared[k], squared_low[k]), (inner[k], inner_low[k])
        )


@kernel
def _largest_feature(x):
    p = 0
    for j in range(1, x.size):
        p = j if abs(x[j]) > abs(x[p]) else p
    return p


@kernel
def _add_across(x_largest, row_largest, x, row, squares, along):
    """Add one feature of w to |w|^2 and to w x."""
    one, one_low = _product(x_largest, row)
    two, two_low = _product(row_largest, x)
    high, middle = _sum(one, -two)
    small, smallest = _sum(one_low, -two_low)
    high, low = _sum(high, small)
    w, w_low = _sum(high, low + (middle + smallest))
    high, low = _product(w, w)
    squared, lost = _sum(squares[0], high)
    squared_low = squares[1] + (lost + (low + 2 * w * w_low))
    high, low = _product(w, x)
    inner, lost = _sum(along[0], high)
    return (squared, squared_low), (inner, along[1] + (lost + (low + w_low * x)))


@kernel
def _from_across(x_largest, squares, along, inverse, other, distance):
    """1 - cos from sums over all features, and from itself with fewer digits."""
    if squares[0] == 0.0:
        return 0.0
    cut = _multiply(along, inverse)
    high, low = _multiply(cut, cut)
    high, lost = _sum(squares[0], -high)
    across = _sum(high, lost + (squares[1] - low))
    top, top_low = _multiply(across, _multiply(other, other))
    one_and_cosine = 2.0 - distance, (2.0 - (2.0 - distance)) - distance
    bottom, bottom_low = _multiply(_product(x_largest, x_largest), one_and_cosine)
    found = top / bottom
    return found + (fma(-found, bottom, top) + (top_low - found * bottom_low)) / bottom


@kernel
def _product(a, b):
    """Product as a sum of two floats, without error."""
    product = a * b
    return product, fma(a, b, -product)


@kernel
def _sum(a, b):
    """Sum of two floats as a rounded sum and what it lacks, without error."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


@kernel
def _multiply(a, b):
    """Multiply two pairs."""
    product, low = _product(a[0], b[0])
    return product, low + (a[0] * b[1] + a[1] * b[0])


@kernel
def sparse_tile(
    data: Floats,
    indices: Indices,
    indptr: Indices,
    point_data: Floats,
    point_indices: Indices,
    point_indptr: Indices,
    tile: Floats,
) -> None:
    """Squared Euclidean distances of CSR rows by merging sorted column indices: the bits of the dense kernel."""
    for p in range(tile.shape[0]):
        first, end = point_indptr[p], point_indptr[p + 1]
        for i in range(tile.shape[1]):
            total = 0.0
            a = first
            for b in range(indptr[i], indptr[i + 1]):
                while a < end and point_indices[a] < indices[b]:
                    total = _add(point_data[a], total)
                    a += 1
                e = data[b]  # minus the point's entry, if it has one here
                if a < end and point_indices[a] == indices[b]:
                    e -= point_data[a]
                    a += 1
                total = _add(e, total)
            while a < end:
                total = _add(point_data[a], total)
                a += 1
            tile[p, i] = total


@kernel
def sparse_cosine(
    data: Floats,
    indices: Indices,
    indptr: Indices,
    point_data: Floats,
    point_indices: Indices,
    point_indptr: Indices,
    tile: Floats,
) -> None:
    """Cosine distances of CSR rows no longer than 1: the bits of the dense kernel."""
    inverse, inverse_low = np.empty(BLOCK), np.empty(BLOCK)
    for lo in range(0, tile.shape[1], BLOCK):
        hi = min(lo + BLOCK, tile.shape[1])
        for i in range(lo, hi):
            row = data[indptr[i] : indptr[i + 1]]
            inverse[i - lo], inverse_low[i - lo] = inverse_length(squared_length(row))
        for p in range(tile.shape[0]):
            first, end = point_indptr[p], point_indptr[p + 1]
            own_data, own_indices = point_data[first:end], point_indices[first:end]
            own = inverse_length(squared_length(own_data))
            for i in range(lo, hi):
                total, rest = START, 0.0
                a = first
                for b in range(indptr[i], indptr[i + 1]):
                    while a < end and point_indices[a] < indices[b]:
                        a += 1
                    if a < end and point_indices[a] == indices[b]:
                        total, rest = add_product(data[b], point_data[a], total, rest)
                other = inverse[i - lo], inverse_low[i - lo]
                distance = one_minus_cosine((total, rest), own, other)
                if distance < NEARLY_PARALLEL:
                    inside = slice(indptr[i], indptr[i + 1])
                    x, row = _both(own_data, own_indices, data[inside], indices[inside])
                    distance = of_nearly_parallel(x, row, own, other, distance)
                tile[p, i] = distance


@kernel
def _both(data, indices, other_data, other_indices):
    """Dense copies of two sparse rows, in the columns that either has."""
    x, y = np.zeros(data.size + other_data.size), np.zeros(data.size + other_data.size)
    a, b, size = 0, 0, 0
    while a < data.size or b < other_data.size:
        mine = b == other_data.size or (a < data.size and indices[a] <= other_indices[b])
        yours = a == data.size or (b < other_data.size and other_indices[b] <= indices[a])
        if mine:
            x[size] = data[a]
            a += 1
        if yours:
            y[size] = other_data[b]
            b += 1
        size += 1
    return x[:size], y[:size]
