"""Mechanism: every statistic against a direct computation, the choice of points, bad input, figures."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib as mpl

mpl.use("agg")

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse, stats
from sklearn.datasets import make_blobs, make_gaussian_quantiles
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from shapshift import KNNShapley
from shapshift.mechanism import case_one, case_two, cases, noise_demo, pick_pairs, pick_points
from shapshift.mechanism.cases import signs
from shapshift.perturb import FlipLabels, GaussianNoise, Subsample
from shapshift.plots._figure import save_figure

N_TRAIN, N_VAL = 150, 80
LEVELS = [0.2, 0.8]
REPEATS = 4


def split(X: np.ndarray, y: np.ndarray) -> SimpleNamespace:
    model = KNNShapley(n_jobs=1).fit(X[:N_TRAIN], y[:N_TRAIN])
    return SimpleNamespace(
        model=model,
        X=X[N_TRAIN:],
        y=y[N_TRAIN:],
        X_train=X[:N_TRAIN],
        y_train=y[:N_TRAIN],
        val=(X[N_TRAIN:], y[N_TRAIN:]),
    )


@pytest.fixture(scope="module")
def two() -> SimpleNamespace:
    return split(*make_gaussian_quantiles(n_samples=N_TRAIN + N_VAL, n_features=2, n_classes=2, random_state=0))


@pytest.fixture(scope="module")
def three() -> SimpleNamespace:
    return split(*make_blobs(N_TRAIN + N_VAL, n_features=4, centers=3, cluster_std=5.0, random_state=1))


@pytest.fixture(autouse=True)
def _close_figures() -> Any:
    yield
    plt.close("all")


def entropies(data: SimpleNamespace) -> np.ndarray:
    """Neighbour-label entropy and vote of every validation point, from scikit-learn's neighbours."""
    nearest = NearestNeighbors(n_neighbors=5).fit(data.X_train).kneighbors(data.X, return_distance=False)
    shares = np.array([np.bincount(row, minlength=9) for row in data.y_train[nearest]]) / 5
    return stats.entropy(shares, axis=1), shares.argmax(axis=1)


def draws(positions: list[int], at: int, level: float, X: np.ndarray, seed: int = 0) -> np.ndarray:
    """The noisy repeats of one set of points, as the cases draw them: (repeats, size, features)."""
    rows = np.tile(positions, REPEATS)
    noise_seed = int(np.random.SeedSequence([seed, at]).generate_state(1)[0])
    noisy, _ = GaussianNoise(level, random_state=noise_seed)(X[rows], np.zeros(rows.size))
    return noisy.reshape(REPEATS, len(positions), -1)


def t_interval(sample: np.ndarray) -> tuple[float, float]:
    return stats.t.interval(0.95, sample.size - 1, loc=sample.mean(), scale=stats.sem(sample))


# Case I


@pytest.mark.parametrize("kind", ["boundary", "nonboundary"])
def test_case_one_equals_a_direct_computation_on_the_matrix(two: SimpleNamespace, kind: str) -> None:
    result = case_one(two.model, *two.val, noise=LEVELS, kind=kind, n_points=3, repeats=REPEATS)
    assert result.points.shape == (3,)
    for at, point in enumerate(result.points.tolist()):
        label = two.y[[point]]
        clean = two.model.value(two.X[[point]], label).values
        _, vote = entropies(SimpleNamespace(**{**vars(two), "X": two.X[[point]]}))
        for level, noise in enumerate(LEVELS, start=1):
            noisy = draws([point], at, noise, two.X)[:, 0]
            matrix = two.model.value(noisy, np.repeat(label, REPEATS), matrix=True).matrix
            entropy, votes = entropies(SimpleNamespace(**{**vars(two), "X": noisy}))
            expected = {
                "min": matrix.min(axis=0),
                "max": matrix.max(axis=0),
                "range": matrix.max(axis=0) - matrix.min(axis=0),
                "std": matrix.std(axis=0),
                "positive_count": (matrix > 0).sum(axis=0),
                "range_ratio": (matrix.max(axis=0) - matrix.min(axis=0)) / (clean.max() - clean.min()),
                "std_ratio": matrix.std(axis=0) / clean.std(),
                "sign_kept": ((matrix > 0) == (clean > 0)[:, None]).mean(axis=0),
                "prediction_changed": votes != vote,
                "boundary": entropy > 0,
            }
            assert set(expected) == set(result.samples)
            for name, numbers in expected.items():
                np.testing.assert_allclose(result.samples[name][level, at], numbers, rtol=1e-10, err_msg=name)
        assert np.all(result.samples["std"][0, at] == clean.std())
        assert np.all(result.samples["boundary"][0, at] == (kind == "boundary"))


