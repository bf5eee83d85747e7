"""A results folder that is either complete or absent."""

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

# Parts of a staging folder: new results, replaced results, the list of moves, the path of a page that goes elsewhere,
# and the lock of the process that uses it.
_NEW, _OLD, _JOURNAL, _PAGE, _LOCK = "new", "old", "journal.json", "page.json", "lock"
_STAGING = ".shapshift-"
_COMMIT_LOCK = ".shapshift-commit.lock"


class Folder:
    """Results are written to a hidden folder beside the target (or inside it), and moved into place at the end.

    If the target exists, files move one by one, and the process can be killed between any two. A journal is therefore
    written first; then all replaced files are moved out, and only then the new ones in. Old and new results are never
    mixed. The next command that uses the folder undoes an unfinished commit (:meth:`recover`). The manifest is moved
    out first and moved in last.

    Parameters
    ----------
    target : Path
        Where results go; created if it does not exist.
    force : bool
        Whether files of the same names may be replaced. Other files are always kept.

    Attributes
    ----------
    own : mapping of str to str
        Files, with their sha256, that may be replaced without ``force`` if they are unchanged.
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
        with suppress(OSError), locked(self.target / _COMMIT_LOCK) as alone:  # the folder may be read-only
            if alone:
                self._undo_killed()

    def _undo_killed(self) -> None:
        """Undo the killed commits of other processes; the caller holds the commit lock."""
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
        if not os.path.lexists(self._staging / _JOURNAL):  # otherwise its moves must still be undone
            shutil.rmtree(self._staging, ignore_errors=True)
        if lost:  # this explains any other failure
            raise _lost(self._staging)

    @property
    def _new(self) -> Path:
        return self._staging / _NEW

    def path(self, name: str) -> Path:
        """Temporary path of a result."""
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
        """Raise if an expected result was not written or has vanished."""
        names = self.names()
        # Writers may add endings to a path: a figure is written in two formats.
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
        if name.endswith("/"):  # a folder is taken if a file in it is
            return path.is_dir() and any(self._is_taken(f"{name}{inner}") for inner in sorted(os.listdir(path)))
        return os.path.lexists(path) and not _is_unchanged(path, self.own.get(name))

    def commit(self, stale: Mapping[str, str] | None = None, then: Callable[[], None] = lambda: None) -> None:
        """Move the results into place; on any error, restore the previous state.

        Parameters
        ----------
        stale : mapping of str to str, optional
            Files of the replaced run, with their sha256; those changed since are kept.
        then : callable
            Called after the moves; if it fails, they are undone.
        """
        self.check_whole()
        names = self.names()
        with writing(self.target):
            if not self.target.exists():
                self._make(then)
            else:
                with locked(self.target / _COMMIT_LOCK) as alone:
                    if not alone:
                        raise CommandError(
                            f"Another command is writing to {str(self.target)!r}. Try again when it has finished."
                        )
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
        """Move a result to a hidden file beside a target elsewhere; removed if it is not moved on from there."""
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
            # An undo must be able to see whether the page has moved.
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
                f"{str(path.parent)!r} is a link to another folder, and results stay inside their own. Remove it, or "
                "name another folder with --out.",
                Code.EXISTS,
            )


def _new_staging(place: Path) -> tuple[Path, BinaryIO | None]:
    """Make a staging folder and hold its lock while this process uses it."""
    while True:
        staging = new_name(place, _STAGING)
        staging.mkdir()
        try:
            lock = lock_file(staging / _LOCK)
        except FileNotFoundError:
            continue  # another process took it for an abandoned one
        except OSError:
            lock = None  # a disk without locks; no process can take it for an abandoned one
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
    """Remove a staging folder that no process uses, after undoing its unfinished commit."""
    if staging.is_symlink() or not staging.is_dir():
        return
    try:
        lock = lock_file(staging / _LOCK)
    except OSError:  # of another user, or on a read-only disk
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

    The record of it may be untrusted: only a file with the random part of the staging folder's own name is accepted.
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
    """Restore the results that a commit has moved out; can itself be interrupted and repeated.

    The journal may be untrusted: files outside the folder, and files whose size or time differs from what was moved,
    are not touched.
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
            f"A command was killed while it replaced the results in {str(target)!r}. They cannot be restored from "
            f"{staging.name!r} because of newer files: {some(in_the_way)}. Move these away and repeat the command.",
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
        raise CommandError(
            f"{str(staging / _JOURNAL)!r} names files outside its folder: {some(strange)}. Remove the folder."
        )
    return old, new


def _stays_inside(name: str, staging: Path) -> bool:
    """Whether a file of a journal lies in the folder or in its staging folder."""
    places = [(name, staging.parent), *((f"{part}/{name}", staging) for part in (_NEW, _OLD))]
    return all(name == MANIFEST or is_inside(name, folder, follow=False) for name, folder in places)


def _move(source: Path, target: Path) -> None:
    """Rename a file to a name that is free."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if os.path.lexists(target):
        raise FileExistsError(errno.EEXIST, "a file of that name has appeared", str(target))
    os.rename(source, target)


def _stamp(path: Path) -> list[int]:
    """Size and time of change, which a rename keeps."""
    status = os.lstat(path)
    return [status.st_size, status.st_mtime_ns]


def _sync_folders(folder: Path, inner: Iterable[Path] | None = None) -> None:
    """Make the names in a folder durable, and those in some or all folders inside."""
    for place in (folder, *(inner if inner is not None else (path for path in folder.rglob("*") if path.is_dir()))):
        sync_folder(place)


def _remove_empty(folder: Path, root: Path) -> None:
    """Remove empty folders, up to the root."""
    with suppress(OSError):
        while folder != root:
            folder.rmdir()
            folder = folder.parent


def _lost(staging: Path, what: str = "all of it") -> CommandError:
    return CommandError(
        f"Results were removed from {str(staging)!r} while the command was running: {what}. Repeat the "
        "command, and leave hidden folders of that name alone.",
        Code.CANNOT_WRITE,
    )


@contextmanager
def writing(target: Path) -> Iterator[None]:
    """Report why writing failed."""
    try:
        yield
    except OSError as error:
        said = f"{str(target)!r} cannot be written: {error.strerror or error}. Change its permissions"
        if error.errno in DISK_FULL:
            said = f"The disk is full: {str(target)!r} cannot be written. Free some space"
        raise CommandError(f"{said}, or name another place with --out.", Code.CANNOT_WRITE) from None


@contextmanager
def undisturbed() -> Iterator[None]:
    """Delay Ctrl-C and requests to terminate until the block has ended, so that its work is never half done."""
    if threading.current_thread() is not threading.main_thread():  # no other thread gets signals
        yield
        return
    came: list[int] = []
    heard = {one: signal.getsignal(one) for one in (signal.SIGINT, signal.SIGTERM)}
    usual = {one: handler for one, handler in heard.items() if handler is not None}  # None: not a handler of Python
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
    """Move a file to a name that must be free; never replaces a file, even one made at the same moment."""
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
    """Nearest existing folder above."""
    folder = target.absolute().parent
    while not folder.is_dir():
        folder = folder.parent
    return folder
