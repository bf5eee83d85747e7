"""Rows from Parquet, memory maps and iterators: the same values as from memory, and a word where they are wrong."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from shapshift import (
    KNNRegressionShapley,
    KNNShapley,
    ThresholdKNNShapley,
    Valuation,
    WeightedKNNShapley,
)
from shapshift.engine.rows import file as rowfile
from shapshift.engine.rows import parquet
from shapshift.engine.rows.file import RowFile, RowWriter

N, M, D = 60, 7, 3
RNG = np.random.default_rng(0)
X = RNG.normal(size=(N, D)).astype(np.float32)
Y = RNG.integers(0, 3, N)
X_VAL, Y_VAL = RNG.normal(size=(M, D)), RNG.integers(0, 3, M)
NAMES = ["a", "b", "c"]


@pytest.fixture(autouse=True)
def nothing_is_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """However few rows there are, they stay in a file; and at the end no scratch is left."""
    monkeypatch.setattr(rowfile, "LOAD_BYTES", 0)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    yield
    if os.listdir(tmp_path / "tmp"):
        gc.collect()
    assert os.listdir(tmp_path / "tmp") == []


def same(found: Valuation, want: Valuation) -> None:
    for name in ("values", "ids", "entropy", "level_values", "level_counts", "group_means"):
        np.testing.assert_array_equal(getattr(found, name), getattr(want, name))
    assert found.fingerprint == want.fingerprint
    assert found.group_names == want.group_names
    assert dict(found.parameters) == dict(want.parameters)


def frame(rows: slice = slice(None), labels: Any = Y, **more: Any) -> pa.Table:
    columns = {name: X[rows, j] for j, name in enumerate(NAMES)}
    return pa.table({**columns, **{name: column[rows] for name, column in more.items()}, "label": labels[rows]})


def write_parts(folder: Path, sizes: tuple[int, ...] = (25, 0, 35), **more: Any) -> Path:
    folder.mkdir(exist_ok=True)
    at = 0
    for k, size in enumerate(sizes):
        pq.write_table(frame(slice(at, at + size), **more), folder / f"part-{k}.parquet")
        at += size
    return folder


def in_memory(labels: Any = Y, **options: Any) -> Valuation:
    return KNNShapley(**options).fit(X, labels).value(X_VAL, Y_VAL)


def sources(tmp_path: Path) -> dict[str, Callable[[], tuple[Any, Any]]]:
    folder = write_parts(tmp_path / "data")
    pq.write_table(frame(), tmp_path / "one.parquet")
    pq.write_table(frame().drop_columns("label"), tmp_path / "rows.parquet")
    for f, rows in enumerate((slice(0, 20), slice(20, 60))):
        (tmp_path / f"hive/c={f}").mkdir(parents=True)
        pq.write_table(frame(rows).drop_columns("c"), tmp_path / f"hive/c={f}/part.parquet")
    dataset = pads.dataset(folder, format="parquet")
    return {
        "file": lambda: (tmp_path / "one.parquet", "label"),
        "file name": lambda: (str(tmp_path / "rows.parquet"), Y),
        "folder": lambda: (folder, "label"),
        "pattern": lambda: (f"{folder}/part-*.parquet", "label"),
        "dataset": lambda: (dataset, "label"),
        "table as a dataset": lambda: (pads.dataset(frame()), "label"),
        "filtered dataset": lambda: (dataset.filter(pads.field("a") < 1e9), "label"),
        "reader": lambda: (frame().to_reader(max_chunksize=7), "label"),
        "scanner": lambda: (dataset.scanner(columns=[*NAMES, "label"]).to_reader(), "label"),
        "iterator": lambda: (((X[i : i + 13], Y[i : i + 13]) for i in range(0, N, 13)), None),
    }


@pytest.mark.parametrize("kind", ["file", "file name", "folder", "pattern", "dataset", "table as a dataset",
                                  "filtered dataset", "reader", "scanner", "iterator"])  # fmt: skip
def test_every_source_gives_the_values_of_the_array(tmp_path: Path, kind: str) -> None:
    rows, labels = sources(tmp_path)[kind]()
    model = KNNShapley().fit(rows, labels)
    assert isinstance(model._index.rows, RowFile)
    assert model._index.rows.dtype == "<f4"  # as it came: half the size
    val = X_VAL if kind == "iterator" else pd.DataFrame(X_VAL, columns=NAMES)
    same(model.value(val, Y_VAL), in_memory())
    np.testing.assert_allclose(model.feature_std_, X.astype(np.float64).std(axis=0), rtol=1e-12)


def test_folders_named_after_a_column_have_it(tmp_path: Path) -> None:
    sources(tmp_path)
    rows = X.copy()
    rows[:20, 2], rows[20:, 2] = 0, 1
    model = KNNShapley().fit(tmp_path / "hive", "label")
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    same(model.value(pd.DataFrame(X_VAL, columns=NAMES), Y_VAL), KNNShapley().fit(rows, Y).value(X_VAL, Y_VAL))


def memory_map(path: Path, rows: np.ndarray, mode: str = "r") -> np.memmap[Any, Any]:
    made = np.memmap(path, dtype=rows.dtype, mode="w+", shape=rows.shape, offset=24)
    made[:] = rows
    made.flush()
    return np.memmap(path, dtype=rows.dtype, mode=mode, shape=rows.shape, offset=24)


@pytest.mark.parametrize("kind", ["<f4", "<f8", ">f8", "int16", "part", "every second", "columns", "private", "open"])
def test_a_memory_map_is_read_where_it_lies_if_it_lies_there_as_rows(tmp_path: Path, kind: str) -> None:
    dtype = kind if kind in ("<f4", "<f8", ">f8", "int16") else "<f4"
    whole = np.round(9 * X).astype(dtype)
    rows = memory_map(tmp_path / "rows", whole, {"private": "c", "open": "r+"}.get(kind, "r"))
    cut = {"part": np.s_[11:50], "every second": np.s_[::2], "columns": np.s_[:, 1:]}.get(kind, np.s_[:])
    if kind in ("private", "open"):
        rows[3] = whole[3] = 7.0  # a private change is not in the file
    rows, kept = rows[cut], whole[cut].astype(np.float64)
    labels, val = Y[: len(kept)], X_VAL[:, : kept.shape[1]]
    model = KNNShapley().fit(rows, labels)
    in_place = kind in ("<f4", "<f8", "part", "open")
    assert (model._index.rows.path == str(tmp_path / "rows")) == in_place
    same(model.value(val, Y_VAL), KNNShapley().fit(kept, labels).value(val, Y_VAL))


def test_a_memory_map_whose_file_has_another_name_now_is_copied(tmp_path: Path) -> None:
    rows = memory_map(tmp_path / "rows", X)
    os.rename(tmp_path / "rows", tmp_path / "moved")
    memory_map(tmp_path / "rows", X[::-1].copy())
    same(KNNShapley().fit(rows, Y).value(X_VAL, Y_VAL), in_memory())


def batches(kind: str) -> Iterator[tuple[Any, Any]]:
    wrap: dict[str, Callable[[Any], Any]] = {
        "frames": lambda rows: pd.DataFrame(rows, columns=NAMES),
        "frames in other orders": lambda rows: pd.DataFrame(rows, columns=NAMES)[NAMES[:: 1 if len(rows) > 9 else -1]],
        "lists": lambda rows: rows.tolist(),
        "sparse": sparse.csr_array,
        "wider later": lambda rows: rows.astype(np.float64) if len(rows) < 10 else rows,
    }
    for start, stop in ((0, 20), (20, 24), (24, N)):
        yield wrap.get(kind, lambda rows: rows)(X[start:stop]), Y[start:stop]


@pytest.mark.parametrize("kind", ["arrays", "frames", "frames in other orders", "lists", "sparse", "wider later"])
def test_batches_of_every_kind(kind: str) -> None:
    model = KNNShapley().fit(batches(kind))
    val = pd.DataFrame(X_VAL, columns=NAMES) if "frames" in kind else X_VAL
    same(model.value(val, Y_VAL), in_memory())
    wide = kind not in ("arrays", "sparse")  # what comes in several types, or in none, is kept as float64
    assert model._index.rows.dtype == ("<f8" if wide else "<f4")


def test_empty_batches_are_passed_over() -> None:
    pieces = [(X[:0], Y[:0]), (X[:20], Y[:20]), ([], []), (X[20:], Y[20:])]
    same(KNNShapley().fit(iter(pieces)).value(X_VAL, Y_VAL), in_memory())


@pytest.mark.parametrize("labels", [np.array(["x", "y", "z"], dtype=object)[Y], Y.astype(np.int8), Y > 1, Y / 2])
def test_labels_of_every_kind(tmp_path: Path, labels: np.ndarray) -> None:
    folder = write_parts(tmp_path / "data", labels=labels)
    model = KNNShapley().fit(folder, "label")
    want = KNNShapley().fit(pd.DataFrame(X, columns=NAMES), labels)
    assert model.classes_.tolist() == want.classes_.tolist()
    val = pd.DataFrame(X_VAL, columns=NAMES)
    same(model.value(val, labels[:M]), want.value(val, labels[:M]))


def test_labels_of_two_kinds_stay_what_they_are(tmp_path: Path) -> None:
    pq.write_table(frame(slice(0, 30), labels=np.array(["x", "y", "z"])[Y]), tmp_path / "a.parquet")
    pq.write_table(frame(slice(30, 60)), tmp_path / "b.parquet")
    assert set(KNNShapley().fit(f"{tmp_path}/*.parquet", "label").classes_.tolist()) == {"x", "y", "z", 0, 1, 2}
    pieces = [(X[:30], ["x"] * 30), (X[30:], Y[30:])]
    assert set(KNNShapley().fit(iter(pieces)).classes_.tolist()) == {"x", 0, 1, 2}


def test_ids_and_groups_are_columns_too(tmp_path: Path) -> None:
    folder = write_parts(tmp_path / "data", key=np.array([f"row {i}" for i in range(N)]))
    val = pa.table({**{name: X_VAL[:, j] for j, name in enumerate(NAMES[::-1])}, "label": Y_VAL, "day": Y_VAL % 2})
    pq.write_table(val, tmp_path / "val.parquet")
    found = KNNShapley().fit(folder, "label", ids="key").value(tmp_path / "val.parquet", "label", groups="day")
    want = KNNShapley().fit(X, Y, ids=[f"row {i}" for i in range(N)])
    same(found, want.value(X_VAL[:, ::-1], Y_VAL, groups=Y_VAL % 2))  # columns are matched by name
    assert found.to_frame("pandas").index[0] == "row 0"


@pytest.mark.parametrize("method", ["exact", "certified", "truncated"])
def test_the_validation_side_stays_in_a_file_too(tmp_path: Path, method: str) -> None:
    options = {"method": method, "tol": 0.01}
    model = KNNShapley(**options).fit(memory_map(tmp_path / "rows", X), Y)
    groups = np.arange(M) % 2
    want = KNNShapley(**options).fit(X, Y).value(X_VAL, Y_VAL, groups=groups)
    same(model.value(memory_map(tmp_path / "points", X_VAL), Y_VAL, groups=groups), want)
    same(model.value(((X_VAL[i : i + 3], Y_VAL[i : i + 3]) for i in range(0, M, 3)), None, groups=groups), want)


def test_few_rows_are_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowfile, "LOAD_BYTES", 8 * N * D)
    model = KNNShapley(scratch=tmp_path).fit(write_parts(tmp_path / "data"), "label")
    assert isinstance(model._index.rows, np.ndarray)
    same(model.value(pd.DataFrame(X_VAL, columns=NAMES), Y_VAL), in_memory())
    small = KNNShapley(max_memory=8 * N * D).fit(tmp_path / "data", "label")  # half of the budget at most
    assert isinstance(small._index.rows, RowFile)
    assert sorted(os.listdir(tmp_path)) == ["data", "tmp"]


def test_half_of_the_memory_budget_is_loaded_at_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rowfile, "LOAD_BYTES", 2**28)
    rows = memory_map(tmp_path / "rows", X)
    for given in ((rows, Y), (write_parts(tmp_path / "data"), "label"), (iter([(X, Y)]), None)):
        model = KNNShapley(max_memory=2 * 8 * N * D - 1).fit(*given)
        assert isinstance(model._index.rows, RowFile)
    assert not isinstance(KNNShapley(max_memory=2 * 8 * N * D).fit(rows, Y)._index.rows, RowFile)


def test_rows_stay_in_a_folder_of_the_callers_choice_and_are_found_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, scratch = write_parts(tmp_path / "data"), tmp_path / "scratch"
    scratch.mkdir()
    first = KNNShapley(scratch=scratch).fit(folder, "label")
    (kept,) = os.listdir(scratch)
    np.testing.assert_array_equal(np.load(scratch / kept), X)  # a plain NumPy file
    del first
    gc.collect()
    with monkeypatch.context() as patch:
        patch.setattr(RowWriter, "__init__", lambda *_: pytest.fail("written again"))
        again = KNNShapley(scratch=scratch).fit(folder, "label")
    same(again.value(pd.DataFrame(X_VAL, columns=NAMES), Y_VAL), in_memory())
    write_parts(folder, sizes=(20, 0, 40))  # other parts, another file
    KNNShapley(scratch=scratch).fit(folder, "label")
    assert len(os.listdir(scratch)) == 2
    (scratch / kept).write_bytes(b"half a file")
    KNNShapley(scratch=scratch).fit(folder, "label")
    assert all(np.load(scratch / name).shape == (N, D) for name in os.listdir(scratch) if name != kept)


def test_two_fits_at_a_time_share_the_file_that_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, kept = write_parts(tmp_path / "data"), tmp_path / "kept"
    kept.mkdir()
    first, second, convert = KNNShapley(scratch=kept), KNNShapley(scratch=kept), parquet._convert

    def meanwhile(*given: Any) -> Any:
        monkeypatch.setattr(parquet, "_convert", convert)
        found = convert(*given)
        second.fit(folder, "label")
        return found

    monkeypatch.setattr(parquet, "_convert", meanwhile)
    first.fit(folder, "label")
    for model in (second, first):
        model.value(pd.DataFrame(X_VAL, columns=NAMES), Y_VAL)
    assert len(os.listdir(kept)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_process_leaves_the_scratch_file_to_its_parent() -> None:
    model = KNNShapley().fit(iter([(X, Y)]))
    child = os.fork()
    if child == 0:
        model.fit(iter([(X, Y)]))
        del model
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    same(model.value(X_VAL, Y_VAL), in_memory())


def test_copies_share_the_scratch_file_and_other_processes_only_read_it() -> None:
    model = KNNShapley().fit(batches("arrays"))
    deep, sent = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
    del model
    gc.collect()
    same(deep.value(X_VAL, Y_VAL), in_memory())
    same(sent.value(X_VAL, Y_VAL), in_memory())
    del deep
    gc.collect()
    with pytest.raises(ValueError, match=r"file of 'X', .* is gone"):
        sent.value(X_VAL, Y_VAL)


def write_bad(folder: Path, what: str) -> Path:
    write_parts(folder)
    part = pq.read_table(folder / "part-2.parquet")
    column = part["b"].to_pylist()
    column[4] = {"NaN": float("nan"), "infinity": float("inf"), "missing": None}.get(what, 0.0)
    changes = {
        "text": pa.array([str(entry) for entry in column]),
        "dates": pa.array(np.arange(35).astype("M8[D]")),
    }
    part = part.set_column(1, "b", changes.get(what, pa.array(column, pa.float32())))
    if what == "no column":
        part = part.drop_columns("b")
    if what == "extra column":
        part = part.append_column("weight", pa.array(column))
    if what == "no label":
        labels = part["label"].to_pylist()
        labels[9] = None
        part = part.set_column(3, "label", pa.array(labels))
    pq.write_table(part, folder / "part-2.parquet")
    return folder


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("NaN", r"X \(file '.*part-2.parquet'\).*contains NaN.*row 4, column 'b'"),
        ("infinity", r"part-2.parquet.*infinity.*row 4, column 'b'"),
        ("missing", r"Column 'b' has missing entries in '.*part-2.parquet', the first at row 4\."),
        ("no label", r"Column 'label' has missing entries in '.*part-2.parquet', the first at row 9\."),
        ("text", r"Column 'b' of 'X' has type string in '.*part-2.parquet'; features must be numbers"),
        ("dates", r"Column 'b' of 'X' has type date32.*in '.*part-2.parquet'"),
        ("no column", r"'.*part-2.parquet' lacks 'b', unlike '.*part-0.parquet'"),
        ("extra column", r"'.*part-2.parquet' also has 'weight', unlike"),
    ],
)
def test_what_is_wrong_in_a_part_is_named_with_its_place(tmp_path: Path, what: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        KNNShapley().fit(write_bad(tmp_path / "data", what), "label")


@pytest.mark.parametrize(
    ("what", "message"), [("no column", "lacks 'b', unlike"), ("extra column", "also has 'weight'")]
)
def test_parts_in_folders_named_after_a_column_have_the_same_columns_too(
    tmp_path: Path, what: str, message: str
) -> None:
    folder = write_bad(tmp_path / "data", what)
    for k in (0, 2):
        (folder / f"day={k}").mkdir()
        (folder / f"part-{k}.parquet").rename(folder / f"day={k}/part.parquet")
    (folder / "part-1.parquet").unlink()
    with pytest.raises(ValueError, match=rf"day=2/part.parquet' {message}"):
        KNNShapley().fit(folder, "label")


def test_a_part_that_is_damaged_inside_is_named(tmp_path: Path) -> None:
    path = write_parts(tmp_path / "data") / "part-2.parquet"
    content = bytearray(path.read_bytes())
    content[4:40] = b"\xff" * 36
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"part-2.parquet' cannot be read completely \(Couldn't deserialize"):
        KNNShapley().fit(tmp_path / "data", "label")


def test_labels_are_single_values(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": [1.0, 2.0], "label": [[1], [2]]}), tmp_path / "lists.parquet")
    with pytest.raises(ValueError, match=r"Column 'label' of 'X' has type list.*must be single values"):
        KNNShapley().fit(tmp_path / "lists.parquet", "label")


def test_a_memory_map_with_a_bad_entry_is_refused(tmp_path: Path) -> None:
    rows = X.copy()
    rows[41, 2] = np.nan
    with pytest.raises(ValueError, match=r"NaN.*row 41"):
        KNNShapley().fit(memory_map(tmp_path / "rows", rows), Y)


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (lambda p: (p / "data", "lable"), ValueError, r"no column 'lable' in '.*part-0.parquet'. It has 'a', 'b'"),
        (lambda p: (p / "data", None), ValueError, r"'y' parameter must name the column of labels.*'label'"),
        (lambda p: (p / "none.parquet", "label"), FileNotFoundError, r"no file '.*none.parquet'"),
        (lambda p: (p / "empty", "label"), FileNotFoundError, r"holds no Parquet file"),
        (lambda p: (p / "hollow", "label"), ValueError, r"columns but no rows in its 2 parts"),
        (lambda p: (p / "text.parquet", "label"), ValueError, r"not a whole Parquet file"),
        (lambda p: (p / "narrow.parquet", "label"), ValueError, r"no column of features besides 'label'"),
        (lambda p: (iter([(X, Y)]), Y), ValueError, r"'y' parameter must be None when 'X' is an iterator"),
        (lambda p: (iter([]), None), ValueError, r"yields no rows. Was it used up"),
        (lambda p: (iter([X]), None), TypeError, r"'batch 0 of X' must be a pair .* Got ndarray"),
        (lambda p: (iter([(X, Y, Y)]), None), TypeError, r"must be a pair .* Got tuple of length 3"),
        (lambda p: (iter([(X, Y), (X[:, :2], Y)]), None), ValueError, r"'batch 1 of X' has 2 features.* 3"),
        (lambda p: (iter([(X, Y[:9])]), None), ValueError, r"'labels of batch 0 of X' must have one label for each"),
        (lambda p: (iter([(X * np.float32(np.nan), Y)]), None), ValueError, r"batch 0 of X contains NaN"),
    ],
)  # fmt: skip
def test_bad_sources_are_refused(tmp_path: Path, given: Any, error: type[Exception], message: str) -> None:
    write_parts(tmp_path / "data")
    write_parts(tmp_path / "hollow", sizes=(0, 0))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("a,b\n1,2\n")
    pq.write_table(pa.table({"label": Y}), tmp_path / "narrow.parquet")
    with pytest.raises(error, match=message):
        KNNShapley().fit(*given(tmp_path))


def test_validation_columns_must_be_those_of_training(tmp_path: Path) -> None:
    model = KNNShapley().fit(write_parts(tmp_path / "data"), "label")
    pq.write_table(frame(slice(0, 5)).drop_columns("b"), tmp_path / "val.parquet")
    with pytest.raises(ValueError, match=r"columns of 'X_val' must be those of the training rows.*missing 'b'"):
        model.value(tmp_path / "val.parquet", "label")
    with pytest.raises(ValueError, match=r"'scratch' parameter of KNNShapley must name an existing folder"):
        KNNShapley(scratch=tmp_path / "none").fit(tmp_path / "data", "label")


def test_unnamed_batches_are_warned_about_once(tmp_path: Path) -> None:
    model = KNNShapley().fit(write_parts(tmp_path / "data"), "label")
    with pytest.warns(UserWarning, match="does not have feature names") as said:
        found = model.value(((X_VAL[i : i + 1], Y_VAL[i : i + 1]) for i in range(M)), None)
    assert len(said) == 1
    same(found, in_memory())


def test_a_file_that_changes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = memory_map(tmp_path / "rows", X, "r+")
    model = KNNShapley().fit(rows, Y)
    fill = KNNShapley._valuation

    def change(*arguments: Any) -> Any:  # between two passes
        rows[5] = 3.0
        rows.flush()
        os.utime(tmp_path / "rows", ns=(1, 1))
        return fill(*arguments)

    monkeypatch.setattr(KNNShapley, "_valuation", change)
    with pytest.raises(ValueError, match=r"file of 'X', '.*rows', was changed after it was first read"):
        model.value(X_VAL, Y_VAL)
    with pytest.raises(ValueError, match=r"was changed after it was first read. Start again"):
        model.value(X_VAL, Y_VAL)
    with open(tmp_path / "rows", "r+b") as file:
        file.truncate(100)
    os.utime(tmp_path / "rows", ns=(model._index.rows.stamp[1],) * 2)
    with pytest.raises(ValueError, match=r"was changed"):
        model.value(X_VAL, Y_VAL)


def test_a_part_that_changes_while_it_is_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_parts(tmp_path / "data")
    append = RowWriter.append

    def change(*arguments: Any) -> None:
        append(*arguments)
        os.utime(folder / "part-0.parquet", ns=(1, 1))

    monkeypatch.setattr(RowWriter, "append", change)
    with pytest.raises(ValueError, match=r"'.*part-0.parquet' was changed while it was read"):
        KNNShapley().fit(folder, "label")


@pytest.mark.parametrize("error", [RuntimeError("the source broke"), KeyboardInterrupt()])
@pytest.mark.parametrize("widened", [False, True])
def test_an_interrupted_call_leaves_nothing_behind_and_the_last_fit_as_it_was(
    error: BaseException, widened: bool
) -> None:
    def breaks() -> Iterator[tuple[Any, Any]]:
        yield X[:20], Y[:20]
        if widened:
            yield X[20:30].astype(np.float64), Y[20:30]
        raise error

    model = KNNShapley().fit(X, Y)
    with pytest.raises(type(error)):
        model.fit(breaks())
    same(model.value(X_VAL, Y_VAL), in_memory())
    # That no file is left is checked after every test.


FULL = """
import resource, sys
import numpy as np
from shapshift import KNNShapley
from shapshift.engine.rows import file as rowfile
from shapshift.engine.rows.file import spilled
rowfile.LOAD_BYTES = 0
rng = np.random.default_rng(0)
X, y = rng.normal(size=(4000, 40)), rng.integers(0, 2, 4000)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
for attempt in (
    lambda: KNNShapley(scratch=sys.argv[1]).fit((X[i : i + 500], y[i : i + 500]) for i in range(0, 4000, 500)),
    lambda: spilled(sys.argv[1], (100_000,), np.float64),
):
    try:
        attempt()
    except OSError as error:
        print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="files are limited by setrlimit")
