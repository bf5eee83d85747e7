"""Feature columns: their kinds, reasons why one cannot be used, and their columns in the feature matrix."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, RobustScaler, StandardScaler

from shapshift._arrays import object_array
from shapshift.checks.inputs import (
    ROW_TYPES,
    list_lengths,
    rounded_counts,
    rounded_entries,
    show_lengths,
    some,
    warn_rounded,
)
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError, MissingLibraryError
from shapshift.tables.embedding import described, embedder_of
from shapshift.tables.files import about
from shapshift.tables.images import Images
from shapshift.tables.labels import count_rounded, is_list, odd_entry, odd_places, plain

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

SCALES = ("standard", "robust", "none")
CATEGORICAL = ("onehot", "ordinal")
IMPUTE = ("median", "mean", "most_frequent")
MOST_CATEGORIES = 50
_COLUMNS = 32  # sorted together
# Types of Arrow that have a type of rows.
_KEPT = {"float": "float32", "halffloat": "float16"} | {name: name for name in ("int8", "uint8", "int16", "uint16")}
# Steps of splitmix64.
_MIXING = tuple((np.uint64(s), np.uint64(f)) for s, f in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB), (31, 1)))
_LONG_TEXT = 60  # characters on average
_FEW_ROWS = 20  # with fewer rows, "all distinct" means nothing
_ID_NAME = re.compile(r"(.*[_\W])?(id|uuid|guid|key|index|idx|row|rowid|row_number)", re.IGNORECASE)
_ID_CAMEL = re.compile(r".*[a-z](Id|ID|Key|Index)")


@dataclass(frozen=True)
class TableSpec:
    """Roles and preparation of the columns of a table.

    Parameters
    ----------
    label : str or None
        The label column. None only for formats that define it (``y`` in ``.npz``).
    id : str, optional
        The row id column; no two training rows may have the same id.
    owner : str, optional
        The owner column.
    drop : sequence of str, default=()
        Columns to leave out.
    features : sequence of str, optional
        The feature columns, in this order; by default all remaining columns.
    scale : {"standard", "robust", "none"}, default="standard"
        Numbers are scaled by mean and standard deviation, by median and interquartile range, or not at all. Columns of
        vectors are never scaled: their entries have one scale already. Numbers that are not scaled keep their type if
        it is one of float32, float16, int8 and uint8.
    categorical : {"onehot", "ordinal"}, default="onehot"
        Whether categories become a column each or numbers in sorted order. Neither uses the labels.
    impute : {False, "median", "mean", "most_frequent"}, default=False
        How missing numbers are filled in; missing categories become the most frequent one. With False, missing entries
        are an error.
    text, image : str or sequence of str, optional
        Columns of texts, and of images, to turn into vectors. An image is its encoded bytes, or the path of a file,
        relative to the folder of the table and inside it; of a table in memory, to the current folder.
    embed : str, path-like, callable or Embedder, optional
        Model that turns them into vectors, by its folder or its name, or a function; by default, for texts,
        all-MiniLM-L6-v2. See :class:`shapshift.Embedder`. Vectors made by a model in a folder are cached on disk.
    target : {"class", "number", "set"}, default="class"
        Content of the label column: names of classes, numbers to predict, or several labels of a row: a list of them,
        or 0 and 1 in `label` and `more_labels`.
    more_labels : sequence of str, default=()
        Further columns of 0 and 1, one for each label, of a multi-label table.

    Examples
    --------
    >>> import pyarrow as pa
    >>> from shapshift.tables import TableSpec, prepare
    >>> train = pa.table({"size": [1.0, 2.0, 4.0], "city": ["Oslo", "Rome", "Rome"], "y": ["no", "yes", "yes"]})
    >>> prepare(train, train, TableSpec("y", scale="none")).X_train.tolist()
    [[1.0, 1.0, 0.0], [2.0, 0.0, 1.0], [4.0, 0.0, 1.0]]
    """

    label: str | None
    id: str | None = None
    owner: str | None = None
    drop: Sequence[str] = ()
    features: Sequence[str] | None = None
    scale: str = "standard"
    categorical: str = "onehot"
    impute: str | bool = False
    text: str | Sequence[str] | None = None
    image: str | Sequence[str] | None = None
    embed: Any = None
    target: str = "class"
    more_labels: Sequence[str] = ()


@dataclass(frozen=True)
class Column:
    """A feature column of both tables.

    Attributes
    ----------
    name : str
    kind : {"number", "vector", "category", "text", "image"}
        Texts and images are to be embedded.
    train, val : ndarray or Images
        Numbers and vectors: (n, 1) and (n, d), float64 with NaN if missing, or of a shorter type if they are not
        changed. Otherwise objects, None if missing.
    names : list of str
        One for each column of numbers.
    order : list or None
        The categories of an ordered dictionary, in that order.
    rounded : int
        Number of entries that float64 cannot represent.
    """

    name: str
    kind: str
    train: Any
    val: Any
    names: list[str]
    order: list[Any] | None = None
    rounded: int = 0

    def missing(self) -> tuple[int, int]:
        """Count missing entries of both tables."""
        if self.kind in ("number", "vector"):
            counts = [int(np.isnan(side).sum()) if side.dtype == np.float64 else 0 for side in (self.train, self.val)]
            return counts[0], counts[1]
        if self.kind == "image":
            return 0, 0
        return sum(entry is None for entry in self.train), sum(entry is None for entry in self.val)


class UnusableError(InputError):
    """Why a column cannot be a feature and what to do, as the end of a sentence that begins with its name."""


def make_columns(
    train: Any, val: Any, spec: TableSpec, names: Sequence[str], where: tuple[str, str], notes: list[str]
) -> list[Column]:
    """Turn columns of both tables into numbers or categories; one error names all columns that cannot be used.

    Parameters
    ----------
    train, val : pyarrow.Table
    spec : TableSpec
    names : sequence of str
        The feature columns.
    where : tuple of str
        Names of the tables in messages.
    notes : list of str
        Receives notes on the steps.
    """
    made, problems = [], []
    for name in names:
        try:
            made.append(_make_column(name, (train, val), spec, where, notes))
        except UnusableError as error:
            problems.append(f"Column {name!r} {error}.")
    if len(problems) > 1:
        problems = [f"{len(problems)} columns cannot be used:", *(f"- {text}" for text in problems)]
    if problems:
        raise InputError("\n".join(problems))
    counts = [(column.name, *column.missing()) for column in made]
    gaps = [f"{name!r} ({n} training and {m} validation rows)" for name, n, m in counts if n or m]
    if gaps and spec.impute is False:
        listed = ", ".join(gaps[:8]) + (f" and {len(gaps) - 8} more columns" if len(gaps) > 8 else "")
        raise InputError(
            f"Values are missing in {listed}. Distances need all of them: fill them in with --impute median (or mean, "
            "or most_frequent), leave columns out with --drop, or remove the rows."
        )
    times = 2 if train is val else 1  # the entries of one table are counted once
    warn_rounded("the table", {column.name: column.rounded // times for column in made})
    return made


def _make_column(
    name: str, tables: tuple[Any, Any], spec: TableSpec, where: tuple[str, str], notes: list[str]
) -> Column:
    stored = [table[name] for table in tables]
    coded = [pt.is_dictionary(column.type) for column in stored]
    order = _dictionary(stored[0]) if coded[0] and stored[0].type.ordered else None
    rounded = [about(table).rounded.get(name, 0) for table in tables]
    sides = [plain(column) for column in stored]
    family = _common_family(name, sides, where)
    if family == "mixed":
        notes.append(
            f"column {name!r} is text in {where[pt.is_string(sides[1].type)]} but reads as numbers throughout; used as "
            "numbers"
        )
        # Unsafe casts round whole numbers; safe ones refuse them.
        floats = [side.cast(pa.float64(), safe=False) for side in sides]
        rounded = list(map(count_rounded, sides, floats))
        sides, family = floats, "number"
    if family in ("date", "other") and name not in (spec.image or ()):
        into = "numbers first (for instance days since a fixed day)" if family == "date" else "columns of numbers first"
        raise UnusableError(
            f"holds {sides[0].type}, which is not a supported feature type. Turn it into {into}, or leave it "
            f"out: --drop {name}"
        )
    if family == "empty":
        raise _no_value(name)
    if name in (spec.image or ()):
        try:
            train, val = (Images.of(side, about(table).folder) for side, table in zip(sides, tables, strict=True))
        except InputError as error:
            raise UnusableError(f"is to be embedded as images, but {error}. Do without --image {name}") from None
        return Column(name, "image", train, val, [])
    if name in (spec.text or ()):
        if family != "text":
            raise UnusableError(f"is to be embedded but holds {sides[0].type}, not text. Do without --text {name}")
        return Column(name, "text", _objects(sides[0]), _objects(sides[1]), [])
    if family == "list" or (family == "number" and not any(coded)):
        if spec.features is None and pt.is_integer(sides[0].type):
            _refuse_row_numbers(name, sides[0])
        return _number_column(name, sides, rounded, vectors=family == "list", keep=spec.scale == "none")
    column = Column(name, "category", _objects(sides[0]), _objects(sides[1]), [], order or None)
    _refuse_identifiers(column, where[0], spec)
    mixed = _mostly_numbers(column)
    if mixed:
        # A warning, not a note, because it quotes an entry, and notes are shown to every owner.
        warn(f"Column {name!r} is used as a category, but most of it reads as numbers. In {where[0]} {mixed}.")
    return column


def _no_value(name: str) -> UnusableError:
    return UnusableError(f"has no value in any training row. Leave it out: --drop {name}")


def _common_family(name: str, sides: Sequence[Any], where: tuple[str, str]) -> str:
    families = [_family(side.type) for side in sides]
    if families[0] == families[1]:
        return families[0]
    if "empty" in families:
        return next(family for family in families if family != "empty")
    if set(families) == {"text", "number"}:
        text = families.index("text")
        try:
            sides[text].cast(pa.float64())
            return "mixed"
        except pa.ArrowException:
            odd = odd_entry(sides[text].to_pylist())
        if odd is not None:
            raise UnusableError(
                f"holds numbers in {where[1 - text]}, but in {where[text]} {odd}. Correct the file, or leave the "
                f"column out: --drop {name}"
            )
    raise UnusableError(
        f"is {sides[0].type} in the training table but {sides[1].type} in the validation table. Write it the same way "
        f"in both, or leave it out: --drop {name}"
    )


def _family(kind: Any) -> str:
    if pt.is_null(kind):
        return "empty"
    if pt.is_boolean(kind):
        return "bool"
    if _is_number(kind):
        return "number"
    if pt.is_string(kind):
        return "text"
    if pt.is_temporal(kind):
        return "date"
    return "list" if is_list(kind) and _is_number(kind.value_type) else "other"


def _is_number(kind: Any) -> bool:
    return bool(pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind))


def _rounded(array: Any, numbers: Floats, read: int) -> int:
    """Count whole numbers beyond 2**53 that became another number as a float, here or in the reader."""
    if pt.is_integer(array.type):
        return int(rounded_counts(array.drop_null().to_numpy()[:, None])[0])
    if pt.is_decimal(array.type):
        return rounded_entries(array.to_pylist())
    # The reader counted the whole table; this may be a part of it.
    return min(read, int((np.abs(numbers) >= 2**53).sum())) if read else 0


def _objects(array: Any) -> Array:
    return object_array(array.to_pylist())


def _dictionary(column: Any) -> list[Any]:
    return list(dict.fromkeys(column.unify_dictionaries().chunk(0).dictionary.to_pylist()))


def _number_column(name: str, sides: Sequence[Any], rounded: Sequence[int], *, vectors: bool, keep: bool) -> Column:
    """Column of numbers, or several columns if it holds vectors.

    Numbers that are not changed (vectors, and all with ``keep``) stay in their type.
    """
    kind, width, names = "vector" if vectors else "number", 1, [name]
    if vectors:
        lengths = list_lengths(sides[0]) | list_lengths(sides[1])
        if len(lengths) != 1 or lengths & {0, None}:
            raise UnusableError(
                f"holds vectors, but not all of one length. {show_lengths(lengths)} Make them equally long, or leave "
                f"the column out: --drop {name}"
            )
        width = int(lengths.pop() or 0)
        names = [f"{name}[{j}]" for j in range(width)]
        sides = [pc.list_flatten(side) for side in sides]
    if (vectors or keep) and all(str(side.type) in _KEPT and not side.null_count for side in sides):
        kept = [_kept(side, width) for side in sides]
        # Entries that are not finite are reported or filled in below.
        if all(np.isfinite(side.sum(dtype=np.float64)) for side in kept):
            return Column(name, kind, kept[0], kept[1], names)
    sides = [plain(pa.chunked_array([side])) for side in sides]
    # Unsafe only because whole numbers beyond 2**53 are rounded, which is reported to the caller.
    floats = [side.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False) for side in sides]
    train, val = (np.array(side, dtype=np.float64).reshape(-1, width) for side in floats)
    infinite = np.isinf(train), np.isinf(val)
    counts = [int(side.sum()) for side in infinite]
    if any(counts):
        first, which = (infinite[0], "training") if counts[0] else (infinite[1], "validation")
        raise UnusableError(
            f"holds infinity ({counts[0]} training and {counts[1]} validation entries, the first in {which} row "
            f"{first.any(axis=1).argmax()}, counted from 0). Correct them, or leave it out: --drop {name}"
        )
    if np.isnan(train).all(axis=0).any():
        raise _no_value(name)
    return Column(name, kind, train, val, names, rounded=sum(map(_rounded, sides, (train, val), rounded)))


def _kept(numbers: Any, width: int) -> Array:
    """Return numbers of an Arrow array as rows in their own type, without a copy if possible."""
    rows: Array = numbers.to_numpy(zero_copy_only=False).reshape(-1, width)
    return rows.astype(ROW_TYPES[rows.dtype.name], copy=False)


def _refuse_row_numbers(name: str, train: Any) -> None:
    """Refuse a column that counts or names the rows: as a feature it would determine the neighbours."""
    size = len(train)
    if size < _FEW_ROWS or train.null_count or len(pc.unique(train)) < size:
        return
    steps = np.diff(train.to_numpy().astype(np.float64))
    if (steps == 1).all() or _ID_NAME.fullmatch(name) or _ID_CAMEL.fullmatch(name):
        raise UnusableError(
            f"looks like a row number or id: {size} whole numbers, all different. Use --id {name} or --drop {name}; if "
            "it is a feature, list it in --features"
        )


def _refuse_identifiers(column: Column, where: str, spec: TableSpec) -> None:
    """Refuse categories that name the rows, or are too many to be categories."""
    name, present = column.name, [entry for entry in column.train.tolist() if entry is not None]
    if not present:
        raise _no_value(name)
    distinct, texts = set(present), [entry for entry in present if isinstance(entry, str)]
    # Sorted texts have no order that distances could use, so ordinal numbers do not help.
    ways = f"--drop {name} or --text {name}" if texts else f"--drop {name} or --categorical ordinal"
    if sum(map(len, texts)) > _LONG_TEXT * max(1, len(texts)) and len(distinct) > _FEW_ROWS:
        raise UnusableError(f"holds long texts, for instance {present[0][:40]!r}...; choose: {ways}")
    if len(distinct) > MOST_CATEGORIES and spec.categorical != "ordinal":
        mixed = _mostly_numbers(column)
        numeric = f" Most read as numbers, but in {where} {mixed}: correct these if they are wrong." if mixed else ""
        if texts and odd_entry(texts) is None:
            numeric = " They all read as numbers: store them as such."
        raise UnusableError(
            f"has {len(distinct)} distinct values in {len(present)} training rows, more than the {MOST_CATEGORIES} "
            f"that are made into columns of their own.{numeric} Choose: {ways}"
        )
    if spec.features is None and len(distinct) == len(present) >= _FEW_ROWS:
        raise UnusableError(f"looks like an id: every training row has another value. Choose: --id {name}, {ways}")


def _mostly_numbers(column: Column) -> str | None:
    """Describe the training entries that are not numbers, if most are; otherwise None."""
    entries = column.train.tolist()
    texts = [text for text in set(entries) if isinstance(text, str)]
    return odd_entry(entries) if 0 < len(odd_places(texts)) < len(texts) / 2 else None


def encode(
    columns: Sequence[Column], spec: TableSpec, notes: list[str], progress: bool | None = None
) -> tuple[Array, Array, list[str]]:
    """Fill in, encode, scale and put the columns side by side in their order.

    Returns
    -------
    X_train, X_val : ndarray
        Of float64, or of the shortest type of :data:`shapshift.checks.inputs.ROW_TYPES` that holds all columns.
    feature_names : list of str
    """
    untouched = all(column.kind in ("vector", "text", "image") for column in columns)
    different = slice(None) if untouched and not any(any(c.missing()) for c in columns) else _different(columns)
    blocks: list[Any] = [
        _encoded(column, spec.categorical, different, notes)
        if column.kind == "category"
        else (
            _embedded(column, spec.embed, notes, progress)
            if column.kind in ("text", "image")
            else (column.train, column.val, column.names)
        )
        for column in columns
    ]
    train, val = (_side_by_side([block[side] for block in blocks]) for side in (0, 1))
    names = [name for block in blocks for name in block[2]]
    kinds = np.repeat([column.kind for column in columns], [len(block[2]) for block in blocks])
    numbers = np.isin(kinds, ("number", "vector"))
    if any(any(column.missing()) for column in columns if column.kind in ("number", "vector")):
        filler = SimpleImputer(strategy=spec.impute).fit(train[different].compress(numbers, axis=1))
        for side in (train, val):
            side[:, numbers] = filler.transform(side.compress(numbers, axis=1))
    filled = [column for column in columns if any(column.missing())]
    if filled:
        texts = ", texts by the empty text" if any(column.kind == "text" for column in filled) else ""
        notes.append(
            f"filled in missing values of {len(filled)} columns ({some([column.name for column in filled])}): numbers "
            f"by the {spec.impute!s} of the training rows, categories by the most frequent one{texts}"
        )
    # Ordinal numbers of categories have an arbitrary size; columns of 0 and 1 do not.
    scaled = (kinds == "number") | ((kinds == "category") & (spec.categorical == "ordinal"))
    if scaled.any():
        # Compressed arrays are row-major, as the whole ones are: another order of sums would give other floats.
        copied = spec.scale != "none" or not scaled.all()
        sides = (train.compress(scaled, axis=1), val.compress(scaled, axis=1)) if copied else (train, val)
        scaled_names = list(compress(names, scaled))
        sides = _scaled(*sides, scaled_names, spec.scale, different, notes)
        if spec.scale != "none":
            train[:, scaled], val[:, scaled] = sides
    elif spec.scale != "none":
        notes.append("nothing was scaled: there is no column of numbers")
    vectors = [column for column in columns if column.kind == "vector"]
    if vectors and spec.scale != "none":
        notes.append(f"did not scale the vectors of {some([column.name for column in vectors])}")
    return train, val, _distinct(names)


def _side_by_side(blocks: Sequence[Array]) -> Array:
    """Return rows of all blocks: a single block as it is, several in a type that holds all of them."""
    if len(blocks) == 1 and blocks[0].dtype != np.float64:
        return blocks[0]
    kind = np.result_type(*blocks)
    return np.ascontiguousarray(np.hstack(blocks), dtype=ROW_TYPES.get(kind.name, "float64"))


def _different(columns: Sequence[Column]) -> Any:
    """Rows of the training table that differ from all earlier ones; fill values and scales are fitted on them.

    If rows have owners, copies would otherwise change the scale for everyone. Returns an index; a slice of all rows if
    no two are equal.
    """
    keys = np.zeros(len(columns[0].train) if columns else 0, dtype=np.uint64)
    for column in columns:
        if column.kind in ("number", "vector"):
            entries = column.train
        elif column.kind == "image":
            entries = np.unique(column.train.keys(), return_inverse=True)[1][:, None]
        else:
            number: dict[Any, int] = {}
            codes = [number.setdefault(entry, len(number)) for entry in column.train.tolist()]
            entries = np.array(codes, dtype=np.float64)[:, None]
        for part in entries.T:
            # Adding zero turns -0.0 into 0.0; all missing entries get the same bits.
            numbers = part.astype(np.float64) + 0.0
            keys += np.where(np.isnan(numbers), np.nan, numbers).view(np.uint64)
            for shift, factor in _MIXING:
                keys ^= keys >> shift
                keys *= factor
    found, first = np.unique(keys, return_index=True)
    return slice(None) if found.size == keys.size else np.sort(first)


def _encoded(column: Column, categorical: str, different: Any, notes: list[str]) -> tuple[Array, Array, list[str]]:
    train, val = column.train[:, None], column.val[:, None]
    if any(column.missing()):
        filler = SimpleImputer(strategy="most_frequent", missing_values=None).fit(train[different])
        train, val = filler.transform(train), filler.transform(val)
    categories = column.order if column.order is not None else sorted(set(train[:, 0].tolist()))
    in_order = set(categories)
    unknown = [entry for entry in dict.fromkeys(val[:, 0].tolist()) if entry not in in_order]
    if unknown:
        rows = sum(entry not in in_order for entry in val[:, 0])
        said = f"{rows} validation rows have values of {column.name!r} unseen in training ({some(unknown)})"
        if categorical == "ordinal":
            raise InputError(
                f"{said}, which have no place in the order of the training values. Use --categorical onehot, with "
                f"which they match no category, remove these rows, or leave the column out: --drop {column.name}."
            )
        notes.append(f"{said}: they match no category")
    known = [np.array(categories, dtype=object)]
    if categorical == "onehot":
        encoder = OneHotEncoder(categories=known, handle_unknown="ignore", sparse_output=False, dtype=np.float64)
        names = [f"{column.name}={category}" for category in categories]
        notes.append(f"made {column.name!r} into {len(names)} columns of 0 and 1, one for each category")
    else:
        encoder = OrdinalEncoder(categories=known, dtype=np.float64)
        names = [column.name]
        by = "their own" if column.order is not None else "sorted"
        notes.append(f"made the {len(categories)} categories of {column.name!r} into numbers, in {by} order")
    encoder.fit(train)
    return encoder.transform(train), encoder.transform(val), names


def _embedded(column: Column, embed: Any, notes: list[str], progress: bool | None) -> tuple[Array, Array, list[str]]:
    embedder, size = embedder_of(embed, progress, images=column.kind == "image"), len(column.train)
    if column.kind == "image":
        items: Any = column.train.joined(column.val)
    else:
        items = ["" if text is None else text for side in (column.train, column.val) for text in side]
    # Both tables together: a text in both is embedded once.
    try:
        vectors = embedder.transform(items)
    except (InputError, MissingLibraryError) as error:
        raise type(error)(f"Column {column.name!r} cannot be embedded. {error}") from error
    names = [f"{column.name}[{j}]" for j in range(vectors.shape[1])]
    notes.append(f"embedded {column.name!r} as {len(names)} columns with {described(embedder)}, not scaled")
    return vectors[:size], vectors[size:], names


def _scaled(
    train: Floats, val: Floats, names: list[str], scale: str, different: Any, notes: list[str]
) -> tuple[Floats, Floats]:
    constant = train.max(axis=0) == train.min(axis=0)
    if constant.any():
        listed = some(list(compress(names, constant)))
        # It adds the same amount to the distance from a validation point to every training row.
        notes.append(
            f"{int(constant.sum())} {'column has' if constant.sum() == 1 else 'columns have'} one value in all "
            f"training rows ({listed}) and cannot tell neighbours apart" + ("" if scale == "none" else "; set to 0")
        )
    if scale == "none":
        notes.append(f"did not scale {len(names)} numeric columns: the ones with large numbers dominate the distances")
        return train, val
    with np.errstate(over="ignore", invalid="ignore"):
        spread = train.max(axis=0) - train.min(axis=0)
        # In place: these arrays were made for this, and another copy of all rows could be too much for memory.
        scaler = StandardScaler(copy=False) if scale == "standard" else RobustScaler(copy=False)
        if scale == "standard":
            # A few columns at a time and in ascending order, so that the order of the rows changes no digit.
            starts = range(0, train.shape[1], _COLUMNS)
            fitted = [StandardScaler().fit(np.sort(train[different, j : j + _COLUMNS], axis=0)) for j in starts]
            scaler.fit(train[:1])
            scaler.mean_, scaler.scale_ = (
                np.concatenate([getattr(one, name) for one in fitted]) for name in ("mean_", "scale_")
            )
        else:
            rows = train[different]
            scaler.fit(rows)
            # If half the rows or more share a value, the range between the quartiles is useless.
            low, high = np.percentile(rows, [25, 75], axis=0)
            narrow = (low == high) & ~constant
            scaler.scale_ = np.where(narrow, rows.std(axis=0), scaler.scale_)
            if narrow.any():
                listed = some(list(compress(names, narrow)))
                notes.append(
                    f"scaled {int(narrow.sum())} columns by their standard deviation, as their quartiles coincide: "
                    f"{listed}"
                )
        train, val = (scaler.transform(side) for side in (train, val))
        train[:, constant] = val[:, constant] = 0.0
    usable = np.isfinite(spread) & (constant | (train != 0).any(axis=0))
    usable &= np.isfinite(train).all(axis=0) & np.isfinite(val).all(axis=0)
    if not usable.all():
        listed = some(list(compress(names, ~usable)))
        raise InputError(
            f"Scaling overflows in {listed}: the numbers are too large for their spread to be computed. Correct the "
            "entries, or leave the columns out with --drop."
        )
    which = "" if isinstance(different, slice) else f"{different.size:,} different "
    notes.append(f"scaled {len(names)} numeric columns with {type(scaler).__name__} fitted on the {which}training rows")
    return train, val


def _distinct(names: list[str]) -> list[str]:
    """Names, numbered if two would be equal, as for a column "a=b" and category "b" of column "a"."""
    taken: set[str] = set()
    result = []
    for name in names:
        number, fresh = 2, name
        while fresh in taken:
            fresh, number = f"{name} ({number})", number + 1
        taken.add(fresh)
        result.append(fresh)
    return result
