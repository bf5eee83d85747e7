"""Correction without a clean validation set: the average over possible clean versions of the noisy points."""

import copy
import inspect
import math
from dataclasses import asdict, dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from shapshift._progress import progress_bar
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.warnings import warn
from shapshift.correct.correctors import CorrectionWarning
from shapshift.correct.draws import NoisyPoints, Placement, TrainingSet, draw_in_stages, mix_levels
from shapshift.correct.prior import (
    CONFIDENCE,
    Noise,
    NoiseEstimate,
    check_size,
    estimate_level,
    fit_prior,
    resolve_noise,
)
from shapshift.correct.rehearsal import FEWEST_ROWS, PARTS, Rehearsal, rehearse
from shapshift.engine.estimate import error_fields, joined_error, random_blocks, spread_of_blocks
from shapshift.engine.rows.distances import original_rows
from shapshift.exceptions import InputError
from shapshift.io.shown import Shown
from shapshift.knn.shapley import KNNShapley
from shapshift.valuation import Valuation, without_error

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PosteriorReport(Shown):
    """Report of one posterior correction.

    Attributes
    ----------
    noise : dict
        Assumed noise.
    estimate : NoiseEstimate or None
        Estimate of the noise, if it was estimated.
    weights : dict
        Weights of the noisy values ("noisy"), of draws moved towards the noisy points ("moved") and of draws at
        training rows ("at_rows").
    rehearsal : Rehearsal or None
        Expected result from the rehearsal: rank agreement and error before and after.
    draws : int
        Draws per point; 0 if every row with weight was valued instead.
    standard_error : float
        Root mean square of the errors in the values from draws and mixture, in standard deviations of the values: the
        effect of another ``random_state``.
    log_density, expected_log_density : float or None
        Mean log density of the noisy points under prior and noise, and its value in the rehearsal.
    """

    noise: dict[str, Any]
    estimate: NoiseEstimate | None
    weights: dict[str, float]
    rehearsal: Rehearsal | None
    draws: int
    standard_error: float
    log_density: float | None
    expected_log_density: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain Python types for JSON."""
        return {"corrector": "PosteriorCorrector", **asdict(self)}

    def __str__(self) -> str:
        lines = [f"PosteriorCorrector: {self.draws} draws per point, standard error {self.standard_error:.3f} stds"]
        if self.estimate is not None:
            lines.append(f"  estimated {self.estimate}")
        lines.append("  mixture: " + ", ".join(f"{name} {weight:.2f}" for name, weight in self.weights.items()))
        if self.rehearsal is not None:
            before, after = self.rehearsal.spearman["noisy"], self.rehearsal.spearman["mixed"]
            lines.append(f"  rank agreement when rehearsed on training rows: {before:.3f} -> {after:.3f}")
        return "\n".join(lines)


# Points that are less likely under the prior than rehearsed ones, by more than this many of their standard deviations
# plus chance, come from elsewhere or have other noise.
UNLIKELY = 0.5


class PosteriorCorrector(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    r"""Estimate the values on the clean validation set from the noisy one and the noise.

    The training rows show which points are possible; the noise gives the distance of a clean point from its noisy
    version. Together they define a distribution of clean versions of each point, and the values are averaged over it.
    Two ways to draw from it and the noisy values themselves are mixed with weights found in a rehearsal: training rows
    are held back, get the same noise and are corrected. No clean validation point is needed.

    Parameters
    ----------
    noise : GaussianNoise, LaplaceNoise, float, array-like of shape (n_features,) or "estimate", default="estimate"
        Noise of the validation points. A number is a standard deviation; an array has one for each feature (0 for a
        feature without noise). "estimate" finds the size of normal noise, relative to each feature's standard
        deviation, from the validation points themselves; see ``noise_estimate_``.
    draws : int, default=16
        Largest number of draws per validation point, at least 2.
    tol : float, default=0.05
        Stop drawing when the root mean square of the errors from the draws is below this share of the standard
        deviation of the values. 0 makes all draws.
    random_state : int, default=0
        Same seed, same result.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Attributes
    ----------
    weights_ : dict
        Weights of "noisy", "moved" and "at_rows"; they sum to 1.
    rehearsal_ : Rehearsal or None
        Result on held back training rows, and so the expected one; None before the noise is known, without noise, and
        with too few rows.
    noise_estimate_ : NoiseEstimate or None
        With ``noise="estimate"``, after ``transform``.
    report_ : PosteriorReport
        Report of the last ``transform``.

    Notes
    -----
    The prior has one normal component per training row, with the covariance of the steps between near neighbours, whose
    scale is chosen by leave-one-out likelihood. A clean point is drawn either from the component, given the noisy
    point, or as the row itself. In the second case the row is left out of the game and the draw does not count for it,
    so that rows are excluded from their own prior. Rows are weighted by the probability of the point's label near them,
    which depends on their own label and their 20 nearest rows. Laplace noise enters the weights by its variance, and
    the rehearsal unchanged.

    ``standard_error`` adds up three parts: the choice of the validation points, from the corrected values of 20 random
    blocks of them; the draws; and the mixture, whose weights depend on the rows, noise and draws of the rehearsal (a
    jackknife over its splits). The last two are the effect of another ``random_state``: ``report_.standard_error`` has
    them alone, and ``sampling["estimation_error"]`` their share. It does not include the noise that the correction
    leaves; see ``rehearsal_.rmse["mixed"]`` for that. Nor does it cover other training rows, the choice of the rows
    that the prior is fitted to if there are more than 500, or, with ``noise="estimate"``, the size of the noise, which
    has its own interval in ``noise_estimate_``.

    The result is an estimate of the mean: its spread is smaller than that of the clean values. If the distribution
    matters and summary numbers of a clean run exist, apply a fitted :class:`BoundaryCorrector` to the result.

    Examples
    --------
    >>> from shapshift import GaussianNoise, KNNShapley, PosteriorCorrector, evaluate, load_dataset
    >>> data = load_dataset("gaussian", n_train=300, n_val=200)
    >>> model = KNNShapley().fit(data.X_train, data.y_train)
    >>> clean, noise = model.value(data.X_val, data.y_val), GaussianNoise(0.5, random_state=0)
    >>> X_noisy, y_val = noise(data.X_val, data.y_val)
    >>> corrected = PosteriorCorrector(noise).fit(model).transform(X_noisy, y_val)
    >>> found = evaluate(corrected, clean, model.value(X_noisy, y_val)).rows
    >>> round(found["noisy"]["spearman"], 1), round(found["corrected"]["spearman"], 1)
    (0.4, 0.7)
    """

    def __init__(
        self,
        noise: Any = "estimate",
        *,
        draws: int = 16,
        tol: float = 0.05,
        random_state: int = 0,
        progress: bool | None = None,
    ) -> None:
        self.noise = noise
        self.draws = draws
        self.tol = tol
        self.random_state = random_state
        self.progress = progress

    def fit(self, model: Any, y: Any = None, *, X_train: Any = None) -> Self:
        """Fit the prior to the training rows, and rehearse the correction on them.

        Parameters
        ----------
        model : KNNShapley
            Fitted, with features (not precomputed distances).
        y : None
            Ignored.
        X_train : table of shape (n_train, n_features), optional
            Training rows; needed only with ``metric="cosine"``, for which the model keeps only their directions.

        Returns
        -------
        self
        """
        self._check_parameters()
        owner, model = type(self).__name__, self._check_model(model)
        X = self._training_rows(model, X_train)
        estimated = isinstance(self.noise, str) and self.noise == "estimate"
        noise = None if estimated else check_size(owner, resolve_noise(owner, self.noise, model, X.shape[1]), X)
        codes = np.asarray(model.codes_, dtype=np.int64)
        # Rows in an order determined by their content, and copies of rows: neither the caller's order nor copies may
        # matter.
        keyed = np.column_stack([codes, X])
        _, self._copies = np.unique(keyed, axis=0, return_inverse=True)
        self._copies = self._copies.reshape(-1)
        self._X, self._codes, self._order = X, codes, np.argsort(self._copies, kind="stable")
        self._model = model
        # Draws are plain arrays, with classes as numbers.
        self._inner = copy.copy(model)
        self._inner._columns, self._inner.classes_ = None, np.arange(len(model.classes_))
        self._inner._quiet_labels = True
        self._inner.method, self._inner.search, self._inner.tol = "exact", "exact", None
        self.noise_estimate_: NoiseEstimate | None = None
        self._state: _State | None = None if noise is None else self._prepare(noise)
        if self._state is not None:
            self.weights_, self.rehearsal_ = self._state.weights, self._state.rehearsal
        return self

    def transform(self, X_val_noisy: Any, y_val: Any) -> Valuation:
        """Estimate the values on the clean version of a noisy validation set.

        Parameters
        ----------
        X_val_noisy : table of shape (n_val, n_features)
            Noisy validation points.
        y_val : array-like of shape (n_val,)
            Their labels.

        Returns
        -------
        Valuation
            With the estimated ``values`` and their ``standard_error``, see Notes. ``level_values`` and ``level_counts``
            are those of the drawn points; ``entropy`` and ``boundary`` those of the noisy points.
            ``parameters["posterior"]`` holds the report, also stored as ``report_``.
        """
        check_is_fitted(self, "_model")
        self._check_parameters()
        points = self._points(X_val_noisy, y_val)
        noisy = self._model.value(X_val_noisy, y_val, groups=points.blocks)
        state = self._state or self._estimate(points)
        valuation, report = self._mix(noisy, points, state, self._check_likely(state, points))
        # For inspection only: transforms may run in parallel, and each result has its own report.
        self.weights_, self.rehearsal_, self.noise_estimate_ = state.weights, state.rehearsal, state.estimate
        self.report_ = report
        return valuation

    def correct(self, model: Any, X_val: Any, y_val: Any) -> Valuation:
        """Fit a copy to a model and transform a validation set; called by ``model.value(..., correction=...)``."""
        known = getattr(self, "_model", None)
        if known is not None and known.fingerprint_ == model.fingerprint_ and _alike(known, model):
            return self.transform(X_val, y_val)
        corrector: PosteriorCorrector = clone(self)
        return corrector.fit(model).transform(X_val, y_val)

    def draw_points(self, X_val_noisy: Any, y_val: Any, draws: int) -> Floats:
        """Draw possible clean versions of noisy points, for inspection.

        Parameters
        ----------
        X_val_noisy, y_val
            As in :meth:`transform`. The noise must be stated, not estimated, and not 0.
        draws : int
            Draws per point.

        Returns
        -------
        ndarray of shape (n_val, draws, n_features)
        """
        check_is_fitted(self, "_model")
        check.check_count(type(self).__name__ + ".draw_points", "draws", draws)
        if self._state is None or self._state.train is None:
            raise InputError(
                f"{type(self).__name__}.draw_points needs a stated noise above 0 and at least 2 training rows. Got "
                f"noise={check.quoted(self.noise)} and {len(self._codes)} row(s)."
            )
        points, prior = self._points(X_val_noisy, y_val), self._state.train.prior
        rng = np.random.default_rng([int(self.random_state), 4])
        where = prior.coordinates(points.X)
        rows = prior.weigh(where, points.codes, draws, rng).drawn
        return np.stack([prior.move(rows[:, r], where, points.X, rng) for r in range(draws)], axis=1)

    def _points(self, X_val: Any, y_val: Any) -> NoisyPoints:
        X = self._model._check_points(X_val)
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X, dtype=np.float64)
        labels = _labels.check_labels(y_val, "y_val", len(X), "X_val")
        # Problems with labels were reported when the noisy points were valued.
        codes = _labels.look_up_labels(labels, self._model.classes_, quiet=True)
        return NoisyPoints(X, np.asarray(codes, dtype=np.int64), random_blocks(len(X)))

    def _prepare(self, noise: Noise) -> "_State":
        """Fit the prior for a noise and rehearse."""
        train = rehearsal = None
        if noise.std.any() and len(self._codes) > 1:  # a single row has no neighbour
            rng = np.random.default_rng([int(self.random_state), 1])
            prior = fit_prior(self._X[self._order], self._codes[self._order], len(self._model.classes_), noise.std, rng)
            train = TrainingSet(self._inner, self._X, self._codes, self._order, prior)
            rehearsal = rehearse(train, noise.add, int(self.draws), rng)
        if noise.std.any() and rehearsal is None:
            warn(
                f"There are too few training rows ({len(self._codes)}), or too few different values, to rehearse a "
                "correction. The values are not corrected.",
                CorrectionWarning,
            )
        unchanged = {"noisy": 1.0, "moved": 0.0, "at_rows": 0.0}
        return _State(noise, train, unchanged if rehearsal is None else rehearsal.weights, rehearsal)

    def _estimate(self, points: NoisyPoints) -> "_State":
        spread = self._X.std(axis=0)
        n_features = spread.size
        if not spread.any() or len(self._codes) < FEWEST_ROWS:
            raise InputError(
                f"Noise cannot be estimated from fewer than {FEWEST_ROWS} training rows, or from rows that are all "
                f"equal. Got {len(self._codes)} row(s). State the size of the noise instead."
            )
        rng = np.random.default_rng([int(self.random_state), 3])
        # Half of the rows make a prior that the other half has not entered, just as the validation points have not.
        mixed = rng.permutation(len(self._order))
        seen, held_back = (self._order[np.sort(part)] for part in np.array_split(mixed, 2))
        prior = fit_prior(self._X[seen], self._codes[seen], len(self._model.classes_), spread, rng)
        found = estimate_level(prior, points.X, self._X[held_back], rng)
        if found.is_zero:
            warn(f"The {found}. The values are not corrected.", CorrectionWarning)
        std = np.zeros(n_features) if found.is_zero else found.sigma * spread
        noise = resolve_noise(type(self).__name__, std, self._model, n_features)
        shown = {"name": "GaussianNoise", "sigma": 0.0 if found.is_zero else found.sigma, "relative": True}
        return replace(self._prepare(replace(noise, parameters=shown)), estimate=found)

    def _check_likely(self, state: "_State", points: NoisyPoints) -> float | None:
        """Warn if the points do not look like training rows with the stated noise."""
        if state.rehearsal is None or state.train is None:
            return None
        prior = state.train.prior
        density = float(prior.log_density(prior.coordinates(points.X)).mean())
        off = (density - state.rehearsal.log_density) / max(state.rehearsal.log_density_std, 1e-12)
        if abs(off) > UNLIKELY + CONFIDENCE / math.sqrt(len(points.X)):
            how = "more" if off < 0 else "less"
            warn(
                f"The validation points are {how} scattered than training rows with the stated noise would be (mean "
                f"log density {density:.4g}, {state.rehearsal.log_density:.4g} expected). The correction assumes the "
                f"stated noise and points like the training rows. Either the noise is {how} than stated or the points "
                "come from elsewhere.",
                CorrectionWarning,
            )
        return density

    def _mix(
        self, noisy: Valuation, points: NoisyPoints, state: "_State", density: float | None
    ) -> tuple[Valuation, PosteriorReport]:
        weights = state.weights
        before = Placement()
        before.add(noisy)
        drawn, error, done = {"moved": Placement(), "at_rows": Placement()}, np.zeros(noisy.n_train), 0
        covariance = np.zeros((3, 3)) if state.rehearsal is None else np.array(state.rehearsal.covariance)
        # A part with weight in other splits of the rehearsal enters the standard error.
        moved, at_rows = (weights[PARTS[k]] > 0 or bool(covariance[k, k] > 0) for k in (1, 2))
        if state.train is not None and (moved or at_rows):
            rng = np.random.default_rng([int(self.random_state), 2])
            with progress_bar("Correcting", int(self.draws), self.progress) as advance:
                for drawn in draw_in_stages(state.train, points, int(self.draws), rng, moved=moved, at_rows=at_rows):
                    rounds = self._rounds(drawn, weights)
                    advance(len(rounds) - done)
                    done = len(rounds)
                    if done > 1:
                        error = rounds.std(axis=0, ddof=1) / math.sqrt(done)
                    values = weights["noisy"] * noisy.values + rounds.mean(axis=0)
                    if np.sqrt(np.mean(error**2)) <= self.tol * values.std():
                        break
        parts = {"noisy": before, **drawn}
        levels, level_values, level_counts = mix_levels(parts, weights, noisy.n_val)
        level_values = self._share_copies(level_values)
        mixed = np.einsum("l,ln->n", level_counts, level_values) / noisy.n_val
        # Error of the draws, and of the mixture: values are sums of the parts times their weights.
        columns = np.array([part.mean if part.rounds else np.zeros(noisy.n_train) for part in parts.values()])
        variances = self._share_copies(np.array([error**2, np.einsum("ki,kl,li->i", columns, covariance, columns)]))
        splits = 0 if state.rehearsal is None else state.rehearsal.splits
        error, freedom = joined_error(variances, np.maximum([[done - 1], [splits - 1]], 1))
        relative = float(np.sqrt(np.mean(error**2)) / mixed.std()) if mixed.std() > 0 else 0.0
        report = PosteriorReport(
            noise=state.noise.parameters,
            estimate=state.estimate,
            weights=dict(weights),
            rehearsal=state.rehearsal,
            draws=max(len(part.rounds) if len(part.rounds) > 1 else 0 for part in drawn.values()),
            standard_error=relative,
            log_density=density,
            expected_log_density=None if state.rehearsal is None else state.rehearsal.log_density,
        )
        by_block = sum(
            weights[name] / len(part.rounds) * part.by_block
            for name, part in parts.items()
            if weights[name] > 0 and part.rounds
        )
        sums = noisy.n_val * self._share_copies(np.asarray(by_block))
        spread = spread_of_blocks(mixed, sums, np.bincount(random_blocks(noisy.n_val)))
        valuation = replace(
            without_error(noisy),
            values=mixed,
            level_entropy=levels,
            level_values=level_values,
            level_counts=level_counts,
            group_means=np.empty((0, noisy.n_train)),
            group_names=(),
            group_sizes=(),
            **({} if spread is None else error_fields(spread, noisy.n_val, error, freedom)),
            # Draws are valued exactly, even if the model's method is not.
            error_bound=None if noisy.error_bound is None else weights["noisy"] * noisy.error_bound,
            parameters={**noisy.parameters, "posterior": report.to_dict()},
        )
        return valuation, report

    def _rounds(self, drawn: dict[str, Placement], weights: dict[str, float]) -> Floats:
        """Return the contribution of each round to the values; an exact part contributes the same to every round."""
        parts = [weights[name] * np.array(part.rounds) for name, part in drawn.items() if weights[name] > 0]
        return np.asarray(sum(parts[1:], start=parts[0])) if parts else np.zeros((1, len(self._codes)))

    def _share_copies(self, columns: Floats) -> Floats:
        """Average over rows with equal features and label, which have equal values."""
        counts = np.bincount(self._copies)
        if counts.max() == 1:
            return columns
        return np.array([(np.bincount(self._copies, row) / counts)[self._copies] for row in columns])

    def _training_rows(self, model: Any, X_train: Any) -> Floats:
        if X_train is None:
            rows = original_rows(model._index)
            if rows is None:
                raise InputError(
                    f"{type(self).__name__}.fit needs the training rows as the parameter 'X_train': with "
                    f"metric={model.metric!r}, the model does not keep them."
                )
            return rows
        table = check.check_features(X_train, "X_train")
        table = check.match_columns(table, model._columns, model.n_features_in_, "X_train")
        rows = table.rows.toarray() if hasattr(table.rows, "toarray") else np.asarray(table.rows)
        if len(rows) != len(model.codes_):
            raise InputError(f"'X_train' must have the {len(model.codes_)} rows that were fitted. Got {len(rows)}.")
        return rows

    def _check_model(self, model: Any) -> Any:
        caller = type(self).__name__ + ".fit"
        quiet = check.check_model(caller, model)
        if not hasattr(model, "codes_") or "exclude" not in inspect.signature(model.value).parameters:
            raise InputError(
                f"The 'model' parameter of {caller} must be a fitted KNNShapley. Got {type(model).__name__}"
                + (", which is not fitted: call its fit first." if isinstance(model, KNNShapley) else " instead.")
            )
        if getattr(model, "metric", None) == "precomputed":
            raise InputError(
                f"{caller} needs features, but the model has metric='precomputed' and takes distances, from which "
                "noise on features cannot be removed. Fit a model on the features."
            )
        return quiet

    def _check_parameters(self) -> None:
        caller = type(self).__name__
        check.check_count(caller, "draws", self.draws, at_least=2)
        check.check_number(caller, "tol", self.tol)
        check.check_count(caller, "random_state", self.random_state, at_least=0)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")


@dataclass(frozen=True)
class _State:
    """A known noise, the training set with its prior, and the weights of the estimates."""

    noise: Noise
    train: TrainingSet | None
    weights: dict[str, float]
    rehearsal: Rehearsal | None
    estimate: NoiseEstimate | None = None


def _alike(first: Any, second: Any) -> bool:
    """Whether two models give the same values; parameters that never change a result are ignored."""
    names = ("n_neighbors", "utility", "semivalue", "metric", "ties")
    return all(getattr(first, name) == getattr(second, name) for name in names)
