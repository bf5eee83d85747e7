"""Triton kernels for exact values of ordered rows (see kernels.cu).

A walk over the ranks from the far end (`chunk_totals`, `rank_values`), and sums over the points (`add_values`).
"""

import triton
import triton.language as tl


@triton.jit
def chunk_totals(order, c, totals, n, n_points, CHUNK: tl.constexpr, POINTS: tl.constexpr):
    """Sum up the contributions of the ranks of each chunk to the values of all nearer ranks."""
    rank = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = rank < n
    step = tl.load(c + rank, mask=inside, other=0.0) - tl.load(c + rank - 1, mask=inside & (rank > 0), other=0.0)
    for q in range(POINTS):
        p = tl.program_id(1).to(tl.int64) * POINTS + q
        if p < n_points:
            match = (tl.load(order + p * n + rank, mask=inside, other=0) & 1).to(tl.float64)
            tl.store(totals + p * tl.num_programs(0) + tl.program_id(0), tl.sum(match * step, 0))


@triton.jit
def rank_values(order, c, carried, level_cells, values, n, n_ranges, CHUNK: tl.constexpr, RANGE: tl.constexpr):
    """Write the values of ordered rows by row number, as bit patterns; ``carried`` is the sum from farther chunks.

    Programs that run at the same time belong to one point and to one range of rows, whose values stay in the
    second-level cache until they are complete.
    """
    p = (tl.program_id(1) // n_ranges).to(tl.int64)
    start = (tl.program_id(1) % n_ranges) * RANGE
    rank = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = rank < n
    here = tl.load(c + rank, mask=inside, other=0.0)
    step = here - tl.load(c + rank - 1, mask=inside & (rank > 0), other=0.0)
    element = tl.load(order + p * n + rank, mask=inside, other=0)
    match = (element & 1).to(tl.float64)
    term = match * step
    farther = tl.cumsum(term, 0, reverse=True) - term
    value = match * here + farther + tl.load(carried + p * tl.num_programs(0) + tl.program_id(0))
    row = element >> 1
    mask = inside & (tl.load(level_cells + p) >= 0) & (row >= start) & (row - start < RANGE)
    # Added to zeros, because scattered additions are faster than scattered stores.
    tl.atomic_add(values + p * n + row, value.to(tl.int64, bitcast=True), mask=mask, sem="relaxed")


@triton.jit
def add_values(
    values, members, offsets, sums, squares, n, n_sums, SQUARES: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Add the values of points, listed sum by sum, always in the same order.

    SQUARES is 0 for none, 1 for one sum of squares, and 2 for one per sum. Points are added BP at a time, because a
    program that processes them one by one mostly waits.
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
