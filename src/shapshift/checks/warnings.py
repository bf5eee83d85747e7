"""Warnings that point at the caller's line, and collection of warnings of other code."""

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HOME = str(Path(__file__).parents[1])


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the first line of the call stack outside this package.

    Parameters
    ----------
    message : str
    category : type of Warning
    """
    level = 2
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_HOME):
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)


@contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collect the warnings of this thread, as text, regardless of filters.

    ``warnings.catch_warnings`` replaces the filters of the whole process and restores them in the order in which
    threads leave it. With several threads, warnings go to the wrong one, and the filters of one may remain. Here the
    first thread to enter sets the filters, the last to leave restores them, and each collects its own warnings.

    Examples
    --------
    >>> with collected_warnings() as heard:
    ...     warnings.warn("too hot", stacklevel=1)
    >>> heard
    ['UserWarning: too hot']
    """
    heard: list[str] = []
    outer = getattr(_ears, "heard", None)
    _ears.heard = heard
    _Everyone.come()
    try:
        yield heard
    finally:
        _Everyone.go()
        _ears.heard = outer


_ears = threading.local()


class _Everyone:
    """The threads that are collecting warnings."""

    lock = threading.Lock()
    present = 0
    before: Any = None
    show: Any = None

    @classmethod
    def come(cls) -> None:
        with cls.lock:
            if cls.present == 0:
                cls.show = warnings.showwarning
                cls.before = warnings.catch_warnings()
                cls.before.__enter__()
                warnings.simplefilter("always")
                warnings.showwarning = cls.hear
            cls.present += 1

    @classmethod
    def go(cls) -> None:
        with cls.lock:
            cls.present -= 1
            if cls.present == 0:
                cls.before.__exit__(None, None, None)

    @classmethod
    def hear(cls, message: Any, category: type[Warning], *where: Any, **more: Any) -> None:
        heard = getattr(_ears, "heard", None)
        if heard is None:  # a thread that does not collect
            cls.show(message, category, *where, **more)
        else:
            heard.append(f"{category.__name__}: {message}")
