"""Whether intervals cover what each sampler claims to estimate, over 200 seeds, on games that enumeration solves."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import naive
import numpy as np
import pytest
from scipy import stats

from shapshift import SampledShapley
from shapshift.engine.estimate import Estimate, Observations
from shapshift.sampled import (
    Antithetic,
    ClassWise,
    Complementary,
    GroupTesting,
    MaximumSampleReuse,
    OutOfBag,
    Permutation,
    Sampler,
    Stratified,
    Truncated,
)
from shapshift.sampled import _loop as loop
from shapshift.sampled._loop import Outcome, SamplingPlan, run_sampler
from shapshift.sampled.game import Answers
from shapshift.sampled.samplers import Setting, size_chances

SEEDS = 200


@dataclass
class Tabulated:
    """Utilities of every set of players, a row per set and a column per cell; being in it twice changes nothing."""

    table: np.ndarray
    n_players: int
    warm_start: bool = False

    def evaluate(self, coalitions: np.ndarray) -> Answers:
        sets = (coalitions > 0).astype(np.int64) @ (1 << np.arange(self.n_players))
        return Answers(self.table[sets], len(coalitions), 0, "")


def run(game: Tabulated, seed: int, fits: int, **plan: Any) -> Outcome:
    settings = {"total": np.ones(1), "chances": size_chances(game.n_players, "shapley"), "cache_bytes": 10**6}
    return run_sampler(game, SamplingPlan(seed=seed, max_fits=fits, **{**settings, **plan}))


def coverage(game: Tabulated, truth: np.ndarray, monkeypatch: pytest.MonkeyPatch, fits: int, **plan: Any) -> float:
    """Share of the 95% intervals that hold the truth, over seeds and players."""
    monkeypatch.setattr(loop, "ASKED_PER_FIT", 4)  # all coalitions are soon known: it ends by how many were asked for
    hits = []
    for seed in range(SEEDS):
        found = run(game, seed, fits, **plan)
        half = stats.t.ppf(0.975, found.degrees_of_freedom) * found.standard_error
        hits.append(np.abs(found.values - truth) <= half + 1e-12)
    return float(np.mean(hits))


def saturating(n: int) -> np.ndarray:
    """A game in which more is never worse and the last players add little."""
    weights = np.linspace(0.3, 1.2, n)
    inside = np.arange(2**n)[:, None] >> np.arange(n) & 1
    return 1 - np.exp(-inside @ weights)


def truncated_values(worth: np.ndarray, n: int, tolerance: float) -> np.ndarray:
    """Mean over all orders of what players gain until the order is left."""
    found = np.zeros(n)
    orders = list(itertools.permutations(range(n)))
    for order in orders:
        here = 0
        for player in order:
            if abs(worth[here] - worth[-1]) < tolerance:
                break
            found[player] += worth[here | 1 << player] - worth[here]
            here |= 1 << player
    return found / len(orders)


def test_truncated_intervals_cover_the_truncated_value_and_its_bias_is_below_the_tolerance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    n, tolerance = 5, 0.3
    worth = saturating(n)
    truth = truncated_values(worth, n, tolerance)
    game = Tabulated(worth[:, None], n)
    assert 0.92 <= coverage(game, truth, monkeypatch, 60, sampler=Truncated(tolerance)) <= 0.98
    shapley = naive.semivalues(worth, naive.size_weights(n, 1, "shapley"))
    bias = truth - shapley
    assert 0.1 * tolerance < np.abs(bias).max() < tolerance
    # What the intervals are not about: a long run is sure of itself, and off by the bias.
    long = run(game, 0, 1000, sampler=Truncated(tolerance))
    assert (np.abs(long.values - truth) < 4 * long.standard_error).all()
    assert np.abs(long.values - shapley).max() > 4 * long.standard_error.max()


def classwise_values(worth: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Mean over all sets of players of other classes of the Shapley value among the players of one's own."""
    n = classes.size
    found = np.zeros(n)
    for number in np.unique(classes):
        members, others = np.flatnonzero(classes == number), np.flatnonzero(classes != number)
        for chosen in itertools.product([0, 1], repeat=others.size):
            base = sum(1 << int(other) for other, here in zip(others, chosen, strict=True) if here)
            subsets = [
                base + sum(1 << int(member) for at, member in enumerate(members) if mask >> at & 1)
                for mask in range(2**members.size)
            ]
            inner = worth[subsets, number]
            found[members] += naive.semivalues(inner, naive.size_weights(members.size, 1, "shapley"))
        found[members] /= 2**others.size
    return found


