"""How a function becomes a command: option groups are spread out for typer and put together again for the function."""

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

import typer
from rich.markup import escape

from shapshift.checks.names import some
from shapshift.cli._errors import MEANINGS, clear_errors
from shapshift.cli._options import Method, for_typer, read_record, recorded
from shapshift.cli._run import Run
from shapshift.cli._terminal import Terminal
from shapshift.exceptions import InputError

app = typer.Typer(
    name="shapshift",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@dataclass(frozen=True)
class Command:
    """A registered command.

    Attributes
    ----------
    name : str
    function : callable
        Takes a Run (or a Terminal, if it writes no results) and one object per group.
    groups : mapping of str to class
        Parameter to group of options.
    writes : bool
        Whether it leaves a folder of results with a manifest.
    replaces_own : bool
        Whether results of its own earlier run are replaced without --force.
    """

    name: str
    function: Callable[..., None]
    groups: Mapping[str, type]
    writes: bool
    replaces_own: bool = False

    def execute(
        self, groups: Mapping[str, Any], terminal: Terminal, called: Mapping[str, str] | None = None
    ) -> Run | None:
        """Run the command; ``groups`` are by parameter, ``called`` are names of inputs to show instead of their own."""
        if not self.writes:
            self.function(terminal, **groups)
            return None
        named = {type(group).__name__: group for group in groups.values()}
        method = named.get("Method", Method())
        run = Run(self.name, named, terminal, replaces_own=self.replaces_own, called=called)
        with run, _connected(method.cluster):
            self.function(run, **groups)
            run.finish()
            return run

    @property
    def repeatable(self) -> bool:
        """Whether its runs leave a manifest: it has options that are recorded."""
        return any(recorded(group) for group in self.groups.values())

    def inputs(self) -> list[str]:
        """Names of the recorded options that are paths."""
        known = {name: kind for group in self.groups.values() for name, kind in recorded(group).items()}
        return [name for name, kind in known.items() if Path in (kind, *get_args(kind))]

    def rebuild(self, options: Mapping[str, Any], inputs: Mapping[str, Path]) -> dict[str, Any]:
        """Option groups from a manifest, by parameter.

        Raises
        ------
        ValueError
            If the options are not such as a run of this command records.
        """
        strange = [name for name in options if name not in {group.__name__ for group in self.groups.values()}]
        if strange:
            raise InputError(f"it sets {some(strange)}, which 'shapshift {self.name}' does not have")
        return {
            parameter: group(**read_record(group, options.get(group.__name__, {}), inputs))
            for parameter, group in self.groups.items()
        }


@contextmanager
def _connected(cluster: str) -> Iterator[None]:
    if cluster == Method().cluster:
        yield
        return
    from shapshift.engine.clusters import connected

    with connected(cluster):
        yield


COMMANDS: dict[str, Command] = {}


def command(
    name: str, *, examples: Sequence[str], writes: bool = True, replaces_own: bool = False, panel: str = "Commands"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Register a function as a command.

    Parameters
    ----------
    name : str
    examples : sequence of str
        Command lines for the help.
    writes : bool
        Whether the function takes a Run and leaves results, or a Terminal and only says something.
    replaces_own : bool
        Whether results of an earlier run of this command are replaced without --force.
    panel : str
        Where the command stands in the help.
    """

    def register(function: Callable[..., None]) -> Callable[..., None]:
        hints = get_type_hints(function)
        parameters = list(inspect.signature(function).parameters)[1:]
        groups_of = {parameter: hints[parameter] for parameter in parameters}
        registered = Command(name, function, groups_of, writes, replaces_own)
        COMMANDS[name] = registered

        def invoke(**given: Any) -> None:
            groups = {parameter: group(**_own(group, given)) for parameter, group in registered.groups.items()}
            terminal = Terminal(json=given["json"], quiet=given.get("quiet", False))
            with clear_errors(terminal, debug=given["debug"]):
                registered.execute(groups, terminal)

        spread = _spread(registered.groups.values())
        # typer reads the signature; functions have no such attribute until they are given one.
        invoke.__signature__ = inspect.Signature(spread)  # type: ignore[attr-defined]
        invoke.__annotations__ = {parameter.name: parameter.annotation for parameter in spread}
        app.command(name, help=_help(function, examples), rich_help_panel=panel)(invoke)
        return function

    return register


def _spread(groups: Iterable[type]) -> list[inspect.Parameter]:
    """One parameter for each option of all groups."""
    return [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=inspect.Parameter.empty if default is MISSING else default,
            annotation=annotation,
        )
        for group in groups
        for name, (annotation, default) in for_typer(group).items()
    ]


def _own(group: type, given: Mapping[str, Any]) -> dict[str, Any]:
    return {field.name: given[field.name] for field in fields(group) if field.name in given}


def _help(function: Callable[..., None], examples: Sequence[str]) -> str:
    paragraphs = inspect.cleandoc(function.__doc__ or "").split("\n\n")
    said = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    shown = "\n\n".join(f"  [cyan]$[/] {escape(line)}" for line in examples)
    return f"{said}\n\n[bold]Examples[/]\n\n{shown}"


def exit_codes() -> str:
    """Exit codes for the help."""
    return "[bold]Exit codes[/]\n\n" + "\n\n".join(f"  {code.value:>3}  {text}" for code, text in MEANINGS.items())
