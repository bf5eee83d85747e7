"""The progress bar of all long operations; it leaves one line."""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

# Seconds between two updates of a bar in a notebook, where updates are expensive.
NOTEBOOK_STEP = 0.5
#: Who is told of progress instead of a terminal: ``told(label, done, total)``.
_WATCHER: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("watcher", default=None)


@contextmanager
def watched(told: Callable[[str, int, int], None]) -> Iterator[None]:
    """Tell a function of the progress of what is done in this thread meanwhile; no bar is drawn.

    Parameters
    ----------
    told : callable
        ``told(label, done, total)``, of the outermost bar; it may be called by several threads, one at a time. An error
        that it raises ends the work, which is how work is cancelled.

    Examples
    --------
    >>> with watched(lambda *said: print(*said)), progress_bar("Counting", 2, None) as advance:
    ...     advance(1)
    ...     advance(1)
    Counting 0 2
    Counting 1 2
    Counting 2 2
    """
    token = _WATCHER.set(told)
    try:
        yield
    finally:
        _WATCHER.reset(token)


@contextmanager
def _told_bar(told: Callable[[str, int, int], None], label: str, total: int) -> Iterator[Callable[[int], None]]:
    """Yield a function that tells a watcher; bars inside say where this one stands."""
    done, lock = 0, threading.Lock()

    def advance(steps: int) -> None:
        nonlocal done
        with lock:
            done += steps
            told(label, done, total)

    advance(0)
    with watched(lambda *_: advance(0)):
        yield advance


@contextmanager
def progress_bar(label: str, total: int, enabled: bool | None) -> Iterator[Callable[[int], None]]:
    """Yield a function that advances the bar; at the end, one line reports the work done and the time taken.

    In a terminal, the line replaces the bar. In a notebook, the line itself is updated. If standard error goes to a
    file or a pipe, only the last line is written, without control characters.

    Parameters
    ----------
    label : str
        Name of the work.
    total : int
        Number of steps.
    enabled : bool or None
        None shows the bar in terminals and notebooks, and stays silent in files and pipes.
    """
    told = _WATCHER.get()
    if told is not None:
        with _told_bar(told, label, total) as advance_told:
            yield advance_told
        return
    terminal = sys.stderr is not None and sys.stderr.isatty()
    notebook = type(sys.stderr).__module__.startswith("ipykernel")
    if not (terminal or notebook if enabled is None else enabled):
        yield lambda steps: None
        return
    start, done, shown = time.monotonic(), 0, -NOTEBOOK_STEP

    def line() -> str:
        return report(label, done, total, time.monotonic() - start)

    def advance(steps: int) -> None:
        nonlocal done, shown
        done += steps
        if terminal:
            bar.advance(task, steps)
        elif notebook and time.monotonic() - shown >= NOTEBOOK_STEP:
            print(f"\r{line()}", end="", file=sys.stderr, flush=True)
            shown = time.monotonic()

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), RateColumn())
    bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True)
    task = bar.add_task(label, total=total)
    try:
        # Old releases of rich write an empty line for a bar outside a terminal, even a disabled one.
        with bar if terminal else nullcontext():
            yield advance
    finally:
        if sys.stderr is not None:
            # Spaces cover what a longer state has left in a notebook.
            print(f"\r{line():<79}" if notebook else line(), file=sys.stderr, flush=True)


class RateColumn(ProgressColumn):
    """Steps per second, or seconds per step where those are long."""

    def render(self, task: Task) -> Text:
        """Write the rate; nothing while it is unknown."""
        speed = task.finished_speed or task.speed
        if not speed and task.elapsed:  # too few updates for a recent speed
            speed = task.completed / task.elapsed
        return Text(show_rate(speed), style="progress.data.speed")


def report(label: str, done: int, total: int, seconds: float) -> str:
    """Report the work done and the time taken; a run that ended early shows the steps that it finished.

    Examples
    --------
    >>> report("Valuing", 1200, 1200, 3.21)
    'Valuing: 1,200/1,200 in 3.2 s (374/s)'
    >>> report("Auditing", 7, 60, 754.0)
    'Auditing: 7/60 in 12 min 34 s (107.7 s each)'
    """
    minutes, rest = divmod(round(seconds), 60)
    took = f"{seconds:.1f} s" if seconds < 60 else f"{minutes} min {rest} s"
    if minutes >= 60:
        took = f"{minutes // 60} h {minutes % 60} min"
    rate = show_rate(done / seconds if seconds > 0 else None)
    return f"{label}: {done:,}/{total:,} in {took}{f' ({rate})' if rate else ''}"


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
