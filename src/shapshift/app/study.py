"""Study: what the page is about. What is known of the rows, what was decided, and what that changes."""

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from sklearn.decomposition import PCA, TruncatedSVD

from shapshift._facts import payout_facts
from shapshift.app.rows import ACTIONS, Rows, number
from shapshift.app.work import Work
from shapshift.checks.names import some, visible
from shapshift.cleaning import DecisionLog, Decisions, Revaluation, measure_cleaning
from shapshift.cleaning.decisions import MOST_WEIGHT, row_hashes
from shapshift.cleaning.revaluation import Revalued
from shapshift.exceptions import InputError
from shapshift.price.statements import csv_text
from shapshift.trust import sampling_facts
from shapshift.valuation import Valuation

Indices = npt.NDArray[np.int64]

#: Rows up to which suspects and copies are looked for without being asked.
UNASKED_ROWS = 20_000
#: Rows from which the axes of the map are computed.
MAP_ROWS = 20_000
#: Seconds that valuing a row on a point takes, where that was not measured.
PAIR_SECONDS = 1.5e-8
#: Operations that can be undone.
UNDONE = 500
#: Points that are listed by influence, and rows that moved most.
LISTED = 25
UNDO = "undone"
#: What is known of rows, in files of them.
KNOWN = ("value", "low", "high", "after", "suspicion", "copies")


@dataclass(frozen=True, eq=False)
class Source:
    """The tables of a study, and how their rows are valued.

    Attributes
    ----------
    name : str
        What the page is called.
    train : pyarrow.Table
        The training rows as they were read.
    features : list of str
        Columns that features were made of.
    X, y, X_val, y_val : ndarray
        As the model takes them.
    ids, owners : ndarray or None
    ids_val : ndarray or None
    task : {"class", "number"}
    value : callable
        ``value(rows, labels) -> Valuation`` of some rows.
    fit : callable
        Returns the model of all rows: what values are audited and explained by.
    is_explained : bool
        Whether that model explains values.
    is_plain : bool
        Whether values are those of that model as it is, and errors those of independent points, so that a store has
        them too.
    is_paid : bool
        Whether values are those that a rule pays for.
    pay : callable or None
        ``pay(valuation, rows) -> Allocation``.
    suspect, copies : callable or None
        Return Suspects, and Duplicates.
    audit : callable or None
        Returns a ShiftAudit.
    test : pair of table and labels, or None
        Held-out rows; by default the validation rows.
    is_one_table : bool
        Whether rows are valued on each other.
    replay : str
        The command that applies the decisions.
    known : mapping
        ``valuation`` and ``audit`` that were computed before.
    images : Path or None
        Folder in which texts name images.
    image_shape : tuple or None
        How features make up a picture.
    seed : int
    """

    name: str
    train: Any
    features: list[str]
    X: Any
    y: npt.NDArray[Any]
    X_val: Any
    y_val: npt.NDArray[Any]
    ids: npt.NDArray[Any] | None
    ids_val: npt.NDArray[Any] | None
    owners: npt.NDArray[Any] | None
    task: str
    value: Callable[[Indices, npt.NDArray[Any]], Valuation]
    fit: Callable[[], Any]
    is_explained: bool = False
    is_plain: bool = True
    is_paid: bool = False
    pay: Callable[[Valuation, Indices], Any] | None = None
    suspect: Callable[[], Any] | None = None
    copies: Callable[[], Any] | None = None
    audit: Callable[[], Any] | None = None
    test: tuple[Any, Any] | None = None
    is_one_table: bool = False
    replay: str = ""
    known: Mapping[str, Any] = field(default_factory=dict)
    images: Path | None = None
    image_shape: tuple[int, int] | None = None
    seed: int = 0


@dataclass
class _Operation:
    """Rows that were decided about at once, and what was decided about each before, by which operation."""

    rows: Indices
    before: list[tuple[int, Any, float]]
    earlier: Indices


