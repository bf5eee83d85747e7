"""Pooling: values that also use the training rows as validation points.

Validation points are few, so their mean is uncertain; training rows are many, but may come from another distribution.
Both are compared by label. A linear score, fitted on other points than it is used on, tests whether features differ
between them within a label. If they do, each training row is weighted by the ratio of both densities along the score.
Shares of the labels are pooled by how well they agree. The difference between the two means that exceeds their sampling
errors is bias; the bias and these errors decide the weight of the training rows.
"""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.isotonic import IsotonicRegression
from sklearn.utils.validation import check_is_fitted

from shapshift.checks.inputs import Table, in_float64, wrong
from shapshift.checks.warnings import warn
from shapshift.engine.rows.distances import index_rows
from shapshift.exceptions import InputError
from shapshift.knn.base import NEVER_CHANGE_A_RESULT, ModelWith
from shapshift.knn.explain import on_cpu
from shapshift.sampling_error import in_blocks, shrink
from shapshift.valuation import Valuation, corrected_by

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Standard errors above which the score shows a difference: one-sided 5%.
DETECTED = 1.65
# Steps of the density ratio, and number of cross-fitting folds of the score.
STEPS, FOLDS = 8, 5
# Largest number of training rows to fit the score on.
FITTED_ROWS = 20_000
# Penalty of the score: like a logistic regression with a penalty of one over the root of the number of features.
RIDGE = 4.0
# Features are clipped at this many standard deviations.
CLIPPED = 5.0
# With more features than this, as in embeddings, all share one scale; with fewer, each has its own.
FEW_FEATURES = 50
# Weight, in points, of a label's variance over training rows in the estimate of its variance over validation points.
BORROWED = 5
# Standard deviations of the chi-square statistic up to which shares of labels are considered equal.
SHARES_APART = 3.0


class PoolingModel(ModelWith):
    """A fitted model that returns pooled values.

    Parameters
    ----------
    model : KNNShapley
        Fitted.
    pool
        As in :meth:`shapshift.KNNShapley.value`.
    """

    # Pooled values cannot be traced to the neighbours of a single point.
    value_and_neighbors = neighbor_ranks = None

    def explain(self, *given: Any, **asked: Any) -> Any:
        """Refuse: the part of a value that comes from the training rows belongs to no validation point."""
        raise InputError(
            "Pooled values cannot be explained: part of each comes from the training rows. Explain the values of the "
            "model without pooling: model.explain(X_val, y_val, ids) instead of model.pooled().explain(...)."
        )

    def value(self, X_val: Any, y_val: Any, *, groups: Any = None) -> Valuation:
        """Value every training row, pooled."""
        return self._valued(X_val, y_val, groups=groups)


@dataclass(frozen=True)
class Comparison:
    """Comparison of training rows, as points, with validation points.

    Attributes
    ----------
    targets, codes : ndarray
        Class numbers of validation points and of training rows.
    n_classes : int
    steps : ndarray of shape (n_train,)
        Density-ratio step of each training row; all 0 where no difference was found.
    ratios : ndarray
        Weight of a training row of each step.
    shares : ndarray of shape (n_classes,)
        Shares of the labels in the pooled values.
    share_weight : float
        Part of these shares that comes from training rows.
    auc : float
        How well the score separates validation points from training rows of equal label; 0.5 means not at all.
    z : float
        Distance of the AUC from 0.5 in standard errors.
    chi2 : float
        Difference between the shares of labels: about ``n_classes - 1`` where they agree.
    """

    targets: Indices
    codes: Indices
    n_classes: int
    steps: Indices
    ratios: Floats
    shares: Floats
    share_weight: float
    auc: float
    z: float
    chi2: float

    @property
    def shifted(self) -> bool:
        """Whether features differ."""
        return self.z > DETECTED

    @property
    def weights(self) -> Floats:
        """Weight of each training row."""
        found: Floats = self.ratios[self.steps]
        return found

    @property
    def worth(self) -> float:
        """Number of equally weighted rows with the same precision as the training rows."""
        return effective_number(self.weights)


