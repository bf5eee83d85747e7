"""Slow, obvious answers that the package is checked against.

Nothing here knows a formula for the values: a utility is evaluated on every subset of the training rows and the
semivalue is the weighted sum of marginal contributions, as its definition says. NumPy and the standard library
only; nothing is imported from the package.

Rows are numbered 0..N-1, a subset is an integer whose bit i says whether row i is in it, and ``matches[i]`` says
whether row i carries the validation point's label. A semivalue is a name or a tuple, ``("beta", alpha, beta)``
or ``("banzhaf", w)``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Hashable, Iterator, Sequence
from fractions import Fraction

import numpy as np

Semivalue = str | tuple[str, float] | tuple[str, float, float]
Groups = list[list[int]]

BOUNDARY_NEIGHBORS = 5


# --- semivalues of an arbitrary utility -----------------------------------------------------------------------------


def size_weights(n_rows: int, n_neighbors: int, semivalue: Semivalue) -> list[float]:
    """The weight p(s) of one subset of size s = 0..N-1 of the other rows."""
    others = n_rows - 1
    if isinstance(semivalue, tuple) and semivalue[0] == "banzhaf":
        return [semivalue[1] ** s * (1 - semivalue[1]) ** (others - s) for s in range(n_rows)]
    if isinstance(semivalue, tuple):
        _, alpha, beta = semivalue
        return [_beta(s + beta, others - s + alpha) / _beta(alpha, beta) for s in range(n_rows)]
    if semivalue == "shapley":
        return [1 / (n_rows * math.comb(others, s)) for s in range(n_rows)]
    if semivalue == "banzhaf":
        return [0.5**others] * n_rows
    if semivalue == "loo":
        return [float(s == others) for s in range(n_rows)]
    if semivalue == "calibrated":
        smallest = max(0, n_rows - 2 * n_neighbors)
        return [(s >= smallest) / ((n_rows - smallest) * math.comb(others, s)) for s in range(n_rows)]
    raise ValueError(f"unknown semivalue {semivalue!r}")


def _beta(a: float, b: float) -> float:
    return math.gamma(a) * math.gamma(b) / math.gamma(a + b)


def subset_weights(n_rows: int, weights: Sequence[float]) -> np.ndarray:
    """The matrix W with value = W @ utility: row i adds what it joins and subtracts what it could have joined."""
    matrix = np.empty((n_rows, 2**n_rows))
    for row in range(n_rows):
        for subset in range(2**n_rows):
            size = subset.bit_count()
            joined = subset >> row & 1
            matrix[row, subset] = weights[size - 1] if joined else -weights[size]
    return matrix


def semivalues(utility: Sequence[float], weights: Sequence[float]) -> np.ndarray:
    """Values of all rows for a utility given as one number per subset."""
    n_rows = len(weights)
    return subset_weights(n_rows, weights) @ np.asarray(utility, dtype=float)


# --- the nearest-neighbour utility ----------------------------------------------------------------------------------


def tie_groups(distances: Sequence[float], ties: str) -> Groups:
    """Rows from near to far; rows that nothing but chance orders share a group."""
    order = sorted(range(len(distances)), key=lambda row: distances[row])  # stable: equal distances keep row order
    if ties == "index":
        return [[row] for row in order]
    return [list(group) for _, group in itertools.groupby(order, key=lambda row: distances[row])]


def orders(groups: Groups) -> Iterator[list[int]]:
    """Every full order of the rows that agrees with the tie groups."""
    for parts in itertools.product(*(itertools.permutations(group) for group in groups)):
        yield [row for part in parts for row in part]


def utility_of_order(
    subset: int, order: Sequence[int], matches: Sequence[bool], n_neighbors: int, utility: str, n_classes: int
) -> float:
    """What the subset is worth when its rows come in the given order: its first K rows vote."""
    voters = [row for row in order if subset >> row & 1][:n_neighbors]
    n_matches = sum(bool(matches[row]) for row in voters)
    if utility == "hard":
        return n_matches / n_neighbors
    return n_matches / len(voters) if voters else 1 / n_classes


def utility_averaged_over_orders(
    subset: int, groups: Groups, matches: Sequence[bool], n_neighbors: int, utility: str, n_classes: int
) -> float:
    """Ties broken in every possible way, the definition taken literally: n! orders for n tied rows."""
    found = [utility_of_order(subset, order, matches, n_neighbors, utility, n_classes) for order in orders(groups)]
    return math.fsum(found) / len(found)


def expected_utility(
    subset: int, groups: Groups, matches: Sequence[bool], n_neighbors: int, utility: str, n_classes: int
) -> float:
    """The same number without the orders, for groups too big to permute.

    The number of voters never depends on how ties are broken, and only the group that straddles the K-th place is
    voted by some of its members: ``seats`` of them, drawn without replacement. The number of matches drawn is
    hypergeometric and its mean is seats times the fraction of matching members.
    """
    n_voters = min(n_neighbors, subset.bit_count())
    if utility == "soft" and n_voters == 0:
        return 1 / n_classes
    expected_matches = 0.0
    seats = n_voters
    for group in groups:
        members = [row for row in group if subset >> row & 1]
        if not members or not seats:
            continue
        seated = min(seats, len(members))
        expected_matches += seated * sum(bool(matches[row]) for row in members) / len(members)
        seats -= seated
    return expected_matches / (n_neighbors if utility == "hard" else n_voters)


def knn_utilities(
    groups: Groups, matches: Sequence[bool], n_neighbors: int, utility: str, n_classes: int
) -> np.ndarray:
    """The expected utility of every subset."""
    return np.array(
        [
            expected_utility(subset, groups, matches, n_neighbors, utility, n_classes)
            for subset in range(2 ** len(matches))
        ]
    )


def knn_values(
    distances: Sequence[float],
    matches: Sequence[bool],
    *,
    n_neighbors: int,
    utility: str,
    semivalue: Semivalue,
    n_classes: int,
    ties: str,
) -> np.ndarray:
    """Values of all training rows for one validation point."""
    utilities = knn_utilities(tie_groups(distances, ties), matches, n_neighbors, utility, n_classes)
    return semivalues(utilities, size_weights(len(matches), n_neighbors, semivalue))


# --- relatives: utilities of the voters' targets, labels and weights -------------------------------------------------


def voter_sets(subset: int, groups: Groups, n_neighbors: int) -> list[list[int]]:
    """Every set of voters that breaking ties at random can lead to; all are equally likely."""
    seats = min(n_neighbors, subset.bit_count())
    certain: list[int] = []
    for group in groups:
        members = [row for row in group if subset >> row & 1]
        if len(members) > seats:
            return [certain + list(drawn) for drawn in itertools.combinations(members, seats)]
        certain += members
        seats -= len(members)
    return [certain]


def shapley(utility: Sequence[float]) -> np.ndarray:
    """Shapley values of a utility given as one number per subset."""
    n_rows = len(utility).bit_length() - 1
    return semivalues(utility, size_weights(n_rows, 1, "shapley"))


def regression_utilities(
    groups: Groups,
    targets: Sequence[float],
    target: float,
    n_neighbors: int,
    utility: str,
    fill: float,
    empty: float | None = None,
) -> np.ndarray:
    """Minus the expected squared error; ``fill`` stands in for missing votes, ``empty`` for the empty set's worth."""
    found = []
    for subset in range(2 ** len(targets)):
        errors = []
        for voters in voter_sets(subset, groups, n_neighbors):
            votes = [targets[row] for row in voters]
            if utility == "hard" or not votes:
                votes += [fill] * (n_neighbors - len(votes))
            errors.append((math.fsum(votes) / len(votes) - target) ** 2)
        found.append(-math.fsum(errors) / len(errors))
    if empty is not None:
        found[0] = empty
    return np.array(found)


