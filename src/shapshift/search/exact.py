"""The nearest rows by looking at all of them."""

from typing import Any

import numpy as np

from shapshift.distances import Filler
from shapshift.kernels.buckets import count_nearer
from shapshift.kernels.nearest import select_nearest
from shapshift.search.lists import Floats, Indices, Lists, Search


def exact_search(
    fill: Filler, n_rows: int, wanted: int, *, whole_ties: bool, tile_rows: int, shard: int | None = None
) -> Search:
    """Select the nearest rows from tiles of distances.

    Parameters
    ----------
    fill : callable
        Computes distance tiles.
    n_rows, wanted : int
        How many training rows there are, and how many each list has at least.
    whole_ties : bool
        Let a list end with all rows that are tied with its last one, or at exactly ``wanted`` rows.
    tile_rows : int
        How many points may be looked at in one call.
    shard : int, optional
        Look at so many training rows at a time, all by default. Each shard gives its nearest rows, and from these come
        the nearest of all.
    """
    spare: list[tuple[Any, Any, Any]] = []  # scratch space, handed on from call to call: large arrays are dear to make
    width = n_rows if shard is None else min(shard, n_rows)

    def find(start: int, stop: int, reference: Indices) -> Lists:
        scratch = spare.pop() if spare else _scratch(tile_rows, width)
        lists: Lists | None = None
        asked = _asked(fill, start, stop, reference) if width < n_rows else None
        ranks = np.full(reference.shape, -0.5)  # a row is as near as itself, which counts by half
        for lo in range(0, n_rows, width):
            hi = min(lo + width, n_rows)
            tile = scratch[0].reshape(-1)[: (stop - start) * (hi - lo)].reshape(stop - start, hi - lo)
            fill(slice(start, stop), slice(lo, hi), tile)
            count_nearer(tile, np.take_along_axis(tile, reference, axis=1) if asked is None else asked, ranks)
            few = min(wanted, hi - lo)
            ends, rows, distances = select_nearest(tile, few, whole_ties, scratch[1][: hi - lo], scratch[2][: hi - lo])
            here = Lists(ends, rows + lo, distances, np.diff(ends), ranks)
            lists = here if lists is None else _joined(lists, here, wanted, whole_ties)
        spare.append(scratch)
        assert lists is not None
        return lists

    return Search(find, dict)


def _asked(fill: Filler, start: int, stop: int, reference: Indices) -> Floats:
    """Distances to the rows whose ranks are asked for."""
    asked = np.empty(reference.shape)
    for p, r in np.ndindex(*reference.shape):
        row = int(reference[p, r])
        fill(slice(start + p, start + p + 1), slice(row, row + 1), asked[p : p + 1, r : r + 1])
    return asked


def _joined(nearer: Lists, farther: Lists, wanted: int, whole_ties: bool) -> Lists:
    """Return the nearest rows of two sets of candidates; the rows of the second have higher numbers."""
    pieces, ends = [], [0]
    for p in range(nearer.ends.size - 1):
        a, b = slice(*nearer.ends[p : p + 2]), slice(*farther.ends[p : p + 2])
        rows = np.concatenate([nearer.rows[a], farther.rows[b]])
        distances = np.concatenate([nearer.distances[a], farther.distances[b]])
        order = np.argsort(distances, kind="stable")
        if order.size > wanted:
            last = distances[order[wanted - 1]]
            end = int(np.searchsorted(distances[order], last, side="right")) if whole_ties else wanted
            order = order[:end]
        pieces.append((rows[order], distances[order]))
        ends.append(ends[-1] + order.size)
    starts = np.array(ends)
    return Lists(
        starts,
        np.concatenate([rows for rows, _ in pieces]),
        np.concatenate([distances for _, distances in pieces]),
        np.diff(starts),
        nearer.ranks,
    )


def _scratch(tile_rows: int, n_rows: int) -> tuple[Any, Any, Any]:
    return np.empty((tile_rows, n_rows)), np.empty(n_rows, dtype=np.int64), np.empty(n_rows)
