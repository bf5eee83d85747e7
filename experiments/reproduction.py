"""Run the experiments of the paper, and write tables, figures and a page that judges it claim by claim."""

import os
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from experiments import paper
from experiments.cells import PROTOCOLS, protocols, run_cells
from experiments.claims import FAILS, HOLDS, OPEN, PARTLY, Claim, judge
from experiments.figures import draw_all
from experiments.paper import CASES, FULL, HARD, PaperSettings
from experiments.tables import markdown_table, write_csv, write_page

FIGURES = {
    "figure1_noise_demo": "A validation point near the class boundary and its noisy version. The noise is small, and "
    "yet the nearest training rows change.",
    "figure2_shift": "Values under a noisy validation set: distribution at one level (balanced classes), then mean, "
    "standard deviation and positive count against the noise, with 95% bands over seeds, for both protocols.",
    "figure3_case_one": "Case I, one validation point: values before and after noise, and spread and positive count "
    "against the noise, averaged over many points of either kind.",
    "figure4_case_two": "Case II, two validation points of different classes: values before and after noise (first "
    "row), and where the rows that change sign lie (second row). One pair and one draw each; the claims "
    "have the averages.",
    "figure5_case_two_levels": "Case II across noise levels: training rows that change sign, with bands over seeds.",
    "figure6_correction_gaussian_{protocol}": "Correction on the Gaussian data ({protocol} classes).",
    "figure7_correction_phoneme_2dplanes_pol_{protocol}": "Correction on Phoneme, Planes2D and Pol ({protocol} "
    "classes).",
    "figure8_correction_cpu_news20_creditcard_{protocol}": "Correction on CPU, News20 and CreditCard ({protocol} "
    "classes).",
}

INTRODUCTION = """# Reproduction

Every experiment of Shen, Yang and Liu, *Validation-Induced Shapley Shifts: How Validation Structure Distorts Data
Valuation?*, run again with this library. Written by `make reproduce{quick}`; nothing on this page is
typed by hand.

**How.** Soft-label KNN-Shapley with K = {k}, {n_train:,} training and {n_val:,} validation rows, {seeds} seeds; every
seed draws its own split and its own noise. Noise is Gaussian, on the validation features only, in units of each
feature's standard deviation over the training rows. Two protocols: *balanced* (classes balanced by oversampling before
the split, as the research code does; copies of one row can then stand on both sides) and *natural* (the classes as they
are); the Gaussian classes are balanced by construction. Every seed follows {n_sets} points or pairs of each kind,
{repeats} draws of noise each. The correction is the paper's, with its nearest-quantile rule. Numbers in square brackets
are 95% confidence intervals over seeds.

**How to read a verdict.** In each setting the whole interval must lie on the claimed side to speak *for* a claim, and
on the other side to speak *against* it; else the setting is *undecided*. Where several noise levels are looked at, one
against is enough, and for needs all. A claim *holds* if every setting speaks for it, *holds only when* the setting is
one of those named if some do, and *does not hold* if none does.

**Not tested.** That the boundary group mainly corrects the spread and the other group the positive count: the two are
corrected together here, as in the paper.
"""


class Cell(NamedTuple):
    """One piece of work; ``kind`` is a utility for shift and correction, or "cases"."""

    dataset: str
    protocol: str
    kind: str
    seed: int