def effective_number(weights: Floats) -> float:
    """Return the number of equal weights with the variance of these."""
    return float(weights.sum() ** 2 / np.square(weights).sum())


def compare(
    points: Any, rows: Any, targets: Indices, codes: Indices, n_classes: int, folds: tuple[Indices, Indices]
) -> Comparison:
    """Compare training rows with validation points by features and labels.

    Parameters
    ----------
    points, rows : ndarray or csr_array of shape (n, n_features), or None
        Features of validation points and of training rows; None without features.
    targets, codes : ndarray
        Their class numbers.
    n_classes : int
    folds : pair of ndarray
        Fold of each point and of each row, 0 to ``FOLDS`` - 1.
    """
    in_points, in_rows = (np.bincount(numbers, minlength=n_classes) for numbers in (targets, codes))
    m, steps, ratios, auc, z = targets.size, np.zeros(codes.size, dtype=np.int64), np.ones(1), 0.5, 0.0
    scores = None if points is None else _scores(points, rows, targets, codes, (in_points, in_rows), folds)
    if scores is not None:
        of_points, of_rows = scores[0][in_rows[targets] > 0], scores[1]
        # Training rows are drawn with the label shares of the validation points, so that only features can differ.
        alike = in_points[codes] / in_rows[codes]
        alike = alike / alike.sum()
        order = np.argsort(of_rows, kind="stable")
        below, ranked = np.append(0.0, np.cumsum(alike[order])), of_rows[order]
        auc = float(sum(below[np.searchsorted(ranked, of_points, side)].mean() for side in ("left", "right")) / 2)
        z = float((auc - 0.5) / np.sqrt((1 / of_points.size + 1 / effective_number(alike)) / 12))
        if z > DETECTED:
            cuts = np.quantile(np.concatenate([of_points, of_rows]), np.arange(1, STEPS) / STEPS)
            steps = np.searchsorted(cuts, of_rows)
            p = np.bincount(np.searchsorted(cuts, of_points), minlength=STEPS) / of_points.size
            q = np.bincount(steps, alike, minlength=STEPS)
            rising = IsotonicRegression().fit_transform(
                np.arange(STEPS), p / np.maximum(q, 0.5 / codes.size), sample_weight=np.maximum(q, 1e-9)
            )
            # Shrunk towards no difference, more so the larger the uncertainty.
            ratios = 1 + (1 - 1 / z**2) * (rising - 1)
    weights = ratios[steps]
    p, q = in_points / m, np.bincount(codes, weights, minlength=n_classes) / weights.sum()
    n, freedom = effective_number(weights), max(int(np.count_nonzero(in_points + in_rows)) - 1, 1)
    both = (m * p + n * q) / (m + n)
    chi2 = float((np.square(p - q)[both > 0] / both[both > 0]).sum() / (1 / m + 1 / n))
    if z > DETECTED:  # if features differ, shares of labels may differ too
        trust = min(1.0, freedom / chi2) if chi2 > 0 else 1.0
    else:
        excess = (chi2 - freedom - SHARES_APART * np.sqrt(2 * freedom)) / 2
        trust = 1 / (1 + np.exp(min(50.0, excess)))
    share_weight = float(trust * n / (m + n))
    shares = share_weight * q + (1 - share_weight) * p
    return Comparison(targets, codes, n_classes, steps, ratios, shares, share_weight, auc, z, chi2)


