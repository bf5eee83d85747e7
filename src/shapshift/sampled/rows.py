"""Rows in the form that a model takes: numbers, or a frame with its own types, text and missing values.

Models get the caller's frame, because a pipeline selects columns by name and type. Distances need numbers, so a frame
with other columns is encoded for distances only.
"""

import datetime
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.preprocessing import OneHotEncoder

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.checks.identity import type_of
from shapshift.exceptions import InputError

Floats = npt.NDArray[np.float64]

# Number of frequent values of a column with an indicator of their own; all others share one.
MOST_CATEGORIES = 50
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@dataclass(frozen=True)
class ModelRows:
    """Checked rows.

    Attributes
    ----------
    rows : ndarray, csr_array, or pandas or polars frame
        Rows as passed to models.
    table : Table
        The same rows as numbers, with the names and index of the caller's container.
    encoder : Encoder or None
        Encoder of the numbers; None if all columns are plain numbers.
    """

    rows: Any
    table: check.Table
    encoder: "Encoder | None" = None

    @property
    def identity(self) -> Any:
        """Content that identifies the rows: the numbers, or the frame if they are encoded."""
        return self.table.rows if self.encoder is None else self.rows

    def points(self, X_val: Any, predict: Callable[[Any], Any], name: str = "X_val") -> "ModelRows":
        """Check validation points and convert them to the form of these rows.

        ``predict`` is called if they are not plain numbers, to check that the model accepts them.
        """
        X_val, refusal = _unpacked(X_val), None
        try:
            table = check.check_features(X_val, name)
        except InputError as error:
            table, refusal = raw_table(X_val, name, error), error
        columns, width = self.table.columns, int(self.rows.shape[1])
        if refusal is None:
            table = check.match_columns(table, columns, width, name)
        else:  # only names and number of columns are checked
            check.match_columns(replace(table, rows=np.empty((0, table.rows.shape[1]))), columns, width, name)
        given = table.rows
        if columns is not None and _kind(X_val) != "numpy":
            given = _ordered(X_val, columns)
        numbers: Any = table.rows
        if self.encoder is not None:
            numbers = self.encoder(given.toarray() if sparse.issparse(given) else given)
        elif refusal is not None:
            numbers = self._filled(given, refusal)
        if sparse.issparse(self.table.rows) != sparse.issparse(numbers):
            numbers = numbers.toarray() if sparse.issparse(numbers) else sparse.csr_array(numbers)
        plain = _kind(self.rows) == "numpy" and self.encoder is None and refusal is None
        rows = numbers if plain else _like(given, self.rows, columns, name)
        if refusal is not None:
            try:
                predict(rows)
            except Exception as error:
                raise _unusable(refusal, error, "predict from") from error
        return ModelRows(rows, replace(table, rows=numbers), self.encoder)

    def _filled(self, given: Any, refusal: InputError) -> Floats:
        """Return points with missing numbers replaced by those of the mean training row."""
        known = [_as_numbers(values) for _, _, values in read_columns(given)]
        found = [column for column in known if column is not None]
        if len(found) < len(known):
            raise refusal
        numbers = np.column_stack(found)
        return np.where(np.isfinite(numbers), numbers, np.asarray(self.table.rows.mean(axis=0)))


def read_rows(X: Any, attempt: Callable[[Any], Any] | None) -> tuple[ModelRows, Any]:
    """Check training rows and use the first form that the model accepts; return the result of ``attempt`` on it too.

    Parameters
    ----------
    X : table
    attempt : callable or None
        Fits the model on rows. Called if there is more than one form, or if rows are not plain numbers.

    Returns
    -------
    ModelRows
    made : Any
        None if nothing was tried.
    """
    X = _unpacked(X)
    try:
        table, refusal = check.check_features(X, "X"), None
        found = ModelRows(X if _kind(X) == "pandas" else table.rows, table)
        forms = [found.rows, *([X] if _kind(X) == "polars" else []), *_as_pandas(X)]
    except InputError as error:
        raw, refusal = raw_table(X, "X", error), error
        forms = [raw.rows, *_as_pandas(raw.rows)]
        encoder = Encoder(raw.rows)
        found = ModelRows(raw.rows, replace(raw, rows=encoder(raw.rows)), encoder)
    if attempt is None or (refusal is None and len(forms) == 1):
        return found, None
    errors = []
    for rows in forms:
        try:
            return replace(found, rows=rows), attempt(rows)
        except Exception as error:
            errors.append(error)
    if refusal is not None:
        raise _unusable(refusal, errors[-1], "be fitted on") from errors[-1]
    return found, None


def raw_table(X: Any, name: str, refusal: InputError) -> check.Table:
    """Return rows of text, dates, categories or missing values unchanged; raise the refusal for any others."""
    if sparse.issparse(X) or isinstance(X, np.ma.MaskedArray):
        raise refusal
    try:
        frame = nw.from_native(X, eager_only=True, pass_through=True)
        rows = X
        if not isinstance(frame, nw.DataFrame):
            listed = isinstance(X, list | tuple)
            rows = np.array(X, dtype=object) if listed else np.asarray(check.tensor_to_numpy(X))
    except (nw.exceptions.DuplicateError, ValueError):
        raise refusal from None
    if not isinstance(frame, nw.DataFrame):
        if rows.ndim != 2 or rows.dtype.kind not in "OUMmf" or not rows.size:
            raise refusal
        return check.Table(rows, None, None, "numpy")
    check.check_shape(frame.shape, name)
    kind, index = _kind(X), getattr(X, "index", None)
    names = ("id",) if index is None else tuple(index.names)
    rows = X.to_pandas() if kind == "pyarrow" else X
    return check.Table(rows, list(frame.columns), None if index is None else np.asarray(index), kind, names)


