"""PointInfluence: how far the values hang on single validation points."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._progress import progress_bar
from shapshift.exceptions import InputError
from shapshift.io.shown import Shown
from shapshift.perturb.containers import count_rows, take_rows
from shapshift.valuation import Valuation, check_valuation

Floats = npt.NDArray[np.float64]

# Numbers that are held for the points of a block.
BLOCK_NUMBERS, MOST_POINTS = 2**23, 128


@dataclass(frozen=True, eq=False)
class PointInfluence(Shown):
    """What each validation point changes in the values.

    Attributes
    ----------
    change : ndarray of shape (n_val,)
        Change of the values without the point: root of the mean square over the rows, in standard deviations of the
        values. NaN where values do not differ.
    agreement : ndarray of shape (n_val,)
        Correlation of the values on the point alone with those on all other points; NaN where one of them do not
        differ.
    flips : ndarray of shape (n_val,)
        Number of rows whose value changes its sign without the point.
    """

    change: Floats
    agreement: Floats
    flips: npt.NDArray[np.int64]


def point_influence(
    model: Any, X_val: Any, y_val: Any, valuation: Valuation, *, progress: bool | None = None
) -> PointInfluence:
    """Measure what the values would be without each validation point.

    Parameters
    ----------
    model : fitted estimator
        What made the valuation, of values that are means over the points, such as :class:`shapshift.KNNShapley`.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        Two points at least.
    valuation : Valuation
        What the model returned for them.
    progress : bool, default=None
        Show a progress bar; None shows it in a terminal only.

    Returns
    -------
    PointInfluence

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> points = [[0.1], [0.9], [2.8]], ["a", "b", "a"]
    >>> found = point_influence(model, *points, model.value(*points))
    >>> found.change.round(2), found.flips
    (array([1.38, 1.85, 0.96]), array([1, 1, 1]))
    """
    caller = "point_influence"
    check_valuation(caller, "valuation", valuation)
    n, m = valuation.n_train, count_rows(y_val)
    if m < 2:
        raise InputError(f"The 'y_val' parameter of {caller} must hold two points at least. Got {m}.")
    values, spread = valuation.values, float(valuation.values.std())
    change, agreement, flips = np.empty(m), np.full(m, np.nan), np.empty(m, dtype=np.int64)
    size = max(1, min(MOST_POINTS, BLOCK_NUMBERS // n))
    with progress_bar("Points", m, progress) as advance, np.errstate(invalid="ignore", divide="ignore"):
        for start in range(0, m, size):
            here = np.arange(start, min(start + size, m))
            found = model.value(take_rows(X_val, here), take_rows(y_val, here), groups=np.arange(here.size))
            alone = found.group_means
            without = values + (values - alone) / (m - 1)
            change[here] = np.sqrt(((without - values) ** 2).mean(axis=1)) / (spread or np.nan)
            flips[here] = ((without > 0) != (values > 0)).sum(axis=1)
            one, rest = (part - part.mean(axis=1, keepdims=True) for part in (alone, without))
            size_of_both = np.sqrt((one**2).sum(axis=1) * (rest**2).sum(axis=1))
            agreement[here] = (one * rest).sum(axis=1) / np.where(size_of_both > 0, size_of_both, np.nan)
            advance(here.size)
    return PointInfluence(change, agreement, flips)
