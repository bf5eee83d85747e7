"""The rank kernel: a tile of distances becomes a tile of values, in place.

For one validation point the rows are ordered and walked from the far end to the near one. Neighbouring rows that both
match the point's label, or both do not, have the same value; where that changes at rank r, the value changes by c_r:

    v_r = v_{r+1} + (a_r - a_{r+1}) c_r,      v_{N+1} = beta,  a_{N+1} = 0

Rows at equal distance form a tie group. With ``T`` the sum over everything farther away, a group on ranks lo+1..hi with
n rows, m of which match, gets the expectation over a random order (``mean`` the average of c over the group)

    matching row      mean + (m-1)/(n-1) (c_hi - mean) + T
    other row                m   /(n-1) (c_hi - mean) + T
    then              T += m/n (c_hi - c_lo)

If all its rows match or none does, this is the recursion above, to the last bit: such a group needs no special care.

Ordering is a radix sort of a 22 to 30 bit image of the distance. The image is monotone, so it can only fail to separate
rows, never swap them; rows that share an image are put in order by their full float64 distance afterwards, unless all
match or none does, for then their order has no influence on any value.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

# Runs of equal images up to this length are put in order by insertion.
SHORT = 32

_INDEX = np.uint64(0xFFFFFFFF)
_ONE, _TWO, _HALF = np.uint64(1), np.uint64(2), np.uint64(32)


class Rule(NamedTuple):
    """How ranks become values.

    Attributes
    ----------
    c : float64 (N,)
        Rank table.
    average : bool
        Average over ties, or break them by row index.
    depth : int
        How many nearest rows enter the neighbour-label entropy; at most N.
    """

    c: Floats
    average: bool
    depth: int


class Batch(NamedTuple):
    """What is known of a few validation points.

    Attributes
    ----------
    targets : int32 (b,)
        Class of each point, -1 when no training row has it.
    bases : float64 (b,)
        beta(M) of each point: what the farthest group starts from.
    reference : int64 (b, r)
        Training rows whose ranks to report for each point; r may be 0.
    """

    targets: Codes
    bases: Floats
    reference: Indices


class Findings(NamedTuple):
    """Results of a few validation points, other than values.

    Attributes
    ----------
    entropy : float64 (b,)
        Neighbour-label entropy, in nats.
    nearest : int64 (b, k)
        The k nearest rows, ties by row number; k may be 0.
    ranks : float64 (b, r)
        Zero-based rank of each reference row, averaged over ties.
    """

    entropy: Floats
    nearest: Indices
    ranks: Floats


class RankScratch(NamedTuple):
    """Space of one worker that orders n rows at a time.

    Attributes
    ----------
    work : uint64 (2, n)
    keys : float64 (n,)
    counts : float64 (n_classes,)
        Zero on entry and on exit.
    """

    work: npt.NDArray[np.uint64]
    keys: Floats
    counts: Floats


class Ordered(NamedTuple):
    """The rows of one point, from near to far.

    Attributes
    ----------
    row : float64 (n,)
        Distances at first, values in the end.
    order : uint64 (n,)
        Elements as :func:`order_rows` makes them.
    codes : int32 (n,)
        Class of each row.
    """

    row: Floats
    order: npt.NDArray[np.uint64]
    codes: Codes


@kernel
def rank_values(tile: Floats, codes: Codes, batch: Batch, rule: Rule, scratch: RankScratch, found: Findings) -> None:
    """Overwrite each row of ``tile`` (distances to the training rows) with that validation point's values.

    Parameters
    ----------
    tile : float64 (b, N)
        Non-negative finite distances in, values out.
    codes : int32 (N,)
        Class of each training row.
    batch : Batch
    rule : Rule
    scratch : RankScratch
    found : Findings
        Out.
    """
    nearest, counts = found.nearest, scratch.counts
    exact = max(rule.depth, nearest.shape[1])
    for p in range(tile.shape[0]):
        row = tile[p]
        order, window = order_rows(row, codes, batch.targets[p], scratch.work)
        for r in range(batch.reference.shape[1]):
            found.ranks[p, r] = rank_of(row, order, batch.reference[p, r], window)
        walk(Ordered(row, order, codes), rule, batch.bases[p], exact, scratch)
        for r in range(nearest.shape[1]):
            nearest[p, r] = row_of(order[r])
        found.entropy[p] = neighbor_entropy(counts, rule.depth)


@kernel
def row_of(element):
    """Row number of an element that :func:`order_rows` made."""
    return np.int64((element & _INDEX) >> _ONE)


@kernel
def walk(rows: Ordered, rule: Rule, value: float, exact: int, scratch: RankScratch) -> None:
    """Overwrite distances with values, from the far end of the order to the near one.

    Parameters
    ----------
    rows : Ordered
        Those that share an image are put in order on the way.
    rule : Rule
    value : float
        What the farthest group starts from.
    exact : int
        So many of the nearest elements must be in order at the end.
    scratch : RankScratch
    """
    row, order, c = rows.row, rows.order, rule.c
    matched = np.int64(0)
    hi = row.size
    while hi > 0:
        hi, value, matched = _walk_singles(rows, rule, exact, hi, value, matched)
        lo = hi - 1
        image = order[lo] >> _HALF
        while lo > 0 and order[lo - 1] >> _HALF == image:
            lo -= 1
        if hi - lo == 1:
            e = order[lo]
            i = row_of(e)
            if lo < rule.depth:
                scratch.counts[rows.codes[i]] += 1.0
            match = np.int64(e & _ONE)
            value += (match - matched) * c[lo]
            matched = match
            row[i] = value
        else:
            value, matched = _same_image(rows, rule, exact, scratch, (lo, hi), value, matched)
        hi = lo


@kernel
def _walk_singles(rows, rule, exact, hi, value, matched):
    """Walk from rank ``hi`` towards the nearest rows while the order is known, or has no influence.

    Returns how far it got, and the last value and whether it was a match's. Nearly all rows are passed here. Ranks are
    unsigned, because Numba guards signed indices against being negative.
    """
    row, order, c = rows.row, rows.order, rule.c
    at, stop, exact = np.uint64(hi), np.uint64(max(rule.depth, 1)), np.uint64(exact)
    e = order[at - _ONE]
    while at > stop:
        here = at - _ONE
        following = order[here - _ONE]
        # A pair that matches alike is as good as two single rows.
        if _share_image(e, following) and (
            (e ^ following) & _ONE or here <= exact or _share_image(following, order[here - _TWO])
        ):
            break
        match = np.int64(e & _ONE)
        value += (match - matched) * c[here]
        matched = match
        row[(e & _INDEX) >> _ONE] = value
        e, at = following, here
    return np.int64(at), value, matched


@kernel
def _share_image(one, other):
    return (one ^ other) >> _HALF == np.uint64(0)


@kernel
def order_rows(row, codes, target, work):
    """Sort by distance image; elements are image << 32 | row index << 1 | match. Returns them and the window."""
    # Two passes of 11 bits leave few shared images up to some ten thousand rows, three of 10 bits up to millions.
    digits, bits = (2, 11) if row.size <= 30_000 else (3, 10)
    first, last, shift = window = _window(row, digits * bits)
    patterns = row.view(np.int64)
    elements = work[0, : row.size]
    for i in range(row.size):
        image = (min(max(patterns[i], first), last) - first) >> shift
        elements[i] = np.uint64(image << 32 | i << 1 | np.int64(codes[i] == target))
    return _radix_sort(elements, work[1, : row.size], digits, bits), window


@kernel
def rank_of(row, order, i, window):
    """Rank of row i in the order: search for its image, then look at the few rows that share it."""
    first, last, shift = window
    image = np.uint64((min(max(row.view(np.int64)[i], first), last) - first) >> shift)
    lo, hi = 0, row.size
    while lo < hi:
        middle = (lo + hi) // 2
        if order[middle] >> _HALF < image:
            lo = middle + 1
        else:
            hi = middle
    below = lo
    equal = 0
    while lo < row.size and order[lo] >> _HALF == image:
        at = row[row_of(order[lo])]
        below += at < row[i]
        equal += at == row[i]
        lo += 1
    return below + (equal - 1) / 2


@kernel
def _window(distances, bits):
    """Choose the range of bit patterns that the images resolve, and the shift that fits it into ``bits`` bits.

    Non-negative floats order like their bit patterns, so the image is a logarithmic one: fine where distances are
    small. The range comes from a sample, widened by its own width on either side; what lies outside shares the lowest
    or highest image. A single far outlier or a row at distance zero then takes no resolution from the others.
    """
    patterns = distances.view(np.int64)
    n = patterns.size
    sample = min(n, 64)
    first = last = patterns[0]
    for k in range(sample):
        first = min(first, patterns[k * n // sample])
        last = max(last, patterns[k * n // sample])
    # The patterns are compared, not the floats: integer minima and maxima take a vector at a time.
    lowest = highest = patterns[0]
    for i in range(n):
        lowest = min(lowest, patterns[i])
        highest = max(highest, patterns[i])
    width = last - first
    # Differences are compared, because the width of a range that begins at zero added to its end overflows.
    first = lowest if first - lowest < width else first - width
    last = highest if highest - last < width else last + width
    shift = 0
    while (last - first) >> shift >= 1 << bits:
        shift += 1
    return first, last, shift


@kernel
def _radix_sort(src, dst, digits, bits):
    """Stable sort of uint64 elements by their upper half; returns whichever of the two buffers holds the result."""
    counts = np.empty(1 << bits, np.uint32)
    mask = np.uint64((1 << bits) - 1)
    for digit in range(digits):
        offset = np.uint64(32 + digit * bits)
        counts[:] = 0
        for i in range(src.size):
            counts[(src[i] >> offset) & mask] += np.uint32(1)
        total = np.uint32(0)
        for k in range(counts.size):
            here = counts[k]
            counts[k] = total
            total += here
        for i in range(src.size):
            e = src[i]
            k = (e >> offset) & mask
            dst[counts[k]] = e
            counts[k] += np.uint32(1)
        src, dst = dst, src
    return src


@kernel
def _same_image(rows, rule, exact, scratch, ranks, value, matched):
    """Value the rows on ranks lo..hi-1, whose images coincide; returns the last value and whether it was a match's."""
    lo, hi = ranks
    row, order, codes = rows
    c, keys, counts, depth = rule.c, scratch.keys, scratch.counts, rule.depth
    matches = _matches(order, lo, hi)
    if lo >= exact and (matches == 0 or matches == hi - lo):
        return _group_values(row, order, c, ranks, matches, value, matched)
    for r in range(lo, hi):
        keys[r] = row[row_of(order[r])]
    sort_run(keys, order, lo, hi)
    while hi > lo:
        start = hi - 1
        if rule.average:
            while start > lo and keys[start - 1] == keys[hi - 1]:
                start -= 1
        if start < depth:
            share = (min(hi, depth) - start) / (hi - start)
            for r in range(start, hi):
                counts[codes[row_of(order[r])]] += share
        matches = _matches(order, start, hi)
        value, matched = _group_values(row, order, c, (start, hi), matches, value, matched)
        hi = start
    return value, matched


