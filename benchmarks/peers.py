"""Speed of exact KNN-Shapley in other packages and in ours, on the same arrays. ``make bench-peers`` prints the table.

Each package has its own environment and its fastest settings on all processors. A package and shapshift take turns, and
the best turn of each counts; compare only ratios within one run. For slow packages m is small, so our time is mostly
the set-up of a valuation.
"""

import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

import shapshift
from shapshift import KNNShapley

FEATURES = 32
MANY_FEATURES = 384  # a usual length of embeddings
TIME_LIMIT = 600  # seconds for one run of a peer
OUR_TURN = 4  # most seconds for repeated runs of ours
BAR_PEER, BAR_ROWS, BAR_RATIO = "OpenDataVal", 10_000, 150

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Peer:
    name: str
    version: str
    # (training rows, validation points) for a few seconds each, optionally with the number of features.
    sizes: tuple[tuple[int, int] | tuple[int, int, int], ...]
    requires: tuple[str, ...]
    bare: tuple[str, ...] = ()  # installed after the others, without their declared dependencies
    pythons: tuple[str, ...] = ("3.11", "3.12")
    k: int = 5
    # Tolerance on values, in standard deviations of the values. Distances in float32 swap near neighbours.
    tolerance: float = 1e-9
    note: str = ""

    @property
    def runner(self) -> Path:
        return HERE / "peers" / f"run_{self.name.lower()}.py"


PEERS = (
    Peer(
        "pyDVL",
        "0.10.0",
        sizes=((10_000, 100), (1_000, 1_000), (10_000, 100, MANY_FEATURES)),
        requires=("pydvl==0.10.0", "numpy==1.26.4", "scipy==1.17.1", "scikit-learn==1.9.1", "joblib==1.6.0"),
        note="A process per core. Needs numpy below 2.",
    ),
    Peer(
        "OpenDataVal",
        "1.3.0",
        sizes=((BAR_ROWS, 2_000), (1_000, 2_000), (BAR_ROWS, 2_000, MANY_FEATURES)),
        requires=(
            "torch==2.13.0",
            "numpy==1.26.4",
            "pandas==2.3.3",
            "scikit-learn==1.7.2",
            "matplotlib==3.11.2",
            "requests==2.34.2",
            "tqdm==4.70.1",
        ),
        bare=("opendataval==1.3.0",),
        tolerance=1e-2,
        note="float32. Its pins no longer import together: newer ones, and stand-ins for geomloss, torchvision and "
        "transformers, which KNN-Shapley never calls. Batches of 2,048, not 32: a fifth faster.",
    ),
    Peer(
        "DataScope",
        "0.0.32",
        sizes=((10_000, 500), (1_000, 4_000), (10_000, 500, MANY_FEATURES)),
        requires=("datascope==0.0.32", "numpy==1.26.4", "pandas==2.3.3", "scipy==1.17.1", "scikit-learn==1.9.1"),
        k=1,
        tolerance=1e-4,  # sums in float32
        note="K = 1: above that it enumerates pairs of rows. Its utility without training rows set to 0.",
    ),
    Peer(
        "dattri",
        "0.3.0",
        sizes=((10_000, 10), (1_000, 50), (10_000, 10, MANY_FEATURES)),
        requires=("dattri==0.3.0", "torch==2.13.0", "numpy==2.4.6"),
        tolerance=1e-2,
        note="float32.",
    ),
    Peer(
        "shapiq",
        "1.8.0",
        sizes=((10_000, 100), (1_000, 500), (10_000, 100, MANY_FEATURES)),
        requires=("shapiq==1.8.0", "numpy==2.5.4", "scipy==1.18.1", "scikit-learn==1.9.1", "joblib==1.6.0"),
        pythons=("3.12", "3.13", "3.14"),
        note="A process per core. Needs Python 3.12.",
    ),
)


@dataclass
class Run:
    n_train: int
    n_val: int
    k: int
    seconds: float  # the peer's, as the next one
    rate: float  # pairs of a training row and a validation point, per second
    our_seconds: float
    our_rate: float
    ratio: float
    difference: float  # largest difference between the peer's values and ours
    std: float  # of our values
    agrees: bool
    features: int = FEATURES


