"""What a correction without clean data says about itself."""

from dataclasses import asdict, dataclass
from typing import Any

from shapshift.correct.noise import NoiseEstimate
from shapshift.correct.rehearsal import Rehearsal


@dataclass(frozen=True)
class PosteriorReport:
    """What one correction did.

    Attributes
    ----------
    noise : dict
        The noise that was assumed.
    estimate : NoiseEstimate or None
        How it was estimated, where it was.
    weights : dict
        How much the noisy values ("noisy"), draws moved towards the noisy points ("moved") and draws at training rows
        ("at_rows") count.
    rehearsal : Rehearsal or None
        What the rehearsal expects: rank agreement and error before and after.
    draws : int
        Draws per point that were made; 0 where every row that carries weight was valued instead.
    standard_error : float
        Root mean square of the values' standard errors, in standard deviations of the values.
    log_density, expected_log_density : float or None
        Mean log density of the noisy points under prior and noise, and what the rehearsal saw.
    """

    noise: dict[str, Any]
    estimate: NoiseEstimate | None
    weights: dict[str, float]
    rehearsal: Rehearsal | None
    draws: int
    standard_error: float
    log_density: float | None
    expected_log_density: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain, JSON-able Python."""
        return {"corrector": "PosteriorCorrector", **asdict(self)}

    def __str__(self) -> str:
        lines = [f"PosteriorCorrector: {self.draws} draws per point, standard error {self.standard_error:.3f} stds"]
        if self.estimate is not None:
            lines.append(f"  estimated {self.estimate}")
        lines.append("  mixture: " + ", ".join(f"{name} {weight:.2f}" for name, weight in self.weights.items()))
        if self.rehearsal is not None:
            before, after = self.rehearsal.spearman["noisy"], self.rehearsal.spearman["mixed"]
            lines.append(f"  rank agreement when rehearsed on training rows: {before:.3f} -> {after:.3f}")
        return "\n".join(lines)
