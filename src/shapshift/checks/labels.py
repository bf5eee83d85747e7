"""Labels, validation groups, row ids and owners: checked once, then numbers."""

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import narwhals as nw
import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.exceptions import DataConversionWarning

from shapshift._arrays import object_array
from shapshift.checks.inputs import places, quoted, some, tensor_to_numpy
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError

Codes = npt.NDArray[np.int32]


def check_labels(y: Any, name: str, n_rows: int, of: str, noun: str = "label") -> npt.NDArray[Any]:
    """Turn labels of any hashable kind into a 1-D array without missing entries.

    Parameters
    ----------
    y : array, series, column, tensor or sequence
    name, of : str
        How messages call it, and the table it belongs to.
    n_rows : int
        How many entries there must be.
    noun : str
        What messages call one entry.
    """
    if y is None:
        raise InputError(
            f"The estimator requires y to be passed, but the target y is None: {name!r} needs one {noun} for each of "
            f"the {n_rows} rows of {of!r}."
        )
    labels = _column(y, name, noun)
    if labels.shape != (n_rows,):
        raise InputError(
            f"{name!r} must have one {noun} for each of the {n_rows} rows of {of!r}. Got {labels.shape[0]}: "
            "inconsistent numbers of samples."
        )
    if labels.dtype.kind == "c" or any(isinstance(label, complex) for label in labels[:1].tolist()):
        raise InputError(f"{name!r}: Complex data not supported. Use real numbers, strings or other names.")
    missing = _missing(labels)
    if missing.any():
        bad = labels[missing][0]
        infinite = isinstance(bad, float | np.floating) and np.isinf(bad)
        raise InputError(
            f"Input {name} contains {'infinity' if infinite else 'NaN'} or missing entries: {int(missing.sum())} of "
            f"{labels.size}, the first ({quoted(bad)}) at row {int(missing.argmax())}. Drop those rows, or give "
            f"each its {noun}."
        )
    return labels


def split_missing(y: Any, name: str) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Labels of any hashable kind as a 1-D array, and which of them are missing; infinite ones are not."""
    labels = _column(y, name, "label")
    return labels, np.isnan(labels) if labels.dtype.kind == "f" else _missing(labels)


#: Whole numbers are to be predicted if more values than these occur, and more than this share of the rows.
MANY_VALUES, MANY_SHARE = 30, 0.05


def are_numbers(labels: npt.NDArray[Any]) -> bool:
    """Whether labels are numbers to predict rather than classes, if the caller does not say.

    They are if they have fractions, or if there are more than 30 different ones, which are more than 5% of the rows.
    """
    if labels.dtype.kind not in "iuf" or not labels.size:
        return False
    if labels.dtype.kind == "f" and bool((labels != np.floor(labels)).any()):
        return True
    return bool(np.unique(labels).size > max(MANY_VALUES, MANY_SHARE * labels.size))


def encode_labels(labels: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Codes]:
    """Distinct training labels and the class number of each row."""
    classes, codes = _numbered(labels, "y")
    return classes, codes.astype(np.int32)


def look_up_labels(labels: npt.NDArray[Any], classes: npt.NDArray[Any], *, quiet: bool = False) -> Codes:
    """Class number of each validation label, -1 (and one warning, unless quiet) for labels never seen in training."""
    known = {label: k for k, label in enumerate(classes.tolist())}
    distinct, places = _numbered(labels, "y_val")
    codes = np.array([known.get(label, -1) for label in distinct.tolist()], dtype=np.int32)
    found: Codes = codes[places]
    if (codes < 0).any() and not quiet:
        warn(
            f"{(found < 0).sum()} of {labels.size} validation labels were never seen in training: "
            f"{some(distinct[codes < 0].tolist())}. No training row can match them. Training labels: "
            f"{some(classes.tolist())}."
        )
    return found


def check_groups(
    groups: Any, n_val: int, name: str = "groups", of: str = "X_val"
) -> tuple[list[Any], npt.NDArray[np.int64]]:
    """Distinct names in order of first appearance, and the number of each validation point's."""
    names, codes = _numbered(check_labels(groups, name, n_val, of, "name").astype(object), name, False)
    return names.tolist(), codes


