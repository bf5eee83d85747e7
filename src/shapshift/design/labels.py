"""Choice of unlabelled rows to label next, by values predicted from labelled rows nearby."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift.agreement import spearman
from shapshift.checks import inputs as check
from shapshift.checks.labels import check_ids
from shapshift.engine.rows.distances import (
    METRICS,
    SPARSE_METRICS,
    TrainingIndex,
    index_rows,
    tile_filler,
    true_distances,
    without_rows,
)
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Rows whose distances are held in memory at a time.
BATCH = 64


@dataclass(frozen=True, eq=False, repr=False)
class LabelSuggestions(Result):
    """Rows of a pool to label next; see :func:`suggest_labels`.

    Attributes
    ----------
    ids : ndarray of shape (n,)
        Ids of the suggested rows, in the order of choice.
    indices : ndarray of shape (n,)
        Their positions in the pool.
    predicted, uncertainty : ndarray of shape (n,)
        Predicted values, and the expected standard deviation of a row's own value around its prediction.
    pool_predicted, pool_uncertainty : ndarray of shape (n_pool,)
        The same for the whole pool.
    rank_correlation : float
        Spearman correlation of the labelled rows' values with their predictions from the other labelled rows; NaN if
        either are constant. Near 0, predictions are useless.
    parameters : mapping
    """

    archive_kind: ClassVar[str] = "shapshift.LabelSuggestions"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("ids", "indices", "predicted", "uncertainty"), "n"),
        **dict.fromkeys(("pool_predicted", "pool_uncertainty"), "n_pool"),
    }

    ids: npt.NDArray[Any]
    indices: Indices
    predicted: Floats
    uncertainty: Floats
    pool_predicted: Floats
    pool_uncertainty: Floats
    rank_correlation: float
    parameters: Mapping[str, Any]

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the suggested rows: their ids, ``predicted`` and ``uncertainty``."""
        columns = {"predicted": self.predicted, "uncertainty": self.uncertainty}
        return to_table(columns, self.ids, kind or "numpy", ("id",))

    def __repr__(self) -> str:
        return (
            f"LabelSuggestions(n={self.ids.size}, n_pool={self.pool_predicted.size}, "
            f"predicted={self.predicted.mean():.3g} against {self.pool_predicted.mean():.3g} in the pool, "
            f"rank_correlation={self.rank_correlation:.2f})"
        )


