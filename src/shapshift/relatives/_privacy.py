"""The Gaussian mechanism, calibrated exactly."""

import math

from scipy.special import log_ndtr


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    r"""Smallest standard deviation of Gaussian noise that makes a release (epsilon, delta)-differentially private.

    The condition is the exact one of Balle and Wang (2018), valid for every epsilon; the textbook
    :math:`\sqrt{2\ln(1.25/\delta)}\,\Delta/\epsilon` holds for epsilon below 1 only, and is larger.

    Parameters
    ----------
    epsilon, delta : float
    sensitivity : float
        The most that one row can change the released numbers, as a Euclidean distance.

    Returns
    -------
    float

    Examples
    --------
    >>> round(gaussian_sigma(1.0, 1e-5, 1.0), 3), round(math.sqrt(2 * math.log(1.25e5)), 3)
    (3.731, 4.845)
    """
    low, high = 0.0, 1.0
    while privacy_loss(epsilon, high) > delta:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (middle, high) if privacy_loss(epsilon, middle) > delta else (low, middle)
    return high * sensitivity


def privacy_loss(epsilon: float, sigma: float) -> float:
    """Smallest delta for which Gaussian noise on a number of sensitivity 1 is (epsilon, delta)-private.

    Examples
    --------
    >>> privacy_loss(0.0, 1e9) < 1e-9 < privacy_loss(1.0, 1.0) < 1
    True
    """
    first = float(log_ndtr(1 / (2 * sigma) - epsilon * sigma))
    second = epsilon + float(log_ndtr(-1 / (2 * sigma) - epsilon * sigma))
    return math.exp(first) - math.exp(second) if first > second else 0.0
