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
                _four_by_four(columns, first, points, j, p, lo, hi, tile)
        for j in range(d):
            # What the fours leave over: the last columns of all points, all columns of the last points.
            for p in range(0 if j >= d - d % 4 else fours, b):
                column, at, out = columns[j, first + lo : first + hi], points[p, j], tile[p, lo:hi]
                for i in range(hi - lo):
                    out[i] = _add(column[i] - at, out[i])


@kernel
def _four_by_four(columns, first, points, j, p, lo, hi, tile):
    """Add four columns to the distances of four points: sixteen terms for four loads of training values."""
    begin, end = first + lo, first + hi
    a0, a1 = columns[j, begin:end], columns[j + 1, begin:end]
    a2, a3 = columns[j + 2, begin:end], columns[j + 3, begin:end]
    out0, out1, out2, out3 = tile[p, lo:hi], tile[p + 1, lo:hi], tile[p + 2, lo:hi], tile[p + 3, lo:hi]
    x, y, z, w = points[p, j : j + 4], points[p + 1, j : j + 4], points[p + 2, j : j + 4], points[p + 3, j : j + 4]
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
    sums, inverses = np.empty((2, BLOCK)), np.empty((2, BLOCK))
    near, work = np.empty(BLOCK, np.int64), np.empty((6, BLOCK))
    for lo in range(0, tile.shape[1], BLOCK):
        size = min(BLOCK, tile.shape[1] - lo)
        begin, end = first + lo, first + lo + size
        total, rest, inverse, inverse_low = sums[0, :size], sums[1, :size], inverses[0, :size], inverses[1, :size]
        total[:], rest[:] = START, 0.0
        for j in range(d):
            _add_squares(columns[j, begin:end], total, rest)
        for i in range(size):
            inverse[i], inverse_low[i] = inverse_length(total[i], rest[i])
        for p in range(points.shape[0]):
            x, out = points[p], tile[p, lo : lo + size]
            own, own_low = inverse_length(*_dot(x, x))
            total[:], rest[:] = START, 0.0
            for j in range(0, d - 3, 4):
                _add_four_products(columns, j, begin, end, x, total, rest)
            for j in range(d - d % 4, d):
                _add_products(columns[j, begin:end], x[j], total, rest)
            _to_distances(total, rest, own, own_low, inverse, inverse_low, out)
            found = 0
            for i in range(size):
                near[found] = i
                found += out[i] < NEARLY_PARALLEL
            if found > 0:
                _measure_again(columns, begin, x, near[:found], own, own_low, inverse, inverse_low, work, out)


@kernel
def _add_squares(column, total, rest):
    for i in range(column.size):
        total[i], rest[i] = add_product(column[i], column[i], total[i], rest[i])


@kernel
def _add_products(column, at, total, rest):
    for i in range(column.size):
        total[i], rest[i] = add_product(column[i], at, total[i], rest[i])


@kernel
def _add_four_products(columns, j, begin, end, x, total, rest):
    """Four columns at a time: sums are loaded and stored once for them."""
    a0, a1, a2, a3 = (
        columns[j, begin:end],
        columns[j + 1, begin:end],
        columns[j + 2, begin:end],
        columns[j + 3, begin:end],
    )
    x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
    for i in range(total.size):
        t, r = add_product(a0[i], x0, total[i], rest[i])
        t, r = add_product(a1[i], x1, t, r)
        t, r = add_product(a2[i], x2, t, r)
        total[i], rest[i] = add_product(a3[i], x3, t, r)


@kernel
def _to_distances(total, rest, own, own_low, inverse, inverse_low, out):
    for i in range(out.size):
        high, low = one_minus_cosine(total[i], rest[i], own, own_low, inverse[i], inverse_low[i])
        out[i] = high + low


@kernel
def add_product(a, b, total, rest):
    """Add a * b to ``total + rest``, which began as START + 0, to about twice the digits of a float.

    ``total`` stays within a factor of two of START, so what a rounded addition really added to it is a difference
    without a rounding of its own, and what it did not add is left for ``rest``.
    """
    larger = fma(a, b, total)
    return larger, rest + fma(a, b, total - larger)


@kernel
def _dot(x, y):
    total, rest = START, 0.0
    for j in range(x.size):
        total, rest = add_product(x[j], y[j], total, rest)
    return total, rest


@kernel
def inverse_length(total, rest):
    """Inverse root of a sum that :func:`add_product` made, as a sum of two floats; 0 for a row of zeros."""
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
def one_minus_cosine(total, rest, inverse, inverse_low, other, other_low):
    """Cosine distance from an inner product and two inverse lengths, as a sum of two floats."""
    scale, scale_low = _multiply(inverse, inverse_low, other, other_low)
    inner = total - START
    product, product_low = _product(inner, scale)
    product_low += inner * scale_low + rest * scale
    distance = 1.0 - product
    return distance, ((1.0 - distance) - product) - product_low


