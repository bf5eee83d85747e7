"""Checks of parameters and feature tables, and their messages. Inner functions do not check again."""

import copy
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any, cast

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.checks.names import quoted as quoted
from shapshift.checks.names import some as some
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError

Floats = npt.NDArray[np.float64]

#: Largest K, and most draws of a perturbation, which are dimensions of arrays.
MOST = 2**31 - 1

#: Types in which features are stored, by their input type. None of these loses a digit; all others become float64.
#: The last types are not of NumPy but of ml_dtypes and torch.
ROW_TYPES = {
    **{name: name for name in ("float32", "float16", "int8", "uint8")},
    **dict.fromkeys(("int16", "uint16", "bfloat16", "float8_e4m3fn", "float8_e5m2"), "float32"),
    "bool": "uint8",
}

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}


@dataclass(frozen=True)
class Table:
    """Checked feature rows.

    Attributes
    ----------
    rows : ndarray of shape (n, d) or csr_array
    columns : list or None
        Names, if the caller's container has any.
    index : ndarray or None
        The caller's row index, if the container has one.
    index_names : tuple
        Names of its levels.
    kind : {"numpy", "pandas", "polars", "pyarrow"}
    """

    rows: Any
    columns: list[Any] | None
    index: npt.NDArray[Any] | None
    kind: str
    index_names: tuple[Any, ...] = ("id",)


def wrong(caller: str, name: str, expected: str, value: object) -> InputError:
    """Return the error for an invalid parameter."""
    return InputError(f"The {name!r} parameter of {caller} must be {expected}. Got {quoted(value)} instead.")


def check_choice(caller: str, name: str, value: object, choices: Sequence[str], or_else: str = "") -> None:
    """Refuse a value that is not one of ``choices``; ``or_else`` names a further choice for the message."""
    if not (isinstance(value, str) and value in choices):
        listed = ", ".join([*map(repr, choices), *([or_else] if or_else else [])])
        raise wrong(caller, name, f"one of {listed}", value)


def check_count(caller: str, name: str, value: object, at_least: int = 1, at_most: int | None = None) -> int:
    """Refuse anything but an integer from ``at_least`` to ``at_most``."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer):
        raise wrong(caller, name, f"an integer of at least {at_least}", value)
    if value < at_least:
        raise wrong(caller, name, f"at least {at_least}", value)
    if at_most is not None and value > at_most:
        raise wrong(caller, name, f"at most {at_most}", value)
    return int(value)


def check_type(caller: str, name: str, value: object, kind: type | tuple[type, ...], expected: str) -> None:
    """Refuse anything but an instance of ``kind``; ``expected`` is its name in the message."""
    if not isinstance(value, kind):
        raise InputError(f"The {name!r} parameter of {caller} must be {expected}. Got {type(value).__name__} instead.")


def check_seed(caller: str, random_state: Any) -> int:
    """Return a seed: the one given, or a fresh one that the result can name."""
    if random_state is None:
        return int(np.random.SeedSequence().generate_state(1, np.uint64)[0])
    return check_count(caller, "random_state", random_state, at_least=0)


def check_number(
    caller: str, name: str, value: object, *, least: float = 0.0, above: bool = False, most: float = np.inf
) -> None:
    """Refuse anything but a finite number from ``least`` (or above it) to ``most``."""
    number = _as_float(value)
    if not (np.isfinite(number) and least <= number <= most) or (above and number == least):
        low = f" {'above' if above else 'of at least'} {least:g}" if np.isfinite(least) else ""
        high = f" and at most {most:g}" if np.isfinite(most) else ""
        raise wrong(caller, name, f"a finite number{low}{high}", value)


def _as_float(value: object) -> float:
    """Return a number as float; NaN for anything else, infinity for integers larger than every float."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return np.nan
    try:
        return float(value)
    except OverflowError:
        return np.inf


def check_flag(caller: str, name: str, value: object) -> None:
    """Refuse anything but True and False."""
    if not isinstance(value, bool | np.bool_):
        raise wrong(caller, name, "True or False", value)


