"""Parquet, Arrow and NumPy files: checksums are verified, and no more is unpacked than memory allows."""

import struct
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shapshift.checks.inputs import some
from shapshift.exceptions import InputError
from shapshift.io import archive as archives
from shapshift.tables.files import About, Source, TableSizeError, marked, repeated

# Rows read at a time: the length of texts is known only after reading.
_BATCH_ROWS = 1 << 15
# Offset at which the stream of an Arrow file begins.
_FILE_START = 8
# Meaning of each array; of several names with one meaning, the first that exists is used.
_ROLES = {"label": ("y",), "id": ("ids", "id"), "owner": ("owners", "owner")}
_EXPECTED = (
    "Expected arrays X (rows by features) and y, and optionally feature_names, ids (or id) and owners (or owner)"
)


def read_parquet(source: Source, columns: list[str] | None) -> Any:
    """Read a Parquet file, or some of its columns; pages that have a checksum are verified.

    Text is measured before it is written out: a long entry can be stored once for all rows.
    """
    with _damage_named(source, "Parquet"), source.open() as opened:
        file = pq.ParquetFile(opened, page_checksum_verification=True)
        schema = file.schema_arrow
        if repeated(schema.names):
            return schema.empty_table()  # refused by the caller
        # A name that is missing here may come from a folder name; otherwise it is reported with all others.
        names = [name for name in columns or () if name in schema.names] or schema.names
        chunks = list(_column_chunks(file.metadata, names))
        # An entry takes at least 8 bytes: numbers become float64, whatever their type in the file.
        source.check_size(sum(chunk.num_values * 8 for chunk in chunks))
        source.check_size(sum(chunk.total_uncompressed_size for chunk in chunks))
        coded = {chunk.path_in_schema for chunk in chunks if any("DICTIONARY" in word for word in chunk.encodings)}
        text = {field.name for field in schema if _is_text(field.type) and field.name in coded}
        opened.seek(0)
        file = pq.ParquetFile(opened, page_checksum_verification=True, read_dictionary=sorted(text))
        kept = pa.schema([schema.field(name) for name in names], schema.metadata)
        batches, size = [], 0
        for batch in file.iter_batches(_BATCH_ROWS, columns=names):
            size += table_size(batch)
            source.check_size(size)
            written_out = [
                batch.column(name).dictionary_decode().cast(field.type) if name in text else batch.column(name)
                for name, field in zip(names, kept, strict=True)
            ]
            batches.append(pa.RecordBatch.from_arrays(written_out, schema=kept))
        return pa.Table.from_batches(batches, kept)


def _column_chunks(metadata: Any, names: list[str]) -> Iterator[Any]:
    """Metadata of the stored pieces of some columns; those of a nested column have longer paths."""
    wanted, nested = set(names), tuple(f"{name}." for name in names)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        for j in range(group.num_columns):
            chunk = group.column(j)
            if chunk.path_in_schema in wanted or chunk.path_in_schema.startswith(nested):
                yield chunk


def read_arrow(source: Source, *, stream: bool) -> Any:
    """Read an Arrow file or stream; its buffers are used only after all of it has been validated."""
    with _damage_named(source, "Arrow"):
        with source.open() as file:
            file.seek(0 if stream else _FILE_START)
            source.check_size(sum(map(_unpacked_size, pa.ipc.MessageReader.open_stream(file))))
        with source.open() as file, (pa.ipc.open_stream if stream else pa.ipc.open_file)(file) as reader:
            table = reader.read_all()
            table.validate(full=True)
            return table


def _unpacked_size(message: Any) -> int:
    """Bytes of the buffers of a message of an Arrow stream; compressed ones begin with the size that they unpack to."""
    if message.type not in ("record batch", "dictionary"):
        return 0
    # The message is described by a flatbuffer: a Message, whose header is a RecordBatch or has one.
    content = message.metadata.to_pybytes()
    batch = _target(content, _field(content, _target(content, 0), 2))
    if message.type == "dictionary":
        batch = _target(content, _field(content, batch, 1))
    at = _target(content, _field(content, batch, 2))
    buffers = list(struct.iter_unpack("<qq", content[at + 4 : at + 4 + 16 * _number("I", content, at)]))
    if not _field(content, batch, 3):  # no compression
        return sum(length for _, length in buffers)
    heads = (message.body.slice(offset, 8).to_pybytes() for offset, length in buffers if length > 8)
    return sum(max(int.from_bytes(head, "little", signed=True), 0) for head in heads)


def _field(content: bytes, table: int, number: int) -> int:
    """Position of a numbered field of a table in a flatbuffer; 0 if the table lacks it."""
    fields, place = table - _number("i", content, table), 4 + 2 * number
    offset = _number("H", content, fields + place) if place < _number("H", content, fields) else 0
    return table + offset if offset else 0


def _target(content: bytes, at: int) -> int:
    """Position that a reference in a flatbuffer points to."""
    return at + _number("I", content, at)


def _number(kind: str, content: bytes, at: int) -> int:
    return int(struct.unpack_from(f"<{kind}", content, at)[0])


