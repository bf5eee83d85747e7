"""Value what the noisy points may have been: draws of the posterior, streamed through one fitted model."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.correct.prior import Prior
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Bytes of values of single points that are held at a time.
MATRIX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Game:
    """A fitted model, its training rows, and the prior that they make.

    Attributes
    ----------
    model : KNNShapley
        Takes plain arrays, and classes by number.
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
class Points:
    """A noisy validation set.

    Attributes
    ----------
    X : ndarray of shape (m, n_features)
    codes : ndarray of shape (m,)
        Class of each point, -1 for one that no training row has.
    """

    X: Floats
    codes: Ints


class Part:
    """Values of one way to place a point, round by round, and split by entropy level.

    Attributes
    ----------
    rounds : list of ndarray of shape (n,)
        Values of each round: one draw for every point.
    sums, shares : dict
        By entropy level: sum over rounds of what the level adds to the values, and of its share of the points.
    """

    def __init__(self) -> None:
        self.rounds: list[Floats] = []
        self.sums: dict[float, Floats] = {}
        self.shares: dict[float, float] = {}

    def add_level(self, entropy: float, values: Floats, share: float) -> None:
        """Add what a level contributes to one or several rounds."""
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

    @property
    def mean(self) -> Floats:
        """Values averaged over rounds."""
        return np.asarray(np.mean(self.rounds, axis=0))


@dataclass(frozen=True)
class Drawn:
    """Both ways to place a point: moved towards its noisy version, or at the row itself, with the row left out."""

    moved: Part
    at_rows: Part


def draw_in_stages(
    game: Game, points: Points, draws: int, rng: np.random.Generator, *, moved: bool = True, at_rows: bool = True
) -> Iterator[Drawn]:
    """Value draws in stages of growing size; yields after each, so that the caller can stop.

    A stage values every training row that it drew once, however many points drew it.

    Parameters
    ----------
    game : Game
    points : Points
    draws : int
        Draws per point at most.
    rng : numpy Generator
    moved, at_rows : bool
        Which ways to place a point are wanted.
    """
    where = game.prior.coordinates(points.X)
    chosen = game.prior.draw_rows(where, points.codes, draws, rng)
    odds = chosen.odds
    odds.indices = game.order[odds.indices].astype(odds.indices.dtype)  # columns in the order of the model
    seeds = rng.spawn(draws)
    found = Drawn(Part(), Part())
    done = 0
    while done < draws:
        stop = min(max(4, 2 * done), draws)
        if moved:
            for number in range(done, stop):
                X = game.prior.move(chosen.rows[:, number], where, points.X, seeds[number])
                found.moved.add(game.model.value(X, points.codes))
        if at_rows:
            _value_rows(game, points, game.order[chosen.rows[:, done:stop]], odds, found.at_rows)
        done = stop
        yield found


def _value_rows(game: Game, points: Points, drawn: Ints, odds: sparse.csr_array, part: Part) -> None:
    """Add rounds in which every point stands at the training row drawn for it.

    The row itself does not take part in that game, nor do its own draws count for it: no row may profit from being where
    it is. For a point that has weight w on row i, row i so loses a share w of its draws, and the others count 1 / (1 - w)
    times.
    """
    m, n_rounds = drawn.shape
    n = len(game.codes)
    # A draw is a row and a label; equal draws have equal values.
    labels, label_codes = np.unique(points.codes, return_inverse=True)
    distinct, which = np.unique(drawn * labels.size + label_codes[:, None], return_inverse=True)
    which = which.reshape(drawn.shape)
    rows, of_label = distinct // labels.size, distinct % labels.size
    per_round = [
        sparse.csr_array((np.full(m, 1.0 / m), (which[:, r], np.arange(m))), shape=(distinct.size, m))
        for r in range(n_rounds)
    ]
    totals = np.zeros((n_rounds, n))
    size = max(1, MATRIX_BYTES // (8 * n))
    for first in range(0, distinct.size, size):
        here = slice(first, min(first + size, distinct.size))
        valued = game.model.value(game.X[rows[here]], labels[of_label[here]], exclude=rows[here], matrix=True)
        values = np.array(valued.matrix.T)
        values[np.arange(here.stop - first), rows[here]] = 0.0
        for entropy in np.unique(valued.entropy).tolist():
            members = np.flatnonzero(valued.entropy == entropy)
            level = np.zeros(n)
            share = 0.0
            for r, counts in enumerate(per_round):
                times = counts[first + members]
                added = np.asarray(times.sum(axis=1)) @ values[members]
                added += (times @ odds).multiply(values[members]).sum(axis=0)
                totals[r] += added
                level += added
                share += float(times.sum())
            part.add_level(entropy, level, share)
    part.rounds += list(totals)
