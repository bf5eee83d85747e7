"""``shapshift clean``: the table in its own format with all other cells as they were, decisions, and their effect."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from cli_files import make_tables, run, write_all

from shapshift.tables import read_table

HEADER = "id,action,label,weight,probability,reason,row"
COLUMNS = ("--label", "class", "--id", "row")
KINDS = ("csv", "parquet", "feather", "arrow", "jsonl", "npz", "folder", "glob")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Path]]:
    return write_all(tmp_path_factory.mktemp("tables"))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def listed(*lines: str, name: str = "mine.csv") -> Path:
    path = Path(name)
    path.write_text("\n".join([HEADER, *lines]) + "\n", encoding="utf-8")
    return path


def planted(n: int = 160, wrong: int = 10, seed: int = 0) -> list[list[str]]:
    """Rows of two classes far apart; the first ones have the label of the other class."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    X = rng.normal(size=(n, 3)) * 0.5 + 4.0 * y[:, None]
    given = np.where(np.arange(n) < wrong, 1 - y, y)
    return [[f"{i:03d}", *(f"{x:.3f}" for x in X[i]), f"c{given[i]}"] for i in range(n)]


def write_csv(path: str, rows: list[list[str]]) -> None:
    Path(path).write_text("\n".join(map(",".join, [["code", "a", "b", "c", "y"], *rows])) + "\n")


def read_back(path: Path) -> list[dict[str, Any]]:
    return read_table(path, text=["class", "row"]).to_pylist()


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_comes_back_in_its_own(kind: str, files: dict[str, tuple[Path, Path]], here: Path) -> None:
    train = files[kind][0]
    before = read_back(train)
    label = "y" if kind == "npz" else "class"
    flipped = {"no": "yes", "yes": "no"}[before[5][label]]
    decisions = listed("t003,drop,,,,,", f"t005,relabel,{flipped},,,,", "t007,weight,,0.25,,,", "t070,drop,,,,,")
    columns = () if kind == "npz" else (*COLUMNS, "--drop", "seller")
    ran = run("clean", train, *columns, "--decisions", decisions, "--models", "none", "--out", "out")
    assert ran.code == 0, ran.err
    ending = {"folder": "", "glob": "/*.csv"}.get(kind, train.suffix)
    after = read_back(here / "out" / f"cleaned{ending}")
    if kind == "npz":
        assert np.load("out/cleaned.npz")["weight"].tolist() == [1.0] * 6 + [0.25] + [1.0] * 71
    else:
        name = "weight_2"  # the table has a column weight
        assert [row.pop(name) for row in after] == [1.0] * 6 + [0.25] + [1.0] * 71
    before[5][label] = flipped
    assert after == [row for i, row in enumerate(before) if i not in (3, 70)]
    if kind in ("csv", "jsonl"):
        old, new = train.read_text().splitlines(), (here / "out" / f"cleaned{ending}").read_text().splitlines()
        assert len(new) == len(old) - 2
        assert sum(line.startswith(tuple(x.rstrip("}") for x in old)) for line in new) == len(new) - 1
    if kind == "parquet":
        assert pq.read_schema("out/cleaned.parquet").names == [*pq.read_schema(train).names, "weight_2"]
    if kind == "folder":
        assert sorted(path.name for path in Path("out/cleaned").iterdir()) == ["part-0.parquet", "part-1.parquet"]


ROWS = "k,a,b,y\n007,1.10,é,no\n1E2,2.0,ü,yes\n0x1,3,z,no\n9,4.00,w,yes\n"
QUOTED = "k,a,b,y\n'007',1.10,'x, y','no'\n'1E2',2.0,'u','yes'\n'0x1',3,'z','no'\n'9',4.00,'w','yes'\n"
BROKEN = 'k,"a",b,y\n007,1.10,"x, ""y""",no\n\n1E2,+2.0,"line\nbreak",yes\n0x1,3,z,no\n9,4.00,w,yes'
COMMAS = "sep=;\r\nk;a;b;y\r\n007;1,10;é;no\r\n1E2;2,0;ü;yes\r\n0x1;3,5;z;no\r\n9;4,00;w;yes\r\n"
# Text, encoding and separator.
NASTY = {
    "comma": (BROKEN, "utf-8", ","),
    "semicolon": (COMMAS, "cp1252", ";"),
    "tab": (ROWS.replace(",", "\t"), "utf-16-be", "\t"),
    "marked": (ROWS, "utf-8-sig", ","),
    "apostrophes": (QUOTED, "utf-8", ","),
    "trailing": (ROWS.replace("\n", ",\n"), "utf-8", ","),
}


