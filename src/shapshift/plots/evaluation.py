"""What removing and adding players by their values does to a model."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.exceptions import InputError
from shapshift.plots._figure import CLEAN, CORRECTED, NOISY, new_axes, style, tidy

if TYPE_CHECKING:
    from shapshift.evaluation import ValuationEvaluation


def plot_evaluation(evaluation: "ValuationEvaluation", *, axes: Any = None) -> Any:
    """Draw the removal curves in one panel and the addition curves in another.

    Parameters
    ----------
    evaluation : ValuationEvaluation
        With curves: made with an estimator.
    axes : array of two Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ndarray of Axes
    """
    if not evaluation.curves:
        raise InputError("There are no curves to draw. Pass 'estimator', 'X_test' and 'y_test' to evaluate_valuation.")
    panels = np.asarray(new_axes(1, 2, sharey=True) if axes is None else axes, dtype=object).ravel()
    if panels.size != 2:
        raise InputError(f"'axes' must be 2 Axes. Got {panels.size}.")
    shares, curves = 100 * evaluation.fractions, evaluation.curves
    drawn = (
        (panels[0], "remove", "Removed", curves["random"]),
        (panels[1], "add", "Added", np.interp(1 - evaluation.fractions, evaluation.fractions, curves["random"])),
    )
    with style():
        for ax, kind, word, chance in drawn:
            for order, colour, marker in (("high", CORRECTED, "o"), ("low", NOISY, "s")):
                label = f"{order}est first (area {evaluation.areas[f'{kind}_{order}']:.3f})"
                ax.plot(shares, curves[f"{kind}_{order}"], color=colour, marker=marker, markersize=4, label=label)
            ax.plot(shares, chance, color=CLEAN, linestyle="--", linewidth=1.2, label="at random")
            tidy(
                ax,
                xlabel=f"{word} (% of the players)",
                ylabel="Test score" if kind == "remove" else "",
                title=f"{word} by value, {evaluation.method}",
                legend=True,
            )
    return panels
