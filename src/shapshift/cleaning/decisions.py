"""Decisions: a list of rows to drop, relabel or weight, which can be stored and replayed."""

import csv
import hashlib
import io
import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, Self

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.names import quoted, some
from shapshift.exceptions import InputError
from shapshift.io.files import write_text
from shapshift.io.results import to_table
from shapshift.io.shown import Shown
from shapshift.perturb.containers import count_rows, like_labels, take_rows

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

TASKS = ("class", "number")
ACTIONS = ("keep", "drop", "relabel", "weight")
COLUMNS = ("id", "action", "label", "weight", "probability", "reason", "row")
#: The same as attributes, and their names in messages.
PARTS = ("ids", "actions", "labels", "weights", "probabilities", "reasons", "rows", "places")
#: Largest weight: sums of weights stay finite.
MOST_WEIGHT = 1e9
_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,3})?")
_HASH = re.compile("h[0-9a-f]{16}")  # without the h, a spreadsheet would read digits or 12e34 as a number


class Plan(NamedTuple):
    """Decisions resolved for the rows of one table.

    Attributes
    ----------
    actions : ndarray of str
        One of :data:`ACTIONS` for each row; "keep" for rows without a decision.
    labels : list
        Labels of all rows, including new ones.
    weights : ndarray
        1 for rows without a weight of their own.
    """

    actions: npt.NDArray[Any]
    labels: list[Any]
    weights: Floats

    @property
    def kept(self) -> npt.NDArray[np.int64]:
        """Positions of the rows that are not dropped."""
        return np.flatnonzero(self.actions != "drop")


