"""Figures of single results: values, corrections, evaluations, interactions, payouts and validation design."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.checks.inputs import quoted
from shapshift.exceptions import InputError
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
from shapshift.trust import WANTED, reliability_at, sample_sizes, sampled_units, sampling_facts

if TYPE_CHECKING:
    from shapshift.cleaning import CleaningEffect
    from shapshift.correct import CorrectionEvaluation
    from shapshift.design import DesignResult, ProfileComparison
    from shapshift.evaluation import ValuationComparison, ValuationEvaluation
    from shapshift.knn.interactions import Interactions
    from shapshift.market.stress import StressTest
    from shapshift.price import Allocation, InfluenceAudit, OwnerValues, PayoutAudit
    from shapshift.sampled import FederatedValues
    from shapshift.suspects import Suspects
    from shapshift.valuation import Valuation

# Rows beyond these quantiles are counted in the outer bars, since a few extreme rows would squeeze all others into one.
TAILS = (0.001, 0.999)
BINS = 60
# Quantiles between which a correction is drawn; rows beyond them are drawn at the edge.
VIEW = (0.002, 0.998)
COLOURS = {"clean": CLEAN, "noisy": NOISY, "corrected": CORRECTED}
# Colours of compared methods; markers differ too, since more than four share colours.
METHOD_COLOURS, MARKERS = (CORRECTED, NOISY, NONBOUNDARY, BOUNDARY), "osD^vP*X<>"
# Most owners for which numbers are written into the cells; with more they would overlap.
MOST_WRITTEN = 10
# Most owners whose names are all written along the axes; with more, every second, third, ...
MOST_NAMED = 30
NAME_LENGTH, LONG_NAME = 28, 60
UNSURE = "#777777"
# Most rows whose intervals are drawn; more would overlap.
MOST_INTERVALS = 400
# Most classes drawn, and most unflagged rows drawn per class.
MOST_CLASSES, MOST_DOTS = 12, 1000


@style()
def plot_values(valuation: Valuation, *, bins: int = BINS, ax: Any = None) -> Any:
    """Draw a histogram of the values, with positive and other rows in different colours.

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
    ax = panels(ax, 1, 1, size=(5.4, 3.6))[0, 0]
    edges = histogram_edges(values, bins)
    inside = _inside(values, edges)
    positive = int(np.count_nonzero(values > 0))
    for chosen, colour, label in (
        (values > 0, CORRECTED, f"positive: {positive:,}"),
        (values <= 0, NOISY, f"zero or negative: {values.size - positive:,}"),
    ):
        ax.hist(inside[chosen], bins=edges, color=colour, label=label, linewidth=0)
    ax.axvline(values.mean(), color=CLEAN, linestyle="--", linewidth=1.2, label=f"mean: {values.mean():.3g}")
    ax.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4), useMathText=True)
    title = f"{values.size:,} training rows on {valuation.n_val:,} validation points"
    return tidy(ax, xlabel="Value of a training row", ylabel="Training rows", title=title, legend=True)


