"""Values of possible clean versions of the noisy points: posterior draws, streamed through one fitted model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.correct.prior import Prior, Weighed
from shapshift.perturb.perturbations import largest_remainders
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Bytes of values of single points held at a time.
MATRIX_BYTES = 64 * 2**20
# Rows that together hold less than this share of all weight are dropped.
DUST = 1e-3
# A point with at least this share of its weight on one row says little about that row once the row is left out.
LARGEST_ODDS = 20.0


@dataclass(frozen=True)
class TrainingSet:
    """A fitted model, its training rows, and the prior made from them.

    Attributes
    ----------
    model : KNNShapley
        Takes plain arrays, and classes as numbers.
    X : ndarray of shape (n, n_features)
        Training rows in the order of the model.
    codes : ndarray of shape (n,)
        Their classes.
    order : ndarray of shape (n,)
        Position in the model of each row of the prior.
    prior : Prior
    """

    model: Any
    X: Floats
    codes: Ints
    order: Ints
    prior: Prior


@dataclass(frozen=True)
class NoisyPoints:
    """A noisy validation set.

    Attributes
    ----------
    X : ndarray of shape (m, n_features)
    codes : ndarray of shape (m,)
        Class of each point, -1 for one that no training row has.
    blocks : ndarray of shape (m,) or None
        Block of each point if values of blocks are needed.
    """

    X: Floats
    codes: Ints
    blocks: Ints | None = None


class Placement:
    """Values for one placement of the points, by round and by entropy level.

    Attributes
    ----------
    rounds : list of ndarray of shape (n,)
        Values of each round: one draw for every point.
    sums, shares : dict
        By entropy level: sums over rounds of the level's contribution to the values, and of its share of the points.
    by_block : ndarray of shape (n_blocks, n)
        Sum over rounds of the contribution of each block of points to the values; 0 if not requested.
    """

    def __init__(self) -> None:
        self.rounds: list[Floats] = []
        self.by_block: Any = 0.0
        self.sums: dict[float, Floats] = {}
        self.shares: dict[float, float] = {}

    def add_level(self, entropy: float, values: Floats, share: float) -> None:
        """Add the contribution of a level to one or several rounds."""
        self.sums[entropy] = self.sums[entropy] + values if entropy in self.sums else values
        self.shares[entropy] = self.shares.get(entropy, 0.0) + share

    def add(self, valuation: Valuation) -> None:
        """Add a round from a valuation of one draw for every point."""
        self.rounds.append(valuation.values)
        shares = valuation.level_counts / valuation.level_counts.sum()
        for entropy, values, share in zip(
            valuation.level_entropy.tolist(), valuation.level_values, shares.tolist(), strict=True
        ):
            self.add_level(entropy, share * values, share)
        order = np.argsort(np.array(valuation.group_names, dtype=np.int64))  # names are in order of appearance
        self.by_block = self.by_block + (
            valuation.group_means[order] * np.array(valuation.group_sizes)[order, None] / valuation.n_val
        )

    @property
    def mean(self) -> Floats:
        """Values averaged over rounds."""
        return np.asarray(np.mean(self.rounds, axis=0))


def draw_in_stages(
    train: TrainingSet,
    points: NoisyPoints,
    draws: int,
    rng: np.random.Generator,
    *,
    moved: bool = True,
    at_rows: bool = True,
    most_rows: int | None = None,
) -> Iterator[dict[str, Placement]]:
    """Value draws in stages of growing size; yields after each stage, so that the caller can stop.

    A point can be placed in two ways: "moved" towards its noisy version, or "at_rows", at the row itself, with the row
    left out. "at_rows" has as many rounds as "moved", or a single one if it is exact.

    A row drawn by several points is valued once. If all rows with any weight are fewer than the draws, points at rows
    need no draws: every row is valued, with its weight.

    Parameters
    ----------
    train : TrainingSet
    points : NoisyPoints
    draws : int
        Largest number of draws per point.
    rng : numpy Generator
    moved, at_rows : bool
        Which placements to value.
    most_rows : int, optional
        Value all rows with weight if there are at most this many; by default the number of draws of all points.
    """
    where = train.prior.coordinates(points.X)
    weighed = train.prior.weigh(where, points.codes, draws, rng)
    seeds = rng.spawn(draws)
    found = {"moved": Placement(), "at_rows": Placement()}
    if at_rows:
        mass = _without_dust(weighed.mass)
        if np.count_nonzero(mass) <= (most_rows or weighed.drawn.size):
            _value_rows(train, weighed, [_Round(mass, weighed.heavy)], found["at_rows"], points.blocks)
            at_rows = False
    done = 0
    while done < draws and (moved or at_rows):
        stop = min(max(4, 2 * done), draws)
        if moved:
            for number in range(done, stop):
                X = train.prior.move(weighed.drawn[:, number], where, points.X, seeds[number])
                found["moved"].add(train.model.value(X, points.codes, groups=points.blocks))
        if at_rows:
            rounds = [_by_draws(weighed, number, len(train.codes)) for number in range(done, stop)]
            _value_rows(train, weighed, rounds, found["at_rows"], points.blocks)
        done = stop
        yield found
    if not (moved or at_rows):
        yield found


@dataclass(frozen=True)
class _Round:
    """Share of the points at each row, by class, and which points those are."""

    counts: Floats  # (n_labels, n), as shares of all points
    heavy: sparse.csr_array  # (m, n), the share of each point that stands at each row, where it is not negligible


def _by_draws(weighed: Weighed, number: int, n: int) -> _Round:
    rows = weighed.drawn[:, number]
    m = rows.size
    once = sparse.csr_array((np.ones(m), (np.arange(m), rows)), shape=(m, n))
    counts = np.zeros(weighed.mass.shape)
    np.add.at(counts, (weighed.of_label, rows), 1.0 / m)
    return _Round(counts, once)


def _without_dust(mass: Floats) -> Floats:
    """Drop the lightest rows while they hold a negligible weight together, and scale up the others."""
    ascending = np.sort(mass, axis=None)
    light = min(int(np.searchsorted(np.cumsum(ascending), DUST)), ascending.size - 1)
    kept = np.where(mass >= ascending[light], mass, 0.0)
    return np.asarray(kept / kept.sum())


def _value_rows(
    train: TrainingSet, weighed: Weighed, rounds: list[_Round], part: Placement, blocks: Ints | None
) -> None:
    """Add rounds in which every point stands at training rows.

    The row at which a point stands takes no part in the game on it, and that point does not count for it: no row may
    profit from its own position. For a point with weight w on row i, row i therefore loses a share w of the point, and
    the other rows at which the point stands count 1 / (1 - w) times.
    """
    n, m = len(train.codes), len(weighed.of_label)
    odds = weighed.heavy.copy()
    odds.data = np.minimum(odds.data / np.maximum(1.0 - odds.data, 1e-12), LARGEST_ODDS) / m
    odds.indices = train.order[odds.indices].astype(odds.indices.dtype)  # columns in the order of the model
    wanted = np.any([each.counts > 0 for each in rounds], axis=0)
    totals = np.zeros((len(rounds), n))
    size = max(1, MATRIX_BYTES // (8 * n))
    for label, code in enumerate(weighed.labels):
        members = weighed.of_label == label
        odds_here = odds[members]
        heavy_here = [sparse.csr_array(each.heavy[members].T) for each in rounds]
        of_blocks = None if blocks is None else _mass_of_blocks(blocks, members, heavy_here, m)
        rows = np.flatnonzero(wanted[label])
        for first in range(0, rows.size, size):
            here = rows[first : first + size]
            at = train.order[here]
            valued = train.model.value(train.X[at], np.full(at.size, code), exclude=at, matrix=True)
            values = np.array(valued.matrix.T)
            values[np.arange(at.size), at] = 0.0
            levels, of_level = np.unique(valued.entropy, return_inverse=True)
            picks = sparse.csr_array((np.ones(at.size), (of_level, np.arange(at.size))), shape=(levels.size, at.size))
            for r, each in enumerate(rounds):
                shares = each.counts[label, here]
                again = heavy_here[r][here] @ odds_here
                added = picks.multiply(shares) @ values + picks @ again.multiply(values)
                added = np.asarray(added.toarray() if sparse.issparse(added) else added)
                totals[r] += added.sum(axis=0)
                if of_blocks is not None:
                    known, shares_of_blocks = of_blocks[0][r][here], of_blocks[1]
                    own = np.asarray(known.T @ values)
                    part.by_block = part.by_block + own
                    # Rows that many points have a little weight on: their weights cannot be separated by point.
                    part.by_block += np.outer(shares_of_blocks, added.sum(axis=0) - own.sum(axis=0))
                for entropy, values_here, share in zip(levels.tolist(), added, picks @ shares, strict=True):
                    part.add_level(entropy, values_here, float(share))
    part.rounds += list(totals)


def _mass_of_blocks(blocks: Ints, members: npt.NDArray[np.bool_], heavy: list[Any], m: int) -> tuple[list[Any], Floats]:
    """Return the weight of each row in the points of each block, by round, and each block's share of the points.

    Parameters
    ----------
    blocks : ndarray of shape (m,)
    members : ndarray of shape (m,)
        Which points are included.
    heavy : list of csr_array of shape (n, n_members)
        Weights of their rows that are not negligible, by round.
    m : int
    """
    here = blocks[members]
    places = (np.arange(here.size), here)
    in_block = sparse.csr_array((np.full(here.size, 1.0 / m), places), shape=(here.size, int(blocks.max()) + 1))
    return [sparse.csr_array(each @ in_block) for each in heavy], np.bincount(
        here, minlength=in_block.shape[1]
    ) / here.size


def mix_levels(parts: dict[str, Placement], weights: dict[str, float], n_val: int) -> tuple[Floats, Floats, Ints]:
    """Mix the parts level by level in whole points; return entropies, mean values and counts that sum to ``n_val``."""
    sums: dict[float, Floats] = {}
    shares: dict[float, float] = {}
    for name, part in parts.items():
        rounds = len(part.rounds)
        if weights[name] == 0 or rounds == 0:
            continue
        for entropy, values in part.sums.items():
            sums[entropy] = sums.get(entropy, 0.0) + weights[name] / rounds * values
            shares[entropy] = shares.get(entropy, 0.0) + weights[name] / rounds * part.shares[entropy]
    entropies = np.array(sorted(sums))
    counts = largest_remainders(np.array([shares[entropy] for entropy in entropies.tolist()]), n_val)
    totals = np.array([sums[entropy] for entropy in entropies.tolist()])
    for level in np.flatnonzero(counts == 0):  # below one point: merged with the next level
        others = np.flatnonzero(counts > 0)
        totals[others[np.abs(entropies[others] - entropies[level]).argmin()]] += totals[level]
    kept = counts > 0
    return entropies[kept], totals[kept] * n_val / counts[kept, None], counts[kept]
