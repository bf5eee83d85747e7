"""A discount against copying: the more similar rows there are, the less each is paid."""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks.labels import check_labels, encode_labels
from shapshift.engine.duplicates import number_equal
from shapshift.engine.rows.distances import METRICS, SPARSE_METRICS, index_rows, tile_filler, true_distances
from shapshift.exceptions import InputError
from shapshift.price.allocation import OTHER_PAYOUTS, Allocation

Floats = npt.NDArray[np.float64]

# Rows whose distances are in memory at a time.
BATCH = 64


@dataclass(frozen=True)
class CopyDiscount:
    r"""Discount of rows that resemble others (Shapley-robust, after Agarwal, Dahleh and Sarkar 2019).

    What is paid for a row is multiplied by :math:`\exp(-\lambda \sum_l s_l)`, with :math:`s_l` its similarity to every
    other row of the same label: 1 for a copy, and less at larger distances. The saved amount stays unallocated: sharing
    it out again would reward copying.

    Parameters
    ----------
    strength : float, default=log(2)
        :math:`\lambda`. With log(2), c copies of a row are paid at most :math:`(c + 1) 2^{-c}` times what one of them
        would be paid without a discount.
    bandwidth : float, default=0.0
        Similarity is :math:`\exp(-d^2 / 2 h^2)` at distance d for a bandwidth h, in units of the metric. With 0, only
        equal rows count.
    metric : {"euclidean", "sqeuclidean", "manhattan", "cosine"}, default="euclidean"

    Notes
    -----
    An owner gains nothing by copying if no copy's share of the budget is above the original's, and a strength of
    log(2). For voting neighbours that is not certain: copies can outvote others. With a bandwidth of 0, near copies get
    no discount; a larger bandwidth takes more from honest owners, whose rows naturally resemble each other. A row that
    another owner copies is discounted too. The rule "clusters" of :class:`shapshift.price.Rule` prevents gains by
    copying without these costs.

    Examples
    --------
    >>> from shapshift.price import CopyDiscount
    >>> CopyDiscount().factors([[0.0], [0.0], [3.0]])
    array([0.5, 0.5, 1. ])
    """

    strength: float = math.log(2)
    bandwidth: float = 0.0
    metric: str = "euclidean"

    def __post_init__(self) -> None:
        check.check_number("CopyDiscount", "strength", self.strength)
        check.check_number("CopyDiscount", "bandwidth", self.bandwidth)
        metrics = tuple(name for name in METRICS if name != "precomputed")
        check.check_choice("CopyDiscount", "metric", self.metric, metrics)

    def factors(self, X: Any, y: Any = None) -> Floats:
        """Return the factor by which the pay of each row is multiplied.

        Parameters
        ----------
        X : table of shape (n_train, n_features)
        y : array-like of shape (n_train,), optional
            Labels; without them all rows are compared.

        Returns
        -------
        ndarray of shape (n_train,)
        """
        sparse = None if self.metric in SPARSE_METRICS else f"which metric={self.metric!r} does not support"
        rows = check.check_features(X, "X", sparse_ok=sparse).rows
        n = rows.shape[0]
        codes = np.zeros(n, dtype=np.int32) if y is None else encode_labels(check_labels(y, "y", n, "X"))[1]
        index = index_rows(rows, self.metric)
        if self.bandwidth == 0 and self.metric != "cosine":  # parallel rows are at distance 0 too
            _, unit_of, counts = np.unique(number_equal(index)[0] * n + codes, return_inverse=True, return_counts=True)
            return np.asarray(np.exp(-self.strength * (counts[unit_of] - 1.0)))
        fill, similar = tile_filler(index, index.like_rows(rows)), np.empty(n)
        for low in range(0, n, BATCH):
            here = slice(low, min(low + BATCH, n))
            tile = np.empty((here.stop - low, n))
            fill(here, slice(0, n), tile)
            if self.bandwidth == 0:
                alike = (tile == 0).astype(np.float64)
            else:
                alike = np.exp(-0.5 * (true_distances(index, tile) / self.bandwidth) ** 2)
            alike[np.arange(here.stop - low), np.arange(low, here.stop)] = 0.0  # the row itself
            similar[here] = (alike * (codes[here, None] == codes)).sum(axis=1)
        return np.asarray(np.exp(-self.strength * similar))

    def apply(self, allocation: Allocation, X: Any, y: Any = None) -> Allocation:
        """Return the payouts after the discount.

        Parameters
        ----------
        allocation : Allocation
        X, y
            The paid training rows, in the order of ``allocation.ids``, and their labels.

        Returns
        -------
        Allocation
            The saved amount is in ``unallocated_cents``. Floors and caps of the policy hold before the discount.
        """
        check.check_type("CopyDiscount.apply", "allocation", allocation, Allocation, "what allocate_budget returned")
        if allocation.private:
            raise InputError(
                "CopyDiscount.apply does not go with payouts that are rounded or noisy: the share that is discounted "
                "depends on what they hide. Leave one of them out."
            )
        factors, values = self.factors(X, y), allocation.row_values
        if factors.size != values.size:
            raise InputError(f"'X' must have the {values.size} rows that are paid for. Got {factors.size}.")
        kept = np.ones(len(allocation.owners))
        for number in range(kept.size):
            own, factor = values[allocation.codes == number], factors[allocation.codes == number]
            carried = own if allocation.policy.negatives == "carry" else np.maximum(own, 0.0)
            whole = math.fsum(carried)
            # An owner whose rows all have value 0 may be paid for them together, or get a floor.
            kept[number] = factor.mean()
            if whole > 0:
                kept[number] = max(math.fsum(np.where(carried > 0, carried * factor, carried)) / whole, 0.0)
        kept[allocation.cents < 0] = 1.0  # charges stay unchanged
        others: dict[str, Any] = {}
        for name in OTHER_PAYOUTS:
            cents = getattr(allocation, name)
            rounded = np.ceil if name.endswith("high") else np.floor
            others[name] = None if cents is None else rounded(cents * kept).astype(np.int64)
        paid = np.floor(allocation.cents * kept).astype(np.int64)
        saved = int(allocation.cents.sum() - paid.sum())
        return replace(
            allocation,
            cents=paid,
            contributions=allocation.contributions * kept,
            unallocated_cents=allocation.unallocated_cents + saved,
            parameters={**allocation.parameters, "copy_discount": repr(self)},
            **others,
        )
