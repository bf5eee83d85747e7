"""Checks of parameters and feature tables, and their messages. Past the edge nothing is checked again."""

import copy
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._warn import warn

Floats = npt.NDArray[np.float64]

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@dataclass(frozen=True)
class Table:
    """Checked feature rows.

    Attributes
    ----------
    rows : ndarray of shape (n, d) or csr_array
    columns : list or None
        Names, where the caller's container has any.
    index : ndarray or None
        The caller's row index, where the container has one.
    index_names : tuple
        Names of its levels.
    kind : {"numpy", "pandas", "polars", "pyarrow"}
    """

    rows: Any
    columns: list[Any] | None
    index: npt.NDArray[Any] | None
    kind: str
    index_names: tuple[Any, ...] = ("id",)


def check_choice(owner: str, name: str, value: object, choices: Sequence[str], or_else: str = "") -> None:
    """Refuse a value that is not one of ``choices``; ``or_else`` names what else the message should offer."""
    if not (isinstance(value, str) and value in choices):
        listed = ", ".join([repr(choice) for choice in choices] + ([or_else] if or_else else []))
        raise ValueError(f"The {name!r} parameter of {owner} must be one of {listed}. Got {value!r} instead.")


def check_count(owner: str, name: str, value: object, at_least: int = 1) -> int:
    """Refuse anything but an integer of at least ``at_least``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise TypeError(
            f"The {name!r} parameter of {owner} must be an integer of at least {at_least}. Got {value!r} instead."
        )
    if value < at_least:
        raise ValueError(f"The {name!r} parameter of {owner} must be at least {at_least}. Got {value!r} instead.")
    return int(value)


def check_number(
    owner: str, name: str, value: object, *, least: float = 0.0, above: bool = False, most: float = np.inf
) -> None:
    """Refuse anything but a finite number from ``least`` (or above it) to ``most``."""
    low = f" {'above' if above else 'of at least'} {least:g}" if np.isfinite(least) else ""
    high = f" and at most {most:g}" if np.isfinite(most) else ""
    message = f"The {name!r} parameter of {owner} must be a finite number{low}{high}. Got {value!r} instead."
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise TypeError(message)
    if not np.isfinite(value) or not least <= value <= most or (above and value == least):
        raise ValueError(message)


def check_flag(owner: str, name: str, value: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(f"The {name!r} parameter of {owner} must be True or False. Got {value!r} instead.")


def check_folder(owner: str, name: str, value: object) -> str | None:
    """Refuse anything but None and a folder that is there."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise TypeError(f"The {name!r} parameter of {owner} must be None or the path of a folder. Got {value!r}.")
    folder = os.fspath(value)
    if not os.path.isdir(folder):
        raise ValueError(f"The {name!r} parameter of {owner} must name a folder. There is none at {folder!r}: make it.")
    return str(folder)


def check_model(owner: str, model: Any) -> Any:
    """Refuse what cannot value; return the model, as a copy that shares the fit and shows no progress of its own."""
    if not callable(getattr(model, "value", None)):
        raise TypeError(
            f"The 'model' parameter of {owner} must be a fitted estimator with a value method, "
            f"value(X_val, y_val) -> Valuation, such as KNNShapley().fit(X, y). Got {type(model).__name__} instead."
        )
    if not hasattr(model, "progress"):
        return model
    quiet = copy.copy(model)
    quiet.progress = False
    return quiet


def check_jobs(owner: str, n_jobs: object) -> None:
    """Refuse a number of workers that is neither None nor a whole number other than 0."""
    whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (n_jobs == 0 or not whole):
        raise ValueError(
            f"The 'n_jobs' parameter of {owner} must be None, a positive number of threads, or -1 for all "
            f"processors. Got {n_jobs!r} instead."
        )


def check_progress(owner: str, progress: object) -> None:
    """Refuse anything but True, False and None."""
    if not (progress is None or isinstance(progress, bool | np.bool_)):
        raise TypeError(f"The 'progress' parameter of {owner} must be True, False or None. Got {progress!r}.")


