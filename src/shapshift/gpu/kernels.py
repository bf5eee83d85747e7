"""Triton kernels: distances, buckets, order, values and sums, for many validation points at a time.

Distances are direct differences in float64, added with one rounding in column order, so they have the bits of the CPU
kernels. Two ways lead from them to values.

Exact. A counting sort: a histogram of fine buckets (`count_rows`, `bucket_starts`), rows written to their bucket
(`scatter_rows`), every row compared with the few others of its bucket (`order_rows`), and a walk over the ranks from
the far end (`chunk_totals`, `add_ranks`).

Certified. Buckets as tie groups: coarse buckets are counted and never sorted (`bucket_rows`), one walk over the buckets
makes a table of two values a bucket with their error bounds (`bucket_values`), and every row looks its value up
(`add_cells`). Only the nearest rows are listed (`list_near`), for an exact order.

Programs that run at the same time work on different points and the same training rows: the rows are then read from
memory once for many points, and counters of many points spread the load of atomic additions.
"""

import triton
import triton.language as tl


@triton.jit
def _distances(columns, points, rows, inside, p, n, d, METRIC: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr):
    """Distances of points p (BP, 1) to training rows (1, BN); rows of ``columns`` are features.

    METRIC is 0 for squared Euclidean, 1 for Manhattan, 2 for cosine distances of unit rows.
    """
    total = tl.zeros((BP, BN), tl.float64)
    product = tl.zeros((BP, BN) if METRIC == 2 else (1, 1), tl.float64)
    column = columns + rows
    point = points + p * d
    for _ in tl.range(d, loop_unroll_factor=2):
        x = tl.load(column, mask=inside, other=0.0)
        at = tl.load(point)
        difference = x - at
        if METRIC == 1:
            total += tl.abs(difference)
        else:
            total = tl.fma(difference, difference, total)
        if METRIC == 2:
            product = tl.fma(tl.broadcast_to(x, (BP, BN)), tl.broadcast_to(at, (BP, BN)), product)
        column += n
        point += 1
    if METRIC == 2:
        total = tl.where(product > 0.5, total / 2, 1.0 - product)
    return total


@triton.jit
def _locate(bits, first, span, up, knots, PIECE_BITS: tl.constexpr):
    """Bucket of a distance's bit pattern, and how far inside the bucket it lies, as a fraction of 2**64.

    ``knots`` points to the point's own pieces: the first bucket of each and, in the upper half, its number of buckets.
    """
    place = (tl.minimum(tl.maximum(bits - first, 0), span) << up).to(tl.uint64)
    knot = tl.load(knots + (place >> (63 - PIECE_BITS)).to(tl.int32))
    inside = place << (1 + PIECE_BITS)
    many = (knot >> 32).to(tl.uint64)
    # inside * many, a product of 96 bits: the upper 32 are the bucket, the others the place in it.
    low = (inside & 0xFFFFFFFF) * many
    high = (inside >> 32) * many + (low >> 32)
    return knot.to(tl.int32) + (high >> 32).to(tl.int32), (high << 32) | (low & 0xFFFFFFFF)


@triton.jit
def _kth(patterns, k, BITS: tl.constexpr):
    """The k-th smallest of non-negative integers, counted from 1, by bisection."""
    low = tl.full((), 0, tl.int64)
    high = tl.full((), (1 << BITS) - 1, tl.int64)
    for _ in range(BITS):
        middle = low + (high - low) // 2  # their sum may be too large
        enough = tl.sum((patterns <= middle).to(tl.int32), 0) >= k
        high = tl.where(enough, middle, high)
        low = tl.where(enough, low, middle + 1)
    return high


@triton.jit
def _first_bucket(rank, edge, pieces_used, n_rows, n_near, n_buckets, COARSE: tl.constexpr):
    """Bucket with which the piece begins that has so many rows before it; a tenth of the buckets is spread evenly.

    Coarse buckets hold rows in proportion to rank**1.5: bounds then fall with the root of the rank. Narrower far buckets
    would cost rows that are near to many points (those with the largest bounds), wider ones the average row.
    """
    if COARSE:
        share = (1.0 - tl.sqrt(n_near / tl.maximum(rank, n_near))) / (1.0 - tl.sqrt(n_near / n_rows))
    else:
        share = rank / n_rows
    even = tl.minimum(edge.to(tl.float64) / pieces_used, 1.0)
    bucket = tl.floor((0.9 * share + 0.1 * even) * n_buckets + 0.5).to(tl.int64)
    # A piece without buckets of its own shares the next one's first, so the last bucket must not be passed.
    return tl.minimum(bucket, (n_buckets - 1).to(tl.int64))


