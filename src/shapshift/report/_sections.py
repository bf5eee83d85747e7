"""The sections of a page: charts of values, payouts, shift and rows, each with its words and its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from shapshift.agreement import agreement, spearman
from shapshift.audit import ShiftAudit
from shapshift.price import Allocation
from shapshift.report import _words
from shapshift.report._format import NOTHING, Unit, cell, count, distinct, fixed, money, number, percent, rounded
from shapshift.report._payout_words import Draws, basis, condition, payouts
from shapshift.report._table import Features
from shapshift.valuation import Valuation

# Points drawn in one scatter chart; more would overlap anyway. The words are computed from all rows.
DRAWN = 3000
# Values are called heavy-tailed if their tails reach this many times further than their middle half.
HEAVY = 12


@dataclass(frozen=True)
class DataTable:
    """The numbers behind a chart, for those who cannot or do not want to see it.

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
        What that function needs; nothing in it is HTML.
    table : DataTable
        The same as a table.
    caption : str
        What to conclude; empty where the section says it.
    summary : str
        What a screen reader says in place of the picture; the caption by default.
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
    """A heading (and a short one for the contents), what to conclude, and the charts that show it."""

    id: str
    title: str
    short: str
    conclusion: str
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = field(default=())


def sample(n: int, size: int = DRAWN) -> npt.NDArray[np.int64]:
    """Positions of the points that are drawn: all, or always the same random ones, in order."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, size=size, replace=False))


def view(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Range of values worth showing: a few extreme rows must not squeeze all others together."""
    low, quarter, rest, high = np.quantile(values, [0.002, 0.25, 0.75, 0.998])
    if high - low > HEAVY * (rest - quarter):
        low, high = np.quantile(values, [0.02, 0.98])
    return float(low), float(high)


def beyond(values: npt.NDArray[np.float64], low: float, high: float, where: str) -> str:
    """Say how many rows a range leaves out, and what becomes of them."""
    share = float(np.mean((values < low) | (values > high)))
    return f"{percent(share)} of the rows lie beyond the edges and are {where} there." if share else ""


def only_drawn(n: int, what: str) -> list[str]:
    """Say so when not all points are drawn."""
    return [f"The chart shows {DRAWN:,} of the {n:,} {what}, drawn at random."] if n > DRAWN else []


Floats = npt.NDArray[np.float64]

BINS = 60


def value_section(values: Mapping[str, Floats], unit: Unit, evaluation: Any, predict: str = "classify") -> Section:
    """Clean, noisy and corrected values as distributions.

    Parameters
    ----------
    values : mapping of str to ndarray
        "clean" and, where they are given, "noisy" and "corrected".
    unit : Unit
    evaluation : CorrectionEvaluation or None
        How the others compare with the clean values.
    predict : str
        What the rows help to do with the validation points.
    """
    data, reading = _histogram(values, unit, {name: name for name in values})
    chart = Chart(
        id="distribution",
        title="How the values are distributed",
        kind="histogram",
        data=data,
        table=_summary(values, unit),
        caption=reading,
        summary=_words.distribution(values, unit, predict),
    )
    conclusion = _words.distribution(values, unit, predict)
    if evaluation is not None and "corrected" in values:
        conclusion += " " + _words.correction(evaluation)
    return Section("values", "What the rows are worth", "Values", conclusion, [chart])


def boundary_section(valuation: Valuation, unit: Unit, curves: list[Chart]) -> Section:
    """Values on boundary points and on the others, and what noise does to the spread of each."""
    parts = {
        name: part
        for name, part in (("boundary", valuation.boundary_values), ("nonboundary", valuation.nonboundary_values))
        if part is not None
    }
    names = {"boundary": "on boundary points", "nonboundary": "on other points"}
    data, reading = _histogram(parts, unit, names)
    chart = Chart(
        id="boundary",
        title="Values on boundary points and on the others",
        kind="histogram",
        data=data,
        table=_summary({names[name]: part for name, part in parts.items()}, unit),
        caption=reading,
        summary=_words.boundary(valuation, unit),
    )
    return Section(
        "boundary", "Boundary points and the others", "Boundary", _words.boundary(valuation, unit), [chart, *curves]
    )


