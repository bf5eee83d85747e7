"""What a sampler is, what it knows of the game, and what it hands back.

A sampler works in rounds. A round is a generator: it yields coalitions (one row each, saying how often every player is
in it), is sent their utilities (one row per coalition, one column per cell of validation points), may ask for more, and
returns one observation per player. Rounds draw from random numbers of their own, so that they are independent, and the
mean over rounds is the value. Samplers know nothing of models, files or workers.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift import _validation as check
from shapshift.coefficients import Beta, size_probabilities

Floats = npt.NDArray[np.float64]
Coalitions = npt.NDArray[Any]


@dataclass(frozen=True)
class Distributional:
    """Distributional Shapley: the expected worth to a random training set of at most ``cardinality`` players.

    The other players serve as the sample of the distribution: subsets of 0 to ``cardinality`` - 1 of them, all sizes
    equally likely, drawn without replacement. With a cardinality of all players this is the Shapley value.

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


def size_chances(n_players: int, semivalue: "str | Beta | Distributional") -> Floats:
    """How probable each size of the coalition is that a player is added to."""
    if isinstance(semivalue, Distributional):
        if semivalue.cardinality > n_players:
            raise ValueError(
                f"The 'cardinality' parameter of Distributional must be at most the number of players, {n_players}. "
                f"Got {semivalue.cardinality} instead."
            )
        return np.where(np.arange(n_players) < semivalue.cardinality, 1 / semivalue.cardinality, 0.0)
    return size_probabilities(n_players, semivalue)


@dataclass(frozen=True)
class Setting:
    """What a sampler knows of the game.

    Attributes
    ----------
    n : int
        Number of players.
    chances : ndarray of shape (n,)
        How the semivalue weights sizes, see :func:`size_chances`.
    empty, full : ndarray of shape (n_cells,)
        Utilities of nobody and of everybody.
    total : ndarray of shape (n_cells,)
        ``utilities @ total`` is the utility over all validation points.
    classes : ndarray of shape (n,) or None
        Class of each player's rows, where they have one.
    """

    n: int
    chances: Floats
    empty: Floats
    full: Floats
    total: Floats
    classes: npt.NDArray[np.int64] | None = None


@dataclass(frozen=True)
class Observations:
    """One round's contribution of each player, and the stratum it belongs to; -1 where the player was not observed."""

    values: Floats
    stratum: npt.NDArray[np.int64]


Round = Generator[Coalitions, Floats, Observations]
Walk = Generator[Coalitions, Floats, Floats]


@dataclass(frozen=True)
class Sampler:
    """What all samplers share.

    Attributes
    ----------
    name : str
    kinds : tuple of type or str
        Semivalues that it can estimate.
    weights : tuple of float
        The value is the sum of these times the means of the strata.
    reduction : {"mean", "classwise", "own"}
        Which utilities it wants to be sent, see :class:`shapshift.sampled._game.Game`.
    once : bool
        Whether one round is the answer, without error.
    together : int
        At least so many rounds run at the same time, to keep workers busy.
    """

    name: ClassVar[str]
    kinds: ClassVar[tuple[Any, ...]] = ("shapley", "banzhaf", Beta, Distributional)
    weights: ClassVar[tuple[float, ...]] = (1.0,)
    reduction: ClassVar[str] = "mean"
    once: ClassVar[bool] = False
    together: ClassVar[int] = 1

    def cost(self, setting: Setting) -> int:
        """Most model fits of a round."""
        raise NotImplementedError

    def round(self, setting: Setting, rng: np.random.Generator) -> Round:
        """Propose coalitions and return observations."""
        raise NotImplementedError
