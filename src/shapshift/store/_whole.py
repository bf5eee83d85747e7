"""Where every rank matters: the order of all rows around each point.

To Shapley and Beta values no row is too far away. Nothing is sorted again when rows come or go: those that are gone are
passed over, and new ones are kept beside the order, with their places in it, until they are merged for good.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.boundary import nearest_level
from shapshift.distances import Filler
from shapshift.kernels.orders import make_order, merge_order, order_entropy, place_new, walk_order, walk_orders
from shapshift.rowfile import spilled
from shapshift.store._chunks import Codes, Floats, Rows, Values

Indices = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Whole:
    """The order of all rows around a few points; see :class:`shapshift.store._chunks.Orders`.

    Attributes
    ----------
    words, distances : ndarray of shape (b, n)
        The order around each point, as it was when it was made; see :mod:`shapshift.kernels.orders`.
    tied : bool (b,)
        Whether any two rows are equally far away.
    added, added_distances, places : ndarray of shape (b, k)
        Rows that came since.
    """

    words: Words
    distances: Floats
    tied: npt.NDArray[np.bool_]
    added: Words
    added_distances: Floats
    places: Indices

    @property
    def n_added(self) -> int:
        """How many rows are still beside the order that they belong to."""
        return int(self.added.shape[1])

    def with_rows(self, fill: Filler, targets: Codes, codes: Codes, first: int) -> "Whole":
        """Find the places of new rows."""
        b, k = targets.size, codes.size
        tile = np.empty((b, k))
        fill(slice(0, b), slice(0, k), tile)
        words = (np.arange(first, first + k)[None, :] << 2 | (codes == targets[:, None]) << 1).astype(np.uint32)
        shape, tied = (b, self.n_added + k), self.tied.copy()
        added = np.empty(shape, dtype=np.uint32), np.empty(shape), np.empty(shape, dtype=np.int64)
        for p in range(b):
            tied[p] |= place_new(
                self.distances[p], self.added[p], self.added_distances[p], self.places[p], words[p],
                tile[p], *(part[p] for part in added),
            )  # fmt: skip
        return Whole(self.words, self.distances, tied, *added)

    def renumbered(self, numbers: Codes, scratch: str | None) -> "Whole":
        """Merge what came, leave out what went, and give the rows new numbers."""
        b, n = self.tied.size, int((numbers >= 0).sum())
        words, distances = _room((b, n), np.uint32, scratch), _room((b, n), np.float64, scratch)
        most = self.words.shape[1] + self.n_added
        merged, origins = np.empty(most, dtype=np.uint32), np.empty(most, dtype=np.int64)
        for p in range(b):
            merge_order(self.words[p], self.added[p], self.places[p], numbers, merged, origins)
            words[p] = merged[:n]
            # New ones are counted from the end.
            distances[p] = np.concatenate([self.distances[p], self.added_distances[p, ::-1]])[origins[:n]]
        return whole_orders(words, distances)

    def value(self, targets: Codes, rows: Rows) -> Values:
        """Value the points: all but those of orders with ties in one go."""
        c, b = rows.table.c, targets.size
        out = np.zeros((rows.levels.size, rows.codes.size))
        entropy, counts = np.empty(b), np.zeros(rows.sizes.size)
        # Of an order without ties only the nearest rows are merged, for their labels; the others while one walks.
        quick = ~self.tied | (not rows.average)
        none = np.empty(0, dtype=np.int64)
        for p in range(b):
            order = self._head(p, rows, none) if quick[p] else self._merged(p, rows, none)
            entropy[p] = order_entropy(order, rows.codes, rows.depth, rows.average, counts)
            if not quick[p]:
                level = nearest_level(entropy[p : p + 1], rows.levels)[0]
                walk_order(order, c, rows.average, out[level])
        if quick.any():
            which, levels = np.flatnonzero(quick), nearest_level(entropy, rows.levels)
            which = which[np.argsort(levels[which], kind="stable")]
            out[:, rows.alive == 0] = np.nan
            walk_orders(self.words, self.added, self.places, which, rows.steps, levels, out)
        bases = rows.bases(targets)

        def add(sums: Floats, bound: Floats) -> tuple[Floats, Floats]:
            if sums.size == 0:
                return out, np.empty(0)
            sums += out
            return sums, bound

        return Values(entropy, np.stack([bases, bases + c[-1]], axis=1), np.zeros((b, 3)), add)

    def _merged(self, p: int, rows: Rows, none: Indices) -> Words:
        words, added, places = self.words[p], self.added[p], self.places[p]
        merged = np.empty(words.size + added.size, dtype=np.uint32)
        return merged[: merge_order(words, added, places, rows.numbers, merged, none)]

    def _head(self, p: int, rows: Rows, none: Indices) -> Words:
        """Return the nearest rows of a point, merged: enough for the labels around it."""
        width = 2 * rows.depth
        while True:
            words = self.words[p, :width]
            few = int(
                np.searchsorted(self.places[p], words.size, side="left" if width < self.words.shape[1] else "right")
            )
            merged = np.empty(words.size + few, dtype=np.uint32)
            size = merge_order(words, self.added[p, :few], self.places[p, :few], rows.numbers, merged, none)
            if size >= rows.depth:
                return merged[:size]
            width *= 2


def whole_orders(words: Words, distances: Floats) -> Whole:
    """Return orders to which nothing was added yet."""
    b = words.shape[0]
    tied = np.array([bool((w & 1).any()) for w in words], dtype=np.bool_)
    nothing = np.empty((b, 0))
    return Whole(words, distances, tied, nothing.astype(np.uint32), nothing, nothing.astype(np.int64))


def order_all(fill: Filler, targets: Codes, rows: Rows, scratch: str | None) -> Whole:
    """Order all rows around some points."""
    b, n = targets.size, rows.codes.size
    words, distances = _room((b, n), np.uint32, scratch), _room((b, n), np.float64, scratch)
    work, keys, tile = np.empty((2, n), dtype=np.uint64), np.empty(n), np.empty((b, n))
    fill(slice(0, b), slice(0, n), tile)
    for p in range(b):
        make_order(tile[p], rows.codes, int(targets[p]), work, keys, words[p], distances[p])
    return whole_orders(words, distances)


def _room(shape: tuple[int, int], kind: Any, scratch: str | None) -> Any:
    return np.empty(shape, dtype=kind) if scratch is None else spilled(scratch, shape, kind)
