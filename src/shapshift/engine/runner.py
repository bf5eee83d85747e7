"""The runner: values blocks of validation points on threads or a cluster, and adds up their sums in a fixed order.

A block is a run of consecutive validation points; a bundle is a run of consecutive blocks. Their sizes depend only on
the data. Sums of blocks are added to those of their bundle, and bundles to the total, in the order of their numbers.
Threads return blocks. Workers of a cluster return whole bundles if there are enough of them. In both cases the same
numbers are added in the same order. So the number and place of workers, the memory budget and restarts do not change a
bit of the result.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from shapshift._progress import progress_bar
from shapshift.engine.boundary import count_levels
from shapshift.engine.checkpoint import Checkpoint, Stage
from shapshift.engine.clusters import Cluster, active_cluster, in_order
from shapshift.engine.parallel import n_workers, stream, take_spare
from shapshift.engine.tasks import Points, Sums, Task
from shapshift.exceptions import InputError

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Approximate number of (training row, validation point) pairs of a block: long enough to hide the cost of submitting
# it, short enough to keep two workers equally busy and a progress bar moving.
BLOCK_PAIRS = 2**20
# Smallest number of points of a block, because a pass over the training rows serves all its points. A small validation
# set is cut into several blocks, so that every worker has one.
LEAST_POINTS, BLOCK_POINTS = 32, 64
# Largest tile unless a method asks for more. Exact values are faster with smaller ones, which stay in the cache between
# two kernels; but a pass over the training rows should serve several points.
TILE_BYTES, CACHED_BYTES, LEAST_BATCH = 128 * 2**20, 4 * 2**20, 32
# Memory bound for results of blocks that are being computed or wait to be added.
WAVE_BYTES = 128 * 2**20
# Largest number of blocks of a bundle, and smallest number of bundles. Larger bundles send fewer bytes in a cluster;
# more bundles let more workers take part.
BUNDLE_BLOCKS = 64
LEAST_BUNDLES = 1024
# Memory of a thread besides its arrays: stack, allocator, counters of the sort.
WORKER_BYTES = 2**21


class MemoryBudgetError(InputError):
    """A memory budget that is too small.

    Parameters
    ----------
    least, given : int
        Bytes.
    what : str
        Purpose of the bytes.
    advice : str
        Alternative to raising the budget.
    """

    def __init__(self, least: int, given: int, what: str, advice: str = "value fewer groups at a time") -> None:
        super().__init__(
            f"The 'max_memory' parameter must be at least {np.ceil(least / 1e5) / 10:.1f}MB for {what}. Got "
            f"{given / 1e6:.4g}MB instead. Raise it, or {advice}."
        )
        self.least = least


@dataclass(frozen=True)
class Memory:
    """Bytes that a run needs.

    Attributes
    ----------
    fixed : int
        Sums and results of all points.
    worker : int
        Per worker.
    point : int
        Per point of a batch.
    block, block_point : int
        Per finished block that is not yet added up, and per point of such a block.
    end : int
        Total when workers are done and sums become values, if that is more.
    """

    fixed: int
    worker: int
    point: int
    block: int = 0
    block_point: int = 0
    end: int = 0


@dataclass(frozen=True)
class Plan:
    """Sizes of the blocks, batches and tasks of a run, and the number of workers.

    Attributes
    ----------
    block, batch : int
        Points of a block, and points that a worker handles together.
    workers : int
    wave : int
        Largest number of blocks in progress or waiting to be added up.
    task_blocks : int
        Blocks valued together: by a task of a cluster, or if threads share the rows of a file.
    """

    block: int
    batch: int
    workers: int
    wave: int
    task_blocks: int = 1


def fit_memory(
    memory: Memory, task: Task, plan: Plan, max_memory: int | None, cluster: Cluster | None, *, cut_blocks: bool = False
) -> Plan:
    """Fit a plan into a memory budget; on a cluster each worker has this budget.

    Parameters
    ----------
    memory : Memory
    task : Task
    plan : Plan
        The plan without a budget; its wave is ignored.
    max_memory : int or None
    cluster : Cluster or None
    cut_blocks : bool
        Whether smaller batches make smaller blocks, of a power of two points: for sums that do not depend on blocks.

    Raises
    ------
    MemoryBudgetError
        If even one worker with batches of one point needs more than ``max_memory``.
    """
    block, batch, workers, task_blocks = plan.block, plan.batch, plan.workers, plan.task_blocks
    wave = WAVE_BYTES // (memory.block + memory.block_point * block)
    if max_memory is not None:
        one = memory.worker + memory.point + memory.block + memory.block_point
        # A sixteenth is left to the allocator, for freed pieces that it cannot reuse.
        least = -(-16 * max(memory.fixed + one, memory.end) // 15)
        if max_memory < least:
            groups, advice = f"{task.n_groups} groups", "value fewer groups at a time"
            if task.clusters is not None:
                groups, advice = (
                    f"{task.n_groups} clusters, one in several groups counted in each",
                    "make fewer clusters",
                )
            what = f"{task.n_train} training rows, {task.n_val} validation points, {groups}"
            raise MemoryBudgetError(least, max_memory, f"{what} and matrix={task.matrix}", advice)
        # Workers first, then larger batches, then longer waves.
        free = max_memory * 15 // 16 - memory.fixed
        here = min(workers if cluster is None else 1, free // one)  # number of workers that share the budget
        batch = min(batch, (free // here - memory.worker - memory.block) // (memory.point + memory.block_point))
        if cut_blocks and batch < block:
            block = batch = 1 << (int(batch).bit_length() - 1)
            task_blocks = 1
        left = free - here * (memory.worker + batch * memory.point)
        wave = min(wave, left // (memory.block + memory.block_point * block))
        workers = here if cluster is None else workers
    # On a cluster, results wait on the worker that made them.
    wave = max(wave // workers, 1) * workers if cluster is None else max(wave, 2 * workers)
    return Plan(int(block), int(batch), int(workers), int(wave), int(max(task_blocks, 1)))


@dataclass(frozen=True)
class BlockSums:
    """Sums of one block, or of a bundle of blocks.

    Attributes
    ----------
    cells : ndarray
        Cell of the total to add each sum to; -1 for none.
    counts : ndarray
        Points per entropy level.
    sums : ndarray
        One sum per cell; further rows are unused.
    n_blocks : int
    points : Points or None
        Results of the points; None if already written to their place.
    """

    cells: Indices
    counts: Indices
    sums: Floats
    n_blocks: int = 1
    points: Points | None = None


class Totals:
    """Sums over blocks, added up in a fixed order.

    Parameters
    ----------
    shape : tuple
        Numbers of cells and training rows.
    n_levels : int
    n_blocks : int
        Number of blocks of the whole run.
    bundle : int
        Number of blocks of a bundle.
    """

    def __init__(self, shape: tuple[int, int], n_levels: int, n_blocks: int, bundle: int) -> None:
        self.n_blocks, self.bundle, self.done = n_blocks, bundle, 0
        self.counts = np.zeros(n_levels, dtype=np.int64)
        self.sums, self.seen = np.zeros(shape), np.zeros(shape[0], dtype=np.bool_)
        # Sums of the incomplete bundle.
        self.open, self.open_seen = np.zeros(shape if bundle > 1 else (0, shape[1])), np.zeros(shape[0], dtype=np.bool_)

    def add(self, part: BlockSums) -> None:
        """Add the sums of the next blocks."""
        self.add_rows(self.done, part)
        self.counts += part.counts
        self.done += part.n_blocks
        if self._ends_bundle(self.done):
            self.open_seen[:] = False

    def add_rows(self, block: int, part: BlockSums, rows: slice = slice(None)) -> None:
        """Add the sums of some training rows for the blocks from ``block`` on; other rows are added separately."""
        if self.bundle == 1 or part.n_blocks > 1:
            _add(part.cells, part.sums, self.sums[:, rows], self.seen)
            return
        _add(part.cells, part.sums, self.open[:, rows], self.open_seen)
        if self._ends_bundle(block + 1):
            cells = np.flatnonzero(self.open_seen)
            _add(cells, (self.open[cell, rows] for cell in cells), self.sums[:, rows], self.seen)
            self.open[cells, rows] = 0.0

    def _ends_bundle(self, blocks: int) -> bool:
        return blocks % self.bundle == 0 or blocks == self.n_blocks

    def part(self, points: Points) -> BlockSums:
        """Return the total as a part of a larger one."""
        cells = np.flatnonzero(self.seen)
        return BlockSums(cells, self.counts, self.sums[cells], self.n_blocks, points)

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to resume; unused cells are left out."""
        arrays = {"done": np.array(self.done), "counts": self.counts}
        for name, sums, seen in (("", self.sums, self.seen), ("open_", self.open, self.open_seen)):
            cells = np.flatnonzero(seen)
            arrays |= {f"{name}cells": cells, f"{name}sums": sums if cells.size == seen.size else sums[cells]}
        return arrays

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Resume from a state."""
        self.done = int(arrays["done"])
        if not 0 <= self.done <= self.n_blocks:
            raise InputError(f"it has {self.done} blocks, but there are {self.n_blocks}")
        self.counts[:] = arrays["counts"]
        for name, sums, seen in (("", self.sums, self.seen), ("open_", self.open, self.open_seen)):
            cells = arrays[f"{name}cells"]
            sums[cells], seen[cells] = arrays[f"{name}sums"], True


def _add(cells: Indices, parts: Any, sums: Floats, seen: npt.NDArray[np.bool_]) -> None:
    for cell, part in zip(cells, parts, strict=False):
        if cell >= 0:
            sums[cell] += part
            seen[cell] = True


class Valued(Protocol):
    """Results of one block or of several."""

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""

    @property
    def points(self) -> Points | None:
        """Results of the points; None if already written to their place."""


class Adding(Protocol):
    """Adds up results in order."""

    done: int

    def add(self, part: Any) -> None:
        """Add the results of the next blocks."""

    def state(self) -> dict[str, npt.NDArray[Any]]:
        """Everything needed to resume."""

    def restore(self, arrays: dict[str, npt.NDArray[Any]]) -> None:
        """Resume from a state."""


S = TypeVar("S", bound=Adding, covariant=True)


class Job(Protocol[S]):
    """A task cut into blocks, which can be sent to workers of a cluster."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def block(self) -> int:
        """Points of a block."""

    @property
    def save_every(self) -> int:
        """Number of blocks between saves of progress; the end is saved too."""

    def totals(self) -> S:
        """Allocate the sums."""

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> Valued:
        """Value on a thread the points of a block, or all of ``points`` if these span more blocks."""

    def value_blocks(self, blocks: range) -> Valued:
        """Value consecutive blocks on a worker of a cluster; also return the results of their points."""

    def reuse(self, part: Any) -> None:
        """Reuse the arrays of a part that was added up."""


