"""Samplers and their loop on small games whose values enumeration tells."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import naive
import numpy as np
import pytest
from scipy import stats

from shapshift import Banzhaf, Beta
from shapshift.io.files import locked
from shapshift.sampled import Complementary, Distributional, Stratified, Truncated
from shapshift.sampled import _loop as loop
from shapshift.sampled._loop import Checkpoint, Outcome, SamplingPlan, UtilityCache, run_sampler
from shapshift.sampled.game import Answers
from shapshift.sampled.samplers import choose_sampler, size_chances

# Sampler, semivalue, and the semivalue as the enumeration calls it.
SAMPLED = [
    ("permutation", "shapley", "shapley"),
    ("permutation", "banzhaf", "banzhaf"),
    ("permutation", Beta(4, 1), ("beta", 4, 1)),
    ("permutation", Distributional(3), 3),
    (Truncated(0.0), "shapley", "shapley"),
    ("antithetic", "shapley", "shapley"),
    ("antithetic", Beta(1, 4), ("beta", 1, 4)),
    ("antithetic", Distributional(3), 3),
    ("stratified", "shapley", "shapley"),
    (Stratified(2), "banzhaf", "banzhaf"),
    (Stratified(3), Distributional(4), 4),
    ("complementary", "shapley", "shapley"),
    (Complementary(1), "shapley", "shapley"),
    ("group_testing", "shapley", "shapley"),
    ("msr", "banzhaf", "banzhaf"),
    ("msr", Banzhaf(0.3), ("banzhaf", 0.3)),
    ("permutation", Banzhaf(0.7), ("banzhaf", 0.7)),
]
EXACT = [
    ("exact", "shapley", "shapley"),
    ("exact", "banzhaf", "banzhaf"),
    ("exact", "loo", "loo"),
    ("exact", Beta(2, 5), ("beta", 2, 5)),
    ("exact", Distributional(2), 2),
    ("exact", Banzhaf(0.2), ("banzhaf", 0.2)),
    ("loo", "loo", "loo"),
    ("loo", Banzhaf(1), "loo"),
]


@dataclass
class TableGame:
    """A game given as one number per subset, split over two cells; counts what it is asked for."""

    worth: np.ndarray
    warm_start: bool = False
    fits: int = 0
    fail_after: float = math.inf

    @property
    def n_players(self) -> int:
        return int(math.log2(self.worth.size))

    def evaluate(self, coalitions: np.ndarray) -> Answers:
        if self.fits >= self.fail_after:
            raise KeyboardInterrupt
        self.fits += len(coalitions)
        found = self.worth[coalitions.astype(np.int64) @ (1 << np.arange(self.n_players))]
        return Answers(np.stack([0.25 * found, 0.75 * found], axis=1), len(coalitions), 0, "")


def random_game(n: int, seed: int = 0) -> np.ndarray:
    sizes = np.bitwise_count(np.arange(2**n))
    return 0.2 * np.random.default_rng(seed).normal(size=2**n) + 0.3 * np.sqrt(sizes)


def sample(game: Any, sampler: Any, semivalue: Any, *, max_fits: int = 1000, seed: int = 0, **more: Any) -> Outcome:
    plan = SamplingPlan(
        sampler=choose_sampler("SampledShapley", sampler, semivalue),
        chances=size_chances(game.n_players, semivalue),
        total=np.ones(2),
        seed=seed,
        max_fits=max_fits,
        **{"cache_bytes": 10**6, **more},
    )
    return run_sampler(game, plan)


def enumerated(worth: np.ndarray, semivalue: Any) -> np.ndarray:
    n = int(math.log2(worth.size))
    if isinstance(semivalue, int):  # distributional: all sizes below the cardinality alike
        weights = [(size < semivalue) / semivalue / math.comb(n - 1, size) for size in range(n)]
    else:
        weights = naive.size_weights(n, 1, semivalue)
    return naive.semivalues(worth, weights)


def label(case: Any) -> str:
    return str(case)


@pytest.mark.parametrize(("sampler", "semivalue", "name"), EXACT, ids=label)
@pytest.mark.parametrize("n", [1, 2, 5, 7])
def test_enumerating_samplers_are_exact(sampler: str, semivalue: Any, name: Any, n: int) -> None:
    if isinstance(semivalue, Distributional) and n < semivalue.cardinality:
        return
    worth = random_game(n)
    found = sample(TableGame(worth), sampler, semivalue)
    np.testing.assert_allclose(found.values, enumerated(worth, name), atol=1e-12)
    np.testing.assert_array_equal(found.standard_error, 0.0)
    assert found.stopped == "complete"


@pytest.mark.parametrize(("sampler", "semivalue", "name"), SAMPLED, ids=label)
@pytest.mark.parametrize("n", [4, 7])
def test_long_runs_come_to_the_enumerated_values(sampler: Any, semivalue: Any, name: Any, n: int) -> None:
    worth = random_game(n, seed=n)
    found = sample(TableGame(worth), sampler, semivalue, max_fits=200)
    exact = enumerated(worth, name)
    assert (np.abs(found.values - exact) < 4 * found.standard_error + 1e-12).all()
    assert found.standard_error.max() < 0.05  # the values have a spread of about 0.05 and a mean of 0.1 to 0.2
    np.testing.assert_allclose(found.cells[:, 0] * 3, found.cells[:, 1], atol=1e-12)


@pytest.mark.parametrize("sampler", ["permutation", "antithetic", "stratified", "complementary", "group_testing"])
@pytest.mark.parametrize("n", [1, 2, 3])
def test_very_few_players(sampler: str, n: int) -> None:
    worth = random_game(n)
    found = sample(TableGame(worth), sampler, "shapley", max_fits=200)
    assert (np.abs(found.values - enumerated(worth, "shapley")) < 4 * found.standard_error + 1e-12).all()


@pytest.mark.parametrize(("sampler", "semivalue", "name"), [SAMPLED[i] for i in (0, 2, 5, 8, 11, 13, 14)], ids=label)
def test_intervals_cover_the_truth_over_200_seeds(
    sampler: Any, semivalue: Any, name: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "ASKED_PER_FIT", 4)
    worth = random_game(4, seed=3)
    exact = enumerated(worth, name)
    fits = 20 if sampler in ("permutation", "group_testing", "msr") else 34  # two rounds at least
    hits = []
    for seed in range(200):
        # There are 16 coalitions, all soon known: what ends a run is the number of coalitions asked for.
        found = sample(TableGame(worth), sampler, semivalue, max_fits=fits, seed=seed)
        half = stats.t.ppf(0.975, found.degrees_of_freedom) * found.standard_error
        hits.append(np.abs(found.values - exact) <= half)
    assert 0.92 <= np.mean(hits) <= 0.98


@pytest.mark.parametrize(
    "sampler", ["permutation", "truncated", "antithetic", "stratified", "complementary", "group_testing"]
)
def test_shapley_samplers_share_out_exactly_what_there_is(sampler: str) -> None:
    worth = random_game(6)
    found = sample(TableGame(worth), sampler, "shapley", max_fits=150)
    if sampler == "truncated":  # what is left when it leaves an order is not shared out
        assert abs(found.values.sum() - (worth[-1] - worth[0])) < 0.01
    else:
        assert found.values.sum() == pytest.approx(worth[-1] - worth[0], abs=1e-12)


@pytest.mark.parametrize(("sampler", "semivalue"), [("permutation", "shapley"), ("antithetic", Beta(4, 1))])
def test_null_player_is_worth_nothing(sampler: str, semivalue: Any) -> None:
    half = random_game(4)
    found = sample(TableGame(np.concatenate([half, half])), sampler, semivalue, max_fits=200)  # the last adds nothing
    assert found.values[-1] == 0
    # That it never made a difference is no proof that it never does.
    assert 0 < found.standard_error[-1] < 0.2 * found.standard_error[:-1].min()


@pytest.mark.parametrize(("sampler", "semivalue", "name"), [*SAMPLED, *EXACT[:1]], ids=label)
def test_equal_players_get_equal_values(sampler: Any, semivalue: Any, name: Any) -> None:
    worth = np.sqrt(np.bitwise_count(np.arange(32)).astype(float))  # all players alike
    found = sample(TableGame(worth), sampler, semivalue, max_fits=100)
    assert (np.abs(found.values - enumerated(worth, name)) <= 4 * found.standard_error + 1e-12).all()


def test_truncation_saves_fits_and_leaves_a_bounded_bias() -> None:
    worth = np.minimum(np.bitwise_count(np.arange(2**7)), 3) / 3  # nothing is gained beyond three players
    game = TableGame(worth)
    found = sample(game, Truncated(0.1), "shapley", max_fits=300)
    assert game.fits < 2**7 / 1.5
    np.testing.assert_allclose(found.values.sum(), 1.0)


# --- the loop -------------------------------------------------------------------------------------------------------


def test_budget_is_never_exceeded() -> None:
    for sampler in ("permutation", "antithetic", "stratified", "complementary"):
        game = TableGame(random_game(10))
        found = sample(game, sampler, "shapley", max_fits=300, cache_bytes=0)
        assert found.fits == game.fits <= 300
        assert found.stopped == "budget"


def test_a_budget_below_two_rounds_is_refused_with_what_it_takes() -> None:
    with pytest.raises(ValueError, match=r"'max_fits' .* at least 21 for sampler='permutation' and 10 players. Got 20"):
        sample(TableGame(random_game(10)), "permutation", "shapley", max_fits=20)


def test_a_player_who_was_never_left_out_is_an_error() -> None:
    with pytest.raises(ValueError, match=r"'msr' has not observed every player yet. Raise it from 3"):
        sample(TableGame(random_game(10)), "msr", "banzhaf", max_fits=3, cache_bytes=0)


def test_it_stops_at_the_precision_asked_for() -> None:
    found = sample(TableGame(random_game(7)), "permutation", "shapley", max_fits=5000, tol=0.2)
    assert found.stopped == "precision"
    assert found.precision <= 0.2
    spread = np.sqrt(found.values.var() - np.mean(found.standard_error**2))
    assert found.precision == pytest.approx(found.standard_error.max() / spread)
    assert found.rounds < 5000


def test_known_coalitions_are_not_fitted_again() -> None:
    game = TableGame(random_game(5))
    found = sample(game, "permutation", "shapley", max_fits=60)
    assert game.fits == found.fits == 2**5
    bare = TableGame(random_game(5))
    without = sample(bare, "permutation", "shapley", max_fits=found.asked + 1, cache_bytes=0)
    assert bare.fits > 2**5
    assert abs(without.values - found.values).max() < 0.05


def test_the_store_drops_the_oldest() -> None:
    cache = UtilityCache({b"nobody": np.zeros(1), b"everybody": np.ones(1)})
    for wave in range(3):
        cache[bytes([wave])] = np.zeros(1)
        cache.drop_oldest(2 * (1 + 8 + 250))
    assert list(cache) == [b"nobody", b"everybody", b"\x01", b"\x02"]
    cache.drop_oldest(0)
    assert list(cache) == [b"nobody", b"everybody"]


def same(one: Outcome, other: Outcome) -> None:
    for name in ("cells", "values", "standard_error"):
        assert getattr(one, name).tobytes() == getattr(other, name).tobytes()
    assert (one.rounds, one.fits, one.asked, one.stopped) == (other.rounds, other.fits, other.asked, other.stopped)


@pytest.mark.parametrize("sampler", ["permutation", "truncated", "complementary", "group_testing"])
@pytest.mark.parametrize("warm", [False, True])
def test_an_interrupted_run_goes_on_where_it_stopped(
    sampler: str, warm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "WAVE_FITS", 64)
    worth = random_game(8)
    options = {"max_fits": 400, "checkpoint": tmp_path / "run.npz", "identity": {"data": "a"}, "cache_bytes": 5000}
    whole = sample(TableGame(worth, warm), sampler, "shapley", **{**options, "checkpoint": None})
    fits, interruptions = 0, 0
    for fail_after in (1, 30, 47, 200, math.inf):
        game = TableGame(worth, warm, fail_after=fail_after)
        try:
            found = sample(game, sampler, "shapley", **options)
        except KeyboardInterrupt:
            interruptions += 1
        fits += game.fits
    assert interruptions >= 2
    same(found, whole)
    assert warm or fits == whole.fits  # nothing was fitted twice
    again = TableGame(worth, warm)
    same(sample(again, sampler, "shapley", **options), whole)
    assert again.fits == 0


@pytest.mark.parametrize("warm", [False, True])
def test_a_run_that_is_killed_at_any_moment_goes_on_to_the_same_bytes(
    warm: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def two_workers(n_jobs: int | None) -> Iterator[Any]:
        yield 2, lambda function, arguments: [function(argument) for argument in arguments]

    monkeypatch.setattr(loop, "WAVE_FITS", 64)
    monkeypatch.setattr(loop, "worker_pool", two_workers)
    monkeypatch.setattr(loop, "seconds_between_saves", lambda took, running: 0.0)
    path, written, save = tmp_path / "run.npz", [], Checkpoint.save

    def save_and_keep(self: Checkpoint, *parts: Any) -> None:
        save(self, *parts)
        written.append(path.read_bytes())

    options = {"max_fits": 150, "checkpoint": path, "cache_bytes": 3000}
    with monkeypatch.context() as watched:
        watched.setattr(Checkpoint, "save", save_and_keep)
        whole = sample(TableGame(random_game(7), warm), "permutation", "shapley", **options)
    assert len(written) >= 4
    for number in range(0, len(written), 1 if warm else 5):
        path.write_bytes(written[number])  # killed when this was the last file
        same(sample(TableGame(random_game(7), warm), "permutation", "shapley", **options), whole)


class Clock:
    """Time that passes only when something is done."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.mark.parametrize(("writing", "longest"), [(0.0, 2.5), (0.2, 5.5)])
