"""How long ``verify`` takes on a ledger of many rounds, each with a submission and a payment of every seller.

The events are written past ``append``, many in one transaction, which is much faster; the ledger is the same.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from shapshift.market.chain import START, canonical, digest_of, line
from shapshift.market.ledger import Ledger, utc_now

Row = tuple[int, str, str, str, str, str, str]


def rows(rounds: int, sellers: int, submissions: bool) -> Iterator[Row]:
    """Events as they are stored."""
    sequence, previous = 0, START
    time = utc_now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")

    def row(kind: str, round_: str, seller: str, body: str) -> Row:
        nonlocal sequence, previous
        sequence += 1
        previous = digest_of(line(sequence, kind, round_, seller, time, body, previous).encode())
        return sequence, kind, round_, seller, time, body, previous

    names = [f"seller {number:04}" for number in range(sellers)]
    for number in range(rounds):
        round_ = f"round {number:05}"
        yield row("open", round_, "", canonical({"budget": 100 * sellers, "commitment": digest_of(round_.encode())}))
        if submissions:
            for k, name in enumerate(names):
                body = f'{{"columns":"12","rows":{number + k},"table":"{digest_of(f"{number} {k}".encode())}"}}'
                yield row("submit", round_, name, body)
        payments = [[name, 50 + (number + k) % 100] for k, name in enumerate(names)]
        budget = sum(cents for _, cents in payments)
        paid = {"payments": payments, "budget": budget, "reserve": 0, "unallocated": 0}
        yield row("close", round_, "", canonical(paid))


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
    parser.add_argument("--no-submissions", action="store_true", help="rounds are opened and closed, nothing else")
    parser.add_argument("--where", help="URL of an empty PostgreSQL database; an SQLite file otherwise")
    chosen = parser.parse_args()
    title = f"{chosen.rounds:,} rounds, {chosen.sellers:,} sellers"
    table = Table("events", "payments", "size", "written", "verified", "processor time", title=title)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "market.db")
        with Ledger.create(chosen.where or path) as ledger:
            began = time.perf_counter()
            fill(ledger, rows(chosen.rounds, chosen.sellers, not chosen.no_submissions))
            written = time.perf_counter() - began
            began, work = time.perf_counter(), time.process_time()
            found = ledger.verify(progress=None)
            took = time.perf_counter() - began
            work = time.process_time() - work
        assert found.ok, found.fault
        size = f"{os.path.getsize(path) / 1e6:,.0f} MB" if path.exists() else ""
    table.add_row(
        f"{found.events:,}", f"{found.payments:,}", size,
        f"{written:.1f} s", f"{took:.1f} s", f"{work:.1f} s",
    )  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
