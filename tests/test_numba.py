"""How kernels are compiled and kept."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from pathlib import Path

from shapshift.kernels.weighted import weighted_values

MODULE = """
from shapshift._numba import kernel

@kernel
def twice(x):
    return 2 * x

@kernel
def thrice(x):
    return 3 * x
"""


def test_kernels_work_where_no_folder_can_be_written_to(tmp_path: Path) -> None:
    (tmp_path / "kernels.py").write_text(MODULE)
    # Files where Numba would make folders: a user that may write everywhere cannot get past them either.
    (tmp_path / "__pycache__").write_text("")
    nowhere = str(tmp_path / "__pycache__" / "cache")
    folders = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "NUMBA_CACHE_DIR", "LOCALAPPDATA", "IPYTHONDIR"), nowhere)
    ran = subprocess.run(
        [sys.executable, "-c", "import kernels; print(kernels.twice(1.5), kernels.thrice(2))"],
        cwd=tmp_path,
        env={**os.environ, **folders},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["3.0", "6"]
    assert ran.stderr.count("NUMBA_CACHE_DIR") == 1


def test_kernels_are_pickled_by_name() -> None:
    # Pickled by value, every worker of a cluster would compile them again.
    sent = pickle.dumps(weighted_values)
    assert len(sent) < 100
    assert pickle.loads(sent) is weighted_values
