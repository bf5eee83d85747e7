"""Weights of the estimates, found by a rehearsal on the training rows.

Some training rows are held back as the validation set. Their clean values are known. The stated noise is added to them,
and the estimates are computed from the other rows just as for the real validation set. The mixture of estimates nearest
to these clean values is used. No real clean validation set is needed, and if no estimate helps, the mixture is the
noisy values.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from shapshift.agreement import agreement, spearman
from shapshift.correct.draws import NoisyPoints, TrainingSet, draw_in_stages
from shapshift.io.shown import Shown

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: The mixed estimates: the noisy values; points moved towards their rows; points at their rows.
PARTS = ("noisy", "moved", "at_rows")
# Share of the training rows to hold back, and their largest number.
HELD_BACK = 0.25
MOST_HELD_BACK = 250
# Number of points to rehearse on over several splits, whose differences give the error of the mixture.
REHEARSED = 750
MOST_SPLITS = 5
# Least number of training rows for a rehearsal.
FEWEST_ROWS = 40
# Draws per point of a rehearsal.
DRAWS = 4
# Pull towards the noisy values if the estimates hardly differ, as a share of their variance.
CAUTION = 1e-3


@dataclass(frozen=True)
class Rehearsal(Shown):
    """Result of a rehearsal.

    Attributes
    ----------
    weights : dict
        Weight of each estimate; they sum to 1.
    covariance : list of list of float
        Covariance of the weights over other splits, noise and draws of the rehearsal (jackknife over the splits).
    spearman, rmse : dict
        For "noisy", every estimate and "mixed": rank agreement with the clean values of the rehearsal, and root mean
        square error in their standard deviations.
    points, splits : int
        Held back rows per split, and number of splits.
    log_density, log_density_std : float
        Mean and standard deviation of the log density of the noisy points of the rehearsal under the prior.
    """

    weights: dict[str, float]
    covariance: list[list[float]]
    spearman: dict[str, float]
    rmse: dict[str, float]
    points: int
    splits: int
    log_density: float
    log_density_std: float


def rehearse(
    train: TrainingSet, add_noise: Callable[[Floats, np.random.Generator], Floats], draws: int, rng: np.random.Generator
) -> Rehearsal | None:
    """Hold rows back, add noise to them, and find the mixture of estimates nearest to their clean values.

    Parameters
    ----------
    train : TrainingSet
    add_noise : callable
        ``add_noise(X, rng)``.
    draws : int
        Largest number of draws per point in the correction itself.
    rng : numpy Generator

    Returns
    -------
    Rehearsal or None
        None if there are too few rows to hold any back, or too few different values to compare.
    """
    n = len(train.codes)
    if n < FEWEST_ROWS:
        return None
    size = min(round(HELD_BACK * n), MOST_HELD_BACK)
    splits = min(max(round(REHEARSED / size), 1), MOST_SPLITS)
    estimates: list[Floats] = []
    targets: list[Floats] = []
    densities: list[Floats] = []
    for child in rng.spawn(splits):
        chosen = child.permutation(n)
        # Positions in the prior, whose order is independent of the caller's.
        held, rest = np.sort(chosen[:size]), np.sort(chosen[size:])
        parts, clean, density = _one_split(train, held, rest, add_noise, draws, child)
        spread = float(clean.std())
        if spread > 0:
            estimates.append(parts / spread)
            targets.append(clean / spread)
            densities.append(density)
    if len(targets) < 2:
        return None
    weights = _choose_weights(estimates, targets)
    scored = {name: [part[:, k] for part in estimates] for k, name in enumerate(PARTS)}
    scored["mixed"] = [part @ weights for part in estimates]
    found = {
        name: [agreement(part, clean) for part, clean in zip(columns, targets, strict=True)]
        for name, columns in scored.items()
    }
    means = {
        statistic: {name: float(np.mean([entry[statistic] for entry in entries])) for name, entries in found.items()}
        for statistic in ("spearman", "rmse")
    }
    density = np.concatenate(densities)
    return Rehearsal(
        weights=dict(zip(PARTS, weights.tolist(), strict=True)),
        covariance=_jackknife(estimates, targets).tolist(),
        **means,
        points=size,
        splits=len(targets),
        log_density=float(density.mean()),
        log_density_std=float(density.std()),
    )


def _choose_weights(estimates: list[Floats], targets: list[Floats]) -> Floats:
    """Return the weights nearest to clean values; the noisy values if these do not improve rank agreement."""
    unchanged = np.array([1.0, 0.0, 0.0])
    weights = mixing_weights(np.vstack(estimates), np.concatenate(targets))
    before, after = (
        np.mean([spearman(part @ each, clean) for part, clean in zip(estimates, targets, strict=True)])
        for each in (unchanged, weights)
    )
    return weights if after >= before else unchanged  # rank agreement decides


def _jackknife(estimates: list[Floats], targets: list[Floats]) -> Floats:
    """Covariance of the weights, from the weights without each one of the splits."""
    n = len(targets)
    left_out = [
        _choose_weights(estimates[:split] + estimates[split + 1 :], targets[:split] + targets[split + 1 :])
        for split in range(n)
    ]
    change = np.array(left_out) - np.mean(left_out, axis=0)
    return np.asarray(change.T @ change * (n - 1) / n)


def mixing_weights(estimates: Floats, target: Floats) -> Floats:
    """Return weights of at least 0 with sum 1 that bring the estimates (in columns) nearest to the target.

    Parameters
    ----------
    estimates : ndarray of shape (n, 3)
        In the order of ``PARTS``.
    target : ndarray of shape (n,)

    Examples
    --------
    >>> target = np.array([1.0, 2.0, 4.0, 3.0])
    >>> off = np.array([1.0, -1.0, 1.0, -1.0])
    >>> mixing_weights(np.column_stack([target + off, target - off, target + 3]), target).round(2)
    array([0.5, 0.5, 0. ])
    """
    errors = estimates - target[:, None]
    gram = errors.T @ errors / len(target)
    caution = CAUTION * max(float(np.var(target)), np.finfo(np.float64).tiny)
    return least_weights(gram + caution * np.eye(3), caution)


def least_weights(gram: Floats, caution: float) -> Floats:
    """Minimise w' gram w - 2 caution w_0 under sum(w) = 1, w >= 0, over all sets of positive weights."""
    best, found = np.inf, np.array([1.0, 0.0, 0.0])
    for size in (1, 2, 3):
        for chosen in map(list, combinations(range(3), size)):
            inner = gram[np.ix_(chosen, chosen)]
            pull = caution * np.array([1.0 if k == 0 else 0.0 for k in chosen])
            one, pulled = np.linalg.solve(inner, np.ones(size)), np.linalg.solve(inner, pull)
            inside = pulled + one * (1.0 - pulled.sum()) / one.sum()
            height = float(inside @ inner @ inside - 2 * pull @ inside)
            if inside.min() >= 0 and height < best:
                best, found = height, np.zeros(3)
                found[chosen] = inside
    return found


