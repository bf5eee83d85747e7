"""Speed and memory of the exact engine, as ratios inside one run. ``make bench`` prints the table."""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.spatial.distance import cdist

from shapshift import KNNShapley

FEATURES = 32


def arrays(n_train: int, n_val: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    return (
        rng.normal(size=(n_train, FEATURES)),
        rng.integers(0, 2, n_train),
        rng.normal(size=(n_val, FEATURES)),
        rng.integers(0, 2, n_val),
    )


def seconds(function: Callable[[], object]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def compare(n_train: int, n_val: int, bar: float, repeats: int = 5) -> tuple[str, ...]:
    X, y, X_val, y_val = arrays(n_train, n_val)
    model = KNNShapley(n_jobs=-1, progress=False).fit(X, y)
    model.value(X_val[:8], y_val[:8])  # loads the compiled kernels
    # np.argsort gets distances that are already there, a slice at a time to bound its memory. The two alternate, and
    # the best of each counts, so that another process on the machine disturbs both alike.
    step = max(1, 32_000_000 // n_train)
    whole, sorting = float("inf"), float("inf")
    for _ in range(repeats):
        whole = min(whole, seconds(lambda: model.value(X_val, y_val)))
        once = 0.0
        for start in range(0, n_val, step):
            distances = cdist(X_val[start : start + step], X)
            once += seconds(lambda distances=distances: np.argsort(distances, axis=1))
        sorting = min(sorting, once)
    return (
        f"exact value, N={n_train:,} m={n_val:,}",
        f"{whole:.2f} s",
        f"{n_train * n_val / whole / 1e6:.0f} M pairs/s",
        f"{sorting / whole:.1f} x np.argsort",
        f"at least {bar:g} x",
        "yes" if sorting / whole >= bar else "NO",
    )


def peak_memory(n_train: int, n_val: int) -> None:
    X, y, X_val, y_val = arrays(n_train, n_val)
    start = time.perf_counter()
    KNNShapley(n_jobs=-1, progress=False).fit(X, y).value(X_val, y_val)
    print(high_water_mark(), time.perf_counter() - start)


def high_water_mark() -> int:
    # Where /proc has it: a child's ru_maxrss begins at the size of the process that started it.
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def in_a_process(*arguments: str) -> list[float]:
    done = subprocess.run([sys.executable, __file__, *arguments], capture_output=True, text=True, check=True)
    return [float(word) for word in done.stdout.split()]


def memory_row(n_train: int, n_val: int, bar: float) -> tuple[str, ...]:
    peak, duration = in_a_process("--peak", str(n_train), str(n_val))
    return (
        f"peak memory, N={n_train:,} m={n_val:,}",
        f"{duration:.1f} s",
        f"{n_train * n_val / duration / 1e6:.0f} M pairs/s",
        f"{peak / 1e9:.2f} GB",
        f"below {bar:g} GB",
        "yes" if peak / 1e9 < bar else "NO",
    )


def start_up_row() -> tuple[str, ...]:
    code = (
        "import time; s = time.perf_counter()\n"
        "from shapshift import KNNShapley\n"
        "KNNShapley().fit([[0.], [1.]], [0, 1]).value([[0.]], [0])\n"
        "print(time.perf_counter() - s)"
    )

    def run(**environment: str) -> float:
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **environment},
        )
        return float(done.stdout)

    with tempfile.TemporaryDirectory() as empty:
        compiling = run(NUMBA_CACHE_DIR=empty)
        cached = run(NUMBA_CACHE_DIR=empty)
    return (
        "import and first value, new process",
        f"{cached:.1f} s",
        "",
        f"{compiling / cached:.1f} x a cold cache",
        "cached on disk",
        "yes" if compiling > 2 * cached else "NO",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peak", nargs=2, type=int, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.peak:
        peak_memory(*chosen.peak)
        return
    table = Table(
        "what", "time", "rate", "ratio or peak", "bar", "met", title=f"shapshift, {os.cpu_count()} cores, d=32"
    )
    for row in (
        compare(10_000, 2_000, bar=5),
        compare(1_000_000, 64, bar=3),
        memory_row(1_000_000, 1_000, bar=1.5),
        start_up_row(),
    ):
        table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
