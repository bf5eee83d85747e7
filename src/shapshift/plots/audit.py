"""Shift curves: each statistic against the level of the perturbation, with its confidence band."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift._facts import level_name
from shapshift.plots._figure import (
    BOUNDARY,
    CLEAN,
    CORRECTED,
    NOISY,
    NONBOUNDARY,
    as_written,
    panels,
    style,
    tidy,
)

if TYPE_CHECKING:
    from shapshift.audit import ShiftAudit

LABELS = {
    "mean": "Mean of the values",
    "std": "Std of the values",
    "positive_count": "Rows with a positive value",
    "positive_ratio": "Share of positive values",
    "spearman": "Spearman with the clean values",
    "kendall": "Kendall with the clean values",
    "pearson": "Pearson with the clean values",
    "rmse": "RMSE (clean stds)",
    "flips_to_negative": "Rows turning negative",
    "flips_to_positive": "Rows turning positive",
    "top_overlap": "Overlap of the top rows",
    "bottom_overlap": "Overlap of the bottom rows",
    "boundary_fraction": "Share of boundary points",
    "alpha_boundary": r"$\alpha$ of the boundary scores",
    "alpha_nonboundary": r"$\alpha$ of the non-boundary scores",
    "neighbor_jaccard": "Jaccard of the nearest rows",
    "neighbor_displacement": "Median change in rank",
    "changed_predictions": "Share of changed predictions",
}
PARTS = {
    "_nonboundary": ("non-boundary points", NONBOUNDARY, "s"),
    "_boundary": ("boundary points", BOUNDARY, "^"),
    "": ("all points", NOISY, "o"),
}
# A log axis if the levels span more than this factor: on a linear one the small levels overlap.
LOG_SPAN = 20
NAME_LENGTH = 44
# With more ticks than this, matplotlib chooses them.
MOST_TICKS = 8


@style()
def plot_statistic(audit: ShiftAudit, statistic: str, *, ax: Any = None, legend: bool = True) -> Any:
    """Draw one statistic against the level, with its confidence band and the clean value.

    Parameters
    ----------
    audit : ShiftAudit
    statistic : str
        See :meth:`shapshift.ShiftAudit.statistic`.
    ax : Axes, optional
        Where to draw; a new figure by default.
    legend : bool, default=True
        Whether to add a legend for the clean value.

    Returns
    -------
    Axes
    """
    audit.statistic(statistic)  # refuses an unknown name before a figure is opened
    ax = panels(ax, 1, 1)[0, 0]
    _curve(ax, audit, statistic, NOISY, "perturbed", "o")
    if statistic in audit.clean:
        line = ax.axhline if audit.ordered else ax.axvline
        line(audit.clean[statistic], color=CLEAN, linestyle="--", linewidth=1.2, label="clean")
    return _finish(ax, audit, _label(statistic), legend=legend and statistic in audit.clean)


@style()
def plot_neighbors(audit: ShiftAudit, statistic: str = "neighbor_jaccard", *, ax: Any = None) -> Any:
    """Draw changes of the neighbours: for all points, boundary points and the others.

    Parameters
    ----------
    audit : ShiftAudit
    statistic : {"neighbor_jaccard", "neighbor_displacement", "changed_predictions"}
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    audit.statistic(statistic + "_boundary")
    ax = panels(ax, 1, 1)[0, 0]
    drawn = [
        _curve(ax, audit, statistic + part, colour, label, marker, aside)
        for (part, (label, colour, marker)), aside in zip(PARTS.items(), (-0.2, 0.2, 0.0), strict=True)
    ]
    return _finish(ax, audit, _label(statistic), legend=any(drawn))


