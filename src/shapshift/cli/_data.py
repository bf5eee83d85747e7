"""Tables, arrays, a fitted model and the perturbations of an audit, made from the options."""

import glob
import inspect
import math
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.cli._errors import PERTURBATIONS, CommandError
from shapshift.cli._options import (
    Checked,
    Columns,
    Files,
    Folds,
    Method,
    Noise,
    OneOrTwo,
    Order,
    Payment,
    Sample,
    Weights,
)
from shapshift.cli._run import Run
from shapshift.exceptions import InputError
from shapshift.methods import parse_method, read_value

if TYPE_CHECKING:
    from shapshift.duplicates import Duplicates
    from shapshift.tables import Prepared, TableSpec
    from shapshift.tables.preparing import Roles

# Parameters of perturbations that are mappings, or set by the audit, cannot be written as text.
_NOT_HERE = ("random_state", "rates", "targets", "shares")


@dataclass(frozen=True)
class Data:
    """The tables of a run as they were read, and as arrays."""

    train: Any
    val: Any
    arrays: "Prepared"
    clusters: Any = None
    weights: Any = None
    order: Any = None

    @property
    def ids(self) -> Any:
        """Ids of the training rows, or their positions."""
        return np.arange(len(self.arrays.y_train)) if self.arrays.ids is None else self.arrays.ids

    @property
    def classes(self) -> list[Any]:
        """Distinct labels."""
        return list(dict.fromkeys([*self.arrays.y_train.tolist(), *self.arrays.y_val.tolist()]))

    @property
    def points(self) -> tuple[Any, Any]:
        """Validation points and their labels."""
        return self.arrays.X_val, self.arrays.y_val

    def released(self, *, table: bool) -> "Data":
        """Return the data without training features, which the fitted model holds itself.

        Parameters
        ----------
        table : bool
            Whether to drop the rows of the training table too.
        """
        kept = replace(self.arrays, X_train=self.arrays.X_train[:0].copy())
        return replace(self, arrays=kept, train=self.train.schema.empty_table() if table else self.train)

    def chosen(self, rows: Any, points: Any) -> "Data":
        """Return the data with these training rows and validation points only."""
        all_rows = self.arrays
        arrays = replace(
            all_rows,
            X_train=all_rows.X_train[rows],
            y_train=all_rows.y_train[rows],
            ids=None if all_rows.ids is None else all_rows.ids[rows],
            owners=None if all_rows.owners is None else all_rows.owners[rows],
            X_val=all_rows.X_val[points],
            y_val=all_rows.y_val[points],
        )
        return Data(self.train.take(rows), self.val.take(points), arrays)

    def feature_columns(self) -> list[str]:
        """Columns that the features were made from."""
        spec = self.arrays.spec
        apart = {spec["label"], *spec["more_labels"], spec["id"], spec["owner"], *spec["drop"]}
        names = spec["features"] or [name for name in self.train.column_names if name not in apart]
        common = set(self.val.column_names)
        return [name for name in names if name in common]

    def preparation(self) -> list[str]:
        """Return how features were made, with nothing from the tables, so that every owner may read it."""
        spec = self.arrays.spec
        filled = [f"missing entries filled in: {spec['impute']}"] * bool(spec["impute"])
        return [f"numbers scaled: {spec['scale']}", f"categories: {spec['categorical']}", *filled]


