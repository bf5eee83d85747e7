"""Figures of the mechanism: one validation point, two of them, and the neighbours of a point."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.plots._figure import BOUNDARY, CLEAN, CORRECTED, NOISY, NONBOUNDARY, as_written, panels, style, tidy

if TYPE_CHECKING:
    from shapshift.mechanism import CaseOne, CaseTwo, FeatureMap, NoiseDemo

LOST, GAINED, KEPT = NOISY, CORRECTED, "#B8B8B8"
CLASS_COLOURS = ("#56B4E9", "#E69F00", "#009E73", "#CC79A7", "#F0E442", "#0072B2", "#999999")
CLASS_MARKERS = ("o", "^", "s", "D", "v", "P", "X")
NAME_LENGTH = 28
ROUNDING = 1e-12  # values below this share of the largest are 0
KINDS = {"boundary": "Boundary", "nonboundary": "Non-boundary", "mixed": "Mixed"}
KIND_COLOURS = {"boundary": BOUNDARY, "nonboundary": NONBOUNDARY, "mixed": CLEAN}
SCENARIOS = {"BB": "two boundary points", "NN": "two non-boundary points", "BN": "one boundary, one not"}


@style()
def plot_case_one(*cases: CaseOne, ax: Any = None) -> Any:
    """Draw changes of values on one validation point, for one or more kinds of point.

    The first panels show the example of each case: the distribution of the values before and after noise. The last
    two show the standard deviation and the number of positive values against the noise level, with 95% bands.

    Parameters
    ----------
    *cases : CaseOne
        The paper's figure uses a boundary and a non-boundary one.
    ax : array of Axes, optional
        Where to draw, two more than there are cases; a new figure by default.

    Returns
    -------
    ndarray of Axes
        One per case, then standard deviation and positive count.
    """
    n = len(cases)
    axes = panels(ax, *((2, 2) if n == 2 else (1, n + 2))).ravel()
    examples = [values for case in cases for values in (case.example.before, case.example.after)]
    threshold = _threshold(*examples)
    for ax, case in zip(axes, cases, strict=False):
        _draw_distributions(ax, case, _signed_log_edges(threshold, *examples))
        _signed_log_axis(ax, "x", threshold, *examples)
    for ax, statistic, label, title in (
        (axes[n], "std", "standard deviation of the values", "Spread against noise"),
        (axes[n + 1], "positive_count", "rows of positive value", "Positive count against noise"),
    ):
        for case, line in zip(cases, ("-", "--", ":", "-.") * n, strict=False):
            name, colour = KINDS[case.kind], KIND_COLOURS[case.kind]
            _draw_band(ax, case.noise, case.interval(statistic), colour, name, line)
        tidy(ax, xlabel="noise level", ylabel=label, title=title + _averaged(cases, "point"), legend=True)
        ax.set_ylim(bottom=0)
    axes[n].yaxis.set_major_formatter("{x:.3g}")
    axes[n + 1].set_ylim(top=cases[0].example.before.size)
    return axes


@style()
def plot_case_two(*cases: CaseTwo, ax: Any = None) -> Any:
    """Draw values before against after noise on two validation points, and a map of the rows that change sign.

    Parameters
    ----------
    *cases : CaseTwo
        The paper's figure uses one per scenario.
    ax : array of Axes, optional
        Where to draw, in the shape of the result; the legend is then in the last panel of the first column, not below
        the figure. A new figure by default.

    Returns
    -------
    ndarray of Axes of shape (2, n_cases), or (1, n_cases) when no case has a map
    """
    mapped = any(case.map is not None for case in cases)
    new = ax is None
    axes = panels(ax, 2 if mapped else 1, len(cases), size=(4.4, 3.9 if mapped else 4.2))
    for column, case in zip(axes.T, cases, strict=True):
        _draw_before_after(column[0], case)
        if case.map is not None:
            _draw_changed_rows(column[1], case, case.map)
        elif mapped:
            column[1].set_axis_off()
    _draw_key(axes[-1, 0], mapped, columns={1: 2, 2: 3}.get(len(cases), 5), below=new)
    return axes


@style()
def plot_case_two_levels(*cases: CaseTwo, ax: Any = None) -> Any:
    """Draw the numbers of rows whose value changes sign against the noise level, one panel per case.

    Parameters
    ----------
    *cases : CaseTwo
    ax : array of Axes, optional
        Where to draw, one per case; a new figure by default.

    Returns
    -------
    ndarray of Axes
    """
    axes = panels(ax, 1, len(cases), size=(4.2, 3.5), sharey=True)[0]
    for ax, case in zip(axes, cases, strict=True):
        lost, gained = (case.interval(name) for name in ("positive_to_negative", "negative_to_positive"))
        _draw_band(ax, case.noise, lost, LOST, "positive to negative", "-")
        _draw_band(ax, case.noise, gained, GAINED, "negative to positive", "--")
        tidy(ax, xlabel="noise level", title=f"{_scenario(case)}{_averaged([case], 'pair')}")
    tidy(axes[0], ylabel="training rows that change sign")
    axes[0].legend(loc="upper left")
    axes[0].set_ylim(bottom=0)
    return axes


@style()
def plot_noise_demo(demo: NoiseDemo, *, ax: Any = None) -> Any:
    """Draw a validation point, its noisy version and the nearest training rows of both.

    Parameters
    ----------
    demo : NoiseDemo
    ax : array of two Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    ndarray of two Axes
        The whole distribution, and a zoom on the point.
    """
    axes = panels(ax, 1, 2, size=(5.2, 4.8))[0]
    whole, zoom = axes
    clean, noisy = demo.map.before[0], demo.map.after[0]
    seen = np.vstack([demo.map.rows[np.concatenate([demo.before, demo.after])], clean, noisy])
    middle = (seen.min(axis=0) + seen.max(axis=0)) / 2
    reach = max(float(np.abs(seen - middle).max()) * 1.35, 1e-9)
    for ax, row_size, star_size, title in (
        (whole, 9.0, 78.0, "Training rows and one validation point"),
        (zoom, 55.0, 286.0, f"Zoom: {demo.shared.size} of {demo.before.size} nearest rows stay the same"),
    ):
        _draw_rows(ax, demo.map, row_size, demo.classes.tolist())
        for point, colour in ((clean, CLEAN), (noisy, NOISY)):
            ax.scatter(*point, marker="*", s=star_size, color=colour, edgecolor="white", linewidth=0.8, zorder=6)
        tidy(ax, xlabel=as_written(demo.map.axes[0]), ylabel=as_written(demo.map.axes[1]), title=title)
    low = middle - reach
    box = low + 2 * reach * np.array([(0, 0), (1, 0), (1, 1), (0, 1), (0, 0)])
    whole.plot(*box.T, color="#333333", linewidth=1.1, zorder=5)
    whole.set_aspect("equal", adjustable="datalim")
    zoom.set(xlim=(low[0], low[0] + 2 * reach), ylim=(low[1], low[1] + 2 * reach))
    zoom.set_aspect("equal", adjustable="box")
    zoom.locator_params(nbins=5)
    # Rings of noisy neighbours are larger, so that common neighbours show two rings.
    for nearest, point, colour, line, ring, when in (
        (demo.before, clean, CLEAN, "-", 130.0, "before"),
        (demo.after, noisy, NOISY, "--", 230.0, "after"),
    ):
        rows = demo.map.rows[nearest]
        for row in rows:
            zoom.plot(*np.column_stack([point, row]), color=colour, linewidth=1.1, linestyle=line, alpha=0.8, zorder=4)
        zoom.scatter(*rows.T, s=ring, facecolor="none", edgecolor=colour, linewidth=1.6, linestyle=line, zorder=5)
        zoom.plot([], [], color=colour, linewidth=1.5, linestyle=line, label=f"nearest rows {when}")
    zoom.annotate("", noisy, clean, arrowprops={"arrowstyle": "->", "color": "#333333", "linewidth": 1.4}, zorder=7)
    for point, colour, name in ((clean, CLEAN, "validation point"), (noisy, NOISY, f"with noise {demo.noise:g}")):
        whole.scatter(*point, marker="*", s=0, color=colour, label=name)
    below: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, -0.14), "ncols": 2}
    for handle in whole.legend(**below).legend_handles:
        handle.set_sizes([60])
    lines, names = zoom.get_legend_handles_labels()
    zoom.legend(lines[-2:], names[-2:], **below)  # the classes are in the other panel's legend
    return axes


def _draw_distributions(ax: Any, case: CaseOne, edges: Any) -> None:
    example = case.example
    ax.hist(example.before, edges, histtype="stepfilled", color=CLEAN, alpha=0.25)
    ax.hist(example.before, edges, histtype="step", color=CLEAN, linewidth=1.4, label="before noise")
    ax.hist(example.after, edges, histtype="step", color=NOISY, linewidth=1.8, label=f"after noise {example.noise:g}")
    ax.set_yscale("log")
    ax.set_ylim(bottom=0.8, top=ax.get_ylim()[1] * 5)  # room for the legend
    ax.axvline(0, color="#666666", linewidth=0.8)
    title = f"{KINDS[case.kind]} point (entropy {case.entropy[0]:.2f})"
    tidy(ax, xlabel="value of a training row", ylabel="training rows", title=title, legend=True)


def _draw_before_after(ax: Any, case: CaseTwo) -> None:
    before, after = case.example.before, case.example.after
    _draw_signs(ax, np.column_stack([before, after]), case)
    for which, values in (("x", before), ("y", after)):
        _signed_log_axis(ax, which, _threshold(before, after), values)
    ax.axhline(0, color="#666666", linewidth=0.8)
    ax.axvline(0, color="#666666", linewidth=0.8)
    # A value of 0 is not positive: rows on an axis count as negative.
    now = np.count_nonzero(after > ROUNDING * np.abs(after).max())
    lost, gained = np.count_nonzero(case.example.lost), np.count_nonzero(case.example.gained)
    for x, y, count, colour in (
        (0.03, 0.97, gained, GAINED),
        (0.97, 0.97, now - gained, "#444444"),
        (0.03, 0.03, before.size - now - lost, "#444444"),
        (0.97, 0.03, lost, LOST),
    ):
        look = {"fontsize": 13, "fontweight": "bold", "transform": ax.transAxes, "color": colour}
        look |= {"ha": "left" if x < 0.5 else "right", "va": "bottom" if y < 0.5 else "top"}
        box = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5}
        ax.text(x, y, f"{count}", bbox=box, **look)
    tidy(ax, xlabel="value before noise", ylabel=f"value after noise {case.example.noise:g}", title=_scenario(case))


def _draw_key(ax: Any, mapped: bool, columns: int, *, below: bool) -> None:
    """Add one legend of colours and markers, below all panels or in one."""
    handles = [
        ax.scatter([], [], s=30, color=colour, label=name)
        for colour, name in ((LOST, "positive to negative"), (GAINED, "negative to positive"), (KEPT, "same sign"))
    ]
    if mapped:
        handles += [
            ax.scatter([], [], s=90, marker="*", color=colour, edgecolor="black", label=f"validation point {when}")
            for colour, when in (("black", "before"), ("white", "after"))
        ]
    if below:
        ax.figure.legend(handles=handles, loc="outside lower center", ncols=columns, fontsize=10)
    else:
        ax.legend(handles=handles, loc="best", fontsize=8)


def _draw_changed_rows(ax: Any, case: CaseTwo, plane: FeatureMap) -> None:
    _draw_signs(ax, plane.rows, case)
    for clean, noisy, marker in zip(plane.before, plane.after, ("*", "P"), strict=False):
        ax.annotate("", noisy, clean, arrowprops={"arrowstyle": "->", "color": "black", "linewidth": 1.3}, zorder=6)
        ax.scatter(*clean, marker=marker, s=210, color="black", edgecolor="white", linewidth=1.0, zorder=7)
        ax.scatter(*noisy, marker=marker, s=150, color="white", edgecolor="black", linewidth=1.2, zorder=7)
    labels = [as_written(label, NAME_LENGTH) for label in case.labels.reshape(-1, 2)[0].tolist()]
    title = f"Classes of the points: {labels[0]} (star), {labels[1]} (cross)"
    tidy(ax, xlabel=as_written(plane.axes[0]), ylabel=as_written(plane.axes[1]), title=title)


def _draw_signs(ax: Any, places: Any, case: CaseTwo) -> None:
    """Draw a map of the training rows, with rows that change sign in colour."""
    lost, gained = case.example.lost, case.example.gained
    for keep, colour, size in ((~lost & ~gained, KEPT, 7), (lost, LOST, 9), (gained, GAINED, 9)):
        ax.scatter(*places[keep].T, s=size, color=colour, linewidth=0, alpha=0.8, rasterized=True)


def _draw_rows(ax: Any, plane: FeatureMap, size: float, names: list[Any]) -> None:
    for code, name in enumerate(names):
        turn = code % len(CLASS_COLOURS)
        look = {"color": CLASS_COLOURS[turn], "marker": CLASS_MARKERS[turn], "alpha": 0.75, "linewidth": 0}
        label = f"class {as_written(name, NAME_LENGTH)}"
        ax.scatter(*plane.rows[plane.codes == code].T, s=size, label=label, rasterized=True, **look)


def _draw_band(ax: Any, noise: Any, interval: Any, colour: str, label: str, line: str) -> None:
    mean, low, high = interval
    ax.plot(noise, mean, line, color=colour, marker="o", markersize=4, label=label)
    ax.fill_between(noise, low, high, color=colour, alpha=0.2, linewidth=0)


def _signed_log_axis(ax: Any, which: str, threshold: float, *values: Any) -> None:
    """Scale an axis for values of either sign over orders of magnitude: 0 in the middle, and readable ticks."""
    most = max(*(float(np.abs(part).max()) for part in values), threshold)
    getattr(ax, f"set_{which}scale")("symlog", linthresh=threshold, linscale=0.4)
    getattr(ax, f"set_{which}lim")(-2 * most, 2 * most)
    highest, lowest = int(np.floor(np.log10(most))), int(np.ceil(np.log10(threshold)))
    step = max(1, -(-(highest - lowest + 1) // 3))
    decades = 10.0 ** np.arange(highest, lowest - 1, -step)
    axis = getattr(ax, f"{which}axis")
    axis.set_ticks(np.concatenate([-decades, [0.0], decades[::-1]]))
    axis.set_ticks([], minor=True)


def _threshold(*values: Any) -> float:
    """Threshold below which a signed logarithmic axis is linear: few values are smaller."""
    size = np.abs(np.concatenate(values))
    return float(np.quantile(size[size > ROUNDING * size.max()], 0.02)) if (size > 0).any() else 1.0


def _signed_log_edges(threshold: float, *values: Any) -> Any:
    """Bins of equal width on a signed logarithmic axis."""
    most = max(*(float(np.abs(part).max()) for part in values), 10 * threshold)
    per_decade = 10
    beyond = np.geomspace(threshold, 1.01 * most, 1 + round(per_decade * np.log10(1.01 * most / threshold)))
    half = np.concatenate([np.linspace(0, threshold, 7)[1:-1], beyond])
    return np.concatenate([-half[::-1], [0.0], half])


def _scenario(case: CaseTwo) -> str:
    return f"{case.scenario}: {SCENARIOS[case.scenario]}" if case.scenario in SCENARIOS else "Mixed pairs"


def _averaged(cases: Any, unit: str) -> str:
    counts = {len(case.points) for case in cases}
    return f" (mean of {counts.pop()} {unit}s)" if len(counts) == 1 and counts != {1} else ""
