"""The market commands: two months from init to export, what they print, refuse and hide."""

from __future__ import annotations

import json
import os
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.csv as pacsv
import pytest
from cli_files import make_tables, run

from shapshift.market import databases
from shapshift.market.rounds import Market

pytest.importorskip("sqlalchemy", reason="the ledger needs it")

ROUND = ("--label", "class", "--id", "row", "--drop", "seller")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with two validation files and the tables of three sellers."""
    monkeypatch.chdir(tmp_path)
    rows, val = make_tables()
    pacsv.write_csv(val, "val.csv")
    pacsv.write_csv(make_tables(1)[1], "val2.csv")
    for seller in ("ann", "bob", "cid"):
        own = rows.filter(pa.compute.equal(rows["seller"], seller))
        pacsv.write_csv(own, f"{seller}.csv")
    return tmp_path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests need not wait for the disk."""
    monkeypatch.setattr(databases, "SYNCHRONOUS", "OFF")


def month(name: str, val: str, *more: object, submit: tuple[str, ...] = ("ann", "bob", "cid")) -> None:
    assert run("market", "open", "m.db", name, "--val", val, "--budget", 900, *ROUND, *more).code == 0
    for seller in submit:
        ran = run("market", "submit", "m.db", name, seller, f"{seller}.csv")
        assert ran.code == 0, ran.err
    ran = run("market", "close", "m.db", name, "--val", val)
    assert ran.code == 0, ran.err


def test_two_months(here: Path) -> None:
    ran = run("market", "init", "m.db", "--issuer", "Example Ltd", "--contact", "pay@example.org")
    assert ran.code == 0, ran.err
    assert "Next: shapshift market open m.db ROUND" in ran.out
    opened = run("market", "open", "m.db", "2026-10", "--val", "val.csv", "--budget", 900, *ROUND)
    assert "Round 2026-10 is open: 900.00 EUR" in opened.out
    assert "What this invites: Whoever submits a row first has its vote" in opened.out
    assert "operator's own record" not in opened.out
    assert "Next: shapshift market submit m.db 2026-10 SELLER rows.csv" in opened.out
    submitted = run("market", "submit", "m.db", "2026-10", "ann", "ann.csv")
    assert "ann has 27 rows on offer." in submitted.out
    assert "Left out 'seller'" in submitted.err
    assert "in place of 27" in run("market", "submit", "m.db", "2026-10", "ann", "ann.csv").out
    assert run("market", "submit", "m.db", "2026-10", "bob", "bob.csv").code == 0
    closed = run("market", "close", "m.db", "2026-10", "--val", "val.csv", "--json").document
    assert not closed["closed_before"]
    assert sum(map(float, closed["payments"].values())) + float(closed["unallocated"]) == 900
    again = run("market", "close", "m.db", "2026-10", "--val", "val.csv")
    assert "was already closed" in again.out
    assert closed["payments"]["ann"] in again.out
    assert {**run("market", "close", "m.db", "2026-10", "--val", "val.csv", "--json").document} == {
        **closed,
        "closed_before": True,
    }
    month("2026-11", "val2.csv", "--keep", "--budget", 1200, "-k", 3, "--near-copies", submit=("cid",))
    with Market("m.db") as market:
        assert [market.terms(name).rule.near_copies for name in ("2026-10", "2026-11")] == [False, True]
    ran = run("market", "statement", "m.db", "2026-11", "--out", "all", "--json")
    assert ran.code == 0, ran.err
    assert len(ran.document["files"]) == 4
    why = ran.document["changes"]
    paid = run("market", "close", "m.db", "2026-11", "--val", "val2.csv", "--json").document["payments"]
    for seller in ("ann", "bob"):
        change = sum(round(100 * float(part)) for part in why[seller].values())
        assert change == round(100 * (float(paid[seller]) - float(closed["payments"][seller])))
    shown = run(
        "market", "statement", "m.db", "2026-11", "--out", "one", "--seller", "ann", "--contest-until", "2026-12-24"
    )
    assert "Why payments changed since round 2026-10" in shown.out
    (page,) = (here / "one").iterdir()
    text = page.read_text(encoding="utf-8")
    assert all(
        word in text
        for word in ("Example Ltd", "pay@example.org", "2026-11", "Rows of other sellers", "until December 24, 2026")
    )
    assert "bob" not in text
    again = run("market", "statement", "m.db", "2026-11", "--out", "one", "--seller", "ann")
    assert again.code == 3
    assert "or pass --force to replace them" in again.err
    assert run("market", "statement", "m.db", "2026-11", "--out", "one", "--seller", "ann", "--force").code == 0
    verified = run("market", "verify", "m.db", "--recompute", "--head", closed["head"])
    assert verified.code == 0, verified.err
    assert "Computed again, and the same to the cent: 5 payments." in verified.out
    assert run("market", "export", "m.db", "audit").code == 0
    assert run("market", "export", "m.db", "own", "--seller", "ann", "--json").document["files"][0] == "events.jsonl"
    assert (here / "audit" / "ledger.json").exists()


