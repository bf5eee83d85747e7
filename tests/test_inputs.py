"""Containers, labels, groups and columns that are taken as they come."""

from __future__ import annotations

import datetime
import warnings
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from scipy import sparse

from shapshift import KNNShapley, Valuation

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 3))
Y = RNG.integers(0, 3, size=30)
X_VAL = RNG.normal(size=(12, 3))
Y_VAL = RNG.integers(0, 3, size=12)
COLUMNS = ["height", "width", "depth"]


@pytest.fixture(scope="module")
def expected() -> Valuation:
    return KNNShapley(3).fit(X, Y).value(X_VAL, Y_VAL, matrix=True)


def torch_tensor(values: np.ndarray) -> object:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.tensor(values)


def torch_with_gradient(values: np.ndarray) -> object:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    return torch.tensor(values, requires_grad=values.dtype.kind == "f")


Container = tuple[Callable[[np.ndarray], object], Callable[[np.ndarray], object]]
CONTAINERS: dict[str, Container] = {
    "lists": (np.ndarray.tolist, np.ndarray.tolist),
    "tuples": (lambda A: tuple(map(tuple, A.tolist())), lambda y: tuple(y.tolist())),
    "object array": (lambda A: A.astype(object), lambda y: y.astype(object)),
    "pandas": (lambda A: pd.DataFrame(A, columns=COLUMNS), pd.Series),
    "pandas without names": (pd.DataFrame, lambda y: pd.DataFrame({"label": y})),
    "pandas nullable": (
        lambda A: pd.DataFrame(A, columns=COLUMNS, dtype="Float64"),
        lambda y: pd.Series(y, dtype="Int64"),
    ),
    "pandas categorical labels": (lambda A: pd.DataFrame(A, columns=COLUMNS), lambda y: pd.Series(pd.Categorical(y))),
    "polars": (lambda A: pl.DataFrame(A, schema=COLUMNS, orient="row"), pl.Series),
    "pyarrow": (
        lambda A: pa.table(dict(zip(COLUMNS, map(pa.array, A.T.copy()), strict=True))),
        lambda y: pa.chunked_array([y[:5], y[5:]]),
    ),
    "pyarrow array of labels": (lambda A: A, pa.array),
    "sparse": (sparse.csr_array, lambda y: y),
    "torch": (torch_tensor, torch_tensor),
    "torch with gradient": (torch_with_gradient, torch_with_gradient),
    "read-only": (lambda A: np.lib.stride_tricks.as_strided(A, writeable=False), lambda y: y),
}


@pytest.mark.parametrize("name", CONTAINERS)
def test_every_container_gives_the_same_values(name: str, expected: Valuation) -> None:
    table, column = CONTAINERS[name]
    found = KNNShapley(3).fit(table(X), column(Y)).value(table(X_VAL), column(Y_VAL), matrix=True)
    assert np.array_equal(found.values, expected.values)
    assert np.array_equal(found.matrix, expected.matrix)
    assert np.array_equal(found.entropy, expected.entropy)
    assert found.ids.tolist() == list(range(30))


def test_containers_may_be_mixed(expected: Valuation) -> None:
    model = KNNShapley(3).fit(pd.DataFrame(X, columns=COLUMNS), Y.tolist())
    found = model.value(pl.DataFrame(X_VAL, schema=COLUMNS, orient="row"), pd.Series(Y_VAL, index=range(50, 62)))
    assert np.array_equal(found.values, expected.values)
    columns = (Y_VAL, Y_VAL.tolist(), pd.Series(Y_VAL), pl.Series(Y_VAL), pa.array(Y_VAL), pa.chunked_array([Y_VAL]))
    for train in (Y, pd.Series(Y), pl.Series(Y), pa.array(Y), pa.chunked_array([Y])):
        for validation in columns:
            assert np.array_equal(KNNShapley(3).fit(X, train).value(X_VAL, validation).values, expected.values)


def test_float32_tensors_and_arrays_agree() -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    narrow, narrow_val = X.astype(np.float32), X_VAL.astype(np.float32)
    by_array = KNNShapley(3).fit(narrow, Y).value(narrow_val, Y_VAL)
    by_tensor = KNNShapley(3).fit(torch.tensor(narrow), torch.tensor(Y)).value(torch.tensor(narrow_val), Y_VAL)
    assert np.array_equal(by_array.values, by_tensor.values)


