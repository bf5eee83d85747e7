"""Checkpoints: progress on disk, from which a killed run resumes.

A checkpoint is a folder. ``checkpoint.json`` identifies its run. ``state-1.npz`` holds the sums so far; it is replaced
as a whole, so there is always one valid state. Files such as ``points-1-0-512.npz`` hold the results of single
validation points; each is written once, before the state that refers to it. Every file is written under another name,
made durable, renamed, and the folder made durable. A method with several rounds has a state for each. The process of
the run holds ``lock``; the system releases it when that process ends for any reason.

Sums are added up in a fixed order, and a state records its position in it. So a resumed run gives the same bytes as an
uninterrupted one.
"""

import errno
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np
from scipy import sparse

from shapshift.checks.inputs import ROW_TYPES
from shapshift.engine.rows.file import RowFile
from shapshift.exceptions import InputError
from shapshift.io.archive import Arrays, read_archive, write_archive
from shapshift.io.files import lock_file, sync_folder, write_text

KIND = "shapshift.checkpoint"
FORMAT_VERSION = 1
MARKER, LOCK = "checkpoint.json", "lock"
# A state is written if at least this many seconds have passed since the last one. The interval grows with the time that
# writing takes and with the length of the run: writing takes at most a twentieth of the time, and a crash loses at most
# a hundredth of the run beyond the first second.
EVERY_SECONDS = 1.0
WRITING_SHARE = 1 / 20
LOST_SHARE = 1 / 100


def seconds_between_saves(took: float, running: float) -> float:
    """Return the seconds to wait after a state was written in ``took`` seconds, in a run of ``running`` seconds.

    Examples
    --------
    >>> seconds_between_saves(0.01, 5.0), seconds_between_saves(0.5, 5.0), seconds_between_saves(0.01, 3600.0)
    (1.0, 10.0, 36.0)
    """
    return max(EVERY_SECONDS, took / WRITING_SHARE, LOST_SHARE * running)


class Totals(Protocol):
    """Sums that can be saved."""

    done: int

    def state(self) -> Arrays:
        """Everything needed to resume."""

    def restore(self, arrays: Arrays) -> None:
        """Resume from a state."""


class Points(Protocol):
    """Results of single points."""

    def __getitem__(self, here: slice) -> Any: ...
    def put(self, here: slice, found: Any) -> None:
        """Store the results of a slice of the points."""