@style()
def plot_intervals(valuation: Valuation, *, confidence: float = 0.95, ax: Any = None) -> Any:
    """Draw the values in order, each with its confidence interval for another validation set.

    Parameters
    ----------
    valuation : Valuation
        With standard errors.
    confidence : float, default=0.95
        Confidence level of each interval.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    low, high = valuation.interval(confidence)
    n = valuation.n_train
    ax = panels(ax, 1, 1, size=(6.4, 3.6))[0, 0]
    order = np.argsort(-valuation.values, kind="stable")
    # All ranks, or as many as fit the figure, including the first and the last.
    places = np.unique(np.linspace(0, n - 1, min(n, MOST_INTERVALS)).round().astype(np.int64))
    rows = order[places]
    signs = {
        "surely positive": (low > 0, CORRECTED),
        "surely negative": (high < 0, NOISY),
        "open": (~((low > 0) | (high < 0)), UNSURE),
    }
    for name, (of_sign, colour) in signs.items():
        here, label = of_sign[rows], f"{name}: {np.count_nonzero(of_sign):,}"
        ax.vlines(places[here] + 1, low[rows[here]], high[rows[here]], color=colour, alpha=0.35, linewidth=1.2)
        ax.plot(places[here] + 1, valuation.values[rows[here]], ".", color=colour, markersize=3, label=label)
    ax.axhline(0, color=CLEAN, linewidth=0.8)
    ax.ticklabel_format(axis="y", style="sci", scilimits=(-3, 4), useMathText=True)
    title = f"{n:,} values with {confidence:.0%} intervals, {valuation.n_val:,} validation points"
    tidy(ax, xlabel="Rank of the training row", ylabel="Value", title=title)
    ax.legend(loc="lower left")
    return ax


@style()
def plot_reliability(valuation: Valuation, *, ax: Any = None) -> Any:
    """Draw the expected agreement with another sample against the number of points, and mark the points needed.

    Parameters
    ----------
    valuation : Valuation
        With a reliability.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    facts = sampling_facts(valuation)
    if facts["reliability"] is None:
        raise InputError(f"There is no reliability to draw: {facts['unknown']}.")
    ax = panels(ax, 1, 1, size=(5.4, 3.6))[0, 0]
    sizes = sample_sizes(facts, 60)
    ax.plot(sizes, reliability_at(facts, sizes), color=CORRECTED)
    ax.axhline(WANTED, color=CLEAN, linestyle="--", linewidth=1.2)
    what, now, needed = sampled_units(facts), facts["units"], facts["points_needed"]
    ax.plot([now], [facts["reliability"]], "o", color=NOISY, label=f"these {now:,} {what}: {facts['reliability']:.2f}")
    if needed is not None and needed > now:
        ax.plot([needed], [WANTED], "D", color=NONBOUNDARY, label=f"{WANTED:g} needs {needed:,} {what}")
    ax.set_xscale("log")
    ax.xaxis.set_major_formatter(lambda size, _: f"{size:,.10g}")
    ax.set_ylim(0, 1.02)
    title = "Agreement to be expected with another sample"
    tidy(ax, xlabel=f"Validation {what}", ylabel="Correlation of the values", title=title)
    ax.legend(loc="lower right")
    return ax


def histogram_edges(values: Any, bins: int) -> Any:
    """Edges of equal bars; with values of both kinds, one edge is at 0, so no bar mixes positive and other values."""
    low, high = np.quantile(values, TAILS)
    if not low < high:
        width = abs(float(low)) or 1.0
        return np.array([low - width / 2, low + width / 2])
    step = (high - low) / max(bins, 1)
    if values.min() <= 0 < values.max():
        first, last = min(np.floor(low / step), -1), max(np.ceil(high / step), 1)
        return step * np.arange(first, last + 1)
    return np.linspace(low, high, max(bins, 1) + 1)


def count_values(values: Any, edges: Any) -> Any:
    """Count the values between edges; values beyond count in the outer bars."""
    return np.histogram(_inside(values, edges), bins=edges)[0]


def _inside(values: Any, edges: Any) -> Any:
    # A value of 0 is not positive and belongs left of the edge at 0.
    return np.clip(np.where(values == 0, np.nextafter(0, -1), values), edges[0], edges[-1])


@style()
def plot_correction(evaluation: CorrectionEvaluation, *, ax: Any = None) -> Any:
    """Draw the distribution of the values, which a correction restores, and the rows, which it does not.

    Parameters
    ----------
    evaluation : CorrectionEvaluation
    ax : sequence of Axes, optional
        One for the distributions, then one per valuation other than the clean one, for its values against the clean
        ones.

    Returns
    -------
    ndarray of Axes
    """
    others = [name for name in evaluation.values if name != "clean"]
    parts = panels(ax, 1, 1 + len(others))[0]
    low, high = np.quantile(np.concatenate(list(evaluation.values.values())), VIEW)
    _draw_distributions(parts[0], evaluation)
    if high > low:
        parts[0].set_xlim(low, high)
    # Far outliers are drawn at the edge, since they would squeeze all other rows into a corner.
    low, high = low - 0.05 * (high - low), high + 0.05 * (high - low)
    for ax, name in zip(parts[1:], others, strict=True):
        rows = evaluation.rows[name]
        if high > low:
            ax.set(xlim=(low, high), ylim=(low, high))
        ax.axhline(0, color="0.6", linewidth=0.8)
        ax.axvline(0, color="0.6", linewidth=0.8)
        ax.axline((0, 0), slope=1, color=CLEAN, linewidth=1, linestyle="--")
        x, y = (np.clip(evaluation.values[which], low, high) for which in ("clean", name))
        ax.scatter(x, y, s=6, alpha=0.35, color=COLOURS[name], linewidths=0, rasterized=True)
        ax.ticklabel_format(style="sci", scilimits=(-2, 3))
        title = f"Rows, {name}: Spearman {rows['spearman']:.2f}, same sign {rows['sign_agreement']:.0%}"
        tidy(ax, xlabel="clean value of a row", ylabel=f"{name} value of the row", title=title)
    return parts


