"""Training and validation rows that do not fit in memory: Parquet, memory maps, iterators of batches.

Whatever the rows come from, they end up as a :class:`~shapshift.rowfile.RowFile`: a memory map is read where it lies,
everything else is written to a scratch file once. Rows that are few are simply loaded.
"""

import hashlib
import mmap
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from shapshift import _labels, rowfile
from shapshift import _validation as check
from shapshift._archive import object_array
from shapshift._progress import progress_bar
from shapshift.rowfile import RowFile, RowWriter, file_stamp, opened
from shapshift.tables.files import find_parts, shown

Floats = npt.NDArray[np.float64]

# Rows of a Parquet file are decoded in batches of about this many bytes.
BATCH_BYTES = 2**24


@dataclass(frozen=True)
class Source:
    """Rows from outside memory, with what belongs to them.

    Attributes
    ----------
    table : Table
        Its rows are a RowFile, or an array if they are few.
    labels : array-like
    extra : array-like or None
        Ids or groups.
    """

    table: check.Table
    labels: Any
    extra: Any


@dataclass(frozen=True)
class Options:
    """How to read.

    Attributes
    ----------
    names : (str, str, str)
        What messages call the rows, the labels, and the ids or groups.
    fitted : list or None
        Column names that must come in this order; None for any.
    width : int or None
        How many features there must be.
    scratch : str or None
        Folder for scratch files.
    max_memory : int or None
    progress : bool or None
    """

    names: tuple[str, str, str]
    fitted: list[Any] | None
    width: int | None
    scratch: str | None
    max_memory: int | None
    progress: bool | None

    @property
    def name(self) -> str:
        """What messages call the rows."""
        return self.names[0]


@dataclass(frozen=True)
class Part:
    """A piece of a Parquet dataset: its name for messages, its schema, and how to read some columns of it."""

    name: str
    schema: Any
    n_rows: int
    stamp: tuple[Any, ...]
    read: Callable[[list[str], int], Iterable[Any]]


def read_source(X: Any, y: Any, extra: Any, options: Options) -> Source:
    """Make rows, labels and ids or groups out of what :func:`shapshift.rowfile.is_streamed` recognises.

    Parameters
    ----------
    X : path-like, pyarrow Dataset, RecordBatchReader, memmap or iterator
        A path names a Parquet file, a folder of them, or a pattern. An iterator yields pairs of features and labels.
    y : str or array-like
        For Parquet, the name of the label column will do; for an iterator, None.
    extra : str, array-like or None
        Ids or groups, likewise.
    options : Options
    """
    if isinstance(X, np.memmap):
        table = check.Table(_memmap_rows(X, options), None, None, "numpy")
        return _loaded(Source(table, y, extra), options)
    if isinstance(X, pa.RecordBatchReader):
        return _loaded(_read_parts([_reader_part(X, options)], y, extra, options, None), options)
    if isinstance(X, Iterator):
        return _loaded(_read_batches(X, y, extra, options), options)
    parts = _dataset_parts(X) if isinstance(X, pads.Dataset) else _file_parts(X)
    return _loaded(_read_parts(parts, y, extra, options, options.scratch), options)