def check_folder(caller: str, name: str, value: object) -> str | None:
    """Refuse anything but None and an existing folder."""
    if value is None:
        return None
    if not isinstance(value, str | os.PathLike):
        raise wrong(caller, name, "None or the path of a folder", value)
    folder = os.fspath(value)
    if not os.path.isdir(folder):
        raise InputError(
            f"The {name!r} parameter of {caller} must name an existing folder. There is none at {folder!r}: create it."
        )
    return str(folder)


def check_model(caller: str, model: Any) -> Any:
    """Refuse an object without a value method; return a copy that shares the fit and shows no progress bar."""
    if not callable(getattr(model, "value", None)):
        raise InputError(
            f"The 'model' parameter of {caller} must be a fitted estimator with a value method, "
            f"value(X_val, y_val) -> Valuation, such as KNNShapley().fit(X, y). Got {type(model).__name__} instead."
        )
    if not hasattr(model, "progress"):
        return model
    quiet = copy.copy(model)
    quiet.progress = False
    return quiet


def check_jobs(caller: str, n_jobs: object) -> None:
    """Refuse a number of workers that is neither None nor a whole number other than 0."""
    whole = isinstance(n_jobs, int | np.integer) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (n_jobs == 0 or not whole):
        raise wrong(caller, "n_jobs", "None, a positive number of threads, or -1 for all processors", n_jobs)


def check_progress(caller: str, progress: object) -> None:
    """Refuse anything but True, False and None."""
    if not (progress is None or isinstance(progress, bool | np.bool_)):
        raise wrong(caller, "progress", "True, False or None", progress)


def parse_memory(value: object, caller: str = "KNNShapley", name: str = "max_memory") -> int | None:
    """Bytes in ``"2GB"``, ``"500MiB"`` or a number; None stays None."""
    if value is None:
        return None
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?i?)b?\s*", value.lower()) if isinstance(value, str) else None
    size = _as_float(value) if match is None else float(match[1]) * _UNITS.get(match[2], 0)
    if not 0 < size < np.inf:
        raise wrong(caller, name, "a positive number of bytes or a string such as '2GB' or '500MiB'", value)
    return int(size)


def check_features(X: Any, name: str, *, sparse_ok: str | None = None, narrow: bool = False) -> Table:
    """Turn any supported container into finite rows.

    Parameters
    ----------
    X : array, dataframe, table, tensor, sparse matrix or nested list
    name : str
        How messages call it.
    sparse_ok : str or None
        None if sparse rows are allowed, else the reason why not.
    narrow : bool
        Whether dense rows may keep a type of :data:`ROW_TYPES`; else they are float64, as sparse ones always are.
    """
    if sparse.issparse(X):
        if sparse_ok is not None:
            raise InputError(f"{name!r} is sparse, {sparse_ok}. Pass {name}.toarray(), or use another metric.")
        check_shape(X.shape, name)
        rows = _float64(X, name)
        if X.dtype.kind in "iu":
            whole = sparse.coo_array(X)
            rounded = np.flatnonzero(rounded_counts(whole.data[None, :]))
            columns, counts = np.unique(whole.coords[1][rounded], return_counts=True)
            warn_rounded(repr(name), dict(zip(columns.tolist(), counts.tolist(), strict=True)))
        rows.sum_duplicates()
        rows.sort_indices()
        rows.eliminate_zeros()
        _check_finite_sparse(rows, name)
        return Table(rows, None, None, "numpy")
    if isinstance(X, np.ma.MaskedArray):
        raise InputError(f"{name!r} is a masked array. Fill it, for instance with sklearn.impute.SimpleImputer.")
    if type(X).__name__ == "RecordBatch" and type(X).__module__.startswith("pyarrow"):
        X = X.to_pandas()  # conversion to an array would lose its column names
    try:
        frame = nw.from_native(X, allow_series=True, pass_through=True)
    except nw.exceptions.DuplicateError as error:
        raise InputError(f"{name!r} has a column name more than once ({error}). Rename the columns.") from None
    if isinstance(frame, nw.Series) and _holds_vectors(frame):
        frame = frame.alias("vector").to_frame()
    if isinstance(frame, nw.DataFrame):
        return _check_frame(frame, name, narrow)
    if isinstance(frame, nw.LazyFrame):
        raise InputError(f"{name!r} is a lazy frame. Collect it first: {name}.collect().")
    try:
        rows = np.asarray(tensor_to_numpy(X))
    except ValueError as error:
        raise InputError(f"{name!r} must be a table of numbers with rows of the same length ({error}).") from None
    check_shape(rows.shape, name)
    # NumPy has made floats of a list with integers and floats.
    mixed = isinstance(X, list | tuple) and rows.dtype.kind == "f" and has_large(rows)
    counts = rounded_counts(np.array(X, dtype=object) if mixed else rows)
    warn_rounded(repr(name), dict(enumerate(counts.tolist())))
    if narrow and rows.dtype.name in ROW_TYPES:
        rows = rows.astype(ROW_TYPES[rows.dtype.name], copy=False)
    else:
        rows = _float64(rows, name)
    check_finite(rows, name)
    return Table(rows, None, None, "numpy")


