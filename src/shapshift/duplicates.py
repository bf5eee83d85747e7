"""find_duplicates: equal and nearly equal rows, within and across owners, splits and labels."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import narwhals as nw
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from scipy import linalg, sparse, special

from shapshift._arrays import object_array
from shapshift._progress import progress_bar
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.duplicates import number_equal
from shapshift.engine.rows.distances import feature_std, index_rows, tile_filler, true_distances
from shapshift.engine.search import exact_search
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.kernels.pairs import SortedRows, gather_stars, near_pairs

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

#: Share of the rows of honest data that may have another within the radius, and the largest radius, in typical
#: distances of a row to its nearest one.
HONEST_SHARE, CLOSE = 0.001, 0.25
#: Rows that the radius is estimated from, and the ranks of the neighbours whose distances are looked at.
SAMPLE_ROWS, RANKS = 1000, (10, 20)
#: Rows closer than this part of the median distance, or of the radius, count once in scale and radius; in the radius
#: also those that are closer than this part of the median distance, or of the distance to a 10th neighbour, and then
#: those as close as this share of the rows would be by chance.
TINY, SAME, CLUMP, CLUMP_SHARE = 1e-5, 0.3, 0.01, 0.01
#: Deviations count features up to this many interquartile ranges from their medians: many while rows are still looked
#: for that count once, since noise may be all that lies between the quartiles of a feature with one frequent value.
WIDE, REACH = 1e100, 10.0
#: A row within this part of the radius of any earlier one of its label is in that one's group.
ECHO = 0.01
#: Dimensions below this are those of clumps.
LEAST = 0.8
# Coordinates of a sketch, fitted or drawn; rows that directions are fitted on; rows compared between
# two steps of the progress bar. Squared distances of 16 drawn coordinates are those of the rows times a chi-squared
# variable, which is above SLACK with probability 2e-10.
DIRECTIONS, DRAWN, SKETCH_ROWS, STEP, SLACK = 6, 16, 512, 4096, 80.0
TRAIN, VALIDATION = 1, 2
# Largest number of parts that the labels are divided into, where only rows of equal label are compared.
PARTS = 64


@dataclass(frozen=True, eq=False, repr=False)
class Duplicates(Result):
    """Groups of equal and nearly equal rows; see :func:`find_duplicates`.

    Attributes
    ----------
    ids, ids_val : ndarray of shape (n_train,), (n_val,)
        Ids of the training and validation rows.
    group : ndarray of shape (n_train + n_val,)
        Number of each row's group, -1 for a row without a duplicate; training rows come first. Groups are numbered by
        their first rows, which are their earliest ones.
    distance : ndarray of shape (n_train + n_val,)
        Distance to the nearest other row of the group, 0 for an exact copy; NaN for rows without a group.
    contradicting : ndarray of shape (n_train,)
        Whether an exact copy of the row, in either split, has another label.
    across : ndarray of shape (n_train,)
        Whether the row has an exact or near copy among the validation rows.
    radius : float
        Distance up to which rows are near-duplicates.
    honest : float
        How many rows would have another within the radius by chance, in data without copies.
    labels, labels_val, owners : ndarray or None
        As given.
    kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import find_duplicates
    >>> found = find_duplicates(np.array([[0.0, 1.0], [5.0, 2.0], [0.0, 1.0]]), ["a", "b", "a"], radius=0)
    >>> found.clusters().tolist()
    [0, 1, 0]
    """

    archive_kind: ClassVar[str] = "shapshift.Duplicates"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("ids", "contradicting", "across", "labels", "owners"), "n_train"),
        **dict.fromkeys(("ids_val", "labels_val"), "n_val"),
        **dict.fromkeys(("group", "distance"), "n"),
    }

    ids: npt.NDArray[Any]
    ids_val: npt.NDArray[Any]
    group: Indices
    distance: Floats
    contradicting: Flags
    across: Flags
    radius: float
    honest: float
    labels: npt.NDArray[Any] | None = None
    labels_val: npt.NDArray[Any] | None = None
    owners: npt.NDArray[Any] | None = None
    kind: str = "numpy"

    @property
    def n_groups(self) -> int:
        """Number of groups."""
        return int(self.group.max(initial=-1)) + 1

    @property
    def across_owners(self) -> Flags:
        """Which training rows are in a group with a row of another owner."""
        return self._mixed(None if self.owners is None else self._numbered(self.owners))[: self.ids.size]

    def clusters(self) -> Indices:
        """Return a cluster for every training row, one of its own for a row without duplicates.

        Returns
        -------
        ndarray of shape (n_train,)
            Position of the earliest training row of the row's group: its own position where there is no other.
        """
        group, own = self.group[: self.ids.size], np.arange(self.ids.size)
        first = np.full(self.n_groups + 1, self.ids.size)
        np.minimum.at(first, group[group >= 0], own[group >= 0])
        return np.where(group < 0, own, first[group])

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the rows that have duplicates, group by group.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was given; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            ``group``, ``id``, ``split`` ("train", "validation"), ``owner`` and ``label`` (None where not given),
            ``distance`` to the nearest other row of the group, and ``kind``: "exact" at distance 0, else "near".
        """
        n = self.ids.size
        rows = np.lexsort((np.arange(self.group.size), self.group))
        rows = rows[self.group[rows] >= 0]
        unknown = [None] * self.ids_val.size
        labels = [*([None] * n if self.labels is None else self.labels.tolist())]
        labels += unknown if self.labels_val is None else self.labels_val.tolist()
        owners = [*([None] * n if self.owners is None else self.owners.tolist()), *unknown]
        columns: dict[str, npt.NDArray[Any]] = {
            "group": self.group[rows],
            "id": object_array([*self.ids.tolist(), *self.ids_val.tolist()])[rows],
            "split": np.where(rows < n, "train", "validation").astype(object),
            "owner": object_array(owners)[rows],
            "label": object_array(labels)[rows],
            "distance": self.distance[rows],
            "kind": np.where(self.distance[rows] == 0, "exact", "near").astype(object),
        }
        return to_table(columns, None, kind or self.kind)

    def owners_frame(self, kind: str | None = None) -> Any:
        """Tabulate who has copies of whose rows, most first.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            As in :meth:`to_frame`.

        Returns
        -------
        table
            ``owner`` of the earliest row of a group, ``other`` owner of later rows in it, ``rows``, how many those are
            in all groups, and how many of them are ``exact`` copies of some row.
        """
        if self.owners is None:
            raise InputError("There are no owners to tabulate. Pass 'owners' to find_duplicates.")
        names = self.owners.tolist()
        pairs: dict[tuple[Any, Any], list[int]] = {}
        for row, first in enumerate(self.clusters().tolist()):
            if names[row] != names[first]:
                counts = pairs.setdefault((names[first], names[row]), [0, 0])
                counts[0] += 1
                counts[1] += int(self.distance[row] == 0)
        ordered = sorted(pairs.items(), key=lambda pair: -pair[1][0])
        columns: dict[str, npt.NDArray[Any]] = {
            "owner": object_array([owner for (owner, _), _ in ordered]),
            "other": object_array([other for (_, other), _ in ordered]),
            "rows": np.array([rows for _, (rows, _) in ordered], dtype=np.int64),
            "exact": np.array([exact for _, (_, exact) in ordered], dtype=np.int64),
        }
        return to_table(columns, None, kind or self.kind)

    def summary(self) -> dict[str, Any]:
        """Count groups and rows.

        Returns
        -------
        dict
            ``groups``, ``rows`` in them, ``exact`` (rows with an exact copy) and ``near`` (the others);
            ``across_owners`` and ``across_splits``, groups with rows of several owners and of both splits;
            ``contradicting``, training rows whose exact copies have another label; ``radius``, and ``honest``, how many
            rows it would join by chance.
        """
        grouped = self.group >= 0
        splits = np.repeat([0, 1], [self.ids.size, self.ids_val.size])
        owners = None if self.owners is None else self._numbered(self.owners)
        return {
            "groups": self.n_groups,
            "rows": int(grouped.sum()),
            "exact": int((self.distance[grouped] == 0).sum()),
            "near": int((self.distance[grouped] > 0).sum()),
            "across_owners": int(np.unique(self.group[self._mixed(owners)]).size),
            "across_splits": int(np.unique(self.group[self._mixed(splits)]).size),
            "contradicting": int(self.contradicting.sum()),
            "radius": self.radius,
            "honest": self.honest,
        }

    def findings(self) -> list[str]:
        """Say in sentences what there is across owners, splits and labels; nothing where there is nothing."""
        n, copy = self.ids.size, "an exact copy" if self.radius == 0 else "an exact or near copy"
        told = {
            f"of {n:,} training rows have {copy} of another owner": self.across_owners,
            f"of {n:,} training rows have {copy} among the validation rows": self.across,
            f"of {n:,} training rows have an exact copy with another label": self.contradicting,
        }
        return [f"{int(rows.sum()):,} {words}." for words, rows in told.items() if rows.any()]

    def _numbered(self, names: npt.NDArray[Any]) -> Indices:
        """Return a number for each name, -1 for the rows of the validation set."""
        codes = _labels.encode_labels(names.astype(object))[1].astype(np.int64)
        return np.concatenate([codes, np.full(self.ids_val.size, -1)])

    def _mixed(self, codes: Indices | None) -> Flags:
        """Which rows are in a group with different codes; -1 is no code."""
        mixed = np.zeros(self.group.size, dtype=np.bool_)
        if codes is not None:
            known = (self.group >= 0) & (codes >= 0)
            low, high = np.full(self.n_groups, np.iinfo(np.int64).max), np.full(self.n_groups, -1)
            np.minimum.at(low, self.group[known], codes[known])
            np.maximum.at(high, self.group[known], codes[known])
            mixed[known] = (low < high)[self.group[known]]
        return mixed

    def __repr__(self) -> str:
        found = self.summary()
        return (
            f"Duplicates({found['groups']:,} {'group' if found['groups'] == 1 else 'groups'} "
            f"of {found['rows']:,} rows: {found['exact']:,} exact, "
            f"{found['near']:,} near; groups across owners={found['across_owners']:,}, "
            f"splits={found['across_splits']:,}; contradicting rows={found['contradicting']:,}; "
            f"radius={self.radius:.3g})"
        )


