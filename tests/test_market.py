"""Rounds of payment: terms and commitment, submissions, one close, why payments changed, checks and exports."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

from shapshift import KNNShapley, Policy
from shapshift.exceptions import InputError, LedgerError
from shapshift.market import databases, offers, rounds
from shapshift.market.changes import FACTORS, split_change
from shapshift.price.rule import Rule, pay_owners

pytest.importorskip("sqlalchemy", reason="the ledger needs it")

from shapshift.market.ledger import Ledger
from shapshift.market.rounds import Market, commitment

FEATURES = ("size", "age")


def make_rows(seed: int, n: int, flip: float = 0.0) -> pa.Table:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    X = rng.normal(size=(n, 2)) + 1.5 * y[:, None]
    y = np.where(rng.random(n) < flip, 1 - y, y)
    return pa.table({"size": X[:, 0].round(3), "age": X[:, 1].round(3), "class": np.array(["no", "yes"])[y]})


@dataclass
class Place:
    """A ledger in a folder of its own, with files to submit."""

    folder: Path
    market: Market

    def file(self, name: str, table: pa.Table) -> Path:
        path = self.folder / name
        (pq.write_table if path.suffix == ".parquet" else pacsv.write_csv)(table, path)
        return path

    def open(self, name: str, val: pa.Table, budget: Any = 1000, **terms: Any) -> Path:
        path = self.file(f"val-{name}.parquet", val)
        self.market.open(name, path, budget, label="class", **terms)
        return path

    def submit(self, name: str, **tables: pa.Table) -> None:
        for seller, table in tables.items():
            self.market.submit(name, seller, self.file(f"{seller}-{name}.csv", table))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Market.create(tmp_path / "market.db", issuer="Example Ltd", contact="pay@example.org") as market:
        yield Place(tmp_path, market)


VAL, OTHER_VAL = make_rows(1, 30), make_rows(2, 30)
ANN, BOB, CID = make_rows(3, 12), make_rows(4, 10, 0.3), make_rows(5, 8, 1.0)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests need not wait for the disk."""
    monkeypatch.setattr(databases, "SYNCHRONOUS", "OFF")


def numbers(table: pa.Table) -> Any:
    return np.column_stack([table[name].to_numpy() for name in FEATURES])


def expected(tables: dict[str, pa.Table], val: pa.Table, budget: Any, order: Any = None, **options: Any) -> Any:
    """Payments without a ledger, scaled by the validation rows."""
    mean, std = numbers(val).mean(axis=0), numbers(val).std(axis=0)
    rows = pa.concat_tables(tables.values())
    owners = np.repeat(list(tables), [table.num_rows for table in tables.values()])
    paid = pay_owners(
        KNNShapley(options.pop("k", 5), progress=False),
        (numbers(rows) - mean) / std,
        rows["class"].to_pylist(),
        (numbers(val) - mean) / std,
        val["class"].to_pylist(),
        owners,
        budget,
        order=order,
        **options,
    )
    return dict(zip(map(str, paid.owners), paid.cents.tolist(), strict=True))


@pytest.mark.parametrize("n", range(6))
def test_a_change_is_split_by_the_average_over_all_orders(n: int) -> None:
    rng = np.random.default_rng(n)
    factors, table = FACTORS[:n], {}

    def pay(new: frozenset[str]) -> int:
        return table.setdefault(new, int(rng.integers(-1000, 1000)))

    found = split_change(pay, factors)
    exact = dict.fromkeys(factors, 0.0)
    orders = list(permutations(factors))
    for order in orders:
        for i, name in enumerate(order):
            exact[name] += (pay(frozenset(order[: i + 1])) - pay(frozenset(order[:i]))) / len(orders)
    assert sum(found.values()) == pay(frozenset(factors)) - pay(frozenset())
    assert all(abs(found[name] - exact[name]) < 1 for name in factors)
    assert len(table) == 2**n


def test_a_round_pays_what_the_rule_says_with_scales_of_the_validation_rows(place: Place) -> None:
    val = place.open("one", VAL, 1234.56, model={"n_neighbors": 3}, rule=Rule(policy=Policy(reserve="5%")))
    place.submit("one", ann=ANN, bob=BOB, cid=CID)
    closed = place.market.close("one", val)
    tables = {"ann": ANN, "bob": BOB, "cid": CID}
    order = np.repeat([3, 4, 5], [12, 10, 8])
    assert closed.payments == expected(tables, VAL, 1234.56, order, k=3, rule=Rule(policy=Policy(reserve="5%")))
    assert closed.reserve == 6172
    assert sum(closed.payments.values()) + closed.reserve + closed.unallocated == 123456
    again = place.market.close("one", val)
    assert again.again
    assert replace(again, again=False) == closed
    assert {str(name): int(money * 100) for name, money in place.market.allocation("one").payouts.items()} == (
        closed.payments
    )
    assert place.market.verify(recompute=True, head=closed.digest).recomputed == 3


