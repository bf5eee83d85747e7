"""Conclusions for the reader, all computed from the numbers."""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._facts import audit_facts, worst_level
from shapshift.audit import ShiftAudit, Thresholds
from shapshift.audit._levels import NOISE
from shapshift.audit._result import VERDICTS
from shapshift.correct import CorrectionEvaluation, evaluate
from shapshift.exceptions import InputError
from shapshift.price import Allocation, PayoutAudit
from shapshift.report._format import (
    Unit,
    capital,
    cell,
    change,
    count,
    either,
    fixed,
    listed,
    money,
    number,
    percent,
    plural,
    rows,
    unit_for,
)
from shapshift.trust import another_sample, sampling_facts, sure_signs
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]

# Correlations that differ by less are called equal.
SAME = 0.01
# Description of how well the order was kept, by the least rank correlation for it.
ORDER_KEPT = (
    (0.9, "the order of the rows is kept"),
    (0.7, "the order of the rows is mostly kept"),
    (0.5, "the order of the rows is kept only loosely"),
    (0.0, "the order of the rows is largely lost"),
    (-1.1, "the order of the rows is reversed rather than kept"),
)
# By whether a correction brings the distribution nearer to the clean one, and its effect on rank agreement.
CORRECTION_ADVICE = {
    (True, "raises"): "Here the corrected values are better in both respects.",
    (True, "lowers"): "Use the corrected values for totals and for counting rows that help, not for ranking rows: the "
    "order is further from the clean one than before.",
    (True, ""): "Use them for totals and for counting rows that help; for ranking rows they are no better.",
    (False, "raises"): "Use them for ranking rows, not for totals.",
}
# Headline on a sample of validation points, by its verdict.
SAMPLE_WORDS = {
    "reliable": "Reliable on another sample",
    "usable": "Usable, but not for single rows",
    "unreliable": "Too few validation points",
    "undefined": "Reliability unknown",
}
SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
UP_TO = "\N{LESS-THAN OR EQUAL TO}"
NO_BREAK = "\N{NO-BREAK SPACE}"
# Most owners that a remark names; more are only counted.
NAMED = 3
# Longer lists of parameters are cut, with a note.
MOST_LINES = 400


@dataclass(frozen=True)
class Results:
    """The results that a page shows; see ``build_report``."""

    valuation: Valuation
    audit: ShiftAudit | None
    noisy: Valuation | None
    corrected: Valuation | None
    allocation: Allocation | None
    payout_audit: PayoutAudit | None

    @cached_property
    def values(self) -> dict[str, Floats]:
        """Clean values and, if given, noisy and corrected ones."""
        given = {"clean": self.valuation, "noisy": self.noisy, "corrected": self.corrected}
        return {name: one.values for name, one in given.items() if one is not None}

    @cached_property
    def unit(self) -> Unit:
        """The unit in which the page shows values."""
        return unit_for(np.concatenate(list(self.values.values())))

    @cached_property
    def evaluation(self) -> CorrectionEvaluation | None:
        """Comparison of corrected and noisy values with the clean ones; None without corrected ones."""
        return None if self.corrected is None else evaluate(self.corrected, self.valuation, self.noisy)

    @cached_property
    def sampling(self) -> dict[str, Any]:
        """What another sample of validation points would change."""
        return sampling_facts(self.valuation)

    @cached_property
    def draws(self) -> "Draws | None":
        """The runs behind the intervals of payouts, if known."""
        return draws_of(self.allocation, self.payout_audit)


@dataclass(frozen=True)
class Verdict:
    """The one sentence at the top.

    Attributes
    ----------
    level : str
        A verdict of an audit, or "unknown".
    word : str
        The level for a reader.
    sentence : str
    detail : str
        Evidence for it.
    """

    level: str
    word: str
    sentence: str
    detail: str


