"""The experiments themselves: a dataset and a protocol in, plain records out."""

import warnings
from typing import Any

from shapshift.agreement import agreement, neighbor_jaccard
from shapshift.correct import BoundaryCorrector, CorrectionWarning, EntropyNormalizer
from shapshift.data import Dataset, load_dataset
from shapshift.estimators import KNNShapley
from shapshift.mechanism import KINDS, SCENARIOS, CaseOne, CaseTwo, NoiseDemo, case_one, case_two, noise_demo
from shapshift.perturb import GaussianNoise
from shapshift.reproduce._settings import Settings
from shapshift.valuation import Valuation

Record = dict[str, Any]


def load(name: str, protocol: str, seed: int, settings: Settings, data_dir: str | None) -> Dataset:
    """Load one split of a dataset."""
    return load_dataset(
        name,
        protocol=protocol,
        random_state=seed,
        n_train=settings.n_train,
        n_val=settings.n_val,
        data_dir=data_dir,
    )


def fitted(data: Dataset, settings: Settings, utility: str = "soft") -> KNNShapley:
    """Fit the paper's backbone."""
    return KNNShapley(settings.n_neighbors, utility=utility, progress=False).fit(data.X_train, data.y_train)


def shift_and_correction(
    name: str, protocol: str, utility: str, seed: int, settings: Settings, data_dir: str | None
) -> dict[str, Any]:
    """Value one split clean, noisy at each level, and corrected.

    Returns
    -------
    dict
        ``records``, one per level and version ("clean", "noisy", "boundary", "entropy"); and ``example``, for seed 0
        the values of each version at the level that the figures show.
    """
    data = load(name, protocol, seed, settings, data_dir)
    model = fitted(data, settings, utility)
    clean, near = model.value_and_neighbors(data.X_val, data.y_val)
    correctors = {
        "boundary": BoundaryCorrector(positive="nearest", min_points=1).fit(clean),  # as published
        "entropy": EntropyNormalizer(positive="nearest", min_points=1).fit(clean),
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
        "mean": stats["mean"],
        "std": stats["std"],
        "positive_count": stats["positive_count"],
        "boundary_fraction": valuation.boundary_fraction,
        "jaccard": jaccard,
        **{key: rows[key] for key in ("spearman", "rmse", "flips_to_negative", "flips_to_positive")},
    }


def cases(
    name: str, protocol: str, seed: int, n_sets: int, settings: Settings, data_dir: str | None
) -> tuple[list[CaseOne], list[CaseTwo]]:
    """Follow single points and pairs of one split, ``n_sets`` of each kind."""
    data = load(name, protocol, seed, settings, data_dir)
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


def case_records(name: str, protocol: str, seed: int, settings: Settings, data_dir: str | None) -> list[Record]:
    """Tabulate the cases of one split: one record per case and noise level, each statistic averaged over its points."""
    ones, twos = cases(name, protocol, seed, settings.n_sets, settings, data_dir)
    found: list[tuple[str, CaseOne | CaseTwo]] = [(case.kind, case) for case in ones]
    found += [(case.scenario, case) for case in twos]
    return [
        {"case": kind, "noise": noise}
        | {statistic: float(samples[level].mean()) for statistic, samples in case.samples.items()}
        for kind, case in found
        for level, noise in enumerate(case.noise.tolist())
    ]


def demo(settings: Settings) -> NoiseDemo:
    """Show one point near the boundary and its noisy version."""
    data = load("gaussian", "balanced", 0, settings, None)
    return noise_demo(fitted(data, settings), data.X_val, data.y_val, X_train=data.X_train, noise=0.1)
