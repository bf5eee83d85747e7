"""Every utility, semivalue, K, N, tie pattern and class count agrees with enumeration to 1e-12.

The training rows lie on a circle of radius 5 around the origin, at points with whole coordinates. A validation point
at the origin is equally far from all of them, one on an axis is equally far from mirror images, and one elsewhere
tells all of them apart: one call covers all tie patterns.
"""

from __future__ import annotations

from functools import cache

import naive
import numpy as np
import pytest

from shapshift import Banzhaf, Beta, KNNShapley

CIRCLE = np.array([(3, 4), (3, -4), (-3, 4), (-3, -4), (5, 0), (4, 3), (4, -3), (0, 5)], dtype=float)
VALIDATION = np.array([(0, 0), (2, 0), (1, 1), (0.375, 0.25), (-1.25, 0.5)], dtype=float)
TIED_WITH_ALL, TIED_WITH_SOME, TIED_WITH_NONE = (0,), (1, 2), (3, 4)
LABELS = {2: "abbababa", 3: "abcbacab"}

SEMIVALUES: list[naive.Semivalue] = [
    "shapley",
    "banzhaf",
    "loo",
    "calibrated",
    ("beta", 1.0, 1.0),
    ("beta", 4.0, 1.0),
    ("beta", 1.0, 4.0),
    ("beta", 0.5, 2.0),
    ("banzhaf", 0.01),
    ("banzhaf", 0.1),
    ("banzhaf", 0.5),
    ("banzhaf", 0.9),
]
TOLERANCE = 1e-12


def of_package(semivalue: naive.Semivalue) -> str | Beta | Banzhaf:
    if isinstance(semivalue, str):
        return semivalue
    return (Banzhaf if semivalue[0] == "banzhaf" else Beta)(*semivalue[1:])


def neighbor_counts(n_rows: int) -> list[int]:
    return sorted({k for k in (1, 2, 3, 5, n_rows - 1, n_rows, n_rows + 4) if k >= 1})


@cache
def distances(n_rows: int) -> np.ndarray:
    return naive.distance_matrix(VALIDATION, CIRCLE[:n_rows], "euclidean")


def validation_labels(labels: str) -> list[str]:
    """Every class asks at every point, so that few and many matches occur."""
    return [label for label in sorted(set(labels)) for _ in VALIDATION]


@cache
def utilities(n_rows: int, labels: str, n_neighbors: int, utility: str, ties: str) -> np.ndarray:
    """(2^N, number of classes x validation points): the costly part, shared by all semivalues."""
    columns = [
        naive.knn_utilities(
            naive.tie_groups(row, ties), [label == asked for label in labels], n_neighbors, utility, len(set(labels))
        )
        for asked in sorted(set(labels))
        for row in distances(n_rows)
    ]
    return np.stack(columns, axis=1)


@cache
def subset_weights(n_rows: int, n_neighbors: int, semivalue: naive.Semivalue) -> np.ndarray:
    return naive.subset_weights(n_rows, naive.size_weights(n_rows, n_neighbors, semivalue))


def test_the_layout_has_every_tie_pattern() -> None:
    sizes = [[len(group) for group in naive.tie_groups(row, "average")] for row in distances(8)]
    assert all(sizes[point] == [8] for point in TIED_WITH_ALL)
    assert all(max(sizes[point]) > 1 and len(sizes[point]) > 1 for point in TIED_WITH_SOME)
    assert all(max(sizes[point]) == 1 for point in TIED_WITH_NONE)


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("metric", ["euclidean", "precomputed"])
def test_values_are_the_enumerated_ones(
    utility: str, semivalue: naive.Semivalue, ties: str, n_classes: int, metric: str
) -> None:
    for n_rows in range(1, 9):
        labels = LABELS[n_classes][:n_rows]
        y_val = validation_labels(labels)
        copies = len(set(labels))
        X, X_val = (
            (None, np.tile(distances(n_rows), (copies, 1)))
            if metric == "precomputed"
            else (CIRCLE[:n_rows], np.tile(VALIDATION, (copies, 1)))
        )
        for n_neighbors in neighbor_counts(n_rows):
            model = KNNShapley(
                n_neighbors, utility=utility, semivalue=of_package(semivalue), metric=metric, ties=ties
            ).fit(X, list(labels))
            found = model.value(X_val, y_val, matrix=True)
            expected = subset_weights(n_rows, n_neighbors, semivalue) @ utilities(
                n_rows, labels, n_neighbors, utility, ties
            )
            case = f"N={n_rows} K={n_neighbors}"
            np.testing.assert_allclose(found.matrix, expected, rtol=0, atol=TOLERANCE, err_msg=case)
            np.testing.assert_allclose(found.values, expected.mean(axis=1), rtol=0, atol=TOLERANCE, err_msg=case)


@pytest.mark.parametrize("metric", ["sqeuclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("ties", ["average", "index"])
def test_other_metrics_are_the_enumerated_ones(metric: str, ties: str) -> None:
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(7, 3)), rng.normal(size=(9, 3))
    X[[4, 6]] = X[[1, 1]]
    y, y_val = rng.integers(0, 3, size=7), rng.integers(0, 3, size=9)
    found = KNNShapley(3, metric=metric, ties=ties).fit(X, y).value(X_val, y_val, matrix=True)
    for point, (distance, label) in enumerate(zip(naive.distance_matrix(X_val, X, metric), y_val, strict=True)):
        expected = naive.knn_values(
            distance, y == label, n_neighbors=3, utility="soft", semivalue="shapley", n_classes=3, ties=ties
        )
        np.testing.assert_allclose(found.matrix[:, point], expected, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("n_neighbors", [1, 3, 12])
@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("n_classes", [2, 3])
def test_entropy_is_that_of_five_neighbors_whatever_the_votes(n_neighbors: int, ties: str, n_classes: int) -> None:
    for n_rows in range(1, 9):
        labels = LABELS[n_classes][:n_rows]
        found = KNNShapley(n_neighbors, ties=ties).fit(CIRCLE[:n_rows], list(labels)).value(VALIDATION, ["a"] * 5)
        expected = [naive.neighbor_entropy(row, labels, ties) for row in distances(n_rows)]
        np.testing.assert_allclose(found.entropy, expected, rtol=0, atol=TOLERANCE)
        assert np.array_equal(found.boundary, np.array(expected) > 1e-9)
        assert found.boundary.dtype == np.bool_


def test_agreeing_neighbors_have_an_entropy_of_exactly_zero() -> None:
    # A straddling tie group of one label: the shares must not leave a rounding crumb that reads as a boundary.
    for n_tied in (6, 7, 11, 13):
        found = KNNShapley().fit(np.zeros((n_tied, 1)), ["a"] * n_tied).value(np.zeros((1, 1)), ["a"])
        assert found.entropy.tolist() == [0.0]
        assert found.boundary.tolist() == [False]


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
def test_a_label_unknown_to_training_matches_nothing(utility: str, semivalue: naive.Semivalue) -> None:
    labels = LABELS[3]
    model = KNNShapley(3, utility=utility, semivalue=of_package(semivalue)).fit(CIRCLE, list(labels))
    with pytest.warns(UserWarning, match="new"):
        found = model.value(VALIDATION, ["new"] * 5, matrix=True)
    expected = naive.knn_values(
        distances(8)[0], [False] * 8, n_neighbors=3, utility=utility, semivalue=semivalue, n_classes=3, ties="average"
    )
    np.testing.assert_allclose(found.matrix, np.tile(expected[:, None], 5), rtol=0, atol=TOLERANCE)