def verdict(
    audit: ShiftAudit | None, allocation: Allocation | None = None, sampling: Mapping[str, Any] | None = None
) -> Verdict:
    """Summarise what another sample of points would change, then what noise would, and the effect on payouts.

    ``sampling`` are the facts of :attr:`Results.sampling`; those of an audit by default.
    """
    paid, noise = effect(allocation), noise_in_words(audit, allocation)
    if audit is None:
        level = "undefined" if sampling is None else Thresholds().judge_sample(sampling["reliability"])
        sample = "" if sampling is None else f"{capital(another_sample(sampling))}. "
        sentence = f"{sample}What noise would change was not measured{' row by row' if paid else ''}. {paid}"
        advice = "Run an audit to measure it."
        return Verdict(level, SAMPLE_WORDS[level], sentence.strip(), f"{advice} {noise}".strip())
    where, worst = worst_case(audit)
    found = (
        f"rank agreement with the clean values is {fixed(worst['spearman'])} and {percent(worst['sign_changes'])} of "
        "the rows change sign"
    )
    sample, under_noise = f"{capital(audit.sampling_finding)}.", max(audit.verdicts, key=VERDICTS.index)
    word = {"shifts": "Shifts under noise", "unstable": "Unstable under noise"}.get(
        audit.verdict, SAMPLE_WORDS.get(audit.verdict, audit.verdict.capitalize())
    )
    if under_noise == "stable":
        sentence = f"Noise changes little at every level tried: even {where}, {found}."
    elif "stable" in audit.verdicts:
        if audit.verdict == "unstable":
            word = "Unstable beyond a limit"
        limit = _stable_up_to(audit)
        held = f"up to {audit.axis} {limit} and not beyond" if limit else "for some changes and not for others"
        sentence = f"Under noise these values hold {held}: {where}, {found}."
    elif under_noise == "undefined":
        sentence = "The effect of noise is unknown: its statistics are undefined."
    elif under_noise == "shifts":
        sentence = f"Noise moves these values at every level tried: {where}, {found}."
    else:
        sentence = f"Noise gives other values: {where}, {found}."
    if audit.verdict in ("unstable", "unreliable") and "stable" not in audit.verdicts:
        sentence = f"{sentence} Do not rely on these values."
    if audit.verdict == "stable":
        sentence = f"{sentence} These values can be relied on."
    detail = f"{capital(audit.noise_finding)}. Compare the levels with the errors of your own validation data. {noise}"
    return Verdict(audit.verdict, word, f"{sample} {sentence} {paid}".strip(), detail.strip())


def trust(sampling: Mapping[str, Any]) -> str:
    """Describe how reliable values are, given :attr:`Results.sampling`."""
    said = f"{capital(another_sample(sampling))}."
    if sampling["open"] is None:
        return said
    return (
        f"{said} {capital(sure_signs(sampling))}. A value is a mean over a sample of validation points: "
        "its interval shows the plausible values on all points of this kind."
    )


def noise_in_words(audit: ShiftAudit | None, allocation: Allocation | None) -> str:
    """Define a level of noise; empty if nothing was varied by noise."""
    if audit is not None and audit.axis == NOISE:
        relative = audit.perturbations[0].get("relative")
    elif (facts := interval_facts(allocation)).get("axis") == NOISE:
        relative = facts["relative"]
    else:
        return ""
    unit = (
        "measured in standard deviations of each feature over the training rows"
        if relative
        else "in the units of the features as the model sees them: if they are scaled to standard deviation 1, "
        "noise 1 is as large as the spread of the feature itself"
    )
    return f"Noise ({SIGMA}) is the standard deviation of the noise added to each feature, {unit}."


def worst_case(audit: ShiftAudit) -> tuple[str, dict[str, Any]]:
    """Name the level at which the values agree least with the clean ones, such as "at noise 0.5", and its facts."""
    at = worst_level(audit)
    where = f"at {audit.axis} {audit.positions[at]:g}" if audit.ordered else f"under {audit.levels[at]}"
    return where, audit_facts(audit)["levels"][at]


