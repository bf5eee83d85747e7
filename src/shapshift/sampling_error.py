"""Sampling error: the distance between a mean over validation points and the mean over their population.

A row's value is the mean of its values on single points. The points are a sample, so the mean has a standard error. Few
points estimate a variance poorly, and rows that are near no point have a sample variance of 0. Every variance is
therefore shrunk towards that of the other rows, more strongly for values with heavier tails. Everything here works on
sampling units: single points, or clusters of dependent points, whose sums are then the sample.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Most numbers that are kept for single points, and the minimum and maximum number of rows they belong to.
SAMPLED_VALUES = 2**18
LEAST_SAMPLED, MOST_SAMPLED = 16, 1024
# Minimum number of rows whose agreement between halves of the points represents that of all rows.
AGREEING_ROWS = 64
# Random splits of the points into quarters, and the blocks that these are made of.
SPLITS, BLOCKS = 20, 20
# Values that differ by less than this part of the largest are ties.
TIES = 1e-9
# In the extremes, values have heavier tails than their degrees of freedom say: joint intervals use at most these.
JOINT_FREEDOM = 5.0
# Below this part of the squared mean a variance is rounding.
ROUNDING = 1e-10


#: Prefix of the names of random blocks of points.
BLOCK = "random block "


def in_blocks(names: tuple[Any, ...]) -> bool:
    """Whether groups of points are at least two random blocks of one sample."""
    return len(names) > 1 and all(isinstance(name, str) and name.startswith(BLOCK) for name in names)


@dataclass(frozen=True)
class Spread:
    """Variation of the values of rows between sampling units.

    Attributes
    ----------
    variance : ndarray of shape (n_rows,)
        Sample variance of each row's value; over clusters, that of their scaled sums.
    units : int
        Number of validation points, or of clusters.
    kurtosis : float
        Average kurtosis of the values of the rows.
    covariance : float
        Mean covariance of the values of two rows.
    pearson, spearman : float or None
        Expected correlation with the values on another sample, and rank correlation; None if they cannot be estimated.
    class_covariance : tuple of float or None
        Mean covariance of the values of two rows of each class, None for those with fewer than two sampled rows; None
        if classes are unknown.
    """

    variance: Floats
    units: int
    kurtosis: float
    covariance: float
    pearson: float | None
    spearman: float | None
    class_covariance: tuple[float | None, ...] | None = None

    def errors(self) -> tuple[Floats, float]:
        """Return the standard error of each mean, and its degrees of freedom."""
        shrunk, freedom = shrink(self.variance, self.units, self.kurtosis)
        return np.sqrt(shrunk / self.units), freedom

    def facts(self) -> dict[str, Any]:
        """Return the fields that do not concern single rows; numbers that overflow leaves undefined are zero."""
        known = {"units": self.units, "kurtosis": self.kurtosis, "covariance": self.covariance}
        correlations = {"pearson": self.pearson, "spearman": self.spearman}
        found: dict[str, Any] = {name: each if np.isfinite(each) else 0.0 for name, each in known.items()}
        if self.class_covariance is not None:
            found["class_covariance"] = [c if c is None or np.isfinite(c) else 0.0 for c in self.class_covariance]
        return found | {name: r if r is not None and np.isfinite(r) else None for name, r in correlations.items()}


def sampled_count(n_rows: int, n_points: int) -> int:
    """Return the number of rows whose values on every single point are kept."""
    return min(n_rows, max(min(SAMPLED_VALUES // n_points, MOST_SAMPLED), LEAST_SAMPLED))


def spread_of_points(means: Floats, squares: Floats, n_points: int, sample: Floats, codes: Any = None) -> Spread | None:
    """Return the spread of values over points.

    Parameters
    ----------
    means, squares : ndarray of shape (n_rows,)
        Mean value, and sum of the squared values.
    n_points : int
    sample : ndarray of shape (n_points, n_sampled)
        Values of some rows on every point.
    codes : ndarray of shape (n_sampled,), optional
        Their class numbers.

    Returns
    -------
    Spread or None
        None with fewer than two points.
    """
    if n_points < 2:
        return None
    variance = (squares - n_points * means**2) / (n_points - 1)
    variance[variance < ROUNDING * means**2] = 0.0
    return _spread(variance, n_points, sample, codes)


def spread_of_weighted(
    means: Floats, squares: Floats, products: Floats, weights: Floats, sample: Floats, codes: Any = None
) -> Spread | None:
    """Return the spread of weighted values over points, as :func:`spread_of_points`.

    A weighted mean is a ratio of two sums over points, of weighted values and of weights: its variance is that of the
    mean of w (v - mean), divided by the mean weight (first order).

    Parameters
    ----------
    means : ndarray of shape (n_rows,)
        Weighted means.
    squares, products : ndarray of shape (n_rows,)
        Sums of squared weighted values, and of values times squared weights.
    weights : ndarray of shape (n_points,)
        Points of weight 0 are not part of the sample.
    sample : ndarray of shape (n_points, n_sampled)
    codes : ndarray of shape (n_sampled,), optional
    """
    counted = weights > 0
    weights, n_points = weights[counted], int(np.count_nonzero(counted))
    if n_points < 2:
        return None
    scale = n_points / float(weights.sum())
    variance = squares - 2 * means * products + means**2 * float((weights**2).sum())
    variance *= scale**2 / (n_points - 1)
    variance[variance < ROUNDING * means**2] = 0.0
    sample = sample[counted]
    average = weights @ sample / weights.sum()
    return _weighted_spread(variance, sample, average, scale * weights[:, None] * (sample - average), codes)


def spread_of_classes(
    means: Floats, sums: Floats, squares: Floats, classes: Indices, weights: Floats, sample: Floats, codes: Any = None
) -> Spread | None:
    """Return the spread of values over points whose weights give all classes the same total.

    The share of a class is then not sampled; only the values within each class are. With n_c points and
    a variance of s_c^2 in each of C classes, the variance of a mean is the sum of s_c^2 / n_c, divided by C^2. A single
    point of a class is compared with the mean over all.

    Parameters
    ----------
    means : ndarray of shape (n_rows,)
        Weighted means.
    sums, squares : ndarray of shape (n_classes, n_rows)
        Sums of weighted values over the points of each class, and of their squares.
    classes, weights : ndarray of shape (n_points,)
        Class number of each point, and its weight, 1 on average and equal within a class.
    sample : ndarray of shape (n_points, n_sampled)
    codes : ndarray of shape (n_sampled,), optional
        Class numbers of the sampled rows.
    """
    n_points = weights.size
    if n_points < 2:
        return None
    variance, average = np.zeros(means.size), weights @ sample / n_points
    off = np.empty_like(sample)
    for number, size in enumerate(np.bincount(classes).tolist()):
        inside = classes == number
        weight, mean = weights[inside][0], sample[inside].mean(axis=0)
        if size == 1:
            variance += (sums[number] - weight * means) ** 2
            off[inside] = weight * (sample[inside] - average)
            continue
        scale, around = size / (size - 1), sums[number] ** 2 / size
        within = squares[number] - around
        within[within < ROUNDING * around] = 0.0
        variance += scale * within
        off[inside] = weight * np.sqrt(scale) * (sample[inside] - mean)
    return _weighted_spread(variance / n_points, sample, average, off, codes)


def _weighted_spread(variance: Floats, sample: Floats, average: Floats, off: Floats, codes: Any) -> Spread:
    """Spread of a weighted sample, given its weighted distances from the means.

    A large weight makes the variances of all rows equally uncertain and gives no information about their differences.
    The kurtosis that sets the shrinkage is therefore that of the values without weights.
    """
    return replace(_spread(variance, len(sample), average + off, codes), kurtosis=_kurtosis(sample))


def spread_of_clusters(
    means: Floats, sums: Floats, sizes: Indices, sample: Floats, clusters: Indices, codes: Any = None
) -> Spread | None:
    """Return the spread of values over clusters of dependent points, as :func:`spread_of_points`.

    Parameters
    ----------
    means : ndarray of shape (n_rows,)
        Mean value over all points.
    sums : ndarray of shape (n_clusters, n_rows)
        Sum of the values over each cluster.
    sizes : ndarray of shape (n_clusters,)
        Number of points of each, or the sum of their weights.
    sample : ndarray of shape (n_points, n_sampled)
    clusters : ndarray of shape (n_points,)
        Number of each point's cluster.
    codes : ndarray of shape (n_sampled,), optional
        Class numbers of the sampled rows.
    """
    n_clusters, n_points = sizes.size, float(sizes.sum())
    if n_clusters < 2:
        return None
    # Clusters are weighted by their number of points: the mean is a ratio of two sums over clusters.
    scale = n_clusters / n_points
    variance = np.zeros(means.size)
    for total, size in zip(sums, sizes.tolist(), strict=True):
        variance += (scale * (total - size * means)) ** 2
    variance /= n_clusters - 1
    variance[variance < ROUNDING * means**2] = 0.0
    average = sample.mean(axis=0)
    by_cluster = np.zeros((n_clusters, sample.shape[1]))
    np.add.at(by_cluster, clusters, sample - average)
    return _spread(variance, n_clusters, average + scale * by_cluster, codes)


def _spread(variance: Floats, units: int, sample: Floats, codes: Any = None) -> Spread:
    centred = sample - sample.mean(axis=0)
    of_sum = float((centred.sum(axis=1) ** 2).sum() / (units - 1))
    classes = None
    if codes is not None:
        chosen = [centred[:, codes == code] for code in range(int(codes.max(initial=-1)) + 1)]
        classes = tuple(_covariance(part) if part.shape[1] > 1 else None for part in chosen)
    np.square(centred, out=centred)
    variances, fourth = centred.sum(axis=0) / (units - 1), np.einsum("un,un->n", centred, centred) / units
    total = float((variances**2).sum())
    # The heaviest tails of a sample of this size, if no sampled row is near any point.
    kurtosis = float(fourth.sum()) / total if total > 0 else float(units)
    n = sample.shape[1]
    covariance = (of_sum - float(variances.sum())) / (n * (n - 1)) if n > 1 else 0.0
    return Spread(variance, units, kurtosis, covariance, *agreement(sample, variance.size), classes)


def _kurtosis(sample: Floats) -> float:
    """Average kurtosis of the columns of a sample."""
    squared = np.square(sample - sample.mean(axis=0))
    total = float((squared.sum(axis=0) ** 2).sum()) / (len(sample) - 1) ** 2
    return float(np.square(squared).sum()) / len(sample) / total if total > 0 else float(len(sample))


def _covariance(centred: Floats) -> float:
    """Mean covariance of two columns."""
    units, n = centred.shape
    of_sum, own = float((centred.sum(axis=1) ** 2).sum()), float((centred**2).sum())
    return (of_sum - own) / float((units - 1) * n * (n - 1))


def shrink(variance: Floats, units: int, kurtosis: float) -> tuple[Floats, float]:
    """Shrink variances towards their mean over the rows, more for fewer units and larger kurtosis.

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
    # Variance between rows after subtracting the variance of the estimates.
    true = max((between - 2 * mean**2 / freedom) / (1 + 2 / freedom), mean**2 / 1000)
    prior = 4 + 2 * mean**2 / true
    centre = mean * (prior - 2) / prior
    return (prior * centre + freedom * variance) / (prior + freedom), min(prior + freedom, units - 1.0)


