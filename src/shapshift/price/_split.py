"""Sharing whole cents in proportion to weights, exactly: integers in, integers out."""

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import numpy.typing as npt


def whole_weights(contributions: npt.NDArray[np.float64]) -> list[int]:
    """Turn non-negative floats into integers in exactly the same proportions."""
    ratios = [float(weight).as_integer_ratio() for weight in contributions]
    common = max(bottom for _, bottom in ratios)  # all are powers of two
    return [top * (common // bottom) for top, bottom in ratios]


def split_cents(
    weights: Sequence[int], total: int, floor: int, cap: int | None, draws: Sequence[bytes]
) -> tuple[list[int], int]:
    """Share ``total`` cents in proportion to weights, each share between ``floor`` and ``cap``.

    Parameters
    ----------
    weights : sequence of int
        At least 0 each; those of weight 0 get the floor.
    total, floor : int
        Cents; ``total`` covers all floors.
    cap : int or None
        At least ``floor``.
    draws : sequence of bytes
        Decides, smallest first, who gets a cent among those whose weights are exactly equal. Where the draws are equal
        as well, none of them does.

    Returns
    -------
    (list of int, int)
        The shares, and what is left.

    Notes
    -----
    Shares are ``clamp(rate * weight, floor, cap)`` at the one rate at which they add up to ``total`` (water-filling).
    They are rounded down, and the cents that are then missing go, one each, to the largest remainders; among equal
    remainders to the larger weight. A larger weight of one owner never lowers its share: its own remainder grows while
    those of the others shrink.
    """
    top, bottom, left = _exact_shares(weights, total, floor, cap)
    shares = [share // bottom for share in top]
    remainders = [share % bottom for share in top]
    odd = sum(top) // bottom - sum(shares)
    classes: dict[tuple[int, int, bytes], list[int]] = {}
    for i, remainder in enumerate(remainders):
        if remainder:
            classes.setdefault((-remainder, -weights[i], draws[i]), []).append(i)
    for key in sorted(classes):
        members = classes[key]
        if len(members) > odd:
            break
        odd -= len(members)
        for i in members:
            shares[i] += 1
    return shares, left + odd


def _exact_shares(weights: Sequence[int], total: int, floor: int, cap: int | None) -> tuple[list[int], int, int]:
    """Shares before rounding as numerators over one denominator, and the whole cents that nobody can take."""
    n, positive = len(weights), [weight for weight in weights if weight]
    if not positive:
        return [floor] * n, 1, total - n * floor
    if cap is not None and (n - len(positive)) * floor + len(positive) * cap <= total:
        shares = [cap if weight else floor for weight in weights]
        return shares, 1, total - sum(shares)
    rate = _rate(weights, positive, total, floor, cap)
    low, high = floor * rate.denominator, None if cap is None else cap * rate.denominator
    raised = [max(weight * rate.numerator, low) for weight in weights]
    return raised if high is None else [min(share, high) for share in raised], rate.denominator, 0


def _rate(weights: Sequence[int], positive: list[int], total: int, floor: int, cap: int | None) -> Fraction:
    """Cents per unit of weight at which the clamped shares add up to ``total``."""
    if floor == 0 and cap is None:
        return Fraction(total, sum(positive))
    # Between two neighbouring bends the sum is a straight line; find the two that enclose the total.
    bends = {Fraction(0)} | {Fraction(floor, weight) for weight in set(positive)}
    if cap is not None:
        bends |= {Fraction(cap, weight) for weight in set(positive)}
    ordered = sorted(bends)

    def paid(rate: Fraction) -> Fraction:
        low, high = floor * rate.denominator, None if cap is None else cap * rate.denominator
        raised = (max(weight * rate.numerator, low) for weight in weights)
        return Fraction(sum(raised if high is None else (min(share, high) for share in raised)), rate.denominator)

    first, last = 0, len(ordered)  # paid(first) <= total, and total < paid(last)
    while last - first > 1:
        middle = (first + last) // 2
        if paid(ordered[middle]) <= total:
            first = middle
        else:
            last = middle
    start = ordered[first]
    moving = [w for w in positive if start * w >= floor and (cap is None or start * w < cap)]
    missing = total - paid(start)
    return start + missing / sum(moving) if missing else start
