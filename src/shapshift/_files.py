"""Files that are either whole or not there."""

import os
import tempfile
from collections.abc import Callable
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
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    _sync_folder(target.parent)
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


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where the system lets a folder be opened."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
