"""Tasks of the engine: one valuation, ready to be computed, and the sums it ends with."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.engine.boundary import BOUNDARY_NEIGHBORS, entropy_levels
from shapshift.engine.coefficients import RankTable
from shapshift.engine.rows.distances import Filler
from shapshift.io.results import lock
from shapshift.kernels.rank import Batch, Findings, Rule
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One valuation: distances, and which sums over the validation points to keep.

    Attributes
    ----------
    fill : callable
        Computes distance tiles.
    n_train, n_val : int
        Numbers of training rows and validation points.
    depth : int
        Number of nearest rows that decide about the boundary.
    levels : ndarray
        Entropies that sums are kept for.
    groups : ndarray of shape (n_val,)
        Group number of each validation point.
    group_names : tuple
        Empty when there are no groups.
    reference : ndarray of shape (n_val, r)
        Training rows whose ranks to report for each point; r may be 0.
    n_nearest : int
        Number of nearest rows to report for each point.
    n_extra : int
        Number of other results per point that the method reports.
    matrix : bool
        Whether to keep the values of each single point.
    """

    fill: Filler
    n_train: int
    n_val: int
    depth: int
    levels: Floats
    groups: Indices
    group_names: tuple[Any, ...]
    reference: Indices
    n_nearest: int = 0
    n_extra: int = 0
    matrix: bool = False

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.group_names)

    @property
    def n_rows(self) -> int:
        """Number of training rows, all duplicates counted."""
        return self.n_train

    def points(self, size: int) -> "Points":
        """Allocate per-point outputs for ``size`` points."""
        return Points(
            entropy=np.empty(size),
            nearest=np.empty((size, self.n_nearest), dtype=np.int64),
            reference_ranks=np.empty((size, self.reference.shape[1])),
            extra=np.empty((size, self.n_extra)),
            values=np.empty((size, self.n_train)) if self.matrix else None,
        )


@dataclass(frozen=True, kw_only=True)
class ClassTask(Task):
    """A task with class labels and the rank table of a semivalue.

    Attributes
    ----------
    codes, targets : ndarray
        Class numbers of training rows and validation points.
    n_classes : int
    table : RankTable
    average_ties : bool
    sizes : ndarray of shape (n_train,) or None
        Number of duplicates each training row stands for; None if each stands for itself.
    """

    codes: Codes
    targets: Codes
    n_classes: int
    table: RankTable
    average_ties: bool
    sizes: Indices | None = None

    @property
    def n_rows(self) -> int:
        """Number of training rows, all duplicates counted."""
        return self.table.c.size

    @cached_property
    def class_sizes(self) -> Indices:
        """Training rows of each class; the last entry, 0, serves labels that were never seen."""
        counted = np.bincount(self.codes, weights=self.sizes, minlength=self.n_classes)
        return np.append(counted.astype(np.int64), 0)

    @property
    def rule(self) -> Rule:
        """How ranks become values."""
        return Rule(self.table.c, self.average_ties, self.depth)

    def batch(self, here: slice) -> Batch:
        """Return what kernels need to know of some points."""
        targets = self.targets[here]
        return Batch(targets, self.bases(targets), self.reference[here])

    def bases(self, targets: Codes) -> Floats:
        """beta(M) of points with such labels, M the number of training rows that carry the label."""
        matches = self.class_sizes[targets]
        return np.asarray(self.table.per_match * matches - self.table.empty / self.n_classes, dtype=np.float64)


def class_task(
    codes: Codes, targets: Codes, n_classes: int, table: RankTable, *, average_ties: bool, **others: Any
) -> ClassTask:
    """Return a task with class labels; its depth and its entropy levels follow from the number of rows and classes.

    Parameters
    ----------
    codes, targets, n_classes, table, average_ties
        As in :class:`ClassTask`.
    **others
        ``fill``, and whatever else of :class:`Task` differs from its default. There are no groups unless given.
    """
    depth = min(BOUNDARY_NEIGHBORS, table.c.size)
    given: dict[str, Any] = {
        "groups": np.zeros(targets.size, dtype=np.int64),
        "group_names": (),
        "reference": np.empty((targets.size, 0), dtype=np.int64),
        **others,
    }
    return ClassTask(
        n_train=codes.size,
        n_val=targets.size,
        depth=depth,
        levels=entropy_levels(depth, n_classes),
        codes=codes,
        targets=targets,
        n_classes=n_classes,
        table=table,
        average_ties=average_ties,
        **given,
    )


