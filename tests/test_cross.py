"""Values without a validation set, against games without the point's own row."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import naive
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.tree import DecisionTreeClassifier

from shapshift import (
    Beta,
    KNNProxy,
    KNNRegressionShapley,
    KNNShapley,
    SampledShapley,
    ThresholdKNNShapley,
    Valuation,
    WeightedKNNShapley,
    cross_value,
)

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(autouse=True)
def no_copies_warned() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rows have a copy")
        yield


def small(seed: int = 0, n: int = 6) -> tuple[Matrix, Matrix]:
    """Few rows, with ties, copies, and a label that occurs once."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, size=(n, 2)).astype(float)
    return X, np.array([0, 1, 0, 1, 1, 2, 0, 1])[:n]


def clouds(seed: int = 0, n: int = 60) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    return rng.normal(size=(n, 3)) + y[:, None], y


def enumerated(X: Matrix, y: Matrix, of_point: Callable[[Matrix, Matrix, Any], Matrix]) -> Matrix:
    """Value of each row on each point, NaN on its own; ``of_point`` knows the other rows only."""
    distances, n = naive.distance_matrix(X, X, "euclidean"), len(y)
    found = np.full((n, n), np.nan)
    for j in range(n):
        others = np.flatnonzero(np.arange(n) != j)
        found[others, j] = of_point(distances[j, others], y[others], y[j])
    return found


def refitted(model: Any, X: Matrix, y: Matrix, folds: Any = None, *, forward: bool = False) -> Matrix:
    """Value of each row on each point, by a model fitted on the rows that the point sees; NaN for the others."""
    n = len(y)
    folds = np.arange(n) if folds is None else np.asarray(folds)
    found = np.full((n, n), np.nan)
    for j in range(n):
        seen = np.flatnonzero(folds < folds[j] if forward else folds != folds[j])
        if seen.size:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[seen, j] = clone(model).fit(X[seen], y[seen]).value(X[[j]], y[[j]]).values
    return found


def assert_means(valuation: Valuation, matrix: Matrix, atol: float = 1e-12) -> None:
    """Mean and variance over the points that see a row."""
    n_seen = (~np.isnan(matrix)).sum(axis=1)
    kept = n_seen > 0
    np.testing.assert_allclose(valuation.values, np.nanmean(matrix[kept], axis=1), atol=atol)
    whole = (valuation.level_counts @ valuation.level_values) / valuation.n_val
    np.testing.assert_allclose(whole, valuation.values, atol=1e-12)
    if valuation.variance is not None:
        units = valuation.sampling["units"]
        variance = np.nanvar(matrix[kept], axis=1, ddof=1) * units / n_seen[kept]
        np.testing.assert_allclose(valuation.variance, variance, atol=10 * atol)
        assert units == n_seen[kept].min()


# --- the game without the point's own row -----------------------------------------------------------------------------


@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo", "calibrated", Beta(4, 1)], ids=str)
@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_knn_values_are_those_of_the_other_rows(semivalue: Any, utility: str, ties: str, k: int) -> None:
    X, y = small()
    named = ("beta", semivalue.alpha, semivalue.beta) if isinstance(semivalue, Beta) else semivalue

    def of_point(distances: Matrix, labels: Matrix, label: Any) -> Matrix:
        game = {"n_neighbors": k, "utility": utility, "semivalue": named, "n_classes": len(set(labels)), "ties": ties}
        return naive.knn_values(distances, labels == label, **game)

    model = KNNShapley(k, utility=utility, semivalue=semivalue, ties=ties)
    assert_means(cross_value(model, X, y), enumerated(X, y, of_point))


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("baseline", ["mean", "zero", "published", 0.3])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_regression_values_are_those_of_the_other_rows(utility: str, baseline: Any, k: int) -> None:
    X, _ = small()
    y = np.array([0.5, -1.0, 2.0, 0.0, 1.5, 1.0])

    def of_point(distances: Matrix, targets: Matrix, target: float) -> Matrix:
        fill = {"mean": targets.mean(), "zero": 0.0, "published": 0.0}.get(baseline, baseline)
        empty = 0.0 if baseline == "published" else None
        groups = naive.tie_groups(distances, "average")
        return naive.shapley(naive.regression_utilities(groups, targets, target, k, utility, fill, empty))

    model = KNNRegressionShapley(k, utility=utility, baseline=baseline)
    assert_means(cross_value(model, X, y), enumerated(X, y, of_point))


