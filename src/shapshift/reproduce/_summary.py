"""Means and confidence intervals over seeds, from the tables of records."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shapshift.agreement import t_interval

Table = list[dict[str, Any]]


@dataclass(frozen=True)
class Interval:
    """A mean over seeds and its 95% t interval."""

    mean: float
    low: float
    high: float

    def show(self, digits: int = 2) -> str:
        """Write the mean and, in brackets, the interval."""
        return f"{_number(self.mean, digits)} [{_number(self.low, digits)}, {_number(self.high, digits)}]"

    def percent(self) -> str:
        """Write a change in percent, with its interval."""
        return f"{_signed(self.mean)}% [{_signed(self.low)}, {_signed(self.high)}]"


def interval(sample: Iterable[float]) -> Interval:
    """Mean and t interval of a sample; the interval of a single number is the number."""
    x = np.array(list(sample), dtype=np.float64)
    if x.size == 1:
        return Interval(*[float(x[0])] * 3)
    low, high = t_interval(x.mean(keepdims=True), x.std(ddof=1, keepdims=True), x.size)
    return Interval(float(x.mean()), float(low[0]), float(high[0]))


def select(table: Table, **wanted: Any) -> Table:
    """Rows of the table with the wanted entries."""
    return [row for row in table if all(row[key] == value for key, value in wanted.items())]


def level(table: Table, statistic: str, **where: Any) -> Interval:
    """Mean of a statistic over seeds."""
    return interval(row[statistic] for row in select(table, **where))


def paired(
    table: Table, statistic: str, first: dict[str, Any], second: dict[str, Any], join: Callable[[float, float], float]
) -> Interval:
    """Join two rows of each seed into one number; the interval is over seeds."""
    before = {row["seed"]: row[statistic] for row in select(table, **first)}
    after = {row["seed"]: row[statistic] for row in select(table, **second)}
    return interval(join(before[seed], after[seed]) for seed in sorted(before))


def percent_change(before: float, after: float) -> float:
    """Change in percent of what was before."""
    return 100 * (after - before) / abs(before)


def _number(number: float, digits: int) -> str:
    rounded = round(number, digits)
    return f"{rounded if rounded else 0.0:.{digits}f}"  # never minus nothing


def _signed(number: float) -> str:
    return f"{round(number):+d}" if round(number) else "0"
