"""Label, id and owner columns as arrays, with the labels of both tables in one type."""

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from shapshift._arrays import object_array
from shapshift.checks.inputs import fits_float, rounded_entries, some
from shapshift.checks.labels import are_numbers
from shapshift.exceptions import InputError
from shapshift.tables.files import about, cut

Array = npt.NDArray[Any]

_TRUTH = {"true": True, "false": False}
_MANY = 20  # minimum number of rows for "nearly all labels differ"
# Numbers as programs write them; "007" and "+7" are codes. Texts that are alike may be any number.
_NUMBER = re.compile(r"\s*-?(0|[1-9][0-9]*)(\.[0-9]*)?([eE][+-]?[0-9]{1,3})?\s*")
_ANY_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_SHOWN = 40  # characters of an entry
REGRESSION = "--method regression (TableSpec(target='number'))"


def read_names(column: Any, what: str, where: str, *, written: bool = False) -> Array:
    """Entries of a column of names: integers, truth values or strings, none missing and none merged.

    Parameters
    ----------
    column : pyarrow.ChunkedArray
    what, where : str
        Names of the column and its table in messages.
    written : bool
        Whether the column is text because its format has no types; see :func:`as_written`.
    """
    column = as_written(plain(column)) if written else plain(column)
    kind = column.type
    if pt.is_nested(kind) or pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        raise InputError(
            f"The {what} column of {where} must hold text or numbers. It holds {kind}. Choose another column."
        )
    missing = pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)
    if missing.any():
        raise InputError(
            f"The {what} column of {where} has {missing.sum()} missing values of {len(column)}, the first in row "
            f"{missing.argmax()} (counted from 0). "
            + ("Empty cells and such as NA, NULL, nan and None count as missing. " if written else "")
            + "Drop those rows or give them a value."
        )
    if pt.is_decimal(kind):
        column = exact_numbers(column.to_pylist())
        kind = column.type
    if pt.is_boolean(kind):
        return cast(Array, column.to_numpy(zero_copy_only=False).astype(bool))
    if pt.is_integer(kind):
        whole = column.to_numpy()
        return cast(Array, whole if whole.dtype == np.uint64 and whole.max() > 2**63 - 1 else whole.astype(np.int64))
    if pt.is_floating(kind):
        numbers = column.cast(pa.float64(), safe=False).to_numpy()
        if not np.isfinite(numbers).all():
            raise InputError(f"The {what} column of {where} holds infinity. Correct those rows.")
        integral = (numbers == np.floor(numbers)).all() and np.abs(numbers).max() < 2**53
        return cast(Array, numbers.astype(np.int64) if integral else numbers)
    try:
        texts = _times(column) if pt.is_temporal(kind) and getattr(kind, "unit", "") == "ns" else column.to_pylist()
    except (OverflowError, ValueError):
        raise InputError(
            f"The {what} column of {where} holds {kind} beyond the years 1 to 9999. Write it as text."
        ) from None
    texts = list(map(str, texts))
    if any(text.endswith("\0") for text in texts):  # an array of strings would drop it and merge names
        raise InputError(f"The {what} column of {where} has text that ends in a NUL character. Correct those rows.")
    return np.array(texts)


def _times(column: Any) -> list[str]:
    """Write times in nanoseconds as text: Python's own times stop at microseconds, so two names could become one."""
    whole, rest = np.divmod(column.cast(pa.int64()).to_numpy(), 1000)
    kind = column.type
    zoned = {"tz": kind.tz} if pt.is_timestamp(kind) else {}
    coarse = (pa.timestamp if zoned else pa.duration if pt.is_duration(kind) else pa.time64)("us", **zoned)
    texts = list(map(str, pa.array(whole).cast(coarse).to_pylist()))
    for i in np.flatnonzero(rest).tolist():
        before, seconds, after = re.split(r"(:\d\d:\d\d(?:\.\d{6})?)", texts[i], maxsplit=1)
        texts[i] = f"{before}{seconds if '.' in seconds else f'{seconds}.000000'}{rest[i]:03d}{after}"
    return texts


def as_written(column: Any) -> Any:
    """Text of a format without types as whole numbers, if that loses nothing: all are in canonical form.

    "12" is such a number; "012", "+12", "12.0", "1e1" and what does not fit 64 bits are not, and a column with one of
    them stays text.
    """
    if pt.is_string(column.type) and pc.all(pc.match_substring_regex(column, r"\A(0|-?[1-9][0-9]*)\z")).as_py():
        with suppress(pa.ArrowException):
            return column.cast(pa.int64())
    return column


def with_whole_numbers(table: Any) -> Any:
    """Table with text of a format without types as whole numbers, if that loses nothing."""
    for name in about(table).text:
        table = table.set_column(table.column_names.index(name), name, as_written(plain(table[name])))
    return table


