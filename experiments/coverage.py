"""Effect of boundary coverage: validation sets of one size with an increasing share of boundary points.

Every training row is valued once on each point of a pool. Values are means over points, so values on any validation set
from the pool are computed from these. Every set keeps the pool's class shares.
"""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd

from experiments.cells import PROTOCOLS, Settings, protocols, run_cells
from experiments.tables import Interval, interval, markdown_table, select, write_page, write_tables
from shapshift import KNNShapley
from shapshift.agreement import spearman
from shapshift.perturb.perturbations import largest_remainders
from shapshift.plots._figure import new_axes, save_figure, tidy
from shapshift.valuation import summarize

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Record = dict[str, Any]

COVERAGES = tuple(np.linspace(0.0, 1.0, 11).round(1).tolist())
#: Kinds of validation sets: ``m`` points with a given coverage, all points weighted to it, ``m`` random points.
DRAWN, LIMIT, NATURAL = "drawn", "limit", "natural"
STATISTICS = ("mean", "std", "positive_count", "spearman")
COLOURS = ("#000000", "#D55E00", "#0072B2", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


@dataclass(frozen=True, kw_only=True)
class CoverageSettings(Settings):
    """Sizes of the experiment.

    Attributes
    ----------
    n_val : int
        Points of the pool from which validation sets are drawn.
    n_held : int
        Other random points; values on sets from the pool are compared with those on them.
    m, draws : int
        Points of a validation set, and sets for each coverage and seed.
    n_neighbors : int
    protocols : tuple of str
    """

    n_held: int
    m: int
    draws: int
    n_neighbors: int = 5
    protocols: tuple[str, ...] = PROTOCOLS

    ELSEWHERE: ClassVar[tuple[str, ...]] = (*Settings.ELSEWHERE, "name", "seeds", "protocols")
    CELL_FORMAT: ClassVar[dict[str, int]] = {"format": 2}


FULL = CoverageSettings(n_train=2000, n_val=2400, n_held=1000, m=100, draws=20, seeds=10, processes=2)
QUICK = CoverageSettings(
    name="quick", n_train=500, n_val=1200, n_held=400, m=50, draws=5, seeds=2, protocols=("balanced",)
)


def run_coverage(folder: Path, settings: CoverageSettings = FULL, page: Path | None = None) -> Path:
    """Vary the coverage on every dataset; write ``tables/``, a figure and a page, and return the page.

    Parameters
    ----------
    folder : Path
        Gets ``tables/`` (CSV and LaTeX), ``coverage.png`` and ``.svg``, and ``cells/``.
    settings : CoverageSettings, default=FULL
    page : Path, optional
        Where to write the page; ``coverage.md`` in the folder by default.
    """
    tables = coverage_tables(folder, settings)
    write_tables(folder, tables)
    save_figure(draw_coverage(tables["coverage"]), folder / "coverage", close=True)
    page = page or folder / "coverage.md"
    return write_page(page, [section(tables, os.path.relpath(folder / "coverage.png", page.parent))])


def coverage_tables(folder: Path, settings: CoverageSettings = FULL) -> dict[str, pd.DataFrame]:
    """Measure every dataset, protocol and seed, or read stored measurements.

    Returns
    -------
    dict of DataFrame
        ``coverage``, one row per dataset, protocol, seed, kind of set and coverage; ``coverage_effects`` and
        ``coverage_best``, see :func:`effects` and :func:`best`.
    """
    keys = settings.keys()
    work = {
        (name, protocol, seed): (keys[name], partial(vary_coverage, name, protocol, seed, settings))
        for seed in range(settings.seeds)
        for name in settings.datasets
        for protocol in protocols(name)
        if protocol in settings.protocols
    }
    records = pd.DataFrame(
        [
            {"dataset": name, "protocol": protocol, "seed": seed, **record}
            for (name, protocol, seed), found in run_cells(folder / "cells", work, settings.processes).items()
            for record in found
        ]
    )
    return {"coverage": records, "coverage_effects": effects(records), "coverage_best": best(records)}


def vary_coverage(dataset: str, protocol: str, seed: int, settings: CoverageSettings) -> list[Record]:
    """Value one split on validation sets of every coverage that its pool allows."""
    data = settings.load(dataset, protocol, seed, settings.n_val + settings.n_held)
    held, pool = slice(None, settings.n_held), slice(settings.n_held, None)
    model = KNNShapley(settings.n_neighbors, progress=False).fit(data.X_train, data.y_train)
    reference = model.value(data.X_val[held], data.y_val[held]).values
    valued = model.value(data.X_val[pool], data.y_val[pool], matrix=True)
    matrix = np.ascontiguousarray(np.asarray(valued.matrix).T)
    classes = np.unique(data.y_val[pool], return_inverse=True)[1]
    rng = np.random.default_rng(seed)

    def record(kind: str, coverage: float, points: int, found: list[Floats]) -> Record:
        each = [summarize(values) | {"spearman": spearman(values, reference)} for values in found]
        means = {name: float(np.mean([one[name] for one in each])) for name in STATISTICS}
        return {"set": kind, "coverage": round(coverage, 4), "points": points, "sets": len(found), **means}

    records = []
    for coverage in COVERAGES:
        drawn = [draw_points(classes, valued.boundary, coverage, settings.m, rng) for _ in range(settings.draws)]
        found = [matrix[points].mean(axis=0) for points in drawn if points is not None]
        if found:
            records.append(record(DRAWN, coverage, settings.m, found))
        weights = point_weights(classes, valued.boundary, coverage)
        if weights is not None:
            records.append(record(LIMIT, coverage, settings.n_val, [weights @ matrix]))
    counts = largest_remainders(np.bincount(classes).astype(np.float64), settings.m)
    found = []
    for _ in range(settings.draws):
        parts = [rng.choice(np.flatnonzero(classes == c), count, replace=False) for c, count in enumerate(counts)]
        found.append(matrix[np.concatenate(parts)].mean(axis=0))
    return [*records, record(NATURAL, valued.boundary_fraction, settings.m, found)]


def draw_points(
    classes: Indices, boundary: npt.NDArray[np.bool_], coverage: float, m: int, rng: np.random.Generator
) -> Indices | None:
    """Draw ``m`` points without repeats, a share ``coverage`` of each class boundary points; None if there are too few.

    Parameters
    ----------
    classes : ndarray of int
        Class of each point of the pool, 0, 1, ...; the set has them in the same shares.
    boundary : ndarray of bool
    coverage : float
    m : int
    rng : Generator
    """
    chosen = []
    for code, count in enumerate(largest_remainders(np.bincount(classes).astype(np.float64), m)):
        sides = largest_remainders(np.array([coverage, 1 - coverage]), int(count))
        for side, wanted in zip((True, False), sides, strict=True):
            there = np.flatnonzero((classes == code) & (boundary == side))
            if there.size < wanted:
                return None
            chosen.append(rng.choice(there, wanted, replace=False))
    return np.concatenate(chosen)


def point_weights(classes: Indices, boundary: npt.NDArray[np.bool_], coverage: float) -> Floats | None:
    """Weight all points so that boundary points have the share ``coverage`` in each class; None if a part is empty."""
    weights = np.zeros(classes.size)
    for code in range(classes.max() + 1):
        for side, share in ((True, coverage), (False, 1 - coverage)):
            there = (classes == code) & (boundary == side)
            if share and not there.any():
                return None
            weights[there] = share * (classes == code).mean() / max(there.sum(), 1)
    return weights


def effects(records: pd.DataFrame) -> pd.DataFrame:
    """Compare sets without boundary points with those of the highest coverage that every seed has.

    Returns
    -------
    DataFrame
        One row per dataset, protocol, kind of set (drawn or limit) and statistic: ``boundary_share`` of the pool,
        ``highest`` coverage, the mean over seeds ``at_0``, ``at_natural`` (of drawn sets) and ``at_highest``, and
        ``change`` from 0 to the highest coverage, with the 95% interval ``low`` to ``high`` of the paired difference,
        in percent of the value at 0 for all but the Spearman correlation.
    """
    rows = []
    for (dataset, protocol), here in records.groupby(["dataset", "protocol"], sort=False):
        natural = select(here, set=NATURAL).set_index("seed")
        for kind in (DRAWN, LIMIT):
            there = select(here, set=kind)
            counts = there.groupby("coverage")["seed"].nunique()
            highest = float(counts[counts == len(natural)].index.max())
            for statistic in STATISTICS:
                at = there.pivot(index="seed", columns="coverage", values=statistic)
                change = at[highest] - at[0.0]
                found = interval(change if statistic == "spearman" else 100 * change / at[0.0].abs())
                rows.append(
                    {
                        "dataset": dataset,
                        "protocol": protocol,
                        "set": kind,
                        "statistic": statistic,
                        "boundary_share": natural["coverage"].mean(),
                        "highest": highest,
                        "at_0": at[0.0].mean(),
                        "at_natural": natural[statistic].mean() if kind == DRAWN else np.nan,
                        "at_highest": at[highest].mean(),
                        "change": found.mean,
                        "low": found.low,
                        "high": found.high,
                    }
                )
    return pd.DataFrame(rows).round(6)


def best(records: pd.DataFrame) -> pd.DataFrame:
    """Coverage whose ranking is nearest to that on held-out points, by dataset and protocol.

    Returns
    -------
    DataFrame
        ``boundary_share`` of the pool, and the coverage with the highest mean Spearman correlation over seeds: of sets
        as large as a validation set (``drawn``), and of all points of the pool, weighted (``limit``), which have less
        sampling error.
    """
    rows = []
    for (dataset, protocol), here in records.groupby(["dataset", "protocol"], sort=False):
        row = {"dataset": dataset, "protocol": protocol}
        row["boundary_share"] = round(select(here, set=NATURAL)["coverage"].mean(), 4)
        for kind in (DRAWN, LIMIT):
            means = select(here, set=kind).groupby("coverage")["spearman"].mean()
            row[kind] = float(means.index.to_numpy()[means.to_numpy().argmax()])
        rows.append(row)
    return pd.DataFrame(rows)


def section(tables: dict[str, pd.DataFrame], figure: str = "coverage/coverage.png") -> str:
    """Write the findings with balanced classes, for a page from which the figure is at ``figure``."""
    changes, nearest = tables["coverage_effects"], select(tables["coverage_best"], protocol="balanced")
    found = select(changes, protocol="balanced", set=DRAWN)
    points = tables["coverage"].groupby("set")["points"].max()
    seeds, n = tables["coverage"]["seed"].nunique(), len(nearest)

    def moves(statistic: str, **where: str) -> str:
        here = select(changes, statistic=statistic, **({"protocol": "balanced", "set": DRAWN} | where))
        return f"{(here['high'] < 0).sum()} / {(here['low'] > 0).sum()}"

    rows = []
    for dataset, here in found.groupby("dataset", sort=False):
        at, where = here.set_index("statistic"), nearest.set_index("dataset").loc[dataset]
        row = {"dataset": dataset, "boundary share": f"{where['boundary_share']:.2f}"}
        row["coverage"] = f"0 to {at['highest'].iloc[0]:g}"
        for statistic, name in (("mean", "mean"), ("std", "spread"), ("positive_count", "positive")):
            row[name] = Interval(*at.loc[statistic, ["change", "low", "high"]]).percent()
        ends = [f"{at[end]['spearman']:.2f}" for end in ("at_0", "at_natural", "at_highest")]
        rows.append(row | {"Spearman at 0 / natural / highest": " / ".join(ends), "best, all": f"{where[LIMIT]:g}"})
    carried = ""
    if "natural" in set(changes["protocol"]):
        counts = ", ".join(moves(statistic, protocol="natural") for statistic in ("mean", "std", "positive_count"))
        carried = f"; natural classes: {counts}"
    off = (nearest[LIMIT] - nearest["boundary_share"]).abs().max()
    return (
        "### Boundary coverage varied\n\n"
        f"Validation sets of {points[DRAWN]} points with the pool's class shares; {seeds} seeds, each 95% interval by "
        f"itself. From no boundary points to as many as the pool allows, datasets (of {n}) on which it falls / rises: "
        f"mean value {moves('mean')}; standard deviation {moves('std')} (with all {points[LIMIT]:,} points of the "
        f"pool, weighted, so that sampling adds less: {moves('std', set=LIMIT)}); positive values "
        f"{moves('positive_count')}{carried}. Coverage alone shifts values, without noise. The ranking comes nearest "
        f"to that on held-out points at coverage 0 on {(nearest[DRAWN] == 0).sum()} of {n}: in small sets boundary "
        "points mostly add sampling error. With all "
        f"points it does so at {nearest[LIMIT].min():g} to {nearest[LIMIT].max():g} (*best, all*), at most {off:.2f} "
        "from the natural share.\n\n"
        f"![Mean, spread, positive values and rank agreement against the coverage]({figure})\n\n" + markdown_table(rows)
    )


def draw_coverage(records: pd.DataFrame) -> Any:
    """Draw mean, spread, positive count and rank agreement against the coverage, with bands over seeds."""
    titles = {
        "mean": "mean value / at natural coverage",
        "std": "standard deviation / at natural coverage",
        "positive_count": "positive values / at natural coverage",
        "spearman": "Spearman with held-out values",
    }
    balanced = select(records, protocol="balanced")
    axes = new_axes(1, len(STATISTICS), size=(3.7, 3.5)).ravel()
    for colour, (dataset, here) in zip(COLOURS, balanced.groupby("dataset", sort=False), strict=False):
        natural = select(here, set=NATURAL).set_index("seed")
        for ax, statistic in zip(axes, STATISTICS, strict=True):
            at = select(here, set=DRAWN).pivot(index="seed", columns="coverage", values=statistic).dropna(axis=1)
            if statistic != "spearman":
                at = at.div(natural[statistic], axis=0)
            curve = [interval(at[coverage]) for coverage in at]
            ax.plot(at.columns, [point.mean for point in curve], color=colour, label=dataset)
            ax.fill_between(at.columns, [p.low for p in curve], [p.high for p in curve], color=colour, alpha=0.15, lw=0)
            level = natural[statistic].mean() if statistic == "spearman" else 1.0
            ax.plot(natural["coverage"].mean(), level, "o", ms=6, mfc="white", color=colour)
    for ax, statistic in zip(axes, STATISTICS, strict=True):
        tidy(ax, xlabel="share of boundary points", title=titles[statistic])
    axes[0].figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=7, frameon=False, fontsize=9
    )
    return axes
