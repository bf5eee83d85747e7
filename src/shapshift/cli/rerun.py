"""``shapshift rerun``."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from shapshift._validation import some
from shapshift.cli import _manifest as manifests
from shapshift.cli._commands import COMMANDS, command
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._manifest import Manifest
from shapshift.cli._options import OUTPUT, option
from shapshift.cli._terminal import Terminal
from shapshift.tables import file_digest


@dataclass(frozen=True)
class Again:
    """Which run, and where to."""

    manifest: Annotated[
        Path, typer.Argument(metavar="MANIFEST", help="manifest.json of a run, or its folder.", show_default=False)
    ]
    out: Annotated[
        Path | None,
        option(
            "--out", "-o", panel=OUTPUT, metavar="FOLDER", text="Folder for the results.", show_default="FOLDER-rerun"
        ),
    ] = None
    data: Annotated[
        list[str] | None,
        option(
            "--data",
            metavar="FOLDER|NAME=PATH",
            panel=OUTPUT,
            text="Where the inputs are, if they were moved: a folder, searched at any depth for files of the same "
            "content, or one input such as train=old/rows.csv. Repeat as needed.",
        ),
    ] = None
    force: Annotated[bool, option("--force", "-f", panel=OUTPUT, text="Replace results that are there.")] = False
    json: Annotated[bool, option("--json", panel=OUTPUT, text="Print one JSON document on stdout.")] = False
    quiet: Annotated[bool, option("--quiet", "-q", panel=OUTPUT, text="Say nothing but warnings and errors.")] = False
    debug: Annotated[
        bool, option("--debug", envvar="SHAPSHIFT_DEBUG", panel=OUTPUT, text="Show the traceback of an error.")
    ] = False


@command(
    "rerun",
    writes=False,
    panel="Research",
    examples=[
        "shapshift rerun run1/manifest.json",
        "shapshift rerun run1 --out run2 --data /mnt/data",
        "shapshift rerun run1 --data train=old/rows.csv --data val=new/rows.csv",
    ],
)
def rerun(terminal: Terminal, again: Again) -> None:
    """Repeat a run from its manifest and check that the bytes are the same.

    Refuses when an input has changed since. Results go to a new folder; a page goes there too.
    """
    path = again.manifest / "manifest.json" if again.manifest.is_dir() else again.manifest
    before = manifests.read_manifest(path)
    if before.command not in COMMANDS:
        raise CommandError(f"{str(path)!r} is of a command {before.command!r} that this release does not have.")
    named, folders = _places(again.data or [], before)
    inputs = {name: _find(name, entry, path, named.get(name), folders) for name, entry in before.inputs.items()}
    folder = path.parent if path.parent.name not in ("", "..") else path.absolute().parent
    out = again.out or folder.with_name(f"{folder.name}-rerun")
    differing = {
        name: (old, new)
        for name, old in before.versions.items()
        if (new := manifests.versions().get(name, "absent")) != old
    }
    for name, (old, new) in differing.items():
        terminal.warning(f"The run was made with {name} {old}, here is {new}: bytes may differ.")
    inner = Terminal(quiet=again.quiet, results=False)
    COMMANDS[before.command].execute(_groups(before, inputs, out, again, folders), inner)
    after = manifests.read_manifest(out)
    other = _differences(before, after)
    files = len(before.outputs) + (before.report is not None)
    terminal.document(
        {
            "command": "rerun",
            "repeated": before.command,
            "out": str(out),
            "identical": not other,
            "files": files,
            "different": other,
            "versions_changed": {name: list(pair) for name, pair in differing.items()},
        }
    )
    if other:
        raise CommandError(
            f"{len(other)} of {files} files have other bytes than in {str(path)!r}: {some(other)}. They are in "
            f"{str(out)!r} for comparison."
            + (" Other versions are installed, see above." if differing else " Report this: it should not happen."),
            Code.OTHER_BYTES,
        )
    terminal.line(f"Identical: all {files} files of {before.command!r} have the same bytes. Results: {out}/", "green")


def _groups(
    manifest: Manifest, inputs: Mapping[str, Path], out: Path, again: Again, folders: Sequence[Path]
) -> dict[str, Any]:
    """Option groups of the run, with results going elsewhere."""
    groups = COMMANDS[manifest.command].rebuild(manifest.options, inputs)
    page = None if manifest.report is None else out / manifest.report["name"]
    new = {
        "out": out,
        "force": again.force,
        "quiet": again.quiet,
        "debug": again.debug,
        "report": page,
        "data_dir": folders[0] if folders else None,
    }
    return {
        parameter: replace(group, **{field.name: new[field.name] for field in fields(group) if field.name in new})
        for parameter, group in groups.items()
    }


def _places(given: Sequence[str], manifest: Manifest) -> tuple[dict[str, Path], list[Path]]:
    """Read --data: inputs by name, and folders to search."""
    named: dict[str, Path] = {}
    folders: list[Path] = []
    for text in given:
        name, equals, path = text.partition("=")
        if equals and name in manifest.inputs:
            named[name] = Path(path)
        elif Path(text).is_dir():
            folders.append(Path(text))
        else:
            known = f", or one of the inputs: {', '.join(manifest.inputs)}" if manifest.inputs else ""
            raise CommandError(
                f"--data must name a folder that exists{known}, as in train=old/rows.csv. Got {text!r} instead."
            )
    return named, folders


def _find(name: str, entry: Mapping[str, str], manifest: Path, named: Path | None, folders: Sequence[Path]) -> Path:
    """Where an input lies now; refused when it has changed."""
    changed = None
    for place in _candidates(entry["path"], manifest, named, folders):
        try:
            found = file_digest(place)
        except (OSError, ValueError):
            continue
        if found == entry["sha256"]:
            return place
        if place.name == Path(entry["path"]).name or named is not None:
            changed = changed or (place, found)
    shown = Path(entry["path"]).name
    if changed is None:
        where = "beside the manifest or here"
        if named is not None or folders:
            where = "in " + ", ".join(repr(str(place)) for place in ([named] if named is not None else folders))
        raise CommandError(
            f"The input {shown!r} ({name}) is not {where}. Say where it is with --data FOLDER or --data {name}=PATH."
        )
    place, found = changed
    raise CommandError(
        f"The input {str(place)!r} ({name}) has changed: the run read sha256 {entry['sha256'][:16]}..., now it is "
        f"{found[:16]}.... Restore the file, say where the old one is with --data {name}=PATH, or start a new run."
    )


def _candidates(recorded: str, manifest: Path, named: Path | None, folders: Sequence[Path]) -> Iterable[Path]:
    if named is not None:
        return [named]
    if not folders:
        return manifests.candidates(recorded, manifest.absolute())
    return (place for folder in folders for place in manifests.search(recorded, folder))


def _differences(before: Manifest, after: Manifest) -> list[str]:
    names = {**before.outputs, **after.outputs}
    other = [name for name in names if before.outputs.get(name) != after.outputs.get(name)]
    if before.report is not None and (after.report is None or after.report["sha256"] != before.report["sha256"]):
        other.append(before.report["name"])
    return sorted(other)
