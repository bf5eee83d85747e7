"""Check and time valuation on a GPU. Needs shapshift (``pip install --no-deps . lazy_loader``), torch and Triton.

``python benchmarks/gpu.py`` prints a table by numbers of features and of rows: pairs (training row x validation point)
per second of the exact and the certified method, next to float64 matrix products of the same sizes, and a check of the
values.
"""

import argparse
import itertools
import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

from shapshift.engine.gpu.certify import certify_points
from shapshift.engine.gpu.core import Batch, Result, Rules, Train, sample_size, value_points

K = 5
CLASSES = 2
LEVELS = (0.0, 0.500402423538, 0.673011667009)  # entropies of five labels of two classes


def rank_table(n: int) -> tuple[torch.Tensor, float, float]:
    """Soft Shapley table c, and beta(M) = a M + b."""
    rank = torch.arange(1, n + 1, dtype=torch.float64)
    harmonic = sum(1 / k for k in range(1, K + 1))
    c = (harmonic - 1 + (n - 1) * rank.clamp(max=K) / (rank * K)) / (n - 1)
    return c, -(harmonic - 1) / (n * (n - 1)), -1 / (CLASSES * n)


def problem(n: int, m: int, d: int, seed: int, device: str = "cuda") -> tuple[Train, Rules, Batch]:
    torch.manual_seed(seed)
    rows = torch.randn(d, n, dtype=torch.float64, device=device)
    codes = torch.randint(CLASSES, (n,), dtype=torch.int32, device=device)
    targets = torch.randint(CLASSES, (m,), dtype=torch.int32, device=device)
    c, per_match, constant = rank_table(n)
    sizes = torch.bincount(codes, minlength=CLASSES).double()
    levels = torch.tensor(LEVELS, dtype=torch.float64)
    sample = rows[:, torch.randperm(n, device=device)[: sample_size(n, n)]].contiguous()
    train = Train(rows, codes, 0, sample)
    rules = Rules(
        c=c.to(device), tail=torch.cat([c.flip(0).cumsum(0).flip(0), torch.zeros(1, dtype=torch.float64)]).to(device),
        edges=((levels[1:] + levels[:-1]) / 2).to(device), n_classes=CLASSES, depth=5, n_nearest=0, n_groups=0,
        average=True,
    )  # fmt: skip
    batch = Batch(
        points=torch.randn(m, d, dtype=torch.float64, device=device),
        targets=targets,
        bases=per_match * sizes[targets.long()] + constant,
        groups=torch.zeros(m, dtype=torch.int64, device=device),
        excluded=None,
        reference=torch.empty(m, 0, dtype=torch.int64, device=device),
    )
    return train, rules, batch


def reference_sums(train: Train, rules: Rules, batch: Batch) -> torch.Tensor:
    """Sums over all points, directly from the definition, one point at a time."""
    total = torch.zeros(train.n, dtype=torch.float64, device=train.codes.device)
    c = rules.c
    for point, target, base in zip(batch.points, batch.targets, batch.bases, strict=True):
        order = ((train.columns - point[:, None]) ** 2).sum(0).argsort()
        match = (train.codes[order] == target).double()
        following = torch.cat([match[1:], match.new_zeros(1)])
        # v_r = v_{r+1} + (a_r - a_{r+1}) c_r
        total[order] += ((match - following) * c).flip(0).cumsum(0).flip(0) + base
    return total


def seconds(function: Callable[[], object], repeats: int) -> list[float]:
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        start = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return times


