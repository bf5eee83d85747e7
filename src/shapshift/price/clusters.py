"""One vote per cluster: rows of equal label that are equal or nearly equal count once, for whoever was first."""

from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, ClassVar, TypeVar

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.duplicates import Duplicates, find_duplicates
from shapshift.exceptions import InputError
from shapshift.io.results import Result
from shapshift.perturb.containers import count_rows, take_rows
from shapshift.price.near_copies import find_near_copies
from shapshift.price.owners import OwnerValues
from shapshift.valuation import Valuation

Indices = npt.NDArray[np.int64]
Found = TypeVar("Found", bound=Result)


@dataclass(frozen=True, eq=False, repr=False)
class Clusters(Result):
    """Which training rows vote; see :func:`find_clusters`.

    Attributes
    ----------
    first : ndarray of shape (n_train,)
        Position of the row that votes for each row: the earliest of its cluster, its own position where that is itself;
        -1 for a row that somebody else had submitted before, outside this table.
    duplicates : Duplicates
        The clusters with more than one row; its rows are in the order of submission.
    suspects : tuple
        Owners whose rows are near copies of earlier ones by the test of ``near_copies``.
    """

    archive_kind: ClassVar[str] = "shapshift.Clusters"
    archive_shapes: ClassVar[Mapping[str, str]] = {"first": "n_train"}

    first: Indices
    duplicates: Duplicates
    suspects: tuple[Any, ...] = ()

    @property
    def representatives(self) -> Indices:
        """Positions of the rows that vote, ascending."""
        return np.flatnonzero(self.first == np.arange(self.first.size))

    @property
    def radius(self) -> float:
        """Distance up to which rows are near each other, in standard deviations of the features."""
        return self.duplicates.radius

    @property
    def honest(self) -> float:
        """How many rows of honest data have another within the radius by chance, whatever their labels: at most."""
        return self.duplicates.honest

    def findings(self) -> list[str]:
        """Say in sentences how many rows do not vote, and what the radius costs honest owners."""
        n, silent = self.first.size, self.first.size - self.representatives.size
        said = [f"Training rows that repeat an earlier row of the same label and do not vote: {silent:,} of {n:,}."]
        if self.radius:
            said.append(
                f"Rows within {self.radius:.3g} standard deviations of each other count as copies; in data without "
                f"copies that would join about {self.honest:.1f} of {n:,} rows by chance."
            )
        if self.suspects:
            said.append(
                f"Rows of {check.some(self.suspects)} lie nearer to earlier rows than those of others do: near copies "
                "do not vote."
            )
        return said

    def __repr__(self) -> str:
        return f"Clusters(n_train={self.first.size}, vote={self.representatives.size}, radius={self.radius:.3g})"


