"""Rows from Parquet: files, folders, patterns, datasets and readers of Arrow batches."""

import hashlib
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from shapshift._arrays import object_array
from shapshift._progress import progress_bar
from shapshift.checks import inputs as check
from shapshift.engine.rows.batches import BATCH_BYTES, Options, Source, joined
from shapshift.engine.rows.file import RowWriter, file_stamp, kept_rows
from shapshift.exceptions import InputError
from shapshift.tables.files import check_columns, find_parts, folder_keys, shown

# Bytes of a column chunk read at a time, so that large row groups take no more memory than small ones.
BUFFER_BYTES = 2**18


@dataclass(frozen=True)
class FilePart:
    """A piece of a Parquet dataset.

    Attributes
    ----------
    name : str
        For messages.
    schema : pyarrow.Schema
    n_rows : int or None
        None if known only after reading.
    stamp : tuple
        Path, size and modification time; empty if the part is not a file.
    read : callable
        Function of some columns and a batch size that returns an iterable of Arrow batches.
    """

    name: str
    schema: Any
    n_rows: int | None
    stamp: tuple[Any, ...]
    read: Callable[[list[str], int], Iterable[Any]]

    def check_unchanged(self) -> None:
        """Raise if the file changed while it was read."""
        if self.stamp and (not os.path.exists(self.stamp[0]) or file_stamp(self.stamp[0]) != self.stamp[1:]):
            raise InputError(f"{self.name} was changed while it was read. Start again when it is complete.")


def file_parts(path: str | os.PathLike[str]) -> list[FilePart]:
    """Find the Parquet files that a path, a folder or a pattern names; ``key=value`` folders become columns."""
    found = find_parts(path)
    plain = [_file_part(file) for file in found.files]
    keys = folder_keys(found, {name for part in plain for name in part.schema.names})
    columns = {key: _numbers_or_text(pa.array(entries, pa.string())) for key, entries in keys.items()}
    return [_with_folders(part, {key: column[i] for key, column in columns.items()}) for i, part in enumerate(plain)]


def _numbers_or_text(texts: Any) -> Any:
    """Whole numbers if all texts are; if two texts are the same number, such as 007 and 7, all stay text."""
    try:
        numbers = texts.cast(pa.int32())
    except pa.ArrowInvalid:
        return texts
    return numbers if len(numbers.unique()) == len(texts.unique()) else texts


def _with_folders(part: FilePart, values: dict[str, Any]) -> FilePart:
    """Return the part with a constant column for each folder it is in."""
    if not values:
        return part

    def read(columns: list[str], batch: int) -> Iterable[Any]:
        for rows in part.read([name for name in columns if name not in values], batch):
            for name in values.keys() & set(columns):
                rows = rows.append_column(name, pa.repeat(values[name], rows.num_rows))
            yield rows

    folders = [pa.field(name, value.type) for name, value in values.items()]
    return replace(part, schema=pa.schema([*part.schema, *folders]), read=read)


def _file_part(path: Path) -> FilePart:
    stamp = (os.path.abspath(path), *file_stamp(str(path)))
    try:
        with pq.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{shown(path)} is not a whole Parquet file ({error}). Rows larger than memory are read from Parquet: "
            "write or copy the file again, or load the table and pass that."
        ) from None

    def read(columns: list[str], batch: int) -> Iterable[Any]:
        # Text stays dictionary-encoded: otherwise a long entry stored once would be written for every row.
        text = [name for name in columns if _is_text(schema.field(name).type)]
        options = {"buffer_size": BUFFER_BYTES, "page_checksum_verification": True, "read_dictionary": text}
        with pq.ParquetFile(path, **options) as file:
            yield from file.iter_batches(batch, columns=columns, use_threads=False)

    return FilePart(shown(path), schema, n_rows, stamp, read)


