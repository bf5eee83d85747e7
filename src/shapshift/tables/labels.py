"""Label, id and owner columns as arrays, with the labels of both tables brought to one type."""

from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from shapshift._validation import some

Array = npt.NDArray[Any]

_TRUTH = {"true": True, "false": False}
_MANY = 20  # rows from which on "nearly all labels differ" means something


def names(column: Any, what: str, where: str) -> Array:
    """Entries of a column that names things: integers, truth values or strings, none missing."""
    column = plain(column)
    kind = column.type
    if pt.is_nested(kind) or pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind):
        raise ValueError(
            f"The {what} column of {where} must hold text or numbers. It holds {kind}. Choose another column."
        )
    missing = column.null_count
    if pt.is_floating(kind):
        missing += int(pc.sum(pc.is_nan(column)).as_py() or 0)
    if missing:
        first = int(np.argmax(pc.is_null(column, nan_is_null=True).to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"The {what} column of {where} has {missing} missing values of {len(column)}, the first in row {first}. "
            f"Drop those rows or give them a value."
        )
    if pt.is_boolean(kind):
        return cast(Array, column.to_numpy(zero_copy_only=False).astype(bool))
    if pt.is_integer(kind):
        whole = column.to_numpy()
        return cast(Array, whole if whole.dtype == np.uint64 and whole.max() > 2**63 - 1 else whole.astype(np.int64))
    if pt.is_floating(kind) or pt.is_decimal(kind):
        numbers = column.cast(pa.float64(), safe=False).to_numpy()
        if not np.isfinite(numbers).all():
            raise ValueError(f"The {what} column of {where} holds infinity. Correct those rows.")
        integral = (numbers == np.floor(numbers)).all() and np.abs(numbers).max() < 2**53
        return cast(Array, numbers.astype(np.int64) if integral else numbers)
    return np.array([str(entry) for entry in column.to_pylist()])


def plain(column: Any) -> Any:
    """One array without dictionary encoding, of a type that every Arrow function knows."""
    if pt.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    array = column.combine_chunks()
    if isinstance(array, pa.ChunkedArray):  # some releases leave a single chunk chunked
        array = array.chunk(0) if array.num_chunks else pa.array([], array.type)
    if pt.is_float16(array.type):
        missing = array.is_null().to_numpy(zero_copy_only=False)
        array = pa.array(array.to_numpy(zero_copy_only=False).astype(np.float64), mask=missing)
    if str(array.type) in ("large_string", "string_view"):
        array = array.cast(pa.string())
    return array


def same_labels(train: Array, val: Array, label: str) -> tuple[Array, Array, list[str]]:
    """Bring the labels of both tables to one type, and refuse labels that are no classes.

    Returns
    -------
    y_train, y_val : ndarray
    notes : list of str
    """
    notes = []
    kinds = train.dtype.kind, val.dtype.kind
    if kinds[0] != kinds[1]:
        before = train.dtype, val.dtype
        train, val = _common(train, val, label)
        notes.append(
            f"label {label!r} is {_kind(before[0])} in the training table and {_kind(before[1])} in the validation "
            f"table; both read as {_kind(train.dtype)}"
        )
    classes, sizes = np.unique(train, return_counts=True)
    if train.size >= _MANY and classes.size > train.size / 2:
        raise ValueError(
            f"Label {label!r} has {classes.size} distinct values in {train.size} training rows "
            f"({some(classes.tolist())}), so it does not name classes. Choose the column of the class, or cut a "
            "numeric target into classes first."
        )
    unseen = ~np.isin(val, classes)
    if unseen.all():
        raise ValueError(
            f"No validation row has a label that occurs in training. Label {label!r} has {some(classes.tolist())} in "
            f"the training table and {some(np.unique(val).tolist())} in the validation table. Write the classes the "
            "same way in both."
        )
    if unseen.any():
        notes.append(
            f"{int(unseen.sum())} of {val.size} validation labels never occur in training "
            f"({some(np.unique(val[unseen]).tolist())}): no training row can match them"
        )
    if classes.size == 1:
        notes.append(
            f"all training rows have the same label, {classes[0].item()!r}: no row can be worth more than another"
        )
    else:
        counts = ", ".join(
            f"{name!r}: {size}" for name, size in list(zip(classes.tolist(), sizes.tolist(), strict=True))[:6]
        )
        notes.append(f"label {label!r} has {classes.size} classes in training ({counts}{', ...' * (classes.size > 6)})")
    return train, val, notes


def same_numbers(train: Array, val: Array, label: str) -> tuple[Array, Array, list[str]]:
    """Read the labels of both tables as numbers to predict.

    Returns
    -------
    y_train, y_val : ndarray of float64
    notes : list of str
    """
    numbers = []
    for labels, where in ((train, "training"), (val, "validation")):
        if labels.dtype.kind not in "fiu":
            raise ValueError(
                f"Label {label!r} is {_kind(labels.dtype)} in the {where} table ({some(np.unique(labels).tolist())}), "
                "but must be a number for this method. Choose another column, or a method for classes."
            )
        numbers.append(labels.astype(np.float64))
    low, high = numbers[0].min(), numbers[0].max()
    notes = [f"label {label!r} is a number to predict, from {low:g} to {high:g} in training"]
    if low == high:
        notes.append("all training rows have the same label: every prediction is that number")
    return numbers[0], numbers[1], notes


def _common(train: Array, val: Array, label: str) -> tuple[Array, Array]:
    kinds = {train.dtype.kind, val.dtype.kind}
    if "U" not in kinds:  # numbers and truth values
        target = np.float64 if "f" in kinds else np.int64
        return train.astype(target), val.astype(target)
    other = val if train.dtype.kind == "U" else train
    try:
        if other.dtype.kind == "b":
            return _truth(train), _truth(val)
        if other.dtype.kind == "f":
            return train.astype(np.float64), val.astype(np.float64)
        return _whole(train), _whole(val)
    except (ValueError, KeyError):
        raise ValueError(
            f"Label {label!r} is {_kind(train.dtype)} in the training table ({some(np.unique(train).tolist())}) but "
            f"{_kind(val.dtype)} in the validation table ({some(np.unique(val).tolist())}), and the text does not "
            "read as the other. Write the classes the same way in both."
        ) from None


def _truth(labels: Array) -> Array:
    return labels if labels.dtype.kind == "b" else np.array([_TRUTH[text.strip().lower()] for text in labels.tolist()])


def _whole(labels: Array) -> Array:
    if labels.dtype.kind != "U":
        return labels
    numbers = labels.astype(np.float64)
    if not (numbers == np.floor(numbers)).all():
        raise ValueError("not whole numbers")
    return numbers.astype(np.int64)


def _kind(dtype: np.dtype[Any]) -> str:
    kinds = {"U": "text", "b": "true or false", "i": "whole numbers", "u": "whole numbers", "f": "numbers"}
    return kinds.get(dtype.kind, str(dtype))
