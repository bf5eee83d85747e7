"""The one loop of all samplers: rounds in waves, fits by workers, a look at the precision, a checkpoint, again."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from shapshift._parallel import worker_pool
from shapshift._progress import progress_bar
from shapshift.sampled._estimate import Estimate, relative_error
from shapshift.sampled._game import Answers
from shapshift.sampled._protocol import Floats, Observations, Round, Sampler, Setting
from shapshift.sampled._store import Checkpoint, Store, coalition_key

# Rounds run together until they make about so many fits; between waves the precision is looked at. The number depends
# on nothing but the game, so that the number of workers changes no result.
WAVE_FITS = 256
# Fewer rounds say too little about their own precision to stop for it.
LEAST_ROUNDS = 16
# Where nearly all coalitions are known already, fits no longer bound a run: so many coalitions per allowed fit do.
ASKED_PER_FIT = 20
SECONDS_PER_SAVE = 30.0
# A batch of fits that are handed out together takes about so long.
BATCH_SECONDS = (0.3, 1.5)


class Playable(Protocol):
    """What the loop needs of a game."""

    @property
    def n_players(self) -> int:
        """Number of players."""

    @property
    def warm_start(self) -> bool:
        """Whether each fit starts from the one before."""

    def evaluate(self, coalitions: npt.NDArray[Any]) -> Answers:
        """Return the utilities of coalitions; a pure function."""


@dataclass(frozen=True)
class Plan:
    """How a game is to be sampled.

    Attributes
    ----------
    sampler : Sampler
    chances : ndarray
        Size probabilities of the semivalue.
    total : ndarray of shape (n_cells,)
        ``cells @ total`` is the utility over all validation points.
    seed, max_fits : int
    tol : float or None
        See :func:`shapshift.sampled._estimate.relative_error`.
    classes : ndarray or None
        Class of each player.
    cache_bytes : int
    checkpoint : path-like or None
    identity : mapping
        What the checkpoint is of.
    """

    sampler: Sampler
    chances: Floats
    total: Floats
    seed: int
    max_fits: int
    tol: float | None = None
    classes: npt.NDArray[np.int64] | None = None
    n_jobs: int | None = 1
    progress: bool | None = False
    cache_bytes: int = 0
    checkpoint: Any = None
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What sampling found.

    Attributes
    ----------
    cells : ndarray of shape (n_players, n_cells)
    values, standard_error : ndarray of shape (n_players,)
    empty, full : float or None
        Utilities of nobody and of everybody over all validation points; None where the sampler has another utility.
    precision : float
        Largest standard error in standard deviations of the values.
    rounds, fits, asked : int
        Rounds, model fits, and coalitions whose utility was asked for.
    observations : int
        How many observations at least are behind each mean.
    stopped : {"complete", "precision", "budget"}
    warned : int
        Fits in which the estimator warned; ``warning`` is the first.
    """

    cells: Floats
    values: Floats
    standard_error: Floats
    empty: float | None
    full: float | None
    precision: float
    rounds: int
    fits: int
    asked: int
    observations: int
    stopped: str
    warned: int
    warning: str


