"""Files of every kind become the same arrays; broken ones are named, with what to do."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import json
import os
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shapshift import KNNShapley, data
from shapshift.tables import Prepared, TableSpec, file_digest, prepare, read_table

Table = Any


def numeric_table(n: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "width": rng.normal(size=n) * 10.0 ** rng.integers(-8, 8, n),
            "height": rng.normal(size=n),
            "depth": rng.uniform(size=n),
            "y": rng.integers(0, 3, n),
            "ids": [f"row-{i}" for i in range(n)],
            "owners": [f"owner {i % 4}" for i in range(n)],
        }
    )


def mixed_table(n: int, seed: int) -> Table:
    rng = np.random.default_rng(seed)
    return pa.table(
        {
            "amount": rng.normal(size=n),
            "count": rng.integers(0, 50, n),
            "colour": rng.choice(["red", "blue, dark", 'the "green"', "née"], n),
            "flag": rng.integers(0, 2, n).astype(bool),
            "y": rng.choice(["good", "bad"], n),
        }
    )


def write_stream(table: Table, path: Path) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table)


def write_json(table: Table, path: Path) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), encoding="utf-8")


def write_npz(table: Table, path: Path) -> None:
    names = table.column_names[:-3]
    X = np.column_stack([table[name].to_numpy() for name in names])
    others = {name: np.array(table[name].to_pylist()) for name in ("y", "ids", "owners")}
    np.savez(path, X=X, feature_names=np.array(names), **others)


def write_parts(table: Table, path: Path) -> None:
    path.mkdir()
    (path / "_SUCCESS").touch()
    for k, start in enumerate(range(0, table.num_rows, 7)):
        pq.write_table(table.slice(start, 7), path / f"part-{k:03d}.parquet")


def csv_writer(**how: Any) -> Callable[[Table, Path], None]:
    encoding = how.pop("encoding", "utf-8")

    def write(table: Table, path: Path) -> None:
        with open(path, "w", encoding=encoding, newline="") as file:
            writer = csv.writer(file, **how)
            writer.writerow(table.column_names)
            writer.writerows(row.values() for row in table.to_pylist())

    return write


def write_gzip(table: Table, path: Path) -> None:
    text = io.StringIO()
    pd.DataFrame(table.to_pydict()).to_csv(text, index=False)
    path.write_bytes(gzip.compress(text.getvalue().encode()))


FORMATS: dict[str, Callable[[Table, Path], None]] = {
    "rows.parquet": pq.write_table,
    "rows.pq": lambda table, path: pq.write_table(table, path, compression="zstd", use_dictionary=False),
    "rows.feather": feather.write_feather,
    "rows.arrow": lambda table, path: feather.write_feather(table, path, compression="uncompressed"),
    "rows.arrows": write_stream,
    "rows.jsonl": write_json,
    "parts": write_parts,
    "rows.csv": csv_writer(),
    "semicolon.csv": csv_writer(delimiter=";", encoding="utf-8-sig"),
    "rows.tsv": csv_writer(delimiter="\t", encoding="utf-16", quoting=csv.QUOTE_ALL),
    "rows.psv": csv_writer(delimiter="|", encoding="cp1252", lineterminator="\n"),
    "rows.csv.gz": write_gzip,
    "disguised.csv": pq.write_table,
}


def prepared_from(kind: str, folder: Path, make: Callable[[int, int], Table], spec: TableSpec) -> Prepared:
    tables = []
    for name, n, seed in (("train", 40, 1), ("val", 15, 2)):
        (folder / name).mkdir()
        path = folder / name / kind
        FORMATS.get(kind, write_npz)(make(n, seed), path)
        tables.append(read_table(path, text=[column for column in (spec.label, spec.id, spec.owner) if column]))
    return prepare(*tables, spec)


def assert_same(got: Prepared, expected: Prepared) -> None:
    assert got.X_train.tobytes() == expected.X_train.tobytes()
    assert got.X_val.tobytes() == expected.X_val.tobytes()
    assert got.feature_names == expected.feature_names
    for name in ("y_train", "y_val", "ids", "owners", "ids_val", "owners_val"):
        left, right = getattr(got, name), getattr(expected, name)
        assert (left is None) == (right is None), name
        if left is not None:
            assert left.dtype == right.dtype
            np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("kind", [*FORMATS, "rows.npz"])
def test_every_format_gives_the_same_bits_of_numbers(kind: str, tmp_path: Path) -> None:
    spec = TableSpec("y", id="ids", owner="owners")
    expected = prepare(numeric_table(40, 1), numeric_table(15, 2), spec)
    assert expected.X_train.shape == (40, 3)
    assert_same(prepared_from(kind, tmp_path, numeric_table, spec), expected)


@pytest.mark.parametrize("kind", FORMATS)
def test_every_format_gives_the_same_categories(kind: str, tmp_path: Path) -> None:
    expected = prepare(mixed_table(40, 1), mixed_table(15, 2), TableSpec("y"))
    assert expected.feature_names == [
        "amount",
        "count",
        "colour=blue, dark",
        "colour=née",
        "colour=red",
        'colour=the "green"',
        "flag=False",
        "flag=True",
    ]
    assert_same(prepared_from(kind, tmp_path, mixed_table, TableSpec("y")), expected)


def test_the_arrays_agree_with_a_direct_computation() -> None:
    train, val = mixed_table(40, 1), mixed_table(15, 2)
    got = prepare(train, val, TableSpec("y"))
    for table, X in ((train, got.X_train), (val, got.X_val)):
        for j, name in enumerate(("amount", "count")):
            numbers = train[name].to_numpy().astype(float)
            np.testing.assert_allclose(X[:, j], (table[name].to_numpy() - numbers.mean()) / numbers.std(), rtol=1e-12)
        for j, colour in enumerate(sorted(set(train["colour"].to_pylist()))):
            assert X[:, 2 + j].tolist() == [float(entry == colour) for entry in table["colour"].to_pylist()]
        assert X[:, 7].tolist() == [float(entry) for entry in table["flag"].to_pylist()]
    assert got.y_train.tolist() == train["y"].to_pylist()
    assert got.ids is None
    assert got.owners is None
    assert "scaled 2 numeric columns with StandardScaler fitted on the training rows" in got.notes


# --- CSV ------------------------------------------------------------------------------------------------------------

# Letters first, so that no entry reads as a number, a date or a missing value; then whatever needs quoting.
cells = st.text(st.sampled_from(list("ab ,;|\t\"'\n\r.0é€")), max_size=8).map(lambda text: f"s{text}")


@settings(max_examples=150)
@given(
    rows=st.lists(st.tuples(cells, st.floats(allow_nan=False, allow_infinity=False), cells), min_size=1, max_size=12),
    delimiter=st.sampled_from(",;\t|"),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC]),
    encoding=st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-16-be", "cp1252"]),
    end=st.sampled_from(["\n", "\r\n"]),
)
def test_any_csv_comes_back(
    rows: list[tuple[str, float, str]],
    delimiter: str,
    quoting: Any,
    encoding: str,
    end: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    if end == "\n" and quoting == csv.QUOTE_MINIMAL:  # the writer leaves a carriage return unquoted then
        rows = [(first.replace("\r", ""), number, last.replace("\r", "")) for first, number, last in rows]
    path = tmp_path_factory.mktemp("csv", numbered=True) / "rows.csv"
    with open(path, "w", encoding=encoding, newline="") as file:
        writer = csv.writer(file, delimiter=delimiter, quoting=quoting, lineterminator=end)
        writer.writerow(["first", "number", "last"])
        writer.writerows(rows)
    got = read_table(path)
    assert got["first"].to_pylist() == [row[0] for row in rows]
    assert got["last"].to_pylist() == [row[2] for row in rows]
    assert np.array_equal(got["number"].to_numpy().astype(float), np.array([row[1] for row in rows]))


def test_decimal_commas_of_the_semicolon_dialect(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes("Größe;Preis;n;y\n1,5;2,25;1;a\n-0,5;1e3;2;b\n".encode("cp1252"))
    assert read_table(path).to_pydict() == {"Größe": [1.5, -0.5], "Preis": [2.25, 1000.0], "n": [1, 2], "y": ["a", "b"]}


def test_semicolons_with_decimal_points_and_commas_in_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("x;text\n1.5;a, b\n2.5;c\n")
    assert read_table(path).to_pydict() == {"x": [1.5, 2.5], "text": ["a, b", "c"]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a';'b'\n'x;1';'2'\n", {"a": ["x;1"], "b": [2]}),
        ("sep=|\na|b\n1|2\n", {"a": [1], "b": [2]}),
        ("a,b,\n1,2,\n3,4,\n", {"a": [1, 3], "b": [2, 4]}),
        ("code,x\n007,1\n7,2\n", {"code": ["007", "7"], "x": [1, 2]}),
        ("a, b\n1, 2\n", {"a": [1], "b": [2]}),
        ("a,b\n\n1,2\n\n", {"a": [1], "b": [2]}),
        ("a,b\r1,2\r", {"a": [1], "b": [2]}),
        ("a,b\n1,NA\n,x\n", {"a": [1, None], "b": [None, "x"]}),
        ("PAR1,ORC\n1,2\n", {"PAR1": [1], "ORC": [2]}),
        ("ORCID,x\n1,2\n", {"ORCID": [1], "x": [2]}),
        ('{"a": 1, "b": 2}\n', {"a": [1], "b": [2]}),
        ("name,it's\n'tis,o'er\n", {"name": ["'tis"], "it's": ["o'er"]}),
        ("0,1,label\n1.5,2.5,a\n", {"0": [1.5], "1": [2.5], "label": ["a"]}),
        ("only\n1\n2\n", {"only": [1, 2]}),
    ],
)
def test_csv_as_people_write_it(text: str, expected: dict[str, list[Any]], tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text, newline="")
    assert read_table(path).to_pydict() == expected


def test_a_type_that_shows_late_and_records_longer_than_a_block(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    with open(path, "w") as file:
        file.write("x,text\n")
        file.writelines(f"{i},short\n" for i in range(200_000))
        file.write(f'1.5,"{"long, " * 1_000_000}"\n')
    table = read_table(path)
    assert table["x"].type == pa.float64()
    assert table["x"][-1].as_py() == 1.5
    assert len(table["text"][-1].as_py()) == 6_000_000


def test_line_ends_inside_quotes_across_blocks(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    text = "line\n" * 50
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["x", "text"])
        writer.writerows([i, text] for i in range(40_000))
    table = read_table(path)
    assert table["x"].to_pylist() == list(range(40_000))
    assert set(table["text"].to_pylist()) == {text}


def test_latin_1_where_windows_1252_has_no_such_character(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b"x,y\n1,\x81\xe9\n")
    assert read_table(path)["y"].to_pylist() == ["\x81é"]


# --- files that are broken or not there -----------------------------------------------------------------------------


def refuses(path: object, *parts: str, error: type[Exception] = ValueError) -> str:
    with pytest.raises(error) as caught:
        read_table(path)  # type: ignore[arg-type]
    message = str(caught.value)
    for part in parts:
        assert part in message
    assert len(message) < 700
    return message


def test_missing_files(tmp_path: Path) -> None:
    (tmp_path / "train.parquet").touch()
    refuses(tmp_path / "trian.parquet", "no file", "Did you mean", "train.parquet", error=FileNotFoundError)
    refuses(tmp_path / "zzz.csv", "The folder has: 'train.parquet'", error=FileNotFoundError)
    refuses(tmp_path / "nowhere" / "a.csv", "does not exist either", error=FileNotFoundError)
    refuses(tmp_path / "train.parquet" / "a.csv", "no file", error=FileNotFoundError)
    refuses(tmp_path / ("x" * 100_000 + ".csv"), "100,0", "characters", error=FileNotFoundError)
    refuses("/".join(["deep"] * 100_000), "characters", error=FileNotFoundError)
    refuses(tmp_path / "*.csv", "No file matches", error=FileNotFoundError)
    refuses("", "empty path")
    refuses("a\0b.csv", "cannot be a path")
    refuses("s3://bucket/rows.parquet", "download")
    refuses(7, "'path'", "7", error=TypeError)


def test_a_folder_without_parts_says_what_it_has(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()
    (tmp_path / "_hidden.parquet").touch()
    refuses(tmp_path, "no Parquet file", "notes.txt", error=FileNotFoundError)


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet", "rows.npz", "rows.jsonl", "rows.feather", "rows"])
def test_empty_files(name: str, tmp_path: Path) -> None:
    (tmp_path / name).touch()
    refuses(tmp_path / name, name, "empty (0 bytes)")


@pytest.mark.parametrize("name", ["rows.csv", "rows.jsonl"])
def test_white_space_is_empty_too(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(" \n\n ")
    refuses(tmp_path / name, name, "white space")


def test_a_header_without_rows(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a,b\n")
    refuses(tmp_path / "rows.csv", "no rows")
    pq.write_table(pa.table({"a": pa.array([], pa.int64())}), tmp_path / "rows.parquet")
    refuses(tmp_path / "rows.parquet", "no rows")


@pytest.mark.parametrize("kind", ["rows.parquet", "rows.feather", "rows.arrows", "rows.npz", "rows.csv.gz"])
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.95])
def test_truncated_files(kind: str, kept: float, tmp_path: Path) -> None:
    path = tmp_path / kind
    FORMATS.get(kind, write_npz)(numeric_table(300, 0), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * kept)])
    refuses(path, kind, "anew")


@pytest.mark.parametrize("kind", ["rows.parquet", "rows.feather", "rows.npz"])
def test_damaged_bytes_are_an_error_of_ours_or_harmless(kind: str, tmp_path: Path) -> None:
    path = tmp_path / kind
    FORMATS.get(kind, write_npz)(numeric_table(50, 0), path)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused: list[str] = []
    for _ in range(60):
        bad = bytearray(whole)
        for place in rng.integers(8, len(whole), 12):
            bad[place] = rng.integers(256)
        path.write_bytes(bytes(bad))
        try:
            read_table(path)
        except ValueError as error:
            refused.append(str(error))
    assert len(refused) > 5
    assert all(kind in message for message in refused)


@pytest.mark.parametrize(
    ("text", "line", "fields"),
    [
        ("a,b,c\n1,2,3\n4,5\n6,7,8\n", 3, 2),
        ("a;b;c\n1;2;3\n4;5;6\n7;8;9;10\n", 4, 4),
        ('a,b,c\n1,"two\nlines",3\n\n4,5,6,7\n', 5, 4),
        ("sep=;\na;b\n1;2\n3\n", 4, 1),
    ],
)
def test_ragged_rows_are_named_by_line(text: str, line: int, fields: int, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text)
    refuses(path, f"Line {line} of", "rows.csv", f"has {fields} fields")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('a,b\n1,"2\n3,4\n', 2),
        ('a,b\n"x\ny",1\n\n5,"6\n7,8\n', 5),
        ('sep=;\na;b\n1;2\n3;"4', 4),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_quotation_mark_left_open_swallows_nothing(text: str, line: int, encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(text, encoding=encoding)
    refuses(path, "rows.csv", f"line {line}", "never closed")


def test_an_open_quotation_mark_in_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2\n" * 1000 + '3,"4\n' + "1,2\n" * 100_000)
    refuses(path, "line 1002", "never closed")
    assert csv.field_size_limit() == 131072


def test_quotation_marks_inside_text_are_just_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text('a,b\n5" pipe,1\nx,2\n')
    assert read_table(path).to_pydict() == {"a": ['5" pipe', "x"], "b": [1, 2]}


def test_a_ragged_row_far_down(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n" + "1,2\n" * 300_000 + "1,2,3\n" + "1,2\n" * 10)
    refuses(path, "Line 300002 of", "has 3 fields", "the header has 2")


def test_headers_that_are_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("5.1,3.5,1\n4.9,3.0,0\n")
    refuses(path, "no header")
    path.write_text("a,b,a\n1,2,3\n")
    refuses(path, "more than once", "'a'")


@pytest.mark.parametrize("column", [[1, 2], ["u", "v"]])
def test_a_column_twice_in_parquet(tmp_path: Path, column: list[Any]) -> None:
    pq.write_table(pa.table([column, column], names=["a", "a"]), tmp_path / "rows.parquet")
    refuses(tmp_path / "rows.parquet", "more than once", "'a'")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("rows.xyz", b"a,b\n1,2\n", "unknown ending '.xyz'"),
        ("rows", b"a,b\n1,2\n", "no ending"),
        ("rows.parquet", b"a,b\n1,2\n", "looks like text"),
        ("rows.npy", b"\x93NUMPY\x01\x00", "numpy.savez"),
        ("rows.pkl", b"\x80\x04\x95\x00", "pickle"),
        ("rows.csv", b"\x80\x04\x95\x00\x00\x00", "pickle"),
        ("rows.xlsx", b"PK\x03\x04\x00\x00", "spreadsheet"),
        ("rows.csv", b"\x00\x01\x02\x00\x00\x03\x04\x05", "not text"),
        ("rows.feather", b"\x00\x01\x02\x00\x00\x03\x04\x05", "not a whole Arrow file"),
    ],
)
def test_files_of_another_kind(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    refuses(tmp_path / name, name, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1}\n{"a": 2\n', "Line 2 of"),
        ('{"a": 1}\n\n[1, 2]\n', "Line 3 of"),
        ('{"a": 1}\n{"a": "x"}\n', "a number in line 1 but text in line 2"),
        ("[1, 2]", "list of JSON objects"),
    ],
)
def test_wrong_json(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    refuses(path, "rows.jsonl", said)


def test_json_in_other_clothes(tmp_path: Path) -> None:
    expected = {"a": [1, 2.5], "b": ["é", None]}
    lines = '{"a": 1, "b": "é"}\n{"a": 2.5}\n'
    for number, content in enumerate((lines.encode(), lines.encode("utf-8-sig"), lines.encode("utf-16"))):
        path = tmp_path / f"{number}.ndjson"
        path.write_bytes(content)
        assert read_table(path).to_pydict() == expected
    path = tmp_path / "list.json"
    path.write_text('[{"a": 1.0, "b": "é"}, {"a": 2.5, "b": null}]', encoding="utf-8")
    assert read_table(path).to_pydict() == expected


def test_wrong_archives(tmp_path: Path) -> None:
    path = tmp_path / "rows.npz"
    np.savez(path, X=np.array([[object()]], dtype=object), y=[1], allow_pickle=True)
    refuses(path, "runs code", "astype")
    np.savez(path, X_train=np.zeros((2, 2)), y=[0, 1])
    refuses(path, "no array X", "X_train")
    np.savez(path, X=np.zeros(3), y=[0, 1, 2])
    refuses(path, "shape (3,)")
    np.savez(path, X=np.zeros((3, 2)), y=[0, 1])
    refuses(path, "array y", "3 rows")
    np.savez(path, X=np.zeros((3, 2)), feature_names=["a", "a"])
    refuses(path, "feature_names", "'a'")
    np.savez(path, indices=[0], indptr=[0], data=[0], format=b"csr", shape=[1, 1])
    refuses(path, "sparse")


def test_an_archive_knows_its_roles(tmp_path: Path) -> None:
    write_npz(numeric_table(20, 0), tmp_path / "train.npz")
    np.savez(
        tmp_path / "val.npz", X=np.ones((4, 3)), y=[0, 1, 2, 0], feature_names=["width", "height", "depth"], extra=1
    )
    got = prepare(read_table(tmp_path / "train.npz"), read_table(tmp_path / "val.npz"), TableSpec(None))
    assert got.feature_names == ["width", "height", "depth"]
    assert got.ids is not None
    assert got.ids[3] == "row-3"
    assert got.owners is not None
    assert got.owners_val is None
    assert any("'extra'" in note for note in got.notes)
    assert got.spec["label"] == "y"


@contextmanager
def unprivileged() -> Iterator[None]:
    """Act as a user for whom permissions count."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="permissions are another matter there")
