"""Kept orders: the rows around a validation point, sorted once, and walked again whenever some of them have changed.

Measuring distances and sorting them is most of the work of a valuation. Neither is needed again when rows are taken
away, and only the new rows have to be measured and put in their places when rows are added. An order is a list of
words, nearest row first:

    row number << 2 | whether it matches the point's label << 1 | whether it is as far away as the one before

Where the rank table has become flat, c_j = c_N from some rank on, order has no influence: all rows there have the value
a_i c_N + beta(M). Values are therefore added up as differences from that, and an order may end where the table is flat.
"""

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.rank import neighbor_entropy, order_rows, sort_run

Floats = npt.NDArray[np.float64]
Words = npt.NDArray[np.uint32]
Codes = npt.NDArray[np.int32]

_INDEX = np.uint64(0xFFFFFFFF)
_ONE = np.uint64(1)
_FOUR = np.uint64(4)
_TIED = np.uint32(1)
_MATCH = np.uint32(2)
_SHIFT = np.uint32(2)
# Distances that share a line of the cache; and how far apart two places may be for all lines in between to be read.
LINE = 8
NEAR = 512


@kernel
def make_order(
    row: Floats,
    codes: Codes,
    target: int,
    work: npt.NDArray[np.uint64],
    keys: Floats,
    words: Words,
    distances: Floats,
) -> None:
    """Sort all rows by their distance to one point, ties by row number.

    Parameters
    ----------
    row : float64 (N,)
        Distances.
    codes : int32 (N,)
    target : int
    work : uint64 (2, N)
    keys : float64 (N,)
        Scratch.
    words, distances : (N,)
        Out: the order, and the distances in it.
    """
    order, _ = order_rows(row, codes, target, work)
    n = row.size
    for r in range(n):
        keys[r] = row[np.int64((order[r] & _INDEX) >> _ONE)]
    lo = 0
    while lo < n:
        hi = lo + 1
        while hi < n and order[hi] >> np.uint64(32) == order[lo] >> np.uint64(32):
            hi += 1
        if hi - lo > 1:
            sort_run(keys, order, lo, hi)
        lo = hi
    for r in range(n):
        words[r] = np.uint32((order[r] & _INDEX) << _ONE) | np.uint32(r > 0 and keys[r] == keys[r - 1])
        distances[r] = keys[r]


@kernel
def place_new(
    distances: Floats,
    added: Words,
    added_distances: Floats,
    places: npt.NDArray[np.int64],
    new: Words,
    new_distances: Floats,
    all_words: Words,
    all_distances: Floats,
    all_places: npt.NDArray[np.int64],
) -> bool:
    """Find where new rows belong in an order, behind those at the same distance.

    Parameters
    ----------
    distances : float64 (n,)
        Of the order, ascending.
    added, added_distances, places : (k,)
        Rows that came before and are still beside the order: their words and distances, ascending, and how many rows of
        the order come before each.
    new, new_distances : (j,)
        Words and distances of the new rows, which are put in order.
    all_words, all_distances, all_places : (k + j,)
        Out: ``added``, ``added_distances`` and ``places`` with the new rows among them, marked as tied where one is as
        far away as the row before it.

    Returns
    -------
    bool
        Whether any new one is tied.
    """
    sort_run(new_distances, new, 0, new.size)
    n, at, k, any_tied = distances.size, 0, 0, False
    usual = 1  # about how far the next place is
    while 0 < 2 * usual * new.size < n:
        usual *= 2
    near = usual <= NEAR
    for j in range(new.size):
        x = new_distances[j]
        while k < added.size and added_distances[k] <= x:
            all_words[k + j], all_distances[k + j], all_places[k + j] = added[k], added_distances[k], places[k]
            k += 1
        if near:  # memory is read line by line, in order, which is what it is made for
            while at + LINE <= n and distances[at + LINE - 1] <= x:
                at += LINE
            while at < n and distances[at] <= x:
                at += 1
        # Doubling steps, then halving ones.
        step = 0 if near else usual
        while step > 0 and at + step <= n and distances[at + step - 1] <= x:
            at += step
            step *= 2
        while step > 0:
            if at + step <= n and distances[at + step - 1] <= x:
                at += step
            step //= 2
        tied = (at > 0 and distances[at - 1] == x) or (k + j > 0 and all_distances[k + j - 1] == x)
        all_words[k + j] = (new[j] & ~_TIED) | np.uint32(tied)
        all_distances[k + j], all_places[k + j] = x, at
        any_tied |= tied
    for i in range(k, added.size):
        j = i + new.size
        all_words[j], all_distances[j], all_places[j] = added[i], added_distances[i], places[i]
    return any_tied


