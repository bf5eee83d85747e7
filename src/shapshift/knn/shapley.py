"""KNNShapley: exact values of training rows for a K-nearest-neighbour classifier."""

import copy
import os
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS
from shapshift.engine.certified import certified_sums
from shapshift.engine.checkpoint import Checkpoint
from shapshift.engine.coefficients import RankTable, Semivalue, check_semivalue, rank_table
from shapshift.engine.duplicates import collapsed_sums, find_duplicates
from shapshift.engine.exact import Exact, exact_from_file
from shapshift.engine.gpu import is_on_gpu, torch_device
from shapshift.engine.precedence import check_precedence, precedence
from shapshift.engine.rows.distances import FileRows, kind_of
from shapshift.engine.runner import Runner
from shapshift.engine.search import SEARCHES
from shapshift.engine.sharded import sharded_sums
from shapshift.engine.tasks import ClassTask, Neighborhood, Sums, Task, class_task
from shapshift.engine.truncated import check_search, graph_sums, truncated_sums
from shapshift.exceptions import InputError
from shapshift.knn.base import KNNClassModel, Prepared
from shapshift.knn.pooling import PoolingModel, corrected_values, pooled_valuation
from shapshift.valuation import Valuation

#: Default of ``tol``.
CERTIFIED_TOL = 1e-3
TRUNCATED_TOL = 1e-3


def no_tiles(here: slice, rows: slice, tile: Any) -> None:
    """Fill no tile: the features of the points are on a GPU."""
    raise NotImplementedError