def test_permission_denied(tmp_path: Path) -> None:
    for folder in (tmp_path, *tmp_path.parents[:2]):
        if folder.stat().st_uid == os.geteuid() and "pytest" in str(folder):
            folder.chmod(0o755)
    path = tmp_path / "rows.csv"
    path.write_text("a,b\n1,2\n")
    closed = tmp_path / "closed"
    closed.mkdir()
    pq.write_table(mixed_table(5, 0), closed / "rows.parquet")
    path.chmod(0)
    closed.chmod(0)
    try:
        with unprivileged():
            refuses(path, "Permission denied", "rows.csv", error=PermissionError)
            refuses(closed / "rows.parquet", "Permission denied", error=PermissionError)
            refuses(closed, "Permission denied", error=PermissionError)
            with pytest.raises(PermissionError, match=r"rows\.csv"):
                file_digest(path)
    finally:
        closed.chmod(0o755)


# --- parts ------------------------------------------------------------------------------------------------------------


def test_folders_and_patterns_join_parts(tmp_path: Path) -> None:
    table = mixed_table(20, 0)
    for region, start in (("north", 0), ("south%20east", 10)):
        folder = tmp_path / "data" / f"region={region}" / "year=2024"
        folder.mkdir(parents=True)
        pq.write_table(table.slice(start, 10), folder / "part.parquet")
    for path in (tmp_path / "data", tmp_path / "data" / "*" / "*" / "*.parquet", tmp_path / "data" / "region=*"):
        got = read_table(path)
        assert got.select(table.column_names).equals(table)
        if "region" in got.column_names:
            assert got["region"].to_pylist() == ["north"] * 10 + ["south east"] * 10
    assert read_table(tmp_path / "data")["year"].to_pylist() == [2024] * 20
    assert read_table(tmp_path / "data", columns=["year", "y"]).column_names == ["year", "y"]


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        (("day=1", "."), "must name 'day' for every part"),
        (("other", "x=1"), "must name 'x' for every part"),
        (("y=1", "y=2"), "no part may have that column"),
        (("day=%ff", "day=%fe"), "cannot be read as key=value"),
    ],
)
def test_folder_names_that_do_not_fit(tmp_path: Path, folders: tuple[str, str], said: str) -> None:
    for folder in folders:
        (tmp_path / folder).mkdir(exist_ok=True)
        pq.write_table(pa.table({"a": [1.0, 2.0], "y": [0, 1]}), tmp_path / folder / "part.parquet")
    refuses(tmp_path, said)
    with pytest.raises(ValueError, match=said):
        KNNShapley().fit(tmp_path, "y")