def test_the_commitment_can_be_checked_by_anybody(place: Place) -> None:
    val = place.open("one", VAL)
    terms = place.market.terms("one")
    assert terms.commitment not in {"", terms.salt}
    place.submit("one", ann=ANN)
    place.market.close("one", val)
    body = next(place.market.ledger.events(kind="close")).content
    assert commitment(body["salt"], body["validation"]) == terms.commitment
    assert place.market.ledger.blob(body["validation"]) == val.read_bytes()


def test_the_validation_file_is_not_stored_before_the_round_is_closed(place: Place) -> None:
    val = place.file("val.csv", VAL)
    place.market.open("one", val, 10, label="class")
    row = ",".join(str(VAL[name][0]) for name in FEATURES).encode()
    assert row in val.read_bytes()
    whole = b"".join(path.read_bytes() for path in place.folder.glob("market.db*"))
    assert row not in whole
    assert val.read_bytes()[:40] not in whole


def change_column(table: pa.Table, name: str, entries: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(entries))


def one_byte(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.slice(1),
        lambda table: table.set_column(2, "class", table["class"].take(list(range(30))[::-1])),
    ],
    ids=["row", "class"],
)
def test_another_validation_file_closes_nothing(place: Place, change: Callable[[pa.Table], pa.Table]) -> None:
    val = place.open("one", VAL)
    place.submit("one", ann=ANN)
    for path in (place.file("other.parquet", change(VAL)), place.folder / "byte.parquet"):
        if not path.exists():
            path.write_bytes(one_byte(val.read_bytes()))
        with pytest.raises(InputError, match="is not the validation file that round 'one' was opened with"):
            place.market.close("one", path)
    assert not list(place.market.ledger.events(round="one", kind="close"))
    assert place.market.close("one", val).payments == {"ann": 100000}


def test_tables_stay_on_offer_until_replaced_or_withdrawn(place: Place) -> None:
    val = place.open("one", VAL)
    place.submit("one", ann=ANN, bob=BOB, cid=CID)
    place.market.close("one", val)
    again = place.open("two", OTHER_VAL, keep=True)
    assert list(place.market.offers("two")) == ["ann", "bob", "cid"]
    place.submit("two", bob=ANN.slice(0, 3), dan=BOB)
    place.market.withdraw("two", "cid")
    with pytest.raises(InputError, match="nothing to withdraw"):
        place.market.withdraw("two", "cid")
    closed = place.market.close("two", again)
    assert {name: offer.rows for name, offer in closed.tables.items()} == {"ann": 12, "bob": 3, "dan": 10}
    # dan's rows were bob's first, though bob does not offer them any more; bob's are copies of ann's.
    assert ("ann", "bob", 3) in closed.copies
    assert any(first == "bob" and other == "dan" for first, other, _ in closed.copies)
    assert closed.payments["bob"] == closed.payments["dan"] == 0
    assert place.market.verify(recompute=True).faults == ()


def test_precedence_counts_from_the_first_submission_in_any_round(place: Place) -> None:
    val = place.open("one", VAL)
    place.submit("one", ann=ANN, bob=BOB)
    place.market.close("one", val)
    val = place.open("two", VAL)  # ann does not take part
    place.submit("two", bob=pa.concat_tables([BOB, ANN.slice(0, 6)]))
    place.market.close("two", val)
    val = place.open("three", VAL)
    place.submit("three", bob=pa.concat_tables([BOB, ANN.slice(0, 6)]), ann=ANN.slice(3))
    place.submit("three", ann=pa.concat_tables([make_rows(9, 2), ANN]))
    closed = place.market.close("three", val)
    assert closed.copies == (("ann", "bob", 6),)
    tables = {"ann": pa.concat_tables([make_rows(9, 2), ANN]), "bob": pa.concat_tables([BOB, ANN.slice(0, 6)])}
    order = np.array([9] * 2 + [3] * 12 + [4] * 10 + [7] * 6)
    assert closed.payments == expected(tables, VAL, 1000, order)
    wrong = expected(tables, VAL, 1000, np.repeat([9, 8], [14, 16]))
    assert closed.payments != wrong


