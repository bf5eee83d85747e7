"""Means and confidence intervals over seeds, from the table of records."""

from collections.abc import Iterable
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

    @property
    def word(self) -> str:
        """Say which way a change goes, as far as the interval can tell."""
        return "falls" if self.high < 0 else "rises" if self.low > 0 else "no clear change"


def interval(sample: Iterable[float]) -> Interval:
    """Mean and t interval of a sample; the interval of a single number is the number."""
    x = np.array(list(sample))
    if x.size == 1:
        return Interval(*[float(x[0])] * 3)
    low, high = t_interval(x.mean(keepdims=True), x.std(ddof=1, keepdims=True), x.size)
    return Interval(float(x.mean()), float(low[0]), float(high[0]))


def select(table: Table, **wanted: Any) -> Table:
    """Rows of the table with the wanted entries."""
    return [row for row in table if all(row[key] == value for key, value in wanted.items())]


def by_seed(table: Table, statistic: str) -> dict[int, float]:
    """One number per seed."""
    return {row["seed"]: row[statistic] for row in table}


def change(table: Table, statistic: str, sigma: float, version: str, **where: Any) -> Interval:
    """Change against the clean value of the same seed, in percent of it."""
    rows = select(table, **where)
    clean = by_seed(select(rows, version="clean"), statistic)
    moved = by_seed(select(rows, version=version, sigma=sigma), statistic)
    return interval(100 * (moved[seed] - clean[seed]) / abs(clean[seed]) for seed in moved)


def level(table: Table, statistic: str, sigma: float, version: str, **where: Any) -> Interval:
    """Mean of a statistic at one noise level."""
    rows = select(table, **where, version=version, sigma=sigma)
    return interval(row[statistic] for row in rows)
