"""What one seller may see names no other seller, nor anything of the buyer's validation data."""

from __future__ import annotations

import csv
import html
import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from cli_files import run

SELLERS = ("ann", "bob", "cid")
MARKET = ("--label", "class", "--id", "row", "--owner", "seller")
BUDGET = ("--budget", 1000)
NOISE = ("--noise", "0.5", "--repeats", 2)
# A mark of whoever put it there, in every field.
FIELDS = ("Owner", "Id", "Category", "Label", "Number")


def mark(field: str, who: str) -> str:
    return f"{field}of{who}" if field != "Number" else f"{100 + SELLERS.index(who) if who in SELLERS else 200}.0625"


def table(n: int, whose: list[str], seed: int) -> pa.Table:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    size = (rng.normal(size=n) + y).round(4).tolist()
    kind = rng.choice(["red", "blue"], n).tolist()
    label = np.array(["no", "yes"])[y].tolist()
    for who in set(whose):
        first = whose.index(who)
        size[first], kind[first], label[whose.index(who, first + 1)] = (
            float(mark("Number", who)),
            mark("Category", who),
            mark("Label", who),
        )
    return pa.table(
        {
            "row": [f"{mark('Id', who)}-{i}" for i, who in enumerate(whose)],
            "seller": [mark("Owner", who) for who in whose],
            "size": size,
            "weight": (rng.normal(size=n) + y).round(4).tolist(),
            "kind": kind,
            "class": label,
        }
    )


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    pacsv.write_csv(table(60, [SELLERS[i % 3] for i in range(60)], 0), "Fileofann.csv")
    pacsv.write_csv(table(30, ["val"] * 30, 1), "Fileofval.csv")
    return tmp_path


def planted(who: str) -> list[str]:
    return [*(mark(field, who) for field in FIELDS), f"Fileof{who}"]


def statements(folder: Path) -> dict[str, str]:
    """Text of each seller's page, by seller."""
    with open(folder / "statements" / "payouts.csv", encoding="utf-8-sig", newline="") as file:
        pages = {row["owner"].removeprefix("Ownerof"): row["page"] for row in csv.DictReader(file)}
    assert set(pages) == set(SELLERS)
    return {
        who: html.unescape((folder / "statements" / page).read_text(encoding="utf-8")) for who, page in pages.items()
    }


@pytest.mark.parametrize(
    "command",
    [
        ("price", *BUDGET, *NOISE),
        ("price", *BUDGET, "--pay-by", "owners", "--scale", "none"),
        ("price", *BUDGET, "--pay-by", "rows", "--policy", "clip", "--issuer", "Data Market", "--locale", "de"),
        ("price", *BUDGET, "--deposit", "30", "--round-to", "10"),
        ("price", *BUDGET, "--epsilon", "2", "--secret", "Fileofval.csv"),
        ("price", *BUDGET, "--influence"),
        ("price", *BUDGET, "--perturb", "priors:Labelofval=0.2", "--perturb", "flip:0.1", "--repeats", 2),
        ("price", *BUDGET, "--clean-val", "Fileofval.csv", "--policy", "carry", "--impute", "median"),
        ("report", *BUDGET, *NOISE),
    ],
    ids=["price", "players", "rows", "rounded", "noisy", "influence", "priors", "correction", "report"],
)
def test_a_statement_names_nobody_and_nothing_else(command: tuple[object, ...], here: Path) -> None:
    ran = run(command[0], "Fileofann.csv", "Fileofval.csv", *MARKET, *command[1:], "--out", "out")
    assert ran.code == 0, ran.err
    for who, text in statements(here / "out").items():
        assert mark("Owner", who) in text
        assert mark("Id", who) in text
        for other in {*SELLERS, "val"} - {who}:
            found = [word for word in planted(other) if word.lower() in text.lower()]
            assert found == [], (who, other)
        assert "size, weight, kind" in text  # the columns, which all sellers share
        assert "validation points that" not in text  # explanations show validation points


def files_of(folder: Path) -> str:
    """Everything that can be read in the files of a folder, their names included."""
    found = []
    for path in sorted(folder.rglob("*")):
        text = str(pq.read_table(path).to_pydict()) if path.suffix == ".parquet" else path.read_text(encoding="utf-8")
        found += [path.name, html.unescape(text)]
    return "\n".join(found)


