"""Sampling error: how far a mean over validation points may be from the mean over the population they come from.

A row's value is the mean of its values on single points. The points are a sample, so the mean has a standard error. Few
points tell a variance badly, and rows that have not been near any point yet have none at all: every variance is drawn
towards that of the other rows, the more the heavier the tails of the values are. Everything here works on sampling
units: single points, or clusters of dependent points, whose sums are then the sample.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit
from scipy.stats import rankdata

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Rows whose values on single points are kept, and most numbers that this makes.
SAMPLED_ROWS, SAMPLED_VALUES = 256, 2**18
LEAST_SAMPLED = 32
# Random halves whose agreement tells about ranks, and the blocks that they are made of.
HALVES, BLOCKS = 20, 20
# Standard errors that are told apart when ranks are compared.
ERROR_BINS = 64
# Below this part of the squared mean a variance is rounding.
ROUNDING = 1e-10


@dataclass(frozen=True)
class Spread:
    """How the values of rows vary from one sampling unit to another.

    Attributes
    ----------
    variance : ndarray of shape (n_rows,)
        Sample variance of each row's value; over clusters, that of their scaled sums.
    units : int
        Number of validation points, or of clusters.
    kurtosis : float
        Of the values of the rows, on average.
    covariance : float
        Mean covariance of the values of two rows.
    spearman : float or None
        Rank correlation to be expected with the values on another sample; None if it cannot be told.
    """

    variance: Floats
    units: int
    kurtosis: float
    covariance: float
    spearman: float | None

    def errors(self) -> tuple[Floats, float]:
        """Return the standard error of each mean, and its degrees of freedom."""
        shrunk, freedom = shrink(self.variance, self.units, self.kurtosis)
        return np.sqrt(shrunk / self.units), freedom

    def facts(self) -> dict[str, Any]:
        """Return what is not known of single rows."""
        return {
            "units": self.units,
            "kurtosis": self.kurtosis,
            "covariance": self.covariance,
            "spearman": self.spearman,
        }


def sampled_count(n_rows: int, n_points: int) -> int:
    """Return how many rows have their values on every single point kept."""
    return min(n_rows, SAMPLED_ROWS, max(SAMPLED_VALUES // n_points, LEAST_SAMPLED))


def spread_of_points(means: Floats, squares: Floats, n_points: int, sample: Floats) -> Spread | None:
    """Return the spread of values over points.

    Parameters
    ----------
    means, squares : ndarray of shape (n_rows,)
        Mean value, and sum of the squared values.
    n_points : int
    sample : ndarray of shape (n_points, n_sampled)
        Values of some rows on every point.

    Returns
    -------
    Spread or None
        None with fewer than two points.
    """
    if n_points < 2:
        return None
    variance = (squares - n_points * means**2) / (n_points - 1)
    variance[variance < ROUNDING * means**2] = 0.0
    return _spread(variance, n_points, sample)


def spread_of_clusters(means: Floats, sums: Floats, sizes: Indices, sample: Floats, clusters: Indices) -> Spread | None:
    """Return the spread of values over clusters of dependent points, as :func:`spread_of_points`.

    Parameters
    ----------
    means : ndarray of shape (n_rows,)
        Mean value over all points.
    sums : ndarray of shape (n_clusters, n_rows)
        Sum of the values over each cluster.
    sizes : ndarray of shape (n_clusters,)
        Number of points of each.
    sample : ndarray of shape (n_points, n_sampled)
    clusters : ndarray of shape (n_points,)
        Number of each point's cluster.
    """
    n_clusters, n_points = sizes.size, int(sizes.sum())
    if n_clusters < 2:
        return None
    # A cluster counts by its number of points: the mean is a ratio of two sums over clusters.
    scale = n_clusters / n_points
    variance = np.zeros(means.size)
    for total, size in zip(sums, sizes.tolist(), strict=True):
        variance += (scale * (total - size * means)) ** 2
    variance /= n_clusters - 1
    variance[variance < ROUNDING * means**2] = 0.0
    average = sample.mean(axis=0)
    by_cluster = np.zeros((n_clusters, sample.shape[1]))
    np.add.at(by_cluster, clusters, sample - average)
    return _spread(variance, n_clusters, average + scale * by_cluster)


def _spread(variance: Floats, units: int, sample: Floats) -> Spread:
    centred = sample - sample.mean(axis=0)
    of_sum = float((centred.sum(axis=1) ** 2).sum() / (units - 1))
    np.square(centred, out=centred)
    variances, fourth = centred.sum(axis=0) / (units - 1), np.einsum("un,un->n", centred, centred) / units
    total = float((variances**2).sum())
    # As heavy as tails can be in a sample of this size, where no row of the sample has met a point yet.
    kurtosis = float(fourth.sum()) / total if total > 0 else float(units)
    n = sample.shape[1]
    covariance = (of_sum - float(variances.sum())) / (n * (n - 1)) if n > 1 else 0.0
    return Spread(variance, units, kurtosis, covariance, half_agreement(sample))


def shrink(variance: Floats, units: int, kurtosis: float) -> tuple[Floats, float]:
    """Draw variances towards their mean over the rows, as far as so many units of such kurtosis leave them unsure.

    Returns
    -------
    variance : ndarray
    freedom : float
        Degrees of freedom of the shrunk variances.
    """
    freedom = max(2 * (units - 1) / max(kurtosis - 1, 2), 1.0)
    mean, between = float(variance.mean()), float(variance.var(ddof=1)) if variance.size > 1 else 0.0
    if mean == 0:
        return variance, freedom
    # What is left of the variance between rows when that of estimating them is taken out.
    true = max((between - 2 * mean**2 / freedom) / (1 + 2 / freedom), mean**2 / 1000)
    prior = 4 + 2 * mean**2 / true
    centre = mean * (prior - 2) / prior
    return (prior * centre + freedom * variance) / (prior + freedom), prior + freedom


def half_width(error: Floats, freedom: Any, confidence: float, n_joint: int = 1) -> Floats:
    """Half the width of confidence intervals; of so many that all of them hold together (Sidak)."""
    each = confidence ** (1 / n_joint)
    width: Floats = stdtrit(freedom, (1 + each) / 2) * error
    return width


def sign_probability(values: Floats, error: Floats, freedom: Any) -> Floats:
    """Probability that each value is above 0; one half where value and error are both 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(error > 0, stdtr(freedom, values / error), (1 + np.sign(values)) / 2)
    return found


