"""Triton kernels for certified values: buckets as tie groups.

Rows are put into coarse buckets and never sorted: first their places in a map (`bucket_products`, `bucket_slices` or
`bucket_rows`), then buckets by these (`place_rows`) and, where they leave it open, by direct differences
(`bucket_pairs`). One pass over the counts makes a table of two values per bucket with their error bounds
(`bucket_values`), and every row looks up its value (`add_cells`). Only the nearest rows are listed, ordered
(`near_neighbours`, `settle_pairs`) and valued one by one. The formulas are those of :mod:`shapshift.kernels.buckets`.
"""

import triton
import triton.language as tl

from shapshift.engine.gpu.cosine_kernels import _cosine_distances
from shapshift.engine.gpu.distance_kernels import _add_feature, _distances


@triton.jit
def _bucket_of(place, knots, p, PIECE_BITS: tl.constexpr):
    """Buckets of places in the maps of points, and whether the pattern before may be in another one.

    The last three bits of a place are zero. One pattern less moves a number inside its piece by 2**step, and the
    product with the piece's buckets by 2**step times their number.
    """
    knot = tl.load(knots + (p << PIECE_BITS) + (place >> (31 - PIECE_BITS)).to(tl.int32))
    low = knot.to(tl.uint32)
    buckets = (knot >> 32).to(tl.uint32)
    inside = place << (1 + PIECE_BITS)
    bucket = ((low & 0xFFFF) + tl.umulhi(inside, buckets)).to(tl.int32)
    return bucket, (inside * buckets) >> (low >> 16) <= buckets


@triton.jit
def _place_of(distance, begin, span, up):
    """Patterns of distances, how far they are past the begin of a map, and their places in it."""
    pattern = (distance.to(tl.int64, bitcast=True) >> 32).to(tl.int32)
    past = pattern - begin
    return pattern, past, (tl.minimum(tl.maximum(past, 0), span) << up) & -8


