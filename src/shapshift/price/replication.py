"""replication_gain: what an owner would gain by submitting copies of its rows."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import clone

from shapshift._arrays import object_array
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.labels import check_owners, owner_column
from shapshift.exceptions import InputError
from shapshift.io.results import to_table
from shapshift.perturb.containers import take_rows
from shapshift.price.allocation import Allocation, check_payable, share_out
from shapshift.price.owners import GameOptions, value_owners
from shapshift.price.policy import Policy, Terms

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class ReplicationCheck:
    """Payouts without and with copies of one owner's rows.

    Attributes
    ----------
    owner : hashable
        Who copies.
    copies : int
        How many copies of each of its rows are added.
    before, after : Allocation
        Payouts without and with them.
    """

    owner: Any
    copies: int
    before: Allocation
    after: Allocation

    @property
    def gain(self) -> Decimal:
        """By how much the owner is paid more; negative when copying costs it."""
        return self.changes[self.owner]

    @property
    def changes(self) -> dict[Any, Decimal]:
        """By how much each owner is paid more."""
        return self.before.compare(self.after)

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the payouts.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per owner: ``owner``, ``rows_before``, ``rows_after``, ``before``, ``after`` and ``change``, in
            units of the currency.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "owner": owner_column(self.before.owners),
            "rows_before": self.before.row_counts,
            "rows_after": self.after.row_counts,
            "before": self.before.cents / 10**self.before.digits,
            "after": self.after.cents / 10**self.before.digits,
            "change": (self.after.cents - self.before.cents) / 10**self.before.digits,
        }
        return to_table(columns, None, kind or self.before.kind)

    def __repr__(self) -> str:
        at = self.before.owners.index(self.owner)
        first, last = self.before.cents[at], self.after.cents[at]
        return (
            f"ReplicationCheck({self.owner!r}, {self.before.row_counts[at]} rows copied {self.copies} times: "
            f"{self.before.show(first, label=False)} to {self.before.show(last)}, {self.gain:+,.{self.before.digits}f})"
        )


def replication_gain(
    model: Any,
    X_train: Any,
    y_train: Any,
    X_val: Any,
    y_val: Any,
    owners: Any,
    owner: Any,
    *,
    budget: Any,
    copies: int = 1,
    policy: Policy | None = None,
    basis: str = "rows",
    owner_options: Mapping[str, Any] | None = None,
    currency: str = "EUR",
) -> ReplicationCheck:
    """Compute what an owner would gain by submitting copies of its rows.

    Parameters
    ----------
    model : estimator
        Fitted anew, once without and once with the copies; the one passed stays as it is.
    X_train, y_train : table of shape (n_train, n_features), array-like of shape (n_train,)
        Training rows. With ``metric="precomputed"``, ``X_train`` is ignored.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The validation set.
    owners : array-like of shape (n_train,)
        One owner per training row; a pandas Series is matched by its index.
    owner : hashable
        Who copies.
    budget, policy, currency
        As in :func:`allocate_budget`.
    copies : int, default=1
        How many copies of each of its rows the owner adds.
    basis : {"rows", "owners"}, default="rows"
        Pay for sums over rows, or for owners as players, see :func:`owner_values`.
    owner_options : mapping, optional
        With ``basis="owners"``, the options of :func:`owner_values` that the payment used.

    Returns
    -------
    ReplicationCheck

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import replication_gain
    >>> X, y = [[0.0], [1.0], [3.0]], ["a", "b", "b"]
    >>> replication_gain(
    ...     KNNShapley(n_neighbors=1), X, y, [[0.9]], ["b"], ["ann", "bob", "cid"], "cid", budget=100
    ... )
    ReplicationCheck('cid', 1 rows copied 1 times: 20.00 to 28.57 EUR, +8.57)
    """
    check.check_count("replication_gain", "copies", copies)
    check.check_choice("replication_gain", "basis", basis, ("rows", "owners"))
    options = GameOptions.check("replication_gain", owner_options, basis)  # one seed: the same draws before and after
    terms = Terms.check("replication_gain", budget, policy, currency)
    fitted = clone(model).fit(X_train, y_train)
    ownership = check_owners(owners, fitted.ids_)
    if owner not in ownership.names:
        raise InputError(
            f"The 'owner' parameter of replication_gain must be one of the owners: {check.some(ownership.names)}. Got "
            f"{check.quoted(owner)} instead."
        )
    n = ownership.codes.size
    own = np.flatnonzero(ownership.codes == ownership.names.index(owner))
    taken = np.concatenate([np.arange(n), np.tile(own, copies)])
    labels = _labels.check_labels(y_train, "y_train", n, "X_train")[taken]
    precomputed = getattr(model, "metric", None) == "precomputed"
    copied = clone(model).fit(X_train if precomputed else take_rows(X_train, taken), labels)
    X_copied = np.asarray(X_val)[:, taken] if precomputed else X_val
    names = object_array([ownership.names[code] for code in ownership.codes])

    def allocate(estimator: Any, X: Any, rows: Positions) -> Allocation:
        # Positions as ids: the same rows draw the same lot for an odd cent before and after.
        valuation = replace(estimator.value(X, y_val), ids=rows)
        check_payable("valuation", valuation)
        values = value_owners(estimator, X, y_val, names[rows], options) if basis == "owners" else None
        return share_out(valuation, check_owners(names[rows], rows), terms, values)

    return ReplicationCheck(
        owner, int(copies), allocate(fitted, X_val, np.arange(n)), allocate(copied, X_copied, taken)
    )
