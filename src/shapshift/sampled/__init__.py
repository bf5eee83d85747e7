"""Values for any model: samplers of coalitions, the sampling loop, and nearest neighbours as a proxy."""

from shapshift.sampled.estimator import SampledShapley
from shapshift.sampled.federated import FederatedRound, FederatedValues, federated_values
from shapshift.sampled.proxy import KNNProxy, ProxyValuation, knn_proxy
from shapshift.sampled.samplers import (
    Antithetic,
    ClassWise,
    Complementary,
    Distributional,
    Exact,
    GroupTesting,
    LearnedUtility,
    LeaveOneOut,
    MaximumSampleReuse,
    OutOfBag,
    Permutation,
    Sampler,
    Stratified,
    Truncated,
)

__all__ = [
    "Antithetic",
    "ClassWise",
    "Complementary",
    "Distributional",
    "Exact",
    "FederatedRound",
    "FederatedValues",
    "GroupTesting",
    "KNNProxy",
    "LearnedUtility",
    "LeaveOneOut",
    "MaximumSampleReuse",
    "OutOfBag",
    "Permutation",
    "ProxyValuation",
    "SampledShapley",
    "Sampler",
    "Stratified",
    "Truncated",
    "federated_values",
    "knn_proxy",
]
