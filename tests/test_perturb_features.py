"""Noise, rounding and masking: what each does to the features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sample_points import MODEL, X, Y
from scipy import sparse, stats

from shapshift import KNNShapley
from shapshift.perturb import GaussianNoise, LaplaceNoise, MaskFeatures, Quantize, Round, Subsample

RNG = np.random.default_rng(7)


# --- noise -------------------------------------------------------------------------------------------------------


def test_gaussian_noise_is_normal_of_the_given_size() -> None:
    zero = np.zeros((4000, 3))
    noise = GaussianNoise(2.5, random_state=0)(zero, np.zeros(4000))[0]
    assert stats.kstest(noise.ravel() / 2.5, "norm").pvalue > 0.01
    np.testing.assert_allclose(GaussianNoise(5.0, random_state=0)(zero, None)[0], 2 * noise)
    np.testing.assert_array_equal(GaussianNoise(0.0, random_state=0)(X, Y)[0], X)


def test_relative_noise_follows_each_features_training_spread() -> None:
    big = np.zeros((4000, 3))
    noise = GaussianNoise(0.5, relative=True, random_state=0).bind(MODEL)(big, np.zeros(4000))[0]
    plain = GaussianNoise(1.0, random_state=0)(big, np.zeros(4000))[0]
    assert MODEL.feature_std_ is not None
    np.testing.assert_allclose(noise, 0.5 * MODEL.feature_std_ * plain)


def test_relative_noise_matches_columns_by_name() -> None:
    train = pd.DataFrame({"small": RNG.normal(size=50), "large": 1000 * RNG.normal(size=50)})
    model = KNNShapley().fit(train, np.arange(50) % 2)
    step = GaussianNoise(1.0, relative=True, random_state=0).bind(model)
    swapped = step(pd.DataFrame({"large": np.zeros(50), "small": np.zeros(50)}), np.zeros(50))[0]
    assert swapped["large"].std() > 100 * swapped["small"].std()
    with pytest.raises(ValueError, match="not seen in training 'other'"):
        step(pd.DataFrame({"large": [0.0], "other": [0.0]}), [0])
    with pytest.raises(ValueError, match="has 3 features"):
        step(np.zeros((1, 3)), [0])


def test_relative_noise_needs_a_model_with_spreads() -> None:
    with pytest.raises(ValueError, match=r"call \.bind\(model\) first"):
        GaussianNoise(1.0, relative=True)(X, Y)
    for model in (object(), KNNShapley(), KNNShapley().fit(sparse.csr_array(X), Y)):
        with pytest.raises(ValueError, match="needs a fitted model with the attribute 'feature_std_'"):
            GaussianNoise(1.0, relative=True).bind(model)


def test_feature_noise_is_refused_for_precomputed_distances() -> None:
    model = KNNShapley(metric="precomputed").fit(None, Y)
    for step in (GaussianNoise(0.1), Round(1), Subsample(0.5) | MaskFeatures(0.1)):
        with pytest.raises(ValueError, match="takes distances"):
            step.bind(model)
    Subsample(0.5).bind(model)


def test_laplace_noise_is_the_laplace_mechanism() -> None:
    step = LaplaceNoise(0.5, sensitivity=3.0, random_state=0)
    noise = step(np.zeros((4000, 2)), np.zeros(4000))[0]
    assert step.scale == 6.0
    assert stats.kstest(noise.ravel() / 6.0, "laplace").pvalue > 0.01
    assert step.parameters["scale"] == 6.0
    for words in ("0.5-differentially private", "L1 distance of at most 3 ", "r * 0.5", "labels", "not enforced"):
        assert words in step.guarantee


def test_laplace_density_ratio_is_within_the_guarantee() -> None:
    # Two rows at L1 distance `sensitivity`: the log-likelihood of any release differs by at most epsilon.
    step = LaplaceNoise(0.8, sensitivity=2.0)
    one, two = np.array([0.0, 0.0]), np.array([0.5, -1.5])
    releases = RNG.normal(size=(1000, 2)) * 10
    gap = stats.laplace.logpdf(releases - one, scale=step.scale) - stats.laplace.logpdf(
        releases - two, scale=step.scale
    )
    assert np.abs(gap.sum(axis=1)).max() <= 0.8 + 1e-12
    assert np.abs(gap.sum(axis=1)).max() > 0.8 - 1e-9


def test_laplace_from_scale() -> None:
    step = LaplaceNoise.from_scale(4.0, sensitivity=2.0, random_state=3)
    assert step == LaplaceNoise(0.5, sensitivity=2.0, random_state=3)
    assert LaplaceNoise.from_scale(0.25).scale == 0.25


# --- rounding and masking ----------------------------------------------------------------------------------------


def test_rounding() -> None:
    np.testing.assert_array_equal(Round(1)(X, Y)[0], np.round(X, 1))
    np.testing.assert_array_equal(Round(-1)([[14.0, 16.0]], [0])[0], [[10.0, 20.0]])


@given(step=st.floats(0.01, 10), values=st.lists(st.floats(-100, 100), min_size=1, max_size=10))
def test_quantised_values_are_the_nearest_multiples(step: float, values: list[float]) -> None:
    rows = np.array(values)[:, None]
    made = Quantize(step)(rows, np.zeros(len(values)))[0]
    assert np.abs(made - rows).max() <= step / 2 + 1e-9
    np.testing.assert_allclose(made / step, np.round(made / step), atol=1e-6)


@given(bins=st.integers(1, 9), values=st.lists(st.floats(-100, 100), min_size=1, max_size=30))
@example(bins=2, values=[0.0, 5e-324])
def test_binned_values_are_few_and_near(bins: int, values: list[float]) -> None:
    rows = np.array(values)[:, None]
    made = Quantize(bins=bins)(rows, np.zeros(len(values)))[0]
    assert len(np.unique(made)) <= bins
    assert np.abs(made - rows).max() <= np.ptp(rows) / bins / 2 + 1e-9


@pytest.mark.parametrize(("fill", "expected"), [("zero", 0.0), ("mean", None), (7, 7.0), (-1.5, -1.5)])
def test_masked_entries(fill: Any, expected: float | None) -> None:
    rows = RNG.normal(5.0, 1.0, size=(2000, 4))
    made = MaskFeatures(0.25, fill=fill, random_state=0)(rows, np.zeros(2000))[0]
    changed = made != rows
    assert abs(changed.mean() - 0.25) < 0.03
    target = np.broadcast_to(rows.mean(axis=0) if expected is None else expected, rows.shape)
    np.testing.assert_array_equal(made[changed], target[changed])


def test_masked_features_are_hidden_in_all_rows() -> None:
    made = MaskFeatures(0.5, fill="zero", by="feature", random_state=0)(np.ones((10, 6)), np.zeros(10))[0]
    assert sorted(made.sum(axis=0).tolist()) == [0.0] * 3 + [10.0] * 3
    np.testing.assert_array_equal(MaskFeatures(0.0, random_state=0)(X, Y)[0], X)
    assert not MaskFeatures(1.0, fill="zero")(X, Y)[0].any()
