"""Relatives of KNNShapley agree with enumeration to 1e-12, whatever K, N, ties, classes and weights."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import gammaln
from sklearn.base import clone
from sklearn.utils.estimator_checks import parametrize_with_checks
from test_exact import CIRCLE, LABELS, VALIDATION, distances, neighbor_counts, validation_labels

from shapshift import KNNRegressionShapley, KNNShapley, ThresholdKNNShapley, WeightedKNNShapley
from shapshift.engine.runner import Totals
from shapshift.kernels.weighted import Vote, weighted_values
from shapshift.knn.regression import regression_table
from shapshift.knn.threshold import gaussian_sigma, privacy_loss, worth_inside

TOLERANCE = 1e-12
TARGETS = np.array([0.3, -1.2, 2.5, 0.3, 1.75, -0.4, 3.0, 0.9])
ASKED = np.array([0.5, -2.0, 1.0, 0.3, 4.0])


def tied_orders(n_rows: int) -> list[list[float]]:
    """Every way to group rows into ties, up to which rows they are: one row of distances per composition of N."""
    return [[float(place) for place in np.cumsum([0, *cuts])] for cuts in itertools.product([0, 1], repeat=n_rows - 1)]


def draw_problem(seed: int, n_train: int, n_val: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points in the plane with one of two labels, drawn at random."""
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(n_train, 2)), rng.integers(0, 2, n_train)
    return X, y, rng.normal(size=(n_val, 2)), rng.integers(0, 2, n_val)


# --- regression -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize(
    ("baseline", "fill", "empty"), [("zero", 0.0, None), (0.7, 0.7, None), ("published", 0.0, 0.0)]
)
def test_regression_values_are_the_enumerated_ones(
    utility: str, ties: str, baseline: Any, fill: float, empty: float | None
) -> None:
    for n_rows in range(1, 9):
        y = TARGETS[:n_rows]
        for k in neighbor_counts(n_rows):
            model = KNNRegressionShapley(k, utility=utility, ties=ties, baseline=baseline).fit(CIRCLE[:n_rows], y)
            found = model.value(VALIDATION, ASKED, matrix=True)
            expected = [
                naive.shapley(
                    naive.regression_utilities(naive.tie_groups(row, ties), y.tolist(), t, k, utility, fill, empty)
                )
                for row, t in zip(distances(n_rows), ASKED, strict=True)
            ]
            np.testing.assert_allclose(found.matrix, np.transpose(expected), rtol=0, atol=TOLERANCE)
            np.testing.assert_allclose(found.values, np.mean(expected, axis=0), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_regression_is_exact_for_every_tie_pattern(utility: str) -> None:
    for n_rows in (2, 3, 5, 6):
        patterns = np.array(tied_orders(n_rows))
        rng = np.random.default_rng(n_rows)
        y = rng.integers(-3, 4, size=n_rows) / 2
        for k in neighbor_counts(n_rows):
            model = KNNRegressionShapley(k, utility=utility, metric="precomputed").fit(None, y)
            found = model.value(patterns, np.full(len(patterns), 0.25), matrix=True)
            for place, row in enumerate(patterns):
                groups = naive.tie_groups(row, "average")
                fill = float(y.mean())
                expected = naive.shapley(naive.regression_utilities(groups, y.tolist(), 0.25, k, utility, fill))
                np.testing.assert_allclose(found.matrix[:, place], expected, rtol=0, atol=TOLERANCE)


def published_hard_values(y: np.ndarray, t: float, k: int) -> np.ndarray:
    """Jia et al. 2019, theorem 6, rows sorted by distance: the quadratic form, for K < N."""
    n = y.size
    values = np.zeros(n)
    values[-1] = -(k - 1) / (n * k) * y[-1] * (y[-1] / k - 2 * t + y[:-1].sum() / (n - 1)) - (y[-1] / k - t) ** 2 / n
    for i in range(n - 1, 0, -1):  # from one-based rank i + 1 to i
        nearer = y[: i - 1].sum() * (min(k, i) * min(k - 1, i - 1) / (2 * max(i - 1, 1) * i) if i > 1 else 0.0)
        farther = sum(
            y[rank - 1] * min(k, rank - 1) * min(k - 1, rank - 2) / (2 * (rank - 1) * (rank - 2))
            for rank in range(i + 2, n + 1)
        )
        bracket = (min(k, i) / i) * ((y[i - 1] + y[i]) / k - 2 * t) + 2 / k * (nearer + farther)
        values[i - 1] = values[i] + (y[i] - y[i - 1]) / k * bracket
    return values


@pytest.mark.parametrize("k", [1, 2, 5])
def test_regression_without_baseline_is_the_published_value(k: int) -> None:
    rng = np.random.default_rng(3)
    X, y, x, t = rng.normal(size=(60, 2)), rng.normal(size=60), rng.normal(size=2), 0.4
    order = np.argsort(((X - x) ** 2).sum(axis=1))
    found = KNNRegressionShapley(k, utility="hard", baseline="published").fit(X, y).value([x], [t])
    np.testing.assert_allclose(found.values[order], published_hard_values(y[order], t, k), rtol=0, atol=1e-11)


@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_regression_is_efficient_and_knows_no_origin(utility: str) -> None:
    rng = np.random.default_rng(4)
    X, y, X_val, y_val = rng.normal(size=(400, 3)), rng.normal(size=400), rng.normal(size=(40, 3)), rng.normal(size=40)
    X[200:300] = X[:100]  # ties
    model = KNNRegressionShapley(7, utility=utility)
    found = model.fit(X, y).value(X_val, y_val)
    nearest = KNNShapley(7).fit(X, y > 0).value_and_neighbors(X_val, y_val > 0)[1].nearest
    whole = []
    for x, t in zip(X_val, y_val, strict=True):
        # Ties average over the order; the K-th place may be shared.
        groups = naive.tie_groups(((X - x) ** 2).sum(axis=1), "average")
        sets, seats = [[]], 7
        for group in groups:
            drawn = list(itertools.combinations(group, min(seats, len(group))))
            sets = [[*old, *new] for old in sets for new in drawn]
            seats -= len(drawn[0])
            if not seats:
                break
        whole.append(-np.mean([(np.mean(y[chosen]) - t) ** 2 for chosen in sets]))
    empty = -((y.mean() - y_val) ** 2)
    assert found.values.sum() == pytest.approx(np.mean(whole) - empty.mean(), abs=1e-12)
    moved = model.fit(X, y + 100).value(X_val, y_val + 100)
    np.testing.assert_allclose(moved.values, found.values, rtol=0, atol=1e-11)
    assert nearest.shape == (40, 7)


@given(st.integers(0, 2**32 - 1))
def test_row_order_changes_no_regression_value(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 30))
    X, y = rng.integers(0, 3, size=(n, 2)).astype(float), rng.integers(0, 4, size=n).astype(float)
    X_val, y_val = rng.integers(0, 3, size=(5, 2)).astype(float), rng.normal(size=5)
    k = int(rng.integers(1, n + 3))
    shuffled = rng.permutation(n)
    found = KNNRegressionShapley(k).fit(X, y).value(X_val, y_val).values
    again = KNNRegressionShapley(k).fit(X[shuffled], y[shuffled]).value(X_val, y_val).values
    np.testing.assert_allclose(again, found[shuffled], rtol=0, atol=1e-12)


