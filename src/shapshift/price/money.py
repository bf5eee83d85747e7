"""Amounts of money as whole numbers of a currency's minor unit: reading, showing and sharing them out."""

from bisect import bisect_right
from collections.abc import Sequence
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError

if TYPE_CHECKING:
    from babel import Locale

# The largest amount in cents fits into 64 bits, with headroom for sums.
LARGEST_DIGITS = 17
# No currency has more decimals.
MOST_DIGITS = 4


def minor_digits(caller: str, currency: Any) -> int:
    """Decimals of a currency in the Unicode CLDR; two for an unknown name.

    Parameters
    ----------
    caller : str
        Name of the calling function, for messages.
    currency : str
    """
    from babel.numbers import get_currency_precision

    check.check_type(caller, "currency", currency, str, "a string")
    return int(get_currency_precision(currency.strip().upper()))


def parse_money(caller: str, name: str, amount: Any, digits: int = 2) -> int:
    """Cents in an amount such as ``1000``, ``12.5``, ``Decimal("12.50")`` or ``"12.50"``.

    Parameters
    ----------
    owner, name : str
        Names of the calling function and of its parameter, for messages.
    amount : int, float, Decimal or str
        At least 0, with at most as many decimals as ``digits``.
    digits : int, default=2
        Decimals that the currency has; the result is in units of the last one.
    """
    said = f"The {name!r} parameter of {caller} must be an amount of money"
    if isinstance(amount, np.generic):
        amount = amount.item()
    if isinstance(amount, bool) or not isinstance(amount, int | float | Decimal | str):
        raise InputError(f"{said}: a number, a Decimal or a string such as '1250.50'. Got {amount!r} instead.")
    try:
        # The shortest decimal that reads back as the float is what the caller wrote: 0.1, not 0.1000000000000000055.
        number = Decimal(repr(amount) if isinstance(amount, float) else amount)
    except InvalidOperation:
        raise InputError(
            f"{said} such as '1250.50', with a point and without thousands separators or a currency. Got {amount!r}."
        ) from None
    if not number.is_finite():
        raise InputError(f"{said}, a finite one. Got {amount!r} instead.")
    if number < 0:
        raise InputError(f"{said} of at least 0. Got {amount!r} instead.")
    if number and number.adjusted() >= LARGEST_DIGITS - digits:
        raise InputError(f"{said} below 10^{LARGEST_DIGITS - digits}. Got {amount!r} instead.")
    # The first test avoids computing the fraction of a number such as 1e-999999 in the second.
    if number and (number.adjusted() < -digits or Fraction(number) * 10**digits % 1):
        decimals = f"at most {digits} decimals" if digits else "no decimals"
        cents = "in whole cents, " if digits == 2 else ""
        raise InputError(f"{said} {cents}with {decimals}. Got {amount!r} instead. Round it first.")
    return int(Fraction(number) * 10**digits)


def parse_amount(caller: str, name: str, amount: Any, digits: int = 2) -> int | Fraction:
    """Cents, or a share of the budget, as a fraction, when the amount is a string such as ``"30%"``."""
    if not (isinstance(amount, str) and amount.strip().endswith("%")):
        return parse_money(caller, name, amount, digits)
    try:
        percent = Decimal(amount.strip()[:-1])
    except InvalidOperation:
        percent = Decimal("NaN")
    # A finite number has an integer exponent; the types allow the letters of NaN and infinity too.
    if not (percent.is_finite() and 0 <= percent <= 100 and percent.as_tuple().exponent > -20):  # type: ignore[operator]
        raise InputError(
            f"The {name!r} parameter of {caller}, where it is a share of the budget, must be between '0%' and '100%'. "
            f"Got {amount!r} instead."
        )
    return Fraction(percent) / 100


def to_decimal(cents: int, digits: int = 2) -> Decimal:
    """Cents as a decimal amount."""
    return Decimal(int(cents)).scaleb(-digits)


def show_money(cents: int, currency: str = "", digits: int = 2) -> str:
    """Cents for a reader, such as ``1,250.50 EUR``; with ``digits=0``, ``125,050 JPY``.

    Examples
    --------
    >>> from shapshift.price import show_money
    >>> show_money(125050, "EUR")
    '1,250.50 EUR'
    """
    shown = f"{to_decimal(cents, digits):,.{digits}f}"
    return f"{shown} {currency}" if currency else shown


def parse_locale(caller: str, locale: Any) -> "Locale":
    """Return the conventions of a language, such as "de", "de_CH" or "ja", by which numbers and dates are written."""
    from babel import Locale, UnknownLocaleError

    check.check_type(caller, "locale", locale, str, "the name of a locale, such as 'en', 'de_CH' or 'ja'")
    try:
        return Locale.parse(locale, sep="-" if "-" in locale else "_")
    except (UnknownLocaleError, ValueError):
        raise InputError(
            f"The 'locale' parameter of {caller} must be a locale that the Unicode CLDR knows, such as 'en', 'de_CH' "
            f"or 'ja'. Got {locale!r} instead."
        ) from None


