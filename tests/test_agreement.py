"""Agreement statistics against definitions written out."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shapshift.agreement import AGREEMENT, Baseline, agreement, distribution, neighbor_jaccard, spearman, t_interval

columns = st.integers(1, 12).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(-3, 3), min_size=n, max_size=n) for _ in range(2)])
)


def naive_tau_b(x: np.ndarray, y: np.ndarray) -> float:
    agree = x_pairs = y_pairs = 0
    for i, j in itertools.combinations(range(len(x)), 2):
        agree += np.sign(x[i] - x[j]) * np.sign(y[i] - y[j])
        x_pairs += x[i] != x[j]
        y_pairs += y[i] != y[j]
    return agree / np.sqrt(x_pairs * y_pairs)


def naive_overlap(x: np.ndarray, y: np.ndarray, k: int) -> float:
    def membership(values: np.ndarray) -> np.ndarray:
        """Mean over every set of k rows in which nobody left out beats a member."""
        sets = [
            chosen
            for chosen in itertools.combinations(range(len(values)), k)
            if all(values[i] >= values[j] for i in chosen for j in set(range(len(values))) - set(chosen))
        ]
        return np.mean([[row in chosen for row in range(len(values))] for chosen in sets], axis=0)

    return float(np.minimum(membership(x), membership(y)).sum() / k)


@given(columns, st.integers(1, 4))
def test_against_definitions(pair: tuple[list[int], list[int]], top: int) -> None:
    values, reference = (np.array(column, dtype=float) for column in pair)
    got = agreement(values, reference, top=top)
    assert tuple(got) == AGREEMENT
    assert got["flips_to_negative"] == sum(r > 0 >= v for v, r in zip(values, reference, strict=True))
    assert got["flips_to_positive"] == sum(v > 0 >= r for v, r in zip(values, reference, strict=True))
    k = min(top, values.size)
    assert got["top_overlap"] == pytest.approx(naive_overlap(values, reference, k))
    assert got["bottom_overlap"] == pytest.approx(naive_overlap(-values, -reference, k))
    if np.ptp(reference) == 0:
        assert np.isnan(got["rmse"])
    else:
        assert got["rmse"] == pytest.approx(np.sqrt(((values - reference) ** 2).mean()) / reference.std())
    if np.ptp(values) == 0 or np.ptp(reference) == 0:
        assert all(np.isnan(got[name]) for name in ("spearman", "kendall", "pearson"))
    else:
        assert got["kendall"] == pytest.approx(naive_tau_b(values, reference))
        assert got["spearman"] == pytest.approx(stats.spearmanr(values, reference).statistic)
        assert got["pearson"] == pytest.approx(np.corrcoef(values, reference)[0, 1])


@given(columns, st.integers(0, 10**6))
def test_order_of_rows_means_nothing(pair: tuple[list[int], list[int]], seed: int) -> None:
    values, reference = (np.array(column, dtype=float) for column in pair)
    order = np.random.default_rng(seed).permutation(values.size)
    assert agreement(values[order], reference[order]) == pytest.approx(agreement(values, reference), nan_ok=True)


def test_tiny_values_keep_their_statistics() -> None:
    rng = np.random.default_rng(0)
    reference = rng.normal(size=50)
    values = reference + rng.normal(size=50)
    assert agreement(values * 1e-200, reference * 1e-200) == pytest.approx(agreement(values, reference))


@given(columns, st.sampled_from([0.1, 0.5, 1.0, 1, 3]), st.sampled_from([1, 1e-200]))
def test_a_baseline_serves_again_and_again(pair: tuple[list[int], list[int]], top: float, scale: float) -> None:
    values, reference = (np.array(column, dtype=float) * scale for column in pair)
    baseline = Baseline(reference, top)
    for compared in (-values, values):
        found, ranks = baseline.compare(compared)
        assert found == pytest.approx(agreement(compared, reference, top=top), nan_ok=True)
        np.testing.assert_array_equal(ranks, stats.rankdata(-compared))
    np.testing.assert_array_equal(baseline.ranks, stats.rankdata(-reference))


@pytest.mark.parametrize("decimals", [1, 16])
def test_many_rows_against_scipy(decimals: int) -> None:
    rng = np.random.default_rng(3)
    reference = rng.normal(size=3000).round(decimals)  # with one decimal, nearly all rows are tied
    values = (reference + rng.normal(size=3000)).round(decimals)
    found = agreement(values, reference)
    assert found["kendall"] == pytest.approx(stats.kendalltau(values, reference).statistic, rel=1e-12)
    assert found["spearman"] == pytest.approx(stats.spearmanr(values, reference).statistic, rel=1e-12)
    assert found["pearson"] == pytest.approx(stats.pearsonr(values, reference).statistic, rel=1e-12)
    assert spearman(values, reference) == found["spearman"]


def test_threads_share_a_baseline() -> None:
    rng = np.random.default_rng(3)
    baseline = Baseline(rng.normal(size=3000), 0.1)
    others = rng.normal(size=(40, 3000))
    alone = [baseline.compare(values)[0] for values in others]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            together = list(pool.map(lambda values: baseline.compare(values)[0], others))
            assert together == alone


def test_interval_against_scipy() -> None:
    samples = np.random.default_rng(0).normal(size=(4, 7))
    mean, std = samples.mean(axis=1), samples.std(axis=1, ddof=1)
    for confidence in (0.8, 0.95):
        low, high = t_interval(mean, std, 7, confidence)
        expected = stats.t.interval(confidence, 6, loc=mean, scale=stats.sem(samples, axis=1))
        np.testing.assert_allclose((low, high), expected)
    low, high = t_interval(mean, std, np.array([0, 1, 2, 7]))
    assert np.isnan([low, high]).tolist() == [[True, True, False, False]] * 2
    assert (low[3], high[3]) == pytest.approx(stats.t.interval(0.95, 6, loc=mean[3], scale=std[3] / np.sqrt(7)))


def test_distribution_against_definitions() -> None:
    rng = np.random.default_rng(1)
    reference, values = rng.normal(0.3, 2.0, 101), rng.normal(0.1, 1.0, 101)
    got = distribution(values, reference)
    assert got["wasserstein"] == pytest.approx(stats.wasserstein_distance(values, reference) / reference.std())
    assert got["mean_shift"] == pytest.approx((values.mean() - reference.mean()) / reference.std())
    assert got["std_ratio"] == pytest.approx(values.std() / reference.std())
    assert got["positive_difference"] == (values > 0).sum() - (reference > 0).sum()
    constant = distribution(values, np.ones(101))
    assert np.isnan(constant["wasserstein"])
    assert np.isnan(constant["std_ratio"])


@pytest.mark.parametrize("top", [0, 0.0, 1.5, -1, True, "many", np.nan])
def test_bad_top(top: object) -> None:
    with pytest.raises(ValueError, match="'top' parameter must be a share"):
        agreement([1.0, 2.0], [2.0, 1.0], top=top)


def test_bad_columns() -> None:
    with pytest.raises(ValueError, match="same length"):
        agreement([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="'reference' must hold finite"):
        agreement([1.0, 2.0], [1.0, np.nan])


@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**32 - 1))
def test_jaccard_is_that_of_sets(k: int, n_points: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    before, after = (np.array([rng.permutation(8)[:k] for _ in range(n_points)]) for _ in range(2))
    sets = [(set(a.tolist()), set(b.tolist())) for a, b in zip(before, after, strict=True)]
    np.testing.assert_allclose(neighbor_jaccard(before, after), [len(a & b) / len(a | b) for a, b in sets])


def test_a_reference_too_small_to_square_has_no_scale() -> None:
    assert np.isnan(distribution([1e-200, 2e-200], [1e-200, 3e-200])["std_ratio"])
