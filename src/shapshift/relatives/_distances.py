"""Distances in the metric's own units. Tiles hold squared or scaled ones, which is enough for an order."""

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from shapshift.distances import TrainingIndex

Floats = npt.NDArray[np.float64]


def true_index(index: TrainingIndex) -> TrainingIndex:
    """Return an index whose tiles tell how far away rows are even when they are all equal."""
    return replace(index, constant=False)


def true_distances(index: TrainingIndex, tile: Floats) -> Floats:
    """Turn a tile into distances in the metric's units, as a new array."""
    if index.metric == "euclidean":
        return np.ldexp(np.sqrt(tile), index.exponent)
    return np.ldexp(tile, _exponent(index))


def scaled_limit(index: TrainingIndex, radius: float) -> float:
    """Return the largest entry of a tile that is within ``radius``; rounded as the tile's own entries are."""
    if index.metric == "euclidean":
        scaled = float(np.ldexp(radius, -index.exponent))
        return scaled * scaled
    return float(np.ldexp(radius, -_exponent(index)))


def _exponent(index: TrainingIndex) -> int:
    return {"sqeuclidean": 2 * index.exponent, "manhattan": index.exponent}.get(index.metric, 0)
