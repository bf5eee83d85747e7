"""A store of sums and neighbours: what a change costs is what it changes."""

import copy
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift import _labels
from shapshift import _validation as check
from shapshift._archive import Arrays, Saved, object_array
from shapshift._parallel import n_workers, stream
from shapshift._progress import progress_bar
from shapshift.boundary import BOUNDARY_NEIGHBORS, entropy_levels, nearest_level
from shapshift.coefficients import RankTable, rank_table
from shapshift.distances import SPARSE_METRICS, TrainingIndex, index_again, lay_out_like, tile_filler
from shapshift.estimators import KNNShapley
from shapshift.rowfile import RowFile
from shapshift.store._orders import (
    CHUNK,
    SPARE,
    Chunk,
    Group,
    Rows,
    add_to_orders,
    order_all,
    order_nearest,
    ranks_that_matter,
    renumber,
    short_of,
    value_chunk,
)
from shapshift.store._saved import fill_from_archive, store_to_archive
from shapshift.training import fingerprint
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]

# Orders are merged for good when so large a share of the rows came or went.
STALE = 0.2
# Old and new rows are measured on one scale as long as it fits both this well, as powers of two.
SCALE_ROOM = 200


class ValuationStore(Saved):
    """Keep a valuation up to date while validation points and training rows come and go.

    Adding validation points costs those points. Dropping or reweighting groups of them costs a sum. Adding or removing
    training rows is exact: nothing is sorted again, only new rows are measured, and what is left is one pass over the
    orders that are kept. For leave-one-out, Banzhaf and calibrated values only the nearest rows of each point are kept
    and looked at; for Shapley and Beta values, to which every rank matters, the order of all rows (12 bytes for each
    pair of a row and a point).

    Parameters
    ----------
    model : KNNShapley
        Fitted, with ``method="exact"`` and any metric but "precomputed", its rows in memory. It is not changed.
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
        _check_model(model)
        self._scratch = check.check_folder("ValuationStore", "scratch", scratch)
        self._settings: dict[str, Any] = {
            "n_neighbors": int(model.n_neighbors), "utility": model.utility, "semivalue": model.semivalue,
            "ties": model.ties, "metric": model.metric,
        }  # fmt: skip
        self._n_jobs, self._progress = model.n_jobs, model.progress
        self._columns, self._kind, self._id_names = model._columns, model._kind, model._id_names
        index = model._index
        self._exponent, self._rows = index.exponent, index.rows
        self._known: dict[Any, int] = {label: k for k, label in enumerate(model.classes_.tolist())}
        self._class_kind = model.classes_.dtype
        self._codes = model.codes_.copy()
        self._alive = np.ones(self._codes.size, dtype=np.uint8)
        self._ids = model.ids_.copy()
        self._owners = (
            None if owners is None else _labels.check_labels(owners, "owners", self._codes.size, "X", "owner")
        )
        self._groups: dict[Any, Group] = {}
        self._print: str | None = model.fingerprint_
        self._refresh()

    @property
    def ids(self) -> npt.NDArray[Any]:
        """Ids of the training rows that are there."""
        return self._ids[self._alive > 0]

    @property
    def group_names(self) -> tuple[Any, ...]:
        """Names of the validation groups, in the order in which they came."""
        return tuple(self._groups)

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return sum(group.size for group in self._groups.values())

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
        points = self._features(X_val, "X_val").rows
        n = points.shape[0]
        labels = _labels.check_labels(y_val, "y_val", n, "X_val")
        names = ["validation"]
        numbers = np.zeros(n, dtype=np.int64)
        if groups is not None:
            names, numbers = _labels.check_groups(groups, n)
        draft = self._draft()
        targets = draft._encode(labels)
        draft._refresh()
        tasks = []
        for g, name in enumerate(names):
            members = np.flatnonzero(numbers == g)
            tasks += [(name, members[lo : lo + CHUNK]) for lo in range(0, members.size, CHUNK)]
        index = self._index(self._rows)
        tile_filler(index, points)  # refuses points that are too far away, before anything is stored

        def make(task: tuple[Any, npt.NDArray[np.int64]]) -> tuple[Any, Chunk, Floats]:
            name, members = task
            chunk = draft._ordered(index, points[members], targets[members])
            return name, chunk, value_chunk(chunk, draft._state)

        for name, chunk, sums in draft._work("Adding", make, tasks):
            group = draft._groups.setdefault(name, Group())
            group.chunks.append(chunk)
            group.sums = sums if group.sums.size == 0 else group.sums + sums
        self._adopt(draft)

    def drop(self, group: Any) -> None:
        """Forget a validation group."""
        self._group(group)
        del self._groups[group]

    def reweight(self, weights: Mapping[Any, float]) -> None:
        """Let each point of a group count so many times; 1 is what it counts at first.

        Parameters
        ----------
        weights : mapping
            Group names to weights of at least 0; other groups keep theirs.
        """
        for name, weight in weights.items():
            self._group(name)
            check.check_number("ValuationStore.reweight", "weights", weight)
        for name, weight in weights.items():
            self._groups[name].weight = float(weight)

    def add_rows(self, X: Any, y: Any, *, ids: Any = None, owners: Any = None) -> None:
        """Add training rows, behind those that are there.

        Parameters
        ----------
        X : table of shape (n, n_features)
        y : array-like of shape (n,)
        ids : array-like of shape (n,), optional
            By default the table's index, or numbers that go on from the largest there is.
        owners : array-like of shape (n,), optional
            Needed if the store knows owners.
        """
        table = self._features(X, "X")
        n = table.rows.shape[0]
        labels = _labels.check_labels(y, "y", n, "X")
        if (owners is None) != (self._owners is None):
            raise ValueError(
                "The 'owners' parameter must name an owner for each new row if, and only if, the store was made with "
                f"owners. Got {'none' if owners is None else 'some'}."
            )
        if ids is None and table.index is None:
            ids = self._next_ids(n)
        ids = _labels.check_ids(ids, table.index, n)
        twice = ids[_are_in(ids, self.ids)].tolist()
        if twice or len(set(ids.tolist())) < n:
            raise ValueError(f"The 'ids' parameter must hold new ids, each once. Already there: {check.some(twice)}.")
        new_owners = None if owners is None else _labels.check_labels(owners, "owners", n, "X", "owner")
        new = lay_out_like(table.rows, self._settings["metric"], self._exponent)
        whole = sparse.vstack([self._rows, new], format="csr") if sparse.issparse(new) else np.hstack([self._rows, new])
        self._check_scale(whole)
        draft = self._draft()
        first, codes = self._codes.size, draft._encode(labels)
        index = self._index(new)
        average = self._settings["ties"] == "average"

        def place(chunk: Chunk) -> None:
            add_to_orders(chunk, tile_filler(index, chunk.points), codes, first, average)

        for _ in draft._work("Placing", place, draft._chunks()):
            pass
        draft._rows, draft._codes = whole, np.concatenate([self._codes, codes])
        draft._alive = np.concatenate([self._alive, np.ones(n, dtype=np.uint8)])
        draft._ids = _joined(self._ids, ids)
        if self._owners is not None and new_owners is not None:
            draft._owners = _joined(self._owners, new_owners)
        draft._change()
        self._adopt(draft)

    def remove_rows(self, ids: Any) -> None:
        """Remove training rows by their ids."""
        ids = list(ids) if not hasattr(ids, "__len__") else ids
        wanted = _labels.check_labels(ids, "ids", len(ids), "X", "id")
        gone = _are_in(self._ids, wanted) & (self._alive > 0)
        unknown = wanted[~_are_in(wanted, self._ids[gone])].tolist()
        if unknown:
            raise ValueError(f"The 'ids' parameter must hold ids of training rows. Unknown: {check.some(unknown)}.")
        self._remove(gone)

    def remove_owner(self, owner: Any) -> None:
        """Remove all training rows of an owner."""
        if self._owners is None:
            raise ValueError("remove_owner needs to know who owns which row: make the store with owners=...")
        gone = np.fromiter((name == owner for name in self._owners.tolist()), bool, self._alive.size)
        gone &= self._alive > 0
        if not gone.any():
            left = list(dict.fromkeys(self._owners[self._alive > 0].tolist()))
            raise ValueError(f"The 'owner' parameter must be one of {check.some(left)}. Got {owner!r} instead.")
        self._remove(gone)

    def valuation(self) -> Valuation:
        """Return the values of the training rows that are there, on the validation points that are there.

        Returns
        -------
        Valuation
            As a fresh fit would give it, up to rounding. Where groups have weights, ``level_counts`` are weighted too.
        """
        if not any(group.weight > 0 for group in self._groups.values()):
            raise ValueError("There are no validation points with a weight above 0: add some, or reweight.")
        alive, state = self._alive > 0, self._state
        levels = np.zeros((state.levels.size, int(alive.sum())))
        counts = np.zeros(state.levels.size)
        means = np.empty((len(self._groups), levels.shape[1]))
        for mean, group in zip(means, self._groups.values(), strict=True):
            sums, sizes = self._group_sums(group, alive)
            levels += group.weight * sums
            counts += group.weight * sizes
            mean[:] = sums.sum(axis=0) / sizes.sum()
        weights = [group.weight for group in self._groups.values()]
        present = counts > 0
        level_counts: Any = counts[present] if set(weights) != {1.0} else counts[present].astype(np.int64)
        entropy = np.concatenate([chunk.entropy for chunk in self._chunks()])
        return Valuation(
            values=levels.sum(axis=0) / counts.sum(),
            ids=self.ids,
            entropy=entropy,
            boundary=entropy > 0,
            level_entropy=state.levels[present],
            level_values=levels[present] / counts[present, None],
            level_counts=level_counts,
            group_means=means,
            group_names=self.group_names,
            group_sizes=tuple(group.size for group in self._groups.values()),
            matrix=None,
            parameters=self._parameters(weights),
            fingerprint=self._fingerprint(),
            kind=self._kind,
            id_names=self._id_names,
        )

    def __repr__(self) -> str:
        return (
            f"ValuationStore(n_train={int(self._alive.sum())}, n_val={self.n_val}, groups={len(self._groups)}, "
            f"orders={'nearest rows' if self._needed else 'all rows'})"
        )

    # What follows is for the methods above.

    @property
    def _width(self) -> int:
        return int(self._rows.shape[1] if sparse.issparse(self._rows) else self._rows.shape[0])

    def _features(self, X: Any, name: str) -> check.Table:
        """Check rows and bring them into the form of those that are there."""
        ok = self._settings["metric"] in SPARSE_METRICS
        table = check.check_features(X, name, sparse_ok=None if ok else "which this metric does not support")
        table = check.match_columns(table, self._columns, self._width, name)
        rows = table.rows
        if sparse.issparse(self._rows):
            rows = sparse.csr_array(rows)
        elif sparse.issparse(rows):
            rows = rows.toarray()
        return replace(table, rows=rows)

    def _group(self, name: Any) -> Group:
        if name not in self._groups:
            raise ValueError(f"There is no validation group {name!r}. There are {check.some(list(self._groups))}.")
        return self._groups[name]

    def _chunks(self) -> list[Chunk]:
        return [chunk for group in self._groups.values() for chunk in group.chunks]

    def _draft(self) -> Self:
        """Return a store to change in place of this one, which stays as it is until the change is complete."""
        draft = copy.copy(self)
        draft._known = dict(self._known)
        draft._groups = {name: group.copy() for name, group in self._groups.items()}
        return draft

    def _adopt(self, draft: Self) -> None:
        self.__dict__.update(draft.__dict__)

    def _work(self, what: str, function: Any, tasks: list[Any]) -> Iterable[Any]:
        """Yield the results in order, with a progress bar."""
        with progress_bar(what, len(tasks), self._progress) as advance:
            for result in stream(function, tasks, min(n_workers(self._n_jobs), max(len(tasks), 1))):
                advance(1)
                yield result

    def _encode(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.int32]:
        """Class numbers; a label that is new gets the next one."""
        distinct, codes = _labels.encode_labels(labels)
        numbers = [self._known.setdefault(label, len(self._known)) for label in distinct.tolist()]
        self._class_kind = self._class_kind if distinct.dtype.kind == self._class_kind.kind else np.dtype(object)
        return np.array(numbers, dtype=np.int32)[codes]

    def _index(self, rows: Any) -> TrainingIndex:
        n = rows.shape[0] if sparse.issparse(rows) else rows.shape[1]
        ends = None
        if self._settings["metric"] != "cosine" and not sparse.issparse(rows):
            ends = (rows.min(axis=1), rows.max(axis=1))
        return TrainingIndex(self._settings["metric"], n, rows, self._exponent, ends=ends)

    def _check_scale(self, rows: Any) -> None:
        """Refuse rows that one scale cannot hold together with the others."""
        if self._settings["metric"] == "cosine":
            return
        largest = (
            float(abs(rows).max()) if sparse.issparse(rows) else float((rows.max(axis=1) - rows.min(axis=1)).max())
        )
        if largest > 2.0**SCALE_ROOM:
            raise ValueError(
                f"'X' has values about {largest:.0e} times the range of the rows that are there. Check their units; if "
                "they are right, fit a model on all rows and make a new store."
            )

    def _next_ids(self, n: int) -> npt.NDArray[Any]:
        if self._ids.dtype.kind not in "iu":
            raise ValueError("The 'ids' parameter must name the new rows: the ids of the others are not numbers.")
        return np.arange(n) + (int(self._ids.max()) + 1 if self._ids.size else 0)

    def _refresh(self) -> None:
        """Make anew what depends on the number of rows and classes."""
        n = int(self._alive.sum())
        settings = self._settings
        table: RankTable = rank_table(n, settings["n_neighbors"], settings["semivalue"], settings["utility"])
        sizes = np.bincount(self._codes[self._alive > 0], minlength=len(self._known))
        self._class_sizes = sizes
        depth = min(BOUNDARY_NEIGHBORS, n)
        self._state = Rows(
            codes=self._codes,
            alive=self._alive,
            table=table,
            depth=depth,
            n_classes=len(self._known),
            levels=entropy_levels(depth, int((sizes > 0).sum())),
            average=settings["ties"] == "average",
        )
        matter = max(ranks_that_matter(table) + 1, depth)
        # The nearest rows alone are kept if they are few.
        self._needed = matter if 4 * matter + SPARE < n else 0

    def _ordered(self, index: TrainingIndex, points: Any, targets: npt.NDArray[np.int32]) -> Chunk:
        fill = tile_filler(index, points)
        if self._needed:
            return order_nearest(fill, points, targets, self._state, 2 * self._needed + SPARE)
        return order_all(fill, points, targets, self._state, self._scratch)

    def _remove(self, gone: npt.NDArray[np.bool_]) -> None:
        if int(gone.sum()) == int(self._alive.sum()):
            raise ValueError("All training rows would be gone. Drop the store instead.")
        draft = self._draft()
        draft._alive = self._alive * ~gone
        draft._change()
        self._adopt(draft)

    def _change(self) -> None:
        """Value all points again, from the orders that are kept."""
        self._print = None
        # Walking around many rows that came or went takes longer and longer.
        added = max((chunk.added.shape[1] for chunk in self._chunks()), default=0)
        if added + int((self._alive == 0).sum()) > STALE * self._alive.size:
            self._merge()
        self._refresh()
        index = self._index(self._rows)

        def again(chunk: Chunk) -> Floats:
            if bool(self._needed) == chunk.whole or short_of(chunk, self._state, self._needed):
                chunk.__dict__.update(self._ordered(index, chunk.points, chunk.targets).__dict__)
            return value_chunk(chunk, self._state)

        results = iter(self._work("Valuing", again, self._chunks()))
        for group in self._groups.values():
            group.sums = next(results)
            for _ in group.chunks[1:]:
                group.sums += next(results)

    def _merge(self) -> None:
        """Merge orders for good, and forget the rows that are gone."""
        living = self._alive > 0
        chunks = self._chunks()
        if living.all() and not any(chunk.added.size for chunk in chunks):
            return
        numbers = np.where(living, np.cumsum(living) - 1, -1).astype(np.int32)
        for _ in self._work("Merging", lambda chunk: renumber(chunk, numbers, self._scratch), chunks):
            pass
        for group in self._groups.values():
            if group.sums.shape[1] == living.size:
                group.sums = group.sums[:, living]
        self._rows = self._rows[living] if sparse.issparse(self._rows) else np.ascontiguousarray(self._rows[:, living])
        self._codes, self._ids, self._alive = self._codes[living], self._ids[living], self._alive[living]
        if self._owners is not None:
            self._owners = self._owners[living]
        self._refresh()

    def _group_sums(self, group: Group, alive: npt.NDArray[np.bool_]) -> tuple[Floats, npt.NDArray[np.int64]]:
        """Return the sums of a group per entropy level, complete, and its points per level."""
        state = self._state
        points = np.zeros((state.levels.size, len(self._known)), dtype=np.int64)
        for chunk in group.chunks:
            np.add.at(points, (nearest_level(chunk.entropy, state.levels), chunk.targets), 1)
        table, sizes = state.table, np.append(self._class_sizes, 0)[: len(self._known)]
        # What a row gets however far away it is: beta of each point, and c_N from those of its own class.
        n_classes = int((self._class_sizes > 0).sum())
        beta = points @ (table.per_match * sizes) - points.sum(axis=1) * table.empty / n_classes
        sums = group.sums[:, alive] + beta[:, None] + table.c[-1] * points[:, self._codes[alive]]
        return sums, points.sum(axis=1)

    def _parameters(self, weights: list[float]) -> dict[str, Any]:
        parameters = {
            "method": "KNNShapley",
            **{name: self._settings[name] for name in ("n_neighbors", "utility")},
            "semivalue": str(self._settings["semivalue"]),
            "metric": self._settings["metric"],
            "algorithm": "exact",
            "ties": self._settings["ties"],
            "n_train": int(self._alive.sum()),
            "n_val": self.n_val,
            "n_classes": int((self._class_sizes > 0).sum()),
            "boundary_neighbors": BOUNDARY_NEIGHBORS,
        }
        return parameters if set(weights) == {1.0} else {**parameters, "group_weights": weights}

    def _fingerprint(self) -> str:
        """Return what a fresh fit of the rows that are there would have."""
        if self._print is None:
            alive = self._alive > 0
            rows = self._rows[alive] if sparse.issparse(self._rows) else np.compress(alive, self._rows, axis=1)
            index = index_again(self._index(rows))
            present = [label for label, k in self._known.items() if self._class_sizes[k] > 0]
            labels = (
                object_array(present) if self._class_kind.kind == "O" else np.array(present, dtype=self._class_kind)
            )
            classes, order = _labels.encode_labels(labels)
            numbers = np.full(len(self._known), -1, dtype=np.int32)
            numbers[[self._known[label] for label in present]] = order
            self._print = fingerprint(index, classes, numbers[self._codes[alive]])
        return self._print

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        draft = self._draft()
        draft._merge()
        return store_to_archive(draft)

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        store = cls.__new__(cls)
        store._scratch, store._n_jobs, store._progress = None, None, None
        fill_from_archive(store, header, arrays)
        store._refresh()
        for group in store._groups.values():
            if group.sums.shape != (store._state.levels.size, store._codes.size):
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


def _check_model(model: Any) -> None:
    if not isinstance(model, KNNShapley) or not hasattr(model, "fingerprint_"):
        raise TypeError(
            "The 'model' parameter of ValuationStore must be a fitted KNNShapley. Got "
            f"{type(model).__name__}; call its fit method first."
        )
    reasons = {
        "must have method='exact'": model.method != "exact",
        "must not have metric='precomputed': new rows could not be measured": model.metric == "precomputed",
        "must hold its training rows in memory; these stay in a file": isinstance(model._index.rows, RowFile),
    }
    for reason, wrong in reasons.items():
        if wrong:
            raise ValueError(f"The 'model' parameter of ValuationStore {reason}. Fit another model for the store.")


def _are_in(some: npt.NDArray[Any], others: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
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