def test_csv_parts_whose_numbers_widen(tmp_path: Path) -> None:
    (tmp_path / "1.csv").write_text("x,y\n1,a\n")
    (tmp_path / "2.csv").write_text("y,x\nb,2.5\n")
    assert read_table(str(tmp_path / "*.csv")).to_pydict() == {"x": [1.0, 2.5], "y": ["a", "b"]}


def test_parts_that_differ_are_named(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1], "y": [1]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [1], "z": [1]}), tmp_path / "b.parquet")
    refuses(tmp_path, "b.parquet", "lacks 'y'", "also has 'z'")
    pq.write_table(pa.table({"x": ["one"], "y": [1]}), tmp_path / "b.parquet")
    refuses(tmp_path, "b.parquet", "'x'", "string", "int64")
    pq.write_table(pa.table({"y": [1], "x": ["one"]}), tmp_path / "b.parquet")
    refuses(tmp_path, "b.parquet", "'x'", "string", "int64")
    (tmp_path / "b.parquet").write_bytes(b"PAR1 cut")
    refuses(tmp_path, "b.parquet", "truncated")


def test_archives_of_the_other_byte_order(tmp_path: Path) -> None:
    X, y, who = np.arange(12.0).reshape(6, 2), np.array([0, 1] * 3), np.array(["ann", "bob", "cy"] * 2)
    swapped = {
        "X": X.astype(">f8"),
        "y": y.astype(">i4"),
        "owners": who.astype(">U3"),
        "ids": np.arange(6, dtype=">u8"),
    }
    np.savez(tmp_path / "swapped.npz", **swapped, feature_names=np.array(["p", "q"], dtype=">U1"))
    table = read_table(tmp_path / "swapped.npz")
    got = prepare(table, table, TableSpec(None, scale="none"))
    np.testing.assert_array_equal(got.X_train, X)
    assert got.feature_names == ["p", "q"]
    assert (got.y_train.tolist(), got.owners.tolist()) == (y.tolist(), who.tolist())
    assert got.ids.tolist() == list(range(6))


