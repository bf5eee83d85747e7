"""
Images with the lowest values
=============================

Handwritten digits, each valued on all others; 20 labels are wrong.
The lowest values show what is worth a look.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from shapshift import KNNShapley, cross_value

digits = load_digits()
labels = digits.target.copy()
wrong = np.random.default_rng(0).choice(len(labels), size=20, replace=False)
labels[wrong] = (labels[wrong] + 1) % 10

result = cross_value(KNNShapley(n_neighbors=5), digits.data, labels)
lowest = result.values.argsort()[:24]

fig, axes = plt.subplots(3, 8, figsize=(8, 3.8), layout="constrained")
for ax, row in zip(axes.flat, lowest):
    ax.imshow(digits.images[row], cmap="gray_r")
    ax.set_title(f"label {labels[row]}", color="tab:red" if row in wrong else "black", fontsize=9)
    ax.axis("off")

# %%
# Red: labels that are wrong on purpose.

print(f"{np.isin(lowest, wrong).sum()} of the 24 lowest rows have a wrong label; there are 20")