def _histogram(values: Mapping[str, Floats], unit: Unit, names: Mapping[str, str]) -> tuple[dict[str, Any], str]:
    """Count for the chart, and say how to read it."""
    # Inside, as plots may be imported only where something is drawn.
    from shapshift.plots.valuation import count_values, histogram_edges

    everything = unit.scale(np.concatenate(list(values.values())))
    edges = histogram_edges(np.clip(everything, *view(everything)), BINS)
    series = []
    for role, part in values.items():
        _, counts = count_values(unit.scale(part), BINS, edges)
        series.append({"name": names[role], "role": role, "counts": counts.tolist()})
    chart = {"edges": rounded(edges, 6), "series": series, "xName": unit.axis("Value of a training row")}
    return chart, _words.reading_a_histogram(len(values) > 1, beyond(everything, edges[0], edges[-1], "counted"))


def _summary(values: Mapping[str, Floats], unit: Unit) -> DataTable:
    quantiles = (0, 0.05, 0.25, 0.5, 0.75, 0.95, 1)
    shown = {name: np.quantile(part, quantiles) for name, part in values.items()}
    names = ("lowest", "5% quantile", "lower quartile", "median", "upper quartile", "95% quantile", "highest")
    body = [
        ["rows", *(count(part.size) for part in values.values())],
        ["positive", *(f"{count((part > 0).sum())} ({percent(float((part > 0).mean()))})" for part in values.values())],
        ["mean", *(unit.show(float(part.mean())) for part in values.values())],
        ["spread (std)", *(unit.show(float(part.std())) for part in values.values())],
    ]
    body += [[name, *(unit.show(float(q[i])) for q in shown.values())] for i, name in enumerate(names)]
    return DataTable(["", *values], body or [[NOTHING]])


# Owners drawn and listed, those paid most; the rest is summed up in words.
DRAWN_OWNERS = 25
LISTED_OWNERS = 1000


def payout_section(allocation: Allocation, unit: Unit, draws: Draws | None) -> Section:
    """Payouts per owner with their intervals, and what the correction changes.

    Parameters
    ----------
    allocation : Allocation
    unit : Unit
    draws : Draws or None
        The runs that the intervals rest on, where they are known.
    """
    order = np.argsort(-allocation.cents, kind="stable")
    names = distinct(allocation.owners)
    drawn = order[:DRAWN_OWNERS]
    low, high, corrected = allocation.low, allocation.high, allocation.corrected
    digits = allocation.digits
    data: dict[str, Any] = {
        "names": [names[i] for i in drawn],
        "values": _units(allocation.cents[drawn], digits),
        "low": None if low is None else _units(low[drawn], digits),
        "high": None if high is None else _units(high[drawn], digits),
        "corrected": None if corrected is None else _units(corrected[drawn], digits),
        "digits": digits,
        "xName": f"Payout ({allocation.currency})" if allocation.currency else "Payout",
        "intervalName": f"range under {condition(allocation)}" if allocation.interval else "range",
    }
    words = payouts(names, allocation, draws)
    chart = Chart(
        id="payouts",
        title="Payout per owner",
        kind="bars",
        data=data,
        table=_table(allocation, order[:LISTED_OWNERS], names, unit),
        caption=_reading(allocation, draws),
        summary=words,
    )
    notes = []
    if order.size > DRAWN_OWNERS:
        rest = int(allocation.cents[order[DRAWN_OWNERS:]].sum())
        notes.append(
            f"The chart shows the {DRAWN_OWNERS} owners that are paid most; the other "
            f"{count(order.size - DRAWN_OWNERS)} are paid {money(allocation, rest)} together."
        )
    if said := allocation.sampling_note():
        notes.append(said)
    if order.size > LISTED_OWNERS:
        notes.append(f"The table lists the first {count(LISTED_OWNERS)} of {count(order.size)} owners.")
    return Section("payouts", "Who is paid what", "Payouts", words, [chart], notes)


