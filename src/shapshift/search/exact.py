"""The nearest rows by looking at all of them."""

from typing import Any

import numpy as np

from shapshift.distances import Filler
from shapshift.kernels.buckets import count_nearer
from shapshift.kernels.nearest import select_nearest
from shapshift.search.lists import Indices, Lists, Search


def exact_search(fill: Filler, n_rows: int, wanted: int, *, whole_ties: bool, tile_rows: int) -> Search:
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
    """
    spare: list[tuple[Any, Any, Any]] = []  # scratch space, handed on from call to call: large arrays are dear to make

    def find(start: int, stop: int, reference: Indices) -> Lists:
        scratch = spare.pop() if spare else _scratch(tile_rows, n_rows)
        tile = scratch[0][: stop - start]
        fill(slice(start, stop), slice(0, n_rows), tile)
        ends, rows, distances = select_nearest(tile, wanted, whole_ties, scratch[1], scratch[2])
        ranks = np.full(reference.shape, -0.5)  # a row is as near as itself, which counts by half
        count_nearer(tile, np.take_along_axis(tile, reference, axis=1), ranks)
        spare.append(scratch)
        return Lists(ends, rows, distances, np.diff(ends), ranks)

    return Search(find, dict)


def _scratch(tile_rows: int, n_rows: int) -> tuple[Any, Any, Any]:
    return np.empty((tile_rows, n_rows)), np.empty(n_rows, dtype=np.int64), np.empty(n_rows)
