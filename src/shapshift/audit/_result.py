"""ShiftAudit: results of an audit by level and by row; Thresholds: the limits for stable values."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.audit._levels import NOISE, UNORDERED
from shapshift.audit._statistics import ROW_STATISTICS, STATISTICS
from shapshift.checks.inputs import quoted
from shapshift.exceptions import InputError
from shapshift.io.archive import Arrays
from shapshift.io.results import Result, to_table
from shapshift.trust import another_sample, sure_signs

Floats = npt.NDArray[np.float64]

#: From good to bad, of the sample of points (reliable, usable, unreliable) and of noise (stable, shifts, unstable).
#: "undefined" ranks above known bad verdicts and below known good ones.
VERDICTS = ("reliable", "stable", "usable", "undefined", "shifts", "unstable", "unreliable")
#: Name of the first level of an audit: other validation points from the same population.
ANOTHER_SAMPLE = "another sample"
#: Columns on the sampling error of each training row, in order.
SAMPLING_ROWS = ("standard_error", "low", "high", "sign_probability", "best_rank", "worst_rank")
_ENOUGH = {
    "reliable": "enough validation points: ",
    "usable": "enough validation points for rough use: ",
    "unreliable": "too few validation points: ",
    "undefined": "",
}
#: Values whose standard deviation falls to this share of the clean one are equal up to rounding.
COLLAPSED = 1e-9
_NO_SAMPLING = {
    **dict.fromkeys(("reliability", "reliability_spearman", "points_needed")),
    **dict.fromkeys(("surely_positive", "surely_negative", "open")),
    "n_val": 0,
    "units": 0,
    "clustered": 0,
    "unknown": "the audit comes from an earlier release",
}
_CLEAN = ("mean", "std", "positive_count", "positive_ratio", "boundary_fraction")
_PARAMETERS: dict[str, type] = {"repeats": int, "random_state": int, "top": int, "confidence": float, "model": dict}


@dataclass(frozen=True)
class Thresholds:
    """Thresholds for values to be reliable on another sample of validation points, and stable under noise.

    The sample is judged first. Its reliability is the expected correlation with the values on another sample of the
    same size: one minus the share of the values' variance that is due to chance. From ``reliable`` upwards the values
    are reliable; from ``usable`` upwards they are usable for decisions that do not depend on single rows; below they
    are unreliable. For normally distributed values, the top tenths of two samples share 69% of their rows at 0.9, and
    47% at 0.7. Without a standard error, the sample is "undefined".

    Under noise, means over the repeats of one level are compared. A level is unstable if the Spearman correlation with
    the clean values is below ``unstable_spearman``, more than the share ``unstable_flips`` of the rows change sign, or
    the values collapse: all rows get the same value, so their order is lost. It is stable if the correlation is at
    least ``stable_spearman``, at most ``stable_flips`` of the rows change sign, and the standard deviation of the
    values is within ``stable_std_change`` of the clean one, relatively. Otherwise it shifts. If a statistic is not
    defined (a correlation over one row, or with clean values that are all equal) and the others do not make the level
    unstable, the verdict is "undefined".

    Parameters
    ----------
    reliable, usable : float
        Correlations from 0 to 1, the second at most the first.
    stable_spearman, unstable_spearman : float
        From -1 to 1, the second at most the first.
    stable_flips, unstable_flips : float
        Shares of the training rows, the second at least the first.
    stable_std_change : float
        At least 0; 0.1 lets the standard deviation change by a tenth.

    Examples
    --------
    >>> Thresholds().judge(spearman=0.95, flips=0.01, std_ratio=0.8)
    'shifts'
    >>> Thresholds(stable_std_change=0.25).judge(spearman=0.95, flips=0.01, std_ratio=0.8)
    'stable'
    >>> Thresholds().judge(spearman=float("nan"), flips=0.0, std_ratio=1.0)
    'undefined'
    """

    reliable: float = 0.9
    usable: float = 0.7
    stable_spearman: float = 0.9
    unstable_spearman: float = 0.5
    stable_flips: float = 0.05
    unstable_flips: float = 0.25
    stable_std_change: float = 0.1

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("reliable", 0.0, 1.0),
            ("usable", 0.0, self.reliable),
            ("stable_spearman", -1.0, 1.0),
            ("unstable_spearman", -1.0, self.stable_spearman),
            ("stable_flips", 0.0, 1.0),
            ("unstable_flips", self.stable_flips, 1.0),
            ("stable_std_change", 0.0, np.inf),
        ):
            value = getattr(self, name)
            if not _number(value) or not lowest <= value <= highest:
                raise InputError(
                    f"The {name!r} parameter of Thresholds must be a number from {lowest:g} to {highest:g}. Got "
                    f"{value!r} instead."
                )
            object.__setattr__(self, name, float(value))

    def judge_sample(self, reliability: float | None) -> str:
        """Judge a sample of validation points.

        Parameters
        ----------
        reliability : float or None
            Reliability of a :class:`shapshift.Valuation`.

        Returns
        -------
        {"reliable", "usable", "unreliable", "undefined"}

        Examples
        --------
        >>> Thresholds().judge_sample(0.42)
        'unreliable'
        """
        if reliability is None:
            return "undefined"
        return "reliable" if reliability >= self.reliable else "usable" if reliability >= self.usable else "unreliable"

    def judge(self, *, spearman: float, flips: float, std_ratio: float) -> str:
        """Judge one level.

        Parameters
        ----------
        spearman : float
            Correlation with the clean values.
        flips : float
            Share of the rows that change sign.
        std_ratio : float
            Standard deviation of the values over that of the clean values.

        Returns
        -------
        {"stable", "shifts", "unstable", "undefined"}
        """
        if spearman < self.unstable_spearman or flips > self.unstable_flips or std_ratio <= COLLAPSED:
            return "unstable"
        if np.isnan([spearman, flips, std_ratio]).any():
            return "undefined"
        moved = (
            spearman < self.stable_spearman or flips > self.stable_flips or abs(std_ratio - 1) > self.stable_std_change
        )
        return "shifts" if moved else "stable"

    def borderline(self, *, spearman: Floats, flips: Floats, std_ratio: Floats) -> bool:
        """Return whether another verdict lies within the confidence intervals.

        Each statistic is moved through its interval while the others stay at their means.

        Parameters
        ----------
        spearman, flips, std_ratio : ndarray of shape (3,)
            Mean, lower and upper bound, see :meth:`judge`. NaN bounds are ignored.

        Returns
        -------
        bool
        """
        given = {"spearman": spearman, "flips": flips, "std_ratio": std_ratio}
        means = {name: interval[0] for name, interval in given.items()}
        verdict = self.judge(**means)
        for name, (_, low, high) in given.items():
            if np.isnan([low, high]).any():
                continue
            # Bounds are enough for monotone statistics; a ratio is best at 1.
            ends = (low, high, min(max(1.0, low), high)) if name == "std_ratio" else (low, high)
            if any(self.judge(**{**means, name: end}) != verdict for end in ends):
                return True
        return False

    def __str__(self) -> str:
        return (
            f"reliable: correlation with another sample >= {self.reliable:g}, unreliable: < {self.usable:g}; stable: "
            f"Spearman >= {self.stable_spearman:g}, sign flips in <= {self.stable_flips:.0%} of the rows, and "
            f"std within {self.stable_std_change:.0%}; unstable: Spearman < {self.unstable_spearman:g}, or sign flips "
            f"in > {self.unstable_flips:.0%} of the rows, or all values equal"
        )


@dataclass(frozen=True, eq=False, repr=False)
class ShiftAudit(Result):
    """Changes of the training rows' values on another sample of validation points, and under noise in these points.

    Attributes
    ----------
    levels : tuple
        Name of each level: the noise level, or the name of the perturbation, followed by "#2", "#3" if an earlier one
        has the same name.
    axis : str
        Quantity that the levels measure.
    positions : ndarray of shape (n_levels,)
        Position of each level on that axis; 0, 1, 2, ... if levels are not numbers.
    perturbations : tuple of dict
        Parameters of each level's perturbation.
    means, lows, highs : ndarray of shape (n_levels, n_statistics)
        Mean of each statistic over the repeats and its 95% Student t interval; see :meth:`statistic`. Repeats in which
        a statistic is undefined are left out; NaN if none is left (for the interval, fewer than two).
    clean : mapping
        ``mean``, ``std``, ``positive_count``, ``positive_ratio`` and ``boundary_fraction`` of the clean run.
    rows : mapping of str to ndarray of shape (n_train,)
        Statistics of each training row over all runs at all levels, see :meth:`rows_frame`.
    level_rows : mapping of str to ndarray of shape (n_levels, n_train), or None
        The same for each level, if the audit ran with ``keep_rows=True``.
    clean_values, clean_ranks : ndarray of shape (n_train,)
        Value and rank (1 is the highest, ties averaged) of each row in the clean run.
    ids : ndarray of shape (n_train,)
        The caller's row ids.
    parameters : mapping
        ``repeats``, ``random_state``, ``top`` (rows in the top and bottom sets), ``confidence``, and the ``model``'s.
    thresholds : Thresholds
        Thresholds of the verdicts; see :meth:`judged_by`.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".
    id_names : tuple
        Names of the levels of the caller's index.
    sampling : mapping
        Expected agreement with another sample of validation points, from the clean run alone: ``reliability`` (the
        expected correlation with the values on it) and ``reliability_spearman``; ``points_needed`` for a reliability of
        0.9, number of ``units`` (points, or clusters of points) and ``n_val`` points; ``surely_positive``,
        ``surely_negative`` and ``open``, numbers of rows by their 95% interval. If the model gives no standard errors,
        all but the counts of points are None, and ``unknown`` is the reason.
    sampling_rows : mapping of str to ndarray of shape (n_train,), or None
        The same for each training row, see :meth:`rows_frame`; None without standard errors.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley, audit_shift
    >>> X, y = load_iris(return_X_y=True)
    >>> audit = audit_shift(KNNShapley().fit(X[::2], y[::2]), X[1::2], y[1::2], noise=[0.1], repeats=3)
    >>> audit.levels
    (0.1,)
    """

    archive_kind: ClassVar[str] = "shapshift.ShiftAudit"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("levels", "positions", "perturbations"), "n_levels"),
        **dict.fromkeys(("means", "lows", "highs"), f"n_levels {len(STATISTICS)}"),
        **dict.fromkeys(("clean_values", "clean_ranks", "ids", "rows", "sampling_rows"), "n_train"),
        "level_rows": "n_levels n_train",
    }

    levels: tuple[Any, ...]
    axis: str
    positions: Floats
    perturbations: tuple[dict[str, Any], ...]
    means: Floats
    lows: Floats
    highs: Floats
    clean: Mapping[str, float]
    rows: Mapping[str, Floats]
    level_rows: Mapping[str, Floats] | None
    clean_values: Floats
    clean_ranks: Floats
    ids: npt.NDArray[Any]
    parameters: Mapping[str, Any]
    thresholds: Thresholds
    fingerprint: str
    kind: str = "numpy"
    id_names: tuple[Any, ...] = ("id",)
    sampling: Mapping[str, Any] = field(default_factory=lambda: dict(_NO_SAMPLING))
    sampling_rows: Mapping[str, Floats] | None = None

    @property
    def n_train(self) -> int:
        """Number of training rows."""
        return self.clean_values.size

    @property
    def repeats(self) -> int:
        """Number of runs per level."""
        return int(self.parameters["repeats"])

    @property
    def ordered(self) -> bool:
        """Whether the levels are numbers on one axis; if not, they are perturbations of different kinds."""
        return self.axis != UNORDERED

    def statistic(self, name: str) -> tuple[Floats, Floats, Floats]:
        """Mean and confidence interval of one statistic at every level.

        Parameters
        ----------
        name : str
            ``mean``, ``std``, ``positive_count``, ``positive_ratio`` of the values; agreement with the clean values:
            ``spearman``, ``kendall``, ``pearson``, ``rmse`` (in clean stds), ``flips_to_negative``,
            ``flips_to_positive``, ``top_overlap``, ``bottom_overlap``; ``boundary_fraction``, ``alpha_boundary`` and
            ``alpha_nonboundary`` (clean over perturbed std of the group's scores); changes of the validation points'
            neighbours: ``neighbor_jaccard`` (of the K nearest), ``neighbor_displacement`` (median change in rank of the
            clean K nearest), ``changed_predictions`` (share of points whose majority vote changes), and each of these
            with ``_boundary`` or ``_nonboundary`` added, for the points that are, or are not, boundary points when
            clean.

        Returns
        -------
        (ndarray, ndarray, ndarray)
            Mean, lower and upper bound, one entry per level.
        """
        if name not in STATISTICS:
            raise InputError(f"The 'name' parameter must be one of {', '.join(STATISTICS)}. Got {name!r} instead.")
        column = STATISTICS.index(name)
        return self.means[:, column], self.lows[:, column], self.highs[:, column]

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Verdict of each level: "stable", "shifts", "unstable", or "undefined" if a statistic is undefined."""
        return tuple(
            self.thresholds.judge(**{name: float(bounds[0]) for name, bounds in judged.items()})
            for judged in self._judged()
        )

    @property
    def borderline(self) -> tuple[bool, ...]:
        """Whether another verdict lies within the confidence intervals of each level; False without intervals.

        More ``repeats`` make the intervals narrower. The interval of the sign flips is the sum of those of the flips to
        negative and to positive, so it is somewhat too wide.
        """
        return tuple(self.thresholds.borderline(**judged) for judged in self._judged())

    @property
    def sampling_verdict(self) -> str:
        """Verdict of the sample: "reliable", "usable", "unreliable", or "undefined" without standard errors."""
        return self.thresholds.judge_sample(self.sampling["reliability"])

    @property
    def verdict(self) -> str:
        """The worst of the verdict of the sample and those of the levels.

        From good to bad: "stable" (reliable, and stable at every level), "usable", "undefined", "shifts", "unstable",
        "unreliable".
        """
        return max((self.sampling_verdict, *self.verdicts), key=VERDICTS.index)

    @property
    def finding(self) -> str:
        """Findings on another sample of points, then on noise: both of the following."""
        return f"{self.sampling_finding}; {self.noise_finding}"

    @property
    def sampling_finding(self) -> str:
        """Whether there are enough validation points, and how many are needed."""
        return _ENOUGH[self.sampling_verdict] + another_sample(self.sampling)

    @property
    def noise_finding(self) -> str:
        """The noise levels at which the verdict changes; for other levels, the verdict of each.

        Followed by the borderline levels, or a note that one run per level gives no interval.
        """
        along = np.argsort(self.positions, kind="stable")
        names = [f"{self.positions[at]:g}" if self.ordered else str(self.levels[at]) for at in along]
        judged = self.verdicts
        verdicts = [judged[at] for at in along]
        where = f"at {self.axis}" if self.ordered else "under"
        found = _along_noise(names, verdicts) if self.axis == NOISE else _one_by_one(names, verdicts, where)
        borderline = self.borderline
        if close := [name for name, at in zip(names, along, strict=True) if borderline[at]]:
            found += f"; borderline {where} {', '.join(close)}"
        if self.repeats == 1:
            found += "; one run per level, so no confidence interval"
        return found

    def _judged(self) -> list[dict[str, Floats]]:
        """For each level, mean and bounds of the statistics that decide its verdict."""
        scale = self.clean["std"] if self.clean["std"] > 0 else np.nan
        spearman, std, lost, gained = (
            np.stack(self.statistic(name)) for name in ("spearman", "std", "flips_to_negative", "flips_to_positive")
        )
        found = {"spearman": spearman, "flips": (lost + gained) / self.n_train, "std_ratio": std / scale}
        return [{name: bounds[:, at] for name, bounds in found.items()} for at in range(len(self.levels))]

    def summary(self) -> str:
        """Verdict in one line: findings on another sample and on noise, and the thresholds."""
        signs = sure_signs(self.sampling)
        found = f"{self.sampling_finding}; {signs}; {self.noise_finding}" if signs else self.finding
        return f"{self.verdict}: {found} ({self.thresholds})"

    def judged_by(self, thresholds: Thresholds) -> Self:
        """Return the same audit judged by other thresholds; nothing is computed again."""
        return replace(self, thresholds=check_thresholds(thresholds))

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the statistics.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row for another sample of points, called "another sample", then one per level: ``level``, ``verdict``,
            ``borderline``, and for each statistic its mean over the repeats under its own name and its confidence
            interval under ``<name>_low`` and ``<name>_high``. For another sample only the reliability is known, given
            as ``pearson`` and ``spearman``. Levels that are numbers stay numbers in pandas and become text elsewhere.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "level": object_array([ANOTHER_SAMPLE, *self.levels]),
            "verdict": np.array([self.sampling_verdict, *self.verdicts]),
            "borderline": np.array([False, *self.borderline]),
        }
        known = {"pearson": self.sampling["reliability"], "spearman": self.sampling["reliability_spearman"]}
        for name in STATISTICS:
            first = known.get(name)
            for end, column in zip(("", "_low", "_high"), self.statistic(name), strict=True):
                columns[name + end] = np.append(np.nan if end or first is None else first, column)
        return to_table(columns, None, kind or self.kind)

    def rows_frame(self, level: Any = None, kind: str | None = None) -> Any:
        """Tabulate the reliability of each training row's value.

        Parameters
        ----------
        level : optional
            One of ``levels``; by default all runs at all levels are taken together. Needs ``keep_rows=True`` in the
            audit.
        kind : {"pandas", "polars", "pyarrow"}, optional
            As in :meth:`to_frame`.

        Returns
        -------
        table
            One row per training row, under its id: ``clean`` value and ``clean_rank`` (1 is the highest); if the model
            gives standard errors, for another sample of points: ``standard_error`` of the value, ``low`` and ``high``
            (95% interval), ``sign_probability`` (that the value on the population is above 0), ``best_rank`` and
            ``worst_rank``; and under noise: ``mean`` and ``std`` of its value over the runs; ``flip_probability``, the
            share of runs in which it becomes positive or stops being positive; ``rank_low`` and ``rank_high``, a range
            that holds its rank in nine runs of ten (mean rank -+ 1.645 standard deviations, cut to the ranks that
            occurred); and ``stability``, from 0 to 1:

                (1 - flip_probability) * max(0, 1 - mean change in rank / that of a rank drawn at random)

            so 1 means that the row kept its sign and rank in every run, and 0 that its rank or sign says nothing about
            the clean run. It covers noise only: to act on single rows, also require that 0 is not between ``low`` and
            ``high``.
        """
        rows = self.rows
        if level is not None:
            if self.level_rows is None:
                raise InputError("The audit has no rows per level. Run audit_shift again with keep_rows=True.")
            if level not in self.levels:
                raise InputError(f"The 'level' parameter must be one of {self.levels}. Got {quoted(level)} instead.")
            at = self.levels.index(level)
            rows = {name: column[at] for name, column in self.level_rows.items()}
        columns = {"clean": self.clean_values, "clean_rank": self.clean_ranks, **(self.sampling_rows or {}), **rows}
        return to_table(columns, self.ids, kind or self.kind, self.id_names)

    def plot(self, statistic: str | None = None, *, ax: Any = None) -> Any:
        """Draw the shift curves.

        Parameters
        ----------
        statistic : str, optional
            One statistic, see :meth:`statistic`; by default a figure of the main ones.
        ax : Axes or array of six Axes, optional
            Where to draw: one Axes for one statistic (without a name, the Spearman correlation), six for the main ones;
            a new figure by default.

        Returns
        -------
        Axes or ndarray of Axes
        """
        from shapshift.plots.audit import plot_shift, plot_statistic

        if statistic is None and (ax is None or np.ndim(ax)):
            return plot_shift(self, ax=ax)
        return plot_statistic(self, statistic or "spearman", ax=ax)

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        header, arrays = super()._to_archive()
        return {**header, "statistics": list(STATISTICS)}, arrays

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        if header["statistics"] != list(STATISTICS):
            raise InputError("it has other statistics than this release")
        return super()._from_archive(header, arrays)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        for rows in (self.rows, self.level_rows):
            if rows is not None and set(rows) != set(ROW_STATISTICS):
                raise InputError("it has other columns of rows than this release")
        if self.sampling_rows is not None and set(self.sampling_rows) != set(SAMPLING_ROWS):
            raise InputError("it has other columns of sampling errors than this release")
        must = {
            "levels": bool(self.levels) and all(isinstance(level, str) or _number(level) for level in self.levels),
            "perturbations": all(map(_has_name, self.perturbations)),
            "id_names": bool(self.id_names),
            "clean": all(_number(self.clean.get(name)) for name in _CLEAN),
            "sampling": set(self.sampling) == set(_NO_SAMPLING)
            and all(
                part is None or (isinstance(part, str) if name == "unknown" else _number(part))
                for name, part in self.sampling.items()
            ),
            "parameters": all(
                isinstance(value := self.parameters.get(name), kind) and not isinstance(value, bool)
                for name, kind in _PARAMETERS.items()
            )
            and self.repeats >= 1,
        }
        for part, holds in must.items():
            if not holds:
                raise InputError(f"its {part!r} has the wrong type")

    def __repr__(self) -> str:
        return (
            f"ShiftAudit(n_train={self.n_train}, levels={len(self.levels)}, repeats={self.repeats}, "
            f"verdict={self.verdict!r}: {self.finding})"
        )