def test_rows_that_were_taken_back_before_the_close_hold_nobody_up(place: Place) -> None:
    everything = pa.concat_tables([ANN, BOB])
    other = place.open("other", VAL)
    place.submit("other", cid=BOB)  # on offer there, but that round is not closed yet
    val = place.open("one", VAL)
    place.submit("one", squatter=everything)
    place.submit("one", squatter=CID, dan=BOB)
    place.market.withdraw("one", "dan")
    place.submit("one", ann=ANN, bob=BOB)
    first = place.market.close("one", val)
    assert first.copies == ()
    assert first.payments == expected(
        {"ann": ANN, "bob": BOB, "squatter": CID}, VAL, 1000, np.repeat([8, 9, 5], [12, 10, 8])
    )
    # Rows of the table that was taken back are of today, those of the other round are as old as they are.
    val = place.open("two", VAL)
    place.submit("two", squatter=everything, ann=ANN, bob=BOB)
    place.market.close("other", other)
    second = place.market.close("two", val)
    assert second.copies == (("ann", "squatter", 12), ("cid", "bob", 10), ("cid", "squatter", 10))
    assert second.payments["squatter"] == second.payments["bob"] == 0
    assert place.market.verify(recompute=True).faults == ()


@pytest.mark.parametrize("pay_by", ["clusters", "rows", "owners", "precedence"])
def test_copies_are_listed_under_every_rule(place: Place, pay_by: str) -> None:
    rule = Rule(pay_by)
    val = place.open("one", VAL, rule=rule)
    place.submit("one", ann=ANN, bob=pa.concat_tables([BOB, ANN.slice(0, 4)]))
    closed = place.market.close("one", val)
    assert closed.copies == (("ann", "bob", 4),)
    assert closed.terms.rule == rule
    assert place.market.verify(recompute=True).ok


def test_rounds_without_sellers_with_one_and_with_harmful_rows_only(place: Place) -> None:
    val = place.open("none", VAL, rule=Rule(policy=Policy(reserve=10)))
    empty = place.market.close("none", val)
    assert (empty.payments, empty.reserve, empty.unallocated) == ({}, 1000, 99000)
    with pytest.raises(InputError, match="Nobody had submitted to round 'none'"):
        place.market.write_statements("none", place.folder / "no")
    val = place.open("one", VAL, keep=True)
    place.submit("one", ann=ANN)
    assert place.market.close("one", val).payments == {"ann": 100000}
    val = place.open("bad", VAL)
    place.submit("bad", cid=CID, dan=make_rows(6, 5, 1.0))
    bad = place.market.close("bad", val)
    assert (bad.payments, bad.unallocated) == ({"cid": 0, "dan": 0}, 100000)
    assert place.market.verify(recompute=True).ok
    assert place.market.changes("one") == {"ann": dict.fromkeys(FACTORS, 0) | {"own rows": 100000}}


def test_one_row_one_class_and_one_point(place: Place) -> None:
    val = place.open("one", VAL.slice(0, 1))
    same = VAL["class"][0].as_py()
    place.submit("one", ann=pa.table({"size": [0.5], "age": [1.0], "class": [same]}))
    assert sum(place.market.close("one", val).payments.values()) in (0, 100000)