@dataclass(frozen=True, eq=False, repr=False)
class Decisions(Shown):
    """A list of decisions about rows of a table.

    Rows without a decision are kept as they are. If there are several decisions about one row, the last one counts, so
    an append-only log can be applied directly; a later "keep" cancels an earlier decision.

    Attributes
    ----------
    ids : tuple
        Of the rows.
    actions : tuple of str
        "keep", "drop", "relabel" or "weight".
    labels : tuple
        New label for "relabel"; ignored for other actions, for instance None.
    weights : tuple of float
        Weight from 0 to 1e9 for "weight"; ignored for other actions, for instance NaN.
    probabilities : tuple of float
        Estimated probability that the label is wrong; NaN without an estimate.
    reasons : tuple of str
    rows : tuple of str
        Hash of each row's features and label at the time of the decision. A decision is refused if the row has changed
        since. An empty hash is not compared.
    places : tuple of str
        Name of each decision in messages, such as its line in a file.
    task : {"class", "number"}, optional
        Kind of labels, if known, for instance from suspects. A CSV file does not store it.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import Decisions
    >>> X, y = np.array([[0.0], [0.1], [0.9], [1.0]]), np.array(["a", "b", "b", "b"])
    >>> decisions = Decisions.of(X, y, ids=[1, 3], actions=["relabel", "weight"], labels=["a", None], weights=[1, 0.5])
    >>> X_clean, y_clean, sample_weight = decisions.apply(X, y)
    >>> y_clean.tolist(), sample_weight.tolist()
    (['a', 'a', 'b', 'b'], [1.0, 1.0, 1.0, 0.5])
    """

    ids: tuple[Any, ...]
    actions: tuple[str, ...]
    labels: tuple[Any, ...]
    weights: tuple[float, ...]
    probabilities: tuple[float, ...]
    reasons: tuple[str, ...]
    rows: tuple[str, ...]
    places: tuple[str, ...] = ()
    task: str | None = None

    def __post_init__(self) -> None:
        names = PARTS[:-1]
        for name in names:
            object.__setattr__(self, name, tuple(_plain(entry) for entry in getattr(self, name)))
        if not self.places:
            object.__setattr__(self, "places", tuple(f"Decision {k}" for k in range(len(self.ids))))
        sizes = {name: len(getattr(self, name)) for name in PARTS}
        if len(set(sizes.values())) > 1:
            raise InputError(f"The parts of Decisions must have one entry per decision. Got the lengths {sizes}.")
        if self.task is not None:
            check.check_choice("Decisions", "task", self.task, TASKS)
        for k in range(len(self.ids)):
            self._check(k)

    def _check(self, k: int) -> None:
        """Refuse decisions that are invalid for any table."""
        if _text(self.ids[k]) == "":
            raise self._wrong(k, "id", "name a row", self.ids[k])
        if self.actions[k] not in ACTIONS:
            raise self._wrong(k, "action", f"be one of {', '.join(map(repr, ACTIONS))}", self.actions[k])
        if self.actions[k] == "relabel" and _text(self.labels[k]) == "":
            raise self._wrong(k, "label", "be the new label", self.labels[k])
        weight, probability = self.weights[k], self.probabilities[k]
        if self.actions[k] == "weight" and not (_is_number(weight) and 0 <= weight <= MOST_WEIGHT):
            raise self._wrong(k, "weight", f"be a number from 0 to {MOST_WEIGHT:g}", weight)
        if not _is_number(probability) or not (math.isnan(probability) or 0 <= probability <= 1):
            raise self._wrong(k, "probability", "be a number from 0 to 1, or empty", probability)
        if self.rows[k] and not (isinstance(self.rows[k], str) and _HASH.fullmatch(self.rows[k])):
            raise self._wrong(k, "row", "be 'h' and the 16 hexadecimal digits that stand for its content", self.rows[k])

    def _wrong(self, k: int, column: str, expected: str, got: Any) -> InputError:
        shown = quoted(got) if len(quoted(got)) <= 60 else f"{quoted(got)[:60]}..."
        return InputError(f"{self.places[k]}, column {column!r}, must {expected}. Got {shown} instead.")

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        counts = Counter(self.actions)
        return f"Decisions({', '.join(f'{action}={counts[action]}' for action in ACTIONS if counts[action])})"

    @classmethod
    def of(
        cls,
        X: Any,
        y: Any,
        *,
        ids: Sequence[Any],
        actions: Sequence[str],
        labels: Sequence[Any] | None = None,
        weights: Sequence[float] | None = None,
        probabilities: Sequence[float] | None = None,
        reasons: Sequence[str] | None = None,
        table_ids: Any = None,
        task: str | None = None,
    ) -> Self:
        """Make decisions about rows of a table, and record their current content.

        Parameters
        ----------
        X, y : table of shape (n_rows, ...), array-like of shape (n_rows,)
        ids : sequence
            Ids of the rows with decisions.
        actions, labels, weights, probabilities, reasons : sequence, optional
            One entry for each of them; see the attributes.
        table_ids : array-like of shape (n_rows,), optional
            Ids of all rows; by default the index of a pandas table, else row numbers from 0.
        task : {"class", "number"}, optional
            Kind of ``y``; by default as in :func:`shapshift.find_suspects`.
        """
        n = len(ids)
        unknown = [math.nan] * n
        decisions = cls(
            ids=tuple(ids),
            actions=tuple(actions),
            labels=tuple(labels if labels is not None else [None] * n),
            weights=tuple(weights if weights is not None else unknown),
            probabilities=tuple(probabilities if probabilities is not None else unknown),
            reasons=tuple(reasons if reasons is not None else [""] * n),
            rows=("",) * n,
            task=task,
        )
        known, given = _table(X, y, table_ids)
        rows = decisions._rows_of(range(n), known)
        object.__setattr__(decisions, "rows", tuple(row_hashes(X, given, rows)))
        return decisions

    @classmethod
    def from_suspects(cls, suspects: Any, X: Any, y: Any, *, action: str = "drop") -> Self:
        """Make decisions about the flagged rows.

        Parameters
        ----------
        suspects : Suspects
            Result of :func:`shapshift.find_suspects`.
        X, y : table, array-like
            The rows that were searched.
        action : {"drop", "relabel", "weight"}, default="drop"
            Drop them, give them the suggested label, or weight them by the probability that their label is right.
        """
        check.check_choice("Decisions.from_suspects", "action", action, ACTIONS[1:])
        if suspects.parameters.get("task") == "set":
            raise InputError(
                "The 'suspects' parameter of Decisions.from_suspects must be about one label per row. These are about "
                "label sets: act on them with suspects.flagged_frame()."
            )
        at = np.flatnonzero(np.asarray(suspects.flagged))
        ids = np.asarray(suspects.ids)
        if count_rows(X) != ids.size:
            raise InputError(
                f"The 'X' parameter of Decisions.from_suspects must hold the {ids.size} rows in which suspects were "
                f"found. Got {count_rows(X)} rows."
            )
        probability = np.asarray(suspects.probability, dtype=np.float64)[at]
        suggested, task = np.asarray(suspects.suggested)[at], suspects.parameters.get("task", "class")
        if task == "number":
            given = _labels.check_labels(y, "y", ids.size, "X")
            if (given % 1 == 0).all():  # whole numbers stay whole
                suggested = np.rint(suggested).astype(given.dtype)
        return cls.of(
            X,
            y,
            ids=ids[at].tolist(),
            actions=[action] * at.size,
            labels=suggested.tolist() if action == "relabel" else None,
            weights=(1 - probability).tolist() if action == "weight" else None,
            probabilities=probability.tolist(),
            reasons=[str(reason) for reason in np.asarray(suspects.reason)[at].tolist()],
            table_ids=ids,
            task=task,
        )

    def effective(self) -> Self:
        """Return the effective decisions: the last one about each row."""
        last = self._last()
        parts: dict[str, Any] = {name: tuple(getattr(self, name)[k] for k in last) for name in PARTS}
        return replace(self, **parts)

    def _last(self) -> list[int]:
        """Positions of the effective decisions."""
        return list({_text(one): k for k, one in enumerate(self.ids)}.values())

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate: id, action, label, weight, probability, reason, row.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.
        """
        columns: dict[str, Any] = dict(zip(COLUMNS, self._columns(), strict=True))
        for name, column in columns.items():
            numbers = name in ("weight", "probability")
            columns[name] = np.array(column, dtype=np.float64) if numbers else object_array(list(column))
        return to_table(columns, None, kind)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write to a CSV file that :meth:`read_csv` reads.

        Text that a spreadsheet would run as a formula gets a leading apostrophe, which :meth:`read_csv` removes.

        Parameters
        ----------
        path : path-like
        """
        write_text(path, self.csv_text())

    def csv_text(self) -> str:
        """Return what :meth:`to_csv` writes."""
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_ALL)
        writer.writerow(COLUMNS)
        for entries in zip(*self._columns(), strict=True):
            writer.writerow([_escaped(_text(entry)) for entry in entries])
        return "\ufeff" + out.getvalue()

    def _columns(self) -> tuple[tuple[Any, ...], ...]:
        return (self.ids, self.actions, self.labels, self.weights, self.probabilities, self.reasons, self.rows)

    @classmethod
    def read_csv(cls, path: str | os.PathLike[str]) -> Self:
        """Read a list of decisions.

        Parameters
        ----------
        path : path-like
            A CSV file with the columns id, action, label, weight, probability, reason and row; further columns are
            ignored, and cells may be empty where an action does not need them.

        Returns
        -------
        Decisions
            With ids and labels as they are written.

        Raises
        ------
        ValueError
            Naming the line and the invalid column.
        """
        from shapshift.tables.files import Source, find_parts
        from shapshift.tables.text import csv_records

        parts = find_parts(path)
        if parts.root is not None:
            raise InputError(f"Decisions are read from one file. {parts.name} names a folder or several.")
        source = Source(parts.files[0])
        records, dialect = csv_records(source)
        found: dict[str, list[Any]] = {name: [] for name in (*COLUMNS, "place")}
        places: list[int] = []
        for line, record in records:
            if not places:
                places = _column_places(record, source.name, line)
                width = len(record)
                continue
            if not any(cell.strip() for cell in record):  # such as the blank lines of a spreadsheet
                continue
            if len(record) != width:
                raise InputError(
                    f"Line {line} of {source.name} has {len(record)} fields, but the header has {width}. Correct it."
                )
            where = f"Line {line} of {source.name}"
            for name, place in zip(COLUMNS, places, strict=True):
                text = _unescaped(record[place])
                if name in ("weight", "probability"):
                    found[name].append(_number(text, dialect.decimal))
                else:
                    found[name].append(text.strip().lower() if name in ("action", "row") else text)
            found["place"].append(where)
        columns = (tuple(found[name]) for name in (*COLUMNS, "place"))
        made: dict[str, Any] = dict(zip(PARTS, columns, strict=True))
        return cls(**made)

    def apply(
        self,
        X: Any,
        y: Any,
        *,
        ids: Any = None,
        task: str | None = None,
        lose_classes: bool = False,
        new_classes: bool = False,
    ) -> tuple[Any, Any, Floats]:
        """Apply all decisions to a table, or none if one of them is invalid.

        Parameters
        ----------
        X : table of shape (n_rows, ...)
            pandas, polars, pyarrow, NumPy, sparse, or a list.
        y : array-like of shape (n_rows,)
            Labels, or numbers to predict.
        ids : array-like of shape (n_rows,), optional
            By default the index of a pandas table, else row numbers from 0. They are compared as text, since a CSV file
            stores only text.
        task : {"class", "number"}, optional
            Kind of ``y``; by default that of the decisions, else numbers to predict if they have fractions, or if there
            are more than 30 different ones and these are more than 5% of the rows.
        lose_classes : bool, default=False
            Whether a class may lose its last row.
        new_classes : bool, default=False
            Whether rows may get a class that the table does not have.

        Returns
        -------
        X, y : as given
            Without the dropped rows and with the new labels, in containers of the same kind and type.
        sample_weight : ndarray
            One for each row that is left; 1 for rows without a weight of their own.
        """
        plan = self.plan(X, y, ids=ids, task=task, lose_classes=lose_classes, new_classes=new_classes)
        labels = _labels.check_labels(y, "y", count_rows(X), "X")
        new = y if plan.labels == labels.tolist() else like_labels(plan.labels, labels, y, "y")
        kept = plan.kept
        return take_rows(X, kept), take_rows(new, kept), plan.weights[kept]

    def plan(
        self,
        X: Any,
        y: Any,
        *,
        ids: Any = None,
        task: str | None = None,
        lose_classes: bool = False,
        new_classes: bool = False,
        lose_rows: bool = False,
    ) -> Plan:
        """Return the effect of :meth:`apply` on each row; the parameters are the same.

        With ``lose_rows`` all rows may be dropped, too.
        """
        known, labels = _table(X, y, ids)
        if task is not None:
            check.check_choice("Decisions.apply", "task", task, TASKS)
        check.check_flag("Decisions.apply", "lose_classes", lose_classes)
        check.check_flag("Decisions.apply", "new_classes", new_classes)
        by_class = holds_classes(task or self.task, labels)
        last = self._last()
        rows = self._rows_of(last, known)
        for k, now in zip(last, row_hashes(X, labels, rows), strict=True):
            if self.rows[k] not in ("", now):
                raise InputError(
                    f"{self.places[k]}, column 'row': the content of the row {quoted(self.ids[k])} has changed since "
                    f"this decision ({self.rows[k]}, now {now}). Apply decisions to the table they were made for, "
                    "with the same columns and labels, or decide again."
                )
        actions = np.full(labels.size, "keep", dtype=object)
        new, weights = labels.tolist(), np.ones(labels.size)
        written = {_text(label): label for label in reversed(new)}
        for k, row in zip(last, rows, strict=True):
            actions[row] = self.actions[k]
            if self.actions[k] == "relabel":
                new[row] = self._new_label(k, written, labels, by_class and not new_classes)
            if self.actions[k] == "weight":
                weights[row] = self.weights[k]
        plan = Plan(actions, new, weights)
        if not lose_rows:
            self._check_left(plan, labels, by_class and not lose_classes)
        return plan

    def _rows_of(self, which: Iterable[int], known: dict[str, int]) -> list[int]:
        """Positions of the rows with decisions, by the text of their ids."""
        wanted = [(k, known.get(_text(self.ids[k]))) for k in which]
        absent = [self.ids[k] for k, row in wanted if row is None]
        if absent:
            first = next(k for k, row in wanted if row is None)
            raise InputError(
                f"{self.places[first]}, column 'id': the table has no row {quoted(absent[0])}"
                + (f"; {len(absent)} decisions name such rows: {some(absent)}" if len(absent) > 1 else "")
                + ". Apply decisions to the table they were made for, and name the same id column."
            )
        twice = next((k for k, row in wanted if row == -1), None)
        if twice is not None:
            raise InputError(
                f"{self.places[twice]}, column 'id': the table has several rows {quoted(self.ids[twice])}, so it is "
                "not clear which of them is meant. Give each row an id of its own."
            )
        return [row for _, row in wanted if row is not None]

    def _new_label(self, k: int, known: dict[str, Any], labels: npt.NDArray[Any], known_only: bool) -> Any:
        """Return a label in the table's type; a new label must be of the same kind."""
        text = _text(self.labels[k])
        if text in known:
            return known[text]
        if known_only:
            expected = f"be a class of the table ({some(sorted(known))}), or be allowed by new_classes=True"
            raise self._wrong(k, "label", expected, self.labels[k])
        if all(isinstance(label, str) for label in known.values()):
            return text
        if labels.dtype.kind in "iuf" and _NUMBER.fullmatch(text) and math.isfinite(float(text)):
            if labels.dtype.kind == "f":
                return float(text)
            if float(text).is_integer() and abs(float(text)) < 2**53:
                return int(float(text))
            raise self._wrong(k, "label", "be a whole number, as those of the table are", self.labels[k])
        raise self._wrong(k, "label", f"be one of the labels of the table ({some(sorted(known))})", self.labels[k])

    def _check_left(self, plan: Plan, labels: npt.NDArray[Any], by_class: bool) -> None:
        """Refuse decisions that leave no row, or no row of a class."""
        left = plan.kept
        if not left.size:
            raise InputError("The decisions drop every row of the table. Keep at least one.")
        if not plan.weights[left].any():
            raise InputError("The decisions leave no row with a weight above 0. Keep at least one.")
        if by_class:
            still = {plan.labels[row] for row in left if plan.weights[row] > 0}
            lost = [label for label in dict.fromkeys(labels.tolist()) if label not in still]
            if lost:
                raise InputError(
                    f"The decisions leave no row of the class {some(lost)}: no model could learn it. Keep at least one "
                    "row of each class, or allow it by lose_classes=True."
                )


