"""Levels of an audit: the perturbation, name, seeds and axis position of each."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError
from shapshift.perturb import GaussianNoise, OnPoints, Perturbation, as_perturbation
from shapshift.perturb.base import FunctionPerturbation, digest, plain, without_seeds

#: Axis of levels of Gaussian noise; larger is stronger.
NOISE = "noise"
#: Axis of levels that cannot be ordered by one number.
UNORDERED = "perturbation"
#: Parameter of the second and later of equal levels; its spaces keep it from being the name of another parameter.
PLACE = "place among equals"


@dataclass(frozen=True)
class Level:
    """One level of an audit.

    Attributes
    ----------
    name : float or str
        Noise level, or name of the perturbation; names are unique within an audit.
    perturbation : Perturbation
    parameters : dict
        Parameters of the perturbation, without seeds. The second and later of equal ones are numbered, see ``PLACE``.
    """

    name: Any
    perturbation: Perturbation
    parameters: dict[str, Any]

    def seeds(self, seed: int, repeats: int) -> Iterator[int]:
        """Seeds of the level. They depend on its parameters, not on other levels or on the process.

        Parameters
        ----------
        seed : int
            Seed of the whole audit.
        repeats : int
            Number of seeds.
        """
        place = {PLACE: self.parameters[PLACE]} if PLACE in self.parameters else {}
        made_from = without_seeds(self.perturbation.seeded_by) | place
        words = tuple(int(word) for word in np.frombuffer(digest(made_from), dtype="<u4"))
        for repeat in range(repeats):
            sequence = np.random.SeedSequence(seed, spawn_key=(*words, repeat))
            yield int(sequence.generate_state(1, np.uint64)[0])


def read_levels(noise: Any, perturbations: Any, relative: bool, *, caller: str = "audit_shift") -> list[Level]:
    """Return checked levels from the caller's arguments.

    Parameters
    ----------
    noise : sequence of float or None
    perturbations : sequence of perturbation or function, or None
        One of the two must be given.
    relative : bool
        Whether ``noise`` is in units of each feature's standard deviation.
    caller : str
        Name of the calling function, for messages.

    Returns
    -------
    list of Level
    """
    if (noise is None) == (perturbations is None):
        raise InputError(
            f"{caller} takes either 'noise', a list of levels, or 'perturbations', a list of perturbations. Got "
            + ("neither." if noise is None else "both.")
        )
    name, given = ("noise", noise) if perturbations is None else ("perturbations", perturbations)
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise InputError(f"The {name!r} parameter of {caller} must be a list of levels. Got {given!r} instead.")
    entries = list(given)
    if not entries:
        raise InputError(f"The {name!r} parameter of {caller} is empty: at least one level is needed.")
    check.check_flag(caller, "relative", relative)
    if noise is not None:
        return _numbered([_noise_level(caller, entry, bool(relative)) for entry in entries])
    if relative:
        raise InputError(
            f"The 'relative' parameter of {caller} goes with 'noise'. With 'perturbations', pass "
            "GaussianNoise(..., relative=True)."
        )
    made = [as_perturbation(entry) for entry in entries]
    return _numbered([Level(_title(one), one, without_seeds(one.parameters)) for one in made])


def perturbed_sets(
    model: Any, X_val: Any, y_val: Any, levels: list[Level], seed: int, repeats: int
) -> Iterator[tuple[Any, Any]]:
    """Perturb a validation set level by level, repeat by repeat.

    Parameters
    ----------
    model : fitted estimator
        Model that perturbations are bound to.
    X_val, y_val, levels, seed, repeats
        See :func:`shapshift.audit_shift`.
    """
    for level in levels:
        bound = level.perturbation.bind(model)
        for run_seed in level.seeds(seed, repeats):
            yield bound.with_seed(run_seed)(X_val, y_val)


def level_axis(levels: list[Level], noise: bool) -> tuple[str, npt.NDArray[np.float64]]:
    """Return the axis of the levels and their positions: the number in which they differ, if there is one."""
    if noise:
        return NOISE, np.array([level.name for level in levels])
    given = [_flat(level) for level in levels]
    first = given[0]
    if all(entry.keys() == first.keys() for entry in given):
        varying = [key for key in first if any(entry[key] != first[key] for entry in given)]
        columns = [[entry[key] for entry in given] for key in varying]
        numeric = all(isinstance(x, int | float) and not isinstance(x, bool) for column in columns for x in column)
        # A second number may differ too if the first determines it, as epsilon determines the scale of Laplace noise.
        if varying and numeric and len(set(columns[0])) == len(levels):
            return varying[0].replace("_", " "), np.array(columns[0], dtype=np.float64)
    return UNORDERED, np.arange(len(levels), dtype=np.float64)


def _flat(level: Level) -> dict[str, Any]:
    """Parameters of a level; for a perturbation of some points, its parameters and the points."""
    if not isinstance(level.perturbation, OnPoints):
        return level.parameters
    return {**level.parameters["perturbation"], **level.parameters, "perturbation": None}


def _noise_level(caller: str, level: Any, relative: bool) -> Level:
    check.check_number(caller, "noise", level)
    perturbation = GaussianNoise(float(level), relative=relative)
    return Level(float(level), perturbation, without_seeds(perturbation.parameters))


def _numbered(levels: list[Level]) -> list[Level]:
    """Add numbers to levels that have equal parameters or equal names."""
    same: Counter[bytes] = Counter()
    titles: Counter[str] = Counter()
    numbered = []
    for level in levels:
        name, parameters, key = level.name, level.parameters, digest(level.parameters)
        same[key] += 1
        if same[key] > 1:
            parameters = parameters | {PLACE: same[key]}
        if isinstance(name, str):
            titles[name] += 1
            name = name if titles[name] == 1 else f"{name} #{titles[name]}"
        numbered.append(Level(name, level.perturbation, parameters))
    return numbered


def _title(perturbation: Perturbation) -> str:
    """Name of a perturbation with its non-default parameters."""
    steps = getattr(perturbation, "steps", None)
    if steps is not None:
        return " | ".join(_title(step) for step in steps)
    if isinstance(perturbation, OnPoints):
        return f"{_title(perturbation.perturbation)} on {perturbation.points} points"
    parameters = without_seeds(perturbation.parameters)
    if isinstance(perturbation, FunctionPerturbation):
        shown = [key for key in parameters if key != "name"]
    else:
        defaults = {field.name: plain(field.default) for field in fields(perturbation)}
        shown = [name for name in defaults if name in parameters and parameters[name] != defaults[name]]
    given = [f"{name}={parameters[name]}" for name in shown]
    return f"{parameters['name']}({', '.join(given)})" if given else str(parameters["name"])