def test_intervals_are_over_repeats_for_one_point_and_over_points_for_several(two: SimpleNamespace) -> None:
    single = case_one(two.model, *two.val, noise=LEVELS, repeats=REPEATS)
    mean, low, high = single.interval("std")
    sample = single.samples["std"][2, 0]
    assert mean[2] == pytest.approx(sample.mean())
    assert (low[2], high[2]) == pytest.approx(t_interval(sample))
    several = case_one(two.model, *two.val, noise=LEVELS, repeats=REPEATS, n_points=5)
    mean, low, high = several.interval("std")
    sample = several.samples["std"][2].mean(axis=1)
    assert sample.size == 5
    assert mean[2] == pytest.approx(sample.mean())
    assert (low[2], high[2]) == pytest.approx(t_interval(sample))
    narrow = several.interval("std", confidence=0.5)
    assert narrow[2][2] - narrow[1][2] < high[2] - low[2]


def test_one_observation_has_no_interval(two: SimpleNamespace) -> None:
    mean, low, high = case_one(two.model, *two.val, noise=LEVELS, repeats=1).interval("std")
    assert np.isfinite(mean).all()
    assert np.isnan(low).all()
    assert np.isnan(high).all()


def test_boundary_points_shrink_and_the_count_of_positive_values_stays(two: SimpleNamespace) -> None:
    # The paper's first case: on one point a row is positive when it carries the point's label, noise or not.
    boundary = case_one(two.model, *two.val, noise=[1.0], kind="boundary", n_points=10, repeats=10)
    assert boundary.interval("std_ratio")[2][1] < 1
    for at, label in enumerate(boundary.labels):
        assert np.all(boundary.samples["positive_count"][:, at] == np.sum(two.y_train == label))
    assert np.all(boundary.samples["sign_kept"] == 1)


def test_the_example_is_the_first_point_and_draw_at_its_level(two: SimpleNamespace) -> None:
    result = case_one(two.model, *two.val, noise=LEVELS, n_points=2, repeats=REPEATS, example=0.2)
    point = int(result.points[0])
    assert result.example.noise == 0.2
    np.testing.assert_array_equal(result.example.before, two.model.value(two.X[[point]], two.y[[point]]).values)
    after = two.model.value(draws([point], 0, 0.2, two.X)[0], two.y[[point]]).values
    np.testing.assert_array_equal(result.example.after, after)


# Case II


@pytest.mark.parametrize("scenario", ["BB", "NN", "BN"])
def test_case_two_equals_a_direct_computation(two: SimpleNamespace, scenario: str) -> None:
    result = case_two(two.model, *two.val, noise=LEVELS, scenario=scenario, n_pairs=3, repeats=REPEATS)
    for at, pair in enumerate(result.points.tolist()):
        labels = two.y[pair]
        assert labels[0] != labels[1]
        clean = two.model.value(two.X[pair], labels, matrix=True).matrix.mean(axis=1)
        was = clean > 1e-14
        for level, noise in enumerate(LEVELS, start=1):
            for repeat, noisy in enumerate(draws(pair, at, noise, two.X)):
                values = two.model.value(noisy, labels, matrix=True).matrix.mean(axis=1)
                now = values > 1e-14
                expected = {
                    "positive_to_negative": sum(was & ~now),
                    "negative_to_positive": sum(~was & now),
                    "positive_to_zero": sum(was & (abs(values) < 1e-14)),
                    "zero_to_positive": sum((abs(clean) < 1e-14) & now),
                    "positive_count": sum(now),
                    "positive_change": sum(now) - sum(was),
                    "std": values.std(),
                    "std_ratio": values.std() / clean.std(),
                }
                assert set(expected) == set(result.samples)
                for name, number in expected.items():
                    assert result.samples[name][level, at, repeat] == pytest.approx(number, rel=1e-10), name
        assert np.all(result.samples["positive_count"][0, at] == sum(was))


@pytest.mark.parametrize("scenario", ["BB", "NN", "BN"])
def test_flips_add_up_to_the_change_of_the_positive_count(three: SimpleNamespace, scenario: str) -> None:
    found = case_two(three.model, *three.val, noise=LEVELS, scenario=scenario, n_pairs=4, repeats=REPEATS).samples
    change = found["negative_to_positive"] - found["positive_to_negative"]
    np.testing.assert_array_equal(found["positive_change"], change)
    np.testing.assert_array_equal(found["positive_count"], found["positive_count"][:1] + change)
    assert np.all(found["positive_to_zero"] <= found["positive_to_negative"])
    assert np.any(found["positive_to_negative"] > 0)


