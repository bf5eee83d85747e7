"""SampledShapley with real models: what a coalition is worth, owners, groups, failures, and everything downstream."""

from __future__ import annotations

import itertools
import math
import os
import pickle
import signal
import subprocess
import sys
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import joblib
import naive
import numpy as np
import pandas as pd
import pytest
from joblib.externals.loky import get_reusable_executor
from scipy import sparse
from sklearn.base import BaseEstimator, clone, is_regressor
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from shapshift import (
    Beta,
    BoundaryCorrector,
    KNNRegressionShapley,
    KNNShapley,
    SampledShapley,
    Valuation,
    allocate_budget,
    audit_shift,
)
from shapshift.methods import REGRESSORS
from shapshift.sampled import Distributional, Stratified, estimator
from shapshift.sampled._loop import Outcome, run_sampler
from shapshift.sampled.game import NAMED

N_VAL = 12


def data(n: int = 6, seed: int = 0, n_classes: int = 2) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    y, y_val = np.arange(n) % n_classes, rng.integers(0, n_classes, N_VAL)
    X, X_val = rng.normal(size=(n, 2)), rng.normal(size=(N_VAL, 2))
    X[:, 0] += y
    X_val[:, 0] += y_val
    return X, y, X_val, y_val


def worth(
    model: Any, X: np.ndarray, y: np.ndarray, rows: list[int], X_val: np.ndarray, y_val: np.ndarray
) -> np.ndarray:
    """Correct predictions per validation point: guess with no rows, the only class with one, else a fitted model."""
    if not rows:
        return np.full(len(y_val), 1 / len(np.unique(y)))
    if len(set(y[rows].tolist())) == 1:
        return (y_val == y[rows[0]]).astype(float)
    return (clone(model).fit(X[rows], y[rows]).predict(X_val) == y_val).astype(float)


def table(model: Any, X: np.ndarray, y: np.ndarray, owned: list[list[int]], X_val: Any, y_val: Any) -> np.ndarray:
    """Worth of every coalition of owners, in columns per validation point."""
    return np.array(
        [
            worth(model, X, y, sorted(r for i, o in enumerate(owned) if s >> i & 1 for r in o), X_val, y_val)
            for s in range(2 ** len(owned))
        ]
    )


def values(model: Any, X: Any, y: Any, X_val: Any, y_val: Any, *, players: Any = None, **options: Any) -> Valuation:
    value = {name: options.pop(name) for name in ("groups", "matrix") if name in options}
    sampled = SampledShapley(model, **{"progress": False, **options})
    return sampled.fit(X, y, players=players).value(X_val, y_val, **value)


class Centroids(BaseEstimator):  # type: ignore[misc]
    """The class with the nearest mean: a model that is fitted in microseconds."""

    def __init__(self, shift: float = 0.0) -> None:
        self.shift = shift

    def fit(self, X: Any, y: Any) -> Centroids:
        self.classes_ = np.unique(y)
        self.means_ = np.array([X[y == label].mean(axis=0) for label in self.classes_])
        return self

    def predict_proba(self, X: Any) -> Any:
        near = np.exp(-((X[:, None] - self.means_) ** 2).sum(axis=2) - self.shift)
        return near / near.sum(axis=1, keepdims=True)

    def predict(self, X: Any) -> Any:
        return self.classes_[self.predict_proba(X).argmax(axis=1)]


# --- against enumeration --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("semivalue", "name"),
    [("shapley", "shapley"), ("banzhaf", "banzhaf"), (Beta(4, 1), ("beta", 4, 1)), ("loo", "loo")],
)
def test_few_rows_are_valued_exactly(semivalue: Any, name: Any) -> None:
    X, y, X_val, y_val = data()
    found = values(Centroids(), X, y, X_val, y_val, semivalue=semivalue, matrix=True)
    game = table(Centroids(), X, y, [[i] for i in range(6)], X_val, y_val)
    exact = naive.subset_weights(6, naive.size_weights(6, 1, name)) @ game
    np.testing.assert_allclose(found.matrix, exact, atol=1e-12)
    np.testing.assert_allclose(found.values, exact.mean(axis=1), atol=1e-12)
    assert found.sampling["estimation_error"] == 0