def table_size(table: Any) -> int:
    """Bytes of the unpacked entries of a table or batch, at least 8 bytes each."""
    return sum(_size(column) for column in table.columns)


def _size(column: Any) -> int:
    if isinstance(column, pa.ChunkedArray):
        return sum(_size(chunk) for chunk in column.chunks)
    least = 8 * len(column)
    if pa.types.is_dictionary(column.type) and _is_text(column.type.value_type):
        lengths = pc.binary_length(column.dictionary)
        return least + int(pc.sum(lengths.take(column.indices)).as_py() or 0)
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type) or pa.types.is_fixed_size_list(column.type):
        return least + _size(column.flatten())
    return max(least, int(column.nbytes))


def _is_text(kind: Any) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


@contextmanager
def _damage_named(source: Source, kind: str) -> Iterator[None]:
    """Add the name of the file to errors of the readers, which do not name it."""
    try:
        yield
    except (TableSizeError, MemoryError):
        raise
    except Exception as error:
        if "allow_pickle" in str(error):
            raise InputError(
                f"{source.name} holds arrays of Python objects, and loading these runs code. Save numbers and strings "
                "as such: numpy.savez(path, X=X.astype(float), y=y.astype(str))."
            ) from None
        raise InputError(
            f"{source.name} is not a whole {kind} file: it is truncated or damaged ({error}). Copy or write it anew."
        ) from None


def read_npz(source: Source) -> Any:
    """Read the arrays as columns: features by name, then ``y``, ``ids`` or ``id``, and ``owners`` or ``owner``."""
    arrays = npz_arrays(source)
    if "X" not in arrays:
        hint = ""
        if {"indptr", "indices", "data"} <= set(arrays):
            hint = " It looks like a sparse matrix of SciPy: save its dense form, X=matrix.toarray()."
        raise InputError(f"{source.name} has no array X. It has: {some(sorted(arrays))}. {_EXPECTED}.{hint}")
    X = arrays["X"]
    if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "biufUSM":
        raise InputError(
            f"The array X of {source.name} must have rows and columns of numbers. Got shape {X.shape} of type "
            f"{X.dtype}. Reshape it, for instance with X.reshape(len(X), -1)."
        )
    roles = {role: names[0] for role, known in _ROLES.items() if (names := [name for name in known if name in arrays])}
    names = _names(source, arrays, X.shape[1], roles.values())
    columns = {name: _column(X[:, j], "X", source) for j, name in enumerate(names)}
    for name in roles.values():
        values = arrays[name]
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.shape != (len(X),):
            raise InputError(
                f"The array {name} of {source.name} must have one entry for each of the {len(X)} rows of X. Got "
                f"shape {values.shape}."
            )
        columns[name] = _column(values, name, source)
    ignored = sorted(set(arrays) - {"X", "feature_names", *roles.values()})
    notes = [f"did not use the arrays {some(ignored)} of {source.name}"] if ignored else []
    return marked(pa.table(columns), About(source.name, notes, roles))


def npz_arrays(source: Source) -> dict[str, npt.NDArray[Any]]:
    """Read the arrays of an ``.npz`` file as they are."""
    with _damage_named(source, ".npz"), source.open() as file:
        arrays = archives.read_npz(file, source.check_size)
        members = zipfile.ZipFile(file).namelist()
    if not arrays:
        raise InputError(
            f"{source.name} is a zip archive without NumPy arrays; it holds {some(members)}. Unpack it and name the "
            "table in it."
        )
    return arrays


def other_name(name: str, role: str) -> list[str]:
    """Name the alternative names of an array of that role."""
    known = _ROLES.get(role, ())
    return [other for other in known if other != name] if name in known else []


def _names(source: Source, arrays: dict[str, npt.NDArray[Any]], width: int, others: Iterable[str]) -> list[str]:
    if "feature_names" not in arrays:
        return [f"x{j}" for j in range(width)]
    names = [_text(name, "feature_names", source) for name in arrays["feature_names"].ravel().tolist()]
    twice = repeated([*names, *others])
    if len(names) != width or twice:
        raise InputError(
            f"The array feature_names of {source.name} must name the {width} columns of X, each differently and none "
            f"like another array. Got {len(names)} names" + (f", repeated: {some(twice)}." if twice else ".")
        )
    return names


def _column(values: npt.NDArray[Any], array: str, source: Source) -> Any:
    if values.dtype.kind == "S":
        return pa.array([_text(value, array, source) for value in values.tolist()], pa.string())
    try:
        return pa.array(np.ascontiguousarray(values, values.dtype.newbyteorder("=")))
    except pa.ArrowException:
        raise InputError(
            f"The array {array} of {source.name} must hold numbers, truth values, text or dates. Got type "
            f"{values.dtype}. Save it as one of these, for instance with {array}.astype(float) or {array}.astype(str)."
        ) from None


def _text(value: object, array: str, source: Source) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise InputError(
            f"The array {array} of {source.name} holds bytes that are not UTF-8 text: {value!r}. Decode them and save "
            "them as text."
        ) from None
