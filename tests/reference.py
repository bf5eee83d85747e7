"""Answers at sizes that enumeration cannot reach; each is itself checked against ``naive`` in ``test_naive``.

``exact_table`` is the coefficient table of a semivalue in rational arithmetic, ``shapley_table`` the closed forms,
and ``rank_values`` turns distances and a table into values, tie groups included.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

import numpy as np

Semivalue = str | tuple[str, float] | tuple[str, float, float]


@dataclass(frozen=True)
class Table:
    """Coefficients of v_r = a_r c_r + sum_{j>r} a_j (c_j - c_{j-1}) + per_match M - empty / C."""

    c: np.ndarray
    per_match: float
    empty: float


# --- tables ---------------------------------------------------------------------------------------------------------


def exact_size_weights(n_rows: int, n_neighbors: int, semivalue: Semivalue) -> list[Fraction]:
    """p(s) for s = 0..N-1 as fractions."""
    others = n_rows - 1
    if isinstance(semivalue, tuple) and semivalue[0] == "banzhaf":
        return [Fraction(semivalue[1]) ** s * (1 - Fraction(semivalue[1])) ** (others - s) for s in range(n_rows)]
    if isinstance(semivalue, tuple):
        alpha, beta = Fraction(semivalue[1]), Fraction(semivalue[2])
        total = _rising(alpha + beta, others)
        return [_rising(beta, s) * _rising(alpha, others - s) / total for s in range(n_rows)]
    if semivalue == "banzhaf":
        return [Fraction(1, 2**others)] * n_rows
    if semivalue == "loo":
        return [Fraction(int(s == others)) for s in range(n_rows)]
    smallest = max(0, n_rows - 2 * n_neighbors) if semivalue == "calibrated" else 0
    return [
        Fraction(int(s >= smallest), (n_rows - smallest) * math.comb(others, s)) for s in range(n_rows)
    ]  # uniform over the sizes from the smallest on; all of them for Shapley


def _rising(start: Fraction, length: int) -> Fraction:
    product = Fraction(1)
    for step in range(length):
        product *= start + step
    return product


@cache
def _pairs_seen(n_rows: int, rank: int, size: int) -> tuple[int, ...]:
    """How many subsets of that size (two neighbours in rank left out) have fewer than k = 0, 1, .. nearer rows."""
    nearer, farther = rank - 1, n_rows - 1 - rank
    counts = [0]
    for t in range(size + 1):
        counts.append(counts[-1] + math.comb(nearer, t) * math.comb(farther, size - t))
    return tuple(counts)


def exact_table(
    n_rows: int, n_neighbors: int, semivalue: Semivalue, utility: str
) -> tuple[list[Fraction], Fraction, Fraction]:
    """The general sum for c, and per_match and empty, without rounding."""
    p = exact_size_weights(n_rows, n_neighbors, semivalue)
    c = []
    for rank in range(1, n_rows):
        total = Fraction(0)
        for size in range(n_rows - 1):
            seen = _pairs_seen(n_rows, rank, size)
            voters = n_neighbors if utility == "hard" else min(n_neighbors, size + 1)
            total += (p[size] + p[size + 1]) * seen[min(n_neighbors, len(seen) - 1)] / voters
        c.append(total)
    few = range(min(n_neighbors, n_rows))
    if utility == "hard":
        c.append(sum((math.comb(n_rows - 1, s) * p[s] for s in few), Fraction(0)) / n_neighbors)
        return c, Fraction(0), Fraction(0)
    h = sum((math.comb(n_rows - 1, s) * p[s] / (s + 1) for s in few if s), Fraction(0))
    per_row = h / (n_rows - 1) if n_rows > 1 else Fraction(0)
    c.append(h + per_row + p[0])
    return c, -per_row, p[0]


def shapley_table(n_rows: int, n_neighbors: int, utility: str) -> Table:
    """The closed forms of the Shapley value."""
    rank = np.arange(1, n_rows + 1, dtype=float)
    if utility == "hard":
        return Table(1 / np.maximum(rank, n_neighbors), 0.0, 0.0)
    if n_rows == 1:
        return Table(np.ones(1), 0.0, 1.0)
    k = min(n_neighbors, n_rows)
    harmonic = math.fsum(1 / j for j in range(1, k + 1))
    c = (harmonic - 1 + (n_rows - 1) * np.minimum(rank, k) / (rank * k)) / (n_rows - 1)
    return Table(c, -(harmonic - 1) / (n_rows * (n_rows - 1)), 1 / n_rows)


# --- values ---------------------------------------------------------------------------------------------------------


def rank_values(distances: np.ndarray, matches: np.ndarray, table: Table, n_classes: int, ties: str) -> np.ndarray:
    """Values (n_train, n_validation), like a valuation's matrix; distances and matches are (n_validation, n_train)."""
    return np.stack(
        [_point_values(d, a, table, n_classes, ties) for d, a in zip(distances, matches, strict=True)], axis=1
    )


def _point_values(distances: np.ndarray, matches: np.ndarray, table: Table, n_classes: int, ties: str) -> np.ndarray:
    order = np.argsort(distances, kind="stable")
    a = matches[order].astype(float)
    starts_group = np.ones(len(a), dtype=bool)
    if ties == "average":
        starts_group[1:] = np.diff(distances[order]) != 0
    starts = np.flatnonzero(starts_group)
    sizes = np.diff(np.append(starts, len(a)))
    n_matching = np.add.reduceat(a, starts)
    mean_c = np.add.reduceat(table.c, starts) / sizes
    last_c = table.c[starts + sizes - 1]
    # What a group adds to every row before it, summed from the far end; the first group has nobody before it.
    handed_down = n_matching[1:] / sizes[1:] * (last_c[1:] - last_c[:-1])
    tail = np.append(np.cumsum(handed_down[::-1])[::-1], 0.0)
    tail += table.per_match * n_matching.sum() - table.empty / n_classes
    group = np.cumsum(starts_group) - 1
    other_matches = (n_matching[group] - a) / np.maximum(sizes[group] - 1, 1)
    values = np.empty(len(a))
    values[order] = a * mean_c[group] + other_matches * (last_c - mean_c)[group] + tail[group]
    return values


# --- distances ------------------------------------------------------------------------------------------------------


def distance_matrix(X_val: np.ndarray, X: np.ndarray, metric: str) -> np.ndarray:
    """``naive.distance_matrix`` a column at a time: the same additions in the same order."""
    X_val, X = np.asarray(X_val, dtype=float), np.asarray(X, dtype=float)
    if metric == "cosine":
        norms = np.linalg.norm(X_val, axis=1)[:, None] * np.linalg.norm(X, axis=1)[None, :]
        with np.errstate(invalid="ignore"):
            return np.where(norms > 0, 1 - (X_val @ X.T) / norms, 1.0)
    total = np.zeros((len(X_val), len(X)))
    for column in range(X.shape[1]):
        difference = X[None, :, column] - X_val[:, None, column]
        total += np.abs(difference) if metric == "manhattan" else difference * difference
    return total
