"""ThresholdKNNShapley: everyone within a radius votes. Linear time, and easy to make private."""

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from shapshift import _validation as check
from shapshift._warn import warn
from shapshift.boundary import BOUNDARY_NEIGHBORS, entropy_levels
from shapshift.distances import TrainingIndex
from shapshift.kernels.near import entropy_of
from shapshift.kernels.threshold import count_inside, threshold_values
from shapshift.relatives._base import KNNClassifierRelative, Points
from shapshift.relatives._distances import scaled_limit, true_distances, true_index
from shapshift.relatives._privacy import gaussian_sigma
from shapshift.relatives._run import PointJob, block_size, run_job
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]


class ThresholdKNNShapley(KNNClassifierRelative):
    r"""Exact Shapley value of every training row when all rows within a radius vote (Wang et al. 2023).

    A subset of the training rows is worth, on one validation point, the share of its rows within ``radius`` that carry
    the point's label; 1/C, C the number of classes, when it has none there. The values take linear time, need no
    order, and depend on the other rows through two counts only, which makes a differentially private
    :meth:`release` possible.

    Parameters
    ----------
    radius : float
        Rows at this distance or nearer vote, in units of the metric.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed"}, default="euclidean"
        As in :class:`shapshift.KNNShapley`.
    n_jobs : int, default=None
        Number of threads; it never changes a result.
    progress : bool, default=None
        Show a progress bar; None shows it in a terminal only.

    Attributes
    ----------
    classes_, codes_, n_features_in_, feature_names_in_, feature_std_, ids_, fingerprint_
        As in :class:`shapshift.KNNShapley`.

    Notes
    -----
    Rows outside the radius change nothing and are worth 0, and leaving them out of the game changes no other value.
    Among the ``n`` rows inside, ``M`` of which match, everyone votes in every subset, so that with
    :math:`H_n = 1 + 1/2 + \dots + 1/n`

    .. math:: v_i = a_i \left(\frac{H_n - 1}{n - 1} + \frac1n\right) - \frac{M (H_n - 1)}{n (n - 1)} - \frac{1}{C n}

    and :math:`v = a - 1/C` for ``n = 1``. There are no binomial coefficients that could overflow.

    Boundary points are found as in :class:`shapshift.KNNShapley`, from the five nearest rows, whatever the radius.

    Examples
    --------
    >>> from shapshift import ThresholdKNNShapley
    >>> model = ThresholdKNNShapley(radius=1.0).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> model.value([[0.9]], ["b"]).values
    array([-0.5,  0.5,  0. ])
    """

    def __init__(
        self,
        radius: float,
        *,
        metric: str = "euclidean",
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.radius = radius
        self.metric = metric
        self.n_jobs = n_jobs
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
        Give the owner of a row that row's value only: it tells whether the row lies within the radius.

        Parameters
        ----------
        X_val, y_val, groups
            As in :meth:`value`.
        epsilon : float
            Above 0; smaller is more private. Each further release of the same rows adds to it.
        delta : float
            Between 0 and 1, well below 1/N.
        random_state : int, optional
            Seed, for repeating an experiment; a seed that others know protects nothing.

        Returns
        -------
        Valuation
            Everything in it comes from the noisy counts: its entropy is that of the noisy share of matching rows,
            rounded to fifths, and its fingerprint that of the ids. Row ids, the number of rows and the classes are
            taken to be public. ``parameters["privacy"]`` states the mechanism.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = ThresholdKNNShapley(radius=1.0).fit(X[::2], y[::2])
        >>> found = model.release(X[1::15], y[1::15], epsilon=2, delta=1e-3, random_state=0)
        >>> found.parameters["privacy"]["sensitivity"].__round__(3)
        3.162
        """
        owner = f"{type(self).__name__}.release"
        check.check_number(owner, "epsilon", epsilon, above=True)
        check.check_number(owner, "delta", delta, above=True)
        if delta >= 1:
            raise ValueError(f"The 'delta' parameter of {owner} must be below 1. Got {delta!r} instead.")
        if random_state is not None:
            check.check_count(owner, "random_state", random_state, at_least=0)
        points = self._check_validation(X_val, y_val, groups, False)
        sensitivity = float(np.sqrt(points.n_val))
        sigma = gaussian_sigma(float(epsilon), float(delta), sensitivity)
        counts = self._counts(points)
        noisy = counts + np.random.default_rng(random_state).normal(scale=sigma, size=counts.shape)
        job = self._private_job(points, noisy)
        sums = run_job(job, matrix=False, n_jobs=self.n_jobs, progress=self.progress)
        about = self._parameters() | {
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
        return self._valuation(job, sums, points, about, hidden)

    def _n_shown(self) -> int:
        return BOUNDARY_NEIGHBORS

    def _distance_index(self) -> TrainingIndex:
        return true_index(self._index)

    def _job(self, points: Points) -> PointJob:
        limit = scaled_limit(self._index, float(self.radius))
        found = {"counts": np.empty((points.n_val, 2)), "nearest": np.empty(points.n_val)}

        def value(tile: Floats, here: slice) -> None:
            targets, counts = points.targets[here], found["counts"][here]
            found["nearest"][here] = tile.min(axis=1)
            count_inside(tile, self.codes_, targets, limit, counts)
            threshold_values(tile, self.codes_, targets, limit, worth_inside(counts, len(self.classes_)))

        return self._blank_job(points, self._levels(), entropy=self._entropy, value=value, found=found)

    def _private_job(self, points: Points, noisy: Floats) -> PointJob:
        """Job whose results come from the noisy counts alone, and each row's own place and label."""
        limit = scaled_limit(self._index, float(self.radius))
        worth = worth_inside(np.round(noisy), len(self.classes_))
        levels = entropy_levels(5, 2)
        positive = np.maximum(noisy, 0.0)
        shares = np.round(5 * positive / np.maximum(positive.sum(axis=1, keepdims=True), 1.0)) / 5
        seen = entropy_of(np.column_stack([shares[:, 0], 1 - shares[:, 0]]))

        def value(tile: Floats, here: slice) -> None:
            threshold_values(tile, self.codes_, points.targets[here], limit, worth[here])

        def entropy(tile: Floats, here: slice, cuts: Floats) -> Floats:
            found: Floats = seen[here]
            return found

        return self._blank_job(points, levels, entropy=entropy, value=value)

    def _counts(self, points: Points) -> Floats:
        """Count matching and other rows within the radius of each point."""
        job = self._job(points)
        limit = scaled_limit(self._index, float(self.radius))
        counts = np.empty((job.n_val, 2))
        size = block_size(job.n_train, job.n_val)
        for start in range(0, job.n_val, size):
            here = slice(start, min(start + size, job.n_val))
            tile = np.empty((here.stop - start, job.n_train))
            job.fill(here, slice(0, job.n_train), tile)
            count_inside(tile, self.codes_, points.targets[here], limit, counts[here])
        return counts

    def _about(self, job: PointJob) -> dict[str, Any]:
        alone = int(np.count_nonzero(job.found["counts"].sum(axis=1) == 0))
        if alone == job.n_val:
            nearest = float(true_distances(self._index, job.found["nearest"]).min())
            warn(
                f"No training row lies within radius={float(self.radius):g} of any validation point, so all values are "
                f"0. The nearest one is {nearest:.4g} away: raise the radius."
            )
        return self._parameters() | {"points_without_rows": alone}

    def _parameters(self) -> dict[str, Any]:
        return {
            "radius": float(self.radius),
            "semivalue": "shapley",
            "n_classes": len(self.classes_),
            "worth": f"the share of its rows within {float(self.radius):g} of the point that carry its label",
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check.check_number(type(self).__name__, "radius", self.radius)


def worth_inside(counts: Floats, n_classes: int) -> Floats:
    """Value of a matching row and of another one within the radius, from the counts of both.

    Parameters
    ----------
    counts : ndarray of shape (n_val, 2)
        Matching and other rows; noisy counts may be negative. A row that is valued counts at least itself.
    n_classes : int

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
        # H_n - 1 over n - 1; a row alone takes part in no larger set.
        more = np.where(n > 1, (digamma(n + 1) - digamma(2.0)) / np.maximum(n - 1, 1.0), 0.0)
        worth[:, kind] = (1 - kind) * (more + 1 / n) - matching * more / n - 1 / (n_classes * n)
    return worth
