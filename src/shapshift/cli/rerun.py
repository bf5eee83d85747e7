"""``shapshift rerun``."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

from shapshift.checks.names import some
from shapshift.cli import _manifest as manifests
from shapshift.cli._commands import COMMANDS, Command, command
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._manifest import Manifest
from shapshift.cli._options import Method, Output, Said, argument, option
from shapshift.cli._run import Run
from shapshift.cli._terminal import Terminal
from shapshift.exceptions import InputError
from shapshift.methods import parse_method


@dataclass(frozen=True)
class Again:
    """The run, and where its results go."""

    panel: ClassVar[str] = Output.panel
    manifest: Path = argument("manifest.json of a run, or its folder.", metavar="MANIFEST", recorded=False)
    out: Path | None = option(
        None, "Folder for the results.", "-o", metavar="FOLDER", show_default="FOLDER-rerun", recorded=False
    )
    data: list[str] | None = option(
        None,
        "Where the inputs are, if they were moved: a folder, searched at any depth for files of the same content, or "
        "one input such as train=old/rows.csv. Repeat the option for more.",
        metavar="FOLDER|NAME=PATH",
        recorded=False,
    )
    force: bool = option(False, "Replace existing results.", "-f", recorded=False)


@command(
    "rerun",
    Again,
    writes=False,
    panel="Research",
    examples=[
        "shapshift rerun run1/manifest.json",
        "shapshift rerun run1 --out run2 --data /mnt/data",
        "shapshift rerun run1 --data train=old/rows.csv --data val=new/rows.csv",
    ],
)
def rerun(run: Run) -> None:
    """Repeat a run from its manifest and check that the bytes are the same.

    Fails if an input has changed since. Results, with any page, go to a new folder.
    """
    again, said, terminal = run[Again], run[Said], run.terminal
    path = again.manifest / manifests.MANIFEST if again.manifest.is_dir() else again.manifest
    before = manifests.read_manifest(path)
    registered = COMMANDS.get(before.command)
    if registered is None or not registered.recorded():
        raise CommandError(f"{str(path)!r} is of a command {before.command[:40]!r} that this release cannot repeat.")
    recorded = read_options(registered, before, path)
    named, folders = _places(again.data or [], before)
    inputs = {name: find_input(name, entry, path, named.get(name), folders) for name, entry in before.inputs.items()}
    folder = path.parent if path.parent.name not in ("", "..") else path.absolute().parent
    out = again.out or folder.with_name(f"{folder.name}-rerun")
    here = manifests.versions()
    differing = {
        name: (old, here.get(name, "absent"))
        for name, old in before.versions.items()
        if here.get(name, "absent") != old
    }
    kernels = differing.pop(manifests.BLAS, None)  # few results depend on them: reported if one does
    for name, (old, new) in differing.items():
        terminal.warning(f"The run used {name} {old}, {new} is installed: bytes may differ.")
    changed = {**inputs, "out": out, "force": again.force, "quiet": said.quiet, "debug": said.debug}
    changed["report"] = None if before.report is None else out / before.report["name"]
    changed["data_dir"] = folders[0] if folders else None
    options = {
        group: replace(given, **{each.name: changed[each.name] for each in fields(group) if each.name in changed})
        for group, given in recorded.items()
    }
    inner = Terminal(quiet=said.quiet, results=False, written=terminal.written)
    registered.execute(options, inner, {name: entry["path"] for name, entry in before.inputs.items()})
    after = manifests.read_manifest(out)
    old_files, new_files = before.files(), after.files()
    other = sorted(name for name in {**old_files, **new_files} if old_files.get(name) != new_files.get(name))
    terminal.document(
        {
            "command": "rerun",
            "repeated": before.command,
            "out": str(out),
            "identical": not other,
            "files": len(old_files),
            "different": other,
            "versions_changed": {name: list(pair) for name, pair in differing.items()},
        }
    )
    if other:
        contradiction = None if differing or kernels is not None else _contradiction(before, after, path.parent)
        if contradiction is not None:
            raise CommandError(
                f"{str(path)!r} was changed after the run that wrote it: {contradiction}. {some(other)} cannot be "
                "compared with what it says. Ask for the manifest as it was written, or give the command yourself."
            )
        raise CommandError(
            f"{len(other)} of {len(old_files)} files differ from those of {str(path)!r}: {some(other)}. They are in "
            f"{str(out)!r} for comparison." + _reason(differing, kernels),
            Code.OTHER_BYTES,
        )
    terminal.line(
        f"Identical: all {len(old_files)} files of {before.command!r} have the same bytes. Results: {out}/", "green"
    )


def _reason(versions: Mapping[str, Any], kernels: tuple[str, str] | None) -> str:
    """Known reasons why bytes may differ."""
    if versions:
        return " Other versions are installed, see above."
    if kernels is not None:
        return (
            f" The run used {kernels[0] or 'other linear algebra'}, {kernels[1]} is used here: fitted models and "
            "principal components can differ in their last digits."
        )
    return " Report this, unless the manifest was changed after it was written."


def _contradiction(before: Manifest, after: Manifest, folder: Path) -> str | None:
    """Name what in a manifest contradicts its options or the files beside it; None if nothing does."""
    for name in {**before.parameters, **after.parameters}:
        if before.parameters.get(name) != after.parameters.get(name):
            return f"its options do not give the {name!r} in its parameters"
    there = {name: folder / name for name in before.outputs if (folder / name).is_file()}
    wrong = [name for name, file in there.items() if manifests.digest(file) != before.outputs[name]]
    return f"{some(wrong)} beside it {'differs' if len(wrong) == 1 else 'differ'} from what it says" if wrong else None


def read_options(registered: Command, manifest: Manifest, path: Path) -> dict[type, Any]:
    """Read the options; refuse options and inputs that no run of the command records."""
    try:
        options = registered.rebuild(manifest.options, manifest.inputs)
        parse_method(options.get(Method, Method()).method)
        if Output in options and options[Output].seed != manifest.seed:
            raise InputError("it names two different seeds")
        return options
    except ValueError as error:
        raise CommandError(
            f"{str(path)!r} is not what this release records of 'shapshift {manifest.command}': {str(error)[:400]}. "
            "Nothing was run. Ask for the manifest as it was written, or give the command yourself."
        ) from None


def _places(given: Iterable[str], manifest: Manifest) -> tuple[dict[str, Path], list[Path]]:
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


def find_input(
    name: str, entry: Mapping[str, str], manifest: Path, named: Path | None, folders: Sequence[Path]
) -> Path:
    """Path of an input now; raises if it has changed."""
    from shapshift.tables import file_digest

    recorded, changed = Path(entry["path"]), None
    places: Iterable[Path] = _near(recorded, manifest.absolute().parent)
    where = "beside the manifest or here"
    if named is not None or folders:
        places = [named] if named is not None else (place for folder in folders for place in _below(folder, recorded))
        where = "in " + ", ".join(repr(str(place)) for place in ([named] if named is not None else folders))
    for place in places:
        try:
            found = file_digest(place)
        except (OSError, ValueError):
            continue
        if found == entry["sha256"]:
            return place
        if place.name == recorded.name or named is not None:
            changed = changed or (place, found)
    if changed is None:
        raise CommandError(
            f"The input {recorded.name!r} ({name}) is not {where}. Say where it is with --data FOLDER or --data "
            f"{name}=PATH."
        )
    place, found = changed
    raise CommandError(
        f"The input {str(place)!r} ({name}) has changed: the run read sha256 {entry['sha256'][:16]}..., now it is "
        f"{found[:16]}.... Restore the file, say where the old one is with --data {name}=PATH, or start a new run."
    )


def _near(recorded: Path, folder: Path) -> Iterator[Path]:
    """Possible paths of an input: below the folder of the results, or below the current folder, and nowhere else."""
    here = Path.cwd()
    for above in (folder, folder.parent, here):
        for place in (above / recorded, above / recorded.name):
            found = Path(os.path.normpath(place))
            if found.is_relative_to(here):
                yield found.relative_to(here)
            elif found.is_relative_to(folder.parent):
                yield found


def _below(folder: Path, recorded: Path) -> list[Path]:
    """Possible paths of an input in a folder, at any depth: files of its name first, then those of its ending."""
    places, length = [folder, *sorted(folder.rglob("*"))], manifests.pattern_length(recorded)
    if length:
        return [place.joinpath(*recorded.parts[-length:]) for place in places if place.is_dir()]
    alike = [place for place in places if place.suffix == recorded.suffix and (not place.suffix or place.is_file())]
    return [place for place in places if place.name == recorded.name] + alike
