"""Certified values of training rows that stay in a file: shard by shard, twice.

In a first pass every shard of the rows gives each validation point its part of the histogram and its nearest
candidates; joined, they are what all rows together would have given, and so are the tables and the bounds made from
them. In a second pass every shard adds up its own values. Only sums, candidates and tables are held in memory, and the
images of the distances where there is room; where there is none, they are computed once more.

On this machine threads share the shards, and as many points as memory allows go through each pass. On a cluster a
worker makes both passes for a few blocks of points. Either way the bytes of the result are those of rows in memory.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._progress import progress_bar
from shapshift.engine.boundary import count_levels, level_edges, nearest_level
from shapshift.engine.certified import BATCH, STRIP_ROWS, Certificate, distances_to
from shapshift.engine.checkpoint import Stage
from shapshift.engine.exact import RankWorker
from shapshift.engine.parallel import thread_pool
from shapshift.engine.rows.distances import TrainingIndex
from shapshift.engine.rows.file import spilled
from shapshift.engine.runner import (
    WORKER_BYTES,
    MemoryBudgetError,
    Part,
    Plan,
    Runner,
    Totals,
    block_cells,
    block_points,
    bundle_blocks,
    n_blocks,
    span,
)
from shapshift.engine.tasks import ClassTask, Points, Sums
from shapshift.exceptions import InputError
from shapshift.kernels.buckets import Scratch, fill_table, settle, unpack
from shapshift.kernels.images import PIECES, Near, bucket_lines
from shapshift.kernels.shards import METRIC_NUMBERS, count_images, shard_images, shard_sums

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Rows of a shard: long enough to hide the cost of a kernel call, short enough that a few of them fit in any memory.
SHARD_ROWS = 2**17
LEAST_SHARD = 2**12
# Bytes that a round may hold beside the sums when no budget is given.
ROUND_BYTES = 2**31
# Most validation points of one round.
ROUND_POINTS = 1024
# Exactly ordered points whose values are kept in a scratch file at a time.
KEPT_POINTS = 32


@dataclass(frozen=True)
class Layout:
    """How a run over a file is cut up to fit the memory budget.

    Attributes
    ----------
    shard : int
        Rows that are looked at together.
    round : int
        Validation points that are handled between two readings of the rows.
    keep : bool
        Whether images are kept from the first pass to the second.
    workers : int
    block : int
        Points whose sums are added up before they are added to the others.
    """

    shard: int
    round: int
    keep: bool
    workers: int
    block: int


@dataclass(frozen=True)
class FileCosts:
    """Bytes that a run holds.

    Attributes
    ----------
    fixed : int
        In any case.
    worker, point, images : int
        Per worker, per point of a round, and for the images of a point if they are kept.
    end : int
        When all points are done and none of these is held any more.
    """

    fixed: int
    worker: int
    point: int
    images: int
    end: int


def file_costs(
    task: ClassTask, index: TrainingIndex, certificate: Certificate, shard: int, returned: bool
) -> FileCosts:
    """Bytes of a run; a worker of a cluster has its sums once more to return them, and once to send them."""
    n, d, room, words = task.n_train, index.rows.shape[1], certificate.room, 2 * certificate.rules.buckets
    cells = block_cells(task, 1, block_points(task))
    sums = task.levels.size + task.n_groups + 1
    bundles = sums if bundle_blocks(-(-task.n_val // block_points(task))) > 1 else 0
    return FileCosts(
        # Sums, those of a bundle of blocks, and the rank table in its two forms.
        fixed=8 * n * (sums * (3 if returned else 1) + bundles + 6)
        + 8 * task.n_val * (4 + task.n_nearest)
        + 8 * task.reference.size,
        worker=shard * (16 * d + 2 * BATCH + 16 * cells) + BATCH * (12 * room + 8 * STRIP_ROWS) + WORKER_BYTES,
        point=3 * 12 * room + 16 * words + 32 * d,
        images=2 * n,
        # Bounds and their checks, while the table is still there; then what becomes of the sums.
        end=8 * n * (sums + max(10, task.levels.size + 3)),
    )


def make_layout(
    task: ClassTask, index: TrainingIndex, certificate: Certificate, runner: Runner, returned: bool
) -> Layout:
    """Choose shards, rounds and workers for a memory budget.

    Raises
    ------
    ValueError
        If even one worker with the shortest shards and one block of points needs more than ``max_memory``.
    """
    block = block_points(task)
    shard = min(SHARD_ROWS, task.n_train)
    workers = 1 if returned else runner.workers(-(-task.n_train // shard))
    cost = file_costs(task, index, certificate, shard, returned)
    free, max_memory = ROUND_BYTES, runner.max_memory
    if max_memory is not None:
        tight = file_costs(task, index, certificate, min(LEAST_SHARD, shard), returned)
        least = -(-16 * max(tight.fixed + tight.worker + block * tight.point, tight.end) // 15)
        if max_memory < least:
            what = f"{task.n_train} training rows in a file, {task.n_val} validation points and {task.n_groups} groups"
            raise MemoryBudgetError(least, max_memory, what)
        free = max_memory * 15 // 16 - cost.fixed
        # All workers first, if shorter shards allow it.
        while shard > LEAST_SHARD and free < workers * cost.worker + block * cost.point:
            shard = max(shard // 2, LEAST_SHARD)
            cost = file_costs(task, index, certificate, shard, returned)
        workers = max(1, min(workers, (free - block * cost.point) // cost.worker))
        free -= workers * cost.worker
    keep = free >= block * (cost.point + cost.images)
    blocks = min(max(free // (block * (cost.point + keep * cost.images)), 1), max(ROUND_POINTS // block, 1))
    return Layout(int(shard), int(blocks * block), bool(keep), int(workers), block)


class ShardTotals(Totals):
    """The same additions in the same order, a shard at a time; the last cell has the bounds.

    Parameters
    ----------
    task : ClassTask
    block, bundle : int
        Points of a block, and blocks of a bundle.
    """

    def __init__(self, task: ClassTask, block: int, bundle: int) -> None:
        shape = (task.levels.size + task.n_groups + 1, task.n_train)
        super().__init__(shape, task.levels.size, -(-task.n_val // block), bundle)
        self.levels = task.levels

    def add_shard(self, block: int, rows: slice, cells: Indices, partial_sums: Floats) -> None:
        """Add a block to its bundle, and a bundle that is complete to the total."""
        if self.bundle == 1:
            self.sums[cells, rows] += partial_sums
            return
        self.open[cells, rows] += partial_sums
        if (block + 1) % self.bundle == 0 or block + 1 == self.n_blocks:
            self.sums[:, rows] += self.open[:, rows]
            self.open[:, rows] = 0.0

    def complete(self, n_blocks: int, entropy: Floats) -> None:
        """Count the first ``n_blocks`` blocks as added up in all shards; ``entropy`` is that of their points."""
        self.done = n_blocks
        self.counts[:] = count_levels(entropy, self.levels)
        self.seen[:] = True
        self.open_seen[:] = self.bundle > 1 and n_blocks % self.bundle != 0 and n_blocks < self.n_blocks


@dataclass
class Round:
    """What is known of the validation points between the two passes.

    Attributes
    ----------
    here : slice
        Which points.
    lines : ndarray
        Their maps from distances to buckets.
    histograms : ndarray
    found : ndarray
        How many near rows each point has.
    near : list
        For each shard, the near rows of each point and their distances.
    images : dict
        Images of each shard, as far as they are kept.
    """

    here: slice
    lines: Floats
    histograms: npt.NDArray[np.uint32]
    found: Indices
    near: list[list[tuple[npt.NDArray[np.int32], Floats]]]
    images: dict[int, npt.NDArray[np.uint16]] = field(default_factory=dict)


@dataclass(frozen=True)
class Settled:
    """What the second pass needs to know of each point; see :func:`shapshift.kernels.shards.shard_sums`."""

    tables: Indices
    starts: Indices
    members: npt.NDArray[np.int32]
    values: Floats
    done: npt.NDArray[np.bool_]
    levels: Indices


class Space(threading.local):
    """Arrays of one worker, made when it first needs them."""

    def __init__(self, task: ClassTask, index: TrainingIndex, certificate: Certificate, shard: int) -> None:
        room, batch = certificate.room, min(BATCH, task.n_val)
        self.columns = np.empty(shard * index.rows.shape[1])
        self.strip = np.empty(batch * STRIP_ROWS)
        self.images = np.empty(batch * shard, dtype=np.uint16)
        self.near = Near(np.empty(batch, np.int64), np.empty((batch, room), np.int32), np.empty((batch, room)))


class ShardedRun:
    """One certified run over rows in a file."""

    def __init__(
        self,
        task: ClassTask,
        index: TrainingIndex,
        points: Any,
        certificate: Certificate,
        layout: Layout,
        excluded: Indices | None,
        scratch: str | None,
        bundle: int,
    ) -> None:
        self.task, self.index, self.points, self.excluded = task, index, points, excluded
        self.certificate, self.layout, self.scratch = certificate, layout, scratch
        self.metric = METRIC_NUMBERS["constant" if index.constant else index.metric]
        self.shards = [(lo, min(lo + layout.shard, task.n_train)) for lo in range(0, task.n_train, layout.shard)]
        self.totals = ShardTotals(task, layout.block, bundle)
        self.block = layout.block
        self.space = Space(task, index, certificate, layout.shard)
        self.lock = threading.Lock()
        self.entropy = np.empty(task.n_val)
        self.nearest = np.empty((task.n_val, task.n_nearest), dtype=np.int64)
        self.ranks = np.full(task.reference.shape, -0.5)  # a row is as far away as itself
        self.kept = Points(self.entropy, self.nearest, self.ranks, np.empty((task.n_val, 0)), None)
        self.exactly: RankWorker | None = None

    def run(self, span: slice, advance: Callable[[int], None], stage: Stage | None = None) -> None:
        """Go through all rounds of a span of the points, which is whole blocks."""
        with thread_pool(self.layout.workers) as map_in_order:
            for here in self._batches(span, self.layout.round):
                one = self._first_pass(here, map_in_order)
                settled = self._settle(one)
                for stretch in self._stretches(here, settled.done):
                    self._second_pass(one, settled, stretch, map_in_order)
                    if stage is not None:
                        self.totals.complete(-(-stretch.stop // self.block), self.entropy[: stretch.stop])
                        stage.save(self.totals, self.kept, stretch.stop, last=stretch.stop == self.task.n_val)
                    advance(stretch.stop - stretch.start)

    def _batches(self, here: slice, step: int) -> list[slice]:
        return [slice(lo, min(lo + step, here.stop)) for lo in range(here.start, here.stop, step)]

    def _first_pass(self, here: slice, map_in_order: Callable[..., list[Any]]) -> Round:
        size, certificate = here.stop - here.start, self.certificate
        one = Round(
            here,
            np.empty((size, PIECES, 2)),
            np.zeros((size, 2 * certificate.rules.buckets), dtype=np.uint32),
            np.zeros(size, dtype=np.int64),
            [],
        )
        for batch in self._batches(here, BATCH):
            sample = np.empty((batch.stop - batch.start, certificate.sample_size))
            certificate.sample_fill(batch, slice(0, certificate.sample_size), sample)
            lines = one.lines[batch.start - here.start : batch.stop - here.start]
            bucket_lines(sample, certificate.sample_first, certificate.rules.buckets, lines)
        asked = distances_to(self.task, here)
        one.near = map_in_order(partial(self._look_at_shard, one, asked), range(len(self.shards)))
        return one

    def _look_at_shard(self, one: Round, asked: Floats, shard: int) -> list[tuple[npt.NDArray[np.int32], Floats]]:
        """First pass over one shard: histograms, near rows, ranks; and images, if they are kept."""
        lo, hi = self.shards[shard]
        columns = self.index.rows.columns(lo, hi, self.space.columns)
        if self.layout.keep:
            one.images[shard] = np.empty((one.found.size, hi - lo), dtype=np.uint16)
        near = []
        for batch in self._batches(one.here, BATCH):
            there = slice(batch.start - one.here.start, batch.stop - one.here.start)
            images, ranks = self._images(one, batch, there, shard, columns, asked[there])
            histograms = np.zeros((images.shape[0], one.histograms.shape[1]), dtype=np.uint32)
            count_images(images, histograms)
            found = self.space.near.found[: images.shape[0]]
            with self.lock:  # integers and halves: the order of additions has no influence
                one.histograms[there] += histograms
                one.found[there] += found
                self.ranks[batch] += ranks
                # A point with more near rows than there is room for is ordered exactly and needs none of them.
                wanted = np.where(one.found[there] <= self.certificate.room, found, 0)
            for p, count in enumerate(wanted):
                near.append((self.space.near.members[p, :count].copy(), self.space.near.distances[p, :count].copy()))
        return near

    def _images(
        self, one: Round, batch: slice, there: slice, shard: int, columns: Floats, asked: Floats
    ) -> tuple[npt.NDArray[np.uint16], Floats]:
        lo, hi = self.shards[shard]
        size = batch.stop - batch.start
        if self.layout.keep:
            images = one.images[shard][there]
        else:
            images = self.space.images[: size * (hi - lo)].reshape(size, hi - lo)
        ranks = np.zeros(asked.shape)
        hidden = np.full(size, -1) if self.excluded is None else self.excluded[batch] - lo
        scaled = np.ascontiguousarray(self.index.lay_out(self.points[batch]))
        shard_images(
            columns, lo, scaled, self.metric, self.task.codes[lo:hi],
            self.task.targets[batch], one.lines[there], self.certificate.rules.buckets - 1, self.space.strip, images,
            self.space.near, asked, ranks, hidden,
        )  # fmt: skip
        return images, ranks

    def _settle(self, one: Round) -> Settled:
        """Between the passes: each point's table, and the values of its near rows."""
        task, certificate = self.task, self.certificate
        rules, room, size = certificate.rules, certificate.room, one.found.size
        words = 2 * rules.buckets
        work = Scratch(
            np.empty(0, np.uint32), np.empty((0, words), np.int64), np.empty(0, np.int64), np.empty(room, np.int32),
            np.empty((2, room), np.uint64), np.empty(room), np.zeros(task.n_classes),
        )  # fmt: skip
        tables = np.empty((size, words), dtype=np.int64)
        done = (rules.least <= one.found) & (one.found <= room)
        levels = np.zeros(size, dtype=np.int64)
        base, edges = task.bases(task.targets[one.here]), level_edges(task.levels)
        joined: list[tuple[npt.NDArray[np.int32], Floats]] = []
        for p in range(size):
            point = one.here.start + p
            if done[p]:
                done[p], total = fill_table(certificate.curve, rules, base[p], one.histograms[p], tables[p])
            if not done[p]:
                joined.append((np.empty(0, np.int32), np.empty(0)))
                continue
            members, values = (np.concatenate([part[p][k] for part in one.near]) for k in (0, 1))
            self.entropy[point], levels[p] = settle(
                members, values, task.codes, task.targets[point], certificate.curve, total, rules, task.average_ties,
                task.depth, edges, work, self.nearest[point],
            )  # fmt: skip
            joined.append((members, values))
        one.near = []
        starts = np.cumsum([0, *(members.size for members, _ in joined)])
        return Settled(
            tables, starts, np.concatenate([m for m, _ in joined]), np.concatenate([v for _, v in joined]), done, levels
        )

    def _stretches(self, here: slice, done: npt.NDArray[np.bool_]) -> list[slice]:
        """Whole blocks whose exactly ordered points are few enough to keep their values in a scratch file."""
        stretches: list[slice] = []
        kept = 0
        for block in self._batches(here, self.block):
            exact = int((~done[block.start - here.start : block.stop - here.start]).sum())
            if stretches and kept + exact <= KEPT_POINTS:
                stretches[-1] = slice(stretches[-1].start, block.stop)
                kept += exact
            else:
                stretches.append(block)
                kept = exact
        return stretches

    def _second_pass(
        self, one: Round, settled: Settled, stretch: slice, map_in_order: Callable[..., list[Any]]
    ) -> None:
        exact = self._exact_values(one, settled, stretch)
        map_in_order(partial(self._add_shard, one, settled, stretch, exact), range(len(self.shards)))

    def _exact_values(self, one: Round, settled: Settled, stretch: slice) -> dict[int, Floats]:
        """Values of the points that buckets cannot serve, one array for each, in a scratch file."""
        task = self.task
        exact: dict[int, Floats] = {}
        for point in range(stretch.start, stretch.stop):
            if settled.done[point - one.here.start]:
                continue
            if self.exactly is None:
                self.exactly = RankWorker(task, 1, partial(spilled, self.scratch))
            one_point = slice(point, point + 1)
            exact[point] = spilled(self.scratch, (task.n_train,), np.float64)
            exact[point][:] = self.exactly.values(one_point, self.kept[one_point])[0]
            level = nearest_level(self.entropy[one_point], task.levels)[0]
            settled.levels[point - one.here.start] = level
        return exact

    def _add_shard(self, one: Round, settled: Settled, stretch: slice, exact: dict[int, Floats], shard: int) -> None:
        """Second pass over one shard: its values, added up in the order of the points."""
        task, n_levels = self.task, self.task.levels.size
        lo, hi = self.shards[shard]
        columns = None if self.layout.keep else self.index.rows.columns(lo, hi, self.space.columns)
        none = np.empty((BATCH, 0))
        for block in self._batches(stretch, self.block):
            names = np.unique(task.groups[block]) if task.n_groups else np.empty(0, dtype=np.int64)
            cells = np.concatenate([np.arange(n_levels), n_levels + names])
            packed = np.zeros((cells.size, hi - lo), dtype=np.int64)
            partial_sums = np.zeros((cells.size + 1, hi - lo))
            for batch in self._batches(block, BATCH):
                there = slice(batch.start - one.here.start, batch.stop - one.here.start)
                if columns is None:
                    images = one.images[shard][there]
                else:
                    images, _ = self._images(one, batch, there, shard, columns, none[: there.stop - there.start])
                shard_sums(
                    images, settled.tables[there], lo, settled.starts[there.start : there.stop + 1], settled.members,
                    settled.values, settled.done[there], settled.levels[there], self._groups(batch, names), packed,
                    partial_sums,
                )  # fmt: skip
            # Points that were ordered exactly, then what is packed: the order that a worker with all rows has.
            for point in range(block.start, block.stop):
                if point in exact:
                    for cell in (settled.levels[point - one.here.start], *self._groups(slice(point, point + 1), names)):
                        if cell >= 0:
                            partial_sums[cell] += exact[point][lo:hi]
            for cell in range(cells.size):
                bounds = partial_sums[-1, : hi - lo if cell < n_levels else 0]
                unpack(packed[cell], self.certificate.rules, partial_sums[cell], bounds)
            self.totals.add_shard(
                block.start // self.block, slice(lo, hi), np.append(cells, n_levels + task.n_groups), partial_sums
            )

    def _groups(self, batch: slice, names: Indices) -> Indices:
        """Cells of the groups of some points, -1 where there are no groups."""
        if not self.task.n_groups:
            return np.full(batch.stop - batch.start, -1)
        return self.task.levels.size + np.searchsorted(names, self.task.groups[batch])


