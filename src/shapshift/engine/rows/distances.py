"""Training rows, and the distances of validation points to them, one tile at a time.

Only the order of distances matters here, and which of them are equal. So Euclidean distances stay squared, and features
are scaled by a power of two, which is exact and avoids overflow and underflow of squares.

Training rows are dense, sparse, in a file, or absent if distances are given. Each kind has a class, which also lists
unsupported uses of such rows; :func:`kind_of` selects the class.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.checks.inputs import in_float64
from shapshift.engine.rows.file import CHUNK_BYTES, RowFile, column_digests, rewritten
from shapshift.exceptions import InputError
from shapshift.kernels import distance as kernels
from shapshift.kernels import nearest as some_rows
from shapshift.kernels.panels import ROWS, STRIP, for_kernels, pack, panels_of, unpack

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]
Rows = Any  # dense array, RowFile, or scipy csr_array; scipy ships no types
#: Fills a tile with the distances of a slice of the validation points (its rows) to a slice of the training rows.
Filler = Callable[[slice, slice, Floats], None]
#: Fills in the distances of one validation point to some training rows.
Measure = Callable[[int, Indices, Floats], None]

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
# Distance of a row that a neighbour graph does not store: behind all stored rows, before a row that a point ignores.
NOT_STORED = float(np.nextafter(np.finfo(np.float64).max, 0.0))
# Number of rows used to find the column with the most different entries.
SAMPLE_ROWS = 256


@dataclass(frozen=True)
class TrainingIndex:
    """Training rows, laid out for the distance kernels: dense and in memory. Subclasses override what differs.

    Attributes
    ----------
    metric : str
    n_rows : int
    rows : ndarray of panels (k, 4, d, 8), csr_array or RowFile of shape (N, d), or None
        Panels hold the rows in the type they were given in, see :mod:`shapshift.kernels.panels`.
    exponent : int
        Features were multiplied by ``2**-exponent``; 0 for types other than float64, whose squares need no scaling.
    constant : bool
        Whether all training rows are equal, so that every validation point is equally far from all of them.
    ends : pair of ndarray or None
        Smallest and largest scaled value of each feature; None for sparse rows and if nothing is scaled.
    in_file : bool
        Whether rows are read from a file on demand.
    unserved : dict of str
        Unsupported uses of such rows, with the words for the error.
    """

    metric: str
    n_rows: int
    rows: Rows
    exponent: int = 0
    constant: bool = False
    ends: tuple[Floats, Floats] | None = None
    in_file: ClassVar[bool] = False
    unserved: ClassVar[dict[str, str]] = {}

    @classmethod
    def of(cls, rows: Rows, metric: str, scratch: str | None) -> "TrainingIndex":
        """Lay out checked rows, (N, d), of one of :data:`shapshift.kernels.panels.DTYPES`."""
        if metric == "cosine":
            return cls(metric, rows.shape[0], _pack_short_rows(rows))
        low, high = (end.astype(np.float64) for end in (rows.min(axis=0), rows.max(axis=0)))
        sample = rows[:: max(1, rows.shape[0] // 1024)].astype(np.float64)
        exponent, constant = _fit_scale(low, high, sample, lambda column: rows[:, column].astype(np.float64))
        panels = _pack(rows, rows.dtype)
        if rows.dtype == np.float64:
            _scale(panels, -exponent)
        else:
            exponent = 0
        # The ends are stored, because every validation set is checked against them.
        return cls(metric, rows.shape[0], panels, exponent, constant, _scaled_ends((low, high), exponent))

    def check_serves(self, use: str) -> None:
        """Refuse an unsupported use of such rows."""
        if use in self.unserved:
            raise InputError(self.unserved[use])

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.rows.shape[2])

    @property
    def holds_short_rows(self) -> bool:
        """Whether rows are in memory that float32 numbers hold without error, and their squared distances count."""
        by_squares = type(self) is TrainingIndex and TILES[self.metric] is kernels.squared_euclidean
        return by_squares and self.rows.dtype != np.float64 and self.ends is not None and not self.constant

    def filler(self, points: Rows) -> Filler:
        """Return the function that fills tiles for ``points``, already checked by :func:`check_reach`."""
        return _fill_with_zeros if self.constant else partial(self._fill, points)

    def _fill(self, points: Rows, here: slice, rows: slice, tile: Floats) -> None:
        # Scaled tile by tile: a scaled copy of all points would exceed the memory budget.
        scaled = np.ascontiguousarray(self.lay_out(points[here]))
        wide = kernels.wide_panel(self.rows, scaled.shape[0])
        TILES[self.metric](for_kernels(self.rows), rows.start, scaled, wide, tile)

    def _taken(self, chosen: Indices) -> npt.NDArray[Any]:
        within = chosen % ROWS
        return np.asarray(self.rows[chosen // ROWS, within // STRIP, :, within % STRIP])

    def _column(self, j: int) -> npt.NDArray[Any]:
        column: npt.NDArray[Any] = self.rows[:, :, j].reshape(-1)[: self.n_rows]
        return column

    def sample_filler(self, chosen: Indices, points: Rows) -> Filler:
        """Return the function that fills tiles of distances to some rows."""
        return tile_filler(self.take(chosen), points)

    def lay_out(self, points: Rows) -> Rows:
        """Bring rows or points, (n, d), of any type to the scale of the laid-out training rows, in float64."""
        points = in_float64(points)
        return _short_rows(points) if self.metric == "cosine" else _scaled(points, -self.exponent)

    def like_rows(self, points: Rows) -> Rows:
        """Return checked points in the form of the training rows: dense or sparse."""
        return points.toarray() if sparse.issparse(points) else points

    def take(self, chosen: Indices) -> "TrainingIndex":
        """Return some of the rows."""
        return replace(self, n_rows=chosen.size, rows=pack(self._taken(chosen)))

    def joined(self, more: Rows) -> "TrainingIndex":
        """Return these rows and more, (n, d), on the scale of these."""
        rows = np.vstack([self.table(), self.lay_out(more)])
        return replace(self, n_rows=rows.shape[0], rows=pack(rows))

    def table(self) -> Rows:
        """Return the laid-out rows as (N, d), in which each single row is contiguous."""
        return unpack(self.rows, slice(0, self.n_rows)).astype(np.float64, copy=False)

    def unscaled(self) -> Rows:
        """Return the rows, (N, d), on their original scale."""
        return _scaled(self.table(), self.exponent)

    def as_vectors(self, laid_out: Rows) -> Rows:
        """Return laid-out rows or points, (n, d), as vectors whose distances order them: for angles, of length 1."""
        if self.metric != "cosine":
            return laid_out
        length = np.sqrt(np.square(laid_out).sum(axis=1))
        return laid_out / np.where(length == 0, 1.0, length)[:, None]

    def measure(self, points: Rows, table: Rows) -> Measure:
        """Return the function that measures single pairs, to the bits of the tiles; ``table`` as in :meth:`table`."""
        laid_out, to_rows = np.ascontiguousarray(self.lay_out(points)), SINGLE_ROWS[self.metric]
        return lambda p, rows, out: to_rows(table, laid_out[p], rows, out)

    def in_float64(self) -> "TrainingIndex":
        """Return the same rows, laid out as if given as float64."""
        if self.rows.dtype == np.float64:
            return self
        rows, exponent = self.rows.astype(np.float64), self._content_exponent
        _scale(rows, -exponent)
        ends = None if self.ends is None else _scaled_ends(self.ends, exponent)
        return replace(self, rows=rows, exponent=exponent, ends=ends)

    @property
    def float64_exponent(self) -> int:
        """The exponent that the rows would have if given as float64."""
        return self.exponent + (0 if self.in_file else self._content_exponent)

    @property
    def _content_exponent(self) -> int:
        """Reduction of the exponents of the laid-out rows if they had been given as float64."""
        return 0 if self.ends is None or self.rows.dtype == np.float64 else _exponent_of(self.ends)

    def pieces(self) -> Iterable[tuple[slice, Floats]]:
        """Return the rows, (n, d), in pieces, laid out as if given as float64."""
        step = max(1, CHUNK_BYTES // (8 * self.width))
        for lo in range(0, self.n_rows, step):
            here = slice(lo, min(lo + step, self.n_rows))
            yield here, _scaled(unpack(self.rows, here).astype(np.float64, copy=False), -self._content_exponent)

    def content_hash(self) -> Any:
        """Hash each row: the sum of mixed entries, zeros left out, so that sparse and dense rows agree."""
        keys = np.zeros(self.n_rows, dtype=np.uint64)
        for here, rows in self.pieces():
            keys[here] = row_hashes(rows)
        return keys

    def digests(self) -> Iterable[Any]:
        """Return what identifies the rows for a fingerprint, equal for rows of any type, in memory or in a file."""
        return column_digests(self.width, (rows for _, rows in self.pieces()))

    def may_repeat(self, most: float) -> bool:
        """Whether there may be at most ``most`` different rows; False if rows are not compared."""
        if self.width == 0:
            return most >= 0
        sample = np.sort(self._taken(np.arange(0, self.n_rows, max(1, self.n_rows // SAMPLE_ROWS))), axis=0)
        column = int(np.count_nonzero(sample[1:] != sample[:-1], axis=0).argmax())
        return int(np.unique(self._column(column)).size) <= most

    def differ(self, order: Indices) -> npt.NDArray[np.bool_]:
        """Whether each row, in this order, differs from the one before it."""
        found = np.zeros(order.size - 1, dtype=np.bool_)
        for j in range(self.width):
            column = self._column(j)
            found |= column[order[1:]] != column[order[:-1]]
        return found

    def with_ends(self) -> "TrainingIndex":
        """Return the same rows with the smallest and largest value of each feature, if distances depend on them."""
        if self.metric == "cosine":
            return self
        columns = [self._column(j) for j in range(self.width)]
        low, high = (np.array([end(column) for column in columns], dtype=np.float64) for end in (np.min, np.max))
        return replace(self, ends=(low, high))


class GivenDistances(TrainingIndex):
    """No rows: distances come with the validation points, as a matrix or as a sparse graph of the nearest rows."""

    unserved: ClassVar[dict[str, str]] = {"store": "must not have metric='precomputed': new rows could not be measured"}

    def _fill(self, points: Rows, here: slice, rows: slice, tile: Floats) -> None:
        if sparse.issparse(points):
            part = points[here][:, rows].tocoo()
            tile[:] = NOT_STORED
            tile[part.row, part.col] = part.data + 0.0
            return
        # Adding zero turns -0.0 into 0.0, whose bit pattern the rank kernel relies on.
        np.add(points[here, rows], 0.0, out=tile)

    def sample_filler(self, chosen: Indices, points: Rows) -> Filler:
        """Return the function that fills tiles of distances to some rows."""
        return tile_filler(self, points[:, chosen])

    def content_hash(self) -> None:
        """Return None: there are no rows."""

    def digests(self) -> tuple[()]:
        """Return an empty tuple: there are no rows."""
        return ()

    def may_repeat(self, most: float) -> bool:
        """Return False: there is nothing to compare."""
        return False


class SparseRows(TrainingIndex):
    """Rows in memory, as a csr_array."""

    unserved: ClassVar[dict[str, str]] = {
        "device": "sparse training rows. Pass X.toarray()",
        "search='ann'": "The 'search' parameter must be 'exact' or 'lsh' for sparse training rows. Got 'ann' instead. "
        "Fit dense rows (X.toarray()), or use another search.",
    }

    @classmethod
    def of(cls, rows: Rows, metric: str, scratch: str | None) -> TrainingIndex:
        """Lay out checked rows."""
        if metric == "cosine":
            return cls(metric, rows.shape[0], _short_rows(rows))
        widest = _largest(rows)  # nearly every column holds a zero
        typical = float(np.median(np.abs(rows.data))) if rows.data.size else 0.0
        if widest / _LARGEST > typical:
            _refuse_outliers(rows.data, None, typical)
        exponent = _exponent(widest, widest)
        return cls(metric, rows.shape[0], _scaled(rows, -exponent), exponent, widest == 0)

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.rows.shape[1])

    def filler(self, points: Rows) -> Filler:
        """Return the function that fills tiles for ``points``, already checked by :func:`check_reach`."""
        return _fill_with_zeros if self.constant else partial(self._fill, self.lay_out(points))

    def _fill(self, points: Rows, here: slice, rows: slice, tile: Floats) -> None:
        ends = self.rows.indptr[rows.start : rows.stop + 1], points.indptr[here.start : here.stop + 1]
        self._merge(self.rows, ends[0], points, ends[1], tile)

    def with_ends(self) -> TrainingIndex:
        """Return the same rows: sparse ones have no ends."""
        return self

    def _merge(self, train: Rows, train_ends: Indices, points: Rows, point_ends: Indices, tile: Floats) -> None:
        merge = kernels.sparse_cosine if self.metric == "cosine" else kernels.sparse_tile
        merge(train.data, train.indices, train_ends, points.data, points.indices, point_ends, tile)

    def like_rows(self, points: Rows) -> Rows:
        """Return checked points as a csr_array."""
        if isinstance(points, RowFile):
            raise InputError(
                "'X_val' is too large to load, which is not supported with sparse training rows. Pass the "
                "points in several calls, or dense training rows."
            )
        return points if sparse.issparse(points) else sparse.csr_array(points)

    def take(self, chosen: Indices) -> TrainingIndex:
        """Return some of the rows."""
        return replace(self, n_rows=chosen.size, rows=self.rows[chosen])

    def joined(self, more: Rows) -> TrainingIndex:
        """Return these rows and more, on the scale of these."""
        rows = sparse.vstack([self.rows, self.lay_out(more)], format="csr")
        return replace(self, n_rows=rows.shape[0], rows=rows)

    def table(self) -> Rows:
        """Return the laid-out rows, (N, d)."""
        return self.rows

    def as_vectors(self, laid_out: Rows) -> Rows:
        """Return laid-out rows or points, (n, d), as vectors whose distances order them: for angles, of length 1."""
        if self.metric != "cosine":
            return laid_out
        unit = laid_out.copy()
        unit.data /= np.repeat(np.sqrt((laid_out * laid_out).sum(axis=1)), np.diff(laid_out.indptr))
        return unit

    def measure(self, points: Rows, table: Rows) -> Measure:
        """Return the function that measures single pairs, to the bits of the tiles; ``table`` as in :meth:`table`."""
        laid_out = self.lay_out(points)

        def merge(p: int, rows: Indices, out: Floats) -> None:
            train = table[rows]
            self._merge(train, train.indptr, laid_out, laid_out.indptr[p : p + 2], out[None, :])

        return merge

    def content_hash(self) -> Any:
        """Hash each row, as for dense rows."""
        rows = self.rows
        sums = np.concatenate(([np.uint64(0)], np.cumsum(_mix(rows.data, rows.indices), dtype=np.uint64)))
        return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]], dtype=np.uint64)

    def digests(self) -> Iterable[Any]:
        """Return what identifies the rows: entries, their columns, and where each row begins."""
        return (np.ascontiguousarray(array).data for array in (self.rows.data, self.rows.indices, self.rows.indptr))

    def may_repeat(self, most: float) -> bool:
        """Return True: nothing is known beforehand."""
        return True

    def differ(self, order: Indices) -> npt.NDArray[np.bool_]:
        """Whether each row, in this order, differs from the one before it."""
        sorted_rows = self.rows[order]
        return np.asarray((sorted_rows[1:] != sorted_rows[:-1]).sum(axis=1) > 0).ravel()


class FileRows(TrainingIndex):
    """Rows in a file."""

    in_file: ClassVar[bool] = True
    unserved: ClassVar[dict[str, str]] = {
        "device": "rows that stay in a file. Load the rows",
        "store": "must hold its training rows in memory; these stay in a file",
        "matrix": "The 'matrix' parameter must be False for method='certified' on training rows that stay in a file. "
        "Ask for exact values, or load the rows.",
    } | {
        f"search={search!r}": "The 'search' parameter must be 'exact' for training rows that stay in a file. Got "
        f"{search!r} instead. Load the rows to build an index."
        for search in ("ann", "lsh")
    }

    @classmethod
    def of(cls, rows: Rows, metric: str, scratch: str | None) -> TrainingIndex:
        """Lay out rows whose ends are known."""
        n = rows.shape[0]
        if metric == "cosine":
            return cls(metric, n, rewritten(rows, _short_rows, scratch))
        exponent, constant = _fit_scale(
            rows.ends[0],
            rows.ends[1],
            rows.take(np.arange(0, n, max(1, n // 1024))),
            lambda column: np.concatenate([rows[lo:hi][:, column] for lo, hi in rows.chunks()]),
        )
        ends = _scaled_ends(rows.ends, exponent)
        return cls(metric, n, rows.scaled(exponent, rows.ends), exponent, constant, ends)

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.rows.shape[1])

    def load(self, lo: int, hi: int, out: Floats | None = None) -> TrainingIndex:
        """Load the rows lo..hi-1, into ``out`` if that is given."""
        return self._loaded(hi - lo, self.rows.panels(lo, hi, out))

    def _loaded(self, n_rows: int, panels: Floats) -> TrainingIndex:
        return TrainingIndex(self.metric, n_rows, panels, self.exponent, self.constant, self.ends)

    def _fill(self, points: Rows, here: slice, rows: slice, tile: Floats) -> None:
        # Read in chunks of the file. A tile of several chunks is filled through another array, because the kernels need
        # a contiguous one.
        scaled = np.ascontiguousarray(self.lay_out(points[here]))
        step = max(1, CHUNK_BYTES // (8 * max(tile.shape[0], self.width)))
        for lo in range(rows.start, rows.stop, step):
            hi = min(lo + step, rows.stop)
            whole = hi - lo == tile.shape[1]
            piece = tile if whole else np.empty((tile.shape[0], hi - lo))
            TILES[self.metric](self.rows.panels(lo, hi), 0, scaled, None, piece)
            if not whole:
                tile[:, lo - rows.start : hi - rows.start] = piece

    def take(self, chosen: Indices) -> TrainingIndex:
        """Load some of the rows."""
        return self._loaded(chosen.size, pack(_scaled(self.rows.take(chosen), -self.exponent)))

    def pieces(self) -> Iterable[tuple[slice, Floats]]:
        """Return the laid-out rows, (n, d), some at a time."""
        return ((slice(lo, hi), _scaled(self.rows[lo:hi], -self.exponent)) for lo, hi in self.rows.chunks())

    def may_repeat(self, most: float) -> bool:
        """Return False: rows in a file are not compared."""
        return False


def kind_of(rows: Rows) -> type[TrainingIndex]:
    """Return the class for rows that are not yet laid out; None stands for given distances."""
    if rows is None:
        return GivenDistances
    if isinstance(rows, RowFile):
        return FileRows
    return SparseRows if sparse.issparse(rows) else TrainingIndex


def index_rows(rows: Rows, metric: str, scratch: str | None = None) -> TrainingIndex:
    """Lay out checked training rows for ``metric``; ``scratch`` is the folder for rows in a file."""
    return kind_of(rows).of(rows, metric, scratch)


@dataclass(frozen=True)
class Tiles:
    """A :data:`Filler` that can be sent to another process, where it is rebuilt from its inputs."""

    index: TrainingIndex
    points: Rows
    _fill: Filler = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_reach(self.index, self.points)
        object.__setattr__(self, "_fill", self.index.filler(self.points))

    def __call__(self, here: slice, rows: slice, tile: Floats) -> None:
        """Fill a tile."""
        self._fill(here, rows, tile)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tiles, (self.index, self.points)


def tile_filler(index: TrainingIndex, points: Rows) -> Filler:
    """Return the function that computes tiles for ``points`` (for "precomputed", the distances themselves)."""
    return Tiles(index, points)


def distances_to(fill: Filler, start: int, reference: Indices) -> Floats:
    """Distances of the points from ``start`` on to training rows of their own, (points, rows) as ``reference`` is."""
    asked, (n_points, n_asked) = np.empty(reference.shape), reference.shape
    if n_points > 1 and (reference == reference[0]).all():  # the same rows for all: a column at a time
        column = np.empty((n_points, 1))
        for r, row in enumerate(reference[0].tolist()):
            fill(slice(start, start + n_points), slice(row, row + 1), column)
            asked[:, r] = column[:, 0]
        return asked
    one = np.empty((1, 1))
    for p, r in np.ndindex(n_points, n_asked):
        row = int(reference[p, r])
        fill(slice(start + p, start + p + 1), slice(row, row + 1), one)
        asked[p, r] = one[0, 0]
    return asked


def _fill_with_zeros(here: slice, rows: slice, tile: Floats) -> None:
    tile[:] = 0.0


def index_again(index: TrainingIndex) -> TrainingIndex:
    """Return the index that :func:`index_rows` would make of the same rows, whatever their present scale."""
    if index.metric == "cosine":
        return index
    largest = _largest(index.rows) if index.ends is None else _farthest(*index.ends)
    widest = largest if index.ends is None else float(_differences(*index.ends).max())
    # Zero is the same on every scale.
    exponent = max(
        int(np.frexp(widest)[1]) + index.exponent * (widest > 0),
        int(np.frexp(largest)[1]) - 1000 + index.exponent * (largest > 0),
    )
    if exponent == index.exponent:
        return index
    return replace(index, rows=_scaled(index.rows, index.exponent - exponent), exponent=exponent, ends=None)


def without_rows(fill: Filler, excluded: Indices) -> Filler:
    """Put one training row of each point (-1 for none) behind all others, at any distance."""
    return partial(_fill_and_exclude, fill, excluded)


def _fill_and_exclude(fill: Filler, excluded: Indices, here: slice, rows: slice, tile: Floats) -> None:
    fill(here, rows, tile)
    places = excluded[here] - rows.start
    points = np.flatnonzero((excluded[here] >= 0) & (places >= 0) & (places < tile.shape[1]))
    tile[points, places[points]] = np.finfo(np.float64).max


def without_row(measure: Measure, excluded: Indices) -> Measure:
    """As :func:`without_rows`, for single pairs."""

    def measure_and_exclude(p: int, rows: Indices, out: Floats) -> None:
        measure(p, rows, out)
        out[rows == excluded[p]] = np.finfo(np.float64).max

    return measure_and_exclude


def row_hashes(rows: npt.NDArray[Any]) -> Hashes:
    """Hash each of some dense rows of any type by content."""
    keys = np.zeros(rows.shape[0], dtype=np.uint64)
    for j in range(rows.shape[1]):
        keys += _mix(rows[:, j].astype(np.float64, copy=False), np.uint64(j))
    return keys


def _mix(entries: Floats, columns: npt.NDArray[np.integer] | np.uint64) -> Hashes:
    with np.errstate(over="ignore"):
        bits = (entries + 0.0).view(np.uint64) + np.asarray(columns, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return np.where(entries == 0.0, np.uint64(0), bits ^ (bits >> np.uint64(31)))


def _std(column: Floats) -> float:
    largest = max(column.max(), -column.min())
    if 2.0**-400 < largest < 2.0**500:
        return float(column.std())
    exponent = np.frexp(largest)[1]  # squares of the largest and smallest floats are none
    return float(np.ldexp(np.ldexp(column, -exponent).std(), exponent))


def feature_std(rows: Rows) -> Floats | None:
    """Compute the standard deviation of each feature of rows that are not laid out; None for sparse rows."""
    if sparse.issparse(rows):
        return None
    if isinstance(rows, RowFile):
        return rows.feature_std()
    eights = (rows[:, lo : lo + 8].T.astype(np.float64, order="C") for lo in range(0, rows.shape[1], 8))
    return np.array([_std(column) for columns in eights for column in columns])


def original_rows(index: TrainingIndex) -> Floats | None:
    """Return the training rows as given; None if they are not kept, or not in memory."""
    if index.metric in ("cosine", "precomputed") or index.in_file:
        return None
    rows = index.unscaled()
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def _largest(rows: Rows) -> float:
    """Largest absolute feature, without a copy of the rows."""
    stored = rows.data if sparse.issparse(rows) else rows
    return max(float(stored.max()), -float(stored.min())) if stored.size else 0.0


def _farthest(low: Floats, high: Floats) -> float:
    """Largest absolute feature, from the ends of all features."""
    return float(max(high.max(), -low.min()))


def _exponent(widest: float, largest: float) -> int:
    return max(int(np.frexp(widest)[1]), int(np.frexp(largest)[1]) - 1000)


def _exponent_of(ends: tuple[Floats, Floats]) -> int:
    """Exponent that scales rows into the ordinary range of floats, from the ends of all features."""
    return _exponent(float(_differences(*ends).max()), _farthest(*ends))


def _scaled_ends(ends: tuple[Floats, Floats], exponent: int) -> tuple[Floats, Floats]:
    return np.ldexp(ends[0], -exponent), np.ldexp(ends[1], -exponent)


def _differences(low: Floats, high: Floats) -> Floats:
    """Halved differences, so that the range of the largest floats is finite."""
    with np.errstate(over="ignore"):
        return np.minimum(2 * (high / 2 - low / 2), np.finfo(np.float64).max)


def _fit_scale(low: Floats, high: Floats, sample: Floats, column: Callable[[int], Floats]) -> tuple[int, bool]:
    """Choose the scale of dense rows; refuse some so far out that the differences of all others square to zero.

    Parameters
    ----------
    low, high : ndarray
        Ends of each feature.
    sample : ndarray of shape (n, d)
        Some rows.
    column : callable
        Returns a column.

    Returns
    -------
    exponent : int
    constant : bool
        Whether all rows are equal.
    """
    # Differences are what gets squared: a huge but constant column must not push the others into underflow. The scaled
    # features themselves only have to stay finite.
    ranges = _differences(low, high)
    at = int(ranges.argmax())
    widest, least = float(ranges[at]), ranges[at] / _LARGEST
    # The spread is that of the column that has the most; nearly always the one with the widest range is enough.
    if not _deviation(sample[:, [at]]) >= max(least, _TINY):
        spread = _deviation(sample) or float(min(ranges[ranges > 0], default=0.0))
        if least > spread:
            _refuse_outliers(column(at), at, spread)
    return _exponent_of((low, high)), widest == 0


def _deviation(sample: Floats) -> float:
    """Median deviation from the median, of the column that has the most."""
    halves = sample / 2
    return float((np.median(np.abs(halves - np.median(halves, axis=0)), axis=0) * 2).max())


def _refuse_outliers(stored: Floats, column: int | None, spread: float) -> None:
    far = int(np.abs(stored / 2 - np.median(stored) / 2).argmax())
    place = "" if column is None else f" at row {far}, column {column}"
    raise InputError(
        f"'X' has values too far apart for float64 distances: {stored[far]:.3g}{place} against a typical spread of "
        f"{spread:.3g}. Remove such rows, or rescale the features."
    )


def check_reach(index: TrainingIndex, points: Rows) -> None:
    """Refuse validation points so far from the training rows that squared distances are no longer finite."""
    if index.constant or index.metric in ("cosine", "precomputed"):
        return
    if index.ends is None:
        farthest = np.ldexp(_largest(points), -index.exponent)
    else:
        with np.errstate(over="ignore"):
            ends = getattr(points, "ends", None) or (points.min(axis=0), points.max(axis=0))
            low, high = (np.ldexp(np.asarray(end, dtype=np.float64), -index.exponent) for end in ends)
            farthest = max(np.abs(index.ends[1] - low).max(), np.abs(high - index.ends[0]).max())
    if not farthest < _LARGEST:
        raise InputError(
            f"'X_val' has values about {_LARGEST:.0e} times the range of the training values or more; their distances "
            "overflow. Check the units of 'X_val', or rescale both sets."
        )


def _scaled(rows: Rows, exponent: int) -> Rows:
    """Return dense or sparse rows times a power of two."""
    with np.errstate(over="ignore"):  # the caller checks for it
        if not sparse.issparse(rows):
            return np.ldexp(rows, exponent)
        scaled = rows.copy()
        scaled.data = np.ldexp(rows.data, exponent)
        return scaled


def _scale(columns: Floats, exponent: int) -> None:
    """Multiply by a power of two, in place."""
    if abs(exponent) <= _ORDINARY:  # the same, in a fraction of the time
        columns *= 2.0**exponent
    else:
        np.ldexp(columns, exponent, out=columns)


def _short_rows(rows: Rows) -> Rows:
    """Rows times powers of two, which is exact, so that their lengths are from 1/2 to 1; a zero row stays zero."""
    rows = rows if sparse.issparse(rows) else rows.astype(np.float64, copy=False)
    largest = abs(rows).max(axis=1)
    # Entries near 1 first, so that no square over- or underflows.
    if sparse.issparse(rows):
        row_of = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        near_one = np.ldexp(rows.data, -np.frexp(largest.toarray().ravel())[1][row_of])
        # bincount adds in the order of storage, which is column order, as below.
        squares = np.bincount(row_of, near_one * near_one, minlength=rows.shape[0])
        short = rows.copy()
        short.data = np.ldexp(near_one, -_half_exponents(squares)[row_of])
        return short
    near_one = np.ldexp(rows, -np.frexp(largest)[1][:, None])
    squares = np.zeros(rows.shape[0])
    for column in near_one.T:  # in column order, so that a sparse row has the same exponent
        squares += column * column
    return np.ldexp(near_one, -_half_exponents(squares)[:, None], out=near_one)


def _pack_short_rows(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return panels of :func:`_short_rows`: of float32 numbers, unless rows are float64 or something is lost by it."""

    def in_few_bytes(some: npt.NDArray[Any]) -> npt.NDArray[Any]:
        short = _short_rows(some)
        few: npt.NDArray[Any] = short.astype(np.float32)
        if (few != short).any():
            raise _PrecisionLostError
        return few

    if rows.dtype != np.float64:
        with suppress(_PrecisionLostError):
            return _pack(rows, np.float32, in_few_bytes)
    return _pack(rows, np.float64, _short_rows)


class _PrecisionLostError(Exception):
    """float32 does not hold the numbers."""


def _pack(
    rows: npt.NDArray[Any], dtype: npt.DTypeLike, change: Callable[[npt.NDArray[Any]], npt.NDArray[Any]] | None = None
) -> npt.NDArray[Any]:
    """Return panels of rows, or of what ``change`` makes of them, without a second copy of all of them."""
    if change is None and rows.flags.c_contiguous:
        return pack(rows)
    n, step = rows.shape[0], ROWS * max(1, CHUNK_BYTES // (8 * ROWS * rows.shape[1]))
    panels = np.empty((panels_of(n), ROWS // STRIP, rows.shape[1], STRIP), dtype=dtype)
    for lo in range(0, n, step):
        here = rows[lo : lo + step]
        pack(here if change is None else change(here), panels[lo // ROWS : (lo + step) // ROWS])
    return panels


def _half_exponents(squares: npt.NDArray[Any]) -> Indices:
    """Exponents of powers of two that lengths are just below, from squared lengths."""
    exponents: Indices = np.frexp(squares)[1].astype(np.int64)
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
