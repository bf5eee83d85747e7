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
from shapshift.sampled import ClassWise, OutOfBag, Truncated
from shapshift.sampled import _loop as loop
from shapshift.sampled._game import Answers
from shapshift.sampled._loop import Outcome, Plan, run_sampler
from shapshift.sampled._protocol import size_chances

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
    return run_sampler(game, Plan(seed=seed, max_fits=fits, **{**settings, **plan}))


def coverage(game: Tabulated, truth: np.ndarray, monkeypatch: pytest.MonkeyPatch, fits: int, **plan: Any) -> float:
    """Share of the 95% intervals that hold the truth, over seeds and players."""
    monkeypatch.setattr(loop, "ASKED_PER_FIT", 4)  # all coalitions are soon known: it ends by how many were asked for
    hits = []
    for seed in range(SEEDS):
        found = run(game, seed, fits, **plan)
        half = stats.t.ppf(0.975, found.observations - 1) * found.standard_error
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


def test_the_interval_of_a_valuation() -> None:
    rng = np.random.default_rng(0)
    X, y, X_val, y_val = rng.normal(size=(12, 2)), np.arange(12) % 2, rng.normal(size=(9, 2)), np.arange(9) % 2
    model = SampledShapley("naive_bayes", sampler="oob", max_fits=40, progress=False).fit(X, y)
    found = model.value(X_val, y_val)
    low, high = found.interval(0.9)
    quantile = stats.t.ppf(0.95, found.parameters["n_observations"] - 1)
    np.testing.assert_allclose((high - low) / 2, quantile * found.standard_error, rtol=1e-12)
    np.testing.assert_allclose((high + low) / 2, found.values, atol=1e-12)
    assert 2 <= found.parameters["n_observations"] < found.parameters["n_rounds"]
    with pytest.raises(ValueError, match=r"'confidence' parameter of Valuation.interval must be above 0 and below 1"):
        found.interval(1.0)
