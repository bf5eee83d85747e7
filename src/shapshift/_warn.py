"""Warnings that point at the caller's line."""

import sys
import warnings
from pathlib import Path

_HOME = str(Path(__file__).parent)


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
