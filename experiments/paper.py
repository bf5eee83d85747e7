"""The experiments of the paper: functions from a dataset, a protocol and a seed to records."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from experiments.cells import Settings
from experiments.study import compare, corrected, measured
from shapshift import (
    BoundaryCorrector,
    EntropyNormalizer,
    GaussianNoise,
    KNNShapley,
    Valuation,
    case_one,
    case_two,
    noise_demo,
)
from shapshift.data import Dataset
from shapshift.mechanism import KINDS, SCENARIOS, CaseOne, CaseTwo, NoiseDemo
from shapshift.perturb import FlipLabels, MaskFeatures

Record = dict[str, Any]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

#: Share of the training rows in "top", for the concentration of positive contributions.
TOP = 0.1
#: The correction with only one of its three parts, as parameters of the corrector.
PARTS: dict[str, dict[str, Any]] = {
    "boundary factor": {"rescale": "boundary", "shift": False},
    "nonboundary factor": {"rescale": "nonboundary", "shift": False},
    "shift": {"rescale": "none", "shift": True},
}
#: The corrections as published, and their parts.
CORRECTORS: dict[str, Any] = {
    "boundary": BoundaryCorrector(rule="paper"),
    "entropy": EntropyNormalizer(rule="paper"),
    **{name: BoundaryCorrector(rule="paper", **switches) for name, switches in PARTS.items()},
}
#: Statistics of a record, and versions of values that the figures show.
COMPARED = ("mean", "std", "positive_count", "wasserstein", "size", "range", "spearman", "rmse")
SHOWN = ("noisy", "boundary")
#: Changes of a validation set other than Gaussian noise.
OTHER_CHANGES = {
    "20% of labels flipped": FlipLabels(0.2, random_state=0),
    "30% of entries masked": MaskFeatures(0.3, random_state=0),
}


@dataclass(frozen=True, kw_only=True)
class PaperSettings(Settings):
    """Sizes of a reproduction.

    Attributes
    ----------
    n_neighbors : int
    noise : tuple of float
        Standard deviation of the noise, in units of each feature's standard deviation over the training rows.
    n_sets, repeats : int
        Validation points or pairs per case and seed, and draws of noise for each.
    other_seeds : int
        Number of seeds for settings that the paper does not show.
    level : float
        Noise on whole validation sets at which claims that name no level are judged.
    point_level : float
        The same for single points and pairs; also the level whose factors are applied at other levels.
    modest, small : float
        Levels of modest and of small noise.
    """

    n_neighbors: int = 5
    noise: tuple[float, ...]
    n_sets: int
    repeats: int
    other_seeds: int
    level: float = 3.0
    point_level: float = 1.0
    modest: float = 0.5
    small: float = 0.1

    CELL_FORMAT: ClassVar[dict[str, int]] = {"format": 3}

    @property
    def strong(self) -> tuple[float, ...]:
        """Noise levels from ``point_level`` upwards."""
        return tuple(sigma for sigma in self.noise if sigma >= self.point_level)

    @property
    def from_modest(self) -> tuple[float, ...]:
        """Noise levels from ``modest`` upwards."""
        return tuple(sigma for sigma in self.noise if sigma >= self.modest)


FULL = PaperSettings(
    n_train=2000,
    n_val=1000,
    noise=(0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0),
    seeds=20,
    other_seeds=8,
    n_sets=10,
    repeats=10,
    processes=2,
)
QUICK = PaperSettings(
    name="quick",
    n_train=500,
    n_val=300,
    noise=(0.1, 0.5, 1.0, 3.0),
    seeds=3,
    other_seeds=2,
    n_sets=4,
    repeats=4,
    processes=2,
)


def fitted(data: Dataset, settings: PaperSettings, utility: str = "soft") -> KNNShapley:
    """Fit the paper's model."""
    return KNNShapley(settings.n_neighbors, utility=utility, progress=False).fit(data.X_train, data.y_train)