def test_zero_is_zero_whatever_rounding_makes_of_it() -> None:
    # Rows far from both points gain on one exactly what they lose on the other.
    X = np.array([[0.0], [1.0], [2.0], [50.0], [51.0], [52.0]])
    y = np.array([0, 1, 0, 1, 0, 1])
    model = KNNShapley(n_neighbors=1).fit(X, y)
    values = model.value([[0.1], [0.9]], [0, 1]).values
    assert signs(values)[-1] == 0
    assert signs(np.array([1.0, 1e-17, -1e-17, -1.0])).tolist() == [1, 0, 0, -1]
    assert signs(np.zeros(2)).tolist() == [0, 0]


@given(st.lists(st.floats(-1, 1).filter(lambda v: v == 0 or abs(v) > 1e-6), min_size=1, max_size=20))
def test_signs_are_those_of_numpy_where_nothing_is_rounded(values: list[float]) -> None:
    np.testing.assert_array_equal(signs(np.array(values)), np.sign(values))


def test_lost_and_gained_are_the_counted_rows(two: SimpleNamespace) -> None:
    result = case_two(two.model, *two.val, noise=[0.8], scenario="NN", repeats=REPEATS)
    assert result.example.lost.sum() == result.samples["positive_to_negative"][1, 0, 0]
    assert result.example.gained.sum() == result.samples["negative_to_positive"][1, 0, 0]


def test_maps_are_the_features_themselves_when_there_are_two(two: SimpleNamespace) -> None:
    result = case_two(two.model, *two.val, noise=[0.8], repeats=REPEATS, X_train=two.X_train)
    assert result.map is not None
    np.testing.assert_array_equal(result.map.rows, two.X_train)
    np.testing.assert_array_equal(result.map.codes, two.y_train)
    np.testing.assert_array_equal(result.map.before, two.X[result.points[0]])
    np.testing.assert_array_equal(result.map.after, draws(result.points[0].tolist(), 0, 0.8, two.X)[0])
    assert case_two(two.model, *two.val, noise=[0.8], repeats=1).map is None


def test_maps_are_principal_components_when_there_are_more(three: SimpleNamespace) -> None:
    result = case_two(three.model, *three.val, noise=[0.8], repeats=1, X_train=three.X_train)
    assert result.map is not None
    pca = PCA(2).fit(three.X_train)
    np.testing.assert_allclose(abs(result.map.rows), abs(pca.transform(three.X_train)), atol=1e-8)
    np.testing.assert_allclose(abs(result.map.before), abs(pca.transform(three.X[result.points[0]])), atol=1e-8)
    assert result.map.axes[0].startswith("principal component 1")


def test_one_feature_lies_on_a_line() -> None:
    X = np.arange(30.0).reshape(-1, 1)
    model = KNNShapley().fit(X, X[:, 0] > 14)
    result = case_two(model, X, X[:, 0] > 14, noise=[5.0], repeats=2, X_train=X)
    assert result.map is not None
    np.testing.assert_array_equal(result.map.rows, np.column_stack([X, np.zeros(30)]))
    result.plot()


# Choosing points


