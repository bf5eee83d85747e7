"""Revaluation: values of the rows that decisions leave, exact where that is quick, else within a bound."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.io.shown import Shown
from shapshift.knn.shapley import KNNShapley
from shapshift.store import ValuationStore
from shapshift.valuation import Valuation

Indices = npt.NDArray[np.int64]

#: Seconds that an exact valuation may take instead of one with a bound.
QUICK_SECONDS = 0.75
#: Seconds that it may take where there are no values with a bound.
LONGEST_SECONDS = 5.0
#: Error of a quick value on any validation point, in units of the utility.
QUICK_TOL = 1e-3


@dataclass(frozen=True, eq=False)
class Revalued(Shown):
    """Values after decisions.

    Attributes
    ----------
    valuation : Valuation
        Of the rows that are left.
    rows : ndarray
        Positions of these rows in the table, in the order of the values.
    exact : bool
        Whether they are those of a fresh fit; else ``valuation.error_bound`` says how far they may be from these.
    seconds : float
        What it took.
    """

    valuation: Valuation
    rows: Indices
    exact: bool
    seconds: float


class Revaluation:
    """Values of the rows of a table under decisions that change.

    Parameters
    ----------
    value : callable
        ``value(rows, labels) -> Valuation`` fits some rows, by their positions, with their labels, and values them.
    labels : ndarray of shape (n_rows,)
        Labels before any decision.
    seconds : float
        What it took to value all rows.
    model : fitted estimator, optional
        For quick values: a :class:`shapshift.KNNShapley` of all rows. Others have none.
    X, points : table, pair of table and labels, optional
        The rows that it was fitted to, and the validation points.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> X, y = load_iris(return_X_y=True)
    >>> def value(rows, labels):
    ...     return KNNShapley().fit(X[::2][rows], labels).value(X[1::2], y[1::2])
    >>> found = Revaluation(value, y[::2], 0.01).exact(np.arange(70), y[:140:2])
    >>> found.exact, found.valuation.n_train
    (True, 70)
    """

    def __init__(
        self,
        value: Callable[[Indices, npt.NDArray[Any]], Valuation],
        labels: npt.NDArray[Any],
        seconds: float,
        *,
        model: Any = None,
        X: Any = None,
        points: Any = None,
    ) -> None:
        self._value, self._labels, self.seconds = value, labels, seconds
        self._X, self._points = X, points
        self._model: Any = model if _has_store(model) and X is not None and points is not None else None
        self._measured = False
        self._store: ValuationStore | None = None
        self._held = labels.copy()

    @property
    def is_quick(self) -> bool:
        """Whether exact values follow a decision at once."""
        return self.seconds <= QUICK_SECONDS

    @property
    def has_bound(self) -> bool:
        """Whether there are quick values with a bound where exact ones take long."""
        return self._model is not None

    @property
    def is_automatic(self) -> bool:
        """Whether values follow a decision without being asked for: exact ones, or such with a bound."""
        return self.seconds <= LONGEST_SECONDS or self.has_bound

    def exact(self, rows: Indices, labels: npt.NDArray[Any]) -> Revalued:
        """Value some rows as a fresh fit does.

        Parameters
        ----------
        rows : ndarray
            Positions of the rows that are left.
        labels : ndarray
            Their labels.
        """
        start = time.perf_counter()
        found = self._value(rows, labels)
        seconds = time.perf_counter() - start
        # Later runs may have waited for others.
        self.seconds = min(self.seconds, seconds) if self._measured or self._model is not None else seconds
        self._measured = True
        return Revalued(found, rows, True, seconds)

    def bounded(self, rows: Indices, labels: npt.NDArray[Any]) -> Revalued:
        """Value some rows from the nearest ones of each point alone, starting from what was there before.

        Parameters are those of :meth:`exact`. The result says within which bound its values are those of a fresh fit;
        leave-one-out, Banzhaf and calibrated values are exact.
        """
        start = time.perf_counter()
        # A change that fails, or is cancelled, leaves a store that knows other rows: make it anew then.
        store, self._store = self._store, None
        wanted, stays = self._labels.copy(), np.zeros(self._labels.size, dtype=np.bool_)
        wanted[rows], stays[rows] = labels, True
        if store is not None:
            now = store.ids
            gone = now[~stays[now] | (wanted[now] != self._held[now])]
            if gone.size == now.size:
                store = None
            else:
                if gone.size:
                    store.remove_rows(gone)
                new = np.setdiff1d(rows, store.ids)
                if new.size:
                    store.add_rows(self._X[new], wanted[new], ids=new)
        store = store or self._make_store(rows, labels)
        self._store, self._held = store, wanted
        found = store.valuation()
        exact = found.error_bound is None or not found.error_bound.any()
        return Revalued(found, store.ids.astype(np.int64), exact, time.perf_counter() - start)

    def _make_store(self, rows: Indices, labels: npt.NDArray[Any]) -> ValuationStore:
        """Make a store of some rows."""
        settings = self._model.get_params(deep=False)
        if self._model.semivalue in ("shapley", "filled") or not isinstance(self._model.semivalue, str):
            settings |= {"method": "truncated", "tol": QUICK_TOL}
        store = ValuationStore(KNNShapley(**settings).fit(self._X[rows], labels, ids=rows))
        store.add(*self._points)
        return store


def _has_store(model: Any) -> bool:
    """Whether a model is one that a store keeps up to date."""
    return (
        isinstance(model, KNNShapley)
        and model.metric != "precomputed"
        and model.method in ("exact", "truncated")
        and model.search == "exact"
    )


def labels_after(labels: npt.NDArray[Any], new: list[Any]) -> npt.NDArray[Any]:
    """Return labels of a :class:`~shapshift.cleaning.decisions.Plan` in the type that they had, where they fit."""
    made = np.asarray(new)
    return made.astype(labels.dtype) if made.dtype.kind == labels.dtype.kind != "O" else object_array(new)
