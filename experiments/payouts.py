"""Changes of sellers' payouts under validation noise, and how far corrections and pooling undo them."""

import textwrap
import warnings
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.cells import Settings, run_cells
from experiments.manipulation import BUDGET, SELLERS, assign
from experiments.tables import Interval, interval, markdown_table, select, write_page, write_tables
from shapshift import (
    BoundaryCorrector,
    EntropyNormalizer,
    GaussianNoise,
    KNNShapley,
    Policy,
    PosteriorCorrector,
    Valuation,
    allocate_budget,
)
from shapshift.agreement import spearman
from shapshift.correct import CorrectionWarning

Record = dict[str, Any]

#: Versions of payouts on a noisy validation set, with titles.
VERSIONS = {
    "noisy": "noisy",
    "boundary": "boundary correction",
    "entropy": "entropy normalisation",
    "posterior": "posterior",
    "pooled": "pooled",
}
#: The tables pay only for rows with positive values.
CLIP = Policy(negatives="clip")
#: The reference: payouts on another clean sample of the same size.
ANOTHER = "another sample"


@dataclass(frozen=True, kw_only=True)
class PayoutSettings(Settings):
    """Sizes of the experiment.

    Attributes
    ----------
    noise : tuple of float
        Standard deviation of the noise, in units of each feature's over the training rows.
    n_owners : int
    draws : int
        Of the posterior correction, per point.
    """

    noise: tuple[float, ...] = (0.5, 1.0, 3.0)
    n_owners: int = 10
    draws: int = 8


FULL = PayoutSettings(n_train=1000, n_val=500, seeds=5, processes=2)
QUICK = PayoutSettings(name="quick", n_train=200, n_val=100, seeds=1, noise=(1.0,), draws=4)


def move_payouts(dataset: str, seed: int, settings: PayoutSettings) -> list[Record]:
    """Pay one split clean, noisy at each level, and corrected: a record per kind of sellers, level and version."""
    n = settings.n_val
    data = settings.load(dataset, "balanced", seed, 2 * n)
    X, y, more = data.X_val[:n], data.y_val[:n], (data.X_val[n:], data.y_val[n:])
    model = KNNShapley(5, progress=False).fit(data.X_train, data.y_train)
    clean = model.value(X, y)
    boundary, entropy = BoundaryCorrector(rule="paper").fit(clean), EntropyNormalizer(rule="paper").fit(clean)
    versions: dict[tuple[float, str], Valuation] = {(0.0, ANOTHER): model.value(*more)}
    versions[0.0, "pooled"] = model.value(X, y, pool="train")
    for number, sigma in enumerate(settings.noise):
        noise = GaussianNoise(sigma, relative=True, random_state=seed * len(settings.noise) + number).bind(model)
        X_noisy, y_noisy = noise(X, y)
        noisy = model.value(X_noisy, y_noisy)
        posterior = PosteriorCorrector(noise, draws=settings.draws, random_state=seed, progress=False).fit(model)
        with warnings.catch_warnings():
            # A noisy validation set can have no boundary points; the documented rule then applies.
            warnings.simplefilter("ignore", CorrectionWarning)
            versions |= {
                (sigma, "noisy"): noisy,
                (sigma, "boundary"): boundary.transform(noisy),
                (sigma, "entropy"): entropy.transform(noisy),
                (sigma, "posterior"): posterior.transform(X_noisy, y_noisy),
                (sigma, "pooled"): model.value(X_noisy, y_noisy, pool="train"),
            }
    records = []
    for sellers in SELLERS:
        owners = assign(data, settings.n_owners, sellers, seed)
        paid = allocate_budget(clean, BUDGET, owners=owners, policy=CLIP).cents / 100
        for (sigma, version), valuation in versions.items():
            now = allocate_budget(valuation, BUDGET, owners=owners, policy=CLIP).cents / 100
            moved = np.abs(now - paid)
            records.append(
                {
                    "sellers": sellers,
                    "sigma": sigma,
                    "version": version,
                    "share_change": float(moved.mean()) / BUDGET,
                    "moved": float(moved.sum()) / 2,
                    "largest": float(moved.max()),
                    "spearman": spearman(now, paid),
                }
            )
    return records


