"""
Payouts and how far they could have moved
=========================================

One budget, five sellers; each amount with the range in which another validation set would have paid.
"""

import numpy as np

from shapshift import KNNShapley, load_dataset, pay_owners

data = load_dataset("breast_cancer")
scale = data.X_val.std(axis=0)
owners = np.array(["Alpha", "Bravo", "Charlie", "Delta", "Echo"])[np.arange(len(data.y_train)) % 5]
y = data.y_train.copy()
careless = np.flatnonzero(owners == "Delta")[::10]
y[careless] = 1 - y[careless]  # Delta has some wrong labels
pay = pay_owners(KNNShapley(n_neighbors=5), data.X_train / scale, y, data.X_val / scale, data.y_val, owners, 10_000)
ax = pay.plot()
