"""One progress bar for everything long."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text


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
        enabled = sys.stderr is not None and sys.stderr.isatty()
    if not enabled:
        yield lambda steps: None
        return
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        RateColumn(),
        TimeRemainingColumn(elapsed_when_finished=True),
    )
    # A bar that was asked for is drawn in a pipe too.
    console = Console(stderr=True, force_terminal=True)
    with Progress(*columns, console=console) as bar:
        task = bar.add_task(label, total=total)
        yield lambda steps: bar.advance(task, steps)


class RateColumn(ProgressColumn):
    """Steps per second, or seconds per step where those are long."""

    def render(self, task: Task) -> Text:
        """Write the rate; nothing before there is one."""
        speed = task.finished_speed or task.speed
        if not speed and task.elapsed:  # too few updates for a recent speed
            speed = task.completed / task.elapsed
        return Text(show_rate(speed), style="progress.data.speed")


def show_rate(speed: float | None) -> str:
    """Write a speed in steps per second for people.

    Examples
    --------
    >>> show_rate(1234.5), show_rate(12.34), show_rate(0.25), show_rate(None)
    ('1,234/s', '12.3/s', '4.0 s each', '')
    """
    if not speed:
        return ""
    if speed < 1:
        return f"{1 / speed:.1f} s each"
    return f"{speed:,.0f}/s" if speed >= 100 else f"{speed:.1f}/s"
