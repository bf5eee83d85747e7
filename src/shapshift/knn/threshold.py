"""ThresholdKNNShapley: all rows within a radius vote. Values take linear time and can be made private."""

import hashlib
import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.optimize import brentq
from scipy.special import digamma, log_ndtr

from shapshift.checks import inputs as check
from shapshift.checks.warnings import warn
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS, entropy_levels
from shapshift.engine.exact import Tiled
from shapshift.engine.rows.distances import NOT_STORED, scaled_limit, true_distances
from shapshift.engine.tasks import Sums, Task
from shapshift.exceptions import InputError
from shapshift.kernels.near import entropy_of
from shapshift.kernels.threshold import count_inside, threshold_values
from shapshift.knn.base import KNNClassModel, Prepared
from shapshift.knn.explain import Nearness
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]

#: A graph of all rows within a radius stores distances up to about the radius; below this share of it, rows may be
#: missing.
REACHED = 0.95


class ThresholdKNNShapley(KNNClassModel):
    r"""Exact Shapley value of every training row when all rows within a radius vote (Wang et al. 2023).

    On one validation point, a subset of the training rows is worth the share of its rows within ``radius`` that carry
    the point's label, or 1/C, with C the number of classes, if it has no row there. Values take linear time, need no
    sort, and depend on the other rows through two counts only, which makes a differentially private :meth:`release`
    possible.

    Parameters
    ----------
    radius : float
        Rows at this distance or nearer vote, in units of the metric.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed"}, default="euclidean"
        As in :class:`shapshift.KNNShapley`. Rows that a sparse neighbour graph does not store are beyond the radius:
        pass scikit-learn's ``radius_neighbors_graph(mode="distance")`` of this radius or a larger one. Boundary points
        are then decided by the nearest stored rows.
    boundary_neighbors, boundary_entropy
        As in :class:`shapshift.KNNShapley`.
    n_jobs, max_memory
        As in :class:`shapshift.KNNShapley`.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Attributes
    ----------
    classes_, codes_, n_features_in_, feature_names_in_, feature_std_, ids_, fingerprint_
        As in :class:`shapshift.KNNShapley`.

    Notes
    -----
    Rows outside the radius are worth 0, and leaving them out of the game changes no other value.
    Among the ``n`` rows inside, ``M`` of which match, everyone votes in every subset, so that with
    :math:`H_n = 1 + 1/2 + \ldots + 1/n`

    .. math:: v_i = a_i \left(\frac{H_n - 1}{n - 1} + \frac1n\right) - \frac{M (H_n - 1)}{n (n - 1)} - \frac{1}{C n}

    and :math:`v = a - 1/C` for ``n = 1``. There are no binomial coefficients that could overflow.

    Boundary points are found as in :class:`shapshift.KNNShapley`, from the nearest rows, whatever the radius.

    Examples
    --------
    >>> from shapshift import ThresholdKNNShapley
    >>> model = ThresholdKNNShapley(radius=1.0).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> model.value([[0.9]], ["b"]).values
    array([-0.5,  0.5,  0. ])
    """

    _takes_graph = True
    _true_distances = True
    # Matching and other rows within the radius, and the nearest distance.
    _n_extra = 3

    def __init__(
        self,
        radius: float,
        *,
        metric: str = "euclidean",
        boundary_neighbors: int = BOUNDARY_NEIGHBORS,
        boundary_entropy: float = 0.0,
        n_jobs: int | None = None,
        max_memory: int | str | None = None,
        progress: bool | None = None,
    ) -> None:
        self.radius = radius
        self.metric = metric
        self.boundary_neighbors = boundary_neighbors
        self.boundary_entropy = boundary_entropy
        self.n_jobs = n_jobs
        self.max_memory = max_memory
        self.progress = progress

    def release(
        self,
        X_val: Any,
        y_val: Any,
        *,
        epsilon: float,
        delta: float,
        groups: Any = None,
        random_state: int | None = None,
    ) -> Valuation:
        r"""Value every training row with a guarantee of differential privacy for the others.

        For each of the m validation points the numbers of matching and of other rows within the radius are counted,
        and Gaussian noise is added to both. A row adds 1 to at most one of the two counts of each point, so the
        Euclidean sensitivity to adding or removing a row is :math:`\sqrt m`, and the noise has the smallest standard
        deviation that is (epsilon, delta)-private for it, whatever epsilon (Balle and Wang 2018).

        A row's value is then computed from the noisy counts, the validation set, and that row itself. So whoever sees
        the values of some rows, even of all but one, learns about any other row no more than epsilon and delta allow.
        Give the owner of a row only that row's value: it shows whether the row lies within the radius.

        Parameters
        ----------
        X_val, y_val, groups
            As in :meth:`value`.
        epsilon : float
            Above 0; smaller is more private. Epsilons of several releases of the same rows add up.
        delta : float
            Between 0 and 1, well below 1/N.
        random_state : int, optional
            Seed, for repeating an experiment; a seed that others know gives no protection.

        Returns
        -------
        Valuation
            All of it comes from the noisy counts: the entropy is that of the noisy share of matching rows, rounded to
            fifths, and the fingerprint that of the ids. Row ids, the number of rows and the classes are assumed to be
            public. ``parameters["privacy"]`` states the mechanism.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = ThresholdKNNShapley(radius=1.0).fit(X[::2], y[::2])
        >>> found = model.release(X[1::15], y[1::15], epsilon=2, delta=1e-3, random_state=0)
        >>> found.parameters["privacy"]["sensitivity"].__round__(3)
        3.162
        """
        caller = f"{type(self).__name__}.release"
        check.check_number(caller, "epsilon", epsilon, above=True)
        check.check_number(caller, "delta", delta, above=True)
        if delta >= 1:
            raise InputError(f"The 'delta' parameter of {caller} must be below 1. Got {check.quoted(delta)} instead.")
        if random_state is not None:
            check.check_count(caller, "random_state", random_state, at_least=0)
        given = self._prepare(X_val, y_val, groups=groups, graph_ok=True)
        sensitivity = float(np.sqrt(given.task.n_val))
        sigma = gaussian_sigma(float(epsilon), float(delta), sensitivity)
        counts = self._counts(given)
        noisy = counts + np.random.default_rng(random_state).normal(scale=sigma, size=counts.shape)
        levels = entropy_levels(int(self.boundary_neighbors), 2, float(self.boundary_entropy))
        task = replace(given.task, levels=levels, n_extra=0)
        sums = self._runner().sums(self._private_method(task, given.targets, noisy))
        about = self._parameters(task, sums) | {
            "privacy": {
                "mechanism": "Gaussian noise on the numbers of matching and of other rows within the radius",
                "epsilon": float(epsilon),
                "delta": float(delta),
                "neighbours": "data sets that differ by one row",
                "sensitivity": sensitivity,
                "sigma": sigma,
                "protects": "each row from what the values of all other rows tell",
            }
        }
        hidden = "private-" + hashlib.blake2b(repr(self.ids_.tolist()).encode(), digest_size=16).hexdigest()
        valuation = replace(self._valuation(task, sums, about, hidden), labels=None)
        self._check_unchanged(given.points)
        return valuation

    def _is_near(self, ranks: Floats, tile: Floats) -> npt.NDArray[np.bool_]:
        return tile <= scaled_limit(self._index, float(self.radius))

    def _nearness(self) -> Nearness:
        return Nearness(f"lies within {float(self.radius):g} of it", f"lie within {float(self.radius):g} of it")

    def _check_points(self, X_val: Any, *, narrow: bool = False) -> Any:
        points = super()._check_points(X_val, narrow=narrow)
        if self._is_graph(points):
            radius, lengths = float(self.radius), np.diff(points.indptr)
            short = lengths < points.shape[1] - (points.shape[0] == points.shape[1])  # without its own row, or with it
            full = np.flatnonzero(lengths)
            farthest = np.zeros(lengths.size)
            farthest[full] = np.maximum.reduceat(points.data, points.indptr[:-1][full]) if full.size else 0.0
            # A graph of the nearest rows stores equally many for each point; a graph of a radius stores nothing beyond
            # it.
            nearest = bool(lengths.min() == lengths.max() and (farthest[short] <= radius).any())
            reach = float(farthest.max())
            if full.size and short.any() and (nearest or reach < REACHED * radius):
                warn(
                    f"'X_val' seems to lack rows within radius={radius:g} of some validation points: "
                    f"{f'it stores {lengths[0]} of each' if nearest else f'no distance is above {reach:.4g}'}. "
                    "Missing rows count as beyond the radius, so values are wrong if they are within it. "
                    "Pass radius_neighbors_graph(mode='distance') of this radius."
                )
        return points

    def _n_shown(self) -> int:
        return int(self.boundary_neighbors)

    def _method(self, task: Task, targets: Any) -> Tiled:
        limit = scaled_limit(self._index, float(self.radius))
        classes = np.full(task.n_val, len(self.classes_))
        if task.own is not None:
            limit = min(limit, np.nextafter(np.finfo(np.float64).max, 0.0))  # keeps a point's own row outside
            classes -= np.bincount(self.codes_)[targets] == 1  # a class with one row disappears with it

        def overwrite(tile: Floats, here: slice, extra: Floats) -> None:
            counts = np.empty((tile.shape[0], 2))
            count_inside(tile, self.codes_, targets[here], limit, counts)
            extra[:, :2], extra[:, 2] = counts, tile.min(axis=1)
            threshold_values(tile, self.codes_, targets[here], limit, worth_inside(counts, classes[here]))

        return Tiled(task, partial(self._entropy, task.depth), overwrite)

    def _counts(self, given: Prepared) -> Floats:
        """Count matching and other rows within the radius of each point."""
        return self._run(given, self._runner()).points.extra[:, :2]

    def _private_method(self, task: Task, targets: Any, noisy: Floats) -> Tiled:
        """Return a method whose results depend only on the noisy counts and on each row's own features and label."""
        limit = scaled_limit(self._index, float(self.radius))
        worth = worth_inside(np.round(noisy), len(self.classes_))
        positive = np.maximum(noisy, 0.0)
        seats = int(self.boundary_neighbors)
        shares = np.round(seats * positive / np.maximum(positive.sum(axis=1, keepdims=True), 1.0)) / seats
        seen = entropy_of(np.column_stack([shares[:, 0], 1 - shares[:, 0]]))

        def overwrite(tile: Floats, here: slice, extra: Floats) -> None:
            threshold_values(tile, self.codes_, targets[here], limit, worth[here])

        return Tiled(task, lambda tile, here, cuts: seen[here], overwrite)

    def _about(self, task: Task, sums: Sums) -> dict[str, Any]:
        extra = sums.points.extra
        alone = int(np.count_nonzero(extra[:, :2].sum(axis=1) == 0))
        if alone == task.n_val:
            nearest = float(true_distances(self._index, extra[:, 2]).min())
            away = "No distance is stored" if nearest == NOT_STORED else f"The nearest one is {nearest:.4g} away"
            warn(
                f"No training row lies within radius={float(self.radius):g} of any validation point, so all values are "
                f"0. {away}: raise the radius."
            )
        return self._parameters(task, sums) | {"points_without_rows": alone}

    def _parameters(self, task: Task, sums: Sums) -> dict[str, Any]:
        return super()._about(task, sums) | {
            "radius": float(self.radius),
            "semivalue": "shapley",
            "n_classes": len(self.classes_),
            "worth": f"the share of its rows within {float(self.radius):g} of the point that carry its label",
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check.check_number(type(self).__name__, "radius", self.radius)


def worth_inside(counts: Floats, n_classes: Any) -> Floats:
    """Value of a matching row and of a non-matching row within the radius, from the counts of both.

    Parameters
    ----------
    counts : ndarray of shape (n_val, 2)
        Matching and other rows; noisy counts may be negative. The count of a valued row is at least 1.
    n_classes : int or ndarray of shape (n_val,)

    Returns
    -------
    ndarray of shape (n_val, 2)

    Examples
    --------
    >>> worth_inside(np.array([[1.0, 0.0], [1.0, 1.0]]), 2)[:, 0]
    array([0.5, 0.5])
    """
    worth = np.empty(counts.shape)
    for kind in range(2):
        matching = np.maximum(counts[:, 0], 1.0 - kind)
        n = matching + np.maximum(counts[:, 1], kind)
        # H_n - 1 over n - 1; 0 for a row alone.
        more = np.where(n > 1, (digamma(n + 1) - digamma(2.0)) / np.maximum(n - 1, 1.0), 0.0)
        worth[:, kind] = (1 - kind) * (more + 1 / n) - matching * more / n - 1 / (n_classes * n)
    return worth


def gaussian_sigma(epsilon: float, delta: float, sensitivity: float) -> float:
    r"""Smallest standard deviation of Gaussian noise that makes a release (epsilon, delta)-differentially private.

    The condition is the exact one of Balle and Wang (2018), valid for every epsilon; the textbook
    :math:`\sqrt{2\ln(1.25/\delta)}\,\Delta/\epsilon` holds for epsilon below 1 only, and is larger.

    Parameters
    ----------
    epsilon, delta : float
    sensitivity : float
        The most that one row can change the released numbers, as a Euclidean distance.

    Returns
    -------
    float

    Examples
    --------
    >>> round(gaussian_sigma(1.0, 1e-5, 1.0), 3), round(math.sqrt(2 * math.log(1.25e5)), 3)
    (3.731, 4.845)
    """
    high = 1.0
    while privacy_loss(epsilon, high) > delta:
        high *= 2
    low = high
    while privacy_loss(epsilon, low) <= delta:
        low /= 2
    found: float = brentq(lambda sigma: privacy_loss(epsilon, sigma) - delta, low, high, xtol=1e-300, rtol=1e-15)
    while privacy_loss(epsilon, found) > delta:  # rounding can put the root on the wrong side
        found = math.nextafter(found, math.inf)
    return found * sensitivity


def privacy_loss(epsilon: float, sigma: float) -> float:
    """Smallest delta for which Gaussian noise on a number of sensitivity 1 is (epsilon, delta)-private.

    Examples
    --------
    >>> privacy_loss(0.0, 1e9) < 1e-9 < privacy_loss(1.0, 1.0) < 1
    True
    """
    first = float(log_ndtr(1 / (2 * sigma) - epsilon * sigma))
    second = epsilon + float(log_ndtr(-1 / (2 * sigma) - epsilon * sigma))
    return math.exp(first) - math.exp(second) if first > second else 0.0
