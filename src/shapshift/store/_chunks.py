"""What a store keeps: validation points in groups, the rows around each point, and sums."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from shapshift.boundary import nearest_level
from shapshift.coefficients import RankTable
from shapshift.distances import Filler
from shapshift.kernels.orders import rank_steps
from shapshift.list_sums import sums_beyond

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

# Points that are kept together: a worker's task.
CHUNK = 64


@dataclass(frozen=True)
class Rows:
    """The training rows as the orders see them.

    Attributes
    ----------
    codes : int32 (slots,)
        Class of each row, of those that are gone too.
    alive : uint8 (slots,)
    sizes : int64 (n_classes,)
        How many rows of each class are there.
    table : RankTable
        Of the rows that are there.
    depth : int
        How many neighbours decide about the boundary.
    levels : ndarray
        Entropies that can occur.
    average : bool
        Average over ties, or take them in order.
    needed : int
        How many of the nearest rows matter; 0 if all do.
    bounded : bool
        Whether the rows beyond those matter a little too: values have an error bound.
    """

    codes: Codes
    alive: npt.NDArray[np.uint8]
    sizes: npt.NDArray[np.int64]
    table: RankTable
    depth: int
    levels: Floats
    average: bool
    needed: int
    bounded: bool

    @cached_property
    def numbers(self) -> Codes:
        """Number of each slot, -1 for those whose rows are gone."""
        return np.where(self.alive, np.arange(self.alive.size, dtype=np.int32), np.int32(-1))

    @cached_property
    def beyond(self) -> Floats:
        """Sum of the rank table from each rank on."""
        return sums_beyond(self.table.c)

    @cached_property
    def steps(self) -> Floats:
        """Rank table, laid out for a walk along all rows."""
        return rank_steps(self.table.c)

    def bases(self, targets: Codes) -> Floats:
        """beta(M) of points with such labels."""
        n_classes = int((self.sizes > 0).sum())
        return np.asarray(self.table.per_match * self.sizes[targets] - self.table.empty / n_classes)


#: Adds the values of a few points, less those of the far rows, to sums of shape (levels, slots), and their bounds to a
#: sum of shape (slots,), which has no entries where values are exact. Both are made if sums have no entries yet.
Adder = Callable[[Floats, Floats], tuple[Floats, Floats]]


class Values(NamedTuple):
    """Values of a few points, as :class:`Chunk` keeps them, and what adds them up."""

    entropy: Floats
    tails: Floats
    bounds: Floats
    add: Adder


class Orders(Protocol):
    """The rows around a few points, in order of distance; never changed, but replaced."""

    @property
    def n_added(self) -> int:
        """How many rows are still beside the order that they belong to."""

    def with_rows(self, fill: Filler, targets: Codes, codes: Codes, first: int) -> "Orders":
        """Find the places of new rows.

        Parameters
        ----------
        fill : callable
            Distances to the new rows.
        targets, codes : int32
            Classes of the points, and of the new rows.
        first : int
            Number of the first of them.
        """

    def renumbered(self, numbers: Codes, scratch: str | None) -> "Orders":
        """Leave out the rows that are gone, and give the others new numbers (negative for those that are gone)."""

    def value(self, targets: Codes, rows: Rows) -> Values:
        """Value the points."""


@dataclass(frozen=True)
class Chunk:
    """A few validation points of one group and the rows around them.

    Attributes
    ----------
    points : ndarray or csr_array of shape (b, d)
    targets : int32 (b,)
        Class numbers.
    orders : Orders
    entropy : float64 (b,)
    tails : float64 (b, 2)
        Value of other and of matching rows far away. The sums of the group are less these.
    bounds : float64 (b, 3)
        Largest errors of other and matching rows far away, and of near ones.
    """

    points: Any
    targets: Codes
    orders: Any
    entropy: Floats = field(default_factory=lambda: np.empty(0))
    tails: Floats = field(default_factory=lambda: np.empty((0, 2)))
    bounds: Floats = field(default_factory=lambda: np.empty((0, 3)))

    @property
    def size(self) -> int:
        """Number of points."""
        return self.targets.size

    def valued(self, rows: Rows) -> tuple["Chunk", Adder]:
        """Return the chunk with its values, and what adds them up."""
        values = self.orders.value(self.targets, rows)
        return replace(self, entropy=values.entropy, tails=values.tails, bounds=values.bounds), values.add


@dataclass
class Group:
    """Validation points under one name.

    Attributes
    ----------
    weight : float
    chunks : list of Chunk
    sums : ndarray of shape (levels, slots)
        Values summed over the points at each entropy level, less ``tails``. What rows have that are gone means nothing.
    bound : ndarray of shape (slots,) or (0,)
        Error bounds summed over the points, in the same way.
    """

    weight: float = 1.0
    chunks: list[Chunk] = field(default_factory=list)
    sums: Floats = field(default_factory=lambda: np.empty((0, 0)))
    bound: Floats = field(default_factory=lambda: np.empty(0))

    @property
    def size(self) -> int:
        """Number of points."""
        return sum(chunk.size for chunk in self.chunks)

    def copy(self) -> "Group":
        """Return a group that can be changed while this one stays as it is."""
        return replace(self, chunks=list(self.chunks))

    def take(self, chunk: Chunk, add: Adder) -> None:
        """Take in a chunk that was valued; sums are changed in place."""
        self.chunks.append(chunk)
        self.sums, self.bound = add(self.sums, self.bound)

    def totals(self, rows: Rows, there: npt.NDArray[np.bool_]) -> tuple[Floats, Floats, npt.NDArray[np.int64]]:
        """Return sums per entropy level and error bounds, complete, and the points per level."""
        targets = np.concatenate([chunk.targets for chunk in self.chunks])
        tails, bounds = (np.concatenate([getattr(c, name) for c in self.chunks]) for name in ("tails", "bounds"))
        levels = nearest_level(np.concatenate([chunk.entropy for chunk in self.chunks]), rows.levels)
        codes, n_levels = rows.codes[there], rows.levels.size
        far = _by_class(levels, targets, tails, (n_levels, rows.sizes.size))
        sums = self.sums[:, there] + far[:, codes]
        bound = np.zeros(codes.size)
        if self.bound.size:
            far = _by_class(np.zeros_like(levels), targets, bounds, (1, rows.sizes.size))
            # What was taken off again may leave less than nothing.
            bound = np.maximum(self.bound[there] + far[0, codes], 0.0)
        return sums, bound, np.bincount(levels, minlength=n_levels)


def _by_class(cells: Any, targets: Codes, far: Floats, shape: tuple[int, int]) -> Floats:
    """Sum over points of what rows of each class have: other rows' share of all points, and more of their own."""
    out = np.zeros(shape)
    np.add.at(out, (cells, targets), far[:, 1] - far[:, 0])
    return out + np.bincount(cells, weights=far[:, 0], minlength=shape[0])[:, None]
