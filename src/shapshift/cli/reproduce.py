"""``shapshift reproduce``."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from shapshift._files import write_text
from shapshift.cli import _manifest as manifests
from shapshift.cli._commands import command
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._folder import writing
from shapshift.cli._manifest import MANIFEST
from shapshift.cli._options import OUTPUT, option
from shapshift.cli._terminal import Terminal
from shapshift.reproduce import FULL, QUICK, run_reproduction
from shapshift.reproduce._settings import DATASETS

PANEL = "Experiments"


@dataclass(frozen=True)
class Reproduction:
    """What to run again, and where results go."""

    quick: Annotated[bool, option("--quick", panel=PANEL, text="Smaller sets and fewer seeds: a minute or two.")] = (
        False
    )
    dataset: Annotated[
        list[str] | None,
        option("--dataset", panel=PANEL, metavar="NAME", text=f"Only these: {', '.join(DATASETS)}."),
    ] = None
    data_dir: Annotated[
        Path | None,
        option(
            "--data-dir", panel=PANEL, metavar="FOLDER", text="Folder of the real datasets.", envvar="SHAPSHIFT_DATA"
        ),
    ] = None
    out: Annotated[Path, option("--out", "-o", panel=OUTPUT, metavar="FOLDER", text="Folder for the results.")] = Path(
        "reproduction"
    )
    force: Annotated[bool, option("--force", "-f", panel=OUTPUT, text="Run again although it is finished.")] = False
    json: Annotated[bool, option("--json", panel=OUTPUT, text="Print one JSON document on stdout.")] = False
    quiet: Annotated[bool, option("--quiet", "-q", panel=OUTPUT, text="Say nothing but warnings and errors.")] = False
    debug: Annotated[
        bool, option("--debug", envvar="SHAPSHIFT_DEBUG", panel=OUTPUT, text="Show the traceback of an error.")
    ] = False


@command(
    "reproduce",
    writes=False,
    panel="Research",
    examples=["shapshift reproduce --quick", "shapshift reproduce --data-dir data --out reproduction"],
)
def reproduce(terminal: Terminal, options: Reproduction) -> None:
    """Run every experiment of the paper again and judge its claims.

    Writes tables, figures and a page of claims. An interrupted run goes on where it stopped when it is started again
    with the same folder.
    """
    unknown = [name for name in options.dataset or [] if name not in DATASETS]
    if unknown:
        raise CommandError(f"--dataset must be one of {', '.join(DATASETS)}. Got {unknown[0]!r}.")
    if manifests.earlier(options.out, "reproduce") is not None and not options.force:
        raise CommandError(
            f"{str(options.out)!r} holds a finished reproduction. Name another folder with --out, or use --force.",
            Code.EXISTS,
        )
    with writing(options.out):
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / MANIFEST).unlink(missing_ok=True)
    settings = replace(QUICK if options.quick else FULL, datasets=tuple(options.dataset or DATASETS))
    page = run_reproduction(
        options.out,
        settings=settings,
        data_dir=None if options.data_dir is None else str(options.data_dir),
        progress=terminal.progress,
    )
    files = sorted(path for path in options.out.rglob("*") if path.is_file() and path.parent.name != "cells")
    outputs = {path.relative_to(options.out).as_posix(): manifests.digest(path) for path in files}
    kept = {"quick": options.quick, "dataset": options.dataset}
    manifest = manifests.Manifest(
        command="reproduce",
        options={"Reproduction": kept},
        inputs={},
        parameters={"settings": settings.digest, "datasets": list(settings.datasets)},
        seed=0,
        versions=manifests.versions(),
        outputs=outputs,
        report=None,
    )
    with writing(options.out):
        write_text(options.out / MANIFEST, manifest.to_json())
    terminal.document(
        {"command": "reproduce", "out": str(options.out), "files": [*outputs, MANIFEST], "page": str(page)}
    )
    terminal.line(f"Page of claims: {page}", style="bold")
