"""Agreement of two valuations of the same training rows, row by row and as distributions: arrays in, numbers out."""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special, stats

from shapshift.checks.inputs import quoted
from shapshift.exceptions import InputError
from shapshift.valuation import summarize

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Keys of :func:`agreement`, in order.
AGREEMENT = (
    "spearman",
    "kendall",
    "pearson",
    "rmse",
    "flips_to_negative",
    "flips_to_positive",
    "top_overlap",
    "bottom_overlap",
)


def agreement(values: Any, reference: Any, *, top: float = 0.1) -> dict[str, float]:
    """Compare values with reference values of the same rows.

    Parameters
    ----------
    values, reference : array-like of shape (n_train,)
        For instance the values on a noisy and on a clean validation set, in the same order of rows.
    top : float or int, default=0.1
        Size of the top and bottom sets: a share of the rows above 0 and at most 1 (rounded to at least one row), or
        a number of rows when it is an integer.

    Returns
    -------
    dict of str to float
        ``spearman``, ``kendall`` (tau-b) and ``pearson`` correlation, NaN when either side is constant; ``rmse``, the
        root mean square difference in standard deviations of the reference, NaN when the reference is constant;
        ``flips_to_negative`` and ``flips_to_positive``, numbers of rows that are positive in the reference only and
        in the values only (0 counts as not positive, so the difference of the positive counts is the difference of
        the flips); ``top_overlap`` and ``bottom_overlap``, the share of the highest (lowest) rows of the reference
        that are also among the highest (lowest) of the values. Rows tied at the cut share the remaining seats
        equally, so that the order of the rows does not matter.

    Examples
    --------
    >>> result = agreement([4.0, 2.0, -1.0, -3.0], [3.0, 4.0, 1.0, -2.0], top=0.5)
    >>> result["spearman"], result["flips_to_negative"], result["top_overlap"]
    (0.8, 1.0, 1.0)
    """
    new, old = _checked(values, reference)
    return Baseline(old, top).compare(new)[0]


class Baseline:
    """Reference values, ranked once to save a sort in each comparison; threads may share it.

    Parameters
    ----------
    values : ndarray of shape (n_train,)
        Finite.
    top : float or int
        Size of the top and bottom sets, see :func:`agreement`.
    """

    def __init__(self, values: Floats, top: float) -> None:
        self.values = values
        self.positive = values > 0
        self.top = top_size(top, values.size)
        self._ascending: Floats = stats.rankdata(values)
        self._seats = shared_seats(values, self.top)
        self._constant = bool(values.min() == values.max())
        # Values can be so small that their squares underflow, so they are squared in units of the largest.
        self._unit = 1.0 if self._constant else float(np.abs(values - values.mean()).max())
        self._std = float(np.std(values / self._unit))

    @property
    def ranks(self) -> Floats:
        """Rank of each row: 1 is the highest value, ties averaged."""
        return self.values.size + 1 - self._ascending

    def compare(self, values: Floats) -> tuple[dict[str, float], Floats]:
        """Return the agreement of ``values``, as :func:`agreement` defines it, and their ranks."""
        ascending = stats.rankdata(values)
        found = dict.fromkeys(AGREEMENT, np.nan)
        if not self._constant and values.min() < values.max():
            found["spearman"] = _pearson(ascending, self._ascending)
            found["kendall"] = float(stats.kendalltau(values, self.values).statistic)
            found["pearson"] = _pearson(values, self.values)
        if not self._constant:
            found["rmse"] = float(np.sqrt(np.mean(((values - self.values) / self._unit) ** 2)) / self._std)
        positive = values > 0
        both = np.count_nonzero(positive & self.positive)
        found["flips_to_negative"] = float(np.count_nonzero(self.positive) - both)
        found["flips_to_positive"] = float(np.count_nonzero(positive) - both)
        for name, mine, theirs in zip(
            ("top_overlap", "bottom_overlap"), shared_seats(values, self.top), self._seats, strict=True
        ):
            found[name] = float(np.minimum(mine, theirs).sum() / self.top)
        return found, values.size + 1 - ascending


def distribution(values: Any, reference: Any) -> dict[str, float]:
    """Compare the distributions of two sets of values, regardless of their rows.

    Parameters
    ----------
    values, reference : array-like of shape (n_train,)

    Returns
    -------
    dict of str to float
        ``mean``, ``std``, ``positive_count`` of the values; ``mean_shift`` and ``wasserstein`` (mean distance between
        equal quantiles), both in standard deviations of the reference; ``std_ratio``, to the reference;
        ``positive_difference``, the positive count minus that of the reference. NaN when the reference is constant.

    Examples
    --------
    >>> result = distribution([3.0, 1.0, -1.0], [0.0, 2.0, -2.0])
    >>> result["positive_difference"], round(result["wasserstein"], 3)
    (1.0, 0.612)
    """
    new, old = _checked(values, reference)
    spread = (float(old.std()) if np.ptp(old) > 0 else 0.0) or np.nan
    mine, theirs = summarize(new), summarize(old)
    return {
        "mean": mine["mean"],
        "std": mine["std"],
        "positive_count": float(mine["positive_count"]),
        "mean_shift": (mine["mean"] - theirs["mean"]) / spread,
        "std_ratio": mine["std"] / spread,
        "positive_difference": float(mine["positive_count"] - theirs["positive_count"]),
        # Equal sizes: the mean distance between equal quantiles, five times as fast as scipy's general function.
        "wasserstein": float(np.abs(np.sort(new) - np.sort(old)).mean() / spread),
    }


