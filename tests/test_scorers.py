"""Scores of a whole validation set as utility of sampled values."""

from __future__ import annotations

import itertools
import math
import threading
from functools import partial
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.dummy import DummyRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import f1_score, get_scorer, log_loss, make_scorer, r2_score
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.svm import SVC

from shapshift import SampledShapley, Valuation, audit_shift
from shapshift.exceptions import InputError

ROWS = [0, 50, 100, 20, 70]  # three classes, two of them twice
X, Y = load_iris(return_X_y=True)
X_VAL, Y_VAL = X[3::6], Y[3::6]
NAMES = np.array(["a", "b", "c"])


def shapley(worth: dict[frozenset[int], float], n: int) -> np.ndarray:
    """Shapley values of a game, by their definition."""
    found = np.zeros(n)
    for order in itertools.permutations(range(n)):
        for place, player in enumerate(order):
            found[player] += worth[frozenset(order[: place + 1])] - worth[frozenset(order[:place])]
    return found / math.factorial(n)


def subsets(n: int) -> list[list[int]]:
    return [[i for i in range(n) if code >> i & 1] for code in range(2**n)]


def probabilities(rows: list[int], estimator: Any) -> np.ndarray:
    """Probabilities of all three classes of a model fitted on some rows; no rows: equal, one class: certain."""
    chances = np.zeros((len(X_VAL), 3))
    if not rows:
        return chances + 1 / 3
    if len(set(Y[rows])) == 1:
        chances[:, Y[rows[0]]] = 1
        return chances
    model = clone(estimator).fit(X[rows], Y[rows])
    chances[:, model.classes_] = model.predict_proba(X_VAL)
    return chances


def value(utility: Any, estimator: Any = None, labels: Any = Y, **options: Any) -> Valuation:
    groups = options.pop("groups", None)
    model = SampledShapley(estimator or LogisticRegression(C=10), utility=utility, progress=False, **options)
    return model.fit(X[ROWS], labels[ROWS]).value(X_VAL, labels[3::6], groups=groups)


@pytest.mark.parametrize("labels", [Y, NAMES[Y]])
def test_log_loss_is_that_of_scikit_learn(labels: Any) -> None:
    estimator = LogisticRegression(C=10)
    worth = {
        frozenset(chosen): -log_loss(Y_VAL, probabilities([ROWS[i] for i in chosen], estimator), labels=[0, 1, 2])
        for chosen in subsets(5)
    }
    found = value("neg_log_loss", estimator, labels)
    np.testing.assert_allclose(found.values, shapley(worth, 5), atol=1e-10)
    # As a score of all points it is the same number, without the values of single points.
    scored = value(get_scorer("neg_log_loss"), estimator, labels)
    np.testing.assert_allclose(scored.values, found.values, atol=1e-10)
    np.testing.assert_allclose(
        scored.level_values, np.broadcast_to(scored.values, scored.level_values.shape), rtol=1e-12
    )


def test_a_score_by_name_as_scorer_and_as_function_is_the_definition() -> None:
    estimator = GaussianNB(var_smoothing=0.1)

    def predicted(rows: list[int]) -> np.ndarray:
        if len(set(Y[rows])) < 2:  # the most frequent class; the first of equally frequent ones
            return np.full(len(X_VAL), Y[rows[0]] if rows else 0)
        return np.asarray(clone(estimator).fit(X[rows], Y[rows]).predict(X_VAL))

    worth = {
        frozenset(chosen): f1_score(Y_VAL, predicted([ROWS[i] for i in chosen]), average="macro")
        for chosen in subsets(5)
    }
    exact = shapley(worth, 5)
    for utility in (
        "f1_macro",
        make_scorer(f1_score, average="macro"),
        lambda model, X, y: f1_score(y, model.predict(X), average="macro"),
    ):
        found = value(utility, estimator)
        np.testing.assert_allclose(found.values, exact, atol=1e-12)
        assert found.parameters["utility_of_all"] == pytest.approx(worth[frozenset(range(5))])


