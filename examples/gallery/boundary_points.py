"""
Points near a boundary, and the others
======================================

One validation point at a time, with noise: values on boundary points collapse, values on the others do not.
"""

from shapshift import KNNShapley, case_one, load_dataset

data = load_dataset("gaussian", n_train=600, n_val=300)
model = KNNShapley(n_neighbors=5).fit(data.X_train, data.y_train)
levels = [0.1, 0.2, 0.5, 1.0]
boundary = case_one(model, data.X_val, data.y_val, kind="boundary", noise=levels, n_points=20)
others = case_one(model, data.X_val, data.y_val, kind="nonboundary", noise=levels, n_points=20)
axes = boundary.plot(others)