@kernel
def _matches(order, lo, hi):
    found = 0
    for r in range(lo, hi):
        found += np.int64(order[r] & _ONE)
    return found


@kernel
def _group_values(row, order, c, ranks, matches, value, matched):
    """Write the values of a tie group on ranks lo..hi-1; returns as :func:`_same_image`."""
    lo, hi = ranks
    n = hi - lo
    last = c[hi - 1]
    if matches == 0 or matches == n:
        match = np.int64(matches > 0)
        value += (match - matched) * last
        for r in range(lo, hi):
            row[row_of(order[r])] = value
        return value, match
    matching, other, total = tie_group(c, ranks, matches, value - matched * last)
    for r in range(lo, hi):
        e = order[r]
        row[row_of(e)] = matching if e & _ONE else other
    return total, np.int64(0)


@kernel
def tie_group(c, ranks, matches, total):
    """Value of a matching and of another row of a tie group of at least two rows, and the sum for the group before.

    Parameters
    ----------
    c : float64 (N,)
    ranks : tuple
        The group is on the zero-based ranks lo..hi-1.
    matches : int
        How many of its rows match.
    total : float
        The sum over the groups farther away.
    """
    lo, hi = ranks
    n, last = hi - lo, c[hi - 1]
    mean = 0.0
    for r in range(lo, hi):
        mean += c[r]
    mean /= n
    matching, other = tie_values(mean, last, matches, n)
    before = total + matches / n * (last - c[lo - 1]) if lo > 0 else total
    return matching + total, other + total, before