def load(run: Run, target: str | None = None) -> Data:
    """Read and prepare the training and the validation table.

    Parameters
    ----------
    run : Run
    target : {"class", "number", "set", "seen"}, optional
        Kind of label; "seen" detects it from the labels. By default, the kind that the method needs.
    """
    _check_options(run)
    columns, by = run[Columns], run[Sample].clusters
    train_path, val_path = _paths(run)
    if target is None:
        target = "number" if parse_method(run[Method].method).task == "regression" else "class"
    paths = {"train": train_path} | ({} if val_path is None else {"val": val_path})
    for name, path in paths.items():
        run.input(name, path)
    with run.terminal.busy(f"Reading {' and '.join(map(str, paths.values()))}"):
        text = [*named_columns(columns, target), *(name for name in (by, run[Folds].groups) if name is not None)]
        train, *others = (_read(run, path, text) for path in paths.values())
        val = others[0] if others else train
        more: list[str] = []
        if target in ("seen", "set"):
            columns, target, more = _label_columns(columns, train, target)
        columns = replace(columns, drop=[*(columns.drop or ()), *_apart(run, train)])
        spec = _table_spec(_as_read(columns, train), [*train.column_names, *val.column_names], target)
        spec = replace(spec, more_labels=more)
        if by is not None and not others:
            raise CommandError(
                "--clusters applies to the rows of VAL. With one table, use --groups for rows that belong together."
            )
        clusters = None if by is None else _clusters(val, by)
        weights = run[Weights].point_weight
        by_weight = None if weights == "balanced" else weights
        if by_weight is not None:
            weights = _weights(val, by_weight)
        # Names of clusters, and weights, are not features.
        apart = [column for column in (by, by_weight) if column not in (None, spec.label, spec.id, spec.owner)]
        spec = replace(spec, drop=[*spec.drop, *(column for column in apart if column not in spec.drop)])
    try:
        arrays = _prepared(run, train, val, spec)
    except InputError as error:
        raise InputError(_worded(run, str(error))) from error
    arrays = replace(arrays, notes=[_worded(run, note) for note in arrays.notes])
    if not others:
        notes = list(dict.fromkeys(arrays.notes))
        arrays = replace(arrays, X_val=arrays.X_train, y_val=arrays.y_train, notes=notes)
    for note in arrays.notes:
        run.terminal.note(sentence(note))
    if others and not run.has(Checked):
        _tell_shared(run, arrays)
    arrays = replace(arrays, notes=_as_recorded(run, arrays.notes, paths))
    run.parameters["tables"] = arrays.spec | {"feature_names": len(arrays.feature_names)}
    by_order = run[Order].order or run[Payment].order
    return Data(train, val, arrays, clusters, weights, None if by_order is None else train[by_order].to_pylist())


def _prepared(run: Run, train: Any, val: Any, spec: "TableSpec") -> "Prepared":
    """Turn tables into arrays; where texts or images are embedded, with a progress bar."""
    from shapshift.tables import prepare

    with nullcontext() if spec.text or spec.image else run.terminal.busy("Preparing the tables"):
        return prepare(train, val, spec, progress=run.terminal.progress)


def _worded(run: Run, text: str) -> str:
    """Name the option that tells this command that labels are numbers."""
    from shapshift.tables.labels import REGRESSION

    return text.replace(REGRESSION, "--task number") if run.has(Checked) else text


def _weights(val: Any, column: str) -> Any:
    """Read the column of weights of validation rows."""
    import pyarrow as pa

    from shapshift.tables.files import no_column

    if column not in val.column_names:
        raise no_column("The --point-weight entry", column, val.column_names, "the validation table")
    found = val[column]
    try:
        weights = found.cast(pa.float64())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        raise CommandError(
            f"--point-weight {column!r} must be a column of numbers in the validation table. It holds {found.type}."
        ) from None
    if weights.null_count:
        raise CommandError(
            f"--point-weight {column!r} has {weights.null_count} missing entries. Fill them in, or leave those rows "
            "out."
        )
    return weights.to_numpy()


def load_raw(run: Run, columns: Columns) -> tuple[Any, Any, "Roles"]:
    """Read one or two tables without conversion, including text and missing entries.

    Returns
    -------
    train, val : pyarrow.Table
        ``val`` is None if there is only one table.
    roles : Roles
        Roles of their columns; of those of ``train`` alone if there is only one table.
    """
    from shapshift.tables.preparing import read_roles

    train_path, val_path = _paths(run)
    paths = {"train": train_path} | ({} if val_path is None else {"val": val_path})
    for name, path in paths.items():
        run.input(name, path)
    with run.terminal.busy(f"Reading {' and '.join(map(str, paths.values()))}"):
        tables = [_read(run, path, named_columns(columns, "class")) for path in paths.values()]
        names = [name for table in tables for name in table.column_names]
        roles = read_roles(tables[0], tables[-1], _table_spec(_as_read(columns, tables[0]), names, "class"))
    for note in dict.fromkeys([*roles.notes, *roles.name_notes]):
        run.terminal.note(sentence(note))
    run.parameters["tables"] = asdict(roles.spec) | {"features": roles.features}
    return tables[0], tables[1] if len(tables) > 1 else None, roles


def _clusters(val: Any, column: str) -> Any:
    """Read the column that names clusters of validation rows."""
    from shapshift.tables.files import about, no_column
    from shapshift.tables.labels import read_names

    if column not in val.column_names:
        raise no_column("The --clusters entry", column, val.column_names, "the validation table")
    written = column in about(val).text
    return read_names(val[column], f"--clusters {column!r}", "the validation table", written=written)


def _paths(run: Run) -> tuple[Path, Path | None]:
    """Return the paths of the training and the validation table."""
    for group in (OneOrTwo, Checked):
        if run.has(group):
            files: Any = run[group]
            return files.train, files.val
    return run[Files].train, run[Files].val


