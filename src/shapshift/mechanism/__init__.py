"""Why values move: the effect of noise on one or two validation points.

Values are additive over validation points, so the effect of noise on a validation set is the sum of its effects on
single points. :func:`case_one` follows one point, :func:`case_two` a pair of points of different classes, and
:func:`noise_demo` shows how the nearest neighbours of one point change. They follow the analysis of Shen, Yang and Liu,
"Validation-Induced Shapley Shifts". One point or pair proves little: ``n_points`` and ``n_pairs`` repeat it over
many, with confidence intervals.
"""

from shapshift.mechanism.cases import (
    CaseOne,
    CaseTwo,
    Example,
    FeatureMap,
    NoiseDemo,
    case_one,
    case_two,
    noise_demo,
)
from shapshift.mechanism.points import KINDS, SCENARIOS, pick_pairs, pick_points

__all__ = [
    "KINDS",
    "SCENARIOS",
    "CaseOne",
    "CaseTwo",
    "Example",
    "FeatureMap",
    "NoiseDemo",
    "case_one",
    "case_two",
    "noise_demo",
    "pick_pairs",
    "pick_points",
]
