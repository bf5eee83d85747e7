"""KNNShapley as a scikit-learn estimator."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks

from shapshift import (
    Beta,
    KNNRegressionShapley,
    KNNShapley,
    ThresholdKNNShapley,
    Valuation,
    ValuationStore,
    WeightedKNNShapley,
    knn_interactions,
    owner_values,
)

RNG = np.random.default_rng(0)
X, Y = RNG.normal(size=(50, 3)), RNG.integers(0, 2, size=50)
X_VAL, Y_VAL = RNG.normal(size=(20, 3)), RNG.integers(0, 2, size=20)

# Checks that cannot pass, each with its reason. An entry that passes after all fails the test (xfail is strict).
EXPECTED_FAILURES: dict[str, str] = {}


def expected_failures(estimator: KNNShapley) -> dict[str, str]:
    return EXPECTED_FAILURES


@parametrize_with_checks([KNNShapley()], expected_failed_checks=expected_failures)
def test_estimator_checks(estimator: KNNShapley, check: Any) -> None:
    check(estimator)


# --- parameters -----------------------------------------------------------------------------------------------------

SETTINGS: dict[str, Any] = {
    "n_neighbors": 3,
    "utility": "hard",
    "semivalue": Beta(4, 1),
    "metric": "cosine",
    "method": "certified",
    "tol": 1e-2,
    "search": "exact",
    "ties": "index",
    "boundary_neighbors": 3,
    "boundary_entropy": 0.5,
    "device": "cpu",
    "n_jobs": 2,
    "max_memory": "1GB",
    "progress": False,
    "scratch": None,
}


def test_parameters_come_back_as_they_were_given() -> None:
    assert KNNShapley(**SETTINGS).get_params() == SETTINGS
    assert KNNShapley().set_params(**SETTINGS).get_params() == SETTINGS
    assert KNNShapley(7).n_neighbors == 7


def test_a_clone_has_the_parameters_and_not_the_fit() -> None:
    model = KNNShapley(**SETTINGS).fit(X, Y)
    copy = clone(model)
    assert copy.get_params() == SETTINGS
    assert not hasattr(copy, "classes_")
    again = copy.fit(X, Y).value(X_VAL, Y_VAL)
    assert np.array_equal(again.values, model.value(X_VAL, Y_VAL).values)


def test_all_but_the_number_of_neighbors_go_by_name() -> None:
    with pytest.raises(TypeError, match="positional"):
        KNNShapley(5, "hard")


def test_repr_shows_what_was_changed() -> None:
    assert repr(KNNShapley(3, semivalue=Beta(4, 1))) == "KNNShapley(n_neighbors=3, semivalue=Beta(alpha=4, beta=1))"


def test_fit_returns_the_model_and_value_leaves_it_alone() -> None:
    model = KNNShapley()
    assert model.fit(X, Y) is model
    before = dict(vars(model))
    first = model.value(X_VAL, Y_VAL)
    assert isinstance(first, Valuation)
    assert dict(vars(model)) == before
    assert np.array_equal(model.value(X_VAL, Y_VAL).values, first.values)


def test_fitting_again_forgets_the_first_fit() -> None:
    model = KNNShapley().fit(np.hstack([X, X]), np.arange(50) % 5, ids=range(1000, 1050))
    model.fit(X, Y)
    fresh = KNNShapley().fit(X, Y).value(X_VAL, Y_VAL)
    again = model.value(X_VAL, Y_VAL)
    assert np.array_equal(again.values, fresh.values)
    assert np.array_equal(again.ids, fresh.ids)
    assert again.fingerprint == fresh.fingerprint


@pytest.mark.parametrize("changed", [{"n_neighbors": 2}, {"utility": "hard"}, {"ties": "index"}, {"semivalue": "loo"}])
def test_parameters_changed_after_fit_take_effect(changed: dict[str, Any]) -> None:
    model = KNNShapley().fit(np.round(X), Y).set_params(**changed)
    expected = KNNShapley(**changed).fit(np.round(X), Y).value(X_VAL, Y_VAL)
    assert np.array_equal(model.value(X_VAL, Y_VAL).values, expected.values)


@pytest.mark.parametrize(
    "use",
    [
        lambda model: model.value(X[1:], Y[1:]),
        lambda model: model.value_and_neighbors(X, Y),
        lambda model: ValuationStore(model),
        lambda model: knn_interactions(model, X, Y),
        lambda model: owner_values(model, X, Y, owners=np.arange(len(Y)) % 2),
    ],
    ids=["value", "value_and_neighbors", "ValuationStore", "knn_interactions", "owner_values"],
)
@pytest.mark.parametrize(
    ("fitted", "now"), [("euclidean", "cosine"), ("cosine", "manhattan"), ("manhattan", "sqeuclidean")]
)
def test_a_metric_changed_after_fit_is_refused(use: Any, fitted: str, now: str) -> None:
    model = KNNShapley(metric=fitted).fit(X, Y).set_params(metric=now)
    with pytest.raises(ValueError, match=rf"'metric' parameter was {fitted!r} when .* is {now!r} now\. Fit again"):
        use(model)
    use(model.fit(X, Y))


@pytest.mark.parametrize(
    "relative", [ThresholdKNNShapley(1.0), WeightedKNNShapley(2), KNNRegressionShapley(2)], ids=str
)
def test_a_metric_changed_after_fit_is_refused_by_relatives(relative: Any) -> None:
    model = relative.fit(X, Y).set_params(metric="manhattan")
    with pytest.raises(ValueError, match=r"metric.*'euclidean'.*'manhattan'"):
        model.value(X_VAL, Y_VAL)


# --- progress -------------------------------------------------------------------------------------------------------

VALUE_SOMETHING = """
import numpy as np
from shapshift import KNNShapley
rng = np.random.default_rng(0)
X, y = rng.normal(size=(20_000, 2)), rng.integers(0, 2, size=20_000)
KNNShapley(n_jobs=2, progress={progress}).fit(X, y).value(rng.normal(size=(400, 2)), rng.integers(0, 2, size=400))
"""


@pytest.mark.parametrize("progress", [None, False])
def test_a_pipe_stays_silent(progress: bool | None) -> None:
    code = VALUE_SOMETHING.format(progress=progress)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == run.stderr == ""


def test_progress_that_was_asked_for_goes_to_stderr() -> None:
    code = VALUE_SOMETHING.format(progress=True)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == ""
    assert "400/400" in run.stderr


def test_a_terminal_sees_a_bar_that_moves_through_the_tiles() -> None:
    pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", VALUE_SOMETHING.format(progress=None)], stdout=subprocess.DEVNULL, stderr=theirs
    ) as run:
        os.close(theirs)
        seen = b""
        while True:
            try:
                chunk = os.read(ours, 65_536)
            except OSError:  # how Linux says that the other end was closed
                break
            if not chunk:
                break
            seen += chunk
    os.close(ours)
    assert run.returncode == 0
    assert b"400/400" in seen
