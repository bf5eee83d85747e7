"""The paper's claims about shift and correction, and what the numbers say about each."""

from itertools import pairwise
from typing import Any

from shapshift.reproduce._claims_cases import case_claims
from shapshift.reproduce._settings import HARD, Settings, protocols
from shapshift.reproduce._summary import Table, level, paired, percent_change, select
from shapshift.reproduce._verdicts import Claim, above, below, every, make_claim

# Overlaps below this are too small for another step down, and losses of rank correlation below this too small to mind.
NOTHING_SHARED, NOTHING_LOST = 0.02, 0.01

Where = dict[str, str]


def judge(shift: Table, cases: Table, settings: Settings) -> list[Claim]:
    """Judge every claim for which something was run."""
    claims = [
        _falls(shift, "mean", "Noise on the validation set lowers the average value.", settings),
        _falls(shift, "std", "Noise compresses the values: their standard deviation falls.", settings),
        _falls(shift, "positive_count", "The number of positive values falls as noise grows.", settings),
        _reshuffling(shift, settings),
        *case_claims(cases, settings),
        *_correction(shift, settings),
        _rows(shift, settings),
    ]
    return [claim for claim in claims if claim.evidence]


def _runs(settings: Settings, *utilities: str) -> list[Where]:
    return [
        {"dataset": dataset, "protocol": protocol, "utility": utility}
        for dataset in settings.datasets
        for protocol in protocols(dataset)
        for utility in utilities
        if utility == "soft" or dataset in HARD
    ]


def _name(where: Where) -> str:
    return f"{where['dataset']} ({where['protocol']}{', hard utility' if where['utility'] == 'hard' else ''})"


def _strong(settings: Settings) -> list[float]:
    return [sigma for sigma in settings.noise if sigma >= settings.shown]


def _falls(shift: Table, statistic: str, claim: str, settings: Settings) -> Claim:
    found, evidence = {}, []
    strong = _strong(settings)
    for where in _runs(settings, "soft", "hard"):
        clean = {**where, "version": "clean"}
        at = {sigma: {**where, "version": "noisy", "sigma": sigma} for sigma in settings.noise}
        changes = {sigma: paired(shift, statistic, clean, at[sigma], percent_change) for sigma in strong}
        further = paired(shift, statistic, at[strong[0]], at[strong[-1]], lambda before, after: after - before)
        said = [below(change, 0) for change in changes.values()]
        if len(strong) > 1:
            said.append(below(further, 0))
        found[_name(where)] = every(said)
        evidence.append(
            {**where}
            | {f"noise {sigma:g}": changes[sigma].percent() for sigma in (strong[0], strong[-1])}
            | {"verdict": found[_name(where)]}
        )
    test = (
        f"Change against the clean values of the same split: below 0 at every level from noise {strong[0]:g} on, and "
        f"lower at noise {strong[-1]:g} than at {strong[0]:g}."
    )
    return make_claim(claim, test, found, evidence)


def _reshuffling(shift: Table, settings: Settings) -> Claim:
    found, evidence = {}, []
    for where in _runs(settings, "soft"):
        at = {sigma: {**where, "version": "noisy", "sigma": sigma} for sigma in settings.noise}
        shared = {sigma: level(shift, "jaccard", **at[sigma]) for sigma in settings.noise}
        steps = [
            below(paired(shift, "jaccard", at[before], at[after], lambda a, b: b - a), 0)
            for before, after in pairwise(settings.noise)
            if shared[before].mean > NOTHING_SHARED
        ]
        found[_name(where)] = every([below(shared[settings.noise[0]], 1), *steps])
        row: dict[str, Any] = {"dataset": where["dataset"], "protocol": where["protocol"]}
        evidence.append(row | {f"noise {sigma:g}": f"{shared[sigma].mean:.2f}" for sigma in settings.noise})
    return make_claim(
        "Noise reshuffles neighbourhoods.",
        "Overlap (Jaccard) of the nearest training rows of a point with those of its noisy version: below 1, and "
        f"falling with every step of noise as long as it is above {NOTHING_SHARED:g}.",
        found,
        evidence,
    )


