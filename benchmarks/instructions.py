"""Count instructions and cache misses instead of seconds: what a noisy machine cannot disturb.

Each piece of work runs under Valgrind's Cachegrind, which counts every instruction and simulates the caches, and again
without the work; the difference, divided by the number of pairs, is what a pair costs. Valgrind knows no AVX-512, so
kernels are compiled for AVX2 here, and NumPy's sort and BLAS choose their AVX2 code by themselves: ratios between the
rows hold for such a processor. One thread.

    python benchmarks/instructions.py              # half an hour
    python benchmarks/instructions.py --json out.json
"""

from __future__ import annotations

import argparse
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
    "exact, N=10,000": (10_000, 32),
    "np.argsort": (10_000, 32),
    "exact, N=100,000": (100_000, 16),
    "certified, N=100,000": (100_000, 64),
    "float32 GEMM": (100_000, 64),
}
# Valgrind stands in for a processor of this kind.
TARGET = {"NUMBA_CPU_NAME": "haswell", "OPENBLAS_CORETYPE": "Haswell", "OPENBLAS_NUM_THREADS": "1"}
CACHES = ("--D1=32768,8,64", "--LL=33554432,16,64")
COUNTED = {"instructions": "I refs", "first-level misses": "D1  misses", "last-level misses": "LLd misses"}


def run_once(name: str, repeats: int) -> None:
    """Do the work of a name so many times; with 0, everything but the work."""
    import numpy as np

    n_train, n_val = WORK[name]
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(n_train, FEATURES)), rng.normal(size=(n_val, FEATURES))
    y, y_val = rng.integers(0, 2, n_train), rng.integers(0, 2, n_val)
    if name == "np.argsort":
        rows = X_val @ X.T
        for _ in range(repeats):
            for row in rows:
                np.argsort(row)
    elif name == "float32 GEMM":
        left, right, product = X_val.astype(np.float32), X.astype(np.float32), np.empty((n_val, n_train), np.float32)
        for _ in range(repeats):
            np.dot(left, right.T, out=product)
    else:
        value = engine_run(X, y, X_val, y_val, certified=name.startswith("certified"))
        value(2)  # loads the kernels
        for _ in range(repeats):
            value(n_val)


def engine_run(X: Any, y: Any, X_val: Any, y_val: Any, *, certified: bool) -> Callable[[int], None]:
    """Return what values the first points; below the estimator, because importing scikit-learn here takes minutes."""
    import numpy as np

    from shapshift.certified import draw_sample, run_certified
    from shapshift.coefficients import rank_table
    from shapshift.distances import index_rows, tile_filler
    from shapshift.engine import Task, run_task

    index, options = index_rows(X, "euclidean"), {"matrix": False, "n_jobs": 1, "max_memory": None, "progress": False}
    sample = draw_sample(index)

    def value(n_val: int) -> None:
        points = X_val[:n_val]
        task = Task(
            fill=tile_filler(index, points),
            codes=y.astype(np.int32),
            targets=y_val[:n_val].astype(np.int32),
            n_classes=2,
            table=rank_table(len(X), 5, "shapley", "soft"),
            average_ties=True,
            groups=np.zeros(n_val, dtype=np.int64),
            n_groups=0,
            n_nearest=0,
            reference=np.empty((n_val, 0), dtype=np.int64),
        )
        if certified:
            run_certified(task, index, points, sample, tol=1e-3, **options)
        else:
            run_task(task, **options)

    return value


def count(name: str, repeats: int, environment: dict[str, str]) -> dict[str, int]:
    """Count what one process does."""
    with tempfile.TemporaryDirectory() as folder:
        command = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *CACHES,
                   f"--cachegrind-out-file={folder}/counts", sys.executable, __file__, "--work", name,
                   "--repeats", str(repeats)]  # fmt: skip
        ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode:
        raise RuntimeError(f"valgrind ended with {ran.returncode}: {ran.stderr[-2000:]}")
    found = {key: re.search(rf"{label}:\s+([\d,]+)", ran.stderr) for key, label in COUNTED.items()}
    return {key: int(match[1].replace(",", "")) for key, match in found.items() if match}


def measure() -> dict[str, dict[str, float]]:
    """Count all pieces of work; values are per pair of training row and validation point."""
    results: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, **TARGET, "NUMBA_CACHE_DIR": cache}
        for name, (n_train, n_val) in WORK.items():
            # Compiled outside, or the compiler would be counted (and take an hour under Valgrind).
            compiled = [sys.executable, __file__, "--work", name, "--repeats", "1"]
            subprocess.run(compiled, env=environment, check=True)
            without, once = (count(name, repeats, environment) for repeats in (0, 1))
            results[name] = {key: (once[key] - without[key]) / (n_train * n_val) for key in once}
            print(f"{name:24}" + "".join(f"{results[name][key]:12.2f}  {key}" for key in results[name]), flush=True)
    return results


def main() -> None:
    """Run it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="also write the counts to this file")
    parser.add_argument("--work", choices=WORK, help=argparse.SUPPRESS)
    parser.add_argument("--repeats", type=int, default=1, help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.work:
        run_once(arguments.work, arguments.repeats)
        return
    if shutil.which("valgrind") is None:
        sys.exit("valgrind is not installed: on Debian, apt-get install valgrind")
    results = measure()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
