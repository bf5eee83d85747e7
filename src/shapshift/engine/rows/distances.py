"""Distances of validation points to training rows, one tile at a time.

Only the order of distances matters here, and which of them are equal. So Euclidean distances stay squared, and features
are scaled by one power of two, which is exact and keeps squares away from overflow and underflow.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.engine.rows.file import CHUNK_BYTES, RowFile, rewritten
from shapshift.exceptions import InputError
from shapshift.kernels import distance as kernels
from shapshift.kernels import nearest as some_rows

Floats = npt.NDArray[np.float64]
Rows = Any  # dense float64 array, RowFile, or scipy csr_array; scipy ships no types
#: Fills a tile with the distances of a slice of the validation points (its rows) to a slice of the training rows.
Filler = Callable[[slice, slice, Floats], None]
#: Fills in the distances of one validation point to some training rows.
Measure = Callable[[int, npt.NDArray[np.int64], Floats], None]

METRICS = ("euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed")
SPARSE_METRICS = ("euclidean", "sqeuclidean", "cosine")
# Kernels of dense rows: a tile of distances, and the distances of one point to single rows.
TILES = {
    "euclidean": kernels.squared_euclidean,
    "sqeuclidean": kernels.squared_euclidean,
    "manhattan": kernels.manhattan,
    "cosine": kernels.cosine,
}
SINGLE_ROWS = {
    "euclidean": some_rows.squared_to_rows,
    "sqeuclidean": some_rows.squared_to_rows,
    "manhattan": some_rows.manhattan_to_rows,
    "cosine": some_rows.cosine_to_rows,
}

# Squares of scaled features stay finite below this, with room for the sum over columns.
_LARGEST = 2.0**500
_TINY = np.finfo(np.float64).tiny
# Powers of two up to this exponent, positive or negative, are ordinary numbers.
_ORDINARY = 1022


@dataclass(frozen=True)
class TrainingIndex:
    """Training rows, laid out for the distance kernels.

    Attributes
    ----------
    metric : str
    n_rows : int
    rows : ndarray of shape (d, N), csr_array or RowFile of shape (N, d), or None
        None for precomputed distances.
    exponent : int
        Features were multiplied by ``2**-exponent``.
    constant : bool
        All training rows are equal, so that every validation point is equally far from all of them.
    ends : pair of ndarray or None
        Smallest and largest scaled value of each feature; None for sparse rows and where nothing is scaled.
    """

    metric: str
    n_rows: int
    rows: Rows
    exponent: int
    constant: bool = False
    ends: tuple[Floats, Floats] | None = None


def index_rows(rows: Rows, metric: str, scratch: str | None = None) -> TrainingIndex:
    """Lay out checked training rows for ``metric``; ``scratch`` is the folder for those that stay in a file."""
    if isinstance(rows, RowFile):
        return _index_file(rows, metric, scratch)
    if metric == "cosine":
        return TrainingIndex(metric, rows.shape[0], _layout(_short_rows(rows), 0), 0)
    # Differences are what gets squared: a huge but constant column must not push the others into underflow. The scaled
    # features themselves only have to stay finite.
    if sparse.issparse(rows):
        widest = _largest(rows)  # nearly every column of a sparse table holds a zero
        _check_outliers(rows, np.array([widest]), widest)
        exponent = _exponent(widest, widest)
        return TrainingIndex(metric, rows.shape[0], _layout(rows, exponent), exponent, widest == 0)
    columns = _layout(rows, 0)
    low, high = columns.min(axis=1), columns.max(axis=1)
    ranges = _differences(low, high)
    widest = float(ranges.max())
    _check_outliers(rows, ranges, widest)
    exponent = _exponent(widest, _farthest(low, high))
    _scale(columns, -exponent)
    # The ends are kept, because every validation set is checked against them.
    ends = (np.ldexp(low, -exponent), np.ldexp(high, -exponent))
    return TrainingIndex(metric, rows.shape[0], columns, exponent, widest == 0, ends)


def _index_file(file: RowFile, metric: str, scratch: str | None) -> TrainingIndex:
    """As :func:`index_rows`, for rows whose ends are known."""
    n, ends = file.shape[0], file.ends
    if metric == "cosine" or ends is None:
        return TrainingIndex(metric, n, rewritten(file, _short_rows, scratch), 0)
    ranges = _differences(*ends)
    widest, largest = float(ranges.max()), _farthest(*ends)
    sample = file.take(np.arange(0, n, max(1, n // 1024))).T
    if widest / _LARGEST > _spread(sample, ranges):
        column = int(ranges.argmax())
        _refuse_outliers(np.concatenate([file[lo:hi][:, column] for lo, hi in file.chunks()]), column, sample, ranges)
    exponent = _exponent(widest, largest)
    scaled = (np.ldexp(ends[0], -exponent), np.ldexp(ends[1], -exponent))
    return TrainingIndex(metric, n, file.scaled(exponent, ends), exponent, widest == 0, scaled)


@dataclass(frozen=True)
class Tiles:
    """A :data:`Filler` that can be sent to another process, where it is made again from what it was made of."""

    index: TrainingIndex
    points: Rows

    def __post_init__(self) -> None:
        object.__setattr__(self, "_fill", _filler(self.index, self.points))

    def __call__(self, here: slice, rows: slice, tile: Floats) -> None:
        """Fill a tile."""
        self._fill(here, rows, tile)  # type: ignore[attr-defined]

    def __reduce__(self) -> tuple[Any, ...]:
        return Tiles, (self.index, self.points)


def tile_filler(index: TrainingIndex, points: Rows) -> Filler:
    """Return the function that computes tiles for ``points`` (for "precomputed", the distances themselves)."""
    return Tiles(index, points)


def _filler(index: TrainingIndex, points: Rows) -> Filler:
    if index.rows is None:

        def copy(here: slice, rows: slice, tile: Floats) -> None:
            # Adding zero turns -0.0 into 0.0, whose bit pattern the rank kernel relies on.
            np.add(points[here, rows], 0.0, out=tile)

        return copy
    if index.constant:

        def nothing(here: slice, rows: slice, tile: Floats) -> None:
            tile[:] = 0.0

        return nothing
    is_cosine = index.metric == "cosine"
    if not is_cosine:
        check_reach(index, points)
    if sparse.issparse(index.rows):
        train, csr = index.rows, laid_out_points(index, points)
        fill_sparse = kernels.sparse_cosine if is_cosine else kernels.sparse_tile

        def merge(here: slice, rows: slice, tile: Floats) -> None:
            fill_sparse(
                train.data, train.indices, train.indptr[rows.start : rows.stop + 1],
                csr.data, csr.indices, csr.indptr[here.start : here.stop + 1], tile,
            )  # fmt: skip

        return merge
    fill = TILES[index.metric]

    def subtract(here: slice, rows: slice, tile: Floats) -> None:
        # Scaled a tile at a time: a scaled copy of all points would be memory that no budget knows of.
        fill(index.rows, rows.start, np.ascontiguousarray(laid_out_points(index, points[here])), tile)

    def read(here: slice, rows: slice, tile: Floats) -> None:
        # A chunk of the file at a time. A tile that needs several is filled by way of another array, because the
        # kernels want theirs in one piece.
        scaled = np.ascontiguousarray(laid_out_points(index, points[here]))
        step = max(1, CHUNK_BYTES // (8 * max(tile.shape[0], index.rows.shape[1])))
        for lo in range(rows.start, rows.stop, step):
            hi = min(lo + step, rows.stop)
            whole = hi - lo == tile.shape[1]
            piece = tile if whole else np.empty((tile.shape[0], hi - lo))
            fill(index.rows.columns(lo, hi), 0, scaled, piece)
            if not whole:
                tile[:, lo - rows.start : hi - rows.start] = piece

    return read if isinstance(index.rows, RowFile) else subtract


def laid_out_points(index: TrainingIndex, points: Rows) -> Rows:
    """Bring validation points to the scale of the laid-out training rows."""
    return _short_rows(points) if index.metric == "cosine" else _scaled(points, index.exponent)


def as_vectors(index: TrainingIndex, laid_out: Rows) -> Rows:
    """Return laid-out rows or points, (n, d), as vectors whose distances order them: those of cosine get length 1."""
    if index.metric != "cosine":
        return laid_out
    if sparse.issparse(laid_out):
        length = np.sqrt((laid_out * laid_out).sum(axis=1))
        unit = laid_out.copy()
        unit.data /= np.repeat(length, np.diff(laid_out.indptr))
        return unit
    length = np.sqrt(np.square(laid_out).sum(axis=1))
    return laid_out / np.where(length == 0, 1.0, length)[:, None]


def lay_out_like(rows: Rows, metric: str, exponent: int) -> Rows:
    """Lay out more training rows like those of an index that was made before."""
    return _layout(_short_rows(rows) if metric == "cosine" else rows, exponent)


def index_again(index: TrainingIndex) -> TrainingIndex:
    """Return the index that :func:`index_rows` would make of the same rows, whatever scale they are on now."""
    if index.metric == "cosine":
        return index
    largest = _largest(index.rows) if index.ends is None else _farthest(*index.ends)
    widest = largest if index.ends is None else float(_differences(*index.ends).max())
    # Zero is zero on every scale.
    exponent = max(
        int(np.frexp(widest)[1]) + index.exponent * (widest > 0),
        int(np.frexp(largest)[1]) - 1000 + index.exponent * (largest > 0),
    )
    if exponent == index.exponent:
        return index
    return replace(index, rows=_scaled(index.rows, exponent - index.exponent), exponent=exponent, ends=None)


def row_measure(index: TrainingIndex, points: Rows, table: Floats | None) -> Measure:
    """Return the function that measures single pairs, to the bits of the tiles that :func:`tile_filler` makes.

    Parameters
    ----------
    index : TrainingIndex
        Not of precomputed distances.
    points : ndarray or csr_array
    table : ndarray of shape (N, d) or None
        The laid-out training rows, row by row, so that a single row is in one place; None for sparse rows.
    """
    laid_out = laid_out_points(index, points)
    if table is None:
        fill = kernels.sparse_cosine if index.metric == "cosine" else kernels.sparse_tile

        def merge(p: int, rows: npt.NDArray[np.int64], out: Floats) -> None:
            train = index.rows[rows]
            fill(
                train.data, train.indices, train.indptr, laid_out.data, laid_out.indices, laid_out.indptr[p : p + 2],
                out[None, :],
            )  # fmt: skip

        return merge
    laid_out = np.ascontiguousarray(laid_out)
    to_rows = SINGLE_ROWS[index.metric]

    def subtract(p: int, rows: npt.NDArray[np.int64], out: Floats) -> None:
        to_rows(table, laid_out[p], rows, out)

    return subtract


def without_rows(fill: Filler, excluded: npt.NDArray[np.int64]) -> Filler:
    """Put one training row of each point (-1 for none) behind all others, however near it is."""
    return partial(_fill_and_exclude, fill, excluded)


def _fill_and_exclude(fill: Filler, excluded: npt.NDArray[np.int64], here: slice, rows: slice, tile: Floats) -> None:
    fill(here, rows, tile)
    places = excluded[here] - rows.start
    points = np.flatnonzero((excluded[here] >= 0) & (places >= 0) & (places < tile.shape[1]))
    tile[points, places[points]] = np.finfo(np.float64).max


def without_row(measure: Measure, excluded: npt.NDArray[np.int64]) -> Measure:
    """As :func:`without_rows`, for single pairs."""

    def measure_and_exclude(p: int, rows: npt.NDArray[np.int64], out: Floats) -> None:
        measure(p, rows, out)
        out[rows == excluded[p]] = np.finfo(np.float64).max

    return measure_and_exclude


def original_rows(index: TrainingIndex) -> Floats | None:
    """Return the training rows as they were given; None where they are not kept, or not in memory."""
    if index.rows is None or index.metric == "cosine" or isinstance(index.rows, RowFile):
        return None
    rows = index.rows.toarray() if sparse.issparse(index.rows) else np.ascontiguousarray(index.rows.T)
    return np.asarray(np.ldexp(rows, index.exponent))


def _largest(rows: Rows) -> float:
    """Largest absolute feature, without a copy of the rows."""
    stored = rows.data if sparse.issparse(rows) else rows
    return max(float(stored.max()), -float(stored.min())) if stored.size else 0.0


def _farthest(low: Floats, high: Floats) -> float:
    """Largest absolute feature, from the ends of all features."""
    return float(max(high.max(), -low.min()))


def _exponent(widest: float, largest: float) -> int:
    return max(int(np.frexp(widest)[1]), int(np.frexp(largest)[1]) - 1000)


def _differences(low: Floats, high: Floats) -> Floats:
    """Halves are subtracted, so that the range of the largest floats is still one."""
    with np.errstate(over="ignore"):
        return np.minimum(2 * (high / 2 - low / 2), np.finfo(np.float64).max)


def _check_outliers(rows: Rows, ranges: Floats, widest: float) -> None:
    """Refuse rows so far out that, scaled to them, the differences of all others square to zero."""
    sample = rows if sparse.issparse(rows) else rows[:: max(1, rows.shape[0] // 1024)]
    # The spread is that of the column that has the most; nearly always the one with the widest range is enough.
    if not sparse.issparse(rows) and _deviation(sample[:, [ranges.argmax()]]) >= max(widest / _LARGEST, _TINY):
        return
    if widest / _LARGEST > _spread(sample, ranges):
        column = None if sparse.issparse(rows) else int(ranges.argmax())
        _refuse_outliers(rows.data if column is None else rows[:, column], column, sample, ranges)


def _spread(sample: Rows, ranges: Floats) -> float:
    """Typical deviation of the rows from their middle."""
    if sparse.issparse(sample):
        return float(np.median(np.abs(sample.data))) if sample.data.size else 0.0
    return _deviation(sample) or float(min(ranges[ranges > 0], default=0.0))


def _deviation(sample: Floats) -> float:
    """Median deviation from the median, of the column that has the most."""
    halves = sample / 2
    return float((np.median(np.abs(halves - np.median(halves, axis=0)), axis=0) * 2).max())


def _refuse_outliers(stored: Floats, column: int | None, sample: Rows, ranges: Floats) -> None:
    far = int(np.abs(stored / 2 - np.median(stored) / 2).argmax())
    place = "" if column is None else f" at row {far}, column {column}"
    raise InputError(
        f"'X' has values too far apart for float64 distances: {stored[far]:.3g}{place} against a typical spread of "
        f"{_spread(sample, ranges):.3g}. Remove such rows, or rescale the features."
    )


def check_reach(index: TrainingIndex, points: Rows) -> None:
    """Refuse validation points so far from the training rows that squared distances are no longer finite."""
    if index.ends is None:
        farthest = np.ldexp(_largest(points), -index.exponent)
    else:
        with np.errstate(over="ignore"):
            ends = (points.ends if isinstance(points, RowFile) else None) or (points.min(axis=0), points.max(axis=0))
            low, high = (np.ldexp(end, -index.exponent) for end in ends)
            farthest = max(np.abs(index.ends[1] - low).max(), np.abs(high - index.ends[0]).max())
    if not farthest < _LARGEST:
        raise InputError(
            f"'X_val' has values about {_LARGEST:.0e} times the range of the training values or more; their distances "
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
    columns = np.array(rows.T, order="C")
    _scale(columns, -exponent)
    return columns


def _scale(columns: Floats, exponent: int) -> None:
    """Multiply by a power of two, in place."""
    if abs(exponent) <= _ORDINARY:  # the same, in a fraction of the time
        columns *= 2.0**exponent
    else:
        np.ldexp(columns, exponent, out=columns)


def _short_rows(rows: Rows) -> Rows:
    """Rows times powers of two, which is exact, so that their lengths are from 1/2 to 1; a zero row stays zero."""
    largest = abs(rows).max(axis=1)
    largest = largest.toarray().ravel() if sparse.issparse(rows) else largest
    # Entries near 1 first, so that no square over- or underflows.
    exponents = np.frexp(largest)[1]
    if sparse.issparse(rows):
        owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        near_one = np.ldexp(rows.data, -exponents[owner])
        # bincount adds in the order of storage, which is column order, as below.
        squares = np.bincount(owner, near_one * near_one, minlength=rows.shape[0])
        short = rows.copy()
        short.data = np.ldexp(near_one, -_half_exponents(squares)[owner])
        return short
    near_one = np.ldexp(rows, -exponents[:, None])
    squares = np.zeros(rows.shape[0])
    for column in near_one.T:  # in column order, so that a sparse row has the same exponent
        squares += column * column
    return np.ldexp(near_one, -_half_exponents(squares)[:, None], out=near_one)


def _half_exponents(squares: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Exponents of powers of two that lengths are just below, from squared lengths."""
    exponents: npt.NDArray[np.int64] = np.frexp(squares)[1].astype(np.int64)
    return (exponents + 1) // 2


def true_index(index: TrainingIndex) -> TrainingIndex:
    """Return an index whose tiles tell how far away rows are even when they are all equal."""
    return replace(index, constant=False)


def true_distances(index: TrainingIndex, tile: Floats) -> Floats:
    """Turn a tile into distances in the metric's units, as a new array."""
    if index.metric == "euclidean":
        return np.ldexp(np.sqrt(tile), index.exponent)
    return np.ldexp(tile, _unit_exponent(index))


def scaled_limit(index: TrainingIndex, radius: float) -> float:
    """Return the largest entry of a tile that is within ``radius``; rounded as the tile's own entries are."""
    if index.metric == "euclidean":
        scaled = float(np.ldexp(radius, -index.exponent))
        return scaled * scaled
    return float(np.ldexp(radius, -_unit_exponent(index)))


def _unit_exponent(index: TrainingIndex) -> int:
    return {"sqeuclidean": 2 * index.exponent, "manhattan": index.exponent}.get(index.metric, 0)
