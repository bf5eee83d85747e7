"""SemiSupervisedKNNShapley: values of training rows when some have beliefs about their label instead of a label."""

import hashlib
from dataclasses import replace
from functools import partial
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks.labels import split_missing
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS
from shapshift.engine.coefficients import Semivalue, check_semivalue, rank_table
from shapshift.engine.exact import Tiled
from shapshift.engine.rows.distances import tile_filler
from shapshift.engine.tasks import Sums, Task
from shapshift.exceptions import InputError
from shapshift.kernels.beliefs import belief_values
from shapshift.kernels.near import label_shares, look_around
from shapshift.knn.base import KNNClassModel
from shapshift.knn.explain import class_sentence, row_name

Floats = npt.NDArray[np.float64]

# Number of unlabelled rows whose distances are in memory at a time.
BATCH = 64


class SemiSupervisedKNNShapley(KNNClassModel):
    r"""Exact values of training rows when some of them have no label (after Courtnage and Smirnov 2021).

    A row without a label votes with beliefs: the probability of each class, by default its share among the row's
    nearest labelled rows. A subset is worth the expected share of its K nearest rows that carry the label of the
    validation point. That is linear in the labels, so values are exact: the mean of the values of
    :class:`shapshift.KNNShapley` over all labels that the rows may have, drawn independently from the beliefs.

    Parameters
    ----------
    n_neighbors, utility, semivalue, metric, ties, boundary_neighbors, boundary_entropy, n_jobs, max_memory, progress
        As in :class:`shapshift.KNNShapley`.
    belief_neighbors : int, default=5
        Number of nearest labelled rows whose labels form the beliefs. Rows tied for the last places count in part.

    Attributes
    ----------
    beliefs_ : ndarray of shape (n_train, n_classes)
        Probability of each class for each row: 0 or 1 for rows with a label.
    labeled_ : ndarray of shape (n_train,)
        Whether a row has a label.
    classes_, codes_, n_features_in_, feature_names_in_, feature_std_, ids_, fingerprint_
        As in :class:`shapshift.KNNShapley`. For a row without a label, ``codes_`` has the most probable class, which
        the boundary rule uses as its label.

    Examples
    --------
    >>> from shapshift import SemiSupervisedKNNShapley
    >>> model = SemiSupervisedKNNShapley(n_neighbors=1, belief_neighbors=2)
    >>> model.fit([[0.0], [1.0], [2.0]], ["a", None, "b"]).beliefs_[1]
    array([0.5, 0.5])
    >>> model.value([[0.9]], ["a"]).values.round(3)
    array([ 0.333, -0.167, -0.167])
    """

    beliefs_: Floats

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        utility: str = "soft",
        semivalue: Semivalue = "shapley",
        belief_neighbors: int = 5,
        metric: str = "euclidean",
        ties: str = "average",
        boundary_neighbors: int = BOUNDARY_NEIGHBORS,
        boundary_entropy: float = 0.0,
        n_jobs: int | None = None,
        max_memory: int | str | None = None,
        progress: bool | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.utility = utility
        self.semivalue = semivalue
        self.belief_neighbors = belief_neighbors
        self.metric = metric
        self.ties = ties
        self.boundary_neighbors = boundary_neighbors
        self.boundary_entropy = boundary_entropy
        self.n_jobs = n_jobs
        self.max_memory = max_memory
        self.progress = progress

    def fit(self, X: Any, y: Any = None, *, ids: Any = None, beliefs: Any = None) -> Self:
        """Index the training rows and form beliefs about missing labels.

        Parameters
        ----------
        X, ids
            As in :class:`shapshift.KNNShapley`, in memory.
        y : array-like of shape (n_train,)
            Labels; None, NaN or another missing value where a row has none.
        beliefs : array-like of shape (n_train, n_classes), optional
            Probabilities of the sorted classes for each row, such as the ``predict_proba`` of a classifier. Those of
            rows with a label are ignored.

        Returns
        -------
        self
        """
        if y is None or isinstance(y, str):
            raise InputError(
                f"{type(self).__name__}.fit requires y to be passed, but the target y is {y}: it must hold a label, "
                "or a missing value, for each row in memory."
            )
        labels, missing = split_missing(y, "y")
        if missing.all():
            raise InputError(f"'y' must have labels for some rows. Got {labels.size} entries, all of them missing.")
        filled = labels.copy()
        filled[missing] = labels[~missing][0]
        super().fit(X, filled, ids=ids)
        known = np.eye(len(self.classes_))[self.codes_]
        if missing.any():
            given = self._neighbors_labels(X, ~missing) if beliefs is None else self._given(beliefs, missing.size)
            known[missing] = given[missing]
        self.beliefs_, self.labeled_ = known, ~missing
        self.codes_ = np.where(missing, known.argmax(axis=1), self.codes_).astype(np.int32)
        digest = hashlib.blake2b(self.fingerprint_.encode(), digest_size=16)
        digest.update(missing.tobytes() + known.tobytes())
        self.fingerprint_ = digest.hexdigest()
        return self

    def _labels(self) -> None:
        return None  # some rows have beliefs instead of codes

    def _neighbors_labels(self, X: Any, labeled: npt.NDArray[np.bool_]) -> Floats:
        """Share of each label among the nearest labelled rows of each row."""
        if self.metric == "precomputed":
            raise InputError(
                "The 'beliefs' parameter is needed with metric='precomputed': distances between training rows are not "
                "known. Got None."
            )
        rows = self._table(X, "X")
        index = self._make_index(replace(rows, rows=rows.rows[labeled]), int(labeled.sum()))
        codes, depth = self.codes_[labeled], min(int(self.belief_neighbors), int(labeled.sum()))
        fill, shares = tile_filler(index, index.like_rows(rows.rows)), np.zeros((labeled.size, len(self.classes_)))
        for low in range(0, labeled.size, BATCH):
            here = slice(low, min(low + BATCH, labeled.size))
            n = here.stop - low
            tile, cuts = np.empty((n, codes.size)), np.empty(n)
            fill(here, slice(0, codes.size), tile)
            none = np.empty((n, 0), dtype=np.int64)
            look_around(tile, depth, none, none, np.empty((n, 0)), cuts)
            label_shares(tile, codes, depth, cuts, shares[here])
        return shares

    def _given(self, beliefs: Any, n_rows: int) -> Floats:
        found = np.asarray(beliefs, dtype=np.float64)
        shape = (n_rows, len(self.classes_))
        if found.shape != shape or not (found >= 0).all() or not np.allclose(found.sum(axis=1), 1.0, atol=1e-6):
            raise InputError(
                f"The 'beliefs' parameter of {type(self).__name__}.fit must hold a probability for each of the "
                f"{shape[0]} rows and {shape[1]} classes, at least 0 and with a sum of 1 in each row. Got an array of "
                f"shape {found.shape}, whose sums or signs may differ; pass those of a classifier's predict_proba."
            )
        return found

    def _row_labels(self) -> npt.NDArray[Any]:
        found = super()._row_labels().astype(object)
        found[~self.labeled_] = None
        return found

    def _sentence(self, row: int, value: float, near: npt.NDArray[Any], own: npt.NDArray[Any] | None) -> str:
        if self.labeled_[row]:
            return super()._sentence(row, value, near, own)
        label = self.classes_[self.codes_[row]]
        called = f"{row_name(self.ids_[row])} (no label, most probably {label})"
        return class_sentence(called, label, value, near, own, self._nearness())

    def _method(self, task: Task, targets: Any) -> Tiled:
        if task.own is not None:
            raise InputError(
                f"cross_value does not take {type(self).__name__}, whose beliefs depend on all rows. "
                "Value on a separate validation set."
            )
        utility: Any = self.utility
        table = rank_table(task.n_train, int(self.n_neighbors), self.semivalue, utility)
        beliefs = np.vstack([self.beliefs_.T, np.zeros(task.n_train)])
        bases = table.per_match * beliefs.sum(axis=1)[targets] - table.empty / len(self.classes_)

        def overwrite(tile: Floats, here: slice, extra: Floats) -> None:
            order = np.argsort(tile, axis=1, kind="stable")
            belief_values(tile, order, beliefs, targets[here], bases[here], table.c, self.ties == "average")

        return Tiled(task, partial(self._entropy, task.depth), overwrite)

    def _about(self, task: Task, sums: Sums) -> dict[str, Any]:
        return super()._about(task, sums) | {
            "n_neighbors": int(self.n_neighbors),
            "utility": self.utility,
            "semivalue": str(self.semivalue),
            "ties": self.ties,
            "n_classes": len(self.classes_),
            "n_unlabeled": int(np.count_nonzero(~self.labeled_)),
            "belief_neighbors": int(self.belief_neighbors),
            "worth": f"the expected share of its {int(self.n_neighbors)} nearest rows that carry the point's label",
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        caller = type(self).__name__
        check.check_count(caller, "belief_neighbors", self.belief_neighbors)
        check_semivalue(caller, self.semivalue)
