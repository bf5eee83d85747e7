"""Files that are either whole or not there."""

import errno
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: str | os.PathLike[str], write: Callable[[BinaryIO], None]) -> Path:
    """Write a file under a temporary name beside ``path``, make it durable, then rename it into place.

    A crash at any instant leaves the old file or the new one, never a mixture.

    Parameters
    ----------
    path : path-like
        Where the file shall be; its folder must exist.
    write : callable
        Receives the open binary file.

    Returns
    -------
    pathlib.Path
        ``path``.
    """
    target = Path(os.path.realpath(path))  # a link stays one: what it points to is replaced
    if target.is_dir():
        raise ValueError(f"'path' must name a file. Got the folder {str(target)!r}; add a file name.")
    if not target.parent.is_dir():
        raise ValueError(f"The folder {str(target.parent)!r} of 'path' does not exist; create it first.")
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.", suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        # mkstemp makes the file private; a result is as readable as anything else its owner writes.
        os.chmod(name, 0o666 & ~umask())
        os.replace(name, target)
    except BaseException as error:
        Path(name).unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None and error.filename is None:
            error.filename = str(target)  # a disk that is full does not say for which file
        raise
    sync_folder(target.parent)
    return Path(path)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write UTF-8 text atomically; see :func:`write_atomically`."""
    content = text.encode()

    def write(file: BinaryIO) -> None:
        file.write(content)

    return write_atomically(path, write)


def umask() -> int:
    """Permissions that new files are not given; the system tells only by setting them."""
    current = os.umask(0)
    os.umask(current)
    return current


def sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def lock_file(path: Path) -> BinaryIO | None:
    """Hold a lock until the file that is returned is closed, or the process ends in whatever way.

    Parameters
    ----------
    path : pathlib.Path
        Made if it is not there, and left behind.

    Returns
    -------
    file or None
        None if somebody else holds the lock.
    """
    file = open(path, "ab")  # noqa: SIM115  # the caller closes it
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


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Hold a lock for a while, and leave no file behind; yields whether it could be had.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, locked(Path(folder, "lock")) as first:
    ...     with locked(Path(folder, "lock")) as second:
    ...         first, second
    (True, False)
    """
    file = lock_file(path)
    while file is not None and not _is_at(path, file):
        file.close()
        file = lock_file(path)
    try:
        yield file is not None
    finally:
        if file is not None:
            with suppress(OSError):  # before it is closed: what another process locks afterwards must be its own
                path.unlink()
            file.close()


def _is_at(path: Path, file: BinaryIO) -> bool:
    """Whether the file is still the one of that name: whoever held the lock before has removed it."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False
