"""The sampling loop shared by all samplers: waves of rounds, parallel fits, precision checks and checkpoints."""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shapshift._progress import progress_bar
from shapshift.checks.warnings import warn
from shapshift.engine.checkpoint import seconds_between_saves
from shapshift.engine.estimate import Estimate, Observations, relative_error
from shapshift.engine.parallel import worker_pool
from shapshift.exceptions import InputError
from shapshift.io.archive import Arrays, read_archive, write_archive
from shapshift.io.files import locked
from shapshift.sampled.game import Answers, Game
from shapshift.sampled.samplers import Round, Sampler, Setting

Floats = npt.NDArray[np.float64]

# Number of fits of a wave, the rounds that run together between two checks of the precision. It depends only on the
# game, so that the number of workers changes no result.
WAVE_FITS = 256
# Memory bound of the observations of a wave, which still has at least one round, or those that run together.
WAVE_BYTES = 2**27
# Least number of rounds before a run may stop on its precision, which fewer rounds estimate badly.
LEAST_ROUNDS = 16
# Limit on requested coalitions per allowed fit: if nearly all are cached, the number of fits does not bound a run.
ASKED_PER_FIT = 20
# Target duration of a batch of fits, in seconds.
BATCH_SECONDS = (0.3, 1.5)
KIND, VERSION = "shapshift.SampledShapley checkpoint", 2
# Bytes of Python overhead for a key and its array.
ENTRY_BYTES = 250
PARTS = ("ends", "kept", "fresh")


def coalition_key(coalition: npt.NDArray[Any]) -> bytes:
    """Key of a coalition: a bit per player, or a count if players can occur more than once."""
    if coalition.dtype == np.bool_:
        return np.packbits(coalition).tobytes()
    return coalition.astype(np.int32).tobytes()


class UtilityCache(dict[bytes, Floats]):
    """Utilities by coalition; the first two entries are those of no player and of all players."""

    def drop_oldest(self, max_bytes: int) -> None:
        """Keep the first two entries, and as many of the newest others as ``max_bytes`` hold."""
        others = list(self)[2:]
        if others:
            excess = len(others) - max_bytes // (len(others[0]) + self[others[0]].nbytes + ENTRY_BYTES)
            for old in others[: max(excess, 0)]:
                del self[old]


class Checkpoint:
    """A file with the state of a run.

    Parameters
    ----------
    path : path-like or None
        None writes nothing.
    identity : mapping of str to str
        Identifies the run, part by part. A file of another run is refused with a message that names the differing
        parts.
    """

    def __init__(self, path: str | os.PathLike[str] | None, identity: Mapping[str, str]) -> None:
        self.path, self.identity = path, dict(identity)

    @contextmanager
    def locked(self) -> Iterator[Self]:
        """Lock the file for the duration of a run; refuse one that another process is using."""
        if self.path is None:
            yield self
            return
        path = Path(os.path.abspath(self.path))
        if not path.parent.is_dir():
            raise InputError(
                f"The 'checkpoint' parameter must name a file in an existing folder. Got {str(self.path)!r}; create "
                f"the folder {str(path.parent)!r} first."
            )
        with locked(path.with_name(f"{path.name}.lock")) as ours:
            if not ours:
                raise InputError(
                    f"The 'checkpoint' file {str(self.path)!r} is in use by another process. Wait "
                    "for it to end, or name another file."
                )
            yield self

    def load(self, estimate: Estimate, cache: UtilityCache) -> dict[str, Any] | None:
        """Restore a saved state into ``estimate`` and ``cache`` and return its counters; None if there is no file."""
        if self.path is None or not Path(self.path).exists():
            return None
        header, arrays = read_archive(self.path, KIND, VERSION)
        theirs = header["identity"]
        other = [part for part in self.identity if theirs.get(part) != self.identity[part]]
        if other:
            shown = [
                f"{part} ({theirs.get(part)} there, {self.identity[part]} here)"
                if max(len(str(theirs.get(part))), len(self.identity[part])) < 80
                else part
                for part in other
            ]
            raise InputError(
                f"The 'checkpoint' file {str(self.path)!r} belongs to another run: it differs in {', '.join(shown)}. "
                "Name another file, or delete this one to start over."
            )
        if any(arrays[name].shape != getattr(estimate, name).shape for name in Estimate.saved):
            raise InputError(
                f"The 'checkpoint' file {str(self.path)!r} does not fit this run. Delete it to start over."
            )
        estimate.rounds = header["counters"]["rounds"]
        for name in Estimate.saved:
            setattr(estimate, name, arrays[name])
        for name in PARTS:
            for key, utilities in zip(arrays[f"{name}_keys"], arrays[f"{name}_utilities"], strict=True):
                cache[key.tobytes()] = utilities
        return dict(header["counters"])

    def save(self, estimate: Estimate, cache: UtilityCache, counters: Mapping[str, Any]) -> None:
        """Write the file atomically."""
        if self.path is None:
            return
        arrays: Arrays = {name: getattr(estimate, name) for name in Estimate.saved}
        # Keys of the first two entries may have another length. The last part is kept for compatibility with earlier
        # releases.
        for name, keys in zip(PARTS, (list(cache)[:2], list(cache)[2:], []), strict=True):
            arrays[f"{name}_keys"] = np.array([np.frombuffer(key, dtype=np.uint8) for key in keys], dtype=np.uint8)
            arrays[f"{name}_utilities"] = np.array([cache[key] for key in keys], dtype=np.float64)
        header = {"identity": self.identity, "counters": {**counters, "rounds": estimate.rounds}}
        write_archive(self.path, KIND, VERSION, header, arrays)


