"""Probability that a label or target is wrong, from votes of other rows only.

Every row gets a score for every class from other rows only: votes of its nearest neighbours, of a linear model and of a
forest or another model that has not seen it. A small model explains the given labels by these scores,

    P(given = j | x) = sum over c of P(true = c | x) P(given = j | true = c),
    P(true | x) = softmax(sum over sources s of a_s score_s(x) + b).

The first factor explains mixed labels where classes overlap. The second explains labels that are wrong at the same rate
everywhere, including where the votes are certain. Bayes' rule on the two gives the probability that the given label is
wrong. Right labels that the features do not predict cannot be distinguished from wrong ones.
"""

import warnings
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import optimize, sparse, special, stats
from sklearn.base import clone
from sklearn.ensemble import ExtraTreesClassifier, ExtraTreesRegressor
from sklearn.utils import _safe_indexing

from shapshift._progress import progress_bar
from shapshift.engine.rows.distances import index_rows, tile_filler, without_rows
from shapshift.engine.search import exact_search
from shapshift.exceptions import InputError
from shapshift.knn.base import KNNModel
from shapshift.sampled.game import check_estimator, named, with_seeds
from shapshift.sampled.proxy import KNNProxy

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

#: Default number of voting neighbours; nearer ones count more.
N_NEIGHBORS = 30
#: Votes are smoothed: the overall class shares count as one vote among this many.
SMOOTHING = 30.0
#: Folds for a model without out-of-bag predictions.
FOLDS = 5
#: Most columns for the linear model: its cost per row is their number squared.
MAX_LINEAR = 1000
#: Weight of the prior in rows per class: errors are equally frequent in all classes and uniform over the others.
PRIOR_ROWS = 20.0
#: Precision of the prior of a and b (module header), with means 1 and 0.
PRECISION = 0.05
#: Largest share of wrong labels; above it, wrong labels cannot be identified.
MOST_WRONG = 0.45
#: Smallest distance at which a target can be wrong, in standard deviations of right ones with normal noise.
NEAREST_WRONG = 3.0
BLOCK = 256


@dataclass(frozen=True, eq=False, repr=False)
class LabelScores:
    """Scores of given labels.

    Attributes
    ----------
    probability : ndarray of shape (n,)
        Probability that the given label is wrong.
    suggested : ndarray of int of shape (n,)
        The most probable other label.
    votes : ndarray of shape (n, n_classes)
        Probabilities of the true label, from other rows only.
    outlier : ndarray of shape (n,)
        0.5 for a row whose nearest neighbours are three robust standard deviations farther than usual, on a log scale;
        nearer 1 for rows that are even farther from all others.
    """

    probability: Floats
    suggested: npt.NDArray[np.integer]
    votes: Floats
    outlier: Floats


@dataclass(frozen=True, eq=False, repr=False)
class TargetScores:
    """Scores of given targets; ``suggested`` is the prediction from other rows. See :class:`LabelScores`."""

    probability: Floats
    suggested: Floats
    outlier: Floats


class Neighbours(NamedTuple):
    """Nearest other rows of every row, in concatenated lists; each includes all rows tied with its last."""

    ends: Indices
    rows: Indices
    distances: Floats

    def weights(self) -> Floats:
        """Weights of the neighbours, which decrease with the squared distance and sum to 1 for every row."""
        sizes = np.diff(self.ends)
        farthest = np.repeat(self.distances[self.ends[1:] - 1], sizes)
        share = np.divide(self.distances, farthest, out=np.zeros(self.distances.size), where=farthest > 0)
        weight = 1 - (share / 1.05) ** 2
        return np.asarray(weight / np.repeat(np.add.reduceat(weight, self.ends[:-1]), sizes))

    def average(self, values: Floats) -> Floats:
        """Weighted means of the neighbours' values."""
        n = self.ends.size - 1
        return np.asarray(sparse.csr_array((self.weights(), self.rows, self.ends), shape=(n, n)) @ values)

    def medians(self, values: Floats) -> Floats:
        """Medians of the neighbours' values."""
        return np.array([np.median(values[mine]) for mine in np.split(self.rows, self.ends[1:-1])])

    def outliers(self) -> Floats:
        """Outlier scores from mean distances; see :class:`LabelScores`."""
        mean = np.add.reduceat(self.distances, self.ends[:-1]) / np.diff(self.ends)
        found, positive = np.zeros(mean.size), mean > 0
        if np.any(positive):
            logs = np.log(mean[positive])
            spread = 1.4826 * float(np.median(np.abs(logs - np.median(logs)))) or 1.0
            found[positive] = special.ndtr((logs - np.median(logs)) / spread - 3.0)
        return found