def holds_classes(task: str | None, labels: npt.NDArray[Any]) -> bool:
    """Whether labels are classes: as stated, else by their content."""
    return task == "class" or (task is None and not _labels.are_numbers(labels))


def row_hashes(X: Any, y: Any, rows: Sequence[int]) -> list[str]:
    """Hashes of the content of some rows; equal entries give equal hashes in any kind of table.

    Numbers are hashed by value, whatever their type; all missing entries are equal; everything else is hashed as text.

    Parameters
    ----------
    X : table
    y : ndarray
        Labels of all rows.
    rows : sequence of int
        Positions.
    """
    if not len(rows):
        return []
    at = np.asarray(rows, dtype=np.int64)
    part = take_rows(X, at)
    if sparse.issparse(part):
        starts = part.indptr.tolist()
        stored = list(zip(part.indices.tolist(), part.data.tolist(), strict=True))
        contents: Iterable[Any] = (sorted(stored[i:j]) for i, j in pairwise(starts))
        entries = [[_cell(number) for pair in row for number in pair] for row in contents]
    else:
        frame = nw.from_native(part, eager_only=True, pass_through=True)
        if isinstance(frame, nw.DataFrame):
            columns = [[_cell(entry) for entry in frame[:, j].to_list()] for j in range(frame.shape[1])]
            entries = [list(row) for row in zip(*columns, strict=True)] if columns else [[] for _ in rows]
        else:
            plain = [np.asarray(row, dtype=None if hasattr(row, "dtype") else object).ravel().tolist() for row in part]
            entries = [[_cell(entry) for entry in row] for row in plain]
    labels = [_cell(label) for label in y[at].tolist()]
    return [_digest([*row, label]) for row, label in zip(entries, labels, strict=True)]