def _one_split(
    train: TrainingSet,
    held: Ints,
    rest: Ints,
    add_noise: Callable[[Floats, np.random.Generator], Floats],
    draws: int,
    rng: np.random.Generator,
) -> tuple[Floats, Floats, Floats]:
    """Estimates in columns, clean values, and log densities of the noisy points."""
    X, codes = train.X[train.order], train.codes[train.order]
    model: Any = clone(train.model).fit(X[rest], codes[rest])
    if len(model.classes_) < len(train.model.classes_):  # a class lost all its rows; the others keep their numbers
        model.codes_, model.classes_ = codes[rest].astype(np.int32), train.model.classes_
        model._duplicates = None  # these have the class numbers as given
    clean = model.value(X[held], codes[held])
    points = NoisyPoints(add_noise(X[held], rng), codes[held])
    inner = TrainingSet(model, X[rest], codes[rest], np.arange(len(rest)), train.prior.subset(rest))
    noisy = model.value(points.X, points.codes)
    (*_, drawn) = draw_in_stages(inner, points, min(DRAWS, draws), rng, most_rows=draws * held.size)
    columns = np.column_stack([noisy.values, drawn["moved"].mean, drawn["at_rows"].mean])
    return columns, clean.values, inner.prior.log_density(inner.prior.coordinates(points.X))