@pytest.mark.parametrize("sampler", ["auto", "permutation", "stratified", "complementary", "group_testing"])
def test_owners_are_players(sampler: str) -> None:
    X, y, X_val, y_val = data(9)
    owners = ["c", "a", "b", "a", "c", "c", "d", "d", "e"]
    owned = [[0, 4, 5], [1, 3], [2], [6, 7], [8]]  # in order of first appearance
    found = values(Centroids(), X, y, X_val, y_val, players=owners, sampler=sampler, max_fits=60)
    game = table(Centroids(), X, y, owned, X_val, y_val).mean(axis=1)
    exact = naive.semivalues(game, naive.size_weights(5, 1, "shapley"))
    assert found.ids.tolist() == ["c", "a", "b", "d", "e"]
    assert (np.abs(found.values - exact) <= 4 * found.standard_error + 1e-12).all()
    assert found.values.sum() == pytest.approx(game[-1] - game[0])
    assert found.parameters["utility_of_all"] == pytest.approx(game[-1])
    assert found.parameters["utility_of_none"] == pytest.approx(game[0])
    assert allocate_budget(found, 100, owners=found.ids).owners == tuple(found.ids)


def test_class_wise_values_against_enumeration() -> None:
    X, y, X_val, y_val = data(6, n_classes=3)
    found = values(Centroids(), X, y, X_val, y_val, sampler="classwise", max_fits=200)
    exact = np.zeros(6)
    for c in range(3):
        members, others = np.flatnonzero(y == c).tolist(), np.flatnonzero(y != c).tolist()
        total = np.zeros(2 ** len(members))
        for around in range(2 ** len(others)):
            fixed = [row for i, row in enumerate(others) if around >> i & 1]
            for inside in range(total.size):
                rows = sorted(fixed + [row for i, row in enumerate(members) if inside >> i & 1])
                right = worth(Centroids(), X, y, rows, X_val, y_val)
                total[inside] += right[y_val == c].sum() / N_VAL * math.exp(right[y_val != c].sum() / N_VAL)
        mean = total / 2 ** len(others)
        exact[members] = naive.semivalues(mean, naive.size_weights(len(members), 1, "shapley"))
    error = np.sqrt(found.sampling["estimation_error"] * np.mean(found.standard_error**2))  # on these very points
    assert (np.abs(found.values - exact) < 6 * error).all()
    assert error < 0.1 * exact.std()


@pytest.mark.parametrize("players", [None, [0, 1, 2, 0]])
def test_out_of_bag_values_against_all_bootstraps(players: list[int] | None) -> None:
    X, y, X_val, y_val = data(4, seed=4)
    owners = players or [0, 1, 2, 3]
    n = len(set(owners))
    total, count = np.zeros(n), np.zeros(n)
    for bag in itertools.product(range(n), repeat=n):
        rows = sorted(row for player in bag for row, owner in enumerate(owners) if owner == player)
        for player in set(range(n)) - set(bag):
            own = [row for row, owner in enumerate(owners) if owner == player]
            total[player] += worth(Centroids(), X, y, rows, X[own], y[own]).mean()
            count[player] += 1
    found = values(Centroids(), X, y, X_val, y_val, sampler="oob", max_fits=400, players=players)
    assert (np.abs(found.values - total / count) < 4 * found.standard_error + 1e-12).all()
    assert found.standard_error.max() < 0.05
    other = values(Centroids(), X, y, -X_val, y_val, sampler="oob", max_fits=400, players=players)
    np.testing.assert_array_equal(other.values, found.values)  # the validation set does not enter


def test_knn_is_valued_as_the_exact_engine_does() -> None:
    X, y, X_val, y_val = data(6)
    soft = values(
        KNeighborsClassifier(3), X, y, X_val, y_val, utility="probability", on_error="constant", sampler="exact"
    )
    # Coalitions of fewer than three rows of both classes cannot be fitted and count as their majority class, so only
    # the values of larger ones can agree: leave-one-out has nothing but those.
    loo = values(KNeighborsClassifier(3), X, y, X_val, y_val, utility="probability", semivalue="loo")
    exact = KNNShapley(3, semivalue="loo", progress=False).fit(X, y).value(X_val, y_val)
    np.testing.assert_allclose(loo.values, exact.values, atol=1e-12)
    np.testing.assert_allclose(soft.entropy, exact.entropy, atol=1e-12)
    np.testing.assert_array_equal(soft.level_counts, exact.level_counts)


