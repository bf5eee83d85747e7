"""Money as whole cents, and the rules by which a budget is shared out."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import Any

import numpy as np

from shapshift import _validation as check

# Cents of the largest amount fit into 64 bits with room for sums.
LARGEST_DIGITS = 15


def parse_money(owner: str, name: str, amount: Any) -> int:
    """Cents in an amount such as ``1000``, ``12.5``, ``Decimal("12.50")`` or ``"12.50"``.

    Parameters
    ----------
    owner, name : str
        How messages call the function and its parameter.
    amount : int, float, Decimal or str
        At least 0, with at most two decimals.
    """
    said = f"The {name!r} parameter of {owner} must be an amount of money"
    if isinstance(amount, np.generic):
        amount = amount.item()
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal | str):
        raise TypeError(f"{said}: a number, a Decimal or a string such as '1250.50'. Got {amount!r} instead.")
    try:
        # The shortest decimal that reads back as the float is what the caller wrote: 0.1, not 0.1000000000000000055.
        number = Decimal(repr(amount) if isinstance(amount, float) else amount)
    except InvalidOperation:
        raise ValueError(
            f"{said} such as '1250.50', with a point and without thousands separators or a currency. Got {amount!r}."
        ) from None
    if not number.is_finite():
        raise ValueError(f"{said}, a finite one. Got {amount!r} instead.")
    if number < 0:
        raise ValueError(f"{said} of at least 0. Got {amount!r} instead.")
    if number and number.adjusted() >= LARGEST_DIGITS:
        raise ValueError(f"{said} below 10^{LARGEST_DIGITS}. Got {amount!r} instead.")
    if number and number.adjusted() < -2:
        raise ValueError(_too_fine(said, amount))
    cents = Fraction(number) * 100
    if cents.denominator != 1:
        raise ValueError(_too_fine(said, amount))
    return int(cents)


def parse_amount(owner: str, name: str, amount: Any) -> tuple[int | None, Fraction | None]:
    """Cents, or a share of the budget when the amount is a string such as ``"30%"``; the other one is None."""
    if not (isinstance(amount, str) and amount.strip().endswith("%")):
        return parse_money(owner, name, amount), None
    try:
        percent = Decimal(amount.strip()[:-1])
    except InvalidOperation:
        percent = Decimal("NaN")
    # A finite number has an integer exponent; the types allow the letters of NaN and infinity too.
    if not (percent.is_finite() and 0 <= percent <= 100 and percent.as_tuple().exponent > -20):  # type: ignore[operator]
        raise ValueError(
            f"The {name!r} parameter of {owner}, where it is a share of the budget, must be between '0%' and '100%'. "
            f"Got {amount!r} instead."
        )
    return None, Fraction(percent) / 100


def to_decimal(cents: int) -> Decimal:
    """Cents as a decimal amount with two places."""
    return Decimal(int(cents)).scaleb(-2)


def show_money(cents: int, currency: str = "") -> str:
    """Cents for a reader, such as ``1,250.50 EUR``."""
    shown = f"{to_decimal(cents):,.2f}"
    return f"{shown} {currency}" if currency else shown


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
    Amounts are integers, floats, ``Decimal`` or strings with at most two decimals. Shares are rounded down to the cent.

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
        object.__setattr__(self, "floor", str(to_decimal(parse_money("Policy", "floor", self.floor))))
        for name in ("cap", "reserve"):
            given = getattr(self, name)
            if given is not None or name == "reserve":
                object.__setattr__(self, name, _spelled(*parse_amount("Policy", name, given)))
        if self.cap is not None and not self.cap.endswith("%") and Decimal(self.cap) < Decimal(self.floor):
            raise ValueError(
                f"The 'cap' parameter of Policy must be at least the floor, {self.floor}. Got {self.cap} instead."
            )

    def cents(self, budget: int) -> tuple[int, int | None, int]:
        """Floor, cap and reserve in cents for a budget in cents."""
        floor = parse_money("Policy", "floor", self.floor)
        cap = None if self.cap is None else _of(budget, *parse_amount("Policy", "cap", self.cap))
        return floor, cap, _of(budget, *parse_amount("Policy", "reserve", self.reserve))

    def to_dict(self) -> dict[str, Any]:
        """Return the parameters, ready for JSON."""
        return {name: getattr(self, name) for name in ("negatives", "floor", "cap", "reserve", "odd_cents")}

    def sentences(self, currency: str = "") -> list[str]:
        """Say in words what the policy does."""
        unit = f" {currency}" if currency else ""

        def amount(text: str) -> str:
            return f"{text} of the budget" if text.endswith("%") else text + unit

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
        if any(parse_amount("Policy", "reserve", self.reserve)):
            said.append(f"{amount(self.reserve)} is kept back.")
        said.append(
            "Payouts are rounded to cents by largest remainder; between owners with exactly equal contributions "
            + (
                "an odd cent goes by a draw that depends on the budget and on the ids of their rows."
                if self.odd_cents == "draw"
                else "an odd cent goes to nobody."
            )
        )
        return said


def _too_fine(said: str, amount: Any) -> str:
    return f"{said} in whole cents, with at most two decimals. Got {amount!r} instead. Round it first."


def _spelled(cents: int | None, share: Fraction | None) -> str:
    if cents is not None:
        return str(to_decimal(cents))
    percent = (share or Fraction(0)) * 100
    exact = Decimal(percent.numerator) / Decimal(percent.denominator)
    return f"{exact.normalize():f}%"


def _of(budget: int, cents: int | None, share: Fraction | None) -> int:
    return cents if cents is not None else int(budget * (share or Fraction(0)))
