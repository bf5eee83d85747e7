"""Speed of the relatives of KNNShapley against plain NumPy versions of the published algorithms, in one run.

``python benchmarks/relatives.py`` prints the table. Everything runs in one thread; values are compared too.
"""

import time
from collections.abc import Callable

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy.special import comb

from shapshift import KNNRegressionShapley, KNNShapley, ThresholdKNNShapley, WeightedKNNShapley, knn_interactions

K = 5
BITS = 3


def seconds(function: Callable[[], object], repeats: int = 3) -> float:
    """Best of a few runs, after a warm-up run."""
    function()
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def shifted(counts: np.ndarray, by: int) -> np.ndarray:
    """Shift the last axis by a whole number of places, filling with zeros."""
    moved = np.zeros_like(counts)
    if by > 0:
        moved[..., by:] = counts[..., :-by]
    elif by < 0:
        moved[..., :by] = counts[..., -by:]
    else:
        moved[...] = counts
    return moved


def won(counts: np.ndarray, by: int, draw: float) -> np.ndarray:
    """Number of subsets that win when ``by`` is added to their weight; a tie counts ``draw``."""
    middle = counts.shape[-1] // 2
    cut = middle - by
    return counts[..., cut + 1 :].sum(axis=-1) + draw * counts[..., cut]


