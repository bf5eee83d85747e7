"""The manifest: what a run read, with which options, by which versions, and what it wrote."""

import glob
import hashlib
import json
import os
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path, PureWindowsPath
from typing import Any

from shapshift._validation import some
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._terminal import plain

FORMAT, VERSION = "shapshift.manifest", 1
MANIFEST = "manifest.json"
PAGE_ENDINGS = (".html", ".htm")
#: What the bytes of a result can depend on.
PACKAGES = ("shapshift", "numpy", "numba", "scipy", "scikit-learn", "pyarrow")


@dataclass(frozen=True)
class Manifest:
    """One run.

    Attributes
    ----------
    command : str
    options : dict
        Options in their groups, without those that only say where results go and what is shown.
    inputs : dict
        For each option that names an input: its ``path`` and ``sha256``. Paths are relative to the manifest, or bare
        names: nothing tells about the machine.
    parameters : dict
        Everything that was chosen, also by default.
    seed : int
    versions : dict
    outputs : dict
        File to sha256. Names are relative to the manifest and stay inside its folder.
    report : dict or None
        Bare ``name`` and ``sha256`` of the page, which may lie elsewhere.
    """

    command: str
    options: Mapping[str, Mapping[str, Any]]
    inputs: Mapping[str, Mapping[str, str]]
    parameters: Mapping[str, Any]
    seed: int
    versions: Mapping[str, str]
    outputs: Mapping[str, str]
    report: Mapping[str, str] | None

    def to_json(self) -> str:
        """Write as JSON; the same run gives the same text."""
        body = {"format": FORMAT, "version": VERSION, **{name: getattr(self, name) for name in self.__annotations__}}
        return json.dumps(plain(body), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_manifest(path: Path) -> Manifest:
    """Read a manifest; a folder stands for the manifest in it."""
    target = path / MANIFEST if path.is_dir() else path
    try:
        body = json.loads(target.read_text(encoding="utf-8"))
        if body.pop("format") != FORMAT:
            raise ValueError("it is something else")
        version = body.pop("version")
        if version != VERSION:
            raise ValueError(f"it has version {version}, this release reads version {VERSION}")
        found = Manifest(**body)
        _check(found, target.absolute().parent)
        return found
    except FileNotFoundError:
        raise CommandError(f"There is no manifest {str(target)!r}. Name the manifest.json of a run.") from None
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{str(target)!r} is not a manifest of a run ({error}). Name the manifest.json that a command wrote."
        ) from None


def earlier(out: Path, command: str) -> Manifest | None:
    """Manifest of the run whose results are in a folder; refused when they are not of the same command."""
    if not os.path.lexists(out / MANIFEST):
        return None
    try:
        found = read_manifest(out / MANIFEST)
    except (CommandError, OSError) as error:
        raise CommandError(
            f"The folder {str(out)!r} holds something else, and --force does not replace that: {error} Name another "
            "folder with --out.",
            Code.EXISTS,
        ) from None
    if found.command != command:
        raise CommandError(
            f"The folder {str(out)!r} already holds results of 'shapshift {found.command}', and --force replaces those "
            "of the same command only. Name another folder with --out.",
            Code.EXISTS,
        )
    return found


def _check(manifest: Manifest, folder: Path) -> None:
    """Refuse a manifest whose entries have the wrong form, or that names files outside its own folder.

    A manifest can come from anywhere, and files are replaced and removed by what it says.
    """
    for entries in (manifest.options, manifest.inputs, manifest.outputs, manifest.versions):
        if not isinstance(entries, dict):
            raise ValueError("its entries do not have the form they must have")
    for entry in (*manifest.inputs.values(), *([] if manifest.report is None else [manifest.report])):
        if not (isinstance(entry, dict) and all(isinstance(text, str) for text in entry.values())):
            raise ValueError("its entries do not have the form they must have")
    strange = [name for name in manifest.outputs if not _is_inside(name, folder)]
    if strange:
        raise ValueError(f"its outputs must be files in its folder, and it names {some(strange)}")
    if manifest.report is not None:
        name = manifest.report["name"]
        if Path(name).name != name or not _is_inside(name, folder) or not name.lower().endswith(PAGE_ENDINGS):
            raise ValueError(f"its report must be a bare file name that ends in .html, and it names {name!r}")


def _is_inside(name: str, folder: Path) -> bool:
    path = PureWindowsPath(name)  # knows the separators and drives of every system
    if not name or path.anchor or path.drive or ".." in path.parts or "\0" in name or name in (".", MANIFEST):
        return False
    return Path(os.path.realpath(folder / name)).is_relative_to(os.path.realpath(folder))


def versions() -> dict[str, str]:
    """Versions of everything that bytes can depend on."""
    return {"python": platform.python_version(), **{name: installed(name) or "absent" for name in PACKAGES}}


def installed(name: str) -> str | None:
    """Version of a package, None where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_path(path: Path, out: Path) -> str:
    """How a manifest in ``out`` names an input.

    Relative to itself, or by the bare name where that would tell where on the machine it lies. A pattern keeps the last
    folder before its first wildcard: alone it would fit anywhere.
    """
    here, there, folder = Path.cwd(), Path(os.path.abspath(path)), Path(os.path.abspath(out))
    near = there.is_relative_to(folder.parent) or (there.is_relative_to(here) and folder.is_relative_to(here))
    if near:
        return Path(os.path.relpath(there, folder)).as_posix()
    return Path(*there.parts[-_pattern_length(there) - 1 :]).as_posix()


def candidates(recorded: str, manifest: Path) -> Iterator[Path]:
    """Where an input of a run can lie, seen from the manifest and from here."""
    folder, name = manifest.parent, Path(recorded).name
    for place in (folder / recorded, folder / name, folder.parent / recorded, folder.parent / name):
        yield Path(os.path.normpath(place))
    yield from (Path(os.path.normpath(recorded)), Path(name))


def search(recorded: str, data: Path) -> Iterator[Path]:
    """Where in a folder, at any depth, an input can lie: those of its name first, then those of its ending."""
    there = Path(recorded)
    length = _pattern_length(there)
    folders, files = [data], []
    for root, below, names in os.walk(data):
        below.sort()
        folders += [Path(root, name) for name in below]
        files += [Path(root, name) for name in sorted(names)]
    if length:
        tail = Path(*there.parts[-length:])
        yield from (folder / tail for folder in folders)
        return
    entries = [*files, *folders] if not there.suffix else files
    yield from (place for place in [*files, *folders] if place.name == there.name)
    yield from (place for place in entries if place.name != there.name and place.suffix == there.suffix)


def _pattern_length(path: Path) -> int:
    """How many parts of a path, from the first wildcard on, are a pattern."""
    magic = [number for number, part in enumerate(path.parts) if glob.has_magic(part)]
    return len(path.parts) - magic[0] if magic else 0