@dataclass(frozen=True)
class Points:
    """Results of single validation points; workers write disjoint slices."""

    entropy: Floats
    nearest: Indices
    reference_ranks: Floats
    extra: Floats
    values: Floats | None

    def __getitem__(self, here: slice) -> "Points":
        values = None if self.values is None else self.values[here]
        return Points(self.entropy[here], self.nearest[here], self.reference_ranks[here], self.extra[here], values)

    @property
    def findings(self) -> Findings:
        """What rank kernels fill in."""
        return Findings(self.entropy, self.nearest, self.reference_ranks)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays, by name."""
        return {name: array for name, array in vars(self).items() if array is not None}

    def put(self, here: slice, found: "Points | dict[str, npt.NDArray[Any]]") -> None:
        """Copy the results of a slice of the points."""
        new = found if isinstance(found, dict) else found.arrays()
        for name, array in self.arrays().items():
            array[here] = new[name]


@dataclass(frozen=True)
class Neighborhood:
    """Nearest training rows of each validation point.

    Attributes
    ----------
    nearest : ndarray of shape (n_val, k)
        Positions of the nearest training rows, nearest first, ties by row number.
    reference_ranks : ndarray of shape (n_val, r) or None
        Zero-based rank, averaged over ties, of each training row that was asked about.
    """

    nearest: Indices
    reference_ranks: Floats | None


@dataclass(frozen=True)
class Sums:
    """Sums over the validation points of a task, per entropy level and per group.

    Attributes
    ----------
    levels, groups : ndarray of shape (n_cells, n_train)
    level_counts : ndarray
        Points per entropy level.
    bounds : ndarray of shape (0 or 1, n_train)
        Sums of the error bounds; no rows when values are exact.
    points : Points
    error_bound : ndarray of shape (n_train,) or None
        Error bound of the mean over all points.
    notes : dict
        How the values were computed, for the parameters of the result.
    """

    levels: Floats
    groups: Floats
    level_counts: Indices
    bounds: Floats
    points: Points
    error_bound: Floats | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, sums: Floats, counts: Indices, points: Points) -> "Sums":
        """Split an array of sums: entropy levels first, then groups, then bounds."""
        n_levels, n_shared = task.levels.size, task.levels.size + task.n_groups
        return cls(sums[:n_levels], sums[n_levels:n_shared], counts, sums[n_shared:], points)

    def neighborhood(self, task: Task) -> Neighborhood:
        """Nearest rows and ranks that were asked for."""
        return Neighborhood(self.points.nearest, self.points.reference_ranks if task.reference.size else None)

    def to_valuation(self, task: Task, **about: Any) -> Valuation:
        """Means instead of sums, as a result. The sums are used up: they are divided in place.

        Parameters
        ----------
        task : Task
        **about
            ``ids``, ``parameters``, ``fingerprint``, ``kind`` and ``id_names`` of the result.
        """
        sizes = np.bincount(task.groups, minlength=task.n_groups)[: task.n_groups]
        present = self.level_counts > 0
        level_values, level_counts = self.levels[present], self.level_counts[present]
        values = level_values.sum(axis=0)
        # In place: these are the largest arrays there are.
        values /= task.n_val
        level_values /= level_counts[:, None]
        # Without groups an empty array of its own, so that the result holds no view of the sums.
        group_means = self.groups if task.n_groups else np.empty((0, task.n_train))
        group_means /= sizes[:, None]
        return Valuation(
            values=lock(values),
            entropy=self.points.entropy,
            boundary=self.points.entropy > 0,
            level_entropy=task.levels[present],
            level_values=lock(level_values),
            level_counts=level_counts,
            group_means=lock(group_means),
            group_names=task.group_names,
            group_sizes=tuple(sizes.tolist()),
            matrix=None if self.points.values is None else lock(self.points.values.T),
            error_bound=self.error_bound,
            **about,
        )
