"""audit_shift: one fit, one clean run, then level by level and repeat by repeat."""

import copy
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from inspect import signature
from itertools import islice
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shapshift._progress import progress_bar
from shapshift.agreement import Baseline
from shapshift.audit._levels import level_axis, read_levels
from shapshift.audit._result import SAMPLING_ROWS, ShiftAudit, Thresholds, check_thresholds
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
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.parallel import is_cluster_active, n_workers, stream
from shapshift.engine.runner import MemoryBudgetError
from shapshift.perturb.base import keeps_points
from shapshift.trust import sampling_facts
from shapshift.valuation import Valuation, check_returned

# Runs of at most this many (training row, validation point) pairs are made in parallel.
SHORT_RUN = 2**28
# Numbers per training row: in a valuation (values, means of up to seven levels, sampling error); in the sums over
# runs; held during a run (both, the ranking of the clean values, values and ranks of the run before); used to compare a
# run with the clean one (its valuation, its ranking, work space of the correlations).
VALUED_COLUMNS, SUMMED_COLUMNS = 11, 11
# Numbers per training row in the final results, while threads of the runs still hold their memory.
END_COLUMNS = 16
HELD_COLUMNS = VALUED_COLUMNS + SUMMED_COLUMNS + 8 + END_COLUMNS
COMPARED_COLUMNS = VALUED_COLUMNS + 13


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
    clusters: Any = None,
    progress: bool | None = None,
) -> ShiftAudit:
    """Measure how well the values hold on another sample of validation points, and on perturbed versions of this one.

    Agreement with another sample is computed from the standard errors of the clean run, without further valuations.
    Effects of noise are measured by valuing the training rows on perturbed validation sets.

    Parameters
    ----------
    model : fitted estimator
        Anything fitted with ``value(X_val, y_val) -> Valuation``. Statistics on neighbours also need
        ``value_and_neighbors``, as in :class:`shapshift.KNNShapley`, and are NaN without it.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The clean validation set, in any container the model takes.
    noise : sequence of float, optional
        Levels of Gaussian feature noise: standard deviations, absolute or, with ``relative=True``, in units of each
        feature's standard deviation over the training rows.
    perturbations : sequence of callable, optional
        Instead of ``noise``: one perturbation per level, from :mod:`shapshift.perturb` or any function
        ``(X_val, y_val) -> (X_val, y_val)``.
    repeats : int, default=20
        Runs per level, each with its own seed.
    random_state : int or None, default=0
        Seed. The seeds of a level depend on its perturbation alone, so a level gives the same result whichever other
        levels are audited with it, in any order and in any process: numbers are compared by value, arrays by content,
        functions by name. If two levels are equal by these, such as two lambdas, the second is called "<lambda> #2" and
        has its own seeds. None draws a seed, which the result stores.
    top : float or int, default=0.1
        Size of the top and bottom sets whose overlap is measured: a share of the rows, or a number of rows.
    thresholds : Thresholds, optional
        Limits for the verdicts stable, shifts and unstable.
    relative : bool, default=False
        Read ``noise`` in units of each feature's standard deviation.
    keep_rows : bool, default=False
        Also keep the statistics of each training row for each level, not only over all levels: six more numbers per row
        and level.
    clusters : array-like of shape (n_val,), optional
        For points that depend on each other, as in ``value`` of the model: another sample is then a sample of clusters.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Returns
    -------
    ShiftAudit

    Notes
    -----
    Runs are summed up one by one, so memory does not grow with levels or repeats (except for ``keep_rows``). A
    perturbation that keeps the points in place has the attribute ``pointwise = True``. After one that resamples or
    reorders points (``False``) there are no clean neighbours to compare with, and the statistics on neighbours are NaN.
    Functions without the attribute are assumed to keep the points in place if they return the same number of points
    with the same labels.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNNShapley().fit(X[::2], y[::2])
    >>> audit = audit_shift(model, X[1::2], y[1::2], noise=[0.01, 5.0], repeats=3)
    >>> audit.sampling_verdict, audit.verdicts
    ('unreliable', ('stable', 'unstable'))
    >>> mean, low, high = audit.statistic("spearman")
    >>> bool(mean[0] > 0.9 > 0.5 > mean[1])
    True
    """
    return ShiftStream(**locals()).audit()  # it takes the same parameters