class KNNShapley(KNNClassModel):
    r"""Exact value of every training row for a K-nearest-neighbour classifier.

    ``fit`` indexes the training rows. ``value`` takes a validation set and returns the contribution of each training
    row to classifying it. Values are exact (no sampling) for any K and any number of classes, with ties too; a faster
    ``method`` returns a bound on the error of each value.

    Parameters
    ----------
    n_neighbors : int, default=5
        K, the number of nearest rows that vote; it may exceed the number of training rows.
    utility : {"soft", "hard"}, default="soft"
        Worth of a subset of training rows on a validation point. "soft": the share of its K nearest members (or of all,
        if there are fewer) with the point's label, and 1/C for the empty subset. "hard": their number divided by K, and
        0 for the empty subset.
    semivalue : {"shapley", "banzhaf", "loo", "calibrated", "filled"}, Beta or Banzhaf, default="shapley"
        Weights of the subsets. "loo" is leave-one-out; "calibrated" is uniform over sizes of at least N - 2K, and
        "filled" over sizes of at least 2K, where all K seats are taken and no row is paid for filling a seat (with at
        most 2K + 1 rows that is leave-one-out); "banzhaf" is ``Banzhaf(0.5)``.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed"}, default="euclidean"
        With "precomputed", ``value`` takes a distance matrix (validation points in rows, training rows in columns) and
        ``fit`` ignores the features. Columns named by the row ids are matched by name. A scipy sparse matrix is a graph
        of nearest rows, such as scikit-learn's ``kneighbors_graph(mode="distance")``: stored entries are distances,
        including zeros, and rows that are not stored are farther than all stored ones of that point. Graphs are valued
        as by ``method="truncated"``. ``Valuation.error_bound`` bounds the error of each value; it is 0 if the graph
        stores everything.
    method : {"exact", "certified", "truncated"}, default="exact"
        "certified" is for rows in a file and for a GPU: it takes linear time instead of a sort, treats nearly equal
        distances as equal and returns a bound on the error of each value in ``Valuation.error_bound``. On the CPU, with
        all rows in memory, values are exact and the bound is 0. "truncated" finds only the nearest rows of each
        validation point that ``tol`` requires, and gives all farther rows of a class one value.
    tol : float, default=None
        For "certified": the largest allowed bound, in standard deviations of the values; distances are refined until it
        is reached. For "truncated": the largest error of any value on any validation point, in units of the utility,
        where all votes right minus none right is 1. None means 1e-3 for both.
    search : {"exact", "ann", "lsh"}, default="exact"
        For "truncated": how the nearest rows are found. "exact" looks at all rows and keeps the error within ``tol``.
        "ann" uses an approximate index (faiss, the extra ``ann``), much faster for a million rows; its error bound
        relies only on what the index certifies, so it can be far above ``tol``, and the recall is measured. "lsh"
        hashes: with probability 0.99 no row was missed and the error is within ``tol``. An index is built at first use
        and kept until the next fit.
    ties : {"average", "index"}, default="average"
        Training rows at equal distance: "average" over all orders, so that equal rows get equal values and row order
        does not affect values; or "index", order by row number, as in published code.
    boundary_neighbors : int, default=5
        Number of nearest training rows whose labels decide whether a validation point is a boundary point; at most the
        number of training rows (5 is cut to that).
    boundary_entropy : float, default=0.0
        Entropy of these labels, in nats, above which a point is a boundary point. By default every disagreement makes
        one.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where to compute: "cuda" is a GPU (needs the ``torch`` extra); "auto" is a GPU if one is available that supports
        the task. Values on a GPU equal those on the CPU up to rounding; "certified" uses other buckets and bounds
        there. Tensors on the GPU are valued in place. Sparse rows and ``method="truncated"`` need the CPU.
    n_jobs : int, default=None
        Number of parallel workers: threads, or processes of the Dask or Ray cluster named by a surrounding
        ``joblib.parallel_config``. None means 1 outside such a context, -1 all processors. It never changes a result.
    max_memory : int or str, default=None
        Bound on the memory that ``value`` allocates, in bytes or such as "2GB"; on a cluster, also for each worker. It
        excludes what the model already holds, and a float64 copy of validation features of another type. It never
        changes a result on the CPU. On a GPU it bounds the tiles of distances (None is half of the free memory there),
        and their size can change the last bit of a value.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.
    scratch : path-like, default=None
        Folder for scratch files of data larger than memory. Rows read from Parquet stay there for reuse. By default
        they go to the system's folder for temporary files and are removed with the model.

    Attributes
    ----------
    classes_ : ndarray
        Labels seen in training.
    n_features_in_ : int
        Number of features.
    feature_names_in_ : ndarray of str
        Names of the features, when the training table has them.
    codes_ : ndarray of int32
        Class number of each training row.
    feature_std_ : ndarray of shape (n_features,) or None
        Standard deviation of each feature; None for sparse rows and precomputed distances.
    ids_ : ndarray
        Row ids: the caller's index or ids.
    fingerprint_ : str
        Hash of the training rows and labels.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> model.value([[0.9]], ["b"]).values.round(3)
    array([-0.333,  0.667,  0.167])
    """

    _takes_graph = True
    _choices: ClassVar[dict[str, tuple[str, ...]]] = {
        **KNNClassModel._choices,
        "method": ("exact", "certified", "truncated"),
        "search": SEARCHES,
        "device": ("cpu", "cuda", "auto"),
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        utility: str = "soft",
        semivalue: Semivalue = "shapley",
        metric: str = "euclidean",
        method: str = "exact",
        tol: float | None = None,
        search: str = "exact",
        ties: str = "average",
        boundary_neighbors: int = BOUNDARY_NEIGHBORS,
        boundary_entropy: float = 0.0,
        device: str = "cpu",
        n_jobs: int | None = None,
        max_memory: int | str | None = None,
        progress: bool | None = None,
        scratch: Any = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.utility = utility
        self.semivalue = semivalue
        self.metric = metric
        self.method = method
        self.tol = tol
        self.search = search
        self.ties = ties
        self.boundary_neighbors = boundary_neighbors
        self.boundary_entropy = boundary_entropy
        self.device = device
        self.n_jobs = n_jobs
        self.max_memory = max_memory
        self.progress = progress
        self.scratch = scratch

    def value(
        self,
        X_val: Any,
        y_val: Any,
        *,
        groups: Any = None,
        clusters: Any = None,
        point_weight: Any = None,
        matrix: bool = False,
        order: Any = None,
        exclude: Any = None,
        pool: Any = None,
        correction: Any = None,
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
            For points that depend on each other, such as several readings of one patient: one name per point, equal
            for points of one cluster. Standard errors then count clusters instead of points.
        point_weight : "balanced", array-like of shape (n_val,) or str, optional
            Weight of each validation point: "balanced" gives all classes of the points the same total weight; an array
            holds weights of at least 0, such as costs; for Parquet, also the name of their column. Values are exact
            weighted means over the points; standard errors are those of weighted means.
        matrix : bool, default=False
            Also return each row's value on each point: n_train x n_val numbers.
        order : array-like of shape (n_train,), optional
            Order in which rows join, for asymmetric Shapley values: dates, numbers, or texts such as ISO dates,
            compared as texts. Rows with the smallest entry are valued as if they were alone, those with the next one by
            what they add to the earlier ones, and so on; rows with equal entries join together, in all orders. A pandas
            Series is matched to the row ids by its index. Only for ``method="exact"`` on the CPU and Shapley or
            (weighted) Banzhaf values, without pool or correction.
        exclude : int array of shape (n_val,), optional
            For points that are training rows: position of the row that each point ignores, -1 for none. That row is
            ranked last, whatever its distance, so that the others share the point without it. To value all rows on each
            other, use :func:`shapshift.cross_value`, which removes the row from the game.
        pool : "train" or ndarray, optional
            "train" also uses the training rows: every row is a further validation point, in a game without it. Their
            weight comes from the data: from how well their features and labels agree with those of the validation
            points, and from the sampling errors of both. Standard errors include the remaining bias.
            ``parameters["pool"]`` of the result says how much came from the training rows and why. If they do not help,
            values are plain, with a warning. With ``metric="precomputed"``, pass the distances between training rows.
            Not available with clusters, weights, matrix, excluded rows or checkpoint. What is computed on the training
            rows is kept for the next validation set. For audits and payouts see :meth:`pooled`.
        correction : corrector, optional
            Correct the values: a `PosteriorCorrector`, which knows the noise of ``X_val``, or a fitted
            `BoundaryCorrector`, `EntropyNormalizer` or other object with ``transform(valuation)``. Not available with
            groups or a matrix.
        checkpoint : path-like, optional
            Folder for progress. A killed run that is called again with the same arguments resumes from it and returns
            the same bytes. A folder of another run is refused. Delete it once the result is saved.

        Returns
        -------
        Valuation
        """
        if order is not None and not (pool is None and correction is None):
            raise InputError(
                "The 'order' parameter does not go with 'pool' or 'correction', which assume that all rows join "
                "together. Leave one of them out."
            )
        if pool is not None:
            if self._is_graph(X_val) or self._is_graph(pool):
                raise InputError(
                    "The 'pool' parameter does not go with a sparse neighbour graph: pooling compares all distances. "
                    "Value without pooling, or pass dense distances."
                )
            if matrix is not False or any(part is not None for part in (clusters, point_weight, exclude, checkpoint)):
                raise InputError(
                    "The 'pool' parameter does not go with 'clusters', 'point_weight', 'matrix', 'exclude' or "
                    "'checkpoint'. Value without pooling to get these."
                )
            if correction is not None:
                self._check_correction(correction, groups)
            return pooled_valuation(self, X_val, y_val, pool, groups=groups, correction=correction)
        if correction is None:
            asked = {"groups": groups, "clusters": clusters, "matrix": matrix, "exclude": exclude, "order": order}
            return self._value(X_val, y_val, checkpoint=checkpoint, point_weight=point_weight, **asked)[0]
        self._check_correction(correction, matrix or None, groups, clusters, point_weight, exclude, checkpoint)
        return corrected_values(self, X_val, y_val, correction)

    def pooled(self, pool: Any = "train") -> PoolingModel:
        """Return this fitted model with pooled values, for functions that take a model, such as `audit_shift`.

        Parameters
        ----------
        pool
            As in :meth:`value`.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from shapshift import KNNShapley, audit_shift
        >>> X, y = load_iris(return_X_y=True)
        >>> model = KNNShapley().fit(X[::2], y[::2])
        >>> audit = audit_shift(model.pooled(), X[1::5], y[1::5], noise=[0.1], repeats=3)
        >>> audit.parameters["model"]["pool"]["rows"]
        75
        """
        check_is_fitted(self)
        return PoolingModel(self, pool=pool)

    def _check_correction(self, correction: Any, *others: Any) -> None:
        """Refuse objects that are not correctors, and parameters that cannot be combined with a correction."""
        methods = [callable(getattr(correction, name, None)) for name in ("correct", "transform")]
        if isinstance(correction, type) or not any(methods):
            got = f"the class {correction.__name__}" if isinstance(correction, type) else type(correction).__name__
            raise InputError(
                f"The 'correction' parameter of {type(self).__name__}.value must be a PosteriorCorrector, or a fitted "
                "BoundaryCorrector, EntropyNormalizer or other object with a method transform(valuation). Got "
                f"{got} instead."
            )
        if any(part is not None for part in others):
            raise InputError(
                "The 'correction' parameter does not go with 'groups', 'clusters', 'point_weight', 'matrix', "
                "'exclude' or 'checkpoint': a correction is made for the validation set as a whole. Value without a "
                "correction to get these."
            )

    def _value(self, X_val: Any, y_val: Any, **asked: Any) -> tuple[Valuation, Neighborhood]:
        here_only = [name for name in ("point_weight", "order") if asked.get(name) is not None]
        if not here_only or self.device == "cpu":
            return super()._value(X_val, y_val, **asked)
        if self.device == "cuda":
            raise InputError(
                f"The {here_only[0]!r} parameter of {type(self).__name__}.value is supported on the CPU only. Got a "
                "model with device='cuda'. Set device='cpu' or 'auto'."
            )
        here = copy.copy(self)
        here.device = "cpu"
        return here._value(X_val, y_val, **asked)

    def _prepare(self, X_val: Any, y_val: Any, *, order: Any = None, **asked: Any) -> Prepared:
        given = super()._prepare(X_val, y_val, **asked)
        if order is None:
            return given
        caller = type(self).__name__
        if self.method != "exact" or self._is_graph(given.points):
            got = "a sparse neighbour graph" if self._is_graph(given.points) else f"method={self.method!r}"
            raise InputError(
                f"The 'order' parameter of {caller}.value is for exact values. Got {got}. Use method='exact' and all "
                "distances."
            )
        check_precedence(caller, self.semivalue)
        return given._replace(task=replace(given.task, order=_labels.check_order(order, self.ids_)))

    def _task(self, targets: npt.NDArray[Any], **common: Any) -> ClassTask:
        average, table = self.ties == "average", self._rank_table(self._index.n_rows)
        if common.get("own") is not None:
            table = self._rank_table(self._index.n_rows - 1)
            # Each point's own row is ranked last, where it changes nothing for the others: c does not fall behind them.
            table = replace(table, c=np.append(table.c, table.c[-1]))
        return class_task(
            self.codes_,
            targets,
            len(self.classes_),
            table,
            average_ties=average,
            boundary_neighbors=self._depth,
            threshold=float(self.boundary_entropy),
            **common,
        )

    def _rank_table(self, n_rows: int) -> RankTable:
        utility: Any = self.utility
        return rank_table(n_rows, int(self.n_neighbors), self.semivalue, utility)

    def _run(self, given: Prepared, runner: Runner) -> Sums:
        if given.task.order is not None:
            method: Exact = precedence(given.task, int(self.n_neighbors), self.semivalue, self.utility)
            return runner.sums(exact_from_file(method, self.scratch, runner) if self._index.in_file else method)
        gpu = self._gpu_rows(given.points, runner.checkpoint is not None)
        if gpu is not None:
            tol = self._tol() if self.method == "certified" else None
            return gpu.sums(given.task, self._index, given.points, given.excluded, tol, runner)  # type: ignore[no-any-return]
        if self._is_graph(given.points):
            if self.method == "certified":
                raise InputError(
                    f"The 'method' parameter of {type(self).__name__} must be 'exact' or 'truncated' for a sparse "
                    "neighbour graph, whose values have a bound of their own. Got 'certified' instead."
                )
            sums = graph_sums(given.task, given.points, given.excluded, runner)
            return sums if given.task.own is None else sums.without_own(given.task, given.task.own)
        exact = Exact(given.task)
        if self._index.in_file:
            exact = exact_from_file(exact, self.scratch, runner)
        run = {"exact": self._exact, "certified": self._certified, "truncated": self._truncated}[self.method]
        sums = run(exact, given.points, given.excluded, runner)
        return sums if given.task.own is None else sums.without_own(given.task, given.task.own)

    def _needs_engine(self, points: Any) -> bool:
        return super()._needs_engine(points) or self._gpu_rows(points) is not None

    def _exact(self, exact: Exact, points: Any, excluded: Any, runner: Runner) -> Sums:
        # A memory budget does not count the values of all duplicates, and a run may resume with another budget.
        collapses = runner.max_memory is None and runner.checkpoint is None and excluded is None
        if self._duplicates is not None and exact.task.average_ties and collapses:
            return collapsed_sums(exact.task, self._duplicates, points, runner)
        return runner.sums(exact)

    def _certified(self, exact: Exact, points: Any, excluded: Any, runner: Runner) -> Sums:
        index, tol, n = self._index, self._tol(), exact.task.n_train
        if isinstance(index, FileRows):
            run = partial(
                sharded_sums, index=index, points=points, excluded=excluded, scratch=self.scratch, runner=runner
            )
            return certified_sums(exact, index, points, self._sample, tol=tol, runner=runner, by_buckets=run)
        # Where all distances of a point fit into memory, a sort costs too little for buckets to pay.
        notes = {"tol": tol, "exact_ranks": n, "buckets": 0}
        return replace(self._exact(exact, points, excluded, runner), error_bound=np.zeros(n), notes=notes)

    def _truncated(self, exact: Exact, points: Any, excluded: Any, runner: Runner) -> Sums:
        return truncated_sums(
            exact,
            self._index,
            points,
            self._derived,
            tol=self._tol(),
            search=self.search,
            excluded=excluded,
            runner=runner,
        )

    def _tol(self) -> float:
        default = {"certified": CERTIFIED_TOL, "truncated": TRUNCATED_TOL}.get(self.method, 0.0)
        return default if self.tol is None else float(self.tol)

    def _about(self, task: Task, sums: Sums) -> dict[str, Any]:
        return {
            "n_neighbors": int(self.n_neighbors),
            "utility": self.utility,
            "semivalue": str(self.semivalue),
            "metric": self.metric,
            "algorithm": self.method,
            "ties": self.ties,
            "n_train": task.n_train,
            "n_val": task.n_val,
            "n_classes": len(self.classes_),
            **self._boundary_rule(),
        }

    def _fitted(self, X: Any) -> None:
        super()._fitted(X)
        self._duplicates = find_duplicates(self._index, self.codes_)
        if is_on_gpu(X):
            self._gpu_rows(X, features=X)

    def _place_points(self, X_val: Any, has_checkpoint: bool) -> Any:
        rows = X_val.rows if isinstance(X_val, check.Table) else X_val
        gpu = self._gpu_rows(rows, has_checkpoint)
        if gpu is not None and is_on_gpu(X_val):
            return gpu.check_points(X_val)
        return self._check_points(X_val, narrow=True)

    def _filler(self, points: Any, excluded: Any) -> Any:
        return no_tiles if is_on_gpu(points) else super()._filler(points, excluded)

    def _checkpoint(self, folder: Any, given: Prepared) -> Checkpoint:
        if self.search != "exact":
            raise InputError(
                f"The 'checkpoint' parameter needs search='exact', because every process builds its own index. Got "
                f"search={self.search!r} instead. Leave the checkpoint out, or use search='exact'."
            )
        return super()._checkpoint(folder, given)

    def _check_device(self, rows: Any, has_checkpoint: bool = False) -> str | None:
        caller = type(self).__name__
        obstacles = {
            "a sparse neighbour graph. Pass dense distances": self._is_graph(rows),
            "a checkpoint, which is for the CPU: a run on a GPU is short. Leave it out": has_checkpoint,
            kind_of(rows).unserved.get("device", ""): "device" in kind_of(rows).unserved,
            "method='truncated'. Use method='certified'": self.method == "truncated",
        }
        found = [name for name, holds in obstacles.items() if holds]
        if self.device == "auto" and found:
            return None
        device = torch_device(caller, self.device)
        if device is not None and found:
            raise InputError(
                f"The 'device' parameter of {caller} must be 'cpu' or 'auto' for {found[0]}, or use the CPU. Got "
                f"{self.device!r} instead."
            )
        return device

    def _gpu_rows(self, points: Any, has_checkpoint: bool = False, features: Any = None) -> Any:
        """Return the training rows on a GPU; None for the CPU. ``features`` are these rows if already on the GPU."""
        rows = self._index.rows
        aside = kind_of(points).in_file or self._is_graph(points)
        device = self._check_device(points if aside else rows, has_checkpoint)
        if device is None:
            return None
        from shapshift.engine.gpu.device import place_rows

        return self._derived.get(device, lambda: place_rows(self._index, self.codes_, self._sample, device, features))

    def _check_parameters(self) -> None:
        super()._check_parameters()
        caller = type(self).__name__
        check_semivalue(caller, self.semivalue)
        if self.tol is not None:
            check.check_number(caller, "tol", self.tol)
        if self.search != "exact":
            check_search(caller, self.search, self.method, self.metric)
        if self.device == "cuda" and self.method == "truncated":
            raise InputError(
                f"The 'device' parameter of {caller} must be 'cpu' or 'auto' for method='truncated', which runs on "
                "the CPU. Got 'cuda' instead. On a GPU, use method='certified'."
            )
        check.check_folder(caller, "scratch", self.scratch)