def test_groups_have_the_score_of_their_own_points() -> None:
    names = np.arange(len(X_VAL)) % 2
    both = value("f1_macro", groups=names)
    for group in (0, 1):
        alone = SampledShapley(LogisticRegression(C=10), utility="f1_macro", progress=False).fit(X[ROWS], Y[ROWS])
        inside = names == group
        expected = alone.value(X_VAL[inside], Y_VAL[inside]).values
        np.testing.assert_allclose(both.group_values[group], expected, atol=1e-12)
    assert both.group_errors is not None
    assert np.isfinite(both.group_errors).all()


def test_the_error_of_a_mean_score_is_that_of_its_points() -> None:
    # Accuracy is a mean over points: its jackknife must say what the blocks of the same points say.
    def correct(model: Any, X: Any, y: Any) -> Any:
        return 1.0 * (model.predict(X) == y)

    points, scored = value(correct), value("accuracy")
    np.testing.assert_allclose(scored.values, points.values, atol=1e-12)
    assert points.standard_error is not None
    assert scored.standard_error is not None
    np.testing.assert_allclose(scored.standard_error, points.standard_error, rtol=1e-9)


def test_functions_see_all_classes() -> None:
    seen: list[Any] = []

    def watch(model: Any, X: Any, y: Any) -> float:
        seen.append((model.classes_.tolist(), model.predict_proba(X).shape[1], model.predict_proba(X).sum()))
        return 0.0

    value(watch, sampler="permutation", max_fits=20)
    assert {tuple(classes) for classes, _, _ in seen} == {(0, 1, 2)}
    assert {columns for _, columns, _ in seen} == {3}


def test_rank_scores_of_two_classes_and_frames() -> None:
    two = Y < 2
    X2, y2 = pd.DataFrame(X[two], columns=list("abcd")), Y[two]
    rows = [0, 10, 60, 90]
    model = SampledShapley(SVC(), utility="roc_auc", progress=False).fit(X2.iloc[rows], y2[rows])
    found = model.value(X2.iloc[1::9], y2[1::9])
    assert found.parameters["utility_of_none"] == pytest.approx(0.5)
    assert found.values.sum() == pytest.approx(found.parameters["utility_of_all"] - 0.5)


def test_scores_of_regressors() -> None:
    X_train, y, X_val, y_val = X[::25, :3], X[::25, 3], X[3::10, :3], X[3::10, 3]
    found = SampledShapley(LinearRegression(), utility="r2", progress=False).fit(X_train, y).value(X_val, y_val)
    full = r2_score(y_val, LinearRegression().fit(X_train, y).predict(X_val))
    none = r2_score(y_val, DummyRegressor().fit(X_train, y).predict(X_val))
    assert found.values.sum() == pytest.approx(full - none)
    assert found.parameters["task"] == "regression"


def test_workers_and_checkpoints_change_nothing(tmp_path: Any) -> None:
    options: dict[str, Any] = {"sampler": "permutation", "max_fits": 40}
    one = value("f1_macro", **options)
    file = tmp_path / "run.npz"
    with joblib.parallel_config("threading"):
        assert np.array_equal(value("f1_macro", n_jobs=2, checkpoint=file, **options).values, one.values)
    macro, micro = (make_scorer(f1_score, average=average) for average in ("macro", "micro"))
    other = tmp_path / "other.npz"
    value(macro, checkpoint=other, **options)
    with pytest.raises(ValueError, match="differs in utility"):
        value(micro, checkpoint=other, **options)


def above(bound: float, model: Any, X: Any, y: Any) -> Any:
    return 1.0 * (model.predict_proba(X).max(axis=1) > bound)


class Above:
    def __init__(self, bound: float) -> None:
        self.bound = bound

    def __call__(self, model: Any, X: Any, y: Any) -> Any:
        return above(self.bound, model, X, y)


@pytest.mark.parametrize(
    "make",
    [
        lambda bound: make_scorer(lambda y, predicted: float((predicted > bound).mean())),
        lambda bound: partial(above, bound),
        Above,
        lambda bound: lambda model, X, y: above(bound, model, X, y),
    ],
    ids=["scorer", "partial", "object", "closure"],
)
def test_a_checkpoint_knows_its_utility_by_content(make: Any, tmp_path: Any) -> None:
    options: dict[str, Any] = {"sampler": "permutation", "max_fits": 20, "checkpoint": tmp_path / "run.npz"}
    first = value(make(0.5), **options)
    assert np.array_equal(value(make(0.5), **options).values, first.values)
    with pytest.raises(ValueError, match="differs in utility"):
        value(make(0.9), **options)
    with pytest.raises(ValueError, match="'checkpoint' parameter of SampledShapley cannot be used with this utility"):
        value(Above(threading.Lock()), **options)  # type: ignore[arg-type]