@dataclass(frozen=True)
class ShardedJob:
    """A run over rows in a file, cut into blocks of points."""

    task: ClassTask
    index: TrainingIndex
    points: Any
    certificate: Certificate
    layout: Layout
    excluded: Indices | None
    scratch: str | None

    @property
    def block(self) -> int:
        """Points of a block."""
        return self.layout.block

    @property
    def bundle(self) -> int:
        """Blocks of a bundle."""
        return bundle_blocks(n_blocks(self))

    @property
    def save_every(self) -> int:
        """Progress can be saved after every block."""
        return 1

    def totals(self) -> Totals:
        """Allocate the sums."""
        return ShardTotals(self.task, self.block, self.bundle)

    def run(self, bundle: int) -> ShardedRun:
        """Return a run with nothing done yet."""
        return ShardedRun(
            self.task, self.index, self.points, self.certificate, self.layout, self.excluded, self.scratch, bundle
        )

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> Part:
        """Value the points of a block."""
        raise NotImplementedError  # threads share shards instead of blocks

    def value_blocks(self, blocks: range) -> Part:
        """Value consecutive blocks and add them up; more than one are a bundle."""
        task, here, run = self.task, span(self, blocks), self.run(bundle=1)
        run.run(here, lambda steps: None)
        points, n_levels = run.kept[here], task.levels.size
        counts = count_levels(points.entropy, task.levels)
        names = np.unique(task.groups[here]) if task.n_groups else np.empty(0, dtype=np.int64)
        rows = np.concatenate([np.arange(n_levels), n_levels + names, [n_levels + task.n_groups]])
        cells = rows.copy()
        cells[:n_levels][counts == 0] = -1
        return Part(cells, counts, run.totals.sums[rows], len(blocks), points)

    def reuse(self, part: Part) -> None:
        """Nothing is used again."""