def _scores(
    points: Any, rows: Any, targets: Indices, codes: Indices, counts: tuple[Any, Any], folds: tuple[Indices, Indices]
) -> tuple[Floats, Floats] | None:
    """Score points and rows: higher means more like a validation point of its label; None if there are too few.

    Ridge regression on the features, cross-fitted by fold. Both sides of a label have equal weight, so that shares of
    labels have no effect.
    """
    usable = (counts[0] > 0) & (counts[1] > 0)
    if counts[0][usable].sum() < 2 or codes.size < 2:
        return None
    centre, spread = _centre_and_spread(rows)
    sides = (points, targets, folds[0], 1.0, counts[0]), (rows, codes, folds[1], -1.0, counts[1])
    width = centre.size + 1
    products, sums, weighed = np.zeros((FOLDS, width, width)), np.zeros((FOLDS, width)), 0.0
    for features, labels, fold, sign, own in sides:
        weight = np.where(usable[labels], (counts[0] + counts[1])[labels] / np.maximum(own[labels], 1), 0.0)
        chosen = np.arange(labels.size)[: FITTED_ROWS + targets.size]  # rows are in random order
        for k in range(FOLDS):
            these = chosen[fold[chosen] == k]
            part = _standardized(features, these, centre, spread)
            heavy = part * weight[these, None]
            products[k] += heavy.T @ part
            sums[k] += sign * heavy.sum(axis=0)
        weighed += float(weight[chosen].sum())
    # Evidence is limited by the smaller side.
    scale = min(4 * targets.size, codes.size) / weighed
    ridge = np.eye(width) * RIDGE * np.sqrt(width - 1)
    ridge[-1, -1] = 1e-9
    found = []
    slopes = [
        np.linalg.solve(scale * (products.sum(axis=0) - products[k]) + ridge, scale * (sums.sum(axis=0) - sums[k]))
        for k in range(FOLDS)
    ]
    for features, labels, fold, _, _ in sides:
        score = np.empty(labels.size)
        for k in range(FOLDS):
            these = np.flatnonzero(fold == k)
            score[these] = _standardized(features, these, centre, spread) @ slopes[k]
        found.append(score)
    return found[0], found[1]


def _centre_and_spread(rows: Any) -> tuple[Floats, Any]:
    """Mean and standard deviation of each feature; sparse features are not centred."""
    if sparse.issparse(rows):
        centre = np.zeros(rows.shape[1])
        variance = np.asarray(rows.multiply(rows).mean(axis=0)).ravel()
    else:
        centre, variance = rows.mean(axis=0), rows.var(axis=0)
    spread = np.sqrt(variance)
    if spread.size > FEW_FEATURES:
        return centre, max(float(np.sqrt(variance.mean())), 1e-6)
    return centre, np.where(spread > 1e-6, spread, 1.0)


def _standardized(features: Any, chosen: Indices, centre: Floats, spread: Any) -> Floats:
    """Return selected features in standard deviations, with a column of ones."""
    some = features[chosen]
    some = some.toarray() if sparse.issparse(some) else some
    return np.column_stack([np.clip((some - centre) / spread, -CLIPPED, CLIPPED), np.ones(chosen.size)])


@dataclass(frozen=True)
class LabelSums:
    """Sums over points of each label, per training row.

    Attributes
    ----------
    values, squares : ndarray of shape (n_classes, n_train)
        Weighted sums of values, and of squared values.
    weights, weight_squares : ndarray of shape (n_classes, n_train) or (n_classes, 1)
        Sums of the weights, and of the squared weights, of the points that are used for each row.
    """

    values: Floats
    squares: Floats
    weights: Floats
    weight_squares: Floats


@dataclass(frozen=True)
class Pooled:
    """Pooled values.

    Attributes
    ----------
    values, risk : ndarray of shape (n_train,)
        Values, and their expected squared errors.
    weight, share_weight : float
        Part of each label's values, and of the shares of labels, that comes from training rows.
    gain : float
        Expected squared error relative to that of plain values.
    """

    values: Floats
    risk: Floats
    weight: float
    share_weight: float
    gain: float


