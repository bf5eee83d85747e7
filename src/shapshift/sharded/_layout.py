"""How a certified run over rows in a file is cut up to fit the memory budget."""

from dataclasses import dataclass

import numpy as np

from shapshift._parallel import n_workers
from shapshift.certified import BATCH, STRIP_ROWS, Certificate
from shapshift.distances import TrainingIndex
from shapshift.engine import WORKER_BYTES, Task, block_points, bundle_blocks

# Rows of a shard: long enough to hide the cost of a kernel call, short enough that a few of them are no matter.
SHARD_ROWS = 2**17
LEAST_SHARD = 2**12
# What a round may hold beside the sums when no budget is given.
ROUND_BYTES = 2**31
# Validation points of one round, at most.
ROUND_POINTS = 1024


@dataclass(frozen=True)
class Layout:
    """How a run is cut up to fit the memory budget.

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
class Costs:
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


def costs(task: Task, index: TrainingIndex, certificate: Certificate, shard: int, handed_in: bool = False) -> Costs:
    """Count what a run holds; a worker of a cluster has its sums once more to hand them in, and once to send them."""
    n, d, room, words = task.n_train, index.rows.shape[1], certificate.room, 2 * certificate.rules.buckets
    cells = task.levels.size + min(task.n_groups, block_points(task)) + 1
    sums = task.levels.size + task.n_groups + 1
    bundles = sums if bundle_blocks(-(-task.n_val // block_points(task))) > 1 else 0
    return Costs(
        # Sums, those of a bundle of blocks, and the rank table in its two forms.
        fixed=8 * n * (sums * (3 if handed_in else 1) + bundles + 6)
        + 8 * task.n_val * (4 + task.n_nearest)
        + 8 * task.reference.size,
        worker=shard * (16 * d + 2 * BATCH + 16 * cells) + BATCH * (12 * room + 8 * STRIP_ROWS) + WORKER_BYTES,
        point=3 * 12 * room + 16 * words + 32 * d,
        images=2 * n,
        # Bounds and their checks, while the table is still there; then what becomes of the sums.
        end=8 * n * (sums + max(10, task.levels.size + 3)),
    )


def make_layout(
    task: Task,
    index: TrainingIndex,
    certificate: Certificate,
    *,
    n_jobs: int | None,
    max_memory: int | None,
    handed_in: bool = False,
) -> Layout:
    """Choose shards, rounds and workers for a memory budget.

    Raises
    ------
    ValueError
        If even one worker with the shortest shards and one block of points needs more than ``max_memory``.
    """
    block = block_points(task)
    shard = min(SHARD_ROWS, task.n_train)
    workers = min(n_workers(n_jobs), -(-task.n_train // shard))
    cost = costs(task, index, certificate, shard, handed_in)
    free = ROUND_BYTES
    if max_memory is not None:
        tight = costs(task, index, certificate, min(LEAST_SHARD, shard), handed_in)
        least = -(-16 * max(tight.fixed + tight.worker + block * tight.point, tight.end) // 15)
        if max_memory < least:
            raise ValueError(
                f"The 'max_memory' parameter must be at least {np.ceil(least / 1e5) / 10:.1f}MB for {task.n_train} "
                f"training rows in a file, {task.n_val} validation points and {task.n_groups} groups. Got "
                f"{max_memory / 1e6:.4g}MB instead. Raise it, or value fewer groups at a time."
            )
        free = max_memory * 15 // 16 - cost.fixed
        # All workers first, if shorter shards allow it.
        while shard > LEAST_SHARD and free < workers * cost.worker + block * cost.point:
            shard = max(shard // 2, LEAST_SHARD)
            cost = costs(task, index, certificate, shard, handed_in)
        workers = max(1, min(workers, (free - block * cost.point) // cost.worker))
        free -= workers * cost.worker
    keep = free >= block * (cost.point + cost.images)
    blocks = min(max(free // (block * (cost.point + keep * cost.images)), 1), max(ROUND_POINTS // block, 1))
    return Layout(int(shard), int(blocks * block), bool(keep), int(workers), block)
