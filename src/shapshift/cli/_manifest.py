"""The manifest: what a run read, with which options, by which versions, and what it wrote."""

import hashlib
import json
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from shapshift.cli._errors import CommandError
from shapshift.cli._terminal import plain

FORMAT, VERSION = "shapshift.manifest", 1
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
        File to sha256.
    report : dict or None
        ``name`` and ``sha256`` of the page, which may lie elsewhere.
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
    target = path / "manifest.json" if path.is_dir() else path
    try:
        body = json.loads(target.read_text(encoding="utf-8"))
        if body.pop("format") != FORMAT:
            raise ValueError("it is something else")
        found = body.pop("version")
        if found != VERSION:
            raise ValueError(f"it has version {found}, this release reads version {VERSION}")
        return Manifest(**body)
    except FileNotFoundError:
        raise CommandError(f"There is no manifest {str(target)!r}. Name the manifest.json of a run.") from None
    except (ValueError, KeyError, TypeError, AttributeError, UnicodeDecodeError) as error:
        raise CommandError(
            f"{str(target)!r} is not a manifest of a run ({error}). Name the manifest.json that a command wrote."
        ) from None


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
    """How a manifest in ``out`` names an input: relative to itself, or by the bare name where that would tell where on
    the machine it lies.
    """  # noqa: D205
    here, there, folder = Path.cwd(), Path(os.path.abspath(path)), Path(os.path.abspath(out))
    near = there.is_relative_to(folder.parent) or (there.is_relative_to(here) and folder.is_relative_to(here))
    return Path(os.path.relpath(there, folder)).as_posix() if near else path.name


def candidates(recorded: str, manifest: Path, data: Path | None) -> Iterable[Path]:
    """Where an input of a run can lie now."""
    name = Path(recorded).name
    if data is not None:
        yield data / name
        return
    folder = manifest.parent
    for place in (folder / recorded, folder / name, folder.parent / name, Path(recorded), Path(name)):
        yield Path(os.path.normpath(place))
