"""Result files: one ``.npz`` of plain arrays and a JSON header. Safe to open from any source."""

import json
import math
import os
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta
from typing import Any, ClassVar, Self
from uuid import UUID

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.exceptions import InputError
from shapshift.io.files import write_atomically

Arrays = dict[str, npt.NDArray[Any]]


class Saved:
    """A result that can be written to a file and read back: one ``.npz`` of arrays and JSON, no pickle.

    Attributes
    ----------
    archive_kind, archive_version
        Kind and version in the header of files of this class.
    """

    archive_kind: ClassVar[str]
    archive_version: ClassVar[int] = 1

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        """Split into a JSON-able header and arrays."""
        raise NotImplementedError

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        """Rebuild the result; any error means that the file is incomplete."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write to one ``.npz`` file: arrays and JSON, no pickle, atomically.

        Parameters
        ----------
        path : path-like
        """
        write_archive(path, self.archive_kind, self.archive_version, *self._to_archive())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file that :meth:`save` wrote.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        object
            Of this class.

        Raises
        ------
        ValueError
            If the file is missing, damaged, or something else.
        """
        header, arrays = read_archive(path, cls.archive_kind, cls.archive_version)
        try:
            return cls._from_archive(header, arrays)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise damaged_file(path, cls.archive_kind, error) from error


def write_archive(
    path: str | os.PathLike[str], kind: str, version: int, header: dict[str, Any], arrays: Arrays
) -> None:
    """Write arrays and header atomically.

    Parameters
    ----------
    path : path-like
    kind : str
        Content of the file, for instance "shapshift.Valuation".
    version : int
        Format version.
    header : dict
        JSON-able.
    arrays : dict of ndarray
        Object arrays become JSON lists, see :func:`to_json`.
    """
    # Refused here, because np.savez of NumPy 2.0 and 2.1 takes allow_pickle=False for another array.
    plain: dict[str, Any] = {name: array for name, array in arrays.items() if not array.dtype.hasobject}
    objects = {
        name: [to_json(entry, f"an entry of {name!r}") for entry in array.tolist()]
        for name, array in arrays.items()
        if array.dtype.hasobject
    }
    whole = {"format": kind, "version": version, "objects": objects, **header}
    # Raw bytes rather than a string array: NumPy strips trailing NUL characters from strings.
    plain["header"] = np.frombuffer(json.dumps(whole, allow_nan=False).encode(), dtype=np.uint8)
    write_atomically(path, lambda file: np.savez(file, **plain))


def read_archive(path: str | os.PathLike[str], kind: str, version: int) -> tuple[dict[str, Any], Arrays]:
    """Read a file that :func:`write_archive` wrote.

    Raises
    ------
    ValueError
        If the file is missing, damaged, of another kind or of another version.
    """
    with reading(path, kind):
        with open(path, "rb") as file:
            arrays = read_npz(file)
        header = json.loads(arrays.pop("header").tobytes())
        check_header(header, kind, version)
        if not arrays.keys().isdisjoint(header["objects"]):
            raise InputError("it has an array twice")
        for name, entries in header["objects"].items():
            arrays[name] = object_array([from_json(entry) for entry in entries])
    return header, arrays


def read_npz(file: Any, check_size: Callable[[int], None] | None = None) -> Arrays:
    """Read the arrays of an ``.npz`` file; none takes more memory than both its header and the archive state.

    Parameters
    ----------
    file : binary file
    check_size : callable, optional
        Receives the size of all arrays in bytes before any is read. Without it, compressed arrays are refused, because
        only uncompressed ones are limited to the size of the file on disk. A file that lacks an array, or the name of
        one, is refused too.

    Raises
    ------
    Exception
        Of various kinds, if the file is damaged or states contradictory sizes.
    """
    size = file.seek(0, os.SEEK_END)
    arrays: Arrays = {}
    with zipfile.ZipFile(file) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith(".npy")]
        if check_size is None and len(members) != _stated_parts(file):
            raise InputError("it has more or fewer arrays than it says")
        if len({member.filename for member in members}) < len(members):
            raise InputError("it has an array twice")
        if sum(member.compress_size for member in members) > size:
            raise InputError("its parts overlap")
        for member in members:
            if check_size is None and member.compress_type != zipfile.ZIP_STORED:
                raise InputError(f"its part {member.filename!r} is compressed")
            with archive.open(member) as content:
                _check_array_size(content, member)
        if check_size is not None:
            check_size(sum(member.file_size for member in members))
        for member in members:
            with archive.open(member) as content:
                arrays[member.filename.removesuffix(".npy")] = np.lib.format.read_array(content, allow_pickle=False)
    return arrays


def _stated_parts(file: Any) -> int:
    """Return the number of parts that the last record of an archive states, which zipfile ignores."""
    file.seek(-22, os.SEEK_END)
    return int.from_bytes(file.read()[10:12], "little")


def _check_array_size(content: Any, member: zipfile.ZipInfo) -> None:
    """Refuse an array whose header and archive state different sizes."""
    version = np.lib.format.read_magic(content)
    readers = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in readers:
        raise InputError(f"its part {member.filename!r} has NumPy's format version {version}")
    shape, _, dtype = readers[version](content)
    if dtype.hasobject:
        raise InputError("Object arrays cannot be loaded when allow_pickle=False")
    count = math.prod(shape)
    if min(shape, default=0) < 0 or content.tell() + count * dtype.itemsize != member.file_size:
        raise InputError(f"the header of its part {member.filename!r} says another size than the archive")
    if count and not dtype.itemsize:
        raise InputError(f"its part {member.filename!r} has {count} entries of no bytes")


@contextmanager
def reading(path: str | os.PathLike[str], kind: str) -> Iterator[None]:
    """Turn all errors of reading a missing, damaged or wrong file into a ValueError that says so."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"There is no file {str(path)!r} to load a {kind} from.") from None
    except Exception as error:
        raise damaged_file(path, kind, error) from error


