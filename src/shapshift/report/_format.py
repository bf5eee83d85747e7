"""Numbers for people."""

import math
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.checks.names import JOINERS, visible
from shapshift.price import Allocation

Floats = npt.NDArray[np.float64]

NOTHING = "\N{EN DASH}"
MINUS = "\N{MINUS SIGN}"
TIMES = "\N{MULTIPLICATION SIGN}"
_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
# Longer texts from the data are cut.
LONGEST = 80


@dataclass(frozen=True)
class Unit:
    """The power of ten in which a page shows values, so that they read 2.31 instead of 0.000231.

    Attributes
    ----------
    exponent : int
        Values are divided by 10 to this power.
    """

    exponent: int

    @property
    def label(self) -> str:
        """Such as "x10⁻⁴", with a proper sign; empty for plain numbers."""
        return f"{TIMES}10{str(self.exponent).translate(_RAISED)}" if self.exponent else ""

    def scale(self, values: Any) -> Floats:
        """Values in this unit."""
        # Dividing would need a power of ten too small for floats.
        scaled: Floats = np.asarray(values, dtype=np.float64) * 10.0**-self.exponent
        return scaled

    def axis(self, name: str) -> str:
        """Name of an axis with the unit."""
        return f"{name} ({self.label})" if self.exponent else name

    def show(self, value: float) -> str:
        """One value with its unit, for a sentence."""
        shown = number(float(self.scale(value)))
        return f"{shown}{self.label}" if self.exponent and value else shown


def unit_for(values: Floats) -> Unit:
    """Find the unit in which most values lie between 0.1 and 100.

    Examples
    --------
    >>> unit_for(np.array([0.00021, -0.0004, 0.0003])).exponent, unit_for(np.array([1.5, 20.0])).exponent
    (-4, 0)
    """
    size = np.abs(values[values != 0])
    if size.size == 0:
        return Unit(0)
    exponent = math.floor(math.log10(float(np.quantile(size, 0.75))))
    # 10**300 and beyond have no reciprocal to multiply by.
    return Unit(0 if -1 <= exponent <= 2 else max(min(exponent, 300), -300))