def test_regression_values_against_enumeration() -> None:
    X, _, X_val, _ = data(5)
    y, y_val = X @ [1.0, 2.0] + 0.1 * np.arange(5), X_val @ [1.0, 2.0]
    found = values(DecisionTreeRegressor(random_state=0), X, y, X_val, y_val)

    def squares(rows: list[int]) -> float:
        model = DecisionTreeRegressor(random_state=0)
        guess = model.fit(X[rows], y[rows]).predict(X_val) if rows else np.full(N_VAL, y.mean())
        return -float(np.mean((guess - y_val) ** 2))

    game = [squares([i for i in range(5) if s >> i & 1]) for s in range(32)]
    np.testing.assert_allclose(found.values, naive.semivalues(game, naive.size_weights(5, 1, "shapley")), atol=1e-12)
    near = KNNRegressionShapley(progress=False).fit(X, y).value(X_val, y_val)
    np.testing.assert_array_equal(found.entropy, near.entropy)
    np.testing.assert_array_equal(found.level_counts, near.level_counts)
    assert not hasattr(SampledShapley(LinearRegression()).fit(X, y), "classes_")


# --- the result -----------------------------------------------------------------------------------------------------


KILLED = """
import os, time
import numpy as np
from sklearn.base import BaseEstimator
from shapshift import SampledShapley

FOLDER = {folder!r}


class Slow(BaseEstimator):
    def fit(self, X, y):
        open(os.path.join(FOLDER, str(os.getpid())), "w").close()
        time.sleep(0.02)
        self.label_ = y[0]
        return self

    def predict(self, X):
        return np.full(len(X), self.label_)


X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
SampledShapley(Slow(), max_fits=10**6, n_jobs=2, cache=0, progress=False).fit(X, y).value(X, y)
"""


