"""
Intervals
=========

Test.
"""

from shapshift import KNNShapley, load_dataset

data = load_dataset("breast_cancer")
result = KNNShapley().fit(data.X_train, data.y_train).value(data.X_val, data.y_val)
result.plot()