def in_float64(rows: Any) -> Any:
    """Return checked rows as float64 numbers; sparse rows and rows in a file are returned unchanged."""
    return rows.astype(np.float64, copy=False) if isinstance(rows, np.ndarray) else rows


def check_distances(D: Any, ids: npt.NDArray[Any]) -> Any:
    """Check a precomputed distance matrix: validation points in rows, training rows in columns.

    The type is kept: tiles are converted one at a time. Columns that are named by the training ids are put in order.
    A sparse matrix is a graph, see :func:`check_graph`.
    """
    n_train = ids.size
    if sparse.issparse(D):
        return check_graph(D, n_train)
    plain = isinstance(D, np.ndarray) and D.ndim == 2 and D.dtype.kind in "fiu" and D.size > 0
    table = None if plain and not isinstance(D, np.ma.MaskedArray) else check_features(D, "X_val")
    distances = D if table is None else table.rows
    _check_columns(distances.shape, n_train)
    for i, row in enumerate(distances):
        check_finite(row[None, :], "X_val", first_row=i)
        if row.min() < 0:
            raise _negative(row.min(), i, int(row.argmin()))
    if table is not None and table.columns is not None and set(table.columns) == set(ids.tolist()):
        distances = distances[:, places(table.columns, ids.tolist())]
    return distances


def _check_columns(shape: tuple[int, ...], n_train: int) -> None:
    if shape[1] != n_train:
        raise InputError(
            "'X_val' must hold precomputed distances with one row per validation point and one column per training "
            f"row, {n_train} columns. Got shape {shape}."
            + (" Did you mean its transpose?" if shape[0] == n_train else "")
        )


def _negative(distance: float, row: int, column: int) -> InputError:
    return InputError(
        f"'X_val' must hold distances of at least 0. Got {distance} at row {row}, column {column}. Convert "
        "similarities to distances first."
    )


def check_graph(graph: Any, n_train: int) -> Any:
    """Check a sparse graph of nearest training rows; return it as a csr_array of float64, columns in order.

    Stored entries are distances, zeros included. Rows that are not stored are farther than all stored rows of the same
    point.
    """
    if graph.format not in ("csr", "csc", "coo"):
        raise InputError(
            f"'X_val' is a sparse matrix in {graph.format!r} format, which may drop distances of 0. "
            "Pass a CSR matrix, such as that of sklearn.neighbors.kneighbors_graph(..., mode='distance')."
        )
    check_shape(graph.shape, "X_val")
    _check_columns(graph.shape, n_train)
    if graph.dtype.kind not in "fiu":
        raise InputError(f"'X_val' must hold distances, which are real numbers. Got a sparse matrix of {graph.dtype}.")
    pairs = graph.tocoo()  # keeps duplicates and stored zeros
    order = np.lexsort((pairs.col, pairs.row))
    rows, columns = (part[order].astype(np.int64) for part in (pairs.row, pairs.col))
    distances = pairs.data[order].astype(np.float64)
    bad = np.flatnonzero(~np.isfinite(distances))
    if bad.size:
        where = str(rows[bad[0]]), str(columns[bad[0]])
        raise InputError(_not_finite("X_val", distances[bad[0]], *where, bad.size))
    if distances.size and distances.min() < 0:
        at = int(distances.argmin())
        raise _negative(distances[at], int(rows[at]), int(columns[at]))
    twice = np.flatnonzero((np.diff(rows) == 0) & (np.diff(columns) == 0))
    if twice.size:
        raise InputError(
            f"'X_val' stores two distances between validation point {rows[twice[0]]} and training row "
            f"{columns[twice[0]]}. Keep one of them."
        )
    if distances.size > 1 and (distances == 1).all():
        warn(
            "All distances that 'X_val' stores are 1, as in a graph of connections. Values depend on the order of "
            "distances: make the graph with mode='distance'."
        )
    ends = np.searchsorted(rows, np.arange(graph.shape[0] + 1))
    return sparse.csr_array((distances, columns, ends), shape=graph.shape)


