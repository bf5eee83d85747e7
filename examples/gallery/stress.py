"""
What tricks of sellers would gain
=================================

A rule that pays every row invites copies. Here five sellers try four tricks each.
"""

import numpy as np

from shapshift import KNNShapley, load_dataset, stress_market
from shapshift.price import Policy, Rule

data = load_dataset("breast_cancer")
scale = data.X_train.std(axis=0)
sellers = np.array(["ann", "bob", "cid", "dee", "eve"])[np.arange(len(data.y_train)) % 5]
given = (KNNShapley(), data.X_train / scale, data.y_train, data.X_val / scale, data.y_val, sellers, 10_000)
every_row = Rule("rows", policy=Policy(negatives="clip"))
found = stress_market(*given, rule=every_row, attackers=5, attacks=["copy", "steal", "random rows", "split"])
ax = found.plot()
