"""Effect of cleaning on held-out rows: before, after, and after random removal of as many rows."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn.base import clone
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.validation import has_fit_parameter

from shapshift._arrays import object_array
from shapshift._progress import progress_bar
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.names import quoted, some
from shapshift.checks.warnings import collected_warnings
from shapshift.cleaning.decisions import TASKS, Decisions, Plan, holds_classes, row_hashes, table_ids
from shapshift.exceptions import InputError
from shapshift.io.results import to_table
from shapshift.io.shown import Shown
from shapshift.perturb.containers import count_rows, take_rows
from shapshift.sampled.game import predicts_numbers, with_seeds

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Models by name: for classes, and for numbers.
MODELS: Mapping[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "logistic": (
        lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
        lambda: make_pipeline(StandardScaler(), Ridge()),
    ),
    "forest": (RandomForestClassifier, RandomForestRegressor),
    "boosting": (HistGradientBoostingClassifier, HistGradientBoostingRegressor),
}
#: Compared versions, and the two differences.
SIDES = ("before", "after", "random removal")
DIFFERENCES = {"after - before": (1, 0), "after - random removal": (1, 2)}
BOOTSTRAPS = 1000
CONFIDENCE = 0.95
#: A class is named if its lost share is at least this many times that of all rows, beyond chance.
FAR_LARGER, CHANCE = 2.0, 0.01
#: Most numbers in one block of bootstrap weights.
_BLOCK = 4_000_000
_HASHED_ROWS = 1000


@dataclass(frozen=True, eq=False, repr=False)
class CleaningEffect(Shown):
    """Effect of a list of decisions.

    Attributes
    ----------
    effect : mapping of str to ndarray
        Columns of a table with a row for each model, measure ("balanced accuracy" and "minority recall", or "r2") and
        ``what``: "before", "after", "random removal", and the differences "after - before" and "after - random
        removal"; their ``value`` with a 95% interval, ``low`` to ``high``.
    classes : mapping of str to ndarray
        Columns of a table with a row for each class (none where numbers are predicted): ``label``, ``rows``,
        ``dropped``, ``relabelled`` (to another class), ``weighted``, and ``share``, of its rows dropped or relabelled.
    notes : tuple of str
        Warnings: classes that lose far more rows than others, and models that become worse.
    held_out : str
        "test rows", or "cross-validation".
    repeats : int
    """

    effect: Mapping[str, npt.NDArray[Any]]
    classes: Mapping[str, npt.NDArray[Any]]
    notes: tuple[str, ...]
    held_out: str
    repeats: int

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate :attr:`effect`.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.
        """
        return to_table(dict(self.effect), None, kind)

    def class_frame(self, kind: str = "numpy") -> Any:
        """Tabulate :attr:`classes`."""
        return to_table(dict(self.classes), None, kind)

    def value(self, model: str, measure: str, what: str) -> tuple[float, float, float]:
        """Return one number with its interval: value, low, high."""
        at = [self.effect[name] == wanted for name, wanted in (("model", model), ("measure", measure), ("what", what))]
        (row,) = np.flatnonzero(np.logical_and.reduce(at))
        value, low, high = (float(self.effect[name][row]) for name in ("value", "low", "high"))
        return value, low, high

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the effect of cleaning on each model and measure, with 95% intervals; returns the Axes.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_cleaning

        return plot_cleaning(self, ax=ax)

    def __repr__(self) -> str:
        parts = [
            f"{model} {measure} {value:+.3f}"
            for model, measure, what, value in zip(
                *(self.effect[name] for name in ("model", "measure", "what", "value")), strict=True
            )
            if what == "after - before"
        ]
        return f"CleaningEffect({', '.join([*parts, self.held_out])})"


