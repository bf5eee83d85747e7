"""Names and values in messages."""

import sys
import unicodedata
from collections.abc import Sequence
from typing import Any


def some(names: Sequence[Any]) -> str:
    """Quote the first few names."""
    shown = ", ".join(map(quoted, names[:5]))
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"


def quoted(value: Any) -> str:
    """Representation of a value for messages, with plain numbers for NumPy's: 2, not np.int64(2)."""
    numpy = sys.modules.get("numpy")  # if it is not loaded, no value can be of its types
    if numpy is not None and isinstance(value, numpy.generic):
        # Dates of some units have no plain form.
        return repr(value.item()) if value.dtype.kind not in "mM" else repr(str(value))
    if type(value) is list:
        return f"[{', '.join(map(quoted, value))}]"
    if type(value) is tuple:
        return f"({', '.join(map(quoted, value))}{',' * (len(value) == 1)})"
    if type(value) is dict:
        return f"{{{', '.join(f'{quoted(key)}: {quoted(entry)}' for key, entry in value.items())}}}"
    return repr(value)


#: They belong to the spelling of some scripts.
JOINERS = "\N{ZERO WIDTH NON-JOINER}\N{ZERO WIDTH JOINER}"


def visible(text: str, keep: str = "\t\n\r" + JOINERS) -> str:
    r"""Escape characters that move the cursor, reverse a line, or make two names look alike.

    Parameters
    ----------
    text : str
    keep : str
        Such characters that are kept; by default those that a page can display.

    Examples
    --------
    >>> visible("abc\u202edef")
    'abc\\u202edef'
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _hidden(c) and c not in keep else c for c in text)


def _hidden(character: str) -> bool:
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Zl", "Zp")
