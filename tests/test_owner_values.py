"""Owners as players, against enumeration that knows nothing of polynomials."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from test_clusters import Pretended

from shapshift import Banzhaf, Beta, KNNShapley
from shapshift.engine.rows.file import RowFile
from shapshift.price import OwnerValues, owner_values
from shapshift.price import owners as game_module

RNG = np.random.default_rng(0)
X, X_VAL = RNG.normal(size=(60, 3)), RNG.normal(size=(25, 3))
Y, Y_VAL = (X[:, 0] > 0).astype(int), (X_VAL[:, 0] > 0).astype(int)
MODEL = KNNShapley().fit(X, Y)
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


SEMIVALUES = ["shapley", "banzhaf", "loo", ("beta", 4.0, 1.0), ("beta", 0.5, 2.0), ("banzhaf", 0.9), ("banzhaf", 1.0)]


def spelled(semivalue: Any) -> Any:
    """The package's word for a semivalue of the oracle."""
    if isinstance(semivalue, str):
        return semivalue
    return Beta(*semivalue[1:]) if semivalue[0] == "beta" else Banzhaf(*semivalue[1:])


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
        "semivalue": draw(st.sampled_from(SEMIVALUES)),
    }


@pytest.mark.filterwarnings("ignore:.*never seen in training")
@settings(max_examples=150)
@given(games())
def test_equal_to_enumeration(game: dict[str, Any]) -> None:
    model = KNNShapley(game["k"], utility=game["utility"], ties=game["ties"]).fit(game["X"], game["y"])
    found = owner_values(model, game["X_val"], game["y_val"], game["owners"], semivalue=spelled(game["semivalue"]))
    np.testing.assert_allclose(found.values, by_enumeration(**game), rtol=0, atol=1e-13)
    assert found.certificate < 1e-13
    if game["semivalue"] == "shapley":
        assert found.values.sum() == pytest.approx(found.full - found.empty, abs=1e-13)


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("k", [3, 17])
@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo", ("beta", 1.0, 16.0), ("banzhaf", 0.05)], ids=str)
def test_twelve_owners_are_as_enumerated(utility: str, k: int, semivalue: Any) -> None:
    rng = np.random.default_rng(1)
    rows, labels = rng.integers(0, 12, (30, 1)), rng.integers(0, 2, 30)
    owners = [*range(12), *rng.integers(0, 12, 18).tolist()]
    game: dict[str, Any] = {"X": rows, "y": labels, "X_val": [[5.2]], "y_val": [1], "owners": owners}
    model = KNNShapley(k, utility=utility).fit(rows, labels)
    found = owner_values(model, [[5.2]], [1], owners, semivalue=spelled(semivalue))
    expected = by_enumeration(**game, k=k, utility=utility, ties="average", semivalue=semivalue)
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("k", [2, 40, 200])
@pytest.mark.parametrize("semivalue", ["shapley", ("banzhaf", 0.7)], ids=str)
def test_large_tie_groups(k: int, semivalue: Any) -> None:
    # More rows at one distance than the rule for places serves without error.
    rows, labels = (np.arange(340) >= 300)[:, None].astype(float), np.arange(340) % 3 == 0
    owners = (np.arange(340) ** 2 % 7 % 5).tolist()
    model = KNNShapley(k).fit(rows, labels)
    found = owner_values(model, [[-1.0]], [True], owners, semivalue=spelled(semivalue))
    game: dict[str, Any] = {"X": rows, "y": labels, "X_val": [[-1.0]], "y_val": [True], "owners": owners}
    expected = by_enumeration(**game, k=k, utility="soft", ties="average", semivalue=semivalue)
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("k", [1, 3, 40])
@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo", Beta(2, 5), Banzhaf(0.02)], ids=str)
@pytest.mark.parametrize("steps", [3, 1000])  # with and without ties
def test_owners_of_one_row_get_the_row_values(utility: str, k: int, semivalue: Any, steps: int) -> None:
    rng = np.random.default_rng(2)
    rows = rng.integers(0, steps, (120, 2)).astype(float)
    model = KNNShapley(k, utility=utility, semivalue=semivalue).fit(rows, np.arange(120) % 3)
    points, labels = rng.integers(0, steps, (3, 2)).astype(float), [0, 1, 2]
    found = owner_values(model, points, labels, range(120), semivalue=semivalue)
    np.testing.assert_allclose(found.values, model.value(points, labels).values, rtol=0, atol=1e-13)


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
    assert found.values[0] == pytest.approx(found.full - found.empty, abs=1e-15)
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


def test_groups_average_to_the_whole() -> None:
    groups = np.array(["p", "q", "p", "r", "q"])[np.arange(25) % 5]
    found = owner_values(MODEL, X_VAL, Y_VAL, OWNERS, groups=groups)
    whole = sum((groups == name).mean() * means for name, means in found.group_values.items())
    np.testing.assert_allclose(whole, found.values, atol=1e-14)
    alone = owner_values(MODEL, X_VAL[groups == "q"], Y_VAL[groups == "q"], OWNERS)
    np.testing.assert_allclose(found.group_values["q"], alone.values, atol=1e-14)


def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = owner_values(MODEL, X_VAL, Y_VAL, OWNERS)
    monkeypatch.setattr(game_module, "TILE_BYTES", 1)
    assert owner_values(MODEL, X_VAL, Y_VAL, OWNERS).values.tobytes() == whole.values.tobytes()