def _label_columns(columns: Columns, train: Any, target: str) -> tuple[Columns, str, list[str]]:
    """Return the options with one label column, what it holds, and the further label columns of a multi-label table."""
    from shapshift.tables.files import about
    from shapshift.tables.labels import seen_target

    label = columns.label or about(train).roles.get("label")
    if label is None:
        return columns, "class", []
    if label in train.column_names:
        return columns, seen_target(train[label]) if target == "seen" else target, []
    first, *more = _split([label], train.column_names)
    return (replace(columns, label=first), "set", more) if more else (columns, "class", [])


def _apart(run: Run, table: Any) -> list[str]:
    """Columns of groups, times or the order of rows, which are not features."""
    from shapshift.tables.files import no_column

    given = {name: column for name, column in vars(run[Folds]).items() if name in ("groups", "time") and column}
    by_order = run[Order].order or run[Payment].order
    given |= {} if by_order is None else {"order": by_order}
    for name, column in given.items():
        if column not in table.column_names:
            raise no_column(f"The --{name} column", column, table.column_names, "the table")
    return list(given.values())


def _tell_shared(run: Run, arrays: "Prepared") -> None:
    """Report how many validation points are also training rows."""
    from shapshift.cross import count_shared

    shared, n_val = count_shared(arrays.X_train, arrays.y_train, arrays.X_val, arrays.y_val), arrays.y_val.size
    if not shared:
        return
    found = f"{shared:,} of {n_val:,} validation points have the features and label of a training row"
    if 2 * shared <= n_val:
        run.terminal.note(f"{found}.")
        return
    same = "TRAIN and VAL are the same file. " if len(set(run.digests().values())) == 1 else ""
    run.terminal.warning(
        f"{same}{found}: they find themselves at distance 0, which inflates values. Use other points, or leave "
        "VAL out of 'shapshift value' to value every row on the others."
    )


def tell_copies(run: Run, data: Data) -> "Duplicates":
    """Report how many training rows have exact copies across owners, splits and labels."""
    from shapshift.duplicates import find_duplicates

    arrays = data.arrays
    found = find_duplicates(
        arrays.X_train,
        arrays.y_train,
        owners=arrays.owners,
        X_val=arrays.X_val,
        y_val=arrays.y_val,
        ids=arrays.ids,
        radius=0,
        progress=False,
    )
    for finding in found.findings():
        run.terminal.note(finding)
    return found


def _check_options(run: Run) -> None:
    """Refuse options that are wrong for any table, before the tables are read, which can take long."""
    from shapshift.checks.inputs import check_jobs, parse_memory

    parse_memory(run[Method].max_memory)
    model = make_model(run)
    check_jobs(type(model).__name__, run[Method].jobs)
    if hasattr(model, "_check_parameters"):
        model._check_parameters()
    audit_arguments(run, None)


def load_other(run: Run, name: str, path: Path, data: Data) -> tuple[Any, Any]:
    """Read the points and labels of another validation table for the same training rows; ``name`` is its option."""
    from shapshift.tables import TableSpec

    run.input(name, path)
    spec = TableSpec(**data.arrays.spec)
    with run.terminal.busy(f"Reading {path}"):
        other = _read(run, path, named_columns(spec, spec.target))
    arrays = _prepared(run, data.train, other, spec)
    kept = _as_recorded(run, arrays.notes, {"train": _paths(run)[0], name: path})
    for note, recorded in zip(arrays.notes, kept, strict=True):
        if recorded not in data.arrays.notes:
            run.terminal.note(sentence(note))
    return arrays.X_val, arrays.y_val


def sentence(note: str) -> str:
    """Write a note as a sentence."""
    return f"{note[:1].upper()}{note[1:]}."


def _read(run: Run, path: Path, text: Sequence[str]) -> Any:
    from shapshift.tables import read_table

    return read_table(path, text=text, max_memory=run[Method].max_memory)


def _table_spec(columns: Columns, names: Sequence[str], target: str) -> "TableSpec":
    """Turn the column options into a specification."""
    from shapshift.tables import TableSpec

    given = {each.name: getattr(columns, each.name) for each in fields(columns)} | {
        "drop": _split(columns.drop, names),
        "features": _split(columns.features, names) or None,
        "text": _split(columns.text, names) or None,
        "image": _split(columns.image, names) or None,
        "impute": columns.impute or False,
    }
    return TableSpec(**given, target=target)