def test_regression_boundary_is_where_neighbours_spread() -> None:
    X = np.arange(20.0)[:, None]
    y = np.where(X.ravel() < 10, 0.0, 10.0)
    model = KNNRegressionShapley(3).fit(X, y)
    found = model.value([[2.2], [9.4], [17.1]], [0.0, 5.0, 10.0], matrix=True)
    assert found.boundary.tolist() == [False, True, False]
    five = np.array([0, 0, 0, 10, 10]) if abs(9.4 - 7) < abs(9.4 - 12) else np.array([0, 0, 10, 10, 10])
    assert found.entropy[1] == pytest.approx(math.log(five.std() / (0.5 * y.std())))
    parts = found.boundary_fraction * found.boundary_values + (1 - found.boundary_fraction) * found.nonboundary_values
    np.testing.assert_allclose(parts, found.values, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found.matrix.mean(axis=1), found.values, rtol=0, atol=1e-15)
    assert KNNRegressionShapley().fit(X, np.ones(20)).value([[3.0]], [1.0]).entropy.tolist() == [0.0]


def test_tables_are_probabilities_over_subsets() -> None:
    # 1/w averaged over all subsets of the others that leave rank i a vote, counted out.
    for n, k, utility in [(6, 2, "soft"), (6, 3, "hard"), (5, 7, "soft"), (5, 7, "hard"), (3, 1, "soft")]:
        table = regression_table(n, k, utility)
        for i in range(1, n):
            others = [rank for rank in range(1, n + 1) if rank not in (i, i + 1)]
            total = 0.0
            for size in range(len(others) + 1):
                for chosen in itertools.combinations(others, size):
                    if sum(rank < i for rank in chosen) < k:
                        weight = 1 / ((n - 1) * math.comb(n - 2, size))
                        total += weight / (k if utility == "hard" else min(k, size + 1))
            assert table.c[i - 1] == pytest.approx(total, abs=1e-14)