def places(columns: Sequence[Any], wanted: Sequence[Any]) -> list[int]:
    """Positions of the wanted columns."""
    known = {column: j for j, column in enumerate(columns)}
    return [known[column] for column in wanted]


def match_columns(table: Table, fitted: Sequence[Any] | None, width: int, name: str) -> Table:
    """Bring validation columns into the training order by name, or refuse."""
    if table.columns is not None and fitted is not None:
        differences = column_differences(table.columns, fitted, "missing", "not seen in training")
        if differences:
            raise InputError(
                f"The columns of {name!r} must be those of the training rows, but it has {len(table.columns)} and they "
                f"have {width}: {differences}. Select the same columns in both."
            )
        if table.columns != list(fitted):
            return replace(table, rows=table.rows[:, places(table.columns, fitted)], columns=list(fitted))
        return table
    if table.rows.shape[1] != width:
        raise InputError(
            f"{name!r} has {table.rows.shape[1]} features, but the training rows have {width} features. "
            "Both must be made from the same columns."
        )
    if table.columns is None and fitted is not None and all(isinstance(column, str) for column in fitted):
        warn(f"{name!r} does not have feature names, but the training rows have; columns are taken in training order.")
    return table


def column_differences(given: Sequence[Any], expected: Sequence[Any], lacking: str, extra: str) -> str:
    """Name missing and additional columns; empty if there are none.

    Examples
    --------
    >>> column_differences(["a", "c"], ["a", "b"], "lacks", "also has")
    "lacks 'b' and also has 'c'"
    """
    sides = ((lacking, expected, set(given)), (extra, given, set(expected)))
    odd = [(word, [column for column in columns if column not in others]) for word, columns, others in sides]
    return " and ".join(f"{word} {some(columns)}" for word, columns in odd if columns)


def check_positions(reference: Any, n_val: int, n_train: int) -> npt.NDArray[np.int64]:
    """Check training row positions given per validation point; None means none."""
    rows = np.empty((n_val, 0), dtype=np.int64) if reference is None else np.asarray(reference)
    right = rows.ndim == 2 and rows.shape[0] == n_val
    return _positions("reference", rows, right, f"integers in {n_val} rows", n_train)


def check_excluded(exclude: Any, n_val: int, n_train: int) -> npt.NDArray[np.int64]:
    """Check one training row position per validation point, -1 meaning none."""
    rows = np.asarray(exclude)
    return _positions("exclude", rows, rows.shape == (n_val,), f"{n_val} integers", n_train, or_none=True)


def _positions(
    name: str, rows: npt.NDArray[Any], right: bool, expected: str, n_train: int, *, or_none: bool = False
) -> npt.NDArray[np.int64]:
    if not right or rows.dtype.kind not in "iu":
        raise InputError(
            f"The {name!r} parameter must hold {expected}, one per validation point. Got shape {rows.shape} of type "
            f"{rows.dtype}."
        )
    if rows.size and not (rows.min() >= -or_none and rows.max() < n_train):
        raise InputError(
            f"The {name!r} parameter must hold positions of training rows, 0 to {n_train - 1}"
            f"{', or -1 for none' * or_none}. Got numbers from {rows.min()} to {rows.max()}."
        )
    return rows.astype(np.int64)


