"""Cells of one row: numbers, texts, and images that are in a table or beside it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.exceptions import InputError

if TYPE_CHECKING:
    from shapshift.app.study import Source

#: How files of images begin, and their type.
_BEGINNINGS = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"BM": "image/bmp",
}
_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp", ".bmp")
#: Letters of a text, and bytes of an image, that are shown.
LONGEST, LARGEST = 20_000, 30_000_000


def read(source: "Source", row: int) -> list[dict[str, Any]]:
    """Return the cells of a row: ``name``, ``kind`` ("number", "text", "image", "missing", "other"), ``value``."""
    found = []
    for place, name in enumerate(source.train.column_names):
        cell = source.train[name][row].as_py()
        one: dict[str, Any] = {"name": name, "feature": name in source.features, "column": place}
        if cell is None or (isinstance(cell, float) and cell != cell):
            one |= {"kind": "missing", "value": ""}
        elif _image(source, cell) is not None:
            one |= {"kind": "image", "value": ""}
        elif isinstance(cell, bool | int | float):
            one |= {"kind": "number", "value": f"{cell:.8g}" if isinstance(cell, float) else str(cell)}
        elif isinstance(cell, bytes | dict | list):
            size = f"{len(cell):,} {'bytes' if isinstance(cell, bytes) else 'entries'}"
            one |= {"kind": "other", "value": size}
        else:
            text = str(cell)
            one |= {"kind": "text", "value": text[:LONGEST] + ("…" if len(text) > LONGEST else "")}
        found.append(one)
    return found


def image(source: "Source", row: int, column: int) -> tuple[bytes, str]:
    """Return an image and its type."""
    names = source.train.column_names
    if not (0 <= column < len(names) and 0 <= row < source.train.num_rows):
        raise InputError("There is no such cell.")
    found = _image(source, source.train[names[column]][row].as_py())
    if found is None:
        raise InputError("The cell holds no image.")
    content = found if isinstance(found, bytes) else found.read_bytes()
    kind = _kind(content)
    if kind is None:
        raise InputError("The file is not an image of a known type.")
    return content, kind


def pixels(source: "Source", row: int) -> dict[str, Any] | None:
    """Return the numeric features of a row as a picture, where they make up one."""
    shape = source.image_shape
    if shape is None:
        return None
    names = [name for name in source.features if name in source.train.column_names]
    cells = [source.train[name][row].as_py() for name in names]
    grey = np.array([cell if isinstance(cell, int | float) else np.nan for cell in cells], dtype=np.float64)
    if grey.size != shape[0] * shape[1]:
        raise InputError(
            f"--image-shape {shape[0]}x{shape[1]} takes {shape[0] * shape[1]} features. There are {grey.size}."
        )
    low, high = np.nanmin(grey), np.nanmax(grey)
    scaled = np.nan_to_num((grey - low) / (high - low if high > low else 1.0))
    return {"height": shape[0], "width": shape[1], "grey": (255 * scaled).astype(int).tolist()}


def _image(source: "Source", cell: Any) -> bytes | Path | None:
    """Return the image that a cell holds or names; None where there is none."""
    if isinstance(cell, dict):  # as Hugging Face's datasets have them
        cell = cell.get("bytes") or cell.get("path")
    if isinstance(cell, bytes):
        return cell if len(cell) <= LARGEST and _kind(cell) is not None else None
    if source.images is None or not isinstance(cell, str) or not cell.lower().endswith(_ENDINGS) or "\0" in cell:
        return None
    folder = source.images.resolve()
    try:
        path = (folder / cell).resolve()
        inside = path.is_relative_to(folder) and path.is_file() and path.stat().st_size <= LARGEST
    except (OSError, RuntimeError):  # a text that is too long for a name, or a link to itself
        return None
    return path if inside else None


def _kind(content: bytes) -> str | None:
    if content[:4] == b"RIFF" and content[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _BEGINNINGS.items() if content.startswith(start)), None)
