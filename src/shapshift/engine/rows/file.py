"""Rows in a file, read piece by piece.

The file is a plain row-major matrix, as NumPy writes it. Ordinary reads are used instead of a memory map, so that rows
count as memory of this process only while they are in use.
"""

import errno
import hashlib
import io
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shapshift.exceptions import InputError
from shapshift.io.files import new_file
from shapshift.kernels.panels import lay_out

Floats = npt.NDArray[np.float64]

# Rows are read in chunks of about this many bytes.
CHUNK_BYTES = 2**21
# Memory of a worker for a chunk: rows as stored in the file, laid-out rows, and their distances.
READING_BYTES = 3 * CHUNK_BYTES
# Rows of at most this size as float64 are loaded.
LOAD_BYTES = 2**28
_HEADER = 128


class Scratch:
    """A file that is removed with the last reference to this object, or when the process ends."""

    def __init__(self, path: Path) -> None:
        weakref.finalize(self, _remove_own, path, os.getpid())


def _remove_own(path: Path, maker: int) -> None:
    if os.getpid() == maker:  # a forked process also has this object; only the parent removes the file
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class RowFile:
    """A matrix of features in a file.

    Small and without open handles: it can be passed to any thread, and to any process that can read the file.

    Attributes
    ----------
    path : str
    offset : int
        Byte offset of the first row.
    shape : (int, int)
    dtype : {"<f4", "<f8"}
    stamp : (int, int)
        Size and modification time of the file; a file that changed later is refused.
    exponent : int
        Rows returned by :meth:`panels` are multiplied by ``2**-exponent``.
    ends : pair of ndarray or None
        Smallest and largest value of each feature, if they are known.
    scratch : Scratch or None
        Keeps a scratch file from being removed.
    """

    path: str
    offset: int
    shape: tuple[int, int]
    dtype: str
    stamp: tuple[int, int]
    exponent: int = 0
    ends: tuple[Floats, Floats] | None = None
    scratch: Scratch | None = field(default=None, compare=False, repr=False)

    def __deepcopy__(self, memo: object) -> Self:
        return self  # a copy would lose the scratch file when the original is removed

    def __getstate__(self) -> dict[str, Any]:
        # The process that made a scratch file removes it; a copy in another process only reads.
        return {**self.__dict__, "scratch": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __getitem__(self, rows: slice) -> Floats:
        """Return some rows, (n, d), unscaled."""
        return self.stored(rows.start, min(rows.stop, self.shape[0])).astype(np.float64)

    def panels(self, lo: int, hi: int, out: Floats | None = None) -> Floats:
        """Return the rows lo..hi-1 laid out for the distance kernels, scaled.

        Parameters
        ----------
        lo, hi : int
        out : 1-D ndarray, optional
            Memory to use.
        """
        plain = -1000 < self.exponent < 1000  # the factor is then a float, and the product rounds like ldexp
        panels: Floats = lay_out(self.stored(lo, hi), 2.0**-self.exponent if plain else 1.0, out)
        if not plain:
            np.ldexp(panels, -self.exponent, out=panels)
        return panels

    def take(self, chosen: npt.NDArray[np.int64]) -> Floats:
        """Return chosen rows, (n, d), unscaled."""
        rows = np.empty((chosen.size, self.shape[1]), dtype=self.dtype)
        for at in np.argsort(chosen, kind="stable"):
            rows[at] = self.stored(int(chosen[at]), int(chosen[at]) + 1)[0]
        return rows.astype(np.float64, copy=False)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """First and last row, exclusive, of each chunk of about ``CHUNK_BYTES``."""
        step = max(1, CHUNK_BYTES // (8 * self.shape[1]))
        return ((lo, min(lo + step, self.shape[0])) for lo in range(0, self.shape[0], step))

    def scaled(self, exponent: int, ends: tuple[Floats, Floats] | None) -> Self:
        """Return the same rows with another exponent and known smallest and largest values of each feature."""
        return replace(self, exponent=exponent, ends=ends)

    def feature_std(self) -> Floats:
        """Return the standard deviation of each feature; the ends must be known."""
        assert self.ends is not None
        # Scaling by powers of two keeps squares of the largest floats finite.
        exponents = np.frexp(np.maximum(np.abs(self.ends[0]), np.abs(self.ends[1])))[1]
        mean = sum(np.ldexp(self[lo:hi], -exponents).sum(axis=0) for lo, hi in self.chunks()) / self.shape[0]
        squares = sum(np.square(np.ldexp(self[lo:hi], -exponents) - mean).sum(axis=0) for lo, hi in self.chunks())
        return np.asarray(np.ldexp(np.sqrt(squares / self.shape[0]), exponents))

    def check_unchanged(self, name: str) -> None:
        """Raise if the file changed after it was first read."""
        try:
            now = file_stamp(self.path)
        except OSError as error:
            raise InputError(f"The file of {name!r}, {self.path!r}, is gone ({error.strerror}). Start again.") from None
        if now != self.stamp:
            raise InputError(f"The file of {name!r}, {self.path!r}, was changed after it was first read. Start again.")

    def stored(self, lo: int, hi: int) -> npt.NDArray[Any]:
        """Return the rows lo..hi-1, (n, d), unscaled and in the type of the file."""
        rows = np.empty((max(hi - lo, 0), self.shape[1]), dtype=self.dtype)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + lo * self.shape[1] * rows.itemsize)
            space, done = rows.data.cast("B"), 0
            while done < rows.nbytes:
                got = file.readinto(space[done:])
                if not got:
                    raise InputError(f"The file {self.path!r} ends too early: it was changed after it was first read.")
                done += got
        return rows


class RowWriter:
    """Writes rows in batches; the file gets its name only when it is complete.

    Use it in a ``with`` statement, which removes an unfinished file.

    Parameters
    ----------
    folder : path-like or None
        Folder of the file; by default the system's folder for temporary files.
    width : int
    dtype : {"<f4", "<f8"}
    keep : str or None
        Start of the name of a file that stays in the folder, for :func:`kept_rows` to find. None makes a private file,
        which is removed with the object that :meth:`finish` returns.
    """

    def __init__(self, folder: str | os.PathLike[str] | None, width: int, dtype: str, keep: str | None = None) -> None:
        self.width, self.dtype, self.n_rows, self._keep = width, dtype, 0, keep
        mode = 0o600 if keep is None else 0o666
        handle, self._part = new_file(folder or tempfile.gettempdir(), ".shapshift-", mode)
        self._digest = hashlib.sha256()
        self._file = os.fdopen(handle, "wb", buffering=0)
        self._file.seek(_HEADER)  # written last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._part.unlink(missing_ok=True)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Write a batch."""
        content = np.ascontiguousarray(rows, dtype=self.dtype).data.cast("B")
        if self._keep is not None:
            self._digest.update(content)
        self._write(content)
        self.n_rows += rows.shape[0]

    def finish(self) -> RowFile:
        """Give the file its final name."""
        self._file.seek(0)
        self._write(_npy_header(self.n_rows, self.width, self.dtype))
        scratch = None
        if self._keep is None:
            target = self._part.with_suffix(".npy")
            scratch = Scratch(target)
        else:
            target = self._part.with_name(_kept_name(self._keep, self._digest.hexdigest()))
            if there := _whole_rows(target, self.n_rows, self.width, self.dtype):
                return there  # another process was faster and may be using its file, which must not change
            os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self._part, target)
        return RowFile(
            str(target), _HEADER, (self.n_rows, self.width), self.dtype, file_stamp(str(target)), scratch=scratch
        )

    def _write(self, content: Any) -> None:
        with scratch_room(str(self._part.parent)):
            left = memoryview(content)
            while left:
                left = left[self._file.write(left) :]


