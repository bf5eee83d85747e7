"""Samplers: each proposes coalitions of players and turns their utilities into contributions of the players.

A sampler works in rounds. A round is a generator. It yields coalitions (one row each, with the count of every player),
is sent their utilities (one row per coalition, one column per cell of validation points), may yield more, and returns
one observation per player. Each round has its own random numbers, so rounds are independent, and the mean over rounds
is the value. Samplers do not depend on models, files or workers.
"""

import math
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from sklearn.base import clone
from sklearn.linear_model import Ridge, RidgeCV

from shapshift.checks import inputs as check
from shapshift.engine.coefficients import Banzhaf, Beta, Semivalue, size_probabilities
from shapshift.engine.estimate import Observations
from shapshift.exceptions import InputError
from shapshift.sampled.game import with_seeds

Floats = npt.NDArray[np.float64]
Coalitions = npt.NDArray[Any]


@dataclass(frozen=True)
class Distributional:
    """Distributional Shapley: expected contribution to a random training set of at most ``cardinality`` players.

    The other players are the sample of the distribution: subsets of 0 to ``cardinality`` - 1 of them, all sizes equally
    likely, drawn without replacement. If the cardinality is the number of players, this is the Shapley value.

    Parameters
    ----------
    cardinality : int
        At least 1 and at most the number of players.

    Examples
    --------
    >>> from shapshift.sampled import Distributional
    >>> Distributional(50)
    Distributional(cardinality=50)
    """

    cardinality: int

    def __post_init__(self) -> None:
        check.check_count("Distributional", "cardinality", self.cardinality)


def size_chances(n_players: int, semivalue: "Semivalue | Distributional") -> Floats:
    """Probability of each size of the coalition that a player is added to."""
    if isinstance(semivalue, Distributional):
        if semivalue.cardinality > n_players:
            raise InputError(
                f"The 'cardinality' parameter of Distributional must be at most the number of players, {n_players}. "
                f"Got {semivalue.cardinality} instead."
            )
        return np.where(np.arange(n_players) < semivalue.cardinality, 1 / semivalue.cardinality, 0.0)
    return size_probabilities(n_players, semivalue)


@dataclass(frozen=True)
class Setting:
    """Facts about a game that samplers use.

    Attributes
    ----------
    n : int
        Number of players.
    chances : ndarray of shape (n,)
        Weights of the sizes in the semivalue, see :func:`size_chances`.
    empty, full : ndarray of shape (n_cells,)
        Utilities of no player and of all players.
    total : ndarray of shape (n_cells,)
        ``utilities @ total`` is the utility over all validation points.
    classes : ndarray of shape (n,) or None
        Class of each player's rows, if they have one class.
    blocks : int
        Number of cells that are blocks of validation points; these are the last cells.
    """

    n: int
    chances: Floats
    empty: Floats
    full: Floats
    total: Floats
    classes: npt.NDArray[np.int64] | None = None
    blocks: int = 0

    def product(self, weights: npt.NDArray[Any], utilities: Floats) -> Floats:
        """Return ``weights @ utilities``; blocks apart, so that their number changes no bit of the values."""
        n = utilities.shape[1] - self.blocks
        return np.concatenate(
            [weights @ np.ascontiguousarray(part) for part in np.split(utilities, [n], axis=1)], axis=-1
        )


Round = Generator[Coalitions, Floats, Observations]
Walk = Generator[Coalitions, Floats, Floats]


