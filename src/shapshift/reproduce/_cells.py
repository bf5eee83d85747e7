"""Finished pieces of work, kept so that an interrupted run goes on, and tables."""

import csv
import hashlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from shapshift._files import write_text


def digest_of(settings: dict[str, Any], cell_format: int) -> str:
    """Short hash of settings, by which stored cells are recognised."""
    sizes = {key: value for key, value in settings.items() if key != "datasets"} | {"format": cell_format}
    return hashlib.sha256(json.dumps(sizes, sort_keys=True).encode()).hexdigest()[:16]


def stored(path: Path, key: str, compute: Callable[[], Any]) -> Any:
    """Return a finished cell, or compute it and keep it."""
    if path.exists():
        try:
            kept = json.loads(path.read_text(encoding="utf-8"))
            if kept["key"] == key:
                return kept["result"]
        except (ValueError, KeyError, TypeError):
            pass  # not a whole cell of ours: compute it again
    result = compute()
    write_text(path, json.dumps({"key": key, "result": result}))
    return result


def write_csv(path: Path, records: list[dict[str, Any]]) -> None:
    """Write records as a table; columns in order of first appearance."""
    columns = list(dict.fromkeys(key for record in records for key in record))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    write_text(path, text.getvalue())
