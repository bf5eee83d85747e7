"""Truncated values: against enumeration with the far rows tied, and within their bound of the exact ones."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import naive
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shapshift import Banzhaf, Beta, KNNShapley, Valuation
from shapshift.engine import truncated as module
from shapshift.engine.coefficients import rank_table
from shapshift.engine.rows.distances import index_rows, tile_filler
from shapshift.engine.search import cut_lists, exact_search
from shapshift.engine.truncated import ranks_needed
from shapshift.kernels.nearest import Lists
from shapshift.kernels.rank import Batch, Rule
from shapshift.kernels.truncated import ListValues, truncated_values

SEMIVALUES = ["shapley", "banzhaf", "loo", "calibrated", Beta(4, 1), Beta(1, 4), Beta(0.5, 2), Banzhaf(0.1)]
UTILITIES = ["soft", "hard"]


@pytest.fixture(autouse=True, scope="module")
def truncate_few_rows() -> Iterator[None]:
    """Few rows are otherwise all sorted."""
    with patch.object(module, "SORT_SHARE", 1.0):
        yield


def naive_name(semivalue: str | Beta | Banzhaf) -> naive.Semivalue:
    if isinstance(semivalue, Banzhaf):
        return ("banzhaf", semivalue.w)
    return ("beta", semivalue.alpha, semivalue.beta) if isinstance(semivalue, Beta) else semivalue


# --- the table ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("utility", UTILITIES)
def test_every_table_falls(semivalue: str | Beta, utility: str) -> None:
    # The bound rests on this.
    for n_rows, k in itertools.product((1, 2, 3, 4, 5, 7, 12, 40, 3_000), (1, 2, 3, 5, 8, 50)):
        assert np.diff(rank_table(n_rows, k, semivalue, utility).c).max(initial=0.0) <= 1e-15


@pytest.mark.parametrize("tol", [0.3, 0.05, 0.01, 1e-3, 1e-6])
@pytest.mark.parametrize("k", [1, 5, 30])
@pytest.mark.parametrize("n_rows", [20, 5_000])
def test_shapley_needs_no_more_rows_than_published(n_rows: int, k: int, tol: float) -> None:
    found = ranks_needed(rank_table(n_rows, k, "shapley", "hard"), tol)
    assert found <= min(max(k, math.ceil(1 / tol)), n_rows)
    drops = [1 / max(k, rank) - 1 / max(k, n_rows) for rank in range(1, n_rows + 1)]
    assert found == next(rank for rank, drop in enumerate(drops, 1) if drop <= tol + 1e-15)
    assert found == ranks_needed(rank_table(n_rows, k, "shapley", "soft"), tol)


def test_leave_one_out_needs_one_row_beyond_the_voters() -> None:
    assert ranks_needed(rank_table(1_000, 5, "loo", "soft"), 1e-12) == 6


# --- the bound, over all orders -------------------------------------------------------------------------------------


def worth(c: np.ndarray, matches: np.ndarray) -> np.ndarray:
    """The formula, with beta left out: one value per rank."""
    drops = np.diff(c)
    later = [float(sum(drops[j - 1] for j in range(r + 1, c.size) if matches[j])) for r in range(c.size)]
    return matches * c + np.array(later)


def one_point(
    c: np.ndarray, head: np.ndarray, m: int, certain: int | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of the head, of other and matching rows behind, and bounds, from the kernel."""
    n, t = c.size, head.size
    codes = np.concatenate([head, np.arange(n - t) < m]).astype(np.int32)
    ends, rows, sure = np.array([0, t]), np.arange(t), np.array([t if certain is None else certain])
    lists = Lists(ends, rows, np.arange(t, dtype=float), sure, np.empty((1, 0)))
    batch = Batch(np.array([1], dtype=np.int32), np.zeros(1), np.empty((1, 0), dtype=np.int64))
    values = ListValues(ends, rows, np.empty(t), np.empty((1, 2)), np.empty((1, 3)), np.empty(1))
    sizes, beyond = np.array([n - codes.sum(), codes.sum(), 0]), np.append(np.cumsum(c[::-1])[::-1], 0.0)
    truncated_values(lists, codes, batch, Rule(c, True, 1), sizes, beyond, values)
    return values.changes + values.tails[0, head.astype(int)], values.tails[0], values.bounds[0]


falling_tables = st.lists(st.floats(0, 1, width=32), min_size=2, max_size=9).map(
    lambda drops: np.cumsum(np.array(drops)[::-1])[::-1].copy()
)


