"""Speed and memory as ratios within one run, since machines differ and are never quiet. For ``make bench``.

What is compared takes turns, and the best turn of each counts, so that another process disturbs all alike.

    python benchmarks/run.py --json out.json --only features      # some rows; others that the file has are kept
"""

import argparse
import datetime
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest import mock

import numpy as np
from numba.core.codegen import JITCPUCodegen
from rich.console import Console
from rich.table import Table
from scipy.spatial.distance import cdist
from threadpoolctl import threadpool_limits

import shapshift
from shapshift import KNNShapley, audit_shift, owner_values
from shapshift._numba import kernel

FEATURES = 32
MANY_FEATURES = (32, 128, 384, 768, 1536)  # the last three are usual lengths of embeddings
# Most that a method may take, in times of the float32 matrix product, by the number of features.
PRODUCT_BARS = {"exact": {384: 2.8}, "truncated": {384: 2.0, 768: 1.6}}
# What NumPy chooses its sort by, as older and newer releases name it; without these it is the AVX2 form.
AVX512 = "AVX512F AVX512CD AVX512_SKX AVX512_CLX AVX512_CNL AVX512_ICL AVX512_SPR X86_V4"
GEMM_POINTS = 64  # validation points in one matrix product


@dataclass(frozen=True)
class Row:
    what: str
    seconds: float
    pairs: int
    ratio: float
    against: str
    bar: str
    met: bool
    note: str = ""

    @property
    def rate(self) -> float:
        return self.pairs / self.seconds if self.pairs else float("nan")


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


def processor_seconds(function: Callable[[], object]) -> float:
    """What other work on the machine disturbs least; for work on one thread."""
    start = time.process_time()
    function()
    return time.process_time() - start


def in_turns(repeats: int, *functions: Callable[[], float]) -> list[float]:
    """Best time of each function; a function returns its time in seconds."""
    best = [float("inf")] * len(functions)
    for _ in range(repeats):
        best = [min(old, function()) for old, function in zip(best, functions, strict=True)]
    return best


def warm(model: KNNShapley, X_val: np.ndarray, y_val: np.ndarray) -> KNNShapley:
    model.value(X_val[:64], y_val[:64])  # loads the compiled kernels
    return model


def sort_seconds(X: np.ndarray, X_val: np.ndarray) -> float:
    """Time of np.argsort for given distances, in slices to bound its memory."""
    step = max(1, 32_000_000 // X.shape[0])
    total = 0.0
    for start in range(0, X_val.shape[0], step):
        distances = cdist(X_val[start : start + step], X)
        total += seconds(lambda distances=distances: np.argsort(distances, axis=1))
    return total


def avx2_sort_seconds(n_train: int, n_val: int) -> float:
    """What NumPy's sort takes in its AVX2 form: some processors have a slow AVX-512 form."""
    command = [sys.executable, __file__, "--sort", str(n_train), str(n_val)]
    environment = {**os.environ, "NPY_DISABLE_CPU_FEATURES": AVX512}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout)


def exact_row(n_train: int, n_val: int, bar: float, repeats: int) -> Row:
    X, y, X_val, y_val = arrays(n_train, n_val)
    model = warm(KNNShapley(n_jobs=-1, progress=False).fit(X, y), X_val, y_val)
    whole, sorting, avx2 = in_turns(
        repeats,
        lambda: seconds(lambda: model.value(X_val, y_val)),
        lambda: sort_seconds(X, X_val),
        lambda: avx2_sort_seconds(n_train, n_val),
    )
    ratio = sorting / whole
    return Row(
        f"exact, N={n_train:,} m={n_val:,}", whole, n_train * n_val, ratio, "times as fast as np.argsort",
        f"at least {bar:g}", ratio >= bar, f"{avx2 / whole:.2f} times as fast as its AVX2 form",
    )  # fmt: skip


def growth_row(small: Row, large: Row, bar: float) -> Row:
    ratio = small.rate / large.rate
    return Row(
        "exact, cost of a pair at N=1,000,000", large.seconds, large.pairs, ratio, "times that at N=10,000",
        f"at most {bar:g}", ratio <= bar,
    )  # fmt: skip