def find_clusters(
    X: Any,
    y: Any,
    *,
    owners: Any = None,
    order: Any = None,
    radius: float | None = None,
    near_copies: bool = False,
    ids: Any = None,
    earlier: Any = None,
    progress: bool | None = None,
) -> Clusters:
    """Find the rows that vote when rows of equal label that are equal or nearly equal have one vote together.

    Parameters
    ----------
    X : table of shape (n_train, n_features)
    y : array-like of shape (n_train,)
        Labels; rows with different ones are never in one cluster.
    owners : array-like of shape (n_train,), optional
        Owner of each row, for the table of who has copies of whose rows; decides nothing.
    order : array-like of shape (n_train,), optional
        When each row was submitted: dates or numbers, of which the smallest is the earliest. Rows of equal order, and
        all rows without one, are in the order of the table.
    radius : float, optional
        Largest distance of near copies, in standard deviations of the features; 0 for equal rows alone. By default from
        the data, see :func:`shapshift.find_duplicates`.
    near_copies : bool, default=False
        Test each owner for near copies outside the radius, see :mod:`shapshift.price.near_copies`. Rows of an owner
        who is found that are nearer to an earlier row of their label than half the rows of others are do not vote.
        Needs owners, and rows of numbers.
    ids : array-like of shape (n_train,), optional
        By default the table's index, or positions.
    earlier : array-like of bool of shape (n_train,), optional
        Rows that somebody else had submitted before, outside this table: they do not vote, and are in no cluster.
    progress : bool, default=None

    Returns
    -------
    Clusters

    Notes
    -----
    Rows are taken in their order: one that is within the radius of an earlier row that votes, and has its label, is in
    that row's cluster; so is one within a hundredth of the radius of any other row of the cluster; all others vote. So
    later rows change nothing about earlier ones, for a given radius and scale, and a row without a vote has an earlier
    one of its label within the radius. Scale and radius come from rows that differ by more than a part of the radius:
    copies, equal or with noise far below it, move neither, other rows may slightly.

    Examples
    --------
    >>> from shapshift.price import find_clusters
    >>> find_clusters([[1.0], [2.0], [1.0], [1.0]], ["a", "b", "a", "b"]).first.tolist()
    [0, 1, 0, 3]
    >>> find_clusters([[1.0], [2.0], [1.0], [1.0]], ["a", "b", "a", "b"], order=[4, 3, 2, 1]).first.tolist()
    [2, 1, 2, 3]
    """
    n = count_rows(X)
    row_ids = _labels.check_ids(ids, _labels.pandas_index(X)[0], n)
    labels = _labels.check_labels(y, "y", n, "X")
    names = None
    if owners is not None:
        ownership = _labels.check_owners(owners, row_ids)
        names = object_array([ownership.names[code] for code in ownership.codes])
    if earlier is not None and np.any(earlier):
        own = np.flatnonzero(~np.asarray(earlier))
        given: dict[str, Any] = {
            "owners": None if names is None else names[own],
            "order": read_order("find_clusters", order, row_ids)[own],
            "ids": row_ids[own],
        }
        part = find_clusters(
            take_rows(X, own), labels[own], **given, radius=radius, near_copies=near_copies, progress=progress
        )
        first = np.full(n, -1, dtype=np.int64)
        first[own] = own[part.first]
        return replace(part, first=first)
    at = np.lexsort((np.arange(n), read_order("find_clusters", order, row_ids)))
    found = find_duplicates(
        take_rows(X, at),
        labels[at],
        owners=None if names is None else names[at],
        ids=row_ids[at],
        radius=radius,
        same_label=True,
        progress=progress,
    )
    first = np.empty(n, dtype=np.int64)
    first[at] = at[found.clusters()]
    clusters = Clusters(first, found)
    if not near_copies:
        return clusters
    if owners is None:
        raise InputError("The 'near_copies' parameter of find_clusters compares owners. Pass 'owners'.")
    own = at[np.isin(at, clusters.representatives)]  # in the order of submission
    rows, codes = check.check_features(take_rows(X, own), "X").rows, _labels.encode_labels(labels[own])[1]
    suspects, source = find_near_copies(rows, codes.astype(np.int64), ownership.codes[own])
    for row, of in zip(own[source >= 0].tolist(), own[source[source >= 0]].tolist(), strict=True):
        first[row] = first[of]  # an earlier row, which is settled
    first[:] = first[first]  # rows within the radius of such a copy
    return Clusters(first, found, tuple(ownership.names[code] for code in suspects))


def read_order(caller: str, order: Any, ids: npt.NDArray[Any]) -> Indices:
    """Return a number for each row, the smaller the earlier, and the same for equal entries; all 0 without an order."""
    if order is None:
        return np.zeros(ids.size, dtype=np.int64)
    if hasattr(order, "loc") and hasattr(order, "index"):
        order = _labels.aligned(order, ids, "order")
    entries = _labels.check_labels(order, "order", ids.size, "X", "entry")
    wrong = entries.dtype.kind not in "biufO" or any(isinstance(entry, str | bytes) for entry in entries.tolist())
    distinct = [] if wrong else list(set(entries.tolist()))
    try:
        number = {entry: place for place, entry in enumerate(sorted(distinct))}
    except TypeError:
        wrong = True
    if wrong:
        raise InputError(
            f"The 'order' parameter of {caller} must hold dates or numbers, all of one kind. Got "
            f"{check.some(entries.tolist())}."
        )
    return np.fromiter((number[entry] for entry in entries.tolist()), np.int64, ids.size)