@given(c=falling_tables, data=st.data())
def test_no_order_behind_the_list_errs_by_more_than_the_bound(c: np.ndarray, data: st.DataObject) -> None:
    n = c.size
    t = data.draw(st.integers(1, n))
    head = np.array(data.draw(st.lists(st.booleans(), min_size=t, max_size=t)))
    m = data.draw(st.integers(0, n - t))
    values, tails, bounds = one_point(c, head, m)
    worst, mean = np.zeros(3), np.zeros(t)
    arrangements = list(itertools.combinations(range(n - t), m))
    for places in arrangements:
        matches = np.concatenate([head, np.isin(np.arange(n - t), places)])
        true = worth(c, matches)
        errors = np.abs(np.where(matches[t:], tails[1], tails[0]) - true[t:])
        worst[2] = max(worst[2], np.abs(values - true[:t]).max())
        for kind in (0, 1):
            worst[kind] = max(worst[kind], errors[matches[t:] == kind].max(initial=0.0))
        mean += true[:t] / len(arrangements)
    assert (worst <= bounds + 1e-12).all()
    np.testing.assert_allclose(values, mean, atol=1e-12)
    # No bound is larger than what decides about K*, and none is idle: with one match each is met.
    assert bounds.max() <= c[t - 1] - c[-1] + 1e-12
    if m == 1:
        assert worst[1] == pytest.approx(bounds[1], abs=1e-12)


@pytest.mark.parametrize("step", range(5))
def test_lists_with_missing_rows_are_within_their_bound(step: int) -> None:
    # Every list of four rows, right or wrong, behind every number of rows that are certainly right.
    n = 4
    c = 1 / (1 + np.arange(n)) if step == n else np.where(np.arange(n) <= step, 1.0, 0.0)
    closest = np.inf
    for labels in itertools.product((False, True), repeat=n):
        matches = np.array(labels)
        true = worth(c, matches)
        for order in itertools.permutations(range(n)):
            head = next((place for place, row in enumerate(order) if place != row), n)
            for t, certain in itertools.product(range(1, n), range(head + 1)):
                if certain >= t:
                    continue
                listed, behind = list(order[:t]), list(order[t:])
                values, tails, bounds = one_point(c, matches[listed], int(matches[behind].sum()), certain)
                assert (np.abs(values - true[listed]) <= bounds[2] + 1e-12).all()
                for row in behind:
                    kind = int(matches[row])
                    assert abs(tails[kind] - true[row]) <= bounds[kind] + 1e-12
                    closest = min(closest, bounds[kind] - abs(tails[kind] - true[row]))
    assert closest < 1e-12, "a bound that is never met could be smaller"


# --- whole valuations -----------------------------------------------------------------------------------------------


