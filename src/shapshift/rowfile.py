"""Rows in a file: read a stretch at a time, never all at once.

The file is a plain row-major matrix, as NumPy writes it. Rows are read with ordinary reads rather than through a memory
map, so that what is looked at counts as this process's memory only while it is needed.
"""

import errno
import hashlib
import os
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shapshift._files import umask
from shapshift.kernels.shards import lay_out

Floats = npt.NDArray[np.float64]

# Rows are looked through in chunks of about this many bytes.
CHUNK_BYTES = 2**21
# What a worker holds for them: rows as they are in the file, laid out, and their distances.
READING_BYTES = 3 * CHUNK_BYTES
# Rows that take no more than this as float64 are loaded.
LOAD_BYTES = 2**28
_HEADER = 128


class Scratch:
    """A file that is removed when nobody refers to it any more, at the latest when the process ends."""

    def __init__(self, path: Path) -> None:
        weakref.finalize(self, _remove_own, path, os.getpid())


def _remove_own(path: Path, maker: int) -> None:
    if os.getpid() == maker:  # a forked process has the object too, and must leave the file to its parent
        path.unlink(missing_ok=True)


@dataclass(frozen=True)
class RowFile:
    """A matrix of features in a file.

    Small and free of open handles: it can be handed to any thread, and to any process that sees the file.

    Attributes
    ----------
    path : str
    offset : int
        Where the first row begins.
    shape : (int, int)
    dtype : {"<f4", "<f8"}
    stamp : (int, int)
        Size and time of change of the file; a file that was changed since is refused.
    exponent : int
        What :meth:`columns` returns is multiplied by ``2**-exponent``.
    ends : pair of ndarray or None
        Smallest and largest value of each feature, as far as they were looked for.
    owner : Scratch or None
        Keeps a scratch file in place.
    """

    path: str
    offset: int
    shape: tuple[int, int]
    dtype: str
    stamp: tuple[int, int]
    exponent: int = 0
    ends: tuple[Floats, Floats] | None = None
    owner: Scratch | None = field(default=None, compare=False, repr=False)

    def __deepcopy__(self, memo: object) -> Self:
        return self  # a copy would lose the scratch file together with the original

    def __getstate__(self) -> dict[str, Any]:
        # Whoever made a scratch file removes it; a copy in another process only reads.
        return {**self.__dict__, "owner": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    def __getitem__(self, rows: slice) -> Floats:
        """Return some rows, (n, d), unscaled."""
        return self._read(rows.start, min(rows.stop, self.shape[0])).astype(np.float64)

    def columns(self, lo: int, hi: int, out: Floats | None = None) -> Floats:
        """Return the rows lo..hi-1 laid out for the distance kernels: (d, hi - lo), scaled.

        Parameters
        ----------
        lo, hi : int
        out : 1-D ndarray, optional
            Space to use.
        """
        return self._laid_out(self._read(lo, hi), out)

    def take(self, chosen: npt.NDArray[np.int64]) -> Floats:
        """Return chosen rows as :meth:`columns` does."""
        rows = np.empty((chosen.size, self.shape[1]), dtype=self.dtype)
        for at in np.argsort(chosen, kind="stable"):
            rows[at] = self._read(int(chosen[at]), int(chosen[at]) + 1)[0]
        return self._laid_out(rows, None)

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Cut the rows into stretches that are easily held in memory."""
        step = max(1, CHUNK_BYTES // (8 * self.shape[1]))
        return ((lo, min(lo + step, self.shape[0])) for lo in range(0, self.shape[0], step))

    def scaled(self, exponent: int, ends: tuple[Floats, Floats] | None) -> Self:
        """Return the same rows, scaled, with what is known of their ends."""
        return replace(self, exponent=exponent, ends=ends)

    def check_unchanged(self, name: str) -> None:
        """Refuse to go on with a file that is no longer what was looked at."""
        try:
            now = file_stamp(self.path)
        except OSError as error:
            raise ValueError(f"The file of {name!r}, {self.path!r}, is gone ({error.strerror}). Begin again.") from None
        if now != self.stamp:
            raise ValueError(f"The file of {name!r}, {self.path!r}, was changed after it was first read. Begin again.")

    def _read(self, lo: int, hi: int) -> npt.NDArray[Any]:
        rows = np.empty((max(hi - lo, 0), self.shape[1]), dtype=self.dtype)
        with open(self.path, "rb", buffering=0) as file:
            file.seek(self.offset + lo * self.shape[1] * rows.itemsize)
            space, done = rows.data.cast("B"), 0
            while done < rows.nbytes:
                got = file.readinto(space[done:])
                if not got:
                    raise ValueError(f"The file {self.path!r} ends too early: it was changed after it was first read.")
                done += got
        return rows

    def _laid_out(self, rows: npt.NDArray[Any], out: Floats | None) -> Floats:
        columns = (np.empty(rows.size) if out is None else out[: rows.size]).reshape(rows.shape[1], rows.shape[0])
        plain = -1000 < self.exponent < 1000  # then the factor is a float, and a product is rounded like ldexp
        lay_out(rows, 2.0**-self.exponent if plain else 1.0, columns)
        if not plain:
            np.ldexp(columns, -self.exponent, out=columns)
        return columns


class RowWriter:
    """Writes rows one batch after another; the file has its name only when it is whole.

    To be used in a ``with`` statement: what is not finished when it ends is removed.

    Parameters
    ----------
    folder : path-like or None
        Where; the system's folder for temporary files by default.
    width : int
    dtype : {"<f4", "<f8"}
    """

    def __init__(self, folder: str | os.PathLike[str] | None, width: int, dtype: str) -> None:
        self.width, self.dtype, self.n_rows = width, dtype, 0
        handle, self._part = tempfile.mkstemp(dir=folder, prefix=".shapshift-", suffix=".part")
        self._file = os.fdopen(handle, "wb", buffering=0)
        self._file.seek(_HEADER)  # written last

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        Path(self._part).unlink(missing_ok=True)

    def append(self, rows: npt.NDArray[Any]) -> None:
        """Write a batch."""
        self._write(np.ascontiguousarray(rows, dtype=self.dtype).data.cast("B"))
        self.n_rows += rows.shape[0]

    def finish(self, target: Path | None = None) -> RowFile:
        """Give the file its name: ``target``, or a temporary one that goes away with the returned object."""
        self._file.seek(0)
        self._write(npy_header(self.n_rows, self.width, self.dtype))
        owner = None
        if target is None:
            target = Path(self._part).with_suffix(".npy")
            owner = Scratch(target)
        elif there := opened(target, self.n_rows, self.width, self.dtype):
            return there  # another process was faster, and may be at work on it: it must not see the file change
        else:
            os.fsync(self._file.fileno())
            os.chmod(self._part, 0o666 & ~umask())
        self._file.close()
        os.replace(self._part, target)
        return RowFile(
            str(target), _HEADER, (self.n_rows, self.width), self.dtype, file_stamp(str(target)), owner=owner
        )

    def _write(self, content: Any) -> None:
        with scratch_room(os.path.dirname(self._part)):
            left = memoryview(content)
            while left:
                left = left[self._file.write(left) :]


@contextmanager
def scratch_room(folder: str) -> Iterator[None]:
    """Say what to do when a scratch file cannot grow."""
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
    """Write a scratch file of rows that were changed, each for itself."""
    with RowWriter(scratch, file.shape[1], "<f8") as writer:
        for lo, hi in file.chunks():
            writer.append(change(file[lo:hi]))
        return writer.finish()


def load_bytes(max_memory: int | None) -> int:
    """Rows that take no more than this as float64 are loaded."""
    return LOAD_BYTES if max_memory is None else min(LOAD_BYTES, max_memory // 2)


def is_streamed(X: Any, max_memory: int | None = None) -> bool:
    """Whether ``X`` is something to read piece by piece: a path, a dataset, a large memory map, or an iterator."""
    if isinstance(X, np.memmap):
        return X.ndim == 2 and X.dtype.kind in "fiub" and 8 * X.size > load_bytes(max_memory)
    # By name, because pyarrow need not be loaded to know that it is not used.
    datasets = {"Dataset", "RecordBatchReader"} & {kind.__name__ for kind in type(X).__mro__}
    arrow = bool(datasets) and type(X).__module__.startswith("pyarrow")
    return arrow or isinstance(X, str | os.PathLike | Iterator)


def feature_std(rows: Any) -> Floats:
    """Compute the standard deviation of each feature of rows in memory or in a file, a piece at a time."""
    if not isinstance(rows, RowFile):
        return np.array([_std(column) for lo in range(0, rows.shape[1], 8) for column in rows[:, lo : lo + 8].T.copy()])
    assert rows.ends is not None
    # Powers of two keep squares of the largest floats finite.
    exponents = np.frexp(np.maximum(np.abs(rows.ends[0]), np.abs(rows.ends[1])))[1]
    raw = rows.scaled(0, None)
    mean = sum(np.ldexp(raw[lo:hi], -exponents).sum(axis=0) for lo, hi in raw.chunks()) / raw.shape[0]
    squares = sum(np.square(np.ldexp(raw[lo:hi], -exponents) - mean).sum(axis=0) for lo, hi in raw.chunks())
    return np.asarray(np.ldexp(np.sqrt(squares / raw.shape[0]), exponents))


def _std(column: Floats) -> float:
    largest = max(column.max(), -column.min())
    if 2.0**-400 < largest < 2.0**500:
        return float(column.std())
    exponent = np.frexp(largest)[1]  # squares of the largest and smallest floats are none
    return float(np.ldexp(np.ldexp(column, -exponent).std(), exponent))


def column_digests(rows: Any) -> list[bytes]:
    """Hash each column of laid-out rows, (d, N) in memory or in a file: the same for both."""
    # Processors have instructions for this one: a third of the time of BLAKE2.
    digests = [hashlib.sha256() for _ in range(rows.shape[1] if isinstance(rows, RowFile) else len(rows))]
    pieces = (rows.columns(lo, hi) for lo, hi in rows.chunks()) if isinstance(rows, RowFile) else (rows,)
    for columns in pieces:
        for digest, column in zip(digests, columns, strict=True):
            digest.update(np.ascontiguousarray(column).data)
    return [digest.digest() for digest in digests]


def file_stamp(path: str) -> tuple[int, int]:
    """Size and time of the last change."""
    status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def npy_header(n_rows: int, width: int, dtype: str) -> bytes:
    """Header of a ``.npy`` file, of a fixed length, so that it can be written last."""
    words = repr({"descr": dtype, "fortran_order": False, "shape": (n_rows, width)}).encode()
    return b"\x93NUMPY\x01\x00" + (_HEADER - 10).to_bytes(2, "little") + words.ljust(_HEADER - 11) + b"\n"


def opened(path: Path, n_rows: int, width: int, dtype: str) -> RowFile | None:
    """Return the rows that a finished writer left under this name; None if there are none of that shape."""
    try:
        with open(path, "rb") as file:
            head = file.read(_HEADER)
        whole = _HEADER + n_rows * width * np.dtype(dtype).itemsize
        if head == npy_header(n_rows, width, dtype) and os.path.getsize(path) == whole:
            return RowFile(str(path), _HEADER, (n_rows, width), dtype, file_stamp(str(path)))
    except OSError:
        pass
    return None


def spilled(folder: str | os.PathLike[str] | None, shape: tuple[int, ...], dtype: Any) -> npt.NDArray[Any]:
    """Make an array whose pages live in a nameless file: the system can take them out of memory."""
    with tempfile.TemporaryFile(dir=folder, prefix=".shapshift-") as file:
        size = max(int(np.prod(shape)) * np.dtype(dtype).itemsize, 1)
        with scratch_room(str(folder or tempfile.gettempdir())):
            # Room is asked for now: on a disk that is full later, a write would kill the process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        return np.asarray(np.memmap(file, dtype=dtype, mode="r+", shape=shape))
