"""Every parameter, and what the words mean."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from shapshift.audit import ShiftAudit
from shapshift.price import Allocation, PayoutAudit
from shapshift.report._format import cell, money, plural
from shapshift.report._payout_words import SIGMA, Draws, basis, condition
from shapshift.report._words import NOISE, noise_in_words, of_numbers
from shapshift.valuation import Valuation

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
    elif allocation is not None and allocation.interval.startswith(SIGMA):
        relative = "(in stds" in allocation.interval
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
    budget = money(allocation.budget_cents, allocation.currency)
    rules = allocation.policy.sentences(allocation.currency)
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
        ("Valuation", {**valuation.parameters, "training fingerprint": valuation.fingerprint}),
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
