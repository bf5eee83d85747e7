"""Nearest neighbours as a proxy for another model: exact values in that model's space, checked against sampling."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse, special
from sklearn.base import BaseEstimator, clone
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OneHotEncoder
from sklearn.utils.validation import check_is_fitted

from shapshift._arrays import take_rows
from shapshift.agreement import spearman
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS
from shapshift.engine.coefficients import Semivalue
from shapshift.exceptions import InputError
from shapshift.io.shown import Shown
from shapshift.knn.base import WeightedModel
from shapshift.knn.explain import Explanation
from shapshift.knn.shapley import KNNShapley
from shapshift.sampled.estimator import SampledShapley
from shapshift.sampled.game import check_estimator, describe, named, predicts_numbers, with_seeds
from shapshift.sampled.rows import read_rows
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]

EMBEDDINGS = ("auto", "leaves", "hidden", "probabilities")


class KNNProxy(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Exact nearest-neighbour values in the feature space of another model.

    Parameters
    ----------
    estimator : classifier or str
        Fitted once on all training rows. The name of a common model also works, as in
        :class:`shapshift.SampledShapley`.
    n_neighbors : int, default=5
    embed : {"auto", "leaves", "hidden", "probabilities"} or callable, default="auto"
        Space for the neighbours: the leaves a row falls into (one column per tree; distance counts the trees in which
        two rows have different leaves), the last hidden layer of a scikit-learn neural network, the predicted
        probabilities, or the result of a function ``(fitted_model, X) -> array of shape (n, d)``. "auto" takes leaves
        or the hidden layer, whichever the model has. In a pipeline the last step decides, after the steps before it are
        applied.
    utility, semivalue, boundary_neighbors, boundary_entropy, n_jobs, progress
        As in :class:`shapshift.KNNShapley`.
    random_state : int or None, default=0
        Seed of the model if it has none.

    Attributes
    ----------
    model_ : estimator
        The fitted model.
    knn_ : KNNShapley
        Fitted on the embedded training rows.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.ensemble import RandomForestClassifier
    >>> from shapshift.sampled import KNNProxy
    >>> X, y = load_iris(return_X_y=True)
    >>> proxy = KNNProxy(RandomForestClassifier(10), progress=False).fit(X[::2], y[::2])
    >>> bool(proxy.value(X[1::2], y[1::2]).values.mean() > 0)
    True
    """

    def __init__(
        self,
        estimator: Any,
        n_neighbors: int = 5,
        *,
        embed: str | Callable[[Any, Any], Any] = "auto",
        utility: str = "soft",
        semivalue: Semivalue = "shapley",
        boundary_neighbors: int = BOUNDARY_NEIGHBORS,
        boundary_entropy: float = 0.0,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.estimator = estimator
        self.n_neighbors = n_neighbors
        self.embed = embed
        self.utility = utility
        self.semivalue = semivalue
        self.boundary_neighbors = boundary_neighbors
        self.boundary_entropy = boundary_entropy
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.progress = progress

    def fit(self, X: Any, y: Any, *, ids: Any = None) -> Self:
        """Fit the model and index the training rows in its space.

        Parameters
        ----------
        X : table of shape (n_train, n_features)
            As in :meth:`shapshift.SampledShapley.fit`; the estimator must handle text and missing values.
        y : array-like of shape (n_train,)
        ids : array-like of shape (n_train,), optional

        Returns
        -------
        self
        """
        caller = type(self).__name__
        estimator = named(caller, self.estimator)
        check_estimator(caller, estimator)
        if predicts_numbers(estimator, "auto"):
            raise InputError(
                f"The 'estimator' parameter of {caller} must be a classifier, because neighbours vote for labels. Got "
                f"{type(estimator).__name__} instead."
            )
        if not callable(self.embed):
            check.check_choice(caller, "embed", self.embed, EMBEDDINGS, "a function (fitted_model, X) -> array")
        _labels.check_same_order(X, y)
        seed = check.check_seed(caller, self.random_state)

        def fit_model(rows: Any) -> Any:
            labels = _labels.check_labels(y, "y", rows.shape[0], "X")
            return with_seeds(clone(estimator, safe=False), seed).fit(rows, labels)

        read, model = read_rows(X, fit_model)
        table = read.table
        labels = _labels.check_labels(y, "y", table.rows.shape[0], "X")
        row_ids = _labels.check_ids(ids, table.index, table.rows.shape[0])
        model = fit_model(read.rows) if model is None else model
        embedding = _Embedding(model, self.embed, caller)
        knn = KNNShapley(
            self.n_neighbors,
            utility=self.utility,
            semivalue=self.semivalue,
            boundary_neighbors=self.boundary_neighbors,
            boundary_entropy=self.boundary_entropy,
            n_jobs=self.n_jobs,
            progress=self.progress,
        )
        self.knn_ = knn.fit(embedding(read.rows), labels, ids=row_ids)
        self.knn_._id_names = table.index_names if ids is None else ("id",)
        self.model_, self._embedding, self._rows, self._y = model, embedding, read, labels
        self.n_features_in_ = int(read.rows.shape[1])
        self.fingerprint_ = self.knn_.fingerprint_
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
    ) -> Valuation:
        """Value every training row on a validation set; boundary points are decided in the model's space.

        Parameters
        ----------
        X_val, y_val, groups, clusters, point_weight, matrix
            As in :meth:`shapshift.KNNShapley.value`.

        Returns
        -------
        Valuation
        """
        check_is_fitted(self, "knn_")
        points = self._embedding(self._points(X_val))
        asked = {"groups": groups, "clusters": clusters, "point_weight": point_weight}
        found = self.knn_.value(points, y_val, matrix=matrix, **asked)
        return replace(found, parameters={**found.parameters, **self._about()}, kind=self._rows.table.kind)

    def weighted(self, point_weight: Any = "balanced") -> WeightedModel:
        """Return this fitted model with weighted validation points; see :meth:`shapshift.KNNShapley.weighted`."""
        check_is_fitted(self, "knn_")
        return WeightedModel(self, point_weight=point_weight)

    def explain(
        self, X_val: Any, y_val: Any, ids: Any, *, point_weight: Any = None, n_points: int = 5, n_neighbors: int = 5
    ) -> Explanation:
        """Explain the values of some training rows, with distances in the model's space.

        Parameters
        ----------
        X_val, y_val, ids, point_weight, n_points, n_neighbors
            As in :meth:`shapshift.KNNShapley.explain`.

        Returns
        -------
        Explanation
        """
        check_is_fitted(self, "knn_")
        points = self._embedding(self._points(X_val))
        asked = {"point_weight": point_weight, "n_points": n_points, "n_neighbors": n_neighbors}
        found = self.knn_.explain(points, y_val, ids, **asked)
        return replace(found, parameters={**found.parameters, **self._about()}, kind=self._rows.table.kind)

    def _about(self) -> dict[str, Any]:
        """Return the parameters of a result besides those of its neighbours."""
        estimator = named(type(self).__name__, self.estimator)
        return {"method": type(self).__name__, "estimator": describe(estimator), "embed": self._embedding.name}

    def _points(self, X_val: Any) -> Any:
        """Return validation points in the form that the model takes."""
        return self._rows.points(X_val, self.model_.predict).rows

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "knn_")


