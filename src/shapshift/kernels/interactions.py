r"""Shapley-Taylor interactions of pairs of rows of a KNN classifier: O(N) per validation point, O(1) more per pair.

With the hard utility, adding two rows i and j, j the farther, to a subset S is worth more or less than adding each
alone only if the nearer one would have displaced a row that j already displaces. The result then depends only on the
rows from j outwards, not on i. So the interaction of a pair is a number of its farther row. Under the Shapley-Taylor
weights S contains each other row with one probability q of density 2(1 - q), and for j on rank j
Shapley-Taylor weights S contains each other row with one probability q of density 2(1 - q), and for j on rank j

    K I_ij = sum_{l>j} a_l (h_K(l) - h_{K-1}(l)) - a_j g(j)

with h_t(l) = 2 t (l - t - 1) / (l (l - 1) (l - 2)) the chance that l is the t-th nearest row of S, and
g(j) = 2 (j - K) / (j (j - 1)) the chance that K - 1 rows of S are nearer than j. The soft utility adds a term for
subsets of fewer than K rows, in which everyone votes: it depends on the labels of the pair and on how many rows match,
not on any order, and is left to the caller.

Rows at equal distance form a tie group; values are expectations over its random order, for pairs within the group over
the place of its farther member.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift._numba import kernel

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class PairTables(NamedTuple):
    """Interactions of a tile, by the farther row of a pair.

    Attributes
    ----------
    targets : int32 (b,)
        Class numbers of the points.
    places : int32 (b, N)
        Number of each row's tie group, from near to far.
    far : float64 (b, N)
        Interaction of each row with any row of a nearer group.
    same : float64 (b, N, 3)
        By group, interaction of two of its members, by how many of the two match.
    crowd : int32 (b, N)
        By group, number of members.
    """

    targets: npt.NDArray[np.int32]
    places: npt.NDArray[np.int32]
    far: Floats
    same: Floats
    crowd: npt.NDArray[np.int32]


@kernel
def fill_tables(
    tile: Floats, order: Indices, codes: npt.NDArray[np.int32], average: bool, k: int, tables: PairTables
) -> None:
    """Compute the contribution of each row to pairs in which it is the farther one.

    Parameters
    ----------
    tile, order : (b, N)
        Distances, and training rows from near to far.
    codes : int32 (N,)
    average : bool
        Average over ties, or keep them in the given order.
    k : int
    tables : PairTables
        Filled in except ``targets``.
    """
    n = codes.size
    targets, places, far, same, crowd = tables.targets, tables.places, tables.far, tables.same, tables.crowd
    for p in range(tile.shape[0]):
        groups = 0
        for r in range(n):
            if r > 0 and (not average or tile[p, order[p, r]] != tile[p, order[p, r - 1]]):
                groups += 1
            places[p, order[p, r]] = groups
        beyond = 0.0  # sum over the groups farther away
        hi = n
        while hi > 0:
            lo = hi - 1
            group = places[p, order[p, lo]]
            while lo > 0 and places[p, order[p, lo - 1]] == group:
                lo -= 1
            size = hi - lo
            crowd[p, group] = size
            matches = 0
            for r in range(lo, hi):
                matches += codes[order[p, r]] == targets[p]
            step_sum, later, later_pairs, gap, gap_pairs = 0.0, 0.0, 0.0, 0.0, 0.0
            for r in range(hi - 1, lo - 1, -1):
                # Chance that the farther row of a random pair of the group is here, up to a factor.
                weight = r - lo
                later += step_sum
                later_pairs += weight * step_sum
                here = _gap(r + 1, k)
                gap += here
                gap_pairs += weight * here
                step_sum += _step(r + 1, k)
            for r in range(lo, hi):
                i = order[p, r]
                match = codes[i] == targets[p]
                others = (matches - match) / (size - 1) if size > 1 else 0.0
                far[p, i] = (others * later / size + beyond - match * gap / size) / k
            if size > 1:
                pairs = size * (size - 1) / 2
                for both in range(3):
                    others = (matches - both) / (size - 2) if size > 2 else 0.0
                    inner = others * later_pairs - both / 2 * gap_pairs
                    same[p, group, both] = (inner / pairs + beyond) / k
            beyond += matches / size * step_sum
            hi = lo


@kernel
def _step(rank, k):
    """h_K - h_{K-1} at a rank."""
    if rank < 3:
        return 0.0
    change = k * max(rank - k - 1, 0) - (k - 1) * max(rank - k, 0)
    return 2.0 * change / (rank * (rank - 1.0) * (rank - 2.0))


@kernel
def _gap(rank, k):
    """Chance that K - 1 drawn rows are nearer than a rank."""
    return 2.0 * (rank - k) / (rank * (rank - 1.0)) if rank > k else 0.0


@kernel
def add_pairs(
    tables: PairTables, codes: npt.NDArray[np.int32], first: int, sums: Floats, chunk: int, start: int
) -> None:
    """Add the interactions over the points of a tile to rows start..start+chunk-1 of ``sums`` (rows, N).

    Row 0 of ``sums`` belongs to training row ``first``.
    """
    n = codes.size
    targets, places, far, same, crowd = tables.targets, tables.places, tables.far, tables.same, tables.crowd
    for row in range(start, min(start + chunk, sums.shape[0])):
        i = first + row
        out = sums[row]
        for p in range(places.shape[0]):
            mine, own, theirs, place = far[p, i], places[p, i], far[p], places[p]
            for j in range(n):
                out[j] += theirs[j] if place[j] > own else mine
            if crowd[p, own] == 1:
                continue
            # Pairs within a tie group: correct the terms added for them.
            match = codes[i] == targets[p]
            for j in range(n):
                if place[j] == own and j != i:
                    both = np.int64(match) + np.int64(codes[j] == targets[p])
                    out[j] += same[p, own, both] - mine
        out[i] = 0.0
