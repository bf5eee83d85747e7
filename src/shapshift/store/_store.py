"""ValuationStore: a valuation kept up to date while data changes."""

import os
import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.exceptions import InputError
from shapshift.io.archive import Arrays, Saved
from shapshift.io.shown import Shown
from shapshift.knn.shapley import KNNShapley
from shapshift.store._lists import list_length
from shapshift.store._state import State, after_ids, append_rows, find_ids, joined, keep_rows, own_model
from shapshift.valuation import Valuation


class ValuationStore(Saved, Shown):
    """Keep a valuation up to date while validation points and training rows are added and removed.

    Adding validation points costs only their own valuation. Dropping or reweighting groups costs a sum. After training
    rows are added or removed, values are those of a fresh fit. For leave-one-out, Banzhaf and calibrated values, and
    for all values with ``method="truncated"``, the store keeps lists of the nearest rows of each point, and a change of
    the rows costs a fraction of a fresh valuation. Exact Shapley and Beta values depend on every rank, so all points
    are valued again.

    A change that fails or is interrupted has no effect. Threads may share a store: changes run one after another, and
    :meth:`valuation` returns the values before or after a change, never in between.

    Parameters
    ----------
    model : KNNShapley
        Fitted, with ``method="exact"`` or ``"truncated"`` (and ``search="exact"``), any metric but "precomputed", and
        rows in memory. The store works on a copy.
    owners : array-like of shape (n_train,), optional
        Owner of each training row, for :meth:`remove_owner`.

    Attributes
    ----------
    ids : ndarray
        Ids of the current training rows, in the order of the values.
    group_names : tuple
    n_val : int

    Examples
    --------
    >>> from shapshift import KNNShapley, ValuationStore
    >>> store = ValuationStore(KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"]))
    >>> store.add([[0.9]], ["b"], groups=["monday"])
    >>> store.valuation().values.round(3)
    array([-0.333,  0.667,  0.167])
    >>> store.remove_rows([2])
    >>> store.add([[0.1]], ["a"], groups=["tuesday"])
    >>> store.reweight({"monday": 0.5})
    >>> store.valuation().to_frame("pandas")["value"].round(3).to_dict()
    {0: 0.417, 1: 0.083}
    """

    archive_kind: ClassVar[str] = "shapshift.ValuationStore"
    archive_version: ClassVar[int] = 2

    def __init__(self, model: KNNShapley, *, owners: Any = None) -> None:
        own = own_model(model)
        if owners is not None:
            owners = _labels.check_labels(owners, "owners", own.codes_.size, "X", "owner").copy()
        # The whole state: a change replaces it by a new one when it is complete.
        self._now = State(own, owners, after_ids(own.ids_), {})
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        return {"_now": self._now}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        self._now, self._lock = parts["_now"], threading.Lock()

    @property
    def ids(self) -> npt.NDArray[Any]:
        """Ids of the current training rows."""
        return self._now.model.ids_.copy()

    @property
    def group_names(self) -> tuple[Any, ...]:
        """Names of the validation groups, in the order in which they were added."""
        return tuple(self._now.groups)

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return sum(group.valuation.n_val for group in self._now.groups.values())

    def add(self, X_val: Any, y_val: Any, *, groups: Any = None) -> None:
        """Add validation points.

        Parameters
        ----------
        X_val : table of shape (n, n_features)
        y_val : array-like of shape (n,)
            Labels; a label unknown in training matches no row until such a row is added.
        groups : array-like of shape (n,), optional
            A name for each point; points with an existing name join that group. Without names, they join the group
            "validation".
        """
        with self._lock:
            rows = self._now.model._check_points(X_val)
            labels = _labels.check_labels(y_val, "y_val", rows.shape[0], "X_val")
            names: list[Any] = ["validation"]
            numbers = np.zeros(labels.size, dtype=np.int64)
            if groups is not None:
                names, numbers = _labels.check_groups(groups, labels.size)
            self._now = self._now.with_points(
                (name, rows[numbers == g], labels[numbers == g]) for g, name in enumerate(names)
            )

    def drop(self, group: Any) -> None:
        """Remove a validation group."""
        with self._lock:
            self._now.group(group)
            groups = {name: kept for name, kept in self._now.groups.items() if name != group}
            self._now = replace(self._now, groups=groups)

    def reweight(self, weights: Mapping[Any, float]) -> None:
        """Set the weight of each point of a group; a new group has weight 1.

        Parameters
        ----------
        weights : mapping
            Group names to weights of at least 0; other groups keep theirs.
        """
        if not isinstance(weights, Mapping):
            raise InputError(
                "The 'weights' parameter of ValuationStore.reweight must map group names to weights. Got "
                f"{type(weights).__name__}."
            )
        with self._lock:
            groups = dict(self._now.groups)
            for name, weight in weights.items():
                check.check_number("ValuationStore.reweight", "weights", weight)
                groups[name] = replace(self._now.group(name), weight=float(weight))
            self._now = replace(self._now, groups=groups)

    def add_rows(self, X: Any, y: Any, *, ids: Any = None, owners: Any = None) -> None:
        """Add training rows after the existing ones.

        Parameters
        ----------
        X : table of shape (n, n_features)
        y : array-like of shape (n,)
        ids : array-like of shape (n,), optional
            By default the table's index, or numbers that continue from the largest id ever used: ids of removed rows
            are not reused.
        owners : array-like of shape (n,), optional
            Required if the store has owners.
        """
        with self._lock:
            now = self._now
            if (owners is None) != (now.owners is None):
                raise InputError(
                    "The 'owners' parameter must name an owner for each new row if the store was made with owners, and "
                    f"be None otherwise. Got {'none' if owners is None else 'some'}."
                )
            model = append_rows(now.model, X, y, ids, now.next_id)
            n_old = now.model.codes_.size
            if now.owners is not None:
                new = _labels.check_labels(owners, "owners", model.codes_.size - n_old, "X", "owner")
                owners = joined(now.owners, new)
            next_id = max(now.next_id, after_ids(model.ids_[n_old:]))
            self._now = now.with_model(model, np.ones(n_old, dtype=np.bool_), owners, next_id)

    def remove_rows(self, ids: Any) -> None:
        """Remove training rows by their ids."""
        with self._lock:
            self._remove(find_ids(ids, self._now.model.ids_))

    def remove_owner(self, owner: Any) -> None:
        """Remove all training rows of an owner."""
        with self._lock:
            owners = self._now.owners
            if owners is None:
                raise InputError("remove_owner needs the owner of each row. Make the store with owners=...")
            gone = np.fromiter((name == owner for name in owners.tolist()), bool, owners.size)
            if not gone.any():
                left = check.some(list(dict.fromkeys(owners.tolist())))
                raise InputError(f"The 'owner' parameter must be one of {left}. Got {check.quoted(owner)} instead.")
            self._remove(gone)

    def _remove(self, gone: npt.NDArray[np.bool_]) -> None:
        now, kept = self._now, ~gone
        owners = None if now.owners is None else now.owners[kept]
        self._now = now.with_model(keep_rows(now.model, kept), kept, owners, now.next_id)

    def valuation(self) -> Valuation:
        """Return the values of the current training rows on the current validation points.

        Returns
        -------
        Valuation
            Equal to those of a fresh fit up to rounding; with ``method="truncated"``, within its ``error_bound``. If
            groups have weights, ``level_counts`` are weighted too.
        """
        return self._now.valuation()

    def __repr__(self) -> str:
        model = self._now.model
        return (
            f"ValuationStore(n_train={model.codes_.size}, n_val={self.n_val}, groups={len(self._now.groups)}, "
            f"keeps={'candidate lists' if list_length(model) else 'sums'})"
        )

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        return self._now.to_archive()

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        store = cls.__new__(cls)
        store.__setstate__({"_now": State.from_archive(header, arrays)})
        return store

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None, progress: bool | None = None) -> Self:
        """Read a store written by :meth:`save`.

        Parameters
        ----------
        path : path-like
        n_jobs, progress
            As for :class:`KNNShapley`.
        """
        store = super().load(path)
        store._now.model.set_params(n_jobs=n_jobs, progress=progress)
        return store