@dataclass(frozen=True)
class SamplingPlan:
    """Settings of a sampling run.

    Attributes
    ----------
    sampler : Sampler
    chances : ndarray
        Size probabilities of the semivalue.
    total : ndarray of shape (n_cells,)
        ``cells @ total`` is the utility over all validation points.
    seed, max_fits : int
    blocks : int
        Number of cells that are blocks of validation points; these are the last cells.
    tol : float or None
        See :func:`shapshift.engine.estimate.relative_error`.
    classes : ndarray or None
        Class of each player.
    cache_bytes : int
    checkpoint : path-like or None
    identity : mapping
        Identifies the run in the checkpoint.
    """

    sampler: Sampler
    chances: Floats
    total: Floats
    seed: int
    max_fits: int
    blocks: int = 0
    tol: float | None = None
    classes: npt.NDArray[np.int64] | None = None
    n_jobs: int | None = 1
    progress: bool | None = False
    cache_bytes: int = 0
    checkpoint: Any = None
    identity: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """Result of a sampling run.

    Attributes
    ----------
    cells : ndarray of shape (n_players, n_cells)
    values, standard_error, degrees_of_freedom : ndarray of shape (n_players,)
        Values on exactly these validation points, their standard errors from sampling coalitions, and the degrees of
        freedom of these errors.
    empty, full : float or None
        Utilities of no player and of all players over all validation points; None if the sampler uses another utility.
    precision : float
        Largest standard error, in standard deviations of the values.
    rounds, fits, asked : int
        Rounds, model fits, and coalitions whose utility was asked for.
    observations : int
        Smallest number of observations behind a mean.
    stopped : {"complete", "precision", "budget"}
    warned : int
        Fits in which the estimator warned; ``warning`` is the first.
    notes : mapping
        The sampler's notes on its rounds.
    """

    cells: Floats
    values: Floats
    standard_error: Floats
    degrees_of_freedom: Floats
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
    notes: Mapping[str, Any]

    def describe(self) -> dict[str, Any]:
        """Return numbers about the run, for the parameters of the result."""
        return {
            "utility_of_all": self.full,
            "utility_of_none": self.empty,
            "n_fits": self.fits,
            "n_rounds": self.rounds,
            "n_observations": self.observations,
            "n_coalitions": self.asked,
            "precision": self.precision if np.isfinite(self.precision) else None,
            "stopped": self.stopped,
            **self.notes,
        }

    def warn(self, tol: float | None, max_fits: int) -> None:
        """Pass on the estimator's warnings, and warn if the requested precision was not reached."""
        if self.warned:
            warn(
                f"The estimator warned in {self.warned} of {self.fits} fits, first: {self.warning} "
                "Utilities of these models may be wrong. Fix the cause, or silence the warning in the estimator."
            )
        if tol is not None and self.stopped == "budget" and not self.precision <= tol:
            warn(
                f"Sampling did not reach the requested tolerance: after {self.fits} fits the largest standard error is "
                f"{self.precision:.2g} standard deviations of the values; 'tol' asks for {tol:g}. Raise "
                f"'max_fits' from {max_fits}, or value fewer players."
            )


