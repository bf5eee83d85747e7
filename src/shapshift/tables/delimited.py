"""CSV: encoding and dialect found out from the file, types by Arrow."""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.csv as pc

from shapshift._validation import some
from shapshift.tables.about import About, marked, repeated
from shapshift.tables.files import Source

# Where several fit equally well the first wins: the rarer a character is inside text, the stronger its evidence.
DELIMITERS = {"\t": "tab", "|": "pipe", ";": "semicolon", ",": "comma"}
_BOMS = (
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


@dataclass(frozen=True)
class Dialect:
    """How a delimited file is written.

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


def read_csv(source: Source) -> Any:
    """Read a delimited text file into a typed table."""
    encoding = find_encoding(source)
    sample, whole = _sample(source, encoding)
    if not sample.strip():
        raise ValueError(f"{source.name} is empty: it has no character but white space. Expected a header and rows.")
    dialect = sniff(sample, whole=whole)
    _check_header(source, dialect)
    _refuse_open_quote(source, encoding, dialect)
    table = _parse(source, encoding, dialect)
    names = [name.strip() for name in table.column_names]
    if len(names) > 1 and not names[-1] and table.column(len(names) - 1).null_count == table.num_rows:
        # Every line ended in a delimiter.
        table, names = table.remove_column(len(names) - 1), names[:-1]
    how = f"read {source.name} as {encoding} text, columns separated by {DELIMITERS[dialect.delimiter]}"
    how += ", with decimal commas" if dialect.decimal == "," else ""
    how += ", quoted by apostrophes" if dialect.quote == "'" else ""
    how += f"; zero-padded codes kept as text: {some(dialect.padded)}" if dialect.padded else ""
    return marked(table.rename_columns(names), About(source.name, [how]))


def find_encoding(source: Source) -> str:
    """Find the encoding of a text file: by its byte order mark or NUL bytes, else UTF-8 if it is, else a Latin one."""
    head = source.head(4096)
    for mark, encoding in _BOMS:
        if head.startswith(mark):
            return encoding
    if b"\0" in head:
        # Mostly ASCII text in two-byte units has a NUL in every other place.
        zeros = [head[start::2].count(0) / max(1, len(head[start::2])) for start in (0, 1)]
        if max(zeros) > 0.4 and min(zeros) < 0.1:
            return "utf-16-be" if zeros[0] > zeros[1] else "utf-16-le"
        raise ValueError(
            f"{source.name} is not text: it holds NUL bytes. Expected CSV or JSON lines; name a file of a known format."
        )
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for chunk in _chunks(source):
            decoder.decode(chunk)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        undefined = any(len(chunk.translate(None, _NOT_CP1252)) < len(chunk) for chunk in _chunks(source))
        return "latin-1" if undefined else "cp1252"
    return "utf-8"


def open_text(source: Source, encoding: str) -> io.TextIOWrapper:
    """Open as text with line ends as they are and without a byte order mark."""
    return io.TextIOWrapper(source.open(), encoding="utf-8-sig" if encoding == "utf-8" else encoding, newline="")


def sniff(sample: str, *, whole: bool) -> Dialect:
    """Find the dialect under which the first records have as many fields as the header.

    Parameters
    ----------
    sample : str
        The beginning of the file.
    whole : bool
        Whether that is all of it; if not, its last record may be cut.

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
            # An apostrophe that quotes must quote at least as well as the usual mark does.
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
    except csv.Error:  # a field longer than the csv module takes: with the wrong quotes, or a very long text
        return []
    if not whole and 1 < len(records) < _SAMPLE_RECORDS:
        records.pop()
    return [record for record in records if record]


def _chunks(source: Source) -> Iterator[bytes]:
    with source.open() as file:
        while chunk := file.read(_SAMPLE):
            yield bytes(chunk)


def _sample(source: Source, encoding: str) -> tuple[str, bool]:
    with open_text(source, encoding) as file:
        text = file.read(_SAMPLE)
        return text, not file.read(1)


def _check_header(source: Source, dialect: Dialect) -> None:
    names = [name.strip() for name in dialect.header]
    twice = repeated(names)
    if twice:
        raise ValueError(f"The header of {source.name} has a name more than once: {some(twice)}. Rename the columns.")
    if names != [str(j) for j in range(len(names))] and all(map(_is_number, names)):
        raise ValueError(
            f"{source.name} seems to have no header: its first line holds only numbers ({some(names)}). Put a line "
            "with the column names first."
        )


def _is_number(text: str) -> bool:
    try:
        float(text.replace(",", "."))
    except ValueError:
        return False
    return True


def _parse(source: Source, encoding: str, dialect: Dialect) -> Any:
    block = _BLOCK
    while True:
        try:
            with source.open() as file:
                return pc.read_csv(
                    file,
                    # A block must hold a whole record; the limit is Arrow's.
                    pc.ReadOptions(encoding=encoding, block_size=min(block, 2**31 - 1), skip_rows=dialect.skipped),
                    pc.ParseOptions(
                        delimiter=dialect.delimiter,
                        quote_char=dialect.quote,
                        double_quote=True,
                        newlines_in_values=True,
                    ),
                    pc.ConvertOptions(
                        decimal_point=dialect.decimal,
                        null_values=_MISSING,
                        strings_can_be_null=True,
                        column_types=dict.fromkeys(dialect.padded, pa.string()),
                    ),
                )
        except (pa.ArrowException, UnicodeError, OSError) as error:
            if "straddl" in str(error) and block < min(2**31, 2 * source.size):
                block *= 16
                continue
            raise ValueError(_ragged(source, encoding, dialect) or _unreadable(source, error)) from None


def _unreadable(source: Source, error: Exception) -> str:
    return (
        f"{source.name} cannot be read as CSV ({error}). Expected a header and rows with as many fields; check the "
        "quotes, or write it anew."
    )


def _refuse_open_quote(source: Source, encoding: str, dialect: Dialect) -> None:
    """Refuse a quotation mark that is never closed: all rows after it would silently become one field."""
    with open_text(source, encoding) as file:
        count = sum(chunk.count(dialect.quote) for chunk in iter(lambda: file.read(_SAMPLE), ""))
    if count % 2 == 0:  # every mark has its partner, or an error shows elsewhere
        return
    with open_text(source, encoding) as file, _long_fields():
        for _ in range(dialect.skipped):
            file.readline()
        kept: list[str] = []  # the lines of the record being read
        last, begins, ends = "", 0, dialect.skipped
        reader = csv.reader(_remembered(file, kept), delimiter=dialect.delimiter, quotechar=dialect.quote)
        for _ in reader:
            last, begins, ends = "".join(kept), ends + 1, dialect.skipped + reader.line_num
            kept.clear()
        strict = csv.reader(
            io.StringIO(last, newline=""), delimiter=dialect.delimiter, quotechar=dialect.quote, strict=True
        )
        try:
            list(strict)
        except csv.Error as error:
            if "end of data" in str(error):
                raise ValueError(
                    f"The record that begins in line {begins} of {source.name} has a quotation mark ({dialect.quote}) "
                    "that is never closed. Close it, or double a mark that belongs to the text."
                ) from None


@contextmanager
def _long_fields() -> Iterator[None]:
    """Lift the limit of the csv module on the length of a field."""
    limit = csv.field_size_limit(2**31 - 1)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _remembered(lines: Iterable[str], kept: list[str]) -> Iterator[str]:
    for line in lines:
        kept.append(line)
        yield line


def _ragged(source: Source, encoding: str, dialect: Dialect) -> str | None:
    """Say which line is the first with too few or too many fields."""
    with open_text(source, encoding) as file, _long_fields():
        for _ in range(dialect.skipped):
            file.readline()
        reader = csv.reader(file, delimiter=dialect.delimiter, quotechar=dialect.quote)
        width, line = 0, 1
        try:
            for record in reader:
                if record and not width:
                    width = len(record)
                elif record and len(record) != width:
                    text = dialect.delimiter.join(record)
                    return (
                        f"Line {line + dialect.skipped} of {source.name} has {len(record)} fields, but the header has "
                        f"{width} (separated by {DELIMITERS[dialect.delimiter]}): "
                        f"{text[:60] + '...' if len(text) > 60 else text!r}. Correct that line, or quote fields that "
                        "contain the separator or a quotation mark."
                    )
                line = reader.line_num + 1
        except (csv.Error, UnicodeError):
            return None
    return None
