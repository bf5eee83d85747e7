"""Values of rows that join class by class: asymmetric Shapley values, on one validation point after the other.

All rows of class 0 join first, in a random order, then those of class 1, and so on. A class V of n rows plays S -> u(U
+ S) with U the rows that joined before, so only the K nearest of these matter. With b the number of nearer rows of U,
and l the place of a row among V or, for a row of U, the number of nearer rows of V,

    K v_i = a_i f(b_i, l_i) - sum over j in V behind i of a_j g(b_j, l_j) - sum over j in U behind i of a_j h(b_j, l_j)
    f = min(1, (K-b) / l)       g = (K-b) / (l (l-1)) if K-b < l        h = 1/l if K-b <= l,         all 0 if b >= K

f is the probability that a row has a vote when it joins; g and h are the probabilities that a joining row takes the
vote of j. If every row of V is drawn with probability w instead (weighted Banzhaf), with B(n) the number drawn of n
rows,

    f = P(B(l-1) < K-b)         g = w P(B(l-2) = K-b-1)                 h = P(B(l-1) = K-b-1)

The soft utility divides by the voters in place of K. Both differ only for S so small that all rows vote, whatever the
ranks, so that all matching rows of V get the same correction, and all others the same.

Rows at equal distance are in a random order. A row of V at place x among its p tied rows, each place equally likely,
has y of the q tied rows of U before it with probability C(x+y, y) C(p-1-x+q-y, q-y) / C(p+q, q), which is that of a
beta-binomial count; likewise for a row of U, which is at one of p+1 places between those of V.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel
from shapshift.kernels.rank import (
    Batch,
    Codes,
    Findings,
    Floats,
    Indices,
    neighbor_entropy,
    order_rows,
    rank_of,
    row_of,
    sort_run,
)

_ONE, _HALF = np.uint64(1), np.uint64(32)
# Probabilities are stored as a number times a power of e; the number is brought back within these limits.
_SMALL, _LARGE = 1e-200, 1e200
_LOG_LARGE = np.log(_LARGE)


class Joining(NamedTuple):
    """Order of joining, and worth of a vote.

    Attributes
    ----------
    number : int32 (N,)
        Class of each row, 0 for those that join first.
    starts : int64 (T + 1,)
        Rows that join before each class, and N.
    seats : int
        K, or N if that is less.
    divisor : float
        Divisor of the votes when all seats are taken.
    w : float
        Probability of drawing a row; 0 for Shapley values.
    few, exactly : float64 (seats, L + 1)
        Probabilities that at most k of n rows are drawn, and that exactly k are; beyond L rows both are negligible.
        Empty for Shapley values.
    sizes : float64 (seats,) or (0,)
        For the soft utility: entry b + s is the probability that s rows of the class are present, with b earlier ones.
    empty : float
        Worth of the empty set.
    average : bool
        Average over ties, or break them by row index.
    depth : int
        Number of nearest rows for the neighbour-label entropy.
    """

    number: Codes
    starts: Indices
    seats: int
    divisor: float
    w: float
    few: Floats
    exactly: Floats
    sizes: Floats
    empty: float
    average: bool
    depth: int


class JoiningScratch(NamedTuple):
    """Arrays of one worker.

    Attributes
    ----------
    work : uint64 (2, N)
    keys : float64 (N,)
    places : int32 (N,)
        Number of the tie group at each rank, from near to far.
    ranks : int32 (N,)
        Ranks of the rows, class by class, each from near to far.
    filled : int64 (T,)
    near : int64 (2, 3, seats)
        The nearest rows of earlier classes as tie groups: their numbers, sizes and matches; and the same for the next
        step.
    chances : float64 (seats,)
    counts : float64 (n_labels,)
        Zero on entry and on exit.
    """

    work: npt.NDArray[np.uint64]
    keys: Floats
    places: Codes
    ranks: Codes
    filled: Indices
    near: npt.NDArray[np.int64]
    chances: Floats
    counts: Floats


class Tied(NamedTuple):
    """A tie group from the view of one class.

    Attributes
    ----------
    nearer, earlier : int
        Rows of the class, and of earlier classes, that are nearer.
    own, matches : int
        Rows of the class in the group, and the number of them that match.
    others, other_matches : int
        The same for rows of earlier classes.
    """

    nearer: int
    earlier: int
    own: int
    matches: int
    others: int
    other_matches: int


@kernel
def joining_values(
    tile: Floats, codes: Codes, batch: Batch, joining: Joining, scratch: JoiningScratch, found: Findings
) -> None:
    """Overwrite each row of ``tile`` (distances to the training rows) with that validation point's values.

    Parameters
    ----------
    tile : float64 (b, N)
        Non-negative finite distances in, values out.
    codes : int32 (N,)
        Label of each training row.
    batch : Batch
        Its bases are not used.
    joining : Joining
    scratch : JoiningScratch
    found : Findings
        Out.
    """
    for p in range(tile.shape[0]):
        row = tile[p]
        order, window = order_rows(row, codes, batch.targets[p], scratch.work)
        for r in range(batch.reference.shape[1]):
            found.ranks[p, r] = rank_of(row, order, batch.reference[p, r], window)
        _settle(row, order, joining.average, scratch)
        for r in range(found.nearest.shape[1]):
            found.nearest[p, r] = row_of(order[r])
        found.entropy[p] = _entropy(order, codes, joining.depth, scratch)
        _value_classes(row, order, joining, scratch)


@kernel
def _settle(row, order, average, scratch):
    """Order rows that share an image, and number the tie groups."""
    keys, places = scratch.keys, scratch.places
    number = -1
    lo = 0
    while lo < row.size:
        hi = lo + 1
        while hi < row.size and (order[hi] ^ order[lo]) >> _HALF == np.uint64(0):
            hi += 1
        if hi - lo > 1:
            for r in range(lo, hi):
                keys[r] = row[row_of(order[r])]
            sort_run(keys, order, lo, hi)
        for r in range(lo, hi):
            if r == lo or not average or keys[r] != keys[r - 1]:
                number += 1
            places[r] = number
        lo = hi


@kernel
def _entropy(order, codes, depth, scratch):
    places, counts = scratch.places, scratch.counts
    lo = 0
    while lo < depth:
        hi = lo + 1
        while hi < order.size and places[hi] == places[lo]:
            hi += 1
        share = (min(hi, depth) - lo) / (hi - lo)
        for r in range(lo, hi):
            counts[codes[row_of(order[r])]] += share
        lo = hi
    return neighbor_entropy(counts, depth)


@kernel
def _value_classes(row, order, joining, scratch):
    """Value one class after the other; then its nearest rows join those of the earlier classes."""
    starts, ranks, filled, number = joining.starts, scratch.ranks, scratch.filled, joining.number
    filled[:] = 0
    for r in range(order.size):
        of = number[row_of(order[r])]
        ranks[starts[of] + filled[of]] = r
        filled[of] += 1
    groups, matches = 0, 0
    near, merged = scratch.near[0], scratch.near[1]
    for of in range(filled.size):
        members = ranks[starts[of] : starts[of + 1]]
        own = 0
        for m in range(members.size):
            own += np.int64(order[members[m]] & _ONE)
        shift, matching_shift = _shifts(joining, starts[of], members.size, matches, own)
        if _value_class(row, order, members, (shift, matching_shift), near, groups, joining, scratch):
            groups = _merge(order, members, near, groups, merged, joining.seats, scratch.places)
            near, merged = merged, near
        matches += own


@kernel
def _shifts(joining, earlier, n, earlier_matches, matches):
    """Return the additions of the soft utility to the value of a non-matching and of a matching row."""
    other, matching = 0.0, 0.0
    for s in range(min(n, joining.sizes.size - earlier)):
        voters = earlier + s
        chance = joining.sizes[voters]
        for a in range(2):
            before = earlier_matches + (s * (matches - a) / (n - 1) if s > 0 else 0.0)
            worth = before / voters if voters > 0 else joining.empty
            gain = chance * ((before + a) / (voters + 1) - worth - a / joining.divisor)
            if a:
                matching += gain
            else:
                other += gain
    return other, matching


@kernel
def _value_class(row, order, members, shifts, near, groups, joining, scratch):
    """Write the values of a class from far to near; return how many of its rows may vote.

    ``members`` are their ranks, ``near`` the first ``groups`` tie groups of earlier rows.
    """
    places, divisor = scratch.places, joining.divisor
    earlier = 0
    for g in range(groups):
        earlier += near[1, g]
    left = members.size
    if earlier >= joining.seats:  # rows farther away than all seats never vote
        while left > 0 and places[members[left - 1]] > near[0, groups - 1]:
            left -= 1
            row[row_of(order[members[left]])] = 0.0
    voting, tail = left, 0.0
    while left > 0:
        place = places[members[left - 1]]
        others, other_matches = 0, 0
        if groups > 0 and near[0, groups - 1] >= place:
            groups -= 1
            place, others, other_matches = near[0, groups], near[1, groups], near[2, groups]
        end, matches = left, 0
        while left > 0 and places[members[left - 1]] == place:
            left -= 1
            matches += np.int64(order[members[left]] & _ONE)
        earlier -= others
        tied = Tied(left, earlier, end - left, matches, others, other_matches)
        matching, other, more = _tied_values(tied, joining, scratch.chances)
        for m in range(left, end):
            e = order[members[m]]
            if e & _ONE:
                row[row_of(e)] = (matching - tail) / divisor + shifts[1]
            else:
                row[row_of(e)] = (other - tail) / divisor + shifts[0]
        tail += more
    return voting


@kernel
def _tied_values(tied, joining, chances):
    """Value of a matching and of a non-matching row, without farther groups, and the costs of the group to nearer rows.

    All are multiplied by K.
    """
    nearer, earlier, p, matches, q, other_matches = tied
    own, taken, taken_inside = 0.0, 0.0, 0.0
    if p == 1 and q == 0:
        return _votes(joining, earlier, nearer + 1), 0.0, matches * _taken(joining, earlier, nearer + 1)
    seats = joining.seats - earlier
    none, scale = 1.0, 0.0
    for x in range(p):
        none, scale = _no_one_before(x, p, q, none, scale)
        for y in range(_fill_chances(x, p, q, none, scale, min(q + 1, seats), chances)):
            own += chances[y] * _votes(joining, earlier + y, nearer + x + 1)
            if matches > 0:
                part = chances[y] * _taken(joining, earlier + y, nearer + x + 1)
                taken += part
                taken_inside += x * part
    if p > 0:
        own, taken = own / p, taken / p
        taken_inside /= p * max(p - 1, 1)
    from_others, inside = 0.0, 0.0
    if other_matches > 0:
        none, scale = 1.0, 0.0
        for x in range(p + 1):
            none, scale = _no_one_before(x, p + 1, q - 1, none, scale)
            for y in range(_fill_chances(x, p + 1, q - 1, none, scale, min(q, seats), chances)):
                part = chances[y] * _taken_from_earlier(joining, earlier + y, nearer + x)
                from_others += part
                inside += x * part
        from_others *= other_matches / (p + 1)
        inside *= other_matches / ((p + 1) * max(p, 1))
    return (
        own - (matches - 1) * taken_inside - inside,
        -matches * taken_inside - inside,
        matches * taken + from_others,
    )


@kernel
def _no_one_before(x, m, n, none, scale):
    """Probability that none of n rows precedes place x of m, from that for place x - 1: none * exp(scale)."""
    if x == 0:
        return m / (m + n), 0.0
    none *= (m - x) / (m - x + n)
    if none < _SMALL:
        none *= _LARGE
        scale -= _LOG_LARGE
    return none, scale


@kernel
def _fill_chances(x, m, n, none, scale, size, chances):
    """Write the probabilities that 0, 1, .. of n rows precede place x of m; return their number, ``size``."""
    factor = np.exp(scale)
    for y in range(size):
        chances[y] = none * factor
        none *= (n - y) * (x + 1 + y) / ((y + 1) * max(n - y - 1 + m - x, 1))
        if none > _LARGE:
            none *= _SMALL
            scale += _LOG_LARGE
            factor = np.exp(scale)
    return size


@kernel
def _votes(joining, b, place):
    """Return f of the module's formula, for b below K."""
    left = joining.seats - b
    if joining.w == 0.0:
        return 1.0 if left >= place else left / place
    return _table(joining.few, left - 1, place - 1)