def run_sampler(game: Game, plan: SamplingPlan) -> Outcome:
    """Sample until one round suffices, the precision is reached, or the budget is spent."""
    with (
        Checkpoint(plan.checkpoint, plan.identity).locked() as checkpoint,
        worker_pool(plan.n_jobs) as (workers, call),
        progress_bar("Fitting", plan.max_fits, plan.progress) as advance,
    ):
        run = _Run(game, plan, checkpoint, workers, call, advance)
        try:
            stopped = run.sample()
        finally:
            run.save()  # even when interrupted, because fits take long
    estimate, sampler = run.estimate, plan.sampler
    values, (error, freedom) = estimate.values(), estimate.standard_error()
    if sampler.once:
        error, freedom = np.zeros(game.n_players), np.full(game.n_players, np.inf)
    ends = list(run.cache.values())[:2] if sampler.reduction == "mean" else []
    empty, full = (float(end @ plan.total) for end in ends) if ends else (None, None)
    return Outcome(
        cells=estimate.cells(),
        values=values,
        standard_error=error,
        degrees_of_freedom=freedom,
        empty=empty,
        full=full,
        precision=relative_error(values, error),
        rounds=estimate.rounds,
        observations=int(estimate.counts.min()),
        stopped=stopped,
        notes=sampler.summary(run.counters["notes"]),
        **{name: run.counters[name] for name in ("fits", "asked", "warned", "warning")},
    )


