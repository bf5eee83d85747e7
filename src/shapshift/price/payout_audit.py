"""Payouts on perturbed versions of the validation set."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift._progress import progress_bar
from shapshift.audit._levels import NOISE, UNORDERED, level_axis, perturbed_sets, read_levels
from shapshift.checks import inputs as check
from shapshift.checks.labels import check_owners, owner_column
from shapshift.engine.coefficients import Semivalue
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.price.allocation import (
    Allocation,
    draw_keys,
    player_contributions,
    row_contributions,
    sampled_payouts,
)
from shapshift.price.clusters import Counted
from shapshift.price.owners import OwnerValues, value_owners
from shapshift.price.policy import Policy, Terms
from shapshift.price.sampling import random_blocks
from shapshift.valuation import Valuation, corrected_by

Cents = npt.NDArray[np.int64]

#: Summaries of the payouts of one level over its repeats.
SUMMARIES = ("low", "q05", "median", "q95", "high")
_QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)

_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_UP_TO = "\N{LESS-THAN OR EQUAL TO}"


@dataclass(frozen=True, eq=False, repr=False)
class PayoutAudit(Result):
    """Changes of payouts under changes of the validation set.

    Attributes
    ----------
    owners : tuple
        Owners, in order of first appearance.
    levels : tuple
        Name of each level: the noise level, or the name of the perturbation.
    axis : str
        Quantity that the levels measure.
    positions : ndarray of shape (n_levels,)
        Position of each level on that axis.
    clean : ndarray of shape (n_owners,)
        Payouts on the unperturbed validation set, in cents.
    cents : ndarray of shape (n_levels, 5, n_owners)
        Lowest payout, 5% quantile, median, 95% quantile and highest payout over the repeats, in cents. Each quantile is
        a payout that occurred.
    codes : ndarray of shape (n_train,)
        Owner number of each training row.
    budget_cents : int
    policy : Policy
    basis : {"rows", "owners"}
    parameters : mapping
        ``repeats``, ``random_state``, ``relative``, ``corrector``, ``semivalue``, ``perturbations``, and the
        ``model``'s.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".
    sampling_low, sampling_high : ndarray of shape (n_owners,) or None
        Bounds of a 95% interval of the payout on another sample of validation points, in cents. None if the values lack
        blocks, see :func:`random_blocks`.
    """

    archive_kind: ClassVar[str] = "shapshift.PayoutAudit"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(("owners", "clean", "sampling_low", "sampling_high"), "n_owners"),
        **dict.fromkeys(("levels", "positions"), "n_levels"),
        "cents": f"n_levels {len(SUMMARIES)} n_owners",
    }

    owners: tuple[Any, ...]
    levels: tuple[Any, ...]
    axis: str
    positions: npt.NDArray[np.float64]
    clean: Cents
    cents: Cents
    codes: npt.NDArray[np.int64]
    budget_cents: int
    policy: Policy
    basis: str
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"
    digits: int = 2
    sampling_low: Cents | None = None
    sampling_high: Cents | None = None

    def bounds(self, *, up_to: float | None = None, bounds: str = "range") -> tuple[Cents, Cents]:
        """Lowest and highest payout of each owner in cents; the unperturbed payout always lies between.

        Parameters
        ----------
        up_to : float, optional
            Use the levels up to this one only, where levels are numbers.
        bounds : {"range", "quantiles"}, default="range"
            Over all runs; or the widest of the 5% and 95% quantiles of each level.
        """
        check.check_choice("with_interval", "bounds", bounds, ("range", "quantiles"))
        chosen = self.cents[self._chosen(up_to)]
        first, last = (0, 4) if bounds == "range" else (1, 3)
        low, high = chosen[:, first].min(axis=0), chosen[:, last].max(axis=0)
        return np.minimum(low, self.clean), np.maximum(high, self.clean)

    def condition(self, *, up_to: float | None = None, bounds: str = "range") -> str:
        """Return what was varied, such as "sigma up to 0.5", in symbols."""
        facts = self.about(up_to=up_to, bounds=bounds)
        if self.axis == NOISE:
            said = f"{_SIGMA} {_UP_TO} {facts['reach'][1]:g}"
            said += " (in stds of each feature)" if facts["relative"] else ""
        elif self.axis != UNORDERED:
            said = f"{self.axis} " + " to ".join(f"{end:g}" for end in sorted(set(facts["reach"])))
        else:
            said = " or ".join(str(level) for level in self.levels)
        return said + (" (9 runs of 10)" if bounds == "quantiles" else "")

    def _chosen(self, up_to: float | None) -> npt.NDArray[np.bool_]:
        if up_to is None:
            return np.ones(len(self.levels), dtype=bool)
        if self.axis == UNORDERED:
            raise InputError("The 'up_to' parameter needs levels that are numbers; these are different perturbations.")
        chosen = self.positions <= up_to
        if not chosen.any():
            raise InputError(
                f"The 'up_to' parameter must reach the lowest level, {self.positions.min():g}. Got "
                f"{check.quoted(up_to)} instead."
            )
        return np.asarray(chosen)

    def check_same(self, allocation: Allocation) -> None:
        """Refuse an allocation that is not the one that was audited."""
        said = "The 'audit' parameter must come from an audit of the same payouts, but "
        differences = {
            "training rows differ": self.fingerprint != allocation.fingerprint,
            "owners differ": self.owners != allocation.owners or not np.array_equal(self.codes, allocation.codes),
            "currency differs": self.digits != allocation.digits,
            "budget differs": self.budget_cents != allocation.budget_cents,
            "policy differs": self.policy != allocation.policy,
            "basis differs": self.basis != allocation.basis,
        }
        if any(differences.values()):
            first = next(name for name, differs in differences.items() if differs)
            raise InputError(f"{said}its {first} from the allocation's. Run audit_payouts with the same arguments.")
        moved = np.flatnonzero(self.clean != allocation.cents)
        if moved.size:
            at = moved[0]
            other = "; for owners as players pass the semivalue of owner_values"
            raise InputError(
                f"{said}on the unperturbed validation set it pays {moved.size} of {len(self.owners)} owners another "
                f"amount: {check.quoted(self.owners[at])} {allocation.show(self.clean[at])} instead of "
                f"{allocation.show(allocation.cents[at])}. Audit the validation set and the model that made the values"
                f"{other if self.basis == 'owners' else ''}."
            )

    def about(self, *, up_to: float | None = None, bounds: str = "range") -> dict[str, Any]:
        """Facts about the interval that :meth:`bounds` gives for the same arguments.

        Returns
        -------
        dict
            ``levels``, ``draws_per_level``, ``draws`` and their ``random_state``; ``axis``, the quantity that the
            levels measure, and ``reach``, the lowest and highest level if they are numbers; ``up_to`` and ``bounds`` as
            given. For noise also ``relative``, whether its unit is the standard deviation of each feature, and
            ``sigma``, that unit in words.
        """
        chosen = self._chosen(up_to)
        levels = [level for level, taken in zip(self.levels, chosen, strict=True) if taken]
        repeats = int(self.parameters["repeats"])
        facts = {"levels": levels, "draws_per_level": repeats, "draws": repeats * len(levels), "bounds": bounds}
        facts |= {"up_to": up_to, "random_state": self.parameters.get("random_state"), "axis": self.axis}
        if self.axis != UNORDERED:
            facts["reach"] = [float(self.positions[chosen].min()), float(self.positions[chosen].max())]
        if self.axis == NOISE:
            facts["relative"] = bool(self.parameters.get("relative"))
            unit = (
                "in standard deviations of each feature in the training rows"
                if facts["relative"]
                else "in units of the features as they were valued, after any scaling"
            )
            facts["sigma"] = (
                f"standard deviation of Gaussian noise added to every feature of a validation point, {unit}"
            )
        return facts

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the payouts under perturbation.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per level and owner: ``level``, ``owner``, ``clean``, where known ``sampling_low`` and
            ``sampling_high``, then ``low``, ``q05``, ``median``, ``q95``, ``high``, in units of the currency.
        """
        n, n_levels = len(self.owners), len(self.levels)
        columns: dict[str, npt.NDArray[Any]] = {
            "level": np.repeat(np.array(self.levels), n),
            "owner": owner_column(self.owners * n_levels),
            "clean": np.tile(self.clean / 10**self.digits, n_levels),
        }
        for name in ("sampling_low", "sampling_high"):
            if (cents := getattr(self, name)) is not None:
                columns[name] = np.tile(cents / 10**self.digits, n_levels)
        columns |= {name: self.cents[:, i].ravel() / 10**self.digits for i, name in enumerate(SUMMARIES)}
        return to_table(columns, None, kind or self.kind)

    def plot(self, *, top: int = 20, ax: Any = None) -> Any:
        """Draw each owner's payout and its range under all perturbations; returns the Axes.

        Parameters
        ----------
        top : int, default=20
            Owners to draw.
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_payout_audit

        return plot_payout_audit(self, top=top, ax=ax)

    def __repr__(self) -> str:
        low, high = self.bounds()
        return (
            f"PayoutAudit(n_owners={len(self.owners)}, levels={list(self.levels)}, "
            f"repeats={self.parameters['repeats']}, widest={(high - low).max() / 10**self.digits:,.{self.digits}f})"
        )


def audit_payouts(
    model: Any,
    X_val: Any,
    y_val: Any,
    budget: Any,
    *,
    owners: Any,
    noise: Sequence[float] | None = None,
    perturbations: Sequence[Callable[[Any, Any], tuple[Any, Any]]] | None = None,
    repeats: int = 20,
    random_state: int | None = 0,
    policy: Policy | None = None,
    basis: str = "rows",
    semivalue: Semivalue = "shapley",
    corrector: Any = None,
    relative: bool = False,
    currency: str = "EUR",
    valuations: Valuation | Iterator[Valuation] | None = None,
    progress: bool | None = None,
) -> PayoutAudit:
    """Estimate payouts on another sample of validation points, and measure their changes on perturbed points.

    The payouts on another sample are estimated from the clean values alone, see :func:`random_blocks`. Then the same
    budget is shared out on perturbed validation sets: with the same seed, levels and repeats, these are the runs of
    :func:`shapshift.audit_shift`. Runs are processed one by one; only the payouts of one level are held in memory.

    Parameters
    ----------
    model : fitted estimator
        Anything with ``value(X_val, y_val) -> Valuation``.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The clean validation set.
    budget, owners, policy, currency
        As in :func:`allocate_budget`.
    noise, perturbations, repeats, random_state, relative
        As in :func:`shapshift.audit_shift`.
    basis : {"rows", "owners"}, default="rows"
        Pay for sums over rows, or for owners as players, see :func:`owner_values`.
    semivalue : str, Beta or Banzhaf, default="shapley"
        With ``basis="owners"``, the semivalue of :func:`owner_values`; values of rows use the model's.
    corrector : fitted corrector, optional
        Applied to each perturbed valuation before it is paid: anything with ``transform(valuation)``, your own too.
    valuations : Valuation or iterator of Valuation, optional
        Valuations to reuse: the one on the clean validation set; or all of them, from a
        :class:`shapshift.audit.ShiftStream` with the same model, validation set, levels, repeats and seed. The missing
        ones are computed here. With ``basis="owners"`` only the first, on the clean validation set, is used.
    progress : bool, default=None
        Show a progress bar; None shows it in terminals and notebooks only.

    Returns
    -------
    PayoutAudit

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import allocate_budget, audit_payouts
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNNShapley().fit(X[::2], y[::2])
    >>> sellers = ["ann", "bob", "cid"] * 25
    >>> audit = audit_payouts(model, X[1::2], y[1::2], 1000, owners=sellers, noise=[0.1, 0.5], repeats=3)
    >>> pay = allocate_budget(model.value(X[1::2], y[1::2]), 1000, owners=sellers, audit=audit)
    >>> bool((pay.low <= pay.cents).all() and (pay.cents <= pay.high).all())
    True
    """
    levels = read_levels(noise, perturbations, relative, caller="audit_payouts")
    check.check_count("audit_payouts", "repeats", repeats, at_most=check.MOST)
    seed = check.check_seed("audit_payouts", random_state)
    terms = Terms.check("audit_payouts", budget, policy, currency)
    _check_basis(basis, corrector)
    quiet = check.check_model("audit_payouts", model)  # its progress bar would interfere with this one
    perturbed = perturbed_sets(quiet, X_val, y_val, levels, seed, repeats)
    taken: Iterator[Valuation]
    if valuations is None or isinstance(valuations, Valuation):
        clean = _valued_in_blocks(quiet, X_val, y_val) if valuations is None else valuations
        taken = (quiet.value(X, y) for X, y in perturbed)
    else:
        taken, progress = valuations, progress if basis == "owners" else False  # a stream shows its own progress
        clean = next(taken)
    ownership = check_owners(owners, clean.ids)
    keys = draw_keys(ownership, clean.ids, terms.budget)

    def pay_rows(valuation: Valuation) -> Cents:
        return terms.pay(row_contributions(valuation.values, ownership, terms.policy.negatives)[1], keys)[0]

    def as_players(X: Any, y: Any, **more: Any) -> OwnerValues:
        if isinstance(quiet, Counted):
            return quiet.owner_values(value_owners, X, y, owners, semivalue, **more)
        return value_owners(quiet, X, y, owners, semivalue, **more)

    def pay_players(X: Any, y: Any) -> Cents:
        return terms.pay(player_contributions(as_players(X, y).values, terms.policy.negatives), keys)[0]

    def pay_draws() -> Iterator[Cents]:
        if basis == "owners":
            yield from (pay_players(X, y) for X, y in perturbed)
        else:
            for valuation in taken:
                yield pay_rows(valuation if corrector is None else corrected_by("audit_payouts", corrector, valuation))

    players, contributions = None, row_contributions(clean.values, ownership, terms.policy.negatives)[1]
    if basis == "owners":
        players = as_players(X_val, y_val, errors=True)
        contributions = player_contributions(players.values, terms.policy.negatives)
    unperturbed = terms.pay(contributions, keys)[0]
    sampled: Any = sampled_payouts(clean, ownership, contributions, players, unperturbed, terms)
    if isinstance(quiet, Counted):
        sampled = quiet.settle(sampled[:2], unperturbed, ownership.codes)
    draws = pay_draws()
    found = np.empty((len(levels), len(SUMMARIES), len(ownership.names)), dtype=np.int64)
    with progress_bar("Auditing payouts", len(levels) * repeats, progress) as advance:
        for number in range(len(levels)):
            runs = np.empty((repeats, len(ownership.names)), dtype=np.int64)
            for run in range(repeats):
                runs[run] = next(draws)
                advance(1)
            found[number] = np.quantile(runs, _QUANTILES, axis=0, method="inverted_cdf")
    axis, positions = level_axis(levels, noise is not None)
    return PayoutAudit(
        owners=ownership.names,
        levels=tuple(level.name for level in levels),
        axis=axis,
        positions=positions,
        clean=unperturbed,
        cents=found,
        codes=ownership.codes,
        budget_cents=terms.budget,
        policy=terms.policy,
        basis=basis,
        parameters={
            "repeats": int(repeats),
            "random_state": seed,
            "relative": bool(relative),
            "corrector": None if corrector is None else type(corrector).__name__,
            "semivalue": str(semivalue) if basis == "owners" else None,
            "perturbations": [level.parameters for level in levels],
            "model": dict(clean.parameters),
        },
        fingerprint=clean.fingerprint,
        kind=clean.kind,
        digits=terms.digits,
        sampling_low=sampled[0],
        sampling_high=sampled[1],
    )


def _valued_in_blocks(model: Any, X_val: Any, y_val: Any) -> Valuation:
    """Value the clean validation set, with sums over random blocks of points if the model accepts groups."""
    n_train, n_val = len(getattr(model, "ids_", ())), 0 if isinstance(y_val, str) else len(y_val)
    asked = {}
    if n_train and n_val > 1 and "groups" in signature(model.value).parameters:
        asked["groups"] = random_blocks(n_val, n_train)
    found: Valuation = model.value(X_val, y_val, **asked)
    return found


def _check_basis(basis: Any, corrector: Any) -> None:
    check.check_choice("audit_payouts", "basis", basis, ("rows", "owners"))
    if corrector is not None and not callable(getattr(corrector, "transform", None)):
        raise InputError(
            "The 'corrector' parameter of audit_payouts must be a fitted corrector with a method transform(valuation), "
            f"such as BoundaryCorrector().fit(clean). Got {type(corrector).__name__} instead."
        )
    if corrector is not None and basis == "owners":
        raise InputError("The 'corrector' parameter of audit_payouts corrects values of rows; use basis='rows'.")