def find_duplicates(
    X: Any,
    y: Any = None,
    *,
    owners: Any = None,
    X_val: Any = None,
    y_val: Any = None,
    ids: Any = None,
    ids_val: Any = None,
    radius: float | None = None,
    same_label: bool = False,
    progress: bool | None = None,
) -> Duplicates:
    """Find rows that occur more than once, exactly or nearly, whatever their owners, splits and labels.

    Parameters
    ----------
    X : table of shape (n_train, n_features)
        Training rows. There may be columns of text, and missing entries, but not in sparse rows.
    y : array-like of shape (n_train,), optional
        Their labels, which do not decide about equality.
    owners : array-like of shape (n_train,), optional
        Owner of each row.
    X_val, y_val : table, array-like, optional
        Validation rows and their labels.
    ids, ids_val : array-like, optional
        Ids of the rows; by default the tables' index, or positions.
    radius : float, optional
        Largest distance of near-duplicates, in standard deviations of the features; 0 for exact ones alone. By default
        from the data, see Notes.
    same_label : bool, default=False
        Whether only rows with equal labels are duplicates.
    progress : bool, default=None

    Returns
    -------
    Duplicates

    Notes
    -----
    Exact copies have equal features: 0.0 and -0.0 are equal, and so are two missing entries. Near copies are at a
    Euclidean distance of at most ``radius``, each number divided by its standard deviation over all different
    rows, which exact copies do not move, and for which what is farther than ten interquartile ranges from the median
    counts as if it were there; two texts that differ count as a distance of the square root of 2, a missing
    entry and another one as 1 and how far that is from the mean. Sparse rows are compared as they are.

    The radius is such that 0.1% of the rows would have another within it by chance, and at most a quarter of the
    typical distance of a row to its nearest one. Both come from the distances of a thousand rows to their 10th and 20th
    nearest among each other: in d dimensions, which the median of their ratios tells, the number of rows within a
    radius grows with its d-th power. Rows that are much closer than chance would have it count once there, so that
    many near copies of a row do not make the radius small. With fewer than 21 different rows the radius is 0.

    Of rows that differ by less than a part of the radius the earliest counts for scale and radius, the others do not.
    Such rows are found by the plain standard deviations first: where one value of a feature is frequent, noise in its
    copies may be all that lies between the quartiles.

    A group has an earliest row, in the order of the training rows and then of the validation rows, and all later rows
    near it that are in no earlier group. A row whose only near rows are in other groups joins that of the nearest. So
    no row is farther than twice the radius from the earliest one, however long a chain of near rows is. With
    ``same_label`` it stays alone instead: no later row then changes which rows are the earliest ones. But one within a
    hundredth of the radius of any earlier row is in that one's group, so that no copy of a row is outside its group.

    Examples
    --------
    >>> from shapshift import find_duplicates
    >>> found = find_duplicates([[1.0], [2.0], [1.0], [5.0]], ["a", "b", "c", "d"], X_val=[[5.0]])
    >>> found.group.tolist(), found.contradicting.tolist(), found.across.tolist()
    ([0, -1, 0, 1, 1], [True, False, True, False], [False, False, False, True])
    """
    caller = "find_duplicates"
    if radius is not None:
        check.check_number(caller, "radius", radius)
    check.check_progress(caller, progress)
    if X_val is None and (y_val is not None or ids_val is not None):
        raise InputError(f"The 'X_val' parameter of {caller} is needed with 'y_val' and 'ids_val'.")
    table = _read(X, X_val)
    n, n_val = table.sizes
    ids = _labels.check_ids(ids, table.index, n)
    if ids_val is not None:
        ids_val = _labels.check_labels(ids_val, "ids_val", n_val, "X_val", "id")
    else:
        ids_val = np.arange(n_val) if table.index_val is None or X_val is None else table.index_val
    labels = None if y is None else _labels.check_labels(y, "y", n, "X")
    labels_val = None if y_val is None else _labels.check_labels(y_val, "y_val", n_val, "X_val")
    ownership = None if owners is None else _labels.check_owners(owners, ids)
    if same_label and (labels is None or (X_val is not None and labels_val is None)):
        raise InputError(f"The 'same_label' parameter of {caller} needs the labels of all rows. Pass 'y' and 'y_val'.")

    place_of, first, hashes = table.places()
    contradicting = _contradicting(place_of, labels, labels_val, n)
    # Rows that differ by noise alone are one for scale and radius, too.
    given, kept = table, np.arange(first.size)
    for reach in (WIDE, REACH, REACH, REACH):
        table = given.scaled_by(first[kept], reach)
        # Any rows, but the same in whatever order they come.
        sample = table.take(first[kept[np.argsort(hashes[kept])[:SAMPLE_ROWS]]])
        scale = _Scale.of(sample, kept.size)
        same = max(TINY * _middle(sample.joined()), SAME * scale.radius())
        before, kept = kept, _leaders(table.take(first), same)
        if reach == REACH and np.array_equal(kept, before):
            break
    if radius is None:
        radius = same if kept.size <= RANKS[1] < first.size else scale.radius()
    radius = float(radius)
    parts: Any = 0
    if same_label and labels is not None:
        named = [*labels.tolist(), *([] if labels_val is None else labels_val.tolist())]
        table = table.labelled(named, radius)
        place_of, first, _ = table.places()
        parts = _labels.encode_labels(object_array(named))[1][first] % PARTS
    bits = np.zeros(first.size, dtype=np.int8)
    np.bitwise_or.at(bits, place_of, np.repeat([TRAIN, VALIDATION], [n, n_val]).astype(np.int8))
    counts = np.bincount(place_of)
    near = _Near(np.arange(first.size), np.full(first.size, np.inf), np.zeros(first.size, dtype=np.int8))
    if radius > 0:
        with progress_bar("Duplicates", first.size, progress) as advance:
            for part in np.unique(parts):  # rows of different labels need not be compared
                own = np.flatnonzero(np.broadcast_to(parts == part, first.shape))
                found = _near(table.take(first[own]), radius, bits[own], None if same_label else counts, advance)
                near.fill(own, found)

    # Places with one row and no near place have no group.
    grouped = (counts > 1) | np.isfinite(near.distance)
    leaders = np.unique(near.leader[grouped])
    number = np.full(first.size, -1)
    number[grouped] = np.searchsorted(leaders, near.leader[grouped])
    group = number[place_of]
    distance = np.where(counts[place_of] > 1, 0.0, near.distance[place_of])
    return Duplicates(
        ids=ids,
        ids_val=ids_val,
        group=group,
        distance=np.where(group >= 0, distance, np.nan),
        contradicting=contradicting,
        across=((bits | near.seen)[place_of[:n]] & VALIDATION) > 0,
        radius=radius,
        honest=scale.joined(radius),
        labels=labels,
        labels_val=labels_val,
        owners=None if ownership is None else _labels.owner_column([ownership.names[k] for k in ownership.codes]),
        kind=table.kind,
    )


