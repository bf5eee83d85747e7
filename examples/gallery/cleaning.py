"""
Drop or relabel: what it changes
================================

Accuracy on held-out rows after the removal of suspects, and after the removal of as many random rows.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from shapshift import Decisions, find_suspects, measure_cleaning

X, y = load_digits(return_X_y=True)
rng = np.random.default_rng(0)
test = rng.random(len(y)) < 0.5
X_test, y_test, X, y = X[test], y[test], X[~test], y[~test].copy()
wrong = rng.choice(len(y), size=180, replace=False)
y[wrong] = rng.integers(0, 10, size=180)

suspects = find_suspects(X, y, model="neighbors", error=0.2)
shown = {}
for action in ("drop", "relabel"):
    decisions = Decisions.from_suspects(suspects, X, y, action=action)
    effect = measure_cleaning(decisions, X, y, X_test, y_test, "logistic", repeats=2)
    for name in ("before", "random removal", "after"):
        shown[f"after {action}" if name == "after" else name] = effect.value("logistic", "balanced accuracy", name)

fig, ax = plt.subplots(figsize=(7, 2.6), layout="constrained")
for place, (mean, low, high) in enumerate(shown.values()):
    ax.errorbar(mean, place, xerr=[[mean - low], [high - mean]], fmt="o", capsize=3, color="tab:blue")
ax.set_yticks(range(len(shown)), list(shown))
_ = ax.set_xlabel("balanced accuracy on held-out rows, 95% interval")
