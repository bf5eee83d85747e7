"""Features in the type in which they come: the values of their float64 copy, in the memory of their own type."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shapshift import (
    KNNRegressionShapley,
    KNNShapley,
    ThresholdKNNShapley,
    ValuationStore,
    WeightedKNNShapley,
    cross_value,
)
from shapshift.checks.inputs import ROW_TYPES
from shapshift.cross import count_shared
from shapshift.engine.rows.distances import index_rows, tile_filler
from shapshift.kernels.panels import DTYPES
from shapshift.price.points import training_points
from shapshift.tables import TableSpec, prepare, read_table

KINDS = ["float32", "float16", "int8", "uint8", "bool", "int16"]


def rows_of(kind: str, n: int = 200, d: int = 7) -> tuple[Any, Any]:
    """Rows that reach the ends of their type, with copies of other labels, and labels."""
    rng = np.random.default_rng(5)
    if kind == "bool":
        X = rng.random((n, d)) < 0.5
    elif kind.startswith("float"):
        X = (rng.normal(size=(n, d)) * (1e4 if kind == "float16" else 1e30)).astype(kind)
        X[0] = np.finfo(kind).max
        X[1] = -np.finfo(kind).max
        X[2] = np.finfo(kind).smallest_subnormal
    else:
        X = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, (n, d), dtype=kind, endpoint=True)
    X[n // 2 : n // 2 + 30] = X[:30]
    return X, rng.integers(0, 3, n)


MODELS: dict[str, Callable[[], Any]] = {
    "exact": lambda: KNNShapley(progress=False),
    "manhattan": lambda: KNNShapley(metric="manhattan", progress=False),
    "cosine": lambda: KNNShapley(metric="cosine", progress=False),
    "certified": lambda: KNNShapley(method="certified", progress=False),
    "truncated": lambda: KNNShapley(method="truncated", progress=False),
    "lsh": lambda: KNNShapley(method="truncated", search="lsh", progress=False),
    "weighted": lambda: WeightedKNNShapley(progress=False),
    "regression": lambda: KNNRegressionShapley(progress=False),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", MODELS)
def test_values_are_those_of_the_float64_copy(name: str, kind: str) -> None:
    X, y = rows_of(kind)
    points, labels = np.concatenate([X[::9], X[1::11]]), np.concatenate([y[::9], y[1::11]])
    kept, copied = MODELS[name]().fit(X, y), MODELS[name]().fit(X.astype(np.float64), y)
    assert kept._index.rows.dtype.itemsize < 8
    assert kept.fingerprint_ == copied.fingerprint_
    np.testing.assert_array_equal(kept.feature_std_, copied.feature_std_)
    found, expected = kept.value(points, labels), copied.value(points.astype(np.float64), labels)
    np.testing.assert_array_equal(found.values, expected.values)
    np.testing.assert_array_equal(found.entropy, expected.entropy)
    # Points of one type, rows of another.
    np.testing.assert_array_equal(copied.value(points, labels).values, expected.values)
    np.testing.assert_array_equal(kept.value(points.astype(np.float64), labels).values, expected.values)


@pytest.mark.parametrize("kind", [*DTYPES])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine"])
def test_the_number_of_points_changes_no_bit_of_a_distance(metric: str, kind: str) -> None:
    X = rows_of(kind, n=70, d=11)[0] if kind != "float64" else np.random.default_rng(0).normal(size=(70, 11))
    points = np.random.default_rng(1).normal(size=(40, 11)) * (1e4 if kind.startswith("float") else 100)
    index, alone, together = index_rows(X, metric), np.empty((40, 66)), np.empty((40, 66))
    for p in range(40):
        tile_filler(index, points[p : p + 1])(slice(0, 1), slice(3, 69), alone[p : p + 1])
    for size in range(1, 41):  # more of them are served at a time, and rows are converted beforehand
        tile_filler(index, points[:size])(slice(0, size), slice(3, 69), together[:size])
        assert together[:size].tobytes() == alone[:size].tobytes()
    if metric != "cosine":  # by the definition, feature by feature
        rows, expected = index.table()[3:69], np.zeros((40, 66))
        for j in range(11):
            difference = rows[None, :, j] - index.lay_out(points)[:, j, None]
            expected += np.abs(difference) if metric == "manhattan" else np.square(difference)
        np.testing.assert_allclose(alone, expected, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:.*rows have a copy")
@pytest.mark.parametrize("kind", KINDS)
def test_what_else_is_measured_by_distances(kind: str, tmp_path: Path) -> None:
    X, y = rows_of(kind)
    wide = X.astype(np.float64)
    radius = float(np.median(np.sqrt(np.square(wide[:20, None] - wide[None, 20:40]).sum(axis=-1))))
    one, other = (ThresholdKNNShapley(radius=radius, progress=False).fit(rows, y) for rows in (X, wide))
    np.testing.assert_array_equal(one.value(X[::7], y[::7]).values, other.value(wide[::7], y[::7]).values)
    model, copied = (KNNShapley(progress=False).fit(rows, y) for rows in (X, wide))
    for groups in (None, np.arange(y.size) % 40):
        found, expected = (cross_value(KNNShapley(progress=False), rows, y, groups=groups) for rows in (X, wide))
        np.testing.assert_array_equal(found.values, expected.values)
        assert found.fingerprint == expected.fingerprint
    pooled, expected = model.pooled().value(X[::7], y[::7]), copied.pooled().value(wide[::7], y[::7])
    np.testing.assert_array_equal(pooled.values, expected.values)
    assert model.explain(X[::7], y[::7], [3]).summary() == copied.explain(wide[::7], y[::7], [3]).summary()
    assert count_shared(X, y, X[::7], y[::7]) == count_shared(wide, y, wide[::7], y[::7]) > 0
    stores = [ValuationStore(fitted) for fitted in (model, copied)]
    for store, rows in zip(stores, (X, wide), strict=True):
        store.add(rows[::7], y[::7])
        store.add_rows(rows[5:9], y[5:9], ids=np.arange(4) + 1000)
    np.testing.assert_array_equal(stores[0].valuation().values, stores[1].valuation().values)
    # Progress that was made with one type counts with the other.
    folder = tmp_path / "progress"
    first = model.value(X[::7], y[::7], checkpoint=folder)
    np.testing.assert_array_equal(copied.value(wide[::7], y[::7], checkpoint=folder).values, first.values)


def test_kept_types_are_those_of_the_kernels() -> None:
    assert {*ROW_TYPES.values(), "float64"} == set(DTYPES)


VECTORS = np.random.default_rng(3).normal(size=(40, 6)).astype(np.float32)


@pytest.mark.parametrize(
    "container",
    [
        lambda X: X.astype(">f4"),
        np.asfortranarray,
        pd.DataFrame,
        pl.DataFrame,
        lambda X: pd.Series(list(X)),
        lambda X: pd.DataFrame({"v": list(X)}),
        lambda X: pl.Series(X),
        lambda X: pl.DataFrame({"v": X}),
        lambda X: pa.table({"v": pa.array(X.tolist(), pa.list_(pa.float32()))}),
        lambda X: pa.table({"v": pa.array(X.tolist(), pa.large_list(pa.float32()))}),
        lambda X: pa.chunked_array([pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), X.shape[1])]),
        lambda X: pa.table({"v": pa.array(X[:, :5].tolist(), pa.list_(pa.float32(), 5)), "w": X[:, 5]}),
    ],
    ids=[
        "big-endian",
        "fortran",
        "pandas",
        "polars",
        "objects",
        "object-column",
        "series",
        "array",
        "list",
        "large",
        "fixed",
        "beside",
    ],
)
def test_containers_keep_float32(container: Callable[[Any], Any]) -> None:
    y = np.arange(40) % 2
    X = container(VECTORS)
    model = KNNShapley(progress=False).fit(X, y)
    assert (model._index.rows.dtype, model.n_features_in_) == (np.float32, 6)
    expected = KNNShapley(progress=False).fit(VECTORS.astype(np.float64), y).value(VECTORS[::3] + 1, y[::3])
    np.testing.assert_array_equal(model.value(container(VECTORS[::3] + 1), y[::3]).values, expected.values)


def test_tensors_keep_their_type() -> None:
    torch = pytest.importorskip("torch")
    y = np.arange(40) % 2
    for kind, kept in [("bfloat16", "float32"), ("float16", "float16"), ("float32", "float32"), ("int8", "int8")]:
        X = torch.from_numpy(VECTORS * 20).to(getattr(torch, kind))
        model = KNNShapley(progress=False).fit(X, y)
        assert model._index.rows.dtype == kept
        expected = KNNShapley(progress=False).fit(X.double().numpy(), y).value(X.double().numpy()[::3], y[::3])
        np.testing.assert_array_equal(model.value(X[::3], y[::3]).values, expected.values)


def test_types_that_only_ml_dtypes_has() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    X, y = VECTORS.astype(bfloat16), np.arange(40) % 2
    expected = KNNShapley(progress=False).fit(X.astype(np.float64), y).value(X[::3].astype(np.float64), y[::3])
    np.testing.assert_array_equal(KNNShapley(progress=False).fit(X, y).value(X[::3], y[::3]).values, expected.values)


@pytest.mark.parametrize(
    ("X", "words"),
    [
        (np.array([[1, np.inf], [0, 1]], np.float16), "infinity at row 0, column 1"),
        (pa.table({"v": pa.array([[1.0], [1.0, 2.0]])}), r"'v' of 'X' must hold vectors of one length.*lengths: 1, 2"),
        (pa.table({"v": pa.array([[1.0, 2.0], None])}), "lengths: missing, 2"),
        (pa.table({"v": pa.array([[1.0, None], [1.0, 2.0]])}), "1 missing numbers"),
        (pd.DataFrame({"v": [np.ones(2), np.ones(3)]}), "lengths: 2, 3"),
        (pa.table({"v": pa.array([[], []], pa.list_(pa.float32()))}), "lengths: 0"),
        (np.empty((0, 3), np.float32), "'X' is empty"),
        (pa.table({"v": pa.array([], pa.list_(pa.float32(), 3))}), "'X' is empty"),
    ],
)
def test_what_cannot_be_used_is_named(X: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        KNNShapley().fit(X, [0, 1])


def test_sums_of_short_numbers_do_not_overflow() -> None:
    for kind, largest in (("float16", 60_000), ("float32", 3e38), ("int8", 127)):
        X = np.full((300, 3), largest, dtype=kind)
        X[::2] *= -1
        y = np.arange(300) % 2
        found = KNNShapley(progress=False).fit(X, y).value(X[:10], y[:10])
        expected = KNNShapley(progress=False).fit(X.astype(np.float64), y).value(X[:10].astype(np.float64), y[:10])
        np.testing.assert_array_equal(found.values, expected.values)


def peak(work: Callable[[], Any]) -> int:
    """Most bytes that NumPy and Python hold at a time beside what was there before."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["float32", "float16", "int8"])
