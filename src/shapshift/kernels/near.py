"""Nearest rows, ranks and label shares of validation points in one pass over the distances, without sorting."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.images import count_among

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@kernel
def look_around(tile: Floats, depth: int, reference: Indices, nearest: Indices, ranks: Floats, cuts: Floats) -> None:
    """Find the nearest rows of each point, and the ranks of some others.

    Parameters
    ----------
    tile : float64 (b, N)
        Distances.
    depth : int
        Number of neighbours that decide whether a point is a boundary point; at most N.
    reference : int64 (b, r)
        Training rows whose ranks to report; r may be 0.
    nearest : int64 (b, k)
        Out: the k nearest rows, ties by row number; k may be 0.
    ranks : float64 (b, r)
        Out: zero-based rank of each reference row, averaged over ties.
    cuts : float64 (b,)
        Out: the ``depth``-th smallest distance.
    """
    size = max(depth, nearest.shape[1])
    keys = np.empty(size)
    rows, no_sizes = np.empty(size, np.int64), np.empty(0, np.int64)
    for p in range(tile.shape[0]):
        found = 0
        for i in range(tile.shape[1]):
            d = tile[p, i]
            if found == size and d >= keys[size - 1]:
                continue
            at = found if found < size else size - 1
            while at > 0 and keys[at - 1] > d:
                keys[at], rows[at] = keys[at - 1], rows[at - 1]
                at -= 1
            keys[at], rows[at] = d, i
            found = min(found + 1, size)
        cuts[p] = keys[depth - 1]
        nearest[p] = rows[: nearest.shape[1]]
        if reference.shape[1] > 0:
            ranks[p] = -0.5  # the row ties with itself, which adds 0.5
            count_among(tile[p], no_sizes, tile[p][reference[p]], ranks[p])


@kernel
def label_shares(tile: Floats, codes: npt.NDArray[np.int32], depth: int, cuts: Floats, shares: Floats) -> None:
    """Fill ``shares`` (b, n_classes) with each label's share among the ``depth`` nearest rows.

    Rows tied for the last places count by their probability of being included in a random order.
    """
    tied = np.empty(shares.shape[1])
    for p in range(tile.shape[0]):
        below = shares[p]
        below[:] = 0.0
        tied[:] = 0.0
        inside = 0
        at_cut = 0
        for i in range(tile.shape[1]):
            if tile[p, i] < cuts[p]:
                below[codes[i]] += 1.0
                inside += 1
            elif tile[p, i] == cuts[p]:
                tied[codes[i]] += 1.0
                at_cut += 1
        for k in range(below.size):
            below[k] = (below[k] + tied[k] * (depth - inside) / at_cut) / depth


@kernel
def target_spread(tile: Floats, targets: Floats, depth: int, cuts: Floats, spread: Floats) -> None:
    """Fill ``spread`` (b,) with the standard deviation of the ``depth`` nearest rows' targets; ties as above."""
    for p in range(tile.shape[0]):
        inside = 0
        at_cut = 0
        total = 0.0
        total_at_cut = 0.0
        for i in range(tile.shape[1]):
            if tile[p, i] < cuts[p]:
                inside += 1
                total += targets[i]
            elif tile[p, i] == cuts[p]:
                at_cut += 1
                total_at_cut += targets[i]
        share = (depth - inside) / at_cut
        mean = (total + share * total_at_cut) / depth
        squares = 0.0
        for i in range(tile.shape[1]):
            if tile[p, i] <= cuts[p]:
                e = targets[i] - mean
                squares += e * e if tile[p, i] < cuts[p] else share * e * e
        spread[p] = np.sqrt(squares / depth)


def entropy_of(shares: Floats) -> Any:
    """Entropy (nats) of each row of shares; exactly 0 if there is only one label."""
    # Sorted, so that the result does not depend on the numbering of the classes.
    ordered = np.sort(shares, axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(ordered > 0, ordered * np.log(ordered), 0.0)
    return np.where(np.count_nonzero(shares, axis=1) > 1, -terms.sum(axis=1), 0.0)
