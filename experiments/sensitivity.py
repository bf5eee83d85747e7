"""Sensitivity of shift and correction to choices that the paper does not state.

Each option changes one part of the setting in which the claims are judged (soft utility, balanced classes, K = 5). All
options of a dataset and seed share the split and the noise numbers, as far as sizes allow.
"""

import textwrap
import warnings
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pandas as pd

from experiments.cells import Settings, run_cells
from experiments.tables import Interval, interval, markdown_table, percent_change, select, write_page, write_tables
from shapshift import BoundaryCorrector, GaussianNoise, KNNShapley, Valuation, load_dataset
from shapshift.correct import CorrectionWarning

Record = dict[str, Any]


@dataclass(frozen=True)
class Option:
    """One option for an open question.

    Attributes
    ----------
    name : str
    model : dict
        Parameters of the model.
    standardize, relative : object
        As in :func:`shapshift.load_dataset` and :class:`shapshift.GaussianNoise`.
    train, val : float
        Share of the training rows and of the validation points that is used.
    """

    name: str
    model: dict[str, Any] = field(default_factory=dict)
    standardize: Any = "auto"
    relative: bool = True
    train: float = 1.0
    val: float = 1.0


BASE = Option("as reproduced")
#: Open questions, and alternative readings.
QUESTIONS: dict[str, tuple[Option, ...]] = {
    "How many neighbours decide about the boundary?": (
        Option("3 neighbours", {"boundary_neighbors": 3}),
        Option("10 neighbours", {"boundary_neighbors": 10}),
    ),
    "Above which entropy is a point a boundary point?": (
        Option("two of five must disagree", {"boundary_entropy": 0.55}),
        Option("three of ten must disagree", {"boundary_neighbors": 10, "boundary_entropy": 0.55}),
    ),
    "Are features standardised, and is noise measured per feature?": (
        Option("raw features, noise per feature", standardize=False),
        Option("raw features, isotropic noise in raw units", standardize=False, relative=False),
    ),
    "How many training rows?": (
        Option("a quarter of the training rows", train=0.25),
        Option("half of the training rows", train=0.5),
    ),
    "How many validation points?": (
        Option("a quarter of the validation points", val=0.25),
        Option("half of the validation points", val=0.5),
    ),
}
OPTIONS = (BASE, *(option for options in QUESTIONS.values() for option in options))
#: Statistics of one run, in percent: changes, shares of all rows or points, and distances from the clean values.
STATISTICS = (
    *("mean_change", "std_change", "positive_change", "boundary_clean", "boundary_noisy"),
    *("std_gap", "std_gap_corrected", "positive_gap", "positive_gap_corrected"),
)
#: Width of the lines of text.
WIDTH = 120
#: Statistics whose direction is judged, in words.
JUDGED = {"std_change": "the spread", "positive_change": "the number of positive rows"}


@dataclass(frozen=True, kw_only=True)
class SensitivitySettings(Settings):
    """Sizes of the comparison.

    Attributes
    ----------
    noise : tuple of float
        Noise levels, ascending; sentences describe the last one.
    n_neighbors : int
    """

    noise: tuple[float, ...] = (1.0, 3.0)
    n_neighbors: int = 5

    CELL_FORMAT: ClassVar[dict[str, int]] = {"format": 1}


FULL = SensitivitySettings(n_train=2000, n_val=1000, seeds=5)
QUICK = SensitivitySettings(name="quick", n_train=400, n_val=200, seeds=2)


def run_sensitivity(folder: Path, settings: SensitivitySettings = FULL, page: Path | None = None) -> Path:
    """Compare the options on all datasets.

    Parameters
    ----------
    folder : Path
        Gets ``tables/`` (CSV) and ``cells/``.
    settings : SensitivitySettings, default=FULL
    page : Path, optional
        Where to write the page of results; ``sensitivity.md`` in the folder by default.

    Returns
    -------
    Path
        The page.
    """
    tables = sensitivity_tables(folder, settings)
    write_tables(folder, tables)
    return write_sensitivity(page or folder / "sensitivity.md", tables, settings)


def sensitivity_tables(folder: Path, settings: SensitivitySettings = FULL) -> dict[str, pd.DataFrame]:
    """Compute or resume all cells.

    Returns
    -------
    dict of DataFrame
        ``runs``: one line per dataset, seed, option and noise level. ``summary``: means and 95% intervals over seeds,
        per dataset and for the mean over datasets ("all").
    """
    keys = settings.keys()
    work = {
        (name, seed): (keys[name], partial(measure, name, seed, settings))
        for name in settings.datasets
        for seed in range(settings.seeds)
    }
    found = run_cells(folder / "cells", work)
    runs = pd.DataFrame(
        [{"dataset": name, "seed": seed, **row} for (name, seed), rows in found.items() for row in rows]
    )
    return {"runs": runs.round(4), "summary": summarize(runs.round(4))}