@pytest.mark.parametrize("name", NASTY)
def test_cells_that_are_not_changed_stay_as_they_are_written(name: str, here: Path) -> None:
    text, encoding, separator = NASTY[name]
    mark = b"\xfe\xff" if encoding == "utf-16-be" else b""
    Path("t.csv").write_bytes(mark + text.encode(encoding))
    decisions = listed("0x1,drop,,,,,", "1E2,relabel,no,,,,")
    options = ("--label", "y", "--id", "k", "--drop", "b", "--decisions", decisions, "--models", "none")
    assert run("clean", "t.csv", *options, "--out", "one").code == 0
    expected = "".join(line for line in text.splitlines(keepends=True) if "0x1" not in line)
    old = next(part for part in ('"line\nbreak",yes', "ü,yes", "ü;yes", "ü\tyes", "'u','yes'") if part in text)
    expected = expected.replace(old, old.replace("yes", "no"))
    assert Path("one/cleaned.csv").read_bytes() == mark + expected.encode(encoding)
    listed("9,weight,,0.5,,,")
    assert run("clean", "t.csv", *options, "--out", "two").code == 0
    ends = [line.rsplit(separator, 1) for line in text.splitlines() if line and not line.startswith("sep=")]
    written = Path("two/cleaned.csv").read_bytes()[len(mark) :].decode(encoding).splitlines()
    found = [line for line in written if line and not line.startswith("sep=")]
    decimal = "," if name == "semicolon" else "."
    assert found[0] == separator.join([*ends[0], "weight"])
    assert found[-1] == separator.join([*ends[-1], f"0{decimal}5"])
    assert read_table("two/cleaned.csv")["weight"].to_pylist() == [1.0, 1.0, 1.0, 0.5]


def test_labels_that_need_quotes_get_them_and_others_are_refused(here: Path) -> None:
    Path("t.csv").write_text("k,a,y\nr1,1,no\nr2,2,yes\nr3,3,no\nr4,4,yes\n", encoding="utf-8")
    options = ("--label", "y", "--id", "k", "--decisions", "mine.csv", "--models", "none", "--new-classes")
    listed('r3,relabel,"a, ""b""",,,,')
    assert run("clean", "t.csv", *options, "--out", "one").code == 0
    assert Path("one/cleaned.csv").read_text().splitlines()[3] == 'r3,3,"a, ""b"""'
    listed("r3,relabel,NA,,,,")
    ran = run("clean", "t.csv", *options, "--out", "two")
    assert ran.code == 2
    assert "cannot be written so that it reads back" in ran.err
    assert not Path("two").exists()
    Path("t.csv").write_bytes("k,a,y\nr1,1,é\nr2,2,yes\nr3,3,é\nr4,4,yes\n".encode("cp1252"))
    listed("r3,relabel,日本,,,,")
    ran = run("clean", "t.csv", *options, "--out", "three")
    assert ran.code == 2
    assert "cannot be written in the encoding" in ran.err


@pytest.mark.parametrize("whole", [False, True], ids=["lines", "list"])
def test_json_is_changed_in_place(whole: bool, here: Path) -> None:
    rows = [f'{{"k": "r{i}", "a" : {i}.10, "s": "\u2028{{", "y":"{"no" if i % 2 else "yes"}"}}' for i in range(6)]
    text = "[\n  " + ",\n  ".join(rows) + "\n]\n" if whole else "\n".join(rows) + "\n"
    Path("t.json").write_text(text, encoding="utf-8")
    listed("r1,drop,,,,,", "r2,relabel,no,,,,", "r3,weight,,0.5,,,")
    options = ("--label", "y", "--id", "k", "--drop", "s", "--decisions", "mine.csv", "--models", "none")
    ran = run("clean", "t.json", *options, "--out", "out")
    assert ran.code == 0, ran.err
    new = Path("out/cleaned.json").read_text(encoding="utf-8")
    assert '"a" : 2.10, "s": "\u2028{", "y":"no", "weight": 1.0}' in new
    assert '"a" : 3.10, "s": "\u2028{", "y":"no", "weight": 0.5}' in new
    found = json.loads(new) if whole else [json.loads(line) for line in new.split("\n") if line]
    assert [row["k"] for row in found] == ["r0", "r2", "r3", "r4", "r5"]


