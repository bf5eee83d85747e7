"""Cache of vectors on disk, keyed by the hash of their item."""

import hashlib
import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shapshift.checks.inputs import ROW_TYPES
from shapshift.exceptions import InputError

Array = npt.NDArray[Any]
Keys = npt.NDArray[np.bytes_]

_TABLE = "CREATE TABLE vectors (key BLOB PRIMARY KEY, kind TEXT, vector BLOB, checksum BLOB)"
_KINDS = {"float64", *ROW_TYPES.values()}
# Most seconds of work that wait to be written: every write goes through to the disk.
_WAIT = 0.1
# Keys that are looked up at a time.
LOOKED_UP = 512
# Seconds to wait for another process that writes.
_PATIENCE = 60.0


class VectorCache:
    """An SQLite file of the vectors of one model; several processes may use it at a time.

    A killed process loses at most its current batch, and those of the tenth of a second before it. Each vector has a
    checksum, and a damaged one counts as missing. The file contains no code, but anyone who can write it controls the
    vectors.

    Parameters
    ----------
    folder : path-like
        Created if it does not exist.
    model : str
        Identity of the model; each model has its own file.

    Examples
    --------
    >>> import tempfile
    >>> from shapshift.tables.vector_cache import VectorCache
    >>> folder = tempfile.TemporaryDirectory()
    >>> with VectorCache(folder.name, "lengths, version 1") as cache:
    ...     cache.put(np.array([b"a", b"b"]), np.array([[1.0], [2.0]]))
    >>> with VectorCache(folder.name, "lengths, version 1") as cache:
    ...     cache.get(np.array([b"b", b"c"]))
    {0: array([2.])}
    >>> folder.cleanup()
    """

    def __init__(self, folder: str | os.PathLike[str], model: str) -> None:
        self.path = Path(folder) / f"{hashlib.sha256(model.encode()).hexdigest()[:32]}.sqlite"
        with self._named():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = sqlite3.connect(self.path, timeout=_PATIENCE, isolation_level=None)
        self._waiting: list[tuple[bytes, str, bytes, bytes]] = []
        self._written = time.monotonic()
        with self._named():
            # No code of an untrusted file runs.
            self._file.execute("PRAGMA trusted_schema = OFF")
            self._file.execute("BEGIN IMMEDIATE")
            there = self._file.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall()
            if not there:
                self._file.execute(_TABLE)
            self._file.execute("COMMIT")
        if there not in ([], [(_TABLE,)]):
            self._file.close()
            raise InputError(
                f"{os.fspath(self.path)!r} is an SQLite file, but not a cache of vectors. Remove it, or name another "
                "folder in 'cache'."
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._write()
        finally:
            self._file.close()

    def get(self, keys: Keys) -> dict[int, Array]:
        """Return the vectors in the file, by the position of their key; at most ``LOOKED_UP`` keys."""
        places = {_key(key): place for place, key in enumerate(keys)}
        with self._named():
            marks = ",".join("?" * len(places))
            found = self._file.execute(f"SELECT * FROM vectors WHERE key IN ({marks})", list(places)).fetchall()
        vectors = {}
        for key, kind, vector, checksum in found:
            if not (kind in _KINDS and isinstance(vector, bytes) and checksum == _checksum(key, kind, vector)):
                continue
            if vector and len(vector) % np.dtype(kind).itemsize == 0:
                vectors[places[key]] = np.frombuffer(vector, dtype=np.dtype(kind).newbyteorder("<"))
        return vectors

    def put(self, keys: Keys, vectors: Array) -> None:
        """Store vectors, replacing existing ones; they are in the file after a tenth of a second, or on exit."""
        stored = np.ascontiguousarray(vectors, dtype=vectors.dtype.newbyteorder("<"))
        kind = vectors.dtype.name
        for key, vector in zip(map(_key, keys), stored, strict=True):
            content = vector.tobytes()
            self._waiting.append((key, kind, content, _checksum(key, kind, content)))
        if time.monotonic() - self._written > _WAIT:
            self._write()

    def _write(self) -> None:
        if self._waiting:
            with self._named():
                self._file.execute("BEGIN IMMEDIATE")
                self._file.executemany("INSERT OR REPLACE INTO vectors VALUES (?, ?, ?, ?)", self._waiting)
                self._file.execute("COMMIT")
        self._waiting, self._written = [], time.monotonic()

    @contextmanager
    def _named(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise InputError(
                f"The cache of vectors {os.fspath(self.path)!r} cannot be used ({error}). Remove the file if it is "
                "damaged, free space on the disk if it is full, or name another folder in 'cache' or SHAPSHIFT_CACHE."
            ) from error


def _key(key: np.bytes_) -> bytes:
    # NumPy takes zeros off the end.
    return bytes(key).ljust(16, b"\0")


def _checksum(key: bytes, kind: str, vector: bytes) -> bytes:
    return hashlib.blake2b(key + kind.encode() + vector, digest_size=8).digest()
