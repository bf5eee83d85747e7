"""Certified values of training rows that stay in a file, on this machine or on a cluster.

Here threads share the shards, and as many points as memory allows go through each pass. On a cluster a worker makes
both passes for a few blocks of points.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._clusters import Cluster, active_cluster
from shapshift._progress import progress_bar
from shapshift.boundary import nearest_level
from shapshift.certified import Certificate
from shapshift.checkpoint import Checkpoint
from shapshift.distances import TrainingIndex
from shapshift.engine import Neighborhood, Points, Sums, Task, bundle_blocks
from shapshift.running import Part, Totals, work_off
from shapshift.sharded._layout import Layout, make_layout
from shapshift.sharded._run import ShardedRun
from shapshift.sharded._sums import ShardTotals

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ShardedJob:
    """A run over rows in a file, cut into blocks of points; :class:`shapshift.running.Job` says what methods do."""

    task: Task
    index: TrainingIndex
    points_given: Any
    certificate: Certificate
    layout: Layout
    bundle: int
    excluded: Indices | None
    scratch: str | None

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return -(-self.task.n_val // self.layout.block)

    @property
    def save_every(self) -> int:
        """Progress can be written down after every block."""
        return 1

    def span(self, blocks: range) -> slice:
        """Say which validation points consecutive blocks have."""
        block, n_val = self.layout.block, self.task.n_val
        return slice(min(blocks.start * block, n_val), min(blocks.stop * block, n_val))

    def points(self, size: int) -> Points:
        """Room for what is kept of so many points."""
        return self.task.points(size, matrix=False)

    def totals(self) -> Totals:
        """Room for sums."""
        return ShardTotals(self.task, self.layout.block, self.bundle)

    def run(self, bundle: int) -> ShardedRun:
        """Return a run with nothing done yet."""
        return ShardedRun(
            self.task, self.index, self.points_given, self.certificate, self.layout, self.excluded, self.scratch, bundle
        )

    def value(self, block: int, points: Points, advance: Callable[[int], None]) -> Part:
        """Value the points of a block."""
        part = self.hand_in(range(block, block + 1))
        assert part.points is not None
        points.put(slice(None), part.points)
        advance(part.points.entropy.size)
        return part

    def hand_in(self, blocks: range) -> Part:
        """Value consecutive blocks and add them up; more than one are a bundle."""
        task, span, run = self.task, self.span(blocks), self.run(bundle=1)
        run.run(span, lambda steps: None)
        points, n_levels = run.kept[span], task.levels.size
        counts = np.bincount(nearest_level(points.entropy, task.levels), minlength=n_levels)
        names = np.unique(task.groups[span]) if task.n_groups else np.empty(0, dtype=np.int64)
        rows = np.concatenate([np.arange(n_levels), n_levels + names, [n_levels + task.n_groups]])
        cells = rows.copy()
        cells[:n_levels][counts == 0] = -1
        return Part(cells, counts, run.totals.sums[rows], len(blocks), points)

    def take_back(self, part: Part) -> None:
        """Nothing is used again."""


def run_sharded(
    task: Task,
    index: TrainingIndex,
    points: Any,
    certificate: Certificate,
    *,
    excluded: Indices | None,
    scratch: str | None,
    matrix: bool,
    n_jobs: int | None,
    max_memory: int | None,
    progress: bool | None,
    checkpoint: Checkpoint | None = None,
    **_: Any,
) -> Sums:
    """Run by buckets, shard by shard; see :func:`shapshift.certified.run_certified` for the rest."""
    if matrix:
        raise ValueError(
            "The 'matrix' parameter must be False for method='certified' on training rows that stay in a file. Ask for "
            "exact values, or load the rows."
        )
    cluster = active_cluster(n_jobs)
    away = cluster is not None
    layout = make_layout(task, index, certificate, n_jobs=1 if away else n_jobs, max_memory=max_memory, handed_in=away)
    bundle = bundle_blocks(-(-task.n_val // layout.block))
    job = ShardedJob(task, index, points, certificate, layout, bundle, excluded, scratch)
    if cluster is None:
        totals, kept = _run_here(job, progress, checkpoint)
    else:
        totals, kept = _run_there(job, cluster, progress, checkpoint)
    n_levels = task.levels.size
    return Sums(
        levels=totals.sums[:n_levels],
        level_counts=np.bincount(nearest_level(kept.entropy, task.levels), minlength=n_levels),
        groups=totals.sums[n_levels:-1],
        bounds=totals.sums[-1:],
        entropy=kept.entropy,
        matrix=None,
        neighborhood=Neighborhood(kept.nearest, kept.reference_ranks if task.reference.size else None),
    )


def _run_here(job: ShardedJob, progress: bool | None, checkpoint: Checkpoint | None) -> tuple[Totals, Points]:
    run, stage = job.run(job.bundle), None if checkpoint is None else checkpoint.next_stage()
    if stage is not None:
        stage.restore(run.totals, run.kept)
    rest = job.span(range(run.totals.done, job.n_blocks))
    with progress_bar("Valuing", job.task.n_val, progress) as advance:
        advance(rest.start)
        run.run(rest, advance, stage)
    return run.totals, run.kept


def _run_there(
    job: ShardedJob, cluster: Cluster, progress: bool | None, checkpoint: Checkpoint | None
) -> tuple[Totals, Points]:
    return work_off(
        job,
        workers=cluster.workers,
        wave=2 * cluster.workers,
        cluster=cluster,
        unit=job.bundle if job.n_blocks // job.bundle >= 2 * cluster.workers else 1,
        checkpoint=checkpoint,
        progress=progress,
    )