def half_width(error: Floats, freedom: Any, confidence: float, n_joint: int = 1) -> Floats:
    """Half the width of confidence intervals; ``n_joint`` of them hold together (Sidak)."""
    each = confidence ** (1 / n_joint)
    freedom = np.asarray(freedom, dtype=np.float64)
    if freedom.size and (freedom == freedom.flat[0]).all():
        freedom = freedom.flat[0]  # usually equal for all rows: the quantile takes much longer than the rest
    if n_joint > 1:
        freedom = np.minimum(freedom, JOINT_FREEDOM)
    width: Floats = stdtrit(freedom, (1 + each) / 2) * error
    return width


def sign_probability(values: Floats, error: Floats, freedom: Any) -> Floats:
    """Probability that each value is above 0; one half where value and error are both 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        found: Floats = np.where(error > 0, stdtr(freedom, values / error), (1 + np.sign(values)) / 2)
    return found


def rank_interval(values: Floats, error: Floats, freedom: Any, confidence: float) -> tuple[Indices, Indices]:
    """Interval of each row's rank among all rows, 1 for the highest value.

    A row is certainly above another if their intervals, shortened by the root of 2, do not overlap; with equal errors,
    this means that their difference is certainly positive.
    """
    half = half_width(error, freedom, confidence) / np.sqrt(2)
    low, high, n = values - half, values + half, values.size
    above = n - np.searchsorted(np.sort(low), high, side="right")
    below = np.searchsorted(np.sort(high), low, side="left")
    return 1 + above, n - below


def agreement(sample: Floats, n_rows: int) -> tuple[float | None, float | None]:
    """Estimate the correlation and rank correlation between the mean values on two samples of this size.

    Both come from the means over random halves, extrapolated to the whole sample: their odds r / (1 - r) double. More
    points improve ranks of values that are often zero less. The growth of the odds from quarters to halves is therefore
    measured too, and the result is the mean of both estimates.

    Parameters
    ----------
    sample : ndarray of shape (n_units, n_sampled)
    n_rows : int
        Number of all rows.

    Returns
    -------
    pearson, spearman : float or None
        None with fewer than four units or too few rows.
    """
    units, n = sample.shape
    if units < 4 or n < min(AGREEING_ROWS, max(n_rows, 3)):
        return None, None
    rng = np.random.default_rng(0)
    # Whole blocks of units change sides, so their sums are computed once.
    blocks = min(BLOCKS, units) // 4 * 4
    starts = np.linspace(0, units, blocks, endpoint=False).astype(np.int64)
    sums = np.add.reduceat(sample[rng.permutation(units)], starts, axis=0)
    side = np.argsort(rng.random((SPLITS, blocks)), axis=1) % 4
    quarters = np.stack([np.einsum("sb,bn->sn", (side == k).astype(np.float64), sums) for k in range(4)])
    halves = np.stack([quarters[0] + quarters[1], quarters[2] + quarters[3]])
    pearson = _correlation(halves)
    if pearson is None:
        return None, None
    scale = float(np.abs(halves).max()) * TIES
    r, r_quarters = (_correlation(_ranks(np.round(part / scale))) for part in (halves, quarters))
    if r is None:
        return _doubled(pearson), None
    spearman = _doubled(r)
    if r_quarters is not None and min(r, r_quarters) > 0 and max(r, r_quarters) < 1:
        odds = r / (1 - r)
        odds *= float(np.clip(odds * (1 - r_quarters) / r_quarters, 1.0, 2.0))
        spearman = (spearman + odds / (1 + odds)) / 2
    return _doubled(pearson), spearman


def _ranks(parts: Floats) -> Floats:
    """Ranks along the last axis, averaged over ties; scipy's take several times as long on many short rows."""
    order = np.argsort(parts, axis=-1)
    ordered, place = np.take_along_axis(parts, order, axis=-1), np.arange(parts.shape[-1])
    differs = ordered[..., 1:] != ordered[..., :-1]
    edge = np.ones((*parts.shape[:-1], 1), dtype=np.bool_)
    first = np.maximum.accumulate(np.where(np.concatenate([edge, differs], axis=-1), place, 0), axis=-1)
    ends = np.where(np.concatenate([differs, edge], axis=-1), place, place[-1])[..., ::-1]
    last = np.minimum.accumulate(ends, axis=-1)[..., ::-1]
    ranks = np.empty(parts.shape)
    np.put_along_axis(ranks, order, (first + last) / 2, axis=-1)
    return ranks


