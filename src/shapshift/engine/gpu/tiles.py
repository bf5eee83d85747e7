"""Tiles of points on a GPU: which kernels run over them, with which sizes, and what is left to plain torch."""

from collections.abc import Callable
from typing import Any

import torch
import triton

from shapshift.engine.gpu import bucket_kernels, distance_kernels, rank_kernels, shared_kernels
from shapshift.engine.gpu.core import (
    COARSE_BITS,
    FINE_BITS,
    GREEDY,
    LOOK,
    MARGIN,
    SORTED_PAIRS,
    STEP,
    TILE_PAIRS,
    WINDOW,
    Batch,
    Coarse,
    Keep,
    Result,
    Rules,
    Train,
    sort_points,
    tile_points,
)
from shapshift.engine.gpu.values import COSINE, MANHATTAN, inverse_lengths, label_entropy, mean_ranks, ordered_values

Tensor = Any  # torch is an optional dependency that mypy does not look at

# Ranks that are walked over together.
CHUNK = 1024
# Counters that are added to at the same time should stay in the second-level cache.
COUNTER_BYTES = 16 * 2**20
# Points whose values are looked up by one launch.
TOGETHER = 128
# Rows from which on programs of 4096 rows are enough for all multiprocessors.
MANY_ROWS = 2**19
# Features from which on matrix products pay.
PRODUCT_FEATURES = 16
# The first version that is known to multiply float64 matrices well.
PRODUCT_TRITON = (3, 6)
_TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])


