"""CSV and JSON lines: the encoding and the dialect are detected, types are inferred by Arrow."""

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc
import pyarrow.json as pj

from shapshift.checks.inputs import rounded_entries, some
from shapshift.exceptions import InputError
from shapshift.tables.files import About, Source, cut, marked, repeated
from shapshift.tables.labels import count_rounded, exact_numbers, has_large_floats

# If several fit equally well, the first wins: rarer characters in text are stronger evidence.
DELIMITERS = {"\t": "tab", "|": "pipe", ";": "semicolon", ",": "comma"}
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_NOT_CP1252 = b"\x81\x8d\x8f\x90\x9d"
_SAMPLE, _SAMPLE_RECORDS = 1 << 20, 1000
_BLOCK = 1 << 22
_MISSING = [*pc.ConvertOptions().null_values, "None", "<NA>", "NaT"]
_COMMA_NUMBER = re.compile(r"\s*[+-]?(\d+,\d*|,\d+)([eE][+-]?\d+)?\s*")
_POINT_NUMBER = re.compile(r"\s*[+-]?(\d+\.\d*|\.\d+)([eE][+-]?\d+)?\s*")
_JSON_KINDS = {
    bool: "a truth value",
    int: "a number",
    float: "a number",
    str: "text",
    list: "a list",
    dict: "an object",
}
# A line after the last one: within an open quotation it does not form a record.
_END = ["\0end of the file"]


@dataclass(frozen=True)
class Dialect:
    """Dialect of a delimited file.

    Attributes
    ----------
    delimiter, quote, decimal : str
        One character each.
    skipped : int
        Lines before the header.
    header : list of str
    padded : list of str
        Columns with zero-padded codes such as "007", which are text.
    """

    delimiter: str
    quote: str
    decimal: str
    skipped: int
    header: list[str]
    padded: list[str]


def read_csv(source: Source, text: Collection[str] = ()) -> Any:
    """Read a delimited text file into a typed table, the columns ``text`` as they are written."""
    encoding, dialect = find_dialect(source)
    _check_header(source, dialect)
    # An entry can take a single byte of text and 8 bytes as a number.
    ends = (dialect.delimiter.encode(), b"\n")
    source.check_size(8 * sum(chunk.count(end) for chunk in _chunks(source) for end in ends))
    _refuse_open_quote(source, encoding, dialect)
    table = _parse_csv(source, encoding, dialect, text)
    # Whole numbers that became another number in columns of floats are counted in their text.
    large = [name for name in table.column_names if has_large_floats(table[name])]
    stripped = [name.strip() for name in large]
    as_text = _parse_csv(source, encoding, dialect, stripped, only=large) if large else {}
    rounded = {name.strip(): count_rounded(as_text[name], table[name], dialect.decimal) for name in large}
    names = [name.strip() for name in table.column_names]
    if len(names) > 1 and not names[-1] and table.column(len(names) - 1).null_count == table.num_rows:
        # Every line ended in a delimiter.
        table, names = table.remove_column(len(names) - 1), names[:-1]
    how = f"read {source.name} as {encoding} text, columns separated by {DELIMITERS[dialect.delimiter]}"
    how += ", with decimal commas" if dialect.decimal == "," else ""
    how += ", quoted by apostrophes" if dialect.quote == "'" else ""
    how += f"; zero-padded codes kept as text: {some(dialect.padded)}" if dialect.padded else ""
    kinds = dict(zip(names, table.schema.types, strict=True))
    written = [name for name in names if name in text]
    inferred = [name for name, kind in kinds.items() if name not in text and kind != pa.string()]
    about = About(source.name, [how], text=written, inferred=inferred, rounded=rounded)
    return marked(table.rename_columns(names), about)


def find_dialect(source: Source) -> tuple[str, Dialect]:
    """Find the encoding and the dialect of a delimited text file."""
    encoding = find_encoding(source)
    with open_text(source, encoding) as file:
        sample, whole = file.read(_SAMPLE), not file.read(1)
    if not sample.strip():
        raise InputError(f"{source.name} is empty: it has no character but white space. Expected a header and rows.")
    return encoding, sniff(sample, whole=whole)


