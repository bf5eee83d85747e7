"""Suspects: the rows to act on, as a result."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift.checks.names import quoted
from shapshift.io.results import Result, to_table

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

DISAGREE = "neighbours disagree"
CONTRADICTING = "contradicting copies"
OUTLIER = "outlier"
ACROSS = "near-duplicate across train and validation"
#: Reasons for reporting a row, the strongest first.
REASONS = (CONTRADICTING, DISAGREE, ACROSS, OUTLIER)
#: Most classes in a summary.
SHOWN = 10


@dataclass(frozen=True, eq=False, repr=False)
class Suspects(Result):
    """Rows whose label is probably wrong; see :func:`find_suspects`.

    Attributes
    ----------
    ids : ndarray of shape (n,)
        Ids of all rows, in order.
    label, suggested : ndarray of shape (n,)
        The given label, and the most probable one if the given label is wrong. Numbers for a regression, tuples of
        labels for a multi-label table.
    probability : ndarray of shape (n,)
        Probability that the given label is wrong.
    reason : ndarray of str of shape (n,)
        Reasons for reporting a row: "contradicting copies", "neighbours disagree", "near-duplicate across train and
        validation", "outlier"; several are joined by "; ", and rows without any have "".
    flagged : ndarray of bool of shape (n,)
        The rows to act on.
    error, expected_error : float
        The allowed share of right labels among the flagged rows, and the expected one; 0 if nothing is flagged.
    classes : mapping of str to ndarray
        Per-class table: ``label``, ``rows``, ``flagged``, ``share`` (of the class's rows that are flagged). In a
        multi-label table a row counts for each of its labels; a regression has no classes.
    notes : tuple of str
        Warnings to read before acting, such as a class that is flagged far more often than the others.
    parameters : mapping
        ``task`` ("class", "number" or "set"), ``model``, ``n_val``, ``random_state``.
    kind : {"numpy", "pandas", "polars", "pyarrow"}
        Kind of tables.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import find_suspects
    >>> X, y = load_iris(return_X_y=True)
    >>> y[7] = 2
    >>> suspects = find_suspects(X, y)
    >>> int(suspects.ranking()[0])
    7
    """

    archive_kind: ClassVar[str] = "shapshift.Suspects"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("ids", "label", "suggested", "probability", "reason", "flagged"), "n"),
        "classes": "c",
    }

    ids: npt.NDArray[Any]
    label: npt.NDArray[Any]
    suggested: npt.NDArray[Any]
    probability: Floats
    reason: npt.NDArray[Any]
    flagged: Flags
    error: float
    expected_error: float
    classes: Mapping[str, npt.NDArray[Any]]
    parameters: Mapping[str, Any]
    notes: tuple[str, ...] = ()
    kind: str = "numpy"

    @property
    def task(self) -> str:
        """Kind of labels: "class", "number" to predict, or "set" of labels."""
        return str(self.parameters["task"])

    @property
    def cutoff(self) -> float:
        """Lowest probability of a flagged row; NaN if nothing is flagged."""
        return float(self.probability[self.flagged].min()) if self.flagged.any() else float("nan")

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate all rows in their order: id, label, suggested, probability, reason, flagged.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table.
        """
        return self._table(np.arange(self.ids.size), kind)

    def flagged_frame(self, kind: str | None = None) -> Any:
        """Tabulate the flagged rows, the most probable first.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table.
        """
        return self._table(self.ranking()[: int(self.flagged.sum())], kind)

    def class_frame(self, kind: str | None = None) -> Any:
        """Tabulate the classes: label, rows, flagged, share.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table.
        """
        return to_table(dict(self.classes), None, kind or self.kind)

    def class_rows(self) -> list[dict[str, Any]]:
        """List the classes, each with its label, rows, flagged and share."""
        columns = [column.tolist() for column in self.classes.values()]
        return [dict(zip(self.classes, row, strict=True)) for row in zip(*columns, strict=True)]

    def most_flagged(self) -> list[dict[str, Any]]:
        """List the classes as in :meth:`class_rows`; if there are many, the ten with the most flagged rows."""
        rows = self.class_rows()
        return rows if len(rows) <= SHOWN else sorted(rows, key=lambda one: -int(one["flagged"]))[:SHOWN]

    def ranking(self) -> npt.NDArray[np.int64]:
        """Positions of all rows, the most probable first."""
        return np.argsort(-self.probability, kind="stable")

    def summary(self) -> str:
        """Return a few lines on the number of rows to look at, the reasons, and the classes."""
        what = "Label" if self.task == "set" else "Class"
        classes = [
            f"{what} {quoted(one['label'])}: {one['flagged']:,} of {one['rows']:,} rows flagged ({one['share']:.1%})."
            for one in self.most_flagged()
        ]
        more = len(self.class_rows()) - len(classes)
        classes += [f"{more:,} more {'labels' if self.task == 'set' else 'classes'}: see class_frame()."] * (more > 0)
        return "\n".join([*self.findings(), *classes, *(f"Note: {note}" for note in self.notes)])

    def findings(self) -> list[str]:
        """Return sentences on the number of flagged rows, their expected error, and the reasons."""
        n, flagged = self.ids.size, int(self.flagged.sum())
        what = {"number": "targets", "set": "label sets"}.get(self.task, "labels")
        said = [f"About {self.probability.sum():,.0f} of {n:,} {what} are expected to be wrong."]
        if not flagged:
            said.append(
                f"No row is flagged: no set of rows is expected to have at most {self.error:.0%} right {what}. The "
                f"highest probability of a wrong one is {self.probability.max():.2f}"
                + ("; a larger error flags more." if self.probability.max() > 0.5 else ".")
            )
            return said
        counts = [(reason, sum(reason in each for each in self.reason[self.flagged].tolist())) for reason in REASONS]
        least = math.floor(100 * self.cutoff) / 100
        said.append(
            f"{flagged:,} {'row is' if flagged == 1 else 'rows are'} flagged, with a probability of "
            f"{f'{least:.2f} or more' if least < 1 else '1'} each: "
            f"{self.expected_error:.0%} of them are expected to be right, at most {self.error:.0%} were allowed."
        )
        said.append("Reasons: " + ", ".join(f"{reason} ({count:,})" for reason, count in counts if count) + ".")
        return said

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the probabilities by class with the cut-off, and flagged rows by error; returns the two Axes.

        Parameters
        ----------
        ax : array of two Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_suspects

        return plot_suspects(self, ax=ax)

    def __repr__(self) -> str:
        return (
            f"Suspects(n={self.ids.size}, flagged={int(self.flagged.sum())}, "
            f"expected_error={self.expected_error:.3f}, error={self.error:g})"
        )

    def _table(self, rows: npt.NDArray[np.int64], kind: str | None) -> Any:
        names = ("label", "suggested", "probability", "reason", "flagged")
        columns = {"id": self.ids[rows]} | {name: getattr(self, name)[rows] for name in names}
        return to_table(columns, None, kind or self.kind)