class _Run:
    """State of a run. It answers the requests of rounds from the cache or, if unknown, with new fits by workers."""

    def __init__(
        self,
        game: Game,
        plan: SamplingPlan,
        checkpoint: Checkpoint,
        workers: int,
        call: Callable[[Callable[..., Any], Any], list[Any]],
        advance: Callable[[int], None],
    ) -> None:
        self.game, self.plan, self.checkpoint = game, plan, checkpoint
        self.workers, self.call, self.advance = workers, call, advance
        self.estimate = Estimate(np.array(plan.sampler.weights), plan.total, game.n_players)
        self.cache = UtilityCache()
        self.counters: dict[str, Any] = {"fits": 0, "asked": 0, "warned": 0, "warning": "", "wave": 0, "notes": {}}
        self.counters |= checkpoint.load(self.estimate, self.cache) or {}
        self.settled = dict(self.counters)  # at the end of the last wave
        advance(self.counters["fits"])
        self._batch = workers
        self._began = self._saved = time.monotonic()
        self._took = 0.0

    def sample(self) -> str:
        """Run waves of rounds; return the reason for stopping."""
        estimate, counters, plan = self.estimate, self.counters, self.plan
        setting = self._setting()
        estimate.prior_variance = plan.sampler.prior_variance(setting)
        self.settled |= counters
        cost = max(plan.sampler.cost(setting), 1)
        self._check_budget(cost)
        stopped = ""
        while not stopped:
            # An interrupted wave resumes as planned.
            counters["wave"] = counters["wave"] or self._next_wave(cost, setting)
            first = estimate.rounds
            seeds = (np.random.SeedSequence(plan.seed, spawn_key=(first + k,)) for k in range(counters["wave"]))
            for found in self.drive([plan.sampler.round(setting, np.random.default_rng(seed)) for seed in seeds]):
                estimate.add(found)
                noted = counters["notes"]
                counters["notes"] = noted | {name: noted.get(name, 0.0) + note for name, note in found.notes.items()}
            self.cache.drop_oldest(plan.cache_bytes)
            counters["wave"] = 0
            self.settled |= counters
            self._save_now_and_then()
            stopped = self._why_stop(cost)
        return stopped

    def _setting(self) -> Setting:
        n, plan = self.game.n_players, self.plan
        ends = np.stack([np.zeros(n, dtype=bool), np.ones(n, dtype=bool)])
        keys = [coalition_key(end) for end in ends]
        if not all(key in self.cache for key in keys):
            self.cache |= zip(keys, self.ask([ends])[0], strict=True)
        empty, full = (self.cache[key] for key in keys)
        return Setting(n, plan.chances, empty, full, plan.total, plan.classes, plan.blocks)

    def _check_budget(self, cost: int) -> None:
        plan = self.plan
        least = 1 + cost * (1 if plan.sampler.once else 2)
        if plan.max_fits < least:
            raise InputError(
                f"The 'max_fits' parameter of SampledShapley must be at least {least} for "
                f"sampler={plan.sampler.name!r} and {plan.chances.size} players. Got {plan.max_fits} instead."
            )

    def _next_wave(self, cost: int, setting: Setting) -> int:
        plan = self.plan
        if plan.sampler.once:
            return 1 - self.estimate.rounds  # 0 if the checkpoint contains it
        # Each round stores observations, utilities of its cells, and the drawn players.
        most = max(WAVE_BYTES // (8 * (setting.n * (plan.total.size + 2) + setting.full.size)), 1)
        wave = max(plan.sampler.together, min(-(-WAVE_FITS // cost), most))
        return int(min(wave, max((plan.max_fits - self.counters["fits"]) // cost, 0)))

    def _why_stop(self, cost: int) -> str:
        plan, estimate = self.plan, self.estimate
        if plan.sampler.once:
            return "complete"
        spent = plan.max_fits - self.counters["fits"] < cost or estimate.rounds * cost >= ASKED_PER_FIT * plan.max_fits
        if not estimate.complete and spent:
            raise InputError(
                f"The 'max_fits' parameter of SampledShapley is too small: the budget is spent, and "
                f"{plan.sampler.name!r} has not observed every player yet. Raise it from {plan.max_fits}."
            )
        enough = plan.tol is not None and estimate.complete and estimate.rounds >= LEAST_ROUNDS
        if enough and relative_error(estimate.values(), estimate.standard_error()[0]) <= (plan.tol or 0.0):
            return "precision"
        return "budget" if spent else ""

    def drive(self, rounds: list[Round]) -> list[Observations]:
        """Run rounds side by side until all have ended; return observations in the order of the rounds."""
        found: dict[int, Observations] = {}
        answers: dict[int, Any] = dict.fromkeys(range(len(rounds)))  # None starts a round
        asked = 0
        while answers:
            waiting = {}
            for number, answer in answers.items():
                try:
                    waiting[number] = rounds[number].send(answer)
                except StopIteration as done:
                    found[number] = done.value
            asked += sum(map(len, waiting.values()))
            answers = dict(zip(waiting, self.ask(list(waiting.values())), strict=True))
        self.counters["asked"] += asked
        return [found[number] for number in range(len(rounds))]

    def ask(self, requests: list[npt.NDArray[Any]]) -> list[Floats]:
        """Return the utilities of the coalitions of each request."""
        if self.game.warm_start:
            # With warm starts a fit depends on the previous one: requests are not split, and the cache is not used.
            parts = [requests[low : low + self.workers] for low in range(0, len(requests), self.workers)]
            return [answers.utilities for part in parts for answers in self._evaluate(part)]
        keys = [[coalition_key(coalition) for coalition in request] for request in requests]
        missing = {
            key: coalition
            for listed, request in zip(keys, requests, strict=True)
            for key, coalition in zip(listed, request, strict=True)
            if key not in self.cache
        }
        names, coalitions = iter(missing), list(missing.values())
        # Batches, so that progress shows and checkpoints are written in between.
        while coalitions:
            batch, coalitions = np.array(coalitions[: self._batch]), coalitions[self._batch :]
            started = time.monotonic()
            for answers in self._evaluate(np.array_split(batch, min(self.workers, len(batch)))):
                self.cache |= {next(names): utilities for utilities in answers.utilities}
                self._save_now_and_then()
            elapsed = time.monotonic() - started
            if elapsed < BATCH_SECONDS[0]:
                self._batch *= 2
            elif elapsed > BATCH_SECONDS[1]:
                self._batch = max(self.workers, self._batch // 2)
        return [np.array([self.cache[key] for key in listed]) for listed in keys]

    def _evaluate(self, requests: list[npt.NDArray[Any]]) -> Iterator[Answers]:
        """Yield answers, each counted just before it is returned: a checkpoint must hold everything that it counts."""
        for answers in self.call(self.game.evaluate, requests):
            self.counters["fits"] += answers.fits
            self.counters["warned"] += answers.warned
            self.counters["warning"] = self.counters["warning"] or answers.warning
            self.advance(answers.fits)
            yield answers

    def save(self) -> None:
        """Write the checkpoint."""
        # With warm starts an unfinished wave is not saved, so its fits are repeated.
        self.checkpoint.save(self.estimate, self.cache, self.settled if self.game.warm_start else self.counters)

    def _save_now_and_then(self) -> None:
        """Write the checkpoint if the last one is old enough."""
        now = time.monotonic()
        if now - self._saved >= seconds_between_saves(self._took, now - self._began):
            self.save()
            self._saved = time.monotonic()
            self._took = self._saved - now
