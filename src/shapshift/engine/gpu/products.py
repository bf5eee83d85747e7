"""Distances from inner products: bounds on their error, and rows whose order they leave undecided."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch

from shapshift.engine.gpu.values import COSINE, MANHATTAN, inverse_lengths

if TYPE_CHECKING:
    from shapshift.engine.gpu.core import Train

Tensor = Any  # torch is an optional dependency that mypy does not look at

# Number of features from which products pay.
PRODUCT_FEATURES = 16
# Numbers of features for which slices pay, and from which sums of their products could leave 32 bits.
SLICED_FEATURES, MOST_SLICED = 96, 2**15
# The number of features is filled up to a multiple of SLICE_STEP for products of slices. SLICED_TOGETHER is the largest
# number of features, over all vectors, that are cut into slices at a time.
SLICE_STEP, SLICED_TOGETHER = 64, 2**27
# Largest number of a first slice, and of the length of all first slices.
LARGEST_SLICE, LONGEST = 127.0, 2800.0
# Number of chains that are ordered at a time, and largest number of rows of a chain.
MOST_CHAINS, CHAIN = 2**15, 64


@dataclass(frozen=True)
class Slices:
    """Vectors as sums of four slices of 8 bits, whose products and sums have no error.

    A vector is ``scale`` times X, whole numbers of 32 bits, up to half a unit in every feature. X is the sum of
    2**(24 - 8 j) X_j for j from 0 to 3, where the slices X_j have numbers from -128 to 127. The product of two vectors,
    of scales s and t, is taken from the ten products of slices X_j and X_k with j + k of at most 3. In units of s t,
    what is left out is no more than this. Here h is the largest of the lengths of X_1, X_2 and X_3, H the length of
    X / 2**24, and d the number of features:

    =========================================  ==========================================
    products with j + k of 4, 5 and 6          (3 * 2**16 + 2 * 2**8 + 1) h h'
    half a unit of either vector               2**23 * 1.001 root(d) (H + H')
    the last sum, rounded to 2**32             2**31
    =========================================  ==========================================

    With a = root(3.01 * 2**16) h, b = 6 root(1.001 * 2**23 d) and c = root(1.001 * 2**23) H / 6, the first two are at
    most a a' + b c' + c b', and that is at most the product of the lengths of (a, b, c) and (a', c', b'). The third is
    less than 8 / d of b b'. ``weight`` is that length, with its share of the third, times the scale. The error of a
    squared difference is twice the product of two weights.

    Attributes
    ----------
    numbers : int8 tensor of shape (4 n, features)
        Slice after slice; features are filled up with zeros to a multiple of SLICE_STEP.
    scale, weight : tensor of shape (n,)
    """

    numbers: Tensor
    scale: Tensor
    weight: Tensor

    @classmethod
    def of(cls, vectors: Tensor) -> "Slices":
        """Cut vectors (n, d) into slices."""
        n, d = vectors.shape
        numbers = torch.zeros(4, n, -(-d // SLICE_STEP) * SLICE_STEP, dtype=torch.int8, device=vectors.device)
        scale, weight = torch.empty(2, n, dtype=torch.float64, device=vectors.device)
        together = max(1, SLICED_TOGETHER // d)
        for here in (slice(start, start + together) for start in range(0, n, together)):
            some = vectors[here]
            length = (some * some).sum(1).sqrt()
            unit = torch.maximum(some.abs().amax(1) / LARGEST_SLICE, length / LONGEST) * 2.0**-24
            # So small that nothing counts, and large enough for the product of two.
            unit.clamp_(min=2.0**-400)
            whole = (some / unit[:, None]).round_().to(torch.int32)
            squares = torch.zeros_like(length)
            for j in (3, 2, 1, 0):
                slice_ = ((whole + 128) & 255) - 128
                whole = (whole - slice_) >> 8
                numbers[j, here, :d] = slice_
                if j:
                    squares = torch.maximum(squares, (slice_ * slice_).sum(1).to(torch.float64))
            halves = 36.0 * d + (length / unit * 2.0**-24).square() / 36.0
            squares = 3.01 * 2.0**16 * squares + 1.001 * 2.0**23 * halves
            scale[here], weight[here] = unit, unit * (squares * (1.0001 + 8.0 / d)).sqrt()
        return cls(numbers.view(4 * n, -1), scale, weight)


@dataclass(frozen=True)
class Products:
    """Inner products of points and training rows, and how far they determine distances.

    With x and p a row and a point less the mean of the rows, S = |x|^2 + |p|^2 and u = 2**-53, a squared difference
    from their product and one from direct differences, D, are apart by no more than this, to first order:

    ========================================  ========================================================================
    x and p are rounded                       4 u S: both are off by u of their length, |x - p| is at most |x| + |p|
    each squared norm, d products and sums    d u S for both
    their sum                                 u S
    the inner product, in any order           d u S: twice d u times at most S / 2
    what is left                              2 u S: one rounding of a number that is at most 2 S
    direct differences                        (d + 3) u D, which is at most (2 d + 6) u S
    ========================================  ========================================================================

    That is (4 d + 13) u S. It takes products in float64 as IEEE 754 has it, fused or not; emulation of float64 that a
    user may switch on in a library is not covered. What one of these operations loses below the smallest normal number,
    2**-1075 at most, is covered by taking S for ``least`` larger than it is: ``slack`` times 2**-1021 is 4 d + 32 times
    2**-1074.

    A cosine distance is half the squared difference of unit vectors. Each of these is off by 5.5 u at most: u / 2 by
    the rounding of its squared length, 2 u by the root (u on a GPU), u by the inverse, u by the product, u to spare.
    Both together move half the squared difference by 11 u |x - p| + (11 u)^2 / 2, where |x - p| is at most the root of
    2 S. That is no more than 2**-49 times the root of S + 2**-94. The distance itself, a sum of two floats until it is
    rounded, is off by few u D. A row of zeros has distance 1 from all others: as if it had a feature of its own, of
    size 1, that nothing else has; 4 (d + 1) + 13 is still less than 4 d + 32. Where the errors of a row and of a point
    are added up (`bounds`), the sum of two roots stands for the root of a sum, which it exceeds by less than half; so
    ``spread`` is half as much again.

    Attributes
    ----------
    metric : int
    mean : tensor of shape (d,)
    columns : tensor of shape (d, N)
        Training rows less their mean, which makes products as accurate as they can be.
    norms : tensor of shape (N,)
        Squared norms of the columns.
    sample, sample_norms : tensor of shape (d, s) and (s,), or None
        The sample's columns and squared norms, likewise.
    unit : float
        Factor from a squared difference to a distance: one half for cosine distances.
    slack, spread, least : float
        Error of a squared difference from a product, as a share of the sum of two squared norms; error of a distance,
        as a share of its root; and what is added to that sum first.
    """

    metric: int
    mean: Tensor
    columns: Tensor
    norms: Tensor
    sample: Tensor
    sample_norms: Tensor
    unit: float
    slack: float
    spread: float
    least: float

    @classmethod
    def of(cls, train: "Train") -> "Products | None":
        """Prepare the training rows; None if products do not pay, and for Manhattan distances, which have none."""
        d = train.columns.shape[0]
        if train.metric == MANHATTAN or d < PRODUCT_FEATURES:
            return None
        vectors, own = _vectors(train.columns.T, train.metric)
        mean = vectors.mean(0)

        def centred(vectors: Tensor, own: Any) -> tuple[Tensor, Tensor]:
            columns = (vectors - mean).T
            norms = torch.zeros_like(columns[0])
            for column in columns:
                norms.addcmul_(column, column)
            return columns, norms + own

        placed = *centred(vectors, own), None, None
        if train.sample is not None:
            placed = *placed[:2], *centred(*_vectors(train.sample.T, train.metric))
        unit, spread, least = (0.5, 1.5 * 2.0**-49, 2.0**-94) if train.metric == COSINE else (1.0, 0.0, 2.0**-1021)
        return cls(train.metric, mean, *placed, unit, 2.0**-53 * (4 * d + 32), spread, least)

    @cached_property
    def slices(self) -> Slices | None:
        """Slices of the training rows; None if they do not pay."""
        d = self.columns.shape[0]
        return Slices.of(self.columns.T) if SLICED_FEATURES <= d <= MOST_SLICED else None

    def points(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Return points minus the mean of the training rows, and their squared norms."""
        vectors, own = _vectors(points, self.metric)
        vectors = vectors - self.mean
        return vectors, (vectors * vectors).sum(1) + own

    def distances(self, products: Tensor, row_norms: Tensor, norms: Tensor) -> Tensor:
        """Distances (p, k) from products of points, of squared norms (p,), with rows, of squared norms (k,)."""
        return ((row_norms + norms[:, None] - 2.0 * products) * self.unit).clamp_(min=0.0)

    def bounds(self, norms: Tensor) -> tuple[Tensor, Tensor]:
        """Return what rows or points, by their squared norms, add to the largest and to the least possible distance.

        The rest of such a bound is -2 times ``unit`` times the product, in float64. Half of ``least`` each is as much
        as `error` and `open_gap` have for both.
        """
        least = self.least / 2.0
        error = self.slack * self.unit * (norms + least) + self.spread / 1.5 * (norms + least).sqrt()
        return self.unit * norms + error, self.unit * norms - error

    @cached_property
    def row_bounds(self) -> tuple[Tensor, Tensor]:
        """Bounds of the training rows."""
        return self.bounds(self.norms)

    @property
    def gap_factors(self) -> tuple[float, float, float]:
        """Factors of a point's squared norm, of a distance and of a root in the open gap, a little larger.

        Two decimals of these are enough, so float32 is.
        """
        share = 2.03 * self.slack * self.unit
        return 3.0 * share, 2.0 / self.unit * share, 2.03 * self.spread

    def error(self, norms: Tensor) -> Tensor:
        """Largest difference between a distance from a product and the direct one, for sums of two squared norms."""
        both = norms + self.least
        return self.slack * self.unit * both + self.spread * both.sqrt()

    def open_gap(self, norms: Tensor, distances: Tensor, weights: Any = 0.0) -> Tensor:
        """Largest difference of two distances with undecided order, as in kernels.cu.

        ``norms`` are those of the points, ``distances`` the larger ones of two, and ``weights`` the products of a
        point's weight and the largest weight of its rows if the products are those of slices. A row at a distance has a
        squared norm of no more than twice the point's and twice the squared difference; the hundredth more is for what
        these are off. A distance less its error grows with the distance, so rows on different sides of a gap that is
        not open are in order, whatever lies between.
        """
        return 2.02 * (self.error(3.0 * norms + 2.0 / self.unit * distances) + self.unit * 2.0 * weights)