@style()
def plot_shift(audit: ShiftAudit, *, ax: Any = None) -> Any:
    """Draw the main statistics of an audit in one figure.

    Parameters
    ----------
    audit : ShiftAudit
    ax : array of six Axes, optional
        Where to draw; a new figure, with the finding as its title, by default.

    Returns
    -------
    ndarray of Axes of shape (2, 3)
        Mean, std and share of positive values; Spearman and top overlap with the clean values; share of boundary
        points; Jaccard of the nearest rows for boundary and other points.
    """
    # Perturbations without an order are listed by name, once for each row of panels.
    height = 3.1 if audit.ordered else 1.6 + 0.35 * len(audit.levels)
    new = ax is None
    axes = panels(ax, 2, 3, size=(4.0, height), sharey=False if audit.ordered else "row")
    for ax, statistic in zip(axes[0], ("mean", "std", "positive_ratio"), strict=True):
        plot_statistic(audit, statistic, ax=ax, legend=statistic == "mean")
    _curve(axes[1, 0], audit, "spearman", NOISY, "Spearman", "o", -0.1)
    _curve(axes[1, 0], audit, "top_overlap", CORRECTED, f"overlap of the top {audit.parameters['top']}", "s", 0.1)
    _finish(axes[1, 0], audit, "Agreement with the clean values", legend=True)
    plot_statistic(audit, "boundary_fraction", ax=axes[1, 1], legend=False)
    plot_neighbors(audit, ax=axes[1, 2])
    if not new:
        return axes
    found = audit.finding if audit.ordered else audit.verdict
    runs = "1 run" if audit.repeats == 1 else f"{audit.repeats} runs"
    title = textwrap.fill(f"{audit.n_train:,} values, {runs} per level: {found}", 118)  # as wide as the figure
    axes[0, 0].figure.suptitle(title, fontsize=12, x=0.01, ha="left")
    return axes


def _curve(
    ax: Any, audit: ShiftAudit, statistic: str, colour: str, label: str, marker: str, aside: float = 0.0
) -> bool:
    """Draw one curve and its band; False when there is nothing to draw."""
    mean, low, high = audit.statistic(statistic)
    if np.isnan(mean).all():
        return False
    along = np.argsort(audit.positions, kind="stable")
    at, mean, low, high = audit.positions[along], mean[along], low[along], high[along]
    if audit.ordered:
        ax.fill_between(at, low, high, color=colour, alpha=0.2, linewidth=0)
        ax.plot(at, mean, color=colour, marker=marker, markersize=4, label=label)
    else:
        reach = np.nan_to_num(np.stack([mean - low, high - mean]))
        look = {"color": colour, "marker": marker, "markersize": 5, "linestyle": "none", "capsize": 2}
        ax.errorbar(mean, at + aside, xerr=reach, elinewidth=1.2, label=label, **look)
    return True


def _finish(ax: Any, audit: ShiftAudit, title: str, *, legend: bool) -> Any:
    if not ax.has_data():
        ax.text(0.5, 0.5, "not defined here", transform=ax.transAxes, ha="center", va="center", color="#666666")
    numbers = "y" if audit.ordered else "x"
    ax.ticklabel_format(axis=numbers, style="sci", scilimits=(-3, 4), useMathText=True)
    if audit.ordered:
        _level_axis(ax, audit.positions)
    else:
        ax.set_yticks(audit.positions, [as_written(name, NAME_LENGTH) for name in audit.levels])
        ax.set_ylim(audit.positions.max() + 0.5, audit.positions.min() - 0.5)  # the first on top
    return tidy(ax, xlabel=level_name(audit) if audit.ordered else "", title=title, legend=legend)


def _level_axis(ax: Any, positions: Any) -> None:
    """Put the ticks at the levels."""
    distinct = np.unique(positions)
    log = distinct[0] > 0 and distinct[-1] > LOG_SPAN * distinct[0]
    if log:
        ax.set_xscale("log")
    if log and distinct.size <= MOST_TICKS:
        ax.set_xticks(distinct, [f"{level:g}" for level in distinct])
        ax.set_xticks([], minor=True)


def _label(statistic: str) -> str:
    for part, (label, _, _) in PARTS.items():
        if part and statistic not in LABELS and statistic.endswith(part):
            return f"{LABELS[statistic.removesuffix(part)]}, {label}"
    return LABELS[statistic]
