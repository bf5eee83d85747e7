"""Make the open choices of the correction without clean data, using synthetic families of data only.

    make reproduce ARGS="choices --out docs/correction/tables"

**Protocol**, written down before the run that decides:

- *Families*: the thirteen of `families` below. Eight come from the first comparison of methods. Five were added to
cover cases missing there, before any result on them was seen: heavy tails, clusters of very different density, many
columns
  that are mostly zero, a curved sheet with uneven density, and classes balanced by oversampling, so that copies of a
  row are on both sides of a split. None is a dataset of the benchmark or imitates a column of one.
- *Sizes*: 1,000 training and 400 validation rows, 5 neighbours, 8 draws; noise of 0.2 and 0.8 standard deviations of
  each feature; seeds 100 to 103. Seeds 0 and 1 were used only to find candidates.
- *Plain* has equally wide steps everywhere and no allowance, and rows with a label other than the point's have a weight
of 5%. Every candidate changes one thing.
- *Questions.* Steps: should they be wider where rows are far apart, if that increases the likelihood of the training
rows? Allowance: should the rehearsal, which makes 4 draws, allow for the smaller scatter of the correction's 8 draws?
Labels: should rows with another label have a weight of 2%; or should the 20 nearest rows also determine which labels
belong near a row, by Bayes' rule with its own label, assumed wrong with probability 5%?
- *Criterion.* Every family has one number, the mean over seeds and levels of the difference to plain. A candidate is
  taken if the 95% t-interval over families lies above 0; of several for one question, the one with the highest mean;
  otherwise plain stays. The number is the rank agreement (Spearman) with the clean values, for steps and allowance. For
  labels, it is the area under the ROC curve of finding the 10% of the training labels that were made wrong, and the
  interval for rank agreement (with right labels) must not lie below 0.

"True labels" is not a candidate: it shows the largest gain that better labels in the prior could give.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t as student
from sklearn.datasets import make_classification, make_gaussian_quantiles, make_moons
from sklearn.metrics import roc_auc_score

from experiments.tables import write_table
from shapshift import GaussianNoise, KNNShapley, PosteriorCorrector
from shapshift.agreement import agreement
from shapshift.correct import posterior, prior, rehearsal
from shapshift.correct.draws import draw_in_stages

N_TRAIN, N_VAL, DRAWS = 1000, 400, 8
LEVELS = (0.2, 0.8)
SEEDS = (100, 101, 102, 103)
TRIAL_SEEDS = (0,)
WRONG = 0.1
Split = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def families(seed: int) -> Iterator[tuple[str, Split]]:
    """Make every family: training rows, labels, validation points, labels; features are standardised except
    embeddings."""
    n = N_TRAIN + N_VAL
    rng = np.random.default_rng([seed, 7])

    def split(X: np.ndarray, y: np.ndarray, *, scale: bool = True) -> Split:
        chosen = rng.permutation(len(y))[:n]
        X, y = X[chosen], y[chosen]
        if scale:
            std = X[:N_TRAIN].std(axis=0)
            X = (X - X[:N_TRAIN].mean(axis=0)) / np.where(std > 0, std, 1.0)
        return X[:N_TRAIN], y[:N_TRAIN], X[N_TRAIN:], y[N_TRAIN:]

    def clusters(size: int = n, **given: Any) -> tuple[np.ndarray, np.ndarray]:
        X, y = make_classification(size, random_state=seed, **given)
        return X, y

    yield "quantiles", split(*make_gaussian_quantiles(n_samples=n, n_features=5, n_classes=2, random_state=seed))
    yield "moons", split(*make_moons(n, noise=0.25, random_state=seed))
    shape: dict[str, Any] = {
        "n_features": 20,
        "n_informative": 6,
        "n_redundant": 6,
        "n_clusters_per_class": 3,
        "flip_y": 0.05,
    }
    yield "clusters", split(*clusters(**shape))
    shape = {"n_features": 12, "n_informative": 4, "n_redundant": 2, "weights": [0.85], "flip_y": 0.05}
    yield "imbalanced", split(*clusters(**shape))
    X = rng.integers(-1, 2, (n, 8)).astype(float)
    tree = np.where(X[:, 0] > 0, 3 * X[:, 1] + 2 * X[:, 2] + X[:, 3], 3 * X[:, 4] - 2 * X[:, 5] + X[:, 6])
    yield "discrete", split(X, (tree + rng.normal(size=n) > 0).astype(int))
    Z = rng.normal(size=(n, 6))
    X = np.exp(0.7 * (Z @ rng.normal(size=(6, 15))) / np.sqrt(6))
    X[:, :5] = np.round(X[:, :5])
    yield "skewed", split(X, (Z[:, 0] + Z[:, 1] * Z[:, 2] + 0.3 * rng.normal(size=n) > 0.5).astype(int))
    topics, topic = rng.normal(size=(12, 200)), rng.integers(0, 12, n)
    within = rng.normal(size=(30, 200)) * (np.arange(1, 31) ** -0.5)[:, None]
    X = 0.6 * topics[topic] + rng.normal(size=(n, 30)) @ within + 0.3 * rng.normal(size=(n, 200))
    yield "embeddings", split(X / np.linalg.norm(X, axis=1, keepdims=True), topic % 2, scale=False)
    shape = {"n_features": 10, "n_informative": 5, "n_redundant": 2, "n_classes": 3, "class_sep": 1.2}
    yield "three classes", split(*clusters(**shape))

    Z = rng.standard_t(2.5, size=(n, 8))
    score = np.tanh(Z[:, 0]) + np.tanh(Z[:, 1] * Z[:, 2]) + 0.3 * rng.normal(size=n)
    yield "heavy tails", split(Z @ rng.normal(size=(8, 8)), (score > 0).astype(int))
    centres, classes, of = 1.5 * rng.normal(size=(16, 6)), rng.integers(0, 2, 16), rng.integers(0, 16, n)
    X = centres[of] + np.geomspace(0.02, 1, 16)[of][:, None] * rng.normal(size=(n, 6))
    yield "densities", split(X, classes[of] ^ (rng.random(n) < 0.05))
    rates, of = (rng.random((20, 40)) < 0.15) * rng.gamma(2.0, 1.0, size=(20, 40)), rng.integers(0, 20, n)
    X = rng.poisson(rates[of] * rng.gamma(2.0, 0.5, size=(n, 1))).astype(float)
    yield "mostly zero", split(X, (of % 3 == 0).astype(int) ^ (rng.random(n) < 0.03))
    along, across = 9 * rng.beta(0.5, 2, size=n), 3 * rng.random(n)
    sheet = np.column_stack([along * np.cos(along), along * np.sin(along), 3 * across, np.zeros((n, 7))])
    X = sheet @ np.linalg.qr(rng.normal(size=(10, 10)))[0] + 0.05 * rng.normal(size=(n, 10))
    yield "sheet", split(X, (along + across).astype(int) % 2)
    shape = {"n_features": 15, "n_informative": 5, "n_redundant": 3, "weights": [0.8], "flip_y": 0.05}
    X, y = clusters(2 * n, **shape)
    again = np.concatenate([rng.choice(np.flatnonzero(y == k), n // 2) for k in (0, 1)])
    yield "copies", split(X[again], y[again])


# --- candidates: what they change ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class WiderPrior(prior.Prior):
    """A prior with a step width at each row equal to its distance to the five nearest rows, in powers of two."""

    width: np.ndarray

    def subset(self, chosen: np.ndarray) -> WiderPrior:
        return replace(super().subset(chosen), width=self.width[chosen])

    def log_weights(self, points: np.ndarray, codes: np.ndarray | None) -> np.ndarray:
        found = log_normal(points, self.rows, self.variance, self.width, 1.0)
        return found if codes is None else found + np.log(self.labels)[codes]

    def move(self, chosen: np.ndarray, points: np.ndarray, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        variance = self.width[chosen][:, None] * self.variance
        gain, near = variance / (variance + 1.0), self.rows[chosen]
        found = near + gain * (points - near) + np.sqrt(gain) * rng.standard_normal(near.shape)
        moved = X.copy()
        moved[:, self.features[self.noisy]] = ((found @ self.basis.T) * self.unit)[:, self.noisy]
        return moved


def log_normal(
    points: np.ndarray, rows: np.ndarray, variance: np.ndarray, width: np.ndarray, noise: float
) -> np.ndarray:
    """Log density of every point under a normal of each row's own width, without the factor of 2 pi."""
    found = np.empty((len(points), len(rows)))
    for factor in np.unique(width):
        found[:, width == factor] = prior.log_normal(points, rows[width == factor], factor * variance + noise)
    return found