@pytest.mark.parametrize(
    "terms",
    [(), ("--pay-by", "owners", "--deposit", "30", "--scale", "none"), ("--pay-by", "rows", "--round-to", "10")],
    ids=["clusters", "owners", "rounded rows"],
)
def test_a_seller_s_statement_and_export_of_a_market_name_nobody_and_nothing_else(
    terms: tuple[str, ...], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sqlalchemy", reason="the ledger needs it")
    monkeypatch.setattr("shapshift.market.databases.SYNCHRONOUS", "OFF")
    classes = ["Labelofval", "no", "yes"]  # sellers' tables may have no others

    def market(*words: object) -> None:
        ran = run("market", *words)
        assert ran.code == 0, ran.err

    market("init", "m.db")
    for seed, month in enumerate(("one", "two")):
        val = table(30, ["val"] * 30, 10 * seed)
        pacsv.write_csv(val, "Fileofval.csv")
        budget = 1000 + 500 * seed
        columns = ("--label", "class", "--id", "row", "--drop", "seller")
        market("open", "m.db", month, "--val", "Fileofval.csv", "--budget", budget, *columns, *terms)
        for place, who in enumerate(SELLERS):
            rows = table(20, [who] * 20, 10 * seed + place + 1)
            known = [label if label in classes else "yes" for label in rows["class"].to_pylist()]
            rows = rows.set_column(5, "class", pa.array(known))
            if who == "cid":  # a copy of a row of bob's, which is listed
                copied = table(20, ["bob"] * 20, 10 * seed + 2).slice(5, 1)
                rows = pa.concat_tables([rows, copied.set_column(0, "row", pa.array([f"{mark('Id', who)}-copy"]))])
            pacsv.write_csv(rows, f"Fileof{who}.csv")
            market("submit", "m.db", month, mark("Owner", who), f"Fileof{who}.csv")
        market("close", "m.db", month, "--val", "Fileofval.csv")
    for who in SELLERS:
        one = ("--seller", mark("Owner", who))
        market("statement", "m.db", "two", *one, "--out", f"page{who}", "--changes")
        market("export", "m.db", f"export{who}", *one)
        for folder in (here / f"page{who}", here / f"export{who}"):
            text = files_of(folder)
            assert mark("Owner", who) in text
            assert mark("Id", who) in text
            for other in {*SELLERS, "val"} - {who}:
                found = [word for word in planted(other) if word.lower() in text.lower()]
                assert found == [], (folder.name, other)


@pytest.mark.parametrize("command", ["value", "audit", "correct", "price", "report"])
def test_a_page_shows_features_of_owned_rows_only_when_asked(command: str, here: Path) -> None:
    more = {
        "audit": NOISE,
        "price": BUDGET,
        "report": (*BUDGET, *NOISE),
        "correct": ("--clean-val", "Fileofval.csv"),
    }.get(command, ())

    def page(*options: object, owner: bool = True) -> tuple[str, str]:
        market = MARKET if owner else (*MARKET[:4], "--drop", "seller")
        files = ("Fileofann.csv", "Fileofval.csv", *market)
        ran = run(command, *files, *more, *options, "--out", "out", "--report", "page.html", "--force")
        assert ran.code == 0, ran.err
        return html.unescape((here / "page.html").read_text(encoding="utf-8")), " ".join(ran.err.split())

    raw = [mark(field, who) for field in ("Category", "Number") for who in (*SELLERS, "val")]
    text, said = page()
    assert [word for word in raw if word in text] == []
    assert "map-value" not in text
    assert "validation points that" not in text  # nor explanations of single rows
    assert "are left out of this page, since the rows have owners" in text
    assert "--raw-features shows them" in said
    text, said = page("--raw-features")
    assert [word for word in raw[:3] if word not in text] == []
    assert "map-value" in text
    assert "--no-raw-features leaves them out" in said
    if command not in ("price", "report"):
        text, said = page(owner=False)
        assert raw[0] in text
        assert "--no-raw-features leaves them out" in said
        text, said = page("--no-raw-features", owner=False)
        assert [word for word in raw if word in text] == []
        assert "are left out of this page;" in text


def test_statements_of_the_demo_name_one_seller_each(here: Path) -> None:
    assert run("demo", "--out", "out").code == 0
    sellers = ("Alpha", "Bravo", "Charlie", "Delta", "Echo")
    pages = list((here / "out" / "statements").glob("*.html"))
    assert len(pages) == len(sellers)
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert len([name for name in sellers if re.search(name, text)]) == 1
        assert not any(word in text for word in ("benign", "malignant"))


def test_a_page_without_features_is_repeated(here: Path) -> None:
    files = ("Fileofann.csv", "Fileofval.csv", *MARKET)
    for number, options in enumerate(((), ("--raw-features",))):
        assert run("value", *files, *options, "--report", f"{number}.html", "--out", f"out{number}").code == 0
        ran = run("rerun", f"out{number}")
        assert ran.code == 0, ran.err
