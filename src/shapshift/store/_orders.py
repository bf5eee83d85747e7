"""What is kept of a few validation points: the training rows around each, in order of distance.

There are two kinds. Where the rank table is flat beyond a few ranks (leave-one-out, Banzhaf, calibrated values), the
nearest rows are enough: a point keeps twice as many as matter and is searched anew only when too many of them are gone.
Otherwise (Shapley and Beta values) every row's value depends on all ranks, and a point keeps the order of all rows.
"""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.boundary import nearest_level
from shapshift.coefficients import RankTable
from shapshift.distances import Filler
from shapshift.kernels.orders import find_places, make_order, merge_order, order_entropy, walk_order, walk_orders
from shapshift.rowfile import spilled
from shapshift.search import exact_search

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]

# Points that are kept together: a worker's task.
CHUNK = 64
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
class Rows:
    """The training rows as the orders see them.

    Attributes
    ----------
    codes : int32 (slots,)
        Class of each row, of those that are gone too.
    alive : uint8 (slots,)
    table : RankTable
        Of the rows that are there.
    depth, n_classes : int
    levels : ndarray
        Entropies that can occur.
    average : bool
    """

    codes: npt.NDArray[np.int32]
    alive: npt.NDArray[np.uint8]
    table: RankTable
    depth: int
    n_classes: int
    levels: Floats
    average: bool


@dataclass
class Chunk:
    """A few validation points of one group and the orders around them.

    Attributes
    ----------
    points : ndarray or csr_array of shape (b, d)
    targets : int32 (b,)
        Class numbers.
    words, distances : list of ndarray
        The order around each point, as it was when it was made; see :mod:`shapshift.kernels.orders`. Both are arrays
        of shape (b, n) where all rows are kept.
    reach : float64 (b,)
        All rows up to this distance are in the order.
    added, added_distances, places : ndarray of shape (b, k)
        Rows that came since.
    tied : bool (b,)
        Whether any two rows are equally far away.
    entropy : float64 (b,)
    """

    points: Any
    targets: npt.NDArray[np.int32]
    words: Any
    distances: Any
    reach: Floats
    tied: npt.NDArray[np.bool_]
    added: Words = field(default_factory=lambda: np.empty((0, 0), dtype=np.uint32))
    added_distances: Floats = field(default_factory=lambda: np.empty((0, 0)))
    places: Indices = field(default_factory=lambda: np.empty((0, 0), dtype=np.int64))
    entropy: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def size(self) -> int:
        """Number of points."""
        return self.targets.size

    @property
    def whole(self) -> bool:
        """Whether the orders are of all rows."""
        return isinstance(self.words, np.ndarray)

    def copy(self) -> "Chunk":
        """Return a chunk that can be changed while this one stays as it is."""
        lists = [self.words, self.distances] if self.whole else [list(self.words), list(self.distances)]
        return replace(self, words=lists[0], distances=lists[1], tied=self.tied.copy())

    def clear_added(self) -> None:
        """Forget what came since: it has been merged, or there is nothing yet."""
        self.added = np.empty((self.size, 0), dtype=np.uint32)
        self.added_distances = np.empty((self.size, 0))
        self.places = np.empty((self.size, 0), dtype=np.int64)


@dataclass
class Group:
    """Validation points under one name.

    Attributes
    ----------
    weight : float
    chunks : list of Chunk
    sums : ndarray of shape (levels, slots)
        Values summed over the points at each entropy level, less what is the same for all rows of a class.
    """

    weight: float = 1.0
    chunks: list[Chunk] = field(default_factory=list)
    sums: Floats = field(default_factory=lambda: np.empty((0, 0)))

    @property
    def size(self) -> int:
        """Number of points."""
        return sum(chunk.size for chunk in self.chunks)

    def copy(self) -> "Group":
        """Return a group that can be changed while this one stays as it is."""
        return Group(self.weight, [chunk.copy() for chunk in self.chunks], self.sums)


