"""Searches over an index: what they may miss, what they say about it, and where they search exactly after all."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import sparse
from scipy.spatial.distance import cdist

from shapshift import KNNShapley, Valuation
from shapshift.engine.rows.distances import index_rows, tile_filler
from shapshift.engine.search import lsh as hashing
from shapshift.engine.search.lists import FitCache, wilson_interval

METRICS = ["euclidean", "manhattan", "cosine"]
TRUNCATED = {"method": "truncated", "tol": 0.02, "progress": False}  # of 8,000 rows, the nearest 50

Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def clustered(n_rows: int = 8_000, n_val: int = 120, width: int = 6) -> Case:
    """Tight clusters: most rows are far from any point, as hashing likes it."""
    rng = np.random.default_rng(0)
    centers = 20 * rng.normal(size=(80, width))

    def draw(n: int) -> tuple[np.ndarray, np.ndarray]:
        cluster = rng.integers(0, 80, size=n)
        labels = np.where(rng.random(n) < 0.1, rng.integers(0, 3, size=n), cluster % 3)
        return centers[cluster] + rng.normal(size=(n, width)), labels

    return *draw(n_rows), *draw(n_val)


@pytest.fixture(scope="module")
def case() -> Case:
    return clustered()


def value(case: Case, **options: object) -> Valuation:
    X, y, X_val, y_val = case
    return KNNShapley(**{**TRUNCATED, **options}).fit(X, y).value(X_val, y_val)


def told(valuation: Valuation) -> dict:
    return valuation.parameters["search_report"]


@pytest.fixture
def no_checks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One point only is searched exactly for the recall."""
    monkeypatch.setattr("shapshift.engine.search.quick.CHECKED_POINTS", 1)
    return