def test_workers_and_memory_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game_module, "block_points", lambda task: 4)
    models = {name: KNNShapley(**given).fit(X, Y) for name, given in EXECUTIONS.items()}
    for semivalue in ("shapley", "loo"):
        found = {
            name: owner_values(model, X_VAL, Y_VAL, range(60), semivalue=semivalue) for name, model in models.items()
        }
        for name, each in found.items():
            assert each.values.tobytes() == found["plain"].values.tobytes(), name
            assert each.full == found["plain"].full


EXECUTIONS: dict[str, dict[str, Any]] = {"plain": {}, "threads": {"n_jobs": 3}, "memory": {"max_memory": "300kB"}}


def test_a_cluster_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(game_module, "block_points", lambda task: 4)
    alone = owner_values(MODEL, X_VAL, Y_VAL, OWNERS)
    monkeypatch.setattr("shapshift.engine.runner.active_cluster", lambda n_jobs: Pretended())
    assert owner_values(MODEL, X_VAL, Y_VAL, OWNERS).values.tobytes() == alone.values.tobytes()


def test_too_little_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'max_memory' parameter must be at least .* for 60 owners of 60"):
        owner_values(KNNShapley(max_memory="50kB").fit(X, Y), X_VAL, Y_VAL, range(60))


def test_rows_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.engine.rows.file.LOAD_BYTES", 0)
    model = KNNShapley().fit((X[i : i + 20], Y[i : i + 20]) for i in range(0, 60, 20))
    assert isinstance(model._index.rows, RowFile)
    found = owner_values(model, X_VAL, Y_VAL, OWNERS)
    assert found.values.tobytes() == owner_values(MODEL, X_VAL, Y_VAL, OWNERS).values.tobytes()


def test_leaving_out_many_owners_needs_little_memory() -> None:
    X, Y = RNG.normal(size=(4000, 3)), RNG.integers(0, 2, 4000)
    few, owners = slice(0, 2), np.arange(4000) % 500
    plain, tight = (
        owner_values(KNNShapley(max_memory=most).fit(X, Y), X_VAL[few], Y_VAL[few], owners, semivalue="loo").values
        for most in (None, "2MB")
    )
    np.testing.assert_array_equal(plain, tight)


# --- the certificate ------------------------------------------------------------------------------------------------


def test_what_a_rule_makes_of_bernstein_polynomials() -> None:
    q, weights = np.array([1e-4, 0.3, 0.999]), np.array([0.2, 0.5, 0.3])
    expected = stats.binom.pmf(np.arange(401)[:, None], 400, q) @ weights
    np.testing.assert_allclose(game_module.bernstein_means(q, weights, 400), expected, rtol=1e-9, atol=1e-16)


@pytest.mark.parametrize("n", [1, 2, 30, 100, 1000, 5000])
def test_few_nodes_are_certified(n: int) -> None:
    q, _, bound = game_module.sizes_rule(n, "shapley")
    assert bound <= 1e-13
    assert q.size <= min(-(-n // 2), 4.5 * np.sqrt(n) + 4)
    # A rule of fewer nodes has a bound that says so.
    if n >= 30:
        nodes, weights = game_module._gauss(q.size // 3, 1.0, 1.0)
        assert np.abs(game_module.bernstein_means(nodes, weights, n - 1) - 1 / n).sum() > 1e-6


def test_the_certificate_bounds_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = owner_values(MODEL, X_VAL, Y_VAL, range(60))
    nodes, weights = game_module._gauss(6, 1.0, 1.0)
    bound = np.abs(game_module.bernstein_means(nodes, weights, 59) - 1 / 60).sum()
    monkeypatch.setattr(game_module, "sizes_rule", lambda n, semivalue: (nodes, weights, bound))
    rough = owner_values(MODEL, X_VAL, Y_VAL, range(60))
    assert 1e-8 < np.abs(rough.values - exact.values).max() <= rough.certificate


def test_many_owners() -> None:
    rng = np.random.default_rng(4)
    rows, points = rng.normal(size=(3000, 2)).round(1), rng.normal(size=(3, 2)).round(1)
    owners = rng.integers(0, 500, 3000)
    labels, point_labels = (rows[:, 0] > 0).astype(int), (points[:, 0] > 0).astype(int)
    model = KNNShapley().fit(rows, labels)
    found = owner_values(model, points, point_labels, owners)
    assert abs(found.values.sum() - (found.full - found.empty)) < 1e-12
    loo = owner_values(model, points, point_labels, owners, semivalue="loo").values
    nearly = owner_values(model, points, point_labels, owners, semivalue=Banzhaf(1 - 1e-9)).values
    np.testing.assert_allclose(nearly, loo, atol=1e-6)


# --- sampling of the points -----------------------------------------------------------------------------------------


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
    assert "certificate=" in repr(found)
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
        ({"semivalue": "calibrated"}, "'semivalue' parameter of owner_values must be one of"),
        ({"semivalue": 0.5}, "'semivalue' parameter of owner_values must be one of"),
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


def test_files_of_earlier_releases(tmp_path: Path) -> None:
    found = owner_values(MODEL, X_VAL, Y_VAL, OWNERS)
    header, arrays = found._to_archive()
    header.pop("certificate")
    old = OwnerValues._from_archive({**header, "method": "exact", "n_permutations": 0}, dict(arrays))
    assert np.isnan(old.certificate)
    np.testing.assert_array_equal(old.values, found.values)
    with pytest.raises(ValueError, match="sampled from orders of the owners; compute them again"):
        OwnerValues._from_archive({**header, "method": "sample", "n_permutations": 40}, dict(arrays))
