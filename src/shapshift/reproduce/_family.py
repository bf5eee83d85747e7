"""Every method of the family on every dataset: time, detection, removal, and the shift under validation noise."""

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.tree import DecisionTreeClassifier

from shapshift._files import write_text
from shapshift._progress import progress_bar
from shapshift.agreement import spearman, t_interval
from shapshift.coefficients import Beta
from shapshift.data import load_dataset
from shapshift.estimators import KNNShapley
from shapshift.evaluation import evaluate_valuation
from shapshift.perturb import FlipLabels, GaussianNoise
from shapshift.reproduce._cells import stored, write_csv
from shapshift.reproduce._settings import DATASETS
from shapshift.sampled import Complementary, Distributional, SampledShapley, Stratified
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Record = dict[str, Any]

#: What a cell holds, in the order of the table.
STATISTICS = (
    "seconds",
    "detection_auc",
    "remove_high_area",
    "remove_low_area",
    "std_ratio",
    "positive_clean",
    "positive_change",
    "spearman",
    "reliability",
)


#: Where less than this share of the spread of the values is more than sampling error, no ratio of spreads is shown.
LEAST_RELIABILITY = 0.1


@dataclass(frozen=True)
class FamilySettings:
    """Sizes of the comparison.

    Attributes
    ----------
    n_train, n_val, n_test : int
    fits : int
        Budget of model fits of every sampled method, spent in two independent halves.
    flipped : float
        Share of training labels that are turned.
    noise : float
        Standard deviation of the validation noise, in units of each feature's.
    seeds : int
    datasets : tuple of str
    """

    n_train: int = 100
    n_val: int = 100
    n_test: int = 300
    fits: int = 1000
    flipped: float = 0.1
    noise: float = 1.0
    seeds: int = 3
    datasets: tuple[str, ...] = DATASETS

    @property
    def digest(self) -> str:
        """Short hash by which stored cells are recognised."""
        sizes = {key: value for key, value in asdict(self).items() if key not in ("datasets", "seeds")}
        return hashlib.sha256(json.dumps(sizes, sort_keys=True).encode()).hexdigest()[:16]


def _knn(**options: Any) -> Callable[[int, int], Any]:
    return lambda fits, seed: KNNShapley(progress=False, **options)


def _sampled(model: Any, **options: Any) -> Callable[[int, int], Any]:
    def make(fits: int, seed: int) -> SampledShapley:
        return SampledShapley(model, max_fits=fits, random_state=seed, on_error="constant", progress=False, **options)

    return make


#: Methods by name: a function of a budget and a seed that makes the model. Those that are exact ignore both.
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


def run_family(
    folder: str | Path = "family",
    *,
    settings: FamilySettings | None = None,
    data_dir: str | None = None,
    progress: bool | None = None,
) -> Path:
    """Compare the methods on the datasets; write ``family.csv`` (every cell) and ``family.md`` (the tables).

    Parameters
    ----------
    folder : path-like, default="family"
        Finished cells are kept in ``cells/``: an interrupted run goes on from them.
    settings : FamilySettings, optional
    data_dir : str, optional
        Folder of the real datasets, see :func:`shapshift.data.load_dataset`.
    progress : bool, optional

    Returns
    -------
    pathlib.Path
        The page of tables.
    """
    chosen = settings or FamilySettings()
    out = Path(folder)
    (out / "cells").mkdir(parents=True, exist_ok=True)
    records: list[Record] = []
    with progress_bar("Comparing", len(chosen.datasets) * chosen.seeds * len(METHODS), progress) as advance:
        for dataset in chosen.datasets:
            for seed in range(chosen.seeds):
                split = _Split(dataset, seed, chosen, data_dir)
                for number, method in enumerate(METHODS):
                    path = out / "cells" / f"{dataset}-{seed}-{number}.json"
                    key = f"{chosen.digest}-{split.checksum}-{method}"
                    found = stored(path, key, partial(_measure, split, method, chosen))
                    records.append({"dataset": dataset, "method": method, "seed": seed, **found})
                    advance(1)
    write_csv(out / "family.csv", records)
    return write_text(out / "family.md", family_tables(records))


