"""Neighbour-label entropy of validation points, and of training rows among the other training rows."""

from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.boundary import label_counts
from shapshift.estimators import KNNShapley
from shapshift.perturb.containers import take_rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def neighbor_model(X: Any, y: Any, n_neighbors: int, metric: str) -> KNNShapley:
    """Index training rows for one neighbour more than asked for: a training row finds itself first."""
    return KNNShapley(n_neighbors=n_neighbors + 1, metric=metric, progress=False).fit(X, y)


def leave_one_out_entropy(model: KNNShapley, X: Any, y: Any, rows: Ints, n_neighbors: int) -> Floats:
    """Entropy of the labels of each training row's nearest *other* training rows.

    Only the row itself is left out. An exact copy elsewhere in the table is another row and stays, as it would for a
    new point that happens to be equal. Among copies the row may not come first, or not be listed at all when there are
    many; it is removed where it stands, else the list is cut to length.
    """
    nearest = model.value_and_neighbors(take_rows(X, rows), take_rows(y, rows))[1].nearest
    itself = nearest == rows[:, None]
    itself[~itself.any(axis=1), -1] = True
    return label_entropy(model, nearest[~itself].reshape(rows.size, -1)[:, :n_neighbors])


def label_entropy(model: KNNShapley, nearest: Ints) -> Floats:
    """Entropy (nats) of the labels of the listed training rows; exactly 0 where they agree."""
    k = nearest.shape[1]
    counts = label_counts(model.codes_[nearest], len(model.classes_))
    # Sorted, so that the same split gives the same bits whichever classes it is between.
    shares = np.sort(counts, axis=1)[:, ::-1][:, : max(k, 1)] / max(k, 1)
    terms = np.zeros_like(shares)
    np.log(shares, out=terms, where=shares > 0)
    entropy: Floats = np.where(shares[:, 0] >= 1, 0.0, -(shares * terms).sum(axis=1))
    return np.round(entropy, 12) + 0.0


def apportion(sizes: Ints, total: int, rng: np.random.Generator) -> Ints:
    """Share ``total`` seats in proportion to ``sizes``: whole parts first, the rest by lot.

    Every part gets its exact share rounded down or up, with the chance that makes the exact share its mean (systematic
    sampling of the remainders). So no row is likelier to be drawn than another, however small its part.
    """
    exact = sizes * (total / sizes.sum())
    seats: Ints = np.floor(exact + 1e-9).astype(np.int64)
    left = total - int(seats.sum())
    if left > 0:
        order = rng.permutation(sizes.size)
        reached = np.maximum(exact - seats, 0.0)[order].cumsum()
        reached *= left / reached[-1]
        seats[order] += np.diff(np.ceil(reached - rng.random()), prepend=0.0).astype(np.int64)
    return seats
