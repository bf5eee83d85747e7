"""The command line: ``shapshift COMMAND``; see ``shapshift --help``."""

from shapshift.cli._app import main

__all__ = ["main"]
