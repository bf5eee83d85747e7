"""The most and the least valuable rows, with their features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.audit import ShiftAudit
from shapshift.report._features import Features
from shapshift.report._format import Unit, cell, count, figure
from shapshift.report._words import of_numbers
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]

# Columns of features shown: a page with more cannot be read.
COLUMNS = 30


@dataclass(frozen=True)
class Column:
    """A column of the table: its heading, what the heading means, and whether it sorts as numbers."""

    name: str
    hint: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class RowTable:
    """Rows of the table, from the most to the least valuable.

    Attributes
    ----------
    columns : sequence of Column
    rows : sequence of (end, cells)
        ``end`` is "most" or "least": of which end of the order the row is.
    notes : sequence of str
    """

    columns: Sequence[Column]
    rows: Sequence[tuple[str, Sequence[str]]]
    notes: Sequence[str]


def row_table(
    valuation: Valuation,
    unit: Unit,
    size: int,
    *,
    audit: ShiftAudit | None,
    corrected: Valuation | None,
    features: Features | None,
    labels: Any,
    owners: Any,
) -> RowTable:
    """Tabulate ``size`` rows from each end.

    Parameters
    ----------
    valuation : Valuation
    unit : Unit
    size : int
    audit : ShiftAudit or None
        For the stability of each row.
    corrected : Valuation or None
    features : Features or None
    labels : ndarray of shape (n_train,) or None
    owners : ndarray of shape (n_train,) or None
        Names as they are to be shown.
    """
    n = valuation.n_train
    order = np.argsort(-valuation.values, kind="stable")
    half = min(size, -(-n // 2))
    most, least = order[:half], order[max(half, n - size) :]
    chosen = np.concatenate([most, least])
    rank = np.concatenate([np.arange(most.size), np.arange(n - least.size, n)]) + 1
    columns = [Column("rank", "1 is the most valuable row"), Column("row", "its id", _numeric(valuation.ids))]
    cells: list[list[str]] = [[str(r) for r in rank], [cell(entry) for entry in valuation.ids[chosen]]]

    def add(column: Column, entries: list[str]) -> None:
        columns.append(column)
        cells.append(entries)

    add(
        Column(
            unit.axis("value"),
            f"what the row adds to {'predicting' if of_numbers(valuation) else 'classifying'} the validation points",
        ),
        _fixed(valuation, chosen, unit),
    )
    if corrected is not None:
        add(Column(unit.axis("corrected"), "value after the correction"), _fixed(corrected, chosen, unit))
    if audit is not None:
        hint = "1: keeps its place and its sign in every run of the audit; 0: neither says anything"
        add(Column("stability", hint), [f"{x:.2f}" for x in audit.rows["stability"][chosen]])
        hint = "share of the runs in which its sign is not that of the clean run, in %"
        add(Column("sign flips (%)", hint), [f"{100 * x:.0f}" for x in audit.rows["flip_probability"][chosen]])
    if owners is not None:
        add(Column("owner", numeric=False), owners[chosen].tolist())
    if labels is not None:
        add(Column("label", numeric=_numeric(labels)), [cell(entry) for entry in labels[chosen]])
    notes = []
    if features is not None:
        numeric = set(features.numeric_places())
        for place, name in enumerate(features.names[:COLUMNS]):
            column = Column(cell(name), numeric=place in numeric)
            entries = features.column(place, chosen)
            add(column, [_shown(entry) if column.numeric else cell(entry) for entry in entries])
        if len(features.names) > COLUMNS:
            notes.append(f"The table shows the first {COLUMNS} of {count(len(features.names))} features.")
    if n > chosen.size:
        notes.append(
            f"The table holds the {count(most.size)} most and the {count(least.size)} least valuable of {count(n)} "
            "rows."
        )
    ends = ["most"] * most.size + ["least"] * least.size
    return RowTable(columns, list(zip(ends, zip(*cells, strict=True), strict=True)), notes)


def _fixed(valuation: Valuation, chosen: Any, unit: Unit) -> list[str]:
    # A value too small for three decimals keeps two digits; only nothing at all is written as 0.
    scaled = unit.scale(valuation.values[chosen]).tolist()
    return ["0" if x == 0 else f"{x:.3f}" if abs(x) >= 0.0005 else f"{x:.2g}" for x in scaled]


def _shown(entry: Any) -> str:
    return figure(entry) if isinstance(entry, int | float) and not isinstance(entry, bool) else cell(entry)


def _numeric(entries: npt.NDArray[Any]) -> bool:
    return entries.dtype.kind in "iuf"