@kernel
def tie_values(mean, last, matches, n):
    """Value of a matching and of another row of a tie group, beyond the sum over the groups farther away.

    Parameters
    ----------
    mean, last : float
        Mean of the rank table over the ranks of the group, and its entry at the last of them.
    matches, n : int
        Number of rows of the group that match, and of all its rows, at least two.
    """
    change = last - mean
    return mean + (matches - 1) / (n - 1) * change, matches / (n - 1) * change


@kernel
def sort_run(keys, elements, lo, hi):
    """Stable ascending sort of keys[lo:hi], elements carried along."""
    if hi - lo <= SHORT:
        _insertion_sort(keys, elements, lo, hi)
    else:
        _long_sort(keys, elements, lo, hi)


@kernel
def _insertion_sort(keys, elements, lo, hi):
    """As :func:`sort_run`, for short runs."""
    for r in range(lo + 1, hi):
        key = keys[r]
        e = elements[r]
        w = r
        while w > lo and keys[w - 1] > key:
            keys[w] = keys[w - 1]
            elements[w] = elements[w - 1]
            w -= 1
        keys[w] = key
        elements[w] = e


@kernel
def _long_sort(keys, elements, lo, hi):
    """As :func:`_insertion_sort`, for long runs: once more by images that resolve this run, then by full keys."""
    n = hi - lo
    if keys[lo:hi].min() == keys[lo:hi].max():
        return
    first, last, shift = _window(keys[lo:hi], 22)
    patterns = keys.view(np.int64)
    places = np.empty((2, n), np.uint64)
    for i in range(n):
        image = (min(max(patterns[lo + i], first), last) - first) >> shift
        places[0, i] = np.uint64(image << 32 | i)
    sorted_places = _radix_sort(places[0], places[1], 2, 11)
    old_keys = keys[lo:hi].copy()
    old_elements = elements[lo:hi].copy()
    for r in range(n):
        keys[lo + r] = old_keys[np.int64(sorted_places[r] & _INDEX)]
        elements[lo + r] = old_elements[np.int64(sorted_places[r] & _INDEX)]
    start = 0
    while start < n:
        end = start + 1
        while end < n and sorted_places[end] >> _HALF == sorted_places[start] >> _HALF:
            end += 1
        if end - start <= SHORT:
            _insertion_sort(keys, elements, lo + start, lo + end)
        else:
            run = slice(lo + start, lo + end)
            by_key = np.argsort(keys[run], kind="mergesort")
            keys[run] = keys[run][by_key]
            elements[run] = elements[run][by_key]
        start = end


