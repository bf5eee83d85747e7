"""Rows that join class by class, against the enumeration of all orders, known totals and plain values."""

from __future__ import annotations

import datetime
import pickle
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pytest

from shapshift import Banzhaf, Beta, KNNShapley, Valuation
from shapshift.engine.precedence import precedence
from shapshift.exceptions import InputError

UTILITIES = ["soft", "hard"]
TIES = ["average", "index"]
SEMIVALUES = ["shapley", "banzhaf", Banzhaf(0.1), Banzhaf(0.9), Banzhaf(1)]


def valued(
    distances: Any, labels: Any, targets: Any, order: Any, *, n_neighbors: int = 3, **options: Any
) -> tuple[Valuation, np.ndarray]:
    """Valuation of given distances, and its values on each point, shape (n_val, n_train)."""
    model = KNNShapley(n_neighbors, metric="precomputed", **options).fit(None, labels)
    found = model.value(np.asarray(distances, dtype=float), targets, order=order, matrix=True)
    return found, found.matrix.T


def game(rng: np.random.Generator, n: int, n_val: int = 1, most: int = 5) -> tuple[Any, ...]:
    """Distances with many ties, labels, labels of the points, and classes of the rows."""
    labels = rng.integers(0, rng.integers(1, 4), n)
    distances = rng.integers(0, rng.integers(1, most + 1), (n_val, n))
    return distances, labels, rng.choice(labels, n_val), rng.integers(0, rng.integers(1, 4), n)


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    X, X_val = rng.normal(size=(150, 3)).round(1), rng.normal(size=(70, 3)).round(1)
    X[100:120] = X[:20]
    return X, (X[:, 0] > 0).astype(int), X_val, (X_val[:, 0] > 0).astype(int), rng.integers(0, 4, 150)


# --- against definitions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semivalue", SEMIVALUES, ids=str)
@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("utility", UTILITIES)
def test_values_are_those_of_all_orders_that_the_classes_allow(utility: str, ties: str, semivalue: Any) -> None:
    rng = np.random.default_rng(7)
    for n in (1, 2, 3, 4, 4, 5, 5, 6, 6, 7):
        n_neighbors = int(rng.integers(1, n + 3))
        distances, labels, targets, classes = game(rng, n)
        found = valued(
            distances,
            labels,
            targets,
            classes,
            n_neighbors=n_neighbors,
            utility=utility,
            ties=ties,
            semivalue=semivalue,
        )[1][0]
        groups, matches = naive.tie_groups(distances[0], ties), labels == targets[0]
        worth = naive.knn_utilities(groups, matches, n_neighbors, utility, np.unique(labels).size)
        if semivalue == "shapley":
            expected = naive.asymmetric_shapley(worth, classes)
        else:
            expected = naive.asymmetric_banzhaf(worth, classes, 0.5 if semivalue == "banzhaf" else semivalue.w)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-12)


def test_the_enumeration_of_one_class_is_the_shapley_value() -> None:
    worth = np.random.default_rng(0).normal(size=2**5)
    weights = naive.size_weights(5, 1, "shapley")
    np.testing.assert_allclose(naive.asymmetric_shapley(worth, [1] * 5), naive.semivalues(worth, weights), atol=1e-14)
    weights = naive.size_weights(5, 1, ("banzhaf", 0.3))
    np.testing.assert_allclose(naive.asymmetric_banzhaf(worth, [1] * 5, 0.3), naive.semivalues(worth, weights))
    assert naive.asymmetric_shapley(worth, [2, 1, 0, 3, 4])[2] == worth[4] - worth[0]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("utility", UTILITIES)
def test_each_class_is_paid_what_it_adds_to_the_earlier_ones(utility: str, ties: str) -> None:
    rng = np.random.default_rng(3)
    for n, n_neighbors, most in ((40, 5, 300), (60, 7, 4), (60, 45, 9), (30, 40, 1)):
        distances, labels, targets, _ = game(rng, n, most=most)
        classes = rng.integers(0, 5, n)
        found = valued(distances, labels, targets, classes, n_neighbors=n_neighbors, utility=utility, ties=ties)[1][0]
        groups, matches = naive.tie_groups(distances[0], ties), labels == targets[0]
        before = 0
        for of in range(5):
            now = before | sum(1 << int(row) for row in np.flatnonzero(classes == of))
            gain = [
                naive.expected_utility(subset, groups, matches, n_neighbors, utility, np.unique(labels).size)
                for subset in (before, now)
            ]
            assert found[classes == of].sum() == pytest.approx(gain[1] - gain[0], abs=1e-12)
            before = now


