"""Names that look like numbers: owners, ids and classes stay apart, and what is rounded is said."""

from __future__ import annotations

import csv
import json
import re
import warnings
from decimal import Decimal
from pathlib import Path
from typing import Any

import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_files import run
from scipy import sparse

from shapshift import KNNShapley
from shapshift.perturb import FlipLabels, ShiftPriors
from shapshift.report._table import read_features
from shapshift.tables import TableSpec, prepare, read_table
from shapshift.tables.files import find_parts
from shapshift.tables.reading import _joined

Names = list[Any]


def write(path: Path, *, n: int = 24, seed: int = 0, **columns: Names) -> Path:
    """A CSV file with two features, and columns whose texts come round again and again."""
    rng = np.random.default_rng(seed)
    with open(path, "w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["a", "b", *columns])
        for i in range(n):
            writer.writerow([*rng.normal(size=2).round(4), *(texts[i % len(texts)] for texts in columns.values())])
    return path


def parquet(path: Path, *, n: int = 24, seed: int = 0, **columns: Any) -> Path:
    kinds = {name: pa.uint64() for name, texts in columns.items() if 2**63 in texts}
    X = np.random.default_rng(seed).normal(size=(n, 2))
    more = {
        name: pa.array([texts[i % len(texts)] for i in range(n)], kinds.get(name)) for name, texts in columns.items()
    }
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], **more}), path)
    return path


def prepared(train: Path, val: Path, owner: str | None = None) -> Any:
    text = ["y", *([owner] if owner else [])]
    return prepare(read_table(train, text=text), read_table(val, text=text), TableSpec("y", owner=owner))


HOSTILE = [
    ["12345678901234567890", "12345678901234567891"],
    ["9007199254740993", "9007199254740992", "9007199254740993.0"],
    ["7"] * 1100 + ["007"],
    ["1E2", "100", "1e2", "100.0"],
    ["+7", "7", " 7", "7 "],
    ["0x10", "16", "1_000", "1000", "\N{ARABIC-INDIC DIGIT ONE}", "1"],
    ["true", "True", "TRUE"],
    ["2024-01-01", "2024-01-01 00:00:00"],
    ["-0", "0", "0.0"],
]


@pytest.mark.parametrize("owners", HOSTILE, ids=lambda texts: texts[-1])
def test_every_owner_is_paid_alone(owners: Names, tmp_path: Path) -> None:
    n = max(24, len(owners) + 1)
    train = write(tmp_path / "train.csv", n=n, y=["u", "v"], who=owners)
    val = write(tmp_path / "val.csv", seed=1, y=["u", "v"], who=["buyer"])
    ran = run("price", train, val, "--label", "y", "--owner", "who", "--budget", 100, "--json", "--out", tmp_path / "o")
    assert ran.code == 0, ran.err
    assert {entry["owner"] for entry in ran.document["result"]["owners"]} == set(owners)


@pytest.mark.parametrize("labels", HOSTILE, ids=lambda texts: texts[-1])
def test_every_class_is_a_class(labels: Names, tmp_path: Path) -> None:
    n = max(40, len(labels) + 1)
    train, val = (write(tmp_path / f"{seed}.csv", n=n, seed=seed, y=labels) for seed in (0, 1))
    got = prepared(train, val)
    assert set(got.y_train.tolist()) == set(got.y_val.tolist()) == set(labels)