def neighbor_jaccard(before: Integers, after: Integers) -> Floats:
    """Overlap of each point's nearest rows before and after: the size of their intersection over that of their union.

    Parameters
    ----------
    before, after : ndarray of shape (n_points, k)
        Positions of different rows, in any order.

    Returns
    -------
    ndarray of shape (n_points,)

    Examples
    --------
    >>> neighbor_jaccard(np.array([[0, 1], [2, 3]]), np.array([[1, 0], [3, 4]]))
    array([1.   , 0.333])
    """
    both = np.sort(np.concatenate([before, after], axis=1), axis=1)
    shared = np.count_nonzero(both[:, 1:] == both[:, :-1], axis=1)
    return np.asarray(shared / (both.shape[1] - shared))


def spearman(new: Floats, old: Floats) -> float:
    """Rank correlation alone; NaN where either side is constant."""
    if np.ptp(new) == 0 or np.ptp(old) == 0:
        return float("nan")
    return _pearson(stats.rankdata(new), stats.rankdata(old))


def t_interval(mean: Floats, std: Floats, count: Any, confidence: float = 0.95) -> tuple[Floats, Floats]:
    """Student t confidence interval of means of independent numbers.

    Parameters
    ----------
    mean, std : ndarray
        Mean and sample standard deviation (divisor count - 1).
    count : int or ndarray
        Number of numbers in each mean.
    confidence : float, default=0.95

    Returns
    -------
    low, high : ndarray
        NaN for fewer than two numbers.

    Examples
    --------
    >>> low, high = t_interval(np.array([2.0]), np.array([1.0]), 3)
    >>> round(float(high[0]), 3)
    4.484
    """
    freedom = np.maximum(np.asarray(count) - 1, 0)
    quantile = np.where(freedom > 0, special.stdtrit(np.maximum(freedom, 1), (1 + confidence) / 2), np.nan)
    half = quantile * std / np.sqrt(freedom + 1)
    return mean - half, mean + half


def top_size(top: Any, n_rows: int) -> int:
    """Return the number of top rows, from a share of the rows or from an integer of at most all rows."""
    if isinstance(top, int | np.integer) and not isinstance(top, bool) and top >= 1:
        return int(min(top, n_rows))
    if isinstance(top, float | np.floating) and 0 < top <= 1:
        return max(1, round(top * n_rows))
    raise InputError(
        "The 'top' parameter must be a share of the rows above 0 and at most 1, or an integer number of rows of at "
        f"least 1. Got {quoted(top)} instead."
    )


def _checked(values: Any, reference: Any) -> tuple[Floats, Floats]:
    new, old = np.asarray(values, dtype=np.float64), np.asarray(reference, dtype=np.float64)
    if new.ndim != 1 or new.shape != old.shape or new.size == 0:
        raise InputError(
            "'values' and 'reference' must be two columns of the same length, one value per training row. Got shapes "
            f"{new.shape} and {old.shape}."
        )
    for array, name in ((new, "values"), (old, "reference")):
        if not np.isfinite(array).all():
            raise InputError(f"{name!r} must hold finite numbers. Drop the rows that have none, in both.")
    return new, old


def _pearson(x: Floats, y: Floats) -> float:
    """Correlation, without the warning that scipy's function gives for nearly constant input."""
    x, y = x - x.mean(), y - y.mean()
    # Values can be so small that their squares underflow; a correlation does not depend on the scale.
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    # Not x @ y: BLAS kernels of different processors add in different orders.
    return float(np.clip((x * y).sum() / np.sqrt((x * x).sum() * (y * y).sum()), -1.0, 1.0))


def shared_seats(values: Floats, k: int) -> tuple[Floats, Floats]:
    """Share of each row in the k highest and in the k lowest; rows tied at the cut share the seats left."""
    n = values.size
    low, high = np.partition(values, [k - 1, n - k])[[k - 1, n - k]]
    found = []
    for inside, tied in ((values > high, values == high), (values < low, values == low)):
        share = (k - np.count_nonzero(inside)) / np.count_nonzero(tied)
        found.append(inside + share * tied)
    return found[0], found[1]
