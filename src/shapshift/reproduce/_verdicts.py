"""How numbers become verdicts: one three-way rule for every claim."""

from collections.abc import Iterable
from dataclasses import dataclass

from shapshift.reproduce._summary import Interval, Table

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds only when", "does not hold", "undecided"
FOR, AGAINST, UNDECIDED = "for", "against", "undecided"


@dataclass(frozen=True)
class Claim:
    """One claim and its verdict.

    Attributes
    ----------
    claim : str
        What the paper says.
    test : str
        What was tested, and how.
    verdict : {"holds", "holds only when", "does not hold", "undecided"}
    where : dict of str to list of str
        Settings that speak for the claim, against it, and those that leave it undecided.
    evidence : list of dict
        The numbers: one row per setting.
    claimed : bool
        Whether the paper claims it; else it is what a user should know beside.
    """

    claim: str
    test: str
    verdict: str
    where: dict[str, list[str]]
    evidence: Table
    claimed: bool = True

    @property
    def because(self) -> str:
        """Say where it holds and where it does not."""
        total = sum(len(names) for names in self.where.values())
        parts = [f"{name}: {', '.join(names)}" for name, names in self.where.items() if names and len(names) < total]
        if self.verdict == PARTLY:
            parts[0] = f"{len(self.where[FOR])} of {total} settings speak {parts[0]}"
        elif not parts:
            side = next(name for name, names in self.where.items() if names)
            parts = [f"all {total} settings" if side == FOR else f"{side}: all {total} settings"]
        return "; ".join(parts) + "."


def make_claim(claim: str, test: str, found: dict[str, str], evidence: Table, *, claimed: bool = True) -> Claim:
    """Turn what each setting says into a verdict."""
    where = {side: [name for name, said in found.items() if said == side] for side in (FOR, AGAINST, UNDECIDED)}
    if len(where[FOR]) == len(found):
        verdict = HOLDS
    elif where[FOR]:
        verdict = PARTLY
    else:
        verdict = FAILS if where[AGAINST] else OPEN
    return Claim(claim, test, verdict, where, evidence, claimed)


def below(number: Interval, bound: float) -> str:
    """Whether a number is claimed to lie below a bound, judged by its whole interval."""
    return FOR if number.high < bound else AGAINST if number.low > bound else UNDECIDED


def above(number: Interval, bound: float) -> str:
    """Whether a number is claimed to lie above a bound, judged by its whole interval."""
    return FOR if number.low > bound else AGAINST if number.high < bound else UNDECIDED


def within(number: Interval, low: float, high: float) -> str:
    """Whether a number is claimed to lie in a range, judged by its whole interval."""
    if low <= number.low and number.high <= high:
        return FOR
    return AGAINST if number.low > high or number.high < low else UNDECIDED


def every(said: Iterable[str]) -> str:
    """Join what several noise levels say: one against is enough, for needs all."""
    found = set(said)
    return AGAINST if AGAINST in found else FOR if found == {FOR} else UNDECIDED
