"""What an audit found, in words."""

from typing import TYPE_CHECKING

import numpy as np

from shapshift.audit._levels import NOISE
from shapshift.audit._thresholds import VERDICTS

if TYPE_CHECKING:
    from shapshift.audit._result import ShiftAudit


def describe(audit: "ShiftAudit") -> str:
    """Say where the verdict changes, which levels are borderline, and what one run per level cannot tell."""
    along = np.argsort(audit.positions, kind="stable")
    verdicts, borderline = audit.verdicts, audit.borderline
    names = [f"{audit.positions[place]:g}" if audit.ordered else str(audit.levels[place]) for place in along]
    ordered = [verdicts[place] for place in along]
    where = f"at {audit.axis}" if audit.ordered else "under"
    found = _along_noise(names, ordered) if audit.axis == NOISE else _one_by_one(names, ordered, where)
    close = [name for name, place in zip(names, along, strict=True) if borderline[place]]
    if close:
        found += f"; borderline {where} {', '.join(close)}"
    if audit.repeats == 1:
        found += "; from one run per level, which tells no interval"
    return found


def _along_noise(names: list[str], verdicts: list[str]) -> str:
    """More noise is stronger, so it is enough to say from where on a verdict holds."""
    end = len(names)
    first = {verdict: verdicts.index(verdict) if verdict in verdicts else end for verdict in VERDICTS}
    shifts, unstable = first["shifts"], first["unstable"]
    stable = min(shifts, unstable, first["undefined"])  # so many levels are stable before the first that is not
    parts = [f"stable up to noise {names[stable - 1]}"] if stable else []
    undefined = [name for name, verdict in zip(names, verdicts, strict=True) if verdict == "undefined"]
    parts += [f"undefined at noise {', '.join(undefined)}"] if undefined else []
    parts += [f"shifts from noise {names[shifts]}"] if shifts < unstable else []
    parts += [f"unstable from noise {names[unstable]}"] if unstable < end else []
    return ", ".join(parts)


def _one_by_one(names: list[str], verdicts: list[str], where: str) -> str:
    """More of another number need not mean a stronger perturbation."""
    found = {verdict: [n for n, v in zip(names, verdicts, strict=True) if v == verdict] for verdict in VERDICTS}
    return "; ".join(f"{verdict} {where} {', '.join(chosen)}" for verdict, chosen in found.items() if chosen)