@triton.jit
def make_maps(
    sample, first, span, up, knots, n_rows, n_near, n_buckets, k_first,
    COARSE: tl.constexpr, PIECE_BITS: tl.constexpr, SIZE: tl.constexpr,
):  # fmt: skip
    """Bucket map of one point, from the distances of a sample of rows.

    A map is a monotone image of the bit pattern of a distance (non-negative floats order like their patterns). The range
    of patterns is cut into pieces of equal width, so pieces are fine where distances are small, and each piece gets as
    many buckets as the sample calls for. All of it is integer arithmetic: a map can fail to separate two rows, but never
    swap them. A fine map has buckets with equally many rows; those of a coarse map begin at about rank n_near and widen
    with the rank.
    """
    word: tl.constexpr = 31 if COARSE else 63
    p = tl.program_id(0).to(tl.int64)
    pattern = tl.load(sample + p * SIZE + tl.arange(0, SIZE)).to(tl.int64, bitcast=True)
    if COARSE:
        pattern = pattern >> 32
    low = _kth(pattern, k_first, word)
    median = _kth(pattern, SIZE // 2, word)
    high = tl.max(pattern, 0)
    if COARSE:
        start = low + 1
        reach = tl.maximum(high + (high - median) // 4 - start, 0)
    else:
        # Ranks fall like a power of the distance towards zero, so twice the way from the median down to a small quantile
        # leads below the nearest row, whatever the dimension.
        start = tl.maximum(low - 2 * (median - low), 0)
        reach = high + (high - median) - start
    shift = tl.full((), word, tl.int64)
    rest = reach
    while rest > 0:
        rest = rest >> 1
        shift -= 1
    tl.store(first + p, start)
    tl.store(span + p, reach)
    tl.store(up + p, shift)
    place = tl.minimum(tl.maximum(pattern - start, 0), reach) << shift
    # Number 0 of the histogram is for what lies before the first piece.
    piece = tl.where(pattern < start, 0, (place >> (word - PIECE_BITS)).to(tl.int32) + 1)
    bins: tl.constexpr = 2 << PIECE_BITS
    counts = tl.histogram(piece, bins)
    rows_each = n_rows / SIZE
    after = tl.cumsum(counts, 0).to(tl.float64) * rows_each
    before = after - counts.to(tl.float64) * rows_each
    edge = tl.arange(0, bins) - 1
    used = ((reach << shift) >> (word - PIECE_BITS)).to(tl.float64) + 1
    lo = tl.where(edge > 0, _first_bucket(before, edge, used, n_rows, n_near, n_buckets, COARSE), 0)
    hi = _first_bucket(after, edge + 1, used, n_rows, n_near, n_buckets, COARSE)
    inside = (edge >= 0) & (edge < (1 << PIECE_BITS))
    tl.store(knots + (p << PIECE_BITS) + edge, lo | ((hi - lo) << 32), mask=inside)


@triton.jit
def fill_distances(
    columns, points, distances, n, d, n_groups, METRIC: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Distances of a tile, (points, n)."""
    rows = (tl.program_id(0) // n_groups) * BN + tl.arange(0, BN)[None, :]
    p = (tl.program_id(0) % n_groups) * BP + tl.arange(0, BP)[:, None]
    inside = rows < n
    total = _distances(columns, points, rows, inside, p, n, d, METRIC, BP, BN)
    tl.store(distances + p.to(tl.int64) * n + rows, total, mask=inside & (p >= 0))


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

    Windows overlap by more than the longest bucket, so that every rank lies, with its whole bucket, inside the middle of
    a window. Rows whose images coincide are compared by their distances. A tie of rows that match with rows that do not,
    and an image of more than two rows, are left to another method.
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
    """What the ranks of each chunk add to the values of all nearer ranks."""
    rank = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = rank < n
    step = tl.load(c + rank, mask=inside, other=0.0) - tl.load(c + rank - 1, mask=inside & (rank > 0), other=0.0)
    for q in range(POINTS):
        p = tl.program_id(1).to(tl.int64) * POINTS + q
        if p < n_points:
            match = (tl.load(order + p * n + rank, mask=inside, other=0) & 1).to(tl.float64)
            tl.store(totals + p * tl.num_programs(0) + tl.program_id(0), tl.sum(match * step, 0))


@triton.jit
def add_ranks(
    order, c, carried, level_cells, group_cells, near_sums, far_sums, values, n, n_points, near_scale, far_scale,
    GROUPS: tl.constexpr, MATRIX: tl.constexpr, CHUNK: tl.constexpr, POINTS: tl.constexpr,
):  # fmt: skip
    """Values of ordered rows, added to the sums of their points' cells; ``carried`` is what farther chunks add.

    Sums are integers: they add up to the same whatever the order, floats do not. The first chunk, whose values are much
    larger than all others, has sums and a scale of its own.
    """
    sums, scale = near_sums, near_scale
    if tl.program_id(0) > 0:
        sums, scale = far_sums, far_scale
    rank = tl.program_id(0) * CHUNK + tl.arange(0, CHUNK)
    inside = rank < n
    here = tl.load(c + rank, mask=inside, other=0.0)
    step = here - tl.load(c + rank - 1, mask=inside & (rank > 0), other=0.0)
    for q in range(POINTS):
        p = tl.program_id(1).to(tl.int64) * POINTS + q
        if p < n_points:
            element = tl.load(order + p * n + rank, mask=inside, other=0)
            match = (element & 1).to(tl.float64)
            term = match * step
            farther = tl.cumsum(term, 0, reverse=True) - term
            value = match * here + farther + tl.load(carried + p * tl.num_programs(0) + tl.program_id(0))
            whole = tl.floor(value * scale + 0.5).to(tl.int64)
            row = element >> 1
            if MATRIX:
                tl.store(values + p * n + row, value, mask=inside)
            cell = tl.load(level_cells + p).to(tl.int64)
            tl.atomic_add(sums + cell * n + row, whole, mask=inside & (cell >= 0), sem="relaxed")
            if GROUPS:
                cell = tl.load(group_cells + p).to(tl.int64)
                tl.atomic_add(sums + cell * n + row, whole, mask=inside & (cell >= 0), sem="relaxed")


@triton.jit
def bucket_rows(
    columns, points, codes, targets, first, span, up, knots, cells, counts, n, d, n_buckets, n_groups,
    METRIC: tl.constexpr, PIECE_BITS: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Put the rows of a tile into buckets, in one pass: distances never leave the registers.

    A row's cell is 2 * bucket + match; rows nearer than ``first`` share the cell 2 * n_buckets. The map looks at the
    upper half of the bit pattern only: a part in a million of a distance is fine enough for buckets. A counter holds
    the rows of a bucket in its lower and the matches in its upper half; `bucket_values` notices when one runs over.
    """
    rows = (tl.program_id(0) // n_groups) * BN + tl.arange(0, BN)[None, :]
    p = (tl.program_id(0) % n_groups) * BP + tl.arange(0, BP)[:, None]
    inside = rows < n
    total = _distances(columns, points, rows, inside, p, n, d, METRIC, BP, BN)
    past = (total.to(tl.int64, bitcast=True) >> 32).to(tl.int32) - tl.load(first + p)
    place = (tl.minimum(tl.maximum(past, 0), tl.load(span + p)) << tl.load(up + p)).to(tl.uint32)
    knot = tl.load(knots + (p << PIECE_BITS) + (place >> (31 - PIECE_BITS)).to(tl.int32))
    inner = tl.umulhi(place << (1 + PIECE_BITS), (knot >> 32).to(tl.uint32)).to(tl.int32)
    match = tl.load(codes + rows, mask=inside, other=-2) == tl.load(targets + p)
    bucket = knot.to(tl.int32) + inner
    cell = 2 * bucket + match.to(tl.int32)
    mask = inside & (p >= 0)
    tl.atomic_add(counts + p * n_buckets + bucket, 1 + (match.to(tl.int32) << 16), mask=mask & (past >= 0), sem="relaxed")
    cell = tl.where(past < 0, 2 * n_buckets, cell)
    tl.store(cells + p.to(tl.int64) * n + rows, cell.to(tl.uint16), mask=mask)


@triton.jit
def _pack(value, bound):
    """A value and, in place of its last 16 bits, the upper half of its bound as a float32, rounded up."""
    bound = bound + tl.abs(value) * 2.0**-36  # what the value loses by it
    upper = (bound * 1.008 + 1e-37).to(tl.float32).to(tl.int32, bitcast=True) >> 16
    return (value.to(tl.int64, bitcast=True) & -65536) | (upper & 0xFFFF).to(tl.int64)


@triton.jit
def _inverse(count):
    """1 / count, by one step of Newton's from float32: a division in float64 costs three times as much."""
    rough = (1.0 / count.to(tl.float32)).to(tl.float64)
    return rough * (2.0 - count.to(tl.float64) * rough)


@triton.jit
def bucket_values(
    counts, c, tail, bases, table, at_near, near_bound, near_rows, mass, n, n_buckets, convex_from, width,
    CHUNK: tl.constexpr,
):  # fmt: skip
    """Walk over the buckets of a point from the far end: values of matching and other rows with their bounds.

    A bucket is a tie group. Its rows are off by no more than the distance of the group's value from either end of what
    any order of its rows allows, plus what the buckets farther away add to the uncertainty of what they pass on. What is
    passed on to the near rows, and how sure it is, is kept; so is the number of rows that are left for them.
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
        # The most that any order can put behind a row: the largest drops come first where the table is convex.
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
    """List the near rows of each point; a list that is too short keeps the number that it should have."""
    p = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = rows < n
    near = inside & (tl.load(cells + p * n + rows, mask=inside, other=0).to(tl.int32) == 2 * n_buckets)
    place = tl.cumsum(near.to(tl.int32), 0)
    # One addition for all rows of the program: additions to one address wait for each other.
    slot = tl.atomic_add(near_count + p * 32, tl.max(place, 0), sem="relaxed") + place - 1
    tl.store(near_row + p * capacity + slot, rows, mask=near & (slot < capacity))


@triton.jit
def near_distances(
    features, points, near_count, near_row, near_distance, d, capacity, METRIC: tl.constexpr, BN: tl.constexpr
):  # fmt: skip
    """Distances of listed rows, from features row by row; places beyond the list get infinity."""
    p = tl.program_id(1).to(tl.int64)
    slot = tl.program_id(0) * BN + tl.arange(0, BN)
    listed = slot < tl.load(near_count + p * 32)
    total = tl.zeros((BN,), tl.float64)
    if tl.program_id(0) * BN < tl.load(near_count + p * 32):
        rows = tl.load(near_row + p * capacity + slot, mask=listed, other=0)
        product = tl.zeros((BN,), tl.float64)
        feature = features + rows.to(tl.int64) * d
        point = points + p * d
        for _ in range(d):
            x = tl.load(feature, mask=listed, other=0.0)
            at = tl.load(point)
            difference = x - at
            if METRIC == 1:
                total += tl.abs(difference)
            else:
                total = tl.fma(difference, difference, total)
            if METRIC == 2:
                product = tl.fma(x, at + tl.zeros((BN,), tl.float64), product)
            feature += 1
            point += 1
        if METRIC == 2:
            total = tl.where(product > 0.5, total / 2, 1.0 - product)
    tl.store(near_distance + p * capacity + slot, tl.where(listed, total, float("inf")))


@triton.jit
def near_values(
    rows, codes, targets, c, near_count, passed, values, capacity, CHUNK: tl.constexpr
):  # fmt: skip
    """Values of listed rows in order of distance, where no two are equally far; ``passed`` is what farther rows add."""
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
    values, rows, near_count, near_bound, level_cells, group_cells, sums, bounds, n, capacity, scale, bound_scale,
    GROUPS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Add values and bounds of listed rows to integer sums, whose order of additions does not matter."""
    p = tl.program_id(1).to(tl.int64)
    rank = tl.program_id(0) * BN + tl.arange(0, BN)
    cell = tl.load(level_cells + p).to(tl.int64)
    inside = (rank < tl.load(near_count + p * 32)) & (rank < capacity) & (cell >= 0)
    row = tl.load(rows + p * capacity + rank, mask=inside, other=0)
    whole = tl.floor(tl.load(values + p * capacity + rank, mask=inside, other=0.0) * scale + 0.5).to(tl.int64)
    tl.atomic_add(sums + cell * n + row, whole, mask=inside, sem="relaxed")
    bound = tl.ceil(tl.load(near_bound + p) * bound_scale).to(tl.int64) + 1
    tl.atomic_add(bounds + row, bound + tl.zeros((BN,), tl.int64), mask=inside, sem="relaxed")
    if GROUPS:
        cell = tl.load(group_cells + p).to(tl.int64)
        tl.atomic_add(sums + cell * n + row, whole, mask=inside, sem="relaxed")


@triton.jit
def add_cells(
    cells, table, members, sum_cells, offsets, sums, bounds, n, n_sums, width,
    BOUNDS: tl.constexpr, BN: tl.constexpr,
):  # fmt: skip
    """Look up the values of points, listed sum by sum, and add them; error bounds are added over all points.

    An entry of the table holds a value and, in place of its last 16 bits, the upper half of its bound as a float32.
    """
    rows = tl.program_id(0) * BN + tl.arange(0, BN)
    inside = rows < n
    bound = tl.zeros((BN,), tl.float32)
    for k in range(n_sums):
        total = tl.zeros((BN,), tl.float64)
        for q in range(tl.load(offsets + k), tl.load(offsets + k + 1)):
            p = tl.load(members + q).to(tl.int64)
            cell = tl.load(cells + p * n + rows, mask=inside, other=0).to(tl.int32)
            entry = tl.load(table + p * width + cell)
            total += (entry & -65536).to(tl.float64, bitcast=True)
            bound += (entry << 16).to(tl.int32).to(tl.float32, bitcast=True)
        at = sums + tl.load(sum_cells + k).to(tl.int64) * n + rows
        tl.store(at, tl.load(at, mask=inside, other=0.0) + total, mask=inside)
    if BOUNDS:
        at = bounds + rows
        tl.store(at, tl.load(at, mask=inside, other=0.0) + bound.to(tl.float64), mask=inside)