def fit_wider(X: np.ndarray, codes: np.ndarray, n_classes: int, noise: np.ndarray, rng: Any) -> prior.Prior:
    """Fit a prior, with wider steps where rows are far apart if that increases the likelihood of the rows."""
    state = copy.deepcopy(rng)
    even = prior.fit_prior(X, codes, n_classes, noise, rng)
    asked = np.sort(state.permutation(len(X))[: prior.SAMPLE])
    variance = even.variance / even.scale
    apart = prior.squared_distances(even.rows / np.sqrt(variance), even.rows / np.sqrt(variance))
    np.fill_diagonal(apart, np.inf)
    reach = np.partition(apart, 4, axis=1)[:, :5].mean(axis=1)
    width = 2.0 ** np.clip(np.round(np.log2(np.maximum(reach / np.median(reach[reach > 0]), 1e-12))), -4, 4)

    def likelihood(width: np.ndarray, scale: float) -> float:
        logs = log_normal(even.rows[asked], even.rows, variance * scale, width, 0.0)
        logs[np.arange(asked.size), asked] = -np.inf
        return float(prior.log_sum_exp(logs).mean())

    scale = max(prior.SCALES, key=lambda scale: likelihood(width, scale))
    if likelihood(width, scale) <= likelihood(np.ones(len(X)), even.scale):
        return even
    parts = {field.name: getattr(even, field.name) for field in fields(even)}
    return WiderPrior(**parts | {"variance": variance * scale, "scale": float(scale)}, width=width)


