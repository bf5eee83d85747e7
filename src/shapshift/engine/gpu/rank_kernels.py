"""Triton kernels for exact values: a counting sort.

A histogram of fine buckets (`count_rows`, `bucket_starts`), rows written to their bucket (`scatter_rows`), a sort of
windows that hold a few buckets each (`order_windows`), a walk over the ranks from the far end (`chunk_totals`,
`rank_values`), and sums over the points (`add_values`).
"""

import triton
import triton.language as tl

from shapshift.engine.gpu.distance_kernels import _distances, _locate


@triton.jit
def count_rows(
    columns, points, first, span, up, knots, distances, counts, n, d, n_buckets, n_groups,
    METRIC: tl.constexpr, PIECE_BITS: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Distances of a tile, and how many rows each bucket of each point holds."""
    rows = (tl.program_id(0) // n_groups) * BN + tl.arange(0, BN)[None, :]
    p = (tl.program_id(0) % n_groups) * BP + tl.arange(0, BP)[:, None]
    inside = rows < n
    total = _distances(columns, points, rows, inside, p, n, d, METRIC, BP, BN)
    mask = inside & (p >= 0)
    tl.store(distances + p.to(tl.int64) * n + rows, total, mask=mask)
    bucket, _ = _locate(
        total.to(tl.int64, bitcast=True), tl.load(first + p), tl.load(span + p), tl.load(up + p),
        knots + (p << PIECE_BITS), PIECE_BITS,
    )  # fmt: skip
    tl.atomic_add(counts + p.to(tl.int64) * n_buckets + bucket, 1, mask=mask, sem="relaxed")


@triton.jit
def bucket_starts(counts, longest, n_buckets, CHUNK: tl.constexpr):
    """Turn the counts of one point into the rank at which each bucket begins; report the longest bucket."""
    p = tl.program_id(0).to(tl.int64)
    at = counts + p * n_buckets + tl.arange(0, CHUNK)
    before = 0
    most = 0
    for _ in range(0, n_buckets, CHUNK):
        count = tl.load(at)
        tl.store(at, before + tl.cumsum(count, 0) - count)
        before += tl.sum(count, 0)
        most = tl.maximum(most, tl.max(count, 0))
        at += CHUNK
    tl.store(longest + p, most)


@triton.jit
def scatter_rows(
    distances, codes, targets, first, span, up, knots, starts, keys, n, n_buckets, rest_bits, id_bits,
    PIECE_BITS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Write every row to its bucket as one number: image of the distance, row number, match."""
    p = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0).to(tl.int64) * BN + tl.arange(0, BN)
    inside = rows < n
    bits = tl.load(distances + p * n + rows, mask=inside, other=0.0).to(tl.int64, bitcast=True)
    bucket, rest = _locate(
        bits, tl.load(first + p), tl.load(span + p), tl.load(up + p), knots + (p << PIECE_BITS), PIECE_BITS
    )
    match = tl.load(codes + rows, mask=inside, other=-2) == tl.load(targets + p)
    image = (bucket.to(tl.int64) << rest_bits) | (rest >> (64 - rest_bits)).to(tl.int64)
    key = (image << id_bits) | (rows << 1) | match.to(tl.int64)
    slot = tl.atomic_add(starts + p * n_buckets + bucket, 1, mask=inside, sem="relaxed")
    # Added to zeros: scattered additions are faster than scattered stores.
    tl.atomic_add(keys + p * n + slot, key, mask=inside, sem="relaxed")


