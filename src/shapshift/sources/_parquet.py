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

from shapshift import _validation as check
from shapshift._archive import object_array
from shapshift._progress import progress_bar
from shapshift.rowfile import RowFile, RowWriter, file_stamp, opened
from shapshift.sources._batches import joined
from shapshift.sources._options import BATCH_BYTES, Options, Source
from shapshift.tables.files import find_parts, shown

# A column chunk is read so many bytes at a time, so that large row groups take no more memory than small ones.
BUFFER_BYTES = 2**18


@dataclass(frozen=True)
class Part:
    """A piece of a Parquet dataset.

    Attributes
    ----------
    name : str
        For messages.
    schema : pyarrow.Schema
    n_rows : int or None
        None if nobody knows before it has been read.
    stamp : tuple
        Path, size and time of change; empty if there is no file to ask.
    read : callable
        From some columns and a batch size to an iterable of Arrow batches.
    """

    name: str
    schema: Any
    n_rows: int | None
    stamp: tuple[Any, ...]
    read: Callable[[list[str], int], Iterable[Any]]

    def check_unchanged(self) -> None:
        """Refuse a file that was changed while it was read."""
        if self.stamp and (not os.path.exists(self.stamp[0]) or file_stamp(self.stamp[0]) != self.stamp[1:]):
            raise ValueError(f"{self.name} was changed while it was read. Begin again when it is complete.")


def file_parts(path: str | os.PathLike[str]) -> list[Part]:
    """Find the Parquet files that a path, a folder or a pattern names."""
    found = find_parts(path)
    root = found.root
    if root is not None and any("=" in folder for file in found.files for folder in file.relative_to(root).parts[:-1]):
        files = [str(file) for file in found.files]
        dataset = pads.dataset(files, format="parquet", partitioning="hive", partition_base_dir=str(root))
        return [replace(part, schema=_own_schema(part, dataset)) for part in dataset_parts(dataset)]
    return [_file_part(file) for file in found.files]


def _own_schema(part: Part, dataset: Any) -> Any:
    """Columns of a file and of the folders it is in; those of the dataset are the first file's."""
    schema, own = part.schema, pq.read_schema(part.stamp[0])
    there = {*own.names, *dataset.partitioning.schema.names}
    return pa.schema(
        [field for field in schema if field.name in there] + [f for f in own if f.name not in schema.names]
    )


def _file_part(path: Path) -> Part:
    stamp = (os.path.abspath(path), *file_stamp(str(path)))
    try:
        with pq.ParquetFile(path) as file:
            schema, n_rows = file.schema_arrow, file.metadata.num_rows
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{shown(path)} is not a whole Parquet file ({error}). Rows larger than memory are read from Parquet: "
            "write or copy it anew, or load the table and pass that."
        ) from None

    def read(columns: list[str], batch: int) -> Iterable[Any]:
        with pq.ParquetFile(path, buffer_size=BUFFER_BYTES) as file:
            yield from file.iter_batches(batch, columns=columns, use_threads=False)

    return Part(shown(path), schema, n_rows, stamp, read)


def dataset_parts(dataset: Any) -> list[Part]:
    """Cut a pyarrow dataset into its files; one with a filter has none of its own and stays whole."""

    def reader(scanned: Any, **schema: Any) -> Callable[[list[str], int], Iterable[Any]]:
        def read(columns: list[str], batch: int) -> Iterable[Any]:
            ahead = {"batch_readahead": 1, "use_threads": False}
            yield from scanned.to_batches(columns=columns, batch_size=batch, **ahead, **schema)

        return read

    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # filtered
        return [Part("the dataset", dataset.schema, None, (), reader(dataset))]
    parts = []
    for fragment in fragments:
        path = getattr(fragment, "path", "") or "an in-memory fragment"
        stamp = (os.path.abspath(path), *file_stamp(path)) if os.path.isfile(path) else ()
        read = reader(fragment, schema=dataset.schema)
        parts.append(Part(shown(path), dataset.schema, fragment.count_rows(), stamp, read))
    return parts


def reader_part(reader: Any, options: Options) -> Part:
    """Return a reader of Arrow batches as a part."""
    return Part(f"the batches of {options.name!r}", reader.schema, None, (), lambda columns, batch: reader)


def read_parts(parts: list[Part], y: Any, extra: Any, options: Options, keep: str | None) -> Source:
    """Turn Parquet parts into a file of rows.

    Parameters
    ----------
    parts : list of Part
    y, extra
        Names of columns, or arrays.
    options : Options
    keep : str or None
        Folder in which the file stays, to be found again, unless its rows are few.
    """
    named = [name for name in (y, extra) if isinstance(name, str)]
    features = _feature_names(parts, y, named, options)
    for part in parts:
        _check_part(part, parts[0], features, named, options)
    narrow = all(_fits_float32(part.schema.field(name).type) for part in parts for name in features)
    dtype, n_rows = "<f4" if narrow else "<f8", sum(part.n_rows or 0 for part in parts)
    target = file = None
    many = 8 * n_rows * len(features) > options.load_bytes
    if many and keep is not None and all(part.stamp for part in parts):
        digest = hashlib.blake2b(repr((features, dtype, [part.stamp for part in parts])).encode(), digest_size=16)
        target = Path(keep) / f"shapshift-{digest.hexdigest()}.npy"
        file = opened(target, n_rows, len(features), dtype)
    if file is not None:
        values = _convert(parts, [], named, dtype, None, options) if named else []
        return _parquet_source(file, features, y, extra, named, values)
    with RowWriter(options.scratch, len(features), dtype) as writer:
        values = _convert(parts, features, named, dtype, writer, options)
        if writer.n_rows == 0:
            raise ValueError(f"{options.name!r} has columns but no rows in its {len(parts)} parts. Check the path.")
        return _parquet_source(writer.finish(target), features, y, extra, named, values)