# --- radius ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("radius", [0.0, 3.0, 4.4, 5.0, 7.0])
@pytest.mark.filterwarnings("ignore:No training row lies within")
def test_threshold_values_are_the_enumerated_ones(radius: float, n_classes: int) -> None:
    for n_rows in range(1, 9):
        labels = LABELS[n_classes][:n_rows]
        y_val = validation_labels(labels)
        points = np.tile(VALIDATION, (len(set(labels)), 1))
        found = ThresholdKNNShapley(radius).fit(CIRCLE[:n_rows], list(labels)).value(points, y_val, matrix=True)
        for place, (x, label) in enumerate(zip(points, y_val, strict=True)):
            inside = [math.dist(x, row) <= radius for row in CIRCLE[:n_rows]]
            utilities = naive.threshold_utilities(inside, [other == label for other in labels], len(set(labels)))
            np.testing.assert_allclose(found.matrix[:, place], naive.shapley(utilities), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize(
    ("metric", "radius"), [("euclidean", 1.5), ("sqeuclidean", 2.25), ("manhattan", 2.0), ("cosine", 0.5)]
)
def test_the_radius_is_in_units_of_the_metric(metric: str, radius: float) -> None:
    rng = np.random.default_rng(0)
    X, X_val = 1000 * rng.normal(size=(60, 3)), 1000 * rng.normal(size=(20, 3))
    scale = {"euclidean": 1e3, "sqeuclidean": 1e6, "manhattan": 1e3, "cosine": 1.0}[metric]
    y, y_val = rng.integers(0, 2, 60), rng.integers(0, 2, 20)
    found = ThresholdKNNShapley(radius * scale, metric=metric).fit(X, y).value(X_val, y_val, matrix=True)
    d = naive.distance_matrix(X_val, X, metric)
    inside = (np.sqrt(d) if metric == "euclidean" else d) <= radius * scale
    assert inside.any()
    assert not inside.all()
    assert np.array_equal(found.matrix != 0, inside.T)
    given = ThresholdKNNShapley(radius * scale, metric="precomputed").fit(None, y)
    again = given.value(np.sqrt(d) if metric == "euclidean" else d, y_val)
    np.testing.assert_allclose(again.values, found.values, rtol=0, atol=1e-15)


def test_equal_training_rows_still_have_a_distance() -> None:
    for X_val, n_inside in (([[0.5]], 3), ([[5.0]], 0)):
        model = ThresholdKNNShapley(1.0).fit([[0.0]] * 3, ["a", "b", "a"])
        if n_inside:
            assert np.count_nonzero(model.value(X_val, ["a"]).values) == 3
        else:
            with pytest.warns(UserWarning, match=r"within radius=1 .* The nearest one is 5 away"):
                assert model.value(X_val, ["a"]).values.tolist() == [0.0, 0.0, 0.0]


def test_a_million_rows_within_the_radius() -> None:
    # Against exact rational arithmetic on the sums that the definition leads to.
    n, matching = 10**6, 400_000
    found = worth_inside(np.array([[matching, n - matching]], dtype=float), 2)[0]
    harmonic = math.fsum(1 / j for j in range(1, n + 1))
    other = -matching * (harmonic - 1) / (n * (n - 1)) - 1 / (2 * n)
    assert found[1] == pytest.approx(other, rel=1e-12)
    assert found[0] == pytest.approx(other + (harmonic - 1) / (n - 1) + 1 / n, rel=1e-12)
    assert matching * found[0] + (n - matching) * found[1] == pytest.approx(matching / n - 0.5, rel=1e-10)
    rng = np.random.default_rng(0)
    X, y = rng.random((n, 1)), rng.integers(0, 2, n)
    values = ThresholdKNNShapley(0.4).fit(X, y).value([[0.5]], [1]).values
    inside = np.abs(X.ravel() - 0.5) <= 0.4
    assert np.array_equal(values != 0, inside)
    assert values.sum() == pytest.approx(y[inside].mean() - 0.5, rel=1e-9)


def test_the_noise_is_calibrated() -> None:
    for epsilon, delta in [(0.1, 1e-5), (1.0, 1e-5), (3.0, 1e-3), (10.0, 1e-8)]:
        sigma = gaussian_sigma(epsilon, delta, 1.0)
        assert privacy_loss(epsilon, sigma) == pytest.approx(delta, rel=1e-6)
        if epsilon < 1:
            assert sigma < math.sqrt(2 * math.log(1.25 / delta)) / epsilon
        assert gaussian_sigma(epsilon, delta, 5.0) == pytest.approx(5 * sigma)


def test_the_privacy_loss_is_that_of_the_drawn_noise() -> None:
    # Of the outputs on one side of a cut, no more than exp(epsilon) times the other's share plus delta.
    epsilon, sigma = 0.5, 1.2
    delta = privacy_loss(epsilon, sigma)
    rng = np.random.default_rng(0)
    one, other = rng.normal(0.0, sigma, 10**6), rng.normal(1.0, sigma, 10**6)
    excess = [np.mean(other > cut) - math.exp(epsilon) * np.mean(one > cut) for cut in np.linspace(-2, 4, 61)]
    assert max(excess) == pytest.approx(delta, abs=3e-3)


def test_the_released_counts_carry_the_stated_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    X, y, X_val, y_val = (
        rng.normal(size=(80, 2)),
        rng.integers(0, 2, 80),
        rng.normal(size=(25, 2)),
        rng.integers(0, 2, 25),
    )
    model = ThresholdKNNShapley(1.0).fit(X, y)
    seen: list[np.ndarray] = []
    make = ThresholdKNNShapley._private_method
    counts = model._counts(model._prepare(X_val, y_val))

    def spy(self: Any, task: Any, targets: Any, noisy: np.ndarray) -> Any:
        seen.append(noisy - counts)
        return make(self, task, targets, noisy)

    monkeypatch.setattr(ThresholdKNNShapley, "_private_method", spy)
    for seed in range(200):
        stated = model.release(X_val, y_val, epsilon=1.0, delta=1e-4, random_state=seed).parameters["privacy"]
    noise = np.ravel(seen)
    assert stated["sensitivity"] == pytest.approx(5.0)
    assert stated["sigma"] == pytest.approx(gaussian_sigma(1.0, 1e-4, 5.0))
    # 10,000 draws: the standard error of a standard deviation is 0.7 percent of it.
    assert noise.std() == pytest.approx(stated["sigma"], rel=0.03)
    assert abs(noise.mean()) < 4 * stated["sigma"] / math.sqrt(noise.size)


def test_one_row_changes_the_counts_by_the_stated_sensitivity_at_most() -> None:
    rng = np.random.default_rng(2)
    X, y, X_val, y_val = (
        rng.normal(size=(40, 2)),
        rng.integers(0, 2, 40),
        rng.normal(size=(30, 2)),
        rng.integers(0, 2, 30),
    )

    def counts(rows: np.ndarray) -> np.ndarray:
        model = ThresholdKNNShapley(1.2).fit(X[rows], y[rows])
        return model._counts(model._prepare(X_val, y_val))

    everyone = counts(np.arange(40))
    changes = [np.linalg.norm(everyone - counts(np.delete(np.arange(40), row))) for row in range(40)]
    assert 0 < max(changes) <= math.sqrt(30)
    far = ThresholdKNNShapley(100.0).fit(X, y)
    near = ThresholdKNNShapley(100.0).fit(X[1:], y[1:])
    both = [model._counts(model._prepare(X_val, y_val)) for model in (far, near)]
    assert np.linalg.norm(both[0] - both[1]) == pytest.approx(math.sqrt(30))  # reached by a row within every radius


def test_a_release_tells_other_rows_from_the_noisy_counts_alone() -> None:
    rng = np.random.default_rng(3)
    X, y, X_val, y_val = (
        rng.normal(size=(60, 2)),
        rng.integers(0, 2, 60),
        rng.normal(size=(9, 2)),
        rng.integers(0, 2, 9),
    )
    model = ThresholdKNNShapley(1.0).fit(X, y)
    found = model.release(X_val, y_val, epsilon=1.0, delta=1e-3, random_state=5, groups=np.arange(9) % 2)
    again = model.release(X_val, y_val, epsilon=1.0, delta=1e-3, random_state=5)
    assert np.array_equal(found.values, again.values)
    assert found.fingerprint.startswith("private-")
    assert found.fingerprint != model.fingerprint_
    assert set(found.group_values) == {0, 1}
    assert not np.array_equal(found.entropy, model.value(X_val, y_val).entropy)
    # Little noise gives the exact values back.
    loose = model.release(X_val, y_val, epsilon=1e6, delta=0.5, random_state=5)
    np.testing.assert_allclose(loose.values, model.value(X_val, y_val).values, rtol=0, atol=1e-12)


# --- weights --------------------------------------------------------------------------------------------------------


def steps(distance: np.ndarray) -> np.ndarray:
    """Weights 3, 2, 1, 0 by distance."""
    return np.clip(3 - np.floor(distance / 2), 0, 3)


@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("draw", [0.5, 1.0])
def test_weighted_values_are_the_enumerated_ones(ties: str, n_classes: int, draw: float) -> None:
    for n_rows in range(1, 9):
        labels = LABELS[n_classes][:n_rows]
        y_val = validation_labels(labels)
        points = np.tile(VALIDATION, (len(set(labels)), 1))
        squares = np.tile(distances(n_rows), (len(set(labels)), 1))
        for k in neighbor_counts(n_rows):
            model = WeightedKNNShapley(k, weights=steps, bits=2, ties=ties, draw=draw).fit(
                CIRCLE[:n_rows], list(labels)
            )
            found = model.value(points, y_val, matrix=True)
            for place, (row, label) in enumerate(zip(squares, y_val, strict=True)):
                made = steps(np.sqrt(row))
                weights = np.rint(made / max(made.max(), 1) * 3).astype(int).tolist()
                utilities = naive.weighted_utilities(naive.tie_groups(row, ties), list(labels), weights, label, k, draw)
                np.testing.assert_allclose(found.matrix[:, place], naive.shapley(utilities), rtol=0, atol=TOLERANCE)


def test_weighted_is_exact_for_every_tie_pattern() -> None:
    for n_rows in (2, 3, 5, 6):
        patterns = np.array(tied_orders(n_rows))
        rng = np.random.default_rng(n_rows)
        codes = rng.integers(0, 3, size=n_rows).astype(np.int32)
        codes[0] = 0
        by_place = rng.integers(0, 4, size=n_rows)
        weights = by_place[patterns.astype(int)].astype(np.int32)
        order = np.argsort(patterns, axis=1, kind="stable")
        log_factorial = gammaln(np.arange(n_rows + 1) + 1.0)
        names = np.unique(codes)
        compact = np.searchsorted(names, codes).astype(np.int32)
        for k in neighbor_counts(n_rows):
            tile = patterns.copy()
            targets = np.zeros(len(patterns), dtype=np.int32)
            states = np.empty((8, min(k, n_rows), 2 * (min(k, n_rows) - 1) * 3 + 1))
            vote = Vote(k, 3, 0.5, names.size, True, n_rows, log_factorial)
            weighted_values(tile, order, weights, compact, targets, vote, states)
            for place, row in enumerate(patterns):
                groups = naive.tie_groups(row, "average")
                utilities = naive.weighted_utilities(groups, compact.tolist(), weights[place].tolist(), 0, k, 0.5)
                np.testing.assert_allclose(tile[place], naive.shapley(utilities), rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("weights", ["inverse", "gaussian"])
@pytest.mark.parametrize("k", [1, 4, 100])
def test_weighted_values_add_up_and_row_order_changes_none(weights: str, k: int) -> None:
    rng = np.random.default_rng(5)
    X, y = rng.integers(0, 6, size=(60, 2)).astype(float), rng.integers(0, 3, 60)
    X_val, y_val = rng.normal(2, 2, size=(8, 2)), rng.integers(0, 3, 8)
    model = WeightedKNNShapley(k, weights=weights)
    found = model.fit(X, y).value(X_val, y_val)
    shuffled = rng.permutation(60)
    again = model.fit(X[shuffled], y[shuffled]).value(X_val, y_val)
    np.testing.assert_allclose(again.values, found.values[shuffled], rtol=0, atol=1e-12)
    assert -0.5 <= found.values.sum() <= 0.5


def test_weights_relative_to_the_nearest_row() -> None:
    model = WeightedKNNShapley(3, bits=3).fit([[1.0], [2.0], [4.0], [-14.0]], list("abab"))
    tile = np.array([[1.0, 4.0, 16.0, 196.0]]) / 4.0**model._index.exponent
    order = np.arange(4)[None]
    assert model._votes(tile, order, 7).tolist() == [[7, 4, 2, 0]]  # 1, 1/2, 1/4, 1/14 of the largest
    assert model._votes(np.array([[0.0, 4.0, 0.0, 1.0]]), order, 7).tolist() == [[7, 0, 7, 0]]
    smooth = WeightedKNNShapley(3, weights="gaussian", bandwidth=2.0).fit([[1.0], [2.0], [4.0], [-14.0]], list("abab"))
    expected = np.rint(7 * np.exp((1 - np.array([1.0, 4.0, 16.0, 196.0])) / 8)).astype(int)
    assert smooth._votes(tile, order, 7).tolist() == [expected.tolist()]
    assert smooth._votes(tile * 1e12, order, 7)[0].tolist() == [7, 0, 0, 0]  # far from all rows


@pytest.mark.parametrize("max_error", [0.5, 0.1, 0.03, 0.011])
def test_the_approximation_keeps_its_bound(max_error: float) -> None:
    rng = np.random.default_rng(6)
    X, y, X_val, y_val = (
        rng.normal(size=(300, 2)),
        rng.integers(0, 2, 300),
        rng.normal(size=(20, 2)),
        rng.integers(0, 2, 20),
    )
    exact = WeightedKNNShapley(3).fit(X, y).value(X_val, y_val, matrix=True)
    near = WeightedKNNShapley(3, max_error=max_error).fit(X, y).value(X_val, y_val, matrix=True)
    assert exact.error_bound is None
    assert near.error_bound.max() <= max_error
    assert 0 < np.abs(near.matrix - exact.matrix).max() <= near.error_bound.min()
    assert near.parameters["approximation"] == {"nearest_rows": math.ceil(3 / max_error)}
    whole = WeightedKNNShapley(3, max_error=0.01).fit(X, y).value(X_val, y_val, matrix=True)
    assert whole.error_bound is None  # all 300 rows are among the nearest 300
    assert np.array_equal(whole.matrix, exact.matrix)


def test_equal_weights_are_the_plain_majority() -> None:
    # With one voter the majority is that voter: weights do not matter, and the hard utility is the same game.
    rng = np.random.default_rng(7)
    X, y, X_val, y_val = (
        rng.normal(size=(50, 2)),
        rng.integers(0, 2, 50),
        rng.normal(size=(9, 2)),
        rng.integers(0, 2, 9),
    )
    found = WeightedKNNShapley(1, weights=np.ones_like).fit(X, y).value(X_val, y_val)
    plain = KNNShapley(1).fit(X, y).value(X_val, y_val)  # soft: 1/2 for nobody, as a draw
    np.testing.assert_allclose(found.values, plain.values, rtol=0, atol=1e-14)


# --- all of them ----------------------------------------------------------------------------------------------------

MODELS = [
    KNNRegressionShapley(4),
    KNNRegressionShapley(4, utility="hard"),
    ThresholdKNNShapley(1.0),
    WeightedKNNShapley(4),
    WeightedKNNShapley(4, weights="gaussian", max_error=0.1),
]


@parametrize_with_checks([KNNRegressionShapley(), ThresholdKNNShapley(1.0), WeightedKNNShapley()])
def test_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture
def problem() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(8)
    X, X_val = rng.normal(size=(90, 3)), rng.normal(size=(40, 3))
    return X, (X[:, 0] > 0).astype(int), X_val, (X_val[:, 0] > 0).astype(int)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_groups_levels_and_matrix_are_parts_of_one_sum(model: Any, problem: Any) -> None:
    X, y, X_val, y_val = problem
    groups = np.array(["p", "q", "r"])[np.arange(40) % 3]
    found = model.fit(X, y).value(X_val, y_val, groups=groups, matrix=True)
    np.testing.assert_allclose(found.matrix.mean(axis=1), found.values, rtol=0, atol=1e-14)
    for name in "pqr":
        np.testing.assert_allclose(
            found.group_values[name], found.matrix[:, groups == name].mean(axis=1), rtol=0, atol=1e-14
        )
    np.testing.assert_allclose(found.level_counts @ found.level_values / 40, found.values, rtol=0, atol=1e-14)
    if found.boundary.any():
        np.testing.assert_allclose(
            found.boundary_values, found.matrix[:, found.boundary].mean(axis=1), rtol=0, atol=1e-14
        )


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_threads_change_no_bit(model: Any, problem: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, X_val, y_val = problem
    monkeypatch.setattr("shapshift.engine.runner.block_points", lambda task, pairs=None: 3)
    one = model.fit(X, y).value(X_val, y_val)
    many = type(model)(**{**model.get_params(), "n_jobs": 3}).fit(X, y).value(X_val, y_val)
    assert np.array_equal(one.values, many.values)
    assert np.array_equal(one.level_values, many.level_values)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_neighbours_and_entropy_are_those_of_knn_shapley(model: Any, problem: Any) -> None:
    X, y, X_val, y_val = problem
    X = np.round(X)  # ties
    reference = np.arange(80).reshape(40, 2)
    plain = KNNShapley(min(getattr(model, "n_neighbors", 5), 90)).fit(X, y)
    expected, near = plain.value_and_neighbors(X_val, y_val, reference=reference)
    found, seen = model.fit(X, y).value_and_neighbors(X_val, y_val, reference=reference)
    assert np.array_equal(seen.nearest, near.nearest)
    assert np.array_equal(seen.reference_ranks, near.reference_ranks)
    if not isinstance(model, KNNRegressionShapley):
        np.testing.assert_allclose(found.entropy, expected.entropy, rtol=0, atol=1e-14)
        assert np.array_equal(found.boundary, expected.boundary)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_tables_sparse_rows_and_ids_are_taken(model: Any, problem: Any) -> None:
    import pandas as pd
    from scipy import sparse

    X, y, X_val, y_val = problem
    plain = model.fit(X, y).value(X_val, y_val)
    frame = pd.DataFrame(X, columns=list("abc"), index=[f"row{i}" for i in range(90)])
    found = model.fit(frame, y).value(pd.DataFrame(X_val, columns=list("abc"))[["c", "a", "b"]], y_val)
    assert np.array_equal(found.values, plain.values)
    assert found.to_frame().index[0] == "row0"
    thin = model.fit(sparse.csr_array(X), y).value(sparse.csr_array(X_val), y_val)
    np.testing.assert_allclose(thin.values, plain.values, rtol=0, atol=1e-15)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: KNNRegressionShapley(0), r"'n_neighbors' parameter of KNNRegressionShapley must be at least 1. Got 0"),
        (lambda: KNNRegressionShapley(utility="mean"), "'utility' parameter"),
        (lambda: KNNRegressionShapley(baseline="median"), "'baseline' parameter .* or a number|'baseline' parameter"),
        (lambda: KNNRegressionShapley(baseline=np.nan), "'baseline' parameter .* finite number"),
        (lambda: KNNRegressionShapley(boundary_spread=0), "'boundary_spread' parameter .* above 0"),
        (lambda: ThresholdKNNShapley(-1.0), "'radius' parameter .* of at least 0. Got -1.0"),
        (lambda: ThresholdKNNShapley(np.inf), "'radius' parameter"),
        (lambda: ThresholdKNNShapley(1.0, metric="hamming"), "'metric' parameter"),
        (lambda: WeightedKNNShapley(weights="uniform"), "'weights' parameter .* a function of the distances"),
        (lambda: WeightedKNNShapley(bandwidth=0.0), "'bandwidth' parameter .* above 0"),
        (lambda: WeightedKNNShapley(bits=9), "'bits' parameter of WeightedKNNShapley must be at most 8. Got 9"),
        (lambda: WeightedKNNShapley(max_error=-0.1), "'max_error' parameter"),
        (lambda: WeightedKNNShapley(draw=2.0), "'draw' parameter .* at most 1"),
        (lambda: WeightedKNNShapley(n_jobs=0), "'n_jobs' parameter"),
    ],
)
def test_bad_parameters_are_refused_by_name(make: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        make().fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (lambda d: -d, r"finite numbers of at least 0. Got -\d"),
        (lambda d: d * np.nan, "finite numbers of at least 0. Got nan"),
        (lambda d: 1 / np.maximum(d, 0) * np.inf, "at least 0. Got inf"),
        (lambda d: d[:-1], "one number for each of the 3 distances"),
        (lambda d: ["a"] * len(d), "one number for each of the 3 distances"),
        (lambda d: np.arange(d.size), "equal distances equal weights. Got 0.0 and 1.0"),
    ],
)
def test_bad_weights_are_refused(weights: Any, message: str) -> None:
    model = WeightedKNNShapley(1, weights=weights).fit([[1.0], [1.0], [2.0]], ["a", "b", "b"])
    with pytest.raises(ValueError, match=message):
        model.value([[0.0]], ["a"])


