"""What the relatives of KNNShapley share: fit, value, and the way from sums to a Valuation."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from shapshift import _labels
from shapshift import _validation as check
from shapshift.boundary import BOUNDARY_NEIGHBORS, entropy_levels
from shapshift.distances import METRICS, TrainingIndex, tile_filler
from shapshift.engine import Neighborhood
from shapshift.kernels.near import entropy_of, label_shares
from shapshift.relatives._run import PointJob, PointSums, run_job
from shapshift.training import TrainingRows, fingerprint, warn_if_continuous
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Points:
    """A checked validation set.

    Attributes
    ----------
    features : ndarray, csr_array or distances
    targets : ndarray of shape (n_val,)
        Class numbers, or numbers for regression.
    groups : ndarray of shape (n_val,)
    group_names : tuple
    """

    features: Any
    targets: npt.NDArray[Any]
    groups: npt.NDArray[np.int64]
    group_names: tuple[Any, ...]

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return self.targets.size


class KNNRelative(TrainingRows):
    """A model that values training rows point by point, from their distances.

    A subclass reads labels (``_read_labels``, ``_read_targets``), says how a tile of distances becomes values and
    entropies (``_job``), and what is worth knowing about it (``_about``).
    """

    n_jobs: int | None
    progress: bool | None
    #: Its kernels run without the interpreter's lock, so several calls at a time use several processors.
    works_in_threads = True
    #: Memory is bounded by tiles of a fixed size, not by a parameter.
    max_memory: int | str | None = None

    def fit(self, X: Any, y: Any, *, ids: Any = None) -> Self:
        """Index the training rows.

        Parameters
        ----------
        X : table of shape (n_train, n_features)
            Any container that :meth:`shapshift.KNNShapley.fit` takes. Ignored when ``metric="precomputed"``.
        y : array-like of shape (n_train,)
            Labels, or numbers for regression.
        ids : array-like of shape (n_train,), optional
            Row ids; by default the table's index, or 0..n_train-1.

        Returns
        -------
        self
        """
        self._check_parameters()
        table, n_rows, row_index, id_names = self._read_rows(X, y)
        learned, parts = self._read_labels(_labels.check_labels(y, "y", n_rows, "X"))
        id_names = id_names if ids is None else ("id",)
        ids = _labels.check_ids(ids, row_index, n_rows)
        index = self._make_index(table, n_rows)
        # Nothing is stored before everything is checked: a refused fit leaves the last one as it was.
        self.ids_, self._id_names, self._index = ids, id_names, index
        for name, entry in learned.items():
            setattr(self, name, entry)
        self._keep_features(table)
        self.fingerprint_ = fingerprint(index, *parts)
        return self

    def value(self, X_val: Any, y_val: Any, *, groups: Any = None, matrix: bool = False) -> Valuation:
        """Value every training row on a validation set.

        Parameters
        ----------
        X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
            Validation points; columns are matched by name. With ``metric="precomputed"``, distances of shape
            (n_val, n_train).
        groups : array-like of shape (n_val,), optional
            One name per validation point; the result then has the mean per group too.
        matrix : bool, default=False
            Also return each row's value on each single point: n_train x n_val numbers.

        Returns
        -------
        Valuation
        """
        return self._value(X_val, y_val, groups, matrix, 0, None)[0]

    def value_and_neighbors(
        self, X_val: Any, y_val: Any, *, groups: Any = None, matrix: bool = False, reference: Any = None
    ) -> tuple[Valuation, Neighborhood]:
        """As :meth:`value`, and say who the nearest training rows are.

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
            ``nearest``, the K nearest rows of each point, and ``reference_ranks``.
        """
        check_is_fitted(self)
        return self._value(X_val, y_val, groups, matrix, min(self._n_shown(), self._index.n_rows), reference)

    def _value(
        self, X_val: Any, y_val: Any, groups: Any, matrix: bool, n_nearest: int, reference: Any
    ) -> tuple[Valuation, Neighborhood]:
        points = self._check_validation(X_val, y_val, groups, matrix)
        reference = check.check_positions(reference, points.n_val, self._index.n_rows)
        job = replace(self._job(points), n_nearest=n_nearest, reference=reference)
        sums = run_job(job, matrix=matrix, n_jobs=self.n_jobs, progress=self.progress)
        return self._valuation(job, sums, points, self._about(job)), sums.neighborhood

    def _check_validation(self, X_val: Any, y_val: Any, groups: Any, matrix: bool) -> Points:
        check_is_fitted(self)
        self._check_parameters()
        if self.metric != self._index.metric:
            raise ValueError(
                f"The 'metric' parameter was {self._index.metric!r} when the model was fitted and is {self.metric!r} "
                "now. Fit again."
            )
        check.check_flag(f"{type(self).__name__}.value", "matrix", matrix)
        features = self._check_points(X_val)
        n_val = features.shape[0]
        targets = self._read_targets(_labels.check_labels(y_val, "y_val", n_val, "X_val"))
        names: list[Any] = []
        codes = np.zeros(n_val, dtype=np.int64)
        if groups is not None:
            names, codes = _labels.check_groups(groups, n_val)
        return Points(features, targets, codes, tuple(names))

    def _valuation(
        self, job: PointJob, sums: PointSums, points: Points, about: Mapping[str, Any], hidden: str | None = None
    ) -> Valuation:
        """Turn sums into means; ``hidden`` stands for the fingerprint where that may not be told."""
        sizes = np.bincount(points.groups, minlength=len(points.group_names))[: len(points.group_names)]
        present = sums.level_counts > 0
        level_values, level_counts = sums.levels[present], sums.level_counts[present]
        return Valuation(
            values=level_values.sum(axis=0) / points.n_val,
            ids=self.ids_,
            entropy=sums.entropy,
            boundary=sums.entropy > 0,
            level_entropy=job.levels[present],
            level_values=level_values / level_counts[:, None],
            level_counts=level_counts,
            group_means=sums.groups / sizes[:, None],
            group_names=points.group_names,
            group_sizes=tuple(sizes.tolist()),
            matrix=sums.matrix,
            parameters={
                "method": type(self).__name__,
                **about,
                "metric": self.metric,
                "n_train": job.n_train,
                "n_val": job.n_val,
                "boundary_neighbors": BOUNDARY_NEIGHBORS,
            },
            fingerprint=self.fingerprint_ if hidden is None else hidden,
            kind=self._kind,
            id_names=self._id_names,
            error_bound=self._error_bound(),
        )

    def _blank_job(self, points: Points, levels: Floats, **ways: Any) -> PointJob:
        """Make a job of the parts that are the same for all relatives."""
        n_train = self._index.n_rows
        return PointJob(
            fill=tile_filler(self._distance_index(), points.features),
            n_train=n_train,
            n_val=points.n_val,
            depth=min(BOUNDARY_NEIGHBORS, n_train),
            levels=levels,
            groups=points.groups,
            n_groups=len(points.group_names),
            n_nearest=0,
            reference=np.empty((points.n_val, 0), dtype=np.int64),
            **ways,
        )

    def _distance_index(self) -> TrainingIndex:
        """Return the index that tiles are computed with; here only the order of distances counts."""
        return self._index

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        check.check_choice(owner, "metric", self.metric, METRICS)
        check.check_jobs(owner, self.n_jobs)
        check.check_progress(owner, self.progress)

    def _error_bound(self) -> Floats | None:
        """How far each value can be off; None for exact values."""
        return None

    def _n_shown(self) -> int:
        """How many nearest rows :meth:`value_and_neighbors` reports."""
        raise NotImplementedError

    def _read_labels(self, labels: npt.NDArray[Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
        """Attributes to keep of the training labels, and what the fingerprint is made of."""
        raise NotImplementedError

    def _read_targets(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        raise NotImplementedError

    def _job(self, points: Points) -> PointJob:
        raise NotImplementedError

    def _about(self, job: PointJob) -> dict[str, Any]:
        """Parameters of the result; called when the job is done."""
        raise NotImplementedError


class KNNClassifierRelative(KNNRelative):
    """A relative for class labels: the boundary is where the labels of the five nearest rows differ."""

    classes_: npt.NDArray[Any]
    codes_: Codes

    def _read_labels(self, labels: npt.NDArray[Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
        warn_if_continuous(labels)
        classes, codes = _labels.encode_labels(labels)
        return {"classes_": classes, "codes_": codes}, (classes, codes)

    def _read_targets(self, labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return _labels.look_up_labels(labels, self.classes_)

    def _levels(self) -> Floats:
        return entropy_levels(min(BOUNDARY_NEIGHBORS, self._index.n_rows), len(self.classes_))

    def _entropy(self, tile: Floats, here: slice, cuts: Floats) -> Floats:
        shares = np.empty((tile.shape[0], len(self.classes_)))
        label_shares(tile, self.codes_, min(BOUNDARY_NEIGHBORS, self._index.n_rows), cuts, shares)
        entropy: Floats = entropy_of(shares)
        return entropy