@dataclass(frozen=True)
class _Table:
    """Rows of both splits: numbers as given (0 where missing) and scaled, and a csr_array of what is no number."""

    dense: Floats
    scaled: Floats
    other: Any
    sizes: tuple[int, int]
    index: npt.NDArray[Any] | None = None
    index_val: npt.NDArray[Any] | None = None
    kind: str = "numpy"

    def take(self, rows: Indices) -> "_Table":
        return _Table(self.dense[rows], self.scaled[rows], self.other[rows], (rows.size, 0))

    def places(self) -> tuple[Indices, Indices, Any]:
        """Find equal rows, see :func:`shapshift.engine.duplicates.number_equal`."""
        return number_equal(*(index_rows(rows, "euclidean") for rows in (self.dense, self.other) if rows.shape[1] > 0))

    def scaled_by(self, rows: Indices, reach: float) -> "_Table":
        """Fill in and scale the numbers by what those of some rows are, up to a reach from their medians."""
        numbers, some = self.scaled, self.scaled[rows]
        if not numbers.size:
            return self
        missing = np.isnan(numbers)
        if missing.any():
            means = np.nanmean(np.where(np.isnan(some).all(axis=0), 0.0, some), axis=0)
            numbers = np.where(missing, means, numbers)
        some = np.ascontiguousarray(numbers[rows])
        middle = np.median(some / 2, axis=0)  # halves, whose differences are finite
        with np.errstate(over="ignore"):
            limit = reach * _ranges(some / 2)
            std: Any = feature_std(np.clip(some / 2, middle - limit, middle + limit))
            scaled = (numbers / 2 - middle) / np.where(std == 0, 1.0, std)
        return replace(self, scaled=np.asarray(np.clip(scaled, -1e100, 1e100)))  # finite when squared

    def labelled(self, labels: list[Any], radius: float) -> "_Table":
        """Return the rows with a column for each label, by which different ones are farther apart than a radius."""
        codes = _labels.encode_labels(object_array(labels))[1]
        apart = np.full(codes.size, 2 * radius + 1)
        columns = sparse.csr_array((apart, (np.arange(codes.size), codes)), shape=(codes.size, int(codes.max()) + 1))
        return replace(self, other=sparse.csr_array(sparse.hstack([self.other, columns])))

    def joined(self) -> Any:
        """Return all columns as one dense or sparse table."""
        if self.other.shape[1] == 0:
            return self.scaled
        return sparse.csr_array(sparse.hstack([sparse.csr_array(self.scaled), self.other]))