def _draw_distributions(ax: Any, evaluation: CorrectionEvaluation) -> None:
    for name, values in evaluation.values.items():
        found = evaluation.distribution[name]
        label = f"{name}: std {found['std']:.2g}, {int(found['positive_count'])} positive"
        look = {"linestyle": "--", "zorder": 3} if name == "clean" else {"linestyle": "-", "zorder": 2}
        share = np.arange(1, values.size + 1) / values.size
        ax.plot(np.sort(values), share, color=COLOURS[name], label=label, **look)
    ax.axvline(0, color="0.6", linewidth=0.8)
    ax.set_ylim(0, 1.28)  # space for the legend above the curves
    ax.set_yticks([0, 0.25, 0.5, 0.75, 1])
    ax.ticklabel_format(axis="x", style="sci", scilimits=(-2, 3))
    tidy(ax, xlabel="value", ylabel="share of rows at or below", title="Distribution")
    ax.legend(loc="upper left", fontsize=8.5, borderaxespad=0.1, labelspacing=0.25)


@style()
def plot_evaluation(evaluation: ValuationEvaluation, *, ax: Any = None) -> Any:
    """Draw the removal curves in one panel and the addition curves in another.

    Parameters
    ----------
    evaluation : ValuationEvaluation
        With curves, which need an estimator.
    ax : array of two Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ndarray of Axes
    """
    _check_curves(evaluation)
    parts = panels(ax, 1, 2, sharey=True)[0]
    removed, curves = evaluation.fractions, evaluation.curves
    for ax, kind, word, at in ((parts[0], "remove", "Removed", removed), (parts[1], "add", "Added", 1 - removed)):
        for order, colour, marker in (("high", CORRECTED, "o"), ("low", NOISY, "s")):
            label = f"{order}est first (area {evaluation.areas[f'{kind}_{order}']:.3f})"
            ax.plot(100 * removed, curves[f"{kind}_{order}"], color=colour, marker=marker, markersize=4, label=label)
        chance = np.interp(at, removed, curves["random"])
        ax.plot(100 * removed, chance, color=CLEAN, linestyle="--", linewidth=1.2, label="at random")
        title = f"{word} by value, {as_written(evaluation.method)}"
        tidy(ax, xlabel=f"{word} (% of the players)", title=title, legend=True)
    tidy(parts[0], ylabel="Test score")
    return parts


@style()
def plot_comparison(comparison: ValuationComparison, *, ax: Any = None) -> Any:
    """Draw the removal curves of several valuations and of a random order: highest first, and lowest first.

    Parameters
    ----------
    comparison : ValuationComparison
        With curves, which need an estimator.
    ax : array of two Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ndarray of Axes
    """
    evaluations = comparison.evaluations
    last = list(evaluations.values())[-1]
    _check_curves(last)
    parts, removed = panels(ax, 1, 2, sharey=True)[0], 100 * last.fractions
    for ax, order in zip(parts, ("high", "low"), strict=True):
        for number, (name, found) in enumerate(evaluations.items()):
            label = f"{as_written(name)} (area {found.areas[f'remove_{order}']:.3f})"
            colour = METHOD_COLOURS[number % len(METHOD_COLOURS)]
            marker = MARKERS[number % len(MARKERS)]
            ax.plot(removed, found.curves[f"remove_{order}"], color=colour, marker=marker, markersize=4, label=label)
        label = f"random order (area {last.areas['random']:.3f})"
        ax.plot(removed, last.curves["random"], color=CLEAN, linestyle="--", linewidth=1.2, label=label)
        tidy(
            ax, xlabel="Removed (% of the players)", title=f"{order.capitalize()}est values removed first", legend=True
        )
    tidy(parts[0], ylabel="Test score")
    return parts