def _reading(allocation: Allocation, draws: Draws | None) -> str:
    said = []
    if allocation.low is not None:
        said.append(f"Whiskers: payouts under {condition(allocation)}, {basis(allocation, draws)}.")
    if allocation.corrected is not None:
        said.append("Diamonds mark the payout from the corrected values.")
    return " ".join(said) or "Each bar is one owner."


def _table(allocation: Allocation, order: Any, names: list[str], unit: Unit) -> DataTable:
    columns = ["owner", "rows", "total value", "payout"]
    columns += ["lowest", "highest"] if allocation.low is not None else []
    # What correction changes is the payout from the noisy values, where those are not the ones that are paid.
    before = allocation.cents if allocation.uncorrected is None else allocation.uncorrected
    if allocation.corrected is not None:
        columns += [] if allocation.uncorrected is None else ["noisy"]
        columns += ["after correction", "change"]
    body = []
    for i in order:
        entry = [names[i], count(allocation.row_counts[i]), unit.show(float(allocation.values[i]))]
        entry.append(money(allocation, allocation.cents[i], label=False))
        if allocation.low is not None and allocation.high is not None:
            entry += [
                money(allocation, allocation.low[i], label=False),
                money(allocation, allocation.high[i], label=False),
            ]
        if allocation.corrected is not None:
            entry += [] if allocation.uncorrected is None else [money(allocation, before[i], label=False)]
            entry += [
                money(allocation, allocation.corrected[i], label=False),
                money(allocation, allocation.corrected[i] - before[i], label=False),
            ]
        body.append(entry)
    return DataTable(columns, body)


def _units(cents: Any, digits: int) -> list[float | None]:
    return rounded(np.asarray(cents) / 10**digits, 12)


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


Ints = npt.NDArray[np.int64]

READING = "On the dashed line a row keeps its value. Rows in the upper left and lower right change sign."
# Validation points drawn on the map.
POINTS = 1500
# Rows with which a row is compared on the map.
NEAREST = 5


def scatter_section(clean: Valuation, others: Mapping[str, Floats], unit: Unit) -> Section:
    """Clean values against each of the others, row by row.

    Parameters
    ----------
    clean : Valuation
    others : mapping of str to ndarray
        Under "noisy", "corrected", or "mean" (over the runs of an audit).
    unit : Unit
    """
    titles = {
        "noisy": ("Clean against noisy", "On the noisy validation set", "Noisy value"),
        "corrected": ("Clean against corrected", "After the correction", "Corrected value"),
        "mean": ("Clean against mean over the audit", "On average over the runs of the audit", "Mean value"),
    }
    everything = np.concatenate([clean.values, *others.values()])
    limits = _limits(everything)
    outside = beyond(everything, *limits, "drawn")
    charts, said = [], []
    for name, values in others.items():
        found = agreement(values, clean.values)
        title, lead, axis = titles[name]
        words = _words.scatter(found, clean.n_train, lead)
        said.append(words)
        charts.append(
            Chart(
                id=f"scatter-{name}",
                title=title,
                kind="scatter",
                data=_scatter(clean, values, unit, limits, axis),
                table=_signs(clean.values, values),
                caption=" ".join(part for part in (READING, outside) if part),
                summary=words,
            )
        )
    return Section(
        "rows-moved",
        "Row by row, before and after",
        "Row by row",
        " ".join(said),
        charts,
        only_drawn(clean.n_train, "rows"),
    )


