"""What must hold for any data: efficiency, symmetry, order-independence, additivity, indifference to tiling."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from unittest.mock import patch

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapshift import Beta, KNNShapley
from shapshift.engine import runner

UTILITIES = st.sampled_from(["soft", "hard"])
SEMIVALUES = st.sampled_from(["shapley", "banzhaf", "loo", "calibrated", Beta(4, 1), Beta(0.5, 2)])
METRICS = st.sampled_from(["euclidean", "sqeuclidean", "manhattan"])


@dataclass(frozen=True)
class Case:
    X: np.ndarray
    y: np.ndarray
    X_val: np.ndarray
    y_val: np.ndarray
    n_neighbors: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Points on a small grid, so that equal rows and equal distances are common."""
    n_rows, n_val, width = draw(st.integers(1, 14)), draw(st.integers(1, 6)), draw(st.integers(1, 3))
    coordinate = st.integers(-2, 2)

    def points(n: int) -> np.ndarray:
        flat = draw(st.lists(coordinate, min_size=n * width, max_size=n * width))
        return np.array(flat, dtype=float).reshape(n, width)

    y = draw(st.lists(st.integers(0, 2), min_size=n_rows, max_size=n_rows))
    y_val = draw(st.lists(st.sampled_from(sorted(set(y))), min_size=n_val, max_size=n_val))
    return Case(points(n_rows), np.array(y), points(n_val), np.array(y_val), draw(st.integers(1, 18)))


