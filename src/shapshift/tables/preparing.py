"""Arrays from tables: choice of feature columns, and everything that is fitted on the training rows."""

import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import sparse

from shapshift.checks.inputs import check_choice, check_features, check_shape, match_columns, some, tensor_to_numpy
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError
from shapshift.io.shown import Shown
from shapshift.tables.embedding import described
from shapshift.tables.features import CATEGORICAL, IMPUTE, SCALES, Column, TableSpec, encode, make_columns
from shapshift.tables.files import about, no_column, repeated
from shapshift.tables.labels import label_sets, names_alike, read_names, same_labels, same_numbers

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

_ROLES = ("label", "id", "owner")
_INDEX_NAMES = ("", "__index_level_0__", "Unnamed: 0")


@dataclass(frozen=True)
class Prepared(Shown):
    """Arrays ready for valuation, and the steps that made them.

    Attributes
    ----------
    X_train, X_val : ndarray of float64, or of a shorter type of the features
    y_train, y_val : ndarray
    feature_names : list of str
        One for each column of `X_train`, after encoding.
    ids, owners : ndarray or None
        Of the training rows, if the specification names the columns.
    ids_val, owners_val : ndarray or None
        Of the validation rows, if their table has the columns.
    notes : list of str
        All steps, in sentences for people.
    spec : dict
        The specification with all choices made; JSON-able, and ``TableSpec(**spec)`` repeats the preparation, unless it
        embeds with a function.
    """

    X_train: Array
    y_train: Array
    X_val: Array
    y_val: Array
    feature_names: list[str]
    ids: Array | None
    owners: Array | None
    ids_val: Array | None
    owners_val: Array | None
    notes: list[str]
    spec: dict[str, Any]