@kernel
def _taken(joining, b, place):
    """Return g of the module's formula, for b below K."""
    left = joining.seats - b
    if left >= place:
        return 0.0
    if joining.w == 0.0:
        return left / (place * (place - 1.0))
    return joining.w * _table(joining.exactly, left - 1, place - 2)


@kernel
def _taken_from_earlier(joining, b, nearer):
    """Return h of the module's formula, for b below K."""
    left = joining.seats - b
    if left > nearer:
        return 0.0
    if joining.w == 0.0:
        return 1.0 / nearer
    return _table(joining.exactly, left - 1, nearer - 1)


@kernel
def _table(table, k, n):
    return table[k, n] if n < table.shape[1] else 0.0


@kernel
def _merge(order, members, near, groups, merged, seats, places):
    """Write the nearest rows of a class and of earlier ones as tie groups, until the seats are taken; count them."""
    m, g, made, rows = 0, 0, 0, 0
    while rows < seats and (m < members.size or g < groups):
        place = near[0, g] if g < groups else np.int64(places[members[m]])
        if m < members.size:
            place = min(place, np.int64(places[members[m]]))
        size, matches = 0, 0
        if g < groups and near[0, g] == place:
            size, matches = near[1, g], near[2, g]
            g += 1
        while m < members.size and places[members[m]] == place:
            size += 1
            matches += np.int64(order[members[m]] & _ONE)
            m += 1
        merged[0, made], merged[1, made], merged[2, made] = place, size, matches
        made += 1
        rows += size
    return made