def check_header(header: dict[str, Any], kind: str, version: int) -> None:
    """Refuse the header of a file of another kind or version."""
    if header["format"] != kind:
        raise InputError(f"it holds a {header['format']}")
    if header["version"] != version:
        raise InputError(f"it has format version {header['version']}, this release reads version {version}")


def damaged_file(path: str | os.PathLike[str], kind: str, why: object) -> InputError:
    """Return the error for a file that is not of the expected kind, or is damaged."""
    return InputError(
        f"{str(path)!r} is not a whole {kind} file ({why}). Expected a file that its save method wrote; restore it "
        "from a copy or compute it again."
    )


# Forms of entries that JSON lacks, most specific type first: datetime is a date too.
_TAGS: dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "days_seconds_microseconds": (
        timedelta,
        lambda entry: [entry.days, entry.seconds, entry.microseconds],
        lambda parts: timedelta(*parts),
    ),
    "uuid": (UUID, str, UUID),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "float": (float, repr, float),  # NaN or infinite: JSON has all others
}


def to_json(entry: Any, what: str) -> Any:
    """Return plain scalars as they are; tag dates, tuples and similar, so that their type is restored."""
    if isinstance(entry, np.generic):
        entry = entry.item()
    if is_json_scalar(entry):
        return entry
    if isinstance(entry, tuple):
        return {"tuple": [to_json(part, what) for part in entry]}
    for tag, (kind, write, _) in _TAGS.items():
        if isinstance(entry, kind):
            return {tag: write(entry)}
    raise InputError(
        f"Cannot save {what} of type {type(entry).__name__} ({entry!r}). Use strings, numbers, dates or tuples of them "
        "as ids and group names."
    )


def is_json_scalar(entry: object) -> bool:
    """Whether JSON has such a value; it has no NaN and no infinity."""
    return entry is None or isinstance(entry, str | bool | int) or (isinstance(entry, float) and math.isfinite(entry))


def from_json(entry: Any) -> Any:
    """Undo :func:`to_json`."""
    if not isinstance(entry, dict):
        return entry
    ((tag, content),) = entry.items()
    return tuple(from_json(part) for part in content) if tag == "tuple" else _TAGS[tag][2](content)