def test_categories_keep_their_order_and_other_columns_their_types(here: Path) -> None:
    sizes = pa.DictionaryArray.from_arrays(pa.array([2, 1] * 20, pa.int8()), ["low", "mid", "high"], ordered=True)
    table = pa.table({"a": pa.array(np.arange(40), pa.float32()), "k": [f"r{i}" for i in range(40)], "y": sizes})
    pq.write_table(table.replace_schema_metadata({"mine": "kept"}), "t.parquet")
    listed("r0,relabel,mid,,,,", "r2,relabel,new,,,,", "r3,drop,,,,,")
    options = ("--label", "y", "--id", "k", "--decisions", "mine.csv", "--models", "none", "--out", "out")
    ran = run("clean", "t.parquet", *options, "--new-classes")
    assert ran.code == 0, ran.err
    new = pq.read_table("out/cleaned.parquet")
    # Parquet files do not keep the type of the indices.
    assert new["y"].type.value_type == pa.string()
    assert new["y"].type.ordered
    assert new.schema.remove(2).equals(table.schema.remove(2))
    assert new.schema.metadata == {b"mine": b"kept"}
    assert new["y"].to_pylist() == ["mid", "mid", "new", *["high", "mid"] * 18]
    assert new["y"].chunk(0).dictionary.to_pylist() == ["low", "mid", "high", "new"]


def test_test_rows_from_the_table_are_named(here: Path) -> None:
    write_csv("train.csv", planted(40, 0))
    listed("000,drop,,,,,")
    options = ("--label", "y", "--id", "code", "--decisions", "mine.csv", "--models", "logistic", "--repeats", 1)
    ran = run("clean", "train.csv", *options, "--test", "train.csv", "--quiet")
    assert ran.code == 0, ran.err
    assert "40 of 40 rows of --test have the features and label of a row of TABLE" in ran.err


def test_packed_files_are_written_unpacked_and_row_numbers_name_rows(here: Path) -> None:
    write_csv("t.csv", planted(30, 0))
    Path("t.csv.gz").write_bytes(gzip.compress(Path("t.csv").read_bytes()))
    listed("0,drop,,,,,", "29,drop,,,,,")
    ran = run("clean", "t.csv.gz", "--label", "y", "--drop", "code", "--decisions", "mine.csv", "--models", "none")
    assert ran.code == 0, ran.err
    lines = Path("t.csv").read_text().splitlines()
    assert Path("shapshift-clean/cleaned.csv").read_text().splitlines() == [lines[0], *lines[2:-1]]


def test_suspects_are_dropped_and_the_same_decisions_give_the_same_bytes(here: Path) -> None:
    write_csv("train.csv", planted())
    write_csv("test.csv", planted(80, 0, seed=1))
    options = ("train.csv", "--label", "y", "--id", "code", "--test", "test.csv", "--models", "logistic")
    ran = run("clean", *options, "--error", "0.4", "--repeats", 2, "--out", "one", "--json")
    assert ran.code == 0, ran.err
    result = ran.document["result"]
    decisions = list(csv.DictReader(Path("one/decisions.csv").read_text(encoding="utf-8-sig").splitlines()))
    dropped = [row["id"] for row in decisions]
    assert result["dropped"] == len(dropped) > 0
    assert len(set(dropped) & {f"{i:03d}" for i in range(10)}) >= 0.5 * len(dropped)
    assert result["held_out"] == "test rows"
    assert len(result["effect"]) == 10
    assert sum(row["dropped"] for row in result["classes"]) == len(dropped)
    old, new = (Path(name).read_text().splitlines() for name in ("train.csv", "one/cleaned.csv"))
    assert new == [line for line in old if line.split(",")[0] not in dropped]
    assert Path("one/effect.csv").read_text(encoding="utf-8-sig").startswith('"model","measure","what","value"')
    ran = run("clean", *options, "--decisions", "one/decisions.csv", "--repeats", 2, "--out", "two")
    assert ran.code == 0, ran.err
    for name in ("cleaned.csv", "decisions.csv", "effect.csv", "classes.csv"):
        assert Path("one", name).read_bytes() == Path("two", name).read_bytes(), name
    assert run("rerun", "one").code == 0
    assert run("rerun", "two").code == 0
    assert run("clean", *options, "--out", "one").code == 3
    before = Path("train.csv").read_bytes()
    ran = run("clean", "train.csv", *options[1:], "--decisions", "one/decisions.csv", "--out", "one", "--force")
    assert ran.code == 3
    assert "'decisions.csv' in 'one' is an input" in ran.err
    assert run("clean", "one/cleaned.csv", *options[1:], "--out", "one", "--force").code == 3
    assert Path("train.csv").read_bytes() == before
    # The list is refused for another table: one cell has changed.
    first = next(line for line in old if line.split(",")[0] == dropped[0])
    Path("train.csv").write_text("\n".join(line.replace(first, f"{dropped[0]},9{first[4:]}") for line in old) + "\n")
    ran = run("clean", *options, "--decisions", "one/decisions.csv", "--out", "three")
    assert ran.code == 2
    assert "column 'row'" in ran.err
    assert not Path("three").exists()


