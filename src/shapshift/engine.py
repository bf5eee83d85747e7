"""From distance tiles to sums per validation group: blocks of work, memory, threads, progress.

The validation set is cut into blocks whose size depends on the data alone. A block is valued by one worker, tile by
tile, and comes back as a partial sum per cell (an entropy level or a validation group). Partial sums are added in block
order. So neither the number of workers nor the memory budget can change a single bit of the result.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shapshift._parallel import n_workers, thread_pool
from shapshift._progress import progress_bar
from shapshift.boundary import BOUNDARY_NEIGHBORS, entropy_levels, nearest_level
from shapshift.coefficients import RankTable
from shapshift.distances import Filler
from shapshift.kernels.rank import add_rows, rank_values

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

# About this many (training row, validation point) pairs make a block: long enough to hide the cost of handing it out,
# short enough to keep two workers equally busy and a progress bar moving.
BLOCK_PAIRS = 2**20
# A pass over the training rows serves at least this many points.
BLOCK_POINTS = 32
# Tiles beyond this size bring nothing but memory use.
TILE_BYTES = 64 * 2**20
# Partial sums of finished blocks are added up when they take this much, or at the end. Less often is better: joblib
# looks for the last results of a wave only every hundredth of a second.
WAVE_BYTES = 128 * 2**20
# What a thread costs beside its arrays: stack, allocator, counters of the sort.
WORKER_BYTES = 2**21


@dataclass(frozen=True)
class Task:
    """One valuation, ready to be computed.

    Attributes
    ----------
    fill : callable
        Computes distance tiles.
    codes, targets : ndarray
        Class numbers of training rows and validation points.
    n_classes : int
    table : RankTable
    average_ties : bool
    groups : ndarray of shape (n_val,)
        Group number of each validation point.
    n_groups : int
        0 when there are no groups.
    n_nearest : int
        How many nearest rows of each point to report; 0 for none.
    reference : ndarray of shape (n_val, r)
        Training rows whose ranks to report for each point; r may be 0.
    """

    fill: Filler
    codes: Codes
    targets: Codes
    n_classes: int
    table: RankTable
    average_ties: bool
    groups: npt.NDArray[np.int64]
    n_groups: int
    n_nearest: int
    reference: npt.NDArray[np.int64]

    @property
    def n_train(self) -> int:
        """Number of training rows."""
        return self.codes.size

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return self.targets.size

    @property
    def depth(self) -> int:
        """How many neighbours decide about the boundary."""
        return min(BOUNDARY_NEIGHBORS, self.n_train)

    @cached_property
    def class_sizes(self) -> npt.NDArray[np.int64]:
        """Training rows of each class; the last entry, 0, serves labels that were never seen."""
        return np.append(np.bincount(self.codes, minlength=self.n_classes), 0)

    @cached_property
    def levels(self) -> Floats:
        """Entropies that can occur."""
        return entropy_levels(self.depth, self.n_classes)


@dataclass(frozen=True)
class Neighborhood:
    """Who the nearest training rows of each validation point are.

    Attributes
    ----------
    nearest : ndarray of shape (n_val, k)
        Positions of the nearest training rows, nearest first, ties by row number.
    reference_ranks : ndarray of shape (n_val, r) or None
        Zero-based rank, averaged over ties, of each training row that was asked about.
    """

    nearest: npt.NDArray[np.int64]
    reference_ranks: Floats | None


@dataclass(frozen=True)
class Sums:
    """What the engine returns: sums over validation points, per entropy level and per group.

    ``bounds`` sums what each value can be off; it has no rows when the values are exact.
    """

    levels: Floats
    level_counts: npt.NDArray[np.int64]
    groups: Floats
    bounds: Floats
    entropy: Floats
    matrix: Floats | None
    neighborhood: Neighborhood


@dataclass(frozen=True)
class Points:
    """What is kept of each single validation point; workers write disjoint slices of it."""

    entropy: Floats
    nearest: npt.NDArray[np.int64]
    reference_ranks: Floats
    values: Floats | None

    def __getitem__(self, here: slice) -> "Points":
        values = None if self.values is None else self.values[here]
        return Points(self.entropy[here], self.nearest[here], self.reference_ranks[here], values)


@dataclass(frozen=True)
class Plan:
    """How a task is cut up to fit the memory budget."""

    block: int
    tile: int
    workers: int
    wave: int


class Worker(Protocol):
    """Values one batch of validation points after another; its scratch space is handed on from block to block."""

    def value(self, task: Task, batch: slice, groups: npt.NDArray[np.int64], points: Points, partial: Floats) -> None:
        """Add the values of a batch to ``partial``.

        Parameters
        ----------
        task : Task
        batch : slice
            Which validation points.
        groups : ndarray
            Row of ``partial`` for each point's group; -1 for none. The entropy levels have the first rows.
        points : Points
            Where to write what is kept of each point of the batch.
        partial : ndarray
            Sums of one block; rows beyond those of the levels and of the block's groups are the worker's own.
        """


@dataclass(frozen=True)
class Method:
    """How values come out of distances: exactly, or with a bound.

    Attributes
    ----------
    make_worker : callable
        From a task, the largest batch and the largest block to a worker.
    point_bytes, worker_bytes : callable
        From a task to what a worker needs for each point of a batch, and besides.
    batch : int
        Most points that are worth handling together.
    own_cells : int
        How many sums a worker keeps besides those of levels and groups.
    tile : int
        So many points are handled together wherever memory allows, however large their tile is.
    """

    make_worker: Callable[[Task, int, int], Worker]
    point_bytes: Callable[[Task], int]
    worker_bytes: Callable[[Task], int]
    batch: int
    own_cells: int = 0
    tile: int = 1


class RankWorker:
    """Exact values: fill a tile with distances, turn it into values, add it up."""

    def __init__(self, task: Task, batch: int, block: int) -> None:
        self.tile = np.empty((batch, task.n_train))
        self.work = np.empty((2, task.n_train), dtype=np.uint64)
        self.keys = np.empty(task.n_train)
        self.counts = np.zeros(task.n_classes)

    def value(self, task: Task, batch: slice, groups: npt.NDArray[np.int64], points: Points, partial: Floats) -> None:
        """Add the values of a batch to ``partial``, as :class:`Worker` says."""
        values = self.rank(task, batch, points)
        add_rows(values, nearest_level(points.entropy, task.levels), partial)
        if task.n_groups:
            add_rows(values, groups, partial)
        if points.values is not None:
            points.values[:] = values

    def rank(self, task: Task, batch: slice, points: Points) -> Floats:
        """Return the values of a batch, valid until the next call."""
        targets = task.targets[batch]
        values = self.tile[: targets.size]
        task.fill(batch, slice(0, task.n_train), values)
        rank_values(  # from here on the tile holds values in place of distances
            values, task.codes, targets, task.table.c, bases(task, targets), task.average_ties, task.depth,
            task.reference[batch], self.work, self.keys, self.counts, points.entropy, points.nearest,
            points.reference_ranks,
        )  # fmt: skip
        return values


EXACT = Method(
    make_worker=RankWorker,
    point_bytes=lambda task: 8 * task.n_train,
    worker_bytes=lambda task: 24 * task.n_train,
    batch=2**31,
)


def run_task(
    task: Task,
    *,
    method: Method = EXACT,
    matrix: bool,
    n_jobs: int | None,
    max_memory: int | None,
    progress: bool | None,
) -> Sums:
    """Compute the sums of a task."""
    plan = make_plan(task, method=method, matrix=matrix, n_jobs=n_jobs, max_memory=max_memory)
    n_levels, n_shared = task.levels.size, task.levels.size + task.n_groups
    sums = np.zeros((n_shared + method.own_cells, task.n_train))
    points = Points(
        entropy=np.empty(task.n_val),
        nearest=np.empty((task.n_val, task.n_nearest), dtype=np.int64),
        reference_ranks=np.empty(task.reference.shape),
        values=np.empty((task.n_val, task.n_train)) if matrix else None,
    )
    blocks = [slice(start, min(start + plan.block, task.n_val)) for start in range(0, task.n_val, plan.block)]
    counts = np.zeros(n_levels, dtype=np.int64)
    spare: list[Worker] = []
    used: list[Floats] = []  # partial sums that have been added up, to be filled again
    with (
        thread_pool(plan.workers) as map_in_order,
        progress_bar("Valuing", task.n_val, progress) as advance,
    ):
        # In waves, so that finished blocks cannot pile up behind a slow one.
        for first in range(0, len(blocks), plan.wave):
            wave = blocks[first : first + plan.wave]
            results = map_in_order(
                lambda block: _value_block(task, method, block, plan, points[block], spare, used, advance), wave
            )
            for cells, counted, partial in results:
                counts += counted
                for cell, part in zip(cells, partial, strict=False):
                    if cell >= 0:
                        sums[cell] += part
                used.append(partial)
    return Sums(
        levels=sums[:n_levels],
        level_counts=counts,
        groups=sums[n_levels:n_shared],
        bounds=sums[n_shared:],
        entropy=points.entropy,
        matrix=None if points.values is None else points.values.T,
        neighborhood=Neighborhood(points.nearest, points.reference_ranks if task.reference.size else None),
    )


def _value_block(
    task: Task,
    method: Method,
    block: slice,
    plan: Plan,
    points: Points,
    spare: list[Worker],
    used: list[Floats],
    advance: Callable[[int], None],
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Floats]:
    """Value one block of points.

    Returns
    -------
    cells : ndarray
        Where each partial sum belongs, -1 where nothing was added.
    counts : ndarray
        Points per entropy level.
    partial : ndarray
        One sum per cell; rows beyond the cells mean nothing.
    """
    n_levels = task.levels.size
    names = np.unique(task.groups[block]) if task.n_groups else np.empty(0, dtype=np.int64)
    rows = np.full(block.stop - block.start, -1)
    if task.n_groups:
        rows = n_levels + np.searchsorted(names, task.groups[block])
    # Handed on from block to block, like the workers: large arrays that come and go leave holes behind.
    partial = used.pop() if used else np.empty((_cells(task, method, plan.block), task.n_train))
    n_cells = n_levels + names.size + method.own_cells
    partial[:n_cells] = 0.0
    worker = spare.pop() if spare else method.make_worker(task, plan.tile, plan.block)
    for lo in range(0, rows.size, plan.tile):
        here = slice(lo, min(lo + plan.tile, rows.size))
        batch = slice(block.start + lo, block.start + here.stop)
        worker.value(task, batch, rows[here], points[here], partial[:n_cells])
        advance(here.stop - lo)
    spare.append(worker)
    counts = np.bincount(nearest_level(points.entropy, task.levels), minlength=n_levels)
    level_cells = np.where(counts > 0, np.arange(n_levels), -1)
    own_cells = n_levels + task.n_groups + np.arange(method.own_cells)
    return np.concatenate([level_cells, n_levels + names, own_cells]), counts, partial


def block_points(task: Task) -> int:
    """How many points make a block: a matter of the data alone."""
    return min(max(BLOCK_PAIRS // task.n_train, BLOCK_POINTS), task.n_val)


def _cells(task: Task, method: Method, block: int) -> int:
    return task.levels.size + min(task.n_groups, block) + method.own_cells


def bases(task: Task, targets: Codes) -> Floats:
    """beta(M) of each point, M the number of training rows that carry its label."""
    matches = task.class_sizes[targets]
    return np.asarray(task.table.per_match * matches - task.table.empty / task.n_classes, dtype=np.float64)


def make_plan(task: Task, *, method: Method = EXACT, matrix: bool, n_jobs: int | None, max_memory: int | None) -> Plan:
    """Choose batch size and number of workers for a memory budget.

    Raises
    ------
    ValueError
        If even one worker with batches of one point needs more than ``max_memory``.
    """
    n, m = task.n_train, task.n_val
    block = block_points(task)
    n_blocks = -(-m // block)
    row = 8 * n
    n_levels = task.levels.size
    # The levels twice: those that occur are picked out at the end.
    fixed = row * (2 * n_levels + task.n_groups + method.own_cells + 1 + (m if matrix else 0))
    fixed += 8 * m * (4 + task.n_nearest) + 8 * task.reference.size
    per_worker = method.worker_bytes(task) + WORKER_BYTES
    per_point = method.point_bytes(task)
    per_block = row * _cells(task, method, block)  # partial sums
    workers = min(n_workers(n_jobs), n_blocks)
    tile = min(max(TILE_BYTES // per_point, method.tile), block, method.batch)
    wave = WAVE_BYTES // per_block
    if max_memory is not None:
        # A sixteenth is left to the allocator, which keeps freed pieces that it cannot use again.
        least = -(-16 * (fixed + per_worker + per_block + per_point) // 15)
        if max_memory < least:
            raise ValueError(
                f"The 'max_memory' parameter must be at least {np.ceil(least / 1e5) / 10:.1f}MB for {n} training rows, "
                f"{m} validation points, {task.n_groups} groups and matrix={matrix}. Got {max_memory / 1e6:.4g}MB "
                "instead. Raise it, or value fewer groups at a time."
            )
        # Workers first, then larger tiles, then longer waves.
        free = max_memory * 15 // 16 - fixed
        workers = min(workers, free // (per_worker + per_block + per_point))
        tile = min(tile, (free // workers - per_worker - per_block) // per_point)
        wave = min(wave, (free - workers * (per_worker + tile * per_point)) // per_block)
    # Whole rounds, so that no worker waits for another's extra block.
    wave = max(wave // workers, 1) * workers
    return Plan(block=block, tile=int(tile), workers=int(workers), wave=int(wave))
