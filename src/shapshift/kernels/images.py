"""From distances to buckets: the map of each validation point, the images it gives the rows, the nearest.

Certified values see all training rows together, or some of them at a time. Either way a row has the same image, and the
nearest rows of a point come in ascending order of their numbers.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import MASK_BITS, fma, kernel, lowest_bit, zeros_mask

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# How many straight pieces the map from distances to buckets has.
PIECES = 4
BEND = 0.25
# Ranks of more rows than this are counted in one pass over the distances instead of one for each.
MANY_ASKED = 8
# Steps of the table in which the places of these are looked up, for each of them.
STEPS_PER_ASKED = 32


class Labels(NamedTuple):
    """Class numbers of training rows and of a batch of points, and what the farthest row of each point starts from."""

    codes: Codes
    targets: Codes
    bases: Floats


class Near(NamedTuple):
    """The nearest rows of each point of a batch: how many, which, and how far.

    A point with more of them than there is room for has the number that it should have, so that it can be told.
    """

    found: Indices
    members: Codes
    distances: Floats


@kernel
def bucket_lines(sample: Floats, first: int, buckets: int, lines: Floats) -> None:
    """Make the map from distances to bucket numbers for each point, as the minimum of straight lines.

    For the average row, buckets should grow in proportion to their rank r; for a row that is near to many points, and
    whose bound is therefore the largest, a little faster: like r^(1 + BEND), so that the number of a bucket goes with
    -r^-BEND. Ranks are estimated from a sample. The smallest of several rising lines is concave, like that function,
    takes a few vector operations, and never puts a larger distance into a lower bucket, rounding included.

    Parameters
    ----------
    sample : float64 (b, s)
        Distances of the points to some training rows; sorted here.
    first : int
        So many of the sampled rows, the nearest ones, share the first bucket.
    buckets : int
    lines : float64 (b, PIECES, 2)
        Out: intercepts and slopes.
    """
    for p in range(sample.shape[0]):
        distances = sample[p]
        distances.sort()
        knots = np.empty((PIECES + 1, 2))
        # Quantiles a constant factor apart. Two buckets in a hundred are left for what lies beyond the sample.
        factor = (distances.size / first) ** (1.0 / PIECES)
        for k in range(PIECES + 1):
            knots[k, 0] = distances[min(distances.size - 1, int(first * factor**k))]
            knots[k, 1] = 1.0 + 0.98 * (buckets - 1) * (1.0 - factor ** (-BEND * k)) / (
                1.0 - factor ** (-BEND * PIECES)
            )
        _upper_hull(knots, lines[p])


@kernel
def _upper_hull(knots, lines):
    lines[:] = 0.0
    made = at = 0
    while at < PIECES:
        best, slope = at, -1.0
        for k in range(at + 1, PIECES + 1):
            width = knots[k, 0] - knots[at, 0]
            if width > 0.0 and (knots[k, 1] - knots[at, 1]) / width > slope:
                best, slope = k, (knots[k, 1] - knots[at, 1]) / width
        if best == at:
            break
        lines[made] = knots[at, 1] - slope * knots[at, 0], slope
        made += 1
        at = best
    for k in range(made, PIECES):
        lines[k] = lines[max(made - 1, 0)]
    if not np.isfinite(lines).all():  # distances too close together; everything goes into the first bucket
        lines[:] = 0.0


@kernel
def bucket_images(
    tile: Floats,
    first: int,
    labels: Labels,
    lines: Floats,
    last: int,
    images: npt.NDArray[np.uint16],
    near: Near,
) -> None:
    """Turn distances into images (bucket << 1 | match) and pick out the nearest rows.

    Parameters
    ----------
    tile : float64 (b, n)
        Distances to the training rows first..first+n-1.
    first : int
    labels : Labels
    lines : float64 (b, PIECES, 2)
        From :func:`bucket_lines`.
    last : int
        Highest bucket.
    images : uint16 (b, N)
        Out, for these rows.
    near : Near
        The members of the first bucket are appended.
    """
    n = tile.shape[1]
    for p in range(tile.shape[0]):
        here = images[p, first : first + n]
        _fill_images(tile[p], labels.codes[first : first + n], labels.targets[p], lines[p], last, here)
        near.found[p] = _pick_near(tile[p], here, first, near.found[p], near.members[p], near.distances[p])


@kernel
def _pick_near(row, images, first, found, members, distances):
    """Append the rows of the first bucket; returns how many there are, which may be more than there is room for."""
    room = members.size
    whole = images.size - images.size % MASK_BITS
    for start in range(0, whole, MASK_BITS):
        # One comparison for many rows, then one turn for each row that is near.
        mask = zeros_mask(images, start)
        while mask != 0:
            i = start + lowest_bit(mask)
            mask &= mask - np.uint32(1)
            if found < room:
                members[found], distances[found] = first + i, row[i]
            found += 1
    for i in range(whole, images.size):
        if images[i] < 2:
            if found < room:
                members[found], distances[found] = first + i, row[i]
            found += 1
    return found


@kernel
def _fill_images(row, codes, target, lines, last, images):
    a0, a1, a2, a3 = lines[0, 0], lines[1, 0], lines[2, 0], lines[3, 0]
    s0, s1, s2, s3 = lines[0, 1], lines[1, 1], lines[2, 1], lines[3, 1]
    top = float(last)
    for i in range(row.size):
        x = row[i]
        height = min(min(fma(s0, x, a0), fma(s1, x, a1)), min(fma(s2, x, a2), fma(s3, x, a3)))
        bucket = np.int32(min(max(height, 0.0), top))
        images[i] = np.uint16((bucket << 1) | np.int32(codes[i] == target))


@kernel
def count_nearer(tile: Floats, asked: Floats, ranks: Floats) -> None:
    """Add to ``ranks[p, r]`` how many distances ``tile[p]`` are below ``asked[p, r]``, ties by half."""
    for p in range(asked.shape[0]):
        count_among(tile[p], np.empty(0, np.int64), asked[p], ranks[p])


@kernel
def count_among(distances, sizes, asked, ranks):
    """As :func:`count_nearer`, for one point; ``sizes`` are the rows at each distance, none if it is one everywhere."""
    if asked.size > MANY_ASKED:
        _count_among_many(distances, sizes, asked, ranks)
        return
    for r in range(asked.size):
        at = asked[r]
        below = equal = 0
        if sizes.size:
            for i in range(distances.size):
                below += sizes[i] * (distances[i] < at)
                equal += sizes[i] * (distances[i] == at)
        else:
            for x in distances:
                below += x < at
                equal += x == at
        ranks[r] += below + equal / 2


@kernel
def _count_among_many(distances, sizes, asked, ranks):
    """Let each distance look for its place among the sorted ones asked for.

    A table of equally wide steps says between which of these a distance lies; a search is left for the few on the same
    step as one of them.
    """
    order = np.argsort(asked)
    ends = asked[order]
    n_ends, steps = ends.size, STEPS_PER_ASKED * ends.size
    first, span = ends[0], ends[-1] - ends[0]
    scale = steps / span if span > 0.0 else 0.0
    if not np.isfinite(scale):
        scale = 0.0
    before = np.full(steps + 2, n_ends, np.int64)  # how many of the ends are on lower steps
    step = 0
    for s in range(n_ends):
        last = np.int64(min((ends[s] - first) * scale, np.float64(steps)))
        while step <= last:
            before[step] = s
            step += 1
    inside, equal = np.zeros(n_ends + 1, np.int64), np.zeros(n_ends + 1, np.int64)
    for i in range(distances.size):
        x, n = distances[i], sizes[i] if sizes.size else 1
        step = np.int64(min(max((x - first) * scale, 0.0), np.float64(steps)))
        lo, hi = before[step], before[step + 1]
        if lo < hi:
            while lo < hi:
                middle = (lo + hi) >> 1
                if ends[middle] < x:
                    lo = middle + 1
                else:
                    hi = middle
            if lo < n_ends and ends[lo] == x:
                equal[lo] += n
        inside[lo] += n
    below = at = 0
    for s in range(n_ends):
        below += inside[s]
        if s == 0 or ends[s] != ends[s - 1]:
            at = s
        ranks[order[s]] += below - equal[at] / 2
