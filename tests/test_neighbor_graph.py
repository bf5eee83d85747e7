"""Distances given as a sparse graph of nearest rows: values, their bounds, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.metrics import pairwise_distances
from sklearn.neighbors import NearestNeighbors, radius_neighbors_graph

from shapshift import (
    Beta,
    KNNRegressionShapley,
    KNNShapley,
    SemiSupervisedKNNShapley,
    ThresholdKNNShapley,
    WeightedKNNShapley,
    cross_value,
    knn_interactions,
)

RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(40, 3)), RNG.integers(0, 3, 40)
X_VAL, Y_VAL = RNG.normal(size=(9, 3)), RNG.integers(0, 3, 9)
D = pairwise_distances(X_VAL, X)
FAR = 1e9


def nearest_graph(distances: Any, k: int) -> Any:
    """Keep the k nearest rows of each point, in no order of columns."""
    rows = np.argsort(distances, axis=1, kind="stable")[:, :k]
    data = np.take_along_axis(distances, rows, axis=1)
    ends = k * np.arange(distances.shape[0] + 1)
    return sparse.csr_array((data.ravel(), rows.ravel(), ends), shape=distances.shape)


def filled(graph: Any) -> Any:
    """Distances with every row that is not stored at one distance behind all others."""
    full = np.full(graph.shape, FAR)
    pairs = graph.tocoo()
    full[pairs.row, pairs.col] = pairs.data
    return full


def precomputed(**options: Any) -> KNNShapley:
    return KNNShapley(metric="precomputed", progress=False, **options).fit(None, Y)


@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo", "calibrated", Beta(4, 1)], ids=str)
@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("k", [1, 3, 7, 39])
def test_rows_that_are_not_stored_are_one_tie_behind_the_others(semivalue: Any, utility: str, k: int) -> None:
    model = precomputed(semivalue=semivalue, utility=utility)
    graph = nearest_graph(D, k)
    given = model.value(graph, Y_VAL, groups=Y_VAL, matrix=True)
    expected = model.value(filled(graph), Y_VAL, groups=Y_VAL, matrix=True)
    np.testing.assert_allclose(given.values, expected.values, atol=1e-12)
    np.testing.assert_allclose(given.matrix, expected.matrix, atol=1e-12)
    np.testing.assert_allclose(given.group_means, expected.group_means, atol=1e-12)
    np.testing.assert_allclose(given.entropy, expected.entropy, atol=1e-12)
    np.testing.assert_allclose(given.standard_error, expected.standard_error, atol=1e-9)
    assert given.parameters["algorithm"] == "graph"
    assert given.parameters["rows_per_point"] == [k, k]


@pytest.mark.parametrize("k", [0, 2, 8])
@pytest.mark.parametrize("semivalue", ["shapley", "loo"])
def test_the_bound_holds_whatever_the_order_of_the_missing_rows(k: int, semivalue: str) -> None:
    model = precomputed(semivalue=semivalue, n_neighbors=4)
    graph = nearest_graph(D, k)
    found = model.value(graph, Y_VAL)
    assert found.error_bound is not None
    assert (found.error_bound.max() > 0) == (k < 8 or semivalue == "shapley")
    for seed in range(20):
        full = filled(graph)
        full[full == FAR] += np.random.default_rng(seed).random(np.count_nonzero(full == FAR))
        assert (np.abs(model.value(full, Y_VAL).values - found.values) <= found.error_bound + 1e-12).all()


@pytest.mark.parametrize("ties", ["average", "index"])
def test_a_complete_graph_is_exact(ties: str) -> None:
    model = precomputed(ties=ties)
    coarse = np.round(D)  # ties, and distances of zero
    complete = sparse.csr_array((coarse.ravel(), np.tile(np.arange(40), 9), np.arange(0, 361, 40)), shape=coarse.shape)
    found = model.value(complete, Y_VAL)
    np.testing.assert_allclose(found.values, model.value(coarse, Y_VAL).values, atol=1e-12)
    assert found.error_bound is not None
    assert not found.error_bound.any()


def test_the_same_as_truncated_values_at_that_number_of_rows() -> None:
    rng = np.random.default_rng(0)
    X, y, X_val, y_val = rng.normal(size=(2000, 4)), rng.integers(0, 2, 2000), rng.normal(size=(70, 4)), [0, 1] * 35
    truncated = KNNShapley(method="truncated", tol=0.02).fit(X, y).value(X_val, y_val)
    k = truncated.parameters["exact_ranks"]
    assert k < 2000 / 16
    graph = NearestNeighbors().fit(X).kneighbors_graph(X_val, n_neighbors=k, mode="distance")
    for method in ("exact", "truncated"):
        model = KNNShapley(metric="precomputed", method=method, n_jobs=2, max_memory="200MB").fit(None, y)
        found = model.value(graph, y_val)
        np.testing.assert_allclose(found.values, truncated.values, atol=1e-14)
        assert found.error_bound is not None
        assert truncated.error_bound is not None
        np.testing.assert_allclose(found.error_bound, truncated.error_bound, atol=1e-14)
        np.testing.assert_array_equal(found.entropy, truncated.entropy)


def test_a_list_shorter_than_k_has_a_larger_bound() -> None:
    bounds = [precomputed(n_neighbors=10).value(nearest_graph(D, k), Y_VAL).error_bound for k in (3, 10, 30)]
    largest = [float(bound.max()) for bound in bounds if bound is not None]
    assert largest[0] > largest[1] > largest[2] > 0


@pytest.mark.parametrize("form", ["csr_matrix", "csc", "coo", "float32", "int64", "reversed"])
def test_any_way_to_write_a_graph(form: str) -> None:
    graph = nearest_graph(D.astype(np.float32).astype(np.float64), 6)
    as_expected = precomputed().value(graph, Y_VAL).values
    wide = sparse.csr_matrix(graph)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    backwards = sparse.csr_array(
        (graph.data.reshape(9, 6)[:, ::-1].ravel(), graph.indices.reshape(9, 6)[:, ::-1].ravel(), graph.indptr),
        shape=graph.shape,
    )
    forms = {
        "csr_matrix": sparse.csr_matrix(graph),
        "csc": graph.tocsc(),
        "coo": graph.tocoo(),
        "float32": graph.astype(np.float32),
        "int64": wide,
        "reversed": backwards,
    }
    given = forms[form]
    before = given.copy()
    np.testing.assert_array_equal(precomputed().value(given, Y_VAL).values, as_expected)
    np.testing.assert_array_equal(given.data, before.data)  # the caller's graph is left alone


def test_points_of_different_numbers_of_rows_and_points_without_any() -> None:
    graph = sparse.csr_array(radius_graph(0.6))
    lengths = np.diff(graph.indptr)
    assert lengths.min() == 0 < lengths.max()
    found = precomputed().value(graph, Y_VAL)
    np.testing.assert_allclose(found.values, precomputed().value(filled(graph), Y_VAL).values, atol=1e-12)
    np.testing.assert_allclose(found.entropy, precomputed().value(filled(graph), Y_VAL).entropy, atol=1e-12)
    nothing = precomputed().value(sparse.csr_array((1, 40)), Y_VAL[:1])
    np.testing.assert_allclose(nothing.values, precomputed().value(np.ones((1, 40)), Y_VAL[:1]).values, atol=1e-12)


def radius_graph(radius: float) -> Any:
    return NearestNeighbors().fit(X).radius_neighbors_graph(X_VAL, radius=radius, mode="distance")


def test_stored_zeros_are_distances() -> None:
    distances = D.copy()
    distances[:, 7] = 0.0
    graph, model = nearest_graph(distances, 4), precomputed(n_neighbors=1)
    assert (graph.data == 0).sum() == 9
    found = model.value(graph, Y_VAL)
    np.testing.assert_allclose(found.values, model.value(filled(graph), Y_VAL).values, atol=1e-12)
    assert not np.allclose(found.values, model.value(np.where(D[:, [7]] == D, FAR, filled(graph)), Y_VAL).values)


def test_excluded_rows_are_not_seen() -> None:
    graph, exclude = nearest_graph(D, 12), D.argmin(axis=1)
    found = precomputed().value(graph, Y_VAL, exclude=exclude)
    exact = precomputed().value(D, Y_VAL, exclude=exclude)
    assert found.error_bound is not None
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-12).all()


def test_nearest_rows_and_ranks() -> None:
    graph, model = nearest_graph(D, 6), precomputed(n_neighbors=3)
    reference = np.argsort(D, axis=1)[:, [0, 5, 20]]
    _, near = model.value_and_neighbors(graph, Y_VAL, reference=reference)
    np.testing.assert_array_equal(near.nearest, np.argsort(D, axis=1)[:, :3])
    assert near.reference_ranks is not None
    np.testing.assert_array_equal(near.reference_ranks, np.tile([0, 5, (6 + 39) / 2], (9, 1)))
    np.testing.assert_array_equal(model.neighbor_ranks(graph, Y_VAL, reference), near.reference_ranks)
    with pytest.raises(ValueError, match=r"3 nearest rows .* stores only 2 of point 0. Make the graph with more neigh"):
        model.value_and_neighbors(nearest_graph(D, 2), Y_VAL)


def test_explanations_know_what_is_stored() -> None:
    graph, model = nearest_graph(D, 6), precomputed()
    rows = [0, 7, 21]
    found, valued = model.explain(graph, Y_VAL, rows, n_points=9), model.value(graph, Y_VAL, matrix=True)
    np.testing.assert_allclose(found.values, valued.values[rows], atol=1e-12)
    dense = filled(graph)[found.points["position"], np.array(rows)[found.points["row"]]]
    np.testing.assert_array_equal(found.points["distance"], np.where(dense == FAR, np.inf, dense))
    assert np.isinf(found.points["distance"]).any()
    assert len(found.sentences) == 3
    near = ThresholdKNNShapley(1.3, metric="precomputed", progress=False).fit(None, Y)
    assert near.explain(radius_graph(1.3), Y_VAL, rows).near.tolist() == (D[:, rows] <= 1.3).sum(axis=0).tolist()


def test_a_run_resumes(tmp_path: Path) -> None:
    graph = nearest_graph(D, 6)
    whole = precomputed().value(graph, Y_VAL)
    for _ in range(2):
        again = precomputed().value(graph, Y_VAL, checkpoint=tmp_path / "run")
        np.testing.assert_array_equal(again.values, whole.values)
    with pytest.raises(ValueError, match="other validation points"):
        precomputed().value(nearest_graph(D, 7), Y_VAL, checkpoint=tmp_path / "run")


@pytest.mark.parametrize("k", [10, 39, 40])
def test_rows_valued_on_each_other(k: int) -> None:
    between = pairwise_distances(X)
    np.fill_diagonal(between, 0.0)
    model = KNNShapley(metric="precomputed", progress=False)
    exact = cross_value(model, between, Y)
    graph = nearest_graph(between, k)
    found = cross_value(model, graph, Y)
    assert found.error_bound is not None
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-12).all()
    assert found.error_bound.any() == (k < 40)
    groups = np.arange(40) // 4
    in_folds = cross_value(model, graph, Y, groups=groups)
    exact_folds = cross_value(model, between, Y, groups=groups)
    assert in_folds.error_bound is not None
    assert (np.abs(in_folds.values - exact_folds.values) <= in_folds.error_bound + 1e-12).all()


def test_all_rows_within_the_radius_are_stored() -> None:
    dense = ThresholdKNNShapley(1.3, progress=False).fit(X, Y).value(X_VAL, Y_VAL)
    model = ThresholdKNNShapley(1.3, metric="precomputed", progress=False).fit(None, Y)
    for radius in (1.3, 2.0):
        found = model.value(radius_graph(radius), Y_VAL)
        np.testing.assert_allclose(found.values, dense.values, atol=1e-12)
    private = model.release(radius_graph(1.3), Y_VAL, epsilon=1.0, delta=1e-3, random_state=0)
    assert np.isfinite(private.values).all()
    lacking = "seems to lack rows within radius=1.3 of some validation points: "
    for k in (2, 5):
        with pytest.warns(UserWarning, match=f"{lacking}it stores {k} of each"):
            model.value(nearest_graph(D, k), Y_VAL)
    with pytest.warns(UserWarning, match=f"{lacking}no distance is above 0.[89]"):
        model.value(radius_graph(0.9), Y_VAL)
    with pytest.warns(UserWarning, match="No distance is stored: raise the radius"):
        model.value(sparse.csr_array((9, 40)), Y_VAL)
    among = radius_neighbors_graph(X, 1.3, mode="distance")
    own = cross_value(ThresholdKNNShapley(1.3, progress=False), X, Y)
    np.testing.assert_allclose(cross_value(model, among, Y).values, own.values, atol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        WeightedKNNShapley(metric="precomputed"),
        KNNRegressionShapley(metric="precomputed"),
        SemiSupervisedKNNShapley(metric="precomputed"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_models_that_need_all_distances_say_so(model: Any) -> None:
    beliefs = {"beliefs": np.full((40, 3), 1 / 3)} if isinstance(model, SemiSupervisedKNNShapley) else {}
    with pytest.raises(ValueError, match="sparse neighbour graph, which does not store all distances"):
        model.fit(None, Y.astype(float) if not beliefs else Y, **beliefs).value(nearest_graph(D, 6), Y_VAL)


def test_steps_that_need_all_distances_say_so() -> None:
    graph = nearest_graph(D, 6)
    with pytest.raises(ValueError, match="sparse neighbour graph, which does not store all distances"):
        knn_interactions(precomputed(), graph, Y_VAL)
    with pytest.raises(ValueError, match="'pool' parameter does not go with a sparse neighbour graph"):
        precomputed().value(graph, Y_VAL, pool=pairwise_distances(X))
    with pytest.raises(ValueError, match="'method' parameter of KNNShapley must be 'exact' or 'truncated'"):
        precomputed(method="certified").value(graph, Y_VAL)


def spoiled(value: float) -> Any:
    graph = nearest_graph(D, 6)
    graph.data[13] = value
    return graph


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (nearest_graph(D, 6).T, r"Got shape \(40, 9\)"),
        (nearest_graph(D, 6)[:, 1:], r"40 columns. Got shape \(9, 39\)"),
        (spoiled(-1.0), "Got -1.0 at row 2, column .* Convert similarities"),
        (spoiled(np.nan), "contains NaN at row 2"),
        (spoiled(np.inf), "contains infinity at row 2"),
        (sparse.csr_array((0, 40)), "at least one row"),
        (nearest_graph(D, 6).astype(np.complex128), "real numbers"),
        (nearest_graph(D, 6).astype(bool), "real numbers"),
        (nearest_graph(D, 6).tolil(), "'lil' format"),
        (sparse.csr_array(([1.0, 2.0], [3, 3], [0, 2]), shape=(1, 40)), "two distances .* 0 and training row 3"),
        (sparse.coo_array(([1.0, 2.0], ([0, 0], [3, 3])), shape=(1, 40)), "two distances .* 0 and training row 3"),
    ],
    ids=["transposed", "narrow", "negative", "nan", "infinity", "empty", "complex", "bool", "lil", "twice", "coo"],
)
def test_what_is_no_graph_of_distances_is_refused(graph: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        precomputed().value(graph, Y_VAL[: max(graph.shape[0], 1)] if graph.shape[0] < 10 else Y)


def test_a_graph_without_distances_is_warned_about() -> None:
    graph = NearestNeighbors().fit(X).kneighbors_graph(X_VAL, mode="connectivity")
    with pytest.warns(UserWarning, match="mode='distance'"):
        precomputed().value(graph, Y_VAL)