@dataclass(frozen=True, eq=False, repr=False)
class ProxyValuation(Shown):
    """Values by proxy, and their agreement with sampled values.

    Attributes
    ----------
    valuation : Valuation
        Of all training rows, by nearest neighbours in the model's space.
    spearman, low, high : float
        Rank correlation with sampled values of the model itself, on a subsample of the rows, and its interval.
    reliability : float
        Share of the spread of the sampled values that is not estimation error. A low share pulls the correlation to 0
        for any proxy: spend more fits.
    rows : ndarray of int
        Positions of the training rows of the subsample.
    sampled, proxy : Valuation
        The two valuations of the subsample that were compared; in both, only its rows are players.
    confidence : float
    """

    valuation: Valuation
    spearman: float
    low: float
    high: float
    reliability: float
    rows: npt.NDArray[np.int64]
    sampled: Valuation
    proxy: Valuation
    confidence: float

    def __repr__(self) -> str:
        return (
            f"ProxyValuation(n_train={self.valuation.n_train}, spearman={self.spearman:.2f} "
            f"[{self.low:.2f}, {self.high:.2f}] on {self.rows.size} rows, reliability={self.reliability:.2f})"
        )


def knn_proxy(
    estimator: Any,
    X: Any,
    y: Any,
    X_val: Any,
    y_val: Any,
    *,
    embed: str | Callable[[Any, Any], Any] = "auto",
    n_neighbors: int = 5,
    semivalue: Semivalue = "shapley",
    subsample: int = 100,
    sampled: Mapping[str, Any] | None = None,
    ids: Any = None,
    groups: Any = None,
    confidence: float = 0.95,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> ProxyValuation:
    """Value all rows by nearest neighbours in a model's space, and compare a subsample with the model itself.

    Parameters
    ----------
    estimator : classifier
    X, y, X_val, y_val
        Training and validation set.
    embed, n_neighbors
        See :class:`KNNProxy`.
    semivalue : {"shapley", "banzhaf", "loo"}, Beta or Banzhaf, default="shapley"
        For both valuations. Banzhaf values of a model have the smallest error for the same number of fits.
    subsample : int, default=100
        Number of training rows valued both ways; all of them if there are fewer.
    sampled : mapping, optional
        Options of :class:`shapshift.SampledShapley` for the subsample, such as ``{"max_fits": 20_000}``.
    ids, groups
        Row ids; names of validation groups.
    confidence : float, default=0.95
        Of the interval of the rank correlation.
    random_state : int or None, default=0
    progress : bool, default=None

    Returns
    -------
    ProxyValuation

    Notes
    -----
    The interval is that of Bonett and Wright for a rank correlation over randomly drawn rows. It does not cover changes
    from a larger training set.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from shapshift import knn_proxy
    >>> X, y = load_iris(return_X_y=True)
    >>> found = knn_proxy(
    ...     DecisionTreeClassifier(), X[::2], y[::2], X[1::2], y[1::2],
    ...     subsample=20, sampled={"max_fits": 200}, progress=False,
    ... )
    >>> found.valuation.n_train, found.rows.size, found.low <= found.spearman <= found.high
    (75, 20, True)
    """
    check.check_count("knn_proxy", "subsample", subsample, at_least=5)
    check.check_number("knn_proxy", "confidence", confidence, above=True, most=1.0)
    seed = check.check_seed("knn_proxy", random_state)
    proxy = KNNProxy(
        estimator, n_neighbors, embed=embed, semivalue=semivalue, random_state=seed, progress=progress
    ).fit(X, y, ids=ids)
    valuation = proxy.value(X_val, y_val, groups=groups)
    n_rows = proxy._y.size
    rows = np.sort(np.random.default_rng(seed).permutation(n_rows)[: min(subsample, n_rows)])
    points, inner = proxy._points(X_val), proxy._embedding
    few, labels, names = take_rows(proxy._rows.rows, rows), proxy._y[rows], proxy.knn_.ids_[rows]
    knn = clone(proxy.knn_).fit(inner(few), labels, ids=names)
    options = {
        "semivalue": semivalue,
        "random_state": seed,
        "progress": progress,
        "on_error": "constant",
        **(sampled or {}),
    }
    direct = SampledShapley(estimator, **options).fit(few, labels, ids=names).value(points, y_val)
    near = knn.value(inner(points), y_val)
    # The subsample was valued as plain arrays; restore the caller's kind of table and index.
    direct, near = (replace(each, kind=valuation.kind, id_names=valuation.id_names) for each in (direct, near))
    found = spearman(near.values, direct.values)
    low, high = rank_interval(found, rows.size, confidence)
    error = np.zeros(rows.size) if direct.standard_error is None else direct.standard_error
    # Both use the same validation points, so their sampling is no error of the comparison.
    noise = float(np.mean(error**2)) * direct.sampling.get("estimation_error", 1.0)
    spread = float(direct.values.var())
    return ProxyValuation(
        valuation=valuation,
        spearman=found,
        low=low,
        high=high,
        reliability=max(1 - noise / spread, 0.0) if spread > 0 else 0.0,
        rows=rows,
        sampled=direct,
        proxy=near,
        confidence=float(confidence),
    )


def rank_interval(correlation: float, n: int, confidence: float = 0.95) -> tuple[float, float]:
    """Confidence interval of a Spearman correlation of ``n`` pairs (Bonett and Wright 2000).

    Examples
    --------
    >>> low, high = rank_interval(0.5, 50)
    >>> round(low, 2), round(high, 2)
    (0.24, 0.69)
    """
    if not np.isfinite(correlation) or n < 4:
        return float("nan"), float("nan")
    if abs(correlation) == 1:
        return correlation, correlation
    middle = np.arctanh(correlation)
    half = special.ndtri((1 + confidence) / 2) * np.sqrt((1 + correlation**2 / 2) / (n - 3))
    return float(np.tanh(middle - half)), float(np.tanh(middle + half))


class _Embedding:
    """Rows in the space of a fitted model."""

    def __init__(self, model: Any, embed: str | Callable[[Any, Any], Any], caller: str) -> None:
        self._model, self._caller = model, caller
        self._before: Any = model[:-1] if isinstance(model, Pipeline) else None
        self._last = model[-1] if isinstance(model, Pipeline) else model
        self._encoder: Any = None
        self._embed = embed
        self.name = embed if isinstance(embed, str) else str(getattr(embed, "__qualname__", type(embed).__name__))
        if embed == "auto":
            self._embed = self.name = "leaves" if hasattr(self._last, "apply") else "hidden"
        needed = {"leaves": "apply", "hidden": "coefs_", "probabilities": "predict_proba"}.get(self.name)
        if not callable(self._embed) and needed is not None and not hasattr(self._last, needed):
            raise InputError(
                f"The 'embed' parameter of {caller} is {embed!r}, but {type(self._last).__name__} has no {needed!r}. "
                "Pass embed='probabilities', or a function (fitted_model, X) -> array that returns the model's space."
            )

    def __call__(self, rows: Any) -> Any:
        if callable(self._embed):
            return self._checked(self._embed(self._model, rows), rows)
        if self._embed == "probabilities":
            return np.asarray(self._model.predict_proba(rows), dtype=np.float64)
        inner = rows if self._before is None or len(self._before) == 0 else self._before.transform(rows)
        if self._embed == "hidden":
            return _last_hidden_layer(self._last, inner)
        leaves = np.asarray(self._last.apply(inner)).reshape(inner.shape[0], -1)
        if self._encoder is None:
            # Fitted on the training rows, which come first; a leaf without training rows differs from all leaves.
            self._encoder = OneHotEncoder(handle_unknown="ignore").fit(leaves)
        return sparse.csr_array(self._encoder.transform(leaves))

    def _checked(self, embedded: Any, rows: Any) -> Any:
        found = check.check_features(embedded, "the rows that 'embed' returned").rows
        if found.shape[0] != rows.shape[0]:
            raise InputError(
                f"The 'embed' function of {self._caller} must return one row per row. Got {found.shape[0]} for "
                f"{rows.shape[0]}."
            )
        return found


def _last_hidden_layer(network: Any, rows: Any) -> Floats:
    """Activations of the last hidden layer of a scikit-learn neural network."""
    activate: dict[str, Callable[[Any], Any]] = {
        "relu": lambda a: np.maximum(a, 0.0),
        "logistic": special.expit,
        "tanh": np.tanh,
        "identity": lambda a: a,
    }
    found = rows
    for weights, intercepts in zip(network.coefs_[:-1], network.intercepts_[:-1], strict=True):
        found = activate[network.activation](found @ weights + intercepts)
    return np.asarray(found, dtype=np.float64)