def _parquet_source(
    file: RowFile, features: list[str], y: Any, extra: Any, named: list[str], values: list[npt.NDArray[Any]]
) -> Source:
    by_name = dict(zip(named, values, strict=True))
    labels, others = (by_name[given] if isinstance(given, str) else given for given in (y, extra))
    return Source(check.Table(file, features, None, "pyarrow"), labels, others)


def _feature_names(parts: list[Part], y: Any, named: list[str], options: Options) -> list[str]:
    """All columns of the first part but the labels and ids, in the order that was fitted."""
    if not parts:
        raise ValueError(f"{options.name!r} is a dataset without any file. Check the path it was made from.")
    names = list(parts[0].schema.names)
    if y is None:
        raise ValueError(
            f"The {options.names[1]!r} parameter must name the column of labels in {options.name!r}, or hold the "
            f"labels themselves. Got None; {parts[0].name} has {check.some(names)}."
        )
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


def _check_part(part: Part, first: Part, features: list[str], named: list[str], options: Options) -> None:
    wanted = {*features, *named}
    missing = [name for name in [*features, *named] if name not in set(part.schema.names)]
    extra = [name for name in part.schema.names if name not in wanted]
    if missing or extra:
        differences = [f"lacks {check.some(missing)}"] * bool(missing) + [f"also has {check.some(extra)}"] * bool(extra)
        raise ValueError(
            f"The parts of {options.name!r} must have the same columns, but {part.name} {' and '.join(differences)}, "
            f"unlike {first.name}. Correct the part, or name only parts that belong together."
        )
    for name in named:
        kind = part.schema.field(name).type
        if pa.types.is_nested(kind):
            raise ValueError(
                f"Column {name!r} of {options.name!r} has type {kind} in {part.name}; labels, ids and groups must be "
                "single values. Name another column, or pass an array."
            )
    for name in features:
        kind = part.schema.field(name).type
        if not _is_number(kind) and part.n_rows != 0:  # an empty part has no types worth mentioning
            raise ValueError(
                f"Column {name!r} of {options.name!r} has type {kind} in {part.name}; features must be numbers "
                f"(could not convert to float). Encode the column, leave it out when writing the files, or name it in "
                f"{options.names[1]!r} or {options.names[2]!r} if it is no feature."
            )


def _is_number(kind: Any) -> bool:
    types = pa.types
    return bool(types.is_integer(kind) or types.is_floating(kind) or types.is_boolean(kind) or types.is_decimal(kind))


def _fits_float32(kind: Any) -> bool:
    return bool(pa.types.is_float32(kind) or pa.types.is_float16(kind))


def _convert(
    parts: list[Part], features: list[str], named: list[str], dtype: str, writer: RowWriter | None, options: Options
) -> list[npt.NDArray[Any]]:
    """Read all parts in batches: features go to the writer, named columns are returned whole."""
    collected = [_Collector() for _ in named]
    step = max(1, BATCH_BYTES // (8 * max(len(features), 1)))
    with progress_bar("Reading", sum(part.n_rows or 0 for part in parts), options.progress) as advance:
        for part in parts:
            at = 0
            for batch in _batches(part, [*features, *named], step):
                if batch.num_rows == 0:
                    continue
                if writer is not None:
                    writer.append(_feature_rows(batch, features, dtype, part.name, at, options))
                for name, collector in zip(named, collected, strict=True):
                    collector.add(_whole(batch.column(name), name, part.name, at))
                at += batch.num_rows
                advance(batch.num_rows)
            part.check_unchanged()
    return [joined(collector.pieces) for collector in collected]


def _batches(part: Part, columns: list[str], step: int) -> Iterable[Any]:
    """Read a part; what Arrow says of a damaged one does not name it."""
    try:
        yield from part.read(columns, step)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(
            f"{part.name} cannot be read to its end ({str(error).strip()}). Write or copy it anew."
        ) from error


def _feature_rows(
    batch: Any, features: list[str], dtype: str, part: str, at: int, options: Options
) -> npt.NDArray[Any]:
    rows = np.empty((batch.num_rows, len(features)), dtype=dtype)
    for j, name in enumerate(features):
        column = _whole(batch.column(name), name, part, at)
        if pa.types.is_decimal(column.type) or pa.types.is_boolean(column.type):
            column = column.cast(pa.float64())
        rows[:, j] = column.to_numpy(zero_copy_only=False)
    check.check_finite(rows, f"{options.name} (file {part})", features, first_row=at)
    return rows


def _whole(column: Any, name: str, part: str, at: int) -> Any:
    """Refuse missing entries; ``at`` is the number of the column's first row in the part."""
    if column.null_count:
        first = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise ValueError(
            f"Column {name!r} has missing entries in {part}, the first at row {at + first}. Drop those rows or fill "
            "them in when writing the files."
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