def test_types_inferred_from_text_are_no_names(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", y=["u", "v"], who=["7", "007"] * 2, number=["1", "2"])
    table = read_table(train)
    assert table["number"].type == pa.int64()
    with pytest.raises(ValueError, match=r"owner 'number'.*int64.*text=\['number'\]"):
        prepare(table, table, TableSpec("y", owner="number", drop=["who"]))
    with pytest.raises(ValueError, match="id 'number'"):
        prepare(table, table, TableSpec("y", id="number", drop=["who"]))
    with pytest.raises(ValueError, match="label 'number'"):
        prepare(table, table, TableSpec("number", drop=["who", "y"]))
    prepare(table, table, TableSpec("number", drop=["who", "y"], target="number"))


def test_plain_whole_numbers_stay_numbers(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", y=["0", "1"], who=["-3", "12", str(2**63 - 1)])
    got = prepared(train, train, "who")
    assert got.owners.dtype == np.int64
    assert set(got.owners.tolist()) == {-3, 12, 2**63 - 1}
    assert got.y_train.dtype == np.int64
    assert read_table(train, text=["who"])["who"].type == pa.string()


def test_parts_and_folders(tmp_path: Path) -> None:
    for k, name in enumerate(("7", "007")):
        (tmp_path / f"part{k}.csv").write_text(write(tmp_path / "x", y=["u", "v"], who=[name]).read_text())
        folder = tmp_path / "hive" / f"who={name}"
        folder.mkdir(parents=True)
        parquet(folder / "part.parquet", y=["u", "v"])
    for path in (tmp_path / "part*.csv", tmp_path / "hive"):
        with pytest.warns(UserWarning, match="'007', '7'"):
            got = prepared(path, path, "who")
        assert set(got.owners.tolist()) == {"7", "007"}
    table = read_table(tmp_path / "hive")
    with pytest.raises(ValueError, match="owner 'who'"):
        prepare(table, table, TableSpec("y", owner="who"))


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize(
    ("owners", "expected"),
    [
        ([12345678901234567890, 12345678901234567891], None),
        ([2**70, 2**70 + 1], [str(2**70), str(2**70 + 1)]),
        ([-1, 2**64 - 1], ["-1", str(2**64 - 1)]),
        ([1, 1.0, 2], [1, 2]),
        ([1.5, 2**53 + 1, 2**53], ["1.5", str(2**53 + 1), str(2**53)]),
        ([1.5, 2], [1.5, 2.0]),
        (["2024-01-01", "2024-01-01 00:00:00"], None),
    ],
)
def test_json_numbers_are_exact(owners: Names, expected: Names | None, as_list: bool, tmp_path: Path) -> None:
    rows = [{"a": i / 2, "y": "uv"[i % 2], "who": owners[i % len(owners)]} for i in range(12)]
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(rows) if as_list else "".join(json.dumps(row) + "\n" for row in rows))
    got = prepared(path, path, "who")
    assert set(got.owners.tolist()) == set(owners if expected is None else expected)


@pytest.mark.parametrize("as_list", [False, True])
@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        (["9007199254740993.0", "9007199254740992.0"], {2**53 + 1, 2**53}),
        (["0.10000000000000000001", "0.1"], {"0.10000000000000000001", "0.1"}),
        (["1.5", "1.50", "2.00000000000000000001"], {"1.5", "2.00000000000000000001"}),
        (["1e23", "99999999999999991611392"], {str(10**23), "99999999999999991611392"}),
    ],
)
def test_json_numbers_are_exact_to_the_last_digit(
    numbers: Names, expected: set[Any], as_list: bool, tmp_path: Path
) -> None:
    rows = [f'{{"a": {i / 2}, "y": "{"uv"[i % 2]}", "who": {numbers[i % len(numbers)]}}}' for i in range(12)]
    path = tmp_path / "rows.jsonl"
    path.write_text("[" + ",".join(rows) + "]" if as_list else "\n".join(rows))
    assert set(prepared(path, path, "who").owners.tolist()) == expected
    table = read_table(path)  # whose floats have merged them
    with pytest.raises(ValueError, match=r"owner 'who'.*text=\['who'\]"):
        prepare(table, table, TableSpec("y", owner="who"))


def test_json_parts_do_not_merge_numbers(tmp_path: Path) -> None:
    for k, number in enumerate(("0.1", "0.10000000000000000001")):
        (tmp_path / f"{k}.jsonl").write_text(f'{{"a": 1, "y": "u", "who": {number}}}\n' * 4)
    with pytest.raises(ValueError, match="same types, but column 'who'"):
        read_table(tmp_path / "*.jsonl", text=["who"])


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (Decimal, lambda _: 0.5, {str(2**53 + 1), str(2**53), "0.5"}),
        (Decimal, lambda _: 7.0, {2**53 + 1, 2**53, 7}),
        (int, lambda _: 0.5, {str(2**53 + 1), str(2**53), "0.5"}),
    ],
)
def test_parts_of_different_types_do_not_merge_owners(
    first: Any, second: Any, expected: set[Any], tmp_path: Path
) -> None:
    parquet(tmp_path / "a.parquet", y=["u", "v"], who=[first(2**53 + 1), first(2**53)])
    parquet(tmp_path / "b.parquet", y=["u", "v"], who=[second(1)])
    assert set(prepared(tmp_path, tmp_path, "who").owners.tolist()) == expected
    table = read_table(tmp_path)
    with pytest.raises(ValueError, match=r"owner 'who'.*text=\['who'\]"):
        prepare(table, table, TableSpec("y", owner="who"))
    with pytest.warns(UserWarning, match=r"column 'who' \(12 entries\)"):
        prepare(table, table, TableSpec("y"))


