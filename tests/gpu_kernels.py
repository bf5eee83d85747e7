"""Runs the Triton kernels in Triton's interpreter, beside the engine of the CPU. Started by test_gpu.py."""

import dataclasses
from typing import Any

import gpu_checks
import numpy as np
import torch
from triton.runtime import interpreter

from shapshift.engine.certified import draw_sample
from shapshift.engine.coefficients import rank_table
from shapshift.engine.exact import Exact
from shapshift.engine.gpu import core, cuda, device, tiles, values
from shapshift.engine.gpu.certify import convex_from
from shapshift.engine.rows.distances import index_rows, tile_filler
from shapshift.engine.runner import Runner
from shapshift.engine.tasks import ClassTask, class_task

core.STEP = tiles.STEP = tiles.BLOCK = 16  # the interpreter takes its time
tiles.LAUNCHED = 32  # several launches for the points of a tile


def fused(builder: Any, x: Any, y: Any, z: Any) -> Any:
    """A multiply-add that is rounded once, which the interpreter's is not."""
    a, b = (torch.as_tensor(np.asarray(part.data)) for part in (x, y))
    product, low = values._product(a, b)
    total, lost = values._sum(product, torch.as_tensor(np.asarray(z.data)))
    return interpreter.TensorHandle((total + (lost + low)).numpy(), z.dtype.scalar)


interpreter.InterpreterBuilder.create_fma = fused


def order_rows(
    there: Any, entries: Any, norms: Any, part: Any, maps: Any, codes: Any, targets: Any, listed: Any, *, average: bool
) -> tuple[Any, ...]:
    """In the place of the CUDA kernels, which put the rows of points in order."""
    p = len(entries)
    known = entries if part is None else part.distances(entries, part.norms, norms)
    distances, order = known.sort(dim=1, stable=True)
    match = codes[order] == targets[:, None]
    mixed, gap = match[:, 1:] != match[:, :-1], distances[:, 1:] - distances[:, :-1]
    unsettled = torch.zeros(p, dtype=torch.int32)
    if part is None:
        unsettled |= (mixed & (gap == 0)).any(1) & average
        mixed[:] = False
    else:
        mixed &= gap <= part.open_gap(norms[:, None], distances[:, 1:])
    at, rank = torch.nonzero(mixed).unbind(1)
    found = min(at.numel(), listed.numel())
    unsettled[at[found:]] = 1
    listed[:found] = (at << 32 | rank + 1)[:found]
    return distances, (2 * order + match).int(), torch.zeros(p, 1, dtype=torch.int32), torch.tensor([found]), unsettled


cuda.most_rows = lambda there: 2**24
cuda.order_rows = order_rows


