"""Runs that are killed, cut off from power, interrupted and shared: by the tests briefly, by soak.py for long."""

from __future__ import annotations

import errno
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from shapshift import KNNShapley, Valuation
from shapshift.engine import certified, checkpoint, lists, runner, truncated
from shapshift.engine.certified import Coarseness
from shapshift.io import files as _files

N_ROWS, N_VAL = 300, 600
RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(N_ROWS, 3)), RNG.integers(0, 3, size=N_ROWS)
V, T = RNG.normal(size=(N_VAL, 3)), RNG.integers(0, 3, size=N_VAL)
GROUPS = np.arange(N_VAL) % 4
KEPT = ("values", "entropy", "boundary", "level_entropy", "level_values", "level_counts", "group_means", "matrix")


def two_rounds(n_rows: int, limit: float) -> Coarseness:
    """Let few rows be valued by buckets too: with tol=0.3 too few of them at first, and enough in a second round."""
    return Coarseness(40, 20 if limit > 5e-4 else 200)


@contextmanager
def small_blocks(every: int = 5) -> Iterator[None]:
    """150 blocks of four points, in bundles of two, with a state written after every few blocks."""
    with (
        patch.multiple(runner, BLOCK_PAIRS=4 * N_ROWS, BLOCK_POINTS=1),
        patch.object(runner, "LEAST_BUNDLES", 64),
        patch.object(certified, "choose_coarseness", two_rounds),
        patch.object(truncated, "BLOCK_POINTS", 4),
        patch.object(lists, "SAVED_POINTS", 4),
        patch.multiple(checkpoint, EVERY_SECONDS=0.0, WRITING_SHARE=np.inf, LOST_SHARE=0.0),
        patch.object(runner.BlockJob, "save_every", property(lambda job: every)),
    ):
        yield


def small_run(folder: Path | None = None, *, every: int = 5, matrix: bool = False, **settings: Any) -> Valuation:
    model = KNNShapley(progress=False, **settings).fit(X, Y)
    with small_blocks(every):
        return model.value(V, T, groups=GROUPS, matrix=matrix, checkpoint=folder)


def copies_run(folder: Path | None = None, **settings: Any) -> Valuation:
    """Training rows of which many are copies of others."""
    model = KNNShapley(progress=False, **settings).fit(np.repeat(X[:100], 3, axis=0).round(1), Y)
    with small_blocks():
        return model.value(V, T, groups=GROUPS, checkpoint=folder)


def result_bytes(valuation: Valuation) -> dict[str, bytes]:
    kept = {name: getattr(valuation, name) for name in (*KEPT, "error_bound", "standard_error", "group_errors")}
    return {name: array.tobytes() for name, array in kept.items() if array is not None}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != checkpoint.LOCK}


def done_blocks(folder: Path) -> int:
    """How far a checkpoint got."""
    try:
        with np.load(folder / "state-1.npz") as state:
            return int(state["done"]) if "done" in state else int(state["points"]) // 4
    except FileNotFoundError:
        return 0