def number(value: float, digits: int = 3) -> str:
    """Write a number with a few significant digits and no needless exponent.

    Examples
    --------
    >>> number(0.12345), number(1234567.0), number(0.0), number(1.5)
    ('0.123', '1,230,000', '0', '1.5')
    """
    value = float(value)
    if not math.isfinite(value):
        return NOTHING
    if value == 0:
        return "0"
    exponent = math.floor(math.log10(abs(value)))
    sign = MINUS if value < 0 else ""
    if -4 < exponent < 9:
        rounded = round(value, digits - 1 - exponent)
        decimals = max(0, digits - 1 - exponent)
        shown = f"{abs(rounded):,.{decimals}f}"
        return sign + (shown.rstrip("0").rstrip(".") if "." in shown else shown)
    mantissa, power = f"{abs(value):.{digits - 1}e}".split("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    return f"{sign}{mantissa}{TIMES}10{str(int(power)).translate(_RAISED)}"


def fixed(value: float, decimals: int = 2) -> str:
    """Write a number such as a correlation with a fixed number of decimals; "0.00" never has a sign."""
    if not math.isfinite(value):
        return NOTHING
    shown = f"{abs(value):,.{decimals}f}"
    return MINUS + shown if value < 0 and float(shown.replace(",", "")) != 0 else shown


def count(value: float) -> str:
    """Write a whole number with thousands separators; means of counts are rounded."""
    return fixed(round(value), 0) if math.isfinite(value) else NOTHING


def percent(share: float) -> str:
    """Write a share as a percentage; small ones and those near 100% keep a decimal.

    Examples
    --------
    >>> percent(0.824), percent(0.0042), percent(0.9996), percent(1.0), percent(0.00001)
    ('82%', '0.4%', '99.9%', '100%', '<0.1%')
    """
    if not math.isfinite(share):
        return NOTHING
    near_end = 0 < abs(share) < 0.01 or 0.99 < share < 1
    if 0 < share < 0.0005:
        return "<0.1%"
    shown = min(round(100 * share, 1), 99.9) if share < 1 else 100 * share
    return fixed(shown, 1 if near_end else 0) + "%"


def money(allocation: Allocation, cents: int, *, label: bool = True) -> str:
    """Cents of an allocation for a reader, with a minus sign that is as long as a plus."""
    shown = allocation.show(abs(cents), label=label)
    return f"{MINUS}{shown}" if cents < 0 else shown


def change(ratio: float) -> str:
    """How a quantity changed, given new over old: "falls by 13%", "more than doubles".

    Examples
    --------
    >>> change(0.87), change(1.004), change(1.2), change(2.5)
    ('falls by 13%', 'stays the same', 'rises by 20%', 'grows to 2.5 times')
    """
    if not math.isfinite(ratio):
        return "cannot be compared"
    if abs(ratio - 1) < 0.005:
        return "stays the same"
    if ratio >= 2:
        return f"grows to {number(ratio, 2)} times"
    return f"falls by {percent(1 - ratio)}" if ratio < 1 else f"rises by {percent(ratio - 1)}"


def plural(n: float, thing: str) -> str:
    """Such as "1 row" or "1,204 rows"."""
    shown = count(n)
    return f"{shown} {thing}" if shown == "1" else f"{shown} {thing}s"


def rows(n: float) -> str:
    """Such as "1 row" or "1,204 rows"."""
    return plural(n, "row")


def either(n: float, one: str, many: str) -> str:
    """Return the word that goes with the number."""
    return one if abs(n) == 1 else many


def capital(text: str) -> str:
    """Return a text that starts with a capital."""
    return text[:1].upper() + text[1:]


def listed(names: list[str]) -> str:
    """Such as "a, b and c"."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def cell(entry: Any) -> str:
    """Write one entry of the caller's table: numbers that a browser can read back, texts cut to a line."""
    if entry is None:
        return ""
    if isinstance(entry, np.generic):
        entry = entry.item()
    if isinstance(entry, bool):
        return str(entry).lower()
    if isinstance(entry, float):
        return figure(entry)
    text = visible(" ".join(str(entry).split()))
    if len(text) <= LONGEST:
        return text
    # Cut in the middle, as names often differ only at the end.
    return f"{text[: LONGEST - LONGEST // 2 - 1]}…{text[-(LONGEST // 2) :]}"


def figure(entry: Any) -> str:
    """Write one number of the caller's table: a browser can read it back without its commas.

    Examples
    --------
    >>> figure(70760.0), figure(2019), figure(0.123456), figure(-1234.56), figure(0.0000001234)
    ('70,760', '2019', '0.1235', '-1234.6', '1.234e-07')
    """
    value = float(entry)
    if not math.isfinite(value):
        return "" if math.isnan(value) else "∞" if value > 0 else "-∞"
    size = abs(value)
    if size >= 1e15:
        return f"{value:.4g}"
    if value == int(value):
        shown = f"{int(value):,}"
    elif size >= 1000:
        shown = f"{value:,.1f}"
    else:
        shown = f"{value:.4g}"
    # Four digits are often a year or a count.
    return shown if size >= 10_000 else shown.replace(",", "")


def distinct(names: Sequence[Any]) -> list[str]:
    """Write names as :func:`cell` does, numbered where two different ones would look the same.

    Examples
    --------
    >>> distinct(["a", 1, "1"])
    ['a', '1 (#2)', '1 (#3)']
    """
    shown = [cell(name) for name in names]
    # Repeated if a name is spelled like a numbered one.
    while len(taken := Counter(_look(text) for text in shown)) < len(shown):
        shown = [f"{text} (#{i + 1})" if taken[_look(text)] > 1 else text for i, text in enumerate(shown)]
    return shown


def _look(text: str) -> str:
    plain = unicodedata.normalize("NFKC", text)
    return "".join(c for c in plain if c not in JOINERS)


def rounded(values: Any, digits: int = 4) -> list[float | None]:
    """Numbers for a chart: a few significant digits, None if a number is missing."""
    return [float(f"{x:.{digits}g}") if math.isfinite(x) else None for x in np.asarray(values, dtype=float).tolist()]