def test_splitting_a_class_into_later_ones_leaves_its_total() -> None:
    rng = np.random.default_rng(4)
    distances, labels, targets, classes = game(rng, 50, n_val=5, most=12)
    finer = 3 * classes + rng.integers(0, 3, 50)
    one, other = (valued(distances, labels, targets, order)[1] for order in (classes, finer))
    for of in np.unique(classes):
        np.testing.assert_allclose(one[:, classes == of].sum(axis=1), other[:, classes == of].sum(axis=1), atol=1e-13)
    assert np.abs(one - other).max() > 1e-3


@pytest.mark.parametrize("semivalue", ["shapley", Banzhaf(0.3)], ids=str)
def test_thousands_of_tied_rows(semivalue: Any) -> None:
    """All rows at one distance: only sizes count, and probabilities below the smallest float occur on the way."""
    n_neighbors, sizes = 600, (500, 2500)
    rng = np.random.default_rng(0)
    labels, classes = rng.integers(0, 2, sum(sizes)), np.repeat([0, 1], sizes)
    found = valued(
        np.ones((1, labels.size)), labels, [1], classes, n_neighbors=n_neighbors, semivalue=semivalue, utility="hard"
    )[1][0]
    matches, before, n = (labels[classes == 0] == 1).sum(), *sizes
    own, s = (labels[classes == 1] == 1).sum(), np.arange(n)
    chances = np.full(n, 1 / n)
    if semivalue != "shapley":
        stats = pytest.importorskip("scipy.stats")
        chances = stats.binom.pmf(s, n - 1, semivalue.w)
    for a in (0, 1):
        inside = matches + s * (own - a) / (n - 1)
        joined, absent = before + s + 1, before + s
        gain = (np.minimum(n_neighbors, joined) / joined * (inside + a)) - (
            np.minimum(n_neighbors, absent) / absent * inside
        )
        expected = chances @ gain / n_neighbors
        np.testing.assert_allclose(found[(classes == 1) & (labels == a)], expected, rtol=0, atol=1e-13)


# --- beside plain values --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("utility", UTILITIES)
@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", Banzhaf(0.05)], ids=str)
def test_one_class_has_plain_values(rows: Any, semivalue: Any, utility: str, ties: str) -> None:
    X, y, X_val, y_val, _ = rows
    model = KNNShapley(4, semivalue=semivalue, utility=utility, ties=ties).fit(X, y)
    asked = {"groups": np.arange(70) % 3, "point_weight": np.arange(70) % 4 + 1.0}
    plain, found = model.value(X_val, y_val, **asked), model.value(X_val, y_val, **asked, order=np.zeros(150))
    for name in ("values", "group_means", "level_values", "level_entropy", "entropy", "group_errors"):
        np.testing.assert_allclose(getattr(found, name), getattr(plain, name), rtol=1e-9, atol=1e-12, err_msg=name)
    np.testing.assert_allclose(found.interval(), plain.interval(), rtol=1e-9, atol=1e-12)
    assert np.array_equal(found.level_counts, plain.level_counts)
    assert found.parameters["order"]["classes"] == 1
    assert "order" not in plain.parameters


def test_rows_behind_the_seats_of_earlier_ones_are_worth_nothing() -> None:
    distances = [[1, 2, 3, 4, 5, 6, 0.5]]
    found = valued(distances, [1, 0, 0, 1, 0, 1, 1], [1], [0, 0, 0, 1, 1, 1, 1])[1][0]
    assert found[3:6].tolist() == [0, 0, 0]
    assert found[6] > 0


def test_a_copy_that_joins_later_takes_nothing_from_the_original() -> None:
    X, y = np.array([[0.0], [1.0], [2.0], [3.0]]), [1, 1, 0, 0]
    alone = KNNShapley(2).fit(X, y).value([[0.4]], [1])
    both = KNNShapley(2).fit(np.concatenate([X, X]), y * 2).value([[0.4]], [1], order=[0] * 4 + [1] * 4)
    np.testing.assert_allclose(both.values[:4], alone.values, atol=1e-15)


