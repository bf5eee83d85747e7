"""Changes to a validation set: callables ``(X_val, y_val) -> (X_val', y_val')`` with a seed.

``a | b`` applies a, then b. A plain function will do wherever a perturbation is asked for; give it an ``rng`` argument
and it is seeded as well::

    def scramble_first_feature(X_val, y_val, rng):
        X_val[:, 0] = rng.permutation(X_val[:, 0])
        return X_val, y_val

Training rows are never touched, and neither are the caller's arrays: what changes is a copy.
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