@kernel
def of_nearly_parallel(x, row, inverse, inverse_low, other, other_low, distance):
    """Cosine distance of nearly parallel vectors, where 1 - cos has few digits left, or none.

    With p the largest feature of x, the vector w = x_p row - row_p x is known to all its digits, and exactly zero for
    parallel vectors. It is x_p times row less a multiple of x; what it has across x is at least a d-th of its squared
    length, so that it can be taken as a difference:

        |w|^2 - (w x)^2 / |x|^2  =  x_p^2 |row|^2 sin^2,    1 - cos = sin^2 / (1 + cos)
    """
    p = _largest_feature(x)
    sums = 0.0, 0.0, 0.0, 0.0
    for j in range(x.size):
        sums = _add_across(x[p], row[p], x[j], row[j], *sums)
    return _from_across(x[p], *sums, inverse, inverse_low, other, other_low, distance)


@kernel
def _measure_again(columns, begin, x, near, own, own_low, inverse, inverse_low, work, out):
    """Do what :func:`of_nearly_parallel` does for several rows, feature by feature."""
    p = _largest_feature(x)
    size = near.size
    work[:, :size] = 0.0
    largest, column, squares, squares_low = work[0, :size], work[1, :size], work[2, :size], work[3, :size]
    along, along_low = work[4, :size], work[5, :size]
    for k in range(size):
        largest[k] = columns[p, begin + near[k]]
    for j in range(x.size):
        for k in range(size):
            column[k] = columns[j, begin + near[k]]
        _add_column_across(x[p], largest, x[j], column, squares, squares_low, along, along_low)
    for k in range(size):
        i = near[k]
        out[i] = _from_across(
            x[p], squares[k], squares_low[k], along[k], along_low[k], own, own_low, inverse[i], inverse_low[i], out[i]
        )


@kernel
def _add_column_across(x_largest, largest, at, column, squares, squares_low, along, along_low):
    for k in range(column.size):
        squares[k], squares_low[k], along[k], along_low[k] = _add_across(
            x_largest, largest[k], at, column[k], squares[k], squares_low[k], along[k], along_low[k]
        )


@kernel
def _largest_feature(x):
    p = 0
    for j in range(1, x.size):
        p = j if abs(x[j]) > abs(x[p]) else p
    return p


@kernel
def _add_across(x_largest, row_largest, x, row, squares, squares_low, along, along_low):
    """Add one feature of w to |w|^2 and to w x."""
    one, one_low = _product(x_largest, row)
    two, two_low = _product(row_largest, x)
    high, middle = _sum(one, -two)
    small, smallest = _sum(one_low, -two_low)
    high, low = _sum(high, small)
    w, w_low = _sum(high, low + (middle + smallest))
    high, low = _product(w, w)
    squares, lost = _sum(squares, high)
    squares_low += lost + (low + 2 * w * w_low)
    high, low = _product(w, x)
    along, lost = _sum(along, high)
    return squares, squares_low, along, along_low + (lost + (low + w_low * x))


@kernel
def _from_across(
    x_largest, squares, squares_low, along, along_low, inverse, inverse_low, other, other_low, distance
):  # fmt: skip
    """1 - cos from sums over all features, and from itself with fewer digits."""
    if squares == 0.0:
        return 0.0
    high, low = _multiply(along, along_low, inverse, inverse_low)
    high, low = _multiply(high, low, high, low)
    high, lost = _sum(squares, -high)
    across, across_low = _sum(high, lost + (squares_low - low))
    high, low = _multiply(other, other_low, other, other_low)
    top, top_low = _multiply(across, across_low, high, low)
    high, low = _product(x_largest, x_largest)
    bottom, bottom_low = _multiply(high, low, 2.0 - distance, (2.0 - (2.0 - distance)) - distance)
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
def _multiply(a, a_low, b, b_low):
    """Multiply two sums of two floats."""
    product, low = _product(a, b)
    return product, low + (a * b_low + a_low * b)


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
            inverse[i - lo], inverse_low[i - lo] = inverse_length(*_dot(row, row))
        for p in range(tile.shape[0]):
            first, end = point_indptr[p], point_indptr[p + 1]
            own, own_low = inverse_length(*_dot(point_data[first:end], point_data[first:end]))
            for i in range(lo, hi):
                total, rest = START, 0.0
                a = first
                for b in range(indptr[i], indptr[i + 1]):
                    while a < end and point_indices[a] < indices[b]:
                        a += 1
                    if a < end and point_indices[a] == indices[b]:
                        total, rest = add_product(data[b], point_data[a], total, rest)
                other, other_low = inverse[i - lo], inverse_low[i - lo]
                high, low = one_minus_cosine(total, rest, own, own_low, other, other_low)
                distance = high + low
                if distance < NEARLY_PARALLEL:
                    x, row = _both(
                        point_data[first:end], point_indices[first:end],
                        data[indptr[i] : indptr[i + 1]], indices[indptr[i] : indptr[i + 1]],
                    )  # fmt: skip
                    distance = of_nearly_parallel(x, row, own, own_low, other, other_low, distance)
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
