"""What reading rows from outside memory takes and gives."""

from dataclasses import dataclass
from typing import Any

from shapshift import _validation as check
from shapshift.rowfile import load_bytes

# Rows are read and converted in batches of about this many bytes.
BATCH_BYTES = 2**24


@dataclass(frozen=True)
class Source:
    """Rows from outside memory, with what belongs to them.

    Attributes
    ----------
    table : Table
        Its rows are a RowFile, or an array if they are few.
    labels : array-like
    extra : array-like or None
        Ids or groups.
    """

    table: check.Table
    labels: Any
    extra: Any


@dataclass(frozen=True)
class Options:
    """How to read.

    Attributes
    ----------
    names : (str, str, str)
        What messages call the rows, the labels, and the ids or groups.
    fitted : list or None
        Column names that must come in this order; None for any.
    width : int or None
        How many features there must be.
    scratch : str or None
        Folder for scratch files.
    max_memory : int or None
    progress : bool or None
    """

    names: tuple[str, str, str]
    fitted: list[Any] | None
    width: int | None
    scratch: str | None
    max_memory: int | None
    progress: bool | None

    @property
    def name(self) -> str:
        """What messages call the rows."""
        return self.names[0]

    @property
    def load_bytes(self) -> int:
        """Rows that take no more than this as float64 are loaded."""
        return load_bytes(self.max_memory)
