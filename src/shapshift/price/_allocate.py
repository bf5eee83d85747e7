"""allocate_budget: from values to payouts."""

import math
import warnings
from dataclasses import replace
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
    noisy: Valuation | None = None,
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
        count nothing under either rule for negatives. Where they are sampled, the result says how far each payout may
        be off for that, see ``Allocation.sampling_low``, and a warning names the largest such amount if the sampling
        did not reach its tolerance.
    corrected : Valuation, optional
        The same values after correction: the result then says what correction changes, see
        ``Allocation.correction_changes``. To pay the corrected values, pass them as ``valuation``.
    noisy : Valuation, optional
        What was corrected, where that is not what is paid: when ``valuation`` is the clean one, and ``corrected`` comes
        from a noisy version of the validation set. Changes by correction then count from it.
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
    made = make_allocation(
        valuation, budget, owners=owners, policy=policy, values=values, corrected=corrected, noisy=noisy,
        currency=currency,
    )  # fmt: skip
    if values is not None and not values.converged:
        warnings.warn(made.sampling_note(), UserWarning, stacklevel=2)
    return made if audit is None else made.with_interval(audit)


def make_allocation(
    valuation: Valuation,
    budget: Any,
    *,
    owners: Any,
    policy: Policy | None = None,
    values: OwnerValues | None = None,
    corrected: Valuation | None = None,
    noisy: Valuation | None = None,
    currency: str = "EUR",
) -> Allocation:
    """Do the work of :func:`allocate_budget`, without interval and warning."""
    policy = check_policy("allocate_budget", policy)
    _check_valuation("valuation", valuation)
    if not isinstance(currency, str):
        raise TypeError(f"The 'currency' parameter of allocate_budget must be a string. Got {currency!r} instead.")
    ownership = check_owners(owners, valuation.ids)
    totals, contributions, basis = _contributions(valuation, ownership, policy, values)
    cents = parse_money("allocate_budget", "budget", budget)
    keys = draw_keys(ownership, valuation.ids, cents)
    paid, reserve, unallocated = pay(contributions, cents, policy, keys)
    if noisy is not None and corrected is None:
        raise ValueError("The 'noisy' parameter of allocate_budget goes with 'corrected'. Pass both, or neither.")
    others: dict[str, npt.NDArray[np.int64] | None] = {"corrected": None, "noisy": None}
    for name, other in (("corrected", corrected), ("noisy", noisy)):
        if other is not None:
            _check_other(name, other, valuation, basis)
            others[name] = pay(_contributions(other, ownership, policy, None)[1], cents, policy, keys)[0]
    carried = None
    if basis == "rows" and policy.negatives == "clip" and ((totals < 0) & (contributions > 0)).any():
        rules = replace(policy, negatives="carry")
        carried = pay(row_contributions(valuation.values, ownership, "carry")[1], cents, rules, keys)[0]
    sampling = None if values is None or values.method == "exact" else sampled_payouts(values, paid, cents, policy)
    return Allocation(
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
        corrected=others["corrected"],
        low=None,
        high=None,
        interval="",
        parameters=_parameters(valuation, values),
        fingerprint=valuation.fingerprint,
        kind=valuation.kind,
        uncorrected=others["noisy"],
        carried=carried,
        sampling_low=None if sampling is None else sampling[0],
        sampling_high=None if sampling is None else sampling[1],
    )


def sampled_payouts(
    values: OwnerValues, paid: npt.NDArray[np.int64], budget: int, policy: Policy
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Payouts, in cents, at both ends of the interval of each owner's value.

    The pay per unit of contribution is held: values add up to the same total in every sample.
    """
    floor, cap, reserve = policy.cents(budget)
    contributions = np.maximum(values.values, 0.0)
    most = budget - reserve if cap is None else min(cap, budget - reserve)
    free = (contributions > 0) & (paid > floor) & (paid < most)
    free = free if free.any() else contributions > 0
    total = math.fsum(contributions[free])
    rate = float(paid[free].sum()) / total if total else 0.0
    low = np.clip(np.floor(rate * np.maximum(values.low, 0.0)), floor, most).astype(np.int64)
    high = np.clip(np.ceil(rate * np.maximum(values.high, 0.0)), floor, most).astype(np.int64)
    return np.minimum(low, paid), np.maximum(high, paid)


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
        parameters.pop("semivalue", None)  # that of single rows: nobody is paid by it
        keys = ("semivalue", "tolerance", "confidence", "random_state")
        parameters["owner_values"] = {key: values.parameters[key] for key in keys} | {
            "method": values.method,
            "n_permutations": values.n_permutations,
            "half_width": values.half_width,
            "converged": values.converged,
        }
    return parameters


def _check_other(name: str, other: Any, valuation: Valuation, basis: str) -> None:
    _check_valuation(name, other)
    if basis == "owners":
        raise ValueError(
            f"The {name!r} parameter of allocate_budget is about values of rows, but 'values' pays for owners as "
            "players. Leave one of them out."
        )
    if other.fingerprint != valuation.fingerprint:
        raise ValueError(
            f"The {name!r} parameter of allocate_budget must value the same training rows as 'valuation', but "
            "their fingerprints differ. Correct the valuation that is paid."
        )


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
