"""Values pooled with the training rows: against the formulas by hand, where populations agree and where they do not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import spearmanr

from shapshift import KNNShapley, PosteriorCorrector
from shapshift.exceptions import InputError
from shapshift.knn import pooling

N, POPULATION = 400, 4_000


def draw(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    return 1.2 * np.random.default_rng(5).normal(size=(3, 4))[y] + rng.normal(size=(n, 4)), y


@pytest.fixture(scope="module")
def world() -> dict[str, np.ndarray]:
    X, y = draw(N, 1)
    X_all, y_all = draw(POPULATION, 2)
    return {"X": X, "y": y, "X_all": X_all, "y_all": y_all}


@pytest.fixture(scope="module")
def model(world) -> KNNShapley:
    return KNNShapley(3).fit(world["X"], world["y"])


def rmse(found, truth) -> float:
    return float(np.sqrt(np.square(found - truth).mean()) / truth.std())


def test_in_one_population_errors_are_halved_and_intervals_hold(world, model):
    truth = model.value(world["X_all"], world["y_all"]).values
    plain_error, pooled_error, covered = [], [], []
    for start in range(0, 800, 100):
        here = slice(start, start + 100)
        plain = model.value(world["X_all"][here], world["y_all"][here])
        pooled = model.value(world["X_all"][here], world["y_all"][here], pool="train")
        plain_error.append(rmse(plain.values, truth))
        pooled_error.append(rmse(pooled.values, truth))
        low, high = pooled.interval()
        covered.append(((low <= truth) & (truth <= high)).mean())
        assert spearmanr(pooled.values, truth)[0] > spearmanr(plain.values, truth)[0]
        assert pooled.reliability > plain.reliability
    assert np.mean(pooled_error) < 0.5 * np.mean(plain_error)
    assert 0.9 < np.mean(covered) < 0.99


@pytest.mark.parametrize("shift", ["features", "labels", "wrong labels"])
def test_where_populations_differ_pooling_is_no_worse(world, shift):
    X, y, X_all, y_all = world.values()
    rng = np.random.default_rng(3)
    if shift == "features":
        keep = X_all[:, 0] > np.quantile(X_all[:, 0], 0.7)
    elif shift == "labels":
        keep = (y_all == 0) | (rng.random(POPULATION) < 0.2)
    else:
        y, keep = np.where(rng.random(N) < 0.3, (y + 1) % 3, y), np.ones(POPULATION, dtype=bool)
    model = KNNShapley(3).fit(X, y)
    X_all, y_all = X_all[keep], y_all[keep]
    truth = model.value(X_all, y_all).values
    errors = []
    for start in range(0, 600, 100):
        here = slice(start, start + 100)
        pooled = model.value(X_all[here], y_all[here], pool="train")
        errors.append((rmse(model.value(X_all[here], y_all[here]).values, truth), rmse(pooled.values, truth)))
        facts = pooled.parameters["pool"]
        if shift == "features":
            assert facts["z"] > 3
            assert facts["worth"] < N
            assert "features differ" in facts["why"]
        if shift == "labels":
            assert facts["share_weight"] < 0.05
    plain_error, pooled_error = np.mean(errors, axis=0)
    assert pooled_error < plain_error


def test_values_are_the_formula_by_hand(world, model):
    """With no shift found: shares and means of labels, both pooled; training rows by games without their own row."""
    X, y = world["X"], world["y"]
    X_val, y_val = world["X_all"][:150], world["y_all"][:150]
    on_points = model.value(X_val, y_val, matrix=True).matrix
    on_rows = np.full((N, N), np.nan)
    for j in range(N):
        others = np.arange(N) != j
        on_rows[others, j] = KNNShapley(3).fit(X[others], y[others]).value(X[j : j + 1], y[j : j + 1]).values
    found = model.value(X_val, y_val, pool="train")
    facts = found.parameters["pool"]
    assert facts["z"] < pooling.DETECTED
    w, u = facts["weight"], facts["share_weight"]
    expected = np.zeros(N)
    for label in range(3):
        share = u * (y == label).mean() + (1 - u) * (y_val == label).mean()
        mean = (1 - w) * on_points[:, y_val == label].mean(axis=1) + w * np.nanmean(on_rows[:, y == label], axis=1)
        expected += share * mean
    np.testing.assert_allclose(found.values, expected, rtol=0, atol=1e-14)
    assert 0.5 < w < 1
    assert 0 < facts["gain"] < 1


def test_neither_the_order_of_rows_nor_workers_change_a_bit(world, model):
    X_val, y_val = world["X_all"][:120], world["y_all"][:120]
    found = model.value(X_val, y_val, pool="train")
    order = np.random.default_rng(0).permutation(N)
    shuffled = KNNShapley(3, n_jobs=2).fit(world["X"][order], world["y"][order]).value(X_val, y_val, pool="train")
    np.testing.assert_array_equal(shuffled.values, found.values[order])
    np.testing.assert_allclose(shuffled.standard_error, found.standard_error[order], rtol=1e-12)
    again = model.value(X_val, y_val, pool="train")  # from the values on training rows that were kept
    np.testing.assert_array_equal(again.values, found.values)


def test_other_kinds_of_rows(world, model):
    X_val, y_val = world["X_all"][:120], world["y_all"][:120]
    found = model.value(X_val, y_val, pool="train")
    thin = (
        KNNShapley(3).fit(sparse.csr_array(world["X"]), world["y"]).value(sparse.csr_array(X_val), y_val, pool="train")
    )
    assert rmse(thin.values, found.values) < 0.05  # sparse features are not centred for the comparison
    distances = np.linalg.norm(X_val[:, None] - world["X"][None], axis=2)
    between = np.linalg.norm(world["X"][:, None] - world["X"][None], axis=2)
    given = KNNShapley(3, metric="precomputed").fit(None, world["y"])
    same = given.value(distances, y_val, pool=between)
    np.testing.assert_allclose(same.values, found.values, rtol=0, atol=1e-12)
    for options in ({"method": "truncated", "tol": 0.01}, {"method": "certified"}, {"semivalue": "banzhaf"}):
        other = KNNShapley(3, **options).fit(world["X"], world["y"]).value(X_val, y_val, pool="train")
        assert other.parameters["pool"]["gain"] < 0.6
        assert np.isfinite(other.standard_error).all()


def test_groups_are_pooled_each_by_itself(world, model):
    X_val, y_val = world["X_all"][:200], world["y_all"][:200]
    groups = np.where(X_val[:, 0] > 0, "right", "left")
    found = model.value(X_val, y_val, pool="train", groups=groups)
    np.testing.assert_allclose(found.values, model.value(X_val, y_val, pool="train").values, rtol=0, atol=1e-16)
    alone = model.value(X_val[groups == "left"], y_val[groups == "left"], pool="train")
    np.testing.assert_allclose(found.group_values["left"], alone.values, rtol=0, atol=1e-15)
    np.testing.assert_allclose(found.group_standard_errors["left"], alone.standard_error, rtol=0.3)


def test_a_posterior_correction_is_a_source_too(world, model):
    X_val, y_val = world["X_all"][:120], world["y_all"][:120]
    truth = model.value(world["X_all"], world["y_all"]).values
    noisy = X_val + np.random.default_rng(0).normal(scale=0.7, size=X_val.shape)
    correction = PosteriorCorrector(noise=0.7, draws=8)
    corrected = model.value(noisy, y_val, correction=correction)
    both = model.value(noisy, y_val, correction=correction, pool="train")
    assert rmse(both.values, truth) < rmse(corrected.values, truth)
    assert 0 < both.parameters["pool"]["weight"] < 1


def test_plain_values_where_nothing_can_be_borrowed(world):
    y = np.where(world["y"] == 2, 1, world["y"])
    model = KNNShapley(3).fit(world["X"], y)
    X_val = world["X_all"][:60]
    with (
        pytest.warns(UserWarning, match="Nothing was borrowed from the training rows"),
        pytest.warns(UserWarning, match="never seen in training"),
    ):
        found = model.value(X_val, np.full(60, 7), pool="train")
    with pytest.warns(UserWarning, match="never seen in training"):
        np.testing.assert_array_equal(found.values, model.value(X_val, np.full(60, 7)).values)
    assert found.parameters["pool"]["weight"] == 0


@pytest.mark.parametrize("m", [1, 2, 3])
def test_few_points(world, model, m):
    found = model.value(world["X_all"][:m], world["y_all"][:m], pool="train")
    assert np.isfinite(found.values).all()
    assert np.isfinite(found.standard_error).all()
    assert (found.standard_error > 0).all()
    found.to_frame()


def test_one_class_and_two_rows():
    model = KNNShapley(1).fit([[0.0], [1.0]], [1, 1])
    with pytest.warns(UserWarning, match="Nothing was borrowed"):
        assert np.isfinite(model.value([[0.2], [0.7]], [1, 1], pool="train").values).all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pool": "validation"}, r"'pool' parameter of KNNShapley.value must be None or 'train'. Got 'validation'"),
        ({"pool": "train", "matrix": True}, r"'pool' parameter does not go with 'clusters', 'point_weight', 'matrix'"),
        ({"pool": "train", "clusters": [0, 1]}, r"'pool' parameter does not go with"),
        ({"pool": "train", "correction": 3}, r"'correction' parameter of KNNShapley.value must be"),
    ],
)
def test_bad_input(model, options, message):
    with pytest.raises(InputError, match=message):
        model.value(np.zeros((2, 4)), [0, 1], **options)


def test_rows_that_cannot_be_points(world, monkeypatch):
    model = KNNShapley(3, metric="precomputed").fit(None, world["y"])
    distances = np.ones((2, N))
    with pytest.raises(InputError, match=rf"distances between the training rows, of shape \({N}, {N}\)"):
        model.value(distances, [0, 1], pool="train")
    in_memory = KNNShapley(3).fit(world["X"], world["y"])
    monkeypatch.setattr(type(in_memory._index), "in_file", True)
    with pytest.raises(InputError, match="needs training rows in memory"):
        in_memory.value(world["X_all"][:2], [0, 1], pool="train")
