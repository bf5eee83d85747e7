"""allocate_budget: from values to payouts."""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shapshift.price._allocation import Allocation
from shapshift.price._money import Policy, parse_money, show_money
from shapshift.price._owner_result import OwnerValues
from shapshift.price._owners import Ownership, check_owners, draw_keys
from shapshift.price._split import split_cents, whole_weights
from shapshift.valuation import Valuation

if TYPE_CHECKING:
    from shapshift.price._audit import PayoutAudit

Floats = npt.NDArray[np.float64]


def allocate_budget(
    valuation: Valuation,
    budget: Any,
    *,
    owners: Any,
    policy: Policy | None = None,
    values: OwnerValues | None = None,
    corrected: Valuation | None = None,
    audit: "PayoutAudit | None" = None,
    currency: str = "EUR",
) -> Allocation:
    """Share a budget out among the owners of training rows.

    Parameters
    ----------
    valuation : Valuation
        Values of the training rows.
    budget : int, float, Decimal or str
        At most two decimals.
    owners : array-like of shape (n_train,)
        One owner per training row: any hashable names. A pandas Series is matched to the rows by its index; anything
        else by position.
    policy : Policy, optional
        By default in proportion to the sum of each owner's positive row values.
    values : OwnerValues, optional
        Pay for these values of owners as players, see :func:`owner_values`, instead of sums over rows. Negative ones
        count nothing under either rule for negatives.
    corrected : Valuation, optional
        The same values after correction: the result then says what correction changes, see
        ``Allocation.correction_changes``. To pay the corrected values, pass them as ``valuation``.
    audit : PayoutAudit, optional
        Attach its intervals, see :meth:`Allocation.with_interval`.
    currency : str, default="EUR"
        How amounts are labelled. Every currency is counted in hundredths.

    Returns
    -------
    Allocation

    Notes
    -----
    Payouts, reserve and the unallocated rest add up to the budget to the cent. Contributions are summed exactly and
    shared out in integers, so neither the order of the rows nor rounding decides about a cent. Cents left over by
    rounding down go to the largest remainders, among equal ones to the larger contribution, and between exactly equal
    contributions as the policy's ``odd_cents`` says. No rule looks at names: nobody gains by a new one.

    If nobody contributes (all totals zero or negative), each owner is paid the floor and the rest stays unallocated.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import allocate_budget
    >>> model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> pay = allocate_budget(model.value([[0.9]], ["b"]), 100, owners=["ann", "bob", "cid"])
    >>> {owner: str(amount) for owner, amount in pay.payouts.items()}
    {'ann': '0.00', 'bob': '80.00', 'cid': '20.00'}
    """
    policy = check_policy("allocate_budget", policy)
    _check_valuation("valuation", valuation)
    if not isinstance(currency, str):
        raise TypeError(f"The 'currency' parameter of allocate_budget must be a string. Got {currency!r} instead.")
    ownership = check_owners(owners, valuation.ids)
    totals, contributions, basis = _contributions(valuation, ownership, policy, values)
    cents = parse_money("allocate_budget", "budget", budget)
    keys = draw_keys(ownership, valuation.ids, cents)
    paid, reserve, unallocated = pay(contributions, cents, policy, keys)
    after = None
    if corrected is not None:
        _check_valuation("corrected", corrected)
        if basis == "owners":
            raise ValueError(
                "The 'corrected' parameter of allocate_budget corrects values of rows, but 'values' pays for owners as "
                "players. Leave one of them out."
            )
        if corrected.fingerprint != valuation.fingerprint:
            raise ValueError(
                "The 'corrected' parameter of allocate_budget must value the same training rows as 'valuation', but "
                "their fingerprints differ. Correct the valuation that is paid."
            )
        after, _, _ = pay(_contributions(corrected, ownership, policy, None)[1], cents, policy, keys)
    made = Allocation(
        owners=ownership.names,
        cents=paid,
        contributions=contributions,
        values=totals,
        row_counts=ownership.counts,
        row_values=valuation.values,
        ids=valuation.ids,
        codes=ownership.codes,
        budget_cents=cents,
        reserve_cents=reserve,
        unallocated_cents=unallocated,
        policy=policy,
        basis=basis,
        currency=currency,
        corrected=after,
        low=None,
        high=None,
        interval="",
        parameters=_parameters(valuation, values),
        fingerprint=valuation.fingerprint,
        kind=valuation.kind,
    )
    return made if audit is None else made.with_interval(audit)


