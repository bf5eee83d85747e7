"""What a correction restores (the distribution) and what it does not (the rows)."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.exceptions import InputError
from shapshift.plots._figure import CLEAN, CORRECTED, NOISY, new_axes, tidy

if TYPE_CHECKING:
    from shapshift.correct import CorrectionEvaluation

_COLORS = {"clean": CLEAN, "noisy": NOISY, "corrected": CORRECTED}


def plot_correction(evaluation: "CorrectionEvaluation", axes: Any = None) -> Any:
    """Draw the distributions in one panel, then the clean values against each of the others.

    Parameters
    ----------
    evaluation : CorrectionEvaluation
    axes : sequence of Axes, optional
        One for the distributions and one per valuation other than the clean one.

    Returns
    -------
    ndarray of Axes
    """
    others = [name for name in evaluation.values if name != "clean"]
    panels = new_axes(1, 1 + len(others)) if axes is None else axes
    panels = np.asarray(panels, dtype=object).ravel()
    if panels.size != 1 + len(others):
        raise InputError(f"'axes' must be {1 + len(others)} Axes. Got {panels.size}.")
    _distributions(panels[0], evaluation)
    clean = evaluation.values["clean"]
    # Far outliers would squeeze all other rows into a corner; they are drawn at the edge.
    everything = np.concatenate(list(evaluation.values.values()))
    low, high = np.quantile(everything, [0.002, 0.998])
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    for ax, name in zip(panels[1:], others, strict=True):
        rows = evaluation.rows[name]
        if high > low:
            ax.set_xlim(low, high)
            ax.set_ylim(low, high)
        ax.axhline(0, color="0.6", linewidth=0.8)
        ax.axvline(0, color="0.6", linewidth=0.8)
        ax.axline((0, 0), slope=1, color=CLEAN, linewidth=1, linestyle="--")
        ax.scatter(
            np.clip(clean, low, high),
            np.clip(evaluation.values[name], low, high),
            s=6,
            alpha=0.35,
            color=_COLORS[name],
            linewidths=0,
            rasterized=True,
        )
        ax.ticklabel_format(style="sci", scilimits=(-2, 3))
        title = f"Rows, {name}: Spearman {rows['spearman']:.2f}, same sign {rows['sign_agreement']:.0%}"
        tidy(ax, xlabel="clean value of a row", ylabel=f"{name} value of the row", title=title)
    return panels


def _distributions(ax: Any, evaluation: "CorrectionEvaluation") -> None:
    for name, values in evaluation.values.items():
        ordered = np.sort(values)
        share = np.arange(1, ordered.size + 1) / ordered.size
        positive = int(evaluation.distribution[name]["positive_count"])
        ax.plot(
            ordered,
            share,
            color=_COLORS[name],
            linestyle="--" if name == "clean" else "-",
            zorder=3 if name == "clean" else 2,
            label=f"{name}: std {evaluation.distribution[name]['std']:.2g}, {positive} positive",
        )
    ax.axvline(0, color="0.6", linewidth=0.8)
    low, high = np.quantile(np.concatenate(list(evaluation.values.values())), [0.002, 0.998])
    if high > low:
        ax.set_xlim(low, high)
    ax.set_ylim(0, 1.28)  # room for the legend above the curves
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3))
    tidy(ax, xlabel="value", ylabel="share of rows at or below", title="Distribution")
    ax.legend(loc="upper left", fontsize=8.5, frameon=False, borderaxespad=0.1, labelspacing=0.25)
