"""Result, the base of all results (locked arrays, read-only mappings, one file), and tables of results."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass
from importlib.util import find_spec
from types import MappingProxyType, NoneType, UnionType
from typing import Any, ClassVar, Self, cast, get_args, get_origin, get_type_hints

import narwhals as nw
import numpy as np
import numpy.typing as npt

from shapshift.exceptions import InputError
from shapshift.io.archive import Arrays, Saved, from_json, to_json
from shapshift.io.shown import Shown

#: Rows of a LaTeX table that fit on a page.
ONE_PAGE = 40
_KINDS = ("numpy", "pandas", "polars", "pyarrow")


@dataclass(frozen=True, eq=False, repr=False)
class Result(Saved, Shown):
    """Base of the results: frozen dataclasses whose fields cannot be changed and that one file can hold.

    Arrays are locked (copied first if the caller could still write to them) and mappings are read-only. A file holds
    every field under its name: arrays unchanged, mappings of arrays and results under ``field.key``, all else as JSON.
    A field that a file lacks gets its default, or None if its type allows it.

    Attributes
    ----------
    archive_shapes : mapping
        Axes of the fields that must fit together in a file, such as ``{"matrix": "n_train n_val"}``: axes of one name
        have one length, and a number is a length. Tuples have one axis; None fits.
    """

    archive_shapes: ClassVar[Mapping[str, str]] = {}

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _frozen(getattr(self, field.name)))

    def __getstate__(self) -> dict[str, Any]:
        # For copies and worker processes; files are written by save.
        return {name: dict(part) if isinstance(part, Mapping) else part for name, part in self.__dict__.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for part in state.values():
            for array in part.values() if isinstance(part, Mapping) else [part]:
                if isinstance(array, np.ndarray):
                    lock(array)  # no one else holds it: locking it avoids a copy in __post_init__
        self.__dict__.update(state)
        self.__post_init__()

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        header: dict[str, Any] = {}
        arrays: Arrays = {}
        for name in (field.name for field in fields(self)):
            part = getattr(self, name)
            if isinstance(part, np.ndarray):
                arrays[name] = part
            elif isinstance(part, Result):
                header[name], inner = part._to_archive()
                arrays |= {f"{name}.{key}": entry for key, entry in inner.items()}
            elif isinstance(part, Mapping) and any(isinstance(entry, np.ndarray) for entry in part.values()):
                arrays |= {f"{name}.{key}": entry for key, entry in part.items()}
            elif isinstance(part, Mapping):
                header[name] = dict(part)
            elif isinstance(part, tuple):
                header[name] = [e if isinstance(e, dict) else to_json(e, f"an entry of {name!r}") for e in part]
            elif part is not None:
                header[name] = asdict(part) if is_dataclass(part) and not isinstance(part, type) else part
        return header, arrays

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        hints, left, parts = get_type_hints(cls), {name: lock(array) for name, array in arrays.items()}, {}
        for field in fields(cls):
            name, (hint, optional) = field.name, _without_none(hints[field.name])
            found: Any
            if get_origin(hint) is np.ndarray:
                found = _checked_array(name, left.pop(name, None), hint)
            elif get_origin(hint) is Mapping and get_origin(get_args(hint)[1]) is np.ndarray:
                keys = [key for key in left if key.startswith(f"{name}.")]
                found = {k.removeprefix(f"{name}."): _checked_array(k, left.pop(k), get_args(hint)[1]) for k in keys}
                found = found or None
            elif isinstance(hint, type) and issubclass(hint, Result) and name in header:
                inner = {key.removeprefix(f"{name}."): left.pop(key) for key in [*left] if key.startswith(f"{name}.")}
                found = hint._from_archive(header[name], inner)
            else:
                found = _checked_fact(name, header.get(name), hint)
            if found is not None:
                parts[name] = found
            elif field.default is MISSING and field.default_factory is MISSING:
                if not optional:
                    raise InputError(f"it has no {name!r}")
                parts[name] = None
        if left:
            raise InputError(f"it has a part {next(iter(left))!r} that is unknown to this release")
        loaded = cls(**parts)
        loaded._check_loaded()
        return loaded

    def _check_loaded(self) -> None:
        """Refuse a loaded result whose parts do not fit together."""
        if getattr(self, "kind", "numpy") not in _KINDS:
            raise InputError("it has an unknown 'kind' of table")
        sizes: dict[str, int] = {}
        for name, axes in self.archive_shapes.items():
            part, wanted = getattr(self, name), axes.split()
            columns = {f"{name}.{key}": e for key, e in part.items()} if isinstance(part, Mapping) else {name: part}
            for column, array in columns.items():
                if array is None:
                    continue
                shape = (len(array),) if isinstance(array, tuple) else array.shape
                pairs = zip(wanted, shape, strict=False)
                expected = [int(axis) if axis.isdigit() else sizes.setdefault(axis, size) for axis, size in pairs]
                if len(shape) != len(wanted) or list(shape) != expected:
                    lengths = ", ".join(str(sizes.get(axis, axis)) for axis in wanted)
                    raise InputError(f"{column!r} has shape {shape}, not ({lengths})")


def _without_none(hint: Any) -> tuple[Any, bool]:
    """Return a type without its None, and whether it had one."""
    if not isinstance(hint, UnionType):
        return hint, False
    (plain,) = (part for part in get_args(hint) if part is not NoneType)
    return plain, True


def _checked_array(name: str, array: Any, hint: Any) -> Any:
    """Refuse an array without numbers if its type requires numbers."""
    scalar = get_args(get_args(hint)[1])[0]
    if array is not None and scalar is not Any and array.dtype.kind not in "biuf":
        raise InputError(f"{name!r} holds {array.dtype}, not {np.dtype(scalar)}")
    return array


def _checked_fact(name: str, fact: Any, hint: Any) -> Any:
    """Return an entry that is not an array, converted to its type; None if the file lacks it."""
    origin = get_origin(hint) or hint
    stored: Any = {float: int | float, tuple: list, Mapping: dict}.get(origin, dict if is_dataclass(origin) else origin)
    if fact is None or origin is Any:
        return fact
    if not isinstance(fact, stored) or (isinstance(fact, bool) and origin is not bool):
        raise InputError(f"its {name!r} has the wrong type")
    if origin is tuple:
        return tuple(map(from_json, fact) if get_args(hint)[0] is Any else fact)
    return hint(**fact) if is_dataclass(hint) and isinstance(hint, type) else fact


def to_table(
    columns: dict[str, npt.NDArray[Any]], ids: npt.NDArray[Any] | None, kind: str, id_names: tuple[Any, ...] = ("id",)
) -> Any:
    """Make a table of the given kind; ids become the index in pandas and the first column elsewhere.

    Parameters
    ----------
    columns : dict of ndarray
    ids : ndarray or None
    kind : {"pandas", "polars", "pyarrow", "numpy"}
        "numpy" means: pandas if it is installed, else pyarrow.
    id_names : tuple
        Names of the levels of the index; more than one makes a pandas MultiIndex.
    """
    if kind == "numpy":
        kind = "pandas" if find_spec("pandas") is not None else "pyarrow"
    if kind == "pandas":
        import pandas as pd

        if ids is None:
            return pd.DataFrame(columns)
        if len(id_names) > 1:
            return pd.DataFrame(columns, index=pd.MultiIndex.from_tuples(ids.tolist(), names=list(id_names)))
        return pd.DataFrame(columns, index=pd.Index(ids, name=id_names[0], tupleize_cols=False))
    if ids is not None:
        columns = {"id" if id_names[0] is None or len(id_names) > 1 else str(id_names[0]): ids} | columns
    plain = {name: _column_entries(column) for name, column in columns.items()}
    if kind not in _KINDS:
        raise InputError(f"The 'kind' parameter must be one of 'pandas', 'polars', 'pyarrow'. Got {kind!r} instead.")
    return nw.from_dict(plain, backend=cast(Any, kind)).to_native()


def _column_entries(column: npt.NDArray[Any]) -> Any:
    """Convert a column for polars and Arrow: objects become a list, or texts if their kinds differ."""
    if column.dtype.kind not in "OU":
        return column
    entries = column.tolist()
    simple = len({type(entry) for entry in entries if entry is not None}) <= 1
    if simple and not any(isinstance(entry, tuple) for entry in entries[:1]):
        return entries
    return [None if entry is None else str(entry) for entry in entries]


def latex_table(table: Any) -> str:
    """Write a pandas table for LaTeX with the package booktabs; text is escaped, numbers have six significant digits.

    A table of more than `ONE_PAGE` rows breaks over pages, by the package longtable. A comment names the packages.
    """
    long = len(table) > ONE_PAGE
    text: str = table.to_latex(index=False, escape=True, longtable=long, float_format="{:.6g}".format, na_rep="")
    needed = f"% Needs \\usepackage{{booktabs{',longtable' if long else ''}}}\n"
    # Characters that fonts in the old encoding show as others; pandas does not escape them.
    signs = {"→": r"$\to$", "|": r"\textbar{}", "<": r"\textless{}", ">": r"\textgreater{}"}
    for sign, written in signs.items():
        text = text.replace(sign, written)
    return needed + text


def lock(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a view that cannot be written to or unlocked, as its base is locked too. For arrays held nowhere else."""
    for part in _with_bases(array):
        part.flags.writeable = False
    return array.view()


def _frozen(part: Any) -> Any:
    if isinstance(part, np.ndarray):
        return _own(part)
    if isinstance(part, Mapping):
        return MappingProxyType({key: _own(e) if isinstance(e, np.ndarray) else e for key, e in part.items()})
    return part


def _own(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return a locked array: a copy, unless the given one is already read-only."""
    return lock(array.copy() if any(part.flags.writeable for part in _with_bases(array)) else array)


def _with_bases(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    base: Any = array
    while isinstance(base, np.ndarray):
        yield base
        base = base.base