def test_classwise_intervals_cover_the_enumerated_classwise_value(monkeypatch: pytest.MonkeyPatch) -> None:
    classes = np.array([0, 1, 0, 1, 0])
    worth = np.random.default_rng(4).random((2**5, 2)) + 0.2 * np.bitwise_count(np.arange(2**5))[:, None]
    truth = classwise_values(worth, classes)
    found = coverage(Tabulated(worth, 5), truth, monkeypatch, 50, sampler=ClassWise(), classes=classes)
    assert 0.92 <= found <= 0.98


def out_of_bag_values(table: np.ndarray, n: int) -> np.ndarray:
    """Mean utility of each player over all bootstrap samples that lack it."""
    sums, counts = np.zeros(n), np.zeros(n)
    for drawn in itertools.product(range(n), repeat=n):
        here = sum(1 << player for player in set(drawn))
        lacking = np.array([player not in drawn for player in range(n)])
        sums += np.where(lacking, table[here], 0.0)
        counts += lacking
    return sums / counts


def test_out_of_bag_intervals_cover_the_mean_over_all_bootstrap_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    n = 4
    table = np.random.default_rng(2).random((2**n, n))
    truth = out_of_bag_values(table, n)
    assert 0.92 <= coverage(Tabulated(table, n), truth, monkeypatch, 25, sampler=OutOfBag()) <= 0.98


