r"""Exact semivalues of owners whose rows join together, for thousands of owners.

Let every owner be in the coalition with probability q, independently, and let F be the expected utility. The
derivative of F for one owner's probability is what that owner brings on average; a semivalue is its mean over a
distribution of q, a weighted sum over nodes (:mod:`shapshift.price.owners` makes them).

For one q, walk over the rows from near to far. An owner of whom n rows have been met so far brings n rows in front of
the next one with probability q, else none: its generating polynomial is :math:`f_n = 1 - q + q z^n`, and the number
of rows in front has the product of these over all owners. Only powers below K matter, because K nearer rows take all
seats. Owners of equal n are one class, so the product is :math:`\prod_n f_n^{c_n}` with binomial powers, which a table
holds: whatever owner is left out, nothing has to be divided, and every number added is a probability. That holds for
all q alike.

A matching row of an owner p with n rows in front of its own is worth :math:`\sum_{t<K-n} [z^t] R` to p, R the product
without p. To an owner of class j it costs :math:`q \sum_t (\lambda_t - \lambda_{t+j}) [z^t] R / f_j`, where
:math:`\lambda_t` is 1 for t < K - n and 0 beyond. These costs are added up class by class; an owner reads its own off
as the difference of the sum of its class between entering and leaving it.

Rows of several owners at one distance take seats in a random order. Give every such row a place x, uniform in (0, 1):
another row of the group stands in front with probability x, and :math:`f_n` becomes
:math:`1 - q + q z^n (1 - x + x z)^r` for an owner with r rows in the group. A second rule, over x, is exact too.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

#: Number of nodes processed side by side: one vector instruction, or two.
LANES = 8
# Columns of a list entry.
GROUP, OWNER, ROWS, MATCHES = 0, 1, 2, 3
# A walk ends once the chance that any farther row votes is below this, for any owner left out.
NEGLIGIBLE = 1e-18
# Number of groups of rows between two checks of that chance.
LOOK = 8


class OwnerLists(NamedTuple):
    """The rows that can ever vote on each point of a tile, from near to far.

    Attributes
    ----------
    entries : int32 (b, L, 4)
        Tie group, owner, rows and matches: rows of one owner at one distance.
    lengths : int64 (b,)
        Number of entries.
    """

    entries: Ints
    lengths: Longs


class Utility(NamedTuple):
    """Worth of the K nearest rows of a coalition.

    Attributes
    ----------
    k : int
        Number of voters.
    soft : bool
        Divide by the number of votes, or by K.
    empty : float
        Worth of the empty coalition; 0 under the hard utility.
    """

    k: int
    soft: bool
    empty: float


class Rules(NamedTuple):
    """Nodes and weights of the two sums.

    Attributes
    ----------
    q, weights : float64 (n, LANES)
        Over the probability of an owner, ascending; rows are padded with nodes of weight 0.
    places, place_weights : float64 (m,)
        Over places in a tie group.
    starts : int64 (s + 1,)
        Nodes ``starts[i]`` to ``starts[i + 1]`` serve groups of up to 2^(i + 1) rows.
    """

    q: Floats
    weights: Floats
    places: Floats
    place_weights: Floats
    starts: Longs


class Lane(NamedTuple):
    """LANES nodes, with memory to multiply polynomials for all of them at once.

    Attributes
    ----------
    q, weights : float64 (LANES,)
    powers : float64 (M + 1, k, LANES)
        ``powers[c, j]`` is the coefficient of :math:`z^{jn}` in :math:`f_n^c`.
    before, less : float64 (k + 1, k, LANES)
        Products of the classes up to each one, and the same with one owner of that class left out.
    steps : float64 (k, LANES)
        Worth of each number of rows in front: the lambda above.
    present : int64 (k,)
        Classes that have owners.
    costs : float64 (k + 1,)
        Sums of the costs of each class.
    """

    q: Floats
    weights: Floats
    powers: Floats
    before: Floats
    less: Floats
    steps: Floats
    present: Longs
    costs: Floats


# --- lists ------------------------------------------------------------------------------------------------------------


@kernel
def list_owners(
    tile: Floats, codes: Ints, targets: Ints, owners: Longs, starts: Longs, k: int, average: bool, out: OwnerLists
) -> None:
    """List the rows that can vote: once an owner's rows fill all K seats, its farther rows never vote.

    Parameters
    ----------
    tile : float64 (b, N)
        Distances.
    codes, targets : int32 (N,), int32 (b,)
        Class numbers of training rows and validation points.
    owners : int64 (N,)
        Owner number of each training row.
    starts : int64 (M + 1,)
        Start of the entries of each owner, with space for as many as it has rows, at most K.
    k : int
        Number of voters.
    average : bool
        Average over ties, or break them by row number.
    out : OwnerLists
    """
    entries, lengths = out
    n_owners, room = starts.size - 1, starts[-1]
    distances, first = np.empty(room), np.empty(room, np.int64)
    rows, matches, holder = np.empty(room, np.int32), np.empty(room, np.int32), np.empty(room, np.int32)
    seated, used, limit = np.empty(n_owners, np.int64), np.empty(n_owners, np.int64), np.empty(n_owners)
    for p in range(tile.shape[0]):
        seated[:], used[:], limit[:] = 0, 0, np.inf
        for i in range(tile.shape[1]):
            d, o = tile[p, i], owners[i]
            if d > limit[o] or (d == limit[o] and not average and seated[o] >= k):
                continue
            match, start, end = np.int32(codes[i] == targets[p]), starts[o], starts[o] + used[o]
            at = end
            while at > start and distances[at - 1] > d:
                at -= 1
            if average and at > start and distances[at - 1] == d:
                rows[at - 1] += 1
                matches[at - 1] += match
            else:
                if end == starts[o + 1]:  # the last one is dropped: all seats are taken in front of it
                    end -= 1
                    seated[o] -= rows[end]
                for j in range(end, at, -1):
                    distances[j], first[j], rows[j], matches[j] = (
                        distances[j - 1],
                        first[j - 1],
                        rows[j - 1],
                        matches[j - 1],
                    )
                distances[at], first[at], rows[at], matches[at] = d, i, 1, match
                used[o] = end + 1 - start
            seated[o] += 1
            last = start + used[o] - 1
            while seated[o] - rows[last] >= k:
                seated[o] -= rows[last]
                used[o] -= 1
                last -= 1
            if seated[o] >= k:
                limit[o] = distances[last]
        length = 0
        for o in range(n_owners):  # writing never overtakes reading
            for j in range(starts[o], starts[o] + used[o]):
                distances[length], first[length], holder[length] = distances[j], first[j], o
                rows[length], matches[length] = rows[j], matches[j]
                length += 1
        order = np.argsort(distances[:length], kind="mergesort")
        group = -1
        for place in range(length):
            j = order[place]
            tied = place > 0 and distances[j] == distances[order[place - 1]]
            if tied and not average:
                at = place
                while at > 0 and distances[order[at - 1]] == distances[j] and first[order[at - 1]] > first[j]:
                    order[at] = order[at - 1]
                    at -= 1
                order[at] = j
        for place in range(length):
            j = order[place]
            if place == 0 or not average or distances[j] != distances[order[place - 1]]:
                group += 1
            entries[p, place, GROUP], entries[p, place, OWNER] = group, holder[j]
            entries[p, place, ROWS], entries[p, place, MATCHES] = rows[j], matches[j]
        lengths[p] = length


@kernel
def worth(entries: Ints, length: int, utility: Utility, without: int) -> float:
    """Compute the utility of all owners but one; a tie group at the last seats counts with its expected matches."""
    k, soft, empty = utility
    seats, matches, i = k, 0.0, 0
    while i < length and seats > 0:
        group, rows, found = entries[i, GROUP], 0, 0
        while i < length and entries[i, GROUP] == group:
            if entries[i, OWNER] != without:
                rows += entries[i, ROWS]
                found += entries[i, MATCHES]
            i += 1
        seated = min(rows, seats)
        if rows:
            matches += seated * found / rows
        seats -= seated
    if not soft:
        return matches / k
    return matches / (k - seats) if seats < k else empty


@kernel
def add_leave_one_out(lists: OwnerLists, utility: Utility, cells: Longs, sums: Floats) -> None:
    """Add the loss of all owners without each one to ``sums`` of shape (cells, M + 1); only voting owners count."""
    entries, lengths = lists
    done = np.full(sums.shape[1], -1, np.int64)
    for p in range(entries.shape[0]):
        whole = worth(entries[p], lengths[p], utility, -1)
        seats, i = utility.k, 0
        while i < lengths[p] and seats > 0:
            group = entries[p, i, GROUP]
            while i < lengths[p] and entries[p, i, GROUP] == group:
                o = entries[p, i, OWNER]
                seats -= entries[p, i, ROWS]
                i += 1
                if done[o] != p:
                    done[o] = p
                    sums[cells[p], o] += whole - worth(entries[p], lengths[p], utility, o)


# --- polynomials, LANES at a time -------------------------------------------------------------------------------------


@kernel
def multiply(one: Floats, two: Floats, out: Floats) -> None:
    """Multiply two polynomials (k, LANES) into ``out``, which is neither of them."""
    for t in range(out.shape[0]):
        for i in range(LANES):
            out[t, i] = one[0, i] * two[t, i]
        for s in range(1, t + 1):
            for i in range(LANES):
                out[t, i] += one[s, i] * two[t - s, i]


@kernel
def raise_to(base: Floats, exponent: int, out: Floats) -> None:
    """Raise a polynomial to a power, by squaring."""
    square, spare = base.copy(), np.empty_like(base)
    out[:] = 0.0
    out[0] = 1.0
    while exponent:
        if exponent & 1:
            multiply(out, square, spare)
            out[:] = spare
        multiply(square, square, spare)
        square[:] = spare
        exponent >>= 1


@kernel
def make_lane(q: Floats, weights: Floats, n_owners: int, k: int) -> Lane:
    """Return LANES nodes with their table of powers: binomial probabilities, by Pascal's rule."""
    powers = np.zeros((n_owners + 1, k, LANES))
    powers[0, 0] = 1.0
    for c in range(n_owners):
        for i in range(LANES):
            powers[c + 1, 0, i] = powers[c, 0, i] * (1 - q[i])
        for j in range(1, min(k, c + 2)):
            for i in range(LANES):
                powers[c + 1, j, i] = powers[c, j, i] * (1 - q[i]) + powers[c, j - 1, i] * q[i]
    before, less = np.empty((k + 1, k, LANES)), np.empty((k + 1, k, LANES))
    return Lane(q, weights, powers, before, less, np.empty((k, LANES)), np.empty(k, np.int64), np.empty(k + 1))


