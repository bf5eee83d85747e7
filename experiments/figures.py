"""The matrix of claims and settings, and one figure for each of the paper's, drawn from the tables."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments import paper
from experiments.claims import (
    AGAINST,
    FOR,
    GROUPS,
    PARTLY,
    SETTINGS,
    UNDECIDED,
    Claim,
    Runs,
    Setting,
    claims,
    setting_of,
)
from experiments.paper import PaperSettings
from experiments.tables import interval
from shapshift.mechanism import SCENARIOS
from shapshift.plots._figure import CLEAN, CORRECTED, NOISY, NONBOUNDARY, new_axes, save_figure, tidy

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
SCENARIO_TITLES = {"BB": "BB: two boundary points", "NN": "NN: two non-boundary points", "BN": "BN: one of each"}
VERSIONS = {
    "clean": ("clean", CLEAN, ":"),
    "noisy": ("noisy", NOISY, "-"),
    "boundary": ("corrected", CORRECTED, "-"),
    "entropy": ("normalised by entropy", NONBOUNDARY, "--"),
}
#: Fill and mark of a cell.
SIDES = {FOR: ("#A6DBCB", "✓"), AGAINST: ("#F4B183", "✗"), UNDECIDED: ("#E3E3E3", "?")}

#: Values of seed 0 by dataset, then by version.
Examples = dict[str, dict[str, list[float]]]
#: Points and pairs that the figures of the cases average over.
FIGURE_SETS = 30


def draw_all(
    folder: Path, runs: Runs, tables: Mapping[str, pd.DataFrame], examples: Examples, settings: PaperSettings
) -> None:
    """Draw every figure that has results into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    made = claims(settings)

    def keep(name: str, drawn: Any) -> None:
        save_figure(drawn, folder / name, close=True)

    keep("matrix", draw_matrix(tables["matrix"], tables["claims"], made))
    shifted = tuple(name for name in ("gaussian", "creditcard") if name in settings.datasets)
    if shifted:
        keep("figure2_shift", draw_shift(runs, examples, shifted, settings))
    if "gaussian" in settings.datasets:
        keep("figure1_noise_demo", paper.demo(settings).plot())
        ones, twos = paper.cases("gaussian", 0, FIGURE_SETS, settings)
        keep("figure3_case_one", ones[0].plot(*ones[1:]))
        keep("figure4_case_two", twos[0].plot(*twos[1:]))
        keep("figure5_case_two_levels", draw_case_two_levels(runs, settings))
    groups = {
        "figure6_correction_gaussian": ("gaussian",),
        "figure7_correction_phoneme_2dplanes_pol": ("phoneme", "2dplanes", "pol"),
        "figure8_correction_cpu_news20_creditcard": ("cpu", "news20", "creditcard"),
    }
    for name, group in groups.items():
        datasets = tuple(dataset for dataset in group if dataset in settings.datasets)
        if datasets:
            keep(name, draw_correction(runs, examples, datasets, settings))


def draw_matrix(matrix: pd.DataFrame, judged: pd.DataFrame, made: Sequence[Claim]) -> Any:
    """Claims in rows, settings in columns; the paper's own setting is framed, with the verdict next to it."""
    cells: list[dict[str, Any]] = [dict(cell, setting=setting_of(cell)) for _, cell in matrix.iterrows()]
    run = {cell["setting"] for cell in cells}
    columns = [setting for setting in SETTINGS if setting in run]
    groups = [group for group in GROUPS if group in {setting.group for setting in columns}]
    gap = {group: 0.4 * at + (1.5 if at else 0.0) for at, group in enumerate(groups)}  # space for the verdicts
    place = {setting: at + gap[setting.group] for at, setting in enumerate(columns)}
    rows = {claim.number: at for at, claim in enumerate(made)}
    ax = new_axes(size=(4.8 + 0.8 * len(columns), 1.6 + 0.29 * len(made)))
    for cell in cells:
        x, y = place[cell["setting"]], rows[cell["claim"]]
        fill, mark = SIDES[cell["verdict"]]
        ax.add_patch(_rectangle(x, y, fill, own=cell["own"] and made[y].claimed))
        ax.text(x, y, f"{mark} {cell['shown']}", ha="center", va="center", fontsize=7.5, zorder=4)
    right = max(x for setting, x in place.items() if setting.group == groups[0]) + 0.6
    for claim, words in zip(made, spoken_verdicts(judged), strict=True):
        text, weight = (words, "bold") if claim.claimed else ("not claimed", "normal")
        ax.text(right, rows[claim.number], text, va="center", fontsize=9, fontweight=weight)
    ax.set_yticks(list(rows.values()), [_label(claim) for claim in made], fontsize=8.5)
    for group in groups:
        inside = [place[setting] for setting in columns if setting.group == group]
        heading = "the paper's setting: balanced classes, soft utility" if group == GROUPS[0] else group
        ax.text(np.mean(inside), -2.0, heading, ha="center", fontsize=10, fontweight="bold")
    for setting, x in place.items():
        ax.text(x, -0.85, TITLES[setting.dataset], ha="center", fontsize=8.5)
    ax.set_xticks([])
    ax.tick_params(length=0)
    ax.set(xlim=(-0.6, max(max(place.values()) + 0.6, right + 1.6)), ylim=(len(made) - 0.4, -2.5))
    ax.grid(False)
    for spine in ax.spines.values():
        spine.set_visible(False)
    legend = [
        _rectangle(0, 0, SIDES[FOR][0], own=True, label="the paper's own setting (framed)"),
        *(_rectangle(0, 0, fill, own=False, label=f"{mark} {side}") for side, (fill, mark) in SIDES.items()),
    ]
    ax.legend(handles=legend, loc="upper center", bbox_to_anchor=(0.4, 0.0), ncols=4, frameon=False, fontsize=9)
    return ax


