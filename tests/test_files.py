"""Files that others have planted, damaged or packed to burst do no harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import stat
import struct
import subprocess
import sys
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from cli_files import make_tables, run

from shapshift import KNNShapley, Valuation
from shapshift.engine.rows import file as rowfile
from shapshift.io.files import lock_file, write_atomically, write_text
from shapshift.tables import read_table

RNG = np.random.default_rng(3)
N = 400
VALUE = ("--label", "class", "--id", "row", "--owner", "seller")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")


def table(n: int = N) -> pa.Table:
    return pa.table(
        {
            "x": RNG.normal(size=n),
            "text": [f"seller {i % 7}" for i in range(n)],
            "coded": pa.array([f"kind {i % 5}" for i in range(n)]).dictionary_encode(),
            "vector": pa.array([[1.0, 2.0]] * n),
            "y": ["yes" if i % 2 else "no" for i in range(n)],
        }
    )


def numbers(n: int = N) -> pa.Table:
    return pa.table({"a": RNG.normal(size=n), "b": RNG.normal(size=n), "y": np.arange(n) % 2})


# Temporary names and permissions


def test_a_planted_link_is_neither_followed_nor_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "precious").write_text("mine")
    monkeypatch.setattr("secrets.token_hex", lambda _: "guessed")
    for number, goal in enumerate(("precious", "nothing", "folder")):
        target, planted = tmp_path / f"{number}.txt", tmp_path / f".{number}.txt.guessed.part"
        if goal == "folder":
            (tmp_path / goal).mkdir()
        planted.symlink_to(goal)
        with pytest.raises(FileExistsError):
            write_text(target, "content")
        assert planted.is_symlink()
        assert not target.exists()
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


@pytest.mark.parametrize("goal", ["precious", "nothing"])
def test_a_link_is_replaced_and_not_followed(goal: str, tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("mine")
    (tmp_path / "x").symlink_to(goal)
    write_text(tmp_path / "x", "content")
    assert (tmp_path / "x").read_text() == "content"
    assert not (tmp_path / "x").is_symlink()
    assert (tmp_path / "precious").read_text() == "mine"
    assert not (tmp_path / "nothing").exists()


def test_names_of_temporary_files_cannot_be_foreseen(tmp_path: Path) -> None:
    names = set()
    for _ in range(20):
        write_atomically(tmp_path / "x", lambda file: names.update(os.listdir(tmp_path)) or file.write(b"x"))  # type: ignore[func-returns-value]
    assert len(names - {"x"}) == 20


def test_a_long_name_leaves_room_for_the_temporary_one(tmp_path: Path) -> None:
    write_text(tmp_path / ("x" * 255), "content")


def test_a_lock_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to("elsewhere")
    with pytest.raises(OSError, match="symbolic links"):
        lock_file(tmp_path / "lock")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_are_those_of_any_new_file(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "x", "content")
        with rowfile.RowWriter(tmp_path, 2, "<f8", keep="rows") as writer:
            kept = writer.finish()
        with rowfile.RowWriter(tmp_path, 2, "<f8") as writer:
            private = writer.finish()
    finally:
        os.umask(before)
    assert stat.S_IMODE(os.stat(tmp_path / "x").st_mode) == 0o666 & ~mask
    assert stat.S_IMODE(os.stat(kept.path).st_mode) == 0o666 & ~mask
    assert stat.S_IMODE(os.stat(private.path).st_mode) == 0o600


def test_saving_leaves_the_umask_of_the_process_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # It belongs to all threads: a file that another one makes in the meantime would be open to everybody.
    monkeypatch.setattr(os, "umask", lambda _: pytest.fail("changed for the whole process"))
    write_text(tmp_path / "x", "content")
    model = KNNShapley().fit(RNG.normal(size=(30, 2)), np.arange(30) % 2)
    model.value(RNG.normal(size=(9, 2)), np.arange(9) % 2, checkpoint=tmp_path / "progress").save(tmp_path / "v.npz")
    with rowfile.RowWriter(tmp_path, 2, "<f8", keep="rows") as writer:
        writer.finish()


# Damage


def flipped(content: bytes, place: int, bit: int) -> bytes:
    damaged = bytearray(content)
    damaged[place] ^= 1 << bit
    return bytes(damaged)


def page_places(path: Path, column: str) -> range:
    """Where the pages of a column are in a Parquet file with one row group, without the header of the first."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    first = chunk.data_page_offset + chunk.total_compressed_size // 2
    return range(first, chunk.data_page_offset + chunk.total_compressed_size // 2 + 100)


def read_fitted(path: Path) -> Any:
    return KNNShapley().fit(path, "y")


def read_dataset(path: Path) -> Any:
    return KNNShapley().fit(pads.dataset(path, format="parquet"), "y")


def read_filtered(path: Path) -> Any:
    return KNNShapley().fit(pads.dataset(path, format="parquet").filter(pads.field("y") >= 0), "y")


def read_hive(path: Path) -> Any:
    (path.parent / "k=1").mkdir(exist_ok=True)
    (path.parent / "k=1" / path.name).write_bytes(path.read_bytes())
    return KNNShapley().fit(path.parent / "k=1", "y") and KNNShapley().fit(path.parent / "k=*", "y")


@pytest.mark.parametrize("reader", [read_table, read_fitted, read_dataset, read_filtered, read_hive])
def test_a_flipped_bit_in_a_parquet_page_is_noticed(reader: Callable[[Path], Any], tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(numbers(), path, compression="none", use_dictionary=False, write_page_checksum=True)
    whole = path.read_bytes()
    for place in page_places(path, "b")[::20]:
        path.write_bytes(flipped(whole, place, 2))
        with pytest.raises(ValueError, match=r"rows\.parquet.*CRC checksum verification failed|dataset cannot be read"):
            reader(path)


def test_parquet_files_of_ours_have_checksums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, rows in zip(("train", "val"), make_tables(), strict=True):
        pq.write_table(rows, f"{name}.parquet")
    assert run("value", "train.parquet", "val.parquet", *VALUE, "--out", "out").code == 0
    assert run("demo", "--out", "demo", "--quiet").code == 0
    for path, column in (("out/values.parquet", "value"), ("demo/values.parquet", "value")):
        whole = Path(path).read_bytes()
        Path(path).write_bytes(flipped(whole, page_places(Path(path), column)[0], 0))
        with pytest.raises(ValueError, match="not a whole Parquet file"):
            read_table(path)


@needs_fork
@pytest.mark.parametrize("compression", ["uncompressed", "lz4"])
@pytest.mark.parametrize("ending", [".feather", ".arrows"])
def test_damaged_arrow_files_end_no_process(ending: str, compression: str, tmp_path: Path) -> None:
    path, rng = tmp_path / f"rows{ending}", np.random.default_rng(0)
    write_arrow(table(), path, compression)
    whole = path.read_bytes()
    ends = [0, 0]

    def read_damaged() -> None:
        for _ in range(60):
            content = whole
            for _ in range(3):
                content = flipped(content, int(rng.integers(8, len(whole))), int(rng.integers(8)))
            path.write_bytes(content)
            try:
                refused = not [column.to_pylist() for column in read_table(path).columns]
            except ValueError:
                refused = True
            ends[refused] += 1
        assert min(ends) > 3

    assert in_child(read_damaged) == 0


def write_arrow(rows: pa.Table, path: Path, compression: str) -> None:
    if path.suffix == ".feather":
        feather.write_feather(rows, path, compression=compression)
        return
    options = pa.ipc.IpcWriteOptions(compression=None if compression == "uncompressed" else compression)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, rows.schema, options=options) as writer:
        writer.write_table(rows)


def in_child(work: Callable[[], object]) -> int:
    """Do something in another process; returns 0 if it was done, 1 for a ValueError; anything else fails."""
    child = os.fork()
    if child == 0:
        code = 2
        try:
            work()
            code = 0
        except ValueError:
            code = 1
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    assert not os.WIFSIGNALED(status), signal.Signals(os.WTERMSIG(status))
    assert os.WEXITSTATUS(status) < 2
    return os.WEXITSTATUS(status)


@needs_fork
@pytest.mark.parametrize("reader", ["dataset", "stream"])
def test_damaged_batches_end_no_process_either(reader: str, tmp_path: Path) -> None:
    rows = pa.table({"a": RNG.normal(size=N), "y": [f"label {i % 3}" for i in range(N)]})
    path = tmp_path / "rows.arrow"
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, rows.schema) as writer:
        writer.write_table(rows)
    whole = path.read_bytes()
    offsets = rows["y"].chunk(0).buffers()[1].to_pybytes()[:64]
    path.write_bytes(whole.replace(offsets, offsets[:40] + struct.pack("<i", 2**30) + offsets[44:]))
    assert path.read_bytes() != whole

    def fit() -> None:
        if reader == "dataset":
            KNNShapley().fit(pads.dataset(path, format="feather"), "y")
        else:
            opened = pa.ipc.open_file(str(path))
            KNNShapley().fit(pa.RecordBatchReader.from_batches(rows.schema, [opened.get_batch(0)]), "y")

    assert in_child(fit) == 1


