"""The most and the least valuable rows, with their features."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._facts import explanation_facts
from shapshift.checks.inputs import tensor_to_numpy
from shapshift.exceptions import InputError
from shapshift.knn.explain import Explanation
from shapshift.report._format import MINUS, Unit, cell, count, figure, number, plural
from shapshift.report._words import Results, of_numbers
from shapshift.valuation import Valuation

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Features:
    """Named columns over any container of rows.

    Attributes
    ----------
    names : tuple of str
    source : frame, ndarray or sparse matrix
    """

    names: tuple[str, ...]
    source: Any

    def columns(self, rows: Ints, places: Sequence[int]) -> list[list[Any]]:
        """Entries of some columns in some rows, column by column."""
        if isinstance(self.source, nw.DataFrame):
            # Not column by column: narwhals lists all columns for each.
            taken = list(self.source[rows.tolist()].iter_columns())
            return [taken[place].to_list() for place in places]
        part = self.source[rows][:, list(places)]
        columns: list[list[Any]] = (part.toarray() if sparse.issparse(part) else part).T.tolist()
        return columns

    def numeric(self, rows: Ints) -> Any:
        """Numeric columns of some rows, as a dense or sparse matrix; None with fewer than two."""
        places = self.numeric_places()
        if len(places) < 2:
            return None
        if isinstance(self.source, nw.DataFrame):
            return np.array(self.columns(rows, places), dtype=np.float64).T
        return self.source[rows] if sparse.issparse(self.source) else np.asarray(self.source[rows], dtype=np.float64)

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
        Rows that a model was fitted on, or the table they were made from, which may contain texts.
    parameter : str
        Its name in messages.
    n_rows : int
        Required number of rows.
    of : str
        Owner of the rows, for the message.
    names : sequence of str, optional
        Names of the columns; by default the table's own, or numbers.
    """
    source = nw.from_native(X, eager_only=True, pass_through=True)
    if isinstance(source, nw.DataFrame):
        own: list[Any] = list(source.columns)
    else:
        source = X.tocsr() if sparse.issparse(X) else np.asarray(tensor_to_numpy(X))
        if source.ndim != 2:
            raise InputError(f"{parameter!r} must be a table of rows and columns. Got shape {source.shape}.")
        own = [f"feature {i}" for i in range(source.shape[1])]
    if source.shape[0] != n_rows:
        raise InputError(
            f"{parameter!r} must have the {n_rows} rows of {of}, in the same order. Got {source.shape[0]} rows."
        )
    if names is not None:
        width, own = len(own), list(names)
        if len(own) != width:
            raise InputError(f"'feature_names' must name the {width} columns of {parameter!r}. Got {len(own)} names.")
    return Features(tuple(str(name) for name in own), source)


# Number of rows from each end in the table.
TABLE_ROWS = 200
# Number of feature columns shown: more would be unreadable.
COLUMNS = 30


@dataclass(frozen=True)
class Column:
    """A column of the table: its heading, its cells, the meaning of the heading, and whether it sorts as numbers."""

    name: str
    cells: Sequence[str]
    hint: str = ""
    numeric: bool = True


@dataclass(frozen=True)
class RowTable:
    """Rows of the table, from the most to the least valuable.

    Attributes
    ----------
    columns : sequence of Column
    ends : sequence of str
        "most" or "least": the end of the order that each row belongs to.
    positions : sequence of int
        Position of each row in the training set.
    notes : sequence of str
    """

    columns: Sequence[Column]
    ends: Sequence[str]
    positions: Sequence[int]
    notes: Sequence[str]

    @property
    def rows(self) -> Iterable[tuple[str, int, tuple[str, ...]]]:
        """End, position and cells of each row."""
        cells = zip(*(column.cells for column in self.columns), strict=True)
        return zip(self.ends, self.positions, cells, strict=True)


