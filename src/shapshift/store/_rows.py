"""The training rows of a store: a fitted model whose rows can be added to and removed from."""

import copy
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.rows.distances import TrainingIndex, index_again
from shapshift.exceptions import InputError
from shapshift.io.results import lock
from shapshift.knn.base import fingerprint
from shapshift.knn.shapley import KNNShapley

# Old and new rows are measured on one scale as long as it fits both this well, as powers of two.
SCALE_ROOM = 200


def own_model(model: Any) -> KNNShapley:
    """Return a copy of a fitted model for a store, or say why it cannot serve one."""
    if not isinstance(model, KNNShapley) or not hasattr(model, "fingerprint_"):
        raise InputError(
            "The 'model' parameter of ValuationStore must be a fitted KNNShapley. Got "
            f"{type(model).__name__}; call its fit method first."
        )
    reasons = {
        "must have method='exact' or 'truncated'": model.method not in ("exact", "truncated"),
        "must have search='exact': an index would have to be built anew after each change": model.search != "exact",
        model._index.unserved.get("store", ""): "store" in model._index.unserved,
    }
    for reason, wrong in reasons.items():
        if wrong:
            raise InputError(f"The 'model' parameter of ValuationStore {reason}. Fit another model for the store.")
    own = copy.copy(model)
    own._quiet_labels = True  # a validation label that no row has may get one
    return own


def fit_again(model: KNNShapley, index: TrainingIndex, labels: npt.NDArray[Any], ids: npt.NDArray[Any]) -> KNNShapley:
    """Return a model like another one, fitted to other rows, which are laid out on the other one's scale."""
    fitted = copy.copy(model)
    dense = index.metric != "cosine" and isinstance(index.rows, np.ndarray)
    ends = (index.rows.min(axis=1), index.rows.max(axis=1)) if dense else None
    index = replace(index, constant=False, ends=ends)
    _check_scale(index)
    classes, codes = _labels.encode_labels(labels)
    fitted._index, fitted.classes_, fitted.codes_, fitted.ids_ = index, classes, codes, lock(ids)
    fitted._fitted(None)
    fitted.fingerprint_ = fingerprint(index_again(index), classes, codes)
    return fitted


def keep_rows(model: KNNShapley, kept: npt.NDArray[np.bool_]) -> KNNShapley:
    """Return the model of some of the rows."""
    if not kept.any():
        raise InputError("All training rows would be gone. Drop the store instead.")
    rows = model._index.take(np.flatnonzero(kept))
    return fit_again(model, rows, model.classes_[model.codes_[kept]], model.ids_[kept])


def append_rows(model: KNNShapley, X: Any, y: Any, ids: Any, next_id: int) -> KNNShapley:
    """Return the model of all rows and some new ones, which are checked."""
    table = features(model, X, "X")
    n = table.rows.shape[0]
    labels = _labels.check_labels(y, "y", n, "X")
    if ids is None and table.index is None:
        if model.ids_.dtype.kind not in "iu":
            raise InputError("The 'ids' parameter must name the new rows: the ids of the others are not numbers.")
        ids = np.arange(n) + next_id
    ids = _labels.check_ids(ids, table.index, n)
    twice = ids[are_in(ids, model.ids_)].tolist()
    if twice or len(set(ids.tolist())) < n:
        raise InputError(f"The 'ids' parameter must hold new ids, each once. Already there: {check.some(twice)}.")
    rows = model._index.joined(table.rows)
    return fit_again(model, rows, joined(model.classes_[model.codes_], labels), joined(model.ids_, ids))


def features(model: KNNShapley, X: Any, name: str) -> check.Table:
    """Check rows or points and bring them into the form of the training rows."""
    table = check.match_columns(model._table(X, name), model._columns, model.n_features_in_, name)
    return replace(table, rows=model._index.like_rows(table.rows))


def find_ids(ids: Any, known: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Mark which of the known ids are given, and refuse others."""
    if not isinstance(ids, Iterable):
        raise InputError(f"'ids' must be a list, array or column of ids. Got {type(ids).__name__}.")
    ids = list(ids) if not hasattr(ids, "__len__") else ids
    wanted = _labels.check_labels(ids, "ids", len(ids), "X", "id")
    unknown = wanted[~are_in(wanted, known)].tolist()
    if unknown:
        raise InputError(f"The 'ids' parameter must hold ids of training rows. Unknown: {check.some(unknown)}.")
    return are_in(known, wanted)


def are_in(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of some ids are among others."""
    if some.dtype.kind in "iu" and others.dtype.kind in "iu":
        return np.isin(some, others)
    there = set(others.tolist())
    return np.fromiter((name in there for name in some.tolist()), bool, some.size)


def after_ids(ids: npt.NDArray[Any]) -> int:
    """Return the number after the largest id, 0 where ids are no numbers."""
    return int(ids.max()) + 1 if ids.dtype.kind in "iu" and ids.size else 0


def joined(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One array of both, of objects where their kinds differ."""
    if old.dtype.kind == new.dtype.kind:
        return np.concatenate([old, new])
    return object_array([*old.tolist(), *new.tolist()])


def _check_scale(index: TrainingIndex) -> None:
    """Refuse rows that one scale cannot hold together."""
    if index.metric == "cosine":
        return
    largest = float(abs(index.rows).max() if index.ends is None else (index.ends[1] - index.ends[0]).max())
    if not largest <= 2.0**SCALE_ROOM:
        raise InputError(
            f"'X' has values about {largest:.0e} times the range of the rows that are there. Check their units; if "
            "they are right, fit a model on all rows and make a new store."
        )
