"""Exact values: the rows of each point are ordered by distance, and every rank has its coefficient."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.engine.boundary import nearest_level
from shapshift.engine.rows.file import READING_BYTES, spilled
from shapshift.engine.runner import Costs, MemoryBudgetError, Runner, cached_batch, plan_blocks
from shapshift.engine.tasks import ClassTask, Points, Task
from shapshift.kernels.near import look_around
from shapshift.kernels.rank import RankScratch, add_rows, add_weighted_rows, rank_values

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Points of a tile of rows in a file, if memory allows: enough that reading the rows is not most of the work.
FILE_TILE = 8


class TileWorker:
    """Fills a tile with distances, turns it into values, and adds these up. Subclasses compute the values."""

    def __init__(self, task: Task) -> None:
        self.task = task

    def values(self, batch: slice, points: Points) -> Floats:
        """Return the values of a batch, valid until the next call, and write the results of its points."""
        raise NotImplementedError

    def value(self, batch: slice, groups: Indices, points: Points, partial: Floats) -> None:
        """Add the values of a batch to ``partial``."""
        task, values = self.task, self.values(batch, points)
        levels = nearest_level(points.entropy, task.edges)
        kinds = [(levels, np.full_like(levels, task.levels.size)), (groups, groups + 1)]
        for cells, squares in kinds if task.n_groups else kinds[:1]:
            if task.weights is None:
                add_rows(values, cells, squares, partial)
            else:
                add_weighted_rows(values, task.weights[batch], cells, squares, partial)
        self.keep(values, points)

    def keep(self, values: Floats, points: Points) -> None:
        """Store the values on single points that the task requests."""
        np.take(values, self.task.kept, axis=1, out=points.values, mode="clip")


class RankWorker(TileWorker):
    """Exact values by ranks.

    Parameters
    ----------
    task : ClassTask
    batch : int
        Points of a tile.
    allocate : callable, default=np.empty
        Allocates arrays, given a shape and a dtype.
    """

    task: ClassTask

    def __init__(self, task: ClassTask, batch: int, allocate: Callable[..., Any] = np.empty) -> None:
        super().__init__(task)
        self.tile = allocate((batch, task.n_train), np.float64)
        work, keys = allocate((2, task.n_train), np.uint64), allocate((task.n_train,), np.float64)
        self.scratch = RankScratch(work, keys, np.zeros(task.n_classes))

    def values(self, batch: slice, points: Points) -> Floats:
        """Return the values of a batch, valid until the next call."""
        task = self.task
        values: Floats = self.tile[: batch.stop - batch.start]
        task.fill(batch, slice(0, task.n_train), values)
        # From here on the tile holds values instead of distances.
        rank_values(values, task.codes, task.batch(batch), task.rule, self.scratch, points.findings)
        return values


@dataclass(frozen=True)
class Exact:
    """Exact values by ranks.

    Attributes
    ----------
    task : ClassTask
    in_file : bool
        Whether the training rows are read from a file.
    spill : bool
        Whether keys are stored in scratch files, because the keys of one point do not fit in memory.
    scratch : str or None
        Folder of these files.
    """

    task: ClassTask
    in_file: bool = False
    spill: bool = False
    scratch: str | None = None
    block_pairs = None

    def costs(self) -> Costs:
        """Memory of a worker."""
        if self.spill:
            return Costs(1, READING_BYTES, FILE_TILE)
        row, reading = 8 * self.task.n_train, READING_BYTES if self.in_file else 0
        return Costs(row, 3 * row + reading, cached_batch(row), FILE_TILE if self.in_file else 1)

    def worker(self, batch: int) -> TileWorker:
        """Make a worker."""
        return RankWorker(self.task, batch, self.allocate)

    def allocate(self, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
        """Allocate an array, in memory or in a scratch file."""
        return spilled(self.scratch, shape, dtype) if self.spill else np.empty(shape, dtype)


def exact_from_file(method: Exact, scratch: str | None, runner: Runner) -> Exact:
    """Return exact values of rows in a file: keys in memory if the budget allows, else in a scratch file."""
    method = replace(method, in_file=True, scratch=scratch)
    try:
        plan_blocks(method, runner)
    except MemoryBudgetError:
        return replace(method, spill=True)
    return method


@dataclass(frozen=True)
class Tiled:
    """Exact values of models that turn a whole tile of distances into values.

    Attributes
    ----------
    task : Task
    entropy : callable
        ``entropy(tile, here, cuts)``: entropy of the points ``here``, from their distances and the ``depth``-th
        smallest of each.
    overwrite : callable
        ``overwrite(tile, here, extra)``: replace the distances of the points ``here`` by values, and write other
        results of the points.
    worker_bytes : int
        Memory that ``overwrite`` needs.
    block_pairs : int
    """

    task: Task
    entropy: Callable[[Floats, slice, Floats], Floats]
    overwrite: Callable[[Floats, slice, Floats], None]
    worker_bytes: int = 0
    block_pairs: int = 2**19

    def costs(self) -> Costs:
        """Memory that a worker needs."""
        row = 8 * self.task.n_train
        return Costs(3 * row, self.worker_bytes, cached_batch(row))

    def worker(self, batch: int) -> "TiledWorker":
        """Make a worker."""
        return TiledWorker(self, batch)


class TiledWorker(TileWorker):
    """A worker of :class:`Tiled`."""

    def __init__(self, method: Tiled, batch: int) -> None:
        super().__init__(method.task)
        self.method = method
        self.tile, self.cuts = np.empty((batch, method.task.n_train)), np.empty(batch)

    def values(self, batch: slice, points: Points) -> Floats:
        """Return the values of a batch, valid until the next call."""
        task, size = self.task, batch.stop - batch.start
        tile, cuts = self.tile[:size], self.cuts[:size]
        task.fill(batch, slice(0, task.n_train), tile)
        look_around(tile, task.depth, task.reference[batch], points.nearest, points.reference_ranks, cuts)
        points.entropy[:] = self.method.entropy(tile, batch, cuts)
        self.method.overwrite(tile, batch, points.extra)
        if task.own is not None:
            tile[np.arange(size), task.own[batch]] = 0.0
        return tile
