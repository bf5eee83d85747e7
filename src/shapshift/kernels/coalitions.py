"""Owners as players: what coalitions of owners are worth to a nearest-neighbour classifier.

For one validation point an owner is a short list of tie groups, from near to far: how many of its rows stand at that
distance and how many of those match. Once an owner's own rows fill all K seats, its farther rows can never vote, so no
list is longer than K. The list of a coalition is the merge of its owners' lists, cut in the same way.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int32]
Longs = npt.NDArray[np.int64]

# Columns of a list entry.
GROUP, ROWS, MATCHES = 0, 1, 2


class OwnerLists(NamedTuple):
    """The list of every owner for every point of a tile.

    Attributes
    ----------
    entries : int32 (b, M, k', 3), k' >= min(k, N)
        Tie group, rows and matches of each entry.
    lengths : int32 (b, M)
        Number of entries.
    """

    entries: Ints
    lengths: Ints

    def part(self, points: slice) -> "OwnerLists":
        """Return the lists of some points."""
        return OwnerLists(self.entries[points], self.lengths[points])


class Utility(NamedTuple):
    """What the K nearest rows of a coalition are worth.

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


@kernel
def list_owners(
    tile: Floats, codes: Ints, targets: Ints, owners: Longs, k: int, average: bool, out: OwnerLists
) -> None:
    """Make the list of every owner for every point of a tile.

    Parameters
    ----------
    tile : float64 (b, N)
        Distances.
    codes, targets : int32 (N,), int32 (b,)
        Class numbers of training rows and validation points.
    owners : int64 (N,)
        Owner number of each training row.
    k : int
        Number of voters.
    average : bool
        Average over ties, or break them by row number.
    out : OwnerLists
    """
    lists, lengths = out
    n_owners = lengths.shape[1]
    seated = np.empty(n_owners, np.int64)
    for p in range(tile.shape[0]):
        row = tile[p]
        order = np.argsort(row, kind="mergesort")
        seated[:] = 0
        lengths[p] = 0
        waiting = n_owners
        group = 0
        for place in range(order.size):
            i = order[place]
            if place > 0 and (not average or row[i] != row[order[place - 1]]):
                group += 1
                if waiting == 0:
                    break
            o = owners[i]
            last = lengths[p, o] - 1
            if last < 0 or lists[p, o, last, GROUP] != group:
                if seated[o] >= k:
                    continue
                last += 1
                lengths[p, o] = last + 1
                lists[p, o, last, GROUP] = group
                lists[p, o, last, ROWS] = 0
                lists[p, o, last, MATCHES] = 0
            lists[p, o, last, ROWS] += 1
            lists[p, o, last, MATCHES] += np.int32(codes[i] == targets[p])
            seated[o] += 1
            if seated[o] == k:
                waiting -= 1


@kernel
def merge(one: Ints, n_one: int, two: Ints, n_two: int, k: int, out: Ints) -> int:
    """Merge two lists into ``out``, up to the group that fills the last seat; returns its length."""
    i = j = length = seated = 0
    while seated < k and (i < n_one or j < n_two):
        if j >= n_two or (i < n_one and one[i, GROUP] < two[j, GROUP]):
            group, rows, matches = one[i, GROUP], one[i, ROWS], one[i, MATCHES]
            i += 1
        elif i >= n_one or two[j, GROUP] < one[i, GROUP]:
            group, rows, matches = two[j, GROUP], two[j, ROWS], two[j, MATCHES]
            j += 1
        else:
            group = one[i, GROUP]
            rows = one[i, ROWS] + two[j, ROWS]
            matches = one[i, MATCHES] + two[j, MATCHES]
            i += 1
            j += 1
        out[length, GROUP] = group
        out[length, ROWS] = rows
        out[length, MATCHES] = matches
        length += 1
        seated += rows
    return length


@kernel
def worth(entries: Ints, length: int, utility: Utility) -> float:
    """Compute the utility of a coalition; the tie group at the last seats counts with its expected matches."""
    k, soft, empty = utility
    seats = k
    matches = 0.0
    for e in range(length):
        rows = entries[e, ROWS]
        if rows <= seats:
            matches += entries[e, MATCHES]
            seats -= rows
        else:
            matches += seats * entries[e, MATCHES] / rows
            seats = 0
            break
    if not soft:
        return matches / k
    return matches / (k - seats) if seats < k else empty


@kernel
def add_coalitions(owners: OwnerLists, utility: Utility, cells: Longs, sums: Floats) -> None:
    """Add the worth of every coalition, for every point, to ``sums[cell of the point]`` of shape (2^M,).

    Coalitions are numbers whose bit o says whether owner o is in. Counting upwards, the coalition without its lowest
    owner is always the last one met with that lowest owner, so one list per owner is all that has to be kept.
    """
    lists, lengths = owners
    n_owners = lengths.shape[1]
    kept = np.empty((n_owners + 1, lists.shape[2], 3), np.int32)
    kept_lengths = np.zeros(n_owners + 1, np.int64)  # the last one is the empty coalition
    for p in range(lists.shape[0]):
        out = sums[cells[p]]
        out[0] += utility.empty
        for coalition in range(1, 1 << n_owners):
            lowest = 0
            while not coalition >> lowest & 1:
                lowest += 1
            rest = coalition >> (lowest + 1)
            parent = n_owners
            if rest:
                parent = lowest + 1
                while not coalition >> parent & 1:
                    parent += 1
            length = int(kept_lengths[parent])
            length = merge(kept[parent], length, lists[p, lowest], lengths[p, lowest], utility.k, kept[lowest])
            kept_lengths[lowest] = length
            out[coalition] += worth(kept[lowest], length, utility)


@kernel
def add_marginals(owners: OwnerLists, utility: Utility, cells: Longs, orders: Longs, sums: Floats) -> None:
    """Add what each owner brings when owners join in the given orders to ``sums`` of shape (orders, cells, M)."""
    lists, lengths = owners
    here = np.empty((lists.shape[2], 3), np.int32)
    there = np.empty((lists.shape[2], 3), np.int32)
    for p in range(lists.shape[0]):
        for d in range(orders.shape[0]):
            before = utility.empty
            length = 0
            for o in orders[d]:
                length = merge(here, length, lists[p, o], lengths[p, o], utility.k, there)
                here, there = there, here
                after = worth(here, length, utility)
                sums[d, cells[p], o] += after - before
                before = after