def suggest_labels(
    valuation: Valuation,
    X: Any,
    X_pool: Any,
    n: int,
    *,
    ids: Any = None,
    n_neighbors: int = 5,
    preselect: float = 3.0,
    metric: str = "euclidean",
) -> LabelSuggestions:
    """Suggest a batch of unlabelled rows to label next (after Ghorbani, Zou and Esteva 2022).

    The value of an unlabelled row is predicted by the mean value of its nearest labelled rows. From the ``preselect *
    n`` rows with the highest predictions, a batch is chosen that covers them: at each step the row farthest from all
    labelled and chosen rows.

    Parameters
    ----------
    valuation : Valuation
        Values of the labelled rows, of any method.
    X : table of shape (n_train, n_features)
        Features of the labelled rows, in the order of the values; if X has an index, it must hold the ids of the
        values.
    X_pool : table of shape (n_pool, n_features)
        Features of the unlabelled rows; columns are matched by name.
    n : int
        Number of rows to suggest.
    ids : array-like of shape (n_pool,), optional
        Ids of the pool's rows; by default the table's index, or their positions.
    n_neighbors : int, default=5
        Number of labelled rows behind each prediction; at least 2. Rows tied for the last places count in part.
    preselect : float, default=3.0
        At least 1; with 1 the rows with the highest predictions are chosen, however similar.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine"}, default="euclidean"

    Returns
    -------
    LabelSuggestions

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley, suggest_labels
    >>> X, y = load_iris(return_X_y=True)
    >>> found = KNNShapley().fit(X[::5], y[::5]).value(X[1::5], y[1::5])
    >>> suggest_labels(found, X[::5], X[2::5], 3).ids.size
    3
    """
    caller = "suggest_labels"
    check.check_type(caller, "valuation", valuation, Valuation, "a Valuation of the labelled rows")
    check.check_choice(caller, "metric", metric, tuple(name for name in METRICS if name != "precomputed"))
    check.check_number(caller, "preselect", preselect, least=1.0)
    sparse = None if metric in SPARSE_METRICS else f"which metric={metric!r} does not support"
    table, pool = (check.check_features(part, name, sparse_ok=sparse) for part, name in ((X, "X"), (X_pool, "X_pool")))
    pool = check.match_columns(pool, table.columns, table.rows.shape[1], "X_pool")
    if table.rows.shape[0] != valuation.n_train:
        raise InputError(
            f"'X' must have the {valuation.n_train} rows that were valued, in their order. Got {table.rows.shape[0]}."
        )
    if table.index is not None and table.index.tolist() != valuation.ids.tolist():
        places = {label: place for place, label in enumerate(table.index.tolist())}
        if len(places) < valuation.n_train or any(one not in places for one in valuation.ids.tolist()):
            raise InputError(
                "The index of 'X' must hold the ids of the valued rows, so that rows and values belong "
                "together. It holds other ids; pass X.loc[valuation.ids], or an array in the order of the values."
            )
        table = replace(table, rows=table.rows[[places[one] for one in valuation.ids.tolist()]])
    n_pool = pool.rows.shape[0]
    check.check_count(caller, "n", n, at_most=n_pool)
    if valuation.n_train < 3:
        raise InputError(f"'X' must have at least 3 labelled rows to predict from. Got {valuation.n_train}.")
    check.check_count(caller, "n_neighbors", n_neighbors, 2, valuation.n_train - 1)
    index, pool_ids = index_rows(table.rows, metric), check_ids(ids, pool.index, n_pool)
    points = index.like_rows(pool.rows)
    own, _, _ = _predicted(index, table.rows, valuation.values, n_neighbors, leave_out=True)
    predicted, spread, near = _predicted(index, points, valuation.values, n_neighbors)
    order = np.argsort(-predicted, kind="stable")[: min(int(np.ceil(preselect * n)), n_pool)]
    chosen = order[_farthest_first(index_rows(points[order], metric), points[order], near[order], n)]
    return LabelSuggestions(
        ids=pool_ids[chosen],
        indices=chosen,
        predicted=predicted[chosen],
        uncertainty=spread[chosen],
        pool_predicted=predicted,
        pool_uncertainty=spread,
        rank_correlation=float(spearman(own, valuation.values)),
        parameters={"n_neighbors": int(n_neighbors), "preselect": float(preselect), "metric": metric, "n_pool": n_pool},
    )


def _predicted(
    index: TrainingIndex, points: Any, values: Floats, k: int, *, leave_out: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Mean value of the ``k`` nearest rows of each point, the expected deviation from it, and the nearest distance.

    The deviation of a new value from the mean of k others of variance s^2 has variance s^2 (1 + 1/k).
    """
    n = points.shape[0]
    fill = tile_filler(index, points)
    if leave_out:
        fill = without_rows(fill, np.arange(n))
    mean, variance, near = np.empty(n), np.empty(n), np.empty(n)
    for low in range(0, n, BATCH):
        here = slice(low, min(low + BATCH, n))
        tile = np.empty((here.stop - low, values.size))
        fill(here, slice(0, values.size), tile)
        cut = np.partition(tile, k - 1, axis=1)[:, k - 1 : k]
        inside, tied = tile < cut, tile == cut
        weight = inside + tied * ((k - inside.sum(axis=1)) / tied.sum(axis=1))[:, None]
        mean[here] = np.einsum("pi,i->p", weight, values) / k
        variance[here] = np.einsum("pi,pi->p", weight, (values - mean[here, None]) ** 2) / (k - 1)
        near[here] = true_distances(index, tile.min(axis=1))
    return mean, np.sqrt(variance * (1 + 1 / k)), near


def _farthest_first(index: TrainingIndex, rows: Any, near: Floats, n: int) -> Indices:
    """Positions of ``n`` rows, each the farthest from all covered rows so far; the first one in ties."""
    fill, near, chosen = tile_filler(index, rows), near.copy(), np.empty(n, dtype=np.int64)
    tile = np.empty((1, near.size))
    for step in range(n):
        chosen[step] = at = int(near.argmax())
        fill(slice(at, at + 1), slice(0, near.size), tile)
        near = np.minimum(near, true_distances(index, tile[0]))
        near[chosen[: step + 1]] = -1.0
    return chosen