def of_numbers(valuation: Valuation) -> bool:
    """Whether the validation points carry numbers to predict rather than classes."""
    return valuation.parameters.get("task") == "regression"


def distribution(values: Mapping[str, Floats], unit: Unit, predict: str = "classify") -> str:
    """Count the positive values, and their change from clean to noisy to corrected."""
    clean = values["clean"]
    positive = int((clean > 0).sum())
    said = [
        f"{count(positive)} of {rows(clean.size)} ({percent(positive / clean.size)}) {either(positive, 'has', 'have')} "
        f"a positive value: they help to {predict} the validation points. A negative value alone does not say "
        f"that a row is wrong. The mean is {unit.show(float(clean.mean()))}."
    ]
    for name, lead in (("noisy", "On the noisy validation set"), ("corrected", "After the correction")):
        if name in values:
            other = values[name]
            helping = int((other > 0).sum())
            compared = "as many as" if helping == positive else f"{_more(helping - positive)} than"
            said.append(
                f"{lead} {rows(helping)} {either(helping, 'is', 'are')} positive, {compared} on the clean one, and the "
                f"spread {_spread(float(other.std() / clean.std()) if clean.std() > 0 else np.nan)}."
            )
    return " ".join(said)


def correction(evaluation: Any) -> str:
    """Whether the correction helped, as a distribution and row by row: the two may differ."""
    after, rho_after = evaluation.distribution["corrected"]["wasserstein"], evaluation.rows["corrected"]["spearman"]
    if "noisy" not in evaluation.rows:
        return f"The corrected values agree with the clean ones in rank to {fixed(rho_after)}."
    before, rho_before = evaluation.distribution["noisy"]["wasserstein"], evaluation.rows["noisy"]["spearman"]
    nearer, gain = after < before, rho_after - rho_before
    verb = "brings the distribution back towards" if nearer else "does not bring the distribution nearer to"
    distances = f"from {number(before, 2)} to {number(after, 2)} clean standard deviations away"
    said = f"The correction {verb} the clean one ({distances})"
    if not np.isfinite(gain):
        return said + "; rank agreement is not defined here."
    moved = "raises" if gain > SAME else "lowers" if gain < -SAME else ""
    if moved:
        joined = "and" if nearer == (moved == "raises") else "but"
        ranks = f"from {fixed(rho_before)} to {fixed(rho_after)}"
        said += f", {joined} it {moved} rank agreement with the clean values {ranks}. "
    else:
        said += f"; rank agreement with the clean values stays the same ({fixed(rho_after)}). "
    return said + CORRECTION_ADVICE.get((nearer, moved), "Here the correction does not help.")


def boundary(valuation: Valuation, unit: Unit) -> str:
    """Describe the split by boundary."""
    at, off, n = valuation.boundary_values, valuation.nonboundary_values, int(valuation.boundary.sum())
    edge, agree, disagree, there = (
        ("a steep place", "have similar targets", "have targets that spread widely", "the targets of {} spread widely")
        if of_numbers(valuation)
        else ("a class boundary", "agree on the label", "disagree on the label", "the labels of {} disagree")
    )
    if at is None:
        return (
            f"No validation point lies near {edge}: the nearest training rows of each {agree}. Such a validation set "
            "gives little information about hard cases."
        )
    if off is None:
        return f"Every validation point lies near {edge}: the nearest training rows {disagree}."
    said = [
        f"{count(n)} of {count(valuation.n_val)} validation points ({percent(valuation.boundary_fraction)}) "
        f"{either(n, 'is a boundary point', 'are boundary points')}: there {there.format('the nearest training rows')}."
    ]
    if off.std() > 0:
        said.append(
            f"On them the values spread {number(float(at.std() / off.std()), 2)} times as much as on the other points "
            f"({unit.show(float(at.std()))} against {unit.show(float(off.std()))})."
        )
    if np.ptp(at) > 0 and np.ptp(off) > 0:
        said.append(
            f"{percent(float(np.mean((at > 0) != (off > 0))))} of the rows help on one kind of point and not on the "
            "other, so the mix of the two kinds in a validation set decides the values of these rows."
        )
    return " ".join(said)


