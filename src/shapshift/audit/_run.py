"""audit_shift: one fit, one clean run, then level by level and repeat by repeat."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift import _labels
from shapshift import _validation as check
from shapshift._progress import progress_bar
from shapshift.agreement import Baseline
from shapshift.audit._result import NOISE, UNORDERED, ShiftAudit
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
from shapshift.perturb import GaussianNoise, Perturbation, as_perturbation
from shapshift.perturb.base import without_seeds
from shapshift.valuation import Valuation


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
        levels are audited with it, in whatever order. None draws a seed, which the result keeps.
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
    levels = _levels(noise, perturbations, relative)
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
    with progress_bar("Auditing", len(levels) * repeats, progress) as advance:
        for number, (level, perturbation) in enumerate(zip(levels, bound, strict=True)):
            running = Running(len(STATISTICS))
            own_rows = RunningRows(clean_run.baseline) if keep_rows else None
            for run_seed in _seeds(seed, level.parameters, repeats):
                found, values, ranks = clean_run.measure(perturbation.with_seed(run_seed))
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
    axis, positions = _axis(levels, noise is not None)
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
            # Only a second look gives the clean neighbours' ranks with ties averaged, as the perturbed ones are.
            _, own = model.value_and_neighbors(X_val, y_val, reference=hood.nearest)
            self._neighbors = Neighbors(
                hood.nearest, own.reference_ranks, self.valuation.boundary, getattr(model, "codes_", None)
            )
        else:
            self.valuation = model.value(X_val, y_val)
        self._labels = _labels.check_labels(y_val, "y_val", self.valuation.n_val, "X_val")
        self._stds = group_stds(self.valuation)
        self.baseline = Baseline(self.valuation.values, top)

    def measure(self, perturbation: Any) -> tuple[dict[str, float], npt.NDArray[Any], npt.NDArray[Any]]:
        """Statistics, values and ranks of one perturbed run."""
        X, y = perturbation(self._X_val, self._y_val)
        reshuffling: dict[str, float] = {}
        if self._neighbors is not None and self._in_place(perturbation, y):
            valuation, hood = self._model.value_and_neighbors(X, y, reference=self._neighbors.nearest)
            reshuffling = self._neighbors.compare(hood.nearest, hood.reference_ranks)
        else:
            valuation = self._model.value(X, y)
        found, ranks = self.baseline.compare(valuation.values)
        found |= distribution(valuation) | alphas(self._stds, group_stds(valuation)) | reshuffling
        return found, valuation.values, ranks

    def _in_place(self, perturbation: Any, y: Any) -> bool:
        """Whether the perturbed points are the clean ones, one for one."""
        if len(y) != self._labels.size:
            return False
        declared = getattr(perturbation, "pointwise", None)
        if declared is not None:
            return bool(declared)
        return bool(np.array_equal(_labels.check_labels(y, "y_val", len(y), "X_val"), self._labels))


@dataclass(frozen=True)
class _Level:
    name: Any
    perturbation: Perturbation
    parameters: dict[str, Any]


def _levels(noise: Any, perturbations: Any, relative: bool) -> list[_Level]:
    if (noise is None) == (perturbations is None):
        raise ValueError(
            "audit_shift takes either 'noise', a list of levels, or 'perturbations', a list of perturbations. Got "
            + ("neither." if noise is None else "both.")
        )
    name, given = ("noise", noise) if perturbations is None else ("perturbations", perturbations)
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"The {name!r} parameter of audit_shift must be a list of levels. Got {given!r} instead.")
    entries = list(given)
    if not entries:
        raise ValueError(f"The {name!r} parameter of audit_shift is empty: at least one level is needed.")
    if noise is not None:
        return [_noise_level(entry, relative) for entry in entries]
    if relative:
        raise ValueError(
            "The 'relative' parameter of audit_shift goes with 'noise'. With 'perturbations', pass "
            "GaussianNoise(..., relative=True)."
        )
    made = [as_perturbation(entry) for entry in entries]
    return [_Level(_title(one), one, without_seeds(one.parameters)) for one in made]


def _noise_level(level: Any, relative: bool) -> _Level:
    check.check_number("audit_shift", "noise", level)
    perturbation = GaussianNoise(float(level), relative=relative)
    return _Level(float(level), perturbation, without_seeds(perturbation.parameters))


def _title(perturbation: Perturbation) -> str:
    """Name of a perturbation with those parameters that are not left at their default."""
    steps = getattr(perturbation, "steps", None)
    if steps is not None:
        return " | ".join(_title(step) for step in steps)
    parameters = without_seeds(perturbation.parameters)
    defaults = {field.name: field.default for field in fields(perturbation)}
    shown = [name for name in defaults if name in parameters and parameters[name] != defaults[name]]
    given = [f"{name}={parameters[name]}" for name in shown]
    return f"{parameters['name']}({', '.join(given)})" if given else str(parameters["name"])


def _check_seed(random_state: Any) -> int:
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    return check.check_count("audit_shift", "random_state", random_state, at_least=0)


def _seeds(seed: int, parameters: dict[str, Any], repeats: int) -> Iterator[int]:
    """Seeds of one level: they depend on its perturbation, not on its place among the others."""
    digest = hashlib.blake2b(json.dumps(parameters, sort_keys=True).encode(), digest_size=16).digest()
    level = tuple(int(word) for word in np.frombuffer(digest, dtype="<u4"))
    for repeat in range(repeats):
        sequence = np.random.SeedSequence(seed, spawn_key=(*level, repeat))
        yield int(sequence.generate_state(1, np.uint64)[0])


def _axis(levels: list[_Level], noise: bool) -> tuple[str, npt.NDArray[np.float64]]:
    """Find what the levels measure and where each stands: the number in which they differ, if there is one."""
    if noise:
        return NOISE, np.array([level.name for level in levels])
    first = levels[0].parameters
    if all(level.parameters.keys() == first.keys() for level in levels):
        varying = [key for key in first if any(level.parameters[key] != first[key] for level in levels)]
        columns = [[level.parameters[key] for level in levels] for key in varying]
        numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for column in columns for x in column)
        # A second number is fine if it goes with the first, as the scale of Laplace noise goes with epsilon.
        if varying and numeric and len(set(columns[0])) == len(levels):
            return varying[0].replace("_", " "), np.array(columns[0], dtype=np.float64)
    return UNORDERED, np.arange(len(levels), dtype=np.float64)
