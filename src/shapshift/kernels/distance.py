"""Distance tiles by direct differences in float64, summed in column order.

Direct differences cost about twice a matrix product and are worth it: rows that are equal get equal bits, features far
from the origin lose nothing, and dense and sparse input agree to the last bit, because skipping a column in which both
rows are zero skips the addition of an exact zero.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[Any]

# Training rows handled at once: with a few columns of them the working set stays in the first-level cache.
BLOCK = 1024


@kernel
def squared_euclidean(columns: Floats, points: Floats, tile: Floats) -> None:
    """Fill ``tile[p, i]`` with the squared distance of ``points[p]`` to training row i; ``columns`` is (d, N)."""
    d, n = columns.shape
    for lo in range(0, n, BLOCK):
        hi = min(lo + BLOCK, n)
        for p in range(points.shape[0]):
            x = points[p]
            out = tile[p, lo:hi]
            out[:] = 0.0
            # Four columns at a time keep the running sums in registers; each sum still grows in column order.
            for j in range(0, d - 3, 4):
                c0, c1, c2, c3 = (
                    columns[j, lo:hi],
                    columns[j + 1, lo:hi],
                    columns[j + 2, lo:hi],
                    columns[j + 3, lo:hi],
                )
                x0, x1, x2, x3 = x[j], x[j + 1], x[j + 2], x[j + 3]
                for i in range(hi - lo):
                    e0, e1, e2, e3 = c0[i] - x0, c1[i] - x1, c2[i] - x2, c3[i] - x3
                    out[i] = (((out[i] + e0 * e0) + e1 * e1) + e2 * e2) + e3 * e3
            for j in range(d - d % 4, d):
                column, at = columns[j, lo:hi], x[j]
                for i in range(hi - lo):
                    e = column[i] - at
                    out[i] += e * e


@kernel
def manhattan(columns: Floats, points: Floats, tile: Floats) -> None:
    """Fill ``tile`` with sums of absolute differences; arguments as in :func:`squared_euclidean`."""
    d, n = columns.shape
    for lo in range(0, n, BLOCK):
        hi = min(lo + BLOCK, n)
        for p in range(points.shape[0]):
            out = tile[p, lo:hi]
            out[:] = 0.0
            for j in range(d):
                column, at = columns[j, lo:hi], points[p, j]
                for i in range(hi - lo):
                    out[i] += abs(column[i] - at)


@kernel
def cosine(columns: Floats, points: Floats, tile: Floats) -> None:
    """Fill ``tile`` with cosine distances of unit rows; arguments as in :func:`squared_euclidean`."""
    d, n = columns.shape
    products = np.empty(BLOCK)
    for lo in range(0, n, BLOCK):
        hi = min(lo + BLOCK, n)
        for p in range(points.shape[0]):
            out = tile[p, lo:hi]
            out[:] = 0.0
            products[:] = 0.0
            for j in range(d):
                column, at = columns[j, lo:hi], points[p, j]
                for i in range(hi - lo):
                    e = column[i] - at
                    out[i] += e * e
                    products[i] += column[i] * at
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
    start: int,
    is_cosine: bool,
    tile: Floats,
) -> None:
    """Distances of CSR rows by merging sorted column indices; ``tile[p]`` belongs to point ``start + p``.

    Squared Euclidean ones, or cosine distances of unit rows; the same bits as the dense kernels.
    """
    for p in range(tile.shape[0]):
        first, end = point_indptr[start + p], point_indptr[start + p + 1]
        for i in range(tile.shape[1]):
            total = 0.0
            product = 0.0
            a = first
            for b in range(indptr[i], indptr[i + 1]):
                while a < end and point_indices[a] < indices[b]:
                    total += point_data[a] * point_data[a]
                    a += 1
                e = data[b]  # minus the point's entry, if it has one here
                if a < end and point_indices[a] == indices[b]:
                    e -= point_data[a]
                    product += data[b] * point_data[a]
                    a += 1
                total += e * e
            while a < end:
                total += point_data[a] * point_data[a]
                a += 1
            tile[p, i] = _cosine_distance(product, total) if is_cosine else total
