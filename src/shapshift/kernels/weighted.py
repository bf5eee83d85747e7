r"""Values of a weighted KNN classifier with whole-number weights: exact, in time linear in the number of rows.

A vote is a contest between the validation point's label and one rival: a row counts ``+w`` for the one, ``-w`` for the
other, 0 for neither. The label wins when the sum over the K nearest rows is above 0. A row i at rank i changes the
outcome of a subset in two ways. In subsets of fewer than K other rows it is one more voter. In larger ones it takes the
place of the K-th nearest row m. Collecting subsets by m, and averaging over what lies beyond m, leaves

    v_i = 1/N sum_{s<K} E[U(S + i) - U(S)]  +  sum_{m > max(i, K)} K / (m (m - 1)) E[U(R + i) - U(R + m)]

with S a random set of s rows other than i, and R a random set of K - 1 rows nearer than m other than i. The published
dynamic programme tabulates the distribution of the weight of R for every pair (i, m), in O(W K^2 N^2). But R is drawn
from *all* rows nearer than m but one, so its distribution depends on i through i's signed weight only. One distribution
per signed weight that occurs, carried along from near to far, serves all rows: O(W^2 K^2 N), W the largest weight.
Distributions are kept as probabilities, not as numbers of subsets, so nothing overflows.

Rows at equal distance have equal weights and differ in sign only. Breaking such ties at random makes the members of R,
and the row m, random draws from the tie group: the sums over the group's ranks turn into hypergeometric ones.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]


class Vote(NamedTuple):
    """Rules of a vote.

    Attributes
    ----------
    k : int
        Number of voters.
    largest : int
        Largest weight of a row.
    draw : float
        Worth of a draw and of the empty subset.
    n_classes : int
    average : bool
        Average over ties, or keep them in the given order.
    limit : int
        Largest rank that is used; N for exact values.
    log_factorial : float64 (N + 1,)
    """

    k: int
    largest: int
    draw: float
    n_classes: int
    average: bool
    limit: int
    log_factorial: Floats


@kernel
def weighted_values(
    tile: Floats, order: Indices, weights: Codes, codes: Codes, targets: Codes, vote: Vote, states: Floats
) -> None:
    """Overwrite each row of ``tile`` (distances to the training rows) with that validation point's values.

    Parameters
    ----------
    tile : float64 (b, N)
    order : int64 (b, N)
        Training rows from near to far.
    weights : int32 (b, N)
        Weight of each row's vote, 0..largest; equal where distances are.
    codes, targets : int32 (N,), (b,)
        Class of each training row and validation point (-1 if no row has it).
    vote : Vote
    states : float64 (s, min(k, N), 2 * (min(k, N) - 1) * largest + 1)
        Scratch: one distribution of the rows so far, and one without a row of each signed weight that occurs on a
        point.
    """
    n = codes.size
    tails = np.empty(states.shape[1:])
    signed = np.empty(n, np.int64)
    values = np.empty(n)
    total = np.empty(n)
    ends = np.empty(n + 1, np.int64)
    for p in range(tile.shape[0]):
        n_groups = 0
        for r in range(1, n + 1):
            if r == n or not vote.average or tile[p, order[p, r]] != tile[p, order[p, r - 1]]:
                ends[n_groups] = r
                n_groups += 1
        total[:] = 0.0
        contests = 0
        for rival in range(-1, vote.n_classes):
            # A single class has no rival except the draw.
            if rival == targets[p] or (rival == -1 and vote.n_classes > 1):
                continue
            _sign(order[p], weights[p], codes, targets[p], rival, signed)
            _contest(signed, ends[:n_groups], vote, states, tails, values)
            total += values
            contests += 1
        for r in range(n):
            tile[p, order[p, r]] = total[r] / contests


@kernel
def _sign(order, weights, codes, target, rival, signed):
    """Write the weights in order, with the sign of the side each row votes for."""
    for r in range(order.size):
        i = order[r]
        signed[r] = weights[i] if codes[i] == target else -weights[i] if codes[i] == rival else 0


@kernel
def _contest(signed, ends, vote, states, tails, values):
    """Value all rows, in order of distance, for one contest."""
    k, largest = vote.k, vote.largest
    n = signed.size
    seats = states.shape[1]
    gained = np.zeros(2 * largest + 1)  # running sum over m, by signed weight
    # Index of the distribution without a row of each signed weight; 0, the one of all rows, for weights not yet seen.
    place = np.zeros(2 * largest + 1, np.int64)
    used = 0
    new = np.zeros(3, np.int64)  # indices of the weights in the present group
    shares = np.empty(seats)
    everyone = states[0]
    _clear(everyone)
    values[:] = 0.0
    lo = 0
    reached = 0
    for g in range(ends.size):
        hi = ends[g]
        if lo >= vote.limit:
            break
        size = hi - lo
        weight, plus, minus = 0, 0, 0
        for r in range(lo, hi):
            weight = max(weight, abs(signed[r]))
            plus += signed[r] > 0
            minus += signed[r] < 0
        members = (weight, plus, minus, size - plus - minus)
        # Rows nearer than this group lose their place to one of its members.
        if lo > 0 and hi > k:
            _seats_by_group(lo - 1, size, lo + 1, 0, vote, shares)
            for v in range(place.size):
                if place[v]:
                    gained[v] += _replaced(states[place[v]], v - largest, members, shares, vote, tails)
        # Members of the group that come before another member lose their place to it too.
        _seats_by_group(lo, size - 1, lo + 2, size, vote, shares)
        new[:] = 0
        for side in range(3):
            if members[1 + side] == 0:
                continue
            v = (weight, -weight, 0)[side]
            others = (weight, plus - (side == 0), minus - (side == 1), members[3] - (side == 2))
            own = _replaced(everyone, v, others, shares, vote, tails) if size > 1 else 0.0
            if not place[v + largest] and not new[side]:
                used += 1
                new[side] = used
                states[used] = everyone
                _add_rows(states[used], lo, others, largest)
            for r in range(lo, hi):
                if signed[r] == v:
                    values[r] = own - gained[v + largest]
        for v in range(place.size):
            if place[v]:
                _add_rows(states[place[v]], lo - 1, members, largest)
        for side in range(3):
            if new[side]:
                place[(weight, -weight, 0)[side] + largest] = new[side]
        _add_rows(everyone, lo, members, largest)
        lo = hi
        reached = hi
    small = np.zeros(place.size)
    if reached == n:
        for v in range(place.size):
            if place[v]:
                small[v] = _one_more(states[place[v]], v - largest, n, vote.draw)
    for r in range(reached):
        v = signed[r] + largest
        values[r] += gained[v] + small[v]


@kernel
def _clear(state):
    """Write the distribution of no rows: the empty set has weight 0."""
    state[:] = 0.0
    state[0, state.shape[1] // 2] = 1.0


@kernel
def _add_rows(state, population, members, largest):
    """Add a group to the population from which random sets are drawn."""
    weight, plus, minus, zero = members
    for _ in range(plus):
        _add_row(state, population, weight, largest)
        population += 1
    for _ in range(minus):
        _add_row(state, population, -weight, largest)
        population += 1
    for _ in range(zero):
        _add_row(state, population, 0, largest)
        population += 1


@kernel
def _add_row(state, population, weight, largest):
    """Update the weight distributions of random sets by size: a row is in a set with chance size/population."""
    middle = state.shape[1] // 2
    for size in range(min(state.shape[0] - 1, population + 1), 0, -1):
        chance = size / (population + 1)
        reach = (size - 1) * largest
        mine = state[size]
        # One size smaller, and shifted by the weight of the row.
        smaller = state[size - 1, middle - reach : middle + reach + 1]
        for s in range(middle - size * largest, middle + size * largest + 1):
            mine[s] *= 1 - chance
        shifted = mine[middle - reach + weight : middle + reach + weight + 1]
        for s in range(smaller.size):
            shifted[s] += chance * smaller[s]


@kernel
def _seats_by_group(nearer, size, first, whole, vote, shares):
    """For each number u of places, the total weight with which u of the K - 1 rows of R come from the group of m.

    Parameters
    ----------
    nearer : int
        Rows before the group, other than i.
    size : int
        Members of the group, other than i.
    first : int
        Rank of m if no member of the group comes before it, without i.
    whole : int
        0 if i comes before the group; else the group's size including i, which comes before m with chance (1 + number
        of members before m) / whole.
    """
    k, log_factorial = vote.k, vote.log_factorial
    shares[:] = 0.0
    for before in range(size):
        m = first + before
        if m <= k:
            continue
        weight = k / (m * (m - 1.0))
        if whole > 0:
            weight *= (1 + before) / whole
        if size == 1 or k == 1:
            shares[0] += weight
            continue
        all_ways = _log_choose(log_factorial, nearer + before, k - 1)
        for u in range(max(0, k - 1 - nearer), min(before, k - 1) + 1):
            ways = _log_choose(log_factorial, before, u) + _log_choose(log_factorial, nearer, k - 1 - u)
            shares[u] += weight * np.exp(ways - all_ways)


@kernel
def _log_choose(log_factorial, n, k):
    return log_factorial[n] - log_factorial[k] - log_factorial[n - k]


@kernel
def _replaced(state, v, members, shares, vote, tails):
    """Mean of U(R + i) - U(R + m), weighted by ``shares``, for m in a group; i has signed weight v."""
    k, draw, log_factorial = vote.k, vote.draw, vote.log_factorial
    weight, plus, minus, zero = members
    size = plus + minus + zero
    middle = state.shape[1] // 2
    if size == 1:
        if shares[0] == 0.0:
            return 0.0
        b = weight if plus else -weight if minus else 0
        if b == v:
            return 0.0
        mine = state[k - 1]
        return shares[0] * (_won(mine, middle, v, draw) - _won(mine, middle, b, draw))
    found = 0.0
    for u in range(min(k - 1, size - 1) + 1):
        if shares[u] == 0.0:
            continue
        left = k - 1 - u
        _tail(state[left], draw, tails[left])
        tail = tails[left]
        all_ways = _log_choose(log_factorial, size, u)
        for h in range(max(0, u - minus - zero), min(plus, u) + 1):
            for g in range(max(0, u - h - zero), min(minus, u - h) + 1):
                ways = _log_choose(log_factorial, plus, h) + _log_choose(log_factorial, minus, g)
                chance = np.exp(ways + _log_choose(log_factorial, zero, u - h - g) - all_ways)
                x = weight * (h - g)
                others = (plus - h) * _at(tail, middle, x + weight) + (minus - g) * _at(tail, middle, x - weight)
                others += (zero - (u - h - g)) * _at(tail, middle, x)
                found += shares[u] * chance * (_at(tail, middle, x + v) - others / (size - u))
    return found


@kernel
def _won(distribution, middle, b, draw):
    """Chance that a random weight plus b is above 0, with ``draw`` for each time it is 0."""
    cut = middle - b
    if cut >= distribution.size:
        return 0.0
    found = 0.0
    for s in range(max(cut + 1, 0), distribution.size):
        found += distribution[s]
    return found + draw * distribution[cut] if cut >= 0 else found


@kernel
def _tail(distribution, draw, tail):
    """Compute :func:`_won` for every b: ``tail[s]`` is the chance to win from a threshold at s."""
    above = 0.0
    for s in range(distribution.size - 1, -1, -1):
        tail[s] = above + draw * distribution[s]
        above += distribution[s]


@kernel
def _at(tail, middle, b):
    cut = middle - b
    if cut >= tail.size:
        return 0.0
    return tail[cut] if cut >= 0 else 1.0


@kernel
def _one_more(state, v, n, draw):
    """Sum over the sizes below K of the mean of U(S + i) - U(S), divided by N."""
    middle = state.shape[1] // 2
    found = 0.0
    for size in range(state.shape[0]):
        found += _won(state[size], middle, v, draw) - _won(state[size], middle, 0, draw)
    return found / n
