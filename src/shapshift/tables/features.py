"""Feature columns: what kind each is, why it cannot be used, and its columns in the matrix of features."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from sklearn.impute import SimpleImputer
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, RobustScaler, StandardScaler

from shapshift._arrays import object_array
from shapshift.checks.inputs import rounded_counts, rounded_entries, some
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError, MissingLibraryError
from shapshift.tables.embedding import EMBEDDING_MODEL, embed_texts
from shapshift.tables.labels import count_rounded, odd_entry, odd_places, plain

Floats = npt.NDArray[np.float64]
Array = npt.NDArray[Any]

MOST_CATEGORIES = 50
_LONG_TEXT = 60  # characters on average
_FEW_ROWS = 20  # below this, "all distinct" says nothing
_ID_NAME = re.compile(r"(.*[_\W])?(id|uuid|guid|key|index|idx|row|rowid|row_number)", re.IGNORECASE)
_ID_CAMEL = re.compile(r".*[a-z](Id|ID|Key|Index)")


@dataclass(frozen=True)
class Column:
    """A feature column of both tables.

    Attributes
    ----------
    name : str
    kind : {"number", "category", "text"}
        Text is to be embedded.
    train, val : ndarray
        Numbers: float64, one column or, for a column of vectors, several; NaN where missing. Otherwise objects, None
        where missing.
    names : list of str
        One for each column of numbers.
    order : list or None
        The categories of an ordered dictionary, in that order.
    rounded : int
        Number of entries that float64 cannot hold.
    """

    name: str
    kind: str
    train: Array
    val: Array
    names: list[str]
    order: list[Any] | None = None
    rounded: int = 0

    def missing(self) -> tuple[int, int]:
        """Count missing entries of both tables."""
        if self.kind == "number":
            return int(np.isnan(self.train).sum()), int(np.isnan(self.val).sum())
        return sum(entry is None for entry in self.train), sum(entry is None for entry in self.val)


class UnusableError(InputError):
    """A column that cannot be a feature, and what to do about it."""


def make_column(
    name: str,
    train: Any,
    val: Any,
    *,
    where: tuple[str, str],
    asked: bool,
    ordinal: bool,
    embed: bool,
    rounded: tuple[int, int],
) -> tuple[Column, list[str]]:
    """Turn a column of both tables into numbers or categories.

    Parameters
    ----------
    name : str
    train, val : pyarrow.ChunkedArray
    where : tuple of str
        How messages call the tables.
    asked : bool
        Whether the caller named it as a feature, which settles doubts whether it is one.
    ordinal : bool
        Whether categories become numbers in order, of which any number will do.
    embed : bool
        Whether it is text to be embedded.
    rounded : tuple of int
        Numbers of entries of each table that reading it rounded to float64.

    Returns
    -------
    column : Column
    notes : list of str
    """
    order = train.type.ordered and _dictionary(train) if pt.is_dictionary(train.type) else None
    category = pt.is_dictionary(train.type) or pt.is_dictionary(val.type)
    train, val = plain(train), plain(val)
    family, notes = _common_family(name, train, val, where)
    if family == "mixed":
        # Unsafe casts round whole numbers; safe ones refuse them.
        floats = train.cast(pa.float64(), safe=False), val.cast(pa.float64(), safe=False)
        rounded = count_rounded(train, floats[0]), count_rounded(val, floats[1])
        train, val, family = *floats, "number"
    if family in ("date", "other"):
        hint = (
            "Turn it into numbers first (for instance days since a fixed day)"
            if family == "date"
            else "Turn it into columns of numbers first"
        )
        raise UnusableError(
            f"Column {name!r} holds {train.type}, which is no feature. {hint}, or leave it out: --drop {name}"
        )
    if family == "empty":
        raise UnusableError(f"Column {name!r} has no value in any row. Leave it out: --drop {name}")
    if embed:
        if family != "text":
            raise UnusableError(
                f"Column {name!r} is to be embedded but holds {train.type}, not text. Do without --embed {name}"
            )
        return Column(name, "text", _objects(train), _objects(val), []), notes
    if family == "list":
        return _vectors(name, train, val, rounded), notes
    if family == "number" and not category:
        if not asked and pt.is_integer(train.type):
            _refuse_row_numbers(name, train)
        numbers = _numbers(train), _numbers(val)
        count = sum(_rounded(*side) for side in zip((train, val), numbers, rounded, strict=True))
        return Column(name, "number", numbers[0][:, None], numbers[1][:, None], [name], rounded=count), notes
    column = Column(name, "category", _objects(train), _objects(val), [], order or None)
    _refuse_identifiers(column, where[0], asked=asked, ordinal=ordinal)
    mixed = _mostly_numbers(column)
    if mixed:
        # A warning and no note: it quotes an entry, and notes are shown to every owner.
        warn(f"Column {name!r} is used as a category, but most of it reads as numbers. In {where[0]} {mixed}.")
    return column, notes


def _common_family(name: str, train: Any, val: Any, where: tuple[str, str]) -> tuple[str, list[str]]:
    families = _family(train.type), _family(val.type)
    if families[0] == families[1]:
        return families[0], []
    if "empty" in families:
        return next(family for family in families if family != "empty"), []
    if set(families) == {"text", "number"}:
        side = families.index("text")
        text = (train, val)[side]
        try:
            text.cast(pa.float64())
        except pa.ArrowException:
            pass
        else:
            return "mixed", [
                f"column {name!r} is text in {where[side]} but reads as numbers throughout; used as numbers"
            ]
        odd = odd_entry(text.to_pylist())
        if odd is not None:
            raise UnusableError(
                f"Column {name!r} holds numbers in {where[1 - side]}, but in {where[side]} {odd}. Correct the file, or "
                f"leave the column out: --drop {name}"
            )
    raise UnusableError(
        f"Column {name!r} is {train.type} in the training table but {val.type} in the validation table. Write it the "
        f"same way in both, or leave it out: --drop {name}"
    )


def _family(kind: Any) -> str:
    if pt.is_null(kind):
        return "empty"
    if pt.is_boolean(kind):
        return "bool"
    if pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind):
        return "number"
    if pt.is_string(kind):
        return "text"
    if pt.is_temporal(kind):
        return "date"
    is_list = pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)
    return "list" if is_list and _family(kind.value_type) == "number" else "other"


def _rounded(array: Any, numbers: Floats, read: int) -> int:
    """Count whole numbers beyond 2**53 that became another number as a float, here or in the reader."""
    if pt.is_integer(array.type):
        return int(rounded_counts(array.drop_null().to_numpy()[:, None])[0])
    if pt.is_decimal(array.type):
        return rounded_entries(array.to_pylist())
    # The reader counted the whole table, of which this may be a part.
    return min(read, int((np.abs(numbers) >= 2**53).sum())) if read else 0


def _numbers(array: Any) -> Floats:
    # Unsafe only in that whole numbers beyond 2**53 are rounded, which the caller is told of.
    numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return cast(Floats, np.array(numbers, dtype=np.float64))


def _objects(array: Any) -> Array:
    return object_array(array.to_pylist())


def _dictionary(column: Any) -> list[Any]:
    return list(dict.fromkeys(column.unify_dictionaries().chunk(0).dictionary.to_pylist()))


def _vectors(name: str, train: Any, val: Any, rounded: tuple[int, int]) -> Column:
    lengths = {length for array in (train, val) for length in pc.unique(pc.list_value_length(array)).to_pylist()}
    if len(lengths) != 1 or lengths & {0, None}:
        listed = sorted(lengths, key=lambda n: n or 0)[:5]
        shown = ", ".join("missing" if length is None else str(length) for length in listed)
        raise UnusableError(
            f"Column {name!r} holds vectors, but not all of one length (lengths: {shown}). Make them equally long, or "
            f"leave it out: --drop {name}"
        )
    width = lengths.pop()
    flat = [plain(pa.chunked_array([pc.list_flatten(array)])) for array in (train, val)]
    numbers = [_numbers(array) for array in flat]
    count = sum(_rounded(*side) for side in zip(flat, numbers, rounded, strict=True))
    names = [f"{name}[{j}]" for j in range(width)]
    return Column(name, "number", numbers[0].reshape(-1, width), numbers[1].reshape(-1, width), names, rounded=count)


def _refuse_row_numbers(name: str, train: Any) -> None:
    """Refuse a column that counts or names the rows: as a feature it would decide who is whose neighbour."""
    size = len(train)
    if size < _FEW_ROWS or train.null_count or len(pc.unique(train)) < size:
        return
    steps = np.diff(train.to_numpy().astype(np.float64))
    if (steps == 1).all() or _ID_NAME.fullmatch(name) or _ID_CAMEL.fullmatch(name):
        raise UnusableError(
            f"Column {name!r} looks like a row number or id: {size} whole numbers, all different. Say --id {name} or "
            f"--drop {name}; if it is a feature, list it in --features"
        )


def _refuse_identifiers(column: Column, where: str, *, asked: bool, ordinal: bool) -> None:
    present: list[Any] = [entry for entry in column.train if entry is not None]
    if not present:
        raise UnusableError(
            f"Column {column.name!r} has no value in any training row. Leave it out: --drop {column.name}"
        )
    distinct, texts = set(present), [entry for entry in present if isinstance(entry, str)]
    name = column.name
    # Sorted texts have no order that distances could use: numbers in that order are no way out.
    ways = f"--drop {name} or --embed {name}" if texts else f"--drop {name} or --categorical ordinal"
    if sum(map(len, texts)) > _LONG_TEXT * max(1, len(texts)) and len(distinct) > _FEW_ROWS:
        raise UnusableError(f"Column {name!r} holds long texts, for instance {present[0][:40]!r}...; say {ways}")
    if len(distinct) > MOST_CATEGORIES and not ordinal:
        mixed = _mostly_numbers(column)
        numeric = f" Most read as numbers, but in {where} {mixed}: correct these if they are wrong." if mixed else ""
        if texts and odd_entry(texts) is None:
            numeric = " They all read as numbers: store them as such."
        raise UnusableError(
            f"Column {name!r} has {len(distinct)} distinct values in {len(present)} training rows, more than the "
            f"{MOST_CATEGORIES} that are made into columns of their own.{numeric} Say {ways}"
        )
    if not asked and len(present) >= _FEW_ROWS and len(distinct) == len(present):
        raise UnusableError(
            f"Column {name!r} looks like an id: every training row has another value. Say --id {name}, {ways}"
        )


def _mostly_numbers(column: Column) -> str | None:
    """Say which training entries are no numbers, where most are; None elsewhere."""
    entries = column.train.tolist()
    texts = [text for text in set(entries) if isinstance(text, str)]
    return odd_entry(entries) if 0 < len(odd_places(texts)) < len(texts) / 2 else None


def problem(messages: Sequence[str]) -> InputError:
    """Return one error for all columns that cannot be used, so that they can be dealt with at once."""
    if len(messages) == 1:
        return InputError(f"{messages[0]}.")
    return InputError(
        f"{len(messages)} columns cannot be used as they are:\n" + "\n".join(f"- {text}." for text in messages)
    )


def check_values(columns: Sequence[Column], impute: str | bool) -> None:
    """Refuse infinities, columns without any training value and, unless they are to be filled in, missing values."""
    problems, gaps = [], []
    for column in columns:
        if column.kind == "number":
            infinite = int(np.isinf(column.train).sum()), int(np.isinf(column.val).sum())
            if any(infinite):
                side, which = (column.train, "training") if infinite[0] else (column.val, "validation")
                row = int(np.argmax(np.isinf(side).any(axis=1)))
                problems.append(
                    f"Column {column.name!r} holds infinity ({infinite[0]} training and {infinite[1]} validation "
                    f"entries, the first in {which} row {row}, counted from 0). Correct them, or leave it out: --drop "
                    f"{column.name}"
                )
            if np.isnan(column.train).all(axis=0).any():
                problems.append(
                    f"Column {column.name!r} has no value in any training row. Leave it out: --drop {column.name}"
                )
                continue
        missing = column.missing()
        if any(missing):
            gaps.append(f"{column.name!r} ({missing[0]} training and {missing[1]} validation rows)")
    if problems:
        raise problem(problems)
    if gaps and impute is False:
        listed = ", ".join(gaps[:8]) + (f" and {len(gaps) - 8} more columns" if len(gaps) > 8 else "")
        raise InputError(
            f"Values are missing in {listed}. Distances need all of them: fill them in with --impute median (or mean, "
            "or most_frequent), leave columns out with --drop, or remove the rows."
        )


def encode(
    columns: Sequence[Column], scale: str, categorical: str, impute: str | bool, notes: list[str]
) -> tuple[Floats, Floats, list[str]]:
    """Fill in, encode, scale and put the columns side by side in their order.

    Returns
    -------
    X_train, X_val : ndarray of float64
    feature_names : list of str
    """
    blocks = [
        (column.train, column.val, column.names)
        if column.kind == "number"
        else (_encoded(column, categorical, notes) if column.kind == "category" else _embedded(column, notes))
        for column in columns
    ]
    train, val = (np.ascontiguousarray(np.hstack([b[side] for b in blocks]), dtype=np.float64) for side in (0, 1))
    names = [name for block in blocks for name in block[2]]
    kinds = np.repeat([column.kind for column in columns], [len(block[2]) for block in blocks])
    numbers = kinds == "number"
    if np.isnan(train).any() or np.isnan(val).any():
        filler = SimpleImputer(strategy=impute).fit(train.compress(numbers, axis=1))
        for side in (train, val):
            side[:, numbers] = filler.transform(side.compress(numbers, axis=1))
    filled = [column for column in columns if any(column.missing())]
    if filled:
        texts = ", texts by the empty text" if any(column.kind == "text" for column in filled) else ""
        notes.append(
            f"filled in missing values of {len(filled)} columns ({some([column.name for column in filled])}): numbers "
            f"by the {impute!s} of the training rows, categories by the most frequent one{texts}"
        )
    # Numbers in order of categories are as arbitrary in size as any; columns of 0 and 1 are not.
    scaled = numbers | ((kinds == "category") & (categorical == "ordinal"))
    if scaled.any():
        listed = [name for name, chosen in zip(names, scaled, strict=True) if chosen]
        # Compressed arrays are row-major, as the whole ones are: sums of another order would be other floats.
        sides = train.compress(scaled, axis=1), val.compress(scaled, axis=1)
        train[:, scaled], val[:, scaled] = _scaled(*sides, listed, scale, notes)
    elif scale != "none":
        notes.append("nothing was scaled: there is no column of numbers")
    return train, val, _distinct(names)


def _encoded(column: Column, categorical: str, notes: list[str]) -> tuple[Array, Array, list[str]]:
    train, val = column.train[:, None], column.val[:, None]
    if any(column.missing()):
        filler = SimpleImputer(strategy="most_frequent", missing_values=None).fit(train)
        train, val = filler.transform(train), filler.transform(val)
    categories = column.order if column.order is not None else sorted(set(train[:, 0].tolist()))
    in_order = set(categories)
    unknown = [entry for entry in dict.fromkeys(val[:, 0].tolist()) if entry not in in_order]
    if unknown:
        rows = sum(entry not in in_order for entry in val[:, 0])
        said = f"{rows} validation rows have values of {column.name!r} unseen in training ({some(unknown)})"
        if categorical == "ordinal":
            raise InputError(
                f"{said}, which have no place in the order of the training values. Use --categorical onehot, where "
                f"they match no category, remove these rows, or leave the column out: --drop {column.name}."
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


def _embedded(column: Column, notes: list[str]) -> tuple[Array, Array, list[str]]:
    try:
        train, val = (
            embed_texts(["" if text is None else text for text in side]).astype(np.float64)
            for side in (column.train, column.val)
        )
    except ImportError as error:
        raise MissingLibraryError(
            f"Embedding the column {column.name!r} needs the sentence-transformers package. Install it with: "
            f'pip install "shapshift[embed]". Or leave the column out: --drop {column.name}.'
        ) from error
    names = [f"{column.name}[{j}]" for j in range(train.shape[1])]
    notes.append(f"embedded {column.name!r} as {len(names)} columns with {EMBEDDING_MODEL}, not scaled")
    return train, val, names


def _scaled(train: Floats, val: Floats, names: list[str], scale: str, notes: list[str]) -> tuple[Floats, Floats]:
    constant = train.max(axis=0) == train.min(axis=0)
    if constant.any():
        listed = some([name for name, same in zip(names, constant, strict=True) if same])
        # It adds the same to the distance from a validation point to every training row.
        notes.append(
            f"{int(constant.sum())} columns have one value in all training rows ({listed}) and cannot tell neighbours "
            "apart" + ("" if scale == "none" else "; set to 0")
        )
    if scale == "none":
        notes.append(f"did not scale {len(names)} numeric columns: the ones with large numbers dominate the distances")
        return train, val
    with np.errstate(over="ignore", invalid="ignore"):
        # In place: these arrays were made for this, and another copy of all rows could be too much for memory.
        scaler = (StandardScaler(copy=False) if scale == "standard" else RobustScaler(copy=False)).fit(train)
        if scale == "robust":
            # Where half the rows or more share a value, the range between the quartiles says nothing.
            low, high = np.percentile(train, [25, 75], axis=0)
            narrow = (low == high) & ~constant
            scaler.scale_ = np.where(narrow, train.std(axis=0), scaler.scale_)
            if narrow.any():
                listed = some([name for name, flat in zip(names, narrow, strict=True) if flat])
                notes.append(
                    f"scaled {int(narrow.sum())} columns by their standard deviation, as their quartiles coincide: "
                    f"{listed}"
                )
        train, val = (scaler.transform(side) for side in (train, val))
        train[:, constant] = val[:, constant] = 0.0
    usable = np.isfinite(train).all(axis=0) & np.isfinite(val).all(axis=0) & (constant | (train != 0).any(axis=0))
    if not usable.all():
        listed = some([name for name, good in zip(names, usable, strict=True) if not good])
        raise InputError(
            f"Scaling overflows in {listed}: the numbers are too large for their spread to be computed. Correct the "
            "entries, or leave the columns out with --drop."
        )
    notes.append(f"scaled {len(names)} numeric columns with {type(scaler).__name__} fitted on the training rows")
    return train, val


def _distinct(names: list[str]) -> list[str]:
    """Names with a number where two would be alike, as with a column "a=b" beside category "b" of column "a"."""
    taken: set[str] = set()
    result = []
    for name in names:
        number, fresh = 2, name
        while fresh in taken:
            fresh, number = f"{name} ({number})", number + 1
        taken.add(fresh)
        result.append(fresh)
    return result