@dataclass(frozen=True)
class Sampler:
    """Base class of all samplers.

    Attributes
    ----------
    name : str
    kinds : tuple of type or str
        Semivalues that the sampler can estimate.
    weights : tuple of float
        The value is the sum of these times the means of the strata.
    reduction : {"mean", "classwise", "own"}
        Kind of utilities that it needs, see :class:`shapshift.sampled.game.Game`.
    once : bool
        Whether one round gives the exact answer.
    together : int
        Least number of rounds that run at the same time, to keep workers busy.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[Any, ...]] = ("shapley", "banzhaf", Beta, Banzhaf, Distributional)
    weights: ClassVar[tuple[float, ...]] = (1.0,)
    reduction: ClassVar[str] = "mean"
    once: ClassVar[bool] = False
    together: ClassVar[int] = 1

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round: one per player, unless a subclass differs."""
        return setting.n

    def prior_variance(self, setting: Setting) -> float:
        """Variance of a player's observations expected before any round.

        A few rounds can agree by chance. The expectation is the mean square of the contributions when one player makes
        the whole difference between no player and all players, over the number of orders whose fits one round has.
        """
        gains = (setting.full - setting.empty).reshape(-1, setting.total.size) @ setting.total
        return float(gains @ gains) / max(self.cost(setting), setting.n)

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Propose coalitions and return observations."""
        raise NotImplementedError

    def summary(self, notes: Mapping[str, float]) -> dict[str, Any]:
        """Return what the result reports about the rounds, given the sums of their notes."""
        return dict(notes)


# Number of prefixes of an order requested at a time: all of them would be a large square array.
WALK_STEP = 256
# Largest number of players for enumerating all coalitions: 2^16 fits take hours.
MOST_ENUMERATED = 16
# The same if a regressor predicts the utilities.
MOST_PREDICTED = 12


@dataclass(frozen=True)
class Permutation(Sampler):
    """Players join in a random order (Castro et al. 2009); sizes are weighted by the semivalue (Kwon and Zou 2021).

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import Permutation
    >>> model = SampledShapley(LogisticRegression(), sampler=Permutation(), progress=False)
    >>> model.sampler
    Permutation()
    """

    name: ClassVar[str] = "permutation"

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players along one random order."""
        return _seen_by_all((yield from _every_player(setting, rng.permutation(setting.n))))


@dataclass(frozen=True)
class Truncated(Sampler):
    """Truncated Monte Carlo (Ghorbani and Zou 2019): an order ends once it is worth about as much as all players.

    Parameters
    ----------
    tolerance : float, default=0.01
        Players that join a coalition within this of the utility of all players are assumed to add nothing. This saves
        fits but adds a bias: in each order, the gains left out sum to less than ``tolerance``. Standard errors do not
        include it.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import Truncated
    >>> model = SampledShapley(LogisticRegression(), sampler=Truncated(tolerance=0.05), progress=False)
    >>> model.sampler
    Truncated(tolerance=0.05)
    """

    tolerance: float = 0.01
    name: ClassVar[str] = "truncated"
    together: ClassVar[int] = 16

    def __post_init__(self) -> None:
        check.check_number("Truncated", "tolerance", self.tolerance)

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players along one random order until it is truncated."""
        return _seen_by_all((yield from _every_player(setting, rng.permutation(setting.n), self.tolerance)))


@dataclass(frozen=True)
class Antithetic(Sampler):
    """Each random order together with its reverse: a player that joins early in one joins late in the other.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import Antithetic
    >>> model = SampledShapley(LogisticRegression(), sampler=Antithetic(), progress=False)
    >>> model.sampler
    Antithetic()
    """

    name: ClassVar[str] = "antithetic"

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        return 2 * setting.n

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players along a random order and its reverse."""
        order = rng.permutation(setting.n)
        forward = yield from _every_player(setting, order)
        backward = yield from _every_player(setting, order[::-1])
        return _seen_by_all((forward + backward) / 2)