def test_parts_of_different_types_that_merge_nothing_are_joined(tmp_path: Path) -> None:
    parquet(tmp_path / "a.parquet", y=[0, 1], x=[Decimal("0.1"), Decimal(4)])
    pq.write_table(
        pa.table({"a": [0.0], "b": [0.0], "y": [1.0], "x": pa.array([0.5], pa.float32())}), tmp_path / "b.parquet"
    )
    table = read_table(tmp_path)
    assert table["x"].type == pa.float64()
    assert set(table["x"].to_pylist()) == {0.1, 4.0, 0.5}
    assert set(prepare(table, table, TableSpec("y")).y_train.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (pa.time64("ns"), ["00:00:00.000000001", "00:00:00.000000002", "00:00:00.000003", "00:00:00"]),
        (
            pa.timestamp("ns"),
            [
                "1970-01-01 00:00:00.000000001",
                "1970-01-01 00:00:00.000000002",
                "1970-01-01 00:00:00.000003",
                "1970-01-01 00:00:00",
            ],
        ),
        (
            pa.timestamp("ns", "UTC"),
            [
                "1970-01-01 00:00:00.000000001+00:00",
                "1970-01-01 00:00:00.000000002+00:00",
                "1970-01-01 00:00:00.000003+00:00",
                "1970-01-01 00:00:00+00:00",
            ],
        ),
        (pa.duration("ns"), ["0:00:00.000000001", "0:00:00.000000002", "0:00:00.000003", "0:00:00"]),
    ],
    ids=str,
)
def test_times_are_exact_to_the_nanosecond(kind: Any, expected: Names, tmp_path: Path) -> None:
    who = pa.array([1, 2, 3000, 0] * 2).cast(kind)
    table = pa.table({"a": np.arange(8.0), "y": ["u", "v"] * 4, "who": who})
    assert prepare(table, table, TableSpec("y", owner="who")).owners.tolist() == expected * 2


def test_times_of_labels_in_files_larger_than_memory(tmp_path: Path) -> None:
    for name, steps in (("fine", [1, 2]), ("coarse", [1000, 2000])):
        y = pa.array(steps * 4).cast(pa.time64("ns"))
        pq.write_table(pa.table({"a": np.arange(8.0), "y": y}), tmp_path / f"{name}.parquet")
    with pytest.raises(ValueError, match=r"'y'.*fine\.parquet.*microseconds"):
        KNNShapley().fit(tmp_path / "fine.parquet", "y")
    assert len(KNNShapley().fit(tmp_path / "coarse.parquet", "y").classes_) == 2


def test_times_beyond_the_calendar_are_refused() -> None:
    table = pa.table({"a": [1.0, 2.0], "y": ["u", "v"], "who": pa.array([2**40, 1], pa.timestamp("s"))})
    with pytest.raises(ValueError, match=r"owner 'who'.*timestamp\[s\].*9999"):
        prepare(table, table, TableSpec("y", owner="who"))


def test_decimals_are_exact(tmp_path: Path) -> None:
    large = [Decimal("12345678901234567890"), Decimal("12345678901234567891")]
    assert set(prepared(*[parquet(tmp_path / "x.parquet", y=["u", "v"], who=large)] * 2, "who").owners.tolist()) == {
        int(number) for number in large
    }
    fractions = [Decimal("0.10000000000000000001"), Decimal("0.10000000000000000002")]
    path = parquet(tmp_path / "x.parquet", y=["u", "v"], who=fractions)
    assert set(prepared(path, path, "who").owners.tolist()) == {str(number) for number in fractions}
    path = parquet(tmp_path / "x.parquet", y=["u", "v"], who=["a", "a\0"])
    with pytest.raises(ValueError, match="NUL"):
        prepared(path, path, "who")


