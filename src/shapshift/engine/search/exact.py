"""Exact search for the nearest rows among all of them."""

import numpy as np

from shapshift.engine.parallel import take_spare
from shapshift.engine.rows.distances import Filler, Tiles, distances_to
from shapshift.engine.search.lists import Floats, Indices, Search, cut_lists, join_lists
from shapshift.kernels.images import count_nearer
from shapshift.kernels.nearest import (
    Collected,
    Lists,
    Rounded,
    collect_by_bounds,
    collect_nearest,
    join_collected,
    likely_limits,
    order_collected,
)
from shapshift.kernels.panels import for_kernels

# Number of training rows processed together: few enough to keep their distances to all points of a block in the
# second-level cache, and no power of two, whose multiples would share a place in it.
STRIP_ROWS = 2120
# Size of the sample for a first guess, number of slices it is taken from, and least size of the table in samples.
SAMPLE_ROWS, SAMPLE_PIECES, WORTH_SAMPLING = 2048, 8, 16
# Sums of fewer squares than this, of numbers smaller than that, do not overflow in float32, nor do their errors grow.
MOST_FEATURES, LARGEST_SHORT = 2**16, 2.0**53


def list_room(n_rows: int, wanted: int) -> int:
    """How many rows are collected before the list is cut to the wanted ones."""
    return min(4 * wanted + 1024, n_rows)


def exact_search(fill: Filler, n_rows: int, wanted: int, *, whole_ties: bool) -> Search:
    """Select the nearest rows from tiles of distances.

    Parameters
    ----------
    fill : callable
        Computes distance tiles.
    n_rows, wanted : int
        Number of training rows, and smallest number of rows of each list.
    whole_ties : bool
        Whether a list includes all rows tied with its last one; otherwise it has exactly ``wanted`` rows.
    """
    spare: list[_Scratch] = []  # reused between calls: large arrays are expensive to allocate

    def find(start: int, stop: int, reference: Indices) -> Lists:
        size = stop - start
        scratch = take_spare(spare) or _Scratch()
        lists = scan(start, stop, reference, scratch, list_room(n_rows, wanted))
        spare.append(scratch)
        crowded = np.flatnonzero(np.diff(lists.ends) == 0)
        if crowded.size == 0:
            return lists
        # For many tied rows, which need more space, or a wrong first guess.
        parts = [cut_lists(lists, slice(p, p + 1)) for p in range(size)]
        for p in crowded.tolist():
            parts[p] = scan(start + p, start + p + 1, reference[p : p + 1], _Scratch(), n_rows)
        return join_lists(parts)

    def scan(start: int, stop: int, reference: Indices, scratch: "_Scratch", room: int) -> Lists:
        size = stop - start
        collected = Collected(*scratch.take(size, room), np.zeros(size, dtype=np.int64), np.full(size, np.inf))
        ranks = np.full(reference.shape, -0.5)  # the row ties with itself, which adds 0.5
        asked = distances_to(fill, start, reference)
        if room < n_rows and n_rows >= WORTH_SAMPLING * SAMPLE_ROWS:
            likely_limits(_sample(fill, start, stop, n_rows), n_rows, wanted, collected.limits)
        rounded = None if reference.size else round_points(fill, start, stop)
        if rounded is not None:
            collect_by_bounds(rounded, wanted, collected)
        for lo in range(0, n_rows if rounded is None else 0, STRIP_ROWS):
            strip = slice(lo, min(lo + STRIP_ROWS, n_rows))
            tile = scratch.tile(size, strip.stop - lo)
            fill(slice(start, stop), strip, tile)
            collect_nearest(tile, lo, wanted, collected)
            if reference.size:
                count_nearer(tile, asked, ranks)
        ends = np.empty(size + 1, dtype=np.int64)
        order_collected(wanted, whole_ties, collected, ends)
        found, distances = np.empty(ends[-1], dtype=np.int64), np.empty(ends[-1])
        join_collected(collected, ends, found, distances)
        return Lists(ends, found, distances, np.diff(ends), ranks)

    return Search(find, dict)


def round_points(fill: Filler, start: int, stop: int) -> Rounded | None:
    """Return rows and points for :func:`collect_by_bounds`; None where distances have to come from tiles.

    That is where rows are float64 or not there as panels, and where squares of float32 numbers might overflow.
    """
    if not (isinstance(fill, Tiles) and fill.index.holds_short_rows):
        return None
    index = fill.index
    points = np.ascontiguousarray(index.lay_out(fill.points[start:stop]), dtype=np.float64)
    farthest = max(float(np.abs(part).max()) for part in (*(index.ends or ()), points))
    if not (points.shape[1] < MOST_FEATURES and farthest < LARGEST_SHORT):
        return None
    short = points.astype(np.float32)
    lost = np.sqrt(np.square(points - short).sum(axis=1)) * (1 + 2.0**-20)
    return Rounded(for_kernels(index.rows), index.n_rows, points, short, lost)


class _Scratch:
    """Scratch space of one worker."""

    def __init__(self) -> None:
        self.strip: Floats = np.empty(0)
        self.rows: Indices = np.empty(0, dtype=np.int64)
        self.keys: Floats = np.empty(0)

    def tile(self, points: int, rows: int) -> Floats:
        if self.strip.size < points * rows:
            self.strip = np.empty(points * rows)
        return self.strip[: points * rows].reshape(points, rows)

    def take(self, points: int, room: int) -> tuple[Indices, Floats]:
        size = points * room
        if self.rows.size < size:
            self.rows, self.keys = np.empty(size, dtype=np.int64), np.empty(size)
        return self.rows[:size].reshape(points, room), self.keys[:size].reshape(points, room)


def _sample(fill: Filler, start: int, stop: int, n_rows: int) -> Floats:
    """Distances to a sample of rows from the whole table."""
    width = SAMPLE_ROWS // SAMPLE_PIECES
    sample, piece = np.empty((stop - start, SAMPLE_ROWS)), np.empty((stop - start, width))
    for number in range(SAMPLE_PIECES):
        first = number * (n_rows - width) // (SAMPLE_PIECES - 1)
        fill(slice(start, stop), slice(first, first + width), piece)
        sample[:, number * width : (number + 1) * width] = piece
    return sample
