"""DecisionLog: decisions as they are made, each on disk before the next."""

import os
import re
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from shapshift.cleaning.decisions import COLUMNS, Decisions
from shapshift.exceptions import InputError
from shapshift.io.files import locked, sync_folder

#: How a line ends whose row was read; half a line has no such end.
_WHOLE = re.compile(rb',"h[0-9a-f]{16}"\r?\n')


class DecisionLog:
    """A file of decisions that is only ever appended to.

    It is the CSV file that :meth:`Decisions.to_csv` writes and :meth:`Decisions.read_csv` reads, so ``shapshift clean
    --decisions`` applies it as it is: of several decisions about one row the last one counts, and "keep" takes an
    earlier one back. What :meth:`append` was given is on disk when it returns.

    Parameters
    ----------
    path : path-like
        Made if it is not there; its folder must be. Lines that a killed process left half-written are cut off.

    Raises
    ------
    InputError
        If another process has it open, or the file is something else.

    Examples
    --------
    >>> import tempfile
    >>> from shapshift import Decisions
    >>> X, y = [[0.0], [0.1], [0.9]], ["a", "b", "b"]
    >>> with tempfile.TemporaryDirectory() as folder, DecisionLog(f"{folder}/decisions.csv") as log:
    ...     log.append(Decisions.of(X, y, ids=[1], actions=["drop"]))
    ...     log.append(Decisions.of(X, y, ids=[1], actions=["keep"]))
    ...     Decisions.read_csv(log.path).actions
    ('drop', 'keep')
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        if not self.path.parent.is_dir():
            raise InputError(
                f"The folder of the decisions, {str(self.path.parent)!r}, does not exist. Create it first."
            )
        with ExitStack() as stack:
            if not stack.enter_context(locked(self.path.with_name(f".{self.path.name}.lock"))):
                raise InputError(
                    f"The decisions {str(self.path)!r} are open in another process. Close it, or name another file."
                )
            if self.path.is_symlink():  # in a folder from elsewhere it could name any file
                raise InputError(f"The decisions {str(self.path)!r} are a link to another file. Name that file itself.")
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0) | getattr(os, "O_NOFOLLOW", 0)
            self._handle = os.open(self.path, flags, 0o666)
            stack.callback(os.close, self._handle)
            self._repair()
            if os.fstat(self._handle).st_size == 0:
                self._write(_nothing().csv_text())
                sync_folder(self.path.parent)
            self.read()  # or say what is wrong with the file
            self._stack = stack.pop_all()

    def _repair(self) -> None:
        """Cut off a last line that is not whole: cells stand in quotes, and a line ends outside of them.

        Of a file that is no log, nothing is cut off.
        """
        content, header = self.path.read_bytes(), _nothing().csv_text().encode()
        if not (content.startswith(header) or header.startswith(content)):
            self.read()  # or say what is wrong with the file
            first = content.partition(b"\n")[0].removeprefix(b"\xef\xbb\xbf").replace(b'"', b"").rstrip(b"\r")
            if first != ",".join(COLUMNS).encode() or not content.endswith(b"\n"):
                raise InputError(
                    f"The decisions {str(self.path)!r} were saved by another program, so none can be appended. Save "
                    f"them with the first line {','.join(COLUMNS)} and a line break at the end, or name another file."
                )
            return
        end = lines = place = quotes = 0
        for number, line in enumerate(content.split(b"\n")[:-1], 1):
            place, quotes = place + len(line) + 1, quotes + line.count(b'"')
            end, lines = (end, lines) if quotes % 2 else (place, number)
        if _WHOLE.search(content, end):
            raise InputError(
                f"A quotation mark is missing, or one too many, in the decisions {str(self.path)!r}, in line "
                f"{lines + 1} or later. Correct it."
            )
        if end < len(content):
            os.truncate(self._handle if os.truncate in os.supports_fd else self.path, end)
            os.fsync(self._handle)

    def read(self) -> Decisions:
        """Return all decisions, in the order in which they were made."""
        return Decisions.read_csv(self.path)

    def append(self, decisions: Decisions) -> None:
        """Write decisions at the end, durably: all of them, or, where the system is killed meanwhile, the first."""
        if len(decisions):
            self._write(decisions.csv_text().partition("\n")[2])

    def _write(self, text: str) -> None:
        """Write in one call, so that a killed process leaves whole lines."""
        data, start = text.encode("utf-8"), os.fstat(self._handle).st_size
        try:
            done = os.write(self._handle, data)
            while done < len(data):
                done += os.write(self._handle, data[done:])
            os.fsync(self._handle)
        except OSError:  # such as a full disk: half a line must not spoil what is written next
            os.truncate(self._handle if os.truncate in os.supports_fd else self.path, start)
            raise

    def close(self) -> None:
        """Let go of the file."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _nothing() -> Decisions:
    """Return no decisions."""
    return Decisions((), (), (), (), (), (), ())
