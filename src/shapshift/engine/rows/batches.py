"""Rows from memory maps and iterators of batches, and the reading options."""

import mmap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.rows.file import RowFile, RowWriter, file_stamp, load_bytes
from shapshift.exceptions import InputError

#: Table of rows, labels, and ids or groups.
Source = tuple[check.Table, Any, Any]

# Approximate size of the batches in which rows are read and converted, in bytes.
BATCH_BYTES = 2**24


@dataclass(frozen=True)
class Options:
    """Options for reading rows.

    Attributes
    ----------
    names : tuple of str
        Names in messages of the rows, the labels, and the other columns, such as ids, or groups and weights.
    fitted : list or None
        Required column names, in order; None for any.
    width : int or None
        Required number of features.
    scratch : str or None
        Folder for scratch files.
    max_memory : int or None
    progress : bool or None
    """

    names: tuple[str, ...]
    fitted: list[Any] | None
    width: int | None
    scratch: str | None
    max_memory: int | None
    progress: bool | None

    @property
    def name(self) -> str:
        """Name of the rows in messages."""
        return self.names[0]

    @property
    def load_bytes(self) -> int:
        """Rows of at most this size as float64 are loaded."""
        return load_bytes(self.max_memory)


def read_memmap(X: np.memmap[Any, Any], options: Options) -> RowFile:
    """Return the rows of a memory map: in its own file if stored as plain rows, else in a scratch file."""
    check.check_shape(X.shape, options.name)
    file = _in_place(X)
    if file is not None:
        return file
    step = max(1, BATCH_BYTES // (8 * X.shape[1]))
    with RowWriter(options.scratch, X.shape[1], "<f4" if X.dtype == np.float32 else "<f8") as writer:
        rounded = np.zeros(X.shape[1], dtype=np.int64)
        for lo in range(0, X.shape[0], step):
            rows = np.asarray(X[lo : lo + step])
            rounded += check.rounded_counts(rows)
            writer.append(rows)
        check.warn_rounded(repr(options.name), dict(enumerate(rounded.tolist())))
        return writer.finish()


def _in_place(X: np.memmap[Any, Any]) -> RowFile | None:
    """Return the rows of a memory map in its own file; None if the file stores them differently than memory."""
    if X.dtype.str not in ("<f4", "<f8") or not X.flags.c_contiguous or X.mode == "c" or X.filename is None:
        return None
    if X.mode != "r":
        X.flush()
    origin = np.frombuffer(X._mmap, dtype=np.uint8).__array_interface__["data"][0]  # type: ignore[attr-defined]
    # A view keeps the offset of its base array; its address gives its true start.
    offset = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY + X.__array_interface__["data"][0] - origin
    path, last = str(X.filename), X.shape[0] - 1
    try:
        file = RowFile(path, offset, (X.shape[0], X.shape[1]), X.dtype.str, file_stamp(path))
        ends = np.concatenate([file[0:1], file[last : last + 1]])
    except (OSError, ValueError):
        return None
    # The name may now belong to another file.
    return file if np.array_equal(ends, X[[0, last]].astype(np.float64), equal_nan=True) else None


def read_batches(batches: Iterator[Any], y: Any, extra: tuple[Any, ...], options: Options) -> Source:
    """Write an iterator of (features, labels), which can be read only once, to a scratch file."""
    if y is not None:
        raise InputError(
            f"The {options.names[1]!r} parameter must be None when {options.name!r} is an iterator: each of its "
            f"batches has its own labels, as a pair. Got {type(y).__name__}."
        )
    for name, given in zip(options.names[2:], extra, strict=True):
        if isinstance(given, str):
            raise InputError(f"The {name!r} parameter must be an array when {options.name!r} is an iterator.")
    columns, kind, labels = options.fitted, "numpy", []
    with ExitStack() as files:
        writer: RowWriter | None = None
        for number, batch in enumerate(batches):
            name = f"batch {number} of {options.name}"
            features, batch_labels = _pair(batch, name)
            if _is_empty(features):
                continue
            table = check.check_features(features, name)
            rows = table.rows.toarray() if hasattr(table.rows, "toarray") else table.rows
            narrow = getattr(features, "dtype", None) == np.float32
            given = table.columns
            if writer is None:
                columns, kind = given if columns is None else columns, table.kind
                width = rows.shape[1] if options.width is None else options.width
                writer = files.enter_context(RowWriter(options.scratch, width, "<f4" if narrow else "<f8"))
            else:
                if writer.dtype == "<f4" and not narrow:
                    writer = files.enter_context(_widened(writer, options))
                if given is None and rows.shape[1] == writer.width:
                    given = columns  # missing names were reported for the first batch
            rows = check.match_columns(check.Table(rows, given, None, "numpy"), columns, writer.width, name).rows
            labels.append(_labels.check_labels(batch_labels, f"labels of {name}", rows.shape[0], name))
            writer.append(rows)
        if writer is None:
            raise InputError(f"{options.name!r} is an iterator that yields no rows. Was it used up before?")
        return check.Table(writer.finish(), columns, None, kind), joined(labels), extra


def _pair(batch: Any, name: str) -> tuple[Any, Any]:
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    length = f" of length {len(batch)}" if isinstance(batch, tuple | list) else ""
    raise InputError(f"{name!r} must be a pair (features, labels). Got {type(batch).__name__}{length}.")


def _is_empty(features: Any) -> bool:
    shape = getattr(features, "shape", None)
    return bool((len(features) if shape is None else shape[0]) == 0)


def _widened(writer: RowWriter, options: Options) -> RowWriter:
    """Return a float64 writer with the same rows, for a batch that is not float32."""
    narrow = writer.finish()
    wide = RowWriter(options.scratch, narrow.shape[1], "<f8")
    try:
        for lo, hi in narrow.chunks():
            wide.append(narrow[lo:hi])
    except BaseException:
        wide.__exit__()
        raise
    return wide


def joined(parts: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate arrays, as objects if their kinds differ, so that 1 and 1.0 stay what they are."""
    if len({part.dtype.kind for part in parts}) <= 1:
        return np.concatenate(parts) if parts else np.empty(0)
    return object_array([entry for part in parts for entry in part.tolist()])