def _check_curves(evaluation: ValuationEvaluation) -> None:
    if not evaluation.curves:
        raise InputError("There are no curves to draw. Pass 'estimator', 'X_test' and 'y_test' to evaluate_valuation.")


@style()
def plot_suspects(suspects: Suspects, *, ax: Any = None) -> Any:
    """Draw the probability that each row's label is wrong, by class, and the number of flagged rows for each error.

    Parameters
    ----------
    suspects : Suspects
        With more than twelve classes, those with the most flagged rows are drawn.
    ax : array of two Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ndarray of Axes
    """
    parts = panels(ax, 1, 2)[0]
    chances, flagged = suspects.probability, suspects.flagged
    if suspects.classes:
        order = np.argsort(-suspects.classes["flagged"], kind="stable")[:MOST_CLASSES]
        names = [suspects.classes["label"][j] for j in order]
        labels = suspects.label.tolist()
        members = [[name in each if suspects.task == "set" else name == each for each in labels] for name in names]
    else:
        names, members = ["all rows"], [[True] * chances.size]
    for place, mine in enumerate(members):
        rows = np.flatnonzero(mine)
        for some, colour, size in ((rows[~flagged[rows]], UNSURE, 4), (rows[flagged[rows]], NOISY, 10)):
            shown = some[:: 1 + some.size // MOST_DOTS]
            # Dots are spread evenly over the height of the class, so that they do not hide each other.
            height = place + 0.7 * (np.arange(shown.size) * 0.618 % 1 - 0.5)
            parts[0].scatter(chances[shown], height, s=size, color=colour, linewidths=0, rasterized=chances.size > 5000)
    parts[0].set_yticks(range(len(names)), [as_written(name, NAME_LENGTH) for name in names])
    parts[0].invert_yaxis()
    parts[0].set_xlim(-0.02, 1.02)
    ranked = np.sort(chances)[::-1]
    counts = np.arange(1, ranked.size + 1)
    errors = np.cumsum(1 - ranked) / counts
    view = slice(0, int(np.searchsorted(errors, max(0.5, suspects.error), side="right")) + 1)
    parts[1].plot(counts[view], 100 * errors[view], color=CORRECTED)
    parts[1].axhline(100 * suspects.error, color=CLEAN, linestyle="--", linewidth=1.2, label="allowed")
    title = "Nothing is flagged"
    if flagged.any():
        n = int(flagged.sum())
        cutoff = suspects.cutoff
        parts[0].axvline(cutoff, color=CLEAN, linestyle="--", linewidth=1.2, label=f"cut-off {cutoff:.2f}")
        parts[1].plot([n], [100 * suspects.expected_error], "o", color=NOISY, label=f"{n:,} rows flagged")
        title = f"{n:,} flagged, {suspects.expected_error:.0%} of them expected to be right"
    tidy(parts[0], xlabel="Probability that the label is wrong", title=title, legend=bool(flagged.any()))
    tidy(parts[1], xlabel="Rows, most probable first", ylabel="Expected to be right (%)", legend=True)
    return parts


@style()
def plot_interactions(interactions: Interactions, *, per_pair: bool = False, ax: Any = None) -> Any:
    """Draw complementary and redundant pairs of owners, and on the diagonal the rows of each owner.

    Parameters
    ----------
    interactions : Interactions
        With owners.
    per_pair : bool, default=False
        Mean over the pairs of rows instead of their sum, so that owners with many rows do not dominate.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    owners = [as_written(name, NAME_LENGTH) for name in interactions.owners]
    if not owners:
        raise InputError("There are no owners to draw. Pass 'owners' to knn_interactions.")
    shown = np.array(interactions.owner_totals)
    if per_pair:
        shown /= np.maximum(interactions.owner_pairs, 1)
    limit = float(np.abs(shown).max()) or 1.0
    side = min(3.4 + 0.28 * len(owners), 9.0)
    ax = panels(ax, 1, 1, size=(side + 1.2, side))[0, 0]
    # Orange to purple, distinguishable with every common kind of colour blindness.
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


@style()
def plot_payouts(allocation: Allocation, *, top: int = 20, ax: Any = None) -> Any:
    """Draw the payout of each owner, largest first, with its intervals where known.

    Parameters
    ----------
    allocation : Allocation
    top : int, default=20
        Number of owners to draw, those paid most; one bar sums up the others.
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
    names = [as_written(allocation.owners[i], NAME_LENGTH) for i in shown]
    unit = 10**allocation.digits

    def amounts(cents: Any) -> Any:
        return None if cents is None else cents[shown] / unit

    money, low, high, after = map(amounts, (allocation.cents, allocation.low, allocation.high, allocation.corrected))
    sampled = amounts(allocation.sampling_low), amounts(allocation.sampling_high)
    ax = panels(ax, 1, 1, size=(6.4, 1.5 + 0.32 * (shown.size + (rest.size > 0))))[0, 0]
    places = np.arange(shown.size)
    ax.barh(places, money, height=0.62, color=CORRECTED, alpha=0.55, linewidth=0, label="paid")
    if low is not None and high is not None:
        # Files edited by hand may hold anything; a negative length cannot be a whisker.
        reach = np.maximum([money - low, high - money], 0.0)
        look: dict[str, Any] = {"fmt": "none", "ecolor": CLEAN, "elinewidth": 1.3, "capsize": 3}
        ax.errorbar(money, places, xerr=reach, label=f"under {as_written(allocation.interval)}", **look)
    if sampled[0] is not None and sampled[1] is not None:
        # Next to the other whisker, not on it: they answer different questions.
        ax.hlines(
            places + 0.2,
            *sampled,
            color=UNSURE,
            linewidth=3,
            label=f"95%, {allocation.sampled or 'owner values'} are a sample",
        )
    if after is not None:
        ax.plot(after, places, "D", color=NONBOUNDARY, markersize=5, label="after correction")
    if rest.size:
        names.append(f"{rest.size:,} others")
        ax.barh([shown.size], [allocation.cents[rest].sum() / unit], height=0.62, color="#BBBBBB", linewidth=0)
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)  # the largest on top
    least = [part.min() for part in (money, low, after, sampled[0]) if part is not None]
    if not least or min(least) >= 0:
        ax.set_xlim(left=0)
    ax.xaxis.set_major_formatter(lambda amount, _: f"{amount:,.10g}")
    tidy(ax, xlabel=f"Payout ({as_written(allocation.currency)})", title=_payout_title(allocation))
    if any(part is not None for part in (low, after, sampled[0])):
        # Between the title and the bars, where it hides neither.
        ax.set_title(ax.get_title(loc="left"), loc="left", pad=24)
        ax.legend(ncols=3, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2, columnspacing=1.4)
    ax.grid(False, axis="y")
    return ax