def _loaded(source: Source, options: Options) -> Source:
    """Note the ends of the rows, and load them if they are few."""
    file, table = source.table.rows, source.table
    limit = rowfile.LOAD_BYTES if options.max_memory is None else min(rowfile.LOAD_BYTES, options.max_memory // 2)
    if 8 * file.shape[0] * file.shape[1] <= limit:
        rows: Any = file[0 : file.shape[0]]
        check.check_finite(rows, options.name, table.columns)
    else:
        rows = with_ends(file, options.name, table.columns)
    return Source(check.Table(rows, table.columns, None, table.kind), source.labels, source.extra)


def with_ends(file: RowFile, name: str, columns: list[Any] | None = None) -> RowFile:
    """Look through the rows: refuse what is not finite, note the smallest and largest value of each feature."""
    low, high = np.full(file.shape[1], np.inf), np.full(file.shape[1], -np.inf)
    for lo, hi in file.chunks():
        rows = file[lo:hi]
        check.check_finite(rows, name, columns, first_row=lo)
        np.minimum(low, rows.min(axis=0), out=low)
        np.maximum(high, rows.max(axis=0), out=high)
    return file.scaled(0, (low, high))


def _memmap_rows(X: np.memmap[Any, Any], options: Options) -> RowFile:
    """Read a memory map where it lies, if it lies there as plain rows; else copy it to a scratch file."""
    check.check_shape(X.shape, options.name)
    if X.dtype.str in ("<f4", "<f8") and X.flags.c_contiguous and X.mode != "c" and X.filename is not None:
        if X.mode != "r":
            X.flush()
        origin = np.frombuffer(X._mmap, dtype=np.uint8).__array_interface__["data"][0]  # type: ignore[attr-defined]
        # A view keeps the offset of the array it was taken from; its address tells where it really begins.
        offset = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY + X.__array_interface__["data"][0] - origin
        path = str(X.filename)
        return RowFile(path, offset, (X.shape[0], X.shape[1]), X.dtype.str, file_stamp(path))
    writer = RowWriter(options.scratch, X.shape[1], "<f4" if X.dtype == np.float32 else "<f8")
    step = max(1, BATCH_BYTES // (8 * X.shape[1]))
    try:
        for lo in range(0, X.shape[0], step):
            writer.append(np.asarray(X[lo : lo + step]))
        return writer.finish()
    except BaseException:
        writer.discard()
        raise


def _file_parts(path: str | os.PathLike[str]) -> list[Part]:
    found = find_parts(path)
    root = found.root
    if root is not None and any("=" in folder for file in found.files for folder in file.relative_to(root).parts[:-1]):
        files = [str(file) for file in found.files]
        return _dataset_parts(pads.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(root)))
    return [_file_part(file) for file in found.files]


def _file_part(path: Path) -> Part:
    try:
        with pq.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{shown(path)} is not a whole Parquet file ({error}). Rows larger than memory are read from Parquet: "
            "write or copy it anew, or load the table and pass that."
        ) from None

    def read(columns: list[str], batch: int) -> Iterable[Any]:
        with pq.ParquetFile(path) as file:
            yield from file.iter_batches(batch, columns=columns, use_threads=False)

    return Part(shown(path), schema, n_rows, (os.path.abspath(path), *file_stamp(str(path))), read)


def _dataset_parts(dataset: Any) -> list[Part]:
    def part(fragment: Any) -> Part:
        def read(columns: list[str], batch: int) -> Iterable[Any]:
            yield from fragment.to_batches(schema=dataset.schema, columns=columns, batch_size=batch, use_threads=False)

        path = getattr(fragment, "path", "") or "an in-memory fragment"
        stamp = (os.path.abspath(path), *file_stamp(path)) if os.path.isfile(path) else ()
        return Part(shown(path), dataset.schema, fragment.count_rows(), stamp, read)

    return [part(fragment) for fragment in dataset.get_fragments()]


def _reader_part(reader: Any, options: Options) -> Part:
    return Part(f"the batches of {options.name!r}", reader.schema, 0, (), lambda columns, batch: reader)


def _read_parts(parts: list[Part], y: Any, extra: Any, options: Options, keep: str | None) -> Source:
    """Turn Parquet parts into a file of rows; in a folder of the caller's choice it is kept and found again."""
    named = [name for name in (y, extra) if isinstance(name, str)]
    features = _feature_names(parts, named, options)
    for part in parts:
        _check_part(part, parts[0], [*features, *named], options)
    narrow = all(_fits_float32(part.schema.field(name).type) for part in parts for name in features)
    dtype, n_rows = "<f4" if narrow else "<f8", sum(part.n_rows for part in parts)
    target = None
    if keep is not None and all(part.stamp for part in parts):
        digest = hashlib.blake2b(repr((features, dtype, [part.stamp for part in parts])).encode(), digest_size=16)
        target = Path(keep) / f"shapshift-{digest.hexdigest()}.npy"
        file = opened(target, n_rows, len(features), dtype)
        if file is not None:
            _, values = _convert(parts, [], named, dtype, None, options)
            return _parquet_source(file, features, y, extra, named, values)
    writer = RowWriter(options.scratch, len(features), dtype)
    try:
        _, values = _convert(parts, features, named, dtype, writer, options)
        if writer.n_rows == 0:
            raise ValueError(
                f"{options.name!r} has columns but no rows: {len(parts)} parts, all empty. Check the path."
            )
        return _parquet_source(writer.finish(target), features, y, extra, named, values)
    except BaseException:
        writer.discard()
        raise


