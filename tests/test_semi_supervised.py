"""Rows without labels: exact values of beliefs, against the mean over all labels they may have."""

from __future__ import annotations

import itertools
from typing import Any

import naive
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import parametrize_with_checks

from shapshift import Beta, KNNShapley, SemiSupervisedKNNShapley, audit_shift, cross_value

X = np.array([[0.0], [1.0], [1.0], [2.0], [3.0], [3.0]])
Y = ["a", None, "b", None, "b", "c"]
X_VAL, Y_VAL = np.array([[1.0], [2.6], [0.4]]), ["b", "a", "c"]


def expected(model: SemiSupervisedKNNShapley, n_neighbors: int, utility: str, semivalue: Any, ties: str) -> np.ndarray:
    """Mean of the enumerated values over all labels of all rows, weighted by their probability."""
    classes, total = model.classes_.tolist(), np.zeros(len(X))
    weights = naive.size_weights(len(X), n_neighbors, semivalue)
    for labels in itertools.product(range(len(classes)), repeat=len(X)):
        chance = float(np.prod(model.beliefs_[np.arange(len(X)), labels]))
        if chance == 0:
            continue
        for x, label in zip(X_VAL, Y_VAL, strict=True):
            groups = naive.tie_groups(np.abs(X - x).ravel().tolist(), ties)
            matches = [classes[code] == label for code in labels]
            worth = [
                naive.expected_utility(subset, groups, matches, n_neighbors, utility, len(classes))
                for subset in range(2 ** len(X))
            ]
            total += chance * naive.semivalues(worth, weights) / len(Y_VAL)
    return total


@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize(
    ("n_neighbors", "utility", "semivalue"),
    [
        (1, "soft", "shapley"),
        (2, "soft", "shapley"),
        (9, "soft", "shapley"),
        (3, "hard", "shapley"),
        (2, "soft", "beta"),
    ],
)
def test_values_are_the_mean_over_all_labels(n_neighbors: int, utility: str, semivalue: str, ties: str) -> None:
    ours, theirs = (Beta(4, 1), ("beta", 4.0, 1.0)) if semivalue == "beta" else (semivalue, semivalue)
    model = SemiSupervisedKNNShapley(n_neighbors, utility=utility, semivalue=ours, ties=ties, belief_neighbors=2)
    found = model.fit(X, Y).value(X_VAL, Y_VAL)
    np.testing.assert_allclose(found.values, expected(model, n_neighbors, utility, theirs, ties), atol=1e-12)


def test_beliefs_are_shares_of_the_nearest_labelled_rows() -> None:
    model = SemiSupervisedKNNShapley(belief_neighbors=2).fit(X, Y)
    # Row 1 is nearest to row 2 (b), then to row 0 (a). Row 3 has three rows at distance 1: b, b and c.
    np.testing.assert_allclose(model.beliefs_[1], [0.5, 0.5, 0.0])
    np.testing.assert_allclose(model.beliefs_[3], [0.0, 2 / 3, 1 / 3])
    assert model.labeled_.tolist() == [True, False, True, False, True, True]
    assert model.beliefs_[0].tolist() == [1.0, 0.0, 0.0]
    # All labelled rows, where there are fewer than asked for.
    np.testing.assert_allclose(SemiSupervisedKNNShapley(belief_neighbors=50).fit(X, Y).beliefs_[1], [0.25, 0.5, 0.25])


def data(n: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n + 40)
    features = rng.normal(size=(n + 40, 3)) + y[:, None]
    return features[:n], y[:n], features[n:], y[n:]


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "manhattan"])
def test_with_all_labels_it_is_knn_shapley(metric: str) -> None:
    rows, y, points, targets = data()
    plain = KNNShapley(metric=metric).fit(rows, y).value(points, targets, groups=targets)
    found = SemiSupervisedKNNShapley(metric=metric).fit(rows, y).value(points, targets, groups=targets)
    np.testing.assert_allclose(found.values, plain.values, atol=1e-14)
    np.testing.assert_allclose(found.standard_error, plain.standard_error, atol=1e-12)
    np.testing.assert_allclose(found.group_means, plain.group_means, atol=1e-13)
    np.testing.assert_array_equal(found.entropy, plain.entropy)
    wide = {"boundary_neighbors": 7, "boundary_entropy": 0.5}
    theirs = KNNShapley(**wide).fit(rows, y).value(points, targets)
    ours = SemiSupervisedKNNShapley(**wide).fit(rows, y).value(points, targets)
    np.testing.assert_array_equal(ours.boundary, theirs.boundary)


