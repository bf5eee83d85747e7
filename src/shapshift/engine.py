"""From distance tiles to sums per validation group: how a task is cut up to fit the memory, and exact values.

The validation set is cut into blocks whose size depends on the data alone. A block is valued by one worker, tile by
tile, and comes back as a partial sum per cell (an entropy level or a validation group). ``running`` adds them up in an
order that the data alone decides. So neither workers nor memory budget can change a single bit of the result.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._clusters import Cluster, active_cluster
from shapshift._parallel import n_workers, take_spare
from shapshift.boundary import nearest_level
from shapshift.checkpoint import Checkpoint, digest_arrays
from shapshift.kernels.rank import add_rows, rank_values
from shapshift.running import Part, Points, Totals, work_off
from shapshift.tasks import Method, Neighborhood, Sums, Task, Worker, bases, block_points

# To those who bring a task, the two modules are one.
__all__ = [
    "EXACT",
    "Method",
    "Neighborhood",
    "Points",
    "Sums",
    "Task",
    "Worker",
    "bases",
    "block_points",
    "cached_batch",
    "open_checkpoint",
    "run_task",
]

Floats = npt.NDArray[np.float64]

# Tiles are no larger than this unless a method asks for it. Exact values gain by smaller ones, which stay in the cache
# between two kernels; but a pass over the training rows should serve some points.
TILE_BYTES, CACHED_BYTES, LEAST_BATCH = 128 * 2**20, 4 * 2**20, 32
# Partial sums of blocks that are under way, or done and waiting for their turn, take no more than this.
WAVE_BYTES = 128 * 2**20
# Blocks of a bundle, at most; and bundles that there must be for any to be made. The larger a bundle, the fewer bytes
# travel in a cluster; the more bundles, the more workers can take part.
BUNDLE_BLOCKS = 64
LEAST_BUNDLES = 1024
# What a thread costs beside its arrays: stack, allocator, counters of the sort.
WORKER_BYTES = 2**21


@dataclass(frozen=True)
class Plan:
    """How a task is cut up, and how much of it is under way at a time to fit the memory budget."""

    block: int
    bundle: int
    by_bundle: bool
    tile: int
    workers: int
    wave: int


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

    def finish(self, task: Task, partial: Floats) -> None:
        """Nothing is held back."""

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


def cached_batch(point_bytes: int) -> int:
    """How many points make a tile that stays in the cache."""
    return max(CACHED_BYTES // point_bytes, LEAST_BATCH)


EXACT = Method(
    make_worker=RankWorker,
    point_bytes=lambda task: 8 * task.n_train,
    worker_bytes=lambda task: 24 * task.n_train,
    batch=lambda task: cached_batch(8 * task.n_train),
)


def run_task(
    task: Task,
    *,
    method: Method = EXACT,
    matrix: bool,
    n_jobs: int | None,
    max_memory: int | None,
    progress: bool | None,
    checkpoint: Checkpoint | None = None,
) -> Sums:
    """Compute the sums of a task, here or on the cluster of a surrounding ``joblib.parallel_config``."""
    cluster = active_cluster(n_jobs)
    plan = make_plan(task, method=method, matrix=matrix, n_jobs=n_jobs, max_memory=max_memory, cluster=cluster)
    job = BlockJob(task, method.make_worker, method.own_cells, plan.block, plan.bundle, plan.tile, matrix)
    totals, points = work_off(
        job,
        workers=plan.workers,
        wave=plan.wave,
        cluster=cluster,
        unit=plan.bundle if plan.by_bundle else 1,
        checkpoint=checkpoint,
        progress=progress,
    )
    n_levels, n_shared = task.levels.size, task.levels.size + task.n_groups
    return Sums(
        levels=totals.sums[:n_levels],
        level_counts=totals.counts,
        groups=totals.sums[n_levels:n_shared],
        bounds=totals.sums[n_shared:],
        entropy=points.entropy,
        matrix=None if points.values is None else points.values.T,
        neighborhood=Neighborhood(points.nearest, points.reference_ranks if task.reference.size else None),
    )


def open_checkpoint(
    folder: Any, training: str, points: Any, excluded: Any, task: Task, parameters: dict[str, str]
) -> Checkpoint:
    """Return the checkpoint of a run.

    Parameters
    ----------
    folder : path-like
    training : str
        Fingerprint of the training rows.
    points : ndarray or csr_array
        Validation points.
    excluded : ndarray or None
        The training row that each point does not see.
    task : Task
    parameters : dict
        What else the result depends on.
    """
    if not isinstance(folder, str | os.PathLike):
        raise TypeError(f"The 'checkpoint' parameter must be None or the path of a folder. Got {folder!r} instead.")
    run = {
        "training_rows": training,
        "validation_points": digest_arrays(points),
        "validation_labels": digest_arrays(task.targets),
        "excluded_rows": "none" if excluded is None else digest_arrays(excluded),
        "groups": digest_arrays(task.groups) if task.n_groups else "none",
        "nearest_rows": str(task.n_nearest),
        "reference_rows": digest_arrays(task.reference) if task.reference.size else "none",
    }
    return Checkpoint(folder, {**run, **parameters})


@dataclass(frozen=True)
class BlockJob:
    """A task, cut into blocks; :class:`shapshift.running.Job` says what its methods do.

    Attributes
    ----------
    task : Task
    make_worker : callable
    own_cells : int
        See :class:`Method`.
    block, bundle, tile : int
        Points of a block, blocks of a bundle, and points of a batch within a block.
    matrix : bool
    spare, used : list
        Workers and arrays of partial sums, handed on from block to block: large arrays that come and go leave holes
        behind.
    """

    task: Task
    make_worker: Callable[[Task, int, int], Worker]
    own_cells: int
    block: int
    bundle: int
    tile: int
    matrix: bool
    spare: list[Worker] = field(default_factory=list, init=False)
    used: list[Floats] = field(default_factory=list, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockJob, (self.task, self.make_worker, self.own_cells, self.block, self.bundle, self.tile, self.matrix)

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.task.n_val // self.block)

    @property
    def save_every(self) -> int:
        """Progress can be written down after every block."""
        return 1

    def span(self, blocks: range) -> slice:
        """Say which validation points consecutive blocks have."""
        return slice(min(blocks.start * self.block, self.task.n_val), min(blocks.stop * self.block, self.task.n_val))

    def points(self, size: int) -> Points:
        """Room for what is kept of so many points."""
        return self.task.points(size, matrix=self.matrix)

    def totals(self) -> Totals:
        """Room for sums."""
        return self._totals(self.n_blocks, self.bundle)

    def _totals(self, n_blocks: int, bundle: int) -> Totals:
        n_levels = self.task.levels.size
        shape = (n_levels + self.task.n_groups + self.own_cells, self.task.n_train)
        return Totals(shape, n_levels, n_blocks, bundle)

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> Part:
        """Value the points of a block."""
        task, span = self.task, self.span(range(block, block + 1))
        n_levels = task.levels.size
        names = np.unique(task.groups[span]) if task.n_groups else np.empty(0, dtype=np.int64)
        rows = np.full(span.stop - span.start, -1)
        if task.n_groups:
            rows = n_levels + np.searchsorted(names, task.groups[span])
        partial = take_spare(self.used)
        if partial is None:
            partial = np.empty((_cells(task, self.own_cells, self.block), task.n_train))
        n_cells = n_levels + names.size + self.own_cells
        partial[:n_cells] = 0.0
        worker = take_spare(self.spare) or self.make_worker(task, self.tile, self.block)
        for lo in range(0, rows.size, self.tile):
            here = slice(lo, min(lo + self.tile, rows.size))
            batch = slice(span.start + lo, span.start + here.stop)
            worker.value(task, batch, rows[here], points[here], partial[:n_cells])
            advance(here.stop - lo)
        worker.finish(task, partial[:n_cells])
        self.spare.append(worker)
        counts = np.bincount(nearest_level(points.entropy, task.levels), minlength=n_levels)
        level_cells = np.where(counts > 0, np.arange(n_levels), -1)
        own_cells = n_levels + task.n_groups + np.arange(self.own_cells)
        return Part(np.concatenate([level_cells, n_levels + names, own_cells]), counts, partial)

    def hand_in(self, blocks: range) -> Part:
        """Value consecutive blocks and add them up; more than one are a bundle."""
        span = self.span(blocks)
        points, totals = self.points(span.stop - span.start), self._totals(len(blocks), 1)
        for block in blocks:
            here = self.span(range(block, block + 1))
            part = self.value(block, points[slice(here.start - span.start, here.stop - span.start)], lambda steps: None)
            totals.add(part)
            self.take_back(part)
        return totals.part(points)

    def take_back(self, part: Part) -> None:
        """Use an array of partial sums again."""
        self.used.append(part.sums)


def bundle_blocks(n_blocks: int) -> int:
    """How many blocks make a bundle: a matter of the data alone. With few blocks there are no bundles."""
    return min(max(n_blocks // LEAST_BUNDLES, 1), BUNDLE_BLOCKS)


def _cells(task: Task, own_cells: int, points: int) -> int:
    return task.levels.size + min(task.n_groups, points) + own_cells


def make_plan(
    task: Task,
    *,
    method: Method = EXACT,
    matrix: bool,
    n_jobs: int | None,
    max_memory: int | None,
    cluster: Cluster | None = None,
) -> Plan:
    """Choose batch size and number of workers for a memory budget; on a cluster it holds for every worker alike.

    Raises
    ------
    ValueError
        If even one worker with batches of one point needs more than ``max_memory``.
    """
    n, m = task.n_train, task.n_val
    block = block_points(task)
    n_blocks = -(-m // block)
    bundle = bundle_blocks(n_blocks)
    row = 8 * n
    all_cells = task.levels.size + task.n_groups + method.own_cells
    # The levels twice: those that occur are picked out at the end. Until then the open bundle has its sums.
    fixed = row * (all_cells + max(task.levels.size, all_cells if bundle > 1 else 0) + 1 + (m if matrix else 0))
    fixed += 8 * m * (4 + task.n_nearest) + 8 * task.reference.size
    per_worker = method.worker_bytes(task) + WORKER_BYTES
    per_point = method.point_bytes(task)
    per_block = row * _cells(task, method.own_cells, block)  # partial sums
    workers = min(n_workers(n_jobs) if cluster is None else cluster.workers, n_blocks)
    by_bundle = cluster is not None and n_blocks // bundle >= 2 * workers
    if cluster is not None:
        # A worker adds up what it hands in, while what it handed in before is on its way.
        handed_in = row * _cells(task, method.own_cells, block * bundle if by_bundle else block)
        per_worker += 2 * handed_in
        per_block = max(per_block, handed_in)
    tile = min(max(TILE_BYTES // per_point, method.tile), block, method.batch(task))
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
        here = workers if cluster is None else 1  # workers that share the budget
        here = min(here, free // (per_worker + per_block + per_point))
        tile = min(tile, (free // here - per_worker - per_block) // per_point)
        wave = min(wave, (free - here * (per_worker + tile * per_point)) // per_block)
        workers = here if cluster is None else workers
    # Cluster: they wait where they were made.
    wave = max(wave // workers, 1) * workers if cluster is None else max(wave, 2 * workers)
    return Plan(block, bundle, by_bundle, int(tile), int(workers), int(wave))
