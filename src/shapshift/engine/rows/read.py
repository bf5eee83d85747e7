"""Rows that do not fit in memory: Parquet files, memory maps, iterators of batches.

All sources become a ``RowFile``: a memory map is read in place; everything else is written to a scratch file once. If
there are few rows, they are loaded instead.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as pads

from shapshift.checks import inputs as check
from shapshift.engine.rows.batches import Options, Source, read_batches, read_memmap
from shapshift.engine.rows.file import RowFile
from shapshift.engine.rows.parquet import dataset_parts, file_parts, read_parts, reader_part

__all__ = ["Options", "read_source"]


def read_source(X: Any, y: Any, extra: tuple[Any, ...], options: Options) -> Source:
    """Read rows, labels and other columns from a source that :func:`shapshift.engine.rows.file.is_streamed` accepts.

    Parameters
    ----------
    X : path-like, pyarrow Dataset, RecordBatchReader, memmap or iterator
        A path names a Parquet file, a folder of them, or a pattern. An iterator yields pairs of features and labels.
    y : str, array-like or None
        For Parquet, also the name of the label column; for an iterator, None.
    extra : tuple of str, array-like or None
        Ids, or groups and weights, in the same way.
    options : Options

    Returns
    -------
    table : Table
        Its rows are a RowFile, or an array if they are few.
    labels : array-like
    extra : tuple of array-like or None
    """
    if isinstance(X, np.memmap):
        return _loaded((check.Table(read_memmap(X, options), None, None, "numpy"), y, extra), options)
    if isinstance(X, pa.RecordBatchReader):
        return _loaded(read_parts([reader_part(X, options)], y, extra, options, None), options)
    if isinstance(X, Iterator):
        return _loaded(read_batches(X, y, extra, options), options)
    try:
        parts = dataset_parts(X) if isinstance(X, pads.Dataset) else file_parts(X)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{options.name!r}: {error}") from None
    return _loaded(read_parts(parts, y, extra, options, options.scratch), options)


def _loaded(source: Source, options: Options) -> Source:
    """Load the rows if they are few; otherwise find the smallest and largest value of each feature."""
    table, labels, extra = source
    file = table.rows
    if 8 * file.shape[0] * file.shape[1] <= options.load_bytes:
        rows: Any = file.stored(0, file.shape[0])
        check.check_finite(rows, options.name, table.columns)
    else:
        rows = _with_ends(file, options.name, table.columns)
    return check.Table(rows, table.columns, None, table.kind), labels, extra


def _with_ends(file: RowFile, name: str, columns: list[Any] | None) -> RowFile:
    """Return the rows with the smallest and largest value of each feature; refuse values that are not finite."""
    low, high = np.full(file.shape[1], np.inf), np.full(file.shape[1], -np.inf)
    for lo, hi in file.chunks():
        rows = file[lo:hi]
        check.check_finite(rows, name, columns, first_row=lo)
        np.minimum(low, rows.min(axis=0), out=low)
        np.maximum(high, rows.max(axis=0), out=high)
    return file.scaled(0, (low, high))