def _ranges(rows: Floats) -> Floats:
    """Return the interquartile range of each feature, or that of more rows where it is 0; infinity for none."""
    levels = np.array([0.25, 0.1, 0.03, 0.01])
    ends = np.quantile(rows, [*levels, *(1 - levels)], axis=0)
    ranges = ends[levels.size :] - ends[: levels.size]
    found = np.take_along_axis(ranges, (ranges > 0).argmax(axis=0)[None], axis=0)[0]
    return np.where(found > 0, found, np.inf)


def _read(X: Any, X_val: Any) -> _Table:
    frames = [_frame(X), None if X_val is None else _frame(X_val)]
    if frames[0] is not None and (X_val is None or frames[1] is not None) and any(map(_is_mixed, frames)):
        mixed = _read_mixed([frame for frame in frames if frame is not None])
        own = isinstance(nw.from_native(X, pass_through=True), nw.DataFrame)
        return mixed if own else replace(mixed, kind="numpy")
    train = check.check_features(X, "X")
    parts = [train]
    if X_val is not None:
        val = check.check_features(X_val, "X_val")
        parts.append(check.match_columns(val, train.columns, train.rows.shape[1], "X_val"))
    sizes = train.rows.shape[0], sum(part.rows.shape[0] for part in parts[1:])
    about: dict[str, Any] = {"sizes": sizes, "index": train.index, "index_val": parts[-1].index, "kind": train.kind}
    if any(sparse.issparse(part.rows) for part in parts):
        rows = sparse.csr_array(sparse.vstack([sparse.csr_array(part.rows) for part in parts]))
        rows.sort_indices()
        nothing = np.empty((sum(sizes), 0))
        return _Table(nothing, nothing, rows, **about)
    dense = np.concatenate([part.rows for part in parts])
    return _Table(dense, dense, sparse.csr_array((sum(sizes), 0)), **about)


