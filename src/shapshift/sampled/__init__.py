"""Values for any model: samplers of coalitions, one loop, and nearest neighbours as a proxy."""

from shapshift.sampled._protocol import Distributional, Sampler
from shapshift.sampled._samplers import (
    Antithetic,
    ClassWise,
    Complementary,
    Exact,
    GroupTesting,
    LeaveOneOut,
    MaximumSampleReuse,
    OutOfBag,
    Permutation,
    Stratified,
    Truncated,
)
from shapshift.sampled.estimator import SampledShapley

__all__ = [
    "Antithetic",
    "ClassWise",
    "Complementary",
    "Distributional",
    "Exact",
    "GroupTesting",
    "LeaveOneOut",
    "MaximumSampleReuse",
    "OutOfBag",
    "Permutation",
    "SampledShapley",
    "Sampler",
    "Stratified",
    "Truncated",
]