def exact_numbers(entries: Sequence[Any]) -> Any:
    """Arrow array that keeps different numbers different: integers, else floats, else text.

    This holds across arrays too: no two different numbers of two arrays of floats become one float.

    Parameters
    ----------
    entries : sequence of int, float, Decimal or None
    """
    present = [entry for entry in entries if entry is not None]
    finite = all(isinstance(entry, int) or math.isfinite(entry) for entry in present)
    if finite and all(entry == int(entry) for entry in present):
        whole = [None if entry is None else int(entry) for entry in entries]
        for kind in (pa.int64(), pa.uint64()):
            with suppress(OverflowError, pa.ArrowException):
                return pa.array(whole, kind)
        return pa.array([None if entry is None else str(entry) for entry in whole], pa.string())
    if not finite or all(map(fits_float, present)):
        return pa.array([None if entry is None else float(entry) for entry in entries], pa.float64())
    texts: dict[Any, str | None] = {None: None}  # 1.5 and 1.50 are one number
    return pa.array([texts.setdefault(entry, str(entry)) for entry in entries], pa.string())


def has_large_floats(column: Any) -> bool:
    """Whether floats, or floats in lists, are so large that whole numbers may have been rounded."""
    kind = column.type
    if pt.is_list(kind):
        return has_large_floats(pc.list_flatten(column))
    return pt.is_floating(kind) and bool(pc.any(pc.greater_equal(pc.abs(column), 2.0**53)).as_py())


def count_rounded(column: Any, floats: Any, decimal: str = ".") -> int:
    """Count the whole numbers of a column of text or exact numbers that differ from those in ``floats``."""
    large = column.filter(pc.greater_equal(pc.abs(floats), 2.0**53)).to_pylist()
    return rounded_entries(Decimal(str(entry).replace(decimal, ".")) for entry in large)


def plain(column: Any) -> Any:
    """One array without dictionary encoding, of a type that every Arrow function supports."""
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # some releases leave a single chunk chunked
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if pt.is_float16(array.type):
        missing = array.is_null().to_numpy(zero_copy_only=False)
        array = pa.array(array.to_numpy(zero_copy_only=False).astype(np.float32), mask=missing)
    if str(array.type) in ("large_string", "string_view"):
        array = array.cast(pa.string())
    return array


def same_labels(
    train: Array, val: Array, label: str, written: tuple[bool, bool] = (False, False)
) -> tuple[Array, Array, list[str]]:
    """Convert the labels of both tables to one type, and refuse labels that are not classes.

    Parameters
    ----------
    train, val : ndarray
        From :func:`read_names`.
    label : str
        Name of the column.
    written : tuple of bool
        Whether the column of each table is text because its format has no types.

    Returns
    -------
    y_train, y_val : ndarray
    notes : list of str
    """
    notes = []
    before = train.dtype, val.dtype
    train, val = _matched(train, val, label, written)
    if len({_kind(before[0]), _kind(before[1]), _kind(train.dtype)}) > 1:
        notes.append(
            f"label {label!r} is {_kind(before[0])} in the training table and {_kind(before[1])} in the validation "
            f"table; both read as {_kind(train.dtype)}"
        )
    classes, sizes = np.unique(train, return_counts=True)
    numeric = _reads_as_numbers(classes)
    if train.size >= _MANY and classes.size > train.size / 2:
        raise InputError(
            f"Label {label!r} has {classes.size} distinct values in {train.size} training rows "
            f"({some(classes.tolist())}), so it does not name classes. Choose the column of the class"
            + (f"; if the label is a number to predict, use {REGRESSION}." if numeric else ".")
        )
    unseen = ~np.isin(val, classes)
    if unseen.all():
        raise InputError(
            f"No validation row has a label that occurs in training. Label {label!r} has {some(classes.tolist())} in "
            f"the training table and {some(np.unique(val).tolist())} in the validation table. Write the classes the "
            "same way in both" + (f"; if the label is a number to predict, use {REGRESSION}." if numeric else ".")
        )
    if unseen.any():
        notes.append(
            f"{int(unseen.sum())} of {val.size} validation labels never occur in training "
            f"({some(np.unique(val[unseen]).tolist())}): no training row can match them"
        )
    if classes.size == 1:
        notes.append(
            f"all training rows have the same label, {classes[0].item()!r}: there is only one class, so values "
            "say little about the rows"
        )
    else:
        counts = ", ".join(f"{name!r}: {size}" for name, size in zip(classes[:6].tolist(), sizes[:6], strict=True))
        notes.append(f"label {label!r} has {classes.size} classes in training ({counts}{', ...' * (classes.size > 6)})")
        if numeric and (classes.size > _MANY or (classes.astype(np.float64) % 1 != 0).any()):
            notes.append(f"the classes of label {label!r} are numbers: to predict a number, use {REGRESSION}")
    alike = names_alike([*classes.tolist(), *np.unique(val).tolist()])
    if alike:
        notes.append(f"labels that differ only in spaces, capitals or writing are different classes: {alike}")
    return train, val, notes


