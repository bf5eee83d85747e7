"""WeightedKNNShapley: votes of nearer rows have more weight."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln

from shapshift.checks import inputs as check
from shapshift.checks.memory import available_memory
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS
from shapshift.engine.exact import Tiled
from shapshift.engine.parallel import is_cluster_active, n_workers
from shapshift.engine.rows.distances import true_distances
from shapshift.engine.runner import Runner
from shapshift.engine.tasks import Sums, Task
from shapshift.exceptions import InputError
from shapshift.kernels.weighted import Vote, weighted_values
from shapshift.knn.base import KNNClassModel, Prepared

Floats = npt.NDArray[np.float64]
Weights = Callable[[Floats], Any]

MOST_BITS = 8
# Number of (row, point) pairs of a block; a pair takes microseconds here.
BLOCK_PAIRS = 2**14


class WeightedKNNShapley(KNNClassModel):
    r"""Exact Shapley value of every training row for a distance-weighted KNN classifier (Wang et al. 2024).

    On a validation point, a subset of the training rows is worth 1 if the point's label wins the weighted vote of its K
    nearest members, 0 if it loses, and ``draw`` for a draw or without votes. With more than two classes it is the mean
    outcome of the contests between the point's label and each other class, as published. Votes weigh whole numbers from
    0 to ``2**bits - 1``; for these the values are exact.

    Parameters
    ----------
    n_neighbors : int, default=5
        K, the number of nearest rows that vote; it may exceed the number of training rows.
    weights : {"inverse", "gaussian"} or callable, default="inverse"
        Weight of a vote as a function of distance: 1/distance; ``exp(-distance**2 / (2 bandwidth**2))``; or a function
        that takes the distances of one validation point to all training rows and returns one number of at least 0 for
        each, equal for equal distances. Weights are relative to the largest one of the point.
    bandwidth : float, optional
        Of the Gaussian kernel, in units of the metric. By default the distance of each validation point to its K-th
        nearest training row.
    bits : int, default=3
        Weights are rounded to multiples of 1/(2**bits - 1). From 1 to 8.
    max_error : float, default=0
        0 computes exact values. Above 0, only the ``ceil(K / max_error)`` nearest rows of a point are used: no value is
        then off by more than ``max_error``, as ``Valuation.error_bound`` says.
    draw : float, default=0.5
        Worth of a draw and of the empty subset; 1 in published code.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine", "precomputed"}, default="euclidean"
        As in :class:`shapshift.KNNShapley`.
    ties : {"average", "index"}, default="average"
        Training rows at equal distance: average over all orders, or order by row number.
    boundary_neighbors, boundary_entropy
        As in :class:`shapshift.KNNShapley`.
    n_jobs : int, default=None
        Number of threads; it never changes a result.
    max_memory : int or str, default=None
        As in :class:`shapshift.KNNShapley`. Up to seven eighths of it may go to the tables of all threads; without a
        limit they may use the memory that the system has available. The tables of a thread take 8 D K (2 K W + 1)
        bytes, W = 2**bits - 1, for D different signed weights of a point's rows. If the tables do not fit, fewer
        threads are used; if they do not fit for one thread, an error is raised.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Attributes
    ----------
    classes_, codes_, n_features_in_, feature_names_in_, feature_std_, ids_, fingerprint_
        As in :class:`shapshift.KNNShapley`.

    Notes
    -----
    The published algorithm takes :math:`O(W K^2 N^2)` per validation point, :math:`W = 2^{bits}`. Here it is
    :math:`O(L W K^2 N)` with L the number of different signed weights that occur, at most 2W - 1 and usually few: rows
    of equal weight share their tables, see :mod:`shapshift.kernels.weighted`. With ``max_error``, N is replaced by
    :math:`K / max\_error` (after ordering the rows).

    With "inverse", only the rows at zero distance vote if there are any.

    Examples
    --------
    >>> from shapshift import WeightedKNNShapley
    >>> model = WeightedKNNShapley(n_neighbors=2).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> model.value([[0.9]], ["b"]).values.round(3)
    array([-0.25,  0.75,  0.  ])
    """

    _true_distances = True

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        weights: str | Weights = "inverse",
        bandwidth: float | None = None,
        bits: int = 3,
        max_error: float = 0.0,
        draw: float = 0.5,
        metric: str = "euclidean",
        ties: str = "average",
        boundary_neighbors: int = BOUNDARY_NEIGHBORS,
        boundary_entropy: float = 0.0,
        n_jobs: int | None = None,
        max_memory: int | str | None = None,
        progress: bool | None = None,
    ) -> None:
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.bandwidth = bandwidth
        self.bits = bits
        self.max_error = max_error
        self.draw = draw
        self.metric = metric
        self.ties = ties
        self.boundary_neighbors = boundary_neighbors
        self.boundary_entropy = boundary_entropy
        self.n_jobs = n_jobs
        self.max_memory = max_memory
        self.progress = progress

    def _limit(self) -> int:
        """How many nearest rows to use; all N for exact values."""
        n = self._index.n_rows
        return n if self.max_error == 0 else min(n, int(np.ceil(int(self.n_neighbors) / float(self.max_error))))

    def _method(self, task: Task, targets: Any) -> Tiled:
        largest, room = 2 ** int(self.bits) - 1, self._room()
        own, n = task.own, task.n_train - (task.own is not None)
        vote = Vote(
            k=int(self.n_neighbors),
            largest=largest,
            draw=float(self.draw),
            n_classes=len(self.classes_),
            average=self.ties == "average",
            limit=self._limit(),
            log_factorial=gammaln(np.arange(task.n_train + 1) + 1.0),
        )

        def overwrite(tile: Floats, here: slice, extra: Floats) -> None:
            order = np.argsort(tile, axis=1, kind="stable")
            votes = self._votes(tile, order[:, :n], largest)
            if own is not None:  # the last row without a vote changes nothing
                votes[np.arange(votes.shape[0]), own[here]] = 0
            distinct = 1 + max(2 * np.unique(row).size for row in votes)  # both signs, and zero
            if self._table_bytes(distinct) > room:
                raise self._too_large(distinct, room)
            states = np.empty((distinct + 1, *self._table_shape()))
            weighted_values(tile, order, votes, self.codes_, targets[here], vote, states)

        return Tiled(task, partial(self._entropy, task.depth), overwrite, block_pairs=BLOCK_PAIRS)

    def _table_shape(self) -> tuple[int, int]:
        """Shape of one distribution: sizes of a set, and its weights."""
        seats = min(int(self.n_neighbors), self._index.n_rows)
        return seats, 2 * (seats - 1) * (2 ** int(self.bits) - 1) + 1

    def _table_bytes(self, distinct: int) -> int:
        return 8 * (distinct + 1) * int(np.prod(self._table_shape()))

    def _room(self) -> int:
        """Bytes available for tables: seven eighths of a budget."""
        budget = check.parse_memory(self.max_memory, type(self).__name__)
        return available_memory() if budget is None else budget * 7 // 8

    def _runner(self) -> Runner:
        """Return a runner with the threads that the largest tables allow, and the rest of the memory budget."""
        budget, room = check.parse_memory(self.max_memory, type(self).__name__), self._room()
        most = self._table_bytes(min(2 ** (int(self.bits) + 1) - 1, self._index.n_rows) + 1)
        threads = max(1, min(n_workers(self.n_jobs), room // most))
        left = None if budget is None else budget - min(threads * most, room)
        return Runner(self.n_jobs if is_cluster_active() else threads, left, self.progress)

    def _too_large(self, distinct: int, room: int) -> InputError:
        owner, needed = type(self).__name__, self._table_bytes(distinct) / 1e9
        given = "is available" if self.max_memory is None else "of max_memory may be used for them"
        return InputError(
            f"{owner} needs {needed:.3g} GB for its tables with n_neighbors={self.n_neighbors} and bits={self.bits}, "
            f"and {room / 1e9:.3g} GB {given}. Lower 'n_neighbors' (half of it needs a quarter) or 'bits' (one less "
            "needs a quarter), or raise 'max_memory'."
        )

    def _votes(self, tile: Floats, order: npt.NDArray[np.int64], largest: int) -> npt.NDArray[np.int32]:
        """Whole-number weights of all rows for each point of a tile."""
        with np.errstate(over="ignore"):  # a row that its point ignores
            distances = true_distances(self._index, tile)
        if callable(self.weights):
            weights = np.zeros(tile.shape)
            for p, seen in enumerate(np.sort(order, axis=1)):
                weights[p, seen] = self._own_weights(tile[p, seen], distances[p, seen])
        elif self.weights == "inverse":
            nearest = distances.min(axis=1, keepdims=True)
            with np.errstate(divide="ignore", invalid="ignore"):
                weights = np.where(distances == nearest, 1.0, nearest / distances)
        else:
            weights = _gaussian(distances, self._bandwidths(distances, order))
        most = weights.max(axis=1, keepdims=True)
        return np.rint(weights / np.where(most > 0, most, 1.0) * largest).astype(np.int32)

    def _bandwidths(self, distances: Floats, order: npt.NDArray[np.int64]) -> Floats:
        if self.bandwidth is not None:
            return np.full((distances.shape[0], 1), float(self.bandwidth))
        last = min(int(self.n_neighbors), order.shape[1]) - 1
        return np.take_along_axis(distances, order[:, last : last + 1], axis=1)

    def _own_weights(self, scaled: Floats, distances: Floats) -> Floats:
        """Weights of one point from the caller's function, checked."""
        caller = type(self).__name__
        made = self.weights(distances.copy())  # type: ignore[operator]  # a function here
        weights = np.asarray(made)
        if weights.shape != distances.shape or weights.dtype.kind not in "fiub":
            raise InputError(
                f"The 'weights' function of {caller} must return one number for each of the {distances.size} distances "
                f"it is given. Got {type(made).__name__} of shape {weights.shape}, type {weights.dtype}."
            )
        weights = weights.astype(np.float64)
        bad = ~(np.isfinite(weights) & (weights >= 0))
        if bad.any():
            at = int(bad.argmax())
            raise InputError(
                f"The 'weights' function of {caller} must return finite numbers of at least 0. Got {weights[at]} for "
                f"the distance {distances[at]:g}. A row at distance 0 needs a finite weight too."
            )
        order = np.argsort(scaled, kind="stable")
        sorted_weights, sorted_distances = weights[order], scaled[order]
        odd = (sorted_distances[1:] == sorted_distances[:-1]) & (sorted_weights[1:] != sorted_weights[:-1])
        if odd.any():
            at = int(odd.argmax())
            raise InputError(
                f"The 'weights' function of {caller} must give equal distances equal weights. Got "
                f"{sorted_weights[at]} and {sorted_weights[at + 1]} for the distance {distances[order[at]]:g}."
            )
        return weights

    def _run(self, given: Prepared, runner: Runner) -> Sums:
        sums, n, limit = super()._run(given, runner), given.task.n_train, self._limit()
        if limit == n:
            return sums
        bound, notes = np.full(n, int(self.n_neighbors) / limit), {"approximation": {"nearest_rows": limit}}
        return replace(sums, error_bound=bound, notes=notes)

    def _about(self, task: Task, sums: Sums) -> dict[str, Any]:
        k = int(self.n_neighbors)
        return super()._about(task, sums) | {
            "n_neighbors": k,
            "semivalue": "shapley",
            "weights": self.weights if isinstance(self.weights, str) else getattr(self.weights, "__name__", "function"),
            "bandwidth": None if self.bandwidth is None else float(self.bandwidth),
            "bits": int(self.bits),
            "draw": float(self.draw),
            "ties": self.ties,
            "n_classes": len(self.classes_),
            "worth": f"whether its {k} nearest rows elect the point's label, nearer ones with more weight",
        }

    def _check_parameters(self) -> None:
        super()._check_parameters()
        caller = type(self).__name__
        if not callable(self.weights):
            check.check_choice(caller, "weights", self.weights, ("inverse", "gaussian"), "a function of the distances")
        if self.bandwidth is not None:
            check.check_number(caller, "bandwidth", self.bandwidth, above=True)
        check.check_count(caller, "bits", self.bits, at_most=MOST_BITS)
        check.check_number(caller, "max_error", self.max_error)
        check.check_number(caller, "draw", self.draw, most=1.0)


def _gaussian(distances: Floats, bandwidths: Floats) -> Floats:
    """Gaussian weights; with a bandwidth of 0, only rows at distance 0 have weight."""
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        ratios = np.where(distances == 0, 0.0, distances / bandwidths)
        # Relative to the nearest row: far from all rows, absolute weights would underflow.
        squares = ratios**2
        weights: Floats = np.exp((squares.min(axis=1, keepdims=True) - squares) / 2)
    return weights