def threshold_utilities(inside: Sequence[bool], matches: Sequence[bool], n_classes: int) -> np.ndarray:
    """Share of matching rows among those of the subset that lie within the radius; 1/C when there are none."""
    found = []
    for subset in range(2 ** len(matches)):
        voters = [row for row in range(len(matches)) if subset >> row & 1 and inside[row]]
        found.append(sum(bool(matches[row]) for row in voters) / len(voters) if voters else 1 / n_classes)
    return np.array(found)


def weighted_utilities(
    groups: Groups, labels: Sequence[Hashable], weights: Sequence[int], label: Hashable, n_neighbors: int, draw: float
) -> np.ndarray:
    """How often the label wins, on average over its contests with each other label; a drawn vote is worth ``draw``."""
    rivals: list[Hashable] = sorted({other for other in labels if other != label}, key=str) or [None]
    found = []
    for subset in range(2 ** len(labels)):
        outcomes = []
        for voters in voter_sets(subset, groups, n_neighbors):
            votes = {name: sum(weights[row] for row in voters if labels[row] == name) for name in [label, *rivals]}
            outcomes += [
                1.0 if votes[label] > votes[rival] else draw if votes[label] == votes[rival] else 0.0
                for rival in rivals
            ]
        found.append(math.fsum(outcomes) / len(outcomes))
    return np.array(found)


