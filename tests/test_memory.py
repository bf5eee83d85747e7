"""Peak memory stays within max_memory, measured from outside in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from shapshift import KNNShapley
from shapshift.certified import Coarseness
from shapshift.engine import EXACT, Method, Task, block_points, run_task
from shapshift.rowfile import READING_BYTES

N_ROWS, N_VAL = 200_000, 200
BUDGET = 100_000_000
# Beside what the budget bounds: the validation set itself, its checks, allocator slack, thread stacks.
SLACK = 8_000_000

MEASURE = f"""
import json
import sys

import numpy as np

from shapshift import KNNShapley, truncated
from shapshift.kernels.nearest import likely_limits


def peak() -> int:
    for line in open("/proc/self/status"):
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise LookupError("VmHWM")


def forget_peak() -> int:
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak()


options = json.loads(sys.argv[1])
rng = np.random.default_rng(0)
n, m, d, n_classes, n_groups = options.pop("shape", ({N_ROWS}, {N_VAL}, 8, 3, 0))
n_groups = 2 if options.pop("groups", False) else n_groups
y, y_val = rng.integers(0, n_classes, size=n), rng.integers(0, n_classes, size=m)
y[:n_classes] = range(n_classes)
groups = np.arange(m) % n_groups if n_groups else None
if options.get("metric") == "precomputed":
    X, X_val, few = None, rng.random(size=(m, n), dtype=np.float32), rng.random(size=(3, 50), dtype=np.float32)
else:
    X, X_val = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    few = X_val[:3]
model = KNNShapley(progress=False, **options).fit(X, y)
small = KNNShapley(progress=False, **options).fit(None if X is None else np.resize(X, (50, d)), np.resize(y, 50))
sort_share, truncated.SORT_SHARE = truncated.SORT_SHARE, 1.0  # so that few rows take the same way as many
small.value(few, np.resize(y, 3), groups=None if groups is None else groups[:3])  # loads the compiled code
truncated.SORT_SHARE = sort_share
likely_limits(np.ones((3, 64)), 200, 5, np.full(3, np.inf))  # few rows do without; compiling it would count as memory
before = forget_peak()
found = model.value(X_val, y_val, groups=groups)
print(peak() - before)
"""


def peak_growth(**options: object) -> int:
    if sys.platform != "linux":
        pytest.skip("peak memory is read from /proc, which only Linux has")
    run = subprocess.run([sys.executable, "-c", MEASURE, json.dumps(options)], capture_output=True, text=True)
    if "PermissionError" in run.stderr or "clear_refs" in run.stderr:
        pytest.skip("this system does not let a process reset its peak memory")
    assert run.returncode == 0, run.stderr
    return int(run.stdout)


@pytest.mark.parametrize("groups", [False, True])
@pytest.mark.parametrize("n_jobs", [1, 4])
def test_peak_memory_is_within_the_budget(groups: bool, n_jobs: int) -> None:
    growth = peak_growth(max_memory=BUDGET, n_jobs=n_jobs, groups=groups)
    assert growth <= BUDGET + SLACK


@pytest.mark.parametrize(
    ("shape", "budget", "options"),
    [
        ((200_000, 200, 8, 3, 60), 220_000_000, {"n_jobs": 2}),  # many groups
        ((20, 1_000_000, 2, 10, 0), 120_000_000, {"n_jobs": 2}),  # many points
        ((1_000, 100_000, 100, 2, 0), 50_000_000, {"n_jobs": 1}),  # wide points: no second copy of them
        ((50_000, 1_000, 0, 2, 0), 50_000_000, {"n_jobs": 2, "metric": "precomputed"}),  # float32 distances
        ((200_000, 200, 8, 3, 2), 40_000_000, {"n_jobs": 2, "method": "truncated"}),
    ],
    ids=["groups", "points", "wide", "precomputed", "truncated"],
)
def test_peak_memory_is_within_the_budget_whatever_the_shape(
    shape: tuple[int, ...], budget: int, options: dict[str, object]
) -> None:
    # Again, if need be: the compiler takes memory of its own where it has to compile what small data did not need.
    assert any(peak_growth(shape=shape, max_memory=budget, **options) <= budget + SLACK for _ in range(2))


def test_the_measurement_sees_memory() -> None:
    # A budget of a third must show, or the measurement measures nothing.
    tight = peak_growth(max_memory="40MB", n_jobs=4, groups=False)
    wide = peak_growth(max_memory="1GB", n_jobs=4, groups=False)
    assert tight <= 40_000_000 + SLACK
    assert wide > 60_000_000


def test_memory_without_a_budget_is_never_n_times_m() -> None:
    assert peak_growth(n_jobs=2, groups=True) < 8 * N_ROWS * N_VAL


def test_the_matrix_counts_towards_the_budget() -> None:
    rng = np.random.default_rng(0)
    model = KNNShapley(max_memory="20MB").fit(rng.normal(size=(5_000, 2)), rng.integers(0, 2, size=5_000))
    X_val, y_val = rng.normal(size=(1_000, 2)), rng.integers(0, 2, size=1_000)
    assert model.value(X_val, y_val).matrix is None
    with pytest.raises(ValueError, match=r"max_memory.*matrix"):
        model.value(X_val, y_val, matrix=True)


def test_groups_count_towards_the_budget() -> None:
    rng = np.random.default_rng(0)
    model = KNNShapley(max_memory="20MB").fit(rng.normal(size=(5_000, 2)), rng.integers(0, 2, size=5_000))
    X_val, y_val = rng.normal(size=(1_000, 2)), rng.integers(0, 2, size=1_000)
    with pytest.raises(ValueError, match=r"max_memory.*1000 groups"):
        model.value(X_val, y_val, groups=range(1_000))


def held(thing: Any) -> int:
    """Bytes of the arrays that a worker, or a tuple of it, holds."""
    if isinstance(thing, np.ndarray):
        return int(thing.nbytes)
    if isinstance(thing, tuple):
        return sum(map(held, thing))
    return sum(held(part) for part in vars(thing).values() if isinstance(part, (np.ndarray, tuple)))


@pytest.mark.parametrize("case", ["exact", "certified", "exact, rows in a file"])
def test_the_plan_knows_what_a_worker_holds(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30_000, 2)), rng.integers(0, 2, 30_000)
    given: list[tuple[Task, Method]] = []

    def note(task: Task, *, method: Method = EXACT, **options: Any) -> Any:
        given.append((task, method))
        return run_task(task, method=method, **options)

    monkeypatch.setattr("shapshift.estimators.run_task", note)
    monkeypatch.setattr("shapshift.certified.run_task", note)
    monkeypatch.setattr("shapshift.certified.choose_coarseness", lambda n, limit: Coarseness(300, 600))
    monkeypatch.setattr("shapshift.rowfile.LOAD_BYTES", 0)
    model = KNNShapley(method=case.split(",")[0], tol=1e9 if case == "certified" else None)
    model.fit(iter([(X, y)])) if "file" in case else model.fit(X, y)
    model.value(X[:40], y[:40], groups=y[:40])
    ((task, method),) = given
    elsewhere = READING_BYTES if "file" in case else 0
    if case == "certified":
        elsewhere = 8 * 4 * task.n_train  # for the points that are ordered exactly, if there are any
    for batch in (1, 16):
        planned = method.worker_bytes(task) + batch * method.point_bytes(task) - elsewhere
        found = held(method.make_worker(task, batch, block_points(task)))
        assert found <= planned + 200 * batch
        assert found > 0.95 * planned - 2000
