"""The same bytes on a Dask and on a Ray cluster, also when its workers are killed."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cluster_runs import own_processes
from reliability import result_bytes, small_run

from shapshift import KNNShapley
from shapshift.engine import clusters as _clusters
from shapshift.engine import runner as engine
from shapshift.engine.clusters import connected, in_order
from shapshift.engine.parallel import is_cluster_active
from shapshift.engine.rows.distances import index_rows, tile_filler

TESTS = Path(__file__).parent
MODULES = {"dask": "distributed", "ray": "ray"}


@pytest.mark.ci
@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_leaves_the_same_bytes(kind: str) -> None:
    if find_spec(MODULES[kind]) is None:
        pytest.skip(f"{MODULES[kind]} is not installed: pip install 'shapshift[{kind}]'")
    # In a session of its own, so that nothing of it can be left behind.
    process = subprocess.Popen(
        [sys.executable, str(TESTS / "cluster_runs.py"), kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, error = process.communicate(timeout=900)
        left = left_behind(process.pid)
    finally:
        for pid in (process.pid, *(pid for pid, _ in own_processes(process.pid))):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    assert process.returncode == 0, error
    assert not left, f"processes left behind: {left}"
    report = json.loads(next(line for line in out.splitlines() if line.startswith("{")))
    assert len(report["same bytes"]) == 12
    assert len(report["threads of this machine"]) == (7 if kind == "dask" else 6)
    assert "2 of 2" in report["all workers killed"] or kind == "ray"


def left_behind(session: int) -> list[str]:
    """Name the processes of a session that do not end by themselves."""
    for _ in range(60):
        left = [name for _, name in own_processes(session)]
        if not left:
            break
        time.sleep(0.5)
    return left


class Pretended:
    """A cluster in this process, whose workers die when they are told to."""

    def __init__(self, workers: int = 2, dies: Callable[[Any], bool] = lambda item: False) -> None:
        self.workers, self.ahead = workers, 2 * workers
        self._dies = dies
        self.placed = self.most = 0
        self._waiting: dict[Any, tuple[Any, Any, Any]] = {}

    def place(self, thing: Any) -> Any:
        self.placed += 1
        return pickle.loads(pickle.dumps(thing))

    def submit(self, function: Any, placed: Any, item: Any) -> Any:
        handle = object()
        self._waiting[handle] = function, placed, item
        self.most = max(self.most, len(self._waiting))
        return handle

    def wait(self, handles: list[Any]) -> set[Any]:
        return {handles[-1]}  # the last one first

    def get(self, handle: Any) -> Any:
        function, placed, item = self._waiting.pop(handle)
        if self._dies(item):
            raise ConnectionError("gone")
        return function(placed, item)

    def drop(self, handles: list[Any]) -> None:
        for handle in handles:
            self._waiting.pop(handle, None)

    def is_lost(self, error: BaseException) -> bool:
        return isinstance(error, ConnectionError)


def test_results_come_in_order_and_few_wait() -> None:
    cluster = Pretended()
    assert list(in_order(cluster, pow, 2, range(1, 30), 5)) == [2**n for n in range(1, 30)]
    assert cluster.most <= 5
    assert cluster.placed == 1
    assert list(in_order(Pretended(), pow, 2, [], 5)) == []


def test_what_is_lost_is_asked_for_again() -> None:
    deaths = deque([4, 9, 9, 9, 20])

    def dies(item: int) -> bool:
        return bool(deaths) and item == deaths[0] and deaths.popleft() == item

    cluster = Pretended(dies=dies)
    assert list(in_order(cluster, pow, 2, range(1, 30), 5)) == [2**n for n in range(1, 30)]
    assert not deaths
    assert cluster.placed == 6


def test_work_that_always_loses_its_worker_is_an_error() -> None:
    cluster = Pretended(dies=lambda item: item == 3)
    found = in_order(cluster, pow, 2, range(1, 30), 5)
    with pytest.raises(ConnectionError):
        list(found)
    assert cluster.placed == _clusters.ATTEMPTS + 1
    assert not cluster._waiting


def test_an_error_of_the_work_itself_is_not_repeated() -> None:
    cluster = Pretended()
    with pytest.raises(ZeroDivisionError):
        list(in_order(cluster, pow, 0, [1, 2, -1, 3], 5))
    assert cluster.placed == 1
    assert not cluster._waiting


def test_stopping_early_forgets_what_is_under_way() -> None:
    cluster = Pretended()
    found = in_order(cluster, pow, 2, range(1, 30), 5)
    assert next(found) == 2
    found.close()
    assert not cluster._waiting


@pytest.mark.parametrize("slots", [1, 3, 8])
def test_n_jobs_counts_as_in_joblib(slots: int) -> None:
    counts = [_clusters._count(n, slots) for n in (None, 1, 2, -1, -2, -100)]
    assert counts == [slots, 1, 2, slots, max(slots - 1, 1), 1]


class ReadOnly(Pretended):
    """A cluster that hands out arrays as Ray does: from a memory that all processes of a machine share."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: dict[object, Any] = {}
        self.arrays: list[np.ndarray] = []

    def place(self, thing: Any) -> Any:
        buffers: list[Any] = []
        content = pickle.dumps(thing, protocol=5, buffer_callback=buffers.append)
        shared = [memoryview(bytes(buffer.raw())) for buffer in buffers]
        placed = pickle.loads(content, buffers=shared)
        self.arrays += [placed.task.codes, placed.task.targets]
        return placed

    def submit(self, function: Any, placed: Any, item: Any) -> Any:
        handle = object()
        self.tasks[handle] = (function, placed, item)
        return handle

    def get(self, handle: Any) -> Any:
        function, placed, item = self.tasks[handle]
        return function(placed, item)

    def drop(self, handles: list[Any]) -> None:
        pass