def run_sampler(game: Playable, plan: Plan) -> Outcome:
    """Sample until one round is enough, the precision is reached, or the budget is spent."""
    sampler = plan.sampler
    estimate = Estimate(np.array(sampler.weights), plan.total, game.n_players)
    store = Store(plan.cache_bytes)
    checkpoint = Checkpoint(plan.checkpoint, plan.identity)
    counters: dict[str, Any] = {"fits": 0, "asked": 0, "warned": 0, "warning": "", "wave": 0}
    with (
        checkpoint.alone(),
        worker_pool(plan.n_jobs) as (workers, run),
        progress_bar("Fitting", plan.max_fits, plan.progress) as advance,
    ):
        counters |= checkpoint.load(estimate, store) or {}
        advance(counters["fits"])
        settled = dict(counters)

        def save() -> None:
            # With warm starts nothing of an unfinished wave is kept, so its fits will be made again.
            checkpoint.save(estimate, store, settled if game.warm_start else counters)

        asking = _Asking(game, run, workers, store, counters, advance, save)
        try:
            setting = _setting(game, plan, asking)
            settled |= counters
            cost = max(sampler.cost(setting), 1)
            _check_budget(plan, cost)
            stopped = ""
            while not stopped:
                # A wave that was interrupted is taken up as it was planned.
                wave = counters["wave"] = counters["wave"] or _next_wave(plan, cost, estimate.rounds, counters)
                first = estimate.rounds
                for found in asking.drive([_round(plan, setting, first + number) for number in range(wave)]):
                    estimate.add(found)
                store.end_wave()
                counters["wave"] = 0
                settled |= counters
                asking.save_now_and_then()
                stopped = _why_stop(plan, cost, estimate, counters)
        except BaseException:
            save()  # also when interrupted: fits are dear
            raise
        save()
    values, error = estimate.values(), np.zeros(game.n_players) if sampler.once else estimate.standard_error()
    return Outcome(
        cells=estimate.cells(),
        values=values,
        standard_error=error,
        empty=float(setting.empty @ plan.total) if sampler.reduction == "mean" else None,
        full=float(setting.full @ plan.total) if sampler.reduction == "mean" else None,
        precision=relative_error(values, error),
        rounds=estimate.rounds,
        fits=counters["fits"],
        asked=counters["asked"],
        observations=int(estimate.counts.min()),
        stopped=stopped,
        warned=counters["warned"],
        warning=counters["warning"],
    )


def _setting(game: Playable, plan: Plan, asking: "_Asking") -> Setting:
    ends = np.stack([np.zeros(game.n_players, dtype=bool), np.ones(game.n_players, dtype=bool)])
    names = [coalition_key(end) for end in ends]
    if not asking.store.ends:
        found = asking.ask([ends])[0]
        asking.store.fresh.clear()
        asking.store.ends |= dict(zip(names, found, strict=True))
    empty, full = (asking.store[name] for name in names)
    return Setting(game.n_players, plan.chances, empty, full, plan.total, plan.classes)


def _round(plan: Plan, setting: Setting, number: int) -> Round:
    return plan.sampler.round(setting, np.random.default_rng(np.random.SeedSequence(plan.seed, spawn_key=(number,))))


def _check_budget(plan: Plan, cost: int) -> None:
    least = 1 + cost * (1 if plan.sampler.once else 2)
    if plan.max_fits < least:
        raise ValueError(
            f"The 'max_fits' parameter of SampledShapley must be at least {least} for sampler={plan.sampler.name!r} "
            f"and {plan.chances.size} players. Got {plan.max_fits} instead."
        )


