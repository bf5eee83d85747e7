"""Validation design: profiles, and a selection among random choices."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.plots._figure import CLEAN, CORRECTED, NOISY, new_axes, tidy

if TYPE_CHECKING:
    from shapshift.design import DesignResult, ProfileComparison


def plot_profile(comparison: "ProfileComparison", ax: Any = None) -> Any:
    """Draw the share of points per entropy level, training (leave-one-out) beside validation.

    Parameters
    ----------
    comparison : ProfileComparison
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = new_axes() if ax is None else ax
    levels = comparison.training.levels
    places = np.arange(levels.size)
    for offset, name, profile, color in (
        (-0.2, "training, leave-one-out", comparison.training, CLEAN),
        (0.2, "validation", comparison.validation, NOISY),
    ):
        label = f"{name} ({profile.boundary_fraction:.0%} boundary)"
        ax.bar(places + offset, profile.shares, width=0.38, color=color, label=label)
    ax.set_xticks(places, [f"{level:.2f}" for level in levels])
    ax.set_ylim(
        0, 1.3 * max(comparison.training.shares.max(), comparison.validation.shares.max())
    )  # room for the legend
    title = f"Total variation {comparison.distance:.3f} (chance allows {comparison.expected:.3f})"
    return tidy(ax, xlabel="entropy of the neighbours' labels", ylabel="share of points", title=title, legend=True)


def plot_design(design: "DesignResult", ax: Any = None) -> Any:
    """Draw every set by its shift under noise and its distance from the pool's values.

    Parameters
    ----------
    design : DesignResult
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = new_axes() if ax is None else ax
    ax.scatter(design.random["distance"], design.random["shift"], color=NOISY, s=28, label="random")
    ax.scatter(
        design.stratified["distance"], design.stratified["shift"], color=CLEAN, s=28, marker="s", label="stratified"
    )
    ax.scatter(
        [design.chosen["distance"]], [design.chosen["shift"]], color=CORRECTED, s=140, marker="*", label="selected"
    )
    everything = {
        name: [design.chosen[name], *design.random[name], *design.stratified[name]] for name in ("distance", "shift")
    }
    ax.set_xlim(0, 1.06 * max(everything["distance"]) or 1)
    ax.set_ylim(0, 1.06 * max(everything["shift"]) or 1)
    tidy(
        ax,
        xlabel="distance to the pool's values (stds)",
        ylabel="shift under held-out noise (stds)",
        title=f"{design.parameters['m']} of {design.parameters['n_pool']} points: {design.gain:+.0%} shift saved",
    )
    ax.legend(loc="lower right", fontsize=9, frameon=False)
    return ax
