"""The training rows of a store: those that are there, and those that are gone but still have their places."""

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift import _labels
from shapshift import _validation as check
from shapshift._archive import object_array
from shapshift.distances import SPARSE_METRICS, TrainingIndex, index_again, lay_out_like
from shapshift.estimators import TRUNCATED_TOL, KNNShapley
from shapshift.rowfile import RowFile
from shapshift.training import fingerprint

Floats = npt.NDArray[np.float64]

# Old and new rows are measured on one scale as long as it fits both this well, as powers of two.
SCALE_ROOM = 200


@dataclass
class Training:
    """Training rows, with everything that a change of them needs to know.

    Attributes
    ----------
    settings : dict
        Parameters of the model that values depend on.
    columns, kind, id_names
        What the table was, for new rows and for results.
    exponent : int
        The scale that features are on; see :class:`shapshift.distances.TrainingIndex`.
    known : dict
        Class numbers by label, of validation labels too.
    class_kind : dtype
    rows : ndarray of shape (d, slots) or csr_array
        Laid out.
    codes : int32 (slots,)
    alive : uint8 (slots,)
        1 for the rows that are there.
    ids, owners : ndarray of shape (slots,)
        Owners may be None.
    digest : str or None
        Fingerprint of the rows that are there, if it is known.
    next_id : int
        Id of the next row that comes without one. Ids of rows that are gone are not given again.
    ends : pair of ndarray or None
        Smallest and largest value of each feature over all slots, if they are known.
    """

    settings: dict[str, Any]
    columns: list[Any] | None
    kind: str
    id_names: tuple[Any, ...]
    exponent: int
    known: dict[Any, int]
    class_kind: np.dtype[Any]
    rows: Any
    codes: npt.NDArray[np.int32]
    alive: npt.NDArray[np.uint8]
    ids: npt.NDArray[Any]
    owners: npt.NDArray[Any] | None
    digest: str | None
    next_id: int
    ends: tuple[Floats, Floats] | None = None

    @property
    def metric(self) -> str:
        """How distances are measured."""
        return str(self.settings["metric"])

    @property
    def is_sparse(self) -> bool:
        """Whether features are a sparse matrix."""
        return bool(sparse.issparse(self.rows))

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.rows.shape[1] if self.is_sparse else self.rows.shape[0])

    @property
    def there(self) -> npt.NDArray[np.bool_]:
        """Which of all slots hold rows."""
        return self.alive > 0

    @property
    def size(self) -> int:
        """How many rows are there."""
        return int(self.alive.sum())

    @property
    def class_sizes(self) -> npt.NDArray[np.int64]:
        """How many rows of each class are there."""
        return np.bincount(self.codes[self.there], minlength=len(self.known))

    def copy(self) -> Self:
        """Return rows that can be changed while these stay as they are."""
        return replace(self, known=dict(self.known))

    def features(self, X: Any, name: str) -> check.Table:
        """Check rows and bring them into the form of those that are there."""
        reason = None if self.metric in SPARSE_METRICS else "which this metric does not support"
        table = check.check_features(X, name, sparse_ok=reason)
        table = check.match_columns(table, self.columns, self.width, name)
        rows = table.rows
        if self.is_sparse:
            rows = sparse.csr_array(rows)
        elif sparse.issparse(rows):
            rows = rows.toarray()
        return replace(table, rows=rows)

    def encode(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Class numbers; a label that is new gets the next one."""
        distinct, codes = _labels.encode_labels(labels)
        numbers = [self.known.setdefault(label, len(self.known)) for label in distinct.tolist()]
        self.class_kind = self.class_kind if distinct.dtype.kind == self.class_kind.kind else np.dtype(object)
        return np.array(numbers, dtype=np.int32)[codes]

    def index(self, rows: Any = None) -> TrainingIndex:
        """Return what measures distances to some laid-out rows, to all slots by default."""
        if rows is None:
            rows, ends = self.rows, self._ends()
        else:
            ends = None if self.metric == "cosine" or self.is_sparse else _ends_of(rows)
        n = rows.shape[0] if self.is_sparse else rows.shape[1]
        return TrainingIndex(self.metric, n, rows, self.exponent, ends=ends)

    def append(self, X: Any, y: Any, ids: Any, owners: Any) -> TrainingIndex:
        """Check new rows and put them behind the others; returns what measures distances to them."""
        table = self.features(X, "X")
        n = table.rows.shape[0]
        labels = _labels.check_labels(y, "y", n, "X")
        if (owners is None) != (self.owners is None):
            raise ValueError(
                "The 'owners' parameter must name an owner for each new row if, and only if, the store was made with "
                f"owners. Got {'none' if owners is None else 'some'}."
            )
        if ids is None and table.index is None:
            ids = self._next_ids(n)
        ids = _labels.check_ids(ids, table.index, n)
        twice = ids[are_in(ids, self.ids[self.there])].tolist()
        if twice or len(set(ids.tolist())) < n:
            raise ValueError(f"The 'ids' parameter must hold new ids, each once. Already there: {check.some(twice)}.")
        if self.owners is not None:
            self.owners = _joined(self.owners, _labels.check_labels(owners, "owners", n, "X", "owner"))
        new = lay_out_like(table.rows, self.metric, self.exponent)
        added, ends = self.index(new), self._ends()
        if ends is not None and added.ends is not None:
            self.ends = np.minimum(ends[0], added.ends[0]), np.maximum(ends[1], added.ends[1])
        self.rows = sparse.vstack([self.rows, new], format="csr") if self.is_sparse else np.hstack([self.rows, new])
        self._check_scale()
        self.codes = np.concatenate([self.codes, self.encode(labels)])
        self.alive = np.concatenate([self.alive, np.ones(n, dtype=np.uint8)])
        self.ids, self.digest = _joined(self.ids, ids), None
        self.next_id = max(self.next_id, after_ids(ids))
        return added

    def remove(self, gone: npt.NDArray[np.bool_]) -> None:
        """Let rows be gone; they keep their places until :meth:`forget`."""
        if int(gone.sum()) == self.size:
            raise ValueError("All training rows would be gone. Drop the store instead.")
        self.alive, self.digest = self.alive * ~gone, None

    def places(self, ids: Any) -> npt.NDArray[np.bool_]:
        """Mark the slots of rows by their ids."""
        if not isinstance(ids, Iterable):
            raise TypeError(f"'ids' must be a list, array or column of ids. Got {type(ids).__name__}.")
        ids = list(ids) if not hasattr(ids, "__len__") else ids
        wanted = _labels.check_labels(ids, "ids", len(ids), "X", "id")
        found = are_in(self.ids, wanted) & self.there
        unknown = wanted[~are_in(wanted, self.ids[found])].tolist()
        if unknown:
            raise ValueError(f"The 'ids' parameter must hold ids of training rows. Unknown: {check.some(unknown)}.")
        return found

    def places_of_owner(self, owner: Any) -> npt.NDArray[np.bool_]:
        """Mark the slots of an owner's rows."""
        if self.owners is None:
            raise ValueError("remove_owner needs to know who owns which row: make the store with owners=...")
        found = np.fromiter((name == owner for name in self.owners.tolist()), bool, self.alive.size) & self.there
        if not found.any():
            left = list(dict.fromkeys(self.owners[self.there].tolist()))
            raise ValueError(f"The 'owner' parameter must be one of {check.some(left)}. Got {owner!r} instead.")
        return found

    def forget(self) -> npt.NDArray[np.int32]:
        """Close the gaps that rows left; returns the new number of each slot, -1 for those that are gone."""
        there = self.there
        numbers = np.where(there, np.cumsum(there) - 1, -1).astype(np.int32)
        self.rows = self.rows[there] if self.is_sparse else np.ascontiguousarray(self.rows[:, there])
        self.codes, self.ids = self.codes[there], self.ids[there]
        self.owners = None if self.owners is None else self.owners[there]
        self.alive, self.ends = self.alive[there], None
        return numbers

    def fingerprint(self) -> str:
        """Return what a fresh fit of the rows that are there would have."""
        if self.digest is None:
            there, sizes = self.there, self.class_sizes
            rows: Any = None
            if not there.all():
                rows = self.rows[there] if self.is_sparse else _Columns(self.rows, there)
            present = [label for label, k in self.known.items() if sizes[k] > 0]
            is_object = self.class_kind.kind == "O"
            labels = object_array(present) if is_object else np.array(present, dtype=self.class_kind)
            classes, order = _labels.encode_labels(labels)
            numbers = np.full(len(self.known), -1, dtype=np.int32)
            numbers[[self.known[label] for label in present]] = order
            self.digest = fingerprint(index_again(self.index(rows)), classes, numbers[self.codes[there]])
        return self.digest

    def _ends(self) -> tuple[Floats, Floats] | None:
        if self.ends is None and self.metric != "cosine" and not self.is_sparse:
            self.ends = _ends_of(self.rows)
        return self.ends

    def _next_ids(self, n: int) -> npt.NDArray[Any]:
        if self.ids.dtype.kind not in "iu":
            raise ValueError("The 'ids' parameter must name the new rows: the ids of the others are not numbers.")
        return np.arange(n) + self.next_id

    def _check_scale(self) -> None:
        """Refuse rows that one scale cannot hold together with the others."""
        if self.metric == "cosine":
            return
        ends = self._ends()
        largest = float(abs(self.rows).max() if ends is None else (ends[1] - ends[0]).max())
        if largest > 2.0**SCALE_ROOM:
            raise ValueError(
                f"'X' has values about {largest:.0e} times the range of the rows that are there. Check their units; if "
                "they are right, fit a model on all rows and make a new store."
            )


def training_of(model: Any, owners: Any) -> Training:
    """Take over the rows of a fitted model, or say why not."""
    if not isinstance(model, KNNShapley) or not hasattr(model, "fingerprint_"):
        raise TypeError(
            "The 'model' parameter of ValuationStore must be a fitted KNNShapley. Got "
            f"{type(model).__name__}; call its fit method first."
        )
    reasons = {
        "must have method='exact' or 'truncated'": model.method not in ("exact", "truncated"),
        "must have search='exact': an index would have to be built anew after each change": model.search != "exact",
        "must not have metric='precomputed': new rows could not be measured": model.metric == "precomputed",
        "must hold its training rows in memory; these stay in a file": isinstance(model._index.rows, RowFile),
    }
    for reason, wrong in reasons.items():
        if wrong:
            raise ValueError(f"The 'model' parameter of ValuationStore {reason}. Fit another model for the store.")
    n = model.codes_.size
    return Training(
        settings={
            "n_neighbors": int(model.n_neighbors), "utility": model.utility, "semivalue": model.semivalue,
            "ties": model.ties, "metric": model.metric, "method": model.method,
            "tol": float(TRUNCATED_TOL if model.tol is None else model.tol) if model.method == "truncated" else None,
        },
        columns=copy.copy(model._columns),
        kind=model._kind,
        id_names=model._id_names,
        exponent=model._index.exponent,
        known={label: k for k, label in enumerate(model.classes_.tolist())},
        class_kind=model.classes_.dtype,
        rows=model._index.rows,
        codes=model.codes_.copy(),
        alive=np.ones(n, dtype=np.uint8),
        ids=model.ids_.copy(),
        owners=None if owners is None else _labels.check_labels(owners, "owners", n, "X", "owner").copy(),
        digest=model.fingerprint_,
        next_id=after_ids(model.ids_),
        ends=model._index.ends,
    )  # fmt: skip


class _Columns:
    """Features of the rows that are there, one at a time: a copy of all would be large and last for a moment."""

    def __init__(self, rows: Floats, there: npt.NDArray[np.bool_]) -> None:
        self.rows, self.there = rows, there
        self.shape = (len(rows), int(there.sum()))

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Floats]:
        return (column[self.there] for column in self.rows)

    def __array__(self, dtype: Any = None, copy: Any = None) -> npt.NDArray[Any]:
        return np.compress(self.there, self.rows, axis=1)


def _ends_of(rows: Any) -> tuple[Floats, Floats]:
    ends = np.array([(column.min(), column.max()) for column in rows]).reshape(-1, 2)
    return ends[:, 0], ends[:, 1]


def after_ids(ids: npt.NDArray[Any]) -> int:
    """Return the number after the largest id, 0 where ids are no numbers."""
    return int(ids.max()) + 1 if ids.dtype.kind in "iu" and ids.size else 0


def are_in(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
    """Which of some ids are among others."""
    if some.dtype.kind in "iu" and others.dtype.kind in "iu":
        return np.isin(some, others)
    there = set(others.tolist())
    return np.fromiter((name in there for name in some.tolist()), bool, some.size)


def _joined(old: npt.NDArray[Any], new: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """One array of both, of objects where their kinds differ."""
    if old.dtype.kind == new.dtype.kind:
        return np.concatenate([old, new])
    return object_array([*old.tolist(), *new.tolist()])