def whole_set(dataset: str, protocol: str, utility: str, seed: int, settings: PaperSettings) -> dict[str, Any]:
    """Value one split clean, noisy at each level, noisy on one kind of points only, and corrected.

    Values are additive over validation points, so the matrices of a clean and of a noisy run are enough: for noise on
    boundary points only, their columns come from the noisy matrix and the others from the clean one.

    Returns
    -------
    dict
        ``records``, one per level and version ("clean", "noisy", "noise on boundary", "noise on nonboundary",
        "boundary" and "entropy" for the correctors, and the parts of the correction); and ``example``, for seed 0 the
        values of some versions at the level that the figures show.
    """
    data = settings.load(dataset, protocol, seed)
    model = fitted(data, settings, utility)
    noise = {str(sigma): GaussianNoise(sigma, relative=True, random_state=1000 + seed) for sigma in settings.noise}
    runs = measured(model, data.X_val, data.y_val, noise, CORRECTORS, matrix=True)
    clean = next(runs).valuation
    assert clean.matrix is not None
    records = [record(clean.values, clean.values, 0.0, "clean") | point_kinds(clean.matrix, clean.boundary)]
    example: dict[str, list[float]] = {}
    for run in runs:
        sigma, values = float(run.perturbation), run.valuation.values
        records.append(record(values, clean.values, sigma, run.version))
        if run.version == "noisy":
            matrix = run.valuation.matrix
            assert matrix is not None
            records[-1] |= point_kinds(matrix, clean.boundary)
            records[-1] |= {key: run.record[key] for key in ("boundary_fraction", "jaccard")}
            for kind, moved in (("boundary", clean.boundary), ("nonboundary", ~clean.boundary)):
                partly = np.where(moved, matrix, clean.matrix).mean(axis=1)
                records.append(record(partly, clean.values, sigma, f"noise on {kind}"))
        if run.version in SHOWN and sigma == settings.level and (seed, utility, protocol) == (0, "soft", "balanced"):
            example |= {"clean": clean.values.tolist(), run.version: values.tolist()}
    return {"records": [rounded(each) for each in records], "example": example}


def record(values: Floats, clean: Floats, sigma: float, version: str) -> Record:
    """Compare values with the clean ones, as distributions and row by row."""
    found = compare(values, clean)
    return {"sigma": sigma, "version": version} | {key: found[key] for key in COMPARED}


def point_kinds(matrix: Floats, boundary: Mask) -> Record:
    """Cancellation, concentration and positive rows on the boundary points and on the others.

    Cancellation is 1 minus the ratio of the absolute values of the rows' sums to the sum of the absolute values of
    their contributions: 0 if each row's contributions have one sign, 1 if they add up to 0. Concentration is the share
    of the positive contributions that the top rows hold: of what rows contribute over all points (``top``), of their
    positive net values (``net_top``), and on single points, averaged (``point_top``). ``effective`` is the number of
    rows that an even distribution of the same concentration would have, (sum)^2 / (sum of squares).
    """
    found: Record = {}
    for name, part in (("boundary", matrix[:, boundary]), ("nonboundary", matrix[:, ~boundary])):
        sums, gains = part.sum(axis=1), np.maximum(part, 0.0)
        sizes, gross = float(np.abs(part).sum()), gains.sum(axis=1)
        found |= {
            f"cancelled_{name}": 1 - float(np.abs(sums).sum()) / sizes if sizes > 0 else np.nan,
            f"top_{name}": float(np.mean(top_share(gross[:, None]))),
            f"net_top_{name}": float(np.mean(top_share(np.maximum(sums, 0.0)[:, None]))),
            f"point_top_{name}": float(np.mean(top_share(gains))) if part.shape[1] else np.nan,
            f"effective_{name}": float(gross.sum() ** 2 / (gross**2).sum()) if sizes > 0 else np.nan,
            f"positive_{name}": int(np.count_nonzero(sums > 0)),
        }
    return found


def top_share(gains: Floats) -> Floats:
    """Share of each column's sum that its top rows hold; NaN if the sum is 0."""
    count = max(1, round(TOP * len(gains)))
    top = np.partition(gains, len(gains) - count, axis=0)[len(gains) - count :].sum(axis=0)
    total = gains.sum(axis=0)
    return np.asarray(np.divide(top, total, out=np.full(total.shape, np.nan), where=total > 0))


def rounded(numbers: Mapping[str, Any]) -> Record:
    """The record with five significant digits, as in the tables."""
    return {key: float(f"{number:.5g}") if isinstance(number, float) else number for key, number in numbers.items()}


