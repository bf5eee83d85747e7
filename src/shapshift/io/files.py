"""Files that are either complete or absent."""

import errno
import os
import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from shapshift.exceptions import InputError

_NO_LINKS = getattr(os, "O_NOFOLLOW", 0)


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> Path:
    """Write a file under a temporary name beside ``path``, make it durable, then rename it into place.

    A crash at any time leaves the old file or the new one, never a mixture. A link at ``path`` is replaced and its
    target unchanged, because anyone who can write to the folder could have made the link.

    Parameters
    ----------
    path : path-like
        Path of the file; its folder must exist.
    write : callable
        Receives the open binary file.

    Returns
    -------
    pathlib.Path
        ``path``.
    """
    target = destination(path)
    if target.is_dir():
        raise InputError(f"'path' must name a file. Got the folder {str(target)!r}; add a file name.")
    if not target.parent.is_dir():
        raise InputError(f"The folder {str(target.parent)!r} of 'path' does not exist; create it first.")
    with _naming(target):
        name = written(new_name(target.parent, hidden_prefix(target)), write)
        try:
            os.replace(name, target)
        except BaseException:
            name.unlink(missing_ok=True)
            raise
    sync_folder(target.parent)
    return Path(path)


def destination(path: str | os.PathLike[str]) -> Path:
    """Target of a file name: links to folders are followed, a link of the file's own name is not."""
    folder, name = os.path.split(path)
    return Path(os.path.realpath(folder), name)  # of "" the working directory


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text atomically; see :func:`write_atomically`."""
    return write_atomically(path, lambda file: file.write(text.encode()))


def hidden_prefix(target: Path) -> str:
    """Prefix of the names of files that will be renamed to the target."""
    return f".{target.name[:40]}."


def written(path: Path, write: Callable[[BinaryIO], object]) -> Path:
    """Write a durable file of a new name, to be renamed; on any error, no file is left."""
    handle = _create(path)
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return path


def new_file(folder: str | os.PathLike[str], prefix: str, mode: int = 0o666) -> tuple[int, Path]:
    """Create a file of an unpredictable name, and return its open descriptor and its path.

    No existing file is opened, nor the target of a link. The system applies the umask to ``mode``.
    """
    path = new_name(folder, prefix)
    return _create(path, mode), path


def _create(path: Path, mode: int = 0o666) -> int:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | _NO_LINKS | getattr(os, "O_BINARY", 0)
    return os.open(path, flags, mode)


def new_name(folder: str | os.PathLike[str], prefix: str) -> Path:
    """Unpredictable path of a temporary file or folder."""
    return Path(folder, f"{prefix}{secrets.token_hex(8)}.part")


@contextmanager
def _naming(target: Path) -> Iterator[None]:
    """Name the file in an error of the system, which does not name it if the disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(target)
        raise


def sync_folder(folder: Path) -> None:
    """Make the rename itself durable, if the system can open folders."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_file(path: Path) -> BinaryIO | None:
    """Hold a lock until the returned file is closed or the process ends in any way.

    Parameters
    ----------
    path : pathlib.Path
        Created if it does not exist, and not removed.

    Returns
    -------
    file or None
        None if another process holds the lock.

    Notes
    -----
    The filelock package is no replacement: releases before 3.20.1 open, and empty, what a link points to, and later
    ones turn to a lock that outlives a killed process where the file system has none of its own.
    """
    file = open(path, "ab", opener=_open_no_link)  # noqa: SIM115  # the caller closes it
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        if error.errno in (errno.EACCES, errno.EAGAIN, errno.EDEADLK):
            return None
        raise
    except BaseException:
        file.close()
        raise
    return file


def _open_no_link(path: str, flags: int) -> int:
    return os.open(path, flags | _NO_LINKS, 0o666)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a lock in a block and leave no file; yields whether the lock was acquired.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder, "lock")) as first:
    ...     with locked(Path(folder, "lock")) as second:
    ...         first, second
    (True, False)
    """
    file = lock_file(path)
    while file is not None and not same_file(path, file):
        file.close()
        file = lock_file(path)
    try:
        yield file is not None
    finally:
        if file is not None:
            with suppress(OSError):  # before it is closed: another process must then lock a file of its own
                path.unlink()
            file.close()


def same_file(path: Path, file: BinaryIO) -> bool:
    """Whether the file still has that name: the previous holder of the lock may have removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def cache_folder(named: str | os.PathLike[str] | None) -> Path:
    """Return the cache folder for downloads and computed data: the given one, or the default."""
    chosen = named if named is not None else os.environ.get("SHAPSHIFT_CACHE")
    return Path(chosen).expanduser() if chosen else Path.home() / ".cache" / "shapshift"
