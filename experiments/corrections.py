"""Comparison of corrections that restore the clean values, with and without clean data.

Cells measure the values, and how well they find mislabelled rows. Bars, set in advance, are judged by means over seeds.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from experiments.cells import REAL, Settings, protocols, run_cells
from experiments.tables import Interval, interval, markdown_table, write_page, write_table
from shapshift import BoundaryCorrector, EntropyNormalizer, FlipLabels, GaussianNoise, KNNShapley, PosteriorCorrector
from shapshift.agreement import agreement, distribution, spearman
from shapshift.correct import CorrectionWarning
from shapshift.data import load_dataset
from shapshift.plots._figure import CLEAN, CORRECTED, NOISY, new_axes, save_figure, tidy

Record = dict[str, Any]

#: Keys of a table cell; its numbers are means over seeds.
CELL = ["dataset", "protocol", "sigma"]
TOLERATED = 0.005
WANTED_GAIN = 0.15
WANTED_SHARE = 0.9

STATISTICS = {
    "spearman": ("Rank agreement (Spearman) with the clean values", 3),
    "rmse": ("Error (root mean square), in standard deviations of the clean values", 3),
    "sign_agreement": ("Share of rows with the sign they have when clean", 3),
    "std_ratio": ("Standard deviation of the values, relative to the clean one", 2),
    "positive_difference": ("Positive values, more (+) or fewer (-) than when clean", 0),
}

INTRODUCTION = """# Corrections compared

Noisy, corrected and clean values of the same training rows. Written by `make reproduce
ARGS={arguments}`; nothing on this page is typed by hand. `docs/correction.md`
says what the corrections are.

**How.** Soft-label KNN-Shapley with K = {k}, {n_train:,} training and {n_val:,} validation rows, {seeds} seeds; every
seed draws its own split and its own noise. Noise is Gaussian, on the validation features only, in units of each
feature's standard deviation over the training rows. Protocols: *balanced* (classes balanced by oversampling before the
split; copies of one row can then stand on both sides) and *natural*; the Gaussian classes are balanced by construction.
`noisy` is no correction. `boundary` and `entropy` know the spread of the clean values and how many are positive.
`posterior` knows the noise and the training rows, nothing of the clean validation set; at most {draws} draws per point.
`posterior+boundary` and `posterior+entropy` know both. For mislabelled rows, {flipped:.0%} of the training labels were
made wrong, on {detection_seeds} seed(s); the number is the area under the ROC curve of finding them by low values.
"Clearly" below: the 95% interval over seeds of the difference lies below 0.