def clustered(model: Any, data: Data) -> dict[str, Any]:
    """Return arguments of a model's ``value`` for clusters of validation rows."""
    if data.clusters is None:
        return {}
    if "clusters" not in inspect.signature(model.value).parameters:
        raise CommandError(
            f"--clusters does not go with {type(model).__name__}, whose values have no sampling error by cluster. "
            "Leave it out, or choose --method knn."
        )
    return {"clusters": data.clusters}


def ordered(model: Any, data: Data) -> dict[str, Any]:
    """Return arguments of a model's ``value`` for rows that join one after the other."""
    if data.order is None:
        return {}
    inside = getattr(model, "model", model)
    if "order" not in inspect.signature(inside.value).parameters:
        raise CommandError(f"--order does not go with {type(inside).__name__}. Leave it out, or choose --method knn.")
    return {"order": data.order}


def blocks(model: Any, data: Data) -> dict[str, Any]:
    """Return arguments of a model's ``value`` that give payouts a sampling error."""
    from shapshift.price import random_blocks

    n_val = len(data.arrays.y_val)
    if n_val < 2 or "groups" not in inspect.signature(model.value).parameters:
        return {}
    return {"groups": random_blocks(n_val, len(data.arrays.y_train), data.clusters)}


def fit_model(run: Run, data: Data, semivalue: Any = None) -> Any:
    """Fit the model that values the rows; ``semivalue`` is used by models that have one if the options name none."""
    model = make_model(run, semivalue).fit(data.arrays.X_train, data.arrays.y_train, ids=data.arrays.ids)
    if data.weights is not None:
        if run[Sample].pool:
            raise CommandError("--pool does not go with --point-weight. Leave one of them out.")
        if not hasattr(model, "weighted"):
            raise CommandError(
                f"--point-weight does not go with {type(model).__name__}. Leave it out, or choose --method knn."
            )
        return model.weighted(data.weights)
    if not run[Sample].pool:
        return model
    if run[Sample].clusters is not None:
        raise CommandError(
            "--pool does not go with --clusters: pooling assumes independent points. Leave one of them out."
        )
    if not hasattr(model, "pooled"):
        raise CommandError(f"--pool does not go with {type(model).__name__}. Leave it out, or choose --method knn.")
    return model.pooled()


def make_model(run: Run, semivalue: Any = None) -> Any:
    """Make the model that the options describe."""
    method = run[Method]
    asked = None if method.semivalue is None else parse_semivalue(method.semivalue)
    options = {
        "n_neighbors": method.neighbors,
        "utility": method.utility,
        "semivalue": asked,
        "metric": method.metric,
        "ties": method.ties,
        "boundary_neighbors": method.boundary_neighbors,
        "boundary_entropy": method.boundary_entropy,
        "device": method.device,
    }
    usual = Method()
    named = {"n_neighbors": "neighbors"}
    # An option at its default is not passed to a method that has no such parameter.
    chosen = {key: value for key, value in options.items() if value != getattr(usual, named.get(key, key))}
    quiet = options | {
        "semivalue": asked or semivalue or "shapley",
        "n_jobs": method.jobs,
        "max_memory": method.max_memory,
        "progress": run.terminal.progress,
        "random_state": run.seed,
    }
    return parse_method(method.method).build(chosen, quiet)


def named_columns(columns: "Columns | TableSpec", target: str) -> list[str]:
    """Columns that hold names: ids, owners and classes."""
    found = (columns.id, columns.owner, columns.label if target in ("class", "seen") else None)
    return [name for name in found if name is not None]


