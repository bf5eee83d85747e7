"""The command line: ``shapshift COMMAND``; see ``shapshift --help``."""

import io
import os
import signal
import sys
from typing import Any

__all__ = ["main"]


class Interrupt(KeyboardInterrupt):
    """Ctrl-C.

    Once a ``KeyboardInterrupt`` has left the ``exec`` of a text, which SciPy and dataclasses use, ``python -m`` ends by
    the signal, whatever the exit code. A subclass does not have this effect.
    """


def main() -> None:
    """Run the command line."""
    # Loading the libraries takes a second or two; until then there is nothing to clean up.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # unless a shell has turned it off
    if heard:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    try:
        from shapshift.cli._app import app
    except Exception as error:  # a library is missing or too old
        from shapshift.cli._requirements import unmet

        if not (said := unmet()):
            raise
        sys.exit(f"Error: {type(error).__name__}: {error}\n{said}")

    # Letters that the terminal's encoding lacks are escaped: a table with a sigma must not end the command.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    if heard:
        signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _terminate)
    app(prog_name="shapshift")


def _interrupt(*_: Any) -> None:
    raise Interrupt


def _terminate(*_: Any) -> None:
    """End as on Ctrl-C: unfinished results are removed."""
    sys.exit(143)
