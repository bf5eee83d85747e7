"""Values of small validation sets, clean and under noise, streamed: only statistics and one example are kept."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift import _validation as check
from shapshift.mechanism._points import Source, look
from shapshift.mechanism._results import Example, signs
from shapshift.perturb import as_perturbation
from shapshift.perturb.base import must_keep_points, without_seeds
from shapshift.perturb.containers import take_rows
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Noisy repeats are valued in chunks that keep this much of their values at a time.
CHUNK_BYTES = 16 * 2**20


@dataclass(frozen=True)
class Plan:
    """How to perturb: checked parameters that all cases share."""

    owner: str
    levels: Floats
    example: float
    repeats: int
    perturbation: Callable[[float], Any]
    random_state: int


def check_plan(
    owner: str, noise: Any, example: float | None, repeats: int, perturbation: Callable[[float], Any], random_state: int
) -> Plan:
    """Check what all cases share."""
    given = np.atleast_1d(np.asarray(noise))
    numbers = given.ndim == 1 and given.dtype.kind in "iuf"
    levels = given.astype(np.float64) if numbers else np.empty(0)
    if levels.size == 0 or not np.isfinite(levels).all() or levels.min() < 0 or np.unique(levels).size < levels.size:
        raise ValueError(
            f"The 'noise' parameter of {owner} must hold different numbers of at least 0. Got {noise!r} instead."
        )
    levels = levels[levels > 0]  # the clean points are level 0 of every case
    if levels.size == 0:
        raise ValueError(f"The 'noise' parameter of {owner} must hold a level above 0. Got {noise!r} instead.")
    if example is None:
        example = float(levels[levels.size // 2])
    elif example not in levels:
        raise ValueError(
            f"The 'example' parameter of {owner} must be one of the noise levels above 0: "
            f"{check.some(levels.tolist())}. Got {example!r} instead."
        )
    if not callable(perturbation):
        raise TypeError(
            f"The 'perturbation' parameter of {owner} must be a callable that makes a perturbation from a noise level, "
            f"such as GaussianNoise. Got {perturbation!r} instead."
        )
    check.check_count(owner, "repeats", repeats)
    check.check_count(owner, "random_state", random_state, 0)
    return Plan(owner, levels, float(example), int(repeats), perturbation, int(random_state))


@dataclass(frozen=True, eq=False)
class SetValues:
    """Values on a validation set of one or two points, and what its points are like."""

    values: Floats
    boundary: npt.NDArray[np.bool_]
    votes: Ints | None


Statistics = Callable[[SetValues, SetValues], dict[str, float]]


def one_statistics(before: SetValues, after: SetValues) -> dict[str, float]:
    """Compute the statistics of case I; :class:`CaseOne` says what they are."""
    was, now = signs(before.values) > 0, signs(after.values) > 0
    spread = np.ptp(after.values)
    same_vote = np.nan if after.votes is None or before.votes is None else float(after.votes[0] == before.votes[0])
    return {
        "min": after.values.min(),
        "max": after.values.max(),
        "range": spread,
        "std": after.values.std(),
        "positive_count": np.count_nonzero(now),
        "range_ratio": _ratio(spread, np.ptp(before.values)),
        "std_ratio": _ratio(after.values.std(), before.values.std()),
        "sign_kept": float(np.mean(was == now)),
        "prediction_changed": 1 - same_vote,
        "boundary": float(after.boundary[0]),
    }


def two_statistics(before: SetValues, after: SetValues) -> dict[str, float]:
    """Compute the statistics of case II; :class:`CaseTwo` says what they are."""
    was, now = signs(before.values), signs(after.values)
    return {
        "positive_to_negative": np.count_nonzero((was > 0) & (now <= 0)),
        "negative_to_positive": np.count_nonzero((was <= 0) & (now > 0)),
        "positive_to_zero": np.count_nonzero((was > 0) & (now == 0)),
        "zero_to_positive": np.count_nonzero((was == 0) & (now > 0)),
        "positive_count": np.count_nonzero(now > 0),
        "positive_change": np.count_nonzero(now > 0) - np.count_nonzero(was > 0),
        "std": after.values.std(),
        "std_ratio": _ratio(after.values.std(), before.values.std()),
    }


def _ratio(new: float, old: float) -> float:
    return new / old if old > 0 else np.nan


def measure(
    source: Source, sets: Ints, plan: Plan, n_train: int, statistics: Statistics
) -> tuple[MappingProxyType[str, Floats], Example, Any]:
    """Value each set of points clean and under noise; nothing is kept but statistics and one example."""
    samples: dict[str, Floats] = {}
    shape = (plan.levels.size + 1, len(sets), plan.repeats)
    example, moved = None, None

    def record(level: int, at: int, repeat: int | slice, found: dict[str, float]) -> None:
        for name, number in found.items():
            samples.setdefault(name, np.empty(shape))[level, at, repeat] = number

    for at, positions in enumerate(sets):
        (before,) = set_values(
            source, take_rows(source.X, positions), source.labels[positions], positions.size, n_train
        )
        record(0, at, slice(None), statistics(before, before))
        for level, noise in enumerate(plan.levels.tolist(), start=1):
            X, y = perturbed(source, positions, plan, noise, at)
            for repeat, after in enumerate(set_values(source, X, y, positions.size, n_train)):
                record(level, at, repeat, statistics(before, after))
                if at == 0 and repeat == 0 and noise == plan.example:
                    example = Example(noise, before.values.copy(), after.values.copy())  # not a view of the chunk
                    moved = take_rows(X, np.arange(positions.size))
    assert example is not None  # its level is one of the levels
    return MappingProxyType(samples), example, moved


def set_values(source: Source, X: Any, y: Any, size: int, n_train: int) -> Iterator[SetValues]:
    """Values of each run of ``size`` points as a validation set of its own."""
    grouped = "groups" in signature(source.model.value).parameters
    step = size * (max(1, CHUNK_BYTES // (8 * n_train)) if grouped else 1)
    for start in range(0, len(y), step):
        rows = np.arange(start, min(start + step, len(y)))
        options = {"groups": rows // size} if grouped else {}
        seen = look(source, take_rows(X, rows), y[rows], **options)
        means = seen.valuation.group_means if grouped else seen.valuation.values[None]
        for k, values in enumerate(means):
            own = slice(k * size, (k + 1) * size)
            yield SetValues(values, seen.valuation.boundary[own], None if seen.votes is None else seen.votes[own])


def perturbed(source: Source, positions: Ints, plan: Plan, noise: float, at: int) -> tuple[Any, npt.NDArray[Any]]:
    """All noisy repeats of the same points, one after the other."""
    rows = np.tile(positions, plan.repeats)
    perturb = as_perturbation(plan.perturbation(noise)).bind(source.model)
    perturb = perturb.with_seed(int(np.random.SeedSequence([plan.random_state, at]).generate_state(1)[0]))
    labels = source.labels[rows]
    X, y = perturb(take_rows(source.X, rows), labels)
    must_keep_points(
        f"The 'perturbation' parameter of {plan.owner} must keep the {rows.size} validation points", perturb, labels, y
    )
    return X, np.asarray(y)


def parameters(plan: Plan, sets: Ints, valuation: Valuation) -> MappingProxyType[str, Any]:
    """Say what made a result, in plain values."""
    made = as_perturbation(plan.perturbation(plan.example)).parameters
    return MappingProxyType(
        {
            "case": plan.owner,
            "points": sets.tolist(),
            "noise": plan.levels.tolist(),
            "example": plan.example,
            "repeats": plan.repeats,
            "random_state": plan.random_state,
            "perturbation": without_seeds(made),
            "valuation": {name: value for name, value in valuation.parameters.items() if name != "n_val"},
            "fingerprint": valuation.fingerprint,
        }
    )
