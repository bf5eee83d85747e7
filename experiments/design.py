"""Boundary-aware choice of validation points, against random and class-stratified choice, on every dataset.

Each method chooses a few validation points from a pool of candidates. Their values are evaluated on unseen points: by
their agreement with the values there, their shift under noise, and the agreement of two sets chosen from different
candidates.
"""

import os
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy import stats

from experiments.cells import PROTOCOLS, Settings, protocols, run_cells
from experiments.coverage import draw_points
from experiments.tables import Interval, interval, markdown_table, select, write_page, write_tables
from shapshift import GaussianNoise, KNNShapley
from shapshift.agreement import spearman
from shapshift.design import design_validation
from shapshift.design.split import draw_stratified
from shapshift.plots._figure import new_axes, save_figure, tidy

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Record = dict[str, Any]

#: Methods of choice.
METHODS = {
    "random": "random",
    "class": "class-stratified",
    "boundary": "class and boundary",
    "interior": "class-stratified, no boundary",
    "design": "designed",
    "pool": "all candidates",
}
#: Statistics of a set; larger is better for "spearman" and "reliability", smaller for the others.
STATISTICS = {
    "spearman": "Spearman with held-out values",
    "rmse": "RMSE to held-out values (clean std)",
    "reliability": "Spearman of two sets",
    "shift": "shift under noise (clean std)",
}
MORE_IS_BETTER = ("spearman", "reliability")
BASELINES = ("random", "class")
LEVEL = 0.05
COLOURS = ("#D55E00", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#000000")


@dataclass(frozen=True, kw_only=True)
class DesignSettings(Settings):
    """Sizes of the experiment.

    Attributes
    ----------
    n_val : int
        Candidates of each of two separate pools.
    n_held : int
        Held-out points.
    m : int
        Points to choose.
    draws : int
        Sets that each random method draws from a pool.
    noise : float
        Standard deviation of the noise, in units of each feature's standard deviation over the training rows.
    repeats, fresh : int
        Draws of noise for the design, and fresh draws to measure the shift.
    n_neighbors : int
    protocols : tuple of str
    natural_seeds : int
        Most seeds with natural classes.
    """

    n_held: int
    m: int
    draws: int
    noise: float = 0.5
    repeats: int = 10
    fresh: int
    n_neighbors: int = 5
    protocols: tuple[str, ...] = PROTOCOLS
    natural_seeds: int = 5

    ELSEWHERE: ClassVar[tuple[str, ...]] = (*Settings.ELSEWHERE, "name", "seeds", "protocols", "natural_seeds")
    CELL_FORMAT: ClassVar[dict[str, int]] = {"format": 1}


FULL = DesignSettings(n_train=1000, n_val=700, n_held=1000, m=100, draws=20, fresh=5, seeds=10, processes=2)
QUICK = replace(
    FULL,
    name="quick",
    processes=1,
    n_train=300,
    n_val=300,
    n_held=400,
    m=40,
    draws=5,
    repeats=4,
    fresh=2,
    seeds=2,
    protocols=("balanced",),
)


def run_design(folder: Path, settings: DesignSettings = FULL, page: Path | None = None) -> Path:
    """Compare the methods on every dataset; write ``tables/``, a figure and a page, and return the page.

    Parameters
    ----------
    folder : Path
        Gets ``tables/`` (CSV and LaTeX), ``design.png`` and ``.svg``, and ``cells/``.
    settings : DesignSettings, default=FULL
    page : Path, optional
        Where to write the page; ``design.md`` in the folder by default.
    """
    tables = design_tables(folder, settings)
    write_tables(folder, tables)
    save_figure(draw_design(tables["design"]), folder / "design", close=True)
    page = page or folder / "design.md"
    return write_page(page, [section(tables, os.path.relpath(folder / "design.png", page.parent))])


def design_tables(folder: Path, settings: DesignSettings = FULL) -> dict[str, pd.DataFrame]:
    """Measure every dataset, protocol and seed, or read stored measurements.

    Returns
    -------
    dict of DataFrame
        ``design``, one row per dataset, protocol, seed and method; and ``design_gains``, see :func:`gains`.
    """
    keys = settings.keys()
    work = {
        (name, protocol, seed): (keys[name], partial(compare_choices, name, protocol, seed, settings))
        for seed in range(settings.seeds)
        for name in settings.datasets
        for protocol in protocols(name)
        if protocol in settings.protocols and (protocol == "balanced" or seed < settings.natural_seeds)
    }
    records = pd.DataFrame(
        [
            {"dataset": name, "protocol": protocol, "seed": seed, **record}
            for (name, protocol, seed), found in run_cells(folder / "cells", work, settings.processes).items()
            for record in found
        ]
    )
    return {"design": records, "design_gains": gains(records)}


def compare_choices(dataset: str, protocol: str, seed: int, settings: DesignSettings) -> list[Record]:
    """Choose validation sets of one split by every method, and measure them."""
    data = settings.load(dataset, protocol, seed, settings.n_held + 2 * settings.n_val)
    model = KNNShapley(settings.n_neighbors, progress=False).fit(data.X_train, data.y_train)
    held = model.value(data.X_val[: settings.n_held], data.y_val[: settings.n_held]).values
    noise = GaussianNoise(settings.noise, relative=True).bind(model)
    sets: dict[str, list[list[Floats]]] = {method: [] for method in METHODS}
    shifts: dict[str, list[float]] = {method: [] for method in METHODS}
    for number in range(2):
        first = settings.n_held + number * settings.n_val
        X, y = (part[first : first + settings.n_val] for part in (data.X_val, data.y_val))
        valued = model.value(X, y, matrix=True)
        matrix = np.asarray(valued.matrix).T
        seeds = np.random.SeedSequence([seed, number]).generate_state(settings.fresh).tolist()
        moved = [np.asarray(model.value(*noise.with_seed(one)(X, y), matrix=True).matrix).T for one in seeds]
        rng = np.random.default_rng([seed, number])
        codes = np.unique(y, return_inverse=True)[1].astype(np.int32)
        for method in METHODS:
            if method == "design":
                options: dict[str, Any] = {"repeats": settings.repeats, "holdout": 1, "n_random": 5}
                options["random_state"] = 2 * seed + number
                chosen = design_validation(model, X, y, settings.m, noise=noise, **options)
                drawn: list[Indices | None] = [chosen.indices]
            elif method == "pool":
                drawn = [np.arange(settings.n_val)]
            else:
                drawn = [choose(method, codes, valued.boundary, settings.m, rng) for _ in range(settings.draws)]
            points = [each for each in drawn if each is not None]
            sets[method].append([matrix[each].mean(axis=0) for each in points])
            shifts[method] += [
                _rms(noisy[each].mean(axis=0) - matrix[each].mean(axis=0)) for each in points for noisy in moved
            ]
    unit = float(held.std())
    records = []
    for method, (one, other) in sets.items():
        if one and other:
            found = {
                "spearman": [spearman(values, held) for values in one + other],
                "rmse": [_rms(values - held) / unit for values in one + other],
                "reliability": [spearman(*pair) for pair in zip(one, other, strict=False)],
                "shift": [shift / unit for shift in shifts[method]],
            }
            n_points = settings.n_val if method == "pool" else settings.m
            sizes = {"points": n_points, "candidates": settings.n_val, "noise": settings.noise}
            records.append({"method": method, **sizes} | {name: float(np.mean(each)) for name, each in found.items()})
    return records


def choose(
    method: str, codes: npt.NDArray[np.int32], boundary: npt.NDArray[np.bool_], m: int, rng: np.random.Generator
) -> Indices | None:
    """Draw ``m`` of the candidates by a random method; None if the pool has too few of a kind.

    Parameters
    ----------
    method : {"random", "class", "boundary", "interior"}
    codes : ndarray of int
        Class of each candidate.
    boundary : ndarray of bool
        Whether it is a boundary point.
    m : int
    rng : Generator
    """
    if method == "random":
        return rng.choice(codes.size, m, replace=False)
    if method == "interior":
        return draw_points(codes.astype(np.int64), boundary, 0.0, m, rng)
    return draw_stratified(codes, boundary if method == "boundary" else np.zeros_like(boundary), m, rng)


def _rms(difference: Floats) -> float:
    return float(np.sqrt(np.mean(difference**2)))


def gains(records: pd.DataFrame) -> pd.DataFrame:
    """Difference of every method to random and class-stratified choice, paired by seed.

    Returns
    -------
    DataFrame
        One row per protocol, baseline, method, statistic and dataset: ``gain``, positive if the method is better,
        with its 95% interval ``low`` to ``high``; ``p`` of a paired t test; and ``p_holm``, adjusted by Holm's method
        over the datasets.
    """
    rows = []
    for protocol, here in records.groupby("protocol", sort=False):
        for baseline in BASELINES:
            for method in [name for name in METHODS if name not in BASELINES]:
                for statistic in STATISTICS:
                    family: list[Record] = []
                    for dataset, cell in here.groupby("dataset", sort=False):
                        at = cell.pivot(index="seed", columns="method", values=statistic)
                        if method not in at or at[method].isna().any():
                            continue
                        gain = (at[method] - at[baseline]) * (1 if statistic in MORE_IS_BETTER else -1)
                        found = interval(gain)
                        row: Record = {
                            "protocol": protocol,
                            "baseline": baseline,
                            "method": method,
                            "statistic": statistic,
                        }
                        row |= {"dataset": str(dataset), "gain": found.mean, "low": found.low, "high": found.high}
                        family.append(row | {"p": float(stats.ttest_1samp(gain, 0.0).pvalue)})
                    adjusted = holm([row["p"] for row in family])
                    rows += [row | {"p_holm": p} for row, p in zip(family, adjusted, strict=True)]
    return pd.DataFrame(rows).round(6)


def holm(p_values: list[float]) -> list[float]:
    """Adjust p-values for multiple testing by Holm's step-down method.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    order = np.argsort(p_values)
    scaled = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty(len(p_values))
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return [float(p) for p in adjusted]


def beaten(
    table: pd.DataFrame, method: str, baseline: str, statistic: str, protocol: str = "balanced"
) -> tuple[int, int, int]:
    """Count datasets on which a method is better than a baseline, worse than it, and all; Holm's method at 5%."""
    here = select(table, method=method, baseline=baseline, statistic=statistic, protocol=protocol)
    sure = here["p_holm"] < LEVEL
    return int((sure & (here["gain"] > 0)).sum()), int((sure & (here["gain"] < 0)).sum()), len(here)


def section(tables: dict[str, pd.DataFrame], figure: str = "design/design.png") -> str:
    """Write the findings with balanced classes, for a page from which the figure is at ``figure``."""
    records, table = select(tables["design"], protocol="balanced"), tables["design_gains"]

    sizes = select(records, method="design").iloc[0]

    def verdict(method: str, baseline: str, protocol: str = "balanced") -> str:
        counts = [beaten(table, method, baseline, name, protocol)[0] for name in ("spearman", "reliability", "shift")]
        return " / ".join(map(str, counts))

    rows = []
    for dataset, here in records.groupby("dataset", sort=False):
        mean = here.groupby("method")[list(STATISTICS)].mean()
        row = {"dataset": str(dataset)}
        for statistic, name in (("spearman", "held-out"), ("reliability", "reliability"), ("shift", "shift")):
            row[name] = " / ".join(f"{mean[statistic][one]:.2f}" for one in ("random", "class", "design", "pool"))
        over = {"protocol": "balanced", "baseline": "random", "method": "design", "statistic": "spearman"}
        gain = select(table, dataset=dataset, **over)[["gain", "low", "high"]]
        rows.append(row | {"gain over random": Interval(*gain.to_numpy()[0]).show()})
    natural, carried = beaten(table, "design", "random", "spearman", "natural")[2], ""
    if natural:
        carried = f" (natural classes: {verdict('design', 'random', 'natural')} of {natural})"
    means = records.groupby(["method", "dataset"])["spearman"].mean().unstack()
    n, nearer = records["dataset"].nunique(), int(np.sum(means.loc["pool"].to_numpy() > means.loc["design"].to_numpy()))
    return (
        "### Boundary-aware validation design\n\n"
        f"`design_validation` chooses {sizes['points']} of {sizes['candidates']} candidates (class and boundary shares "
        f"kept, little shift under noise {sizes['noise']:g}), judged on unseen points and noise: Spearman with "
        "held-out values, Spearman of two sets from different candidates (reliability), shift under noise in "
        f"clean standard deviations. Of {n} datasets it beats random choice on {verdict('design', 'random')} in these "
        f"three{carried}, class-stratified choice on {verdict('design', 'class')}. Without design, also stratifying by "
        f"boundary beats class-stratified choice on {verdict('boundary', 'class')}, leaving boundary points out on "
        f"{verdict('interior', 'class')} (of {beaten(table, 'interior', 'class', 'spearman')[2]} that allow it). The "
        f"design sees the values on all candidates; all together are nearer still on {nearer}. "
        f"(Paired t tests over {records['seed'].nunique()} seeds, Holm's method over datasets, 5%.) Cells: random / "
        "class-stratified / designed / all candidates.\n\n"
        f"![Nearness, reliability and shift by method and dataset]({figure})\n\n" + markdown_table(rows)
    )


def draw_design(records: pd.DataFrame) -> Any:
    """Draw the statistics of every method on every dataset, with intervals over seeds."""
    balanced = select(records, protocol="balanced")
    datasets = list(dict.fromkeys(balanced["dataset"]))
    axes = new_axes(2, 2, size=(5.6, 3.0)).ravel()
    for ax, (statistic, title) in zip(axes, STATISTICS.items(), strict=True):
        for number, method in enumerate(METHODS):
            for place, dataset in enumerate(datasets):
                sample = select(balanced, dataset=dataset, method=method)[statistic]
                if sample.empty:
                    continue
                found = interval(sample)
                ends = [[found.mean - found.low], [found.high - found.mean]]
                x = place + 0.7 * ((number + 0.5) / len(METHODS) - 0.5)
                label = METHODS[method] if place == 0 else None
                ax.errorbar([x], [found.mean], ends, fmt="o", ms=4, lw=1.2, color=COLOURS[number], label=label)
        ax.set_xticks(range(len(datasets)), datasets)
        tidy(ax, title=title)
    axes[0].figure.legend(
        *axes[0].get_legend_handles_labels(), loc="outside upper left", ncols=6, frameon=False, fontsize=9
    )
    return axes
