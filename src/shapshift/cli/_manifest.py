"""The manifest: inputs, options, versions and outputs of a run."""

import glob
import hashlib
import importlib
import itertools
import json
import os
import platform
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath
from typing import Any, get_type_hints

from shapshift.checks.names import some
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._options import fits
from shapshift.cli._requirements import installed
from shapshift.cli._terminal import plain
from shapshift.exceptions import InputError

FORMAT, VERSION = "shapshift.manifest", 1
MANIFEST = "manifest.json"
#: Most bytes of a manifest; enough for the pages of a million owners.
LARGEST = 256_000_000
PAGE_ENDINGS = (".html", ".htm")
#: Libraries that can change the bytes of a result.
PACKAGES = ("shapshift", "numpy", "numba", "scipy", "scikit-learn", "pyarrow")
#: Entry of the versions for the linear algebra libraries.
BLAS = "blas"


@dataclass(frozen=True)
class Manifest:
    """One run.

    Attributes
    ----------
    command : str
    options : dict
        Options by group, without those that only set where results go and what is shown.
    inputs : dict
        For each option that names an input: its ``path`` and ``sha256``. Paths are relative to the manifest, or bare
        names, and reveal nothing about the machine.
    parameters : dict
        All parameters, defaults included.
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

    def files(self) -> dict[str, str]:
        """File to sha256, including the page."""
        return {**self.outputs, **({self.report["name"]: self.report["sha256"]} if self.report else {})}

    def to_json(self) -> str:
        """Write as JSON; the same run gives the same text."""
        body = {"format": FORMAT, "version": VERSION, **{name: getattr(self, name) for name in self.__annotations__}}
        return json.dumps(plain(body), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def read_manifest(path: Path) -> Manifest:
    """Read a manifest, or the manifest in a folder.

    A manifest may be untrusted, and decides which files are read, replaced and removed: all of it is checked.
    """
    target = path / MANIFEST if path.is_dir() else path
    try:
        about = os.stat(target)
        if not stat.S_ISREG(about.st_mode):  # reading a pipe or a device would never end
            raise InputError("it is not a regular file")
        if about.st_size > LARGEST:
            raise InputError(f"it has {about.st_size:,} bytes, more than {LARGEST:,}")
        body = json.loads(target.read_text(encoding="utf-8"), object_pairs_hook=_no_repeats, parse_constant=_no_number)
        if not isinstance(body, dict) or body.pop("format", None) != FORMAT:
            raise InputError("it is no manifest of shapshift")
        version = body.pop("version", None)
        if version != VERSION:
            raise InputError(f"it has version {str(version)[:20]}, this release reads version {VERSION}")
        found = Manifest(**body)
        _check(found, target.absolute().parent)
        return found
    except FileNotFoundError:
        killed = any(target.parent.glob(".shapshift-*.part/journal.json"))
        advice = "A command was killed while it replaced the results there: repeat it." if killed else ""
        raise CommandError(
            f"There is no manifest {str(target)!r}. {advice or 'Name the manifest.json of a run.'}"
        ) from None
    except (ValueError, TypeError, RecursionError) as error:
        raise CommandError(
            f"{str(target)!r} is not a manifest of a run ({str(error)[:400]}). Name the manifest.json that a command "
            "wrote."
        ) from None


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise InputError("it names an entry twice")
    return found


def _no_number(name: str) -> None:
    raise InputError(f"{name} is not a valid JSON number")


def earlier(out: Path, command: str) -> Manifest | None:
    """Manifest of the results in a folder; raises if they are not of the same command."""
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
            f"The folder {str(out)!r} already holds results of 'shapshift {found.command}', and --force replaces only "
            "those of the same command. Name another folder with --out.",
            Code.EXISTS,
        )
    return found


def _check(manifest: Manifest, folder: Path) -> None:
    """Refuse a manifest whose entries have the wrong form, or that names files outside its own folder."""
    page, inputs = manifest.report, manifest.inputs
    if not (
        all(fits(getattr(manifest, name), kind) for name, kind in get_type_hints(Manifest).items())
        and all(set(entry) == {"path", "sha256"} for entry in inputs.values())
        and (page is None or set(page) == {"name", "sha256"})
        and all(map(_is_digest, [*manifest.files().values(), *(entry["sha256"] for entry in inputs.values())]))
        and all(len(text) <= 200 and text.isprintable() for pair in manifest.versions.items() for text in pair)
    ):
        raise InputError("its entries have the wrong form")
    far = [entry["path"] for entry in inputs.values() if not _is_relative(entry["path"])]
    if far:
        raise InputError(f"its inputs must be named by paths relative to it, and it names {some(far)}")
    strange = [name for name in manifest.outputs if not is_inside(name, folder)]
    if strange:
        raise InputError(f"its outputs must be files in its folder, and it names {some(strange)}")
    if page is not None and not (
        Path(page["name"]).name == page["name"]
        and is_inside(page["name"], folder)
        and page["name"].lower().endswith(PAGE_ENDINGS)
    ):
        raise InputError(f"its report must be a bare file name that ends in .html, and it names {page['name']!r}")


def _is_digest(text: str) -> bool:
    return re.fullmatch("[0-9a-f]{64}", text) is not None


def _is_relative(path: str) -> bool:
    """Whether a path has the form that :func:`recorded_path` makes: folders above first, if any, then folders below."""
    there = Path(path)
    below = list(itertools.dropwhile(lambda part: part == "..", there.parts))
    return not (there.anchor or there.drive or "\0" in path) and bool(below) and ".." not in below


def is_inside(name: str, folder: Path, *, follow: bool = True) -> bool:
    """Whether a name is that of a file in the folder other than the manifest.

    If the file is a link, its target counts, unless ``follow`` is false.
    """
    path = PureWindowsPath(name)  # knows the separators and drives of every system
    if not name or path.anchor or path.drive or ".." in path.parts or "\0" in name or name in (".", MANIFEST):
        return False
    place = folder / name if follow else (folder / name).parent
    return Path(os.path.realpath(place)).is_relative_to(os.path.realpath(folder))


def versions() -> dict[str, str]:
    """Versions of everything that can change the bytes of a result."""
    return {
        "python": platform.python_version(),
        **{name: installed(name) or "absent" for name in PACKAGES},
        BLAS: _blas(),
    }


def _blas() -> str:
    """Linear algebra libraries with the kernels that they have chosen for this processor."""
    pools = importlib.import_module("threadpoolctl").threadpool_info()
    found = [pool for pool in pools if pool.get("user_api") == "blas"]
    names = {f"{pool['internal_api']} {pool['version']} {pool.get('architecture', '')}".strip() for pool in found}
    return ", ".join(sorted(names))


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def recorded_path(path: Path, out: Path) -> str:
    """Path or name that a manifest in ``out`` records for an input.

    Relative to the manifest, or the bare name if a path would reveal folders of the machine. A pattern keeps the last
    folder before its first wildcard: alone it would match files anywhere.
    """
    here, there, folder = Path.cwd(), Path(os.path.abspath(path)), Path(os.path.abspath(out))
    near = there.is_relative_to(folder.parent) or (there.is_relative_to(here) and folder.is_relative_to(here))
    if near:
        return Path(os.path.relpath(there, folder)).as_posix()
    return Path(*there.parts[-pattern_length(there) - 1 :]).as_posix()


def pattern_length(path: Path) -> int:
    """Count the parts of a path from the first wildcard on."""
    magic = [number for number, part in enumerate(path.parts) if glob.has_magic(part)]
    return len(path.parts) - magic[0] if magic else 0
