"""What a perturbation is, how several make one, and how a plain function becomes one."""

import copy
import inspect
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift import _labels
from shapshift import _validation as check
from shapshift.perturb.containers import count_rows
from shapshift.perturb.identity import bound_arguments, function_name, plain

Pair = tuple[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Perturbation(ABC):
    """A seeded change to a validation set; to write one, give a subclass the method ``apply``.

    NumPy arrays, pandas and polars frames, pyarrow tables and sparse matrices come back as what they were (sparse as
    CSR); other containers of features come back as NumPy arrays. Labels keep their container and type. The ``apply`` of
    a subclass gets copies and may change them in place; what it returns must be a pair with as many labels as rows.

    Parameters
    ----------
    random_state : int, optional
        Same seed, same result. Different kinds of perturbation draw independent numbers from the same seed. None draws
        anew at each call; inside an audit it is reproducible all the same, since the audit seeds it (`with_seed`).

    Attributes
    ----------
    pointwise : bool
        Whether the points stay the same ones in the same order, so that each can be compared with itself. A subclass
        or function need not have it; what asks for it then goes by the number of points and their labels.

    Examples
    --------
    >>> import numpy as np
    >>> from dataclasses import dataclass
    >>> from shapshift.perturb import Perturbation, Round
    >>> @dataclass(frozen=True)
    ... class Shift(Perturbation):
    ...     by: float
    ...     def apply(self, X_val, y_val, rng):
    ...         return X_val + self.by, y_val
    >>> (Shift(0.26) | Round(1))(np.zeros((1, 2)), [0])
    (array([[0.3, 0.3]]), [0])
    """

    random_state: int | None = None
    # How many steps of the same kind come before this one in a composition.
    _place: ClassVar[int] = 0

    def __post_init__(self) -> None:
        if self.random_state is not None:
            check.check_count(self._owner, "random_state", self.random_state, at_least=0)

    def __call__(self, X_val: Any, y_val: Any) -> Pair:
        """Return the changed features and labels."""
        # Kind and place enter the seed: steps that share a seed must not share their random numbers.
        key = (zlib.crc32(self._owner.encode()), *([self._place] if self._place else []))
        rng = np.random.default_rng(np.random.SeedSequence(self.random_state, spawn_key=key))
        if type(self).apply.__module__.startswith(f"{__package__}."):  # ours leave their arguments alone
            return self.apply(X_val, y_val, rng)
        return self._checked(self.apply(copy.deepcopy(X_val), copy.deepcopy(y_val), rng))

    @abstractmethod
    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Change the validation set, drawing only from ``rng``."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Name and parameters, ready for JSON; mappings from labels become lists of pairs, arrays are hashed."""
        return {"name": self._owner} | {field.name: plain(getattr(self, field.name)) for field in fields(self)}

    def with_seed(self, seed: int) -> Self:
        """Return the same perturbation with another seed."""
        return self._with(random_state=check.check_count(self._owner, "seed", seed, at_least=0))

    def bind(self, model: Any) -> Self:
        """Return a copy that knows what it needs of a fitted model; most need nothing."""
        return self

    @property
    def _owner(self) -> str:
        return type(self).__name__

    def _checked(self, result: Any) -> Pair:
        """Refuse anything but a pair with as many labels as rows."""
        sizes: list[Any] = []
        if isinstance(result, tuple) and len(result) == 2:
            sizes = [_size(part) for part in result]
            if sizes[0] == sizes[1] is not None:
                return result
        raise ValueError(
            f"The perturbation {self.parameters['name']!r} must return the pair (X_val, y_val) with as many labels as "
            f"rows. Got {type(result).__name__}" + (f" of sizes {sizes}." if sizes else ".")
        )

    def _with(self, **changes: Any) -> Self:
        changed = copy.copy(self)
        for name, value in changes.items():
            object.__setattr__(changed, name, value)
        return changed

    def __or__(self, other: Any) -> "Compose":
        return Compose(self, other) if callable(other) else NotImplemented

    def __ror__(self, other: Any) -> "Compose":
        return Compose(other, self) if callable(other) else NotImplemented


@dataclass(frozen=True, init=False)
class Compose(Perturbation):
    """Several perturbations, one after the other; also written ``a | b``.

    `with_seed` gives every step a seed of its own, made from the one given and the step's position. Steps that come
    with seeds keep them; of several steps of one kind, each draws numbers of its own even where the seeds are equal,
    and the first draws what it would draw alone.

    Parameters
    ----------
    *steps : perturbation or function
        Applied from first to last.

    Examples
    --------
    >>> from shapshift.perturb import Compose, GaussianNoise, Round
    >>> Compose(GaussianNoise(0.1), Round(1)) == GaussianNoise(0.1) | Round(1)
    True
    """

    steps: tuple[Perturbation, ...]

    def __init__(self, *steps: Any) -> None:
        object.__setattr__(self, "random_state", None)
        parts = [as_perturbation(step) for step in steps]
        flat = [inner for part in parts for inner in (part.steps if isinstance(part, Compose) else (part,))]
        object.__setattr__(self, "steps", tuple(flat))

    @property
    def pointwise(self) -> bool | None:
        """Whether all steps keep the points in place; None if no step moves them and some do not say."""
        declared = [getattr(step, "pointwise", None) for step in self.steps]
        return False if False in declared else None if None in declared else True

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Apply the steps in order."""
        before: Counter[str] = Counter()
        for step in self.steps:
            X_val, y_val = step._with(_place=before[step._owner])(X_val, y_val)
            before[step._owner] += 1
        return X_val, y_val

    @property
    def parameters(self) -> dict[str, Any]:
        """Name, and the parameters of each step."""
        return {"name": "Compose", "steps": [step.parameters for step in self.steps]}

    def with_seed(self, seed: int) -> Self:
        """Return the same steps with seeds of their own made from ``seed``."""
        root = np.random.SeedSequence(check.check_count("Compose", "seed", seed, at_least=0))
        children = root.spawn(len(self.steps))
        seeds = [int.from_bytes(child.generate_state(4).tobytes(), "little") for child in children]
        return self._with(steps=tuple(step.with_seed(own) for step, own in zip(self.steps, seeds, strict=True)))

    def bind(self, model: Any) -> Self:
        """Bind every step."""
        return self._with(steps=tuple(step.bind(model) for step in self.steps))


@dataclass(frozen=True)
class FunctionPerturbation(Perturbation):
    """A plain function as a perturbation; made by `as_perturbation`."""

    function: Callable[..., Any]

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Call the function on copies, with ``rng`` if it has such an argument."""
        seeded = "rng" in inspect.signature(self.function).parameters
        given = copy.deepcopy(X_val), copy.deepcopy(y_val)
        return self._checked(self.function(*given, **({"rng": rng} if seeded else {})))

    @property
    def pointwise(self) -> bool | None:
        """What the function, or the one behind a partial, says of itself; no attribute where it says nothing."""
        candidates: list[Any] = [self.function, getattr(self.function, "func", None)]
        for function in candidates:
            if hasattr(function, "pointwise"):
                declared: bool | None = function.pointwise
                return declared
        raise AttributeError(f"The function {function_name(self.function)!r} does not say whether points stay in place")

    @property
    def parameters(self) -> dict[str, Any]:
        """The function's name, the arguments bound by a partial, and the seed."""
        own = {"name": function_name(self.function), "random_state": self.random_state}
        bound = bound_arguments(self.function)
        return own | {f"{key}_" if key in own else key: plain(value) for key, value in bound.items()}


def as_perturbation(obj: Any) -> Perturbation:
    """Wrap a plain function; leave a perturbation as it is.

    Parameters
    ----------
    obj : perturbation or callable
        A function takes ``(X_val, y_val)``, of which it gets copies, and returns the changed pair. If it has an
        argument ``rng``, it is given a seeded NumPy generator. Arguments bound by ``functools.partial`` become
        parameters. If it changes labels but keeps the points in their places, set ``function.pointwise = True``.

    Returns
    -------
    Perturbation

    Examples
    --------
    >>> from shapshift.perturb import as_perturbation
    >>> def halve(X_val, y_val):
    ...     return X_val / 2, y_val
    >>> as_perturbation(halve).parameters
    {'name': 'halve', 'random_state': None}
    """
    if isinstance(obj, Perturbation):
        return obj
    if isinstance(obj, type) or not callable(obj):
        hint = f"Did you mean {obj.__name__}(...)?" if isinstance(obj, type) else "For instance GaussianNoise(0.5)."
        raise TypeError(
            f"A perturbation must be a Perturbation or a function (X_val, y_val) -> (X_val, y_val). Got {obj!r}. {hint}"
        )
    return FunctionPerturbation(obj)


def check_one(owner: str, **given: object) -> None:
    """Refuse both or neither of two parameters."""
    if sum(value is not None for value in given.values()) != 1:
        first, second = given
        raise ValueError(
            f"{owner} takes either {first!r} or {second!r}. Got {first}={given[first]!r}, {second}={given[second]!r}."
        )


def without_seeds(parameters: Any) -> Any:
    """Return a perturbation's parameters as JSON knows them, without seeds: whoever seeds it has others."""
    if isinstance(parameters, dict):
        return {str(key): without_seeds(part) for key, part in parameters.items() if key != "random_state"}
    if isinstance(parameters, list | tuple):
        return [without_seeds(part) for part in parameters]
    return plain(parameters)


def keeps_points(perturbation: Any, labels: npt.NDArray[Any], y: Any) -> bool:
    """Whether perturbed points are the clean ones, one for one.

    There must be as many. Beyond that the perturbation's ``pointwise`` counts, where it says; else points with the same
    labels in the same order are taken to be the same points.

    Parameters
    ----------
    perturbation : Perturbation
    labels : ndarray of shape (n_val,)
        Clean labels, checked.
    y : array-like
        Perturbed labels.
    """
    if count_rows(y) != labels.size:
        return False
    declared = getattr(perturbation, "pointwise", None)
    if declared is not None:
        return bool(declared)
    return bool(np.array_equal(_labels.check_labels(y, "y_val", labels.size, "X_val"), labels))


def must_keep_points(what: str, perturbation: Perturbation, labels: npt.NDArray[Any], y: Any) -> None:
    """Refuse a perturbation that does not keep the points; ``what`` names the parameter and the points."""
    if not keeps_points(perturbation, labels, y):
        raise ValueError(
            f"{what}, in order, which {perturbation.parameters['name']} does not: it resamples or reorders them, or "
            "returns other labels. Use a perturbation of features or labels; one of your own that changes labels "
            "must have the attribute pointwise = True."
        )


def _size(part: Any) -> int | None:
    try:
        return count_rows(part)
    except (TypeError, IndexError):
        return None
