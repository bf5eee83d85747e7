"""``shapshift datasets``, ``demo`` and ``doctor``."""

import importlib
import os
import platform
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numba
import numpy as np
import typer
from rich.text import Text

from shapshift.cli import _manifest as manifests
from shapshift.cli._commands import command
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._options import OUTPUT, Output, Tables, option
from shapshift.cli._run import Run, frame
from shapshift.cli._show import describe_audit, describe_payouts, describe_values
from shapshift.cli._terminal import Terminal
from shapshift.data import list_datasets, load_dataset
from shapshift.data.sources import cache_folder
from shapshift.estimators import KNNShapley

PANEL = "Look around"
EXTRAS = {
    "matplotlib": "figures; pip install 'shapshift[plot]'",
    "sentence-transformers": "--embed; pip install 'shapshift[embed]'",
    "torch": "GPU; pip install 'shapshift[torch]'",
    "pandas": "results as pandas frames",
    "polars": "results as polars frames",
}


@dataclass(frozen=True)
class Dataset:
    """Which dataset to write."""

    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="A dataset to write as files.", show_default=False)
    ] = None
    data_dir: Annotated[
        Path | None,
        option(
            "--data-dir", envvar="SHAPSHIFT_DATA", panel=PANEL, metavar="FOLDER", text="Folder of the real datasets."
        ),
    ] = None
    n_train: Annotated[int | None, option("--n-train", min=1, panel=PANEL, metavar="N", text="Training rows.")] = None
    n_val: Annotated[int | None, option("--n-val", min=1, panel=PANEL, metavar="N", text="Validation rows.")] = None


@command(
    "datasets",
    writes=False,
    panel=PANEL,
    examples=[
        "shapshift datasets",
        "shapshift datasets iris --out data && shapshift value data/*.parquet --label label",
    ],
)
def datasets(terminal: Terminal, dataset: Dataset, tables: Tables, output: Output) -> None:
    """List the datasets, or write one as train and val files to try things on.

    Scaling is left to the command that reads the files.
    """
    if dataset.name is None:
        found = list_datasets(data_dir=dataset.data_dir)
        names = list(
            found.columns if hasattr(found, "columns") and not hasattr(found, "column_names") else found.column_names
        )
        rows = [dict(zip(names, row, strict=True)) for row in zip(*(list(found[name]) for name in names), strict=True)]
        terminal.document({"command": "datasets", "datasets": rows})
        terminal.table(
            "Datasets",
            ["name", ">rows", ">features", ">classes", "network", "what"],
            [
                [
                    row["name"],
                    row["rows"] or "any",
                    row["features"],
                    row["classes"],
                    "no" if row["offline"] else "needed",
                    Text(row["description"]),
                ]
                for row in rows
            ],
        )
        return
    groups = {type(group).__name__: group for group in (dataset, tables, output)}
    with Run("datasets", groups, terminal) as run:
        run.will_write(run.table_name("train"), run.table_name("val"))
        data = load_dataset(
            dataset.name,
            data_dir=dataset.data_dir,
            n_train=dataset.n_train,
            n_val=dataset.n_val,
            random_state=run.seed,
            standardize=False,
        )
        for part, X, y in (("train", data.X_train, data.y_train), ("val", data.X_val, data.y_val)):
            columns = {name: X[:, j] for j, name in enumerate(data.feature_names)}
            run.write_table(run.table_name(part), frame(columns | {"label": y}))
        run.parameters = run.result = data.parameters
        terminal.line(f"{data.description} {len(data.y_train):,} training and {len(data.y_val):,} validation rows.")
        run.finish()


@command("demo", replaces_own=True, panel=PANEL, examples=["shapshift demo", "shapshift demo --out tour --json"])
def demo(run: Run, output: Output) -> None:
    """Go the whole way on data that ships along: value, audit, correct, price, report.

    Takes seconds and needs no files. Results of an earlier demo are replaced; files that are not its own are not,
    without --force.
    """
    from shapshift import demo as demonstration  # it brings the page and the data along

    run.use_page(run.out / demonstration.PAGE)
    run.will_write(*demonstration.FILES)
    story = demonstration.tell(
        run.path, run.page_path(), say=run.terminal, seed=run.seed, progress=run.terminal.progress
    )
    run.parameters = {"valuation": dict(story.clean.parameters), "audit": dict(story.audit.parameters)}
    run.result = {
        "values": describe_values(story.clean),
        "audit": describe_audit(story.audit),
        "payouts": describe_payouts(story.pay),
    }
    run.terminal.line(
        f"The same from files: shapshift report {run.out}/train.csv {run.out}/val.csv --label diagnosis "
        f"--owner seller --budget {demonstration.BUDGET} --policy carry"
    )


@dataclass(frozen=True)
class Said:
    """How doctor answers."""

    json: Annotated[bool, option("--json", panel=OUTPUT, text="Print one JSON document on stdout.")] = False
    debug: Annotated[
        bool, option("--debug", envvar="SHAPSHIFT_DEBUG", panel=OUTPUT, text="Show the traceback of an error.")
    ] = False


@command("doctor", writes=False, panel=PANEL, examples=["shapshift doctor", "shapshift doctor --json"])
def doctor(terminal: Terminal, said: Said) -> None:
    """Say which versions, devices and threads there are, and whether valuing works here."""
    works, seconds = _self_test()
    found: dict[str, Any] = {
        "command": "doctor",
        "versions": manifests.versions(),
        "extras": {name: manifests.installed(name) for name in EXTRAS},
        "platform": platform.platform(),
        "processors": _processors(),
        "threads": {
            "numba": numba.get_num_threads(),
            **{
                f"{pool['internal_api']} ({pool['prefix']})": pool["num_threads"]
                for pool in importlib.import_module("threadpoolctl").threadpool_info()
            },
        },
        "devices": _devices(),
        "folders": {"datasets": os.environ.get("SHAPSHIFT_DATA"), "downloads": str(cache_folder(None))},
        "works": works,
        "first_valuation_seconds": round(seconds, 3),
    }
    terminal.document(found)
    terminal.table("Versions", ["package", "version", ""], _version_rows(found))
    terminal.table(
        "Machine",
        ["", ""],
        [
            ["system", found["platform"]],
            ["processors", found["processors"]],
            *([f"threads, {name}", count] for name, count in found["threads"].items()),
            ["devices", ", ".join(found["devices"])],
            ["folder of datasets", found["folders"]["datasets"] or "not set (SHAPSHIFT_DATA)"],
            ["folder of downloads", found["folders"]["downloads"]],
        ],
    )
    if not works:
        raise CommandError("Valuing three rows gave wrong values: this installation is broken.", Code.UNEXPECTED)
    terminal.line(f"Valuing works here; the first valuation took {seconds:.2f} s (compiled kernels are kept).", "green")


def _version_rows(found: dict[str, Any]) -> list[list[str]]:
    rows = [[name, version, ""] for name, version in found["versions"].items()]
    return rows + [[name, version or "not installed", EXTRAS[name]] for name, version in found["extras"].items()]


def _self_test() -> tuple[bool, float]:
    """Value three rows whose values are known by heart."""
    start = time.perf_counter()
    model = KNNShapley(n_neighbors=1, progress=False).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    values = model.value([[0.9]], ["b"]).values
    return bool(np.allclose(values, [-1 / 3, 2 / 3, 1 / 6])), time.perf_counter() - start


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _devices() -> list[str]:
    devices = ["cpu"]
    if manifests.installed("torch") is not None:
        cuda = importlib.import_module("torch").cuda
        devices += [cuda.get_device_name(i) for i in range(cuda.device_count())]
    return devices