def test_kept_rows_that_were_damaged_are_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows, scratch = numbers(), tmp_path / "scratch"
    scratch.mkdir()
    pq.write_table(rows, tmp_path / "rows.parquet")
    monkeypatch.setattr(rowfile, "LOAD_BYTES", 1)

    def fit() -> Valuation:
        model = KNNShapley(scratch=scratch).fit(tmp_path / "rows.parquet", "y")
        return model.value(pa.table({"a": [0.1, 0.2], "b": [0.0, 1.0]}), [0, 1])

    want = fit().values
    (kept,) = scratch.iterdir()
    whole = kept.read_bytes()
    np.testing.assert_array_equal(np.load(kept), np.column_stack([rows["a"], rows["b"]]))
    for place in (140, len(whole) // 2, len(whole) - 2):
        kept.write_bytes(flipped(whole, place, 4))
        np.testing.assert_array_equal(fit().values, want)
        assert [path.read_bytes() for path in scratch.iterdir()] == [whole]


# Archives and tables that unpack to much more than they are


def saved(tmp_path: Path) -> Path:
    path = tmp_path / "valuation.npz"
    model = KNNShapley().fit(RNG.normal(size=(30, 2)), np.arange(30) % 2)
    model.value(RNG.normal(size=(9, 2)), np.arange(9) % 2).save(path)
    return path


def members(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def npy(shape: tuple[int, ...], descr: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue() + content


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("how", ["part", "object", "table"])
def test_an_array_that_is_there_twice_is_refused(how: str, tmp_path: Path) -> None:
    path = saved(tmp_path)
    if how == "table":
        np.savez(path, X=np.ones((4, 2)), y=np.arange(4))
    parts = members(path)
    if how == "object":
        with np.load(path) as arrays:
            header = json.loads(arrays["header"].tobytes())
        header["objects"]["values"] = [1.0] * 30
        content = json.dumps(header).encode()
        parts["header.npy"] = npy((len(content),), "|u1", content)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        if how != "object":
            name = "y.npy" if how == "table" else "values.npy"
            archive.writestr(name, parts[name])
    with pytest.raises(ValueError, match="an array twice"):
        (read_table if how == "table" else Valuation.load)(path)


@pytest.mark.parametrize("how", ["compressed", "longer", "shorter", "nothing", "negative", "overlap"])
def test_results_that_say_one_size_and_have_another_are_refused(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path)
    parts = members(path)
    bad = {
        "longer": npy((2**40,), "<f8", bytes(80)),
        "shorter": npy((2,), "<f8", bytes(2**20)),
        "nothing": npy((2**40,), "<U0", b""),
        "negative": npy((-3, -5), "<f8", bytes(120)),
    }
    parts |= {"values.npy": bad[how]} if how in bad else {}
    if how == "overlap":
        parts |= {"entropy.npy": npy((2**17,), "<f8", bytes(2**20))}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED if how == "compressed" else zipfile.ZIP_STORED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        if how == "overlap":  # one content under many names
            entry = archive.getinfo("entropy.npy")
            for number in range(50):
                other = zipfile.ZipInfo(f"n{number:05}.npy")
                for field in ("compress_size", "file_size", "CRC", "header_offset"):
                    setattr(other, field, getattr(entry, field))
                archive.filelist.append(other)
    read_array = np.lib.format.read_array
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: pytest.fail("read before it was refused"))
    why = {"compressed": "is compressed", "overlap": "overlap", "nothing": "entries of no bytes"}
    with pytest.raises(ValueError, match=why.get(how, "says another size")):
        Valuation.load(path)
    monkeypatch.setattr(np.lib.format, "read_array", read_array)
    saved(tmp_path)
    assert Valuation.load(path).n_train == 30


def peak_growth(work: Callable[[], object]) -> int:
    """How many bytes of memory something takes at most, in another process; it must end in a ValueError."""
    import resource

    begin, end = os.pipe()

    def measured() -> None:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            work()
        finally:
            os.write(end, struct.pack("q", 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)))

    assert in_child(measured) == 1
    return int(struct.unpack("q", os.read(begin, 8))[0])


def write_bomb(kind: str, path: Path) -> None:
    """A small file that unpacks to half a gigabyte and more."""
    n = 2**26
    if kind == "numbers.parquet":
        pq.write_table(pa.table({"x": pa.array(np.zeros(2**22)), "y": pa.array(np.zeros(2**22, dtype=bool))}), path)
        repeat_row_group(path, 10)
    elif kind == "text.parquet":
        words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**15, np.int32)), pa.array(["long" * 2**14]))
        pq.write_table(pa.table({"x": np.arange(2.0**15), "y": words}), path, store_schema=False)
    elif kind == "coded.feather":
        words = pa.DictionaryArray.from_arrays(pa.array(np.zeros(2**15, np.int32)), pa.array(["long" * 2**14]))
        feather.write_feather(pa.table({"x": np.arange(2.0**15), "y": words}), path)
    elif kind in ("numbers.feather", "numbers.arrows"):
        write_arrow(pa.table({"x": np.zeros(n), "y": np.zeros(n)}), path, "zstd" if "arrows" in kind else "lz4")
    elif kind == "rows.csv.gz":
        with gzip.open(path, "wb", 1) as file:
            file.write(b"x,y\n")
            for _ in range(2**9):
                file.write(b"0,1\n" * 2**18)
    elif kind == "cells.csv.gz":  # 8 bytes in memory for each byte of text
        with gzip.open(path, "wb", 1) as file:
            file.write(b",".join(b"c%d" % j for j in range(1000)) + b"\n")
            for _ in range(2**6):
                file.write((b"," * 999 + b"\n") * 2**10)
    elif kind == "rows.jsonl.gz":
        with gzip.open(path, "wb", 1) as file:
            for _ in range(2**9):
                file.write(b'{"x":0}\n' * 2**17)
    else:
        np.savez_compressed(path, X=np.zeros((n, 1)), y=np.zeros(n, dtype=np.int8))