def _frame(X: Any) -> Any:
    """Return a narwhals frame, of arrays with text or NaN too; None for what ``check_features`` takes or refuses."""
    if sparse.issparse(X) or isinstance(X, np.ma.MaskedArray):
        return None
    try:
        frame = nw.from_native(X, pass_through=True)
        if not isinstance(frame, nw.DataFrame | nw.LazyFrame):
            rows = np.asarray(check.tensor_to_numpy(X))
            if rows.ndim != 2 or not (rows.dtype.kind in "OU" or (rows.dtype.kind == "f" and np.isnan(rows).any())):
                return None
            frame = nw.from_dict({str(j): rows[:, j].tolist() for j in range(rows.shape[1])}, backend="pyarrow")
    except (nw.exceptions.DuplicateError, pa.ArrowException, ValueError):
        return None
    return frame if isinstance(frame, nw.DataFrame) and 0 not in frame.shape else None


def _is_mixed(frame: Any) -> bool:
    """Whether a frame has text or missing entries."""
    return frame is not None and any(
        not _is_number(series) or np.isnan(_numbers(series)).any() for series in frame.iter_columns()
    )


def _is_number(series: Any) -> bool:
    return bool(series.dtype.is_numeric() or series.dtype == nw.Boolean)


def _numbers(series: Any) -> Floats:
    return np.asarray(series.cast(nw.Float64).to_numpy(), dtype=np.float64)


