"""KNNShapley: the scikit-learn face of the engine."""

import os
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
from sklearn.utils.validation import check_is_fitted

from shapshift import _labels
from shapshift import _validation as check
from shapshift.boundary import BOUNDARY_NEIGHBORS
from shapshift.certified import Certified, Sample, draw_sample, run_certified
from shapshift.coefficients import Beta, rank_table
from shapshift.distances import tile_filler, without_rows
from shapshift.engine import Neighborhood, Sums, Task, open_checkpoint, run_task
from shapshift.gpu import is_on_card
from shapshift.knn_parameters import check_checkpoint, check_parameters, choose_device
from shapshift.places import find_places, run_places
from shapshift.rowfile import RowFile
from shapshift.search import SearchCache
from shapshift.sharded import exact_method, run_sharded
from shapshift.training import TrainingRows, fingerprint, warn_if_continuous
from shapshift.truncated import run_truncated
from shapshift.valuation import Valuation

#: What ``tol`` means when it is not given.
CERTIFIED_TOL = 1e-3
TRUNCATED_TOL = 1e-3
#: Parameters under which a run may go on as another began it.
NEVER_CHANGE_A_RESULT = ("n_jobs", "max_memory", "progress", "scratch")


def no_tiles(here: slice, rows: slice, tile: Any) -> None:
    """Stand for the distances of points whose features are on a card."""
    raise NotImplementedError


