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
from shapshift.sampled.proxy import KNNProxy, ProxyValuation, knn_proxy

__all__ = [
    "Antithetic",
    "ClassWise",
    "Complementary",
    "Distributional",
    "Exact",
    "GroupTesting",
    "KNNProxy",
    "LeaveOneOut",
    "MaximumSampleReuse",
    "OutOfBag",
    "Permutation",
    "ProxyValuation",
    "SampledShapley",
    "Sampler",
    "Stratified",
    "Truncated",
    "knn_proxy",
]