def problem(
    n: int, d: int, metric: str, *, twice: bool, near: float, whole: bool, groups: int
) -> tuple[ClassTask, Any, Any]:  # fmt: skip
    rng = np.random.default_rng(d)
    X, Z = rng.normal(size=(n, d)) + 3.0, rng.normal(size=(3, d)) + 3.0
    if whole:
        X, Z = (X - 3.0).round(), (Z - 3.0).round()
    if twice:
        X[n // 2 :], Z[0] = X[: n - n // 2], X[5]
    if near:  # closer to each other than products can tell
        X[n // 2 :] = X[: n - n // 2] * (1 + near)
    if metric == "cosine":
        X[7] = 0  # which has no direction
    index = index_rows(X, metric)
    task = class_task(
        rng.integers(2, size=n).astype(np.int32),
        np.array([0, 1, -1], dtype=np.int32),
        2,
        rank_table(n, 5, "shapley", "soft"),
        average_ties=True,
        fill=tile_filler(index, Z),
        groups=np.array([1, 0, 1]) % max(groups, 1),
        group_names=("a", "b")[:groups],
        n_nearest=4,
        reference=np.array([[1], [2], [3]]),
        sampled=np.arange(3, n, 7),
    )
    rows = device.place_rows(index, task.codes, draw_sample(index), "cpu")
    rows = dataclasses.replace(rows, kernels=True)
    return task, rows, device._Job(task, index, rows, Z, None, Runner(progress=False))


def compare(
    n: int, d: int, metric: str, *, buckets: int | None, twice: bool = False, near: float = 0.0, whole: bool = False,
    groups: int = 2,
) -> None:  # fmt: skip
    task, rows, job = problem(n, d, metric, twice=twice, near=near, whole=whole, groups=groups)
    right = Runner(progress=False).sums(Exact(task))
    coarse = None if buckets is None else core.Coarse(buckets, 100, 1.0, convex_from(job.rules.c))
    result = core.value_points(rows.train, job.rules, job.batch, coarse=coarse, keep=job.keep)
    found = job.sums(result)
    error = np.abs(found.levels - right.levels).sum(axis=0)
    np.testing.assert_array_equal(found.points.nearest, right.points.nearest)
    np.testing.assert_array_equal(found.points.reference_ranks, right.points.reference_ranks)
    np.testing.assert_allclose(found.points.entropy, right.points.entropy, rtol=1e-12)
    if groups:
        np.testing.assert_allclose(found.groups.sum(axis=0), found.levels.sum(axis=0), rtol=1e-9, atol=1e-13)
    if coarse is None:
        assert error.max() < 1e-12, error.max()
        for name in ("squares", "group_squares"):
            np.testing.assert_allclose(getattr(found, name), getattr(right, name), rtol=1e-9, atol=1e-18, err_msg=name)
        np.testing.assert_allclose(found.points.values, right.points.values, rtol=1e-9, atol=1e-14)
        about: dict[str, Any] = {"ids": np.arange(n), "parameters": {}, "fingerprint": ""}
        mine, yours = (sums.to_valuation(task, **about) for sums in (found, right))
        np.testing.assert_allclose(mine.standard_error, yours.standard_error, rtol=1e-9)
        np.testing.assert_allclose(mine.group_errors, yours.group_errors, rtol=1e-9)
        print(f"{metric}, {d} features: exact")
        return
    assert result.inexact.all(), "points were left to the exact kernels"
    bound = result.bounds.numpy()
    assert error.max() > 1e-9, "buckets should be noticed"
    assert (error <= bound + 1e-13).all(), (error / bound).max()
    assert bound.max() < 0.01 * right.levels.sum(axis=0).std()
    # What bounds allow squares to be off, and float32.
    matrix = Runner(progress=False).sums(Exact(dataclasses.replace(task, matrix=True))).points.values
    allowed = bound * (2 * np.abs(matrix).max(axis=0) + bound) + 1e-6 * (matrix**2).sum(axis=0)
    assert (np.abs(found.squares - right.squares) <= allowed).all()
    assert (np.abs(found.group_squares - right.group_squares) <= allowed).all()
    assert (np.abs(found.points.values - right.points.values) <= bound[task.sampled] + 1e-13).all()
    print(f"{metric}, {d} features: within its bounds")


def compare_distances(kind: str, metric: str) -> None:
    """Distances have the bits that torch gives them."""
    train, _, batch = gpu_checks.problem(kind, metric, 70, 8, 5)
    found = tiles.fill_distances(train.columns, batch.points, train.metric)
    assert torch.equal(found, values.distances(train.columns, batch.points, train.metric))
    pairs = torch.arange(8 * 70)
    assert torch.equal(tiles.direct_distances(train, batch.points, pairs // 70, pairs % 70).view(8, 70), found)
    print(f"{metric}, {kind}: the same distances")


assert gpu_checks.check_equal_angles("cpu") == "one distance"
for kind in ("Gaussian", "whole numbers", "nearly parallel"):
    compare_distances(kind, "cosine")
    compare_distances(kind, "manhattan")
for kind, metric, d in (("Gaussian", "euclidean", 100), ("near-ties", "cosine", 100), ("copies", "euclidean", 20)):
    assert gpu_checks.check_buckets(kind, metric, 1030, d, "cpu") == "the same cells and near rows for 64 of 64 points"
compare(1030, 17, "euclidean", buckets=1024, twice=True)
compare(1030, 3, "manhattan", buckets=1024)
compare(1030, 2, "manhattan", buckets=None)
compare(1030, 3, "cosine", buckets=None, whole=True)
compare(1030, 16, "cosine", buckets=1024, groups=0)
compare(1030, 2, "euclidean", buckets=None, groups=0)
# With products, whose errors are settled afterwards: of slices, and of a library.
compare(1030, 100, "euclidean", buckets=1024)
compare(1030, 100, "cosine", buckets=1024)
compare(1030, 100, "euclidean", buckets=1024, twice=True)
compare(1030, 100, "euclidean", buckets=1024, near=1e-11)
compare(600, 18, "euclidean", buckets=None, near=1e-14)
compare(600, 18, "cosine", buckets=None)
# More rows are asked for than lists of near rows have places.
task, rows, job = problem(1030, 17, "euclidean", twice=False, near=0.0, whole=False, groups=0)
deep = dataclasses.replace(job.rules, depth=1025)
left = core.value_points(rows.train, deep, job.batch, coarse=core.Coarse(1024, 100, 1.0, 0), keep=job.keep)
assert not left.inexact.any()
torch.testing.assert_close(
    left.sums.sum(0), core.value_points(rows.train, deep, job.batch).sums.sum(0), rtol=0, atol=1e-13
)
