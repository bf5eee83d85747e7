"""How the values of one valuation are distributed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.plots._figure import CLEAN, CORRECTED, NOISY, new_axes, style, tidy

if TYPE_CHECKING:
    from shapshift.valuation import Valuation

# Beyond these quantiles a few extreme rows would squeeze all others into one bar; they are counted in the outer bars.
TAILS = (0.001, 0.999)
BINS = 60


def plot_values(valuation: Valuation, *, bins: int = BINS, ax: Any = None) -> Any:
    """Draw a histogram of the values, positive and other rows in different colours.

    Parameters
    ----------
    valuation : Valuation
    bins : int, default=60
        Number of bars.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    values = valuation.values
    ax = new_axes(size=(5.4, 3.6)) if ax is None else ax
    edges = histogram_edges(values, bins)
    inside = _inside(values, edges)
    positive = int(np.count_nonzero(values > 0))
    with style():
        for chosen, colour, label in (
            (values > 0, CORRECTED, f"positive: {positive:,}"),
            (values <= 0, NOISY, f"zero or negative: {values.size - positive:,}"),
        ):
            ax.hist(inside[chosen], bins=edges, color=colour, label=label, linewidth=0)
        ax.axvline(values.mean(), color=CLEAN, linestyle="--", linewidth=1.2, label=f"mean: {values.mean():.3g}")
        ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4), useMathText=True)
        tidy(
            ax,
            xlabel="Value of a training row",
            ylabel="Training rows",
            title=f"{values.size:,} training rows on {valuation.n_val:,} validation points",
            legend=True,
        )
    return ax


def histogram_edges(values: Any, bins: int) -> Any:
    """Edges of equal bars; where some values are positive and some not, one edge is at 0 so that no bar mixes them."""
    low, high = np.quantile(values, TAILS)
    if not low < high:
        width = abs(float(low)) or 1.0
        return np.array([low - width / 2, low + width / 2])
    step = (high - low) / max(bins, 1)
    if values.min() <= 0 < values.max():
        first, last = min(np.floor(low / step), -1), max(np.ceil(high / step), 1)
        return step * np.arange(first, last + 1)
    return np.linspace(low, high, max(bins, 1) + 1)


def count_values(values: Any, bins: int, edges: Any = None) -> tuple[Any, Any]:
    """Edges of the bars of a histogram, and the number of values in each; those beyond count in the outer bars."""
    edges = histogram_edges(values, bins) if edges is None else edges
    return edges, np.histogram(_inside(values, edges), bins=edges)[0]


def _inside(values: Any, edges: Any) -> Any:
    # A value of 0 is not positive and belongs left of the edge at 0.
    return np.clip(np.where(values == 0, np.nextafter(0, -1), values), edges[0], edges[-1])
