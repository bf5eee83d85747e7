"""Check what a newcomer gets: install the package alone in an empty environment, and run what the README shows.

    python tests/installed.py

Nothing but the package and what it needs is installed: neither pandas nor a test tool. The folder has a space in its
name, and the commands also run where the terminal knows ASCII only and no home folder can be written to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from test_project import ROOT, examples, trim

BARE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "NO_COLOR": "1", "COLUMNS": "40"}


def check(command: list[str | Path], folder: Path, **more: str) -> str:
    """Run a command in a folder of its own; end with what it said if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(
        command, cwd=folder, env=environment | more, capture_output=True, encoding="utf-8", check=False
    )
    if ran.returncode:
        sys.exit(f"{command} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def main() -> None:
    """Install, and run everything."""
    with tempfile.TemporaryDirectory(prefix="shapshift test ") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
        programs = folder / "env" / "bin"
        check([programs / "python", "-m", "pip", "install", "-qq", ROOT], folder)
        for number, (code, shown) in enumerate(examples("README.md"), 1):
            printed = check([programs / "python", "-c", code], folder)
            if trim(printed) != trim(shown):
                sys.exit(f"Example {number} of README.md printed:\n{printed}\nand not:\n{shown}")
        nowhere = {"HOME": str(programs / "python"), "XDG_CACHE_HOME": str(programs / "python")}
        check([programs / "shapshift", "--version"], folder)
        check([programs / "shapshift", "doctor"], folder, **BARE, **nowhere)
        check([programs / "shapshift", "demo"], folder)
        check([programs / "shapshift", "demo", "--out", "again"], folder, **BARE, **nowhere)
        if not (folder / "again" / "report.html").is_file():
            sys.exit("shapshift demo wrote no report.html.")
    print("An empty environment: the README's examples, doctor and the demo work.")


if __name__ == "__main__":
    main()