def _parquet_source(
    file: RowFile, features: list[str], y: Any, extra: Any, named: list[str], values: list[npt.NDArray[Any]]
) -> Source:
    by_name = dict(zip(named, values, strict=True))
    labels = by_name[y] if isinstance(y, str) else y
    return Source(
        check.Table(file, features, None, "pyarrow"), labels, by_name[extra] if isinstance(extra, str) else extra
    )


def _feature_names(parts: list[Part], named: list[str], options: Options) -> list[str]:
    """All columns of the first part but the labels and ids, in the order that was fitted."""
    names = list(parts[0].schema.names)
    if len(set(names)) < len(names):
        raise ValueError(f"{parts[0].name} has a column name more than once. Rename the columns.")
    for name in named:
        if name not in names:
            raise ValueError(f"There is no column {name!r} in {parts[0].name}. It has {check.some(names)}.")
    features = [name for name in names if name not in named]
    if not features:
        raise ValueError(f"{parts[0].name} has no column of features beside {check.some(named)}.")
    if options.fitted is not None and set(features) == set(options.fitted):
        return list(options.fitted)
    return features


def _check_part(part: Part, first: Part, wanted: list[str], options: Options) -> None:
    have = set(part.schema.names)
    missing = [name for name in wanted if name not in have]
    extra = [name for name in part.schema.names if name not in set(wanted)]
    if missing or extra:
        differences = [f"lacks {check.some(missing)}"] * bool(missing) + [f"also has {check.some(extra)}"] * bool(extra)
        raise ValueError(
            f"The parts of {options.name!r} must have the same columns, but {part.name} {' and '.join(differences)}, "
            f"unlike {first.name}. Correct the part, or name only parts that belong together."
        )


