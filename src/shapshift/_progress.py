"""One progress bar for everything long."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress_bar(label: str, total: int, enabled: bool | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar.

    Parameters
    ----------
    label : str
        What is being done.
    total : int
        Number of steps.
    enabled : bool or None
        None shows the bar in a terminal and stays silent in a pipe.
    """
    if enabled is None:
        enabled = sys.stderr.isatty()
    if not enabled:
        yield lambda steps: None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    # A bar that was asked for is drawn in a pipe too.
    console = Console(stderr=True, force_terminal=True)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)