def _along_noise(names: list[str], verdicts: list[str]) -> str:
    """Verdicts by noise level, given by the level from which each holds, since more noise is stronger."""
    end = len(names)
    first = {verdict: verdicts.index(verdict) if verdict in verdicts else end for verdict in VERDICTS}
    shifts, unstable = first["shifts"], first["unstable"]
    stable = min(shifts, unstable, first["undefined"])  # number of stable levels before the first other one
    parts = [f"stable up to noise {names[stable - 1]}"] if stable else []
    undefined = [name for name, verdict in zip(names, verdicts, strict=True) if verdict == "undefined"]
    parts += [f"undefined at noise {', '.join(undefined)}"] if undefined else []
    parts += [f"shifts from noise {names[shifts]}"] if shifts < unstable else []
    parts += [f"unstable from noise {names[unstable]}"] if unstable < end else []
    return ", ".join(parts)


def _one_by_one(names: list[str], verdicts: list[str], where: str) -> str:
    """Verdicts of other levels, each by name, since a larger number need not mean a stronger perturbation."""
    found = {verdict: [n for n, v in zip(names, verdicts, strict=True) if v == verdict] for verdict in VERDICTS}
    return "; ".join(f"{verdict} {where} {', '.join(chosen)}" for verdict, chosen in found.items() if chosen)


def _number(value: object) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _has_name(perturbation: Any) -> bool:
    return isinstance(perturbation, dict) and isinstance(perturbation.get("name"), str)


def check_thresholds(thresholds: object) -> Thresholds:
    """Refuse anything but Thresholds; None means the default ones."""
    if thresholds is None:
        return Thresholds()
    if not isinstance(thresholds, Thresholds):
        raise InputError(
            "The 'thresholds' parameter must be a Thresholds object, such as Thresholds(stable_spearman=0.8). Got "
            f"{thresholds!r} instead."
        )
    return thresholds