def larger_case(n_rows: int = 2_500, n_val: int = 600) -> Case:
    """Enough pairs for many tiles, with duplicates and ties."""
    rng = np.random.default_rng(5)
    X = np.round(rng.normal(size=(n_rows, 4)), 1)
    X[n_rows // 2 : n_rows // 2 + 100] = X[:100]
    return Case(
        X, rng.integers(0, 3, size=n_rows), np.round(rng.normal(size=(n_val, 4)), 1), rng.integers(0, 3, size=n_val), 5
    )


@given(case=cases(), utility=UTILITIES, ties=st.sampled_from(["average", "index"]))
def test_shapley_shares_out_the_whole_utility(case: Case, utility: str, ties: str) -> None:
    found = (
        KNNShapley(case.n_neighbors, utility=utility, ties=ties)
        .fit(case.X, case.y)
        .value(case.X_val, case.y_val, matrix=True)
    )
    everybody, nobody = 2 ** len(case.y) - 1, 0
    n_classes = len(set(case.y.tolist()))
    for point, distances in enumerate(naive.distance_matrix(case.X_val, case.X, "euclidean")):
        args = (
            naive.tie_groups(distances, ties),
            case.y == case.y_val[point],
            case.n_neighbors,
            utility,
            n_classes,
        )
        total = naive.expected_utility(everybody, *args) - naive.expected_utility(nobody, *args)
        assert found.matrix[:, point].sum() == pytest.approx(total, abs=1e-12)


@given(case=cases(), utility=UTILITIES, semivalue=SEMIVALUES, metric=METRICS)
def test_equal_rows_get_equal_values(case: Case, utility: str, semivalue: str | Beta, metric: str) -> None:
    model = KNNShapley(case.n_neighbors, utility=utility, semivalue=semivalue, metric=metric)
    found = model.fit(case.X, case.y).value(case.X_val, case.y_val, matrix=True)
    rows: dict[tuple[float, ...], int] = {}
    for row, key in enumerate(zip(*case.X.T.tolist(), case.y.tolist(), strict=True)):
        first = rows.setdefault(key, row)
        assert found.values[row] == found.values[first]
        assert np.array_equal(found.matrix[row], found.matrix[first])


@given(case=cases(), utility=UTILITIES, semivalue=SEMIVALUES, metric=METRICS, seed=st.integers(0, 2**32 - 1))
def test_permuting_the_rows_permutes_the_values_and_nothing_else(
    case: Case, utility: str, semivalue: str | Beta, metric: str, seed: int
) -> None:
    model = KNNShapley(case.n_neighbors, utility=utility, semivalue=semivalue, metric=metric)
    permutation = np.random.default_rng(seed).permutation(len(case.y))
    found = model.fit(case.X, case.y).value(case.X_val, case.y_val, matrix=True)
    permuted = model.fit(case.X[permutation], case.y[permutation]).value(case.X_val, case.y_val, matrix=True)
    assert np.array_equal(permuted.values, found.values[permutation])
    assert np.array_equal(permuted.matrix, found.matrix[permutation])
    assert np.array_equal(permuted.entropy, found.entropy)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan", "cosine"])
def test_permuting_many_unrounded_rows_permutes_the_values(metric: str) -> None:
    # Generic floats: a distance computed in another place of a blocked product may differ in its last bit.
    rng = np.random.default_rng(11)
    X = rng.normal(size=(3_001, 13))
    X[2_000:] = X[:1_001]
    y = rng.integers(0, 2, size=3_001)
    y[2_000:] = y[:1_001]
    X_val, y_val = np.vstack([rng.normal(size=(20, 13)), X[:5]]), rng.integers(0, 2, size=25)
    permutation = rng.permutation(3_001)
    model = KNNShapley(metric=metric)
    found = model.fit(X, y).value(X_val, y_val)
    permuted = model.fit(X[permutation], y[permutation]).value(X_val, y_val)
    assert np.array_equal(permuted.values, found.values[permutation])
    assert np.array_equal(found.values[2_000:], found.values[:1_001])


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", Beta(4, 1)], ids=str)
def test_permuting_distances_of_awkward_spread_permutes_the_values(utility: str, semivalue: str | Beta) -> None:
    # A crowd of nearly equal distances and a few of any magnitude: what a sort may group depends on the magnitudes
    # it sees, and the sums must not depend on what it grouped.
    rng = np.random.default_rng(12)
    distances = 10 ** rng.normal(scale=0.01, size=(20, 2_000))
    distances[:, rng.choice(2_000, size=30, replace=False)] *= 10.0 ** rng.uniform(-300, 300, size=30)
    y, y_val = (rng.random(2_000) < 0.1).astype(int), np.arange(20) % 2
    model = KNNShapley(utility=utility, semivalue=semivalue, metric="precomputed")
    found = model.fit(None, y).value(distances, y_val, matrix=True)
    for _ in range(3):
        permutation = rng.permutation(2_000)
        permuted = model.fit(None, y[permutation]).value(distances[:, permutation], y_val, matrix=True)
        np.testing.assert_allclose(permuted.matrix, found.matrix[permutation], rtol=0, atol=1e-15)
        assert np.array_equal(permuted.matrix, found.matrix[permutation])


@given(case=cases(), utility=UTILITIES, semivalue=SEMIVALUES)
def test_values_are_the_mean_over_single_points(case: Case, utility: str, semivalue: str | Beta) -> None:
    model = KNNShapley(case.n_neighbors, utility=utility, semivalue=semivalue).fit(case.X, case.y)
    found = model.value(case.X_val, case.y_val, matrix=True)
    single = [model.value(case.X_val[[point]], case.y_val[[point]]).values for point in range(len(case.y_val))]
    np.testing.assert_allclose(found.values, np.mean(single, axis=0), rtol=0, atol=1e-14)
    assert np.array_equal(found.matrix, np.stack(single, axis=1))


@given(case=cases(), data=st.data())
def test_groups_partition_the_overall_mean(case: Case, data: st.DataObject) -> None:
    n_val = len(case.y_val)
    groups = data.draw(st.lists(st.sampled_from(["north", "south", "east"]), min_size=n_val, max_size=n_val))
    model = KNNShapley(case.n_neighbors).fit(case.X, case.y)
    found = model.value(case.X_val, case.y_val, groups=groups, matrix=True)
    assert sorted(found.group_names) == sorted(set(groups))
    assert set(found.group_values) == set(found.group_counts) == set(groups)
    assert sum(found.group_counts.values()) == found.n_val == n_val
    for name in set(groups):
        chosen = np.array([group == name for group in groups])
        assert found.group_counts[name] == chosen.sum()
        np.testing.assert_allclose(found.group_values[name], found.matrix[:, chosen].mean(axis=1), rtol=0, atol=1e-14)
    weighted = sum(found.group_counts[name] * found.group_values[name] for name in set(groups)) / n_val
    np.testing.assert_allclose(found.values, weighted, rtol=0, atol=1e-14)
    np.testing.assert_allclose(found.values, found.matrix.mean(axis=1), rtol=0, atol=1e-14)


def possible_entropies(n_seats: int, n_classes: int) -> np.ndarray:
    """Entropies of all ways to hand out whole labels."""
    labels = itertools.combinations_with_replacement(range(n_classes), n_seats)
    return np.unique(np.round([naive.neighbor_entropy(range(n_seats), split, "index") for split in labels], 9))


@given(case=cases())
def test_entropy_levels_partition_the_overall_mean(case: Case) -> None:
    found = KNNShapley(case.n_neighbors).fit(case.X, case.y).value(case.X_val, case.y_val, matrix=True)
    distances = naive.distance_matrix(case.X_val, case.X, "euclidean")
    entropy = np.array([naive.neighbor_entropy(row, case.y.tolist(), "average") for row in distances])
    np.testing.assert_allclose(found.entropy, entropy, rtol=0, atol=1e-12)
    # A fractional label falls between two levels and goes to the nearer one, but never from a boundary to none.
    levels = possible_entropies(min(naive.BOUNDARY_NEIGHBORS, len(case.y)), len(set(case.y.tolist())))
    nearest = np.abs(entropy[:, None] - levels).argmin(axis=1)
    nearest[(nearest == 0) & (entropy > 1e-9)] = 1
    occurring = np.unique(nearest)
    np.testing.assert_allclose(found.level_entropy, levels[occurring], rtol=0, atol=1e-8)
    assert found.level_counts.tolist() == [(nearest == level).sum() for level in occurring]
    for level, values in zip(occurring, found.level_values, strict=True):
        expected = found.matrix[:, nearest == level].mean(axis=1)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-14)
    overall = found.level_counts @ found.level_values / found.n_val
    np.testing.assert_allclose(overall, found.values, rtol=0, atol=1e-14)