def sharded_sums(
    task: ClassTask,
    index: TrainingIndex,
    points: Any,
    certificate: Certificate,
    *,
    excluded: Indices | None,
    scratch: str | None,
    runner: Runner,
) -> Sums:
    """Compute the sums of a task by buckets, shard by shard."""
    if task.matrix:
        raise InputError(
            "The 'matrix' parameter must be False for method='certified' on training rows that stay in a file. Ask for "
            "exact values, or load the rows."
        )
    cluster = runner.cluster()
    layout = make_layout(task, index, certificate, runner, returned=cluster is not None)
    job = ShardedJob(task, index, points, certificate, layout, excluded, scratch)
    if cluster is None:
        totals, kept = _run_here(job, runner)
    else:
        unit = job.bundle if n_blocks(job) // job.bundle >= 2 * cluster.workers else 1
        plan = Plan(job.block, job.block, cluster.workers, 2 * cluster.workers, unit)
        totals, kept = runner.run(job, plan, cluster)
    return Sums.of(task, totals.sums, count_levels(kept.entropy, task.levels), kept)


def _run_here(job: ShardedJob, runner: Runner) -> tuple[Totals, Points]:
    run, stage = job.run(job.bundle), None if runner.checkpoint is None else runner.checkpoint.next_stage()
    if stage is not None:
        stage.restore(run.totals, run.kept)
    rest = span(job, range(run.totals.done, n_blocks(job)))
    with progress_bar("Valuing", job.task.n_val, runner.progress) as advance:
        advance(rest.start)
        run.run(rest, advance, stage)
    return run.totals, run.kept
