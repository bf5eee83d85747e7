"""Which owners complement each other, and which are redundant."""

from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.exceptions import InputError
from shapshift.plots._figure import new_axes, style, tidy

if TYPE_CHECKING:
    from shapshift.knn.interactions import Interactions

# Most owners for which numbers are written into the cells; those of more would overlap.
MOST_WRITTEN = 10
# Most owners whose names are all written along the axes; of more, every second, third, ...
MOST_NAMED = 30


def plot_interactions(interactions: "Interactions", *, per_pair: bool = False, ax: Any = None) -> Any:
    """Draw the interaction of every pair of owners, and of the rows of each owner with each other on the diagonal.

    Parameters
    ----------
    interactions : Interactions
        With owners.
    per_pair : bool, default=False
        Mean over the pairs of rows instead of their sum, so that owners of many rows do not outshine the others.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    owners = [str(name) for name in interactions.owners]
    if not owners:
        raise InputError("There are no owners to draw. Pass 'owners' to knn_interactions.")
    shown = np.array(interactions.owner_totals)
    if per_pair:
        shown /= np.maximum(interactions.owner_pairs, 1)
    limit = float(np.abs(shown).max()) or 1.0
    side = min(3.4 + 0.28 * len(owners), 9.0)
    ax = new_axes(size=(side + 1.2, side)) if ax is None else ax
    with style():
        # Orange to purple, told apart with every common kind of colour blindness.
        image = ax.imshow(shown, cmap="PuOr", vmin=-limit, vmax=limit)
        if len(owners) <= MOST_WRITTEN:
            for (row, column), entry in np.ndenumerate(shown):
                colour = "white" if abs(entry) > 0.6 * limit else "black"
                ax.text(column, row, f"{entry:.2g}", ha="center", va="center", fontsize=9, color=colour)
        named = range(0, len(owners), -(-len(owners) // MOST_NAMED))
        labels = [owners[number] for number in named]
        tidy(ax, title=f"Interactions {'per pair of rows' if per_pair else 'of owners'}")
        ax.set_xticks(list(named), labels, rotation=45 if max(map(len, labels)) > 3 else 0)
        ax.set_yticks(list(named), labels)
        ax.grid(False)
        bar = ax.figure.colorbar(image, ax=ax, shrink=0.8)
        bar.set_label("redundant (below 0)   complementary (above 0)", fontsize=9)
        bar.ax.tick_params(labelsize=9)
    return ax