@kernel
def multiply_classes(counts: Longs, size: int, lane: Lane) -> int:
    """Multiply the polynomials of all classes, powers below ``size``; return the number of classes n in 1..k-1."""
    powers, before, less, present = lane.powers, lane.before, lane.less, lane.present
    k, m = counts.size - 1, 0
    for i in range(LANES):
        before[0, 0, i] = powers[counts[k], 0, i]
    for j in range(1, k):
        if counts[j] == 0:
            continue
        few, past, here, whole = powers[counts[j] - 1], before[m], less[m], before[m + 1]
        if m == 0:  # a constant so far
            here[:size] = 0.0
            for s in range((size - 1) // j + 1):
                for i in range(LANES):
                    here[s * j, i] = few[s, i] * past[0, i]
        else:
            for t in range(size):
                for i in range(LANES):
                    here[t, i] = few[0, i] * past[t, i]
                for s in range(1, t // j + 1):
                    for i in range(LANES):
                        here[t, i] += few[s, i] * past[t - s * j, i]
        for t in range(min(j, size)):
            for i in range(LANES):
                whole[t, i] = here[t, i] * (1 - lane.q[i])
        for t in range(j, size):
            for i in range(LANES):
                whole[t, i] = here[t, i] * (1 - lane.q[i]) + here[t - j, i] * lane.q[i]
        present[m] = j
        m += 1
    if m == 0:
        before[0, 1:size] = 0.0
    return m


@kernel
def add_costs(counts: Longs, size: int, lane: Lane) -> float:
    """Add the costs of rows to all classes; return the worth of the rows to their owner, who is not included.

    The worth of the rows is in ``lane.steps``, which is overwritten. Steps of ``size`` and above are 0.
    """
    steps, less, costs = lane.steps, lane.less, lane.costs
    k = counts.size - 1
    m = multiply_classes(counts, size, lane)
    whole = lane.before[m]
    part = np.zeros(LANES)
    for t in range(size):
        for i in range(LANES):
            part[i] += steps[t, i] * whole[t, i]
    worth = 0.0
    for i in range(LANES):
        worth += lane.weights[i] * part[i]
    for c in range(m - 1, -1, -1):  # steps become those of the product up to class c
        j = lane.present[c]
        here = less[c]
        part[:] = 0.0
        for t in range(max(size - j, 0)):
            for i in range(LANES):
                part[i] += (steps[t, i] - steps[t + j, i]) * here[t, i]
        for t in range(max(size - j, 0), size):
            for i in range(LANES):
                part[i] += steps[t, i] * here[t, i]
        cost = 0.0
        for i in range(LANES):
            cost += lane.weights[i] * lane.q[i] * part[i]
        costs[j] += cost
        if c == 0 and counts[k] == 0:
            break
        every = lane.powers[counts[j]]
        for t in range(size if c else 1):
            for i in range(LANES):
                steps[t, i] *= every[0, i]
            for s in range(1, (size - 1 - t) // j + 1):
                for i in range(LANES):
                    steps[t, i] += every[s, i] * steps[t + s * j, i]
    if counts[k] > 0:
        cost = 0.0
        for i in range(LANES):
            cost += lane.weights[i] * lane.q[i] * steps[0, i] * lane.powers[counts[k] - 1, 0, i]
        costs[k] += cost
    return worth


@kernel
def is_over(chances: Floats, lane: Lane) -> bool:
    """Whether no farther row votes; leaving out two owners raises the chance by at most 1 / (1 - q)^2."""
    for i in range(LANES):
        chance = 0.0
        for t in range(chances.shape[0]):
            chance += chances[t, i]
        if chance > NEGLIGIBLE * (1 - lane.q[i]) ** 2:
            return False
    return True


# --- the walk ---------------------------------------------------------------------------------------------------------


@kernel
def binomial(n: int, x: float, out: Floats) -> None:
    """Probabilities of 0, 1, .. of n, up to the size of ``out``."""
    log_start = n * math.log1p(-x)
    if log_start > -600:
        out[0] = math.exp(log_start)
        for i in range(1, out.size):
            out[i] = out[i - 1] * (max(n - i + 1, 0) / i) * (x / (1 - x))
        return
    for i in range(out.size):
        logs = math.lgamma(n + 1) - math.lgamma(i + 1) - math.lgamma(n - i + 1) if i <= n else -np.inf
        out[i] = math.exp(logs + i * math.log(x) + (n - i) * math.log1p(-x)) if i <= n else 0.0


@kernel
def share_ties(members: Ints, n_of: Longs, counts: Longs, rules: Rules, lane: Lane, values: Floats) -> None:
    """Add the contributions of the owners of a tie group to ``values``, and store its steps in ``lane``.

    Parameters
    ----------
    members : int32 (m, 4)
        Entries of the group.
    n_of : int64 (M,)
        Rows of each owner in front of the group.
    counts : int64 (k + 1,)
        Other owners of each class.
    rules, lane, values
        As in :func:`walk`.

    Notes
    -----
    Members of equal n and r are one kind. With H the matches of all members, the product over all kinds and the worth
    of its members' rows are carried along as a pair (P, P'), like a function and its derivative.
    """
    k, n_members = counts.size - 1, members.shape[0]
    widest, n_rows = 0, 0
    for e in range(n_members):
        widest = max(widest, members[e, ROWS])
        n_rows += members[e, ROWS]
    keys = np.empty(n_members, np.int64)
    for e in range(n_members):
        keys[e] = n_of[members[e, OWNER]] * np.int64(widest + 1) + members[e, ROWS]
    order = np.argsort(keys, kind="mergesort")
    kind_of, firsts = np.empty(n_members, np.int64), np.empty(n_members, np.int64)
    size, matches = np.zeros(n_members, np.int64), np.zeros(n_members)
    kinds = 0
    for place in range(n_members):
        e = order[place]
        if place == 0 or keys[e] != keys[order[place - 1]]:
            firsts[kinds] = e
            kinds += 1
        kind_of[e] = kinds - 1
        size[kinds - 1] += 1
        matches[kinds - 1] += members[e, MATCHES]
    others = lane.before[multiply_classes(counts, k, lane)].copy()
    # Per kind: worth of one match to its owner, cost of all matches to an owner, and the part of it from its own ones.
    own, cost, own_cost = np.zeros(kinds), np.zeros(kinds), np.zeros(kinds)
    shape = (kinds, k, LANES)
    mine, one_less, two_less, rows_in = np.empty(shape), np.empty(shape), np.empty(shape), np.empty(shape)
    up, up_worth = np.empty((kinds + 1, k, LANES)), np.empty((kinds + 1, k, LANES))
    down, down_worth = np.empty((k, LANES)), np.empty((k, LANES))
    a, b, c, d = np.empty((k, LANES)), np.empty((k, LANES)), np.empty((k, LANES)), np.empty((k, LANES))
    fewer = np.empty(k)
    lane.steps[:] = 0.0
    rule = 0
    while n_rows > 2 << rule:
        rule += 1
    for node in range(rules.starts[rule], rules.starts[rule + 1]):
        x, weight = rules.places[node], rules.place_weights[node]
        up[0], up_worth[0] = 0.0, 0.0
        up[0, 0] = 1.0
        for kind in range(kinds):
            n, r = n_of[members[firsts[kind], OWNER]], members[firsts[kind], ROWS]
            binomial(r - 1, x, fewer)
            # rows_in: z^n (1-x+xz)^(r-1); mine: 1-q + q z^n (1-x+xz)^r
            for t in range(k):
                for i in range(LANES):
                    rows_in[kind, t, i] = fewer[t - n] if t >= n else 0.0
            for t in range(k):
                all_in = 0.0
                if t >= n:
                    all_in = (1 - x) * fewer[t - n] + (x * fewer[t - n - 1] if t > n else 0.0)
                for i in range(LANES):
                    mine[kind, t, i] = lane.q[i] * all_in + (1 - lane.q[i] if t == 0 else 0.0)
            raise_to(mine[kind], max(size[kind] - 2, 0), two_less[kind])
            if size[kind] > 1:
                multiply(two_less[kind], mine[kind], one_less[kind])
            else:
                one_less[kind] = two_less[kind]
            multiply(one_less[kind], mine[kind], a)
            multiply(one_less[kind], rows_in[kind], b)
            multiply(up[kind], a, up[kind + 1])
            multiply(up_worth[kind], a, up_worth[kind + 1])
            multiply(up[kind], b, c)
            for t in range(k):
                for i in range(LANES):
                    up_worth[kind + 1, t, i] += matches[kind] * c[t, i]
        multiply(up[kinds], others, a)
        if is_over(a, lane):  # this holds at all farther places too
            break
        for i in range(LANES):
            total = 0.0
            for t in range(k):
                total += up_worth[kinds, t, i]
                lane.steps[k - 1 - t, i] += weight * total
        down[:], down_worth[:] = 0.0, 0.0
        for i in range(LANES):
            down[0, i] = 1.0
        for kind in range(kinds - 1, -1, -1):
            multiply(up[kind], down, a)
            multiply(a, others, b)
            multiply(b, one_less[kind], a)
            multiply(a, rows_in[kind], c)
            own[kind] += weight * weighted_total(c, lane.weights)
            if size[kind] > 1:
                multiply(b, two_less[kind], a)
                multiply(a, rows_in[kind], c)
                own_cost[kind] += weight * lost(c, mine[kind], lane)
            multiply(up_worth[kind], down, a)
            multiply(up[kind], down_worth, b)
            a += b
            multiply(a, others, b)
            multiply(b, one_less[kind], a)
            cost[kind] += weight * lost(a, mine[kind], lane)
            multiply(one_less[kind], mine[kind], a)
            multiply(one_less[kind], rows_in[kind], b)
            multiply(down_worth, a, c)
            multiply(down, b, d)
            for t in range(k):
                for i in range(LANES):
                    down_worth[t, i] = c[t, i] + matches[kind] * d[t, i]
            multiply(down, a, c)
            down[:] = c
    for e in range(n_members):
        kind, found = kind_of[e], members[e, MATCHES]
        rest = cost[kind] + (matches[kind] - found) * own_cost[kind]
        values[members[e, OWNER]] += found * own[kind] - rest


@kernel
def weighted_total(polynomial: Floats, weights: Floats) -> float:
    """Sum up the coefficients, and the nodes with their weights."""
    total = 0.0
    for i in range(LANES):
        part = 0.0
        for t in range(polynomial.shape[0]):
            part += polynomial[t, i]
        total += weights[i] * part
    return total


@kernel
def lost(worth_without: Floats, mine: Floats, lane: Lane) -> float:
    """Sum up the loss of an owner with the polynomial ``mine`` to rows whose worth without it is given."""
    total = 0.0
    k = mine.shape[0]
    for i in range(LANES):
        part, kept = 0.0, 0.0
        for t in range(k - 1, -1, -1):
            # q (1 - z^n (1-x+xz)^r) = 1 - mine, and only powers below k keep a seat.
            kept += mine[k - 1 - t, i]
            part += worth_without[t, i] * (1 - kept)
        total += lane.weights[i] * part
    return total


@kernel
def walk(entries: Ints, length: int, k: int, rules: Rules, lane: Lane, n_of: Longs, values: Floats) -> None:
    """Add K times each owner's contribution for one point, by LANES nodes, to ``values`` of shape (M,).

    Parameters
    ----------
    entries : int32 (L, 4)
        From near to far.
    length : int
        Number of entries.
    k : int
        Number of voters.
    rules : Rules
    lane : Lane
    n_of : int64 (M,)
        Scratch for the number of rows met so far of each owner.
    values : float64 (M,)
    """
    counts, costs = np.zeros(k + 1, np.int64), lane.costs
    n_of[:], costs[:] = 0, 0.0
    i, looked = 0, 0
    while i < length:
        end, matches = i, 0
        while end < length and entries[end, GROUP] == entries[i, GROUP]:
            o = entries[end, OWNER]
            matches += entries[end, MATCHES]
            if n_of[o]:
                counts[n_of[o]] -= 1
                values[o] -= costs[n_of[o]]
            end += 1
        if matches and end == i + 1:
            o, r = entries[i, OWNER], entries[i, ROWS]
            size = k - n_of[o]
            for t in range(size):
                step = matches / r * min(r, size - t)
                for node in range(LANES):
                    lane.steps[t, node] = step
            values[o] += add_costs(counts, size, lane)
        elif matches:
            share_ties(entries[i:end], n_of, counts, rules, lane, values)
            add_costs(counts, k, lane)
        for e in range(i, end):
            o = entries[e, OWNER]
            n_of[o] = min(n_of[o] + entries[e, ROWS], k)
            counts[n_of[o]] += 1
            values[o] += costs[n_of[o]]
        i, looked = end, looked + 1
        if looked % LOOK == 0 and is_over(lane.before[multiply_classes(counts, k, lane)], lane):
            break
    for o in range(n_of.size):
        if n_of[o]:
            values[o] -= costs[n_of[o]]


@kernel
def add_semivalues(lists: OwnerLists, utility: Utility, rules: Rules, cells: Longs, sums: Floats) -> None:
    """Add the hard utility's semivalues of all owners for every point to ``sums`` of shape (cells, M + 1)."""
    entries, lengths = lists
    n_owners, k = sums.shape[1] - 1, utility.k
    values, n_of = np.zeros((entries.shape[0], n_owners)), np.empty(n_owners, np.int64)
    seats = min(k, entries.shape[1])
    for node in range(rules.q.shape[0]):
        lane = make_lane(rules.q[node], rules.weights[node], n_owners, seats)
        for p in range(entries.shape[0]):
            walk(entries[p], lengths[p], seats, rules, lane, n_of, values[p])
    for p in range(entries.shape[0]):
        for o in range(n_owners):
            sums[cells[p], o] += values[p, o] / k


@kernel
def add_worth(lists: OwnerLists, utility: Utility, cells: Longs, sums: Floats) -> None:
    """Add the utility of all rows for every point to the last column of ``sums``."""
    entries, lengths = lists
    for p in range(entries.shape[0]):
        sums[cells[p], -1] += worth(entries[p], lengths[p], utility, -1)


@kernel
def small_coalitions(counts: Longs, rules: Rules, worth_of: Floats, costs: Floats) -> None:
    """Compute the excess of the soft utility over the hard one if fewer than K rows vote.

    Parameters
    ----------
    counts : int64 (k + 1,)
        Owners of n rows in all; the last entry those of K or more.
    rules : Rules
    worth_of : float64 (k + 1,)
        Receives the worth of one match to its owner, by its number of rows.
    costs : float64 (k + 1, k + 1)
        Receives the cost of one match of an owner of n rows to an owner of j rows: ``costs[n, j]``.
    """
    k = counts.size - 1
    left = counts.copy()
    for node in range(rules.q.shape[0]):
        lane = make_lane(rules.q[node], rules.weights[node], max(int(counts.sum()), 1), k)
        for n in range(1, k):
            if counts[n] == 0:
                continue
            left[n] -= 1
            lane.costs[:] = 0.0
            for t in range(k - n):
                lane.steps[t] = 1 / (t + n) - 1 / k
            worth_of[n] += add_costs(left, k - n, lane)
            costs[n] += lane.costs
            left[n] += 1