def _read_mixed(frames: list[Any]) -> _Table:
    names, sizes = frames[0].columns, [frame.shape[0] for frame in frames]
    differences = check.column_differences(frames[-1].columns, names, "missing", "not seen in training")
    if differences:
        raise InputError(f"The columns of 'X_val' must be those of 'X': {differences}. Select the same in both.")
    by_name = [dict(zip(frame.columns, frame.iter_columns(), strict=True)) for frame in frames]
    numbers, ones, offset = [], [], 0
    for name in names:
        columns = [series[name] for series in by_name]
        if all(map(_is_number, columns)):
            entries = np.concatenate([_numbers(column) for column in columns])
            missing = np.isnan(entries)
            check.check_finite(np.where(missing, 0.0, entries)[:, None], "X", [name])
            numbers.append(entries)
            codes = np.where(missing, 0, -1)
        else:
            codes = _codes([column.to_native() for column in columns], name)
        ones.append(np.where(codes < 0, -1, codes + offset))
        offset += int(codes.max()) + 1
    dense = np.column_stack(numbers) if numbers else np.empty((sum(sizes), 0))
    column_of = np.column_stack(ones)
    rows, columns_at = np.nonzero(column_of >= 0)
    filled = np.ones(rows.size), (rows, column_of[rows, columns_at])
    other = sparse.csr_array(filled, shape=(sum(sizes), offset))
    other.sort_indices()
    kind = check.frame_kind(frames[0])
    index = [np.asarray(frame.to_native().index) if kind == "pandas" else None for frame in frames]
    return _Table(
        np.where(np.isnan(dense), 0.0, dense),
        dense,
        other,
        (sizes[0], sum(sizes[1:])),
        index[0],
        index[-1],
        kind if kind in ("pandas", "polars", "pyarrow") else "pandas",
    )


def _codes(columns: list[Any], name: str) -> Indices:
    """Return a number for each entry of a column, 0 for a missing one."""
    parts = [_labels.split_missing(column, name) for column in columns]
    entries = [entry for found, _ in parts for entry in found.tolist()]
    missing = np.concatenate([absent for _, absent in parts])
    present = object_array([entry for entry, absent in zip(entries, missing, strict=True) if not absent])
    codes = np.zeros(missing.size, dtype=np.int64)
    if present.size:
        codes[~missing] = _labels.encode_labels(present)[1] + 1
    return codes


