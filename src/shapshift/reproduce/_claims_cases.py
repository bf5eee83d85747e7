"""The paper's claims about single validation points (Case I) and pairs (Case II)."""

from collections.abc import Callable
from dataclasses import dataclass

from shapshift.mechanism import KINDS, SCENARIOS
from shapshift.reproduce._settings import CASES, Settings, protocols
from shapshift.reproduce._summary import Interval, Table, level
from shapshift.reproduce._verdicts import Claim, above, below, every, make_claim, within


@dataclass(frozen=True)
class _Test:
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
    levels: Callable[[Settings], list[float]]
    digits: int = 2


def _all(settings: Settings) -> list[float]:
    return list(settings.noise)


def _up_to_shown(settings: Settings) -> list[float]:
    return [sigma for sigma in settings.noise if sigma <= settings.shown]


def _from_shown(settings: Settings) -> list[float]:
    return [sigma for sigma in settings.noise if sigma >= settings.shown]


TESTS = (
    _Test(
        "On one validation point the number of positive values does not change, boundary or not.",
        "Change of the positive count: within one row, at every noise level.",
        "count_change",
        KINDS,
        lambda number: within(number, -1, 1),
        _all,
    ),
    _Test(
        "On one validation point the polarity of the values stays the same.",
        "Share of training rows that keep their sign: above 99%, at every noise level.",
        "sign_kept",
        KINDS,
        lambda number: above(number, 0.99),
        _all,
    ),
    _Test(
        "On one boundary point the standard deviation of the values decreases significantly.",
        "Ratio to the clean standard deviation: below 0.9 from noise {shown:g} on.",
        "std_ratio",
        ("boundary",),
        lambda number: below(number, 0.9),
        _from_shown,
    ),
    _Test(
        "On one non-boundary point the standard deviation of the values keeps still.",
        "Ratio to the clean standard deviation: within 0.9 and 1.1 up to noise {shown:g}.",
        "std_ratio",
        ("nonboundary",),
        lambda number: within(number, 0.9, 1.1),
        _up_to_shown,
    ),
    _Test(
        "On one non-boundary point the range of the values shrinks a little, but not too much.",
        "Ratio to the clean range: within 0.5 and 1 up to noise {shown:g}.",
        "range_ratio",
        ("nonboundary",),
        lambda number: within(number, 0.5, 1),
        _up_to_shown,
    ),
    _Test(
        "Noise does not change the prediction on a non-boundary point.",
        "Share of noise draws that change the vote: below 5% up to noise {shown:g}.",
        "prediction_changed",
        ("nonboundary",),
        lambda number: below(number, 0.05),
        _up_to_shown,
    ),
    _Test(
        "On two points of different classes, many more rows turn from positive to negative than the other way.",
        "Rows that turn negative per row that turns positive: above 1.5, from noise {shown:g} on.",
        "lost_per_gained",
        SCENARIOS,
        lambda number: above(number, 1.5),
        _from_shown,
    ),
    _Test(
        "Most rows turn from positive to negative with two non-boundary points (NN).",
        "Rows that turn negative with NN, less the larger number with BB or BN: above 0, from noise {shown:g} on.",
        "lead_of_nn",
        ("NN",),
        lambda number: above(number, 0),
        _from_shown,
        0,
    ),
)


def case_claims(cases: Table, settings: Settings) -> list[Claim]:
    """Judge the claims about cases; intervals are over seeds."""
    table = _derived(cases)
    runs = [
        {"dataset": dataset, "protocol": protocol}
        for dataset in CASES
        if dataset in settings.datasets
        for protocol in protocols(dataset)
    ]
    return [_judge(test, table, runs, settings) for test in TESTS] if table else []


def _judge(test: _Test, table: Table, runs: list[dict[str, str]], settings: Settings) -> Claim:
    found, evidence = {}, []
    for where in runs:
        for kind in test.kinds:
            at = {sigma: level(table, test.statistic, **where, case=kind, noise=sigma) for sigma in settings.noise}
            name = f"{where['dataset']} ({where['protocol']}{f', {kind}' if len(test.kinds) > 1 else ''})"
            found[name] = every(test.said(at[sigma]) for sigma in test.levels(settings))
            shown = {f"noise {sigma:g}": at[sigma].show(test.digits) for sigma in _columns(settings)}
            evidence.append({**where, "points": kind, **shown, "verdict": found[name]})
    return make_claim(test.claim, test.test.format(shown=settings.shown), found, evidence)


def _columns(settings: Settings) -> list[float]:
    """Noise levels that a table shows: the lowest but one, the middle and the highest."""
    return sorted({settings.noise[min(1, len(settings.noise) - 1)], settings.shown, settings.noise[-1]})


def _derived(cases: Table) -> Table:
    """Add, for every seed, the statistics that compare rows of the table."""
    clean = {_key(row): row for row in cases if row["noise"] == 0}
    lost = {(*_key(row), row["noise"]): row["positive_to_negative"] for row in cases if row["case"] in SCENARIOS}
    table = []
    for row in cases:
        more = {"count_change": row["positive_count"] - clean[_key(row)]["positive_count"]}
        if row["case"] in SCENARIOS and row["noise"] > 0:
            more["lost_per_gained"] = row["positive_to_negative"] / max(row["negative_to_positive"], 1)
        if row["case"] == "NN":
            others = [lost[(*_key({**row, "case": other}), row["noise"])] for other in ("BB", "BN")]
            more["lead_of_nn"] = row["positive_to_negative"] - max(others)
        table.append(row | more)
    return table


def _key(row: dict[str, object]) -> tuple[object, ...]:
    return tuple(row[name] for name in ("dataset", "protocol", "seed", "case"))
