"""Values from ordered distances in plain torch, on any device; arrays in, arrays out.

Without kernels this does the whole work; on a GPU, it handles what the kernels leave over: ties and the nearest rows.
"""

from typing import Any

import torch

Tensor = Any  # torch is an optional dependency that mypy does not look at

EUCLIDEAN, MANHATTAN, COSINE = 0, 1, 2
# As in shapshift.kernels.distance, which needs packages besides torch.
START, NEARLY_PARALLEL = 3.0, 2.0**-24
# Rows longer than the square of this are scanned in pieces of this length.
PIECE = 512


def distances(columns: Tensor, points: Tensor, metric: int) -> Tensor:
    """Distances of points (p, d) to training rows, given as columns (d, N), by direct differences in column order."""
    if metric == COSINE:
        return cosine_distances(columns, points)
    total = torch.zeros(points.shape[0], columns.shape[1], dtype=torch.float64, device=columns.device)
    for j, column in enumerate(columns):
        difference = column[None, :] - points[:, j, None]
        if metric == MANHATTAN:
            total += difference.abs_()
        else:
            total.addcmul_(difference, difference)
    return total


def short_rows(features: Tensor) -> Tensor:
    """Rows (n, d) times powers of two, so that their lengths are from 1/2 to 1; a zero row stays zero."""
    largest = features.abs().amax(dim=1)
    near_one = scaled(features, -torch.frexp(largest)[1][:, None])
    squares = torch.zeros_like(largest)
    for column in near_one.unbind(1):
        squares += column * column
    return scaled(near_one, -((torch.frexp(squares)[1] + 1) // 2)[:, None])


def scaled(features: Tensor, exponents: Tensor) -> Tensor:
    """Multiply by powers of two; in two steps, because a float cannot hold all of them."""
    half = exponents // 2
    ones = torch.ones_like(exponents, dtype=torch.float64)
    return features * torch.ldexp(ones, half) * torch.ldexp(ones, exponents - half)


def cosine_distances(columns: Tensor, points: Tensor) -> Tensor:
    """Cosine distances of points (p, d) to training rows (d, N), none of them longer than 1.

    As in :mod:`shapshift.kernels.distance`: sums of two floats, rounded once at the end.
    """
    total = torch.full((points.shape[0], columns.shape[1]), START, dtype=torch.float64, device=columns.device)
    rest = torch.zeros_like(total)
    for j, column in enumerate(columns):
        total, rest = _add_product(column[None, :], points[:, j, None], total, rest)
    own, own_low = (part[:, None] for part in inverse_lengths(points))
    other, other_low = (part[None, :] for part in inverse_lengths(columns.T))
    scale, scale_low = _multiply(own, own_low, other, other_low)
    inner = total - START
    product, product_low = _product(inner, scale)
    product_low = product_low + (inner * scale_low + rest * scale)
    rounded = 1.0 - product
    found = rounded + (((1.0 - rounded) - product) - product_low)
    near = torch.nonzero(found < NEARLY_PARALLEL)
    for some in near.split(max(1, 2**22 // columns.shape[0])) if near.numel() else ():
        p, i = some.unbind(1)
        found[p, i] = _of_nearly_parallel(
            points[p], columns[:, i].T, own[p, 0], own_low[p, 0], other[0, i], other_low[0, i], found[p, i]
        )
    return found


def inverse_lengths(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Inverse lengths of rows (n, d) no longer than 1, as sums of two floats; 0 for a row of zeros."""
    total = torch.full((rows.shape[0],), START, dtype=torch.float64, device=rows.device)
    rest = torch.zeros_like(total)
    for column in rows.unbind(1):
        total, rest = _add_product(column, column, total, rest)
    squared = (total - START) + rest
    low = rest - (squared - (total - START))
    root = 1.0 / torch.where(squared == 0, 1.0, squared).sqrt()
    square, square_low = _product(root, root)
    one, one_low = _product(squared, square)
    missing = ((1.0 - one) - one_low) - (squared * square_low + low * square)
    return torch.where(squared == 0, 0.0, root), torch.where(squared == 0, 0.0, root * missing / 2)


def _of_nearly_parallel(
    x: Tensor, row: Tensor, inverse: Tensor, inverse_low: Tensor, other: Tensor, other_low: Tensor, distance: Tensor
) -> Tensor:
    """1 - cos of pairs (k, d), (k, d), where 1 minus the cosine has lost its digits."""
    largest = x.abs().argmax(1, keepdim=True)
    x_largest, row_largest = x.gather(1, largest), row.gather(1, largest)
    one, one_low = _product(x_largest, row)
    two, two_low = _product(row_largest, x)
    high, middle = _sum(one, -two)
    small, smallest = _sum(one_low, -two_low)
    high, low = _sum(high, small)
    w, w_low = _sum(high, low + (middle + smallest))
    squares, squares_low = _sums(*_multiply(w, w_low, w, w_low))
    along, along_low = _sums(*_multiply(w, w_low, x, torch.zeros_like(x)))
    high, low = _multiply(along, along_low, inverse, inverse_low)
    high, low = _multiply(high, low, high, low)
    high, lost = _sum(squares, -high)
    across, across_low = _sum(high, lost + (squares_low - low))
    top, top_low = _multiply(across, across_low, *_multiply(other, other_low, other, other_low))
    x_largest = x_largest[:, 0]
    two_less, lost = 2.0 - distance, (2.0 - (2.0 - distance)) - distance
    bottom, bottom_low = _multiply(*_product(x_largest, x_largest), two_less, lost)
    found = top / bottom
    done, done_low = _product(found, bottom)
    found = found + (((top - done) - done_low) + (top_low - found * bottom_low)) / bottom
    return torch.where(squares == 0, 0.0, found)


def _add_product(a: Tensor, b: Tensor, total: Tensor, rest: Tensor) -> tuple[Tensor, Tensor]:
    product, low = _product(a, b)
    larger = total + product
    return larger, rest + ((product - (larger - total)) + low)


def _product(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Product as a sum of two floats, without error: torch has no fused multiply-add, so factors are cut in halves."""
    product = a * b
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return product, ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low


def _halves(a: Tensor) -> tuple[Tensor, Tensor]:
    wide = a * 134217729.0
    high = wide - (wide - a)
    return high, a - high


def _sum(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Sum of two floats as a rounded sum and what it lacks, without error."""
    total = a + b
    added = total - a
    return total, (a - (total - added)) + (b - added)


def _multiply(a: Tensor, a_low: Tensor, b: Tensor, b_low: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply two sums of two floats."""
    product, low = _product(a, b)
    return product, low + (a * b_low + a_low * b)


def _sums(terms: Tensor, terms_low: Tensor) -> tuple[Tensor, Tensor]:
    """Add up terms (k, d) that are sums of two floats, over d."""
    total, rest = torch.zeros_like(terms[:, 0]), terms_low.sum(1)
    for term in terms.unbind(1):
        total, lost = _sum(total, term)
        rest = rest + lost
    return total, rest


def ordered_values(ordered: Tensor, match: Tensor, c: Tensor, tail: Tensor, passed: Tensor, average: bool) -> Tensor:
    """Values of rows in order of distance.

    Parameters
    ----------
    ordered : tensor of shape (points, k)
        Ascending distances of the k nearest rows; infinite if there are fewer.
    match : tensor of shape (points, k)
        Whether each row carries the point's label.
    c : tensor of shape (N,)
        Rank table.
    tail : tensor of shape (N + 1,)
        Sums of ``c[r:]``.
    passed : tensor of shape (points,)
        Sum that all farther rows add to every value.
    average : bool
        Average over the orders of rows at equal distance.

    Returns
    -------
    tensor of shape (points, k)
    """
    k = ordered.shape[1]
    here = c[:k]
    step = torch.cat([torch.zeros_like(here[:1]), here[1:] - here[:-1]])
    match = match.to(torch.float64)
    equal = (ordered[:, 1:] == ordered[:, :-1]) & torch.isfinite(ordered[:, 1:])
    if not average or not bool(equal.any()):
        term = match * step
        return match * here + (_tail_sums(term) - term) + passed[:, None]
    lo, hi = _group_ends(equal)
    size = (hi - lo).to(torch.float64)
    before = torch.nn.functional.pad(_scan(match, torch.cumsum, torch.add), (1, 0))
    matches = before.gather(1, hi) - before.gather(1, lo)
    # Over all orders, every rank of a group matches with the same probability.
    term = matches / size * step
    farther = torch.nn.functional.pad(_tail_sums(term), (0, 1)).gather(1, hi) + passed[:, None]
    last = c[hi - 1]
    below = (tail[lo] - tail[hi]) / size - last
    others = (matches - match) / (size - 1).clamp(min=1)
    # For a group of one label this is the plain recursion, written so that it has no extra rounding.
    pure = (matches == 0) | (matches == size)
    return torch.where(pure, match * last, match * (last + below) - others * below) + farther


def _tail_sums(terms: Tensor) -> Tensor:
    return _scan(terms.flip(1), torch.cumsum, torch.add).flip(1)


def _scan(rows: Tensor, scan: Any, join: Any) -> Tensor:
    """Scan rows (p, k) of numbers from 0; long ones in pieces, because a GPU scans each row with one block."""
    p, k = rows.shape
    if k <= PIECE**2:
        return scan(rows, 1)
    pieces = torch.nn.functional.pad(rows, (0, -k % PIECE)).view(p, -1, PIECE)
    found = scan(pieces, 2)
    found[:, 1:] = join(found[:, 1:], scan(found[:, :-1, -1], 1)[:, :, None])
    return found.view(p, -1)[:, :k]


def _group_ends(equal: Tensor) -> tuple[Tensor, Tensor]:
    """First rank of each rank's tie group, and the rank after its last; ``equal`` compares neighbours."""
    n_points, k = equal.shape[0], equal.shape[1] + 1
    rank = torch.arange(k, device=equal.device).expand(n_points, k)
    edge = torch.ones(n_points, 1, dtype=torch.bool, device=equal.device)
    begins = torch.cat([edge, ~equal], dim=1)
    ends = torch.cat([~equal, edge], dim=1)
    lo = _scan(torch.where(begins, rank, 0), _largest_so_far, torch.maximum)
    hi = k - _scan(torch.where(ends, k - 1 - rank, 0).flip(1), _largest_so_far, torch.maximum).flip(1)
    return lo, hi


def _largest_so_far(rows: Tensor, dim: int) -> Tensor:
    return rows.cummax(dim).values


def label_entropy(
    ordered: Tensor, codes: Tensor, n_classes: int, depth: int, average: bool, whole: bool
) -> tuple[Tensor, Tensor]:
    """Entropy of the labels of the ``depth`` nearest rows, tied rows counted in fractions.

    Parameters
    ----------
    ordered : tensor of shape (points, k)
        Ascending distances of the k nearest rows, k at least ``depth``.
    codes : tensor of shape (points, k)
        Their classes.
    n_classes, depth : int
    average : bool
    whole : bool
        Whether these are all rows.

    Returns
    -------
    entropy : tensor of shape (points,)
    cut : tensor of shape (points,)
        Whether rows beyond the k nearest may be tied with those that are used.
    """
    n_points, k = ordered.shape
    rank = torch.arange(k, device=ordered.device)
    share = (rank < depth).to(torch.float64).expand(n_points, k)
    cut = torch.zeros(n_points, dtype=torch.bool, device=ordered.device)
    if average:
        lo, hi = _group_ends(ordered[:, 1:] == ordered[:, :-1])
        share = (hi.clamp(max=depth) - lo).clamp(min=0) / (hi - lo).to(torch.float64)
        cut = (lo[:, -1] < depth) & (not whole)
    entropy = torch.empty(n_points, dtype=torch.float64, device=ordered.device)
    for some in torch.arange(n_points, device=ordered.device).split(max(1, 2**24 // n_classes)):
        counts = torch.zeros(some.numel(), n_classes, dtype=torch.float64, device=ordered.device)
        counts.scatter_add_(1, codes[some].to(torch.int64), share[some])
        # Only the largest can be above zero. Ascending order makes the sum independent of class numbers.
        counts = counts.topk(min(n_classes, k), dim=1).values.flip(1) / depth
        terms = torch.where(counts > 0, -counts * counts.clamp(min=1e-300).log(), 0.0)
        several = (counts > 0).sum(1) > 1
        entropy[some] = torch.where(several, terms.cumsum(1)[:, -1], 0.0)
    return entropy, cut


def mean_ranks(distances: Tensor, asked: Tensor) -> Tensor:
    """Zero-based ranks, averaged over ties, of distances ``asked`` (points, r) among all distances of a point."""
    ranks = [
        (distances < one[:, None]).sum(1) + ((distances == one[:, None]).sum(1) - 1) / 2.0 for one in asked.unbind(1)
    ]
    return torch.stack(ranks, dim=1).to(torch.float64)
