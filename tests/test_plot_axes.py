"""Every figure can be drawn into the caller's own axes."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest

mpl.use("Agg")
import matplotlib.pyplot as plt
from sklearn.naive_bayes import GaussianNB

import shapshift
from shapshift import (
    BoundaryCorrector,
    Decisions,
    FederatedRound,
    KNNShapley,
    allocate_budget,
    audit_influence,
    audit_payouts,
    audit_shift,
    case_one,
    case_two,
    design_validation,
    entropy_profile,
    evaluate,
    evaluate_valuation,
    federated_values,
    find_suspects,
    knn_interactions,
    measure_cleaning,
    noise_demo,
    owner_values,
    stress_market,
)
from shapshift.plots import audit, mechanism, results

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(80, 2)), RNG.normal(size=(40, 2))
Y, Y_VAL = (X[:, 0] + 0.3 * X[:, 1] > 0).astype(int), (X_VAL[:, 0] > 0).astype(int)
MODEL = KNNShapley(progress=False).fit(X, Y)
NOISY = X_VAL + RNG.normal(size=X_VAL.shape)
OWNERS = ["a", "b", "c", "d"] * 20
LEVELS = [0.1, 0.5]


@cache
def results_of() -> dict[str, Any]:
    clean, noisy = MODEL.value(X_VAL, Y_VAL), MODEL.value(NOISY, Y_VAL)
    return {
        "Valuation": clean,
        "ShiftAudit": audit_shift(MODEL, X_VAL, Y_VAL, noise=LEVELS, repeats=2, progress=False),
        "CorrectionEvaluation": evaluate(BoundaryCorrector().fit(clean).transform(noisy), clean, noisy),
        "ValuationEvaluation": evaluate_valuation(clean, X, Y, estimator=GaussianNB(), X_test=X_VAL, y_test=Y_VAL),
        "ValuationComparison": evaluate_valuation(
            {"clean": clean, "noisy": noisy}, X, Y, estimator=GaussianNB(), X_test=X_VAL, y_test=Y_VAL
        ),
        "Suspects": find_suspects(X, np.where(np.arange(80) % 20 == 0, 1 - Y, Y), error=0.3),
        "Interactions": knn_interactions(MODEL, X_VAL, Y_VAL, owners=OWNERS),
        "InfluenceAudit": audit_influence(MODEL, X_VAL, Y_VAL, 100, owners=OWNERS, draws=99),
        "Allocation": allocate_budget(clean, 100, owners=OWNERS),
        "OwnerValues": owner_values(MODEL, X_VAL, Y_VAL, OWNERS),
        "FederatedValues": federated_values([FederatedRound(("a", "b"), len)]),
        "PayoutAudit": audit_payouts(MODEL, X_VAL, Y_VAL, 100, owners=OWNERS, noise=LEVELS, repeats=2),
        "CleaningEffect": measure_cleaning(
            Decisions.of(X, Y, ids=range(5), actions=["drop"] * 5),
            X,
            Y,
            X_VAL,
            Y_VAL,
            "logistic",
            repeats=2,
            progress=False,
        ),
        "StressTest": stress_market(MODEL, X, Y, X_VAL, Y_VAL, OWNERS, 100, attackers=2, n_repeats=1, progress=False),
        "ProfileComparison": entropy_profile(X, Y, X_VAL, Y_VAL, draws=50),
        "DesignResult": design_validation(MODEL, X_VAL, Y_VAL, 15, noise=0.5, repeats=2, holdout=2, n_random=5),
        "CaseOne": case_one(MODEL, X_VAL, Y_VAL, noise=LEVELS, repeats=2),
        "CaseTwo": case_two(MODEL, X_VAL, Y_VAL, noise=LEVELS, repeats=2, X_train=X),
        "NoiseDemo": noise_demo(MODEL, X_VAL, Y_VAL, X),
    }


# The function or method, and how many Axes it takes.
FUNCTIONS: dict[Callable[..., Any], tuple[int, Callable[[dict[str, Any]], tuple[Any, ...]]]] = {
    results.plot_values: (1, lambda made: (made["Valuation"],)),
    results.plot_intervals: (1, lambda made: (made["Valuation"],)),
    results.plot_reliability: (1, lambda made: (made["Valuation"],)),
    results.plot_correction: (3, lambda made: (made["CorrectionEvaluation"],)),
    results.plot_evaluation: (2, lambda made: (made["ValuationEvaluation"],)),
    results.plot_comparison: (2, lambda made: (made["ValuationComparison"],)),
    results.plot_suspects: (2, lambda made: (made["Suspects"],)),
    results.plot_interactions: (1, lambda made: (made["Interactions"],)),
    results.plot_influence: (1, lambda made: (made["InfluenceAudit"],)),
    results.plot_owners: (1, lambda made: (made["OwnerValues"],)),
    results.plot_payout_audit: (1, lambda made: (made["PayoutAudit"],)),
    results.plot_cleaning: (1, lambda made: (made["CleaningEffect"],)),
    results.plot_payouts: (1, lambda made: (made["Allocation"],)),
    results.plot_stress: (1, lambda made: (made["StressTest"],)),
    results.plot_profile: (1, lambda made: (made["ProfileComparison"],)),
    results.plot_design: (1, lambda made: (made["DesignResult"],)),
    audit.plot_statistic: (1, lambda made: (made["ShiftAudit"], "std")),
    audit.plot_neighbors: (1, lambda made: (made["ShiftAudit"],)),
    audit.plot_shift: (6, lambda made: (made["ShiftAudit"],)),
    mechanism.plot_case_one: (4, lambda made: (made["CaseOne"], made["CaseOne"])),
    mechanism.plot_case_two: (4, lambda made: (made["CaseTwo"], made["CaseTwo"])),
    mechanism.plot_case_two_levels: (2, lambda made: (made["CaseTwo"], made["CaseTwo"])),
    mechanism.plot_noise_demo: (2, lambda made: (made["NoiseDemo"],)),
}
METHODS = {
    "Valuation.plot": 1,
    "ShiftAudit.plot": 6,
    "CorrectionEvaluation.plot": 3,
    "ValuationEvaluation.plot": 2,
    "ValuationComparison.plot": 2,
    "Suspects.plot": 2,
    "Interactions.plot": 1,
    "Allocation.plot": 1,
    "InfluenceAudit.plot": 1,
    "OwnerValues.plot": 1,
    "FederatedValues.plot": 1,
    "PayoutAudit.plot": 1,
    "CleaningEffect.plot": 1,
    "StressTest.plot": 1,
    "ProfileComparison.plot": 1,
    "DesignResult.plot": 1,
    "CaseOne.plot": 3,
    "CaseTwo.plot": 2,
    "CaseTwo.plot_levels": 1,
    "NoiseDemo.plot": 2,
}


@pytest.fixture(autouse=True)
def _close() -> Iterator[None]:
    yield
    plt.close("all")


def draw_into_own_axes(draw: Callable[..., Any], arguments: tuple[Any, ...], n: int) -> None:
    figure, grid = plt.subplots(1, n, squeeze=False)
    given = grid[0]
    assert "axes" not in inspect.signature(draw).parameters
    drawn = draw(*arguments, ax=given if n > 1 else given[0])
    assert plt.get_fignums() == [figure.number], "another figure was opened"
    assert list(np.ravel(np.asarray(drawn, dtype=object))) == list(given)
    assert all(ax.has_data() or ax.texts for ax in given)
    assert not figure.legends
    assert figure.get_suptitle() == ""
    wanted = "one matplotlib Axes" if n == 1 else f"an array of {n} matplotlib Axes"
    with pytest.raises(ValueError, match=rf"'ax' parameter must be {wanted}\. Got {n + 1} instead"):
        draw(*arguments, ax=[*given, given[0]])
    with pytest.raises(ValueError, match=rf"'ax' parameter must be {wanted}\. Got \w+ instead"):
        draw(*arguments, ax=[figure] * n if n > 1 else figure)


def test_the_lists_have_every_figure() -> None:
    found = {
        function
        for module in (audit, mechanism, results)
        for name, function in vars(module).items()
        if name.startswith("plot_") and inspect.unwrap(function).__module__ == module.__name__
    }
    assert found == set(FUNCTIONS)
    methods = set()
    for module in pkgutil.walk_packages(shapshift.__path__, "shapshift."):
        if ".gpu" in module.name or module.name.endswith("__main__"):
            continue
        for owner in vars(importlib.import_module(module.name)).values():
            if inspect.isclass(owner) and owner.__module__.startswith("shapshift."):
                methods |= {f"{owner.__name__}.{name}" for name in vars(owner) if name.startswith("plot")}
    assert methods == set(METHODS)


@pytest.mark.parametrize("draw", FUNCTIONS, ids=lambda draw: draw.__name__)
def test_functions_draw_into_given_axes(draw: Callable[..., Any]) -> None:
    n, arguments = FUNCTIONS[draw]
    draw_into_own_axes(draw, arguments(results_of()), n)


@pytest.mark.parametrize("name", METHODS)
def test_methods_draw_into_given_axes(name: str) -> None:
    owner, _, method = name.partition(".")
    draw_into_own_axes(getattr(results_of()[owner], method), (), METHODS[name])


def test_an_audit_draws_one_statistic_or_all() -> None:
    found = results_of()["ShiftAudit"]
    _, axes = plt.subplots(2, 3)
    with pytest.raises(ValueError, match=r"'ax' parameter must be one matplotlib Axes\. Got 6 instead"):
        found.plot("std", ax=axes)
    found.plot(ax=axes[0, 0])
    assert axes[0, 0].get_title(loc="left") == "Spearman with the clean values"