@pytest.mark.parametrize(
    ("train", "val", "expected"),
    [
        ([0.0, 1.0], ["0", "1"], [0, 1]),
        ([0, 1], ["0", "1"], [0, 1]),
        (["0", "1"], [0, 1], [0, 1]),
        (["0", "1"], [0.0, 1.0], [0, 1]),
        (["0", "1"], ["0.0", "1.0"], [0, 1]),
        (["0.0", "1.0"], ["0", " 1"], [0, 1]),
        (["0.5", "1.5"], [0.5, 1.5], [0.5, 1.5]),
        ([0.1, 1.5], ["0.1", "1.50"], [0.1, 1.5]),
        ([True, False], ["true", "False"], [False, True]),
        (["true", "false"], [True, False], [False, True]),
        (["1E2", "100"], ["100"], ["100", "1E2"]),
        (["007", "8"], ["8"], ["007", "8"]),
        ([2**63, 1], ["9223372036854775808", "1"], [1, 2**63]),
    ],
)
def test_labels_of_typed_and_untyped_files_match(train: Names, val: Names, expected: Names, tmp_path: Path) -> None:
    paths = []
    for side, labels in enumerate((train, val)):
        typed = not isinstance(labels[0], str)
        path = tmp_path / f"{side}.{'parquet' if typed else 'csv'}"
        paths.append((parquet if typed else write)(path, seed=side, y=labels))
    got = prepared(*paths)
    assert np.unique(got.y_train).tolist() == expected
    assert set(got.y_val.tolist()) <= set(expected)


@pytest.mark.parametrize(
    ("train", "val"),
    [
        ([1, 2], ["1", "1.0"]),
        ([1, 2], ["1", "01"]),
        ([7, 8], ["+7", "8"]),
        ([True, False], ["true", "TRUE", "false"]),
        ([2**53 + 1, 1], [2.0**53, 1.5]),
        ([0.1, 1.5], ["0.10000000000000000001", "1.5"]),
        ([1, 2], ["1", "nan"]),
        ([1, 2], ["1", "\N{ARABIC-INDIC DIGIT TWO}"]),
    ],
)
def test_labels_in_doubt_are_not_matched(train: Names, val: Names, tmp_path: Path) -> None:
    typed = not isinstance(val[0], str)
    second = (parquet if typed else write)(tmp_path / f"val.{'parquet' if typed else 'csv'}", y=val)
    with pytest.raises(ValueError, match=r"cannot be matched with certainty|missing values"):
        prepared(parquet(tmp_path / "train.parquet", y=train), second)


