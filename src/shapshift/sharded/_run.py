"""Certified values of training rows that stay in a file: shard by shard, twice.

In a first pass every shard of the rows gives each validation point its part of the histogram and its nearest
candidates; joined, they are what all rows together would have given, and so are the tables and the bounds made from
them. In a second pass every shard adds up its own values. Only sums, candidates and tables are held in memory, and the
images of the distances where there is room; where there is none, they are computed once more.

The result has the same bytes as that of :func:`shapshift.engine.run_task` with all rows in memory.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._parallel import thread_pool
from shapshift.boundary import level_edges, nearest_level
from shapshift.certified import BATCH, STRIP_ROWS, Certificate, distances_to
from shapshift.checkpoint import Stage
from shapshift.distances import TrainingIndex, laid_out_points
from shapshift.engine import Points, RankWorker, Task, bases
from shapshift.kernels.buckets import Scratch, fill_table, settle, unpack
from shapshift.kernels.images import PIECES, Near, bucket_lines
from shapshift.kernels.shards import METRIC_NUMBERS, count_images, shard_images, shard_sums
from shapshift.rowfile import spilled
from shapshift.sharded._exact import SpilledWorker
from shapshift.sharded._layout import Layout
from shapshift.sharded._sums import ShardTotals

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Exactly ordered points whose values are kept in a scratch file at a time.
KEPT_POINTS = 32


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

    def __init__(self, task: Task, index: TrainingIndex, certificate: Certificate, shard: int) -> None:
        room, batch = certificate.room, min(BATCH, task.n_val)
        self.columns = np.empty(shard * index.rows.shape[1])
        self.strip = np.empty(batch * STRIP_ROWS)
        self.images = np.empty(batch * shard, dtype=np.uint16)
        self.near = Near(np.empty(batch, np.int64), np.empty((batch, room), np.int32), np.empty((batch, room)))


class ShardedRun:
    """One certified run over rows in a file."""

    def __init__(
        self,
        task: Task,
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
        self.kept = Points(self.entropy, self.nearest, self.ranks, None)
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
        scaled = np.ascontiguousarray(laid_out_points(self.index, self.points[batch]))
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
        base, edges = bases(task, task.targets[one.here]), level_edges(task.levels)
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
                self.exactly = SpilledWorker(task, 1, 1, self.scratch)
            one_point = slice(point, point + 1)
            kept = Points(self.entropy[one_point], self.nearest[one_point], self.ranks[one_point], None)
            exact[point] = spilled(self.scratch, (task.n_train,), np.float64)
            exact[point][:] = self.exactly.rank(task, one_point, kept)[0]
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