def test_the_order_of_the_table_changes_no_byte(rows: Any) -> None:
    X, y, X_val, y_val, classes = rows
    mixed = np.random.default_rng(5).permutation(150)
    found = KNNShapley(4).fit(X, y).value(X_val, y_val, order=classes)
    other = KNNShapley(4).fit(X[mixed], y[mixed]).value(X_val, y_val, order=classes[mixed])
    assert found.values[mixed].tobytes() == other.values.tobytes()


# --- ways to run ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("semivalue", ["shapley", Banzhaf(0.2)], ids=str)
def test_workers_memory_and_files_change_no_byte(rows: Any, semivalue: Any, tmp_path: Path) -> None:
    X, y, X_val, y_val, classes = rows
    X_val, y_val = np.tile(X_val, (4, 1)), np.tile(y_val, 4)
    np.save(tmp_path / "rows.npy", X)
    in_file = np.load(tmp_path / "rows.npy", mmap_mode="r")
    asked = {"order": classes, "groups": np.arange(280) % 2}
    first = KNNShapley(4, semivalue=semivalue).fit(X, y).value(X_val, y_val, **asked)
    for options, given in (
        ({"n_jobs": 3}, X),
        ({"max_memory": "3MB"}, X),
        ({"scratch": tmp_path}, in_file),
        ({"device": "auto"}, X),
    ):
        found = KNNShapley(4, semivalue=semivalue, **options).fit(given, y).value(X_val, y_val, **asked)
        assert found.values.tobytes() == first.values.tobytes(), options
        assert found.group_means.tobytes() == first.group_means.tobytes(), options


def test_the_method_travels_to_other_processes(rows: Any) -> None:
    X, y, X_val, y_val, classes = rows
    model = KNNShapley(4).fit(X, y)
    method = precedence(model._prepare(X_val, y_val, order=classes).task, 4, "shapley", "soft")
    other = pickle.loads(pickle.dumps(method))
    worker, points = other.worker(70), other.task.points(70)
    values = worker.values(slice(0, 70), points)
    np.testing.assert_allclose(values.mean(axis=0), model.value(X_val, y_val, order=classes).values, atol=1e-15)


def test_a_checkpoint_belongs_to_its_order(rows: Any, tmp_path: Path) -> None:
    X, y, X_val, y_val, classes = rows
    model = KNNShapley(4).fit(X, y)
    first = model.value(X_val, y_val, order=classes, checkpoint=tmp_path / "run")
    again = model.value(X_val, y_val, order=classes * 10, checkpoint=tmp_path / "run")
    assert first.values.tobytes() == again.values.tobytes()
    for order in (classes[::-1], None):
        with pytest.raises(InputError, match="order"):
            model.value(X_val, y_val, order=order, checkpoint=tmp_path / "run")


def test_results_are_saved_with_their_order(rows: Any, tmp_path: Path) -> None:
    X, y, X_val, y_val, classes = rows
    model = KNNShapley(4).fit(X, y)
    found = model.value(X_val, y_val, order=classes)
    assert found.parameters["order"]["classes"] == 4
    assert found.parameters["order"] != model.value(X_val, y_val, order=classes[::-1]).parameters["order"]
    found.save(tmp_path / "found.npz")
    assert Valuation.load(tmp_path / "found.npz").parameters == found.parameters


# --- what an order may be -------------------------------------------------------------------------------------------

DAYS = ["2024-02-01", "2023-12-31", "2024-02-01", "2024-10-05"]


@pytest.mark.parametrize(
    "order",
    [
        [5.5, -1, 5.5, 7],
        np.array([2, 1, 2, 3], dtype=np.uint8),
        np.array(DAYS, dtype="datetime64[D]"),
        np.array(DAYS, dtype="datetime64[ns]") + np.timedelta64(1, "ns"),
        [datetime.date.fromisoformat(day) for day in DAYS],
        DAYS,
        ("b", "a", "b", "c"),
        [(2024, 2), (2023, 12), (2024, 2), (2024, 10)],
    ],
    ids=["numbers", "small integers", "days", "nanoseconds", "dates", "ISO dates", "texts", "tuples"],
)
def test_smaller_entries_join_first(order: Any) -> None:
    X, y = [[0.0], [1.0], [2.0], [3.0]], [1, 1, 0, 0]
    model = KNNShapley(2).fit(X, y)
    expected = model.value([[0.4], [1.2]], [1, 0], order=[1, 0, 1, 2])
    found = model.value([[0.4], [1.2]], [1, 0], order=order)
    assert found.values.tolist() == expected.values.tolist()
    assert found.parameters == expected.parameters


