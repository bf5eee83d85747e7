"""Shift curves: each statistic of an audit against the level, with its band."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shapshift.audit import ShiftAudit
from shapshift.report import _words
from shapshift.report._format import NOTHING, Unit, cell, count, fixed, number, percent, rounded
from shapshift.report._parts import Chart, DataTable, Section

# A log axis once the levels span more than this factor: on a straight one the small levels fall together.
LOG_SPAN = 10
_PARTS = (("", "all", "noisy"), ("_boundary", "boundary", "boundary"), ("_nonboundary", "others", "nonboundary"))
# What a mean can be; an interval from few runs may reach beyond, where it is cut.
_POSSIBLE = {"percent": (0.0, 1.0), "fixed": (-1.0, 1.0), "count": (0.0, np.inf), "size": (0.0, np.inf)}
_SHOW = {"percent": percent, "count": count, "number": number, "size": number, "fixed": fixed}


def shift_section(audit: ShiftAudit, unit: Unit) -> Section:
    """Distribution and agreement against the level."""
    charts = [
        _curves(audit, "spearman", "Rank agreement with clean values", [("spearman", "Spearman", "noisy")], "fixed"),
        _flips(audit),
        _curves(
            audit,
            "top-overlap",
            "Top row stays" if audit.parameters["top"] == 1 else f"Top {count(audit.parameters['top'])} rows that stay",
            [("top_overlap", "top rows", "noisy")],
            "percent",
        ),
        _curves(audit, "std", unit.axis("Spread of the values, std"), [("std", "std", "noisy")], "number", unit),
        _curves(
            audit, "positive", "Rows with a positive value", [("positive_count", "positive rows", "noisy")], "count"
        ),
        _curves(audit, "mean", unit.axis("Mean of the values"), [("mean", "mean", "noisy")], "number", unit),
    ]
    interval = "band" if audit.ordered else "line through it"
    notes = [
        f"Each point is the mean of {audit.repeats} runs with fresh seeds; the {interval} is its 95% confidence "
        "interval. The dashed line is the clean validation set."
    ]
    charts = [chart for chart in charts if chart.data["series"]]
    return Section("shift", "What changes when the validation set does", "Shift", _words.shift(audit), charts, notes)


def neighbour_section(audit: ShiftAudit) -> Section | None:
    """How far the nearest neighbours of the validation points are reshuffled; None where that is not known."""
    if np.isnan(audit.statistic("neighbor_jaccard")[0]).all():
        return None
    charts = [
        _curves(audit, name.replace("_", "-"), title, [(name + end, label, role) for end, label, role in _PARTS], show)
        for name, title, show in (
            ("neighbor_jaccard", "Overlap of the nearest rows", "percent"),
            ("changed_predictions", "Points whose prediction changes", "percent"),
            ("neighbor_displacement", "Ranks a nearest row moves (median)", "size"),
        )
    ]
    charts = [chart for chart in charts if chart.data["series"]]
    return Section("neighbours", "Why: neighbours are reshuffled", "Neighbours", _words.neighbours(audit), charts)


def spread_curves(audit: ShiftAudit) -> list[Chart]:
    """Draw what the perturbation does to the spread of the scores on boundary points and on the others."""
    curves = [
        _Curve(label, role, *audit.statistic(name))
        for name, label, role in (
            ("alpha_boundary", "boundary", "boundary"),
            ("alpha_nonboundary", "others", "nonboundary"),
        )
    ]
    chart = _chart(
        audit,
        "alpha",
        "Clean over perturbed spread (\N{GREEK SMALL LETTER ALPHA})",
        curves,
        "size",
        ("no change", 1.0),
        small=False,
        caption="Above the dashed line the perturbation flattens the scores on these points, below it spreads them.",
    )
    return [chart] if chart.data["series"] else []


@dataclass(frozen=True)
class _Curve:
    """One line of a chart: how it is called and coloured, and its mean and interval at each level."""

    label: str
    role: str
    mean: Any
    low: Any
    high: Any


def _curves(
    audit: ShiftAudit, chart_id: str, title: str, names: list[tuple[str, str, str]], show: str, unit: Unit | None = None
) -> Chart:
    scale = unit.scale if unit is not None else np.asarray
    curves = [_Curve(label, role, *(scale(part) for part in audit.statistic(name))) for name, label, role in names]
    clean = [float(scale(audit.clean[name])) for name, _, _ in names if name in audit.clean]
    return _chart(audit, chart_id, title, curves, show, ("clean", clean[0]) if clean else None)


def _flips(audit: ShiftAudit) -> Chart:
    curves = [
        _Curve(label, role, *(part / audit.n_train for part in audit.statistic(name)))
        for name, label, role in (
            ("flips_to_negative", "to negative", "noisy"),
            ("flips_to_positive", "to positive", "corrected"),
        )
    ]
    return _chart(audit, "flips", "Rows that change sign", curves, "percent", None)


def _chart(
    audit: ShiftAudit,
    chart_id: str,
    title: str,
    curves: list[_Curve],
    show: str,
    reference: tuple[str, float] | None,
    *,
    small: bool = True,
    caption: str = "",
) -> Chart:
    along, write = np.argsort(audit.positions, kind="stable"), _SHOW[show]
    least, most = _POSSIBLE.get(show, (-np.inf, np.inf))
    curves = [replace(curve, low=curve.low.clip(least, most), high=curve.high.clip(least, most)) for curve in curves]
    at = audit.positions[along]
    levels = [f"{x:g}" for x in at] if audit.ordered else [cell(audit.levels[i]) for i in along]
    body = [
        [level, *(_with_interval(write, curve.mean[i], curve.low[i], curve.high[i]) for curve in curves)]
        for level, i in zip(levels, along, strict=True)
    ]
    if reference is not None:
        body.insert(0, [reference[0], *([write(reference[1])] * len(curves))])
    return Chart(
        id=chart_id,
        title=title,
        kind="curves",
        data={
            "series": [
                {
                    "name": curve.label,
                    "role": curve.role,
                    **{part: rounded(getattr(curve, part)[along], 6) for part in ("mean", "low", "high")},
                }
                for curve in curves
                if np.isfinite(curve.mean).any()
            ],
            "levels": levels,
            "x": rounded(at, 6) if audit.ordered else None,
            "log": bool(audit.ordered and at.min() > 0 and at.max() >= LOG_SPAN * at.min()),
            "xName": level_name(audit),
            "show": show,
            "reference": None if reference is None else rounded([reference[1]], 6)[0],
            "referenceName": None if reference is None else reference[0],
        },
        table=DataTable([level_name(audit), *(curve.label for curve in curves)], body),
        caption=caption,
        summary=_words.curve(levels, audit.axis, [(curve.label, curve.mean[along]) for curve in curves], write),
        small=small and audit.ordered,
    )


def level_name(audit: ShiftAudit) -> str:
    """Name of the axis of levels."""
    if audit.axis != "noise":
        return audit.axis.capitalize()
    relative = audit.perturbations[0].get("relative")
    return "Noise (in stds of each feature)" if relative else "Noise (standard deviation)"


def _with_interval(show: Any, mean: float, low: float, high: float) -> str:
    if not np.isfinite(mean):
        return NOTHING
    return f"{show(mean)} ({show(low)} to {show(high)})" if np.isfinite(low) and np.isfinite(high) else show(mean)
