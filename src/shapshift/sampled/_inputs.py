"""What comes in besides tables: owners, targets, functions; and the hashes by which data are told apart."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse


def check_players(players: Any, n_rows: int) -> Any:
    """Refuse more or fewer owners than rows before they are matched."""
    size = len(players) if hasattr(players, "__len__") and not isinstance(players, str) else n_rows
    if size != n_rows:
        raise ValueError(
            f"The 'players' parameter must name the owner of each of the {n_rows} training rows, so there cannot be "
            f"more owners than rows. Got {size} entries; pass one per row, in their order."
        )
    return players


def check_numbers(labels: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    """Refuse targets that are no numbers."""
    try:
        return labels.astype(np.float64)
    except (TypeError, ValueError):
        raise ValueError(
            f"{name!r} must hold numbers for a regressor. Got {labels[0]!r}; use a classifier for such labels."
        ) from None


def name_of(utility: Any) -> str:
    """Write a utility: its name, or where a function comes from."""
    if isinstance(utility, str):
        return utility
    return f"{utility.__module__}.{getattr(utility, '__qualname__', type(utility).__qualname__)}"


def identity_of(utility: Any) -> str:
    """Write a utility so that two functions of one name are told apart by what they do.

    Examples
    --------
    >>> identity_of("correct")
    'correct'
    >>> identity_of(lambda model, X, y: y) == identity_of(lambda model, X, y: -y)
    False
    """
    code = getattr(utility, "__code__", None)
    if code is None:
        return name_of(utility)
    constants = [entry for entry in code.co_consts if not hasattr(entry, "co_code")]
    told = repr((code.co_code, code.co_names, constants, utility.__defaults__)).encode()
    return f"{name_of(utility)} ({hashlib.blake2b(told, digest_size=8).hexdigest()})"


def worth_in_words(model: Any, utility: Any, *, own: bool) -> str:
    """Say what a set of rows is worth on one validation point, for the report.

    Examples
    --------
    >>> worth_in_words([], "squared_error", own=False)
    'minus the squared error of list, fitted on it'
    """
    fitted = f"{type(model).__name__}, fitted on it"
    if own:
        return f"how well {fitted}, predicts the training rows it lacks"
    said = {
        "correct": f"whether {fitted}, predicts its label",
        "probability": f"the probability that {fitted}, gives its label",
        "squared_error": f"minus the squared error of {fitted}",
    }
    return said[utility] if isinstance(utility, str) else f"what {name_of(utility)} says of {fitted}"


def fingerprint(*parts: Any) -> str:
    """Hash of tables and columns."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        _update(digest, part)
    return digest.hexdigest()


def _update(digest: Any, part: Any) -> None:
    """Feed a table or column to a hash."""
    if sparse.issparse(part):
        for array in (part.data, part.indices, part.indptr):
            _update(digest, array)
        return
    digest.update(repr((part.shape, part.dtype.kind)).encode())
    digest.update(repr(part.tolist()).encode() if part.dtype.kind in "OUS" else np.ascontiguousarray(part).data)