def same_numbers(train: Array, val: Array, label: str, where: tuple[str, str]) -> tuple[Array, Array, list[str]]:
    """Read the labels of both tables as numbers to predict.

    Returns
    -------
    y_train, y_val : ndarray of float64
    notes : list of str
    """
    numbers = []
    for labels, place in zip((train, val), where, strict=True):
        odd = odd_entry(labels.tolist()) if labels.dtype.kind == "U" else None
        if labels.dtype.kind not in "fiuU" or odd is not None:
            what = f"It is {_kind(labels.dtype)} in {place} ({some(np.unique(labels).tolist())})"
            if odd is not None:
                what = f"In {place} {odd}"
            raise InputError(
                f"Label {label!r} must be a number for this method. {what}. Correct the file, or choose another "
                "column or a method for classes."
            )
        plain_texts = np.char.replace(labels, ",", ".") if labels.dtype.kind == "U" else labels
        numbers.append(plain_texts.astype(np.float64))
    low, high = numbers[0].min(), numbers[0].max()
    notes = [f"label {label!r} is a number to predict, from {low:g} to {high:g} in training"]
    if low == high:
        notes.append("all training rows have the same label: every prediction is that number")
    return numbers[0], numbers[1], notes


def label_sets(table: Any, columns: Sequence[str], where: str) -> tuple[Array, list[str]]:
    """Read the labels of each row of a multi-label table, as tuples in the order of the columns, or sorted.

    Parameters
    ----------
    table : pyarrow.Table
    columns : sequence of str
        One column of lists, or a column of 0 and 1 for each label.
    where : str
        How messages call the table.
    """
    sides = [plain(table[name]) for name in columns]
    if len(sides) == 1:
        if not is_list(sides[0].type):
            raise InputError(
                f"Label {columns[0]!r} of {where} must hold a list of labels in each row. It holds {sides[0].type}. "
                "Name several columns of 0 and 1 instead, such as --label a,b,c."
            )
        entries = sides[0].to_pylist()
        missing = [i for i, entry in enumerate(entries) if entry is None or None in entry]
        if missing:
            raise InputError(
                f"Label {columns[0]!r} of {where} has {len(missing)} missing values of {len(entries)}, the first in "
                f"row {missing[0]} (counted from 0). Drop those rows; an empty list says that a row has no label."
            )
        names = sorted({label for entry in entries for label in entry})
        found = [tuple(sorted(set(entry))) for entry in entries]
    else:
        names, marks = list(columns), np.empty((table.num_rows, len(columns)), dtype=np.bool_)
        for j, (name, side) in enumerate(zip(columns, sides, strict=True)):
            entries = side.to_pylist()
            odd = [i for i, entry in enumerate(entries) if entry not in (0, 1, "0", "1")]  # False is 0
            if odd:
                raise InputError(
                    f"Label {name!r} of {where} must be 0 or 1 in each row. Row {odd[0]} (counted from 0) has "
                    f"{entries[odd[0]]!r}. Drop rows whose labels are unknown."
                )
            marks[:, j] = [int(entry) for entry in entries]
        found = [tuple(name for name, mark in zip(names, row, strict=True) if mark) for row in marks.tolist()]
    return object_array(found), [f"each row has a set of {len(names)} labels ({some(names)})"]


def is_list(kind: Any) -> bool:
    """Whether a type of Arrow is one of lists."""
    return bool(pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind))


def seen_target(column: Any) -> str:
    """Detect the content of a label column: "class", "number" or "set"; see TableSpec.

    Of numbers, :func:`shapshift.checks.labels.are_numbers` says whether they are classes.
    """
    column = as_written(plain(column))
    if is_list(column.type):
        return "set"
    present = column.drop_null()
    if pt.is_string(column.type) and len(present) and odd_entry(present.to_pylist()) is None:
        present = pc.replace_substring(present, ",", ".").cast(pa.float64())
    if not len(present) or not (pt.is_integer(present.type) or pt.is_floating(present.type)):
        return "class"
    return "number" if are_numbers(present.to_numpy(zero_copy_only=False)) else "class"


def odd_places(entries: Sequence[Any]) -> list[int]:
    """Positions of texts that do not read as numbers, with the decimal sign that makes more of them numbers."""
    texts = [(i, text.strip()) for i, text in enumerate(entries) if isinstance(text, str)]
    odd = [i for i, text in texts if not _ANY_NUMBER.fullmatch(text)]
    if 2 * len(odd) > len(texts):
        odd = [i for i, text in texts if not _ANY_NUMBER.fullmatch(text.replace(",", "."))]
    return odd


