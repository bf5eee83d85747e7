"""Who is paid what, and within which bounds."""

from typing import Any

import numpy as np

from shapshift.price import Allocation
from shapshift.report._format import Unit, count, distinct, money, rounded
from shapshift.report._parts import Chart, DataTable, Section
from shapshift.report._payout_words import Draws, basis, condition, payouts

# Owners drawn and listed, those paid most; the rest is summed up in words.
DRAWN_OWNERS = 25
LISTED_OWNERS = 1000


def payout_section(allocation: Allocation, unit: Unit, draws: Draws | None) -> Section:
    """Payouts per owner with their intervals, and what the correction changes.

    Parameters
    ----------
    allocation : Allocation
    unit : Unit
    draws : Draws or None
        The runs that the intervals rest on, where they are known.
    """
    order = np.argsort(-allocation.cents, kind="stable")
    names = distinct(allocation.owners)
    drawn = order[:DRAWN_OWNERS]
    low, high, corrected = allocation.low, allocation.high, allocation.corrected
    data: dict[str, Any] = {
        "names": [names[i] for i in drawn],
        "values": _units(allocation.cents[drawn]),
        "low": None if low is None else _units(low[drawn]),
        "high": None if high is None else _units(high[drawn]),
        "corrected": None if corrected is None else _units(corrected[drawn]),
        "xName": f"Payout ({allocation.currency})" if allocation.currency else "Payout",
        "intervalName": f"range under {condition(allocation)}" if allocation.interval else "range",
    }
    words = payouts(names, allocation, draws)
    chart = Chart(
        id="payouts",
        title="Payout per owner",
        kind="bars",
        data=data,
        table=_table(allocation, order[:LISTED_OWNERS], names, unit),
        caption=_reading(allocation, draws),
        summary=words,
    )
    notes = []
    if order.size > DRAWN_OWNERS:
        rest = int(allocation.cents[order[DRAWN_OWNERS:]].sum())
        notes.append(
            f"The chart shows the {DRAWN_OWNERS} owners that are paid most; the other "
            f"{count(order.size - DRAWN_OWNERS)} are paid {money(rest, allocation.currency)} together."
        )
    if said := allocation.sampling_note():
        notes.append(said)
    if order.size > LISTED_OWNERS:
        notes.append(f"The table lists the first {count(LISTED_OWNERS)} of {count(order.size)} owners.")
    return Section("payouts", "Who is paid what", "Payouts", words, [chart], notes)


def _reading(allocation: Allocation, draws: Draws | None) -> str:
    said = []
    if allocation.low is not None:
        said.append(f"Whiskers: payouts under {condition(allocation)}, {basis(allocation, draws)}.")
    if allocation.corrected is not None:
        said.append("Diamonds mark the payout from the corrected values.")
    return " ".join(said) or "Each bar is one owner."


def _table(allocation: Allocation, order: Any, names: list[str], unit: Unit) -> DataTable:
    columns = ["owner", "rows", "total value", "payout"]
    columns += ["lowest", "highest"] if allocation.low is not None else []
    # What correction changes is the payout from the noisy values, where those are not the ones that are paid.
    before = allocation.cents if allocation.uncorrected is None else allocation.uncorrected
    if allocation.corrected is not None:
        columns += [] if allocation.uncorrected is None else ["noisy"]
        columns += ["after correction", "change"]
    body = []
    for i in order:
        entry = [names[i], count(allocation.row_counts[i]), unit.show(float(allocation.values[i]))]
        entry.append(money(allocation.cents[i]))
        if allocation.low is not None and allocation.high is not None:
            entry += [money(allocation.low[i]), money(allocation.high[i])]
        if allocation.corrected is not None:
            entry += [] if allocation.uncorrected is None else [money(before[i])]
            entry += [money(allocation.corrected[i]), money(allocation.corrected[i] - before[i])]
        body.append(entry)
    return DataTable(columns, body)


def _units(cents: Any) -> list[float | None]:
    return rounded(np.asarray(cents) / 100, 12)