def dataset_parts(dataset: Any) -> list[FilePart]:
    """Files of a pyarrow dataset; one with a filter is a single part."""

    def reader(scanned: Any, **schema: Any) -> Callable[[list[str], int], Iterable[Any]]:
        form = getattr(scanned, "format", None)
        if isinstance(form, pads.ParquetFileFormat):
            form.default_fragment_scan_options.page_checksum_verification = True

        def read(columns: list[str], batch: int) -> Iterable[Any]:
            ahead = {"batch_readahead": 1, "use_threads": False}
            yield from scanned.to_batches(columns=columns, batch_size=batch, **ahead, **schema)

        return read

    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # filtered
        return [FilePart("the dataset", dataset.schema, None, (), reader(dataset))]
    parts = []
    for fragment in fragments:
        path = getattr(fragment, "path", "") or "an in-memory fragment"
        stamp = (os.path.abspath(path), *file_stamp(path)) if os.path.isfile(path) else ()
        read = reader(fragment, schema=dataset.schema)
        parts.append(FilePart(shown(path), dataset.schema, fragment.count_rows(), stamp, read))
    return parts


def reader_part(reader: Any, options: Options) -> FilePart:
    """Return a reader of Arrow batches as a part."""
    return FilePart(f"the batches of {options.name!r}", reader.schema, None, (), lambda columns, batch: reader)


def read_parts(parts: list[FilePart], y: Any, extra: tuple[Any, ...], options: Options, keep: str | None) -> Source:
    """Turn Parquet parts into a file of rows.

    Parameters
    ----------
    parts : list of FilePart
    y, extra
        Names of columns, or arrays.
    options : Options
    keep : str or None
        Folder in which to keep the file for later runs, unless it has few rows.
    """
    named = list(dict.fromkeys(name for name in (y, *extra) if isinstance(name, str)))
    features = _feature_names(parts, y, named, options)
    for part in parts:
        _check_part(part, parts[0], features, named, options)
    narrow = all(_fits_float32(part.schema.field(name).type) for part in parts for name in features)
    dtype, n_rows = "<f4" if narrow else "<f8", sum(part.n_rows or 0 for part in parts)
    name = file = None
    many = 8 * n_rows * len(features) > options.load_bytes
    if many and keep is not None and all(part.stamp for part in parts):
        digest = hashlib.blake2b(repr((features, dtype, [part.stamp for part in parts])).encode(), digest_size=16)
        name = f"shapshift-{digest.hexdigest()}"
        file = kept_rows(keep, name, n_rows, len(features), dtype)
    if file is not None:
        values = _convert(parts, [], named, dtype, None, options) if named else []
    else:
        with RowWriter(options.scratch, len(features), dtype, name) as writer:
            values = _convert(parts, features, named, dtype, writer, options)
            if writer.n_rows == 0:
                raise InputError(f"{options.name!r} has columns but no rows in its {len(parts)} parts. Check the path.")
            file = writer.finish()
    by_name = dict(zip(named, values, strict=True))
    labels, *others = (by_name[given] if isinstance(given, str) else given for given in (y, *extra))
    return check.Table(file, features, None, "pyarrow"), labels, tuple(others)


def _feature_names(parts: list[FilePart], y: Any, named: list[str], options: Options) -> list[str]:
    """All columns of the first part except labels and ids, in the fitted order."""
    if not parts:
        raise InputError(f"{options.name!r} is a dataset without files. Check the path it was made from.")
    names = list(parts[0].schema.names)
    if y is None:
        raise InputError(
            f"The {options.names[1]!r} parameter must name the column of labels in {options.name!r}, or hold the "
            f"labels themselves. Got None; {parts[0].name} has {check.some(names)}."
        )
    if len(set(names)) < len(names):
        raise InputError(f"{parts[0].name} has a column name more than once. Rename the columns.")
    for name in named:
        if name not in names:
            raise InputError(f"There is no column {name!r} in {parts[0].name}. It has {check.some(names)}.")
    features = [name for name in names if name not in named]
    if not features:
        raise InputError(f"{parts[0].name} has no column of features besides {check.some(named)}.")
    if options.fitted is not None and set(features) == set(options.fitted):
        return list(options.fitted)
    return features


def _check_part(part: FilePart, first: FilePart, features: list[str], named: list[str], options: Options) -> None:
    check_columns(repr(options.name), part.name, part.schema.names, first.name, [*features, *named])
    for name in named:
        kind = part.schema.field(name).type
        if pa.types.is_nested(kind):
            raise InputError(
                f"Column {name!r} of {options.name!r} has type {kind} in {part.name}; labels, ids and groups must be "
                "single values. Name another column, or pass an array."
            )
    for name in features:
        kind = part.schema.field(name).type
        if not _is_number(kind) and part.n_rows != 0:  # types of an empty part do not matter
            raise InputError(
                f"Column {name!r} of {options.name!r} has type {kind} in {part.name}; features must be numbers "
                f"(could not convert to float). Encode the column, leave it out when writing the files, or name it in "
                f"{' or '.join(map(repr, options.names[1:]))} if it is not a feature."
            )