def csv_records(source: Source) -> tuple[Iterator[tuple[int, list[str]]], Dialect]:
    """First line (from 1) and fields, as text, of each record of a delimited file, the header first; and its dialect.

    Raises
    ------
    ValueError
        Also while records are read.
    """
    encoding, dialect = find_dialect(source)
    _refuse_open_quote(source, encoding, dialect)

    def records() -> Iterator[tuple[int, list[str]]]:
        line = 1
        try:
            for line, record in numbered_records(source, encoding, dialect):
                if record != _END:
                    yield line, record
        except (csv.Error, UnicodeError) as error:
            raise InputError(f"{source.name} cannot be read as CSV after line {line} ({error}). Correct it.") from None

    return records(), dialect


def find_encoding(source: Source) -> str:
    """Find the encoding of a text file: by its byte order mark or NUL bytes, else UTF-8 if valid, else a Latin one."""
    head = source.head(4096)
    for mark, encoding in BOMS:
        if head.startswith(mark):
            return encoding
    if b"\0" in head:
        # Mostly ASCII text in two-byte units has NULs at every second position.
        zeros = [head[start::2].count(0) / max(1, len(head[start::2])) for start in (0, 1)]
        if max(zeros) > 0.4 and min(zeros) < 0.1:
            return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
        raise InputError(
            f"{source.name} is not text: it holds NUL bytes. Expected CSV or JSON lines; name a file of a known format."
        )
    try:
        with open_text(source, "utf-8") as file:
            while file.read(_SAMPLE):
                pass
    except UnicodeDecodeError:
        undefined = any(len(chunk.translate(None, _NOT_CP1252)) < len(chunk) for chunk in _chunks(source))
        return "latin-1" if undefined else "cp1252"
    return "utf-8"


def open_text(source: Source, encoding: str) -> io.TextIOWrapper:
    """Open as text with unchanged line ends and without a byte order mark."""
    return io.TextIOWrapper(source.open(), encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="")


def sniff(sample: str, *, whole: bool) -> Dialect:
    """Find the dialect that gives the first records the same number of fields as the header.

    Parameters
    ----------
    sample : str
        The beginning of the file.
    whole : bool
        Whether that is the whole file; if not, its last record may be cut.

    Returns
    -------
    Dialect
    """
    said = re.match(r"sep=(.)\r?\n", sample)  # a line that spreadsheets write and read
    body = sample[said.end() :] if said else sample
    candidates = [said[1]] if said and said[1] in DELIMITERS else list(DELIMITERS)
    best, best_fit, records = ",", -1.0, _records(body, ",", '"', whole)
    quote = '"'
    for delimiter in candidates:
        for mark in '"' + "'" * _apostrophes(body, delimiter):
            parsed = _records(body, delimiter, mark, whole)
            width = len(parsed[0]) if parsed else 0
            fit = sum(len(record) == width for record in parsed) / len(parsed) if width > 1 else -1.0
            # Apostrophes are quotes only if they fit at least as well as quotation marks.
            if fit > best_fit or (fit == best_fit >= 0 and delimiter == best and mark == "'"):
                best, best_fit, records, quote = delimiter, fit, parsed, mark
    header, rows = (records[0] if records else []), records[1:]
    fields = [field for record in rows for field in record]
    commas = best != "," and any(map(_COMMA_NUMBER.fullmatch, fields)) and not any(map(_POINT_NUMBER.fullmatch, fields))
    padded = {
        header[j]
        for record in rows
        for j, field in enumerate(record[: len(header)])
        if len(field) > 1 and field[0] == "0" and field.isascii() and field.isdigit()
    }
    return Dialect(
        best, quote, "," if commas else ".", int(said is not None), header, [n for n in header if n in padded]
    )


def _apostrophes(body: str, delimiter: str) -> bool:
    """Whether fields stand between apostrophes, and none between the usual quotation marks."""
    start, end = rf"(?:^|{re.escape(delimiter)})", rf"(?=$|\r|{re.escape(delimiter)})"
    if re.search(rf'{start}"', body, re.MULTILINE):
        return False
    return re.search(rf"{start}'[^'\r\n]*'{end}", body, re.MULTILINE) is not None


def _records(body: str, delimiter: str, quote: str, whole: bool) -> list[list[str]]:
    reader = csv.reader(io.StringIO(body, newline=""), delimiter=delimiter, quotechar=quote)
    try:
        records = list(islice(reader, _SAMPLE_RECORDS))
    except csv.Error:  # a field longer than the csv module allows: wrong quotes, or a very long text
        return []
    if not whole and 1 < len(records) < _SAMPLE_RECORDS:
        records.pop()
    return [record for record in records if record]


