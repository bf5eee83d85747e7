"""A splitter that preserves class shares and boundary shares."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.model_selection import BaseShuffleSplit

from shapshift.checks import inputs as check
from shapshift.design.profile import leave_one_out_entropy, neighbor_model
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS
from shapshift.exceptions import InputError
from shapshift.valuation import is_boundary

Ints = npt.NDArray[np.int64]


class BoundaryStratifiedSplit(BaseShuffleSplit):  # type: ignore[misc]  # scikit-learn ships no types
    """Random train/test splits that preserve the shares of the classes and, within each class, of boundary points.

    A row is a boundary row when the labels of its nearest other rows disagree. This is a scikit-learn splitter: pass it
    as ``cv``. Splitting needs the features to find neighbours.

    Parameters
    ----------
    n_splits : int, default=10
        Number of splits.
    test_size : float or int, default=0.25
        Share of the rows (above 0 and below 1), or number of rows, in the test set.
    n_neighbors : int, default=5
        Number of neighbours whose labels are used.
    boundary_entropy : float, default=0.0
        Entropy of their labels, in nats, above which a row is a boundary row.
    metric : str, default="euclidean"
        As in :class:`~shapshift.KNNShapley`, except "precomputed".
    random_state : int, optional
        Same seed, same splits.

    Notes
    -----
    Places in the test set are allocated in proportion to the classes, then within each class to boundary and other
    rows. Fractions are rounded at random, so every row is equally likely to be in the test set. The test count of a
    class differs from its exact share by less than one, that of a class's boundary rows by less than two. A class or
    part with a share below one place gets one in some splits and none in others, without an error.

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 2))
    >>> y = (X[:, 0] > 0).astype(int)
    >>> for train, test in BoundaryStratifiedSplit(n_splits=2, test_size=0.2, random_state=0).split(X, y):
    ...     print(len(train), len(test), y[test].mean())
    160 40 0.45
    160 40 0.45
    """

    def __init__(
        self,
        n_splits: int = 10,
        *,
        test_size: float = 0.25,
        n_neighbors: int = BOUNDARY_NEIGHBORS,
        boundary_entropy: float = 0.0,
        metric: str = "euclidean",
        random_state: int | None = None,
    ) -> None:
        super().__init__(n_splits=n_splits, test_size=test_size, random_state=random_state)
        self.n_neighbors = n_neighbors
        self.boundary_entropy = boundary_entropy
        self.metric = metric

    def split(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[Ints, Ints]]:
        """Generate splits.

        Parameters
        ----------
        X : table of shape (n, n_features)
        y : array-like of shape (n,)
        groups : None
            Ignored.

        Yields
        ------
        train, test : ndarray of int
            Positions of rows, in random order.
        """
        caller = type(self).__name__
        check.check_count(caller, "n_splits", self.n_splits)
        check.check_count(caller, "n_neighbors", self.n_neighbors, at_most=check.MOST)
        check.check_number(caller, "boundary_entropy", self.boundary_entropy)
        if self.metric == "precomputed":
            raise InputError(f"The 'metric' parameter of {caller} cannot be 'precomputed'. Pass the features.")
        if y is None:
            raise InputError(f"{caller}.split needs 'y', since splits are stratified by class.")
        yield from self._iter_indices(X, y, groups)

    def _iter_indices(self, X: Any, y: Any, groups: Any = None) -> Iterator[tuple[Ints, Ints]]:
        model = neighbor_model(X, y, self.n_neighbors, self.metric)
        n = model.codes_.size
        n_test = _test_count(type(self).__name__, self.test_size, n)
        entropy = leave_one_out_entropy(model, X, y, np.arange(n), self.n_neighbors)
        boundary = is_boundary(entropy, self.boundary_entropy)
        rng = np.random.default_rng(self.random_state)
        for _ in range(self.n_splits):
            chosen = draw_stratified(model.codes_, boundary, n_test, rng)
            in_test = np.zeros(n, dtype=bool)
            in_test[chosen] = True
            yield rng.permutation(np.flatnonzero(~in_test)), rng.permutation(np.flatnonzero(in_test))


def draw_stratified(
    codes: npt.NDArray[np.int32], boundary: npt.NDArray[np.bool_], total: int, rng: np.random.Generator
) -> Ints:
    """Draw ``total`` positions, in proportion to the classes and their boundary parts."""
    chosen = []
    classes, sizes = np.unique(codes, return_counts=True)
    for number, seats in zip(classes, apportion(sizes, total, rng), strict=True):
        parts = [np.flatnonzero((codes == number) & (boundary == side)) for side in (False, True)]
        for part, count in zip(parts, apportion(np.array([p.size for p in parts]), int(seats), rng), strict=True):
            chosen.append(rng.choice(part, int(count), replace=False))
    return np.concatenate(chosen).astype(np.int64)


def apportion(sizes: Ints, total: int, rng: np.random.Generator) -> Ints:
    """Allocate ``total`` places in proportion to ``sizes``: whole parts first, the rest at random.

    Every part gets its exact share rounded down or up, with probabilities that make the exact share the mean
    (systematic sampling of the remainders). So all rows are equally likely to be drawn, however small their part.
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


def _test_count(caller: str, test_size: Any, n: int) -> int:
    whole = isinstance(test_size, int | np.integer) and not isinstance(test_size, bool)
    share = isinstance(test_size, float | np.floating) and 0 < test_size < 1
    if not share and not (whole and 0 < test_size < n):
        raise InputError(
            f"The 'test_size' parameter of {caller} must be a share above 0 and below 1, or a number of rows above 0 "
            f"and below the {n} rows there are. Got {check.quoted(test_size)} instead."
        )
    count = int(test_size) if whole else round(float(test_size) * n)
    if not 0 < count < n:
        raise InputError(
            f"{n} rows cannot be split with test_size={check.quoted(test_size)}: one side would be empty. Use "
            "more rows."
        )
    return count
