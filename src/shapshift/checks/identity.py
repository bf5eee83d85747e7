"""Hashes of user input, including functions and objects, that identify stored results."""

import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import inspect
import linecache
import pathlib
import sys
import types
from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse

# Libraries whose classes and functions are known by their names.
_KNOWN = {"shapshift", "sklearn", "numpy", "scipy", "pandas", "polars", "pyarrow", "joblib"} | sys.stdlib_module_names
_DATES = (datetime.date, datetime.time, datetime.timedelta)
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), range, decimal.Decimal, fractions.Fraction)
_REPR_SUFFICES = (*_PLAIN, pathlib.PurePath, *_DATES, np.dtype, type(NotImplemented))
_WRAPPERS = {property: ("fget", "fset", "fdel"), functools.cached_property: ("func",)} | dict.fromkeys(
    (classmethod, staticmethod), ("__func__",)
)


class UndescribedError(TypeError):
    """An object has hidden state, such as a lock or a random generator."""


def content_hash(value: Any) -> str:
    """Hash of a value: equal for values that behave the same, in every process.

    For functions and classes outside the common libraries, the hash covers the source file, and the code, defaults,
    closures and constants of their module that they use; for objects, the parameters or attributes. Functions that they
    call in other files are not covered.

    Raises
    ------
    UndescribedError
        If something cannot be described.

    Examples
    --------
    >>> content_hash(lambda x: x) == content_hash(lambda x: -x)
    False
    """
    return hashlib.blake2b(repr(_described(value, ())).encode(), digest_size=16).hexdigest()


def _described(value: Any, above: tuple[int, ...]) -> Any:
    """Describe a value by nested tuples of texts; ``above`` are the ids of the objects that contain it."""
    if id(value) in above:
        return ("above", above.index(id(value)))
    if isinstance(value, enum.Enum):
        return (_name(type(value)), value.name)
    if isinstance(value, _REPR_SUFFICES):
        return (type(value).__name__, repr(value))
    inside = (*above, id(value))

    def parts(*entries: Any) -> tuple[Any, ...]:
        return tuple(_described(entry, inside) for entry in entries)

    if isinstance(value, type):
        return _of_class(value, inside)
    if isinstance(value, types.FunctionType):
        return _of_function(value, inside)
    if isinstance(value, types.CodeType):
        return ("code", value.co_code.hex(), value.co_names, value.co_varnames, parts(*value.co_consts))
    if isinstance(value, types.ModuleType):
        return ("module", value.__name__, _source(value))
    if isinstance(value, functools.partial):
        return ("partial", *parts(value.func, value.args, value.keywords))
    if isinstance(value, types.MethodType):
        return ("method", *parts(value.__func__, value.__self__))
    if isinstance(value, types.BuiltinFunctionType | np.ufunc):
        owner = getattr(value, "__self__", None)
        return ("builtin", _name(value), *(() if isinstance(owner, types.ModuleType) else parts(owner)))
    if type(value) in _WRAPPERS:
        return (type(value).__name__, *parts(*(getattr(value, name) for name in _WRAPPERS[type(value)])))
    content = _of_container(value, parts)
    if hasattr(value, "get_params"):
        return ("object", *parts(type(value), value.get_params(deep=False)))
    if content is not None and (_known(type(value)) or type(value).__module__ == "builtins"):
        return (_name(type(value)), content)
    return ("object", *parts(type(value), _state(value)))


def _of_container(value: Any, parts: Any) -> Any:
    """Entries of a container; None for any other value."""
    if isinstance(value, Mapping):
        return ("mapping", tuple(parts(key, entry) for key, entry in value.items()))
    if isinstance(value, list | tuple):
        return ("list", parts(*value))
    if isinstance(value, set | frozenset):
        return ("set", tuple(sorted(parts(*value), key=repr)))
    if sparse.issparse(value):
        rows = value.tocsr()
        return ("sparse", rows.shape, parts(rows.data, rows.indices, rows.indptr))
    if isinstance(value, np.ndarray | np.generic):
        if value.dtype.hasobject:
            return ("array", value.shape, parts(*np.asarray(value).ravel().tolist()))
        written = hashlib.blake2b(np.ascontiguousarray(value).tobytes(), digest_size=16).hexdigest()
        return ("array", value.dtype.str, value.shape, written)
    if hasattr(value, "to_pylist"):  # pyarrow
        return ("table", parts(value.to_pylist()))
    if hasattr(value, "to_numpy"):  # pandas and polars
        labels = [list(part) for part in (getattr(value, "columns", ()), getattr(value, "index", ()))]
        kinds = [type_of(kind) for kind in (value.dtypes if hasattr(value, "columns") else [value.dtype])]
        return ("table", kinds, parts(labels, value.to_numpy()))
    return None


