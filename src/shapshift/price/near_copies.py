"""Detection of near copies beyond the radius: sellers whose rows lie unusually near to earlier rows.

Let a row's nearest one of equal label be at distance d, and the sixth at distance D. Among independent rows, d / D is
independent of the row's seller and time of submission, whatever the local density and dimension. So the ratios of one
seller's rows are compared with those of all others by a rank test (Mann and Whitney), over rows whose nearest one was
submitted before them. Originals that were copied are therefore not suspected, and a seller's place in the order does
not matter.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

from shapshift.engine.rows.distances import feature_std, index_rows, tile_filler, true_distances
from shapshift.engine.search import exact_search

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

#: Probability that any honest seller is named, and minimum number of rows for a seller to be tested.
ALPHA, LEAST = 0.001, 10
# Rank of the neighbour whose distance is the reference; rows compared at a time.
FAR, STEP = 6, 1024


def find_near_copies(rows: Any, labels: Indices, sellers: Indices) -> tuple[Indices, Indices]:
    """Find sellers who submit near copies, and the copied rows.

    Parameters
    ----------
    rows : ndarray or sparse matrix of shape (n_rows, n_features)
        In the order of submission, without copies within the radius.
    labels, sellers : ndarray of shape (n_rows,)
        Codes of labels and sellers.

    Returns
    -------
    suspects : ndarray
        Codes of the sellers whose ratios are smaller than those of the others, at a family-wise level of ``ALPHA``.
    source : ndarray of shape (n_rows,)
        For rows of suspects whose ratio is below the median of the others', the nearest earlier row; -1 for all other
        rows.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 8))
    >>> X = np.concatenate([X, X[:40] + 0.1 * rng.normal(size=(40, 8))])
    >>> sellers = np.repeat([0, 1, 2], [100, 100, 40])
    >>> suspects, source = find_near_copies(X, np.zeros(240, dtype=np.int64), sellers)
    >>> suspects, int((source[200:] == np.arange(40)).sum())
    (array([2]), 40)
    """
    n = labels.size
    nearest, ratio = np.full(n, -1), np.full(n, np.nan)
    std = feature_std(rows)
    if std is not None:
        rows = np.asarray(rows) / np.where(std > 0, std, 1.0)
    for label in np.unique(labels):
        own = np.flatnonzero(labels == label)
        if own.size > FAR + 1:
            found, distances = _neighbours(rows[own])
            far = distances[:, FAR - 1] > 0
            nearest[own[far]] = own[found[far]]
            ratio[own[far]] = distances[far, 0] / distances[far, FAR - 1]
    later = (nearest >= 0) & (nearest < np.arange(n))
    suspects, source = [], np.full(n, -1)
    names = np.unique(sellers)
    worst = stats.norm.isf(ALPHA / names.size)
    for seller in names:
        mine = later & (sellers == seller)
        a, b = np.count_nonzero(mine), np.count_nonzero(later & ~mine)
        if a < LEAST or b < LEAST:
            continue
        others = np.sort(ratio[later & ~mine])
        place = (np.searchsorted(others, ratio[mine]) + np.searchsorted(others, ratio[mine], "right")) / (2 * b)
        if (0.5 - place.mean()) / np.sqrt((a + b + 1) / (12 * a * b)) > worst:
            suspects.append(seller)
            copies = np.flatnonzero(mine)[place < 0.5]
            source[copies] = nearest[copies]
    return np.array(suspects, dtype=np.int64), source


def _neighbours(rows: Any) -> tuple[Indices, Floats]:
    """Return each row's nearest other row, and its distances to the nearest ones."""
    n = rows.shape[0]
    index = index_rows(rows, "euclidean")
    search = exact_search(tile_filler(index, rows), n, FAR + 1, whole_ties=False)
    nearest, distances = np.empty(n, dtype=np.int64), np.empty((n, FAR))
    for start in range(0, n, STEP):
        stop = min(start + STEP, n)
        lists = search.find(start, stop, np.empty((stop - start, 0), dtype=np.int64))
        found = lists.rows.reshape(-1, FAR + 1)
        # The row itself is among its nearest ones, except for rows with more than FAR equal ones.
        own = found == np.arange(start, stop)[:, None]
        own[~own.any(axis=1), -1] = True
        nearest[start:stop] = found[~own].reshape(-1, FAR)[:, 0]
        distances[start:stop] = true_distances(index, lists.distances).reshape(-1, FAR + 1)[~own].reshape(-1, FAR)
    return nearest, distances