@pytest.mark.parametrize("name", ["X", "y", "owners"])
@pytest.mark.parametrize("dtype", [[("a", "f8"), ("b", "i4")], "c16", "V4", "O", "M8[Y]", "longdouble"])
def test_arrays_of_other_kinds_are_refused(name: str, dtype: Any, tmp_path: Path) -> None:
    arrays: dict[str, Any] = {"X": np.ones((4, 2)), "y": np.arange(4), "owners": np.arange(4)}
    if np.dtype(dtype) == np.float64:
        pytest.skip("this machine has no longer floats")
    arrays[name] = np.zeros(arrays[name].shape, dtype=dtype)
    np.savez(tmp_path / "rows.npz", **arrays)
    with pytest.raises(ValueError, match=f"array {name} .*type|arrays of Python objects"):
        read_table(tmp_path / "rows.npz")


@pytest.mark.parametrize("name", ["owners", "feature_names"])
def test_bytes_that_are_no_text_are_refused(name: str, tmp_path: Path) -> None:
    # Written with a mark for each bad byte, both would be one name.
    np.savez(tmp_path / "rows.npz", **{"X": np.ones((2, 2)), "y": [0, 1], name: np.array([b"\xff", b"\xfe"])})
    with pytest.raises(ValueError, match=f"array {name} .*UTF-8"):
        read_table(tmp_path / "rows.npz")