def test_a_full_disk_is_named_and_nothing_is_left_on_it(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    run = subprocess.run([sys.executable, "-c", FULL, str(scratch)], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    said = run.stdout.splitlines()
    assert len(said) == 2
    for line in said:
        assert f"A scratch file does not fit into '{scratch}'" in line
        assert "'scratch' parameter" in line
    assert os.listdir(scratch) == []


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="there is no call that asks for room")
def test_room_for_a_mapped_file_is_asked_for_before_it_is_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, start: int, size: int) -> None:
        assert size == 800
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=r"does not fit into .* \(No space left on device; free: .*MB\)"):
        rowfile.spilled(None, (100,), np.float64)


def test_the_other_models_read_files_too(tmp_path: Path) -> None:
    y, y_val = Y.astype(float), Y_VAL.astype(float)
    for model in (
        KNNRegressionShapley(progress=False),
        ThresholdKNNShapley(2.0, progress=False),
        WeightedKNNShapley(2, progress=False),
    ):
        want = model.fit(X, y).value(X_VAL, y_val)
        model.scratch = tmp_path
        found = model.fit((X[k : k + 50], y[k : k + 50]) for k in range(0, len(X), 50)).value(X_VAL, y_val)
        assert found.values.tobytes() == want.values.tobytes()