@dataclass
class Result:
    name: str
    version: str
    note: str
    runs: list[Run] = field(default_factory=list)
    error: str = ""


def find_python(versions: tuple[str, ...]) -> str:
    for version in versions:
        candidates = [sys.executable, shutil.which(f"python{version}")]
        pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
        candidates += map(str, pyenv.glob(f"versions/{version}.*/bin/python"))
        ask = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2])"
        for python in filter(None, candidates):
            asked = subprocess.run([python, "-c", ask], capture_output=True, text=True, check=False)
            if asked.stdout.strip() == version:
                return python
    raise RuntimeError(f"needs Python {' or '.join(versions)}, and none was found: put one on the PATH")


def environment(peer: Peer, folder: Path) -> Path:
    """Return the peer's own interpreter; install the peer if it is missing."""
    place = folder / peer.name.lower()
    python, stamp = place / "bin" / "python", place / "installed.txt"
    wanted = "\n".join((*peer.requires, *peer.bare))
    if not stamp.exists() or stamp.read_text() != wanted:
        subprocess.run([find_python(peer.pythons), "-m", "venv", "--clear", place], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "install", "-q"]
        call([*pip, *peer.requires])
        if peer.bare:
            call([*pip, "--no-deps", *peer.bare])
        # Written last, so that an interrupted installation starts again.
        stamp.write_text(wanted)
    return python


def call(command: list[object], limit: float | None = None) -> None:
    # Settings of this interpreter are not meant for another one.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    words = list(map(str, command))
    try:
        done = subprocess.run(words, capture_output=True, text=True, env=clean, timeout=limit, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"took more than {limit:g} s") from None
    if done.returncode:
        lines = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        # pip prints the error first and advice last; Python prints the error last.
        errors = [line for line in lines if line.startswith("ERROR:")]
        raise RuntimeError((errors or lines[-1:] or [f"ended with status {done.returncode}"])[0][:300])


def compare(peer: Peer, python: Path | str, n_train: int, n_val: int, repeats: int, features: int = FEATURES) -> Run:
    rng = np.random.default_rng(0)
    X, X_val = rng.normal(size=(n_train, features)), rng.normal(size=(n_val, features))
    y, y_val = rng.integers(0, 2, n_train), rng.integers(0, 2, n_val)

    def ours() -> np.ndarray:
        model = KNNShapley(peer.k, utility="hard", n_jobs=-1, progress=False)
        return model.fit(X, y).value(X_val, y_val).values

    values = ours()  # and loads the compiled kernels
    seconds, our_seconds, difference = float("inf"), float("inf"), 0.0
    with tempfile.TemporaryDirectory() as folder:
        arrays, answer = Path(folder, "arrays.npz"), Path(folder, "answer.npz")
        np.savez(arrays, X=X, y=y, X_val=X_val, y_val=y_val, k=peer.k)
        for _ in range(repeats):
            call([python, peer.runner, arrays, answer], TIME_LIMIT)
            with np.load(answer) as file:
                once = float(file["seconds"])
                difference = max(difference, largest_difference(file["values"], values))
            seconds = min(seconds, once)
            our_seconds = min(our_seconds, mean_seconds(ours, min(once, OUR_TURN)))
    pairs, std = n_train * n_val, float(values.std())
    return Run(
        n_train,
        n_val,
        peer.k,
        seconds,
        pairs / seconds,
        our_seconds,
        pairs / our_seconds,
        seconds / our_seconds,
        difference,
        std,
        agrees=difference <= peer.tolerance * std,
        features=features,
    )


def mean_seconds(function: Callable[[], object], at_least: float) -> float:
    # Repeated for as long as the peer ran: on a busy machine the best of short runs would have an unfair advantage.
    start, count = time.perf_counter(), 0
    while count == 0 or time.perf_counter() - start < at_least:
        function()
        count += 1
    return (time.perf_counter() - start) / count


def largest_difference(theirs: np.ndarray, ours: np.ndarray) -> float:
    if theirs.shape != ours.shape:
        raise RuntimeError(f"returned values of shape {theirs.shape}, not {ours.shape}")
    # A NaN counts as a disagreement.
    return float(np.nan_to_num(np.abs(theirs - ours), nan=np.inf).max())