@kernel
def merge_order(
    words: Words,
    added: Words,
    places: npt.NDArray[np.int64],
    numbers: npt.NDArray[np.int32],
    merged: Words,
    origins: npt.NDArray[np.int64],
) -> int:
    """Put new rows in their places, leave out the rows that are gone, and renumber.

    Parameters
    ----------
    words : uint32 (n,)
    added, places : (k,)
        As :func:`place_new` leaves them.
    numbers : int32 (rows,)
        New number of each row; negative for those that are gone.
    merged : uint32 (at least n + k,)
        Out.
    origins : int64 (0,) or (at least n + k,)
        Out: where each word was, in ``words`` or, minus one and negative, in ``added``.

    Returns
    -------
    int
        Length of ``merged``.
    """
    size = k = 0
    seen = np.uint32(0)  # whether a row at this distance was kept
    for b in range(words.size + 1):
        while k < places.size and places[k] == b:
            size, seen = _keep(added[k], -1 - k, numbers, merged, origins, size, seen)
            k += 1
        if b < words.size:
            size, seen = _keep(words[b], b, numbers, merged, origins, size, seen)
    return size


@kernel
def _keep(word, origin, numbers, merged, origins, size, seen):
    number = numbers[word >> _SHIFT]
    seen &= word
    if number < 0:
        return size, seen
    merged[size] = (np.uint32(number) << _SHIFT) | (word & _MATCH) | (seen & _TIED)
    if origins.size > 0:
        origins[size] = origin
    return size + 1, _TIED


@kernel
def order_entropy(order: Words, codes: Codes, depth: int, average: bool, counts: Floats) -> float:
    """Entropy of the labels of the ``depth`` nearest rows, ties by their share; ``counts`` stays zero."""
    lo = 0
    while lo < depth:
        hi = lo + 1
        while average and hi < order.size and order[hi] & _TIED:
            hi += 1
        for r in range(lo, hi):
            counts[codes[order[r] >> _SHIFT]] += (min(hi, depth) - lo) / (hi - lo)
        lo = hi
    return float(neighbor_entropy(counts, depth))


@kernel
def walk_order(order: Words, c: Floats, average: bool, out: Floats) -> None:
    """Add the values of one point, less a_i c_N + beta(M), from the far end of its order to the near one.

    Parameters
    ----------
    order : uint32 (n,)
        Complete as far as ``c`` is not flat.
    c : float64 (N,)
        Rank table.
    average : bool
        Average over ties, or take them in order.
    out : float64 (rows,)
        Sums.
    """
    flat = c[-1]
    total = 0.0
    hi = order.size
    while hi > 0:
        lo = hi - 1
        word = order[lo]
        if not (average and word & _TIED):
            match = np.float64((word & _MATCH) >> _TIED)
            out[word >> _SHIFT] += match * (c[lo] - flat) + total
            if lo > 0:
                total += match * (c[lo] - c[lo - 1])
        else:
            lo, total = _walk_ties(order, c, hi, total, out)
        hi = lo


@kernel
def _walk_ties(order, c, hi, total, out):
    """Value the tie group that ends before ``hi``; returns where it begins and the new total."""
    lo = hi - 1
    while order[lo] & _TIED:
        lo -= 1
    n, matches, mean = hi - lo, 0, 0.0
    for r in range(lo, hi):
        matches += np.int64((order[r] & _MATCH) >> _TIED)
        mean += c[r]
    mean /= n
    last = c[hi - 1]
    matching = mean - c[-1] + (matches - 1) / (n - 1) * (last - mean) + total
    other = matches / (n - 1) * (last - mean) + total
    for r in range(lo, hi):
        out[order[r] >> _SHIFT] += matching if order[r] & _MATCH else other
    if lo > 0:
        total += matches / n * (last - c[lo - 1])
    return lo, total