@triton.jit
def order_windows(
    keys, distances, order, unsettled, n, id_bits,
    AVERAGE: tl.constexpr, WINDOW: tl.constexpr, MARGIN: tl.constexpr,
):  # fmt: skip
    """Sort windows of keys; write row numbers and matches in order of distance.

    Windows overlap by more than the longest bucket, so that every rank lies, with its whole bucket, inside the middle
    of a window. Rows whose images coincide are compared by their distances. A tie of rows that match with rows that do
    not, and an image of more than two rows, are left to another method.
    """
    middle: tl.constexpr = WINDOW - 2 * MARGIN
    place = tl.arange(0, WINDOW)
    rank = tl.program_id(0) * middle - MARGIN + place
    valid = (rank >= 0) & (rank < n)
    mine = valid & (place >= MARGIN) & (place < WINDOW - MARGIN)
    p = tl.program_id(1).to(tl.int64)
    row_mask = (tl.full((), 1, tl.int64) << id_bits) - 1
    key = tl.load(keys + p * n + rank, mask=valid, other=0)
    key = tl.sort(tl.where(valid, key, tl.where(rank < 0, -1, 0x7FFFFFFFFFFFFFFF)))
    following = tl.gather(key, tl.minimum(place + 1, WINDOW - 1), 0)
    shared = valid & (place + 1 < WINDOW) & (rank + 1 < n) & ((key >> id_bits) == (following >> id_bits))
    doubtful = shared & (((key ^ following) & 1) != 0)
    if tl.max(doubtful.to(tl.int32), 0) > 0:
        before = tl.maximum(place - 1, 0)
        preceding = tl.gather(key, before, 0)
        here = tl.load(distances + p * n + ((key & row_mask) >> 1), mask=valid, other=0.0)
        beyond = tl.gather(here, tl.minimum(place + 1, WINDOW - 1), 0)
        swap = doubtful & (here > beyond)
        swapped = (tl.gather(swap.to(tl.int32), before, 0) > 0) & (place > 0)
        unclear = shared & (tl.gather(shared.to(tl.int32), before, 0) > 0) & (place > 0)
        if AVERAGE:
            unclear = unclear | (doubtful & (here == beyond))
        if tl.max((unclear & mine).to(tl.int32), 0) > 0:
            tl.store(unsettled + p, 1)
        key = tl.where(swap, following, tl.where(swapped, preceding, key))
    tl.store(order + p * n + rank, (key & row_mask).to(tl.int32), mask=mine)


@triton.jit
def chunk_totals(order, c, totals, n, n_points, CHUNK: tl.constexpr, POINTS: tl.constexpr):
    """Sum up what the ranks of each chunk add to the values of all nearer ranks."""
    rank = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = rank < n
    step = tl.load(c + rank, mask=inside, other=0.0) - tl.load(c + rank - 1, mask=inside & (rank > 0), other=0.0)
    for q in range(POINTS):
        p = tl.program_id(1).to(tl.int64) * POINTS + q
        if p < n_points:
            match = (tl.load(order + p * n + rank, mask=inside, other=0) & 1).to(tl.float64)
            tl.store(totals + p * tl.num_programs(0) + tl.program_id(0), tl.sum(match * step, 0))


@triton.jit
def rank_values(order, c, carried, level_cells, values, n, CHUNK: tl.constexpr):
    """Write the values of ordered rows by row number, as bit patterns; ``carried`` is what farther chunks add.

    Programs that run at the same time belong to one point, whose values stay in the second-level cache until they are
    complete.
    """
    p = tl.program_id(1).to(tl.int64)
    rank = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = rank < n
    here = tl.load(c + rank, mask=inside, other=0.0)
    step = here - tl.load(c + rank - 1, mask=inside & (rank > 0), other=0.0)
    element = tl.load(order + p * n + rank, mask=inside, other=0)
    match = (element & 1).to(tl.float64)
    term = match * step
    farther = tl.cumsum(term, 0, reverse=True) - term
    value = match * here + farther + tl.load(carried + p * tl.num_programs(0) + tl.program_id(0))
    mask = inside & (tl.load(level_cells + p) >= 0)
    # Added to zeros, as in `scatter_rows`.
    tl.atomic_add(values + p * n + (element >> 1), value.to(tl.int64, bitcast=True), mask=mask, sem="relaxed")


@triton.jit
def add_values(
    values, members, offsets, sums, squares, n, n_sums, SQUARES: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Add the values of points, which are listed sum by sum, always in the same order.

    SQUARES is 0 for none, 1 for one sum of squares, and 2 for as many as there are sums. Points are added BP at a time,
    because a program that waits for one after the other waits most of the time.
    """
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = rows < n
    start = tl.load(offsets)
    for k in range(n_sums):
        stop = tl.load(offsets + k + 1)
        if stop > start:
            total = tl.zeros((BP, BN), tl.float64)
            square = tl.zeros((BP, BN), tl.float64)
            for q in range(start, stop, BP):
                place = q + tl.arange(0, BP)
                p = tl.load(members + place, mask=place < stop, other=0).to(tl.int64)
                mask = (place < stop)[:, None] & inside[None, :]
                value = tl.load(values + p[:, None] * n + rows[None, :], mask=mask, other=0.0)
                total += value
                if SQUARES:
                    square += value * value
            at = sums + tl.full((), k, tl.int64) * n + rows
            tl.store(at, tl.load(at, mask=inside, other=0.0) + tl.sum(total, 0), mask=inside)
            if SQUARES:
                at = squares + tl.full((), k if SQUARES == 2 else 0, tl.int64) * n + rows
                tl.store(at, tl.load(at, mask=inside, other=0.0) + tl.sum(square, 0), mask=inside)
        start = stop