def flag(probability: Floats, error: float) -> tuple[Mask, float]:
    """Return the largest set of most probable rows whose expected share of right labels is at most ``error``.

    Rows whose label is more probably right than wrong are never flagged.

    Returns
    -------
    flagged : ndarray of bool
    expected_error : float
        Mean of ``1 - probability`` over the flagged rows; 0 if there are none.

    Examples
    --------
    >>> flag(np.array([0.5, 1.0, 0.75]), 0.125)
    (array([False,  True,  True]), 0.125)
    """
    order = np.argsort(-probability, kind="stable")
    most = probability[order]
    means = np.cumsum(1 - most) / np.arange(1, most.size + 1)
    # Equally probable rows are flagged together, so that row order has no effect.
    ends = np.append(most[1:] < most[:-1], True)[: most.size]
    fits = np.flatnonzero((means <= error) & ends & (most > 0.5))
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
    model_rows: Any = None,
    random_state: int = 0,
    progress: bool | None = None,
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
        None uses the nearest neighbours, a linear model and a forest. A classifier, or that of a `KNNProxy`, replaces
        the forest; it is fitted once if it has out-of-bag predictions, else in five folds. A KNN model sets the metric
        and number of neighbours; only neighbours vote then.
    X_val, codes_val : optional
        Rows with right labels. They vote, and calibrate the model of right labels.
    model_rows : table, optional
        The rows of `X` followed by those of `X_val`, in another form for a model that does not take numbers.
    random_state : int
        Seed of the model.
    progress : bool, optional
        By default a progress bar is shown in terminals and notebooks.

    Returns
    -------
    LabelScores
    """
    n = codes.size
    rows, labels, trusted = _with_trusted(X, codes, X_val, codes_val)
    given = labels.astype(np.int64)
    if given.size < 2 or n_classes < 2:
        return LabelScores(np.zeros(n), (codes + 1) % n_classes, np.eye(n_classes)[codes], np.zeros(n))
    near = nearest_rows(rows, *_neighbours_of(model), progress=progress)
    truth, joint = _explain(_sources(near, rows, given, n_classes, model, model_rows, random_state), given, trusted)
    return _label_scores(truth, joint, given, trusted, near.outliers())


def score_label_sets(
    X: Any,
    carried: Mask,
    *,
    model: Any = None,
    X_val: Any = None,
    carried_val: Mask | None = None,
    model_rows: Any = None,
    random_state: int = 0,
    progress: bool | None = None,
) -> list[LabelScores]:
    """Score each label of a table of labels as two classes: rows with it and rows without it.

    The whole table has one share of wrong entries. A separate estimate for each label would be too large for some by
    chance or overlap, and most suspects would have these labels.

    Parameters
    ----------
    carried, carried_val : ndarray of bool of shape (n, n_labels)
        Mask of the rows that have each label. Every label has rows with it and rows without it.
    X, model, X_val, model_rows, random_state, progress
        As in :func:`score_labels`.

    Returns
    -------
    list of LabelScores
        One for each label.
    """
    rows, labels, trusted = _with_trusted(X, carried, X_val, carried_val)
    given = labels.astype(np.int64).T
    near = nearest_rows(rows, *_neighbours_of(model), progress=progress)
    outlier = near.outliers()
    scores = []
    with progress_bar("Labels", len(given), progress) as advance:
        for mine in given:
            scores.append(_sources(near, rows, mine, 2, model, model_rows, random_state))
            advance(1)
    found = _explain_together(scores, given, trusted)
    return [_label_scores(*one, mine, trusted, outlier) for one, mine in zip(found, given, strict=True)]


def _sources(
    near: Neighbours, rows: Any, given: Indices, n_classes: int, model: Any, model_rows: Any, seed: int
) -> Floats:
    """Scores of all rows for all classes, stacked by source."""
    onehot = np.eye(n_classes)[given]
    prior = (onehot.sum(axis=0) + 1) / (given.size + n_classes)
    votes = [near.average(onehot)]
    scores = []
    if not isinstance(model, KNNModel):
        forest = ExtraTreesClassifier(50, min_samples_leaf=3, max_features=None)
        votes.append(_held_out(_estimator(model, forest), rows, given, onehot, seed, model_rows))
        if (linear := _linear(rows, onehot)) is not None:
            scores.append(linear)
    return np.stack([np.log((SMOOTHING * shares + prior) / (SMOOTHING + 1)) for shares in votes] + scores)


def _label_scores(truth: Floats, joint: Floats, given: Indices, trusted: Mask, outlier: Floats) -> LabelScores:
    """Scores of the untrusted rows, which come first."""
    n = int(np.count_nonzero(~trusted))
    mine = np.arange(given.size), given
    wrong = np.where(trusted, 0.0, np.clip(1 - joint[mine], 0.0, 1.0))
    joint[mine] = -1.0
    return LabelScores(wrong[:n], joint.argmax(axis=1)[:n], truth[:n], outlier[:n])


def score_targets(
    X: Any,
    y: Floats,
    *,
    model: Any = None,
    X_val: Any = None,
    y_val: Floats | None = None,
    model_rows: Any = None,
    random_state: int = 0,
    progress: bool | None = None,
) -> TargetScores:
    """Score the targets of all rows.

    A target is wrong if it is far from the prediction of other rows, relative to the usual distance around it. Targets
    above and below their prediction are judged separately, since noise may be skewed.

    Parameters
    ----------
    X, model, X_val, model_rows, random_state, progress
        As in :func:`score_labels`; the model is a regressor.
    y, y_val : ndarray of float

    Returns
    -------
    TargetScores
    """
    n = y.size
    rows, targets, trusted = _with_trusted(X, y, X_val, y_val)
    if targets.size < 2:
        return TargetScores(np.zeros(n), np.array(y, dtype=np.float64), np.zeros(n))
    near = nearest_rows(rows, *_neighbours_of(model), progress=progress)
    middle = near.medians(targets)
    guesses = [middle]
    if not isinstance(model, KNNModel):
        forest = ExtraTreesRegressor(50, min_samples_leaf=3, max_features=None)
        # Wrong targets affect means but not medians: models are fitted on targets clipped to a range around the
        # medians.
        reach = 5 * _scale(near, np.abs(targets - middle))
        calm = np.clip(targets, middle - reach, middle + reach)
        column = calm[:, None]
        found = _held_out(_estimator(model, forest), rows, calm, column, random_state, model_rows)
        guesses.append(found[:, 0])
        if (linear := _linear(rows, column)) is not None:
            guesses.append(linear[:, 0])
    # Predictors are weighted by their usual squared error, which wrong targets hardly affect.
    usual = np.array([np.median(np.abs(targets - guess)) for guess in guesses])
    weight = 1 / np.maximum(usual, 1e-9 * (1 + usual.max())) ** 2
    suggested = weight @ np.stack(guesses) / weight.sum()
    residual = targets - suggested
    residual -= np.median(residual)
    scale = _scale(near, np.abs(residual), rows)
    z = np.divide(residual, scale, out=np.sign(residual) * 1e9, where=scale > 0)
    wrong = np.zeros(z.size)
    for side in (z > 0, z < 0):
        wrong[side] = _far_out(np.abs(z[side]))
    return TargetScores(np.where(trusted, 0.0, wrong)[:n], suggested[:n], near.outliers()[:n])


def nearest_rows(
    rows: Any, metric: str = "euclidean", n_neighbors: int = N_NEIGHBORS, *, progress: bool | None = None
) -> Neighbours:
    """Find the nearest other rows of every row; needs at least two rows."""
    n = rows.shape[0]
    fill = without_rows(tile_filler(index_rows(rows, metric), rows), np.arange(n))
    search = exact_search(fill, n, min(n_neighbors, n - 1), whole_ties=True)
    parts = []
    with progress_bar("Neighbours", n, progress) as advance:
        for start in range(0, n, BLOCK):
            size = min(BLOCK, n - start)
            parts.append(search.find(start, start + size, np.empty((size, 0), dtype=np.int64)))
            advance(size)
    ends = np.cumsum(np.concatenate([[0], *(np.diff(part.ends) for part in parts)]))
    return Neighbours(ends, np.concatenate([p.rows for p in parts]), np.concatenate([p.distances for p in parts]))


def _with_trusted(X: Any, y: Any, X_val: Any, y_val: Any) -> tuple[Any, Any, Mask]:
    """Rows followed by trusted rows, and a mask of the trusted ones."""
    if X_val is None or y_val is None:
        return X, y, np.zeros(len(y), dtype=np.bool_)
    rows = sparse.vstack([X, X_val], format="csr") if sparse.issparse(X) else np.vstack([X, X_val])
    return rows, np.concatenate([y, y_val]), np.arange(len(y) + len(y_val)) >= len(y)


def _neighbours_of(model: Any) -> tuple[str, int]:
    """Metric and number of neighbours."""
    if not isinstance(model, KNNModel):
        return "euclidean", N_NEIGHBORS
    if model.metric == "precomputed":
        raise InputError(
            "The 'model' parameter of find_suspects must compute distances itself. Got metric='precomputed'."
        )
    return model.metric, int(getattr(model, "n_neighbors", N_NEIGHBORS))


def _scale(near: Neighbours, residual: Floats, rows: Any = None) -> Floats:
    """Usual size of the residuals around each row, halfway between that of its neighbours and that of all rows.

    With rows, a linear model on a log scale predicts where it is larger or smaller.
    """
    scale = np.asarray(1.4826 * (near.medians(residual) + np.median(residual)) / 2)
    positive = scale > 0
    if rows is None or not positive.all():
        return scale
    ratio = np.clip(np.log(np.maximum(residual / scale, 1e-9)), -2.0, 2.0)
    linear = _linear(rows, ratio[:, None])
    return scale if linear is None else scale * np.exp(linear[:, 0] - np.median(linear))


def _estimator(model: Any, default: Any) -> Any:
    """Return the estimator that votes besides the neighbours."""
    found = named("find_suspects", model.estimator if isinstance(model, KNNProxy) else model)
    if found is None:
        return default
    check_estimator("find_suspects", found)
    return found


def _held_out(model: Any, rows: Any, y: Any, values: Floats, seed: int, model_rows: Any = None) -> Floats:
    """Predictions of a model for rows that it was not fitted on: out-of-bag or cross-validated.

    Parameters
    ----------
    model : estimator
    rows, y
        Training data of the model.
    values : ndarray of shape (n, n_columns)
        The targets, or ones and zeros for the classes. Their mean is the prediction where the model gives none.
    seed : int
    model_rows : table, optional
        The rows in the model's own form, if that differs from `rows`.
    """
    classes = values.shape[1] > 1
    # Row order affects neither bags nor folds, and folds are stratified by class.
    order = np.lexsort((index_rows(rows, "euclidean").content_hash(), y))
    rows, y = _safe_indexing(rows if model_rows is None else model_rows, order), y[order]
    found = np.full((y.size, values.shape[1]), np.nan)
    model = with_seeds(clone(model, safe=False), seed)
    options = model.get_params() if hasattr(model, "get_params") else {}
    if "oob_score" in options and not (classes and np.all(y == y[0])):
        model.set_params(oob_score=True, **({"bootstrap": True} if "bootstrap" in options else {}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # rows in all bags get the mean below
            model.fit(rows, y)
        if classes:
            found[:, model.classes_] = model.oob_decision_function_
        else:
            found[:, 0] = model.oob_prediction_
    else:
        fold = np.arange(y.size) % FOLDS
        for here in range(min(FOLDS, y.size)):
            held, train = np.flatnonzero(fold == here), np.flatnonzero(fold != here)
            if classes and np.all(y[train] == y[train][0]):
                continue
            fitted, asked = (
                clone(model, safe=False).fit(_safe_indexing(rows, train), y[train]),
                _safe_indexing(rows, held),
            )
            if classes and hasattr(fitted, "predict_proba"):
                found[np.ix_(held, fitted.classes_)] = fitted.predict_proba(asked)
            else:
                guess = np.asarray(fitted.predict(asked))
                found[held] = np.eye(values.shape[1])[guess] if classes else guess.reshape(-1, 1)
    if classes:
        found = np.nan_to_num(found)
        total = found.sum(axis=1, keepdims=True)
        found = np.divide(found, total, out=np.full(found.shape, np.nan), where=total > 0)
    found = np.where(np.isfinite(found), found, values.mean(axis=0))
    restored = np.empty_like(found)
    restored[order] = found
    return restored


def _linear(rows: Any, values: Floats) -> Floats | None:
    """Leave-one-out predictions of ridge regression for each row; None if that would take long."""
    n, d = rows.shape
    if sparse.issparse(rows) or d > MAX_LINEAR:
        return None
    spread = rows.std(axis=0)
    design = np.hstack([(rows - rows.mean(axis=0)) / np.where(spread > 0, spread, 1.0), np.ones((n, 1))])
    penalty = np.diag(np.append(np.full(d, float(d)), 1e-6))
    hat = np.linalg.solve(design.T @ design + penalty, design.T)
    own = np.einsum("ij,ji->i", design, hat)[:, None]  # below 1 because of the penalty
    low, high = values.min(axis=0), values.max(axis=0)
    reach = (high - low) / 2
    found = (design @ (hat @ values) - own * values) / (1 - own)
    return np.asarray(np.clip(found, low - reach, high + reach))


def _explain(scores: Floats, given: Indices, trusted: Mask) -> tuple[Floats, Floats]:
    """Fit the model of the module's header to the given labels, by maximum a posteriori.

    Parameters
    ----------
    scores : ndarray of shape (n_sources, n, n_classes)
    given : ndarray of int of shape (n,)
    trusted : ndarray of bool of shape (n,)
        Whether the given label is known to be right.

    Returns
    -------
    truth, joint : ndarray of shape (n, n_classes)
        P(true | x), and P(true | x, given).
    """
    n_classes = scores.shape[2]
    onehot = np.eye(n_classes)[given]
    theta, transition = None, _transition(0.1, n_classes)
    # The transition matrix by EM, alternating with a few quasi-Newton steps for the rest.
    for _ in range(60):
        reach = np.where(trusted[:, None], onehot, transition[:, given].T)
        theta, truth, joint = _weigh(scores, reach, theta)
        counts = joint[~trusted].T @ onehot[~trusted]
        noise = min((counts.sum() - np.trace(counts) + 0.5) / (counts.sum() + 20), MOST_WRONG)
        rows = PRIOR_ROWS * n_classes
        last, transition = transition, counts + rows * _transition(noise, n_classes)
        transition /= transition.sum(axis=1, keepdims=True)
        if np.abs(transition - last).max() < 2e-4:
            break
    return truth, joint


def _explain_together(scores: list[Floats], given: Indices, trusted: Mask) -> list[tuple[Floats, Floats]]:
    """Fit the model to several labels, with two classes each and one share of wrong entries; see :func:`_explain`."""
    found: list[tuple[Floats | None, Floats, Floats]] = [(None, np.empty(0), np.empty(0))] * len(scores)
    entries = len(scores) * (np.count_nonzero(~trusted) + 20)
    noise = 0.02
    for _ in range(40):
        wrong = 0.5
        for j, mine in enumerate(given):
            reach = np.where(trusted[:, None], np.eye(2)[mine], _transition(noise, 2)[:, mine].T)
            found[j] = _weigh(scores[j], reach, found[j][0])
            wrong += float(found[j][2][~trusted, 1 - mine[~trusted]].sum())
        last, noise = noise, min(wrong / entries, MOST_WRONG)
        if abs(noise - last) < 2e-5:
            break
    return [(truth, joint) for _, truth, joint in found]


def _weigh(scores: Floats, reach: Floats, theta: Floats | None) -> tuple[Floats, Floats, Floats]:
    """Improve a and b (module header) in a few steps, from their current values or their prior.

    Parameters
    ----------
    scores : ndarray of shape (n_sources, n, n_classes)
    reach : ndarray of shape (n, n_classes)
        P(given | true) of the given label.
    theta : ndarray of shape (n_sources + n_classes,), optional

    Returns
    -------
    theta : ndarray
    truth, joint : ndarray of shape (n, n_classes)
        P(true | x), and P(true | x, given).
    """
    n_sources, n, n_classes = scores.shape
    flat = scores.reshape(n_sources, -1)
    prior = np.concatenate([np.ones(n_sources), np.zeros(n_classes)])

    def truth_of(theta: Floats) -> Floats:
        logits = (theta[:n_sources] @ flat).reshape(n, n_classes) + theta[n_sources:]
        return np.asarray(special.softmax(logits, axis=1))

    def loss(theta: Floats) -> tuple[float, Floats]:
        truth = truth_of(theta)
        joint = truth * reach
        likelihood = joint.sum(axis=1, keepdims=True)
        slope = truth - joint / likelihood
        pull = PRECISION * (theta - prior)
        gradient = np.concatenate([flat @ slope.ravel(), slope.sum(axis=0)]) + pull
        return float(pull @ (theta - prior) / 2 - np.log(likelihood).sum()), gradient

    start = prior if theta is None else theta
    theta = np.asarray(optimize.minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 6}).x)
    truth = truth_of(theta)
    joint = truth * reach
    joint /= joint.sum(axis=1, keepdims=True)
    return theta, truth, joint


def _transition(noise: float, n_classes: int) -> Floats:
    """P(given | true) for one share of wrong labels in all classes."""
    found = np.full((n_classes, n_classes), noise / (n_classes - 1))
    np.fill_diagonal(found, 1 - noise)
    return found


def _far_out(distance: Floats) -> Floats:
    """Probability that each distance on one side of the prediction is an error.

    Distances of right targets follow a Student t on the scale of their median, with the degrees of freedom that fit all
    distances best; those of wrong targets are uniform on a log scale from NEAREST_WRONG.
    """
    usual = 1.4826 * float(np.median(distance)) if distance.size else 1.0
    z = np.minimum(distance / usual, 1e6)
    wide = (z > NEAREST_WRONG) / np.maximum(z, NEAREST_WRONG)
    wide /= np.log(max(float(z.max(initial=0.0)) / NEAREST_WRONG, 5.0))
    best, found = -np.inf, np.zeros(z.size)
    for freedom in (2.0, 3.0, 5.0, 10.0, 30.0):
        unit = stats.t.ppf(0.75, freedom) * 1.4826
        right = 2 * unit * stats.t.pdf(z * unit, freedom)
        share = 0.05
        for _ in range(50):
            wrong = share * wide / (share * wide + (1 - share) * right)
            share = min((float(wrong.sum()) + 0.5) / (z.size + 20), MOST_WRONG)
        fit = float(np.log(share * wide + (1 - share) * right).sum())
        if fit > best:
            best, found = fit, wrong
    return found