def test_a_submission_during_the_close_is_counted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    val = place.open("one", VAL)
    place.submit("one", ann=ANN)
    calls = []

    def late(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            place.submit("one", bob=BOB)
        return pay_owners(*arguments, **options)

    monkeypatch.setattr(rounds, "pay_owners", late)
    assert set(place.market.close("one", val).payments) == {"ann", "bob"}
    assert len(calls) == 2


def test_a_close_that_fails_leaves_the_round_open(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    val = place.open("one", VAL)
    place.submit("one", ann=ANN)
    before = place.market.ledger.head()

    def fail(*arguments: Any, **options: Any) -> None:
        raise KeyboardInterrupt

    # Blobs are written before the event is made.
    for where, name in ((rounds, "pay_owners"), (place.market.ledger, "_next")):
        with monkeypatch.context() as patched:
            patched.setattr(where, name, fail)
            with pytest.raises(KeyboardInterrupt):
                place.market.close("one", val)
    assert place.market.ledger.head() == before
    assert place.market.verify().ok
    assert not place.market.close("one", val).again


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_of_four_who_close_at_once_one_wins(kind: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    where = tmp_path / "market.db" if kind == "sqlite" else request.getfixturevalue("postgres_url")
    with Market.create(where) as market:
        place = Place(tmp_path, market)
        val = place.open("one", VAL)
        place.submit("one", ann=ANN, bob=BOB)
        barrier = threading.Barrier(4)

        def close(_: int) -> Any:
            with Market(where) as own:
                barrier.wait()
                return own.close("one", val, n_jobs=1, progress=False)

        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(close, range(4)))
        assert sorted(one.again for one in found) == [False, True, True, True]
        assert all(one.payments == found[0].payments for one in found)
        assert len(list(market.ledger.events(kind="close"))) == 1
        val = place.open("two", OTHER_VAL, keep=True)
        place.submit("two", ann=CID)
        closed = market.close("two", val)
        assert sum(market.changes("two", ["ann"])["ann"].values()) == closed.payments["ann"] - found[0].payments["ann"]
        assert market.verify(recompute=True, head=closed.digest).recomputed == 4


def test_closed_rounds_take_nothing_and_names_are_used_once(place: Place) -> None:
    val = place.open("one", VAL)
    for what in (lambda: place.open("one", VAL), lambda: place.open("two", VAL, keep=True)):
        with pytest.raises(InputError, match=r"There is a round 'one' already|No round has been closed yet"):
            what()
    place.market.close("one", val)
    for late in (lambda: place.submit("one", ann=ANN), lambda: place.market.withdraw("one", "ann")):
        with pytest.raises(InputError, match="Round 'one' is closed"):
            late()
    with pytest.raises(InputError, match=r"There is no round 'two'. The last ones are 'one'"):
        place.submit("two", ann=ANN)


def test_two_rounds_can_be_open_and_are_compared_in_the_order_of_closing(place: Place) -> None:
    vals = {name: place.open(name, table) for name, table in {"a": VAL, "b": OTHER_VAL}.items()}
    place.submit("a", ann=ANN, bob=BOB)
    place.submit("b", ann=ANN, bob=BOB)
    assert place.market.close("b", vals["b"]).previous == ""
    closed = place.market.close("a", vals["a"])
    assert closed.previous == "b"
    why = place.market.changes("a")
    old = place.market.closed("b").payments
    for seller, parts in why.items():
        assert parts == dict.fromkeys(FACTORS, 0) | {"validation set": closed.payments[seller] - old[seller]}
    assert place.market.verify(recompute=True).ok


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("", "1 to 200 characters"),
        (" ", "1 to 200 characters"),
        ("x" * 10_000, "Got 10,000 characters"),
        ("ann\nbob", r"invisible characters. Got 'ann\\\\nbob'"),
        ("ann ", "spaces at its ends"),
        ("ann\u202ebob", "invisible"),
        ("ann\0", "invisible"),
        (7, "Got 7"),
    ],
    ids=["empty", "space", "long", "break", "end", "direction", "nul", "number"],
)
def test_names_that_do_not_show_are_refused(place: Place, name: Any, says: str) -> None:
    place.open("one", VAL)
    with pytest.raises(InputError, match=says):
        place.market.submit("one", name, place.file("ann.csv", ANN))
    with pytest.raises(InputError, match=says):
        place.market.open(name, place.folder / "val-one.parquet", 10, label="class")