def _as_read(columns: Columns, train: Any) -> Columns:
    """Use the names that an .npz file has for ids and owners: ``owner`` and ``owners`` mean the same."""
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
    """Return notes without the folders of files; in a repeated run, with the file names of the first run.

    A result must neither reveal nor depend on where its inputs lie.
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
    """Entries that name no column are lists separated by commas."""
    found: list[str] = []
    for entry in given or []:
        found += [entry] if entry in names else [part.strip() for part in entry.split(",") if part.strip()]
    return found


def parse_semivalue(text: str) -> Any:
    """Read a name such as ``shapley`` or ``loo``, or ``banzhaf:0.1``, ``beta:4,1`` or ``distributional:50``."""
    from shapshift.engine.coefficients import SEMIVALUES, Banzhaf, Beta

    if text in SEMIVALUES:
        return text
    name, _, shape = text.partition(":")
    if name == "distributional" and shape.isdecimal() and int(shape) > 0:
        from shapshift.sampled import Distributional

        return Distributional(int(shape))
    try:
        kind, length = {"banzhaf": (Banzhaf, 1), "beta": (Beta, 2)}[name]
        shapes = [float(part) for part in shape.split(",")]
        if len(shapes) != length:
            raise ValueError
    except (KeyError, ValueError):
        raise CommandError(
            f"--semivalue must be one of {', '.join(SEMIVALUES)}, banzhaf:W such as banzhaf:0.1, beta:ALPHA,BETA such "
            f"as beta:4,1, or distributional:N such as distributional:50 with --method sampled. Got {text!r}."
        ) from None
    return kind(*(int(part) if part.is_integer() else part for part in shapes))


def parse_levels(text: str) -> list[float]:
    """Read noise levels such as ``0.1,0.2,0.5``."""
    try:
        levels = [float(part) for part in text.split(",")]
        if not all(math.isfinite(level) and level >= 0 for level in levels):
            raise InputError
    except ValueError:
        raise CommandError(
            f"--noise must be numbers of at least 0, separated by commas, such as 0.1,0.2,0.5. Got {text!r}."
        ) from None
    return levels


def audit_arguments(run: Run, classes: Sequence[Any] | None, default: str | None = None) -> dict[str, Any] | None:
    """Turn the noise options into arguments of an audit; None when there are none.

    Parameters
    ----------
    run : Run
    classes : sequence or None
        Labels that perturbations may name; None leaves those perturbations out.
    default : str, optional
        Levels used if the options give none.
    """
    noise, shared = run[Noise], {"random_state": run.seed, "progress": run.terminal.progress}
    if noise.noise is not None and noise.perturb:
        raise CommandError("Give either --noise or --perturb, not both; as a perturbation, noise is gaussian:0.5.")
    if noise.perturb and noise.relative:
        raise CommandError("--relative goes with --noise. With --perturb say gaussian:0.5,relative=true.")
    if noise.perturb:
        known = [text for text in noise.perturb if classes is not None or "priors" not in text]
        perturbations = [parse_perturbation(text, classes or ()) for text in known]
        return {"perturbations": perturbations, "repeats": noise.repeats, **shared}
    levels = noise.noise if noise.noise is not None else default
    if levels is None:
        return None
    return {"noise": parse_levels(levels), "relative": noise.relative, "repeats": noise.repeats, **shared}


def parse_perturbation(text: str, classes: Sequence[Any]) -> Any:
    """Read ``laplace:epsilon=1``, ``gaussian:1@boundary`` and the like, or several with ``|`` in between.

    Parameters
    ----------
    text : str
    classes : sequence
        Labels, for perturbations that name some.
    """
    from shapshift import perturb

    steps = [_one_perturbation(part.strip(), classes) for part in text.split("|")]
    return steps[0] if len(steps) == 1 else perturb.Compose(*steps)


def _one_perturbation(text: str, classes: Sequence[Any]) -> Any:
    for points in ("boundary", "nonboundary"):
        if text.endswith(f"@{points}"):
            from shapshift.perturb import OnPoints

            return OnPoints(_one_perturbation(text.removesuffix(f"@{points}").strip(), classes), points)
    name, _, rest = text.partition(":")
    if name not in PERTURBATIONS:
        raise CommandError(
            f"--perturb must begin with one of {', '.join(PERTURBATIONS)}; for instance laplace:epsilon=1. "
            f"Got {text!r}."
        )
    from shapshift import perturb

    kind = getattr(perturb, PERTURBATIONS[name])
    given: dict[str, Any] = {}
    parameters = [field for field in fields(kind) if field.name not in _NOT_HERE]
    for part in filter(None, rest.split(",")):
        key, equals, value = part.rpartition("=")
        if name == "priors" and key not in ("", "n"):
            given.setdefault("shares", {})[_label(key, classes)] = read_value(value)
            continue
        if not equals and not given and parameters:
            key = parameters[0].name  # the first may go without its name, as in gaussian:0.5
        if key not in [field.name for field in parameters]:
            raise CommandError(_usage(name, parameters, text))
        given[key] = read_value(value)
    required = [field for field in fields(kind) if field.default is MISSING and field.default_factory is MISSING]
    if any(field.name not in given for field in required):
        raise CommandError(_usage(name, parameters, text))
    return kind(**given)


def _usage(name: str, parameters: Sequence[Any], text: str) -> str:
    if name == "priors":
        return f"--perturb priors needs shares of classes, such as priors:yes=0.7. Got {text!r}."
    return (
        f"--perturb {name} takes {', '.join(field.name for field in parameters)}, written {name}:"
        f"{parameters[0].name}=...; separate several by commas. Got {text!r}."
    )


def _label(text: str, classes: Sequence[Any]) -> Any:
    known = {str(label): label for label in classes}
    if text not in known:
        raise CommandError(f"--perturb priors names the label {text!r}. The labels are: {', '.join(known)}.")
    return known[text]
