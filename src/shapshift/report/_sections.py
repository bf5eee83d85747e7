"""The sections of a page: charts of values, payouts, shift and rows, each with its words and its numbers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from shapshift._facts import level_name
from shapshift.agreement import agreement, spearman
from shapshift.audit import ShiftAudit
from shapshift.price import Allocation
from shapshift.report import _words
from shapshift.report._format import (
    NOTHING,
    Unit,
    capital,
    cell,
    count,
    distinct,
    fixed,
    money,
    number,
    percent,
    rounded,
)
from shapshift.report._table import Features
from shapshift.report._words import Draws, Results, basis, condition
from shapshift.trust import (
    WANTED,
    another_sample,
    class_facts,
    condemned_classes,
    reliability_at,
    sample_sizes,
    sampled_units,
    sure_signs,
)
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Points drawn in one scatter chart; more would overlap anyway. The words are computed from all rows.
DRAWN = 3000
# Validation points drawn on the map.
POINTS = 1500
# Rows with which a row is compared on the map.
NEAREST = 5
# Values are called heavy-tailed if their tails reach this many times farther than their middle half.
HEAVY = 12
BINS = 60
# Ranks at which values are drawn with their intervals, and numbers of points for which agreement is drawn.
RANKS, SIZES = 200, 25
# Number of highest-paid owners drawn and listed; a sentence summarises the others.
DRAWN_OWNERS = 25
LISTED_OWNERS = 1000
# A log axis is used if the levels span more than this factor: on a linear axis, the small levels would overlap.
LOG_SPAN = 10
# Range of each mean; intervals from few runs are cut to it.
_POSSIBLE = {"percent": (0.0, 1.0), "fixed": (-1.0, 1.0), "count": (0.0, np.inf), "size": (0.0, np.inf)}
_SHOW = {"percent": percent, "count": count, "number": number, "size": number, "fixed": fixed}


@dataclass(frozen=True)
class DataTable:
    """The numbers behind a chart, as a text alternative.

    Attributes
    ----------
    columns : sequence of str
    rows : sequence of sequence of str
        The first entry of each row is its heading.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes
    ----------
    id : str
        Unique on the page.
    title : str
    kind : {"histogram", "curves", "scatter", "map", "bars"}
        Which function of ``charts.js`` draws it.
    data : mapping
        Data for that function; nothing in it is HTML.
    table : DataTable
        The same data as a table.
    caption : str
        Conclusion; empty if the section states it.
    summary : str
        Text for screen readers in place of the picture; the caption by default.
    small : bool
        Whether it is one of several side by side.
    """

    id: str
    title: str
    kind: str
    data: Mapping[str, Any]
    table: DataTable
    caption: str = ""
    summary: str = ""
    small: bool = False

    @property
    def alternative(self) -> str:
        """Text alternative."""
        return f"{self.title}. {self.summary or self.caption}".strip()


@dataclass(frozen=True)
class Section:
    """A heading (and a short one for the contents), a conclusion, and the charts that support it."""

    id: str
    title: str
    short: str
    conclusion: str
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = field(default=())
    table: DataTable | None = None
    table_name: str = ""


def make_sections(results: Results, features: Features | None, points: Features | None) -> list[Section]:
    """Make the sections that have results, in the order of the page.

    Parameters
    ----------
    results : Results
    features, points : Features or None
        Training rows and validation points, for the map.
    """
    audit, valuation = results.audit, results.valuation
    found: list[Section | None] = [_trust(results), _values(results)]
    if results.allocation is not None:
        found.append(_payouts(results.allocation, results.unit, results.draws))
    if audit is not None:
        found.append(_shift(audit, results.unit))
    found += [_rows_moved(results), _boundary(valuation, results.unit, audit)]
    if audit is not None:
        found.append(_neighbours(audit))
    if features is not None:
        found.append(_map(valuation, features, points, results.unit))
    return [section for section in found if section is not None]


# Trust


def _trust(results: Results) -> Section:
    """Values with their intervals, and how well another sample of points would agree."""
    facts, valuation, unit = results.sampling, results.valuation, results.unit
    charts = [] if valuation.standard_error is None else [_intervals(valuation, unit, facts)]
    charts += [] if facts["reliability"] is None else [_reliability(facts)]
    return Section("trust", "How reliable are the values", "Trust", _words.trust(facts), charts)


def _intervals(valuation: Valuation, unit: Unit, facts: Mapping[str, Any]) -> Chart:
    n, (low, high) = valuation.n_train, valuation.interval()
    places = np.unique(np.linspace(0, n - 1, min(n, RANKS)).round().astype(np.int64))
    rows = np.argsort(-valuation.values, kind="stable")[places]
    curves = {"mean": valuation.values, "low": low, "high": high}
    signs = ("surely_positive", "surely_negative", "open")
    return Chart(
        id="intervals",
        title="Values in order, with 95% intervals",
        kind="curves",
        data={
            "series": [
                {
                    "name": "value",
                    "role": "corrected",
                    **{part: rounded(unit.scale(curve[rows]), 6) for part, curve in curves.items()},
                }
            ],
            "levels": [count(place + 1) for place in places],
            "x": (places + 1).tolist(),
            "log": False,
            "xName": "Rank of the training row",
            "show": "number",
            "reference": 0.0,
            "referenceName": "no effect",
        },
        table=DataTable(
            ["sign", "rows", "share"],
            [[name.replace("_", " "), count(facts[name]), percent(facts[name] / n)] for name in signs],
        ),
        caption=f"{unit.axis('Value of a training row')}. Where the band crosses the dashed line at 0, another sample "
        "of points could change the sign.",
        summary=f"{capital(sure_signs(facts))}.",
    )


def _reliability(facts: Mapping[str, Any]) -> Chart:
    now, needed, what = facts["units"], facts["points_needed"], sampled_units(facts)
    marked = [now] if needed is None or needed <= now else [now, needed]
    sizes = np.union1d(sample_sizes(facts, SIZES), marked)
    curve = reliability_at(facts, sizes)
    nothing = [None] * sizes.size
    lines = {"expected": ("corrected", np.ones(sizes.size, dtype=bool)), f"these {what}": ("noisy", sizes == now)}
    if len(marked) > 1:
        lines[f"{what} needed"] = ("nonboundary", sizes == needed)
    return Chart(
        id="reliability",
        title="Expected agreement with another sample",
        kind="curves",
        data={
            "series": [
                {
                    "name": name,
                    "role": role,
                    "mean": rounded(np.where(there, curve, np.nan), 4),
                    "low": nothing,
                    "high": nothing,
                }
                for name, (role, there) in lines.items()
            ],
            "levels": [count(size) for size in sizes],
            "x": sizes.tolist(),
            "log": True,
            "xName": f"Validation {what}",
            "show": "fixed",
            "reference": WANTED,
            "referenceName": f"{WANTED:g}",
        },
        table=DataTable(
            [what, "correlation"], [[count(size), fixed(float(r))] for size, r in zip(sizes, curve, strict=True)]
        ),
        caption=f"Correlation of the values with those on another sample of as many {what}; the dashed line is "
        f"{WANTED:g}.",
        summary=f"{capital(another_sample(facts))}.",
    )


# Values


def _values(results: Results) -> Section:
    """Clean, noisy and corrected values as distributions."""
    words = _words.distribution(
        results.values, results.unit, "predict" if _words.of_numbers(results.valuation) else "classify"
    )
    names = {name: name for name in results.values}
    chart = _histogram("distribution", "How the values are distributed", results.values, names, results.unit, words)
    if results.evaluation is not None:
        words += " " + _words.correction(results.evaluation)
    facts = class_facts(results.valuation)
    if said := condemned_classes(facts):
        words = f"{capital(said)}. {words}"
    table = _by_class(facts, results.unit) if facts and facts["all"] > 1 else None
    return Section("values", "What the rows are worth", "Values", words, [chart], (), table, "Values by class")


def _by_class(facts: Mapping[str, Any], unit: Unit) -> DataTable:
    body = [
        [
            cell(one["label"]),
            count(one["rows"]),
            percent(one["share_negative"]),
            unit.show(one["mean"]),
            "" if one["reliability"] is None else fixed(one["reliability"]),
        ]
        for one in facts["listed"]
    ]
    left = f" (the worst {len(body)} of {count(facts['all'])})" if len(body) < facts["all"] else ""
    return DataTable([f"class{left}", "rows", "negative", "mean value", "reliability within"], body)


def _boundary(valuation: Valuation, unit: Unit, audit: ShiftAudit | None) -> Section:
    """Values on boundary points and on the others, and the effect of noise on the spread of each."""
    parts = {"boundary": valuation.boundary_values, "nonboundary": valuation.nonboundary_values}
    values = {name: part for name, part in parts.items() if part is not None}
    names = {"boundary": "on boundary points", "nonboundary": "on other points"}
    words = _words.boundary(valuation, unit)
    charts = [_histogram("boundary", "Values on boundary points and on the others", values, names, unit, words)]
    if audit is not None:
        charts += _curves(
            audit,
            "alpha",
            "Clean over perturbed spread (\N{GREEK SMALL LETTER ALPHA})",
            {"alpha_boundary": ("boundary", "boundary"), "alpha_nonboundary": ("others", "nonboundary")},
            "size",
            reference=("no change", 1.0),
            caption="Above the dashed line the perturbation flattens the scores on these points, below it spreads "
            "them.",
        )
    return Section("boundary", "Boundary points and the others", "Boundary", words, charts)


def _histogram(
    chart_id: str, title: str, values: Mapping[str, Floats], names: Mapping[str, str], unit: Unit, words: str
) -> Chart:
    """Count values for a chart; ``names`` are those of the legend."""
    # Imported here, because plots may be imported only when something is drawn.
    from shapshift.plots.results import count_values, histogram_edges

    everything = unit.scale(np.concatenate(list(values.values())))
    edges = histogram_edges(np.clip(everything, *_view(everything)), BINS)
    series = [
        {"name": names[role], "role": role, "counts": count_values(unit.scale(part), edges).tolist()}
        for role, part in values.items()
    ]
    switch = "Use the buttons to show or hide each." if len(values) > 1 else ""
    reading = ("Right of the line at 0 are rows that help.", _beyond(everything, edges[[0, -1]], "counted"), switch)
    return Chart(
        id=chart_id,
        title=title,
        kind="histogram",
        data={"edges": rounded(edges, 6), "series": series, "xName": unit.axis("Value of a training row")},
        table=_summary({names[role]: part for role, part in values.items()}, unit),
        caption=" ".join(filter(None, reading)),
        summary=words,
    )


def _summary(values: Mapping[str, Floats], unit: Unit) -> DataTable:
    names = ("lowest", "5% quantile", "lower quartile", "median", "upper quartile", "95% quantile", "highest")
    body = [
        ["rows", *(count(part.size) for part in values.values())],
        ["positive", *(f"{count((part > 0).sum())} ({percent(float((part > 0).mean()))})" for part in values.values())],
        ["mean", *(unit.show(float(part.mean())) for part in values.values())],
        ["spread (std)", *(unit.show(float(part.std())) for part in values.values())],
    ]
    for name, q in zip(names, (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1), strict=True):
        body.append([name, *(unit.show(float(np.quantile(part, q))) for part in values.values())])
    return DataTable(["", *values], body)


def _view(values: Floats) -> tuple[float, float]:
    """Range of values to show, without the few extreme rows that would compress all others."""
    low, quarter, rest, high = np.quantile(values, [0.002, 0.25, 0.75, 0.998])
    if high - low > HEAVY * (rest - quarter):
        low, high = np.quantile(values, [0.02, 0.98])
    return float(low), float(high)


def _beyond(values: Floats, limits: Any, where: str) -> str:
    """Describe how many rows lie outside a range, and how they are shown."""
    share = float(np.mean((values < limits[0]) | (values > limits[1])))
    return f"{percent(share)} of the rows lie beyond the edges and are {where} there." if share else ""


# Payouts


def _payouts(allocation: Allocation, unit: Unit, draws: Draws | None) -> Section:
    """Payouts per owner with their intervals, and what the correction changes."""
    order = np.argsort(-allocation.cents, kind="stable")
    names = distinct(allocation.owners)
    drawn, digits = order[:DRAWN_OWNERS], allocation.digits
    parts = {"values": allocation.cents, "low": allocation.low, "high": allocation.high}
    parts |= {"corrected": allocation.corrected, "sampleLow": allocation.sampling_low}
    parts["sampleHigh"] = allocation.sampling_high
    data: dict[str, Any] = {
        "names": [names[i] for i in drawn],
        **{key: None if cents is None else rounded(cents[drawn] / 10**digits, 12) for key, cents in parts.items()},
        "digits": digits,
        "xName": f"Payout ({allocation.currency})" if allocation.currency else "Payout",
        "sampleName": f"95%, {allocation.sampled or 'owner values'} are a sample",
        "intervalName": f"range under {condition(allocation)}" if allocation.interval else "range",
    }
    reading = ["Grey lines: 95% intervals, as the validation points are a sample."] * bool(allocation.sampled)
    if allocation.low is not None:
        reading.append(f"Whiskers: payouts under {condition(allocation)}, {basis(allocation, draws)}.")
    if allocation.corrected is not None:
        reading.append("Diamonds mark the payout from the corrected values.")
    words = f"{allocation.sampling_note()} {_words.payouts(names, allocation, draws)}".strip()
    chart = Chart(
        id="payouts",
        title="Payout per owner",
        kind="bars",
        data=data,
        table=_payout_table(allocation, order[:LISTED_OWNERS], names, unit),
        caption=" ".join(reading) or "Each bar is one owner.",
        summary=words,
    )
    notes = []
    if order.size > DRAWN_OWNERS:
        rest = int(allocation.cents[order[DRAWN_OWNERS:]].sum())
        notes.append(
            f"The chart shows the {DRAWN_OWNERS} highest-paid owners; the other "
            f"{count(order.size - DRAWN_OWNERS)} are paid {money(allocation, rest)} together."
        )
    if order.size > LISTED_OWNERS:
        notes.append(f"The table lists the first {count(LISTED_OWNERS)} of {count(order.size)} owners.")
    return Section("payouts", "Who is paid what", "Payouts", words, [chart], notes)


def _payout_table(allocation: Allocation, order: Ints, names: list[str], unit: Unit) -> DataTable:
    amounts = {"payout": allocation.cents, "95% from": allocation.sampling_low, "95% to": allocation.sampling_high}
    amounts |= {"lowest": allocation.low, "highest": allocation.high}
    if allocation.corrected is not None:
        # Correction changes the payout from the noisy values, even if other values are paid.
        before = allocation.cents if allocation.uncorrected is None else allocation.uncorrected
        amounts |= {"noisy": allocation.uncorrected, "after correction": allocation.corrected}
        amounts["change"] = allocation.corrected - before
    known = {name: cents for name, cents in amounts.items() if cents is not None}
    measures = allocation.measures()
    body = [
        [
            names[i],
            count(allocation.row_counts[i]),
            *(unit.show(float(numbers[i])) for numbers in measures.values()),
            *(money(allocation, cents[i], label=False) for cents in known.values()),
        ]
        for i in order
    ]
    return DataTable(["owner", "rows", *(name.replace("_", " ") for name in measures), *known], body)


# Shift


def _shift(audit: ShiftAudit, unit: Unit) -> Section:
    """Distribution and agreement against the level."""
    n_top = audit.parameters["top"]
    top = "Top row stays" if n_top == 1 else f"Top {count(n_top)} rows that stay"
    flips = {"flips_to_negative": ("to negative", "noisy"), "flips_to_positive": ("to positive", "corrected")}

    def one(chart_id: str, title: str, name: str, label: str, show: str, scale: Any = np.asarray) -> list[Chart]:
        return _curves(audit, chart_id, title, {name: (label, "noisy")}, show, scale=scale)

    charts = [
        *one("spearman", "Rank agreement with clean values", "spearman", "Spearman", "fixed"),
        *_curves(audit, "flips", "Rows that change sign", flips, "percent", scale=lambda n: n / audit.n_train),
        *one("top-overlap", top, "top_overlap", "top rows", "percent"),
        *one("std", unit.axis("Spread of the values, std"), "std", "std", "number", unit.scale),
        *one("positive", "Rows with a positive value", "positive_count", "positive rows", "count"),
        *one("mean", unit.axis("Mean of the values"), "mean", "mean", "number", unit.scale),
    ]
    interval = "band" if audit.ordered else "line through it"
    note = (
        f"Each point is the mean of {audit.repeats} runs with fresh seeds; the {interval} is its 95% confidence "
        "interval. The dashed line is the clean validation set."
    )
    return Section("shift", "What changes with the validation set", "Shift", _words.shift(audit), charts, [note])


def _neighbours(audit: ShiftAudit) -> Section | None:
    """How much the nearest neighbours of the validation points are reshuffled; None if that is unknown."""
    if np.isnan(audit.statistic("neighbor_jaccard")[0]).all():
        return None
    parts = {"": ("all", "noisy"), "_boundary": ("boundary", "boundary"), "_nonboundary": ("others", "nonboundary")}
    charts = [
        chart
        for name, title, show in (
            ("neighbor_jaccard", "Overlap of the nearest rows", "percent"),
            ("changed_predictions", "Points whose prediction changes", "percent"),
            ("neighbor_displacement", "Ranks a nearest row moves (median)", "size"),
        )
        for chart in _curves(
            audit, name.replace("_", "-"), title, {name + part: line for part, line in parts.items()}, show
        )
    ]
    return Section("neighbours", "Why: neighbours are reshuffled", "Neighbours", _words.neighbours(audit), charts)


def _curves(
    audit: ShiftAudit,
    chart_id: str,
    title: str,
    lines: Mapping[str, tuple[str, str]],
    show: str,
    *,
    scale: Callable[[Any], Any] = np.asarray,
    reference: tuple[str, float] | None = None,
    caption: str = "",
) -> list[Chart]:
    """Draw statistics of an audit against the level; nothing if none is defined.

    Parameters
    ----------
    audit : ShiftAudit
    chart_id, title, caption : str
        See :class:`Chart`.
    lines : mapping of str to (str, str)
        Name of each statistic, and the role that gives it its colour.
    show : str
        Number format, see ``_SHOW``.
    scale : callable
        Applied to the statistics.
    reference : (str, float), optional
        Name and position of the dashed line; by default the clean value of the first statistic, if it has one.
    """
    along, write = np.argsort(audit.positions, kind="stable"), _SHOW[show]
    at, axis = audit.positions[along], level_name(audit)
    levels = [f"{x:g}" for x in at] if audit.ordered else [cell(audit.levels[i]) for i in along]
    curves = {label: scale(np.stack(audit.statistic(name)))[:, along] for name, (label, _) in lines.items()}
    if not any(np.isfinite(curve[0]).any() for curve in curves.values()):
        return []
    for curve in curves.values():
        curve[1:] = curve[1:].clip(*_POSSIBLE.get(show, (-np.inf, np.inf)))
    first = next(iter(lines))
    if reference is None and first in audit.clean:
        reference = ("clean", float(scale(audit.clean[first])))
    body = [
        [level, *(_with_interval(write, *curve[:, i]) for curve in curves.values())] for i, level in enumerate(levels)
    ]
    if reference is not None:
        body.insert(0, [reference[0], *([write(reference[1])] * len(curves))])
    chart = Chart(
        id=chart_id,
        title=title,
        kind="curves",
        data={
            "series": [
                {
                    "name": label,
                    "role": role,
                    **{part: rounded(curves[label][i], 6) for i, part in enumerate(("mean", "low", "high"))},
                }
                for label, role in lines.values()
                if np.isfinite(curves[label][0]).any()
            ],
            "levels": levels,
            "x": rounded(at, 6) if audit.ordered else None,
            "log": bool(audit.ordered and at.min() > 0 and at.max() >= LOG_SPAN * at.min()),
            "xName": axis,
            "show": show,
            "reference": None if reference is None else rounded([reference[1]], 6)[0],
            "referenceName": None if reference is None else reference[0],
        },
        table=DataTable([axis, *curves], body),
        caption=caption,
        summary=_words.curve(levels, audit.axis, {label: curve[0] for label, curve in curves.items()}, write),
        small=not caption and audit.ordered,
    )
    return [chart]


def _with_interval(show: Callable[[float], str], mean: float, low: float, high: float) -> str:
    if not np.isfinite(mean):
        return NOTHING
    return f"{show(mean)} ({show(low)} to {show(high)})" if np.isfinite([low, high]).all() else show(mean)


# Rows


def _rows_moved(results: Results) -> Section | None:
    """Clean values against noisy and corrected ones, or else against the means of the audit, row by row."""
    clean, unit = results.valuation, results.unit
    titles = {
        "noisy": ("Clean against noisy", "On the noisy validation set", "Noisy value"),
        "corrected": ("Clean against corrected", "After the correction", "Corrected value"),
        "mean": ("Clean against mean over the audit", "On average over the runs of the audit", "Mean value"),
    }
    others = {name: values for name, values in results.values.items() if name != "clean"}
    if not others and results.audit is not None:
        others = {"mean": results.audit.rows["mean"]}
    if not others:
        return None
    everything = np.concatenate([clean.values, *others.values()])
    low, high = min(_view(everything)[0], 0.0), max(_view(everything)[1], 0.0)
    room = 0.06 * (high - low) or 1.0
    limits = low - room, high + room
    reading = "On the dashed line a row keeps its value. Rows in the upper left and lower right change sign."
    charts = []
    for name, values in others.items():
        title, lead, axis = titles[name]
        known = {} if results.evaluation is None else results.evaluation.rows
        found = known.get(name) or agreement(values, clean.values)
        charts.append(
            Chart(
                id=f"scatter-{name}",
                title=title,
                kind="scatter",
                data=_scatter(clean, values, unit, limits, axis),
                table=_signs(clean.values, values),
                caption=f"{reading} {_beyond(everything, limits, 'drawn')}".strip(),
                summary=_words.scatter(found, clean.n_train, lead),
            )
        )
    words = " ".join(chart.summary for chart in charts)
    notes = _only_drawn(clean.n_train, "rows")
    return Section("rows-moved", "Row by row, before and after", "Row by row", words, charts, notes)


def _scatter(clean: Valuation, values: Floats, unit: Unit, limits: tuple[float, float], axis: str) -> dict[str, Any]:
    chosen = _sample(clean.n_train, DRAWN)
    old, new = clean.values[chosen], values[chosen]
    places = unit.scale(np.clip(np.column_stack([old, new]), *limits))
    return {
        "series": [
            {
                "name": name,
                "role": role,
                "points": _points(places[members]),
                "ids": [cell(entry) for entry in clean.ids[chosen[members]]],
            }
            for name, role, members in (
                ("same sign", "clean", (old > 0) == (new > 0)),
                ("stops being positive", "noisy", (old > 0) & ~(new > 0)),
                ("becomes positive", "corrected", ~(old > 0) & (new > 0)),
            )
        ],
        "axes": [unit.axis("Clean value"), unit.axis(axis)],
        "limits": rounded(unit.scale(np.array(limits))),
        "crossed": True,
    }


def _signs(old: Floats, new: Floats) -> DataTable:
    def cells(was: Any) -> list[str]:
        return [f"{count((was & now).sum())} ({percent(float((was & now).mean()))})" for now in (new > 0, ~(new > 0))]

    return DataTable(
        ["", "positive after", "not positive after"],
        [["positive when clean", *cells(old > 0)], ["not positive when clean", *cells(~(old > 0))]],
    )


def _map(valuation: Valuation, train: Features, validation: Features | None, unit: Unit) -> Section | None:
    """Training rows and validation points in two dimensions; None with fewer than two numeric features."""
    chosen = _sample(valuation.n_train, DRAWN)
    rows = train.numeric(chosen)
    if rows is None:
        return None
    points, kept = None, np.empty(0, dtype=np.int64)
    if validation is not None and len(validation.names) == len(train.names):
        kept = _sample(valuation.n_val, POINTS)
        points = validation.numeric(kept)
    where, place, axes, share = _project(rows, points, train)
    values, size = valuation.values[chosen], np.abs(valuation.values)
    # The value with the strongest colour.
    reach = float(np.quantile(size, 0.98)) or float(size.max()) or 1.0
    best, worst = (
        f"{cell(valuation.ids[at])} ({unit.show(float(valuation.values[at]))})"
        for at in np.argsort(valuation.values, kind="stable")[[-1, 0]]
    )
    words = f"The most valuable row is {best}, the least valuable {worst}."
    charts = [
        Chart(
            id="map-value",
            title="Training rows by value",
            kind="map",
            data={
                "points": _points(np.column_stack([where, unit.scale(values)])),
                "ids": [cell(entry) for entry in valuation.ids[chosen]],
                "reach": rounded([float(unit.scale(reach))])[0],
                "valueName": unit.axis("value"),
                "axes": axes,
            },
            table=_corners(where, values, axes, unit),
            caption="Blue rows have positive values, orange rows negative values, grey rows values near 0.",
            summary=words,
        )
    ]
    if place is not None:
        charts.append(_boundary_map(valuation, where, place, kept, axes))
    conclusion = f"{_words.map_of_values(_alike(where, values))} {words} {share}".strip()
    notes = _only_drawn(valuation.n_train, "training rows")
    return Section("map", "Where the rows lie", "Map", conclusion, charts, notes)


def _boundary_map(valuation: Valuation, where: Floats, place: Floats, kept: Ints, axes: list[str]) -> Chart:
    at = valuation.boundary[kept]
    n, m = int(valuation.boundary.sum()), valuation.n_val
    differ = "targets differ" if _words.of_numbers(valuation) else "the classes meet"
    return Chart(
        id="map-boundary",
        title="Validation points by boundary",
        kind="scatter",
        data={
            "series": [
                {"name": "training rows", "role": "muted", "points": _points(where[_sample(len(where), POINTS)])},
                {"name": "other validation points", "role": "nonboundary", "points": _points(place[~at])},
                {"name": "boundary points", "role": "boundary", "points": _points(place[at])},
            ],
            "axes": axes,
        },
        table=DataTable(
            ["", "validation points", "share"],
            [["boundary points", count(n), percent(n / m)], ["other points", count(m - n), percent(1 - n / m)]],
        ),
        caption=f"Boundary points mark where {differ}: rows there decide the hard cases.",
        summary=f"{count(n)} of {count(m)} validation points are boundary points.",
    )


def _project(rows: Any, points: Any, train: Features) -> tuple[Floats, Floats | None, list[str], str]:
    """Coordinates of rows and points, names of the axes, and how much of the spread the axes show."""
    dense = isinstance(rows, np.ndarray)
    if rows.shape[1] == 2 and dense:
        names = [train.names[place] for place in train.numeric_places()]
        rows, points = (None if part is None else np.where(np.isfinite(part), part, 0.0) for part in (rows, points))
        return rows, points, names, ""
    axes = ["1st principal component", "2nd principal component"]
    if rows.shape[0] < 2:
        return np.zeros((rows.shape[0], 2)), None, axes, ""
    pca = PCA(n_components=2, svd_solver="full" if dense else "arpack", random_state=0)
    if dense:
        # Features are scaled to equal spread and missing entries filled in, as for most models; sparse ones stay.
        rows, points = (None if part is None else np.where(np.isfinite(part), part, np.nan) for part in (rows, points))
        fill = SimpleImputer(strategy="median", keep_empty_features=True)
        place = make_pipeline(StandardScaler(), fill, pca)
    else:
        place = make_pipeline(pca)
    with np.errstate(invalid="ignore"):  # equal rows have no variance to explain
        where = place.fit_transform(rows)
    shares = np.nan_to_num(pca.explained_variance_ratio_)
    axes = [f"{name} ({percent(float(part))})" for name, part in zip(axes, shares, strict=True)]
    both = float(shares.sum())
    caution = "" if both >= 0.5 else " Rows that look close on the map may lie far apart."
    said = f"The two axes are the principal components; together they explain {percent(both)} of the variance."
    return where, None if points is None else place.transform(points), axes, said + caution


def _alike(where: Floats, values: Floats) -> float:
    """Rank correlation of a row's value with the mean of the nearest rows on the map."""
    k = min(NEAREST, len(values) - 1)
    if k < 1 or np.ptp(values) == 0:
        return float("nan")
    near = NearestNeighbors(n_neighbors=k).fit(where).kneighbors(return_distance=False)
    return spearman(values[near].mean(axis=1), values)


def _corners(where: Floats, values: Floats, axes: list[str], unit: Unit) -> DataTable:
    """Mean value of the rows in each quarter of the map."""
    high = where > np.median(where, axis=0)
    body = []
    for x in (False, True):
        for y in (False, True):
            part = values[(high == (x, y)).all(axis=1)]
            if part.size:
                ends = ["high" if end else "low" for end in (x, y)]
                body.append([*ends, count(part.size), unit.show(float(part.mean()))])
    return DataTable([*axes, "rows drawn", "mean value"], body)


def _sample(n: int, size: int) -> Ints:
    """Positions of the points that are drawn: all, or a fixed random choice, in order."""
    return np.arange(n) if n <= size else np.sort(np.random.default_rng(0).choice(n, size=size, replace=False))


def _only_drawn(n: int, what: str) -> list[str]:
    """Note that not all points are drawn, if so."""
    return [f"The chart shows {DRAWN:,} of the {n:,} {what}, drawn at random."] if n > DRAWN else []


def _points(places: Floats) -> list[list[float | None]]:
    return [rounded(place) for place in places]
