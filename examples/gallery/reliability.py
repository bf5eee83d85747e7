"""
How many validation points it takes
===================================

The correlation to expect between values on two samples of validation points, for other sizes of the sample.
"""

from shapshift import KNNShapley, load_dataset
from shapshift.plots.results import plot_reliability

data = load_dataset("breast_cancer")
result = KNNShapley(n_neighbors=5).fit(data.X_train, data.y_train).value(data.X_val, data.y_val)
ax = plot_reliability(result)

# %%
print(f"{result.points_needed(0.9):,.0f} points are needed for a correlation of 0.9")
