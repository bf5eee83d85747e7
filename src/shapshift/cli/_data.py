"""From the options to tables, arrays and a fitted model."""

import glob
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shapshift.cli._options import Columns, Files, Method, Noise
from shapshift.cli._run import Run
from shapshift.cli._specs import audit_arguments, parse_semivalue
from shapshift.methods import parse_method

if TYPE_CHECKING:
    from shapshift.tables import Prepared, TableSpec


@dataclass(frozen=True)
class Data:
    """The tables of a run as they were read, and as arrays."""

    train: Any
    val: Any
    arrays: "Prepared"

    @property
    def classes(self) -> list[Any]:
        """Labels that occur."""
        return list(dict.fromkeys([*self.arrays.y_train.tolist(), *self.arrays.y_val.tolist()]))

    def released(self, *, table: bool) -> "Data":
        """Return the data without training features, which the fitted model holds itself.

        Parameters
        ----------
        table : bool
            Whether the rows of the training table are not needed any more either.
        """
        kept = replace(self.arrays, X_train=self.arrays.X_train[:0].copy())
        return replace(self, arrays=kept, train=self.train.schema.empty_table() if table else self.train)

    def feature_columns(self) -> list[str]:
        """Columns that features were made of."""
        spec = self.arrays.spec
        apart = {spec["label"], spec["id"], spec["owner"], *spec["drop"]}
        names = spec["features"] or [name for name in self.train.column_names if name not in apart]
        common = set(self.val.column_names)
        return [name for name in names if name in common]

    def preparation(self) -> list[str]:
        """Return how features were made, without anything that occurs in a table: fit for every owner to read."""
        spec = self.arrays.spec
        filled = [f"missing entries filled in: {spec['impute']}"] * bool(spec["impute"])
        return [f"numbers scaled: {spec['scale']}", f"categories: {spec['categorical']}", *filled]

    def shown_features(self) -> tuple[Any, Any]:
        """Feature columns of both tables as they were read, for people to look at."""
        chosen = self.feature_columns()
        return self.train.select(chosen), self.val.select(chosen)


def load(run: Run, files: Files, columns: Columns, method: Method | None = None) -> Data:
    """Read and prepare the training and the validation table; ``method`` says whether labels are classes."""
    from shapshift.tables import prepare

    _check_options(run)
    target = "number" if method is not None and parse_method(method.method).task == "regression" else "class"
    train_path, val_path = run.input("train", files.train), run.input("val", files.val)
    with run.terminal.busy(f"Reading {files.train} and {files.val}"):
        text = named_columns(columns, target)
        train, val = _read(run, train_path, text), _read(run, val_path, text)
        spec = table_spec(_as_read(columns, train), [*train.column_names, *val.column_names], target)
        arrays = prepare(train, val, spec)
    for note in arrays.notes:
        run.terminal.note(f"{note[0].upper()}{note[1:]}.")
    arrays = replace(arrays, notes=_as_recorded(run, arrays.notes, {"train": files.train, "val": files.val}))
    run.parameters["tables"] = arrays.spec | {"feature_names": len(arrays.feature_names)}
    return Data(train, val, arrays)


def _check_options(run: Run) -> None:
    """Refuse options that are wrong whatever the tables hold, which can take long to read."""
    from shapshift.checks.inputs import parse_memory

    method, noise = (run.groups.get(group.__name__, group()) for group in (Method, Noise))
    parse_semivalue(method.semivalue)
    parse_memory(method.max_memory)
    known = [text for text in noise.perturb or [] if "priors" not in text]  # which name labels
    audit_arguments(replace(noise, perturb=known), (), None)


def load_other(run: Run, name: str, path: Path, files: Files, data: Data) -> "Prepared":
    """Read and prepare another validation table for the same training rows; ``name`` is that of its option."""
    from shapshift.tables import TableSpec, prepare

    run.input(name, path)
    with run.terminal.busy(f"Reading {path}"):
        spec = TableSpec(**data.arrays.spec)
        arrays = prepare(data.train, _read(run, path, named_columns(spec, spec.target)), spec)
    kept = _as_recorded(run, arrays.notes, {"train": files.train, name: path})
    for note, recorded in zip(arrays.notes, kept, strict=True):
        if recorded not in data.arrays.notes:
            run.terminal.note(f"{note[0].upper()}{note[1:]}.")
    return arrays


def _read(run: Run, path: Path, text: Sequence[str]) -> Any:
    from shapshift.tables import read_table

    return read_table(path, text=text, max_memory=run.groups.get("Method", Method()).max_memory)


def table_spec(columns: Columns, names: Sequence[str], target: str = "class") -> "TableSpec":
    """Turn the column options into a specification."""
    from shapshift.tables import TableSpec

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


def named_columns(columns: "Columns | TableSpec", target: str) -> list[str]:
    """Columns that hold names: ids, owners and classes."""
    found = (columns.id, columns.owner, columns.label if target == "class" else None)
    return [name for name in found if name is not None]


def _as_read(columns: Columns, train: Any) -> Columns:
    """Name the ids and owners of an .npz file as they are called in there: ``owner`` and ``owners`` mean the same."""
    from shapshift.tables.binary import other_name
    from shapshift.tables.files import about

    roles = about(train).roles
    changed: dict[str, Any] = {}
    for role in ("id", "owner"):
        given = getattr(columns, role)
        if given is not None and given not in train.column_names and roles.get(role) in other_name(given, role):
            changed[role] = roles[role]
    return replace(columns, **changed)


def _as_recorded(run: Run, notes: Sequence[str], inputs: Mapping[str, Path]) -> list[str]:
    """Return notes without folders of files, with the names that files had in the first run when a run is repeated.

    A result must not tell where on a machine its inputs lie, and not depend on it.
    """
    from shapshift.tables.files import shown

    known: dict[str, str] = {}
    for name, path in inputs.items():
        folder = path.parent
        while glob.has_magic(str(folder)):
            folder = folder.parent
        if not glob.has_magic(path.name) and folder == path.parent:
            called = shown(run.called(name))[1:-1]
            known |= {shown(path)[1:-1]: called, repr(str(path))[1:-1]: called}
        if str(folder) not in (".", os.sep):
            known[f"{folder}{os.sep}"] = ""
    pattern = re.compile("'(" + "|".join(map(re.escape, sorted(known, key=len, reverse=True))) + ")")
    return [pattern.sub(lambda found: "'" + known[found[1]], note) for note in notes] if known else list(notes)


def _split(given: list[str] | None, names: Sequence[str]) -> list[str]:
    """Entries that are no column are lists separated by commas."""
    found: list[str] = []
    known = set(names)
    for entry in given or []:
        found += [entry] if entry in known else [part.strip() for part in entry.split(",") if part.strip()]
    return found
