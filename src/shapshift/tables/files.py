"""Files behind a path, metadata of a table, and names in messages."""

import difflib
import errno
import glob
import hashlib
import json
import os
import stat
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads

from shapshift.checks.inputs import column_differences, quoted, some
from shapshift.exceptions import InputError

PathLike = str | os.PathLike[str]

PARQUET_ENDINGS = (".parquet", ".parq", ".pq")
_SHOWN = 160
_KEY = b"shapshift"


@dataclass(frozen=True)
class About:
    """Origin of a table.

    Attributes
    ----------
    source : str
        Name of the file in messages, empty for a table that was not read from one.
    notes : list of str
        Notes for people on how it was read.
    roles : dict
        Columns with a fixed meaning in the format: "label", "id", "owner".
    text : list of str
        Columns whose text was kept unchanged, of a format without types.
    inferred : list of str
        Columns of a type that can merge two names: inferred from text, where "007" and "7" are one number, or the float
        to which parts of different types were converted.
    rounded : dict
        Number of whole numbers that reading a column rounded to float64.
    folder : str
        The folder that paths in the table are relative to, empty for a table that was not read from a file.
    """

    source: str = ""
    notes: list[str] = field(default_factory=list)
    roles: Mapping[str, str] = field(default_factory=dict)
    text: list[str] = field(default_factory=list)
    inferred: list[str] = field(default_factory=list)
    rounded: Mapping[str, int] = field(default_factory=dict)
    folder: str = ""


def marked(table: Any, about: About) -> Any:
    """Return the table with this as its metadata, replacing any other."""
    return table.replace_schema_metadata({_KEY: json.dumps(asdict(about)).encode()})


def about(table: Any) -> About:
    """Return the metadata that :func:`marked` attached to a table."""
    stored = (table.schema.metadata or {}).get(_KEY)
    return About(**json.loads(stored)) if stored else About()


def no_column(what: str, name: object, columns: Sequence[str], where: str, hint: str = "") -> InputError:
    """Return the error for a missing column."""
    return InputError(
        f"{what} {name!r} is not a column of {where}. It has {len(columns)}: {some(columns)}."
        f"{did_you_mean(name, columns)}{hint}"
    )


def did_you_mean(name: object, known: Sequence[str]) -> str:
    """Suggest one of the known names; empty if none is close."""
    lowered = {other.lower(): other for other in reversed(known)}
    close = difflib.get_close_matches(str(name).lower(), list(lowered), n=1)
    return f" Did you mean {lowered[close[0]]!r}?" if close else ""


def repeated(names: Sequence[str]) -> list[str]:
    """Names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def cut(text: str, length: int) -> str:
    """Return the text, cut at a number of characters."""
    return f"{text[:length]}..." if len(text) > length else text


def check_columns(whole: str, part: str, given: Sequence[str], first: str, expected: Sequence[str]) -> None:
    """Refuse a part of a table whose columns are not those of the first part."""
    differences = column_differences(given, expected, "lacks", "also has")
    if differences:
        raise InputError(
            f"The parts of {whole} must have the same columns, but {part} {differences}, unlike {first}. Correct the "
            "part, or name only parts that belong together."
        )


@dataclass(frozen=True)
class Parts:
    """The files behind a path.

    Attributes
    ----------
    name : str
        The given path, cut to a readable length.
    files : list of Path
        In sorted order.
    root : Path or None
        The folder that part names are relative to; None for a single file.
    """

    name: str
    files: list[Path]
    root: Path | None


class TableSizeError(InputError):
    """A table needs more memory than is allowed."""


@dataclass(frozen=True)
class Source:
    """One file to read, or its unpacked content.

    Attributes
    ----------
    path : Path
    unpacked : pyarrow.Buffer or None
    limit : int or None
        Memory limit of the table in bytes.
    used : int
        Bytes that other parts of the table take.
    """

    path: Path
    unpacked: Any = None
    limit: int | None = None
    used: int = 0

    @property
    def name(self) -> str:
        """Name of the file in messages."""
        return shown(self.path)

    @property
    def size(self) -> int:
        """Number of bytes."""
        return int(self.unpacked.size) if self.unpacked is not None else self.path.stat().st_size

    def check_size(self, size: int) -> None:
        """Refuse content that, together with other parts, takes more memory than is allowed."""
        size += self.used + (0 if self.unpacked is None else self.size)
        if self.limit is not None and size > self.limit:
            raise TableSizeError(
                f"The 'max_memory' parameter of read_table must be at least {size / 1e6:,.0f}MB to read {self.name}. "
                f"Got {self.limit / 1e6:,.0f}MB; without one, it is the memory that is available. Check where the file "
                "comes from before you allow more."
            )

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
        A file; a folder that Hugging Face's ``save_to_disk`` wrote, or another one, searched for Parquet files at any
        depth; or a pattern with ``*``, ``?`` or ``[...]``.

    Returns
    -------
    Parts

    Raises
    ------
    FileNotFoundError, PermissionError, ValueError
    """
    if not isinstance(path, str | os.PathLike):
        raise InputError(f"The 'path' parameter must be a path. Got {path!r} instead.")
    text = os.fspath(path)
    if not text:
        raise InputError("The 'path' parameter must name a file, a folder or a pattern. Got an empty path.")
    if "://" in text:
        raise InputError(f"{shown(text)} is an address. Only files on this machine are read: download it first.")
    target = Path(text).expanduser()
    mode = _mode(target)
    if mode is None:
        if glob.has_magic(text):
            return _matches(target)
        raise FileNotFoundError(_missing(target))
    if stat.S_ISDIR(mode):
        files = _dataset_files(target) or _parquet_files(target)
        if not files:
            raise FileNotFoundError(
                f"The folder {shown(target)} holds no Parquet file ({', '.join(PARQUET_ENDINGS)}) and no dataset that "
                f"save_to_disk wrote. It has: {_listing(target)}. "
                f"Name a file in it, or a pattern such as {shown(target / '*.csv')}."
            )
        return Parts(shown(text), files, target)
    if not stat.S_ISREG(mode):
        raise InputError(f"{shown(target)} is not a regular file. Write its content to a file and name that.")
    return Parts(shown(text), [target], None)