class _Split:
    """One split of a dataset: turned training labels, a clean and a noisy validation set, and a test set."""

    def __init__(self, dataset: str, seed: int, settings: FamilySettings, data_dir: str | None) -> None:
        data = load_dataset(
            dataset,
            protocol="balanced",
            random_state=seed,
            n_train=settings.n_train,
            n_val=settings.n_val + settings.n_test,
            data_dir=data_dir,
        )
        m = settings.n_val
        self.checksum = data.sha256[:16]
        self.X = data.X_train
        _, self.y = FlipLabels(settings.flipped, random_state=seed)(data.X_train, data.y_train)
        self.wrong = self.y != data.y_train
        self.X_test, self.y_test = data.X_val[m:], data.y_val[m:]
        clean, labels = data.X_val[:m], data.y_val[:m]
        near = KNNShapley(progress=False).fit(self.X, self.y)
        noisy, _ = GaussianNoise(settings.noise, relative=True, random_state=seed).bind(near)(clean, labels)
        # Both versions in one set: a model is fitted once for both, and values are compared on the same coalitions.
        self.X_val, self.y_val = np.concatenate([clean, noisy]), np.concatenate([labels, labels])
        self.version = np.repeat(["clean", "noisy"], m)


def _measure(split: _Split, method: str, settings: FamilySettings) -> Record:
    """Value by one method in two independent halves, and measure."""
    started = time.process_time()
    halves = [_value(METHODS[method](settings.fits // 2, seed).fit(split.X, split.y), split) for seed in (0, 1)]
    seconds = time.process_time() - started
    clean, noisy = ((halves[0][which] + halves[1][which]) / 2 for which in ("clean", "noisy"))
    # Independent halves share nothing but the truth, so their covariance is its variance, free of sampling error.
    spread = {which: float(np.cov(halves[0][which], halves[1][which])[0, 1]) for which in ("clean", "noisy")}
    found = evaluate_valuation(
        _as_valuation(clean, split),
        split.X,
        split.y,
        mislabelled=split.wrong,
        estimator=GaussianNB(),
        X_test=split.X_test,
        y_test=split.y_test,
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


def _value(model: Any, split: _Split) -> dict[str, Floats]:
    if getattr(model, "sampler", "") == "classwise":
        # Its utility is not a mean over points: each version has to be valued alone.
        parts = [split.version == which for which in ("clean", "noisy")]
        return {
            which: model.value(split.X_val[part], split.y_val[part]).values
            for which, part in zip(("clean", "noisy"), parts, strict=True)
        }
    return dict(model.value(split.X_val, split.y_val, groups=split.version).group_values)


def _as_valuation(values: Floats, split: _Split) -> Valuation:
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


def family_tables(records: list[Record]) -> str:
    """Write the tables: one over all datasets with intervals, and one per statistic that matters, by dataset."""
    datasets = list(dict.fromkeys(record["dataset"] for record in records))
    methods = list(dict.fromkeys(record["method"] for record in records))

    def cell(method: str, dataset: str, statistic: str) -> float:
        here = [record for record in records if record["method"] == method and record["dataset"] == dataset]
        if statistic == "std_ratio":
            # Variances are added up over seeds first: a ratio of single noisy ones would be anything.
            noisy, clean = (sum(record[f"variance_{which}"] for record in here) for which in ("noisy", "clean"))
            sure = cell(method, dataset, "reliability") >= LEAST_RELIABILITY
            return float(np.sqrt(noisy / clean)) if sure and noisy > 0 and clean > 0 else float("nan")
        found = [record[statistic] for record in here]
        known = [number for number in found if number is not None]
        return float(np.mean(known)) if known else float("nan")

    lines = [
        f"Means over {len(datasets)} datasets, geometric ones of the std ratio, with 95% t-intervals over datasets.",
        "",
        "| method | s | detection AUC | area, best removed | area, worst removed | std ratio | positive, clean | "
        "change of positive | Spearman | reliability |",
        "|---|" + "---|" * len(STATISTICS),
    ]
    for method in methods:
        shown = []
        for statistic in STATISTICS:
            known = np.array([cell(method, dataset, statistic) for dataset in datasets])
            shown.append(_interval(known[np.isfinite(known)], statistic))
        lines.append(f"| {method} | " + " | ".join(shown) + " |")
    for statistic, title in (
        ("detection_auc", "Detection AUC"),
        ("remove_high_area", "Area under the removal curve, best rows first"),
        ("std_ratio", "Standard deviation of the values, noisy over clean"),
        ("positive_change", "Change of the share of positive values"),
    ):
        lines += [
            "",
            f"{title}, by dataset:",
            "",
            f"| method | {' | '.join(datasets)} |",
            "|---|" + "---|" * len(datasets),
        ]
        for method in methods:
            row = [_shown(cell(method, dataset, statistic), statistic) for dataset in datasets]
            lines.append(f"| {method} | {' | '.join(row)} |")
    return "\n".join(lines) + "\n"


def _interval(known: Floats, statistic: str) -> str:
    if known.size == 0:
        return "-"
    # Ratios are averaged as logarithms: half and double cancel.
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
