"""Distribution of a clean validation point, given its noisy version and its label.

The training rows are a sample of the same distribution, so a clean point is modelled as a training row plus a small
step like those between neighbouring rows: a mixture with one normal component per row. Its covariance is that of the
steps between near neighbours, because points and neighbours lie on the same lines and planes of the data. Normal noise
keeps the mixture a mixture, in closed form:

    weight of row t    proportional to N(x'; x_t, H + E) times the probability that a point near t has the label
    given row t        x is normal with mean x_t + H (H + E)^-1 (x' - x_t) and covariance H (H + E)^-1 E

with H the covariance of the steps and E that of the noise. In units of the noise and along the eigenvectors of H all of
it is a product over coordinates. The noise is stated, or estimated from the validation set itself.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.metrics.pairwise import euclidean_distances

from shapshift.checks.inputs import quoted
from shapshift.exceptions import InputError
from shapshift.io.shown import Shown
from shapshift.perturb import GaussianNoise, LaplaceNoise

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Number of nearest rows that vote on the label of a point near a row, besides the row's own label, which is wrong with
# probability LABEL_ERROR. Every label has at least its share of the floor.
LABEL_NEIGHBORS = 20
LABEL_ERROR = 0.05
LABEL_FLOOR = 0.02
# Number of nearest rows whose steps define the covariance.
STEP_NEIGHBORS = 5
# Largest number of rows whose neighbours and likelihood are computed; enough to estimate one covariance and one number.
SAMPLE = 500
# The steps between a row and its near neighbours are longer than those to a new point between them, or shorter if
# neighbours are copies; the scale is chosen among these factors of the variance.
SCALES = 2.0 ** np.arange(-4.0, 2.5)
# Directions in which neighbours differ by less than this share of the largest variance are given this share.
FLATTEST = 1e-4
# A feature without noise is known, but a new point need not have exactly the value of a training row.
KNOWN = 0.01
# Weights of rows below this are treated as zero when a row is left out.
NEGLIGIBLE = 0.01
# Numbers in a tile of weights.
TILE = 2**22
# Noise levels to try, in units of the features' standard deviations.
LEVELS = np.concatenate([[0.0], np.geomspace(0.01, 5.0, 25)])
FIRST_GUESS = 0.3
# Standard errors on either side of a 95% interval.
CONFIDENCE = 1.96
# Noise below this share of a feature's standard deviation counts as none; above this multiple it is an error.
SMALLEST, LARGEST = 1e-9, 1e9
# Largest number of validation points and of training rows to use.
MOST = 1000


@dataclass(frozen=True)
class Noise:
    """Noise in the units of the features.

    Attributes
    ----------
    std : ndarray of shape (n_features,)
        Standard deviation for each feature.
    add : callable
        ``add(X, rng)`` adds it.
    parameters : dict
        Description as JSON types.
    """

    std: Floats
    add: Callable[[Floats, np.random.Generator], Floats]
    parameters: dict[str, Any]


@dataclass(frozen=True)
class NoiseEstimate(Shown):
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
        Number of validation points that it was estimated from.
    """

    sigma: float
    low: float
    high: float
    is_zero: bool
    n_points: int

    def __str__(self) -> str:
        zero = ", which is indistinguishable from none" if self.is_zero else ""
        return f"noise {self.sigma:.3g} [{self.low:.3g}, {self.high:.3g}] standard deviations{zero}"


def resolve_noise(caller: str, noise: Any, model: Any, n_features: int) -> Noise:
    """Convert the caller's noise to standard deviations and a function that adds it."""
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
    if isinstance(noise, bool | str) or std.ndim > 1 or not (np.isfinite(std).all() and (std >= 0).all()):
        raise InputError(
            f"The 'noise' parameter of {caller} must be GaussianNoise(...), LaplaceNoise(...), a standard deviation, "
            f"one for each feature, or 'estimate'. Got {quoted(noise)} instead."
        )
    if std.ndim == 1 and std.size != n_features:
        raise InputError(
            f"The 'noise' parameter of {caller} must have one standard deviation for each of the {n_features} "
            f"features. Got {std.size}."
        )
    std = np.broadcast_to(std, n_features).copy()
    return Noise(std, _normal(std), {"name": "normal", "std": std.tolist()})