@style()
def plot_influence(audit: InfluenceAudit, *, top: int = 20, ax: Any = None) -> Any:
    """Draw the effect of each validation point on each owner, with flagged points in another colour.

    Parameters
    ----------
    audit : InfluenceAudit
    top : int, default=20
        Number of owners to draw, those for whom single points matter most.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    shown = _first(-audit.influence.max(axis=0), top)
    ax = panels(ax, 1, 1, size=(6.4, 1.5 + 0.32 * shown.size))[0, 0]
    for place, at in enumerate(shown):
        flagged = audit.flagged[:, at]
        for chosen, colour, label in ((~flagged, CORRECTED, "points"), (flagged, NOISY, "flagged")):
            brought = audit.influence[chosen, at]
            look = {"marker": "|", "s": 60, "color": colour, "linewidths": 0.9, "rasterized": brought.size > 2000}
            ax.scatter(brought, np.full(brought.size, place), label=label if place == 0 else None, **look)
    ax.axvline(0, color=CLEAN, linewidth=0.8)
    ax.set_yticks(np.arange(shown.size), [as_written(audit.owners[at], NAME_LENGTH) for at in shown])
    ax.set_ylim(shown.size - 0.4, -0.6)
    ax.grid(False, axis="y")
    title = f"{audit.parameters['n_val']:,} validation points"
    xlabel = f"What one point brings an owner ({as_written(audit.currency)})"
    return tidy(ax, xlabel=xlabel, title=title, legend=bool(audit.flagged.any()))


@style()
def plot_owners(found: OwnerValues | FederatedValues, *, top: int = 20, ax: Any = None) -> Any:
    """Draw the value of each owner with its 95% interval, the highest first.

    Parameters
    ----------
    found : OwnerValues or FederatedValues
    top : int, default=20
        Number of owners to draw, those with the highest values.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    shown = _first(-found.values, top)
    reach = 0.0 if found.standard_error is None else 1.96 * found.standard_error
    low, high = getattr(found, "low", found.values - reach), getattr(found, "high", found.values + reach)
    title = f"{shown.size:,} of {len(found.owners):,} owners"
    parts = (part[shown] for part in (found.values, low, high))
    return _intervals(ax, [found.owners[at] for at in shown], *parts, xlabel="Value", title=title)