@pytest.fixture
def always_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a scan look dear enough for the few rows of a test."""
    monkeypatch.setattr(hashing, "SCAN", 1e4)


# --- single pairs ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", [*METRICS, "sqeuclidean"])
@pytest.mark.parametrize("thin", [False, True])
def test_single_pairs_have_the_bits_of_tiles(metric: str, thin: bool) -> None:
    if thin and metric == "manhattan":
        pytest.skip("sparse rows have no Manhattan distances")
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(50, 7)), 1e3 * rng.normal(size=(4, 7))
    X[rng.random(X.shape) < 0.5] = 0.0
    X[3] = 0.0
    rows, points = (sparse.csr_array(X), sparse.csr_array(X_val)) if thin else (X, X_val)
    index = index_rows(rows, metric)
    tile = np.empty((4, 50))
    tile_filler(index, points)(slice(0, 4), slice(0, 50), tile)
    measure = index.measure(points, index.table())
    chosen = np.array([3, 49, 0, 17])
    for p in range(4):
        out = np.empty(4)
        measure(p, chosen, out)
        assert np.array_equal(out, tile[p, chosen])


# --- hashing --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("distance", [0.1, 0.7, 2.0, 9.0])
def test_rows_share_a_hash_as_often_as_the_formula_says(metric: str, distance: float) -> None:
    rng = np.random.default_rng(0)
    n = 200_000
    spread = rng.standard_cauchy(n) if metric == "manhattan" else rng.standard_normal(n)
    width, offset = 1.7, rng.uniform(0, 1.7, size=n)
    shared = np.mean(np.floor(offset / width) == np.floor((distance * spread + offset) / width))
    expected = float(hashing.collision(np.array([distance / width]), metric)[0])
    assert shared == pytest.approx(expected, abs=5 * np.sqrt(0.25 / n))


def test_the_probability_to_share_a_hash_falls_from_one() -> None:
    ratios = np.concatenate([[0.0], np.logspace(-6, 4, 200)])
    for metric in ("euclidean", "manhattan"):
        found = hashing.collision(ratios, metric)
        assert found[0] == 1
        assert (np.diff(found) <= 1e-12).all()
        assert (found >= -1e-12).all()


@pytest.mark.usefixtures("always_hash", "no_checks")
@pytest.mark.parametrize("metric", METRICS)
def test_hashing_finds_what_it_promises(case: Case, metric: str) -> None:
    exact = value(case, metric=metric)
    found = value(case, metric=metric, search="lsh")
    assert told(found)["failure_probability"] <= hashing.DELTA
    assert told(found)["candidate_share"] < 0.3
    assert told(found)["exact_points"] < found.n_val / 2
    # Nothing was missed (with the probability that was promised; the tables are always the same ones), so the values
    # are those of the exact search, up to rows that a list has beyond the wanted ones.
    assert np.abs(found.values - exact.values).max() <= 1e-4
    assert np.array_equal(found.entropy, exact.entropy)
    assert found.error_bound.max() <= TRUNCATED["tol"] + 1e-15


@pytest.mark.usefixtures("always_hash")
def test_recall_on_clusters_is_above_what_was_promised(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.engine.search.quick.CHECKED_POINTS", 120)
    misses = []
    for seed in range(6):
        monkeypatch.setattr(hashing, "SEED", seed)
        found = told(value(case, search="lsh"))
        assert found["checked_points"] == 120
        misses.append(found["complete_share"] < 1)
    assert np.mean(misses) <= 1 / 6, "lists lacked rows in two of six runs; 1 in 100 was promised"


@pytest.mark.usefixtures("always_hash")
def test_lists_that_may_lack_rows_are_made_exactly(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    # Points a little off the rows: there are candidates enough, but not all that there should be.
    monkeypatch.setattr("shapshift.engine.search.quick.CHECKED_POINTS", 120)
    X, y, X_val, y_val = case
    off = X, y, X_val + 2.5 * np.random.default_rng(1).normal(size=X_val.shape), y_val
    found = told(value(off, search="lsh"))
    assert found["exact_points"] > 0
    assert found["complete_share"] == 1
    monkeypatch.setattr(hashing, "DELTA", 1e9)  # accept everything, with the tables as they are
    monkeypatch.setattr(hashing, "TYPICAL_POINTS", 1e14)
    assert told(value(off, search="lsh"))["complete_share"] < 1, "there was nothing to be careful about"


@pytest.mark.usefixtures("always_hash", "no_checks")
def test_hashing_sparse_rows_is_hashing_dense_rows(case: Case) -> None:
    X, y, X_val, y_val = case
    dense = value(case, search="lsh")
    thin = value((sparse.csr_array(X), y, sparse.csr_array(X_val), y_val), search="lsh")
    np.testing.assert_allclose(thin.values, dense.values, rtol=0, atol=1e-12)


@pytest.mark.usefixtures("always_hash", "no_checks")
def test_points_far_from_all_rows_are_searched_exactly(case: Case) -> None:
    X, y, X_val, y_val = case
    far = X, y, X_val + 1e4, y_val
    found = value(far, search="lsh")
    assert told(found)["exact_points"] == found.n_val
    assert np.array_equal(found.values, value(far).values)


def test_hashing_that_would_not_pay_is_not_done() -> None:
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(2_000, 20)), rng.normal(size=(20, 20))
    y, y_val = rng.integers(0, 2, size=2_000), rng.integers(0, 2, size=20)
    with pytest.warns(UserWarning, match=r"search='lsh' looks at all rows.* times that work.* 1\.\d times as far"):
        found = value((X, y, X_val, y_val), search="lsh")
    assert np.array_equal(found.values, value((X, y, X_val, y_val)).values)
    assert told(found)["index"] == "none"
    assert "recall" not in told(found)


@pytest.mark.usefixtures("always_hash")
@pytest.mark.parametrize("duplicated", [1, 200])
def test_duplicates_and_ties_at_the_last_rank(duplicated: int) -> None:
    rng = np.random.default_rng(0)
    X = np.repeat(rng.integers(0, 30, size=(4_000 // duplicated, 2)).astype(float), duplicated, axis=0)
    y, X_val = rng.integers(0, 2, size=X.shape[0]), rng.integers(0, 30, size=(60, 2)).astype(float)
    y_val = rng.integers(0, 2, size=60)
    exact = KNNShapley(progress=False).fit(X, y).value(X_val, y_val)
    found = value((X, y, X_val, y_val), search="lsh")
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-14).all()


# --- an approximate index -------------------------------------------------------------------------------------------


@pytest.fixture
def faiss() -> object:
    return pytest.importorskip("faiss")


@pytest.mark.usefixtures("faiss", "no_checks")
@pytest.mark.parametrize("metric", METRICS)
def test_an_index_finds_nearly_everything(case: Case, metric: str) -> None:
    plain = KNNShapley(metric=metric, progress=False).fit(case[0], case[1]).value(case[2], case[3])
    found = value(case, metric=metric, search="ann")
    assert told(found)["recall"] > 0.9
    assert (np.abs(found.values - plain.values) <= found.error_bound + 1e-14).all()
    assert np.abs(found.values - value(case, metric=metric).values).max() < 1e-3
    assert np.array_equal(value(case, metric=metric, search="ann", n_jobs=2).values, found.values)


@pytest.mark.usefixtures("faiss", "no_checks")
def test_the_certificate_counts_no_row_that_an_incomplete_list_may_lack(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One cell only: lists lack rows, and the bound must know.
    monkeypatch.setattr("shapshift.engine.search.ann._tune", lambda *args: 1)
    X, y, X_val, y_val = case
    points = X_val + 8 * np.random.default_rng(1).normal(size=X_val.shape)
    exact = KNNShapley(progress=False).fit(X, y).value(points, y_val)
    found = value((X, y, points, y_val), search="ann")
    assert found.error_bound.max() > 2 * TRUNCATED["tol"]
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-14).all()


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("n_probes", [4, 16])
def test_nothing_below_the_certain_distance_is_missed(faiss: object, metric: str, n_probes: int) -> None:
    from shapshift.engine.search import ann

    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(3_000, 3)), rng.normal(size=(200, 3))
    index = index_rows(X, metric)
    built = ann.build_ann(index)
    here = index.as_vectors(index.lay_out(X_val)) - built.origin
    found, sure = ann._look_into(faiss, built, here, 3_000, n_probes)
    distances = cdist(here, index.as_vectors(built.table) - built.origin, built.norm)
    nearest_missed = [np.delete(row, rows[rows >= 0]).min() for row, rows in zip(distances, found, strict=True)]
    assert (sure <= nearest_missed).all()
    assert (sure > 0).any(), "nothing was certain"


@pytest.mark.usefixtures("faiss")
def test_ties_and_shifted_features_over_an_index(case: Case) -> None:
    X, y, X_val, y_val = case
    rounded = np.round(X / 20), y, np.round(X_val / 20), y_val
    assert np.abs(value(rounded, search="ann").values - value(rounded).values).max() < 1e-12
    # float32 has seven digits: none would be left.
    assert told(value((X + 1e7, y, X_val + 1e7, y_val), search="ann"))["recall"] > 0.9


@pytest.mark.usefixtures("faiss")
def test_an_index_is_kept_until_the_next_fit(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    from shapshift.engine.search import ann

    built = []
    build = ann.build_ann
    monkeypatch.setattr(ann, "build_ann", lambda index: built.append(1) or build(index))
    X, y, X_val, y_val = case
    model = KNNShapley(**TRUNCATED, search="ann").fit(X, y)
    first = model.value(X_val, y_val)
    assert np.array_equal(copy.copy(model).value(X_val, y_val).values, first.values)
    assert len(built) == 1
    sent = pickle.loads(pickle.dumps(model))
    assert np.array_equal(sent.value(X_val, y_val).values, first.values)
    assert len(built) == 2
    model.fit(X[:4_000], y[:4_000]).value(X_val, y_val)
    assert len(built) == 3


@pytest.mark.usefixtures("faiss")
def test_sparse_rows_cannot_be_put_into_an_index(case: Case) -> None:
    X, y, X_val, y_val = case
    with pytest.raises(TypeError, match=r"'search'.*'exact' or 'lsh'.*sparse.*toarray"):
        value((sparse.csr_array(X), y, X_val, y_val), search="ann")


def test_a_missing_library_is_named(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"faiss.*pip install 'shapshift\[ann\]'.*'lsh'"):
        value(case, search="ann")


# --- reports --------------------------------------------------------------------------------------------------------


def test_wilson_interval() -> None:
    # 8 of 10, as tabulated.
    assert wilson_interval(0.8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)
    assert wilson_interval(0.0, 5)[0] == 0


@pytest.mark.usefixtures("always_hash")
def test_the_recall_is_measured_and_told(case: Case) -> None:
    report = told(value(case, search="lsh"))
    assert report["checked_points"] == 32
    assert 0 <= report["recall_interval"][0] <= report["recall"] <= report["recall_interval"][1] <= 1
    assert report["relative_contrast"] > 2
    assert "tables" in report["index"]


@pytest.mark.usefixtures("always_hash")
def test_ranks_of_rows_that_are_not_on_a_list(case: Case) -> None:
    X, y, X_val, y_val = case
    distances = cdist(X_val, X)
    order = distances.argsort(axis=1)
    asked = np.column_stack([order[:, 3], order[:, -1]])
    model = KNNShapley(**TRUNCATED, search="lsh").fit(X, y)
    _, near = model.value_and_neighbors(X_val, y_val, reference=asked)
    assert (near.reference_ranks[:, 0] == 3).all()
    assert (near.reference_ranks[:, 1] > 1_000).all()
    assert np.array_equal(near.nearest, order[:, :5])


def test_a_cache_stays_behind() -> None:
    cache = FitCache()
    assert cache.get("a", lambda: 1) == cache.get("a", lambda: 2) == 1
    assert pickle.loads(pickle.dumps(cache)).made == {}