def in_child(work: Callable[[], None]) -> int:
    """Fork a process that does the work and nothing else; returns its id. There must be no other threads."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    return child


def kill_loop(folder: Path, kills: int, seed: int, longest: float = 1.0) -> dict[str, int]:
    """Kill a checkpointed run at random instants, start it again, and compare what it ends with.

    ``longest`` is the latest instant at first, as a share of how long a whole run takes; it grows with every run that
    is killed before it has done anything, and shrinks with every run that ends.

    Returns
    -------
    dict
        How many kills hit a run at work, how many of those had progress to go on from, and how many runs ended.
    """
    rng = random.Random(seed)
    expected = result_bytes(small_run())
    hit = went_on = completed = 0
    place, result = folder / "checkpoint", folder / "result.npz"
    began = time.perf_counter()
    small_run(folder / "whole")
    longest *= time.perf_counter() - began
    while hit < kills:
        reached = done_blocks(place)
        child = in_child(lambda: small_run(place).save(result))
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            hit += 1
            went_on += reached > 0
            done = done_blocks(place)
            assert done >= reached, "progress was lost"
            longest *= 1.0 if done > reached else 1.25  # on a busy machine a run needs longer than the first one did
            continue
        assert os.WEXITSTATUS(status) == 0, "the run failed after a kill"
        assert result_bytes(Valuation.load(result)) == expected, "other bytes after a kill"
        completed += 1
        longest *= 0.8
        shutil.rmtree(place)
        result.unlink()
    # Whatever the last kill left behind goes on too.
    assert result_bytes(small_run(place)) == expected
    return {"kills": hit, "of runs with progress": went_on, "runs completed": completed + 1}


class Disk:
    """What a folder would hold after a power loss, at every instant of a run.

    Only what was synced is certain. Contents that were not are gone; names that were not are gone (``lose_names``), or
    there already, whatever became of the contents.
    """

    def __init__(self, folder: Path, *, syncs: bool = True) -> None:
        self.folder, self.syncs = folder, syncs
        self.synced: dict[int, bytes] = {}
        self.names: dict[str, int] = {}
        self.states: list[dict[str, bytes]] = []

    @contextmanager
    def recording(self) -> Iterator[None]:
        fsync, replace = os.fsync, os.replace

        def note_sync(handle: int) -> None:
            if not self.syncs:
                return
            fsync(handle)
            path = Path(os.readlink(f"/proc/self/fd/{handle}"))
            if path == self.folder:
                self.names = self._current()
            elif path.is_file():
                self.synced[os.fstat(handle).st_ino] = path.read_bytes()
            self._note()

        def note_replace(old: Any, new: Any) -> None:
            replace(old, new)
            self._note()

        with patch.object(_files.os, "fsync", note_sync), patch.object(_files.os, "replace", note_replace):
            yield

    def _current(self) -> dict[str, int]:
        return {path.name: path.stat().st_ino for path in self.folder.iterdir()} if self.folder.exists() else {}

    def _note(self) -> None:
        for names in (self.names, self._current()):
            state = {name: self.synced.get(inode, b"") for name, inode in names.items()}
            if state not in self.states:
                self.states.append(state)


def power_losses(folder: Path, *, syncs: bool = True, every: int = 5) -> dict[str, int]:
    """Lose power at every instant of a checkpointed run, and go on from what the disk holds."""
    expected = result_bytes(small_run())
    disk = Disk(folder / "checkpoint", syncs=syncs)
    with disk.recording():
        small_run(disk.folder, every=every)
    went_on = 0
    for number, state in enumerate(disk.states):
        place = folder / f"after-{number}"
        place.mkdir()
        for name, content in state.items():
            (place / name).write_bytes(content)
        began = done_blocks(place)
        assert result_bytes(small_run(place, every=1000)) == expected
        went_on += began > 0
        shutil.rmtree(place)
    return {"instants": len(disk.states), "went on": went_on}


# A process with disks of its own: needs no rights, and leaves nothing behind.
ALONE = ("unshare", "--user", "--map-root-user", "--mount")


def can_have_disks() -> bool:
    """Whether the system lets a process have disks of its own."""
    command = [*ALONE, "mount", "-t", "tmpfs", "tmpfs", tempfile.gettempdir()]
    return shutil.which(ALONE[0]) is not None and subprocess.run(command, capture_output=True).returncode == 0


def full_disk(folder: Path) -> dict[str, int]:
    """Run on a disk that has room for a few states only, make it larger, and go on; to be called in ``ALONE``."""
    expected = result_bytes(small_run(matrix=True))
    place, room, stops = folder / "disk", 400, 0
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={room}k", "tmpfs", place], check=True)
    while True:
        try:
            found = result_bytes(small_run(place / "progress", matrix=True))
        except OSError as error:
            if error.errno != errno.ENOSPC or str(place) not in str(error):
                raise
            stops += 1
            room += 400
            subprocess.run(["mount", "-o", f"remount,size={room}k", place], check=True)
        else:
            assert found == expected, "other bytes after the disk was full"
            return {"times full": stops, "kilobytes at last": room}


@contextmanager
def interrupted_after(waves: int) -> Iterator[None]:
    """Stop a run after so many states have been written."""
    save, left = checkpoint.Stage.save, [waves]

    def stop(self: Any, *arguments: Any, **options: Any) -> None:
        save(self, *arguments, **options)
        left[0] -= 1
        if not left[0]:
            raise KeyboardInterrupt

    with suppress(KeyboardInterrupt), patch.object(checkpoint.Stage, "save", stop):
        yield
