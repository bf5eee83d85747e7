"""Every refusal names what is wrong, what was given and what to do."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError

from shapshift import KNNShapley

RNG = np.random.default_rng(0)
X = RNG.normal(size=(20, 3))
Y = RNG.integers(0, 2, size=20)
X_VAL = RNG.normal(size=(6, 3))
Y_VAL = RNG.integers(0, 2, size=6)
COLUMNS = ["height", "width", "depth"]
Refusal = (ValueError, TypeError)


def refuses(*words: str) -> pytest.RaisesExc:
    """An error whose message has all the words, in this order."""
    return pytest.raises(Refusal, match="(?s)" + ".*".join(re.escape(word) for word in words))


def value(X: object = X, y: object = Y, X_val: object = X_VAL, y_val: object = Y_VAL, **options: object) -> object:
    return KNNShapley(3).fit(X, y).value(X_val, y_val, **options)


# --- parameters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "bad", "words"),
    [
        ("n_neighbors", 0, ["at least 1", "0"]),
        ("n_neighbors", -3, ["at least 1", "-3"]),
        ("n_neighbors", 2.5, ["integer", "2.5"]),
        ("n_neighbors", "5", ["integer", "'5'"]),
        ("n_neighbors", None, ["integer", "None"]),
        ("n_neighbors", True, ["integer", "True"]),
        ("utility", "sfot", ["'soft'", "'hard'", "'sfot'"]),
        ("utility", None, ["'soft'", "None"]),
        ("semivalue", "shaply", ["'shapley'", "'banzhaf'", "'loo'", "'calibrated'", "Beta", "Banzhaf", "'shaply'"]),
        ("semivalue", (4, 1), ["'shapley'", "Beta", "(4, 1)"]),
        ("metric", "minkowski", ["'euclidean'", "'manhattan'", "'cosine'", "'precomputed'", "'minkowski'"]),
        ("ties", "random", ["'average'", "'index'", "'random'"]),
        ("device", "abacus", ["'cpu'", "'abacus'"]),
        ("max_memory", "lots", ["'2GB'", "'lots'"]),
        ("max_memory", 0, ["positive", "0"]),
        ("max_memory", -5, ["positive", "-5"]),
        ("max_memory", "-1GB", ["positive", "-1GB"]),
        ("max_memory", "3XB", ["positive", "3XB"]),
        ("n_jobs", 0, ["0"]),
        ("n_jobs", "two", ["'two'"]),
        ("n_jobs", 1.5, ["1.5"]),
        ("progress", "yes", ["'yes'"]),
    ],
)
def test_parameters(name: str, bad: object, words: list[str]) -> None:
    # Refused by fit or at the latest by value; the constructor of an estimator checks nothing.
    model = KNNShapley(**{name: bad})
    with refuses(name, *words):
        model.fit(X, Y).value(X_VAL, Y_VAL)


@pytest.mark.parametrize("unknown", ["weights", "n_neighbours", "K"])
def test_unknown_parameters_are_not_ignored(unknown: str) -> None:
    with pytest.raises(TypeError, match=unknown):
        KNNShapley(**{unknown: "distance"})


@pytest.mark.parametrize("unknown", ["sample_weight", "group"])
def test_unknown_arguments_of_value_are_not_ignored(unknown: str) -> None:
    with pytest.raises(TypeError, match=unknown):
        value(**{unknown: Y_VAL})


def test_max_memory_too_small_says_what_would_do() -> None:
    model = KNNShapley(max_memory="1kB").fit(X, Y)
    with refuses("max_memory", "1") as caught:
        model.value(X_VAL, Y_VAL)
    enough = re.search(r"at least (\d[\d_,.]*) ?([kMG]?i?B|bytes)", str(caught.value))
    assert enough, f"no minimum in: {caught.value}"
    minimum = f"{enough[1].replace(',', '').replace('_', '')}{enough[2].replace('bytes', 'B')}"
    # What the message names must do.
    sufficient = KNNShapley(max_memory=minimum).fit(X, Y).value(X_VAL, Y_VAL)
    assert np.array_equal(sufficient.values, KNNShapley().fit(X, Y).value(X_VAL, Y_VAL).values)


def test_value_before_fit() -> None:
    with pytest.raises(NotFittedError, match="fit"):
        KNNShapley().value(X_VAL, Y_VAL)


# --- features -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("side", ["X", "X_val"])
@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (np.empty((0, 3)), ["empty"]),
        (np.empty((20, 0)), ["empty"]),
        ([], ["2D"]),
        (np.zeros((20, 3, 1)), ["2D", "3D", "(20, 3, 1)", "reshape"]),
        (np.zeros(20), ["2D", "1D", "reshape"]),
        (np.array(5.0), ["2D"]),
        (None, []),
        ([[1.0, 2.0, 3.0], [1.0, 2.0]], ["same length"]),
        (np.full((20, 3), "red"), ["number", "Encode"]),
        (np.full((20, 3), "red", dtype=object), ["number", "Encode"]),
        ([["red", 1.0, 2.0]] * 20, ["number", "Encode"]),
        (np.full((20, 3), 1j), ["Complex"]),
        (np.full((20, 3), "2024-01-01", dtype="datetime64[D]"), ["datetime64", "number"]),
        (pl.LazyFrame({"a": [1.0]}), ["collect"]),
    ],
)
def test_features(side: str, bad: object, words: list[str]) -> None:
    with refuses(side, *words):
        value(**{side: bad})


@pytest.mark.parametrize("side", ["X", "X_val"])
def test_a_string_is_the_path_of_a_file(side: str) -> None:
    with pytest.raises(FileNotFoundError, match=rf"'{side}': There is no file 'a string'"):
        value(**{side: "a string"})


@pytest.mark.parametrize("side", ["X", "X_val"])
@pytest.mark.parametrize(("bad", "called"), [(np.nan, "NaN"), (np.inf, "infinity"), (-np.inf, "infinity")])
@pytest.mark.parametrize("container", ["numpy", "pandas", "polars", "pyarrow", "sparse"])
def test_nan_and_infinity_are_located(side: str, bad: float, called: str, container: str) -> None:
    spoiled = (X if side == "X" else X_VAL).copy()
    spoiled[4, 1] = bad
    make: dict[str, Callable[[np.ndarray], object]] = {
        "numpy": lambda A: A,
        "pandas": lambda A: pd.DataFrame(A, columns=COLUMNS),
        "polars": lambda A: pl.DataFrame(A, schema=COLUMNS, orient="row"),
        "pyarrow": lambda A: pa.table(dict(zip(COLUMNS, map(pa.array, A.T.copy()), strict=True))),
        "sparse": sparse.csr_matrix,
    }
    column = "'width'" if container in ("pandas", "polars", "pyarrow") else "1"
    clean = make[container](X)
    given = {"X": make[container](spoiled)} if side == "X" else {"X": clean, "X_val": make[container](spoiled)}
    with refuses(side, called, "row 4", f"column {column}", "drop"):
        value(**given)


def test_finite_features_whose_sum_overflows_are_fine() -> None:
    found = KNNShapley(1).fit([[1e308], [1.5e308]], [0, 1]).value([[1.6e308]], [1])
    assert found.values.argmax() == 1


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"height": [1.0, None, 3.0], "width": [1, 2, 3]}).convert_dtypes(),
        pl.DataFrame({"height": [1.0, None, 3.0], "width": [1, 2, 3]}),
        pa.table({"height": [1.0, None, 3.0], "width": [1, 2, 3]}),
    ],
    ids=["pandas", "polars", "pyarrow"],
)
def test_missing_entries_of_a_table_are_located(frame: object) -> None:
    with refuses("X", "row 1", "'height'"):
        KNNShapley().fit(frame, [0, 1, 0])


def test_the_row_is_also_called_by_its_id() -> None:
    frame = pd.DataFrame(X.copy(), columns=COLUMNS, index=[f"seller-{i}" for i in range(20)])
    frame.loc["seller-7", "depth"] = np.nan
    with refuses("row 7", "seller-7", "'depth'"):
        KNNShapley().fit(frame, Y)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_string_columns_are_named(make: Callable[[dict[str, list[object]]], object]) -> None:
    with refuses("'color'", "X", "Encode"):
        KNNShapley().fit(make({"height": [1.0, 2.0], "color": ["red", "blue"]}), [0, 1])


@pytest.mark.parametrize("metric", ["manhattan"])
def test_sparse_rows_need_a_metric_that_takes_them(metric: str) -> None:
    with refuses("X", "sparse", metric, "toarray"):
        KNNShapley(metric=metric).fit(sparse.csr_matrix(X), Y)
    with refuses("X_val", "sparse", metric, "toarray"):
        KNNShapley(metric=metric).fit(X, Y).value(sparse.csr_matrix(X_VAL), Y_VAL)


# --- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1, 2, 4])
@pytest.mark.parametrize(
    "make", [np.ascontiguousarray, sparse.csr_matrix, pd.DataFrame], ids=["numpy", "csr", "pandas"]
)
def test_widths_that_differ(width: int, make: Callable[[np.ndarray], object]) -> None:
    with refuses("X_val", str(width), "3"):
        value(X=make(X), X_val=make(np.zeros((6, width))))


def test_columns_that_differ() -> None:
    frame, points = pd.DataFrame(X, columns=COLUMNS), pd.DataFrame(X_VAL, columns=COLUMNS)
    with refuses("X_val", "'height'", "'weight'"):
        value(X=frame, X_val=points.rename(columns={"height": "weight"}))
    with refuses("X_val", "'depth'"):
        value(X=frame, X_val=points.drop(columns="depth"))
    with refuses("X_val", "'age'"):
        value(X=frame, X_val=points.assign(age=1.0))


def test_a_column_name_used_twice() -> None:
    with refuses("X", "'height'"):
        KNNShapley().fit(pd.DataFrame(X, columns=["height", "height", "depth"]), Y)


# --- labels, groups, ids --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("side", "n"), [("y", 20), ("y_val", 6)])
@pytest.mark.parametrize("given", [0, 3, 21])
def test_labels_of_another_length(side: str, n: int, given: int) -> None:
    with refuses(side, str(n), str(given)):
        value(**{side: [0] * given})


@pytest.mark.parametrize(("side", "n"), [("y", 20), ("y_val", 6)])
@pytest.mark.parametrize("missing", [np.nan, None, pd.NA, pd.NaT], ids=str)
@pytest.mark.parametrize("others", ["cat", 1.5], ids=["strings", "floats"])
def test_labels_with_missing_entries(side: str, n: int, missing: object, others: object) -> None:
    labels = np.empty(n, dtype=object)
    labels[:] = others
    labels[3] = missing
    for container in (lambda y: y, list, pd.Series):
        with refuses(side, "row 3"):
            value(**{side: container(labels)})


@pytest.mark.parametrize(("bad", "called"), [(np.nan, "NaN"), (np.inf, "infinity")])
def test_float_labels_that_are_not_finite(bad: float, called: str) -> None:
    labels = Y.astype(float)
    labels[5] = bad
    with refuses("y", called, "row 5"):
        value(y=labels)


def test_labels_that_cannot_be_hashed() -> None:
    labels = np.empty(20, dtype=object)
    labels[:] = [[1, 2]] * 20
    with refuses("y", "hashable"):
        value(y=labels)


def test_labels_with_several_columns() -> None:
    with refuses("y", "(20, 2)"):
        value(y=np.zeros((20, 2)))
    with refuses("y", "2"):
        value(y=pd.DataFrame({"a": Y, "b": Y}))


@pytest.mark.parametrize("side", ["y", "y_val"])
def test_labels_left_out(side: str) -> None:
    with refuses(side):
        value(**{side: None})


@pytest.mark.parametrize("utility", ["soft", "hard"])
def test_one_class_only_is_exact_or_refused(utility: str) -> None:
    found = KNNShapley(2, utility=utility).fit(X, ["only"] * 20).value(X_VAL, ["only"] * 6)
    expected = 0.0 if utility == "soft" else 1 / 20  # soft: nothing to gain over the only possible guess
    np.testing.assert_allclose(found.values.sum(), expected * 20, rtol=0, atol=1e-14)
    assert not found.boundary.any()


def test_groups_of_another_length() -> None:
    with refuses("groups", "6", "5"):
        value(groups=["a"] * 5)


def test_groups_with_missing_names() -> None:
    with refuses("groups", "row 2"):
        value(groups=["a", "b", None, "a", "a", "a"])


def test_ids_of_another_length() -> None:
    with refuses("ids", "20", "19"):
        KNNShapley().fit(X, Y, ids=range(19))


# --- precomputed distances ------------------------------------------------------------------------------------------


def test_precomputed_distances() -> None:
    model = KNNShapley(metric="precomputed").fit(None, Y)
    distances = np.abs(RNG.normal(size=(6, 20)))
    with refuses("X_val", "20", "(20, 6)", "transpose"):
        model.value(distances.T, Y_VAL)
    with refuses("X_val", "20", "(6, 19)"):
        model.value(distances[:, 1:], Y_VAL)
    for bad, words in ((-1.0, ["-1.0", "row 2", "column 9"]), (np.nan, ["NaN", "row 2", "column 9"])):
        spoiled = distances.copy()
        spoiled[2, 9] = bad
        with refuses("X_val", *words):
            model.value(spoiled, Y_VAL)
    with refuses("y_val", "6", "7"):
        model.value(distances, [0] * 7)


def test_other_metrics_need_training_rows() -> None:
    with refuses("X"):
        KNNShapley().fit(None, Y)


@pytest.mark.parametrize(
    "failing",
    [{"X": X, "y": Y[:-1]}, {"X": X[:5], "y": 1 - Y[:5], "ids": range(3)}],
    ids=["labels", "ids"],
)
def test_a_failed_fit_leaves_the_old_one_whole(failing: dict[str, object]) -> None:
    # Labels of one training set beside the rows of another would send the kernels out of their arrays.
    model = KNNShapley(3).fit(X, Y)
    before = dict(vars(model))
    with pytest.raises(Refusal):
        model.fit(**failing)
    after = dict(vars(model))
    assert after.keys() == before.keys()
    assert all(after[name] is before[name] for name in before)