def is_running(process: int) -> bool:
    """Whether a process is there, and not only waiting for its end to be noticed."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to look at processes")
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    script = KILLED.format(folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", script], stderr=subprocess.DEVNULL) as process:
        while len(workers := [int(path.name) for path in tmp_path.iterdir()]) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.kill()
    patience = time.monotonic() + 60  # joblib's own workers wait five minutes
    while any(map(is_running, workers)) and time.monotonic() < patience:
        time.sleep(0.1)
    left = [worker for worker in workers if is_running(worker)]
    for worker in left:
        os.kill(worker, signal.SIGKILL)
    assert not left


class FirstLabel(BaseEstimator):
    """Predicts the first label it has seen."""

    def fit(self, X: np.ndarray, y: np.ndarray) -> FirstLabel:
        self.label_ = y[0]
        return self

    def predict(self, X: np.ndarray) -> np.ndarray:
        return np.full(len(X), self.label_)


def test_out_of_bag_needs_memory_in_proportion_to_the_rows() -> None:
    n = 4000
    X, y = np.arange(2.0 * n).reshape(n, 2), np.arange(n) % 2
    model = SampledShapley(FirstLabel(), sampler="oob", max_fits=60, cache=0, progress=False).fit(X, y)
    tracemalloc.start()
    try:
        model.value(X[:5], y[:5])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < n * n  # bytes: an eighth of a square of floats


@pytest.mark.parametrize("sampler", ["permutation", "classwise", "oob"])
def test_groups_levels_and_matrix_add_up(sampler: str, tmp_path: Path) -> None:
    X, y, X_val, y_val = data(20)
    groups = np.where(np.arange(N_VAL) < 5, "first", "second")
    plain = values(Centroids(), X, y, X_val, y_val, sampler=sampler, max_fits=150, groups=groups)
    whole = values(Centroids(), X, y, X_val, y_val, sampler=sampler, max_fits=150, groups=groups, matrix=True)
    for name in ("values", "level_values", "group_means", "standard_error"):
        np.testing.assert_allclose(getattr(plain, name), getattr(whole, name), atol=1e-12)
    assert plain.matrix is None
    assert whole.matrix is not None
    np.testing.assert_allclose(whole.matrix.mean(axis=1), whole.values, atol=1e-12)
    np.testing.assert_allclose(whole.matrix[:, :5].mean(axis=1), whole.group_values["first"], atol=1e-12)
    boundary = whole.boundary_values
    if boundary is not None:
        np.testing.assert_allclose(whole.matrix[:, whole.boundary].mean(axis=1), boundary, atol=1e-12)
    near = KNNShapley(progress=False).fit(X, y).value(X_val, y_val)
    np.testing.assert_array_equal(plain.entropy, near.entropy)
    np.testing.assert_array_equal(plain.level_counts, near.level_counts)
    plain.save(tmp_path / "values.npz")
    loaded = Valuation.load(tmp_path / "values.npz")
    np.testing.assert_array_equal(loaded.standard_error, plain.standard_error)
    assert loaded.parameters == plain.parameters


def test_workers_change_nothing() -> None:
    X, y, X_val, y_val = data(12)
    options = {"sampler": "permutation", "max_fits": 120}
    one = values(Centroids(), X, y, X_val, y_val, **options, n_jobs=1)
    with joblib.parallel_config("threading", n_jobs=3):
        three = values(Centroids(), X, y, X_val, y_val, **options)
    assert one.values.tobytes() == three.values.tobytes()
    assert one.standard_error.tobytes() == three.standard_error.tobytes()
    assert one.parameters == three.parameters


def test_processes_give_the_bytes_of_threads() -> None:
    X, y, X_val, y_val = data(12)
    options = {"sampler": "permutation", "max_fits": 60, "utility": "probability"}
    found = {}
    for backend in ("threading", "loky"):
        with joblib.parallel_config(backend, n_jobs=2):
            found[backend] = values(GaussianNB(), X, y, X_val, y_val, **options)
    get_reusable_executor().shutdown(wait=True)
    for name in ("values", "standard_error", "level_values"):
        assert getattr(found["threading"], name).tobytes() == getattr(found["loky"], name).tobytes()
    assert found["threading"].parameters == found["loky"].parameters


class WarnsOfSizes(Centroids):
    """Warns of every third size, and takes its time, so that threads overlap."""

    def fit(self, X: Any, y: Any) -> WarnsOfSizes:
        time.sleep(0.0005 * (len(y) % 5))
        if len(y) % 3 == 0:
            warnings.warn("a multiple of three", RuntimeWarning, stacklevel=2)
        super().fit(X, y)
        return self


def test_threads_hear_the_warnings_of_their_own_fits_and_leave_the_filters_as_they_were() -> None:
    X, y, X_val, y_val = data(20)
    said = []
    filters, show = list(warnings.filters), warnings.showwarning
    for workers in (1, 4):
        with (
            joblib.parallel_config("threading", n_jobs=workers),
            pytest.warns(UserWarning, match=r"The estimator warned in \d+ of \d+ fits") as caught,
        ):
            values(WarnsOfSizes(), X, y, X_val, y_val, sampler="permutation", max_fits=300)
        assert len(caught) == 1
        said.append(str(caught[0].message))
    assert said[0] == said[1]
    assert (warnings.filters, warnings.showwarning) == (filters, show)


def test_what_workers_run_can_be_sent_to_them(monkeypatch: pytest.MonkeyPatch) -> None:
    sent = []

    def run(game: Any, plan: Any) -> Outcome:
        sent.append(pickle.loads(pickle.dumps(game)))
        return run_sampler(sent[-1], plan)

    monkeypatch.setattr(estimator, "run_sampler", run)
    X, y, X_val, y_val = data()
    found = values(Centroids(), X, y, X_val, y_val)
    monkeypatch.undo()
    np.testing.assert_array_equal(found.values, values(Centroids(), X, y, X_val, y_val).values)
    assert len(sent) == 1


def test_same_seed_same_bytes_and_another_seed_other_values() -> None:
    X, y, X_val, y_val = data(20)
    forest = RandomForestClassifier(2)  # its own seed is open
    runs = [values(forest, X, y, X_val, y_val, max_fits=45, random_state=seed).values for seed in (0, 0, 1, None)]
    assert runs[0].tobytes() == runs[1].tobytes()
    assert (runs[0] != runs[2]).any()
    assert (runs[0] != runs[3]).any()


def test_row_order_means_nothing_to_enumerated_values() -> None:
    X, y, X_val, y_val = data()
    order = np.array([3, 0, 5, 1, 4, 2])
    straight = values(Centroids(), X, y, X_val, y_val).values
    np.testing.assert_allclose(
        values(Centroids(), X[order], y[order], X_val, y_val).values, straight[order], atol=1e-12
    )


def test_equal_rows_get_equal_values() -> None:
    X, y, X_val, y_val = data(7)
    X[1], y[1] = X[0], y[0]
    found = values(Centroids(), X, y, X_val, y_val).values
    assert found[0] == pytest.approx(found[1], abs=1e-15)


# --- estimators -----------------------------------------------------------------------------------------------------


class NeedsBothClasses(BaseEstimator):  # type: ignore[misc]
    """Refuses one class, and fewer than three rows."""

    def fit(self, X: Any, y: Any) -> NeedsBothClasses:
        assert len(np.unique(y)) > 1, "one class"
        if len(y) < 3:
            raise ArithmeticError("too few rows")
        self.model_ = Centroids().fit(X, y)
        return self

    def predict(self, X: Any) -> Any:
        return self.model_.predict(X)


def test_one_class_coalitions_never_reach_the_estimator() -> None:
    X, y, X_val, y_val = data()
    with pytest.raises(
        ValueError, match=r"NeedsBothClasses cannot be used on a coalition of 2 of the 6 training rows "
    ):
        values(NeedsBothClasses(), X, y, X_val, y_val)
    found = values(NeedsBothClasses(), X, y, X_val, y_val, on_error="constant")
    game = table(Centroids(), X, y, [[i] for i in range(6)], X_val, y_val).mean(axis=1)
    for i, j in itertools.combinations(range(6), 2):
        if y[i] != y[j]:
            game[1 << i | 1 << j] = np.mean(y_val == 0)  # a draw goes to the first class
    np.testing.assert_allclose(found.values, naive.semivalues(game, naive.size_weights(6, 1, "shapley")), atol=1e-12)


def test_all_training_rows_of_one_class() -> None:
    X, _, X_val, y_val = data()
    with pytest.warns(UserWarning, match="never seen in training"):
        found = values(LogisticRegression(), X, np.zeros(6, dtype=int), X_val, y_val)
    np.testing.assert_allclose(found.values, (np.mean(y_val == 0) - np.mean(y_val == 0)) / 6, atol=1e-12)
    assert found.parameters["n_fits"] == 0


class PredictsNaN(NeedsBothClasses):
    def fit(self, X: Any, y: Any) -> PredictsNaN:
        return self

    def predict(self, X: Any) -> Any:
        return np.full(len(X), np.nan)


def test_predictions_that_are_no_numbers() -> None:
    X, y, X_val, y_val = data()
    with pytest.raises(ValueError, match=r"on a coalition of .* is NaN or infinite"):
        values(PredictsNaN(), X, y.astype(float), X_val, y_val.astype(float), utility="squared_error")


def test_utilities() -> None:
    X, y, X_val, y_val = data()
    names = np.array(["no", "yes"])
    model = Centroids()
    soft = values(model, X, names[y], X_val, names[y_val], utility="probability")

    def chance(model: Any, X_val: Any, y_val: Any) -> Any:
        column = np.searchsorted(model.classes_, y_val)
        return model.predict_proba(X_val)[np.arange(len(y_val)), column]

    own = values(model, X, names[y], X_val, names[y_val], utility=chance)
    np.testing.assert_allclose(own.values, soft.values, atol=1e-12)
    fitted = model.fit(X, y)
    everybody = fitted.predict_proba(X_val)[np.arange(N_VAL), y_val].mean()
    assert soft.values.sum() == pytest.approx(everybody - 0.5)
    with pytest.raises(ValueError, match=r"must return one number per point, 12, or one number in all. Got shape"):
        values(model, X, y, X_val, y_val, utility=lambda model, X, y: np.ones(3))
    with pytest.raises(ValueError, match="LinearSVC has no predict_proba"):
        values(LinearSVC(), X, y, X_val, y_val, utility="probability")


def test_frames_pipelines_and_sparse_rows() -> None:
    X, y, X_val, y_val = data(5)
    frame = pd.DataFrame(X, columns=["a", "b"], index=[f"row{i}" for i in range(5)])
    by_name = make_pipeline(ColumnTransformer([("scale", StandardScaler(), ["a", "b"])]), GaussianNB())
    X_frame = pd.DataFrame(X_val, columns=["a", "b"])[["b", "a"]]
    found = values(by_name, frame, y, X_frame, y_val, max_fits=300)
    assert found.ids.tolist() == list(frame.index)
    assert found.to_frame().index.tolist() == list(frame.index)
    scaled = values(make_pipeline(StandardScaler(), GaussianNB()), X, y, X_val, y_val, max_fits=300)
    np.testing.assert_allclose(found.values, scaled.values, atol=1e-12)
    tree = DecisionTreeClassifier(random_state=0)
    thin = values(tree, sparse.csr_array(X), y, sparse.csr_array(X_val), y_val, max_fits=300)
    np.testing.assert_allclose(thin.values, values(tree, X, y, X_val, y_val, max_fits=300).values, atol=1e-12)


def test_models_by_name() -> None:
    X, y, X_val, y_val = data(5)
    by_name = values("naive_bayes", X, y, X_val, y_val)
    np.testing.assert_array_equal(by_name.values, values(GaussianNB(), X, y, X_val, y_val).values)
    assert by_name.parameters["estimator"].startswith("GaussianNB(")
    assert values("linear", X, X[:, 0], X_val, X_val[:, 0]).parameters["task"] == "regression"
    regressors = [name for name, make in NAMED.items() if is_regressor(make())]
    assert regressors == list(REGRESSORS)
    with pytest.raises(ValueError, match="'estimator' parameter of SampledShapley must be one of 'logistic', "):
        values("bayes", X, y, X_val, y_val)


def test_warm_start() -> None:
    X, y, X_val, y_val = data(10)
    model = LogisticRegression(tol=1e-8, max_iter=1000)
    cold = values(model, X, y, X_val, y_val, max_fits=30, utility="probability", sampler="permutation", cache=0)
    warm = values(model, X, y, X_val, y_val, max_fits=30, utility="probability", sampler="permutation", warm_start=True)
    np.testing.assert_allclose(warm.values, cold.values, atol=1e-4 * cold.values.std())
    with pytest.raises(
        ValueError, match=r"'warm_start' .* needs an estimator with a parameter of that name, and Centroids has none"
    ):
        values(Centroids(), X, y, X_val, y_val, warm_start=True)
    with pytest.raises(ValueError, match="does not go with RandomForestClassifier: its own warm start adds members"):
        values(RandomForestClassifier(), X, y, X_val, y_val, warm_start=True)


def test_warnings_of_the_estimator_come_once() -> None:
    X, y, X_val, y_val = data(6)
    with pytest.warns(
        UserWarning, match=r"The estimator warned in \d+ of \d+ fits, first: ConvergenceWarning"
    ) as caught:
        values(LogisticRegression(max_iter=1), X, y, X_val, y_val)
    assert not [entry for entry in caught if entry.category is ConvergenceWarning]
    assert len(caught) == 1


def test_precision_that_is_not_reached_is_warned_about() -> None:
    X, y, X_val, y_val = data(20)
    with pytest.warns(UserWarning, match=r"'tol' asks for 0.001. Raise 'max_fits' from 100"):
        values(Centroids(), X, y, X_val, y_val, max_fits=100, tol=0.001)


def test_checkpoint_of_other_data_or_parameters(tmp_path: Path) -> None:
    X, y, X_val, y_val = data(8)
    options = {"checkpoint": tmp_path / "run.npz", "max_fits": 100, "sampler": "permutation"}
    first = values(Centroids(), X, y, X_val, y_val, **options)
    again = values(Centroids(), X, y, X_val, y_val, **options)
    assert first.values.tobytes() == again.values.tobytes()
    with pytest.raises(ValueError, match="differs in validation set or groups"):
        values(Centroids(), X, y, X_val + 1, y_val, **options)
    with pytest.raises(ValueError, match="differs in training rows"):
        values(Centroids(), X + 1, y, X_val, y_val, **options)
    with pytest.raises(
        ValueError, match=r"differs in estimator \(Centroids\(shift=0.0\) there, Centroids\(shift=0.1\) here\)"
    ):
        values(Centroids(shift=0.1), X, y, X_val, y_val, **options)
    with pytest.raises(ValueError, match=r"random_state \(0 there, 5 here\)"):
        values(Centroids(), X, y, X_val, y_val, **options, random_state=5)


class Plain:
    """Has fit and predict, and nothing else of scikit-learn's."""

    def __init__(self, shift: float) -> None:
        self.shift = shift

    def fit(self, X: Any, y: Any) -> Plain:
        self.middle_ = X[:, 0].mean() + self.shift
        return self

    def predict(self, X: Any) -> Any:
        return (X[:, 0] > self.middle_).astype(int)


