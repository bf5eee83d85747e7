"""Distance tiles by direct differences in float64, summed in column order.

Direct differences cost little more than a matrix product and have advantages: equal rows get equal bits, features far
from the origin lose no precision, and dense and sparse input agree to the last bit, because skipping a column in which
both rows are zero skips the addition of an exact zero. Squares are added with one rounding (a fused multiply-add) in
every kernel, so that a distance has the same bits everywhere.

Cosine distances are more delicate: lengths are irrational, so rows at the same angle would rarely get the same bits.
They are computed as sums of two floats, to about 100 bits, and rounded to a float once, at the end. Equal angles then
give equal distances, unless they lie within about 2**-40 of their last digit from the middle between two floats.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._numba import fma, kernel
from shapshift.kernels.panels import (
    ROWS,
    START,
    STRIP,
    absolute_sums,
    as_float,
    in_float64,
    panels_of,
    product_sums,
    squared_sums,
)

Floats = npt.NDArray[np.float64]
Panels = npt.NDArray[Any]
Indices = npt.NDArray[Any]

# Cosine distances below this are computed by another formula, because 1 - cos has lost too many digits.
NEARLY_PARALLEL = 2.0**-24
# Number of sparse training rows whose lengths are kept at a time.
BLOCK = 2048
# Up to this number of rows of a panel are measured one by one.
FEW_ROWS = 4
# From this number of points on, a panel of shorter numbers is converted to float64 once, not for each few points, if
# it then fits in the second-level cache.
MANY_POINTS, WIDE_BYTES = 24, 2**19


def wide_panel(panels: Panels, n_points: int) -> Floats | None:
    """Space for a panel in float64; None if rows are float64, or to convert a panel beforehand would be no gain."""
    worth_it = panels.itemsize < 8 and n_points >= MANY_POINTS and 8 * ROWS * panels.shape[2] <= WIDE_BYTES
    return np.empty(panels.shape[1:]) if worth_it else None


@kernel
def squared_euclidean(panels: Panels, first: int, points: Floats, wide: Floats | None, tile: Floats) -> None:
    """Fill a tile with squared distances.

    Parameters
    ----------
    panels : ndarray (k, 4, d, 8)
    first : int
    points : float64 (b, d)
    wide : float64 (4, d, 8) or None
        From :func:`wide_panel`.
    tile : float64 (b, n)
        Out: ``tile[p, i]`` is the distance of ``points[p]`` to row ``first + i``.
    """
    _fill_tile(panels, first, points, wide, False, tile)


@kernel
def manhattan(panels: Panels, first: int, points: Floats, wide: Floats | None, tile: Floats) -> None:
    """Fill ``tile`` with sums of absolute differences; arguments as in :func:`squared_euclidean`."""
    _fill_tile(panels, first, points, wide, True, tile)


@kernel
def _fill_tile(panels, first, points, wide, absolute, tile):
    spare = np.empty((points.shape[0], ROWS))
    end = first + tile.shape[1]
    last = panels_of(end) - 1
    for k in range(first // ROWS, last + 1):
        start = k * ROWS
        lo, hi = max(first, start), min(end, start + ROWS)
        if hi - lo <= FEW_ROWS:
            _measure_singly(panels[k], lo - start, points, absolute, tile[:, lo - first : hi - first])
            continue
        whole = hi - lo == ROWS
        out, column = (tile, start - first) if whole else (spare, 0)
        panel, coming = in_float64(panels[k], wide), panels[min(k + 1, last)]
        if absolute:
            absolute_sums(panel, points, out, column, coming)
        else:
            squared_sums(panel, points, out, column, coming)
        if not whole:
            tile[:, lo - first : hi - first] = spare[:, lo - start : hi - start]


@kernel
def _measure_singly(panel, first, points, absolute, tile):
    for p in range(tile.shape[0]):
        for i in range(tile.shape[1]):
            total = 0.0
            for j in range(points.shape[1]):
                difference = as_float(panel[(first + i) // STRIP, j, (first + i) % STRIP]) - points[p, j]
                total = total + abs(difference) if absolute else _add(difference, total)
            tile[p, i] = total


@kernel
def _add(difference, total):
    """Total plus the squared difference, rounded once."""
    return fma(difference, difference, total)


@kernel
def cosine(panels: Panels, first: int, points: Floats, wide: Floats | None, tile: Floats) -> None:
    """Fill ``tile`` with cosine distances of rows no longer than 1; arguments as in :func:`squared_euclidean`."""
    sums, near = np.empty((2, points.shape[0], ROWS)), np.empty(ROWS, np.int64)
    squares, inverse = np.empty((2, ROWS)), np.empty((2, ROWS))
    own = np.empty((2, points.shape[0]))
    for p in range(points.shape[0]):
        own[0, p], own[1, p] = inverse_length(squared_length(points[p]))
    end = first + tile.shape[1]
    last = panels_of(end) - 1
    for k in range(first // ROWS, last + 1):
        start = k * ROWS
        panel = in_float64(panels[k], wide)
        lo, hi = max(first, start) - start, min(end, start + ROWS) - start
        squares[0], squares[1] = START, 0.0
        for i in range(0, ROWS, STRIP):
            _add_squares(panel[i // STRIP], squares[0, i : i + STRIP], squares[1, i : i + STRIP])
        for i in range(ROWS):
            inverse[0, i], inverse[1, i] = inverse_length((squares[0, i], squares[1, i]))
        product_sums(panel, points, sums, 0, panels[min(k + 1, last)])
        for p in range(points.shape[0]):
            out, found = tile[p, start + lo - first : start + hi - first], 0
            for i in range(lo, hi):
                other = inverse[0, i], inverse[1, i]
                out[i - lo] = one_minus_cosine((sums[0, p, i], sums[1, p, i]), (own[0, p], own[1, p]), other)
            for i in range(lo, hi):
                near[found] = i
                found += out[i - lo] < NEARLY_PARALLEL
            if found > 0:
                _measure_again(panel, lo, points[p], near[:found], (own[0, p], own[1, p]), inverse, out)


@kernel
def _add_squares(strip, total, rest):
    for j in range(strip.shape[0]):
        for i in range(STRIP):
            entry = as_float(strip[j, i])
            total[i], rest[i] = add_product(entry, entry, total[i], rest[i])


@kernel
def add_product(a, b, total, rest):
    """Add a * b to ``total + rest``, which starts as START + 0, to about twice the digits of a float.

    ``total`` stays within a factor of two of START, so the difference of totals is exactly the amount added, and the
    remainder of the product goes to ``rest``.
    """
    larger = fma(a, b, total)
    return larger, rest + fma(a, b, total - larger)


@kernel
def squared_length(x):
    """Squared length, in the form made by :func:`add_product`."""
    total, rest = START, 0.0
    for j in range(x.size):
        total, rest = add_product(x[j], x[j], total, rest)
    return total, rest


# From here on, numbers with about twice the digits of a float are pairs of floats: the sum of the two.


@kernel
def inverse_length(squares):
    """Inverse root of a sum from :func:`add_product`, as a pair; 0 for a row of zeros."""
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
    """Cosine distance from a sum of products of :func:`add_product` and two inverse lengths."""
    total, rest = products
    scale, scale_low = _multiply(inverse, other)
    inner = total - START
    product, product_low = _product(inner, scale)
    product_low += inner * scale_low + rest * scale
    distance = 1.0 - product
    return distance + (((1.0 - distance) - product) - product_low)


@kernel
def of_nearly_parallel(x, row, inverse, other, distance):
    """Cosine distance of nearly parallel vectors, for which 1 - cos has few digits or none.

    With p the largest feature of x, the vector w = x_p row - row_p x is known to all its digits, and is exactly zero
    for parallel vectors. It is x_p times row minus a multiple of x. Its part across x has at least a d-th of its
    squared length, so that it can be computed as a difference:

        |w|^2 - (w x)^2 / |x|^2  =  x_p^2 |row|^2 sin^2,    1 - cos = sin^2 / (1 + cos)
    """
    p = _largest_feature(x)
    squares, along = (0.0, 0.0), (0.0, 0.0)
    for j in range(x.size):
        squares, along = _add_across(x[p], row[p], x[j], row[j], squares, along)
    return _from_across(x[p], squares, along, inverse, other, distance)


@kernel
def _measure_again(panel, first, x, near, own, inverse, out):
    """Apply :func:`of_nearly_parallel` to some rows of a panel, stored in ``out`` from ``first``."""
    row = np.empty(x.size)
    for i in near:
        for j in range(x.size):
            row[j] = as_float(panel[i // STRIP, j, i % STRIP])
        out[i - first] = of_nearly_parallel(x, row, own, (inverse[0, i], inverse[1, i]), out[i - first])


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
    """Return 1 - cos from sums over all features and a less accurate value of 1 - cos."""
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
    """Sum of two floats as a rounded sum and its rounding error."""
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
    """Squared Euclidean distances of CSR rows by merging sorted column indices, with the bits of the dense kernel."""
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
    """Cosine distances of CSR rows no longer than 1, with the bits of the dense kernel."""
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
    """Dense copies of two sparse rows, in the columns that occur in either."""
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