def payout_tables(folder: Path, settings: PayoutSettings) -> dict[str, pd.DataFrame]:
    """Run the experiment, cells stored under the folder.

    Returns
    -------
    dict of DataFrame
        ``payouts``, every seed; ``payouts_summary``, means over datasets with 95% intervals over seeds, and per version
        the change of the money moved against the noisy payouts of the same seed.
    """
    keys = settings.keys()
    work = {
        (name, seed): (keys[name], partial(move_payouts, name, seed, settings))
        for name in settings.datasets
        for seed in range(settings.seeds)
    }
    found = run_cells(folder / "cells", work, settings.processes)
    payouts = pd.DataFrame(
        [{"dataset": name, "seed": seed, **record} for (name, seed), rows in found.items() for record in rows]
    )
    return {"payouts": payouts, "payouts_summary": summarize(payouts)}


def summarize(payouts: pd.DataFrame) -> pd.DataFrame:
    """Means over datasets, with intervals over seeds; for all datasets together and for each."""
    rows = []
    parts = [("all", payouts), *payouts.groupby("dataset", sort=False)]
    for dataset, part in parts:
        for (sellers, sigma, version), here in part.groupby(["sellers", "sigma", "version"], sort=False):
            row: Record = {"dataset": dataset, "sellers": sellers, "sigma": sigma, "version": version}
            by_seed = here.groupby("seed")
            for name in ("share_change", "moved", "largest", "spearman"):
                row |= _columns(name, interval(by_seed[name].mean()))
            noisy = select(part, sellers=sellers, sigma=sigma, version="noisy")
            if len(noisy):
                change = by_seed["moved"].mean() - noisy.groupby("seed")["moved"].mean()
                row |= _columns("moved_against_noisy", interval(change))
            rows.append(row)
    return pd.DataFrame(rows)


def _columns(name: str, found: Interval) -> Record:
    return {name: found.mean, f"{name}_low": found.low, f"{name}_high": found.high}


def run_payouts(folder: Path, settings: PayoutSettings = FULL, page: Path | None = None) -> Path:
    """Measure how payouts move; write ``tables/`` (CSV) and the section as a page of its own (``payouts.md``).

    Parameters
    ----------
    folder : Path
        Gets ``tables/`` and ``cells/``.
    settings : PayoutSettings, default=FULL
    page : Path, optional
        Where to write the page; ``payouts.md`` in the folder by default.

    Returns
    -------
    Path
        The page.
    """
    tables = payout_tables(folder, settings)
    write_tables(folder, {name: table.round(6) for name, table in tables.items()})
    return write_page(page or folder / "payouts.md", [section(tables)])


def _surely_less(line: Any) -> bool:
    """Whether less is moved than on noisy points; False for a single seed, whose interval has no width."""
    return bool(line["moved_against_noisy_low"] < line["moved_against_noisy_high"] < 0)


def section(tables: dict[str, pd.DataFrame]) -> str:
    """Write the section for the page of the reproduction."""
    summary, payouts = tables["payouts_summary"], tables["payouts"]
    here = select(summary, dataset="all", sellers="random")
    levels = sorted(set(here["sigma"]) - {0.0})
    rows = []
    for version, title in VERSIONS.items():
        row = {"paid on": title}
        for sigma in levels:
            line = select(here, sigma=sigma, version=version).iloc[0]
            row[f"noise {sigma:g}"] = (
                f"{Interval(line['moved'], line['moved_low'], line['moved_high']).show(1)}; {line['spearman']:.2f}"
            )
        rows.append(row)
    another = select(here, version=ANOTHER).iloc[0]
    helped = []
    for version, title in list(VERSIONS.items())[1:]:
        below = [sigma for sigma in levels if _surely_less(select(here, sigma=sigma, version=version).iloc[0])]
        if below:
            helped.append(f"{title} at {', '.join(f'{sigma:g}' for sigma in below)}")
    said = (
        "Ten sellers with rows at random share 1,000. The table shows how much of it moves between them when the "
        "validation points are noisy, and when the noisy values are corrected first (the mean over "
        f"{payouts['dataset'].nunique()} datasets, with the 95% interval over {payouts['seed'].nunique()} seeds), and "
        "the rank correlation of payouts with the clean ones. Another clean sample of as many points moves "
        f"{another['moved']:.1f} ({another['spearman']:.2f}). Less moves than on the noisy points, by more than "
        f"chance: {'; '.join(helped) if helped else 'nowhere'}. Every dataset, and sellers of one region each: "
        "`payouts_summary.csv`."
    )
    return "\n".join(["## Payouts under noise\n", textwrap.fill(said, 120) + "\n", markdown_table(rows)])
