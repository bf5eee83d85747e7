"""Every method of the family on every dataset: time, detection, removal, and the shift under validation noise."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pandas as pd
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from experiments.cells import Settings, run_cells
from experiments.tables import markdown_table, write_page, write_table
from shapshift import Beta, FlipLabels, GaussianNoise, KNNShapley, SampledShapley, Valuation, evaluate_valuation
from shapshift.agreement import spearman, t_interval
from shapshift.sampled import Complementary, Distributional, Stratified

Floats = npt.NDArray[np.float64]
Record = dict[str, Any]

#: Statistics of the first table, with their titles.
STATISTICS = {
    "seconds": "s",
    "detection_auc": "detection AUC",
    "remove_high_area": "area, best removed",
    "remove_low_area": "area, worst removed",
    "std_ratio": "std ratio",
    "positive_clean": "positive, clean",
    "positive_change": "change of positive",
    "spearman": "Spearman",
    "reliability": "reliability",
}
#: Statistics with a table by dataset, and its title.
BY_DATASET = {
    "detection_auc": "Detection AUC",
    "remove_high_area": "Area under the removal curve, best rows first",
    "std_ratio": "Standard deviation of the values, noisy over clean",
    "positive_change": "Change of the share of positive values",
}
#: Smallest share of the values' spread beyond sampling error for which a ratio of spreads is shown.
LEAST_RELIABILITY = 0.1


@dataclass(frozen=True, kw_only=True)
class FamilySettings(Settings):
    """Sizes of the comparison.

    Attributes
    ----------
    n_test : int
    fits : int
        Budget of model fits of every sampled method, spent in two independent halves.
    flipped : float
        Share of training labels that are made wrong.
    noise : float
        Standard deviation of the validation noise, in units of each feature's.
    """

    n_test: int = 300
    fits: int
    flipped: float = 0.1
    noise: float = 1.0

    ELSEWHERE: ClassVar[tuple[str, ...]] = ("name", "datasets", "data_dir", "seeds")


FULL = FamilySettings(n_train=100, n_val=100, fits=1000, seeds=3)
QUICK = FamilySettings(name="quick", n_train=30, n_val=60, fits=400, seeds=1)


def _knn(**options: Any) -> Callable[[int, int], Any]:
    return lambda fits, seed: KNNShapley(progress=False, **options)


def _sampled(model: Any, **options: Any) -> Callable[[int, int], Any]:
    def make(fits: int, seed: int) -> SampledShapley:
        return SampledShapley(model, max_fits=fits, random_state=seed, on_error="constant", progress=False, **options)

    return make


#: Methods by name: a function of a budget and a seed that makes the model. Exact methods ignore both.
METHODS: dict[str, Callable[[int, int], Any]] = {
    "KNN Shapley, soft": _knn(),
    "KNN Shapley, hard": _knn(utility="hard"),
    "KNN Beta(4, 1)": _knn(semivalue=Beta(4, 1)),
    "KNN Banzhaf": _knn(semivalue="banzhaf"),
    "KNN leave-one-out": _knn(semivalue="loo"),
    "KNN calibrated": _knn(semivalue="calibrated"),
    "NB permutation": _sampled(GaussianNB(), sampler="permutation"),
    "NB truncated": _sampled(GaussianNB(), sampler="truncated"),
    "NB antithetic": _sampled(GaussianNB(), sampler="antithetic"),
    "NB stratified": _sampled(GaussianNB(), sampler=Stratified(2)),
    "NB complementary": _sampled(GaussianNB(), sampler=Complementary(4)),
    "NB group testing": _sampled(GaussianNB(), sampler="group_testing"),
    "NB Beta(4, 1)": _sampled(GaussianNB(), sampler="permutation", semivalue=Beta(4, 1)),
    "NB Banzhaf (MSR)": _sampled(GaussianNB(), semivalue="banzhaf"),
    "NB distributional(20)": _sampled(GaussianNB(), semivalue=Distributional(20)),
    "NB class-wise": _sampled(GaussianNB(), sampler="classwise"),
    "NB leave-one-out": _sampled(GaussianNB(), semivalue="loo"),
    "NB out-of-bag": _sampled(GaussianNB(), sampler="oob"),
    "kNN model, permutation": _sampled(KNeighborsClassifier(), sampler="permutation", utility="probability"),
    "kNN model, Banzhaf (MSR)": _sampled(KNeighborsClassifier(), semivalue="banzhaf", utility="probability"),
    "logistic, permutation": _sampled(LogisticRegression(solver="liblinear"), sampler="permutation"),
    "logistic, Banzhaf (MSR)": _sampled(LogisticRegression(solver="liblinear"), semivalue="banzhaf"),
    "tree, permutation": _sampled(DecisionTreeClassifier(max_depth=5), sampler="permutation"),
    "tree, Banzhaf (MSR)": _sampled(DecisionTreeClassifier(max_depth=5), semivalue="banzhaf"),
}


def run_family(folder: Path, settings: FamilySettings = FULL, page: Path | None = None) -> Path:
    """Compare the methods on the datasets; write ``family.csv`` (every cell) and a page of tables (``family.md``)."""
    work: dict[tuple[str, int, int], tuple[str, Callable[[], Record]]] = {}
    for dataset in settings.datasets:
        for seed in range(settings.seeds):
            split = Split(dataset, seed, settings)
            for number, method in enumerate(METHODS):
                key = f"{settings.digest}-{split.checksum}-{method}"
                work[dataset, seed, number] = key, partial(_measure, split, method, settings)
    found = run_cells(folder / "cells", work)
    methods = list(METHODS)
    records = pd.DataFrame(
        [
            {"dataset": dataset, "method": methods[number], "seed": seed, **record}
            for (dataset, seed, number), record in found.items()
        ]
    )
    write_table(folder / "family", records)
    return write_page(page or folder / "family.md", [family_tables(records)])


class Split:
    """One split of a dataset: partly wrong training labels, a clean and a noisy validation set, and a test set."""

    def __init__(self, dataset: str, seed: int, settings: FamilySettings) -> None:
        m = settings.n_val
        data = settings.load(dataset, "balanced", seed, m + settings.n_test)
        self.checksum = data.sha256[:16]
        self.X = data.X_train
        _, self.y = FlipLabels(settings.flipped, random_state=seed)(data.X_train, data.y_train)
        self.wrong = self.y != data.y_train
        self.X_test, self.y_test = data.X_val[m:], data.y_val[m:]
        clean, labels = data.X_val[:m], data.y_val[:m]
        near = KNNShapley(progress=False).fit(self.X, self.y)
        noisy, _ = GaussianNoise(settings.noise, relative=True, random_state=seed).bind(near)(clean, labels)
        # Both versions in one set, so that a model is fitted once for both, and values use the same coalitions.
        self.X_val, self.y_val = np.concatenate([clean, noisy]), np.concatenate([labels, labels])
        self.version = np.repeat(["clean", "noisy"], m)


def _measure(split: Split, method: str, settings: FamilySettings) -> Record:
    """Value by one method in two independent halves, and compute the statistics."""
    started = time.process_time()
    halves = [_value(METHODS[method](settings.fits // 2, seed).fit(split.X, split.y), split) for seed in (0, 1)]
    seconds = time.process_time() - started
    clean, noisy = ((halves[0][which] + halves[1][which]) / 2 for which in ("clean", "noisy"))
    # Independent halves share only the true values, so their covariance is the variance without sampling error.
    spread = {which: float(np.cov(halves[0][which], halves[1][which])[0, 1]) for which in ("clean", "noisy")}
    found = evaluate_valuation(
        _as_valuation(clean, split),
        split.X,
        split.y,
        mislabelled=split.wrong,
        estimator=GaussianNB(),
        X_test=split.X_test,
        y_test=split.y_test,
        keep_class_shares=False,
        random_orders=1,
        progress=False,
    )
    detection = found.detection or {}
    total = float(clean.var(ddof=1))
    return {
        "seconds": seconds,
        "detection_auc": detection["auc"],
        "remove_high_area": found.areas["remove_high"],
        "remove_low_area": found.areas["remove_low"],
        "variance_clean": spread["clean"],
        "variance_noisy": spread["noisy"],
        "positive_clean": float(np.mean(clean > 0)),
        "positive_change": float(np.mean(noisy > 0) - np.mean(clean > 0)),
        "spearman": _number(spearman(noisy, clean)),
        "reliability": spread["clean"] / total if total > 0 else None,
    }


def _value(model: Any, split: Split) -> dict[str, Floats]:
    if getattr(model, "sampler", "") == "classwise":
        # Its utility is not a mean over points, so each version is valued separately.
        parts = [split.version == which for which in ("clean", "noisy")]
        return {
            which: model.value(split.X_val[part], split.y_val[part]).values
            for which, part in zip(("clean", "noisy"), parts, strict=True)
        }
    return dict(model.value(split.X_val, split.y_val, groups=split.version).group_values)


def _as_valuation(values: Floats, split: Split) -> Valuation:
    found = KNNShapley(progress=False).fit(split.X, split.y).value(split.X_val, split.y_val)
    fields = {name: getattr(found, name) for name in ("ids", "entropy", "boundary", "level_entropy", "level_counts")}
    return Valuation(
        values=values,
        **fields,
        level_values=np.tile(values, (found.level_counts.size, 1)),
        group_means=np.empty((0, values.size)),
        group_names=(),
        group_sizes=(),
        matrix=None,
        parameters={},
        fingerprint=found.fingerprint,
    )


def _number(value: float) -> float | None:
    return value if np.isfinite(value) else None


def family_tables(records: pd.DataFrame) -> str:
    """Write the tables: one over all datasets with intervals, and one per statistic of ``BY_DATASET``."""
    cells = records.groupby(["method", "dataset"], sort=False)
    measured = [name for name in STATISTICS if name != "std_ratio"]
    means = records.astype(dict.fromkeys(measured, float)).groupby(["method", "dataset"], sort=False)[measured].mean()
    # Variances are summed over seeds first: ratios of single noisy variances are meaningless.
    noisy, clean = (cells[f"variance_{which}"].sum() for which in ("noisy", "clean"))
    known = (means["reliability"] >= LEAST_RELIABILITY) & (noisy > 0) & (clean > 0)
    means["std_ratio"] = np.sqrt((noisy / clean).where(known))
    methods, datasets = records["method"].unique(), records["dataset"].unique()
    parts = [
        f"Means over {len(datasets)} datasets, geometric ones of the std ratio, with 95% t-intervals over datasets.\n",
        markdown_table(
            [
                {"method": method}
                | {title: _interval(means.loc[method][name].dropna(), name) for name, title in STATISTICS.items()}
                for method in methods
            ]
        ),
    ]
    for name, title in BY_DATASET.items():
        rows = [
            {"method": method} | {dataset: _shown(means.loc[method, dataset][name], name) for dataset in datasets}
            for method in methods
        ]
        parts += [f"{title}, by dataset:\n", markdown_table(rows)]
    return "\n".join(parts)


def _interval(found: pd.Series, statistic: str) -> str:
    known = found.to_numpy(dtype=np.float64)
    if known.size == 0:
        return "-"
    # Ratios are averaged as logarithms, so that half and double cancel.
    there, back = (np.log, np.exp) if statistic == "std_ratio" else (np.asarray, np.asarray)
    numbers = there(known)
    mean = _shown(float(back(numbers.mean())), statistic)
    if statistic == "seconds" or known.size < 2:
        return mean
    low, high = (back(end) for end in t_interval(numbers.mean(), numbers.std(ddof=1), known.size))
    return f"{mean} [{_shown(float(low), statistic)}, {_shown(float(high), statistic)}]"


def _shown(number: float, statistic: str) -> str:
    if not np.isfinite(number):
        return "-"
    if statistic == "seconds":
        return f"{number:.2g}"
    return f"{number:+.2f}" if statistic == "positive_change" else f"{number:.2f}"
