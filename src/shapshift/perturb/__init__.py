"""Changes to a validation set: callables ``(X_val, y_val) -> (X_val', y_val')`` with a seed.

``a | b`` applies a, then b. A plain function is accepted in place of a perturbation; if it has an ``rng`` argument, it
is seeded too::

    def scramble_first_feature(X_val, y_val, rng):
        X_val[:, 0] = rng.permutation(X_val[:, 0])
        return X_val, y_val

Perturbations never change training rows or the caller's arrays; they work on a copy.
"""

from shapshift.perturb.base import Compose, FunctionPerturbation, Perturbation, as_perturbation
from shapshift.perturb.perturbations import (
    BoundaryCoverage,
    FlipLabels,
    GaussianNoise,
    LaplaceNoise,
    MaskFeatures,
    OnPoints,
    Quantize,
    Round,
    ShiftPriors,
    Subsample,
)

__all__ = [
    "BoundaryCoverage",
    "Compose",
    "FlipLabels",
    "FunctionPerturbation",
    "GaussianNoise",
    "LaplaceNoise",
    "MaskFeatures",
    "OnPoints",
    "Perturbation",
    "Quantize",
    "Round",
    "ShiftPriors",
    "Subsample",
    "as_perturbation",
]
