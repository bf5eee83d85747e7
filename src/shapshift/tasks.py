"""What a task is: one valuation, ready to be computed, and the ways to compute it."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from shapshift.boundary import BOUNDARY_NEIGHBORS, entropy_levels
from shapshift.coefficients import RankTable
from shapshift.distances import Filler
from shapshift.running import Points

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

# About this many (training row, validation point) pairs make a block: long enough to hide the cost of handing it out,
# short enough to keep two workers equally busy and a progress bar moving.
BLOCK_PAIRS = 2**20
# A pass over the training rows serves so many points, the more the better; but a small validation set is cut into
# several blocks, so that no worker is without one.
LEAST_POINTS, BLOCK_POINTS = 32, 64


@dataclass(frozen=True)
class Task:
    """One valuation, ready to be computed.

    Attributes
    ----------
    fill : callable
        Computes distance tiles.
    codes, targets : ndarray
        Class numbers of training rows and validation points.
    n_classes : int
    table : RankTable
    average_ties : bool
    groups : ndarray of shape (n_val,)
        Group number of each validation point.
    n_groups : int
        0 when there are no groups.
    n_nearest : int
        How many nearest rows of each point to report; 0 for none.
    reference : ndarray of shape (n_val, r)
        Training rows whose ranks to report for each point; r may be 0.
    sizes : ndarray of shape (n_train,), optional
        How many rows each training row stands for, where it stands for its copies too.
    """

    fill: Filler
    codes: Codes
    targets: Codes
    n_classes: int
    table: RankTable
    average_ties: bool
    groups: npt.NDArray[np.int64]
    n_groups: int
    n_nearest: int
    reference: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64] | None = None

    @property
    def n_train(self) -> int:
        """Number of training rows, copies not counted where one row stands for all."""
        return self.codes.size

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return self.targets.size

    @property
    def depth(self) -> int:
        """How many neighbours decide about the boundary."""
        return min(BOUNDARY_NEIGHBORS, self.table.c.size)

    @cached_property
    def class_sizes(self) -> npt.NDArray[np.int64]:
        """Training rows of each class; the last entry, 0, serves labels that were never seen."""
        counted = np.bincount(self.codes, weights=self.sizes, minlength=self.n_classes)
        return np.append(counted.astype(np.int64), 0)

    @cached_property
    def levels(self) -> Floats:
        """Entropies that can occur."""
        return entropy_levels(self.depth, self.n_classes)

    def points(self, size: int, *, matrix: bool) -> Points:
        """Room for what is kept of so many points."""
        return Points(
            entropy=np.empty(size),
            nearest=np.empty((size, self.n_nearest), dtype=np.int64),
            reference_ranks=np.empty((size, self.reference.shape[1])),
            values=np.empty((size, self.n_train)) if matrix else None,
        )


@dataclass(frozen=True)
class Neighborhood:
    """Who the nearest training rows of each validation point are.

    Attributes
    ----------
    nearest : ndarray of shape (n_val, k)
        Positions of the nearest training rows, nearest first, ties by row number.
    reference_ranks : ndarray of shape (n_val, r) or None
        Zero-based rank, averaged over ties, of each training row that was asked about.
    """

    nearest: npt.NDArray[np.int64]
    reference_ranks: Floats | None


@dataclass(frozen=True)
class Sums:
    """What the engine returns: sums over validation points, per entropy level and per group.

    ``bounds`` sums what each value can be off; it has no rows when the values are exact.
    """

    levels: Floats
    level_counts: npt.NDArray[np.int64]
    groups: Floats
    bounds: Floats
    entropy: Floats
    matrix: Floats | None
    neighborhood: Neighborhood


class Worker(Protocol):
    """Values one batch of validation points after another; its scratch space is handed on from block to block."""

    def value(self, task: Task, batch: slice, groups: npt.NDArray[np.int64], points: Points, partial: Floats) -> None:
        """Add the values of a batch to ``partial``.

        Parameters
        ----------
        task : Task
        batch : slice
            Which validation points.
        groups : ndarray
            Row of ``partial`` for each point's group; -1 for none. The entropy levels have the first rows.
        points : Points
            Where to write what is kept of each point of the batch.
        partial : ndarray
            Sums of one block; rows beyond those of the levels and of the block's groups are the worker's own.
        """

    def finish(self, task: Task, partial: Floats) -> None:
        """Add what was held back until the end of the block, so that no cut into batches can change a bit."""


@dataclass(frozen=True)
class Method:
    """How values come out of distances: exactly, or with a bound.

    Attributes
    ----------
    make_worker : callable
        From a task, the largest batch and the largest block to a worker.
    point_bytes, worker_bytes : callable
        From a task to what a worker needs for each point of a batch, and besides.
    batch : callable
        From a task to the most points that are worth handling together.
    own_cells : int
        How many sums a worker keeps besides those of levels and groups.
    tile : int
        So many points are handled together wherever memory allows, however large their tile is.
    """

    make_worker: Callable[[Task, int, int], Worker]
    point_bytes: Callable[[Task], int]
    worker_bytes: Callable[[Task], int]
    batch: Callable[[Task], int]
    own_cells: int = 0
    tile: int = 1


def block_points(task: Task) -> int:
    """How many points make a block: a matter of the data alone, whether copies are counted one by one or not."""
    points = min(max(task.n_val // 8, LEAST_POINTS), BLOCK_POINTS)
    return min(max(BLOCK_PAIRS // task.table.c.size, points), task.n_val)


def bases(task: Task, targets: Codes) -> Floats:
    """beta(M) of each point, M the number of training rows that carry its label."""
    matches = task.class_sizes[targets]
    return np.asarray(task.table.per_match * matches - task.table.empty / task.n_classes, dtype=np.float64)
