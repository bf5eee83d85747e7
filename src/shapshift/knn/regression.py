"""KNNRegressionShapley: contribution of each training row to the predictions of a K-nearest-neighbour regressor."""

import math
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS
from shapshift.engine.exact import Tiled
from shapshift.engine.tasks import Sums, Task
from shapshift.exceptions import InputError
from shapshift.kernels.near import target_spread
from shapshift.kernels.regression import RegressionTable, regression_values
from shapshift.knn.base import KNNModel
from shapshift.knn.explain import number_sentence, row_name

Floats = npt.NDArray[np.float64]

#: Excess entropies (nats) for which sums are kept; 2 nats mean a spread of more than 7 times the limit.
LEVELS = np.array([0.0, 0.5, 1.0, 1.5, 2.0])

_WORTH = {
    "soft": "minus the squared error of the mean target of the point's K nearest rows",
    "hard": "minus the squared error of the sum of the targets of the point's K nearest rows, divided by K",
}


def regression_table(n_rows: int, n_neighbors: int, utility: str) -> RegressionTable:
    """Coefficients of the Shapley value of a KNN regressor.

    Parameters
    ----------
    n_rows, n_neighbors : int
        N and K; K may exceed N.
    utility : {"soft", "hard"}

    Returns
    -------
    RegressionTable

    Notes
    -----
    Under the Shapley weights a subset contains each other row with one probability q, uniform between 0 and 1. Of the
    i - 1 rows nearer than rank i fewer than K are then drawn with probability min(K, i)/i, and one of them together
    with fewer than K - 1 others with probability m(m + 1)/(2 i (i - 1)), m = min(K - 1, i - 1). With the soft utility
    subsets of fewer than K - 1 rows are divided by less, and in those everyone votes: a constant is added.

    Examples
    --------
    >>> regression_table(4, 2, "hard").c
    array([0.5       , 0.5       , 0.33333333, 0.25      ])
    """
    n, k = n_rows, min(n_neighbors, n_rows) if utility == "soft" else n_neighbors
    rank = np.arange(1, n + 1, dtype=np.float64)
    c = np.minimum(k, rank) / (rank * k)
    d = c / k
    voters = np.minimum(k, rank) - 1
    e = voters * (voters + 1) / (2 * k * k * rank * np.maximum(rank - 1, 1))
    most = min(k, n)
    if utility == "hard":
        base = np.array([most / k, 0.0, most / k**2, most * (most - 1) / (2 * k**2), 0.0, 0.0])
    else:
        s = np.arange(max(k - 1, 0), dtype=np.float64)  # sizes of the subsets in which everyone votes and more could
        c += np.sum(1 / (s + 1) - 1 / k) / max(n - 1, 1)
        d += np.sum(1 / (s + 1) ** 2 - 1 / k**2) / max(n - 1, 1)
        e[1:] += np.sum(s * (1 / (s + 1) ** 2 - 1 / k**2)) / (max(n - 1, 1) * max(n - 2, 1))
        s += 1
        alone = 1 / (s + 1)
        change = alone**2 - 1 / s**2
        base = np.array(
            [
                1 + alone.sum(),
                alone.sum(),
                1 + (alone**2).sum(),
                (s * alone**2).sum(),
                (s * change).sum(),
                (s * (s - 1) * change).sum(),
            ]
        )
    f = np.zeros(n)
    f[2:] = e[1:-1]
    return RegressionTable(c, d, e, f, base)