@pytest.mark.parametrize("action", ["relabel", "weight"])
def test_without_test_rows_parts_of_the_table_are_held_out(action: str, here: Path) -> None:
    write_csv("train.csv", planted())
    options = ("--label", "y", "--drop", "code", "--models", "logistic", "--repeats", 1, "--error", "0.4", "--json")
    ran = run("clean", "train.csv", *options, "--action", action)
    assert ran.code == 0, ran.err
    result = ran.document["result"]
    done = {"relabel": "relabelled", "weight": "weighted"}[action]
    assert result["held_out"] == "cross-validation"
    assert result[done] > 0
    table = read_table("shapshift-clean/cleaned.csv")
    assert table.num_rows == 160
    if action == "weight":
        assert sum(weight < 1 for weight in table["weight"].to_pylist()) == result["weighted"]


def test_numbers_to_predict(here: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    y = (X @ [1.0, 2.0]).round(3)
    y[:3] += 30
    table = pa.table({"a": X[:, 0], "b": X[:, 1], "y": y})
    pq.write_table(table, "t.parquet")
    pq.write_table(pa.table({"a": X[:, 0], "b": X[:, 1], "y": (10 * y).round().astype(int)}), "whole.parquet")
    options = ("--label", "y", "--task", "number", "--action", "relabel", "--models", "boosting", "--repeats", 1)
    ran = run("clean", "t.parquet", *options, "--error", "0.4", "--json")
    assert ran.code == 0, ran.err
    result = ran.document["result"]
    assert result["relabelled"] > 0
    assert result["classes"] == []
    assert {row["measure"] for row in result["effect"]} == {"r2"}
    listed("0,relabel,1.5,,,,")
    ran = run("clean", "t.parquet", "--label", "y", "--decisions", "mine.csv", "--out", "float")
    assert ran.code == 0, ran.err
    assert "need held-out rows" in ran.out
    new = pq.read_table("float/cleaned.parquet")
    assert new["y"].to_pylist() == [1.5, *y[1:].tolist()]
    assert new.select(["a", "b"]).equals(table.select(["a", "b"]))
    listed("0,relabel,7,,,,")
    assert (
        run("clean", "whole.parquet", "--label", "y", "--task", "number", "--decisions", "mine.csv", "--out", "w").code
        == 0
    )
    assert pq.read_table("w/cleaned.parquet")["y"].to_pylist()[:1] == [7]


def test_nothing_to_do_and_few_rows(here: Path) -> None:
    write_csv("train.csv", planted(30, 0))
    listed()
    options = ("train.csv", "--label", "y", "--drop", "code")
    ran = run("clean", *options, "--decisions", "mine.csv", "--out", "none")
    assert ran.code == 0, ran.err
    assert Path("none/cleaned.csv").read_bytes() == Path("train.csv").read_bytes()
    assert "no row is changed" in ran.out
    write_csv("train.csv", planted(1, 0))
    assert run("clean", *options, "--decisions", "mine.csv", "--out", "one").code == 0
    ran = run("clean", *options, "--out", "two")
    assert ran.code == 2
    assert not Path("two").exists()


def test_a_whole_class_is_dropped_only_if_told(here: Path) -> None:
    rows = [[*row[:-1], "a" if i else "rare"] for i, row in enumerate(planted(30, 0))]
    write_csv("train.csv", rows)
    listed("0,drop,,,,,")
    options = ("train.csv", "--label", "y", "--drop", "code", "--decisions", "mine.csv", "--models", "none")
    ran = run("clean", *options)
    assert ran.code == 2
    assert "no row of the class 'rare'" in ran.err
    assert "--lose-classes" in ran.err
    assert not Path("shapshift-clean").exists()
    assert run("clean", *options, "--lose-classes").code == 0
    listed("1,relabel,aa,,,,")
    ran = run("clean", *options, "--out", "new")
    assert ran.code == 2
    assert "be allowed by --new-classes" in ran.err
    ran = run("clean", *options, "--out", "new", "--new-classes", "--json")
    assert ran.code == 0, ran.err
    assert {one["label"]: one["rows"] for one in ran.document["result"]["classes"]} == {"a": 29, "aa": 0, "rare": 1}


def test_whole_numbers_stay_whole(here: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.uniform(size=(80, 2))
    y = np.rint(3000 + 2000 * X[:, 0]).astype(int)
    y[:3] += 9000
    lines = [",".join(map(str, [*x, t])) for x, t in zip(X.round(4), y, strict=True)]
    Path("t.csv").write_text("\n".join(["a,b,y", *lines]) + "\n")
    ran = run("clean", "t.csv", "--label", "y", "--action", "relabel", "--models", "none")
    assert ran.code == 0, ran.err
    new = [line.split(",")[2] for line in Path("shapshift-clean/cleaned.csv").read_text().splitlines()[1:]]
    assert all(entry.isdigit() for entry in new)
    assert max(map(int, new)) < 6000


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--decisions", "mine.csv", "--action", "relabel"), "--action does not go with --decisions"),
        (("--decisions", "mine.csv", "--error", "0.2"), "--error does not go with"),
        (("--decisions", "mine.csv", "--val", "train.csv"), "--val does not go with"),
        (("--decisions", "none.csv"), "There is no file 'none.csv'"),
        (("--decisions", "bad.csv"), "Line 2 of 'bad.csv', column 'action'"),
        (("--models", "svm"), "--models must be names out of logistic, forest, boosting"),
        (("--models", ","), "--models must be"),
        (("--error", "2"), "--error must be"),
        (("--label", "a,b"), "one label per row"),
        (("--test", "none.csv"), "There is no file"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(options: tuple[str, ...], said: str, here: Path) -> None:
    write_csv("train.csv", [[row[0], "01"[i % 2], "10"[i % 3 > 0], *row[3:]] for i, row in enumerate(planted(40, 0))])
    listed("001,drop,,,,,")
    listed("001,explode,,,,,", name="bad.csv")
    ran = run("clean", "train.csv", "--label", "y", "--id", "code", *options)
    assert ran.code == 2, ran.err
    assert said in ran.err
    assert not Path("shapshift-clean").exists()


def test_labels_with_markup_are_shown_as_text(here: Path) -> None:
    rows = [[*row[:-1], "[red]x" if row[-1] == "c0" else "\x1b[31my"] for row in planted(40, 0)]
    write_csv("train.csv", rows)
    listed("0,drop,,,,,")
    ran = run("clean", "train.csv", "--label", "y", "--drop", "code", "--decisions", "mine.csv", "--models", "none")
    assert ran.code == 0, ran.err
    assert "[red]x" in ran.out
    assert "\x1b" not in ran.out + ran.err


def test_a_run_that_fails_late_leaves_nothing(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    train, val = make_tables()
    pq.write_table(train, "train.parquet")
    pq.write_table(val, "val.parquet")
    listed("t000,drop,,,,,")

    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("shapshift.cleaning.measure_cleaning", stop)
    options = (*COLUMNS, "--drop", "seller", "--decisions", "mine.csv", "--test", "val.parquet")
    assert run("clean", "train.parquet", *options).code == 130
    assert sorted(path.name for path in here.iterdir()) == ["mine.csv", "train.parquet", "val.parquet"]