@st.composite
def cases(draw: st.DrawFn, most: int = 10) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Points on a line of few places, so that ties are common, also across the last rank that is looked at."""
    n_rows, n_val = draw(st.integers(1, most)), draw(st.integers(1, 3))
    places = st.integers(0, draw(st.sampled_from([0, 3, 40])))
    X = np.array(draw(st.lists(places, min_size=n_rows, max_size=n_rows)), dtype=float)[:, None]
    X_val = np.array(draw(st.lists(places, min_size=n_val, max_size=n_val)), dtype=float)[:, None]
    y = np.array(draw(st.lists(st.integers(0, 2), min_size=n_rows, max_size=n_rows)))
    y_val = np.array(draw(st.lists(st.sampled_from(sorted(set(y.tolist()))), min_size=n_val, max_size=n_val)))
    return X, y, X_val, y_val


Case = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def value(case: Case, **options: object) -> Valuation:
    X, y, X_val, y_val = case
    return KNNShapley(progress=False, **options).fit(X, y).value(X_val, y_val, matrix=True)


@given(
    case=cases(),
    k=st.integers(1, 12),
    semivalue=st.sampled_from(SEMIVALUES),
    utility=st.sampled_from(UTILITIES),
    ties=st.sampled_from(["average", "index"]),
)
def test_far_rows_are_one_tie_group(case: Case, k: int, semivalue: str | Beta, utility: str, ties: str) -> None:
    X, y, X_val, y_val = case
    found = value(case, n_neighbors=k, semivalue=semivalue, utility=utility, ties=ties, method="truncated", tol=0.9)
    n_nearest = found.parameters["exact_ranks"]
    assert n_nearest == min(5, y.size)  # as many as the boundary needs, at such a tolerance
    for p, distances in enumerate(naive.distance_matrix(X_val, X, "euclidean")):
        order = np.argsort(distances, kind="stable")
        near = distances <= distances[order[n_nearest - 1]]
        ranks = np.empty(y.size)
        ranks[order] = np.arange(y.size)
        if ties == "index":
            near, distances = ranks < n_nearest, ranks
        expected = naive.knn_values(
            np.where(near, distances, np.inf).tolist(),
            (y == y_val[p]).tolist(),
            n_neighbors=k,
            utility=utility,
            semivalue=naive_name(semivalue),
            n_classes=len(set(y.tolist())),
            ties="average",
        )
        np.testing.assert_allclose(found.matrix[:, p], expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.values, found.matrix.mean(axis=1), rtol=0, atol=1e-14)


@given(
    case=cases(most=40),
    k=st.integers(1, 12),
    semivalue=st.sampled_from(SEMIVALUES),
    utility=st.sampled_from(UTILITIES),
    ties=st.sampled_from(["average", "index"]),
    tol=st.sampled_from([0.5, 0.1, 0.04, 0.01]),
)
def test_the_error_is_within_bound_and_tolerance(
    case: Case, k: int, semivalue: str | Beta, utility: str, ties: str, tol: float
) -> None:
    options = {"n_neighbors": k, "semivalue": semivalue, "utility": utility, "ties": ties}
    exact, found = value(case, **options), value(case, **options, method="truncated", tol=tol)
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-14).all()
    assert found.error_bound.max() <= tol + 1e-14
    assert np.abs(found.matrix - exact.matrix).max() <= tol + 1e-14
    assert np.array_equal(found.entropy, exact.entropy)
    assert np.array_equal(found.boundary, exact.boundary)
    assert np.array_equal(found.level_counts, exact.level_counts)
    if found.parameters["exact_ranks"] == exact.n_train:
        assert found.values.tobytes() == exact.values.tobytes()
        assert not found.error_bound.any()


def larger_case(n_rows: int = 3_000, n_val: int = 150) -> Case:
    rng = np.random.default_rng(3)
    X, X_val = np.round(rng.normal(size=(n_rows, 3)), 1), np.round(rng.normal(size=(n_val, 3)), 1)
    return X, rng.integers(0, 3, size=n_rows), X_val, rng.integers(0, 3, size=n_val)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
@pytest.mark.parametrize("ties", ["average", "index"])
def test_groups_levels_and_neighbours_are_those_of_the_exact_order(metric: str, ties: str) -> None:
    X, y, X_val, y_val = larger_case()
    reference = np.random.default_rng(0).integers(0, y.size, size=(y_val.size, 4))
    made = []
    for options in ({}, {"method": "truncated", "tol": 0.02}):
        model = KNNShapley(7, metric=metric, ties=ties, progress=False, **options).fit(X, y)
        groups = np.arange(y_val.size) % 4
        made.append(model.value_and_neighbors(X_val, y_val, groups=groups, reference=reference))
    (exact, near), (found, near_found) = made
    assert np.array_equal(near.nearest, near_found.nearest)
    assert np.array_equal(near.reference_ranks, near_found.reference_ranks)
    assert (found.group_names, found.group_sizes) == (exact.group_names, exact.group_sizes)
    assert np.array_equal(found.level_entropy, exact.level_entropy)
    assert np.abs(found.group_means - exact.group_means).max() <= 0.02
    assert np.abs(found.level_values - exact.level_values).max() <= 0.02
    weights = found.level_counts / y_val.size
    np.testing.assert_allclose(weights @ found.level_values, found.values, rtol=0, atol=1e-16)
    np.testing.assert_allclose(
        found.group_sizes / np.float64(y_val.size) @ found.group_means, found.values, rtol=0, atol=1e-16
    )


@pytest.mark.parametrize("search", ["exact", "lsh"])
def test_rows_that_a_point_does_not_see(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shapshift.engine.search.lsh.SCAN", 1e4)  # so that there is hashing
    X, y, _, _ = larger_case()
    own = np.where(np.arange(100) % 3, np.arange(100), -1)
    exact = KNNShapley(progress=False).fit(X, y).value(X[:100], y[:100], exclude=own, matrix=True)
    model = KNNShapley(progress=False, method="truncated", tol=0.02, search=search).fit(X, y)
    found = model.value(X[:100], y[:100], exclude=own, matrix=True)
    assert np.abs(found.matrix - exact.matrix).max() <= 0.02
    assert np.array_equal(found.entropy, exact.entropy)


def test_row_order_changes_nothing() -> None:
    X, y, X_val, y_val = larger_case()
    shuffled = np.random.default_rng(1).permutation(y.size)
    options = {"method": "truncated", "tol": 0.02}
    found = value((X, y, X_val, y_val), **options)
    other = value((X[shuffled], y[shuffled], X_val, y_val), **options)
    assert np.array_equal(found.values[shuffled], other.values)
    assert np.array_equal(found.error_bound[shuffled], other.error_bound)


@pytest.mark.parametrize("search", ["exact", "lsh"])
def test_workers_memory_and_blocks_change_nothing(search: str, monkeypatch: pytest.MonkeyPatch) -> None:
    case = larger_case()
    options = {"method": "truncated", "tol": 0.02, "search": search}
    monkeypatch.setattr("shapshift.engine.search.lsh.SCAN", 1e4)  # so that there is hashing
    found = value(case, **options)
    for changed in ({"n_jobs": 3}, {"max_memory": "12MB", "n_jobs": 2}):
        other = value(case, **options, **changed)
        assert found.values.tobytes() == other.values.tobytes()
        assert found.error_bound.tobytes() == other.error_bound.tobytes()
        assert dict(found.parameters) == dict(other.parameters)
    monkeypatch.setattr(module, "BLOCK_POINTS", 7)
    assert found.values.tobytes() == value(case, **options).values.tobytes()


def test_a_budget_that_is_too_small_is_refused() -> None:
    with pytest.raises(ValueError, match=r"max_memory.*at least .*MB.*matrix=True.*Got 1MB"):
        value(larger_case(), method="truncated", max_memory="1MB")


def test_a_label_that_no_row_has() -> None:
    X, y, X_val, _ = larger_case()
    labels = np.full(X_val.shape[0], 9)
    with pytest.warns(UserWarning, match="9"):
        exact = value((X, y, X_val, labels))
    with pytest.warns(UserWarning, match="9"):
        found = value((X, y, X_val, labels), method="truncated")
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-14)
    assert not found.error_bound.any()


def test_one_class_is_exact() -> None:
    X, y, X_val, y_val = larger_case()
    exact, found = (value((X, y * 0, X_val, y_val * 0), **options) for options in ({}, {"method": "truncated"}))
    np.testing.assert_allclose(found.values, exact.values, rtol=1e-12)
    assert found.error_bound.max() < 1e-15


@pytest.mark.parametrize("search", ["exact", "lsh"])
def test_all_rows_equally_far(search: str) -> None:
    # The tie at the last rank holds everything, so nothing is behind it.
    _, y, _, y_val = larger_case()
    same = np.ones((y.size, 2)), y, np.zeros((y_val.size, 2)), y_val
    found = value(same, method="truncated", tol=0.02, search=search)
    np.testing.assert_allclose(found.values, value(same).values, rtol=0, atol=1e-17)
    assert not found.error_bound.any()


def test_precomputed_and_sparse_rows() -> None:
    from scipy import sparse

    X, y, X_val, y_val = larger_case(400, 20)
    found = value((X, y, X_val, y_val), method="truncated", tol=0.05)
    distances = np.empty((20, 400))
    tile_filler(index_rows(X, "euclidean"), X_val)(slice(0, 20), slice(0, 400), distances)
    given_distances = value((X, y, distances, y_val), metric="precomputed", method="truncated", tol=0.05)
    assert np.array_equal(given_distances.values, found.values)
    thin = value((sparse.csr_array(X), y, sparse.csr_array(X_val), y_val), method="truncated", tol=0.05)
    assert np.array_equal(thin.values, found.values)


def test_many_of_the_rows_is_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SORT_SHARE", 1 / 16)
    exact, found = value(larger_case()), value(larger_case(), method="truncated", search="lsh")
    assert found.parameters["exact_ranks"] == exact.n_train
    assert found.values.tobytes() == exact.values.tobytes()
    assert not found.error_bound.any()


def test_what_was_done_is_told_and_saved(tmp_path: Path) -> None:
    found = value(larger_case(), method="truncated", tol=0.02)
    told = found.parameters
    assert (told["method"], told["algorithm"], told["search"]) == ("KNNShapley", "truncated", "exact")
    assert told["exact_ranks"] == ranks_needed(rank_table(3_000, 5, "shapley", "soft"), told["tol"])
    assert value(larger_case(), method="truncated").parameters["tol"] == 1e-3
    assert not {"tol", "search", "exact_ranks"} & value(larger_case()).parameters.keys()
    found.save(tmp_path / "v")
    again = Valuation.load(tmp_path / "v")
    assert dict(again.parameters) == dict(found.parameters)
    assert np.array_equal(again.error_bound, found.error_bound)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "quick"}, r"'method' parameter.*'exact'.*'truncated'.*'quick'"),
        ({"search": "ann"}, r"'search' parameter.*'exact' with method='exact'.*truncated.*Got 'ann'"),
        ({"search": "lsh", "method": "certified"}, r"'search' parameter.*'exact' with method='certified'"),
        ({"method": "truncated", "search": "tree"}, r"'search' parameter.*'exact'.*'ann'.*'lsh'.*'tree'"),
        ({"method": "truncated", "tol": -1e-3}, r"'tol' parameter.*at least 0.*Got -0.001"),
        ({"method": "truncated", "tol": math.nan}, r"'tol' parameter"),
        ({"method": "truncated", "search": "lsh", "metric": "precomputed"}, r"'search'.*'exact'.*precomputed"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KNNShapley(**options).fit([[0.0], [1.0]], [0, 1])


# --- selection ------------------------------------------------------------------------------------------------------


@given(
    data=st.data(),
    n=st.integers(1, 60),
    places=st.sampled_from([1, 4, 1_000]),
    whole=st.booleans(),
)
def test_the_nearest_are_selected_in_order(data: st.DataObject, n: int, places: int, whole: bool) -> None:
    row = np.array(data.draw(st.lists(st.integers(0, places), min_size=n, max_size=n)), dtype=float)
    wanted = data.draw(st.integers(1, n))
    check_selection(row, wanted, whole)


@pytest.mark.parametrize("order", ["random", "rising", "falling", "two places", "the sample misleads"])
@pytest.mark.parametrize("wanted", [1, 40, 700, 9_000])
@pytest.mark.parametrize("whole", [True, False])
def test_long_rows_are_selected_whatever_their_order(order: str, wanted: int, whole: bool) -> None:
    rng = np.random.default_rng(0)
    row = np.round(rng.random(40_000) * 5_000)
    row = {
        "random": row,
        "rising": np.sort(row),
        "falling": np.sort(row)[::-1],
        "two places": np.where(row < 100, 0.0, 1.0),
        "the sample misleads": row + 1,
    }[order].copy()
    if order == "the sample misleads":
        row[:256] = 0.0
    check_selection(row, wanted, whole)


def check_selection(row: np.ndarray, wanted: int, whole: bool) -> None:
    order = np.argsort(row, kind="stable")
    count = np.count_nonzero(row <= row[order[wanted - 1]]) if whole else wanted
    tile = np.vstack([row, row[::-1], row])

    def fill(here: slice, rows: slice, out: np.ndarray) -> None:
        out[:] = tile[here, rows]

    reference = np.array([[0], [row.size - 1], [row.size // 2]])
    lists = exact_search(fill, row.size, wanted, whole_ties=whole).find(0, 3, reference)
    for p in (0, 2):
        one = cut_lists(lists, slice(p, p + 1))
        assert one.rows.tolist() == order[:count].tolist()
        assert one.distances.tolist() == row[order[:count]].tolist()
    assert np.sort(cut_lists(lists, slice(1, 2)).distances).tolist() == row[order[:count]].tolist()
    assert lists.certain.tolist() == [count] * 3
    at = row[[0, 0, row.size // 2]]
    assert lists.ranks[:, 0].tolist() == [np.sum(row < x) + (np.sum(row == x) - 1) / 2 for x in at]


def test_a_budget_knows_of_lists_that_ties_make_long(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.integers(0, 2, size=(20_000, 2)).astype(float), rng.integers(0, 2, 20_000)
    X_val, y_val = X[:64] + 0.1, y[:64]
    plans: list[Any] = []
    make = module._plan_lists
    monkeypatch.setattr(module, "_plan_lists", lambda *a: plans.append((a[2], make(*a))) or plans[-1][1])
    values = [
        KNNShapley(method="truncated", tol=0.01, max_memory=budget, progress=False).fit(X, y).value(X_val, y_val).values
        for budget in (None, "12MB")
    ]
    np.testing.assert_array_equal(*values)
    (_, free), (longest, tight) = plans
    assert longest > 4000  # a quarter of the rows is at the same place
    assert 8 * 5 * longest * tight.block * tight.wave < 12e6
    assert tight.block < free.block