def test_regression_wants_numbers() -> None:
    with pytest.raises(ValueError, match="'y' must hold numbers for regression"):
        KNNRegressionShapley().fit([[0.0], [1.0]], ["a", "b"])
    with pytest.raises(ValueError, match="'y_val' must hold numbers"):
        KNNRegressionShapley().fit([[0.0], [1.0]], [1.0, 2.0]).value([[0.0]], [True])


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"epsilon": 0, "delta": 0.1}, "'epsilon' parameter of ThresholdKNNShapley.release .* above 0"),
        ({"epsilon": 1, "delta": 0}, "'delta' parameter .* above 0"),
        ({"epsilon": 1, "delta": 1.0}, "'delta' parameter of ThresholdKNNShapley.release must be below 1"),
        ({"epsilon": 1, "delta": 0.1, "random_state": -1}, "'random_state' parameter"),
    ],
)
def test_bad_privacy_is_refused(more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ThresholdKNNShapley(1.0).fit([[0.0]], ["a"]).release([[0.0]], ["a"], **more)


# --- memory of weighted values --------------------------------------------------------------------------------------


def test_tables_of_weighted_values_are_refused_before_they_are_made() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(300, 2)), rng.integers(0, 2, 300)
    model = WeightedKNNShapley(100, bits=8, max_memory="100MB", progress=False).fit(X, y)
    with pytest.raises(
        ValueError, match=r"needs [\d.]+ GB .* n_neighbors=100 and bits=8, and 0\.0875 GB of max_memory may be used"
    ):
        model.value(X[:1], y[:1])
    with pytest.raises(ValueError, match=r"'max_memory' parameter of WeightedKNNShapley must be a positive number"):
        model.set_params(max_memory="much").value(X[:1], y[:1])


