"""What a correction says about itself."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


class CorrectionWarning(UserWarning):
    """A part of the values could not be corrected as asked; the message says what was done instead."""


@dataclass(frozen=True)
class CorrectionReport:
    """What one ``transform`` changed.

    Attributes
    ----------
    corrector, positive, preserve_sum, min_points
        Class and parameters of the corrector.
    groups : dict
        For each part of the noisy validation set: how many points it has there and in the clean set (``points_noisy``,
        ``points_clean``), its ``share`` of the noisy points (for the boundary part: lambda), the factor ``alpha``, the
        ``mean`` around which it acted, and the standard deviations ``std_noisy`` and ``std_clean`` (None when the clean
        set has no such points).
    shift : float
        The number b added to all values.
    factor : float
        What ``preserve_sum`` multiplied the positive values by and divided the others by; 1 otherwise.
    positive_target : int
        Number of positive values on the clean set.
    before, after : dict
        ``mean``, ``std``, ``sum`` and ``positive_count`` of the noisy and the corrected values.
    to_positive, to_negative : int
        Number of rows that became positive, or stopped being positive, by the correction.
    """

    corrector: str
    positive: str
    preserve_sum: bool
    min_points: int
    groups: Mapping[str, Mapping[str, float | None]]
    shift: float
    factor: float
    positive_target: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    to_positive: int
    to_negative: int

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain, JSON-able Python."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.corrector}: {self.to_positive} rows became positive, {self.to_negative} stopped being positive",
            f"  shift {self.shift:+.4g}, factor {self.factor:.4g}, clean positive count {self.positive_target}",
        ]
        lines += [
            f"  {name}: {part['points_noisy']} points (clean: {part['points_clean']}), share {part['share']:.3f}, std "
            f"{part['std_noisy']:.4g} x alpha {part['alpha']:.4g}"
            for name, part in self.groups.items()
        ]
        lines += [
            f"  {name}: {self.before[name]:.4g} -> {self.after[name]:.4g}" for name in ("mean", "std", "positive_count")
        ]
        return "\n".join(lines)
