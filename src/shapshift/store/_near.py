"""Where the nearest rows are enough: lists of them, longer than needed.

Two kinds of values ask for no more. Leave-one-out, Banzhaf and calibrated values have a rank table that is flat beyond
a few ranks. And with ``method="truncated"`` all rows beyond those that ``tol`` needs are one tie group. Either way the
values follow from the list of the nearest rows as in :mod:`shapshift.truncated`; for a flat table the error is zero.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.boundary import nearest_level
from shapshift.coefficients import RankTable
from shapshift.distances import Filler
from shapshift.kernels.lists import count_left, merge_new, take_heads
from shapshift.kernels.truncated import add_bounds, add_points
from shapshift.list_sums import value_lists
from shapshift.search import Lists, exact_search
from shapshift.store._chunks import Codes, Floats, Rows, Values

# Ranks beyond which the table differs from its last entry by less than this do not matter to any double.
FLAT = 2.0**-70
# Candidates that are kept beyond those that matter.
SPARE = 64


def ranks_that_matter(table: RankTable) -> int:
    """How many of the nearest rows have an influence on values.

    Examples
    --------
    >>> from shapshift.coefficients import rank_table
    >>> [ranks_that_matter(rank_table(100_000, 5, name, "soft")) for name in ("loo", "banzhaf", "shapley")]
    [5, 89, 99999]
    """
    away = np.abs(table.c - table.c[-1]) > FLAT
    return int(away.size - np.argmax(away[::-1])) if away.any() else 0


@dataclass(frozen=True)
class Near:
    """The nearest rows of a few points; see :class:`shapshift.store._chunks.Orders`.

    Attributes
    ----------
    ends, rows, distances
        As in :class:`shapshift.search.Lists`, rows as int32; some may be gone.
    reach : float64 (b,)
        All rows up to this distance are on the list.
    """

    ends: npt.NDArray[np.int64]
    rows: npt.NDArray[np.int32]
    distances: Floats
    reach: Floats
    n_added = 0

    def with_rows(self, fill: Filler, targets: Codes, codes: Codes, first: int) -> "Near":
        """Put new rows into the lists that reach them."""
        tile = np.empty((self.reach.size, codes.size))
        fill(slice(0, self.reach.size), slice(0, codes.size), tile)
        return Near(*merge_new(self.ends, self.rows, self.distances, self.reach, tile, first), self.reach)

    def renumbered(self, numbers: Codes, scratch: str | None) -> "Near":
        """Leave out the rows that are gone, and give the others new numbers."""
        return self._cut(numbers, self.rows.size)

    def refreshed(self, rows: Rows, search: Callable[[npt.NDArray[np.int64]], "Near"]) -> "Near":
        """Search points anew that have lost too many of their rows, and cut back lists that have become too long."""
        near = self
        if near.rows.size > 2 * _kept(rows) * near.reach.size:
            left = count_left(near.ends, near.rows, rows.alive, near.rows.size)
            cut = near._cut(rows.numbers, _kept(rows))
            shorter = np.flatnonzero(np.diff(cut.ends) < left)
            reach = near.reach.copy()
            reach[shorter] = cut.distances[cut.ends[shorter + 1] - 1]
            near = replace(cut, reach=reach)
        left = count_left(near.ends, near.rows, rows.alive, rows.needed)
        short = np.flatnonzero((left < rows.needed) & np.isfinite(near.reach))
        return _replace_some(near, short, search(short)) if short.size else near

    def value(self, targets: Codes, rows: Rows) -> Values:
        """Value the points."""
        lists, entropy = self._heads(rows), np.empty(targets.size)
        changes, tails, bounds = value_lists(
            lists, rows.codes, targets, rows.sizes, rows.table.c, rows.beyond, rows.bases(targets), rows.average,
            rows.depth, entropy,
        )  # fmt: skip
        levels = nearest_level(entropy, rows.levels)

        def add(sums: Floats, bound: Floats) -> tuple[Floats, Floats]:
            if sums.size == 0:
                sums = np.zeros((rows.levels.size, rows.codes.size))
                bound = np.zeros(rows.codes.size if rows.bounded else 0)
            # Far rows are added up from ``tails`` and ``bounds`` when a valuation is asked for.
            none = np.zeros(rows.levels.size), np.zeros((rows.levels.size, rows.sizes.size))
            add_points(lists.ends, lists.rows, changes, tails, targets, levels, sums, *none)
            if rows.bounded:
                add_bounds(lists.ends, lists.rows, rows.codes, targets, bounds, bound, none[0], none[1][0])
            return sums, bound

        return Values(entropy, tails, bounds, add)

    def _cut(self, numbers: Codes, wanted: int) -> "Near":
        ends, rows, distances = take_heads(self.ends, self.rows, self.distances, numbers, wanted, True)
        return Near(ends, rows.astype(np.int32), distances.copy(), self.reach)

    def _heads(self, rows: Rows) -> Lists:
        """Return as many of the rows as are needed."""
        heads = take_heads(self.ends, self.rows, self.distances, rows.numbers, rows.needed, rows.average)
        return Lists(*heads, np.diff(heads[0]), np.empty((self.reach.size, 0)))


def order_nearest(fill: Filler, n_points: int, rows: Rows) -> Near:
    """Find the nearest rows of some points, more than needed, and all that are tied for the last place."""
    living = np.flatnonzero(rows.alive)
    search = exact_search(_only(fill, living), living.size, min(_kept(rows), living.size), whole_ties=True)
    lists = search.find(0, n_points, np.empty((n_points, 0), dtype=np.int64))
    last = lists.distances[lists.ends[1:] - 1]
    reach = np.where(np.diff(lists.ends) < living.size, last, np.inf)
    return Near(lists.ends, living[lists.rows].astype(np.int32), lists.distances, reach)


def _kept(rows: Rows) -> int:
    """How many rows a search looks for."""
    return rows.needed + rows.needed // 2 + SPARE


def _replace_some(near: Near, which: npt.NDArray[np.int64], others: Near) -> Near:
    """Put new lists in the place of some."""
    parts: list[Any] = [(near, p) for p in range(near.reach.size)]
    for k, p in enumerate(which.tolist()):
        parts[p] = (others, k)
    cuts = [(lists, slice(lists.ends[p], lists.ends[p + 1])) for lists, p in parts]
    return Near(
        ends=np.cumsum([0, *(cut.stop - cut.start for _, cut in cuts)]),
        rows=np.concatenate([lists.rows[cut] for lists, cut in cuts]),
        distances=np.concatenate([lists.distances[cut] for lists, cut in cuts]),
        reach=np.array([lists.reach[p] for lists, p in parts]),
    )


def _only(fill: Filler, living: npt.NDArray[np.int64]) -> Filler:
    """Distances to the rows that are there."""

    def fill_some(here: slice, rows: slice, tile: Floats) -> None:
        chosen = living[rows]
        if chosen.size and chosen[-1] - chosen[0] == chosen.size - 1:  # none is missing
            fill(here, slice(int(chosen[0]), int(chosen[-1]) + 1), tile)
            return
        whole = np.empty((tile.shape[0], int(chosen[-1] - chosen[0]) + 1))
        fill(here, slice(int(chosen[0]), int(chosen[-1]) + 1), whole)
        tile[:] = whole[:, chosen - chosen[0]]

    return fill_some
