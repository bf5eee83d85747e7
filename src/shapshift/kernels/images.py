"""Maps from distances to buckets: the map of each validation point, the images of the rows, and the nearest rows.

Certified values process all training rows together, or some at a time. A row has the same image either way, and the
nearest rows of a point are in ascending order of their numbers.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import MASK_BITS, fma, kernel, lowest_bit, zeros_mask

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# Number of straight pieces of the map from distances to buckets.
PIECES = 4
BEND = 0.25
# Ranks of more rows than this are counted in a single pass over the distances instead of one pass per row.
MANY_ASKED = 8
# Steps of the lookup table for their places, per row.
STEPS_PER_ASKED = 32


class Labels(NamedTuple):
    """Class numbers of training rows and of a batch of points, and the starting value of each point's farthest row."""

    codes: Codes
    targets: Codes
    bases: Floats


class Near(NamedTuple):
    """The nearest rows of each point of a batch: their number, row numbers and distances.

    If a point has more of them than fit, the number is still the true one, which shows the overflow.
    """

    found: Indices
    members: Codes
    distances: Floats


@kernel
def bucket_lines(sample: Floats, first: int, buckets: int, lines: Floats) -> None:
    """Compute the map from distances to bucket numbers for each point, as the minimum of straight lines.

    For the average row, buckets should grow in proportion to their rank r. For a row near many points, which has the
    largest bound, they should grow a little faster: like r^(1 + BEND), so that the number of a bucket grows like
    -r^-BEND. Ranks are estimated from a sample. The minimum of several rising lines is concave, like that function,
    takes a few vector operations, and never puts a larger distance into a lower bucket, even with rounding.

    Parameters
    ----------
    sample : float64 (b, s)
        Distances of the points to some training rows; sorted here.
    first : int
        Number of sampled rows, the nearest ones, that share the first bucket.
    buckets : int
    lines : float64 (b, PIECES, 2)
        Out: intercepts and slopes.
    """
    for p in range(sample.shape[0]):
        distances = sample[p]
        distances.sort()
        knots = np.empty((PIECES + 1, 2))
        # Quantiles a constant factor apart. Two percent of the buckets are left for distances beyond the sample.
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
    if not np.isfinite(lines).all():  # distances too close together: all go into the first bucket
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
    """Append the rows of the first bucket; return their number, which may exceed the space."""
    room = members.size
    whole = images.size - images.size % MASK_BITS
    for start in range(0, whole, MASK_BITS):
        # One comparison for many rows, then a loop over the near ones.
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
    """Add to ``ranks[p, r]`` the number of distances ``tile[p]`` below ``asked[p, r]``; ties count half."""
    for p in range(asked.shape[0]):
        count_among(tile[p], np.empty(0, np.int64), asked[p], ranks[p])


@kernel
def count_among(distances, sizes, asked, ranks):
    """Do :func:`count_nearer` for one point; ``sizes`` are the rows at each distance, or empty if always one."""
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
    """Find the place of each distance among the sorted requested ones.

    A table of equally wide steps gives the place directly; only the few distances on the same step as a requested one
    need a search.
    """
    order = np.argsort(asked)
    ends = asked[order]
    n_ends, steps = ends.size, STEPS_PER_ASKED * ends.size
    first, span = ends[0], ends[-1] - ends[0]
    scale = steps / span if span > 0.0 else 0.0
    if not np.isfinite(scale):
        scale = 0.0
    before = np.full(steps + 2, n_ends, np.int64)  # number of ends on lower steps
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
