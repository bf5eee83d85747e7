"""Whether a loaded audit is one: every part of its header, and every array, of the kind and size it must have."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.audit._statistics import STATISTICS

if TYPE_CHECKING:
    from shapshift.audit._result import ShiftAudit

_KINDS = ("numpy", "pandas", "polars", "pyarrow")
_CLEAN = ("mean", "std", "positive_count", "positive_ratio", "boundary_fraction")
_HEADER: dict[str, type] = {
    **dict.fromkeys(("levels", "perturbations"), list),
    **dict.fromkeys(("clean", "parameters", "thresholds"), dict),
    **dict.fromkeys(("axis", "fingerprint", "kind"), str),
}
_PARAMETERS: dict[str, type] = {"repeats": int, "random_state": int, "top": int, "confidence": float, "model": dict}


def check_loaded_header(header: dict[str, Any]) -> None:
    """Refuse a header that this release did not write.

    Raises
    ------
    ValueError
        It says which part is wrong.
    """
    if header["statistics"] != list(STATISTICS):
        raise ValueError("it has other statistics than this release")
    for name, kind in _HEADER.items():
        _must(isinstance(header[name], kind), name)
    levels, perturbations = header["levels"], header["perturbations"]
    _must(bool(levels) and all(isinstance(level, str) or _number(level) for level in levels), "levels")
    _must(len(perturbations) == len(levels), "perturbations")
    _must(
        all(isinstance(entry, dict) and isinstance(entry.get("name"), str) for entry in perturbations), "perturbations"
    )
    _must(header["kind"] in _KINDS, "kind")
    for name in _CLEAN:
        _must(_number(header["clean"].get(name)), f"clean {name}")
    for name, kind in _PARAMETERS.items():
        value = header["parameters"].get(name)
        _must(isinstance(value, kind) and not isinstance(value, bool), f"parameters {name}")
    _must(header["parameters"]["repeats"] >= 1, "parameters repeats")


def check_arrays(audit: "ShiftAudit") -> None:
    """Refuse arrays of another type or shape than an audit has."""
    n, n_levels = audit.n_train, len(audit.levels)
    expected: dict[str, tuple[Any, tuple[int, ...]]] = {
        name: (getattr(audit, name), (n_levels, len(STATISTICS))) for name in ("means", "lows", "highs")
    }
    expected["positions"] = (audit.positions, (n_levels,))
    expected |= {name: (getattr(audit, name), (n,)) for name in ("clean_values", "clean_ranks", "ids")}
    expected |= {f"rows.{name}": (column, (n,)) for name, column in audit.rows.items()}
    per_level = audit.level_rows or {}
    expected |= {f"level_rows.{name}": (column, (n_levels, n)) for name, column in per_level.items()}
    for name, (array, shape) in expected.items():
        if array.shape != shape:
            raise ValueError(f"{name!r} has shape {array.shape}, not {shape}")
        if name != "ids" and array.dtype != np.float64:
            raise ValueError(f"{name!r} holds {array.dtype}, not float64")


def _must(holds: bool, part: str) -> None:
    if not holds:
        raise ValueError(f"its {part!r} is not what an audit has there")


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