def n_blocks(job: Job[Any]) -> int:
    """Count the blocks of a job."""
    return -(-job.task.n_val // job.block)


def span(job: Job[Any], blocks: range) -> slice:
    """Return the validation points of consecutive blocks."""
    last = job.task.n_val
    return slice(min(blocks.start * job.block, last), min(blocks.stop * job.block, last))


def each_block(job: Job[Any], blocks: range, points: Points) -> Iterator[Any]:
    """Value consecutive blocks one after the other; ``points`` are the points of all of them."""
    first = span(job, blocks).start
    for block in blocks:
        here = span(job, range(block, block + 1))
        yield job.value(block, points[slice(here.start - first, here.stop - first)], lambda steps: None)


def value_blocks(job: Job[Any], blocks: range) -> Valued:
    """Value consecutive blocks on a worker of a cluster."""
    return job.value_blocks(blocks)


@dataclass
class Runner:
    """Place and limits of runs; they never change a result.

    Attributes
    ----------
    n_jobs : int or None
    max_memory : int or None
        Bytes.
    progress : bool or None
    checkpoint : Checkpoint or None
    """

    n_jobs: int | None = None
    max_memory: int | None = None
    progress: bool | None = None
    checkpoint: Checkpoint | None = None

    def cluster(self) -> Cluster | None:
        """Return the cluster of the surrounding ``joblib.parallel_config``; None if threads do the work."""
        return active_cluster(self.n_jobs)

    def workers(self, n_tasks: int, cluster: Cluster | None = None) -> int:
        """Return the number of workers, at most one for each task."""
        return min(n_workers(self.n_jobs) if cluster is None else cluster.workers, n_tasks)

    def sums(self, method: "Method") -> Sums:
        """Compute the sums of a method's task, here or on the active cluster."""
        cluster = self.cluster()
        plan = plan_blocks(method, self, cluster)
        totals, points = self.run(BlockJob(method, plan.block, plan.batch), plan, cluster)
        return Sums.of(method.task, totals.sums, totals.counts, points)

    def run(self, job: Job[S], plan: Plan, cluster: Cluster | None) -> tuple[S, Points]:
        """Value all blocks of a job."""
        totals, points = job.totals(), job.task.points(job.task.n_val)
        stage = None if self.checkpoint is None else self.checkpoint.next_stage()
        if stage is not None:
            stage.restore(totals, points)
        with progress_bar("Valuing", job.task.n_val, self.progress) as advance:
            if totals.done:
                advance(span(job, range(totals.done)).stop)
            if cluster is None:
                _on_threads(job, totals, points, plan, stage, advance)
            else:
                _on_cluster(job, totals, points, plan, cluster, stage, advance)
        if stage is not None:
            stage.save(totals, points, span(job, range(totals.done)).stop, last=True)
        return totals, points


def _on_threads(
    job: Job[Any], totals: Adding, points: Points, plan: Plan, stage: Stage | None, advance: Callable[[int], None]
) -> None:
    def value(block: int) -> Any:
        return job.value(block, points[span(job, range(block, block + plan.task_blocks))], advance)

    # Results are added while the next ones are computed. At most ``wave`` blocks are in progress: finished blocks must
    # not pile up behind a slow one.
    blocks: Iterable[int] = range(totals.done, n_blocks(job))
    if plan.task_blocks > 1:  # one worker, which reports how many blocks it has done
        blocks = iter(lambda: totals.done, n_blocks(job))
    with closing(stream(value, blocks, plan.workers, plan.wave)) as parts:
        for part in parts:
            totals.add(part)
            job.reuse(part)
            if stage is not None and totals.done % job.save_every == 0:
                stage.save(totals, points, span(job, range(totals.done)).stop)


def _on_cluster(
    job: Job[Any],
    totals: Adding,
    points: Points,
    plan: Plan,
    cluster: Cluster,
    stage: Stage | None,
    advance: Callable[[int], None],
) -> None:
    for part in in_order(
        cluster, value_blocks, job, _task_ranges(totals.done, n_blocks(job), plan.task_blocks), plan.wave
    ):
        here = span(job, range(totals.done, totals.done + part.n_blocks))
        points.put(here, part.points)
        totals.add(part)
        advance(here.stop - here.start)
        if stage is not None and totals.done % job.save_every == 0:
            stage.save(totals, points, here.stop)


def _task_ranges(done: int, n_blocks: int, task_blocks: int) -> Iterator[range]:
    """Cut the remaining blocks into tasks; an unfinished bundle is completed block by block."""
    while done < n_blocks:
        size = 1 if done % task_blocks else min(task_blocks, n_blocks - done)
        yield range(done, done + size)
        done += size


class Worker(Protocol):
    """Values batches of validation points; its arrays are reused for all blocks of a thread."""

    def value(self, batch: slice, groups: Indices, points: Points, partial: Floats) -> None:
        """Add the values of a batch to ``partial``.

        Parameters
        ----------
        batch : slice
            Validation points.
        groups : ndarray
            Row of ``partial`` for each point's group, followed by the row of its squares; -1 for none. The first rows
            are those of the entropy levels, then the squares of all points. If points have weights, products follow
            squares.
        points : Points
            Results of the batch, to be written.
        partial : ndarray
            Sums of the block.
        """


@dataclass(frozen=True)
class Costs:
    """Memory of a method, and number of points it handles together.

    Attributes
    ----------
    point, worker : int
        Bytes per point of a batch, and further bytes per worker.
    batch : int
        Largest useful batch.
    large : int
        Number of points of a batch if memory allows, regardless of the size of its tile.
    """

    point: int
    worker: int
    batch: int
    large: int = 1


class Method(Protocol):
    """How values are computed from distances: exactly, or with a bound."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def block_pairs(self) -> int | None:
        """Approximate number of (training row, validation point) pairs of a block; None for the default."""

    def costs(self) -> Costs:
        """Memory of a worker."""

    def worker(self, batch: int) -> Worker:
        """Make a worker; ``batch`` is the largest number of points."""


@dataclass(frozen=True)
class BlockJob:
    """A method's task, cut into blocks.

    Attributes
    ----------
    method : Method
    block, batch : int
        Points of a block, and of a batch within a block.
    spare, used : list
        Workers and arrays of partial sums, reused for later blocks: repeated allocation of large arrays would fragment
        the memory.
    """

    method: Method
    block: int
    batch: int
    spare: list[Worker] = field(default_factory=list, init=False)
    used: list[Floats] = field(default_factory=list, init=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockJob, (self.method, self.block, self.batch)

    @property
    def task(self) -> Task:
        """The task."""
        return self.method.task

    @property
    def save_every(self) -> int:
        """Blocks between saves: 1, since progress can be saved after every block."""
        return 1

    def totals(self) -> Totals:
        """Allocate the sums."""
        return make_totals(self.task, n_blocks(self))

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> BlockSums:
        """Value the points of a block."""
        task, here = self.task, span(self, range(block, block + 1))
        names, rows = group_rows(task, here)
        partial = take_spare(self.used)
        if partial is None:
            partial = np.empty((most_cells(task, self.block), task.n_train))
        n_cells = task.group_cell(names.size)
        partial[:n_cells] = 0.0
        worker = take_spare(self.spare) or self.method.worker(self.batch)
        for lo in range(0, rows.size, self.batch):
            some = slice(lo, min(lo + self.batch, rows.size))
            batch = slice(here.start + lo, here.start + some.stop)
            worker.value(batch, rows[some], points[some], partial[:n_cells])
            advance(some.stop - lo)
        self.spare.append(worker)
        counts = count_levels(points.entropy, task.edges)
        return BlockSums(block_cells(task, names, counts > 0), counts, partial)

    def value_blocks(self, blocks: range) -> BlockSums:
        """Value consecutive blocks and add them up; several blocks form a bundle."""
        here = span(self, blocks)
        points = self.task.points(here.stop - here.start)
        totals = make_totals(self.task, len(blocks), bundle=1)
        for part in each_block(self, blocks, points):
            totals.add(part)
            self.reuse(part)
        return totals.part(points)

    def reuse(self, part: BlockSums) -> None:
        """Reuse an array of partial sums for another block."""
        self.used.append(part.sums)


def make_totals(task: Task, blocks: int, *, own: int = 0, bundle: int | None = None) -> Totals:
    """Allocate the sums of a task, and ``own`` more; ``bundle`` defaults to :func:`bundle_blocks` of the blocks."""
    shape = (task.n_cells + own, task.n_train)
    return Totals(shape, task.levels.size, blocks, bundle_blocks(blocks) if bundle is None else bundle)


def group_rows(task: Task, here: slice) -> tuple[Indices, Indices]:
    """Return the groups of some points, and the row of each point's group in the sums of a block; -1 for none."""
    if not task.n_groups:
        return np.empty(0, dtype=np.int64), np.full(here.stop - here.start, -1)
    names, places = np.unique(task.groups[here], return_inverse=True)
    return names, task.group_cell(places)


def block_cells(task: Task, names: Indices, present: Any = True, *, own: int = 0) -> Indices:
    """Return the cell of the total for each sum of a block with groups ``names`` and levels ``present``."""
    n_levels = task.levels.size
    of_groups = np.add.outer(task.group_cell(names), np.arange(1 + task.n_squares)).ravel()
    of_levels = np.where(present, np.arange(n_levels), -1)
    of_squares = n_levels + np.arange(task.n_squares)
    return np.concatenate([of_levels, of_squares, of_groups, task.n_cells + np.arange(own)])


def block_points(task: Task, pairs: int | None = None) -> int:
    """Return the number of points of a block: it depends only on the data, not on collapsed duplicates."""
    points = min(max(task.n_val // 8, LEAST_POINTS), BLOCK_POINTS)
    return min(max((BLOCK_PAIRS if pairs is None else pairs) // task.n_rows, points), task.n_val)


def bundle_blocks(blocks: int) -> int:
    """Return the number of blocks of a bundle: it depends only on the data. Few blocks are not bundled."""
    return min(max(blocks // LEAST_BUNDLES, 1), BUNDLE_BLOCKS)


def most_cells(task: Task, points: int) -> int:
    """Return the largest number of sums of a block with ``points`` points."""
    return int(task.group_cell(min(task.n_groups, points)))


def cached_batch(point_bytes: int) -> int:
    """Return the number of points of a tile that stays in the cache."""
    return max(CACHED_BYTES // point_bytes, LEAST_BATCH)


def plan_blocks(method: Method, runner: Runner, cluster: Cluster | None = None) -> Plan:
    """Choose batch size and number of workers for a method and a memory budget."""
    task, costs = method.task, method.costs()
    m, row = task.n_val, 8 * task.n_train
    block = block_points(task, method.block_pairs)
    blocks = -(-m // block)
    bundle = bundle_blocks(blocks)
    per_point = 4 + task.n_nearest + task.n_extra + task.reference.shape[1] + task.kept.size
    # The incomplete bundle has sums too.
    fixed = row * task.n_cells * (2 if bundle > 1 else 1) + 8 * m * per_point
    per_worker, per_block = costs.worker + WORKER_BYTES, row * most_cells(task, block)
    workers = runner.workers(blocks, cluster)
    by_bundle = cluster is not None and blocks // bundle >= 2 * workers
    if cluster is not None:
        # A worker adds up its next result while the previous one is being sent.
        returned = row * most_cells(task, block * bundle if by_bundle else block)
        per_worker, per_block = per_worker + 2 * returned, max(per_block, returned)
    batch = min(max(TILE_BYTES // costs.point, costs.large, 1), block, costs.batch)
    best = Plan(block, batch, workers, 0, bundle if by_bundle else 1)
    memory = Memory(fixed, per_worker, costs.point, per_block, end=fixed + end_bytes(task))
    return fit_memory(memory, task, best, runner.max_memory, cluster)


def end_bytes(task: Task) -> int:
    """Bytes for turning sums into a valuation, besides the sums."""
    # The levels that occur; values, bounds, variances, errors, degrees of freedom, and three temporary arrays.
    rows = task.levels.size + 8
    if task.clusters is not None:
        rows += 2 * len(task.clusters.group_names) + 1
    # The values of the sampled rows are centred and reordered; those of groups are selected before.
    copies = 3 if task.matrix or task.n_groups else 2
    return 8 * task.n_train * rows + 8 * task.n_val * task.sampled.size * copies