def test_the_help_of_a_round_says_what_its_terms_invite() -> None:
    said = " ".join(run("market", "open", "--help").out.replace("│", " ").split())
    for words in (
        "hiding bad rows under a second name",
        "invites random rows",
        "invites splitting into",
        "invites copies",
    ):
        assert words in said


def test_kept_tables_with_missing_values_need_a_way_to_fill_them_in(here: Path) -> None:
    assert run("market", "init", "m.db").code == 0
    month("one", "val.csv", "--impute", "median")
    ran = run("market", "open", "m.db", "two", "--val", "val.csv", "--budget", 9, *ROUND, "--keep")
    assert ran.code == 2
    assert "Say how with --impute, or leave --keep out." in " ".join(ran.err.split())


def test_changes_that_take_long_are_left_out_and_can_be_asked_for(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("market", "init", "m.db").code == 0
    month("one", "val.csv")
    monkeypatch.setattr("shapshift.market.rounds.SEARCH_SECONDS", 1.0)
    statement = ("market", "statement", "m.db")
    assert run(*statement, "one", "--out", "first").err == ""  # there is nothing to compare with
    month("two", "val2.csv", "--keep", "--budget", 1200, submit=("cid",))
    for more, says in (((), "for one seller alone"), (("--seller", "ann"), "Ask for it with --changes.")):
        ran = run(*statement, "two", "--out", "s", "--force", *more)
        told = " ".join(ran.err.split())
        assert "Why payments changed is left out: it takes about" in told
        assert says in told
        assert "Why payments changed since" not in ran.out
    asked = run(*statement, "two", "--out", "s", "--force", "--seller", "ann", "--changes")
    assert "Why payments changed since round one" in asked.out


def test_rounding_and_noise(here: Path) -> None:
    assert run("market", "init", "m.db").code == 0
    month("one", "val.csv", "--round-to", 50, "--epsilon", 5)
    paid = run("market", "close", "m.db", "one", "--val", "val.csv", "--json").document["payments"]
    assert all(float(amount) % 50 == 0 for amount in paid.values())
    assert run("market", "verify", "m.db", "--recompute").code == 0
    month("two", "val.csv", "--keep")
    assert run("market", "statement", "m.db", "two", "--out", "s", "--json").document["changes"] == {}


def test_a_seller_withdraws_and_an_empty_round_is_closed(here: Path) -> None:
    assert run("market", "init", "m.db").code == 0
    assert run("market", "open", "m.db", "one", "--val", "val.csv", "--budget", 9, *ROUND).code == 0
    assert run("market", "submit", "m.db", "one", "ann", "ann.csv").code == 0
    assert "ann has withdrawn" in run("market", "submit", "m.db", "one", "ann", "--withdraw").out
    ran = run("market", "close", "m.db", "one", "--val", "val.csv")
    assert "Not allocated: 9.00 EUR" in ran.out
    assert "nobody is paid" in ran.out


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (
            ("close", "m.db", "one", "--val", "val2.csv"),
            2,
            "is not the validation file that round 'one' was opened with",
        ),
        (("close", "m.db", "one"), 2, "--val must name the validation file"),
        (("close", "m.db", "two", "--val", "val.csv"), 2, "There is no round 'two'"),
        (("open", "m.db", "two", "--val", "val.csv"), 2, "--budget must say"),
        (("open", "m.db", "two", "--val", "val.csv", "--budget", "x", *ROUND), 2, "--budget must be an amount"),
        (
            ("open", "m.db", "two", "--val", "val.csv", "--budget", 1, *ROUND, "--keep"),
            2,
            "No round has been closed yet, so there are no tables to keep. Leave --keep out.",
        ),
        (("open", "m.db", "two", "--val", "val.csv", "--budget", 1), 2, "Name it with --label"),
        (("open", "m.db", "two", "--val", "val.csv", "--budget", 1, *ROUND, "--cap", "x"), 2, "--cap"),
        (("submit", "m.db", "one", "ann"), 2, "or use --withdraw"),
        (("submit", "m.db", "one", "ann", "ann.csv", "--withdraw"), 2, "not both"),
        (("submit", "m.db", "one", "ann", "gone.csv"), 2, "There is no file 'gone.csv'"),
        (("init", "new.db", "--locale", "xx"), 2, "--locale must be a locale that the Unicode CLDR knows"),
        (("statement", "m.db", "one"), 2, "--out must name"),
        (("statement", "m.db", "one", "--out", "s"), 2, "Round 'one' is still open"),
        (("verify", "m.db", "--head", "0" * 63 + "1"), 5, "no event has the noted digest"),
        (("verify", "m.db", "--head", "x"), 2, "--head must be the digest of an event, 64 hexadecimal digits"),
        (("verify", "oracle://x"), 2, "Error: LEDGER "),
        (("init", "oracle://x"), 2, "Error: LEDGER "),
        (("verify", "gone.db"), 2, "gone.db"),
        (("verify", "val.csv"), 2, "val.csv"),
        (("verify", "env:NOT_SET_HERE"), 2, "no variable 'NOT_SET_HERE'"),
        (("init", "m.db"), 2, "m.db"),
        (("export", "m.db", "e", "--seller", "eve"), 2, "never submitted"),
    ],
    ids=lambda entry: "-".join(map(str, entry))[:60] if isinstance(entry, tuple) else None,
)
def test_errors_say_what_to_do(here: Path, words: tuple[object, ...], code: int, says: str) -> None:
    assert run("market", "init", "m.db").code == 0
    assert run("market", "open", "m.db", "one", "--val", "val.csv", "--budget", 9, *ROUND).code == 0
    ran = run("market", *words)
    assert (ran.code, says in ran.err) == (code, True), ran.err
    assert "Traceback" not in ran.err


