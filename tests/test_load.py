"""One fitted model under load: shared by threads, called a thousand times, interrupted."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from load_runs import LOADS, shared_model
from reliability import V
from test_checkpoint import apart

from shapshift.engine.parallel import stream, thread_pool


def test_threads_share_a_fitted_model() -> None:
    found = shared_model(6, 10)
    assert found["kinds of call"] == len(LOADS)


def test_loads_are_what_they_are_called() -> None:
    fit, labels, _ = LOADS["truncated"]
    model = fit()
    found = model.value(V, labels).parameters["exact_ranks"]
    assert 0 < found < model.codes_.size, "too few rows: they were sorted, and exact values put to the test"


@pytest.mark.ci
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_returns_to_its_level_after_many_calls() -> None:
    found = apart("load_runs", "many_calls(500)")
    assert found["resident bytes grown"] < 4_000_000
    assert found["object bytes grown"] < 100_000


@pytest.mark.skipif(sys.platform == "win32", reason="interrupts with a timer")
def test_an_interrupted_call_leaves_the_model_usable(tmp_path: Path) -> None:
    found = apart("load_runs", f"interrupts(10, 0, Path({str(tmp_path)!r}))")
    assert found["calls"] // 10 < found["interrupted"] < found["calls"]


def test_an_interrupt_while_a_thread_starts_is_an_interrupt(monkeypatch: pytest.MonkeyPatch) -> None:
    def start(_: ThreadPoolExecutor) -> None:
        try:
            raise KeyboardInterrupt
        finally:
            threading.Lock().release()  # what Python does there

    monkeypatch.setattr(ThreadPoolExecutor, "_adjust_thread_count", start)
    with pytest.raises(KeyboardInterrupt):
        list(stream(abs, [1, 2, 3], 2))
    with pytest.raises(KeyboardInterrupt), thread_pool(2) as map_in_order:
        map_in_order(abs, [1, 2, 3])


FIRST_CALL = """
import os, signal
from numba.core.dispatcher import Dispatcher
from load_runs import LOADS, V
from shapshift.kernels.rank import rank_values

compile = Dispatcher.compile

def press(self, signature):
    if self is rank_values:
        os.kill(os.getpid(), signal.SIGINT)
    return compile(self, signature)

Dispatcher.compile = press
fit, labels, call = LOADS["exact"]
model = fit()
try:
    call(model, V, labels)
except KeyboardInterrupt:
    print(len(rank_values.signatures), len(call(model, V, labels)) > 0)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="sends itself a signal")
def test_an_interrupt_of_the_first_call_waits_until_its_kernel_is_there() -> None:
    run = subprocess.run([sys.executable, "-c", FIRST_CALL], cwd=Path(__file__).parent, capture_output=True, text=True)
    assert run.stdout == "1 True\n", run.stderr
