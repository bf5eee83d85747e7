"""
The radius of near copies
=========================

Rows nearer than a radius count once. The curve shows how many rows remain, and the radius that is chosen from the data.
"""

import matplotlib.pyplot as plt
import numpy as np

from shapshift import find_duplicates, load_dataset

data = load_dataset("breast_cancer")
rng = np.random.default_rng(0)
noise = 0.01 * data.X_train.std(axis=0) * rng.normal(size=(100, 30))
X, y = np.vstack([data.X_train, data.X_train[:100] + noise]), np.append(data.y_train, data.y_train[:100])

chosen = find_duplicates(X, y).radius
radii = np.geomspace(0.02, 5, 25)
clusters = [len(np.unique(find_duplicates(X, y, radius=radius).clusters())) for radius in radii]

fig, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.semilogx(radii, clusters)
ax.axhline(len(data.y_train), color="grey", linestyle=":", label="rows without the 100 noisy copies")
ax.axvline(chosen, color="tab:red", linestyle="--", label="radius chosen from the data")
ax.set_xlabel("radius, in standard deviations")
ax.set_ylabel("clusters")
_ = ax.legend()
