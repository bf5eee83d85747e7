"""Neighbour-label entropy: which validation points lie near a class boundary, and how near.

The labels of a point's five nearest training rows either agree (entropy 0: the point lies inside a class) or not
(entropy above 0: a boundary point). Five labels can split in a handful of ways only, so the entropies fall on a
handful of levels, and sums per level are enough for every later correction.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

#: How many nearest training rows decide whether a validation point is a boundary point.
BOUNDARY_NEIGHBORS = 5


def entropy_levels(n_neighbors: int, n_classes: int) -> Floats:
    """All entropies (nats) that ``n_neighbors`` labels out of ``n_classes`` can have, ascending.

    Examples
    --------
    >>> entropy_levels(5, 2).round(3)
    array([0.   , 0.5  , 0.673])
    """
    levels = []
    for split in _partitions(n_neighbors, n_neighbors, n_classes):
        shares = np.array(split) / n_neighbors
        levels.append(-np.sum(shares * np.log(shares)) if len(split) > 1 else 0.0)
    return np.unique(np.round(levels, 12))


def label_counts(codes: npt.NDArray[np.integer[Any]], n_classes: int) -> npt.NDArray[np.int64]:
    """How often each class occurs among the neighbours of each point.

    Parameters
    ----------
    codes : ndarray of shape (n_points, n_neighbors)
        Class numbers of the neighbours.
    n_classes : int

    Returns
    -------
    ndarray of shape (n_points, n_classes)

    Examples
    --------
    >>> label_counts(np.array([[0, 1, 1], [2, 2, 2]]), 3)
    array([[1, 2, 0],
           [0, 0, 3]])
    """
    n_points = codes.shape[0]
    cells = codes + n_classes * np.arange(n_points)[:, None]
    return np.bincount(cells.ravel(), minlength=n_points * n_classes).reshape(n_points, n_classes)


def majority(codes: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int64]:
    """Return the most frequent class among the neighbours of each point; the lowest class number wins a draw."""
    winners: npt.NDArray[np.int64] = label_counts(codes, int(codes.max()) + 1).argmax(axis=1)
    return winners


def _partitions(total: int, largest: int, parts: int) -> Iterator[list[int]]:
    """Ways to write ``total`` as at most ``parts`` positive numbers, none above ``largest``."""
    if total == 0:
        yield []
    elif parts > 0:
        for first in range(min(total, largest), 0, -1):
            for rest in _partitions(total - first, first, parts - 1):
                yield [first, *rest]


def level_edges(levels: Floats) -> Floats:
    """Return the entropies half-way between two levels."""
    return (levels[1:] + levels[:-1]) / 2


def count_levels(entropy: Floats, levels: Floats) -> npt.NDArray[np.int64]:
    """Count the points whose entropy belongs to each level."""
    return np.bincount(nearest_level(entropy, levels), minlength=levels.size)


def nearest_level(entropy: Floats, levels: Floats) -> npt.NDArray[np.int64]:
    """Index of the level each entropy belongs to.

    Tied neighbours count in fractions, so an entropy can fall between levels; it goes to the nearest one. Level 0 is
    kept for entropies of exactly 0, so that "level above 0" and "boundary point" mean the same.
    """
    nearest = np.searchsorted(level_edges(levels), entropy)
    return np.where(entropy > 0, np.maximum(nearest, min(1, levels.size - 1)), 0).astype(np.int64)