def listed_rows(valuation: Valuation, size: int) -> tuple[Ints, Ints]:
    """Positions of the ``size`` most and the ``size`` least valuable rows, none of them in both."""
    n, order = valuation.n_train, np.argsort(-valuation.values, kind="stable")
    half = min(size, -(-n // 2))
    return order[:half], order[max(half, n - size) :]


def row_table(results: Results, size: int, features: Features | None, labels: Any, owners: Any) -> RowTable:
    """Tabulate ``size`` rows from each end.

    Parameters
    ----------
    results : Results
    size : int
    features : Features or None
    labels : ndarray of shape (n_train,) or None
    owners : ndarray of shape (n_train,) or None
        Names to show.
    """
    valuation, audit, unit = results.valuation, results.audit, results.unit
    n = valuation.n_train
    most, least = listed_rows(valuation, size)
    chosen = np.concatenate([most, least])
    rank = np.concatenate([np.arange(most.size), np.arange(n - least.size, n)]) + 1
    hint = f"what the row adds to {'predicting' if of_numbers(valuation) else 'classifying'} the validation points"
    columns = [
        Column("rank", [str(r) for r in rank], "1 is the most valuable row"),
        Column("row", [cell(entry) for entry in valuation.ids[chosen]], "its id", _numeric(valuation.ids)),
        Column(unit.axis("value"), _fixed(valuation.values[chosen], unit), hint),
    ]
    if valuation.standard_error is not None:
        for name, bound in zip(("low", "high"), valuation.interval(), strict=True):
            hint = "end of its 95% interval: plausible values on all validation points of this kind"
            columns.append(Column(unit.axis(name), _fixed(bound[chosen], unit), hint))
    if results.corrected is not None:
        cells = _fixed(results.corrected.values[chosen], unit)
        columns.append(Column(unit.axis("corrected"), cells, "value after the correction"))
    if audit is not None:
        hint = "1: keeps its rank and its sign in every run of the audit; 0: neither is reliable"
        columns.append(Column("stability", [f"{x:.2f}" for x in audit.rows["stability"][chosen]], hint))
        hint = "share of the runs in which its sign differs from the clean run, in %"
        cells = [f"{100 * x:.0f}" for x in audit.rows["flip_probability"][chosen]]
        columns.append(Column("sign flips (%)", cells, hint))
    if owners is not None:
        columns.append(Column("owner", owners[chosen].tolist(), numeric=False))
    if labels is not None:
        columns.append(Column("label", [cell(entry) for entry in labels[chosen]], numeric=_numeric(labels)))
    notes = []
    if features is not None:
        numeric, places = set(features.numeric_places()), range(len(features.names))[:COLUMNS]
        for place, entries in zip(places, features.columns(chosen, places), strict=True):
            show = _shown if place in numeric else cell
            name = cell(features.names[place])
            columns.append(Column(name, [show(entry) for entry in entries], numeric=place in numeric))
        if len(features.names) > COLUMNS:
            notes.append(f"The table shows the first {COLUMNS} of {count(len(features.names))} features.")
    if n > chosen.size:
        notes.append(
            f"The table holds the {count(most.size)} most and the {count(least.size)} least valuable of {count(n)} "
            "rows."
        )
    return RowTable(columns, ["most"] * most.size + ["least"] * least.size, chosen.tolist(), notes)


def explained_rows(explanation: Explanation | None, table: RowTable) -> dict[str, Any]:
    """Return the explanations of rows of the table, as texts, by position."""
    if explanation is None:
        return {}
    listed = set(table.positions)
    return {
        str(position): {
            "sentence": row["sentence"],
            "sums": f"Value {number(row['value'])}: +{number(row['gain'])} from {count(row['positive'])} and "
            f"{MINUS}{number(-row['loss'])} from {count(row['negative'])} of {plural(explanation.n_val, 'point')}.",
            "points": [
                [
                    cell(one["id"]),
                    cell(one["label"]),
                    number(one["value"]),
                    number(one["distance"]),
                    figure(one["rank"]),
                ]
                for one in row["points"]
            ],
            "neighbors": [[cell(one["id"]), cell(one["label"]), number(one["distance"])] for one in row["neighbors"]],
        }
        for position, row in zip(explanation.positions.tolist(), explanation_facts(explanation), strict=True)
        if position in listed
    }


def _fixed(values: Floats, unit: Unit) -> list[str]:
    # A value too small for three decimals keeps two digits; only 0 is written as 0.
    scaled = unit.scale(values).tolist()
    return ["" if np.isnan(x) else "0" if x == 0 else f"{x:.3f}" if abs(x) >= 0.0005 else f"{x:.2g}" for x in scaled]


def _shown(entry: Any) -> str:
    return figure(entry) if isinstance(entry, int | float) and not isinstance(entry, bool) else cell(entry)


def _numeric(entries: npt.NDArray[Any]) -> bool:
    return entries.dtype.kind in "iuf"