def check_size(caller: str, noise: Noise, X: Floats) -> Noise:
    """Drop noise below rounding, and refuse noise so large that the training rows look like a single point."""
    spread = X.std(axis=0)
    # For a constant feature, its size determines the rounding.
    size = np.where(spread > 0, spread, np.abs(X).max(axis=0))
    std = np.where(noise.std < SMALLEST * size, 0.0, noise.std)
    if std.max() > LARGEST * max(float(size.max()), np.finfo(np.float64).tiny) and size.any():
        raise InputError(
            f"The 'noise' parameter of {caller} is more than {LARGEST:g} times as wide as the training rows (standard "
            f"deviation {std.max():.3g}). Check its units: a number is in the units of the features."
        )
    return replace(noise, std=std)


def _normal(std: Floats) -> Callable[[Floats, np.random.Generator], Floats]:
    def add(X: Floats, rng: np.random.Generator) -> Floats:
        return np.asarray(X + std * rng.standard_normal(X.shape))

    return add


@dataclass(frozen=True)
class Prior:
    """The mixture over training rows.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
        Training rows in units of the noise, along the eigenvectors.
    codes : ndarray of shape (n,)
        Their class numbers.
    basis : ndarray of shape (d, d)
        Eigenvectors of the steps, in columns.
    variance : ndarray of shape (d,)
        Variance of a step along each eigenvector, in units of the noise variance.
    unit : ndarray of shape (d,)
        Standard deviation of the noise for each feature that varies or is noisy.
    features : ndarray of shape (d,)
        Indices of these features in the table.
    noisy : ndarray of shape (d,)
        Which of them have noise; the others are known.
    n_classes : int
    scale : float
        Chosen factor of the variance of the steps, already in ``variance``.
    labels : ndarray of shape (n_classes + 1, n)
        Probability of each label near each row, see :func:`label_probabilities`.
    """

    rows: Floats
    codes: Ints
    basis: Floats
    variance: Floats
    unit: Floats
    features: Ints
    noisy: npt.NDArray[np.bool_]
    n_classes: int
    scale: float
    labels: Floats

    def subset(self, chosen: Ints) -> Self:
        """Return the prior of some rows only, with the same steps; label probabilities use only these rows."""
        rows, codes = self.rows[chosen], self.codes[chosen]
        labels = label_probabilities(rows / np.sqrt(self.variance), codes, self.n_classes)
        return replace(self, rows=rows, codes=codes, labels=labels)

    def coordinates(self, X: Floats) -> Floats:
        """Turn table rows into coordinates."""
        found: Floats = (X[:, self.features] / self.unit) @ self.basis
        return found

    def log_weights(self, points: Floats, codes: Ints | None) -> Floats:
        """Return the logarithm of every row's weight for every point, up to a constant shared by all points.

        Parameters
        ----------
        points : ndarray of shape (m, d)
            Noisy points, in coordinates.
        codes : ndarray of shape (m,) or None
            Their classes, -1 for a class without rows; None ignores the labels.
        """
        found = log_normal(points, self.rows, self.variance + 1.0)
        if codes is not None and self.n_classes > 1:
            found += np.log(self.labels)[codes]
        return found

    def log_density(self, points: Floats) -> Floats:
        """Return the log density of noisy points (in coordinates) in the units of the table, ignoring labels."""
        constant = np.log(len(self.rows)) + np.log(self.unit).sum() + 0.5 * self.variance.size * np.log(2 * np.pi)
        found = [log_sum_exp(self.log_weights(part, None)) for part in self.tiles(points)]
        return np.asarray(np.concatenate(found) - constant)

    def weigh(self, points: Floats, codes: Ints, draws: int, rng: np.random.Generator) -> "Weighed":
        """Weigh the rows for every point, and draw rows in proportion to their weights.

        Parameters
        ----------
        points, codes
            Noisy points in coordinates, and their classes.
        draws : int
            Rows to draw per point. They are evenly spaced along the cumulative weights, in random order, so that any
            first few of them are a sample too.
        rng : numpy Generator
        """
        m, n = len(points), len(self.rows)
        labels, which = np.unique(codes, return_inverse=True)
        drawn = np.empty((m, draws), dtype=np.int64)
        mass = np.zeros((labels.size, n))
        # One start and one order per point, drawn before the tiles are cut, so that tiles do not change them.
        heights = (rng.permuted(np.tile(np.arange(draws), (m, 1)), axis=1) + rng.random((m, 1))) / draws
        heavy = []
        first = 0
        for part in self.tiles(points):
            here = slice(first, first + len(part))
            weights = self.log_weights(part, codes[here])
            weights -= weights.max(axis=1, keepdims=True)
            np.exp(weights, out=weights)
            weights /= weights.sum(axis=1, keepdims=True)
            for label in range(labels.size):
                mass[label] += weights[which[here] == label].sum(axis=0)
            reached = np.cumsum(weights, axis=1)
            for j, height in enumerate(heights[here]):
                drawn[first + j] = np.minimum(np.searchsorted(reached[j], height * reached[j, -1], side="right"), n - 1)
            weights[weights < NEGLIGIBLE] = 0.0
            heavy.append(sparse.csr_array(weights))
            first += len(part)
        return Weighed(labels, which.reshape(-1), drawn, mass / m, sparse.vstack(heavy, format="csr"))

    def move(self, chosen: Ints, points: Floats, X: Floats, rng: np.random.Generator) -> Floats:
        """Draw a clean version of each point given its row; return table rows.

        Parameters
        ----------
        chosen : ndarray of shape (m,)
            Row of each point.
        points : ndarray of shape (m, d)
            Points in coordinates.
        X : ndarray of shape (m, n_features)
            Points as given; features without noise are kept.
        rng : numpy Generator
        """
        gain = self.variance / (self.variance + 1.0)
        near = self.rows[chosen]
        found = near + gain * (points - near) + np.sqrt(gain) * rng.standard_normal(near.shape)
        moved = X.copy()
        moved[:, self.features[self.noisy]] = ((found @ self.basis.T) * self.unit)[:, self.noisy]
        return moved

    def tiles(self, points: Floats) -> list[Floats]:
        """Cut points into tiles with a small array of weights each."""
        size = max(1, TILE // len(self.rows))
        return [points[first : first + size] for first in range(0, len(points), size)]


@dataclass(frozen=True)
class Weighed:
    """Weights of the rows for the points, and rows drawn by weight.

    Attributes
    ----------
    labels : ndarray
        Distinct classes of the points.
    of_label : ndarray of shape (m,)
        Index of each point's class among them.
    drawn : ndarray of shape (m, draws)
        Rows drawn for each point.
    mass : ndarray of shape (n_labels, n)
        Weight of each row, summed over the points of each class and divided by the number of points.
    heavy : csr_array of shape (m, n)
        Weights that are not negligible.
    """

    labels: Ints
    of_label: Ints
    drawn: Ints
    mass: Floats
    heavy: sparse.csr_array


def fit_prior(X: Floats, codes: Ints, n_classes: int, noise: Floats, rng: np.random.Generator) -> Prior:
    """Estimate the steps between neighbouring rows.

    Parameters
    ----------
    X : ndarray of shape (n, n_features)
        Training rows in an order independent of the caller's.
    codes : ndarray of shape (n,)
        Their classes.
    n_classes : int
    noise : ndarray of shape (n_features,)
        Standard deviation of the noise of each feature; 0 for no noise.
    rng : numpy Generator
        Draws a sample of rows if there are many.
    """
    spread = X.std(axis=0)
    features = np.flatnonzero((spread > 0) | (noise > 0))
    noisy = noise[features] > 0
    unit = np.where(noisy, noise[features], KNOWN * spread[features])
    scaled = X[:, features] / unit
    sample = np.sort(rng.permutation(len(X))[:SAMPLE])
    apart = squared_distances(scaled[sample], scaled)
    apart[np.arange(sample.size), sample] = np.inf
    k = min(STEP_NEIGHBORS, len(X) - 1)
    nearest = np.argpartition(apart, k - 1, axis=1)[:, :k]
    steps = (scaled[sample][:, None, :] - scaled[nearest]).reshape(-1, features.size)
    variance, basis = np.linalg.eigh(steps.T @ steps / len(steps))
    variance = np.maximum(variance, FLATTEST * max(float(variance.max()), np.finfo(np.float64).tiny))
    rows = scaled @ basis
    scale = _choose_scale(rows, variance, sample)
    labels = label_probabilities(rows / np.sqrt(variance), codes, n_classes)
    return Prior(rows, codes, basis, variance * scale, unit, features, noisy, n_classes, scale, labels)


def _choose_scale(rows: Floats, variance: Floats, sample: Ints) -> float:
    """Scale of the steps with the largest likelihood of rows given all others."""

    def likelihood(scale: float) -> float:
        logs = log_normal(rows[sample], rows, variance * scale)
        logs[np.arange(sample.size), sample] = -np.inf
        return float(log_sum_exp(logs).mean())

    return float(max(SCALES, key=likelihood))


def label_probabilities(rows: Floats, codes: Ints, n_classes: int) -> Floats:
    """Probability of each label for a point near each row.

    The labels of the nearest rows vote, without the row itself, and every class starts with one vote. Bayes' rule adds
    the row's own label, which may be wrong: a single row among rows of another class attracts no points.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
        In units of the steps.
    codes : ndarray of shape (n,)
        Their classes.
    n_classes : int

    Returns
    -------
    ndarray of shape (n_classes + 1, n)
        The last one is for labels without rows, which are equally probable near all rows.
    """
    n, k = len(rows), min(LABEL_NEIGHBORS, len(rows) - 1)
    votes = np.ones((n_classes, n))
    size = max(1, TILE // n)
    for first in range(0, n, size):
        here = np.arange(first, min(first + size, n))
        apart = squared_distances(rows[here], rows)
        apart[here - first, here] = np.inf
        nearest = codes[np.argpartition(apart, k - 1, axis=1)[:, :k]]
        for label in range(n_classes):
            votes[label, here] += (nearest == label).sum(axis=1)
    own = np.where(codes == np.arange(n_classes)[:, None], 1 - LABEL_ERROR, LABEL_ERROR / max(n_classes - 1, 1))
    found = votes * own
    found = (1 - LABEL_FLOOR) * found / found.sum(axis=0) + LABEL_FLOOR / n_classes
    return np.vstack([found, np.ones(n)])


def log_normal(points: Floats, rows: Floats, variance: Floats) -> Floats:
    """Log density of every point under a normal at every row, without the power of 2 pi.

    Parameters
    ----------
    points, rows : ndarray of shape (m, d), (n, d)
    variance : ndarray of shape (d,)
    """
    root = np.sqrt(variance)
    found = squared_distances(points / root, rows / root)
    found *= -0.5
    found -= np.log(root).sum()
    return found


def squared_distances(A: Floats, B: Floats) -> Floats:
    """Squared Euclidean distances, centred first so that features far from the origin lose no precision."""
    centre = B.mean(axis=0)
    return np.asarray(euclidean_distances(A - centre, B - centre, squared=True))


def log_sum_exp(logs: Floats) -> Floats:
    """Logarithm of the sum of exponentials of each row; ``logs`` is overwritten."""
    highest = logs.max(axis=1)
    logs -= highest[:, None]
    return np.asarray(highest + np.log(np.exp(logs, out=logs).sum(axis=1)))


def estimate_level(prior: Prior, X: Floats, held_back: Floats, rng: np.random.Generator) -> NoiseEstimate:
    """Find the noise level at which clean rows become as unlikely as the validation points.

    Noise moves points away from the training rows, where the prior is small. Held-back rows get noise of growing size
    until their mean log density is that of the validation points. Errors of the prior affect both alike.

    Parameters
    ----------
    prior : Prior
        Prior for noise of one standard deviation of each feature.
    X : ndarray of shape (m, n_features)
        Validation points.
    held_back : ndarray of shape (k, n_features)
        Training rows outside the prior.
    rng : numpy Generator
        Selects points and rows if there are many, and draws the noise.
    """
    points, clean = (prior.coordinates(rows[np.sort(rng.permutation(len(rows))[:MOST])]) for rows in (X, held_back))
    noise = rng.standard_normal(clean.shape)
    found = NoiseEstimate(FIRST_GUESS, 0.0, 0.0, False, len(points))
    # The density is most informative when evaluated at the estimated noise, which takes a second pass.
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
    """Level at which a falling curve reaches a height."""
    falling = np.minimum.accumulate(curve)
    return float(np.interp(-height, -falling, LEVELS))