def features_rows(n_train: int, n_val: int, n_features: int, repeats: int) -> list[Row]:
    """Exact and truncated values of float32 features beside the float32 product alone, and the check of both.

    Processor time, on one thread each.
    """
    rng = np.random.default_rng(0)
    X, X_val = (rng.standard_normal((n, n_features), dtype=np.float32) for n in (n_train, n_val))
    y, y_val = rng.integers(0, 2, n_train), rng.integers(0, 2, n_val)
    product = np.empty((GEMM_POINTS, n_train), dtype=np.float32)

    def products() -> None:
        for start in range(0, n_val, GEMM_POINTS):
            part = X_val[start : start + GEMM_POINTS]
            np.dot(part, X.T, out=product[: part.shape[0]])

    models = {name: warm(KNNShapley(method=name, progress=False).fit(X, y), X_val, y_val) for name in PRODUCT_BARS}
    with threadpool_limits(1):
        gemm, *took = in_turns(
            repeats,
            lambda: processor_seconds(products),
            *(lambda model=model: processor_seconds(lambda: model.value(X_val, y_val)) for model in models.values()),
        )
    exact, truncated = (model.value(X_val, y_val) for model in models.values())
    error = np.abs(truncated.values - exact.values)
    right = {
        "exact": largest_error(X, y, X_val[:8], y_val[:8], models["exact"]) < 1e-12,
        "truncated": bool((error <= truncated.error_bound).all()),
    }
    size = f"N={n_train:,} m={n_val:,} d={n_features:,}"
    rows = [Row(f"float32 product, {size}", gemm, n_train * n_val, 1.0, "times itself", "", True)]
    for (name, bars), whole in zip(PRODUCT_BARS.items(), took, strict=True):
        ratio, bar = whole / gemm, bars.get(n_features, float("inf"))
        rows.append(
            Row(
                f"{name}, {size}", whole, n_train * n_val, ratio, "times the float32 product",
                f"at most {bar:g}" if n_features in bars else "", right[name] and ratio <= bar,
            )
        )  # fmt: skip
    return rows


def largest_error(X: np.ndarray, y: np.ndarray, X_val: np.ndarray, y_val: np.ndarray, model: KNNShapley) -> float:
    """Largest difference from the definition: distances in float64, sorted, and the recursion over ranks."""
    k, c = int(model.n_neighbors), model._rank_table(len(y)).c
    total = np.zeros(len(y))
    for point, label in zip(X_val, y_val, strict=True):
        order = np.argsort(np.square(X.astype(np.float64) - point).sum(axis=1), kind="stable")
        match = (y[order] == label).astype(np.float64)
        falls = np.append(match[1:] * (c[1:] - c[:-1]), 0.0)
        total[order] += match * c + np.cumsum(falls[::-1])[::-1]
    found = model.value(X_val, y_val).values
    difference = found - total / len(y_val)
    assert k <= len(y)
    return float(np.ptp(difference))  # beta, the same for all rows, is left out


def audit_row(levels: int, repeats: int, bar: float) -> Row:
    X, y, X_val, y_val = arrays(10_000, 1_000)
    model = warm(KNNShapley(n_jobs=-1, progress=False).fit(X, y), X_val, y_val)
    noise = np.linspace(0.1, 2.0, levels)

    def singly() -> None:
        for _ in range(levels * repeats):
            model.value(X_val, y_val)

    whole, single = in_turns(
        2,
        lambda: seconds(lambda: audit_shift(model, X_val, y_val, noise=list(noise), repeats=repeats, progress=False)),
        lambda: seconds(singly),
    )
    ratio = whole / single
    return Row(
        f"audit, {levels} levels x {repeats} repeats, N=10,000 m=1,000", whole, levels * repeats * 10**7, ratio,
        f"times {levels * repeats} valuations", f"at most {bar:g}", ratio <= bar,
    )  # fmt: skip


@kernel
def add_values(tile, cells, squares, sums):
    """As :func:`shapshift.kernels.rank.add_rows`, without squares."""
    for p in range(tile.shape[0]):
        out, row = sums[cells[p]], tile[p]
        for i in range(row.size):
            out[i] += row[i]


