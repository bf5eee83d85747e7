"""Runs that are killed, cut off from power, interrupted and shared: by the tests briefly, by soak.py for long."""

from __future__ import annotations

import gc
import os
import random
import resource
import shutil
import signal
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from shapshift import KNNShapley, Valuation, _files, checkpoint, running, tasks

N_ROWS, N_VAL = 300, 600
RNG = np.random.default_rng(7)
X, Y = RNG.normal(size=(N_ROWS, 3)), RNG.integers(0, 3, size=N_ROWS)
V, T = RNG.normal(size=(N_VAL, 3)), RNG.integers(0, 3, size=N_VAL)
GROUPS = np.arange(N_VAL) % 4
KEPT = ("values", "entropy", "boundary", "level_entropy", "level_values", "level_counts", "group_means", "matrix")


@contextmanager
def small_blocks(every: int = 5) -> Iterator[None]:
    """150 blocks of four points, in bundles of two, with a state written after every few blocks."""
    with (
        patch.multiple(tasks, BLOCK_PAIRS=4 * N_ROWS, BLOCK_POINTS=1),
        patch.multiple(checkpoint, EVERY_SECONDS=0.0, WRITING_SHARE=np.inf, LOST_SHARE=0.0),
        patch.object(running, "CHECKPOINT_WAVE", every),
    ):
        yield


def small_run(folder: Path | None = None, *, every: int = 5, matrix: bool = False, **settings: Any) -> Valuation:
    model = KNNShapley(progress=False, **settings).fit(X, Y)
    with small_blocks(every):
        return model.value(V, T, groups=GROUPS, matrix=matrix, checkpoint=folder)


def result_bytes(valuation: Valuation) -> dict[str, bytes]:
    kept = {name: getattr(valuation, name) for name in (*KEPT, "error_bound")}
    return {name: array.tobytes() for name, array in kept.items() if array is not None}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.name != checkpoint.LOCK}


def done_blocks(folder: Path) -> int:
    """How far a checkpoint got."""
    try:
        with np.load(folder / "state-1.npz") as state:
            return int(state["done"])
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


def kill_loop(folder: Path, kills: int, seed: int, longest: float = 0.3) -> dict[str, int]:
    """Kill a checkpointed run at random instants, start it again, and compare what it ends with.

    Returns
    -------
    dict
        How many kills hit a run at work, and how many runs were completed.
    """
    rng = random.Random(seed)
    expected = result_bytes(small_run())
    hit = completed = 0
    place, result = folder / "checkpoint", folder / "result.npz"
    while hit < kills:
        child = in_child(lambda: small_run(place, every=2).save(result))
        time.sleep(rng.uniform(0, longest))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            hit += 1
            continue
        assert os.WEXITSTATUS(status) == 0, "the run failed after a kill"
        assert result_bytes(Valuation.load(result)) == expected, "other bytes after a kill"
        completed += 1
        shutil.rmtree(place)
        result.unlink()
    # Whatever the last kill left behind goes on too.
    assert result_bytes(small_run(place)) == expected
    return {"kills": hit, "runs": completed + 1}


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


def interrupts(times: int, seed: int, folder: Path) -> dict[str, int]:
    """Press Ctrl-C at random instants of a call; the model must go on as if nothing had happened."""
    rng = random.Random(seed)
    models = [KNNShapley(n_jobs=n_jobs, progress=False).fit(X, Y) for n_jobs in (1, 2)]
    expected = result_bytes(small_run())

    def interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    stopped = 0
    try:
        for number in range(times):
            model = models[number % 2]
            place = folder / "interrupted" if number % 3 == 0 else None
            began = time.perf_counter()
            with suppress(KeyboardInterrupt), small_blocks():
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(0.0002, 0.02 if place is None else 0.15))
                    model.value(V, T, groups=GROUPS, checkpoint=place)
                except KeyboardInterrupt:
                    stopped += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            assert time.perf_counter() - began < 60, "an interrupted call did not return"
            if number % 10 == 0:
                with small_blocks():
                    assert result_bytes(model.value(V, T, groups=GROUPS)) == expected
    finally:
        signal.signal(signal.SIGALRM, before)
    for model in models:
        with small_blocks():
            assert result_bytes(model.value(V, T, groups=GROUPS, checkpoint=folder / "interrupted")) == expected
    return {"calls": times, "interrupted": stopped}


