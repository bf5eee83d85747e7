"""Noise of a validation set: stated, or estimated from the set itself."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks.inputs import quoted
from shapshift.correct.prior import Prior, log_normal, log_sum_exp
from shapshift.exceptions import InputError
from shapshift.perturb import GaussianNoise, LaplaceNoise

Floats = npt.NDArray[np.float64]

# Levels of noise that are tried, in units of the features' standard deviations.
LEVELS = np.concatenate([[0.0], np.geomspace(0.01, 5.0, 25)])
FIRST_GUESS = 0.3
# Standard errors to either side of a 95% interval.
CONFIDENCE = 1.96
# Noise below this share of a feature's standard deviation is none, and above this multiple it is a mistake.
SMALLEST, LARGEST = 1e-9, 1e9
# Largest number of validation points and training rows that are used.
MOST = 1000


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
        Standard deviation, in units of each feature's standard deviation over the training rows.
    low, high : float
        Ends of a 95% interval.
    is_zero : bool
        Whether the noise is indistinguishable from none.
    n_points : int
        How many validation points it was estimated from.
    """

    sigma: float
    low: float
    high: float
    is_zero: bool
    n_points: int

    def __str__(self) -> str:
        zero = ", which is indistinguishable from none" if self.is_zero else ""
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
        raise InputError(
            f"The 'noise' parameter of {owner} must be GaussianNoise(...), LaplaceNoise(...), a standard deviation, "
            f"one for each feature, or 'estimate'. Got {quoted(noise)} instead."
        )
    if std.ndim == 1 and std.size != n_features:
        raise InputError(
            f"The 'noise' parameter of {owner} must have one standard deviation for each of the {n_features} features. "
            f"Got {std.size}."
        )
    std = np.broadcast_to(std, n_features).copy()
    return Noise(std, _normal(std), {"name": "normal", "std": std.tolist()})


def check_size(owner: str, noise: Noise, X: Floats) -> Noise:
    """Leave out noise that rounding swallows, and refuse noise next to which the training rows are a single point."""
    spread = X.std(axis=0)
    # Where a feature is constant, its size says what rounding is.
    size = np.where(spread > 0, spread, np.abs(X).max(axis=0))
    std = np.where(noise.std < SMALLEST * size, 0.0, noise.std)
    if std.max() > LARGEST * max(float(size.max()), np.finfo(np.float64).tiny) and size.any():
        raise InputError(
            f"The 'noise' parameter of {owner} is more than {LARGEST:g} times as wide as the training rows (standard "
            f"deviation {std.max():.3g}). Check its units: a number is in the units of the features."
        )
    return replace(noise, std=std)


def _normal(std: Floats) -> Callable[[Floats, np.random.Generator], Floats]:
    def add(X: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(X + std * rng.standard_normal(X.shape))

    return add


def estimate_level(prior: Prior, X: Floats, held_back: Floats, rng: np.random.Generator) -> NoiseEstimate:
    """Find the level of noise under which clean rows become as unlikely as the validation points are.

    Noise carries points away from the training rows, where the prior is thin. Rows that the prior has not seen are
    given noise of growing size until their mean log density is that of the validation points. Whatever the prior gets
    wrong, it gets wrong for both.

    Parameters
    ----------
    prior : Prior
        Made for noise of one standard deviation of each feature.
    X : ndarray of shape (m, n_features)
        Validation points.
    held_back : ndarray of shape (k, n_features)
        Training rows that are not in the prior.
    rng : numpy Generator
        Chooses points and rows where there are many, and draws the noise.
    """
    points, clean = (prior.coordinates(rows[np.sort(rng.permutation(len(rows))[:MOST])]) for rows in (X, held_back))
    noise = rng.standard_normal(clean.shape)
    found = NoiseEstimate(FIRST_GUESS, 0.0, 0.0, False, len(points))
    # The density is evaluated with as much noise as estimated, where it is most informative; that takes a second pass.
    for _ in range(2):
        width = max(found.sigma, LEVELS[1]) ** 2
        seen = log_density(prior, points, width)
        rehearsed = [log_density(prior, clean + level * noise, width) for level in LEVELS]
        mean = np.array([each.mean() for each in rehearsed])
        error = np.sqrt(seen.var() / len(points) + np.array([each.var() for each in rehearsed]) / len(clean))
        height = float(seen.mean())
        level, low, high = (_level_at(mean + side * CONFIDENCE * error, height) for side in (0, -1, 1))
        is_zero = bool(height >= mean[0] - CONFIDENCE * error[0])
        found = NoiseEstimate(level, 0.0 if is_zero else low, high, is_zero, len(points))
    return found


def log_density(prior: Prior, points: Floats, noise: float) -> Floats:
    """Log density of points under the mixture of rows with noise of a given variance, up to a constant."""
    parts = prior.tiles(points)
    return np.concatenate([log_sum_exp(log_normal(part, prior.rows, prior.variance + noise)) for part in parts])


def _level_at(curve: Floats, height: float) -> float:
    """Level at which a curve that falls with the level reaches a height."""
    falling = np.minimum.accumulate(curve)
    return float(np.interp(-height, -falling, LEVELS))