def errors_row(n_train: int, n_val: int, bar: float, repeats: int) -> Row:
    """Cost of sampling errors in a valuation: sums of squares, stored rows, and their evaluation."""
    X, y, X_val, y_val = arrays(n_train, n_val)
    model = warm(KNNShapley(n_jobs=-1, progress=False).fit(X, y), X_val, y_val)

    def without() -> None:
        with ExitStack() as patches:
            for place, replacement in (
                ("engine.exact.add_rows", add_values),
                ("engine.tasks.spread_of_points", lambda *given: None),
                ("knn.base.sampled_count", lambda *given: 0),
            ):
                patches.enter_context(mock.patch(f"shapshift.{place}", replacement))
            assert model.value(X_val, y_val).standard_error is None

    without()
    whole, plain = in_turns(repeats, lambda: seconds(lambda: model.value(X_val, y_val)), lambda: seconds(without))
    ratio = whole / plain
    return Row(
        f"exact with sampling errors, N={n_train:,} m={n_val:,}", whole, n_train * n_val, ratio,
        "times the same without", f"at most {bar:g}", ratio <= bar,
    )  # fmt: skip


def pooled_row(n_train: int, n_val: int, bar: float, repeats: int) -> Row:
    X, y, X_val, y_val = arrays(n_train, n_val)

    def fresh() -> KNNShapley:  # excludes data that a model caches of its training rows
        return warm(KNNShapley(n_jobs=-1, progress=False).fit(X, y), X_val, y_val)

    def pooled() -> float:
        model = fresh()
        return seconds(lambda: model.value(X_val, y_val, pool="train"))

    def two() -> float:
        model = fresh()
        return seconds(lambda: (model.value(X_val, y_val), model.value(X, y, exclude=np.arange(n_train))))

    whole, plain = in_turns(repeats, pooled, two)
    ratio = whole / plain
    return Row(
        f"pooled, N={n_train:,} m={n_val:,}", whole, n_train * (n_train + n_val), ratio,
        "times two plain ones of as many points", f"at most {bar:g}", ratio <= bar,
    )  # fmt: skip


def explain_row(n_train: int, n_val: int, n_rows: int, bar: float, repeats: int) -> Row:
    X, y, X_val, y_val = arrays(n_train, n_val)
    model = warm(KNNShapley(n_jobs=-1, progress=False).fit(X, y), X_val, y_val)
    asked = np.random.default_rng(1).choice(n_train, n_rows, replace=False)
    model.explain(X_val[:64], y_val[:64], asked)
    whole, plain = in_turns(
        repeats,
        lambda: seconds(lambda: model.explain(X_val, y_val, asked)),
        lambda: seconds(lambda: model.value(X_val, y_val)),
    )
    ratio = whole / plain
    return Row(
        f"explain {n_rows} rows, N={n_train:,} m={n_val:,}", whole, n_train * n_val, ratio, "times one valuation",
        f"at most {bar:g}", ratio <= bar,
    )  # fmt: skip


def owners_row(n_train: int, n_val: int, n_owners: int, more_owners: int, bar: float, repeats: int) -> Row:
    X, y, X_val, y_val = arrays(n_train, n_val)
    model = KNNShapley(n_jobs=-1, progress=False).fit(X, y)
    few, many = (np.random.default_rng(1).integers(0, number, n_train) for number in (n_owners, more_owners))
    owner_values(model, X_val[:2], y_val[:2], few, progress=False)
    base, whole = in_turns(
        repeats,
        lambda: seconds(lambda: owner_values(model, X_val, y_val, few, progress=False)),
        lambda: seconds(lambda: owner_values(model, X_val, y_val, many, progress=False)),
    )
    ratio = whole / base
    return Row(
        f"{more_owners:,} owners as players, N={n_train:,} m={n_val:,}", whole, n_train * n_val, ratio,
        f"times {n_owners:,} owners", f"at most {bar:g}", ratio <= bar, f"{whole / n_val * 1e3:.1f} ms per point",
    )  # fmt: skip


def peak_memory(n_train: int, n_val: int) -> None:
    X, y, X_val, y_val = arrays(n_train, n_val)
    start = time.perf_counter()
    KNNShapley(n_jobs=-1, progress=False).fit(X, y).value(X_val, y_val)
    print(high_water_mark(), time.perf_counter() - start)


def high_water_mark() -> int:
    # Read from /proc if possible: a child's ru_maxrss starts at the size of its parent.
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def memory_row(n_train: int, n_val: int, bar: float) -> Row:
    done = subprocess.run(
        [sys.executable, __file__, "--peak", str(n_train), str(n_val)], capture_output=True, text=True, check=True
    )
    peak, duration = (float(word) for word in done.stdout.split())
    return Row(
        f"peak memory, exact, N={n_train:,} m={n_val:,}", duration, n_train * n_val, peak / 1e9, "GB",
        f"below {bar:g}", peak / 1e9 < bar,
    )  # fmt: skip


