"""Count instructions and cache misses, which a noisy machine does not affect, instead of seconds.

Each task runs under Valgrind's Callgrind, which is switched on only for the task, counts every instruction and
simulates the caches. Valgrind does not support AVX-512, so kernels are compiled for AVX2, and NumPy's sort and BLAS
also use AVX2: ratios between the rows hold for such a processor. One thread. Needs valgrind with its headers and a C
compiler.

    python benchmarks/instructions.py              # some minutes
    python benchmarks/instructions.py --json out.json
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

FEATURES = 32
WORK = {
    # name: (training rows, validation points)
    "np.argsort, N=10,000": (10_000, 640),
    "exact, N=10,000": (10_000, 640),
    "np.argsort, N=1,000,000": (1_000_000, 16),
    "exact, N=1,000,000": (1_000_000, 16),
    "float32 GEMM, N=100,000": (100_000, 64),
    "truncated, N=100,000": (100_000, 640),
}
# Valgrind simulates a processor of this kind, with the caches of one core of the machine in docs/benchmarks.md.
TARGET = {"NUMBA_CPU_NAME": "haswell", "OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=33554432,16,64")
SWITCH = """#include <valgrind/callgrind.h>
void start(void) { CALLGRIND_START_INSTRUMENTATION; }
void stop(void) { CALLGRIND_STOP_INSTRUMENTATION; }
"""


def prepare(name: str) -> Callable[[], object]:
    """Return a task by name, with all its inputs loaded and prepared."""
    import numpy as np

    n_train, n_val = WORK[name]
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(n_train, FEATURES)), rng.normal(size=(n_val, FEATURES))
    y, y_val = rng.integers(0, 2, n_train), rng.integers(0, 2, n_val)
    kind = name.split(",")[0]
    if kind == "np.argsort":
        distances = X_val @ X.T
        return lambda: [np.argsort(row) for row in distances]
    if kind == "float32 GEMM":
        left, right = X_val.astype(np.float32), X.astype(np.float32)
        product = np.empty((n_val, n_train), np.float32)
        return lambda: np.dot(left, right.T, out=product)
    from shapshift import KNNShapley

    model: Any = KNNShapley(method=kind, progress=False).fit(X, y)
    model.value(X_val[:2], y_val[:2])  # loads the kernels
    return lambda: model.value(X_val, y_val)


def run_once(name: str, switch: str | None) -> None:
    """Run a task by name, with the counters on if there is a switch."""
    work = prepare(name)
    counters = None if switch is None else ctypes.CDLL(switch)
    if counters is not None:
        counters.start()
    work()
    if counters is not None:
        counters.stop()


def count(name: str, switch: str, environment: dict[str, str]) -> dict[str, int]:
    """Count the events of a task."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=callgrind", "--cache-sim=yes", "--instr-atstart=no", *CACHES,
                   f"--callgrind-out-file={folder}/counts", sys.executable, __file__, "--work", name,
                   "--switch", switch]  # fmt: skip
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"valgrind ended with {ran.returncode}: {ran.stderr[-2000:]}")
    events, collected = (
        re.findall(rf"{label}\s*:\s+(.+)", ran.stderr)[-1].split() for label in ("Events", "Collected")
    )
    by_name = dict(zip(events, map(int, collected), strict=True))
    return {
        "instructions": by_name["Ir"],
        "first-level misses": by_name["D1mr"] + by_name["D1mw"],
        "last-level misses": by_name["DLmr"] + by_name["DLmw"],
    }


def measure(only: list[str]) -> dict[str, dict[str, float]]:
    """Count the events of all tasks; results are per pair of training row and validation point."""
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        source, switch = Path(folder, "switch.c"), Path(folder, "switch.so")
        source.write_text(SWITCH)
        subprocess.run(["cc", "-O1", "-shared", "-fPIC", source, "-o", switch], check=True)
        environment = {**os.environ, **TARGET, "NUMBA_CACHE_DIR": folder}
        for name in only:
            n_train, n_val = WORK[name]
            # Compiled outside Valgrind, where it would take an hour.
            subprocess.run([sys.executable, __file__, "--work", name], env=environment, check=True)
            counts = count(name, str(switch), environment)
            results[name] = {key: number / (n_train * n_val) for key, number in counts.items()}
            print(f"{name:26}" + "".join(f"{number:9.2f} {key}" for key, number in results[name].items()), flush=True)
    return results


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=WORK, default=list(WORK), help="count only these tasks")
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    parser.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--switch", help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.work:
        run_once(arguments.work, arguments.switch)
        return
    for program in ("valgrind", "cc"):
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed: on Debian, apt-get install valgrind gcc")
    results = measure(arguments.only)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