class KNNShapley(TrainingRows):
    r"""Exact value of every training row for a K-nearest-neighbour classifier.

    ``fit`` indexes the training rows, ``value`` takes a validation set and returns what each training row contributes
    to classifying it. Values are exact (no sampling), for any K, any number of classes, and in the presence of ties; a
    faster ``method`` says how far each value can be off.

    Parameters
    ----------
    n_neighbors : int, default=5
        K. May exceed the number of training rows.
    utility : {"soft", "hard"}, default="soft"
        What a subset of training rows is worth on a validation point: the share of its K nearest members (or of all,
        if there are fewer) that carry the point's label, with 1/C for the empty subset ("soft"); or their number
        divided by K, with 0 for the empty subset ("hard").
    semivalue : {"shapley", "banzhaf", "loo", "calibrated"} or Beta, default="shapley"
        How subsets are weighted. "loo" is leave-one-out; "calibrated" is uniform over sizes of at least N - 2K.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed"}, default="euclidean"
        With "precomputed", ``value`` takes a distance matrix (validation points in rows, training rows in columns) and
        ``fit`` ignores the features. Columns that are named by the row ids are matched by name.
    method : {"exact", "certified", "truncated"}, default="exact"
        "certified" takes linear time instead of a sort: it treats distances that are nearly equal as equal and returns,
        in ``Valuation.error_bound``, how far each value can be off at most. "truncated" finds only the nearest rows of
        each validation point, as many as ``tol`` needs, and gives all farther rows of a class one value.
    tol : float, default=None
        For "certified": the largest bound allowed, in standard deviations of the values; None means 1e-3. It refines
        until that is reached. For "truncated": the largest error of any value on any validation point, in units of the
        utility, where 1 is the difference between all votes right and none; None means 1e-3.
    search : {"exact", "ann", "lsh"}, default="exact"
        For "truncated": how the nearest rows are found. "exact" looks at all rows and keeps the error within ``tol``.
        "ann" asks an approximate index (faiss, the extra ``ann``), much faster for a million rows; the error bound
        counts on nothing but what the index certifies, so it can be far above ``tol``, and the recall is measured.
        "lsh" hashes: with probability 0.99 nothing was missed and the error is within ``tol``. An index is built at
        first use and kept until the next fit.
    ties : {"average", "index"}, default="average"
        Training rows at equal distance: average over all orders, so that equal rows get equal values and the order of
        the table means nothing; or order by row number, as published code does.
    device : {"cpu", "cuda", "auto"}, default="cpu"
        Where to compute: "cuda" is a graphics card (it needs the ``torch`` extra), "auto" is a card where there is one
        and it can do the task. Values on a card are those of the CPU but for rounding; "certified" has other buckets
        and bounds there. Tensors on the card are valued where they are. Sparse rows and ``method="truncated"`` are for
        the CPU.
    n_jobs : int, default=None
        How many workers are at work at a time: threads, or processes of the Dask or Ray cluster that a surrounding
        ``joblib.parallel_config`` names. None means 1 unless in such a context, -1 all processors. It never changes a
        result.
    max_memory : int or str, default=None
        Bound on what ``value`` allocates, in bytes or such as "2GB"; on a cluster, of what each worker does too. What
        the model holds already, and a float64 copy of validation features that come in another type, are not part of
        it. It never changes a result. On a card it bounds the tiles of distances; None is half of what is free there.
    progress : bool, default=None
        Show a progress bar; None shows it in a terminal only.
    scratch : path-like, default=None
        Folder for scratch files of data larger than memory. Rows read from Parquet stay there and are found again; by
        default they go to the system's folder for temporary files and are removed with the model.

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
    feature_std_ : ndarray of shape (n_features_in_,) or None
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

    #: Its kernels run without the interpreter's lock, so several calls at a time use several processors.
    works_in_threads = True
    # Whether labels never seen in training are nothing to warn about: they were warned about before.
    _quiet_labels = False

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        utility: str = "soft",
        semivalue: str | Beta = "shapley",
        metric: str = "euclidean",
        method: str = "exact",
        tol: float | None = None,
        search: str = "exact",
        ties: str = "average",
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
        self.device = device
        self.n_jobs = n_jobs
        self.max_memory = max_memory
        self.progress = progress
        self.scratch = scratch

    def fit(self, X: Any, y: Any = None, *, ids: Any = None) -> Self:
        """Index the training rows.

        Parameters
        ----------
        X : table of shape (n_train, n_features)
            NumPy array, pandas or polars frame, pyarrow table, torch tensor, nested list, or (for the Euclidean and
            cosine metrics) a scipy sparse matrix. Ignored when ``metric="precomputed"``. Data larger than memory: the
            path of a Parquet file, a folder of them or a pattern, a pyarrow dataset, a NumPy memory map, or an iterator
            of batches ``(X, y)``.
        y : array-like of shape (n_train,) or str
            Labels of any hashable kind; for Parquet, the name of their column will do; for an iterator, None.
        ids : array-like of shape (n_train,) or str, optional
            Row ids; by default the table's index, or 0..n_train-1. For Parquet, the name of their column will do.

        Returns
        -------
        self
        """
        self._check_parameters()
        X, y, ids = self._opened(X, y, ids, ("X", "y", "ids"), None)
        device = self._torch_device(X.rows if isinstance(X, check.Table) else X)
        table, n_rows, row_index, id_names = self._read_rows(X, y)
        labels = _labels.check_labels(y, "y", n_rows, "X")
        warn_if_continuous(labels)
        classes, codes = _labels.encode_labels(labels)
        id_names = id_names if ids is None else ("id",)
        ids = _labels.check_ids(ids, row_index, n_rows)
        index = self._make_index(table, n_rows)
        digest = fingerprint(index, classes, codes)
        if table is not None and isinstance(table.rows, RowFile):
            table.rows.check_unchanged("X")
        # Nothing is stored before everything is checked: a refused fit leaves the last one as it was.
        self.classes_, self.codes_, self.ids_, self._id_names, self._index = classes, codes, ids, id_names, index
        self._sample: Sample | None = None  # drawn when first needed
        self._searches = SearchCache()
        self._placed = SearchCache()  # training rows on a card, by device
        self._places = find_places(index, codes)
        self._keep_features(table)
        self.fingerprint_ = digest
        if device is not None and is_on_card(X):
            self._rows_on(device, X)
        return self

    def value(
        self,
        X_val: Any,
        y_val: Any,
        *,
        groups: Any = None,
        matrix: bool = False,
        exclude: Any = None,
        correction: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> Valuation:
        """Value every training row on a validation set.

        Parameters
        ----------
        X_val : table of shape (n_val, n_features)
            Validation points, in any container that ``fit`` takes; columns are matched by name. With
            ``metric="precomputed"``, distances of shape (n_val, n_train).
        y_val : array-like of shape (n_val,) or str
            Their labels, as ``fit`` takes them. A label never seen in training matches no row and is warned about.
        groups : array-like of shape (n_val,) or str, optional
            One name per validation point, or for Parquet the column that has them; the result then has the mean per
            group too.
        matrix : bool, default=False
            Also return each row's value on each single point: n_train x n_val numbers.
        exclude : int array of shape (n_val,), optional
            For points that are training rows themselves: the position of a row that the point does not see, -1 for
            none. The row is ranked last, whatever its distance, so that the others share the point without it.
        correction : corrector, optional
            Correct the values: a `PosteriorCorrector`, which knows the noise of ``X_val``, or a fitted
            `BoundaryCorrector` or `EntropyNormalizer`. It takes neither groups nor a matrix.
        checkpoint : path-like, optional
            Folder that keeps progress. Killed at any instant and called again with the same arguments, the run goes on
            from there, to the same bytes. A folder of another run is refused. Delete it when the result is safe.

        Returns
        -------
        Valuation
        """
        if correction is None:
            return self._value(X_val, y_val, groups, matrix, 0, None, exclude, checkpoint)[0]
        if isinstance(correction, type) or not callable(getattr(correction, "correct", None)):
            got = f"the class {correction.__name__}" if isinstance(correction, type) else type(correction).__name__
            raise TypeError(
                f"The 'correction' parameter of {type(self).__name__}.value must be a PosteriorCorrector, or a fitted "
                f"BoundaryCorrector or EntropyNormalizer. Got {got} instead."
            )
        if groups is not None or exclude is not None or checkpoint is not None or matrix is not False:
            raise ValueError(
                "The 'correction' parameter does not go with 'groups', 'matrix', 'exclude' or 'checkpoint': a "
                "correction is made for the validation set as a whole. Value without a correction to get these."
            )
        corrected: Valuation = correction.correct(self, X_val, y_val)
        return corrected

    def value_and_neighbors(
        self, X_val: Any, y_val: Any, *, groups: Any = None, matrix: bool = False, reference: Any = None
    ) -> tuple[Valuation, Neighborhood]:
        """As :meth:`value`, and say who the nearest training rows are, at little extra cost.

        Parameters
        ----------
        X_val, y_val, groups, matrix
            As in :meth:`value`.
        reference : int array of shape (n_val, r), optional
            Positions of training rows whose rank to report for each validation point.

        Returns
        -------
        Valuation
        Neighborhood
            ``nearest``, the ``n_neighbors`` nearest rows of each point, and ``reference_ranks``.
        """
        check_is_fitted(self)
        valuation, neighborhood = self._value(
            X_val, y_val, groups, matrix, min(int(self.n_neighbors), self._index.n_rows), reference
        )
        return valuation, neighborhood

    def _value(
        self,
        X_val: Any,
        y_val: Any,
        groups: Any,
        matrix: bool,
        n_nearest: int,
        reference: Any,
        exclude: Any = None,
        checkpoint: str | os.PathLike[str] | None = None,
    ) -> tuple[Valuation, Neighborhood]:
        check_is_fitted(self)
        self._check_parameters()
        if self.metric != self._index.metric:
            raise ValueError(
                f"The 'metric' parameter was {self._index.metric!r} when the model was fitted and is {self.metric!r} "
                "now. Fit again."
            )
        check.check_flag(f"{type(self).__name__}.value", "matrix", matrix)
        if checkpoint is not None:
            check_checkpoint(self)
        n_train = self._index.n_rows
        X_val, y_val, groups = self._opened(X_val, y_val, groups, ("X_val", "y_val", "groups"), self._columns)
        streamed = isinstance(X_val, check.Table) and isinstance(X_val.rows, RowFile)
        device = self._torch_device(X_val.rows if streamed else self._index.rows, checkpoint is not None)
        rows = None if device is None else self._rows_on(device)
        stays = rows is not None and is_on_card(X_val)
        points = rows.check_points(X_val) if rows is not None and stays else self._check_points(X_val)
        n_val = points.shape[0]
        labels = _labels.check_labels(y_val, "y_val", n_val, "X_val")
        targets = _labels.look_up_labels(labels, self.classes_, quiet=self._quiet_labels)
        group_names: list[Any] = []
        group_codes = np.zeros(n_val, dtype=np.int64)
        if groups is not None:
            group_names, group_codes = _labels.check_groups(groups, n_val)
        utility: Any = self.utility
        fill = no_tiles if stays else tile_filler(self._index, points)
        excluded = None if exclude is None else check.check_excluded(exclude, n_val, n_train)
        if excluded is not None:
            fill = without_rows(fill, excluded)
        task = Task(
            fill=fill,
            codes=self.codes_,
            targets=targets,
            n_classes=len(self.classes_),
            table=rank_table(n_train, int(self.n_neighbors), self.semivalue, utility),
            average_ties=self.ties == "average",
            groups=group_codes,
            n_groups=len(group_names),
            n_nearest=n_nearest,
            reference=check.check_positions(reference, n_val, n_train),
        )
        options: dict[str, Any] = {
            "matrix": matrix,
            "n_jobs": self.n_jobs,
            "max_memory": check.parse_memory(self.max_memory),
            "progress": self.progress,
        }
        if rows is not None:
            return self._run_on_card(rows, task, points, excluded, group_names, options)
        if checkpoint is None:
            found = self._run(task, points, excluded, group_names, options)
        else:
            run = {name: str(given) for name, given in self.get_params().items() if name not in NEVER_CHANGE_A_RESULT}
            run["matrix"] = str(bool(matrix))
            with open_checkpoint(checkpoint, self.fingerprint_, points, excluded, task, run) as options["checkpoint"]:
                found = self._run(task, points, excluded, group_names, options)
        self._check_unchanged(points)
        return found

    def _run(
        self, task: Task, points: Any, excluded: Any, group_names: list[Any], options: dict[str, Any]
    ) -> tuple[Valuation, Neighborhood]:
        run = None
        if isinstance(self._index.rows, RowFile):
            options["method"] = exact_method(task, scratch=self.scratch, **options)
            run = partial(run_sharded, task, self._index, points, excluded=excluded, scratch=self.scratch, **options)
        if self.method == "exact":
            # A budget does not know of what spelling out the copies takes, and a checkpoint outlives a budget.
            alike = options["max_memory"] is None and "checkpoint" not in options and excluded is None
            if self._places is not None and task.average_ties and alike:
                sums = run_places(task, self._places, points, **options)
            else:
                sums = run_task(task, **options)
            return self._valuation(task, sums, group_names), sums.neighborhood
        if self.method == "truncated":
            tol = TRUNCATED_TOL if self.tol is None else float(self.tol)
            found = run_truncated(
                task, self._index, points, self._searches, tol=tol, search=self.search, excluded=excluded, **options
            )
            valuation = self._valuation(task, found.sums, group_names)
            told = {**valuation.parameters, "tol": tol, **found.told}
            return replace(valuation, error_bound=found.error_bound, parameters=told), found.sums.neighborhood
        certified = run_certified(
            task, self._index, points, self._drawn_sample(), tol=self._certified_tol(), run=run, **options
        )  # fmt: skip
        return self._certified(task, certified, group_names)

    def _run_on_card(
        self, rows: Any, task: Task, points: Any, excluded: Any, group_names: list[Any], options: dict[str, Any]
    ) -> tuple[Valuation, Neighborhood]:
        options = {name: options[name] for name in ("matrix", "max_memory", "progress")}
        options |= {"index": self._index, "points": points, "excluded": excluded}
        if self.method == "exact":
            sums = rows.run(task, **options)
            return self._valuation(task, sums, group_names), sums.neighborhood
        return self._certified(task, rows.run_certified(task, tol=self._certified_tol(), **options), group_names)

    def _certified_tol(self) -> float:
        return CERTIFIED_TOL if self.tol is None else float(self.tol)

    def _certified(
        self, task: Task, certified: Certified, group_names: list[Any]
    ) -> tuple[Valuation, Neighborhood]:  # fmt: skip
        valuation = self._valuation(task, certified.sums, group_names)
        how = {"tol": self._certified_tol(), "exact_ranks": certified.exact_ranks, "buckets": certified.buckets}
        return (
            replace(valuation, error_bound=certified.error_bound, parameters={**valuation.parameters, **how}),
            certified.sums.neighborhood,
        )

    def _drawn_sample(self) -> Sample:
        if self._sample is None:
            self._sample = draw_sample(self._index)
        return self._sample

    def _torch_device(self, rows: Any, has_checkpoint: bool = False) -> str | None:
        return choose_device(self, rows, has_checkpoint)

    def _rows_on(self, device: str, features: Any = None) -> Any:
        """Return the training rows on a device; ``features`` are these rows if they are there already."""
        from shapshift.gpu.device import place_rows

        return self._placed.get(
            device, lambda: place_rows(self._index, self.codes_, self._drawn_sample(), device, features)
        )

    def _valuation(self, task: Task, sums: Sums, group_names: list[Any]) -> Valuation:
        sizes = np.bincount(task.groups, minlength=task.n_groups)[: task.n_groups]
        present = sums.level_counts > 0
        level_values, level_counts = sums.levels[present], sums.level_counts[present]
        values = level_values.sum(axis=0)
        # In place: these are the largest arrays there are.
        values /= task.n_val
        level_values /= level_counts[:, None]
        group_means = sums.groups
        group_means /= sizes[:, None]
        return Valuation(
            values=values,
            ids=self.ids_,
            entropy=sums.entropy,
            boundary=sums.entropy > 0,
            level_entropy=task.levels[present],
            level_values=level_values,
            level_counts=level_counts,
            group_means=group_means,
            group_names=tuple(group_names),
            group_sizes=tuple(sizes.tolist()),
            matrix=sums.matrix,
            parameters=self._parameters(task),
            fingerprint=self.fingerprint_,
            kind=self._kind,
            id_names=self._id_names,
        )

    def _parameters(self, task: Task) -> dict[str, Any]:
        return {
            "method": type(self).__name__,
            "n_neighbors": int(self.n_neighbors),
            "utility": self.utility,
            "semivalue": str(self.semivalue),
            "metric": self.metric,
            "algorithm": self.method,
            "ties": self.ties,
            "n_train": task.n_train,
            "n_val": task.n_val,
            "n_classes": task.n_classes,
            "boundary_neighbors": BOUNDARY_NEIGHBORS,
        }

    def _check_parameters(self) -> None:
        check_parameters(self)