def test_odd_names_are_paid_like_others(place: Place) -> None:
    val = place.open("[bold]'; DROP TABLE x;--", VAL)
    names = ["<b>ann</b>", "[red]bob[/]", "Łukasz 中", "=1+1", "../../etc"]
    for i, name in enumerate(names):
        place.market.submit("[bold]'; DROP TABLE x;--", name, place.file("rows.csv", make_rows(20 + i, 6)))
    closed = place.market.close("[bold]'; DROP TABLE x;--", val)
    assert set(closed.payments) == set(names)
    assert place.market.verify(recompute=True).ok
    for name in names:
        folder = place.folder / "export"
        place.market.export(folder, seller=name)
        assert sorted(path.name for path in folder.iterdir())[0] == "events.jsonl"
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.drop_columns(["age"]), "The round needs the column 'age', which the table"),
        (lambda t: t.select(["class"]), "needs the columns 'size', 'age'"),
        (
            lambda t: change_column(t, "class", ["maybe"] * 12),
            "Labels that the round does not know, in 12 of 12 rows of .*: 'maybe'",
        ),
        (
            lambda t: change_column(t, "class", ["no", "yes", "No"] * 4),
            "4 of 12 rows .* 'No'. Its labels are 'no', 'yes'",
        ),
        (lambda t: change_column(t, "size", ["x"] + ["1"] * 11), "'size' .* must hold numbers"),
        (lambda t: change_column(t, "size", [None] + [1.0] * 11), "must hold a value in every row. 1 of 12"),
        (lambda t: change_column(t, "size", [1.0, float("inf")] * 6), "numbers between .* Row 1 .*has inf"),
        (lambda t: change_column(t, "size", [1.0, 1e300] * 6), "numbers between .* Row 1 .*has 1e.300"),
        (lambda t: change_column(t, "size", [True] * 12), "must hold numbers. It holds bool"),
    ],
    ids=["column", "columns", "label", "spelling", "text", "missing", "infinite", "huge", "bool"],
)
def test_tables_that_do_not_fit_the_round_are_refused(place: Place, change: Any, says: str) -> None:
    place.open("one", VAL)
    with pytest.raises(InputError, match=says):
        place.market.submit("one", "ann", place.file("rows.parquet", change(ANN)))
    assert place.market.offers("one") == {}


def test_only_columns_of_the_round_are_stored(place: Place) -> None:
    val = place.open("one", VAL)
    more = ANN.append_column("seller", pa.array(["SECRET-OF-BOB"] * 12))
    event, notes = place.market.submit("one", "ann", place.file("rows.csv", more))
    assert notes == ["Left out 'seller': not columns of the round."]
    assert offers.from_parquet(place.market.ledger.blob(event.content["table"])).column_names == [*FEATURES, "class"]
    assert set(place.market.close("one", val).payments) == {"ann"}


def test_ids_name_rows_and_are_different_within_a_table(place: Place) -> None:
    val = place.open("one", VAL, id="row")
    named = ANN.append_column("row", pa.array([f"r{i}" for i in range(12)]))
    twice = ANN.append_column("row", pa.array(["a", "b"] * 6))
    with pytest.raises(InputError, match=r"must name each row differently. 2 ids"):
        place.market.submit("one", "ann", place.file("twice.csv", twice))
    for seller in ("ann", "bob"):
        place.market.submit("one", seller, place.file("named.csv", named))
    place.market.close("one", val)
    assert place.market.allocation("one").ids.tolist() == [f"r{i}" for i in range(12)] * 2


def test_texts_truth_values_vectors_and_missing_entries(place: Place) -> None:
    def table(seed: int, n: int, gap: bool) -> pa.Table:
        rng = np.random.default_rng(seed)
        size = [None if gap and i == 0 else float(x) for i, x in enumerate(rng.normal(size=n).round(2))]
        place_of = [None if gap and i == 1 else str(x) for i, x in enumerate(rng.choice(["01", "x", "b"], n))]
        vectors = pa.array(rng.normal(size=(n, 2)).tolist())
        known = pa.array(rng.random(n) < 0.5)
        return pa.table({"v": vectors, "size": size, "place": place_of, "known": known, "class": rng.integers(0, 2, n)})

    val = place.file("val.parquet", table(0, 20, True))
    place.market.open("one", val, 10, label="class", impute="median")
    assert place.market.terms("one").form.types == {
        "v": "vector of 2",
        "size": "number",
        "place": "text",
        "known": "bool",
    }
    for i, seller in enumerate(("ann", "bob")):
        place.market.submit("one", seller, place.file("rows.parquet", table(i + 1, 6, True)))
    odd = table(3, 4, False)
    for column, wrong in {"v": [[1.0]] * 4, "known": ["x"] * 4, "place": [1.5] * 4}.items():
        with pytest.raises(InputError, match=f"Column '{column}'"):
            place.market.submit("one", "cid", place.file("odd.parquet", change_column(odd, column, wrong)))
    closed = place.market.close("one", val)
    assert set(closed.payments) == {"ann", "bob"}
    assert place.market.verify(recompute=True).ok


