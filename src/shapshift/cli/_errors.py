"""What a command exits with, and how an error becomes one clear message."""

import dis
import errno
import os
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import TracebackType
from typing import Any

import typer

from shapshift.cli._terminal import Terminal
from shapshift.methods import METHODS


class Code(IntEnum):
    """Exit codes."""

    OK = 0
    UNEXPECTED = 1
    USAGE = 2
    EXISTS = 3
    CANNOT_WRITE = 4
    OTHER_BYTES = 5
    INTERRUPTED = 130
    TERMINATED = 143


MEANINGS = {
    Code.OK: "done",
    Code.UNEXPECTED: "something unexpected: a bug, or out of memory",
    Code.USAGE: "an option or an input file is not as it must be",
    Code.EXISTS: "results are there already; --force replaces those of the same command",
    Code.CANNOT_WRITE: "results cannot be written: no permission, disk full",
    Code.OTHER_BYTES: "rerun gave other bytes than the manifest says",
    Code.INTERRUPTED: "interrupted by Ctrl-C; nothing was written",
    Code.TERMINATED: "terminated; nothing was written",
}


# What the library calls a parameter, and the option that sets it.
_OPTIONS = {
    **{
        ("", name): f"--{name.replace('_', '-')}"
        for name in (
            *("label", "id", "owner", "drop", "features", "scale", "categorical", "impute", "embed"),
            *(
                "utility",
                "semivalue",
                "metric",
                "ties",
                "device",
                "cluster",
                "max_memory",
                "noise",
                "relative",
                "repeats",
            ),
            *("budget", "floor", "cap", "reserve", "odd_cents", "currency", "bins", "positive", "preserve_sum"),
            *("fidelity", "n_train", "n_val", "data_dir"),
        )
    },
    ("", "n_neighbors"): "--neighbors",
    ("", "n_jobs"): "--jobs",
    ("", "random_state"): "--seed",
    ("Policy", "negatives"): "--policy",
    ("design_validation", "m"): "--select",
    ("Beta", "alpha"): "ALPHA of --semivalue beta:ALPHA,BETA",
    ("Beta", "beta"): "BETA of --semivalue beta:ALPHA,BETA",
    ("case_one", "n_points"): "--points",
    ("case_two", "n_pairs"): "--points",
}
_PERTURBATIONS = {
    "GaussianNoise": "gaussian",
    "LaplaceNoise": "laplace",
    "Round": "round",
    "Quantize": "quantize",
    "MaskFeatures": "mask",
    "FlipLabels": "flip",
    "Subsample": "subsample",
    "BoundaryCoverage": "coverage",
    "ShiftPriors": "priors",
}
# Models by the name of their method.
_METHODS = {entry.factory.partition(":")[2]: name for name, entry in METHODS.items()}


class CommandError(Exception):
    """An error to show as it is.

    Parameters
    ----------
    message : str
        What was expected, what came, and what to do.
    code : Code
    """

    def __init__(self, message: str, code: Code = Code.USAGE) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def clear_errors(terminal: Terminal, *, debug: bool) -> Iterator[None]:
    """Turn whatever goes wrong inside into a message and an exit code, and warnings into notes."""

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        terminal.warning(in_options(str(message)))

    with warnings.catch_warnings():
        if not debug:
            warnings.simplefilter("ignore")  # what libraries say to programmers
        warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        try:
            yield
        except (typer.Exit, typer.Abort):
            raise
        except KeyboardInterrupt:
            terminal.error("Nothing was written.", title="Interrupted")
            raise typer.Exit(Code.INTERRUPTED) from None
        except Exception as error:
            message, code = explain(error)
            if debug:
                terminal.trace("".join(traceback.format_exception(error)))
            terminal.error(message)
            raise typer.Exit(code) from None


def explain(error: Exception) -> tuple[str, Code]:
    """Message and exit code of an error.

    Errors that the package raises on purpose carry a message for the user. Anything else, a ``ValueError`` from the
    depths of NumPy for instance, is a bug, and pretending otherwise would send the user on a wild goose chase.
    """
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, MemoryError):
        return f"Out of memory ({error}). Bound it with --max-memory 2GB, or value fewer rows.", Code.UNEXPECTED
    if isinstance(error, FileExistsError) and raised_on_purpose(error.__traceback__):
        return str(error), Code.EXISTS
    if isinstance(error, OSError):
        if raised_on_purpose(error.__traceback__) and error.errno is not None:
            return str(error.strerror), Code.CANNOT_WRITE
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return "The disk is full; nothing was written. Make room, or write elsewhere with --out.", Code.CANNOT_WRITE
        if raised_on_purpose(error.__traceback__):
            return in_options(str(error)), Code.USAGE
        where = f" {os.fspath(error.filename)!r}" if isinstance(error.filename, str) else ""
        code = Code.USAGE if isinstance(error, FileNotFoundError) else Code.CANNOT_WRITE
        return f"The system refused{where}: {error.strerror or error}.", code
    if isinstance(error, ValueError | TypeError | ImportError) and raised_on_purpose(error.__traceback__):
        return in_options(str(error)), Code.USAGE
    return (
        f"Unexpected {type(error).__name__}: {error}\nThis should not happen. Run again with --debug (or set "
        "SHAPSHIFT_DEBUG=1) for the traceback, and report it with that and the output of: shapshift doctor",
        Code.UNEXPECTED,
    )


def in_options(message: str) -> str:
    """Rewrite a message of the library in terms of the command line."""

    def option(found: re.Match[str]) -> str:
        parameter, owner = found["parameter"], found["owner"]
        if owner in _PERTURBATIONS:
            return f"The {parameter} of --perturb {_PERTURBATIONS[owner]}"
        own = f"The {parameter} of --method {_METHODS[owner]}" if owner in _METHODS else found[0]
        return _OPTIONS.get((owner, parameter)) or _OPTIONS.get(("", parameter)) or own

    return re.sub(r"The '(?P<parameter>\w+)' parameter of (?P<owner>\w+)", option, message)


def raised_on_purpose(trace: TracebackType | None) -> bool:
    """Whether an error comes from a ``raise`` statement of this package, and not from the inside of a library."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    statement = code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return statement and str(trace.tb_frame.f_globals.get("__name__", "")).startswith("shapshift.")