def combine(compared: Comparison, points: LabelSums, rows: LabelSums, kurtosis: float) -> Pooled:
    """Pool the mean values of each label over validation points and over training rows.

    Parameters
    ----------
    compared : Comparison
    points, rows : LabelSums
        Over validation points, each counted once, and over training rows as points.
    kurtosis : float
        Of values on single points.
    """
    m, n, shares = float(compared.targets.size), compared.worth, compared.shares[:, None]
    counts = points.weights
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = rows.weight_squares / np.square(rows.weights)  # 1 / number of rows
        has_points = counts > 0
        has_rows = (np.bincount(compared.codes, minlength=shares.size)[:, None] >= 3) & (spread < 0.999)
        on_points, on_rows = points.values / counts, rows.values / rows.weights
        of_rows = np.where(has_rows, (rows.squares / rows.weights - on_rows**2) / (1 - spread), 0.0).clip(min=0.0)
        spread = np.where(has_rows, spread, 0.0)
        one_over = np.where(has_points, 1 / counts, 0.0)
    squares = np.where(has_points, points.squares - counts * on_points**2, 0.0).clip(min=0.0)
    borrowed = np.where(has_rows, BORROWED, 0)
    of_points = (squares + borrowed * of_rows) / np.maximum(np.maximum(counts - 1, 0) + borrowed, 1)
    on_points, on_rows = np.where(has_points, on_points, on_rows), np.where(has_rows, on_rows, on_points)
    on_points, on_rows = np.nan_to_num(on_points), np.nan_to_num(on_rows)
    both = has_points & has_rows
    risk_points = (both * shares**2 * of_points * one_over).sum(axis=0)
    risk_rows = (both * shares**2 * of_rows * spread).sum(axis=0)
    # Labels that occur on one side only.
    alone = (~both * shares**2 * np.where(has_points, of_points * one_over, of_rows * spread)).sum(axis=0)
    difference = (shares * (on_points - on_rows)).sum(axis=0)
    bias = max(0.0, float((difference**2).mean() - risk_points.mean() - risk_rows.mean()))
    total = float(risk_points.mean() + risk_rows.mean()) + bias
    weight = float(risk_points.mean()) / total if total > 0 else 0.0
    means = (1 - weight) * on_points + weight * on_rows
    values = (shares * means).sum(axis=0)
    # Sampling error of both sides, sampling error of the shares, and remaining bias.
    u, freedom = compared.share_weight, max(np.unique(np.append(compared.targets, compared.codes)).size - 1, 1)
    between = (shares * (means - values) ** 2).sum(axis=0)
    risk = (1 - weight) ** 2 * risk_points + weight**2 * risk_rows + alone
    risk += ((1 - u) ** 2 / m + u**2 / n) * between
    left = u**2 * max(0.0, compared.chi2 / freedom - 1) * (1 / m + 1 / n) * between
    if bias > 0 and risk_points.any():
        left += weight**2 * bias * risk_points / risk_points.mean()
    risk = shrink(risk, int(m + n), kurtosis)[0] + left
    plain = points.values.sum(axis=0) / m
    plain_risk = (np.square(counts / m) * of_points * one_over).sum(axis=0)
    plain_risk += (counts / m * (np.where(has_points, on_points, plain) - plain) ** 2).sum(axis=0) / m
    if not risk.mean() < plain_risk.mean():
        return Pooled(plain, plain_risk, 0.0, 0.0, 1.0)
    return Pooled(values, risk, weight, u, float(risk.mean() / plain_risk.mean()))


def corrected_values(model: Any, X_val: Any, y_val: Any, correction: Any) -> Valuation:
    """Value a noisy validation set, corrected by ``correct`` if the corrector has it, else by ``transform``."""
    if callable(getattr(correction, "correct", None)):
        corrected: Valuation = correction.correct(model, X_val, y_val)
        return corrected
    return corrected_by(f"{type(model).__name__}.value", correction, model.value(X_val, y_val))