def other_noise(dataset: str, seed: int, settings: PaperSettings) -> list[Record]:
    """Correct under changes without the clean counterpart, or other than noise.

    Returns
    -------
    list of dict
        One record per ``case`` and ``version`` ("noisy", "boundary", "entropy"). "same points": the correction as
        published. "factors of another level": both factors and the shift learned at ``settings.point_level`` and
        applied as they are. "other clean points": the clean run is on other points of the same population. The other
        cases use the published correction under other kinds of change.
    """
    data = settings.load(dataset, "balanced", seed, n_val=2 * settings.n_val)
    model = fitted(data, settings)
    X_val, y_val = data.X_val[: settings.n_val], data.y_val[: settings.n_val]
    clean = model.value(X_val, y_val)
    other = model.value(data.X_val[settings.n_val :], data.y_val[settings.n_val :])

    def noise(sigma: float) -> GaussianNoise:
        return GaussianNoise(sigma, relative=True, random_state=1000 + seed).bind(model)

    strong = model.value(*noise(settings.level)(X_val, y_val))
    factors = BoundaryCorrector(rule="paper").fit(clean)
    corrected(factors, model.value(*noise(settings.point_level)(X_val, y_val)))
    found = [("same points", "noisy", strong.values)]
    found += [
        ("factors of another level", "boundary", apply_factors(factors.report_.groups, factors.report_.shift, strong))
    ]
    runs: dict[str, tuple[Valuation, Valuation]] = {
        "same points": (clean, strong),
        "other clean points": (other, strong),
    }
    for name, change in OTHER_CHANGES.items():
        changed = model.value(*change.bind(model).with_seed(1000 + seed)(X_val, y_val))
        found.append((name, "noisy", changed.values))
        runs[name] = (clean, changed)
    for name, (reference, noisy) in runs.items():
        for version, kind in (("boundary", BoundaryCorrector), ("entropy", EntropyNormalizer)):
            found.append((name, version, corrected(kind(rule="paper").fit(reference), noisy).values))
    return [
        rounded({"case": case, **record(values, clean.values, settings.level, version)})
        for case, version, values in found
    ]


def apply_factors(groups: Mapping[str, Mapping[str, Any]], shift: float, noisy: Valuation) -> Floats:
    """Apply the paper's factors and shift unchanged to other values; kinds of points without a factor use 1."""
    share = noisy.boundary_fraction
    total = np.full(noisy.n_train, shift)
    for name, weight, scores in (
        ("boundary", share, noisy.boundary_values),
        ("nonboundary", 1 - share, noisy.nonboundary_values),
    ):
        if scores is not None:
            alpha = groups[name]["alpha"] if name in groups else 1.0
            total += weight * (scores.mean() + alpha * (scores - scores.mean()))
    return total


def cases(dataset: str, seed: int, n_sets: int, settings: PaperSettings) -> tuple[list[CaseOne], list[CaseTwo]]:
    """Track single points and pairs of one split with balanced classes, ``n_sets`` of each kind."""
    data = settings.load(dataset, "balanced", seed)
    model = fitted(data, settings)
    options: dict[str, Any] = {
        "noise": settings.noise,
        "example": settings.point_level,
        "repeats": settings.repeats,
        "random_state": seed,
        "perturbation": lambda sigma: GaussianNoise(sigma, relative=True),
    }
    ones = [case_one(model, data.X_val, data.y_val, kind=kind, n_points=n_sets, **options) for kind in KINDS]
    twos = [
        case_two(model, data.X_val, data.y_val, scenario=scenario, n_pairs=n_sets, X_train=data.X_train, **options)
        for scenario in SCENARIOS
    ]
    return ones, twos


def case_records(dataset: str, seed: int, settings: PaperSettings) -> list[Record]:
    """Tabulate the cases of one split: one record per case ("B", "N", "BB", "NN", "BN") and noise level.

    Each statistic is the mean over points and draws of noise; ``typical_std`` and ``typical_range`` are the medians of
    the ratios to the clean point, which are robust to a few points that noise moves to another region.
    """
    ones, twos = cases(dataset, seed, settings.n_sets, settings)
    found: list[tuple[str, CaseOne | CaseTwo]] = [(case.kind[0].upper(), case) for case in ones]
    found += [(case.scenario, case) for case in twos]
    records = []
    for kind, case in found:
        for level, noise in enumerate(case.noise.tolist()):
            made: Record = {"version": kind, "sigma": noise}
            made |= {statistic: float(samples[level].mean()) for statistic, samples in case.samples.items()}
            if isinstance(case, CaseOne):
                made["typical_std"] = float(np.median(case.samples["std_ratio"][level]))
                made["typical_range"] = float(np.median(case.samples["range_ratio"][level]))
            records.append(rounded(made))
    return records


def demo(settings: PaperSettings) -> NoiseDemo:
    """Show one point near the boundary and its noisy version."""
    data = settings.load("gaussian", "balanced", 0)
    return noise_demo(fitted(data, settings), data.X_val, data.y_val, X_train=data.X_train, noise=settings.small)
