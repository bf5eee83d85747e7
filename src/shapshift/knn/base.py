"""Base class of the nearest-neighbour models: training rows, checks of validation points, building of the result."""

import copy
import hashlib
import os
from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.warnings import warn
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS, entropy_levels
from shapshift.engine.certified import draw_sample
from shapshift.engine.checkpoint import Checkpoint, digest_arrays
from shapshift.engine.exact import Tiled
from shapshift.engine.parallel import stream
from shapshift.engine.rows.distances import (
    METRICS,
    SPARSE_METRICS,
    GivenDistances,
    TrainingIndex,
    feature_std,
    index_rows,
    tile_filler,
    true_index,
    without_rows,
)
from shapshift.engine.rows.file import RowFile, is_streamed
from shapshift.engine.runner import BLOCK_POINTS, Runner
from shapshift.engine.search import FitCache
from shapshift.engine.search.exact import exact_search
from shapshift.engine.tasks import Clusters, Neighborhood, Sums, Task
from shapshift.exceptions import InputError
from shapshift.kernels.near import entropy_of, label_shares
from shapshift.knn.explain import Explanation, Nearness, class_sentence, explain_rows, find_rows, row_name
from shapshift.sampling_error import sampled_count
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


class Prepared(NamedTuple):
    """A checked validation set, and the task of valuing on it.

    Attributes
    ----------
    task : Task
    targets : ndarray of shape (n_val,)
        Class numbers of the points, or numbers for regression.
    points : ndarray, csr_array, RowFile or tensor
        Their features, or distances.
    excluded : ndarray of shape (n_val,) or None
        Training row that each point ignores; -1 for none.
    labels : ndarray of shape (n_val,)
        Labels of the points, as given.
    """

    task: Any
    targets: npt.NDArray[Any]
    points: Any
    excluded: Indices | None
    labels: npt.NDArray[Any]


#: Number of rows compared to detect that a validation set is the training set; fewer may match by chance.
CHECKED_ROWS = 32
#: The standard errors of balanced weights need a sum for each class of the points. Sums are kept for up to
#: CLASSES_APART classes, and for more if they take at most SUMS_APART numbers.
CLASSES_APART, SUMS_APART = 32, 2**24
#: Parameters that never change a result.
NEVER_CHANGE_A_RESULT = ("n_jobs", "max_memory", "progress", "scratch")