def pooled_valuation(model: Any, X_val: Any, y_val: Any, pool: Any, *, groups: Any, correction: Any) -> Valuation:
    """Value training rows on validation points and on each other, pooled; see ``pool`` of ``KNNShapley.value``.

    With a correction, corrected values replace those on validation points.
    """
    model = on_cpu(model)
    rows = _own_points(model, pool)
    given = model._prepare(X_val, y_val, groups=groups)
    task, runner = given.task, model._runner()
    n_classes = len(model.classes_) + 1  # the last one is for labels that no training row has
    targets = np.where(given.targets < 0, n_classes - 1, given.targets).astype(np.int64)
    cells = task.groups * n_classes + targets
    by_label = replace(task, groups=cells, group_names=tuple(range(max(task.n_groups, 1) * n_classes)))
    sums = model._run(given._replace(task=by_label), runner)
    shape = (max(task.n_groups, 1), n_classes, task.n_train)
    values, squares = sums.groups.reshape(shape).copy(), sums.group_squares.reshape(shape).copy()
    of_groups = {"groups": values.sum(axis=1), "group_squares": squares.sum(axis=1)}
    none = np.empty((0, task.n_train))
    sums = replace(sums, **(of_groups if task.n_groups else dict.fromkeys(of_groups, none)))
    plain = model._valuation(task, sums, model._about(task, sums) | sums.notes)
    model._check_unchanged(given.points)
    everything = PointSums(given.points, targets, values.sum(axis=0), squares.sum(axis=0))
    found = _pool_points(model, rows, everything, plain, runner)
    if correction is not None:
        plain = corrected_values(model, X_val, y_val, correction)
        found = found.with_corrected(plain)
    of_group = []
    if in_blocks(task.group_names):  # blocks of one sample: they vary as before, but less
        around, gain = found.pooled.values, found.pooled.gain
        for means, error in zip(plain.group_means, plain.group_errors, strict=True):
            of_group.append(
                replace(found.pooled, values=around + np.sqrt(gain) * (means - plain.values), risk=gain * error**2)
            )
        return _pooled(plain, found, of_group)
    for group in range(task.n_groups):
        chosen = np.flatnonzero(task.groups == group)
        part = PointSums(given.points[chosen], targets[chosen], values[group], squares[group])
        of_group.append(_pool_points(model, rows, part, plain, runner).pooled)
    return _pooled(plain, found, of_group)


def _pooled(plain: Valuation, found: "Found", of_group: list[Pooled]) -> Valuation:
    """Return a valuation with pooled values in place of plain ones."""
    pooled, facts = found.pooled, found.facts()
    if pooled.weight == pooled.share_weight == 0:
        warn(
            "Nothing was borrowed from the training rows: they would not lower the expected error of these values "
            f"({facts['why']}). These are the plain values."
        )
        return replace(plain, parameters={**plain.parameters, "pool": facts})
    freedom = max(plain.sampling.get("units", 2) - 1.0, 1.0)
    sizes = np.array(plain.group_sizes)
    group_errors = np.sqrt(np.array([one.risk for one in of_group])).reshape(-1, pooled.values.size)
    group_errors[sizes < 2] = np.inf
    return replace(
        plain,
        values=pooled.values,
        # Group and level values move with the value of the whole set.
        level_values=plain.level_values + (pooled.values - plain.values),
        standard_error=np.sqrt(pooled.risk),
        degrees_of_freedom=np.full(pooled.values.size, freedom),
        variance=None,
        group_means=np.array([one.values for one in of_group]).reshape(-1, pooled.values.size),
        group_errors=group_errors,
        group_freedom=np.maximum(sizes - 1.0, 1.0),
        error_bound=found.error_bound(plain.error_bound),
        parameters={**plain.parameters, "pool": facts},
        sampling={
            "units": plain.n_val,
            "kurtosis": plain.sampling.get("kurtosis"),
            "covariance": pooled.gain * plain.sampling.get("covariance", 0.0),
        },
    )


class PointSums(NamedTuple):
    """Validation points: features, class numbers, and sums of values and of squares by label."""

    points: Any
    targets: Indices
    values: Floats
    squares: Floats