def test_a_kill_loses_about_a_second_or_twenty_times_what_a_file_takes(
    writing: float, longest: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, saved, save = Clock(), [0.0], Checkpoint.save

    class Slow(TableGame):
        def evaluate(self, coalitions: np.ndarray) -> Answers:
            clock.now += 0.1 * len(coalitions)
            return super().evaluate(coalitions)

    def save_slowly(self: Checkpoint, *parts: Any) -> None:
        save(self, *parts)
        clock.now += writing
        saved.append(clock.now)

    monkeypatch.setattr(loop, "time", clock)
    monkeypatch.setattr(Checkpoint, "save", save_slowly)
    sample(Slow(random_game(9)), "permutation", "shapley", max_fits=400, checkpoint=tmp_path / "run.npz")
    gaps = np.diff(saved)
    assert clock.now > 30
    assert gaps.max() <= longest + writing
    assert np.median(gaps) >= 1.0


def test_a_checkpoint_is_taken_to_a_larger_budget(tmp_path: Path) -> None:
    game, path = TableGame(random_game(9)), tmp_path / "run.npz"
    sample(game, "permutation", "shapley", max_fits=100, checkpoint=path)
    more = sample(game, "permutation", "shapley", max_fits=300, checkpoint=path)
    once = sample(game, "permutation", "shapley", max_fits=300)
    same(more, once)


def test_two_runs_cannot_share_a_checkpoint(tmp_path: Path) -> None:
    game, path = TableGame(random_game(5, 0)), tmp_path / "run.npz"
    lock = tmp_path / "run.npz.lock"
    lock.touch()  # as a process that was killed leaves it
    options = {"max_fits": 100, "checkpoint": path}
    save, locks = Checkpoint.save, []
    with patch.object(Checkpoint, "save", lambda *a: locks.append(lock.exists()) or save(*a)):
        sample(game, "permutation", "shapley", **options)
    assert locks
    assert all(locks)  # the last one too
    saved = path.read_bytes()
    assert not lock.exists()
    with locked(lock), pytest.raises(ValueError, match=r"run.npz' is in use by another process"):
        sample(game, "permutation", "shapley", **options)
    assert path.read_bytes() == saved
    assert os.listdir(tmp_path) == ["run.npz"]
    with pytest.raises(ValueError, match=r"must name a file in an existing folder. Got .*; create .*none'"):
        sample(game, "permutation", "shapley", max_fits=100, checkpoint=tmp_path / "none" / "run.npz")


def test_a_foreign_checkpoint_is_refused_with_the_reason(tmp_path: Path) -> None:
    game, path = TableGame(random_game(5)), tmp_path / "run.npz"
    options = {"max_fits": 100, "checkpoint": path}
    sample(game, "permutation", "shapley", **options, identity={"training rows": "a", "sampler": "p"})
    with pytest.raises(ValueError, match=r"another run: it differs in training rows \(a there, b here\)"):
        sample(game, "permutation", "shapley", **options, identity={"training rows": "b", "sampler": "p"})
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(ValueError, match=r"is not a whole shapshift.SampledShapley checkpoint file"):
        sample(game, "permutation", "shapley", **options, identity={"training rows": "a", "sampler": "p"})


def test_the_order_of_players_means_nothing_to_exact_values() -> None:
    worth = random_game(5)
    swapped = worth.reshape([2] * 5).transpose(range(5)[::-1]).ravel()
    np.testing.assert_allclose(
        sample(TableGame(swapped), "exact", "shapley").values[::-1],
        sample(TableGame(worth), "exact", "shapley").values,
        atol=1e-15,
    )


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: choose_sampler("X", "msr", "shapley"),
            "'semivalue' parameter of X must be 'banzhaf' or a Banzhaf object with sampler='msr'",
        ),
        (lambda: choose_sampler("X", "complementary", Beta(1, 2)), "must be 'shapley' with sampler='complementary'"),
        (lambda: choose_sampler("X", "permutation", "loo"), "must be 'shapley' or 'banzhaf' or a Beta object"),
        (
            lambda: choose_sampler("X", "tmc", "shapley"),
            "'sampler' parameter of X must be one of 'auto', 'permutation'",
        ),
        (lambda: size_chances(4, Distributional(5)), "'cardinality' .* at most the number of players, 4. Got 5"),
        (lambda: Stratified(0), "'strata' parameter of Stratified must be at least 1"),
        (lambda: Truncated(-1.0), "'tolerance' parameter of Truncated must be a finite number of at least 0"),
        (lambda: sample(TableGame(np.zeros(2**17)), "exact", "shapley", max_fits=10**6), r"fits 2\^17 models"),
    ],
)
def test_bad_input(call: Callable[[], Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