def measure_cleaning(
    decisions: Decisions,
    X: Any,
    y: Any,
    X_test: Any = None,
    y_test: Any = None,
    models: Any = tuple(MODELS),
    *,
    find: Callable[[Any, Any, Any], Decisions] | None = None,
    ids: Any = None,
    task: str | None = None,
    repeats: int = 5,
    folds: int = 5,
    lose_classes: bool = False,
    new_classes: bool = False,
    random_state: int | None = 0,
    progress: bool | None = None,
) -> CleaningEffect:
    """Measure the effect of cleaning on held-out rows.

    Every model is fitted three times: on the original rows, on the rows after the decisions, and after random removal
    of as many rows as were dropped, relabelled or weighted. All are evaluated on the same held-out rows.

    Parameters
    ----------
    decisions : Decisions
        Decisions about the rows of ``X``.
    X, y : table of shape (n_rows, ...), array-like of shape (n_rows,)
        The rows to clean.
    X_test, y_test : table, array-like, optional
        Held-out rows: not in ``X``, and not used to find suspects.
    models : str, estimator, sequence of these, or mapping of str to estimator
        scikit-learn estimators, or "logistic" (ridge regression for numbers), "forest", "boosting".
    find : callable, optional
        Function that makes the decisions, ``find(X, y, ids) -> Decisions``; needed without test rows. Then ``folds``
        parts of ``X`` are held out in turn, with exact copies in the same part, and suspects are found again among the
        other parts only: no model is evaluated on a row that it, or the search for suspects, has seen.
    ids : array-like of shape (n_rows,), optional
        By default the index of a pandas table, else row numbers from 0.
    task : {"class", "number"}, optional
        Kind of ``y``; by default that of the decisions, else numbers to predict if the models are regressors, or as in
        :func:`shapshift.find_suspects`.
    repeats : int, default=5
        Number of seeds of the models, draws of random rows, and, in cross-validation, divisions of the rows.
    folds : int, default=5
        Number of parts in cross-validation.
    lose_classes : bool, default=False
        Whether a class may lose its last row.
    new_classes : bool, default=False
        Whether rows may get a class that the table does not have.
    random_state : int or None, default=0
    progress : bool, default=None

    Returns
    -------
    CleaningEffect

    Notes
    -----
    Intervals come from a bootstrap that draws test rows (within each class, for classes) and repeats with replacement,
    the same for all versions: differences are paired. They do not cover variation between training sets.

    Labels of held-out rows are taken as given. If some of them are wrong, as is common in cross-validation, gains look
    smaller than they are.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import Decisions, load_dataset, measure_cleaning
    >>> data = load_dataset("gaussian", n_train=200, n_val=200)
    >>> wrong = np.arange(20)
    >>> y = np.where(np.arange(200) < 20, 1 - data.y_train, data.y_train)
    >>> decisions = Decisions.of(data.X_train, y, ids=wrong, actions=["drop"] * 20)
    >>> found = measure_cleaning(decisions, data.X_train, y, data.X_val, data.y_val, "logistic", repeats=2)
    >>> value, low, high = found.value("logistic", "balanced accuracy", "after - before")
    >>> low <= value <= high
    True
    """
    caller = "measure_cleaning"
    check.check_count(caller, "repeats", repeats, at_most=1000)
    check.check_count(caller, "folds", folds, at_least=2)
    if task is not None:
        check.check_choice(caller, "task", task, TASKS)
    seed = check.check_seed(caller, random_state)
    labels = _labels.check_labels(y, "y", count_rows(X), "X")
    own = table_ids(X, ids)
    check.check_type(caller, "decisions", decisions, Decisions, "Decisions")
    fitted = _check_models(caller, models, task or decisions.task, labels)
    classes = fitted.classes
    kind = "number" if classes is None else "class"
    plan = decisions.plan(X, y, ids=ids, task=kind, lose_classes=lose_classes, new_classes=new_classes)
    if X_test is None and y_test is None:
        if find is None:
            raise InputError(
                f"The 'find' parameter of {caller} must be a function find(X, y, ids) -> Decisions if there are no "
                "test rows: decisions made with all rows in view would leak into every fold. Pass it, or "
                "X_test and y_test."
            )
        if labels.size < 2:
            raise InputError(f"The 'X' parameter of {caller} must have at least 2 rows for cross-validation. Got 1.")
        copies = _number_copies(X, labels.size)
        truth, folds = labels, min(folds, int(copies.max()) + 1)
        if folds < 2:
            raise InputError(f"The 'X' parameter of {caller} must have different rows for cross-validation. All equal.")
        parts = _cross_parts(find, X, labels, own, repeats, folds, seed, kind, copies)
        steps, held_out = repeats * folds, "cross-validation"
    else:
        if X_test is None or y_test is None:
            raise InputError(f"The 'X_test' and 'y_test' parameters of {caller} go together. Pass both, or none.")
        truth = _labels.check_labels(y_test, "y_test", count_rows(X_test), "X_test")
        parts = (_Part(r, X, labels, plan, X_test, np.arange(truth.size), r) for r in range(repeats))
        steps, held_out = repeats, "test rows"
    if classes is None:
        truth = _as_numbers(truth, "y_test")
    guesses = {
        name: object_array([None] * (len(SIDES) * repeats * truth.size)).reshape(len(SIDES), repeats, truth.size)
        for name in fitted.models
    }
    with progress_bar("Measuring", steps * len(SIDES) * len(guesses), progress) as advance:
        for part in parts:
            for side, (rows, targets, weights) in enumerate(part.sides(seed)):
                for name, model in fitted.models.items():
                    found = _predict(name, model, part, rows, targets, weights, classes is None)
                    guesses[name][side, part.repeat, part.held] = found
                    advance(1)
    effect = _effect(guesses, truth, classes, labels, seed)
    table = {} if classes is None else class_table(plan, labels)
    notes = (*(class_notes(table) if table else ()), *_effect_notes(effect))
    if classes is not None:
        notes = (*notes, *_silent_notes(effect, _rarest(truth, labels)))
    return CleaningEffect(effect, table, notes, held_out, repeats)


