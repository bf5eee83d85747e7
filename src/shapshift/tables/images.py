"""Images from files or from their encoded bytes, decoded a batch at a time."""

import hashlib
import importlib
import io
import os
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from shapshift._progress import progress_bar
from shapshift.checks.names import quoted
from shapshift.exceptions import InputError, MissingLibraryError

Indices = npt.NDArray[np.int64]


class Images:
    """Images that are decoded when they are needed, as RGB images of Pillow.

    Parameters
    ----------
    entries : sequence of str, path-like or bytes
        Paths of files, or encoded images (PNG, JPEG and other formats that Pillow reads).
    folder : path-like, optional
        Base of relative paths. Paths must then stay inside it, because an untrusted table must not name other files of
        this machine.

    Examples
    --------
    >>> from shapshift.tables import Images
    >>> len(Images([b"...", b"..."]))
    2
    """

    def __init__(self, entries: Sequence[Any], folder: str | os.PathLike[str] | None = None) -> None:
        for at, entry in enumerate(entries):
            if not isinstance(entry, str | os.PathLike | bytes):
                raise InputError(
                    f"Image {at} must be the path of a file or the bytes of an encoded image. Got "
                    f"{type(entry).__name__} instead."
                )
        self.entries, self.folders = list(entries), [folder] * len(entries)

    @classmethod
    def of(cls, column: Any, folder: str) -> Self:
        """Return the images of an Arrow column of paths or bytes, or of both as Hugging Face datasets have them.

        Paths must lie in the folder of the table's file, or in the current folder where the table is in memory.

        Raises
        ------
        InputError
            The end of a sentence that begins with the column.
        """
        entries = column.to_pylist()
        if pt.is_struct(column.type) and {"bytes", "path"} <= {field.name for field in column.type}:
            entries = [entry and (entry["path"] if entry["bytes"] is None else entry["bytes"]) for entry in entries]
        elif not (pt.is_string(column.type) or column.type in (pa.binary(), pa.large_binary())):
            raise InputError(f"holds {column.type}, neither paths of files nor bytes")
        missing = [at for at, entry in enumerate(entries) if entry is None]
        if missing:
            raise InputError(f"has no image in {len(missing)} rows, the first of them row {missing[0]} (from 0)")
        return cls(entries, folder or os.curdir)  # a table in memory has no folder

    def __len__(self) -> int:
        return len(self.entries)

    def joined(self, more: "Images") -> "Images":
        """Return these images followed by others."""
        both = Images(self.entries + more.entries)
        both.folders = self.folders + more.folders
        return both

    def take(self, places: Indices) -> list[Any]:
        """Decode some of the images."""
        try:
            pillow = importlib.import_module("PIL.Image")
        except ImportError as error:
            raise MissingLibraryError(
                f'Decoding images needs Pillow ({error}). Install it with: pip install "shapshift[image]".'
            ) from error
        return [self._decoded(pillow, at) for at in places.tolist()]

    def keys(self, progress: bool | None = False) -> npt.NDArray[np.bytes_]:
        """Hash the encoded bytes of each image."""
        found = np.empty(len(self), dtype="S16")
        with progress_bar("Reading images", len(self), progress) as advance:
            for at in range(len(self)):
                found[at] = hashlib.sha256(self._content(at)).digest()[:16]
                advance(1)
        return found

    def _decoded(self, pillow: Any, at: int) -> Any:
        content = self._content(at)
        try:
            with warnings.catch_warnings():
                # A small file can unpack to an image of gigabytes.
                warnings.simplefilter("error", pillow.DecompressionBombWarning)
                with pillow.open(io.BytesIO(content)) as image:
                    if image.format == "EPS":  # a program, which Pillow passes to Ghostscript
                        raise InputError("EPS is not supported")
                    return image.convert("RGB")
        except Exception as error:  # Pillow's decoders raise errors of many kinds
            raise InputError(
                f"{self._name(at)} cannot be decoded ({type(error).__name__}: {str(error)[:100]}). Replace the image, "
                "or leave its row out."
            ) from error

    def _content(self, at: int) -> bytes:
        entry, folder = self.entries[at], self.folders[at]
        if isinstance(entry, bytes):
            return entry
        path = Path(entry)
        if folder is not None:
            root = Path(folder).resolve()
            path = (root / path).resolve()
            if not path.is_relative_to(root):
                raise InputError(
                    f"{self._name(at)} lies outside {self._base(at)}. Paths of images must be relative to that "
                    "folder and stay inside it: move the images there, or put their bytes into the table."
                )
        try:
            return path.read_bytes()
        except (OSError, ValueError) as error:
            why = getattr(error, "strerror", None) or error
            raise InputError(
                f"{self._name(at)} cannot be read ({why}). Paths of images are relative to {self._base(at)}."
            ) from None

    def _base(self, at: int) -> str:
        return "the current folder" if self.folders[at] in (None, os.curdir) else "the folder of its table"

    def _name(self, at: int) -> str:
        entry = self.entries[at]
        return f"Image {at}" if isinstance(entry, bytes) else f"Image {at}, {quoted(os.fspath(entry))},"
