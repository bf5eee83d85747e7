"""The distribution of the values, and its split by boundary."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.report import _words
from shapshift.report._format import NOTHING, Unit, count, percent, rounded
from shapshift.report._parts import Chart, DataTable, Section, beyond, view
from shapshift.valuation import Valuation

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
    from shapshift.plots.valuation import histogram_edges

    everything = unit.scale(np.concatenate(list(values.values())))
    edges = histogram_edges(np.clip(everything, *view(everything)), BINS)
    series = []
    for role, part in values.items():
        scaled = unit.scale(part)
        # A value of 0 is not positive and belongs left of an edge at 0; rows beyond the edges count in the outer bars.
        inside = np.clip(np.where(scaled == 0, np.nextafter(0, -1), scaled), edges[0], edges[-1])
        counts, _ = np.histogram(inside, bins=edges)
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