@style()
def plot_payout_audit(audit: PayoutAudit, *, top: int = 20, ax: Any = None) -> Any:
    """Draw each owner's payout on the clean points, and its range under all perturbations.

    Parameters
    ----------
    audit : PayoutAudit
    top : int, default=20
        Number of owners to draw, those paid most.
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    shown, unit = _first(-audit.clean, top), 10**audit.digits
    amounts = [cents[shown] / unit for cents in (audit.clean, *audit.bounds())]
    title = f"Range under {as_written(audit.condition())}"
    return _intervals(ax, [audit.owners[at] for at in shown], *amounts, xlabel="Payout", title=title)


@style()
def plot_cleaning(found: CleaningEffect, *, ax: Any = None) -> Any:
    """Draw the effect of cleaning on each model and measure, with 95% intervals: in all, and against random removal.

    Parameters
    ----------
    found : CleaningEffect
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    table = found.effect
    rows = [at for at, what in enumerate(table["what"]) if what.startswith("after - ")]
    names = [f"{table['model'][at]}, {table['measure'][at]}: {table['what'][at]}" for at in rows]
    ends = [np.asarray(table[name], dtype=np.float64)[rows] for name in ("value", "low", "high")]
    ax = _intervals(ax, names, *ends, xlabel="Change", title=f"What cleaning changes, on {found.held_out}")
    ax.axvline(0, color=CLEAN, linewidth=0.8)
    return ax


def _first(order: Any, top: int) -> Any:
    """Positions of the first ``top`` in an order."""
    if not top >= 1:
        raise InputError(f"The 'top' parameter must be a number of owners, at least 1. Got {quoted(top)} instead.")
    return np.argsort(order, kind="stable")[:top]


