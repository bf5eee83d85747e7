"""The benchmark of corrections: what restores the clean values best, and what needs no clean data for it."""

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from shapshift._progress import progress_bar
from shapshift.agreement import agreement, distribution
from shapshift.correct import BoundaryCorrector, CorrectionWarning, EntropyNormalizer, PosteriorCorrector
from shapshift.data import Dataset, load_dataset
from shapshift.estimators import KNNShapley
from shapshift.perturb import FlipLabels, GaussianNoise
from shapshift.plots._figure import save_figure
from shapshift.plots.posterior import plot_posterior_idea
from shapshift.reproduce._bars import Bar, judge_bars
from shapshift.reproduce._cells import digest_of, stored, write_csv
from shapshift.reproduce._posterior_page import write_posterior_page
from shapshift.reproduce._settings import DATASETS, protocols

#: Raised when the benchmark changes, so that finished cells of another kind are not taken for this one's.
CELL_FORMAT = 2

Record = dict[str, Any]


@dataclass(frozen=True)
class PosteriorSettings:
    """Sizes of the benchmark.

    Attributes
    ----------
    name : str
    n_train, n_val, n_neighbors : int
    noise : tuple of float
        Standard deviation of the noise in units of each feature's standard deviation over the training rows.
    seeds, detection_seeds : int
        Every seed draws its own split and noise. Mislabelled rows are looked for on the first few.
    flipped : float
        Share of training labels that are made wrong for that.
    draws : int
        Draws per point of the posterior.
    datasets : tuple of str
    """

    name: str
    n_train: int
    n_val: int
    n_neighbors: int
    noise: tuple[float, ...]
    seeds: int
    detection_seeds: int
    flipped: float
    draws: int
    datasets: tuple[str, ...] = DATASETS

    @property
    def digest(self) -> str:
        """Short hash by which stored cells are recognised; which other datasets and seeds run does not matter."""
        others = ("name", "datasets", "seeds", "detection_seeds")
        return digest_of({key: value for key, value in asdict(self).items() if key not in others}, CELL_FORMAT)


POSTERIOR_FULL = PosteriorSettings(
    name="full",
    n_train=3000,
    n_val=1000,
    n_neighbors=5,
    noise=(0.1, 0.2, 0.4, 0.8, 1.5),
    seeds=10,
    detection_seeds=10,
    flipped=0.1,
    draws=8,
)
POSTERIOR_QUICK = PosteriorSettings(
    name="quick",
    n_train=600,
    n_val=300,
    n_neighbors=5,
    noise=(0.2, 0.8),
    seeds=2,
    detection_seeds=1,
    flipped=0.1,
    draws=4,
)


def run_posterior_benchmark(
    folder: str | Path = "correction",
    *,
    settings: PosteriorSettings = POSTERIOR_FULL,
    data_dir: str | None = None,
    page: str | Path | None = None,
    progress: bool | None = None,
) -> Path:
    """Compare corrections with the clean values, and look for mislabelled rows, under noise.

    Parameters
    ----------
    folder : path-like, default="correction"
        Gets ``tables/`` (CSV) and ``cells/``, the finished pieces of work. An interrupted run goes on from those; cells
        of other settings are computed again.
    settings : PosteriorSettings, default=POSTERIOR_FULL
    data_dir : str, optional
        Folder of the real datasets, see :func:`shapshift.data.load_dataset`.
    page : path-like, optional
        Where to write the page of results; ``benchmark.md`` in the folder by default.
    progress : bool, optional
        Show a progress bar; None shows it in a terminal only.

    Returns
    -------
    pathlib.Path
        The page.
    """
    out = Path(folder)
    for part in ("tables", "cells"):
        (out / part).mkdir(parents=True, exist_ok=True)
    cells: dict[tuple[str, str, str, int], Callable[[], list[Record]]] = {}
    for seed in range(settings.seeds):
        for name in settings.datasets:
            for protocol in protocols(name):
                cells[name, protocol, "values", seed] = partial(recovery, name, protocol, seed, settings, data_dir)
                if seed < settings.detection_seeds:
                    cells[name, protocol, "labels", seed] = partial(detection, name, protocol, seed, settings, data_dir)
    checksums = {name: _load(name, "natural", 0, settings, data_dir).sha256 for name in settings.datasets}
    tables: dict[str, list[Record]] = {"values": [], "labels": []}
    with progress_bar("Correcting", len(cells), progress) as advance:
        for (name, protocol, kind, seed), compute in cells.items():
            key = f"{settings.digest}-{checksums[name][:16]}"
            found = stored(out / "cells" / f"{name}-{protocol}-{kind}-{seed}.json", key, compute)
            tables[kind] += [{"dataset": name, "protocol": protocol, "seed": seed, **record} for record in found]
            advance(1)
    bars: list[Bar] = judge_bars(tables["values"], tables["labels"])
    write_csv(out / "tables" / "values.csv", tables["values"])
    write_csv(out / "tables" / "mislabelled.csv", tables["labels"])
    write_csv(out / "tables" / "bars.csv", [bar.record() for bar in bars])
    draw_idea(out / "posterior")
    return write_posterior_page(page or out / "benchmark.md", tables["values"], tables["labels"], bars, settings)


def recovery(name: str, protocol: str, seed: int, settings: PosteriorSettings, data_dir: str | None) -> list[Record]:
    """Compare each correction with the clean values of one split, at every level of noise."""
    data = _load(name, protocol, seed, settings, data_dir)
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
            # Ties and empty parts of a validation set; the documented rules then apply.
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


def detection(name: str, protocol: str, seed: int, settings: PosteriorSettings, data_dir: str | None) -> list[Record]:
    """Make training labels wrong, and see how well low values find them: area under the ROC curve."""
    data = _load(name, protocol, seed, settings, data_dir)
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
            # Wrong training labels are what is looked for; points and noise are as stated.
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


def draw_idea(path: Path) -> None:
    """Draw the idea on the Gaussian data: one point and what it may have been, and the values of all rows."""
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
    # A point of the outer class that the noise carried well into the disc of the other.
    radius = np.hypot(*X_noisy.T)
    outside = data.y_val == 1
    shown = int(np.flatnonzero(outside)[np.argmin(np.abs(radius[outside] - 0.6))])
    drawn = corrector.draw_points(X_noisy[[shown]], y_val[[shown]], n_draws)
    axes = plot_posterior_idea(
        data.X_train[data.y_train == 1], data.X_val[shown], X_noisy[shown], drawn[0], sigma, values
    )
    save_figure(axes, path, close=True)


def _area(values: Any, wrong: Any) -> float:
    from sklearn.metrics import roc_auc_score

    return float(roc_auc_score(wrong, -values))


def _load(name: str, protocol: str, seed: int, settings: PosteriorSettings, data_dir: str | None) -> Dataset:
    return load_dataset(
        name,
        protocol=protocol,
        random_state=seed,
        n_train=settings.n_train,
        n_val=settings.n_val,
        data_dir=data_dir,
    )
