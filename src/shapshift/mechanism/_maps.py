"""Training rows and validation points in two dimensions, for maps."""

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import clone

from shapshift import _validation as check
from shapshift.estimators import KNNShapley
from shapshift.mechanism._results import FeatureMap

Floats = npt.NDArray[np.float64]


def projection(X_train: Any, model: Any, n_train: int) -> Callable[[Any, Any, Any], FeatureMap]:
    """Make a map of the training rows that places validation points on it.

    Two features are taken as they are, one is drawn on a line, more are reduced to the first two principal components
    of the training rows.

    Parameters
    ----------
    X_train : table of shape (n_train, n_features)
        The rows that the model was fitted on, in that order: checked by the model's fingerprint for
        :class:`KNNShapley`, by the spread of each column for other models that tell theirs (``feature_std_``), and else
        by their number alone.
    model : fitted estimator
    n_train : int
        How many rows the model was fitted on.

    Returns
    -------
    callable
        Takes the class numbers of the training rows (or None) and two tables of points, before and after.
    """
    table = check.check_features(X_train, "X_train")
    if table.rows.shape[0] != n_train:
        raise ValueError(
            f"'X_train' must hold the {n_train} rows that the model was fitted on. Got {table.rows.shape[0]} rows."
        )
    _check_same_rows(X_train, table.rows, model)
    width = table.rows.shape[1]
    names, place = _plane(table.rows, table.columns)

    def draw(codes: npt.NDArray[np.int32] | None, before: Any, after: Any) -> FeatureMap:
        points = (
            check.match_columns(check.check_features(X, "X_val"), table.columns, width, "X_val").rows
            for X in (before, after)
        )
        return FeatureMap(
            names, place(table.rows), np.zeros(n_train, np.int32) if codes is None else codes, *map(place, points)
        )

    return draw


def _check_same_rows(X_train: Any, rows: Any, model: Any) -> None:
    """Refuse rows, or an order of rows, that the model was not fitted on, as far as it can tell."""
    if isinstance(model, KNNShapley):
        with warnings.catch_warnings():  # the fit has warned already
            warnings.simplefilter("ignore")
            same = clone(model).fit(X_train, model.classes_[model.codes_]).fingerprint_ == model.fingerprint_
    else:
        spread: Any = getattr(model, "feature_std_", None)
        known = spread is not None and not sparse.issparse(rows)
        same = not known or (np.shape(spread) == rows.shape[1:] and np.allclose(rows.std(axis=0), spread))
    if not same:
        raise ValueError(
            "'X_train' must hold the rows that the model was fitted on, in the same order. These are others, or in "
            "another order: rows would be drawn in the wrong places. Pass the table that was given to fit."
        )


def _plane(rows: Any, columns: list[str] | None) -> tuple[tuple[str, str], Callable[[Any], Floats]]:
    width = rows.shape[1]
    if width <= 2:
        named = columns or [f"feature {j + 1}" for j in range(width)]
        return (named[0], named[1] if width == 2 else ""), lambda X: _two_columns(_dense(X))
    from sklearn.decomposition import PCA  # late: only maps need it

    pca = PCA(n_components=2, random_state=0).fit(rows)
    shares = [f"principal component {j + 1} ({share:.0%})" for j, share in enumerate(pca.explained_variance_ratio_)]
    return (shares[0], shares[1]), pca.transform


def _dense(X: Any) -> Floats:
    return np.asarray(X.toarray() if sparse.issparse(X) else X)


def _two_columns(X: Floats) -> Floats:
    return X if X.shape[1] == 2 else np.column_stack([X, np.zeros(len(X))])