class Study:
    """What is known and decided about the rows of a table.

    Parameters
    ----------
    source : Source
    log : DecisionLog
        Its decisions hold from the beginning; new ones are appended.
    report : callable, optional
        Told the traceback of what failed by a bug.
    """

    def __init__(self, source: Source, log: DecisionLog, report: Callable[[str], object] = lambda text: None) -> None:
        self.source, self.log = source, log
        n = source.y.size
        self.ids = np.arange(n) if source.ids is None else source.ids
        names = [name for name in source.features if name in source.train.column_names]
        self.rows = Rows(
            source.train, self.ids, source.y, source.owners, is_class=source.task == "class", shown=names[:8]
        )
        self.valuation: Valuation | None = None
        self.revalued: Revalued | None = None
        self.payouts: dict[str, Any] = {}
        self.suspects: Any = None
        self.duplicates: Any = None
        self.audit: Any = source.known.get("audit")
        self.influence: Any = None
        self.effect: dict[str, Any] | None = None
        #: Counts of changes, by which the page knows what to ask for again.
        self.versions = dict.fromkeys(("decisions", "values", "suspects", "copies", "after", "ask", "effect"), 0)
        self._lock = threading.RLock()
        self._action = np.zeros(n, dtype=np.uint8)
        self._labels: dict[int, Any] = {}
        self._weights: dict[int, float] = {}
        self._owner_of = np.zeros(n, dtype=np.int64)  # the operation that decided last about a row
        self._operations: dict[int, _Operation] = {}
        self._next = 1
        self._after_of = -1
        self._seconds = math.inf
        self._revaluation: Revaluation | None = None
        self._place: dict[str, int] = {}
        self._read_log()
        #: Long work, and that which follows every decision.
        self.work, self.follow = Work(report), Work(report)
        self.work.start("values", "Valuing the rows", self._start)

    # What is known

    def _start(self) -> None:
        """Value the rows, unless that was done, and place them on the map."""
        source, all_rows = self.source, np.arange(self.source.y.size)
        valuation = source.known.get("valuation")
        seconds = PAIR_SECONDS * source.y.size * source.y_val.size
        if valuation is None:
            start = time.perf_counter()
            valuation = source.value(all_rows, source.y)
            taken = time.perf_counter() - start
            seconds = min(seconds, taken) if source.is_explained else taken  # the first run may have compiled
        nothing = np.full(self.rows.n, np.nan)
        low, high = (nothing, nothing) if valuation.standard_error is None else valuation.interval()
        for name, column in {"value": valuation.values, "low": low, "high": high, "after": nothing}.items():
            self.rows.set(name, column)
        self._revaluation = Revaluation(
            source.value,
            source.y,
            seconds,
            model=source.fit() if source.is_plain else None,
            X=source.X,
            points=(source.X_val, source.y_val),
        )
        self._pay("before", valuation, all_rows)
        with self._lock:
            self.valuation = valuation
            self._changed("values")
        self._follow()
        self.work.start("map", "Placing the rows on the map", self._map)
        for what in ("suspects", "copies"):
            if self.rows.n <= UNASKED_ROWS and self.offers()[what]:
                self.look_for(what)

    def _map(self) -> None:
        x, y = place(self.source.X)
        self.rows.set("x", x)
        self.rows.set("y", y)
        self._changed("values")
        self.rows.prepare()

    def look_for(self, what: str) -> None:
        """Start to look for suspects, copies, influential points, or what noise changes."""
        found: dict[str, tuple[str, Callable[[], None]]] = {
            "suspects": ("Looking for suspect labels", self._suspect),
            "copies": ("Looking for copies", self._copies),
            "audit": ("Adding noise to the validation rows", self._audit),
            "influence": ("Leaving out each validation row", self._influence),
            "exact": ("Valuing the rows that are left", lambda: self._revalue(exact=True)),
        }
        if what not in found or not self.offers().get(what, True):
            raise InputError(f"Nothing is known by the name {what!r} here.")
        title, run = found[what]
        (self.follow if what == "exact" else self.work).start(what, title, run)

    def offers(self) -> dict[str, bool]:
        """Return what can be looked for."""
        source, values = self.source, self.valuation
        weighted = values is not None and (values.point_weight is not None or "pool" in values.parameters)
        return {
            "suspects": source.suspect is not None,
            "copies": source.copies is not None,
            "audit": source.audit is not None,
            "influence": source.is_explained and not (source.is_one_table or weighted),
            "explain": source.is_explained and not source.is_one_table,
            "accuracy": source.test is not None or not source.is_one_table,
        }

    def _suspect(self) -> None:
        found = (self.source.suspect or _nothing)()
        self.rows.set("suspicion", np.asarray(found.probability, dtype=np.float64))
        self.suspects = found
        self._changed("suspects")

    def _copies(self) -> None:
        found = (self.source.copies or _nothing)()
        group = found.group[: self.rows.n]
        sizes = np.bincount(found.group[found.group >= 0], minlength=1)
        self.rows.set("copies", np.where(group >= 0, sizes[group] - 1, 0).astype(np.float64))
        self.duplicates = found
        self._changed("copies")

    def _audit(self) -> None:
        self.audit = (self.source.audit or _nothing)()
        self._changed("ask")

    def _influence(self) -> None:
        from shapshift.audit import point_influence

        source = self.source
        if self.valuation is None:
            raise InputError("The rows have no values yet.")
        self.influence = point_influence(source.fit(), source.X_val, source.y_val, self.valuation)
        self._changed("ask")

    def _changed(self, what: str) -> None:
        with self._lock:
            self.versions[what] += 1

    # What was decided

    def _read_log(self) -> None:
        """Take over the decisions of the log; refuse those about other rows."""
        earlier = self.log.read().effective()
        if not len(earlier):
            return
        source = self.source
        table = source.train.select(source.features)
        allowed = {"lose_classes": True, "new_classes": True, "lose_rows": True}  # here it can be mended
        earlier.plan(table, source.y, ids=self.ids, task=source.task, **allowed)
        known = {str(one): row for row, one in enumerate(self.ids.tolist())}
        for k, (one, action) in enumerate(zip(earlier.ids, earlier.actions, strict=True)):
            undone = action == "keep" and earlier.reasons[k] == UNDO
            label = self._label(earlier.labels[k]) if action == "relabel" else None
            self._put(known[str(one)], 0 if undone else ACTIONS.index(action), label, earlier.weights[k])
        self.rows.numbers["decision"] = self._action

    def _label(self, text: Any) -> Any:
        """Return a label as the table has it."""
        if self.source.task == "number":
            try:
                made = float(text)
            except (TypeError, ValueError):
                made = math.nan
            if not math.isfinite(made):
                raise InputError(f"The new label must be a number. Got {str(text)[:60]!r}.")
            if self.source.y.dtype.kind not in "iu":
                return made
            if not made.is_integer() or abs(made) >= 2**53:
                raise InputError(
                    f"The new label must be a whole number, as those of the table are. Got {str(text)[:60]!r}."
                )
            return int(made)
        classes = self.rows.classes
        known: dict[str, Any] = {}
        for entry in () if classes is None else classes.entries:
            known |= {visible(str(entry)): entry, str(entry): entry}  # the page has the first form
        if str(text) not in known:
            raise InputError(
                f"The new label must be a class of the table: {some(list(known))}. Got {str(text)[:60]!r}."
            )
        return known[str(text)]

    def _put(self, row: int, action: int, label: Any, weight: float) -> None:
        self._action[row] = action
        self._labels.pop(row, None)
        self._weights.pop(row, None)
        if ACTIONS[action] == "relabel":
            self._labels[row] = label
        if ACTIONS[action] == "weight":
            self._weights[row] = float(weight)

    def decide(
        self, action: str, rows: Sequence[int], *, label: Any = None, weight: Any = None, reason: str = ""
    ) -> int:
        """Decide about rows, and write it down; returns the number by which it can be undone.

        Parameters
        ----------
        action : {"keep", "drop", "relabel", "weight"}
        rows : sequence of int
            Positions.
        label : object, optional
            The new label, as text.
        weight : float, optional
        reason : str
        """
        if action not in ACTIONS[1:]:
            raise InputError(f"The decision must be one of {some(ACTIONS[1:])}. Got {str(action)[:60]!r}.")
        at = np.unique(self._positions(rows))
        made = self._label(label) if action == "relabel" else None
        if action == "weight" and not (
            isinstance(weight, int | float) and not isinstance(weight, bool) and 0 <= weight <= MOST_WEIGHT
        ):
            raise InputError(f"The weight must be a number from 0 to {MOST_WEIGHT:g}. Got {str(weight)[:60]!r}.")
        with self._lock:
            before = [self._entry(row) for row in at.tolist()]
            code = ACTIONS.index(action)
            after = [(code, made, float(weight) if action == "weight" else math.nan)] * at.size
            self._write(at, after, str(reason)[:500])
            operation, self._next = self._next, self._next + 1
            self._operations[operation] = _Operation(at, before, self._owner_of[at])
            self._owner_of[at] = operation
            while len(self._operations) > UNDONE:
                self._operations.pop(next(iter(self._operations)))
        self._follow()
        return operation

    def _positions(self, rows: Sequence[int]) -> Indices:
        at = np.array(rows if isinstance(rows, list) else [], dtype=object)
        if not at.size or not all(type(row) is int and 0 <= row < self.rows.n for row in at.tolist()):
            raise InputError(f"The rows must be positions from 0 to {self.rows.n - 1}, one at least.")
        return at.astype(np.int64)

    def undo(self, operation: int) -> dict[str, int]:
        """Take an operation back; rows that were decided about again since stay as they are.

        Returns
        -------
        dict
            ``undone`` and ``kept``, numbers of rows.
        """
        with self._lock:
            found = self._operations.get(operation)
            if found is None:
                raise InputError("That decision cannot be undone any more. Decide again about its rows.")
            last = self._owner_of[found.rows] == operation
            rows = found.rows[last]
            entries = [entry for entry, is_last in zip(found.before, last.tolist(), strict=True) if is_last]
            if rows.size:
                self._write(rows, entries, "")
                self._owner_of[rows] = found.earlier[last]
            del self._operations[operation]
            if rows.size < found.rows.size:
                self._skip(operation, found)
        self._follow()
        return {"undone": int(rows.size), "kept": int(found.rows.size - rows.size)}

    def _skip(self, operation: int, undone: _Operation) -> None:
        """Let later operations, where they are undone, return to what was before one that is undone already."""
        for later in self._operations.values():
            at = np.flatnonzero(later.earlier == operation)
            places = np.searchsorted(undone.rows, later.rows[at])
            later.earlier[at] = undone.earlier[places]
            for k, place in zip(at.tolist(), places.tolist(), strict=True):
                later.before[k] = undone.before[place]

    def _entry(self, row: int) -> tuple[int, Any, float]:
        return int(self._action[row]), self._labels.get(row), self._weights.get(row, math.nan)

    def _write(self, rows: Indices, entries: list[tuple[int, Any, float]], reason: str) -> None:
        """Append to the log, and then hold it true. No decision is written as "keep"."""
        probability = self.rows.numbers.get("suspicion")
        source, table = self.source, self.source.train.select(self.source.features)
        self.log.append(
            Decisions(
                ids=tuple(self.ids[rows].tolist()),
                actions=tuple(ACTIONS[code] or "keep" for code, *_ in entries),
                labels=tuple(label for _, label, _ in entries),
                weights=tuple(weight for *_, weight in entries),
                probabilities=tuple([math.nan] * rows.size if probability is None else probability[rows].tolist()),
                reasons=tuple(reason if code else UNDO for code, *_ in entries),
                rows=tuple(row_hashes(table, source.y, rows.tolist())),
            )
        )
        for row, (code, label, weight) in zip(rows.tolist(), entries, strict=True):
            self._put(row, code, label, weight)
        self.rows.set("decision", self._action.copy())
        self._changed("decisions")

    def decisions(self) -> list[dict[str, Any]]:
        """Return the decisions that hold, the first 500 of them, for a list of them."""
        with self._lock:
            rows = np.flatnonzero(self._action)[:500]
            return [
                {"row": row, "id": str(self.ids[row])} | {"label": str(self.source.y[row]), **self.decision(row)}
                for row in rows.tolist()
            ]

    def csv(self, rows: Sequence[int]) -> str:
        """Return rows as CSV for spreadsheets: their columns in the table, what is known of them, and the decisions."""
        at, train = self._positions(rows), self.source.train
        cells = [column.to_pylist() for column in train.take(pa.array(at)).columns]
        known = {name: column[at] for name, column in self.rows.numbers.items() if name in KNOWN}
        with self._lock:
            decided = [tuple(self.decision(row).values()) for row in at.tolist()]
        header = [*train.column_names, "position", *known, "decision", "new_label", "new_weight"]
        columns = [*cells, at.tolist(), *(map(number, column.tolist()) for column in known.values())]
        return csv_text(header, ((*own, *last) for *own, last in zip(*columns, decided, strict=True)))

    def decision(self, row: int) -> dict[str, Any]:
        """Return what was decided about a row."""
        code, label, weight = self._entry(row)
        return {
            "action": ACTIONS[code],
            "new": None if label is None else str(label),
            "weight": number(weight),
        }

    # What that changes

    def left(self) -> tuple[Indices, npt.NDArray[Any]]:
        """Return the positions of the rows that are left, and their labels."""
        with self._lock:
            labels = self.source.y.copy()
            for row, label in self._labels.items():
                labels[row] = label
            rows = np.flatnonzero(self._action != ACTIONS.index("drop"))
            return rows, labels[rows]

    def _follow(self) -> None:
        """Start to value what is left, exactly where that is quick."""
        if self.valuation is None or self._revaluation is None:
            return
        if self._revaluation.is_automatic:
            self.follow.start("after", "Valuing the rows that are left", self._revalue)

    def _revalue(self, *, exact: bool = False) -> None:
        revaluation = self._revaluation
        if revaluation is None or self.valuation is None:
            return
        version, (rows, labels) = self.versions["decisions"], self.left()
        if not rows.size:
            raise InputError("Every row is dropped. Keep at least one.")
        if rows.size == self.rows.n and not self._labels:
            found = Revalued(self.valuation, rows, self.valuation.error_bound is None, 0.0)
        elif exact or revaluation.is_quick or not revaluation.has_bound:
            found = revaluation.exact(rows, labels)
        else:
            found = revaluation.bounded(rows, labels)
        column = np.full(self.rows.n, np.nan)
        column[found.rows] = found.valuation.values
        self._pay("after", found.valuation, found.rows)
        with self._lock:
            self.rows.set("after", column)
            self.revalued, self._after_of = found, version
            self._changed("after")

    def _pay(self, when: str, valuation: Valuation, rows: Indices) -> None:
        if self.source.pay is not None:
            self.payouts[when] = payout_facts(self.source.pay(valuation, rows))

    def measure(self, model: str) -> None:
        """Start to measure the accuracy of a model before and after."""
        if model not in ("logistic", "forest", "boosting"):
            raise InputError("The model must be 'logistic', 'forest' or 'boosting'.")
        if not self.offers()["accuracy"]:
            raise InputError("Rows of one table are valued on each other: name held-out rows with --test.")
        self.work.start("accuracy", "Fitting models before and after", lambda: self._measure(model))

    def _measure(self, model: str) -> None:
        source, version = self.source, self.versions["decisions"]
        with self._lock:
            rows = np.flatnonzero(self._action)
            entries = [self._entry(row) for row in rows.tolist()]
        decided = Decisions(
            ids=tuple(self.ids[rows].tolist()),
            actions=tuple(ACTIONS[code] for code, *_ in entries),
            labels=tuple(label for _, label, _ in entries),
            weights=tuple(weight for *_, weight in entries),
            probabilities=(math.nan,) * rows.size,
            reasons=("",) * rows.size,
            rows=("",) * rows.size,
        )
        X_test, y_test = source.test or (source.X_val, source.y_val)
        options: dict[str, Any] = {"task": source.task, "repeats": 3, "lose_classes": True}
        found = measure_cleaning(
            decided, source.X, source.y, X_test, y_test, model, ids=self.ids, random_state=source.seed, **options
        )
        lines = found.to_frame("pyarrow").to_pylist()
        self.effect = {
            "model": model,
            "lines": [{name: number(entry) for name, entry in line.items()} for line in lines],
            "notes": list(found.notes),
            "of": version,
            "held_out": source.test is not None,
        }
        self._changed("effect")

    # What the page asks for

    def state(self) -> dict[str, Any]:
        """Return where everything stands; small, for it is asked for often."""
        with self._lock:
            counts = np.bincount(self._action, minlength=len(ACTIONS)).tolist()
            revaluation = self._revaluation
            return {
                "ready": self.valuation is not None,
                "versions": dict(self.versions),
                "jobs": [*self.work.facts(), *self.follow.facts()],
                "counts": dict(zip(ACTIONS[1:], counts[1:], strict=True)),
                "stale": self._after_of != self.versions["decisions"],
                "automatic": revaluation is not None and revaluation.is_automatic,
                "offers": self.offers(),
                "known": [name for name in (*self.rows.numbers,) if name != "decision"],
            }

    def about(self) -> dict[str, Any]:
        """Return what does not change: names of classes, owners and columns."""
        source, rows = self.source, self.rows
        return {
            "name": source.name,
            "rows": rows.n,
            "points": int(source.y_val.size),
            "task": source.task,
            "one_table": source.is_one_table,
            "classes": None if rows.classes is None else rows.classes.names,
            "owners": None if rows.owners is None else rows.owners.names,
            "shown": [{"name": name, "place": source.train.column_names.index(name)} for name in rows.shown],
            "numeric": [{"name": source.train.column_names[place], "place": place} for place in rows.numeric()],
            "log": str(self.log.path),
            "replay": source.replay,
            "paid": source.is_paid,
            "actions": ACTIONS,
            "tested": source.test is not None,
        }

    def see(self) -> dict[str, Any]:
        """Return values, reliability and payouts after the decisions beside those before."""
        with self._lock:
            valuation, revalued, payouts = self.valuation, self.revalued, dict(self.payouts)
            stale = self._after_of != self.versions["decisions"]
        if valuation is None:
            return {}
        found: dict[str, Any] = {"before": _summary(valuation), "payouts": payouts, "stale": stale}
        found["warning"] = self._warning()
        if revalued is not None:
            after, rows = revalued.valuation, revalued.rows
            bound = after.error_bound
            found |= {
                "after": _summary(after),
                "exact": revalued.exact,
                "bound": None if revalued.exact or bound is None else float(bound.max()),
                "seconds": revalued.seconds,
                "moved": self._moved(after.values, rows),
                "edges": _edges(np.concatenate([valuation.values, after.values])),
            }
            edges = np.array(found["edges"])
            for name, values in (("before", valuation.values), ("after", after.values)):
                found[name]["counts"] = np.histogram(values.clip(edges[0], edges[-1]), edges)[0].tolist()
        found["effect"] = self.effect
        return found

    def _moved(self, after: npt.NDArray[Any], rows: Indices) -> list[dict[str, Any]]:
        """Return the rows whose values changed most."""
        before = self.rows.numbers["value"][rows]
        most = np.argsort(-np.abs(after - before), kind="stable")[:LISTED]
        return [
            {"row": int(rows[k]), "id": str(self.ids[rows[k]]), "label": str(self.source.y[rows[k]])}
            | {"before": float(before[k]), "after": float(after[k])}
            for k in most
            if after[k] != before[k]
        ]

    def _warning(self) -> str:
        """Say what `clean` would refuse."""
        if self.source.task != "class" or not self.versions["decisions"]:
            return ""
        _, labels = self.left()
        lost = sorted(set(self.source.y.tolist()) - set(labels.tolist()), key=str)
        if not lost:
            return ""
        return f"No row of the class {some(lost)} is left. 'shapshift clean' needs --lose-classes for that."

    def row(self, row: int) -> dict[str, Any]:
        """Return all that is known of a row without computing."""
        from shapshift.app import cells

        (at,) = self._positions([row])
        found = self.rows.window([row])[0] | self.decision(row)
        found["features"] = cells.read(self.source, int(at))
        found["pixels"] = cells.pixels(self.source, int(at))
        if self.suspects is not None:
            suggested = self.suspects.suggested[at]
            found["suspect"] = {
                "probability": float(self.suspects.probability[at]),
                "flagged": bool(self.suspects.flagged[at]),
                "suggested": str(suggested),
                "reason": str(self.suspects.reason[at]),
            }
        if self.duplicates is not None:
            found["twins"] = self._twins(int(at))
        if self.valuation is not None and self.valuation.standard_error is not None:
            low, high = self.rows.numbers["low"][at], self.rows.numbers["high"][at]
            found["sure"] = "positive" if low > 0 else "negative" if high < 0 else "open"
        return found

    def _twins(self, row: int) -> list[dict[str, Any]]:
        """Return the copies of a row."""
        found, n = self.duplicates, self.rows.n
        group = found.group[row]
        if group < 0:
            return []
        return [
            {"row": one, "split": "train", "id": str(self.ids[one]), "label": str(self.source.y[one])}
            | ({} if self.source.owners is None else {"owner": str(self.source.owners[one])})
            if one < n
            else {"split": "validation", "id": str(found.ids_val[one - n])} | {"label": str(self.source.y_val[one - n])}
            for one in np.flatnonzero(found.group == group)[:50].tolist()
            if one != row
        ]

    def why(self, row: int) -> dict[str, Any]:
        """Explain a row's value."""
        (at,) = self._positions([row])
        source = self.source
        if not self.offers()["explain"]:
            raise InputError("Values of this method are not explained by single validation rows.")
        model = source.fit()
        rows = np.arange(self.rows.n)
        if source.is_paid:  # rows that vote are explained, the others by those that vote for them
            if model.clusters is not None:
                first, rows = int(model.clusters.first[at]), model.clusters.representatives
                if first != at:
                    return {"sentence": f"It is a copy of row {self.ids[first]}, which votes for both.", "first": first}
            model = model.model
        found = model.explain(source.X_val, source.y_val, [self.ids[at]], n_points=6, n_neighbors=6)
        names = np.arange(source.y_val.size) if source.ids_val is None else source.ids_val
        points, near = found.points, found.neighbors
        return {
            "sentence": found.sentences[0],
            "gain": float(found.gain[0]),
            "loss": float(found.loss[0]),
            "counts": [int(part[0]) for part in (found.positive, found.negative, found.neutral)],
            "points": [
                {"id": str(names[points["position"][k]]), "label": str(points["label"][k])}
                | {name: number(float(points[name][k])) for name in ("value", "distance", "rank")}
                for k in range(points["row"].size)
            ],
            "neighbors": [
                {"row": int(rows[near["position"][k]]), "id": str(near["id"][k])}
                | {"label": str(near["label"][k]), "distance": number(float(near["distance"][k]))}
                for k in range(near["row"].size if near else 0)
            ],
        }

    def close(self) -> None:
        """End all work, and let go of the log."""
        self.work.cancel()
        self.follow.cancel()
        with self._lock:  # a decision that is being written
            self.log.close()


