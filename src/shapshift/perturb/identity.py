"""What a perturbation is called and told apart by: the same in every process, whatever its parameters are.

Seeds of an audit are made from these descriptions, so nothing in them may depend on the run: no memory address, no
order of a set, no abbreviated array.
"""

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
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

# Their repr says all there is, and nothing that depends on the run.
_TOLD_BY_REPR = (bytes, complex, float, datetime.date, datetime.time, datetime.timedelta, decimal.Decimal,
                 fractions.Fraction, pathlib.PurePath)  # fmt: skip


def plain(value: Any) -> Any:
    """Describe a parameter in what JSON has.

    Numbers, strings, booleans and None stay; lists and tuples become lists, sets sorted lists; mappings become lists
    of pairs, since labels can be of any kind; arrays become their type, shape and a hash of their content; functions
    their qualified name, with bound arguments; dataclasses their fields. Of anything else the type is named.

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
    if isinstance(value, _TOLD_BY_REPR):
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
        return _told_by_content(value)
    if isinstance(value, functools.partial):
        return [_qualified(value.func), plain(bound_arguments(value))]
    if dataclasses.is_dataclass(value):
        shown = [(field.name, plain(getattr(value, field.name))) for field in dataclasses.fields(value)]
        return [_qualified(type(value)), [list(pair) for pair in shown]]
    if hasattr(value, "__qualname__"):
        return _qualified(value)
    return type(value).__qualname__


def digest(parameters: Any) -> bytes:
    """Return 16 bytes that are equal for equal parameters, in whatever process; 1 and 1.0 are equal."""
    return hashlib.blake2b(_encoded(_as_floats(parameters)).encode(), digest_size=16).digest()


def function_name(function: Callable[..., Any]) -> str:
    """Name of a function; of what is bound, if it is a partial; of its type, if it is an object that can be called."""
    function = getattr(function, "func", function) if isinstance(function, functools.partial) else function
    return str(getattr(function, "__name__", type(function).__name__))


def bound_arguments(function: Callable[..., Any]) -> dict[str, Any]:
    """Arguments that a partial has bound, by name; none for other functions.

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


def _told_by_content(array: npt.NDArray[Any]) -> Any:
    if array.dtype.hasobject:  # the bytes of objects are addresses
        return [plain(entry) for entry in array.tolist()]
    little = array.astype(array.dtype.newbyteorder("<"))
    content = hashlib.blake2b(np.ascontiguousarray(little).tobytes(), digest_size=16).hexdigest()
    return f"{array.dtype.name} array of shape {array.shape}, hash {content}"


def _qualified(named: Any) -> str:
    module = getattr(named, "__module__", None)
    name = str(getattr(named, "__qualname__", type(named).__qualname__))
    return f"{module}.{name}" if module else name


def _encoded(described: Any) -> str:
    return json.dumps(described, sort_keys=True)


def _as_floats(described: Any) -> Any:
    """Turn integers that a float can hold into floats, so that the seeds of sigma=1 and sigma=1.0 agree."""
    if isinstance(described, dict):
        return {str(key): _as_floats(entry) for key, entry in described.items()}
    if isinstance(described, list | tuple):
        return [_as_floats(entry) for entry in described]
    if isinstance(described, int) and not isinstance(described, bool) and abs(described) <= 2**53:
        return float(described) + 0.0
    return 0.0 if described == 0 and isinstance(described, float) else described
