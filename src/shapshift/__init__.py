"""Value every training row, see how far the values depend on the validation set, correct them, and price them.

Names are loaded when they are first used, so that ``import shapshift`` costs nothing.
"""

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shapshift.audit import ShiftAudit, Thresholds, audit_shift
    from shapshift.coefficients import Beta
    from shapshift.correct import BoundaryCorrector, CorrectionWarning, EntropyNormalizer, PosteriorCorrector, evaluate
    from shapshift.data import list_datasets, load_dataset
    from shapshift.design import BoundaryStratifiedSplit, design_validation, entropy_profile
    from shapshift.estimators import KNNShapley
    from shapshift.evaluation import evaluate_valuation
    from shapshift.interactions import Interactions, knn_interactions
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
    from shapshift.relatives import KNNRegressionShapley, ThresholdKNNShapley, WeightedKNNShapley
    from shapshift.sampled import KNNProxy, SampledShapley, knn_proxy
    from shapshift.store import ValuationStore
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
    "Interactions",
    "KNNProxy",
    "KNNRegressionShapley",
    "KNNShapley",
    "LaplaceNoise",
    "MaskFeatures",
    "Policy",
    "PosteriorCorrector",
    "Quantize",
    "Round",
    "SampledShapley",
    "ShiftAudit",
    "ShiftPriors",
    "Subsample",
    "ThresholdKNNShapley",
    "Thresholds",
    "Valuation",
    "ValuationStore",
    "WeightedKNNShapley",
    "allocate_budget",
    "audit_payouts",
    "audit_shift",
    "case_one",
    "case_two",
    "design_validation",
    "entropy_profile",
    "evaluate",
    "evaluate_valuation",
    "knn_interactions",
    "knn_proxy",
    "list_datasets",
    "load_dataset",
    "noise_demo",
    "owner_values",
    "replication_gain",
    "write_statements",
]

_HOMES = {
    "shapshift.audit": (
        "ShiftAudit",
        "Thresholds",
        "audit_shift",
    ),
    "shapshift.coefficients": ("Beta",),
    "shapshift.correct": (
        "BoundaryCorrector",
        "CorrectionWarning",
        "EntropyNormalizer",
        "PosteriorCorrector",
        "evaluate",
    ),
    "shapshift.data": (
        "list_datasets",
        "load_dataset",
    ),
    "shapshift.design": (
        "BoundaryStratifiedSplit",
        "design_validation",
        "entropy_profile",
    ),
    "shapshift.estimators": ("KNNShapley",),
    "shapshift.evaluation": ("evaluate_valuation",),
    "shapshift.interactions": (
        "Interactions",
        "knn_interactions",
    ),
    "shapshift.mechanism": (
        "case_one",
        "case_two",
        "noise_demo",
    ),
    "shapshift.perturb": (
        "BoundaryCoverage",
        "Compose",
        "FlipLabels",
        "GaussianNoise",
        "LaplaceNoise",
        "MaskFeatures",
        "Quantize",
        "Round",
        "ShiftPriors",
        "Subsample",
    ),
    "shapshift.price": (
        "Policy",
        "allocate_budget",
        "audit_payouts",
        "owner_values",
        "replication_gain",
        "write_statements",
    ),
    "shapshift.relatives": (
        "KNNRegressionShapley",
        "ThresholdKNNShapley",
        "WeightedKNNShapley",
    ),
    "shapshift.sampled": (
        "KNNProxy",
        "SampledShapley",
        "knn_proxy",
    ),
    "shapshift.store": ("ValuationStore",),
    "shapshift.valuation": ("Valuation",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