def test_inputs_are_left_alone() -> None:
    given = [A.copy() for A in (X, Y, X_VAL, Y_VAL)]
    KNNShapley(3).fit(given[0], given[1]).value(given[2], given[3])
    assert all(np.array_equal(A, B) for A, B in zip(given, (X, Y, X_VAL, Y_VAL), strict=True))


def test_an_untidy_sparse_matrix_is_left_alone() -> None:
    data, indices, indptr = np.array([1.0, 0.0, 2.0, 3.0, 4.0]), np.array([2, 1, 0, 1, 1]), np.array([0, 3, 5])
    given = sparse.csr_matrix((data.copy(), indices.copy(), indptr.copy()), shape=(2, 3))
    KNNShapley(1).fit(given, [0, 1]).value(given, [0, 1])
    for attribute, before in (("data", data), ("indices", indices), ("indptr", indptr)):
        assert getattr(given, attribute).tolist() == before.tolist()


def test_changing_the_input_after_fit_changes_nothing(expected: Valuation) -> None:
    mine, labels = X.copy(), Y.copy()
    model = KNNShapley(3).fit(mine, labels)
    mine[:] = 0
    labels[:] = 0
    assert np.array_equal(model.value(X_VAL, Y_VAL).values, expected.values)


# --- identity -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "index",
    [
        [f"row-{i}" for i in range(30)],
        list(range(100, 130)),
        [0] * 30,
        pd.date_range("2024-01-01", periods=30),
    ],
    ids=["strings", "numbers", "not unique", "dates"],
)
def test_a_pandas_index_comes_back(index: Sequence[object], expected: Valuation) -> None:
    frame = pd.DataFrame(X, columns=COLUMNS, index=index)
    found = KNNShapley(3).fit(frame, Y).value(pd.DataFrame(X_VAL, columns=COLUMNS), Y_VAL)
    assert list(found.ids) == list(np.asarray(frame.index))
    assert np.array_equal(found.values, expected.values)


@pytest.mark.filterwarnings("ignore:.*does not have feature names")
def test_given_ids_come_before_the_index() -> None:
    ids = [f"seller-{i}" for i in range(30)]
    frame = pd.DataFrame(X, columns=COLUMNS, index=range(100, 130))
    for given in (ids, np.array(ids), pd.Series(ids), pl.Series(ids)):
        assert list(KNNShapley(3).fit(frame, Y, ids=given).value(X_VAL, Y_VAL).ids) == ids
        assert list(KNNShapley(3).fit(X, Y, ids=given).value(X_VAL, Y_VAL).ids) == ids


# --- labels ---------------------------------------------------------------------------------------------------------

NAMINGS: dict[str, list[object]] = {
    "from one": [1, 2, 3],
    "far apart": [-7, 40, 10**12],
    "floats": [0.5, 1.5, 2.5],
    "strings": ["cat", "dog", "emu"],
    "strings of many lengths": ["a", "aa", "a much longer name than the others"],
    "tuples": [("a", 1), ("a", 2), ("b", 1)],
    "mixed": ["cat", 2, ("emu",)],
    "fractions": [Fraction(1, 3), Fraction(1, 2), Fraction(2, 3)],
    "dates": [datetime.date(2024, 1, day) for day in (1, 2, 3)],
    "bytes": [b"x", b"y", b"z"],
    "frozensets": [frozenset({1}), frozenset({2}), frozenset({1, 2})],
}


def named(codes: np.ndarray, names: list[object]) -> np.ndarray:
    column = np.empty(len(codes), dtype=object)
    column[:] = [names[code] for code in codes]
    return column


@pytest.mark.parametrize("naming", NAMINGS)
def test_labels_of_any_hashable_kind(naming: str, expected: Valuation) -> None:
    names = NAMINGS[naming]
    y, y_val = named(Y, names), named(Y_VAL, names)
    for train, validation in ((y, y_val), (y.tolist(), y_val.tolist()), (y, y_val.tolist())):
        found = KNNShapley(3).fit(X, train).value(X_VAL, validation)
        assert np.array_equal(found.values, expected.values)
        assert np.array_equal(found.entropy, expected.entropy)


def test_bool_labels() -> None:
    as_numbers = KNNShapley(3).fit(X, Y > 0).value(X_VAL, (Y_VAL > 0).astype(int))
    as_bools = KNNShapley(3).fit(X, (Y > 0).tolist()).value(X_VAL, Y_VAL > 0)
    assert np.array_equal(as_numbers.values, as_bools.values)