def settle(
    open_gap: Callable[[Tensor, Tensor], Tensor], measure: Callable[[Tensor, Tensor], Tensor], elements: Tensor,
    distances: Tensor, p: Tensor, rank: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Order rows by direct distances where products leave the order undecided.

    Only neighbours with different labels matter. A chain of rows, each undecided with the next one, is ordered as a
    whole; rows of different chains are already in order.

    Parameters
    ----------
    open_gap : callable
        Largest difference of two distances (q, k) of points, by number (q,), with undecided order.
    measure : callable
        Direct distances of points to rows, both by number (q,).
    elements, distances : tensor of shape (p, k)
        2 * row + match, and distances, from near to far, infinite behind the last; both are changed where that is
        called for.
    p, rank : int64 tensor
        Points and ranks of neighbours with undecided order, the second of two.

    Returns
    -------
    too_long, tied : bool tensor of shape (p,)
        Points with chains that are too long, or with equal distances of rows with different labels.
    """
    n, half, device = elements.shape[1], CHAIN // 2, elements.device
    too_long, tied = torch.zeros(2, elements.shape[0], dtype=torch.bool, device=device)
    starts, sizes = [p[:0]], [p[:0]]
    for some, at in zip(p.split(MOST_CHAINS), rank.split(MOST_CHAINS), strict=True):
        ranks = at[:, None] + torch.arange(-half, half, device=device)
        inside = (ranks >= 0) & (ranks < n)
        here = distances[some[:, None], ranks.clamp(0, n - 1)]
        gap = open_gap(some, here[:, 1:])
        linked = (here[:, 1:] - here[:, :-1] <= gap) & inside[:, 1:] & inside[:, :-1] & here[:, 1:].isfinite()
        # The neighbours are at half - 1 and half.
        left = linked[:, : half - 1].flip(1).cumprod(1).sum(1)
        right = linked[:, half:].cumprod(1).sum(1)
        too_long[some[(left == half - 1) | (right == half - 1)]] = True
        starts.append(some << 32 | at - 1 - left)
        sizes.append(left + right + 2)
    start, which = torch.unique(torch.cat(starts), return_inverse=True)
    size = torch.zeros_like(start).scatter_(0, which, torch.cat(sizes))
    for some, length in zip(start.split(MOST_CHAINS), size.split(MOST_CHAINS), strict=True):
        p, first = some >> 32, some & 0xFFFFFFFF
        listed = torch.arange(CHAIN, device=device) < length[:, None]
        ranks = first[:, None] + torch.arange(CHAIN, device=device)
        of = p[:, None].expand_as(ranks)
        chain = elements[of, ranks.clamp(max=n - 1)]
        chain = torch.where(listed, chain, 0x7FFFFFFF).sort(1).values  # by number
        at = torch.full_like(ranks, torch.inf, dtype=torch.float64)
        at[listed] = measure(p[:, None].expand_as(ranks)[listed], chain[listed] >> 1)
        at, by_distance = torch.sort(at, dim=1, stable=True)
        chain = chain.gather(1, by_distance)
        equal = (at[:, 1:] == at[:, :-1]) & listed[:, 1:] & (((chain[:, 1:] ^ chain[:, :-1]) & 1) != 0)
        tied[p[equal.any(1)]] = True
        elements[of[listed], ranks[listed]] = chain[listed]
        distances[of[listed], ranks[listed]] = at[listed]
    return too_long, tied


def _vectors(rows: Tensor, metric: int) -> tuple[Tensor, Any]:
    """Rows (n, d) whose squared distances, or half of them, are the metric's, and squares of what each has alone."""
    if metric != COSINE:
        return rows, 0.0
    inverse = inverse_lengths(rows)[0]
    return rows * inverse[:, None], (inverse == 0).to(rows.dtype)