def _is_number(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _fits_float32(kind: Any) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


def _convert(
    parts: list[FilePart], features: list[str], named: list[str], dtype: str, writer: RowWriter | None, options: Options
) -> list[npt.NDArray[Any]]:
    """Read all parts in batches: features go to the writer, named columns are returned complete."""
    collected, rounded = [_Collector() for _ in named], dict.fromkeys(features, 0)
    step = max(1, BATCH_BYTES // (8 * max(len(features), 1)))
    with progress_bar("Reading", sum(part.n_rows or 0 for part in parts), options.progress) as advance:
        for part in parts:
            at = 0
            for batch in _batches(part, [*features, *named], step):
                if batch.num_rows == 0:
                    continue
                if writer is not None:
                    writer.append(_feature_rows(batch, features, dtype, part.name, at, options, rounded))
                for name, collector in zip(named, collected, strict=True):
                    collector.add(_microseconds(_whole(batch.column(name), name, part.name, at), name, part.name))
                at += batch.num_rows
                advance(batch.num_rows)
            part.check_unchanged()
    check.warn_rounded(repr(options.name), rounded)
    return [joined(collector.pieces) for collector in collected]


def _batches(part: FilePart, columns: list[str], step: int) -> Iterable[Any]:
    """Read and validate the batches of a part; name the part in an error of Arrow."""
    try:
        for batch in part.read(columns, step):
            batch.validate(full=True)
            yield batch
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{part.name} cannot be read completely ({str(error).strip()}). Write or copy the file again."
        ) from error


def _feature_rows(
    batch: Any, features: list[str], dtype: str, part: str, at: int, options: Options, rounded: dict[str, int]
) -> npt.NDArray[Any]:
    rows = np.empty((batch.num_rows, len(features)), dtype=dtype)
    for j, name in enumerate(features):
        column = _whole(batch.column(name), name, part, at)
        exact = column
        if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
            column = column.cast(pa.float64())
        numbers = column.to_numpy(zero_copy_only=False)
        if pa.types.is_decimal(exact.type):
            rounded[name] += check.rounded_entries(exact.to_pylist()) if check.has_large(numbers) else 0
        else:
            rounded[name] += int(check.rounded_counts(numbers[:, None])[0])
        rows[:, j] = numbers
    check.check_finite(rows, f"{options.name} (file {part})", features, first_row=at)
    return rows


def _whole(column: Any, name: str, part: str, at: int) -> Any:
    """Refuse missing entries; ``at`` is the number of the column's first row in the part."""
    if column.null_count:
        first = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise InputError(
            f"Column {name!r} has missing entries in {part}, the first at row {at + first}. Drop those rows or fill "
            "them in when writing the files."
        )
    return column


class _Collector:
    """One column, batch by batch; repeated entries are stored once."""

    def __init__(self) -> None:
        self.pieces: list[npt.NDArray[Any]] = []
        self.entries: dict[Any, Any] = {}

    def add(self, column: Any) -> None:
        coded = pa.types.is_dictionary(column.type)
        if coded and not _is_text(column.type.value_type):
            column, coded = column.dictionary_decode(), False
        if _is_number(column.type) and not pa.types.is_decimal(column.type):
            self.pieces.append(column.to_numpy(zero_copy_only=False))
            return
        column = column if coded else column.dictionary_encode()
        distinct = object_array([self.entries.setdefault(entry, entry) for entry in column.dictionary.to_pylist()])
        self.pieces.append(distinct[column.indices.to_numpy(zero_copy_only=False)])


def _microseconds(column: Any, name: str, part: str) -> Any:
    """Convert times to Python's microseconds; refuse finer ones, since two of them could become equal."""
    try:
        return column.cast(pa.time64("us")) if column.type == pa.time64("ns") else column
    except pa.ArrowInvalid:
        raise InputError(
            f"Column {name!r} has times finer than microseconds in {part}; labels, ids and groups must be whole "
            "microseconds, so that different times stay different. Write them as text or whole numbers."
        ) from None
