"""One figure for each of the paper's, drawn from the tables."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments import paper
from experiments.cells import protocols
from experiments.paper import PaperSettings
from experiments.tables import Interval, by_seed, interval, select
from shapshift.mechanism import SCENARIOS
from shapshift.plots._figure import CLEAN, CORRECTED, NOISY, new_axes, save_figure, tidy

TITLES = {
    "gaussian": "Gaussian",
    "phoneme": "Phoneme",
    "2dplanes": "Planes2D",
    "pol": "Pol",
    "cpu": "CPU",
    "news20": "News20",
    "creditcard": "CreditCard",
}
STATISTICS = {"mean": "mean value", "std": "standard deviation", "positive_count": "positive values"}
PROTOCOL_STYLES = {"balanced": ("-", NOISY), "natural": ("--", CORRECTED)}
SCENARIO_TITLES = {"BB": "BB: two boundary points", "NN": "NN: two non-boundary points", "BN": "BN: one of each"}
VERSIONS = {"clean": ("clean", CLEAN, ":"), "noisy": ("noisy", NOISY, "-"), "boundary": ("corrected", CORRECTED, "-")}

Examples = dict[tuple[str, str], dict[str, list[float]]]
#: Points and pairs that the figures of the cases average over.
FIGURE_SETS = 30


def draw_all(
    folder: Path, shift: pd.DataFrame, cases: pd.DataFrame, examples: Examples, settings: PaperSettings
) -> None:
    """Draw every figure for which something was run into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)

    def keep(name: str, drawn: Any) -> None:
        save_figure(drawn, folder / name, close=True)

    if {"gaussian", "creditcard"} & set(settings.datasets):
        keep("figure2_shift", draw_shift(shift, examples, settings))
    if "gaussian" in settings.datasets:
        keep("figure1_noise_demo", paper.demo(settings).plot())
        ones, twos = paper.cases("gaussian", "balanced", 0, FIGURE_SETS, settings)
        keep("figure3_case_one", ones[0].plot(*ones[1:]))
        keep("figure4_case_two", twos[0].plot(*twos[1:]))
        keep("figure5_case_two_levels", draw_case_two_levels(cases, settings))
    groups = {
        "figure6_correction_gaussian": ("gaussian",),
        "figure7_correction_phoneme_2dplanes_pol": ("phoneme", "2dplanes", "pol"),
        "figure8_correction_cpu_news20_creditcard": ("cpu", "news20", "creditcard"),
    }
    for name, group in groups.items():
        datasets = tuple(dataset for dataset in group if dataset in settings.datasets)
        for protocol in protocols(datasets[0]) if datasets else ():
            keep(f"{name}_{protocol}", draw_correction(shift, examples, datasets, protocol, settings))


def draw_case_two_levels(cases: pd.DataFrame, settings: PaperSettings) -> Any:
    """Rows that change sign against the noise, per scenario, with bands over seeds."""
    axes = new_axes(1, len(SCENARIOS), size=(4.0, 3.4), sharey=True).ravel()
    noise = (0.0, *settings.noise)
    for ax, scenario in zip(axes, SCENARIOS, strict=True):
        for statistic, name, colour, style in (
            ("positive_to_negative", "positive to negative", NOISY, "-"),
            ("negative_to_positive", "negative to positive", CORRECTED, "--"),
        ):
            here = select(cases, dataset="gaussian", protocol="balanced", case=scenario)
            curve = [interval(select(here, noise=sigma)[statistic]) for sigma in noise]
            _band(ax, noise, curve, colour, name, style)
        tidy(ax, xlabel="noise level", title=SCENARIO_TITLES[scenario], legend=ax is axes[0])
    tidy(axes[0], ylabel="training rows that change sign")
    return axes


def draw_shift(shift: pd.DataFrame, examples: Examples, settings: PaperSettings) -> Any:
    """Value distribution, mean, spread and positive count under noise, on Gaussian and CreditCard."""
    datasets = tuple(dataset for dataset in ("gaussian", "creditcard") if dataset in settings.datasets)
    axes = np.atleast_2d(new_axes(len(datasets), 4, size=(3.6, 3.1)))
    for row, dataset in zip(axes, datasets, strict=True):
        example = examples[dataset, "balanced"]
        _distributions(row[0], {name: example[name] for name in ("clean", "noisy")}, settings)
        tidy(row[0], title=f"{TITLES[dataset]}: values", xlabel="value", ylabel="training rows", legend=True)
        for ax, (statistic, label) in zip(row[1:], STATISTICS.items(), strict=True):
            for protocol in protocols(dataset):
                style, colour = PROTOCOL_STYLES[protocol]
                at = by_seed(shift, statistic, dataset=dataset, protocol=protocol, utility="soft")
                _band(ax, *_curve(at, "noisy", settings), colour, f"{protocol} classes", style)
            tidy(ax, xlabel="noise level", title=label, legend=ax is row[1])
            if statistic != "positive_count":
                ax.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    return axes


def draw_correction(
    shift: pd.DataFrame, examples: Examples, datasets: tuple[str, ...], protocol: str, settings: PaperSettings
) -> Any:
    """Distribution, spread, positive count and row agreement: clean, noisy and corrected."""
    axes = np.atleast_2d(new_axes(len(datasets), 4, size=(3.6, 3.1)))
    for row, dataset in zip(axes, datasets, strict=True):
        example = examples[dataset, protocol]
        _distributions(row[0], {name: example[name] for name in VERSIONS}, settings)
        tidy(row[0], title=f"{TITLES[dataset]}: values", xlabel="value", ylabel="training rows", legend=True)
        panels = {"std": "standard deviation", "positive_count": "positive values", "spearman": "rank agreement"}
        for ax, (statistic, label) in zip(row[1:], panels.items(), strict=True):
            at = by_seed(shift, statistic, dataset=dataset, protocol=protocol, utility="soft")
            for version, (name, colour, style) in VERSIONS.items():
                if version != "clean":
                    _band(ax, *_curve(at, version, settings), colour, name, style)
                elif statistic != "spearman":
                    ax.axhline(interval(at["clean", 0.0]).mean, color=colour, ls=style, label=name)
            tidy(ax, xlabel="noise level", title=label, legend=ax is row[1])
        row[1].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
        row[3].set_ylabel("Spearman with clean values", fontsize=9)
    return axes


def _curve(at: pd.DataFrame, version: str, settings: PaperSettings) -> tuple[tuple[float, ...], list[Interval]]:
    """Noise levels, from no noise on, and intervals of a statistic at each."""
    curve = [interval(at["clean", 0.0]), *(interval(at[version, sigma]) for sigma in settings.noise)]
    return (0.0, *settings.noise), curve


def _band(ax: Any, noise: tuple[float, ...], curve: list[Interval], colour: str, name: str, style: str) -> None:
    ax.plot(noise, [point.mean for point in curve], color=colour, ls=style, label=name)
    ax.fill_between(noise, [p.low for p in curve], [p.high for p in curve], color=colour, alpha=0.2, lw=0)


def _distributions(ax: Any, values: dict[str, list[float]], settings: PaperSettings) -> None:
    everything = np.concatenate([np.array(each) for each in values.values()])
    low, high = np.quantile(everything, [0.005, 0.995]).tolist()
    edges = np.linspace(low, high, 60)
    for version, each in values.items():
        name, colour, _ = VERSIONS[version]
        label = name if version == "clean" else f"{name} (noise {settings.shown:g})"
        ax.hist(np.clip(each, edges[0], edges[-1]), bins=edges, histtype="step", color=colour, lw=1.5, label=label)
    ax.axvline(0, color="#888888", lw=0.8)
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
