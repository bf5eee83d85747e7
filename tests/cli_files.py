"""Files for tests of the command line: the same small market in every format, and a way to run commands on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.feather as feather
import pyarrow.parquet as pq
from typer.testing import CliRunner

from shapshift.cli._app import app

OWNERS = ("ann", "bob", "cid")
N_TRAIN, N_VAL = 80, 40


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


def run(*arguments: object) -> Ran:
    """Run a command in this process."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Ran(result.exit_code, result.stdout, result.stderr)


def make_tables(seed: int = 0) -> tuple[pa.Table, pa.Table]:
    rng = np.random.default_rng(seed)

    def table(n: int, prefix: str) -> pa.Table:
        y = rng.integers(0, 2, n)
        X = rng.normal(size=(n, 3)) + 1.2 * y[:, None]
        return pa.table(
            {
                "row": [f"{prefix}{i:03d}" for i in range(n)],
                "seller": [OWNERS[i % 3] for i in range(n)],
                "size": X[:, 0].round(4),
                "weight": X[:, 1].round(4),
                "age": X[:, 2].round(4),
                "class": np.array(["no", "yes"])[y].tolist(),
            }
        )

    return table(N_TRAIN, "t"), table(N_VAL, "v")


def write_all(folder: Path) -> dict[str, tuple[Path, Path]]:
    """Write both tables in every format; returns format to (train, val)."""
    files: dict[str, tuple[Path, Path]] = {}
    tables = make_tables()

    def pair(kind: str, train: Path, val: Path) -> list[tuple[pa.Table, Path]]:
        files[kind] = (train, val)
        return list(zip(tables, (train, val), strict=True))

    for table, path in pair("csv", folder / "train.csv", folder / "val.csv"):
        pacsv.write_csv(table, path)
    for table, path in pair("parquet", folder / "train.parquet", folder / "val.parquet"):
        pq.write_table(table, path)
    for table, path in pair("feather", folder / "train.feather", folder / "val.feather"):
        feather.write_feather(table, path)
    for table, path in pair("arrow", folder / "train.arrow", folder / "val.arrow"):
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
    for table, path in pair("jsonl", folder / "train.jsonl", folder / "val.jsonl"):
        path.write_text("".join(json.dumps(row) + "\n" for row in table.to_pylist()), encoding="utf-8")
    for table, path in pair("npz", folder / "train.npz", folder / "val.npz"):
        X = np.column_stack([table[name].to_numpy() for name in ("size", "weight", "age")])
        np.savez(path, X=X, y=np.array(table["class"].to_pylist()), ids=np.array(table["row"].to_pylist()))
    for table, path in pair("folder", folder / "train_parts", folder / "val_parts"):
        path.mkdir()
        pq.write_table(table.slice(0, 25), path / "part-0.parquet")
        pq.write_table(table.slice(25), path / "part-1.parquet")
    (folder / "pieces").mkdir()
    for table, path in pair("glob", folder / "pieces" / "train-*.csv", folder / "pieces" / "val-*.csv"):
        pacsv.write_csv(table.slice(0, 25), str(path).replace("*", "0"))
        pacsv.write_csv(table.slice(25), str(path).replace("*", "1"))
    return files