def published_weighted(signed: np.ndarray, k: int, draw: float, *, subtract: bool) -> np.ndarray:
    """Wang et al. 2024, rows in order of distance: tables of subset counts by size and weight, for every row.

    Parameters
    ----------
    signed : ndarray of int
        Weights, negative for rows of the other class.
    k : int
    draw : float
    subtract : bool
        Make each row's tables by subtracting the row from the common ones, for all prefixes at once; or from scratch
        for each row, as in the recursion.
    """
    n, width = signed.size, 2 * (k + 1) * int(np.abs(signed).max()) + 1
    tables = np.zeros((n + 1, k, width))  # subsets of the first m rows, by size and weight
    tables[0, 0, width // 2] = 1
    for m in range(1, n + 1):
        tables[m] = tables[m - 1]
        tables[m, 1:] += shifted(tables[m - 1, :-1], signed[m - 1])
    values = np.zeros(n)
    ranks = np.arange(1, n + 1)
    with np.errstate(divide="ignore"):
        weight = np.where(ranks > k, 1 / (ranks * comb(ranks - 1, k)), 0.0)
    for i in range(n):
        without = tables.copy()
        if subtract:
            for size in range(1, k):
                without[i + 1 :, size] -= shifted(without[i + 1 :, size - 1], signed[i])
        else:
            without[i + 1] = without[i]
            for m in range(i + 2, n + 1):
                without[m] = without[m - 1]
                without[m, 1:] += shifted(without[m - 1, :-1], signed[m - 1])
        for size in range(k):
            change = won(without[n, size], signed[i], draw) - won(without[n, size], 0, draw)
            values[i] += change / (n * comb(n - 1, size))
        farther = np.arange(max(i + 1, k), n)  # positions of the rows that i can replace
        nearer = without[farther, k - 1]
        other = np.array([won(row, signed[m], draw) for m, row in zip(farther, nearer, strict=True)])
        values[i] += float((weight[farther] * (won(nearer, signed[i], draw) - other)).sum())
    return values


def published_regression(y: np.ndarray, t: float, k: int) -> np.ndarray:
    """Jia et al. 2019, theorem 6, rows in order of distance, with sums recomputed for every row: quadratic."""
    n = y.size
    values = np.zeros(n)
    values[-1] = -(k - 1) / (n * k) * y[-1] * (y[-1] / k - 2 * t + y[:-1].sum() / (n - 1)) - (y[-1] / k - t) ** 2 / n
    rank = np.arange(n) + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        both = np.minimum(k, rank - 1) * np.minimum(k - 1, rank - 2) / (2 * (rank - 1) * (rank - 2))
    for i in range(n - 1, 0, -1):
        nearer = y[: i - 1].sum() * min(k, i) * min(k - 1, i - 1) / (2 * max(i - 1, 1) * i)
        bracket = min(k, i) / i * ((y[i - 1] + y[i]) / k - 2 * t) + 2 / k * (
            nearer + (y[i + 1 :] * both[i + 1 :]).sum()
        )
        values[i - 1] = values[i] + (y[i] - y[i - 1]) / k * bracket
    return values


def weighted_rows(n: int) -> list[tuple[str, ...]]:
    """Compare weighted values at N rows."""
    rng = np.random.default_rng(0)
    X, y, X_val, y_val = rng.normal(size=(n, 8)), rng.integers(0, 2, n), rng.normal(size=(5, 8)), rng.integers(0, 2, 5)
    model = WeightedKNNShapley(K, bits=BITS, n_jobs=1, progress=False).fit(X, y)
    ours = seconds(lambda: model.value(X_val, y_val)) / 5
    distances = np.sqrt(((X_val[:, None] - X) ** 2).sum(axis=2))
    rows = []
    for subtract, name in ((True, "tables by subtraction"), (False, "a table for every row")):
        order = np.argsort(distances[0])
        levels = np.rint((2**BITS - 1) * distances[0].min() / distances[0][order]).astype(int)
        signed = np.where(y[order] == y_val[0], levels, -levels)
        repeats = 2 if subtract else 1
        theirs = seconds(lambda signed=signed, s=subtract: published_weighted(signed, K, 0.5, subtract=s), repeats)
        found = model.value(X_val[:1], y_val[:1]).values[order]
        error = np.abs(found - published_weighted(signed, K, 0.5, subtract=subtract)).max()
        rows.append(
            (
                f"weighted, N={n:,}, K={K}, {BITS} bits: {name}",
                f"{1e3 * ours:.2f} ms",
                f"{1e3 * theirs:,.0f} ms",
                f"{theirs / ours:,.0f} x",
                f"{error:.0e}",
            )
        )
    return rows


def regression_row(n: int) -> tuple[str, ...]:
    """Compare regression values at N rows."""
    rng = np.random.default_rng(0)
    X, y, X_val, y_val = rng.normal(size=(n, 8)), rng.normal(size=n), rng.normal(size=(20, 8)), rng.normal(size=20)
    model = KNNRegressionShapley(K, utility="hard", baseline="published", n_jobs=1, progress=False).fit(X, y)
    ours = seconds(lambda: model.value(X_val, y_val)) / 20
    order = np.argsort(((X - X_val[0]) ** 2).sum(axis=1))
    theirs = seconds(lambda: published_regression(y[order], y_val[0], K), 1)
    error = np.abs(model.value(X_val[:1], y_val[:1]).values[order] - published_regression(y[order], y_val[0], K)).max()
    return (
        f"regression, N={n:,}, K={K}: sums anew for every row",
        f"{1e3 * ours:.2f} ms",
        f"{1e3 * theirs:,.0f} ms",
        f"{theirs / ours:,.0f} x",
        f"{error:.0e}",
    )


def own_rows() -> list[tuple[str, ...]]:
    """Time the methods without a published counterpart that works at this size."""
    rng = np.random.default_rng(0)
    n = 1_000_000
    X, y, X_val, y_val = rng.normal(size=(n, 8)), rng.integers(0, 2, n), rng.normal(size=(8, 8)), rng.integers(0, 2, 8)
    threshold = ThresholdKNNShapley(2.0, n_jobs=1, progress=False).fit(X, y)
    time_threshold = seconds(lambda: threshold.value(X_val, y_val), 2) / 8
    small = KNNShapley(K, n_jobs=1, progress=False).fit(X[:2000], y[:2000])
    points = rng.normal(size=(50, 8)), rng.integers(0, 2, 50)
    time_pairs = seconds(lambda: knn_interactions(small, *points, progress=False), 2) / 50
    return [
        (f"threshold, N={n:,}", f"{1e3 * time_threshold:.1f} ms", "", f"{n / time_threshold / 1e6:.0f} M rows/s", ""),
        (
            "interactions, N=2,000, all pairs",
            f"{1e3 * time_pairs:.2f} ms",
            "",
            f"{2000**2 / time_pairs / 1e9:.2f} G pairs/s",
            "",
        ),
    ]


def main() -> None:
    """Print the table."""
    table = Table("per validation point, one thread", ">here", ">plain NumPy", ">ratio", ">largest difference")
    for column in table.columns[1:]:
        column.justify = "right"
        column.header = str(column.header).removeprefix(">")
    for row in (*weighted_rows(500), regression_row(2_000), regression_row(10_000), *own_rows()):
        table.add_row(*row)
    Console(width=130).print(table)


if __name__ == "__main__":
    main()
