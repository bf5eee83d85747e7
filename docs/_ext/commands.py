"""The reference of the command line, written from the application itself: a page for each command, every option."""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typer.main import get_command

if TYPE_CHECKING:  # the tests read these pages without Sphinx
    from sphinx.application import Sphinx

FOLDER = Path("reference", "commands")
MARKUP = re.compile(r"\[/?(?:bold|cyan|dim|italic)?\]")
HEADING = re.compile(r"\[bold\](\w[\w ]*)\[/\]")
SAMPLE = re.compile(r" *\[cyan\]\$\[/\] *(.*)")
SPECIAL = re.compile(r"([\\`*_|<])")
CODE = re.compile(r"\[(?:bold|cyan)\](.+?)\[/\]")


def all_commands() -> Iterator[tuple[str, Any]]:
    """Names and commands, in the order of the help; those of a group as ``group command``."""
    from shapshift.cli._app import app

    for name, command in get_command(app).commands.items():  # type: ignore[attr-defined]
        if hasattr(command, "commands"):
            yield from ((f"{name} {inner}", each) for inner, each in command.commands.items())
        else:
            yield name, command


def escape(text: str) -> str:
    """Write text so that reStructuredText takes none of it for markup."""
    return SPECIAL.sub(r"\\\1", text)


def takes(parameter: Any) -> str:
    """Name what follows an option; nothing for a flag."""
    if getattr(parameter, "is_flag", False):
        return ""
    kind = parameter.type_descriptor.annotation
    if typing.get_origin(kind) is list:
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is typing.Literal:
        return "|".join(map(str, typing.get_args(kind)))
    return parameter.metavar or {int: "N", float: "X"}.get(kind, "TEXT")


def described(parameter: Any) -> str:
    """Return the help of an option with its bounds and default."""
    bounds = {"at least": getattr(parameter, "min", None), "at most": getattr(parameter, "max", None)}
    default = getattr(parameter, "default", None)
    notes = [f"{what} {bound}" for what, bound in bounds.items() if bound is not None]
    if parameter.required:
        notes.append("required")
    elif default not in (None, False, (), []) and not callable(default):
        notes.append(f"default: {','.join(map(str, default)) if isinstance(default, list | tuple) else default}")
    if getattr(parameter, "multiple", False):
        notes.append("may be repeated")
    if getattr(parameter, "envvar", None):
        notes.append(f"environment variable: {parameter.envvar}")
    text = MARKUP.sub("", parameter.help or "")
    return escape(text) + (f" [{escape('; '.join(notes))}]" if notes else "")


def prose(text: str) -> Iterator[str]:
    """Turn the help of a command into reStructuredText; its example lines become one block of code."""
    samples: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text):
        if sample := SAMPLE.fullmatch(paragraph.rstrip()):
            samples.append(sample[1])
        elif not HEADING.fullmatch(paragraph.strip()):
            pieces = CODE.split(" ".join(paragraph.split()))
            yield "".join(
                f"``{piece}``" if odd % 2 else escape(MARKUP.sub("", piece)) for odd, piece in enumerate(pieces)
            )
            yield ""
    if samples:
        yield from (".. code-block:: console", "", *(f"   $ {line}" for line in samples), "")


def page(name: str, command: Any) -> str:
    """Write a page of the reference."""
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option" and not each.hidden]
    usage = " ".join(["shapshift", name, "[OPTIONS]", *(each.metavar or each.name.upper() for each in arguments)])
    lines = [f".. _command-{name.replace(' ', '-')}:", "", name, "=" * len(name), "", *prose(command.help or "")]
    lines += [".. code-block:: text", "", f"   {usage}", "", f".. program:: shapshift {name}", ""]
    if arguments:
        lines += ["Arguments", "---------", ""]
        for each in arguments:
            lines += [f"``{each.metavar or each.name.upper()}``", f"    {described(each)}", ""]
    panels: dict[str, list[Any]] = {}
    for each in options:
        panels.setdefault(each.rich_help_panel or "Options", []).append(each)
    for panel, members in panels.items():
        lines += [panel, "-" * len(panel), ""]
        for each in members:
            what = takes(each)
            names = ", ".join(f"{flag} {what}".rstrip() for flag in [*each.opts, *each.secondary_opts])
            lines += [f".. option:: {names}", "", f"   {described(each)}", ""]
    return "\n".join(lines)


def write_pages(app: Sphinx) -> None:
    """Write the pages; one that would not change keeps its time, so that a second build is fast."""
    folder = Path(app.srcdir) / FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    pages = {f"{name.replace(' ', '_')}.rst": page(name, command) for name, command in all_commands()}
    for old in set(folder.iterdir()) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        if not (folder / name).is_file() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before sources are looked for."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
