"""Correct values that changed because the validation set changed.

The points of a validation set are split by the entropy of their neighbours' labels. In each part, every training row
has a mean score. The correction restores the spread that the scores of each part have on a clean validation set, adds
the parts up, and shifts the sum so that as many rows are positive as on the clean set (Shen, Yang and Liu,
"Validation-Induced Shapley Shifts"). It needs a few numbers of the clean run, never the clean points.

This limits its effect: it restores a *distribution*. The order of the rows comes from the noisy values, with other
weights of the parts, and may end nearer to the clean order or further from it. :func:`evaluate` measures which.
"""

from shapshift.correct.correctors import (
    BoundaryCorrector,
    CorrectionEvaluation,
    CorrectionReport,
    CorrectionWarning,
    EntropyNormalizer,
    evaluate,
)
from shapshift.correct.posterior import PosteriorCorrector, PosteriorReport
from shapshift.correct.prior import NoiseEstimate

__all__ = [
    "BoundaryCorrector",
    "CorrectionEvaluation",
    "CorrectionReport",
    "CorrectionWarning",
    "EntropyNormalizer",
    "NoiseEstimate",
    "PosteriorCorrector",
    "PosteriorReport",
    "evaluate",
]