def shift(audit: ShiftAudit) -> str:
    """Describe the curves."""
    where, worst = worst_case(audit)
    top, n_top = percent(worst["top_overlap"]), int(audit.parameters["top"])
    kept = f"{top} of the top {rows(n_top)} are still among the top"
    if n_top == 1:
        kept = f"the top row stays at the top in {top} of the draws"
    more = round(worst["positive_count"] - audit.clean["positive_count"])
    compared = f"{_more(more)} {either(more, 'row is', 'rows are')}" if more else "as many rows are"
    return (
        f"{capital(where)}, where the values agree least with the clean ones, {order_kept(worst['spearman'])}, {kept}, "
        f"and {percent(worst['sign_changes'])} of the rows change sign. The spread "
        f"{_spread(1 + worst['spread_change'])} and {compared} positive. {_advice(audit)}"
    )


def neighbours(audit: ShiftAudit) -> str:
    """How much neighbours are reshuffled, near a boundary and elsewhere."""
    (where, worst), at = worst_case(audit), worst_level(audit)
    said = (
        f"Values change because a moved validation point meets other training rows. {capital(where)} the nearest rows "
        f"before and after overlap by {percent(worst['neighbor_jaccard'])}."
    )
    near, far = (float(audit.statistic(f"changed_predictions_{part}")[0][at]) for part in ("boundary", "nonboundary"))
    if np.isfinite([near, far]).all():
        more, less = near > 1.2 * far + 0.01, far > 1.2 * near + 0.01
        often = "more often than" if more else "less often than" if less else "about as often as"
        rest = "reshuffling matters most where the classes meet" if more else "boundary points are not affected most"
        said += f" The prediction changes for {percent(near)} of the boundary points, {often} for the others "
        said += f"({percent(far)}): {rest}."
    return said


def curve(levels: Sequence[str], axis: str, means: Mapping[str, Floats], show: Callable[[float], str]) -> str:
    """Describe a curve by its two ends."""
    said = []
    for label, mean in means.items():
        known = np.flatnonzero(np.isfinite(mean))
        if known.size:
            ends = [f"{show(float(mean[at]))} at {axis} {levels[at]}" for at in sorted({known[0], known[-1]})]
            said.append(f"{label}: {', '.join(ends)}")
    return "; ".join(said) + "." if said else "Not defined here."


def scatter(found: Mapping[str, float], n: int, name: str) -> str:
    """Describe a chart of clean against other values."""
    lost, gained = found["flips_to_negative"], found["flips_to_positive"]
    signs = "No row changes sign"
    if flips := lost + gained:
        signs = (
            f"{count(flips)} of {rows(n)} ({percent(flips / n)}) {either(flips, 'changes', 'change')} sign: "
            f"{count(lost)} {either(lost, 'stops', 'stop')} being positive, "
            f"{count(gained)} {either(gained, 'becomes', 'become')} positive"
        )
    return f"{name}: {signs}. {capital(order_kept(found['spearman']))}."


def map_of_values(alike: float) -> str:
    """Describe whether rows that lie together on a map have similar values."""
    if not np.isfinite(alike):
        return "All rows have the same value."
    if alike >= 0.5:
        said = "Rows that lie close together have similar values"
    elif alike >= 0.2:
        said = "Rows that lie close together tend to have similar values, with many exceptions"
    else:
        said = "Position says little about value: rows of high and low value lie side by side"
    return f"{said} (rank correlation {fixed(alike)} between a row and the rows around it)."


