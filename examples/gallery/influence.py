"""
Which validation points decide about the money
==============================================

Each validation point brings each seller something. The audit lists the points that decide, and looks for manipulation.
"""

import numpy as np

from shapshift import KNNShapley, audit_influence, load_dataset

data = load_dataset("breast_cancer")
scale = data.X_train.std(axis=0)
sellers = np.array(["ann", "bob", "cid"])[np.arange(len(data.y_train)) % 3]
model = KNNShapley(n_neighbors=5).fit(data.X_train / scale, data.y_train)
audit = audit_influence(model, data.X_val / scale, data.y_val, owners=sellers, budget=10_000)
print(audit.finding)
ax = audit.plot()
