"""Exact split of the change of a payment between rounds among its causes."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import combinations

#: Factors of a payment, in the order of a statement.
FACTORS = ("own rows", "other sellers", "validation set", "budget", "policy")
#: The same, in words for the seller.
WORDS = {
    "own rows": "Your own rows",
    "other sellers": "Rows of other sellers",
    "validation set": "The buyer's test points",
    "budget": "The budget",
    "policy": "The rule of payment",
}


def split_change(pay: Callable[[frozenset[str]], int], factors: Sequence[str] = FACTORS) -> dict[str, int]:
    """Split the change of a payment among the factors that changed.

    Parameters
    ----------
    pay : callable
        Takes the factors of the new round (all others are those of the old one) and returns the payment in cents. It is
        called once for each subset of the factors.
    factors : sequence of str
        Factors that may differ between the rounds.

    Returns
    -------
    dict
        Factor to cents. They add up to the payment with all factors new minus that with none.

    Notes
    -----
    Each factor gets its Shapley value: its effect on the payment, averaged over all orders in which the factors could
    have changed one by one. These are exact fractions of a cent. They are rounded down; the remaining cents go to the
    largest remainders, among equal ones to the first factor.

    Examples
    --------
    A budget that rose from 100 to 120 cents, of which a seller's rows now earn a half instead of a quarter:

    >>> def pay(new):
    ...     return (120 if "budget" in new else 100) // (2 if "own rows" in new else 4)
    >>> split_change(pay, ["own rows", "budget"])
    {'own rows': 28, 'budget': 7}
    """
    n = len(factors)
    subsets = [frozenset(chosen) for size in range(n + 1) for chosen in combinations(factors, size)]
    paid = {subset: pay(subset) for subset in subsets}
    exact = dict.fromkeys(factors, Fraction(0))
    for factor in factors:
        for subset in subsets:
            if factor not in subset:
                weight = Fraction(math.factorial(len(subset)) * math.factorial(n - len(subset) - 1), math.factorial(n))
                exact[factor] += weight * (paid[subset | {factor}] - paid[subset])
    split = {factor: math.floor(part) for factor, part in exact.items()}
    left = paid[frozenset(factors)] - paid[frozenset()] - sum(split.values())
    for factor in sorted(factors, key=lambda one: split[one] - exact[one])[:left]:
        split[factor] += 1
    return split