def test_shared_memory_is_only_read(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    model = KNNShapley(progress=False).fit(rng.normal(size=(50, 3)), np.arange(50) % 3)
    points, labels = rng.normal(size=(20, 3)), np.arange(20) % 3
    want, cluster = model.value(points, labels), ReadOnly()
    monkeypatch.setattr(engine, "active_cluster", lambda _: cluster)
    np.testing.assert_array_equal(model.value(points, labels).values, want.values)
    assert len(cluster.arrays) == 2
    assert not any(array.flags.writeable for array in cluster.arrays)


def test_a_filler_travels() -> None:
    index = index_rows(np.arange(12.0).reshape(6, 2), "manhattan")
    here, there = np.empty((2, 6)), np.empty((2, 6))
    fill = tile_filler(index, np.ones((3, 2)))
    fill(slice(1, 3), slice(0, 6), here)
    pickle.loads(pickle.dumps(fill))(slice(1, 3), slice(0, 6), there)
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("address", ["", "dask", "dask://", "spark://host:1", "ray//host", "LOCAL"])
def test_an_address_of_another_kind_is_refused(address: str) -> None:
    with pytest.raises(ValueError, match=r"'local', 'dask://host:port' or 'ray://host:port'. Got"), connected(address):
        pass


def test_local_is_here() -> None:
    with connected("local"):
        assert _clusters.active_cluster(None) is None
        assert not is_cluster_active()


@pytest.mark.parametrize("kind", ["dask", "ray"])
def test_a_cluster_that_is_not_installed_says_how_to(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULES[kind], None)
    with pytest.raises(ImportError, match=rf"pip install 'shapshift\[{kind}\]'"), connected(f"{kind}://127.0.0.1:1"):
        pass


def test_other_backends_of_joblib_mean_threads() -> None:
    import joblib

    expected = result_bytes(small_run())
    for backend in ("loky", "threading", "sequential"):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            assert result_bytes(small_run()) == expected