def exact_points(
    train: Train, rules: Rules, batch: Batch, todo: Tensor, result: Result, keep: Keep | None, memory: int | None,
    advance: Callable[[int], None],
) -> None:  # fmt: skip
    """Value points by a counting sort; points with many or mixed ties by torch's sort."""
    n, device = train.n, train.codes.device
    bits = max(13, (n - 1).bit_length() - 2)
    id_bits = (n - 1).bit_length() + 1
    rest_bits = 63 - bits - id_bits
    buckets = 1 << bits
    copied = 8 * n if keep is not None and keep.rows is None else 0
    size = tile_points(train, memory, 20 * n + 4 * buckets + copied, STEP)
    look = min(n, max(LOOK, rules.depth, rules.n_nearest))
    for here in todo.split(size) if todo.numel() else ():
        tile = _padded(batch, here)
        p = len(tile)
        maps = _make_maps(train, tile, buckets, None)
        distances = torch.empty(p, n, dtype=torch.float64, device=device)
        counts = torch.zeros(p, buckets, dtype=torch.int32, device=device)
        _count(train, tile, maps, distances, counts)
        longest = torch.empty(p, dtype=torch.int32, device=device)
        rank_kernels.bucket_starts[(p,)](counts, longest, buckets, CHUNK=4096, num_warps=8)
        keys = torch.zeros(p, n, dtype=torch.int64, device=device)
        rank_kernels.scatter_rows[(triton.cdiv(n, 1024), p)](
            distances, train.codes, tile.targets, *maps, counts, keys, n, buckets, rest_bits, id_bits,
            PIECE_BITS=FINE_BITS, BN=1024,
        )  # fmt: skip
        order = torch.empty(p, n, dtype=torch.int32, device=device)
        open_ends = torch.zeros(p, dtype=torch.int32, device=device)
        windows = triton.cdiv(n, WINDOW - 2 * MARGIN)
        rank_kernels.order_windows[(windows, p)](
            keys, distances, order, open_ends, n, id_bits,
            AVERAGE=rules.average, WINDOW=WINDOW, MARGIN=MARGIN, num_warps=1,
        )  # fmt: skip
        del keys
        # The nearest rows once more, by distance and then by number: the kernel orders only what values depend on.
        rows = (order[:, :look] >> 1).to(torch.int64).clamp(0, n - 1).sort(1).values
        near, by_distance = torch.sort(distances.gather(1, rows), dim=1, stable=True)
        rows = rows.gather(1, by_distance)
        entropy, cut = label_entropy(near, train.codes[rows], rules.n_classes, rules.depth, rules.average, look == n)
        good = (torch.arange(p, device=device) < here.numel()) & (longest <= MARGIN) & (open_ends == 0) & ~cut
        level = result.put(here, entropy, rows, rules)
        cells = _sum_cells(good, level, tile.groups, rules)
        chunks = triton.cdiv(n, CHUNK)
        totals = torch.empty(p, chunks, dtype=torch.float64, device=device)
        rank_kernels.chunk_totals[(chunks, triton.cdiv(p, 16))](order, rules.c, totals, n, p, CHUNK=CHUNK, POINTS=16)
        carried = totals.flip(1).cumsum(1).flip(1) - totals + tile.bases[:, None]
        patterns = torch.zeros(p, n, dtype=torch.int64, device=device)
        rank_kernels.rank_values[(chunks, p)](order, rules.c, carried, cells[0], patterns, n, CHUNK=CHUNK)
        values = patterns.view(torch.float64)
        for members, offsets, sums, squared in _sum_lists(*cells, rules, result):
            rank_kernels.add_values[(triton.cdiv(n, 128),)](
                values, members, offsets, sums, result.squares, n, sums.shape[0], SQUARES=squared, BP=16, BN=128
            )
        good = good[: here.numel()]
        if keep is not None:
            keep.put(here[good], keep.choose(values[: here.numel()])[good])
        del order, patterns, values
        bad = torch.nonzero(~good).squeeze(1)
        for some in bad.split(max(1, SORTED_PAIRS // n)) if bad.numel() else ():
            sort_points(train, rules, batch, here[some], result, keep, distances[some])
        advance(here.numel())


def certified_points(
    train: Train, rules: Rules, batch: Batch, coarse: Coarse, result: Result, keep: Keep | None, memory: int | None,
    advance: Callable[[int], None],
) -> Tensor:  # fmt: skip
    """Value points with buckets; return the points that buckets do not suit."""
    n, device, buckets = train.n, train.codes.device, coarse.buckets
    # How many rows are near is estimated from a sample; four standard deviations more have room.
    sampled = max(1.0, coarse.first * train.sample.shape[1] / n)
    room = -(-int(coarse.first * (1 + 4 / sampled**0.5)) // 1024) * 1024
    width = 2 * buckets + 32
    look = max(LOOK, rules.n_nearest)
    size = tile_points(train, memory, 2 * n + 16 * width + 64 * room, STEP, 4 * TILE_PAIRS)
    most = GREEDY * coarse.mean_bound * n
    scale, square_scale = integer_scale(rules, batch, size, 1), integer_scale(rules, batch, size, 2)
    bound_scale = 2.0 ** min(61 - (size - 1).bit_length() - _exponent(most), 100)
    features = train.columns.T.contiguous()
    bucket = Bucketing(train)
    counter = shared_kernels.counter(device.index or 0, buckets) if device.type == "cuda" else None
    for here in torch.arange(len(batch), device=device).split(size):
        tile = _padded(batch, here)
        p = len(tile)
        cells = torch.empty(p, n, dtype=torch.uint16, device=device)
        counts = torch.zeros(p, buckets, dtype=torch.int32, device=device)
        bucket(tile, _make_maps(train, tile, buckets, coarse.first), cells, counts, count=counter is None)
        found = torch.zeros(p, 32, dtype=torch.int32, device=device)
        near_rows = torch.zeros(p, room, dtype=torch.int32, device=device)
        near = torch.empty(p, room, dtype=torch.float64, device=device)
        if counter is None:
            bucket_kernels.list_near[(p, triton.cdiv(n, 1024))](cells, found, near_rows, n, buckets, room, BN=1024)
        else:
            counter(cells, counts, found, near_rows)
        bucket_kernels.near_distances[(room // 128, p)](
            features, tile.points, found, near_rows, near, features.shape[1], room, METRIC=train.metric, BN=128
        )
        table = torch.zeros(p, width, dtype=torch.int64, device=device)
        passed, doubt, mass = (torch.empty(p, dtype=torch.float64, device=device) for _ in range(3))
        uncounted = torch.empty(p, dtype=torch.int32, device=device)
        bucket_kernels.bucket_values[(p,)](
            counts, rules.c, rules.tail, tile.bases, table, passed, doubt, uncounted, mass, n, buckets,
            coarse.convex_from, width, CHUNK=1024, num_warps=8,
        )  # fmt: skip
        near, rows, tied = _order_near(near, near_rows)
        codes = train.codes[rows[:, :look]]
        entropy, cut = label_entropy(near[:, :look], codes, rules.n_classes, rules.depth, rules.average, False)
        # A counter that ran over has lost rows, which would then seem to be near.
        listed = (found[:, 0] >= look) & (found[:, 0] <= room) & (found[:, 0] == uncounted)
        good = (torch.arange(p, device=device) < here.numel()) & listed & ~cut & (mass <= most)
        level = result.put(here, entropy, rows[:, :look].to(torch.int64), rules)
        result.inexact[here] = good[: here.numel()]
        if tied and rules.average:
            match = torch.isfinite(near) & (train.codes[rows] == tile.targets[:, None])
            values = ordered_values(near, match, rules.c, rules.tail, passed, True)
        else:
            values = near
            bucket_kernels.near_values[(p,)](
                rows, train.codes, tile.targets, rules.c, found, passed, values, room, CHUNK=1024
            )
        level_cells, group_cells = _sum_cells(good, level, tile.groups, rules)
        outputs = (result.sums, scale), (result.squares, square_scale), (result.bounds, bound_scale)
        whole, whole_squares, whole_bounds = (torch.zeros_like(sums, dtype=torch.int64) for sums, _ in outputs)
        bucket_kernels.add_near[(room // 256, p)](
            values, rows, found, doubt, level_cells, group_cells, whole, whole[rules.n_levels :], whole_squares,
            whole_bounds, n, room, scale, square_scale, bound_scale, GROUPS=rules.n_groups > 0, BN=256,
        )  # fmt: skip
        for (sums, unit), part in zip(outputs, (whole, whole_squares, whole_bounds), strict=True):
            sums.add_(part, alpha=1 / unit)
        _add_cells(cells, table, _sum_lists(level_cells, group_cells, rules, result), result)
        if keep is not None:
            listed = torch.arange(room, device=device) < found[:, :1]
            looked_up = _look_up(cells, table, keep.rows, torch.where(listed, rows, -1), values)
            good = good[: here.numel()]
            keep.put(here[good], looked_up[: here.numel()][good])
        advance(here.numel())
    return torch.nonzero(~result.inexact).squeeze(1)


class Bucketing:
    """Which kernels put rows into buckets, and what they need of the training rows.

    Attributes
    ----------
    products : bool
        Distances from matrix products; Manhattan distances have none, and few features do not fill them.
    columns : tensor of shape (d, N)
        Training rows less their mean, which makes products as accurate as they can be.
    mean : tensor of shape (d,)
    norms : tensor of shape (N,)
        Squared norms of the columns.
    slack, spread : float
        What products can be off, as a part of the sum of two squared norms, and as a part of its root.
    """

    def __init__(self, train: Train) -> None:
        d = train.columns.shape[0]
        self.train = train
        self.products = train.metric != MANHATTAN and d >= PRODUCT_FEATURES and _TRITON >= PRODUCT_TRITON
        if self.products:
            vectors = self.vectors(train.columns.T).T
            self.mean = vectors.mean(1)
            self.columns = vectors - self.mean[:, None]
            self.norms = (self.columns * self.columns).sum(0)
            # First order: 4 d + 13 roundings for squared distances. Unit vectors are off by two roundings each, a
            # relative 2**-51 of their distance for both, which is at most the root of twice the sum of their norms.
            self.slack = 2.0**-53 * (4 * d + 32)
            self.spread = 2.0**-50

    def vectors(self, rows: Tensor) -> Tensor:
        """Rows (n, d) whose squared distances, or half of them, are the metric's distances."""
        return rows * inverse_lengths(rows)[0][:, None] if self.train.metric == COSINE else rows

    def __call__(
        self, tile: Batch, maps: tuple[Tensor, ...], cells: Tensor, counts: Tensor, *, count: bool
    ) -> None:  # fmt: skip
        """Fill cells of a tile, and counts if asked for."""
        train, n, buckets, device = self.train, self.train.n, counts.shape[1], cells.device
        d = train.columns.shape[0]
        if self.products:
            points = self.vectors(tile.points) - self.mean
            norms = (points * points).sum(1)
        for s in _groups(len(tile), 4 * buckets if count else COUNTER_BYTES // 512, STEP):
            groups = (s.stop - s.start) // STEP
            tiles = triton.cdiv(n, 128) * groups
            fate = [part[s] for part in (*maps, cells, counts)]
            labels = train.codes, tile.targets[s]
            if self.products:
                listed = torch.empty(tiles, dtype=torch.int32, device=device)
                found = torch.zeros(1, dtype=torch.int32, device=device)
                bucket_kernels.bucket_products[(tiles,)](
                    self.columns, points[s], self.norms, norms[s], *labels, *fate, listed, found, n, d, buckets, groups,
                    self.slack, self.spread, HALF=train.metric == COSINE, COUNT=count, PIECE_BITS=COARSE_BITS, BP=STEP,
                    BN=128, BK=16, num_warps=8 if count else 4, num_stages=2,
                )  # fmt: skip
            else:
                listed = torch.arange(tiles, dtype=torch.int32, device=device)
                found = torch.full((1,), tiles, dtype=torch.int32, device=device)
            bucket_kernels.bucket_rows[(min(tiles, 1024) if self.products else 4 * tiles,)](
                train.columns, tile.points[s], *labels, *fate, listed, found, n, d, buckets, groups,
                METRIC=train.metric, COUNT=count, PIECE_BITS=COARSE_BITS, TILE=STEP, BP=8, BN=128, num_warps=2,
            )  # fmt: skip


def rank_references(train: Train, batch: Batch, result: Result, memory: int | None) -> None:
    """Ranks of the training rows that were asked for."""
    for here in torch.arange(len(batch), device=train.codes.device).split(
        tile_points(train, memory, 24 * train.n, STEP)
    ):
        tile = _padded(batch, here)
        known = fill_distances(train.columns, tile.points, train.metric)[: here.numel()]
        result.ranks[here] = mean_ranks(known, known.gather(1, batch.reference[here]))


def fill_distances(columns: Tensor, points: Tensor, metric: int) -> Tensor:
    """Distances of points, whose number is a multiple of 8, to training rows."""
    d, n = columns.shape
    p = points.shape[0]
    filled = torch.empty(p, n, dtype=torch.float64, device=columns.device)
    distance_kernels.fill_distances[(triton.cdiv(n, 256) * (p // 8),)](
        columns, points, filled, n, d, p // 8, METRIC=metric, BP=8, BN=256, num_warps=2
    )
    return filled


def _make_maps(train: Train, tile: Batch, buckets: int, first: int | None) -> tuple[Tensor, ...]:
    sample = fill_distances(train.sample, tile.points, train.metric)
    p, size = sample.shape
    coarse = first is not None
    pieces = COARSE_BITS if coarse else FINE_BITS
    kind = torch.int32 if coarse else torch.int64
    maps = tuple(torch.empty(p, dtype=kind, device=sample.device) for _ in range(3))
    knots = torch.empty(p, 1 << pieces, dtype=torch.int64, device=sample.device)
    k_first = max(1, round(first * size / train.n)) if first is not None else max(1, size // 200)
    distance_kernels.make_maps[(p,)](
        sample, *maps, knots, float(train.n), float(first or 1), buckets, k_first,
        COARSE=coarse, PIECE_BITS=pieces, SIZE=size, num_warps=8,
    )  # fmt: skip
    return (*maps, knots)


def _count(train: Train, tile: Batch, maps: tuple[Tensor, ...], distances: Tensor, counts: Tensor) -> None:
    n, buckets, bp, bn = train.n, counts.shape[1], 8, 128
    for s in _groups(len(tile), 4 * buckets, 8):
        groups = (s.stop - s.start) // bp
        rank_kernels.count_rows[(triton.cdiv(n, bn) * groups,)](
            train.columns, tile.points[s], *(part[s] for part in maps), distances[s], counts[s],
            n, train.columns.shape[0], buckets, groups,
            METRIC=train.metric, PIECE_BITS=FINE_BITS, BP=bp, BN=bn, num_warps=2,
        )  # fmt: skip


def _groups(points: int, counter_bytes: int, granule: int) -> list[slice]:
    """Cut a tile so that the counters in use fit the cache."""
    step = max(COUNTER_BYTES // counter_bytes // granule, 1) * granule
    return [slice(start, min(start + step, points)) for start in range(0, points, step)]


def _padded(batch: Batch, here: Tensor) -> Batch:
    """Points ``here``, the last one repeated up to a multiple of STEP."""
    missing = -here.numel() % STEP
    return batch[torch.cat([here, here[-1:].expand(missing)])]


def _order_near(near: Tensor, rows: Tensor) -> tuple[Tensor, Tensor, bool]:
    """Put listed distances and rows in order, ties by row number; also tell whether there are any ties."""
    ordered, places = torch.sort(near, dim=1)
    tied = bool(((ordered[:, 1:] == ordered[:, :-1]) & torch.isfinite(ordered[:, 1:])).any())
    if tied:
        rows, by_row = rows.sort(dim=1, stable=True)
        ordered, places = torch.sort(near.gather(1, by_row), dim=1, stable=True)
    return ordered, rows.gather(1, places), tied


def _sum_cells(good: Tensor, level: Tensor, groups: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Levels and groups of points, group 0 where there are none; -1 for points that do not count."""
    padded = torch.nn.functional.pad(level, (0, good.numel() - level.numel()))
    by_group = groups if rules.n_groups else torch.zeros_like(groups)
    level_cells, group_cells = (torch.where(good, cell, -1).to(torch.int32) for cell in (padded, by_group))
    return level_cells, group_cells


def _sum_lists(
    level_cells: Tensor, group_cells: Tensor, rules: Rules, result: Result
) -> list[tuple[Tensor, Tensor, Tensor, int]]:  # fmt: skip
    """List points sum by sum: by level, and by group if there are groups.

    Returns
    -------
    list of tuple
        Numbers of the points, where each sum's begin, the sums, and how squares are added up (see `add_values`): beside
        the groups, or beside the levels without groups.
    """
    kinds = [(level_cells, result.sums[: rules.n_levels], 0 if rules.n_groups else 1)]
    if rules.n_groups:
        kinds.append((group_cells, result.sums[rules.n_levels :], 2))
    lists = []
    for cells, sums, squared in kinds:
        by_sum, members = cells.sort(stable=True)
        numbers = torch.arange(sums.shape[0] + 1, dtype=torch.int32, device=cells.device)
        offsets = torch.searchsorted(by_sum, numbers, out_int32=True)
        lists.append((members.to(torch.int32), offsets, sums, squared))
    return lists


def _add_cells(cells: Tensor, table: Tensor, lists: list[tuple[Tensor, Tensor, Tensor, int]], result: Result) -> None:
    """Look up the values of all points and add them, sum by sum; bounds once, beside the levels."""
    n, width = cells.shape[1], table.shape[1]
    rows = 4096 if n >= MANY_ROWS else 1024
    for number, (members, offsets, sums, squared) in enumerate(lists):
        # A launch for some of the points at a time: programs that drift apart would need the tables of many points.
        for begin in range(0, members.numel(), TOGETHER):
            bucket_kernels.add_cells[(triton.cdiv(n, rows),)](
                cells, table, members, offsets, sums, result.squares, result.bounds, n, sums.shape[0], width, begin,
                begin + TOGETHER, SQUARES=squared, BOUNDS=number == 0, BN=rows, num_warps=8 if rows == 4096 else 4,
                maxnreg=128,  # so that two programs share a multiprocessor
            )  # fmt: skip


def _look_up(cells: Tensor, table: Tensor, kept: Tensor, near_rows: Tensor, near_values: Tensor) -> Tensor:
    """Values (p, k) of some rows: from the tables, and of near rows, listed by number (-1 for none), their own."""
    # Few functions of torch take unsigned numbers of 16 bits.
    cell = cells.view(torch.int16).index_select(1, kept).to(torch.int64) & 0xFFFF
    values = (table.gather(1, cell) & -65536).view(torch.float64)
    column = torch.full((cells.shape[1] + 1,), kept.numel(), dtype=torch.int64, device=cells.device)
    column[kept] = torch.arange(kept.numel(), device=cells.device)
    # What belongs to no column goes to one behind the last.
    padded = torch.nn.functional.pad(values, (0, 1)).scatter_(1, column[near_rows.to(torch.int64)], near_values)
    return padded[:, :-1]


def integer_scale(rules: Rules, batch: Batch, points: int, power: int) -> float:
    """Units of a value of 1, or of a power of it, in sums of integers that the values of all points cannot overflow."""
    largest = float(rules.c.abs().max() + (rules.c[1:] - rules.c[:-1]).abs().sum() + batch.bases.abs().max())
    return 2.0 ** min(61 - (points - 1).bit_length() - _exponent(largest**power), 100)


def _exponent(number: float) -> int:
    """Smallest power of two above a number."""
    return int(torch.frexp(torch.tensor(number, dtype=torch.float64))[1])
