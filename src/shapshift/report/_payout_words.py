"""What the reader should conclude about payouts."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapshift.audit._levels import NOISE
from shapshift.exceptions import InputError
from shapshift.price import Allocation, PayoutAudit
from shapshift.report._format import count, listed, money, percent, plural

SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
UP_TO = "\N{LESS-THAN OR EQUAL TO}"
NO_BREAK = "\N{NO-BREAK SPACE}"
# Owners named in a remark; of more, only the number is said.
NAMED = 3


@dataclass(frozen=True)
class Draws:
    """The runs that payout intervals rest on.

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


def draws_of(allocation: Allocation, audit: PayoutAudit | None) -> Draws | None:
    """Find the runs that an allocation's intervals rest on; None where that is not known.

    Parameters
    ----------
    allocation : Allocation
    audit : PayoutAudit or None
        Where the intervals come from, maybe up to some level only: it is checked against the allocation.
    """
    facts = interval_facts(allocation)
    if audit is not None:
        audit.check_same(allocation)
        given: dict[str, Any] = {"up_to": facts.get("up_to"), "bounds": facts.get("bounds", "range")}
        found, attached = audit.bounds(**given), (allocation.low, allocation.high)
        same = all(b is not None and np.array_equal(a, b) for a, b in zip(found, attached, strict=True))
        if not same or audit.condition(**given) != allocation.interval:
            raise InputError(
                "The 'payout_audit' parameter must be the audit whose intervals 'allocation' carries. Pass it to "
                "allocate_budget as 'audit', too."
            )
        facts = audit.about(**given)
    if not {"levels", "draws_per_level"} <= facts.keys():
        return None
    return Draws(len(facts["levels"]), int(facts["draws_per_level"]), facts.get("random_state"))


def interval_facts(allocation: Allocation) -> Mapping[str, Any]:
    """Facts about the interval of an allocation, see ``PayoutAudit.about``; empty where there are none."""
    facts = allocation.parameters.get("interval")
    return facts if isinstance(facts, Mapping) else {}


def payouts(names: Sequence[str], allocation: Allocation, draws: Draws | None = None) -> str:
    """Who is paid what, and how sure that is."""
    paid, low, high = allocation.cents, allocation.low, allocation.high
    if not names:
        return "There is nobody to pay."
    first, total = int(np.argmax(paid)), int(paid.sum())
    if total:
        share = f"{percent(paid[first] / total)} of the {money(allocation, total)} paid out"
        said = f"{names[first]} is paid most: {money(allocation, paid[first])}, {share}."
    else:
        said = "Nobody is paid anything."
    for amount, what in (
        (allocation.reserve_cents, "kept back as reserve"),
        (allocation.unallocated_cents, "not paid to anyone"),
    ):
        said += (
            f" {money(allocation, amount)} {'is' if amount == 10**allocation.digits else 'are'} {what}."
            if amount
            else ""
        )
    nothing = int((paid == 0).sum())
    if nothing and total:
        said += f" {count(nothing)} of {plural(len(names), 'owner')} {'is' if nothing == 1 else 'are'} paid nothing."
    said += _paid_for_harm(names, allocation)
    if low is None or high is None:
        return said + " How far another validation set would have paid differently was not measured."
    moved, most = largest_move(allocation)
    if not moved:
        return f"{said} Under {condition(allocation)}, no payout moves ({basis(allocation, draws)})."
    now, least, largest = (money(allocation, cents[most], label=False) for cents in (paid, low, high))
    said += (
        f" Under {condition(allocation)}, payouts move by up to {money(allocation, moved)} ({names[most]} is paid "
        f"{now}, and between {least} and {largest} in the draws). These bounds are {basis(allocation, draws)}; another "
        "kind of change may move payouts further."
    )
    pairs, unsettled = len(names) - 1, swaps(allocation)
    if pairs and unsettled:
        said += (
            f" Ranked by payout, {count(unsettled)} of {plural(pairs, 'pair')} of neighbours "
            f"{'has' if unsettled == 1 else 'have'} overlapping intervals: which of the two earns more depends on the "
            "draw."
        )
    elif pairs:
        said += " Ranked by payout, no interval overlaps the next owner's: none of these draws changes who earns more."
    return said


def effect(allocation: Allocation | None) -> str:
    """Say for the verdict what becomes of payouts; empty where that was not measured."""
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
    """How far a payout moves at most from what is paid, in cents, and whose it is."""
    if allocation.low is None or allocation.high is None:
        return 0, 0
    moves = np.maximum(abs(allocation.high - allocation.cents), abs(allocation.cents - allocation.low))
    most = int(np.argmax(moves))
    return int(moves[most]), most


def swaps(allocation: Allocation) -> int:
    """How many pairs of neighbours in the order of payouts could change places within their intervals."""
    if allocation.low is None or allocation.high is None:
        return 0
    order = np.argsort(-allocation.cents, kind="stable")
    return sum(bool(allocation.high[b] > allocation.low[a]) for a, b in itertools.pairwise(order))


def condition(allocation: Allocation) -> str:
    """Say what was varied, such as noise up to some sigma."""
    facts = interval_facts(allocation)
    if facts.get("axis") != NOISE:
        return allocation.interval
    unit = " (in stds of each feature)" if facts["relative"] else ""
    runs = " (9 runs of 10)" if facts["bounds"] == "quantiles" else ""
    return f"random noise of {SIGMA}{NO_BREAK}{UP_TO}{NO_BREAK}{facts['reach'][1]:g}{unit}{runs}"


def basis(allocation: Allocation, draws: Draws | None) -> str:
    """Say what the bounds of payouts are, with the number of runs where it is known."""
    if draws is None:
        number = "the random draws of the payout audit"
    elif draws.total == 1:
        number = "one random draw"
    else:
        number = f"{count(draws.total)} random draws"
        number += f" ({count(draws.repeats)} at each of {count(draws.levels)} levels)" if draws.levels > 1 else ""
    quantiles = interval_facts(allocation).get("bounds") == "quantiles"
    ends = "the 5% and 95% quantiles" if quantiles else "the smallest and largest"
    return f"{ends} over {number} of this one kind of change"


def _paid_for_harm(names: Sequence[str], allocation: Allocation) -> str:
    if allocation.basis != "rows" or allocation.policy.negatives != "clip":
        return ""
    harmful = np.flatnonzero((allocation.values < 0) & (allocation.cents > 0)).tolist()
    if not harmful:
        return ""
    who = listed([names[i] for i in harmful]) if len(harmful) <= NAMED else plural(len(harmful), "owner")
    one = len(harmful) == 1
    return (
        f" {who} {'is' if one else 'are'} paid although {'its' if one else 'their'} rows taken together have a "
        "negative value: this rule counts only the rows with a positive one."
    )
