"""allocate_budget shares out a budget among owners; Allocation holds the payouts and their derivation."""

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks.labels import Ownership, check_owners, owner_column
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.price.money import show_money, to_decimal
from shapshift.price.owners import OwnerValues
from shapshift.price.policy import Policy, Terms
from shapshift.price.privacy import Privacy
from shapshift.price.sampling import block_sums, share_errors
from shapshift.valuation import Valuation

if TYPE_CHECKING:
    from shapshift.price.payout_audit import PayoutAudit
    from shapshift.price.rule import Rule

Floats = npt.NDArray[np.float64]
Cents = npt.NDArray[np.int64]

#: Source of a payout's sampling interval; the latter in files of release 0.1.0, which sampled values of owners.
POINTS, OWNER_VALUES = "validation points", "owner values"
#: Payouts, in cents, that an allocation may hold besides the paid ones.
OTHER_PAYOUTS = (
    *("sampling_low", "sampling_high", "low", "high", "uncorrected", "corrected", "carried"),
    *("unprotected", "noise_mean", "noise_high"),
)


@dataclass(frozen=True, eq=False, repr=False)
class Allocation(Result):
    """A budget shared out among the owners of training rows.

    Attributes
    ----------
    owners : tuple
        Owners, in order of first appearance.
    cents : ndarray of shape (n_owners,)
        Payout of each, in cents; as money, see ``payouts``. Negative for an owner who is charged, see the policy's
        ``deposit``.
    contributions : ndarray of shape (n_owners,)
        Payouts are in proportion to these: the total value of each owner, or under "clip" of its rows with positive
        values. An owner with a negative contribution is paid nothing, or charged.
    values : ndarray of shape (n_owners,)
        Total value of each owner, negative rows included.
    row_counts : ndarray of shape (n_owners,)
        Rows of each owner.
    row_values, ids, codes : ndarray of shape (n_train,)
        Value, id and owner number of each training row.
    budget_cents, reserve_cents, unallocated_cents : int
        The budget, the policy's reserve, and the amount that could not be paid or was charged to deposits, see
        ``collected``. Payouts, reserve and unallocated add up to the budget to the cent.
    policy : Policy
    basis : {"rows", "owners"}
        Whether contributions are sums over rows, or values of owners as players.
    currency : str
    corrected : ndarray of shape (n_owners,) or None
        Payouts, in cents, from the corrected values, if given.
    low, high : ndarray of shape (n_owners,) or None
        Lowest and highest payout in an audit, in cents, see :meth:`with_interval`.
    interval : str
        What the audit varied, such as "sigma up to 0.5" in symbols; empty without one.
    parameters : mapping
        Parameters of the valuation.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".
    uncorrected : ndarray of shape (n_owners,) or None
        Payouts, in cents, from the noisy values that were corrected, when those are not the ones that are paid.
    carried : ndarray of shape (n_owners,) or None
        Payouts, in cents, if negative rows reduced their owner's payout. Given if the policy clips them and an owner
        with a negative total is paid for its rows with positive values.
    sampling_low, sampling_high : ndarray of shape (n_owners,) or None
        Bounds of a 95% interval of the payout on another sample of validation points, in cents. None if unknown.
        Separate from ``low`` and ``high``, which describe noise in the same points.
    sampled : str
        Source of that interval: "validation points", or "owner values" in files of release 0.1.0; empty without one.
    digits : int
        Decimal places of an amount: a "cent" of this result is 1 / 10**digits of the currency.
    unprotected : ndarray of shape (n_owners,) or None
        Payouts, in cents, before rounding and noise, if used, see :class:`Privacy`. Do not show them to sellers.
    noise_mean, noise_high : ndarray of shape (n_owners,) or None
        Change of each payout due to noise, in cents: mean, and 95% quantile. None without noise.
    first : ndarray of shape (n_train,) or None
        Position of the row that votes on behalf of each row: its own if it votes itself; rows that do not vote have
        value 0. None if every row votes. See :func:`shapshift.price.find_clusters`.
    """

    archive_kind: ClassVar[str] = "shapshift.Allocation"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("owners", "cents", "contributions", "values", "row_counts", *OTHER_PAYOUTS), "n_owners"),
        **dict.fromkeys(("codes", "ids", "row_values", "first"), "n_train"),
    }

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
    digits: int = 2
    sampled: str = ""
    unprotected: Cents | None = None
    noise_mean: Cents | None = None
    noise_high: Cents | None = None
    first: npt.NDArray[np.int64] | None = None

    def show(self, cents: int, *, label: bool = True) -> str:
        """Format cents of this result, such as ``1,250.50 EUR``; without the currency if ``label`` is false."""
        return show_money(cents, self.currency if label else "", self.digits)

    def _money(self, cents: int) -> Decimal:
        return to_decimal(cents, self.digits)

    def _by_owner(self, cents: Cents) -> dict[Any, Decimal]:
        return dict(zip(self.owners, map(self._money, cents), strict=True))

    @property
    def payouts(self) -> dict[Any, Decimal]:
        """Payout of each owner."""
        return self._by_owner(self.cents)

    @property
    def budget(self) -> Decimal:
        """The budget."""
        return self._money(self.budget_cents)

    @property
    def reserve(self) -> Decimal:
        """Amount that the policy keeps back."""
        return self._money(self.reserve_cents)

    @property
    def unallocated(self) -> Decimal:
        """Amount not paid (nobody contributed, all are at their cap, odd cents were kept), or charged to deposits."""
        return self._money(self.unallocated_cents)

    @property
    def collected_cents(self) -> int:
        """Charges against deposits, in cents; they go back to the buyer."""
        return -int(np.minimum(self.cents, 0).sum())

    @property
    def collected(self) -> Decimal:
        """Charges against deposits; they go back to the buyer."""
        return self._money(self.collected_cents)

    @property
    def correction_changes(self) -> dict[Any, Decimal] | None:
        """Change of each payout by correction; None without corrected values.

        The change counts from the payout, or from ``uncorrected`` if the payout itself is computed from clean values.
        """
        return None if self.corrected is None else self._by_owner(self.corrected - self._before_correction)

    @property
    def _before_correction(self) -> Cents:
        return self.cents if self.uncorrected is None else self.uncorrected

    @property
    def bound(self) -> tuple[str, ...]:
        """Limit that determines each payout: "floor", "cap", "deposit", or "" for a proportional payout."""
        floor, cap, _ = self.policy.cents(self.budget_cents, self.digits)
        held = {cap: "cap", floor or None: "floor", -self.policy.charged(self.digits) or None: "deposit"}
        return tuple(held.get(int(cents), "") for cents in self.cents)

    @property
    def notes(self) -> dict[Any, str]:
        """Notes for owners whose rows sum to a negative value and who are paid nevertheless."""
        if self.carried is None:
            return {}
        return {
            owner: "This owner's rows sum to a negative value; under 'clip' only its rows with positive values count. "
            f"Policy 'carry' would pay {self.show(self.carried[i])}."
            for i, owner in enumerate(self.owners)
            if self.values[i] < 0 < self.contributions[i]
        }

    def sentences(self) -> list[str]:
        """Return sentences that describe the rule of payment."""
        if (rule := self._rule()) is not None:
            return rule.sentences(self.currency, self.digits, self.parameters)
        total = "the value of all its rows entering together"
        if self.basis == "rows":
            total = f"the sum of the {'positive ' if self.policy.negatives == 'clip' else ''}values of its rows"
        return [f"An owner's contribution is {total}.", *self.policy.sentences(self.currency, self.digits)]

    def invites(self) -> list[str]:
        """Return one sentence for each trick by which an owner can gain under the rule."""
        rule = self._rule()
        return self.policy.invites() if rule is None else rule.invites()

    def _rule(self) -> "Rule | None":
        from shapshift.price.rule import Rule

        made = self.parameters.get("rule")
        return None if made is None else Rule.from_dict(made)

    def sampling_note(self) -> str:
        """Return the sampling error of the payouts in words; empty if unknown."""
        if self.sampling_low is None or self.sampling_high is None:
            return ""
        off = np.maximum(self.cents - self.sampling_low, self.sampling_high - self.cents)
        said = (
            f": a payout may be off by up to {self.show(off.max())} to either side for that (95%), by "
            f"{self.show(np.median(off), label=False)} in the median."
        )
        points = f"he {self.parameters['n_val']:,} validation points are a sample"
        if self.sampled == POINTS:
            return f"T{points}{said}"
        how = self.parameters["owner_values"]
        said = f"Owner values are sampled with {how['n_permutations']:,} orders{said}"
        return said if how["converged"] else f"{said} The orders do not reach the tolerance of {how['tolerance']:g}."

    @property
    def private(self) -> bool:
        """Whether payouts are rounded or noisy, see :class:`Privacy`."""
        return "privacy" in self.parameters

    def privacy_note(self) -> str:
        """Return the cost of rounding and noise to the owners, in words; empty without both."""
        facts = self.parameters.get("privacy", {})
        said = []
        if self.noise_mean is not None and self.noise_high is not None:
            (mean, most), (high, highest) = (
                (self.show(int(np.median(moved))), self.show(moved.max()))
                for moved in (self.noise_mean, self.noise_high)
            )
            said.append(
                f"Noise (epsilon {facts['epsilon']:g}) changes a payout by {mean} on average and by more than {high} "
                f"in 1 of 20 cases (the median owner; {most} and {highest} for the owner with most)."
            )
        if "step" in facts:
            said.append(f"Payouts are rounded to multiples of {facts['step']} {self.currency}.")
        return " ".join(said)

    def compare(self, other: "Allocation") -> dict[Any, Decimal]:
        """Increase of each owner's payout in another allocation; an owner absent from one counts as 0 there.

        Parameters
        ----------
        other : Allocation

        Returns
        -------
        dict
            Owner to amount.
        """
        before, after = self.payouts, other.payouts
        nothing = self._money(0)
        return {owner: after.get(owner, nothing) - before.get(owner, nothing) for owner in {**before, **after}}

    def with_interval(self, audit: "PayoutAudit", *, up_to: float | None = None, bounds: str = "range") -> Self:
        """Attach the interval of each payout under changes of the validation set.

        Parameters
        ----------
        audit : PayoutAudit
            Audit of the same training rows, owners, budget and policy, with the same payouts on the unperturbed
            validation set.
        up_to : float, optional
            Use the levels up to this one only, where levels are numbers.
        bounds : {"range", "quantiles"}, default="range"
            Lowest and highest payout over all runs and the unperturbed one; or the widest of the 5% and 95% quantiles
            of each level.

        Returns
        -------
        Allocation
        """
        audit.check_same(self)
        low, high = audit.bounds(up_to=up_to, bounds=bounds)
        facts = {**self.parameters, "interval": audit.about(up_to=up_to, bounds=bounds)}
        interval = audit.condition(up_to=up_to, bounds=bounds)
        sample: dict[str, Any] = {}
        if self.sampling_low is None and audit.sampling_low is not None:
            sample = {"sampling_low": audit.sampling_low, "sampling_high": audit.sampling_high, "sampled": POINTS}
        return replace(self, low=low, high=high, interval=interval, parameters=facts, **sample)

    def line(self, owner: Any) -> str:
        """Return an owner's payout, its interval and its change by correction in one line.

        Parameters
        ----------
        owner : hashable
        """
        if owner not in self.owners:
            raise InputError(
                f"The 'owner' parameter must be one of the {len(self.owners)} owners. Got {check.quoted(owner)}."
            )
        at = self.owners.index(owner)
        said = f"{owner}: {self.show(self.cents[at])}"
        if self.sampling_low is not None and self.sampling_high is not None:
            low, high = (self.show(end[at], label=False) for end in (self.sampling_low, self.sampling_high))
            said += f", {low} to {high} for the sampling of {self.sampled or OWNER_VALUES} (95%)"
        if self.low is not None and self.high is not None:
            low, high = self.show(self.low[at], label=False), self.show(self.high[at], label=False)
            said += f", between {low} and {high} under {self.interval}"
        if self.corrected is not None:
            said += f", {self.show(self.corrected[at], label=False)} after correction"
        return said

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the payouts.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per owner: ``owner``, ``rows``, ``contribution``, and ``payout``, which is in proportion to it
            except for floor, cap and deposit; if known ``sampling_low`` and ``sampling_high``; with an audit also
            ``low`` and ``high``; with corrected values also ``corrected`` and ``change``. If negative rows count as
            zero, ``value_of_all_rows`` follows the contribution. Money is in units of the currency; for exact amounts
            use ``payouts``.
        """
        columns: dict[str, npt.NDArray[Any]] = {"owner": owner_column(self.owners), "rows": self.row_counts}
        columns |= self.measures()
        columns |= {name: cents / 10**self.digits for name, cents in self.amounts().items()}
        return to_table(columns, None, kind or self.kind)

    def measures(self) -> dict[str, Floats]:
        """Columns of :meth:`to_frame` on the owners' contributions."""
        same = np.array_equal(self.values, self.contributions)
        return {"contribution": self.contributions} | ({} if same else {"value_of_all_rows": self.values})

    def amounts(self) -> dict[str, Cents]:
        """Columns of :meth:`to_frame` that are money, in cents."""
        found = {"payout": self.cents} | {name: getattr(self, name) for name in OTHER_PAYOUTS if name != "carried"}
        if self.corrected is not None:
            found["change"] = self.corrected - self._before_correction
        return {name: cents for name, cents in found.items() if cents is not None}

    def plot(self, *, top: int = 20, ax: Any = None) -> Any:
        """Draw the payouts, with their intervals and changes by correction.

        Parameters
        ----------
        top : int, default=20
            Number of owners to draw, those paid most; one bar sums up the others.
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes
        """
        from shapshift.plots.results import plot_payouts

        return plot_payouts(self, top=top, ax=ax)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        if int(self.cents.sum()) + self.reserve_cents + self.unallocated_cents != self.budget_cents:
            raise InputError("its payouts do not add up to the budget")

    def __repr__(self) -> str:
        parts = [f"budget={self.show(self.budget_cents)}", f"n_owners={len(self.owners)}"]
        if self.cents.size:
            least, most = (self.show(end, label=False) for end in (self.cents.min(), self.cents.max()))
            parts.append(f"payouts={least} to {most}")
        rest = self.unallocated_cents - self.collected_cents
        amounts = {"reserve": self.reserve_cents, "collected": self.collected_cents, "unallocated": rest}
        for name, cents in amounts.items():
            parts += [f"{name}={self.show(cents, label=False)}"] if cents else []
        parts += [f"audited under {self.interval}"] if self.interval else []
        return f"Allocation({', '.join(parts)})"


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
    privacy: Privacy | None = None,
) -> Allocation:
    """Share out a budget among the owners of training rows.

    Parameters
    ----------
    valuation : Valuation
        Values of the training rows. With ``groups=random_blocks(n_val, n_train)`` (or ``matrix=True``) the result
        includes intervals of the payouts on another sample of validation points, see ``Allocation.sampling_low``.
    budget : int, float, Decimal or str
        At most as many decimals as the currency has: two for EUR, none for JPY.
    owners : array-like of shape (n_train,)
        One owner per training row: any hashable names. A pandas Series is matched to the rows by its index; anything
        else by position.
    policy : Policy, optional
        By default payouts are in proportion to the sum of each owner's row values, and 0 for negative sums.
    values : OwnerValues, optional
        Pay for these values of owners as players, see :func:`owner_values`, instead of sums over rows. If they are
        sampled, the result includes the sampling error of each payout, see ``Allocation.sampling_low``, and a warning
        names the largest one if the sampling did not reach its tolerance.
    corrected : Valuation, optional
        The same values after correction: the result then includes the changes by correction, see
        ``Allocation.correction_changes``. To pay the corrected values, pass them as ``valuation``.
    noisy : Valuation, optional
        The valuation that was corrected, if it is not the paid one: when ``valuation`` is clean and ``corrected`` comes
        from a noisy version of the validation set. Changes by correction then count from it.
    audit : PayoutAudit, optional
        Attach its intervals, see :meth:`Allocation.with_interval`.
    currency : str, default="EUR"
        Label of amounts. Amounts are counted in the currency's smallest unit in use (Unicode CLDR): no decimals for
        JPY, three for KWD; two for a name that is not a currency.
    privacy : Privacy, optional
        Round the payouts, or add noise, so that they reveal little about single validation points to sellers. The
        result then has no sampling intervals, and states the cost of privacy: ``Allocation.privacy_note``.

    Returns
    -------
    Allocation

    Notes
    -----
    Payouts, reserve and the unallocated rest add up to the budget to the cent. Contributions are summed exactly and
    shared out in integers, so neither row order nor rounding affects a cent. Cents left over by rounding down go to the
    largest remainders, among equal ones to the larger contribution, and between exactly equal contributions according
    to the policy's ``odd_cents``. No rule uses names: nobody gains by a new one.

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
    terms = Terms.check("allocate_budget", budget, policy, currency)
    check_payable("valuation", valuation)
    if noisy is not None and corrected is None:
        raise InputError("The 'noisy' parameter of allocate_budget goes with 'corrected'. Pass both, or neither.")
    ownership = check_owners(owners, valuation.ids)
    if values is not None:
        _check_owner_values(values, valuation, ownership)
    others = {"corrected": corrected, "noisy": noisy}
    for name, other in others.items():
        if other is not None:
            _check_other(name, other, valuation, values)
    if privacy is not None:
        check.check_type("allocate_budget", "privacy", privacy, Privacy, "a Privacy, such as Privacy(step=10)")
        if corrected is not None or audit is not None:
            raise InputError(
                "The 'privacy' parameter of allocate_budget does not go with 'corrected' or 'audit', which would tell "
                "what rounding and noise hide. Leave one of them out."
            )
    made = share_out(valuation, ownership, terms, values, **others, privacy=privacy)
    return made if audit is None else made.with_interval(audit)


def share_out(
    valuation: Valuation,
    ownership: Ownership,
    terms: Terms,
    values: OwnerValues | None = None,
    corrected: Valuation | None = None,
    noisy: Valuation | None = None,
    privacy: Privacy | None = None,
) -> Allocation:
    """Do the work of :func:`allocate_budget` on checked arguments, without interval and warning."""
    policy, keys = terms.policy, draw_keys(ownership, valuation.ids, terms.budget)

    def paid_for(other: Valuation | None, negatives: str = policy.negatives) -> Cents | None:
        if other is None:
            return None
        return terms.pay(row_contributions(other.values, ownership, negatives)[1], keys)[0]

    if values is None:
        totals, contributions = row_contributions(valuation.values, ownership, policy.negatives)
    else:
        totals, contributions = values.values, player_contributions(values.values, policy.negatives)
    paid, reserve, unallocated = terms.pay(contributions, keys)
    low, high, sampled, private, facts = None, None, "", {}, {}
    if privacy is None:
        low, high, sampled = sampled_payouts(valuation, ownership, contributions, values, paid, terms)
    else:
        released = privacy.release(contributions, keys, valuation, values)
        contributions = player_contributions(released.contributions, policy.negatives)
        facts = {"privacy": released.facts}
        private["unprotected"] = paid
        exact, reserve, unallocated = terms.pay(contributions, keys)
        paid = privacy.rounded(exact, terms, contributions, keys)
        unallocated += int(exact.sum() - paid.sum())
        if released.scale:
            private["noise_mean"], private["noise_high"] = privacy.cost(released, terms)
    harmful = values is None and policy.negatives == "clip" and ((totals < 0) & (contributions > 0)).any()
    return Allocation(
        owners=ownership.names,
        cents=paid,
        contributions=contributions,
        values=totals,
        row_counts=ownership.counts,
        row_values=valuation.values,
        ids=valuation.ids,
        codes=ownership.codes,
        budget_cents=terms.budget,
        reserve_cents=reserve,
        unallocated_cents=unallocated,
        policy=policy,
        basis="rows" if values is None else "owners",
        currency=terms.currency,
        corrected=paid_for(corrected),
        low=None,
        high=None,
        interval="",
        parameters=_parameters(valuation, values) | facts,
        fingerprint=valuation.fingerprint,
        kind=valuation.kind,
        uncorrected=paid_for(noisy),
        carried=paid_for(valuation, "carry") if harmful and privacy is None else None,
        sampling_low=low,
        sampling_high=high,
        digits=terms.digits,
        sampled=sampled,
        **private,
    )


def draw_keys(ownership: Ownership, ids: npt.NDArray[Any], budget: int) -> list[bytes]:
    """One hash per owner that assigns odd cents, made of the budget and the ids of the rows, but no name."""
    plain = [repr(entry) for entry in ids.tolist()]
    keys = []
    for rows in ownership.rows_of():
        digest = hashlib.blake2b(str(budget).encode(), digest_size=16)
        for entry in sorted(plain[row] for row in rows):
            digest.update(b"\n" + entry.encode("utf-8", "backslashreplace"))
        keys.append(digest.digest())
    return keys


def sampled_payouts(
    valuation: Valuation,
    ownership: Ownership,
    contributions: Floats,
    values: OwnerValues | None,
    paid: Cents,
    terms: Terms,
) -> tuple[Cents, Cents, str] | tuple[None, None, str]:
    """Payouts, in cents, at both ends of the interval of each owner's contribution, and the source of the interval.

    The pay per unit of contribution is held fixed: the interval is of shares.
    """
    if values is not None:
        if values.block_sums is None or values.block_sizes is None:
            return None, None, ""
        half, sampled = share_errors(values.block_sums, values.block_sizes, values.values), POINTS
        ends = values.values - half, values.values + half
    else:
        blocks = block_sums(valuation)
        if blocks is None:
            return None, None, ""
        counted = valuation.values > 0 if terms.policy.negatives == "clip" else np.ones(valuation.n_train, dtype=bool)
        rows = np.flatnonzero(counted)
        of_owner = np.zeros((ownership.counts.size, blocks[1].size))
        np.add.at(of_owner, ownership.codes[rows], blocks[0][:, rows].T)
        totals = of_owner.sum(axis=1) / blocks[1].sum()
        half = share_errors(of_owner.T, blocks[1], totals)
        ends, sampled = (totals - half, totals + half), POINTS
    floor, cap, reserve = terms.limits
    left = terms.budget - reserve
    most = left if cap is None else min(cap, left)
    free = (contributions > 0) & (paid > floor) & (paid < most)
    free = free if free.any() else contributions > 0
    total = math.fsum(contributions[free])
    rate = float(paid[free].sum()) / total if total else 0.0
    least = -terms.deposit if terms.deposit else floor
    low = np.clip(np.floor(rate * ends[0]), least, most).astype(np.int64)
    high = np.clip(np.ceil(rate * ends[1]), least, most).astype(np.int64)
    return np.minimum(low, paid), np.maximum(high, paid), sampled


def row_contributions(values: Floats, ownership: Ownership, negatives: str) -> tuple[Floats, Floats]:
    """Total value and contribution of each owner; sums are exactly rounded, so row order does not affect them."""
    by_owner = [values[rows].tolist() for rows in ownership.rows_of()]
    totals = np.array([math.fsum(own) for own in by_owner])
    if negatives == "carry":
        return totals, totals
    return totals, np.array([math.fsum(value for value in own if value > 0) for own in by_owner])


def player_contributions(values: Floats, negatives: str) -> Floats:
    """Contribution of each owner that is a player."""
    return values if negatives == "carry" else np.maximum(values, 0.0)


def _check_owner_values(values: Any, valuation: Valuation, ownership: Ownership) -> None:
    check.check_type("allocate_budget", "values", values, OwnerValues, "what owner_values returned")
    same = values.owners == ownership.names and np.array_equal(values.codes, ownership.codes)
    if values.fingerprint != valuation.fingerprint or not same:
        raise InputError(
            "The 'values' parameter of allocate_budget must belong to the same training rows and owners as "
            "'valuation' and 'owners'. Compute owner_values with the same model and owners."
        )


def _parameters(valuation: Valuation, values: OwnerValues | None) -> dict[str, Any]:
    parameters = {
        "n_train": valuation.n_train,
        "n_val": valuation.n_val,
        **valuation.parameters,
        "boundary_fraction": valuation.boundary_fraction,
    }
    if values is not None:
        parameters.pop("semivalue", None)  # it is for single rows, and payments do not use it
        keys = ("semivalue", "confidence")
        parameters["owner_values"] = {key: values.parameters[key] for key in keys} | {"certificate": values.certificate}
    return parameters


def _check_other(name: str, other: Any, valuation: Valuation, values: OwnerValues | None) -> None:
    check_payable(name, other)
    if values is not None:
        raise InputError(
            f"The {name!r} parameter of allocate_budget is about values of rows, but 'values' pays for owners as "
            "players. Leave one of them out."
        )
    if other.fingerprint != valuation.fingerprint:
        raise InputError(
            f"The {name!r} parameter of allocate_budget must value the same training rows as 'valuation', but "
            "their fingerprints differ. Correct the valuation that is paid."
        )


def check_payable(name: str, valuation: Any) -> None:
    """Refuse anything but a Valuation whose values are all finite."""
    check.check_type(
        "allocate_budget", name, valuation, Valuation, "a Valuation, such as model.value(X_val, y_val) returns"
    )
    bad = np.flatnonzero(~np.isfinite(valuation.values))
    if bad.size:
        raise InputError(
            f"The {name!r} parameter of allocate_budget has values that are not finite, the first at row {bad[0]} (id "
            f"{check.quoted(valuation.ids[bad[0]])}). Money cannot be shared out by them; compute them again."
        )