@pytest.mark.parametrize("metric", ["euclidean", "cosine"])
def test_training_rows_take_little_more_than_their_own_bytes(kind: str, metric: str) -> None:
    n = 40_000 if kind == "float32" else 20_000
    X = (np.random.default_rng(0).normal(size=(n, 384)) * 20).astype(kind)
    y = np.arange(n) % 3
    options: dict[str, Any] = {"metric": metric, "progress": False, "n_jobs": 1, "max_memory": "8MB"}
    # Vectors for angles are float32, whatever shorter type they come in.
    own = X.size * (4 if metric == "cosine" else X.itemsize)
    fitted: list[Any] = []

    def work() -> None:
        fitted.append(KNNShapley(**options).fit(X, y))
        fitted[0].value(X[:20], y[:20])

    few = KNNShapley(**options).fit(X[:500], y[:500])
    few.value(X[:20], y[:20])  # loads what is compiled
    # Numbers per row that any type needs: labels, ids, hashes, values, tiles.
    beside = 8_000_000 + 150 * len(X)
    assert peak(work) <= 1.05 * own + beside
    if kind == "float32":
        assert peak(lambda: fitted[0].value(X[:20], y[:20])) + own <= 1.3 * own


def test_a_few_rows_as_points_take_no_copy_of_all_rows() -> None:
    X = np.random.default_rng(0).integers(-128, 128, (20_000, 384)).astype(np.int8)
    model = KNNShapley(progress=False).fit(X, np.arange(len(X)) % 3)
    found: list[Any] = []

    def work() -> None:
        found.append(training_points(model, None, "keep", 10))

    # Beside the rows, pieces of a few MB and some numbers for each of them.
    assert peak(work) <= X.nbytes + 8_000_000
    np.testing.assert_array_equal(found[0].X, X[found[0].own])


