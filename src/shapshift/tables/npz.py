"""NumPy archives: features, labels, and optionally names, ids and owners. Nothing in them is ever run."""

import zipfile
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from shapshift.checks.inputs import some
from shapshift.exceptions import InputError
from shapshift.io import archive as archives
from shapshift.tables.files import About, Source, TableSizeError, marked, repeated

# What an array means; of two names for the same thing the first that is there counts.
_ROLES = {"label": ("y",), "id": ("ids", "id"), "owner": ("owners", "owner")}
_EXPECTED = (
    "Expected arrays X (rows by features) and y, and optionally feature_names, ids (or id) and owners (or owner)"
)


def read_npz(source: Source) -> Any:
    """Read the arrays as columns: features by name, then ``y``, ``ids`` or ``id``, and ``owners`` or ``owner``."""
    arrays = _arrays(source)
    if "X" not in arrays:
        hint = ""
        if {"indptr", "indices", "data"} <= set(arrays):
            hint = " It looks like a sparse matrix of SciPy: save its dense form, X=matrix.toarray()."
        raise InputError(f"{source.name} has no array X. It has: {some(sorted(arrays))}. {_EXPECTED}.{hint}")
    X = arrays["X"]
    if X.ndim != 2 or 0 in X.shape or X.dtype.kind not in "biufUSM":
        raise InputError(
            f"The array X of {source.name} must have rows and columns of numbers. Got shape {X.shape} of type "
            f"{X.dtype}. Reshape it, for instance with X.reshape(len(X), -1)."
        )
    roles = {role: names[0] for role, known in _ROLES.items() if (names := [name for name in known if name in arrays])}
    names = _names(source, arrays, X.shape[1], roles.values())
    columns = {name: _column(X[:, j], "X", source) for j, name in enumerate(names)}
    for name in roles.values():
        values = arrays[name]
        values = values[:, 0] if values.ndim == 2 and values.shape[1] == 1 else values
        if values.shape != (len(X),):
            raise InputError(
                f"The array {name} of {source.name} must have one entry for each of the {len(X)} rows of X. Got "
                f"shape {values.shape}."
            )
        columns[name] = _column(values, name, source)
    ignored = sorted(set(arrays) - {"X", "feature_names", *roles.values()})
    notes = [f"did not use the arrays {some(ignored)} of {source.name}"] if ignored else []
    return marked(pa.table(columns), About(source.name, notes, roles))


def _arrays(source: Source) -> dict[str, npt.NDArray[Any]]:
    try:
        with source.open() as file, zipfile.ZipFile(file) as archive:
            members = archive.namelist()
        if any(member.endswith(".npy") for member in members):
            with source.open() as file:
                return archives.read_npz(file, source.check_size)
    except TableSizeError:
        raise
    except Exception as error:  # whatever a damaged file makes the readers say
        if "allow_pickle" in str(error):
            raise InputError(
                f"{source.name} holds arrays of Python objects, and loading these runs code. Save numbers and strings "
                "as such: numpy.savez(path, X=X.astype(float), y=y.astype(str))."
            ) from None
        raise InputError(
            f"{source.name} is not a whole .npz file: it is truncated or damaged ({error}). Copy or write it anew."
        ) from None
    raise InputError(
        f"{source.name} is a zip archive without NumPy arrays; it holds {some(members)}. Unpack it and name the table "
        "in it."
    )


def other_name(name: str, role: str) -> list[str]:
    """Say what else an array of that role may be called."""
    known = _ROLES.get(role, ())
    return [other for other in known if other != name] if name in known else []


def _names(source: Source, arrays: dict[str, npt.NDArray[Any]], width: int, others: Iterable[str]) -> list[str]:
    if "feature_names" not in arrays:
        return [f"x{j}" for j in range(width)]
    names = [_text(name, "feature_names", source) for name in arrays["feature_names"].ravel().tolist()]
    twice = repeated([*names, *others])
    if len(names) != width or twice:
        raise InputError(
            f"The array feature_names of {source.name} must name the {width} columns of X, each differently and none "
            f"like another array. Got {len(names)} names" + (f", repeated: {some(twice)}." if twice else ".")
        )
    return names


def _column(values: npt.NDArray[Any], array: str, source: Source) -> Any:
    if values.dtype.kind == "S":
        return pa.array([_text(value, array, source) for value in values.tolist()], pa.string())
    try:
        return pa.array(np.ascontiguousarray(values, values.dtype.newbyteorder("=")))
    except pa.ArrowException:
        raise InputError(
            f"The array {array} of {source.name} must hold numbers, truth values, text or dates. Got type "
            f"{values.dtype}. Save it as one of these, for instance with {array}.astype(float) or {array}.astype(str)."
        ) from None


def _text(value: object, array: str, source: Source) -> str:
    try:
        return value.decode() if isinstance(value, bytes) else str(value)
    except UnicodeDecodeError:
        raise InputError(
            f"The array {array} of {source.name} holds bytes that are no UTF-8 text: {value!r}. Decode them and save "
            "them as text."
        ) from None
