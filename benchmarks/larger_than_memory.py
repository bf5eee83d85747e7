"""Time and peak memory of valuing training rows in files: write a Parquet dataset, and value it within a memory budget.

Each method runs in its own process. Peaks are sampled every 50 ms: total resident memory, and the part that the system
cannot reclaim (anonymous memory; the rest are pages of files and libraries).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from shapshift import KNNShapley

PARTS = 20


def write_data(folder: Path, n_train: int, n_val: int, d: int) -> None:
    """Write two overlapping classes with float32 features, in parts."""
    rng = np.random.default_rng(0)
    direction = rng.normal(size=d).astype(np.float32)
    (folder / "train").mkdir(parents=True, exist_ok=True)
    for k in range(PARTS + 1):
        n = n_val if k == PARTS else n_train // PARTS
        X = rng.standard_normal((n, d), dtype=np.float32)
        y = (X @ direction + 2 * rng.standard_normal(n, dtype=np.float32) > 0).astype(np.int64)
        table = pa.table({**{f"x{j:02d}": X[:, j] for j in range(d)}, "label": y})
        name = "val.parquet" if k == PARTS else f"train/part-{k:02d}.parquet"
        pq.write_table(table, folder / name, compression="none", use_dictionary=False, row_group_size=2**18)


class Peaks(threading.Thread):
    """Monitor of this process's memory."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.found = {"VmRSS": 0, "RssAnon": 0}

    def run(self) -> None:
        while True:
            with open("/proc/self/status") as status:
                for line in status:
                    name = line.split(":")[0]
                    if name in self.found:
                        self.found[name] = max(self.found[name], int(line.split()[1]) * 1024)
            time.sleep(0.05)


def measure(folder: Path, method: str, max_memory: str, n_jobs: int) -> None:
    """Fit and value; print time and memory as JSON."""
    peaks = Peaks()
    peaks.start()
    found: dict[str, object] = {}

    def note(name: str, started: tuple[float, float]) -> None:
        took = time.perf_counter() - started[0], time.process_time() - started[1]
        found[name] = {"wall": took[0], "cpu": took[1], **peaks.found}
        peaks.found.update({"VmRSS": 0, "RssAnon": 0})

    begun = time.perf_counter(), time.process_time()
    model = KNNShapley(method=method, max_memory=max_memory, n_jobs=n_jobs, progress=False, scratch=folder / "scratch")
    model.fit(folder / "train", "label")
    note("fit", begun)
    begun = time.perf_counter(), time.process_time()
    values = model.value(folder / "val.parquet", "label")
    note("value", begun)
    bound = values.error_bound
    found["bound"] = None if bound is None else float(bound.max() / values.values.std())
    np.save(folder / f"values-{method}.npy", values.values)
    print(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n-train", type=int, default=20_000_000)
    parser.add_argument("--n-val", type=int, default=1000)
    parser.add_argument("--features", type=int, default=32)
    parser.add_argument("--max-memory", default="3GB")
    parser.add_argument("--n-jobs", type=int, default=2)
    parser.add_argument("--methods", default="truncated,certified,exact")
    parser.add_argument("--folder", type=Path, help="folder for data and scratch files; it is kept")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.measure:
        measure(chosen.folder, chosen.measure, chosen.max_memory, chosen.n_jobs)
        return
    with tempfile.TemporaryDirectory() as temporary:
        folder = chosen.folder or Path(temporary)
        if not (folder / "val.parquet").exists():
            write_data(folder, chosen.n_train, chosen.n_val, chosen.features)
        (folder / "scratch").mkdir(exist_ok=True)
        title = f"N={chosen.n_train:,} m={chosen.n_val:,} d={chosen.features}, max_memory={chosen.max_memory}"
        table = Table("method", "step", "seconds", "processor seconds", "peak resident", "peak anonymous", title=title)
        exact = None
        for method in reversed(chosen.methods.split(",")):
            options = ["--max-memory", chosen.max_memory, "--n-jobs", str(chosen.n_jobs), "--folder", str(folder)]
            run = subprocess.run(
                [sys.executable, __file__, "--measure", method, *options], stdout=subprocess.PIPE, text=True, check=True
            )
            found = json.loads(run.stdout)
            for step in ("fit", "value"):
                it = found[step]
                memory = (f"{it[name] / 1e9:.2f} GB" for name in ("VmRSS", "RssAnon"))
                table.add_row(method if step == "fit" else "", step, f"{it['wall']:.0f}", f"{it['cpu']:.0f}", *memory)
            values = np.load(folder / f"values-{method}.npy")
            exact = values if method == "exact" else exact
            if found["bound"] is not None:
                error = "" if exact is None else f", largest error {np.abs(values - exact).max() / exact.std():.1g}"
                table.add_row("", f"bound {found['bound']:.1g} std{error}", "", "", "", "")
        Console(width=120).print(table)


if __name__ == "__main__":
    main()
