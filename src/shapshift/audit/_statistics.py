"""Statistics of a perturbed run, and running summaries of them."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shapshift.agreement import AGREEMENT, Baseline, neighbor_jaccard, t_interval
from shapshift.engine.boundary import majority
from shapshift.valuation import Valuation, summarize

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

DISTRIBUTION = ("mean", "std", "positive_count", "positive_ratio")
GROUPS = ("boundary_fraction", "alpha_boundary", "alpha_nonboundary")
RESHUFFLING = ("neighbor_jaccard", "neighbor_displacement", "changed_predictions")
PARTS = ("", "_boundary", "_nonboundary")
#: Statistics of each run, in order.
STATISTICS = (*DISTRIBUTION, *AGREEMENT, *GROUPS, *(name + part for name in RESHUFFLING for part in PARTS))

#: Columns on each training row, in order.
ROW_STATISTICS = ("mean", "std", "flip_probability", "rank_low", "rank_high", "stability")

CONFIDENCE = 0.95
# Half the width of the central 90% of a normal distribution, in standard deviations.
RANK_INTERVAL = 1.6448536269514722
# Validation points whose neighbours are compared at a time.
COMPARED_POINTS = 2**14


def distribution(valuation: Valuation) -> dict[str, float]:
    """Mean, std, positive count and ratio of the values, and the share of boundary points."""
    found = {name: float(number) for name, number in summarize(valuation.values).items()}
    return found | {"boundary_fraction": valuation.boundary_fraction}


def group_stds(valuation: Valuation) -> dict[str, float]:
    """Std over rows of the boundary and the non-boundary scores; NaN for an empty group."""
    parts = {"alpha_boundary": valuation.boundary_values, "alpha_nonboundary": valuation.nonboundary_values}
    return {name: np.nan if part is None else float(part.std()) for name, part in parts.items()}


def alphas(clean: dict[str, float], noisy: dict[str, float]) -> dict[str, float]:
    """Clean over noisy std per group; NaN if a group is empty on either side or its noisy scores do not vary."""
    return {name: clean[name] / noisy[name] if noisy[name] > 0 else np.nan for name in clean}


@dataclass(frozen=True)
class Neighbors:
    """The K nearest training rows of each clean validation point.

    Attributes
    ----------
    nearest : ndarray of shape (n_val, k)
    ranks : ndarray of shape (n_val, k)
        Their ranks, ties averaged.
    boundary : ndarray of shape (n_val,)
        Mask of the clean boundary points.
    codes : ndarray of shape (n_train,) or None
        Class numbers of the training rows.
    """

    nearest: Integers
    ranks: Floats
    boundary: npt.NDArray[np.bool_]
    codes: npt.NDArray[np.int32] | None

    def compare(self, nearest: Integers, ranks: Floats) -> dict[str, float]:
        """Distance of the perturbed neighbours, and of the clean neighbours' perturbed ranks, from the clean ones."""
        n_val = len(nearest)
        jaccard, changed = np.empty(n_val), None if self.codes is None else np.empty(n_val, dtype=np.bool_)
        for start in range(0, n_val, COMPARED_POINTS):  # keeps the work space from growing with the points
            here = slice(start, start + COMPARED_POINTS)
            jaccard[here] = neighbor_jaccard(self.nearest[here], nearest[here])
            if self.codes is not None and changed is not None:
                changed[here] = majority(self.codes[nearest[here]]) != majority(self.codes[self.nearest[here]])
        displacement = ranks - self.ranks
        np.abs(displacement, out=displacement)
        found = {}
        everywhere = np.ones_like(self.boundary)
        for part, chosen in zip(PARTS, (everywhere, self.boundary, ~self.boundary), strict=True):
            if not chosen.any():
                continue
            found["neighbor_jaccard" + part] = float(jaccard[chosen].mean())
            found["neighbor_displacement" + part] = float(np.median(displacement[chosen], overwrite_input=True))
            if changed is not None:
                found["changed_predictions" + part] = float(changed[chosen].mean())
        return found


class Running:
    """Mean and std of a stream of vectors (Welford), each entry over the runs in which it is a number."""

    def __init__(self, size: int) -> None:
        self.count = np.zeros(size)
        self._mean = np.zeros(size)
        self._squares = np.zeros(size)

    def add(self, entries: Floats) -> None:
        """Add a vector."""
        known = ~np.isnan(entries)
        self.count += known
        change = np.where(known, entries - self._mean, 0.0)
        self._mean += change / np.maximum(self.count, 1)
        self._squares += change * np.where(known, entries - self._mean, 0.0)

    @property
    def mean(self) -> Floats:
        """Mean so far; NaN without entries."""
        return np.where(self.count > 0, self._mean, np.nan)

    @property
    def std(self) -> Floats:
        """Sample standard deviation so far (divisor n - 1); NaN with fewer than two entries."""
        return np.where(self.count > 1, np.sqrt(self._squares / np.maximum(self.count - 1, 1)), np.nan)

    def interval(self) -> tuple[Floats, Floats]:
        """Student t confidence interval of the mean; NaN with fewer than two entries."""
        return t_interval(self.mean, self.std, self.count, CONFIDENCE)


class RunningRows:
    """Running statistics of each training row over the runs, in a fixed number of columns."""

    def __init__(self, baseline: Baseline) -> None:
        n = baseline.values.size
        self._baseline = baseline
        self._clean_ranks = baseline.ranks
        self._values, self._ranks = Running(n), Running(n)
        self._lowest, self._highest = np.full(n, np.inf), np.full(n, -np.inf)
        self._displacement = np.zeros(n)
        self._flips = np.zeros(n)
        self._runs = 0

    def add(self, values: Floats, ranks: Floats) -> None:
        """Add a run."""
        self._runs += 1
        self._values.add(values)
        self._ranks.add(ranks)
        np.minimum(self._lowest, ranks, out=self._lowest)
        np.maximum(self._highest, ranks, out=self._highest)
        self._displacement += np.abs(ranks - self._clean_ranks)
        self._flips += (values > 0) != self._baseline.positive

    def summary(self) -> dict[str, Floats]:
        """Columns by name, see ``ROW_STATISTICS``."""
        n, rank = self._clean_ranks.size, self._clean_ranks
        flips = self._flips / self._runs
        half = RANK_INTERVAL * np.nan_to_num(self._ranks.std)
        # Mean distance from this rank to a random rank: a row's expected move if the order is lost.
        above = np.floor(rank)
        lost = ((2 * above - n) * rank + n * (n + 1) / 2 - above * (above + 1)) / n
        moved = np.divide(self._displacement / self._runs, lost, out=np.zeros(n), where=lost > 0)
        return {
            "mean": self._values.mean,
            "std": self._values.std,
            "flip_probability": flips,
            "rank_low": np.maximum(self._ranks.mean - half, self._lowest),
            "rank_high": np.minimum(self._ranks.mean + half, self._highest),
            "stability": (1 - flips) * np.maximum(1 - moved, 0.0),
        }