def nearest_row_game(n: int, n_points: int) -> tuple[np.ndarray, np.ndarray]:
    """What every set of rows is worth by its row nearest to each of some points, and to the rows it lacks.

    Many rows change few predictions, so that a few rounds often see a row make no difference at all.
    """
    rng = np.random.default_rng(5)
    rows, points = rng.normal(size=(n, 2)), rng.normal(size=(n_points, 2))
    labels, point_labels = rows[:, 0] > 0, points[:, 0] > 0
    inside = (np.arange(2**n)[:, None] >> np.arange(n) & 1).astype(bool)

    def right(points: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        order = np.argsort(((points[:, None] - rows) ** 2).sum(axis=2), axis=1)
        nearest = order[np.arange(len(points)), inside[:, order].argmax(axis=2)]
        return np.where(inside.any(axis=1)[:, None], labels[nearest] == wanted, 0.5)

    return right(points, point_labels).mean(axis=1), right(rows, labels)


def after_rounds(sampler: Sampler, game: Tabulated, setting: Setting, seed: int, rounds: int) -> Estimate:
    """The estimate after a number of rounds, or as many more as it takes to observe every player."""
    prior = sampler.prior_variance(setting)
    estimate = Estimate(np.array(sampler.weights), setting.total, game.n_players, prior)
    while estimate.rounds < rounds or not estimate.complete:
        spawned = np.random.SeedSequence(seed, spawn_key=(estimate.rounds,))
        generator = sampler.round(setting, np.random.default_rng(spawned))
        asked = next(generator)
        try:
            while True:
                asked = generator.send(game.evaluate(asked).utilities)
        except StopIteration as done:
            estimate.add(done.value)
    return estimate


FEW = [Permutation(), Antithetic(), Stratified(2), Complementary(2), GroupTesting(), OutOfBag()]
# A round is a single fit, of which each player gets half: 8 fits do not tell the variance of 6 utilities.
CASES = [(sampler, rounds) for sampler in FEW for rounds in (8, 17)] + [(MaximumSampleReuse(), 40)]


@pytest.mark.parametrize(("sampler", "rounds"), CASES, ids=lambda part: getattr(part, "name", part))
def test_intervals_of_few_rounds_cover_the_truth(sampler: Sampler, rounds: int) -> None:
    n = 6
    worth, own = nearest_row_game(n, 12)
    semivalue = "banzhaf" if sampler.name == "msr" else "shapley"
    if isinstance(sampler, OutOfBag):
        game, truth = Tabulated(own, n), out_of_bag_values(own, n)
    else:
        game, truth = Tabulated(worth[:, None], n), naive.semivalues(worth, naive.size_weights(n, 1, semivalue))
    setting = Setting(n, size_chances(n, semivalue), game.table[0], game.table[-1], np.ones(1))
    hits = []
    for seed in range(SEEDS):
        estimate = after_rounds(sampler, game, setting, seed, rounds)
        error, freedom = estimate.standard_error()
        assert (error > 0).all()
        hits.append(np.abs(estimate.values() - truth) <= stats.t.ppf(0.975, freedom) * error)
    assert 0.92 <= np.mean(hits) <= 0.99


def gloves(n: int, n_left: int) -> np.ndarray:
    """Worth of every set of gloves, by the pairs in it: a few rounds may all see the same players make pairs."""
    sets = np.arange(2**n)
    left = np.bitwise_count(sets & ((1 << n_left) - 1))
    return np.minimum(left, np.bitwise_count(sets) - left).astype(np.float64)


ALL = [Permutation(), Truncated(), Antithetic(), Stratified(), Complementary(), GroupTesting(), MaximumSampleReuse()]


@pytest.mark.parametrize("rounds", [8, 30])
@pytest.mark.parametrize("sampler", ALL, ids=lambda part: part.name)
def test_rounds_that_are_alike_by_chance_leave_intervals_of_some_width(sampler: Sampler, rounds: int) -> None:
    semivalue = "banzhaf" if sampler.name == "msr" else "shapley"
    for n, n_left, wanted in ((12, 4, (0.92, 0.99)), (3, 1, (0.9, 1.0)), (12, 1, (0.85, 1.0))):
        worth = gloves(n, n_left)
        setting = Setting(n, size_chances(n, semivalue), worth[:1], worth[-1:], np.ones(1))
        truth = naive.semivalues(worth, naive.size_weights(n, 1, semivalue))
        hits = []
        for seed in range(SEEDS // 2):
            estimate = after_rounds(sampler, Tabulated(worth[:, None], n), setting, seed, rounds)
            error, freedom = estimate.standard_error()
            assert (error > 0).all()
            hits.append(np.abs(estimate.values() - truth) <= stats.t.ppf(0.975, freedom) * error)
        assert wanted[0] <= np.mean(hits) <= wanted[1]


def test_a_large_constant_changes_no_standard_error() -> None:
    rng = np.random.default_rng(0)
    observed, strata = rng.normal(size=(40, 6, 2)), rng.integers(0, 2, size=(40, 6))
    found = []
    for constant in (0.0, 1e9):
        estimate = Estimate(np.array([1.0, -1.0]), np.ones(2), 6)
        for values, stratum in zip(observed, strata, strict=True):
            estimate.add(Observations(values + constant, stratum))
        found.append(estimate.standard_error())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    variance = [observed.sum(axis=2)[strata[:, 0] == k, 0].var(ddof=1) for k in (0, 1)]
    np.testing.assert_allclose([estimate.contrasts[k, 0] / (estimate.counts[k, 0] - 1) for k in (0, 1)], variance, 1e-5)


def test_observations_that_do_not_vary_have_no_error_and_a_single_one_tells_none() -> None:
    estimate = Estimate(np.ones(1), np.ones(1), 3)
    added = Observations(np.array([[1.0], [2.0], [-3.0]]), np.zeros(3, dtype=np.int64))
    estimate.add(added)
    assert np.isnan(estimate.standard_error()[0]).all()
    for _ in range(3):
        estimate.add(added)
    np.testing.assert_array_equal(estimate.standard_error()[0], 0.0)


def test_out_of_bag_rows_seen_once_or_always_predicted_alike_have_intervals_of_some_width() -> None:
    # Classes far apart: every model is right about every row.
    X, y = np.arange(12.0)[:, None] + 100 * (np.arange(12) % 2)[:, None], np.arange(12) % 2
    found = SampledShapley("tree", sampler="oob", max_fits=20, random_state=3, progress=False).fit(X, y).value(X, y)
    assert found.parameters["n_observations"] <= 2
    np.testing.assert_array_equal(found.values, 1.0)
    low, high = found.interval()
    assert (high - low > 0.01).all()


def test_the_interval_of_a_valuation() -> None:
    rng = np.random.default_rng(0)
    X, y, X_val, y_val = rng.normal(size=(12, 2)), np.arange(12) % 2, rng.normal(size=(9, 2)), np.arange(9) % 2
    model = SampledShapley("naive_bayes", sampler="oob", max_fits=40, progress=False).fit(X, y)
    found = model.value(X_val, y_val)
    low, high = found.interval(0.9)
    quantile = stats.t.ppf(0.95, found.degrees_of_freedom)
    np.testing.assert_allclose((high - low) / 2, quantile * found.standard_error, rtol=1e-12)
    np.testing.assert_allclose((high + low) / 2, found.values, atol=1e-12)
    assert 2 <= found.parameters["n_observations"] < found.parameters["n_rounds"]
    with pytest.raises(ValueError, match=r"'confidence' parameter of Valuation.interval must be above 0 and below 1"):
        found.interval(1.0)