@dataclass(frozen=True)
class _Scale:
    """How far rows are from each other where there are no copies.

    Attributes
    ----------
    reach : ndarray
        Distances of some rows to their 10th nearest ones among each other; empty where there are too few rows.
    dimension : float
    share : float
        Those rows as a share of all different ones.
    n_rows : int
    """

    reach: Floats
    dimension: float
    share: float
    n_rows: int

    @classmethod
    def of(cls, sample: _Table, n_rows: int) -> "_Scale":
        size = sample.sizes[0]
        if size <= RANKS[1]:
            return cls(np.empty(0), np.inf, 1.0, n_rows)
        # A seller who offers many rows close to each other, or far from all, must not decide about the radius.
        close = CLUMP * min(float(np.quantile(_reach(sample)[0], 0.9)), _middle(sample.joined()))
        kept = sample.take(_leaders(sample, close))
        if kept.sizes[0] <= RANKS[1]:
            return cls(np.full(1, close / CLOSE), np.inf, size / n_rows, n_rows)
        reach, ratios = _reach(kept)
        typical, dimension = reach, _dimension(ratios)
        if dimension < LEAST:  # most rows are in clumps: go by the others
            outside = reach >= np.quantile(reach, 0.9) / 4
            typical, dimension = reach[outside], _dimension(ratios[outside])
        if np.isfinite(dimension):
            close = float(np.median(typical)) * (CLUMP_SHARE / RANKS[0]) ** (1 / max(dimension, LEAST))
            kept = kept.take(_leaders(kept, close))
            if kept.sizes[0] > RANKS[1]:
                reach, ratios = _reach(kept)
                dimension = _dimension(ratios)
        n_rows, share = max(1, round(n_rows * kept.sizes[0] / size)), size / n_rows
        return cls(reach[reach > 0], max(dimension, LEAST), share, n_rows)

    def radius(self) -> float:
        """Return the largest distance of near-duplicates."""
        if self.reach.size == 0:
            return 0.0
        typical = float(np.median(self.reach)) * (np.log(2) * self.share / RANKS[0]) ** (1 / self.dimension)
        return float(min(CLOSE * typical, np.exp(self._log_radius(HONEST_SHARE))))

    def joined(self, radius: float) -> float:
        """How many rows have another within a radius by chance."""
        if self.reach.size == 0 or radius == 0:
            return 0.0
        if np.isinf(self.dimension):
            return float(self.n_rows * np.mean(self.reach <= radius))
        grown = self.dimension * (np.log(radius) - self._log_radius(1.0))
        return self.n_rows * float(-np.expm1(-np.exp(min(grown, 700.0))))

    def _log_radius(self, wanted: float) -> float:
        """Logarithm of the radius within which a row has this many others, in the mean over all rows."""
        if np.isinf(self.dimension):
            return float(np.log(self.reach.min()))
        spread = special.logsumexp(-self.dimension * np.log(self.reach)) - np.log(self.reach.size)
        return float((np.log(wanted * self.share / RANKS[0]) - spread) / self.dimension)


def _leaders(table: _Table, close: float) -> Indices:
    """Return the rows without those that are close to an earlier one that stays."""
    return np.unique(_near(table, close, np.ones(table.sizes[0], dtype=np.int8), None, lambda rows: None).leader)


