"""Correction without clean data: every sum against a direct computation, and the promises of the corrector."""

from __future__ import annotations

import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from sklearn.datasets import make_gaussian_quantiles

from shapshift import (
    BoundaryCorrector,
    CorrectionWarning,
    EntropyNormalizer,
    GaussianNoise,
    KNNRegressionShapley,
    KNNShapley,
    LaplaceNoise,
    PosteriorCorrector,
    Valuation,
)
from shapshift.agreement import spearman
from shapshift.correct import draws as drawing
from shapshift.correct import prior as priors
from shapshift.correct import rehearsal
from shapshift.correct.draws import NoisyPoints, TrainingSet, draw_in_stages
from shapshift.correct.prior import fit_prior, label_probabilities, log_normal
from shapshift.correct.rehearsal import mixing_weights
from shapshift.knn import shapley
from shapshift.valuation import without_error

SIGMA = 1.0


def make(n: int = 240, m: int = 120, seed: int = 0, n_classes: int = 2) -> tuple[Any, ...]:
    X, y = make_gaussian_quantiles(n_samples=n + m, n_features=2, n_classes=n_classes, random_state=seed)
    return X[:n], y[:n], X[n:], y[n:]


@pytest.fixture(scope="module")
def world() -> dict[str, Any]:
    X, y, X_val, y_val = make()
    model = KNNShapley(progress=False).fit(X, y)
    noise = GaussianNoise(SIGMA, random_state=1)
    X_noisy, _ = noise(X_val, y_val)
    return {
        "X": X,
        "y": y,
        "X_val": X_val,
        "y_val": y_val,
        "model": model,
        "noise": noise,
        "X_noisy": X_noisy,
        "clean": model.value(X_val, y_val),
        "noisy": model.value(X_noisy, y_val),
    }


@pytest.fixture(scope="module")
def corrected(world: dict[str, Any]) -> tuple[PosteriorCorrector, Valuation]:
    corrector = PosteriorCorrector(world["noise"]).fit(world["model"])
    return corrector, corrector.transform(world["X_noisy"], world["y_val"])


# --- rows that a point does not see ---------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_an_excluded_row_is_ranked_last(metric: str) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(7, 3)), np.array([0, 1, 0, 1, 1, 0, 1])
    points, targets, exclude = X[[2, 4, 6]], y[[2, 4, 6]], np.array([2, 4, -1])
    model = KNNShapley(2, metric=metric).fit(X, y)
    found = model.value(points, targets, exclude=exclude, matrix=True).matrix
    distances = naive.distance_matrix(points, X, metric)
    for j, (target, row) in enumerate(zip(targets, exclude, strict=True)):
        if row >= 0:
            distances[j, row] = 100.0
        expected = naive.knn_values(
            distances[j],
            y == target,
            n_neighbors=2,
            utility="soft",
            semivalue="shapley",
            n_classes=2,
            ties="average",
        )
        np.testing.assert_allclose(found[:, j], expected, atol=1e-12)


def test_without_excluding_a_row_sees_itself(world: dict[str, Any]) -> None:
    seen = world["model"].value(world["X"][:1], world["y"][:1], matrix=True).matrix
    hidden = world["model"].value(world["X"][:1], world["y"][:1], exclude=[0], matrix=True).matrix
    assert seen[0, 0] > 10 * abs(hidden[0, 0])
    none = world["model"].value(world["X"][:1], world["y"][:1], exclude=[-1], matrix=True).matrix
    np.testing.assert_array_equal(none, seen)