def test_columns_are_chosen_by_name(tmp_path: Path) -> None:
    for kind in ("rows.parquet", "rows.csv"):
        FORMATS[kind](mixed_table(5, 0), tmp_path / kind)
        assert read_table(tmp_path / kind, columns=["y", "amount"]).column_names == ["y", "amount"]
        with pytest.raises(ValueError, match="Did you mean 'amount'"):
            read_table(tmp_path / kind, columns=["Amuont"])


def test_digests(tmp_path: Path) -> None:
    write_parts(mixed_table(20, 0), tmp_path / "parts")
    first = tmp_path / "parts" / "part-000.parquet"
    assert file_digest(first) == hashlib.sha256(first.read_bytes()).hexdigest()
    whole = file_digest(tmp_path / "parts")
    assert whole == file_digest(str(tmp_path / "parts" / "*.parquet"))
    (tmp_path / "parts").rename(tmp_path / "moved")
    assert file_digest(tmp_path / "moved") == whole
    (tmp_path / "moved" / "part-000.parquet").rename(tmp_path / "moved" / "part+000.parquet")
    renamed = file_digest(tmp_path / "moved")
    with open(tmp_path / "moved" / "part-002.parquet", "ab") as file:
        file.write(b"!")
    assert len({whole, renamed, file_digest(tmp_path / "moved")}) == 3
    with pytest.raises(FileNotFoundError, match="no file"):
        file_digest(tmp_path / "none.csv")


# --- from tables to arrays ------------------------------------------------------------------------------------------


def pair(**columns: Any) -> tuple[Table, Table]:
    """Two small tables with a label, where each column is given for training and validation."""
    sides = [{name: values[side] for name, values in columns.items()} for side in (0, 1)]
    for side in sides:
        n = len(next(iter(side.values())))
        side.setdefault("y", [i % 2 for i in range(n)])
    return pa.table(sides[0]), pa.table(sides[1])


