"""
Values with their intervals
===========================

Each value with its 95% interval: where it may lie on another sample of validation points.
"""

from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from shapshift import KNNShapley

X, y = load_wine(return_X_y=True)
X = scale(X)
y[[3, 101, 151]] = [2, 0, 1]  # three wrong labels in the training half
result = KNNShapley(n_neighbors=5).fit(X[1::2], y[1::2], ids=range(1, 178, 2)).value(X[::2], y[::2])

from shapshift.plots.results import plot_intervals

ax = plot_intervals(result)

# %%
# Whole intervals below 0 belong to rows that lower the accuracy, beyond chance.

low, high = result.interval()
print("surely negative:", result.ids[high < 0])
