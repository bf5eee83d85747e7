"""Peak memory stays within max_memory, measured from outside in a process of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shapshift import KNNShapley, audit_shift
from shapshift.checks.memory import available_memory
from shapshift.engine.rows.file import READING_BYTES
from shapshift.engine.runner import Method, Runner

N_ROWS, N_VAL = 200_000, 80  # more points than all threads hold at a time
BUDGET = 100_000_000
# Beside what the budget bounds: the validation set itself, its checks, allocator slack, thread stacks.
SLACK = 8_000_000

MEASURE = f"""
import json
import sys

import numpy as np

from shapshift import KNNShapley, audit_shift
from shapshift.engine import truncated
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
audit = options.pop("audit", None)
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
if audit is not None:
    audit |= {{"noise": [0.1, 0.5], "repeats": 2, "progress": False}}
    audit_shift(small, few, np.resize(y, 3), **audit)
before = forget_peak()
if audit is None:
    found = model.value(X_val, y_val, groups=groups)
else:
    found = audit_shift(model, X_val, y_val, **audit)
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


# Four threads without groups: test_the_measurement_sees_memory, with a smaller budget.
@pytest.mark.parametrize(("groups", "n_jobs"), [(False, 1), (True, 1), (True, 4)])
def test_peak_memory_is_within_the_budget(groups: bool, n_jobs: int) -> None:
    growth = peak_growth(max_memory=BUDGET, n_jobs=n_jobs, groups=groups)
    assert growth <= BUDGET + SLACK


@pytest.mark.parametrize(
    ("shape", "budget", "options"),
    [
        ((200_000, 200, 8, 3, 60), 350_000_000, {"n_jobs": 2}),  # many groups
        ((20, 1_000_000, 2, 10, 0), 550_000_000, {"n_jobs": 2}),  # many points
        ((1_000, 100_000, 100, 2, 0), 90_000_000, {"n_jobs": 1}),  # wide points: no second copy of them
        ((50_000, 1_000, 0, 2, 0), 50_000_000, {"n_jobs": 2, "metric": "precomputed"}),  # float32 distances
        ((200_000, 200, 8, 3, 2), 60_000_000, {"n_jobs": 2, "method": "truncated"}),
    ],
    ids=["groups", "points", "wide", "precomputed", "truncated"],
)
def test_peak_memory_is_within_the_budget_whatever_the_shape(
    shape: tuple[int, ...], budget: int, options: dict[str, object]
) -> None:
    # Again, if need be: the compiler takes memory of its own where it has to compile what small data did not need.
    assert any(peak_growth(shape=shape, max_memory=budget, **options) <= budget + SLACK for _ in range(2))


@pytest.mark.parametrize(
    ("shape", "budget", "audit"),
    [
        ((200_000, 200, 8, 3, 0), 120_000_000, {}),
        ((200_000, 200, 8, 3, 0), 150_000_000, {"keep_rows": True}),
        ((500, 100_000, 4, 3, 0), 120_000_000, {}),
    ],
    ids=["rows", "levels apart", "points"],
)
def test_an_audit_stays_within_the_budget(shape: tuple[int, ...], budget: int, audit: dict[str, object]) -> None:
    options: dict[str, Any] = {"shape": shape, "max_memory": budget, "n_jobs": 2, "audit": audit}
    assert any(peak_growth(**options) <= budget + SLACK for _ in range(2))


def test_an_audit_says_how_large_a_budget_must_be() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(20_000, 3)), rng.integers(0, 2, size=20_000)
    X_val, y_val = rng.normal(size=(50, 3)), rng.integers(0, 2, size=50)
    model = KNNShapley(max_memory="6MB", progress=False).fit(X, y)
    model.value(X_val, y_val)
    options: dict[str, Any] = {"noise": [0.1], "repeats": 2, "progress": False}
    with pytest.raises(ValueError, match=r"at least [\d.]+MB for an audit of 20000 training rows\. Got 6MB") as error:
        audit_shift(model, X_val, y_val, **options)
    enough = re.search(r"at least ([\d.]+)MB", str(error.value))
    assert enough is not None
    found = audit_shift(model.set_params(max_memory=f"{float(enough[1]) + 0.5}MB"), X_val, y_val, **options)
    assert found.clean_values.tobytes() == model.set_params(max_memory=None).value(X_val, y_val).values.tobytes()


GROUPS = {
    "v2": ("0::/box", "", ("memory.max", "memory.current", "inactive_file")),
    "hybrid": ("0::/box", "unified", ("memory.max", "memory.current", "inactive_file")),
    "v1": ("4:cpu,memory:/box", "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")),
}


@pytest.mark.parametrize("kind", GROUPS)
def test_available_memory_is_what_system_and_control_groups_leave(kind: str, tmp_path: Path) -> None:
    line, mount, names = GROUPS[kind]

    def limit(folder: str, most: str, used: int, cached: int) -> None:
        group = tmp_path / "sys/fs/cgroup" / mount / folder
        group.mkdir(parents=True, exist_ok=True)
        for name, text in zip(
            (*names[:2], "memory.stat"), (most, f"{used}", f"anon 7\n{names[2]} {cached}\n"), strict=True
        ):
            (group / name).write_text(text)

    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal:  16 kB\nMemFree:  1 kB\nMemAvailable:  8 kB\n")
    assert available_memory(str(tmp_path)) == 8192
    (tmp_path / "proc/self/cgroup").write_text(f"7:cpuset:/other\n{line}/inner\n")
    limit("box/inner", "max" if kind != "v1" else str(2**63 - 4096), 4000, 500)
    assert available_memory(str(tmp_path)) == 8192
    limit("box", "5000", 4000, 500)  # of a group above
    assert available_memory(str(tmp_path)) == 1500
    limit("", "4500", 4000, 500)  # the group of a container stands at the mount
    assert available_memory(str(tmp_path)) == 1000
    limit("", "3000", 4000, 500)
    assert available_memory(str(tmp_path)) == 0


def test_the_measurement_sees_memory() -> None:
    # A budget of a third must show, or the measurement measures nothing.
    tight = peak_growth(max_memory="40MB", n_jobs=4, groups=False)
    wide = peak_growth(max_memory="1GB", n_jobs=4, groups=False)
    assert tight <= 40_000_000 + SLACK
    assert wide > 60_000_000


def test_memory_without_a_budget_is_never_n_times_m() -> None:
    n_val = 200
    assert peak_growth(n_jobs=2, groups=True, shape=(N_ROWS, n_val, 8, 3, 0)) < 8 * N_ROWS * n_val


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


@pytest.mark.parametrize("in_file", [False, True], ids=["in memory", "in a file"])
def test_the_plan_knows_what_a_worker_holds(in_file: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30_000, 2)), rng.integers(0, 2, 30_000)
    given: list[Method] = []
    sums = Runner.sums
    monkeypatch.setattr(Runner, "sums", lambda runner, method: given.append(method) or sums(runner, method))
    monkeypatch.setattr("shapshift.engine.rows.file.LOAD_BYTES", 0)
    model = KNNShapley().fit(iter([(X, y)])) if in_file else KNNShapley().fit(X, y)
    model.value(X[:40], y[:40], groups=y[:40])
    (method,) = given
    costs = method.costs()
    elsewhere = READING_BYTES if in_file else 0
    for batch in (1, 16):
        planned = costs.worker + batch * costs.point - elsewhere
        found = held(method.worker(batch))
        assert found <= planned + 200 * batch
        assert found > 0.95 * planned - 2000