def test_points_are_chosen_by_entropy(two: SimpleNamespace) -> None:
    entropy, votes = entropies(two)
    top = np.flatnonzero(np.isclose(entropy, entropy.max()))
    (point,) = pick_points(two.model, *two.val)
    frequent = np.bincount(two.y).argmax()
    assert point in top
    assert two.y[point] == frequent
    inside = np.flatnonzero((entropy == 0) & (votes == two.y))
    (calm,) = pick_points(two.model, *two.val, kind="nonboundary")
    own = inside[two.y[inside] == frequent]
    distance = np.linalg.norm(two.X[own] - two.X[own].mean(axis=0), axis=1)
    assert calm == own[np.argsort(distance, kind="stable")[(own.size - 1) // 2]]


def test_points_whose_neighbours_all_disagree_with_them_are_not_calm(two: SimpleNamespace) -> None:
    entropy, votes = entropies(two)
    y = two.y.copy()
    y[::3] = 1 - y[::3]  # wrong labels
    picked = pick_points(two.model, two.X, y, kind="nonboundary", n_points=1000)
    np.testing.assert_array_equal(np.sort(picked), np.flatnonzero((entropy == 0) & (votes == y)))
    # Where nothing else is left, they have to do.
    wrong = np.flatnonzero((entropy == 0) & (votes != y))
    assert pick_points(two.model, two.X[wrong], y[wrong], kind="nonboundary", n_points=1000).size == wrong.size


def test_several_points_are_a_seeded_sample_of_the_highest_entropies(two: SimpleNamespace) -> None:
    entropy, _ = entropies(two)
    boundary = np.flatnonzero(entropy > 0)
    picked = pick_points(two.model, *two.val, n_points=6, random_state=3)
    assert len(set(picked.tolist())) == 6
    rest = np.setdiff1d(boundary, picked)
    assert entropy[picked].min() >= entropy[rest].max() - 1e-9
    np.testing.assert_array_equal(picked, pick_points(two.model, *two.val, n_points=6, random_state=3))
    other = pick_points(two.model, *two.val, n_points=6, random_state=4)
    assert picked.tolist() != other.tolist()
    everyone = pick_points(two.model, *two.val, n_points=10**6)
    np.testing.assert_array_equal(np.sort(everyone), boundary)


@pytest.mark.parametrize("n_pairs", [1, 7, 1000])
@pytest.mark.parametrize("scenario", ["BB", "NN", "BN"])
def test_pairs_have_different_classes_and_the_kinds_asked_for(
    three: SimpleNamespace, scenario: str, n_pairs: int
) -> None:
    entropy, _ = entropies(three)
    pairs = pick_pairs(three.model, *three.val, scenario=scenario, n_pairs=n_pairs)
    assert 1 <= len(pairs) <= n_pairs
    assert np.all(three.y[pairs[:, 0]] != three.y[pairs[:, 1]])
    for column, letter in enumerate(scenario):
        assert np.all((entropy[pairs[:, column]] > 0) == (letter == "B"))
    assert np.unique(pairs).size == pairs.size


def test_bn_pairs_take_both_directions_in_turn(two: SimpleNamespace) -> None:
    pairs = pick_pairs(two.model, *two.val, scenario="BN", n_pairs=6)
    assert two.y[pairs[:, 0]].tolist().count(0) == 3
    frequent = np.bincount(two.y).argmax()
    assert two.y[pick_pairs(two.model, *two.val, scenario="BN")[0, 0]] == frequent


def test_a_class_without_such_points_is_passed_over() -> None:
    # Class 1 comes second by frequency but has boundary points only where class 2 mixes in, and none inside.
    X = np.concatenate([np.arange(12), [100, 101, 102, 103, 104, 105, 106, 107, 108, 109], np.arange(200, 208)])[
        :, None
    ]
    y = np.array([0] * 12 + [1, 3] * 5 + [2] * 8)
    model = KNNShapley().fit(X, y)
    pairs = pick_pairs(model, X, y, scenario="NN")
    assert y[pairs].tolist() == [[0, 2]]
    assert set(map(tuple, y[pick_pairs(model, X, y, scenario="NN", n_pairs=5)].tolist())) == {(0, 2)}


def test_labels_never_seen_in_training_are_not_chosen(two: SimpleNamespace) -> None:
    y = two.y.copy()
    y[::2] = 7
    with pytest.warns(UserWarning, match="never seen"):
        picked = pick_points(two.model, two.X, y, n_points=1000)
    assert np.all(picked % 2 == 1)


# Any container, any model


@pytest.mark.parametrize(
    "make", [lambda X, columns: pd.DataFrame(X, columns=columns), lambda X, columns: pl.DataFrame(X, schema=columns)]
)
def test_tables_give_the_same_numbers_as_arrays(three: SimpleNamespace, make: Any) -> None:
    columns = list("abcd")
    labels = np.array(["x", "y", "z"])
    model = KNNShapley().fit(make(three.X_train, columns), labels[three.y_train])
    X_val, y_val = make(three.X, columns), labels[three.y]
    plain = case_two(three.model, *three.val, noise=[0.5], repeats=2, scenario="BN", n_pairs=2)
    table = case_two(
        model, X_val, y_val, noise=[0.5], repeats=2, scenario="BN", n_pairs=2, X_train=make(three.X_train, columns)
    )
    np.testing.assert_array_equal(table.points, plain.points)
    np.testing.assert_array_equal(table.labels, labels[three.y[plain.points]])
    for name, numbers in plain.samples.items():
        np.testing.assert_allclose(table.samples[name], numbers, rtol=1e-12)


def test_sparse_and_nested_lists_work(two: SimpleNamespace) -> None:
    expected = case_one(two.model, *two.val, noise=[0.5], repeats=2).samples["std"]
    listed = case_one(two.model, two.X.tolist(), two.y.tolist(), noise=[0.5], repeats=2)
    np.testing.assert_array_equal(listed.samples["std"], expected)
    model = KNNShapley().fit(sparse.csr_array(two.X_train), two.y_train)
    found = case_one(model, sparse.csr_array(two.X), two.y, noise=[0.5], repeats=2)
    np.testing.assert_allclose(found.samples["std"], expected, rtol=1e-6)
    demo = noise_demo(model, sparse.csr_array(two.X), two.y, sparse.csr_array(two.X_train))
    np.testing.assert_array_equal(demo.map.rows, two.X_train)


class OnlyValues:
    """The least that a model must be: no groups, no neighbours, no classes."""

    def __init__(self, model: KNNShapley) -> None:
        self.model = model

    def value(self, X_val: Any, y_val: Any) -> Any:
        return self.model.value(X_val, y_val)


def test_models_with_a_value_method_alone_work(two: SimpleNamespace) -> None:
    bare = case_one(OnlyValues(two.model), *two.val, noise=[0.5], repeats=3)
    full = case_one(two.model, *two.val, noise=[0.5], repeats=3)
    for name in full.samples:
        if name == "prediction_changed":
            assert np.isnan(bare.samples[name]).all()
        else:
            np.testing.assert_allclose(bare.samples[name], full.samples[name], rtol=1e-12)
    pairs = case_two(OnlyValues(two.model), *two.val, noise=[0.5], repeats=2, X_train=two.X_train)
    pairs.plot()
    with pytest.raises(TypeError, match="value_and_neighbors"):
        noise_demo(OnlyValues(two.model), *two.val, two.X_train)


def test_chunks_change_nothing(two: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    options: Any = {"noise": LEVELS, "repeats": 5, "n_pairs": 2}
    whole = case_two(two.model, *two.val, **options)
    monkeypatch.setattr(cases, "CHUNK_BYTES", 2 * 8 * N_TRAIN)
    for name, numbers in case_two(two.model, *two.val, **options).samples.items():
        np.testing.assert_array_equal(numbers, whole.samples[name])


def test_only_a_chunk_of_values_exists_at_a_time(two: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    value = KNNShapley.value_and_neighbors

    def counted(self: Any, X: Any, y: Any, **options: Any) -> Any:
        if "groups" in options:
            sizes.append(len(set(options["groups"].tolist())))
        return value(self, X, y, **options)

    monkeypatch.setattr(KNNShapley, "value_and_neighbors", counted)
    monkeypatch.setattr(cases, "CHUNK_BYTES", 3 * 8 * N_TRAIN)
    case_one(two.model, *two.val, noise=LEVELS, repeats=10, n_points=2)
    assert max(sizes) == 3


def test_same_seed_same_bytes_and_the_data_stay_as_they_are(two: SimpleNamespace) -> None:
    X = two.X.copy()
    options: Any = {"noise": LEVELS, "repeats": 3, "n_points": 4}
    first, again = (case_one(two.model, *two.val, random_state=5, **options) for _ in range(2))
    other = case_one(two.model, *two.val, random_state=6, **options)
    for name in first.samples:
        assert first.samples[name].tobytes() == again.samples[name].tobytes()
    assert first.samples["std"].tobytes() != other.samples["std"].tobytes()
    np.testing.assert_array_equal(two.X, X)


def test_other_perturbations_can_be_asked_for(two: SimpleNamespace) -> None:
    flipped = case_one(two.model, *two.val, noise=[1.0], repeats=2, perturbation=FlipLabels)
    clean, noisy = (two.model.value(two.X[flipped.points], labels).values.std() for labels in ([1], [0]))
    assert {round(clean, 12), round(noisy, 12)} >= set(np.round(flipped.samples["std"].ravel(), 12))
    relative = case_two(
        two.model, *two.val, noise=[0.5], repeats=2, perturbation=lambda s: GaussianNoise(s, relative=True)
    )
    assert relative.parameters["perturbation"] == {"name": "GaussianNoise", "sigma": 0.5, "relative": True}


def test_perturbations_must_keep_the_points_in_their_places(two: SimpleNamespace) -> None:
    def swap(X_val: Any, y_val: Any) -> tuple[Any, Any]:
        return X_val[::-1], y_val[::-1]

    def relabel(X_val: Any, y_val: Any) -> tuple[Any, Any]:
        return X_val, 1 - y_val

    few: Any = {"noise": [0.5], "repeats": 2}
    with pytest.raises(
        ValueError, match=r"'perturbation' parameter of case_two must keep the 4 .* which swap does not"
    ):
        case_two(two.model, *two.val, perturbation=lambda level: swap, **few)
    with pytest.raises(ValueError, match=r"of case_one must keep .* which relabel does not.*pointwise = True"):
        case_one(two.model, *two.val, perturbation=lambda level: relabel, **few)
    relabel.pointwise = True  # type: ignore[attr-defined]
    assert case_one(two.model, *two.val, perturbation=lambda level: relabel, **few).kind == "boundary"


def test_training_rows_must_be_those_that_were_fitted(two: SimpleNamespace, three: SimpleNamespace) -> None:
    few: Any = {"noise": [0.5], "repeats": 1}
    for rows in (two.X_train[::-1], two.X_train + 1e-6, two.X_train[:, ::-1]):
        with pytest.raises(ValueError, match="'X_train' must hold the rows that the model was fitted on, in the same"):
            case_two(two.model, *two.val, X_train=rows, **few)
        with pytest.raises(ValueError, match="'X_train' must hold the rows"):
            noise_demo(two.model, *two.val, rows)
    labels = np.array(["x", "y", "z"])[three.y_train].astype(object)
    model = KNNShapley(metric="manhattan").fit(pd.DataFrame(three.X_train, columns=list("abcd")), labels)
    table = pd.DataFrame(three.X, columns=list("abcd"))
    y_val = np.array(["x", "y", "z"])[three.y]
    assert noise_demo(model, table, y_val, pd.DataFrame(three.X_train, columns=list("abcd"))).before.size == 5


def test_other_models_are_asked_for_the_spread_of_their_columns(two: SimpleNamespace) -> None:
    few: Any = {"noise": [0.5], "repeats": 1}
    bare = OnlyValues(two.model)
    assert case_two(bare, *two.val, X_train=two.X_train + 5, **few).map is not None  # it cannot tell
    bare.feature_std_ = two.model.feature_std_  # type: ignore[attr-defined]
    assert case_two(bare, *two.val, X_train=two.X_train, **few).map is not None
    with pytest.raises(ValueError, match="'X_train' must hold the rows"):
        case_two(bare, *two.val, X_train=2 * two.X_train, **few)


def test_models_must_return_valuations(two: SimpleNamespace) -> None:
    class Bare:
        def value(self, X_val: Any, y_val: Any) -> Any:
            return np.zeros(N_TRAIN)

    for call in (case_one, case_two, pick_points, pick_pairs):
        with pytest.raises(TypeError, match=f"of {call.__name__} must have a value method that returns a Valuation"):
            call(Bare(), *two.val)


# Results


def test_frames_hold_mean_and_interval_of_every_statistic(two: SimpleNamespace) -> None:
    result = case_two(two.model, *two.val, noise=LEVELS, repeats=REPEATS)
    frame = result.to_frame()
    assert frame["noise"].tolist() == [0.0, *LEVELS]
    assert list(frame.columns) == ["noise", *(name + end for name in result.samples for end in ("", "_low", "_high"))]
    np.testing.assert_array_equal(frame["std_low"], result.interval("std")[1])
    assert isinstance(result.to_frame("polars"), pl.DataFrame)


def test_parameters_are_json(three: SimpleNamespace) -> None:
    for result in (
        case_one(three.model, *three.val, noise=LEVELS, repeats=1),
        case_two(three.model, *three.val, noise=LEVELS, repeats=1),
        noise_demo(three.model, *three.val, three.X_train),
    ):
        again = json.loads(json.dumps(dict(result.parameters)))
        assert again["random_state"] == 0
        assert again["fingerprint"] == three.model.fingerprint_
        assert again["points"] == np.atleast_1d(getattr(result, "points", getattr(result, "point", None))).tolist()


def test_representations_say_the_main_thing(two: SimpleNamespace) -> None:
    assert repr(case_one(two.model, *two.val, noise=LEVELS, repeats=1)).startswith(
        "CaseOne(boundary, points=1, std_ratio"
    )
    assert "positive_to_negative" in repr(case_two(two.model, *two.val, noise=LEVELS, repeats=1))
    assert "shared=" in repr(noise_demo(two.model, *two.val, two.X_train))


def test_noise_demo_finds_the_neighbours_before_and_after(three: SimpleNamespace) -> None:
    demo = noise_demo(three.model, *three.val, three.X_train, noise=0.5)
    index = NearestNeighbors(n_neighbors=5).fit(three.X_train)
    clean = three.X[[demo.point]]
    noise_seed = int(np.random.SeedSequence([0, 0]).generate_state(1)[0])
    noisy, _ = GaussianNoise(0.5, random_state=noise_seed)(clean, [0])
    before, after = (index.kneighbors(point, return_distance=False)[0] for point in (clean, noisy))
    np.testing.assert_array_equal(demo.before, before)
    np.testing.assert_array_equal(demo.after, after)
    assert set(demo.shared.tolist()) == set(before) & set(after)
    frame = demo.to_frame()
    assert frame.index.tolist()[:5] == before.tolist()
    assert frame["rank_before"].tolist()[:5] == [1, 2, 3, 4, 5]
    assert frame.loc[after, "rank_after"].tolist() == [1, 2, 3, 4, 5]
    assert set(frame["rank_after"]) == {*range(1, 6), *([0] if len(frame) > 5 else [])}
    assert frame["class"].tolist() == three.y_train[frame.index].tolist()
    assert demo.label == three.y[demo.point]


# Given points


def test_given_points_are_taken_as_they_are(two: SimpleNamespace) -> None:
    entropy, _ = entropies(two)
    inside, edge = np.flatnonzero(entropy == 0), np.flatnonzero(entropy > 0)
    assert case_one(two.model, *two.val, noise=[0.5], repeats=1, point=int(inside[0])).kind == "nonboundary"
    both = case_one(two.model, *two.val, noise=[0.5], repeats=1, point=[int(inside[0]), int(edge[0])])
    assert both.kind == "mixed"
    np.testing.assert_allclose(both.entropy, entropy[[inside[0], edge[0]]], atol=1e-9)
    partner = edge[two.y[edge] != two.y[inside[0]]][0]
    assert case_two(two.model, *two.val, noise=[0.5], repeats=1, points=(inside[0], partner)).scenario == "NB"
    result = case_two(two.model, *two.val, noise=[0.5], repeats=1, points=[(partner, inside[0])], scenario="BN")
    assert result.points.tolist() == [[partner, inside[0]]]
    assert noise_demo(two.model, *two.val, two.X_train, point=3).point == 3


def same_class(data: SimpleNamespace) -> list[int]:
    return np.flatnonzero(data.y == 0)[:2].tolist()


@pytest.mark.parametrize(
    ("call", "options", "error", "message"),
    [
        (case_one, {"noise": [-0.1]}, ValueError, "'noise' parameter of case_one must hold different numbers of"),
        (case_one, {"noise": []}, ValueError, "'noise'"),
        (case_one, {"noise": [0.1, 0.1]}, ValueError, "different"),
        (case_one, {"noise": ["a"]}, ValueError, "'noise'"),
        (case_one, {"noise": [np.nan]}, ValueError, "'noise'"),
        (case_one, {"noise": [0.0]}, ValueError, "above 0"),
        (case_one, {"repeats": 0}, ValueError, "'repeats' parameter of case_one must be at least 1"),
        (case_one, {"repeats": 1.5}, TypeError, "'repeats'"),
        (case_one, {"random_state": -1}, ValueError, "'random_state'"),
        (case_one, {"kind": "edge"}, ValueError, "'boundary', 'nonboundary'"),
        (case_one, {"n_points": 0}, ValueError, "'n_points'"),
        (case_one, {"point": N_VAL}, ValueError, f"from 0 to {N_VAL - 1}"),
        (case_one, {"point": -1}, ValueError, "from 0 to"),
        (case_one, {"point": 1.5}, ValueError, "integers"),
        (case_one, {"point": []}, ValueError, "'point'"),
        (case_one, {"point": 1, "n_points": 2}, ValueError, "Got both"),
        (case_one, {"example": 7.0}, ValueError, "'example' parameter of case_one must be one of the noise levels"),
        (case_one, {"perturbation": 3}, TypeError, "'perturbation'"),
        (case_one, {"perturbation": Subsample, "noise": [0.5]}, ValueError, "must keep the 20 validation points"),
        (case_two, {"noise": [-0.1]}, ValueError, "'noise' parameter of case_two"),
        (case_two, {"repeats": 0}, ValueError, "'repeats' parameter of case_two"),
        (case_two, {"scenario": "XX"}, ValueError, "'BB', 'NN', 'BN'"),
        (case_two, {"points": [1, 2, 3]}, ValueError, "a pair of positions"),
        (case_two, {"points": same_class}, ValueError, "different classes"),
        (case_two, {"X_train": np.zeros((3, 2))}, ValueError, f"'X_train' must hold the {N_TRAIN} rows"),
        (pick_points, {"kind": "B"}, ValueError, "'kind' parameter of pick_points"),
        (pick_pairs, {"scenario": "NB"}, ValueError, "'scenario' parameter of pick_pairs"),
        (noise_demo, {"X_train": "own", "noise": [0.1, 0.2]}, ValueError, "one number"),
        (noise_demo, {"X_train": "own", "noise": -1.0}, ValueError, "'noise' parameter of noise_demo"),
    ],
)  # fmt: skip
def test_bad_input_is_refused(
    two: SimpleNamespace, call: Any, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    given_options = {name: value(two) if value is same_class else value for name, value in options.items()}
    if isinstance(given_options.get("X_train"), str):
        given_options["X_train"] = two.X_train
    with pytest.raises(error, match=message):
        call(two.model, *two.val, **given_options)


def test_points_of_the_wrong_kind_are_refused(two: SimpleNamespace) -> None:
    entropy, _ = entropies(two)
    inside = int(np.flatnonzero(entropy == 0)[0])
    with pytest.raises(ValueError, match=rf"boundary points only .* Got {inside} \(entropy 0\)"):
        case_one(two.model, *two.val, kind="boundary", point=inside)
    pair = pick_pairs(two.model, *two.val, scenario="NN")
    with pytest.raises(ValueError, match="must name BN pairs only"):
        case_two(two.model, *two.val, scenario="BN", points=pair)


def test_nothing_to_pick_is_said() -> None:
    X, y = make_blobs(60, centers=[[-50, 0], [50, 0]], random_state=0)
    model = KNNShapley().fit(X, y)
    with pytest.raises(ValueError, match="no boundary point in the validation set"):
        case_one(model, X, y)
    with pytest.raises(ValueError, match="no BB pair in the validation set"):
        case_two(model, X, y)
    with pytest.raises(ValueError, match="no NN pair"):
        case_two(model, X[y == 0], y[y == 0], scenario="NN")


def test_models_that_cannot_be_used_are_refused(two: SimpleNamespace) -> None:
    with pytest.raises(TypeError, match="value method"):
        case_one(object(), *two.val)
    distances = KNNShapley(metric="precomputed").fit(None, two.y_train)
    with pytest.raises(ValueError, match="metric='precomputed'"):
        case_one(distances, np.zeros((3, N_TRAIN)), [0, 1, 0])


# Figures


def labels_are_written(axes: Any) -> bool:
    return all(ax.get_xlabel() and ax.get_title(loc="left") for ax in np.ravel(axes) if ax.axison)


def test_case_one_draws_both_kinds(two: SimpleNamespace, tmp_path: Path) -> None:
    cases = [case_one(two.model, *two.val, noise=LEVELS, kind=kind, repeats=2) for kind in ("boundary", "nonboundary")]
    axes = cases[0].plot(cases[1])
    assert axes.shape == (4,)
    assert labels_are_written(axes)
    np.testing.assert_array_equal(axes[2].lines[0].get_ydata(), cases[0].interval("std")[0])
    np.testing.assert_array_equal(axes[3].lines[1].get_ydata(), cases[1].interval("positive_count")[0])
    edges = np.unique(axes[0].patches[0].get_xy()[:, 0])  # every value must fall into a bin
    assert edges.min() < min(case.example.before.min() for case in cases)
    assert edges.max() > max(case.example.before.max() for case in cases)
    assert all(path.stat().st_size > 1000 for path in save_figure(axes, tmp_path / "one"))
    assert cases[0].plot().shape == (3,)


def test_case_two_draws_quadrants_and_maps(two: SimpleNamespace, tmp_path: Path) -> None:
    cases = [
        case_two(two.model, *two.val, noise=LEVELS, scenario=scenario, repeats=2, X_train=two.X_train)
        for scenario in ("BB", "NN", "BN")
    ]
    axes = cases[0].plot(*cases[1:])
    assert axes.shape == (2, 3)
    assert labels_are_written(axes)
    for ax, case in zip(axes[0], cases, strict=True):
        before, after = signs(case.example.before) > 0, signs(case.example.after) > 0
        expected = [sum(~before & after), sum(before & after), sum(~before & ~after), sum(before & ~after)]
        assert [int(text.get_text()) for text in ax.texts] == expected
        assert sum(len(dots.get_offsets()) for dots in ax.collections) == N_TRAIN
    assert all(path.stat().st_size > 1000 for path in save_figure(axes, tmp_path / "two"))
    assert case_two(two.model, *two.val, noise=LEVELS, repeats=2).plot().shape == (1, 1)
    levels = cases[0].plot_levels(*cases[1:])
    assert levels.shape == (3,)
    assert labels_are_written(levels)
    for ax, case in zip(levels, cases, strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), case.interval("positive_to_negative")[0])
        np.testing.assert_array_equal(ax.lines[1].get_ydata(), case.interval("negative_to_positive")[0])


def test_noise_demo_draws_the_whole_and_a_zoom(three: SimpleNamespace) -> None:
    axes = noise_demo(three.model, *three.val, three.X_train).plot()
    assert axes.shape == (2,)
    assert labels_are_written(axes)
    whole, zoom = axes
    assert np.ptp(zoom.get_xlim()) < np.ptp(whole.get_xlim())
    axes[0].figure.canvas.draw()
