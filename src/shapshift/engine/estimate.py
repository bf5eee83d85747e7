"""Running means of observations by stratum, player and cell, with their errors."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift.sampling_error import Spread, sampled_count, spread_of_clusters

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Number of blocks of validation points for estimating the error from the choice of the points.
BLOCKS = 20

# Smallest variance of the players' variances, as a share of their mean square: it is an estimate too.
LEAST_SPREAD = 1e-3
# Number of prior rounds in the estimate of the correlation between players' observations.
ROUNDS_OF_ONE = 2.0


@dataclass(frozen=True)
class Observations:
    """Contribution of each player in one round, and its stratum; -1 if the player was not observed.

    ``notes`` are other numbers about the round; the sampler reports on their sums over rounds.
    """

    values: Floats
    stratum: npt.NDArray[np.int64]
    notes: Mapping[str, float] = field(default_factory=dict)


class Estimate:
    """Sums over the rounds so far.

    Every observation of a player except the first is compared with the mean of the earlier ones. With n earlier ones,
    (x - mean)^2 n / (n + 1) is an unbiased estimate of the variance of the observations. For normal observations these
    contrasts are independent. They have no cancellation if observations share a large constant.

    Attributes
    ----------
    weights : ndarray of shape (n_strata,)
        The value is the sum of these times the means of the strata.
    total : ndarray of shape (n_cells,)
        ``cells @ total`` is the value over all validation points.
    prior_variance : float
        An additional contrast in every stratum, for samplers whose observations can all be equal by chance.
    rounds : int
    counts, sums : ndarray
        Per stratum and player: observations, and their sums per cell.
    contrasts, squares : ndarray of shape (n_strata, n_players)
        Sums of the contrasts of the totals, and of their squares.
    pooled : ndarray of shape (3, n_strata)
        Number of rounds with a contrast, and the sum and sum of squares of the mean contrast of each such round.
    """

    saved: ClassVar[tuple[str, ...]] = ("counts", "sums", "contrasts", "squares", "pooled")

    def __init__(self, weights: Floats, total: Floats, n_players: int, prior_variance: float = 0.0) -> None:
        self.weights, self.total, self.n_players, self.prior_variance = weights, total, n_players, prior_variance
        self.rounds = 0
        shape = (weights.size, n_players)
        self.counts = np.zeros(shape, dtype=np.int64)
        self.sums = np.zeros((*shape, total.size))
        self.contrasts, self.squares = np.zeros(shape), np.zeros(shape)
        self.pooled = np.zeros((3, weights.size))

    def add(self, observations: Observations) -> None:
        """Add the observations of one round."""
        seen = np.flatnonzero(observations.stratum >= 0)
        at = observations.stratum[seen], seen
        earlier = self.counts[at]
        means = self.sums[at] @ self.total / np.maximum(earlier, 1)
        contrasts = (observations.values[seen] @ self.total - means) ** 2 * (earlier / (earlier + 1))
        self.counts[at] += 1
        self.sums[at] += observations.values[seen]
        self.contrasts[at] += contrasts
        self.squares[at] += contrasts**2
        for stratum in range(self.weights.size):
            compared = contrasts[(at[0] == stratum) & (earlier > 0)]
            if compared.size:
                mean = compared.mean()
                self.pooled[:, stratum] += (1.0, mean, mean**2)
        self.rounds += 1

    @property
    def complete(self) -> bool:
        """Whether every player was observed in every stratum."""
        return bool((self.counts >= 1).all())

    def cells(self) -> Floats:
        """Values per player and cell."""
        means = self.sums / self.counts[:, :, None]
        return np.asarray(np.einsum("s,spc->pc", self.weights, means))

    def values(self) -> Floats:
        """Value of each player over all validation points."""
        return np.asarray(self.cells() @ self.total, dtype=np.float64)

    def standard_error(self) -> tuple[Floats, Floats]:
        """Return the standard error of each value and its degrees of freedom.

        NaN if no player was observed twice in a stratum.
        """
        parts = np.empty((self.weights.size, self.n_players))
        freedom = np.empty_like(parts)
        for stratum, weight in enumerate(self.weights.tolist()):
            variance, freedom[stratum] = self._variance(stratum)
            parts[stratum] = weight**2 * variance / self.counts[stratum]
        error, joint = joined_error(parts, freedom)
        return error, np.where(error > 0, joint, freedom.min(axis=0))

    def _variance(self, stratum: int) -> tuple[Floats, Floats]:
        """Variance of each player's observations in a stratum, and its degrees of freedom.

        A few observations say little about their own variance: they may all be equal by chance, and heavy tails leave
        fewer degrees of freedom than observations. So the players' variances are shrunk towards their mean, by an
        inverse gamma distribution with the mean and variance of the players' true variances. The degrees of freedom of
        that mean come from its change between rounds, since players may be observed by the same coalitions.
        """
        own = self.counts[stratum] - 1.0
        added = 1.0 if self.prior_variance > 0 else 0.0
        n = own.sum() + added
        nothing = np.full(self.n_players, np.nan)
        if n <= 0:
            return nothing, nothing
        mean = (self.contrasts[stratum].sum() + self.prior_variance) / n
        if mean == 0:
            return np.zeros(self.n_players), np.maximum(own, 1.0)
        unit = self.contrasts[stratum] / mean / np.maximum(own, 1.0)  # variances in units of their mean
        shares = own / max(own.sum(), 1.0)
        square = (self.squares[stratum].sum() + self.prior_variance**2) / n / mean / mean
        kurtosis = square / max(float(shares @ unit**2), 1.0)
        own = own * (2.0 / max(kurtosis - 1.0, 2.0)) if np.isfinite(kurtosis) else 0.0 * own
        typical = max(float(shares @ own), 1.0)
        spread = max((float(shares @ (unit - 1.0) ** 2) - 2.0 / typical) / (1.0 + 2.0 / typical), LEAST_SPREAD)
        prior = 4.0 + 2.0 / spread
        variance = mean * (prior - 2.0 + own * unit) / (prior + own)
        return variance, np.minimum(prior + own, self._pooled_freedom(stratum))

    def _pooled_freedom(self, stratum: int) -> float:
        """Degrees of freedom of the mean variance of all players, from its differences between rounds.

        A few rounds may differ little by chance, so prior rounds with the variation of one player are added.
        """
        rounds, total, squares = map(float, self.pooled[:, stratum])
        if total == 0:
            return 1.0
        # In units of the mean. Contrasts are not negative, so no large constant can cancel.
        squared_deviations = max(squares * rounds / total / total - 1.0, 0.0) * rounds
        variance = (squared_deviations + 2.0 * ROUNDS_OF_ONE) / (rounds - 1.0 + ROUNDS_OF_ONE)
        return max(2.0 * rounds / variance, 1.0)


def joined_error(variances: Floats, freedom: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Combine independent variances into a standard error and its degrees of freedom (Welch and Satterthwaite).

    Parameters
    ----------
    variances : ndarray of shape (n_parts, n)
    freedom : array-like, broadcast to that shape
        Degrees of freedom of each.

    Examples
    --------
    >>> joined_error(np.array([[9.0, 9.0, 0.0], [16.0, 0.0, 0.0]]), [[3], [4]])
    (array([5., 3., 0.]), array([6.87, 3.  ,  inf]))
    """
    total = variances.sum(axis=0)
    with np.errstate(invalid="ignore", divide="ignore"):
        joint = total**2 / (variances**2 / np.asarray(freedom)).sum(axis=0)
    return np.sqrt(total), np.where(total > 0, joint, np.inf)


