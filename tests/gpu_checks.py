"""Checks a GPU's kernels against plain torch on the CPU. Beside shapshift (``pip install --no-deps . lazy_loader``),
it needs torch and Triton only:

    PYTHONPATH=src python tests/gpu_checks.py

Every metric, few features and many, ties of one label and of several, rows at equal and at nearly equal angles, data
that matrix products find hard, exact and certified values, counting by CUDA kernels and without, sums of values and of
squares, with groups and without, and the values of some rows on single points. tests/test_gpu.py starts it where there
is a GPU; it ends with an error if a check fails. tests/gpu_kernels.py runs what Triton's interpreter can run. The last
lines say what sums of squares cost.
"""

import dataclasses
import itertools
import sys
import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import torch

from shapshift.engine.gpu import cuda, tiles
from shapshift.engine.gpu.certify import certify_points, convex_from
from shapshift.engine.gpu.core import Batch, Coarse, Keep, Result, Rules, Train, value_points
from shapshift.engine.gpu.values import COSINE, EUCLIDEAN, MANHATTAN, distances, short_rows

METRICS = {"euclidean": EUCLIDEAN, "manhattan": MANHATTAN, "cosine": COSINE}
SAMPLED = 2048
# Kinds of features with more ties, or tighter ones, than the kernels settle themselves.
TIED = ("whole numbers", "nearly parallel", "copies of other labels")
# Kinds that matrix products find hard.
HARD = ("near-ties", "far away", "one huge feature", "copies of other labels", "zeros")
Problem = tuple[Train, Rules, Batch]


