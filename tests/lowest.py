"""Run tests with the oldest libraries that pyproject.toml allows, in an environment of their own.

    python tests/lowest.py FOLDER [pytest arguments]

makes the environment in FOLDER anew. Transitive dependencies are the newest ones: that is what a user gets who holds
back only what is named there. Needs uv in the environment of the Python that runs this.
"""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXTRAS = "test,plot,pandas,polars,dask,ann"  # ray and torch: too large to install for this
# What uv calls the settings of pip.
SETTINGS = {
    "index-url": "UV_DEFAULT_INDEX",
    "extra-index-url": "UV_INDEX",
    "find-links": "UV_FIND_LINKS",
    "trusted-host": "UV_INSECURE_HOST",
    "cert": "SSL_CERT_FILE",
}
# Slow, or about other things than the interfaces of libraries.
LEFT_OUT = (
    *("test_benchmarks", "test_certified", "test_clusters", "test_gpu", "test_hard_cases", "test_load", "test_memory"),
    *("test_naive", "test_numerics", "test_posterior", "test_posterior_benchmark", "test_project", "test_properties"),
    *("test_report_browser", "test_reproduce", "test_sampled_coverage", "test_sharded", "test_suspects_benchmark"),
    *("test_docs", "test_truncated"),
)


def as_pip_does() -> dict[str, str]:
    """Environment in which uv asks the indexes that pip asks; what is set for uv itself comes first."""
    listed = subprocess.run(
        [sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True
    ).stdout
    found = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # pip's strategy: the best version of all indexes
    for line in listed.splitlines():
        key, _, value = line.partition("=")
        if name := SETTINGS.get(key.rpartition(".")[2]):
            separator = "," if name == "UV_FIND_LINKS" else " "
            found[name] = separator.join(ast.literal_eval(value).split())
    return {**found, **os.environ}


def main(folder: str, *arguments: str) -> int:
    """Make the environment and run pytest in it."""
    uv, environment = str(Path(sys.executable).with_name("uv")), as_pip_does()
    python = str(Path(folder) / "bin" / "python")
    install = [uv, "pip", "install", "--quiet", "--python", python, "--resolution", "lowest-direct"]
    subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], env=environment, check=True)
    subprocess.run([*install, "--editable", f".[{EXTRAS}]"], cwd=ROOT, env=environment, check=True)
    # Old releases use what newer ones of their own dependencies deprecate.
    filters = [f"-Wdefault::{name}Warning" for name in ("Deprecation", "PendingDeprecation", "Future")]
    # NumPy before 2.2 leaves an archive open when writing it fails.
    filters.append("-Wdefault::pytest.PytestUnraisableExceptionWarning")
    ignored = [f"--ignore=tests/{name}.py" for name in LEFT_OUT]
    command = [python, "-m", "pytest", "-q", *filters, *ignored, *arguments, "tests"]
    # A cache of its own: while one process replaces a kernel that another release of Numba compiled, a second one may
    # load what the other release left, and end.
    cache = {"NUMBA_CACHE_DIR": str(Path(folder) / "numba")}
    return subprocess.run(command, cwd=ROOT, env={**os.environ, **cache}, check=False).returncode


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(os.path.abspath(sys.argv[1]), *sys.argv[2:]))