def _chunks(source: Source) -> Iterator[bytes]:
    with source.open() as file:
        while chunk := file.read(_SAMPLE):
            yield bytes(chunk)


def _check_header(source: Source, dialect: Dialect) -> None:
    names = [name.strip() for name in dialect.header]
    twice = repeated(names)
    if twice:
        raise InputError(f"The header of {source.name} has a name more than once: {some(twice)}. Rename the columns.")
    if names != [str(j) for j in range(len(names))] and all(map(_is_number, names)):
        raise InputError(
            f"{source.name} seems to have no header: its first line holds only numbers ({some(names)}). Put a line "
            "with the column names first."
        )


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _parse_csv(
    source: Source, encoding: str, dialect: Dialect, text: Collection[str], only: Collection[str] | None = None
) -> Any:
    """Read the file, the columns ``text`` as they are written; ``only`` some columns, by their names in the header."""
    as_text = [*dialect.padded, *(name for name in dialect.header if name.strip() in text)]
    parse = pc.ParseOptions(
        delimiter=dialect.delimiter, quote_char=dialect.quote, double_quote=True, newlines_in_values=True
    )
    convert = pc.ConvertOptions(
        decimal_point=dialect.decimal,
        null_values=_MISSING,
        strings_can_be_null=True,
        column_types=dict.fromkeys(as_text, pa.string()),
        include_columns=only,
    )

    def read(file: Any, block: int) -> Any:
        return pc.read_csv(
            file, pc.ReadOptions(encoding=encoding, block_size=block, skip_rows=dialect.skipped), parse, convert
        )

    def explain(error: Exception) -> str:
        return _ragged(source, encoding, dialect) or (
            f"{source.name} cannot be read as CSV ({error}). Expected a header and rows with as many fields; check the "
            "quotes, or write it anew."
        )

    return _read_blocks(source, read, explain)


def _read_blocks(source: Source, read: Callable[[Any, int], Any], explain: Callable[[Exception], str]) -> Any:
    """Read a file with Arrow in blocks of a given size, larger ones if a record does not fit into a block."""
    block = _BLOCK
    while True:
        try:
            with source.open() as file:
                return read(file, min(block, 2**31 - 1))  # the limit is Arrow's
        except (pa.ArrowException, UnicodeError, OSError) as error:
            if "straddl" not in str(error) or block >= min(2**31, 2 * source.size):
                raise InputError(explain(error)) from None
            block *= 16