def order_all(fill: Filler, points: Any, targets: npt.NDArray[np.int32], rows: Rows, scratch: str | None) -> Chunk:
    """Order all rows around some points."""
    b, n = targets.size, rows.codes.size
    make = np.empty if scratch is None else lambda shape, dtype: spilled(scratch, shape, dtype)
    words, distances = make((b, n), np.uint32), make((b, n), np.float64)
    work, keys, tile = np.empty((2, n), dtype=np.uint64), np.empty(n), np.empty((b, n))
    fill(slice(0, b), slice(0, n), tile)
    for p in range(b):
        make_order(tile[p], rows.codes, int(targets[p]), work, keys, words[p], distances[p])
    tied = np.array([bool((w & 1).any()) for w in words])
    chunk = Chunk(points, targets, words, distances, np.full(b, np.inf), tied)
    chunk.clear_added()
    return chunk


def order_nearest(fill: Filler, points: Any, targets: npt.NDArray[np.int32], rows: Rows, wanted: int) -> Chunk:
    """Order the nearest rows around some points, all of those that are tied for the last place included."""
    b = targets.size
    living = np.flatnonzero(rows.alive)
    lists = exact_search(_only(fill, living), living.size, wanted, whole_ties=True).find(
        0, b, np.empty((b, 0), dtype=np.int64)
    )
    chunk = Chunk(points, targets, [], [], np.empty(b), np.ones(b, dtype=np.bool_))
    for p in range(b):
        near = slice(*lists.ends[p : p + 2])
        found, distances = living[lists.rows[near]], lists.distances[near]
        tied = np.append(False, distances[1:] == distances[:-1])
        match = rows.codes[found] == targets[p]
        chunk.words.append((found << 2 | match << 1 | tied).astype(np.uint32))
        chunk.distances.append(distances)
        chunk.reach[p] = distances[-1] if found.size < living.size else np.inf
    chunk.clear_added()
    return chunk


def _only(fill: Filler, living: Indices) -> Filler:
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


def add_to_orders(chunk: Chunk, fill: Filler, codes: npt.NDArray[np.int32], first: int, average: bool) -> None:
    """Find the places of new rows in the orders of a chunk.

    Parameters
    ----------
    chunk : Chunk
    fill : callable
        Distances of the chunk's points to the new rows.
    codes : int32 (k,)
        Classes of the new rows.
    first : int
        Number of the first of them.
    average : bool
    """
    k = codes.size
    tile = np.empty((chunk.size, k))
    fill(slice(0, chunk.size), slice(0, k), tile)
    words = (np.arange(first, first + k)[None, :] << 2 | (codes == chunk.targets[:, None]) << 1).astype(np.uint32)
    if chunk.whole:
        # The old ones first: of rows that are tied, the older ones have lower numbers.
        words = np.concatenate([chunk.added, words], axis=1)
        tile = np.concatenate([chunk.added_distances, tile], axis=1)
    order = np.argsort(tile, axis=1, kind=None if average else "stable")
    words = np.take_along_axis(words, order, axis=1)
    tile = np.take_along_axis(tile, order, axis=1)
    if chunk.whole:
        chunk.places = np.empty(words.shape, dtype=np.int64)
        for p in range(chunk.size):
            chunk.tied[p] |= find_places(chunk.distances[p], tile[p], words[p], chunk.places[p])
        chunk.added, chunk.added_distances = words, tile
        return
    same = np.arange(first + k, dtype=np.int32)
    for p in range(chunk.size):
        inside = int(np.searchsorted(tile[p], chunk.reach[p], side="right"))
        _merge_into(chunk, p, words[p, :inside], tile[p, :inside], same)


def _merge_into(chunk: Chunk, p: int, added: Words, added_distances: Floats, numbers: npt.NDArray[np.int32]) -> None:
    """Merge new rows into one order for good, and renumber."""
    places = np.empty(added.size, dtype=np.int64)
    find_places(chunk.distances[p], added_distances, added, places)
    most = chunk.words[p].size + added.size
    merged, origins = np.empty(most, dtype=np.uint32), np.empty(max(most, 1), dtype=np.int64)
    size = merge_order(chunk.words[p], added, places, numbers, merged, origins)
    both = np.concatenate([chunk.distances[p], added_distances[::-1]])  # new ones are counted from the end
    chunk.words[p], chunk.distances[p] = merged[:size].copy(), both[origins[:size]]


