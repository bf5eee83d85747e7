"""Build what is released, twice, and check it as a stranger would.

    python tests/dist.py [FOLDER]

The project is copied to two folders with other names, times and permissions, and built in each under another locale,
time zone and hash seed: both must give the same bytes. Then `twine check --strict`, a look at what the archives hold,
and an installation of the wheel in an empty environment, where the README's examples, `doctor` and the demo run:
neither pandas nor a test tool is there, and the commands also run where the terminal knows ASCII only and no home
folder can be written to. What passed is in FOLDER (by default dist), with SHA256SUMS.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from test_project import ROOT, examples, project_version, trim

BARE = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "NO_COLOR": "1", "COLUMNS": "40"}
# What differs between two machines: umask, and environment.
MACHINES = {
    "first": (0o022, {"LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONHASHSEED": "1"}),
    "the second": (0o077, {"LC_ALL": "C", "TZ": "Asia/Tokyo", "PYTHONHASHSEED": "2"}),
}
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".bench", "dist", "build", "__pycache__", ".*_cache", ".hypothesis")
MOST_BYTES = 3_000_000
ALLOWED = (
    *("src/", "CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml"),
    ".gitignore",  # hatchling adds it, to build from the archive what it builds from the checkout
)


def check(command: list[str | Path], folder: Path, **more: str) -> str:
    """Run a command in a folder of its own; end with what it said if it fails."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(
        command, cwd=folder, env=environment | more, capture_output=True, encoding="utf-8", check=False
    )
    if ran.returncode:
        sys.exit(f"{command} ended with {ran.returncode}:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def last_change() -> str:
    """Time of the last commit, for the archives; a fixed day where there is no git checkout."""
    asked = ["git", "log", "-1", "--format=%ct"]
    found = (
        subprocess.run(asked, cwd=ROOT, capture_output=True, text=True, check=False) if shutil.which("git") else None
    )
    return found.stdout.strip() if found and found.returncode == 0 else "1767225600"


def copy_project(folder: Path) -> None:
    """The project's files: those of git, or all but builds and caches where there is no checkout."""
    asked = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    if (ROOT / ".git").exists() and shutil.which("git"):
        listed = subprocess.run(asked, cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout
        for name in filter(None, listed.split("\0")):
            if (ROOT / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / name, folder / name)  # with neither its time nor its permissions
    else:
        shutil.copytree(ROOT, folder, ignore=LEFT_OUT, copy_function=shutil.copyfile)


def build(folder: Path) -> dict[str, Path]:
    """Build on two machines, so to speak; returns the files of one of them by name."""
    built: list[dict[str, Path]] = []
    for name, (umask, environment) in MACHINES.items():
        before = os.umask(umask)
        try:
            (folder / name).mkdir()
            copy_project(folder / name / "project")
            out = folder / name / "dist"
            command: list[str | Path] = [sys.executable, "-m", "build", "--outdir", out, folder / name / "project"]
            check(command, folder, SOURCE_DATE_EPOCH=last_change(), **environment)
        finally:
            os.umask(before)
        built.append({path.name: path for path in sorted(out.iterdir())})
    first, second = built
    if first.keys() != second.keys():
        sys.exit(f"The two builds made other files: {sorted(first)} and {sorted(second)}.")
    for name in first:
        if first[name].read_bytes() != second[name].read_bytes():
            sys.exit(f"{name} has other bytes when it is built again.")
    return first


def look_inside(files: dict[str, Path]) -> None:
    """Refuse archives that are too large, or that hold what nobody needs to install the package."""
    for name, path in files.items():
        if path.stat().st_size > MOST_BYTES:
            sys.exit(f"{name} has {path.stat().st_size:,} bytes, more than {MOST_BYTES:,}.")
        if name.endswith(".whl"):
            with zipfile.ZipFile(path) as wheel:
                inside = wheel.namelist()
            wrong = [entry for entry in inside if not entry.startswith(("shapshift/", "shapshift-"))]
        else:
            with tarfile.open(path) as source:
                inside = [entry.partition("/")[2] for entry in source.getnames()]
            wrong = [entry for entry in inside if not entry.startswith(ALLOWED)]
        wrong += [entry for entry in inside if entry.endswith((".pyc", ".nbi", ".nbc"))]
        if wrong:
            sys.exit(f"{name} holds what does not belong there: {wrong[:5]}.")
        print(f"{name}: {path.stat().st_size:,} bytes, {len(inside):,} files, the same bytes twice")


def try_out(wheel: Path, folder: Path) -> None:
    """Install the wheel alone and run what the README shows, doctor and the demo."""
    subprocess.run([sys.executable, "-m", "venv", folder / "env"], check=True)
    programs = folder / "env" / "bin"
    check([programs / "python", "-m", "pip", "install", "-qq", wheel], folder)
    said = check([programs / "shapshift", "--version"], folder)
    if project_version() not in said:
        sys.exit(f"shapshift --version says {said.strip()}, and pyproject.toml {project_version()}.")
    for number, (code, shown) in enumerate(examples("README.md"), 1):
        printed = check([programs / "python", "-c", code], folder)
        if trim(printed) != trim(shown):
            sys.exit(f"Example {number} of README.md printed:\n{printed}\nand not:\n{shown}")
    nowhere = {"HOME": str(programs / "python"), "XDG_CACHE_HOME": str(programs / "python")}
    check([programs / "shapshift", "doctor"], folder, **BARE, **nowhere)
    check([programs / "shapshift", "demo"], folder)
    check([programs / "shapshift", "demo", "--out", "again"], folder, **BARE, **nowhere)
    if not (folder / "again" / "report.html").is_file():
        sys.exit("shapshift demo wrote no report.html.")
    print("An empty environment: the wheel, the README's examples, doctor and the demo work.")


def main(target: Path) -> None:
    """Build, check and keep."""
    with tempfile.TemporaryDirectory(prefix="shapshift test ") as name:
        folder = Path(name)
        files = build(folder)
        check([sys.executable, "-m", "twine", "check", "--strict", *files.values()], folder)
        look_inside(files)
        (wheel,) = (path for path in files.values() if path.suffix == ".whl")
        try_out(wheel, folder)
        target.mkdir(parents=True, exist_ok=True)
        sums = []
        for name, path in files.items():
            shutil.copyfile(path, target / name)
            sums.append(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {name}\n")
        (target / "SHA256SUMS").write_text("".join(sums), encoding="utf-8")
        print("".join(sums), end="")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "dist"))