@dataclass(frozen=True)
class Stratified(Sampler):
    """A random order and its rotations, so that every player is observed once in each range of coalition sizes.

    Parameters
    ----------
    strata : int, default=8
        Number of ranges; with one per player, every player joins at every size once per round (a Latin square).

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import Stratified
    >>> model = SampledShapley(LogisticRegression(), sampler=Stratified(strata=4), progress=False)
    >>> model.sampler
    Stratified(strata=4)
    """

    strata: int = 8
    name: ClassVar[str] = "stratified"

    def __post_init__(self) -> None:
        check.check_count("Stratified", "strata", self.strata)

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        return min(self.strata, setting.n) * setting.n

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players along the rotations of a random order."""
        order = rng.permutation(setting.n)
        ranges = min(self.strata, setting.n)
        found = np.zeros((setting.n, setting.empty.size))
        for number in range(ranges):
            found += yield from _every_player(setting, np.roll(order, -(number * setting.n // ranges)))
        return _seen_by_all(found / ranges)


@dataclass(frozen=True)
class Complementary(Sampler):
    r"""Complementary contributions (Zhang et al. 2023): a coalition minus all other players.

    The Shapley value is the mean over sizes ``j`` of the expected :math:`U(S) - U(N \setminus S)`, over coalitions of
    ``j`` players that include the player. One pair of fits observes every player. For a size, a random order is cut
    into coalitions of that size, so that every player is on both sides. Effects common to all players drop out, since
    the sum of the values is known.

    Parameters
    ----------
    strata : int, default=8
        Number of sizes per round, spread evenly from a random start.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import Complementary
    >>> model = SampledShapley(LogisticRegression(), sampler=Complementary(strata=4), progress=False)
    >>> model.sampler
    Complementary(strata=4)
    """

    strata: int = 8
    name: ClassVar[str] = "complementary"
    kinds: ClassVar[tuple[Any, ...]] = ("shapley",)

    def __post_init__(self) -> None:
        check.check_count("Complementary", "strata", self.strata)

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        return sum(2 * math.ceil(setting.n / size) for size in self._sizes(setting.n, 0.0).tolist())

    def _sizes(self, n: int, start: float) -> npt.NDArray[np.int64]:
        half = n // 2
        chosen = min(self.strata, half)
        return np.floor((start + np.arange(chosen)) * half / max(chosen, 1)).astype(np.int64) + 1

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players in pairs of complementary coalitions."""
        n, gain = setting.n, setting.full - setting.empty
        sizes = self._sizes(n, rng.random())
        found = np.zeros((n, gain.size))
        for size in sizes.tolist():
            order = rng.permutation(n)
            inside = np.zeros((math.ceil(n / size), n), dtype=bool)
            for number, coalition in enumerate(inside):
                coalition[order[(number * size + np.arange(size)) % n]] = True
            utilities = yield np.concatenate([inside, ~inside])
            against = utilities[: len(inside)] - utilities[len(inside) :]
            small = setting.product(inside.T, against) / inside.sum(axis=0)[:, None]
            large = setting.product((~inside).T, -against) / (~inside).sum(axis=0)[:, None]
            found += (small + large) / 2 if 2 * size == n else small + large
        if sizes.size:
            found *= n // 2 / sizes.size / n
        return _seen_by_all(found - found.mean(axis=0) + gain / n)


@dataclass(frozen=True)
class GroupTesting(Sampler):
    """Group testing (Jia et al. 2019): random coalitions estimate differences of players; the sum of values is known.

    Utilities are taken relative to the middle between no player and all players, which changes no expectation and
    removes most of the noise.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import GroupTesting
    >>> model = SampledShapley(LogisticRegression(), sampler=GroupTesting(), progress=False)
    >>> model.sampler
    GroupTesting()
    """

    name: ClassVar[str] = "group_testing"
    kinds: ClassVar[tuple[Any, ...]] = ("shapley",)

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        return 1

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players in one random coalition."""
        n, gain = setting.n, setting.full - setting.empty
        if n == 1:
            return _seen_by_all(gain[None])
        sizes = np.arange(1, n)
        weights = 1 / sizes + 1 / (n - sizes)
        size = int(rng.choice(sizes, p=weights / weights.sum()))
        inside = np.zeros(n, dtype=bool)
        inside[rng.permutation(n)[:size]] = True
        (utility,) = yield inside[None]
        beyond = utility - (setting.full + setting.empty) / 2
        return _seen_by_all(gain / n + weights.sum() * np.outer(inside - size / n, beyond))


@dataclass(frozen=True)
class MaximumSampleReuse(Sampler):
    """Data Banzhaf (Wang and Jia 2023; weighted: Li and Yu 2023): each coalition observes all players.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import MaximumSampleReuse
    >>> model = SampledShapley(LogisticRegression(), semivalue="banzhaf", sampler=MaximumSampleReuse(), progress=False)
    >>> model.sampler
    MaximumSampleReuse()
    """

    name: ClassVar[str] = "msr"
    kinds: ClassVar[tuple[Any, ...]] = ("banzhaf", Banzhaf)
    weights: ClassVar[tuple[float, ...]] = (1.0, -1.0)

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        return 1

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players in one random coalition."""
        share = setting.chances @ np.arange(setting.n) / (setting.n - 1) if setting.n > 1 else 0.5
        inside = rng.random(setting.n) < share
        (utility,) = yield inside[None]
        return Observations(np.tile(utility, (setting.n, 1)), np.where(inside, 0, 1))


