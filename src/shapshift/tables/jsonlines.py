"""JSON lines (one object a line), and a list of objects as a courtesy."""

import json
from typing import Any

import pyarrow as pa
import pyarrow.json as pj

from shapshift.tables.about import About, marked
from shapshift.tables.delimited import find_encoding, open_text
from shapshift.tables.files import Source

_BLOCK = 1 << 22


def read_json(source: Source) -> Any:
    """Read JSON lines into a typed table; keys that a line lacks are missing values."""
    encoding = find_encoding(source)
    if encoding in ("cp1252", "latin-1"):
        raise ValueError(f"{source.name} is not UTF-8 text. JSON must be: convert it, for instance with iconv.")
    with open_text(source, encoding) as file:
        start = file.read(4096).lstrip()
        if not start:
            raise ValueError(
                f"{source.name} is empty: it has no character but white space. Expected one object a line."
            )
        file.seek(0)
        if start[0] == "[":
            return marked(
                _read_list(source, file), About(source.name, [f"read {source.name} as a list of JSON objects"])
            )
        text = None if encoding == "utf-8" and source.head(3) != b"\xef\xbb\xbf" else file.read()
    plain = source if text is None else Source(source.path, pa.py_buffer(text.encode()))
    return marked(_parse(plain), About(source.name, [f"read {source.name} as JSON lines"]))


def _parse(source: Source) -> Any:
    block = _BLOCK
    while True:
        try:
            with source.open() as file:
                return pj.read_json(file, pj.ReadOptions(block_size=min(block, 2**31 - 1)))
        except (pa.ArrowException, OSError) as error:
            if "straddl" in str(error) and block < min(2**31, 2 * source.size):
                block *= 16
                continue
            raise ValueError(_wrong_line(source) or _unreadable(source, error)) from None


def _unreadable(source: Source, error: Exception) -> str:
    return (
        f"{source.name} cannot be read as JSON lines ({error}). Expected one object a line, each key always with the "
        "same type."
    )


def _wrong_line(source: Source) -> str | None:
    """Say which line is the first that is no object, or in which a key changes its type."""
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
                kind = _kind(value)
                before, where = kinds.setdefault(key, (kind, number)) if kind else (kind, number)
                if kind != before:
                    return (
                        f"Column {key!r} of {source.name} is {before} in line {where} but {kind} in line {number}. "
                        "Write it with one type."
                    )
    return None


def _kind(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "a truth value"
    kinds = {int: "a number", float: "a number", str: "text", list: "a list", dict: "an object"}
    return kinds[type(value)]


def _read_list(source: Source, file: Any) -> Any:
    try:
        entries = json.load(file)
        return pa.Table.from_pylist(entries)
    except (ValueError, TypeError, AttributeError, pa.ArrowException) as error:
        raise ValueError(
            f"{source.name} cannot be read as a list of JSON objects ({error}). Expected objects with one type for "
            "each key; JSON lines (one object a line) are easier to repair."
        ) from None
