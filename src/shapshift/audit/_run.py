"""audit_shift: one fit, one clean run, then level by level and repeat by repeat."""

import copy
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift import _labels
from shapshift import _validation as check
from shapshift._parallel import is_cluster_active, n_workers, stream
from shapshift._progress import progress_bar
from shapshift.agreement import Baseline
from shapshift.audit._levels import level_axis, level_seeds, read_levels
from shapshift.audit._result import ShiftAudit
from shapshift.audit._statistics import (
    CONFIDENCE,
    ROW_STATISTICS,
    STATISTICS,
    Neighbors,
    Running,
    RunningRows,
    alphas,
    distribution,
    group_stds,
)
from shapshift.audit._thresholds import Thresholds, check_thresholds
from shapshift.perturb.base import keeps_points
from shapshift.valuation import Valuation, check_returned

# Runs of up to so many pairs of training rows and validation points go side by side.
SHORT_RUN = 2**28


def audit_shift(
    model: Any,
    X_val: Any,
    y_val: Any,
    *,
    noise: Sequence[float] | None = None,
    perturbations: Sequence[Callable[[Any, Any], tuple[Any, Any]]] | None = None,
    repeats: int = 20,
    random_state: int | None = 0,
    top: float = 0.1,
    thresholds: Thresholds | None = None,
    relative: bool = False,
    keep_rows: bool = False,
    progress: bool | None = None,
) -> ShiftAudit:
    """Value the training rows on perturbed validation sets and measure how far the values move.

    Parameters
    ----------
    model : fitted estimator
        Anything fitted with ``value(X_val, y_val) -> Valuation``. Statistics on neighbours need
        ``value_and_neighbors`` too, as :class:`shapshift.KNNShapley` has it, and are NaN without.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The clean validation set, in any container the model takes.
    noise : sequence of float, optional
        Levels of Gaussian feature noise: standard deviations, absolute or, with ``relative=True``, in units of each
        feature's standard deviation over the training rows.
    perturbations : sequence of callable, optional
        Instead of ``noise``: one perturbation per level, from :mod:`shapshift.perturb` or any function
        ``(X_val, y_val) -> (X_val, y_val)``.
    repeats : int, default=20
        Runs per level, each with a seed of its own.
    random_state : int or None, default=0
        Seed. The seeds of a level depend on its perturbation alone, so that a level comes out the same whichever other
        levels are audited with it, in whatever order, and in every process: numbers count by value, arrays by content,
        functions by name. Of levels that cannot be told apart by these, such as two lambdas, the second is called
        "<lambda> #2" and has seeds of its own. None draws a seed, which the result keeps.
    top : float or int, default=0.1
        Size of the top and bottom sets whose overlap is measured: a share of the rows, or a number of rows.
    thresholds : Thresholds, optional
        What counts as stable, as a shift, and as unstable.
    relative : bool, default=False
        Read ``noise`` in units of each feature's standard deviation.
    keep_rows : bool, default=False
        Keep what became of each training row for each level too, not only over all levels: six more numbers per row
        and level.
    progress : bool, default=None
        Show a progress bar; None shows it in a terminal only.

    Returns
    -------
    ShiftAudit

    Notes
    -----
    Runs are summed up as they come, so memory does not grow with levels or repeats (except for ``keep_rows``). A
    perturbation that keeps the points in place has the attribute ``pointwise = True``; for those that resample or
    reorder them (``False``) there are no clean neighbours to compare with, and the statistics on neighbours are NaN.
    Functions without the attribute are taken to keep the points in place when they return as many points with the
    same labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNNShapley().fit(X[::2], y[::2])
    >>> audit = audit_shift(model, X[1::2], y[1::2], noise=[0.01, 5.0], repeats=3)
    >>> audit.verdicts
    ('stable', 'unstable')
    >>> mean, low, high = audit.statistic("spearman")
    >>> bool(mean[0] > 0.9 > 0.5 > mean[1])
    True
    """
    levels = read_levels(noise, perturbations, relative, owner="audit_shift")
    check.check_count("audit_shift", "repeats", repeats)
    seed = _check_seed(random_state)
    judge = check_thresholds(thresholds)
    quiet = check.check_model("audit_shift", model)
    clean_run = _CleanRun(quiet, X_val, y_val, top)
    bound = [level.perturbation.bind(quiet) for level in levels]

    rows = RunningRows(clean_run.baseline)
    shape = (len(levels), clean_run.baseline.values.size)
    level_rows = {name: np.empty(shape) for name in ROW_STATISTICS} if keep_rows else None
    tables = np.empty((3, len(levels), len(STATISTICS)))
    # All runs in one stream, so that no thread waits between two of them; they are perturbed, and summed up, in order.
    sets = (
        clean_run.perturb(perturbation.with_seed(run_seed))
        for level, perturbation in zip(levels, bound, strict=True)
        for run_seed in level_seeds(seed, level.parameters, repeats)
    )
    runs = stream(clean_run.measure, sets, clean_run.workers)
    with progress_bar("Auditing", len(levels) * repeats, progress) as advance:
        for number in range(len(levels)):
            running = Running(len(STATISTICS))
            own_rows = RunningRows(clean_run.baseline) if keep_rows else None
            for found, values, ranks in islice(runs, repeats):
                running.add(np.array([found.get(name, np.nan) for name in STATISTICS]))
                for summary in (rows, own_rows):
                    if summary is not None:
                        summary.add(values, ranks)
                advance(1)
            tables[0, number], (tables[1, number], tables[2, number]) = running.mean, running.interval()
            if own_rows is not None and level_rows is not None:
                for name, column in own_rows.summary().items():
                    level_rows[name][number] = column
    clean = clean_run.valuation
    axis, positions = level_axis(levels, noise is not None)
    return ShiftAudit(
        levels=tuple(level.name for level in levels),
        axis=axis,
        positions=positions,
        perturbations=tuple(level.parameters for level in levels),
        means=tables[0],
        lows=tables[1],
        highs=tables[2],
        clean=distribution(clean),
        rows=rows.summary(),
        level_rows=level_rows,
        clean_values=clean.values,
        clean_ranks=clean_run.baseline.ranks,
        ids=clean.ids,
        parameters={
            "repeats": int(repeats),
            "random_state": seed,
            "top": clean_run.baseline.top,
            "confidence": CONFIDENCE,
            "model": dict(clean.parameters),
        },
        thresholds=judge,
        fingerprint=clean.fingerprint,
        kind=clean.kind,
    )


