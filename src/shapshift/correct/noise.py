"""What noise a validation set carries: stated, or estimated from the set itself."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.correct.prior import SAMPLE, Prior, log_normal, log_sum_exp
from shapshift.perturb import GaussianNoise, LaplaceNoise

Floats = npt.NDArray[np.float64]

# Levels at which the likelihood of an unknown noise is computed, in units of the features' standard deviations.
LEVELS = np.concatenate([[0.0], np.geomspace(0.005, 5.0, 61)])
# How much less likely, in units of log likelihood, the ends of a 95% interval are than the best level.
DROP = 1.9207
# Variance that steps have beside that between neighbours, as shares of the latter's mean; see `_fit_floor`.
FLOORS = np.array([0.0, 0.01, 0.03, 0.1, 0.3, 1.0])
# At most so many validation points are used.
MOST_POINTS = 2000


@dataclass(frozen=True)
class Noise:
    """Noise in the units of the table.

    Attributes
    ----------
    std : ndarray of shape (n_features,)
        Standard deviation for each feature.
    add : callable
        ``add(X, rng)`` adds it.
    parameters : dict
        What it is, ready for JSON.
    """

    std: Floats
    add: Callable[[Floats, np.random.Generator], Floats]
    parameters: dict[str, Any]


@dataclass(frozen=True)
class NoiseEstimate:
    """An estimate of the size of the noise.

    Attributes
    ----------
    sigma : float
        The likeliest standard deviation, in units of each feature's standard deviation over the training rows.
    low, high : float
        Ends of a 95% interval (profile likelihood).
    is_zero : bool
        Whether the noise cannot be told apart from none.
    n_points : int
        How many validation points it was estimated from.
    """

    sigma: float
    low: float
    high: float
    is_zero: bool
    n_points: int

    def __str__(self) -> str:
        zero = ", which cannot be told apart from no noise" if self.is_zero else ""
        return f"noise {self.sigma:.3g} [{self.low:.3g}, {self.high:.3g}] standard deviations{zero}"


def resolve_noise(owner: str, noise: Any, model: Any, n_features: int) -> Noise:
    """Turn what the caller gave into standard deviations and a way to add the noise."""
    if isinstance(noise, GaussianNoise):
        bound: Any = noise.bind(model)
        std = np.full(n_features, float(noise.sigma))
        if noise.relative:
            std = std * np.asarray(model.feature_std_)
        return Noise(std, _normal(std), noise.parameters)
    if isinstance(noise, LaplaceNoise):
        bound = noise.bind(model)
        std = np.full(n_features, float(np.sqrt(2.0) * bound.scale))
        return Noise(std, lambda X, rng: X + bound.scale * rng.laplace(size=X.shape), noise.parameters)
    try:
        std = np.asarray(noise, dtype=np.float64)
    except (TypeError, ValueError):
        std = np.full(1, np.nan)
    if isinstance(noise, bool) or std.ndim > 1 or not (np.isfinite(std).all() and (std >= 0).all()):
        raise TypeError(
            f"The 'noise' parameter of {owner} must be GaussianNoise(...), LaplaceNoise(...), a standard deviation, one "
            f"for each feature, or 'estimate'. Got {noise!r} instead."
        )
    if std.ndim == 1 and std.size != n_features:
        raise ValueError(
            f"The 'noise' parameter of {owner} must have one standard deviation for each of the {n_features} features. "
            f"Got {std.size}."
        )
    std = np.broadcast_to(std, n_features).copy()
    return Noise(std, _normal(std), {"name": "normal", "std": std.tolist()})


def _normal(std: Floats) -> Callable[[Floats, np.random.Generator], Floats]:
    def add(X: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(X + std * rng.standard_normal(X.shape))

    return add


def estimate_level(prior: Prior, X: Floats, rng: np.random.Generator) -> NoiseEstimate:
    """Find the level of noise under which validation points are likeliest.

    Parameters
    ----------
    prior : Prior
        Made for noise of one standard deviation of each feature.
    X : ndarray of shape (m, n_features)
    rng : numpy Generator
        Chooses points where there are many.
    """
    points = prior.coordinates(X)
    points = points[np.sort(rng.permutation(len(points))[:MOST_POINTS])]
    floor = _fit_floor(prior, rng)
    total = np.array([log_likelihood(prior, points, floor + level**2) for level in LEVELS])
    best = int(total.argmax())
    near = np.flatnonzero(total >= total[best] - DROP)
    low, high = int(near.min()), int(near.max())
    sigma = _vertex(total, best)
    return NoiseEstimate(
        sigma=sigma,
        low=0.0 if low == 0 else min(sigma, _crossing(total, low - 1, low, total[best] - DROP)),
        high=float(LEVELS[-1])
        if high == LEVELS.size - 1
        else max(sigma, _crossing(total, high + 1, high, total[best] - DROP)),
        is_zero=low == 0,
        n_points=len(points),
    )


def log_likelihood(prior: Prior, points: Floats, noise: float) -> float:
    """Log likelihood of points under the mixture of rows with noise of a given variance, up to a constant."""
    parts = [log_sum_exp(log_normal(part, prior.rows, prior.variance, prior.width, noise)) for part in prior.tiles(points)]
    return float(np.concatenate(parts).sum())


def _fit_floor(prior: Prior, rng: np.random.Generator) -> float:
    """Return the variance, the same in all directions, that steps must have besides to make training rows likeliest.

    The prior describes steps roughly. Where training rows themselves, each given the others, are likelier under wider
    steps, so are clean validation points, and that is no noise.
    """
    asked = np.sort(rng.permutation(len(prior.rows))[:SAMPLE])
    best, found = -np.inf, 0.0
    for floor in FLOORS * float(prior.variance.mean()):
        logs = log_normal(prior.rows[asked], prior.rows, prior.variance, prior.width, floor)
        logs[np.arange(asked.size), asked] = -np.inf
        likelihood = float(log_sum_exp(logs).mean())
        if likelihood > best:
            best, found = likelihood, floor
    return found


def _vertex(total: Floats, best: int) -> float:
    """Refine the likeliest level by a parabola through it and its neighbours on the grid."""
    if best in (0, LEVELS.size - 1):
        return float(LEVELS[best])
    x, y = LEVELS[best - 1 : best + 2], total[best - 1 : best + 2]
    left, right = (y[1] - y[0]) / (x[1] - x[0]), (y[2] - y[1]) / (x[2] - x[1])
    curvature = (right - left) / (x[2] - x[0])
    vertex = (x[0] + x[1]) / 2 - left / (2 * curvature) if curvature < 0 else x[1]
    return float(np.clip(vertex, x[0], x[2]))


def _crossing(total: Floats, outside: int, inside: int, height: float) -> float:
    """Level between two neighbours on the grid at which the likelihood falls to a height."""
    share = (height - total[outside]) / (total[inside] - total[outside])
    return float(LEVELS[outside] + share * (LEVELS[inside] - LEVELS[outside]))
