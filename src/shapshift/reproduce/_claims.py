"""The paper's claims, and what the numbers say about each."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from shapshift.reproduce._settings import CASES, HARD, Settings, protocols
from shapshift.reproduce._summary import Interval, Table, change, interval, level, select

# Below this overlap there is nothing left to reshuffle, and below this loss of rank correlation nothing to mind.
NOTHING_SHARED, NOTHING_LOST = 0.02, 0.01
SCENARIOS = ("BB", "NN", "BN")
HOLDS, PARTLY, FAILS = "holds", "holds only when", "does not hold"


@dataclass(frozen=True)
class Claim:
    """One claim and its verdict.

    Attributes
    ----------
    number : str
    claim : str
        What the paper says.
    verdict : {"holds", "holds only when", "does not hold"}
    because : str
        Where it holds and where it does not.
    evidence : list of dict
        The numbers: one row per setting.
    """

    number: str
    claim: str
    verdict: str
    because: str
    evidence: Table

    def record(self) -> dict[str, str]:
        """Flatten for a CSV file."""
        return {"number": self.number, "claim": self.claim, "verdict": self.verdict, "because": self.because}


def judge(shift: Table, cases: Table, settings: Settings) -> list[Claim]:
    """Judge every claim."""
    return [
        _direction(
            "1",
            "Noise on the validation set lowers the average value.",
            shift,
            "mean",
            settings,
        ),
        _direction("2", "Noise compresses the values: their standard deviation falls.", shift, "std", settings),
        _direction(
            "3",
            "The number of positive values falls as noise grows.",
            shift,
            "positive_count",
            settings,
        ),
        _reshuffling(shift, settings),
        *_case_one_claims(cases, settings),
        *_case_two_claims(cases, settings),
        *_correction_claims(shift, settings),
    ]


def _settings_of(settings: Settings) -> list[dict[str, str]]:
    return [
        {"dataset": dataset, "protocol": protocol, "utility": utility}
        for dataset in settings.datasets
        for protocol in protocols(dataset)
        for utility in (("soft", "hard") if dataset in HARD else ("soft",))
    ]


def _direction(number: str, claim: str, shift: Table, statistic: str, settings: Settings) -> Claim:
    """Judge a claim that a statistic falls, at moderate and at the strongest noise."""
    evidence, verdicts = [], {}
    for where in _settings_of(settings):
        words = []
        row: dict[str, Any] = dict(where)
        for sigma in (settings.shown, settings.noise[-1]):
            moved = change(shift, statistic, sigma, "noisy", **where)
            row[f"change at noise {sigma:g}"] = _percent(moved)
            words.append(moved.word)
        row["direction"] = words[0] if words[0] == words[1] else f"{words[0]}, then {words[1]}"
        evidence.append(row)
        verdicts[_name(where)] = all(word == "falls" for word in words)
    return Claim(number, claim, *_verdict(verdicts), evidence)


def _reshuffling(shift: Table, settings: Settings) -> Claim:
    evidence, verdicts = [], {}
    for where in _settings_of(settings):
        if where["utility"] == "hard":
            continue
        row: dict[str, Any] = {"dataset": where["dataset"], "protocol": where["protocol"]}
        found = [level(shift, "jaccard", sigma, "noisy", **where) for sigma in settings.noise]
        for sigma, at in zip(settings.noise, found, strict=True):
            row[f"shared at {sigma:g}"] = f"{at.mean:.2f}"
        evidence.append(row)
        falling = all(after.high < max(before.low, NOTHING_SHARED) for before, after in pairwise(found))
        verdicts[_name(where)] = falling
    claim = (
        "Noise reshuffles neighbourhoods: the overlap (Jaccard) of a point's nearest training rows with those of its "
        "noisy version falls with every step of noise, until nothing is left of it."
    )
    return Claim("4", claim, *_verdict(verdicts), evidence)


def _case_datasets(settings: Settings) -> list[str]:
    return [dataset for dataset in CASES if dataset in settings.datasets]


def _case_rows(cases: Table, case: str, settings: Settings, **where: Any) -> Table:
    return [row for row in select(cases, case=case, **where) if row["noise"] in settings.noise]


def _case_one_claims(cases: Table, settings: Settings) -> list[Claim]:
    count, inside, near = {}, {}, {}
    evidence: dict[str, Table] = {"count": [], "boundary": [], "nonboundary": []}
    for dataset in _case_datasets(settings):
        for protocol in protocols(dataset):
            where = {"dataset": dataset, "protocol": protocol}
            for kind in ("boundary", "nonboundary"):
                rows = _case_rows(cases, kind, settings, **where)
                shown = {f"noise {row['noise']:g}": row for row in rows}
                label = {**where, "point": kind}
                clean = next(row for row in select(cases, case=kind, **where) if row["noise"] == 0)
                evidence["count"].append(
                    {**label, "clean": f"{clean['positive_count']:.0f}"}
                    | {name: f"{row['positive_count']:.0f}" for name, row in shown.items()}
                )
                evidence[kind].append(label | {name: f"{row['std_ratio']:.2f}" for name, row in shown.items()})
                count[f"{_name(where)}, {kind}"] = all(
                    row["positive_count_low"] <= clean["positive_count"] <= row["positive_count_high"] for row in rows
                )
                if kind == "boundary":
                    near[_name(where)] = all(
                        row["std_ratio_high"] < 1 for row in rows if row["noise"] >= settings.shown
                    )
                else:
                    inside[_name(where)] = all(
                        0.9 <= row["std_ratio"] <= 1.1 for row in rows if row["noise"] <= settings.shown
                    )
    return [
        Claim(
            "5",
            "On one validation point the number of positive values does not change with noise, boundary or not.",
            *_verdict(count),
            evidence["count"],
        ),
        Claim(
            "6",
            "On one boundary point the standard deviation of the values falls with noise (ratio to clean below 1 from "
            f"noise {settings.shown:g} on).",
            *_verdict(near),
            evidence["boundary"],
        ),
        Claim(
            "7",
            "On one non-boundary point the standard deviation of the values stays as it is (within 10% up to noise "
            f"{settings.shown:g}).",
            *_verdict(inside),
            evidence["nonboundary"],
        ),
    ]


def _case_two_claims(cases: Table, settings: Settings) -> list[Claim]:
    more_lost, largest, counts, net = {}, {}, [], []
    strong = [sigma for sigma in settings.noise if sigma >= settings.shown]
    for dataset in _case_datasets(settings):
        for protocol in protocols(dataset):
            where = {"dataset": dataset, "protocol": protocol}
            at: dict[tuple[str, float], dict[str, Any]] = {}
            for scenario in SCENARIOS:
                rows = _case_rows(cases, scenario, settings, **where)
                at |= {(scenario, row["noise"]): row for row in rows}
                label = {**where, "scenario": scenario}
                counts.append(label | {f"noise {row['noise']:g}": _flips(row) for row in rows})
                net.append(label | {f"noise {row['noise']:g}": f"{row['positive_change']:+.0f}" for row in rows})
                more_lost[f"{_name(where)}, {scenario}"] = all(
                    at[scenario, sigma]["positive_change_high"] < 0 for sigma in strong
                )
            largest[_name(where)] = all(
                at["NN", sigma]["positive_change"] < min(at[other, sigma]["positive_change"] for other in ("BB", "BN"))
                for sigma in strong
            )
    return [
        Claim(
            "8",
            "On two points of different classes, more rows turn from positive to negative than the other way, in all "
            f"three scenarios (from noise {settings.shown:g} on; the interval of the net change must lie below 0).",
            *_verdict(more_lost),
            counts,
        ),
        Claim(
            "9",
            "The loss of positive values is largest with two non-boundary points, NN (from noise "
            f"{settings.shown:g} on).",
            *_verdict(largest),
            net,
        ),
    ]


def _flips(row: dict[str, Any]) -> str:
    return f"-{row['positive_to_negative']:.0f} +{row['negative_to_positive']:.0f}"


def _correction_claims(shift: Table, settings: Settings) -> list[Claim]:
    strong = [sigma for sigma in settings.noise if sigma >= settings.shown]
    soft = [where for where in _settings_of(settings) if where["utility"] == "soft"]

    claims = []
    for number, statistic, what in (("10", "std", "standard deviation"), ("11", "positive_count", "positive count")):
        evidence, verdicts = [], {}
        for where in soft:
            row: dict[str, Any] = {"dataset": where["dataset"], "protocol": where["protocol"]}
            good = []
            for sigma in strong:
                noisy, corrected = (
                    change(shift, statistic, sigma, version, **where) for version in ("noisy", "boundary")
                )
                row[f"noise {sigma:g}"] = f"{_whole(noisy.mean)}% → {_whole(corrected.mean)}%"
                good.append(abs(corrected.mean) < abs(noisy.mean))
            evidence.append(row)
            verdicts[_name(where)] = all(good)
        claim = f"After the boundary correction the {what} is closer to the clean one than before."
        claims.append(Claim(number, claim, *_verdict(verdicts), evidence))
    return [*claims, _row_agreement(shift, soft, settings)]


def _row_agreement(shift: Table, soft: list[dict[str, str]], settings: Settings) -> Claim:
    """Not a claim of the paper, but what a user needs to know before paying by corrected values."""
    evidence, verdicts = [], {}
    for where in soft:
        row: dict[str, Any] = {"dataset": where["dataset"], "protocol": where["protocol"]}
        good = []
        for sigma in settings.noise:
            rows = select(shift, **where, sigma=sigma)
            gains = {
                version: interval(
                    after["spearman"] - before["spearman"]
                    for before, after in zip(select(rows, version="noisy"), select(rows, version=version), strict=True)
                )
                for version in ("boundary", "entropy")
            }
            means = {v: interval(r["spearman"] for r in select(rows, version=v)).mean for v in ("noisy", *gains)}
            row[f"noise {sigma:g}"] = " → ".join(f"{mean:.2f}" for mean in list(means.values())[:2]) + (
                f" ({means['entropy']:.2f})"
            )
            good.append(gains["boundary"].high > -NOTHING_LOST)
        evidence.append(row)
        verdicts[_name(where)] = all(good)
    claim = (
        "(Not claimed by the paper.) The correction brings the rows back too: Spearman correlation with the clean "
        f"values is not lower (by more than {NOTHING_LOST:g}) after it than before, at any noise level. "
        "Noisy → corrected, in brackets with one group per entropy level."
    )
    return Claim("12", claim, *_verdict(verdicts), evidence)


def _verdict(holds: dict[str, bool]) -> tuple[str, str]:
    """Verdict and the sentence that says where it holds."""
    yes, no = [name for name, good in holds.items() if good], [name for name, good in holds.items() if not good]
    if not no:
        return HOLDS, f"In all {len(yes)} settings."
    if not yes:
        return FAILS, f"In none of {len(no)} settings."
    return PARTLY, f"In {len(yes)} of {len(holds)} settings. Not in: {'; '.join(no)}."


def _name(where: dict[str, str]) -> str:
    return f"{where['dataset']} ({where['protocol']}{', hard utility' if where.get('utility') == 'hard' else ''})"


def _percent(moved: Interval) -> str:
    return f"{_whole(moved.mean)}% [{_whole(moved.low)}, {_whole(moved.high)}]"


def _whole(number: float) -> str:
    """Round to a signed whole number, never to minus nothing."""
    return f"{round(number):+d}" if round(number) else "0"
