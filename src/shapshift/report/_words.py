"""What the reader should conclude, computed from the numbers and never assumed; what the words on the page mean."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift._facts import flip_shares, worst_level
from shapshift.audit import ShiftAudit
from shapshift.price import Allocation, PayoutAudit
from shapshift.report._format import Unit, cell, change, count, fixed, money, number, percent, plural, rows
from shapshift.report._payout_words import SIGMA, Draws, basis, condition, interval_facts
from shapshift.report._payout_words import effect as effect_on_payouts
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]

#: Axis on which more is a stronger perturbation.
NOISE = "noise"
# Correlations that differ by less are called the same.
SAME = 0.01


@dataclass(frozen=True)
class Verdict:
    """The one sentence at the top.

    Attributes
    ----------
    level : {"stable", "shifts", "unstable", "undefined", "unknown"}
    word : str
        The level for a reader.
    sentence : str
    detail : str
        What it rests on.
    """

    level: str
    word: str
    sentence: str
    detail: str


def verdict(audit: ShiftAudit | None, allocation: Allocation | None = None) -> Verdict:
    """Whether the values can be relied on, and what that means for payouts."""
    paid = effect_on_payouts(allocation)
    if audit is None:
        advice = "Run an audit to find out how far the values can be relied on."
        if allocation is not None and (facts := interval_facts(allocation)).get("axis") == NOISE:
            advice += f" {noise_in_words(facts['relative'])}"
        unknown = "These values come from one validation set; whether another one would give the same was not measured"
        return Verdict(
            "unknown",
            "Only payouts audited" if paid else "Not audited",
            f"{unknown} row by row. {paid}" if paid else f"{unknown}.",
            advice,
        )
    rho, flips = audit.statistic("spearman")[0], flip_shares(audit)
    worst = worst_level(audit)
    where = level_phrase(audit, worst)
    effect = (
        f"rank agreement with the clean values is {fixed(float(rho[worst]))} and {percent(float(flips[worst]))} of the "
        "rows change sign"
    )
    if audit.verdict == "stable":
        word = "Stable"
        sentence = f"These values can be relied on: they hold at every level tried. Even {where}, {effect}."
    elif "stable" in audit.verdicts:
        word = "Shifts" if audit.verdict == "shifts" else "Unstable beyond a limit"
        limit = _stable_up_to(audit)
        held = (
            f"hold up to {audit.axis} {limit} and not beyond" if limit else "hold for some changes and not for others"
        )
        sentence = f"These values {held}: {where}, {effect}."
    elif audit.verdict == "undefined":
        word = "Undefined"
        sentence = "Whether these values can be relied on cannot be told: the statistics that would say are undefined."
    elif audit.verdict == "shifts":
        word = "Shifts"
        sentence = f"These values move with the validation set at every level tried: {where}, {effect}."
    else:
        word = "Unstable"
        sentence = (
            f"Do not rely on these values: another validation set would give others. {_capital(where)}, {effect}."
        )
    detail = f"{_capital(audit.finding)}. Compare the levels with how far your own validation data may be off."
    if audit.axis == NOISE:
        detail += f" {noise_in_words(bool(audit.perturbations[0].get('relative')))}"
    return Verdict(audit.verdict, word, f"{sentence} {paid}".strip(), detail)


def noise_in_words(relative: bool) -> str:
    """Say what a level of noise is."""
    unit = (
        "measured in standard deviations of each feature over the training rows"
        if relative
        else "in the units of the features as the model sees them: where they are scaled to standard deviation 1, "
        "noise 1 is as large as the spread of the feature itself"
    )
    return f"Noise ({SIGMA}) is the standard deviation of what is added to each feature, {unit}."


def level_phrase(audit: ShiftAudit, place: int) -> str:
    """Such as "at noise 0.5"."""
    return f"at {audit.axis} {audit.positions[place]:g}" if audit.ordered else f"under {audit.levels[place]}"


def of_numbers(valuation: Valuation) -> bool:
    """Whether the validation points carry numbers to predict rather than classes."""
    return valuation.parameters.get("task") == "regression"


def distribution(values: Mapping[str, Floats], unit: Unit, predict: str = "classify") -> str:
    """How many rows help, and how that changes from clean to noisy to corrected."""
    clean = values["clean"]
    positive = int((clean > 0).sum())
    said = [
        f"{count(positive)} of {rows(clean.size)} ({percent(positive / clean.size)}) {_have(positive)} a positive "
        f"value: such rows help to {predict} the validation points. The others do not help or do harm. The mean is "
        f"{unit.show(float(clean.mean()))}."
    ]
    for name, lead in (("noisy", "On the noisy validation set"), ("corrected", "After the correction")):
        if name in values:
            other = values[name]
            helping = int((other > 0).sum())
            compared = "as many as" if helping == positive else f"{_more(helping - positive)} than"
            said.append(
                f"{lead} {rows(helping)} {_are(helping)} positive, {compared} on the clean one, and the spread "
                f"{_spread(float(other.std() / clean.std()) if clean.std() > 0 else np.nan)}."
            )
    return " ".join(said)


def correction(evaluation: Any) -> str:
    """Whether the correction helped, as a distribution and row by row: the two may differ."""
    after, rho_after = evaluation.distribution["corrected"]["wasserstein"], evaluation.rows["corrected"]["spearman"]
    if "noisy" not in evaluation.rows:
        return f"The corrected values agree with the clean ones in rank to {fixed(rho_after)}."
    before, rho_before = evaluation.distribution["noisy"]["wasserstein"], evaluation.rows["noisy"]["spearman"]
    distances = f"from {number(before, 2)} to {number(after, 2)} clean standard deviations away"
    ranks = f"from {fixed(rho_before)} to {fixed(rho_after)}"
    nearer = after < before
    verb = "brings the distribution back towards" if nearer else "does not bring the distribution nearer to"
    said = f"The correction {verb} the clean one ({distances})"
    if not np.isfinite(rho_before) or not np.isfinite(rho_after):
        return said + "; rank agreement is not defined here."
    gain = rho_after - rho_before
    if gain > SAME:
        said += f"{', and' if nearer else ', but'} it raises rank agreement with the clean values {ranks}. "
    elif gain < -SAME:
        said += f"{', but' if nearer else ', and'} it lowers rank agreement with the clean values {ranks}. "
    else:
        said += f"; rank agreement with the clean values stays the same ({fixed(rho_after)}). "
    if nearer and gain > SAME:
        return said + "Here the corrected values are the better ones in both respects."
    if nearer and gain < -SAME:
        return said + (
            "Use the corrected values for totals and for counting rows that help, not for ranking rows: the order is "
            "further from the clean one than before."
        )
    if nearer:
        return said + "Use them for totals and for counting rows that help; for ranking rows nothing is gained."
    if gain > SAME:
        return said + "Use them for ranking rows, not for totals."
    return said + "Here the correction does not help."


def reading_a_histogram(several: bool, beyond: str) -> str:
    """Say how to read the chart."""
    switch = "Use the buttons to show or hide each." if several else ""
    return " ".join(part for part in ("Right of the line at 0 are rows that help.", beyond, switch) if part)


def boundary(valuation: Valuation, unit: Unit) -> str:
    """Say what the split by boundary shows."""
    share, at, off = valuation.boundary_fraction, valuation.boundary_values, valuation.nonboundary_values
    n = int(valuation.boundary.sum())
    edge, agree, disagree = ("a class boundary", "agree on the label", "disagree on the label")
    if of_numbers(valuation):
        edge, agree, disagree = ("a steep place", "have similar targets", "have targets that spread widely")
    if at is None:
        return (
            f"No validation point lies near {edge}: the nearest training rows of each {agree}. Such a validation set "
            "says little about hard cases."
        )
    if off is None:
        return f"Every validation point lies near {edge}: the nearest training rows {disagree}."
    ratio = float(at.std() / off.std()) if off.std() > 0 else np.nan
    said = (
        f"{count(n)} of {count(valuation.n_val)} validation points ({percent(share)}) "
        f"{'is a boundary point' if n == 1 else 'are boundary points'}: there "
        + ("the targets of" if of_numbers(valuation) else "the labels of")
        + f" the nearest training rows {'spread widely' if of_numbers(valuation) else 'disagree'}. "
    )
    if np.isfinite(ratio):
        said += (
            f"On them the values spread {number(ratio, 2)} times as much as on the other points "
            f"({unit.show(float(at.std()))} against {unit.show(float(off.std()))}). "
        )
    if np.ptp(at) > 0 and np.ptp(off) > 0:
        opposite = float(np.mean((at > 0) != (off > 0)))
        said += (
            f"{percent(opposite)} of the rows help on one kind of point and not on the other, so the mix of the two "
            "kinds in a validation set decides what these rows are worth."
        )
    return said.strip()


def shift(audit: ShiftAudit) -> str:
    """Say what the curves show."""
    worst = worst_level(audit)
    rho, flips = float(audit.statistic("spearman")[0][worst]), float(flip_shares(audit)[worst])
    top, n_top = float(audit.statistic("top_overlap")[0][worst]), int(audit.parameters["top"])
    clean, std = float(audit.clean["std"]), float(audit.statistic("std")[0][worst])
    positive = float(audit.statistic("positive_count")[0][worst])
    difference = round(positive - audit.clean["positive_count"])
    kept = (
        f"the top row stays at the top in {percent(top)} of the draws"
        if n_top == 1
        else f"{percent(top)} of the top {rows(n_top)} are still among the top"
    )
    compared = "as many rows are" if difference == 0 else f"{_more(difference)} {_rows_are(difference)}"
    return (
        f"{_capital(level_phrase(audit, worst))}, where the values agree least with the clean ones, {order_kept(rho)} "
        f"(Spearman {fixed(rho)}), {kept}, and "
        f"{percent(flips)} of the rows change sign. The spread {_spread(std / clean if clean > 0 else np.nan)} and "
        f"{compared} positive. {_advice(audit)}"
    )


def neighbours(audit: ShiftAudit) -> str:
    """How far neighbours are reshuffled, near a boundary and elsewhere."""
    worst = worst_level(audit)
    kept = {
        part: float(audit.statistic("neighbor_jaccard" + part)[0][worst]) for part in ("", "_boundary", "_nonboundary")
    }
    changed = {
        part: float(audit.statistic("changed_predictions" + part)[0][worst]) for part in ("_boundary", "_nonboundary")
    }
    where = _capital(level_phrase(audit, worst))
    said = (
        f"Values change because a moved validation point meets other training rows. {where} the nearest rows "
        f"before and after overlap by {percent(kept[''])}."
    )
    if np.isfinite(list(changed.values())).all():
        near, far = changed["_boundary"], changed["_nonboundary"]
        more, less = near > 1.2 * far + 0.01, far > 1.2 * near + 0.01
        often = "more often than" if more else "less often than" if less else "about as often as"
        rest = "reshuffling matters most where the classes meet" if more else "it is not the boundary that suffers most"
        said += f" The prediction changes for {percent(near)} of the boundary points, {often} for the others "
        said += f"({percent(far)}): {rest}."
    return said


def curve(levels: Sequence[str], axis: str, means: Sequence[tuple[str, Floats]], show: Callable[[float], str]) -> str:
    """Say a curve in words: its two ends."""
    said = []
    for label, mean in means:
        known = np.flatnonzero(np.isfinite(mean))
        if known.size:
            first, last = known[0], known[-1]
            said.append(
                f"{label}: {show(float(mean[first]))} at {axis} {levels[first]}"
                + (f", {show(float(mean[last]))} at {axis} {levels[last]}" if last != first else "")
            )
    return "; ".join(said) + "." if said else "Not defined here."


def scatter(found: Mapping[str, float], n: int, name: str) -> str:
    """Say what a chart of clean against other values shows."""
    lost, gained = found["flips_to_negative"], found["flips_to_positive"]
    signs = (
        "No row changes sign"
        if lost + gained == 0
        else f"{count(lost + gained)} of {rows(n)} ({percent((lost + gained) / n)}) "
        f"{'changes' if lost + gained == 1 else 'change'} sign: {count(lost)} {'stops' if lost == 1 else 'stop'} "
        f"being positive, {count(gained)} {'becomes' if gained == 1 else 'become'} positive"
    )
    return f"{name}: {signs}. {_capital(order_kept(found['spearman']))} (Spearman {fixed(found['spearman'])})."


def map_of_values(alike: float) -> str:
    """Say whether rows that lie together on a map are worth the same."""
    if not np.isfinite(alike):
        return "All rows are worth the same."
    said = f"(rank correlation {fixed(alike)} between a row and the rows around it)"
    if alike >= 0.5:
        return f"Value follows place: rows that lie close together are worth much the same {said}."
    if alike >= 0.2:
        return f"Rows that lie close together tend to similar values, with many exceptions {said}."
    return f"Place says little about value: rows of high and of low value lie side by side {said}."


def order_kept(rho: float) -> str:
    """How well a rank correlation says that the order was kept."""
    for least, said in (
        (0.9, "the order of the rows is kept"),
        (0.7, "the order of the rows is mostly kept"),
        (0.5, "the order of the rows is kept only loosely"),
        (0.0, "the order of the rows is largely lost"),
        (-1.1, "the order of the rows is reversed rather than kept"),
    ):
        if rho >= least:
            return said
    return "the order of the rows cannot be compared"


def _advice(audit: ShiftAudit) -> str:
    if audit.verdict == "stable":
        return "Ranking and signs can be used as they are."
    if limit := _stable_up_to(audit):
        return f"Use the ranking only where you can vouch for your validation data to within noise {limit}."
    return "Act only on rows whose stability is high in the table below, or value the rows on a larger validation set."


def _stable_up_to(audit: ShiftAudit) -> str:
    """Highest noise level up to which all are stable; empty where there is none."""
    limit = ""
    if audit.axis == NOISE:
        for place in np.argsort(audit.positions, kind="stable"):
            if audit.verdicts[place] != "stable":
                break
            limit = f"{audit.positions[place]:g}"
    return limit


def _more(difference: float) -> str:
    return f"{count(abs(difference))} {'more' if difference > 0 else 'fewer'}"


def _are(n: float) -> str:
    return "is" if round(n) == 1 else "are"


def _have(n: float) -> str:
    return "has" if round(n) == 1 else "have"


def _rows_are(n: float) -> str:
    return "row is" if abs(round(n)) == 1 else "rows are"


def _spread(ratio: float) -> str:
    """How a spread compares with the clean one."""
    said = change(ratio)
    if said.startswith("grows to"):
        return f"{said} that of the clean one"
    return f"{said} against the clean one" if said.startswith(("falls", "rises")) else said


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


# Longer lists of parameters are cut, and say so.
MOST_LINES = 400

_UTILITY = {
    "soft": "the share of the point's K nearest rows that carry its label",
    "hard": "the number of the point's K nearest rows that carry its label, divided by K",
}
_SEMIVALUE = {
    "shapley": "The Shapley value averages over all orders in which rows can join",
    "banzhaf": "The Banzhaf value averages over all subsets alike",
    "loo": "Leave-one-out compares all rows with all rows but one",
}


def definitions(
    valuation: Valuation,
    audit: ShiftAudit | None,
    corrected: Valuation | None,
    allocation: Allocation | None,
    draws: Draws | None,
) -> list[tuple[str, str]]:
    """Say what the words on the page mean, in the order in which they are met."""
    known = valuation.parameters
    does = "predicts" if of_numbers(valuation) else "classifies"
    value = f"What a training row adds when it joins a set of training rows that {does} the validation points. "
    if "worth" in known:
        value += f"A set is worth, on one validation point, {known['worth']}. "
    elif known.get("utility") in _UTILITY:
        worth, k = _UTILITY[str(known["utility"])], known.get("n_neighbors")
        value += f"A set is worth, on one validation point, {worth} (K = {k}). "
    if known.get("semivalue") in _SEMIVALUE:
        value += f"{_SEMIVALUE[str(known['semivalue'])]}. "
    value += (
        "Values are averaged over the validation points. A row with a positive value helps; 0 counts as not positive."
    )
    found = [
        ("Value", value),
        (
            "Boundary point",
            known.get("boundary_rule")
            or f"A validation point whose {known.get('boundary_neighbors', 5)} nearest training rows do not all carry "
            "the same label.",
        ),
        ("Spread (std)", "Standard deviation of the values over the training rows."),
    ]
    if audit is not None:
        found += [
            ("Clean and perturbed", "The validation set as it was given, and the same set after a random change."),
            *_noise(audit, allocation),
            (
                "Rank agreement",
                "Spearman correlation of the clean with the perturbed values: 1 is the same order, 0 none.",
            ),
            ("Sign change", "A row that is positive on one of two validation sets and not on the other."),
            (
                "Stability of a row",
                "From 0 to 1: the share of runs in which the row keeps its sign, times 1 less its mean change in rank "
                "relative to that of a rank drawn at random.",
            ),
            (
                "\N{GREEK SMALL LETTER ALPHA} (alpha)",
                "Standard deviation of the clean scores over that of the perturbed ones, over boundary points or over "
                "the others. Above 1: the perturbation flattened the scores.",
            ),
            ("Overlap of the nearest rows", "Rows among the K nearest before and after, divided by those in either."),
            ("Verdict", f"{_thresholds(audit)}; a level in between shifts. The worst level decides."),
        ]
    if corrected is not None:
        found.append(
            (
                "Correction",
                "Gives the scores over boundary points and over the others the spread they have on the clean set, adds "
                "them up again and shifts the sum so that as many rows are positive as on the clean set (Shen, Yang "
                "and Liu, “Validation-Induced Shapley Shifts”). It restores a distribution, not the order of the rows.",
            )
        )
    if allocation is not None:
        found += [] if audit is not None else _noise(None, allocation)
        found.append(("Payment", _payment(allocation)))
        if allocation.interval:
            found.append(("Range of a payout", _interval(allocation, draws)))
    return found


def _noise(audit: ShiftAudit | None, allocation: Allocation | None) -> list[tuple[str, str]]:
    if audit is not None and audit.axis == NOISE:
        relative = bool(audit.perturbations[0].get("relative"))
    elif allocation is not None and (facts := interval_facts(allocation)).get("axis") == NOISE:
        relative = facts["relative"]
    else:
        return []
    return [(f"Noise ({SIGMA})", noise_in_words(relative))]


def _payment(allocation: Allocation) -> str:
    if allocation.basis == "owners":
        counted = "the value of all its rows joining together, or nothing where that is negative"
    elif allocation.policy.negatives == "clip":
        counted = "the sum of the positive values of its rows"
    else:
        counted = "the sum of the values of its rows, or nothing where that is negative"
    budget = money(allocation, allocation.budget_cents)
    rules = allocation.policy.sentences(allocation.currency, allocation.digits)
    return f"A budget of {budget} is shared out. An owner's contribution is {counted}. {' '.join(rules)}"


def _interval(allocation: Allocation, draws: Draws | None) -> str:
    said = f"Payouts were computed again with {condition(allocation)} in the validation set; shown are "
    said += f"{basis(allocation, draws)}, and the payout itself."
    if draws is not None:
        runs = f"{plural(draws.repeats, 'draw')} at each of {plural(draws.levels, 'level')}"
        said += f" There were {runs}" + ("." if draws.seed is None else f"; the random seed was {draws.seed}.")
    return said


def parameter_groups(
    valuation: Valuation,
    *,
    audit: ShiftAudit | None,
    noisy: Valuation | None,
    corrected: Valuation | None,
    allocation: Allocation | None,
    payout_audit: PayoutAudit | None,
    given: Mapping[str, Any],
    page: Mapping[str, Any],
) -> list[tuple[str, Sequence[tuple[str, str]]]]:
    """Every parameter under a heading, nested ones by their path."""
    groups: list[tuple[str, Any]] = [
        ("Valuation", {**valuation.parameters, "training fingerprint": valuation.fingerprint})
    ]
    if audit is not None:
        levels = {str(name): made for name, made in zip(audit.levels, audit.perturbations, strict=True)}
        own = {key: part for key, part in audit.parameters.items() if key != "model"}
        groups.append(("Audit", {**own, "axis": audit.axis, "levels": levels, "thresholds": asdict(audit.thresholds)}))
    if noisy is not None:
        groups.append(("Noisy valuation", noisy.parameters))
    if corrected is not None:
        groups.append(("Correction", corrected.parameters.get("correction", corrected.parameters)))
    if allocation is not None:
        groups.append(
            (
                "Payouts",
                {
                    "budget": str(allocation.budget),
                    "currency": allocation.currency,
                    "basis": allocation.basis,
                    "policy": asdict(allocation.policy),
                    "reserve": str(allocation.reserve),
                    "unallocated": str(allocation.unallocated),
                    "interval": allocation.interval or "none",
                    "valued": dict(allocation.parameters),
                },
            )
        )
    if payout_audit is not None:
        known = {key: part for key, part in payout_audit.parameters.items() if key != "model"}
        groups.append(("Payout audit", {**known, "axis": payout_audit.axis, "levels": list(payout_audit.levels)}))
    if given:
        groups.append(("Run", given))
    groups.append(("This page", page))
    return [(name, _cut(list(_flat(entries)))) for name, entries in groups]


def _thresholds(audit: ShiftAudit) -> str:
    said = str(audit.thresholds).replace(">=", "\N{GREATER-THAN OR EQUAL TO}")
    said = said.replace("<=", "\N{LESS-THAN OR EQUAL TO}")
    return said[:1].upper() + said[1:]


def _cut(lines: list[tuple[str, str]]) -> list[tuple[str, str]]:
    if len(lines) <= MOST_LINES:
        return lines
    return [*lines[:MOST_LINES], ("…", f"{len(lines) - MOST_LINES} more parameters")]


def _flat(entry: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(entry, Mapping):
        found = [line for key, part in entry.items() for line in _flat(part, f"{path} / {key}" if path else str(key))]
        return found or [(path, "none")]
    if isinstance(entry, list | tuple) and any(isinstance(part, Mapping | list | tuple) for part in entry):
        return [line for place, part in enumerate(entry) for line in _flat(part, f"{path} / {place}")]
    return [(path, _plain(entry))]


def _plain(entry: Any) -> str:
    if isinstance(entry, list | tuple):
        return ", ".join(_plain(part) for part in entry)
    if isinstance(entry, np.generic):
        entry = entry.item()
    if isinstance(entry, bool) or entry is None:
        return {True: "yes", False: "no", None: "none"}[entry]
    return f"{entry:.6g}" if isinstance(entry, float) else cell(entry)