class Counted:
    """A fitted model that values all rows by what counts under a rule of payment; else it is that model.

    Parameters
    ----------
    model : fitted estimator
        Fitted on the rows that vote.
    ids : ndarray of shape (n_train,)
        Of all rows.
    clusters : Clusters, optional
        Which rows vote; the others are worth 0. All rows without them.
    order : ndarray of shape (n_train,), optional
        Passed on to the model's ``value``.
    """

    model: Any
    ids_: npt.NDArray[Any]
    clusters: Clusters | None
    order: Indices | None

    def __init__(
        self, model: Any, ids: npt.NDArray[Any], clusters: Clusters | None = None, order: Indices | None = None
    ) -> None:
        self.__dict__.update(model=model, ids_=ids, clusters=clusters, order=order)

    def __getattr__(self, name: str) -> Any:
        # What a model explains, borrows or weights is about the rows that it was fitted on.
        if name.startswith("__") or name in ("model", "explain", "pooled", "weighted"):
            raise AttributeError(name)
        return getattr(self.model, name)

    def __copy__(self) -> "Counted":
        return Counted(copy(self.model), self.ids_, self.clusters, self.order)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.model, name, value)  # how it computes, and what it shows

    @property
    def value(self) -> Callable[..., Valuation]:
        """The model's ``value``, of all rows."""
        return self._wrapped(self.model.value, self.expand)

    @property
    def value_and_neighbors(self) -> Callable[..., Any]:
        """The model's ``value_and_neighbors``, with the values of all rows and neighbours among those that vote."""
        return self._wrapped(self.model.value_and_neighbors, lambda found: (self.expand(found[0]), *found[1:]))

    def _wrapped(self, find: Callable[..., Any], then: Callable[[Any], Any]) -> Callable[..., Any]:
        order = {} if self.order is None else {"order": self.order}

        @wraps(find)
        def found(*args: Any, **options: Any) -> Any:
            return then(find(*args, **options, **order))

        return found

    def expand(self, valuation: Valuation) -> Valuation:
        """Return the values of all rows from those of the rows that vote."""
        if self.clusters is None:
            return valuation
        n, own = self.clusters.first.size, self.clusters.representatives
        made = scattered(valuation, "n_train", own, n)
        labels = valuation.labels
        if labels is not None:  # rows of a cluster have one label
            labels = np.append(labels, labels[:1])[np.searchsorted(own, np.maximum(self.clusters.first, own[0]))]
        return replace(made, ids=self.ids_, labels=labels)

    def restrict(self, valuation: Valuation) -> Valuation:
        """Return the values of the rows that vote from those of all rows."""
        if self.clusters is None:
            return valuation
        own = self.clusters.representatives
        parts: dict[str, Any] = {}
        for name, axes in valuation.archive_shapes.items():
            part = getattr(valuation, name)
            if isinstance(part, np.ndarray) and "n_train" in axes.split():
                parts[name] = part.take(own, axis=axes.split().index("n_train"))
        return replace(valuation, **parts)

    def settle(
        self, ends: tuple[Indices | None, Indices | None], paid: Indices, codes: Indices
    ) -> tuple[Indices | None, Indices | None]:
        """Return intervals of payouts, of which those of owners without a row that votes are the payouts themselves."""
        low, high = ends
        if self.clusters is None or low is None or high is None:
            return ends
        silent = np.bincount(codes[self.clusters.representatives], minlength=paid.size) == 0
        return np.where(silent, paid, low), np.where(silent, paid, high)

    def owner_values(self, find: Any, X_val: Any, y_val: Any, owners: Any, *args: Any, **options: Any) -> OwnerValues:
        """Return what a function such as ``owner_values`` finds for the rows that vote, for all owners."""
        if self.clusters is None:
            found: OwnerValues = find(self.model, X_val, y_val, owners, *args, **options)
            return found
        ownership, own = _labels.check_owners(owners, self.ids_), self.clusters.representatives
        names = object_array([ownership.names[code] for code in ownership.codes[own]])
        found = find(self.model, X_val, y_val, names, *args, **options)
        number = {name: place for place, name in enumerate(ownership.names)}
        place = np.array([number[name] for name in found.owners])
        made = scattered(found, "n_owners", place, len(ownership.names))
        return replace(made, owners=ownership.names, row_counts=ownership.counts, codes=ownership.codes)


def scattered(result: Found, axis: str, places: Indices, size: int) -> Found:
    """Return a result whose arrays have ``size`` entries along an axis: theirs at some places, else 0."""
    parts: dict[str, Any] = {}
    for name, axes in result.archive_shapes.items():
        part = getattr(result, name)
        if isinstance(part, np.ndarray) and axis in axes.split() and part.dtype.kind in "biuf":
            at = axes.split().index(axis)
            shape = [size if i == at else length for i, length in enumerate(part.shape)]
            wide = np.zeros(shape, dtype=part.dtype)
            wide[(slice(None),) * at + (places,)] = part
            parts[name] = wide
    return replace(result, **parts)
