"""Distances of validation points to training rows, one tile at a time.

Only the order of distances matters here, and which of them are equal. So Euclidean distances stay squared, cosine
distances become squared Euclidean ones between unit vectors, and everything is scaled by one power of two, which is
exact and keeps squares away from overflow and underflow.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.kernels import distance as kernels

Floats = npt.NDArray[np.float64]
Rows = Any  # dense float64 array or scipy csr_array; scipy ships no types
#: Fills tile rows with the distances of validation points start..stop-1.
Filler = Callable[[int, int, Floats], None]

METRICS = ("euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed")
SPARSE_METRICS = ("euclidean", "sqeuclidean", "cosine")

# Squares of scaled features stay finite below this, with room for the sum over columns.
_LARGEST = 2.0**500


@dataclass(frozen=True)
class TrainingIndex:
    """Training rows, laid out for the distance kernels.

    Attributes
    ----------
    metric : str
    n_rows : int
    rows : ndarray of shape (d, N), csr_array of shape (N, d), or None
        None for precomputed distances.
    exponent : int
        Features were multiplied by ``2**-exponent``.
    """

    metric: str
    n_rows: int
    rows: Rows
    exponent: int


def index_rows(rows: Rows, metric: str) -> TrainingIndex:
    """Lay out checked training rows for ``metric``."""
    if metric == "cosine":
        return TrainingIndex(metric, rows.shape[0], _layout(_unit_rows(rows, 0), 0), 0)
    exponent = int(np.frexp(_largest(rows))[1])
    return TrainingIndex(metric, rows.shape[0], _layout(rows, exponent), exponent)


def tile_filler(index: TrainingIndex, points: Rows) -> Filler:
    """Return the function that computes tiles for ``points`` (for "precomputed", the distances themselves)."""
    if index.rows is None:

        def copy(start: int, stop: int, tile: Floats) -> None:
            # Adding zero turns -0.0 into 0.0, whose bit pattern the rank kernel relies on.
            np.add(points[start:stop], 0.0, out=tile)

        return copy
    if index.metric == "cosine":
        points = _unit_rows(points, 1)
    else:
        points = _scaled(points, index.exponent)
        if _largest(points) > _LARGEST:
            raise ValueError(
                f"'X_val' has values over 2**{index.exponent + 500}, far beyond any training value; "
                "their distances overflow. Check the units of 'X_val' or rescale both sets."
            )
    if sparse.issparse(index.rows):
        train, csr = index.rows, points

        def merge(start: int, stop: int, tile: Floats) -> None:
            kernels.sparse_squared_euclidean(
                train.data, train.indices, train.indptr, csr.data, csr.indices, csr.indptr, start, tile
            )

        return merge
    fill = kernels.manhattan if index.metric == "manhattan" else kernels.squared_euclidean
    columns, dense = index.rows, np.ascontiguousarray(points)

    def subtract(start: int, stop: int, tile: Floats) -> None:
        fill(columns, dense[start:stop], tile)

    return subtract


def _largest(rows: Rows) -> float:
    """Largest absolute feature, without a copy of the rows."""
    stored = rows.data if sparse.issparse(rows) else rows
    return max(float(stored.max()), -float(stored.min())) if stored.size else 0.0


def _scaled(rows: Rows, exponent: int) -> Rows:
    with np.errstate(over="ignore"):  # the caller checks for it
        if sparse.issparse(rows):
            scaled = rows.copy()
            scaled.data = np.ldexp(rows.data, -exponent)
            return scaled
        return np.ldexp(rows, -exponent)


def _layout(rows: Rows, exponent: int) -> Rows:
    if sparse.issparse(rows):
        return _scaled(rows, exponent)
    columns = np.empty(rows.shape[::-1])
    np.ldexp(rows.T, -exponent, out=columns)
    return columns


def _unit_rows(rows: Rows, side: int) -> Rows:
    """Rows divided by their length, with two more columns for rows of length zero.

    A zero row is at cosine distance 1 from everything. On the unit sphere that is a right angle, so zero training rows
    point along one new axis and zero validation points along another.
    """
    largest = abs(rows).max(axis=1)
    largest = largest.toarray().ravel() if sparse.issparse(rows) else largest
    zero = largest == 0
    # Powers of two bring every row near 1 first, so that no square over- or underflows.
    by_two: Any = np.ldexp(1.0, -np.frexp(np.where(zero, 1.0, largest))[1])
    if sparse.issparse(rows):
        near_one = sparse.csr_array(rows.multiply(by_two[:, None]))
        length = np.sqrt(np.asarray(near_one.multiply(near_one).sum(axis=1)).ravel())
        axes = np.zeros((rows.shape[0], 2))
        axes[zero, side] = 1.0
        unit = sparse.csr_array(near_one.multiply(1 / np.where(zero, 1.0, length)[:, None]))
        stacked = sparse.csr_array(sparse.hstack([unit, sparse.csr_array(axes)]))
        stacked.sort_indices()
        return stacked
    near_one = rows * by_two[:, None]
    length = np.sqrt(_row_sums(near_one * near_one))
    unit = np.zeros((rows.shape[0], rows.shape[1] + 2))
    unit[:, :-2] = near_one * (1 / np.where(zero, 1.0, length))[:, None]
    unit[zero, rows.shape[1] + side] = 1.0
    return unit


def _row_sums(squares: Floats) -> Floats:
    """Sum in column order, so that a sparse row, which skips exact zeros, has the same length to the last bit."""
    total = np.zeros(squares.shape[0])
    for column in squares.T:
        total += column
    return total