def map_section(valuation: Valuation, train: Features, validation: Features | None, unit: Unit) -> Section | None:
    """Training rows and validation points in two dimensions; None where there are not two numeric features."""
    chosen = sample(valuation.n_train)
    rows = train.numeric(chosen)
    if rows is None:
        return None
    points, kept = None, np.empty(0, dtype=np.int64)
    if validation is not None and len(validation.names) == len(train.names):
        kept = sample(valuation.n_val, POINTS)
        points = validation.numeric(kept)
    where, place, axes, share = _project(rows, points, train)
    values = valuation.values[chosen]
    reach = _reach(valuation.values)
    charts = [
        Chart(
            id="map-value",
            title="Training rows by value",
            kind="map",
            data={
                "points": _triples(where, unit.scale(values)),
                "ids": [cell(entry) for entry in valuation.ids[chosen]],
                "reach": rounded([float(unit.scale(reach))])[0],
                "valueName": unit.axis("value"),
                "axes": axes,
            },
            table=_corners(where, values, axes, unit),
            caption="Blue rows help, orange rows do harm, grey ones hardly matter.",
            summary=_words_on_map(valuation, unit),
        )
    ]
    if place is not None:
        charts.append(_boundary_map(valuation, where, place, kept, axes))
    conclusion = f"{_words.map_of_values(_alike(where, values))} {_words_on_map(valuation, unit)} {share}"
    return Section(
        "map", "Where the rows lie", "Map", conclusion.strip(), charts, only_drawn(valuation.n_train, "training rows")
    )


def _boundary_map(valuation: Valuation, where: Floats, place: Floats, kept: Ints, axes: list[str]) -> Chart:
    at = valuation.boundary[kept]
    n, m = int(valuation.boundary.sum()), valuation.n_val
    return Chart(
        id="map-boundary",
        title="Validation points by boundary",
        kind="scatter",
        data={
            "series": [
                {"name": "training rows", "role": "muted", "points": _pairs(where[sample(len(where), POINTS)])},
                {"name": "other validation points", "role": "nonboundary", "points": _pairs(place[~at])},
                {"name": "boundary points", "role": "boundary", "points": _pairs(place[at])},
            ],
            "axes": axes,
        },
        table=DataTable(
            ["", "validation points", "share"],
            [["boundary points", count(n), percent(n / m)], ["other points", count(m - n), percent(1 - n / m)]],
        ),
        caption="Boundary points mark where "
        + ("targets differ" if _words.of_numbers(valuation) else "the classes meet")
        + ": rows there decide the hard cases.",
        summary=f"{count(n)} of {count(m)} validation points are boundary points.",
    )


