"""Running means of observations, per stratum, player and cell, and how sure they are."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from shapshift.sampled._protocol import Observations

Floats = npt.NDArray[np.float64]


@dataclass
class Estimate:
    """What the rounds so far add up to.

    Attributes
    ----------
    weights : ndarray of shape (n_strata,)
        The value is the sum of these times the means of the strata.
    total : ndarray of shape (n_cells,)
        ``cells @ total`` is the value over all validation points.
    rounds : int
    counts, sums, squares : ndarray
        Per stratum and player: observations, their sums per cell, and sums of squares of their totals.
    """

    weights: Floats
    total: Floats
    n_players: int
    rounds: int = 0
    counts: npt.NDArray[np.int64] = field(init=False)
    sums: Floats = field(init=False)
    squares: Floats = field(init=False)

    def __post_init__(self) -> None:
        shape = (self.weights.size, self.n_players)
        self.counts = np.zeros(shape, dtype=np.int64)
        self.sums = np.zeros((*shape, self.total.size))
        self.squares = np.zeros(shape)

    def add(self, observations: Observations) -> None:
        """Take in one round."""
        seen = np.flatnonzero(observations.stratum >= 0)
        at = observations.stratum[seen], seen
        self.counts[at] += 1
        self.sums[at] += observations.values[seen]
        self.squares[at] += (observations.values[seen] @ self.total) ** 2
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

    def standard_error(self) -> Floats:
        """Return the standard error of each value; NaN where a stratum has a single observation."""
        means = self.sums @ self.total / self.counts
        with np.errstate(invalid="ignore", divide="ignore"):
            variance = np.maximum(self.squares / self.counts - means**2, 0.0) / (self.counts - 1)
        return np.asarray(np.sqrt(self.weights**2 @ np.where(self.counts > 1, variance, np.nan)))


def relative_error(values: Floats, standard_error: Floats) -> float:
    """Largest standard error in standard deviations of the values, those freed of what sampling adds to their spread.

    Infinite while the spread of the values is no more than sampling explains.

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