def rank_steps(c: Floats) -> Floats:
    """Lay a rank table out for :func:`walk_orders`: all that a step needs lies together.

    Returns
    -------
    float64 (4 * N + 4,)
        For each rank, beginning at 4, what an other row adds to its own value and to all nearer ones, which is nothing;
        then the same for a matching row, ``c_r - c_N`` and ``c_r - c_{r-1}``.
    """
    steps = np.zeros((c.size + 1, 2, 2))
    steps[1:, 1, 0] = c - c[-1]
    steps[2:, 1, 1] = np.diff(c)
    return steps.reshape(-1)


@kernel
def walk_orders(
    words: Words,
    added: Words,
    places: npt.NDArray[np.int64],
    which: npt.NDArray[np.int64],
    steps: Floats,
    cells: npt.NDArray[np.int64],
    out: Floats,
) -> None:
    """Do for many orders without ties what :func:`walk_order` does for one that was merged.

    Four points at a time, because each waits for its own total most of the time.

    Parameters
    ----------
    words : uint32 (b, n)
        Orders of all rows, of those that are gone too, which have no rank.
    added, places : (b, k)
        New rows, as :func:`place_new` leaves them.
    which : int64 (w,)
        The points to walk for. Those of one cell should stand together: its sums then stay in the cache.
    steps : float64
        Of :func:`rank_steps`.
    cells : int64 (b,)
        Row of ``out`` for each point.
    out : float64 (cells, rows)
        Sums; NaN for rows that are gone. They are read anyway, which saves another look for each row.
    """
    fours = which.size - which.size % 4
    for i in range(0, fours, 4):
        _walk_four(words, added, places, which[i : i + 4], steps, cells, out)
    for p in which[fours:]:
        r, total, top, into = np.uint64(steps.size - 4), 0.0, words.shape[1], out[cells[p]]
        for k in range(added.shape[1], -1, -1):
            stop = max(_next(places[p], k), 0)
            for at in range(top - 1, stop - 1, -1):
                r, total = _step(words[p, at], steps, r, total, into)
            top = stop
            if k > 0:
                r, total = _step(added[p, k - 1], steps, r, total, into)


@kernel
def _walk_four(words, added, places, which, steps, cells, out):
    a, b, c, d = which[0], which[1], which[2], which[3]
    w0, w1, w2, w3 = words[a], words[b], words[c], words[d]
    o0, o1, o2, o3 = out[cells[a]], out[cells[b]], out[cells[c]], out[cells[d]]
    r0 = r1 = r2 = r3 = np.uint64(steps.size - 4)
    t0 = t1 = t2 = t3 = 0.0
    k0 = k1 = k2 = k3 = added.shape[1]
    top = words.shape[1]
    while True:
        # All four go on to where the next new row of any of them is.
        p0, p1 = _next(places[a], k0), _next(places[b], k1)
        p2, p3 = _next(places[c], k2), _next(places[d], k3)
        stop = max(max(p0, p1), max(p2, p3))
        for at in range(top - 1, max(stop, 0) - 1, -1):
            r0, t0 = _step(w0[at], steps, r0, t0, o0)
            r1, t1 = _step(w1[at], steps, r1, t1, o1)
            r2, t2 = _step(w2[at], steps, r2, t2, o2)
            r3, t3 = _step(w3[at], steps, r3, t3, o3)
        if stop < 0:
            return
        top = stop
        if p0 == stop:
            k0 -= 1
            r0, t0 = _step(added[a, k0], steps, r0, t0, o0)
        if p1 == stop:
            k1 -= 1
            r1, t1 = _step(added[b, k1], steps, r1, t1, o1)
        if p2 == stop:
            k2 -= 1
            r2, t2 = _step(added[c, k2], steps, r2, t2, o2)
        if p3 == stop:
            k3 -= 1
            r3, t3 = _step(added[d, k3], steps, r3, t3, o3)


@kernel
def _next(places, k):
    return places[k - 1] if k > 0 else -1


@kernel
def _step(word, steps, r, total, out):
    row = np.int64(word >> _SHIFT)
    value = out[row]
    if value != value:  # seldom, so a branch costs less than arithmetic
        return r, total
    at = r + np.uint64(word & _MATCH)
    out[row] = value + (steps[at] + total)
    return r - _FOUR, total + steps[at + _ONE]