def order_kept(rho: float) -> str:
    """How well the order was kept, from a rank correlation."""
    known = (said for least, said in ORDER_KEPT if rho >= least)
    return f"{next(known, 'the order of the rows cannot be compared')} (Spearman {fixed(rho)})"


def _advice(audit: ShiftAudit) -> str:
    if audit.sampling_verdict == "unreliable":
        return "To act on single rows, first value the rows on more validation points."
    if audit.verdict == "stable":
        return "Ranking and signs can be used."
    if limit := _stable_up_to(audit):
        return f"Use the ranking only if the errors of your validation data are within noise {limit}."
    return "Act only on rows whose stability is high in the table below, or value the rows on a larger validation set."


def _stable_up_to(audit: ShiftAudit) -> str:
    """Highest noise level up to which all are stable; empty if there is none."""
    along = np.argsort(audit.positions, kind="stable") if audit.axis == NOISE else ()
    stable = list(itertools.takewhile(lambda place: audit.verdicts[place] == "stable", along))
    return f"{audit.positions[stable[-1]]:g}" if stable else ""


def _more(difference: float) -> str:
    return f"{count(abs(difference))} {'more' if difference > 0 else 'fewer'}"


def _spread(ratio: float) -> str:
    """Comparison of a spread with the clean one."""
    said = change(ratio)
    if said.startswith("grows to"):
        return f"{said} that of the clean one"
    return f"{said} against the clean one" if said.startswith(("falls", "rises")) else said


@dataclass(frozen=True)
class Draws:
    """The runs behind payout intervals.

    Attributes
    ----------
    levels : int
        Perturbations tried.
    repeats : int
        Runs of each.
    seed : int or None
    """

    levels: int
    repeats: int
    seed: int | None

    @property
    def total(self) -> int:
        """Runs in all."""
        return self.levels * self.repeats


def draws_of(allocation: Allocation | None, audit: PayoutAudit | None) -> Draws | None:
    """Find the runs behind an allocation's intervals; None if unknown.

    Parameters
    ----------
    allocation : Allocation or None
    audit : PayoutAudit or None
        Source of the intervals, possibly up to some level only: it is checked against the allocation.
    """
    facts = interval_facts(allocation)
    if allocation is not None and audit is not None:
        audit.check_same(allocation)
        given: dict[str, Any] = {"up_to": facts.get("up_to"), "bounds": facts.get("bounds", "range")}
        found, attached = audit.bounds(**given), (allocation.low, allocation.high)
        same = all(b is not None and np.array_equal(a, b) for a, b in zip(found, attached, strict=True))
        if not same or audit.condition(**given) != allocation.interval:
            raise InputError(
                "The 'payout_audit' parameter must be the audit that gave the intervals of 'allocation'. Pass the same "
                "audit to allocate_budget."
            )
        facts = audit.about(**given)
    if not {"levels", "draws_per_level"} <= facts.keys():
        return None
    return Draws(len(facts["levels"]), int(facts["draws_per_level"]), facts.get("random_state"))


def interval_facts(allocation: Allocation | None) -> Mapping[str, Any]:
    """Facts about the interval of an allocation, see ``PayoutAudit.about``; empty without intervals."""
    facts = None if allocation is None else allocation.parameters.get("interval")
    return facts if isinstance(facts, Mapping) else {}


