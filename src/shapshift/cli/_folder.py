"""A folder of results that is either whole or not there."""

import errno
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from shapshift._files import write_atomically
from shapshift._validation import some
from shapshift.cli._errors import Code, CommandError

MANIFEST = "manifest.json"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Folder:
    """Results are made in a hidden folder beside the target (inside it, if it exists) and moved into place at the end.

    Parameters
    ----------
    target : Path
        Where results go; made if it does not exist.
    force : bool
        Whether files of the same names may be replaced. Others stay in any case.
    """

    def __init__(self, target: Path, *, force: bool) -> None:
        self.target, self.force = target, force

    def __enter__(self) -> Self:
        if self.target.exists() and not self.target.is_dir():
            raise CommandError(f"--out must name a folder. {str(self.target)!r} is a file; choose another name.")
        self.check_free([MANIFEST])
        with writing(self.target):
            place = self.target if self.target.is_dir() else _existing_parent(self.target)
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
        present = [name for name in names if (self.target / name).exists()]
        if present and not self.force:
            raise CommandError(
                f"The folder {str(self.target)!r} already holds {some(present)}. Name another folder with --out, or "
                "replace the results with --force.",
                Code.EXISTS,
            )

    def commit(self, stale: Iterable[str] = ()) -> None:
        """Move the results into place, the manifest last; ``stale`` are files of the run that is replaced."""
        names = self.names()
        self.check_free(names)
        with writing(self.target):
            if not self.target.exists():
                self.target.parent.mkdir(parents=True, exist_ok=True)
                os.chmod(self._staging, 0o777 & ~_umask())  # mkdtemp makes it private
                os.rename(self._staging, self.target)
                return
            (self.target / MANIFEST).unlink(missing_ok=True)  # from here on the old one would lie
            for name in stale:
                if name not in names:
                    (self.target / name).unlink(missing_ok=True)
            for name in sorted(names, key=lambda name: name == MANIFEST):
                (self.target / name).parent.mkdir(parents=True, exist_ok=True)
                os.replace(self._staging / name, self.target / name)


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


def copy_file(source: Path, target: Path) -> None:
    """Copy a file atomically."""
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(source, "rb") as content:
            write_atomically(target, lambda file: shutil.copyfileobj(content, file))


def _existing_parent(target: Path) -> Path:
    folder = target.absolute().parent
    while not folder.is_dir():
        folder = folder.parent
    return folder


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
