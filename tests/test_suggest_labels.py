"""Which rows to label next: predicted values against their definition, and the batch against a greedy search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.stats import spearmanr

from shapshift import KNNShapley, Valuation, suggest_labels
from shapshift.design import LabelSuggestions

RNG = np.random.default_rng(0)
Y = np.arange(60) % 2
X = RNG.normal(size=(60, 2)) + 2 * Y[:, None]
POOL = RNG.normal(size=(90, 2)) + 2 * (np.arange(90) % 2)[:, None]
X_VAL, Y_VAL = RNG.normal(size=(40, 2)) + 2 * (np.arange(40) % 2)[:, None], np.arange(40) % 2
FOUND = KNNShapley(progress=False).fit(X, Y).value(X_VAL, Y_VAL)


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.asarray(np.sqrt(((a[:, None] - b[None]) ** 2).sum(axis=2)))


def test_predictions_are_means_of_the_nearest_rows() -> None:
    found = suggest_labels(FOUND, X, POOL, 4, n_neighbors=5)
    nearest = distances(POOL, X).argsort(axis=1)[:, :5]
    near = FOUND.values[nearest]
    np.testing.assert_allclose(found.pool_predicted, near.mean(axis=1), atol=1e-15)
    np.testing.assert_allclose(found.pool_uncertainty, near.std(axis=1, ddof=1) * np.sqrt(1.2), atol=1e-15)
    among = distances(X, X) + np.diag(np.full(60, np.inf))
    own = FOUND.values[among.argsort(axis=1)[:, :5]].mean(axis=1)
    assert found.rank_correlation == pytest.approx(spearmanr(own, FOUND.values).statistic)


def test_tied_rows_count_in_part() -> None:
    rows = np.array([[0.0], [1.0], [1.0], [5.0]])
    values = KNNShapley(1, progress=False).fit(rows, [0, 1, 0, 1]).value([[0.2], [0.9]], [0, 1])
    found = suggest_labels(values, rows, [[0.0], [9.0]], 1, n_neighbors=2)
    assert found.pool_predicted[0] == pytest.approx((values.values[0] + values.values[1:3].mean()) / 2)


@pytest.mark.parametrize("preselect", [1.0, 2.5, 100.0])
def test_the_batch_covers_the_best_predictions(preselect: float) -> None:
    n = 6
    found = suggest_labels(FOUND, X, POOL, n, preselect=preselect)
    candidates = np.argsort(-found.pool_predicted, kind="stable")[: min(int(np.ceil(preselect * n)), len(POOL))]
    covered, chosen = X, []
    for _ in range(n):
        left = [row for row in candidates.tolist() if row not in chosen]
        best = max(left, key=lambda row: distances(POOL[[row]], covered).min())
        chosen.append(best)
        covered = np.vstack([covered, POOL[best]])
    assert found.indices.tolist() == chosen
    np.testing.assert_array_equal(found.predicted, found.pool_predicted[chosen])
    if preselect == 1:
        assert set(chosen) == set(np.argsort(-found.pool_predicted, kind="stable")[:n].tolist())


def test_scale_containers_and_the_order_of_rows() -> None:
    plain = suggest_labels(FOUND, X, POOL, 5)
    large = suggest_labels(FOUND, 2.0**80 * X, 2.0**80 * POOL, 5)
    assert large.indices.tolist() == plain.indices.tolist()
    frame = pd.DataFrame(POOL[:, ::-1], columns=["b", "a"], index=[f"p{i}" for i in range(90)])
    named = suggest_labels(FOUND, pd.DataFrame(X, columns=["a", "b"]), frame, 5)
    assert named.ids.tolist() == [f"p{i}" for i in plain.indices]
    back = pd.DataFrame(X, columns=["a", "b"]).iloc[::-1]
    assert suggest_labels(FOUND, back, frame, 5).ids.tolist() == named.ids.tolist()
    with pytest.raises(ValueError, match="index of 'X' must hold the ids of the valued rows"):
        suggest_labels(FOUND, back.set_axis(range(1, 61)), frame, 5)
    thin = suggest_labels(FOUND, sparse.csr_array(X), sparse.csr_array(POOL), 5)
    assert thin.indices.tolist() == plain.indices.tolist()
    turned = RNG.permutation(90)
    again = suggest_labels(FOUND, X, POOL[turned], 5)
    assert turned[again.indices].tolist() == plain.indices.tolist()
    other = suggest_labels(FOUND, X, POOL, 5, metric="manhattan", ids=np.arange(100, 190))
    assert (other.ids - 100 == other.indices).all()


def test_files_and_tables(tmp_path: Path) -> None:
    found = suggest_labels(FOUND, X, POOL, 5)
    found.save(tmp_path / "batch.npz")
    assert LabelSuggestions.load(tmp_path / "batch.npz").ids.tolist() == found.ids.tolist()
    assert found.to_frame("pyarrow").num_rows == 5
    assert "n_pool=90" in repr(found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"n": 91}, "'n' parameter of suggest_labels"),
        ({"n": 0}, "'n' parameter of suggest_labels"),
        ({"n_neighbors": 1}, "'n_neighbors' parameter of suggest_labels must be at least 2"),
        ({"n_neighbors": 60}, "'n_neighbors' parameter of suggest_labels must be at most 59"),
        ({"preselect": 0.5}, "'preselect' parameter of suggest_labels must be a finite number of at least 1"),
        ({"metric": "precomputed"}, "'metric' parameter of suggest_labels"),
        ({"X": X[:50]}, r"'X' must have the 60 rows that were valued, in their order\. Got 50"),
        ({"X_pool": POOL[:, :1]}, "X_pool"),
        ({"X_pool": np.full((4, 2), np.nan)}, "X_pool"),
        ({"valuation": FOUND.values}, "'valuation' parameter of suggest_labels must be a Valuation"),
        ({"ids": [1, 2]}, "ids"),
    ],
)
def test_bad_inputs(change: dict[str, Any], message: str) -> None:
    given: dict[str, Any] = {"valuation": FOUND, "X": X, "X_pool": POOL, "n": 3} | change
    with pytest.raises(ValueError, match=message):
        suggest_labels(**given)


def test_few_labelled_rows_are_refused() -> None:
    few: Valuation = KNNShapley(progress=False).fit(X[:2], Y[:2]).value(X_VAL, Y_VAL)
    with pytest.raises(ValueError, match=r"at least 3 labelled rows to predict from. Got 2"):
        suggest_labels(few, X[:2], POOL, 1)
