"""Rows as points: before against after, and where they lie."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.decomposition import PCA
from sklearn.neighbors import NearestNeighbors

from shapshift.agreement import agreement, spearman
from shapshift.report import _words
from shapshift.report._features import Features
from shapshift.report._format import Unit, cell, count, percent, rounded
from shapshift.report._parts import Chart, DataTable, Section, beyond, only_drawn, sample, view
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
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
            [
                ["boundary points", count(n), percent(n / m)],
                ["other points", count(m - n), percent(1 - n / m)],
            ],
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