def _digest(cells: list[str]) -> str:
    return "h" + hashlib.blake2b(repr(cells).encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()


def _cell(entry: Any) -> str:
    """Write an entry: numbers by their value, missing entries as nothing."""
    if isinstance(entry, str):
        return entry
    if hasattr(entry, "tolist"):  # a vector in a cell
        entry = entry.tolist()
    if isinstance(entry, float):
        return "" if math.isnan(entry) else str(int(entry)) if entry.is_integer() else repr(entry)
    return "" if _labels.is_missing(entry) else str(entry)


def table_ids(X: Any, ids: Any) -> npt.NDArray[Any]:
    """Ids of the rows: given ones, else the index of a pandas table, else row numbers."""
    native: Any = getattr(X, "index", None)
    index = np.asarray(native) if hasattr(native, "names") and hasattr(native, "equals") else None
    return _labels.check_ids(ids, index, count_rows(X))


def _table(X: Any, y: Any, ids: Any) -> tuple[dict[str, int], npt.NDArray[Any]]:
    """Position of each id by its text, -1 where several rows have it; and the labels."""
    n = count_rows(X)
    labels = _labels.check_labels(y, "y", n, "X")
    _labels.check_same_order(X, y)
    found: dict[str, int] = {}
    for row, one in enumerate(table_ids(X, ids).tolist()):
        text = _text(one)
        found[text] = -1 if text in found else row
    return found, labels


def _column_places(header: Sequence[str], source: str, line: int) -> list[int]:
    names = [_unescaped(name).strip() for name in header]
    missing, twice = [name for name in COLUMNS if name not in names], [n for n in COLUMNS if names.count(n) > 1]
    if missing or twice:
        what = f"lacks the columns {some(missing)}" if missing else f"has {some(twice)} more than once"
        raise InputError(
            f"Line {line} of {source}, the header of a list of decisions, {what}. Expected {', '.join(COLUMNS)}."
        )
    return [names.index(name) for name in COLUMNS]


def _plain(entry: Any) -> Any:
    return entry.item() if isinstance(entry, np.generic) and entry.dtype.kind not in "mM" else entry


def _is_number(entry: Any) -> bool:
    return isinstance(entry, int | float) and not isinstance(entry, bool)


def _text(entry: Any) -> str:
    """Format an id, a label or a number for a CSV file; empty for missing values."""
    return "" if _labels.is_missing(entry) else str(entry)


def _number(text: str, decimal: str) -> Any:
    """Parse a number; an empty cell is NaN. Other text is returned unchanged and refused later with its place."""
    plain = text.strip().replace(decimal, ".")
    if not plain:
        return math.nan
    return float(plain) if _NUMBER.fullmatch(plain) else text


def _escaped(text: str) -> str:
    return f"'{text}" if _runs(text) else text


def _unescaped(text: str) -> str:
    return text[1:] if text.startswith("'") and _runs(text) else text


def _runs(text: str) -> bool:
    """Whether a spreadsheet would run the text, without leading apostrophes, as a formula; numbers are not formulas."""
    from shapshift.price import safe_cell

    bare = text.lstrip("'")
    return bool(bare) and _NUMBER.fullmatch(bare) is None and safe_cell(bare)[:1] == "'"
