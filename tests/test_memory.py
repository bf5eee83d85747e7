"""Peak memory stays within max_memory, measured from outside in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

from shapshift import KNNShapley

N_ROWS, N_VAL = 200_000, 200
BUDGET = 100_000_000
# Beside what the budget bounds: the validation set itself, its checks, allocator slack, thread stacks.
SLACK = 8_000_000

MEASURE = f"""
import json
import sys

import numpy as np

from shapshift import KNNShapley


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
X, y = rng.normal(size=({N_ROWS}, 8)), rng.integers(0, 3, size={N_ROWS})
X_val, y_val = rng.normal(size=({N_VAL}, 8)), rng.integers(0, 3, size={N_VAL})
groups = np.array(["a", "b"])[np.arange({N_VAL}) % 2] if options.pop("groups") else None
model = KNNShapley(progress=False, **options).fit(X, y)
small = KNNShapley(progress=False, **options).fit(X[:50], y[:50])
small.value(X_val[:3], y_val[:3], groups=None if groups is None else groups[:3])  # loads the compiled code
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