@pytest.mark.parametrize("radius", [0.0, 1.0, 1.5, 1e300])
def test_threshold_values_are_those_of_the_other_rows(radius: float) -> None:
    X, y = small()

    def of_point(distances: Matrix, labels: Matrix, label: Any) -> Matrix:
        return naive.shapley(naive.threshold_utilities(np.sqrt(distances) <= radius, labels == label, len(set(labels))))

    assert_means(cross_value(ThresholdKNNShapley(radius), X, y), enumerated(X, y, of_point))


def nearness(distances: Matrix) -> Matrix:
    return 1 / (1 + distances)


@pytest.mark.parametrize("weights", ["inverse", "gaussian", nearness])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_weighted_values_are_those_of_the_other_rows(weights: Any, metric: str, k: int) -> None:
    X, y = small()
    model = WeightedKNNShapley(k, weights=weights, metric=metric)
    assert_means(cross_value(model, X * 1e6, y), refitted(model, X * 1e6, y))
    inverse = WeightedKNNShapley(k, weights="inverse", bits=3)

    def of_point(distances: Matrix, labels: Matrix, label: Any) -> Matrix:
        distances = np.sqrt(distances)  # they come squared, which is enough for their order
        nearest = distances.min()
        votes = np.where(distances == nearest, 1.0, nearest / np.maximum(distances, 1e-300))
        groups = naive.tie_groups(distances, "average")
        return naive.shapley(naive.weighted_utilities(groups, labels, np.rint(7 * votes).astype(int), label, k, 0.5))

    if weights == "inverse":
        assert_means(cross_value(inverse, X, y), enumerated(X, y, of_point))


@pytest.mark.parametrize(
    "model",
    [
        KNNShapley(3),
        KNNShapley(3, max_memory="8MB", n_jobs=2),
        KNNShapley(3, metric="cosine"),
        KNNShapley(3, metric="manhattan", semivalue="banzhaf"),
        KNNShapley(3, device="auto"),
        KNNShapley(3, method="truncated", tol=0.0),
        KNNRegressionShapley(3),
        ThresholdKNNShapley(1.5),
        WeightedKNNShapley(3),
    ],
    ids=repr,
)
def test_values_are_those_of_a_model_fitted_on_the_other_rows(model: Any) -> None:
    X, y = clouds()
    y = y.astype(float) if isinstance(model, KNNRegressionShapley) else y
    found = cross_value(model, X, y)
    assert_means(found, refitted(model, X, y))
    assert found.fingerprint == clone(model).fit(X, y).fingerprint_
    assert (found.n_train, found.n_val) == (60, 60)
    assert found.parameters["cross"]["rows_per_game"] == [59, 59]
    assert found.parameters["cross"]["points_per_row"] == [59, 59]


def test_entropies_are_those_of_the_other_rows() -> None:
    X, y = clouds()
    found = cross_value(KNNShapley(3), X, y).entropy
    distances = naive.distance_matrix(X, X, "euclidean")
    for j in range(60):
        others = np.flatnonzero(np.arange(60) != j)
        expected = naive.neighbor_entropy(distances[j, others], y[others].tolist(), "average")
        assert found[j] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("options", [{"method": "certified"}, {"method": "truncated", "tol": 0.02}], ids=str)
def test_bounds_hold(options: dict[str, Any]) -> None:
    X, y = clouds(n=1500)
    exact = cross_value(KNNShapley(3), X, y)
    found = cross_value(KNNShapley(3, **options), X, y)
    assert found.error_bound is not None and found.error_bound.max() > 0
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-15).all()
    assert exact.variance is not None and found.variance is not None
    assert found.variance.mean() == pytest.approx(exact.variance.mean(), rel=0.1)


def test_distances_can_be_given() -> None:
    X, y = clouds()
    distances = naive.distance_matrix(X, X, "euclidean")
    found = cross_value(KNNShapley(3, metric="precomputed"), distances, y)
    np.testing.assert_allclose(found.values, cross_value(KNNShapley(3), X, y).values, atol=1e-12)
    in_folds = cross_value(KNNShapley(3, metric="precomputed"), distances, y, groups=np.arange(60) % 7)
    np.testing.assert_allclose(
        in_folds.values, cross_value(KNNShapley(3), X, y, groups=np.arange(60) % 7).values, atol=1e-12
    )