class Checkpoint:
    """A folder that holds the progress of one run.

    Parameters
    ----------
    folder : path-like
        Created if it does not exist.
    run : dict of str
        Identity of the run: a short text for each property that must agree for its progress to be used.

    Raises
    ------
    ValueError
        If the folder holds something else, another run, or damaged files, or if another process is using it. The folder
        is then left unchanged.
    """

    def __init__(self, folder: str | os.PathLike[str], run: dict[str, str]) -> None:
        self.folder = Path(os.path.abspath(folder))
        self.run = run
        self.digest = hashlib.blake2b(json.dumps(run, sort_keys=True).encode(), digest_size=16).hexdigest()
        self._stages = 0
        self._lock: Any = None

    def __enter__(self) -> Self:
        self._check_place()
        with self.writing():
            for missing in reversed([path for path in (self.folder, *self.folder.parents) if not path.exists()]):
                missing.mkdir(exist_ok=True)
                sync_folder(missing.parent)
            self._lock = lock_file(self.folder / LOCK)
        if self._lock is None:
            raise InputError(
                f"The 'checkpoint' folder {str(self.folder)!r} is in use by another process. Wait "
                "for it to end, or name another folder."
            )
        try:
            self._open()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def _check_place(self) -> None:
        """Refuse a folder of other files before writing a lock to it."""
        if os.path.lexists(self.folder) and not self.folder.is_dir():
            raise InputError(
                f"The 'checkpoint' parameter must name a folder. {str(self.folder)!r} is a file; name another."
            )
        held = [] if not self.folder.exists() else sorted(path.name for path in self.folder.iterdir())
        strange = [name for name in held if name != LOCK and not _is_leftover(name)]
        if strange and MARKER not in held:
            raise self.refused(
                f"it holds other files ({strange[0]!r}) and no {MARKER!r}", "Name an empty or new folder"
            )

    def _open(self) -> None:
        path = self.folder / MARKER
        if not os.path.lexists(path):
            whole = {"format": KIND, "version": FORMAT_VERSION, "release": version("shapshift"), "run": self.run}
            with self.writing():
                write_text(path, json.dumps(whole, indent=1))
            return
        try:
            found = json.loads(path.read_bytes())
            kind, number, release, run = (found[key] for key in ("format", "version", "release", "run"))
            differing = [name.replace("_", " ") for name in {**self.run, **run} if run.get(name) != self.run.get(name)]
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise self.damaged(MARKER, error) from error
        if kind != KIND:
            raise self.refused(f"it says that it holds a {kind}", "Name another folder")
        if number != FORMAT_VERSION:
            raise self.refused(
                f"it has format version {number}, this release reads version {FORMAT_VERSION}",
                "Finish the run with the release that began it, or name another folder",
            )
        if release != version("shapshift"):
            raise self.refused(
                f"release {release} began it, this is {version('shapshift')}, and values may differ in their last bits",
                "Finish the run with the release that began it, or name another folder",
            )
        if differing:
            raise self.refused(
                f"it belongs to a run with other {', '.join(differing)}",
                "Repeat the call that began it, or name another folder",
            )
        for entry in self.folder.iterdir():  # left by a process killed while writing
            if _is_leftover(entry.name):
                with suppress(OSError):
                    entry.unlink()

    def next_stage(self) -> "Stage":
        """Return the progress of the next round."""
        self._stages += 1
        return Stage(self, self._stages)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Turn system errors such as a full disk into an error that names the folder."""
        try:
            yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            advice = "Make room" if full else "Make it writable"
            raise OSError(
                error.errno,
                f"The 'checkpoint' folder {str(self.folder)!r} cannot be written ({error.strerror or error}). Earlier "
                f"progress is intact. {advice} and repeat the call: it resumes from there",
            ) from error

    def refused(self, why: str, advice: str) -> InputError:
        """Return the error for a folder that cannot be used."""
        return InputError(
            f"The 'checkpoint' folder {str(self.folder)!r} cannot be used: {why}. {advice}. Nothing in it was changed."
        )

    def damaged(self, name: str, why: object) -> InputError:
        """Return the error for a damaged file."""
        return self.refused(
            f"its file {name!r} is damaged ({why})", "Restore it from a copy, or name another folder to begin again"
        )


class Stage:
    """Progress of one round of a run."""

    def __init__(self, checkpoint: Checkpoint, number: int) -> None:
        self._checkpoint, self._number = checkpoint, number
        self._state = checkpoint.folder / f"state-{number}.npz"
        self._segments: list[list[int]] = []  # first and last point of each file of points
        self._saved = 0
        self._began = self._last = time.monotonic()
        self._took = 0.0

    def restore(self, totals: Totals, points: Points) -> None:
        """Resume from saved progress; change nothing if there is none."""
        if not self._state.exists():
            return
        header, arrays = self._read(self._state.name)
        try:
            totals.restore(arrays)
            self._saved = totals.done
            self._segments = [[int(first), int(last)] for first, last in header["segments"]]
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise self._checkpoint.damaged(self._state.name, error) from error
        reached = 0
        for first, last in self._segments:
            name = self._points_name(first, last)
            _, found = self._read(name)
            try:
                if first != reached:
                    raise InputError(f"it begins at point {first} instead of {reached}")
                if any(array.shape[0] != last - first for array in found.values()):
                    raise InputError("its arrays are of another length")
                points.put(slice(first, last), found)
            except (KeyError, ValueError) as error:
                raise self._checkpoint.damaged(name, error) from error
            reached = last
        self._forget_rest()

    def save(self, totals: Totals, points: Points, n_points: int, *, last: bool = False) -> None:
        """Save progress if it is time.

        Parameters
        ----------
        totals, points
            Present progress.
        n_points : int
            Number of finished points, which are the first ones.
        last : bool
            Write regardless of the time.
        """
        now = time.monotonic()
        pause = seconds_between_saves(self._took, now - self._began)
        if totals.done == self._saved or not (last or now - self._last >= pause):
            return
        first = self._segments[-1][1] if self._segments else 0
        segments = [*self._segments, [first, n_points]]
        with self._checkpoint.writing():
            self._write(self._points_name(first, n_points), {}, points[slice(first, n_points)].arrays())
            self._write(self._state.name, {"segments": segments}, totals.state())
        self._segments, self._saved, self._last = segments, totals.done, time.monotonic()
        self._took = self._last - now

    def _points_name(self, first: int, last: int) -> str:
        return f"points-{self._number}-{first}-{last}.npz"

    def _write(self, name: str, header: dict[str, Any], arrays: Arrays) -> None:
        own = {"run": self._checkpoint.digest, "file": name}
        write_archive(self._checkpoint.folder / name, KIND, FORMAT_VERSION, own | header, arrays)

    def _read(self, name: str) -> tuple[dict[str, Any], Arrays]:
        try:
            header, arrays = read_archive(self._checkpoint.folder / name, KIND, FORMAT_VERSION)
        except ValueError as error:
            cause = error.__cause__
            raise self._checkpoint.damaged(name, "it is not there" if cause is None else cause) from error
        if header.get("run") != self._checkpoint.digest or header.get("file") != name:
            raise self._checkpoint.damaged(name, "it was written by another run or under another name")
        return header, arrays

    def _forget_rest(self) -> None:
        """Remove files of points whose state was never written."""
        wanted = {self._points_name(*segment) for segment in self._segments}
        for path in self._checkpoint.folder.glob(f"points-{self._number}-*.npz"):
            if path.name not in wanted:
                with suppress(OSError):
                    path.unlink()


def digest_arrays(points: Any) -> str:
    """Hash an array or the parts of a sparse one."""
    digest = hashlib.blake2b(digest_size=16)
    parts = (points.data, points.indices, points.indptr) if sparse.issparse(points) else (points,)
    for array in parts:
        # Features are hashed as float64, as for rows read from a file.
        features = isinstance(array, RowFile) or array.dtype.name in ROW_TYPES
        kind = "<f8" if features else array.dtype.str
        digest.update(repr((kind, array.shape)).encode())
        for first in range(0, array.shape[0], 4096):  # a copy of all rows would exceed the memory budget
            part = array[first : first + 4096]
            digest.update(np.ascontiguousarray(part, dtype=kind).data)
    return digest.hexdigest()


def _is_leftover(name: str) -> bool:
    return name.startswith(".") and name.endswith(".part")