class ShiftStream(Iterator[Valuation]):
    """Stream of the valuations of an audit: on the clean validation set, then by level and repeat.

    Other results on the same draws, such as intervals of payouts, reuse these valuations. Nothing runs before the first
    valuation is requested.

    Parameters
    ----------
    model, X_val, y_val
        As in :func:`audit_shift`.
    groups : array-like of shape (n_val,), optional
        As in ``value`` of the model, for the valuation on the clean validation set.
    **options
        The other parameters of :func:`audit_shift`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNNShapley().fit(X[::2], y[::2])
    >>> stream = ShiftStream(model, X[1::2], y[1::2], noise=[0.1, 0.5], repeats=3)
    >>> clean, *perturbed = stream
    >>> len(perturbed), stream.audit().verdicts[0]
    (6, 'stable')
    """

    def __init__(self, model: Any, X_val: Any, y_val: Any, *, groups: Any = None, **options: Any) -> None:
        given = signature(audit_shift).bind(model, X_val, y_val, **options)
        given.apply_defaults()
        self._audit: ShiftAudit | None = None
        self._runs = self._run(SimpleNamespace(**given.arguments, groups=groups))

    def __next__(self) -> Valuation:
        return next(self._runs)

    def audit(self) -> ShiftAudit:
        """Return the audit, after completing all remaining runs."""
        deque(self._runs, maxlen=0)
        if self._audit is None:
            raise RuntimeError("A run of this audit failed, so it has no result.")
        return self._audit

    def _run(self, given: SimpleNamespace) -> Iterator[Valuation]:
        """Yield the valuations; ``given`` are the parameters of :func:`audit_shift`."""
        repeats, keep_rows = given.repeats, given.keep_rows
        levels = read_levels(given.noise, given.perturbations, given.relative, caller="audit_shift")
        check.check_count("audit_shift", "repeats", repeats, at_most=check.MOST)
        seed = check.check_seed("audit_shift", given.random_state)
        judge = check_thresholds(given.thresholds)
        quiet = check.check_model("audit_shift", given.model)
        asked = {name: getattr(given, name) for name in ("clusters", "groups") if getattr(given, name) is not None}
        clean_run = _CleanRun(quiet, given.X_val, given.y_val, given.top, len(levels) if keep_rows else 0, asked)
        yield clean_run.valuation
        bound = [level.perturbation.bind(quiet) for level in levels]

        rows = RunningRows(clean_run.baseline)
        shape = (len(levels), clean_run.baseline.values.size)
        level_rows = {name: np.empty(shape) for name in ROW_STATISTICS} if keep_rows else None
        tables = np.empty((3, len(levels), len(STATISTICS)))
        # All runs in one stream, so that no thread waits between two runs; perturbed and summed up in order.
        sets = (
            clean_run.perturb(perturbation.with_seed(run_seed))
            for level, perturbation in zip(levels, bound, strict=True)
            for run_seed in level.seeds(seed, repeats)
        )
        runs = stream(clean_run.measure, sets, clean_run.workers)
        with progress_bar("Auditing", len(levels) * repeats, given.progress) as advance:
            for number in range(len(levels)):
                running = Running(len(STATISTICS))
                own_rows = None  # free the rows of the previous level
                own_rows = RunningRows(clean_run.baseline) if keep_rows else None
                for found, valuation, ranks in islice(runs, repeats):
                    running.add(np.array([found.get(name, np.nan) for name in STATISTICS]))
                    rows.add(valuation.values, ranks)
                    if own_rows is not None:
                        own_rows.add(valuation.values, ranks)
                    advance(1)
                    yield valuation
                    del valuation  # free its memory for the next run
                tables[0, number], (tables[1, number], tables[2, number]) = running.mean, running.interval()
                if own_rows is not None and level_rows is not None:
                    for name, column in own_rows.summary().items():
                        level_rows[name][number] = column
        clean = clean_run.valuation
        axis, positions = level_axis(levels, given.noise is not None)
        self._audit = ShiftAudit(
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
            id_names=clean.id_names,
            sampling=sampling_facts(clean),
            sampling_rows=_sampling_rows(clean),
        )


def _sampling_rows(clean: Valuation) -> dict[str, npt.NDArray[Any]] | None:
    """Return the columns named in ``SAMPLING_ROWS``; None without standard errors."""
    if clean.standard_error is None:
        return None
    columns = (clean.standard_error, *clean.interval(), clean.sign_probability, *clean.rank_interval())
    return dict(zip(SAMPLING_ROWS, columns, strict=True))


