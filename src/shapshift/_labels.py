"""Labels, validation groups and row ids: checked once, then numbers."""

import warnings
from contextlib import suppress
from typing import Any, cast

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from shapshift._archive import object_array
from shapshift._validation import some

Codes = npt.NDArray[np.int32]


def check_labels(y: Any, name: str, n_rows: int, of: str) -> npt.NDArray[Any]:
    """Turn labels of any hashable kind into a 1-D array without missing entries."""
    if y is None:
        raise ValueError(
            f"The estimator requires y to be passed, but the target y is None: {name!r} needs one label for each of "
            f"the {n_rows} rows of {of!r}."
        )
    labels = _column(y, name)
    if labels.shape != (n_rows,):
        raise ValueError(
            f"{name!r} must have one label for each of the {n_rows} rows of {of!r}. Got {labels.shape[0]} labels: "
            "inconsistent numbers of samples."
        )
    if labels.dtype.kind == "c":
        raise ValueError(f"{name!r}: Complex data not supported. Labels must be real numbers, strings or other names.")
    missing = _missing(labels)
    if missing.any():
        bad = labels[missing][0]
        infinite = isinstance(bad, float | np.floating) and np.isinf(bad)
        raise ValueError(
            f"Input {name} contains {'infinity' if infinite else 'NaN'} or missing labels: {int(missing.sum())} of "
            f"{labels.size}, the first ({bad!r}) at row {int(missing.argmax())}. Drop those rows or give them a label."
        )
    return labels


def encode_labels(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Codes]:
    """Distinct training labels and the class number of each row."""
    if labels.dtype != object:
        classes, codes = np.unique(labels, return_inverse=True)
        return classes, codes.astype(np.int32)
    numbers = _numbered(labels, "y", ordered=True)
    return object_array(list(numbers)), np.fromiter((numbers[label] for label in labels), np.int32, labels.size)


def look_up_labels(labels: npt.NDArray[Any], classes: npt.NDArray[Any]) -> Codes:
    """Class number of each validation label, -1 (and one warning) for labels never seen in training."""
    known = {label: k for k, label in enumerate(classes.tolist())}
    if labels.dtype != object:
        distinct, inverse = np.unique(labels, return_inverse=True)
        names = distinct.tolist()
    else:
        numbers = _numbered(labels, "y_val", ordered=True)
        names = list(numbers)
        inverse = np.fromiter((numbers[label] for label in labels), np.int64, labels.size)
    codes = np.array([known.get(label, -1) for label in names], dtype=np.int32)
    unseen = [label for label, code in zip(names, codes, strict=True) if code < 0]
    if unseen:
        count = int((codes[inverse] < 0).sum())
        warnings.warn(
            f"{count} of {labels.size} validation labels were never seen in training: {some(unseen)}. No training row "
            f"can match them. Training labels: {some(classes.tolist())}.",
            UserWarning,
            stacklevel=3,
        )
    return codes[inverse]


def check_groups(groups: Any, n_val: int) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """Distinct group names in order of first appearance, and the group number of each validation point."""
    names = check_labels(groups, "groups", n_val, "X_val")
    numbers = _numbered(names, "groups", ordered=False)
    return list(numbers), np.fromiter((numbers[name] for name in names.tolist()), np.int64, n_val)


def check_ids(ids: Any, table_index: npt.NDArray[Any] | None, n_rows: int) -> npt.NDArray[Any]:
    """Row ids: given ones, else the caller's index, else 0..N-1."""
    if ids is None:
        return np.arange(n_rows) if table_index is None else table_index
    return check_labels(ids, "ids", n_rows, "X")


def _column(y: Any, name: str) -> npt.NDArray[Any]:
    series = nw.from_native(y, allow_series=True, eager_only=True, pass_through=True)
    if isinstance(series, nw.DataFrame):
        if series.shape[1] != 1:
            raise ValueError(f"{name!r} must be one column. Got a table with {series.shape[1]} columns; select one.")
        series = series[series.columns[0]]
    if isinstance(series, nw.Series):
        if series.null_count():
            return np.array(series.to_list(), dtype=object)
        return np.asarray(series.to_numpy())
    if sparse.issparse(y):
        raise TypeError(f"{name!r} is sparse: sparse labels are not supported. Pass a dense array.")
    if type(y).__module__.split(".")[0] == "torch":
        return cast(npt.NDArray[Any], y.detach().cpu().numpy())
    if not isinstance(y, np.ndarray):
        y = y.to_pylist() if hasattr(y, "to_pylist") else y  # a pyarrow array yields scalars of its own when iterated
        # Asked for an array, NumPy would turn tuples into extra dimensions and mixed kinds into strings.
        entries = list(y)
        kinds = {type(entry) for entry in entries}
        plain = len(kinds) == 1 and kinds <= {int, float, str, bool}
        return np.asarray(entries) if plain else object_array(entries)
    if y.ndim == 2 and y.shape[1] == 1:
        warnings.warn(
            f"A column-vector {name} was passed when a 1d array was expected. Please change the shape to (n_samples,), "
            "for example using ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
        return y.ravel()
    if y.ndim != 1:
        raise ValueError(f"{name!r} must be one column of labels. Got an array of shape {y.shape}.")
    return y


def _missing(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if labels.dtype.kind == "f":
        return np.asarray(~np.isfinite(labels))
    if labels.dtype.kind in "mM":
        return np.asarray(np.isnat(labels))
    if labels.dtype != object:
        return np.zeros(labels.shape, dtype=bool)
    # Only missing values differ from themselves (NaN, NaT) or refuse to compare (pandas.NA).
    return np.fromiter((_is_missing(label) for label in labels), bool, labels.size)


def _is_missing(label: object) -> bool:
    if label is None:
        return True
    try:
        return not bool(label == label)
    except (TypeError, ValueError):
        return True


def _numbered(labels: npt.NDArray[Any], name: str, *, ordered: bool) -> dict[Any, int]:
    """Give distinct labels numbers: in sorted order if asked for and possible, else by first appearance."""
    try:
        distinct = list(dict.fromkeys(labels.tolist()))
    except TypeError as error:
        raise TypeError(f"{name!r} must hold hashable labels, such as strings, numbers or tuples ({error}).") from None
    if ordered:
        with suppress(TypeError):
            distinct = sorted(distinct)
    return {label: k for k, label in enumerate(distinct)}