def test_a_parquet_column_of_vectors_is_not_copied_to_float64(tmp_path: Path) -> None:
    n, d = 30_000, 256
    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), d)
    pq.write_table(pa.table({"v": vectors, "y": np.arange(n) % 2}), tmp_path / "rows.parquet")
    table = read_table(tmp_path / "rows.parquet")
    few, found = table.slice(0, 50), []
    assert peak(lambda: found.append(prepare(table, few, TableSpec("y")))) < 0.2 * X.nbytes
    assert found[0].X_train.dtype == found[0].X_val.dtype == np.float32
    np.testing.assert_array_equal(found[0].X_train, X)
    assert any("did not scale the vectors of 'v'" in note for note in found[0].notes)


@pytest.mark.parametrize("kind", ["float16", "float32", "int8", "uint8", "int16"])
def test_columns_of_short_numbers_in_tables(kind: str) -> None:
    X = (np.random.default_rng(1).normal(size=(30, 3)) * 30).astype(kind)
    flat = pa.array(X.ravel())
    table = pa.table({"v": pa.FixedSizeListArray.from_arrays(flat, 3), "y": [0, 1] * 15})
    got = prepare(table, table.slice(5, 7), TableSpec("y"))
    assert got.X_train.dtype == ROW_TYPES[kind]
    np.testing.assert_array_equal(got.X_val, X[5:12])
    single = pa.table({"a": X[:, 0], "b": X[:, 1], "y": [0, 1] * 15})
    assert prepare(single, single, TableSpec("y", scale="none")).X_train.dtype == (
        "float32" if kind == "float16" else ROW_TYPES[kind]  # Arrow has few functions for float16
    )
    scaled = prepare(single, single, TableSpec("y")).X_train
    assert scaled.dtype == np.float64
    np.testing.assert_allclose(scaled.std(axis=0), 1)


