"""method="certified": the true error never exceeds the bound, and the bound never exceeds what was asked for.

Rows are kept in a file here: values of rows in memory are exact.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from shapshift import Banzhaf, Beta, KNNShapley
from shapshift.engine import certified, runner
from shapshift.engine.certified import Coarseness, choose_coarseness, rank_curve
from shapshift.engine.coefficients import RankTable, rank_table
from shapshift.engine.exact import Exact
from shapshift.engine.rows import file as rowfile
from shapshift.engine.rows.file import RowFile
from shapshift.engine.tasks import class_task
from shapshift.kernels.buckets import Curve, Rules, fill_table

NO_LIMIT = 1e12


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowfile, "LOAD_BYTES", 0)


def fit(X: np.ndarray, y: np.ndarray, **parameters: Any) -> KNNShapley:
    """Fit a model to rows in a file."""
    batches = ((X[lo : lo + 10_000], y[lo : lo + 10_000]) for lo in range(0, len(y), 10_000))
    model = KNNShapley(method="certified", **parameters).fit(batches)
    assert isinstance(model._index.rows, RowFile)
    return model


def clouds(kind: str, n_train: int, n_val: int, seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    shape = (n_train + n_val, 300 if kind == "high dimension" else 3)
    X = rng.normal(size=shape)
    if kind == "one far cluster":
        X[: n_train // 3] += 1e6
    if kind == "duplicates":
        X = np.round(X)
    if kind == "all equal":
        X[:n_train] = 1.0
    if kind == "two distances":
        X[:n_train] = np.where(np.arange(n_train)[:, None] % 2, 0.0, 3.0)
    if kind == "sorted classes":
        X[:n_train] = np.sort(X[:n_train], axis=0)
    y = rng.integers(0, 3, n_train + n_val)
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def coarse(monkeypatch: pytest.MonkeyPatch, first: int, buckets: int) -> None:
    """Use so many buckets behind so many exact ranks, whatever is asked for."""
    monkeypatch.setattr(certified, "choose_coarseness", lambda n_rows, limit: Coarseness(min(first, n_rows), buckets))


def both(kind: str, n_train: int, n_val: int, *, seed: int = 0, **parameters: Any) -> tuple[Any, Any]:
    X, y, X_val, y_val = clouds(kind, n_train, n_val, seed)
    exact = KNNShapley(**parameters).fit(X, y).value(X_val, y_val)
    approximate = fit(X, y, tol=NO_LIMIT, **parameters).value(X_val, y_val)
    return exact, approximate


SEMIVALUES = ["shapley", "banzhaf", "loo", "calibrated", "filled", Beta(4, 1), Beta(1, 4), Banzhaf(0.1)]


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("n_neighbors", [1, 5, 40, 2000])
def test_the_error_is_within_the_bound(
    monkeypatch: pytest.MonkeyPatch, semivalue: Any, utility: str, n_neighbors: int
) -> None:
    coarse(monkeypatch, 30, 60)
    for kind in ("plain", "duplicates", "one far cluster"):
        exact, approximate = both(kind, 1000, 20, semivalue=semivalue, utility=utility, n_neighbors=n_neighbors)
        assert (np.abs(approximate.values - exact.values) <= approximate.error_bound).all()


@pytest.mark.parametrize(
    "kind", ["plain", "high dimension", "one far cluster", "duplicates", "all equal", "two distances", "sorted classes"]
)
@pytest.mark.parametrize(("first", "buckets"), [(8, 20), (50, 400), (1, 3)])
@pytest.mark.parametrize("ties", ["average", "index"])
def test_hard_distances_cost_time_and_not_accuracy(
    monkeypatch: pytest.MonkeyPatch, kind: str, first: int, buckets: int, ties: str
) -> None:
    coarse(monkeypatch, first, buckets)
    exact, approximate = both(kind, 700, 30, ties=ties)
    assert (np.abs(approximate.values - exact.values) <= approximate.error_bound).all()


def test_buckets_are_really_used_and_bounds_are_not_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    # With bounds of zero or infinity, or with the exact path, every other test here would pass.
    coarse(monkeypatch, 30, 200)
    exact, approximate = both("plain", 3000, 40, n_neighbors=3)
    error = np.abs(approximate.values - exact.values)
    assert error.max() > 1e-7
    assert approximate.error_bound.max() < 100 * error.max()
    assert np.ptp(approximate.error_bound) > 0


@settings(max_examples=60, deadline=None)
@given(
    n_train=st.integers(2, 300),
    n_val=st.integers(1, 20),
    n_neighbors=st.integers(1, 12),
    first=st.integers(1, 40),
    buckets=st.integers(3, 80),
    step=st.sampled_from([0.0, 0.25, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_no_data_breaks_the_bound(
    n_train: int, n_val: int, n_neighbors: int, first: int, buckets: int, step: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    X, X_val = rng.standard_cauchy((n_train, 2)), rng.standard_cauchy((n_val, 2))
    if step:
        X, X_val = np.round(X / step) * step, np.round(X_val / step) * step
    y, y_val = rng.integers(0, 4, n_train), rng.integers(0, 4, n_val)
    y[0] = 0
    y_val = np.where(np.isin(y_val, y), y_val, 0)
    exact = KNNShapley(n_neighbors).fit(X, y).value(X_val, y_val)
    with pytest.MonkeyPatch.context() as patch:
        coarse(patch, first, buckets)
        approximate = fit(X, y, n_neighbors=n_neighbors, tol=NO_LIMIT).value(X_val, y_val)
    assert (np.abs(approximate.values - exact.values) <= approximate.error_bound).all()


def test_the_bound_of_one_bucket_holds_for_every_order() -> None:
    # Against the definition, with no kernel but the one under test: all orders of 3 matches among 6 rows, on the ranks
    # 4..9 of 12, as one bucket between four nearer rows and three farther ones.
    n, matches = 6, 3
    c = rank_table(13, 2, "shapley", "hard").c
    lo, hi = 4, 10
    curve: Curve = certified.rank_curve(c)
    rules = Rules(3, 1.0, 1.0, 1, 2.0**30, 2.0**20, 28)
    histogram = np.array([4, 0, n - matches, matches, 3, 0], dtype=np.uint32)
    table = np.zeros(6, dtype=np.int64)
    done, passed_on = fill_table(curve, rules, 0.0, 1.0, histogram, table)
    assert done
    value, bound = (table >> 28) / 2.0**30, (table & (2**28 - 1)) / 2.0**20
    passed, worst = [], {0: 0.0, 1: 0.0}
    for places in itertools.combinations(range(lo, hi), matches):
        match = np.isin(np.arange(lo, hi), places).astype(float)
        steps = match * (c[lo:hi] - c[lo - 1 : hi - 1])
        behind = np.append(np.cumsum(steps[::-1])[::-1][1:], 0.0)
        values = match * c[lo:hi] + behind
        for kind in (0, 1):
            worst[kind] = max(worst[kind], np.abs(values[match == kind] - value[2 + kind]).max())
        passed.append(steps.sum())
    unit = 2.0**-20 + 2.0**-30
    assert worst[0] <= bound[2] <= 2 * worst[0] + unit
    assert worst[1] <= bound[3] <= 2 * worst[1] + unit
    assert np.mean(passed) == pytest.approx(passed_on)
    off = np.abs(np.array(passed) - passed_on).max()
    assert off <= bound[0] <= 3 * off + unit


def test_the_default_keeps_its_promise_with_buckets() -> None:
    X, y, X_val, y_val = clouds("plain", 60_000, 80)
    exact = KNNShapley().fit(X, y).value(X_val, y_val)
    model = fit(X, y)
    approximate = model.value(X_val, y_val)
    assert approximate.parameters["algorithm"] == "certified"
    assert approximate.parameters["buckets"] > 0
    assert approximate.parameters["exact_ranks"] < 20_000
    assert approximate.error_bound.max() <= 1e-3 * exact.values.std()
    error = np.abs(approximate.values - exact.values)
    assert 0 < error.max() <= approximate.error_bound.max()
    assert (error <= approximate.error_bound).all()
    # Ten times as strict, and it refines.
    strict = fit(X, y, tol=1e-4).value(X_val, y_val)
    assert strict.error_bound.max() <= 1e-4 * exact.values.std()


def test_it_refines_until_the_limit_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def too_coarse_at_first(n_rows: int, limit: float) -> Coarseness | None:
        tried.append(limit)
        return Coarseness(20, 30) if len(tried) < 3 else Coarseness(1500, 4000)

    monkeypatch.setattr(certified, "choose_coarseness", too_coarse_at_first)
    X, y, X_val, y_val = clouds("plain", 4000, 30)
    found = fit(X, y, tol=0.05).value(X_val, y_val)
    assert len(tried) == 3
    assert tried[0] > tried[1] > tried[2]
    assert found.error_bound.max() <= 0.05 * found.values.std()


def test_values_that_are_all_equal_end_exact() -> None:
    # Their standard deviation is zero, so no bound above zero will do.
    X = np.zeros((50, 2))
    found = fit(X, np.arange(50) % 2).value(X[:4], [0, 1, 0, 1])
    np.testing.assert_array_equal(
        found.values, KNNShapley().fit(X, np.arange(50) % 2).value(X[:4], [0, 1, 0, 1]).values
    )
    assert found.error_bound.max() < 1e-12


def test_order_of_rows_threads_and_memory_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse(monkeypatch, 40, 150)
    X, y, X_val, y_val = clouds("duplicates", 3000, 70)
    groups = np.arange(70) % 3
    want = fit(X, y, tol=NO_LIMIT).value(X_val, y_val, groups=groups)
    for parameters in ({"n_jobs": 2}, {"max_memory": "8MB"}):
        found = fit(X, y, tol=NO_LIMIT, **parameters)
        np.testing.assert_array_equal(found.value(X_val, y_val, groups=groups).values, want.values)
    shuffle = np.random.default_rng(1).permutation(3000)
    found = fit(X[shuffle], y[shuffle], tol=NO_LIMIT).value(X_val, y_val, groups=groups)
    np.testing.assert_array_equal(found.values, want.values[shuffle])
    np.testing.assert_array_equal(found.error_bound, want.error_bound[shuffle])
    np.testing.assert_array_equal(found.group_means, want.group_means[:, shuffle])


def test_groups_and_neighbours_agree_with_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    coarse(monkeypatch, 40, 150)
    X, y, X_val, y_val = clouds("plain", 2000, 50)
    groups = np.array(["a", "b"])[np.arange(50) % 2]
    reference = np.random.default_rng(0).integers(0, 2000, size=(50, 3))
    exact, around = KNNShapley().fit(X, y).value_and_neighbors(X_val, y_val, reference=reference)
    model = fit(X, y, tol=NO_LIMIT)
    found, near = model.value_and_neighbors(X_val, y_val, groups=groups, reference=reference)
    np.testing.assert_array_equal(near.nearest, around.nearest)
    np.testing.assert_array_equal(near.reference_ranks, around.reference_ranks)
    np.testing.assert_array_equal(found.entropy, exact.entropy)
    np.testing.assert_allclose(found.group_means.mean(axis=0), found.values, rtol=0, atol=1e-9)


@pytest.mark.parametrize("metric", ["manhattan", "cosine"])
def test_every_metric_is_certified(monkeypatch: pytest.MonkeyPatch, metric: str) -> None:
    coarse(monkeypatch, 40, 150)
    X, y, X_val, y_val = clouds("plain", 1500, 20)
    exact = KNNShapley(metric=metric).fit(X, y).value(X_val, y_val)
    found = fit(X, y, metric=metric, tol=NO_LIMIT).value(X_val, y_val)
    assert (np.abs(found.values - exact.values) <= found.error_bound).all()


@pytest.mark.parametrize("kind", ["plain", "duplicates", "one far cluster"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine", "precomputed", "sparse"])
def test_values_of_rows_in_memory_are_exact(kind: str, metric: str) -> None:
    X, y, X_val, y_val = clouds(kind, 3000, 20)
    if metric == "precomputed":
        X, X_val = None, np.abs(X_val[:, None, :] - X[None]).sum(axis=2)
    if metric == "sparse":
        metric, X, X_val = "euclidean", sparse.csr_array(np.maximum(X, 0)), sparse.csr_array(np.maximum(X_val, 0))
    exact = KNNShapley(metric=metric).fit(X, y).value(X_val, y_val, matrix=True)
    found = KNNShapley(metric=metric, method="certified", tol=1e9).fit(X, y).value(X_val, y_val, matrix=True)
    for name in ("values", "matrix", "standard_error", "entropy"):
        assert getattr(found, name).tobytes() == getattr(exact, name).tobytes(), name
    assert not found.error_bound.any()
    assert found.parameters["buckets"] == 0
    assert found.parameters["exact_ranks"] == 3000


def test_coarseness_follows_the_limit() -> None:
    loose, strict = choose_coarseness(10**6, 1e-7), choose_coarseness(10**6, 1e-8)
    assert loose is not None
    assert strict is not None
    assert strict.buckets * strict.first > 5 * loose.buckets * loose.first
    assert choose_coarseness(10**6, 1e-13) is None
    assert choose_coarseness(10**6, 0.0) is None
    assert choose_coarseness(100, 1e-3) is None


@pytest.mark.parametrize("tol", [-1.0, float("nan"), "1e-3", True])
def test_a_bad_tolerance_is_refused(tol: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=r"'tol' parameter of KNNShapley must be a finite number"):
        KNNShapley(method="certified", tol=tol).fit([[0.0], [1.0]], [0, 1])


def test_an_unknown_method_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'method' parameter of KNNShapley must be one of"):
        KNNShapley(method="fast").fit([[0.0], [1.0]], [0, 1])


@pytest.mark.parametrize("n_rows", [1000, 2**20, 2**27 + 1, 2**30])
@pytest.mark.parametrize("max_memory", [None, 2**45])
def test_a_tile_has_a_point_however_many_rows_there_are(n_rows: int, max_memory: int | None) -> None:
    few = rank_table(1000, 5, "shapley", "soft")
    task = class_task(
        np.broadcast_to(np.int32(0), n_rows),  # one number in memory
        np.zeros(100, dtype=np.int32),
        2,
        RankTable(np.broadcast_to(0.0, n_rows), few.per_match, few.empty),
        average_ties=True,
        fill=lambda here, rows, tile: None,
    )
    plan = runner.plan_blocks(Exact(task), runner.Runner(2, max_memory))
    assert min(plan.batch, plan.block, plan.workers, plan.wave) >= 1


@pytest.mark.parametrize("checked", [False, True], ids=["compiled", "checked"])
def test_no_rank_beyond_the_table_is_read(checked: bool) -> None:
    # An empty last bucket begins behind the last rank, and two entries from there on are looked at. NumPy checks every
    # index, and so does the compiled kernel in `make test-bounds`.
    c = rank_table(7, 2, "shapley", "soft").c
    histogram = np.array([3, 0, 2, 2, 0, 0], dtype=np.uint32)
    tables = []
    for part in (slice(None), slice(4)):  # with the empty bucket and without it
        table = np.zeros((histogram[part].size, 2), dtype=np.int64)
        rules = Rules(table.shape[0] // 2, 1.0, 1.0, 1, 2.0**30, 2.0**20, 2.0**40)
        fill = getattr(fill_table, "py_func", fill_table) if checked else fill_table
        assert fill(rank_curve(c), rules, 0.0, 1.0, histogram[part], table)[0]
        tables.append(table)
    np.testing.assert_array_equal(tables[0][:4], tables[1])