def local_money(cents: int, currency: str, digits: int, locale: "Locale") -> str:
    """Cents in the format of a language: ``1.250,50 €``; in English with the code last, ``1,250.50 EUR``.

    A name that is not a currency follows the number in every language.
    """
    from babel.numbers import format_currency, is_currency, parse_pattern

    amount = to_decimal(cents, digits)
    if locale.language != "en" and is_currency(currency):
        return format_currency(amount, currency, locale=locale)
    pattern = parse_pattern(locale.decimal_formats[None].pattern)
    pattern.frac_prec = (digits, digits)
    shown = pattern.apply(amount, locale)
    return f"{shown} {currency}" if currency else shown


def round_parts(weights: Sequence[int], rate: Fraction) -> list[int]:
    """Round ``rate`` times each weight to whole cents that add up to the rounded sum, by largest remainder."""
    exact = [weight * rate.numerator for weight in weights]
    parts = [part // rate.denominator for part in exact]
    odd = round(Fraction(sum(exact), rate.denominator)) - sum(parts)
    by_remainder = sorted(range(len(exact)), key=lambda at: -(exact[at] % rate.denominator))
    for at in by_remainder[:odd]:
        parts[at] += 1
    return parts


def whole_weights(contributions: npt.NDArray[np.float64]) -> list[int]:
    """Turn floats into integers in exactly the same proportions."""
    ratios = [float(weight).as_integer_ratio() for weight in contributions]
    common = max(bottom for _, bottom in ratios)  # all are powers of two
    return [top * (common // bottom) for top, bottom in ratios]


def split_cents(
    weights: Sequence[int], total: int, floor: int, cap: int | None, draws: Sequence[bytes]
) -> tuple[list[int], int]:
    """Share ``total`` cents in proportion to weights, each share between ``floor`` and ``cap``.

    Parameters
    ----------
    weights : sequence of int
        At least 0 each; weight 0 gets the floor.
    total, floor : int
        Cents; ``total`` covers all floors.
    cap : int or None
        At least ``floor``.
    draws : sequence of bytes
        Tie-break among exactly equal weights: the smallest draw gets a cent first. If the draws are equal too, none of
        them gets it.

    Returns
    -------
    (list of int, int)
        The shares, and the unallocated rest.

    Notes
    -----
    Shares are ``clamp(rate * weight, floor, cap)`` at the one rate at which they add up to ``total`` (water-filling).
    They are rounded down. The missing cents go, one each, to the largest remainders, and among equal remainders to the
    larger weight. A larger weight of one owner never lowers its share: its own remainder grows while those of the
    others shrink.
    """
    top, bottom, left = _exact_shares(weights, total, floor, cap)
    shares = [share // bottom for share in top]
    remainders = [share % bottom for share in top]
    odd = sum(top) // bottom - sum(shares)
    classes: dict[tuple[int, int, bytes], list[int]] = {}
    for i, remainder in enumerate(remainders):
        if remainder:
            classes.setdefault((-remainder, -weights[i], draws[i]), []).append(i)
    for key in sorted(classes):
        members = classes[key]
        if len(members) > odd:
            break
        odd -= len(members)
        for i in members:
            shares[i] += 1
    return shares, left + odd


def _exact_shares(weights: Sequence[int], total: int, floor: int, cap: int | None) -> tuple[list[int], int, int]:
    """Shares before rounding as numerators over one denominator, and the whole cents that no share can take."""
    n, positive = len(weights), [weight for weight in weights if weight]
    if not positive:
        return [floor] * n, 1, total - n * floor
    if cap is not None and (n - len(positive)) * floor + len(positive) * cap <= total:
        shares = [cap if weight else floor for weight in weights]
        return shares, 1, total - sum(shares)
    rate = _rate(weights, positive, total, floor, cap)
    return _clamped(weights, rate, floor, cap), rate.denominator, 0


def _clamped(weights: Sequence[int], rate: Fraction, floor: int, cap: int | None) -> list[int]:
    """Shares at a rate, as numerators over its denominator."""
    low, high = floor * rate.denominator, None if cap is None else cap * rate.denominator
    raised = [max(weight * rate.numerator, low) for weight in weights]
    return raised if high is None else [min(share, high) for share in raised]


def _rate(weights: Sequence[int], positive: list[int], total: int, floor: int, cap: int | None) -> Fraction:
    """Cents per unit of weight at which the clamped shares add up to ``total``."""
    if floor == 0 and cap is None:
        return Fraction(total, sum(positive))
    # The sum is linear between two neighbouring breakpoints; find the two that enclose the total.
    limits = [floor] if cap is None else [floor, cap]
    ordered = sorted({Fraction(0)} | {Fraction(limit, weight) for weight in set(positive) for limit in limits})

    def paid(rate: Fraction) -> Fraction:
        return Fraction(sum(_clamped(weights, rate, floor, cap)), rate.denominator)

    start = ordered[bisect_right(ordered, Fraction(total), key=paid) - 1]
    moving = [w for w in positive if start * w >= floor and (cap is None or start * w < cap)]
    missing = total - paid(start)
    return start + missing / sum(moving) if missing else start
