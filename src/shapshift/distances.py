"""Distances of validation points to training rows, one tile at a time.

Only the order of distances matters here, and which of them are equal. So Euclidean distances stay squared, and features
are scaled by one power of two, which is exact and keeps squares away from overflow and underflow.
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
        return TrainingIndex(metric, rows.shape[0], _layout(_unit_rows(rows), 0), 0)
    # Differences are what gets squared: a huge but constant column must not push the others into underflow. The scaled
    # features themselves only have to stay finite.
    widest = int(np.frexp(_widest_column(rows))[1])
    exponent = max(widest, int(np.frexp(_largest(rows))[1]) - 1000)
    return TrainingIndex(metric, rows.shape[0], _layout(rows, exponent), exponent)


def tile_filler(index: TrainingIndex, points: Rows) -> Filler:
    """Return the function that computes tiles for ``points`` (for "precomputed", the distances themselves)."""
    if index.rows is None:

        def copy(start: int, stop: int, tile: Floats) -> None:
            # Adding zero turns -0.0 into 0.0, whose bit pattern the rank kernel relies on.
            np.add(points[start:stop], 0.0, out=tile)

        return copy
    is_cosine = index.metric == "cosine"
    points = _unit_rows(points) if is_cosine else _scaled(points, index.exponent)
    _check_reach(index, points)
    if sparse.issparse(index.rows):
        train, csr = index.rows, points

        def merge(start: int, stop: int, tile: Floats) -> None:
            kernels.sparse_tile(
                train.data, train.indices, train.indptr, csr.data, csr.indices, csr.indptr, start, is_cosine, tile
            )

        return merge
    fill = {"manhattan": kernels.manhattan, "cosine": kernels.cosine}.get(index.metric, kernels.squared_euclidean)
    columns, dense = index.rows, np.ascontiguousarray(points)

    def subtract(start: int, stop: int, tile: Floats) -> None:
        fill(columns, dense[start:stop], tile)

    return subtract


def _largest(rows: Rows) -> float:
    """Largest absolute feature, without a copy of the rows."""
    stored = rows.data if sparse.issparse(rows) else rows
    return max(float(stored.max()), -float(stored.min())) if stored.size else 0.0


def _widest_column(rows: Rows) -> float:
    """Largest range of a feature. Halves are subtracted, so that the range of the largest floats is still one."""
    if sparse.issparse(rows):
        return _largest(rows)  # nearly every column of a sparse table holds a zero
    return 2 * float(max(column.max() / 2 - column.min() / 2 for column in rows.T))


def _check_reach(index: TrainingIndex, points: Rows) -> None:
    """Refuse validation points so far from the training rows that squared distances are no longer finite."""
    if sparse.issparse(points):
        farthest = _largest(points)
    else:
        ends = [(column.min(), column.max()) for column in index.rows]
        farthest = max(
            max(high - column.min(), column.max() - low) for column, (low, high) in zip(points.T, ends, strict=True)
        )
    if not farthest < _LARGEST:
        raise ValueError(
            f"'X_val' has values about {2.0**500:.0e} times the range of the training values or more; their distances "
            "overflow. Check the units of 'X_val', or rescale both sets."
        )


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


def _unit_rows(rows: Rows) -> Rows:
    """Rows divided by their length; a zero row stays zero, which puts it at cosine distance 1 from everything."""
    largest = abs(rows).max(axis=1)
    largest = largest.toarray().ravel() if sparse.issparse(rows) else largest
    zero = largest == 0
    # Powers of two bring every row near 1 first, so that no square over- or underflows.
    exponents = np.frexp(np.where(zero, 1.0, largest))[1]
    if sparse.issparse(rows):
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        unit = rows.copy()
        unit.data = np.ldexp(rows.data, -exponents[owner])
        # bincount adds in the order of storage, which is column order, as below.
        length = np.sqrt(np.bincount(owner, unit.data * unit.data, minlength=rows.shape[0]))
        unit.data /= length[owner]
        return unit
    near_one = np.ldexp(rows, -exponents[:, None])
    squares = np.zeros(rows.shape[0])
    for column in near_one.T:  # in column order, so that a sparse row has the same length to the last bit
        squares += column * column
    near_one /= np.sqrt(np.where(zero, 1.0, squares))[:, None]
    return near_one