class KNNModel(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """A model that values training rows from their distances to validation points.

    A subclass reads labels (``_read_labels``, ``_read_targets``), computes sums (``_run``), and names the parameters of
    its results (``_about``).
    """

    n_neighbors: int
    metric: str
    n_jobs: int | None
    progress: bool | None
    max_memory: int | str | None
    ids_: npt.NDArray[Any]
    #: Whether several calls run in parallel threads: the kernels release the interpreter's lock.
    works_in_threads = True
    #: Number of nearest rows that decide whether a point is a boundary point, and the entropy above which it is one.
    boundary_neighbors: int = BOUNDARY_NEIGHBORS
    boundary_entropy: float = 0.0
    #: Folder for scratch files; None for the system's.
    scratch: Any = None
    #: Number of results per point besides its entropy and neighbours.
    _n_extra = 0
    #: Whether to compute sampling errors; runs that are only compared with others skip them.
    _errors = True
    #: Whether distances may be given as a sparse graph of the nearest rows.
    _takes_graph = False
    #: Whether values depend on the distances themselves, or only on their order.
    _true_distances = False
    #: Whether labels are classes; otherwise they are numbers.
    _classes = False
    #: Allowed values of parameters that take a name; a model may lack some of these parameters.
    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        "metric": METRICS,
        "utility": ("soft", "hard"),
        "ties": ("average", "index"),
    }

    def fit(self, X: Any, y: Any = None, *, ids: Any = None) -> Self:
        """Index the training rows.

        Parameters
        ----------
        X : table of shape (n_train, n_features)
            NumPy array, pandas or polars frame, pyarrow table, torch tensor, nested list, or (for the Euclidean and
            cosine metrics) a scipy sparse matrix. Ignored when ``metric="precomputed"``. For data larger than memory:
            the path of a Parquet file, of a folder of them or a pattern, a pyarrow dataset, a NumPy memory map, or an
            iterator of batches ``(X, y)``.
        y : array-like of shape (n_train,) or str
            Labels of any hashable kind, or numbers for regression. For Parquet, also the name of the label column; for
            an iterator, None.
        ids : array-like of shape (n_train,) or str, optional
            Row ids; by default the table's index, or 0..n_train-1. For Parquet, also the name of the id column.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, y, (ids,) = self._opened(X, y, (ids,), ("X", "y", "ids"), None)
        self._check_device(X.rows if isinstance(X, check.Table) else X)
        table, n_rows, row_index, id_names = self._read_rows(X, y)
        learned, parts = self._read_labels(_labels.check_labels(y, "y", n_rows, "X"))
        id_names = id_names if ids is None else ("id",)
        ids = _labels.check_ids(ids, row_index, n_rows)
        self._boundary_depth(n_rows)
        index = self._make_index(table, n_rows)
        digest = fingerprint(index, *parts)
        if table is not None and isinstance(table.rows, RowFile):
            table.rows.check_unchanged("X")
        # Attributes are set after all checks: a refused fit leaves the previous one unchanged.
        self.ids_, self._id_names, self._index = ids, id_names, index
        for name, entry in learned.items():
            setattr(self, name, entry)
        self._keep_features(table)
        self._fitted(X)
        self.fingerprint_ = digest
        return self

    def value(
        self,
        X_val: Any,
        y_val: Any,
        *,
        groups: Any = None,
        clusters: Any = None,
        point_weight: Any = None,
        matrix: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Valuation:
        """Value every training row on a validation set.

        Parameters
        ----------
        X_val : table of shape (n_val, n_features)
            Validation points, in any container that ``fit`` takes; columns are matched by name. With
            ``metric="precomputed"``, distances of shape (n_val, n_train), see ``metric``.
        y_val : array-like of shape (n_val,) or str
            Their labels, as ``fit`` takes them. A label never seen in training matches no row and is warned about.
        groups : array-like of shape (n_val,) or str, optional
            One name per validation point, or for Parquet the name of their column. The result then also has the mean
            per group.
        clusters : array-like of shape (n_val,), optional
            For points that depend on each other, such as several readings of one patient: one name per point, equal for
            points of one cluster. Standard errors then count clusters instead of points.
        point_weight : "balanced", array-like of shape (n_val,) or str, optional
            Weight of each validation point: "balanced" gives all classes of the points the same total weight; an array
            holds weights of at least 0, such as costs; for Parquet, also the name of their column. Values are exact
            weighted means over the points; standard errors are those of weighted means.
        matrix : bool, default=False
            Also return each row's value on each point: n_train x n_val numbers.
        checkpoint : path-like, optional
            Folder for progress. A killed run that is called again with the same arguments resumes from it and returns
            the same bytes. A folder of another run is refused. Delete it once the result is saved.

        Returns
        -------
        Valuation
        """
        given = {"groups": groups, "clusters": clusters, "matrix": matrix, "checkpoint": checkpoint}
        return self._value(X_val, y_val, point_weight=point_weight, **given)[0]

    def value_and_neighbors(
        self,
        X_val: Any,
        y_val: Any,
        *,
        groups: Any = None,
        clusters: Any = None,
        point_weight: Any = None,
        matrix: bool = False,
        reference: Any = None,
    ) -> tuple[Valuation, Neighborhood]:
        """Value every training row, and find the nearest training rows of each point at little extra cost.

        Parameters
        ----------
        X_val, y_val, groups, clusters, point_weight, matrix
            As in :meth:`value`.
        reference : int array of shape (n_val, r), optional
            Positions of training rows whose rank to report for each validation point.

        Returns
        -------
        Valuation
        Neighborhood
            ``nearest``, the K nearest rows of each point, and ``reference_ranks``.
        """
        check_is_fitted(self)
        n_nearest = min(self._n_shown(), self._index.n_rows)
        asked = {"groups": groups, "clusters": clusters, "matrix": matrix, "reference": reference}
        return self._value(X_val, y_val, n_nearest=n_nearest, point_weight=point_weight, **asked)

    def weighted(self, point_weight: Any = "balanced") -> "WeightedModel":
        """Return this fitted model with weighted validation points, for functions that take a model.

        Parameters
        ----------
        point_weight
            As in :meth:`value`. "balanced" is computed from the labels of each validation set; an array must have one
            weight per validation point.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from shapshift import KNNShapley, audit_shift
        >>> X, y = load_iris(return_X_y=True)
        >>> model = KNNShapley().fit(X[::2], y[::2])
        >>> audit = audit_shift(model.weighted("balanced"), X[1:120:4], y[1:120:4], noise=[0.1], repeats=3)
        >>> audit.parameters["model"]["point_weight"]
        'balanced'
        """
        check_is_fitted(self)
        return WeightedModel(self, point_weight=point_weight)

    def neighbor_ranks(self, X_val: Any, y_val: Any, reference: Any) -> Floats:
        """Rank given training rows by their distance from each validation point, without valuing them.

        Parameters
        ----------
        X_val, y_val
            As in :meth:`value`.
        reference : int array of shape (n_val, r)
            Positions of training rows, as in :meth:`value_and_neighbors`.

        Returns
        -------
        ndarray of shape (n_val, r)
            The ``reference_ranks`` of :meth:`value_and_neighbors`.
        """
        given = self._prepare(X_val, y_val, reference=reference, graph_ok=True)
        task, runner = given.task, self._runner()
        if self._needs_engine(given.points) or runner.cluster() is not None:
            ranks = self._run(given, runner).points.reference_ranks
            self._check_unchanged(given.points)
            return ranks
        search = exact_search(task.fill, task.n_train, 1, whole_ties=False)
        starts = range(0, task.n_val, BLOCK_POINTS)
        found = np.empty(task.reference.shape)

        def rank(start: int) -> None:
            here = slice(start, min(start + BLOCK_POINTS, task.n_val))
            found[here] = search.find(here.start, here.stop, task.reference[here]).ranks

        deque(stream(rank, starts, runner.workers(len(starts)) if runner.max_memory is None else 1), maxlen=0)
        self._check_unchanged(given.points)
        return found

    def explain(
        self, X_val: Any, y_val: Any, ids: Any, *, point_weight: Any = None, n_points: int = 5, n_neighbors: int = 5
    ) -> Explanation:
        """Explain the values of some training rows by the validation points behind them and the rows' neighbours.

        Parameters
        ----------
        X_val, y_val
            As in :meth:`value`.
        ids : sequence, or one id
            Ids of training rows, as in ``ids_``. An id shared by several rows selects all of them.
        point_weight
            As in :meth:`value`. A row's value on a point is then multiplied by the point's weight, 1 on average.
        n_points : int, default=5
            Number of validation points to list with the highest values of a row, and with the lowest.
        n_neighbors : int, default=5
            Number of nearest training rows to list. Unlike ``n_neighbors`` of the model, it changes no value.

        Returns
        -------
        Explanation

        Notes
        -----
        It takes about as long as :meth:`value`. It keeps only the values of the requested rows, not those of all rows
        on all points. It runs on the CPU.
        """
        check_is_fitted(self)
        rows = find_rows(f"{type(self).__name__}.explain", self.ids_, ids)
        asked = {"point_weight": point_weight, "n_points": n_points, "n_neighbors": n_neighbors}
        return explain_rows(self, X_val, y_val, rows, **asked)

    def _sentence(self, row: int, value: float, near: npt.NDArray[Any], own: npt.NDArray[Any] | None) -> str:
        """Return a sentence that explains a row's value by the labels of the points and training rows near it."""
        raise NotImplementedError

    def _row_labels(self) -> npt.NDArray[Any]:
        """Return the labels of the training rows, as given."""
        return self._targets

    def _is_near(self, ranks: Floats, tile: Floats) -> npt.NDArray[np.bool_]:
        """Whether rows are near points, from their zero-based ranks and the distances of the tile."""
        return ranks < self.n_neighbors

    def _nearness(self) -> Nearness:
        """Return the words for a point that is near a row."""
        n = min(int(self.n_neighbors), self._index.n_rows)
        rows = f"{n:,} nearest training rows" if n > 1 else "nearest training row"
        among = "among " if n > 1 else "as "
        return Nearness(f"has it {among}its {rows}", f"have it {among}their {rows}")

    def _needs_engine(self, points: Any) -> bool:
        """Whether the engine must compute the distances: for rows in a file, or on a GPU."""
        return self._index.in_file or isinstance(points, RowFile)

    def _value(
        self, X_val: Any, y_val: Any, *, checkpoint: str | os.PathLike[str] | None = None, **asked: Any
    ) -> tuple[Valuation, Neighborhood]:
        given = self._prepare(X_val, y_val, has_checkpoint=checkpoint is not None, graph_ok=True, **asked)
        if given.task.n_nearest == 0:
            self._warn_of_training_rows(given)
        runner, by_class = self._runner(), given._replace(task=given.task.by_class())
        with ExitStack() as stack:
            if checkpoint is not None:
                runner.checkpoint = stack.enter_context(self._checkpoint(checkpoint, by_class))
            sums = self._run(by_class, runner).folded(given.task)
        about = self._about(given.task, sums) | sums.notes
        about |= _labels.describe_weights(asked.get("point_weight"), given.task.weights)
        about |= _labels.describe_order(given.task.order)
        valuation = self._valuation(given.task, sums, about)
        self._check_unchanged(given.points)
        return valuation, sums.neighborhood(given.task)

    def _warn_of_training_rows(self, given: "Prepared") -> None:
        if self._are_training_rows(given):
            warn(
                "The validation points are the training rows: every row is its own nearest neighbour at distance 0, so "
                "values are too high. Use cross_value(model, X, y), which values every row on the others."
            )

    def _are_training_rows(self, given: "Prepared") -> bool:
        """Whether points that see all rows are these rows in the same order, judged by a few of them."""
        task, n = given.task, given.task.n_train
        if task.n_val != n or n < CHECKED_ROWS or given.excluded is not None or self._index.metric == "precomputed":
            return False
        if self._index.constant or self._needs_engine(given.points):
            return False
        distance = np.empty((1, 1))
        for row in np.linspace(0, n - 1, CHECKED_ROWS).astype(np.int64).tolist():
            task.fill(slice(row, row + 1), slice(row, row + 1), distance)
            if distance[0, 0] > 0 or given.targets[row] != self._targets[row]:
                return False
        return True

    def _prepare(
        self,
        X_val: Any,
        y_val: Any,
        *,
        groups: Any = None,
        clusters: Any = None,
        point_weight: Any = None,
        matrix: bool = False,
        n_nearest: int = 0,
        reference: Any = None,
        exclude: Any = None,
        has_checkpoint: bool = False,
        own: Indices | None = None,
        graph_ok: bool = False,
    ) -> "Prepared":
        """Check a validation set and the other arguments of a valuation.

        ``own`` are the training rows equal to the points; unlike rows to ``exclude``, they take no part in the game.
        ``graph_ok`` says whether the caller accepts a sparse graph, which does not store all distances.
        """
        check_is_fitted(self)
        self._check_parameters()
        check.check_flag(f"{type(self).__name__}.value", "matrix", matrix)
        n_train = self._index.n_rows
        # "balanced" is never the name of a column.
        balanced = isinstance(point_weight, str) and point_weight == "balanced"
        extra, called = (groups, None if balanced else point_weight), ("X_val", "y_val", "groups", "point_weight")
        X_val, y_val, (groups, weights) = self._opened(X_val, y_val, extra, called, self._columns)
        points = self._place_points(X_val, has_checkpoint)
        if self._is_graph(points) and not (graph_ok and self._takes_graph):
            raise InputError(
                "'X_val' is a sparse neighbour graph, which does not store all distances; all are needed here. "
                "Only KNNShapley.value, ThresholdKNNShapley.value and cross_value with one of these take a graph. "
                "Pass a dense array, for instance that of sklearn.metrics.pairwise_distances(X_val, X_train)."
            )
        n_val = points.shape[0]
        labels = _labels.check_labels(y_val, "y_val", n_val, "X_val")
        targets, caller = self._read_targets(labels), f"{type(self).__name__}.value"
        weighted = _labels.check_point_weight(
            caller, "balanced" if balanced else weights, labels, classes=self._classes
        )
        names, codes = ([], np.zeros(n_val, dtype=np.int64)) if groups is None else _labels.check_groups(groups, n_val)
        if weighted is not None and names and not np.bincount(codes, weighted).all():
            raise InputError(
                f"The 'point_weight' parameter of {caller} must give at least one point of each of the 'groups' a "
                "weight above 0. Leave out groups whose points all have weight 0."
            )
        parts = None
        if clusters is not None:
            codes, parts = _cluster_parts(codes, names, _labels.check_groups(clusters, n_val, "clusters"))
            names = list(range(parts.of_part.size))
        by_class = None
        if weighted is not None and balanced and parts is None and self._errors:
            found, numbers = _labels.encode_labels(labels)
            by_class = numbers.astype(np.int64) if found.size <= max(CLASSES_APART, SUMS_APART // n_train) else None
        excluded = own if exclude is None else check.check_excluded(exclude, n_val, n_train)
        task = self._task(
            targets,
            fill=self._filler(points, excluded),
            groups=codes,
            group_names=tuple(names),
            n_nearest=n_nearest,
            reference=check.check_positions(reference, n_val, n_train),
            matrix=bool(matrix),
            sampled=np.sort(self._sample[: sampled_count(n_train, n_val) if self._errors else 0]),
            errors=self._errors,
            clusters=parts,
            own=own,
            weights=weighted,
            balanced=by_class,
        )
        return Prepared(task, targets, points, excluded, labels)

    def _is_graph(self, points: Any) -> bool:
        """Whether distances are given as a sparse graph of the nearest rows."""
        return self.metric == "precomputed" and sparse.issparse(points)

    def _valuation(self, task: Task, sums: Sums, about: dict[str, Any], fingerprint: str | None = None) -> Valuation:
        return sums.to_valuation(
            task,
            self._targets if self._classes else None,
            ids=self.ids_,
            parameters={"method": type(self).__name__, **about},
            fingerprint=self.fingerprint_ if fingerprint is None else fingerprint,
            kind=self._kind,
            id_names=self._id_names,
            labels=self._labels(),
        )

    def _labels(self) -> npt.NDArray[Any] | None:
        """Return the class of each training row; None where there are no classes."""
        return self._row_labels() if self._classes else None

    def _runner(self) -> Runner:
        return Runner(self.n_jobs, check.parse_memory(self.max_memory, type(self).__name__), self.progress)

    def _checkpoint(self, folder: Any, given: "Prepared") -> Checkpoint:
        """Return the checkpoint of a run, identified by everything that the result depends on."""
        task = given.task
        if not isinstance(folder, str | os.PathLike):
            raise InputError(
                f"The 'checkpoint' parameter must be None or the path of a folder. Got {folder!r} instead."
            )
        for name, entry in self.get_params().items():
            if callable(entry):
                raise InputError(
                    f"The 'checkpoint' parameter does not work with a function as {name!r}: a later process cannot "
                    "check that it has the same one. Leave the checkpoint out, or use a built-in name."
                )
        run = {
            "training_rows": self.fingerprint_,
            "validation_points": digest_arrays(given.points),
            "validation_labels": digest_arrays(given.targets),
            "excluded_rows": "none" if given.excluded is None else digest_arrays(given.excluded),
            "groups": digest_arrays(task.groups) if task.n_groups else "none",
            "nearest_rows": str(task.n_nearest),
            "reference_rows": digest_arrays(task.reference) if task.reference.size else "none",
            "matrix": str(task.matrix),
            "sampled_rows": str(task.sampled.size),
        }
        if task.weights is not None:
            run["point_weight"] = digest_arrays(task.weights)
        if task.order is not None:
            run["order"] = digest_arrays(task.order)
        chosen = {name: str(entry) for name, entry in self.get_params().items() if name not in NEVER_CHANGE_A_RESULT}
        return Checkpoint(folder, run | chosen)

    def _filler(self, points: Any, excluded: Indices | None) -> Any:
        """Return the function that computes tiles of distances."""
        fill = tile_filler(true_index(self._index) if self._true_distances else self._index, points)
        return fill if excluded is None else without_rows(fill, excluded)

    @property
    def _depth(self) -> int:
        """Number of nearest rows that decide whether a point is a boundary point."""
        return self._boundary_depth(self._index.n_rows)

    def _boundary_depth(self, n_rows: int) -> int:
        asked = int(self.boundary_neighbors)
        if asked > n_rows and asked != BOUNDARY_NEIGHBORS:
            raise InputError(
                f"The 'boundary_neighbors' parameter of {type(self).__name__} must be at most the number of training "
                f"rows, {n_rows}. Got {asked} instead."
            )
        return min(asked, n_rows)

    def _task(self, targets: npt.NDArray[Any], **common: Any) -> Task:
        """Return the task; ``common`` are the arguments shared by all models."""
        return Task(
            n_train=self._index.n_rows,
            n_val=targets.size,
            depth=min(self._depth, self._index.n_rows - (common["own"] is not None)),
            levels=self._levels(),
            threshold=float(self.boundary_entropy),
            n_extra=self._n_extra,
            **common,
        )

    def _run(self, given: "Prepared", runner: Runner) -> Sums:
        """Compute the sums of a task."""
        return runner.sums(self._method(given.task, given.targets))

    def _method(self, task: Task, targets: Any) -> Tiled:
        """Return the method that turns tiles of distances into values."""
        raise NotImplementedError

    def _about(self, task: Task, sums: Sums) -> dict[str, Any]:
        """Return the parameters of a result; subclasses add to these."""
        return {
            "metric": self.metric,
            "n_train": task.n_train,
            "n_val": task.n_val,
            **self._boundary_rule(),
        }

    def _boundary_rule(self) -> dict[str, Any]:
        """Parameters of a result that say which points are boundary points."""
        return {
            "boundary_neighbors": int(self.boundary_neighbors),
            "boundary_entropy": float(self.boundary_entropy),
        }

    def _levels(self) -> Floats:
        """Return the entropy levels for which sums are kept."""
        raise NotImplementedError

    def _n_shown(self) -> int:
        """Return the number of nearest rows that :meth:`value_and_neighbors` reports."""
        return int(self.n_neighbors)

    def _read_labels(self, labels: npt.NDArray[Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
        """Return the attributes to set from the training labels, and the arrays to fingerprint."""
        raise NotImplementedError

    def _read_targets(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the labels of validation points as numbers."""
        raise NotImplementedError

    @property
    def _targets(self) -> npt.NDArray[Any]:
        """Labels of the training rows as numbers."""
        raise NotImplementedError

    def _place_points(self, X_val: Any, has_checkpoint: bool) -> Any:
        """Return checked validation points on the device that values them."""
        return self._check_points(X_val, narrow=True)

    def _check_device(self, rows: Any, has_checkpoint: bool = False) -> str | None:
        """Return the GPU that values these rows; None for the CPU."""
        return None

    def _fitted(self, X: Any) -> None:
        """Compute what depends on the fitted rows."""
        self._derived = FitCache()

    @property
    def _sample(self) -> Any:
        """Training rows in a random order determined by their content; any first part is a random sample."""
        return self._derived.get("sample", lambda: draw_sample(self._index))

    def _check_parameters(self) -> None:
        caller = type(self).__name__
        if hasattr(self, "n_neighbors"):
            check.check_count(caller, "n_neighbors", self.n_neighbors, at_most=check.MOST)
        for name, choices in self._choices.items():
            if hasattr(self, name):
                check.check_choice(caller, name, getattr(self, name), choices)
        check.check_count(caller, "boundary_neighbors", self.boundary_neighbors, at_most=check.MOST)
        check.check_number(caller, "boundary_entropy", self.boundary_entropy)
        check.check_jobs(caller, self.n_jobs)
        check.parse_memory(self.max_memory, caller)
        check.check_progress(caller, self.progress)

    @property
    def _index(self) -> TrainingIndex:
        """Fitted training rows; raises InputError if ``metric`` was changed since ``fit``."""
        index: TrainingIndex = self._fitted_index
        if self.metric != index.metric:
            raise InputError(
                f"The 'metric' parameter was {index.metric!r} when the model was fitted and is {self.metric!r} now. "
                "Fit again."
            )
        return index

    @_index.setter
    def _index(self, index: TrainingIndex) -> None:
        self._fitted_index = index

    def _read_rows(self, X: Any, y: Any) -> tuple[check.Table | None, int, npt.NDArray[Any] | None, tuple[Any, ...]]:
        """Check the features; return them (None when distances come precomputed), their number, index and its names."""
        if self.metric == "precomputed":
            return None, *_labels.count_and_index(X, y)
        table = self._table(X, "X")
        _labels.check_same_order(X, y)
        return table, table.rows.shape[0], table.index, table.index_names

    def _table(self, X: Any, name: str) -> check.Table:
        """Check features, unless reading them from a file has already checked them."""
        if isinstance(X, check.Table):
            return X
        return check.check_features(X, name, sparse_ok=self._why_not_sparse(), narrow=True)

    def _make_index(self, table: check.Table | None, n_rows: int) -> TrainingIndex:
        if table is None:
            return GivenDistances("precomputed", n_rows, None)
        return index_rows(table.rows, self.metric, self.scratch)

    def _opened(
        self, X: Any, y: Any, extra: tuple[Any, ...], names: tuple[str, ...], columns: list[Any] | None
    ) -> tuple[Any, Any, tuple[Any, ...]]:
        """Open data larger than memory; return its rows as a table, its labels, and other columns such as its ids.

        Data in memory is returned unchanged. Messages use ``names``.
        """
        memory = check.parse_memory(self.max_memory)
        if self.metric == "precomputed" or not is_streamed(X, memory):
            return X, y, extra
        from shapshift.engine.rows.read import Options, read_source  # pyarrow takes a while to load

        width = None if columns is None and names[0] == "X" else self.n_features_in_
        options = Options(names, columns, width, self.scratch, memory, self.progress)
        return read_source(X, y, extra, options)

    def _keep_features(self, table: check.Table | None) -> None:
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)
        self.feature_std_, self._columns, self._kind = None, None, "numpy"
        if table is None:
            return
        self.n_features_in_ = table.rows.shape[1]
        self._columns, self._kind = table.columns, table.kind
        # scikit-learn's rule: names count as feature names only when all of them are strings.
        if table.columns is not None and all(isinstance(column, str) for column in table.columns):
            self.feature_names_in_ = np.array(table.columns, dtype=object)
        self.feature_std_ = feature_std(table.rows)

    def _check_points(self, X_val: Any, *, narrow: bool = False) -> Any:
        """Check validation points and return them in the form of the training rows: dense, sparse, or distances.

        ``narrow`` says whether points may keep their number type.
        """
        if self._index.metric == "precomputed":
            return check.check_distances(X_val, self.ids_)
        self._check_unchanged()
        points = self._like_training(X_val, "X_val").rows
        return points if narrow else check.in_float64(points)

    def _like_training(self, X: Any, name: str) -> check.Table:
        """Check rows or points and give them the columns and storage (dense or sparse) of the training rows."""
        table = check.match_columns(self._table(X, name), self._columns, self.n_features_in_, name)
        return replace(table, rows=self._index.like_rows(table.rows))

    def _check_unchanged(self, points: Any = None) -> None:
        """Raise if a file of rows changed during the run."""
        for name, rows in (("X", self._index.rows), ("X_val", points)):
            if isinstance(rows, RowFile):
                rows.check_unchanged(name)

    def _why_not_sparse(self) -> str | None:
        if self.metric in SPARSE_METRICS:
            return None
        return f"which metric={self.metric!r} does not support (sparse input works with {', '.join(SPARSE_METRICS)})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fingerprint_")

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.sparse = self.metric in SPARSE_METRICS
        return tags


class ModelWith:
    """A fitted model whose ``value`` gets extra arguments; everything else is passed on to the model.

    Parameters
    ----------
    model : KNNModel
        Fitted.
    **given
        Arguments of its ``value``.
    """

    def __init__(self, model: Any, **given: Any) -> None:
        self.__dict__.update(model=model, given=given)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "model":  # looked up during copying
            raise AttributeError(name)
        return getattr(self.model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.model, name, value)

    def __copy__(self) -> Self:
        return type(self)(copy.copy(self.model), **self.given)

    def __sklearn_clone__(self) -> Self:
        return type(self)(clone(self.model), **self.given)

    def fit(self, X: Any, y: Any = None, *, ids: Any = None) -> Self:
        """Fit other training rows."""
        self.model.fit(X, y, ids=ids)
        return self

    def weighted(self, *given: Any, **asked: Any) -> Any:
        """Refuse: the model already has weights or pooled values."""
        raise self._twice("weighted")

    def pooled(self, *given: Any, **asked: Any) -> Any:
        """Refuse: the model already has weights or pooled values."""
        raise self._twice("pooled")

    def _twice(self, name: str) -> InputError:
        had = "pooled values" if "pool" in self.given else "weights of validation points"
        return InputError(
            f"This model already has {had}, which do not go with {name}. Start from the fitted model itself."
        )

    def _valued(self, X_val: Any, y_val: Any, **asked: Any) -> Valuation:
        """Value every training row; ``value`` of a subclass names the arguments that it takes."""
        found: Valuation = self.model.value(X_val, y_val, **self.given, **asked)
        return found


class WeightedModel(ModelWith):
    """A fitted model whose validation points have weights.

    Parameters
    ----------
    model : KNNModel
        Fitted.
    point_weight
        As in :meth:`KNNModel.value`.
    """

    def value(
        self,
        X_val: Any,
        y_val: Any,
        *,
        groups: Any = None,
        clusters: Any = None,
        matrix: bool = False,
        checkpoint: str | os.PathLike[str] | None = None,
        **others: Any,
    ) -> Valuation:
        """Value every training row; ``others`` are passed to the model's ``value``, which may refuse them."""
        if "point_weight" in others:
            raise self._twice("point_weight")
        others |= {} if checkpoint is None else {"checkpoint": checkpoint}
        return self._valued(X_val, y_val, groups=groups, clusters=clusters, matrix=matrix, **others)

    def value_and_neighbors(self, X_val: Any, y_val: Any, **asked: Any) -> tuple[Valuation, Neighborhood]:
        """Value every training row, and find the nearest training rows of each point."""
        found: tuple[Valuation, Neighborhood] = self.model.value_and_neighbors(X_val, y_val, **self.given, **asked)
        return found

    def explain(self, X_val: Any, y_val: Any, ids: Any, **asked: Any) -> Explanation:
        """Explain the values of some training rows."""
        found: Explanation = self.model.explain(X_val, y_val, ids, **self.given, **asked)
        return found

    def _prepare(self, *args: Any, **asked: Any) -> Any:
        raise InputError("Weights of validation points are not supported here. Pass the model without weighted().")


class KNNClassModel(KNNModel):
    """A model for class labels: the boundary is where the labels of the nearest rows differ."""

    classes_: npt.NDArray[Any]
    codes_: Codes
    _classes = True
    # Whether to skip the warning about labels never seen in training, because it was given before.
    _quiet_labels = False

    def _read_labels(self, labels: npt.NDArray[Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
        warn_if_continuous(labels)
        classes, codes = _labels.encode_labels(labels)
        return {"classes_": classes, "codes_": codes}, (classes, codes)

    def _read_targets(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return _labels.look_up_labels(labels, self.classes_, quiet=self._quiet_labels)

    @property
    def _targets(self) -> npt.NDArray[Any]:
        return self.codes_

    def _row_labels(self) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.classes_[self.codes_]
        return found

    def _sentence(self, row: int, value: float, near: npt.NDArray[Any], own: npt.NDArray[Any] | None) -> str:
        label = self.classes_[self.codes_[row]]
        return class_sentence(f"{row_name(self.ids_[row])} (label {label})", label, value, near, own, self._nearness())

    def _levels(self) -> Floats:
        return entropy_levels(self._depth, len(self.classes_), float(self.boundary_entropy))

    def _entropy(self, depth: int, tile: Floats, here: slice, cuts: Floats) -> Floats:
        shares = np.empty((tile.shape[0], len(self.classes_)))
        label_shares(tile, self.codes_, depth, cuts, shares)
        entropy: Floats = entropy_of(shares)
        return entropy


def warn_if_continuous(labels: npt.NDArray[Any]) -> None:
    """Warn when labels that should name classes look like measurements."""
    if labels.dtype.kind == "f" and labels.size >= 20 and np.unique(labels).size > labels.size / 2:
        warn(
            "'y' looks like a regression target: most of its values are distinct numbers. Each distinct value is "
            "treated as a class of its own."
        )


def fingerprint(index: TrainingIndex, classes: npt.NDArray[Any], codes: npt.NDArray[Any]) -> str:
    """Hash of what was fitted: features, labels and their order. For regression the targets are the codes."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(repr((index.metric, index.n_rows, index.float64_exponent, classes.tolist())).encode())
    digest.update(codes.tobytes())
    for part in index.digests():
        digest.update(part)
    return digest.hexdigest()


def _cluster_parts(codes: Indices, names: list[Any], clusters: tuple[list[Any], Indices]) -> tuple[Indices, Clusters]:
    """Return the number of each point's part of a cluster, and the table of parts; see :class:`Clusters`."""
    n_clusters = len(clusters[0])
    parts, numbers = np.unique(codes * n_clusters + clusters[1], return_inverse=True)
    return numbers, Clusters(parts % n_clusters, parts // n_clusters, tuple(names))