**How the choices were made.** On synthetic families of data; the last of them by a protocol that was written down
before its run (`experiments/correction_choices.py`). What is left open is chosen on the training rows at hand, without
validation rows. Nothing was changed after a look at these tables; `docs/correction.md` says more. The bars were set
beforehand.
"""


@dataclass(frozen=True, kw_only=True)
class CorrectionSettings(Settings):
    """Sizes of the benchmark.

    Attributes
    ----------
    n_neighbors : int
    noise : tuple of float
        Standard deviation of the noise in units of each feature's standard deviation over the training rows.
    detection_seeds : int
        Number of seeds on which mislabelled rows are searched for.
    flipped : float
        Share of training labels that are made wrong for the search.
    draws : int
        Draws per point of the posterior.
    """

    n_neighbors: int = 5
    noise: tuple[float, ...]
    detection_seeds: int
    flipped: float = 0.1
    draws: int

    ELSEWHERE: ClassVar[tuple[str, ...]] = ("name", "datasets", "data_dir", "seeds", "detection_seeds")
    CELL_FORMAT: ClassVar[dict[str, int]] = {"format": 2}


FULL = CorrectionSettings(
    n_train=3000, n_val=1000, noise=(0.1, 0.2, 0.4, 0.8, 1.5), seeds=10, detection_seeds=10, draws=8
)
QUICK = CorrectionSettings(name="quick", n_train=600, n_val=300, noise=(0.2, 0.8), seeds=2, detection_seeds=1, draws=4)


def run_corrections(folder: Path, settings: CorrectionSettings = FULL, page: Path | None = None) -> Path:
    """Compare corrections with the clean values, and look for mislabelled rows, under noise.

    Parameters
    ----------
    folder : Path
        Gets ``tables/`` (CSV), a figure of the idea, and ``cells/``.
    settings : CorrectionSettings, default=FULL
    page : Path, optional
        Where to write the page of results; ``benchmark.md`` in the folder by default.

    Returns
    -------
    Path
        The page.
    """
    keys = settings.keys()
    work: dict[tuple[str, str, str, int], tuple[str, Callable[[], list[Record]]]] = {}
    for seed in range(settings.seeds):
        for name in settings.datasets:
            for protocol in protocols(name):
                given = (name, protocol, seed, settings)
                work[name, protocol, "values", seed] = keys[name], partial(recovery, *given)
                if seed < settings.detection_seeds:
                    work[name, protocol, "labels", seed] = keys[name], partial(detection, *given)
    records: dict[str, list[Record]] = {"values": [], "labels": []}
    for (name, protocol, kind, seed), found in run_cells(folder / "cells", work).items():
        records[kind] += [{"dataset": name, "protocol": protocol, "seed": seed, **record} for record in found]
    values, labels = (pd.DataFrame(rows) for rows in records.values())
    bars = judge_bars(values, labels)
    write_table(folder / "tables" / "values", values)
    write_table(folder / "tables" / "mislabelled", labels)
    write_table(folder / "tables" / "bars", pd.DataFrame([bar.record() for bar in bars]))
    draw_idea(folder / "posterior")
    return write_comparison(page or folder / "benchmark.md", values, labels, bars, settings)


# --- measuring -------------------------------------------------------------------------------------------------------


def recovery(dataset: str, protocol: str, seed: int, settings: CorrectionSettings) -> list[Record]:
    """Compare each correction with the clean values of one split, at every level of noise."""
    data = settings.load(dataset, protocol, seed)
    model = KNNShapley(settings.n_neighbors, progress=False).fit(data.X_train, data.y_train)
    clean = model.value(data.X_val, data.y_val)
    boundary, entropy = BoundaryCorrector().fit(clean), EntropyNormalizer().fit(clean)
    records: list[Record] = []
    for number, sigma in enumerate(settings.noise):
        noise = GaussianNoise(sigma, relative=True, random_state=seed * len(settings.noise) + number).bind(model)
        X_noisy, y_val = noise(data.X_val, data.y_val)
        noisy = model.value(X_noisy, y_val)
        corrector = PosteriorCorrector(noise, draws=settings.draws, random_state=seed, progress=False).fit(model)
        with warnings.catch_warnings():
            # Warnings about ties and empty parts of a validation set; the documented rules apply.
            warnings.simplefilter("ignore", CorrectionWarning)
            posterior = corrector.transform(X_noisy, y_val)
            versions = {
                "noisy": noisy,
                "boundary": boundary.transform(noisy),
                "entropy": entropy.transform(noisy),
                "posterior": posterior,
                "posterior+boundary": boundary.transform(posterior),
                "posterior+entropy": entropy.transform(posterior),
            }
        for method, valuation in versions.items():
            rows = agreement(valuation.values, clean.values)
            spread = distribution(valuation.values, clean.values)
            flips = rows["flips_to_negative"] + rows["flips_to_positive"]
            records.append(
                {
                    "sigma": sigma,
                    "method": method,
                    "spearman": rows["spearman"],
                    "rmse": rows["rmse"],
                    "sign_agreement": 1 - flips / clean.n_train,
                    "std_ratio": spread["std_ratio"],
                    "positive_count": spread["positive_count"],
                    "positive_difference": spread["positive_difference"],
                }
            )
    return records


def detection(dataset: str, protocol: str, seed: int, settings: CorrectionSettings) -> list[Record]:
    """Make training labels wrong, and measure how well low values find them: area under the ROC curve."""
    data = settings.load(dataset, protocol, seed)
    _, y_wrong = FlipLabels(settings.flipped, random_state=seed)(data.X_train, data.y_train)
    wrong = np.asarray(y_wrong) != data.y_train
    model = KNNShapley(settings.n_neighbors, progress=False).fit(data.X_train, y_wrong)
    clean = _area(model.value(data.X_val, data.y_val).values, wrong)
    records: list[Record] = []
    for number, sigma in enumerate(settings.noise):
        noise = GaussianNoise(sigma, relative=True, random_state=seed * len(settings.noise) + number).bind(model)
        X_noisy, y_val = noise(data.X_val, data.y_val)
        corrector = PosteriorCorrector(noise, draws=settings.draws, random_state=seed, progress=False).fit(model)
        with warnings.catch_warnings():
            # Only the training labels are made wrong; points and noise are as stated.
            warnings.simplefilter("ignore", CorrectionWarning)
            posterior = corrector.transform(X_noisy, y_val)
        records.append(
            {
                "sigma": sigma,
                "clean": clean,
                "noisy": _area(model.value(X_noisy, y_val).values, wrong),
                "posterior": _area(posterior.values, wrong),
            }
        )
    return records


def _area(values: Any, wrong: Any) -> float:
    return float(roc_auc_score(wrong, -values))


# --- judging ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A bar, and its result.

    Attributes
    ----------
    bar : str
        Requirement.
    found : str
        Measured number.
    holds : bool
    exceptions : tuple of str
        Cells that fail.
    """

    bar: str
    found: str
    holds: bool
    exceptions: tuple[str, ...] = ()

    def record(self) -> dict[str, Any]:
        """Return the bar as a row of a table."""
        said = "holds" if self.holds else "does not hold"
        return {"bar": self.bar, "found": self.found, "verdict": said, "exceptions": "; ".join(self.exceptions)}