def unprepared(tables: tuple[Table, Table], spec: TableSpec, *parts: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        prepare(*tables, spec)
    for part in parts:
        assert part in str(caught.value)


def test_the_label_must_be_there() -> None:
    tables = mixed_table(30, 0), mixed_table(9, 1)
    unprepared(tables, TableSpec("colours"), "'colours'", "training table", "'amount'", "Did you mean 'colour'?")
    unprepared((tables[0], tables[1].drop_columns("y")), TableSpec("y"), "'y'", "validation table")
    unprepared(tables, TableSpec(None), "--label")
    unprepared(tables, TableSpec("y", drop=["y"]), "--drop")
    unprepared(tables, TableSpec("y", id="y"), "label")
    unprepared(tables, TableSpec("amount"), "30 distinct values", "does not name classes")
    unprepared(tables, TableSpec("y", id="nope"), "'nope'")
    unprepared(tables, TableSpec("y", owner="nope"), "'nope'")


def test_missing_labels_and_owners_are_counted() -> None:
    tables = pair(x=([1.0, 2, 3, 4], [1.0, 2]), y=([0, None, 1, None], [0, 1]))
    unprepared(tables, TableSpec("y"), "2 missing values of 4", "row 1")
    tables = pair(x=([1.0, 2, 3], [1.0, 2]), y=([0.0, float("nan"), 1.0], [0.0, 1.0]))
    unprepared(tables, TableSpec("y"), "1 missing values of 3", "row 1")
    tables = pair(x=([1.0, 2, 3], [1.0, 2]), who=(["a", None, "b"], ["a", "b"]))
    unprepared(tables, TableSpec("y", owner="who"), "owner 'who'", "1 missing")


@pytest.mark.parametrize(
    ("train", "val", "expected"),
    [
        (["1", "2", "1"], [2, 1], ([1, 2, 1], [2, 1])),
        ([1, 2, 1], ["2", " 1"], ([1, 2, 1], [2, 1])),
        ([1.0, 2.0, 1.0], [1, 2], ([1, 2, 1], [1, 2])),
        ([0.5, 1.5, 0.5], ["0.5", "1.5"], ([0.5, 1.5, 0.5], [0.5, 1.5])),
        ([True, False, True], ["true", "False"], ([True, False, True], [True, False])),
        ([True, False, True], [1, 0], ([1, 0, 1], [1, 0])),
        (pa.array(["a", "b", "a"]).dictionary_encode(), ["a", "b"], (["a", "b", "a"], ["a", "b"])),
        (pa.array([1, 2, 1], pa.int8()), pa.array([1, 2], pa.uint64()), ([1, 2, 1], [1, 2])),
    ],
)
def test_labels_of_two_types_are_brought_together(train: Any, val: Any, expected: tuple[list[Any], list[Any]]) -> None:
    got = prepare(*pair(x=([1.0, 2, 3], [1.0, 2]), y=(train, val)), TableSpec("y"))
    assert (got.y_train.tolist(), got.y_val.tolist()) == expected
    assert got.y_train.dtype.kind == got.y_val.dtype.kind


def test_labels_that_cannot_be_brought_together() -> None:
    x = ([1.0, 2, 3], [1.0, 2])
    unprepared(pair(x=x, y=(["1", "two", "1"], [1, 2])), TableSpec("y"), "text", "whole numbers", "'two'")
    unprepared(pair(x=x, y=(["a", "b", "a"], ["c", "d"])), TableSpec("y"), "No validation row", "'a'", "'c'")
    got = prepare(*pair(x=x, y=(["a", "b", "a"], ["a", "d"])), TableSpec("y"))
    assert any("1 of 2 validation labels never occur" in note and "'d'" in note for note in got.notes)
    got = prepare(*pair(x=x, y=(["a", "a", "a"], ["a", "a"])), TableSpec("y"))
    assert any("same label" in note for note in got.notes)


def test_ids_and_owners_are_no_features_and_may_be_absent_in_validation() -> None:
    tables = pair(x=([1.0, 2, 3], [1.0, 2]))
    train = tables[0].append_column("key", pa.array([10, 11, 12])).append_column("who", pa.array(["a", "b", "a"]))
    got = prepare(train, tables[1], TableSpec("y", id="key", owner="who"))
    assert got.feature_names == ["x"]
    assert got.ids is not None
    assert got.ids.tolist() == [10, 11, 12]
    assert got.owners is not None
    assert got.owners.tolist() == ["a", "b", "a"]
    assert got.ids_val is None
    assert got.owners_val is None
    unprepared((train, tables[1]), TableSpec("y", id="who", drop=["key"]), "'who'", "'a'", "--owner who")
    unprepared((train, tables[1]), TableSpec("y", features=["x", "key"], id="key"), "'key'")


def test_columns_that_differ_are_named() -> None:
    train, val = pair(a=([1.0, 2, 3], [1.0, 2]), b=([1.0, 2, 3], [1.0, 2]))
    val = val.rename_columns(["a", "c", "y"])
    unprepared((train, val), TableSpec("y"), "'b' only in the training table", "'c' only in the validation table")
    assert prepare(train, val, TableSpec("y", drop=["b", "c"])).feature_names == ["a"]
    assert prepare(train, val, TableSpec("y", features=["a"])).feature_names == ["a"]
    unprepared((train, val), TableSpec("y", features=["a", "b"]), "'b' only in the training table")
    unprepared((train, val), TableSpec("y", drop=["bb"]), "'bb'", "Did you mean 'b'?")
    unprepared((train, val), TableSpec("y", drop=["a", "b", "c"]), "No feature column")


def test_features_come_in_the_order_asked_for_whatever_the_validation_order() -> None:
    train, val = mixed_table(30, 0), mixed_table(9, 1)
    shuffled = val.select(["y", "flag", "colour", "count", "amount"])
    assert_same(prepare(train, shuffled, TableSpec("y")), prepare(train, val, TableSpec("y")))
    assert prepare(train, val, TableSpec("y", features=["count", "amount"])).feature_names == ["count", "amount"]


def test_missing_values_are_refused_with_column_and_count() -> None:
    columns = {
        "a": ([1.0, None, float("nan"), 4.0], [None, 1.0]),
        "b": (["u", "v", "u", None], ["u", "v"]),
        "c": ([1.0, 2, 3, 4], [1.0, 2]),
    }
    tables = pair(**columns)
    unprepared(tables, TableSpec("y"), "'a' (2 training and 1 validation", "'b' (1 training and 0", "--impute")
    got = prepare(*tables, TableSpec("y", scale="none", impute="median"))
    np.testing.assert_array_equal(got.X_train[:, 0], [1.0, 2.5, 2.5, 4.0])
    np.testing.assert_array_equal(got.X_val[:, 0], [2.5, 1.0])
    np.testing.assert_array_equal(got.X_train[:, 1], [1, 0, 1, 1])
    assert any("'a', 'b'" in note and "median" in note for note in got.notes)
    got = prepare(*tables, TableSpec("y", scale="none", impute="most_frequent"))
    assert got.X_train[1, 0] == 1.0
    codes = pa.array([3, 3, None, 20]).dictionary_encode()
    got = prepare(
        *pair(f=([True, None, True, False], [None, False]), k=(codes, codes[:2])), TableSpec("y", impute="mean")
    )
    assert got.feature_names == ["f=False", "f=True", "k=3", "k=20"]
    assert got.X_train.tolist() == [[0, 1, 1, 0], [0, 1, 1, 0], [0, 1, 1, 0], [1, 0, 0, 1]]
    assert got.X_val.tolist() == [[0, 1, 1, 0], [1, 0, 1, 0]]


def test_values_no_one_can_use() -> None:
    inf = float("inf")
    unprepared(pair(a=([1.0, inf, 3], [1.0, -inf])), TableSpec("y"), "'a'", "1 training and 1 validation")
    unprepared(pair(a=([None, None], [1.0, 2])), TableSpec("y", impute="mean"), "no value in any training row")
    unprepared(pair(a=([None, None], [None, None])), TableSpec("y", impute="mean"), "--drop a")
    unprepared(pair(a=([1e308, -1e308, 1.1e308], [1.0, 2])), TableSpec("y"), "'a'", "too large")
    unprepared(pair(a=([{"b": 1}, {"b": 2}], [{"b": 1}, {"b": 2}])), TableSpec("y"), "'a'", "struct")
    days = pd.date_range("2024-01-01", periods=3)
    unprepared(pair(when=(days, days)), TableSpec("y"), "'when'", "timestamp", "--drop when")


def test_all_unusable_columns_are_named_at_once() -> None:
    n = 60
    tables = pair(
        name=([f"n{i}" for i in range(n)], [f"n{i}" for i in range(n)]),
        note=([f"{i % 30} " + "word " * 30 for i in range(n)],) * 2,
        key=(list(range(100, 100 + n)),) * 2,
        user_id=([i * i for i in range(n)],) * 2,
        x=([float(i) for i in range(n)],) * 2,
        squares=([i * i for i in range(n)],) * 2,
    )
    unprepared(
        tables, TableSpec("y"), "4 columns", "'name' has 60 distinct", "--text name", "long texts", "--id user_id"
    )
    got = prepare(*tables, TableSpec("y", features=["user_id", "x", "squares"]))
    assert got.feature_names == ["user_id", "x", "squares"]
    unprepared(
        tables, TableSpec("y", drop=["key", "user_id"], categorical="ordinal"), "2 columns", "'name' looks like an id"
    )
    short = pair(tag=([f"t{i}" for i in range(30)],) * 2, x=([1.0] * 30,) * 2)
    unprepared(short, TableSpec("y"), "'tag' looks like an id", "--id tag")


def test_unknown_categories() -> None:
    tables = pair(c=(["a", "b", "a"], ["b", "z"]), x=([1.0, 2, 3], [1.0, 2]))
    got = prepare(*tables, TableSpec("y"))
    np.testing.assert_array_equal(got.X_val[:, :2], [[0, 1], [0, 0]])
    assert any("1 validation rows" in note and "'z'" in note for note in got.notes)
    unprepared(tables, TableSpec("y", categorical="ordinal"), "1 validation rows", "'z'", "--categorical onehot")
    seen = tables[0], tables[1].slice(0, 1)
    got = prepare(*seen, TableSpec("y", categorical="ordinal", scale="none"))
    np.testing.assert_array_equal(got.X_train[:, 0], [0, 1, 0])
    np.testing.assert_array_equal(got.X_val[:, 0], [1])


def test_ordered_categories_keep_their_order() -> None:
    def column(values: list[str]) -> Any:
        frame = pd.DataFrame({"size": pd.Categorical(values, categories=["small", "mid", "big"], ordered=True)})
        return pa.Table.from_pandas(frame)["size"]

    tables = pair(size=(column(["big", "small", "mid"]), column(["mid", "big"])))
    got = prepare(*tables, TableSpec("y", categorical="ordinal", scale="none"))
    assert got.X_train[:, 0].tolist() == [2, 0, 1]
    assert got.X_val[:, 0].tolist() == [1, 2]


def test_feature_types_that_differ_between_the_tables() -> None:
    got = prepare(*pair(a=(["1.5", "2", "3"], [1, 2])), TableSpec("y", scale="none"))
    assert got.X_train[:, 0].tolist() == [1.5, 2, 3]
    assert any("'a' is text in the training table" in note for note in got.notes)
    unprepared(
        pair(a=(["1.5", "two", "3"], [1, 2])),
        TableSpec("y"),
        "'a' holds numbers",
        "training table 1 of 3",
        "'two' in row 1",
    )
    unprepared(pair(a=([True, False, True], ["x", "y"])), TableSpec("y"), "'a' is bool")
    whole = prepare(*pair(a=([1, 2, 4], [1.5, 2])), TableSpec("y", scale="none"))
    assert whole.X_val[:, 0].tolist() == [1.5, 2]


def test_scales() -> None:
    rng = np.random.default_rng(0)
    x, skewed = rng.normal(size=41) * 3 + 7, np.r_[np.zeros(38), [1.0, 5.0, 9.0]]
    tables = pair(x=(x, x[:5] + 1), same=(np.full(41, 0.1), [0.1, 5.0, 0.1, 0.1, 0.1]), skewed=(skewed, skewed[-5:]))
    standard = prepare(*tables, TableSpec("y"))
    np.testing.assert_allclose(standard.X_val[:, 0], (x[:5] + 1 - x.mean()) / x.std(), rtol=1e-12)
    assert not standard.X_train[:, 1].any()
    assert not standard.X_val[:, 1].any()
    assert any("'same'" in note and "set to 0" in note for note in standard.notes)
    robust = prepare(*tables, TableSpec("y", scale="robust"))
    low, middle, high = np.percentile(x, [25, 50, 75])
    np.testing.assert_allclose(robust.X_train[:, 0], (x - middle) / (high - low), rtol=1e-12)
    np.testing.assert_allclose(robust.X_train[:, 2], skewed / skewed.std(), rtol=1e-12)
    assert any("quartiles coincide" in note for note in robust.notes)
    none = prepare(*tables, TableSpec("y", scale="none"))
    np.testing.assert_array_equal(none.X_train, np.column_stack([x, np.full(41, 0.1), skewed]))
    assert any("did not scale" in note for note in none.notes)


def test_validation_rows_do_not_touch_what_is_fitted() -> None:
    train, val = mixed_table(40, 1), mixed_table(15, 2)
    for spec in (TableSpec("y"), TableSpec("y", scale="robust", categorical="ordinal")):
        whole, few = prepare(train, val, spec), prepare(train, val.slice(3, 4), spec)
        assert whole.X_train.tobytes() == few.X_train.tobytes()
        assert whole.X_val[3:7].tobytes() == few.X_val.tobytes()


def test_columns_of_vectors_are_spread_out() -> None:
    vectors = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32()))
    got = prepare(*pair(v=(vectors, vectors)), TableSpec("y", scale="none"))
    assert got.feature_names == ["v[0]", "v[1]"]
    assert got.X_train.tolist() == [[1, 2], [3, 4]]
    fixed = pa.array([[1.0, 2.0], [3.0, 4.0]], pa.list_(pa.float32(), 2))
    assert prepare(*pair(v=(fixed, fixed)), TableSpec("y", scale="none")).X_train.tolist() == [[1, 2], [3, 4]]
    unprepared(pair(v=(pa.array([[1.0], [3.0, 4.0]]), vectors)), TableSpec("y"), "'v'", "lengths: 1, 2")
    unprepared(pair(v=(vectors, pa.nulls(len(vectors)))), TableSpec("y"), "'v'", "missing")