def check_point_weight(
    caller: str, given: Any, labels: npt.NDArray[Any], *, classes: bool = True
) -> npt.NDArray[np.float64] | None:
    """Return the weight of each validation point, 1 on average; None if all weights are equal.

    Parameters
    ----------
    caller : str
    given : "balanced", array-like or None
        "balanced" gives all classes of the points the same total weight.
    labels : ndarray of shape (n_val,)
        Labels of the points.
    classes : bool
        Whether labels are classes.
    """
    if given is None:
        return None
    expected = "None, 'balanced', or hold a finite number of at least 0 for each validation point, one above 0"
    if isinstance(given, str):
        if given != "balanced":
            raise InputError(
                f"The 'point_weight' parameter of {caller} must be {expected}. Got {given!r} instead; a column can "
                "be named only if 'X_val' is read from Parquet."
            )
        if not classes:
            raise InputError(
                f"The 'point_weight' parameter of {caller} must hold a number for each validation point if targets "
                "are numbers. Got 'balanced', which is for classes."
            )
        counts = np.bincount(codes := encode_labels(labels)[1])
        weights: npt.NDArray[np.float64] = 1.0 / counts[codes]
    else:
        entries = check_labels(given, "point_weight", labels.size, "X_val", "weight")
        try:
            weights = np.asarray(entries, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InputError(
                f"The 'point_weight' parameter of {caller} must be {expected}. Got {quoted(entries[0])}."
            ) from None
    wrong = ~np.isfinite(weights) | (weights < 0)
    if wrong.any() or not weights.any():
        got = f"{quoted(weights[wrong][0])} for point {int(wrong.argmax())}" if wrong.any() else "only zeros"
        raise InputError(f"The 'point_weight' parameter of {caller} must be {expected}. Got {got}.")
    if (weights == weights[0]).all():
        return None
    weights = weights / weights.max()
    weights *= weights.size / weights.sum()
    return weights


def describe_weights(given: Any, weights: npt.NDArray[np.float64] | None) -> dict[str, Any]:
    """Return the entry on weights in the parameters of a result, given the requested and the actual weights.

    Equal weights are not recorded; "balanced" always is, since the classes of another set may differ in size.
    """
    if isinstance(given, str) and given == "balanced":
        return {"point_weight": "balanced"} | ({"equal_weights": True} if weights is None else {})
    if weights is None:
        return {}
    # Rounded: proportional weights are equal.
    digest = hashlib.blake2b(np.round(weights, 9).tobytes(), digest_size=8).hexdigest()
    return {"point_weight": "given", "weight_digest": [weights.size, digest]}


def check_order(order: Any, ids: npt.NDArray[Any], name: str = "order") -> Codes:
    """Match an order of the training rows to them, by index if it has one; return the class number of each row.

    Parameters
    ----------
    order : array-like of shape (n_train,)
        Dates, numbers or texts; equal ones make a class. A pandas Series is matched by its index to ``ids``, and
        ordered categories of pandas keep their order.
    ids : ndarray of shape (n_train,)
        Row ids.
    name : str
        Name of the order in messages.
    """
    expected = f"The {name!r} parameter must hold a date, number or text for each of the {ids.size} training rows"
    if isinstance(order, str | bytes) or not hasattr(order, "__iter__"):
        raise InputError(f"{expected}. Got {order!r}.")
    if hasattr(order, "loc") and hasattr(order, "index"):
        order = aligned(order, ids, name)
        if getattr(getattr(order, "dtype", None), "ordered", False):
            order = order.cat.codes.where(order.notna())
    labels = check_labels(order, name, ids.size, "X", "date, number or text")
    if labels.dtype != object:
        return np.unique(labels, return_inverse=True)[1].astype(np.int32)
    try:
        distinct = sorted(set(labels.tolist()))
    except TypeError as error:
        raise InputError(f"{expected} that can be compared with all others: {error}. Use one kind for all.") from None
    if all(isinstance(entry, str) for entry in distinct):
        _check_digits(distinct, name)
    numbers = {entry: k for k, entry in enumerate(distinct)}
    return np.fromiter((numbers[entry] for entry in labels), np.int32, labels.size)


def _check_digits(texts: list[str], name: str) -> None:
    """Refuse numbers as text that sort differently from numbers."""
    try:
        numbers = [float(text) for text in texts]
    except ValueError:
        return
    for k in range(1, len(texts)):
        if numbers[k] < numbers[k - 1]:
            raise InputError(
                f"The {name!r} parameter holds numbers as text, where {quoted(texts[k - 1])} comes before "
                f"{quoted(texts[k])}. Pass numbers."
            )


def describe_order(order: Codes | None) -> dict[str, Any]:
    """Return the facts about an order of the training rows for a result: its number of classes, a digest."""
    if order is None:
        return {}
    digest = hashlib.blake2b(order.tobytes(), digest_size=8).hexdigest()
    return {"order": {"classes": int(order.max()) + 1, "digest": digest}}


def count_and_index(X: Any, y: Any) -> tuple[int, npt.NDArray[Any] | None, tuple[Any, ...]]:
    """Return the number of training rows if there are no features, and their index, from the rows or the labels."""
    if y is None or not hasattr(y, "__len__") or len(y) == 0:
        raise InputError(f"'y' must hold at least one training label. Got {y!r}.")
    if X is not None and (X.shape[0] if hasattr(X, "shape") else len(X)) != len(y):
        raise InputError(f"'X' and 'y' have different lengths; 'y' has {len(y)} labels. Pass X=None to leave it out.")
    return len(y), *pandas_index(X, y)


def pandas_index(*containers: Any) -> tuple[npt.NDArray[Any] | None, tuple[Any, ...]]:
    """Index of the first of some containers that has a pandas index, and the names of its levels; None without one."""
    for data in containers:
        native: Any = getattr(data, "index", None)
        if hasattr(native, "names") and hasattr(native, "equals"):
            return np.asarray(native), tuple(native.names)
    return None, ("id",)


def check_same_order(X: Any, y: Any) -> None:
    """Refuse a pandas table and labels that have the same index in different orders: one of them was shuffled."""
    ours: Any = getattr(X, "index", None)
    theirs: Any = getattr(y, "index", None)
    if not (hasattr(ours, "equals") and hasattr(theirs, "equals")) or ours.equals(theirs):
        return
    if len(ours) == len(theirs) and set(ours) == set(theirs) and len(set(ours)) == len(ours):
        raise InputError(
            "'X' and 'y' have the same index in different orders, so rows and labels do not belong together. Align "
            "them, for instance with y.loc[X.index]."
        )


def check_ids(ids: Any, table_index: npt.NDArray[Any] | None, n_rows: int) -> npt.NDArray[Any]:
    """Row ids: given ones, else the caller's index, else 0..N-1. A locked copy: no later change reaches results."""
    if ids is not None:
        found = check_labels(ids, "ids", n_rows, "X", "id").copy()
    else:
        found = np.arange(n_rows) if table_index is None else table_index.copy()
    found.flags.writeable = False
    return found


@dataclass(frozen=True)
class Ownership:
    """Owners in order of first appearance, and the owner number of each training row."""

    names: tuple[Any, ...]
    codes: npt.NDArray[np.int64]

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """Rows per owner."""
        return np.bincount(self.codes, minlength=len(self.names))

    def rows_of(self) -> list[npt.NDArray[np.int64]]:
        """Positions of the rows of each owner."""
        order = np.argsort(self.codes, kind="stable")
        return np.split(order, np.cumsum(self.counts)[:-1])


def check_owners(owners: Any, ids: npt.NDArray[Any], name: str = "owners") -> Ownership:
    """Match owners to training rows: by index if they have one, else by position.

    Parameters
    ----------
    owners : array-like of shape (n_train,)
        A pandas Series is matched by its index to ``ids``.
    ids : ndarray of shape (n_train,)
        Row ids.
    name : str
        Name of the owners in messages.
    """
    if owners is None or isinstance(owners, str | bytes) or not hasattr(owners, "__iter__"):
        raise InputError(
            f"The {name!r} parameter must hold one owner for each of the {ids.size} training rows. Got {owners!r}."
        )
    if hasattr(owners, "loc") and hasattr(owners, "index"):
        owners = aligned(owners, ids, name)
    elif isinstance(owners, list | tuple):
        owners = object_array(list(owners))  # unchanged: an array of strings would drop trailing NUL characters
    labels = check_labels(owners, name, ids.size, "X_train", "owner")
    names, codes = _numbered(labels.astype(object), name, ordered=False)
    return Ownership(tuple(names.tolist()), codes)


def owner_column(owners: Sequence[Any]) -> npt.NDArray[Any]:
    """Owners as a column of a table: unchanged if they are of one plain kind, else as text."""
    kinds = {type(owner) for owner in owners}
    plain = len(kinds) == 1 and kinds <= {str, int, float, bool}
    return object_array(list(owners) if plain else [str(owner) for owner in owners])


def aligned(owners: Any, ids: npt.NDArray[Any], name: str) -> Any:
    """Bring a pandas Series or frame into the order of the ids."""
    index, wanted = owners.index.tolist(), ids.tolist()
    if index == wanted:
        return owners
    known = set(index)
    missing = [label for label in wanted if label not in known]
    if missing or len(index) != len(wanted):
        why = f"no entry for row {missing[0]!r}" if missing else f"{len(index)} entries for {len(wanted)} rows"
        raise InputError(
            f"The index of {name!r} must hold the ids of the training rows: there is {why}. If the entries are already "
            f"in the order of the rows, pass {name}.to_numpy()."
        )
    if len(known) != len(index):
        raise InputError(
            f"The index of {name!r} has repeated entries and another order than the training rows, so it cannot be "
            f"matched. Bring it into their order and pass {name}.to_numpy()."
        )
    return owners.iloc[places(index, wanted)]


def _column(y: Any, name: str, noun: str) -> npt.NDArray[Any]:
    series = nw.from_native(y, allow_series=True, pass_through=True)
    if isinstance(series, nw.LazyFrame):
        raise InputError(f"{name!r} is a lazy frame. Collect it first: {name}.collect().")
    if isinstance(series, nw.DataFrame):
        if series.shape[1] != 1:
            raise InputError(f"{name!r} must be one column. Got a table with {series.shape[1]} columns; select one.")
        series = series[:, 0]
    if isinstance(series, nw.Series):
        return object_array(series.to_list()) if series.null_count() else _plain(np.asarray(series.to_numpy()))
    if sparse.issparse(y):
        raise InputError(f"{name!r} is sparse: sparse labels are not supported. Pass a dense array.")
    if isinstance(y, np.ma.MaskedArray):
        raise InputError(f"{name!r} is a masked array. Drop the masked rows and pass {name}.data.")
    y = tensor_to_numpy(y)
    if isinstance(y, np.ndarray):
        if y.ndim == 2 and y.shape[1] == 1:
            y = y.ravel()
            warn(
                f"A column-vector {name} was passed when a 1d array was expected. Please change the shape to "
                "(n_samples,), for example using ravel().",
                DataConversionWarning,
            )
        if y.ndim != 1:
            raise InputError(f"{name!r} must be one column with one {noun} per row. Got an array of shape {y.shape}.")
        return _plain(y)
    if isinstance(y, str | bytes | set | frozenset | dict) or not hasattr(y, "__iter__"):
        raise InputError(f"{name!r} must be a list, array or column with one {noun} per row. Got {type(y).__name__}.")
    # A pyarrow array yields scalars of its own when iterated.
    return _from_entries(y.to_pylist() if hasattr(y, "to_pylist") else list(y))


def _from_entries(entries: list[Any]) -> npt.NDArray[Any]:
    """Make an array of a list without letting NumPy reinterpret it: mixed kinds, tuples, long integers, strings."""
    entries = [_scalar(entry) for entry in entries]
    kinds = {type(entry) for entry in entries}
    if len(kinds) == 1 and kinds <= {int, float, bool}:
        array = np.asarray(entries)
        if kinds != {int} or array.dtype == np.int64:
            return array
    return _plain(object_array(entries))


def _scalar(entry: Any) -> Any:
    """Convert a 0-d array or tensor to its number; dates are left to :func:`_plain`."""
    if isinstance(entry, np.datetime64 | np.timedelta64) or not hasattr(entry, "item"):
        return entry
    return entry.item() if getattr(entry, "ndim", 1) == 0 else entry


def _plain(labels: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Convert dates of any unit to Python's own; nothing else changes.

    NumPy turns nanosecond dates into integers and all others into datetimes, so equal dates of different units would
    not match.
    """
    if labels.dtype == object:
        if any(isinstance(label, np.datetime64 | np.timedelta64) for label in labels):
            return object_array([_plain(np.array([x]))[0] if isinstance(x, np.generic) else x for x in labels])
        return labels
    if labels.dtype.kind not in "mM":
        return labels
    coarse = labels.astype(f"{labels.dtype.kind}8[us]")
    if (coarse == labels).all() or np.isnat(labels).any():
        return coarse.astype(object)
    return labels.astype(str).astype(object)  # finer than a microsecond: compared as text


def _missing(labels: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    if labels.dtype.kind == "f":
        return np.asarray(~np.isfinite(labels))
    if labels.dtype.kind in "mM":
        return np.asarray(np.isnat(labels))
    if labels.dtype != object:
        return np.zeros(labels.shape, dtype=bool)
    # Only missing values differ from themselves (NaN, NaT) or refuse to compare (pandas.NA).
    return np.fromiter((is_missing(label) for label in labels), bool, labels.size)


def is_missing(label: object) -> bool:
    """Whether an entry is None, NaN, NaT or pandas.NA."""
    if label is None:
        return True
    try:
        return not bool(label == label)
    except (TypeError, ValueError):
        return True


def _numbered(
    labels: npt.NDArray[Any], name: str, ordered: bool = True
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int64]]:
    """Distinct labels and the number of each entry: sorted if requested and possible, else in order of appearance."""
    if labels.dtype != object:
        return np.unique(labels, return_inverse=True)
    try:
        distinct = list(dict.fromkeys(labels.tolist()))
    except TypeError as error:
        raise InputError(f"{name!r} must hold hashable labels, such as strings, numbers or tuples ({error}).") from None
    if ordered:
        with suppress(TypeError):
            distinct = sorted(distinct)
    numbers = {label: k for k, label in enumerate(distinct)}
    return object_array(distinct), np.fromiter((numbers[label] for label in labels), np.int64, labels.size)