def row_contributions(values: Floats, ownership: Ownership, negatives: str) -> tuple[Floats, Floats]:
    """Total value and contribution of each owner; sums are exactly rounded, so that their order means nothing."""
    by_owner = [values[rows].tolist() for rows in ownership.rows_of()]
    totals = np.array([math.fsum(own) for own in by_owner])
    if negatives == "carry":
        return totals, np.maximum(totals, 0.0)
    return totals, np.array([math.fsum(value for value in own if value > 0) for own in by_owner])


def pay(
    contributions: Floats, budget: int, policy: Policy, keys: list[bytes]
) -> tuple[npt.NDArray[np.int64], int, int]:
    """Payouts, reserve and unallocated rest, in cents."""
    floor, cap, reserve = policy.cents(budget)
    n = contributions.size
    if reserve > budget:
        raise ValueError(
            f"The policy's reserve, {show_money(reserve)}, is more than the budget of {show_money(budget)}. Lower it."
        )
    if n * floor > budget - reserve:
        raise ValueError(
            f"The policy's floor of {show_money(floor)} for each of {n} owners needs {show_money(n * floor)}, but the "
            f"budget leaves {show_money(budget - reserve)}. Lower the floor or raise the budget."
        )
    if cap is not None and cap < floor:
        raise ValueError(
            f"The policy's cap, {policy.cap} of the budget or {show_money(cap)}, is below its floor of "
            f"{show_money(floor)}. Raise the cap or lower the floor."
        )
    draws = keys if policy.odd_cents == "draw" else [b""] * n
    shares, left = split_cents(whole_weights(contributions), budget - reserve, floor, cap, draws)
    return np.array(shares, dtype=np.int64), reserve, left


def check_policy(owner: str, policy: Any) -> Policy:
    """Return the policy; None means the plain one."""
    if policy is None:
        return Policy()
    if not isinstance(policy, Policy):
        raise TypeError(
            f"The 'policy' parameter of {owner} must be a Policy, such as Policy(negatives='carry', cap='30%'). Got "
            f"{policy!r} instead."
        )
    return policy


def _contributions(
    valuation: Valuation, ownership: Ownership, policy: Policy, values: OwnerValues | None
) -> tuple[Floats, Floats, str]:
    if values is None:
        return *row_contributions(valuation.values, ownership, policy.negatives), "rows"
    if not isinstance(values, OwnerValues):
        raise TypeError(
            "The 'values' parameter of allocate_budget must be what owner_values returned. Got "
            f"{type(values).__name__} instead."
        )
    same = values.owners == ownership.names and np.array_equal(values.codes, ownership.codes)
    if values.fingerprint != valuation.fingerprint or not same:
        raise ValueError(
            "The 'values' parameter of allocate_budget must belong to the same training rows and owners as "
            "'valuation' and 'owners'. Compute owner_values with the same model and owners."
        )
    return values.values, np.maximum(values.values, 0.0), "owners"


def _parameters(valuation: Valuation, values: OwnerValues | None) -> dict[str, Any]:
    parameters = {
        "n_train": valuation.n_train,
        "n_val": valuation.n_val,
        **valuation.parameters,
        "boundary_fraction": valuation.boundary_fraction,
    }
    if values is not None:
        keys = ("semivalue", "tolerance", "random_state")
        parameters["owner_values"] = {key: values.parameters[key] for key in keys} | {
            "method": values.method,
            "n_permutations": values.n_permutations,
            "half_width": values.half_width,
        }
    return parameters


def _check_valuation(name: str, valuation: Any) -> None:
    if not isinstance(valuation, Valuation):
        raise TypeError(
            f"The {name!r} parameter of allocate_budget must be a Valuation, such as model.value(X_val, y_val) "
            f"returns. Got {type(valuation).__name__} instead."
        )
    bad = np.flatnonzero(~np.isfinite(valuation.values))
    if bad.size:
        raise ValueError(
            f"The {name!r} parameter of allocate_budget has values that are not finite, the first at row {bad[0]} (id "
            f"{valuation.ids[bad[0]]!r}). Money cannot be shared out by them; compute them again."
        )
