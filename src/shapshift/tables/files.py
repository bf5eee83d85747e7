"""Which files a path names, how messages call them, and their digest."""

import difflib
import errno
import glob
import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

PathLike = str | os.PathLike[str]

PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
_CHUNK = 1 << 20
_SHOWN = 160


@dataclass(frozen=True)
class Parts:
    """The files behind a path.

    Attributes
    ----------
    name : str
        The path as it was given, cut to a readable length.
    files : list of Path
        In sorted order.
    root : Path or None
        The folder that part names are relative to; None for a single file.
    """

    name: str
    files: list[Path]
    root: Path | None


@dataclass(frozen=True)
class Source:
    """One file to read, or what was unpacked from it."""

    path: Path
    unpacked: Any = None

    @property
    def name(self) -> str:
        """How messages call the file."""
        return shown(self.path)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return int(self.unpacked.size) if self.unpacked is not None else self.path.stat().st_size

    def open(self) -> Any:
        """Open the bytes as an Arrow file."""
        return pa.BufferReader(self.unpacked) if self.unpacked is not None else pa.OSFile(str(self.path), "rb")

    def head(self, size: int) -> bytes:
        """Read the first bytes."""
        with self.open() as file:
            return bytes(file.read(size))


def shown(path: PathLike) -> str:
    """Quote a path, without the middle of an overlong one."""
    text = os.fspath(path)
    if len(text) > _SHOWN:
        text = f"{text[:90]}...{text[-50:]}"
    return repr(text)


def find_parts(path: PathLike) -> Parts:
    """Find the files that a path, a folder of Parquet parts or a glob pattern names.

    Parameters
    ----------
    path : path-like
        A file; a folder, searched for Parquet files at any depth; or a pattern with ``*``, ``?`` or ``[...]``.

    Returns
    -------
    Parts

    Raises
    ------
    FileNotFoundError, PermissionError, ValueError
    """
    if not isinstance(path, str | os.PathLike):
        raise TypeError(f"The 'path' parameter must be a path. Got {path!r} instead.")
    text = os.fspath(path)
    if not text:
        raise ValueError("The 'path' parameter must name a file, a folder or a pattern. Got an empty path.")
    if "://" in text:
        raise ValueError(f"{shown(text)} is an address. Only files on this machine are read: download it first.")
    target = Path(text).expanduser()
    mode = _mode(target)
    if mode is None:
        if glob.has_magic(text):
            return _matches(target)
        raise FileNotFoundError(_missing(target))
    if stat.S_ISDIR(mode):
        files = _parquet_files(target)
        if not files:
            raise FileNotFoundError(
                f"The folder {shown(target)} holds no Parquet file ({', '.join(PARQUET_ENDINGS)}). It has: "
                f"{_listing(target)}. Name a file in it, or a pattern such as {shown(target / '*.csv')}."
            )
        return Parts(shown(text), files, target)
    if not stat.S_ISREG(mode):
        raise ValueError(f"{shown(target)} is not a regular file. Write its content to a file and name that.")
    return Parts(shown(text), [target], None)


def file_digest(path: PathLike) -> str:
    r"""SHA-256 of the input a path names, in hexadecimal.

    Parameters
    ----------
    path : path-like
        A file, a folder of Parquet parts or a glob pattern, as `read_table` takes them.

    Returns
    -------
    str
        For a file, the digest of its bytes, as ``sha256sum`` prints it. For several parts, the digest of their names
        (relative to the folder) and contents in sorted order: adding, renaming or changing a part changes it, moving
        the folder does not.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from shapshift.tables import file_digest
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "rows.csv"
    ...     _ = file.write_bytes(b"x,y\n1,2\n")
    ...     file_digest(file)[:8]
    '81bf9fa8'
    """
    parts = find_parts(path)
    if parts.root is None:
        return _digest(parts.files[0])
    whole = hashlib.sha256()
    for file in parts.files:
        name = file.relative_to(parts.root).as_posix()
        # The length makes the end of a name unmistakable, whatever characters it has.
        whole.update(f"{len(name)}:{name}:{_digest(file)}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def refused(path: PathLike, error: OSError) -> OSError:
    """Return the error for a file that the system will not let us read."""
    if isinstance(error, PermissionError):
        return PermissionError(
            f"Permission denied: {shown(path)} may not be read by this user. Change its permissions or its folder's, "
            "or copy it to where you may read it."
        )
    return OSError(f"{shown(path)} cannot be read ({error.strerror or error}). Check the disk or copy the file anew.")


def _mode(target: Path) -> int | None:
    try:
        return os.stat(target).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise FileNotFoundError(
                f"There is no file {shown(target)}: the path has {len(os.fspath(target)):,} characters, more than the "
                "system allows. Check what was passed as the path."
            ) from None
        raise refused(target, error) from None
    except ValueError as error:  # a NUL character
        raise ValueError(f"{shown(target)} cannot be a path ({error}). Check what was passed as the path.") from None


def _matches(pattern: Path) -> Parts:
    found = [Path(name) for name in glob.glob(os.fspath(pattern), recursive=True)]
    files = {file for file in found if file.is_file()}
    files.update(part for folder in found if folder.is_dir() for part in _parquet_files(folder))
    if not files:
        raise FileNotFoundError(
            f"No file matches the pattern {shown(pattern)}. Check the folder and quote the pattern so that the shell "
            "leaves it alone."
        )
    root = Path(os.path.commonpath([file.parent for file in files]))
    return Parts(shown(pattern), sorted(files), root)


def _parquet_files(folder: Path) -> list[Path]:
    """Parquet files at any depth, without hidden ones and what writers leave beside the data (_SUCCESS, _metadata)."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_raise_refused):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        here = (name for name in names if name.lower().endswith(PARQUET_ENDINGS) and not name.startswith((".", "_")))
        found.extend(Path(place) / name for name in here)
    return sorted(found)


def _raise_refused(error: OSError) -> None:
    raise refused(error.filename or "", error) from None


def _missing(target: Path) -> str:
    message = f"There is no file {shown(target)}."
    folder = target.parent
    if not folder.is_dir():
        return f"{message} Its folder {shown(folder)} does not exist either. Check the path."
    close = difflib.get_close_matches(target.name, _names(folder), n=1)
    return message + (
        f" Did you mean {shown(folder / close[0])}?" if close else f" The folder has: {_listing(folder)}."
    )


def _names(folder: Path) -> list[str]:
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except OSError:
        return []


def _listing(folder: Path) -> str:
    names = _names(folder)
    return ", ".join(map(repr, names[:5])) + (f" and {len(names) - 5} more" if len(names) > 5 else "") or "nothing"


def _digest(file: Path) -> str:
    digest = hashlib.sha256()
    try:
        with open(file, "rb") as content:
            while chunk := content.read(_CHUNK):
                digest.update(chunk)
    except OSError as error:
        raise refused(file, error) from None
    return digest.hexdigest()
