"""Certified values on a device: choice of the buckets, check of the bounds, and refinement."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from shapshift.engine.gpu.core import Batch, Coarse, Keep, Result, Rules, Train, new_result, room_for, value_points
from shapshift.engine.gpu.values import ordered_values

Tensor = Any  # torch is an optional dependency that mypy does not look at

# Cells have 16 bits: two per bucket, and one for all near rows. Counters of this many buckets take half of the shared
# memory of a multiprocessor of the largest GPUs.
MOST_BUCKETS = 28 * 1024
# Rows of a tile of 64 points have 31 bits.
MOST_ROWS = 2**25
# Number of buckets processed in one step.
BUCKET_STEP = 1024
# Size of the bounds on Gaussian data, in units of the estimates; they are checked after every run.
HUB_BOUND, MEAN_BOUND = 0.8, 2.0
# Costs in picoseconds of a bucket, a near row and a place for one, and time saved by buckets per pair.
BUCKET_COST, ROW_COST, PLACE_COST, EXACT_COST = 40.0, 50.0, 35.0, 55.0
# Longer lists of near rows do not fit the shared memory of a multiprocessor: a place then costs this many times as
# much.
MOST_LISTED, LONG_LIST = 2**14, 8.0
ROUNDS = 6
# Number of pairs that are sorted to estimate the variance.
ESTIMATED_PAIRS = 2**23
# The first points are one in this many, and at least this many; below this number of pairs, they would take longer than
# they save.
FIRST_PART, FEW_POINTS, MANY_PAIRS = 8, 64, 2**30


@dataclass(frozen=True)
class CertifiedResult:
    """Values with bounds.

    Attributes
    ----------
    result : Result
    bound : tensor of shape (N,)
        Bound on the error of the mean over the points.
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
    keep: Keep | None = None,
    memory: int | None = None,
    kernels: bool = True,
    advance: Callable[[int], None] = lambda points: None,
) -> CertifiedResult:
    """Value with no mean over the points off by more than ``tol`` standard deviations of the means.

    Buckets and near rows are chosen from an estimate, bounds are measured, and the choice is refined until they are
    small enough; if buckets cannot achieve this, values are exact. ``allowance`` covers rounding. Values on single
    points (``keep``) are returned once in every round.
    """
    n, m = train.n, len(batch)
    rounds = 0
    if kernels:
        limit = 0.9 * tol * math.sqrt(_pair_variance(train, rules, batch) / m)
        convex = convex_from(rules.c)
        # The first points determine the buckets for the others.
        parts = torch.arange(m, device=train.codes.device).tensor_split([m // FIRST_PART])
        parts = parts if m // FIRST_PART >= FEW_POINTS and m * n >= MANY_PAIRS else (torch.cat(parts),)
        coarse = None
        for rounds in range(1, ROUNDS + 1):
            result, here = new_result(train, rules, batch), limit
            for todo in parts:
                coarse = choose(n, here, convex, train.sample.shape[1], 2 * max(rules.depth, rules.n_nearest))
                if coarse is None:
                    break
                value_points(
                    train, rules, batch, coarse=coarse, keep=keep, memory=memory, advance=advance, result=result,
                    todo=todo,
                )  # fmt: skip
                # A bound is a sum of float32 numbers that were rounded up.
                bound = result.bounds * (1.0001 / m) + allowance
                largest, done = float(bound.max()), todo.numel()
                left = (limit - largest) / (1 - done / m) if done < m else 0.0
                here *= min(max(left * done / max(largest * m, 1e-300), 0.2), 1.5)
            if coarse is None:
                break
            spread = float((result.sums[: rules.n_levels].sum(0) / m).std(correction=0))
            # The exact values may spread less than these, but by at most the largest bound.
            if largest <= tol * (spread - largest):
                return CertifiedResult(result, bound, coarse, rounds)
            limit *= min(0.9 * tol * spread / largest, 0.9)
    result = value_points(train, rules, batch, keep=keep, memory=memory, kernels=kernels, advance=advance)
    return CertifiedResult(result, torch.full_like(result.bounds, allowance), None, rounds)


def bounds_of_one_bucket(n_rows: int, first: int) -> tuple[float, float]:
    """Estimate the bounds of the average row and of a row near all points; they fall with the number of buckets.

    Buckets with sizes in proportion to rank**1.5, from rank R to N, have bounds in proportion to rank**-0.5.
    """
    return MEAN_BOUND / math.sqrt(first * n_rows), HUB_BOUND * (1 - math.sqrt(first / n_rows)) / first


def choose(n_rows: int, limit: float, convex: int, sampled: int, least: int = 0) -> Coarse | None:
    """Cheapest numbers of near rows and of buckets that keep all bounds below a limit; None if exact is cheaper.

    ``least`` is the smallest number of near rows.
    """
    best, cheapest = None, EXACT_COST * n_rows
    first = max(256, least)
    while 8 * first <= n_rows < MOST_ROWS and limit > 0:
        mean, hub = bounds_of_one_bucket(n_rows, first)
        buckets = max(math.ceil(max(mean, hub) / limit / BUCKET_STEP), 4) * BUCKET_STEP
        room = room_for(first, n_rows, sampled)
        places = room * (LONG_LIST if room > MOST_LISTED else 1.0)
        cost = BUCKET_COST * buckets + ROW_COST * first + PLACE_COST * places
        if buckets <= MOST_BUCKETS and cost < cheapest:
            best, cheapest = Coarse(buckets, first, mean / buckets, convex), cost
        first += first // 16
    return best


def convex_from(c: Tensor) -> int:
    """First rank from which the drops of a rank table no longer grow, apart from rounding."""
    drops = c[:-1] - c[1:]
    growing = torch.nonzero(drops.diff() > 2.0**-50 * c[0])
    return int(growing[-1]) + 2 if growing.numel() else 0


def _pair_variance(train: Train, rules: Rules, batch: Batch) -> float:
    """Variance of a row's value on one point, estimated from a few points with labels of rows, ties left aside.

    For unrelated points, means over them would have this variance divided by their number; common effects of the points
    only increase it.
    """
    from shapshift.engine.gpu import tiles

    sizes = torch.bincount(train.codes, minlength=rules.n_classes)
    known = torch.nonzero((batch.targets >= 0) & (sizes[batch.targets.clamp(min=0).to(torch.int64)] > 0)).squeeze(1)
    if not known.numel():
        return 0.0
    together = ESTIMATED_PAIRS // train.n
    count = min(known.numel(), 8, max(together, 2))
    places = torch.linspace(0, known.numel() - 1, count, dtype=torch.float64, device=known.device).round()
    spreads = []
    for here in known[places.to(torch.int64)].split(max(together, 1)):
        some = batch[here]
        there = tiles.padded(batch, here, tiles.POINTS).points
        ordered, order = tiles.fill_distances(train.columns, there, train.metric)[: len(some)].sort(dim=1)
        match = train.codes[order] == some.targets[:, None]
        values = ordered_values(ordered, match, rules.c, rules.tail, some.bases, False)
        spreads.append(values.var(1, correction=0))
    return float(torch.cat(spreads).mean())
