"""Value every training row, see how far the values depend on the validation set, correct them, and price them."""

from importlib.metadata import version

from shapshift.audit import ShiftAudit, Thresholds, audit_shift
from shapshift.coefficients import Beta
from shapshift.correct import BoundaryCorrector, CorrectionWarning, EntropyNormalizer, evaluate
from shapshift.data import list_datasets, load_dataset
from shapshift.design import BoundaryStratifiedSplit, design_validation, entropy_profile
from shapshift.estimators import KNNShapley
from shapshift.mechanism import case_one, case_two, noise_demo
from shapshift.perturb import (
    BoundaryCoverage,
    Compose,
    FlipLabels,
    GaussianNoise,
    LaplaceNoise,
    MaskFeatures,
    Quantize,
    Round,
    ShiftPriors,
    Subsample,
)
from shapshift.price import Policy, allocate_budget, audit_payouts, owner_values, replication_gain, write_statements
from shapshift.valuation import Valuation

__version__ = version("shapshift")

__all__ = [
    "Beta",
    "BoundaryCorrector",
    "BoundaryCoverage",
    "BoundaryStratifiedSplit",
    "Compose",
    "CorrectionWarning",
    "EntropyNormalizer",
    "FlipLabels",
    "GaussianNoise",
    "KNNShapley",
    "LaplaceNoise",
    "MaskFeatures",
    "Policy",
    "Quantize",
    "Round",
    "ShiftAudit",
    "ShiftPriors",
    "Subsample",
    "Thresholds",
    "Valuation",
    "allocate_budget",
    "audit_payouts",
    "audit_shift",
    "case_one",
    "case_two",
    "design_validation",
    "entropy_profile",
    "evaluate",
    "list_datasets",
    "load_dataset",
    "noise_demo",
    "owner_values",
    "replication_gain",
    "write_statements",
]
