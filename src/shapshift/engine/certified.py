"""Certified values: linear time, and a bound on the error of every single value.

The bucket kernels bound the error of a bucket. This module chooses the number of buckets and of exactly ordered nearest
rows, such that the largest bound stays below ``tol`` standard deviations of the values. It measures the result, and
refines until the bound is reached. Points whose distances the buckets cannot separate (for example, many rows equally
far away) are ordered exactly.

This serves rows in a file (:mod:`shapshift.engine.sharded`) and, with separate kernels, a GPU. If all distances of a
point are in memory, sorting them takes a CPU little longer than buckets, see docs/benchmarks.md.
"""

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift.engine.exact import Exact, RankWorker
from shapshift.engine.parallel import n_workers, stream, take_spare
from shapshift.engine.rows.distances import Filler, TrainingIndex
from shapshift.engine.runner import Runner, block_points
from shapshift.engine.tasks import ClassTask, Points, Sums
from shapshift.kernels.buckets import (
    BOUND_BITS,
    Cells,
    Curve,
    Game,
    Rules,
    Scratch,
    Settled,
    add_points,
    settle_points,
    unpack,
    unpack_products,
    unpack_squares,
)
from shapshift.kernels.images import PIECES, Labels, Near, bucket_images, bucket_lines, count_nearer

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Images = npt.NDArray[np.uint16]
Histograms = npt.NDArray[np.uint32]

# Number of points handled together: every training value read serves all of them, and their images fit the cache.
BATCH = 64
# Number of training rows processed together: their distances stay in the second-level cache between two kernels. Not a
# power of two, which would map the distances of all points to the same few places of the first-level cache.
STRIP_ROWS = 1064
# Images have 16 bits, one of them for the match.
MOST_BUCKETS = 2**15
# Number of sampled rows in the first bucket; with fewer, its size would depend too much on chance.
SAMPLED_FIRST = 12
# Size of the bounds (see choose_coarseness), measured on Gaussian data; they are checked after every run.
MEAN_BOUND, HUB_BOUND = 0.95, 0.33
# A point whose bounds exceed the expected ones by this factor is ordered exactly.
GREEDY = 16.0
# Costs in nanoseconds for the choice: of a bucket, of an exactly ordered row, and time saved by buckets per pair. A
# bucket alone takes about ten; the rest is the effect of large tables on the caches.
BUCKET_COST, ROW_COST, EXACT_COST = 40.0, 10.0, 3.0
ROUNDS = 6
_TINY = 2.0**-100  # replaces zero in divisors


def draw_sample(index: TrainingIndex) -> Indices:
    """Choose training rows that represent the distances to all of them; the first s are a sample of size s.

    They are chosen by a hash of their content, so that row order has no effect. Precomputed distances have no content
    to hash; their rows are taken at even steps.
    """
    largest = min(index.n_rows, 2**14)
    keys = index.content_hash()
    if keys is None:
        even = np.linspace(0, index.n_rows - 1, largest).astype(np.int64)
        return np.random.default_rng(0).permutation(even)
    chosen: Indices = np.argpartition(keys, largest - 1)[:largest]
    return chosen[np.argsort(keys[chosen])]


def rank_curve(c: Floats) -> Curve:
    """Prepare a rank table for the bucket kernels."""
    drops = c[:-1] - c[1:]
    # Drops are differences of rounded numbers; their rounding errors are part of the rounding allowance of the bounds.
    growing = np.flatnonzero(np.diff(drops) > 2.0**-50 * c[0])
    at = np.zeros((c.size + 3, 2))
    at[1:-2, 0] = c
    at[1:-2, 1] = np.cumsum(c)
    inverse = np.zeros((c.size + 1, 2))
    inverse[1:, 0] = 1.0 / np.arange(1, c.size + 1)
    inverse[2:, 1] = inverse[1:-1, 0]
    return Curve(c, at, inverse, int(growing[-1]) + 2 if growing.size else 0)