@dataclass(frozen=True)
class Found:
    """Pooled values and their inputs.

    Attributes
    ----------
    pooled : Pooled
    compared : Comparison
    rows : LabelSums
        Over training rows as points.
    bound : ndarray or None
        Error bound of means over training rows.
    """

    pooled: Pooled
    compared: Comparison
    rows: LabelSums
    bound: Floats | None

    def with_corrected(self, corrected: Valuation) -> "Found":
        """Pool corrected values, instead of the values on the validation points, with those on the training rows."""
        if corrected.standard_error is None:
            raise InputError("The 'pool' parameter needs a correction with standard errors: a PosteriorCorrector.")
        compared, rows = self.compared, self.rows
        counted = np.bincount(compared.targets, minlength=compared.n_classes) / compared.targets.size
        with np.errstate(divide="ignore", invalid="ignore"):
            means, one_over = rows.values / rows.weights, rows.weight_squares / rows.weights**2
            variances = (rows.squares / rows.weights - means**2).clip(min=0.0)
        known = np.isfinite(means).all(axis=1)
        if not (counted[known].any() and corrected.standard_error.any()):
            return replace(self, pooled=Pooled(corrected.values, corrected.standard_error**2, 0.0, 0.0, 1.0))
        shares, means = compared.shares[known, None], means[known]
        on_rows, risk_rows = (shares * means).sum(axis=0), (shares**2 * variances[known] * one_over[known]).sum(axis=0)
        # Corrected values are not known by label, so the effect of pooled shares comes from the training rows.
        values = corrected.values + ((shares - counted[known, None]) * means).sum(axis=0)
        risk = corrected.standard_error**2
        bias = max(0.0, float(np.square(values - on_rows).mean() - risk.mean() - risk_rows.mean()))
        weight = float(risk.mean()) / (float(risk.mean() + risk_rows.mean()) + bias)
        u, between = compared.share_weight, (shares * (means - on_rows) ** 2).sum(axis=0)
        of_shares = ((1 - u) ** 2 / compared.targets.size + u**2 / compared.worth) * between
        pooled_risk = (1 - weight) ** 2 * risk + weight**2 * (risk_rows + bias) + of_shares
        pooled = Pooled(
            (1 - weight) * values + weight * on_rows,
            pooled_risk,
            weight,
            u,
            float(pooled_risk.mean() / risk.mean()),
        )
        return replace(self, pooled=pooled)

    def error_bound(self, of_points: Floats | None) -> Floats | None:
        """Return the error bound of the pooled values, whose labels have other weights than in the plain ones."""
        if of_points is None or self.bound is None:
            return None
        counted = np.bincount(self.compared.targets, minlength=self.compared.n_classes) / self.compared.targets.size
        in_rows = self.rows.weights.max(axis=1) / self.compared.codes.size
        most = [
            float((self.compared.shares[part > 0] / part[part > 0]).max(initial=1.0)) for part in (counted, in_rows)
        ]
        most[1] *= float(self.compared.ratios.max())
        bound: Floats = (1 - self.pooled.weight) * most[0] * of_points + self.pooled.weight * most[1] * self.bound
        return bound

    def facts(self) -> dict[str, Any]:
        """Report how much comes from the training rows, and why."""
        pooled, compared = self.pooled, self.compared
        n, weights = compared.codes.size, compared.weights
        features = f"AUC {compared.auc:.2f}, {compared.z:.1f} standard errors from a half"
        if compared.shifted:
            why = (
                f"features differ between validation points and training rows of equal label ({features}), so training "
                f"rows count {weights.min():.2f} to {weights.max():.2f} times and are worth {compared.worth:.0f} rows"
            )
        else:
            why = f"no difference in features was found between validation points and training rows ({features})"
        why += f"; shares of labels differ by a chi-square of {compared.chi2:.1f} at {max(self.present - 1, 1)} degrees"
        return {
            "weight": pooled.weight,
            "share_weight": pooled.share_weight,
            "gain": pooled.gain,
            "rows": n,
            "worth": compared.worth,
            "auc": compared.auc,
            "z": compared.z,
            "label_chi2": compared.chi2,
            "why": why,
        }

    @property
    def present(self) -> int:
        """Number of labels that occur."""
        return int(np.unique(np.concatenate([self.compared.targets, self.compared.codes])).size)


@dataclass(frozen=True)
class RowPoints:
    """Training rows used as validation points.

    Attributes
    ----------
    order : ndarray of shape (n_train,)
        Training rows in a random order determined by their content.
    features : ndarray, csr_array or None
        Features in this order; None where there are only distances.
    keys : ndarray or None
        Hashes of the rows in this order.
    points : Table or ndarray
        Input of the model in place of validation points: rows, or distances between them.
    """

    order: Indices
    features: Any
    keys: Any
    points: Any