@pytest.mark.parametrize(
    ("exclude", "message"),
    [([0], "must hold 120 integers"), (np.zeros(120), "type float64"), (np.full(120, 240), "0 to 239, or -1")],
)
def test_bad_exclusions_are_refused(world: dict[str, Any], exclude: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        world["model"].value(world["X_val"], world["y_val"], exclude=exclude)


# --- the prior ------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000))
def test_log_densities_are_those_of_normals(seed: int) -> None:
    rng = np.random.default_rng(seed)
    points, rows = rng.normal(size=(3, 2)) + 50, rng.normal(size=(5, 2)) + 50
    variance = rng.uniform(0.1, 2.0, 2)
    found = log_normal(points, rows, variance)
    for (j, point), (t, row) in product(enumerate(points), enumerate(rows)):
        expected = multivariate_normal(row, np.diag(variance)).logpdf(point)
        assert found[j, t] - np.log(2 * np.pi) == pytest.approx(expected)


def small_game(seed: int = 0, n: int = 30, m: int = 12) -> tuple[TrainingSet, NoisyPoints]:
    X, y, X_val, y_val = make(n, m, seed)
    X_noisy = X_val + 0.5 * np.random.default_rng(seed).normal(size=X_val.shape)
    prior = fit_prior(X, y, 2, np.full(2, 0.5), np.random.default_rng(seed))
    return TrainingSet(KNNShapley(3).fit(X, y), X, y.astype(np.int64), np.arange(n), prior), NoisyPoints(X_noisy, y_val)


def naive_labels(rows: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Probabilities of two labels near each row, vote by vote."""
    found = np.empty((len(rows), 2))
    for t, row in enumerate(rows):
        others = [s for s in np.argsort(((rows - row) ** 2).sum(axis=1), kind="stable") if s != t][:20]
        votes = np.array([1 + sum(codes[s] == label for s in others) for label in (0, 1)], dtype=float)
        votes *= [0.95 if codes[t] == label else 0.05 for label in (0, 1)]
        found[t] = 0.98 * votes / votes.sum() + 0.01
    return found


def dense_weights(game: TrainingSet, points: NoisyPoints) -> np.ndarray:
    """Posterior weights of rows, straight from Bayes' rule in the units of the table."""
    prior = game.prior
    labels = naive_labels(prior.rows / np.sqrt(prior.variance), game.codes)
    weights = np.empty((len(points.X), len(game.X)))
    back = np.diag(prior.unit) @ prior.basis
    for (j, x), (t, row) in product(enumerate(points.X), enumerate(game.X)):
        covariance = back @ np.diag(prior.variance) @ back.T + np.diag(prior.unit**2)
        label = labels[t, points.codes[j]]
        weights[j, t] = multivariate_normal(row, covariance).pdf(x) * label
    return weights / weights.sum(axis=1, keepdims=True)


def test_labels_are_voted_on_and_a_lone_row_is_doubted(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    rows, codes = rng.normal(size=(60, 3)), rng.integers(0, 2, 60)
    whole = label_probabilities(rows, codes, 2)
    np.testing.assert_allclose(whole[:2].T, naive_labels(rows, codes), atol=1e-12)
    np.testing.assert_array_equal(whole[2], np.ones(60))  # a label never seen: all rows are alike to it
    monkeypatch.setattr(priors, "TILE", 60 * 7)
    np.testing.assert_array_equal(label_probabilities(rows, codes, 2), whole)
    # Far clusters of one class each, and one row with the other label: it attracts fewer points of its label than any
    # row that really has it, and fewer than by its own label alone.
    rows = np.concatenate([rng.normal(size=(30, 2)), rng.normal(size=(30, 2)) + 50])
    codes = np.repeat([0, 1], 30)
    codes[3] = 1
    found = label_probabilities(rows, codes, 2)
    assert found[1, 3] < 0.6 < 0.95 < found[1, 30:].min()
    # A row of another class than all others, and fewer rows than neighbours that are asked.
    few = label_probabilities(rows[:3], np.array([0, 2, 2]), 3)
    np.testing.assert_allclose(few[:3].sum(axis=0), 1.0)
    np.testing.assert_allclose(label_probabilities(rows, np.zeros(60, dtype=np.int64), 1)[0], 1.0)


def test_weights_are_bayes_rule() -> None:
    game, points = small_game()
    where = game.prior.coordinates(points.X)
    weighed = game.prior.weigh(where, points.codes, 2000, np.random.default_rng(0))
    expected = dense_weights(game, points)
    for label, code in enumerate(weighed.labels):
        np.testing.assert_allclose(weighed.mass[label], expected[points.codes == code].sum(axis=0) / 12, atol=1e-12)
    counts = np.array([np.bincount(rows, minlength=30) for rows in weighed.drawn]) / 2000
    np.testing.assert_allclose(counts, expected, atol=1 / 2000 + 1e-9)  # evenly spread draws are never further off
    heavy = weighed.heavy.toarray()
    np.testing.assert_allclose(heavy, np.where(expected < priors.NEGLIGIBLE, 0, expected), atol=1e-12)


def test_moved_points_have_the_posterior_of_their_row() -> None:
    game, points = small_game()
    prior, rng = game.prior, np.random.default_rng(0)
    where = prior.coordinates(points.X)[:1]
    repeated = np.repeat(where, 40_000, axis=0)
    drawn = prior.move(np.zeros(40_000, dtype=np.int64), repeated, np.repeat(points.X[:1], 40_000, axis=0), rng)
    back = np.diag(prior.unit) @ prior.basis
    H, E = back @ np.diag(prior.variance) @ back.T, np.diag(prior.unit**2)
    gain = H @ np.linalg.inv(H + E)
    np.testing.assert_allclose(drawn.mean(axis=0), game.X[0] + gain @ (points.X[0] - game.X[0]), atol=0.01)
    np.testing.assert_allclose(np.cov(drawn.T), gain @ E, atol=0.01)


def test_features_without_noise_are_kept() -> None:
    X, y, X_val, _ = make(60, 20)
    prior = fit_prior(X, y, 2, np.array([0.5, 0.0]), np.random.default_rng(0))
    moved = prior.move(np.arange(20), prior.coordinates(X_val), X_val, np.random.default_rng(0))
    np.testing.assert_array_equal(moved[:, 1], X_val[:, 1])
    assert (moved[:, 0] != X_val[:, 0]).all()


# --- points at rows -------------------------------------------------------------------------------------------------


def naive_at_rows(game: TrainingSet, points: NoisyPoints) -> np.ndarray:
    """Sum over points and rows, with the row left out of the game and its own place left out of its value."""
    n = len(game.X)
    weights = dense_weights(game, points)
    values = {}
    for t, code in product(range(n), (0, 1)):
        distances = ((game.X - game.X[t]) ** 2).sum(axis=1)
        distances[t] = 1e6
        one = KNNShapley(3, metric="precomputed").fit(np.zeros((n, 1)), game.codes)
        values[t, code] = one.value(distances[None], [code]).values
    total = np.zeros(n)
    for i in range(n):
        for j, code in enumerate(points.codes):
            others = [t for t in range(n) if t != i]
            total[i] += sum(weights[j, t] * values[t, code][i] for t in others) / (1 - weights[j, i])
    return total / len(points.X)


def test_points_at_rows_leave_the_row_out(monkeypatch: pytest.MonkeyPatch) -> None:
    game, points = small_game()
    monkeypatch.setattr(priors, "NEGLIGIBLE", 0.0)
    monkeypatch.setattr(drawing, "DUST", 0.0)
    monkeypatch.setattr(drawing, "LARGEST_ODDS", np.inf)
    exact = next(draw_in_stages(game, points, 8, np.random.default_rng(0), moved=False))["at_rows"]
    assert len(exact.rounds) == 1  # 60 rows and labels, 96 draws: every row is valued
    expected = naive_at_rows(game, points)
    np.testing.assert_allclose(exact.mean, expected, atol=1e-12)
    np.testing.assert_allclose(sum(exact.sums.values()), expected, atol=1e-12)
    assert sum(exact.shares.values()) == pytest.approx(1.0)
    # Drawing instead comes to the same on average.
    (*_, drawn) = draw_in_stages(game, points, 400, np.random.default_rng(0), moved=False, most_rows=1)
    assert len(drawn["at_rows"].rounds) == 400
    np.testing.assert_allclose(drawn["at_rows"].mean, expected, atol=0.05 * expected.std())


def test_shortcuts_change_little() -> None:
    game, points = small_game()
    found = next(draw_in_stages(game, points, 8, np.random.default_rng(0), moved=False))["at_rows"].mean
    expected = naive_at_rows(game, points)
    assert np.abs(found - expected).max() < 0.02 * expected.std()


def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    game, points = small_game()
    (*_, whole) = draw_in_stages(game, points, 4, np.random.default_rng(0))
    monkeypatch.setattr(priors, "TILE", 60)
    monkeypatch.setattr(drawing, "MATRIX_BYTES", 8 * 30 * 7)
    (*_, cut) = draw_in_stages(game, points, 4, np.random.default_rng(0))
    np.testing.assert_allclose(cut["at_rows"].mean, whole["at_rows"].mean, atol=1e-15)
    np.testing.assert_allclose(cut["moved"].mean, whole["moved"].mean, atol=1e-15)


def test_a_class_that_a_rehearsal_holds_back_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.normal(size=(40, 2)), 3, axis=0)  # copies, which the model measures once
    codes = np.concatenate([[0], 1 + (np.arange(119) % 2)])
    prior = fit_prior(X, codes, 3, np.full(2, 0.5), rng)
    game = TrainingSet(KNNShapley(3, progress=False).fit(X, codes), X, codes, np.arange(120), prior)
    held, rest = np.arange(30), np.arange(30, 120)  # the only row of class 0 is held back

    def split() -> tuple[np.ndarray, ...]:
        return rehearsal._one_split(game, held, rest, lambda X, rng: X + 0.5, 4, np.random.default_rng(1))

    found = split()
    assert shapley.find_duplicates(game.model._index, codes) is not None
    monkeypatch.setattr(shapley, "find_duplicates", lambda index, codes: None)
    for with_copies, without in zip(found, split(), strict=True):
        np.testing.assert_allclose(with_copies, without, atol=1e-12)


# --- mixing ---------------------------------------------------------------------------------------------------------


@given(st.integers(0, 10_000))
def test_mixing_weights_are_the_best_on_a_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    target = rng.normal(size=40)
    estimates = target[:, None] + rng.normal(size=(40, 3)) @ np.diag(rng.uniform(0.1, 2, 3)) + rng.normal(size=3)
    found = mixing_weights(estimates, target)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0)

    def height(weights: np.ndarray) -> float:
        pull = 1e-3 * target.var() * ((weights - [1, 0, 0]) ** 2).sum()
        return float(np.mean((estimates @ weights - target) ** 2) + pull)

    grid = [(a, b, 20 - a - b) for a in range(21) for b in range(21 - a)]
    assert height(found) <= min(height(np.array(each) / 20) for each in grid) + 1e-9


def test_estimates_that_are_alike_leave_the_values_as_they_came() -> None:
    target = np.arange(10.0)
    np.testing.assert_allclose(mixing_weights(np.column_stack([target + 1] * 3), target), [1, 0, 0], atol=1e-9)


# --- the corrector --------------------------------------------------------------------------------------------------


def test_values_come_nearer_to_the_clean_ones(world: dict[str, Any], corrected: Any) -> None:
    corrector, found = corrected
    clean, noisy = world["clean"].values, world["noisy"].values
    assert spearman(found.values, clean) > spearman(noisy, clean) + 0.3
    assert np.abs(found.values - clean).mean() < 0.7 * np.abs(noisy - clean).mean()
    assert corrector.rehearsal_.spearman["mixed"] > corrector.rehearsal_.spearman["noisy"]
    assert sum(corrector.weights_.values()) == pytest.approx(1.0)
    assert found.parameters["posterior"]["corrector"] == "PosteriorCorrector"
    assert "rank agreement when rehearsed" in str(corrector.report_)


def test_levels_average_to_the_values(world: dict[str, Any], corrected: Any) -> None:
    _, found = corrected
    assert found.level_counts.sum() == found.n_val == 120
    np.testing.assert_allclose(found.level_counts @ found.level_values / 120, found.values, atol=1e-15)
    np.testing.assert_array_equal(found.entropy, world["noisy"].entropy)


def spread_over_stated(runs: list[Valuation]) -> float:
    """How far values of several seeds spread, in units of the errors of draws and mixture that they state."""
    spread = np.var([each.values for each in runs], axis=0, ddof=1)
    stated = [each.sampling["estimation_error"] * np.mean(each.standard_error**2) for each in runs]
    return float(np.sqrt(np.mean(spread) / np.mean(stated)))


def test_same_seed_same_bytes_and_another_seed_within_the_standard_error(world: dict[str, Any]) -> None:
    def run(seed: int) -> Valuation:
        corrector = PosteriorCorrector(world["noise"], tol=0, draws=8, random_state=seed).fit(world["model"])
        # One mixture for all seeds: only the draws shall differ.
        weights, sure = {"noisy": 0.2, "moved": 0.8, "at_rows": 0.0}, np.zeros((3, 3)).tolist()
        rehearsed = replace(corrector.rehearsal_, covariance=sure)
        corrector._state = replace(corrector._state, weights=weights, rehearsal=rehearsed)
        return corrector.transform(world["X_noisy"], world["y_val"])

    first, again = run(0), run(0)
    np.testing.assert_array_equal(first.values, again.values)
    np.testing.assert_array_equal(first.standard_error, again.standard_error)
    # Draws are spread evenly, so the stated error is a little high.
    assert 0.5 < spread_over_stated([first, *(run(seed) for seed in range(1, 9))]) < 1.15


@pytest.mark.parametrize("sigma", [0.4, SIGMA])
def test_the_standard_error_covers_the_mixture_of_another_seed(world: dict[str, Any], sigma: float) -> None:
    X_noisy, y_val = GaussianNoise(sigma, random_state=1)(world["X_val"], world["y_val"])
    correctors = [PosteriorCorrector(sigma, draws=4, random_state=seed).fit(world["model"]) for seed in range(10)]
    runs = [corrector.transform(X_noisy, y_val) for corrector in correctors]
    assert 0.5 < spread_over_stated(runs) < 1.2
    # The mixture moves all rows of a run together: rows of one run say little.
    low, high = np.transpose([each.interval() for each in runs], (1, 0, 2))
    middle = np.mean([each.values for each in runs], axis=0)
    assert np.mean((low <= middle) & (middle <= high)) > 0.9


def test_a_part_that_only_other_rehearsals_mix_in_counts_in_the_error(world: dict[str, Any]) -> None:
    corrector = PosteriorCorrector(world["noise"], draws=4).fit(world["model"])
    alone = {"noisy": 1.0, "moved": 0.0, "at_rows": 0.0}
    errors = []
    for variance in (0.0, 0.01):
        covariance = variance * np.array([[1.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
        rehearsed = replace(corrector.rehearsal_, covariance=covariance.tolist())
        corrector._state = replace(corrector._state, weights=alone, rehearsal=rehearsed)
        found = corrector.transform(world["X_noisy"], world["y_val"])
        np.testing.assert_allclose(found.values, world["noisy"].values, atol=1e-15)
        errors.append(found.standard_error)
        assert (found.sampling["estimation_error"] > 0) == (variance > 0)
    assert (errors[1] > errors[0]).all()


def test_the_order_of_the_rows_means_nothing_and_copies_are_equal(world: dict[str, Any]) -> None:
    X, y = np.vstack([world["X"], world["X"][:20]]), np.append(world["y"], world["y"][:20])
    order = np.random.default_rng(3).permutation(len(y))
    found = []
    for rows in (np.arange(len(y)), order):
        model = KNNShapley(progress=False).fit(X[rows], y[rows])
        values = model.value(world["X_noisy"], world["y_val"], correction=PosteriorCorrector(SIGMA, draws=4)).values
        found.append(values[np.argsort(rows)])
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9, atol=1e-15)
    np.testing.assert_array_equal(found[0][:20], found[0][240:])


def test_drawing_stops_early_and_not_at_all(world: dict[str, Any]) -> None:
    for tol, draws in ((10.0, 4), (0.0, 12)):
        corrector = PosteriorCorrector(world["noise"], tol=tol, draws=12).fit(world["model"])
        corrector._state = replace(corrector._state, weights={"noisy": 0.5, "moved": 0.5, "at_rows": 0.0})
        found = corrector.transform(world["X_noisy"], world["y_val"])
        assert corrector.report_.draws == draws
        assert (found.standard_error > 0).any()


def test_no_noise_changes_nothing(world: dict[str, Any]) -> None:
    found = PosteriorCorrector(0.0).fit(world["model"]).transform(world["X_val"], world["y_val"])
    np.testing.assert_allclose(found.values, world["clean"].values, atol=1e-15)
    assert found.sampling["estimation_error"] == 0
    # The choice of the points is left: as with the plain values, but from 20 blocks.
    ratio = np.sqrt((found.standard_error**2).mean() / (world["clean"].standard_error ** 2).mean())
    assert 0.8 < ratio < 1.25


@pytest.mark.parametrize("noise", [SIGMA, [SIGMA, SIGMA], GaussianNoise(SIGMA)])
def test_noise_can_be_stated_in_several_ways(world: dict[str, Any], corrected: Any, noise: Any) -> None:
    found = PosteriorCorrector(noise).fit(world["model"]).transform(world["X_noisy"], world["y_val"])
    np.testing.assert_array_equal(found.values, corrected[1].values)


def test_relative_noise_is_in_standard_deviations_of_the_features(world: dict[str, Any]) -> None:
    model = KNNShapley(progress=False).fit(world["X"] * [1.0, 4.0], world["y"])
    std = model.feature_std_
    relative = PosteriorCorrector(GaussianNoise(0.5, relative=True)).fit(model)
    stated = PosteriorCorrector(0.5 * std).fit(model)
    X_noisy = world["X_val"] * [1.0, 4.0] + 0.5 * std * np.random.default_rng(0).normal(size=world["X_val"].shape)
    np.testing.assert_array_equal(
        relative.transform(X_noisy, world["y_val"]).values, stated.transform(X_noisy, world["y_val"]).values
    )


def test_laplace_noise_is_undone_too(world: dict[str, Any]) -> None:
    noise = LaplaceNoise.from_scale(0.8, random_state=0)
    X_noisy, y_val = noise(world["X_val"], world["y_val"])
    found = world["model"].value(X_noisy, y_val, correction=PosteriorCorrector(noise))
    before = world["model"].value(X_noisy, y_val).values
    assert spearman(found.values, world["clean"].values) > spearman(before, world["clean"].values) + 0.2


def test_uneven_noise_is_undone_feature_by_feature(world: dict[str, Any]) -> None:
    std = np.array([1.2, 0.0])
    X_noisy = world["X_val"] + std * np.random.default_rng(0).normal(size=world["X_val"].shape)
    found = {
        name: spearman(
            world["model"].value(X_noisy, world["y_val"], correction=PosteriorCorrector(noise)).values,
            world["clean"].values,
        )
        for name, noise in (("as it is", std), ("noiseless", 0.0))
    }
    assert found["as it is"] > found["noiseless"] + 0.2


def test_correction_as_an_argument_of_value(world: dict[str, Any], corrected: Any) -> None:
    _, found = corrected
    model, given = world["model"], (world["X_noisy"], world["y_val"])
    unfitted = PosteriorCorrector(world["noise"])
    np.testing.assert_array_equal(model.value(*given, correction=unfitted).values, found.values)
    assert not hasattr(unfitted, "report_")  # a copy was fitted
    np.testing.assert_array_equal(model.value(*given, correction=corrected[0]).values, found.values)
    boundary = BoundaryCorrector().fit(world["clean"])
    expected = boundary.transform(world["noisy"]).values
    np.testing.assert_array_equal(model.value(*given, correction=boundary).values, expected)
    with pytest.raises(TypeError, match="must be a PosteriorCorrector, or a fitted BoundaryCorrector"):
        model.value(*given, correction=0.5)
    with pytest.raises(TypeError, match="Got the class PosteriorCorrector"):
        model.value(*given, correction=PosteriorCorrector)
    with pytest.raises(ValueError, match="does not go with 'groups'"):
        model.value(*given, correction=unfitted, groups=["a"] * 120)


@pytest.mark.parametrize("kind", [BoundaryCorrector, EntropyNormalizer])
def test_clean_summary_numbers_come_on_top(world: dict[str, Any], corrected: Any, kind: Any) -> None:
    both = kind().fit(world["clean"]).transform(corrected[1])
    assert both.stats()["positive_count"] == world["clean"].stats()["positive_count"]
    assert spearman(both.values, world["clean"].values) > spearman(world["noisy"].values, world["clean"].values) + 0.2
    assert both.standard_error is None
    with pytest.raises(ValueError, match="has been corrected already"):
        kind().fit(world["clean"]).transform(both)


def test_standard_errors_are_kept_in_files_and_tables(tmp_path: Path, world: dict[str, Any], corrected: Any) -> None:
    _, found = corrected
    found.save(tmp_path / "new.npz")
    loaded = Valuation.load(tmp_path / "new.npz")
    np.testing.assert_array_equal(loaded.standard_error, found.standard_error)
    assert "standard_error" in found.to_frame("pyarrow").column_names
    assert loaded.sampling == found.sampling
    without_error(world["noisy"]).save(tmp_path / "plain.npz")
    with np.load(tmp_path / "plain.npz") as file:
        assert "standard_error" not in file.files  # as files were before there were any
    loaded = Valuation.load(tmp_path / "plain.npz")
    assert loaded.standard_error is None
    assert "standard_error" not in loaded.to_frame("pyarrow").column_names


def test_names_labels_and_frames_of_the_caller(world: dict[str, Any], corrected: Any) -> None:
    pd = pytest.importorskip("pandas")
    names = np.array(["in", "out"])
    frame = pd.DataFrame(world["X"], columns=["a", "b"], index=[f"r{i}" for i in range(240)])
    model = KNNShapley(progress=False).fit(frame, names[world["y"]])
    shuffled = pd.DataFrame(world["X_noisy"], columns=["a", "b"])[["b", "a"]]
    found = model.value(shuffled, names[world["y_val"]], correction=PosteriorCorrector(world["noise"]))
    np.testing.assert_array_equal(found.values, corrected[1].values)
    assert found.to_frame().index[0] == "r0"


def test_more_than_two_classes_and_labels_never_seen() -> None:
    X, y, X_val, y_val = make(200, 80, n_classes=3)
    model = KNNShapley(progress=False).fit(X, y)
    noise = GaussianNoise(1.0, random_state=0)
    X_noisy, _ = noise(X_val, y_val)
    found = model.value(X_noisy, y_val, correction=PosteriorCorrector(noise))
    clean = model.value(X_val, y_val).values
    assert spearman(found.values, clean) > spearman(model.value(X_noisy, y_val).values, clean) + 0.1
    y_odd = y_val.copy()
    y_odd[:3] = 9
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        model.value(X_noisy, y_odd, correction=PosteriorCorrector(noise))
    assert len([each for each in said if "never seen in training" in str(each.message)]) == 1


def test_cosine_needs_the_rows(world: dict[str, Any]) -> None:
    model = KNNShapley(metric="cosine", progress=False).fit(world["X"], world["y"])
    with pytest.raises(ValueError, match="needs the training rows as the parameter 'X_train'"):
        PosteriorCorrector(0.3).fit(model)
    corrector = PosteriorCorrector(0.3).fit(model, X_train=world["X"])
    X_noisy = world["X_val"] + 0.3 * np.random.default_rng(0).normal(size=world["X_val"].shape)
    assert corrector.transform(X_noisy, world["y_val"]).n_train == 240
    with pytest.raises(ValueError, match="240 rows that were fitted"):
        PosteriorCorrector(0.3).fit(model, X_train=world["X"][:9])


def test_few_rows_rehearse_nothing() -> None:
    X, y, X_val, y_val = make(20, 30)
    model = KNNShapley(progress=False).fit(X, y)
    with pytest.warns(CorrectionWarning, match="too few training rows"):
        found = PosteriorCorrector(0.5).fit(model).transform(X_val, y_val)
    np.testing.assert_allclose(found.values, model.value(X_val, y_val).values, atol=1e-15)


@pytest.mark.filterwarnings("error")
def test_a_single_row_has_nothing_to_learn_from() -> None:
    _, _, X_val, y_val = make(20, 30)
    model = KNNShapley(progress=False).fit(X_val[:1], y_val[:1])
    with pytest.warns(CorrectionWarning, match=r"too few training rows \(1\)"):
        corrector = PosteriorCorrector(0.5).fit(model)
    same = y_val == y_val[0]
    found = corrector.transform(X_val[same], y_val[same])
    np.testing.assert_array_equal(found.values, model.value(X_val[same], y_val[same]).values)
    with pytest.raises(ValueError, match=r"at least 2 training rows\. Got noise=0\.5 and 1 row"):
        corrector.draw_points(X_val[same], y_val[same], 3)


def test_a_single_point_is_not_called_scattered(world: dict[str, Any], corrected: Any) -> None:
    inside = np.argmin((world["X_noisy"] ** 2).sum(axis=1))
    found = corrected[0].transform(world["X_noisy"][[inside]], world["y_val"][[inside]])  # a warning is an error here
    assert found.n_val == 1
    assert found.standard_error is None
    assert corrected[0].report_.standard_error > 0  # of the draws


@pytest.mark.parametrize("tiny", [1e-300, 1e-12])
def test_noise_that_rounding_swallows_is_none(world: dict[str, Any], tiny: float) -> None:
    found = PosteriorCorrector(tiny).fit(world["model"]).transform(world["X_val"], world["y_val"])
    np.testing.assert_allclose(found.values, world["clean"].values, atol=1e-15)
    X_noisy = np.column_stack([world["X_val"][:, 0], world["X_noisy"][:, 1]])
    uneven = PosteriorCorrector([tiny, SIGMA]).fit(world["model"]).transform(X_noisy, world["y_val"])
    exact = PosteriorCorrector([0.0, SIGMA]).fit(world["model"]).transform(X_noisy, world["y_val"])
    assert spearman(uneven.values, exact.values) > 0.99


def test_noise_far_wider_than_the_data_leaves_the_labels_alone_to_tell(world: dict[str, Any]) -> None:
    noise = GaussianNoise(1e5, random_state=0)
    X_noisy, y_val = noise(world["X_val"], world["y_val"])
    found = world["model"].value(X_noisy, y_val, correction=PosteriorCorrector(noise))
    assert spearman(found.values, world["clean"].values) > 0.5
    with pytest.raises(ValueError, match=r"more than 1e\+09 times as wide as the training rows"):
        PosteriorCorrector(1e200).fit(world["model"])


@pytest.mark.parametrize("method", ["certified", "truncated"])
def test_draws_are_valued_exactly_whatever_the_model_does(world: dict[str, Any], corrected: Any, method: str) -> None:
    corrector, exact = corrected
    model = KNNShapley(progress=False, method=method, tol=0.05).fit(world["X"], world["y"])
    noisy = model.value(world["X_noisy"], world["y_val"])
    found = model.value(world["X_noisy"], world["y_val"], correction=PosteriorCorrector(world["noise"]))
    np.testing.assert_allclose(found.error_bound, corrector.weights_["noisy"] * noisy.error_bound)
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-15).all()


@pytest.mark.parametrize("noise", ["estimate", SIGMA])
def test_transforms_side_by_side_do_not_mix_up(world: dict[str, Any], noise: Any) -> None:
    corrector = PosteriorCorrector(noise, draws=4, progress=False).fit(world["model"])
    y_odd = np.where(np.arange(120) < 3, 9, world["y_val"])  # warns, in every thread
    sets = [(world["X_val"] + scale * (world["X_noisy"] - world["X_val"]), y_odd) for scale in (0.7, 0.9, 1.1, 1.3)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        filters = list(warnings.filters)
        alone = [corrector.transform(*each) for each in sets]
        with ThreadPoolExecutor(4) as pool:
            together = list(pool.map(lambda each: corrector.transform(*each), sets * 3))
        assert warnings.filters == filters
    for k, found in enumerate(together):
        np.testing.assert_array_equal(found.values, alone[k % 4].values)
        np.testing.assert_array_equal(found.standard_error, alone[k % 4].standard_error)
        assert found.parameters["posterior"] == alone[k % 4].parameters["posterior"]


def test_equal_rows_do_not_break_it() -> None:
    X, y = np.zeros((50, 2)), np.arange(50) % 2
    model = KNNShapley(progress=False).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorrectionWarning)
        found = PosteriorCorrector(0.5).fit(model).transform(np.ones((10, 2)), np.arange(10) % 2)
    assert np.isfinite(found.values).all()
    with pytest.raises(ValueError, match="rows that are all equal"):
        PosteriorCorrector("estimate").fit(model).transform(np.ones((10, 2)), np.arange(10) % 2)


def test_draws_to_look_at_lie_between_the_rows_and_the_noisy_point(world: dict[str, Any], corrected: Any) -> None:
    drawn = corrected[0].draw_points(world["X_noisy"][:5], world["y_val"][:5], 200)
    assert drawn.shape == (5, 200, 2)
    nearest = ((drawn[:, :, None] - world["X"]) ** 2).sum(axis=3).min(axis=2)
    assert nearest.mean() < ((world["X_noisy"][:, None] - world["X"]) ** 2).sum(axis=2).min(axis=1).mean() + 0.2
    with pytest.raises(ValueError, match="needs a stated noise above 0"):
        PosteriorCorrector(0.0).fit(world["model"]).draw_points(world["X_noisy"], world["y_val"], 3)


def test_points_from_elsewhere_are_noticed(world: dict[str, Any], corrected: Any) -> None:
    with pytest.warns(CorrectionWarning, match="more scattered"):
        corrected[0].transform(world["X_noisy"] + 5.0, world["y_val"])
    with pytest.warns(CorrectionWarning, match="less scattered"):
        PosteriorCorrector(3.0).fit(world["model"]).transform(world["X_val"] * 0.1, world["y_val"])


# --- noise of unknown size ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sigma", [0.8, 1.5])
def test_the_size_of_the_noise_is_found(world: dict[str, Any], sigma: float) -> None:
    noise = GaussianNoise(sigma, relative=True, random_state=0).bind(world["model"])
    X_noisy, y_val = noise(world["X_val"], world["y_val"])
    corrector = PosteriorCorrector().fit(world["model"])
    found = corrector.transform(X_noisy, y_val)
    estimate = corrector.noise_estimate_
    assert estimate.low <= sigma <= estimate.high
    assert not estimate.is_zero
    assert corrector.report_.noise["sigma"] == estimate.sigma
    clean = world["clean"].values
    assert spearman(found.values, clean) > spearman(world["model"].value(X_noisy, y_val).values, clean)


def test_no_noise_cannot_be_told_apart_from_none(world: dict[str, Any]) -> None:
    corrector = PosteriorCorrector().fit(world["model"])
    with pytest.warns(CorrectionWarning, match="is indistinguishable from none. The values are not corrected"):
        found = corrector.transform(world["X_val"], world["y_val"])
    assert corrector.noise_estimate_.low == 0.0
    np.testing.assert_allclose(found.values, world["clean"].values, atol=1e-15)


# --- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"noise": "much"}, ValueError, "'noise' parameter of PosteriorCorrector must be GaussianNoise"),
        ({"noise": -1.0}, TypeError, "one for each feature, or 'estimate'"),
        ({"noise": True}, TypeError, "one for each feature, or 'estimate'"),
        ({"noise": [0.1, 0.2, 0.3]}, ValueError, "each of the 2 features. Got 3"),
        ({"noise": 0.5, "draws": 1}, ValueError, "'draws' parameter of PosteriorCorrector must be at least 2"),
        ({"noise": 0.5, "tol": -1}, ValueError, "'tol' parameter"),
        ({"noise": 0.5, "random_state": None}, TypeError, "'random_state' parameter"),
    ],
)
def test_bad_parameters_are_named(world: dict[str, Any], parameters: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        PosteriorCorrector(**parameters).fit(world["model"])


def test_bad_models_are_named(world: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match="must be a fitted estimator with a value method"):
        PosteriorCorrector(0.5).fit(world["noisy"])
    with pytest.raises(TypeError, match="which is not fitted"):
        PosteriorCorrector(0.5).fit(KNNShapley())
    with pytest.raises(TypeError, match="Got KNNRegressionShapley instead"):
        PosteriorCorrector(0.5).fit(KNNRegressionShapley().fit(world["X"], world["X"][:, 0]))
    model = KNNShapley(metric="precomputed").fit(np.zeros((3, 1)), [0, 1, 1])
    with pytest.raises(ValueError, match="takes distances"):
        PosteriorCorrector(0.5).fit(model)