def _intervals(ax: Any, names: Sequence[Any], values: Any, low: Any, high: Any, *, xlabel: str, title: str) -> Any:
    """Draw one dot with its interval for each name, the first on top."""
    ax = panels(ax, 1, 1, size=(6.4, 1.5 + 0.32 * len(names)))[0, 0]
    places = np.arange(len(names))
    ax.hlines(places, low, high, color=CORRECTED, linewidth=1.6)
    ax.plot(values, places, "D", color=CORRECTED, markersize=5)
    ax.set_yticks(places, [as_written(name, LONG_NAME) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.6)
    tidy(ax, xlabel=xlabel, title=title)
    ax.grid(False, axis="y")
    return ax


@style()
def plot_stress(found: StressTest, *, ax: Any = None) -> Any:
    """Draw the gain of each trick: a dot per attacker, the mean over them and its 95% interval.

    Parameters
    ----------
    found : StressTest
    ax : Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    Axes
    """
    entries = found.summary()["attacks"]
    ax = panels(ax, 1, 1, size=(6.4, 1.5 + 0.32 * len(entries)))[0, 0]
    names, unit = [], found.percent if found.average > 0 else lambda amount: amount
    for place, one in enumerate(entries):
        names.append(one["attack"] if one["attackers"] else f"{one['attack']} (does not apply)")
        if not one["attackers"]:
            continue
        gains = unit(found.gains_of(one["attack"]))
        ax.plot(gains, np.full(gains.size, place), "o", color="#BBBBBB", markersize=4, zorder=2)
        mean, low, high = (unit(one[name]) for name in ("gain", "low", "high"))
        colour = NOISY if mean > 0 else CORRECTED
        if np.isfinite(low):
            ax.hlines(place, low, high, color=colour, linewidth=1.6, zorder=3)
        ax.plot([mean], [place], "D", color=colour, markersize=6, zorder=4)
    ax.axvline(0, color=CLEAN, linewidth=0.9)
    ax.set_yticks(np.arange(len(names)), names)
    ax.set_ylim(len(names) - 0.4, -0.6)
    measure = "% of an average seller's pay" if found.average > 0 else as_written(found.currency)
    tidy(ax, xlabel=f"Gain ({measure})", title=f"What tricks gain: {len(found.attackers)} of {found.n_sellers} sellers")
    ax.grid(False, axis="y")
    return ax


def _payout_title(allocation: Allocation) -> str:
    n = len(allocation.owners)
    paid, collected = np.maximum(allocation.cents, 0).sum(), allocation.collected_cents
    said = f"{allocation.show(paid)} to {n:,} owner{'s' if n != 1 else ''}"
    rest = allocation.unallocated_cents - collected
    for name, cents in (("kept back", allocation.reserve_cents), ("collected", collected), ("unallocated", rest)):
        said += f", {allocation.show(cents, label=False)} {name}" if cents else ""
    return as_written(said)


@style()
def plot_profile(comparison: ProfileComparison, *, ax: Any = None) -> Any:
    """Draw the share of points per entropy level, for training (leave-one-out) and validation.

    Parameters
    ----------
    comparison : ProfileComparison
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = panels(ax, 1, 1)[0, 0]
    levels = comparison.training.levels
    places = np.arange(levels.size)
    for offset, name, profile, color in (
        (-0.2, "training, leave-one-out", comparison.training, CLEAN),
        (0.2, "validation", comparison.validation, NOISY),
    ):
        label = f"{name} ({profile.boundary_fraction:.0%} boundary)"
        ax.bar(places + offset, profile.shares, width=0.38, color=color, label=label)
    ax.set_xticks(places, [f"{level:.2f}" for level in levels])
    highest = max(comparison.training.shares.max(), comparison.validation.shares.max())
    ax.set_ylim(0, 1.3 * highest)  # room for the legend
    title = f"Total variation {comparison.distance:.3f} (chance allows {comparison.expected:.3f})"
    return tidy(ax, xlabel="entropy of the neighbours' labels", ylabel="share of points", title=title, legend=True)


@style()
def plot_design(design: DesignResult, *, ax: Any = None) -> Any:
    """Draw each set's shift under noise against its distance from the pool's values.

    Parameters
    ----------
    design : DesignResult
    ax : Axes, optional

    Returns
    -------
    Axes
    """
    ax = panels(ax, 1, 1)[0, 0]
    for name, sets, colour, size, marker in (
        ("random", design.random, NOISY, 28, "o"),
        ("stratified", design.stratified, CLEAN, 28, "s"),
        ("selected", design.chosen, CORRECTED, 140, "*"),
    ):
        ax.scatter(sets["distance"], sets["shift"], color=colour, s=size, marker=marker, label=name)
    for name, limit in (("distance", ax.set_xlim), ("shift", ax.set_ylim)):
        limit(0, 1.06 * max(design.chosen[name], *design.random[name], *design.stratified[name]) or 1)
    title = f"{design.parameters['m']} of {design.parameters['n_pool']} points: {design.gain:+.0%} shift saved"
    tidy(ax, xlabel="distance to the pool's values (stds)", ylabel="shift under held-out noise (stds)", title=title)
    ax.legend(loc="lower right")
    return ax
