"""ShiftAudit: what an audit found, level by level and row by row, and whether the values can be relied on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift.audit._levels import NOISE, UNORDERED
from shapshift.audit._statistics import ROW_STATISTICS, STATISTICS
from shapshift.audit._thresholds import VERDICTS, Interval, Thresholds, check_thresholds
from shapshift.checks.inputs import quoted
from shapshift.exceptions import InputError
from shapshift.io.archive import Arrays
from shapshift.io.results import Result, to_table

Floats = npt.NDArray[np.float64]

_CLEAN = ("mean", "std", "positive_count", "positive_ratio", "boundary_fraction")
_PARAMETERS: dict[str, type] = {"repeats": int, "random_state": int, "top": int, "confidence": float, "model": dict}


@dataclass(frozen=True, eq=False, repr=False)
class ShiftAudit(Result):
    """How the values of the training rows move when the validation set does.

    Attributes
    ----------
    levels : tuple
        Name of each level: the noise level, or what the perturbation is called, followed by "#2", "#3" where an
        earlier one is called the same.
    axis : str
        What the levels measure.
    positions : ndarray of shape (n_levels,)
        Where each level stands on that axis; 0, 1, 2, ... where levels have no numbers.
    perturbations : tuple of dict
        Parameters of each level's perturbation.
    means, lows, highs : ndarray of shape (n_levels, n_statistics)
        Mean of each statistic over the repeats and its 95% Student t interval; see :meth:`statistic`. Repeats in which
        a statistic is not defined are left out; NaN where none is left (one, for the interval).
    clean : mapping
        ``mean``, ``std``, ``positive_count``, ``positive_ratio`` and ``boundary_fraction`` of the clean run.
    rows : mapping of str to ndarray of shape (n_train,)
        What became of each training row over all runs at all levels, see :meth:`rows_frame`.
    level_rows : mapping of str to ndarray of shape (n_levels, n_train), or None
        The same for each level apart, when the audit was asked to keep it.
    clean_values, clean_ranks : ndarray of shape (n_train,)
        Value and rank (1 is the highest, ties averaged) of each row in the clean run.
    ids : ndarray of shape (n_train,)
        The caller's row ids.
    parameters : mapping
        ``repeats``, ``random_state``, ``top`` (rows in the top and bottom sets), ``confidence``, and the ``model``'s.
    thresholds : Thresholds
        What the verdict rests on; see :meth:`judged_by`.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        The caller's kind of table.
    id_names : tuple
        Names of the levels of the caller's index.
    """

    archive_kind: ClassVar[str] = "shapshift.ShiftAudit"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("levels", "positions", "perturbations"), "n_levels"),
        **dict.fromkeys(("means", "lows", "highs"), f"n_levels {len(STATISTICS)}"),
        **dict.fromkeys(("clean_values", "clean_ranks", "ids", "rows"), "n_train"),
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
        """Whether the levels are numbers on one axis, or perturbations of different kinds."""
        return self.axis != UNORDERED

    def statistic(self, name: str) -> tuple[Floats, Floats, Floats]:
        """Mean and confidence interval of one statistic at every level.

        Parameters
        ----------
        name : str
            ``mean``, ``std``, ``positive_count``, ``positive_ratio`` of the values; agreement with the clean values:
            ``spearman``, ``kendall``, ``pearson``, ``rmse`` (in clean stds), ``flips_to_negative``,
            ``flips_to_positive``, ``top_overlap``, ``bottom_overlap``; ``boundary_fraction``, ``alpha_boundary`` and
            ``alpha_nonboundary`` (clean over perturbed std of the group's scores); how far the neighbours of the
            validation points are reshuffled: ``neighbor_jaccard`` (of the K nearest), ``neighbor_displacement``
            (median change in rank of the clean K nearest), ``changed_predictions`` (share of points whose majority
            vote changes), and each of these with ``_boundary`` or ``_nonboundary`` added, for the points that are,
            or are not, boundary points when clean.

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
        """Verdict of each level: "stable", "shifts", "unstable", or "undefined" where a statistic is not defined."""
        return tuple(
            self.thresholds.judge(**{name: interval[0] for name, interval in judged.items()})
            for judged in self._judged()
        )

    @property
    def borderline(self) -> tuple[bool, ...]:
        """Whether another verdict lies within the confidence intervals of a level; False where there are none.

        More ``repeats`` make the intervals narrower. That of the sign flips adds up those of the flips to negative and
        to positive, which makes it rather too wide.
        """
        return tuple(self.thresholds.borderline(**judged) for judged in self._judged())

    @property
    def verdict(self) -> str:
        """Verdict of the worst level: "stable", "undefined", "shifts" or "unstable", from good to bad."""
        return max(self.verdicts, key=VERDICTS.index)

    @property
    def finding(self) -> str:
        """Where along the noise levels the verdict changes; for other levels, which verdict each has.

        Then which levels are borderline, or that one run per level gives no interval to tell.
        """
        return describe(self)

    def _judged(self) -> list[dict[str, Interval]]:
        """For each level, the intervals that verdicts rest on."""
        scale = self.clean["std"] if self.clean["std"] > 0 else np.nan
        bounds = {name: np.stack(self.statistic(name)) for name in ("spearman", "std")}
        flips = np.stack(self.statistic("flips_to_negative")) + np.stack(self.statistic("flips_to_positive"))
        found = {"spearman": bounds["spearman"], "flips": flips / self.n_train, "std_ratio": bounds["std"] / scale}
        return [
            {
                name: (float(low_high[0, at]), float(low_high[1, at]), float(low_high[2, at]))
                for name, low_high in found.items()
            }
            for at in range(len(self.levels))
        ]

    def summary(self) -> str:
        """Verdict in one line: at which level the values stop being stable, and by which thresholds."""
        return f"{self.verdict}: {self.finding} ({self.thresholds})"

    def judged_by(self, thresholds: Thresholds) -> Self:
        """Return the same audit judged by other thresholds; nothing is computed again."""
        return replace(self, thresholds=check_thresholds(thresholds))

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the statistics.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per level: ``level``, ``verdict``, ``borderline``, and for each statistic its mean over the repeats
            under its own name and its confidence interval under ``<name>_low`` and ``<name>_high``.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "level": np.array(self.levels),
            "verdict": np.array(self.verdicts),
            "borderline": np.array(self.borderline),
        }
        for name in STATISTICS:
            for end, column in zip(("", "_low", "_high"), self.statistic(name), strict=True):
                columns[name + end] = column
        return to_table(columns, None, kind or self.kind)

    def rows_frame(self, level: Any = None, kind: str | None = None) -> Any:
        """Tabulate how far each training row's value can be relied on.

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
            One row per training row, under its id: ``clean`` value and ``clean_rank`` (1 is the highest); ``mean`` and
            ``std`` of its value over the runs; ``flip_probability``, the share of runs in which it is positive and
            was not, or the other way round; ``rank_low`` and ``rank_high``, where its rank falls in nine runs of ten
            (mean rank -+ 1.645 standard deviations, cut to the ranks that occurred); and ``stability``, from 0 to 1:

                (1 - flip_probability) * max(0, 1 - mean change in rank / that of a rank drawn at random)

            so 1 means that the row kept its sign and its place in every run, and 0 that its place or its sign says
            nothing about the clean run. Keep the rows above, say, 0.8 to act on values that hold.
        """
        rows = self.rows
        if level is not None:
            if self.level_rows is None:
                raise InputError("The audit has no rows per level. Run audit_shift again with keep_rows=True.")
            if level not in self.levels:
                raise InputError(f"The 'level' parameter must be one of {self.levels}. Got {quoted(level)} instead.")
            at = self.levels.index(level)
            rows = {name: column[at] for name, column in self.level_rows.items()}
        columns = {"clean": self.clean_values, "clean_rank": self.clean_ranks, **rows}
        return to_table(columns, self.ids, kind or self.kind, self.id_names)

    def plot(self, statistic: str | None = None, *, ax: Any = None) -> Any:
        """Draw the shift curves.

        Parameters
        ----------
        statistic : str, optional
            One statistic, see :meth:`statistic`; by default a figure of the main ones.
        ax : matplotlib Axes, optional
            Where to draw the one statistic; without a name, the Spearman correlation.

        Returns
        -------
        Axes or ndarray of Axes
        """
        from shapshift.plots.audit import plot_shift, plot_statistic

        if statistic is None and ax is None:
            return plot_shift(self)
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
        must = {
            "levels": bool(self.levels) and all(isinstance(level, str) or _number(level) for level in self.levels),
            "perturbations": all(map(_has_name, self.perturbations)),
            "id_names": bool(self.id_names),
            "clean": all(_number(self.clean.get(name)) for name in _CLEAN),
            "parameters": all(
                isinstance(value := self.parameters.get(name), kind) and not isinstance(value, bool)
                for name, kind in _PARAMETERS.items()
            )
            and self.repeats >= 1,
        }
        for part, holds in must.items():
            if not holds:
                raise InputError(f"its {part!r} has the wrong type")

    def _repr_html_(self) -> str:
        from shapshift._notebook import audit_html

        return audit_html(self)

    def __repr__(self) -> str:
        return (
            f"ShiftAudit(n_train={self.n_train}, levels={len(self.levels)}, repeats={self.repeats}, "
            f"verdict={self.verdict!r}: {self.finding})"
        )