class KNNRegressionShapley(KNNModel):
    r"""Exact Shapley value of every training row for a K-nearest-neighbour regressor.

    The worth of a subset of training rows is minus the squared error of its prediction. Values are exact for any K and
    N, in O(N log N) per validation point. The average over the orders of rows at equal distance is exact too.

    Parameters
    ----------
    n_neighbors : int, default=5
        K, the number of nearest rows that vote; it may exceed the number of training rows.
    utility : {"soft", "hard"}, default="soft"
        Prediction of a subset: "soft" is the mean target of its K nearest members, or of all if there are fewer (Wang
        and Jia 2023); "hard" is the sum of their targets divided by K, with ``baseline`` in place of each missing vote
        (Jia et al. 2019).
    baseline : {"mean", "zero", "published"} or float, default="mean"
        Prediction without votes: the mean of the training targets, 0, or a given number. The empty subset is worth
        minus the squared error of this number. With "mean", adding a constant to all targets does not change the
        values. "published" follows Jia et al.: missing votes count as 0, and the empty subset is worth 0, as if its
        prediction had no error; all values are then lower by the mean squared validation target over N.
    boundary_spread : float, default=0.5
        Limit on the spread of targets above which a point is a boundary point, see Notes.
    boundary_neighbors : int, default=5
        Number of neighbours used for this; at most the number of training rows (5 is cut to that).
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed"}, default="euclidean"
        As in :class:`shapshift.KNNShapley`.
    ties : {"average", "index"}, default="average"
        Training rows at equal distance: average over all orders, or order by row number.
    n_jobs, max_memory
        As in :class:`shapshift.KNNShapley`.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Attributes
    ----------
    targets_ : ndarray of shape (n_train,)
        Targets of the training rows.
    target_std_ : float
        Their standard deviation.
    baseline_ : float
        Prediction without votes.
    n_features_in_, feature_names_in_, feature_std_, ids_, fingerprint_
        As in :class:`shapshift.KNNShapley`.

    Notes
    -----
    *Boundary.* Regression has no classes, so a validation point is a boundary point when the targets of its nearest
    training rows spread widely: when their standard deviation exceeds ``boundary_spread`` times that of all training
    targets. ``Valuation.entropy`` is the logarithm of the ratio of the two, at least 0: the difference in entropy, in
    nats, between a normal distribution with the neighbours' spread and one at the limit. Sums are kept for the levels
    0, 0.5, 1, 1.5 and 2.

    Examples
    --------
    >>> from shapshift import KNNRegressionShapley
    >>> model = KNNRegressionShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], [0.0, 1.0, 5.0])
    >>> model.value([[0.9]], [1.0]).values
    array([ 2.5,  3.5, -5. ])
    """

    targets_: Floats

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        utility: str = "soft",
        baseline: str | float = "mean",
        boundary_spread: float = 0.5,
        boundary_neighbors: int = BOUNDARY_NEIGHBORS,
        metric: str = "euclidean",
        ties: str = "average",
        n_jobs: int | None = None,
        max_memory: int | str | None = None,
        progress: bool | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.utility = utility
        self.baseline = baseline
        self.boundary_spread = boundary_spread
        self.boundary_neighbors = boundary_neighbors
        self.metric = metric
        self.ties = ties
        self.n_jobs = n_jobs
        self.max_memory = max_memory
        self.progress = progress

    def _read_labels(self, labels: npt.NDArray[Any]) -> tuple[dict[str, Any], tuple[Any, Any]]:
        targets = as_numbers(labels, "y")
        named: dict[Any, float] = {"mean": math.fsum(targets) / targets.size, "zero": 0.0, "published": 0.0}
        learned = {
            "targets_": targets,
            "target_std_": float(targets.std()),
            "baseline_": named[self.baseline] if isinstance(self.baseline, str) else float(self.baseline),
        }
        return learned, (np.array([]), targets)

    def _read_targets(self, labels: npt.NDArray[Any]) -> Floats:
        return as_numbers(labels, "y_val")

    @property
    def _targets(self) -> Floats:
        return self.targets_

    def _sentence(self, row: int, value: float, near: Any, own: Any) -> str:
        called = f"{row_name(self.ids_[row])} (target {self.targets_[row]:.4g})"
        return number_sentence(called, value, as_numbers(near, "y_val"), own, self._nearness())

    def _levels(self) -> Floats:
        return LEVELS

    def _method(self, task: Task, targets: Any) -> Tiled:
        own, average = task.own, self.ties == "average"
        n = task.n_train - (own is not None)
        table = regression_table(n, int(self.n_neighbors), self.utility)
        baseline = np.full(task.n_val, self.baseline_)
        if own is not None and self.baseline == "mean":
            baseline = (math.fsum(self.targets_) - self.targets_[own]) / n
        targets = targets - baseline

        def overwrite(tile: Floats, here: slice, extra: Floats) -> None:
            # A row that its point ignores comes last.
            order = np.ascontiguousarray(np.argsort(tile, axis=1, kind="stable")[:, :n])
            t = targets[here]
            if own is None:
                regression_values(tile, order, self.targets_ - self.baseline_, t, average, table)
            else:
                for p, level in enumerate(baseline[here].tolist()):
                    one = slice(p, p + 1)
                    regression_values(tile[one], order[one], self.targets_ - level, t[one], average, table)
            if self.baseline == "published":  # the empty subset is worth 0 rather than -t^2
                tile -= (t * t / n)[:, None]

        return Tiled(task, partial(self._entropy, task.depth), overwrite)

    def _entropy(self, depth: int, tile: Floats, here: slice, cuts: Floats) -> Floats:
        spread = np.empty(tile.shape[0])
        target_spread(tile, self.targets_, depth, cuts, spread)
        limit = self.boundary_spread * self.target_std_
        if limit == 0:
            return np.zeros(tile.shape[0])
        excess: Floats = np.log(np.maximum(spread / limit, 1.0))
        return excess

    def _about(self, task: Task, sums: Sums) -> dict[str, Any]:
        return super()._about(task, sums) | {
            "task": "regression",
            "n_neighbors": int(self.n_neighbors),
            "utility": self.utility,
            "semivalue": "shapley",
            "ties": self.ties,
            "baseline": self.baseline if isinstance(self.baseline, str) else float(self.baseline),
            "boundary_spread": float(self.boundary_spread),
            "worth": f"{_WORTH[self.utility]} (K = {int(self.n_neighbors)})",
            "boundary_rule": f"A validation point whose {int(self.boundary_neighbors)} nearest training rows have "
            f"targets that spread more than {float(self.boundary_spread):g} times as widely as all training targets.",
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        caller = type(self).__name__
        if isinstance(self.baseline, str):
            check.check_choice(caller, "baseline", self.baseline, ("mean", "zero", "published"), "a number")
        else:
            check.check_number(caller, "baseline", self.baseline, least=-np.inf)
        check.check_number(caller, "boundary_spread", self.boundary_spread, above=True)


def as_numbers(labels: npt.NDArray[Any], name: str) -> Floats:
    """Targets as float64; raises if any is not a number.

    Examples
    --------
    >>> as_numbers(np.array([1, 2]), "y")
    array([1., 2.])
    """
    if labels.dtype.kind in "fiu":
        return labels.astype(np.float64)
    wrong = [entry for entry in labels.tolist() if isinstance(entry, bool | str) or not hasattr(entry, "__float__")]
    if wrong or labels.dtype.kind == "b":
        raise InputError(
            f"{name!r} must hold numbers for regression. Got {(wrong or labels.tolist())[0]!r}. For class labels use "
            "KNNShapley."
        )
    return np.array([float(entry) for entry in labels.tolist()])