def features(kind: str, n: int, d: int, random: Any) -> Any:
    if kind == "whole numbers":  # hundreds of ties, zero rows, and equal angles
        return torch.randint(-2, 3, (n, d), generator=random).double()
    rows = torch.randn(n, d, generator=random, dtype=torch.float64) + 0.5
    if kind == "nearly parallel":
        rows = 1e6 + rows
        rows[::50] = 3.0 * rows[0].round()  # parallel to each other
    if kind == "near-ties":  # closer to each other than products can tell
        rows[n // 2 :] = rows[: n - n // 2] * (1.0 + 1e-14)
    if kind == "far away":
        rows += 1e6
    if kind == "one huge feature":
        rows[:, 0] *= 1e8
    if kind == "zeros":  # a row that has no direction, and one whose squares are hardly above zero
        rows[n // 4], rows[n // 5] = 0.0, 1e-160 * rows[0]
    if kind.startswith("copies"):
        rows[n // 2 :] = rows[: n - n // 2].clone()
    return rows


def problem(kind: str, metric: str, n: int, m: int, d: int, *, average: bool = True, k: int = 5) -> Problem:
    random = torch.Generator().manual_seed(n + d)
    rows, points = features(kind, n, d, random), features(kind, m, d, random)
    points[0] = rows[n // 3]
    codes = torch.randint(3, (n,), generator=random).int()
    if kind == "zeros":
        codes[n // 5] = codes[n // 4]
    if kind == "copies":  # of one label
        codes[n // 2 :] = codes[: n - n // 2].clone()
    if metric == "cosine":
        rows, points = short_rows(rows), short_rows(points)
    c = 1 / torch.arange(1, n + 1, dtype=torch.float64).clamp(min=k)  # the hard utility: nothing is passed on at first
    columns = rows.T.contiguous()
    chosen = torch.randperm(n, generator=random)[: min(SAMPLED, 1 << (n.bit_length() - 1))]
    train = Train(columns, codes, METRICS[metric], columns[:, chosen].contiguous())
    rules = Rules(
        c=c,
        tail=torch.nn.functional.pad(c.flip(0).cumsum(0).flip(0), (0, 1)),
        edges=torch.tensor([0.25, 0.55, 0.8, 1.0], dtype=torch.float64),
        n_classes=3,
        depth=5,
        n_nearest=7,
        n_groups=2,
        average=average,
    )
    batch = Batch(
        points=points,
        targets=torch.randint(3, (m,), generator=random).int(),
        bases=torch.zeros(m, dtype=torch.float64),
        groups=torch.arange(m) % 2,
        excluded=None,
        reference=torch.randint(n, (m, 2), generator=random),
    )
    return train, rules, batch


def on(device: str, given: Problem) -> Problem:
    def put(part: Any) -> Any:
        kept = {name: value.to(device) if torch.is_tensor(value) else value for name, value in vars(part).items()}
        return type(part)(**kept)

    train, rules, batch = (put(part) for part in given)
    return train, rules, batch


def check(done: bool, what: str) -> None:
    if not done:
        raise AssertionError(what)


def kept_values(kept: Any, given: Problem, **options: Any) -> tuple[Result, Any]:
    """Value points; also return the values of some rows, or of all, on single points."""
    train, _, batch = given
    n_kept = train.n if kept is None else kept.numel()
    values = torch.full((len(batch), n_kept), torch.nan, dtype=torch.float64, device=train.codes.device)

    def put(here: Any, some: Any) -> None:
        values[here] = some

    rows = None if kept is None else kept.to(train.codes.device)
    return value_points(*given, keep=Keep(rows, put), **options), values.cpu()


def check_bits(one: Result, other: Result) -> None:
    """Check that a second run has the same bits; sums along a single point's ranks, by torch, need not."""
    for name in ("sums", "squares", "bounds") if not bool(one.sorted.any()) else ():
        check(torch.equal(getattr(one, name), getattr(other, name)), f"other bits of {name} in a second run")


def check_squares(found: Result, right: Result, allowed: Any) -> float:
    """Compare sums of squares; return their largest relative difference."""
    check(found.squares.shape == right.squares.shape, "another number of sums of squares")
    difference = (found.squares.cpu() - right.squares).abs()
    check(bool((difference <= allowed).all()), f"squares are off by {float((difference / allowed).max()):.1e} times")
    return float((difference / right.squares.clamp(min=1e-300)).max())


def check_same(found: Result, right: Result) -> float:
    for name in ("nearest", "ranks", "level"):
        check(torch.equal(getattr(found, name).cpu(), getattr(right, name)), f"another {name}")
    check(float((found.entropy.cpu() - right.entropy).abs().max()) < 1e-12, "another entropy")
    return float((found.sums.cpu() - right.sums).abs().max()) / right.entropy.numel()


def check_exact(kind: str, metric: str, n: int, d: int, average: bool, device: str) -> str:
    given = problem(kind, metric, n, 40, d, average=average)
    right, right_matrix = kept_values(None, given, kernels=False)
    there = on(device, given)
    known = tiles.fill_distances(
        there[0].columns, tiles.padded(there[2], torch.arange(40, device=device), tiles.POINTS).points, there[0].metric
    )
    plain = distances(given[0].columns, given[2].points, given[0].metric)
    if metric != "euclidean":  # torch on the CPU does not fuse the squares of the others
        check(torch.equal(known[:40].cpu(), plain), "distances with other bits")
    rows = torch.arange(1, n, 31)
    found, kept = kept_values(rows, there)
    again, matrix = kept_values(None, there)
    check_bits(found, again)
    error = check_same(found, right)
    check(error < 1e-12, f"values are off by {error:.1e}")
    check(float((matrix - right_matrix).abs().max()) < 1e-12, "another matrix")
    check(float((kept - right_matrix[:, rows]).abs().max()) < 1e-12, "other values of the rows that are kept")
    off = check_squares(found, right, 1e-9 * right.squares + 1e-18)
    alone = value_points(there[0], dataclasses.replace(there[1], n_groups=0), there[2])
    difference = float((alone.squares[0] - found.squares.sum(0)).abs().max())
    check(difference < 1e-12 * float(found.squares.sum(0).max()), "squares depend on groups")
    by_torch = float(found.sorted.double().mean())
    # In two dimensions most angles are near 0 or 180 degrees by their cosine: too many rows share an image there.
    # Manhattan distances that are so near to each other are often equal.
    crowded = kind in TIED or (metric, kind) == ("manhattan", "near-ties")
    crowded |= metric == "cosine" and (d == 2 or kind in HARD)
    check(by_torch < 0.2 or crowded, f"torch sorted {by_torch:.0%} of the points")
    return f"off by {error:.0e}, squares by {off:.0e} of theirs, {by_torch:.0%} of the points sorted by torch"


def check_excluded(metric: str, device: str) -> str:
    """Points that do not see one of the rows."""
    train, rules, batch = problem("copies", metric, 3000, 40, 3)
    given = train, rules, dataclasses.replace(batch, excluded=torch.arange(40) - 1)
    rows = torch.arange(1, 3000, 31)
    (right, right_kept), (found, kept) = (
        kept_values(rows, on(where, given), kernels=where != "cpu") for where in ("cpu", device)
    )
    error = check_same(found, right)
    check(error < 1e-12, f"values are off by {error:.1e}")
    check(float((kept - right_kept).abs().max()) < 1e-12, "other values of the rows that are kept")
    return f"off by {error:.0e}, squares by {check_squares(found, right, 1e-9 * right.squares + 1e-18):.0e} of theirs"


def check_certified(kind: str, metric: str, n: int, d: int, shared: bool, device: str) -> str:
    given = problem(kind, metric, n, 40, d)
    right, matrix = kept_values(None, given, kernels=False)
    there = on(device, given)
    rows = torch.arange(1, n, 31)
    coarse = Coarse(2048, 512, 1.0, convex_from(there[1].c))
    if shared:
        check(cuda.kernels(there[0].codes.device) is not None, "the CUDA kernels did not load")
        found, kept = kept_values(rows, there, coarse=coarse)
    else:
        make, cuda.kernels = cuda.kernels, lambda device: None
        try:
            found, kept = kept_values(rows, there, coarse=coarse)
        finally:
            cuda.kernels = make
    levels = given[1].n_levels
    error = (found.sums[:levels].sum(0).cpu() - right.sums[:levels].sum(0)).abs()
    bound = found.bounds.cpu() * 1.0001
    check(bool((error <= bound + 1e-12).all()), f"{float((error / bound).max()):.3g} times the bound")
    check_same(found, right)
    check(bool(((kept - matrix[:, rows]).abs() <= bound[rows] + 1e-12).all()), "a kept value is beyond the bounds")
    # What bounds allow squares to be off, and float32.
    allowed = bound * (2 * matrix.abs().amax(0) + bound) + 1e-6 * matrix.square().sum(0) + 1e-18
    off = check_squares(found, right, allowed)
    check_bits(found, value_points(*there, coarse=coarse))
    alone = value_points(there[0], dataclasses.replace(there[1], n_groups=0), there[2], coarse=coarse)
    difference = (alone.squares[0] - found.squares.sum(0)).abs().cpu()
    check(bool((difference <= allowed).all()), "squares depend on groups")
    share = float(found.inexact.double().mean())
    # Products leave the order of nearly parallel rows open.
    crowded = kind in TIED or (metric, kind) == ("cosine", "one huge feature")
    check(share > 0.5 or crowded, f"buckets served {share:.0%} of the points")
    return (
        f"{float(error.max() / bound.max().clamp(min=1e-300)):.2f} of the bound, squares off by {off:.0e} of theirs, "
        f"buckets for {share:.0%} of the points"
    )


def check_buckets(kind: str, metric: str, n: int, d: int, device: str, room: int = 1024) -> str:
    """Buckets from products are those of direct differences, whatever counts them, and so are near rows."""
    train, _, batch = on(device, problem(kind, metric, n, 64, d))
    buckets, first = 1024, room // 2
    centred = tiles._centred(train, batch)
    maps = tiles._make_maps(train, batch, centred, buckets, first)
    runs = []
    for direct, there in ((True, None), (False, None), (False, cuda.kernels(train.codes.device))):
        rows = dataclasses.replace(train)
        if direct:
            vars(rows)["products"] = None
        shapes: tuple[tuple[tuple[int, ...], Any], ...] = (
            ((64, n), torch.uint16), ((64, buckets), torch.int32), ((64, 32), torch.int32), ((64, room), torch.int32),
            ((64, room), torch.float64), ((64, 32), torch.int32),
        )  # fmt: skip
        placed = tuple(torch.zeros(shape, dtype=kind_, device=device) for shape, kind_ in shapes)
        tiles._put_into_buckets(rows, batch, centred, there, maps, placed, None)
        runs.append(placed)
    right = runs[0]
    served = torch.ones(64, dtype=torch.bool, device=device)
    for found in runs[1:]:
        good = found[5][:, 0] <= tiles.most_open(n)
        served &= good
        for part in (0, 1):
            same = found[part].to(torch.int32) == right[part].to(torch.int32)
            check(bool(same[good].all()), f"{int((~same[good]).sum())} other {('cells', 'counts')[part]}")
        check(bool((found[2][good, 0] == right[2][good, 0]).all()), "another number of near rows")
        for p in torch.nonzero(good).squeeze(1).tolist():
            listed, expected = (sorted(run[3][p, : int(run[2][p, 0])].tolist()) for run in (found, right))
            check(listed == expected, "other near rows")
    crowded = kind == "one huge feature" and (d > 64 or metric == "cosine")
    # All angles with a point of zeros are equal.
    check(crowded or int(served.sum()) >= 62, f"pairs of {64 - int(served.sum())} points were left open")
    return f"the same cells and near rows for {int(served.sum())} of 64 points"


def check_end_to_end(metric: str, device: str) -> str:
    given = problem("Gaussian", metric, 60_000, 200, 20)
    right = value_points(*given, kernels=False)
    found = certify_points(*on(device, given), tol=0.05, allowance=1e-13)
    levels = given[1].n_levels
    means = right.sums[:levels].sum(0) / 200
    error = (found.result.sums[:levels].sum(0).cpu() / 200 - means).abs()
    check(bool((error <= found.bound.cpu()).all()), "beyond the bound")
    check(float(found.bound.max()) <= 0.05 * float(means.std()), "a bound larger than asked for")
    check(found.coarse is not None, "no buckets were used")
    return f"largest error {float((error / found.bound.cpu()).max()):.2f} of its bound"


def check_equal_angles(device: str) -> str:
    """Both cosines are the root of 2/3; all rows of either kind tie, whatever their length."""
    n = 1500
    lengths = torch.arange(1, n + 1, dtype=torch.float64)[:, None]
    kinds = torch.tensor([[-1.0, 1, 0], [0, 1, 1]], dtype=torch.float64)
    rows = short_rows(torch.cat([lengths * kinds[0], lengths * kinds[1]]))
    point = short_rows(torch.tensor([[-1.0, 1, 1]], dtype=torch.float64)).expand(32, 3).contiguous()
    found = tiles.fill_distances(rows.T.contiguous().to(device), point.to(device), COSINE)
    check(found.unique().numel() == 1, f"{found.unique().numel()} different distances")
    parallel = tiles.fill_distances(
        rows.T.contiguous().to(device), rows[5:6].expand(32, 3).contiguous().to(device), COSINE
    )
    check(bool((parallel[:, :n] == 0).all()), "parallel rows apart")
    return "one distance"


def time_squares(certified: bool, groups: int, device: str) -> str:
    """Time a valuation with the sums of squares and without."""
    n, m = 200_000, 1024
    train, rules, batch = on(device, problem("Gaussian", "euclidean", n, m, 32))
    rules = dataclasses.replace(rules, n_groups=groups)
    coarse = Coarse(16_384, 4096, 1.0, convex_from(rules.c)) if certified else None
    kept = torch.arange(0, n, n // 256)

    def seconds() -> float:
        times = []
        for _ in range(8):
            torch.cuda.synchronize()
            start = time.perf_counter()
            kept_values(kept, (train, rules, batch), coarse=coarse)
            torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
        return median(times[3:])

    with_squares, lists = seconds(), tiles._sum_lists
    tiles._sum_lists = lambda *given: [(*part[:3], 0) for part in lists(*given)]
    try:
        without = seconds()
    finally:
        tiles._sum_lists = lists
    return f"{1e3 * with_squares:.2f} ms, without squares {1e3 * without:.2f} ms ({with_squares / without - 1:+.1%})"


def main(device: str = "cuda") -> int:
    checks: list[tuple[str, Callable[[], str]]] = [("equal angles", partial(check_equal_angles, device))]
    for metric, kind in itertools.product(METRICS, ("Gaussian", "copies", "whole numbers", "nearly parallel")):
        for (n, d), average in itertools.product(((2048, 3), (5003, 20), (40_001, 2)), (True, False)):
            name = f"exact, {metric}, {kind}, {n} rows of {d}, ties {'averaged' if average else 'by number'}"
            checks.append((name, partial(check_exact, kind, metric, n, d, average, device)))
        for (n, d), shared in itertools.product(((8192, 3), (20_003, 20), (20_003, 33)), (True, False)):
            name = f"certified, {metric}, {kind}, {n} rows of {d}, counted by {'CUDA' if shared else 'Triton'}"
            checks.append((name, partial(check_certified, kind, metric, n, d, shared, device)))
    for metric, kind, n, d in itertools.product(METRICS, HARD, (3000, 20_003), (20, 130)):
        exact = partial(check_exact, kind, metric, n, d, True, device)
        certified = partial(check_certified, kind, metric, n, d, True, device)
        checks.append((f"exact, {metric}, {kind}, {n} rows of {d}", exact))
        if n > 8192:
            checks.append((f"certified, {metric}, {kind}, {n} rows of {d}", certified))
    for metric, kind, d in itertools.product(("euclidean", "cosine"), ("Gaussian", "copies", *HARD), (20, 130)):
        checks.append(
            (f"buckets, {metric}, {kind}, {d} features", partial(check_buckets, kind, metric, 20_003, d, device))
        )
    checks += [(f"excluded rows, {metric}", partial(check_excluded, metric, device)) for metric in METRICS]
    checks += [(f"to a tolerance, {metric}", partial(check_end_to_end, metric, device)) for metric in METRICS]
    for certified, groups in itertools.product((False, True), (0, 2)):
        name = f"time, {'certified' if certified else 'exact'}, 200000 rows of 32, 1024 points, {groups} groups"
        checks.append((name, partial(time_squares, certified, groups, device)))
    failed = 0
    for name, run in checks:
        start = time.perf_counter()
        try:
            told = run()
        except AssertionError as error:
            failed += 1
            told = f"FAILED: {error}"
        print(f"{name}: {told} ({time.perf_counter() - start:.1f} s)", flush=True)
    print(f"{len(checks) - failed} of {len(checks)} checks passed on {torch.cuda.get_device_name()}")
    return 1 if failed else 0


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("There is no CUDA GPU here.")
    sys.exit(main())
