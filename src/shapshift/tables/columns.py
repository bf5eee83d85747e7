"""Feature columns: what kind each is, what stands in the way of using it, and its numbers or categories."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from shapshift._archive import object_array
from shapshift.tables.labels import plain

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
    """

    name: str
    kind: str
    train: Array
    val: Array
    names: list[str]
    order: list[Any] | None = None

    def missing(self) -> tuple[int, int]:
        """Count missing entries of both tables."""
        if self.kind == "number":
            return int(np.isnan(self.train).sum()), int(np.isnan(self.val).sum())
        return sum(entry is None for entry in self.train), sum(entry is None for entry in self.val)


class UnusableError(ValueError):
    """A column that cannot be a feature, and what to do about it."""


def make_column(
    name: str, train: Any, val: Any, *, asked: bool, ordinal: bool, embed: bool
) -> tuple[Column, list[str]]:
    """Turn a column of both tables into numbers or categories.

    Parameters
    ----------
    name : str
    train, val : pyarrow.ChunkedArray
    asked : bool
        Whether the caller named it as a feature, which settles doubts whether it is one.
    ordinal : bool
        Whether categories become numbers in order, of which any number will do.
    embed : bool
        Whether it is text to be embedded.

    Returns
    -------
    column : Column
    notes : list of str
    """
    order = train.type.ordered and _dictionary(train) if pt.is_dictionary(train.type) else None
    category = pt.is_dictionary(train.type) or pt.is_dictionary(val.type)
    train, val = plain(train), plain(val)
    family, notes = _common_family(name, train, val)
    if family == "mixed":
        train, val, family = train.cast(pa.float64()), val.cast(pa.float64()), "number"
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
        return _vectors(name, train, val), notes
    if family == "number" and not category:
        if not asked and pt.is_integer(train.type):
            _refuse_row_numbers(name, train)
        numbers = _numbers(train)[:, None], _numbers(val)[:, None]
        return Column(name, "number", *numbers, [name]), notes
    column = Column(name, "category", _objects(train), _objects(val), [], order or None)
    _refuse_identifiers(column, asked=asked, ordinal=ordinal)
    return column, notes


def _common_family(name: str, train: Any, val: Any) -> tuple[str, list[str]]:
    families = _family(train.type), _family(val.type)
    if families[0] == families[1]:
        return families[0], []
    if "empty" in families:
        return next(family for family in families if family != "empty"), []
    if set(families) == {"text", "number"}:
        text, where = (train, "training") if families[0] == "text" else (val, "validation")
        try:
            text.cast(pa.float64())
        except pa.ArrowException:
            pass
        else:
            return "mixed", [
                f"column {name!r} is text in the {where} table but reads as numbers throughout; used as numbers"
            ]
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


def _numbers(array: Any) -> Floats:
    # Unsafe only in that whole numbers beyond 2**53 are rounded, as they would be anywhere.
    numbers = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return cast(Floats, np.array(numbers, dtype=np.float64))


def _objects(array: Any) -> Array:
    return object_array(array.to_pylist())


def _dictionary(column: Any) -> list[Any]:
    return list(
        dict.fromkeys(
            entry for chunk in column.unify_dictionaries().chunks[:1] for entry in chunk.dictionary.to_pylist()
        )
    )


def _vectors(name: str, train: Any, val: Any) -> Column:
    lengths = {length for array in (train, val) for length in pc.unique(pc.list_value_length(array)).to_pylist()}
    if len(lengths) != 1 or lengths & {0, None}:
        shown = ", ".join(
            "missing" if length is None else str(length) for length in sorted(lengths, key=lambda n: n or 0)[:5]
        )
        raise UnusableError(
            f"Column {name!r} holds vectors, but not all of one length (lengths: {shown}). Make them equally long, or "
            f"leave it out: --drop {name}"
        )
    width = lengths.pop()
    blocks = [_numbers(plain(pa.chunked_array([pc.list_flatten(array)]))).reshape(-1, width) for array in (train, val)]
    return Column(name, "number", blocks[0], blocks[1], [f"{name}[{j}]" for j in range(width)])


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


def _refuse_identifiers(column: Column, *, asked: bool, ordinal: bool) -> None:
    present: list[Any] = [entry for entry in column.train if entry is not None]
    if not present:
        raise UnusableError(
            f"Column {column.name!r} has no value in any training row. Leave it out: --drop {column.name}"
        )
    if ordinal:
        return
    distinct, texts = set(present), [entry for entry in present if isinstance(entry, str)]
    name = column.name
    ways = f"--drop {name}, --embed {name} if it is text, or --categorical ordinal"
    if sum(map(len, texts)) > _LONG_TEXT * max(1, len(texts)) and len(distinct) > _FEW_ROWS:
        raise UnusableError(f"Column {name!r} holds long texts, for instance {present[0][:40]!r}...; say {ways}")
    if len(distinct) > MOST_CATEGORIES:
        numeric = (
            " They all read as numbers: store them as such." if texts and all(map(_reads_as_number, distinct)) else ""
        )
        raise UnusableError(
            f"Column {name!r} has {len(distinct)} distinct values in {len(present)} training rows, more than the "
            f"{MOST_CATEGORIES} that are made into columns of their own.{numeric} Say {ways}"
        )
    if not asked and len(present) >= _FEW_ROWS and len(distinct) == len(present):
        raise UnusableError(
            f"Column {name!r} looks like an id: every training row has another value. Say --id {name}, {ways}"
        )


def _reads_as_number(text: object) -> bool:
    try:
        float(str(text))
    except ValueError:
        return False
    return True


def problem(messages: Sequence[str]) -> ValueError:
    """Return one error for all columns that cannot be used, so that they can be dealt with at once."""
    if len(messages) == 1:
        return ValueError(f"{messages[0]}.")
    return ValueError(
        f"{len(messages)} columns cannot be used as they are:\n" + "\n".join(f"- {text}." for text in messages)
    )