@contextmanager
def scratch_room(folder: str) -> Iterator[None]:
    """Add advice to the error of a disk without room for a scratch file."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        free = "unknown"
        with suppress(OSError, AttributeError):
            room = os.statvfs(folder)
            free = f"{room.f_bavail * room.f_frsize / 1e6:,.0f} MB"
        raise OSError(
            error.errno,
            f"A scratch file does not fit into {folder!r} ({error.strerror}; free: {free}). Make room there, or name "
            "another folder in the 'scratch' parameter",
        ) from None


def rewritten(file: RowFile, change: Callable[[Floats], Floats], scratch: str | None) -> RowFile:
    """Write a scratch file with ``change`` applied to the rows of a file, row by row."""
    with RowWriter(scratch, file.shape[1], "<f8") as writer:
        for lo, hi in file.chunks():
            writer.append(change(file[lo:hi]))
        return writer.finish()


def load_bytes(max_memory: int | None) -> int:
    """Rows of at most this size as float64 are loaded."""
    return LOAD_BYTES if max_memory is None else min(LOAD_BYTES, max_memory // 2)


def is_streamed(X: Any, max_memory: int | None = None) -> bool:
    """Whether ``X`` is read in pieces: a path, a dataset, a large memory map, or an iterator."""
    if isinstance(X, np.memmap):
        return X.ndim == 2 and X.dtype.kind in "fiub" and 8 * X.size > load_bytes(max_memory)
    # Checked by name, so that pyarrow is not loaded only for this.
    datasets = {"Dataset", "RecordBatchReader"} & {kind.__name__ for kind in type(X).__mro__}
    arrow = bool(datasets) and type(X).__module__.startswith("pyarrow")
    return arrow or isinstance(X, str | os.PathLike | Iterator)


def column_digests(width: int, pieces: Iterable[Floats]) -> list[bytes]:
    """Hash each of ``width`` columns of laid-out rows, given as (n, width) pieces."""
    # Processors have instructions for this hash: it takes a third of the time of BLAKE2.
    digests = [hashlib.sha256() for _ in range(width)]
    for rows in pieces:
        for digest, column in zip(digests, np.ascontiguousarray(rows.T), strict=True):
            digest.update(column.data)
    return [digest.digest() for digest in digests]


def file_stamp(path: str) -> tuple[int, int]:
    """Size and modification time of a file."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _npy_header(n_rows: int, width: int, dtype: str) -> bytes:
    """Header of a ``.npy`` file, whose length is the same for any number of rows, because NumPy leaves space."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": (n_rows, width)})
    assert header.tell() == _HEADER
    return header.getvalue()


def kept_rows(folder: str | os.PathLike[str], keep: str, n_rows: int, width: int, dtype: str) -> RowFile | None:
    """Return the rows left by a finished writer; None if there are none of that shape, or if they are damaged."""
    found = (_whole_rows(path, n_rows, width, dtype) for path in sorted(Path(folder).glob(_kept_name(keep, "*"))))
    return next((rows for rows in found if rows is not None), None)


def _kept_name(keep: str, digest: str) -> str:
    """Name that ends in the checksum of the rows, so that the file is a plain NumPy file."""
    return f"{keep}-{digest[:32]}.npy"


def _whole_rows(path: Path, n_rows: int, width: int, dtype: str) -> RowFile | None:
    """Return the rows of a kept file if header, size and checksum are right."""
    digest, whole = hashlib.sha256(), _HEADER + n_rows * width * np.dtype(dtype).itemsize
    try:
        stamp = file_stamp(str(path))
        with open(path, "rb", buffering=0) as file:
            if stamp[0] != whole or file.read(_HEADER) != _npy_header(n_rows, width, dtype):
                return None
            while content := file.read(CHUNK_BYTES):
                digest.update(content)
    except OSError:
        return None
    if not path.stem.endswith(f"-{digest.hexdigest()[:32]}"):
        return None
    return RowFile(str(path), _HEADER, (n_rows, width), dtype, stamp)


def spilled(folder: str | os.PathLike[str] | None, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Array in an unnamed file, whose pages the system can move out of memory."""
    with tempfile.TemporaryFile(dir=folder, prefix=".shapshift-") as file:
        size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
        with scratch_room(str(folder or tempfile.gettempdir())):
            # Disk space is reserved now: on a full disk, a later write would kill the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=shape))