def run_reproduction(folder: Path, settings: PaperSettings = FULL, page: Path | None = None) -> Path:
    """Run every experiment of the paper again and judge its claims.

    Parameters
    ----------
    folder : Path
        Gets ``tables/`` (CSV), ``figures/`` (PNG and SVG, one per figure of the paper) and ``cells/``.
    settings : PaperSettings, default=FULL
    page : Path, optional
        Where to write the page of claims; ``reproduction.md`` in the folder by default.

    Returns
    -------
    Path
        The page.
    """
    keys = settings.keys()
    results = run_cells(folder / "cells", {cell: (keys[cell.dataset], work) for cell, work in _work(settings).items()})
    shift = pd.DataFrame(
        [
            {"dataset": cell.dataset, "protocol": cell.protocol, "utility": cell.kind, "seed": cell.seed, **record}
            for cell, result in results.items()
            if cell.kind != "cases"
            for record in result["records"]
        ]
    )
    cases = pd.DataFrame(
        [
            {"dataset": cell.dataset, "protocol": cell.protocol, "seed": cell.seed, **record}
            for cell, result in results.items()
            if cell.kind == "cases"
            for record in result
        ]
    )
    examples = {
        (cell.dataset, cell.protocol): result["example"]
        for cell, result in results.items()
        if cell.kind == "soft" and cell.seed == 0
    }
    claims = judge(shift, cases, settings)
    verdicts = [{"claim": c.claim, "test": c.test, "verdict": c.verdict, "where": c.because} for c in claims]
    write_csv(folder / "tables" / "shift_and_correction.csv", shift)
    write_csv(folder / "tables" / "cases.csv", cases)
    write_csv(folder / "tables" / "claims.csv", pd.DataFrame(verdicts))
    draw_all(folder / "figures", shift, cases, examples, settings)
    return write_claims(page or folder / "reproduction.md", folder, claims, settings)


def _work(settings: PaperSettings) -> dict[Cell, Callable[[], Any]]:
    work: dict[Cell, Callable[[], Any]] = {}
    for name in settings.datasets:
        for protocol in protocols(name):
            for seed in range(settings.seeds):
                for utility in ("soft", "hard") if name in HARD else ("soft",):
                    work[Cell(name, protocol, utility, seed)] = partial(
                        paper.shift_and_correction, name, protocol, utility, seed, settings
                    )
                if name in CASES:
                    work[Cell(name, protocol, "cases", seed)] = partial(
                        paper.case_records, name, protocol, seed, settings
                    )
    return work


def write_claims(page: Path, folder: Path, claims: list[Claim], settings: PaperSettings) -> Path:
    """Write the page of claims; figures and tables are linked relative to it."""
    parts = [
        INTRODUCTION.format(
            quick=" ARGS=--quick" if settings.name == "quick" else "",
            k=settings.n_neighbors,
            n_train=settings.n_train,
            n_val=settings.n_val,
            seeds=settings.seeds,
            n_sets=settings.n_sets,
            repeats=settings.repeats,
        ),
        "## Claim by claim\n",
        _tally(claims),
        markdown_table(
            [
                {"": number, "claim": _claimed(c), "verdict": f"**{c.verdict}**", "settings": c.because}
                for number, c in enumerate(claims, start=1)
            ]
        ),
    ]
    for number, claim in enumerate(claims, start=1):
        parts += [f"### {number}. {_claimed(claim)}\n", f"*{claim.test}*\n"]
        parts += [f"Verdict: **{claim.verdict}** ({claim.because.rstrip('.')}).\n", markdown_table(claim.evidence)]
    parts.append("## Figures\n")
    for name, caption in FIGURES.items():
        for protocol in PROTOCOLS if "{protocol}" in name else ("",):
            path = folder / "figures" / f"{name.format(protocol=protocol)}.png"
            if not path.exists():  # no dataset of this figure was run
                continue
            text = caption.format(protocol=protocol)
            parts.append(f"![{text}]({_link(path, page)})\n\n*{text}*\n")
    tables = _link(folder / "tables", page)
    files = f"`{tables}/shift_and_correction.csv`, `{tables}/cases.csv`"
    parts.append(f"## Tables\n\nThe numbers of every seed: {files}.\n")
    return write_page(page, parts)


def _claimed(claim: Claim) -> str:
    return claim.claim if claim.claimed else f"(Not claimed by the paper.) {claim.claim}"


def _tally(claims: list[Claim]) -> str:
    counts = Counter(claim.verdict for claim in claims if claim.claimed)
    open_ones = f", {counts[OPEN]} undecided" if counts[OPEN] else ""
    return (
        f"Of {sum(counts.values())} claims of the paper, {counts[HOLDS]} hold in every setting tried, "
        f"{counts[PARTLY]} in some, {counts[FAILS]} in none{open_ones}.\n"
    )


def _link(path: Path, page: Path) -> str:
    return os.path.relpath(path, page.parent).replace(os.sep, "/")