def test_labels_never_seen_are_no_other_class() -> None:
    model = SampledShapley(KNeighborsClassifier(1), utility=get_scorer("neg_log_loss"), progress=False)
    for utility in (get_scorer("neg_log_loss"), "roc_auc_ovr"):
        model.set_params(utility=utility).fit(X[ROWS], Y[ROWS])
        with (
            pytest.warns(UserWarning, match="never"),
            pytest.raises(ValueError, match=r"'utility' parameter of SampledShapley .*never seen in training"),
        ):
            model.value(X_VAL, np.where(Y_VAL == 2, 5, Y_VAL))


def test_a_function_may_work_in_place() -> None:
    def halved(model: Any, X: Any, y: Any) -> float:
        chances = model.predict_proba(X)
        chances *= 0.5
        return float(chances[:, 0].mean())

    one = value(halved)
    two = value(lambda model, X, y: float((0.5 * model.predict_proba(X))[:, 0].mean()))
    assert np.array_equal(one.values, two.values)
    np.testing.assert_allclose(one.standard_error, two.standard_error, rtol=1e-9)


@pytest.mark.parametrize("on_error", ["raise", "constant"])
def test_errors_of_a_score_are_not_those_of_the_coalition(on_error: str) -> None:
    def wrong(model: Any, X: Any, y: Any) -> Any:
        return model.predict(X).nothing()

    names = NAMES[Y]
    for utility, estimator, labels, cause in (
        ("roc_auc_ovr", SVC(), Y, "predict_proba"),
        (wrong, GaussianNB(), Y, "has no attribute 'nothing'"),
        ("f1", GaussianNB(), Y, "multiclass"),
        ("f1", GaussianNB(), np.where(names == "a", "p", "q"), "pos_label"),
    ):
        with pytest.raises(InputError, match=f"'utility' parameter of SampledShapley .*cannot be used with.*{cause}"):
            value(utility, estimator, labels, on_error=on_error)


class Unsteady(GaussianNB):
    def predict(self, X: Any) -> Any:
        raise RuntimeError("cannot predict")


def test_a_model_that_cannot_predict_is_still_the_coalitions_matter() -> None:
    with pytest.raises(InputError, match=r"Unsteady cannot be used on a coalition.*cannot predict"):
        value("f1_macro", Unsteady())
    assert np.isfinite(value("f1_macro", Unsteady(), on_error="constant").values).all()


def test_what_a_score_cannot_do_is_said() -> None:
    with pytest.raises(ValueError, match=r"'utility' parameter of SampledShapley .*f1_macro.* Got 'f1_makro'"):
        value("f1_makro")
    for sampler in ("classwise", "oob"):
        with pytest.raises(ValueError, match="score of the whole validation set"):
            value("f1_macro", sampler=sampler, max_fits=60)
    model = SampledShapley(KNeighborsClassifier(1), utility="f1_macro", progress=False).fit(X[ROWS], Y[ROWS])
    with pytest.raises(ValueError, match="matrix=True"):
        model.value(X_VAL, Y_VAL, matrix=True)
    with pytest.raises(ValueError, match="SVC has no predict_proba"):
        value("neg_log_loss", SVC())
    with pytest.raises(ValueError, match=r"gives nan on .* of the 4 validation points.*rare classes"):
        SampledShapley(LinearRegression(), utility="r2", progress=False).fit(X[::25], Y[::25]).value(
            X[:4], [1.0, 1.0, 1.0, 2.0], groups=["a", "b", "c", "d"]
        )


def test_one_point_and_audits() -> None:
    model = SampledShapley(GaussianNB(), utility="f1_macro", max_fits=40, progress=False).fit(X[::10], Y[::10])
    assert model.value(X_VAL[:1], Y_VAL[:1]).standard_error is None
    audit = audit_shift(model, X_VAL, Y_VAL, noise=[0.5], repeats=2, progress=False)
    assert np.isfinite(audit.statistic("std")[0]).all()
