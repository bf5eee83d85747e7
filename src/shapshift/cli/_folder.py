"""A folder of results that is either whole or not there."""

import errno
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Self

from shapshift.checks.names import some
from shapshift.cli._errors import DISK_FULL, Code, CommandError
from shapshift.cli._manifest import MANIFEST, digest, is_inside
from shapshift.io.files import hidden_prefix, lock_file, locked, new_name, same_file, sync_folder, write_text, written

# Parts of a staging folder: results that wait, results that they replace, which of them move, where a page waits that
# goes elsewhere, and who is at work.
_NEW, _OLD, _JOURNAL, _PAGE, _LOCK = "new", "old", "journal.json", "page.json", "lock"
_STAGING = ".shapshift-"
_COMMIT_LOCK = ".shapshift-commit.lock"


class Folder:
    """Results are made in a hidden folder beside the target (inside it, if it exists) and moved into place at the end.

    Into a folder that exists, files move one by one, and a kill can come between any two. Therefore a journal is
    written first, all files that are replaced are moved out, and only then the new ones in: old and new results are
    never there together. Whoever uses the folder next undoes what was not finished (:meth:`recover`). The manifest is
    the first to go and the last to come.

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
        self._expected: set[str] = set()
        self._done = False

    def recover(self) -> None:
        """Undo commits that were killed, and remove what killed runs left here."""
        for staging in existing_parent(self.target).glob(f"{_STAGING}*.part"):
            _recover(staging, undo=False)
        if not any(self.target.glob(f"{_STAGING}*")):
            return
        with suppress(OSError), locked(self.target / _COMMIT_LOCK) as alone:  # a folder may be there only to be read
            if alone:
                self._undo_killed()

    def _undo_killed(self) -> None:
        """Undo the commits of others that were killed; only while the lock of commits is held."""
        for staging in self.target.glob(f"{_STAGING}*.part"):
            _recover(staging, undo=True)

    def __enter__(self) -> Self:
        if os.path.lexists(self.target) and not self.target.is_dir():
            raise CommandError(f"--out must name a folder. {str(self.target)!r} is a file; choose another name.")
        self.check_free([MANIFEST])
        with writing(self.target):
            place = self.target if self.target.is_dir() else existing_parent(self.target)
            self._staging, self._lock = _new_staging(place)
        self._made = os.stat(self._new)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        lost = isinstance(error, Exception) and not (self._done or self._is_there())
        if self._lock is not None:
            self._lock.close()
        if not os.path.lexists(self._staging / _JOURNAL):  # else what it says is still to be undone
            shutil.rmtree(self._staging, ignore_errors=True)
        if lost:  # whatever failed, that is why
            raise _lost(self._staging)

    @property
    def _new(self) -> Path:
        return self._staging / _NEW

    def path(self, name: str) -> Path:
        """Where to write a result for now."""
        self._expected.update(self.names(), [name])
        path = self._new / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def names(self) -> list[str]:
        """Everything written so far."""
        if not self._is_there():
            raise _lost(self._staging)
        return sorted(path.relative_to(self._new).as_posix() for path in self._new.rglob("*") if path.is_file())

    def _is_there(self) -> bool:
        try:
            return os.path.samestat(os.stat(self._new), self._made)
        except OSError:
            return False

    def check_whole(self) -> None:
        """Raise if a result that should be there was not written or has vanished."""
        names = self.names()
        # What asked for a place may have added endings: a figure is written in two formats.
        lost = [name for name in self._expected if not any(n == name or n.startswith(f"{name}.") for n in names)]
        if lost:
            raise _lost(self._staging, some(sorted(lost)))

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

    def commit(self, stale: Mapping[str, str] | None = None, then: Callable[[], None] = lambda: None) -> None:
        """Move the results into place; whatever goes wrong, everything is as it was before.

        Parameters
        ----------
        stale : mapping of str to str, optional
            Files of the run that is replaced, with their sha256; those that were changed since are kept.
        then : callable
            What else belongs to the results; they go back if it fails.
        """
        self.check_whole()
        names = self.names()
        with writing(self.target):
            if not self.target.exists():
                self._make(then)
            else:
                with locked(self.target / _COMMIT_LOCK) as alone:
                    if not alone:
                        raise CommandError(f"Another command is writing to {str(self.target)!r}. Repeat this one.")
                    self._undo_killed()
                    self.check_free(names)
                    if not os.path.samefile(self._staging.parent, self.target):  # which was not there before
                        self._staging = self._staging.rename(self.target / self._staging.name)
                    self._replace(names, stale or {}, then)
        self._done = True

    def _make(self, then: Callable[[], None]) -> None:
        """Make the target out of the new results."""
        self.target.parent.mkdir(parents=True, exist_ok=True)
        _sync_folders(self._new)
        os.rename(self._new, self.target)
        try:
            then()
        except BaseException:
            os.rename(self.target, self._new)
            raise
        sync_folder(self.target.parent)

    @contextmanager
    def beside(self, name: str, target: Path) -> Iterator[Path]:
        """Move a result to a hidden file beside a target elsewhere, to be moved there; removed if it is not."""
        source, made = self.path(name), [folder for folder in target.parents if not folder.exists()]
        hidden = target.parent / f"{hidden_prefix(target)}{_token(self._staging)}.part"
        try:
            with writing(target):
                write_text(self._staging / _PAGE, json.dumps(str(hidden.absolute())))
                target.parent.mkdir(parents=True, exist_ok=True)
                with open(source, "rb") as content:
                    written(hidden, lambda file: shutil.copyfileobj(content, file))
            source.unlink()
            self._expected.discard(name)
            yield hidden
        finally:
            # Whoever undoes what a journal says must see whether the page has moved.
            if not os.path.lexists(self._staging / _JOURNAL):
                hidden.unlink(missing_ok=True)
            if not target.exists():
                for folder in made:
                    with suppress(OSError):
                        folder.rmdir()

    def _replace(self, names: list[str], stale: Mapping[str, str], then: Callable[[], None]) -> None:
        """Move old results out and new ones in."""
        gone = [
            name
            for name, expected in stale.items()
            if name not in names and is_inside(name, self.target) and _is_unchanged(self.target / name, expected)
        ]
        old = [name for name in dict.fromkeys([MANIFEST, *names, *gone]) if os.path.lexists(self.target / name)]
        for name in names:
            self._check_place(name)
        journal = {
            "old": {name: _stamp(self.target / name) for name in old},
            "new": {name: _stamp(self._new / name) for name in names},
        }
        _sync_folders(self._new)
        write_text(self._staging / _JOURNAL, json.dumps(journal))
        try:
            for name in old:
                _move(self.target / name, self._staging / _OLD / name)
            for name in sorted(names, key=lambda name: name == MANIFEST):
                _move(self._new / name, self.target / name)
            then()
        except BaseException:
            _undo(self._staging)
            raise
        for name in gone:
            _remove_empty((self.target / name).parent, self.target)
        _sync_folders(self.target, {(self.target / name).parent for name in names})
        os.unlink(self._staging / _JOURNAL)
        sync_folder(self._staging)

    def _check_place(self, name: str) -> None:
        """Refuse to replace a folder by a file, and to follow a link out of the target."""
        path = self.target / name
        if path.is_dir() and not path.is_symlink():
            raise CommandError(f"{str(path)!r} is a folder, and a result has that name. Move it away.", Code.EXISTS)
        if not Path(os.path.realpath(path.parent)).is_relative_to(os.path.realpath(self.target)):
            raise CommandError(
                f"{str(path.parent)!r} is a link to another place, where no result belongs. Remove it, or name another "
                "folder with --out.",
                Code.EXISTS,
            )


def _new_staging(place: Path) -> tuple[Path, BinaryIO | None]:
    """Make a staging folder and hold its lock for as long as this process is at work in it."""
    while True:
        staging = new_name(place, _STAGING)
        staging.mkdir()
        try:
            lock = lock_file(staging / _LOCK)
        except FileNotFoundError:
            continue  # another process took it for one that was left behind
        except OSError:
            lock = None  # a disk without locks; nobody can take it for one that was left behind
        else:
            if lock is None or not same_file(staging / _LOCK, lock):
                continue
        try:
            (staging / _NEW).mkdir()
        except BaseException:
            shutil.rmtree(staging, ignore_errors=True)
            raise
        return staging, lock


def _recover(staging: Path, *, undo: bool) -> None:
    """Remove a staging folder that nobody is at work in, after what it was in the middle of has been undone."""
    if staging.is_symlink() or not staging.is_dir():
        return
    try:
        lock = lock_file(staging / _LOCK)
    except OSError:  # somebody else's, or on a disk that is only to be read
        return
    if lock is None:
        return
    with lock:
        if os.path.lexists(staging / _JOURNAL):
            if not undo:
                return
            with writing(staging.parent):
                if _is_done(staging):
                    os.unlink(staging / _JOURNAL)
                else:
                    _undo(staging)
        if (page := _waiting_page(staging)) is not None:
            with suppress(OSError):
                page.unlink()
    shutil.rmtree(staging, ignore_errors=True)


def _is_done(staging: Path) -> bool:
    """Whether the page has moved to its place, which is the last step of a commit that has one."""
    page, (_, new) = _waiting_page(staging), _read_journal(staging)
    waiting = any(os.path.lexists(staging / _NEW / name) for name in new)
    return page is not None and not (waiting or os.path.lexists(page))


def _waiting_page(staging: Path) -> Path | None:
    """Hidden file of a page that goes elsewhere.

    The record of it may come with a folder from anywhere: only a file that has the random part of the staging folder's
    own name is meant.
    """
    record = staging / _PAGE
    try:
        page = Path(json.loads(record.read_bytes())) if record.is_file() else None
    except (OSError, ValueError, TypeError):
        return None
    named = page is not None and re.fullmatch(r"\..+\.([0-9a-f]{16})\.part", page.name)
    return page if named and named[1] == _token(staging) else None


def _token(staging: Path) -> str:
    """Random part of the name of a staging folder."""
    return staging.name.removeprefix(_STAGING).removesuffix(".part")


def _undo(staging: Path) -> None:
    """Bring the results back that a commit has moved out; can itself be interrupted and repeated.

    The journal may come with a folder from anywhere: nothing outside the folder is touched, and nothing that has
    another size or time than what was moved.
    """
    target, kept = staging.parent, staging / _OLD
    old, new = _read_journal(staging)
    for name, stamp in new.items():
        there = target / name
        moved = not os.path.lexists(staging / _NEW / name) and (name not in old or os.path.lexists(kept / name))
        if moved and os.path.lexists(there) and _stamp(there) == stamp:
            _move(there, staging / _NEW / name)
            _remove_empty(there.parent, target)
    waiting = [name for name in old if os.path.lexists(kept / name)]
    in_the_way = [name for name in waiting if os.path.lexists(target / name)]
    if in_the_way:
        raise CommandError(
            f"A command was killed while it replaced the results in {str(target)!r}. They cannot be brought back from "
            f"{staging.name!r} because of {some(in_the_way)}, which came later. Move that away and repeat the command.",
            Code.EXISTS,
        )
    for name in sorted(waiting, key=lambda name: name == MANIFEST):
        _move(kept / name, target / name)
    _sync_folders(target, {(target / name).parent for name in old})
    os.unlink(staging / _JOURNAL)


def _read_journal(staging: Path) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    try:
        body = json.loads((staging / _JOURNAL).read_bytes())
        old, new = dict(body["old"]), dict(body["new"])
    except (ValueError, KeyError, TypeError) as error:
        raise CommandError(f"{str(staging / _JOURNAL)!r} is damaged ({error}). Move the folder away.") from None
    strange = [name for name in (*old, *new) if not _stays_inside(name, staging)]
    if strange:
        raise CommandError(f"{str(staging / _JOURNAL)!r} names files elsewhere: {some(strange)}. Remove the folder.")
    return old, new


def _stays_inside(name: str, staging: Path) -> bool:
    """Whether a file of a journal, wherever it is at the time, is in the folder or in its staging folder."""
    places = [(name, staging.parent), *((f"{part}/{name}", staging) for part in (_NEW, _OLD))]
    return all(name == MANIFEST or is_inside(name, folder, follow=False) for name, folder in places)


def _move(source: Path, target: Path) -> None:
    """Rename a file to a name that is free."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "a file of that name has appeared", str(target))
    os.rename(source, target)


