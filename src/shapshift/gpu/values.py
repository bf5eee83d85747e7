"""Values from ordered distances in plain torch, on any device; arrays in, arrays out.

The whole work where there are no kernels, and on a card what the kernels leave over: ties, and the nearest rows.
"""

from typing import Any

import torch

Tensor = Any  # torch is an optional dependency that mypy does not look at

EUCLIDEAN, MANHATTAN, COSINE = 0, 1, 2


def distances(columns: Tensor, points: Tensor, metric: int) -> Tensor:
    """Distances of points (p, d) to training rows, given as columns (d, N), by direct differences in column order."""
    total = torch.zeros(points.shape[0], columns.shape[1], dtype=torch.float64, device=columns.device)
    product = torch.zeros_like(total) if metric == COSINE else None
    for j, column in enumerate(columns):
        difference = column[None, :] - points[:, j, None]
        if metric == MANHATTAN:
            total += difference.abs_()
        else:
            total.addcmul_(difference, difference)
        if product is not None:
            product.addcmul_(column[None, :], points[:, j, None])
    return total if product is None else torch.where(product > 0.5, total / 2, 1.0 - product)


def tie_values(ordered: Tensor, match: Tensor, c: Tensor, tail: Tensor, passed: Tensor, average: bool) -> Tensor:
    """Values of rows in order of distance.

    Parameters
    ----------
    ordered : tensor of shape (points, k)
        Ascending distances of the k nearest rows; infinite where there are fewer.
    match : tensor of shape (points, k)
        Whether each row carries the point's label.
    c : tensor of shape (N,)
        Rank table.
    tail : tensor of shape (N + 1,)
        Sums of ``c[r:]``.
    passed : tensor of shape (points,)
        What all farther rows add to every value.
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
    before = torch.nn.functional.pad(match.cumsum(1), (1, 0))
    matches = before.gather(1, hi) - before.gather(1, lo)
    # Over all orders, every rank of a group matches with the same probability.
    term = matches / size * step
    farther = torch.nn.functional.pad(_tail_sums(term), (0, 1)).gather(1, hi) + passed[:, None]
    last = c[hi - 1]
    below = (tail[lo] - tail[hi]) / size - last
    others = (matches - match) / (size - 1).clamp(min=1)
    # A group of one label is the plain recursion; so written, it has no rounding of its own.
    pure = (matches == 0) | (matches == size)
    return torch.where(pure, match * last, match * (last + below) - others * below) + farther


def _tail_sums(terms: Tensor) -> Tensor:
    return terms.flip(1).cumsum(1).flip(1)


def _group_ends(equal: Tensor) -> tuple[Tensor, Tensor]:
    """First rank of each rank's tie group, and the rank behind its last; ``equal`` compares neighbours."""
    n_points, k = equal.shape[0], equal.shape[1] + 1
    rank = torch.arange(k, device=equal.device).expand(n_points, k)
    edge = torch.ones(n_points, 1, dtype=torch.bool, device=equal.device)
    begins = torch.cat([edge, ~equal], dim=1)
    ends = torch.cat([~equal, edge], dim=1)
    lo = torch.where(begins, rank, 0).cummax(1).values
    hi = torch.where(ends, rank + 1, k).flip(1).cummin(1).values.flip(1)
    return lo, hi


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
        There are no more rows than these.

    Returns
    -------
    entropy : tensor of shape (points,)
    cut : tensor of shape (points,)
        Whether rows beyond the k nearest may be tied with those that count.
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
        # Only the largest can be above zero; in ascending order, whatever the classes are called.
        counts = counts.topk(min(n_classes, k), dim=1).values.flip(1) / depth
        terms = torch.where(counts > 0, -counts * counts.clamp(min=1e-300).log(), 0.0)
        several = (counts > 0).sum(1) > 1
        entropy[some] = torch.where(several, terms.cumsum(1)[:, -1], 0.0)
    return entropy, cut


def mean_ranks(distances: Tensor, asked: Tensor) -> Tensor:
    """Zero-based ranks, averaged over ties, that distances ``asked`` (points, r) have among all of a point's."""
    ranks = [
        (distances < one[:, None]).sum(1) + ((distances == one[:, None]).sum(1) - 1) / 2.0 for one in asked.unbind(1)
    ]
    return torch.stack(ranks, dim=1).to(torch.float64)