def test_a_series_is_matched_by_its_index() -> None:
    pd = pytest.importorskip("pandas")
    X, y = pd.DataFrame({"x": [0.0, 1.0, 2.0, 3.0]}, index=list("abcd")), [1, 1, 0, 0]
    model = KNNShapley(2).fit(X, y)
    points = pd.DataFrame({"x": [0.4, 1.2]})
    expected = model.value(points, [1, 0], order=[1, 0, 1, 2]).values.tolist()
    stamps = pd.Series(pd.to_datetime(DAYS), index=list("abcd"))
    ranked = pd.Series(pd.Categorical(["later", "first", "later", "z"], ["first", "later", "z"], ordered=True))
    for order in (
        stamps.sample(frac=1, random_state=0),
        stamps.dt.tz_localize("UTC"),
        list(stamps),
        ranked.set_axis(list("abcd")),
    ):
        assert model.value(points, [1, 0], order=order).values.tolist() == expected
    with pytest.raises(InputError, match="index of 'order' must hold the ids of the training rows"):
        model.value(points, [1, 0], order=stamps.set_axis(list("abce")))
    with pytest.raises(InputError, match="missing entries: 1 of 4"):
        model.value(points, [1, 0], order=ranked.set_axis(list("abcd")).where(ranked.index.to_numpy() > 0))


@pytest.mark.parametrize(
    ("order", "message"),
    [
        ([1, 2, 3], "'order' must have one date, number or text for each of the 4 rows"),
        ([1, 2, 3, None], "missing entries: 1 of 4"),
        ([1, 2, 3, np.nan], "missing entries: 1 of 4"),
        (np.array([*DAYS[:3], "NaT"], dtype="datetime64[D]"), "missing entries: 1 of 4"),
        ([1, 2, 3, "4"], "'order' parameter .* can be compared with all others.*Use one kind"),
        (["9", "10", "11", "12"], "numbers as text, where '12' comes before '9'. Pass numbers"),
        ("date", "'order' parameter must hold a date, number or text for each of the 4 training rows. Got 'date'"),
        (3, "Got 3"),
        ([[1], [2], [3], [4]], "hashable|one column|compared"),
    ],
    ids=["short", "None", "NaN", "NaT", "mixed", "digits", "a name", "a number", "lists"],
)
def test_an_order_that_means_nothing_is_refused(order: Any, message: str) -> None:
    model = KNNShapley(2).fit([[0.0], [1.0], [2.0], [3.0]], [1, 1, 0, 0])
    with pytest.raises(InputError, match=message):
        model.value([[0.4]], [1], order=order)


@pytest.mark.parametrize(
    ("options", "asked", "message"),
    [
        ({"method": "truncated"}, {}, "'order' parameter of KNNShapley.value is for exact values. Got method='trunc"),
        ({"method": "certified"}, {}, "Got method='certified'"),
        ({"semivalue": "loo"}, {}, "must be 'shapley', 'banzhaf' or a Banzhaf.*Got 'loo' instead. Banzhaf\\(1\\)"),
        ({"semivalue": Beta(1, 1)}, {}, "'semivalue' parameter of KNNShapley must be .*Got Beta"),
        ({}, {"pool": "train"}, "'order' parameter does not go with 'pool'"),
        ({}, {"correction": object()}, "'order' parameter does not go with 'pool' or 'correction'"),
    ],
    ids=["truncated", "certified", "loo", "beta", "pool", "correction"],
)
def test_what_an_order_does_not_go_with(rows: Any, options: Any, asked: Any, message: str) -> None:
    X, y, X_val, y_val, classes = rows
    with pytest.raises(InputError, match=message):
        KNNShapley(3, **options).fit(X, y).value(X_val, y_val, order=classes, **asked)


def test_a_neighbour_graph_has_no_order() -> None:
    sparse = pytest.importorskip("scipy.sparse")
    model = KNNShapley(2, metric="precomputed").fit(None, [0, 1, 1])
    with pytest.raises(InputError, match="Got a sparse neighbour graph"):
        model.value(sparse.csr_array([[1.0, 2.0, 0.0]]), [1], order=[0, 1, 2])