def _next_wave(plan: Plan, cost: int, rounds: int, counters: Mapping[str, Any]) -> int:
    if plan.sampler.once:
        return 1 - rounds  # 0 when the checkpoint has it already
    wave = max(plan.sampler.together, -(-WAVE_FITS // cost))
    return int(min(wave, max((plan.max_fits - counters["fits"]) // cost, 0)))


def _why_stop(plan: Plan, cost: int, estimate: Estimate, counters: Mapping[str, Any]) -> str:
    if plan.sampler.once:
        return "complete"
    spent = plan.max_fits - counters["fits"] < cost or estimate.rounds * cost >= ASKED_PER_FIT * plan.max_fits
    if not estimate.complete:
        if spent:
            raise ValueError(
                f"The 'max_fits' parameter of SampledShapley is spent, and {plan.sampler.name!r} has not observed "
                f"every player yet. Raise it from {plan.max_fits}."
            )
        return ""
    enough = plan.tol is not None and estimate.rounds >= LEAST_ROUNDS
    if enough and relative_error(estimate.values(), estimate.standard_error()) <= (plan.tol or 0.0):
        return "precision"
    return "budget" if spent else ""


class _Asking:
    """Answers what rounds ask for: from the store where it is known, else from workers."""

    def __init__(
        self,
        game: Playable,
        run: Callable[[Callable[..., Any], Any], list[Any]],
        workers: int,
        store: Store,
        counters: dict[str, Any],
        advance: Callable[[int], None],
        save: Callable[[], None],
    ) -> None:
        self.game, self.run, self.workers, self.store = game, run, workers, store
        self.counters, self.advance, self.save = counters, advance, save
        self._batch = workers
        self._saved = time.monotonic()

    def drive(self, rounds: list[Round]) -> list[Observations]:
        """Run rounds side by side to their end; observations come in the order of the rounds."""
        found: dict[int, Observations] = {}
        waiting: dict[int, npt.NDArray[Any]] = {}
        asked = 0
        for number, generator in enumerate(rounds):
            _advance(number, generator, None, waiting, found)
        while waiting:
            numbers = list(waiting)
            asked += sum(len(request) for request in waiting.values())
            for number, answer in zip(numbers, self.ask([waiting.pop(number) for number in numbers]), strict=True):
                _advance(number, rounds[number], answer, waiting, found)
        self.counters["asked"] += asked
        return [found[number] for number in range(len(rounds))]

    def ask(self, requests: list[npt.NDArray[Any]]) -> list[Floats]:
        """Return the utilities of the coalitions of each request."""
        if self.game.warm_start:
            # A fit that starts from the one before depends on it: requests stay whole, and nothing is looked up.
            return [answers.utilities for answers in self._evaluate(requests, whole=True)]
        keys = [[coalition_key(coalition) for coalition in request] for request in requests]
        missing = {
            key: coalition
            for listed, request in zip(keys, requests, strict=True)
            for key, coalition in zip(listed, request, strict=True)
            if key not in self.store
        }
        if missing:
            names = list(missing)
            done = 0
            for answers in self._evaluate([np.array(list(missing.values()))], whole=False):
                for utilities in answers.utilities:
                    self.store.fresh[names[done]] = utilities
                    done += 1
                self.save_now_and_then()
        return [np.array([self.store[key] for key in listed]) for listed in keys]

    def _evaluate(self, requests: list[npt.NDArray[Any]], *, whole: bool) -> Iterator[Answers]:
        """Yield answers in order, a batch of tasks at a time, so that progress shows and checkpoints are written."""
        if whole:
            tasks = iter(requests)
            while batch := [task for _, task in zip(range(self.workers), tasks, strict=False)]:
                yield from self._count(self.run(self.game.evaluate, batch))
            return
        (coalitions,) = requests
        low = 0
        while low < len(coalitions):
            batch = np.array_split(coalitions[low : low + self._batch], min(self.workers, len(coalitions) - low))
            low += self._batch
            started = time.monotonic()
            yield from self._count(self.run(self.game.evaluate, [part for part in batch if len(part)]))
            elapsed = time.monotonic() - started
            if elapsed < BATCH_SECONDS[0]:
                self._batch *= 2
            elif elapsed > BATCH_SECONDS[1]:
                self._batch = max(self.workers, self._batch // 2)

    def _count(self, answers: list[Answers]) -> Iterator[Answers]:
        """Yield answers, each counted just before it is taken: what a checkpoint counts, it must also hold."""
        for part in answers:
            self.counters["fits"] += part.fits
            self.counters["warned"] += part.warned
            self.counters["warning"] = self.counters["warning"] or part.warning
            self.advance(part.fits)
            yield part

    def save_now_and_then(self) -> None:
        """Write the checkpoint if the last one is old enough."""
        if time.monotonic() - self._saved >= SECONDS_PER_SAVE:
            self.save()
            self._saved = time.monotonic()


def _advance(
    number: int,
    generator: Round,
    answer: Floats | None,
    waiting: dict[int, npt.NDArray[Any]],
    found: dict[int, Observations],
) -> None:
    """Hand a round its answer; it asks for more or is done."""
    try:
        waiting[number] = next(generator) if answer is None else generator.send(answer)
    except StopIteration as done:
        found[number] = done.value
