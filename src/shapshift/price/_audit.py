"""audit_payouts: what would have been paid on other versions of the validation set."""

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from shapshift import _validation as check
from shapshift._archive import Arrays, Saved, from_json, to_json
from shapshift._progress import progress_bar
from shapshift.audit._levels import NOISE, UNORDERED, read_levels
from shapshift.audit._levels import level_axis as _axis
from shapshift.audit._levels import level_seeds as _seeds
from shapshift.price._allocate import check_policy, pay, row_contributions
from shapshift.price._allocation import Allocation
from shapshift.price._game import value_owners
from shapshift.price._money import Policy, parse_money, show_money
from shapshift.price._owner_options import check_owner_options, check_seed
from shapshift.price._owners import check_owners, draw_keys, owner_column
from shapshift.valuation import to_table

Cents = npt.NDArray[np.int64]

#: Summaries of the payouts of one level over its repeats.
SUMMARIES = ("low", "q05", "median", "q95", "high")
_QUANTILES = (0.0, 0.05, 0.5, 0.95, 1.0)

_SIGMA = "\N{GREEK SMALL LETTER SIGMA}"
_UP_TO = "\N{LESS-THAN OR EQUAL TO}"


@dataclass(frozen=True, eq=False, repr=False)
class PayoutAudit(Saved):
    """How payouts move when the validation set does.

    Attributes
    ----------
    owners : tuple
        Owners, in order of first appearance.
    levels : tuple
        Name of each level: the noise level, or what the perturbation is called.
    axis : str
        What the levels measure.
    positions : ndarray of shape (n_levels,)
        Where each level stands on that axis.
    clean : ndarray of shape (n_owners,)
        Payouts on the unperturbed validation set, in cents.
    cents : ndarray of shape (n_levels, 5, n_owners)
        Lowest payout, 5% quantile, median, 95% quantile and highest payout over the repeats, in cents. Quantiles are
        payouts that occurred.
    codes : ndarray of shape (n_train,)
        Owner number of each training row.
    budget_cents : int
    policy : Policy
    basis : {"rows", "owners"}
    parameters : mapping
        ``repeats``, ``random_state``, ``relative``, ``corrector``, ``owner_options``, ``perturbations``, and the
        ``model``'s.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        The caller's kind of table.
    """

    archive_kind: ClassVar[str] = "shapshift.PayoutAudit"
    archive_version: ClassVar[int] = 1

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

    def __post_init__(self) -> None:
        for name in _ARRAYS:
            view = getattr(self, name).view()
            view.flags.writeable = False
            object.__setattr__(self, name, view)
        object.__setattr__(self, "parameters", MappingProxyType(dict(self.parameters)))

    def bounds(self, *, up_to: float | None = None, bounds: str = "range") -> tuple[Cents, Cents]:
        """Lowest and highest payout of each owner in cents; the unperturbed payout always lies between.

        Parameters
        ----------
        up_to : float, optional
            Use the levels up to this one only, where levels are numbers.
        bounds : {"range", "quantiles"}, default="range"
            Over all runs; or, level by level, the 5% and 95% quantiles, of which the widest count.
        """
        check.check_choice("with_interval", "bounds", bounds, ("range", "quantiles"))
        chosen = self.cents[self._chosen(up_to)]
        first, last = (0, 4) if bounds == "range" else (1, 3)
        low, high = chosen[:, first].min(axis=0), chosen[:, last].max(axis=0)
        return np.minimum(low, self.clean), np.maximum(high, self.clean)

    def condition(self, *, up_to: float | None = None, bounds: str = "range") -> str:
        """Say what was varied, such as "sigma up to 0.5", in symbols."""
        chosen = self._chosen(up_to)
        if self.axis == NOISE:
            said = f"{_SIGMA} {_UP_TO} {self.positions[chosen].max():g}"
            said += " (in stds of each feature)" if self.parameters.get("relative") else ""
        elif self.axis != UNORDERED:
            ends = sorted({float(self.positions[chosen].min()), float(self.positions[chosen].max())})
            said = f"{self.axis} " + " to ".join(f"{end:g}" for end in ends)
        else:
            said = " or ".join(str(level) for level in self.levels)
        return said + (" (9 runs of 10)" if bounds == "quantiles" else "")

    def _chosen(self, up_to: float | None) -> npt.NDArray[np.bool_]:
        if up_to is None:
            return np.ones(len(self.levels), dtype=bool)
        if self.axis == UNORDERED:
            raise ValueError("The 'up_to' parameter needs levels that are numbers; these are different perturbations.")
        chosen = self.positions <= up_to
        if not chosen.any():
            raise ValueError(
                f"The 'up_to' parameter must reach the lowest level, {self.positions.min():g}. Got {up_to!r} instead."
            )
        return np.asarray(chosen)

    def check_same(self, allocation: Allocation) -> None:
        """Refuse an allocation that is not the one that was audited."""
        checks = {
            "training rows": self.fingerprint == allocation.fingerprint,
            "owners": self.owners == allocation.owners and np.array_equal(self.codes, allocation.codes),
            "budget": self.budget_cents == allocation.budget_cents,
            "policy": self.policy == allocation.policy,
            "basis": self.basis == allocation.basis,
        }
        for what, same in checks.items():
            if not same:
                raise ValueError(
                    f"The 'audit' parameter must come from an audit of the same payouts, but its {what} differ"
                    f"{'s' if not what.endswith('s') or what == 'basis' else ''} from the allocation's. Run "
                    "audit_payouts with the same arguments."
                )
        moved = np.flatnonzero(self.clean != allocation.cents)
        if moved.size:
            at = moved[0]
            raise ValueError(
                "The 'audit' parameter must come from an audit of the same payouts, but on the unperturbed validation "
                f"set it pays {moved.size} of {len(self.owners)} owners another amount: {self.owners[at]!r} "
                f"{show_money(self.clean[at])} instead of {show_money(allocation.cents[at])}. Audit the validation set "
                "and the model that made the values"
                + (
                    "; for owners as players pass the options of owner_values as owner_options, the seed above all."
                    if self.basis == "owners"
                    else "."
                )
            )

    def about(self, *, up_to: float | None = None, bounds: str = "range") -> dict[str, Any]:
        """Describe the interval: levels, draws per level, what the bounds are and what a level means."""
        chosen = self._chosen(up_to)
        levels = [level for level, taken in zip(self.levels, chosen, strict=True) if taken]
        repeats = int(self.parameters["repeats"])
        said = {"levels": levels, "draws_per_level": repeats, "draws": repeats * len(levels), "bounds": bounds}
        if self.axis == NOISE:
            unit = (
                "in standard deviations of each feature in the training rows"
                if self.parameters.get("relative")
                else "in units of the features as they were valued, after any scaling"
            )
            said["sigma"] = f"standard deviation of Gaussian noise added to every feature of a validation point, {unit}"
        return said

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the payouts under perturbation.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per level and owner: ``level``, ``owner``, ``clean``, ``low``, ``q05``, ``median``, ``q95``,
            ``high``, in units of the currency.
        """
        n, n_levels = len(self.owners), len(self.levels)
        columns: dict[str, npt.NDArray[Any]] = {
            "level": np.repeat(np.array(self.levels), n),
            "owner": owner_column(self.owners * n_levels),
            "clean": np.tile(self.clean / 100, n_levels),
        }
        columns |= {name: self.cents[:, i].ravel() / 100 for i, name in enumerate(SUMMARIES)}
        return to_table(columns, None, kind or self.kind)

    def _to_archive(self) -> tuple[dict[str, Any], Arrays]:
        header = {
            "owners": [to_json(owner, "an owner") for owner in self.owners],
            "levels": list(self.levels),
            "policy": self.policy.to_dict(),
            "parameters": dict(self.parameters),
            **{name: getattr(self, name) for name in _PLAIN},
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        return header, arrays

    @classmethod
    def _from_archive(cls, header: dict[str, Any], arrays: Arrays) -> Self:
        parts: dict[str, Any] = {name: arrays[name] for name in _ARRAYS} | {name: header[name] for name in _PLAIN}
        loaded = cls(
            **parts,
            owners=tuple(from_json(owner) for owner in header["owners"]),
            levels=tuple(header["levels"]),
            policy=Policy(**header["policy"]),
            parameters=header["parameters"],
        )
        n, n_levels = len(loaded.owners), len(loaded.levels)
        if loaded.cents.shape != (n_levels, len(SUMMARIES), n) or loaded.clean.shape != (n,):
            raise ValueError("its parts do not fit together")
        return loaded

    def __repr__(self) -> str:
        low, high = self.bounds()
        return (
            f"PayoutAudit(n_owners={len(self.owners)}, levels={list(self.levels)}, "
            f"repeats={self.parameters['repeats']}, widest={(high - low).max() / 100:,.2f})"
        )


_ARRAYS = ("positions", "clean", "cents", "codes")
_PLAIN = ("axis", "budget_cents", "basis", "fingerprint", "kind")


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
    owner_options: Mapping[str, Any] | None = None,
    corrector: Any = None,
    relative: bool = False,
    progress: bool | None = None,
) -> PayoutAudit:
    """Share the same budget out on perturbed validation sets and note how far each payout moves.

    With the same seed, levels and repeats, these are the runs of :func:`shapshift.audit_shift`. Runs are taken one by
    one; only the payouts of one level are held in memory.

    Parameters
    ----------
    model : fitted estimator
        Anything with ``value(X_val, y_val) -> Valuation``.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The clean validation set.
    budget, owners, policy
        As in :func:`allocate_budget`.
    noise, perturbations, repeats, random_state, relative
        As in :func:`shapshift.audit_shift`.
    basis : {"rows", "owners"}, default="rows"
        Pay for sums over rows, or for owners as players, see :func:`owner_values`.
    owner_options : mapping, optional
        With ``basis="owners"``, the options of :func:`owner_values` that the payment used: ``method``, ``semivalue``,
        ``max_players_exact``, ``n_permutations``, ``tolerance``, ``random_state``. Every run draws the same orders, so
        that the interval shows what the validation set moves, not the sampling.
    corrector : fitted corrector, optional
        Applied to each perturbed valuation before it is paid: anything with ``transform(valuation)``.
    progress : bool, default=None
        Show a progress bar; None shows it in a terminal only.

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
    levels = read_levels(noise, perturbations, relative, owner="audit_payouts")
    check.check_count("audit_payouts", "repeats", repeats)
    seed = check_seed("audit_payouts", random_state)
    policy = check_policy("audit_payouts", policy)
    cents = parse_money("audit_payouts", "budget", budget)
    _check_basis(basis, corrector)
    options = check_owner_options("audit_payouts", owner_options, basis)
    if options.get("random_state", 0) is None:
        options["random_state"] = check_seed("audit_payouts", None)  # one seed for all runs
    quiet = copy.copy(model)  # shares the fit; its bar would stand in the way of this one
    if hasattr(quiet, "progress"):
        quiet.progress = False
    clean = quiet.value(X_val, y_val)
    ownership = check_owners(owners, clean.ids)
    keys = draw_keys(ownership, clean.ids, cents)

    def paid(X: Any, y: Any, correct: bool) -> Cents:
        if basis == "owners":
            contributions = np.maximum(value_owners(quiet, X, y, owners, **options, progress=False).values, 0.0)
        else:
            valuation = quiet.value(X, y)
            if correct and corrector is not None:
                valuation = corrector.transform(valuation)
            contributions = row_contributions(valuation.values, ownership, policy.negatives)[1]
        return pay(contributions, cents, policy, keys)[0]

    unperturbed = paid(X_val, y_val, False)
    found = np.empty((len(levels), len(SUMMARIES), len(ownership.names)), dtype=np.int64)
    with progress_bar("Auditing payouts", len(levels) * repeats, progress) as advance:
        for number, level in enumerate(levels):
            bound = level.perturbation.bind(quiet)
            runs = np.empty((repeats, len(ownership.names)), dtype=np.int64)
            for run, run_seed in enumerate(_seeds(seed, level.parameters, repeats)):
                runs[run] = paid(*bound.with_seed(run_seed)(X_val, y_val), True)
                advance(1)
            found[number] = np.quantile(runs, _QUANTILES, axis=0, method="inverted_cdf")
    axis, positions = _axis(levels, noise is not None)
    return PayoutAudit(
        owners=ownership.names,
        levels=tuple(level.name for level in levels),
        axis=axis,
        positions=positions,
        clean=unperturbed,
        cents=found,
        codes=ownership.codes,
        budget_cents=cents,
        policy=policy,
        basis=basis,
        parameters={
            "repeats": int(repeats),
            "random_state": seed,
            "relative": bool(relative),
            "corrector": None if corrector is None else type(corrector).__name__,
            "owner_options": {name: _plain(option) for name, option in options.items()},
            "perturbations": [level.parameters for level in levels],
            "model": dict(clean.parameters),
        },
        fingerprint=clean.fingerprint,
        kind=clean.kind,
    )


def _plain(option: Any) -> Any:
    return option if option is None or isinstance(option, str | int | float) else str(option)


def _check_basis(basis: Any, corrector: Any) -> None:
    check.check_choice("audit_payouts", "basis", basis, ("rows", "owners"))
    if corrector is not None and not callable(getattr(corrector, "transform", None)):
        raise TypeError(
            "The 'corrector' parameter of audit_payouts must be a fitted corrector with a method transform(valuation), "
            f"such as BoundaryCorrector().fit(clean). Got {type(corrector).__name__} instead."
        )
    if corrector is not None and basis == "owners":
        raise ValueError("The 'corrector' parameter of audit_payouts corrects values of rows; use basis='rows'.")
