"""Shared part of index searches: exact distances for the candidates, and exact lists where candidates do not suffice.

An index proposes candidates. Their distances are computed by the usual kernels, so a list can lack rows but never has
two rows in the wrong order. If the candidates may be incomplete (too few, or tied with possibly missing rows), the
point is searched exactly. A few random points are searched exactly too, to measure the recall.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shapshift.engine.rows.distances import Measure
from shapshift.engine.search.lists import Floats, Indices, Search, cut_lists, join_lists, wilson_interval
from shapshift.kernels.nearest import Lists, order_nearest

SEARCHES = ("exact", "ann", "lsh")
# Number of points on which the recall is measured.
CHECKED_POINTS = 32
SEED = 0


@dataclass(frozen=True)
class Proposals:
    """Functions that an index provides for a search.

    Attributes
    ----------
    propose : callable
        Candidate rows of points start..stop-1: for each point distinct row numbers, and a distance below which none is
        missing (0 if unknown).
    accept : callable
        From the ordered candidates' distances and that distance: the length of the list, and how many of its rows are
        certain; length 0 requests an exact search.
    report : callable
        Facts about the search for the result.
    """

    propose: Callable[[int, int], list[tuple[Indices, float]]]
    accept: Callable[[Floats, float], tuple[int, int]]
    report: Callable[[], dict[str, Any]]


@dataclass
class _Tally:
    """Statistics of a search; appending needs no lock."""

    recalls: list[float] = field(default_factory=list)
    sent_back: list[int] = field(default_factory=list)
    candidates: list[int] = field(default_factory=list)


def quick_search(
    proposals: Proposals,
    measure: Measure,
    exact_lists: Callable[[Indices, Indices], Lists],
    n_rows: int,
    n_val: int,
    wanted: int,
) -> Search:
    """Make lists from proposed candidates.

    Parameters
    ----------
    proposals : Proposals
    measure : callable
        Exact distances of one point to some rows.
    exact_lists : callable
        Exact lists of points that need them, with the ranks of some rows for each.
    n_rows, n_val, wanted : int
        Numbers of training rows and validation points; smallest number of rows of an exact list.
    """
    tally = _Tally()
    drawn = np.random.default_rng(SEED).choice(n_val, size=min(CHECKED_POINTS, n_val), replace=False)
    checked = frozenset(drawn.tolist())

    def from_candidates(p: int, rows: Indices, sure: float, asked: Indices) -> Lists | None:
        """Return the list of one point; None if the candidates do not suffice."""
        tally.candidates.append(rows.size)
        kept = 0
        if rows.size > wanted:
            rows, distances = rows.copy(), np.empty(rows.size)
            measure(p, rows, distances)
            # One more than wanted: a row nearer than that one cannot tie with a row outside the list.
            count = order_nearest(rows, distances, wanted + 1)
            kept, certain = proposals.accept(distances[:count], sure)
        if kept == 0:
            tally.sent_back.append(p)
            return None
        rows, distances = rows[:kept], distances[:kept]
        ranks = _ranks(rows, distances, asked, n_rows)
        return Lists(np.array([0, kept]), rows, distances, np.array([certain]), ranks[None, :])

    def find(start: int, stop: int, reference: Indices) -> Lists:
        parts = [
            from_candidates(p, rows, sure, reference[p - start])
            for p, (rows, sure) in enumerate(proposals.propose(start, stop), start)
        ]
        needed = [p for p, part in enumerate(parts) if part is None or start + p in checked]
        if needed:
            # All at once: a pass over the training rows takes as long for several points as for one.
            exact = exact_lists(start + np.array(needed), reference[needed])
            for number, p in enumerate(needed):
                quick, found = parts[p], cut_lists(exact, slice(number, number + 1))
                parts[p] = found
                if start + p in checked:
                    missing = quick is not None and ~np.isin(found.rows, quick.rows, assume_unique=True)
                    tally.recalls.append(1 - float(np.mean(missing)))
        return join_lists([part for part in parts if part is not None])

    def report() -> dict[str, Any]:
        recall = float(np.mean(sorted(tally.recalls)))  # sorted: workers finish in any order
        return {
            "recall": recall,
            "recall_interval": list(wilson_interval(recall, len(tally.recalls))),
            "complete_share": float(np.mean(np.array(tally.recalls) == 1)),
            "checked_points": len(tally.recalls),
            "exact_points": len(tally.sent_back),
            "candidate_share": sum(tally.candidates) / (n_rows * n_val),
            **proposals.report(),
        }

    return Search(find, report)


def graph_search(graph: Any, excluded: Indices | None) -> Search:
    """Return a search that gives the stored rows of a neighbour graph, all of each point.

    Parameters
    ----------
    graph : csr_array of shape (n_val, n_train)
        Distances, columns in order.
    excluded : ndarray of shape (n_val,) or None
        Training row that each point ignores; -1 for none.
    """

    def find(start: int, stop: int, reference: Indices) -> Lists:
        parts = []
        for p in range(start, stop):
            here = slice(graph.indptr[p], graph.indptr[p + 1])
            rows, distances = graph.indices[here].astype(np.int64), graph.data[here] + 0.0
            if excluded is not None:
                seen = rows != excluded[p]
                rows, distances = rows[seen], distances[seen]
            order = np.argsort(distances, kind="stable")  # ties by row number
            rows, distances = rows[order], distances[order]
            ranks = _ranks(rows, distances, reference[p - start], graph.shape[1])
            parts.append(Lists(np.array([0, rows.size]), rows, distances, np.array([rows.size]), ranks[None, :]))
        return join_lists(parts)

    return Search(find, dict)


def _ranks(rows: Indices, distances: Floats, asked: Indices, n_rows: int) -> Floats:
    """Rank of each requested row in a list; rows outside the list share the middle rank behind it."""
    ranks = np.full(asked.size, (rows.size + n_rows - 1) / 2)
    for j, row in enumerate(asked):
        at = np.flatnonzero(rows == row)
        if at.size:
            tied = np.flatnonzero(distances == distances[at[0]])
            ranks[j] = (tied[0] + tied[-1]) / 2
    return ranks