def _correction(shift: Table, settings: Settings) -> list[Claim]:
    closer = "The paper's correction brings the {} closer to the clean one."
    test = "Distance of the {} to the clean one of the same split: smaller after the correction, from noise {:g} on."
    claims = []
    for statistic, what in (("std", "standard deviation"), ("positive_count", "positive count")):
        found, evidence = {}, []
        for where in _runs(settings, "soft"):
            said, row = [], {"dataset": where["dataset"], "protocol": where["protocol"]}
            clean = {r["seed"]: r[statistic] for r in select(shift, **where, version="clean")}
            for sigma in _strong(settings):
                gaps = [{**r, "gap": abs(r[statistic] - clean[r["seed"]])} for r in select(shift, **where, sigma=sigma)]
                gain = paired(gaps, "gap", {"version": "noisy"}, {"version": "boundary"}, lambda a, b: b - a)
                said.append(below(gain, 0))
                row[f"noise {sigma:g}"] = " → ".join(
                    paired(
                        shift,
                        statistic,
                        {**where, "version": "clean"},
                        {**where, "version": version, "sigma": sigma},
                        percent_change,
                    ).percent()
                    for version in ("noisy", "boundary")
                )
            found[_name(where)] = every(said)
            evidence.append(row | {"verdict": found[_name(where)]})
        note = "" if statistic == "std" else " By construction: the correction sets the count, up to one row."
        claims.append(make_claim(closer.format(what), test.format(what, settings.shown) + note, found, evidence))
    return [*claims, _gap(shift, settings)]


def _gap(shift: Table, settings: Settings) -> Claim:
    found, evidence = {}, []
    for where in _runs(settings, "soft"):
        said, row = [], {"dataset": where["dataset"], "protocol": where["protocol"]}
        for sigma in _strong(settings):
            noisy, corrected = ({**where, "version": v, "sigma": sigma} for v in ("noisy", "boundary"))
            said.append(below(paired(shift, "rmse", noisy, corrected, lambda a, b: b - a), 0))
            row[f"noise {sigma:g}"] = " → ".join(f"{level(shift, 'rmse', **v).mean:.2f}" for v in (noisy, corrected))
        found[_name(where)] = every(said)
        evidence.append(row | {"verdict": found[_name(where)]})
    return make_claim(
        "The correction substantially reduces the gap between noisy and clean valuations.",
        "Root mean square difference to the clean values, in their standard deviations: smaller after the correction, "
        f"from noise {settings.shown:g} on.",
        found,
        evidence,
    )


def _rows(shift: Table, settings: Settings) -> Claim:
    """Not a claim of the paper, but what a user needs to know before paying by corrected values."""
    found, evidence = {}, []
    for where in _runs(settings, "soft"):
        said, row = [], {"dataset": where["dataset"], "protocol": where["protocol"]}
        for sigma in settings.noise:
            at = {v: {**where, "version": v, "sigma": sigma} for v in ("noisy", "boundary", "entropy")}
            gain = paired(shift, "spearman", at["noisy"], at["boundary"], lambda a, b: b - a)
            said.append(above(gain, -NOTHING_LOST))
            row[f"noise {sigma:g}"] = " → ".join(
                f"{level(shift, 'spearman', **at[v]).mean:.2f}" for v in ("noisy", "boundary", "entropy")
            )
        found[_name(where)] = every(said)
        evidence.append(row | {"verdict": found[_name(where)]})
    return make_claim(
        "The correction brings the rows back too.",
        f"Spearman correlation with the clean values: not lower by more than {NOTHING_LOST:g} after the correction, at "
        "any noise level. Noisy → corrected by boundary → corrected by entropy level.",
        found,
        evidence,
        claimed=False,
    )