def test_order_of_rows_containers_and_workers_change_nothing() -> None:
    rows, y, points, targets = data()
    some = np.where(np.arange(y.size) % 3 == 0, np.nan, y)
    base = SemiSupervisedKNNShapley().fit(rows, some)
    found = base.value(points, targets)
    turned = np.random.default_rng(1).permutation(y.size)
    again = SemiSupervisedKNNShapley(n_jobs=2, max_memory="8MB").fit(rows[turned], some[turned]).value(points, targets)
    np.testing.assert_allclose(again.values, found.values[turned], atol=1e-14)
    frame = pd.DataFrame(rows, columns=list("abc"), index=[f"r{i}" for i in range(y.size)])
    labels = pd.Series(some, index=frame.index).astype("Int64")
    named = SemiSupervisedKNNShapley().fit(frame, labels).value(pd.DataFrame(points, columns=list("abc")), targets)
    np.testing.assert_allclose(named.values, found.values, atol=1e-14)
    assert named.ids[0] == "r0"
    thin = SemiSupervisedKNNShapley().fit(sparse.csr_array(rows), some).value(sparse.csr_array(points), targets)
    np.testing.assert_allclose(thin.values, found.values, atol=1e-12)
    assert base.fingerprint_ != SemiSupervisedKNNShapley().fit(rows, y).fingerprint_


def test_beliefs_of_a_classifier() -> None:
    rows, y, points, targets = data()
    missing = np.arange(y.size) % 2 == 0
    some = np.where(missing, np.nan, y)
    beliefs = LogisticRegression().fit(rows[~missing], y[~missing]).predict_proba(rows)
    model = SemiSupervisedKNNShapley().fit(rows, some, beliefs=beliefs)
    np.testing.assert_allclose(model.beliefs_[missing], beliefs[missing])
    np.testing.assert_array_equal(model.beliefs_[~missing].max(axis=1), 1.0)
    assert model.value(points, targets).parameters["n_unlabeled"] == missing.sum()
    with pytest.raises(ValueError, match=r"'beliefs' parameter .* 60 rows and 3 classes.* Got an array of shape"):
        model.fit(rows, some, beliefs=beliefs[:, :2])
    with pytest.raises(ValueError, match="'beliefs' parameter"):
        model.fit(rows, some, beliefs=2 * beliefs)


def test_audits_take_it() -> None:
    rows, y, points, targets = data()
    model = SemiSupervisedKNNShapley().fit(rows, np.where(np.arange(y.size) % 3 == 0, np.nan, y))
    audit = audit_shift(model, points, targets, noise=[0.5], repeats=2, progress=False)
    assert np.isfinite(audit.statistic("spearman")[0]).all()


def test_what_cannot_be_done_is_said() -> None:
    model = SemiSupervisedKNNShapley()
    with pytest.raises(ValueError, match=r"'y' must have labels for some rows. Got 2 entries, all of them missing"):
        model.fit(X[:2], [None, None])
    with pytest.raises(ValueError, match="for each row in memory"):
        model.fit(X)
    with pytest.raises(ValueError, match="one label for each of the 6 rows"):
        model.fit(X, Y[:5])
    with pytest.raises(ValueError, match="infinity"):
        model.fit(X, [0.0, np.nan, 1.0, 1.0, 0.0, np.inf])
    with pytest.raises(ValueError, match="'beliefs' parameter is needed with metric='precomputed'"):
        SemiSupervisedKNNShapley(metric="precomputed").fit(None, Y)
    with pytest.raises(ValueError, match="'belief_neighbors' parameter"):
        SemiSupervisedKNNShapley(belief_neighbors=0).fit(X, Y)
    with pytest.raises(ValueError, match="cross_value does not take SemiSupervisedKNNShapley"):
        cross_value(model, X[[0, 2, 4, 5]], ["a", "b", "b", "c"])
    alone = model.fit(X[:1], ["a"]).value(X_VAL, ["a", "a", "a"])
    assert alone.values.tolist() == [0.0]


@parametrize_with_checks([SemiSupervisedKNNShapley()])
def test_estimator_checks(estimator: Any, check: Any) -> None:
    check(estimator)