def measure(peer: Peer, folder: Path, repeats: int, log: Console) -> Result:
    result = Result(peer.name, peer.version, peer.note)
    try:
        log.print(f"{peer.name} {peer.version}: environment")
        python = environment(peer, folder)
        for n_train, n_val, *more in peer.sizes:
            features = more[0] if more else FEATURES
            log.print(f"{peer.name} {peer.version}: N={n_train:,} m={n_val:,} d={features}")
            result.runs.append(compare(peer, python, n_train, n_val, repeats, features))
    # If one package fails, the others are still measured.
    except Exception as error:
        result.error = str(error) or type(error).__name__
    return result


def bar(results: list[Result]) -> dict[str, object]:
    ratios = [
        run.ratio
        for r in results
        if r.name == BAR_PEER
        for run in r.runs
        if (run.n_train, run.features) == (BAR_ROWS, FEATURES)
    ]
    measured = ratios[0] if ratios else None
    return {
        "peer": BAR_PEER,
        "n_train": BAR_ROWS,
        "at_least": BAR_RATIO,
        "measured": measured,
        "met": measured is not None and measured >= BAR_RATIO,
    }


def build_table(results: list[Result]) -> Table:
    table = Table(
        title=f"Exact hard-utility KNN-Shapley, millions of pairs a second: shapshift {shapshift.__version__} and "
        f"others, {os.cpu_count()} cores",
        show_lines=True,
    )
    for name in ("peer", "N x m", "peer M/s", "ours M/s", "ratio", "largest difference\n(of the std)"):
        table.add_column(name, justify="left" if name == "peer" else "right", no_wrap=True)
    table.add_column("note")
    for result in results:
        columns = [
            [f"{run.n_train:,} x {run.n_val:,}, d={run.features}" for run in result.runs],
            [f"{run.rate / 1e6:.3f}" for run in result.runs],
            [f"{run.our_rate / 1e6:.1f}" for run in result.runs],
            [f"{run.ratio:,.0f} x" for run in result.runs],
            [
                f"{run.difference:.0e} ({run.difference / run.std:.0e}){'' if run.agrees else ' DISAGREES'}"
                for run in result.runs
            ],
        ]
        # As plain text: an error message may contain brackets, which rich would read as markup.
        note = Text(f"FAILED: {result.error}" if result.error else result.note)
        table.add_row(f"{result.name}\n{result.version}", *map("\n".join, columns), note)
    return table


def verdict(results: list[Result]) -> str:
    found = bar(results)
    aim = f"at N={BAR_ROWS:,}, at least {BAR_RATIO} times {BAR_PEER}"
    if found["measured"] is None:
        return f"{aim}: not measured"
    return f"{aim}: {'met' if found['met'] else 'NOT MET'} ({found['measured']:.0f} times)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [peer.name for peer in PEERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="PEER", help=", ".join(names))
    parser.add_argument("--repeats", type=int, default=3, help="number of turns; the best counts (default: 3)")
    parser.add_argument("--folder", type=Path, default=HERE.parent / ".bench", help="folder for the environments")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to this file")
    chosen = parser.parse_args()
    log = Console(stderr=True, highlight=False)
    load = os.getloadavg()[0]
    results = [measure(peer, chosen.folder, chosen.repeats, log) for peer in PEERS if peer.name in chosen.only]
    console = Console(width=130)
    console.print(build_table(results))
    console.print(verdict(results))
    if load > os.cpu_count() / 4:
        console.print(f"the machine was busy when this began (load {load:.1f}): better on a quiet one")
    if chosen.json:
        chosen.json.write_text(json.dumps(report(results, load), indent=2) + "\n")


def report(results: list[Result], load: float) -> dict[str, object]:
    return {
        "shapshift": shapshift.__version__,
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": {
            "cores": os.cpu_count(),
            "processor": processor(),
            "system": platform.platform(),
            "load_before": load,
        },
        "python": platform.python_version(),
        "features": FEATURES,
        "bar": bar(results),
        "peers": [asdict(result) for result in results],
    }


def processor() -> str:
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor()


if __name__ == "__main__":
    main()
