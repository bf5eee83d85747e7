"""The claims of the paper, how numbers become verdicts, and what the numbers say about each claim."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pandas as pd

from experiments.cells import protocols
from experiments.paper import CASES, HARD, PaperSettings
from experiments.tables import Interval, by_seed, interval, percent_change, select
from shapshift.mechanism import KINDS, SCENARIOS

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds only when", "does not hold", "undecided"
FOR, AGAINST, UNDECIDED = "for", "against", "undecided"

# Overlaps below this are too small for another step down, and losses of rank correlation below this too small to mind.
NOTHING_SHARED, NOTHING_LOST = 0.02, 0.01

Where = dict[str, str]
Row = dict[str, Any]


@dataclass(frozen=True)
class Claim:
    """One claim and its verdict.

    Attributes
    ----------
    claim : str
        What the paper says.
    test : str
        What was tested, and how.
    verdict : {"holds", "holds only when", "does not hold", "undecided"}
    where : dict of str to list of str
        Settings that speak for the claim, against it, and those that leave it undecided.
    evidence : list of dict
        The numbers: one row per setting.
    claimed : bool
        Whether the paper claims it; else it is what a user should know beside.
    """

    claim: str
    test: str
    verdict: str
    where: dict[str, list[str]]
    evidence: list[Row]
    claimed: bool = True

    @property
    def because(self) -> str:
        """Say where it holds and where it does not."""
        total = sum(len(names) for names in self.where.values())
        parts = [f"{name}: {', '.join(names)}" for name, names in self.where.items() if names and len(names) < total]
        if self.verdict == PARTLY:
            parts[0] = f"{len(self.where[FOR])} of {total} settings speak {parts[0]}"
        elif not parts:
            side = next(name for name, names in self.where.items() if names)
            parts = [f"all {total} settings" if side == FOR else f"{side}: all {total} settings"]
        return "; ".join(parts) + "."


def make_claim(claim: str, test: str, found: dict[str, str], evidence: list[Row], *, claimed: bool = True) -> Claim:
    """Turn what each setting says into a verdict."""
    where = {side: [name for name, said in found.items() if said == side] for side in (FOR, AGAINST, UNDECIDED)}
    if len(where[FOR]) == len(found):
        verdict = HOLDS
    elif where[FOR]:
        verdict = PARTLY
    else:
        verdict = FAILS if where[AGAINST] else OPEN
    return Claim(claim, test, verdict, where, evidence, claimed)


def below(number: Interval, bound: float) -> str:
    """Whether a number is claimed to lie below a bound, judged by its whole interval."""
    return FOR if number.high < bound else AGAINST if number.low > bound else UNDECIDED


def above(number: Interval, bound: float) -> str:
    """Whether a number is claimed to lie above a bound, judged by its whole interval."""
    return FOR if number.low > bound else AGAINST if number.high < bound else UNDECIDED


def within(number: Interval, low: float, high: float) -> str:
    """Whether a number is claimed to lie in a range, judged by its whole interval."""
    if low <= number.low and number.high <= high:
        return FOR
    return AGAINST if number.low > high or number.high < low else UNDECIDED


def every(said: Iterable[str]) -> str:
    """Join what several noise levels say: one against is enough, for needs all."""
    found = set(said)
    return AGAINST if AGAINST in found else FOR if found == {FOR} else UNDECIDED


def judge(shift: pd.DataFrame, cases: pd.DataFrame, settings: PaperSettings) -> list[Claim]:
    """Judge every claim for which something was run."""
    return [
        _falls(shift, "mean", "Noise on the validation set lowers the average value.", settings),
        _falls(shift, "std", "Noise compresses the values: their standard deviation falls.", settings),
        _falls(shift, "positive_count", "The number of positive values falls as noise grows.", settings),
        _reshuffling(shift, settings),
        *_case_claims(cases, settings),
        _closer(shift, "std", "standard deviation", settings),
        _closer(shift, "positive_count", "positive count", settings),
        _gap(shift, settings),
        _rows(shift, settings),
    ]


def _judge_runs(
    claim: str,
    test: str,
    settings: PaperSettings,
    look: Callable[[Where], tuple[list[str], Row]],
    *,
    hard: bool = False,
    claimed: bool = True,
) -> Claim:
    """Judge a claim by what ``look`` says about every dataset and protocol: verdicts by noise level, and numbers."""
    found, evidence = {}, []
    for dataset in settings.datasets:
        for protocol in protocols(dataset):
            for utility in ("soft", "hard") if hard and dataset in HARD else ("soft",):
                name = f"{dataset} ({protocol}{', hard utility' if utility == 'hard' else ''})"
                said, row = look({"dataset": dataset, "protocol": protocol, "utility": utility})
                found[name] = every(said)
                where = {"dataset": dataset, "protocol": protocol} | ({"utility": utility} if hard else {})
                evidence.append({**where, **row, "verdict": found[name]})
    return make_claim(claim, test, found, evidence, claimed=claimed)


def _falls(shift: pd.DataFrame, statistic: str, claim: str, settings: PaperSettings) -> Claim:
    first, last = settings.strong[0], settings.strong[-1]

    def look(where: Where) -> tuple[list[str], Row]:
        at = by_seed(shift, statistic, **where)
        changes = {sigma: interval(percent_change(at["clean", 0.0], at["noisy", sigma])) for sigma in settings.strong}
        said = [below(change, 0) for change in changes.values()]
        if first < last:
            said.append(below(interval(at["noisy", last] - at["noisy", first]), 0))
        return said, {f"noise {sigma:g}": changes[sigma].percent() for sigma in (first, last)}

    test = (
        f"Change against the clean values of the same split: below 0 at every level from noise {first:g} on, and "
        f"lower at noise {last:g} than at {first:g}."
    )
    return _judge_runs(claim, test, settings, look, hard=True)


def _reshuffling(shift: pd.DataFrame, settings: PaperSettings) -> Claim:
    def look(where: Where) -> tuple[list[str], Row]:
        at = by_seed(shift, "jaccard", **where)["noisy"]
        shared = {sigma: interval(at[sigma]) for sigma in settings.noise}
        steps = [
            below(interval(at[after] - at[before]), 0)
            for before, after in pairwise(settings.noise)
            if shared[before].mean > NOTHING_SHARED
        ]
        said = [below(shared[settings.noise[0]], 1), *steps]
        return said, {f"noise {sigma:g}": f"{shared[sigma].mean:.2f}" for sigma in settings.noise}

    claim = _judge_runs(
        "Noise reshuffles neighbourhoods.",
        "Overlap (Jaccard) of the nearest training rows of a point with those of its noisy version: below 1, and "
        f"falling with every step of noise as long as it is above {NOTHING_SHARED:g}.",
        settings,
        look,
    )
    for row in claim.evidence:
        del row["verdict"]  # as many columns as there are levels are enough
    return claim


def _closer(shift: pd.DataFrame, statistic: str, what: str, settings: PaperSettings) -> Claim:
    def look(where: Where) -> tuple[list[str], Row]:
        at = by_seed(shift, statistic, **where)
        clean, said, row = at["clean", 0.0], [], {}
        for sigma in settings.strong:
            noisy, corrected = at["noisy", sigma], at["boundary", sigma]
            said.append(below(interval(abs(corrected - clean) - abs(noisy - clean)), 0))
            changes = (interval(percent_change(clean, version)) for version in (noisy, corrected))
            row[f"noise {sigma:g}"] = " → ".join(change.percent() for change in changes)
        return said, row

    return _judge_runs(
        f"The paper's correction brings the {what} closer to the clean one.",
        f"Distance of the {what} to the clean one of the same split: smaller after the correction, from noise "
        f"{settings.shown:g} on."
        + ("" if statistic == "std" else " By construction: the correction sets the count, up to one row."),
        settings,
        look,
    )


def _gap(shift: pd.DataFrame, settings: PaperSettings) -> Claim:
    def look(where: Where) -> tuple[list[str], Row]:
        at, said, row = by_seed(shift, "rmse", **where), [], {}
        for sigma in settings.strong:
            noisy, corrected = at["noisy", sigma], at["boundary", sigma]
            said.append(below(interval(corrected - noisy), 0))
            row[f"noise {sigma:g}"] = f"{noisy.mean():.2f} → {corrected.mean():.2f}"
        return said, row

    return _judge_runs(
        "The correction substantially reduces the gap between noisy and clean valuations.",
        "Root mean square difference to the clean values, in their standard deviations: smaller after the correction, "
        f"from noise {settings.shown:g} on.",
        settings,
        look,
    )


def _rows(shift: pd.DataFrame, settings: PaperSettings) -> Claim:
    """Not a claim of the paper, but what a user needs to know before paying by corrected values."""

    def look(where: Where) -> tuple[list[str], Row]:
        at, said, row = by_seed(shift, "spearman", **where), [], {}
        for sigma in settings.noise:
            said.append(above(interval(at["boundary", sigma] - at["noisy", sigma]), -NOTHING_LOST))
            row[f"noise {sigma:g}"] = " → ".join(
                f"{at[version, sigma].mean():.2f}" for version in ("noisy", "boundary", "entropy")
            )
        return said, row

    return _judge_runs(
        "The correction brings the rows back too.",
        f"Spearman correlation with the clean values: not lower by more than {NOTHING_LOST:g} after the correction, at "
        "any noise level. Noisy → corrected by boundary → corrected by entropy level.",
        settings,
        look,
        claimed=False,
    )


# --- single validation points (Case I) and pairs (Case II) -----------------------------------------------------------


@dataclass(frozen=True)
class CaseTest:
    """A claim about one statistic of one or more kinds of point or pair.

    Attributes
    ----------
    claim, test : str
    statistic : str
    kinds : tuple of str
    said : callable
        What an interval of the statistic says about the claim.
    levels : callable
        Noise levels that count.
    digits : int
        For the table.
    """

    claim: str
    test: str
    statistic: str
    kinds: tuple[str, ...]
    said: Callable[[Interval], str]
    levels: Callable[[PaperSettings], list[float]]
    digits: int = 2


def _all(settings: PaperSettings) -> list[float]:
    return list(settings.noise)


def _up_to_shown(settings: PaperSettings) -> list[float]:
    return [sigma for sigma in settings.noise if sigma <= settings.shown]


def _from_shown(settings: PaperSettings) -> list[float]:
    return settings.strong


TESTS = (
    CaseTest(
        "On one validation point the number of positive values does not change, boundary or not.",
        "Change of the positive count: within one row, at every noise level.",
        "count_change",
        KINDS,
        lambda number: within(number, -1, 1),
        _all,
    ),
    CaseTest(
        "On one validation point the polarity of the values stays the same.",
        "Share of training rows that keep their sign: above 99%, at every noise level.",
        "sign_kept",
        KINDS,
        lambda number: above(number, 0.99),
        _all,
    ),
    CaseTest(
        "On one boundary point the standard deviation of the values decreases significantly.",
        "Ratio to the clean standard deviation: below 0.9 from noise {shown:g} on.",
        "std_ratio",
        ("boundary",),
        lambda number: below(number, 0.9),
        _from_shown,
    ),
    CaseTest(
        "On one non-boundary point the standard deviation of the values keeps still.",
        "Ratio to the clean standard deviation: within 0.9 and 1.1 up to noise {shown:g}.",
        "std_ratio",
        ("nonboundary",),
        lambda number: within(number, 0.9, 1.1),
        _up_to_shown,
    ),
    CaseTest(
        "On one non-boundary point the range of the values shrinks a little, but not too much.",
        "Ratio to the clean range: within 0.5 and 1 up to noise {shown:g}.",
        "range_ratio",
        ("nonboundary",),
        lambda number: within(number, 0.5, 1),
        _up_to_shown,
    ),
    CaseTest(
        "Noise does not change the prediction on a non-boundary point.",
        "Share of noise draws that change the vote: below 5% up to noise {shown:g}.",
        "prediction_changed",
        ("nonboundary",),
        lambda number: below(number, 0.05),
        _up_to_shown,
    ),
    CaseTest(
        "On two points of different classes, many more rows turn from positive to negative than the other way.",
        "Rows that turn negative per row that turns positive: above 1.5, from noise {shown:g} on.",
        "lost_per_gained",
        SCENARIOS,
        lambda number: above(number, 1.5),
        _from_shown,
    ),
    CaseTest(
        "Most rows turn from positive to negative with two non-boundary points (NN).",
        "Rows that turn negative with NN, less the larger number with BB or BN: above 0, from noise {shown:g} on.",
        "lead_of_nn",
        ("NN",),
        lambda number: above(number, 0),
        _from_shown,
        0,
    ),
)


def _case_claims(cases: pd.DataFrame, settings: PaperSettings) -> list[Claim]:
    """Judge the claims about cases; intervals are over seeds."""
    if cases.empty:
        return []
    table = _compared(cases)
    # Noise levels that a table shows: the lowest but one, the middle and the highest.
    columns = sorted({settings.noise[min(1, len(settings.noise) - 1)], settings.shown, settings.noise[-1]})
    claims = []
    for test in TESTS:
        found, evidence = {}, []
        for dataset in (name for name in CASES if name in settings.datasets):
            for protocol in protocols(dataset):
                for kind in test.kinds:
                    here = select(table, dataset=dataset, protocol=protocol, case=kind)
                    at = {sigma: interval(select(here, noise=sigma)[test.statistic]) for sigma in settings.noise}
                    name = f"{dataset} ({protocol}{f', {kind}' if len(test.kinds) > 1 else ''})"
                    found[name] = every(test.said(at[sigma]) for sigma in test.levels(settings))
                    shown = {f"noise {sigma:g}": at[sigma].show(test.digits) for sigma in columns}
                    where = {"dataset": dataset, "protocol": protocol, "points": kind}
                    evidence.append({**where, **shown, "verdict": found[name]})
        claims.append(make_claim(test.claim, test.test.format(shown=settings.shown), found, evidence))
    return claims


def _compared(cases: pd.DataFrame) -> pd.DataFrame:
    """Add, for every seed, the statistics that compare rows of the table."""
    split = ["dataset", "protocol", "seed"]
    clean = select(cases, noise=0).set_index([*split, "case"])["positive_count"]
    lost = cases.pivot(index=[*split, "noise"], columns="case", values="positive_to_negative")
    table = cases.join(clean.rename("clean_count"), on=[*split, "case"])
    table = table.join((lost["NN"] - lost[["BB", "BN"]].max(axis=1)).rename("lead_of_nn"), on=[*split, "noise"])
    return table.assign(
        count_change=table["positive_count"] - table["clean_count"],
        lost_per_gained=table["positive_to_negative"] / table["negative_to_positive"].clip(lower=1),
    )
