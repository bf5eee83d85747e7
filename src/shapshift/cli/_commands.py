"""Functions become commands: typer gets the options of all groups one by one, and the run gets the groups."""

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import typer
from rich.markup import escape

from shapshift.checks.names import some
from shapshift.cli._errors import clear_errors
from shapshift.cli._options import Method, Said, is_path, parameters, read_record, recorded
from shapshift.cli._run import Run
from shapshift.cli._terminal import Terminal
from shapshift.exceptions import InputError

HELP = {"help_option_names": ["-h", "--help"]}
app = typer.Typer(
    name="shapshift",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings=HELP,
)


@dataclass(frozen=True)
class Command:
    """A registered command.

    Attributes
    ----------
    name : str
    function : callable
        Takes a Run.
    groups : tuple of type
        Groups of options.
    writes : bool
        Whether it always writes a results folder with a manifest.
    replaces_own : bool
        Whether it replaces results of its own earlier run without --force.
    """

    name: str
    function: Callable[[Run], None]
    groups: tuple[type, ...]
    writes: bool
    replaces_own: bool

    def execute(self, options: Mapping[type, Any], terminal: Terminal, called: Mapping[str, str] | None = None) -> None:
        """Run the command; ``called`` maps inputs to the names to show for them."""
        run = Run(self.name, options, terminal, replaces_own=self.replaces_own, called=called)
        if not self.writes:
            self.function(run)
            return
        with run, _connected(run[Method].cluster):
            self.function(run)
            run.finish()

    def recorded(self) -> dict[str, Any]:
        """Options that are recorded, with their types."""
        return {name: kind for group in self.groups for name, kind in recorded(group).items()}

    def inputs(self) -> list[str]:
        """Names of the recorded options that are paths."""
        return [name for name, kind in self.recorded().items() if is_path(kind)]

    def rebuild(self, given: Mapping[str, Any], inputs: Collection[str]) -> dict[type, Any]:
        """Option groups rebuilt from a manifest; ``inputs`` are the names of its inputs.

        Raises
        ------
        ValueError
            If runs of this command do not record such options.
        """
        groups = [group.__name__ for group in self.groups]
        for what, names, known in (("names the inputs", inputs, self.inputs()), ("sets", given, groups)):
            strange = [name for name in names if name not in known]
            if strange:
                raise InputError(f"it {what} {some(strange)}, which 'shapshift {self.name}' does not have")
        return {group: read_record(group, given.get(group.__name__, {}), inputs) for group in self.groups}


def _connected(cluster: str) -> AbstractContextManager[None]:
    if cluster == Method().cluster:
        return nullcontext()
    from shapshift.engine.clusters import connected

    return connected(cluster)


COMMANDS: dict[str, Command] = {}
#: Help of the groups of commands, such as ``market`` of ``market open``.
GROUPS = {"market": "Payment rounds recorded in a ledger, and what tricks would gain."}


@cache
def _group(name: str) -> typer.Typer:
    """Return the application of a command group, or the whole application if no group is given."""
    if not name:
        return app
    group = typer.Typer(no_args_is_help=True, rich_markup_mode="rich", context_settings=HELP)
    app.add_typer(group, name=name, help=GROUPS[name], rich_help_panel="Commands")
    return group


def command(
    name: str,
    *groups: type,
    examples: Sequence[str],
    writes: bool = True,
    replaces_own: bool = False,
    panel: str = "Commands",
) -> Callable[[Callable[[Run], None]], Callable[[Run], None]]:
    """Register a function as a command.

    Parameters
    ----------
    name : str
        Name of the command, after that of its group if it has one, such as "market open".
    *groups : type
        Groups of options, in the order of the help; those of :class:`Said` are added at the end.
    examples : sequence of str
        Command lines for the help.
    writes : bool
        Whether results are started before the function and finished after it; otherwise the function does both.
    replaces_own : bool
        Whether results of an earlier run of this command are replaced without --force.
    panel : str
        Panel of the help that lists the command.
    """
    groups = (*groups, Said)

    def register(function: Callable[[Run], None]) -> Callable[[Run], None]:
        registered = COMMANDS[name] = Command(name, function, groups, writes, replaces_own)

        def invoke(**given: Any) -> None:
            options = {group: group(**{each.name: given[each.name] for each in fields(group)}) for group in groups}
            terminal = Terminal(json=given["json"], quiet=given["quiet"])
            with clear_errors(terminal, debug=given["debug"]):
                registered.execute(options, terminal)

        spread = [parameter for group in groups for parameter in parameters(group)]
        # typer reads the signature; functions have no such attribute until they are given one.
        invoke.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
        invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
        group, _, own = name.rpartition(" ")
        _group(group).command(own, help=_help(function, examples), rich_help_panel=panel)(invoke)
        return function

    return register


def _help(function: Callable[[Run], None], examples: Sequence[str]) -> str:
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    said = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    shown = "\n\n".join(f"  [cyan]$[/] {escape(line)}" for line in examples)
    return f"{said}\n\n[bold]Examples[/]\n\n{shown}"
