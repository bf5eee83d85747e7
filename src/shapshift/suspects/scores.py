"""How probable it is that a label or target is wrong, from votes that no row takes part in for itself.

Every row gets class probabilities from other rows only: votes of its nearest neighbours, and of a model that has not
seen it. A small model explains the given labels by these votes,

    P(given = j | x) = sum over c of P(true = c | x) P(given = j | true = c),    P(true | x) = softmax(a log votes + b).

Labels that are mixed because classes overlap are explained by the first factor, labels that are wrong wherever the
votes are sure by the second. The probability that a given label is wrong is Bayes' rule on the two.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse, special
from sklearn.base import clone
from sklearn.model_selection import KFold

from shapshift.engine.rows.distances import index_rows, row_hashes, tile_filler, without_rows
from shapshift.engine.search import exact_search
from shapshift.exceptions import InputError
from shapshift.knn.base import KNNModel
from shapshift.sampled.game import with_seeds
from shapshift.sampled.proxy import KNNProxy

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Neighbours that vote where no model says how many.
N_NEIGHBORS = 10
#: Folds of a model that cannot leave rows out by itself.
FOLDS = 5
BLOCK = 256


@dataclass(frozen=True, eq=False, repr=False)
class LabelScores:
    """Scores of given labels.

    Attributes
    ----------
    probability : ndarray of shape (n,)
        That the given label is wrong.
    suggested : ndarray of int of shape (n,)
        The most probable other label.
    votes : ndarray of shape (n, n_classes)
        Class probabilities from other rows only.
    outlier : ndarray of shape (n,)
        0.5 for a row whose nearest neighbours are three robust standard deviations farther than usual, on the scale
        of logarithms; 1 for one that is far from everything.
    """

    probability: Floats
    suggested: Indices
    votes: Floats
    outlier: Floats


@dataclass(frozen=True, eq=False, repr=False)
class TargetScores:
    """Scores of given targets; ``suggested`` is what the neighbours say."""

    probability: Floats
    suggested: Floats
    outlier: Floats


def flag(probability: Floats, error: float) -> tuple[npt.NDArray[np.bool_], float]:
    """Return the largest set of most probable rows whose expected share of right labels is at most ``error``.

    Returns
    -------
    flagged : ndarray of bool
    expected_error : float
        Mean of ``1 - probability`` over the flagged rows; 0 where there are none.

    Examples
    --------
    >>> flag(np.array([0.5, 1.0, 0.9]), 0.1)
    (array([False,  True,  True]), 0.05...)
    """
    order = np.argsort(-probability, kind="stable")
    sorted_ = probability[order]
    means = np.cumsum(1 - sorted_) / np.arange(1, sorted_.size + 1)
    # Equally probable rows are flagged together, so that the order of the rows does not decide.
    last = np.append(sorted_[1:] < sorted_[:-1], True)
    fits = np.flatnonzero((means <= error) & last & (sorted_ > 0))
    flagged = np.zeros(probability.size, dtype=np.bool_)
    if fits.size == 0:
        return flagged, 0.0
    flagged[order[: fits[-1] + 1]] = True
    return flagged, float(means[fits[-1]])


def score_labels(
    X: Any,
    codes: npt.NDArray[np.integer],
    n_classes: int,
    *,
    model: Any = None,
    X_val: Any = None,
    codes_val: npt.NDArray[np.integer] | None = None,
    random_state: int = 0,
) -> LabelScores:
    """Score the labels of all rows.

    Parameters
    ----------
    X : ndarray or CSR of shape (n, n_features)
        Numbers on comparable scales.
    codes : ndarray of int of shape (n,)
        Labels as numbers below ``n_classes``.
    n_classes : int
    model : classifier, KNNProxy or KNN model, optional
    X_val, codes_val : optional
        Rows with labels that are right.
    random_state : int

    Returns
    -------
    LabelScores
    """
    n = codes.size
    rows, labels, trusted = _with_trusted(X, codes, X_val, codes_val)
    given = labels.astype(np.int64)
    metric, k = _neighbours_of(model)
    near, distances = nearest_rows(rows, k, metric)
    onehot = np.eye(n_classes)[given]
    sources = [_mean_over(near, onehot)]
    classifier = model.estimator if isinstance(model, KNNProxy) else model
    if classifier is not None and not isinstance(classifier, KNNModel):
        sources.append(_model_votes(classifier, rows, given, n_classes, random_state))
    prior = (onehot.sum(axis=0) + 1) / (given.size + n_classes)
    smooth = [(k * votes + prior) / (k + 1) for votes in sources]
    truth, wrong = _explain(np.log(smooth), given, trusted)
    others = truth.copy()
    others[np.arange(given.size), given] = -1.0
    return LabelScores(wrong[:n], others.argmax(axis=1)[:n], truth[:n], _outliers(distances)[:n])


def score_targets(
    X: Any, y: Floats, *, model: Any = None, X_val: Any = None, y_val: Floats | None = None, random_state: int = 0
) -> TargetScores:
    """Score the targets of all rows.

    Parameters
    ----------
    X, model, X_val, random_state
        As in :func:`score_labels`; the model is a regressor.
    y, y_val : ndarray of float

    Returns
    -------
    TargetScores
    """
    n = y.size
    rows, targets, trusted = _with_trusted(X, y, X_val, y_val)
    metric, k = _neighbours_of(model)
    near, distances = nearest_rows(rows, k, metric)
    middle = np.array([np.median(targets[mine]) for mine in near]) if targets.size > 1 else targets
    residual = np.abs(targets - middle)
    local = np.array([np.median(residual[mine]) for mine in near]) if targets.size > 1 else residual
    scale = 1.4826 * (local + np.median(residual)) / 2
    z = np.divide(residual, scale, out=np.zeros(residual.size), where=scale > 0)
    z[(scale == 0) & (residual > 0)] = np.inf
    probability = np.where(trusted, 0.0, _mixture(z))
    return TargetScores(probability[:n], middle[:n], _outliers(distances)[:n])


def nearest_rows(rows: Any, k: int, metric: str = "euclidean") -> tuple[list[Indices], list[Floats]]:
    """Nearest other rows of every row, with all that are tied with the last, and their distances."""
    n = rows.shape[0]
    if n < 2:
        return [np.empty(0, dtype=np.int64)] * n, [np.empty(0)] * n
    itself = np.arange(n)
    fill = without_rows(tile_filler(index_rows(rows, metric), rows), itself)
    search = exact_search(fill, n, min(k, n - 1), whole_ties=True)
    near: list[Indices] = []
    distances: list[Floats] = []
    for start in range(0, n, BLOCK):
        found = search.find(start, min(start + BLOCK, n), np.empty((min(BLOCK, n - start), 0), dtype=np.int64))
        near += np.split(found.rows, found.ends[1:-1])
        distances += np.split(found.distances, found.ends[1:-1])
    return near, distances


def _with_trusted(X: Any, y: Any, X_val: Any, y_val: Any) -> tuple[Any, Any, npt.NDArray[np.bool_]]:
    """Rows and trusted rows one behind the other, and which are trusted."""
    if X_val is None or y_val is None:
        return X, y, np.zeros(y.size, dtype=np.bool_)
    rows = sparse.vstack([X, X_val], format="csr") if sparse.issparse(X) else np.vstack([X, X_val])
    return rows, np.concatenate([y, y_val]), np.arange(y.size + y_val.size) >= y.size


def _neighbours_of(model: Any) -> tuple[str, int]:
    metric = getattr(model, "metric", "euclidean") if isinstance(model, KNNModel) else "euclidean"
    if metric == "precomputed":
        raise InputError("The 'model' parameter must compute distances itself. Got metric='precomputed'.")
    return metric, int(getattr(model, "n_neighbors", N_NEIGHBORS)) if isinstance(model, KNNModel) else N_NEIGHBORS


def _mean_over(near: list[Indices], onehot: Floats) -> Floats:
    """Shares of classes among the nearest rows of each row."""
    if onehot.shape[0] < 2:
        return onehot
    ends = np.concatenate([[0], np.cumsum([mine.size for mine in near])])
    graph = sparse.csr_array((np.ones(ends[-1]), np.concatenate(near), ends), shape=(len(near), onehot.shape[0]))
    return np.asarray(graph @ onehot) / np.diff(ends)[:, None]


def _model_votes(model: Any, rows: Any, given: Indices, n_classes: int, seed: int) -> Floats:
    """Class probabilities of a model for rows that it has not been fitted on: out of bag, or in folds."""
    n = given.size
    keys = row_hashes(rows.toarray() if sparse.issparse(rows) else rows)
    order = np.lexsort((given, keys))  # the order of the rows does not decide which fold they are in
    inner, labels = rows[order], given[order]
    votes = np.full((n, n_classes), np.nan)
    fresh = with_seeds(clone(model), seed)
    if "oob_score" in fresh.get_params() and n > 1:
        fresh.set_params(oob_score=True)
        if "bootstrap" in fresh.get_params():
            fresh.set_params(bootstrap=True)
        fresh.fit(inner, labels)
        votes[np.ix_(order, fresh.classes_)] = np.nan_to_num(fresh.oob_decision_function_, nan=0.0)
    elif n >= FOLDS:
        for train, held in KFold(FOLDS, shuffle=True, random_state=seed).split(inner):
            fitted = clone(fresh).fit(inner[train], labels[train])
            votes[np.ix_(order[held], fitted.classes_)] = fitted.predict_proba(inner[held])
    votes = np.nan_to_num(votes, nan=0.0)
    prior = np.bincount(given, minlength=n_classes) / n
    total = votes.sum(axis=1, keepdims=True)
    return np.where(total > 0, votes, prior) / np.where(total > 0, total, 1.0)


def _explain(logs: Floats, given: Indices, trusted: npt.NDArray[np.bool_]) -> tuple[Floats, Floats]:
    """Fit the model of the module's header to the given labels.

    Returns
    -------
    truth : ndarray of shape (n, n_classes)
        P(true | x).
    wrong : ndarray of shape (n,)
        P(true is not the given one | x, given).
    """
    n_sources, n, n_classes = logs.shape
    if n_classes < 2 or n < 2:
        return np.exp(logs[0]), np.zeros(n)
    at = np.arange(n)
    onehot = np.eye(n_classes)[given]
    noise = 0.05
    transition = np.full((n_classes, n_classes), noise / (n_classes - 1))
    np.fill_diagonal(transition, 1 - noise)
    parameters = np.concatenate([np.full(n_sources, 1.0 / n_sources), np.zeros(n_classes)])

    def truth_of(theta: Floats) -> Floats:
        found: Floats = special.softmax(np.tensordot(theta[:n_sources], logs, 1) + theta[n_sources:], axis=1)
        return found

    def loss(theta: Floats, reach: Floats) -> tuple[float, Floats]:
        truth = truth_of(theta)
        likelihood = (truth * reach).sum(axis=1)
        share = truth * reach / likelihood[:, None]
        slope = truth - share  # of the negative logarithm, in the scores of the classes
        gradient = np.concatenate([np.tensordot(logs, slope, 2), slope.sum(axis=0)])
        penalty = theta - np.concatenate([np.full(n_sources, 1.0 / n_sources), np.zeros(n_classes)])
        return float(-np.log(likelihood).sum() + (penalty**2).sum() / 2), gradient + penalty

    for _ in range(15):
        reach = np.where(trusted[:, None], onehot, transition[:, given].T)
        parameters = optimize.minimize(
            loss, parameters, args=(reach,), jac=True, method="L-BFGS-B", options={"maxiter": 20}
        ).x
        truth = truth_of(parameters)
        share = truth * reach
        share /= share.sum(axis=1, keepdims=True)
        counts = share[~trusted].T @ onehot[~trusted]
        moved = counts.sum() - np.trace(counts)
        noise = min((moved + 0.5) / (n + 20.0), 0.45)
        base = np.full((n_classes, n_classes), noise / (n_classes - 1))
        np.fill_diagonal(base, 1 - noise)
        strength = 10.0 * n_classes
        transition = (counts + strength * base) / (counts.sum(axis=1, keepdims=True) + strength)
    wrong = 1 - share[at, given]
    wrong[trusted] = 0.0
    return truth, np.clip(wrong, 0.0, 1.0)


def _mixture(z: Floats) -> Floats:
    """Probability that each is one of a few wide errors among standard normal deviations, by EM."""
    finite = np.where(np.isfinite(z), z, 1e6)
    share, width = 0.05, max(10.0, float(np.quantile(finite, 0.99)) if z.size else 10.0)
    wrong = np.zeros(z.size)
    for _ in range(50):
        right = (1 - share) * 2 * special.expit(-1.7 * finite)  # tails heavier than normal
        other = share * np.minimum(finite / width, 1.0)
        wrong = np.divide(other, right + other, out=np.zeros(z.size), where=right + other > 0)
        share = min(float((wrong.sum() + 0.1) / (z.size + 2)), 0.4)
    return wrong


def _outliers(distances: list[Floats]) -> Floats:
    """Outlier scores from mean distances to the nearest rows."""
    mean = np.array([float(mine.mean()) if mine.size else 0.0 for mine in distances])
    positive = mean > 0
    if np.count_nonzero(positive) < 2:
        return np.zeros(mean.size)
    logs = np.log(mean[positive])
    spread = 1.4826 * float(np.median(np.abs(logs - np.median(logs)))) or 1.0
    found = np.zeros(mean.size)
    found[positive] = special.ndtr((logs - np.median(logs)) / spread - 3.0)
    return found