def repeat_row_group(path: Path, times: int) -> None:
    rows = pq.read_table(path)
    with pq.ParquetWriter(path, rows.schema) as writer:
        for _ in range(times):
            writer.write_table(rows)


BOMBS = [
    "numbers.parquet",
    "text.parquet",
    "coded.feather",
    "numbers.feather",
    "numbers.arrows",
    "rows.csv.gz",
    "cells.csv.gz",
    "rows.jsonl.gz",
    "rows.npz",
]


@needs_fork
@pytest.mark.skipif(sys.platform != "linux", reason="memory is counted as Linux counts it")
@pytest.mark.parametrize("kind", BOMBS)
def test_bombs_are_refused_within_the_memory_that_is_allowed(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    assert in_child(lambda: write_bomb(kind, path)) == 0
    assert path.stat().st_size < 2**24
    assert peak_growth(lambda: read_table(path, max_memory="200MB")) < 300e6
    with pytest.raises(ValueError, match=rf"'max_memory' .* must be at least [\d,]+MB to read .*{kind}.* Got 200MB"):
        read_table(path, max_memory="200MB")


def test_the_command_line_reads_within_its_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = make_tables()
    for name, part in zip(("train", "val"), rows, strict=True):
        pq.write_table(part, f"{name}.parquet")
    pq.write_table(pa.concat_tables([rows[1]] * 5000), "many.parquet")
    for files in (("train.parquet", "many.parquet"), ("many.parquet", "val.parquet")):
        ran = run("value", *files, *VALUE, "--max-memory", "5MB", "--out", "out")
        assert ran.code == 2, ran.err
        said = " ".join(ran.err.split())
        assert "--max-memory must be at least" in said
        assert "'many.parquet'" in said
    command = ("correct", "train.parquet", "val.parquet", *VALUE, "--max-memory", "5MB", "--out", "out")
    ran = run(*command, "--clean-val", "many.parquet")
    assert (ran.code, "--max-memory must be at least" in " ".join(ran.err.split())) == (2, True), ran.err


def test_parts_count_together(tmp_path: Path) -> None:
    for number in range(4):
        pq.write_table(numbers(10_000), tmp_path / f"{number}.parquet")
    assert read_table(tmp_path, max_memory="1MB").num_rows == 40_000
    with pytest.raises(ValueError, match=r"at least 1MB to read .*3\.parquet"):
        read_table(tmp_path, max_memory="0.95MB")


def test_a_table_larger_than_the_memory_that_is_available_is_refused(tmp_path: Path) -> None:
    pytest.importorskip("resource", reason="only Unix limits the address space of a process")
    rows = tmp_path / "rows.parquet"
    pq.write_table(pa.table({"x": pa.array(np.zeros(25_000_000))}), rows)
    code = f"""
import os, resource
from shapshift.tables import read_table
pages = int(open("/proc/self/statm").read().split()[0]) if os.path.exists("/proc/self/statm") else 0
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 100_000_000,) * 2)
read_table({os.fspath(rows)!r})
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "must be at least 200MB to read" in ran.stderr, ran.stderr
    assert "it is the memory that is available" in ran.stderr


def test_tables_that_people_compress_are_read(tmp_path: Path) -> None:
    X = RNG.normal(size=(20, 3))
    np.savez_compressed(tmp_path / "rows.npz", X=X, y=np.arange(20) % 2)
    found = read_table(tmp_path / "rows.npz", max_memory="1MB")
    np.testing.assert_array_equal(np.column_stack([found[f"x{j}"] for j in range(3)]), X)


def test_text_in_parquet_comes_back_as_it_was(tmp_path: Path) -> None:
    words = ["a", None, "", "longer text", "ä"] * 20_000
    rows = pa.table(
        {
            "plain": pa.array(words),
            "large": pa.array(words, pa.large_string()),
            "bytes": pa.array([None if word is None else word.encode() for word in words]),
            "coded": pa.array(words).dictionary_encode(),
            "lists": pa.array([[word] for word in words]),
            "a.b": pa.array(words),
            "number": np.arange(100_000.0),
        }
    )
    path = tmp_path / "rows.parquet"
    for options in ({}, {"use_dictionary": False}, {"use_dictionary": ["plain"], "dictionary_pagesize_limit": 10}):
        pq.write_table(rows, path, row_group_size=30_000, **options)
        found = read_table(path)
        assert found.schema.types == rows.schema.types
        assert found.replace_schema_metadata().equals(rows)
    assert read_table(path, columns=["number", "large"]).equals(
        read_table(path).select(["number", "large"]), check_metadata=False
    )