def prepare(train: Any, val: Any, spec: TableSpec, *, progress: bool | None = None) -> Prepared:
    """Turn a training and a validation table into arrays.

    Parameters
    ----------
    train, val : pyarrow.Table
        As `read_table` returns them.
    spec : TableSpec
    progress : bool, default=None
        Show a progress bar while texts and images are embedded; None shows it in a terminal only.

    Returns
    -------
    Prepared

    Raises
    ------
    ValueError
        If a column is missing, differs between the tables, or cannot be used. The message names all such columns and
        what to do.
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
    roles = read_roles(train, val, spec)
    columns = make_columns(train, val, roles.spec, roles.features, roles.where, roles.notes)
    notes = [*roles.notes, *roles.name_notes]
    X_train, X_val, names = encode(columns, roles.spec, notes, progress)
    return Prepared(
        X_train,
        roles.y_train,
        X_val,
        roles.y_val,
        names,
        roles.ids,
        roles.owners,
        roles.ids_val,
        roles.owners_val,
        notes,
        roles.spec_as_dict(),
    )


@dataclass(frozen=True)
class Roles:
    """Roles of columns: names of features, and the labels, ids and owners, see :class:`Prepared`.

    Attributes
    ----------
    spec : TableSpec
        With all choices made.
    features : list of str
    where : pair of str
        Names of the tables in messages.
    y_train, y_val, ids, ids_val, owners, owners_val : ndarray or None
    notes, name_notes : list of str
        Steps to choose features, and to read labels, ids and owners.
    """

    spec: TableSpec
    features: list[str]
    where: tuple[str, str]
    y_train: Array
    y_val: Array
    ids: Array | None
    ids_val: Array | None
    owners: Array | None
    owners_val: Array | None
    notes: list[str]
    name_notes: list[str]

    def spec_as_dict(self) -> dict[str, Any]:
        """Return the specification in a form for JSON, with the name of the embedder."""
        embed = self.spec.embed
        return asdict(replace(self.spec, embed=None)) | {"embed": None if embed is None else described(embed)}


def read_roles(train: Any, val: Any, spec: TableSpec) -> Roles:
    """Read labels, ids and owners of two tables, and choose the columns of features; parameters as in :func:`prepare`.

    Raises
    ------
    InputError
        If a column is missing, or differs between the tables.
    """
    spec = _checked(spec, train)
    tables, where = (train, val), (_called(train, "training"), _called(val, "validation"))
    notes = [*about(train).notes, *about(val).notes]
    for table, name in zip(tables, where, strict=True):
        if table.num_rows == 0:
            raise InputError(f"{name} has no rows. At least one is needed.")
        for label in (spec.label, *spec.more_labels):
            if label not in table.column_names:
                hint = " Name the column of the class with --label."
                raise no_column("The label", str(label), table.column_names, name, hint)
    for option, column in (("id", spec.id), ("owner", spec.owner)):
        if column is not None and column not in train.column_names:
            raise no_column(f"The {option}", column, train.column_names, where[0])
    features = _feature_names(train, val, spec, where, notes)
    labels, (ids, ids_val), (owners, owners_val) = (
        [_names(what, column, table, name, exact) for table, name in zip(tables, where, strict=True)]
        for what, column, exact in (
            ("label", None if spec.target == "set" else spec.label, spec.target == "class"),
            ("id", spec.id, True),
            ("owner", spec.owner, True),
        )
    )
    label = str(spec.label)
    if spec.target == "class":
        written = label in about(train).text, label in about(val).text
        y_train, y_val, name_notes = same_labels(labels[0], labels[1], label, written)
    elif spec.target == "number":
        y_train, y_val, name_notes = same_numbers(labels[0], labels[1], label, where)
    else:
        named = [label, *spec.more_labels]
        (y_train, name_notes), (y_val, _) = map(label_sets, tables, (named, named), where)
    name_notes = list(name_notes)
    if ids is not None:
        _check_unique(ids, str(spec.id), where[0])
        name_notes.append(f"rows are named by {spec.id!r}")
    if owners is not None:
        known = np.unique(owners).tolist()
        name_notes.append(f"{len(known)} owner{'' if len(known) == 1 else 's'} of training rows, by {spec.owner!r}")
        alike = names_alike(known)
        if alike:
            # A warning, not a note, because notes are shown to every owner.
            warn(
                f"Owners in column {spec.owner!r} that differ only in spaces, capitals or writing are counted as "
                f"different owners: {alike}. Write them the same way if they are the same."
            )
    return Roles(spec, features, where, y_train, y_val, ids, ids_val, owners, owners_val, notes, name_notes)


@dataclass(frozen=True)
class Features:
    """Feature rows ready for distances.

    Attributes
    ----------
    X, X_val : ndarray of float64 or csr_array; X_val is None without validation rows
    kind : {"numpy", "pandas", "polars", "pyarrow"}
        Container of the training rows.
    index : ndarray or None
        Their index, if they are a pandas frame.
    notes : list of str
        Steps, in sentences for people.
    """

    X: Any
    X_val: Any = None
    kind: str = "numpy"
    index: Array | None = None
    notes: list[str] = field(default_factory=list)


def prepare_features(X: Any, X_val: Any = None) -> Features:
    """Turn feature rows of any container into standardised numbers, fitted on the training rows.

    Numbers have mean 0 and standard deviation 1 over the training rows, and missing ones become the median. Categories
    become columns of 0 and 1, and missing ones the most frequent. Sparse rows stay unchanged.

    Parameters
    ----------
    X : array, dataframe, table, tensor, sparse matrix or nested list
        Frames may hold text, categories and missing values.
    X_val : the same, optional
        Validation rows, with the same columns.

    Examples
    --------
    >>> prepare_features(pa.table({"size": [1.0, None, 3.0, 2.0], "colour": ["red", "blue", None, "red"]})).X.round(1)
    array([[-1.4,  0. ,  1. ],
           [ 0. ,  1. ,  0. ],
           [ 1.4,  0. ,  1. ],
           [ 0. ,  0. ,  1. ]])
    """
    if sparse.issparse(X) or sparse.issparse(X_val):
        table = check_features(X, "X")
        others = None if X_val is None else check_features(X_val, "X_val")
        others = others and match_columns(others, table.columns, table.rows.shape[1], "X_val")
        return Features(sparse.csr_array(table.rows), others and sparse.csr_array(others.rows))
    train, notes = _as_table(X, "X"), list[str]()
    val = None if X_val is None else _as_table(X_val, "X_val")
    spec = TableSpec(None, impute="median")
    if isinstance(train, np.ndarray) and not isinstance(val, pa.Table):
        points = train[:1].copy() if val is None else val
        if points.shape[1] != train.shape[1]:
            raise InputError(f"'X_val' must have the {train.shape[1]} features of 'X'. Got {points.shape[1]}.")
        columns = [Column("X", "number", train, points, [str(j) for j in range(train.shape[1])])]
    else:
        train = train if isinstance(train, pa.Table) else _columns(train)
        other = train.slice(0, 1) if val is None else val if isinstance(val, pa.Table) else _columns(val)
        names = list(train.column_names)
        if set(names) != set(other.column_names):
            odd = set(names) ^ set(other.column_names)
            raise InputError(f"'X' and 'X_val' must have the same columns. Only one has {some(sorted(odd))}.")
        # Features are named, so no column is taken for a row number.
        try:
            columns = make_columns(train, other, replace(spec, features=names), names, ("'X'", "'X_val'"), notes)
        except InputError as error:  # it names options of the command line
            raise InputError(
                re.sub(r"(--drop|--text|--image|--categorical|--id) [^.;\n]*", "drop the column", str(error))
            ) from None
    rows, points, _ = encode(columns, spec, notes)
    native = getattr(X, "index", None)
    index = np.asarray(native) if hasattr(native, "names") and hasattr(native, "equals") else None
    return Features(rows, None if X_val is None else points, _kind(X), index, notes)


def _as_table(X: Any, name: str) -> Any:
    """Return frames, and arrays of texts, as a pyarrow table; numbers as an array in which NaN is missing."""
    if isinstance(X, np.ma.MaskedArray):
        X = X.filled(np.nan)
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise InputError(f"{name!r} has a column name more than once ({error}). Rename the columns.") from None
    if isinstance(frame, nw.LazyFrame):
        raise InputError(f"{name!r} is a lazy frame. Collect it first: {name}.collect().")
    if isinstance(frame, nw.DataFrame):
        check_shape(frame.shape, name)
        made = {}
        for column, series in zip(frame.columns, frame.iter_columns(), strict=True):
            try:
                made[str(column)] = series.to_arrow()
            except (pa.ArrowException, TypeError, ValueError) as error:
                raise InputError(
                    f"Column {column!r} of {name!r} must hold entries of one kind ({error}). Convert it, or drop it."
                ) from None
        return pa.table(made)
    try:
        rows = np.asarray(tensor_to_numpy(X))
    except ValueError as error:
        raise InputError(f"{name!r} must be a table with rows of the same length ({error}).") from None
    check_shape(rows.shape, name)
    if rows.dtype.kind not in "biufO":
        return _columns(rows) if rows.dtype.kind == "U" else check_features(rows, name).rows
    try:
        numbers = rows.astype(np.float64)  # a copy: encoding works in place
    except (TypeError, ValueError):
        return _columns(rows)
    if np.isinf(numbers).any() or np.isnan(numbers).all(axis=0).any():
        check_features(np.where(np.isinf(numbers), numbers, 0.0), name)
        raise InputError(f"A column of {name!r} has no value in any row. Drop it.")
    return numbers


def _columns(rows: Array) -> Any:
    """Return an array of texts or of mixed entries as a table of its columns."""
    try:
        return pa.table({str(j): pa.array(rows[:, j].tolist(), from_pandas=True) for j in range(rows.shape[1])})
    except pa.ArrowException as error:
        raise InputError(f"Each column of 'X' must hold entries of one kind ({error}). Convert or drop it.") from None


def _kind(X: Any) -> str:
    kind = type(X).__module__.split(".")[0]
    return kind if kind in ("pandas", "polars", "pyarrow") else "numpy"


def _checked(spec: TableSpec, train: Any) -> TableSpec:
    check_choice("TableSpec", "scale", spec.scale, SCALES)
    check_choice("TableSpec", "categorical", spec.categorical, CATEGORICAL)
    if spec.impute is not False:
        check_choice("TableSpec", "impute", spec.impute, IMPUTE, or_else="False")
    check_choice("TableSpec", "target", spec.target, ("class", "number", "set"))
    roles: dict[str, Any] = {role: getattr(spec, role) for role in _ROLES}
    roles |= {role: name for role, name in about(train).roles.items() if roles[role] is None}
    if roles["label"] is None:
        raise InputError(
            f"The 'label' parameter of TableSpec must name the column of the class. The columns are: "
            f"{some(train.column_names)}. Name it with --label."
        )
    spec = replace(
        spec,
        **roles,
        drop=_listed(spec.drop),
        features=None if spec.features is None else _listed(spec.features),
        text=_listed(spec.text),
        image=_listed(spec.image),
        more_labels=_listed(spec.more_labels),
    )
    for option in ("drop", "features", "text", "image"):
        if spec.label in (getattr(spec, option) or []):
            raise InputError(
                f"Label {spec.label!r} is also in --{option}. The label is never a feature: take it out there."
            )
    if spec.embed is not None and not (spec.text or spec.image):
        raise InputError(
            f"The 'embed' parameter of TableSpec is {described(spec.embed)}, but no column is to be embedded. Name "
            "columns of texts with --text, of images with --image."
        )
    if spec.label in (spec.id, spec.owner):
        raise InputError(f"{spec.label!r} is the label and cannot also be the id or the owner. Name another column.")
    return spec


def _listed(given: str | Sequence[str] | None) -> list[str]:
    return [given] if isinstance(given, str) else list(given or ())


def _called(table: Any, which: str) -> str:
    source = about(table).source
    return f"the {which} table" + (f" {source}" if source else "")


def _feature_names(train: Any, val: Any, spec: TableSpec, where: tuple[str, str], notes: list[str]) -> list[str]:
    of_train, of_val = dict.fromkeys(train.column_names), dict.fromkeys(val.column_names)
    both, named = of_train | of_val, list(spec.features or ())
    options = {
        "drop": (spec.drop, both),
        "text": (spec.text, of_train),
        "image": (spec.image, of_train),
        "features": (spec.features, of_train),
    }
    for option, (names, there) in options.items():
        for name in names or ():
            if name not in there:
                place = "either table" if option == "drop" else where[0]
                raise no_column(f"The --{option} entry", name, list(there), place)
    if repeated(named):
        raise InputError(f"--features names {some(repeated(named))} more than once. Name each column once.")
    apart = {spec.label, *spec.more_labels, spec.id, spec.owner, *spec.drop}
    extra: list[str] = []
    if spec.features is not None:
        chosen = list(dict.fromkeys([*named, *(spec.text or ()), *(spec.image or ())]))
        for name in chosen:
            if name in apart:
                raise InputError(
                    f"Column {name!r} cannot be a feature and also the id, the owner or dropped. Choose one."
                )
    else:
        apart |= {*about(train).roles.values(), *about(val).roles.values(), *_INDEX_NAMES}
        chosen = [name for name in of_train if name not in apart]
        extra = [name for name in of_val if name not in apart and name not in of_train]
        index = [name for name in _INDEX_NAMES if name in of_train]
        if index:
            notes.append(f"left out {some(index)}, an unnamed column, probably a saved row index")
    absent = [name for name in chosen if name not in of_val]
    if absent or extra:
        parts = [f"{some(names)} only in {place}" for names, place in zip((absent, extra), where, strict=True) if names]
        raise InputError(
            f"Both tables must have the same feature columns, but they have {' and '.join(parts)}. Leave columns out "
            "with --drop, or list the ones to use with --features."
        )
    if not chosen:
        raise InputError(f"No feature column is left in {where[0]}: it has {some(train.column_names)}. Drop fewer.")
    if spec.drop:
        notes.append(f"left out {some(list(spec.drop))}, as requested")
    return chosen


def _names(what: str, column: str | None, table: Any, where: str, exact: bool = True) -> Any:
    """Entries of a label, id or owner column; None if the table has no such column."""
    if column is None or column not in table.column_names:
        return None
    known = about(table)
    if exact and column in known.inferred:
        raise InputError(
            f"The {what} {column!r} of {where} was read as {table.schema.field(column).type}, a type inferred from "
            "text or from parts of different types, in which two names such as '007' and '7' can become one. Read the "
            f"file with read_table(path, text=[{column!r}])."
        )
    return read_names(table[column], f"{what} {column!r}", where, written=column in known.text)


def _check_unique(ids: Array, column: str, where: str) -> None:
    distinct, counts = np.unique(ids, return_counts=True)
    if distinct.size < ids.size:
        twice = distinct[counts > 1]
        raise InputError(
            f"The id column {column!r} of {where} must name each row differently, or values could not be matched to "
            f"rows. {twice.size} ids occur more than once: {some(twice.tolist())}. Choose another column, or use "
            f"--owner {column} if it names the owners of the rows."
        )
