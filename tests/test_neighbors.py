"""value_and_neighbors: the nearest rows, and where given rows stand, against a plain sort."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.stats import rankdata

from shapshift import KNNShapley


@pytest.mark.parametrize("discrete", [False, True])
@pytest.mark.parametrize("n_train", [1, 4, 300, 40_000])
@pytest.mark.parametrize("n_neighbors", [1, 5, 9])
def test_nearest_rows_and_ranks_are_those_of_a_stable_sort(n_neighbors: int, n_train: int, discrete: bool) -> None:
    rng = np.random.default_rng(n_train)
    X, X_val = rng.normal(size=(n_train, 3)), rng.normal(size=(6, 3))
    if discrete:
        X, X_val = np.round(X), np.round(X_val)
    y, y_val = rng.integers(0, 3, n_train), rng.integers(0, 3, 6)
    y[0] = 0
    reference = rng.integers(0, n_train, size=(6, 4))
    model = KNNShapley(n_neighbors, metric="precomputed").fit(None, y)
    distances = cdist(X_val, X)
    y_val = rng.choice(np.unique(y), 6)
    valuation, found = model.value_and_neighbors(distances, y_val, reference=reference)
    k = min(n_neighbors, n_train)
    np.testing.assert_array_equal(found.nearest, np.argsort(distances, axis=1, kind="stable")[:, :k])
    expected = np.take_along_axis(rankdata(distances, axis=1) - 1, reference, axis=1)
    np.testing.assert_array_equal(found.reference_ranks, expected)
    np.testing.assert_array_equal(model.neighbor_ranks(distances, y_val, reference), expected)
    np.testing.assert_array_equal(valuation.values, model.value(distances, y_val).values)


def test_without_reference_there_are_no_ranks() -> None:
    _, found = KNNShapley(2).fit([[0.0], [1.0], [2.0]], [0, 1, 0]).value_and_neighbors([[0.2]], [0])
    assert found.reference_ranks is None
    assert found.nearest.tolist() == [[0, 1]]


@pytest.mark.parametrize(
    ("reference", "message"),
    [([[0], [1]], "2 rows|1 rows"), ([[0.5]], "integers"), ([[3]], "0 to 2"), ([[-1]], "0 to 2"), ([0], "shape")],
)
def test_a_bad_reference_is_refused(reference: object, message: str) -> None:
    model = KNNShapley().fit([[0.0], [1.0], [2.0]], [0, 1, 0])
    with pytest.raises(ValueError, match=f"(?s)reference.*({message})"):
        model.value_and_neighbors([[0.2]], [0], reference=reference)


def test_ranks_of_points_that_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.engine.rows.file.LOAD_BYTES", 0)
    rng = np.random.default_rng(0)
    X, y, reference = rng.normal(size=(50, 3)), np.arange(50) % 2, np.arange(40).reshape(20, 2)
    model = KNNShapley(progress=False).fit(X, y)
    want = model.value_and_neighbors(X[:20], y[:20], reference=reference)[1].reference_ranks
    found = model.neighbor_ranks(iter([(X[:20], y[:20])]), None, reference)
    np.testing.assert_array_equal(found, want)
