"""The experiments of the paper: a dataset, a protocol and a seed in, records out."""

import warnings
from dataclasses import dataclass
from typing import Any, ClassVar

from experiments.cells import Settings
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
from shapshift.agreement import agreement, neighbor_jaccard
from shapshift.correct import CorrectionWarning
from shapshift.data import Dataset
from shapshift.mechanism import KINDS, SCENARIOS, CaseOne, CaseTwo, NoiseDemo

Record = dict[str, Any]

#: Datasets on which the shift is also measured with the hard utility.
HARD = ("gaussian", "creditcard")
#: Datasets on which single points and pairs are followed.
CASES = ("gaussian", "creditcard")


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
    shown : float
        The level whose distributions the figures show.
    """

    n_neighbors: int = 5
    noise: tuple[float, ...]
    n_sets: int
    repeats: int
    shown: float = 1.0

    CELL_FORMAT: ClassVar[dict[str, int]] = {"format": 2}

    @property
    def strong(self) -> list[float]:
        """Noise levels from the shown one on."""
        return [sigma for sigma in self.noise if sigma >= self.shown]


FULL = PaperSettings(
    n_train=2000, n_val=1000, noise=(0.1, 0.2, 0.5, 1.0, 2.0, 3.0, 5.0), seeds=20, n_sets=10, repeats=10
)
QUICK = PaperSettings(name="quick", n_train=1000, n_val=400, noise=(0.2, 1.0, 5.0), seeds=4, n_sets=5, repeats=5)


def fitted(data: Dataset, settings: PaperSettings, utility: str = "soft") -> KNNShapley:
    """Fit the paper's model."""
    return KNNShapley(settings.n_neighbors, utility=utility, progress=False).fit(data.X_train, data.y_train)


def shift_and_correction(
    dataset: str, protocol: str, utility: str, seed: int, settings: PaperSettings
) -> dict[str, Any]:
    """Value one split clean, noisy at each level, and corrected.

    Returns
    -------
    dict
        ``records``, one per level and version ("clean", "noisy", "boundary", "entropy"); and ``example``, for seed 0
        the values of each version at the level that the figures show.
    """
    data = settings.load(dataset, protocol, seed)
    model = fitted(data, settings, utility)
    clean, near = model.value_and_neighbors(data.X_val, data.y_val)
    correctors = {
        "boundary": BoundaryCorrector(rule="paper").fit(clean),
        "entropy": EntropyNormalizer(rule="paper").fit(clean),
    }
    records = [_record(clean, clean, 0.0, "clean", 1.0)]
    example: dict[str, list[float]] = {}
    for number, sigma in enumerate(settings.noise):
        noise = GaussianNoise(sigma, relative=True, random_state=seed * len(settings.noise) + number).bind(model)
        noisy, moved = model.value_and_neighbors(*noise(data.X_val, data.y_val))
        versions: dict[str, Valuation] = {"noisy": noisy}
        with warnings.catch_warnings():
            # A validation set can lose all its boundary points; the documented rule then applies.
            warnings.simplefilter("ignore", CorrectionWarning)
            versions |= {kind: corrector.transform(noisy) for kind, corrector in correctors.items()}
        jaccard = float(neighbor_jaccard(near.nearest, moved.nearest).mean())
        records += [_record(v, clean, sigma, version, jaccard) for version, v in versions.items()]
        if sigma == settings.shown and seed == 0:
            example = {version: v.values.tolist() for version, v in {"clean": clean, **versions}.items()}
    return {"records": records, "example": example}


def _record(valuation: Valuation, clean: Valuation, sigma: float, version: str, jaccard: float) -> Record:
    stats = valuation.stats()
    rows = agreement(valuation.values, clean.values)
    return {
        "sigma": sigma,
        "version": version,
        **{key: stats[key] for key in ("mean", "std", "positive_count")},
        "boundary_fraction": valuation.boundary_fraction,
        "jaccard": jaccard,
        **{key: rows[key] for key in ("spearman", "rmse", "flips_to_negative", "flips_to_positive")},
    }


def cases(
    dataset: str, protocol: str, seed: int, n_sets: int, settings: PaperSettings
) -> tuple[list[CaseOne], list[CaseTwo]]:
    """Follow single points and pairs of one split, ``n_sets`` of each kind."""
    data = settings.load(dataset, protocol, seed)
    model = fitted(data, settings)
    options: dict[str, Any] = {
        "noise": settings.noise,
        "example": settings.shown,
        "repeats": settings.repeats,
        "random_state": seed,
    }
    ones = [case_one(model, data.X_val, data.y_val, kind=kind, n_points=n_sets, **options) for kind in KINDS]
    twos = [
        case_two(model, data.X_val, data.y_val, scenario=scenario, n_pairs=n_sets, X_train=data.X_train, **options)
        for scenario in SCENARIOS
    ]
    return ones, twos


def case_records(dataset: str, protocol: str, seed: int, settings: PaperSettings) -> list[Record]:
    """Tabulate the cases of one split: one record per case and noise level, each statistic averaged over its points."""
    ones, twos = cases(dataset, protocol, seed, settings.n_sets, settings)
    found: list[tuple[str, CaseOne | CaseTwo]] = [(case.kind, case) for case in ones]
    found += [(case.scenario, case) for case in twos]
    return [
        {"case": kind, "noise": noise}
        | {statistic: float(samples[level].mean()) for statistic, samples in case.samples.items()}
        for kind, case in found
        for level, noise in enumerate(case.noise.tolist())
    ]


def demo(settings: PaperSettings) -> NoiseDemo:
    """Show one point near the boundary and its noisy version."""
    data = settings.load("gaussian", "balanced", 0)
    return noise_demo(fitted(data, settings), data.X_val, data.y_val, X_train=data.X_train, noise=0.1)
