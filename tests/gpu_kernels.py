"""Runs the Triton kernels in Triton's interpreter, beside the engine of the CPU. Started by test_gpu.py."""

import dataclasses
from typing import Any

import numpy as np
import torch

from shapshift.certified import draw_sample
from shapshift.coefficients import rank_table
from shapshift.distances import index_rows, tile_filler
from shapshift.engine import Task, run_task
from shapshift.gpu import core, device, rank_kernels, tiles
from shapshift.gpu.certify import convex_from

core.STEP = tiles.STEP = 8  # the interpreter takes its time


class SortedWindows:
    """In the place of the kernel that sorts windows, which the interpreter needs minutes for."""

    def __getitem__(self, grid: Any) -> Any:
        def run(
            keys: Any, distances: Any, order: Any, unsettled: Any, n: int, id_bits: int, **constants: Any
        ) -> None:  # fmt: skip
            key = keys.sort(1).values
            order.copy_((key & ((1 << id_bits) - 1)).to(torch.int32))
            tied = (key[:, 1:] >> id_bits) == (key[:, :-1] >> id_bits)
            unsettled.copy_((tied & ((key[:, 1:] ^ key[:, :-1]) & 1 == 1)).any(1).to(torch.int32))

        return run


rank_kernels.order_windows = SortedWindows()


def problem(n: int, d: int, metric: str, *, twice: bool = False) -> tuple[Task, Any, Any]:
    rng = np.random.default_rng(d)
    X, Z = rng.normal(size=(n, d)) + 3.0, rng.normal(size=(3, d)) + 3.0
    if twice:
        X[n // 2 :], Z[0] = X[: n - n // 2], X[5]
    index = index_rows(X, metric)
    task = Task(
        fill=tile_filler(index, Z),
        codes=rng.integers(2, size=n).astype(np.int32),
        targets=np.array([0, 1, -1], dtype=np.int32),
        n_classes=2,
        table=rank_table(n, 5, "shapley", "soft"),
        average_ties=True,
        groups=np.array([1, 0, 1]),
        n_groups=2,
        n_nearest=4,
        reference=np.array([[1], [2], [3]]),
    )
    rows = device.place_rows(index, task.codes, draw_sample(index), "cpu")
    rows = dataclasses.replace(rows, kernels=True)
    return task, rows, device._Job(task, index, rows, Z, None, None, False)


def compare(n: int, d: int, metric: str, *, buckets: int | None, twice: bool = False) -> None:
    task, rows, job = problem(n, d, metric, twice=twice)
    right = run_task(task, matrix=False, n_jobs=1, max_memory=None, progress=False)
    coarse = None if buckets is None else core.Coarse(buckets, 100, 1.0, convex_from(job.rules.c))
    result = core.value_points(rows.train, job.rules, job.batch, coarse=coarse)
    found = job.sums(result, None)
    error = np.abs(found.levels - right.levels).sum(axis=0)
    np.testing.assert_array_equal(found.neighborhood.nearest, right.neighborhood.nearest)
    np.testing.assert_array_equal(found.neighborhood.reference_ranks, right.neighborhood.reference_ranks)
    np.testing.assert_allclose(found.entropy, right.entropy, rtol=1e-12)
    np.testing.assert_allclose(found.groups.sum(axis=0), found.levels.sum(axis=0), rtol=1e-9, atol=1e-13)
    if coarse is None:
        assert error.max() < 1e-12, error.max()
        print(f"{metric}, {d} features: exact")
        return
    assert result.inexact.all(), "points were left to the exact kernels"
    bound = result.bounds.numpy()
    assert error.max() > 1e-9, "buckets should be noticed"
    assert (error <= bound + 1e-13).all(), (error / bound).max()
    assert bound.max() < 0.01 * right.levels.sum(axis=0).std()
    print(f"{metric}, {d} features: within its bounds")


compare(1030, 17, "euclidean", buckets=1024, twice=True)
compare(1030, 16, "cosine", buckets=1024)
compare(1030, 2, "euclidean", buckets=None)
