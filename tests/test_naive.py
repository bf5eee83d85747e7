"""The oracles agree with each other and with what can be worked out by hand."""

from __future__ import annotations

import math

import naive
import numpy as np
import pytest
import reference

SEMIVALUES: list[naive.Semivalue] = [
    "shapley",
    "banzhaf",
    "loo",
    "calibrated",
    "filled",
    ("beta", 1.0, 1.0),
    ("beta", 4.0, 1.0),
    ("beta", 1.0, 4.0),
    ("beta", 0.5, 2.0),
]


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("n_rows", [1, 2, 5, 8])
def test_size_weights_are_a_distribution_over_subsets(semivalue: naive.Semivalue, n_rows: int) -> None:
    weights = naive.size_weights(n_rows, 2, semivalue)
    assert math.fsum(math.comb(n_rows - 1, s) * p for s, p in enumerate(weights)) == pytest.approx(1, abs=1e-14)
    assert np.allclose(weights, [float(p) for p in reference.exact_size_weights(n_rows, 2, semivalue)], rtol=1e-12)


def test_shapley_of_the_glove_game() -> None:
    # Row 0 holds a left glove, rows 1 and 2 a right one; a pair is worth 1.
    utility = [float(bool(subset & 0b001) and bool(subset & 0b110)) for subset in range(8)]
    assert naive.semivalues(utility, naive.size_weights(3, 1, "shapley")) == pytest.approx([2 / 3, 1 / 6, 1 / 6])


def test_leave_one_out_is_the_loss_of_the_full_set() -> None:
    utility = np.random.default_rng(0).normal(size=16)
    expected = [utility[15] - utility[15 - (1 << row)] for row in range(4)]
    assert naive.semivalues(utility, naive.size_weights(4, 1, "loo")) == pytest.approx(expected)


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("distances", [[0, 0, 0, 0, 0], [1, 0, 1, 0, 1], [3, 2, 2, 2, 0], [4, 3, 2, 1, 0]], ids=str)
def test_expected_utility_is_the_average_over_all_orders(utility: str, distances: list[float]) -> None:
    groups = naive.tie_groups(distances, "average")
    for pattern in range(2**5):
        matches = [bool(pattern >> row & 1) for row in range(5)]
        for n_neighbors in (1, 2, 3, 5, 7):
            for subset in range(2**5):
                args = (subset, groups, matches, n_neighbors, utility, 2)
                assert naive.expected_utility(*args) == pytest.approx(
                    naive.utility_averaged_over_orders(*args), abs=1e-14
                )


def test_tie_groups() -> None:
    assert naive.tie_groups([2, 1, 2, 0], "average") == [[3], [1], [0, 2]]
    assert naive.tie_groups([2, 1, 2, 0], "index") == [[3], [1], [0], [2]]


def test_entropy_of_a_straddling_group_uses_expected_labels() -> None:
    # Ranks 1-4 are certain; the fifth seat is drawn from two rows, one of each label.
    labels = ["a", "a", "a", "b", "a", "b"]
    distances = [0, 1, 2, 3, 4, 4]
    p = (3 + 0.5) / 5
    expected = -(p * math.log(p) + (1 - p) * math.log(1 - p))
    assert naive.neighbor_entropy(distances, labels, "average") == pytest.approx(expected)
    in_order = -(0.8 * math.log(0.8) + 0.2 * math.log(0.2))
    assert naive.neighbor_entropy(distances, labels, "index") == pytest.approx(in_order)
    assert naive.neighbor_entropy([0, 1], ["a", "a"], "average") == 0


def test_distances_by_hand() -> None:
    assert naive.distance([0, 0], [3, 4], "euclidean") == 25
    assert naive.distance([0, 0], [3, 4], "sqeuclidean") == 25
    assert naive.distance([0, 0], [3, -4], "manhattan") == 7
    assert naive.distance([1, 0], [0, 2], "cosine") == 1
    assert naive.distance([1, 1], [-2, -2], "cosine") == pytest.approx(2)
    assert naive.distance([0, 0], [1, 2], "cosine") == 1


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_vectorised_distances_are_the_obvious_ones(metric: str) -> None:
    rng = np.random.default_rng(1)
    X, X_val = rng.normal(size=(20, 4)), rng.normal(size=(6, 4))
    X[3] = 0
    found = reference.distance_matrix(X_val, X, metric)
    obvious = naive.distance_matrix(X_val, X, metric)
    if metric == "cosine":
        assert np.allclose(found, obvious, rtol=0, atol=1e-14)
    else:
        assert np.array_equal(found, obvious)


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("ties", ["average", "index"])
def test_rank_values_are_the_enumerated_values(utility: str, semivalue: naive.Semivalue, ties: str) -> None:
    rng = np.random.default_rng(2)
    for n_rows in (1, 2, 3, 6):
        distances = rng.integers(0, 4, size=(4, n_rows)).astype(float)
        matches = rng.random((4, n_rows)) < 0.5
        for n_neighbors in (1, 2, n_rows, n_rows + 3):
            c, per_match, empty = reference.exact_table(n_rows, n_neighbors, semivalue, utility)
            table = reference.Table(np.array(c, dtype=float), float(per_match), float(empty))
            found = reference.rank_values(distances, matches, table, 3, ties)
            for point in range(4):
                expected = naive.knn_values(
                    distances[point],
                    matches[point],
                    n_neighbors=n_neighbors,
                    utility=utility,
                    semivalue=semivalue,
                    n_classes=3,
                    ties=ties,
                )
                assert np.allclose(found[:, point], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_closed_forms_are_the_general_sum(utility: str) -> None:
    for n_rows in range(1, 12):
        for n_neighbors in range(1, n_rows + 4):
            c, per_match, empty = reference.exact_table(n_rows, n_neighbors, "shapley", utility)
            table = reference.shapley_table(n_rows, n_neighbors, utility)
            assert np.allclose(table.c, np.array(c, dtype=float), rtol=1e-13, atol=0)
            assert table.per_match == pytest.approx(float(per_match), rel=1e-13)
            assert table.empty == pytest.approx(float(empty), rel=1e-13)
