"""Values without a validation set, against games without the point's own row."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import naive
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import N_TRAIN, N_VAL, make_tables, run
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

from shapshift import (
    Beta,
    KNNProxy,
    KNNRegressionShapley,
    KNNShapley,
    SampledShapley,
    ThresholdKNNShapley,
    Valuation,
    WeightedKNNShapley,
    cross_value,
)

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@pytest.fixture(autouse=True)
def no_copies_warned() -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*rows have a copy")
        yield


def small(seed: int = 0, n: int = 6) -> tuple[Matrix, Matrix]:
    """Few rows, with ties, copies, and a label that occurs once."""
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, size=(n, 2)).astype(float)
    return X, np.array([0, 1, 0, 1, 1, 2, 0, 1])[:n]


def clouds(seed: int = 0, n: int = 60) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=n)
    return rng.normal(size=(n, 3)) + y[:, None], y


def enumerated(X: Matrix, y: Matrix, of_point: Callable[[Matrix, Matrix, Any], Matrix]) -> Matrix:
    """Value of each row on each point, NaN on its own; ``of_point`` knows the other rows only."""
    distances, n = naive.distance_matrix(X, X, "euclidean"), len(y)
    found = np.full((n, n), np.nan)
    for j in range(n):
        others = np.flatnonzero(np.arange(n) != j)
        found[others, j] = of_point(distances[j, others], y[others], y[j])
    return found


def refitted(model: Any, X: Matrix, y: Matrix, folds: Any = None, *, forward: bool = False) -> Matrix:
    """Value of each row on each point, by a model fitted on the rows that the point sees; NaN for the others."""
    n = len(y)
    folds = np.arange(n) if folds is None else np.asarray(folds)
    found = np.full((n, n), np.nan)
    for j in range(n):
        seen = np.flatnonzero(folds < folds[j] if forward else folds != folds[j])
        if seen.size:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found[seen, j] = clone(model).fit(X[seen], y[seen]).value(X[[j]], y[[j]]).values
    return found


def assert_means(valuation: Valuation, matrix: Matrix, atol: float = 1e-12) -> None:
    """Mean and variance over the points that see a row."""
    n_seen = (~np.isnan(matrix)).sum(axis=1)
    kept = n_seen > 0
    np.testing.assert_allclose(valuation.values, np.nanmean(matrix[kept], axis=1), atol=atol)
    whole = (valuation.level_counts @ valuation.level_values) / valuation.n_val
    np.testing.assert_allclose(whole, valuation.values, atol=1e-12)
    if valuation.variance is not None:
        units = valuation.sampling["units"]
        variance = np.nanvar(matrix[kept], axis=1, ddof=1) * units / n_seen[kept]
        np.testing.assert_allclose(valuation.variance, variance, atol=10 * atol)
        assert units == n_seen[kept].min()


# --- the game without the point's own row -----------------------------------------------------------------------------


@pytest.mark.parametrize("semivalue", ["shapley", "banzhaf", "loo", "calibrated", Beta(4, 1)], ids=str)
@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("ties", ["average", "index"])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_knn_values_are_those_of_the_other_rows(semivalue: Any, utility: str, ties: str, k: int) -> None:
    X, y = small()
    named = ("beta", semivalue.alpha, semivalue.beta) if isinstance(semivalue, Beta) else semivalue

    def of_point(distances: Matrix, labels: Matrix, label: Any) -> Matrix:
        game = {"n_neighbors": k, "utility": utility, "semivalue": named, "n_classes": len(set(labels)), "ties": ties}
        return naive.knn_values(distances, labels == label, **game)

    model = KNNShapley(k, utility=utility, semivalue=semivalue, ties=ties)
    assert_means(cross_value(model, X, y), enumerated(X, y, of_point))


@pytest.mark.parametrize("utility", ["soft", "hard"])
@pytest.mark.parametrize("baseline", ["mean", "zero", "published", 0.3])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_regression_values_are_those_of_the_other_rows(utility: str, baseline: Any, k: int) -> None:
    X, _ = small()
    y = np.array([0.5, -1.0, 2.0, 0.0, 1.5, 1.0])

    def of_point(distances: Matrix, targets: Matrix, target: float) -> Matrix:
        fill = {"mean": targets.mean(), "zero": 0.0, "published": 0.0}.get(baseline, baseline)
        empty = 0.0 if baseline == "published" else None
        groups = naive.tie_groups(distances, "average")
        return naive.shapley(naive.regression_utilities(groups, targets, target, k, utility, fill, empty))

    model = KNNRegressionShapley(k, utility=utility, baseline=baseline)
    assert_means(cross_value(model, X, y), enumerated(X, y, of_point))


@pytest.mark.parametrize("radius", [0.0, 1.0, 1.5, 1e300])
def test_threshold_values_are_those_of_the_other_rows(radius: float) -> None:
    X, y = small()

    def of_point(distances: Matrix, labels: Matrix, label: Any) -> Matrix:
        return naive.shapley(naive.threshold_utilities(np.sqrt(distances) <= radius, labels == label, len(set(labels))))

    assert_means(cross_value(ThresholdKNNShapley(radius), X, y), enumerated(X, y, of_point))


def nearness(distances: Matrix) -> Matrix:
    return 1 / (1 + distances)


@pytest.mark.parametrize("weights", ["inverse", "gaussian", nearness])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
@pytest.mark.parametrize("k", [1, 2, 9])
def test_weighted_values_are_those_of_the_other_rows(weights: Any, metric: str, k: int) -> None:
    X, y = small()
    model = WeightedKNNShapley(k, weights=weights, metric=metric)
    assert_means(cross_value(model, X * 1e6, y), refitted(model, X * 1e6, y))
    inverse = WeightedKNNShapley(k, weights="inverse", bits=3)

    def of_point(distances: Matrix, labels: Matrix, label: Any) -> Matrix:
        distances = np.sqrt(distances)  # they come squared, which is enough for their order
        nearest = distances.min()
        votes = np.where(distances == nearest, 1.0, nearest / np.maximum(distances, 1e-300))
        groups = naive.tie_groups(distances, "average")
        return naive.shapley(naive.weighted_utilities(groups, labels, np.rint(7 * votes).astype(int), label, k, 0.5))

    if weights == "inverse":
        assert_means(cross_value(inverse, X, y), enumerated(X, y, of_point))


@pytest.mark.parametrize(
    "model",
    [
        KNNShapley(3),
        KNNShapley(3, max_memory="8MB", n_jobs=2),
        KNNShapley(3, metric="cosine"),
        KNNShapley(3, metric="manhattan", semivalue="banzhaf"),
        KNNShapley(3, device="auto"),
        KNNShapley(3, method="truncated", tol=0.0),
        KNNRegressionShapley(3),
        ThresholdKNNShapley(1.5),
        WeightedKNNShapley(3),
    ],
    ids=repr,
)
def test_values_are_those_of_a_model_fitted_on_the_other_rows(model: Any) -> None:
    X, y = clouds()
    y = y.astype(float) if isinstance(model, KNNRegressionShapley) else y
    found = cross_value(model, X, y)
    assert_means(found, refitted(model, X, y))
    assert found.fingerprint == clone(model).fit(X, y).fingerprint_
    assert (found.n_train, found.n_val) == (60, 60)
    assert found.parameters["cross"]["rows_per_game"] == [59, 59]
    assert found.parameters["cross"]["points_per_row"] == [59, 59]


def test_entropies_are_those_of_the_other_rows() -> None:
    X, y = clouds()
    found = cross_value(KNNShapley(3), X, y).entropy
    distances = naive.distance_matrix(X, X, "euclidean")
    for j in range(60):
        others = np.flatnonzero(np.arange(60) != j)
        expected = naive.neighbor_entropy(distances[j, others], y[others].tolist(), "average")
        assert found[j] == pytest.approx(expected, abs=1e-12)


def test_bounds_hold() -> None:
    X, y = clouds(n=1500)
    exact = cross_value(KNNShapley(3), X, y)
    found = cross_value(KNNShapley(3, method="truncated", tol=0.02), X, y)
    assert found.error_bound.max() > 0
    assert (np.abs(found.values - exact.values) <= found.error_bound + 1e-15).all()
    assert found.variance.mean() == pytest.approx(exact.variance.mean(), rel=0.1)


def test_distances_can_be_given() -> None:
    X, y = clouds()
    distances = naive.distance_matrix(X, X, "euclidean")
    found = cross_value(KNNShapley(3, metric="precomputed"), distances, y)
    np.testing.assert_allclose(found.values, cross_value(KNNShapley(3), X, y).values, atol=1e-12)
    in_folds = cross_value(KNNShapley(3, metric="precomputed"), distances, y, groups=np.arange(60) % 7)
    np.testing.assert_allclose(
        in_folds.values, cross_value(KNNShapley(3), X, y, groups=np.arange(60) % 7).values, atol=1e-12
    )


def test_rows_can_stay_in_a_file(tmp_path: Path) -> None:
    X, y = clouds()
    table = pa.table({f"x{j}": X[:, j] for j in range(3)} | {"y": y})
    pq.write_table(table, tmp_path / "rows.parquet")
    expected = cross_value(KNNShapley(3), X, y)
    for options in ({}, {"method": "certified"}, {"method": "truncated", "tol": 0.0}):
        found = cross_value(KNNShapley(3, **options), tmp_path / "rows.parquet", "y")
        np.testing.assert_allclose(found.values, expected.values, atol=1e-12)
        assert found.fingerprint == expected.fingerprint
    with pytest.raises(ValueError, match=r"rows in memory.*Got a file"):
        cross_value(KNNShapley(3), tmp_path / "rows.parquet", "y", groups=np.arange(60) % 7)


def test_a_checkpoint_is_resumed(tmp_path: Path) -> None:
    X, y = clouds()
    first, again = (cross_value(KNNShapley(3), X, y, checkpoint=tmp_path / "run") for _ in range(2))
    np.testing.assert_array_equal(first.values, again.values)
    np.testing.assert_array_equal(first.values, cross_value(KNNShapley(3), X, y).values)
    assert list((tmp_path / "run").iterdir())


# --- folds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [KNNShapley(3), KNNRegressionShapley(3), ThresholdKNNShapley(1.5), WeightedKNNShapley(3)], ids=repr
)
def test_no_point_sees_its_own_group(model: Any) -> None:
    X, y = clouds()
    groups = np.array(["a", "b", "c", "d", "e"])[np.arange(60) % 5]
    y = y.astype(float) if isinstance(model, KNNRegressionShapley) else y
    found = cross_value(model, X, y, groups=groups)
    matrix = refitted(model, X, y, np.arange(60) % 5)
    np.testing.assert_allclose(found.values, np.nanmean(matrix, axis=1), atol=1e-12)
    # Groups are the sample: the spread of their sums, scaled to means.
    sums = np.stack([np.nansum(matrix[:, groups == name], axis=1) for name in "abcde"])
    for row in range(60):
        seen = np.array(list("abcde")) != groups[row]
        by_group = sums[seen, row] / 12
        assert found.variance[row] == pytest.approx(by_group.var(ddof=1), abs=1e-12)
    assert found.sampling["units"] == 4
    expected = {"by": "group", "folds": 5, "groups": 5, "rows_per_game": [48, 48], "points_per_row": [48, 48]}
    assert found.parameters["cross"] == expected | {"copies": 0}


def test_many_groups_share_folds_of_nearly_equal_size() -> None:
    X, y = clouds(n=200)
    groups = np.random.default_rng(0).integers(0, 37, 200)
    found = cross_value(KNNShapley(3), X, y, groups=groups)
    cross = found.parameters["cross"]
    assert (cross["folds"], cross["groups"]) == (10, 37)
    assert cross["rows_per_game"][0] >= 178
    assert cross_value(KNNShapley(3), X, y, groups=groups, folds=3).parameters["cross"]["folds"] == 3


def test_points_see_earlier_rows_only() -> None:
    X, y = clouds()
    times = np.random.default_rng(1).permutation(60)
    found = cross_value(KNNShapley(3), X, y, times=times, folds=3)
    matrix = refitted(KNNShapley(3), X, y, times // 15, forward=True)
    kept = times < 45
    assert_means(found, matrix)
    np.testing.assert_array_equal(found.ids, np.flatnonzero(kept))
    assert (found.n_train, found.n_val) == (45, 45)
    assert found.parameters["cross"]["rows_without_value"] == 15
    assert found.parameters["cross"]["rows_per_game"] == [15, 45]
    assert found.fingerprint == KNNShapley(3).fit(X[kept], y[kept]).fingerprint_
    default = cross_value(KNNShapley(3), X, y, times=times)
    assert default.parameters["cross"]["folds"] == 5


def test_rows_of_one_time_are_not_split() -> None:
    X, y = clouds()
    times = np.repeat(np.datetime64("2024-01-01") + np.arange(4), [3, 40, 7, 10])
    found = cross_value(KNNShapley(3), X, y, times=times)
    assert found.ids.tolist() == list(range(50))
    assert_means(found, refitted(KNNShapley(3), X, y, np.repeat([0, 0, 1, 2], [3, 40, 7, 10]), forward=True))


def test_folds_keep_equal_features_together() -> None:
    X, y = clouds(n=30)
    X, y = np.concatenate([X, X]), np.concatenate([y, y])
    found = cross_value(KNNShapley(3), X, y, folds=4)
    assert found.parameters["cross"]["copies"] == 0
    assert found.parameters["cross"]["folds"] == 4
    np.testing.assert_allclose(found.values[:30], found.values[30:], atol=1e-15)


def test_a_proxy_is_fitted_without_the_points_of_a_fold() -> None:
    X, y = clouds()
    groups = np.arange(60) % 4
    model = KNNProxy(DecisionTreeClassifier(max_depth=3), 3, progress=False)
    found = cross_value(model, X, y, groups=groups)
    expected = np.zeros(60)
    for fold in range(4):
        inside = groups == fold
        expected[~inside] += model.fit(X[~inside], y[~inside]).value(X[inside], y[inside]).values * inside.sum()
    np.testing.assert_allclose(found.values, expected / 45, atol=1e-12)
    assert found.parameters["method"] == "KNNProxy"
    assert found.parameters["embed"] == "leaves"
    assert cross_value(model, X, y).parameters["cross"]["folds"] == 5


@pytest.mark.parametrize("options", [{}, {"groups": True}, {"times": True}, {"folds": 4}], ids=str)
@pytest.mark.parametrize("model", [KNNShapley(3), KNNRegressionShapley(3), KNNShapley(3, method="certified")], ids=repr)
def test_the_order_of_the_rows_changes_no_bit(model: Any, options: dict[str, Any]) -> None:
    X, y = clouds(n=150)
    y = y + X[:, 0] if isinstance(model, KNNRegressionShapley) else y
    extra = {"groups": np.arange(150) % 13, "times": np.arange(150.0)}
    shuffled = np.random.default_rng(2).permutation(150)
    ids = np.arange(150)

    def found(order: Any) -> Valuation:
        given = {name: extra[name][order] if value is True else value for name, value in options.items()}
        return cross_value(model, X[order], y[order], ids=ids[order], **given)

    one, other = found(ids), found(shuffled)
    place = {name: at for at, name in enumerate(other.ids.tolist())}
    at = [place[name] for name in one.ids.tolist()]
    np.testing.assert_array_equal(one.values, other.values[at])


# --- as a result ------------------------------------------------------------------------------------------------------


def test_the_result_is_like_any_other(tmp_path: Path) -> None:
    X, y = clouds()
    frame = pd.DataFrame(X, columns=list("abc"), index=[f"r{i}" for i in range(60)])
    found = cross_value(KNNShapley(3), frame, pd.Series(y, index=frame.index))
    assert found.to_frame().index[0] == "r0"
    assert found.reliability is not None
    assert found.interval()[0].shape == (60,)
    found.save(tmp_path / "values.npz")
    loaded = Valuation.load(tmp_path / "values.npz")
    assert loaded.parameters["cross"] == found.parameters["cross"]
    model = KNNShapley(3).fit(frame, y)
    assert model.fingerprint_ == found.fingerprint


def test_standard_errors_are_about_right() -> None:
    # Value the same 100 rows as training rows of many tables; the error of one cross valuation predicts the spread of
    # values over other points of the same size.
    rng = np.random.default_rng(0)
    X, y = clouds(n=100)
    found = cross_value(KNNShapley(3), X, y)
    model = KNNShapley(3).fit(X, y)
    others = [model.value(*clouds(int(seed), 99)).values for seed in rng.integers(1, 10**6, 40)]
    assert np.sqrt(np.mean(found.standard_error**2)) == pytest.approx(np.sqrt(np.var(others, axis=0).mean()), rel=0.25)


# --- hard cases -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model", [KNNShapley(3), KNNRegressionShapley(3), ThresholdKNNShapley(1.5), WeightedKNNShapley(3)], ids=repr
)
def test_two_rows_value_each_other(model: Any) -> None:
    X, y = np.array([[0.0], [1.0]]), np.array([1.0, 1.0])
    found = cross_value(model, X, y)
    assert_means(found, refitted(model, X, y))
    assert found.standard_error is None
    with pytest.raises(ValueError, match="at least 2 rows"):
        cross_value(model, X[:1], y[:1])


@pytest.mark.parametrize("labels", [np.zeros(20), np.arange(20) % 2], ids=["one class", "two classes"])
@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("method", ["exact", "certified", "truncated"])
def test_one_class_and_equal_rows(labels: Matrix, same: bool, method: str) -> None:
    X = np.zeros((20, 2)) if same else np.random.default_rng(0).normal(size=(20, 2))
    model = KNNShapley(3, method=method, tol=0.0)
    found = cross_value(model, X, labels)
    assert_means(found, refitted(model, X, labels))
    assert np.isfinite(found.standard_error).all()
    if same:
        with pytest.raises(ValueError, match=r"folds of rows with different features.*Got 1"):
            cross_value(model, X, labels, folds=2)


def test_copies_are_counted_and_warned_about() -> None:
    X, y = clouds(n=100)
    X, y = np.concatenate([X, X[:7]]), np.concatenate([y, y[:7]])
    y[101] += 1  # equal features alone make no copy
    with pytest.warns(UserWarning, match=r"12 of 107 rows have a copy.*groups"):
        found = cross_value(KNNShapley(3), X, y)
    assert found.parameters["cross"]["copies"] == 12
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        cross_value(KNNShapley(3), X, y, groups=np.arange(107) % 100)
        cross_value(KNNShapley(3), *clouds(n=100))


def test_labels_that_no_seen_row_has_are_named() -> None:
    X, y = clouds(n=30)
    y[0] = 7
    with pytest.warns(UserWarning, match="1 points have a label that no row they see has"):
        cross_value(KNNShapley(3), X, y, folds=3)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"groups": ["a"] * 30, "times": np.arange(30)}, "not both"),
        ({"groups": ["a"] * 30}, "folds of groups, so there must be at least 2 of them. Got 1"),
        ({"groups": np.arange(30) % 3, "folds": 4}, "at least 4 of them. Got 3"),
        ({"groups": ["a"] * 29}, "one name for each of the 30 rows of 'X'"),
        ({"groups": ["a"] * 29 + [None]}, "missing"),
        ({"times": np.ones(30)}, "at least 2 blocks of rows with different times"),
        ({"times": [1] * 29 + ["x"]}, "one kind"),
        ({"times": [np.nan] * 30}, "missing"),
        ({"folds": 1}, "at least 2"),
        ({"folds": 31}, "at least 31 of them. Got 30"),
        ({"folds": 2, "checkpoint": "somewhere"}, "Got a checkpoint"),
        ({"X": iter([])}, "iterator"),
        ({"model": SampledShapley("logistic")}, "KNNProxy"),
        ({"model": KNNShapley}, "Got the class KNNShapley"),
        ({"model": KNNShapley(device="cuda")}, "on the CPU"),
    ],
    ids=lambda given: " ".join(given) if isinstance(given, dict) else "",
)
def test_what_cannot_be_is_refused(given: dict[str, Any], message: str) -> None:
    X, y = clouds(n=30)
    given = {"model": KNNShapley(3), "X": X, "y": y} | given
    with pytest.raises(ValueError, match=message):
        cross_value(given.pop("model"), given.pop("X"), given.pop("y"), **given)


# --- points that are training rows ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model",
    [
        KNNShapley(3),
        KNNShapley(3, metric="cosine"),
        KNNRegressionShapley(3),
        ThresholdKNNShapley(1.5),
        WeightedKNNShapley(3),
    ],
    ids=repr,
)
def test_the_training_rows_as_points_are_noticed(model: Any) -> None:
    X, y = clouds()
    y = y.astype(float) if isinstance(model, KNNRegressionShapley) else y
    model = model.fit(X, y)
    with pytest.warns(UserWarning, match=r"points are the training rows: .*cross_value"):
        model.value(X.copy(), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.value(X[::-1], y[::-1])
        model.value(X + 1e-9, y)
        model.value(X[:-1], y[:-1])
        cross_value(model, X, y)
        if isinstance(model, KNNShapley):
            model.value(X, y, exclude=np.arange(60))
            model.value(X, (y + 1) % 3)


def test_equal_rows_are_no_false_alarm() -> None:
    X, y = np.zeros((40, 2)), np.arange(40) % 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KNNShapley(3).fit(X, y).value(X, y)


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.fixture
def visits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pa.Table:
    """Write one table, in which sellers and days repeat."""
    monkeypatch.chdir(tmp_path)
    table, other = make_tables()
    days = np.datetime64("2024-01-01") + np.arange(N_TRAIN) // 2
    table = table.append_column("day", pa.array(days))
    pacsv.write_csv(table, "visits.csv")
    pacsv.write_csv(table.drop_columns("day"), "train.csv")
    pacsv.write_csv(other, "val.csv")
    return table


COLUMNS = ("--label", "class", "--id", "row")


def scaled(table: pa.Table) -> tuple[Matrix, Matrix]:
    X = np.column_stack([table[name].to_numpy() for name in ("size", "weight", "age")])
    return StandardScaler().fit_transform(X), np.array(table["class"].to_pylist())


def test_one_table_is_valued_on_itself(visits: pa.Table) -> None:
    ran = run("value", "visits.csv", *COLUMNS, "--drop", "seller,day", "--json", "--report", "page.html")
    assert ran.code == 0, ran.err
    found = Valuation.load("shapshift-value/valuation.npz")
    np.testing.assert_allclose(found.values, cross_value(KNNShapley(5), *scaled(visits)).values, atol=1e-12)
    assert found.ids.tolist() == visits["row"].to_pylist()
    assert found.standard_error is not None
    assert ran.document["result"]["n_val"] == N_TRAIN
    said = run("value", "visits.csv", *COLUMNS, "--drop", "seller,day", "--force").out
    assert f"No row was valued on itself: each value is the mean over {N_TRAIN - 1} other rows." in " ".join(
        said.split()
    )
    assert run("rerun", "shapshift-value").code == 0


def test_groups_and_times_of_one_table_come_from_columns(visits: pa.Table) -> None:
    ran = run("value", "visits.csv", *COLUMNS, "--groups", "seller", "--drop", "day", "--out", "groups")
    assert "its own group, 3 in 3 folds" in " ".join(ran.out.split())
    groups = visits["seller"].to_pylist()
    expected = cross_value(KNNShapley(5), *scaled(visits), groups=groups)
    np.testing.assert_allclose(Valuation.load("groups/valuation.npz").values, expected.values, atol=1e-12)

    options = (
        *COLUMNS,
        "--time",
        "day",
        "--folds",
        "3",
        "--owner",
        "seller",
        "--report",
        "page.html",
        "--raw-features",
    )
    ran = run("value", "visits.csv", *options, "--out", "times")
    assert ran.code == 0, ran.err
    assert "on later rows only, in 3 steps" in " ".join(ran.out.split())
    assert "The last 20 have no later rows" in " ".join(ran.out.split())
    found = Valuation.load("times/valuation.npz")
    expected = cross_value(KNNShapley(5), *scaled(visits), times=visits["day"].to_pylist(), folds=3)
    np.testing.assert_allclose(found.values, expected.values, atol=1e-12)
    written = pq.read_table("times/values.parquet")
    assert written["label"].to_pylist() == visits["class"].to_pylist()[:60]
    assert written["owner"].to_pylist() == groups[:60]
    assert run("rerun", "times").code == 0


def test_folds_without_a_column_are_told(visits: pa.Table) -> None:
    assert (
        "--groups column 'patient' is not a column" in run("value", "visits.csv", *COLUMNS, "--groups", "patient").err
    )
    ran = run("value", "train.csv", "val.csv", *COLUMNS, "--drop", "seller", "--folds", "3")
    assert (ran.code, "are for one table" in ran.err) == (2, True)
    ran = run("value", "visits.csv", *COLUMNS, "--drop", "seller,day", "--method", "sampled:estimator=logistic")
    assert (ran.code, "KNNProxy(estimator)" in ran.err) == (2, True)


def test_validation_rows_that_are_training_rows_are_named(visits: pa.Table) -> None:
    options = (*COLUMNS, "--drop", "seller", "--force")
    ran = run("value", "train.csv", "train.csv", *options)
    assert "TRAIN and VAL are the same file. 80 of 80 validation points" in " ".join(ran.err.split())
    same = make_tables()[0]
    pacsv.write_csv(same.take(list(range(45, 0, -1))), "part.csv")
    ran = run("value", "train.csv", "part.csv", *options)
    assert "Note: 45 of 45 validation points have the features and label" in " ".join(ran.err.split())
    pacsv.write_csv(pa.concat_tables([same.slice(0, 3), make_tables()[1]]), "few.csv")
    said = " ".join(run("audit", "train.csv", "few.csv", *options, "--repeats", 1).err.split())
    assert f"3 of {N_VAL + 3} validation points have the features and label of a training row." in said
    assert "too good" not in said
    assert "features and label" not in run("value", "train.csv", "val.csv", *options).err