def spoken_verdicts(judged: pd.DataFrame) -> list[str]:
    """Verdicts; "in part" includes the number of cells for the claim, of those run."""
    columns = judged[["verdict", "own_for", "own_cells"]].to_numpy().tolist()
    return [f"{said}, {mine}/{cells}" if said == PARTLY and cells > 1 else said for said, mine, cells in columns]


def _rectangle(x: float, y: float, fill: str, *, own: bool, label: str = "") -> Any:
    from matplotlib.patches import Rectangle

    edge: dict[str, Any] = {"edgecolor": "white", "linewidth": 0.8}
    if own:
        edge = {"edgecolor": "#222222", "linewidth": 1.6, "zorder": 3}
    return Rectangle((x - 0.47, y - 0.43), 0.94, 0.86, facecolor=fill, label=label, **edge)


def _label(claim: Claim) -> str:
    return f"{claim.short}   {claim.number if claim.claimed else f'({claim.number})'}"


def draw_case_two_levels(runs: Runs, settings: PaperSettings) -> Any:
    """Rows that change sign against the noise, per scenario, with bands over seeds."""
    axes = new_axes(1, len(SCENARIOS), size=(4.0, 3.4), sharey=True).ravel()
    for ax, scenario in zip(axes, SCENARIOS, strict=True):
        for statistic, name, colour, style in (
            ("positive_to_negative", "positive to negative", NOISY, "-"),
            ("negative_to_positive", "negative to positive", CORRECTED, "--"),
        ):
            _band(ax, runs.at(Setting("gaussian"), statistic, scenario), colour, name, style)
        tidy(ax, xlabel="noise level", title=SCENARIO_TITLES[scenario], legend=ax is axes[0])
    tidy(axes[0], ylabel="training rows that change sign")
    return axes


def draw_shift(runs: Runs, examples: Examples, datasets: tuple[str, ...], settings: PaperSettings) -> Any:
    """Value distribution, mean, spread and positive count under noise."""
    axes = np.atleast_2d(new_axes(len(datasets), 4, size=(3.6, 3.1)))
    for row, dataset in zip(axes, datasets, strict=True):
        _distributions(row[0], {name: examples[dataset][name] for name in ("clean", "noisy")}, settings)
        tidy(row[0], title=f"{TITLES[dataset]}: values", xlabel="value", ylabel="training rows", legend=True)
        for ax, (statistic, label) in zip(row[1:], STATISTICS.items(), strict=True):
            _band(ax, _curve(runs, dataset, statistic, "noisy"), NOISY, "noisy", "-")
            tidy(ax, xlabel="noise level", title=label)
            if statistic != "positive_count":
                ax.ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    return axes


def draw_correction(runs: Runs, examples: Examples, datasets: tuple[str, ...], settings: PaperSettings) -> Any:
    """Distribution, spread, positive count and distance to the clean distribution: clean, noisy and corrected."""
    axes = np.atleast_2d(new_axes(len(datasets), 4, size=(3.6, 3.1)))
    panels = {
        "std": "standard deviation",
        "positive_count": "positive values",
        "wasserstein": "W1 to the clean values (in their std)",
    }
    for row, dataset in zip(axes, datasets, strict=True):
        _distributions(row[0], examples[dataset], settings)
        tidy(row[0], title=f"{TITLES[dataset]}: values", xlabel="value", ylabel="training rows", legend=True)
        for ax, (statistic, label) in zip(row[1:], panels.items(), strict=True):
            for version, (name, colour, style) in VERSIONS.items():
                if version != "clean":
                    _band(ax, _curve(runs, dataset, statistic, version), colour, name, style)
                elif statistic != "wasserstein":
                    clean = runs.clean(Setting(dataset), statistic).mean()
                    ax.axhline(clean, color=colour, ls=style, label=name)
            tidy(ax, xlabel="noise level", title=label, legend=ax is row[1])
        row[1].ticklabel_format(axis="y", style="sci", scilimits=(0, 0))
    return axes


def _curve(runs: Runs, dataset: str, statistic: str, version: str) -> pd.DataFrame:
    """A statistic by noise level, starting at no noise."""
    here = Setting(dataset)
    return pd.concat([runs.clean(here, statistic).to_frame(0.0), runs.at(here, statistic, version)], axis=1)


def _band(ax: Any, curve: pd.DataFrame, colour: str, name: str, style: str) -> None:
    noise, points = curve.columns.tolist(), [interval(curve[sigma]) for sigma in curve]
    ax.plot(noise, [point.mean for point in points], color=colour, ls=style, label=name)
    ax.fill_between(noise, [p.low for p in points], [p.high for p in points], color=colour, alpha=0.2, lw=0)


def _distributions(ax: Any, values: dict[str, list[float]], settings: PaperSettings) -> None:
    everything = np.concatenate([np.array(each) for each in values.values()])
    low, high = np.quantile(everything, [0.005, 0.995]).tolist()
    edges = np.linspace(low, high, 60)
    for version, each in values.items():
        name, colour, _ = VERSIONS[version]
        label = name if version == "clean" else f"{name} (noise {settings.level:g})"
        ax.hist(np.clip(each, edges[0], edges[-1]), bins=edges, histtype="step", color=colour, lw=1.5, label=label)
    ax.axvline(0, color="#888888", lw=0.8)
    ax.ticklabel_format(axis="x", style="sci", scilimits=(0, 0))
