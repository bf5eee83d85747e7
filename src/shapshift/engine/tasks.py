"""Tasks of the engine: one valuation, ready to be computed, and its sums."""

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shapshift.engine.boundary import BOUNDARY_NEIGHBORS, entropy_levels, level_edges, nearest_level
from shapshift.engine.coefficients import RankTable
from shapshift.engine.rows.distances import Filler
from shapshift.io.results import lock
from shapshift.kernels.rank import Batch, Findings, Rule
from shapshift.sampling_error import Spread, spread_of_classes, spread_of_clusters, spread_of_points, spread_of_weighted
from shapshift.valuation import Valuation, error_fields, is_boundary

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Clusters:
    """Clusters of dependent validation points, each split into parts by group.

    Attributes
    ----------
    of_part, group_of_part : ndarray of shape (n_parts,)
        Cluster and group of each part.
    group_names : tuple
        Empty without groups.
    """

    of_part: Indices
    group_of_part: Indices
    group_names: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class Task:
    """One valuation: the distances, and the sums over the validation points to keep.

    Attributes
    ----------
    fill : callable
        Computes distance tiles.
    n_train, n_val : int
        Numbers of training rows and validation points.
    depth : int
        Number of nearest rows that decide whether a point is a boundary point.
    levels : ndarray
        Entropies for which sums are kept.
    threshold : float
        Entropy above which a point is a boundary point.
    groups : ndarray of shape (n_val,)
        Group number of each validation point.
    group_names : tuple
        Empty without groups.
    reference : ndarray of shape (n_val, r)
        Training rows whose ranks to report for each point; r may be 0.
    n_nearest : int
        Number of nearest rows to report for each point.
    n_extra : int
        Number of other results per point.
    matrix : bool
        Whether to keep the values of all rows on each single point.
    sampled : ndarray
        Rows whose values on each single point are always kept, to estimate how values vary together.
    clusters : Clusters or None
        Clusters of dependent points; ``groups`` then has those of their parts.
    errors : bool
        Whether to compute the sampling errors of values.
    own : ndarray of shape (n_val,) or None
        Training row that each point is: it takes no part in its point's game, and has value 0 there.
    weights : ndarray of shape (n_val,) or None
        Weight of each point, 1 on average. Sums are then those of values times weights, and their squares. Products,
        which are sums of values times squared weights, are kept next to the squares.
    balanced : ndarray of shape (n_val,) or None
        Class number of each point if the weights balance classes, so that sums are kept by class.
    order : ndarray of shape (n_train,) or None
        If rows join class by class: the number of each row's class, from 0.
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
    errors: bool = True
    own: Indices | None = None
    threshold: float = 0.0
    weights: Floats | None = None
    balanced: Indices | None = None
    order: Codes | None = None

    @cached_property
    def edges(self) -> Floats:
        """Entropies between the levels."""
        return level_edges(self.levels, self.threshold)

    @cached_property
    def kept(self) -> Indices:
        """Training rows whose values on each single point are kept."""
        return np.arange(self.n_train) if self.matrix else self.sampled

    @property
    def n_cells(self) -> int:
        """Number of sums of a run: levels, squares, and for each group its values and its squares."""
        return int(self.group_cell(self.n_groups))

    @property
    def n_squares(self) -> int:
        """Number of second-order sums for each sum of values: squares, and products if points have weights."""
        return 1 if self.weights is None else 2

    def group_cell(self, group: Any) -> Any:
        """Cell of a group's sum of values.

        Entropy levels come first, then squares, then values and squares of each group. Products follow squares.
        """
        return self.levels.size + self.n_squares + (1 + self.n_squares) * group

    def amounts(self, numbers: Indices, size: int) -> Any:
        """Count the points of each number below ``size``; weighted points count by their weight."""
        return np.bincount(numbers, self.weights, minlength=size)

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return len(self.group_names)

    def by_class(self) -> Self:
        """Return the task with a group for each group and class of the points; :meth:`Sums.folded` adds up its sums.

        Returns the task itself unless classes are balanced.
        """
        if self.balanced is None:
            return self
        cells = _class_cells(self)
        return replace(self, groups=cells[1], group_names=tuple(range(cells[0].size)))

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
        Number of duplicates of each training row; None if there are none.
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
        """Number of training rows of each class; the last entry, 0, is for labels never seen in training."""
        counted = np.bincount(self.codes, weights=self.sizes, minlength=self.n_classes)
        return np.append(counted.astype(np.int64), 0)

    @property
    def rule(self) -> Rule:
        """Rule for turning ranks into values."""
        return Rule(self.table.c, self.average_ties, self.depth)

    def batch(self, here: slice) -> Batch:
        """Return the kernels' inputs for some points."""
        targets = self.targets[here]
        return Batch(targets, self.bases(targets), self.reference[here])

    def bases(self, targets: Codes) -> Floats:
        """beta(M) of points with these labels, where M training rows carry the label."""
        matches, classes = self.class_sizes[targets], self.n_classes
        if self.own is not None:
            matches, classes = matches - 1, classes - (matches == 1)
        return np.asarray(self.table.per_match * matches - self.table.empty / classes, dtype=np.float64)