def test_tables_of_weighted_values_must_fit_what_is_available() -> None:
    if sys.platform != "linux":
        pytest.skip("the size of the address space is read from /proc, which only Linux has")
    code = """
import resource
import numpy as np
from shapshift import WeightedKNNShapley
X = np.random.default_rng(0).normal(size=(300, 2))
model = WeightedKNNShapley(100, bits=8, progress=False).fit(X, np.arange(300) % 2)
model.set_params(n_neighbors=1).value(X[:1], [0])  # loads the compiled code
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + 100_000_000, resource.RLIM_INFINITY))
model.set_params(n_neighbors=100).value(X[:1], [0])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert re.search(r"InputError: WeightedKNNShapley needs .* and (0\.0\d+|0\.1) GB is available", ran.stderr), (
        ran.stderr
    )


@pytest.mark.parametrize("n_classes", [2, 3])
def test_a_budget_changes_how_many_work_and_no_value(n_classes: int) -> None:
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(40, 2)).round(1), rng.integers(0, n_classes, 40)
    X_val, y_val = rng.normal(size=(9, 2)).round(1), rng.integers(0, n_classes, 9)
    model = WeightedKNNShapley(16, bits=5, n_jobs=4, progress=False).fit(X, y)
    expected = model.value(X_val, y_val).values
    assert model._runner().n_jobs == 4
    model.set_params(max_memory=5 * model._table_bytes(41) // 2)
    assert model._runner().n_jobs == 2
    assert model.value(X_val, y_val).values.tobytes() == expected.tobytes()


def test_tables_are_made_for_weights_that_occur() -> None:
    # Two distances, so two weights: a few MB of the 20 GB that all of 8 bits would take.
    X = np.array([[0.0], [2.0]]).repeat(60, axis=0)
    model = WeightedKNNShapley(100, bits=8, max_memory="300MB", progress=False).fit(X, np.arange(120) % 2)
    assert np.isfinite(model.value([[0.5]], [0]).values).all()


def test_a_budget_of_weighted_values_counts_all_arrays() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20_000, 2)), rng.integers(0, 2, 20_000)
    model = WeightedKNNShapley(2, max_memory="4MB", progress=False).fit(X, y)
    with pytest.raises(ValueError, match="'max_memory' parameter must be at least"):
        model.value(X[:64], y[:64], groups=np.arange(64), matrix=True)


def test_a_checkpoint_needs_weights_that_can_be_named(tmp_path: Path) -> None:
    X, y = np.arange(6.0)[:, None], np.arange(6) % 2
    model = WeightedKNNShapley(2, weights=lambda distances: 1 / (1 + distances), progress=False).fit(X, y)
    with pytest.raises(ValueError, match="'checkpoint' parameter does not work with a function as 'weights'"):
        model.value(X, y, checkpoint=tmp_path / "kept")
    assert not (tmp_path / "kept").exists()


def test_a_release_from_a_file_that_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = np.random.default_rng(0).normal(size=(60, 2)), np.arange(60) % 2
    model = ThresholdKNNShapley(1.0, progress=False)
    model.scratch = tmp_path
    monkeypatch.setattr("shapshift.engine.rows.file.LOAD_BYTES", 0)
    model.fit(iter([(X, y)]))
    counts = ThresholdKNNShapley._counts

    def change(self: Any, given: Any) -> Any:
        os.utime(self._index.rows.path, ns=(1, 1))
        return counts(self, given)

    monkeypatch.setattr(ThresholdKNNShapley, "_counts", change)
    with pytest.raises(ValueError, match="was changed after it was first read"):
        model.release(X[:5], y[:5], epsilon=1.0, delta=1e-3)


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_a_stopped_run_resumes(model: Any, problem: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y, X_val, y_val = problem
    monkeypatch.setattr("shapshift.engine.runner.block_points", lambda task, pairs=None: 3)
    monkeypatch.setattr("shapshift.engine.checkpoint.EVERY_SECONDS", 0.0)
    model = clone(model).set_params(progress=False).fit(X, y)
    want = model.value(X_val, y_val)
    add, added = Totals.add, []

    def stops(totals: Any, part: Any) -> None:
        added.append(part)
        if len(added) == 4:
            raise KeyboardInterrupt
        add(totals, part)

    with monkeypatch.context() as patch:
        patch.setattr(Totals, "add", stops)
        with pytest.raises(KeyboardInterrupt):
            model.value(X_val, y_val, checkpoint=tmp_path / "kept")
    blocks: list[int] = []
    monkeypatch.setattr(Totals, "add", lambda totals, part: blocks.append(totals.done) or add(totals, part))
    assert model.value(X_val, y_val, checkpoint=tmp_path / "kept").values.tobytes() == want.values.tobytes()
    assert blocks[0] > 0
