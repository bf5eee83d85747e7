"""``shapshift methods``."""

import inspect
from typing import Any

from shapshift.cli._commands import command
from shapshift.cli._terminal import Terminal
from shapshift.cli.about import PANEL, Said
from shapshift.methods import METHODS


@command(
    "methods",
    writes=False,
    panel=PANEL,
    examples=["shapshift methods", "shapshift value train.csv val.csv --label price --method regression:baseline=zero"],
)
def methods(terminal: Terminal, said: Said) -> None:
    """List the methods that --method takes, with their parameters and defaults."""
    found: list[dict[str, Any]] = []
    for name, entry in METHODS.items():
        parameters = {
            key: None if parameter.default is inspect.Parameter.empty else str(parameter.default)
            for key, parameter in entry.parameters().items()
        }
        found.append({"name": name, "what": entry.text, "example": entry.example, "parameters": parameters})
    terminal.document({"command": "methods", "methods": found})
    terminal.table(
        "Methods", ["name", "what", "for instance"], [[one["name"], one["what"], one["example"]] for one in found]
    )
    for one in found:
        parts = [key if default is None else f"{key}={default}" for key, default in one["parameters"].items()]
        terminal.line(f"{one['name']}: {', '.join(parts)}")
