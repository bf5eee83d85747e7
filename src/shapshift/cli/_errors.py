"""Exit codes, and the message of every error."""

import errno
import os
import re
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import Any, Self

import typer

from shapshift.cli._requirements import unmet
from shapshift.cli._terminal import Terminal
from shapshift.exceptions import InputError
from shapshift.methods import METHODS


class Code(IntEnum):
    """Exit codes, each with its meaning."""

    meaning: str

    def __new__(cls, value: int, meaning: str) -> Self:
        """Make a code that has a meaning."""
        code = int.__new__(cls, value)
        code._value_, code.meaning = value, meaning
        return code

    OK = 0, "done"
    UNEXPECTED = 1, "something unexpected: a bug, or out of memory"
    USAGE = 2, "an option or an input file is invalid"
    EXISTS = 3, "results exist already; --force replaces those of the same command"
    CANNOT_WRITE = 4, "results cannot be written: no permission, disk full"
    OTHER_BYTES = 5, "the files of rerun differ from those that the manifest names, or a ledger fails its check"
    INTERRUPTED = 130, "interrupted by Ctrl-C; the results are complete or absent"
    TERMINATED = 143, "terminated; the results are complete or absent"


DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Parameters of the library that are set by an option of another name.
_OPTIONS = {
    ("", "n_neighbors"): "--neighbors",
    ("", "n_jobs"): "--jobs",
    ("", "random_state"): "--seed",
    ("Policy", "negatives"): "--policy",
    ("Privacy", "step"): "--round-to",
    ("Privacy", "seed"): "The file of --secret",
    ("design_validation", "m"): "--select",
    ("Banzhaf", "w"): "W of --semivalue banzhaf:W",
    ("Beta", "alpha"): "ALPHA of --semivalue beta:ALPHA,BETA",
    ("Beta", "beta"): "BETA of --semivalue beta:ALPHA,BETA",
    ("OnPoints", "perturbation"): "The part before @ in --perturb",
    ("Rule", "radius"): "--radius",
    ("find_clusters", "radius"): "--radius",
    ("find_duplicates", "radius"): "--radius",
    ("Ledger", "where"): "LEDGER",
    ("export", "folder"): "FOLDER",
    ("verify", "head"): "--head",
    ("stress_market", "attacks"): "--attack",
    ("stress_market", "attackers"): "--attacker",
    ("case_one", "n_points"): "--points",
    ("case_two", "n_pairs"): "--points",
}
# Parameters that messages say to pass or to leave out.
_ADVISED = {"keep": "--keep", "impute": "--impute", "order": "--order COLUMN", "step": "--round-to"}
# Parameters whose options have the same name.
_SAME_NAME = (
    *("label", "id", "owner", "drop", "features", "scale", "categorical", "impute", "embed", "utility", "semivalue"),
    *("text", "image"),
    *("metric", "ties", "device", "cluster", "max_memory", "noise", "relative", "repeats", "budget", "floor", "cap"),
    "deposit",
    *("reserve", "odd_cents", "currency", "bins", "positive", "preserve_sum", "fidelity", "n_train", "n_val"),
    *(
        "epsilon",
        "locale",
        "date",
        "contest_until",
        "data_dir",
        "rule",
        "rescale",
        "boundary_neighbors",
        "boundary_entropy",
        "error",
        "model",
        "task",
    ),
)
#: Classes of shapshift.perturb by their names in --perturb.
PERTURBATIONS = {
    "gaussian": "GaussianNoise",
    "laplace": "LaplaceNoise",
    "round": "Round",
    "quantize": "Quantize",
    "mask": "MaskFeatures",
    "flip": "FlipLabels",
    "subsample": "Subsample",
    "coverage": "BoundaryCoverage",
    "priors": "ShiftPriors",
}
_PERTURBATION_NAMES = {kind: name for name, kind in PERTURBATIONS.items()}
# Models by the name of their method.
_METHODS = {entry.factory.partition(":")[2]: name for name, entry in METHODS.items()}


class CommandError(Exception):
    """An error whose message is shown unchanged.

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
    """Turn every error inside into a message and an exit code, and warnings into notes."""

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
            terminal.error(_left(terminal) or "Nothing was written.", title="Interrupted")
            raise typer.Exit(Code.INTERRUPTED) from None
        except Exception as error:
            message, code = explain(error)
            if debug:
                terminal.trace("".join(traceback.format_exception(error)))
            terminal.error("\n".join(filter(None, [message, "" if code == Code.OTHER_BYTES else _left(terminal)])))
            raise typer.Exit(code) from None


def _left(terminal: Terminal) -> str:
    """Report results that exist although the command did not finish."""
    return "".join(f"All results are in {folder!r}." for folder in terminal.written)


def explain(error: Exception) -> tuple[str, Code]:
    """Message and exit code of an error.

    An :class:`InputError` carries a message for the user. Any other ``ValueError``, such as one from inside NumPy, is a
    bug and reported as one.
    """
    if isinstance(error, CommandError):
        return str(error), error.code
    if isinstance(error, MemoryError):
        return f"Out of memory ({error}). Bound it with --max-memory 2GB, or value fewer rows.", Code.UNEXPECTED
    if isinstance(error, InputError):
        return in_options(str(error)), Code.USAGE
    if isinstance(error, OSError):
        return _explain_system(error)
    if said := unmet():
        return f"{type(error).__name__}: {error}\n{said}", Code.UNEXPECTED
    return (
        f"Unexpected {type(error).__name__}: {error}\nThis should not happen. Run again with --debug (or set "
        "SHAPSHIFT_DEBUG=1) for the traceback, and report it with that and the output of: shapshift doctor",
        Code.UNEXPECTED,
    )


def _explain_system(error: OSError) -> tuple[str, Code]:
    """Message and exit code of an error of the operating system, with advice where we have some."""
    if error.errno is None:
        return in_options(str(error)), Code.EXISTS if isinstance(error, FileExistsError) else Code.USAGE
    if error.strerror != os.strerror(error.errno):
        return str(error.strerror), Code.CANNOT_WRITE
    if error.errno in DISK_FULL:
        return "The disk is full. Free some space, or write elsewhere with --out.", Code.CANNOT_WRITE
    where = f" {os.fspath(error.filename)!r}" if isinstance(error.filename, str) else ""
    code = Code.USAGE if isinstance(error, FileNotFoundError) else Code.CANNOT_WRITE
    return f"The system refused{where}: {error.strerror}.", code


def in_options(message: str) -> str:
    """Rewrite a message of the library with the names of the options."""

    def option(found: re.Match[str]) -> str:
        parameter, caller = found["parameter"], found["caller"]
        if caller in _PERTURBATION_NAMES:
            return f"The {parameter} of --perturb {_PERTURBATION_NAMES[caller]}"
        if parameter in _SAME_NAME:
            return f"--{parameter.replace('_', '-')}"
        own = f"The {parameter} of --method {_METHODS[caller]}" if caller in _METHODS else found[0]
        return _OPTIONS.get((caller, parameter)) or _OPTIONS.get(("", parameter)) or own

    said = re.sub(r"The '(?P<parameter>\w+)' parameter of (?P<caller>\w+)(\.create)?", option, message)
    advice = rf"\b([Ll]eave|Pass|Use|with) '({'|'.join(_ADVISED)})'"
    said = re.sub(advice, lambda found: f"{found[1]} {_ADVISED[found[2]]}", said)
    return re.sub(r"\bpay_by='(\w+)'", r"--pay-by \1", said).replace("pass overwrite=True", "pass --force")
