"""Tasks of the engine: one valuation, ready to be computed, and the sums it ends with."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.engine.boundary import BOUNDARY_NEIGHBORS, entropy_levels, nearest_level
from shapshift.engine.coefficients import RankTable
from shapshift.engine.rows.distances import Filler
from shapshift.io.results import lock
from shapshift.kernels.rank import Batch, Findings, Rule
from shapshift.sampling_error import Spread, spread_of_clusters, spread_of_points
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Clusters:
    """Clusters of dependent validation points, each in as many parts as it has points in different groups.

    Attributes
    ----------
    of_part, group_of_part : ndarray of shape (n_parts,)
        Cluster and group of each part.
    n_clusters : int
    group_names : tuple
        Empty when there are no groups.
    """

    of_part: Indices
    group_of_part: Indices
    n_clusters: int
    group_names: tuple[Any, ...]


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
        Whether to keep the values of all rows on each single point.
    sampled : ndarray
        Rows whose values on each single point are kept in any case: they tell how values vary together.
    clusters : Clusters or None
        Clusters of dependent points; ``groups`` are then those of their parts.
    own : ndarray of shape (n_val,) or None
        The training row that each point is: it is no player of its point's game, and worth 0 there.
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
    sampled: Indices = field(default_factory=lambda: np.empty(0, dtype=np.int64))
    clusters: "Clusters | None" = None
    own: Indices | None = None

    @cached_property
    def kept(self) -> Indices:
        """Training rows whose values on each single point are kept."""
        return np.arange(self.n_train) if self.matrix else self.sampled

    @property
    def n_cells(self) -> int:
        """Number of sums of a run: levels, squares, and for each group its values and its squares."""
        return int(group_cell(self.levels.size, self.n_groups))

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
            values=np.empty((size, self.kept.size)),
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
        matches, classes = self.class_sizes[targets], self.n_classes
        if self.own is not None:
            matches, classes = matches - 1, classes - (matches == 1)
        return np.asarray(self.table.per_match * matches - self.table.empty / classes, dtype=np.float64)


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
    depth = min(BOUNDARY_NEIGHBORS, table.c.size - (others.get("own") is not None))
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


def group_cell(n_levels: int, group: Any) -> Any:
    """Cell of a group's sum of values: entropy levels come first, then squares, then value and squares of each group.

    That of its squares is the next one.
    """
    return n_levels + 1 + 2 * group


@dataclass(frozen=True)
class Points:
    """Results of single validation points; workers write disjoint slices.

    ``values`` are those of the rows that the task keeps.
    """

    entropy: Floats
    nearest: Indices
    reference_ranks: Floats
    extra: Floats
    values: Floats

    def __getitem__(self, here: slice) -> "Points":
        return Points(*(array[here] for array in vars(self).values()))

    @property
    def findings(self) -> Findings:
        """What rank kernels fill in."""
        return Findings(self.entropy, self.nearest, self.reference_ranks)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """All arrays, by name."""
        return dict(vars(self))

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
    squares, group_squares : ndarray
        Sums of squared values: over all points, shape (n_train,), and per group.
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
    squares: Floats
    group_squares: Floats
    level_counts: Indices
    bounds: Floats
    points: Points
    error_bound: Floats | None = None
    notes: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, task: Task, sums: Floats, counts: Indices, points: Points) -> "Sums":
        """Split an array of sums, laid out as :func:`group_cell` says, bounds last."""
        n_levels, first, end = task.levels.size, group_cell(task.levels.size, 0), task.n_cells
        groups, group_squares = sums[first:end:2], sums[first + 1 : end : 2]
        return cls(sums[:n_levels], groups, sums[n_levels], group_squares, counts, sums[end:], points)

    def without_own(self, task: ClassTask, own: Indices) -> "Sums":
        """Take the value of each row on its own point out of all sums, in place; ``own`` are those of the task.

        Such a row is ranked last and matches: its exact value is known. An error bound stays as large as it was.
        """
        entropy = self.points.entropy
        worth = task.bases(task.targets) + task.table.c[-1]
        self.levels[nearest_level(entropy, task.levels), own] -= worth
        self.squares[own] -= worth**2
        if task.n_groups:
            self.groups[task.groups, own] -= worth
            self.group_squares[task.groups, own] -= worth**2
        self.points.values[own[:, None] == task.kept] = 0.0
        return self

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
        present = self.level_counts > 0
        level_values, level_counts = self.levels[present], self.level_counts[present]
        values = level_values.sum(axis=0)
        # In place: these are the largest arrays there are.
        values /= task.n_val
        level_values /= level_counts[:, None]
        group_names, sizes, group_means, spreads = self._by_group(task, values)
        error: dict[str, Any] = {}
        if spreads[0] is not None:
            found = [(np.full(task.n_train, np.inf), 1.0) if one is None else one.errors() for one in spreads]
            error = {
                "variance": lock(spreads[0].variance),
                "sampling": spreads[0].facts(),
                "standard_error": lock(found[0][0]),
                "degrees_of_freedom": lock(np.full(task.n_train, found[0][1])),
                "group_errors": lock(np.array([one[0] for one in found[1:]]).reshape(-1, task.n_train)),
                "group_freedom": np.array([one[1] for one in found[1:]]),
            }
        return Valuation(
            values=lock(values),
            entropy=self.points.entropy,
            boundary=self.points.entropy > 0,
            level_entropy=task.levels[present],
            level_values=lock(level_values),
            level_counts=level_counts,
            group_means=lock(group_means),
            group_names=group_names,
            group_sizes=tuple(sizes.tolist()),
            matrix=lock(self.points.values.T) if task.matrix else None,
            error_bound=self.error_bound,
            **error,
            **about,
        )

    def _by_group(self, task: Task, values: Floats) -> tuple[tuple[Any, ...], Indices, Floats, list[Spread | None]]:
        """Return names, sizes and means of the groups, and the spread of the values on all points and on each group."""
        sample = np.ascontiguousarray(self.points.values[:, task.sampled]) if task.matrix else self.points.values
        if task.clusters is not None:
            return self._by_cluster(task, task.clusters, values, sample)
        sizes = np.bincount(task.groups, minlength=task.n_groups)[: task.n_groups]
        # Without groups an empty array of its own, so that the result holds no view of the sums.
        means = np.ascontiguousarray(self.groups) if task.n_groups else np.empty((0, task.n_train))
        means /= sizes[:, None]
        spreads = [spread_of_points(values, self.squares, task.n_val, sample)]
        for group, size in enumerate(sizes.tolist()):
            of_group = sample[task.groups == group]
            spreads.append(spread_of_points(means[group], self.group_squares[group], size, of_group))
        return task.group_names, sizes, means, spreads

    def _by_cluster(
        self, task: Task, clusters: Clusters, values: Floats, sample: Floats
    ) -> tuple[tuple[Any, ...], Indices, Floats, list[Spread | None]]:
        parts = np.bincount(task.groups, minlength=clusters.of_part.size)

        def spread(means: Floats, chosen: Indices) -> Spread | None:
            """Return the spread over the clusters of some parts."""
            _, numbers = np.unique(clusters.of_part[chosen], return_inverse=True)
            sums, sizes = np.zeros((numbers.max() + 1, task.n_train)), np.bincount(numbers, weights=parts[chosen])
            for number, part in zip(numbers.tolist(), chosen.tolist(), strict=True):
                sums[number] += self.groups[part]
            cluster_of_part = np.full(parts.size, -1)
            cluster_of_part[chosen] = numbers
            of_points = cluster_of_part[task.groups]
            inside = of_points >= 0
            return spread_of_clusters(means, sums, sizes.astype(np.int64), sample[inside], of_points[inside])

        of_group = [np.flatnonzero(clusters.group_of_part == g) for g in range(len(clusters.group_names))]
        sizes = np.array([parts[chosen].sum() for chosen in of_group], dtype=np.int64)
        means = np.array([self.groups[chosen].sum(axis=0) for chosen in of_group]).reshape(-1, task.n_train)
        means /= sizes[:, None]
        spreads = [spread(values, np.arange(parts.size)), *map(spread, means, of_group)]
        return clusters.group_names, sizes, means, spreads
