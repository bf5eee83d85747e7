"""Check and time valuing on a GPU. Beside shapshift (``pip install --no-deps . lazy_loader``) add torch and Triton.

``python benchmarks/gpu.py`` prints a table: pairs (training row x validation point) per second of the exact and the
certified method, whether the values are right, and how far the GPU's own copy speed was used.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
import triton

from shapshift.engine.gpu.certify import CertifiedResult, certify_points
from shapshift.engine.gpu.core import Batch, Result, Rules, Train, value_points

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
    sample = rows[:, torch.randperm(n, device=device)[: min(8192, 1 << (n.bit_length() - 2))]].contiguous()
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
    """Sums over all points, straight from the definition, one point at a time."""
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


def copy_speed() -> float:
    """Bytes per second that a copy on the GPU moves, read and written."""
    source = torch.empty(2**31, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    target.copy_(source)
    return 2 * source.numel() / min(seconds(lambda: target.copy_(source), 10))


def total(result: Result) -> torch.Tensor:
    return result.sums.sum(0)


def check(n: int, m: int, d: int) -> dict[str, float]:
    """Errors in standard deviations of the values, on a size that the definition can be computed for."""
    train, rules, batch = problem(n, m, d, seed=1)
    right = reference_sums(train, rules, batch)
    spread = right.std()
    exact = value_points(train, rules, batch)
    again = value_points(train, rules, batch)
    certified = certify_points(train, rules, batch, tol=1e-3, allowance=0.0)
    error = (total(certified.result) - right).abs() / m
    return {
        "exact": float((total(exact) - right).abs().max() / spread),
        "exact_relative": float(((total(exact) - right).abs() / right.abs().clamp(min=1e-6 * float(spread))).max()),
        "sorted_points": float(exact.sorted.sum()),
        "same_bits": float((exact.sums == again.sums).all()),
        "certified": float(error.max() * m / spread),
        "bound": float(certified.bound.max() * m / spread),
        "worst_use_of_bound": float((error / certified.bound.clamp(min=1e-300)).max()) if certified.coarse else 0.0,
    }


def breakdown(function: Callable[[], object], pairs: int) -> list[tuple[str, float]]:
    """Picoseconds a pair, kernel by kernel."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    steps: dict[str, float] = {}
    for event in profile.key_averages():
        # Kernels of torch go by what they do: they are many, short, and have names as long as this line.
        name = event.key if event.key.isidentifier() else "torch: sort" if "sort" in event.key else "torch: other"
        steps[name] = steps.get(name, 0.0) + event.device_time_total * 1e6 / pairs
    return sorted(((name, ps) for name, ps in steps.items() if ps >= 0.01), key=lambda step: -step[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--points", type=int, default=10_000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--tol", type=float, default=1e-3)
    parser.add_argument("--json", type=Path, help="also write the figures there")
    chosen = parser.parse_args()
    n, m, d = chosen.rows, chosen.points, chosen.features
    figures: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(),
        "date": datetime.now(UTC).date().isoformat(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "rows": n,
        "points": m,
        "features": d,
    }
    print(f"{figures['gpu']}, torch {figures['torch']}, triton {figures['triton']}", flush=True)
    speed = copy_speed()
    print(f"copy: {speed / 1e12:.2f} TB/s", flush=True)
    for size in ((3_000, 96, 5), (300_000, 96, d)):
        checked = figures["check"] = check(*size)
        print(f"check {size}: " + ", ".join(f"{name} {value:.3g}" for name, value in checked.items()), flush=True)
    train, rules, batch = problem(n, m, d, seed=0)
    pairs = n * m
    results: list[Result] = []
    exact_run = lambda: results.append(value_points(train, rules, batch))  # noqa: E731
    exact = median(seconds(exact_run, chosen.repeats))
    found: list[CertifiedResult] = []
    certify = lambda: found.append(certify_points(train, rules, batch, tol=chosen.tol, allowance=0.0))  # noqa: E731
    certified = median(seconds(certify, chosen.repeats + 1)[1:])
    right, last = total(results[-1]), found[-1]
    print(
        f"points left to torch.sort: exact {int(results[-1].sorted.sum())}, certified {int(last.result.sorted.sum())}"
    )
    spread = right.std()
    error = (total(last.result) - right).abs()
    coarse = last.coarse
    # What crosses the memory for every pair. Exact: a distance written and read; a key and a value zeroed, added to (it
    # is read and written) and read; an order written and read twice. Certified: a cell written and read twice.
    for name, took, floor in (("exact", exact, 8 * 2 + 2 * 8 * 4 + 4 * 3), ("certified", certified, 2 * 3)):
        rate = pairs / took
        share = rate * floor / speed
        print(f"{name}: {took:.3f} s, {rate / 1e9:.1f} G pairs/s, {floor} B a pair, {share:.0%} of the copy speed")
        figures[name] = {"seconds": took, "pairs_per_second": rate, "bytes_per_pair": floor, "share_of_copy": share}
        figures[name]["picoseconds"] = dict(breakdown(exact_run if name == "exact" else certify, pairs))
    print(
        f"certified: largest bound {float(last.bound.max() * m / spread):.2e}, "
        f"mean {float(last.bound.mean() * m / spread):.2e}, true error {float(error.max() / spread):.2e} standard "
        f"deviations; {coarse}, {last.rounds} rounds, "
        f"{int((~last.result.inexact).sum())} points exactly; error above bound: {bool((error > last.bound * m).any())}"
    )
    for name in ("exact", "certified"):
        steps = figures[name]["picoseconds"].items()
        print(f"{name}, picoseconds a pair: " + "; ".join(f"{kernel} {ps:.2f}" for kernel, ps in steps))
    figures |= {
        "copy_bytes_per_second": speed,
        "tol": chosen.tol,
        "bound": float(last.bound.max() * m / spread),
        "error": float(error.max() / spread),
        "coarse": None if coarse is None else {"buckets": coarse.buckets, "first": coarse.first},
    }
    assert math.isfinite(float(right.sum()))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
