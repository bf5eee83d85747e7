"""Allocation: who is paid what, and why."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift._archive import Arrays, Saved, from_json, to_json
from shapshift.price._money import Policy, show_money, to_decimal
from shapshift.price._owners import owner_column
from shapshift.valuation import to_table

if TYPE_CHECKING:
    from shapshift.price._audit import PayoutAudit

Floats = npt.NDArray[np.float64]
Cents = npt.NDArray[np.int64]


_ARRAYS = ("cents", "contributions", "values", "row_values", "row_counts", "codes", "ids")
_OPTIONAL = ("corrected", "low", "high", "uncorrected", "carried", "sampling_low", "sampling_high")


@dataclass(frozen=True, eq=False, repr=False)
class Allocation(Saved):
    """A budget shared out among the owners of training rows.

    Attributes
    ----------
    owners : tuple
        Owners, in order of first appearance.
    cents : ndarray of shape (n_owners,)
        What each is paid, in cents; as money, see ``payouts``.
    contributions : ndarray of shape (n_owners,)
        What payouts are in proportion to: at least 0.
    values : ndarray of shape (n_owners,)
        Total value of each owner, before negative ones are clipped.
    row_counts : ndarray of shape (n_owners,)
        Rows of each owner.
    row_values, ids, codes : ndarray of shape (n_train,)
        Value, id and owner number of each training row.
    budget_cents, reserve_cents, unallocated_cents : int
        The budget, what is kept back by the policy, and what could not be paid. Payouts, reserve and unallocated add
        up to the budget to the cent.
    policy : Policy
    basis : {"rows", "owners"}
        Whether contributions are sums over rows, or values of owners as players.
    currency : str
    corrected : ndarray of shape (n_owners,) or None
        Payouts, in cents, from the corrected values, when those were given.
    low, high : ndarray of shape (n_owners,) or None
        Lowest and highest payout in an audit, in cents, see :meth:`with_interval`.
    interval : str
        What the audit varied, such as "sigma up to 0.5" in symbols; empty without one.
    parameters : mapping
        What made the values.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        The caller's kind of table.
    uncorrected : ndarray of shape (n_owners,) or None
        Payouts, in cents, from the noisy values that were corrected, when those are not the ones that are paid.
    carried : ndarray of shape (n_owners,) or None
        Payouts, in cents, if negative rows reduced what their owner is paid, where the policy clips them and an owner
        with a negative total is paid for its helpful rows.
    sampling_low, sampling_high : ndarray of shape (n_owners,) or None
        Payouts, in cents, at both ends of the 95% interval of each owner's sampled value; None where values are exact.
        They say what more sampling may change, and are no part of ``low`` and ``high``.
    """

    archive_kind: ClassVar[str] = "shapshift.Allocation"
    archive_version: ClassVar[int] = 1

    owners: tuple[Any, ...]
    cents: Cents
    contributions: Floats
    values: Floats
    row_counts: npt.NDArray[np.int64]
    row_values: Floats
    ids: npt.NDArray[Any]
    codes: npt.NDArray[np.int64]
    budget_cents: int
    reserve_cents: int
    unallocated_cents: int
    policy: Policy
    basis: str
    currency: str
    corrected: Cents | None
    low: Cents | None
    high: Cents | None
    interval: str
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"
    uncorrected: Cents | None = None
    carried: Cents | None = None
    sampling_low: Cents | None = None
    sampling_high: Cents | None = None

    def __post_init__(self) -> None:
        for name in (*_ARRAYS, *_OPTIONAL):
            array = getattr(self, name)
            if array is not None:
                view = array.view()
                view.flags.writeable = False
                object.__setattr__(self, name, view)
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    @property
    def payouts(self) -> dict[Any, Decimal]:
        """What each owner is paid."""
        return {owner: to_decimal(cents) for owner, cents in zip(self.owners, self.cents, strict=True)}

    @property
    def budget(self) -> Decimal:
        """The budget."""
        return to_decimal(self.budget_cents)

    @property
    def reserve(self) -> Decimal:
        """What the policy keeps back."""
        return to_decimal(self.reserve_cents)

    @property
    def unallocated(self) -> Decimal:
        """What could not be paid: nobody contributed, all are at their cap, or odd cents were kept."""
        return to_decimal(self.unallocated_cents)

    @property
    def correction_changes(self) -> dict[Any, Decimal] | None:
        """By how much correction changes each payout; None without corrected values.

        That is from the payout, or from ``uncorrected`` where the payout itself rests on clean values.
        """
        if self.corrected is None:
            return None
        before = self.cents if self.uncorrected is None else self.uncorrected
        return {owner: to_decimal(change) for owner, change in zip(self.owners, self.corrected - before, strict=True)}

    @property
    def bound(self) -> tuple[str, ...]:
        """What holds each payout where it is: "floor", "cap", or "" where it is in proportion."""
        floor, cap, _ = self.policy.cents(self.budget_cents)
        return tuple("cap" if cents == cap else "floor" if 0 < cents == floor else "" for cents in self.cents)

    @property
    def notes(self) -> dict[Any, str]:
        """What the owners should know whose rows sum to a negative value and who are paid all the same."""
        if self.carried is None:
            return {}
        return {
            owner: "This owner's rows sum to a negative value; under 'clip' only its helpful rows count. Policy "
            f"'carry' would pay {show_money(self.carried[i], self.currency)}."
            for i, owner in enumerate(self.owners)
            if self.values[i] < 0 < self.contributions[i]
        }

    def sampling_note(self) -> str:
        """Say how far payouts may be off because owner values are sampled; empty where they are exact."""
        if self.sampling_low is None or self.sampling_high is None:
            return ""
        off = np.maximum(self.cents - self.sampling_low, self.sampling_high - self.cents)
        how = self.parameters["owner_values"]
        said = (
            f"Owner values are sampled with {how['n_permutations']:,} orders: a payout may be off by up to "
            f"{show_money(off.max(), self.currency)} to either side (95%), by "
            f"{show_money(np.median(off))} in the median."
        )
        return said if how["converged"] else f"{said} That is more than the tolerance of {how['tolerance']:g} allows."

    def compare(self, other: "Allocation") -> dict[Any, Decimal]:
        """By how much each owner is paid more in another allocation; an owner who is absent from one gets 0 there.

        Parameters
        ----------
        other : Allocation

        Returns
        -------
        dict
            Owner to amount.
        """
        before, after = self.payouts, other.payouts
        nothing = to_decimal(0)
        return {owner: after.get(owner, nothing) - before.get(owner, nothing) for owner in {**before, **after}}

    def with_interval(self, audit: "PayoutAudit", *, up_to: float | None = None, bounds: str = "range") -> Self:
        """Attach the interval in which each payout moves when the validation set does.

        Parameters
        ----------
        audit : PayoutAudit
            Of the same training rows, owners, budget and policy; its payouts on the unperturbed validation set must be
            these.
        up_to : float, optional
            Use the levels up to this one only, where levels are numbers.
        bounds : {"range", "quantiles"}, default="range"
            Lowest and highest payout over all runs and the unperturbed one; or, level by level, the 5% and 95%
            quantiles, of which the widest count.

        Returns
        -------
        Allocation
        """
        audit.check_same(self)
        low, high = audit.bounds(up_to=up_to, bounds=bounds)
        about = audit.about(up_to=up_to, bounds=bounds)
        return replace(
            self,
            low=low,
            high=high,
            interval=audit.condition(up_to=up_to, bounds=bounds),
            parameters={**self.parameters, "interval": about},
        )

    def line(self, owner: Any) -> str:
        """Say in one line what an owner is paid, within which interval, and what correction would change.

        Parameters
        ----------
        owner : hashable
        """
        if owner not in self.owners:
            raise ValueError(f"The 'owner' parameter must be one of the {len(self.owners)} owners. Got {owner!r}.")
        at = self.owners.index(owner)
        said = f"{owner}: {show_money(self.cents[at], self.currency)}"
        if self.low is not None and self.high is not None:
            said += f", between {show_money(self.low[at])} and {show_money(self.high[at])} under {self.interval}"
        if self.sampling_low is not None and self.sampling_high is not None:
            low, high = show_money(self.sampling_low[at]), show_money(self.sampling_high[at])
            said += f", {low} to {high} for the sampling of owner values (95%)"
        if self.corrected is not None:
            said += f", {show_money(self.corrected[at])} after correction"
        return said

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the payouts.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per owner: ``owner``, ``rows``, ``value``, ``contribution``, ``payout``; with an audit also ``low``
            and ``high``; with sampled owner values ``sampling_low`` and ``sampling_high``; with corrected values also
            ``corrected`` and ``change``. Money is in units of the currency; for exact amounts use ``payouts``.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "owner": owner_column(self.owners),
            "rows": self.row_counts,
            "value": self.values,
            "contribution": self.contributions,
            "payout": self.cents / 100,
        }
        if self.low is not None and self.high is not None:
            columns |= {"low": self.low / 100, "high": self.high / 100}
        if self.sampling_low is not None and self.sampling_high is not None:
            columns |= {"sampling_low": self.sampling_low / 100, "sampling_high": self.sampling_high / 100}
        if self.corrected is not None:
            before = self.cents if self.uncorrected is None else self.uncorrected
            columns |= {"uncorrected": self.uncorrected / 100} if self.uncorrected is not None else {}
            columns |= {"corrected": self.corrected / 100, "change": (self.corrected - before) / 100}
        return to_table(columns, None, kind or self.kind)

    def plot(self, *, top: int = 20, ax: Any = None) -> Any:
        """Draw the payouts, with their intervals and what correction changes.

        Parameters
        ----------
        top : int, default=20
            Owners to draw, those paid most; the others are summed up in one bar.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes
        """
        from shapshift.plots.price import plot_payouts

        return plot_payouts(self, top=top, ax=ax)

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        header = {
            "owners": [to_json(owner, "an owner") for owner in self.owners],
            "policy": self.policy.to_dict(),
            "parameters": dict(self.parameters),
            **{name: getattr(self, name) for name in _PLAIN},
        }
        arrays = {name: getattr(self, name) for name in (*_ARRAYS, *_OPTIONAL) if getattr(self, name) is not None}
        return header, arrays

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        parts: dict[str, Any] = {name: arrays[name] for name in _ARRAYS}
        parts |= {name: arrays.get(name) for name in _OPTIONAL} | {name: header[name] for name in _PLAIN}
        loaded = cls(
            **parts,
            owners=tuple(from_json(owner) for owner in header["owners"]),
            policy=Policy(**header["policy"]),
            parameters=header["parameters"],
        )
        loaded._check_whole()
        return loaded

    def _check_whole(self) -> None:
        n, rows = (len(self.owners),), self.codes.shape
        for name in ("cents", "contributions", "values", "row_counts", *_OPTIONAL):
            array = getattr(self, name)
            if array is not None and array.shape != n:
                raise ValueError(f"{name!r} has shape {array.shape}, not {n}")
        if not self.row_values.shape == self.ids.shape == rows:
            raise ValueError("its rows do not fit together")
        if int(self.cents.sum()) + self.reserve_cents + self.unallocated_cents != self.budget_cents:
            raise ValueError("its payouts do not add up to the budget")

    def __repr__(self) -> str:
        parts = [f"budget={show_money(self.budget_cents, self.currency)}", f"n_owners={len(self.owners)}"]
        if self.cents.size:
            parts.append(f"payouts={show_money(self.cents.min())} to {show_money(self.cents.max())}")
        parts += [f"reserve={show_money(self.reserve_cents)}"] if self.reserve_cents else []
        parts += [f"unallocated={show_money(self.unallocated_cents)}"] if self.unallocated_cents else []
        parts += [f"audited under {self.interval}"] if self.interval else []
        return f"Allocation({', '.join(parts)})"


_PLAIN = (
    "budget_cents",
    "reserve_cents",
    "unallocated_cents",
    "basis",
    "currency",
    "interval",
    "fingerprint",
    "kind",
)