def class_task(
    codes: Codes,
    targets: Codes,
    n_classes: int,
    table: RankTable,
    *,
    average_ties: bool,
    boundary_neighbors: int = BOUNDARY_NEIGHBORS,
    **others: Any,
) -> ClassTask:
    """Return a task with class labels; its depth and its entropy levels follow from the number of rows and classes.

    Parameters
    ----------
    codes, targets, n_classes, table, average_ties
        As in :class:`ClassTask`.
    boundary_neighbors : int
        Number of nearest rows that decide whether a point is a boundary point; all rows if there are fewer.
    **others
        ``fill``, and any other field of :class:`Task` that differs from its default. There are no groups by default.
    """
    depth = min(boundary_neighbors, table.c.size - (others.get("own") is not None))
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
        levels=entropy_levels(depth, n_classes, given.get("threshold", 0.0)),
        codes=codes,
        targets=targets,
        n_classes=n_classes,
        table=table,
        average_ties=average_ties,
        **given,
    )


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
        """Outputs of the rank kernels."""
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
        Zero-based rank, averaged over ties, of each requested training row.
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
    products, group_products : ndarray or None
        Sums of values times squared weights, in the same shapes; None if points have no weights.
    classes : tuple or None
        Sums of values and of their squares per class of the points, if classes are balanced.
    level_counts : ndarray
        Points per entropy level.
    bounds : ndarray of shape (0 or 1, n_train)
        Sums of the error bounds; no rows if values are exact.
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
    products: Floats | None = None
    group_products: Floats | None = None
    classes: tuple[Floats, Floats] | None = None

    @classmethod
    def of(cls, task: Task, sums: Floats, counts: Indices, points: Points) -> "Sums":
        """Split an array of sums in the layout of :meth:`Task.group_cell`, with bounds last."""
        n_levels, first, end, step = task.levels.size, task.group_cell(0), task.n_cells, 1 + task.n_squares
        groups, group_squares = sums[first:end:step], sums[first + 1 : end : step]
        found = cls(sums[:n_levels], groups, sums[n_levels], group_squares, counts, sums[end:], points)
        if task.weights is None:
            return found
        return replace(found, products=sums[n_levels + 1], group_products=sums[first + 2 : end : step])

    def without_own(self, task: ClassTask, own: Indices) -> "Sums":
        """Subtract the value of each row on its own point from all sums, in place; ``own`` is that of the task.

        Such a row is ranked last and matches, so its exact value is known. The error bound is unchanged.
        """
        entropy = self.points.entropy
        worth = task.bases(task.targets) + task.table.c[-1]
        if task.weights is not None and self.products is not None and self.group_products is not None:
            worth = worth * task.weights
            self.products[own] -= worth * task.weights
            if task.n_groups:
                self.group_products[task.groups, own] -= worth * task.weights
        self.levels[nearest_level(entropy, task.edges), own] -= worth
        self.squares[own] -= worth**2
        if task.n_groups:
            self.groups[task.groups, own] -= worth
            self.group_squares[task.groups, own] -= worth**2
        self.points.values[own[:, None] == task.kept] = 0.0
        return self

    def folded(self, task: Task) -> "Sums":
        """Return the sums of a task, given those of its :meth:`Task.by_class`."""
        if task.balanced is None:
            return self
        cells, _ = _class_cells(task)
        n_classes = int(task.balanced.max()) + 1
        groups, classes = np.divmod(cells, n_classes)
        found: dict[str, Any] = {"classes": (np.zeros((n_classes, task.n_train)), np.zeros((n_classes, task.n_train)))}
        names = ("groups", "group_squares", "group_products")
        found |= {name: np.zeros((task.n_groups, task.n_train)) for name in names}
        for cell, (group, number) in enumerate(zip(groups.tolist(), classes.tolist(), strict=True)):
            for into, name in zip(found["classes"], names, strict=False):
                into[number] += getattr(self, name)[cell]
            for name in names if task.n_groups else ():
                found[name][group] += getattr(self, name)[cell]
        return replace(self, **found)

    def neighborhood(self, task: Task) -> Neighborhood:
        """Nearest rows and requested ranks."""
        return Neighborhood(self.points.nearest, self.points.reference_ranks if task.reference.size else None)

    def to_valuation(self, task: Task, codes: Codes | None = None, **about: Any) -> Valuation:
        """Return the means as a result. The sums are divided in place, and so used up.

        Parameters
        ----------
        task : Task
        codes : ndarray of shape (n_train,), optional
            Class number of each training row.
        **about
            ``ids``, ``parameters``, ``fingerprint``, ``kind`` and ``id_names`` of the result.
        """
        counts: Any = self.level_counts
        if task.weights is not None:
            counts = task.amounts(nearest_level(self.points.entropy, task.edges), counts.size)
        present = counts > 0
        level_values, level_counts = self.levels[present], counts[present]
        values = level_values.sum(axis=0)
        # In place, because these are the largest arrays.
        values /= task.n_val
        level_values /= level_counts[:, None]
        sample = np.ascontiguousarray(self.points.values[:, task.sampled]) if task.matrix else self.points.values
        classes = None if codes is None else codes[task.sampled]
        spread = self._spread(task, values, sample, classes=classes) if task.errors else None
        names, sizes, means, errors = self._groups(task)
        error: dict[str, Any] = {}
        if spread is not None:
            group_freedom = np.ones(len(names))
            for group in range(len(names)):
                found = self._spread(task, means[group], sample, group)
                errors[group], group_freedom[group] = (np.inf, 1.0) if found is None else found.errors()
            error = error_fields(spread) | {"group_errors": lock(errors), "group_freedom": group_freedom}
        return Valuation(
            values=lock(values),
            entropy=self.points.entropy,
            boundary=is_boundary(self.points.entropy, task.threshold),
            level_entropy=task.levels[present],
            level_values=lock(level_values),
            level_counts=level_counts,
            group_means=lock(means),
            group_names=names,
            group_sizes=sizes,
            matrix=lock(self.points.values.T) if task.matrix else None,
            error_bound=self.error_bound,
            point_weight=task.weights,
            **error,
            **about,
        )

    def _groups(self, task: Task) -> tuple[tuple[Any, ...], tuple[int, ...], Floats, Floats]:
        """Return names, sizes and mean values of the groups, and arrays for their standard errors."""
        n, counts, clusters = task.n_train, task.amounts(task.groups, 0), task.clusters
        if clusters is not None:
            n_groups = len(clusters.group_names)
            means, sizes = np.zeros((n_groups, n)), np.zeros(n_groups, dtype=counts.dtype)
            for part, group in enumerate(clusters.group_of_part.tolist() if n_groups else []):
                means[group] += self.groups[part]
                sizes[group] += counts[part]
            means /= sizes[:, None]
            return clusters.group_names, tuple(sizes.tolist()), means, np.empty_like(means)
        if not task.n_groups:  # new arrays, so that the result holds no view of the sums
            return (), (), np.empty((0, n)), np.empty((0, n))
        means = self.groups
        means /= counts[:, None]
        return task.group_names, tuple(counts.tolist()), means, self.group_squares

    def _spread(
        self, task: Task, means: Floats, sample: Floats, group: int | None = None, classes: Codes | None = None
    ) -> Spread | None:
        """Return the spread of the values on the points of a group, or on all; ``classes`` of the sampled rows."""
        clusters, of_points, weights = task.clusters, task.groups, task.weights
        if clusters is None:
            here = slice(None) if group is None else of_points == group
            squares = self.squares if group is None else self.group_squares[group]
            if weights is None:
                return spread_of_points(means, squares, sample[here].shape[0], sample[here], classes)
            if self.classes is not None and task.balanced is not None and group is None:
                return spread_of_classes(means, *self.classes, task.balanced, weights, sample, classes)
            products: Any = self.products if group is None else self.group_products[group]  # type: ignore[index]  # kept with weights
            return spread_of_weighted(means, squares, products, weights[here], sample[here], classes)
        chosen = np.arange(clusters.of_part.size)
        if group is not None:
            chosen = np.flatnonzero(clusters.group_of_part == group)
        _, numbers = np.unique(clusters.of_part[chosen], return_inverse=True)
        cluster_of_part = np.full(clusters.of_part.size, -1)
        cluster_of_part[chosen] = numbers
        of_points = cluster_of_part[of_points]
        inside = of_points >= 0
        sizes = np.bincount(of_points[inside], None if weights is None else weights[inside])
        # One cluster at a time: together they are the largest arrays.
        by_cluster = np.split(chosen[np.argsort(numbers, kind="stable")], np.cumsum(np.bincount(numbers))[:-1])
        sums: Any = (sum(self.groups[part] for part in parts) for parts in by_cluster)
        if weights is not None:
            sample = means[task.sampled] + weights[:, None] * (sample - means[task.sampled])
        return spread_of_clusters(means, sums, sizes, sample[inside], of_points[inside], classes)


def _class_cells(task: Task) -> tuple[Indices, Indices]:
    """Return the pairs of group and class that occur among the points, and the pair number of each point."""
    balanced: Any = task.balanced
    numbers = task.groups * (int(balanced.max()) + 1) + balanced
    pairs, of_point = np.unique(numbers, return_inverse=True)
    return pairs, of_point
