"""Validation design: profiles, the splitter and the selection, against direct computations."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import make_gaussian_quantiles
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.neighbors import KNeighborsClassifier

from shapshift import KNNShapley
from shapshift.design import (
    BoundaryStratifiedSplit,
    EntropyProfile,
    ProfileComparison,
    design_validation,
    entropy_profile,
)
from shapshift.design.profile import leave_one_out_entropy, neighbor_model
from shapshift.design.select import _improve, _sketches
from shapshift.design.split import apportion
from shapshift.perturb import FlipLabels, GaussianNoise, Subsample


def naive_entropy(x: np.ndarray, X: np.ndarray, y: np.ndarray, k: int, without: int | None) -> float:
    order = sorted((i for i in range(len(X)) if i != without), key=lambda i: float(((X[i] - x) ** 2).sum()))
    labels = [y[i] for i in order[:k]]
    shares = [labels.count(label) / len(labels) for label in set(labels)]
    return -sum(share * math.log(share) for share in shares)


def make(n: int, n_classes: int = 2, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    return make_gaussian_quantiles(n_samples=n, n_features=2, n_classes=n_classes, random_state=seed)


# --- leave-one-out --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_classes", [2, 3])
def test_leave_one_out_entropy(n_classes: int) -> None:
    X, y = make(60, n_classes)
    got = leave_one_out_entropy(neighbor_model(X, y, 5, "euclidean"), X, y, np.arange(60), 5)
    expected = [naive_entropy(X[i], X, y, 5, i) for i in range(60)]
    np.testing.assert_allclose(got, expected, atol=1e-11)
    assert ((got == 0) == (np.array(expected) < 1e-12)).all()


def test_only_the_row_itself_is_left_out() -> None:
    # Eight copies of one point: the last of them does not find itself among its six nearest, and must not lose another.
    X = np.array([[0.0]] * 8 + [[1.0], [2.0]])
    y = np.array([0, 0, 0, 0, 1, 1, 1, 1, 1, 1])
    got = leave_one_out_entropy(neighbor_model(X, y, 5, "euclidean"), X, y, np.arange(10), 5)
    np.testing.assert_allclose(got, [naive_entropy(X[i], X, y, 5, i) for i in range(10)], atol=1e-11)
    # Fewer rows than neighbours, and a single row without any.
    got = leave_one_out_entropy(neighbor_model(X[:3], [0, 1, 1], 5, "euclidean"), X[:3], [0, 1, 1], np.arange(3), 5)
    np.testing.assert_allclose(got, [0, math.log(2), math.log(2)])
    assert leave_one_out_entropy(neighbor_model(X[:1], [0], 5, "euclidean"), X[:1], [0], np.arange(1), 5) == [0]


# --- profiles -------------------------------------------------------------------------------------------------------


def test_profile_against_direct_computation() -> None:
    X, y = make(160, 3)
    X_val, y_val = make(50, 3, seed=1)
    result = entropy_profile(X, y, X_val, y_val)
    theirs = np.round([naive_entropy(x, X, y, 5, None) for x in X_val], 9)
    own = np.round([naive_entropy(X[i], X, y, 5, i) for i in range(160)], 9)
    np.testing.assert_allclose(result.validation.levels, np.unique(np.concatenate([theirs, own])), atol=1e-8)
    for level, share, own_share in zip(
        result.validation.levels, result.validation.shares, result.training.shares, strict=True
    ):
        assert share == pytest.approx(np.mean(np.abs(theirs - level) < 1e-6))
        assert own_share == pytest.approx(np.mean(np.abs(own - level) < 1e-6))
    assert result.distance == pytest.approx(np.abs(result.validation.shares - result.training.shares).sum() / 2)
    assert result.validation.boundary_fraction == pytest.approx(np.mean(theirs > 0))
    assert result.training.class_boundary[2] == pytest.approx(np.mean(own[y == 2] > 0))
    assert result.validation.class_shares[1] == pytest.approx(np.mean(y_val == 1))
    assert result.interval[0] <= result.interval[1]
    frame = result.to_frame("pandas")
    assert list(frame.columns) == ["entropy", "validation", "training"]
    np.testing.assert_allclose(frame[["validation", "training"]].sum(), 1)


def test_verdicts_are_right_about_as_often_as_they_say() -> None:
    X, y = make(400)
    wrong = 0
    for seed in range(40):
        X_val, y_val = make(100, seed=seed + 10)
        wrong += not entropy_profile(X, y, X_val, y_val, draws=300).representative
    assert wrong <= 8
    X_val, y_val = make(400, seed=2)
    ring = np.abs(np.linalg.norm(X_val, axis=1) - 1.18) < 0.2  # the classes meet near this radius
    assert "more boundary points" in entropy_profile(X, y, X_val[ring], y_val[ring]).verdict
    far = np.linalg.norm(X_val, axis=1) > 1.6
    verdict = entropy_profile(X, y, X_val[far], y_val[far]).verdict
    assert verdict.startswith("not representative (fewer boundary points, other class shares")


def test_the_verdict_names_what_differs() -> None:
    def profile(*shares: float) -> EntropyProfile:
        levels = np.array([0.0, 0.5, 0.673])
        return EntropyProfile(levels, np.array(shares), 100, 1 - shares[0], {0: 1.0}, {0: 0.5})

    def verdict(theirs: EntropyProfile, own: EntropyProfile) -> str:
        distance = float(np.abs(theirs.shares - own.shares).sum() / 2)
        return ProfileComparison(theirs, own, distance, (0.0, 1.0), 0.05, 0.0, 0.1).verdict.split(":")[0]

    own = profile(0.5, 0.25, 0.25)
    assert verdict(profile(0.5, 0.0, 0.5), own) == "not representative (other entropy levels)"
    assert verdict(profile(0.51, 0.0, 0.49), own) == "not representative (other entropy levels)"
    assert verdict(profile(0.3, 0.45, 0.25), own) == "not representative (more boundary points)"
    assert verdict(profile(0.8, 0.1, 0.1), own) == "not representative (fewer boundary points)"
    assert verdict(own, own) == "representative"


def test_profile_samples_many_rows_and_takes_frames() -> None:
    X, y = make(300)
    X_val, y_val = make(40, seed=1)
    part = entropy_profile(X, y, X_val, y_val, max_rows=100, random_state=3)
    assert part.training.n_points == 100
    again = entropy_profile(X, y, X_val, y_val, max_rows=100, random_state=3)
    np.testing.assert_array_equal(part.training.shares, again.training.shares)
    assert part.interval == again.interval
    names = ["a", "b"]
    frames = entropy_profile(
        pd.DataFrame(X, columns=names), pd.Series(y), pl.DataFrame(X_val, schema=names), pl.Series(y_val)
    )
    assert frames.distance == entropy_profile(X, y, X_val, y_val).distance


def test_profile_refusals() -> None:
    X, y = make(30)
    with pytest.raises(ValueError, match="'metric' parameter of entropy_profile cannot be 'precomputed'"):
        entropy_profile(X, y, X, y, metric="precomputed")
    with pytest.raises(ValueError, match="'draws' parameter"):
        entropy_profile(X, y, X, y, draws=0)
    with pytest.warns(UserWarning, match="never seen"):
        result = entropy_profile(X, y, X, y + 1)
    assert result.class_distance > 0.4


# --- splitter -------------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(1, 40), min_size=1, max_size=6), st.integers(0, 2**32 - 1), st.data())
def test_apportion(sizes: list[int], seed: int, data: st.DataObject) -> None:
    array = np.array(sizes)
    total = data.draw(st.integers(0, int(array.sum())))
    seats = apportion(array, total, np.random.default_rng(seed))
    assert seats.sum() == total
    assert (np.abs(seats - array * total / array.sum()) < 1).all()
    assert (seats <= array).all()


@pytest.mark.parametrize(("n_classes", "test_size"), [(2, 0.25), (3, 0.1), (2, 37)])
def test_shares_are_kept(n_classes: int, test_size: float) -> None:
    X, y = make(300, n_classes)
    boundary = np.array([naive_entropy(X[i], X, y, 5, i) > 1e-9 for i in range(300)])
    wanted = test_size if isinstance(test_size, int) else round(300 * test_size)
    splits = list(BoundaryStratifiedSplit(6, test_size=test_size, random_state=0).split(X, y))
    assert len(splits) == 6
    for train, test in splits:
        assert test.size == wanted
        assert sorted([*train, *test]) == list(range(300))
        for label in range(n_classes):
            share = wanted / 300
            assert abs((y[test] == label).sum() - share * (y == label).sum()) < 1
            both = (y == label) & boundary
            assert abs(both[test].sum() - share * both.sum()) < 2


def test_boundary_share_varies_less_than_when_split_by_class_only() -> None:
    X, y = make(400)
    boundary = np.array([naive_entropy(X[i], X, y, 5, i) > 1e-9 for i in range(400)])
    kept = [boundary[test].mean() for _, test in BoundaryStratifiedSplit(20, test_size=0.1, random_state=0).split(X, y)]
    assert max(kept) - min(kept) <= 2 / 40
    rng = np.random.default_rng(0)
    plain = [boundary[rng.choice(400, 40, replace=False)].mean() for _ in range(20)]
    assert np.std(kept) < np.std(plain)


def test_small_classes_are_no_error() -> None:
    X, y = make(60)
    y = y.astype(object)
    y[:1] = "alone"
    splits = BoundaryStratifiedSplit(400, test_size=0.25, random_state=0).split(X, y.tolist())
    drawn = np.bincount(np.concatenate([test for _, test in splits]), minlength=60) / 400
    np.testing.assert_allclose(drawn, 0.25, atol=0.09)  # 4 standard errors: no row is favoured, the lone one neither
    for train, test in BoundaryStratifiedSplit(3, test_size=1, random_state=0).split(X[:3], y[:3].tolist()):
        assert (train.size, test.size) == (2, 1)


def test_works_with_scikit_learn() -> None:
    X, y = make(120)
    splitter = BoundaryStratifiedSplit(3, test_size=0.3, random_state=0)
    assert splitter.get_n_splits() == splitter.get_n_splits(X, y) == 3
    first, second = (list(splitter.split(X, y)) for _ in range(2))
    assert all((a[1] == b[1]).all() for a, b in zip(first, second, strict=True))
    assert cross_val_score(KNeighborsClassifier(), X, y, cv=splitter).shape == (3,)
    search = GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 5]}, cv=splitter).fit(X, y)
    assert search.best_params_["n_neighbors"] in (1, 5)
    frame = pd.DataFrame(X, columns=["a", "b"])
    framed = list(splitter.split(frame, pd.Series(y)))
    np.testing.assert_array_equal(framed[0][1], first[0][1])
    assert repr(splitter).startswith("BoundaryStratifiedSplit(")


@pytest.mark.parametrize("test_size", [0, 1.0, 120, -0.2, "half", True, 0.001])
def test_bad_test_size(test_size: object) -> None:
    X, y = make(120)
    with pytest.raises(ValueError, match="test_size"):
        next(BoundaryStratifiedSplit(test_size=test_size).split(X, y))


def test_splitter_refusals() -> None:
    X, y = make(30)
    with pytest.raises(ValueError, match="needs 'y'"):
        next(BoundaryStratifiedSplit().split(X, None))
    with pytest.raises(ValueError, match="'n_splits' parameter of BoundaryStratifiedSplit"):
        next(BoundaryStratifiedSplit(0).split(X, y))
    with pytest.raises(ValueError, match="precomputed"):
        next(BoundaryStratifiedSplit(metric="precomputed").split(X, y))


# --- selection ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def scene() -> tuple[KNNShapley, np.ndarray, np.ndarray]:
    X, y = make(700)
    return KNNShapley(progress=False).fit(X[:300], y[:300]), X[300:], y[300:]


def test_selection_shifts_less_on_fresh_noise(scene: tuple) -> None:
    model, X, y = scene
    design = design_validation(model, X, y, 60, noise=0.3, repeats=6, holdout=5, n_random=20)
    assert design.indices.size == np.unique(design.indices).size == 60
    assert design.score < design.random["shift"].mean()
    assert design.beats_random
    assert design.gain == pytest.approx(1 - design.score / design.random["shift"].mean())
    assert design.chosen["distance"] < design.random["distance"].mean()
    # What the result says holds for noise drawn here, with values computed the plain way.
    rng = np.random.default_rng(99)
    whole = model.value(X, y).values

    def shift(members: np.ndarray) -> float:
        clean = model.value(X[members], y[members]).values
        moved = [
            model.value((X + noise)[members], y[members]).values - clean
            for noise in np.random.default_rng(5).normal(scale=0.3, size=(8, *X.shape))
        ]
        return float(np.sqrt(np.mean(np.square(moved))) / whole.std())

    ours = shift(design.indices)
    random = [shift(rng.choice(400, 60, replace=False)) for _ in range(12)]
    assert ours < min(random)
    assert ours == pytest.approx(design.score, rel=0.15)
    assert np.mean(random) == pytest.approx(design.random["shift"].mean(), rel=0.15)


def test_selection_keeps_class_and_boundary_shares(scene: tuple) -> None:
    model, X, y = scene
    design = design_validation(model, X, y, 60, noise=0.3, repeats=2, holdout=1, n_random=5)
    boundary = model.value(X, y).boundary
    for label in (0, 1):
        for side in (False, True):
            part = (y == label) & (boundary == side)
            assert abs(part[design.indices].sum() - part.sum() * 60 / 400) < 2
    assert design.boundary_fraction == boundary[design.indices].mean()
    assert design.pool_boundary_fraction == boundary.mean()


def test_statistics_against_direct_computation(scene: tuple) -> None:
    model, X, y = scene
    seeds = []

    class Recorded(GaussianNoise):
        def with_seed(self, seed: int) -> GaussianNoise:
            seeds.append(seed)
            return super().with_seed(seed)

    noise = Recorded(0.5)
    design = design_validation(model, X, y, 30, noise=noise, repeats=2, holdout=3, n_random=5)
    assert len(set(seeds)) == 5  # held-out noise is not the noise that was selected by
    members = design.indices
    whole, clean = model.value(X, y).values, model.value(X[members], y[members]).values
    noisy = [
        model.value(GaussianNoise.with_seed(noise, seed)(X, y)[0][members], y[members]).values for seed in seeds[-3:]
    ]
    unit = whole.std()
    assert design.chosen["shift"] == pytest.approx(np.sqrt(np.mean([(v - clean) ** 2 for v in noisy])) / unit)
    assert design.chosen["total"] == pytest.approx(np.sqrt(np.mean([(v - whole) ** 2 for v in noisy])) / unit)
    assert design.chosen["distance"] == pytest.approx(np.sqrt(np.mean((clean - whole) ** 2)) / unit)
    ranks = [pd.Series(v).corr(pd.Series(clean), method="spearman") for v in noisy]
    assert design.chosen["spearman"] == pytest.approx(np.mean(ranks))


def test_swaps_end_where_no_swap_helps() -> None:
    rng = np.random.default_rng(0)
    features, variance, strata = rng.normal(size=(30, 3)), rng.random(30), rng.integers(0, 2, 30)
    start = np.concatenate([np.flatnonzero(strata == s)[:4] for s in (0, 1)])

    def objective(members: np.ndarray) -> float:
        return float((features[members].sum(axis=0) ** 2).sum() + variance[members].sum())

    members = _improve(features, variance, strata, start, 50, rng)
    assert objective(members) < objective(start)
    assert np.bincount(strata[members]).tolist() == [4, 4]
    for place in range(8):
        for other in set(np.flatnonzero(strata == strata[members[place]])) - set(members):
            swapped = members.copy()
            swapped[place] = other
            assert objective(swapped) >= objective(members) - 1e-9


def test_swaps_end_where_costs_are_negative() -> None:
    # Whatever comes in costs less than nothing, since it cancels what the rest adds up to. The candidate is worth the
    # same as what would leave, up to rounding: no reason to swap.
    features = np.array([[10.0], [-1.0], [-1.0]])
    variance = np.array([0.0, 1e-14, 0.0])
    members = _improve(features, variance, np.array([0, 1, 1]), np.array([0, 1]), 5, np.random.default_rng(0))
    assert sorted(members.tolist()) == [0, 1]


def test_sketch_is_good_enough_and_seeds_reproduce(scene: tuple) -> None:
    model, X, y = scene
    few = {"noise": 0.3, "repeats": 4, "holdout": 3, "n_random": 5}
    sketched = design_validation(model, X, y, 60, sketch=64, **few)
    again = design_validation(model, X, y, 60, sketch=64, **few)
    assert sketched.indices.tobytes() == again.indices.tobytes()
    assert sketched.random["shift"].tobytes() == again.random["shift"].tobytes()
    other = design_validation(model, X, y, 60, sketch=64, random_state=1, **few)
    assert other.indices.tolist() != sketched.indices.tolist()
    assert sketched.gain > 0


def test_selection_takes_frames_and_reports(scene: tuple) -> None:
    _, X, y = scene
    names = ["a", "b"]
    frame = pd.DataFrame(X, columns=names, index=[f"p{i}" for i in range(400)])
    model = KNNShapley(progress=False).fit(frame[:200], y[:200].astype(str))
    few = {"noise": GaussianNoise(0.5, relative=True), "repeats": 2, "holdout": 1, "n_random": 5}
    design = design_validation(model, frame[200:], y[200:].astype(str), 20, **few)
    assert design.parameters["noise"]["name"] == "GaussianNoise"
    table = design.to_frame("pandas")
    assert table["statistic"].tolist() == ["shift", "distance", "total", "spearman"]
    assert table.loc[0, "random"] == pytest.approx(design.random["shift"].mean())
    assert str(design) == design.verdict
    assert "random choices" in design.verdict


def test_selection_refusals(scene: tuple) -> None:
    model, X, y = scene
    with pytest.raises(ValueError, match="'m' parameter of design_validation must be below the 400 points"):
        design_validation(model, X, y, 400, noise=0.1)
    with pytest.raises(ValueError, match="'repeats' parameter of design_validation must be at least 2"):
        design_validation(model, X, y, 10, noise=0.1, repeats=1)
    with pytest.raises(ValueError, match="at least 0"):
        design_validation(model, X, y, 10, noise=-0.1)
    with pytest.raises(ValueError, match="'fidelity' parameter"):
        design_validation(model, X, y, 10, noise=0.1, fidelity=-1)
    with pytest.raises(ValueError, match="'noise' must keep the 400 points of the pool"):
        design_validation(model, X, y, 10, noise=Subsample(0.5))
    with pytest.raises(TypeError, match=r"perturbation"):
        design_validation(model, X, y, 10, noise="loud")
    with pytest.raises(ValueError, match="'n_random' parameter of design_validation must be at least 5"):
        design_validation(model, X, y, 10, noise=0.1, n_random=4)


def relabel(X_val: np.ndarray, y_val: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return X_val, 1 - y_val


def test_noise_must_keep_the_points_in_their_places(scene: tuple) -> None:
    model, X, y = scene
    few = {"repeats": 2, "holdout": 1, "n_random": 5}

    def reverse(X_val: np.ndarray, y_val: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return X_val[::-1], y_val[::-1]

    with pytest.raises(ValueError, match="must keep the 400 points of the pool, in order, which reverse does not"):
        design_validation(model, X, y, 10, noise=reverse, **few)
    with pytest.raises(ValueError, match=r"which relabel does not.*pointwise = True"):
        design_validation(model, X, y, 10, noise=relabel, **few)
    relabel.pointwise = True
    assert design_validation(model, X, y, 10, noise=relabel, **few).indices.size == 10
    assert design_validation(model, X, y, 10, noise=FlipLabels(0.2), **few).indices.size == 10


def test_without_noise_there_is_nothing_to_save(scene: tuple) -> None:
    model, X, y = scene
    design = design_validation(model, X, y, 20, noise=0, repeats=2, holdout=1, n_random=5)
    assert (design.gain, design.beats_random) == (0.0, False)
    assert design.verdict.startswith("has nothing to gain: this noise does not shift")
    assert "saved" not in design.verdict


class OnlyValues:
    def __init__(self, model: KNNShapley) -> None:
        self.model = model

    def value(self, X_val: object, y_val: object) -> object:
        return self.model.value(X_val, y_val)


class NoValuation(OnlyValues):
    def value(self, X_val: object, y_val: object, matrix: bool = False) -> object:
        return np.zeros(3)


class NoMatrix(OnlyValues):
    def value(self, X_val: object, y_val: object, **options: object) -> object:
        return self.model.value(X_val, y_val)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (OnlyValues, r"must give the values on single points.*OnlyValues.value has no 'matrix' argument"),
        (NoValuation, "must have a value method that returns a Valuation. That of NoValuation returns ndarray"),
        (NoMatrix, "Its matrix is None"),
    ],
)
def test_models_that_cannot_be_designed_for(scene: tuple, kind: type, message: str) -> None:
    model, X, y = scene
    with pytest.raises(TypeError, match=message):
        design_validation(kind(model), X, y, 10, noise=0.1, n_random=5)


def test_plots(scene: tuple) -> None:
    plt = pytest.importorskip("matplotlib.pyplot")
    model, X, y = scene
    design = design_validation(model, X, y, 20, noise=0.3, repeats=2, holdout=1, n_random=5)
    assert design.plot().get_xlabel().startswith("distance")
    profile = entropy_profile(X[:100], y[:100], X[100:], y[100:])
    assert profile.plot().get_ylabel() == "share of points"
    plt.close("all")


def test_the_variance_of_a_change_does_not_suffer_from_a_large_drift() -> None:
    """Perturbations that move all values far, and differ little from seed to seed."""
    changes = np.random.default_rng(0).normal(size=(5, 4, 3))

    class Pool:
        size = 4

        def stream(self, seed: int | None, positions: np.ndarray) -> Any:
            moved = np.zeros((4, 3)) if seed is None else changes[seed] + 1e9
            yield positions, SimpleNamespace(matrix=moved.T, n_train=3, boundary=np.zeros(4, dtype=bool))

    _, drift, variance, _ = _sketches(Pool(), list(range(5)), 10, np.random.default_rng(0))
    np.testing.assert_allclose(variance, changes.var(axis=0, ddof=1).sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(drift - 1e9, changes.mean(axis=0), atol=1e-6)
