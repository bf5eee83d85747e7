"""Triton kernels: distances, and maps from distances to buckets.

Distances are direct differences in float64, added with one rounding in column order, so they have the bits of the CPU
kernels. Programs that run at the same time work on different points and the same training rows: the rows are then read
from memory once for many points, and the counters of many points spread the load of atomic additions.
"""

import triton
import triton.language as tl

from shapshift.engine.gpu.cosine_kernels import _cosine_distances


@triton.jit
def _add_feature(x, at, total, METRIC: tl.constexpr):
    """Add the contribution of one feature to distances."""
    difference = x - at
    if METRIC == 1:
        total += tl.abs(difference)
    else:
        total = tl.fma(difference, difference, total)
    return total


@triton.jit
def _distances(columns, points, rows, inside, p, n, d, METRIC: tl.constexpr, BP: tl.constexpr, BN: tl.constexpr):
    """Distances of points p (BP, 1) to training rows (1, BN); rows of ``columns`` are features.

    METRIC is 0 for squared Euclidean, 1 for Manhattan, 2 for cosine distances of rows no longer than 1.
    """
    column = columns + rows
    point = points + p * d
    if METRIC == 2:
        total = _cosine_distances(column, point, inside, d, n, BP, BN)
    else:
        total = tl.zeros((BP, BN), tl.float64)
        for _ in tl.range(d, loop_unroll_factor=2):
            x = tl.load(column, mask=inside, other=0.0)
            at = tl.load(point)
            total = _add_feature(x, at, total, METRIC)
            column += n
            point += 1
    return total


@triton.jit
def _kth(patterns, k, BITS: tl.constexpr):
    """Find the k-th smallest of non-negative integers, counted from 1, by bisection."""
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
    """First bucket of the piece that has ``rank`` rows before it; a tenth of the buckets is spread evenly.

    Coarse buckets hold rows in proportion to rank**1.5: bounds then fall with the root of the rank. Narrower far
    buckets would cost rows that are near to many points (those with the largest bounds), wider ones the average row.
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
    """Compute the bucket map of one point from the distances of a sample of rows.

    A map is a monotone function of the bit pattern of a distance (non-negative floats order like their patterns). The
    range of patterns is cut into pieces of equal width, so pieces are fine for small distances, and each piece gets
    buckets according to the sample. It uses integer arithmetic only: a map can fail to separate two rows, but never
    swaps them. A fine map has buckets with equally many rows; those of a coarse map begin at about rank n_near and
    widen with the rank.
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
        # Ranks fall like a power of the distance towards zero, so twice the way from the median down to a small
        # quantile leads below the nearest row, whatever the dimension.
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
    # Number 0 of the histogram counts distances before the first piece.
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
    knot = lo | ((hi - lo) << 32)
    if COARSE:  # how far one pattern moves a number inside its piece, as a power of two; see bucket_kernels.py
        knot |= tl.minimum(tl.maximum(shift, 3) + 1 + PIECE_BITS, 31) << 16
    tl.store(knots + (p << PIECE_BITS) + edge, knot, mask=inside)


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