@dataclass(frozen=True)
class _Models:
    models: dict[str, Any]
    classes: list[Any] | None


def _check_models(caller: str, models: Any, task: str | None, labels: npt.NDArray[Any]) -> _Models:
    """Models by name, and the classes; None for numbers."""
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        given = [models] if isinstance(models, str) or hasattr(models, "fit") else list(models)
        named = {}
        for model in given:
            name = model if isinstance(model, str) else type(model).__name__
            count = sum(other.partition(" ")[0] == name for other in named)
            named[name if not count else f"{name} {count + 1}"] = model
    if not named:
        raise InputError(f"The 'models' parameter of {caller} must name at least one model. Got none.")
    own = {name: model for name, model in named.items() if not isinstance(model, str)}
    for name, model in own.items():
        if isinstance(model, type) or not (hasattr(model, "fit") and hasattr(model, "predict")):
            raise InputError(
                f"The 'models' parameter of {caller} must hold estimators with fit and predict, or names from "
                f"{', '.join(MODELS)}. Got {quoted(model)} as {name!r}."
            )
    kinds = {predicts_numbers(model, "auto") for model in own.values()}
    if task is None and kinds == {True}:
        task = "number"
    numbers = not holds_classes(task, labels)
    if len(kinds) > 1 or (kinds and numbers not in kinds):
        raise InputError(
            f"The 'models' parameter of {caller} must hold {'regressors' if numbers else 'classifiers'} only: 'y' "
            f"has {'numbers to predict' if numbers else 'classes'}. Choose other models, or set 'task' to what 'y' "
            "holds."
        )
    if numbers:
        _as_numbers(labels, "y")
    for name, model in named.items():
        if isinstance(model, str):
            check.check_choice(caller, "models", model, tuple(MODELS), "an estimator")
            named[name] = MODELS[model][numbers]()
    return _Models(named, None if numbers else _labels.encode_labels(labels)[0].tolist())


def _as_numbers(labels: npt.NDArray[Any], name: str) -> Floats:
    try:
        return labels.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name!r} must hold numbers to predict. Got {some(labels.tolist())}.") from None


@dataclass(frozen=True)
class _Part:
    """Rows to fit on, with their decisions, and rows to evaluate on."""

    repeat: int
    X: Any
    labels: npt.NDArray[Any]
    plan: Plan
    X_held: Any
    held: Indices
    draw: int

    def sides(self, seed: int) -> Iterator[tuple[Indices, npt.NDArray[Any], Floats | None]]:
        """Rows, their labels and weights, for each of :data:`SIDES`."""
        everyone = np.arange(self.labels.size)
        yield everyone, self.labels, None
        kept = self.plan.kept
        new = self.labels.copy() if self.labels.dtype.kind not in "US" else self.labels.astype(object)
        for row in np.flatnonzero(self.plan.actions == "relabel"):
            new[row] = self.plan.labels[row]
        weighted = bool((self.plan.actions == "weight").any())
        yield kept, new[kept], self.plan.weights[kept] if weighted else None
        rng = np.random.default_rng([seed, 1, self.draw])
        count = min(int((self.plan.actions != "keep").sum()), self.labels.size - 1)
        left = np.sort(rng.permutation(self.labels.size)[count:])
        yield left, self.labels[left], None


