"""Cells of validation points: entropy levels and groups, or single points."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.checks import labels as _labels
from shapshift.engine.boundary import nearest_level
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Cells:
    """How utilities of single points become sums per cell, and these become means.

    Attributes
    ----------
    entropy : ndarray of shape (n_val,)
    level_of, group_of : ndarray of shape (n_val,)
    level_entropy : ndarray
        The levels that occur.
    group_names : tuple
    single : bool
        Whether every point is a cell; otherwise every level and every group is one.
    """

    entropy: Floats
    level_of: Integers
    level_entropy: Floats
    group_of: Integers
    group_names: tuple[Any, ...]
    single: bool

    @cached_property
    def members(self) -> Floats:
        """1 where a point belongs to a level or group, of shape (n_val, n_levels + n_groups)."""
        return np.hstack(
            [
                of[:, None] == np.arange(size)
                for of, size in ((self.level_of, self.level_entropy.size), (self.group_of, len(self.group_names)))
            ]
        ).astype(np.float64)

    @cached_property
    def reduction(self) -> Floats:
        """``utilities @ reduction`` are the sums over the points of each cell, divided by the number of all points."""
        return (np.eye(self.entropy.size) if self.single else self.members) / self.entropy.size

    @property
    def total(self) -> Floats:
        """1 for the cells that add up to the whole validation set, else 0."""
        n_cells, n_levels = self.reduction.shape[1], self.level_entropy.size
        return np.where(self.single | (np.arange(n_cells) < n_levels), 1.0, 0.0)

    def to_valuation(self, sums: Floats, **about: Any) -> Valuation:
        """Turn sums per player and cell, as ``reduction`` makes them, into a result.

        Parameters
        ----------
        sums : ndarray of shape (n_players, n_cells)
        **about
            All other fields of the Valuation.
        """
        n_val, n_levels = self.entropy.size, self.level_entropy.size
        counts = self.members.sum(axis=0).astype(np.int64)
        means = (sums @ self.members if self.single else sums).T * (n_val / counts)[:, None]
        level_values, level_counts = np.ascontiguousarray(means[:n_levels]), counts[:n_levels]
        return Valuation(
            values=level_counts @ level_values / n_val,
            entropy=self.entropy,
            boundary=self.entropy > 0,
            level_entropy=self.level_entropy,
            level_values=level_values,
            level_counts=level_counts,
            group_means=np.ascontiguousarray(means[n_levels:]),
            group_names=self.group_names,
            group_sizes=tuple(counts[n_levels:].tolist()),
            matrix=sums * n_val if self.single else None,
            **about,
        )


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
        Whether to keep every point apart.
    """
    n_val = entropy.size
    present, level_of = np.unique(nearest_level(entropy, levels), return_inverse=True)
    names, group_of = ([], np.zeros(n_val, dtype=np.int64)) if groups is None else _labels.check_groups(groups, n_val)
    return Cells(entropy, level_of, levels[present], group_of, tuple(names), single)


def means_of_own_rows(player_of: Integers, n_players: int) -> sparse.csr_array:
    """Return what each training row adds to the mean over its player's rows, of shape (n_train, n_players).

    Examples
    --------
    >>> means_of_own_rows(np.array([0, 1, 1]), 2).toarray()
    array([[1. , 0. ],
           [0. , 0.5],
           [0. , 0.5]])
    """
    shares = 1.0 / np.bincount(player_of, minlength=n_players)[player_of]
    return sparse.csr_array((shares, player_of, np.arange(player_of.size + 1)), shape=(player_of.size, n_players))