@dataclass(frozen=True)
class Coarseness:
    """Number of buckets and of exactly ordered rows of a run.

    Attributes
    ----------
    first : int
        Approximate number of nearest rows that are ordered exactly.
    buckets : int
    """

    first: int
    buckets: int

    def mean_bound(self, n_rows: int) -> float:
        """Estimate the bound of the average row."""
        return float(MEAN_BOUND * np.log(n_rows / self.first) ** 2 / (self.buckets * n_rows))

    def hub_bound(self, n_rows: int) -> float:
        """Estimate the bound of a row that is always just beyond the exact ranks."""
        return float(HUB_BOUND * np.log(n_rows / self.first) / (self.buckets * self.first))


def choose_coarseness(n_rows: int, limit: float) -> Coarseness | None:
    """Find the cheapest numbers of buckets and exact ranks that keep all bounds below a limit.

    If buckets grow in proportion to their rank, from rank R to N, bounds fall with the number of buckets: on average
    like log(N/R)^2 / N, and for rows near every point like log(N/R) / R.

    Returns
    -------
    Coarseness or None
        None if exact values are cheaper.
    """
    best, cheapest = None, EXACT_COST * n_rows
    for first in np.unique(np.geomspace(64, max(n_rows // 4, 64), 60).astype(int)):
        one = Coarseness(int(first), 1)
        worst = max(one.mean_bound(n_rows), one.hub_bound(n_rows))
        buckets = worst / limit if limit > 0 and first < n_rows else np.inf
        cost = BUCKET_COST * buckets + ROW_COST * first
        if buckets + 2 <= MOST_BUCKETS and cost < cheapest:
            best, cheapest = Coarseness(int(first), int(buckets) + 2), cost
    return best


@dataclass(frozen=True)
class Certificate:
    """All inputs of a worker in a certified run."""

    curve: Curve
    rules: Rules
    sample_fill: Filler
    sample_size: int
    sample_first: int
    room: int


class Space(NamedTuple):
    """Arrays of one worker: distances to a strip of the training rows, and near rows of a batch of points."""

    strip: Floats
    near: Near


@dataclass(frozen=True)
class Buckets:
    """Values with bounds, computed in steps.

    A batch of points is compared with all training rows, in one piece or in several (:meth:`scan`). Then its tables are
    made (:meth:`settle`), and its values are added up, in one piece or in several (:meth:`add`, :meth:`unpack`). The
    additions of a row and their order do not depend on the pieces.
    """

    task: ClassTask
    certificate: Certificate

    def space(self, batch: int) -> Space:
        """Allocate the arrays of a worker."""
        room = self.certificate.room
        near = Near(np.empty(batch, np.int64), np.empty((batch, room), np.int32), np.empty((batch, room)))
        return Space(np.empty(batch * STRIP_ROWS), near)

    def scratch(self) -> Scratch:
        """Allocate the arrays for ordering the near rows of a point."""
        room = self.certificate.room
        work = np.empty((2, room), np.uint64)
        return Scratch(np.empty(room, np.int32), work, np.empty(room), np.zeros(self.task.n_classes))

    def lines(self, batch: slice, sample: Floats) -> Floats:
        """Return the map of each point from distances to buckets; ``sample`` is scratch."""
        certificate, lines = self.certificate, np.empty((sample.shape[0], PIECES, 2))
        certificate.sample_fill(batch, slice(0, certificate.sample_size), sample)
        bucket_lines(sample, certificate.sample_first, certificate.rules.buckets, lines)
        return lines

    def _labels(self, batch: slice, rows: slice) -> Labels:
        targets = self.task.targets[batch]
        return Labels(self.task.codes[rows], targets, self.task.bases(targets))

    def scan(
        self, fill: Filler, rows: slice, batch: slice, lines: Floats, asked: Floats, space: Space, images: Images
    ) -> Floats:
        """Find images and near rows of a batch of points among some training rows.

        Parameters
        ----------
        fill : callable
            Computes distances; the first of these rows is number 0 to it.
        rows, batch : slice
        lines : ndarray
            From :meth:`lines`.
        asked : ndarray of shape (b, r)
            Distances whose ranks are requested.
        space : Space
            Receives the near rows, numbered from the first of these rows.
        images : ndarray of shape (b, w)
            Out.

        Returns
        -------
        ndarray of shape (b, r)
            Number of rows nearer than each requested distance; ties count half.
        """
        size, n = lines.shape[0], rows.stop - rows.start
        labels, ranks = self._labels(batch, rows), np.zeros(asked.shape)
        space.near.found[:] = 0
        for lo in range(0, n, STRIP_ROWS):
            strip = slice(lo, min(lo + STRIP_ROWS, n))
            tile = space.strip[: size * (strip.stop - lo)].reshape(size, -1)
            fill(batch, strip, tile)
            bucket_images(tile, lo, labels, lines, self.certificate.rules.buckets - 1, images, space.near)
            count_nearer(tile, asked, ranks)
        return ranks

    def settle(
        self, batch: slice, near: Near, histograms: Histograms, tables: Indices, points: Points, scratch: Scratch
    ) -> Settled:
        """Make the tables of a batch of points, and replace the distances of their near rows by values."""
        task, size = self.task, histograms.shape[0]
        weights = np.ones(size) if task.weights is None else task.weights[batch]
        levels, done = np.empty(size, np.int64), np.empty(size, np.bool_)
        settled = Settled(tables, levels, done, points.entropy, points.nearest, weights)
        game = Game(self.certificate.curve, self.certificate.rules, task.average_ties, task.depth, task.edges)
        settle_points(near, histograms, self._labels(batch, slice(None)), game, scratch, settled)
        return settled

    def add(self, images: Images, first: int, near: Near, settled: Settled, groups: Indices, cells: Cells) -> None:
        """Add a batch of points to the sums of the training rows from ``first`` on."""
        add_points(images, first, near, settled, groups, cells, self.certificate.rules)

    def unpack(self, packed: Indices, partial: Floats) -> None:
        """Add packed values and squares to their cells and bounds to the last one, and clear ``packed``."""
        rules, n_levels = self.certificate.rules, self.task.levels.size
        for cell in range(partial.shape[0] - 1):
            kind = (cell - n_levels) % (1 + self.task.n_squares) if cell >= n_levels else self.task.n_squares
            if kind < self.task.n_squares:
                (unpack_squares, unpack_products)[kind](packed[cell], rules, partial[cell])
                continue
            # Only once per point: a point of a group also belongs to a level.
            bounds = partial[-1, : partial.shape[1] if cell < n_levels else 0]
            unpack(packed[cell], rules, partial[cell], bounds)


def certify(task: ClassTask, coarse: Coarseness, index: TrainingIndex, points: Any, sample: Indices) -> Certificate:
    """Compute the scales and limits of one run."""
    block = block_points(task)
    peak = max(GREEDY * coarse.hub_bound(task.n_train), _TINY)
    least = max(task.depth, task.n_nearest, coarse.first // 4)
    largest = max(task.table.c[least - 1] + np.abs(task.bases(task.targets)).max(), _TINY)
    heaviest = 1.0 if task.weights is None else float(task.weights.max())
    largest, bits = largest * heaviest, (62 - np.log2(block)) / 2
    rules = Rules(
        buckets=coarse.buckets,
        allowed=GREEDY * coarse.mean_bound(task.n_train) * task.n_train,
        peak=peak,
        least=least,
        # Powers of two, so that scaling is exact; one bit is spare in each half of a word.
        value_scale=2.0 ** np.floor(np.log2(2.0 ** (62 - BOUND_BITS) / (block * largest))),
        bound_scale=2.0 ** np.floor(np.log2(2.0 ** (BOUND_BITS - 1) / (block * peak * heaviest))),
        # A value has 62 - BOUND_BITS bits minus those of the points; the squares of all points must fit into a word.
        square_shift=BOUND_BITS + max(0, int(np.ceil((62 - 2 * BOUND_BITS - np.log2(block)) / 2))),
        weight_scale=0.0 if task.weights is None else 2.0 ** np.floor(bits - np.log2(heaviest)),
    )
    size = min(sample.size, max(256, SAMPLED_FIRST * task.n_train // coarse.first))
    return Certificate(
        curve=rank_curve(task.table.c),
        rules=rules,
        sample_fill=index.sample_filler(sample[:size], points),
        sample_size=size,
        sample_first=max(1, size * coarse.first // task.n_train),
        room=min(3 * coarse.first + 64, task.n_train),
    )


def certified_sums(
    exact: Exact,
    index: TrainingIndex,
    points: Any,
    sample: Indices,
    *,
    tol: float,
    runner: Runner,
    by_buckets: Callable[[Buckets], Sums],
) -> Sums:
    """Value a task with no value off by more than ``tol`` standard deviations of the values.

    Parameters
    ----------
    exact : Exact
        The task, and how to value it if buckets do not pay.
    index, points
        Training rows and validation points of the task's distances.
    sample : ndarray
        From :func:`draw_sample`.
    tol : float
    runner : Runner
    by_buckets : callable
        Runs the task by buckets.

    Returns
    -------
    Sums
        With the error bound of each mean value.
    """
    task = exact.task
    # Every budget has space for one worker of this kind.
    workers = 1 if runner.max_memory is not None else n_workers(runner.n_jobs)
    limit = 0.9 * tol * _expected_spread(task, workers)
    for _ in range(ROUNDS):
        coarse = choose_coarseness(task.n_train, limit)
        if coarse is None:
            break
        certificate = certify(task, coarse, index, points, sample)
        buckets = Buckets(task, certificate)
        sums = by_buckets(buckets)
        bound = sums.bounds[0] / task.n_val + rounding_allowance(task) + 1 / certificate.rules.value_scale
        spread = (sums.levels.sum(axis=0) / task.n_val).std()
        # The exact values may spread less than these, but by at most the largest bound.
        if bound.max() <= tol * (spread - bound.max()):
            notes = {"tol": tol, "exact_ranks": coarse.first, "buckets": coarse.buckets}
            return replace(sums, error_bound=bound, notes=notes)
        limit *= min(0.9 * tol * spread / bound.max(), 0.9)
        del sums, bound, buckets, certificate  # frees them before the next ones are made
    notes = {"tol": tol, "exact_ranks": task.n_train, "buckets": 0}
    return replace(runner.sums(exact), error_bound=np.full(task.n_train, rounding_allowance(task)), notes=notes)


def rounding_allowance(task: ClassTask) -> float:
    """Return a bound on rounding errors of sums and differences of entries of the rank table."""
    return float(2.0**-46 * (1.0 + task.table.c.sum()))


def _expected_spread(task: ClassTask, workers: int) -> float:
    """Estimate the standard deviation of the values from a few exactly valued points.

    The values are means over the points: differences between points average out, and common effects remain. Only half
    of the common part is assumed, because few points estimate it badly, and a too high estimate costs a second run.
    """
    size = min(task.n_val, max(2, min(8, task.n_val // 64)))
    alone = replace(
        task, group_names=(), n_nearest=0, reference=np.empty((task.n_val, 0), dtype=np.int64), matrix=False
    )
    spare: list[RankWorker] = []

    def value(p: int) -> Floats:
        worker = take_spare(spare) or RankWorker(alone, 1)
        values: Floats = worker.values(slice(p, p + 1), alone.points(1))[0].copy()
        spare.append(worker)
        return values

    variances, total = [], np.zeros(task.n_train)
    chosen = np.linspace(0, task.n_val - 1, size).astype(int).tolist()
    with closing(stream(value, chosen, workers)) as valued:
        for values in valued:
            variances.append(values.var())
            total += values
    single = float(np.mean(variances))
    common = (float(total.var()) - size * single) / max(size * (size - 1), 1)
    return float(np.sqrt(single / task.n_val + max(common, 0.0) / 2))