def _cross_parts(
    find: Callable[[Any, Any, Any], Decisions],
    X: Any,
    labels: npt.NDArray[Any],
    ids: npt.NDArray[Any],
    repeats: int,
    folds: int,
    seed: int,
    kind: str,
    copies: Indices,
) -> Iterator[_Part]:
    codes = _labels.encode_labels(labels)[1] if kind == "class" else np.zeros(labels.size, dtype=np.int32)
    for repeat in range(repeats):
        fold_of = _folds(codes, folds, np.random.default_rng([seed, 0, repeat]), copies)
        for fold in range(folds):
            train, held = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
            rows = take_rows(X, train)
            made = find(rows, labels[train], ids[train])
            plan = made.plan(rows, labels[train], ids=ids[train], task=kind, lose_classes=True, new_classes=True)
            yield _Part(repeat, rows, labels[train], plan, take_rows(X, held), held, repeat * folds + fold)


def _number_copies(X: Any, n: int) -> Indices:
    """Return equal numbers for rows with equal features, by first appearance; in blocks, since texts need memory."""
    numbers: dict[str, int] = {}
    blank, found = np.zeros(n), np.empty(n, dtype=np.int64)
    for start in range(0, n, _HASHED_ROWS):
        rows = range(start, min(n, start + _HASHED_ROWS))
        found[start : rows.stop] = [numbers.setdefault(one, len(numbers)) for one in row_hashes(X, blank, rows)]
    return found


def _folds(codes: npt.NDArray[Any], folds: int, rng: np.random.Generator, copies: Indices) -> Indices:
    """Fold of each row: random, with copies in the same fold, and classes as balanced over folds as possible."""
    _, first, sizes = np.unique(copies, return_index=True, return_counts=True)
    order = np.lexsort((rng.random(first.size), -sizes, codes[first]))
    fold_of = np.empty(first.size, dtype=np.int64)
    fold_of[order] = np.arange(first.size) % folds
    return fold_of[copies]


def _predict(
    name: str, model: Any, part: _Part, rows: Indices, labels: npt.NDArray[Any], weights: Floats | None, numbers: bool
) -> npt.NDArray[Any]:
    """Predict the held-out rows with a model fitted on given rows."""
    if not numbers and len(set(labels.tolist())) == 1:
        return object_array(labels[:1].tolist() * part.held.size)  # classifiers refuse a single class
    fresh = with_seeds(clone(model, safe=False), part.repeat)
    given = {} if weights is None else {_weight_parameter(name, fresh): weights}
    if numbers:
        labels = _as_numbers(labels, "y")
    try:
        with collected_warnings():  # for instance of an optimizer that stopped early
            fresh.fit(take_rows(part.X, rows), _typed(labels), **given)
            found = np.asarray(fresh.predict(part.X_held))
    except Exception as error:
        raise InputError(
            f"The model {name!r} of measure_cleaning cannot be fitted on these rows ({type(error).__name__}: {error}). "
            "Choose another, such as a Pipeline that encodes or fills in what it cannot take."
        ) from error
    if found.shape != part.held.shape:
        raise InputError(f"The model {name!r} of measure_cleaning must predict one label per row. Got {found.shape}.")
    return object_array(found.tolist())


