"""Lists of nearest rows, and how they are asked for."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Lists:
    """The nearest rows of a few validation points, one list behind the other.

    Attributes
    ----------
    ends : ndarray of shape (b + 1,)
        The list of point p is ``[ends[p]:ends[p + 1]]``.
    rows, distances : ndarray
        Row numbers and distances, nearest first, ties by row number.
    certain : ndarray of shape (b,)
        How many rows at the head of each list are the nearest ones, none missing.
    ranks : ndarray of shape (b, r)
        Zero-based rank, averaged over ties, of each row that was asked about; one that is not on the list stands in
        the middle of all those that are not.
    """

    ends: Indices
    rows: Indices
    distances: Floats
    certain: Indices
    ranks: Floats

    def __getitem__(self, p: int) -> "Lists":
        here = slice(self.ends[p], self.ends[p + 1])
        ends = np.array([0, here.stop - here.start])
        return Lists(ends, self.rows[here], self.distances[here], self.certain[p : p + 1], self.ranks[p : p + 1])


def join_lists(parts: list[Lists]) -> Lists:
    """Put the lists of single points one behind the other."""
    return Lists(
        ends=np.cumsum([0, *(part.rows.size for part in parts)]),
        rows=np.concatenate([part.rows for part in parts]),
        distances=np.concatenate([part.distances for part in parts]),
        certain=np.concatenate([part.certain for part in parts]),
        ranks=np.concatenate([part.ranks for part in parts]),
    )


#: Lists of validation points start..stop-1, with the ranks of some rows for each.
Find = Callable[[int, int, Indices], Lists]


@dataclass(frozen=True)
class Search:
    """A way to find nearest rows.

    Attributes
    ----------
    find : callable
        Returns the lists of points start..stop-1.
    report : callable
        Says, when all lists have been made, how it went: what belongs into the parameters of the result.
    """

    find: Find
    report: Callable[[], dict[str, Any]]


class FitCache:
    """What is derived from one fit, made at first use. A copy for another process leaves it behind."""

    def __init__(self) -> None:
        self.made: dict[Any, Any] = {}
        self.lock = RLock()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return what is kept under ``key``, or make it, once: a model may be asked by several threads at a time."""
        with self.lock:
            if key not in self.made:
                self.made[key] = make()
            return self.made[key]

    def __reduce__(self) -> tuple[type["FitCache"], tuple[()]]:
        return FitCache, ()


def wilson_interval(share: float, trials: int, z: float = 1.96) -> tuple[float, float]:
    """95% confidence interval of a mean of ``trials`` numbers between 0 and 1, of which shares are the widest case.

    Recalls are such numbers and not counts of successes, which is what ``scipy.stats.binomtest`` takes.

    Examples
    --------
    >>> wilson_interval(1.0, 32)
    (0.893, 1.0)
    """
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(middle - half, 0.0), min(middle + half, 1.0)
