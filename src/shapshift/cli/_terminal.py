"""Terminal output: results on stdout, everything else on stderr. Text from data is never read as markup."""

import json
import math
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from rich import box
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from shapshift.checks.names import visible

# Without a terminal there is no width to fit into; tables must not be cut.
PIPE_WIDTH = 200
LONGEST = 60


class Terminal:
    """The two streams of a command.

    Parameters
    ----------
    json : bool
        Print one JSON document on stdout instead of text.
    quiet : bool
        Only warnings and errors are shown.
    results : bool
        Whether anything at all goes to stdout.
    written : list of str, optional
        Folders that already hold results of the command, so that a later error can name them.
    """

    def __init__(
        self, *, json: bool = False, quiet: bool = False, results: bool = True, written: list[str] | None = None
    ) -> None:
        self.json, self.quiet = json, quiet
        self.written: list[str] = [] if written is None else written
        self._text = results and not (json or quiet)
        self._held: list[tuple[Any, bool]] | None = None
        self._out = _console(sys.stdout, stderr=False)
        self._err = _console(sys.stderr, stderr=True)

    @property
    def progress(self) -> bool | None:
        """Value of ``progress``: off when quiet, otherwise on in a terminal only."""
        return False if self.quiet else None

    def line(self, text: str | Text = "", style: str = "") -> None:
        """Print a line of the result."""
        if self._text:
            self._say(text if isinstance(text, Text) else Text(safe(text), style=style), soft_wrap=True)

    def table(self, title: str, rows: Sequence[Mapping[str, Any]], styles: Sequence[str] = ()) -> None:
        """Print a table, unless it has no rows.

        Parameters
        ----------
        title : str
        rows : sequence of mappings
            Heading to cell. A ``>`` in front of a heading aligns the column to the right.
        styles : sequence of str, optional
            One per row.
        """
        if not self._text or not rows:
            return
        table = Table(title=Text(safe(title), style="bold"), box=box.SIMPLE_HEAD, title_justify="left", pad_edge=False)
        for name in rows[0]:
            side: Literal["left", "right"] = "right" if name.startswith(">") else "left"
            table.add_column(Text(safe(name.removeprefix(">"))), justify=side, overflow="fold")
        for row, style in zip(rows, styles or [""] * len(rows), strict=True):
            table.add_row(*(cell_text(cell, style) for cell in row.values()))
        self._say(table, soft_wrap=False)

    def hold(self) -> None:
        """Keep results back until :meth:`release`: they are printed once they are also written."""
        self._held = []

    def release(self) -> None:
        """Print what was held back."""
        held, self._held = self._held or [], None
        for what, soft_wrap in held:
            self._say(what, soft_wrap=soft_wrap)

    def _say(self, what: Any, *, soft_wrap: bool) -> None:
        if self._held is None:
            self._out.print(what, soft_wrap=soft_wrap)
        else:
            self._held.append((what, soft_wrap))

    def document(self, content: Mapping[str, Any]) -> None:
        """Print the JSON document, when that was asked for."""
        if self.json:
            # Letters that another encoding lacks would be escaped in a way that is not JSON.
            escape = not (sys.stdout.encoding or "").lower().startswith("utf")
            sys.stdout.write(json.dumps(plain(content), indent=2, ensure_ascii=escape, allow_nan=False) + "\n")
            sys.stdout.flush()

    def note(self, text: str) -> None:
        """Print a remark, unless quiet."""
        if not self.quiet:
            self._err.print(Text(safe(text), style="dim"), soft_wrap=not self._err.is_terminal)

    def warning(self, text: str) -> None:
        """Print a note that may matter."""
        said = Text.assemble(("Note: ", "yellow"), safe(text))
        self._err.print(said, soft_wrap=not self._err.is_terminal)

    def error(self, text: str, title: str = "Error") -> None:
        """Print the error that ends the command."""
        if self._err.is_terminal:
            self._err.print(Panel(Text(safe(text)), title=title, title_align="left", border_style="red"))
        else:
            self._err.print(Text(f"{title}: {safe(text)}"), soft_wrap=True)

    def trace(self, text: str) -> None:
        """Print a traceback."""
        self._err.print(Text(safe(text)), soft_wrap=True)

    @contextmanager
    def busy(self, text: str) -> Iterator[None]:
        """Show a spinner while work of unknown length runs."""
        if self.quiet or not self._err.is_terminal:
            yield
            return
        with self._err.status(Text(safe(text))):
            yield


def safe(text: str) -> str:
    """Text with control characters spelled out: a name must not move the cursor or change colours."""
    return visible(text, keep="\n")


def cell_text(cell: Any, style: str) -> Text:
    """Write one cell; text that was made here comes as Text and is left alone."""
    return cell if isinstance(cell, Text) else Text(shorten(str(cell)), style=style)


def shorten(text: str) -> str:
    """One cell of a table, escaped and cut to a readable length."""
    text = safe(text)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


def plain(content: Any) -> Any:
    """Turn a result into JSON types; NaN and infinite numbers become null."""
    if isinstance(content, Mapping):
        return {str(key): plain(entry) for key, entry in content.items()}
    if isinstance(content, list | tuple | set | frozenset):
        return [plain(entry) for entry in content]
    if hasattr(content, "tolist"):  # an array or a number of NumPy
        return plain(content.tolist())
    if isinstance(content, float):
        return content if math.isfinite(content) else None
    if content is None or isinstance(content, str | int | bool):
        return content
    return str(content)


def _console(stream: Any, *, stderr: bool) -> Console:
    wide = not stream.isatty() and "COLUMNS" not in os.environ
    return Console(stderr=stderr, highlight=False, width=PIPE_WIDTH if wide else None)