def frame_kind(frame: nw.DataFrame[Any]) -> str:
    """Return the library of a frame: "polars", "pyarrow", or "pandas" for all similar ones."""
    kind = str(frame.implementation).rsplit(".", 1)[-1].lower()
    return kind if kind in ("polars", "pyarrow") else "pandas"


def _check_frame(frame: nw.DataFrame[Any], name: str, narrow: bool) -> Table:
    kind = frame_kind(frame)
    native = frame.to_native()
    columns = list(native.column_names if kind == "pyarrow" else native.columns)
    check_shape(native.shape, name)
    schema = frame.schema
    vectors = {series.name: _vectors(series, name) for series in frame.iter_columns() if _holds_vectors(series)}
    for column in frame.columns:
        dtype = schema[column]
        if not (column in vectors or dtype.is_numeric() or dtype == nw.Boolean):
            if "Sparse" in str(getattr(native[column], "dtype", "")):
                raise InputError(f"Column {column!r} of {name!r} is sparse. Pass {name}.sparse.to_dense() instead.")
            raise InputError(
                f"Column {column!r} of {name!r} has type {dtype}; features must be numbers (could not convert to "
                "float). Encode the column (for instance with sklearn.preprocessing.OneHotEncoder) or drop it."
            )
    names_of = [[f"{c}[{j}]" for j in range(vectors[c].shape[1])] if c in vectors else [c] for c in columns]
    columns = [column for part in names_of for column in part]
    kept = _frame_type(frame, vectors) if narrow else np.float64
    rows = np.empty((frame.shape[0], len(columns)), dtype=kept) if frame.shape[1] > 1 or not vectors else None
    rounded: dict[Any, int] = {}
    at = 0
    for series, part in zip(frame.iter_columns(), names_of, strict=True):
        j, at = at, at + len(part)
        if series.name in vectors:
            rounded |= dict(zip(part, rounded_counts(vectors[series.name]).tolist(), strict=True))
            if rows is None:  # no other column
                rows = vectors[series.name].astype(kept, copy=False)
            else:
                rows[:, j:at] = vectors[series.name]
            continue
        assert rows is not None
        if series.dtype.is_integer() and not series.null_count():
            whole = np.asarray(series.to_numpy())
            rows[:, j] = whole  # pyarrow's own cast refuses what would be rounded
            rounded[columns[j]] = int(rounded_counts(whole[:, None])[0])
        else:
            rows[:, j] = (series if rows.dtype != np.float64 else series.cast(nw.Float64)).to_numpy()
            if series.dtype == nw.Decimal and has_large(rows[:, j]):
                rounded[columns[j]] = rounded_entries(series.to_list())
    warn_rounded(repr(name), rounded)
    index = np.asarray(native.index) if kind == "pandas" and hasattr(native, "index") else None
    assert rows is not None
    check_finite(rows, name, columns, index)
    names = tuple(native.index.names) if index is not None else ("id",)
    return Table(rows, columns, index, kind, names)


def _frame_type(frame: nw.DataFrame[Any], vectors: Mapping[str, npt.NDArray[Any]]) -> Any:
    """Return the shortest type of :data:`ROW_TYPES` that holds all columns of a frame; float64 if there is none."""
    kinds = {array.dtype.name for array in vectors.values()}
    for series in frame.iter_columns():
        if series.name not in vectors:
            kinds.add("float64" if series.null_count() else str(series.dtype).lower().replace("boolean", "bool"))
    if not kinds <= ROW_TYPES.keys():
        return np.float64
    return ROW_TYPES.get(np.result_type(*kinds).name, np.float64)


def _holds_vectors(series: nw.Series[Any]) -> bool:
    """Whether the entries of a column are lists or arrays of numbers."""
    if series.dtype in (nw.List, nw.Array):
        inner: Any = series.dtype
        return bool(inner.inner.is_numeric()) or str(inner.inner).lower() == "unknown"  # such as float16
    first = series.head(1).to_list() if series.dtype == nw.Object else [None]
    return bool(first) and isinstance(first[0], np.ndarray | list) and np.asarray(first[0]).dtype.kind in "iuf"


