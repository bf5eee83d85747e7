"""Policy: the rules by which a budget is shared out; Terms: those rules with a budget in a currency."""

from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError
from shapshift.price.money import (
    MOST_DIGITS,
    minor_digits,
    parse_amount,
    parse_money,
    show_money,
    split_cents,
    to_decimal,
    whole_weights,
)


@dataclass(frozen=True)
class Policy:
    """How a budget is shared out among owners.

    Each owner is paid in proportion to its contribution, but at least ``floor`` and at most ``cap``; what capped
    owners cannot take is shared out among the others in proportion, and what nobody can take stays unallocated.

    Parameters
    ----------
    negatives : {"clip", "carry"}, default="clip"
        Rows with negative values count nothing ("clip"), or reduce what their owner is paid ("carry"). An owner whose
        total is not positive then contributes nothing; it never has to pay.
    floor : money, default=0
        Least payout of every owner, whatever its contribution.
    cap : money, str or None, default=None
        Largest payout of an owner: an amount, or a share of the budget such as "30%".
    reserve : money or str, default=0
        What is kept back: an amount, or a share of the budget such as "5%".
    odd_cents : {"draw", "keep"}, default="draw"
        What happens when cents are left over and the next to receive one are owners with exactly equal contributions.
        "draw" lets a hash of the budget and of the ids of the owners' rows decide, so that payouts add up to the budget
        and neither names nor the order of the table matter. "keep" pays such owners exactly the same and leaves the
        cents unallocated.

    Notes
    -----
    Amounts are integers, floats, ``Decimal`` or strings with at most as many decimals as the currency has. Shares are
    rounded down to its minor unit, the cent.

    A floor is paid per name and a cap is escaped by splitting: where names cost nothing, an owner gains by splitting up
    under either. The same holds for "carry", under which good rows are better sold apart from bad ones. Under plain
    proportional payment with "clip", splitting gains no more than the rounding of a cent per name.

    Examples
    --------
    >>> from shapshift.price import Policy
    >>> Policy(negatives="carry", floor=10, cap="30%")
    Policy(negatives='carry', floor='10.00', cap='30%', reserve='0.00', odd_cents='draw')
    """

    negatives: str = "clip"
    floor: Any = 0
    cap: Any = None
    reserve: Any = 0
    odd_cents: str = "draw"

    def __post_init__(self) -> None:
        check.check_choice("Policy", "negatives", self.negatives, ("clip", "carry"))
        check.check_choice("Policy", "odd_cents", self.odd_cents, ("draw", "keep"))
        # One spelling, so that Policy(floor=10) equals Policy(floor="10.00") and files hold plain text.
        object.__setattr__(self, "floor", _spelled(parse_money("Policy", "floor", self.floor, MOST_DIGITS)))
        for name in ("cap", "reserve"):
            given = getattr(self, name)
            if given is not None or name == "reserve":
                object.__setattr__(self, name, _spelled(parse_amount("Policy", name, given, MOST_DIGITS)))
        if self.cap is not None and not self.cap.endswith("%") and Decimal(self.cap) < Decimal(self.floor):
            raise InputError(
                f"The 'cap' parameter of Policy must be at least the floor, {self.floor}. Got {self.cap} instead."
            )

    def cents(self, budget: int, digits: int = 2) -> tuple[int, int | None, int]:
        """Floor, cap and reserve in cents for a budget in cents, of which 10**digits make one of the currency."""
        floor = parse_money("Policy", "floor", self.floor, digits)
        cap = None if self.cap is None else _of(budget, parse_amount("Policy", "cap", self.cap, digits))
        reserve = _of(budget, parse_amount("Policy", "reserve", self.reserve, digits))

        def shown(cents: int) -> str:
            return show_money(cents, digits=digits)

        if reserve > budget:
            raise InputError(
                f"The policy's reserve, {shown(reserve)}, is more than the budget of {shown(budget)}. Lower it."
            )
        if cap is not None and cap < floor:
            raise InputError(
                f"The policy's cap, {self.cap} of the budget or {shown(cap)}, is below its floor of "
                f"{shown(floor)}. Raise the cap or lower the floor."
            )
        return floor, cap, reserve

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters, ready for JSON."""
        return asdict(self)

    def sentences(self, currency: str = "", digits: int = 2) -> list[str]:
        """Say in words what the policy does."""
        unit = f" {currency}" if currency else ""
        cents, cent = ("cents", "cent") if digits == 2 else ("the smallest unit", "unit")

        def amount(text: str) -> str:
            return f"{text} of the budget" if text.endswith("%") else f"{Decimal(text):.{digits}f}{unit}"

        said = ["Each owner is paid in proportion to its contribution."]
        said.append(
            "Rows with a negative value count nothing."
            if self.negatives == "clip"
            else "Rows with a negative value reduce what their owner is paid, down to nothing."
        )
        if Decimal(self.floor):
            said.append(f"No owner is paid less than {amount(self.floor)}.")
        if self.cap is not None:
            said.append(f"No owner is paid more than {amount(self.cap)}; the rest is shared among the others.")
        if parse_amount("Policy", "reserve", self.reserve):
            said.append(f"{amount(self.reserve)} is kept back.")
        said.append(
            f"Payouts are rounded to {cents} by largest remainder; between owners with exactly equal contributions "
            + (
                f"an odd {cent} goes by a draw that depends on the budget and on the ids of their rows."
                if self.odd_cents == "draw"
                else f"an odd {cent} goes to nobody."
            )
        )
        return said


@dataclass(frozen=True)
class Terms:
    """What is shared out by which rules.

    Attributes
    ----------
    policy : Policy
    currency : str
    digits : int
        Decimals of the currency.
    budget : int
        In cents, of which 10**digits make one of the currency.
    """

    policy: Policy
    currency: str
    digits: int
    budget: int

    @classmethod
    def check(cls, caller: str, budget: Any, policy: Any, currency: Any) -> "Terms":
        """Check the arguments of the function ``caller``; a policy of None means the plain one."""
        policy = Policy() if policy is None else policy
        check.check_type(caller, "policy", policy, Policy, "a Policy, such as Policy(negatives='carry', cap='30%')")
        digits = minor_digits(caller, currency)
        return cls(policy, currency, digits, parse_money(caller, "budget", budget, digits))

    @cached_property
    def limits(self) -> tuple[int, int | None, int]:
        """Floor, cap and reserve in cents."""
        return self.policy.cents(self.budget, self.digits)

    def pay(self, contributions: npt.NDArray[np.float64], keys: list[bytes]) -> tuple[npt.NDArray[np.int64], int, int]:
        """Payouts, reserve and unallocated rest, in cents; ``keys`` decide about odd cents between equal owners."""
        floor, cap, reserve = self.limits
        n, left = contributions.size, self.budget - reserve
        if n * floor > left:
            floors, each, rest = (show_money(cents, digits=self.digits) for cents in (n * floor, floor, left))
            raise InputError(
                f"The policy's floor of {each} for each of {n} owners needs {floors}, but the budget leaves {rest}. "
                "Lower the floor or raise the budget."
            )
        draws = keys if self.policy.odd_cents == "draw" else [b""] * n
        shares, unallocated = split_cents(whole_weights(contributions), left, floor, cap, draws)
        return np.array(shares, dtype=np.int64), reserve, unallocated


def _spelled(amount: int | Fraction) -> str:
    if isinstance(amount, int):
        text = str(to_decimal(amount, MOST_DIGITS))
        return text[:-2] + text[-2:].rstrip("0")  # two decimals at least
    percent = amount * 100
    exact = Decimal(percent.numerator) / Decimal(percent.denominator)
    return f"{exact.normalize():f}%"


def _of(budget: int, amount: int | Fraction) -> int:
    """Cents of an amount that may be a share of the budget."""
    return amount if isinstance(amount, int) else int(budget * amount)