def renumber(chunk: Chunk, numbers: npt.NDArray[np.int32], scratch: str | None) -> None:
    """Merge what came, drop what went, and give the rows new numbers (negative for those that are gone)."""
    if not chunk.whole:
        for p in range(chunk.size):
            _merge_into(chunk, p, np.empty(0, dtype=np.uint32), np.empty(0), numbers)
        return
    n = int((numbers >= 0).sum())
    make = np.empty if scratch is None else lambda shape, dtype: spilled(scratch, shape, dtype)
    words, distances = make((chunk.size, n), np.uint32), make((chunk.size, n), np.float64)
    most = chunk.words.shape[1] + chunk.added.shape[1]
    merged, origins = np.empty(most, dtype=np.uint32), np.empty(most, dtype=np.int64)
    for p in range(chunk.size):
        merge_order(chunk.words[p], chunk.added[p], chunk.places[p], numbers, merged, origins)
        words[p] = merged[:n]
        distances[p] = np.concatenate([chunk.distances[p], chunk.added_distances[p, ::-1]])[origins[:n]]
        chunk.tied[p] = bool((words[p] & 1).any())
    chunk.words, chunk.distances = words, distances
    chunk.clear_added()


def short_of(chunk: Chunk, rows: Rows, needed: int) -> bool:
    """Whether a point of the chunk has lost so many of its nearest rows that it must be searched anew."""
    return not chunk.whole and any(
        np.isfinite(chunk.reach[p]) and int(rows.alive[chunk.words[p] >> 2].sum()) < needed for p in range(chunk.size)
    )


def value_chunk(chunk: Chunk, rows: Rows) -> Floats:
    """Add up the values of a chunk's points, less what is the same for all rows of a class, per entropy level.

    Returns
    -------
    ndarray of shape (levels, slots)
        What rows have that are gone means nothing.
    """
    c = rows.table.c
    out = np.zeros((rows.levels.size, rows.codes.size))
    chunk.entropy = np.empty(chunk.size)
    counts = np.zeros(rows.n_classes)
    # Of an order without ties only the nearest rows are merged, for their labels; the others are merged as one goes.
    quick = (~chunk.tied | (not rows.average)) & chunk.whole
    numbers = np.where(rows.alive, np.arange(rows.alive.size, dtype=np.int32), np.int32(-1))
    none = np.empty(0, dtype=np.int64)
    for p in range(chunk.size):
        order = _head(chunk, p, rows, numbers, none) if quick[p] else _merged(chunk, p, numbers, none)
        chunk.entropy[p] = order_entropy(order, rows.codes, rows.depth, rows.average, counts)
        if not quick[p]:
            level = nearest_level(chunk.entropy[p : p + 1], rows.levels)[0]
            walk_order(order, c, rows.average, out[level])
    if quick.any():
        which, levels = np.flatnonzero(quick), nearest_level(chunk.entropy, rows.levels)
        which = which[np.argsort(levels[which], kind="stable")]
        walk_orders(
            chunk.words, chunk.added, chunk.places, which, rows.alive, c - c[-1], np.diff(c, prepend=c[0]), levels, out
        )
    return out


def _merged(chunk: Chunk, p: int, numbers: npt.NDArray[np.int32], none: Indices) -> Words:
    words, added, places = chunk.words[p], chunk.added[p], chunk.places[p]
    merged = np.empty(words.size + added.size, dtype=np.uint32)
    return merged[: merge_order(words, added, places, numbers, merged, none)]


def _head(chunk: Chunk, p: int, rows: Rows, numbers: npt.NDArray[np.int32], none: Indices) -> Words:
    """Return the nearest rows of a point, merged: enough for the labels around it."""
    width = 2 * rows.depth
    while True:
        words = chunk.words[p, :width]
        few = int(
            np.searchsorted(chunk.places[p], words.size, side="left" if width < chunk.words.shape[1] else "right")
        )
        merged = np.empty(words.size + few, dtype=np.uint32)
        size = merge_order(words, chunk.added[p, :few], chunk.places[p, :few], numbers, merged, none)
        if size >= rows.depth:
            return merged[:size]
        width *= 2