def test_checkpoint_tells_plain_models_and_functions_of_one_name_apart(tmp_path: Path) -> None:
    X, y, X_val, y_val = data(8)
    options = {"checkpoint": tmp_path / "run.npz", "max_fits": 100, "sampler": "permutation"}
    values(Plain(0.0), X, y, X_val, y_val, **options)
    with pytest.raises(ValueError, match=r"differs in estimator \(Plain\(shift=0.0\) there, Plain\(shift=0.5\) here\)"):
        values(Plain(0.5), X, y, X_val, y_val, **options)
    options["checkpoint"] = tmp_path / "other.npz"
    first = values(Plain(0.0), X, y, X_val, y_val, **options, utility=lambda model, X, y: 1.0 * (model.predict(X) == y))
    again = values(Plain(0.0), X, y, X_val, y_val, **options, utility=lambda model, X, y: 1.0 * (model.predict(X) == y))
    assert first.values.tobytes() == again.values.tobytes()
    with pytest.raises(ValueError, match="differs in utility"):
        values(Plain(0.0), X, y, X_val, y_val, **options, utility=lambda model, X, y: 2.0 * (model.predict(X) == y))


# --- downstream -----------------------------------------------------------------------------------------------------


def test_audit_and_correction_take_it_unchanged() -> None:
    X, y, X_val, y_val = data(16)
    model = SampledShapley(Centroids(), max_fits=60, progress=False).fit(X, y)
    audit = audit_shift(model, X_val, y_val, noise=[0.1], repeats=2, progress=False)
    assert np.isfinite(audit.statistic("spearman")[0]).all()
    clean, noisy = model.value(X_val, y_val), model.value(X_val + 0.3, y_val)
    corrector = BoundaryCorrector(min_points=1).fit(clean)
    assert corrector.transform(noisy).values.shape == (16,)
    other = SampledShapley(LogisticRegression(), max_fits=60, progress=False).fit(X, y).value(X_val, y_val)
    with pytest.raises(ValueError, match="was computed with estimator="):
        corrector.transform(other)