def shared_model(n_threads: int, calls: int) -> dict[str, int]:
    """Value from many threads at once with one fitted model."""
    sets = [(V[i::7], T[i::7], GROUPS[i::7]) for i in range(7)]
    for settings in ({"n_jobs": 1}, {"n_jobs": 2}, {"method": "certified", "tol": 0.3}):
        model = KNNShapley(progress=False, **settings).fit(X, Y)
        alone = KNNShapley(progress=False, **settings).fit(X, Y)
        expected = [result_bytes(alone.value(points, labels, groups=names)) for points, labels, names in sets]
        wrong: list[Any] = []

        def work(first: int, model: Any = model, expected: Any = expected, wrong: list[Any] = wrong) -> None:
            try:
                for number in range(first, first + calls):
                    points, labels, names = sets[number % len(sets)]
                    if result_bytes(model.value(points, labels, groups=names)) != expected[number % len(sets)]:
                        wrong.append(number)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(n_threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong, wrong
    return {"threads": n_threads, "calls": 3 * n_threads * calls}


def resident() -> int:
    """Bytes of memory that this process holds."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def many_calls(calls: int) -> dict[str, int]:
    """Call value again and again; returns by how many bytes memory has grown since the first fifth."""
    model = KNNShapley(n_jobs=2, progress=False).fit(X, Y)

    def call(number: int) -> None:
        model.value(V[: 50 + number % 50], T[: 50 + number % 50], groups=GROUPS[: 50 + number % 50])

    for number in range(calls // 5):
        call(number)
    gc.collect()
    before = resident()
    for number in range(calls):
        call(number)
    gc.collect()
    grown = resident() - before
    tracemalloc.start()
    for number in range(calls // 20):
        call(number)
    gc.collect()
    traced = tracemalloc.get_traced_memory()[0]
    for number in range(calls // 5):
        call(number)
    gc.collect()
    objects = tracemalloc.get_traced_memory()[0] - traced
    tracemalloc.stop()
    return {"calls": calls, "resident bytes grown": grown, "object bytes grown": objects}


def fuzz(content: bytes, trials: int, rng: random.Random) -> Iterator[bytes]:
    """Damage a file: one bit, a few bits, a stretch, the end, or its whole content."""
    for number in range(trials):
        damaged = bytearray(content)
        kind = number % 5
        if kind in (0, 1):
            for _ in range(1 if kind == 0 else rng.randint(2, 20)):
                damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
        elif kind == 2:
            del damaged[rng.randrange(len(damaged)) :]
        elif kind == 3:
            first = rng.randrange(len(damaged))
            stretch = rng.randint(1, 64)
            damaged[first : first + stretch] = rng.randbytes(len(damaged[first : first + stretch]))
        else:
            first = rng.randrange(len(damaged))
            del damaged[first : first + rng.randint(1, 64)]
        if bytes(damaged) != content:
            yield bytes(damaged)


def fuzz_checkpoint(folder: Path, trials: int, seed: int) -> dict[str, int]:
    """Damage every file of a checkpoint: it is refused and left alone, or was not damaged where it matters."""
    rng = random.Random(seed)
    expected = result_bytes(small_run())
    place = folder / "checkpoint"
    with interrupted_after(3):
        small_run(place, every=25)
    good = contents(place)
    assert 0 < done_blocks(place) < 150
    refused = harmless = 0
    for name, content in good.items():
        for damaged in fuzz(content, trials, rng):
            _lay_out(place, {**good, name: damaged})
            try:
                found = result_bytes(small_run(place, every=1000))
            except ValueError as error:
                _must_name(place, error)
                assert contents(place) == {**good, name: damaged}, "a refused checkpoint was changed"
                refused += 1
            else:
                assert found == expected, f"damage in {name} was not seen"
                harmless += 1
    return {"damaged": refused + harmless, "refused": refused, "harmless": harmless}


def _must_name(path: Path, error: ValueError) -> None:
    if str(path) not in str(error):
        raise AssertionError(f"the message does not name {path}") from error


def _lay_out(place: Path, files: dict[str, bytes]) -> None:
    for path in place.iterdir():
        if path.name not in files and path.name != checkpoint.LOCK:
            path.unlink()
    for name, content in files.items():
        (place / name).write_bytes(content)


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


def fuzz_results(folder: Path, trials: int, seed: int) -> dict[str, int]:
    """Damage a saved result: it is refused, or loads as what it was."""
    rng = random.Random(seed)
    path = folder / "result.npz"
    valuation = small_run(matrix=True)
    valuation.save(path)
    content, expected = path.read_bytes(), (result_bytes(valuation), dict(valuation.parameters), valuation.group_names)
    refused = harmless = 0
    for damaged in fuzz(content, trials, rng):
        path.write_bytes(damaged)
        try:
            loaded = Valuation.load(path)
        except ValueError as error:
            _must_name(path, error)
            refused += 1
        else:
            assert (result_bytes(loaded), dict(loaded.parameters), loaded.group_names) == expected
            harmless += 1
    return {"damaged": refused + harmless, "refused": refused, "harmless": harmless}