def summarize(runs: pd.DataFrame) -> pd.DataFrame:
    """Means and 95% intervals over seeds."""
    everywhere = runs.groupby(["option", "sigma", "seed"], sort=False)[list(STATISTICS)].mean().reset_index()
    both = pd.concat([everywhere.assign(dataset="all"), runs], ignore_index=True)
    rows = []
    for (option, sigma, dataset), here in both.groupby(["option", "sigma", "dataset"], sort=False):
        row: Record = {"option": option, "sigma": sigma, "dataset": dataset}
        for name in STATISTICS:
            bounds = interval(here[name])
            row |= {name: bounds.mean, f"{name}_low": bounds.low, f"{name}_high": bounds.high}
        for name in ("std_gap", "positive_gap"):
            row[f"{name}_saved_low"] = interval(here[name] - here[f"{name}_corrected"]).low
        rows.append(row)
    return pd.DataFrame(rows).round(4)


def measure(dataset: str, seed: int, settings: SensitivitySettings) -> list[Record]:
    """Shift and correction of one split under each option."""
    scaled = {option.standardize: None for option in OPTIONS}
    splits = {kind: _split(dataset, seed, settings, kind) for kind in scaled}
    return [
        {"option": option.name, **record}
        for option in OPTIONS
        for record in _measure(splits[option.standardize], option, seed, settings)
    ]


def _split(dataset: str, seed: int, settings: SensitivitySettings, standardize: Any) -> Any:
    return load_dataset(
        dataset,
        protocol="balanced",
        random_state=seed,
        n_train=settings.n_train,
        n_val=settings.n_val,
        standardize=standardize,
        data_dir=settings.data_dir,
    )


def _measure(data: Any, option: Option, seed: int, settings: SensitivitySettings) -> list[Record]:
    n, m = round(option.train * settings.n_train), round(option.val * settings.n_val)
    X_val, y_val = data.X_val[:m], data.y_val[:m]
    model = KNNShapley(settings.n_neighbors, progress=False, n_jobs=-1, **option.model)
    model.fit(data.X_train[:n], data.y_train[:n])
    clean = model.value(X_val, y_val)
    corrector = BoundaryCorrector(rule="paper").fit(clean)
    records = []
    for sigma in settings.noise:
        noise = GaussianNoise(sigma, relative=option.relative, random_state=seed).bind(model)
        noisy = model.value(*noise(X_val, y_val))
        with warnings.catch_warnings():
            # A noisy validation set can have no boundary points; the documented rule then applies.
            warnings.simplefilter("ignore", CorrectionWarning)
            corrected = corrector.transform(noisy)
        records.append({"sigma": sigma, **_record(clean, noisy, corrected)})
    return records


def _record(clean: Valuation, noisy: Valuation, corrected: Valuation) -> Record:
    before, after, mended = (one.stats() for one in (clean, noisy, corrected))

    def positive(stats: dict[str, Any]) -> float:
        return 100.0 * float(stats["positive_ratio"] - before["positive_ratio"])

    return {
        "mean_change": percent_change(before["mean"], after["mean"]),
        "std_change": percent_change(before["std"], after["std"]),
        "positive_change": positive(after),
        "boundary_clean": 100 * clean.boundary_fraction,
        "boundary_noisy": 100 * noisy.boundary_fraction,
        "std_gap": abs(percent_change(before["std"], after["std"])),
        "std_gap_corrected": abs(percent_change(before["std"], mended["std"])),
        "positive_gap": abs(positive(after)),
        "positive_gap_corrected": abs(positive(mended)),
    }


# --- the page --------------------------------------------------------------------------------------------------------