def payouts(names: Sequence[str], allocation: Allocation, draws: Draws | None = None) -> str:
    """Payouts of the owners, and their uncertainty."""
    paid, low, high = allocation.cents, allocation.low, allocation.high
    if not names:
        return "There are no owners to pay."
    first, total = int(np.argmax(paid)), int(np.maximum(paid, 0).sum())
    nothing, charged = int((paid == 0).sum()), int((paid < 0).sum())
    said = ["No owner is paid."]
    if total:
        share = f"{percent(paid[first] / total)} of the {money(allocation, total)} paid out"
        said = [f"{names[first]} is paid most: {money(allocation, paid[first])}, {share}."]
    for cents, what in (
        (allocation.reserve_cents, "kept back as reserve"),
        (allocation.unallocated_cents - allocation.collected_cents, "not paid to anyone"),
    ):
        if cents:
            said.append(f"{money(allocation, cents)} {either(cents / 10**allocation.digits, 'is', 'are')} {what}.")
    if nothing and total:
        said.append(f"{count(nothing)} of {plural(len(names), 'owner')} {either(nothing, 'is', 'are')} paid nothing.")
    if charged:
        said.append(
            f"{count(charged)} of {plural(len(names), 'owner')} {either(charged, 'is', 'are')} charged "
            f"{money(allocation, allocation.collected_cents)} against deposits, which go back to the buyer."
        )
    said += _paid_for_harm(names, allocation)
    if low is None or high is None:
        return " ".join([*said, "The effect of another validation set on payouts was not measured."])
    moved, most = largest_move(allocation)
    if not moved:
        return " ".join([*said, f"Under {condition(allocation)}, no payout moves ({basis(allocation, draws)})."])
    now, least, largest = (money(allocation, cents[most], label=False) for cents in (paid, low, high))
    said.append(
        f"Under {condition(allocation)}, payouts move by up to {money(allocation, moved)} ({names[most]} is paid "
        f"{now}, and between {least} and {largest} in the draws). These bounds are {basis(allocation, draws)}; another "
        "kind of change may move payouts further."
    )
    pairs, unsettled = len(names) - 1, swaps(allocation)
    if pairs and unsettled:
        said.append(
            f"Ranked by payout, {count(unsettled)} of {plural(pairs, 'pair')} of neighbours "
            f"{either(unsettled, 'has', 'have')} overlapping intervals: which of the two earns more depends on the "
            "draw."
        )
    elif pairs:
        said.append(
            "Ranked by payout, no interval overlaps the next owner's: none of these draws changes who earns more."
        )
    return " ".join(said)


def effect(allocation: Allocation | None) -> str:
    """Describe the change of payouts, for the verdict; empty if it was not measured."""
    if allocation is None or allocation.low is None or allocation.high is None or not allocation.owners:
        return ""
    moved, _ = largest_move(allocation)
    if not moved:
        return f"Under {condition(allocation)}, no payout moves."
    said = f"Under {condition(allocation)}, payouts move by up to {money(allocation, moved)}"
    pairs = len(allocation.owners) - 1
    if not pairs:
        return said + "."
    return f"{said}; {count(swaps(allocation))} of {plural(pairs, 'pair')} of neighbours in rank could change places."


def largest_move(allocation: Allocation) -> tuple[int, int]:
    """Largest move of a payout from the amount paid, in cents, and its owner; for allocations with intervals."""
    moves = np.abs(np.array([allocation.low, allocation.high]) - allocation.cents).max(axis=0)
    most = int(np.argmax(moves))
    return int(moves[most]), most


def swaps(allocation: Allocation) -> int:
    """Count pairs of neighbours in the order of payouts that could change places within their intervals."""
    order = np.argsort(-allocation.cents, kind="stable")
    return int(np.count_nonzero(np.asarray(allocation.high)[order[1:]] > np.asarray(allocation.low)[order[:-1]]))


def condition(allocation: Allocation) -> str:
    """Name what was varied, such as noise up to some sigma."""
    facts = interval_facts(allocation)
    if facts.get("axis") != NOISE:
        return allocation.interval
    unit = " (in stds of each feature)" if facts["relative"] else ""
    runs = " (9 runs of 10)" if facts["bounds"] == "quantiles" else ""
    return f"random noise of {SIGMA}{NO_BREAK}{UP_TO}{NO_BREAK}{facts['reach'][1]:g}{unit}{runs}"


