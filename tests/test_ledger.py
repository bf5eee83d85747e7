"""The ledger: what it keeps, what it refuses, and what its verification finds."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import re
import shutil
import sqlite3
import stat
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy

from shapshift.exceptions import InputError, LedgerError, MissingLibraryError
from shapshift.market import databases
from shapshift.market import ledger as ledger_module
from shapshift.market.chain import START, Chain, canonical, line
from shapshift.market.databases import network_file_system
from shapshift.market.ledger import Event, Ledger, digest_of, verify_export

PAID = {"payments": [["Ann", 70_00], ["Bob", -10_00]], "reserve": 30_00, "unallocated": 10_00, "budget": 100_00}
TABLE = b"x,y\n1,2\n" * 100
NAMES = [
    "<script>alert(1)</script>",
    "Robert'); DROP TABLE shapshift_events;--",
    'quote " and \\ backslash',
    "two\nlines\r\tand a bell \a",
    "right \u202eto left",
    "e\u0301 \U0001f600 \u2028 \x7f",
    ":colon %s %(x)s {x} ?",
]


@pytest.fixture(autouse=True)
def quick(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests need not wait for the disk."""
    if request.function is not test_commits_reach_the_disk:
        monkeypatch.setattr(databases, "SYNCHRONOUS", "OFF")