def as_numbers(X: Any) -> check.Table:
    """Return any rows as a table of numbers; other columns of a frame are encoded."""
    return read_rows(X, None)[0].table


def _categories(series: Any) -> str:
    """Categories of a pandas column in their order; empty for any other column."""
    kind = getattr(series.to_native(), "dtype", None)
    return type_of(kind) if series.dtype == nw.Categorical and hasattr(kind, "ordered") else ""


def read_columns(rows: Any) -> list[tuple[Any, str, Any]]:
    """Return name, type and entries of each column of a frame or array; the type includes the order of categories."""
    frame = nw.from_native(rows, eager_only=True, pass_through=True)
    if isinstance(frame, nw.DataFrame):
        return [
            (series.name, f"{series.dtype} {_categories(series)}".strip(), series.to_list())
            for series in frame.iter_columns()
        ]
    return [(j, str(rows.dtype), column.tolist()) for j, column in enumerate(rows.T)]


@dataclass
class Encoder:
    """Numeric encoding of the rows of a frame, for distances.

    Numbers and times are divided by their standard deviation, with missing ones at the mean. Any other column becomes
    an indicator column for each of its most frequent values.
    """

    fitted_on: Any
    scales: list[tuple[float, float] | None] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        names = []
        for _, _, values in read_columns(self.fitted_on):
            numbers = _as_numbers(values)
            scale = None
            if numbers is not None:
                known = numbers[np.isfinite(numbers)]
                scale = (float(known.mean()), float(known.std()) or 1.0) if known.size else (0.0, 1.0)
            else:
                names.append(_as_names(values))
            self.scales.append(scale)
        self.fitted_on = None  # the caller's object
        self._one_hot = OneHotEncoder(
            handle_unknown="infrequent_if_exist", max_categories=MOST_CATEGORIES, sparse_output=False
        )
        if names:
            self._one_hot.fit(np.column_stack(names))

    def __call__(self, rows: Any) -> Floats:
        """Encode rows with these columns."""
        numbers, names = [], []
        for scale, (_, _, values) in zip(self.scales, read_columns(rows), strict=True):
            if scale is None:
                names.append(_as_names(values))
                continue
            found = _as_numbers(values)
            found = np.full(len(values), np.nan) if found is None else found
            numbers.append(np.where(np.isfinite(found), (found - scale[0]) / scale[1], 0.0))
        blocks = [np.column_stack(numbers)] if numbers else []
        return np.hstack([*blocks, *([self._one_hot.transform(np.column_stack(names))] if names else [])])


def _as_numbers(values: list[Any]) -> Floats | None:
    """Return numbers and times as floats, NaN if missing; None if there is anything else."""
    try:
        return np.array([_as_number(value) for value in values], dtype=np.float64)
    except TypeError:
        return None


def _as_number(value: Any) -> float:
    if _is_missing(value):
        return np.nan
    if isinstance(value, int | float | np.number | np.bool_ | Decimal):
        return float(value)
    if isinstance(value, datetime.datetime):
        return ((value if value.tzinfo else value.replace(tzinfo=datetime.UTC)) - _EPOCH).total_seconds()
    if isinstance(value, datetime.date):
        return value.toordinal() * 86400.0
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    raise TypeError


def _as_names(values: list[Any]) -> npt.NDArray[Any]:
    return object_array(["" if _is_missing(value) else str(value) for value in values])


def _is_missing(value: Any) -> bool:
    if isinstance(value, float):
        return bool(np.isnan(value))
    return value is None or type(value).__name__ in ("NAType", "NaTType")


def _kind(rows: Any) -> str:
    """Return the library of a frame; "numpy" for anything else."""
    frame = nw.from_native(rows, eager_only=True, pass_through=True)
    return check.frame_kind(frame) if isinstance(frame, nw.DataFrame) else "numpy"


def _unpacked(X: Any) -> Any:
    """Return an Arrow record batch as a frame; anything else unchanged."""
    return X.to_pandas() if type(X).__name__ == "RecordBatch" else X


def _as_pandas(rows: Any) -> list[Any]:
    """Return a polars or Arrow table as a pandas frame, for models that do not take it; empty without pandas."""
    if _kind(rows) not in ("polars", "pyarrow"):
        return []
    try:
        return [rows.to_pandas()]
    except ImportError:
        return []


def _ordered(frame: Any, columns: list[Any]) -> Any:
    """Return the columns of a frame in this order."""
    if list(nw.from_native(frame).columns) == columns:
        return frame
    return frame.select(columns) if hasattr(frame, "select") else frame[columns]


def _like(rows: Any, fitted: Any, columns: list[Any] | None, name: str) -> Any:
    """Convert checked rows to the container of the training rows."""
    kind, wanted = _kind(rows), _kind(fitted)
    if kind == wanted:
        return rows
    if wanted == "pandas":
        import pandas as pd

        return pd.DataFrame(rows, columns=columns) if kind == "numpy" else rows.to_pandas()
    if wanted == "numpy":
        found = [_as_numbers(values) for _, _, values in read_columns(rows)]
        if fitted.dtype.kind != "f" or any(column is None for column in found):
            raise InputError(
                f"{name!r} is a frame, but the training rows are an array that is not all plain numbers. Pass both in "
                "the same kind of container."
            )
        return np.column_stack([column for column in found if column is not None])
    import polars as pl

    if kind == "numpy":
        return pl.DataFrame(rows, schema=columns)
    return pl.from_pandas(rows) if kind == "pandas" else pl.from_arrow(rows)


def _unusable(refusal: InputError, error: Exception, what: str) -> InputError:
    said = textwrap.shorten(str(error), 300, placeholder=" ...")
    return InputError(f"{refusal} The model cannot {what} it unchanged either ({type(error).__name__}: {said}).")
