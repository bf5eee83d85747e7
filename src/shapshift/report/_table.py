"""The most and the least valuable rows, with their features."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.audit import ShiftAudit
from shapshift.exceptions import InputError
from shapshift.report._format import Unit, cell, count, figure
from shapshift.report._words import of_numbers
from shapshift.valuation import Valuation

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Features:
    """Named columns over any container of rows.

    Attributes
    ----------
    names : tuple of str
    n_rows : int
    source : frame, ndarray or sparse matrix
    """

    names: tuple[str, ...]
    n_rows: int
    source: Any

    def column(self, place: int, rows: Ints) -> list[Any]:
        """Entries of one column in some rows."""
        if isinstance(self.source, nw.DataFrame):
            return list(self.source[:, place][rows.tolist()].to_list())
        if sparse.issparse(self.source):
            return list(self.source[rows][:, [place]].toarray().ravel().tolist())
        return list(self.source[rows, place].tolist())

    def numeric(self, rows: Ints) -> Any:
        """Numeric columns of some rows, as a dense or sparse matrix; None where there are fewer than two."""
        if sparse.issparse(self.source):
            return self.source[rows] if len(self.names) > 1 else None
        places = self.numeric_places()
        if len(places) < 2:
            return None
        if isinstance(self.source, nw.DataFrame):
            # Not column by column: narwhals lists all columns for each.
            taken = list(self.source[rows.tolist()].iter_columns())
            columns = [taken[place].to_list() for place in places]
            return np.array([[np.nan if x is None else float(x) for x in column] for column in columns]).T
        return np.asarray(self.source[rows], dtype=np.float64)

    def numeric_places(self) -> list[int]:
        """Places of the columns that hold numbers."""
        if isinstance(self.source, nw.DataFrame):
            return [i for i, kind in enumerate(self.source.schema.values()) if kind.is_numeric()]
        return list(range(len(self.names))) if self.source.dtype.kind in "biuf" else []


def read_features(X: Any, parameter: str, n_rows: int, of: str, names: Any = None) -> Features:
    """Check a table of features.

    Parameters
    ----------
    X : table
        Anything a model was fitted on, or the table it was made from: texts are welcome here.
    parameter : str
        How messages call it.
    n_rows : int
        How many rows it must have.
    of : str
        What is counted, for the message.
    names : sequence of str, optional
        Names of the columns; by default the table's own, or numbers.
    """
    source = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(source, nw.DataFrame):
        own: list[Any] = list(source.columns)
    else:
        source = X.tocsr() if sparse.issparse(X) else _array(X)
        if source.ndim != 2:
            raise InputError(f"{parameter!r} must be a table of rows and columns. Got shape {source.shape}.")
        own = [f"feature {i}" for i in range(source.shape[1])]
    if source.shape[0] != n_rows:
        raise InputError(
            f"{parameter!r} must have the {n_rows} rows of {of}, in the same order. Got {source.shape[0]} rows."
        )
    if names is not None:
        given = list(names)
        if len(given) != len(own):
            raise InputError(
                f"'feature_names' must name the {len(own)} columns of {parameter!r}. Got {len(given)} names."
            )
        own = given
    return Features(tuple(str(name) for name in own), n_rows, source)


def _array(X: Any) -> npt.NDArray[Any]:
    if type(X).__module__.split(".")[0] == "torch":
        X = X.detach().cpu().numpy()
    return np.asarray(X)


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
