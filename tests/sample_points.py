"""A validation set of three classes, and a model to perturb it for."""

from __future__ import annotations

import numpy as np

from shapshift import KNNShapley

RNG = np.random.default_rng(7)
X = RNG.normal(size=(60, 3)) * [1.0, 10.0, 0.1]
Y = np.repeat([0, 1, 2], [30, 20, 10])
TRAIN = RNG.normal(size=(80, 3)) * [1.0, 10.0, 0.1]
MODEL = KNNShapley().fit(TRAIN, np.digitize(TRAIN[:, 1], [-5, 5]))