def cell_means(values: pd.DataFrame, statistic: str) -> pd.DataFrame:
    """Means of a statistic over seeds: one row per cell, one column per method."""

    def mean(sample: pd.Series) -> float:
        # NumPy's sum: pandas rounds differently, and some published means lie halfway between two digits.
        return float(sample.to_numpy().mean())

    return pd.DataFrame(
        {
            method: rows.groupby(CELL, sort=False)[statistic].agg(mean)
            for method, rows in values.groupby("method", sort=False)
        }
    )


def judge_bars(values: pd.DataFrame, labels: pd.DataFrame) -> list[Bar]:
    """Judge every bar by agreement with the clean values, and by areas under the curve for mislabelled rows."""
    order, error = cell_means(values, "spearman"), cell_means(values, "rmse")
    gain = order["posterior"] - order["noisy"]
    bars = [_never_worse(gain)]
    strong = gain[gain.index.isin(REAL, level="dataset") & (gain.index.get_level_values("sigma") >= 0.8)]
    if not strong.empty:
        mean = float(strong.mean())
        bars.append(
            Bar(
                f"Mean gain in Spearman at noise 0.8 and more, over the real datasets: at least {WANTED_GAIN}",
                f"{mean:+.3f}",
                mean >= WANTED_GAIN,
            )
        )
    bars.append(_smaller_error(error))
    return bars if labels.empty else bars + _detection(labels)


def _never_worse(gain: pd.Series) -> Bar:
    worse = gain[gain < -TOLERATED]
    return Bar(
        f"Spearman with the clean values at least that of the noisy values - {TOLERATED} in every cell",
        f"{len(gain) - len(worse)} of {len(gain)} cells; least {gain.min():+.4f} ({show_cell(gain.idxmin())})",
        worse.empty,
        tuple(f"{show_cell(cell)}: {number:+.4f}" for cell, number in worse.items()),
    )


