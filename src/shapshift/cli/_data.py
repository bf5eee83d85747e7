"""From the options to tables, arrays and a fitted model."""

import glob
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from shapshift.cli._options import Columns, Files, Method
from shapshift.cli._run import Run
from shapshift.cli._specs import parse_semivalue
from shapshift.methods import parse_method
from shapshift.tables import Prepared, TableSpec, prepare, read_table
from shapshift.tables.about import about
from shapshift.tables.npz import other_name


@dataclass(frozen=True)
class Data:
    """The tables of a run as they were read, and as arrays."""

    train: Any
    val: Any
    arrays: Prepared

    @property
    def classes(self) -> list[Any]:
        """Labels that occur."""
        return list(dict.fromkeys([*self.arrays.y_train.tolist(), *self.arrays.y_val.tolist()]))

    def shown_features(self) -> tuple[Any, Any]:
        """Feature columns of both tables as they were read, for people to look at."""
        spec = self.arrays.spec
        apart = {spec["label"], spec["id"], spec["owner"], *spec["drop"]}
        names = spec["features"] or [name for name in self.train.column_names if name not in apart]
        chosen = [name for name in names if name in self.val.column_names]
        return self.train.select(chosen), self.val.select(chosen)


def load(run: Run, files: Files, columns: Columns, method: Method | None = None) -> Data:
    """Read and prepare the training and the validation table; ``method`` says whether labels are classes."""
    target = "number" if method is not None and parse_method(method.method).task == "regression" else "class"
    train_path, val_path = run.input("train", files.train), run.input("val", files.val)
    with run.terminal.busy(f"Reading {files.train} and {files.val}"):
        train, val = read_table(train_path), read_table(val_path)
        spec = table_spec(_as_read(columns, train), [*train.column_names, *val.column_names], target)
        arrays = prepare(train, val, spec)
    for note in arrays.notes:
        run.terminal.note(f"{note[0].upper()}{note[1:]}.")
    arrays = replace(arrays, notes=[_without_folders(note, (files.train, files.val)) for note in arrays.notes])
    run.parameters["tables"] = arrays.spec | {"feature_names": len(arrays.feature_names)}
    return Data(train, val, arrays)


def load_other(run: Run, name: str, path: Path, files: Files, data: Data) -> Prepared:
    """Read and prepare another validation table for the same training rows; ``name`` is that of its option."""
    run.input(name, path)
    with run.terminal.busy(f"Reading {path}"):
        arrays = prepare(data.train, read_table(path), TableSpec(**data.arrays.spec))
    for note in arrays.notes:
        if _without_folders(note, (files.train, path)) not in data.arrays.notes:
            run.terminal.note(f"{note[0].upper()}{note[1:]}.")
    return arrays


def table_spec(columns: Columns, names: Sequence[str], target: str = "class") -> TableSpec:
    """Turn the column options into a specification."""
    return TableSpec(
        label=columns.label,
        id=columns.id,
        owner=columns.owner,
        drop=_split(columns.drop, names),
        features=_split(columns.features, names) or None,
        scale=columns.scale,
        categorical=columns.categorical,
        impute=columns.impute or False,
        embed=_split(columns.embed, names) or None,
        target=target,
    )


def fit_model(run: Run, method: Method, data: Data) -> Any:
    """Fit the model that values the rows."""
    options = {
        "n_neighbors": method.neighbors,
        "utility": method.utility,
        "semivalue": parse_semivalue(method.semivalue),
        "metric": method.metric,
        "ties": method.ties,
        "device": method.device,
    }
    usual = Method()
    named = {"n_neighbors": "neighbors"}
    # An option at its usual value was not asked for: a method that has no such parameter goes without.
    chosen = {key: value for key, value in options.items() if value != getattr(usual, named.get(key, key))}
    quiet = options | {
        "n_jobs": method.jobs,
        "max_memory": method.max_memory,
        "progress": run.terminal.progress,
        "random_state": run.seed,
    }
    model = parse_method(method.method).build(chosen, quiet)
    return model.fit(data.arrays.X_train, data.arrays.y_train, ids=data.arrays.ids)


def _as_read(columns: Columns, train: Any) -> Columns:
    """Name the ids and owners of an .npz file as they are called in there: ``owner`` and ``owners`` mean the same."""
    roles = about(train).roles
    changed: dict[str, Any] = {}
    for role in ("id", "owner"):
        given = getattr(columns, role)
        if given is not None and given not in train.column_names and roles.get(role) in other_name(given, role):
            changed[role] = roles[role]
    return replace(columns, **changed)


def _without_folders(note: str, paths: Sequence[Path]) -> str:
    """Take the folders of input files out of a note: a result must not tell where on a machine they lie."""
    for path in paths:
        folder = path.parent
        while glob.has_magic(str(folder)):
            folder = folder.parent
        if str(folder) not in (".", os.sep):
            note = note.replace(f"{folder}{os.sep}", "")
    return note


def _split(given: list[str] | None, names: Sequence[str]) -> list[str]:
    """Entries that are no column are lists separated by commas."""
    found: list[str] = []
    for entry in given or []:
        found += [entry] if entry in names else [part.strip() for part in entry.split(",") if part.strip()]
    return found