def rank_interval(values: Floats, error: Floats, freedom: Any, confidence: float) -> tuple[Indices, Indices]:
    """Both ends of an interval of each row's rank among all rows, 1 for the highest value.

    A row is above another one where their difference is surely positive, its variance the sum of both. Errors are put
    into bins and count as the largest of their bin, which widens intervals a little and takes N log N steps.
    """
    n = values.size
    factor = float(half_width(np.ones(1), np.min(freedom), confidence)[0])
    order = np.argsort(error, kind="stable")
    above, below = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
    for part in np.array_split(order, min(ERROR_BINS, n)):
        these, margin = np.sort(values[part]), factor * np.hypot(error, error[part[-1]])
        above += part.size - np.searchsorted(these, values + margin, side="right")
        below += np.searchsorted(these, values - margin, side="left")
    return 1 + above, n - below


def half_agreement(sample: Floats) -> float | None:
    """Rank correlation to be expected between the mean values on two samples of as many units.

    That of the means over random halves, stepped up by the Spearman-Brown formula; None where it cannot be told.
    """
    units, n = sample.shape
    if units < 4 or n < 3:
        return None
    rng = np.random.default_rng(0)
    # Whole blocks of units change sides: their sums are made once.
    blocks = min(BLOCKS, units) // 2 * 2
    starts = np.linspace(0, units, blocks, endpoint=False).astype(np.int64)
    sums, sizes = np.add.reduceat(sample[rng.permutation(units)], starts, axis=0), np.diff(starts, append=units)
    one = np.argsort(rng.random((HALVES, blocks)), axis=1) < blocks // 2
    sides = np.concatenate([one, ~one]).astype(np.float64)
    means = np.einsum("hb,bn->hn", sides, sums) / np.einsum("hb,b->h", sides, sizes)[:, None]
    ranks = rankdata(means, axis=1) - (n + 1) / 2
    first, second = ranks[:HALVES], ranks[HALVES:]
    spread = np.sqrt((first**2).sum(axis=1) * (second**2).sum(axis=1))
    if not spread.all():
        return None
    r = float(((first * second).sum(axis=1) / spread).mean())
    return 2 * r / (1 + r) if r > -0.5 else -1.0


def reliability(values: Floats, error: Floats, mean_error: float) -> float:
    """Correlation to be expected between these values and those on another sample of as many points.

    Parameters
    ----------
    values, error : ndarray of shape (n_rows,)
        Values and their standard errors.
    mean_error : float
        Squared standard error of the mean of all values, which moves all of them alike.
    """
    spread = float(values.var())
    if spread == 0:
        return float("nan")
    return 1 - (float((error**2).mean()) - mean_error) / spread


def points_needed(units: int, found: float, wanted: float) -> float:
    """Return the sampling units that a reliability takes, given that of so many; infinite with nothing to build on."""
    if not found > 0:
        return float("inf")
    return units * wanted / (1 - wanted) * max(1 - found, 0.0) / found