@kernel
def neighbor_entropy(counts, depth):
    """Entropy of the collected neighbour labels; clears ``counts`` again."""
    present = 0
    shares = np.empty(min(counts.size, 8))
    for k in range(counts.size):
        if counts[k] > 0.0:
            if present == shares.size:
                shares = np.append(shares, np.empty(shares.size))
            shares[present] = counts[k] / depth
            present += 1
            counts[k] = 0.0
    # One label must give exactly zero, though fractions of a tie group need not add up to exactly one.
    if present < 2:
        return 0.0
    total = 0.0
    # Sorted, so that the result does not depend on how the classes happen to be numbered.
    for share in np.sort(shares[:present]):
        total -= share * np.log(share)
    return total


@kernel
def add_rows(tile: Floats, cells: Indices, squares: Indices, sums: Floats) -> None:
    """Add each row of ``tile`` to the row of ``sums`` that ``cells`` names, and its squares to that of ``squares``."""
    for p in range(tile.shape[0]):
        out, squared, row = sums[cells[p]], sums[squares[p]], tile[p]
        for i in range(row.size):
            out[i] += row[i]
            squared[i] += row[i] * row[i]


@kernel
def add_weighted_rows(tile: Floats, weights: Floats, cells: Indices, squares: Indices, sums: Floats) -> None:
    """As :func:`add_rows`, for the rows of ``tile`` times ``weights``; these times weights once more follow squares."""
    for p in range(tile.shape[0]):
        weight, row = weights[p], tile[p]
        out, squared, products = sums[cells[p]], sums[squares[p]], sums[squares[p] + 1]
        for i in range(row.size):
            value = weight * row[i]
            out[i] += value
            squared[i] += value * value
            products[i] += weight * value
