"""
Copies across sellers
=====================

Bob sells twenty rows of Ann again, each number changed by about a thousandth.
"""

import matplotlib.pyplot as plt
import numpy as np

from shapshift import find_duplicates, load_dataset

data = load_dataset("breast_cancer")
rng = np.random.default_rng(0)
copied = data.X_train[:20] * (1 + 0.001 * rng.normal(size=(20, 30)))
X, y = np.vstack([data.X_train, copied]), np.append(data.y_train, data.y_train[:20])
owners = np.array(["Ann"] * len(data.y_train) + ["Bob"] * 20)
found = find_duplicates(X, y, owners=owners)
print(*found.findings(), sep="\n")

# %%
# Rows that have a copy, among all others, by two of the 30 features.

copy = found.across_owners[: len(X)]
fig, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
ax.scatter(X[~copy, 0], X[~copy, 1], s=8, color="lightgrey", label="no copy")
ax.scatter(X[copy, 0], X[copy, 1], s=16, color="tab:red", label="copy of another seller's row")
ax.set_xlabel("mean radius")
ax.set_ylabel("mean texture")
_ = ax.legend()