def odd_entry(entries: Sequence[Any]) -> str | None:
    """Count texts that do not read as numbers, and name the first one, in words; None if all do."""
    odd = odd_places(entries)
    if not odd:
        return None
    return (
        f"{len(odd)} of {len(entries)} entries do not read as numbers, the first {cut(entries[odd[0]], _SHOWN)!r} in "
        f"row {odd[0]} (counted from 0)"
    )


def names_alike(entries: Sequence[Any]) -> str:
    """List texts that differ only in spaces, capitals or the way a number is written; empty if there are none."""
    groups: dict[Any, list[str]] = {}
    for entry in dict.fromkeys(entries):
        if isinstance(entry, str):
            plain_text = " ".join(unicodedata.normalize("NFKC", entry).split()).casefold()
            key = Decimal(plain_text) if _ANY_NUMBER.fullmatch(plain_text) else plain_text
            groups.setdefault(key, []).append(entry)
    alike = [some(group) for group in groups.values() if len(group) > 1]
    return "; ".join(alike[:3]) + (f"; and {len(alike) - 3} more groups" if len(alike) > 3 else "")


def _matched(train: Array, val: Array, label: str, written: tuple[bool, bool]) -> tuple[Array, Array]:
    """Labels of both tables in one type that keeps equal labels equal and different labels of a table different."""
    kinds = train.dtype.kind, val.dtype.kind
    if kinds[0] == kinds[1] and (kinds[0] != "U" or not any(written)):
        return train, val
    # Entries without a type are text first, and numbers only if no text matches.
    texts = None
    if "U" in kinds and all(kind == "U" or exact for kind, exact in zip(kinds, written, strict=True)):
        texts = train.astype(str), val.astype(str)
        if np.isin(texts[1], texts[0]).all():
            return texts
    found = _common(train, val)
    if found is not None:
        return found
    if texts is not None:
        return texts
    raise InputError(
        f"Label {label!r} is {_kind(train.dtype)} in the training table ({some(np.unique(train).tolist())}) but "
        f"{_kind(val.dtype)} in the validation table ({some(np.unique(val).tolist())}), and these cannot be matched "
        "with certainty. Write the classes the same way in both."
    )


def _common(train: Array, val: Array) -> tuple[Array, Array] | None:
    """Both as numbers, or both as truth values; None if that is impossible or would merge labels of one table."""
    sides = train, val
    distinct = [np.unique(side).tolist() for side in sides]
    if {side.dtype.kind for side in sides} == {"b", "U"}:
        truths = [{entry: _TRUTH.get(str(entry).strip().lower()) for entry in side} for side in distinct]
        return _looked_up(sides, truths, bool)
    if not all(_NUMBER.fullmatch(entry) for side in distinct for entry in side if isinstance(entry, str)):
        return None
    meanings: list[dict[Any, Any]] = [
        {entry: Decimal(entry.strip()) if isinstance(entry, str) else entry for entry in side} for side in distinct
    ]
    numbers = [number for meaning in meanings for number in meaning.values()]
    if all(number == int(number) for number in numbers):
        kind: Any = np.int64 if max(map(abs, numbers)) < 2**63 else np.uint64
        if min(numbers) < np.iinfo(kind).min or max(numbers) > np.iinfo(kind).max:
            return None
        meanings = [{entry: int(number) for entry, number in meaning.items()} for meaning in meanings]
    else:
        kind = np.float64
        if not all(map(fits_float, numbers)):
            return None  # would be rounded
        meanings = [{entry: float(number) for entry, number in meaning.items()} for meaning in meanings]
    return _looked_up(sides, meanings, kind)


def _looked_up(
    sides: tuple[Array, Array], meanings: Sequence[Mapping[Any, Any]], dtype: Any
) -> tuple[Array, Array] | None:
    """Replace each label by its meaning; None if one has none, or two of a side have the same."""
    found = []
    for labels, meaning in zip(sides, meanings, strict=True):
        if None in meaning.values() or len(set(meaning.values())) < len(meaning):
            return None
        distinct, places = np.unique(labels, return_inverse=True)
        found.append(np.array([meaning[entry] for entry in distinct.tolist()], dtype=dtype)[places])
    return found[0], found[1]


def _reads_as_numbers(classes: Array) -> bool:
    if classes.dtype.kind == "U":
        return all(map(_NUMBER.fullmatch, classes.tolist()))
    return classes.dtype.kind in "iuf"


def _kind(dtype: np.dtype[Any]) -> str:
    kinds = {"U": "text", "b": "true or false", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}
    return kinds.get(dtype.kind, str(dtype))