@dataclass(frozen=True)
class LeaveOneOut(Sampler):
    """Utility of all players minus that of all but one: one fit per player, no sampling error.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import LeaveOneOut
    >>> model = SampledShapley(LogisticRegression(), semivalue="loo", sampler=LeaveOneOut(), progress=False)
    >>> model.sampler
    LeaveOneOut()
    """

    name: ClassVar[str] = "loo"
    kinds: ClassVar[tuple[Any, ...]] = ("loo",)
    once: ClassVar[bool] = True

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Ask for all players but one, for each player."""
        without = np.empty((setting.n, setting.full.size))
        for low in range(0, setting.n, WALK_STEP):
            players = np.arange(low, min(low + WALK_STEP, setting.n))
            without[players] = yield np.arange(setting.n) != players[:, None]
        return _seen_by_all(setting.full - without)


@dataclass(frozen=True)
class Exact(Sampler):
    """All 2^n coalitions, for few players: no sampling error.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import Exact
    >>> model = SampledShapley(LogisticRegression(), sampler=Exact(), progress=False)
    >>> model.sampler
    Exact()
    """

    name: ClassVar[str] = "exact"
    kinds: ClassVar[tuple[Any, ...]] = ("shapley", "banzhaf", "loo", Beta, Banzhaf, Distributional)
    once: ClassVar[bool] = True

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        if setting.n > MOST_ENUMERATED:
            raise InputError(
                f"The 'sampler' parameter of SampledShapley is 'exact', which fits 2^{setting.n} models for "
                f"{setting.n} players; at most {MOST_ENUMERATED} players are possible. Use sampler='permutation'."
            )
        return int(2**setting.n)

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Ask for all coalitions."""
        n = setting.n
        worth = np.empty((2**n, setting.full.size))
        for low in range(0, 2**n, WALK_STEP):
            subsets = np.arange(low, min(low + WALK_STEP, 2**n))
            worth[subsets] = yield (subsets[:, None] >> np.arange(n) & 1).astype(bool)
        sizes = np.bitwise_count(np.arange(2 ** (n - 1)))
        weights = (setting.chances / [math.comb(n - 1, size) for size in range(n)])[sizes]
        found = np.empty((n, setting.full.size))
        for player in range(n):
            split = worth.reshape(-1, 2, 2**player, setting.full.size)
            found[player] = setting.product(weights, (split[:, 1] - split[:, 0]).reshape(-1, setting.full.size))
        return _seen_by_all(found)


@dataclass(frozen=True)
class ClassWise(Sampler):
    """CS-Shapley (Schoch et al. 2022): the players of a class join a random set of players of the other classes.

    The worth of a coalition is its accuracy on the class times the exponential of its accuracy on the others, both as
    shares of all validation points. Every player of another class joins with probability 1/2. The values of a class are
    not rescaled to its accuracy.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import ClassWise
    >>> model = SampledShapley(LogisticRegression(), sampler=ClassWise(), progress=False)
    >>> model.sampler
    ClassWise()
    """

    name: ClassVar[str] = "classwise"
    kinds: ClassVar[tuple[Any, ...]] = ("shapley",)
    reduction: ClassVar[str] = "classwise"

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        return setting.n + np.unique(self._classes(setting)).size

    def _classes(self, setting: Setting) -> npt.NDArray[np.int64]:
        if setting.classes is None:
            raise InputError(
                "The 'sampler' parameter of SampledShapley is 'classwise', which values players within their class: "
                "every player must have rows of one class, and the estimator must be a classifier. Value rows instead "
                "of owners, or use sampler='permutation'."
            )
        return setting.classes

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players of each class along one random order."""
        classes = self._classes(setting)
        n_classes, n_cells = setting.full.size // setting.total.size, setting.total.size
        found = np.zeros((setting.n, n_cells))
        for number in np.unique(classes).tolist():
            members = rng.permutation(np.flatnonzero(classes == number))
            others = (rng.random(setting.n) < 0.5) & (classes != number)
            place = np.full(setting.n, members.size)
            place[members] = np.arange(members.size)
            coalitions = others | (place < np.arange(members.size + 1)[:, None])
            utilities = (yield coalitions).reshape(-1, n_classes, n_cells)[:, number]
            found[members] = np.diff(utilities, axis=0)
        return _seen_by_all(found)


@dataclass(frozen=True)
class OutOfBag(Sampler):
    """Data-OOB (Kwon and Zou 2023): how well bootstrap models without a player predict its rows.

    It describes the training rows alone: the validation set is not used.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from shapshift import SampledShapley
    >>> from shapshift.sampled import OutOfBag
    >>> model = SampledShapley(LogisticRegression(), sampler=OutOfBag(), progress=False)
    >>> model.sampler
    OutOfBag()
    """

    name: ClassVar[str] = "oob"
    kinds: ClassVar[tuple[Any, ...]] = ("shapley",)
    reduction: ClassVar[str] = "own"

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        return 1

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players that a bootstrap sample lacks."""
        drawn = rng.multinomial(setting.n, np.full(setting.n, 1 / setting.n))
        (utility,) = yield drawn[None]
        return Observations(utility[:, None], np.where(drawn > 0, -1, 0))