def _vectors(series: nw.Series[Any], name: str) -> npt.NDArray[Any]:
    """Return a column of lists of numbers as rows, in their own type."""
    column = f"Column {series.name!r} of {name!r}"
    if series.dtype == nw.Object:
        entries = [np.asarray(entry if entry is not None else ()) for entry in series.to_list()]
        lengths = {entry.size if entry.ndim == 1 else None for entry in entries}
        rows = np.stack(entries) if len(lengths) == 1 else np.empty((0, 0))
    else:
        import pyarrow as pa  # takes a while to load
        import pyarrow.compute as pc

        stored = series.to_arrow()
        stored = stored if isinstance(stored, pa.ChunkedArray) else pa.chunked_array([stored])
        lengths = list_lengths(stored)
        flat = pc.list_flatten(stored).combine_chunks() if len(lengths) == 1 else pa.array([])
        flat = flat.chunk(0) if isinstance(flat, pa.ChunkedArray) else flat
        if flat.null_count:
            raise InputError(
                f"{column} holds vectors with {flat.null_count} missing numbers. Distances need all of them: leave "
                "these rows out, or fill them in."
            )
        rows = flat.to_numpy(zero_copy_only=False).reshape(len(stored), -1)
    if len(lengths) != 1 or lengths & {0, None} or rows.dtype.kind not in "iuf":
        raise InputError(f"{column} must hold vectors of one length. {show_lengths(lengths)} Make them equally long.")
    return rows


def list_lengths(column: Any) -> set[int | None]:
    """Distinct lengths in an Arrow column of lists, None for missing lists."""
    import pyarrow.compute as pc

    if str(column.type) == "null":
        return {None}
    return set(pc.unique(pc.list_value_length(column)).to_pylist()) - ({None} if not column.null_count else set())


def show_lengths(lengths: set[int | None]) -> str:
    """List different lengths of vectors, for a message."""
    shown = ["missing" if length is None else str(length) for length in sorted(lengths, key=lambda n: n or 0)[:5]]
    return f"It has lengths: {', '.join(shown)}."


def tensor_to_numpy(data: Any) -> Any:
    """Turn a torch tensor into an array, on the CPU; anything else is returned as it is.

    Types that NumPy does not have become float32 numbers, which loses nothing.
    """
    if type(data).__module__.split(".")[0] != "torch" or not hasattr(data, "detach"):
        return data
    tensor = data.detach().cpu()
    tensor = tensor.to_dense() if tensor.is_sparse else tensor
    known = str(tensor.dtype) in ("torch.float16", "torch.float32", "torch.float64")
    return (tensor.float() if tensor.is_floating_point() and not known else tensor).numpy()


def _float64(rows: Any, name: str) -> Any:
    if rows.dtype.kind == "c":
        raise InputError(f"{name!r}: Complex data not supported. Split it into real and imaginary columns.")
    why = " (could not convert to float)"
    if rows.dtype.kind not in "SUMm":
        try:
            if sparse.issparse(rows):
                return sparse.csr_array(rows, dtype=np.float64, copy=True)
            return rows.astype(np.float64, copy=False)
        except (TypeError, ValueError) as error:
            why = f": argument must be a string or a number that reads as one ({error})"
    raise InputError(
        f"{name!r} holds values of type {rows.dtype}; features must be numbers{why}. Encode other columns, for "
        "instance with sklearn.preprocessing.OneHotEncoder, or drop them."
    )


