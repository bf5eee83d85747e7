"""Payouts per owner, with the interval they move in, what sampling leaves open and what correction changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.checks.inputs import quoted
from shapshift.checks.names import visible
from shapshift.exceptions import InputError
from shapshift.plots._figure import CLEAN, CORRECTED, NONBOUNDARY, new_axes, style, tidy

if TYPE_CHECKING:
    from shapshift.price import Allocation

NAME_LENGTH = 28
UNSURE = "#777777"


def plot_payouts(allocation: Allocation, *, top: int = 20, ax: Any = None) -> Any:
    """Draw the payout of each owner, largest first.

    Parameters
    ----------
    allocation : Allocation
    top : int, default=20
        Owners to draw, those paid most; the others are summed up in one bar.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    if not top >= 1:
        raise InputError(f"The 'top' parameter must be a number of owners, at least 1. Got {quoted(top)} instead.")
    order = np.argsort(-allocation.cents, kind="stable")
    shown, rest = order[:top], order[top:]
    names = [_short(str(allocation.owners[i])) for i in shown]
    unit = 10**allocation.digits

    def amounts(cents: Any) -> Any:
        return cents[shown] / unit

    money = amounts(allocation.cents)
    if ax is None:
        ax = new_axes(size=(6.4, 1.5 + 0.32 * (shown.size + (rest.size > 0))))
    places = np.arange(shown.size)
    with style():
        ax.barh(places, money, height=0.62, color=CORRECTED, alpha=0.55, linewidth=0, label="paid")
        if allocation.low is not None and allocation.high is not None:
            # Files made by hand may hold anything; a length below 0 is no whisker.
            reach = np.maximum([money - amounts(allocation.low), amounts(allocation.high) - money], 0.0)
            look: dict[str, Any] = {"fmt": "none", "ecolor": CLEAN, "elinewidth": 1.3, "capsize": 3}
            ax.errorbar(money, places, xerr=reach, label=f"under {allocation.interval}", **look)
        if allocation.sampling_low is not None and allocation.sampling_high is not None:
            low, high = amounts(allocation.sampling_low), amounts(allocation.sampling_high)
            # Beside the other whisker, not on it: they answer different questions.
            ax.hlines(places + 0.2, low, high, color=UNSURE, linewidth=3, label="95%, owner values are sampled")
        if allocation.corrected is not None:
            after = amounts(allocation.corrected)
            ax.plot(after, places, "D", color=NONBOUNDARY, markersize=5, label="after correction")
        if rest.size:
            names.append(f"{rest.size:,} others")
            others = allocation.cents[rest].sum() / unit
            ax.barh([shown.size], [others], height=0.62, color="#BBBBBB", linewidth=0)
        # Names are data: a dollar sign in one must not start a formula.
        ax.set_yticks(np.arange(len(names)), names)
        for label in ax.get_yticklabels():
            label.set_parse_math(False)
        ax.set_ylim(len(names) - 0.4, -0.6)  # the largest on top
        ax.set_xlim(left=0)
        ax.xaxis.set_major_formatter(lambda amount, _: f"{amount:,.10g}")
        several = any(part is not None for part in (allocation.low, allocation.corrected, allocation.sampling_low))
        tidy(ax, xlabel=f"Payout ({allocation.currency})", title=_title(allocation))
        if several:
            # Between the title and the bars, where it can hide neither.
            ax.set_title(ax.get_title(loc="left"), loc="left", pad=24, fontsize=11)
            place = {"loc": "lower left", "bbox_to_anchor": (0, 1), "borderaxespad": 0.2, "columnspacing": 1.4}
            ax.legend(frameon=False, fontsize=9, ncols=3, **place)
        ax.grid(False, axis="y")
    return ax


def _title(allocation: Allocation) -> str:
    n = len(allocation.owners)
    said = f"{allocation.show(allocation.cents.sum())} to {n:,} owner{'s' if n != 1 else ''}"
    for name, cents in (("kept back", allocation.reserve_cents), ("unallocated", allocation.unallocated_cents)):
        said += f", {allocation.show(cents, label=False)} {name}" if cents else ""
    return said.replace("$", r"\$")


def _short(name: str) -> str:
    name = visible(name, keep="")
    return name if len(name) <= NAME_LENGTH else name[: NAME_LENGTH - 1] + "…"
