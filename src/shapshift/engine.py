"""From distance tiles to sums per validation group: blocks of work, memory, threads, progress.

The validation set is cut into blocks whose size depends on the data alone. A block is valued by one worker, tile by
tile, and comes back as a partial sum per cell (an entropy level or a validation group). Partial sums are added in block
order. So neither the number of workers nor the memory budget can change a single bit of the result.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt

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
BLOCK_POINTS = 8
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
    """What the engine returns: sums over validation points, per entropy level and per group."""

    levels: Floats
    level_counts: npt.NDArray[np.int64]
    groups: Floats
    entropy: Floats
    matrix: Floats | None
    neighborhood: Neighborhood


@dataclass(frozen=True)
class _Points:
    """What is kept of each single validation point; workers write disjoint slices of it."""

    entropy: Floats
    nearest: npt.NDArray[np.int64]
    reference_ranks: Floats
    values: Floats | None

    def __getitem__(self, here: slice) -> "_Points":
        values = None if self.values is None else self.values[here]
        return _Points(self.entropy[here], self.nearest[here], self.reference_ranks[here], values)


@dataclass(frozen=True)
class Plan:
    """How a task is cut up to fit the memory budget."""

    block: int
    tile: int
    workers: int
    wave: int


def run_task(task: Task, *, matrix: bool, n_jobs: int | None, max_memory: int | None, progress: bool | None) -> Sums:
    """Compute the sums of a task."""
    plan = make_plan(task, matrix=matrix, n_jobs=n_jobs, max_memory=max_memory)
    n_levels = task.levels.size
    sums = np.zeros((n_levels + task.n_groups, task.n_train))
    points = _Points(
        entropy=np.empty(task.n_val),
        nearest=np.empty((task.n_val, task.n_nearest), dtype=np.int64),
        reference_ranks=np.empty(task.reference.shape),
        values=np.empty((task.n_val, task.n_train)) if matrix else None,
    )
    blocks = [slice(start, min(start + plan.block, task.n_val)) for start in range(0, task.n_val, plan.block)]
    counts = np.zeros(n_levels, dtype=np.int64)
    spare: list[_Buffers] = []
    used: list[Floats] = []  # partial sums that have been added up, to be filled again
    with (
        # Workers write into arrays of this process, whatever backend a surrounding context prefers.
        joblib.Parallel(n_jobs=plan.workers, require="sharedmem") as parallel,
        progress_bar("Valuing", task.n_val, progress) as advance,
    ):
        # In waves, so that finished blocks cannot pile up behind a slow one.
        for first in range(0, len(blocks), plan.wave):
            wave = blocks[first : first + plan.wave]
            results = parallel(
                joblib.delayed(_value_block)(task, block, plan, points[block], spare, used, advance) for block in wave
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
        groups=sums[n_levels:],
        entropy=points.entropy,
        matrix=None if points.values is None else points.values.T,
        neighborhood=Neighborhood(points.nearest, points.reference_ranks if task.reference.size else None),
    )


class _Buffers:
    """Scratch space of one worker, handed on from block to block."""

    def __init__(self, task: Task, tile_rows: int) -> None:
        self.tile = np.empty((tile_rows, task.n_train))
        self.work = np.empty((2, task.n_train), dtype=np.uint64)
        self.keys = np.empty(task.n_train)
        self.counts = np.zeros(task.n_classes)


def _value_block(
    task: Task,
    block: slice,
    plan: Plan,
    points: _Points,
    spare: list[_Buffers],
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
    n_levels, n_points = task.levels.size, block.stop - block.start
    groups, targets, reference = task.groups[block], task.targets[block], task.reference[block]
    group_cells = np.unique(groups) if task.n_groups else np.empty(0, dtype=np.int64)
    # Handed on from block to block, like the buffers: large arrays that come and go leave holes behind.
    partial = used.pop() if used else np.empty((n_levels + min(task.n_groups, plan.block), task.n_train))
    partial[: n_levels + group_cells.size] = 0.0
    buffers = spare.pop() if spare else _Buffers(task, plan.tile)
    bases = _bases(task, targets)
    for lo in range(0, n_points, plan.tile):
        here = slice(lo, min(lo + plan.tile, n_points))
        values = buffers.tile[: here.stop - lo]
        kept = points[here]
        task.fill(block.start + lo, block.start + here.stop, values)
        rank_values(  # from here on the tile holds values in place of distances
            values, task.codes, targets[here], task.table.c, bases[here], task.average_ties, task.depth,
            reference[here], buffers.work, buffers.keys, buffers.counts, kept.entropy, kept.nearest,
            kept.reference_ranks,
        )  # fmt: skip
        add_rows(values, nearest_level(kept.entropy, task.levels), partial)
        if task.n_groups:
            add_rows(values, n_levels + np.searchsorted(group_cells, groups[here]), partial)
        if kept.values is not None:
            kept.values[:] = values
        advance(here.stop - lo)
    spare.append(buffers)
    counts = np.bincount(nearest_level(points.entropy, task.levels), minlength=n_levels)
    level_cells = np.where(counts > 0, np.arange(n_levels), -1)
    return np.concatenate([level_cells, n_levels + group_cells]), counts, partial


def _bases(task: Task, targets: Codes) -> Floats:
    """beta(M) of each point, M the number of training rows that carry its label."""
    sizes = np.append(np.bincount(task.codes, minlength=task.n_classes), 0)  # the last entry serves unseen labels
    matches = sizes[targets]
    return np.asarray(task.table.per_match * matches - task.table.empty / task.n_classes, dtype=np.float64)


def make_plan(task: Task, *, matrix: bool, n_jobs: int | None, max_memory: int | None) -> Plan:
    """Choose tile size and number of workers for a memory budget.

    Raises
    ------
    ValueError
        If even one worker with one-row tiles needs more than ``max_memory``.
    """
    n, m = task.n_train, task.n_val
    block = min(max(BLOCK_PAIRS // n, BLOCK_POINTS), m)
    n_blocks = -(-m // block)
    row = 8 * n
    n_levels = task.levels.size
    # The levels twice: those that occur are picked out at the end.
    fixed = row * (2 * n_levels + task.n_groups + 1 + (m if matrix else 0)) + 8 * m * (4 + task.n_nearest)
    fixed += 8 * task.reference.size
    per_worker = 3 * row + WORKER_BYTES  # sort buffers
    per_block = row * (n_levels + min(task.n_groups, block))  # partial sums
    workers = min(joblib.effective_n_jobs(n_jobs), n_blocks)
    tile = min(max(TILE_BYTES // row, 1), block)
    wave = WAVE_BYTES // per_block
    if max_memory is not None:
        # A sixteenth is left to the allocator, which keeps freed pieces that it cannot use again.
        least = -(-16 * (fixed + per_worker + per_block + row) // 15)
        if max_memory < least:
            raise ValueError(
                f"The 'max_memory' parameter must be at least {np.ceil(least / 1e5) / 10:.1f}MB for {n} training rows, "
                f"{m} validation points, {task.n_groups} groups and matrix={matrix}. Got {max_memory / 1e6:.4g}MB "
                "instead. Raise it, or value fewer groups at a time."
            )
        # Workers first, then larger tiles, then longer waves.
        free = max_memory * 15 // 16 - fixed
        workers = min(workers, free // (per_worker + per_block + row))
        tile = min(tile, (free // workers - per_worker - per_block) // row)
        wave = min(wave, (free - workers * (per_worker + tile * row)) // per_block)
    # Whole rounds, so that no worker waits for another's extra block.
    wave = max(wave // workers, 1) * workers
    return Plan(block=block, tile=int(tile), workers=int(workers), wave=int(wave))


@contextmanager
def worker_pool(n_jobs: int | None) -> Iterator[tuple[int, Callable[[Callable[..., Any], Iterable[Any]], list[Any]]]]:
    """Yield the number of workers, and what maps a pure function over arguments in whatever backend joblib is set to.

    Results come back in the order of the arguments.
    """
    with joblib.Parallel(n_jobs=n_jobs) as parallel:

        def run(function: Callable[..., Any], arguments: Iterable[Any]) -> list[Any]:
            return list(parallel(joblib.delayed(function)(argument) for argument in arguments))

        yield joblib.effective_n_jobs(n_jobs), run