def parse_memory(value: object, owner: str = "KNNShapley", name: str = "max_memory") -> int | None:
    """Bytes in ``"2GB"``, ``"500MiB"`` or a number; None stays None."""
    if value is None:
        return None
    number = isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)
    if number and 0 < cast(float, value) < np.inf:
        return int(cast(float, value))
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", value.lower()) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS or float(match[1]) == 0:
        raise ValueError(
            f"The {name!r} parameter of {owner} must be a positive number of bytes or a string such as '2GB' or "
            f"'500MiB'. Got {value!r} instead."
        )
    return int(float(match[1]) * _UNITS[match[2]])


def check_features(X: Any, name: str, *, sparse_ok: str | None = None) -> Table:
    """Turn any supported container into finite float64 rows.

    Parameters
    ----------
    X : array, dataframe, table, tensor, sparse matrix or nested list
    name : str
        How messages call it.
    sparse_ok : str or None
        None when sparse rows are fine, else why they are not.
    """
    if sparse.issparse(X):
        if sparse_ok is not None:
            raise TypeError(f"{name!r} is sparse, {sparse_ok}. Pass {name}.toarray(), or use another metric.")
        if X.ndim != 2:
            raise ValueError(f"{name!r}: Expected 2D array, got {X.ndim}D array instead (shape={X.shape}).")
        check_shape(X.shape, name)
        rows = _float64(X, name)
        rows.sum_duplicates()
        rows.sort_indices()
        rows.eliminate_zeros()
        _check_finite_sparse(rows, name)
        return Table(rows, None, None, "numpy")
    if isinstance(X, np.ma.MaskedArray):
        raise TypeError(f"{name!r} is a masked array. Fill it, for instance with sklearn.impute.SimpleImputer.")
    if type(X).__name__ == "RecordBatch" and type(X).__module__.startswith("pyarrow"):
        X = X.to_pandas()  # its column names would be lost on the way to an array
    try:
        frame = nw.from_native(X, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise ValueError(f"{name!r} has a column name more than once ({error}). Rename the columns.") from None
    if isinstance(frame, nw.DataFrame):
        return _check_frame(frame, name)
    if isinstance(frame, nw.LazyFrame):
        raise TypeError(f"{name!r} is a lazy frame. Collect it first: {name}.collect().")
    rows = _plain_array(X, name)
    if rows.ndim != 2:
        hint = (
            f"Reshape your data using {name}.reshape(-1, 1) if it has a single feature or {name}.reshape(1, -1) if "
            "it is a single row."
            if rows.ndim == 1
            else f"Flatten each row to one list of features, for instance {name}.reshape(len({name}), -1)."
        )
        raise ValueError(f"{name!r}: Expected 2D array, got {rows.ndim}D array instead (shape={rows.shape}). {hint}")
    check_shape(rows.shape, name)
    rows = _float64(rows, name)
    check_finite(rows, name)
    return Table(rows, None, None, "numpy")


def check_distances(D: Any, ids: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Check a precomputed distance matrix: validation points in rows, training rows in columns.

    The type is kept: tiles are converted one at a time. Columns that are named by the training ids are put in order.
    """
    n_train = ids.size
    if sparse.issparse(D):
        raise TypeError("'X_val' is sparse, but precomputed distances must be a dense array. Pass X_val.toarray().")
    plain = isinstance(D, np.ndarray) and D.ndim == 2 and D.dtype.kind in "fiu" and D.size > 0
    table = None if plain and not isinstance(D, np.ma.MaskedArray) else check_features(D, "X_val")
    distances = D if table is None else table.rows
    if distances.shape[1] != n_train:
        raise ValueError(
            "'X_val' must hold precomputed distances with one row per validation point and one column per training "
            f"row, {n_train} columns. Got shape {distances.shape}."
            + (" Did you mean its transpose?" if distances.shape[0] == n_train else "")
        )
    for i, row in enumerate(distances):
        check_finite(row[None, :], "X_val", first_row=i)
        if row.min() < 0:
            raise ValueError(
                f"'X_val' must hold distances of at least 0. Got {row.min()} at row {i}, column {row.argmin()}. "
                "Similarities must be turned into distances first."
            )
    if table is not None and table.columns is not None and table.columns != ids.tolist():
        place = {column: j for j, column in enumerate(table.columns)}
        if place.keys() == set(ids.tolist()):
            return cast(npt.NDArray[Any], distances[:, [place[row] for row in ids.tolist()]])
    return cast(npt.NDArray[Any], distances)


def match_columns(table: Table, fitted: Sequence[Any] | None, width: int, name: str) -> Table:
    """Bring validation columns into the training order by name, or refuse."""
    if table.columns is not None and fitted is not None:
        given, known = set(table.columns), set(fitted)
        missing = [column for column in fitted if column not in given]
        extra = [column for column in table.columns if column not in known]
        if missing or extra:
            parts = [f"missing {some(missing)}"] * bool(missing) + [f"not seen in training {some(extra)}"] * bool(extra)
            raise ValueError(
                f"The columns of {name!r} must be those of the training rows, but it has {len(table.columns)} and they "
                f"have {width}: {'; '.join(parts)}. Select the same columns in both."
            )
        if table.columns != list(fitted):
            place = {column: j for j, column in enumerate(table.columns)}
            dense = cast(Floats, table.rows)[:, [place[column] for column in fitted]]
            return replace(table, rows=dense, columns=list(fitted))
        return table
    if table.rows.shape[1] != width:
        raise ValueError(
            f"{name!r} has {table.rows.shape[1]} features, but the training rows have {width} features. "
            "Both must be made from the same columns."
        )
    if table.columns is None and fitted is not None and all(isinstance(column, str) for column in fitted):
        warn(f"{name!r} does not have feature names, but the training rows have; columns are taken in training order.")
    return table


def check_positions(reference: Any, n_val: int, n_train: int) -> npt.NDArray[np.int64]:
    """Check training row positions given per validation point; None means none."""
    if reference is None:
        return np.empty((n_val, 0), dtype=np.int64)
    rows = np.asarray(reference)
    if rows.ndim != 2 or rows.shape[0] != n_val or rows.dtype.kind not in "iu":
        raise ValueError(
            f"The 'reference' parameter must hold integers in {n_val} rows, one per validation point. Got shape "
            f"{rows.shape} of type {rows.dtype}."
        )
    if rows.size and not (rows.min() >= 0 and rows.max() < n_train):
        raise ValueError(f"The 'reference' parameter must hold positions of training rows, 0 to {n_train - 1}.")
    return rows.astype(np.int64)


def check_excluded(exclude: Any, n_val: int, n_train: int) -> npt.NDArray[np.int64]:
    """Check one training row position per validation point, -1 meaning none."""
    rows = np.asarray(exclude)
    if rows.shape != (n_val,) or rows.dtype.kind not in "iu":
        raise ValueError(
            f"The 'exclude' parameter must hold {n_val} integers, one per validation point. Got shape {rows.shape} of "
            f"type {rows.dtype}."
        )
    if not (rows.min() >= -1 and rows.max() < n_train):
        raise ValueError(
            f"The 'exclude' parameter must hold positions of training rows, 0 to {n_train - 1}, or -1 for none. Got "
            f"numbers from {rows.min()} to {rows.max()}."
        )
    return rows.astype(np.int64)


def _check_frame(frame: nw.DataFrame[Any], name: str) -> Table:
    kind = str(frame.implementation).rsplit(".", 1)[-1].lower()
    kind = kind if kind in ("pandas", "polars", "pyarrow") else "pandas"
    native = frame.to_native()
    columns = list(native.column_names if kind == "pyarrow" else native.columns)
    check_shape(native.shape, name)
    schema = frame.schema
    for column in frame.columns:
        dtype = schema[column]
        if not (dtype.is_numeric() or dtype == nw.Boolean):
            if "Sparse" in str(getattr(native[column], "dtype", "")):
                raise ValueError(f"Column {column!r} of {name!r} is sparse. Pass {name}.sparse.to_dense() instead.")
            raise ValueError(
                f"Column {column!r} of {name!r} has type {dtype}; features must be numbers (could not convert to "
                "float). Encode the column (for instance with sklearn.preprocessing.OneHotEncoder) or drop it."
            )
    rows = np.empty(frame.shape)
    for j, series in enumerate(frame.iter_columns()):
        rows[:, j] = series.cast(nw.Float64).to_numpy()
    index = np.asarray(native.index) if kind == "pandas" and hasattr(native, "index") else None
    check_finite(rows, name, columns, index)
    names = tuple(native.index.names) if index is not None else ("id",)
    return Table(rows, columns, index, kind, names)


def tensor_to_numpy(data: Any) -> Any:
    """Turn a torch tensor into an array, on the CPU and of a type NumPy has; anything else is returned as it is."""
    if type(data).__module__.split(".")[0] != "torch" or not hasattr(data, "detach"):
        return data
    tensor = data.detach().cpu()
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    return (tensor.double() if tensor.is_floating_point() else tensor).numpy()


def _plain_array(X: Any, name: str) -> npt.NDArray[Any]:
    try:
        return np.asarray(tensor_to_numpy(X))
    except ValueError as error:
        raise ValueError(
            f"{name!r} must be a table of numbers in which all rows have the same length ({error})."
        ) from None


def _float64(rows: Any, name: str) -> Any:
    if rows.dtype.kind == "c":
        raise ValueError(f"{name!r}: Complex data not supported. Split it into real and imaginary columns.")
    if rows.dtype.kind in "SUMm":
        raise ValueError(
            f"{name!r} holds values of type {rows.dtype}; features must be numbers (could not convert to float). "
            "Encode such columns, for instance with sklearn.preprocessing.OneHotEncoder."
        )
    try:
        return (
            sparse.csr_array(rows, dtype=np.float64, copy=True)
            if sparse.issparse(rows)
            else rows.astype(np.float64, copy=False)
        )
    except (TypeError, ValueError) as error:
        kind = type(error)  # scikit-learn tells objects that are no numbers from strings by the kind of error
        raise kind(
            f"{name!r} must hold numbers only: argument must be a string or a number that reads as one ({error}). "
            "Encode or drop the other columns."
        ) from None


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Refuse a table without rows or without columns."""
    for count, unit, what in ((shape[0], "sample", "row"), (shape[1], "feature", "column")):
        if count == 0:
            raise ValueError(
                f"{name!r} is empty: found array with {count} {unit}(s) (shape={shape}) while a minimum of 1 is "
                f"required. Pass at least one {what}."
            )


def check_finite(
    rows: npt.NDArray[Any],
    name: str,
    columns: Sequence[Any] | None = None,
    index: npt.NDArray[Any] | None = None,
    first_row: int = 0,
) -> None:
    """Refuse NaN and infinity, saying where the first of them is."""
    # One pass that allocates nothing: any NaN or infinity makes the sum non-finite (so can overflow, hence the retry).
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(rows.sum()):
            return
    bad = ~np.isfinite(rows)
    if not bad.any():
        return
    i, j = np.argwhere(bad)[0]
    column = repr(columns[j]) if columns is not None else str(j)
    row = f"{first_row + i}" if index is None else f"{i} (id {index[i]!r})"
    raise ValueError(_not_finite(name, rows[i, j], row, column, int(bad.sum())))


def _check_finite_sparse(rows: Any, name: str) -> None:
    bad = np.flatnonzero(~np.isfinite(rows.data))
    if bad.size:
        row = int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        raise ValueError(_not_finite(name, rows.data[bad[0]], str(row), str(rows.indices[bad[0]]), bad.size))


def _not_finite(name: str, value: float, row: str, column: str, count: int) -> str:
    what = "NaN" if np.isnan(value) else "infinity"
    return (
        f"Input {name} contains {what} at row {row}, column {column} ({count} such entries in all). Distances need "
        "finite numbers: drop the rows or fill them in, for instance with sklearn.impute.SimpleImputer."
    )


def some(names: Sequence[Any]) -> str:
    """Quote the first few names."""
    shown = ", ".join(repr(name) for name in names[:5])
    return shown if len(names) <= 5 else f"{shown} and {len(names) - 5} more"