def type_of(kind: Any) -> str:
    """Describe the type of a column of pandas or polars, with its categories in their order, which codes follow."""
    if type(kind).__name__ != "CategoricalDtype":
        return str(kind)
    return repr(("category", kind.categories.tolist(), bool(kind.ordered)))


def _of_function(function: Any, inside: tuple[int, ...]) -> Any:
    local = "<locals>" in function.__qualname__
    if _known(function) and not local and function.__name__ != "<lambda>":
        return ("function", _name(function))
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    used = {
        name: function.__globals__[name]
        for code in _codes(function.__code__)
        for name in code.co_names
        if _counts(function.__globals__.get(name, ...), function.__module__)
    }
    held = (function.__code__, function.__defaults__, function.__kwdefaults__, cells, used, vars(function))
    return ("function", _name(function), _source(function), *(_described(part, inside) for part in held))


def _of_class(kind: Any, inside: tuple[int, ...]) -> Any:
    own = [part for part in kind.__mro__ if not _known(part)]
    found: list[Any] = [_name(kind)]
    for part in own:
        found.append((_name(part), _source(part)))
        if "site-packages" in (getattr(sys.modules.get(part.__module__), "__file__", None) or ""):
            continue
        for name, entry in vars(part).items():
            code = isinstance(entry, types.FunctionType | property | classmethod | staticmethod)
            slot = isinstance(entry, types.MemberDescriptorType | types.GetSetDescriptorType)
            if code or not (name.startswith(("__", "_abc_")) or slot):
                found.append((name, _described(entry, inside)))
    return tuple(found)


def _state(value: Any) -> Any:
    """Attributes, slots and entries of an object, as they would be passed to a copy."""
    if isinstance(value, np.random.Generator | np.random.RandomState):
        raise UndescribedError("a random generator changes with every draw")
    try:
        found = value.__reduce_ex__(4)
    except Exception as error:
        raise UndescribedError(str(error)) from error
    # The first two make an object of its class; entries come as iterators.
    return found if isinstance(found, str) else (*found[:3], *(list(part) for part in found[3:5] if part is not None))


def _codes(code: types.CodeType) -> list[types.CodeType]:
    """Code of a function and of the functions inside it."""
    return [code, *(deep for one in code.co_consts if isinstance(one, types.CodeType) for deep in _codes(one))]


def _counts(value: Any, module: str) -> bool:
    """Whether a name of a function's module belongs to its description: constants, functions and classes of its own."""
    if isinstance(value, tuple):
        return all(_counts(part, module) for part in value)
    ours = isinstance(value, types.FunctionType | type) and value.__module__ == module
    return value is not ... and (ours or isinstance(value, _PLAIN))


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a variable without a value
        return False


def _known(named: Any) -> bool:
    first = str(getattr(named, "__module__", "")).partition(".")[0]
    return first in _KNOWN and first != "__main__"


def _source(named: Any) -> str:
    """Hash of the source file; empty if there is none."""
    try:
        file = inspect.getsourcefile(named)
    except (OSError, TypeError):  # built in, or typed interactively
        return ""
    linecache.checkcache(file)
    lines = linecache.getlines(file) if file else []
    return hashlib.blake2b("".join(lines).encode(errors="replace"), digest_size=16).hexdigest()


def _name(named: Any) -> str:
    name = getattr(named, "__qualname__", None) or getattr(named, "__name__", type(named).__qualname__)
    return f"{getattr(named, '__module__', None)}.{name}"
