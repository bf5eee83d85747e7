"""Training rows with equal features are measured and sorted once, and nobody can tell."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from shapshift import KNNShapley, audit_shift
from shapshift.engine import duplicates as places
from shapshift.engine.rows.distances import TrainingIndex, index_rows
from shapshift.engine.runner import BlockJob


def row_by_row(model: KNNShapley) -> KNNShapley:
    """Make the model value copies one by one."""
    assert model._duplicates is not None, "there is nothing to compare"
    model._duplicates = None
    return model


def discrete(n: int, d: int, seed: int, n_classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 2, (n, d)).astype(float), rng.integers(0, n_classes, n)


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("n_neighbors", [1, 2, 3, 9])
def test_against_enumeration(utility: str, n_neighbors: int) -> None:
    X = np.array([[0.0], [1.0], [0.0], [1.0], [1.0], [3.0], [0.0]])
    labels = "abaabaa"
    model = KNNShapley(n_neighbors=n_neighbors, utility=utility).fit(X, list(labels))
    assert model._duplicates is not None
    assert (model._duplicates.index.n_rows, model._duplicates.layout.codes.size) == (3, 4)
    points = np.array([[0.0], [0.5], [1.25], [9.0]])
    found = model.value(points, list("abba"), matrix=True).matrix
    assert found is not None
    weights = naive.subset_weights(7, naive.size_weights(7, n_neighbors, "shapley"))
    for p, (row, asked) in enumerate(zip(naive.distance_matrix(points, X, "euclidean"), "abba", strict=True)):
        matches = [label == asked for label in labels]
        utilities = naive.knn_utilities(naive.tie_groups(row, "average"), matches, n_neighbors, utility, 2)
        np.testing.assert_allclose(found[:, p], weights @ utilities, atol=1e-12)


@settings(max_examples=60)
@given(
    n=st.integers(1, 60),
    d=st.integers(1, 4),
    n_neighbors=st.integers(1, 12),
    semivalue=st.sampled_from(["shapley", "banzhaf", "loo", "calibrated"]),
    metric=st.sampled_from(["euclidean", "manhattan", "cosine"]),
    n_classes=st.integers(1, 4),
    seed=st.integers(0, 2**20),
)
def test_same_bits_as_row_by_row(
    n: int, d: int, n_neighbors: int, semivalue: str, metric: str, n_classes: int, seed: int
) -> None:
    X, y = discrete(n, d, seed, n_classes)
    X, y = np.concatenate([X + 1, X[:5] + 1]), np.concatenate([y, y[:5]])
    points, _ = discrete(7, d, seed + 1)
    reference = np.random.default_rng(seed).integers(0, len(X), (7, 3))
    groups = list("aabbcca")
    model = KNNShapley(n_neighbors=n_neighbors, semivalue=semivalue, metric=metric).fit(X, y)
    if model._duplicates is None:
        assert np.unique(X, axis=0).shape[0] > places.PAYS * len(X)
        return
    different = np.unique(X, axis=0).shape[0]
    assert model._duplicates.index.n_rows == different or (
        metric == "cosine" and model._duplicates.index.n_rows < different
    )
    labels = np.random.default_rng(seed).choice(y, 7)
    points = points + 1
    once, hood = model.value_and_neighbors(points, labels, groups=groups, matrix=True, reference=reference)
    each, old = row_by_row(model).value_and_neighbors(points, labels, groups=groups, matrix=True, reference=reference)
    for name in ("values", "entropy", "level_values", "group_means", "matrix"):
        np.testing.assert_array_equal(getattr(once, name), getattr(each, name), name)
    np.testing.assert_array_equal(hood.nearest, old.nearest)
    np.testing.assert_array_equal(hood.reference_ranks, old.reference_ranks)
    assert once.parameters == each.parameters


def test_many_rows_and_blocks() -> None:
    X, y = discrete(30_000, 12, 0)
    points, labels = discrete(300, 12, 1)
    model = KNNShapley(n_jobs=2).fit(X, y)
    once = model.value(points + 0.25, labels)
    each = row_by_row(model).value(points + 0.25, labels)
    np.testing.assert_array_equal(once.values, each.values)  # blocks are those of rows


def test_row_order_changes_nothing() -> None:
    X, y = discrete(500, 5, 2)
    points, labels = discrete(40, 5, 3)
    order = np.random.default_rng(0).permutation(500)
    values = KNNShapley().fit(X, y).value(points, labels).values
    np.testing.assert_array_equal(KNNShapley().fit(X[order], y[order]).value(points, labels).values, values[order])


def test_sparse_rows() -> None:
    X, y = discrete(200, 4, 4)
    points, labels = discrete(20, 4, 5)
    dense = KNNShapley().fit(X, y)
    thin = KNNShapley().fit(sparse.csr_matrix(X), y)
    assert dense._duplicates is not None
    assert thin._duplicates is not None
    np.testing.assert_array_equal(thin._duplicates.place_of, dense._duplicates.place_of)
    np.testing.assert_array_equal(
        thin.value(sparse.csr_matrix(points), labels).values, dense.value(points, labels).values
    )


@pytest.mark.parametrize("value", [0.0, 5.0])
def test_all_rows_equal(value: float) -> None:
    model = KNNShapley().fit(np.full((50, 3), value), np.arange(50) % 2)
    once = model.value(np.ones((4, 3)), [0, 1, 0, 0])
    np.testing.assert_array_equal(once.values, row_by_row(model).value(np.ones((4, 3)), [0, 1, 0, 0]).values)


def test_zero_has_one_face() -> None:
    found = places.find_duplicates(
        index_rows(np.array([[0.0, 1.0], [-0.0, 1.0]]), "euclidean"), np.zeros(2, dtype=np.int32)
    )
    assert found is not None
    assert found.index.n_rows == 1


def test_rows_that_share_a_hash_stay_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = discrete(100, 3, 6)
    points, labels = discrete(9, 3, 7)
    values = KNNShapley().fit(X, y).value(points, labels).values
    monkeypatch.setattr(TrainingIndex, "content_hash", lambda index: np.zeros(index.n_rows, dtype=np.uint64))
    order = np.lexsort((*X.T, y))
    model = KNNShapley().fit(X[order], y[order])
    assert model._duplicates is not None
    np.testing.assert_array_equal(model.value(points, labels).values, values[order])


@pytest.mark.parametrize(
    ("X", "reason"),
    [
        (np.random.default_rng(0).normal(size=(100, 3)), "all rows differ"),
        (np.r_[np.random.default_rng(0).normal(size=(95, 1)), np.zeros((5, 1))], "too few copies"),
    ],
)
def test_nothing_to_gain(X: np.ndarray, reason: str) -> None:
    assert places.find_duplicates(index_rows(X, "euclidean"), np.zeros(100, dtype=np.int32)) is None, reason


@pytest.mark.parametrize("options", [{"ties": "index"}, {"max_memory": "1GB"}, {"method": "truncated"}])
def test_where_copies_are_not_one(options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = discrete(100, 3, 8)
    model = KNNShapley(**options).fit(X, y)
    monkeypatch.setattr("shapshift.knn.shapley.collapsed_sums", None)
    model.value(X[:5], y[:5])
    with pytest.raises(TypeError):
        KNNShapley().fit(X, y).value(X[:5], y[:5])
    KNNShapley().fit(X, y).value(X[:5], y[:5], exclude=np.arange(5))
    KNNShapley().fit(X, y).value(X[:5], y[:5], checkpoint=tmp_path / "run")


def test_an_audit_gives_the_same_statistics() -> None:
    X, y = discrete(300, 5, 9)
    model = KNNShapley().fit(X, y)
    once = audit_shift(model, X[:40], y[:40], noise=[0.5], repeats=3, random_state=0)
    each = audit_shift(row_by_row(model), X[:40], y[:40], noise=[0.5], repeats=3, random_state=0)
    np.testing.assert_allclose(once.means, each.means, rtol=1e-12)


def test_workers_travel(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = discrete(300, 4, 10)
    model = KNNShapley().fit(X, y)
    here = model.value(X[:20], y[:20]).values
    made = BlockJob.__init__
    packed = lambda job, method, *rest: made(job, pickle.loads(pickle.dumps(method)), *rest)  # noqa: E731
    monkeypatch.setattr(BlockJob, "__init__", packed)
    np.testing.assert_array_equal(model.value(X[:20], y[:20]).values, here)