def _correlation(parts: Floats) -> float | None:
    """Mean correlation between different parts, (parts, splits, rows); None where a part does not vary."""
    centred = parts - parts.mean(axis=-1, keepdims=True)
    length = np.sqrt((centred**2).sum(axis=-1, keepdims=True))
    if not length.all():
        return None
    centred /= length
    n = len(parts)
    return float(((centred.sum(axis=0) ** 2).sum(axis=-1).mean() - n) / (n * (n - 1)))


def _doubled(r: float) -> float:
    """Correlation of wholes, given that of their halves (Spearman-Brown)."""
    return 2 * r / (1 + r) if r > -0.5 else -1.0


def reliability(values: Floats, error: Floats, mean_error: float) -> float:
    """Estimate the correlation of these values with those on another sample, from their standard errors alone.

    Parameters
    ----------
    values, error : ndarray of shape (n_rows,)
        Values and their standard errors.
    mean_error : float
        Squared standard error of the mean of all values, which shifts all of them equally.
    """
    spread = float(values.var())
    if spread == 0:
        return float("nan")
    return 1 - (float((error**2).mean()) - mean_error) / spread


def points_needed(units: int, found: float, wanted: float) -> float:
    """Return the number of sampling units needed for a wanted reliability, given that found with ``units`` of them.

    Infinite if the reliability found is not above 0.
    """
    if not found > 0:
        return float("inf")
    return units * wanted / (1 - wanted) * max(1 - found, 0.0) / found