def test_the_ledger_can_come_from_the_environment(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARKET", str(here / "m.db"))
    ran = run("market", "init", "env:MARKET")
    assert "Next: shapshift market open env:MARKET ROUND" in ran.out
    assert run("market", "verify", "env:MARKET").code == 0


def test_no_password_is_shown(here: Path) -> None:
    ran = run("market", "verify", "postgresql://me:SECRET@127.0.0.1:1/name?connect_timeout=1")
    assert ran.code == 2
    assert "SECRET" not in ran.out + ran.err


def test_names_are_shown_as_text(here: Path) -> None:
    assert run("market", "init", "m.db").code == 0
    assert run("market", "open", "m.db", "[red]one[/]", "--val", "val.csv", "--budget", 9, *ROUND).code == 0
    ran = run("market", "submit", "m.db", "[red]one[/]", "[bold]ann[/] & <b>", "ann.csv")
    assert "Round [red]one[/]: [bold]ann[/] & <b> has 27 rows" in ran.out
    assert "close m.db '[red]one[/]' --val" in ran.out
    assert "[bold]ann[/] & <b>" in run("market", "close", "m.db", "[red]one[/]", "--val", "val.csv").out
    ran = run("market", "submit", "m.db", "[red]one[/]", "ann\x1b[31m", "ann.csv")
    assert (ran.code, "\x1b" in ran.err) == (2, False)


def test_a_changed_ledger_is_found_and_named(here: Path) -> None:
    assert run("market", "init", "m.db").code == 0
    month("one", "val.csv")
    with sqlite3.connect("m.db") as database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("UPDATE shapshift_events SET seller = 'eve' WHERE seller = 'bob'")
    database.close()
    ran = run("market", "verify", "m.db")
    assert (ran.code, "The ledger fails its check" in ran.err) == (5, True), ran.err
    ran = run("market", "verify", "m.db", "--json")
    assert (ran.code, json.loads(ran.out)["ok"]) == (5, False)


def test_a_full_disk_closes_nothing(here: Path) -> None:
    """A limit on the size of files stands for a full disk."""
    resource = pytest.importorskip("resource", reason="limits of the system")
    assert run("market", "init", "m.db").code == 0
    assert run("market", "open", "m.db", "one", "--val", "val.csv", "--budget", 9, *ROUND).code == 0
    for seller in ("ann", "bob"):
        assert run("market", "submit", "m.db", "one", seller, f"{seller}.csv").code == 0
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = max(os.path.getsize(path) for path in here.glob("m.db*"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        ran = run("market", "close", "m.db", "one", "--val", "val.csv")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert ran.code in (2, 4)
    assert "Unexpected" not in ran.err
    assert run("market", "verify", "m.db").code == 0
    assert not run("market", "close", "m.db", "one", "--val", "val.csv", "--json").document["closed_before"]
