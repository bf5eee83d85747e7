"""The few sums behind a correction: arrays in, numbers out."""

import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def weighted_mean(levels: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """Mean over levels, one after the other: equal rows get equal bits, as a matrix product would not promise."""
    total = np.zeros(levels.shape[1])
    for scores, count in zip(levels, counts, strict=True):
        total += count * scores
    total /= counts.sum()
    return total


def exact_shift(scores: Floats, wanted: int) -> float:
    """Return the shift after which ``wanted`` scores are positive, or as nearly as ties allow."""
    distinct, counts = np.unique(scores, return_counts=True)
    at_least = np.append(counts[::-1].cumsum()[::-1], 0)  # how many rows reach each distinct score, and more than all
    cut = at_least.size - 1 - int(np.abs(at_least[::-1] - wanted).argmin())
    if cut == distinct.size:
        return -max(float(distinct[-1]), 0.0)
    high = float(distinct[cut])
    if cut == 0:
        if high > 0:
            return 0.0
        room = (float(distinct[1]) - high) / 2 if distinct.size > 1 else -high
        return -high + max(room, 2 * float(np.spacing(-high)))
    low = float(distinct[cut - 1])
    middle = low / 2 + high / 2
    return -middle if high - middle > 0 >= low - middle else -low  # neighbouring numbers have nothing in between


def sum_factor(values: Floats, target: float) -> float | None:
    """Return r > 0 such that r times the positive part plus 1/r times the rest sums to ``target``, if there is one."""
    gains, losses = float(values[values > 0].sum()), -float(values[values <= 0].sum())
    if gains > 0 and losses > 0:
        root = math.hypot(target, 2 * math.sqrt(gains) * math.sqrt(losses))
        # Two forms of one root of r^2 gains - r target - losses = 0, each without cancellation where it is used.
        return (target + root) / (2 * gains) if target > 0 else 2 * losses / (root - target)
    if gains > 0 and target > 0:
        return target / gains
    if losses > 0 and target < 0:
        return losses / -target
    return 1.0 if gains == losses == target else None