def _smaller_error(error: pd.DataFrame) -> Bar:
    noisy = error[error.index.get_level_values("sigma") >= 0.4]
    above = noisy[noisy["posterior"] >= noisy[["noisy", "boundary"]].min(axis=1)]
    share = 1 - len(above) / len(noisy) if len(noisy) else 1.0
    return Bar(
        f"Error below that of the noisy and of the boundary-corrected values in {WANTED_SHARE:.0%} of the cells with "
        "noise 0.4 and more",
        f"{len(noisy) - len(above)} of {len(noisy)} cells ({share:.0%})",
        share >= WANTED_SHARE,
        tuple(
            f"{show_cell(cell)}: {row['posterior']:.3f} against {row['noisy']:.3f} (noisy), {row['boundary']:.3f} "
            "(boundary)"
            for cell, row in above.iterrows()
        ),
    )


def _detection(labels: pd.DataFrame) -> list[Bar]:
    gains = labels.assign(gain=labels["posterior"] - labels["noisy"]).groupby(CELL, sort=False)
    area = gains[["clean", "noisy", "posterior"]].mean()
    area["gain"] = area["posterior"] - area["noisy"]
    spread: dict[Any, Interval] = {cell: interval(sample) for cell, sample in gains["gain"]}
    worse = area[area["gain"] < 0]
    # The interval of a single seed has no width and cannot show significance.
    below = [cell for cell in worse.index if spread[cell].low < spread[cell].high < 0]
    above = [cell for cell in area.index if 0 < spread[cell].low < spread[cell].high]
    mean = float(area["gain"].mean())
    return [
        Bar(
            "Mislabelled rows: area under the curve not below that of the noisy values in any cell",
            f"{len(area) - len(worse)} of {len(area)} cells. By more than chance over seeds (95%), {len(below)} are "
            f"below and {len(above)} above. In {(worse['clean'] < worse['noisy']).sum()} of the {len(worse)} below, "
            "the clean values are below too",
            worse.empty,
            tuple(
                f"{show_cell(cell)}: {row['gain']:+.4f} [{spread[cell].low:+.4f}, {spread[cell].high:+.4f}]"
                f"{' (clearly)' if cell in below else ''}, noisy {row['noisy']:.4f}, clean {row['clean']:.4f}"
                for cell, row in worse.iterrows()
            ),
        ),
        Bar("Mislabelled rows: area under the curve better on average", f"{mean:+.4f}", mean > 0),
    ]


def show_cell(cell: Any) -> str:
    """Name a cell, given by its dataset, protocol and noise level."""
    return f"{cell[0]} {cell[1]} {cell[2]:g}"


# --- the page and the figure -----------------------------------------------------------------------------------------


def write_comparison(
    page: Path, values: pd.DataFrame, labels: pd.DataFrame, bars: list[Bar], settings: CorrectionSettings
) -> Path:
    """Write the page: bars and tables."""
    parts = [
        INTRODUCTION.format(
            arguments='"corrections --quick"' if settings.name == "quick" else "corrections",
            k=settings.n_neighbors,
            n_train=settings.n_train,
            n_val=settings.n_val,
            seeds=settings.seeds,
            draws=settings.draws,
            flipped=settings.flipped,
            detection_seeds=settings.detection_seeds,
        ),
        "## Bars\n",
        markdown_table(
            [
                {"bar": bar.bar, "found": bar.found, "verdict": f"**{'holds' if bar.holds else 'does not hold'}**"}
                for bar in bars
            ]
        ),
    ]
    parts += [
        f'Exceptions to "{bar.bar}":\n\n' + "\n".join(f"- {cell}" for cell in bar.exceptions) + "\n"
        for bar in bars
        if bar.exceptions
    ]
    parts.append("## On average\n\nMeans over datasets and protocols, Gaussian apart.\n")
    parts += _averages(values)
    parts.append("## Cell by cell\n\nMeans over seeds.\n")
    for statistic, (title, digits) in STATISTICS.items():
        number = f"{'+' if digits == 0 else ''}.{digits}f"
        parts += [f"### {title}\n", _cells(cell_means(values, statistic), number)]
    if not labels.empty:
        means = labels.groupby(CELL, sort=False)[["clean", "noisy", "posterior"]].mean()
        parts += ["### Finding mislabelled rows (area under the ROC curve)\n", _cells(means, ".4f")]
    return write_page(page, parts)


