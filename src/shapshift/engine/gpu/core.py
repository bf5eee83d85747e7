"""Valuation on a device: tiles of validation points, the kernels, and the points that kernels leave over.

This module imports only torch (and Triton, if there is a GPU), and passes only tensors, so that it can be measured on a
machine without other packages. The same functions run on a CPU in plain torch.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from shapshift.engine.gpu.values import COSINE, distances, label_entropy, mean_ranks, ordered_values

Tensor = Any  # torch is an optional dependency that mypy does not look at

# Number of nearest rows that are ordered for the entropy of their labels; ties rarely reach beyond them.
LOOK = 64
# Pairs in a tile: enough to keep a large GPU busy for milliseconds.
TILE_PAIRS = 2**30
MOST_POINTS = 16384
# Points in a tile are a multiple of this, because programs process several at a time.
STEP = 32
# Number of pairs that torch sorts at a time for points left over by the kernels; torch needs about ten times their
# memory.
SORTED_PAIRS = 2**25
# Number of pairs up to which the many small steps of the kernels take longer than a sort.
FEW_PAIRS = 2**23
# Number of pieces of the maps from distances to buckets, as powers of two.
FINE_BITS, COARSE_BITS = 9, 7
LEAST_SAMPLED, MOST_SAMPLED = 1024, 8192
# A point whose bounds exceed the expected ones by this factor is valued exactly.
GREEDY = 16.0


@dataclass(frozen=True)
class Train:
    """Training rows on the device.

    Attributes
    ----------
    columns : tensor of shape (d, N) or None
        None for given distances.
    codes : int32 tensor of shape (N,)
    metric : int
    sample : tensor of shape (d, s) or None
        Columns of a sample of rows whose number is a power of two; None without kernels.
    """

    columns: Tensor
    codes: Tensor
    metric: int
    sample: Tensor

    @property
    def n(self) -> int:
        """Number of training rows."""
        return int(self.codes.shape[0])

    @cached_property
    def features(self) -> Tensor:
        """Training rows (N, d), row by row."""
        return self.columns.T.contiguous()

    @cached_property
    def products(self) -> Any:
        """Inner products of the rows; None if products do not pay."""
        from shapshift.engine.gpu.products import Products

        return Products.of(self)


@dataclass(frozen=True)
class Rules:
    """Inputs common to all points.

    Attributes
    ----------
    c : tensor of shape (N,)
        Rank table.
    tail : tensor of shape (N + 1,)
        Sums of ``c[r:]``.
    edges : tensor
        Entropies half-way between two levels.
    n_classes, depth, n_nearest, n_groups : int
    average : bool
        Average over ties, or break them by row number.
    """

    c: Tensor
    tail: Tensor
    edges: Tensor
    n_classes: int
    depth: int
    n_nearest: int
    n_groups: int
    average: bool

    @property
    def n_levels(self) -> int:
        """Number of entropy levels."""
        return int(self.edges.shape[0]) + 1


@dataclass(frozen=True)
class Coarse:
    """Number of buckets and exactly ordered rows of certified values.

    Attributes
    ----------
    buckets : int
    first : int
        Approximate number of nearest rows that are ordered exactly.
    mean_bound : float
        Expected bound of a row on one point.
    convex_from : int
        Rank from which the drops of the rank table no longer grow.
    """

    buckets: int
    first: int
    mean_bound: float
    convex_from: int


@dataclass(frozen=True)
class Batch:
    """Validation points.

    Attributes
    ----------
    points : tensor of shape (m, d)
        Or given distances, (m, N).
    targets : int32 tensor of shape (m,)
    bases : tensor of shape (m,)
        Starting value of the farthest row.
    groups : int64 tensor of shape (m,)
    excluded : int64 tensor of shape (m,) or None
        A training row to rank behind all others; -1 for none.
    reference : int64 tensor of shape (m, r)
        Training rows whose ranks are requested.
    """

    points: Tensor
    targets: Tensor
    bases: Tensor
    groups: Tensor
    excluded: Tensor
    reference: Tensor

    def __getitem__(self, here: Any) -> "Batch":
        excluded = None if self.excluded is None else self.excluded[here]
        return Batch(
            self.points[here], self.targets[here], self.bases[here], self.groups[here], excluded, self.reference[here]
        )

    def __len__(self) -> int:
        return int(self.targets.shape[0])


@dataclass(frozen=True)
class Keep:
    """Receiver of values on single points.

    Attributes
    ----------
    rows : int64 tensor of shape (k,) or None
        Training rows whose values are kept; None for all rows, which makes the values exact.
    put : callable
        Called with numbers of points and their values, (points, k).
    """

    rows: Tensor
    put: Callable[[Tensor, Tensor], None]

    def choose(self, values: Tensor) -> Tensor:
        """Values (points, N) of the rows to keep."""
        return values if self.rows is None else values.index_select(1, self.rows)


@dataclass(frozen=True)
class Result:
    """Sums over points, and results of each point.

    Attributes
    ----------
    sums : tensor of shape (levels + groups, N)
    squares : tensor of shape (groups, N)
        Sums of squared values; without groups, one sum over all points.
    bounds : tensor of shape (N,)
        Sums of the error bounds of values.
    entropy : tensor of shape (m,)
    level : int64 tensor of shape (m,)
    nearest : int64 tensor of shape (m, n_nearest)
    ranks : tensor of shape (m, r)
    inexact : bool tensor of shape (m,)
        Points whose values have bounds.
    sorted : bool tensor of shape (m,)
        Points whose distances were sorted by torch.
    """

    sums: Tensor
    squares: Tensor
    bounds: Tensor
    entropy: Tensor
    level: Tensor
    nearest: Tensor
    ranks: Tensor
    inexact: Tensor
    sorted: Tensor

    def put(self, here: Tensor, entropy: Tensor, nearest: Tensor, rules: Rules) -> Tensor:
        """Store the results of points ``here``, the first of those given; return their levels."""
        entropy, nearest = entropy[: here.numel()], nearest[: here.numel(), : rules.n_nearest]
        level = torch.searchsorted(rules.edges, entropy)
        self.entropy[here], self.level[here], self.nearest[here] = entropy, level, nearest
        return level


def value_points(
    train: Train,
    rules: Rules,
    batch: Batch,
    *,
    coarse: Coarse | None = None,
    keep: Keep | None = None,
    memory: int | None = None,
    kernels: bool = True,
    advance: Callable[[int], None] = lambda points: None,
    result: Result | None = None,
    todo: Tensor = None,
) -> Result:
    """Value training rows on a batch of points, exactly or with bounds.

    Parameters
    ----------
    train, rules, batch
    coarse : Coarse or None
        None for exact values.
    keep : Keep or None
        Receiver of values on single points.
    memory : int or None
        Memory for tiles in bytes; None for the free memory of the device.
    kernels : bool
        Use Triton kernels; only on a GPU.
    advance : callable
        Called with the number of finished points.
    result : Result or None
        Sums to add to.
    todo : int64 tensor or None
        Numbers of the points; None for all.
    """
    if result is None:
        result = new_result(train, rules, batch)
    if todo is None:
        todo = torch.arange(len(batch), device=train.codes.device)
    kernels = kernels and train.columns is not None and batch.excluded is None
    if not kernels:
        sort_tiles(train, rules, batch, todo, result, keep, memory, advance)
        return result
    from shapshift.engine.gpu import tiles

    if batch.reference.numel():
        tiles.rank_references(train, batch, todo, result, memory)
    if coarse is None or (keep is not None and keep.rows is None):
        tiles.exact_points(train, rules, batch, todo, result, keep, memory, advance)
    else:
        left = tiles.certified_points(train, rules, batch, todo, coarse, result, keep, memory, advance)
        if left.numel() * train.n <= FEW_PAIRS:
            tiles.few_points(train, rules, batch, left, result, keep)
        else:
            tiles.exact_points(train, rules, batch, left, result, keep, memory, lambda points: None)
    return result


def new_result(train: Train, rules: Rules, batch: Batch) -> Result:
    """Allocate sums of no points."""
    device, m = train.codes.device, len(batch)
    return Result(
        sums=torch.zeros(rules.n_levels + rules.n_groups, train.n, dtype=torch.float64, device=device),
        squares=torch.zeros(max(rules.n_groups, 1), train.n, dtype=torch.float64, device=device),
        bounds=torch.zeros(train.n, dtype=torch.float64, device=device),
        entropy=torch.empty(m, dtype=torch.float64, device=device),
        level=torch.empty(m, dtype=torch.int64, device=device),
        nearest=torch.empty(m, rules.n_nearest, dtype=torch.int64, device=device),
        ranks=torch.empty(batch.reference.shape, dtype=torch.float64, device=device),
        inexact=torch.zeros(m, dtype=torch.bool, device=device),
        sorted=torch.zeros(m, dtype=torch.bool, device=device),
    )


def sort_tiles(
    train: Train, rules: Rules, batch: Batch, todo: Tensor, result: Result, keep: Keep | None, memory: int | None,
    advance: Callable[[int], None],
) -> None:  # fmt: skip
    """Value points in tiles by :func:`sort_points`."""
    arrays = 20 if train.metric == COSINE else 12
    for here in todo.split(tile_points(train, memory, arrays * 8 * train.n, 1)) if todo.numel() else ():
        sort_points(train, rules, batch, here, result, keep)
        advance(here.numel())


def tile_points(train: Train, memory: int | None, point_bytes: int, step: int, pairs: int = TILE_PAIRS) -> int:
    """Return the number of points of a tile."""
    if memory is None:
        memory = _free(train.codes.device) // 2 if train.codes.is_cuda else 2**30
    most = min(MOST_POINTS, pairs // train.n, memory // point_bytes)
    return max(int(most) // step, 1) * step


def sample_size(n_rows: int, most: int) -> int:
    """Return the number of rows to make maps from: one in 16, at most ``most``, and a power of two."""
    return 1 << (min(most, MOST_SAMPLED, max(n_rows // 16, LEAST_SAMPLED)).bit_length() - 1)


def room_for(first: int, n_rows: int, sampled: int) -> int:
    """Places for near rows: the number estimated from a sample plus four standard deviations; a power of two."""
    expected = max(1.0, first * sampled / n_rows)
    return max(1024, 1 << (int(first * (1 + 4 / expected**0.5)) - 1).bit_length())


def _free(device: Any) -> int:
    """Free bytes of a GPU, including memory that torch holds but does not use."""
    kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return int(torch.cuda.mem_get_info(device)[0] + kept)


def sort_points(
    train: Train,
    rules: Rules,
    batch: Batch,
    here: Tensor,
    result: Result,
    keep: Keep | None,
    known: Tensor = None,
) -> None:
    """Value points by sorting their distances (``known`` if already computed): any data, in plain torch."""
    some = batch[here]
    if known is None:
        known = some.points if train.columns is None else distances(train.columns, some.points, train.metric)
    if some.excluded is not None:
        without = torch.nonzero(some.excluded >= 0).squeeze(1)
        known[without, some.excluded[without]] = torch.finfo(torch.float64).max
    if some.reference.numel():
        result.ranks[here] = mean_ranks(known, known.gather(1, some.reference))
    ordered, order = torch.sort(known, dim=1, stable=True)
    codes = train.codes[order]
    look = min(train.n, max(LOOK, rules.depth, rules.n_nearest))
    entropy, cut = label_entropy(
        ordered[:, :look], codes[:, :look], rules.n_classes, rules.depth, rules.average, look == train.n
    )
    for p in torch.nonzero(cut).squeeze(1).tolist():
        everything = ordered[p : p + 1], codes[p : p + 1]
        entropy[p : p + 1] = label_entropy(*everything, rules.n_classes, rules.depth, rules.average, True)[0]
    level = result.put(here, entropy, order, rules)
    result.sorted[here] = True
    by_rank = ordered_values(ordered, codes == some.targets[:, None], rules.c, rules.tail, some.bases, rules.average)
    values = torch.empty_like(by_rank).scatter_(1, order, by_rank)
    if keep is not None:
        keep.put(here, keep.choose(values))
    for p, (cell, group) in enumerate(zip(level.tolist(), some.groups.tolist(), strict=True)):
        result.sums[cell] += values[p]
        result.squares[group if rules.n_groups else 0].addcmul_(values[p], values[p])
        if rules.n_groups:
            result.sums[rules.n_levels + group] += values[p]
