"""Agreement of values with those on the population, and accuracy of pooling, intervals and predicted reliability.

The population is the rows of a file that no split uses for training. Values on all of them are known, so values on a
few, drawn as a validation set, can be compared with the values that they estimate.
"""

import os
import textwrap
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow.parquet as pq
from scipy.stats import rankdata

from experiments.cells import DATASETS, Settings, run_cells
from experiments.corrections import Bar
from experiments.tables import markdown_table, write_page, write_tables
from shapshift import FlipLabels, GaussianNoise, KNNShapley, PosteriorCorrector, Valuation, cross_value
from shapshift.agreement import agreement
from shapshift.data.sources import data_folder
from shapshift.plots._figure import BOUNDARY, CLEAN, CORRECTED, NOISY, NONBOUNDARY, new_axes, save_figure, tidy
from shapshift.tables.files import file_digest

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Record = dict[str, Any]

#: Files not named after their dataset: samples of 10,000 rows with equal numbers of each class.
FILES = {"2dplanes": "2dplanes_10k", "pol": "pol_10k", "creditcard": "creditcard_10k"}
#: Embeddings, whose features share one scale.
UNSCALED = ("news20",)
#: Seed of the centres and rows of the Gaussian mixture, besides that of the split.
MIXTURE = 2026

REGIMES = {
    "same": "same population",
    "wrong 10%": "10% wrong training labels",
    "wrong 30%": "30% wrong training labels",
    "features": "part of the feature space",
    "shares": "class shares shifted",
}
FLIPPED = {"wrong 10%": 0.1, "wrong 30%": 0.3}
#: Part of the rows from which validation sets are drawn when features are shifted.
REGION = 0.4
#: Divisor of the odds of all classes but one when shares are shifted.
ODDS = 4
NOISE = 0.5
METHODS = {"plain": "plain", "pooled": "pooled", "weight": "one weight", "rows": "training rows alone"}
CORRECTED_METHODS = {
    "clean": "plain, clean points",
    "plain": "plain",
    "pooled": "pooled",
    "posterior": "posterior",
    "both": "posterior, pooled",
}
STATISTICS = {"spearman": "Spearman", "top": "top-10% overlap", "rmse": "RMSE"}
SEMIVALUES = {"shapley": "Shapley", "banzhaf": "Banzhaf", "loo": "leave-one-out"}
STATEMENTS = {
    "rank": "rank intervals that hold the rank",
    "rank_width": "their width, as part of all rows",
    "sure": "rows called surely positive or negative",
    "sure_right": "of these, right",
    "stated": "mean probability of the likelier sign",
    "sign_right": "how often that is the sign",
    "group": "class intervals that hold",
}
CELL = ["dataset", "regime", "m"]

# Bars, set in advance.
SURE_POINTS = 200
LEAST_COVERAGE, MEAN_COVERAGE, FEW_COVERAGE = 0.92, (0.94, 0.97), 0.90
RELIABILITY_ERROR = 0.05
WANTED_SPEARMAN, WANTED_RATIO, TOLERATED, WANTED_GAIN = 0.85, 0.5, 0.01, 0.04


@dataclass(frozen=True, kw_only=True)
class PopulationSettings(Settings):
    """Sizes of the benchmark.

    Attributes
    ----------
    n_val : int
        Most rows for validation points and their population.
    points : tuple of int
        Sizes of validation sets.
    draws : int
        Validation sets of each size and seed, for the coverage of plain intervals and for reliability.
    pooled_draws : int
        The same for pooled intervals.
    truths : int
        Validation sets whose values are correlated with each other to compute the true reliability.
    noisy_points : tuple of int
        Sizes of noisy validation sets.
    noisy_seeds : int
        Number of seeds with noisy validation sets.
    n_neighbors : int
    """

    points: tuple[int, ...] = (50, 100, 200, 500, 1000)
    draws: int
    pooled_draws: int
    truths: int
    noisy_points: tuple[int, ...] = (50, 200)
    noisy_seeds: int = 5
    n_neighbors: int = 5

    ELSEWHERE: ClassVar[tuple[str, ...]] = ("name", "datasets", "data_dir", "seeds", "noisy_seeds")
    CELL_FORMAT: ClassVar[dict[str, int]] = {"format": 1}

    def keys(self) -> dict[str, str]:
        """Return the keys of cells by dataset: of the settings, and of the dataset's file."""
        return {name: f"{self.digest}-{self._source(name)}" for name in self.datasets}

    def _source(self, dataset: str) -> str:
        return f"mixture-{MIXTURE}" if dataset == "gaussian" else file_digest(self.path(dataset))[:16]

    def path(self, dataset: str) -> Path:
        """Return the file of a dataset."""
        name, folder = f"{FILES.get(dataset, dataset)}.parquet", data_folder(self.data_dir)
        if folder is None or not (folder / name).is_file():
            raise FileNotFoundError(
                f"The benchmark of populations reads {name}, which was not found. Name its folder with "
                "--data-dir or SHAPSHIFT_DATA, or run without files: --datasets gaussian."
            )
        return folder / name


FULL = PopulationSettings(n_train=1000, n_val=6000, seeds=10, draws=8, pooled_draws=2, truths=60)
QUICK = PopulationSettings(
    name="quick", n_train=300, n_val=1500, seeds=2, points=(50, 200), draws=2, pooled_draws=1, truths=20, noisy_seeds=1
)