# --- tiles and workers ----------------------------------------------------------------------------------------------


@given(cases(), st.integers(1, 3), st.integers(1, 40))
def test_tile_size_and_workers_change_no_bit_of_any_case(case: Case, n_jobs: int, tile_rows: int) -> None:
    # Tiny blocks and tiles, so that small cases have many of both.
    with patch.multiple(runner, BLOCK_PAIRS=8, BLOCK_POINTS=1):
        baseline = KNNShapley(case.n_neighbors).fit(case.X, case.y).value(case.X_val, case.y_val, matrix=True)
        with patch.object(runner, "TILE_BYTES", tile_rows * 8):
            found = KNNShapley(case.n_neighbors, n_jobs=n_jobs).fit(case.X, case.y)
            other = found.value(case.X_val, case.y_val, matrix=True)
    for name in ("values", "matrix", "entropy", "level_values"):
        assert np.array_equal(getattr(other, name), getattr(baseline, name))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_tile_size_and_workers_change_no_bit(metric: str) -> None:
    case = larger_case()
    groups = np.array(["a", "b", "c"])[np.arange(len(case.y_val)) % 3]

    def run(**options: object) -> tuple[np.ndarray, ...]:
        model = KNNShapley(metric=metric, progress=False, **options).fit(case.X, case.y)
        found = model.value(case.X_val, case.y_val, groups=groups, matrix=True)
        return (found.values, found.matrix, found.entropy, found.level_values, *found.group_values.values())

    baseline = run(n_jobs=1)
    for options in (
        {"n_jobs": 1},
        {"n_jobs": 2},
        {"n_jobs": 3},
        {"n_jobs": -1},
        {"n_jobs": 1, "max_memory": "21MB"},
        {"n_jobs": 3, "max_memory": "21MB"},
        {"n_jobs": 2, "max_memory": 40_000_000},
        {"n_jobs": 1, "max_memory": "2GB"},
    ):
        for found, expected in zip(run(**options), baseline, strict=True):
            assert np.array_equal(found, expected), options


def test_the_matrix_changes_no_bit() -> None:
    case = larger_case(400, 150)
    model = KNNShapley().fit(case.X, case.y)
    plain = model.value(case.X_val, case.y_val)
    assert plain.matrix is None
    assert np.array_equal(plain.values, model.value(case.X_val, case.y_val, matrix=True).values)


def test_groups_change_no_bit_of_the_overall_values() -> None:
    case = larger_case(400, 150)
    model = KNNShapley().fit(case.X, case.y)
    plain = model.value(case.X_val, case.y_val)
    groups = np.arange(150) % 7
    grouped = model.value(case.X_val, case.y_val, groups=groups)
    np.testing.assert_array_equal(grouped.values, plain.values)