def test_the_names_of_classes_do_not_matter(expected: Valuation) -> None:
    for names in ([2, 0, 1], ["z", "a", "m"]):
        found = KNNShapley(3).fit(X, named(Y, names)).value(X_VAL, named(Y_VAL, names))
        assert np.array_equal(found.values, expected.values)
        assert np.array_equal(found.entropy, expected.entropy)


def test_thousands_of_classes() -> None:
    rng = np.random.default_rng(1)
    many, points = rng.normal(size=(6_000, 2)), rng.normal(size=(8, 2))
    labels = rng.permutation(6_000) % 4_000
    found = KNNShapley(3).fit(many, labels).value(points, labels[:8], matrix=True)
    distances = ((many[None] - points[:, None]) ** 2).sum(axis=2)
    nearest = np.argsort(distances, axis=1)[:, :3]
    accuracy = (labels[nearest] == labels[:8, None]).mean(axis=1)
    np.testing.assert_allclose(found.matrix.sum(axis=0), accuracy - 1 / 4_000, rtol=0, atol=1e-12)
    assert found.boundary.all()


def test_labels_never_seen_in_training_are_warned_about_once() -> None:
    model = KNNShapley(3).fit(X, Y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = model.value(X_VAL, [*Y_VAL[:-2], 98, 99], matrix=True)
    unseen = [w for w in caught if issubclass(w.category, UserWarning)]
    assert len(unseen) == len(caught) == 1
    assert "98" in str(unseen[0].message)
    assert np.ptp(found.matrix[:, -1]) == 0
    np.testing.assert_allclose(found.matrix[:, -2:], -1 / (3 * 30), rtol=0, atol=1e-15)


def test_one_row() -> None:
    found = KNNShapley(3).fit([[1.0, 2.0]], ["a"]).value([[0.0, 0.0], [1.0, 1.0]], ["a", "a"], matrix=True)
    assert found.matrix.tolist() == [[0.0, 0.0]]  # right, but so is a guess among one class
    hard = KNNShapley(4, utility="hard").fit([[1.0, 2.0]], ["a"]).value([[0.0, 0.0]], ["a"])
    assert hard.values.tolist() == [0.25]


# --- groups ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "container", [list, np.array, pd.Series, pl.Series, pa.array], ids=["list", "numpy", "pandas", "polars", "pyarrow"]
)
def test_groups_in_any_container(container: Callable[[list[str]], object], expected: Valuation) -> None:
    names = ["north", "south", "a much longer name"] * 4
    found = KNNShapley(3).fit(X, Y).value(X_VAL, Y_VAL, groups=container(names))
    assert list(found.group_names) == ["north", "south", "a much longer name"]
    assert dict(found.group_counts) == dict.fromkeys(found.group_names, 4)
    for offset, name in enumerate(found.group_names):
        np.testing.assert_allclose(
            found.group_values[name], expected.matrix[:, offset::3].mean(axis=1), rtol=0, atol=1e-16
        )


def test_without_groups_there_are_none(expected: Valuation) -> None:
    assert list(expected.group_names) == []
    assert dict(expected.group_values) == {}
    assert dict(expected.group_counts) == {}


def test_every_point_its_own_group(expected: Valuation) -> None:
    found = KNNShapley(3).fit(X, Y).value(X_VAL, Y_VAL, groups=range(12))
    for point in range(12):
        np.testing.assert_allclose(found.group_values[point], expected.matrix[:, point], rtol=0, atol=1e-17)


# --- columns --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "pyarrow"])
def test_columns_are_matched_by_name(make: Callable[[dict[str, np.ndarray]], object], expected: Valuation) -> None:
    frame = make({name: X[:, j] for j, name in enumerate(COLUMNS)})
    shuffled = make({name: X_VAL[:, COLUMNS.index(name)] for name in ("depth", "height", "width")})
    assert np.array_equal(KNNShapley(3).fit(frame, Y).value(shuffled, Y_VAL).values, expected.values)


def test_numbered_columns_are_matched_too(expected: Valuation) -> None:
    model = KNNShapley(3).fit(pd.DataFrame(X), Y)
    shuffled = pd.DataFrame(X_VAL)[[2, 0, 1]]
    assert np.array_equal(model.value(shuffled, Y_VAL).values, expected.values)