@dataclass(frozen=True)
class LearnedUtility(Sampler):
    """Data utility learning (Wang, Yang and Jia 2021): a regressor learns the worth of coalitions from some of them.

    A round fits models on random coalitions, with sizes weighted by the semivalue. A regressor learns their worth from
    their members, and the round's observations are the values in the game that it predicts. ``heldout_r2`` in the
    result's parameters measures the prediction on coalitions that were held out, a fifth of each round: the share of
    their variance that it explains over all rounds, 1 at best, None if all have the same worth. With few players a
    coalition is drawn several times, and some of these draws may be in the training part. What the regressor cannot
    predict is a bias, which standard errors do not include.

    Parameters
    ----------
    coalitions : int, default=200
        Number of models of a round; at least 10. The budget must allow two rounds.
    regressor : estimator, default=None
        A regressor of scikit-learn that predicts several numbers, such as a forest or a network. The default is ridge
        regression, whose values are those of the additive game nearest to the coalitions.
    orders : int, default=32
        Random orders along which the predicted game is valued, each with its reverse. Up to 12 players are valued by
        enumeration.

    Examples
    --------
    >>> from shapshift.sampled import LearnedUtility
    >>> LearnedUtility(coalitions=100)
    LearnedUtility(coalitions=100, regressor=None, orders=32)
    """

    coalitions: int = 200
    regressor: Any = None
    orders: int = 32
    name: ClassVar[str] = "learned"

    def __post_init__(self) -> None:
        check.check_count("LearnedUtility", "coalitions", self.coalitions, 10)
        check.check_count("LearnedUtility", "orders", self.orders)
        if self.regressor is not None and not callable(getattr(self.regressor, "predict", None)):
            raise InputError(
                "The 'regressor' parameter of LearnedUtility must be None or a regressor such as "
                f"RandomForestRegressor(). Got {self.regressor!r} instead."
            )

    def cost(self, setting: Setting) -> int:
        """Largest number of model fits of a round."""
        return self.coalitions

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Observe the players in the game that a regressor learns from random coalitions."""
        n, m = setting.n, self.coalitions
        # Equally often before and after a player joins.
        sizes = rng.choice(n, size=m, p=setting.chances) + rng.integers(0, 2, m)
        inside = rng.random((m, n)).argsort(axis=1).argsort(axis=1) < sizes[:, None]
        utilities = yield inside
        new = rng.permutation(m)[: m // 5]
        kept = np.setdiff1d(np.arange(m), new)
        predicted = self._learned(inside[kept], utilities[kept], setting.total, rng)(inside[new])
        worth, residuals = utilities[new] @ setting.total, (utilities[new] - predicted) @ setting.total
        spread = float(((worth - worth.mean()) ** 2).sum())
        found = self._valued(setting, self._learned(inside, utilities, setting.total, rng), rng)
        if np.allclose(setting.chances, 1 / n):  # Shapley values: their sum is known
            found += (setting.full - setting.empty - found.sum(axis=0)) / n
        return Observations(
            found,
            np.zeros(n, dtype=np.int64),
            {
                "residual_squares": float(residuals @ residuals),
                "total_squares": spread if spread > 1e-12 * float(worth @ worth) else 0.0,  # else rounding
            },
        )

    def summary(self, notes: Mapping[str, float]) -> dict[str, Any]:
        """Return the explained share of the variance over all rounds; None if there is no variance."""
        total = notes["total_squares"]
        return {"heldout_r2": 1 - notes["residual_squares"] / total if total > 0 else None}

    def _learned(self, inside: Coalitions, utilities: Floats, total: Floats, rng: np.random.Generator) -> Any:
        """Return a function that predicts the utilities of coalitions."""
        members = inside.astype(np.float64)
        if self.regressor is None:
            model = Ridge(RidgeCV(np.logspace(-6, 3, 10)).fit(members, utilities @ total).alpha_)
        else:
            model = clone(self.regressor, safe=False)
        model = with_seeds(model, int(rng.integers(2**31)))
        model.fit(members, utilities)
        return lambda coalitions: np.asarray(model.predict(coalitions.astype(np.float64))).reshape(len(coalitions), -1)

    def _valued(self, setting: Setting, predict: Any, rng: np.random.Generator) -> Floats:
        """Values in the predicted game."""
        few = setting.n <= MOST_PREDICTED
        rounds = [(Exact() if few else Antithetic()).round(setting, rng) for _ in range(1 if few else self.orders)]
        return np.asarray(np.mean([_answered(one, predict) for one in rounds], axis=0))


def _answered(one: Round, predict: Any) -> Floats:
    """Observations of a round when ``predict`` answers its requests."""
    answer = None
    while True:
        try:
            answer = predict(one.send(answer))  # type: ignore[arg-type]  # None starts it
        except StopIteration as done:
            observed: Observations = done.value
            return observed.values


#: Samplers by name.
SAMPLERS: dict[str, Sampler] = {sampler.name: sampler() for sampler in Sampler.__subclasses__()}


def choose_sampler(caller: str, sampler: Any, semivalue: Any, n_players: int | None = None, fits: int = 0) -> Sampler:
    """Return the sampler of that name, or the one for the semivalue and budget; refuse invalid combinations."""
    if semivalue == Banzhaf(1):
        semivalue = "loo"  # nothing is drawn
    if isinstance(sampler, str) and sampler == "auto":
        few = n_players is not None and n_players <= MOST_ENUMERATED and 2**n_players < fits
        suited = (
            "msr"
            if isinstance(semivalue, Banzhaf)
            else {"banzhaf": "msr", "loo": "loo"}.get(str(semivalue), "permutation")
        )
        chosen: Sampler = SAMPLERS["exact" if few and suited != "loo" else suited]
    elif isinstance(sampler, Sampler):
        chosen = sampler
    else:
        check.check_choice(caller, "sampler", sampler, ("auto", *SAMPLERS), "a sampler object such as Truncated(0.02)")
        chosen = SAMPLERS[sampler]
    kind = semivalue if isinstance(semivalue, str) else type(semivalue)
    if kind not in chosen.kinds:
        offered = [repr(other) if isinstance(other, str) else f"a {other.__name__} object" for other in chosen.kinds]
        raise InputError(
            f"The 'semivalue' parameter of {caller} must be {' or '.join(offered)} with sampler={chosen.name!r}. "
            f"Got {semivalue!r} instead. Use sampler='auto' to choose a sampler for the semivalue."
        )
    return chosen


def _seen_by_all(values: Floats) -> Observations:
    return Observations(values, np.zeros(len(values), dtype=np.int64))


def _every_player(setting: Setting, order: npt.NDArray[np.int64], tolerance: float | None = None) -> Walk:
    """Contributions of players that join in an order; a walk ends where larger coalitions have no weight."""
    n = setting.n
    reach = int(np.flatnonzero(setting.chances)[-1]) + 1
    starts = range(0, n, reach)
    # Number of walks that observe a player at each position; a semivalue with weight on the largest size has one walk.
    often = np.array([sum(position < n - start for start in starts) for position in range(reach)])
    weights = n * setting.chances[:reach] / often
    found = np.empty((n, setting.empty.size))
    for start in starts:
        steps = min(reach, n - start)
        gains = yield from _walk(setting, np.roll(order, -start), steps, tolerance)
        found[order[start : start + steps]] = weights[:steps, None] * gains
    return found


def _walk(setting: Setting, order: npt.NDArray[np.int64], steps: int, tolerance: float | None) -> Walk:
    """Gains of the first players of an order; the others are zero once the goal is within the tolerance."""
    place = np.empty(setting.n, dtype=np.int64)
    place[order] = np.arange(setting.n)
    worth = np.empty((steps + 1, setting.empty.size))
    worth[0] = setting.empty
    goal = setting.full @ setting.total
    step = WALK_STEP if tolerance is None else 1
    for low in range(0, steps, step):
        if tolerance is not None and abs(worth[low] @ setting.total - goal) < tolerance:
            worth[low + 1 :] = worth[low]
            break
        sizes = np.arange(low + 1, min(low + step, steps) + 1)
        worth[sizes] = yield place < sizes[:, None]
    return np.diff(worth, axis=0)
