"""The long runs of ``make soak``: the checks of the test suite, many times over, with what was seen.

``python soak.py [minutes]`` spends about that long on free processors; 10 unless told otherwise. Exits with an error at
the first failure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import postgres
from reliability import ALONE, can_have_disks

TESTS = Path(__file__).parent


def cluster(kind: str) -> dict[str, Any]:
    """Let a real cluster run in a process of its own."""
    run = subprocess.run([sys.executable, str(TESTS / "cluster_runs.py"), kind], capture_output=True, text=True)
    if run.returncode:
        raise AssertionError(run.stderr)
    report: dict[str, Any] = json.loads(next(line for line in run.stdout.splitlines() if line.startswith("{")))
    return {name: report[name] for name in ("a worker killed", "all workers killed", "checkpoints")}


def apart(module: str, work: str, *before: str) -> dict[str, Any]:
    """Let a process of its own do it, so that it starts from fresh memory and without threads."""
    code = f"import json; from pathlib import Path; import {module}; print(json.dumps({module}.{work}))"
    run = subprocess.run([*before, sys.executable, "-c", code], cwd=TESTS, capture_output=True, text=True)
    if run.returncode:
        raise AssertionError(run.stderr)
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("minutes", type=float, nargs="?", default=10.0)
    share = parser.parse_args().minutes / 10
    times = lambda count: max(int(count * share), 1)  # noqa: E731
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def place(what: str) -> str:
            (folder / what).mkdir()
            return f"Path({str(folder / what)!r})"

        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "killed at random instants": lambda: apart("reliability", f"kill_loop({place('kills')}, {times(300)}, 1)"),
            "killed early": lambda: apart("reliability", f"kill_loop({place('early')}, {times(100)}, 2, 0.1)"),
            "power lost at every instant": lambda: apart("reliability", f"power_losses({place('power')}, every=3)"),
            "damaged checkpoints": lambda: apart("fuzz_runs", f"fuzz_checkpoint({place('fuzz')}, {times(100)}, 5)"),
            "damaged results": lambda: apart("fuzz_runs", f"fuzz_results({place('results')}, {times(2000)}, 6)"),
            "interrupted": lambda: apart("load_runs", f"interrupts({times(50)}, 7, {place('interrupts')})"),
            "model shared by threads": lambda: apart("load_runs", f"shared_model(8, {times(30)})"),
            "memory after many calls": lambda: apart("load_runs", f"many_calls({times(5000)})"),
        }
        for kind, reason in (("sqlite", ""), ("postgres", postgres.missing())):
            if reason:
                print(f"not done: {reason}")
            else:
                for what, module in (("rounds of a ledger", "ledger_runs"), ("market close", "market_runs")):
                    parts[f"{what}, {kind}"] = lambda kind=kind, module=module: apart(
                        module, f"main({kind!r}, {times(300)})"
                    )
        if can_have_disks():
            parts["disk full"] = lambda: apart("reliability", f"full_disk({place('disk')})", *ALONE)
        for kind, module in (("dask", "distributed"), ("ray", "ray")):
            if find_spec(module) is None:
                print(f"not done: {kind} is not installed (pip install '.[{kind}]')")
            else:
                parts[f"{kind} {version(module)}, 2 workers"] = lambda kind=kind: cluster(kind)
        print(
            f"shapshift {version('shapshift')}, Python {platform.python_version()}, NumPy {version('numpy')}, "
            f"Numba {version('numba')}, {platform.system()} {platform.machine()}, {os.cpu_count()} processors"
        )
        for what, work in parts.items():
            began = time.perf_counter()
            found = work()
            seen = [
                f"{count:,} {name}" if isinstance(count, int) else f"{name}: {count}" for name, count in found.items()
            ]
            print(f"ok  {time.perf_counter() - began:6.1f} s  {what}: {'; '.join(seen)}", flush=True)
    print("All of it ended with the bytes of runs that nobody disturbed.")


if __name__ == "__main__":
    main()
