"""Perturbations: base class, compositions, wrapped functions, and their descriptions.

Seeds of an audit are computed from the descriptions, so these must not depend on the run: no memory address, no order
of a set, no abbreviated array.
"""

import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import inspect
import json
import math
import pathlib
import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.exceptions import InputError
from shapshift.perturb.containers import count_rows

# Types whose repr is complete and independent of the run.
_DATES = (datetime.date, datetime.time, datetime.timedelta)
_REPR_SUFFICES = (bytes, complex, float, decimal.Decimal, fractions.Fraction, pathlib.PurePath, *_DATES)

Pair = tuple[Any, Any]
#: Checks of parameters: functions of the class, the parameter's name and its value that raise if it is invalid.
Checks = Mapping[str, Callable[[str, str, Any], object]]


@dataclass(frozen=True, kw_only=True)
class Perturbation(ABC):
    """A seeded change to a validation set; subclasses implement ``apply``.

    NumPy arrays, pandas and polars frames, pyarrow tables and sparse matrices are returned in the same type (sparse as
    CSR); other containers of features become NumPy arrays. Labels keep their container and type. The ``apply`` of a
    subclass gets copies and may change them in place. It must return a pair with as many labels as rows.

    Parameters
    ----------
    random_state : int, optional
        The same seed gives the same result. Different kinds of perturbation draw independent numbers from the same
        seed. None draws new numbers at each call; an audit is reproducible even then, because it seeds the perturbation
        (`with_seed`).

    Attributes
    ----------
    pointwise : bool
        Whether the points stay the same in the same order, so that each can be compared with itself. Optional for a
        subclass or function; without it, the number of points and their labels decide.

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
    # Number of earlier steps of the same kind in a composition.
    _place: ClassVar[int] = 0
    # Two parameters with exactly one given, and the check of each parameter that is not None by default.
    _either: ClassVar[tuple[str, ...]] = ()
    _checks: ClassVar[Checks] = {}

    def __post_init__(self) -> None:
        if self.random_state is not None:
            check.check_count(self._owner, "random_state", self.random_state, at_least=0)
        if self._either and sum(getattr(self, name) is not None for name in self._either) != 1:
            first, second = self._either
            raise InputError(
                f"{self._owner} takes either {first!r} or {second!r}. Got {first}={getattr(self, first)!r}, "
                f"{second}={getattr(self, second)!r}."
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in self._checks and not (value is None and field.default is None):
                self._checks[field.name](self._owner, field.name, value)
                if isinstance(value, Mapping):  # a copy, because the caller's may change
                    object.__setattr__(self, field.name, dict(value))

    def __call__(self, X_val: Any, y_val: Any) -> Pair:
        """Return the changed features and labels."""
        # Kind and position enter the seed: steps with the same seed must not share random numbers.
        key = (zlib.crc32(self._owner.encode()), *([self._place] if self._place else []))
        rng = np.random.default_rng(np.random.SeedSequence(self.random_state, spawn_key=key))
        ours = type(self).apply.__module__.startswith(f"{__package__}.")
        if ours and not isinstance(self, FunctionPerturbation):  # these do not change their arguments
            return self.apply(X_val, y_val, rng)
        return self._checked(self.apply(copy.deepcopy(X_val), copy.deepcopy(y_val), rng))

    @abstractmethod
    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Return the changed validation set, drawing only from ``rng``."""

    @property
    def parameters(self) -> dict[str, Any]:
        """Name and parameters as JSON types; mappings from labels become lists of pairs, arrays are hashed."""
        return {"name": self._owner} | {field.name: plain(getattr(self, field.name)) for field in fields(self)}

    @property
    def seeded_by(self) -> dict[str, Any]:
        """Parameters that determine the seeds of an audit."""
        return self.parameters

    def with_seed(self, seed: int) -> Self:
        """Return the same perturbation with another seed."""
        return self._with(random_state=check.check_count(self._owner, "seed", seed, at_least=0))

    def bind(self, model: Any) -> Self:
        """Return a copy with what it needs from a fitted model; most perturbations need nothing."""
        return self

    @property
    def _owner(self) -> str:
        return type(self).__name__

    @property
    def _kind(self) -> str:
        """Kind of random numbers: steps of one kind in a composition draw different numbers."""
        return self._owner

    def _checked(self, result: Any) -> Pair:
        """Raise unless the result is a pair with as many labels as rows."""
        sizes: list[Any] = []
        if isinstance(result, tuple) and len(result) == 2:
            sizes = [_size(part) for part in result]
            if sizes[0] == sizes[1] is not None:
                return result
        raise InputError(
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
    """Several perturbations in sequence; also written ``a | b``.

    `with_seed` gives every step its own seed, made from the given one and the step's position. Steps with seeds of
    their own keep them. Several steps of one kind draw different numbers even with equal seeds, and the first draws the
    same numbers as it would alone.

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
        """Whether all steps keep the points in place; None if no step moves them but some do not declare it."""
        declared = [getattr(step, "pointwise", None) for step in self.steps]
        return False if False in declared else None if None in declared else True

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Apply the steps in order."""
        before: Counter[str] = Counter()
        for step in self.steps:
            X_val, y_val = step._with(_place=before[step._kind])(X_val, y_val)
            before[step._kind] += 1
        return X_val, y_val

    @property
    def parameters(self) -> dict[str, Any]:
        """Name, and the parameters of each step."""
        return {"name": "Compose", "steps": [step.parameters for step in self.steps]}

    @property
    def seeded_by(self) -> dict[str, Any]:
        """Name, and the seed parameters of each step."""
        return {"name": "Compose", "steps": [step.seeded_by for step in self.steps]}

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
        """Call the function, with ``rng`` if it has such an argument."""
        seeded = "rng" in inspect.signature(self.function).parameters
        result: Pair = self.function(X_val, y_val, **({"rng": rng} if seeded else {}))
        return result

    @property
    def pointwise(self) -> bool | None:
        """The function's own ``pointwise``, or that of the function in a partial; raises AttributeError without one."""
        candidates: list[Any] = [self.function, getattr(self.function, "func", None)]
        for function in candidates:
            if hasattr(function, "pointwise"):
                declared: bool | None = function.pointwise
                return declared
        raise AttributeError(f"The function {function_name(self.function)!r} does not declare 'pointwise'")

    @property
    def parameters(self) -> dict[str, Any]:
        """The function's name, the arguments bound by a partial, and the seed."""
        own = {"name": function_name(self.function), "random_state": self.random_state}
        bound = bound_arguments(self.function)
        return own | {f"{key}_" if key in own else key: plain(value) for key, value in bound.items()}


def as_perturbation(obj: Any) -> Perturbation:
    """Wrap a plain function; return a perturbation unchanged.

    Parameters
    ----------
    obj : perturbation or callable
        A function takes ``(X_val, y_val)`` as copies and returns the changed pair. If it has an argument ``rng``, it
        gets a seeded NumPy generator. Arguments bound by ``functools.partial`` become parameters. If it changes labels
        but keeps the order of the points, set ``function.pointwise = True``.

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
        raise InputError(
            f"A perturbation must be a Perturbation or a function (X_val, y_val) -> (X_val, y_val). Got {obj!r}. {hint}"
        )
    return FunctionPerturbation(obj)


def without_seeds(parameters: Any) -> Any:
    """Return a perturbation's parameters as JSON types without seeds."""
    if isinstance(parameters, dict):
        return {str(key): without_seeds(part) for key, part in parameters.items() if key != "random_state"}
    if isinstance(parameters, list | tuple):
        return [without_seeds(part) for part in parameters]
    return plain(parameters)


def keeps_points(perturbation: Any, labels: npt.NDArray[Any], y: Any) -> bool:
    """Whether perturbed points correspond to the clean ones, one for one.

    Their number must be equal. Then the perturbation's ``pointwise`` decides, if it has one; otherwise points with the
    same labels in the same order are considered the same.

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
    """Raise if a perturbation does not keep the points; ``what`` names the parameter and the points."""
    if not keeps_points(perturbation, labels, y):
        raise InputError(
            f"{what}, in order, which {perturbation.parameters['name']} does not: it resamples or reorders them, or "
            "returns other labels. Use a perturbation of features or labels. If your own perturbation changes labels, "
            "set its attribute pointwise = True."
        )


def _size(part: Any) -> int | None:
    try:
        return count_rows(part)
    except (TypeError, IndexError):
        return None


def plain(value: Any) -> Any:
    """Describe a parameter in JSON types.

    Numbers, strings, booleans and None are kept; lists and tuples become lists, sets sorted lists; mappings become
    lists of pairs, since labels can be of any kind; arrays become their type, shape and a hash of their content;
    functions their qualified name, with bound arguments; dataclasses their fields. Anything else becomes the name of
    its type.

    Examples
    --------
    >>> plain({0: 0.5}), plain(np.float64(0.5)), plain(print), plain(object())
    ([[0, 0.5]], 0.5, 'builtins.print', 'object')
    >>> plain(np.arange(3.0))
    'float64 array of shape (3,), hash 06431b6f4bf1...'
    """
    if isinstance(value, enum.Enum):
        return f"{_qualified(type(value))}.{value.name}"
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, _REPR_SUFFICES):
        return repr(value)
    if isinstance(value, Mapping):
        return [[plain(key), plain(entry)] for key, entry in value.items()]
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted((plain(entry) for entry in value), key=_encoded)
    if isinstance(value, type):
        return _qualified(value)
    if hasattr(value, "to_pylist"):  # pyarrow
        return plain(value.to_pylist())
    if hasattr(value, "to_numpy"):  # pandas and polars
        value = value.to_numpy()
    if isinstance(value, np.ndarray):
        return _array_text(value)
    if isinstance(value, functools.partial):
        return [_qualified(value.func), plain(bound_arguments(value))]
    if dataclasses.is_dataclass(value):
        shown = [(field.name, plain(getattr(value, field.name))) for field in dataclasses.fields(value)]
        return [_qualified(type(value)), [list(pair) for pair in shown]]
    if hasattr(value, "__name__"):
        return _qualified(value)
    return type(value).__qualname__


def digest(parameters: Any) -> bytes:
    """Return 16 bytes that are equal for equal parameters in any process; 1 and 1.0 are equal."""
    return hashlib.blake2b(_encoded(_as_floats(parameters)).encode(), digest_size=16).digest()


def function_name(function: Callable[..., Any]) -> str:
    """Name of a function; for a partial, of the bound function; for a callable object, of its type."""
    function = getattr(function, "func", function) if isinstance(function, functools.partial) else function
    return str(getattr(function, "__name__", type(function).__name__))


def bound_arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Arguments bound by a partial, by name; empty for other functions.

    Examples
    --------
    >>> def shift(X_val, y_val, by):
    ...     return X_val + by, y_val
    >>> bound_arguments(functools.partial(shift, by=2.0))
    {'by': 2.0}
    """
    if not isinstance(function, functools.partial):
        return {}
    try:
        return dict(inspect.signature(function.func).bind_partial(*function.args, **function.keywords).arguments)
    except (TypeError, ValueError):  # a builtin without a signature
        return {f"argument {i}": value for i, value in enumerate(function.args)} | function.keywords


def _array_text(array: npt.NDArray[Any]) -> Any:
    if array.dtype.hasobject:  # object arrays hold addresses
        return [plain(entry) for entry in array.tolist()]
    little = array.astype(array.dtype.newbyteorder("<"))
    content = hashlib.blake2b(np.ascontiguousarray(little).tobytes(), digest_size=16).hexdigest()
    return f"{array.dtype.name} array of shape {array.shape}, hash {content}"


def _qualified(named: Any) -> str:
    module = getattr(named, "__module__", None)
    # A ufunc only has a name, in SciPy and before NumPy 2.2.
    name = str(getattr(named, "__qualname__", None) or getattr(named, "__name__", type(named).__qualname__))
    return f"{module}.{name}" if module else name


def _encoded(described: Any) -> str:
    return json.dumps(described, sort_keys=True)


def _as_floats(described: Any) -> Any:
    """Turn integers into floats if a float can hold them, so that the seeds of sigma=1 and sigma=1.0 agree."""
    if isinstance(described, dict):
        return {str(key): _as_floats(entry) for key, entry in described.items()}
    if isinstance(described, list | tuple):
        return [_as_floats(entry) for entry in described]
    if isinstance(described, int) and not isinstance(described, bool) and abs(described) <= 2**53:
        return float(described) + 0.0
    return 0.0 if described == 0 and isinstance(described, float) else described
