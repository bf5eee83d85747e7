"""Duplicates: distances and sorting are done once for training rows with equal features.

Rows with equal features form a place. They are at the same distance from every point, so they need one distance and one
position in the sort. The rows of a place with the same label form a unit. They have the same value if ties are
averaged, and need one sum. The result has a value for every row again.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.engine.exact import TileWorker
from shapshift.engine.rows.distances import Filler, TrainingIndex, tile_filler
from shapshift.engine.runner import Costs, Runner, cached_batch
from shapshift.engine.tasks import ClassTask, Points, Sums
from shapshift.kernels.duplicates import Layout, place_values
from shapshift.kernels.rank import RankScratch

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# Largest number of places per row for which collapsing pays.
PAYS = 0.9


@dataclass(frozen=True)
class Duplicates:
    """Training rows with equal features, and those of them with the same label.

    Attributes
    ----------
    index : TrainingIndex
        One row of each place.
    layout : Layout
    place_of, unit_of : ndarray of shape (n_train,)
        Place and unit of each row.
    """

    index: TrainingIndex
    layout: Layout
    place_of: Indices
    unit_of: Indices


def find_duplicates(index: TrainingIndex, codes: Codes) -> Duplicates | None:
    """Find training rows with equal features.

    Returns
    -------
    Duplicates or None
        None if there are too few of them to save time, for precomputed distances and for rows in a file.

    Examples
    --------
    >>> from shapshift.engine.rows.distances import index_rows
    >>> index = index_rows(np.array([[2.0], [5.0], [2.0], [2.0]]), "euclidean")
    >>> places = find_duplicates(index, np.array([0, 1, 0, 1], dtype=np.int32))
    >>> places.index.n_rows, places.layout.codes.size  # rows 0, 2 and 3 are one place, and two units
    (2, 3)
    """
    n = index.n_rows
    if not index.may_repeat(PAYS * n):
        return None
    # Different rows may share a hash. Equal rows that are missed cost time but do not change values.
    order, new_place, _ = sort_equal(codes, index)
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
    return Duplicates(index.take(order[new_place]), layout, place_of, unit_of)


def sort_equal(codes: Codes, *indexes: TrainingIndex) -> tuple[Indices, npt.NDArray[np.bool_], Any]:
    """Sort rows so that rows with equal features are adjacent.

    Parameters
    ----------
    codes : ndarray of shape (n,)
        Order of equal rows.
    *indexes : TrainingIndex
        The columns of the rows, in one part or several.

    Returns
    -------
    order, new, hashes : ndarray of shape (n,)
        Positions of the rows; which of them, in that order, differ from the previous one; and hashes of their content.
    """
    keys = sum(np.uint64(2 * part + 1) * index.content_hash() for part, index in enumerate(indexes))
    order = np.lexsort((codes, keys))  # stable
    new = np.ones(codes.size, dtype=np.bool_)
    new[1:] = keys[order[1:]] != keys[order[:-1]]
    for index in indexes:
        new[1:] |= index.differ(order)
    return order, new, keys


def number_equal(*indexes: TrainingIndex) -> tuple[Indices, Indices, Any]:
    """Find rows with equal features, and number them by first appearance.

    Parameters
    ----------
    *indexes : TrainingIndex
        The columns of the rows, in one part or several.

    Returns
    -------
    place_of : ndarray of shape (n,)
        The same number for equal rows.
    first, hashes : ndarray of shape (n_places,)
        Position of the first row of each place, and a hash of its content.

    Examples
    --------
    >>> from shapshift.engine.rows.distances import index_rows
    >>> number_equal(index_rows(np.array([[2.0], [5.0], [2.0], [0.0]]), "euclidean"))[0]
    array([0, 1, 0, 2])
    """
    n = indexes[0].n_rows
    order, new, hashes = sort_equal(np.zeros(n, dtype=np.int32), *indexes)
    firsts = order[new]  # the sort is stable
    place_of = np.empty(n, dtype=np.int64)
    place_of[order] = np.argsort(np.argsort(firsts))[np.cumsum(new) - 1]
    first = np.sort(firsts)
    return place_of, first, hashes[first]


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
    block_pairs = None

    @property
    def n_places(self) -> int:
        """Number of different rows."""
        return self.layout.units.size - 1

    def costs(self) -> Costs:
        """Memory that a worker needs."""
        point = 8 * (self.n_places + self.task.n_train)
        return Costs(point, 28 * self.n_places, cached_batch(point))

    def worker(self, batch: int) -> "DuplicatesWorker":
        """Make a worker."""
        return DuplicatesWorker(self, batch)


class DuplicatesWorker(TileWorker):
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


def collapsed_sums(task: ClassTask, places: Duplicates, points: Any, runner: Runner) -> Sums:
    """Compute the sums of a task with duplicates collapsed.

    Parameters
    ----------
    task : ClassTask
        With ties averaged, no row excluded.
    places : Duplicates
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
        sampled=places.unit_of[task.sampled],
    )
    sums = runner.sums(Collapsed(by_unit, tile_filler(places.index, points), layout))
    rows, found = places.unit_of, sums.points
    if task.matrix:
        found = replace(found, values=found.values[:, rows])
    names = ["levels", "groups", "squares", "group_squares"]
    names += [] if task.weights is None else ["products", "group_products"]
    by_row = {name: getattr(sums, name)[..., rows] for name in names}
    return replace(sums, points=found, **by_row)
