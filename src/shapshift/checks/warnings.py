"""Warnings that point at the caller's line, and warnings of others that are collected."""

import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HOME = str(Path(__file__).parents[1])


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn, naming the first line outside this package on the way up.

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
    """Collect what this thread warns of, as text, whatever filters are set.

    ``warnings.catch_warnings`` exchanges filters of the whole process and puts them back in the order in which threads
    happen to leave it: with several threads warnings go to the wrong one, and the filters of one may stay for good.
    Here the first thread to come sets them, the last one to go puts them back, and in between each hears its own.

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
    """The threads that collect warnings at the moment."""

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