def _averages(values: pd.DataFrame) -> list[str]:
    parts = []
    for group, names in (("Real datasets", REAL), ("Gaussian", ("gaussian",))):
        here = values[values["dataset"].isin(names)]
        rows = [
            {"noise": f"{sigma:g}"}
            | {
                str(method): f"{rows['spearman'].mean():.3f} ({rows['rmse'].mean():.2f})"
                for method, rows in at.groupby("method", sort=False)
            }
            for sigma, at in here.groupby("sigma")
        ]
        if rows:
            parts += [f"**{group}**: rank agreement (error)\n", markdown_table(rows)]
    return parts


def _cells(means: pd.DataFrame, number: str) -> str:
    shown = means.map(f"{{:{number}}}".format).reset_index()
    shown["sigma"] = shown["sigma"].map("{:g}".format)
    return markdown_table(shown.rename(columns={"sigma": "noise"}))


def draw_idea(path: Path) -> None:
    """Illustrate the method on Gaussian data: one noisy point with its possible origins, and the values of all rows."""
    sigma, n_draws = 0.8, 60
    data = load_dataset("gaussian", n_train=1500, n_val=500)
    model = KNNShapley(progress=False).fit(data.X_train, data.y_train)
    noise = GaussianNoise(sigma, random_state=0)
    X_noisy, y_val = noise(data.X_val, data.y_val)
    corrector = PosteriorCorrector(noise, progress=False).fit(model)
    values = {
        "clean": model.value(data.X_val, data.y_val).values,
        "noisy": model.value(X_noisy, y_val).values,
        "corrected": corrector.transform(X_noisy, y_val).values,
    }
    # A point of the outer class that noise moved well into the disc of the other class.
    radius = np.hypot(*X_noisy.T)
    outside = data.y_val == 1
    shown = int(np.flatnonzero(outside)[np.argmin(np.abs(radius[outside] - 0.6))])
    drawn = corrector.draw_points(X_noisy[[shown]], y_val[[shown]], n_draws)
    panels = new_axes(1, 3, size=(4.4, 3.9)).ravel()
    ax = panels[0]
    ax.scatter(
        *data.X_train[data.y_train == 1].T, s=7, color="#BBBBBB", linewidths=0, label="training rows of its class"
    )
    angle = np.linspace(0, 2 * np.pi, 100)
    for times in (1, 2):
        circle = X_noisy[shown][:, None] + times * sigma * np.array([np.cos(angle), np.sin(angle)])
        ax.plot(*circle, color=NOISY, lw=0.8, ls=":")
    ax.scatter(*drawn[0].T, s=16, color=CORRECTED, linewidths=0, alpha=0.7, label="what it may have been")
    ax.scatter(*X_noisy[shown], s=70, color=NOISY, marker="X", label="noisy point, as given")
    ax.scatter(*data.X_val[shown], s=110, color=CLEAN, marker="*", label="clean point, unknown", zorder=4)
    ax.set_aspect("equal", adjustable="datalim")
    tidy(ax, xlabel="first feature", ylabel="second feature", title="One validation point")
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, -0.17), ncols=2, fontsize=8, frameon=False, columnspacing=1.0)
    low, high = np.quantile(np.concatenate([values[name] for name in ("clean", "noisy", "corrected")]), [0.002, 0.998])
    for ax, name, colour in zip(panels[1:], ("noisy", "corrected"), (NOISY, CORRECTED), strict=True):
        ax.axline((0, 0), slope=1, color=CLEAN, lw=1, ls="--")
        ax.scatter(values["clean"], values[name], s=6, alpha=0.4, color=colour, linewidths=0, rasterized=True)
        ax.set(xlim=(low, high), ylim=(low, high))
        ax.ticklabel_format(style="sci", scilimits=(-2, 3))
        agreed = spearman(values[name], values["clean"])
        tidy(
            ax,
            xlabel="clean value of a training row",
            ylabel=f"{name} value",
            title=f"All rows, {name}: Spearman {agreed:.2f}",
        )
    save_figure(panels, path, close=True)
