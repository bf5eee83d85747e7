"""Certified values on a device: how coarse buckets may be, whether the bounds hold, and what to do if not."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from shapshift.gpu.core import Batch, Coarse, Result, Rules, Train, value_points

Tensor = Any  # torch is an optional dependency that mypy does not look at

# Cells have 16 bits: two for each bucket, and one for every near row that there is room for.
MOST_BUCKETS = 24 * 1024
MOST_NEAR = 6000
# Buckets are walked over so many at a time.
BUCKET_STEP = 1024
# How large the average bound is (see mean_bound), and how much larger the largest one; both are measured in every run.
MEAN_BOUND = 0.6
HUBS = 4.0
ROUNDS = 6


@dataclass(frozen=True)
class CertifiedResult:
    """Values with bounds.

    Attributes
    ----------
    result : Result
    bound : tensor of shape (N,)
        How far the mean over the points can be off.
    coarse : Coarse or None
        None if the values are exact.
    rounds : int
    """

    result: Result
    bound: Tensor
    coarse: Coarse | None
    rounds: int


def certify_points(
    train: Train,
    rules: Rules,
    batch: Batch,
    *,
    tol: float,
    allowance: float,
    memory: int | None = None,
    kernels: bool = True,
    advance: Callable[[int], None] = lambda points: None,
) -> CertifiedResult:
    """Value so that no mean over the points is off by more than ``tol`` standard deviations of the means.

    Buckets and near rows are chosen from an estimate, bounds are measured, and the choice is corrected until they are
    small enough; if buckets cannot make them so, values are exact. ``allowance`` is for rounding.
    """
    n, m = train.n, len(batch)
    rounds = 0
    if kernels:
        limit = tol * math.sqrt(_pair_variance(train, rules, batch, memory) / m) / HUBS
        convex = convex_from(rules.c)
        for rounds in range(1, ROUNDS + 1):
            coarse = choose(n, 0.9 * limit, convex)
            if coarse is None:
                break
            result = value_points(train, rules, batch, coarse=coarse, memory=memory, advance=advance)
            # A bound is a sum of float32 numbers, rounded up when they were made.
            bound = result.bounds * (1.0001 / m) + allowance
            largest, mean = float(bound.max()), float(bound.mean())
            spread = float((result.sums[: rules.n_levels].sum(0) / m).std(correction=0))
            # The exact values can be less spread out than these, but by no more than the largest bound.
            if largest <= tol * (spread - largest):
                return CertifiedResult(result, bound, coarse, rounds)
            # The largest bound is `largest / mean` times the mean, and the mean `mean / coarse.mean_bound` times its
            # estimate, or somewhat more with finer buckets.
            limit = tol * spread * coarse.mean_bound / largest * 0.9**rounds
    result = value_points(train, rules, batch, memory=memory, kernels=kernels, advance=advance)
    return CertifiedResult(result, torch.full_like(result.bounds, allowance), None, rounds)


def mean_bound(n_rows: int, first: int, buckets: int) -> float:
    """Estimate the bound of the average row on one point.

    Buckets that grow in proportion to their rank, from rank ``first`` to N, have bounds that sum to about half the
    squared logarithm of N / first, divided by their number; buckets of a sampled map are somewhat worse.
    """
    return MEAN_BOUND * math.log(n_rows / first) ** 2 / (buckets * n_rows)


def choose(n_rows: int, limit: float, convex: int) -> Coarse | None:
    """Fewest near rows and then fewest buckets that keep the average bound below a limit; None if there are none."""
    first = 256
    while 8 * first <= n_rows and first <= MOST_NEAR:
        buckets = mean_bound(n_rows, first, 1) / limit if limit > 0 else math.inf
        if buckets <= MOST_BUCKETS:
            buckets = max(math.ceil(buckets / BUCKET_STEP), 4) * BUCKET_STEP
            return Coarse(buckets, first, mean_bound(n_rows, first, buckets), convex)
        first = first * 5 // 4
    return None


def convex_from(c: Tensor) -> int:
    """First rank from which on the drops of a rank table do not grow any more, but for their rounding."""
    drops = c[:-1] - c[1:]
    growing = torch.nonzero(drops.diff() > 2.0**-50 * c[0])
    return int(growing[-1]) + 2 if growing.numel() else 0


def _pair_variance(train: Train, rules: Rules, batch: Batch, memory: int | None) -> float:
    """Variance of a row's value on one point, from a few points.

    Were the points unrelated, means over them would have this variance divided by their number; what points have in
    common only adds to it.
    """
    spreads: list[Tensor] = []
    some = torch.linspace(0, len(batch) - 1, min(len(batch), 8), device=train.codes.device).round().to(torch.int64)
    value_points(
        train, rules, batch[some], memory=memory, keep=lambda here, values: spreads.extend(values.var(1, correction=0))
    )
    return float(torch.stack(spreads).mean())
