"""Lists of nearest rows, and the interface of searches."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from threading import RLock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from shapshift.kernels.nearest import Lists

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


#: A named tuple of ``ends``, ``rows``, ``distances``, and arrays with an entry for each point, such as ``Lists``.
AnyLists = TypeVar("AnyLists", bound=Any)


def cut_lists(lists: AnyLists, here: slice) -> AnyLists:
    """Return the lists of some points."""
    ends = lists.ends[here.start : here.stop + 1]
    inside = slice(ends[0], ends[-1])
    by_point = (array[here] for array in lists[3:])
    some: AnyLists = type(lists)(ends - ends[0], lists.rows[inside], lists.distances[inside], *by_point)
    return some


def join_lists(parts: list[AnyLists]) -> AnyLists:
    """Concatenate the lists of several parts."""
    ends = np.cumsum(np.concatenate([[0], *(np.diff(part.ends) for part in parts)]))
    others = zip(*(part[1:] for part in parts), strict=True)
    joined: AnyLists = type(parts[0])(ends, *(np.concatenate(arrays) for arrays in others))
    return joined


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
        Called after all lists are made; returns facts about the search for the parameters of the result.
    """

    find: Find
    report: Callable[[], dict[str, Any]]


class FitCache:
    """Objects derived from one fit, made at first use. They are not copied to other processes."""

    def __init__(self) -> None:
        self.made: dict[Any, Any] = {}
        self.lock = RLock()

    def get(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the object stored under ``key``, or make it once, even if several threads ask at the same time."""
        with self.lock:
            if key not in self.made:
                self.made[key] = make()
            return self.made[key]

    def __reduce__(self) -> tuple[type["FitCache"], tuple[()]]:
        return FitCache, ()


def wilson_interval(share: float, trials: int, z: float = 1.96) -> tuple[float, float]:
    """95% confidence interval of a mean of ``trials`` numbers between 0 and 1; shares are the widest case.

    Recalls are such numbers, not the counts of successes that ``scipy.stats.binomtest`` takes.

    Examples
    --------
    >>> wilson_interval(1.0, 32)
    (0.893, 1.0)
    """
    middle = (share + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * math.sqrt(share * (1 - share) / trials + z * z / (4 * trials * trials))
    return max(middle - half, 0.0), min(middle + half, 1.0)
