"""Cells of validation points: entropy levels and groups, or single points when all of them are asked for."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift import _labels
from shapshift.boundary import nearest_level

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Cells:
    """How the worth on single points becomes sums, and sums become means.

    Attributes
    ----------
    reduction : ndarray of shape (n_val, n_cells)
        ``worth @ reduction`` are the sums over the points of each cell, divided by the number of all points.
    total : ndarray of shape (n_cells,)
        Picks the cells that add up to the whole set.
    weights : ndarray of shape (n_cells,)
        Share of the points in each cell.
    entropy : ndarray of shape (n_val,)
    level_of, group_of : ndarray of shape (n_val,)
    level_entropy, level_counts : ndarray
        The levels that occur, and their points.
    group_names, group_sizes
    single : bool
        Whether every point is a cell.
    """

    reduction: Floats
    total: Floats
    weights: Floats
    entropy: Floats
    level_of: Integers
    level_entropy: Floats
    level_counts: Integers
    group_of: Integers
    group_names: list[Any]
    group_sizes: Integers
    single: bool

    def split(self, found: Floats) -> tuple[Floats, Floats, Floats | None]:
        """Turn sums per player and cell into means per level and per group, and the matrix of single points."""
        n_val, n_levels = self.entropy.size, self.level_entropy.size
        matrix = None
        if self.single:
            matrix = found * n_val
            found = found @ _indicators(self.level_of, n_levels, self.group_of, len(self.group_names))
        levels = found[:, :n_levels].T * (n_val / self.level_counts)[:, None]
        groups = found[:, n_levels:].T * (n_val / self.group_sizes)[:, None]
        return np.ascontiguousarray(levels), np.ascontiguousarray(groups), matrix


def make_cells(entropy: Floats, levels: Floats, groups: Any, single: bool) -> Cells:
    """Lay out the cells of a validation set.

    Parameters
    ----------
    entropy : ndarray of shape (n_val,)
        How near each point is to a boundary.
    levels : ndarray
        The entropies for which sums are kept, ascending from 0.
    groups : array-like or None
    single : bool
        Keep every point apart.
    """
    n_val = entropy.size
    present, level_of = np.unique(nearest_level(entropy, levels), return_inverse=True)
    names, group_of = ([], np.zeros(n_val, dtype=np.int64)) if groups is None else _labels.check_groups(groups, n_val)
    indicators = _indicators(level_of, present.size, group_of, len(names))
    reduction = (np.eye(n_val) if single else indicators) / n_val
    return Cells(
        reduction=reduction,
        total=np.ones(n_val) if single else np.where(np.arange(indicators.shape[1]) < present.size, 1.0, 0.0),
        weights=reduction.sum(axis=0),
        entropy=entropy,
        level_of=level_of,
        level_entropy=levels[present],
        level_counts=np.bincount(level_of),
        group_of=group_of,
        group_names=names,
        group_sizes=np.bincount(group_of, minlength=len(names))[: len(names)],
        single=single,
    )


def means_of_own_rows(player_of: Integers, n_players: int) -> Floats:
    """Return what each training row adds to the mean over its player's rows, of shape (n_train, n_players).

    Examples
    --------
    >>> means_of_own_rows(np.array([0, 1, 1]), 2)
    array([[1. , 0. ],
           [0. , 0.5],
           [0. , 0.5]])
    """
    found = np.zeros((player_of.size, n_players))
    found[np.arange(player_of.size), player_of] = 1.0
    found /= found.sum(axis=0)
    return found


def _indicators(level_of: Integers, n_levels: int, group_of: Integers, n_groups: int) -> Floats:
    found = np.zeros((level_of.size, n_levels + n_groups))
    found[np.arange(level_of.size), level_of] = 1.0
    if n_groups:
        found[np.arange(level_of.size), n_levels + group_of] = 1.0
    return found
