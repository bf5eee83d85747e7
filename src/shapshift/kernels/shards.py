"""Certified values shard by shard: what of the bucket kernels sees only some of the training rows at a time.

A shard gives each point its part of the histogram and those of its rows that are near. Histograms are added and near
rows joined; from them comes the table of a point, as if all rows had been seen together. Then every shard reads its
values from the tables. A row goes through the same additions in the same order as with all rows in memory.
"""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.buckets import ROWS, add_images
from shapshift.kernels.distance import cosine, manhattan, squared_euclidean
from shapshift.kernels.images import Near, bucket_images, count_nearer

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Images = npt.NDArray[np.uint16]

#: What ``metric`` means to :func:`shard_images`; "constant" puts all rows at distance zero.
METRIC_NUMBERS = {"euclidean": 0, "sqeuclidean": 0, "manhattan": 1, "cosine": 2, "constant": 3}
# Rows that are turned round together: their columns stay in the first-level cache.
TURN = 256
# Where a row is put that a point does not see.
FARTHEST = np.finfo(np.float64).max


@kernel
def lay_out(rows: npt.NDArray[np.floating], factor: float, columns: Floats) -> None:
    """Fill ``columns`` (d, n) with the float64 values of ``rows`` (n, d), times a power of two."""
    n, d = rows.shape
    for lo in range(0, n, TURN):
        hi = min(lo + TURN, n)
        for j in range(d):
            for i in range(lo, hi):
                columns[j, i] = np.float64(rows[i, j]) * factor


@kernel
def shard_images(
    columns: Floats,
    first: int,
    points: Floats,
    metric: int,
    codes: Codes,
    targets: Codes,
    lines: Floats,
    last: int,
    strip: Floats,
    images: Images,
    near: Near,
    asked: Floats,
    ranks: Floats,
    hidden: Indices,
) -> None:
    """Images and nearest rows of a batch of points in one shard.

    Parameters that :func:`shapshift.kernels.images.bucket_images` has mean the same here.

    Parameters
    ----------
    columns : float64 (d, w)
        The shard.
    first : int
        Number of its first row.
    points : float64 (b, d)
    metric : int
    codes : int32 (w,)
        Classes of the shard's rows.
    strip : float64 (b * s,)
        Scratch: its size is the number of distances computed together.
    images : uint16 (b, w)
        Out.
    near : Near
        Out: the members of the first bucket, with the numbers they have among all rows.
    asked, ranks : float64 (b, r)
        As for :func:`shapshift.kernels.images.count_nearer`.
    hidden : int64 (b,)
        Place in the shard of a row that the point does not see; outside of it for none.
    """
    b, w = images.shape
    width = max(strip.size // b, 1)
    near.found[:b] = 0
    for lo in range(0, w, width):
        hi = min(lo + width, w)
        tile = strip[: b * (hi - lo)].reshape(b, hi - lo)
        if metric == 0:
            squared_euclidean(columns, lo, points, tile)
        elif metric == 1:
            manhattan(columns, lo, points, tile)
        elif metric == 2:
            cosine(columns, lo, points, tile)
        else:
            tile[:] = 0.0
        for p in range(b):
            if lo <= hidden[p] < hi:
                tile[p, hidden[p] - lo] = FARTHEST
        bucket_images(tile, lo, codes, targets, lines, last, images, near)
        count_nearer(tile, asked, ranks)
    for p in range(b):
        for k in range(min(near.found[p], near.members.shape[1])):
            near.members[p, k] += first


@kernel
def count_images(images: Images, histograms: npt.NDArray[np.uint32]) -> None:
    """Add the images of each point of a shard to its histogram."""
    for p in range(images.shape[0]):
        histogram = histograms[p]
        for image in images[p]:
            histogram[image] += np.uint32(1)


@kernel
def shard_sums(
    images: Images,
    tables: Indices,
    first: int,
    starts: Indices,
    members: Codes,
    values: Floats,
    done: npt.NDArray[np.bool_],
    levels: Indices,
    groups: Indices,
    packed: Indices,
    partial: Floats,
) -> None:
    """Add a batch of points to the sums of one shard; the packed ones are unpacked when a block is done.

    Parameters
    ----------
    images : uint16 (b, w)
    tables : int64 (b, 2 * buckets)
    first : int
        Number of the shard's first row.
    starts : int64 (b + 1,)
        The near rows of point p are ``members[starts[p]:starts[p + 1]]``, in ascending order, and ``values`` theirs.
    members : int32
    values : float64
    done : bool (b,)
        Points that buckets serve; the others are left out.
    levels, groups : int64 (b,)
        Cells of each point; group -1 for none.
    packed : int64 (cells, w)
    partial : float64 (cells + 1, w)
        Sums of one block of points; the last row is that of the bounds.
    """
    w = images.shape[1]
    for p in range(images.shape[0]):
        if not done[p]:
            continue
        lo = _first_from(members, starts[p], starts[p + 1], first)
        hi = _first_from(members, lo, starts[p + 1], first + w)
        for cell in (levels[p], groups[p]):
            if cell >= 0:
                for k in range(lo, hi):
                    partial[cell, members[k] - first] += values[k]
    # All points for one stretch of rows before the next, so that its sums stay in the cache.
    for lo in range(0, w, ROWS):
        hi = min(lo + ROWS, w)
        for p in range(images.shape[0]):
            if done[p]:
                for cell in (levels[p], groups[p]):
                    if cell >= 0:
                        add_images(images[p, lo:hi], tables[p], packed[cell, lo:hi])


@kernel
def _first_from(members, lo, hi, at_least):
    while lo < hi:
        middle = (lo + hi) // 2
        if members[middle] < at_least:
            lo = middle + 1
        else:
            hi = middle
    return lo
