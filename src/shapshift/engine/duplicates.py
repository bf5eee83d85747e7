"""Duplicates: training rows with equal features are measured and sorted once.

Rows with equal features, a place, are at the same distance from every point: they need one distance and one position in
the sort. Those that also have the same label, a unit, have the same value wherever ties are averaged, and need one sum.
The result has a value for every row again.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.engine.exact import TileWorker
from shapshift.engine.rows.distances import Filler, TrainingIndex, tile_filler
from shapshift.engine.rows.file import RowFile
from shapshift.engine.runner import Costs, Runner, cached_batch
from shapshift.engine.tasks import ClassTask, Points, Sums
from shapshift.kernels.duplicates import Layout, place_values
from shapshift.kernels.rank import RankScratch

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# Places pay when there are at most this many per row.
PAYS = 0.9
# So many rows tell which column has the most different entries.
SAMPLE_ROWS = 256


@dataclass(frozen=True)
class Places:
    """Which training rows have equal features, and which of those the same label.

    Attributes
    ----------
    index : TrainingIndex
        One row of each place.
    layout : Layout
    place_of, unit_of : ndarray of shape (n_train,)
        Of each row.
    """

    index: TrainingIndex
    layout: Layout
    place_of: Indices
    unit_of: Indices


def find_places(index: TrainingIndex, codes: Codes) -> Places | None:
    """Find training rows with equal features.

    Returns
    -------
    Places or None
        None where there are too few of them to gain by, for precomputed distances and for rows in a file.

    Examples
    --------
    >>> from shapshift.engine.rows.distances import index_rows
    >>> index = index_rows(np.array([[2.0], [5.0], [2.0], [2.0]]), "euclidean")
    >>> places = find_places(index, np.array([0, 1, 0, 1], dtype=np.int32))
    >>> places.index.n_rows, places.layout.codes.size  # rows 0, 2 and 3 are one place, and two units
    (2, 3)
    """
    n, rows = index.n_rows, index.rows
    if rows is None or isinstance(rows, RowFile) or (not sparse.issparse(rows) and _distinct_entries(rows) > PAYS * n):
        return None
    keys = content_hash(index)
    order = np.lexsort((codes, keys))  # stable: rows of a unit stay in order
    # Different rows may share a hash. Equal rows that are not recognised as such cost time and nothing else.
    new_place = np.ones(n, dtype=np.bool_)
    new_place[1:] = (keys[order[1:]] != keys[order[:-1]]) | _differ(rows, order)
    if np.count_nonzero(new_place) > PAYS * n:
        return None
    new_unit = new_place.copy()
    new_unit[1:] |= codes[order[1:]] != codes[order[:-1]]
    unit_of, place_of = np.empty((2, n), dtype=np.int64)
    unit_of[order], place_of[order] = np.cumsum(new_unit) - 1, np.cumsum(new_place) - 1
    unit_starts = np.flatnonzero(new_unit)
    layout = Layout(
        units=np.append(np.flatnonzero(new_place[unit_starts]), unit_starts.size),
        codes=codes[order[unit_starts]],
        rows=np.append(unit_starts, n),
        members=order,
    )
    first = order[new_place]
    chosen = rows[first] if sparse.issparse(rows) else np.ascontiguousarray(rows[:, first])
    return Places(replace(index, n_rows=first.size, rows=chosen), layout, place_of, unit_of)


def _distinct_entries(rows: Floats) -> int:
    """How many different entries the column has that probably has the most: there are at least as many places."""
    if rows.shape[0] == 0:
        return 0
    sample = np.sort(rows[:, :: max(1, rows.shape[1] // SAMPLE_ROWS)], axis=1)
    column = int(np.count_nonzero(np.diff(sample, axis=1), axis=1).argmax())
    return int(np.unique(rows[column]).size)


def _differ(rows: Any, order: Indices) -> npt.NDArray[np.bool_]:
    """Whether each row, in this order, differs from the one before it."""
    if sparse.issparse(rows):
        sorted_rows = rows[order]
        return np.asarray((sorted_rows[1:] != sorted_rows[:-1]).sum(axis=1) > 0).ravel()
    found = np.zeros(order.size - 1, dtype=np.bool_)
    for column in rows:
        found |= column[order[1:]] != column[order[:-1]]
    return found


def content_hash(index: TrainingIndex) -> npt.NDArray[np.uint64]:
    """Hash each training row: the sum of mixed entries, zeros left out, so that sparse and dense rows agree."""
    rows = index.rows
    if sparse.issparse(rows):
        sums = np.concatenate(([np.uint64(0)], np.cumsum(_mix(rows.data, rows.indices), dtype=np.uint64)))
        return np.asarray(sums[rows.indptr[1:]] - sums[rows.indptr[:-1]], dtype=np.uint64)
    keys = np.zeros(index.n_rows, dtype=np.uint64)
    for lo, hi in rows.chunks() if isinstance(rows, RowFile) else [(0, index.n_rows)]:
        for j, column in enumerate(rows.columns(lo, hi) if isinstance(rows, RowFile) else rows):
            keys[lo:hi] += _mix(column, np.uint64(j))
    return keys


def _mix(entries: Floats, columns: npt.NDArray[np.integer] | np.uint64) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        bits = (entries + 0.0).view(np.uint64) + np.asarray(columns, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            bits = (bits ^ (bits >> np.uint64(shift))) * np.uint64(factor)
    return np.where(entries == 0.0, np.uint64(0), bits ^ (bits >> np.uint64(31)))


@dataclass(frozen=True)
class Collapsed:
    """Exact values of units, from distances to places.

    Attributes
    ----------
    task : ClassTask
        Of the units.
    fill : callable
        Computes distances to places.
    layout : Layout
    """

    task: ClassTask
    fill: Filler
    layout: Layout
    own_cells = 0
    block_pairs = None

    @property
    def n_places(self) -> int:
        """Number of different rows."""
        return self.layout.units.size - 1

    def costs(self) -> Costs:
        """Memory that a worker needs."""
        point = 8 * (self.n_places + self.task.n_train)
        return Costs(point, 28 * self.n_places, cached_batch(point))

    def worker(self, batch: int, block: int) -> "PlaceWorker":
        """Make a worker."""
        return PlaceWorker(self, batch)


class PlaceWorker(TileWorker):
    """A worker of :class:`Collapsed`."""

    task: ClassTask

    def __init__(self, method: Collapsed, batch: int) -> None:
        super().__init__(method.task)
        self.method = method
        self.tile = np.empty((batch, method.n_places))
        self.unit_values = np.empty((batch, self.task.n_train))
        work, keys = np.empty((2, method.n_places), dtype=np.uint64), np.empty(method.n_places)
        self.scratch = RankScratch(work, keys, np.zeros(self.task.n_classes))

    def values(self, batch: slice, points: Points) -> Floats:
        """Return the values of a batch, valid until the next call."""
        task, size = self.task, batch.stop - batch.start
        tile, values = self.tile[:size], self.unit_values[:size]
        self.method.fill(batch, slice(0, tile.shape[1]), tile)
        place_values(tile, self.method.layout, task.batch(batch), task.rule, self.scratch, points.findings, values)
        return values


def collapsed_sums(task: ClassTask, places: Places, points: Any, runner: Runner) -> Sums:
    """Compute the sums of a task with duplicates collapsed.

    Parameters
    ----------
    task : ClassTask
        With ties averaged, no row excluded.
    places : Places
    points : ndarray or csr_array
        The validation points that ``task.fill`` was made from.
    runner : Runner
    """
    layout = places.layout
    by_unit = replace(
        task,
        n_train=layout.codes.size,
        codes=layout.codes,
        sizes=np.diff(layout.rows),
        reference=places.place_of[task.reference],
    )
    sums = runner.sums(Collapsed(by_unit, tile_filler(places.index, points), layout))
    rows, found = places.unit_of, sums.points
    if found.values is not None:
        found = replace(found, values=found.values[:, rows])
    return replace(sums, levels=sums.levels[:, rows], groups=sums.groups[:, rows], points=found)
