"""Correct values that moved because the validation set did.

The points of a validation set are split by the entropy of their neighbours' labels. Over each part every training row
has a mean score. The correction gives the scores of each part back the spread they have on a clean validation set, adds
the parts up again, and shifts the sum so that as many rows are positive as on the clean set (Shen, Yang and Liu,
"Validation-Induced Shapley Shifts"). It needs a handful of numbers of the clean run, never the clean points.

What it can do is bounded by that: it restores a *distribution*. The order of the rows comes from the noisy values, with
the parts weighed differently, and may end nearer to the clean order or further from it. :func:`evaluate` says which.
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
