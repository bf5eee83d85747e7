"""knn_interactions: which pairs of training rows, and of owners, complement each other, and which are redundant."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils.validation import check_is_fitted

from shapshift import _labels
from shapshift import _validation as check
from shapshift._archive import Arrays, Saved, from_json, to_json
from shapshift._parallel import n_workers, thread_pool
from shapshift._progress import progress_bar
from shapshift.distances import tile_filler
from shapshift.estimators import KNNShapley
from shapshift.kernels.interactions import add_pairs, pair_tables
from shapshift.price._owners import check_owners, owner_column
from shapshift.valuation import to_table

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
Mapper = Callable[[Callable[[Any], Any], Iterable[Any]], list[Any]]

# Sums of interactions are kept for so many pairs at a time; the rest of the training rows follow in further passes.
BLOCK_PAIRS = 2**25
# Tables of so many (training row, validation point) pairs at a time stay in the processor's cache.
TILE_PAIRS = 2**17

_ARRAYS = ("ids", "main", "partners", "interactions", "owner_totals", "owner_pairs")


@dataclass(frozen=True, eq=False, repr=False)
class Interactions(Saved):
    """Interactions of pairs of training rows, averaged over a validation set.

    The Shapley-Taylor index of order 2: all pairs together with what each row is worth alone add up to what all rows
    together are worth. A positive pair is worth more together than apart, a negative one is partly redundant.

    Attributes
    ----------
    ids : ndarray of shape (n_train,)
        Row ids.
    main : ndarray of shape (n_train,)
        What each row is worth alone.
    partners, interactions : ndarray of shape (n_train, top)
        Positions of the rows with which each row interacts most, strongest first whatever the sign, and how much.
    total : float
        Sum over all pairs, not only those kept.
    owners : tuple
        Owner names in order of first appearance; empty when none were given.
    owner_totals, owner_pairs : ndarray of shape (n_owners, n_owners)
        Sum of the interactions between the rows of two owners (on the diagonal: of one owner), over all pairs, and how
        many pairs those are.
    parameters : mapping
    fingerprint : str
        Of the model.
    kind : str
        The caller's kind of table.
    """

    archive_kind: ClassVar[str] = "shapshift.Interactions"

    ids: npt.NDArray[Any]
    main: Floats
    partners: Indices
    interactions: Floats
    total: float
    owners: tuple[Any, ...]
    owner_totals: Floats
    owner_pairs: Indices
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"

    def __post_init__(self) -> None:
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "parameters": dict(self.parameters)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def to_sparse(self) -> Any:
        """Return the kept interactions as a scipy csr_array of shape (n_train, n_train)."""
        n, top = self.partners.shape
        starts = np.arange(0, n * top + 1, max(top, 1))[: n + 1] if top else np.zeros(n + 1, dtype=np.int64)
        return sparse.csr_array((self.interactions.ravel(), self.partners.ravel(), starts), shape=(n, n))

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the kept pairs, one line each: id, partner, interaction.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.
        """
        top = self.partners.shape[1]
        columns = {
            "id": np.repeat(self.ids, top),
            "partner": self.ids[self.partners.ravel()],
            "interaction": self.interactions.ravel(),
        }
        return to_table(columns, None, kind or self.kind)

    def owners_frame(self, kind: str | None = None) -> Any:
        """Tabulate all pairs of owners, the strongest first, and each owner with itself.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            As in :meth:`to_frame`.

        Returns
        -------
        table
            ``owner``, ``other``, ``interaction`` (sum over the pairs of their rows), ``pairs``, ``per_pair``, and
            ``reading``: "complementary" above 0, "redundant" below, "neutral" at 0.
        """
        if not self.owners:
            raise ValueError("There are no owners to tabulate. Pass 'owners' to knn_interactions.")
        a, b = np.triu_indices(len(self.owners))
        order = np.argsort(-np.abs(self.owner_totals[a, b]), kind="stable")
        a, b = a[order], b[order]
        total, pairs = self.owner_totals[a, b], self.owner_pairs[a, b]
        names = owner_column(self.owners)
        columns: dict[str, npt.NDArray[Any]] = {
            "owner": names[a],
            "other": names[b],
            "interaction": total,
            "pairs": pairs,
            "per_pair": total / np.maximum(pairs, 1),
            "reading": np.where(total > 0, "complementary", np.where(total < 0, "redundant", "neutral")).astype(object),
        }
        return to_table(columns, None, kind or self.kind)

    def plot(self, *, per_pair: bool = False, ax: Any = None) -> Any:
        """Draw the interaction of every pair of owners; returns the Axes.

        Parameters
        ----------
        per_pair : bool, default=False
            Mean over the pairs of rows instead of their sum.
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.interactions import plot_interactions

        return plot_interactions(self, per_pair=per_pair, ax=ax)

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        header = {
            "parameters": dict(self.parameters),
            "fingerprint": self.fingerprint,
            "kind": self.kind,
            "total": self.total,
            "owners": [to_json(name, "an owner") for name in self.owners],
        }
        return header, {name: getattr(self, name) for name in _ARRAYS}

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        owners = tuple(from_json(name) for name in header["owners"])
        loaded: Any = cls(
            **{name: arrays[name] for name in _ARRAYS},  # type: ignore[arg-type]  # shapes are checked below
            **{name: header[name] for name in ("total", "parameters", "fingerprint", "kind")},
            owners=owners,
        )
        n = loaded.ids.size
        square = (len(owners), len(owners))
        if loaded.main.shape != (n,) or loaded.partners.shape != loaded.interactions.shape:
            raise ValueError("its arrays do not fit together")
        if loaded.partners.shape[:1] != (n,) or loaded.owner_totals.shape != square:
            raise ValueError("its arrays do not fit together")
        return loaded  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return (
            f"Interactions(n_train={self.ids.size}, n_val={self.parameters['n_val']}, top={self.partners.shape[1]}, "
            f"owners={len(self.owners)}, total={self.total:.3g})"
        )


def knn_interactions(
    model: Any,
    X_val: Any,
    y_val: Any,
    *,
    top: int = 10,
    owners: Any = None,
    progress: bool | None = None,
) -> Interactions:
    """Exact Shapley-Taylor interactions of all pairs of training rows (Belaid et al. 2023), the strongest ones kept.

    Parameters
    ----------
    model : KNNShapley
        Fitted, with ``semivalue="shapley"``; its ``n_neighbors``, ``utility``, ``metric``, ``ties`` and ``n_jobs``
        count.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        As in :meth:`shapshift.KNNShapley.value`.
    top : int, default=10
        How many partners to keep per row.
    owners : array-like of shape (n_train,), optional
        Whose each row is; the result then sums all pairs up by owner.
    progress : bool, default=None
        Show a progress bar; None shows it in a terminal only.

    Returns
    -------
    Interactions

    Notes
    -----
    O(N log N + N^2) per validation point. Memory stays below about 300 MB whatever N is, plus what is returned: rows
    are taken in blocks, and the validation set is gone through once per block.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley, knn_interactions
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNNShapley().fit(X[::2], y[::2])
    >>> found = knn_interactions(model, X[1::2], y[1::2], top=3, owners=y[::2])
    >>> found
    Interactions(n_train=75, n_val=75, top=3, owners=3, total=0.616)
    >>> found.owners_frame("pandas").loc[0, ["owner", "other", "reading"]].tolist()
    [0, 2, 'complementary']
    """
    owner = "knn_interactions"
    if not isinstance(model, KNNShapley):
        raise TypeError(
            f"The 'model' parameter of {owner} must be a fitted KNNShapley: interactions are those of its utility. Got "
            f"{type(model).__name__} instead."
        )
    check_is_fitted(model)
    model._check_parameters()
    if model.semivalue != "shapley":
        raise ValueError(
            f"The 'model' parameter of {owner} must have semivalue='shapley'. Got {model.semivalue!r} instead."
        )
    check.check_count(owner, "top", top)
    features = model._check_points(X_val)
    targets = _labels.look_up_labels(_labels.check_labels(y_val, "y_val", features.shape[0], "X_val"), model.classes_)
    ownership = None if owners is None else check_owners(owners, model.ids_)
    pairs = _Pairs(model, features, targets)
    n = pairs.n_train
    top = min(int(top), n - 1)
    partners, strongest = np.empty((n, top), dtype=np.int64), np.empty((n, top))
    names = () if ownership is None else ownership.names
    totals, total = np.zeros((len(names), len(names))), 0.0
    size = max(1, min(n, BLOCK_PAIRS // n))
    with (
        thread_pool(pairs.workers) as map_in_order,
        progress_bar("Pairing", -(-n // size) * targets.size, progress) as advance,
    ):
        for first in range(0, n, size):
            block = pairs.block(first, min(first + size, n), map_in_order, advance)
            for row, entries in enumerate(block):
                partners[first + row], strongest[first + row] = _strongest(entries, first + row, top)
            total += float(block.sum()) / 2
            if ownership is not None:
                _add_by_owner(block, ownership.codes[first : first + block.shape[0]], ownership.codes, totals)
    counts = np.zeros((0, 0), dtype=np.int64) if ownership is None else np.outer(ownership.counts, ownership.counts)
    if ownership is not None:
        # Each pair of one owner was met from both ends.
        totals[np.diag_indices(len(names))] /= 2
        counts[np.diag_indices(len(names))] = ownership.counts * (ownership.counts - 1) // 2
    return Interactions(
        ids=model.ids_,
        main=pairs.main(),
        partners=partners,
        interactions=strongest,
        total=total,
        owners=names,
        owner_totals=totals,
        owner_pairs=counts,
        parameters={
            "method": owner,
            "n_neighbors": int(model.n_neighbors),
            "utility": model.utility,
            "metric": model.metric,
            "ties": model.ties,
            "top": top,
            "n_train": n,
            "n_val": targets.size,
        },
        fingerprint=model.fingerprint_,
        kind=model._kind,
    )


class _Pairs:
    """Sums of interactions over a validation set, for blocks of rows."""

    def __init__(self, model: KNNShapley, features: Any, targets: npt.NDArray[np.int32]) -> None:
        self._fill = tile_filler(model._index, features)
        self._codes, self._targets = model.codes_, targets
        self._average, self._soft = model.ties == "average", model.utility == "soft"
        self.n_train = model.codes_.size
        # A soft vote never has more than N voters; hard votes are divided by K itself.
        self._k = min(int(model.n_neighbors), self.n_train) if self._soft else int(model.n_neighbors)
        self._n_classes = len(model.classes_)
        self.workers = n_workers(model.n_jobs)
        asked = np.bincount(targets[targets >= 0], minlength=self._n_classes) / targets.size
        #: Share of the validation points that carry each row's label.
        self._share = asked[model.codes_]

    def main(self) -> Floats:
        """Return what each row is worth alone."""
        return self._share - 1 / self._n_classes if self._soft else self._share / self._k

    def block(self, first: int, stop: int, map_in_order: Mapper, advance: Callable[[int], None]) -> Floats:
        """Mean interactions of rows first..stop-1 with all rows; 0 on the diagonal."""
        n, n_val = self.n_train, self._targets.size
        sums = np.zeros((stop - first, n))
        size = min(max(TILE_PAIRS // n, 1), n_val)
        chunk = -(-sums.shape[0] // (4 * self.workers))
        for start in range(0, n_val, size):
            targets = self._targets[start : start + size]
            tile = np.empty((targets.size, n))
            self._fill(slice(start, start + targets.size), slice(0, n), tile)
            order = np.argsort(tile, axis=1, kind="stable")
            places, crowd = np.empty((2, *tile.shape), dtype=np.int32)
            far, same = np.empty(tile.shape), np.empty((*tile.shape, 3))
            pair_tables(tile, order, self._codes, targets, self._average, self._k, places, far, same, crowd)
            add = partial(add_pairs, places, far, same, crowd, self._codes, targets, first, sums, chunk)
            map_in_order(add, range(0, sums.shape[0], chunk))
            advance(targets.size)
        sums /= n_val
        if self._soft:
            self._add_small_sets(sums, first)
        sums[np.arange(stop - first), np.arange(first, stop)] = 0.0
        return sums

    def _add_small_sets(self, sums: Floats, first: int) -> None:
        """Add what the soft utility changes: subsets of fewer than K rows are divided by their size, not by K."""
        n, k = self.n_train, self._k
        s = np.arange(min(n - 1, k), dtype=np.float64)
        weight = 2 * (n - 1 - s) / (n * max(n - 1, 1))
        extra = np.append(np.append(0.0, 1 / np.arange(1, k) - 1 / k), np.zeros(3))  # by size of the set
        one, two = extra[1 : s.size + 1], extra[2 : s.size + 2]
        by_match = float((weight * (two - one)).sum())
        by_others = float((weight * s * (two - 2 * one + extra[: s.size])).sum()) / max(n - 2, 1)
        matching = float(self._share.sum())  # mean number of rows that carry a point's label
        sums += (by_match - by_others) * (self._share[first : first + sums.shape[0], None] + self._share)
        sums += by_others * matching + 2 / (n * self._n_classes)


def _strongest(entries: Floats, own: int, top: int) -> tuple[Indices, Floats]:
    """Positions and values of the largest entries by size, but for the row's own; equal ones by position."""
    sizes = np.abs(entries)
    sizes[own] = -1.0
    if top < sizes.size - 1:
        least = np.partition(sizes, sizes.size - top)[sizes.size - top]
        chosen = np.flatnonzero(sizes >= least)
    else:
        chosen = np.flatnonzero(sizes >= 0)
    chosen = chosen[np.argsort(-sizes[chosen], kind="stable")][:top]
    return chosen, entries[chosen]


def _add_by_owner(block: Floats, rows: Indices, columns: Indices, totals: Floats) -> None:
    """Add a block of pairs to sums by owner."""
    order = np.argsort(columns, kind="stable")
    starts = np.searchsorted(columns[order], np.arange(totals.shape[0]))
    for row, owner in enumerate(rows):
        totals[owner] += np.add.reduceat(block[row][order], starts)