def numbered_records(source: Source, encoding: str, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Yield the first line (from 1) and the fields of each record; ``_END`` comes last if all quotes are closed."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        with open_text(source, encoding) as file:
            line = 1 + sum(1 for _ in islice(file, dialect.skipped))
            reader = csv.reader(chain(file, _END), delimiter=dialect.delimiter, quotechar=dialect.quote)
            for record in reader:
                yield line, record
                line = 1 + dialect.skipped + reader.line_num
    finally:
        csv.field_size_limit(limit)


def _refuse_open_quote(source: Source, encoding: str, dialect: Dialect) -> None:
    """Refuse an unclosed quotation mark: all rows after it would silently become one field."""
    with open_text(source, encoding) as file:
        count = sum(chunk.count(dialect.quote) for chunk in iter(lambda: file.read(_SAMPLE), ""))
    if count % 2 == 0:  # every mark has its partner, or an error is raised elsewhere
        return
    line, record = 0, _END
    for line, record in numbered_records(source, encoding, dialect):  # noqa: B007  # the last pair is read below
        pass
    if record != _END:
        raise InputError(
            f"The record that begins in line {line} of {source.name} has a quotation mark ({dialect.quote}) that is "
            "never closed. Close it, or double a mark that belongs to the text."
        )


def _ragged(source: Source, encoding: str, dialect: Dialect) -> str | None:
    """Name the first line with too few or too many fields."""
    width = 0
    try:
        for line, record in numbered_records(source, encoding, dialect):
            width = width or len(record)
            if record and len(record) != width and record != _END:
                text = cut(dialect.delimiter.join(record), 60)
                return (
                    f"Line {line} of {source.name} has {len(record)} fields, but the header has {width} (separated by "
                    f"{DELIMITERS[dialect.delimiter]}): {text!r}. Correct that line, or quote fields that contain the "
                    "separator or a quotation mark."
                )
    except (csv.Error, UnicodeError):
        return None
    return None


def read_json(source: Source, text: Collection[str] = ()) -> Any:
    """Read JSON lines, or a list of objects, into a typed table; keys that an object lacks are missing values.

    Texts in the columns ``text`` are not converted to dates, and their numbers stay different whatever their size.
    """
    encoding = find_encoding(source)
    if encoding in ("cp1252", "latin-1"):
        raise InputError(f"{source.name} is not UTF-8 text. JSON must be: convert it, for instance with iconv.")
    with open_text(source, encoding) as file:
        start = file.read(4096).lstrip()
        if not start:
            raise InputError(
                f"{source.name} is empty: it has no character but white space. Expected one object a line."
            )
        file.seek(0)
        content = None if encoding == "utf-8" and source.head(3) != b"\xef\xbb\xbf" else file.read()
    plain = source if content is None else Source(source.path, pa.py_buffer(content.encode()))
    is_list = start[0] == "["
    table = _read_list(plain) if is_list else _parse_json(plain)
    dates = [field.name for field in table.schema if field.name in text and pa.types.is_temporal(field.type)]
    if dates and not is_list:
        table = _parse_json(plain, pa.schema([(name, pa.string()) for name in dates]))
    kinds = {field.name: field.type for field in table.schema}
    names = [name for name, kind in kinds.items() if name in text and pa.types.is_floating(kind)]
    large = [name for name in kinds if name not in text and has_large_floats(table[name])]
    objects = _exact_objects(plain, is_list) if names or large else []
    for name in names:
        column = exact_numbers([entry.get(name) for entry in objects])
        table = table.set_column(table.column_names.index(name), name, column)
    note = f"read {source.name} as {'a list of JSON objects' if is_list else 'JSON lines'}"
    inferred = [n for n, k in kinds.items() if n not in text and (pa.types.is_floating(k) or pa.types.is_temporal(k))]
    rounded = {name: rounded_entries(entry.get(name) for entry in objects) for name in large}
    return marked(table, About(source.name, [note], inferred=inferred, rounded=rounded))


def _exact_objects(source: Source, is_list: bool) -> list[dict[str, Any]]:
    """Objects of the file, with the text of numbers unchanged."""
    with open_text(source, "utf-8") as file:
        if is_list:
            return list(json.load(file, parse_float=Decimal))
        return [json.loads(line, parse_float=Decimal) for line in file if line.strip()]


def _parse_json(source: Source, schema: Any = None) -> Any:
    def read(file: Any, block: int) -> Any:
        return pj.read_json(file, pj.ReadOptions(block_size=block), pj.ParseOptions(explicit_schema=schema))

    def explain(error: Exception) -> str:
        return _wrong_line(source) or (
            f"{source.name} cannot be read as JSON lines ({error}). Expected one object a line, each key always with "
            "the same type."
        )

    return _read_blocks(source, read, explain)


def _wrong_line(source: Source) -> str | None:
    """Name the first line that is not an object, or in which a key changes its type."""
    kinds: dict[str, tuple[str, int]] = {}
    with open_text(source, "utf-8") as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
            except ValueError as error:
                return f"Line {number} of {source.name} is not JSON ({error}). Expected one object a line; correct it."
            if not isinstance(entry, dict):
                return (
                    f"Line {number} of {source.name} holds {line.strip()[:40]}, not an object such as "
                    '{"x": 1.5, "y": 0}. Write one object a line.'
                )
            for key, value in entry.items():
                if value is None:
                    continue
                kind = _JSON_KINDS[type(value)]
                before, where = kinds.setdefault(key, (kind, number))
                if kind != before:
                    return (
                        f"Column {key!r} of {source.name} is {before} in line {where} but {kind} in line {number}. "
                        "Write it with one type."
                    )
    return None


def _read_list(source: Source) -> Any:
    try:
        with open_text(source, "utf-8") as file:
            entries = json.load(file)
        names = dict.fromkeys(name for entry in entries for name in dict.keys(entry))
        return pa.table({name: _column([entry.get(name) for entry in entries]) for name in names})
    except (ValueError, TypeError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise InputError(
            f"{source.name} cannot be read as a list of JSON objects ({error}). Expected objects with one type for "
            "each key; JSON lines (one object a line) are easier to repair."
        ) from None


def _column(values: list[Any]) -> Any:
    kinds = {type(value) for value in values} - {type(None)}
    if kinds == {int, float} or (kinds == {int} and any(value is not None and abs(value) >= 2**63 for value in values)):
        values = [None if value is None else float(value) for value in values]
    return pa.array(values)