def test_names_that_are_nearly_alike_are_said(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", y=["u", "v", "V"], who=[" Anna", "anna ", "anna", "bob", "7", "+7"])
    with pytest.warns(UserWarning, match=r"' Anna', 'anna', 'anna '") as caught:
        got = prepared(train, train, "who")
    assert "'+7', '7'" in str(caught[0].message)
    assert "bob" not in str(caught[0].message)
    assert len(set(got.owners.tolist())) == 6
    assert not any("anna" in note for note in got.notes)  # notes reach every owner
    assert any("'V', 'v'" in note and "different classes" in note for note in got.notes)
    ran = run("price", train, train, "--label", "y", "--owner", "who", "--budget", 9, "-q", "--out", tmp_path / "out")
    assert "different owners" in re.sub(r"\s+", " ", ran.err)
    assert not any("different owners" in page.read_text() for page in (tmp_path / "out" / "statements").iterdir())


# --- whole numbers that float64 cannot hold ---

LARGE = 2**53 + 1


def frames() -> dict[str, Any]:
    rows = {"x": [LARGE, 2**53, 4], "z": [1, 2, 3]}
    array = np.array(list(rows.values())).T
    return {
        "int64": array,
        "uint64": array.astype(np.uint64),
        "list": array.tolist(),
        "pandas": pd.DataFrame(rows),
        "nullable": pd.DataFrame(rows).astype("Int64"),
        "polars": pl.DataFrame(rows),
        "pyarrow": pa.table(rows),
        "sparse": sparse.csr_array(array),
    }


@pytest.mark.parametrize("kind", frames())
def test_rounded_features_are_said(kind: str) -> None:
    X = frames()[kind]
    name = "'x'" if kind in ("pandas", "nullable", "polars", "pyarrow") else "0"
    with pytest.warns(UserWarning, match=rf"2\*\*53.*'X'.*column {name} \(1 entries\)"):
        model = KNNShapley().fit(X, [0, 1, 0])
    with pytest.warns(UserWarning, match="'X_val'"):
        model.value(X, [0, 1, 0])


def test_features_that_are_not_rounded_are_not_mentioned() -> None:
    exact = np.array([[2**53, -(2**53)], [2**62, -(2**63)], [2**60 + 2**40, 0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        KNNShapley().fit(exact, [0, 1, 0])
        KNNShapley().fit(np.array([[2**63], [2**64 - 2**11]], dtype=np.uint64), [0, 1])
        KNNShapley().fit(np.array([[1e300], [2.0**80]]), [0, 1])
    with pytest.warns(UserWarning, match=r"column 0 \(2 entries\)"):
        KNNShapley().fit(np.array([[2**63 - 1], [-(2**63) + 1]]), [0, 1])
    with pytest.warns(UserWarning, match=r"column 0 \(1 entries\)"):
        KNNShapley().fit(np.array([[2**64 - 1], [1]], dtype=np.uint64), [0, 1])


def test_rounded_features_of_files_are_said(tmp_path: Path) -> None:
    for number in (int, Decimal):
        path = parquet(tmp_path / "rows.parquet", y=[0, 1], x=[number(LARGE), number(4)])
        with pytest.warns(UserWarning, match=r"'x' \(12 entries\)"):
            KNNShapley(scratch=str(tmp_path)).fit(path, "y")
    memory = np.memmap(tmp_path / "rows.bin", dtype=np.int64, mode="w+", shape=(4, 2))
    memory[:] = [[LARGE, 1], [2, 3], [4, 5], [6, 7]]
    with pytest.warns(UserWarning, match=r"column 0 \(1 entries\)"):
        KNNShapley().fit(memory, [0, 1, 0, 1])


@pytest.mark.parametrize("large", [str(LARGE), str(2**64 + 1)])
def test_rounded_features_of_tables_are_said(large: str, tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", y=["u", "v"], x=[large, "4"], z=["1", "2"])
    with pytest.warns(UserWarning, match=r"column 'x' \(24 entries\)\. "):
        prepared(train, train)
    ran = run("value", train, train, "--label", "y", "-q", "--out", tmp_path / "out")
    assert ran.code == 0
    assert "2**53" in ran.err


@pytest.mark.parametrize("form", ["csv", "semicolons", "lines", "list"])
@pytest.mark.parametrize(
    ("numbers", "count"),
    [
        ([str(2**64 + 1), "4"], 2),
        ([str(2**63), str(LARGE)], 2),
        ([str(LARGE), "0.5"], 2),
        ([f"{LARGE}.0", "0.5", "-1e300"], 2),
        ([str(2**53), "0.5", "1e300", "1e23", str(2**70), "123456789012345680000"], 0),
    ],
)
def test_whole_numbers_that_reading_rounds_are_said(form: str, numbers: Names, count: int, tmp_path: Path) -> None:
    rows = [(i / 2, number, "uv"[i % 2]) for i, number in enumerate(numbers)]
    if form in ("csv", "semicolons"):
        text = " a , x ,y\n" + "".join(f"{a},{x} ,{y}\n" for a, x, y in rows)
        text = text.replace(",", ";").replace(".", ",") if form == "semicolons" else text
    else:
        more = ', "v": [{}, 0.5]' if form == "lines" else ""
        objects = [f'{{"a": {a}, "x": {x}, "y": "{y}"{more.format(x)}}}' for a, x, y in rows]
        text = "\n".join(objects) if form == "lines" else f"[{', '.join(objects)}]"
    columns = "xv" if form == "lines" else "x"
    path = tmp_path / f"rows.{'csv' if form in ('csv', 'semicolons') else 'jsonl'}"
    path.write_text(text)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        prepared(path, path)
    said = [str(warning.message) for warning in caught]
    assert len(said) == bool(count)
    assert all(f"'{name}' ({count} entries)" in said[0] for name in columns if count)


def test_rounded_features_are_counted_where_they_are(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text(f"x,y\n{LARGE},u\n0.5,v\n1.5,u\n")
    table = read_table(tmp_path / "rows.csv", text=["y"])
    with pytest.warns(UserWarning, match=r"'x' \(1 entries\)"):
        prepare(table, table.slice(1), TableSpec("y"))
    for k, number in enumerate((LARGE, 0.5)):
        (tmp_path / f"part{k}.csv").write_text(f"x,y\n{number},u\n4,v\n")
    with pytest.warns(UserWarning, match=r"'x' \(2 entries\)"):
        prepared(tmp_path / "part*.csv", tmp_path / "part*.csv")


def test_rounded_features_of_other_kinds_are_said() -> None:
    y = [0, 1]
    for x in (
        pa.array([[LARGE, 1], [2, 3]]),
        pa.array([Decimal(LARGE), Decimal(4)]),
        pa.array([LARGE, None]),
        pa.array([LARGE, 4], pa.uint64()),
    ):
        table = pa.table({"x": x, "y": y})
        with pytest.warns(UserWarning, match=r"column 'x' \(1 entries\)"):
            prepare(table, table, TableSpec("y", impute="mean"))
    for X in (
        [[LARGE, 1], [2.5, 3]],
        [[2**70 + 1], [1]],
        np.array([[np.int64(LARGE), 1.5], [Decimal(4), 3]], dtype=object),
    ):
        with pytest.warns(UserWarning, match=r"column 0 \(1 entries\)"):
            KNNShapley().fit(X, y)
    for frame in (pa.table({"x": [Decimal(LARGE), Decimal(4)]}), pl.DataFrame({"x": [Decimal(LARGE), Decimal(4)]})):
        with pytest.warns(UserWarning, match=r"column 'x' \(1 entries\)"):
            KNNShapley().fit(frame, y)
    mixed = pa.table({"x": ["1.5", str(LARGE)], "y": y}), pa.table({"x": [LARGE, 4], "y": y})
    with pytest.warns(UserWarning, match=r"column 'x' \(2 entries\)"):
        assert prepare(*mixed, TableSpec("y", scale="none")).X_val[0, 0] == 2.0**53


# --- messages ---


def test_messages_show_plain_numbers() -> None:
    X, y = np.arange(8.0).reshape(-1, 1), np.array([0, 1] * 4)
    model = KNNShapley().fit(X, y)
    indexed = pd.DataFrame({"a": [1.0, np.nan]}, index=[5, 6])
    objects = np.array([np.int64(3), np.int64(4)], dtype=object)
    calls: list[Any] = [
        lambda: KNNShapley(n_neighbors=np.int64(0)).fit(X, y),
        lambda: KNNShapley(n_jobs=np.int64(0)).fit(X, y).value(X, y),
        lambda: KNNShapley(max_memory=np.float64(-1)).fit(X, y).value(X, y),
        lambda: KNNShapley().fit(indexed, [0, 1]),
        lambda: KNNShapley().fit(X, np.array([0, 1, np.nan, 1, 0, 1, 0, 1])),
        lambda: FlipLabels(0.5, targets={np.int64(0): np.int64(0)}),
        lambda: FlipLabels({np.int64(9): 0.5})(X, y),
        lambda: ShiftPriors({np.int64(9): np.float64(0.5)})(X, y),
        lambda: ShiftPriors({np.int64(0): np.float64(0.9), np.int64(1): np.float64(0.9)}),
        lambda: model.value(X, y).interval(np.float64(2)),
    ]
    for call in calls:
        with pytest.raises((ValueError, TypeError)) as caught:
            call()
        assert "np." not in str(caught.value), caught.value
    with pytest.warns(UserWarning, match="never seen") as heard:
        model.value(X[:2], objects)
    assert "np." not in str(heard[0].message)


def test_a_bad_cell_is_named(tmp_path: Path) -> None:
    good = write(tmp_path / "good.csv", n=60, y=["u", "v"], x=[str(i * 1.5) for i in range(60)])
    bad = write(
        tmp_path / "bad.csv",
        n=60,
        y=["u", "v"],
        x=[str(i * 1.5) if i != 17 else "12,5\n" + "x" * 99 for i in range(60)],
    )
    few = write(tmp_path / "few.csv", n=60, y=["u", "v"], x=[*(str(i * 1.5) for i in range(20)), "?"])
    said = r"bad\.csv' 1 of 60 entries do not read as numbers, the first '12,5\\nx+\.\.\.' in row 17 \(counted from 0\)"
    for train, val in ((good, bad), (bad, good), (bad, bad)):
        with pytest.raises(ValueError, match=said) as caught:
            prepared(train, val)
        assert "'x'" in str(caught.value)
    with pytest.warns(UserWarning, match=r"'x' is used as a category.*few\.csv' 2 of 60 .* '\?' in row 20"):
        prepared(few, few)
    for side in ((bad, good), (good, bad)):
        with pytest.raises(ValueError, match=said):
            prepare(*map(read_table, side), TableSpec("x", target="number", drop=["y"]))
    comma = tmp_path / "comma.csv"
    comma.write_text("x;y\n" + "".join(f"{i},5;{'uv'[i % 2]}\n" if i != 9 else "1,2,5;u\n" for i in range(60)))
    with pytest.raises(ValueError, match=r"comma\.csv' 1 of 60 .* '1,2,5' in row 9"):
        prepared(comma, comma)
    missing = write(tmp_path / "missing.csv", y=["u", "v"], who=["ann", "NULL"])
    with pytest.raises(ValueError, match=r"12 missing values of 24, the first in row 1 .*NULL"):
        prepared(missing, missing, "who")
    infinite = write(tmp_path / "inf.csv", y=["u", "v"], x=[*"12345", "inf"])
    with pytest.raises(ValueError, match="training row 5, counted from 0"):
        prepared(infinite, infinite)


def test_a_numeric_label_is_told_of_regression(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", n=40, y=[str(i * 1.5) for i in range(40)])
    refused = run("value", path, path, "--label", "y", "--out", tmp_path / "out")
    assert refused.code == 2
    assert "--method regression" in refused.err
    other = write(tmp_path / "other.csv", y=["0.25", "0.75"])
    half = write(tmp_path / "half.csv", y=["0.5", "1.5", "2"])
    assert "--method regression" in run("value", half, other, "--label", "y", "--out", tmp_path / "out").err
    assert any("--method regression" in note for note in prepared(half, half).notes)
    texts = write(tmp_path / "texts.csv", n=40, y=[f"t{i}" for i in range(40)])
    assert "regression" not in run("value", texts, texts, "--label", "y", "--out", tmp_path / "out").err
    assert not any("regression" in note for note in prepared(*[write(tmp_path / "y.csv", y=["0", "1"])] * 2).notes)
    ran = run("value", path, path, "--label", "y", "--method", "regression", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err


@pytest.mark.parametrize("val", [["a"], ["a", "b"]])
def test_one_class_is_not_called_harmful(val: Names, tmp_path: Path) -> None:
    paths = write(tmp_path / "train.csv", y=["a"]), write(tmp_path / "val.csv", seed=1, y=val)
    ran = run("value", *paths, "--label", "y", "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert "All rows have the same value" in ran.out
    assert "harm" not in ran.out
    assert "worth more than another" not in ran.err
    assert "same label, 'a'" in ran.err


def test_free_text_is_not_made_into_numbers(tmp_path: Path) -> None:
    free = write(tmp_path / "x.csv", n=60, y=["u", "v"], t=[f"text {i} " + "word " * 20 for i in range(60)])
    many = write(tmp_path / "y.csv", n=120, y=["u", "v"], t=[f"t{i}" for i in range(55)])
    for path in (free, many):
        refused = run("value", path, path, "--label", "y", "--out", tmp_path / "out")
        assert refused.code == 2
        assert "--text t" in refused.err
        assert "ordinal" not in refused.err
    refused = run("value", free, free, "--label", "y", "--categorical", "ordinal", "--out", tmp_path / "out")
    assert refused.code == 2
    sizes = (
        write(tmp_path / "a.csv", y=["u", "v"], t=["S", "M", "L"]),
        write(tmp_path / "b.csv", y=["u"], t=["S", "XL"]),
    )
    refused = run("value", *sizes, "--label", "y", "--categorical", "ordinal", "--out", tmp_path / "out")
    assert refused.code == 2
    assert "'XL'" in refused.err


def test_selected_rows_are_read_again(tmp_path: Path) -> None:
    labels, who = ["+", "-", "'+", "=1+1", "@x", "1E2", "100"], ["'", "''=x", " s", "s ", 'q"', "007", "7"]
    train = write(tmp_path / "train.csv", n=70, y=labels, who=who)
    pool = write(tmp_path / "pool.csv", n=70, seed=1, y=labels, who=who)
    out = tmp_path / "out"
    options = ("--label", "y", "--owner", "who", "--repeats", 2)
    for kind in ("csv", "parquet"):
        ran = run("design", train, pool, *options, "--select", 28, "--format", kind, "--out", out / kind)
        assert ran.code == 0, ran.err
        ran = run("value", train, out / kind / f"selected.{kind}", *options[:4], "--out", out / f"value-{kind}")
        assert ran.code == 0, ran.err
        assert "never" not in ran.err
    exact, again = (read_table(out / kind / f"selected.{kind}", text=["y", "who"]) for kind in ("parquet", "csv"))
    assert exact.to_pydict() == again.to_pydict()
    assert "'" in "".join(map(str, exact["who"].to_pylist()))


def test_selected_rows_that_csv_cannot_hold(tmp_path: Path) -> None:
    train = parquet(tmp_path / "train.parquet", n=40, y=["NA", "b"])
    pool = parquet(tmp_path / "pool.parquet", n=40, seed=1, y=["NA", "b"])
    options = ("--label", "y", "--select", 10, "--repeats", 2, "--out", tmp_path / "out")
    ran = run("design", train, pool, *options, "--format", "csv")
    assert ran.code == 2
    assert "--format parquet" in ran.err
    assert run("design", train, pool, *options).code == 0


def test_selected_whole_numbers_stay_numbers(tmp_path: Path) -> None:
    train, pool = (write(tmp_path / f"{seed}.csv", n=40, seed=seed, y=["0", "1"]) for seed in (0, 1))
    ran = run("design", train, pool, "--label", "y", "--select", 10, "--repeats", 2, "--out", tmp_path / "out")
    assert ran.code == 0, ran.err
    assert pq.read_schema(tmp_path / "out" / "selected.parquet").field("y").type == pa.int64()


# --- many columns ---


class Counted:
    """A table that counts how often it lists its columns."""

    def __init__(self, table: Any) -> None:
        self.table, self.listed = table, 0

    @property
    def column_names(self) -> list[str]:
        self.listed += 1
        return list(self.table.column_names)

    def __getitem__(self, name: str) -> Any:
        return self.table[name]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.table, name)


def test_columns_are_not_listed_for_each_column(tmp_path: Path) -> None:
    def listed(width: int) -> list[int]:
        names = [f"c{j}" for j in range(width)]
        pair = [Counted(pa.table({"y": [0, 1, 0], **{name: [1.0, 2.0, 4.0] for name in names}})) for _ in range(2)]
        prepare(pair[0], pair[1], TableSpec("y"))
        prepare(pair[0], pair[1], TableSpec("y", features=names[1:]))
        prepare(pair[0], pair[1], TableSpec("y", drop=names[1:]))
        for k in range(2):
            pq.write_table(pair[k].table, tmp_path / f"{k}.parquet")
        _joined(pair, find_parts(tmp_path / "*.parquet"))
        return [table.listed for table in pair]

    assert listed(6) == listed(60)


def test_the_report_asks_for_all_columns_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    schema, take = nw.DataFrame.schema.fget, nw.DataFrame.__getitem__
    monkeypatch.setattr(nw.DataFrame, "schema", property(lambda frame: asked.append("schema") or schema(frame)))
    monkeypatch.setattr(nw.DataFrame, "__getitem__", lambda frame, item: asked.append("item") or take(frame, item))

    def count(width: int) -> int:
        asked.clear()
        table = pa.table({**{f"c{j}": [1.0, None, 3.0] for j in range(width)}, "t": ["a", "b", "c"]})
        features = read_features(table, "X_train", 3, "the training rows")
        expected = np.tile([[3.0], [1.0]], width)
        np.testing.assert_array_equal(features.numeric(np.array([2, 0])), expected)
        assert features.numeric_places() == list(range(width))
        return len(asked)

    assert count(5) == count(50)


def test_folder_names_stay_apart_in_files_larger_than_memory(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label in ("007", "7", "8"):
        (tmp_path / f"class={label}").mkdir()
        pq.write_table(
            pa.table({"a": rng.normal(size=5), "b": rng.normal(size=5)}), tmp_path / f"class={label}/a.parquet"
        )
    assert KNNShapley().fit(tmp_path, "class").classes_.tolist() == ["007", "7", "8"]
    (tmp_path / "class=007" / "a.parquet").unlink()
    assert KNNShapley().fit(tmp_path, "class").classes_.tolist() == [7, 8]
