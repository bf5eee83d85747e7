"""Relatives of KNNShapley: regression, a radius instead of K, weighted votes, and interactions of pairs of rows."""

from shapshift.relatives.regression import KNNRegressionShapley
from shapshift.relatives.threshold import ThresholdKNNShapley
from shapshift.relatives.weighted import WeightedKNNShapley

__all__ = ["KNNRegressionShapley", "ThresholdKNNShapley", "WeightedKNNShapley"]
