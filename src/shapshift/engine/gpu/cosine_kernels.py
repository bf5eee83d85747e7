"""Triton kernels' part of cosine distances: what :mod:`shapshift.kernels.distance` does, on blocks of pairs.

Distances are sums of two floats until they are rounded, once. Products that must not be fused with an addition are
written as a fused multiply-add of zero, which no compiler may take apart.
"""

import triton
import triton.language as tl

from shapshift.engine.gpu.values import NEARLY_PARALLEL, START

_START = tl.constexpr(START)
_NEARLY_PARALLEL = tl.constexpr(NEARLY_PARALLEL)


@triton.jit
def _product(a, b):
    """Product as a sum of two floats, without error; both factors have the same shape."""
    product = tl.fma(a, b, tl.zeros_like(a))
    return product, tl.fma(a, b, -product)


@triton.jit
def _sum(a, b):
    """Sum of two floats as a rounded sum and what it lacks, without error."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


@triton.jit
def _multiply(a, a_low, b, b_low):
    """Multiply two sums of two floats."""
    product, low = _product(a, b)
    return product, low + (a * b_low + a_low * b)


@triton.jit
def _add_product(a, b, total, rest):
    larger = tl.fma(a, b, total)
    return larger, rest + tl.fma(a, b, total - larger)


@triton.jit
def _inverse_length(total, rest):
    """Inverse root of a sum of products, as a sum of two floats; 0 for a row of zeros."""
    inner = total - _START
    squared = inner + rest
    low = rest - (squared - inner)
    root = 1.0 / tl.sqrt(tl.where(squared == 0.0, 1.0, squared))
    square, square_low = _product(root, root)
    one, one_low = _product(squared, square)
    missing = ((1.0 - one) - one_low) - (squared * square_low + low * square)
    return tl.where(squared == 0.0, 0.0, root), tl.where(squared == 0.0, 0.0, root * missing * 0.5)


@triton.jit
def _add_across(x_largest, row_largest, x, row, squares, squares_low, along, along_low):
    """Add one feature of w = x_p row - row_p x to |w|^2 and to w x."""
    one, one_low = _product(x_largest, row)
    two, two_low = _product(row_largest, x)
    high, middle = _sum(one, -two)
    small, smallest = _sum(one_low, -two_low)
    high, low = _sum(high, small)
    w, w_low = _sum(high, low + (middle + smallest))
    high, low = _product(w, w)
    squares, lost = _sum(squares, high)
    squares_low += lost + (low + 2.0 * w * w_low)
    high, low = _product(w, x)
    along, lost = _sum(along, high)
    return squares, squares_low, along, along_low + (lost + (low + w_low * x))


@triton.jit
def _from_across(
    x_largest, squares, squares_low, along, along_low, inverse, inverse_low, other, other_low, distance
):  # fmt: skip
    """1 - cos of nearly parallel vectors, from sums over all features."""
    high, low = _multiply(along, along_low, inverse, inverse_low)
    high, low = _multiply(high, low, high, low)
    high, lost = _sum(squares, -high)
    across, across_low = _sum(high, lost + (squares_low - low))
    high, low = _multiply(other, other_low, other, other_low)
    top, top_low = _multiply(across, across_low, high, low)
    high, low = _product(x_largest, x_largest)
    bottom, bottom_low = _multiply(high, low, 2.0 - distance, (2.0 - (2.0 - distance)) - distance)
    bottom = tl.where(bottom == 0.0, 1.0, bottom)  # a point without any feature, whose distances are all 1
    found = top / bottom
    found += (tl.fma(-found, bottom, top) + (top_low - found * bottom_low)) / bottom
    return tl.where(squares == 0.0, 0.0, found)


@triton.jit
def _cosine_distances(columns, points, inside, d, step, BP: tl.constexpr, BN: tl.constexpr):
    """Cosine distances of BP points to BN rows, none of them longer than 1.

    ``columns`` (1, BN) and ``points`` (BP, 1), or (1, BN) for pairs, point to first features; the next one of a row is
    ``step`` further on, that of a point follows.
    """
    total = tl.full((BP, BN), _START, tl.float64)
    row_total = tl.full(columns.shape, _START, tl.float64)
    own_total = tl.full(points.shape, _START, tl.float64)
    rest = tl.zeros((BP, BN), tl.float64)
    row_rest = tl.zeros(columns.shape, tl.float64)
    own_rest = tl.zeros(points.shape, tl.float64)
    column = columns
    point = points
    for _ in range(d):
        row = tl.load(column, mask=inside, other=0.0)
        x = tl.load(point)
        total, rest = _add_product(tl.broadcast_to(row, (BP, BN)), tl.broadcast_to(x, (BP, BN)), total, rest)
        row_total, row_rest = _add_product(row, row, row_total, row_rest)
        own_total, own_rest = _add_product(x, x, own_total, own_rest)
        column += step
        point += 1
    other, other_low = _inverse_length(row_total, row_rest)
    own, own_low = _inverse_length(own_total, own_rest)
    other = tl.broadcast_to(other, (BP, BN))
    other_low = tl.broadcast_to(other_low, (BP, BN))
    own = tl.broadcast_to(own, (BP, BN))
    own_low = tl.broadcast_to(own_low, (BP, BN))
    scale, scale_low = _multiply(own, own_low, other, other_low)
    inner = total - _START
    product, product_low = _product(inner, scale)
    product_low += inner * scale_low + rest * scale
    rounded = 1.0 - product
    distance = rounded + (((1.0 - rounded) - product) - product_low)
    if tl.max((distance < _NEARLY_PARALLEL).to(tl.int32)) > 0:
        x_largest = tl.zeros((BP, BN), tl.float64)
        row_largest = tl.zeros((BP, BN), tl.float64)
        column = columns
        point = points
        for _ in range(d):
            row = tl.broadcast_to(tl.load(column, mask=inside, other=0.0), (BP, BN))
            x = tl.broadcast_to(tl.load(point), (BP, BN))
            larger = tl.abs(x) > tl.abs(x_largest)
            x_largest = tl.where(larger, x, x_largest)
            row_largest = tl.where(larger, row, row_largest)
            column += step
            point += 1
        squares = tl.zeros((BP, BN), tl.float64)
        squares_low = tl.zeros((BP, BN), tl.float64)
        along = tl.zeros((BP, BN), tl.float64)
        along_low = tl.zeros((BP, BN), tl.float64)
        column = columns
        point = points
        for _ in range(d):
            row = tl.broadcast_to(tl.load(column, mask=inside, other=0.0), (BP, BN))
            x = tl.broadcast_to(tl.load(point), (BP, BN))
            squares, squares_low, along, along_low = _add_across(
                x_largest, row_largest, x, row, squares, squares_low, along, along_low
            )
            column += step
            point += 1
        found = _from_across(
            x_largest, squares, squares_low, along, along_low, own, own_low, other, other_low, distance
        )  # fmt: skip
        distance = tl.where(distance < _NEARLY_PARALLEL, found, distance)
    return distance