def place(X: Any) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the two principal components of rows, from a sample of them where they are many."""
    n, d = X.shape
    sample = np.arange(n) if n <= MAP_ROWS else np.sort(np.random.default_rng(0).choice(n, MAP_ROWS, replace=False))
    if d < 2 or n < 3:
        first = np.asarray(X[:, [0]].todense() if hasattr(X, "todense") else X[:, [0]], dtype=np.float64).ravel()
        return first, np.zeros(n)
    sparse = hasattr(X, "todense")
    finder = TruncatedSVD(2, random_state=0) if sparse else PCA(2, random_state=0)
    finder.fit(X[sample])
    parts = [finder.transform(X[lo : lo + 2**16]) for lo in range(0, n, 2**16)]
    where = np.concatenate(parts)
    return where[:, 0], where[:, 1]


def _summary(valuation: Valuation) -> dict[str, Any]:
    values = valuation.values
    facts = sampling_facts(valuation)
    names = ("reliability", "points_needed", "surely_positive", "surely_negative", "open")
    return {
        "rows": values.size,
        "mean": float(values.mean()),
        "std": float(values.std()),
        "negative": int((values < 0).sum()),
        **{name: facts[name] for name in names},
    }


def _edges(values: npt.NDArray[Any]) -> list[float]:
    """Return edges of 40 bins that hold all but the farthest values."""
    low, high = np.quantile(values, [0.002, 0.998])
    edges: list[float] = np.linspace(low, high if high > low else low + 1e-12, 41).tolist()
    return edges


def _nothing() -> Any:
    raise InputError("This is not known here.")
