"""Why values move: one or two validation points under the magnifying glass.

Values are additive over validation points, so what noise does to a whole validation set is the sum of what it does to
single points. :func:`case_one` follows one point, :func:`case_two` a pair of points of different classes, and
:func:`noise_demo` shows how the nearest neighbours of one point change. They follow the analysis of Shen, Yang and Liu,
"Validation-Induced Shapley Shifts". One point or pair proves little: ``n_points`` and ``n_pairs`` repeat the same over
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
