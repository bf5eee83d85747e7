"""Models that value training rows exactly for nearest-neighbour predictors."""

from shapshift.knn.regression import KNNRegressionShapley
from shapshift.knn.semi_supervised import SemiSupervisedKNNShapley
from shapshift.knn.shapley import KNNShapley
from shapshift.knn.threshold import ThresholdKNNShapley
from shapshift.knn.weighted import WeightedKNNShapley

__all__ = [
    "KNNRegressionShapley",
    "KNNShapley",
    "SemiSupervisedKNNShapley",
    "ThresholdKNNShapley",
    "WeightedKNNShapley",
]