def start_up_row() -> Row:
    code = (
        "import time; s = time.perf_counter()\n"
        "from shapshift import KNNShapley\n"
        "KNNShapley().fit([[0.], [1.]], [0, 1]).value([[0.]], [0])\n"
        "print(time.perf_counter() - s)"
    )

    def run(cache: str) -> float:
        environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
        return float(done.stdout)

    with tempfile.TemporaryDirectory() as empty:
        compiling, cached = run(empty), run(empty)
    return Row(
        "import and first value, new process", cached, 0, compiling / cached, "times as fast as with a cold cache",
        "above 2", compiling > 2 * cached,
    )  # fmt: skip


def sorting_rows() -> list[Row]:
    small, large = exact_row(10_000, 2_000, bar=8, repeats=7), exact_row(1_000_000, 64, bar=4, repeats=3)
    return [small, large, growth_row(small, large, bar=2.5)]


ROWS: dict[str, Callable[[], list[Row]]] = {
    "sorting": sorting_rows,
    **{f"features {d}": lambda d=d: features_rows(100_000, 256, d, repeats=4) for d in MANY_FEATURES},
    "errors": lambda: [errors_row(10_000, 2_000, bar=1.08, repeats=7)],
    "pooled": lambda: [pooled_row(10_000, 1_000, bar=1.2, repeats=3)],
    "explain": lambda: [
        explain_row(20_000, 2_000, 100, bar=1.2, repeats=5),
        explain_row(100_000, 1_000, 100, bar=1.2, repeats=5),
    ],
    "owners": lambda: [
        owners_row(100_000, 128, 100, 1_000, bar=10, repeats=3),
        owners_row(100_000, 64, 1_000, 5_000, bar=8, repeats=3),
    ],
    "audit": lambda: [audit_row(10, 20, bar=1.15)],
    "memory": lambda: [memory_row(1_000_000, 1_000, bar=1.5)],
    "start": lambda: [start_up_row()],
}


def vector_bits() -> int:
    """Width of the vectors that the kernels are compiled for."""
    features = str(JITCPUCodegen("width").magic_tuple()[2]).split(",")
    return 512 if "+avx512f" in features else 256 if "+avx" in features else 128


def processor() -> str:
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def as_table(rows: Sequence[Row]) -> Table:
    title = f"shapshift, {os.cpu_count()} cores of {processor()}, vectors of {vector_bits()} bits, d={FEATURES}"
    table = Table("what", "time", "pairs/s", "measured", "bar", "met", title=title)
    for row in rows:
        rate = f"{row.rate / 1e6:.0f} M" if row.pairs else ""
        table.add_row(
            row.what + (f"\n  {row.note}" if row.note else ""), f"{row.seconds:.2f} s", rate,
            f"{row.ratio:.2f} {row.against}", row.bar, "yes" if row.met else "NO",
        )  # fmt: skip
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peak", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--sort", nargs=2, type=int, help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--only", nargs="+", metavar="NAME", help=f"of {', '.join(ROWS)}; or how they begin")
    chosen = parser.parse_args()
    if chosen.peak:
        peak_memory(*chosen.peak)
        return
    if chosen.sort:
        X, _, X_val, _ = arrays(*chosen.sort)
        print(sort_seconds(X, X_val))
        return
    asked = [name for name in ROWS if chosen.only is None or name.startswith(tuple(chosen.only))]
    rows = [row for name in asked for row in ROWS[name]()]
    Console(width=150).print(as_table(rows))
    if chosen.json:
        about = {
            "shapshift": shapshift.__version__,
            "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
            "cores": os.cpu_count(),
            "processor": processor(),
            "vector_bits": vector_bits(),
            "system": platform.platform(),
            "numpy": np.__version__,
        }
        figures = {row.what: asdict(row) | {"rate": row.rate, "about": about} for row in rows}
        if chosen.only and chosen.json.exists():
            old = json.loads(chosen.json.read_text(encoding="utf-8"))
            kept = {row["what"]: {"about": old["about"]} | row for row in old["rows"]}
            figures = {what: figures.pop(what, row) for what, row in kept.items()} | figures
        chosen.json.write_text(
            json.dumps({"about": about, "rows": list(figures.values())}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
