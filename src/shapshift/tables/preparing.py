"""Tables to arrays: which columns are features, and everything that is fitted on the training rows."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._validation import check_choice, some
from shapshift.tables import encoding
from shapshift.tables.about import about, no_column, repeated
from shapshift.tables.columns import Column, UnusableError, make_column, problem
from shapshift.tables.labels import names, same_labels, same_numbers

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

SCALES = ("standard", "robust", "none")
CATEGORICAL = ("onehot", "ordinal")
IMPUTE = ("median", "mean", "most_frequent")
_INDEX_NAMES = ("", "__index_level_0__", "Unnamed: 0")


@dataclass(frozen=True)
class TableSpec:
    """How the columns of a table are to be used.

    Parameters
    ----------
    label : str or None
        The column of the class. None only for formats that say which it is (``y`` in ``.npz``).
    id : str, optional
        The column that names the rows; no two training rows may share a name.
    owner : str, optional
        The column that says whose a row is.
    drop : sequence of str, default=()
        Columns to leave out.
    features : sequence of str, optional
        The feature columns, in this order; by default all that remain.
    scale : {"standard", "robust", "none"}, default="standard"
        Numbers are scaled by mean and standard deviation, by median and interquartile range, or not at all.
    categorical : {"onehot", "ordinal"}, default="onehot"
        Whether categories become a column each or numbers in sorted order. Neither looks at the labels.
    impute : {False, "median", "mean", "most_frequent"}, default=False
        How missing numbers are filled in; missing categories become the most frequent one. False refuses them.
    embed : str or sequence of str, optional
        Text columns to turn into vectors with a sentence-transformers model.
    target : {"class", "number"}, default="class"
        What the label column holds: names of classes, or numbers to predict.
    """

    label: str | None
    id: str | None = None
    owner: str | None = None
    drop: Sequence[str] = ()
    features: Sequence[str] | None = None
    scale: str = "standard"
    categorical: str = "onehot"
    impute: str | bool = False
    embed: str | Sequence[str] | None = None
    target: str = "class"


@dataclass(frozen=True)
class Prepared:
    """Arrays ready for valuation, and what was done to get them.

    Attributes
    ----------
    X_train, X_val : ndarray of float64
    y_train, y_val : ndarray
    feature_names : list of str
        One for each column of `X_train`, after encoding.
    ids, owners : ndarray or None
        Of the training rows, where the specification names the columns.
    ids_val, owners_val : ndarray or None
        Of the validation rows, where their table has the columns.
    notes : list of str
        Everything that was done, in sentences for people.
    spec : dict
        The specification with all choices made; JSON-able, and ``TableSpec(**spec)`` repeats the preparation.
    """

    X_train: Floats
    y_train: Array
    X_val: Floats
    y_val: Array
    feature_names: list[str]
    ids: Array | None
    owners: Array | None
    ids_val: Array | None
    owners_val: Array | None
    notes: list[str]
    spec: dict[str, Any]


def prepare(train: Any, val: Any, spec: TableSpec) -> Prepared:
    """Turn a training and a validation table into arrays.

    Parameters
    ----------
    train, val : pyarrow.Table
        As `read_table` returns them.
    spec : TableSpec

    Returns
    -------
    Prepared

    Raises
    ------
    ValueError
        If a column is missing, differs between the tables, or cannot be used as it is. The message names all such
        columns and what to do about them.
    ImportError
        If text is to be embedded and sentence-transformers is not installed.

    Notes
    -----
    Categories, fill values and scales are fitted on the training rows and applied to the validation rows. With the
    default scale each number has mean 0 and standard deviation 1 over the training rows; columns for categories hold 0
    and 1 and embedded text has unit length, and these are not scaled.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from shapshift.tables import TableSpec, prepare
    >>> train = pa.table({"size": [1.0, 3.0], "colour": ["red", "blue"], "class": [0, 1]})
    >>> val = pa.table({"size": [2.0], "colour": ["red"], "class": [1]})
    >>> data = prepare(train, val, TableSpec("class"))
    >>> data.feature_names
    ['size', 'colour=blue', 'colour=red']
    >>> data.X_train
    array([[-1.,  0.,  1.],
           [ 1.,  1.,  0.]])
    """
    spec = _checked(spec, train)
    where = {"train": _called(train, "training"), "val": _called(val, "validation")}
    notes = [*about(train).notes, *about(val).notes]
    for table, name in ((train, where["train"]), (val, where["val"])):
        if table.num_rows == 0:
            raise ValueError(f"{name} has no rows. At least one is needed.")
        if spec.label not in table.column_names:
            raise no_column(
                "The label", spec.label, table.column_names, name, " Name the column of the class with --label."
            )
    for option, column in (("id", spec.id), ("owner", spec.owner)):
        if column is not None and column not in train.column_names:
            raise no_column(f"The {option}", column, train.column_names, where["train"])
    features = _feature_names(train, val, spec, where, notes)
    columns = _columns(train, val, spec, features, notes)
    read_labels = same_labels if spec.target == "class" else same_numbers
    y_train, y_val, label_notes = read_labels(
        names(train[spec.label], f"label {spec.label!r}", where["train"]),
        names(val[spec.label], f"label {spec.label!r}", where["val"]),
        str(spec.label),
    )
    notes += label_notes
    ids, ids_val = _names_of("id", spec.id, train, val, where)
    owners, owners_val = _names_of("owner", spec.owner, train, val, where)
    if ids is not None:
        _check_unique(ids, str(spec.id), where["train"])
        notes.append(f"rows are named by {spec.id!r}")
    if owners is not None:
        notes.append(f"{np.unique(owners).size} owners of training rows, by {spec.owner!r}")
    X_train, X_val, feature_names = encoding.encode(columns, spec.scale, spec.categorical, spec.impute, notes)
    return Prepared(
        X_train=X_train,
        y_train=y_train,
        X_val=X_val,
        y_val=y_val,
        feature_names=feature_names,
        ids=ids,
        owners=owners,
        ids_val=ids_val,
        owners_val=owners_val,
        notes=notes,
        spec=asdict(spec),
    )


def _checked(spec: TableSpec, train: Any) -> TableSpec:
    check_choice("TableSpec", "scale", spec.scale, SCALES)
    check_choice("TableSpec", "categorical", spec.categorical, CATEGORICAL)
    if spec.impute is not False:
        check_choice("TableSpec", "impute", spec.impute, IMPUTE, or_else="False")
    check_choice("TableSpec", "target", spec.target, ("class", "number"))
    roles = about(train).roles
    label = spec.label if spec.label is not None else roles.get("label")
    if label is None:
        raise ValueError(
            f"The 'label' parameter of TableSpec must name the column of the class. The columns are: "
            f"{some(train.column_names)}. Name it with --label."
        )
    spec = replace(
        spec,
        label=label,
        id=spec.id if spec.id is not None else roles.get("id"),
        owner=spec.owner if spec.owner is not None else roles.get("owner"),
        drop=_listed(spec.drop),
        features=None if spec.features is None else _listed(spec.features),
        embed=_listed(spec.embed),
    )
    for option in ("drop", "features", "embed"):
        if spec.label in (getattr(spec, option) or []):
            raise ValueError(
                f"Label {spec.label!r} is also in --{option}. The label is never a feature: take it out there."
            )
    if spec.label in (spec.id, spec.owner):
        raise ValueError(f"{spec.label!r} is the label and cannot be the id or the owner too. Name another column.")
    return spec


def _listed(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _called(table: Any, which: str) -> str:
    source = about(table).source
    return f"the {which} table" + (f" {source}" if source else "")


def _feature_names(train: Any, val: Any, spec: TableSpec, where: dict[str, str], notes: list[str]) -> list[str]:
    both = [*train.column_names, *(name for name in val.column_names if name not in train.column_names)]
    for name in spec.drop:
        if name not in both:
            raise no_column("The --drop entry", name, both, "either table")
    for name in spec.embed or []:
        if name not in train.column_names:
            raise no_column("The --embed entry", name, train.column_names, where["train"])
    kept_apart = {spec.label, spec.id, spec.owner, *spec.drop, *about(train).roles.values(), *about(val).roles.values()}
    if spec.features is not None:
        chosen = list(dict.fromkeys([*spec.features, *(spec.embed or [])]))
        for name in chosen:
            if name not in train.column_names:
                raise no_column("The --features entry", name, train.column_names, where["train"])
            if name in (spec.id, spec.owner) or name in spec.drop:
                raise ValueError(
                    f"Column {name!r} cannot be a feature and also the id, the owner or dropped. Choose one."
                )
        absent = [name for name in chosen if name not in val.column_names]
        extra: list[str] = []
        if repeated(list(spec.features)):
            raise ValueError(
                f"--features names {some(repeated(list(spec.features)))} more than once. Name each column once."
            )
    else:
        kept_apart |= {name for name in _INDEX_NAMES if name in both}
        chosen = [name for name in train.column_names if name not in kept_apart]
        absent = [name for name in chosen if name not in val.column_names]
        extra = [name for name in val.column_names if name not in kept_apart and name not in chosen]
        index = [name for name in _INDEX_NAMES if name in train.column_names]
        if index:
            notes.append(f"left out {some(index)}, an unnamed column such as a row index leaves behind")
    if absent or extra:
        parts = [f"{some(absent)} only in {where['train']}"] * bool(absent)
        parts += [f"{some(extra)} only in {where['val']}"] * bool(extra)
        raise ValueError(
            f"Both tables must have the same feature columns, but they have {' and '.join(parts)}. Leave columns out "
            "with --drop, or list the ones to use with --features."
        )
    if not chosen:
        raise ValueError(
            f"No feature column is left in {where['train']}: it has {some(train.column_names)}. Drop fewer."
        )
    if spec.drop:
        notes.append(f"left out {some(list(spec.drop))}, as asked")
    return chosen


def _columns(train: Any, val: Any, spec: TableSpec, features: list[str], notes: list[str]) -> list[Column]:
    made, problems = [], []
    for name in features:
        try:
            column, remarks = make_column(
                name,
                train[name],
                val[name],
                asked=spec.features is not None,
                ordinal=spec.categorical == "ordinal",
                embed=name in (spec.embed or []),
            )
            made.append(column)
            notes += remarks
        except UnusableError as error:
            problems.append(str(error))
    if problems:
        raise problem(problems)
    encoding.check_values(made, spec.impute)
    return made


def _names_of(
    what: str, column: str | None, train: Any, val: Any, where: dict[str, str]
) -> tuple[Array | None, Array | None]:
    if column is None:
        return None, None
    of_val = names(val[column], f"{what} {column!r}", where["val"]) if column in val.column_names else None
    return names(train[column], f"{what} {column!r}", where["train"]), of_val


def _check_unique(ids: Array, column: str, where: str) -> None:
    distinct, counts = np.unique(ids, return_counts=True)
    if distinct.size < ids.size:
        twice = distinct[counts > 1]
        raise ValueError(
            f"The id column {column!r} of {where} must name each row differently, or values could not be matched to "
            f"rows. {twice.size} ids occur more than once: {some(twice.tolist())}. Choose another column, or say "
            f"--owner {column} if it says whose the rows are."
        )