def folder_keys(parts: Parts, columns: Collection[str]) -> dict[str, list[str | None]]:
    """Texts of the ``key=value`` folders between the root and each part, by their keys.

    Parameters
    ----------
    parts : Parts
    columns : collection of str
        Columns of the parts, of which no key may have the name.
    """
    files = [file.relative_to(parts.root or file.parent) for file in parts.files]
    keys = dict.fromkeys(folder.partition("=")[0] for file in files for folder in file.parts[:-1] if "=" in folder)
    hive = pads.partitioning(pa.schema([(key, pa.string()) for key in keys]), flavor="hive")
    try:
        named = [pads.get_partition_keys(hive.parse(file.as_posix())) for file in files]
    except (pa.ArrowException, UnicodeError) as error:
        raise InputError(f"The folders of {parts.name} cannot be read as key=value ({error}). Rename them.") from None
    for key in keys:
        if key in columns or any(key not in values for values in named):
            raise InputError(
                f"The folders of {parts.name} must name {key!r} for every part, and no part may have that column. "
                "Correct the folder names or the parts."
            )
    return {key: [values[key] for values in named] for key in keys}


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
        # The length marks the end of a name, whatever characters it has.
        whole.update(f"{len(name)}:{name}:{_digest(file)}\n".encode("utf-8", "surrogateescape"))
    return whole.hexdigest()


def refused(path: PathLike, error: OSError) -> OSError:
    """Return the error for a file that the system does not let us read."""
    if isinstance(error, PermissionError):
        return PermissionError(
            f"Permission denied: this user may not read {shown(path)}. Change its permissions or its folder's, "
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
        raise InputError(f"{shown(target)} cannot be a path ({error}). Check what was passed as the path.") from None


def _matches(pattern: Path) -> Parts:
    found = [Path(name) for name in glob.glob(os.fspath(pattern), recursive=True)]
    files = {file for file in found if file.is_file()}
    files.update(part for folder in found if folder.is_dir() for part in _parquet_files(folder))
    if not files:
        raise FileNotFoundError(
            f"No file matches the pattern {shown(pattern)}. Check the folder and quote the pattern so that the shell "
            "does not expand it."
        )
    root = Path(os.path.commonpath([file.parent for file in files]))
    return Parts(shown(pattern), sorted(files), root)


def _dataset_files(folder: Path) -> list[Path]:
    """Return the Arrow files of a dataset that Hugging Face's ``save_to_disk`` wrote, in order; empty for others."""
    splits = _json(folder / "dataset_dict.json").get("splits")
    if isinstance(splits, list):
        raise InputError(
            f"The folder {shown(folder)} holds a dataset of several splits: {some(splits)}. Name one of their "
            f"folders, such as {shown(folder / str(next(iter(splits), 'train')))}."
        )
    state = _json(folder / "state.json")
    if state.get("_indices_data_files"):
        raise InputError(
            f"The dataset in {shown(folder)} is a selection of the rows that its files hold. Write it anew with "
            "dataset.flatten_indices().save_to_disk(path)."
        )
    parts = state.get("_data_files")
    parts = parts if isinstance(parts, list) else []
    names: list[Any] = [part.get("filename") if isinstance(part, dict) else None for part in parts]
    # The list is untrusted: it must not name files of other folders.
    odd = [name for name in names if not isinstance(name, str) or Path(name).name != name]
    if odd:
        raise InputError(
            f"{shown(folder / 'state.json')} must name files of its own folder. Got {quoted(odd[0])}. Write the "
            "dataset anew with save_to_disk."
        )
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"The dataset in {shown(folder)} lacks {some(missing)}, which its state.json names. Copy or write it again."
        )
    return [folder / name for name in names]


def _json(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; empty if there is none."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _parquet_files(folder: Path) -> list[Path]:
    """Parquet files at any depth, without hidden files and metadata of writers (_SUCCESS, _metadata)."""
    found: list[Path] = []
    for place, folders, names in os.walk(folder, onerror=_raise_refused):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        here = (name for name in names if name.lower().endswith(PARQUET_ENDINGS) and not name.startswith((".", "_")))
        found.extend(Path(place) / name for name in here)
    for file in found:
        # Opening a pipe would never end; reading says what is missing.
        if not stat.S_ISREG(_mode(file) or stat.S_IFREG):
            raise InputError(f"{shown(file)} is not a regular file. Take it out of the folder.")
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
    try:
        with open(file, "rb") as content:
            return hashlib.file_digest(content, "sha256").hexdigest()
    except OSError as error:
        raise refused(file, error) from None
