"""What a page is made of: sections of charts, each with its words and its numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.report._format import percent

# Points drawn in one scatter chart; more would overlap anyway. The words are computed from all rows.
DRAWN = 3000
# Values whose tails reach so many times further than their middle half are called heavy-tailed.
HEAVY = 12


@dataclass(frozen=True)
class DataTable:
    """The numbers behind a chart, for those who cannot or do not want to see it.

    Attributes
    ----------
    columns : sequence of str
    rows : sequence of sequence of str
        The first entry of each row is its heading.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Chart:
    """One chart.

    Attributes
    ----------
    id : str
        Unique on the page.
    title : str
    kind : {"histogram", "curves", "scatter", "map", "bars"}
        Which function of ``charts.js`` draws it.
    data : mapping
        What that function needs; nothing in it is HTML.
    table : DataTable
        The same as a table.
    caption : str
        What to conclude; empty where the section says it.
    summary : str
        What a screen reader says in place of the picture; the caption by default.
    small : bool
        Whether it is one of several side by side.
    """

    id: str
    title: str
    kind: str
    data: Mapping[str, Any]
    table: DataTable
    caption: str = ""
    summary: str = ""
    small: bool = False

    @property
    def alternative(self) -> str:
        """Text alternative."""
        return f"{self.title}. {self.summary or self.caption}".strip()


@dataclass(frozen=True)
class Section:
    """A heading (and a short one for the contents), what to conclude, and the charts that show it."""

    id: str
    title: str
    short: str
    conclusion: str
    charts: Sequence[Chart] = ()
    notes: Sequence[str] = field(default=())


def sample(n: int, size: int = DRAWN) -> npt.NDArray[np.int64]:
    """Positions of the points that are drawn: all, or always the same random ones, in order."""
    if n <= size:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, size=size, replace=False))


def view(values: npt.NDArray[np.float64]) -> tuple[float, float]:
    """Range of values worth showing: a few extreme rows must not squeeze all others together."""
    low, quarter, rest, high = np.quantile(values, [0.002, 0.25, 0.75, 0.998])
    if high - low > HEAVY * (rest - quarter):
        low, high = np.quantile(values, [0.02, 0.98])
    return float(low), float(high)


def beyond(values: npt.NDArray[np.float64], low: float, high: float, where: str) -> str:
    """Say how many rows a range leaves out, and what becomes of them."""
    share = float(np.mean((values < low) | (values > high)))
    return f"{percent(share)} of the rows lie beyond the edges and are {where} there." if share else ""


def only_drawn(n: int, what: str) -> list[str]:
    """Say so when not all points are drawn."""
    return [f"The chart shows {DRAWN:,} of the {n:,} {what}, drawn at random."] if n > DRAWN else []