@pytest.fixture(params=["sqlite", "postgres"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place without a ledger."""
    return str(tmp_path / "market.db") if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def filled(where: str | Path) -> Ledger:
    """A round with a submission and payments, and another one that is open."""
    ledger = Ledger.create(where)
    ledger.append("open", {"budget": 100_00}, round="January")
    ledger.append("submit", {"rows": 100}, round="January", seller="Ann", blobs={digest_of(TABLE): TABLE})
    ledger.append("close", PAID, round="January", blobs={digest_of(b"result"): b"result", digest_of(TABLE): None})
    ledger.append("open", {"budget": 100_00}, round="February")
    return ledger


def raw(where: str, *statements: str, guarded: bool = False) -> None:
    """Change a ledger behind its back; unless guarded, after its triggers were removed."""
    if "://" in where:
        engine = sqlalchemy.create_engine(where.replace("postgresql:", "postgresql+psycopg:", 1))
        drops = [f"DROP TRIGGER IF EXISTS shapshift_{t}_keep ON shapshift_{t}" for t in ("events", "blobs")]
        try:
            with engine.begin() as connection:
                for statement in [*([] if guarded else drops), *statements]:
                    connection.exec_driver_sql(statement)
        finally:
            engine.dispose()
        return
    with sqlite3.connect(where) as connection:
        if not guarded:
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
                connection.execute(f"DROP TRIGGER {name}")
        for statement in statements:
            connection.execute(statement)
    connection.close()


def test_a_digest_is_that_of_the_line_as_anybody_would_write_it(where: str) -> None:
    with filled(where) as ledger:
        previous = "0" * 64
        for number, event in enumerate(ledger.events(), 1):
            fields = {name: getattr(event, name) for name in ("kind", "round", "seller", "time", "sequence")}
            text = json.dumps(
                {**fields, "previous": previous, "body": json.loads(event.body)},
                sort_keys=True, separators=(",", ":"), ensure_ascii=False,
            )  # fmt: skip
            assert event.sequence == number
            assert event.previous == previous
            assert event.digest == hashlib.sha256(text.encode()).hexdigest()
            previous = event.digest
        assert ledger.head() == previous


def test_events_blobs_and_rounds_come_back(where: str) -> None:
    with filled(where) as ledger:
        kinds = [event.kind for event in ledger.events()]
        assert kinds == ["open", "submit", "close", "open"]
        assert ledger.rounds() == ["January", "February"]
        assert [event.sequence for event in ledger.events(round="January")] == [1, 2, 3]
        assert [event.sequence for event in ledger.events(kind="open")] == [1, 4]
        assert [event.sequence for event in ledger.events(kind="submit", seller="Ann")] == [2]
        assert [event.sequence for event in ledger.events(seller="")] == [1, 3, 4]
        assert list(ledger.events(seller="Bob")) == []
        (close,) = ledger.events(kind="close")
        assert close.content == {**PAID, "blobs": sorted([digest_of(b"result"), digest_of(TABLE)])}
        assert ledger.blob(digest_of(TABLE)) == TABLE
        with pytest.raises(LedgerError, match="not in the ledger"):
            ledger.blob(digest_of(b"nothing"))
    with Ledger(where) as again:
        found = again.verify(head=close.digest)
        assert found.ok
        assert (found.events, found.rounds, found.closed, found.payments, found.blobs) == (4, 2, 1, 2, 2)
        assert found.head == again.head()


def test_an_empty_ledger_is_in_order(where: str) -> None:
    with Ledger.create(where) as ledger:
        assert ledger.head() == START
        assert ledger.rounds() == list(ledger.events()) == []
        assert ledger.verify(head=START).ok
        assert "cut off" in str(ledger.verify(head=digest_of(b"")).fault)


def test_many_events_are_read_page_by_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_module, "PAGE", 3)
    with Ledger.create(tmp_path / "market.db") as ledger:
        for number in range(10):
            ledger.append("note" if number % 2 else "open", {"n": number}, round=str(number))
        assert [event.content["n"] for event in ledger.events()] == list(range(10))
        assert ledger.rounds() == ["0", "2", "4", "6", "8"]
        assert ledger.verify(progress=True).events == 10
        monkeypatch.setattr(ledger_module, "_ENOUGH", 1)
        assert ledger.verify().events == 10


def test_names_are_data(where: str, tmp_path: Path) -> None:
    with Ledger.create(where) as ledger:
        for name in NAMES:
            ledger.append("open", {name: name}, round=name, seller=name)
        assert ledger.rounds() == NAMES
        for name in NAMES:
            (event,) = ledger.events(round=name, seller=name)
            assert event.content == {name: name}
        assert ledger.verify().ok
        ledger.export(tmp_path / "out")
    assert verify_export(tmp_path / "out").events == len(NAMES)


@pytest.mark.parametrize("name", ["kind", "round", "seller"])
@pytest.mark.parametrize(
    ("value", "match"),
    [("a\0b", "none of them NUL"), ("x" * 10_000_000, "10,000,000 characters"), ("\ud800", "Unicode"), (3, "text")],
    ids=["nul", "long", "surrogate", "number"],
)
def test_names_that_cannot_be_kept_are_refused(tmp_path: Path, name: str, value: Any, match: str) -> None:
    with Ledger.create(tmp_path / "market.db") as ledger:
        with pytest.raises(InputError, match=match) as error:
            ledger.append(**{"kind": "note", "body": {}, name: value})
        assert f"'{name}' parameter of append" in str(error.value)
        assert len(str(error.value)) < 300
        assert ledger.head() == START


@pytest.mark.parametrize(
    ("body", "match"),
    [
        ({"a": [{"b": 0.5}]}, r"body\['a'\]\[0\]\['b'\].*Got 0.5"),
        ({"a": float("nan")}, "Got nan"),
        ({1: "a"}, "Keys in body.*Got 1"),
        ({"a": "\udfff"}, "half of a pair"),
        ({"\ud800": 1}, "half of a pair"),
        ({"a": 2**63}, "64 bits"),
        ({"a": {1, 2}}, "must be text, an integer"),
        ({"a": b"x"}, "must be text, an integer"),
        ({"blobs": []}, "without the key 'blobs'"),
        ([1], "must be a mapping"),
    ],
)
def test_bodies_without_one_spelling_are_refused(tmp_path: Path, body: Any, match: str) -> None:
    with Ledger.create(tmp_path / "market.db") as ledger, pytest.raises(InputError, match=match):
        ledger.append("note", body)


def test_nested_and_large_bodies_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    monkeypatch.setattr(ledger_module, "MOST_BODY", 100)
    with Ledger.create(tmp_path / "market.db") as ledger:
        with pytest.raises(InputError, match="nested too deeply"):
            ledger.append("note", {"a": deep})
        with pytest.raises(InputError, match="at most 100 bytes"):
            ledger.append("note", {"a": "é" * 50})
        ledger.append("note", {"a": "\0"})  # JSON writes it as \u0000
        assert [event.content for event in ledger.events()] == [{"a": "\0"}]


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"budget": 100_01}, "add up to 10,000, not to the budget of 10,001"),
        ({"reserve": "30"}, "its reserve is not an integer"),
        ({"unallocated": True}, "its unallocated is not an integer"),
        ({"payments": {"Ann": 1}}, "no list of payments"),
        ({"payments": [["Ann", "70"]]}, "not a pair of seller and amount"),
        ({"payments": [["Ann", 70_00, 1]]}, "not a pair of seller and amount"),
        ({"payments": [["Ann", True]]}, "not a pair of seller and amount"),
        ({"payments": [["Ann", 35_00], ["Ann", 25_00]]}, "a seller twice"),
    ],
)
def test_payments_must_add_up(tmp_path: Path, change: dict[str, Any], match: str) -> None:
    with Ledger.create(tmp_path / "market.db") as ledger:
        ledger.append("open", {}, round="January")
        with pytest.raises(LedgerError, match=match):
            ledger.append("close", {**PAID, **change}, round="January")
    # The same in a ledger that somebody wrote with a program of their own.
    with Ledger(forged(tmp_path, lambda rows: rows[2].update(body=canonical({**PAID, **change})))) as ledger:
        fault = str(ledger.verify().fault)
    assert "event 3 is wrong" in fault
    assert match in fault


def test_rounds_are_opened_and_closed_once(where: str) -> None:
    with filled(where) as ledger:
        head = ledger.head()
        with pytest.raises(LedgerError, match=r"'January' was closed at 20.*cannot be done twice"):
            ledger.append("close", PAID, round="January")
        with pytest.raises(LedgerError, match="'February' was opened at"):
            ledger.append("open", {}, round="February")
        with pytest.raises(LedgerError, match="'March' was never opened"):
            ledger.append("close", PAID, round="March")
        assert ledger.head() == head


def test_the_database_refuses_what_the_code_never_does(where: str) -> None:
    with filled(where) as ledger:
        head = ledger.head()
        again = "INSERT INTO shapshift_events SELECT 5, kind, round, seller, time, body, digest FROM shapshift_events "
        for statement in (
            "UPDATE shapshift_events SET seller = 'Eve' WHERE sequence = 2",
            "DELETE FROM shapshift_events WHERE sequence = 4",
            "UPDATE shapshift_blobs SET codec = 0",
            "DELETE FROM shapshift_blobs",
            f"{again} WHERE sequence = 3",
            *(
                ["TRUNCATE shapshift_events"]
                if "://" in where
                else [
                    f"{again.replace('5', '2', 1)} WHERE sequence = 2",
                    f"{again.replace('INSERT', 'INSERT OR REPLACE').replace('5', '2', 1)} WHERE sequence = 2",
                    f"{again.replace('5', '7', 1)} WHERE sequence = 2",
                    "INSERT OR REPLACE INTO shapshift_blobs SELECT digest, part, codec, x'00' FROM shapshift_blobs",
                ]
            ),
        ):
            with pytest.raises((sqlite3.Error, sqlalchemy.exc.DBAPIError), match=r"append-only|(?i:unique)"):
                raw(where, statement, guarded=True)
        assert ledger.verify(head=head).ok


def test_allowed_sees_the_round_and_can_refuse_all_of_it(where: str) -> None:
    seen = []

    def no(events: list[Event]) -> None:
        seen.append([event.kind for event in events])
        raise KeyError("no")

    with filled(where) as ledger:
        head = ledger.head()
        with pytest.raises(KeyError, match="no"):
            ledger.append("submit", {}, round="January", blobs={digest_of(b"new"): b"new"}, allowed=no)
        assert seen == [["open", "submit", "close"]]
        assert ledger.head() == head
        assert ledger.verify().blobs == 2
        ledger.append("submit", {}, round="February", allowed=lambda events: None)
        assert ledger.verify().ok


def test_blobs_have_their_digests(where: str) -> None:
    large = b"0" * (8 * 2**20 + 1)
    noise = bytes(range(256)) * 3 + os.urandom(1000)
    with filled(where) as ledger:
        given = {digest_of(data): data for data in (large, noise, b"")}
        ledger.append("note", {}, blobs=given)
        for digest, data in given.items():
            assert ledger.blob(digest) == data
        assert ledger.verify().blobs == 5
        with pytest.raises(InputError, match="another digest"):
            ledger.append("note", {}, blobs={digest_of(b"a"): b"b"})
        with pytest.raises(InputError, match="SHA-256 digests as keys"):
            ledger.append("note", {}, blobs={"../../etc/passwd": b"b"})
        with pytest.raises(InputError, match="must have bytes"):
            ledger.append("note", {}, blobs={digest_of(b"a"): "a"})  # type: ignore[dict-item]
        with pytest.raises(LedgerError, match="has no blob"):
            ledger.append("note", {}, blobs={digest_of(b"a"): None})
        with pytest.raises(InputError, match="64 hexadecimal digits"):
            ledger.blob("ABC")


def test_times_never_go_back(tmp_path: Path) -> None:
    zone = datetime.timezone(datetime.timedelta(hours=2))
    hours = iter([12, 10, 14])
    clock = lambda: datetime.datetime(2026, 1, 31, next(hours), 30, tzinfo=zone)  # noqa: E731
    with Ledger.create(tmp_path / "market.db", clock=clock) as ledger:
        times = [ledger.append("note", {}).time for _ in range(3)]
        assert times == [f"2026-01-31T{hour}:30:00.000000Z" for hour in (10, 10, 12)]
        assert ledger.verify().ok
    naive = Ledger(tmp_path / "market.db", clock=datetime.datetime.now)
    with naive as ledger, pytest.raises(InputError, match="with a time zone"):
        ledger.append("note", {})


CHANGES = {
    "a seller": ("UPDATE shapshift_events SET seller = 'Eve' WHERE sequence = 2", "event 2 does not have its digest"),
    "an amount": (
        "UPDATE shapshift_events SET body = replace(body, '7000', '7001') WHERE sequence = 3",
        "event 3 does not have its digest",
    ),
    "a time": (
        "UPDATE shapshift_events SET time = '2020-01-01T00:00:00.000000Z' WHERE sequence = 1",
        "event 1 does not have its digest",
    ),
    "an event that is gone": ("DELETE FROM shapshift_events WHERE sequence = 2", "event 3 follows event 1"),
    "the first event gone": ("DELETE FROM shapshift_events WHERE sequence = 1", "event 2 follows event 0"),
    "a number": ("UPDATE shapshift_events SET sequence = -1 WHERE sequence = 1", "event -1 follows event 0"),
    "the last event gone": (
        "DELETE FROM shapshift_events WHERE sequence = 4",
        "no event has the noted digest",
    ),
    "a blob that is gone": (f"DELETE FROM shapshift_blobs WHERE digest = '{digest_of(TABLE)}'", "is missing"),
    "a blob": (
        f"UPDATE shapshift_blobs SET codec = 1 WHERE digest = '{digest_of(b'result')}'",
        "is damaged: its part 0 is wrong",
    ),
    "another blob": (
        f"UPDATE shapshift_blobs SET part = 1 WHERE digest = '{digest_of(b'result')}'",
        "is damaged: its part 1 is wrong",
    ),
    "only the triggers": ("SELECT 1", "which refuses changes, was removed"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(CHANGES))
def test_verify_finds_what_was_changed(where: str, what: str) -> None:
    statement, fault = CHANGES[what]
    with filled(where) as ledger:
        head = ledger.head()
    raw(where, statement)
    with Ledger(where) as ledger:
        found = ledger.verify(head=head)
        assert not found.ok
        assert fault in str(found.fault)
        if "digest" in fault and "noted" not in fault:
            with pytest.raises(LedgerError, match="does not have its digest"):
                list(ledger.events())


def test_blobs_that_no_event_names_are_found(where: str, tmp_path: Path) -> None:
    with filled(where) as ledger:
        data = "'\\x00'" if "://" in where else "x'00'"
        raw(where, f"INSERT INTO shapshift_blobs VALUES ('{digest_of(bytes(1))}', 0, 0, {data})", guarded=True)
        assert ledger.verify().fault == f"the blob '{digest_of(bytes(1))}' is named by no event"
        with pytest.raises(LedgerError, match="named by no event"):
            ledger.export(tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert not list(tmp_path.glob(".*"))


def test_bytes_with_another_digest_are_found(tmp_path: Path) -> None:
    path = str(tmp_path / "market.db")
    for data, match in (
        (zlib.compress(b"other"), "other|was changed"),
        (zlib.compress(bytes(9 * 2**20)), "part 0 is wrong"),
        (b"", "part 0 is wrong"),
    ):
        Path(path).unlink(missing_ok=True)
        with filled(path) as ledger:
            raw(
                path,
                f"UPDATE shapshift_blobs SET codec = 1, data = x'{data.hex()}' WHERE digest = '{digest_of(b'result')}'",
            )
            with pytest.raises(LedgerError, match=match):
                ledger.blob(digest_of(b"result"))
            assert digest_of(b"result") in str(ledger.verify().fault)


def forged(folder: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """A ledger of other events, with right digests, as its owner can make it."""
    path = folder / "forged.db"
    with filled(path) as ledger:
        rows = [{**vars(event)} for event in ledger.events()]
    change(rows)
    previous = START
    raw(str(path), "DELETE FROM shapshift_events")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for row in rows:
            row.pop("previous", None)
            del row["digest"]
            previous = digest_of(line(**row, previous=previous).encode())
            connection.execute(
                "INSERT INTO shapshift_events VALUES (:sequence, :kind, :round, :seller, :time, :body, :digest)",
                {**row, "digest": previous},
            )
    connection.close()
    return path


FORGERIES: dict[str, tuple[Callable[[list[dict[str, Any]]], object], str]] = {
    "spaces": (lambda rows: rows[1].update(body='{"a": 1}'), "event 2 is wrong: its body is not canonical JSON"),
    "order of keys": (lambda rows: rows[1].update(body='{"b":1,"a":1}'), "not canonical JSON"),
    "a key twice": (lambda rows: rows[1].update(body='{"a":1,"a":2}'), "not canonical JSON"),
    "an escape": (lambda rows: rows[1].update(body='{"a":"\\u0041"}'), "not canonical JSON"),
    "a float": (lambda rows: rows[1].update(body='{"a":1.5}'), "1.5 is not an integer"),
    "NaN": (lambda rows: rows[1].update(body='{"a":NaN}'), "NaN is not an integer"),
    "a list": (lambda rows: rows[1].update(body="[1]"), "not a JSON object"),
    "no JSON": (lambda rows: rows[1].update(body="{"), "not valid ledger JSON"),
    "two bodies of three": (
        lambda rows: (rows[0].update(body='{},0,{}'), rows[1].update(body='{"a":[1'), rows[2].update(body="2]}")),
        "event 1 is wrong: its body is not valid",
    ),
    "nested": (lambda rows: rows[1].update(body='{"a":' + "[" * 99_999 + "]" * 99_999 + "}"), "not valid ledger JSON"),
    "a long number": (lambda rows: rows[1].update(body='{"a":' + "9" * 9999 + "}"), "not valid ledger JSON"),
    "blobs": (lambda rows: rows[1].update(body='{"blobs":["../x"]}'), "its blobs are not a list of digests"),
    "no open": (lambda rows: rows[0].update(kind="note"), "event 3 is wrong: the round 'January' was never opened"),
    "time": (lambda rows: rows[1].update(time="yesterday"), "event 2 has no time in UTC"),
    "time back": (lambda rows: rows[3].update(time="2001-01-01T00:00:00.000000Z"), "earlier than the event before"),
    "NUL": (lambda rows: rows[1].update(seller="a\0b"), "has an invalid seller"),
    "long": (lambda rows: rows[1].update(seller="a" * 10_000_000), "has an invalid seller"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(FORGERIES))
def test_a_forged_ledger_is_found(tmp_path: Path, what: str) -> None:
    change, fault = FORGERIES[what]
    path = forged(tmp_path, change)
    with Ledger(path) as ledger:
        found = str(ledger.verify().fault)
        assert fault in found
        assert len(found) < 300


@pytest.mark.parametrize(
    ("rows", "text", "blobs", "good"),
    [
        ("0", '"b"', [START], True), ("-7", '""', [START, "1" * 64], True),
        ("9" * 18, '"\x7f é \u2028"', [START], True),
        ("9" * 30, '"b"', [START], True), ("true", "null", [START], True), ("1", r'"\n \" \\"', [], True),
        ("-0", '"b"', [START], False), ("01", '"b"', [START], False), ("1.0", '"b"', [START], False),
        ("1", '"\t"', [START], False), ("1", r'"\u0041"', [START], False), ("1", '"b"\n', [START], False),
        ("1", '"b","text":"b"', [START], False), ("1", '"b","a":1', [START], False), (" 1", '"b"', [START], False),
        ("1", '"b"', ["A" * 64], False), ("1", '"b"', ["0" * 63], False), ("1", '"b"}\n', [START], False),
    ],
)  # fmt: skip
def test_bodies_like_an_earlier_one_must_be_canonical_too(rows: str, text: str, blobs: list[str], good: bool) -> None:
    chain = Chain()

    def extend(body: str) -> None:
        sequence, time = chain.events + 1, "2026-01-31T12:00:00.000000Z"
        digest = digest_of(line(sequence, "submit", "", "", time, body, chain.head).encode())
        chain.extend([(sequence, "submit", "", "", time, body, digest)])

    extend(canonical({"blobs": [START], "rows": 1, "text": "a"}))
    body = f'{{"blobs":{canonical(blobs)},"rows":{rows},"text":{text}}}'
    if good:
        extend(body)
        assert chain.blobs == {bytes.fromhex(digest) for digest in [START, *blobs]}
    else:
        with pytest.raises(LedgerError, match="event 2 is wrong"):
            extend(body)


@pytest.mark.parametrize(
    ("column", "value"),
    [("body", "x'7B7D'"), ("body", "5"), ("body", "NULL"), ("seller", "NULL"), ("seller", "5.5"), ("time", "1"),
     ("seller", "CAST(x'FF' AS TEXT)"), ("body", "CAST(x'FF' AS TEXT)"), ("digest", "x'00'"), ("kind", "zeroblob(9)")],
)  # fmt: skip
def test_values_of_other_types_are_found(tmp_path: Path, column: str, value: str) -> None:
    path = tmp_path / "market.db"
    filled(path).close()
    raw(str(path))
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = replace(sql, 'NOT NULL', '')")
    connection.close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE shapshift_events SET {column} = {value} WHERE sequence = 2")
        connection.execute("PRAGMA writable_schema = ON")
        for name, sql in databases._SQLITE.items():
            connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = ?", (sql, name))
    connection.close()
    with Ledger(path) as ledger:
        assert re.search("event 2|decode", str(ledger.verify().fault))
        with pytest.raises(LedgerError, match=r"Event 2|decode"):
            list(ledger.events())


def strangers(folder: Path) -> Iterator[tuple[str, Path, str]]:
    """Files that are no ledgers."""
    yield "missing", folder / "missing.db", "There is no ledger"
    yield "folder", folder, "There is no ledger"
    (folder / "empty.db").touch()
    yield "empty", folder / "empty.db", "not a shapshift ledger"
    (folder / "text.db").write_text("round,seller,amount\n" * 1000)
    yield "text", folder / "text.db", "not a shapshift ledger, or it is damaged"
    filled(folder / "good.db").close()
    for what, statements in {
        "table": ["CREATE TABLE other (x)"],
        "view": ["DROP TABLE shapshift_blobs", "CREATE VIEW shapshift_blobs AS SELECT 1 AS digest"],
        "trigger": ["CREATE TRIGGER shapshift_more AFTER INSERT ON shapshift_events BEGIN SELECT 1; END"],
        "other trigger": [
            "DROP TRIGGER shapshift_events_insert",
            "CREATE TRIGGER shapshift_events_insert AFTER INSERT ON shapshift_events "
            "BEGIN SELECT load_extension('x'); END",
        ],
        "index": ["DROP INDEX shapshift_once"],
        "markup": ['CREATE TABLE "<b>\x1b[31m\u202e" (x)'],
    }.items():
        path = Path(shutil.copy(folder / "good.db", folder / f"{what}.db"))
        raw(str(path), *statements, guarded=True)
        yield what, path, "is not a shapshift ledger"
    for what, statement in {
        "no format": "DELETE FROM shapshift_ledger",
        "newer": "UPDATE shapshift_ledger SET format=9",
    }.items():
        path = Path(shutil.copy(folder / "good.db", folder / f"{what}.db"))
        raw(str(path), statement, guarded=True)
        yield what, path, "has the format (none|9), and this version"
    data = (folder / "good.db").read_bytes()
    (folder / "cut.db").write_bytes(data[:4000])
    yield "cut", folder / "cut.db", "damaged"


def test_what_is_no_ledger_is_refused(tmp_path: Path) -> None:
    for what, path, match in strangers(tmp_path):
        before = path.read_bytes() if path.is_file() else b""
        with pytest.raises(LedgerError, match=match) as error:
            Ledger(path)
        assert "\x1b" not in str(error.value), what
        assert (path.read_bytes() if path.is_file() else b"") == before
    assert not (tmp_path / "missing.db").exists()


def test_damaged_pages_are_errors_and_faults(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "market.db") as ledger:
        for number in range(60):
            ledger.append("note", {"text": "x" * 100}, round=str(number))
    data = (tmp_path / "market.db").read_bytes()
    for start in range(4096, len(data), 4096):
        damaged = bytearray(data)
        damaged[start : start + 64] = bytes(range(64))
        (tmp_path / "damaged.db").write_bytes(damaged)
        try:
            with Ledger(tmp_path / "damaged.db") as ledger:
                assert ledger.verify().fault is not None
        except LedgerError as error:
            assert "damaged" in str(error)  # noqa: PT017


def test_a_file_is_created_once_and_for_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "my market #1?.db"
    with filled(path) as ledger:
        head = ledger.head()
    if os.name == "posix":
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(LedgerError, match="already exists"):
        Ledger.create(path)
    with pytest.raises(LedgerError, match="does not exist; create it first"):
        Ledger.create(tmp_path / "no" / "market.db")
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]
    with Ledger(path) as ledger:
        assert ledger.head() == head
        assert repr(ledger) == f"Ledger({str(path)!r})"
    with filled(tmp_path / "plain.db"), Ledger(f"sqlite:///{tmp_path / 'plain.db'}") as ledger:
        assert ledger.verify().events == 4


def test_commits_reach_the_disk(tmp_path: Path) -> None:
    # A committed event must survive the loss of power: EXTRA also syncs the folder when the journal is removed.
    with Ledger.create(tmp_path / "market.db") as ledger, ledger._database.writing() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 3
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "delete"
        assert connection.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0
        assert connection.exec_driver_sql("PRAGMA cell_size_check").scalar() == 1


def test_somebody_who_writes_for_long_is_named(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(databases, "PATIENCE", 1)
    told = pytest.raises(LedgerError, match="another process has been writing to it for 1 seconds")
    with filled(where) as first, Ledger(where) as second, first._database.writing(), told:
        second.append("note", {})
    with Ledger(where) as ledger:
        ledger.append("note", {})
        assert ledger.verify().events == 5


def test_a_lost_connection_is_told_and_the_command_can_be_repeated(postgres_url: str) -> None:
    def cut(events: list[Event]) -> None:
        raw(
            postgres_url,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'shapshift'",
            guarded=True,
        )

    with filled(postgres_url) as ledger:
        with pytest.raises(LedgerError, match=r"cannot be written to.*Run the command again"):
            ledger.append("close", PAID, round="February", blobs={digest_of(b"new"): b"new"}, allowed=cut)
        assert ledger.verify().events == 4
        ledger.append("close", PAID, round="February", blobs={digest_of(b"new"): b"new"})
        assert ledger.verify().closed == 2


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("postgresql://me:hunter2@127.0.0.1:1/db", "ledger postgresql://me@127.0.0.1:1/db cannot be read"),
        ("postgresql://me@127.0.0.1:1/db?password=hunter2", "ledger postgresql://me@127.0.0.1:1/db cannot be read"),
        ("postgresql://me:hunter2:@127.0.0.1:port/db", "is not a database URL"),
        ("mysql://me:hunter2@127.0.0.1/db", "begins with mysql://"),
        ("postgresql+psycopg2://me:hunter2@127.0.0.1/db", r"begins with postgresql\+psycopg2://"),
        ("sqlite://", "begins with sqlite://"),
        ("", "must be the path of a file or a URL"),
        (None, "Got NoneType"),
    ],
)
def test_messages_about_urls_have_no_passwords(url: Any, match: str) -> None:
    with pytest.raises(InputError, match=match) as error:
        Ledger(url)
    shown: BaseException | None = error.value
    while shown is not None:
        assert "hunter2" not in str(shown)
        shown = None if shown.__suppress_context__ else shown.__context__


def test_missing_libraries_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patched:
        patched.setitem(sys.modules, "psycopg", None)
        with pytest.raises(MissingLibraryError, match=r"shapshift\[postgres\]"):
            Ledger("postgresql://me@127.0.0.1:1/db")
        patched.setitem(sys.modules, "sqlalchemy", None)
        with pytest.raises(MissingLibraryError, match=r"shapshift\[market\]"):
            Ledger(tmp_path / "market.db")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE shapshift_events DISABLE TRIGGER shapshift_events_keep",
        "ALTER TABLE shapshift_events ENABLE REPLICA TRIGGER shapshift_events_keep",
        "CREATE OR REPLACE FUNCTION shapshift_refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
        "DROP TRIGGER shapshift_blobs_keep ON shapshift_blobs; CREATE TRIGGER shapshift_blobs_keep BEFORE TRUNCATE ON "
        "shapshift_blobs FOR EACH STATEMENT EXECUTE FUNCTION shapshift_refuse()",
        "DROP INDEX shapshift_once",
    ],
)
def test_what_guards_a_database_must_be_as_it_was_made(postgres_url: str, statement: str) -> None:
    with filled(postgres_url) as ledger:
        assert ledger.verify().ok
        raw(postgres_url, statement, guarded=True)
        assert "was removed" in str(ledger.verify().fault)


def test_a_database_whose_own_row_is_gone_takes_no_event(postgres_url: str) -> None:
    with filled(postgres_url) as ledger:
        raw(postgres_url, "DELETE FROM shapshift_ledger", guarded=True)
        with pytest.raises(LedgerError, match="has the format none"):
            ledger.append("note", {})


def test_a_database_without_a_ledger_is_told(postgres_url: str) -> None:
    with pytest.raises(LedgerError, match="There is no ledger in postgresql://"):
        Ledger(postgres_url)
    with filled(postgres_url), pytest.raises(LedgerError, match="already has a ledger"):
        Ledger.create(postgres_url)


def test_network_file_systems_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 0:1 / / rw - ext4 /dev/vda rw\n"
        "23 22 0:2 / /mnt/my\\040share rw,noatime shared:1 - nfs4 host:/share rw\n"
        "24 23 0:3 / /mnt/my\\040share/local rw - xfs /dev/vdb rw\n"
        "nonsense\n"
    )
    kinds = [
        network_file_system(Path(path), str(mounts))
        for path in ("/srv/x.db", "/mnt/my share/x.db", "/mnt/my share2/x.db", "/mnt/my share/local/x.db")
    ]
    assert kinds == [None, "nfs4", None, None]
    assert network_file_system(tmp_path, str(tmp_path / "no such file")) is None
    monkeypatch.setattr(databases, "network_file_system", lambda path: "nfs4")
    with pytest.raises(LedgerError, match=r"network file system \(nfs4\)"):
        Ledger.create(tmp_path / "market.db")


def test_an_export_is_verified_without_a_database(where: str, tmp_path: Path) -> None:
    with filled(where) as ledger:
        ledger.export(tmp_path / "out")
        events, head = list(ledger.events()), ledger.head()
        with pytest.raises(InputError, match="already exists"):
            ledger.export(tmp_path / "out")
        with pytest.raises(InputError, match="is in a folder that does not exist"):
            ledger.export(tmp_path / "no" / "out")
        assert verify_export(tmp_path / "out", head=head, progress=True) == ledger.verify()
    lines = (tmp_path / "out" / "events.jsonl").read_bytes().split(b"\n")
    assert [digest_of(text) for text in lines[:-1]] == [event.digest for event in events]
    assert {path.name for path in (tmp_path / "out" / "blobs").iterdir()} == {digest_of(TABLE), digest_of(b"result")}
    assert "no event has the noted digest" in str(verify_export(tmp_path / "out", head=digest_of(b"")).fault)


def edit(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(change((folder / name).read_bytes()))


EXPORTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "amount": (edit("events.jsonl", lambda text: text.replace(b"7000", b"7001")), "event 4 is wrong: it does not name"),
    "cut": (edit("events.jsonl", lambda text: text[:-1]), "event 4 is wrong: its line does not end with a line break"),
    "last event": (
        edit("events.jsonl", lambda text: b"".join(text.splitlines(True)[:-1])),
        "the last event is not the one that ledger.json names",
    ),
    "first event": (
        edit("events.jsonl", lambda text: b"".join(text.splitlines(True)[1:])),
        "event 1 is wrong: it does not name",
    ),
    "not UTF-8": (edit("events.jsonl", lambda text: b"\xff" + text), "event 1 is wrong"),
    "keys": (edit("events.jsonl", lambda text: b'{"body":{}}\n' + text), "its line has the keys ['body']"),
    "types": (
        edit("events.jsonl", lambda text: text.replace(b'"kind":"open"', b'"kind":["open"]', 1)),
        "are not all text",
    ),
    "spaces": (edit("events.jsonl", lambda text: text.replace(b",", b", ", 1)), "not canonical JSON"),
    "blob": (edit(f"blobs/{digest_of(TABLE)}", lambda text: text + b" "), f"the blob {digest_of(TABLE)} was changed"),
    "no blob": (lambda folder: (folder / "blobs" / digest_of(TABLE)).unlink(), "cannot be read"),
    "no blobs": (lambda folder: shutil.rmtree(folder / "blobs"), "cannot be read"),
    "a link": (
        lambda folder: ((folder / "blobs" / digest_of(TABLE)).unlink(),
                        (folder / "blobs" / digest_of(TABLE)).symlink_to("/dev/zero")),
        "is not a regular file",
    ),
    "more": (lambda folder: (folder / "blobs" / "x\x1by").touch(), "blobs/x\\x1by is named by no event"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(EXPORTS))
def test_changed_exports_are_found(tmp_path: Path, what: str) -> None:
    change, fault = EXPORTS[what]
    with filled(tmp_path / "market.db") as ledger:
        out = ledger.export(tmp_path / "out")
    change(out)
    assert fault in str(verify_export(out).fault)


@pytest.mark.parametrize(
    ("note", "match"),
    [(None, "not an exported ledger"), (b"\xff", "not an exported ledger"), (b"[]\n", "not an exported ledger"),
     (b'{"format":2}\n', "has the format 2")],
    ids=["missing", "not UTF-8", "a list", "newer"],
)  # fmt: skip
def test_what_is_no_export_is_refused(tmp_path: Path, note: bytes | None, match: str) -> None:
    (tmp_path / "events.jsonl").touch()
    if note is not None:
        (tmp_path / "ledger.json").write_bytes(note)
    with pytest.raises(LedgerError, match=match):
        verify_export(tmp_path)


def test_a_head_must_be_a_digest(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "market.db") as ledger, pytest.raises(InputError, match="64 hexadecimal digits"):
        ledger.verify(head="latest")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are started by fork")
@pytest.mark.parametrize(
    ("runs", "kills"), [("ledger_runs.py", "5"), pytest.param("market_runs.py", "3", marks=pytest.mark.ci)]
)
@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_rounds_are_closed_once_whatever_is_killed(
    kind: str, runs: str, kills: str, request: pytest.FixtureRequest
) -> None:
    settings = {**os.environ}
    if kind == "postgres":
        settings["SHAPSHIFT_POSTGRES"] = request.getfixturevalue("postgres_server")
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / runs), kind, kills],
        capture_output=True, text=True, env=settings,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rounds that one of four processes closed"] == 1