def _own_points(model: Any, pool: Any) -> RowPoints:
    """Return the training rows as points, or raise if they cannot be."""
    check_is_fitted(model)
    index, n = model._index, model._index.n_rows
    if index.metric == "precomputed":
        if isinstance(pool, str):
            raise InputError(
                "The 'pool' parameter with metric='precomputed' must hold the distances between the training rows, of "
                f"shape ({n}, {n}). Got {pool!r}: there are no features to measure them by."
            )
        return RowPoints(np.arange(n), None, None, pool)
    if not isinstance(pool, str) or pool != "train":
        raise wrong("KNNShapley.value", "pool", "None or 'train'", pool)
    if n < 2:
        raise InputError("The 'pool' parameter of KNNShapley.value needs at least 2 training rows. Got 1.")
    if index.in_file:
        raise InputError(
            "The 'pool' parameter of KNNShapley.value needs training rows in memory. These are read from a file; fit a "
            "sample of them, or value without pooling."
        )
    keys = index.content_hash()
    order = np.lexsort((model.codes_, keys))
    features = index.unscaled()[order]
    return RowPoints(order, features, keys[order], Table(features, model._columns, None, model._kind))


def _folds(keys: Any) -> Indices:
    """Folds determined by the content of the rows."""
    folds: Indices = (keys % np.uint64(FOLDS)).astype(np.int64)
    return folds


def _pool_points(model: Any, rows: RowPoints, given: PointSums, plain: Valuation, runner: Any) -> Found:
    """Pool the values on some validation points with those on the training rows."""
    codes, n_classes = model.codes_[rows.order].astype(np.int64), len(given.values)
    features, folds = (None, None), (np.empty(0, dtype=np.int64),) * 2
    if rows.features is not None:
        features = in_float64(given.points), rows.features
        folds = _folds(index_rows(given.points, model.metric).content_hash()), _folds(rows.keys)
    compared = compare(*features, given.targets, codes, n_classes, folds)
    counts = np.bincount(given.targets, minlength=n_classes).astype(np.float64)[:, None]
    on_rows, bound = _label_sums(model, rows, compared, runner)
    kurtosis = float(plain.sampling.get("kurtosis", 3.0))
    pooled = combine(compared, LabelSums(given.values, given.squares, counts, counts), on_rows, kurtosis)
    return Found(pooled, compared, on_rows, bound)


def _label_sums(model: Any, rows: RowPoints, compared: Comparison, runner: Any) -> tuple[LabelSums, Floats | None]:
    """Value the training rows on each other and sum them up with weights; also return the error bound of the means."""
    order, n_classes, n_steps = rows.order, compared.n_classes, compared.ratios.size

    def run() -> tuple[Floats, Floats, Floats | None]:
        given = model._prepare(rows.points, model.classes_[model.codes_[order]], own=order)
        cells = compared.codes * n_steps + compared.steps
        task = replace(given.task, groups=cells, group_names=tuple(range(n_classes * n_steps)))
        sums = model._run(given._replace(task=task), runner)
        values, squares = (
            np.einsum("csn,s->cn", part.reshape(n_classes, n_steps, order.size), compared.ratios)
            for part in (sums.groups, sums.group_squares)
        )
        return values, squares, sums.error_bound

    if n_steps > 1 or rows.features is None:
        values, squares, bound = run()
    else:  # kept for other validation sets
        chosen = {name: entry for name, entry in model.get_params().items() if name not in NEVER_CHANGE_A_RESULT}
        values, squares, bound = model._derived.get(("pool", repr(chosen)), run)
    weights = compared.weights
    own = np.zeros((n_classes, order.size))
    own[compared.codes, order] = weights
    totals = (np.bincount(compared.codes, part, minlength=n_classes)[:, None] for part in (weights, weights**2))
    return LabelSums(values, squares, next(totals) - own, next(totals) - own**2), bound
