"""Exact values of training rows in a file: keys in memory if they fit, else in a memory-mapped scratch file."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from shapshift.engine import EXACT, Method, RankWorker, Task, make_plan
from shapshift.rowfile import READING_BYTES, spilled

# Points of a tile, if memory allows: reading the rows is then no longer most of the work.
TILE = 8


class SpilledWorker(RankWorker):
    """Exact values whose keys live in a scratch file, for rows too many to keep the keys of one point in memory."""

    def __init__(self, task: Task, batch: int, block: int, scratch: str | None) -> None:
        self.tile = spilled(scratch, (batch, task.n_train), np.float64)
        self.work = spilled(scratch, (2, task.n_train), np.uint64)
        self.keys = spilled(scratch, (task.n_train,), np.float64)
        self.counts = np.zeros(task.n_classes)


def exact_method(
    task: Task, *, scratch: str | None, matrix: bool, n_jobs: int | None, max_memory: int | None, **_: Any
) -> Method:
    """Return how to value exactly within a memory budget: keys in memory if they fit, else in a scratch file."""
    in_memory = replace(EXACT, worker_bytes=lambda task: EXACT.worker_bytes(task) + READING_BYTES, tile=TILE)
    try:
        make_plan(task, method=in_memory, matrix=matrix, n_jobs=n_jobs, max_memory=max_memory)
    except ValueError:
        return Method(
            make_worker=partial(SpilledWorker, scratch=scratch),
            point_bytes=lambda task: 1,
            worker_bytes=lambda task: READING_BYTES,
            batch=lambda task: TILE,
        )
    return in_memory