def write_sensitivity(page: Path, tables: dict[str, pd.DataFrame], settings: SensitivitySettings) -> Path:
    """Write the page: a table and a sentence for each question."""
    summary = tables["summary"]
    datasets = [name for name in summary["dataset"].unique() if name != "all"]
    levels = " and ".join(f"{sigma:g}" for sigma in settings.noise)
    setting = (
        "The paper does not state all of its choices. This page measures how much they change two results: the shift "
        "of the values, and how much of it the published correction restores. The setting is: soft utility, balanced "
        f"classes, K = {settings.n_neighbors}, {len(datasets)} datasets ({', '.join(datasets)}), "
        f"{settings.n_train:,} training rows, {settings.n_val:,} validation points, noise of {levels}, "
        f"{settings.seeds} seeds. It is the first line of each table. Each other line changes one choice."
    )
    reading = (
        "Numbers are means over the datasets, in brackets the 95% interval over seeds. Changes of mean and spread are "
        "in percent of the clean ones. Changes of positive rows are in percentage points of all training rows. Gaps "
        "are distances from the clean spread and the clean positive count in the same units, before → after the "
        "correction "
        '(`rule="paper"`). `tables/summary.csv` has every dataset, `tables/runs.csv` every run.'
    )
    parts = ["# What the paper leaves open\n", _wrapped(setting), _wrapped(reading)]
    for question, options in QUESTIONS.items():
        names = [BASE.name, *(option.name for option in options)]
        rows = [_line(summary, name, sigma) for sigma in settings.noise for name in names]
        parts += [f"## {question}\n", markdown_table(rows), _wrapped(_sentence(summary, names, settings.noise[-1]))]
    sigma = settings.noise[-1]
    by_dataset = [
        {"option": option.name}
        | {name: f"{_line_of(summary, option.name, sigma, name)['std_gap_corrected']:.0f}" for name in datasets}
        for option in OPTIONS
    ]
    title = f"## Spread gap after the correction, by dataset, noise {sigma:g}\n"
    before = {name: f"{_line_of(summary, BASE.name, sigma, name)['std_gap']:.0f}" for name in datasets}
    parts += [title, markdown_table([{"option": "without correction, as reproduced"} | before, *by_dataset])]
    return write_page(page, parts)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def _line(summary: pd.DataFrame, option: str, sigma: float) -> Record:
    row = _line_of(summary, option, sigma)
    return {
        "option": option,
        "noise": f"{sigma:g}",
        "mean": _bounds(row, "mean_change").percent(),
        "spread": _bounds(row, "std_change").percent(),
        "positive rows": _bounds(row, "positive_change").show(1),
        "boundary points": f"{row['boundary_clean']:.0f}% → {row['boundary_noisy']:.0f}%",
        "spread gap": f"{row['std_gap']:.1f} → {_bounds(row, 'std_gap_corrected').show(1)}",
        "count gap": f"{row['positive_gap']:.1f} → {_bounds(row, 'positive_gap_corrected').show(1)}",
    }


def _bounds(row: Record, statistic: str) -> Interval:
    return Interval(row[statistic], row[f"{statistic}_low"], row[f"{statistic}_high"])


def _line_of(summary: pd.DataFrame, option: str, sigma: float, dataset: str = "all") -> Record:
    """Means of a dataset, or over all of them."""
    (row,) = select(summary, option=option, sigma=sigma, dataset=dataset).to_dict("records")
    return {str(key): entry for key, entry in row.items()}


def _sentence(summary: pd.DataFrame, names: list[str], sigma: float) -> str:
    """Count the datasets on which directions hold under all options, and those on which the correction helps."""
    here = summary[(summary["sigma"] == sigma) & (summary["dataset"] != "all") & summary["option"].isin(names)]
    n = here["dataset"].nunique()
    falls = []
    for statistic, words in JUDGED.items():
        sure = here.assign(falls=here[f"{statistic}_high"] < 0).groupby("dataset", sort=False)["falls"].all()
        base = int((here.loc[here["option"] == BASE.name, f"{statistic}_high"] < 0).sum())
        falls.append(f"{words} falls on {int(sure.sum())} of {n} datasets ({base} as reproduced)")
    helped = []
    for gap, words in (("std_gap", "the spread gap"), ("positive_gap", "the count gap")):
        counts = here.assign(nearer=here[f"{gap}_saved_low"] > 0).groupby("option", sort=False)["nearer"].sum()
        span = f"{counts.min()}" if counts.min() == counts.max() else f"{counts.min()} to {counts.max()}"
        helped.append(f"{words} on {span}")
    left = {name: _line_of(summary, name, sigma)["std_gap_corrected"] for name in names}
    least, most = min(names[1:], key=left.__getitem__), max(names[1:], key=left.__getitem__)
    return (
        f"At noise {sigma:g}, under every option (95% interval below 0), {' and '.join(falls)}. Depending on the "
        f"option, the correction reduces {' and '.join(helped)} datasets. After it, the spread gap is "
        f"{left[BASE.name]:.0f}% as reproduced, and with other options {left[least]:.0f}% ({least}) to "
        f"{left[most]:.0f}% ({most})."
    )
