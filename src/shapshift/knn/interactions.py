"""knn_interactions: pairs of training rows, and of owners, that complement each other or are redundant."""

from collections import deque
from collections.abc import Callable, Mapping
from contextlib import closing
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift._progress import progress_bar
from shapshift.checks import inputs as check
from shapshift.checks.labels import check_owners, owner_column
from shapshift.engine.parallel import n_workers, stream
from shapshift.engine.tasks import ClassTask
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.kernels.interactions import PairTables, add_pairs, fill_tables
from shapshift.knn.shapley import KNNShapley

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Number of pairs whose sums are kept at a time; the other training rows take further passes.
BLOCK_PAIRS = 2**25
# (Training row, validation point) pairs of a tile, whose tables stay in the processor's cache.
TILE_PAIRS = 2**17


@dataclass(frozen=True, eq=False, repr=False)
class Interactions(Result):
    """Interactions of pairs of training rows, averaged over a validation set.

    The Shapley-Taylor index of order 2: the values of all single rows and all pairs add up to the worth of the whole
    training set. A positive pair is worth more together than apart; a negative pair is partly redundant.

    Attributes
    ----------
    ids : ndarray of shape (n_train,)
        Row ids.
    main : ndarray of shape (n_train,)
        Worth of each row alone.
    partners, interactions : ndarray of shape (n_train, top)
        Positions of the rows with which each row interacts most, strongest first regardless of sign, and the
        interactions.
    total : float
        Sum over all pairs, not only those kept.
    owners : tuple
        Owner names in order of first appearance; empty when none were given.
    owner_totals, owner_pairs : ndarray of shape (n_owners, n_owners)
        Sum of the interactions between the rows of two owners (on the diagonal: of one owner) over all pairs, and the
        number of these pairs.
    parameters : mapping
    fingerprint : str
        Of the model.
    kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley, knn_interactions
    >>> X, y = load_iris(return_X_y=True)
    >>> found = knn_interactions(KNNShapley().fit(X[::5], y[::5]), X[1::5], y[1::5], top=3)
    >>> found.to_frame("pyarrow").num_rows  # the three strongest of each of 30 rows
    90
    """

    archive_kind: ClassVar[str] = "shapshift.Interactions"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("ids", "main"), "n_train"),
        **dict.fromkeys(("partners", "interactions"), "n_train top"),
        "owners": "n_owners",
        **dict.fromkeys(("owner_totals", "owner_pairs"), "n_owners n_owners"),
    }

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

    def to_sparse(self) -> Any:
        """Return the kept interactions as a scipy csr_array of shape (n_train, n_train)."""
        n, top = self.partners.shape
        parts = self.interactions.ravel(), self.partners.ravel(), np.arange(n + 1) * top
        return sparse.csr_array(parts, shape=(n, n))

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
            raise InputError("There are no owners to tabulate. Pass 'owners' to knn_interactions.")
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
        from shapshift.plots.results import plot_interactions

        return plot_interactions(self, per_pair=per_pair, ax=ax)

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
    """Exact Shapley-Taylor interactions of all pairs of training rows (Belaid et al. 2023); the strongest are kept.

    Parameters
    ----------
    model : KNNShapley
        Fitted, with ``semivalue="shapley"``. Its ``n_neighbors``, ``utility``, ``metric``, ``ties`` and ``n_jobs`` are
        used.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        As in :meth:`shapshift.KNNShapley.value`.
    top : int, default=10
        Number of partners to keep per row.
    owners : array-like of shape (n_train,), optional
        Owner of each row; the result then also sums all pairs by owner.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Returns
    -------
    Interactions

    Notes
    -----
    O(N log N + N^2) per validation point. Memory stays below about 300 MB for any N, plus the result: rows are
    processed in blocks, with one pass over the validation set per block.

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
    caller = "knn_interactions"
    if not isinstance(model, KNNShapley):
        raise InputError(
            f"The 'model' parameter of {caller} must be a fitted KNNShapley, whose utility defines the interactions. "
            f"Got {type(model).__name__} instead."
        )
    if model.semivalue != "shapley":
        raise InputError(
            f"The 'model' parameter of {caller} must have semivalue='shapley'. Got {model.semivalue!r} instead."
        )
    check.check_count(caller, "top", top)
    model = copy(model)
    model.device = "cpu"  # pairs are summed on the CPU
    task = model._prepare(X_val, y_val).task
    ownership = None if owners is None else check_owners(owners, model.ids_)
    pairs = _Pairs(task, int(model.n_neighbors), model.utility == "soft", n_workers(model.n_jobs))
    n = task.n_train
    top = min(int(top), n - 1)
    partners, strongest = np.empty((n, top), dtype=np.int64), np.empty((n, top))
    names = () if ownership is None else ownership.names
    totals, total = np.zeros((len(names), len(names))), 0.0
    blocks = _slices(n, max(1, BLOCK_PAIRS // n))
    with progress_bar("Pairing", task.n_val * len(blocks), progress) as advance:
        for here in blocks:
            block = pairs.block(here.start, here.stop, advance)
            for row, entries in enumerate(block, here.start):
                partners[row], strongest[row] = _strongest(entries, row, top)
            total += float(block.sum()) / 2
            if ownership is not None:
                _add_by_owner(block, ownership.codes[here], ownership.codes, totals)
    counts = np.zeros((0, 0), dtype=np.int64) if ownership is None else np.outer(ownership.counts, ownership.counts)
    if ownership is not None:
        # Each pair of one owner was counted from both ends.
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
            "method": caller,
            "n_neighbors": int(model.n_neighbors),
            "utility": model.utility,
            "metric": model.metric,
            "ties": model.ties,
            "top": top,
            "n_train": n,
            "n_val": task.n_val,
        },
        fingerprint=model.fingerprint_,
        kind=model._kind,
    )


class _Pairs:
    """Mean interactions over a validation set, for blocks of rows.

    Several threads compute the short tables of tiles of points. The same number of threads, sharing the rows, then add
    up the pairs in the order of the tiles.
    """

    def __init__(self, task: ClassTask, n_neighbors: int, soft: bool, workers: int) -> None:
        self.task, self._soft, self._workers = task, soft, workers
        # A soft vote never has more than N voters; hard votes are divided by K itself.
        self._k = min(n_neighbors, task.n_train) if soft else n_neighbors
        asked = np.bincount(task.targets[task.targets >= 0], minlength=task.n_classes) / task.n_val
        #: Share of the validation points that carry each row's label.
        self._share = asked[task.codes]

    def main(self) -> Floats:
        """Return the worth of each row alone."""
        return self._share - 1 / self.task.n_classes if self._soft else self._share / self._k

    def block(self, first: int, stop: int, advance: Callable[[int], None]) -> Floats:
        """Return mean interactions of rows first..stop-1 with all rows; 0 on the diagonal."""
        task, workers, rows = self.task, self._workers, stop - first
        sums, chunk = np.zeros((rows, task.n_train)), -(-rows // (4 * workers))
        tile = max(TILE_PAIRS // task.n_train, 1)
        with closing(stream(self._tables, _slices(task.n_val, tile), workers, 2 * workers)) as parts:
            for tables in parts:
                add = partial(add_pairs, tables, task.codes, first, sums, chunk)
                deque(stream(add, range(0, rows, chunk), workers), maxlen=0)
                advance(tables.targets.size)
        sums /= task.n_val
        if self._soft:
            self._add_small_sets(sums, first)
        sums[np.arange(rows), np.arange(first, stop)] = 0.0
        return sums

    def _tables(self, here: slice) -> PairTables:
        """Compute the tables of a tile of points."""
        task = self.task
        tile = np.empty((here.stop - here.start, task.n_train))
        task.fill(here, slice(0, task.n_train), tile)
        order = np.argsort(tile, axis=1, kind="stable")
        places, crowd = np.empty((2, *tile.shape), dtype=np.int32)
        tables = PairTables(task.targets[here], places, np.empty(tile.shape), np.empty((*tile.shape, 3)), crowd)
        fill_tables(tile, order, task.codes, task.average_ties, self._k, tables)
        return tables

    def _add_small_sets(self, sums: Floats, first: int) -> None:
        """Add the effect of the soft utility, which divides subsets of fewer than K rows by their size, not by K."""
        n, k = self.task.n_train, self._k
        s = np.arange(min(n - 1, k), dtype=np.float64)
        weight = 2 * (n - 1 - s) / (n * max(n - 1, 1))
        extra = np.append(np.append(0.0, 1 / np.arange(1, k) - 1 / k), np.zeros(3))  # by size of the set
        one, two = extra[1 : s.size + 1], extra[2 : s.size + 2]
        by_match = float((weight * (two - one)).sum())
        by_others = float((weight * s * (two - 2 * one + extra[: s.size])).sum()) / max(n - 2, 1)
        matching = float(self._share.sum())  # mean number of rows that carry a point's label
        sums += (by_match - by_others) * (self._share[first : first + sums.shape[0], None] + self._share)
        sums += by_others * matching + 2 / (n * self.task.n_classes)


def _slices(n: int, size: int) -> list[slice]:
    """Cut 0..n-1 into slices of a size."""
    return [slice(lo, min(lo + size, n)) for lo in range(0, n, size)]


def _strongest(entries: Floats, own: int, top: int) -> tuple[Indices, Floats]:
    """Positions and values of the entries largest in size, without the row's own; ties by position."""
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
