"""Tables from files: the format is detected from the content if possible, else from the ending."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from shapshift.checks.inputs import parse_memory, some
from shapshift.checks.memory import available_memory
from shapshift.exceptions import InputError
from shapshift.tables.binary import read_arrow, read_npz, read_parquet, table_size
from shapshift.tables.files import (
    PARQUET_ENDINGS,
    About,
    Parts,
    PathLike,
    Source,
    about,
    check_columns,
    find_parts,
    folder_keys,
    marked,
    no_column,
    refused,
    repeated,
    shown,
)
from shapshift.tables.labels import count_rounded, exact_numbers
from shapshift.tables.text import read_csv, read_json

_TEXT = {
    **dict.fromkeys((".csv", ".tsv", ".tab", ".psv", ".txt", ".dat", ".data"), "csv"),
    **dict.fromkeys((".jsonl", ".ndjson", ".json"), "json"),
}
_BINARY = {
    **dict.fromkeys(PARQUET_ENDINGS, "Parquet"),
    **dict.fromkeys((".feather", ".arrow", ".ipc", ".arrows"), "Arrow"),
    ".npz": "npz",
}
_PACKED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\x28\xb5\x2f\xfd": "zstd"}
_PIECE = 1 << 22
PACKED_ENDINGS = (".gz", ".bz2", ".zst")
_READABLE = (
    "Parquet (.parquet), CSV (.csv, .tsv, .txt), Feather or Arrow (.feather, .arrow), JSON lines (.jsonl) "
    "or NumPy (.npz)"
)
# Formats that are not supported, and what to do instead.
_REFUSED = {
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"\x89HDF": "an HDF5 file; write the table as Parquet",
    b"SQLite format 3": "an SQLite database; export the table as CSV",
    b"\x93NUMPY": "a single NumPy array; save features and labels together: numpy.savez(path, X=X, y=y)",
    b"ORC": "an ORC file; write the table as Parquet",
    b"PARE": "an encrypted Parquet file; decrypt it first",
    b"FEA1": "a Feather file of version 1; write it anew with pyarrow.feather.write_feather",
    b"%PDF": "a PDF document; export the table as CSV",
    **dict.fromkeys(
        (b"\x80\x03", b"\x80\x04", b"\x80\x05"),
        "a pickle, and loading a pickle runs code; write the table as Parquet",
    ),
}


def read_table(
    path: PathLike,
    *,
    columns: Sequence[str] | None = None,
    text: Collection[str] = (),
    max_memory: int | str | None = None,
) -> Any:
    r"""Read a table from a file, a folder of Parquet parts or a pattern of files.

    Parameters
    ----------
    path : path-like
        Parquet, CSV, Feather or Arrow (file or stream), JSON lines, or ``.npz`` with the arrays ``X``, ``y`` and
        optionally ``feature_names``, ``ids`` and ``owners``. CSV and JSON may be packed with gzip, bzip2 or zstd. A
        folder is a dataset of Hugging Face that ``save_to_disk`` wrote, or is searched for Parquet files at any depth,
        and folders called ``key=value`` become columns. A pattern such as ``"parts/*.csv"`` joins the files it matches,
        in sorted order.
    columns : sequence of str, optional
        Read only these, in this order.
    text : collection of str, default=()
        Columns of names, such as owners, ids and classes, whose text is kept unchanged if the format has no types (CSV,
        ``key=value`` folders): as numbers, "007" and "7" would be one name, and so would "1E2" and "100". In JSON
        lines, and if parts have different types of numbers, different numbers stay different. Names that are not a
        column are ignored.
    max_memory : int or str, optional
        Refuse a table that takes more memory, for instance "2GB"; by default, more than is available. A small file can
        unpack to a very large table.

    Returns
    -------
    pyarrow.Table
        At least one row and one column; no column name twice.

    Raises
    ------
    FileNotFoundError, PermissionError, OSError
        If the file does not exist or may not be read.
    ValueError
        If its content is invalid.

    Notes
    -----
    For a CSV file, the encoding (UTF-8, UTF-16, else Windows-1252 or Latin-1), the separator (comma, semicolon, tab or
    pipe), the quotation mark and the decimal sign are detected; the notes of `prepare` list them.

    Flipped bits are detected if the file has checksums: in Parquet files written with ``write_page_checksum=True``,
    which is not pyarrow's default, and in ``.npz``. Feather and Arrow files have none.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from shapshift.tables import read_table
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_text("size;class\n1,5;a\n2,5;b\n")
    ...     read_table(file).to_pydict()
    {'size': [1.5, 2.5], 'class': ['a', 'b']}
    """
    wanted = [columns] if isinstance(columns, str) else list(columns) if columns is not None else None
    written = {text} if isinstance(text, str) else set(text)
    parts = find_parts(path)
    limit = available_memory() if max_memory is None else parse_memory(max_memory, "read_table")
    tables, used = [], 0
    for file in parts.files:
        tables.append(_read_one(Source(file, limit=limit, used=used), wanted, written))
        used += table_size(tables[-1])
    table = tables[0] if parts.root is None else _joined(tables, parts, written)
    if wanted is not None:
        for name in wanted:
            if name not in table.column_names:
                raise no_column("The 'columns' entry", name, table.column_names, parts.name)
        table = table.select(wanted)
    if table.num_rows == 0:
        raise InputError(f"{parts.name} has columns but no rows. Expected at least one row; check how it was written.")
    return marked(table, replace(about(table), folder=str((parts.root or parts.files[0].parent).absolute())))


def _read_one(source: Source, columns: list[str] | None, text: Collection[str]) -> Any:
    source, head = unpacked(source)
    table = find_reader(source, head, columns, text)(source)
    source.check_size(table_size(table))
    twice = repeated(table.column_names)
    if twice:
        raise InputError(f"{source.name} has a column name more than once: {some(twice)}. Rename the columns.")
    if not table.column_names:
        raise InputError(f"{source.name} has no columns. Expected a label and at least one feature.")
    known = about(table)
    return table if known.source else marked(table, About(source.name))


def unpacked(source: Source) -> tuple[Source, bytes]:
    """Return the file, unpacked if it is packed, and its first bytes."""
    try:
        with open(source.path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        raise refused(source.path, error) from None
    if not head:
        raise InputError(
            f"{source.name} is empty (0 bytes). Expected {_READABLE}; check whether writing it was interrupted."
        )
    for magic, packing in _PACKED.items():
        if head.startswith(magic) and not _is_text(source, head):
            source = replace(source, unpacked=_unpacked(source, packing))
            head = source.head(16)
            if not head:
                raise InputError(f"{source.name} unpacks to nothing. Check whether writing it was interrupted.")
    return source, head


def find_reader(
    source: Source, head: bytes, columns: list[str] | None = None, text: Collection[str] = ()
) -> Callable[[Source], Any]:
    """Return the reader of a file, by its first bytes and its ending."""
    endings = [ending.lower() for ending in source.path.suffixes]
    if endings and endings[-1] in PACKED_ENDINGS:
        endings.pop()
    ending = endings[-1] if endings else ""
    if not _is_text(source, head):
        if head.startswith(b"PAR1"):
            return partial(read_parquet, columns=columns)
        if head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
            return partial(read_arrow, stream=head.startswith(b"\xff"))
        if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            if ending in (".xlsx", ".xlsm", ".ods"):
                raise InputError(f"{source.name} is a spreadsheet. Save the sheet as CSV and name that file.")
            return read_npz
        for magic, what in _REFUSED.items():
            if head.startswith(magic):
                raise InputError(f"{source.name} is {what}. Expected {_READABLE}.")
    if ending in _BINARY:
        looks_text = not any(byte < 9 or byte > 126 for byte in head)
        rename = "It looks like text: rename it to .csv or .jsonl if it is that."
        hint = rename if looks_text else "Copy or write it again."
        raise InputError(f"{source.name} is not a whole {_BINARY[ending]} file: it does not begin like one. {hint}")
    if ending not in _TEXT:
        raise InputError(
            f"{source.name} has {f'the unknown ending {ending!r}' if ending else 'no ending'}, and its content is not "
            f"one of the binary formats. Expected {_READABLE}. If it is text with separators, rename it to .csv."
        )
    # A CSV header does not begin with a brace and a quotation mark.
    looks_json = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b'{"', b'[{"'))
    return partial(read_json if _TEXT[ending] == "json" or looks_json else read_csv, text=text)


def _is_text(source: Source, head: bytes) -> bool:
    """Whether a file named as text begins as text: a CSV header can begin with PAR1 or ORC."""
    return source.path.suffix.lower() in _TEXT and all(32 <= byte <= 126 or byte in b"\t\r\n" for byte in head)


def _unpacked(source: Source, packing: str) -> Any:
    try:
        with pa.CompressedInputStream(source.open(), packing) as stream:
            unpacked = bytearray()
            while piece := stream.read(_PIECE):
                unpacked += piece
                source.check_size(len(unpacked))
            return pa.py_buffer(unpacked)
    except (pa.ArrowException, OSError) as error:
        raise InputError(f"{source.name} cannot be unpacked as {packing} ({error}). Copy or pack it anew.") from None


def _joined(tables: list[Any], parts: Parts, text: Collection[str] = ()) -> Any:
    """All parts under one schema, with a column for each ``key=value`` folder; the error names a part that differs."""
    first, names = shown(parts.files[0]), tables[0].column_names
    fields, aligned = list(tables[0].schema), []
    for file, table in zip(parts.files, tables, strict=True):
        check_columns(parts.name, shown(file), table.column_names, first, names)
        aligned.append(table.select(names).replace_schema_metadata())
        for j, (old, new) in enumerate(zip(fields, aligned[-1].schema, strict=True)):
            try:
                schemas = [pa.schema([old]), pa.schema([new])]
                fields[j] = pa.unify_schemas(schemas, promote_options="permissive").field(0)
            except pa.ArrowException:
                raise InputError(
                    f"The parts of {parts.name} must have the same types, but column {old.name!r} is {new.type} in "
                    f"{shown(file)} and {old.type} before it. Write the parts with one type."
                ) from None
    aligned, join = _without_loss(aligned, fields, text)
    try:
        joined = pa.concat_tables(aligned, promote_options="permissive")
    except pa.ArrowException as error:
        raise InputError(f"The parts of {parts.name} cannot be joined ({error}). Write them with one type.") from None
    folders, keys = _folder_columns(joined, parts, [table.num_rows for table in tables], text)
    known = [*map(about, tables), join, keys]
    notes = [note for part in known[:-1] for note in part.notes]
    notes = [*notes[:3], *([f"... and {len(notes) - 3} more parts likewise"] if len(notes) > 3 else [])]
    notes.append(f"joined {len(tables)} part{'s' * (len(tables) > 1)} of {parts.name}")
    written, inferred = (
        list(dict.fromkeys(n for part in known for n in getattr(part, kind))) for kind in ("text", "inferred")
    )
    rounded = dict(sum((Counter(part.rounded) for part in known), Counter()))
    return marked(folders, About(parts.name, [*notes, *keys.notes], known[0].roles, written, inferred, rounded))


def _without_loss(tables: list[Any], fields: list[Any], text: Collection[str]) -> tuple[list[Any], About]:
    """Parts with numbers of different types converted to floats, and the counts of rounded ones; names stay exact.

    Arrow would round decimals silently, and refuse to round integers.
    """
    inferred, rounded = [], {}
    for j, field in enumerate(fields):
        columns = [table.column(j) for table in tables] if pt.is_floating(field.type) else []
        others = [column for column in columns if not pt.is_floating(column.type) and not pt.is_null(column.type)]
        if not others:
            continue
        if field.name in text:
            entries = exact_numbers([entry for column in columns for entry in column.to_pylist()])
            ends = np.cumsum([len(column) for column in columns])
            columns = [entries[end - len(column) : end] for column, end in zip(columns, ends, strict=True)]
        else:
            floats = [column.cast(pa.float64(), safe=False) for column in columns]
            rounded[field.name] = sum(map(count_rounded, columns, floats))
            columns = floats
            if rounded[field.name] or any(pt.is_decimal(column.type) for column in others):
                inferred.append(field.name)
        tables = [table.set_column(j, field.name, column) for table, column in zip(tables, columns, strict=True)]
    return tables, About(inferred=inferred, rounded=rounded)


def _folder_columns(table: Any, parts: Parts, sizes: list[int], text: Collection[str]) -> tuple[Any, About]:
    """Table with a column for each ``key=value`` folder between the root and the parts, and metadata on them."""
    known = About()
    for key, entries in folder_keys(parts, table.column_names).items():
        # 18 digits fit int64.
        numbers = key not in text and all(entry is None or re.fullmatch("[0-9]{1,18}", entry) for entry in entries)
        (known.inferred if numbers else known.text).append(key)
        column = pa.array(entries, pa.string()).take(pa.array(np.repeat(np.arange(len(sizes)), sizes)))
        table = table.append_column(key, column.cast(pa.int64()) if numbers else column)
        known.notes.append(f"took column {key!r} from the folder names")
    return table, known