def own_label(error: float) -> Callable[..., np.ndarray]:
    """Use only a row's own label for the labels near it."""

    def labels(rows: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
        same = codes == np.arange(n_classes)[:, None]
        found = np.where(same, 1 - error, error / max(n_classes - 1, 1))
        return np.vstack([found, np.ones(len(codes))])

    return labels


def with_neighbours(n_neighbours: int, error: float) -> Callable[..., np.ndarray]:
    """The nearest rows vote, each class has one vote to begin with, and Bayes' rule adds the row's own label."""

    def labels(rows: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
        apart = prior.squared_distances(rows, rows)
        np.fill_diagonal(apart, np.inf)
        k = min(n_neighbours, len(rows) - 1)
        nearest = codes[np.argpartition(apart, k - 1, axis=1)[:, :k]]
        votes = (nearest[:, :, None] == np.arange(n_classes)).sum(axis=1).T + 1.0
        found = votes * own_label(error)(rows, codes, n_classes)[:-1]
        found = 0.98 * found / found.sum(axis=0) + 0.02 / n_classes
        return np.vstack([found, np.ones(len(codes))])

    return labels


class Allowance:
    """Weights of one rehearsal, computed for the number of draws of the correction instead of the rehearsal's."""

    def __init__(self) -> None:
        self.split, self.stages = rehearsal._one_split, draw_in_stages
        self.scatter: list[list[float]] = []
        self.last: list[tuple[float, int]] = []

    def draw(self, *given: Any, **options: Any) -> Iterator[Any]:
        for drawn in self.stages(*given, **options):
            rounds = [np.array(part.rounds) for part in drawn.values()]
            self.last = [
                (float(each.var(axis=0, ddof=1).mean()) if len(each) > 1 else 0.0, len(each)) for each in rounds
            ]
            yield drawn

    def one_split(self, game: Any, held: Any, rest: Any, add_noise: Any, draws: int, rng: Any) -> Any:
        found = self.split(game, held, rest, add_noise, draws, rng)
        spread = float(found[1].std())
        self.scatter.append([scatter * (1 / made - 1 / draws) / spread**2 for scatter, made in self.last])
        return found

    def weights(self, estimates: np.ndarray, target: np.ndarray) -> np.ndarray:
        moved, at_rows = np.mean(self.scatter, axis=0)
        errors = estimates - target[:, None]
        caution = rehearsal.CAUTION * float(np.var(target))
        gram = errors.T @ errors / len(target) - np.diag([0.0, moved, at_rows]) + caution * np.eye(3)
        return rehearsal.least_weights(gram, caution)


PLAIN: dict[str, Any] = {"steps": prior.fit_prior, "labels": own_label(0.05), "allowance": False}
CANDIDATES: dict[str, dict[str, Any]] = {
    "steps: wider where sparse": {"steps": fit_wider},
    "allowance for few draws": {"allowance": True},
    "labels: 2%": {"labels": own_label(0.02)},
    "labels: with neighbours": {"labels": with_neighbours(20, 0.05)},
}


@contextmanager
def choices(steps: Any, labels: Any, allowance: bool) -> Iterator[None]:
    """Replace the package's choices."""
    spy = Allowance()
    changes: list[tuple[Any, str, Any]] = [(posterior, "fit_prior", steps), (prior, "label_probabilities", labels)]
    if allowance:
        changes += [
            (rehearsal, "_one_split", spy.one_split),
            (rehearsal, "draw_in_stages", spy.draw),
            (rehearsal, "mixing_weights", spy.weights),
        ]
    before = [(module, name, getattr(module, name)) for module, name, _ in changes]
    try:
        for module, name, new in changes:
            setattr(module, name, new)
        yield
    finally:
        for module, name, old in before:
            setattr(module, name, old)


# --- the run ---------------------------------------------------------------------------------------------------------


def measure(name: str, data: Split, seed: int) -> list[dict[str, Any]]:
    """Rank agreement with right labels, and area under the curve with wrong ones, for plain and every candidate."""
    X, y, X_val, y_val = data
    rng = np.random.default_rng([seed, 8])
    n_classes = len(np.unique(y))
    wrong = np.isin(np.arange(N_TRAIN), rng.permutation(N_TRAIN)[: int(WRONG * N_TRAIN)])
    y_wrong = np.where(wrong, (y + rng.integers(1, n_classes, N_TRAIN)) % n_classes, y)
    records = []
    for flipped, labels in ((False, y), (True, y_wrong)):
        model = KNNShapley(progress=False, n_jobs=1).fit(X, labels)
        clean = model.value(X_val, y_val).values
        for number, level in enumerate(LEVELS):
            noise = GaussianNoise(level, relative=True, random_state=2 * seed + number).bind(model)
            X_noisy, _ = noise(X_val, y_val)
            found = {"clean": clean, "noisy": model.value(X_noisy, y_val).values}
            tried = {"plain": PLAIN, **{key: PLAIN | change for key, change in CANDIDATES.items()}}
            if flipped:
                order = np.argsort(np.unique(np.column_stack([labels, X]), axis=0, return_inverse=True)[1].ravel())
                tried["true labels"] = PLAIN | {"labels": true_label(X, y, order)}
            for key, chosen in tried.items():
                with choices(**chosen):
                    corrector = PosteriorCorrector(noise, draws=DRAWS, random_state=seed, progress=False).fit(model)
                    found[key] = corrector.transform(X_noisy, y_val).values
            for key, values in found.items():
                area = float(roc_auc_score(wrong, -values)) if flipped else None
                order_found = None if flipped else agreement(values, clean)["spearman"]
                records.append(
                    {"family": name, "seed": seed, "noise": level, "choice": key, "spearman": order_found, "auc": area}
                )
    return records


def true_label(X: np.ndarray, y: np.ndarray, order: np.ndarray) -> Callable[..., np.ndarray]:
    """True labels in the prior, before some were made wrong; subsets of the rows keep their given labels."""

    def labels(rows: np.ndarray, codes: np.ndarray, n_classes: int) -> np.ndarray:
        known = y[order].astype(np.int64) if len(codes) == len(y) else codes
        return own_label(0.05)(rows, known, n_classes)

    return labels


def summarise(records: pd.DataFrame) -> pd.DataFrame:
    """Mean difference to plain with its interval over families, and the decision."""
    means = records.astype({"spearman": float, "auc": float}).groupby(["choice", "family"], sort=False)
    found = means[["spearman", "auc"]].mean()
    n = records["family"].nunique()
    table = []
    for choice in records["choice"].unique():
        row: dict[str, Any] = {"choice": choice}
        for what in ("spearman", "auc"):
            numbers = found.loc[choice][what] - found.loc["plain"][what]
            mean, half = numbers.mean(), student.ppf(0.975, n - 1) * numbers.std() / np.sqrt(n)
            row |= {what: mean, f"{what}_low": mean - half, f"{what}_high": mean + half}
        table.append(row | {"auc_over_noisy": (found.loc[choice]["auc"] - found.loc["noisy"]["auc"]).mean()})
    return pd.DataFrame(table)


def run_choices(folder: Path, seeds: Sequence[int] = SEEDS) -> None:
    """Run the protocol, or some seeds of it, and write its tables."""
    rows: list[dict[str, Any]] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for seed in seeds:
            for name, data in families(seed):
                rows += measure(name, data, seed)
                print(seed, name, flush=True)
    records = pd.DataFrame(rows)
    write_table(folder / "choices_runs", records.round(6))
    write_table(folder / "choices", summarise(records).round(6))
    print(summarise(records).to_string(index=False, float_format="{:+.5f}".format))
