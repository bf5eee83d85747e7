"""The command line: ``shapshift COMMAND``; see ``shapshift --help``."""

import os
import signal
import sys
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Run the command line."""
    # Loading the libraries takes a second or two, in which nothing is there yet that would have to be cleaned up.
    heard = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where a shell has turned it off
    if heard:
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    signal.signal(signal.SIGTERM, lambda *_: os._exit(143))
    from shapshift.cli._app import app

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, _terminate)
    app(prog_name="shapshift")


def _terminate(*_: Any) -> None:
    """End as on Ctrl-C: what is half-made is removed."""
    sys.exit(143)
