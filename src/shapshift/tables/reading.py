"""Tables from files: the format by content where the content says it, else by the ending."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from shapshift._validation import some
from shapshift.tables.about import About, about, marked, no_column, repeated
from shapshift.tables.delimited import read_csv
from shapshift.tables.files import PARQUET_ENDINGS, Parts, PathLike, Source, find_parts, refused
from shapshift.tables.jsonlines import read_json
from shapshift.tables.npz import read_npz

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
_PACKED_ENDINGS = (".gz", ".bz2", ".zst")
_READABLE = (
    "Parquet (.parquet), CSV (.csv, .tsv, .txt), Feather or Arrow (.feather, .arrow), JSON lines (.jsonl) "
    "or NumPy (.npz)"
)
# Formats that people try, and what to do instead.
_REFUSED = {
    b"\xd0\xcf\x11\xe0": "an old Excel workbook; save the sheet as CSV",
    b"\x89HDF": "an HDF5 file; write the table as Parquet",
    b"SQLite format 3": "an SQLite database; export the table as CSV",
    b"\x93NUMPY": "a single NumPy array; save features and labels together: numpy.savez(path, X=X, y=y)",
    b"ORC": "an ORC file; write the table as Parquet",
    b"PARE": "an encrypted Parquet file; decrypt it first",
    b"FEA1": "a Feather file of version 1; write it anew with pyarrow.feather.write_feather",
    b"%PDF": "a PDF document; export the table as CSV",
    b"\x80\x03": "a pickle, and loading a pickle runs code; write the table as Parquet",
    b"\x80\x04": "a pickle, and loading a pickle runs code; write the table as Parquet",
    b"\x80\x05": "a pickle, and loading a pickle runs code; write the table as Parquet",
}


def read_table(path: PathLike, *, columns: Sequence[str] | None = None) -> Any:
    r"""Read a table from a file, a folder of Parquet parts or a pattern of files.

    Parameters
    ----------
    path : path-like
        Parquet, CSV, Feather or Arrow (file or stream), JSON lines, or ``.npz`` with the arrays ``X``, ``y`` and
        optionally ``feature_names``, ``ids`` and ``owners``. CSV and JSON may be packed with gzip, bzip2 or zstd. A
        folder is searched for Parquet files at any depth, and folders called ``key=value`` become columns. A pattern
        such as ``"parts/*.csv"`` joins the files it matches, in sorted order.
    columns : sequence of str, optional
        Only these, in this order.

    Returns
    -------
    pyarrow.Table
        At least one row and one column; no column name twice.

    Raises
    ------
    FileNotFoundError, PermissionError, OSError
        If the file is not there or may not be read.
    ValueError
        If its content is not what it should be.

    Notes
    -----
    Of a CSV file, the encoding (UTF-8, UTF-16, else Windows-1252 or Latin-1), the separator (comma, semicolon, tab or
    pipe), the quotation mark and the decimal sign are found out; `prepare` says in its notes what was found.

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
    parts = find_parts(path)
    tables = [_read_one(file, wanted) for file in parts.files]
    table = tables[0] if parts.root is None else _with_folder_columns(_joined(tables, parts), parts, tables)
    if wanted is not None:
        for name in wanted:
            if name not in table.column_names:
                raise no_column("The 'columns' entry", name, table.column_names, parts.name)
        table = table.select(wanted)
    if table.num_rows == 0:
        raise ValueError(f"{parts.name} has columns but no rows. Expected at least one row; check how it was written.")
    return table


def _read_one(path: Path, columns: list[str] | None) -> Any:
    try:
        with open(path, "rb") as file:
            head = file.read(16)
    except OSError as error:
        raise refused(path, error) from None
    source = Source(path)
    if not head:
        raise ValueError(
            f"{source.name} is empty (0 bytes). Expected {_READABLE}; check whether writing it was interrupted."
        )
    for magic, packing in _PACKED.items():
        if head.startswith(magic) and not _is_text(source, head):
            source = Source(path, _unpacked(source, packing))
            head = source.head(16)
            if not head:
                raise ValueError(f"{source.name} unpacks to nothing. Check whether writing it was interrupted.")
    table = _reader(source, head, columns)(source)
    twice = repeated(table.column_names)
    if twice:
        raise ValueError(f"{source.name} has a column name more than once: {some(twice)}. Rename the columns.")
    if not table.column_names:
        raise ValueError(f"{source.name} has no columns. Expected a label and at least one feature.")
    known = about(table)
    return table if known.source else marked(table, About(source.name))


def _reader(source: Source, head: bytes, columns: list[str] | None) -> Callable[[Source], Any]:
    endings = [ending.lower() for ending in source.path.suffixes]
    if endings and endings[-1] in _PACKED_ENDINGS:
        endings.pop()
    ending = endings[-1] if endings else ""
    if _is_text(source, head):
        # Nobody's CSV header begins with a brace and a quotation mark.
        looks_json = head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith((b'{"', b'[{"'))
        return read_json if _TEXT[ending] == "json" or looks_json else read_csv
    if head.startswith(b"PAR1"):
        return lambda parquet: _read_parquet(parquet, columns)
    if head.startswith(b"ARROW1"):
        return lambda arrow: _read_arrow(arrow, pa.ipc.open_file)
    if head.startswith(b"\xff\xff\xff\xff"):
        return lambda arrow: _read_arrow(arrow, pa.ipc.open_stream)
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        if ending in (".xlsx", ".xlsm", ".ods"):
            raise ValueError(f"{source.name} is a spreadsheet. Save the sheet as CSV and name that file.")
        return read_npz
    for magic, what in _REFUSED.items():
        if head.startswith(magic):
            raise ValueError(f"{source.name} is {what}. Expected {_READABLE}.")
    if ending in _BINARY:
        text = not any(byte < 9 or byte > 126 for byte in head)
        raise ValueError(
            f"{source.name} is not a whole {_BINARY[ending]} file: it does not begin like one. "
            + ("It looks like text: rename it to .csv or .jsonl if it is that." if text else "Copy or write it anew.")
        )
    if ending not in _TEXT:
        raise ValueError(
            f"{source.name} has {f'the unknown ending {ending!r}' if ending else 'no ending'}, and its content is none "
            f"of the binary formats. Expected {_READABLE}. If it is text with separators, rename it to .csv."
        )
    return read_json if _TEXT[ending] == "json" else read_csv