def test_numbers_of_every_type() -> None:
    kinds = [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.decimal128(25, 2)]
    columns = {f"c{j}": pa.array([1, 2, None]).cast(kind) for j, kind in enumerate(kinds) if kind != pa.float16()}
    columns["c2"] = pa.array(np.array([1, 2, 0], np.float16), mask=np.array([False, False, True]))
    tables = pair(**{name: (values, values) for name, values in columns.items()})
    got = prepare(*tables, TableSpec("y", scale="none", impute="mean"))
    np.testing.assert_array_equal(got.X_train, np.tile([[1.0], [2.0], [1.5]], 5))


def test_a_row_index_left_behind_is_no_feature(tmp_path: Path) -> None:
    frame = pd.DataFrame({"x": np.linspace(0, 1, 30), "y": [0, 1] * 15})
    frame.to_csv(tmp_path / "rows.csv")
    frame.iloc[::2].to_parquet(tmp_path / "rows.parquet")
    got = prepare(*(read_table(tmp_path / "rows.csv", text="y") for _ in range(2)), TableSpec("y"))
    assert got.feature_names == ["x"]
    assert any("row index" in note for note in got.notes)
    got = prepare(read_table(tmp_path / "rows.parquet"), read_table(tmp_path / "rows.parquet"), TableSpec("y"))
    assert got.feature_names == ["x"]