def test_files_that_are_too_large_and_folders_are_refused(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.open("one", VAL)
    path = place.file("rows.csv", ANN)
    with pytest.raises(InputError, match="A round takes one file"):
        place.market.submit("one", "ann", place.folder / "*.csv")
    monkeypatch.setattr(offers, "MOST_BYTES", 100)
    with pytest.raises(InputError, match="a ledger takes files of up to"):
        place.market.submit("one", "ann", path)


@pytest.mark.parametrize(
    ("terms", "says"),
    [
        ({"rule": Rule(policy=Policy(floor=1))}, "A round has no floor"),
        ({"budget": -1}, "at least 0"),
        ({"budget": "1.001"}, "at most 2 decimals"),
        ({"rule": Rule(policy=Policy(reserve=2000))}, "more than the budget"),
        ({"model": {"n_neighbours": 1}}, "must have keys among"),
        ({"model": {"n_neighbors": 0}}, "n_neighbors"),
        ({"features": ["nothing"]}, "'nothing' is not a column"),
        ({"drop": ["size", "age"]}, "No feature column is left"),
    ],
    ids=["floor", "negative", "decimals", "reserve", "key", "model", "features", "drop"],
)
def test_terms_that_cannot_be_kept_are_refused(place: Place, terms: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        place.open("one", VAL, **terms)
    assert place.market.ledger.rounds() == []


def test_kept_tables_must_fit_the_new_validation_file(place: Place) -> None:
    place.market.close("one", place.open("one", VAL))
    with pytest.raises(InputError, match="columns or their types differ"):
        place.open("two", VAL.rename_columns(["size", "years", "class"]), keep=True)
    with pytest.raises(InputError, match="no row of label"):
        place.open("two", VAL.filter(pa.compute.equal(VAL["class"], "no")), keep=True)


def month_two(place: Place, rule: Rule, k: int, **terms: Any) -> None:
    """Month two: ann has more rows, bob the same, cid has left, dan is new; other points, budget and policy."""
    val = place.open("one", VAL, 1000, **terms)
    place.submit("one", ann=ANN, bob=BOB, cid=CID)
    place.market.close("one", val)
    val = place.open("two", OTHER_VAL, 1500, keep=True, rule=rule, model={"n_neighbors": k}, **terms)
    place.submit("two", ann=pa.concat_tables([ANN, make_rows(7, 6)]), dan=make_rows(8, 5))
    place.market.withdraw("two", "cid")
    place.market.close("two", val)


@pytest.mark.parametrize(
    ("rule", "k", "valued", "searched"),
    [
        (Rule("rows"), 3, 16, 8),
        (Rule(policy=Policy(negatives="clip", cap="40%")), 5, 8, 8),
        (Rule("owners", policy=Policy(deposit=20)), 3, 16, 8),
    ],
    ids=["rows", "policy", "owners"],
)
def test_changes_are_split_as_the_definition_says(
    place: Place, monkeypatch: pytest.MonkeyPatch, rule: Rule, k: int, valued: int, searched: int
) -> None:
    month_two(place, rule, k)
    one, two = (place.market.closed(name) for name in ("one", "two"))
    more = make_rows(7, 6)

    def pay(new: frozenset[str]) -> int:
        """Compute ann's payment without a ledger."""
        tables = {"ann": pa.concat_tables([ANN, more]) if "own rows" in new else ANN, "bob": BOB}
        last = ("dan", make_rows(8, 5)) if "other sellers" in new else ("cid", CID)
        tables[last[0]] = last[1]
        order = [3] * 12 + [8] * 6 * ("own rows" in new) + [4] * 10 + ([9] * 5 if last[0] == "dan" else [5] * 8)
        options = {"k": k, "rule": rule} if "policy" in new else {}
        val = OTHER_VAL if "validation set" in new else VAL
        return expected(tables, val, 1500 if "budget" in new else 1000, np.array(order), **options)["ann"]

    wanted, counts = split_change(pay), count_work(monkeypatch)
    assert place.market.changes("two", ["ann"]) == {"ann": wanted}
    assert counts == Counter(value_counted=valued, find_clusters=searched)
    why = place.market.changes("two", progress=False)
    assert why["ann"] == wanted
    assert set(why) == {"ann", "bob", "cid", "dan"}
    for seller, parts in why.items():
        assert sum(parts.values()) == two.payments.get(seller, 0) - one.payments.get(seller, 0)
    assert why["cid"] == dict.fromkeys(FACTORS, 0) | {"own rows": -one.payments.get("cid", 0)}
    assert why["dan"] == dict.fromkeys(FACTORS, 0) | {"own rows": two.payments["dan"]}
    assert why["bob"]["own rows"] == 0
    assert all(why["ann"].values())
    assert place.market.changes("one") == {}
    with pytest.raises(InputError, match="No table of 'eve'"):
        place.market.changes("two", ["eve"])


def count_work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count valuations and searches for copies from now on."""
    counts: Counter[str] = Counter()
    for name in ("value_counted", "find_clusters"):

        def counted(call: Any, *given: Any, name: str = name, **more: Any) -> Any:
            counts[name] += 1
            return call(*given, **more)

        monkeypatch.setattr(rounds, name, partial(counted, getattr(rounds, name)))
    return counts


def test_copies_are_searched_once_for_features_that_no_validation_set_scales(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    month_two(place, Rule(), 3, scale="none")
    counts = count_work(monkeypatch)
    assert all(place.market.changes("two", ["ann"])["ann"].values())
    assert counts == Counter(value_counted=16, find_clusters=4)


def test_the_time_that_changes_take_counts_rows_points_copies_and_sellers(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    month_two(place, Rule(), 5)
    monkeypatch.setattr(rounds, "TABLE_SECONDS", 0)
    monkeypatch.setattr(rounds, "ROW_SECONDS", 0)
    monkeypatch.setattr(rounds, "PAIR_SECONDS", 1)
    seconds = place.market.changes_seconds
    sizes = [12 + 10 + 8, 18 + 10 + 8, 12 + 10 + 5, 18 + 10 + 5]  # of ann's tables old and new, those of others too
    for search in (0, 1):
        monkeypatch.setattr(rounds, "SEARCH_SECONDS", search)
        assert seconds("two", ["ann"]) == 2 * sum(30 * rows + search * rows**2 for rows in sizes)
    assert seconds("two") == seconds("two", ["ann"])  # bob's rows are the same: what he needs is known by then
    assert seconds("two", most=1) == 2 * seconds("two", ["ann"])
    assert seconds("two", ["cid"]) == seconds("one") == 0


def test_changes_where_the_columns_are_others(place: Place) -> None:
    val = place.open("one", VAL)
    place.submit("one", ann=ANN, bob=BOB)
    one = place.market.close("one", val)
    names = ["size", "years", "class"]
    val = place.open("two", OTHER_VAL.rename_columns(names), 2000)
    place.submit("two", ann=ANN.rename_columns(names), bob=BOB.rename_columns(names))
    two = place.market.close("two", val)
    for seller, parts in place.market.changes("two").items():
        assert parts["own rows"] == parts["other sellers"] == parts["policy"] == 0
        assert 0 not in (parts["budget"], parts["validation set"])
        assert sum(parts.values()) == two.payments[seller] - one.payments[seller]


def test_another_currency_is_not_compared(place: Place) -> None:
    place.market.close("one", place.open("one", VAL))
    val = place.open("two", VAL, currency="JPY")
    place.submit("two", ann=ANN)
    assert place.market.close("two", val).payments == {"ann": 1000}
    assert place.market.changes("two") == {}


def forged(place: Place, where: str = "market.db", **changed: Any) -> tuple[str, ...]:
    """Faults that are found after an operator wrote a close by hand."""
    val = place.open("one", VAL)
    place.submit("one", ann=ANN, bob=BOB)
    with Market(place.folder / where) as honest:
        body: dict[str, Any] = {}

        def keep(kind: str, content: dict[str, Any], **more: Any) -> Any:
            body.update(content, more=more)
            raise KeyboardInterrupt

        honest.ledger.append = keep  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            honest.close("one", val)
    more = body.pop("more")
    made = {**body, **{name: change(body) for name, change in changed.items()}}
    place.market.ledger.append("close", made, round="one", blobs=more["blobs"])
    return place.market.verify(recompute=True).faults


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({}, None),
        (
            {"payments": lambda b: [["ann", b["payments"][0][1] + 1], ["bob", b["payments"][1][1] - 1]]},
            "Computed again",
        ),
        ({"salt": lambda b: "00" * 32}, "is not the one that it was opened with"),
        ({"tables": lambda b: b["tables"][:1]}, "are not those that were on offer"),
        (
            {"payments": lambda b: b["payments"][:1], "unallocated": lambda b: b["payments"][1][1]},
            "those who were paid are not those who had submitted",
        ),
    ],
    ids=["honest", "a cent", "salt", "tables", "payee"],
)
def test_verify_finds_what_an_operator_did_not_keep(place: Place, changed: Any, says: str | None) -> None:
    faults = forged(place, **changed)
    assert (not faults) if says is None else any(says in fault for fault in faults)


def test_statements_are_not_written_where_payments_are_not_those_of_the_allocation(place: Place) -> None:
    assert forged(place) == ()
    place.market.write_statements("one", place.folder / "pages")
    with Market.create(place.folder / "other.db") as market:
        other = Place(place.folder, market)
        forged(
            other, "other.db", payments=lambda b: [["ann", b["payments"][0][1] - 1], ["bob", b["payments"][1][1] + 1]]
        )
        with pytest.raises(LedgerError, match=r"payments of round 'one'.*written by hand.*--recompute"):
            market.write_statements("one", place.folder / "wrong")
    assert not (place.folder / "wrong").exists()


def test_an_export_for_one_seller_has_nothing_of_others(place: Place) -> None:
    def marked(name: str, n: int = 8) -> pa.Table:
        rng = np.random.default_rng(len(name))
        table = pa.table({"size": rng.normal(size=n), "kind": [f"{name}-KIND"] * n, "class": ["no", "yes"] * (n // 2)})
        return table.append_column("row", pa.array([f"{name}-ROW{i}" for i in range(n)]))

    val = place.file("val.csv", marked("VALIDATION"))
    place.market.open("one", val, 100, label="class", id="row")
    for name in ("ann", "bob"):
        place.market.submit("one", name, place.file(f"{name}.csv", marked(name.upper())))
    place.market.close("one", val)
    files = place.market.export(place.folder / "for_ann", seller="ann")
    assert [path.name for path in files] == ["events.jsonl", "payments.csv", "table-3.parquet"]
    content = b"".join(path.read_bytes() for path in files)
    assert b"ANN-ROW3" in content or "ANN-ROW3" in pq.read_table(files[2])["row"].to_pylist()
    text = content + str(pq.read_table(files[2]).to_pydict()).encode()
    assert not any(word in text for word in (b"BOB", b"bob", b"VALIDATION"))
    paid = place.market.closed("one").payments["ann"]
    assert f"{paid / 100:.2f}" in files[1].read_text()
    assert json.loads(files[0].read_text())["seller"] == "ann"
    with pytest.raises(FileExistsError):
        place.market.export(place.folder / "for_ann", seller="ann")
    with pytest.raises(InputError, match="never submitted"):
        place.market.export(place.folder / "for_eve", seller="eve")
    assert {path.name for path in place.market.export(place.folder / "all")} == {"blobs", "events.jsonl", "ledger.json"}


def test_rows_of_a_seller_who_left_or_labels_of_another_kind_are_not_paid_to_others(place: Place) -> None:
    coded = [table.set_column(2, "class", pa.array([int(c == "yes") for c in table["class"].to_pylist()]))
             for table in (VAL, ANN, BOB)]  # fmt: skip
    text = [table.set_column(2, "class", table["class"].cast(pa.string())) for table in coded]
    val = place.open("one", coded[0])
    place.submit("one", ann=coded[1])
    place.market.close("one", val)
    with pytest.raises(InputError, match="of another kind"):
        place.open("no", text[0], keep=True)
    val = place.open("two", text[0])
    place.submit("two", thief=text[1], ann=text[1], bob=text[2])
    closed = place.market.close("two", val)
    assert closed.copies == (("ann", "thief", 12),)
    assert closed.payments["thief"] == 0 < closed.payments["ann"]
    place.market.changes("two", progress=False)
    val = place.open("three", text[0])
    place.submit("three", thief=text[1])
    closed = place.market.close("three", val)
    assert (closed.payments, closed.copies) == ({"thief": 0}, (("ann", "thief", 12),))
    assert place.market.verify(recompute=True).faults == ()


def test_far_numbers_and_names_of_two_spellings_are_refused(place: Place) -> None:
    place.open("one", VAL)
    far = ANN.set_column(0, "size", pa.array([1e9, *ANN["size"].to_pylist()[1:]]))
    with pytest.raises(InputError, match=r"'size'.*Row 0.*leave the row out"):
        place.submit("one", ann=far)
    with pytest.raises(InputError, match="NFC"):
        place.market.submit("one", "Ame\u0301lie", place.file("amelie.csv", ANN))
    with pytest.raises(InputError, match=place.market.terms("one").commitment):
        place.open("one", VAL)


def test_a_creation_that_was_killed_can_be_repeated(tmp_path: Path) -> None:
    Ledger.create(tmp_path / "m.db").close()
    with Market(tmp_path / "m.db") as market, pytest.raises(LedgerError, match="market init"):
        _ = market.about
    Market.create(tmp_path / "m.db").ledger.close()
    with pytest.raises(LedgerError, match="already exists"):
        Market.create(tmp_path / "m.db")