def _stamp(path: Path) -> list[int]:
    """Size and time of change, which a rename leaves as they are."""
    status = os.lstat(path)
    return [status.st_size, status.st_mtime_ns]


def _sync_folders(folder: Path, inner: Iterable[Path] | None = None) -> None:
    """Make the names in a folder durable, and those in some or all folders inside."""
    for place in (folder, *(inner if inner is not None else (path for path in folder.rglob("*") if path.is_dir()))):
        sync_folder(place)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove folders up to the root as far as nothing is in them."""
    with suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def _lost(staging: Path, what: str = "all of it") -> CommandError:
    return CommandError(
        f"Results were removed from {str(staging)!r} while the command was at work: {what}. Repeat the "
        "command, and leave hidden folders of that name alone.",
        Code.CANNOT_WRITE,
    )


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Say what stands in the way of writing."""
    try:
        yield
    except OSError as error:
        said = f"{str(target)!r} cannot be written: {error.strerror or error}. Change its permissions"
        if error.errno in DISK_FULL:
            said = f"The disk is full: {str(target)!r} cannot be written. Make room"
        raise CommandError(f"{said}, or name another place with --out.", Code.CANNOT_WRITE) from None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Let Ctrl-C and a request to terminate wait: what they find afterwards is done or undone, never half of it."""
    if threading.current_thread() is not threading.main_thread():  # which alone hears them
        yield
        return
    came: list[int] = []
    heard = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    usual = {one: handler for one, handler in heard.items() if handler is not None}  # else it is not Python's
    for one in usual:
        signal.signal(one, lambda number, _: came.append(number))
    try:
        yield
    finally:
        for one, handler in usual.items():
            signal.signal(one, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def move_new(source: Path, target: Path) -> None:
    """Move a file to a name that must be free, also at this very instant."""
    try:
        os.link(source, target)
    except FileExistsError:
        raise
    except OSError:  # a disk without hard links
        os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY))
        try:
            os.replace(source, target)
        except BaseException:
            os.unlink(target)
            raise
    else:
        os.unlink(source)


def _is_unchanged(path: Path, expected: str | None) -> bool:
    return expected is not None and path.is_file() and digest(path) == expected


def existing_parent(target: Path) -> Path:
    """Nearest folder above that is there."""
    folder = target.absolute().parent
    while not folder.is_dir():
        folder = folder.parent
    return folder
