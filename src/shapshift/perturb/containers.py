"""Rows and labels in the caller's container: count them, select some, store changed ones."""

from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._arrays import take_rows as take_rows
from shapshift.exceptions import InputError

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def count_rows(data: Any) -> int:
    """Return the number of rows of a table, or of labels."""
    return int(data.shape[0]) if hasattr(data, "shape") else len(data)


def count_points(X_val: Any, y_val: Any) -> int:
    """Return the number of points; refuse an empty validation set, and other numbers of labels than rows."""
    if count_rows(X_val) != count_rows(y_val) or not count_rows(y_val):
        raise InputError(
            f"'y_val' must have one label for each row of 'X_val', at least one. Got {count_rows(y_val)} labels and "
            f"{count_rows(X_val)} rows."
        )
    return count_rows(y_val)


def like_features(rows: Floats, X: Any) -> Any:
    """Return changed rows in the caller's container."""
    if sparse.issparse(X):
        return sparse.csr_array(rows)
    if isinstance(X, np.ndarray):
        return rows.astype(X.dtype) if X.dtype.kind == "f" else rows
    frame = nw.from_native(X, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        return rows
    if hasattr(X, "iloc"):
        return type(X)(rows, index=X.index, columns=X.columns)
    new = [nw.new_series(name, rows[:, j], backend=frame.implementation) for j, name in enumerate(frame.columns)]
    return frame.with_columns(*new).to_native()


def like_labels(flipped: list[Any], labels: npt.NDArray[Any], y: Any, name: str = "y_val") -> Any:
    """Return changed labels in the caller's container and type."""
    if isinstance(y, list | tuple):
        return flipped
    try:
        new = _make_labels(flipped, labels, y)
        kept = np.asarray(new).tolist() == flipped
    except (OverflowError, TypeError, ValueError):
        kept = False
    if not kept:
        kind = getattr(y, "dtype", type(y).__name__)
        raise InputError(f"{name!r} of type {kind} cannot hold the new labels. Convert it to a wider type.")
    return new


def _make_labels(flipped: list[Any], labels: npt.NDArray[Any], y: Any) -> Any:
    series = nw.from_native(y, allow_series=True, eager_only=True, pass_through=True)
    if isinstance(series, nw.Series) and hasattr(y, "iloc"):
        if not set(flipped) <= set(getattr(y.dtype, "categories", flipped)):
            raise InputError("not among the categories")
        return type(y)(flipped, index=y.index, name=y.name, dtype=y.dtype)
    if isinstance(series, nw.Series):
        return nw.new_series(series.name, flipped, series.dtype, backend=series.implementation).to_native()
    if labels.dtype == object:
        array = labels.copy()
        for row, label in enumerate(flipped):  # one by one: a slice assignment would unpack tuples
            array[row] = label
        return array
    # Text arrays have a fixed width; a longer label must not be truncated.
    return np.array(flipped, dtype=None if labels.dtype.kind in "US" else labels.dtype)
