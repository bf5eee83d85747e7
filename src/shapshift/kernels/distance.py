"""Distance tiles by direct differences in float64, summed in column order.

Direct differences cost little more than a matrix product and are worth it: rows that are equal get equal bits, features
far from the origin lose nothing, and dense and sparse input agree to the last bit, because skipping a column in which
both rows are zero skips the addition of an exact zero. Squares are added with one rounding (a fused multiply-add) in
every kernel, so that a distance has the same bits wherever it is computed.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._numba import fma, kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[Any]

# Training rows handled at once: a few columns of them stay in the first-level cache while all points pass by.
BLOCK = 2048


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
    """Fill ``tile`` with cosine distances of unit rows; arguments as in :func:`squared_euclidean`."""
    products = np.empty(BLOCK)
    for lo in range(0, tile.shape[1], BLOCK):
        hi = min(lo + BLOCK, tile.shape[1])
        for p in range(points.shape[0]):
            out = tile[p, lo:hi]
            out[:] = 0.0
            products[:] = 0.0
            for j in range(columns.shape[0]):
                column, at = columns[j, first + lo : first + hi], points[p, j]
                for i in range(hi - lo):
                    out[i] = _add(column[i] - at, out[i])
                    products[i] = fma(column[i], at, products[i])
            for i in range(hi - lo):
                out[i] = _cosine_distance(products[i], out[i])


@kernel
def _cosine_distance(product, squared):
    """1 - cos of the angle between unit vectors, from their inner product and their squared distance.

    Nearly parallel vectors lose all digits in 1 - product but none in the squared distance; vectors without a common
    feature have a product of exactly 0 and must be exactly tied.
    """
    return squared / 2 if product > 0.5 else 1.0 - product


@kernel
def sparse_tile(
    data: Floats,
    indices: Indices,
    indptr: Indices,
    point_data: Floats,
    point_indices: Indices,
    point_indptr: Indices,
    is_cosine: bool,
    tile: Floats,
) -> None:
    """Distances of CSR rows by merging sorted column indices.

    Squared Euclidean ones, or cosine distances of unit rows; the same bits as the dense kernels.
    """
    for p in range(tile.shape[0]):
        first, end = point_indptr[p], point_indptr[p + 1]
        for i in range(tile.shape[1]):
            total = 0.0
            product = 0.0
            a = first
            for b in range(indptr[i], indptr[i + 1]):
                while a < end and point_indices[a] < indices[b]:
                    total = _add(point_data[a], total)
                    a += 1
                e = data[b]  # minus the point's entry, if it has one here
                if a < end and point_indices[a] == indices[b]:
                    e -= point_data[a]
                    product = fma(data[b], point_data[a], product)
                    a += 1
                total = _add(e, total)
            while a < end:
                total = _add(point_data[a], total)
                a += 1
            tile[p, i] = _cosine_distance(product, total) if is_cosine else total
