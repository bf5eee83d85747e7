"""Neighbour-label entropy: which validation points are near a class boundary, and how near.

The labels of a point's nearest training rows, five by default, either agree (entropy 0: the point lies inside a class)
or not (entropy above 0: a boundary point, unless the model sets a higher threshold). Five labels can split in only a
few ways, so there are only a few levels of entropy, and sums per level suffice for every later correction.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.exceptions import InputError
from shapshift.valuation import boundary_cut

Floats = npt.NDArray[np.float64]

#: Number of nearest training rows that decide whether a validation point is a boundary point.
BOUNDARY_NEIGHBORS = 5
#: Largest number of entropy levels; sums are kept for each.
MOST_LEVELS = 256


def entropy_levels(n_neighbors: int, n_classes: int, threshold: float = 0.0) -> Floats:
    """All entropies (nats) that ``n_neighbors`` labels out of ``n_classes`` can have, ascending.

    If only tied neighbours, which count in fractions, can have an entropy above the threshold of boundary points, the
    highest possible entropy is a level too.

    Examples
    --------
    >>> entropy_levels(5, 2).round(3)
    array([0.   , 0.5  , 0.673])
    """
    levels = []
    for split in _partitions(n_neighbors, n_neighbors, n_classes):
        shares = np.array(split) / n_neighbors
        levels.append(-np.sum(shares * np.log(shares)) if len(split) > 1 else 0.0)
        if len(levels) > MOST_LEVELS:
            raise InputError(
                f"The 'boundary_neighbors' parameter must be lower: the labels of {n_neighbors} rows of {n_classes} "
                f"classes can split in more than {MOST_LEVELS} ways, and sums are kept for each way."
            )
    cut = boundary_cut(threshold)
    if max(levels) <= cut < np.log(n_classes):
        levels.append(float(np.log(n_classes)))
    return np.unique(np.round(levels, 12))


def label_counts(codes: npt.NDArray[np.integer[Any]], n_classes: int) -> npt.NDArray[np.int64]:
    """Return the count of each class among the neighbours of each point.

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
    """Return the most frequent class among the neighbours of each point; ties go to the lowest class number."""
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


def level_edges(levels: Floats, threshold: float = 0.0) -> Floats:
    """Return the edges between levels: the entropy half-way, or the threshold of boundary points.

    Tied neighbours count in fractions, so an entropy can fall between levels; it belongs to the nearest level on its
    side of the threshold. So "level above the threshold" and "boundary point" mean the same, and by default level 0
    contains only entropies of exactly 0.

    Examples
    --------
    >>> level_edges(np.array([0.0, 0.5, 0.7])), level_edges(np.array([0.0, 0.5, 0.7]), 0.55).round(6)
    (array([0. , 0.6]), array([0.25, 0.55]))
    """
    edges: Floats = (levels[1:] + levels[:-1]) / 2
    cut = boundary_cut(threshold)
    above = int(np.searchsorted(levels, cut, side="right"))
    if 0 < above < levels.size:
        edges[above - 1] = cut
    return edges


def nearest_level(entropy: Floats, edges: Floats) -> npt.NDArray[np.int64]:
    """Index of the level of each entropy, given the edges between levels."""
    return np.searchsorted(edges, entropy).astype(np.int64)


def count_levels(entropy: Floats, edges: Floats) -> npt.NDArray[np.int64]:
    """Count the points of each entropy level."""
    return np.bincount(nearest_level(entropy, edges), minlength=edges.size + 1)