def basis(allocation: Allocation, draws: Draws | None) -> str:
    """Define the bounds of payouts, with the number of runs if known."""
    if draws is None:
        drawn = "the random draws of the payout audit"
    elif draws.total == 1:
        drawn = "one random draw"
    else:
        drawn = f"{count(draws.total)} random draws"
        drawn += f" ({count(draws.repeats)} at each of {count(draws.levels)} levels)" if draws.levels > 1 else ""
    quantiles = interval_facts(allocation).get("bounds") == "quantiles"
    ends = "the 5% and 95% quantiles" if quantiles else "the smallest and largest"
    return f"{ends} over {drawn} of this one kind of change"


def _paid_for_harm(names: Sequence[str], allocation: Allocation) -> list[str]:
    harmful = np.flatnonzero((allocation.values < 0) & (allocation.cents > 0)).tolist()
    if not harmful or allocation.basis != "rows" or allocation.policy.negatives != "clip":
        return []
    n = len(harmful)
    who = listed([names[i] for i in harmful]) if n <= NAMED else plural(n, "owner")
    return [
        f"{who} {either(n, 'is', 'are')} paid although {either(n, 'its', 'their')} rows together have a "
        "negative value: this rule counts only rows with a positive value."
    ]


def parameter_groups(
    results: Results, given: Mapping[str, Any], page: Mapping[str, Any]
) -> list[tuple[str, list[tuple[str, str]]]]:
    """Every parameter under a heading, nested ones by their path: also those of the caller and of the page."""
    valuation, audit, allocation = results.valuation, results.audit, results.allocation
    groups: dict[str, Any] = {"Valuation": {**valuation.parameters, "training fingerprint": valuation.fingerprint}}
    if audit is not None:
        levels = {str(name): made for name, made in zip(audit.levels, audit.perturbations, strict=True)}
        groups["Audit"] = _without_model(audit) | {"levels": levels, "thresholds": asdict(audit.thresholds)}
    if results.noisy is not None:
        groups["Noisy valuation"] = results.noisy.parameters
    if results.corrected is not None:
        made = results.corrected.parameters
        groups["Correction"] = made.get("correction", made)
    if allocation is not None:
        groups["Payouts"] = {
            "budget": str(allocation.budget),
            "currency": allocation.currency,
            "basis": allocation.basis,
            "policy": asdict(allocation.policy),
            "reserve": str(allocation.reserve),
            "unallocated": str(allocation.unallocated),
            "interval": allocation.interval or "none",
            "valued": dict(allocation.parameters),
        }
    if results.payout_audit is not None:
        groups["Payout audit"] = _without_model(results.payout_audit) | {"levels": list(results.payout_audit.levels)}
    groups |= {"Run": given} if given else {}
    return [(name, _cut(_flat(entries))) for name, entries in (groups | {"This page": page}).items()]


def _without_model(audit: Any) -> dict[str, Any]:
    return {key: part for key, part in audit.parameters.items() if key != "model"} | {"axis": audit.axis}


def _cut(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    more = len(lines) - MOST_LINES
    return [*lines[:MOST_LINES], ("…", f"{more} more parameters")] if more > 0 else lines


def _flat(entry: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(entry, Mapping):
        found = [line for key, part in entry.items() for line in _flat(part, f"{path} / {key}" if path else str(key))]
        return found or [(path, "none")]
    if isinstance(entry, list | tuple) and any(isinstance(part, Mapping | list | tuple) for part in entry):
        return _flat(dict(enumerate(entry)), path)
    return [(path, _plain(entry))]


def _plain(entry: Any) -> str:
    if isinstance(entry, list | tuple):
        return ", ".join(_plain(part) for part in entry)
    if isinstance(entry, np.generic):
        entry = entry.item()
    if isinstance(entry, bool) or entry is None:
        return {True: "yes", False: "no", None: "none"}[entry]
    return f"{entry:.6g}" if isinstance(entry, float) else cell(entry)