class _CleanRun:
    """The clean validation set, valued once, and the comparison of runs with it.

    Parameters
    ----------
    model, X_val, y_val, top
        As in :func:`audit_shift`.
    kept_levels : int
        Number of levels for which each row is summed up separately.
    asked : dict
        Other arguments of the model's ``value``.
    """

    def __init__(self, model: Any, X_val: Any, y_val: Any, top: float, kept_levels: int, asked: dict[str, Any]) -> None:
        self._X_val, self._y_val = X_val, y_val
        self._neighbors: Neighbors | None = None
        # A provisional estimate: the numbers of points and neighbours are known after the first valuation.
        hood = None
        with _Room(model, len(getattr(model, "ids_", ())), kept_levels) as guess:
            if callable(getattr(model, "value_and_neighbors", None)):
                self.valuation, hood = guess.model.value_and_neighbors(X_val, y_val, **asked)
            else:
                self.valuation = guess.model.value(X_val, y_val, **asked)
        check_returned("audit_shift", model, self.valuation)
        listed = 0 if hood is None else hood.nearest.size
        with _Room(model, self.valuation.n_train, kept_levels, self.valuation.n_val, listed) as room:
            if hood is not None:
                # A second query gives the clean neighbours' ranks with ties averaged, like the perturbed ones.
                ranks, codes = _ranks(room.model, X_val, y_val, hood.nearest), getattr(model, "codes_", None)
                self._neighbors = Neighbors(hood.nearest, ranks, self.valuation.boundary, codes)
        self._labels = _labels.check_labels(y_val, "y_val", self.valuation.n_val, "X_val")
        self._stds = group_stds(self.valuation)
        self.baseline = Baseline(self.valuation.values, top)
        model, self.workers = _one_thread_each(room.model, self.valuation.n_train * self.valuation.n_val)
        if hasattr(model, "_errors"):
            model = copy.copy(model)
            model._errors = False
        self._model = model

    def perturb(self, perturbation: Any) -> tuple[Any, Any, bool]:
        """Return a perturbed validation set, and whether its points correspond to the clean ones."""
        X, y = perturbation(self._X_val, self._y_val)
        return X, y, self._neighbors is not None and keeps_points(perturbation, self._labels, y)

    def measure(self, perturbed: tuple[Any, Any, bool]) -> tuple[dict[str, float], Valuation, npt.NDArray[Any]]:
        """Statistics, valuation and ranks of one perturbed run."""
        X, y, same_points = perturbed
        reshuffling: dict[str, float] = {}
        if same_points and self._neighbors is not None:
            valuation, hood = self._model.value_and_neighbors(X, y, reference=self._neighbors.nearest)
            reshuffling = self._neighbors.compare(hood.nearest, hood.reference_ranks)
        else:
            valuation = self._model.value(X, y)
        found, ranks = self.baseline.compare(valuation.values)
        found |= distribution(valuation) | alphas(self._stds, group_stds(valuation)) | reshuffling
        return found, valuation, ranks


def _ranks(model: Any, X_val: Any, y_val: Any, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Ranks of training rows by distance from each point, without another valuation if the model supports it."""
    if callable(getattr(model, "neighbor_ranks", None)):
        return np.asarray(model.neighbor_ranks(X_val, y_val, rows))
    _, hood = model.value_and_neighbors(X_val, y_val, reference=rows)
    return np.asarray(hood.reference_ranks)


class _Room:
    """Reservation of an audit's own memory in the model's memory budget.

    As a context manager, it makes memory errors of inner runs name the budget needed for the whole audit.

    Parameters
    ----------
    model : estimator
    n_train, kept_levels : int
        Training rows; see :class:`_CleanRun`.
    n_val, listed : int
        Validation points, and nearest rows kept for all points together; 0 until known.

    Attributes
    ----------
    model : estimator
        With the rest of its budget.
    """

    def __init__(self, model: Any, n_train: int, kept_levels: int, n_val: int = 0, listed: int = 0) -> None:
        self.model, self._n_train = model, n_train
        self._budget = check.parse_memory(getattr(model, "max_memory", None))
        columns = HELD_COLUMNS + (SUMMED_COLUMNS + len(ROW_STATISTICS) * kept_levels if kept_levels else 0)
        perturbed = 2 * 8 * n_val * int(getattr(model, "n_features_in_", 0))
        self._held = 8 * n_train * columns + 64 * n_val + 16 * listed + perturbed
        self._compared = 8 * n_train * COMPARED_COLUMNS + 32 * listed
        if self._budget is not None:
            self.model = copy.copy(model)
            self.model.max_memory = max(self._budget - self._held, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if self._budget is None or not (error is None or isinstance(error, MemoryBudgetError)):
            return
        least = self._held + max(self._compared, 0 if error is None else error.least)
        if least > self._budget:
            what = f"an audit of {self._n_train} training rows"
            advice = "audit fewer levels with keep_rows, or fewer points"
            raise MemoryBudgetError(least, self._budget, what, advice) from None


def _one_thread_each(model: Any, pairs: int) -> tuple[Any, int]:
    """Use one thread per run instead of all threads for one run, if runs are short and memory is unlimited."""
    alone = model.max_memory is not None or pairs > SHORT_RUN if getattr(model, "works_in_threads", False) else True
    if alone or is_cluster_active():  # threads of this process cannot use a cluster
        return model, 1
    workers = n_workers(model.n_jobs)
    single = copy.copy(model)
    single.n_jobs = 1
    return single, workers
