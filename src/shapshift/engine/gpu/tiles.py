"""Tiles of points on a GPU: the kernels that run over them, their sizes, and the parts left to plain torch."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import triton

from shapshift.engine.gpu import bucket_kernels, cuda, distance_kernels, rank_kernels
from shapshift.engine.gpu.core import (
    COARSE_BITS,
    FINE_BITS,
    GREEDY,
    LOOK,
    SORTED_PAIRS,
    STEP,
    TILE_PAIRS,
    Batch,
    Coarse,
    Keep,
    Result,
    Rules,
    Train,
    room_for,
    sort_points,
    sort_tiles,
    tile_points,
)
from shapshift.engine.gpu.products import SLICE_STEP, Slices, settle
from shapshift.engine.gpu.values import label_entropy, mean_ranks, ordered_values

Tensor = Any  # torch is an optional dependency that mypy does not look at
Centred = Any  # points less the mean of the rows, and their squared norms; None if products do not pay

# Number of ranks processed together.
CHUNK = 1024
# Numbers of rows from which programs of 256 rows and of 4096 keep all multiprocessors busy.
FEW_ROWS, MANY_ROWS = 2**16, 2**19
# Number of points measured by one program.
POINTS = 8
# Tiles with buckets have a multiple of BLOCK points. One launch puts at most LAUNCHED of them into buckets.
BLOCK, LAUNCHED = 64, 2048
# One row of a point in this many may be measured again, and at least this many rows.
OPEN_SHARE, LEAST_OPEN = 64, 64
# Largest number of neighbours of a tile with undecided order.
MOST_OPEN = 2**18
# Number of rows whose values fit into the second-level cache together.
RANGE = 2**21
# First version known to multiply float64 matrices well.
PRODUCT_TRITON = (3, 6)
_TRITON = tuple(int(part) for part in triton.__version__.split(".")[:2])


def exact_points(
    train: Train, rules: Rules, batch: Batch, todo: Tensor, result: Result, keep: Keep | None, memory: int | None,
    advance: Callable[[int], None],
) -> None:  # fmt: skip
    """Value points by ordering all rows; points with many or mixed ties by torch's sort."""
    n, device = train.n, train.codes.device
    there = cuda.kernels(device)
    if n > cuda.most_rows(there):
        sort_tiles(train, rules, batch, todo, result, keep, memory, advance)
        return
    _derive(train)
    copied = 8 * n if keep is not None and keep.rows is None else 0
    size = tile_points(train, memory, 20 * n + copied, STEP)
    look = min(n, max(LOOK, max(rules.depth, rules.n_nearest) + LOOK // 2))
    for here in todo.split(size) if todo.numel() else ():
        tile = padded(batch, here, STEP)
        p = len(tile)
        centred = _centred(train, tile)
        norms = None if centred is None else centred[1]
        entries = _measure(train, tile, centred)
        distances, order, unsettled = _order_tile(train, rules, tile, there, entries, centred)
        at, rows, short = _nearest_rows(train, rules, tile, norms, distances[:, :look], order[:, :look] >> 1)
        entropy, cut = label_entropy(at, train.codes[rows], rules.n_classes, rules.depth, rules.average, look == n)
        good = (torch.arange(p, device=device) < here.numel()) & ~unsettled & ~cut & ~short
        level = result.put(here, entropy, rows, rules)
        cells = _sum_cells(good, level, tile.groups, rules)
        chunks = triton.cdiv(n, CHUNK)
        totals = torch.empty(p, chunks, dtype=torch.float64, device=device)
        rank_kernels.chunk_totals[(chunks, triton.cdiv(p, 16))](order, rules.c, totals, n, p, CHUNK=CHUNK, POINTS=16)
        carried = totals.flip(1).cumsum(1).flip(1) - totals + tile.bases[:, None]
        values = entries.zero_()
        ranges = triton.cdiv(n, RANGE)
        rank_kernels.rank_values[(chunks, p * ranges)](
            order, rules.c, carried, cells[0], values.view(torch.int64), n, ranges, CHUNK=CHUNK, RANGE=RANGE
        )
        for members, offsets, sums, squared in _sum_lists(*cells, rules, result):
            rank_kernels.add_values[(triton.cdiv(n, 128),)](
                values, members, offsets, sums, result.squares, n, sums.shape[0], SQUARES=squared, BP=16, BN=128
            )
        good = good[: here.numel()]
        if keep is not None:
            keep.put(here[good], keep.choose(values[: here.numel()])[good])
        del entries, distances, order, values
        few_points(train, rules, batch, here[~good], result, keep)
        advance(here.numel())


def few_points(train: Train, rules: Rules, batch: Batch, todo: Tensor, result: Result, keep: Keep | None) -> None:
    """Value points by torch's sort of direct distances: slower for many, and sooner done for few."""
    for here in todo.split(max(1, SORTED_PAIRS // train.n)) if todo.numel() else ():
        alone = padded(batch, here, POINTS)
        known = fill_distances(train.columns, alone.points, train.metric)[: here.numel()]
        sort_points(train, rules, batch, here, result, keep, known)


def _derive(train: Train) -> None:
    """Compute what tiles need from the rows, before tiles take the remaining memory."""
    if train.products is not None:
        _ = train.features


def _centred(train: Train, tile: Batch) -> Centred:
    """Points of a tile less the mean of the rows, and their squared norms; None if products do not pay."""
    return None if train.products is None else train.products.points(tile.points)


def _measure(train: Train, tile: Batch, centred: Centred) -> Tensor:
    """Products of points and rows; distances if products do not pay."""
    if centred is None:
        return fill_distances(train.columns, tile.points, train.metric)
    return centred[0] @ train.products.columns


def _order_tile(
    train: Train, rules: Rules, tile: Batch, there: Any, entries: Tensor, centred: Centred
) -> tuple[Tensor, Tensor, Tensor]:
    """Distances from near to far, 2 * row + match in that order, and the points left to another method."""
    n, part = train.n, train.products
    norms: Tensor = None if centred is None else centred[1]
    maps = _make_maps(train, tile, centred, cuda.buckets_of(n) * cuda.FINE, None)
    listed = torch.empty(MOST_OPEN, dtype=torch.int64, device=entries.device)
    distances, order, starts, found, unsettled = cuda.order_rows(
        there, entries, norms, part, maps, train.codes, tile.targets, listed, average=rules.average
    )
    if part is None:
        return distances, order, unsettled != 0
    # Neighbours in different buckets, besides the listed ones.
    at = starts[:, 1:].to(torch.int64)
    before, behind = (at - 1).clamp(min=0), at.clamp(max=n - 1)
    mixed = ((order.gather(1, before) ^ order.gather(1, behind)) & 1) != 0
    far = distances.gather(1, behind)
    open_ = far - distances.gather(1, before) <= part.open_gap(norms[:, None], far)
    q, b = torch.nonzero(mixed & open_ & (at > 0) & (at < n)).unbind(1)
    listed = listed[: min(int(found), MOST_OPEN)]
    pairs = torch.cat([listed >> 32, q]), torch.cat([listed & 0xFFFFFFFF, at[q, b]])
    measure = partial(direct_distances, train, tile.points)
    too_long, tied = settle(lambda q, far: part.open_gap(norms[q][:, None], far), measure, order, distances, *pairs)
    return distances, order, (unsettled != 0) | too_long | (tied & rules.average)


def _nearest_rows(
    train: Train, rules: Rules, tile: Batch, norms: Tensor, distances: Tensor, rows: Tensor, weights: Any = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Order the nearest rows by direct distance and then by number; so far only their labels are in order.

    Returns
    -------
    distances, rows : tensor of shape (p, k)
    short : bool tensor of shape (p,)
        Points for which a row beyond these may be one of the nearest.
    """
    rows, by_row = rows.to(torch.int64).sort(1)
    short = torch.zeros(rows.shape[0], dtype=torch.bool, device=rows.device)
    at = distances.gather(1, by_row)
    if norms is not None:
        points = torch.arange(len(tile), device=rows.device)[:, None].expand_as(rows)
        at = direct_distances(train, tile.points, points.reshape(-1), rows.reshape(-1)).view_as(at)
    at, by_distance = torch.sort(at, dim=1, stable=True)
    if norms is not None and rows.shape[1] < train.n:
        last = distances[:, -1]
        beyond = last - train.products.open_gap(norms, last, weights)
        short = at[:, max(rules.depth, rules.n_nearest) - 1] >= beyond
    return at, rows.gather(1, by_distance), short


def certified_points(
    train: Train, rules: Rules, batch: Batch, todo: Tensor, coarse: Coarse, result: Result, keep: Keep | None,
    memory: int | None, advance: Callable[[int], None],
) -> Tensor:  # fmt: skip
    """Value points with buckets; return the points that need another method."""
    n, device, buckets = train.n, train.codes.device, coarse.buckets
    there = cuda.kernels(device)
    room = room_for(coarse.first, n, train.sample.shape[1])
    width = 2 * buckets + 32
    look = max(LOOK, max(rules.depth, rules.n_nearest) + LOOK // 2)
    if look > room:  # lists are too short for the rows that are asked for
        advance(todo.numel())
        return todo
    _derive(train)
    if train.products is not None and _TRITON >= PRODUCT_TRITON:
        _ = train.products.slices, train.products.row_bounds
    if memory is not None:
        memory //= 2  # the other half is for the rows that are put into buckets together
    size = tile_points(train, memory, 3 * n + 16 * width + 64 * room, BLOCK, 16 * TILE_PAIRS)
    most = GREEDY * coarse.mean_bound * n
    scale, square_scale = integer_scale(rules, batch, size, 1), integer_scale(rules, batch, size, 2)
    bound_scale = 2.0 ** min(61 - (size - 1).bit_length() - _exponent(most), 100)
    counter = there if there is not None and 4 * buckets + cuda.BESIDE <= there.most_shared else None
    for here in todo.split(size):
        tile = padded(batch, here, BLOCK)
        p = len(tile)
        cells = torch.empty(p, n, dtype=torch.uint16, device=device)
        counts = torch.zeros(p, buckets, dtype=torch.int32, device=device)
        found = torch.zeros(p, 32, dtype=torch.int32, device=device)
        rows = torch.zeros(p, room, dtype=torch.int32, device=device)
        near = torch.empty(p, room, dtype=torch.float64, device=device)
        centred = _centred(train, tile)
        maps = _make_maps(train, tile, centred, buckets, coarse.first)
        opened = torch.zeros_like(found)
        placed = cells, counts, found, rows, near, opened
        measured = _put_into_buckets(train, tile, centred, counter, maps, placed, memory)
        many_open = opened[:, 0] > most_open(n)
        if measured is not None and train.products.slices is not None and int(many_open.sum()) > p // 2:
            vars(train.products)["slices"] = None  # too coarse for these rows, where float64 may not be
            for counted in (counts, found, opened):
                counted.zero_()
            measured = _put_into_buckets(train, tile, centred, counter, maps, placed, memory)
            many_open = opened[:, 0] > most_open(n)
        near, elements, bad, tied, weights = _order_near(train, tile, there, measured, found, rows, near)
        table = torch.empty(p, width, dtype=torch.int64, device=device)
        table[:, 2 * buckets :] = 0
        passed, doubt, mass = (torch.empty(p, dtype=torch.float64, device=device) for _ in range(3))
        uncounted = torch.empty(p, dtype=torch.int32, device=device)
        bucket_kernels.bucket_values[(p,)](
            counts, rules.c, rules.tail, tile.bases, table, passed, doubt, uncounted, mass, n, buckets,
            coarse.convex_from, width, CHUNK=1024, num_warps=8,
        )  # fmt: skip
        norms = None if measured is None else measured[0]
        at, nearest, short = _nearest_rows(train, rules, tile, norms, near[:, :look], elements[:, :look] >> 1, weights)
        entropy, cut = label_entropy(at, train.codes[nearest], rules.n_classes, rules.depth, rules.average, False)
        # An overflowed counter has lost rows, which would then seem to be near.
        listed = (found[:, 0] >= look) & (found[:, 0] <= room) & (found[:, 0] == uncounted)
        good = (torch.arange(p, device=device) < here.numel()) & listed & ~bad & ~cut & ~short & (mass <= most)
        good &= ~many_open
        level = result.put(here, entropy, nearest, rules)
        result.inexact[here] = good[: here.numel()]
        # Of other points, lists may differ from run to run.
        if rules.average and bool((tied & good).any()):
            match = torch.isfinite(near) & ((elements & 1) != 0)
            values = ordered_values(near, match, rules.c, rules.tail, passed, True)
        else:
            values = near
            bucket_kernels.near_values[(p,)](elements, rules.c, found, passed, values, room, CHUNK=1024)
        level_cells, group_cells = _sum_cells(good, level, tile.groups, rules)
        outputs = (result.sums, scale), (result.squares, square_scale), (result.bounds, bound_scale)
        whole, whole_squares, whole_bounds = (torch.zeros_like(sums, dtype=torch.int64) for sums, _ in outputs)
        bucket_kernels.add_near[(room // 256, p)](
            values, elements, found, doubt, level_cells, group_cells, whole, whole[rules.n_levels :], whole_squares,
            whole_bounds, n, room, scale, square_scale, bound_scale, GROUPS=rules.n_groups > 0, BN=256,
        )  # fmt: skip
        for (sums, unit), part in zip(outputs, (whole, whole_squares, whole_bounds), strict=True):
            sums.add_(part, alpha=1 / unit)
        _add_cells(cells, table, _sum_lists(level_cells, group_cells, rules, result), result)
        if keep is not None:
            listed = torch.arange(room, device=device) < found[:, :1]
            looked_up = _look_up(cells, table, keep.rows, torch.where(listed, elements >> 1, -1), values)
            good = good[: here.numel()]
            keep.put(here[good], looked_up[: here.numel()][good])
        del placed, cells, table, near, values  # frees them before the next tile
        advance(here.numel())
    return todo[~result.inexact[todo]]


def most_open(n: int) -> int:
    """Return the number of rows of a point that may be measured again."""
    return max(LEAST_OPEN, n // OPEN_SHARE)


def _put_into_buckets(
    train: Train,
    tile: Batch,
    centred: Centred,
    there: Any,
    maps: tuple[Tensor, ...],
    placed: tuple[Tensor, ...],
    memory: int | None,
) -> tuple[Tensor, Tensor] | None:
    """Put all rows into buckets, count them, and list near rows.

    Parameters
    ----------
    train, tile, centred
    there : Kernels or None
        What counts in shared memory; None if it cannot.
    maps : tuple of tensor
    placed : tuple of tensor
        Out: cells, counts, numbers of near rows, near rows and their distances, and numbers of open rows, which were
        measured again unless they are too many.
    memory : int or None

    Returns
    -------
    tuple of tensor or None
        Squared norms and weights of the points; None if the distances are direct.
    """
    n, d, device = train.n, train.columns.shape[0], train.codes.device
    part = train.products if _TRITON >= PRODUCT_TRITON else None
    slices: Any = None if part is None else part.slices
    buckets, room, open_room = placed[1].shape[1], placed[3].shape[1], most_open(n)
    step = min(len(tile), LAUNCHED, tile_points(train, memory, 12 * n, BLOCK, 2 * TILE_PAIRS))
    places = torch.empty(step, n, dtype=torch.int32, device=device)
    distances = torch.empty(step, n, dtype=torch.float64, device=device)
    open_row = torch.empty(step, open_room, dtype=torch.int32, device=device)
    weights = torch.zeros(len(tile), dtype=torch.float64, device=device)
    if part is not None:
        points, norms = centred
        bounds = part.bounds(norms)
        if slices is not None:
            from triton.tools.tensor_descriptor import TensorDescriptor  # older versions do not have it

            own = Slices.of(points)
            row_slices, point_slices = (
                TensorDescriptor.from_tensor(some.numbers, [BLOCK, SLICE_STEP]) for some in (slices, own)
            )
            weights = own.weight
            scales, own_weights = own.scale * (-(2.0**33) * part.unit), weights * (2.0 * part.unit)
    for s in (slice(start, min(start + step, len(tile))) for start in range(0, len(tile), step)):
        p = s.stop - s.start
        *ends, knots = (part_[s] for part_ in maps)
        if part is None:
            bucket_kernels.bucket_rows[(triton.cdiv(n, 128) * (p // POINTS),)](
                train.columns, tile.points[s], *ends, places, distances, n, d, p // POINTS,
                METRIC=train.metric, BP=POINTS, BN=128, num_warps=2,
            )  # fmt: skip
        elif slices is None:
            bucket_kernels.bucket_products[(triton.cdiv(n, BLOCK) * (p // BLOCK),)](
                part.columns, points[s], *part.row_bounds, bounds[0][s], bounds[1][s], *ends, places, distances, n, d,
                p // BLOCK, FACTOR=-2.0 * part.unit, BP=BLOCK, BN=BLOCK, BK=16, num_warps=4, num_stages=2,
            )  # fmt: skip
        else:
            bucket_kernels.bucket_slices[(triton.cdiv(n, BLOCK) * (p // BLOCK),)](
                row_slices, point_slices, slices.scale, scales[s], slices.weight, own_weights[s], *part.row_bounds,
                bounds[0][s], bounds[1][s], *ends, places, distances, n, len(tile), s.start, slices.numbers.shape[1],
                p // BLOCK, BP=BLOCK, BN=BLOCK, BK=SLICE_STEP, num_warps=4, num_stages=2, maxnreg=168,
            )  # fmt: skip
        labels = train.codes, tile.targets[s]
        cells, counts, near_count, near_row, near_distance, open_count = (part_[s] for part_ in placed)
        given = places, knots, *labels, cells, counts, near_count, near_row, open_count, open_row
        if there is None:
            bucket_kernels.place_rows[(p, triton.cdiv(n, 1024))](
                *given, n, buckets, room, open_room, PIECE_BITS=COARSE_BITS, BN=1024
            )
        else:
            cuda.place_rows(there, *given)
        bucket_kernels.near_distances[(room // 256, p)](distances, near_count, near_row, near_distance, n, room, BN=256)
        if part is not None:
            bucket_kernels.bucket_pairs[(p, 4)](
                train.features, tile.points[s], *labels, *ends, knots, cells, counts, near_count, near_row,
                near_distance, open_count, open_row, n, d, buckets, room, open_room, METRIC=train.metric,
                PIECE_BITS=COARSE_BITS, BN=128,
            )  # fmt: skip
    return None if part is None else (norms, weights)


def _order_near(
    train: Train, tile: Batch, there: Any, measured: tuple[Tensor, Tensor] | None, found: Tensor, rows: Tensor,
    near: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Order listed rows (p, room) by distance; ``found`` has their numbers.

    Returns
    -------
    near, elements : tensor of shape (p, room)
        Distances from near to far, infinite behind the last row, and 2 * row + match. Ties are ordered by row number.
    bad : bool tensor of shape (p,)
        Points whose order remains undecided.
    tied : bool tensor of shape (p,)
        Points with equal distances of rows with different labels.
    weights : tensor of shape (p,)
        Products of each point's weight and the largest one of its rows.
    """
    (p, room), device, part = near.shape, near.device, train.products
    if not cuda.sort_lists(there, near, rows, found):
        rows, by_row = rows.sort(dim=1)
        near, places = torch.sort(near.gather(1, by_row), dim=1, stable=True)
        rows = rows.gather(1, places)
    norms, own = measured if measured is not None else (near[:, 0], near[:, 0])
    slices = None if measured is None else part.slices
    elements, weights = torch.empty_like(rows), torch.zeros(p, dtype=torch.float64, device=device)
    open_count = torch.empty(p, dtype=torch.int32, device=device)
    open_rank = torch.empty(p, max(LEAST_OPEN, room // 4), dtype=torch.int32, device=device)
    open_room = open_rank.shape[1]
    factors = (0.0,) * 3 if measured is None else part.gap_factors
    bucket_kernels.near_neighbours[(p,)](
        near, rows, train.codes, tile.targets, found, norms, own, own if slices is None else slices.weight, elements,
        weights, open_count, open_rank, room, open_room, *factors, LEAST=1.0 if measured is None else part.least,
        SURE=measured is None, WEIGHTS=slices is not None,
        ERROR=0.0 if measured is None else 4.06 * part.unit, CHUNK=512,
    )  # fmt: skip
    if measured is None:
        return near, elements, torch.zeros_like(open_count) != 0, open_count > 0, weights
    tied = torch.zeros_like(open_count)
    bucket_kernels.settle_pairs[(p,)](
        train.features, tile.points, near, elements, open_count, open_rank, tied, train.columns.shape[0], room,
        open_room, METRIC=train.metric, BN=128,
    )  # fmt: skip
    tied, bad = tied != 0, open_count > open_room
    left = (torch.arange(open_room, device=device) < open_count[:, None]) & (open_rank < 0) & ~bad[:, None]
    q, k = torch.nonzero(left).unbind(1)
    if q.numel():
        too_long, equal = settle(
            lambda q, far: part.open_gap(norms[q][:, None], far, weights[q][:, None]),
            partial(direct_distances, train, tile.points), elements, near, q, -open_rank[q, k].to(torch.int64),
        )  # fmt: skip
        bad, tied = bad | too_long, tied | equal
    return near, elements, bad, tied, weights


def rank_references(train: Train, batch: Batch, todo: Tensor, result: Result, memory: int | None) -> None:
    """Compute the ranks of the requested training rows."""
    for here in todo.split(tile_points(train, memory, 24 * train.n, STEP)) if todo.numel() else ():
        tile = padded(batch, here, STEP)
        known = fill_distances(train.columns, tile.points, train.metric)[: here.numel()]
        result.ranks[here] = mean_ranks(known, known.gather(1, batch.reference[here]))


def fill_distances(columns: Tensor, points: Tensor, metric: int) -> Tensor:
    """Distances of points, whose number is a multiple of POINTS, to training rows."""
    d, n = columns.shape
    p = points.shape[0]
    filled = torch.empty(p, n, dtype=torch.float64, device=columns.device)
    distance_kernels.fill_distances[(triton.cdiv(n, 256) * (p // POINTS),)](
        columns, points, filled, n, d, p // POINTS, METRIC=metric, BP=POINTS, BN=256, num_warps=2
    )
    return filled


def direct_distances(train: Train, points: Tensor, p: Tensor, rows: Tensor) -> Tensor:
    """Distances of points to rows, both by number (q,), by direct differences."""
    found = torch.empty(p.numel(), dtype=torch.float64, device=rows.device)
    if p.numel():
        bucket_kernels.pair_distances[(triton.cdiv(p.numel(), 128),)](
            train.features, points, p, rows, found, p.numel(), train.columns.shape[0], METRIC=train.metric, BN=128
        )
    return found


def _make_maps(
    train: Train, tile: Batch, centred: Centred, buckets: int, first: int | None
) -> tuple[Tensor, ...]:  # fmt: skip
    part = train.products
    if centred is None:
        sample = fill_distances(train.sample, tile.points, train.metric)
    else:
        points, norms = centred
        sample = part.distances(points @ part.sample, part.sample_norms, norms)
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


def padded(batch: Batch, here: Tensor, step: int) -> Batch:
    """Points ``here``, the last one repeated up to a multiple of ``step``."""
    missing = -here.numel() % step
    return batch[torch.cat([here, here[-1:].expand(missing)])]


def _sum_cells(good: Tensor, level: Tensor, groups: Tensor, rules: Rules) -> tuple[Tensor, Tensor]:
    """Levels and groups of points, group 0 without groups; -1 for points that are left out."""
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
        Numbers of the points, where each sum's points begin, the sums, and how squares are added up (see `add_values`):
        with the groups, or with the levels if there are no groups.
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
    """Look up the values of all points and add them, sum by sum; bounds only once, with the levels."""
    n, width = cells.shape[1], table.shape[1]
    # Few rows: smaller programs with several points at a time; otherwise they mostly wait for memory. Only some of the
    # points per launch: programs that drift apart would need the tables of many points.
    points, rows, warps, together = 8, 64, 2, 512
    if n >= FEW_ROWS:
        points, rows, warps, together = (1, 4096, 8, 128) if n >= MANY_ROWS else (8, 256, 4, 128)
    for number, (members, offsets, sums, squared) in enumerate(lists):
        for begin in range(0, members.numel(), together):
            bucket_kernels.add_cells[(triton.cdiv(n, rows),)](
                cells, table, members, offsets, sums, result.squares, result.bounds, n, sums.shape[0], width, begin,
                begin + together, SQUARES=squared, BOUNDS=number == 0, BP=points, BN=rows, num_warps=warps,
                maxnreg=128,  # lets two programs share a multiprocessor
            )  # fmt: skip


def _look_up(cells: Tensor, table: Tensor, kept: Tensor, near_rows: Tensor, near_values: Tensor) -> Tensor:
    """Values (p, k) of some rows: from the tables, or, for near rows listed by number (-1 for none), their own."""
    # Few torch functions accept unsigned 16-bit numbers.
    cell = cells.view(torch.int16).index_select(1, kept).to(torch.int64) & 0xFFFF
    values = (table.gather(1, cell) & -65536).view(torch.float64)
    column = torch.full((cells.shape[1] + 1,), kept.numel(), dtype=torch.int64, device=cells.device)
    column[kept] = torch.arange(kept.numel(), device=cells.device)
    # Entries without a column go to an extra last one.
    padded = torch.nn.functional.pad(values, (0, 1)).scatter_(1, column[near_rows.to(torch.int64)], near_values)
    return padded[:, :-1]


def integer_scale(rules: Rules, batch: Batch, points: int, power: int) -> float:
    """Units per value of 1, or of a power of it, in integer sums that the values of all points cannot overflow."""
    largest = float(rules.c.abs().max() + (rules.c[1:] - rules.c[:-1]).abs().sum() + batch.bases.abs().max())
    return 2.0 ** min(61 - (points - 1).bit_length() - _exponent(largest**power), 100)


def _exponent(number: float) -> int:
    """Smallest power of two above a number."""
    return int(torch.frexp(torch.tensor(number, dtype=torch.float64))[1])
