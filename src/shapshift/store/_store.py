"""A store of sums and neighbours: what a change costs is what it changes."""

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift import _labels
from shapshift import _validation as check
from shapshift._archive import Arrays, Saved
from shapshift._parallel import n_workers, stream
from shapshift._progress import progress_bar
from shapshift.distances import TrainingIndex, tile_filler
from shapshift.estimators import KNNShapley
from shapshift.store._chunks import CHUNK, Adder, Chunk, Group
from shapshift.store._saved import groups_from_archive, store_to_archive, training_from_archive
from shapshift.store._state import State
from shapshift.store._training import Training, training_of
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]

# Orders are merged for good when so large a share of the rows came or went.
STALE = 0.2


class ValuationStore(Saved):
    """Keep a valuation up to date while validation points and training rows come and go.

    Adding validation points costs those points. Dropping or reweighting groups of them costs a sum. After training rows
    were added or removed, values are those of a fresh fit: nothing is sorted again, only new rows are measured, and
    what is left is one pass over what is kept. For leave-one-out, Banzhaf and calibrated values, and for all values
    with ``method="truncated"``, those are the nearest rows of each point; for exact Shapley and Beta values, to which
    every rank matters, the order of all rows (12 bytes for each pair of a row and a point).

    A change that fails or is interrupted changes nothing. Threads may share a store: changes wait for one another, and
    :meth:`valuation` sees the state before or after a change, never one in between.

    Parameters
    ----------
    model : KNNShapley
        Fitted, with ``method="exact"`` or ``"truncated"`` (and ``search="exact"``), any metric but "precomputed", its
        rows in memory. It is not changed.
    owners : array-like of shape (n_train,), optional
        Who owns each training row, for :meth:`remove_owner`.
    scratch : path-like, optional
        Folder for the orders, which then need not fit in memory; by default they are held in memory.

    Attributes
    ----------
    ids : ndarray
        Ids of the training rows that are there, in the order of the values.
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

    def __init__(self, model: KNNShapley, *, owners: Any = None, scratch: Any = None) -> None:
        training = training_of(model, owners)
        scratch = check.check_folder("ValuationStore", "scratch", scratch)
        self._begin(training, {}, scratch, model.n_jobs, model.progress)

    def _begin(
        self,
        training: Training,
        groups: dict[Any, Group],
        scratch: str | None,
        n_jobs: int | None,
        progress: bool | None,
    ) -> None:
        self._scratch, self._n_jobs, self._progress = scratch, n_jobs, progress
        self._lock = threading.Lock()
        # All that changes, in one place: a change makes a new one of it and puts it there when it is complete.
        self._now = State(training, groups)

    def __getstate__(self) -> dict[str, Any]:
        return {name: part for name, part in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, parts: dict[str, Any]) -> None:
        self.__dict__.update(parts)
        self._lock = threading.Lock()

    @property
    def ids(self) -> npt.NDArray[Any]:
        """Ids of the training rows that are there."""
        training = self._now.training
        return training.ids[training.there]

    @property
    def group_names(self) -> tuple[Any, ...]:
        """Names of the validation groups, in the order in which they came."""
        return tuple(self._now.groups)

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return sum(group.size for group in self._now.groups.values())

    def add(self, X_val: Any, y_val: Any, *, groups: Any = None) -> None:
        """Add validation points.

        Parameters
        ----------
        X_val : table of shape (n, n_features)
        y_val : array-like of shape (n,)
            Labels; one that no training row has matches none until such a row is added.
        groups : array-like of shape (n,), optional
            A name for each point; a name that is there already grows. Without names, they go to the group "validation".
        """
        with self._lock:
            draft = self._now.draft()
            points = draft.training.features(X_val, "X_val").rows
            n = points.shape[0]
            labels = _labels.check_labels(y_val, "y_val", n, "X_val")
            names: list[Any] = ["validation"]
            numbers = np.zeros(n, dtype=np.int64)
            if groups is not None:
                names, numbers = _labels.check_groups(groups, n)
            targets = draft.training.encode(labels)
            draft.refresh()
            tasks = []
            for g, name in enumerate(names):
                members = np.flatnonzero(numbers == g)
                tasks += [(name, members[lo : lo + CHUNK]) for lo in range(0, members.size, CHUNK)]
            index = draft.training.index()
            tile_filler(index, points)  # refuses points that are too far away

            def make(task: tuple[Any, npt.NDArray[np.int64]]) -> tuple[Any, Chunk, Adder]:
                name, members = task
                orders = draft.ordered(index, points[members], targets[members], self._scratch)
                return name, *Chunk(points[members], targets[members], orders).valued(draft.rows)

            for name, group in draft.groups.items():
                if name in names:
                    group.sums, group.bound = group.sums.copy(), group.bound.copy()
            for name, chunk, add in self._work("Adding", make, tasks):
                draft.groups.setdefault(name, Group()).take(chunk, add)
            self._now = draft

    def drop(self, group: Any) -> None:
        """Forget a validation group."""
        with self._lock:
            self._now.group(group)
            self._now = self._now.with_groups({name: it for name, it in self._now.groups.items() if name != group})

    def reweight(self, weights: Mapping[Any, float]) -> None:
        """Let each point of a group count so many times; 1 is what it counts at first.

        Parameters
        ----------
        weights : mapping
            Group names to weights of at least 0; other groups keep theirs.
        """
        if not isinstance(weights, Mapping):
            raise TypeError(
                "The 'weights' parameter of ValuationStore.reweight must map group names to weights. Got "
                f"{type(weights).__name__}."
            )
        with self._lock:
            groups = dict(self._now.groups)
            for name, weight in weights.items():
                check.check_number("ValuationStore.reweight", "weights", weight)
                groups[name] = replace(self._now.group(name), weight=float(weight))
            self._now = self._now.with_groups(groups)

    def add_rows(self, X: Any, y: Any, *, ids: Any = None, owners: Any = None) -> None:
        """Add training rows, behind those that are there.

        Parameters
        ----------
        X : table of shape (n, n_features)
        y : array-like of shape (n,)
        ids : array-like of shape (n,), optional
            By default the table's index, or numbers that go on from the largest there ever was: the id of a row that is
            gone is not given to another one.
        owners : array-like of shape (n,), optional
            Needed if the store knows owners.
        """
        with self._lock:
            draft = self._now.draft()
            first = draft.training.codes.size
            index = draft.training.append(X, y, ids, owners)
            codes = draft.training.codes[first:]

            def place(chunk: Chunk) -> Chunk:
                fill = tile_filler(index, chunk.points)
                orders = chunk.orders.with_rows(fill, chunk.targets, codes, first)
                return replace(chunk, orders=orders)

            draft.set_chunks(self._work("Placing", place, draft.chunks))
            self._value_again(draft)
            self._now = draft

    def remove_rows(self, ids: Any) -> None:
        """Remove training rows by their ids."""
        with self._lock:
            self._remove(self._now.training.places(ids))

    def remove_owner(self, owner: Any) -> None:
        """Remove all training rows of an owner."""
        with self._lock:
            self._remove(self._now.training.places_of_owner(owner))

    def valuation(self) -> Valuation:
        """Return the values of the training rows that are there, on the validation points that are there.

        Returns
        -------
        Valuation
            As a fresh fit would give it, up to rounding; with ``method="truncated"`` with its ``error_bound``. Where
            groups have weights, ``level_counts`` are weighted too.
        """
        return self._now.valuation()

    def __repr__(self) -> str:
        now = self._now
        return (
            f"ValuationStore(n_train={now.training.size}, n_val={self.n_val}, groups={len(now.groups)}, "
            f"orders={'nearest rows' if now.rows.needed else 'all rows'})"
        )

    def _work(self, what: str, function: Any, tasks: list[Any]) -> Iterable[Any]:
        """Yield the results in order, with a progress bar."""
        with progress_bar(what, len(tasks), self._progress) as advance:
            for result in stream(function, tasks, min(n_workers(self._n_jobs), max(len(tasks), 1))):
                advance(1)
                yield result

    def _remove(self, gone: npt.NDArray[np.bool_]) -> None:
        draft = self._now.draft()
        draft.training.remove(gone)
        self._value_again(draft)
        self._now = draft

    def _value_again(self, draft: State) -> None:
        """Value all points from the orders that are kept."""
        training = draft.training
        # Walking around many rows that came or went takes longer and longer.
        added = max((chunk.orders.n_added for chunk in draft.chunks), default=0)
        if added + int((training.alive == 0).sum()) > STALE * training.alive.size:
            self._merge(draft)
        draft.refresh()
        made: list[TrainingIndex] = []  # only if a point is searched anew

        def index() -> TrainingIndex:
            if not made:
                made.append(training.index())
            return made[0]

        def again(chunk: Chunk) -> tuple[Chunk, Adder]:
            return draft.reordered(index, chunk, self._scratch).valued(draft.rows)

        results = iter(self._work("Valuing", again, draft.chunks))
        for name, group in draft.groups.items():
            size = len(group.chunks)
            draft.groups[name] = Group(group.weight)
            for _ in range(size):
                draft.groups[name].take(*next(results))

    def _merge(self, draft: State) -> None:
        """Merge orders for good, and forget the rows that are gone."""
        there = draft.training.there
        if there.all() and not any(chunk.orders.n_added for chunk in draft.chunks):
            return
        numbers = draft.training.forget()

        def merge(chunk: Chunk) -> Chunk:
            return replace(chunk, orders=chunk.orders.renumbered(numbers, self._scratch))

        draft.set_chunks(self._work("Merging", merge, draft.chunks))
        for group in draft.groups.values():
            if group.sums.shape[1] == there.size:  # otherwise they are made anew anyway
                group.sums = group.sums[:, there]
                group.bound = group.bound[there] if group.bound.size else group.bound
        draft.refresh()

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        draft = self._now.draft()
        self._merge(draft)
        return store_to_archive(draft.training, draft.groups)

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        store = cls.__new__(cls)
        training = training_from_archive(header, arrays)
        store._begin(training, groups_from_archive(header, arrays, training), None, None, None)
        for group in store._now.groups.values():
            shapes = (
                (store._now.rows.levels.size, training.codes.size),
                (store._now.rows.bounded * training.codes.size,),
            )
            if (group.sums.shape, group.bound.shape) != shapes:
                raise ValueError(f"sums have shape {group.sums.shape}")
        return store

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, n_jobs: int | None = None, progress: bool | None = None) -> Self:
        """Read what :meth:`save` wrote.

        Parameters
        ----------
        path : path-like
        n_jobs, progress
            As for :class:`KNNShapley`.
        """
        store = super().load(path)
        store._n_jobs, store._progress = n_jobs, progress
        return store