def test_names_that_would_collide_stay_apart() -> None:
    tables = pair(a=(["b", "c", "b"], ["b", "c"]), **{"a=b": ([1.0, 2, 3], [1.0, 2])})
    assert prepare(*tables, TableSpec("y")).feature_names == ["a=b", "a=c", "a=b (2)"]


def test_the_specification_repeats_the_preparation() -> None:
    train, val = mixed_table(40, 1), mixed_table(15, 2)
    first = prepare(train, val, TableSpec("y", drop=("flag",), scale="robust"))
    again = prepare(train, val, TableSpec(**json.loads(json.dumps(first.spec))))
    assert_same(again, first)
    assert again.spec == first.spec
    assert again.notes == first.notes


@pytest.mark.parametrize(
    "wrong", [{"scale": "minmax"}, {"categorical": "target"}, {"impute": True}, {"impute": "zero"}]
)
def test_choices_are_checked(wrong: dict[str, Any]) -> None:
    unprepared((mixed_table(9, 0), mixed_table(9, 1)), TableSpec("y", **wrong), next(iter(wrong)), "must be one of")


def test_embedding_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    tables = pair(text=(["a b", "c d", "e f"], ["a", "b"]), x=([1.0, 2, 3], [1.0, 2]))
    with pytest.raises(ImportError, match=r'pip install "shapshift\[embed\]"') as caught:
        prepare(*tables, TableSpec("y", text="text"))
    assert "'text'" in str(caught.value)
    assert "news20" not in str(caught.value)
    unprepared(tables, TableSpec("y", text="x"), "'x' is to be embedded", "not text")
    unprepared(tables, TableSpec("y", text="tekst"), "'tekst'", "Did you mean 'text'?")


def test_embedded_columns_take_their_place_unscaled(monkeypatch: pytest.MonkeyPatch) -> None:
    class Model:
        def __init__(self, name: str, device: str | None, model_kwargs: Any) -> None:
            assert name == data.EMBEDDING_MODEL

        def encode(self, texts: list[str], **_: Any) -> Any:
            return np.array([[len(text), text.count("a")] for text in texts], dtype=np.float32)

    monkeypatch.setitem(sys.modules, "sentence_transformers", types.SimpleNamespace(SentenceTransformer=Model))
    tables = pair(x=([1.0, 2, 3], [1.0, 2]), text=(["a b", "c", None], ["aa", "b"]), z=([1.0, 2, 4], [1.0, 2]))
    unprepared(tables, TableSpec("y", text="text"), "'text' (1 training")
    got = prepare(*tables, TableSpec("y", text=["text"], impute="median"))
    assert got.feature_names == ["x", "text[0]", "text[1]", "z"]
    assert got.X_train[:, 1:3].tolist() == [[3, 1], [1, 0], [0, 0]]
    assert got.X_val[:, 1:3].tolist() == [[2, 2], [1, 0]]
    assert any("embedded 'text'" in note and data.EMBEDDING_MODEL in note for note in got.notes)


def test_hostile_names_stay_names(tmp_path: Path) -> None:
    name = '<script>alert("1")</script>'
    path = tmp_path / "rows.csv"
    csv_writer()(pa.table({name: [1.0, 2.0, 4.0], "=cmd()": [0.5, 0.25, 1.0], "y": [0, 1, 0]}), path)
    got = prepare(read_table(path, text="y"), read_table(path, text="y"), TableSpec("y"))
    assert got.feature_names == [name, "=cmd()"]