def _scatter(clean: Valuation, values: Floats, unit: Unit, limits: tuple[float, float], axis: str) -> dict[str, Any]:
    chosen = sample(clean.n_train)
    old, new = clean.values[chosen], values[chosen]
    x, y = (unit.scale(np.clip(part, *limits)) for part in (old, new))
    series = []
    for name, role, members in (
        ("same sign", "clean", (old > 0) == (new > 0)),
        ("stops being positive", "noisy", (old > 0) & ~(new > 0)),
        ("becomes positive", "corrected", ~(old > 0) & (new > 0)),
    ):
        at = np.flatnonzero(members)
        ids = [cell(entry) for entry in clean.ids[chosen[at]]]
        series.append({"name": name, "role": role, "points": _pairs(np.stack([x[at], y[at]], axis=1)), "ids": ids})
    return {
        "series": series,
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


def _project(rows: Any, points: Any, train: Features) -> tuple[Floats, Floats | None, list[str], str]:
    """Coordinates of rows and points, names of the axes, and how much of the spread the axes show."""
    if rows.shape[1] == 2 and isinstance(rows, np.ndarray):
        names = [train.names[place] for place in train.numeric_places()]
        return _finite(rows), None if points is None else _finite(points), names, ""
    axes = ["1st principal component", "2nd principal component"]
    if rows.shape[0] < 2:
        return np.zeros((rows.shape[0], 2)), None, axes, ""
    scale = _Scale(rows)
    solver = "full" if isinstance(rows, np.ndarray) else "arpack"
    pca = PCA(n_components=2, svd_solver=solver, random_state=0)
    with np.errstate(invalid="ignore"):  # rows that are all the same have no variance to explain
        where = pca.fit_transform(scale(rows))
    place = None if points is None else pca.transform(scale(points))
    shares = np.nan_to_num(pca.explained_variance_ratio_)
    axes = [f"{name} ({percent(float(part))})" for name, part in zip(axes, shares, strict=True)]
    both = float(shares.sum())
    caution = "" if both >= 0.5 else " Rows that look close on the map may lie far apart."
    said = f"The two axes are the principal components; together they carry {percent(both)} of the variance."
    return where, place, axes, said + caution


class _Scale:
    """Bring features to equal spread, and missing entries to the middle, as most models see them; sparse ones stay."""

    def __init__(self, rows: Any) -> None:
        if isinstance(rows, np.ndarray):
            known = np.where(np.isfinite(rows), rows, np.nan)
            empty = np.isnan(known).all(axis=0)
            known[:, empty] = 0.0
            self.middle = np.nanmedian(known, axis=0)
            spread = np.nanstd(known, axis=0)
            self.spread = np.where(spread > 0, spread, 1.0)

    def __call__(self, rows: Any) -> Any:
        if not isinstance(rows, np.ndarray):
            return rows
        return (np.where(np.isfinite(rows), rows, self.middle) - self.middle) / self.spread


def _alike(where: Floats, values: Floats) -> float:
    """Rank correlation of a row's value with the mean of the nearest rows on the map."""
    k = min(NEAREST, len(values) - 1)
    if k < 1 or np.ptp(values) == 0:
        return float("nan")
    near = NearestNeighbors(n_neighbors=k).fit(where).kneighbors(return_distance=False)
    return spearman(values[near].mean(axis=1), values)


def _words_on_map(valuation: Valuation, unit: Unit) -> str:
    order = np.argsort(valuation.values, kind="stable")
    best, worst = order[-1], order[0]
    return (
        f"The most valuable row is {cell(valuation.ids[best])} ({unit.show(float(valuation.values[best]))}), the least "
        f"valuable {cell(valuation.ids[worst])} ({unit.show(float(valuation.values[worst]))})."
    )


def _corners(where: Floats, values: Floats, axes: list[str], unit: Unit) -> DataTable:
    """Mean value of the rows in each quarter of the map."""
    middle = np.median(where, axis=0)
    body = []
    for name_x, in_x in (("low", where[:, 0] <= middle[0]), ("high", where[:, 0] > middle[0])):
        for name_y, in_y in (("low", where[:, 1] <= middle[1]), ("high", where[:, 1] > middle[1])):
            part = values[in_x & in_y]
            if part.size:
                body.append([name_x, name_y, count(part.size), unit.show(float(part.mean()))])
    return DataTable([axes[0], axes[1], "rows drawn", "mean value"], body)


def _limits(values: Floats) -> tuple[float, float]:
    low, high = view(values)
    low, high = min(low, 0.0), max(high, 0.0)
    room = 0.06 * (high - low) or 1.0
    return low - room, high + room


def _reach(values: Floats) -> float:
    """Value at which a colour is at its strongest."""
    return float(np.quantile(np.abs(values), 0.98)) or float(np.abs(values).max()) or 1.0


def _finite(rows: Floats) -> Floats:
    return np.where(np.isfinite(rows), rows, 0.0)


def _pairs(points: Floats) -> list[list[float | None]]:
    return [rounded(pair) for pair in points]


def _triples(points: Floats, values: Floats) -> list[list[float | None]]:
    return [rounded([*pair, value]) for pair, value in zip(points, values, strict=True)]