def test_missing_numbers_in_vectors_are_filled_in() -> None:
    vectors = pa.array([[1.0, 2.0], [None, 4.0], [5.0, np.nan], [3.0, 3.0]], pa.list_(pa.float32()))
    table = pa.table({"v": vectors, "y": [0, 1, 0, 1]})
    with pytest.raises(ValueError, match=r"Values are missing in 'v' \(2 training"):
        prepare(table, table, TableSpec("y"))
    got = prepare(table, table, TableSpec("y", impute="median")).X_train
    np.testing.assert_array_equal(got, [[1, 2], [3, 4], [5, 3], [3, 3]])


def write_dataset(folder: Path, tables: list[Any]) -> None:
    """Write a folder as ``Dataset.save_to_disk`` of Hugging Face does."""
    folder.mkdir(parents=True)
    names = [f"data-{part:05d}-of-{len(tables):05d}.arrow" for part in range(len(tables))]
    for name, table in zip(names, tables, strict=True):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    (folder / "dataset_info.json").write_text('{"features": {}}')
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))


def test_datasets_of_hugging_face_on_disk(tmp_path: Path) -> None:
    table = pa.table({"v": pa.array(VECTORS.tolist(), pa.list_(pa.float32())), "y": np.arange(40) % 2})
    write_dataset(tmp_path / "both" / "train", [table.slice(0, 25), table.slice(25)])
    (tmp_path / "both" / "dataset_dict.json").write_text('{"splits": ["train"]}')
    got = read_table(tmp_path / "both" / "train")
    assert got["y"].to_pylist() == table["y"].to_pylist()
    made = prepare(got, got, TableSpec("y"))
    assert made.X_train.dtype == np.float32
    np.testing.assert_array_equal(made.X_train, VECTORS)
    assert KNNShapley().fit(got.select(["v"]), got["y"])._index.rows.dtype == np.float32
    with pytest.raises(ValueError, match=r"several splits: 'train'\. Name one of their folders"):
        read_table(tmp_path / "both")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"_data_files": [{"filename": "../rows.arrow"}]}, "must name files of its own folder. Got '../rows.arrow'"),
        ({"_data_files": [{"filename": "gone.arrow"}]}, "lacks 'gone.arrow', which its state.json names"),
        ({"_data_files": [{"filename": "a"}], "_indices_data_files": [{"filename": "b"}]}, "flatten_indices"),
        ({"_data_files": ["a"]}, "must name files of its own folder. Got None"),
        ({"_data_files": 5}, "holds no Parquet file .* and no dataset"),
        ({"splits": 5}, "holds no Parquet file .* and no dataset"),
        ("[" * 100_000, "holds no Parquet file .* and no dataset"),
    ],
)
def test_datasets_that_cannot_be_read(state: Any, words: str, tmp_path: Path) -> None:
    for name in ("state.json", "dataset_dict.json"):
        (tmp_path / name).write_text(state if isinstance(state, str) else json.dumps(state))
    with pytest.raises((ValueError, FileNotFoundError), match=words):
        read_table(tmp_path)
