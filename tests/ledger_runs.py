"""Closing rounds of a ledger in processes that are killed, and in several at once.

``python ledger_runs.py sqlite 300`` (or ``postgres``) prints one JSON object; test_ledger.py and soak.py use it too.
"""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from postgres import schema, server

from shapshift.exceptions import LedgerError
from shapshift.market.ledger import Ledger, digest_of

BUDGET = 100_00
TOLD = 3


def close_round(where: str, name: str, size: int = 300_000) -> None:
    """Pay a round, with results that take a while to write."""
    data = random.Random(name).randbytes(size)
    results = {digest_of(part): part for part in (data, data[::-1], data[1:])}
    paid = {"payments": [["Ann", 60_00], ["Bob", 30_00]], "reserve": 0, "unallocated": 10_00, "budget": BUDGET}
    with Ledger(where) as ledger:
        ledger.append("close", paid, round=name, blobs=results)


def apart(work: Callable[[], object]) -> int:
    """Start a process that does it; it ends with 0, with TOLD where the ledger refused, or with 1."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work()
        code = 0
    except LedgerError as error:
        code = TOLD if "cannot be done twice" in str(error) else 1
    finally:
        os._exit(code)


def ended(pid: int) -> int:
    """Wait for a process; its exit code, or minus the signal that ended it."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill_loop(where: str, kills: int, seed: int) -> dict[str, Any]:
    """Kill ``close`` at random instants: every round is closed once or not at all, and can be closed afterwards."""
    rng = random.Random(seed)
    Ledger.create(where).close()
    took = []
    for trial in range(3):
        with Ledger(where) as ledger:
            ledger.append("open", {"budget": BUDGET}, round=f"trial {trial}")
        began = time.perf_counter()
        assert ended(apart(lambda trial=trial: close_round(where, f"trial {trial}"))) == 0
        took.append(time.perf_counter() - began)
    seen = {"killed": 0, "of these closed": 0, "ended before": 0}
    number = 0
    while seen["killed"] < kills:
        number += 1
        name = f"round {number}"
        with Ledger(where) as ledger:
            ledger.append("open", {"budget": BUDGET}, round=name)
        pid = apart(lambda name=name: close_round(where, name))
        time.sleep(rng.uniform(0, 1.1 * min(took)))
        os.kill(pid, signal.SIGKILL)
        code = ended(pid)
        assert code in (0, -signal.SIGKILL), code
        with Ledger(where) as ledger:
            if where.startswith("postgresql"):
                wait_until_idle(ledger)
            found = [event for event in ledger.events(round=name) if event.kind == "close"]
            assert len(found) <= 1
            if number % max(kills // 10, 1) == 0:
                verified = ledger.verify()
                assert verified.ok, verified.fault
            assert found or code, "a round that was closed is open again"
        seen["killed" if code else "ended before"] += 1
        seen["of these closed"] += bool(found and code)
        # Whoever repeats the command closes the round, or is told that it is closed.
        assert ended(apart(lambda name=name: close_round(where, name))) == (TOLD if found else 0)
    with Ledger(where) as ledger:
        closed = [event.round for event in ledger.events(kind="close")]
        assert len(closed) == len(set(closed)) == number + 3
        assert closed == ledger.rounds()
        verified = ledger.verify()
        assert verified.ok, verified.fault
        # None of a close that was killed: such a blob would be named by no event.
        assert verified.blobs == 3 * (number + 3)
    return {**seen, "a close takes": f"{1000 * sum(took) / 3:.0f} ms"}


def wait_until_idle(ledger: Ledger) -> None:
    """Wait until the server has seen that a client is gone: it may be at a statement that it received before."""
    with ledger._database.writing():
        pass


def race(where: str, rounds: int, processes: int = 4) -> dict[str, Any]:
    """Let several processes close one round at the same time: one does, the others are told."""
    Ledger.create(where).close()
    for number in range(rounds):
        with Ledger(where) as ledger:
            ledger.append("open", {"budget": BUDGET}, round=f"round {number}")
        start = time.monotonic() + 0.1

        def close_then(start: float = start, number: int = number) -> None:
            time.sleep(max(start - time.monotonic(), 0))
            close_round(where, f"round {number}", 10_000)

        codes = sorted(ended(pid) for pid in [apart(close_then) for _ in range(processes)])
        assert codes == [0] + [TOLD] * (processes - 1), codes
    with Ledger(where) as ledger:
        verified = ledger.verify()
        assert verified.ok, verified.fault
        assert verified.closed == rounds
    return {"rounds that one of four processes closed": rounds}


def main(kind: str, kills: int) -> dict[str, Any]:
    with places(kind) as place:
        return {**kill_loop(place(), kills, 1), **race(place(), max(kills // 10, 1))}


@contextmanager
def places(kind: str) -> Any:
    """Yield a function that names a new place for a ledger."""
    with ExitStack() as stack:
        if kind == "sqlite":
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            yield lambda: str(Path(folder, f"{time.monotonic_ns()}.db"))
        else:
            url = stack.enter_context(server())
            yield lambda: stack.enter_context(schema(url))


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