def _middle(rows: Any) -> float:
    """Return the median distance of some pairs of rows."""
    n = rows.shape[0]
    apart = rows - rows[np.roll(np.arange(n), n // 2)]
    squares = apart.multiply(apart) if sparse.issparse(apart) else apart * apart
    return float(np.median(np.sqrt(squares.sum(axis=1))))


def _reach(sample: _Table) -> tuple[Floats, Floats]:
    """Return the distances of rows to their 10th nearest ones, and the logarithms of those to their 20th by them."""
    near, far = RANKS
    rows, size = sample.joined(), sample.sizes[0]
    index = index_rows(rows, "euclidean")
    search = exact_search(tile_filler(index, rows), size, far + 1, whole_ties=False)
    lists = search.find(0, size, np.empty((size, 0), dtype=np.int64))
    distances = true_distances(index, lists.distances).reshape(size, far + 1)  # the nearest is the row itself
    reach = distances[:, near]
    return reach, np.log(np.where(reach > 0, distances[:, far] / np.where(reach > 0, reach, 1.0), 1.0))


def _dimension(ratios: Floats) -> float:
    # The volume within the one is half of that within the other, in the median, where the density is the same.
    ratio = float(np.median(ratios) or ratios.mean())
    return float(np.log(2)) / ratio if ratio > 0 else np.inf


@dataclass(frozen=True)
class _Near:
    """For each place its leader, its distance to the nearest place of the same leader, and the splits of near ones."""

    leader: Indices
    distance: Floats
    seen: npt.NDArray[np.int8]

    def fill(self, places: Indices, found: "_Near") -> None:
        """Take what was found for some places."""
        self.leader[places], self.distance[places] = places[found.leader], found.distance
        self.seen[places] = found.seen


def _near(
    table: _Table,
    radius: float,
    bits: npt.NDArray[np.int8],
    counts: Indices | None,
    advance: Callable[[int], object],
) -> _Near:
    """Compare places; ``bits`` are the splits of their rows and ``counts`` how many those are.

    A place that leads none but itself joins the group of the nearest, where counts are given.
    """
    n = bits.size
    leader, distance, seen = np.arange(n), np.full(n, np.inf), np.zeros(n, dtype=np.int8)
    if n == 1:
        return _Near(leader, distance, seen)
    squared, partner, seen = _compare(_sorted_rows(table, radius), np.zeros(n, dtype=np.int64), bits, advance)
    close = np.flatnonzero(np.isfinite(squared))
    if close.size:
        rows = _sorted_rows(table.take(close), radius)
        found = np.empty(close.size, dtype=np.int64)
        gather_stars(rows, np.argsort(rows.number), 0.0 if counts is not None else ECHO, found)
        own = np.empty(close.size, dtype=np.int64)
        own[rows.number] = found
        if counts is not None:
            led = np.bincount(own, weights=counts[close], minlength=close.size)
            alone = (own == np.arange(close.size)) & (led == 1)
            own[alone] = own[np.searchsorted(close, partner[close[alone]])]
        leader[close] = close[own]
        distance[close] = np.sqrt(_compare(rows, own, bits[close], lambda _: None)[0])
    return _Near(leader, distance, seen)


def _compare(
    rows: SortedRows, groups: Indices, bits: npt.NDArray[np.int8], advance: Callable[[int], object]
) -> tuple[Floats, Indices, npt.NDArray[np.int8]]:
    """Return each row's squared distance to the nearest row of its group, that row, and what its near rows have."""
    n, at = groups.size, rows.number
    nearest, partner, seen = np.full(n, np.inf), np.full(n, n), np.zeros(n, dtype=np.int8)
    for start in range(0, n, STEP):
        stop = min(start + STEP, n)
        near_pairs(rows, start, stop, groups[at], bits[at], nearest, partner, seen)
        advance(stop - start)
    back = np.argsort(at)
    return nearest[back], partner[back], seen[back]


def _sorted_rows(table: _Table, radius: float) -> SortedRows:
    sketch, slack = _sketch(table)
    order = np.argsort(sketch[:, 0], kind="stable")
    other, dense = table.other[order], np.ascontiguousarray(table.scaled[order])
    limit, window = radius * radius, radius * float(np.sqrt(slack))
    indices, indptr = other.indices.astype(np.int32), other.indptr.astype(np.int64)
    return SortedRows(
        dense, other.data, indices, indptr, np.ascontiguousarray(sketch[order].T), order, limit, slack * limit, window
    )


def _sketch(table: _Table) -> tuple[Floats, float]:
    """Return some coordinates of each row, and how many times the rows' squared distance theirs can be."""
    rows, width = table.scaled, table.scaled.shape[1]
    if width == 0:
        drawn = np.random.default_rng(0).standard_normal((table.other.shape[1], DRAWN))
        return np.asarray(table.other @ drawn), SLACK
    # Directions in which rows differ most: orthogonal, so that distances along them are no larger.
    sample = rows[:: max(1, rows.shape[0] // SKETCH_ROWS)]
    sample = sample - sample.mean(axis=0)
    if sample.shape[0] < width:
        directions = np.linalg.svd(sample, full_matrices=False)[2][:DIRECTIONS].T
    else:  # the same directions, several times as fast
        last = [max(width - DIRECTIONS, 0), width - 1]
        directions = linalg.eigh(sample.T @ sample, subset_by_index=last)[1][:, ::-1]
    return np.asarray(rows @ directions), 1 + 1e-6


def _contradicting(place_of: Indices, labels: Any, labels_val: Any, n: int) -> Flags:
    given = [] if labels is None else labels.tolist()
    at = place_of[: len(given)]
    if labels_val is not None:
        given, at = [*given, *labels_val.tolist()], np.concatenate([at, place_of[n:]])
    if labels is None or not given:
        return np.zeros(n, dtype=np.bool_)
    codes = _labels.encode_labels(object_array(given))[1]
    low, high = np.full(place_of.max() + 1, codes.max()), np.zeros(place_of.max() + 1, dtype=np.int32)
    np.minimum.at(low, at, codes)
    np.maximum.at(high, at, codes)
    return np.asarray((low < high)[place_of[:n]])
