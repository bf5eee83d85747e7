"""Certified values of training rows in a file, in two passes over shards of rows.

In the first pass, every shard of the rows gives each validation point its part of the histogram and its nearest
candidates. Together these equal the result for all rows at once, and so do the tables and bounds made from them. In the
second pass every shard adds up its own values. Memory holds only sums, candidates and tables, and the images of the
distances if there is space; otherwise distances are computed again.

On one machine threads share the shards, and each pass covers all points that memory allows. On a cluster a worker makes
both passes for a few blocks of points. The bytes of the result do not depend on how rows and points are cut up.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift.engine.boundary import count_levels, nearest_level
from shapshift.engine.certified import BATCH, STRIP_ROWS, Buckets, Images, Space
from shapshift.engine.exact import RankWorker
from shapshift.engine.parallel import take_spare, thread_pool
from shapshift.engine.rows.distances import FileRows, distances_to, without_rows
from shapshift.engine.rows.file import spilled
from shapshift.engine.runner import (
    WORKER_BYTES,
    BlockSums,
    Memory,
    MemoryBudgetError,
    Plan,
    Runner,
    Totals,
    block_cells,
    block_points,
    bundle_blocks,
    end_bytes,
    group_rows,
    make_totals,
    most_cells,
    n_blocks,
    span,
)
from shapshift.engine.tasks import ClassTask, Points, Sums
from shapshift.kernels.buckets import Cells, Settled, count_images
from shapshift.kernels.images import PIECES, Near
from shapshift.kernels.panels import ROWS, panels_of

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
#: The near rows of one point in one shard, and their distances.
Found = tuple[npt.NDArray[np.int32], Floats]
MapInOrder = Callable[..., list[Any]]

# Rows of a shard: enough to hide the cost of a kernel call, few enough that several shards fit in any memory.
SHARD_ROWS = 2**17
LEAST_SHARD = 2**12
# Memory of a round besides the sums if no budget is given.
ROUND_BYTES = 2**31
# Largest number of validation points of a round.
ROUND_POINTS = 1024
# Number of exactly ordered points whose values are kept in a scratch file at a time.
KEPT_POINTS = 32


@dataclass(frozen=True)
class Layout:
    """Sizes that fit a run over a file into the memory budget.

    Attributes
    ----------
    block : int
        Number of points whose sums are added up before they are added to the others.
    shard : int
        Number of rows processed together.
    round : int
        Number of validation points between two readings of the rows.
    keep : bool
        Whether images are kept from the first pass to the second.
    workers : int
    """

    block: int
    shard: int
    round: int
    keep: bool
    workers: int


def shard_memory(buckets: Buckets, width: int, shard: int, returned: bool) -> tuple[Memory, int]:
    """Bytes of a run, and of its end, when all points are done and the memory of workers and points is free again.

    A worker of a cluster (``returned``) has two more copies of its sums, one to return and one to send.
    """
    task, n, room, words = (
        buckets.task,
        buckets.task.n_train,
        buckets.certificate.room,
        2 * buckets.certificate.rules.buckets,
    )
    block = block_points(task)
    sums = task.n_cells + 1
    bundles = sums if bundle_blocks(-(-task.n_val // block)) > 1 else 0
    # Sums, sums of a bundle of blocks, and the rank table in its two forms.
    fixed = 8 * n * (sums * (3 if returned else 1) + bundles + 6)
    fixed += 8 * task.n_val * (4 + task.n_nearest + task.kept.size) + 8 * task.reference.size
    worker = shard * (16 * width + 2 * BATCH + 16 * (most_cells(task, block) + 1))
    worker += BATCH * (12 * room + 8 * STRIP_ROWS) + WORKER_BYTES
    # Bounds and their checks, while the table still exists; then the valuation made from the sums.
    end = 8 * n * sums + max(8 * n * 10, 8 * task.n_val * task.kept.size + end_bytes(task))
    return Memory(fixed, worker, 3 * 12 * room + 16 * words + 32 * width), end


def plan_shards(buckets: Buckets, width: int, runner: Runner, *, returned: bool) -> Layout:
    """Choose shards, rounds and workers for a memory budget.

    Raises
    ------
    MemoryBudgetError
        If even one worker with the shortest shards and one block of points needs more than ``max_memory``.
    """
    task, max_memory = buckets.task, runner.max_memory
    block, shard, images = block_points(task), min(SHARD_ROWS, task.n_train), 2 * task.n_train
    workers = 1 if returned else runner.workers(-(-task.n_train // shard))
    memory, _ = shard_memory(buckets, width, shard, returned)
    free = ROUND_BYTES
    if max_memory is not None:
        tight, end = shard_memory(buckets, width, min(LEAST_SHARD, shard), returned)
        least = -(-16 * max(tight.fixed + tight.worker + block * tight.point, end) // 15)
        if max_memory < least:
            what = f"{task.n_train} training rows in a file, {task.n_val} validation points and {task.n_groups} groups"
            raise MemoryBudgetError(least, max_memory, what)
        free = max_memory * 15 // 16 - memory.fixed - block * memory.point
        # First try to keep all workers, with shorter shards.
        while shard > LEAST_SHARD and free < workers * memory.worker:
            shard = max(shard // 2, LEAST_SHARD)
            memory, _ = shard_memory(buckets, width, shard, returned)
        workers = max(1, min(workers, free // memory.worker))
        free += block * memory.point - workers * memory.worker
    keep = free >= block * (memory.point + images)
    blocks = min(max(free // (block * (memory.point + keep * images)), 1), max(ROUND_POINTS // block, 1))
    return Layout(block, int(shard), int(blocks * block), bool(keep), int(workers))


class ShardSpace(NamedTuple):
    """Arrays of one worker: the rows of a shard, the images of a batch of points in it, and what a scan needs."""

    rows: Floats
    images: Images
    space: Space


@dataclass
class Round:
    """State of the validation points between the two passes.

    Attributes
    ----------
    here : slice
        Range of the points.
    points : Points
        Their results.
    lines : ndarray
        Their maps from distances to buckets.
    histograms : ndarray
    found : ndarray
        Number of near rows of each point.
    images : dict
        Images of each shard, if kept.
    near : Near
        Near rows of all shards, and their values; computed between the passes.
    settled : Settled
        Tables of the points; computed between the passes.
    """

    here: slice
    points: Points
    lines: Floats
    histograms: npt.NDArray[np.uint32]
    found: Indices
    images: dict[int, Images] = field(default_factory=dict)
    near: Near = field(init=False)
    settled: Settled = field(init=False)

    def place(self, batch: slice) -> slice:
        """Return the positions of some points in the arrays of the round."""
        return slice(batch.start - self.here.start, batch.stop - self.here.start)


@dataclass(eq=False)
class ShardedJob:
    """A certified run over rows in a file, cut into blocks of points and shards of rows.

    Attributes
    ----------
    buckets : Buckets
    index : FileRows
    points : ndarray or RowFile
        Validation points.
    layout : Layout
    excluded : ndarray or None
        Training row that each point ignores.
    scratch : str or None
        Folder of scratch files.
    """

    buckets: Buckets
    index: FileRows
    points: Any
    layout: Layout
    excluded: Indices | None
    scratch: str | None

    def __post_init__(self) -> None:
        n, shard = self.task.n_train, self.layout.shard
        self.shards = [slice(lo, min(lo + shard, n)) for lo in range(0, n, shard)]
        self.spare: list[ShardSpace] = []
        # The current round, and its remaining points.
        self.round: Any = None
        self.stretches: list[slice] = []
        self.exactly: RankWorker | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ShardedJob, (self.buckets, self.index, self.points, self.layout, self.excluded, self.scratch)

    @property
    def task(self) -> ClassTask:
        """The task."""
        return self.buckets.task

    @property
    def block(self) -> int:
        """Points of a block."""
        return self.layout.block

    @property
    def save_every(self) -> int:
        """Blocks between saves: 1, since progress can be saved after every block."""
        return 1

    def totals(self) -> Totals:
        """Allocate the sums. On threads, shards are added to them directly: a round has no sums of its own."""
        self.sums = make_totals(self.task, n_blocks(self), own=1)
        return self.sums

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> BlockSums:
        """Value this block and the following ones of its round that are added up together."""
        part = self._value(block * self.block, points, self.sums)
        advance(int(part.counts.sum()))
        return part

    def value_blocks(self, blocks: range) -> BlockSums:
        """Value consecutive blocks and add them up; several blocks form a bundle."""
        here, own = span(self, blocks), replace(self)  # other threads of a worker may value other blocks
        points = self.task.points(here.stop - here.start)
        totals = make_totals(self.task, len(blocks), own=1, bundle=1)
        while totals.done < len(blocks):
            done = totals.done * self.block
            totals.add(own._value(here.start + done, points[slice(done, done + self.layout.round)], totals))
        return totals.part(points)

    def reuse(self, part: BlockSums) -> None:
        """Do nothing: no array is reused."""

    def _value(self, first: int, points: Points, totals: Totals) -> BlockSums:
        """Value the next stretch of a round, or the first stretch of a round that begins with ``points``.

        When it is returned, its sums are already in ``totals``.
        """
        with thread_pool(self.layout.workers) as map_in_order:
            if not self.stretches:
                self.round = None  # frees its arrays for the next round
                self.round = self._first_pass(slice(first, first + points.entropy.size), points, map_in_order)
                self.stretches = self._stretches(self.round)
            stretch = self.stretches.pop(0)
            self._second_pass(self.round, stretch, totals, map_in_order)
        entropy = self.round.points.entropy[self.round.place(stretch)]
        none, counts = np.empty(0, dtype=np.int64), count_levels(entropy, self.task.edges)
        return BlockSums(none, counts, np.empty((0, self.task.n_train)), -(-entropy.size // self.block))

    def _first_pass(self, here: slice, points: Points, map_in_order: MapInOrder) -> Round:
        size, certificate = here.stop - here.start, self.buckets.certificate
        words = 2 * certificate.rules.buckets
        histograms = np.zeros((size, words), dtype=np.uint32)
        one = Round(here, points, np.empty((size, PIECES, 2)), histograms, np.zeros(size, dtype=np.int64))
        for batch in cut(here, BATCH):
            sample = np.empty((batch.stop - batch.start, certificate.sample_size))
            one.lines[one.place(batch)] = self.buckets.lines(batch, sample)
        points.reference_ranks[:] = -0.5  # the row ties with itself, which adds 0.5
        asked = distances_to(self.task.fill, here.start, self.task.reference[here])
        look = partial(self._look_at_shard, one, asked, Lock())
        one.near = self._join(one, map_in_order(look, range(len(self.shards))))
        tables = np.empty((size, words), dtype=np.int64)
        one.settled = self.buckets.settle(here, one.near, histograms, tables, points, self.buckets.scratch())
        return one

    def _look_at_shard(self, one: Round, asked: Floats, lock: Lock, shard: int) -> list[Found]:
        """First pass over one shard: histograms, near rows, ranks and, if kept, images."""
        near: list[Found] = []
        rows, (own, fill) = self.shards[shard], self._load(shard)
        if self.layout.keep:
            one.images[shard] = np.empty((one.found.size, rows.stop - rows.start), dtype=np.uint16)
        for batch in cut(one.here, BATCH):
            there = one.place(batch)
            images, ranks = self._scan(one, batch, shard, own, fill, asked[there])
            histograms = np.empty((images.shape[0], one.histograms.shape[1]), dtype=np.uint32)
            count_images(images, histograms)
            found, members, distances = own.space.near
            with lock:  # sums of integers and halves do not depend on their order
                one.histograms[there] += histograms
                one.found[there] += found[: images.shape[0]]
                one.points.reference_ranks[there] += ranks
                # A point with too many near rows for the space is ordered exactly and needs none of them.
                wanted = np.where(one.found[there] <= members.shape[1], found[: images.shape[0]], 0)
            near += [(members[p, :count] + rows.start, distances[p, :count].copy()) for p, count in enumerate(wanted)]
        self.spare.append(own)
        return near

    def _load(self, shard: int) -> tuple[ShardSpace, Any]:
        """Load a shard; return work arrays, and the function that fills tiles of distances to its rows."""
        rows, size = self.shards[shard], min(BATCH, self.task.n_val)
        own = take_spare(self.spare)
        if own is None:
            images = np.empty(size * self.layout.shard, np.uint16)
            laid_out = np.empty(panels_of(self.layout.shard) * ROWS * self.index.width)
            own = ShardSpace(laid_out, images, self.buckets.space(size))
        fill = self.index.load(rows.start, rows.stop, own.rows).filler(self.points)
        return own, fill if self.excluded is None else without_rows(fill, self.excluded - rows.start)

    def _scan(
        self, one: Round, batch: slice, shard: int, own: ShardSpace, fill: Any, asked: Floats
    ) -> tuple[Images, Floats]:
        rows, there = self.shards[shard], one.place(batch)
        size = batch.stop - batch.start
        if self.layout.keep:
            images = one.images[shard][there]
        else:
            images = own.images[: size * (rows.stop - rows.start)].reshape(size, -1)
        return images, self.buckets.scan(fill, rows, batch, one.lines[there], asked, own.space, images)

    def _join(self, one: Round, parts: list[list[Found]]) -> Near:
        """Join the near rows of all shards, except for points with too many of them."""
        fits = one.found <= self.buckets.certificate.room
        width = int(one.found[fits].max(initial=0))
        near = Near(one.found, np.empty((fits.size, width), np.int32), np.empty((fits.size, width)))
        for p in np.flatnonzero(fits):
            np.concatenate([part[p][0] for part in parts], out=near.members[p, : one.found[p]])
            np.concatenate([part[p][1] for part in parts], out=near.distances[p, : one.found[p]])
        return near

    def _stretches(self, one: Round) -> list[slice]:
        """Split into whole blocks whose exactly ordered points are few enough for a scratch file."""
        stretches: list[slice] = []
        kept = 0
        for block in cut(one.here, self.block):
            exact = int((~one.settled.done[one.place(block)]).sum())
            if stretches and kept + exact <= KEPT_POINTS:
                stretches[-1] = slice(stretches[-1].start, block.stop)
                kept += exact
            else:
                stretches.append(block)
                kept = exact
        return stretches

    def _second_pass(self, one: Round, stretch: slice, totals: Totals, map_in_order: MapInOrder) -> None:
        exact = self._exact_values(one, stretch)
        map_in_order(partial(self._add_shard, one, stretch, exact, totals), range(len(self.shards)))

    def _exact_values(self, one: Round, stretch: slice) -> dict[int, Floats]:
        """Values of the points that need exact order, one array for each, in a scratch file."""
        exact: dict[int, Floats] = {}
        for p in np.flatnonzero(~one.settled.done[one.place(stretch)]).tolist():
            point = slice(stretch.start + p, stretch.start + p + 1)
            there = one.place(point)
            if self.exactly is None:
                self.exactly = RankWorker(self.task, 1, partial(spilled, self.scratch))
            exact[point.start] = spilled(self.scratch, (self.task.n_train,), np.float64)
            values = self.exactly.values(point, one.points[there])
            exact[point.start][:] = values[0]
            self.exactly.keep(values, one.points[there])
            one.settled.levels[there] = nearest_level(one.points.entropy[there], self.task.edges)
        return exact

    def _add_shard(self, one: Round, stretch: slice, exact: dict[int, Floats], totals: Totals, shard: int) -> None:
        """Second pass over one shard: its values, added up in the order of the points."""
        task, n_levels, rows = self.task, self.task.levels.size, self.shards[shard]
        width = rows.stop - rows.start
        own, fill = (None, None) if self.layout.keep else self._load(shard)
        for block in cut(stretch, self.block):
            names, groups = group_rows(task, block)
            n_cells = task.group_cell(names.size)
            packed, sums = np.zeros((n_cells, width), np.int64), np.zeros((n_cells + 1, width))
            for batch in cut(block, BATCH):
                there = one.place(batch)
                if own is None:
                    images = one.images[shard][there]
                else:
                    images, _ = self._scan(one, batch, shard, own, fill, np.empty((there.stop - there.start, 0)))
                some = groups[batch.start - block.start : batch.stop - block.start]
                near = Near._make(part[there] for part in one.near)
                settled = Settled._make(part[there] for part in one.settled)
                cells = Cells(packed, sums, n_levels, task.kept, one.points.values[there])
                self.buckets.add(images, rows.start, near, settled, some, cells)
            # First the exactly ordered points, then packed values, in the same order for any pieces.
            for point in (point for point in range(block.start, block.stop) if point in exact):
                group = groups[point - block.start]
                weight = 1.0 if task.weights is None else task.weights[point]
                values = weight * exact[point][rows]
                for cell, square in ((one.settled.levels[point - one.here.start], n_levels), (group, group + 1)):
                    if cell >= 0:
                        sums[cell] += values
                        sums[square] += values**2
                        if task.weights is not None:
                            sums[square + 1] += weight * values
            self.buckets.unpack(packed, sums)
            part = BlockSums(block_cells(task, names, own=1), np.zeros(n_levels, dtype=np.int64), sums)
            totals.add_rows(block.start // self.block, part, rows)
        if own is not None:
            self.spare.append(own)


def cut(here: slice, step: int) -> list[slice]:
    """Cut a slice into pieces of at most ``step``."""
    return [slice(lo, min(lo + step, here.stop)) for lo in range(here.start, here.stop, step)]


def sharded_sums(
    buckets: Buckets, index: FileRows, points: Any, excluded: Indices | None, scratch: str | None, runner: Runner
) -> Sums:
    """Compute the sums of a task by buckets, shard by shard."""
    if buckets.task.matrix:
        index.check_serves("matrix")
    cluster = runner.cluster()
    layout = plan_shards(buckets, index.width, runner, returned=cluster is not None)
    job = ShardedJob(buckets, index, points, layout, excluded, scratch)
    plan = Plan(job.block, job.block, 1, 1, layout.round // job.block)
    if cluster is not None:
        bundle = bundle_blocks(n_blocks(job))
        task_blocks = bundle if n_blocks(job) // bundle >= 2 * cluster.workers else 1
        plan = Plan(job.block, job.block, cluster.workers, 2 * cluster.workers, task_blocks)
    totals, kept = runner.run(job, plan, cluster)
    return Sums.of(buckets.task, totals.sums, totals.counts, kept)
