"""The idea of the correction without clean data in one picture."""

from typing import Any

import numpy as np

from shapshift.agreement import spearman
from shapshift.plots._figure import CLEAN, CORRECTED, NOISY, new_axes, tidy

SHOWN_DRAWS = 40


def plot_posterior_idea(
    X_train: Any, clean_point: Any, noisy_point: Any, drawn: Any, sigma: float, values: dict[str, Any], axes: Any = None
) -> Any:
    """Draw one point and what it may have been, and the values that come of it.

    Parameters
    ----------
    X_train : ndarray of shape (n, 2)
    clean_point, noisy_point : ndarray of shape (2,)
    drawn : ndarray of shape (k, 2)
        Draws of what the point may have been.
    sigma : float
        Standard deviation of the noise.
    values : dict of ndarray
        "clean", "noisy" and "corrected" values of the training rows.
    axes : array of three Axes, optional

    Returns
    -------
    array of Axes
    """
    panels = new_axes(1, 3, size=(4.4, 3.9)).ravel() if axes is None else np.ravel(axes)
    ax = panels[0]
    ax.scatter(*X_train.T, s=7, color="#BBBBBB", linewidths=0, label="training rows of its class")
    angle = np.linspace(0, 2 * np.pi, 100)
    for times in (1, 2):
        circle = np.asarray(noisy_point)[:, None] + times * sigma * np.array([np.cos(angle), np.sin(angle)])
        ax.plot(*circle, color=NOISY, lw=0.8, ls=":")
    ax.scatter(*drawn.T, s=16, color=CORRECTED, linewidths=0, alpha=0.7, label="what it may have been")
    ax.scatter(*noisy_point, s=70, color=NOISY, marker="X", label="noisy point, as given")
    ax.scatter(*clean_point, s=110, color=CLEAN, marker="*", label="clean point, unknown", zorder=4)
    ax.set_aspect("equal", adjustable="datalim")
    tidy(ax, xlabel="first feature", ylabel="second feature", title="One validation point")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8, frameon=False, columnspacing=1.0)
    low, high = np.quantile(np.concatenate([values[name] for name in ("clean", "noisy", "corrected")]), [0.002, 0.998])
    for ax, name, colour in zip(panels[1:], ("noisy", "corrected"), (NOISY, CORRECTED), strict=True):
        ax.axline((0, 0), slope=1, color=CLEAN, lw=1, ls="--")
        ax.scatter(values["clean"], values[name], s=6, alpha=0.4, color=colour, linewidths=0, rasterized=True)
        ax.set(xlim=(low, high), ylim=(low, high))
        ax.ticklabel_format(style="sci", scilimits=(-2, 3))
        agreed = spearman(np.asarray(values[name]), np.asarray(values["clean"]))
        tidy(
            ax,
            xlabel="clean value of a training row",
            ylabel=f"{name} value",
            title=f"All rows, {name}: Spearman {agreed:.2f}",
        )
    return panels
