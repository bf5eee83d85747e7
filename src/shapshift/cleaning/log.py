"""DecisionLog: decisions as they are made, each on disk before the next."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from shapshift.cleaning.decisions import Decisions
from shapshift.exceptions import InputError
from shapshift.io.files import locked, sync_folder


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
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
            stack.callback(os.close, self._handle)
            self._repair()
            if os.fstat(self._handle).st_size == 0:
                self._write(_nothing().csv_text())
                sync_folder(self.path.parent)
            self.read()  # or say what is wrong with the file
            self._stack = stack.pop_all()

    def _repair(self) -> None:
        """Cut off a last line that is not whole: cells stand in quotes, and a line ends outside of them."""
        content = self.path.read_bytes()
        end = len(content)
        while end and not (content[end - 1 : end] == b"\n" and content.count(b'"', 0, end) % 2 == 0):
            end = content.rfind(b"\n", 0, end - 1) + 1
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
