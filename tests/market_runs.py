"""The command ``market close``, killed at random instants and run by several processes at once.

``python market_runs.py sqlite 300`` (or ``postgres``) prints one JSON object; test_ledger.py and soak.py use it too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.compute as pc
import pyarrow.csv as pacsv
from cli_files import make_tables, run
from ledger_runs import apart, ended, places, wait_until_idle

from shapshift.market.ledger import Ledger

SELLERS = ("ann", "bob")


def command(*arguments: object) -> dict[str, Any]:
    """Run a command of the market, which must succeed."""
    done = run("market", *arguments, "--json")
    assert not done.code, done.err
    return done.document


def prepare(where: str, name: str) -> None:
    """Open a round to which sellers have submitted."""
    columns = ("--label", "class", "--id", "row", "--drop", "seller")
    command("open", where, name, "--val", "val.csv", "--budget", 900, *columns)
    for seller in SELLERS:
        command("submit", where, name, seller, f"{seller}.csv")


def close(where: str, name: str) -> bool:
    """Close a round; returns whether it was closed before."""
    return bool(command("close", where, name, "--val", "val.csv", "-j", 1)["closed_before"])


def kill_loop(where: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill ``close`` in ``kills`` processes, every other one in the second half of the time that a close takes."""
    rng = random.Random(seed)
    command("init", where, "--issuer", "x")
    prepare(where, "first")
    close(where, "first")  # imports and compiles what the processes inherit
    took: list[float] = []
    for trial in range(3):
        prepare(where, f"trial {trial}")
        began = time.perf_counter()
        assert ended(apart(lambda trial=trial: close(where, f"trial {trial}"))) == 0
        took.append(time.perf_counter() - began)
    seen = {"killed": 0, "of these closed": 0, "ended before": 0}
    number = 0
    while seen["killed"] < kills:
        number += 1
        name = f"round {number}"
        prepare(where, name)
        pid = apart(lambda name=name: close(where, name))
        time.sleep(rng.uniform(0.5 if number % 2 else 0, 1) * median(took))
        os.kill(pid, signal.SIGKILL)
        code = ended(pid)
        assert code in (0, -signal.SIGKILL), code
        with Ledger(where) as ledger:
            if "://" in where:
                wait_until_idle(ledger)
            found = list(ledger.events(round=name, kind="close"))
            assert len(found) <= 1
            assert found or code, "a round that was closed is open again"
            if number % max(kills // 10, 1) == 0:
                verified = ledger.verify()
                assert verified.ok, verified.fault
        seen["killed" if code else "ended before"] += 1
        seen["of these closed"] += bool(found and code)
        began = time.perf_counter()
        assert close(where, name) == bool(found)
        if not found:
            took = [*took[-9:], time.perf_counter() - began]
        with Ledger(where) as ledger:
            (one,) = ledger.events(round=name, kind="close")
            assert not found or one == found[0]
    found_last = command("verify", where)
    assert found_last["ok"], found_last
    with Ledger(where) as ledger:
        verified = ledger.verify()
        assert verified.closed == verified.rounds == number + 4
    return {**seen, "a close takes": f"{1000 * median(took):.0f} ms"}


def race(where: str, rounds: int, processes: int = 4) -> dict[str, Any]:
    """Let several processes run ``close`` at the same time: one pays, the others show what it paid."""
    command("init", where, "--issuer", "x")
    for number in range(rounds):
        prepare(where, str(number))
        start = time.monotonic() + 0.1

        def close_then(start: float = start, number: int = number) -> None:
            time.sleep(max(start - time.monotonic(), 0))
            os._exit(20 + close(where, str(number)))

        codes = sorted(ended(pid) for pid in [apart(close_then) for _ in range(processes)])
        assert codes == [20] + [21] * (processes - 1), codes
    with Ledger(where) as ledger:
        verified = ledger.verify()
        assert verified.ok, verified.fault
        assert verified.closed == rounds
    return {"rounds that one of four processes closed": rounds}


def main(kind: str, kills: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, places(kind) as place:
        os.chdir(folder)
        rows, val = make_tables()
        pacsv.write_csv(val, "val.csv")
        for seller in SELLERS:
            pacsv.write_csv(rows.filter(pc.equal(rows["seller"], seller)), f"{seller}.csv")
        try:
            return {**kill_loop(place(), kills, 1), **race(place(), max(kills // 20, 1))}
        finally:
            os.chdir(Path(folder).parent)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
