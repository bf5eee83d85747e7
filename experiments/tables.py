"""Means and confidence intervals over seeds, and tables as files."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from shapshift.agreement import t_interval
from shapshift.io.results import latex_table


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


def _number(number: float, digits: int) -> str:
    rounded = round(number, digits)
    return f"{rounded if rounded else 0.0:.{digits}f}"  # no -0.00


def _signed(number: float) -> str:
    return f"{round(number):+d}" if round(number) else "0"


def interval(sample: Iterable[float], confidence: float = 0.95) -> Interval:
    """Mean and t interval of a sample; the interval of a single number is the number."""
    x = np.array(list(sample), dtype=np.float64)
    if x.size == 1:
        return Interval(*[float(x[0])] * 3)
    low, high = t_interval(x.mean(keepdims=True), x.std(ddof=1, keepdims=True), x.size, confidence)
    return Interval(float(x.mean()), float(low[0]), float(high[0]))


def select(table: pd.DataFrame, **wanted: Any) -> pd.DataFrame:
    """Rows of the table with the given entries."""
    return table[np.logical_and.reduce([table[key] == value for key, value in wanted.items()])]


def by_seed(shift: pd.DataFrame, statistic: str, **where: Any) -> pd.DataFrame:
    """A statistic with one row per seed and one column per version and noise level, for paired differences."""
    return select(shift, **where).pivot(index="seed", columns=["version", "sigma"], values=statistic)


def percent_change(before: Any, after: Any) -> Any:
    """Change in percent of the earlier number."""
    return 100 * (after - before) / abs(before)


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as CSV and as LaTeX (booktabs) under a path without a suffix; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_csv(path.with_name(f"{path.name}.csv"), index=False, lineterminator="\n")
    path.with_name(f"{path.name}.tex").write_text(latex_table(table), encoding="utf-8", newline="\n")


def write_tables(folder: Path, tables: Mapping[str, pd.DataFrame]) -> None:
    """Write tables under their names into ``tables/`` of a folder; see `write_table`."""
    for name, table in tables.items():
        write_table(folder / "tables" / name, table)


def markdown_table(rows: pd.DataFrame | Sequence[Mapping[str, Any]]) -> str:
    """Write a table, or rows that have the same columns, as Markdown."""
    table = pd.DataFrame(rows)
    lines = [[str(name) for name in table], *table.astype(str).to_numpy().tolist()]
    rendered = ["| " + " | ".join(line) + " |" for line in lines]
    return "\n".join([rendered[0], "|" + "---|" * table.shape[1], *rendered[1:]]) + "\n"


def write_page(path: Path, parts: Iterable[str]) -> Path:
    """Write the parts of a page, with a blank line between them; makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(parts), encoding="utf-8", newline="\n")
    return path