def product_seconds(train: Train, batch: Batch) -> float:
    """Seconds of the float64 matrix product of points and rows, in pieces that fit in memory."""
    step = max(1, 2**28 // train.n)

    def multiply() -> None:
        for some in batch.points.split(step):
            some @ train.columns

    return median(seconds(multiply, 3)[1:])


def total(result: Result) -> torch.Tensor:
    return result.sums.sum(0)


def check(train: Train, rules: Rules, batch: Batch, tol: float) -> dict[str, float]:
    """Errors in standard deviations of the values, on few enough points to compute the definition."""
    m = len(batch)
    right = reference_sums(train, rules, batch)
    spread = right.std()
    exact, again = (value_points(train, rules, batch) for _ in range(2))
    certified = certify_points(train, rules, batch, tol=tol, allowance=1e-15)
    error = (total(certified.result) - right).abs() / m
    return {
        "exact": float((total(exact) - right).abs().max() / spread),
        "same_bits": float((exact.sums == again.sums).all()),
        "certified": float(error.max() * m / spread),
        "bound": float(certified.bound.max() * m / spread),
        "worst_use_of_bound": float((error / certified.bound.clamp(min=1e-300)).max()),
    }


def breakdown(function: Callable[[], object], pairs: int) -> dict[str, float]:
    """Picoseconds per pair, by kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    steps: dict[str, float] = {}
    for event in profile.key_averages():
        # Library kernels are grouped by purpose: there are many, and their names are as long as this line.
        known = next((word for word in ("sort", "gemm") if word in event.key.lower()), "other")
        name = event.key if event.key.isidentifier() and "gemm" not in event.key else f"library: {known}"
        steps[name] = steps.get(name, 0.0) + event.device_time_total * 1e6 / pairs
    return dict(sorted(((name, ps) for name, ps in steps.items() if ps >= 0.01), key=lambda step: -step[1]))


def measure(n: int, m: int, d: int, repeats: int, tol: float) -> dict[str, Any]:
    """One row of the table."""
    train, rules, batch = problem(n, m, d, seed=0)
    figures: dict[str, Any] = {"rows": n, "points": m, "features": d}
    figures["check"] = check(train, rules, batch[torch.arange(min(m, 32), device="cuda")], tol)
    figures["product"] = n * m / product_seconds(train, batch)
    last: dict[str, Any] = {}

    def exact() -> None:
        last.pop("exact", None)
        last["exact"] = value_points(train, rules, batch)

    def certified() -> None:
        last.pop("certified", None)
        last["certified"] = certify_points(train, rules, batch, tol=tol, allowance=1e-15)

    for name, run in (("exact", exact), ("certified", certified)):
        took = median(seconds(run, repeats + 1)[1:])
        figures[name] = {"seconds": took, "pairs_per_second": n * m / took, "picoseconds": breakdown(run, n * m)}
    right, found = total(last["exact"]), last["certified"]
    spread = float(right.std())
    error = (total(found.result) - right).abs()
    figures["exact"]["sorted"] = int(last["exact"].sorted.sum())
    figures["certified"] |= {
        "bound": float(found.bound.max()) * m / spread,
        "error": float(error.max()) / spread,
        "error_above_bound": bool((error > found.bound * m).any()),
        "exact_points": int((~found.result.inexact).sum()),
        "rounds": found.rounds,
        "coarse": None if found.coarse is None else {"buckets": found.coarse.buckets, "first": found.coarse.first},
    }
    return figures


def show(figures: dict[str, Any]) -> None:
    checked, exact, certified = figures["check"], figures["exact"], figures["certified"]
    rate = {name: f"{figures[name]['pairs_per_second'] / 1e9:6.1f}" for name in ("exact", "certified")}
    print(
        f"N={figures['rows']:>10,} m={figures['points']:>6,} d={figures['features']:>5,}: float64 product "
        f"{figures['product'] / 1e9:6.1f} G pairs/s, exact {rate['exact']}, certified {rate['certified']}"
    )
    print(
        f"  against the definition: exact {checked['exact']:.1e}, certified {checked['certified']:.1e} standard "
        f"deviations, {checked['worst_use_of_bound']:.2f} of the bound, same bits twice: {bool(checked['same_bits'])}"
    )
    print(f"  exact: {exact['sorted']} points sorted by torch; ps: {_steps(exact)}")
    print(
        f"  certified: bound {certified['bound']:.1e}, error {certified['error']:.1e}, above its bound: "
        f"{certified['error_above_bound']}, {certified['coarse']}, {certified['rounds']} rounds, "
        f"{certified['exact_points']} points exactly; ps: {_steps(certified)}",
        flush=True,
    )


def _steps(figures: dict[str, Any]) -> str:
    return "; ".join(f"{kernel} {ps:.2f}" for kernel, ps in figures["picoseconds"].items() if ps >= 0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[20_000, 100_000, 1_000_000, 10_000_000])
    parser.add_argument("--features", type=int, nargs="+", default=[32, 128, 384, 768, 1536])
    parser.add_argument("--points", type=int, help="default: 10,000, fewer for ten million rows")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    chosen = parser.parse_args()
    about: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "tol": chosen.tol,
        "table": [],
    }
    print(f"{about['gpu']}, torch {about['torch']}, triton {about['triton']}", flush=True)
    for n, d in itertools.product(chosen.rows, chosen.features):
        # Memory of the rows and their copies: row by row, and minus their mean.
        if 3.2 * 8 * n * d > 0.75 * torch.cuda.get_device_properties(0).total_memory:
            print(f"N={n:,} d={d:,}: does not fit the GPU's memory")
            continue
        m = chosen.points or max(1_000, min(10_000, 10**10 // n))
        about["table"].append(measure(n, m, d, chosen.repeats, chosen.tol))
        show(about["table"][-1])
        torch.cuda.empty_cache()
        if chosen.json:
            chosen.json.write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
