"""Time of ``verify`` on a ledger of many rounds, each with a payment to every seller.

For speed, the events are written without ``append``, many per transaction; the ledger is the same.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from shapshift.market.chain import Row, canonical, digest_of, line
from shapshift.market.ledger import Ledger
from shapshift.market.rounds import Market, Verified

VALIDATION = "size,class\n1.0,a\n1.2,a\n3.1,b\n2.9,b\n"
ROWS = "size,class\n1.1,a\n3.0,b\n"


def first_round(where: str | Path, folder: Path) -> dict[str, dict[str, Any]]:
    """Create a market with one round, and return the bodies of its events by kind."""
    (folder / "val.csv").write_text(VALIDATION)
    (folder / "rows.csv").write_text(ROWS)
    with Market.create(where) as market:
        market.open("first", folder / "val.csv", 100, label="class", model={"n_neighbors": 1})
        market.submit("first", "seller", folder / "rows.csv")
        market.close("first", folder / "val.csv")
        return {event.kind: event.content for event in market.ledger.events(round="first")}


def rows(ledger: Ledger, bodies: dict[str, dict[str, Any]], rounds: int, sellers: int, keep: bool) -> Iterator[Row]:
    """Yield events as stored: rounds like the first one, with more sellers, who all submit the same table.

    They submit to each round, or with ``keep`` only to the first one, whose tables stay on offer.
    """
    last = list(ledger.events())[-1]
    sequence, previous, time = last.sequence, last.digest, last.time

    def row(kind: str, round_: str, seller: str, body: str) -> Row:
        nonlocal sequence, previous
        sequence += 1
        previous = digest_of(line(sequence, kind, round_, seller, time, body, previous).encode())
        return sequence, kind, round_, seller, time, body, previous

    names = [f"seller {number:04}" for number in range(sellers)]
    budget = 150 * sellers
    submitted = canonical(bodies["submit"])
    offer = [bodies["submit"]["table"], bodies["submit"]["rows"]]
    round_, tables = "", list[list[Any]]()
    for number in range(rounds):
        kept, round_ = round_ if keep else "", f"round {number:05}"
        yield row("open", round_, "", canonical(bodies["open"] | {"budget": budget, "keep": kept}))
        if not kept:
            tables = []
            for name in names:
                yield row("submit", round_, name, submitted)
                tables.append([name, *offer, sequence])
        payments = [[name, 50 + (number + k) % 100] for k, name in enumerate(names)]
        left = budget - sum(cents for _, cents in payments)
        paid = {"payments": payments, "tables": tables, "budget": budget, "reserve": 0, "unallocated": left}
        yield row("close", round_, "", canonical(bodies["close"] | paid))


def fill(ledger: Ledger, events: Iterator[Row]) -> None:
    """Write events in one transaction."""
    with ledger._database.writing() as connection:
        driver = connection.connection.driver_connection
        if connection.dialect.name == "sqlite":
            driver.executemany("INSERT INTO shapshift_events VALUES (?, ?, ?, ?, ?, ?, ?)", events)
        else:
            with driver.cursor() as cursor, cursor.copy("COPY shapshift_events FROM STDIN") as copy:
                for event in events:
                    copy.write_row(event)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--sellers", type=int, default=1000)
    parser.add_argument("--keep", action="store_true", help="tables of the first round stay on offer in all others")
    parser.add_argument("--where", help="URL of an empty PostgreSQL database; an SQLite file otherwise")
    chosen = parser.parse_args()
    title = f"{chosen.rounds:,} rounds, {chosen.sellers:,} sellers"
    table = Table("checked", "events", "payments", "time", "processor time", title=title)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "market.db")
        where = chosen.where or path
        bodies = first_round(where, Path(folder))
        with Ledger(where) as ledger:
            began = time.perf_counter()
            fill(ledger, rows(ledger, bodies, chosen.rounds, chosen.sellers, chosen.keep))
            print(f"written in {time.perf_counter() - began:.1f} s")
        if path.exists():
            print(f"{os.path.getsize(path) / 1e6:,.0f} MB")
        with Market(where) as market:
            for what, verify in (("the chain", market.ledger.verify), ("the chain and rounds", market.verify)):
                print(f"load of the machine: {os.getloadavg()[0]:.1f}", flush=True)
                began, work = time.perf_counter(), time.process_time()
                checked = verify()
                took, work = time.perf_counter() - began, time.process_time() - work
                assert checked.ok, checked
                found = checked.chain if isinstance(checked, Verified) else checked
                table.add_row(what, f"{found.events:,}", f"{found.payments:,}", f"{took:.1f} s", f"{work:.1f} s")
    Console().print(table)


if __name__ == "__main__":
    main()
