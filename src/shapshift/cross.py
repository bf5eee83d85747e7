"""Values without a validation set: the rows of one table are training rows and validation points at once.

Each row is also a point, and takes no part in the game of its own point. A point gives exact values to all rows that it
sees: all other rows, or those of other folds. A row's value is its mean over the points that see it.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from shapshift._arrays import take_rows
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.warnings import warn
from shapshift.engine.boundary import nearest_level
from shapshift.engine.rows.distances import row_hashes
from shapshift.engine.rows.file import is_streamed
from shapshift.engine.tasks import Sums, Task
from shapshift.exceptions import InputError
from shapshift.io.results import lock
from shapshift.knn.base import KNNModel, Prepared
from shapshift.knn.shapley import KNNShapley
from shapshift.sampled.estimator import SampledShapley
from shapshift.sampled.proxy import KNNProxy
from shapshift.sampled.rows import as_numbers
from shapshift.sampling_error import ROUNDING, Spread, sampled_count, spread_of_points
from shapshift.valuation import Valuation, error_fields, is_boundary

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Default numbers of folds: for a model that is fitted anew for each, at most for groups, and for times.
DRAWN_FOLDS, GROUP_FOLDS, TIME_FOLDS = 5, 10, 5
#: Smallest share of rows with a copy among the rows they see that causes a warning about copies.
MANY_COPIES = 0.05


def cross_value(
    model: Any,
    X: Any,
    y: Any,
    *,
    ids: Any = None,
    groups: Any = None,
    times: Any = None,
    folds: int | None = None,
    point_weight: Any = None,
    checkpoint: str | os.PathLike[str] | None = None,
) -> Valuation:
    """Value every row of a table on its other rows, without a validation set.

    Parameters
    ----------
    model : KNNShapley, KNNRegressionShapley, ThresholdKNNShapley, WeightedKNNShapley or KNNProxy
        How rows are valued. It is copied, and the copy is fitted.
    X, y, ids
        The rows, as ``fit`` of the model takes them, but not as an iterator. With ``metric="precomputed"``, the
        distances between all rows, or a sparse graph of the nearest; a row's distance to itself does not matter.
    groups : array-like of shape (n_rows,), optional
        One name per row, equal for rows that belong together, such as readings of one patient or copies of one row. No
        point sees a row of its own group. Groups are kept together in up to 10 folds, or ``folds``, and standard errors
        count groups.
    times : array-like of shape (n_rows,), optional
        When each row was made: numbers, dates, or text that sorts by time. Rows are cut into six blocks by time, or
        ``folds`` + 1, rows of one time together; the points of each block but the first see all rows of earlier blocks.
        No point sees the rows of the last block: they have no value and are not in the result.
    folds : int, optional
        Number of folds. Without groups and times rows are put into folds by a hash of their features, those with equal
        features together. By default there are no folds: every point sees all rows but itself. A `KNNProxy` has five,
        because its model must not be fitted on the labels of the points.
    point_weight : "balanced" or array-like of shape (n_rows,), optional
        How much each row counts as a point, as in :meth:`shapshift.KNNShapley.value`: a row's value is the weighted
        mean over the points that see it. With times or folds, "balanced" weights follow the classes of all rows.
    checkpoint : path-like, optional
        Folder for progress, as in :meth:`shapshift.KNNShapley.value`; without folds only.

    Returns
    -------
    Valuation
        Values of the rows in their order. ``parameters["cross"]`` describes which rows each point saw.

    Notes
    -----
    On point j the rows that it sees play the game of ``model.fit(those rows).value(point j)``, and have exactly its
    values. A row's value is the mean over the points that see it: N - 1 points, in games of N - 1 rows; with folds the
    points of all other folds, in games without the rows of the point's fold; with times the points of all later blocks,
    in games of all rows before the point's block. Games of fewer rows give a row a larger share, so with times compare
    rows of one block.

    ``level_values`` are scaled so that their mean over all points is the value. The order of the rows changes no bit of
    a value if ``ties="average"``, features are in memory and no two rows are equal.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley, cross_value
    >>> X, y = load_iris(return_X_y=True)
    >>> found = cross_value(KNNShapley(5), X, y)
    >>> found.n_train, found.n_val, bool(found.values.sum() > 0.5)
    (150, 150, True)
    """
    model = _checked_model(model)
    if groups is not None and times is not None:
        raise InputError("Give 'groups' or 'times' to cross_value, not both.")
    if folds is not None:
        check.check_count("cross_value", "folds", folds, at_least=2)
    if isinstance(X, Iterator):
        raise InputError("The 'X' parameter of cross_value must not be an iterator: its rows are read twice.")
    # The rows of a proxy have names, order and fingerprint from their own features.
    proxy = isinstance(model, KNNProxy)
    whole = KNNShapley().fit(_numbers(X, y), y, ids=ids) if proxy else clone(model).fit(X, y, ids=ids)
    n_rows = whole.ids_.size
    if n_rows < 2:
        raise InputError("cross_value needs at least 2 rows: a row is valued on the others. Got 1.")
    content = None if whole._index.in_file else whole._index.content_hash()
    codes = whole._targets
    order = np.arange(n_rows) if content is None else np.lexsort((codes, content))
    asked = any(part is not None for part in (groups, times, folds))
    in_folds = asked or proxy
    folding = _Folds(np.arange(n_rows), {"by": "row", "folds": 0})
    if in_folds:
        if checkpoint is not None or is_streamed(X, check.parse_memory(getattr(model, "max_memory", None))):
            got = "a file" if checkpoint is None else "a checkpoint"
            raise InputError(f"cross_value makes folds of rows in memory, without a checkpoint. Got {got}.")
        folding = _make_folds(groups, times, folds, content, n_rows)
    labels = codes if whole._classes else np.zeros(n_rows)
    weights = _labels.check_point_weight("cross_value", point_weight, labels, classes=whole._classes)
    if weights is not None and point_weight is not None:
        folding.check_weights(weights)
    valued = whole._sample[folding.has_value(whole._sample)]
    gathered = Gathered(n_rows, np.sort(valued[: sampled_count(n_rows, n_rows)]), weights)
    if in_folds:
        features = X
        if not proxy:
            features = whole._check_points(X) if whole.metric == "precomputed" else whole._table(X, "X").rows
        data = _Rows(features, _labels.check_labels(y, "y", n_rows, "X"))
        about, digest = _with_folds(model, data, order, folding, gathered)
    else:
        about, digest = _without_folds(whole, X, y, order, gathered, checkpoint), None
    copies = _count_copies(content, codes, folding.of_row)
    if copies and copies >= MANY_COPIES * n_rows:
        warn(
            f"{copies} of {n_rows} rows have a copy, of equal features and label, among the rows they see. A copy at "
            "distance 0 inflates the values of both. Name rows that belong together with 'groups', or drop copies."
        )
    about |= _labels.describe_weights(point_weight, weights)
    return gathered.to_valuation(whole, about, folding.facts | {"copies": copies}, digest or whole.fingerprint_)


def _numbers(X: Any, y: Any) -> check.Table:
    """Return the rows of a proxy as numbers, whatever its model takes."""
    _labels.check_same_order(X, y)
    return as_numbers(X)


def _checked_model(model: Any) -> Any:
    """Return a copy of a model that can value the rows of one table on each other."""
    if isinstance(model, SampledShapley):
        raise InputError(
            "cross_value does not take a SampledShapley: it would have to fit its model anew on many subsets for every "
            "single point. Split the table and use SampledShapley.value, or pass KNNProxy(estimator) to cross_value."
        )
    if not isinstance(model, KNNModel | KNNProxy):
        got = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
        raise InputError(
            "The 'model' parameter of cross_value must be a KNNShapley, KNNRegressionShapley, ThresholdKNNShapley, "
            f"WeightedKNNShapley or KNNProxy. Got {got} instead."
        )
    device = getattr(model, "device", "cpu")
    if device == "cuda":
        raise InputError("cross_value computes on the CPU. Got a model with device='cuda'. Set device='cpu' or 'auto'.")
    model = clone(model)
    return model if device == "cpu" else model.set_params(device="cpu")


class _Rows(NamedTuple):
    """Rows in memory: features, for a proxy as they were given, or distances between all rows; and labels."""

    features: Any
    labels: npt.NDArray[Any]


@dataclass(frozen=True)
class _Folds:
    """Which points see which rows.

    Attributes
    ----------
    of_row : ndarray of shape (n_rows,)
        Fold of each row.
    facts : dict
        Facts about the folds, for the result.
    groups : ndarray of shape (n_rows,) or None
        Number of each row's group.
    """

    of_row: Indices
    facts: dict[str, Any]
    groups: Indices | None = None

    @property
    def forward(self) -> bool:
        """Whether points see earlier folds only."""
        return bool(self.facts["by"] == "time")

    def check_weights(self, weights: Floats) -> None:
        """Refuse weights with which all points that see a row have weight 0."""
        of_fold = np.bincount(self.of_row, weights > 0)
        seen_by = np.cumsum(of_fold[::-1])[::-1] - of_fold if self.forward else of_fold.sum() - of_fold
        if not seen_by[self.of_row[self.has_value(np.arange(weights.size))]].all():
            raise InputError(
                "The 'point_weight' parameter of cross_value must give every row at least one point that sees it and "
                "has a weight above 0."
            )

    def has_value(self, rows: Indices) -> npt.NDArray[np.bool_]:
        """Whether any point sees each of these rows."""
        found: npt.NDArray[np.bool_] = self.of_row[rows] < self.of_row.max() + (not self.forward)
        return found


def _without_folds(
    whole: KNNModel, X: Any, y: Any, order: Indices, gathered: "Gathered", checkpoint: Any
) -> dict[str, Any]:
    """Value all rows on each other; return parameters of the result."""
    points, targets, own = X, y, np.arange(order.size)
    if whole.metric != "precomputed" and not is_streamed(X, check.parse_memory(whole.max_memory)):
        table, own = whole._table(X, "X"), order
        points = replace(table, rows=table.rows[order])
        targets = _labels.check_labels(y, "y", order.size, "X")[order]
    given = whole._prepare(points, targets, own=own, has_checkpoint=checkpoint is not None, graph_ok=True)
    return gathered.add(whole, given, np.arange(order.size), own, checkpoint)


def _with_folds(
    model: Any, data: _Rows, order: Indices, folding: _Folds, gathered: "Gathered"
) -> tuple[dict[str, Any], str | None]:
    """Value the rows outside each fold, or before it, on its points; return parameters and a fingerprint."""
    of_row, forward, strangers = folding.of_row, folding.forward, 0
    for fold in range(int(forward), int(of_row.max()) + 1):
        rows = np.flatnonzero(of_row < fold if forward else of_row != fold)
        points = order[of_row[order] == fold]
        knn, place, more = _fit_fold(model, data, rows, points)
        knn._quiet_labels = True
        clusters = None if folding.groups is None else folding.groups[points]
        given = knn._prepare(place, data.labels[points], clusters=clusters, graph_ok=True)
        about = gathered.add(knn, given, rows, points) | more
        strangers += int(np.count_nonzero(given.targets < 0)) if hasattr(knn, "codes_") else 0
    if strangers:
        warn(f"{strangers} points have a label that no row they see has. They match no row.")
    # Forward, the rows before the last block are those that have values.
    return about, knn.fingerprint_ if forward else None


def _fit_fold(model: Any, data: _Rows, rows: Indices, points: Indices) -> tuple[KNNModel, Any, dict[str, Any]]:
    """Fit a copy of the model on some rows; return it, the points in its form, and more about the values."""
    features, labels = data.features, data.labels
    if isinstance(model, KNNProxy):
        proxy = clone(model).fit(take_rows(features, rows), labels[rows])
        return proxy.knn_, proxy._embedding(proxy._points(take_rows(features, points))), proxy._about()
    if model.metric == "precomputed":
        return clone(model).fit(None, labels[rows]), features[points][:, rows], {}
    tables = (check.Table(features[some], None, None, "numpy") for some in (rows, points))
    return clone(model).fit(next(tables), labels[rows]), next(tables), {}


def _make_folds(groups: Any, times: Any, folds: int | None, content: Any, n_rows: int) -> _Folds:
    """Cut rows into folds by group, by time, or by a hash of their features."""
    if times is not None:
        of_row = time_blocks(times, folds, n_rows)
        last = int(of_row.max())
        return _Folds(of_row, {"by": "time", "folds": last, "rows_without_value": int(np.sum(of_row == last))})
    if groups is not None:
        names, codes = _labels.check_groups(groups, n_rows, of="X")
        n_folds = _count_folds(folds, GROUP_FOLDS, len(names), "groups")
        sizes, filled = np.bincount(codes), np.zeros(n_folds, dtype=np.int64)
        of_group = np.empty(len(names), dtype=np.int64)
        # The largest first, each into the fold with the fewest rows so far.
        for group in sorted(range(len(names)), key=lambda g: (-sizes[g], repr(names[g]))):
            of_group[group] = np.argmin(filled)
            filled[of_group[group]] += sizes[group]
        return _Folds(of_group[codes], {"by": "group", "folds": n_folds, "groups": len(names)}, codes)
    # Equal features have equal hashes and stay together.
    keys = np.arange(n_rows) if content is None else np.unique(content, return_inverse=True)[1]
    n_folds = _count_folds(folds, DRAWN_FOLDS, int(keys.max()) + 1, "rows with different features")
    return _Folds(keys % n_folds, {"by": "features", "folds": n_folds})


def _count_folds(folds: int | None, default: int, most: int, what: str) -> int:
    """Return the number of folds; refuse too many."""
    if most < 2 or (folds is not None and folds > most):
        raise InputError(
            f"cross_value makes folds of {what}, so there must be at least {max(2, folds or 2)} of them. Got {most}."
        )
    return min(default, most) if folds is None else folds


def time_blocks(times: Any, folds: int | None, n_rows: int) -> Indices:
    """Cut rows into one more block than folds; rows of one time are in one block."""
    folds = TIME_FOLDS if folds is None else folds
    given = _labels.check_labels(times, "times", n_rows, "X", "time")
    try:
        _, moment, counts = np.unique(given, return_inverse=True, return_counts=True)
    except TypeError:
        raise InputError(
            "The 'times' parameter of cross_value must hold times of one kind, which can be sorted."
        ) from None
    block = (np.cumsum(counts) - counts) * (folds + 1) // n_rows
    blocks: Indices = np.unique(block[moment], return_inverse=True)[1]
    if blocks.max() == 0:
        raise InputError(
            "The 'times' parameter of cross_value must give at least 2 blocks of rows with different times. Got 1: "
            "nearly all rows have the same time."
        )
    return blocks


def count_shared(X: Floats, y: npt.NDArray[Any], X_val: Floats, y_val: npt.NDArray[Any]) -> int:
    """Count validation points that have the features and the label of a training row.

    Examples
    --------
    >>> count_shared(np.eye(2), np.array([0, 1]), np.eye(2), np.array([0, 0]))
    1
    """
    labels = np.unique(np.concatenate([y, y_val]), return_inverse=True)[1].astype(np.uint64)
    keys = np.concatenate([row_hashes(X), row_hashes(X_val)]) ^ (labels * np.uint64(0x9E3779B97F4A7C15))
    return int(np.isin(keys[y.size :], keys[: y.size], kind="sort").sum())  # a table can overflow in older NumPy


def _count_copies(content: Any, labels: npt.NDArray[Any], fold_of: Indices) -> int | None:
    """Count rows with a copy, of equal features and label, in another fold; None if features are unknown."""
    if content is None:
        return None
    order = np.lexsort((fold_of, labels, content))
    new = np.ones(order.size, dtype=np.bool_)
    new[1:] = (content[order[1:]] != content[order[:-1]]) | (labels[order[1:]] != labels[order[:-1]])
    kind = np.cumsum(new) - 1
    first, last = fold_of[order[new]], fold_of[order[np.append(np.flatnonzero(new)[1:], order.size) - 1]]
    return int(np.count_nonzero((first != last)[kind]))


class Gathered:
    """Sums over the points of several runs, each for some of the rows.

    Parameters
    ----------
    n_rows : int
    sampled : ndarray
        Rows whose values on every single point are kept.
    weights : ndarray of shape (n_rows,) or None
        How much each row counts as a point.
    """

    def __init__(self, n_rows: int, sampled: Indices, weights: Floats | None = None) -> None:
        self.sampled, self.weights = sampled, weights
        # Sum of values; points that see the row, and the sum of their weights.
        self.values, self.seen, self.counts = np.zeros((3, n_rows))
        # Over the sampling units (points, or groups of them) that see the row: their number, squared sums of values,
        # sums times sizes, and squared sizes.
        self.units, self.squares, self.products, self.sizes = np.zeros((4, n_rows))
        self.bounds: Floats | None = None
        self.levels: dict[float, tuple[Floats, float]] = {}  # per entropy: sum of values, number of points
        self.entropy = np.full(n_rows, np.nan)
        self.samples: list[Floats] = []  # per run: values of the sampled rows on each unit, NaN where not seen
        self.games: list[int] = []  # per run: rows that play

    def add(
        self, knn: KNNModel, given: Prepared, rows: Indices, points: Indices, checkpoint: Any = None
    ) -> dict[str, Any]:
        """Value ``rows`` on ``points``, both by their position in the table; return parameters of the result."""
        place = np.full(self.values.size, -1)
        place[rows] = np.arange(rows.size)
        known = place[self.sampled] >= 0
        weights = None if self.weights is None else self.weights[points]
        task: Task = replace(given.task, sampled=place[self.sampled[known]], weights=weights)
        given, runner = given._replace(task=task), knn._runner()
        with ExitStack() as stack:
            if checkpoint is not None:
                runner.checkpoint = stack.enter_context(knn._checkpoint(checkpoint, given))
            sums = knn._run(given, runner)
        knn._check_unchanged(given.points)
        self.entropy[points] = sums.points.entropy
        own = task.own is not None
        self.seen[rows] += task.n_val - own
        self.counts[rows] += task.n_val if weights is None else weights.sum()
        if own:
            self.counts[points] -= 1 if weights is None else weights
        self.games.append(rows.size - own)
        if sums.error_bound is not None:
            self.bounds = np.zeros(self.values.size) if self.bounds is None else self.bounds
            self.bounds[rows] += sums.error_bound * task.n_val
        amounts = task.amounts(nearest_level(sums.points.entropy, task.edges), task.levels.size)
        for entropy, of_level, count in zip(task.levels.tolist(), sums.levels, amounts.tolist(), strict=True):
            if count:
                level, so_far = self.levels.get(entropy, (np.zeros(self.values.size), 0))
                level[rows] += of_level
                self.levels[entropy] = level, so_far + count
        sample = np.full((task.n_val, self.sampled.size), np.nan)
        sample[:, known] = sums.points.values
        if own:
            sample[points[:, None] == self.sampled] = np.nan
        self._add_units(task, sums, rows, sample)
        return {"method": type(knn).__name__, **knn._about(task, sums), **sums.notes}

    def _add_units(self, task: Task, sums: Sums, rows: Indices, sample: Floats) -> None:
        total = sums.levels.sum(axis=0)
        self.values[rows] += total
        if task.weights is not None:
            sample = task.weights[:, None] * sample  # of mean 1 over all points
        if task.clusters is None and task.weights is not None:
            sizes = task.weights**2
            taken = np.zeros(self.values.size)
            if task.own is not None:
                taken[task.own] = sizes
            added: tuple[Any, ...] = (
                np.count_nonzero(sizes) - (taken[rows] > 0),
                sums.squares,
                sums.products,
                sizes.sum() - taken[rows],
            )
        elif task.clusters is None:
            n_units = task.n_val - (task.own is not None)
            added = (n_units, sums.squares, total, n_units)
        else:
            sizes = task.amounts(task.groups, 0).astype(np.float64)
            squares, products = (sums.groups**2).sum(axis=0), (sizes[:, None] * sums.groups).sum(axis=0)
            added = (sizes.size, squares, products, float((sizes**2).sum()))
            of_units = np.zeros((sizes.size, sample.shape[1]))
            np.add.at(of_units, task.groups, sample)
            sample = of_units / sizes.mean()
        self.samples.append(sample)
        for so_far, new in zip((self.units, self.squares, self.products, self.sizes), added, strict=True):
            so_far[rows] += new

    def spread(self, means: Floats, rows: Any, codes: Any, *, forward: bool) -> Spread | None:
        """Return the spread of the values of ``rows`` over the sampling units that see each; ``codes`` are classes."""
        seen, counts = self.units[rows], self.counts[rows]
        units = int(seen.min())
        if units < 2:
            return None
        squares = self.squares[rows] - 2 * means * self.products[rows] + means**2 * self.sizes[rows]
        variance = squares * (seen / counts) ** 2 / (seen - 1)
        variance[variance < ROUNDING * means**2] = 0.0
        # Forward, the last block's points are the ones that see all rows.
        sample = self.samples[-1] if forward or len(self.samples) == 1 else np.concatenate(self.samples)
        average = np.nanmean(sample, axis=0)
        sample = np.where(np.isnan(sample), average, sample)
        found = spread_of_points(average, np.square(sample).sum(axis=0), units, sample, codes)
        if found is None:
            return None
        if len(self.samples) > 1:  # not all units see a row: halves would agree on the filled-in values
            found = replace(found, pearson=None, spearman=None)
        # Rows that more units see have a smaller error. One number of units is used for all rows.
        return replace(found, variance=variance * units / seen)

    def to_valuation(self, whole: KNNModel, about: dict[str, Any], facts: dict[str, Any], digest: str) -> Valuation:
        """Return the result, as means instead of sums."""
        rows, points = self.counts > 0, ~np.isnan(self.entropy)
        counts, n_val = self.counts[rows], int(np.count_nonzero(points))
        values, entropies = self.values[rows] / counts, sorted(self.levels)
        sizes = np.array([self.levels[entropy][1] for entropy in entropies])
        level_sums = np.array([self.levels[entropy][0][rows] for entropy in entropies])
        error: dict[str, Any] = {}
        codes = whole._targets[self.sampled] if whole._classes else None
        spread = self.spread(values, rows, codes, forward=facts["by"] == "time")
        if spread is not None:
            error = error_fields(spread) | {"group_errors": np.empty((0, values.size)), "group_freedom": np.empty(0)}
        cross = facts | {
            "rows_per_game": [min(self.games), max(self.games)],
            "points_per_row": [int(self.seen[rows].min()), int(self.seen[rows].max())],
        }
        return Valuation(
            values=lock(values),
            ids=whole.ids_[rows],
            entropy=self.entropy[points],
            boundary=is_boundary(self.entropy[points], float(about.get("boundary_entropy", 0.0))),
            level_entropy=np.array(entropies),
            level_values=lock(level_sums * (sizes.sum() / counts) / sizes[:, None]),
            level_counts=sizes,
            point_weight=None if self.weights is None else lock(self.weights[points] / self.weights[points].mean()),
            group_means=np.empty((0, values.size)),
            group_names=(),
            group_sizes=(),
            matrix=None,
            error_bound=None if self.bounds is None else lock(self.bounds[rows] / counts),
            parameters=about | {"n_train": values.size, "n_val": n_val, "cross": cross},
            fingerprint=digest,
            kind=whole._kind,
            id_names=whole._id_names,
            labels=None if (labels := whole._labels()) is None else labels[rows],
            **error,
        )
