"""Federated rounds: owners are the players of each round they take part in; values add up over the rounds."""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks.labels import owner_column
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.sampled._loop import SamplingPlan, run_sampler
from shapshift.sampled.game import Answers
from shapshift.sampled.samplers import choose_sampler, size_chances

Floats = npt.NDArray[np.float64]

# Memory for the worth of coalitions that recur.
CACHE_BYTES = 2**24


@dataclass(frozen=True)
class FederatedRound:
    """One round of federated training.

    Parameters
    ----------
    participants : sequence of hashable
        Owners that took part.
    worth : callable
        ``worth(owners)``: worth of the model that the round would have given with only these participants, a tuple; for
        no owners, that of the model before the round.

    Examples
    --------
    >>> from shapshift import FederatedRound
    >>> FederatedRound(["ann", "bob"], lambda owners: 0.5 + 0.1 * len(owners)).participants
    ['ann', 'bob']
    """

    participants: Sequence[Hashable]
    worth: Callable[[tuple[Any, ...]], float]

    def __post_init__(self) -> None:
        if isinstance(self.participants, str) or not hasattr(self.participants, "__len__"):
            raise check.wrong("FederatedRound", "participants", "a list of owners", self.participants)
        if not callable(self.worth):
            raise check.wrong("FederatedRound", "worth", "a function of a tuple of owners", self.worth)

    @classmethod
    def from_updates(
        cls, before: Any, updates: Mapping[Any, Any], score: Callable[[Any], float], *, sizes: Any = None
    ) -> "FederatedRound":
        """Return the round whose models are averages of recorded local ones (federated averaging).

        Parameters
        ----------
        before : ndarray or list of ndarray
            Parameters of the shared model before the round.
        updates : mapping of owner to ndarray or list of ndarray
            Parameters that each participant sent back, of the same shapes.
        score : callable
            Worth of a model with such parameters, such as its accuracy on a validation set.
        sizes : mapping of owner to number, optional
            Weights of the average, such as numbers of rows; equal by default.
        """
        lists = isinstance(before, list | tuple)
        start = _parts(before)
        sent = {owner: _parts(update) for owner, update in updates.items()}
        weights = dict.fromkeys(sent, 1.0) if sizes is None else {owner: float(sizes.get(owner, 0)) for owner in sent}
        for owner, parts in sent.items():
            if [part.shape for part in parts] != [part.shape for part in start]:
                raise InputError(
                    f"The 'updates' of {owner!r} must have the shapes of 'before', {[part.shape for part in start]}. "
                    f"Got {[part.shape for part in parts]} instead."
                )
            if not weights[owner] > 0:
                raise InputError(f"The 'sizes' must have a positive number for every owner. {owner!r} has none.")

        def worth(owners: tuple[Any, ...]) -> float:
            if not owners:
                return score(before)
            total = sum(weights[owner] for owner in owners)
            joined = [
                sum((weights[o] / total * sent[o][at] for o in owners), np.zeros_like(part, dtype=np.float64))
                for at, part in enumerate(start)
            ]
            return score(joined if lists else joined[0])

        return cls(tuple(sent), worth)


def _parts(parameters: Any) -> list[npt.NDArray[Any]]:
    return [np.asarray(part) for part in (parameters if isinstance(parameters, list | tuple) else [parameters])]


@dataclass(frozen=True, eq=False, repr=False)
class FederatedValues(Result):
    """Contribution of each owner over the rounds; see :func:`federated_values`.

    Attributes
    ----------
    owners : tuple
        In order of first appearance.
    values, standard_error : ndarray of shape (n_owners,)
        Sum over the rounds, and its standard error from sampling coalitions; 0 if all were enumerated.
    round_values : ndarray of shape (n_rounds, n_owners)
        Values in each round; 0 for owners that did not take part.
    took_part : ndarray of bool of shape (n_rounds, n_owners)
    gains : ndarray of shape (n_rounds,)
        Gain of each round: the sum of its values.
    parameters : mapping
    """

    archive_kind: ClassVar[str] = "shapshift.FederatedValues"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("owners", "values", "standard_error"), "n_owners"),
        **dict.fromkeys(("round_values", "took_part"), "n_rounds n_owners"),
        "gains": "n_rounds",
    }

    owners: tuple[Any, ...]
    values: Floats
    standard_error: Floats
    round_values: Floats
    took_part: npt.NDArray[np.bool_]
    gains: Floats
    parameters: Mapping[str, Any]

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate ``owner``, ``value``, ``standard_error`` and ``rounds``, the number of rounds with the owner."""
        rounds = np.count_nonzero(self.took_part, axis=0)
        columns = {"owner": owner_column(self.owners), "value": self.values, "standard_error": self.standard_error}
        return to_table(columns | {"rounds": rounds}, None, kind or "numpy")

    def plot(self, *, top: int = 20, ax: Any = None) -> Any:
        """Draw the value of each owner with its 95% interval, the highest first; returns the Axes.

        Parameters
        ----------
        top : int, default=20
            Owners to draw.
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_owners

        return plot_owners(self, top=top, ax=ax)

    def __repr__(self) -> str:
        n_rounds, n_owners = self.round_values.shape
        return f"FederatedValues(n_owners={n_owners}, n_rounds={n_rounds}, sum={self.values.sum():.4g})"


