"""A perturbation and a corrector of one's own, for the study in wine.toml."""

from dataclasses import replace
from typing import Any, Self

import numpy as np

from shapshift import Valuation


def scramble(X_val: Any, y_val: Any, rng: np.random.Generator, share: float) -> tuple[Any, Any]:
    """Exchange the entries of a share of the features between points."""
    for column in rng.choice(X_val.shape[1], round(share * X_val.shape[1]), replace=False):
        X_val[:, column] = rng.permutation(X_val[:, column])
    return X_val, y_val


class MatchSpread:
    """Values with the mean and standard deviation of the clean ones."""

    def fit(self, clean: Valuation) -> Self:
        self.mean, self.std = clean.values.mean(), clean.values.std()
        return self

    def transform(self, noisy: Valuation) -> Valuation:
        values = noisy.values
        return replace(noisy, values=self.mean + (values - values.mean()) * self.std / values.std())