def taylor_interactions(utility: Sequence[float]) -> np.ndarray:
    """Shapley-Taylor index of order 2: pairs off the diagonal, on it what each row is worth alone."""
    n_rows = len(utility).bit_length() - 1
    matrix = np.zeros((n_rows, n_rows))
    for i in range(n_rows):
        matrix[i, i] = utility[1 << i] - utility[0]
        for j in range(i):
            pair = 1 << i | 1 << j
            total = 0.0
            for subset in range(2**n_rows):
                if not subset & pair:
                    change = (
                        utility[subset | pair] - utility[subset | 1 << i] - utility[subset | 1 << j] + utility[subset]
                    )
                    total += change / math.comb(n_rows - 1, subset.bit_count())
            matrix[i, j] = matrix[j, i] = 2 / n_rows * total
    return matrix


# --- neighbour-label entropy ----------------------------------------------------------------------------------------


def neighbor_entropy(
    distances: Sequence[float], labels: Sequence[Hashable], ties: str, neighbors: int = BOUNDARY_NEIGHBORS
) -> float:
    """Entropy (nats) of the labels of the nearest rows; a straddling tie group counts with its expected share."""
    seats = n_seats = min(neighbors, len(labels))
    share: dict[Hashable, float] = {}
    for group in tie_groups(distances, ties):
        seated = min(seats, len(group))
        for row in group:
            share[labels[row]] = share.get(labels[row], 0.0) + seated / len(group) / n_seats
        seats -= seated
    return -math.fsum(p * math.log(p) for p in share.values() if p > 0)


# --- distances ------------------------------------------------------------------------------------------------------


def distance(x: Sequence[float], z: Sequence[float], metric: str) -> float:
    """Direct differences in float64, added in column order.

    "euclidean" leaves out the square root: it keeps the order but could round two different sums to one number,
    and a tie is an equal sum.
    """
    pairs = [(float(a), float(b)) for a, b in zip(x, z, strict=True)]
    if metric in ("euclidean", "sqeuclidean"):
        return _sum_in_order((a - b) * (a - b) for a, b in pairs)
    if metric == "manhattan":
        return _sum_in_order(abs(a - b) for a, b in pairs)
    if metric == "cosine":
        return _cosine_distance([(Fraction(a), Fraction(b)) for a, b in pairs])
    raise ValueError(f"unknown metric {metric!r}")


def _cosine_distance(pairs: Sequence[tuple[Fraction, Fraction]]) -> float:
    """In fractions, the root to 400 bits and one rounding at the end: equal angles have equal distances."""
    product = sum(a * b for a, b in pairs)
    norms = sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs)
    if norms == 0:
        return 1.0
    squared = Fraction(product * product / norms)
    cosine = Fraction(math.isqrt((squared.numerator << 800) // squared.denominator), 1 << 400)
    return float(1 - cosine if product > 0 else 1 + cosine)


def _sum_in_order(terms: Iterator[float]) -> float:
    # A plain loop: the built-in sum compensates rounding from Python 3.12 on, and would see other ties.
    total = 0.0
    for term in terms:
        total += term
    return total


def distance_matrix(X_val: np.ndarray, X: np.ndarray, metric: str) -> np.ndarray:
    """One row per validation point, one column per training row."""
    return np.array([[distance(x, z, metric) for z in X] for x in X_val]).reshape(len(X_val), len(X))


# --- rows that join class by class ----------------------------------------------------------------------------------


def joining_orders(classes: Sequence[int]) -> Iterator[list[int]]:
    """Every order of all rows in which a row of a smaller class joins before one of a larger class."""
    numbers = sorted(set(classes))
    parts = [itertools.permutations([row for row, of in enumerate(classes) if of == number]) for number in numbers]
    for found in itertools.product(*parts):
        yield [row for part in found for row in part]


def asymmetric_shapley(utility: Sequence[float], classes: Sequence[int]) -> np.ndarray:
    """Mean marginal contribution of each row over all orders that the classes allow."""
    values, n_orders = np.zeros(len(classes)), 0
    for order in joining_orders(classes):
        subset = 0
        for row in order:
            values[row] += utility[subset | 1 << row] - utility[subset]
            subset |= 1 << row
        n_orders += 1
    return values / n_orders


def asymmetric_banzhaf(utility: Sequence[float], classes: Sequence[int], w: float) -> np.ndarray:
    """Expected marginal contribution to all earlier rows and those of the same class that are drawn."""
    values = np.zeros(len(classes))
    for row, of in enumerate(classes):
        earlier = sum(1 << other for other, theirs in enumerate(classes) if theirs < of)
        peers = [other for other, theirs in enumerate(classes) if theirs == of and other != row]
        for drawn in itertools.product((False, True), repeat=len(peers)):
            subset = earlier + sum(1 << other for other, inside in zip(peers, drawn, strict=True) if inside)
            chance = w ** sum(drawn) * (1 - w) ** (len(peers) - sum(drawn))
            values[row] += chance * (utility[subset | 1 << row] - utility[subset])
    return values
