"""Changed tables in their own format: rows left out, labels replaced, a column added, all else unchanged."""

import codecs
import csv
import io
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt

from shapshift.checks.names import quoted
from shapshift.exceptions import InputError
from shapshift.io.files import write_atomically
from shapshift.tables.binary import npz_arrays, read_arrow, read_npz, read_parquet
from shapshift.tables.files import PathLike, Source, find_parts
from shapshift.tables.reading import PACKED_ENDINGS, find_reader, unpacked
from shapshift.tables.text import BOMS, find_dialect, find_encoding, read_csv, read_json

_EXACT = {codecs.BOM_UTF32_LE: "utf-32-le", codecs.BOM_UTF32_BE: "utf-32-be"}
_EXACT |= {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be", codecs.BOM_UTF8: "utf-8"}


@dataclass(frozen=True)
class Changes:
    """Changes to the rows of a table.

    Attributes
    ----------
    keep : ndarray of bool
        One entry for each row, as in the other parts.
    labels : mapping of int to object
        New labels by row.
    label : str
        Their column.
    weights : ndarray or None
        Entries of a new column.
    weight : str
        Its name.
    """

    keep: npt.NDArray[np.bool_]
    labels: Mapping[int, Any]
    label: str
    weights: npt.NDArray[np.float64] | None = None
    weight: str = "weight"

    def part(self, start: int, count: int) -> "Changes":
        """Return the changes of consecutive rows, numbered from 0."""
        end = start + count
        labels = {row - start: label for row, label in self.labels.items() if start <= row < end}
        weights = None if self.weights is None else self.weights[start:end]
        return Changes(self.keep[start:end], labels, self.label, weights, self.weight)


def cleaned_names(path: PathLike, stem: str) -> dict[str, Path]:
    """Names of the changed files of a table, and the files they are made from.

    One file keeps its ending, without that of packing; several go to a folder, under their own names.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder, "rows.csv.gz")
    ...     _ = file.write_bytes(b"packed")
    ...     list(cleaned_names(file, "cleaned"))
    ['cleaned.csv']
    """
    parts = find_parts(path)
    if parts.root is None:
        return {f"{stem}{_ending(parts.files[0])}": parts.files[0]}
    return {f"{stem}/{_plain_name(file.relative_to(parts.root))}": file for file in parts.files}


def _ending(file: Path) -> str:
    endings = [ending for ending in file.suffixes if ending.lower() not in PACKED_ENDINGS]
    return endings[-1] if endings else ""


def _plain_name(file: Path) -> str:
    packed = file.suffix.lower() in PACKED_ENDINGS and file.with_suffix("").suffix
    return (file.with_suffix("") if packed else file).as_posix()


def rewrite(file: Path, target: Path, changes: Changes, start: int) -> int:
    """Write one changed file of a table.

    Parameters
    ----------
    file, target : pathlib.Path
        File to read, and file to write.
    changes : Changes
        Of the whole table.
    start : int
        Number of the file's first row in it.

    Returns
    -------
    int
        Number of rows of the file.
    """
    source, head = unpacked(Source(file))
    reader: Any = find_reader(source, head)
    write, count = _WRITERS[getattr(reader, "func", reader)](source, head, changes, start)
    write_atomically(target, write)
    return count


Written = tuple[Callable[[BinaryIO], object], int]


def _write_csv(source: Source, head: bytes, changes: Changes, start: int) -> Written:
    """Write records of a delimited file, unchanged except for the changes."""
    encoding, dialect = find_dialect(source)
    mark, codec, text = _text_of(source, encoding)
    lines = list(io.StringIO(text, newline=""))
    out, records = lines[: dialect.skipped], list(_raw_records(lines[dialect.skipped :], dialect))
    names = [name.strip() for name in dialect.header]
    rows = [raw for fields, raw in records[1:] if fields]
    part = changes.part(start, len(rows))
    place = _place_of(names, part, source)
    decimals = [] if part.weights is None else [_number(weight, dialect.decimal) for weight in part.weights.tolist()]
    row = -1
    for number, (fields, raw) in enumerate(records):
        if not fields:  # an empty line
            out.append(raw)
            continue
        if number:
            row += 1
            if not part.keep[row]:
                continue
            if row in part.labels:
                label = part.labels[row]
                shown = _number(label, dialect.decimal) if isinstance(label, float) else str(label)
                raw = _with_field(raw, place, shown, dialect)
        if part.weights is not None:
            body = raw.rstrip("\r\n")
            raw = f"{body}{dialect.delimiter}{decimals[row] if number else part.weight}{raw[len(body) :]}"
        out.append(raw)
    return _encoded("".join(out), mark, codec, source), len(rows)


def _raw_records(lines: list[str], dialect: Any) -> Iterator[tuple[list[str], str]]:
    """Fields of each record, and its text with its end of line."""
    limit, position = csv.field_size_limit(2**31 - 1), 0
    try:
        reader = csv.reader(lines, delimiter=dialect.delimiter, quotechar=dialect.quote)
        for fields in reader:
            yield fields, "".join(lines[position : reader.line_num])
            position = reader.line_num
    finally:
        csv.field_size_limit(limit)


def _with_field(raw: str, place: int, text: str, dialect: Any) -> str:
    """Replace one field of a record; it is quoted if it was or must be."""
    quote, at, number = dialect.quote, 0, 0
    end = len(raw.rstrip("\r\n"))
    while True:
        stop = at
        if raw.startswith(quote, at):
            stop = at + 1
            while stop < end:
                if raw[stop] == quote:
                    if raw[stop + 1 : stop + 2] != quote:
                        break
                    stop += 1
                stop += 1
        while stop < end and raw[stop] != dialect.delimiter:
            stop += 1
        if number == place:
            break
        at, number = stop + 1, number + 1
    if raw.startswith(quote, at) or any(mark in text for mark in (dialect.delimiter, quote, "\r", "\n")):
        text = f"{quote}{text.replace(quote, 2 * quote)}{quote}"
    return f"{raw[:at]}{text}{raw[stop:]}"


def _number(number: float, decimal: str) -> str:
    return repr(float(number)).replace(".", decimal)


def _place_of(names: list[str], part: Changes, source: Source) -> int:
    """Position of the label among columns; raises if labels change that are not in the file."""
    if part.label not in names and part.labels:
        raise InputError(
            f"{source.name} has no column {part.label!r} of its own, so its rows cannot be given another label. Write "
            "the labels into the file, or drop rows instead."
        )
    return names.index(part.label) if part.label in names else -1


def _text_of(source: Source, encoding: str) -> tuple[bytes, str, str]:
    """Byte order mark, encoding and text of a file."""
    with source.open() as file:
        raw = bytes(file.read())
    mark = next((mark for mark, _ in BOMS if raw.startswith(mark)), b"")
    codec = _EXACT.get(mark, encoding)
    return mark, codec, raw[len(mark) :].decode(codec)


def _encoded(text: str, mark: bytes, codec: str, source: Source) -> Callable[[BinaryIO], object]:
    try:
        content = mark + text.encode(codec)
    except UnicodeEncodeError as error:
        raise InputError(
            f"{quoted(error.object[error.start : error.end])} cannot be written in the encoding of {source.name}, "
            f"{codec}. Convert the file to UTF-8 first."
        ) from None
    return lambda file: file.write(content)


def _write_json(source: Source, head: bytes, changes: Changes, start: int) -> Written:
    """Write objects of JSON lines, or of a list, unchanged except for the changes."""
    mark, codec, text = _text_of(source, find_encoding(source))
    listed = text.lstrip().startswith("[")
    spans = list(_objects(text)) if listed else []
    lines = [text[a:b] for a, b in spans] if listed else list(io.StringIO(text, newline="\n"))
    filled = [bool(line.strip()) for line in lines]
    part = changes.part(start, sum(filled))
    out, row = [], -1
    for line, is_row in zip(lines, filled, strict=True):
        row += is_row
        if not is_row or part.keep[row]:
            out.append(_with_members(line, row, part, source) if is_row else line)
    if not listed:
        return _encoded("".join(out), mark, codec, source), sum(filled)
    before, after = (text[: spans[0][0]], text[spans[-1][1] :]) if spans else (text, "")
    between = text[spans[0][1] : spans[1][0]] if len(spans) > 1 else ", "
    return _encoded(f"{before}{between.join(out)}{after}", mark, codec, source), len(spans)


def _objects(text: str) -> Iterator[tuple[int, int]]:
    """Start and end of the entries of a list."""
    decoder, at = json.JSONDecoder(), _past_space(text, text.index("[") + 1)
    while text[at] != "]":
        end = decoder.raw_decode(text, at)[1]
        yield at, end
        at = _past_space(text, end)
        at = _past_space(text, at + 1) if text[at] == "," else at


def _with_members(line: str, row: int, part: Changes, source: Source) -> str:
    """Replace the label of an object and add its weight."""
    at = _past_space(line, line.index("{") + 1)
    decoder, found = json.JSONDecoder(), None
    while line[at] != "}":
        name, at = decoder.raw_decode(line, at)
        at = _past_space(line, _past_space(line, at) + 1)  # the colon
        end = decoder.raw_decode(line, at)[1]
        found = (at, end) if name == part.label else found
        at = _past_space(line, end)
        at = _past_space(line, at + 1) if line[at] == "," else at
    if part.weights is not None:
        line = f"{line[:at].rstrip()}, {json.dumps(part.weight)}: {part.weights.tolist()[row]!r}{line[at:]}"
    if row in part.labels:
        place = found or (_place_of([], part, source), 0)
        line = f"{line[: place[0]]}{json.dumps(part.labels[row], ensure_ascii=False)}{line[place[1] :]}"
    return line


def _past_space(text: str, at: int) -> int:
    while text[at] in " \t\r\n":
        at += 1
    return at


def _write_parquet(source: Source, head: bytes, changes: Changes, start: int) -> Written:
    table, count = _changed(read_parquet(source, None), changes, start, source)
    return lambda file: pq.write_table(table, file, compression="zstd", write_page_checksum=True), count


def _write_arrow(source: Source, head: bytes, changes: Changes, start: int) -> Written:
    stream = head.startswith(b"\xff")
    table, count = _changed(read_arrow(source, stream=stream), changes, start, source)

    def write(file: BinaryIO) -> None:
        with (pa.ipc.new_stream if stream else pa.ipc.new_file)(file, table.schema) as writer:
            writer.write_table(table)

    return write, count


def _changed(table: Any, changes: Changes, start: int, source: Source) -> tuple[Any, int]:
    count = table.num_rows
    part = changes.part(start, count)
    place = _place_of(table.column_names, part, source)
    if part.labels:
        field = table.schema.field(place)
        column = _relabelled(table.column(place), part.labels)
        table = table.set_column(place, field.with_type(column.type), column)
    if part.weights is not None:
        table = table.append_column(part.weight, pa.array(part.weights))
    return table.filter(pa.array(part.keep)), count


def _relabelled(column: Any, labels: Mapping[int, Any]) -> Any:
    """Replace entries of a column; whole numbers become floats if needed, categories keep their order."""
    kind, entries = column.type, column.to_pylist()
    for row, label in labels.items():
        entries[row] = label
    try:
        if not pt.is_dictionary(kind):
            return pa.array(entries, kind)
        known = dict.fromkeys([*column.unify_dictionaries().chunk(0).dictionary.to_pylist(), *labels.values()])
        place = {entry: number for number, entry in enumerate(known)}
        numbers = pa.array([place.get(entry) for entry in entries], kind.index_type)
        return pa.DictionaryArray.from_arrays(numbers, pa.array(list(known), kind.value_type), ordered=kind.ordered)
    except (pa.ArrowException, TypeError, OverflowError):
        if not pt.is_integer(kind):
            raise InputError(f"The label column is of type {kind}, which cannot hold the new labels.") from None
        return pa.array([None if entry is None else float(entry) for entry in entries], pa.float64())


def _write_npz(source: Source, head: bytes, changes: Changes, start: int) -> Written:
    """Drop the same rows from all arrays with an entry per row; ``feature_names`` and all others stay."""
    arrays = npz_arrays(source)
    count = len(arrays["X"])
    part = changes.part(start, count)
    if part.labels:
        _place_of([name for name in arrays if name != "X"], part, source)
        old = arrays[part.label]
        entries = old.ravel().tolist()
        for row, label in part.labels.items():
            entries[row] = label.encode() if old.dtype.kind == "S" else label
        new = np.array(entries)
        arrays[part.label] = (new.astype(old.dtype) if new.dtype.kind == old.dtype.kind in "iub" else new).reshape(
            old.shape
        )
    if part.weights is not None:
        name = part.weight
        while name in arrays:  # also among arrays that are not columns
            name += "_"
        arrays[name] = part.weights
    kept: dict[str, Any] = {
        name: array[part.keep] if name != "feature_names" and array.ndim and len(array) == count else array
        for name, array in arrays.items()
    }
    return lambda file: np.savez(file, **kept), count


_WRITERS: dict[Any, Callable[[Source, bytes, Changes, int], Written]] = {
    read_csv: _write_csv,
    read_json: _write_json,
    read_parquet: _write_parquet,
    read_arrow: _write_arrow,
    read_npz: _write_npz,
}
