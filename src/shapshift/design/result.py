"""What a selection of validation points came to, against random ones."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.valuation import to_table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STATISTICS = ("shift", "distance", "total", "spearman")
# Shifts below this many standard deviations of the pool's values are rounding.
NO_SHIFT = 1e-9


@dataclass(frozen=True, eq=False)
class DesignResult:
    """A selected validation set and how it fared, on fresh noise, against random ones of the same size.

    Each of ``chosen``, ``random`` and ``stratified`` maps the statistics ``shift`` (root mean square difference
    between the set's values with and without noise), ``distance`` (between the set's and the whole pool's values,
    both without noise), ``total`` (between the set's values with noise and the pool's without), all in standard
    deviations of the pool's values, and ``spearman`` (between the set's values with and without noise).

    Attributes
    ----------
    indices : ndarray of int
        Positions in the pool of the selected points, ascending.
    chosen : dict of float
        Statistics of the selection.
    random : dict of ndarray
        Statistics of random sets of the same size, drawn evenly from the pool.
    stratified : dict of ndarray
        Statistics of random sets that keep the pool's class and boundary shares, as the selection does.
    boundary_fraction, pool_boundary_fraction : float
        Share of boundary points in the selection and in the pool.
    parameters : dict
        How the selection was made.
    """

    indices: Ints
    chosen: Mapping[str, float]
    random: Mapping[str, Floats]
    stratified: Mapping[str, Floats]
    boundary_fraction: float
    pool_boundary_fraction: float
    parameters: Mapping[str, Any]

    @property
    def score(self) -> float:
        """Shift of the selection on held-out noise."""
        return self.chosen["shift"]

    @property
    def random_interval(self) -> tuple[float, float]:
        """Range that holds 95 % of the random sets' shifts."""
        low, high = np.quantile(self.random["shift"], [0.025, 0.975])
        return float(low), float(high)

    @property
    def gain(self) -> float:
        """Share of a random set's mean shift that the selection saves; negative when it is worse, 0 without shifts."""
        return 0.0 if self._still else float(1 - self.score / self.random["shift"].mean())

    @property
    def beats_random(self) -> bool:
        """Whether the selection shifts less than (nearly) all random sets; not when nothing shifts."""
        return self.score < self.random_interval[0] and not self._still

    @property
    def _still(self) -> bool:
        return float(self.random["shift"].mean()) < NO_SHIFT

    @property
    def verdict(self) -> str:
        """One readable line."""
        if self._still:
            return (
                "has nothing to gain: this noise does not shift the values of random choices either; distance to the "
                f"pool's values {self.chosen['distance']:.3f} against {self.random['distance'].mean():.3f}"
            )
        low, high = self.random_interval
        relation = "less than" if self.beats_random else "more than" if self.score > high else "no less than"
        return (
            f"shifts {relation} random choices: {self.score:.3f} against {self.random['shift'].mean():.3f} "
            f"[{low:.3f}, {high:.3f}] ({self.gain:+.0%} saved); distance to the pool's values "
            f"{self.chosen['distance']:.3f} against {self.random['distance'].mean():.3f}"
        )

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate the comparison.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            ``statistic``, ``chosen``, then ``random``, ``random_low``, ``random_high`` (mean and 95 % range) and the
            same for ``stratified``.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "statistic": np.array(STATISTICS),
            "chosen": np.array([self.chosen[name] for name in STATISTICS]),
        }
        for which in ("random", "stratified"):
            sets = np.stack([getattr(self, which)[name] for name in STATISTICS])
            low, high = np.quantile(sets, [0.025, 0.975], axis=1)
            columns |= {which: sets.mean(axis=1), f"{which}_low": low, f"{which}_high": high}
        return to_table(columns, None, kind)

    def plot(self, ax: Any = None) -> Any:
        """Draw the selection among the random sets; see :mod:`shapshift.plots.design`."""
        from shapshift.plots.design import plot_design

        return plot_design(self, ax)

    def __str__(self) -> str:
        return self.verdict