def rounded_counts(rows: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Count, for each column, the whole numbers beyond 2**53 that float64 cannot represent."""
    if rows.dtype.kind == "O":
        plain = [[entry.item() if isinstance(entry, np.generic) else entry for entry in column] for column in rows.T]
        return np.array(list(map(rounded_entries, plain)), dtype=np.int64)
    if rows.dtype.kind not in "iu" or not rows.size or (rows.min() >= -(2**53) and rows.max() <= 2**53):
        return np.zeros(rows.shape[1], dtype=np.int64)
    # The largest float below the end of the range: a float at the end itself could not be turned back.
    top = np.nextafter(2.0 ** (63 if rows.dtype.kind == "i" else 64), 0)
    back = np.minimum(rows.astype(np.float64), top).astype(rows.dtype)
    return cast(npt.NDArray[np.int64], np.count_nonzero(back != rows, axis=0))


def fits_float(number: int | float | Decimal) -> bool:
    """Whether a float has exactly this value or this decimal form: no two such numbers become the same float.

    Examples
    --------
    >>> fits_float(2**53), fits_float(2**53 + 1), fits_float(Decimal("0.1")), fits_float(Decimal("0.10000000000000001"))
    (True, False, True, False)
    """
    if isinstance(number, float):
        return True
    try:
        nearest = float(number)
    except OverflowError:
        return False
    return nearest == number or Decimal(repr(nearest)) == number


def rounded_entries(numbers: Iterable[int | float | Decimal | list[Any] | None]) -> int:
    """Count the whole numbers that float64 cannot represent, including those in lists."""
    return sum(
        rounded_entries(number)
        if isinstance(number, list)
        else isinstance(number, int | Decimal) and not fits_float(number) and _is_whole(number)
        for number in numbers
    )


def has_large(floats: npt.NDArray[Any]) -> bool:
    """Whether some numbers are so large that a whole number may have been rounded."""
    return bool((np.abs(floats) >= 2.0**53).any())


def _is_whole(number: int | Decimal) -> bool:
    # int(number) would write all the zeros of 1e999999999.
    return isinstance(number, int) or number == number.to_integral_value()


def warn_rounded(where: str, counts: Mapping[Any, int]) -> None:
    """Warn about columns in which whole numbers were rounded to float64; ``counts`` has the number for each."""
    columns = [f"{quoted(name)} ({count:,} entries)" for name, count in counts.items() if count]
    if columns:
        warn(
            f"Whole numbers beyond 2**53 are rounded, because distances are computed in float64: {where} has such "
            f"numbers in column {', '.join(columns[:5])}{f' and {len(columns) - 5} more' * (len(columns) > 5)}. If a "
            "column is an identifier, leave it out; if it names categories, encode its text."
        )


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Refuse input that has no rows, no columns, or other than two dimensions."""
    if len(shape) != 2:
        hint = (
            f"{name}.reshape(-1, 1) if it has a single feature or {name}.reshape(1, -1) if it is a single row"
            if len(shape) == 1
            else f"{name}.reshape(len({name}), -1), so that each row is one list of features, or, for images and the "
            f"like, vectors: shapshift.Embedder(function).transform({name})"
        )
        raise InputError(
            f"{name!r}: Expected 2D array, got {len(shape)}D array instead (shape={shape}). Reshape your data using "
            f"{hint}."
        )
    for count, unit, what in ((shape[0], "sample", "row"), (shape[1], "feature", "column")):
        if count == 0:
            raise InputError(
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
    """Refuse NaN and infinity, and name the first position."""
    # One pass that allocates nothing: any NaN or infinity makes the sum non-finite (so can overflow, hence the retry).
    with np.errstate(over="ignore", invalid="ignore"):
        if rows.dtype.kind != "f" or np.isfinite(rows.sum(dtype=np.float64)):
            return
    bad = ~np.isfinite(rows)
    if not bad.any():
        return
    i, j = np.argwhere(bad)[0]
    column = repr(columns[j]) if columns is not None else str(j)
    row = f"{first_row + i}" if index is None else f"{i} (id {quoted(index[i])})"
    raise InputError(_not_finite(name, rows[i, j], row, column, int(bad.sum())))


def _check_finite_sparse(rows: Any, name: str) -> None:
    bad = np.flatnonzero(~np.isfinite(rows.data))
    if bad.size:
        row = int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        raise InputError(_not_finite(name, rows.data[bad[0]], str(row), str(rows.indices[bad[0]]), bad.size))


def _not_finite(name: str, value: float, row: str, column: str, count: int) -> str:
    what = "NaN" if np.isnan(value) else "infinity"
    return (
        f"Input {name} contains {what} at row {row}, column {column} ({count} such entries in all). Distances need "
        "finite numbers: drop the rows or fill them in, for instance with sklearn.impute.SimpleImputer."
    )