class _CleanRun:
    """The clean validation set, valued once, and what is compared with it."""

    def __init__(self, model: Any, X_val: Any, y_val: Any, top: float) -> None:
        self._model, self._X_val, self._y_val = model, X_val, y_val
        self._neighbors: Neighbors | None = None
        self.valuation: Valuation
        if callable(getattr(model, "value_and_neighbors", None)):
            self.valuation, hood = model.value_and_neighbors(X_val, y_val)
            check_returned("audit_shift", model, self.valuation)
            # Only a second look gives the clean neighbours' ranks with ties averaged, as the perturbed ones are.
            _, own = model.value_and_neighbors(X_val, y_val, reference=hood.nearest)
            self._neighbors = Neighbors(
                hood.nearest, own.reference_ranks, self.valuation.boundary, getattr(model, "codes_", None)
            )
        else:
            self.valuation = check_returned("audit_shift", model, model.value(X_val, y_val))
        self._labels = _labels.check_labels(y_val, "y_val", self.valuation.n_val, "X_val")
        self._stds = group_stds(self.valuation)
        self.baseline = Baseline(self.valuation.values, top)

        self._model, self.workers = _one_thread_each(model, self.valuation.n_train * self.valuation.n_val)

    def perturb(self, perturbation: Any) -> tuple[Any, Any, bool]:
        """Return a perturbed validation set, and whether its points are those of the clean one."""
        X, y = perturbation(self._X_val, self._y_val)
        return X, y, self._neighbors is not None and keeps_points(perturbation, self._labels, y)

    def measure(self, perturbed: tuple[Any, Any, bool]) -> tuple[dict[str, float], npt.NDArray[Any], npt.NDArray[Any]]:
        """Statistics, values and ranks of one perturbed run."""
        X, y, same_points = perturbed
        reshuffling: dict[str, float] = {}
        if same_points and self._neighbors is not None:
            valuation, hood = self._model.value_and_neighbors(X, y, reference=self._neighbors.nearest)
            reshuffling = self._neighbors.compare(hood.nearest, hood.reference_ranks)
        else:
            valuation = self._model.value(X, y)
        found, ranks = self.baseline.compare(valuation.values)
        found |= distribution(valuation) | alphas(self._stds, group_stds(valuation)) | reshuffling
        return found, valuation.values, ranks


def _one_thread_each(model: Any, pairs: int) -> tuple[Any, int]:
    """Give each run one thread instead of all threads to one run, where a run is short and memory is not counted."""
    alone = model.max_memory is not None or pairs > SHORT_RUN if getattr(model, "works_in_threads", False) else True
    if alone or is_cluster_active():  # threads of this process do not know of a cluster
        return model, 1
    workers = n_workers(model.n_jobs)
    single = copy.copy(model)
    single.n_jobs = 1
    return single, workers


def _check_seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    return check.check_count("audit_shift", "random_state", random_state, at_least=0)