def run_population(folder: Path, settings: PopulationSettings = FULL, page: Path | None = None) -> Path:
    """Compare values with those on the population; check intervals and predicted reliability.

    Parameters
    ----------
    folder : Path
        Gets ``tables/`` (CSV), two figures, and ``cells/``.
    settings : PopulationSettings, default=FULL
    page : Path, optional
        Where to write the page of results; ``population.md`` in the folder by default.

    Returns
    -------
    Path
        The page.
    """
    keys = settings.keys()
    kinds: dict[str, Callable[..., list[Record]]] = {
        "values": nearness,
        "sampling": sampling,
        "statements": statements,
        "noisy": noisy,
    }
    work = {
        (name, kind, seed): (keys[name], partial(measure, name, seed, settings))
        for seed in range(settings.seeds)
        for name in settings.datasets
        for kind, measure in kinds.items()
        if kind != "noisy" or seed < settings.noisy_seeds
    }
    records: dict[str, list[Record]] = {kind: [] for kind in kinds}
    for (name, kind, seed), found in run_cells(folder / "cells", work).items():
        records[kind] += [{"dataset": name, "seed": seed, **_rounded(record)} for record in found]
    tables = {kind: pd.DataFrame(rows) for kind, rows in records.items()}
    write_tables(folder, tables)
    draw_figures(folder, tables)
    return write_population(page or folder / "population.md", folder, tables, settings)


def _rounded(record: Record) -> Record:
    return {key: round(entry, 4) if isinstance(entry, float) else entry for key, entry in record.items()}


# --- data ------------------------------------------------------------------------------------------------------------


class Split(NamedTuple):
    """Training rows, and all other rows, in random order."""

    X_train: Floats
    y_train: npt.NDArray[Any]
    X: Floats
    y: npt.NDArray[Any]


