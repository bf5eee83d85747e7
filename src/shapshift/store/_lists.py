"""Candidate lists: the nearest rows of each validation point, with some more than its values need.

Two kinds of values depend on no other rows. Leave-one-out, Banzhaf and calibrated values have a rank table that is flat
beyond a few ranks. With ``method="truncated"``, all rows beyond those that ``tol`` needs form one tie group. In both
cases the values follow from the list as in :mod:`shapshift.engine.truncated`; for a flat table the error is zero.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift.checks.labels import look_up_labels
from shapshift.engine.coefficients import RankTable
from shapshift.engine.lists import SAVED_POINTS, ListJob
from shapshift.engine.parallel import n_workers, stream
from shapshift.engine.rows.distances import Filler, tile_filler
from shapshift.engine.runner import Plan, Runner, n_blocks
from shapshift.engine.search import Lists, Search, cut_lists, exact_search, join_lists
from shapshift.engine.truncated import SORT_SHARE, ranks_needed
from shapshift.exceptions import InputError
from shapshift.kernels.nearest import merge_new, take_heads
from shapshift.knn.shapley import KNNShapley
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int32]

# Beyond the last rank where the table differs from its last entry by this, differences vanish in float64.
FLAT = 2.0**-70
# Number of spare candidates beyond those that matter.
SPARE = 64


class Candidates(NamedTuple):
    """The nearest rows of some points.

    Attributes
    ----------
    ends, rows, distances
        As in :class:`shapshift.engine.search.Lists`, rows as int32.
    reach : float64 (b,)
        All rows up to this distance are in the list.
    """

    ends: Indices
    rows: Numbers
    distances: Floats
    reach: Floats

    def check(self, n_points: int, n_rows: int, shortest: int) -> None:
        """Refuse lists that are damaged, or shorter than the boundary rule needs."""
        if self.ends.shape != (n_points + 1,) or self.reach.shape != (n_points,) or self.ends[0] != 0:
            raise InputError("the number of lists differs from the number of points")
        if not self.rows.shape == self.distances.shape == (self.ends[-1],):
            raise InputError("lists are incomplete")
        if np.diff(self.ends).min() < shortest or not (self.rows.min() >= 0 and self.rows.max() < n_rows):
            raise InputError("lists refer to rows that do not exist")

    def heads(self, wanted: int, whole_ties: bool) -> Lists:
        """Return the ``wanted`` nearest rows of each point, with all rows tied with the last if ``whole_ties``."""
        heads = take_heads(self.ends, self.rows, self.distances, wanted, whole_ties)
        return Lists(*heads, np.diff(heads[0]), np.empty((self.reach.size, 0)))

    def without(self, numbers: Numbers) -> "Candidates":
        """Renumber all rows, and leave out those with a negative number."""
        rows = numbers[self.rows]
        stay = rows >= 0
        ends = np.append(0, np.cumsum(stay))[self.ends]
        return Candidates(ends, rows[stay], self.distances[stay], self.reach)

    def cut(self, wanted: int) -> "Candidates":
        """Shorten lists of more than ``wanted`` rows."""
        lists, reach = self.heads(wanted, True), self.reach.copy()
        shorter = lists.certain < np.diff(self.ends)
        reach[shorter] = lists.distances[lists.ends[1:][shorter] - 1]
        return Candidates(lists.ends, lists.rows.astype(np.int32), lists.distances, reach)


def ranks_that_matter(table: RankTable) -> int:
    """How many of the nearest rows affect values.

    Examples
    --------
    >>> from shapshift.engine.coefficients import rank_table
    >>> [ranks_that_matter(rank_table(100_000, 5, name, "soft")) for name in ("loo", "banzhaf", "shapley")]
    [5, 89, 99999]
    """
    away = np.abs(table.c - table.c[-1]) > FLAT
    return int(away.size - np.argmax(away[::-1])) if away.any() else 0


def list_length(model: KNNShapley) -> int:
    """How many of the nearest rows the values of a point need; 0 if lists do not help."""
    n, table = model.codes_.size, model._rank_table(model.codes_.size)
    if model.method == "truncated":
        needed = max(ranks_needed(table, model._tol()), model._depth)
        return needed if needed < SORT_SHARE * n else 0  # otherwise values are exact, as they are without a store
    needed = max(ranks_that_matter(table) + 1, model._depth)
    return needed if 4 * needed + SPARE < n else 0


def find_candidates(model: KNNShapley, points: Any, needed: int) -> Candidates:
    """Find the lists of new points."""
    fill = tile_filler(model._index, points)
    return _by_blocks(model, points, lambda here: _search(fill, here, model.codes_.size, needed))


def update_candidates(
    model: KNNShapley, points: Any, candidates: Candidates, numbers: Numbers, needed: int
) -> Candidates:
    """Return the lists after a change of the training rows.

    Parameters
    ----------
    model : KNNShapley
        Fitted to the current rows, new ones at the end.
    points : ndarray or csr_array
    candidates : Candidates
        Lists before the change.
    numbers : int32
        New number of each earlier row, negative for removed rows.
    needed : int
        See :func:`list_length`.
    """
    fill, n = tile_filler(model._index, points), model.codes_.size
    stayed = int((numbers >= 0).sum())

    def update(here: slice) -> Candidates:
        lists = cut_lists(candidates, here)
        if stayed < numbers.size:
            lists = lists.without(numbers)
        if stayed < n:
            tile = np.empty((lists.reach.size, n - stayed))
            fill(here, slice(stayed, n), tile)
            merged = merge_new(lists.ends, lists.rows, lists.distances, lists.reach, tile, stayed)
            lists = Candidates(*merged, lists.reach)
        if lists.rows.size > 2 * _kept(needed) * lists.reach.size:
            lists = lists.cut(_kept(needed))
        # Points with too few remaining candidates are searched again.
        short = np.flatnonzero((np.diff(lists.ends) < needed) & np.isfinite(lists.reach))
        if short.size == 0:
            return lists
        found = _search(tile_filler(model._index, points[here.start + short]), slice(0, short.size), n, needed)
        parts = [cut_lists(lists, slice(p, p + 1)) for p in range(lists.reach.size)]
        for k, p in enumerate(short.tolist()):
            parts[p] = cut_lists(found, slice(k, k + 1))
        return join_lists(parts)

    return _by_blocks(model, points, update)


def value_candidates(
    model: KNNShapley, points: Any, labels: npt.NDArray[Any], candidates: Candidates, needed: int
) -> Valuation:
    """Value the training rows from the lists of all points."""
    average = model.ties == "average"
    targets = look_up_labels(labels, model.classes_, quiet=True)
    task = model._task(targets, fill=tile_filler(model._index, points))

    def find(start: int, stop: int, reference: Indices) -> Lists:
        return cut_lists(candidates, slice(start, stop)).heads(needed, average)

    job = ListJob(task, needed, SAVED_POINTS, Search(find, dict))
    runner = Runner(model.n_jobs, progress=model.progress)
    workers = runner.workers(n_blocks(job))
    totals, kept = runner.run(job, Plan(SAVED_POINTS, SAVED_POINTS, workers, 4 * workers), None)
    sums = totals.spread(kept)
    if model.method == "truncated":
        notes = {"tol": model._tol(), "exact_ranks": needed, "search": "exact"}
        sums = replace(sums, error_bound=sums.bounds[0] / task.n_val, notes=notes)
    return model._valuation(task, sums, model._about(task, sums) | sums.notes)


def _by_blocks(model: KNNShapley, points: Any, make: Callable[[slice], Candidates]) -> Candidates:
    """Join the lists that ``make`` returns for each block of points."""
    n = points.shape[0]
    blocks = [slice(lo, min(lo + SAVED_POINTS, n)) for lo in range(0, n, SAVED_POINTS)]
    parts: list[Candidates] = list(stream(make, blocks, min(n_workers(model.n_jobs), len(blocks))))
    return join_lists(parts)


def _search(fill: Filler, here: slice, n_rows: int, needed: int) -> Candidates:
    """Find the nearest rows of some points, some more than needed, and all rows tied with the last one."""
    search = exact_search(fill, n_rows, min(_kept(needed), n_rows), whole_ties=True)
    lists = search.find(here.start, here.stop, np.empty((here.stop - here.start, 0), dtype=np.int64))
    last = lists.distances[lists.ends[1:] - 1]
    reach = np.where(np.diff(lists.ends) < n_rows, last, np.inf)
    return Candidates(lists.ends, lists.rows.astype(np.int32), lists.distances, reach)


def _kept(needed: int) -> int:
    """How many rows a search looks for."""
    return needed + needed // 2 + SPARE
