"""Sampling error of payouts, estimated from sums over random blocks of validation points."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks.labels import check_groups
from shapshift.sampling_error import BLOCK, half_width, in_blocks, shrink
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]

CONFIDENCE = 0.95
# Blocks of points: enough to estimate a variance well, and fewer where each needs a large row of sums.
MOST_BLOCKS, LEAST_BLOCKS, BLOCK_NUMBERS = 40, 10, 2**24


def random_blocks(n_val: int, n_train: int, clusters: Any = None) -> npt.NDArray[np.object_]:
    """Assign each validation point to a random block; pass the result as ``groups`` to ``value``.

    A valuation with these groups has the sums over each block. :func:`allocate_budget` computes the sampling error of
    the payouts from them.

    Parameters
    ----------
    n_val, n_train : int
        Number of validation points and of training rows. There are at most 40 blocks, and fewer for many rows: each
        block stores one more row of sums.
    clusters : array-like of shape (n_val,), optional
        Points of one cluster stay in one block, as in ``value``.

    Returns
    -------
    ndarray of shape (n_val,)

    Examples
    --------
    >>> from collections import Counter
    >>> Counter(random_blocks(5, 100).tolist()).most_common(1)[0][1]
    1
    """
    of_point = np.arange(n_val) if clusters is None else check_groups(clusters, n_val, "clusters")[1]
    units = int(of_point.max()) + 1
    blocks = min(units, max(LEAST_BLOCKS, min(MOST_BLOCKS, BLOCK_NUMBERS // n_train)))
    of_unit = np.random.default_rng(0).permutation(units) % blocks
    names: npt.NDArray[np.object_] = np.array([f"{BLOCK}{number}" for number in of_unit[of_point]], dtype=object)
    return names


def without_blocks(valuation: Valuation) -> Valuation:
    """Return a valuation without the groups of :func:`random_blocks`."""
    if not in_blocks(valuation.group_names):
        return valuation
    nothing = np.empty((0, valuation.n_train))
    errors: dict[str, Any] = (
        {} if valuation.group_errors is None else {"group_errors": nothing, "group_freedom": np.empty(0)}
    )
    return replace(valuation, group_means=nothing, group_names=(), group_sizes=(), **errors)


def block_sums(valuation: Valuation) -> tuple[Floats, npt.NDArray[Any]] | None:
    """Return the sums of the values over each block of points, and the number of points in each block.

    If points have weights, the sums are weighted, and each block's sum of weights takes the place of its number of
    points.

    In a valuation with a matrix, each point is a block. None if there are no blocks.
    """
    if in_blocks(valuation.group_names):
        sizes = np.array(valuation.group_sizes)
        return valuation.group_means * sizes[:, None], sizes
    if valuation.matrix is not None and valuation.n_val > 1:
        if valuation.point_weight is not None:
            return valuation.matrix.T * valuation.point_weight[:, None], valuation.point_weight
        return valuation.matrix.T, np.ones(valuation.n_val, dtype=np.int64)
    return None


def share_errors(sums: Floats, sizes: npt.NDArray[Any], totals: Floats) -> Floats:
    """Half the width of a 95% interval of each owner's share of the payouts, times the sum of the contributions.

    Parameters
    ----------
    sums : ndarray of shape (n_blocks, n_owners)
        Sums of the owners' contributions over the points of each block. An owner with a negative contribution is paid
        nothing.
    sizes : ndarray of shape (n_blocks,)
        Number of points of each.
    totals : ndarray of shape (n_owners,)
        Means over all points.

    Notes
    -----
    The share of an owner is a ratio of two means: delta method (first order), with the set of paid owners and of
    counted rows held fixed. Variances are shrunk towards their mean over the owners. On two datasets with 8 owners and
    50 to 1,000 points (300 draws each), 94% to 97% of the intervals contained the population share when negative rows
    are carried, and 89% to 96% when they are clipped, lowest at 50 points.
    """
    paid = totals > 0
    whole = float(totals[paid].sum())
    off = sums - sizes[:, None] * totals
    if not whole > 0:
        return np.zeros_like(totals)
    n = sizes.size
    moved = (off - off[:, paid].sum(axis=1)[:, None] * (totals / whole)) * (n / sizes.sum())
    return half_width(*shrunk_errors(moved), CONFIDENCE)


def shrunk_errors(off: Floats) -> tuple[Floats, float]:
    """Return standard errors of means over blocks, and their degrees of freedom.

    Parameters
    ----------
    off : ndarray of shape (n_blocks, n_owners)
        How far each block is from the mean.
    """
    n = len(off)
    variance = (off**2).sum(axis=0) / (n - 1)
    spread = float((variance**2).sum())
    if spread == 0:
        return np.zeros(off.shape[1]), float(n - 1)
    shrunk, freedom = shrink(variance, n, float((off**4).mean(axis=0).sum()) / spread)
    return np.sqrt(shrunk / n), min(freedom, n - 1)
