"""The application: all commands, and what happens before any of them runs."""

from importlib.metadata import version
from typing import Annotated

import typer

from shapshift.cli import (
    about,
    clean,
    correct,
    demo,
    duplicates,
    explain,
    market,
    market_stress,
    price,
    rerun,
    suspects,
    validation,
    value,
)
from shapshift.cli import (
    app as page,
)
from shapshift.cli._commands import app
from shapshift.cli._errors import Code

__all__ = ["app"]

# Importing a module registers its commands.
MODULES = (
    *(
        about,
        page,
        clean,
        correct,
        demo,
        duplicates,
        explain,
        market,
        market_stress,
        price,
        rerun,
        suspects,
        validation,
    ),
    value,
)
# Order in the help: the order of use.
ORDER = (
    *(
        "value",
        "explain",
        "suspects",
        "clean",
        "audit",
        "correct",
        "price",
        "report",
        "app",
        "duplicates",
        "cases",
        "design",
    ),
    *("demo", "datasets", "methods", "doctor", "rerun"),
)
app.registered_commands.sort(key=lambda registered: ORDER.index(registered.name or ""))


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"shapshift {version('shapshift')}")
        raise typer.Exit


@app.callback(epilog="\n\n".join(["[bold]Exit codes[/]", *(f"  {code:>3}  {code.meaning}" for code in Code)]))
def root(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Value training rows, measure how much the values depend on the validation set, correct them, and price them.

    From two files to one page: [cyan]shapshift report train.parquet val.parquet --label y[/]
    """
