"""Policy: the rules for sharing out a budget; Terms: those rules with a budget in a currency."""

from dataclasses import asdict, dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError
from shapshift.io.shown import Shown
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
class Policy(Shown):
    """Rules for sharing out a budget among owners.

    Each owner is paid in proportion to its contribution, but at least ``floor`` and at most ``cap``. Money that capped
    owners cannot take is shared out among the others in proportion; the rest stays unallocated.

    Parameters
    ----------
    negatives : {"carry", "clip"}, default="carry"
        Rows with negative values reduce their owner's payout ("carry"), or count as zero ("clip").
    deposit : money, default=0
        Largest charge to an owner whose total is negative, at the rate at which the others are paid. Its payout is then
        negative, and the charge goes back to the buyer. With 0 nobody is charged. If no owner's total is positive there
        is no rate, and nobody is charged.
    floor : money, default=0
        Smallest payout of every owner, whatever its contribution.
    cap : money, str or None, default=None
        Largest payout of an owner: an amount, or a share of the budget such as "30%".
    reserve : money or str, default=0
        Amount to keep back, or a share of the budget such as "5%".
    odd_cents : {"draw", "keep"}, default="draw"
        Treatment of left-over cents when the next owners in line have exactly equal contributions. "draw" decides by a
        hash of the budget and of the ids of the owners' rows: payouts add up to the budget, and neither names nor the
        order of the table matter. "keep" pays such owners exactly the same and leaves the cents unallocated.

    Notes
    -----
    Amounts are integers, floats, ``Decimal`` or strings with at most as many decimals as the currency has. Shares are
    rounded down to its minor unit, the cent.

    The pay per unit is the budget left after reserve and floors, divided by the sum of the owners' positive totals.
    Charges are not paid out again, so nobody gains from the losses of others. :meth:`invites` lists the tricks that
    each policy invites.

    Examples
    --------
    >>> from shapshift.price import Policy
    >>> Policy(floor=10, cap="30%")
    Policy(negatives='carry', floor='10.00', cap='30%', reserve='0.00', odd_cents='draw', deposit='0.00')
    """

    negatives: str = "carry"
    floor: Any = 0
    cap: Any = None
    reserve: Any = 0
    odd_cents: str = "draw"
    deposit: Any = 0

    def __post_init__(self) -> None:
        check.check_choice("Policy", "negatives", self.negatives, ("clip", "carry"))
        check.check_choice("Policy", "odd_cents", self.odd_cents, ("draw", "keep"))
        # One spelling, so that Policy(floor=10) equals Policy(floor="10.00") and files hold plain text.
        for name in ("floor", "deposit"):
            object.__setattr__(self, name, _spelled(parse_money("Policy", name, getattr(self, name), MOST_DIGITS)))
        for name in ("cap", "reserve"):
            given = getattr(self, name)
            if given is not None or name == "reserve":
                object.__setattr__(self, name, _spelled(parse_amount("Policy", name, given, MOST_DIGITS)))
        if self.cap is not None and not self.cap.endswith("%") and Decimal(self.cap) < Decimal(self.floor):
            raise InputError(
                f"The 'cap' parameter of Policy must be at least the floor, {self.floor}. Got {self.cap} instead."
            )
        if Decimal(self.deposit) and (self.negatives == "clip" or Decimal(self.floor)):
            other = "negatives='clip', under which no total is negative" if self.negatives == "clip" else "a floor"
            raise InputError(
                f"The 'deposit' parameter of Policy, {self.deposit}, does not go with {other}. Leave one of them out."
            )

    def cents(self, budget: int, digits: int = 2) -> tuple[int, int | None, int]:
        """Floor, cap and reserve in cents for a budget in cents; one unit of the currency is 10**digits cents."""
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

    def charged(self, digits: int = 2) -> int:
        """Deposit in cents: the largest charge to an owner."""
        return parse_money("Policy", "deposit", self.deposit, digits)

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters, ready for JSON."""
        return asdict(self)

    def sentences(self, currency: str = "", digits: int = 2) -> list[str]:
        """Return sentences that describe the policy."""
        cents, cent = ("cents", "cent") if digits == 2 else ("the smallest unit", "unit")
        said = ["Each owner is paid in proportion to its contribution.", *self.limits_in_words(currency, digits)]
        said.append(
            f"Payouts are rounded to {cents} by largest remainder; between owners with exactly equal contributions "
            + (
                f"an odd {cent} is assigned by a draw that depends on the budget and the ids of their rows."
                if self.odd_cents == "draw"
                else f"an odd {cent} goes to nobody."
            )
        )
        return said

    def limits_in_words(self, currency: str = "", digits: int = 2) -> list[str]:
        """Return sentences on negative values, deposit, floor, cap and reserve."""

        def amount(text: str) -> str:
            unit = f" {currency}" if currency else ""
            return f"{text} of the budget" if text.endswith("%") else f"{Decimal(text):.{digits}f}{unit}"

        down_to = "down to nothing"
        if Decimal(self.deposit):
            down_to = (
                f"and below nothing is charged against its deposit, up to {amount(self.deposit)}; what is collected "
                "goes back to the buyer"
            )
        said = [
            "Rows with a negative value count as zero."
            if self.negatives == "clip"
            else f"Rows with a negative value reduce what their owner is paid, {down_to}."
        ]
        if Decimal(self.floor):
            said.append(f"No owner is paid less than {amount(self.floor)}.")
        if self.cap is not None:
            said.append(f"No owner is paid more than {amount(self.cap)}; the rest is shared among the others.")
        if parse_amount("Policy", "reserve", self.reserve):
            said.append(f"{amount(self.reserve)} is kept back.")
        return said

    def invites(self) -> list[str]:
        """Return one sentence for each trick by which an owner can gain under the policy."""
        if self.negatives == "clip":
            said = [
                "Clipping negative rows invites random rows: those that help are paid, those that harm cost nothing."
            ]
        elif Decimal(self.deposit):
            said = [
                "Bad rows under a second name are charged up to the deposit of that name; beyond it, hiding them pays."
            ]
        else:
            said = [
                "Without a deposit, bad rows are better hidden under a second name, which is never charged for them."
            ]
        if Decimal(self.floor):
            said.append("A floor invites more names, each of which is paid the floor.")
        if self.cap is not None:
            said.append("A cap invites splitting: two names have two caps.")
        return said


@dataclass(frozen=True)
class Terms:
    """Budget and the rules for sharing it out.

    Attributes
    ----------
    policy : Policy
    currency : str
    digits : int
        Decimals of the currency.
    budget : int
        In cents; one unit of the currency is 10**digits cents.
    """

    policy: Policy
    currency: str
    digits: int
    budget: int

    @classmethod
    def check(cls, caller: str, budget: Any, policy: Any, currency: Any) -> "Terms":
        """Check the arguments of the function ``caller``; None means the default policy."""
        policy = Policy() if policy is None else policy
        check.check_type(caller, "policy", policy, Policy, "a Policy, such as Policy(negatives='carry', cap='30%')")
        digits = minor_digits(caller, currency)
        return cls(policy, currency, digits, parse_money(caller, "budget", budget, digits))

    @cached_property
    def limits(self) -> tuple[int, int | None, int]:
        """Floor, cap and reserve in cents."""
        return self.policy.cents(self.budget, self.digits)

    @cached_property
    def deposit(self) -> int:
        """Deposit in cents."""
        return self.policy.charged(self.digits)

    def pay(self, contributions: npt.NDArray[np.float64], keys: list[bytes]) -> tuple[npt.NDArray[np.int64], int, int]:
        """Payouts, reserve and unallocated rest, in cents; ``keys`` assign odd cents between equal owners.

        Negative contributions are charged up to the deposit; the unallocated rest includes the charges.
        """
        floor, cap, reserve = self.limits
        n, left = contributions.size, self.budget - reserve
        if n * floor > left:
            floors, each, rest = (show_money(cents, digits=self.digits) for cents in (n * floor, floor, left))
            raise InputError(
                f"The policy's floor of {each} for each of {n} owners needs {floors}, but the budget leaves {rest}. "
                "Lower the floor or raise the budget."
            )
        draws = keys if self.policy.odd_cents == "draw" else [b""] * n
        weights = whole_weights(contributions)
        positive = [max(weight, 0) for weight in weights]
        shares, unallocated = split_cents(positive, left, floor, cap, draws)
        if self.deposit and (whole := sum(positive)):
            charges = [min(-weight * left // whole, self.deposit) if weight < 0 else 0 for weight in weights]
            shares = [share - charge for share, charge in zip(shares, charges, strict=True)]
            unallocated += sum(charges)
        return np.array(shares, dtype=np.int64), reserve, unallocated


def _spelled(amount: int | Fraction) -> str:
    if isinstance(amount, int):
        text = str(to_decimal(amount, MOST_DIGITS))
        return text[:-2] + text[-2:].rstrip("0")  # at least two decimals
    percent = amount * 100
    exact = Decimal(percent.numerator) / Decimal(percent.denominator)
    return f"{exact.normalize():f}%"


def _of(budget: int, amount: int | Fraction) -> int:
    """Cents of an amount that may be a share of the budget."""
    return amount if isinstance(amount, int) else int(budget * amount)