def _typed(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Labels in an array of their own type, for scikit-learn; text as objects, to keep its length."""
    return labels if labels.dtype != object or isinstance(labels[0], str) else np.array(labels.tolist())


def _weight_parameter(name: str, model: Any) -> str:
    inner, prefix = (model.steps[-1][1], f"{model.steps[-1][0]}__") if isinstance(model, Pipeline) else (model, "")
    if not has_fit_parameter(inner, "sample_weight"):
        raise InputError(
            f"The model {name!r} of measure_cleaning takes no sample_weight, and the decisions weight rows. Choose "
            "another model, or drop rows instead."
        )
    return f"{prefix}sample_weight"


def _effect(
    predictions: Mapping[str, npt.NDArray[Any]],
    truth: npt.NDArray[Any],
    classes: list[Any] | None,
    labels: npt.NDArray[Any],
    seed: int,
) -> dict[str, npt.NDArray[Any]]:
    """Table of measures with intervals."""
    names: dict[str, list[Any]] = {name: [] for name in ("model", "measure", "what")}
    numbers: list[tuple[float, float, float]] = []
    for model, guesses in predictions.items():
        if classes is None:
            errors = (guesses.astype(np.float64) - truth) ** 2
            measured = {"r2": _bootstrap_r2(errors, truth, seed)}
        else:
            hits = np.asarray(guesses == object_array(truth.tolist()), dtype=np.float64)
            measured = _bootstrap_recalls(hits, truth, labels, seed)
        for measure, (whole, drawn) in measured.items():
            sides = {side: (whole[k], drawn[k]) for k, side in enumerate(SIDES)}
            sides |= {what: (whole[a] - whole[b], drawn[a] - drawn[b]) for what, (a, b) in DIFFERENCES.items()}
            for what, (value, draws) in sides.items():
                for column, entry in zip(names.values(), (model, measure, what), strict=True):
                    column.append(entry)
                tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
                low, high = np.quantile(np.round(draws, 12), tails) if np.isfinite(draws).all() else (np.nan, np.nan)
                numbers.append((round(float(value), 12), float(low), float(high)))
    columns: dict[str, npt.NDArray[Any]] = {name: object_array(column) for name, column in names.items()}
    return columns | dict(zip(("value", "low", "high"), np.array(numbers).T, strict=True))


def _bootstrap_recalls(
    hits: Floats, truth: npt.NDArray[Any], labels: npt.NDArray[Any], seed: int
) -> dict[str, tuple[Floats, Floats]]:
    """Balanced accuracy and recall of the rarest class: of all test rows, and of bootstrap samples.

    Parameters
    ----------
    hits : ndarray of shape (n_sides, n_repeats, n_test)
    truth : ndarray of shape (n_test,)
    labels : ndarray
        Labels of the training rows, which give the rarest class that occurs in the test.
    seed : int
    """
    kinds, codes = _labels.encode_labels(truth)
    rarest = kinds.tolist().index(_rarest(truth, labels))
    members = [np.flatnonzero(codes == code) for code in range(kinds.size)]
    rng, shape = np.random.default_rng([seed, 2]), (hits.shape[0], BOOTSTRAPS)
    recalls = np.zeros((kinds.size, *shape))
    repeat_weights = _multinomial(rng, hits.shape[1], BOOTSTRAPS)  # (n_repeats, n_draws)
    for code, rows in enumerate(members):
        for start in range(0, BOOTSTRAPS, step := max(1, _BLOCK // rows.size)):
            weights = _multinomial(rng, rows.size, min(step, BOOTSTRAPS - start))
            part = slice(start, start + weights.shape[1])
            recalls[code, :, part] = np.einsum("srd,rd->sd", hits[:, :, rows] @ weights, repeat_weights[:, part])
    whole = np.array([hits[:, :, rows].mean(axis=(1, 2)) for rows in members])
    return {
        "balanced accuracy": (whole.mean(axis=0), recalls.mean(axis=0)),
        "minority recall": (whole[rarest], recalls[rarest]),
    }


def _rarest(truth: npt.NDArray[Any], labels: npt.NDArray[Any]) -> Any:
    """Return the class with the fewest training rows, of those that occur in the test."""
    kinds, known = _labels.encode_labels(truth)[0].tolist(), Counter(labels.tolist())
    seen = [(known[kind], code) for code, kind in enumerate(kinds) if kind in known]
    return kinds[min(seen)[1] if seen else 0]


def _bootstrap_r2(errors: Floats, truth: Floats, seed: int) -> tuple[Floats, Floats]:
    """Coefficient of determination: of all test rows, and of bootstrap samples; NaN if the truth is constant."""
    rng, n, centred = np.random.default_rng([seed, 2]), truth.size, truth - truth.mean()
    repeat_weights = _multinomial(rng, errors.shape[1], BOOTSTRAPS)
    drawn = np.zeros((errors.shape[0], BOOTSTRAPS))
    for start in range(0, BOOTSTRAPS, step := max(1, _BLOCK // n)):
        weights = _multinomial(rng, n, min(step, BOOTSTRAPS - start))
        part = slice(start, start + weights.shape[1])
        spread = centred**2 @ weights - (centred @ weights) ** 2
        missed = np.einsum("srd,rd->sd", errors @ weights, repeat_weights[:, part])
        drawn[:, part] = 1 - missed / np.where(spread > 0, spread, np.nan)
    spread = float(truth.var())
    return 1 - errors.mean(axis=(1, 2)) / (spread if spread > 0 else np.nan), drawn


def _multinomial(rng: np.random.Generator, size: int, draws: int) -> Floats:
    """Weights of bootstrap samples, one in each column, each of sum 1."""
    return rng.multinomial(size, np.full(size, 1 / size), draws).T / size


def class_table(plan: Plan, labels: npt.NDArray[Any]) -> dict[str, npt.NDArray[Any]]:
    """Count the decisions about the rows of each class."""
    classes, codes = _labels.encode_labels(object_array([*labels.tolist(), *plan.labels]))
    codes = codes[: labels.size]
    relabelled = np.array([new != old for new, old in zip(plan.labels, labels.tolist(), strict=True)], dtype=bool)
    counts = {
        name: np.bincount(codes[chosen], minlength=classes.size)
        for name, chosen in {
            "rows": np.ones(labels.size, dtype=bool),
            "dropped": plan.actions == "drop",
            "relabelled": relabelled & (plan.actions == "relabel"),
            "weighted": plan.actions == "weight",
        }.items()
    }
    share = (counts["dropped"] + counts["relabelled"]) / np.maximum(counts["rows"], 1)  # a new class has no rows
    return {"label": object_array(classes.tolist()), **counts, "share": share}


def class_notes(table: Mapping[str, npt.NDArray[Any]]) -> list[str]:
    """Name classes that lose a far larger share of their rows than all rows together."""
    rows, lost = table["rows"], table["dropped"] + table["relabelled"]
    if not rows.size or not lost.sum():
        return []
    overall = lost.sum() / rows.sum()
    # P-value: at least as many rows of the class among the same number of rows drawn from all classes.
    chance = stats.hypergeom.sf(lost - 1, rows.sum(), rows, lost.sum())
    return [
        f"Class {quoted(label)} loses {gone:,} of its {count:,} rows ({gone / count:.0%}), all rows together "
        f"{overall:.0%}: look at some of them before you act. Where a class is rare or hard to tell, right labels look "
        "wrong."
        for label, gone, count, p in zip(table["label"].tolist(), lost.tolist(), rows.tolist(), chance, strict=True)
        if gone and gone / count >= FAR_LARGER * overall and p < CHANCE
    ]


def _effect_notes(effect: Mapping[str, npt.NDArray[Any]]) -> list[str]:
    """Name models that cleaning harms more than random removal does, beyond sampling error.

    A loss alone is not enough: removing any rows changes a model, and random removal measures by how much.
    """
    return [
        f"The {measure} of {model!r} is lower than after random removal of as many rows: by {-value:.3f}, 95% interval "
        f"{-high:.3f} to {-low:.3f}. Do not act on all of these rows without looking at them."
        for model, measure, what, value, low, high in zip(*effect.values(), strict=True)
        if what == "after - random removal" and high < 0
    ]


def _silent_notes(effect: Mapping[str, npt.NDArray[Any]], rarest: Any) -> list[str]:
    """Name models that find no row of the rarest class, both before and after."""
    recalls: dict[str, list[float]] = {}
    for model, measure, what, value, _, _ in zip(*effect.values(), strict=True):
        if measure == "minority recall" and what in SIDES[:2]:
            recalls.setdefault(model, []).append(value)
    silent = [model for model, values in recalls.items() if not any(values)]
    if not silent:
        return []
    return [
        f"Of the held-out rows of class {quoted(rarest)}, {some(silent)} predicts none right, before and after: the "
        "measurement cannot show an effect on that class."
    ]