@dataclass(frozen=True)
class _RoundGame:
    """The game of one round, for the sampling loop."""

    number: int
    owners: tuple[Any, ...]
    worth: Callable[[tuple[Any, ...]], float]
    warm_start: ClassVar[bool] = False

    @property
    def n_players(self) -> int:
        return len(self.owners)

    def evaluate(self, coalitions: npt.NDArray[Any]) -> Answers:
        given = [self.worth(tuple(self.owners[at] for at in np.flatnonzero(one))) for one in coalitions]
        found = np.array([_number(worth) for worth in given])
        if not np.isfinite(found).all():
            wrong = given[int(np.isfinite(found).argmin())]
            raise InputError(
                f"The 'worth' of round {self.number}, counted from 0, must return one finite number. Got "
                f"{check.quoted(wrong)}."
            )
        return Answers(found[:, None], len(found), 0, "")


def _number(worth: Any) -> float:
    """Return a worth as a number; NaN for anything else."""
    try:
        return float(np.asarray(worth, dtype=np.float64).reshape(()))
    except (TypeError, ValueError):
        return np.nan


def federated_values(
    rounds: Sequence[FederatedRound], *, max_evaluations: int = 1000, random_state: int | None = 0
) -> FederatedValues:
    """Value the owners of data that stay with them, from the rounds of a federated training.

    The value of an owner is the sum, over the rounds it took part in, of its Shapley value among the participants of
    the round (Wang et al. 2020). Owners are compared on the shared model of each round, so no round is trained again;
    the values add up to the total gain of all rounds. An owner gets nothing for a round it was not chosen for, so the
    order and number of its rounds matter.

    Parameters
    ----------
    rounds : sequence of FederatedRound
    max_evaluations : int, default=1000
        Calls of each round's ``worth``. If they suffice for all coalitions of up to 16 participants, values are exact;
        otherwise participants join in random orders, at least two.
    random_state : int or None, default=0
        Seed.

    Returns
    -------
    FederatedValues

    Examples
    --------
    >>> from shapshift import FederatedRound, federated_values
    >>> first = FederatedRound(["ann", "bob"], lambda owners: 0.5 + 0.1 * len(owners))
    >>> second = FederatedRound(["bob"], lambda owners: 0.7 + 0.2 * len(owners))
    >>> federated_values([first, second]).values.round(3)
    array([0.1, 0.3])
    """
    check.check_count("federated_values", "max_evaluations", max_evaluations, 5)
    if not isinstance(rounds, Iterable):
        raise check.wrong("federated_values", "rounds", "a list of FederatedRound objects", rounds)
    listed: list[Any] = list(rounds)
    if not listed or not all(isinstance(one, FederatedRound) and len(one.participants) for one in listed):
        raise InputError(
            "The 'rounds' parameter of federated_values must hold FederatedRound objects with participants. Got "
            f"{len(listed)} entries, some of another kind or empty; leave out rounds without participants."
        )
    owners = tuple(dict.fromkeys(owner for one in listed for owner in one.participants))
    place = {owner: number for number, owner in enumerate(owners)}
    seed = check.check_seed("federated_values", random_state)
    values, variances = np.zeros((len(listed), len(owners))), np.zeros(len(owners))
    took_part, calls = np.zeros(values.shape, dtype=bool), 0
    for number, one in enumerate(listed):
        # The listed order of the participants must not change the draws.
        playing = tuple(sorted(one.participants, key=repr))
        if len(set(playing)) < len(playing):
            raise InputError(f"The participants of round {number}, counted from 0, must differ. Got {playing}.")
        # The loop asks for a budget of one more than all coalitions, but does not spend it.
        sampler = choose_sampler("federated_values", "auto", "shapley", len(playing), max_evaluations + 1)
        plan = SamplingPlan(
            sampler=sampler,
            chances=size_chances(len(playing), "shapley"),
            total=np.ones(1),
            seed=int(np.random.SeedSequence([seed, number]).generate_state(1)[0]),
            max_fits=max(max_evaluations + sampler.once, 2 * len(playing) + 2),
            cache_bytes=CACHE_BYTES,
        )
        outcome = run_sampler(_RoundGame(number, playing, one.worth), plan)  # type: ignore[arg-type]  # a game too
        at = [place[owner] for owner in playing]
        values[number, at], took_part[number, at] = outcome.values, True
        variances[at] += outcome.standard_error**2
        calls += outcome.fits
    about = {"method": "federated_values", "n_rounds": len(listed), "n_evaluations": calls, "random_state": seed}
    return FederatedValues(owners, values.sum(axis=0), np.sqrt(variances), values, took_part, values.sum(axis=1), about)
