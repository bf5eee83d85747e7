"""Owners as players, against enumeration that knows nothing of the package's lists and merges."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_clusters import Pretended

from shapshift import Beta, KNNShapley
from shapshift.price import OwnerValues, owner_values
from shapshift.price import owners as game_module

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(60, 3)), RNG.normal(size=(25, 3))
Y, Y_VAL = (X[:, 0] > 0).astype(int), (X_VAL[:, 0] > 0).astype(int)
MODEL = KNNShapley().fit(X, Y)
UNSURE = pytest.mark.filterwarnings("ignore:Owner values are sampled and not as sure")
OWNERS = np.array(["ann", "bob", "cid", "dee", "eve"])[RNG.integers(0, 5, 60)]


def by_enumeration(
    X: Any, y: Any, X_val: Any, y_val: Any, owners: list[Any], k: int, utility: str, ties: str, semivalue: Any
) -> np.ndarray:
    """All coalitions of owners, each worth the mean of naive utilities of the rows it brings together."""
    names = list(dict.fromkeys(owners))
    n_classes = len(set(y))
    bits = [sum(1 << row for row, who in enumerate(owners) if who == name) for name in names]
    distances = naive.distance_matrix(np.asarray(X_val), np.asarray(X), "euclidean")
    worth = np.zeros(2 ** len(names))
    for coalition in range(worth.size):
        rows = sum(mask for place, mask in enumerate(bits) if coalition >> place & 1)
        for point, label in enumerate(y_val):
            groups = naive.tie_groups(distances[point], ties)
            matches = [bool(other == label) for other in y]
            worth[coalition] += naive.expected_utility(rows, groups, matches, k, utility, n_classes)
    weights = naive.size_weights(len(names), k, semivalue)
    return naive.semivalues(worth / len(y_val), weights)


@st.composite
def games(draw: st.DrawFn) -> dict[str, Any]:
    n, m = draw(st.integers(1, 9)), draw(st.integers(1, 3))
    few = st.integers(0, 3)  # few places: many ties
    return {
        "X": draw(st.lists(st.tuples(few), min_size=n, max_size=n)),
        "y": draw(st.lists(st.integers(0, 2), min_size=n, max_size=n)),
        "X_val": draw(st.lists(st.tuples(few), min_size=m, max_size=m)),
        "y_val": draw(st.lists(st.integers(0, 2), min_size=m, max_size=m)),
        "owners": draw(st.lists(st.sampled_from("abcde"), min_size=n, max_size=n)),
        "k": draw(st.integers(1, 11)),
        "utility": draw(st.sampled_from(["soft", "hard"])),
        "ties": draw(st.sampled_from(["average", "index"])),
        "semivalue": draw(st.sampled_from(["shapley", "banzhaf", "loo", ("beta", 4.0, 1.0)])),
    }


@pytest.mark.filterwarnings("ignore:.*never seen in training")
@settings(max_examples=150)
@given(games())
def test_equal_to_enumeration(game: dict[str, Any]) -> None:
    model = KNNShapley(game["k"], utility=game["utility"], ties=game["ties"]).fit(game["X"], game["y"])
    semivalue = game["semivalue"] if isinstance(game["semivalue"], str) else Beta(*game["semivalue"][1:])
    found = owner_values(model, game["X_val"], game["y_val"], game["owners"], semivalue=semivalue)
    np.testing.assert_allclose(found.values, by_enumeration(**game), atol=1e-12)
    assert found.method == "exact"
    if semivalue == "shapley":
        assert found.values.sum() == pytest.approx(found.full - found.empty, abs=1e-12)


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("k", [1, 3, 20])
@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo"])
def test_owners_of_one_row_get_the_row_values(utility: str, k: int, semivalue: str) -> None:
    rows = RNG.integers(0, 3, (9, 2)).astype(float)
    model = KNNShapley(k, utility=utility, semivalue=semivalue).fit(rows, [0, 1, 2] * 3)
    points, labels = RNG.integers(0, 3, (6, 2)).astype(float), [0, 1, 2, 0, 1, 2]
    found = owner_values(model, points, labels, range(9), semivalue=semivalue)
    np.testing.assert_allclose(found.values, model.value(points, labels).values, atol=1e-13)


@pytest.mark.parametrize("metric", ["manhattan", "cosine", "precomputed"])
def test_distances_are_those_of_the_model(metric: str) -> None:
    rows, points = X[:8], X_VAL[:4]
    if metric == "precomputed":
        points = naive.distance_matrix(points, rows, "euclidean")
    model = KNNShapley(2, metric=metric).fit(rows, Y[:8])
    np.testing.assert_allclose(
        owner_values(model, points, Y_VAL[:4], range(8)).values, model.value(points, Y_VAL[:4]).values, atol=1e-13
    )


def test_one_owner_has_everything() -> None:
    found = owner_values(MODEL, X_VAL, Y_VAL, ["all"] * 60)
    assert found.values[0] == found.full - found.empty
    majority = []
    for point, label in zip(X_VAL, Y_VAL, strict=True):
        nearest = np.argsort(((X - point) ** 2).sum(axis=1))[:5]
        majority.append((Y[nearest] == label).mean())
    assert found.full == pytest.approx(np.mean(majority))
    assert found.empty == 0.5


# --- symmetry -------------------------------------------------------------------------------------------------------


def test_names_and_order_of_rows_change_no_bit() -> None:
    first = dict(zip(*_pair(owner_values(MODEL, X_VAL, Y_VAL, OWNERS)), strict=True))
    order = np.random.default_rng(5).permutation(60)
    shuffled = KNNShapley().fit(X[order], Y[order])
    assert dict(zip(*_pair(owner_values(shuffled, X_VAL, Y_VAL, OWNERS[order])), strict=True)) == first
    renamed = owner_values(MODEL, X_VAL, Y_VAL, [f"zz {name}" for name in OWNERS])
    assert renamed.values.tolist() == owner_values(MODEL, X_VAL, Y_VAL, OWNERS).values.tolist()


def _pair(found: OwnerValues) -> tuple[tuple[Any, ...], list[float]]:
    return found.owners, found.values.tolist()


def test_equal_owners_get_equal_values_to_the_bit() -> None:
    rows, labels = np.concatenate([X[:10]] * 3 + [X[20:40]]), np.concatenate([Y[:10]] * 3 + [Y[20:40]])
    found = owner_values(
        KNNShapley().fit(rows, labels), X_VAL, Y_VAL, ["a"] * 10 + ["b"] * 10 + ["c"] * 10 + ["d"] * 20
    )
    assert found.values[0] == found.values[1] == found.values[2] != found.values[3]


@UNSURE
def test_groups_average_to_the_whole() -> None:
    groups = np.array(["p", "q", "p", "r", "q"])[np.arange(25) % 5]
    for method in ("exact", "sample"):
        found = owner_values(MODEL, X_VAL, Y_VAL, OWNERS, groups=groups, method=method, n_permutations=40)
        whole = sum((groups == name).mean() * means for name, means in found.group_values.items())
        np.testing.assert_allclose(whole, found.values, atol=1e-14)
        alone = owner_values(MODEL, X_VAL[groups == "q"], Y_VAL[groups == "q"], OWNERS)
        if method == "exact":
            np.testing.assert_allclose(found.group_values["q"], alone.values, atol=1e-14)


@UNSURE
def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for method in ("exact", "sample"):
        whole = owner_values(MODEL, X_VAL, Y_VAL, OWNERS, method=method, n_permutations=40)
        with monkeypatch.context() as patch:
            patch.setattr(game_module, "TILE_BYTES", 1)
            patch.setattr(game_module, "KEPT_BYTES", 0)
            again = owner_values(MODEL, X_VAL, Y_VAL, OWNERS, method=method, n_permutations=40)
        assert again.values.tobytes() == whole.values.tobytes()


@UNSURE
def test_workers_and_memory_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game_module, "block_points", lambda task: 4)
    models = {name: KNNShapley(**given).fit(X, Y) for name, given in EXECUTIONS.items()}
    for options in ({"method": "exact"}, {"method": "sample", "n_permutations": 40}, {"semivalue": "loo"}):
        found = {
            name: owner_values(model, X_VAL, Y_VAL, range(60) if "semivalue" in options else OWNERS, **options)
            for name, model in models.items()
        }
        for name, each in found.items():
            assert each.values.tobytes() == found["plain"].values.tobytes(), name
            assert each.full == found["plain"].full


EXECUTIONS: dict[str, dict[str, Any]] = {"plain": {}, "threads": {"n_jobs": 3}, "memory": {"max_memory": "300kB"}}


@UNSURE
def test_a_cluster_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game_module, "block_points", lambda task: 4)
    alone = [owner_values(MODEL, X_VAL, Y_VAL, OWNERS, method=how, n_permutations=40) for how in ("exact", "sample")]
    monkeypatch.setattr("shapshift.engine.runner.active_cluster", lambda n_jobs: Pretended())
    there = [owner_values(MODEL, X_VAL, Y_VAL, OWNERS, method=how, n_permutations=40) for how in ("exact", "sample")]
    assert [found.values.tobytes() for found in there] == [found.values.tobytes() for found in alone]


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'max_memory' parameter must be at least .* for 60 owners of 60"):
        owner_values(KNNShapley(max_memory="100kB").fit(X, Y), X_VAL, Y_VAL, range(60), max_players_exact=1)


def test_leaving_out_many_owners_needs_little_memory() -> None:
    X, Y = RNG.normal(size=(4000, 3)), RNG.integers(0, 2, 4000)
    few, owners = slice(0, 2), np.arange(4000) % 500
    plain, tight = (
        owner_values(KNNShapley(max_memory=most).fit(X, Y), X_VAL[few], Y_VAL[few], owners, semivalue="loo").values
        for most in (None, "2MB")
    )
    np.testing.assert_array_equal(plain, tight)


# --- sampling -------------------------------------------------------------------------------------------------------


def test_all_orders_together_are_exact() -> None:
    game = game_module._make_game(MODEL, X_VAL, Y_VAL, OWNERS, None)
    orders = np.array(list(itertools.permutations(range(5))))
    mean = game.sums(MODEL._runner(), orders).sum(axis=1).mean(axis=0) / 25
    np.testing.assert_allclose(mean, owner_values(MODEL, X_VAL, Y_VAL, OWNERS).values, atol=1e-14)


@UNSURE
def test_sampling_intervals_cover_the_exact_values() -> None:
    exact = owner_values(MODEL, X_VAL, Y_VAL, OWNERS)
    covered = []
    for seed in range(60):
        found = owner_values(
            MODEL, X_VAL, Y_VAL, OWNERS, method="sample", n_permutations=128, tolerance=1e-9, random_state=seed
        )
        assert found.method == "sample"
        assert found.n_permutations == 128
        assert not found.converged
        assert found.values.sum() == pytest.approx(found.full - found.empty, abs=1e-12)
        covered.append(np.abs(found.values - exact.values) <= found.order_widths)
        assert (found.high - found.low >= 2 * found.order_widths).all()
    assert 0.9 <= np.mean(covered) <= 0.99


def test_intervals_cover_the_values_on_the_population() -> None:
    rng = np.random.default_rng(3)
    points = rng.normal(size=(600, X.shape[1]))
    labels = np.where(points[:, 0] + rng.normal(size=600) > 0, *np.unique(Y)[[1, 0]])
    population = owner_values(MODEL, points, labels, OWNERS)
    assert (population.low < population.values).all()
    covered = []
    for _ in range(60):
        drawn = rng.integers(0, 600, 60)
        found = owner_values(MODEL, points[drawn], labels[drawn], OWNERS)
        assert (found.method, found.half_width) == ("exact", 0)
        covered.append((found.low <= population.values) & (population.values <= found.high))
    assert 0.88 <= np.mean(covered) <= 0.995


def test_one_point_has_no_sampling_error() -> None:
    found = owner_values(MODEL, X_VAL[:1], Y_VAL[:1], OWNERS)
    assert found.standard_error is None
    np.testing.assert_array_equal(found.low, found.values)


def test_blocks_of_points_change_neither_values_nor_groups() -> None:
    groups = np.arange(len(Y_VAL)) % 2
    found = owner_values(MODEL, X_VAL, Y_VAL, OWNERS, groups=groups)
    for group in (0, 1):
        part = owner_values(MODEL, X_VAL[groups == group], Y_VAL[groups == group], OWNERS)
        np.testing.assert_allclose(found.group_values[group], part.values, atol=1e-12)
    assert found.block_sums is not None
    np.testing.assert_allclose(found.block_sums.sum(axis=0) / len(Y_VAL), found.values, atol=1e-12)


@UNSURE
def test_orders_come_with_their_reverse(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[np.ndarray] = []
    real = game_module.Game.sums
    monkeypatch.setattr(game_module.Game, "sums", lambda *args: (seen.append(args[2]), real(*args))[1])
    owner_values(MODEL, X_VAL, Y_VAL, OWNERS, method="sample", n_permutations=40, tolerance=1e-9)
    orders = np.concatenate(seen[1:])  # the first one is for the utility of all rows
    assert len(orders) == 40
    np.testing.assert_array_equal(orders[::2], orders[1::2, ::-1])
    assert len({tuple(order) for order in orders}) > 20


def test_sampling_stops_at_the_tolerance() -> None:
    found = owner_values(MODEL, X_VAL, Y_VAL, OWNERS, method="sample", n_permutations=10**5, tolerance=0.1)
    assert found.converged
    typical = np.abs(found.values).mean()
    assert found.half_width <= 0.1 * typical  # in parts of a typical value, not of the utility
    assert found.relative_half_width == pytest.approx(found.half_width / typical)
    assert 32 <= found.n_permutations < 10**5
    np.testing.assert_allclose((found.low + found.high) / 2, found.values, atol=1e-15)
    np.testing.assert_allclose(found.values, owner_values(MODEL, X_VAL, Y_VAL, OWNERS).values, atol=0.02)


@UNSURE
def test_no_interval_has_width_zero_by_chance() -> None:
    # Two pairs of orders often agree about an owner that few points ever see; that makes its value no surer.
    rows = np.arange(12.0)[:, None]
    model = KNNShapley(1).fit(rows, [0, 1] * 6)
    exact = owner_values(model, rows[:3] + 0.4, [0, 1, 0], range(12)).values
    off = widths = 0
    for seed in range(20):
        found = owner_values(
            model, rows[:3] + 0.4, [0, 1, 0], range(12), method="sample", n_permutations=4, random_state=seed
        )
        assert (found.high > found.low).all()
        off += int((np.abs(found.values - exact) > 1e-9).sum())
        widths += int(((found.low <= exact) & (exact <= found.high)).sum())
    assert off > 100
    assert widths > 0.9 * 20 * 12


def test_values_that_are_not_sure_enough_are_said_to_be() -> None:
    with pytest.warns(UserWarning, match=r"after 40 orders the widest 95% interval .* 'tolerance' asks for 5%"):
        found = owner_values(MODEL, X_VAL, Y_VAL, OWNERS, method="sample", n_permutations=40)
    assert not found.converged
    # Below a thousandth of the utility, but far from sure for owners who are worth as little.
    many = owner_values(MODEL, X_VAL, Y_VAL, range(60), n_permutations=20000, tolerance=0.3)
    assert many.half_width <= 0.3 * np.abs(many.values).mean()


@UNSURE
def test_same_seed_same_bytes() -> None:
    runs = [
        owner_values(MODEL, X_VAL, Y_VAL, OWNERS, method="sample", n_permutations=50, random_state=seed)
        for seed in (3, 3, 4, None)
    ]
    assert runs[0].values.tobytes() == runs[1].values.tobytes() != runs[2].values.tobytes()
    again = owner_values(
        MODEL, X_VAL, Y_VAL, OWNERS, method="sample", n_permutations=50, random_state=runs[3].parameters["random_state"]
    )
    assert again.values.tobytes() == runs[3].values.tobytes()


@UNSURE
def test_many_owners_are_sampled_and_leave_one_out_is_exact() -> None:
    found = owner_values(MODEL, X_VAL, Y_VAL, range(60), n_permutations=400)
    assert found.method == "sample"
    rows = MODEL.value(X_VAL, Y_VAL).values
    assert np.mean((found.low <= rows) & (rows <= found.high)) > 0.85
    loo = owner_values(MODEL, X_VAL, Y_VAL, range(60), semivalue="loo")
    assert loo.method == "exact"
    expected = KNNShapley(semivalue="loo").fit(X, Y).value(X_VAL, Y_VAL).values
    np.testing.assert_allclose(loo.values, expected, atol=1e-14)


# --- the result -----------------------------------------------------------------------------------------------------


def test_frame_file_and_repr(tmp_path: Path) -> None:
    owners: list[Any] = [("p", 1), "q", 3, "q"] * 15
    found = owner_values(MODEL, X_VAL, Y_VAL, owners, groups=[1, 2, 2, 1, 1] * 5)
    frame = found.to_frame("pandas")
    assert frame["owner"].tolist() == ["('p', 1)", "q", "3"]  # of several kinds: as text
    assert found.to_frame("polars").shape == frame.shape
    assert frame["rows"].tolist() == [15, 30, 15]
    assert {"value[1]", "value[2]", "low", "high"} <= set(frame)
    found.save(tmp_path / "owners.npz")
    loaded = OwnerValues.load(tmp_path / "owners.npz")
    assert loaded.owners == found.owners
    for field in dataclasses.fields(OwnerValues):
        if field.name != "owners":
            np.testing.assert_array_equal(getattr(loaded, field.name), getattr(found, field.name))
    assert "exact" in repr(found)
    assert not found.values.flags.writeable
    (tmp_path / "bad.npz").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a whole"):
        OwnerValues.load(tmp_path / "bad.npz")


def test_a_series_is_matched_by_its_index() -> None:
    frame = pd.DataFrame(X, index=[f"r{i}" for i in range(60)])
    model = KNNShapley().fit(frame, Y)
    series = pd.Series(OWNERS, index=frame.index)
    shuffled = series.sample(frac=1, random_state=0)
    points = pd.DataFrame(X_VAL)
    expected = owner_values(model, points, Y_VAL, OWNERS)
    assert owner_values(model, points, Y_VAL, shuffled).values.tolist() == expected.values.tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"method": "fast"}, "'method' parameter of owner_values must be one of"),
        ({"semivalue": "calibrated"}, "'semivalue' parameter of owner_values must be one of"),
        ({"tolerance": 0}, "'tolerance' parameter of owner_values must be a positive number"),
        ({"n_permutations": 2}, "'n_permutations' parameter of owner_values must be at least 4"),
        ({"owners": range(60), "method": "exact"}, "at most 22 owners"),
        ({"owners": range(60), "semivalue": "banzhaf"}, "which is computed exactly only"),
        ({"owners": OWNERS[:-1]}, "'owners' must have one owner for each of the 60 rows"),
        ({"owners": [None] * 60}, "first .None. at row 0"),
    ],
)
def test_bad_input(arguments: dict[str, Any], message: str) -> None:
    given_owners = arguments.pop("owners", OWNERS)
    with pytest.raises((ValueError, TypeError), match=message):
        owner_values(MODEL, X_VAL, Y_VAL, given_owners, **arguments)


def test_other_models_are_refused() -> None:
    with pytest.raises(TypeError, match="must be a fitted KNNShapley"):
        owner_values(object(), X_VAL, Y_VAL, OWNERS)