def _is_number(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _fits_float32(kind: Any) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


def _convert(
    parts: list[Part], features: list[str], named: list[str], dtype: str, writer: RowWriter | None, options: Options
) -> tuple[int, list[npt.NDArray[Any]]]:
    """Read all parts in batches: features go to the writer, named columns are returned whole."""
    collected = [_Collector() for _ in named]
    total = 0
    step = max(1, BATCH_BYTES // (8 * max(len(features), 1)))
    with progress_bar("Reading", sum(part.n_rows for part in parts), options.progress) as advance:
        for part in parts:
            at = 0
            for batch in part.read([*features, *named], step):
                if batch.num_rows == 0:
                    continue
                place = f"{part.name}, from row {at}"
                if writer is not None:
                    writer.append(_feature_rows(batch, features, dtype, part.name, at, options))
                for name, collector in zip(named, collected, strict=True):
                    collector.add(_whole(batch.column(name), name, place))
                total, at = total + batch.num_rows, at + batch.num_rows
                advance(batch.num_rows)
    return total, [collector.joined() for collector in collected]


def _feature_rows(
    batch: Any, features: list[str], dtype: str, part: str, at: int, options: Options
) -> npt.NDArray[Any]:
    rows = np.empty((batch.num_rows, len(features)), dtype=dtype)
    for j, name in enumerate(features):
        column = batch.column(name)
        if not _is_number(column.type):
            raise ValueError(
                f"Column {name!r} of {options.name!r} has type {column.type} in {part}; features must be numbers "
                "(could not convert to float). Encode the column or leave it out when writing the files."
            )
        _whole(column, name, f"{part}, from row {at}")
        if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
            column = column.cast(pa.float64())
        rows[:, j] = column.to_numpy(zero_copy_only=False)
    check.check_finite(rows, f"{options.name} (file {part})", features, first_row=at)
    return rows


def _whole(column: Any, name: str, place: str) -> Any:
    if column.null_count:
        first = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise ValueError(
            f"Column {name!r} has {column.null_count} missing entries in {place}, the first {first} rows further on. "
            "Drop those rows or fill them in when writing the files."
        )
    return column


class _Collector:
    """One column, batch by batch; of entries that repeat, each is kept once."""

    def __init__(self) -> None:
        self.pieces: list[npt.NDArray[Any]] = []
        self.entries: dict[Any, Any] = {}

    def add(self, column: Any) -> None:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if _is_number(column.type) and not pa.types.is_decimal(column.type):
            self.pieces.append(column.to_numpy(zero_copy_only=False))
            return
        coded = column.dictionary_encode()
        distinct = object_array([self.entries.setdefault(entry, entry) for entry in coded.dictionary.to_pylist()])
        self.pieces.append(distinct[coded.indices.to_numpy(zero_copy_only=False)])

    def joined(self) -> npt.NDArray[Any]:
        return np.concatenate(self.pieces) if self.pieces else np.empty(0)


def _read_batches(batches: Iterator[Any], y: Any, extra: Any, options: Options) -> Source:
    """Write an iterator of (features, labels) to a scratch file."""
    if y is not None:
        raise ValueError(
            f"The {options.names[1]!r} parameter must be None when {options.name!r} is an iterator: each of its "
            f"batches brings its own labels, as a pair. Got {type(y).__name__}."
        )
    if isinstance(extra, str):
        raise ValueError(f"The {options.names[2]!r} parameter must be an array when {options.name!r} is an iterator.")
    writer: RowWriter | None = None
    columns, kind, labels = options.fitted, "numpy", []
    try:
        for number, batch in enumerate(batches):
            name = f"batch {number} of {options.name}"
            if not (isinstance(batch, tuple | list) and len(batch) == 2):
                raise TypeError(
                    f"{name!r} must be a pair (features, labels). Got {type(batch).__name__}"
                    + (f" of length {len(batch)}." if isinstance(batch, tuple | list) else ".")
                )
            table = check.check_features(batch[0], name)
            rows = table.rows.toarray() if hasattr(table.rows, "toarray") else table.rows
            narrow = getattr(batch[0], "dtype", None) == np.float32
            if writer is None:
                columns = table.columns if columns is None else columns
                kind = table.kind
                width = rows.shape[1] if options.width is None else options.width
                writer = RowWriter(options.scratch, width, "<f4" if narrow else "<f8")
            elif writer.dtype == "<f4" and not narrow:
                writer = _widened(writer, options)
            rows = check.match_columns(
                check.Table(rows, table.columns, None, "numpy"), columns, writer.width, name
            ).rows
            labels.append(_labels.check_labels(batch[1], f"labels of {name}", rows.shape[0], name))
            writer.append(rows)
        if writer is None:
            raise ValueError(f"{options.name!r} is an iterator that yields no batch. Was it used up before?")
        file = writer.finish()
    except BaseException:
        if writer is not None:
            writer.discard()
        raise
    return Source(check.Table(file, columns, None, kind), _joined_labels(labels), extra)


def _widened(writer: RowWriter, options: Options) -> RowWriter:
    """Go on in float64: a batch came that is not float32."""
    narrow = writer.finish()
    wide = RowWriter(options.scratch, narrow.shape[1], "<f8")
    try:
        for lo, hi in narrow.chunks():
            wide.append(narrow[lo:hi])
    except BaseException:
        wide.discard()
        raise
    return wide


def _joined_labels(labels: list[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    if len({part.dtype.kind for part in labels}) == 1:
        return np.concatenate(labels)
    return object_array([entry for part in labels for entry in part.tolist()])
