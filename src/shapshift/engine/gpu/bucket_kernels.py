"""Triton kernels for certified values: buckets as tie groups.

Rows are put into coarse buckets and never sorted (`bucket_products`, `bucket_rows`). One pass over the counts makes a
table of two values per bucket with their error bounds (`bucket_values`), and every row looks up its value
(`add_cells`). Only the nearest rows are listed (`list_near`), ordered and valued one by one. The formulas are those of
:mod:`shapshift.kernels.buckets`.
"""

import triton
import triton.language as tl

from shapshift.engine.gpu.cosine_kernels import _cosine_distances
from shapshift.engine.gpu.distance_kernels import _add_feature, _by_rows, _distances


@triton.jit
def _put_rows(
    upper, start, first_point, sure, codes, targets, first, span, up, knots, cells, counts, n, n_buckets,
    COUNT: tl.constexpr, PIECE_BITS: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Put rows from ``start`` on into buckets of points from ``first_point`` on, by their distances (BP, BN).

    Of the bit patterns of distances, ``upper`` is the upper half.
    A row's cell is 2 * bucket + match; rows nearer than ``first`` share the cell 2 * n_buckets. The map looks at the
    upper half of the pattern only: a part in a million of a distance is fine enough for buckets. A counter holds the
    rows of a bucket in its lower and the matches in its upper half; `bucket_values` notices when one runs over.
    """
    rows = start + tl.arange(0, BN)[None, :]
    p = first_point + tl.arange(0, BP)[:, None]
    past = upper - tl.load(first + p)
    place = tl.minimum(tl.maximum(past, 0), tl.load(span + p)) << tl.load(up + p)
    match = (tl.load(codes + rows, mask=rows < n, other=-2) == tl.load(targets + p)).to(tl.int32)
    # One number for all that follows; a map can spare its last bit.
    packed = (place & -2) | match | (past < 0).to(tl.int32) << 31
    packed = _by_rows(packed, counts, n, BP * BN)
    place = (packed & 0x7FFFFFFE).to(tl.uint32)
    match = packed & 1
    element = tl.arange(0, BP * BN)
    p = first_point + element // BN
    mask = (start + element % BN < n) & sure
    # Nor is the compiler to know that rows follow each other, or it moves eight to each thread for the store below.
    row = start + _by_rows(element % BN, counts, n, BP * BN)
    knot = tl.load(knots + (p << PIECE_BITS) + (place >> (31 - PIECE_BITS)).to(tl.int32))
    bucket = knot.to(tl.int32) + tl.umulhi(place << (1 + PIECE_BITS), (knot >> 32).to(tl.uint32)).to(tl.int32)
    if COUNT:
        tl.atomic_add(counts + p * n_buckets + bucket, 1 + (match << 16), mask=mask & (packed >= 0), sem="relaxed")
    cell = tl.where(packed < 0, 2 * n_buckets, 2 * bucket + match)
    tl.store(cells + p.to(tl.int64) * n + row, cell.to(tl.uint16), mask=mask)


@triton.jit
def bucket_products(
    columns, points, row_norms, point_norms, codes, targets, first, span, up, knots, cells, counts, doubtful, found,
    n, d, n_buckets, n_groups, slack, spread,
    LEAST: tl.constexpr, HALF: tl.constexpr, GIVEN: tl.constexpr, COUNT: tl.constexpr, PIECE_BITS: tl.constexpr,
    BP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Put the rows of a tile into buckets by squared distances (or half of them) from matrix products.

    With GIVEN, ``points`` holds the products.

    `Products.error` bounds their difference from direct differences, which define the order of rows. If that leaves the
    upper half of a pattern undecided, which is rare, the tile is listed for `bucket_rows` and skipped here: every cell
    is the one that direct differences give. LEAST is a constant because other numbers are float32 here.
    """
    tile = tl.program_id(0)
    start = (tile // n_groups) * BN
    first_point = (tile % n_groups) * BP
    rows = start + tl.arange(0, BN)[None, :]
    p = first_point + tl.arange(0, BP)[:, None]
    inside = rows < n
    if GIVEN:
        product = tl.load(points + p.to(tl.int64) * n + rows, mask=inside, other=0.0)
    else:
        feature = tl.arange(0, BK)
        point = points + p * d + feature[None, :]
        row = columns + feature[:, None].to(tl.int64) * n + rows
        product = tl.zeros((BP, BN), tl.float64)
        for j in range(0, d, BK):
            x = tl.load(point, mask=feature[None, :] < d - j, other=0.0)
            y = tl.load(row, mask=inside & (feature[:, None] < d - j), other=0.0)
            product = tl.dot(x, y, product, out_dtype=tl.float64)
            point += BK
            row += BK * n.to(tl.int64)
    norms = tl.load(row_norms + rows, mask=inside, other=0.0) + tl.load(point_norms + p)
    total = tl.fma(product, tl.full((BP, BN), -2.0, tl.float64), norms)
    both = norms + tl.full((BP, BN), LEAST, tl.float64)
    error = both * slack
    if HALF:
        total = total * 0.5
        error = error * 0.5 + spread * tl.sqrt(both)
    upper = ((total + error).to(tl.int64, bitcast=True) >> 32).to(tl.int32)
    lower = ((total - error).to(tl.int64, bitcast=True) >> 32).to(tl.int32)
    unsure = tl.max(((upper != lower) & inside).to(tl.int32))
    if unsure > 0:
        tl.store(doubtful + tl.atomic_add(found, 1, sem="relaxed"), tile)
    _put_rows(
        upper, start, first_point, unsure == 0, codes, targets, first, span, up, knots, cells, counts, n, n_buckets,
        COUNT, PIECE_BITS, BP, BN,
    )  # fmt: skip


@triton.jit
def bucket_rows(
    columns, points, codes, targets, first, span, up, knots, cells, counts, listed, found, n, d, n_buckets, n_groups,
    METRIC: tl.constexpr, COUNT: tl.constexpr, PIECE_BITS: tl.constexpr, TILE: tl.constexpr, BP: tl.constexpr,
    BN: tl.constexpr,
):  # fmt: skip
    """Put the rows of listed tiles, of TILE points each, into buckets by direct differences."""
    parts: tl.constexpr = TILE // BP
    for t in range(tl.program_id(0), tl.load(found) * parts, tl.num_programs(0)):
        tile = tl.load(listed + t // parts)
        start = (tile // n_groups) * BN
        first_point = (tile % n_groups) * TILE + (t % parts) * BP
        rows = start + tl.arange(0, BN)[None, :]
        p = first_point + tl.arange(0, BP)[:, None]
        total = _distances(columns, points, rows, rows < n, p, n, d, METRIC, BP, BN)
        _put_rows(
            (total.to(tl.int64, bitcast=True) >> 32).to(tl.int32), start, first_point, True, codes, targets, first,
            span, up, knots, cells, counts, n, n_buckets, COUNT, PIECE_BITS, BP, BN,
        )  # fmt: skip


@triton.jit
def _pack(value, bound):
    """Put the upper half of a bound, as a float32 rounded up, in place of the last 16 bits of a value."""
    bound = bound + tl.abs(value) * 2.0**-36  # error of the value from this
    upper = (bound * 1.008 + 1e-37).to(tl.float32).to(tl.int32, bitcast=True) >> 16
    return (value.to(tl.int64, bitcast=True) & -65536) | (upper & 0xFFFF).to(tl.int64)


@triton.jit
def _inverse(count):
    """1 / count, by one Newton step from float32: a float64 division costs three times as much."""
    rough = (1.0 / count.to(tl.float32)).to(tl.float64)
    return rough * (2.0 - count.to(tl.float64) * rough)


@triton.jit
def bucket_values(
    counts, c, tail, bases, table, at_near, near_bound, near_rows, mass, n, n_buckets, convex_from, width,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Values of matching and other rows of a point's buckets with bounds, from the far end.

    A bucket is a tie group. The error of its rows is at most the distance of the group's value from either end of the
    range over all orders of its rows, plus the uncertainty that farther buckets add. The amount passed on to the near
    rows, its uncertainty and the number of rows left for them are stored.
    """
    p = tl.program_id(0).to(tl.int64)
    passed = tl.load(bases + p)
    doubt = tl.full((), 0.0, tl.float64)
    spent = tl.full((), 0.0, tl.float64)
    end = n
    for k in range(0, n_buckets, CHUNK):
        bucket = n_buckets - CHUNK - k + tl.arange(0, CHUNK)
        counter = tl.load(counts + p * n_buckets + bucket)
        rows = counter & 0xFFFF
        matches = (counter >> 16) & 0xFFFF
        lo = end - tl.cumsum(rows, 0, reverse=True)
        hi = lo + rows
        filled = (rows > 0) & (lo >= 0)
        some = rows.to(tl.float64)
        inverse = _inverse(tl.maximum(rows, 1))
        m = matches.to(tl.float64)
        o = some - m
        mixed = filled & (matches > 0) & (matches < rows)
        convex = mixed & (lo >= convex_from)
        last = tl.load(c + hi - 1, mask=filled, other=0.0)
        first = tl.load(c + lo, mask=mixed, other=0.0)
        before = tl.load(c + lo - 1, mask=filled & (lo > 0), other=0.0)
        total = tl.load(tail + lo, mask=mixed, other=0.0) - tl.load(tail + hi, mask=mixed, other=0.0)
        gap = tl.where(mixed, (total * inverse - last) * _inverse(tl.maximum(rows - 1, 1)), 0.0)
        # Upper bound on the drops behind a row in any order: the largest come first if the table is convex.
        most_o = first - tl.load(c + hi - matches, mask=convex, other=0.0)
        most_o = tl.where(convex, most_o, first - last)
        most_m = first - tl.load(c + lo + matches, mask=convex, other=0.0)
        most_m = tl.where(convex, most_m, first - last)
        own_m = tl.where(mixed, tl.maximum(most_o - o * gap, o * gap), 0.0)
        own_o = tl.where(mixed, tl.maximum(most_m - m * gap, m * gap), 0.0)
        step = tl.where(filled & (lo > 0), m * inverse * (last - before), 0.0)
        largest = before - tl.load(c + lo + matches - 1, mask=convex & (lo > 0), other=0.0)
        largest = tl.where(convex, largest, before - last)
        smallest = tl.where(convex, tl.load(c + hi - 1 - matches, mask=convex, other=0.0) - last, 0.0)
        growth = tl.where(mixed & (lo > 0), tl.maximum(largest + step, -step - smallest), 0.0)
        here = passed + (tl.cumsum(step, 0, reverse=True) - step)
        unsure = doubt + (tl.cumsum(growth, 0, reverse=True) - growth)
        at = table + p * width + 2 * bucket
        tl.store(at, _pack(here - m * gap * mixed.to(tl.float64), own_o + unsure), mask=filled)
        tl.store(at + 1, _pack(here + last + o * gap, own_m + unsure), mask=filled)
        spent += tl.sum(tl.where(filled, m * own_m + o * own_o + some * unsure, 0.0), 0)
        passed += tl.sum(step, 0)
        doubt += tl.sum(growth, 0)
        end -= tl.sum(rows, 0)
    tl.store(at_near + p, passed)
    tl.store(near_bound + p, doubt)
    tl.store(near_rows + p, end)
    tl.store(mass + p, spent + end.to(tl.float64) * doubt)


@triton.jit
def list_near(cells, near_count, near_row, n, n_buckets, capacity, BN: tl.constexpr):
    """List the near rows of each point; a list that is too short stores the number of rows it should have.

    Near rows are few, and programs that run at the same time belong to different points, so counters rarely collide.
    """
    p = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = rows < n
    near = inside & (tl.load(cells + p * n + rows, mask=inside, other=0).to(tl.int32) == 2 * n_buckets)
    slot = tl.atomic_add(near_count + p * 32 + tl.zeros((BN,), tl.int32), 1, mask=near, sem="relaxed")
    tl.store(near_row + p * capacity + slot, rows, mask=near & (slot < capacity))


@triton.jit
def near_distances(
    features, points, near_count, near_row, near_distance, d, capacity, METRIC: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Distances of listed rows, from features row by row; places beyond the list get infinity.

    Two features are loaded at a time, because a load of scattered rows costs the same for one and for two.
    """
    p = tl.program_id(1).to(tl.int64)
    slot = tl.program_id(0) * BN + tl.arange(0, BN)
    listed = slot < tl.load(near_count + p * 32)
    total = tl.zeros((BN,), tl.float64)
    if tl.program_id(0) * BN < tl.load(near_count + p * 32):
        rows = tl.load(near_row + p * capacity + slot, mask=listed, other=0)
        if METRIC == 2:
            row = features + rows.to(tl.int64)[None, :] * d
            at = points + p * d + tl.zeros((1, 1), tl.int64)
            total = tl.reshape(_cosine_distances(row, at, listed[None, :], d, 1, 1, BN), (BN,))
        else:
            two = tl.arange(0, 2)[None, :]
            feature = features + rows.to(tl.int64)[:, None] * d + two
            point = points + p * d
            for j in range(0, d, 2):
                x, other_x = tl.split(tl.load(feature, mask=listed[:, None] & (two < d - j), other=0.0))
                at = tl.load(point)
                other_at = tl.load(point + 1, mask=j + 1 < d, other=0.0)
                total = _add_feature(x, at, total, METRIC)
                total = _add_feature(other_x, other_at, total, METRIC)
                feature += 2
                point += 2
    tl.store(near_distance + p * capacity + slot, tl.where(listed, total, float("inf")))


@triton.jit
def near_values(
    rows, codes, targets, c, near_count, passed, values, capacity, CHUNK: tl.constexpr
):  # fmt: skip
    """Values of listed rows in order of distance, if no two are equally far; ``passed`` is added by farther rows."""
    p = tl.program_id(0).to(tl.int64)
    found = tl.load(near_count + p * 32)
    target = tl.load(targets + p)
    carry = tl.load(passed + p)
    for k in range(0, capacity, CHUNK):
        rank = capacity - CHUNK - k + tl.arange(0, CHUNK)
        inside = (rank < found) & (rank >= 0)
        row = tl.load(rows + p * capacity + rank, mask=inside, other=0)
        match = tl.where(inside & (tl.load(codes + row, mask=inside, other=-2) == target), 1.0, 0.0).to(tl.float64)
        here = tl.load(c + rank, mask=inside, other=0.0)
        term = match * (here - tl.load(c + rank - 1, mask=inside & (rank > 0), other=0.0))
        term = tl.where(rank > 0, term, 0.0)
        farther = tl.cumsum(term, 0, reverse=True) - term
        tl.store(values + p * capacity + rank, match * here + farther + carry, mask=rank >= 0)
        carry += tl.sum(term, 0)


@triton.jit
def add_near(
    values, rows, near_count, near_bound, level_cells, group_cells, sums, group_sums, squares, bounds, n, capacity,
    scale, square_scale, bound_scale, GROUPS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add values, squares and bounds of listed rows to integer sums, whose order of additions does not matter."""
    p = tl.program_id(1).to(tl.int64)
    rank = tl.program_id(0) * BN + tl.arange(0, BN)
    cell = tl.load(level_cells + p).to(tl.int64)
    inside = (rank < tl.load(near_count + p * 32)) & (rank < capacity) & (cell >= 0)
    row = tl.load(rows + p * capacity + rank, mask=inside, other=0)
    value = tl.load(values + p * capacity + rank, mask=inside, other=0.0)
    whole = tl.floor(value * scale + 0.5).to(tl.int64)
    tl.atomic_add(sums + cell * n + row, whole, mask=inside, sem="relaxed")
    group = tl.load(group_cells + p).to(tl.int64)
    square = tl.floor(value * value * square_scale + 0.5).to(tl.int64)
    tl.atomic_add(squares + group * n + row, square, mask=inside, sem="relaxed")
    bound = tl.ceil(tl.load(near_bound + p) * bound_scale).to(tl.int64) + 1
    tl.atomic_add(bounds + row, bound + tl.zeros((BN,), tl.int64), mask=inside, sem="relaxed")
    if GROUPS:
        tl.atomic_add(group_sums + group * n + row, whole, mask=inside, sem="relaxed")


@triton.jit
def add_cells(
    cells, table, members, offsets, sums, squares, bounds, n, n_sums, width, begin, end,
    SQUARES: tl.constexpr, BOUNDS: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Look up the values of some of the points, listed sum by sum, and add them and their error bounds.

    SQUARES and BP as in `add_values`. Squares of a launch are added up in float32, since values are no more accurate.
    """
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = rows < n
    bound = tl.zeros((BP, BN), tl.float32)
    start = tl.maximum(tl.load(offsets), begin)
    for k in range(n_sums):
        stop = tl.minimum(tl.load(offsets + k + 1), end)
        if stop > start:
            total = tl.zeros((BP, BN), tl.float64)
            square = tl.zeros((BP, BN), tl.float32)
            for q in range(start, stop, BP):
                if BP == 1:
                    p = tl.load(members + q).to(tl.int64)
                    cell = tl.load(cells + p * n + rows[None, :], mask=inside[None, :], other=0).to(tl.int32)
                    entry = tl.load(table + p * width + cell)
                else:
                    place = q + tl.arange(0, BP)
                    p = tl.load(members + place, mask=place < stop, other=0).to(tl.int64)[:, None]
                    mask = (place < stop)[:, None] & inside[None, :]
                    cell = tl.load(cells + p * n + rows[None, :], mask=mask, other=0).to(tl.int32)
                    entry = tl.load(table + p * width + cell, mask=mask, other=0)
                value = (entry & -65536).to(tl.float64, bitcast=True)
                total += value
                if SQUARES:
                    square += value.to(tl.float32) * value.to(tl.float32)
                bound += (entry << 16).to(tl.int32).to(tl.float32, bitcast=True)
            at = sums + tl.full((), k, tl.int64) * n + rows
            tl.store(at, tl.load(at, mask=inside, other=0.0) + tl.sum(total, 0), mask=inside)
            if SQUARES:
                at = squares + tl.full((), k if SQUARES == 2 else 0, tl.int64) * n + rows
                tl.store(at, tl.load(at, mask=inside, other=0.0) + tl.sum(square, 0).to(tl.float64), mask=inside)
        start = tl.maximum(start, stop)
    if BOUNDS:
        at = bounds + rows
        tl.store(at, tl.load(at, mask=inside, other=0.0) + tl.sum(bound, 0).to(tl.float64), mask=inside)
