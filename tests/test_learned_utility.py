"""Utility learning: values in the game that a regressor predicts, and how well it predicts."""

from __future__ import annotations

from typing import Any

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.ensemble import RandomForestRegressor
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from test_sampled import TableGame, enumerated, random_game, sample

from shapshift import Beta, SampledShapley
from shapshift.sampled import Distributional, LearnedUtility

X, Y = load_iris(return_X_y=True)


def additive_game(n: int) -> tuple[np.ndarray, np.ndarray]:
    worth = np.random.default_rng(0).normal(size=n)
    return (np.arange(2**n)[:, None] >> np.arange(n) & 1) @ worth + 0.5, worth


@pytest.mark.parametrize("n", [1, 5, 14])
def test_an_additive_game_is_learned_without_error(n: int) -> None:
    game, worth = additive_game(n)
    found = sample(TableGame(game), LearnedUtility(60, orders=2), "shapley", max_fits=400)
    np.testing.assert_allclose(found.values, worth, atol=1e-5)
    assert found.notes["heldout_r2"] == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize(
    ("semivalue", "name"),
    [("shapley", "shapley"), ("banzhaf", "banzhaf"), (Beta(2, 5), ("beta", 2, 5)), (Distributional(2), 2)],
    ids=str,
)
def test_with_all_coalitions_known_values_are_the_enumerated_ones(semivalue: Any, name: Any) -> None:
    # The nearest coalition is the coalition itself once all were drawn.
    worth = random_game(4)
    sampler = LearnedUtility(3000, KNeighborsRegressor(1))
    found = sample(TableGame(worth), sampler, semivalue, max_fits=6100)
    np.testing.assert_allclose(found.values, enumerated(worth, name), atol=1e-12)
    assert found.notes["heldout_r2"] == pytest.approx(1)


def test_what_cannot_be_predicted_is_said() -> None:
    rng = np.random.default_rng(0)
    found = sample(TableGame(rng.normal(size=2**10)), LearnedUtility(40), "shapley", max_fits=400)
    assert found.notes["heldout_r2"] < 0.3
    # The sum of Shapley values is known, whatever was predicted.
    game = random_game(14)
    found = sample(TableGame(game), LearnedUtility(40, KNeighborsRegressor(3), orders=2), "shapley", max_fits=100)
    assert found.values.sum() == pytest.approx(game[-1] - game[0])


def test_rounds_of_equal_worth_do_not_blow_up_the_quality() -> None:
    # Few coalitions of two players: in many rounds, those held out are worth the same.
    found = sample(TableGame(np.array([0.0, 1.0, 1.0, 1.5])), LearnedUtility(10), "shapley", max_fits=1000)
    assert -5 < found.notes["heldout_r2"] < 1
    assert sample(TableGame(np.full(4, 0.7)), LearnedUtility(10), "shapley", max_fits=100).notes == {"heldout_r2": None}


def test_a_pipeline_is_seeded() -> None:
    sampler = LearnedUtility(20, make_pipeline(StandardScaler(), RandomForestRegressor(3)))
    one, two = (sample(TableGame(random_game(5)), sampler, "shapley", max_fits=60).values for _ in range(2))
    assert np.array_equal(one, two)


def test_models_workers_and_seeds() -> None:
    def value(**options: Any) -> Any:
        sampler = LearnedUtility(30, RandomForestRegressor(5), orders=2)
        model = SampledShapley(GaussianNB(), sampler=sampler, max_fits=61, progress=False, **options)
        return model.fit(X[::10], Y[::10]).value(X[1::4], Y[1::4])

    one = value()
    with joblib.parallel_config("threading"):
        assert np.array_equal(one.values, value(n_jobs=2).values)
    assert not np.array_equal(one.values, value(random_state=1).values)
    assert one.values.sum() == pytest.approx(one.parameters["utility_of_all"] - one.parameters["utility_of_none"])
    assert one.parameters["heldout_r2"] <= 1
    assert one.parameters["n_fits"] <= 61


def test_the_name_and_what_is_refused() -> None:
    model = SampledShapley(GaussianNB(), sampler="learned", max_fits=401, progress=False).fit(X[::10], Y[::10])
    assert "heldout_r2" in model.value(X[1::4], Y[1::4]).parameters
    with pytest.raises(ValueError, match="'max_fits' parameter of SampledShapley must be at least 401"):
        SampledShapley(GaussianNB(), sampler="learned", max_fits=400).fit(X[::10], Y[::10]).value(X[1::4], Y[1::4])
    with pytest.raises(ValueError, match="'coalitions' parameter of LearnedUtility must be at least 10"):
        LearnedUtility(9)
    with pytest.raises(ValueError, match="'regressor' parameter of LearnedUtility must be None or a regressor"):
        LearnedUtility(regressor="forest")


def test_a_checkpoint_keeps_the_notes(tmp_path: Any) -> None:
    game, options = random_game(6), {"max_fits": 210}
    whole = sample(TableGame(game), LearnedUtility(50), "shapley", cache_bytes=0, **options)
    stopped = TableGame(game, fail_after=60)
    with pytest.raises(KeyboardInterrupt):
        sample(stopped, LearnedUtility(50), "shapley", cache_bytes=0, checkpoint=tmp_path / "run.npz", **options)
    again = sample(
        TableGame(game), LearnedUtility(50), "shapley", cache_bytes=0, checkpoint=tmp_path / "run.npz", **options
    )
    np.testing.assert_array_equal(again.values, whole.values)
    assert again.notes == whole.notes