@triton.jit
def _store_places(
    most, least, start, first_point, first, span, up, places, distances, n,
    SURE: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Store the places in the maps of points from ``first_point`` on of rows from ``start`` on.

    Direct differences define the order of rows; ``most`` and ``least`` (BP, BN) are bounds of these distances. A map
    looks at the upper half of a distance's bit pattern only: a part in a million of a distance is fine enough for
    buckets. The place is that of ``most``. Bits 1 and 2 say whether ``least`` has the same pattern (0), the one before
    (1) or an earlier one (2). Places of rows nearer than ``first`` are negative, and their bounds ``most`` are stored.
    """
    p = tl.arange(0, BP)[:, None]
    rows = tl.arange(0, BN)[None, :]
    inside = rows < n - start
    own = first_point + p
    pattern, past, place = _place_of(most, tl.load(first + own), tl.load(span + own), tl.load(up + own))
    place |= past & -2147483648
    if not SURE:
        before = tl.maximum((least.to(tl.int64, bitcast=True) >> 32).to(tl.int32), 0)
        place |= tl.minimum(pattern - before, 2) << 1
    block = first_point.to(tl.int64) * n + start
    at = p * n + rows
    tl.store(places + block + at, place, mask=inside)
    tl.store(distances + block + at, most, mask=inside & (past < 0))


@triton.jit
def bucket_products(
    columns, points, row_most, row_least, point_most, point_least, first, span, up, places, distances, n, d, n_groups,
    FACTOR: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Store the places of a tile by distances from matrix products in float64.

    A distance is at most ``row_most`` + ``point_most`` + FACTOR times the product; see `Products`.
    """
    start = (tl.program_id(0) // n_groups) * BN
    first_point = (tl.program_id(0) % n_groups) * BP
    rows = start + tl.arange(0, BN)[None, :]
    p = first_point + tl.arange(0, BP)[:, None]
    inside = rows < n
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
    most = tl.load(row_most + rows, mask=inside, other=0.0) + tl.load(point_most + p)
    least = tl.load(row_least + rows, mask=inside, other=0.0) + tl.load(point_least + p)
    factor = tl.full((BP, BN), FACTOR, tl.float64)
    most, least = tl.fma(product, factor, most), tl.fma(product, factor, least)
    _store_places(most, least, start, first_point, first, span, up, places, distances, n, False, BP, BN)


@triton.jit
def bucket_slices(
    row_slices, point_slices, row_scales, point_scales, row_weights, point_weights, row_most, row_least, point_most,
    point_least, first, span, up, places, distances, n, n_points, start_points, d, n_groups,
    BP: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr,
):  # fmt: skip
    """Store the places of a tile, as `bucket_products` does, from products of slices of 8 bits.

    See `Slices`. Sums of products that count the same are added up together, without error. The first two fit 32 bits
    together, even if not on the way there. Scales and weights of points have their factors. Points are those from
    ``start_points`` on of the ``n_points`` that have slices.
    """
    start = (tl.program_id(0) // n_groups) * BN
    first_point = (tl.program_id(0) % n_groups) * BP
    first_slice = start_points + first_point
    sum_0 = tl.zeros((BP, BN), tl.int32)
    sum_1 = tl.zeros((BP, BN), tl.int32)
    sum_2 = tl.zeros((BP, BN), tl.int32)
    sum_3 = tl.zeros((BP, BN), tl.int32)
    for j in range(0, d, BK):
        x_0 = point_slices.load([first_slice, j])
        x_1 = point_slices.load([n_points + first_slice, j])
        x_2 = point_slices.load([2 * n_points + first_slice, j])
        x_3 = point_slices.load([3 * n_points + first_slice, j])
        y_0 = row_slices.load([start, j]).T
        y_1 = row_slices.load([n + start, j]).T
        y_2 = row_slices.load([2 * n + start, j]).T
        y_3 = row_slices.load([3 * n + start, j]).T
        sum_0 = tl.dot(x_0, y_0, sum_0, out_dtype=tl.int32)
        sum_1 = tl.dot(x_0, y_1, sum_1, out_dtype=tl.int32)
        sum_2 = tl.dot(x_0, y_2, sum_2, out_dtype=tl.int32)
        sum_3 = tl.dot(x_0, y_3, sum_3, out_dtype=tl.int32)
        sum_1 = tl.dot(x_1, y_0, sum_1, out_dtype=tl.int32)
        sum_2 = tl.dot(x_1, y_1, sum_2, out_dtype=tl.int32)
        sum_3 = tl.dot(x_1, y_2, sum_3, out_dtype=tl.int32)
        sum_2 = tl.dot(x_2, y_0, sum_2, out_dtype=tl.int32)
        sum_3 = tl.dot(x_2, y_1, sum_3, out_dtype=tl.int32)
        sum_3 = tl.dot(x_3, y_0, sum_3, out_dtype=tl.int32)
    rows = start + tl.arange(0, BN)[None, :]
    p = first_point + tl.arange(0, BP)[:, None]
    inside = rows < n
    high = tl.fma(
        ((sum_0 << 8) + sum_1).to(tl.float64), tl.full((BP, BN), 256.0, tl.float64),
        (sum_2 + ((sum_3 + 128) >> 8)).to(tl.float64),
    )  # fmt: skip
    factor = tl.load(row_scales + rows, mask=inside, other=0.0) * tl.load(point_scales + p)
    error = tl.load(row_weights + rows, mask=inside, other=0.0) * tl.load(point_weights + p)
    most = tl.load(row_most + rows, mask=inside, other=0.0) + tl.load(point_most + p) + error
    least = tl.load(row_least + rows, mask=inside, other=0.0) + tl.load(point_least + p) - error
    most, least = tl.fma(high, factor, most), tl.fma(high, factor, least)
    _store_places(most, least, start, first_point, first, span, up, places, distances, n, False, BP, BN)


@triton.jit
def bucket_rows(
    columns, points, first, span, up, places, distances, n, d, n_groups,
    METRIC: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Store the places of a tile by direct differences."""
    start = (tl.program_id(0) // n_groups) * BN
    first_point = (tl.program_id(0) % n_groups) * BP
    rows = start + tl.arange(0, BN)[None, :]
    p = first_point + tl.arange(0, BP)[:, None]
    total = _distances(columns, points, rows, rows < n, p, n, d, METRIC, BP, BN)
    _store_places(total, total, start, first_point, first, span, up, places, distances, n, True, BP, BN)


@triton.jit
def _pair_distances(features, points, p, rows, inside, d, METRIC: tl.constexpr, BN: tl.constexpr):
    """Distances of pairs of points and rows, from features row by row.

    Two features are loaded at a time, because a load of scattered rows costs the same for one and for two, and eight
    before the first is used.
    """
    row = features + rows.to(tl.int64) * d
    at = points + p.to(tl.int64) * d
    if METRIC == 2:
        total = _cosine_distances(row[None, :], at[None, :], inside[None, :], d, 1, 1, BN)
        return tl.reshape(total, (BN,))
    total = tl.zeros((BN,), tl.float64)
    two = tl.arange(0, 2)[None, :]
    feature = row[:, None] + two
    point = at[:, None] + two
    for j in range(0, d, 8):
        for k in tl.static_range(0, 8, 2):
            mask = inside[:, None] & (two < d - j - k)
            x, other_x = tl.split(tl.load(feature + k, mask=mask, other=0.0))
            y, other_y = tl.split(tl.load(point + k, mask=mask, other=0.0))
            total = _add_feature(x, y, total, METRIC)
            total = _add_feature(other_x, other_y, total, METRIC)
        feature += 8
        point += 8
    return total


@triton.jit
def pair_distances(features, points, p, rows, distances, count, d, METRIC: tl.constexpr, BN: tl.constexpr):
    """Distances of pairs, both numbers listed."""
    at = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = at < count
    point = tl.load(p + at, mask=inside, other=0)
    row = tl.load(rows + at, mask=inside, other=0)
    tl.store(distances + at, _pair_distances(features, points, point, row, inside, d, METRIC, BN), mask=inside)


@triton.jit
def bucket_pairs(
    features, points, codes, targets, first, span, up, knots, cells, counts, near_count, near_row, near_distance,
    open_count, open_row, n, d, n_buckets, room, open_room,
    METRIC: tl.constexpr, PIECE_BITS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Put the open rows of points into buckets by direct differences, count them, and list near ones.

    Points with more open rows than are listed are left out.
    """
    own = tl.program_id(0)
    count = tl.load(open_count + own * 32)
    count = tl.where(count > open_room, 0, count)
    for start in range(tl.program_id(1) * BN, count, tl.num_programs(1) * BN):
        at = start + tl.arange(0, BN)
        inside = at < count
        p = own + tl.zeros((BN,), tl.int32)
        row = tl.load(open_row + own.to(tl.int64) * open_room + at, mask=inside, other=0)
        total = _pair_distances(features, points, p, row, inside, d, METRIC, BN)
        _, past, place = _place_of(total, tl.load(first + p), tl.load(span + p), tl.load(up + p))
        match = (tl.load(codes + row, mask=inside, other=-2) == tl.load(targets + p)).to(tl.int32)
        bucket, _ = _bucket_of(place.to(tl.uint32), knots, p, PIECE_BITS)
        near = inside & (past < 0)
        cell = tl.where(near, 2 * n_buckets, 2 * bucket + match)
        tl.store(cells + p.to(tl.int64) * n + row, cell.to(tl.uint16), mask=inside)
        tl.atomic_add(counts + p * n_buckets + bucket, 1 + (match << 16), mask=inside & (past >= 0), sem="relaxed")
        slot = tl.atomic_add(near_count + p * 32, 1, mask=near, sem="relaxed")
        fits = near & (slot < room)
        tl.store(near_row + p.to(tl.int64) * room + slot, row, mask=fits)
        tl.store(near_distance + p.to(tl.int64) * room + slot, total, mask=fits)


@triton.jit
def place_rows(
    places, knots, codes, targets, cells, counts, near_count, near_row, open_count, open_row, n, n_buckets, room,
    open_room, PIECE_BITS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Put rows into buckets by their places, as the kernel of this name in kernels.cu does.

    Programs that run at the same time belong to different points, so counters rarely collide.
    """
    p = tl.program_id(0).to(tl.int64)
    rows = tl.program_id(1) * BN + tl.arange(0, BN)
    inside = rows < n
    place = tl.load(places + p * n + rows, mask=inside, other=0)
    match = (tl.load(codes + rows, mask=inside, other=-2) == tl.load(targets + p)).to(tl.int32)
    bucket, edge = _bucket_of((place & 0x7FFFFFF8).to(tl.uint32), knots, p, PIECE_BITS)
    near = inside & (place < 0)
    open_ = inside & (place >= 0) & (((place & 4) != 0) | (((place & 2) != 0) & edge))
    cell = tl.where(near, 2 * n_buckets, 2 * bucket + match)
    tl.store(cells + p * n + rows, cell.to(tl.uint16), mask=inside)
    own = inside & (place >= 0) & (open_ == 0)
    tl.atomic_add(counts + p * n_buckets + bucket, 1 + (match << 16), mask=own, sem="relaxed")
    slot = tl.atomic_add(near_count + p * 32 + tl.zeros((BN,), tl.int32), 1, mask=near, sem="relaxed")
    tl.store(near_row + p * room + slot, rows, mask=near & (slot < room))
    slot = tl.atomic_add(open_count + p * 32 + tl.zeros((BN,), tl.int32), 1, mask=open_, sem="relaxed")
    tl.store(open_row + p * open_room + slot, rows, mask=open_ & (slot < open_room))


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
def near_distances(distances, near_count, near_row, near_distance, n, room, BN: tl.constexpr):
    """Distances of listed rows, from those of all rows; places behind the last row get infinity."""
    p = tl.program_id(1).to(tl.int64)
    slot = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = slot < tl.load(near_count + p * 32)
    row = tl.load(near_row + p * room + slot, mask=inside, other=0)
    distance = tl.load(distances + p * n + row, mask=inside, other=float("inf"))
    tl.store(near_distance + p * room + slot, tl.maximum(distance, 0.0))


@triton.jit
def near_neighbours(
    distances, rows, codes, targets, near_count, norms, point_weights, row_weights, elements, weights, open_count,
    open_rank, room, open_room, norm_factor, distance_factor, spread,
    LEAST: tl.constexpr, SURE: tl.constexpr, WEIGHTS: tl.constexpr, ERROR: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Store 2 * row + match of ordered rows, and list neighbours of which one matches and whose order is open.

    As `Products.open_gap`, whose factors these are; open neighbours are equal ones if distances are direct. ``weights``
    gets the products of a point's weight and the largest one of its rows. Listed is the rank of the second neighbour,
    negative if one of the two is open with another row; a list that is too short counts the ranks it should have.
    """
    p = tl.program_id(0).to(tl.int64)
    count = tl.minimum(tl.load(near_count + p * 32), room)
    target = tl.load(targets + p)
    most = tl.full((), 0.0, tl.float64)
    fixed = most
    listed = tl.full((), 0, tl.int32)
    if not SURE:
        fixed = (tl.load(norms + p) + tl.full((), LEAST, tl.float64)) * norm_factor
    if WEIGHTS:
        for k in range(0, count, CHUNK):
            rank = k + tl.arange(0, CHUNK)
            row = tl.load(rows + p * room + rank, mask=rank < count, other=0)
            most = tl.maximum(most, tl.max(tl.load(row_weights + row, mask=rank < count, other=0.0), 0))
        most = most * tl.load(point_weights + p)
        tl.store(weights + p, most)
        fixed += most * ERROR
    for k in range(0, room, CHUNK):
        rank = k + tl.arange(0, CHUNK)
        inside = rank < count
        second = inside & (rank > 0)
        at = p * room + rank
        row = tl.load(rows + at, mask=inside, other=0)
        match = (tl.load(codes + row, mask=inside, other=-2) == target).to(tl.int32)
        tl.store(elements + at, 2 * row + match)
        before = tl.load(rows + at - 1, mask=second, other=0)
        mixed = second & ((tl.load(codes + before, mask=second, other=-2) == target).to(tl.int32) != match)
        far = tl.load(distances + at, mask=inside, other=0.0)
        close = tl.load(distances + at - 1, mask=second, other=0.0)
        if SURE:
            open_ = mixed & (far <= close)
            alone = open_
        else:
            closer = tl.load(distances + at - 2, mask=second & (rank > 1), other=-1e300)
            behind = tl.load(distances + at + 1, mask=inside & (rank + 1 < count), other=float("inf"))
            farthest = tl.where(behind < float("inf"), behind, far)
            reach = farthest * distance_factor + fixed
            if spread > 0:
                norm = tl.load(norms + p) * 3.0 + tl.full((), LEAST, tl.float64)
                reach += tl.sqrt(norm + farthest * 4.0) * spread
            open_ = mixed & (far - close <= reach)
            alone = (close - closer > reach) & (behind - far > reach)
        slot = listed + tl.cumsum(open_.to(tl.int32), 0) - 1
        tl.store(open_rank + p * open_room + slot, tl.where(alone, rank, -rank), mask=open_ & (slot < open_room))
        listed += tl.sum(open_.to(tl.int32), 0)
    tl.store(open_count + p, listed)


@triton.jit
def settle_pairs(
    features, points, distances, elements, open_count, open_rank, tied, d, room, open_room,
    METRIC: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Order open neighbours by direct distances if neither is open with another row."""
    own = tl.program_id(0).to(tl.int64)
    count = tl.load(open_count + own)
    count = tl.where(count > open_room, 0, count)
    for start in range(0, count, BN):
        slot = own * open_room + start + tl.arange(0, BN)
        inside = start + tl.arange(0, BN) < count
        rank = tl.load(open_rank + slot, mask=inside, other=0)
        alone = inside & (rank > 0)
        p = own + tl.zeros((BN,), tl.int64)
        at = p * room + tl.where(alone, rank, 1)
        element = tl.load(elements + at - 1, mask=alone, other=0)
        other = tl.load(elements + at, mask=alone, other=0)
        one = _pair_distances(features, points, p, element >> 1, alone, d, METRIC, BN)
        two = _pair_distances(features, points, p, other >> 1, alone, d, METRIC, BN)
        swap = (two < one) | ((two == one) & (other < element))
        tl.store(elements + at - 1, tl.where(swap, other, element), mask=alone)
        tl.store(elements + at, tl.where(swap, element, other), mask=alone)
        tl.store(distances + at - 1, tl.minimum(one, two), mask=alone)
        tl.store(distances + at, tl.maximum(one, two), mask=alone)
        tl.store(tied + p, 1, mask=alone & (one == two))


@triton.jit
def near_values(elements, c, near_count, passed, values, capacity, CHUNK: tl.constexpr):
    """Values of listed rows in order of distance, if no two are equally far; ``passed`` is added by farther rows."""
    p = tl.program_id(0).to(tl.int64)
    found = tl.load(near_count + p * 32)
    carry = tl.load(passed + p)
    for k in range(0, capacity, CHUNK):
        rank = capacity - CHUNK - k + tl.arange(0, CHUNK)
        inside = (rank < found) & (rank >= 0)
        match = (tl.load(elements + p * capacity + rank, mask=inside, other=0) & 1).to(tl.float64)
        here = tl.load(c + rank, mask=inside, other=0.0)
        term = match * (here - tl.load(c + rank - 1, mask=inside & (rank > 0), other=0.0))
        term = tl.where(rank > 0, term, 0.0)
        farther = tl.cumsum(term, 0, reverse=True) - term
        tl.store(values + p * capacity + rank, match * here + farther + carry, mask=rank >= 0)
        carry += tl.sum(term, 0)


@triton.jit
def add_near(
    values, elements, near_count, near_bound, level_cells, group_cells, sums, group_sums, squares, bounds, n, capacity,
    scale, square_scale, bound_scale, GROUPS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add values, squares and bounds of listed rows to integer sums, whose order of additions does not matter."""
    p = tl.program_id(1).to(tl.int64)
    rank = tl.program_id(0) * BN + tl.arange(0, BN)
    cell = tl.load(level_cells + p).to(tl.int64)
    inside = (rank < tl.load(near_count + p * 32)) & (rank < capacity) & (cell >= 0)
    row = tl.load(elements + p * capacity + rank, mask=inside, other=0) >> 1
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