def load_split(dataset: str, seed: int, settings: PopulationSettings) -> Split:
    """Split a dataset; features are standardised by the training rows, except embeddings."""
    rng = np.random.default_rng(seed)
    if dataset == "gaussian":
        X, y = mixture(10_000, rng)
    else:
        table = pq.read_table(settings.path(dataset))
        names = [name for name in table.column_names if name not in ("label", "group", "split")]
        X, y = (
            np.column_stack([np.asarray(table[name], dtype=np.float64) for name in names]),
            np.asarray(table["label"]),
        )
    order = rng.permutation(y.size)
    X, y, n = X[order], y[order], settings.n_train
    if dataset not in UNSCALED:
        spread = X[:n].std(axis=0)
        X = (X - X[:n].mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return Split(X[:n], y[:n], X[n:], y[n:])


def mixture(n_rows: int, rng: np.random.Generator) -> tuple[Floats, npt.NDArray[Any]]:
    """Draw rows of three classes, each of two Gaussian clouds in eight dimensions."""
    centres = np.random.default_rng(MIXTURE).normal(0.0, 1.0, (3, 2, 8))
    y = rng.choice(3, n_rows, p=[0.5, 0.3, 0.2])
    return centres[y, rng.integers(0, 2, n_rows)] + rng.normal(0.0, 1.0, (n_rows, 8)), y


@dataclass(frozen=True)
class Scene:
    """A fitted model, and the rows from which validation sets are drawn.

    Attributes
    ----------
    model : KNNShapley
    X_train : ndarray
        Its training rows.
    X, y : ndarray
        The population.
    matrix : ndarray of shape (n_points, n_train)
        Value of every training row on each of its points.
    shares : ndarray or None
        Shares of the classes 0, 1, ... in the population, if they differ from those of its rows.
    """

    model: KNNShapley
    X_train: Floats
    X: Floats
    y: npt.NDArray[Any]
    matrix: Floats
    shares: Floats | None = None

    def draw(self, m: int, rng: np.random.Generator, *, replace: bool = False) -> Indices:
        """Draw a validation set."""
        if self.shares is None:
            return rng.choice(self.y.size, m, replace=replace)
        counts = rng.multinomial(m, self.shares)
        return np.concatenate(
            [rng.choice(np.flatnonzero(self.y == c), count, replace=replace) for c, count in enumerate(counts)]
        )

    def truth(self, without: Indices | None = None) -> Floats:
        """Values on the population, or on the population without some points."""
        weights = np.ones(self.y.size)
        if without is not None:
            weights[without] = 0.0
        if self.shares is not None:
            weights *= (self.shares / np.bincount(self.y, weights, minlength=self.shares.size))[self.y]
        found: Floats = weights @ self.matrix / weights.sum()
        return found

    def value(self, points: Indices, **options: Any) -> Valuation:
        """Value the training rows on some points."""
        with warnings.catch_warnings():
            # Without borrowed rows, pooled values equal plain ones; the benchmark includes that case.
            warnings.simplefilter("ignore", UserWarning)
            return self.model.value(self.X[points], self.y[points], **options)


def stream(dataset: str, seed: int, *which: int) -> np.random.Generator:
    """Return a separate random generator for each dataset, seed and use."""
    return np.random.default_rng([seed, DATASETS.index(dataset), *which])


def make_scene(dataset: str, regime: str, seed: int, settings: PopulationSettings, semivalue: str = "shapley") -> Scene:
    """Split a dataset, fit a model and make the population of a regime."""
    split, rng = load_split(dataset, seed, settings), stream(dataset, seed, list(REGIMES).index(regime))
    X, y, labels, shares = split.X, split.y, split.y_train, None
    if regime in FLIPPED:
        labels = FlipLabels(FLIPPED[regime], random_state=seed)(split.X_train, labels)[1]
    if regime == "features":
        along = X @ rng.normal(size=X.shape[1])
        far = along >= np.quantile(along, 1 - REGION)
        X, y = X[far], y[far]
    X, y = X[: settings.n_val], y[: settings.n_val]
    if regime == "shares":
        counts = np.bincount(y).astype(np.float64)
        counts[np.arange(counts.size) != rng.integers(counts.size)] /= ODDS
        shares = counts / counts.sum()
    model = KNNShapley(settings.n_neighbors, semivalue=semivalue, progress=False).fit(split.X_train, labels)
    matrix = model.value(X, y, matrix=True).matrix
    return Scene(model, split.X_train, X, y, np.ascontiguousarray(np.asarray(matrix).T), shares)


# --- measuring -------------------------------------------------------------------------------------------------------


def nearness(dataset: str, seed: int, settings: PopulationSettings) -> list[Record]:
    """Compare values with those on the rest of the population, in every regime; cover them by pooled intervals."""
    records = []
    for number, regime in enumerate(REGIMES):
        scene = make_scene(dataset, regime, seed, settings)
        with warnings.catch_warnings():
            # Some files contain a few rows twice.
            warnings.simplefilter("ignore", UserWarning)
            rows = cross_value(scene.model, scene.X_train, scene.model.classes_[scene.model.codes_])
        for m in settings.points:
            rng = stream(dataset, seed, number, m)
            points = scene.draw(m, rng)
            truth, plain, pooled = scene.truth(points), scene.value(points), scene.value(points, pool="train")
            found = (plain.values, pooled.values, one_weight(plain, rows), rows.values)
            record: Record = {"regime": regime, "m": m}
            for method, values in zip(METHODS, found, strict=True):
                record |= _agreement(method, values, truth)
            record["borrowed"] = float(pooled.parameters["pool"]["weight"])
            record["population"] = int(scene.y.size)
            drawn = [scene.draw(m, rng, replace=True) for _ in range(settings.pooled_draws)]
            covered = [_covered(scene.value(points, pool="train"), scene.truth()) for points in drawn]
            records.append(record | _mean_records(covered))
    return records


def one_weight(plain: Valuation, rows: Valuation) -> Floats:
    """Pool with one weight for all rows, from both sampling errors and the remaining difference."""
    # A row is not one of its own points.
    on_points = float(np.mean(np.asarray(plain.variance))) / plain.n_val
    on_rows = float(np.mean(np.asarray(rows.variance))) / (rows.n_val - 1)
    bias = max(0.0, float(np.square(plain.values - rows.values).mean() - on_points - on_rows))
    weight = on_points / (on_points + on_rows + bias)
    return (1 - weight) * plain.values + weight * rows.values


def _agreement(method: str, values: Floats, truth: Floats) -> Record:
    found = agreement(values, truth)
    measured = {"spearman": found["spearman"], "top": found["top_overlap"], "rmse": found["rmse"]}
    return {f"{method}_{name}": number for name, number in measured.items()}


def _covered(valuation: Valuation, truth: Floats) -> Record:
    """Share of rows whose interval holds the value on the population, and whether all joint intervals do."""
    (low, high), (lowest, highest) = valuation.interval(), valuation.interval(joint=True)
    return {
        "coverage": float(np.mean((low <= truth) & (truth <= high))),
        "joint": float(np.all((lowest <= truth) & (truth <= highest))),
    }


def _mean_records(records: list[Record]) -> Record:
    return {name: float(np.mean([record[name] for record in records])) for name in records[0]}


def sampling(dataset: str, seed: int, settings: PopulationSettings) -> list[Record]:
    """Measure coverage of plain intervals, and predicted and true reliability, in the same population."""
    records = []
    for number, semivalue in enumerate(SEMIVALUES):
        scene = make_scene(dataset, "same", seed, settings, semivalue)
        truth, rng = scene.truth(), stream(dataset, seed, 100 + number)
        needed = points_for(scene, 0.9, rng, settings) if semivalue == "shapley" else None
        for m in settings.points:
            found = [scene.value(scene.draw(m, rng, replace=True)) for _ in range(settings.draws)]
            record = {"semivalue": semivalue, "m": m} | _mean_records([_covered(one, truth) for one in found])
            if semivalue == "shapley":
                true = dict(zip(("pearson", "spearman"), true_reliability(scene, m, rng, settings), strict=True))
                for name in true:
                    stated = [one.reliability if name == "pearson" else one.reliability_spearman for one in found]
                    told = np.array([np.nan if one is None else one for one in stated])
                    record |= {
                        name: float(np.nanmean(told)),
                        f"true_{name}": true[name],
                        f"{name}_error": float(np.sqrt(np.nanmean(np.square(told - true[name])))),
                    }
                record["points_needed"] = float(np.median([one.points_needed() for one in found]))
                record["true_points_needed"] = needed
            records.append(record)
    return records


def statements(dataset: str, seed: int, settings: PopulationSettings) -> list[Record]:
    """Measure how often statements on ranks, signs and groups (here the classes) are true."""
    scene, records = make_scene(dataset, "same", seed, settings), []
    truth, rng = scene.truth(), stream(dataset, seed, 300)
    best, worst = (rankdata(-truth, method=method) for method in ("min", "max"))
    of_class = [scene.matrix[scene.y == c].mean(axis=0) for c in range(int(scene.y.max()) + 1)]
    for m in settings.points:
        found = []
        for _ in range(settings.pooled_draws):
            points = scene.draw(m, rng, replace=True)
            valuation = scene.value(points, groups=scene.y[points])
            (low, high), (first, last) = valuation.interval(), valuation.rank_interval()
            sure, probability = (low > 0) | (high < 0), valuation.sign_probability
            groups = [(valuation.interval(group=c), of_class[c]) for c in valuation.group_names]
            found.append(
                {
                    "rank": float(np.mean((first <= worst) & (best <= last))),
                    "rank_width": float(np.mean(last - first + 1) / truth.size),
                    "sure": float(sure.mean()),
                    "sure_right": float(np.sum(sure & ((low > 0) == (truth > 0)))),
                    "stated": float(np.maximum(probability, 1 - probability).mean()),
                    "sign_right": float(np.mean((probability > 0.5) == (truth > 0))),
                    "group": float(np.mean([(ends[0] <= true) & (true <= ends[1]) for ends, true in groups])),
                }
            )
        record = _mean_records(found)
        called = record["sure"] * truth.size
        record["sure_right"] = record["sure_right"] / called if called else np.nan
        records.append({"m": m} | record)
    return records


def true_reliability(
    scene: Scene, m: int, rng: np.random.Generator, settings: PopulationSettings
) -> tuple[float, float]:
    """Mean correlation, and rank correlation, of the values on many independent validation sets of a size."""
    n = scene.y.size
    counts = rng.multinomial(m, np.full(n, 1 / n), settings.truths).astype(np.float64)
    values = counts @ scene.matrix
    pairs = np.triu_indices(settings.truths, 1)
    pearson, spearman = (np.asarray(np.corrcoef(each))[pairs] for each in (values, rankdata(values, axis=1)))
    return float(pearson.mean()), float(spearman.mean())


def points_for(scene: Scene, wanted: float, rng: np.random.Generator, settings: PopulationSettings) -> float:
    """Number of points for a reliability: double the size until it is reached, then interpolate the odds linearly."""
    m, odds = 25, 0.0
    while True:
        before, m = odds, 2 * m
        r = true_reliability(scene, m, rng, settings)[0]
        odds = r / (1 - r)
        goal = wanted / (1 - wanted)
        if odds >= goal:
            return float(m * goal / odds if before <= 0 else m / 2 * (1 + (goal - before) / (odds - before)))


def noisy(dataset: str, seed: int, settings: PopulationSettings) -> list[Record]:
    """Compare values on noisy points, corrected and pooled, with clean ones on the rest of the population."""
    scene, records = make_scene(dataset, "same", seed, settings), []
    noise = GaussianNoise(NOISE, relative=True, random_state=seed).bind(scene.model)
    corrector = PosteriorCorrector(noise, random_state=seed, progress=False).fit(scene.model)
    for m in settings.noisy_points:
        points = scene.draw(m, stream(dataset, seed, 200, m))
        truth, clean = scene.truth(points), scene.value(points)
        X, y = noise(scene.X[points], scene.y[points])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            found = {
                "clean": clean,
                "plain": scene.model.value(X, y),
                "pooled": scene.model.value(X, y, pool="train"),
                "posterior": corrector.transform(X, y),
                "both": scene.model.value(X, y, pool="train", correction=corrector),
            }
        record: Record = {"m": m}
        for method, valuation in found.items():
            record |= _agreement(method, valuation.values, truth)
        records.append(record)
    return records


# --- judging ---------------------------------------------------------------------------------------------------------


class Estimate(NamedTuple):
    """A mean over seeds and its standard error; NaN with one seed."""

    mean: float
    error: float

    def show(self, digits: int = 2) -> str:
        """Write both."""
        if not np.isfinite(self.mean):
            return "-"
        error = f" ± {self.error:.{digits}f}" if np.isfinite(self.error) else ""
        return f"{self.mean:.{digits}f}{error}"


def over_seeds(table: pd.DataFrame, column: str) -> Estimate:
    """Mean of a column and its standard error over seeds; datasets of one seed are averaged first."""
    each = np.array([np.nanmean(rows.to_numpy()) for _, rows in table.groupby("seed")[column]])
    return Estimate(float(each.mean()), float(each.std(ddof=1) / np.sqrt(each.size)) if each.size > 1 else np.nan)


def cell_means(table: pd.DataFrame, column: str, cell: list[str]) -> Any:
    """Means of a column over seeds, by cell."""
    # NumPy's sum: pandas may round differently.
    return table.groupby(cell, sort=False)[column].agg(lambda sample: float(sample.to_numpy().mean()))


def judge_bars(tables: dict[str, pd.DataFrame]) -> list[Bar]:
    """Judge every bar by means over seeds."""
    sampled, values = tables["sampling"], tables["values"]
    return [*_coverage_bars(sampled), *_reliability_bars(sampled), *_pooling_bars(values)]


def _coverage_bars(sampled: pd.DataFrame) -> list[Bar]:
    means = cell_means(sampled, "coverage", ["semivalue", "dataset", "m"])
    size = means.index.get_level_values("m")
    bars = []
    for asked, cells, least in (
        (f"95% intervals cover at least {LEAST_COVERAGE} in every cell with {SURE_POINTS} points or more",
         means[size >= SURE_POINTS], LEAST_COVERAGE),
        (f"and more than {FEW_COVERAGE:.2f} in every cell with 50 points", means[size == 50], FEW_COVERAGE),
    ):  # fmt: skip
        below = cells[cells < least]
        bars.append(
            Bar(
                asked,
                f"{len(cells) - len(below)} of {len(cells)} cells; least {cells.min():.3f} ({_name(cells.idxmin())})",
                below.empty,
                tuple(f"{_name(cell)}: {number:.3f}" for cell, number in below.items()),
            )
        )
    sure = means[size >= SURE_POINTS]
    by_kind = {name: float(sure.loc[kind].mean()) for kind, name in SEMIVALUES.items()}
    low, high = MEAN_COVERAGE
    bars.insert(
        1,
        Bar(
            f"and {low} to {high} on average over these cells",
            f"{sure.mean():.3f}; " + ", ".join(f"{name} {mean:.3f}" for name, mean in by_kind.items()),
            low <= round(float(sure.mean()), 3) <= high,
        ),
    )
    return bars


def _reliability_bars(sampled: pd.DataFrame) -> list[Bar]:
    here = sampled[(sampled["semivalue"] == "shapley") & (sampled["m"] >= SURE_POINTS)]
    bars = []
    for kind, name in (("pearson", "Reliability"), ("spearman", "Its Spearman form")):
        off = cell_means(here.assign(off=here[kind] - here[f"true_{kind}"]), "off", ["dataset", "m"])
        far = off[off.abs() > RELIABILITY_ERROR]
        worst = off.abs().idxmax()
        single = float(np.sqrt(np.square(here[f"{kind}_error"][here["m"] == SURE_POINTS]).to_numpy().mean()))
        bars.append(
            Bar(
                f"{name}, on average over validation sets, within {RELIABILITY_ERROR} of the truth in every cell with "
                f"{SURE_POINTS} points or more",
                f"{len(off) - len(far)} of {len(off)} cells; worst {off[worst]:+.3f} ({_name(worst)}). A single set of "
                f"{SURE_POINTS} points errs by {single:.2f} (root mean square)",
                far.empty,
                tuple(f"{_name(cell)}: {number:+.3f}" for cell, number in far.items()),
            )
        )
    return bars


def _pooling_bars(values: pd.DataFrame) -> list[Bar]:
    at = values[values["m"] == SURE_POINTS]
    same = at[at["regime"] == "same"]
    plain, pooled, weight = (over_seeds(same, f"{method}_spearman") for method in ("plain", "pooled", "weight"))
    errors = [over_seeds(same, f"{method}_rmse").mean for method in ("plain", "pooled")]
    bars = [
        Bar(
            f"Pooled, {SURE_POINTS} points, same population: mean Spearman over datasets at least {WANTED_SPEARMAN}",
            f"{pooled.show(3)} (plain {plain.mean:.3f}, one weight {weight.mean:.3f})",
            pooled.mean >= WANTED_SPEARMAN,
        ),
        Bar(
            "and RMSE at most half of plain",
            f"{errors[1]:.3f} against {errors[0]:.3f}: {errors[1] / errors[0]:.2f} of it",
            errors[1] <= WANTED_RATIO * errors[0],
        ),
    ]
    for statistic, asked, sign, allowed in (
        ("spearman", f"Pooled Spearman below plain by more than {TOLERATED} in no cell", 1, TOLERATED),
        ("rmse", "Pooled RMSE above plain in no cell", -1, 0.0),
    ):
        pair = [cell_means(values, f"{method}_{statistic}", CELL) for method in ("plain", "pooled")]
        gain = sign * (pair[1] - pair[0])
        worse = gain[gain < -allowed]
        cell = gain.idxmin()
        bars.append(
            Bar(
                asked,
                f"{len(gain) - len(worse)} of {len(gain)} cells; worst {sign * gain[cell]:+.4f} ({_name(cell)})",
                worse.empty,
                tuple(f"{_name(cell)}: {pair[1][cell]:.3f} against {pair[0][cell]:.3f}" for cell in worse.index),
            )
        )
    for regime in ("features", "shares"):
        here = at[at["regime"] == regime]
        before, after = (over_seeds(here, f"{method}_spearman").mean for method in ("plain", "pooled"))
        gained = over_seeds(here.assign(gain=here["pooled_spearman"] - here["plain_spearman"]), "gain")
        bars.append(
            Bar(
                f"Pooled, {SURE_POINTS} points, {REGIMES[regime]}: mean gain in Spearman at least {WANTED_GAIN}",
                f"{before:.3f} to {after:.3f}, a gain of {gained.show(3)}: {(after - before) / (1 - before):.0%} of "
                "what is missing to 1",
                gained.mean >= WANTED_GAIN,
            )
        )
    return bars


def _name(cell: Any) -> str:
    """Name a cell by its parts; the last one is the number of points."""
    return ", ".join([*(SEMIVALUES.get(part, REGIMES.get(part, part)) for part in cell[:-1]), f"m = {cell[-1]}"])


# --- the page --------------------------------------------------------------------------------------------------------


INTRODUCTION = """# How near values come to the population

A validation set is a sample. Another one of the same size, drawn in the same way, would give other values. The value
of interest is the one on everything the sample stands for: the *population value*. This page measures, on
data where it is known, how near values come to it, how much nearer [pooled
values](howto/pool.md) come, and whether intervals and reliability state correctly
how far off values are.

**In short.** {summary}

`make reproduce ARGS={arguments}` writes this page. Every number is computed, and a test compares the page with
its [tables]({tables}).

## Bars and results

The bars were set before the run. A cell is one dataset, regime and number of points; its number is the mean over
{seeds} seeds.
"""

HOW = """## How it was measured

**Data.** {datasets}. 2dplanes, pol and creditcard are samples of 10,000 rows with equal numbers of each class. The
Gaussian mixture has 3 classes of two clouds each, 8 features, and shares of 50%, 30% and 20%. Soft-label KNN-Shapley
with K = {k}. Every seed (0 to {last}) draws {n_train:,} training rows; up to {n_val:,} of the others are the
population. Features are standardised by the training rows; those of news20 (embeddings) are not changed.

**Regimes.** *Same population*: validation points are drawn from all other rows. *Wrong training labels*: each
training label is replaced by another class with a probability of 10% or 30%; validation points keep theirs. *Part of
the feature space*: validation points and their population are the 40% of the other rows that lie farthest in a random
direction. *Class shares shifted*: the odds of all classes but one, drawn by the seed, are divided by 4 in the
validation set and in the population.

**Estimators.** *Plain*: the values on the validation points. *Pooled*: `value(X_val, y_val, pool="train")`. *One
weight*: a weighted mean of plain values and of those on the training rows, with one weight V_a / (V_a + V_b + bias²)
from both sampling variances and their remaining difference; it does not use labels and features. *Training rows
alone*: `cross_value`, which uses no validation point.

**Measures.** Spearman is the rank correlation with the population value; top-10% overlap the share of the highest 10%
of rows that are found; RMSE is in standard deviations of the population value over the rows. For these the population
value is the mean over the population without the validation points, by class with the shifted shares where shares are
shifted. Its own sampling error counts against every estimator, more so if fewer rows are left. At least {left} are
left ({left_cell}).

**Coverage and reliability.** Here the points are drawn with replacement, so that the mean over the whole population
is the exact truth. The errors of rows on one validation set are correlated, so there are {draws} sets per seed and
cell for plain values, {pooled_draws} for pooled ones and for ranks, signs and classes. Coverage is the share of rows
whose interval holds the population value. True reliability is the mean correlation of the values on {truths}
independent sets of the same size.

**How the settings were chosen.** The settings of pooling and intervals were chosen on seeds 100 to 108 of the same
files and on a synthetic mixture. This page uses neither. The settings are: the size at which a shift of features
counts (1.65 standard errors), the 8 steps of the density ratio, the ridge of its score, the 3 standard deviations up
to which class shares are treated as equal, the 5 points that variances borrow, how kurtosis shrinks variances, and
the degrees of freedom of joint intervals. One choice came later: shares of labels are pooled in corrected values too.
It was added after a first look at the table of noisy points, and tried on synthetic mixtures.

**How far that carries.** Seeds share the rows of a file. This page therefore shows that the choices carry over to
other splits. The Gaussian mixture, a different one, shows that they carry over to other data. The shift of features
is along a straight direction, which a linear score, as in pooling, detects best. Shifts that it does not detect, such
as labels that mean something else in the validation set, show only in the remaining difference between both sides'
values.
"""


def write_population(page: Path, folder: Path, tables: dict[str, pd.DataFrame], settings: PopulationSettings) -> Path:
    """Write the page; figures and tables are linked relative to it."""
    bars = judge_bars(tables)

    def link(name: str) -> str:
        return os.path.relpath(folder / name, page.parent).replace(os.sep, "/")

    verdicts = [
        {"asked": bar.bar, "found": bar.found, "verdict": "holds" if bar.holds else "**missed**"} for bar in bars
    ]
    parts = [
        INTRODUCTION.format(
            arguments='"population --quick"' if settings.name == "quick" else "population",
            tables=link("tables"),
            seeds=settings.seeds,
            summary=_summary(tables, bars),
        ),
        markdown_table(verdicts),
    ]
    parts += [
        f'Cells that missed "{bar.bar}":\n\n' + "\n".join(f"- {cell}" for cell in bar.exceptions) + "\n"
        for bar in bars
        if bar.exceptions
    ]
    parts += _nearness_parts(tables["values"], link("spearman.png"))
    parts += _noisy_parts(tables["noisy"])
    parts += _coverage_parts(tables)
    parts += _reliability_parts(tables["sampling"], link("reliability.png"))
    left = (
        (tables["values"]["population"] - tables["values"]["m"]).groupby([tables["values"][key] for key in CELL]).min()
    )
    parts.append(
        HOW.format(
            left=f"{left.min():,}",
            left_cell=_name(left.idxmin()),
            datasets=", ".join(settings.datasets),
            k=settings.n_neighbors,
            last=settings.seeds - 1,
            n_train=settings.n_train,
            n_val=settings.n_val,
            draws=settings.draws,
            pooled_draws=settings.pooled_draws,
            truths=settings.truths,
        )
    )
    parts += _all_cells(tables["values"])
    return write_page(page, map(_wrapped, parts))


def _wrapped(part: str) -> str:
    """Break long lines of a part of the page, but not those of headings, tables, lists and figures."""
    paragraphs = part.rstrip("\n").split("\n\n")
    return (
        "\n\n".join(
            text
            if text.startswith(("#", "|", "- ", "!["))
            else textwrap.fill(" ".join(text.split()), 118, break_long_words=False, break_on_hyphens=False)
            for text in paragraphs
        )
        + "\n"
    )


def _summary(tables: dict[str, pd.DataFrame], bars: list[Bar]) -> str:
    values, sampled = tables["values"], tables["sampling"]
    at = values[values["m"] == SURE_POINTS]
    same = at[at["regime"] == "same"]
    plain, pooled = (over_seeds(same, f"{method}_spearman").mean for method in ("plain", "pooled"))
    cells = sampled[(sampled["m"] >= SURE_POINTS)]
    held = sum(bar.holds for bar in bars)
    low = min(over_seeds(part, "coverage").mean for _, part in at.groupby("regime"))
    return (
        f"With {SURE_POINTS} validation points of the same population, the ranking by plain values correlates "
        f"{plain:.2f} with that on the population, and the ranking by pooled values {pooled:.2f}. 95% intervals of "
        f"plain values cover {over_seeds(cells, 'coverage').mean:.1%} of rows from {SURE_POINTS} points on. Those of "
        f"pooled values cover {over_seeds(same, 'coverage').mean:.0%} in the same population and as little as "
        f"{low:.0%} where the training rows differ: do not rely on them there. {held} of {len(bars)} bars hold."
    )


def _nearness_parts(values: pd.DataFrame, figure: str) -> list[str]:
    parts = [
        "## Plain and pooled values\n\nMeans over datasets, ± their standard error over seeds. *Borrowed* is how much "
        "of a pooled value comes from the training rows.\n",
        f"![Spearman with the population value against the number of validation points]({figure})\n",
    ]
    for statistic, title in STATISTICS.items():
        digits = 2 if statistic == "rmse" else 3
        rows = [
            {"regime": REGIMES[regime], "points": f"{m:,}"}
            | {name: over_seeds(here, f"{method}_{statistic}").show(digits) for method, name in METHODS.items()}
            | ({"borrowed": f"{over_seeds(here, 'borrowed').mean:.2f}"} if statistic == "spearman" else {})
            for regime in REGIMES
            for m, here in values[values["regime"] == regime].groupby("m")
        ]
        parts += [f"**{title}**\n", markdown_table(rows)]
    tally = _tally(values.groupby(["regime", "m"]), METHODS)
    parts.append(f"Number of regimes and sizes in which a method has the highest mean Spearman: {tally}.\n")
    return parts


def _tally(groups: Any, methods: dict[str, str]) -> str:
    """Count how often each method has the highest mean Spearman."""
    best = [max(methods, key=lambda method: over_seeds(here, f"{method}_spearman").mean) for _, here in groups]
    return ", ".join(f"{name} in {best.count(method)}" for method, name in methods.items())


def _noisy_parts(table: pd.DataFrame) -> list[str]:
    parts = [
        f"## Noisy validation points\n\nGaussian noise of {NOISE} standard deviations on every feature of the "
        "validation points. The population value is that on clean points. *Posterior* is "
        "[PosteriorCorrector](correction.md), which is told the noise. Means over datasets, "
        f"{table['seed'].nunique()} seeds.\n"
    ]
    for statistic, title in STATISTICS.items():
        rows = [
            {"points": f"{m:,}"}
            | {
                name: over_seeds(here, f"{method}_{statistic}").show(2 if statistic == "rmse" else 3)
                for method, name in CORRECTED_METHODS.items()
            }
            for m, here in table.groupby("m")
        ]
        parts += [f"**{title}**\n", markdown_table(rows)]
    tally = _tally(table.groupby("m"), {method: CORRECTED_METHODS[method] for method in list(CORRECTED_METHODS)[1:]})
    parts.append(f"Number of sizes in which a method for noisy points has the highest Spearman: {tally}.\n")
    return parts


def _coverage_parts(tables: dict[str, pd.DataFrame]) -> list[str]:
    sampled, values = tables["sampling"], tables["values"]
    parts = ["## Coverage of 95% intervals\n"]
    for column, what in (
        ("coverage", "Share of rows whose interval holds the population value: mean over datasets (lowest dataset)"),
        ("joint", "Share of validation sets whose joint intervals all hold: mean over datasets (lowest dataset)"),
    ):
        rows = [
            {"values": f"plain, {name}"} | _by_points(sampled[sampled["semivalue"] == kind], column)
            for kind, name in SEMIVALUES.items()
        ]
        rows += [
            {"values": f"pooled, {name}"} | _by_points(values[values["regime"] == regime], column)
            for regime, name in REGIMES.items()
        ]
        parts += [f"**{what}**\n", markdown_table(rows)]
    rows = [
        {"points": f"{m:,}"} | {title: over_seeds(here, column).show(3) for column, title in STATEMENTS.items()}
        for m, here in tables["statements"].groupby("m")
    ]
    parts += ["**Ranks, signs and classes of plain Shapley values**, mean over datasets\n", markdown_table(rows)]
    parts.append(
        "Pooled intervals include the sampling error of both sides and the mean remaining difference over rows. They "
        "cannot include a difference that varies from row to row, such as that of wrong training labels. They "
        "therefore cover less where training rows and validation points differ. If you suspect that, take plain "
        "intervals.\n"
    )
    return parts


def _by_points(table: pd.DataFrame, column: str) -> dict[str, str]:
    means = cell_means(table, column, ["dataset", "m"])
    return {
        f"m = {m:,}": f"{over_seeds(here, column).show(3)} ({means.xs(m, level='m').min():.2f})"
        for m, here in table.groupby("m")
    }


def _reliability_parts(sampled: pd.DataFrame, figure: str) -> list[str]:
    here = sampled[sampled["semivalue"] == "shapley"]
    rows = [
        {"dataset": dataset, "points": f"{m:,}"}
        | {
            title: entry
            for kind, word in (("pearson", "reliability"), ("spearman", "Spearman form"))
            for title, entry in (
                (f"{word}, true", f"{over_seeds(cell, f'true_{kind}').mean:.2f}"),
                (f"{word}, predicted", over_seeds(cell, kind).show()),
                (
                    f"{word}, error of one prediction",
                    f"{np.sqrt(np.square(cell[f'{kind}_error']).to_numpy().mean()):.2f}",
                ),
            )
        }
        for (dataset, m), cell in here.groupby(["dataset", "m"], sort=False)
        if m != 100
    ]
    at = here[here["m"] == SURE_POINTS]
    needed = [
        {
            "dataset": dataset,
            "needed": f"{over_seeds(cell, 'true_points_needed').mean:,.0f}",
            f"predicted from {SURE_POINTS}: median": f"{cell['points_needed'].median():,.0f}",
            "lowest and highest seed": f"{cell['points_needed'].min():,.0f} to {cell['points_needed'].max():,.0f}",
        }
        for dataset, cell in at.groupby("dataset", sort=False)
    ]
    return [
        "## Reliability\n\n`Valuation.reliability` predicts, from one validation set, the correlation of its values "
        "with those on another set of the same size. *Predicted* is the mean over validation sets. *Error of one "
        "prediction* is the root mean square difference between a single prediction and the truth: a user has one "
        "prediction only.\n",
        f"![Predicted against true reliability]({figure})\n",
        markdown_table(rows),
        "**Points needed for a reliability of 0.9** (`points_needed`; each seed's number is the median of its "
        "validation sets)\n",
        markdown_table(needed),
    ]


def _all_cells(values: pd.DataFrame) -> list[str]:
    parts = ["## Cell by cell\n\nSpearman ± its standard error over seeds / RMSE.\n"]
    for regime, title in REGIMES.items():
        here = values[values["regime"] == regime]
        rows = [
            {"dataset": dataset, "points": f"{m:,}"}
            | {
                name: f"{over_seeds(cell, f'{method}_spearman').show()} / {over_seeds(cell, f'{method}_rmse').mean:.2f}"
                for method, name in METHODS.items()
            }
            for (dataset, m), cell in here.groupby(["dataset", "m"], sort=False)
        ]
        parts += [f"### {title[0].upper()}{title[1:]}\n", markdown_table(rows)]
    return parts


# --- figures ---------------------------------------------------------------------------------------------------------

LINES = {"plain": (NOISY, "-"), "pooled": (CORRECTED, "-"), "weight": (NONBOUNDARY, "--"), "rows": (CLEAN, ":")}


def draw_figures(folder: Path, tables: dict[str, pd.DataFrame]) -> None:
    """Draw Spearman against the number of points in each regime, and predicted against true reliability."""
    values, sampled = tables["values"], tables["sampling"]
    axes = new_axes(1, len(REGIMES), size=(2.6, 2.9), sharey=True).ravel()
    for ax, (regime, title) in zip(axes, REGIMES.items(), strict=True):
        here = values[values["regime"] == regime]
        sizes = sorted(here["m"].unique())
        for method, (colour, style) in LINES.items():
            curve = [over_seeds(here[here["m"] == m], f"{method}_spearman") for m in sizes]
            ax.plot(
                sizes, [point.mean for point in curve], style, color=colour, label=METHODS[method], marker="o", ms=3
            )
        ax.set_xscale("log")
        ax.set_xticks(sizes, [f"{m:,}" for m in sizes])
        ax.minorticks_off()
        tidy(ax, xlabel="validation points", title=title, legend=ax is axes[-1])
    tidy(axes[0], ylabel="Spearman with the population value")
    save_figure(axes, folder / "spearman", close=True)
    panels = new_axes(1, 2, size=(3.6, 3.5)).ravel()
    here = sampled[sampled["semivalue"] == "shapley"]
    colours = dict(zip(sorted(here["m"].unique()), ("#CCCCCC", BOUNDARY, NOISY, NONBOUNDARY, CORRECTED), strict=False))
    for ax, (kind, title) in zip(panels, (("pearson", "Reliability"), ("spearman", "Spearman form")), strict=True):
        ax.axline((0, 0), slope=1, color=CLEAN, lw=1, ls="--")
        for m, colour in colours.items():
            cells = here[here["m"] == m].groupby("dataset")
            true, told = (cells[column].mean() for column in (f"true_{kind}", kind))
            ax.scatter(true, told, s=28, color=colour, label=f"{m:,} points", linewidths=0)
        ax.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
        tidy(ax, xlabel="true", ylabel="predicted", title=title, legend=ax is panels[0])
    save_figure(panels, folder / "reliability", close=True)