def describe(audit: ShiftAudit) -> str:
    """Say where the verdict changes, which levels are borderline, and what one run per level cannot tell."""
    along = np.argsort(audit.positions, kind="stable")
    verdicts, borderline = audit.verdicts, audit.borderline
    names = [f"{audit.positions[place]:g}" if audit.ordered else str(audit.levels[place]) for place in along]
    ordered = [verdicts[place] for place in along]
    where = f"at {audit.axis}" if audit.ordered else "under"
    found = _along_noise(names, ordered) if audit.axis == NOISE else _one_by_one(names, ordered, where)
    close = [name for name, place in zip(names, along, strict=True) if borderline[place]]
    if close:
        found += f"; borderline {where} {', '.join(close)}"
    if audit.repeats == 1:
        found += "; one run per level, so no confidence interval"
    return found


def _along_noise(names: list[str], verdicts: list[str]) -> str:
    """More noise is stronger, so it is enough to say from where on a verdict holds."""
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
    """More of another number need not mean a stronger perturbation."""
    found = {verdict: [n for n, v in zip(names, verdicts, strict=True) if v == verdict] for verdict in VERDICTS}
    return "; ".join(f"{verdict} {where} {', '.join(chosen)}" for verdict, chosen in found.items() if chosen)


def _number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _has_name(perturbation: Any) -> bool:
    return isinstance(perturbation, dict) and isinstance(perturbation.get("name"), str)
