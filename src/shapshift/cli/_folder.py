"""A folder of results that is either whole or not there."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from shapshift._files import umask, write_atomically
from shapshift._validation import some
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._manifest import MANIFEST, digest

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Folder:
    """Results are made in a hidden folder beside the target (inside it, if it exists) and moved into place at the end.

    Parameters
    ----------
    target : Path
        Where results go; made if it does not exist.
    force : bool
        Whether files of the same names may be replaced. Others stay in any case.

    Attributes
    ----------
    own : mapping of str to str
        Files, with their sha256, that may be replaced without that, unless they have changed.
    """

    def __init__(self, target: Path, *, force: bool) -> None:
        self.target, self.force = target, force
        self.own: Mapping[str, str] = {}

    def __enter__(self) -> Self:
        if self.target.exists() and not self.target.is_dir():
            raise CommandError(f"--out must name a folder. {str(self.target)!r} is a file; choose another name.")
        self.check_free([MANIFEST])
        with writing(self.target):
            place = self.target if self.target.is_dir() else existing_parent(self.target)
            self._staging = Path(tempfile.mkdtemp(dir=place, prefix=".shapshift-", suffix=".part"))
        return self

    def __exit__(self, *error: object) -> None:
        shutil.rmtree(self._staging, ignore_errors=True)

    def path(self, name: str) -> Path:
        """Where to write a result for now."""
        path = self._staging / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def names(self) -> list[str]:
        """Everything written so far."""
        return sorted(path.relative_to(self._staging).as_posix() for path in self._staging.rglob("*") if path.is_file())

    def check_free(self, names: Iterable[str]) -> None:
        """Refuse to replace files unless that was allowed."""
        if self.force:
            return
        present = [name for name in names if self._is_taken(name)]
        if present:
            raise CommandError(
                f"The folder {str(self.target)!r} already holds {some(present)}. Name another folder with --out, or "
                "replace the results with --force.",
                Code.EXISTS,
            )

    def _is_taken(self, name: str) -> bool:
        path = self.target / name
        if name.endswith("/"):  # a folder is taken by what it holds
            return path.is_dir() and any(self._is_taken(f"{name}{inner}") for inner in sorted(os.listdir(path)))
        return os.path.lexists(path) and not _is_unchanged(path, self.own.get(name))

    def commit(self, stale: Mapping[str, str] | None = None) -> None:
        """Move the results into place, the manifest last.

        Parameters
        ----------
        stale : mapping of str to str, optional
            Files of the run that is replaced, with their sha256; those that were changed since are kept.
        """
        names = self.names()
        self.check_free(names)
        with writing(self.target):
            if not self.target.exists():
                self.target.parent.mkdir(parents=True, exist_ok=True)
                os.chmod(self._staging, 0o777 & ~umask())  # mkdtemp makes it private
                os.rename(self._staging, self.target)
                return
            (self.target / MANIFEST).unlink(missing_ok=True)  # from here on the old one would lie
            for name, expected in (stale or {}).items():
                if name not in names and _is_unchanged(self.target / name, expected):
                    (self.target / name).unlink(missing_ok=True)
                    self._remove_empty((self.target / name).parent)
            for name in sorted(names, key=lambda name: name == MANIFEST):
                (self.target / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(self._staging / name, self.target / name)

    def _remove_empty(self, folder: Path) -> None:
        while folder != self.target and not any(folder.iterdir()):
            folder.rmdir()
            folder = folder.parent


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Say what stands in the way of writing."""
    try:
        yield
    except OSError as error:
        raise CommandError(refusal(target, error), Code.CANNOT_WRITE) from None


def refusal(target: Path, error: OSError) -> str:
    """Message for results that cannot be written."""
    if error.errno in _FULL:
        return f"The disk is full: {str(target)!r} cannot be written. Make room, or name another place with --out."
    why = error.strerror or str(error)
    return f"{str(target)!r} cannot be written: {why}. Change its permissions, or name another place with --out."


@contextmanager
def beside(source: Path, target: Path) -> Iterator[Path]:
    """Copy a file to a hidden one beside its target, to be renamed there; removed if it is not."""
    hidden = target.with_name(f".{target.name}.part")
    made = [folder for folder in target.parents if not folder.exists()]
    try:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            with open(source, "rb") as content:
                write_atomically(hidden, lambda file: shutil.copyfileobj(content, file))
        yield hidden
    finally:
        hidden.unlink(missing_ok=True)
        if not target.exists():
            for folder in made:
                with suppress(OSError):
                    folder.rmdir()


def _is_unchanged(path: Path, expected: str | None) -> bool:
    return expected is not None and path.is_file() and digest(path) == expected


def existing_parent(target: Path) -> Path:
    """Nearest folder above that is there."""
    folder = target.absolute().parent
    while not folder.is_dir():
        folder = folder.parent
    return folder