def _is_text(source: Source, head: bytes) -> bool:
    """Whether a file named like text begins like text: a CSV header may well begin with PAR1 or ORC."""
    return source.path.suffix.lower() in _TEXT and all(32 <= byte <= 126 or byte in b"\t\r\n" for byte in head)


def _unpacked(source: Source, packing: str) -> Any:
    try:
        with pa.CompressedInputStream(source.open(), packing) as stream:
            return stream.read_buffer()
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{source.name} cannot be unpacked as {packing} ({error}). Copy or pack it anew.") from None


def _read_parquet(source: Source, columns: list[str] | None) -> Any:
    try:
        with source.open() as opened:
            file = pq.ParquetFile(opened)
            names = file.schema_arrow.names
            # A name that is missing here may still come from a folder name, or else is reported with all the others.
            present = [name for name in columns if name in names] if columns is not None else None
            table = file.read(columns=present or None)
            return table.select(present) if present else table
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(
            f"{source.name} is not a whole Parquet file: it is truncated or damaged ({error}). Copy or write it anew."
        ) from None


def _read_arrow(source: Source, opener: Callable[[Any], Any]) -> Any:
    try:
        with source.open() as file, opener(file) as reader:
            return reader.read_all()
    except (pa.ArrowException, OSError, EOFError) as error:
        raise ValueError(
            f"{source.name} is not a whole Arrow file: it is truncated or damaged ({error}). Copy or write it anew."
        ) from None


def _joined(tables: list[Any], parts: Parts) -> Any:
    """All parts under one schema; a part that differs is named."""
    first, schema = tables[0], tables[0].schema.remove_metadata()
    aligned = [first]
    for file, table in zip(parts.files[1:], tables[1:], strict=True):
        here = Source(file).name
        missing = [name for name in first.column_names if name not in table.column_names]
        extra = [name for name in table.column_names if name not in first.column_names]
        if missing or extra:
            differences = [f"lacks {some(missing)}"] * bool(missing) + [f"also has {some(extra)}"] * bool(extra)
            raise ValueError(
                f"The parts of {parts.name} must have the same columns, but {here} {' and '.join(differences)}, unlike "
                f"{Source(parts.files[0]).name}. Correct the part, or name only parts that belong together."
            )
        table = table.select(first.column_names)
        for old, new in zip(schema, table.schema, strict=True):
            try:
                merged = pa.unify_schemas([pa.schema([old]), pa.schema([new])], promote_options="permissive").field(0)
            except pa.ArrowException:
                raise ValueError(
                    f"The parts of {parts.name} must have the same types, but column {old.name!r} is {new.type} in "
                    f"{here} and {old.type} before it. Write the parts with one type."
                ) from None
            schema = schema.set(schema.get_field_index(old.name), merged)
        aligned.append(table)
    try:
        joined = pa.concat_tables([part.replace_schema_metadata() for part in aligned], promote_options="permissive")
    except pa.ArrowException as error:
        raise ValueError(f"The parts of {parts.name} cannot be joined ({error}). Write them with one type.") from None
    return joined


def _with_folder_columns(joined: Any, parts: Parts, tables: list[Any]) -> Any:
    """Add a column for each ``key=value`` folder between the root and the parts, and say what was joined."""
    notes = [note for table in tables for note in about(table).notes]
    notes = [*notes[:3], *([f"... and {len(notes) - 3} more parts likewise"] if len(notes) > 3 else [])]
    notes.append(f"joined {len(tables)} part{'s' * (len(tables) > 1)} of {parts.name}")
    keyed = [_folder_values(file.relative_to(parts.root or file).parts[:-1]) for file in parts.files]
    for key in keyed[0]:
        if any(key not in values for values in keyed) or key in joined.column_names:
            raise ValueError(
                f"The folders of {parts.name} must name {key!r} for every part, and no part may have that column. "
                "Correct the folder names or the parts."
            )
        entries = [values[key] for values in keyed]
        numbers = all(entry is None or (entry.isascii() and entry.isdigit()) for entry in entries)
        typed = [int(entry) if numbers and entry is not None else entry for entry in entries]
        column = [entry for entry, table in zip(typed, tables, strict=True) for _ in range(table.num_rows)]
        joined = joined.append_column(key, pa.array(column, pa.int64() if numbers else pa.string()))
        notes.append(f"took column {key!r} from the folder names")
    return marked(joined, About(parts.name, notes, about(tables[0]).roles))


def _folder_values(folders: Sequence[str]) -> dict[str, str | None]:
    pairs = (folder.partition("=")[::2] for folder in folders if "=" in folder)
    return {key: None if value == "__HIVE_DEFAULT_PARTITION__" else unquote(value) for key, value in pairs}