# --- bad input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"semivalue": "myerson"},
            "'semivalue' parameter of SampledShapley must be one of 'shapley', 'banzhaf', 'loo'",
        ),
        ({"sampler": Stratified(), "semivalue": "loo"}, "with sampler='stratified'"),
        ({"utility": "acuracy"}, "'utility' parameter of SampledShapley must be one of 'auto', 'correct'"),
        ({"max_fits": 0}, "'max_fits' parameter of SampledShapley must be at least 1"),
        ({"tol": 0.0}, "'tol' parameter of SampledShapley must be a finite number above 0"),
        ({"on_error": "ignore"}, "'on_error' parameter of SampledShapley must be one of 'raise', 'constant'"),
        ({"cache": "lots"}, "'cache' parameter of SampledShapley must be a positive number of bytes"),
        ({"n_jobs": 0}, "'n_jobs' parameter of SampledShapley must be None"),
        ({"semivalue": Distributional(7), "max_fits": 100}, "at most the number of players, 6. Got 7"),
        ({"players": list("abcdefgh")}, r"'players' .* cannot be more owners than rows. Got 8 entries"),
        ({"players": list("ababab"), "sampler": "classwise"}, "must have rows of one class|every player"),
    ],
)
def test_bad_parameters(options: dict[str, Any], message: str) -> None:
    X, y, X_val, y_val = data()
    if options.get("sampler") == "classwise":
        y = np.array([0, 0, 1, 1, 0, 1])
    with pytest.raises(ValueError, match=message):
        values(Centroids(), X, y, X_val, y_val, **options)


def test_bad_estimators_and_targets() -> None:
    X, y, X_val, y_val = data()
    with pytest.raises(
        TypeError, match=r"must be an object with fit\(X, y\) and predict\(X\).* Got the class GaussianNB"
    ):
        values(GaussianNB, X, y, X_val, y_val)
    with pytest.raises(TypeError, match="Got StandardScaler instead"):
        values(StandardScaler(), X, y, X_val, y_val)
    with pytest.raises(ValueError, match=r"'y' must hold numbers for a regressor. Got 'a'"):
        values(LinearRegression(), X, list("ababab"), X_val, y_val)
    with pytest.raises(ValueError, match="'X_val' has 1 features, but the training rows have 2"):
        values(Centroids(), X, y, X_val[:, :1], y_val)