def relative_error(values: Floats, standard_error: Floats) -> float:
    """Largest standard error in standard deviations of the values, without the spread added by sampling.

    Infinite while sampling explains the whole spread of the values.

    Examples
    --------
    >>> relative_error(np.array([0.0, 10.0]), np.array([0.3, 0.4])).__round__(3)
    0.08
    """
    if np.isnan(standard_error).any():
        return float("inf")
    largest = float(standard_error.max())
    if largest == 0:
        return 0.0
    spread = values.var() - np.mean(standard_error**2)
    return largest / float(np.sqrt(spread)) if spread > 0 else float("inf")


def random_blocks(units: int) -> Indices:
    """Return the block of each sampling unit, for blocks of about equal size that are the same in every run."""
    return np.random.default_rng(0).permutation(units) * min(BLOCKS, units) // units


def spread_of_blocks(means: Floats, sums: Floats, sizes: Indices) -> Spread | None:
    """Return the spread of values between blocks of points.

    Parameters
    ----------
    means : ndarray of shape (n,)
        Values over all points.
    sums : ndarray of shape (n_blocks, n)
        Sums of the values over the points of each block.
    sizes : ndarray of shape (n_blocks,)
        Number of points of each. Blocks without points are left out.

    Returns
    -------
    Spread or None
        None with fewer than two blocks.
    """
    sums, sizes = sums[sizes > 0], sizes[sizes > 0]
    some = np.random.default_rng(0).permutation(means.size)[: sampled_count(means.size, int(sizes.sum()))]
    # Each point belongs to its block.
    sample = np.repeat(sums[:, some] / sizes[:, None], sizes, axis=0)
    return spread_of_clusters(means, sums, sizes, sample, np.repeat(np.arange(sizes.size), sizes))


def with_points(spread: Spread, error: Floats, freedom: Floats) -> tuple[Floats, Floats]:
    """Return the variances of estimation and of the choice of validation points, and their degrees of freedom.

    Parameters
    ----------
    spread : Spread
        Of the values between blocks of points.
    error, freedom : ndarray of shape (n,)
        Standard errors of estimation, and their degrees of freedom.
    """
    of_points, of_points_freedom = spread.errors()
    return np.stack([error**2, of_points**2]), np.stack([freedom, np.full(error.size, of_points_freedom)])


def error_fields(spread: Spread, units: int, error: Floats, freedom: Floats) -> dict[str, Any]:
    """Return the error fields of an estimated Valuation: estimation and choice of the points together.

    Parameters
    ----------
    spread, error, freedom
        As in :func:`with_points`.
    units : int
        Number of points or clusters in the blocks.
    """
    variances, freedoms = with_points(spread, error, freedom)
    total, joint = joined_error(variances, freedoms)
    of_estimate, of_both = float(variances[0].sum()), float(variances.sum())
    scale = units / spread.units  # of blocks to units
    return {
        "standard_error": total,
        "degrees_of_freedom": joint,
        "variance": spread.variance * scale,
        "sampling": {
            **spread.facts(),
            "units": units,
            "covariance": spread.covariance * scale,
            "estimation_error": of_estimate / of_both if of_both > 0 else 0.0,
        },
    }
