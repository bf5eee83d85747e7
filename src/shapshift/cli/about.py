"""``shapshift datasets``, ``methods`` and ``doctor``."""

import importlib
import inspect
import os
import platform
import sys
import time
from dataclasses import dataclass
from importlib.metadata import metadata, version
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from rich.text import Text

from shapshift.cli import _manifest as manifests
from shapshift.cli._commands import command
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._options import Output, Tables, argument, option
from shapshift.cli._requirements import advice, installed, requirements, unmet
from shapshift.cli._run import Run, frame
from shapshift.methods import METHODS

PANEL = "Get started"
#: What each extra is for.
EXTRAS = {
    "plot": "figures",
    "pandas": "results as pandas frames",
    "polars": "results as polars frames",
    "torch": "GPU",
    "dask": "--cluster dask://ADDRESS",
    "ray": "--cluster ray://ADDRESS",
    "embed": "--text",
    "image": "--image",
    "ann": 'search="ann"',
}


@dataclass(frozen=True)
class Dataset:
    """Which dataset to write."""

    panel: ClassVar[str] = PANEL
    name: str | None = argument("A dataset to write as files.", default=None, metavar="NAME")
    data_dir: Path | None = option(
        None, "Folder of the real datasets.", envvar="SHAPSHIFT_DATA", metavar="FOLDER", recorded=False
    )
    n_train: int | None = option(None, "Training rows.", metavar="N", min=1)
    n_val: int | None = option(None, "Validation rows.", metavar="N", min=1)


@command(
    "datasets",
    *(Dataset, Tables, Output),
    writes=False,
    panel=PANEL,
    examples=[
        "shapshift datasets",
        "shapshift datasets iris --out data && shapshift value data/*.parquet --label label",
    ],
)
def datasets(run: Run) -> None:
    """List the datasets, or write one as train and val files to try commands on.

    The files are not scaled: the command that reads them scales features.
    """
    import narwhals as nw

    from shapshift.data import list_datasets, load_dataset

    dataset, terminal = run[Dataset], run.terminal
    if dataset.name is None:
        rows = nw.from_native(list_datasets(data_dir=dataset.data_dir), eager_only=True).rows(named=True)
        terminal.document({"command": "datasets", "datasets": rows})
        shown = [
            {
                "name": row["name"],
                ">rows": row["rows"] or "any",
                ">features": row["features"],
                ">classes": row["classes"],
                "network": "no" if row["offline"] else "needed",
                "what": Text(row["description"]),
            }
            for row in rows
        ]
        terminal.table("Datasets", shown)
        return
    with run:
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


@command("doctor", writes=False, panel=PANEL, examples=["shapshift doctor", "shapshift doctor --json"])
def doctor(run: Run) -> None:
    """Show versions, devices and threads, and check that versions are recent enough and that valuing works."""
    import numba

    from shapshift.io.files import cache_folder

    needed, too_old, terminal = requirements(), unmet(), run.terminal
    works, seconds = (False, 0.0) if too_old else _self_test()
    pools = importlib.import_module("threadpoolctl").threadpool_info()
    threads = {f"{pool['internal_api']} ({pool['prefix']})": pool["num_threads"] for pool in pools}
    found: dict[str, Any] = {
        "command": "doctor",
        "versions": manifests.versions(),
        "requirements": {
            each.name: {
                "needs": f">={each.lowest}",
                "extra": each.extra,
                "installed": each.installed,
                "ok": not each.outdated,
            }
            for each in needed
        },
        "platform": platform.platform(),
        "processors": len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        "threads": {"numba": numba.get_num_threads(), **threads},
        "devices": _devices(),
        "folders": {"datasets": os.environ.get("SHAPSHIFT_DATA"), "downloads": str(cache_folder(None))},
        "works": works,
        "first_valuation_seconds": round(seconds, 3),
    }
    terminal.document(found)
    rows = [("python", platform.python_version(), metadata("shapshift")["Requires-Python"], "")]
    rows += [("shapshift", version("shapshift"), "", "")]
    for each in needed:
        remark = ("too old; " if each.outdated else "") + EXTRAS.get(each.extra or "", "")
        rows.append((each.name, each.installed or "not installed", f">={each.lowest}", remark))
    terminal.table("Versions", [dict(zip(("package", "version", "needs", ""), row, strict=True)) for row in rows])
    machine = {
        "system": found["platform"],
        "processors": found["processors"],
        **{f"threads, {name}": count for name, count in found["threads"].items()},
        "devices": ", ".join(found["devices"]),
        "folder of datasets": found["folders"]["datasets"] or "not set (SHAPSHIFT_DATA)",
        "folder of downloads": found["folders"]["downloads"],
    }
    terminal.table("Machine", [{"what": name, "found": value} for name, value in machine.items()])
    if optional := advice([each for each in needed if each.extra is not None]):
        terminal.warning(optional)
    if too_old:
        raise CommandError(too_old, Code.UNEXPECTED)
    if not works:
        raise CommandError("Valuing three rows gave wrong values: this installation is broken.", Code.UNEXPECTED)
    terminal.line(
        f"Valuing works here; the first valuation took {seconds:.2f} s, with loading or compiling the kernels.", "green"
    )


def _self_test() -> tuple[bool, float]:
    """Value three rows whose values are known."""
    from shapshift.knn.shapley import KNNShapley

    start = time.perf_counter()
    model = KNNShapley(n_neighbors=1, progress=False).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    values = model.value([[0.9]], ["b"]).values
    return bool(np.allclose(values, [-1 / 3, 2 / 3, 1 / 6])), time.perf_counter() - start


def _devices() -> list[str]:
    devices = ["cpu"]
    if installed("torch") is not None:
        cuda = importlib.import_module("torch").cuda
        devices += [cuda.get_device_name(i) for i in range(cuda.device_count())]
    return devices


@command(
    "methods",
    writes=False,
    panel=PANEL,
    examples=["shapshift methods", "shapshift value train.csv val.csv --label price --method regression:baseline=zero"],
)
def methods(run: Run) -> None:
    """List the methods that --method takes, with their parameters and defaults."""
    found: list[dict[str, Any]] = []
    for name, entry in METHODS.items():
        parameters = {
            key: None if parameter.default is inspect.Parameter.empty else str(parameter.default)
            for key, parameter in entry.parameters().items()
        }
        found.append({"name": name, "what": entry.text, "example": entry.example, "parameters": parameters})
    terminal = run.terminal
    terminal.document({"command": "methods", "methods": found})
    rows = [{"name": one["name"], "what": one["what"], "for instance": one["example"]} for one in found]
    terminal.table("Methods", rows)
    for one in found:
        parts = [key if default is None else f"{key}={default}" for key, default in one["parameters"].items()]
        terminal.line(f"{one['name']}: {', '.join(parts)}")
