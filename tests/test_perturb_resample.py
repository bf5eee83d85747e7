"""Resampled points: how many of which, none more often than it must."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sample_points import X, Y

from shapshift import KNNShapley
from shapshift.perturb import BoundaryCoverage, ShiftPriors, Subsample


def test_subsamples_are_distinct_rows_in_order() -> None:
    rows = np.arange(50.0)[:, None]
    made, y = Subsample(0.3, random_state=0)(rows, np.arange(50))
    assert len(made) == 15
    assert (np.diff(made.ravel()) > 0).all()
    np.testing.assert_array_equal(made.ravel(), y)
    assert len(Subsample(1e-6)(rows, np.arange(50))[1]) == 1
    assert Subsample(n=50)(rows, np.arange(50))[1].tolist() == list(range(50))
    with pytest.raises(ValueError, match="at most the number of points, 50"):
        Subsample(n=51)(rows, np.arange(50))
    with pytest.raises(ValueError, match="one label for each row"):
        Subsample(0.5)(rows, np.arange(49))


@given(
    shares=st.lists(st.floats(0, 1), min_size=3, max_size=3).filter(lambda s: sum(s) > 0.01),
    n=st.integers(1, 100),
    seed=st.integers(0, 99),
)
def test_shifted_priors(shares: list[float], n: int, seed: int) -> None:
    wanted = np.array(shares) / sum(shares)
    step = ShiftPriors(dict(enumerate(wanted)), n=n, random_state=seed)
    rows, y = step(np.arange(60.0)[:, None], Y)
    counts = np.bincount(y, minlength=3)
    assert counts.sum() == n
    assert np.abs(counts - wanted * n).max() < 1 + 1e-6
    np.testing.assert_array_equal(Y[rows.ravel().astype(int)], y)
    times = np.bincount(rows.ravel().astype(int), minlength=60)
    for label in range(3):
        assert np.ptp(times[label == Y]) <= 1, "rows of a class are used equally often"


def test_classes_that_are_not_named_share_the_rest() -> None:
    counts = np.bincount(ShiftPriors({2: 0.5}, random_state=0)(X, Y)[1])
    assert counts.tolist() == [18, 12, 30]
    assert np.bincount(ShiftPriors({0: 0.0, 1: 1.0})(X, Y)[1], minlength=3).tolist() == [0, 60, 0]
    with pytest.raises(ValueError, match="no point to draw for the label 5"):
        ShiftPriors({5: 0.1})(X, Y)
    with pytest.raises(ValueError, match="names all classes, so it must sum to 1"):
        ShiftPriors({0: 0.1, 1: 0.1, 2: 0.1})(X, Y)


@pytest.mark.parametrize("fraction", [0.0, 0.1, 0.35, 0.8, 1.0])
@pytest.mark.parametrize("n", [None, 17])
def test_boundary_coverage(fraction: float, n: int | None) -> None:
    rng = np.random.default_rng(0)
    train, val = rng.normal(size=(100, 2)), rng.normal(size=(60, 2))
    model = KNNShapley(n_neighbors=3).fit(train, train[:, 0] > 0)
    labels = val[:, 0] > 0
    # Directly: the labels of the five nearest training rows.
    nearest = np.argsort(np.linalg.norm(val[:, None] - train[None], axis=2), axis=1)[:, :5]
    mixed = np.ptp((train[nearest][:, :, 0] > 0).astype(int), axis=1) > 0
    assert 0 < mixed.sum() < 60
    made, y = BoundaryCoverage(fraction, n=n, random_state=0).bind(model)(val, labels)
    size = n or 60
    assert len(y) == size
    position = [int(np.flatnonzero((val == row).all(axis=1))[0]) for row in made]
    assert abs(mixed[position].sum() - fraction * size) <= 0.5 + 1e-9
    assert model.value(made, y).boundary_fraction == mixed[position].mean()
    np.testing.assert_array_equal(labels[position], y)
    times = np.bincount(position, minlength=60)
    assert np.ptp(times[mixed]) <= 1
    assert np.ptp(times[~mixed]) <= 1


def test_boundary_coverage_with_an_empty_group() -> None:
    train = np.array([[0.0]] * 6 + [[10.0]] * 6)
    model = KNNShapley().fit(train, np.repeat([0, 1], 6))
    inside = np.array([[0.1], [9.9]])
    step = BoundaryCoverage(0.5).bind(model)
    with pytest.raises(
        ValueError, match=r"needs 1 boundary points, but none of the 2 validation points is one\..*fraction=0"
    ):
        step(inside, [0, 1])
    assert len(BoundaryCoverage(0.0).bind(model)(inside, [0, 1])[1]) == 2
    with pytest.raises(ValueError, match=r"needs the model: call \.bind\(model\) first"):
        BoundaryCoverage(0.5)(inside, [0, 1])


def test_boundary_coverage_needs_a_model_that_returns_a_valuation() -> None:
    class Bare:
        def value(self, X_val: object, y_val: object) -> object:
            return np.zeros(3)

    with pytest.raises(TypeError, match=r"BoundaryCoverage.bind must have a value method that returns a Valuation"):
        BoundaryCoverage(0.5).bind(Bare())(X, Y)
