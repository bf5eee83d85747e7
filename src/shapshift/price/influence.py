"""Effect of single validation points on payouts, and a test whether they look like an honest sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.labels import check_groups, check_owners, owner_column
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.price.allocation import draw_keys, row_contributions
from shapshift.price.money import show_money
from shapshift.price.points import (
    Floats,
    PointRange,
    PointValues,
    Slots,
    any_points,
    check_points_model,
    float_payouts,
    has_training_points,
    make_slots,
    most_payout,
    training_points,
    without_a_row,
)
from shapshift.price.policy import Policy, Terms

Cents = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Most training rows used as honest reference points.
MOST_REFERENCE = 4096
# Tails of the points' effects, upper and lower.
TAILS = (0.1, 0.05, 0.02, 0.01, 0.005, 0.002)
# Most numbers of drawn sets held at a time.
DRAWN_NUMBERS = 2**23
# Standardised sums that differ by less are equal.
ROUNDING = 1e-9
# Most owners named in a sentence.
NAMED = 3


@dataclass(frozen=True, eq=False, repr=False)
class InfluenceAudit(Result):
    """Effects of single validation points, and of clusters of points, on the payouts.

    For the operator: it names all owners, so do not show it to any of them.

    Attributes
    ----------
    owners : tuple
        Owners, in order of first appearance.
    cents : ndarray of shape (n_owners,)
        Payouts, in cents.
    influence : ndarray of shape (n_val, n_owners)
        Effect of each point on each owner, in units of the currency: the payout minus the payout without the point,
        before rounding.
    excess : ndarray of shape (n_owners,)
        Largest test statistic of each owner: standard deviations by which the points favour it more than honest ones.
        NaN without a reference.
    p_values : ndarray of shape (n_owners,)
        Probability that an honest sample favours any owner at least as clearly as these points favour this one, see
        :func:`audit_influence`; NaN without a reference.
    flagged : ndarray of shape (n_val, n_owners)
        Points that favour an owner more than an honest sample does.
    expected : ndarray of shape (n_owners,)
        Expected number of points in an honest sample that are at least as favourable as the flagged ones.
    without_flagged : ndarray of shape (n_owners,)
        Payout of each owner without the points that are flagged for it, in cents.
    missing : ndarray of shape (n_owners,)
        Whether there are too few points against an owner: some may have been left out or changed.
    shares : ndarray of shape (n_shares,)
        Shares of points that an attacker may control.
    top : ndarray of shape (n_shares, n_owners)
        Payout of each owner without each share of the points that favour it most, in cents.
    most_chosen, most_replaced : ndarray of shape (n_shares, n_owners)
        Upper bounds of each owner's payout, in cents, if each share of the points is left out, or replaced by any
        others.
    cluster_names : tuple
        Empty without clusters.
    cluster_sizes : ndarray of shape (n_clusters,)
    cluster_influence : ndarray of shape (n_clusters, n_owners)
        Effect of each cluster on each owner, in units of the currency.
    cluster_p_values : ndarray of shape (n_clusters,)
        Probability that any cluster favours any owner at least as clearly as this one does, if points are clustered at
        random.
    alpha : float
        Probability of a false alarm. If both owners and clusters are tested, each test uses half of it.
    policy : Policy
    currency : str
    digits : int
        Decimals of the currency.
    parameters : mapping
        ``n_val``, ``n_reference``, ``reference``, ``draws``, ``random_state``, ``budget``.
    fingerprint : str
        Hash of the training rows and labels.
    kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".
    """

    archive_kind: ClassVar[str] = "shapshift.InfluenceAudit"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("owners", "cents", "excess", "p_values", "expected", "without_flagged", "missing"), "n_owners"
        ),
        **dict.fromkeys(("influence", "flagged"), "n_val n_owners"),
        "shares": "n_shares",
        **dict.fromkeys(("top", "most_chosen", "most_replaced"), "n_shares n_owners"),
        **dict.fromkeys(("cluster_names", "cluster_sizes", "cluster_p_values"), "n_clusters"),
        "cluster_influence": "n_clusters n_owners",
    }

    owners: tuple[Any, ...]
    cents: Cents
    influence: Floats
    excess: Floats
    p_values: Floats
    flagged: Flags
    expected: Floats
    without_flagged: Cents
    missing: Flags
    shares: Floats
    top: Cents
    most_chosen: Cents
    most_replaced: Cents
    cluster_names: tuple[Any, ...]
    cluster_sizes: npt.NDArray[np.int64]
    cluster_influence: Floats
    cluster_p_values: Floats
    alpha: float
    policy: Policy
    currency: str
    digits: int
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"

    @property
    def _level(self) -> float:
        return _of_each(self.alpha, np.isfinite(self.p_values).any(), len(self.cluster_names))

    @property
    def alarm(self) -> bool:
        """Whether any owner or cluster is favoured more than an honest sample explains."""
        return bool((self.p_values <= self._level).any() or (self.cluster_p_values <= self._level).any())

    @property
    def suspects(self) -> tuple[Any, ...]:
        """Owners whom the points favour more than an honest sample would, the clearest first."""
        order = np.argsort(-self.excess, kind="stable")
        return tuple(self.owners[at] for at in order if self.p_values[at] <= self._level)

    def _show(self, cents: float) -> str:
        return show_money(int(cents), self.currency, self.digits)

    @property
    def finding(self) -> str:
        """Return sentences on the most influential points, and on whether the points look honest."""
        n_val, said = int(self.parameters["n_val"]), []
        for share, top in zip(self.shares, self.top, strict=True):
            count = _whole_points(share, n_val)
            if count:
                at = int(np.argmax(self.cents - top))
                said.append(
                    f"Without the {count:,} of {n_val:,} validation points that favour it most, "
                    f"{self.owners[at]} would be paid {self._show(top[at])} instead of {self._show(self.cents[at])}; "
                    "no other owner depends as much on so few points."
                )
                break
        suspects = self.suspects
        for owner in suspects[:NAMED]:
            at = self.owners.index(owner)
            chance = f"(p = {self.p_values[at]:.3g})"
            if self.flagged[:, at].any():
                said.append(
                    f"{int(self.flagged[:, at].sum()):,} points favour {owner} strongly, where an honest sample has "
                    f"{self.expected[at]:.1f} {chance}. Without them it would be paid "
                    f"{self._show(self.without_flagged[at])} instead of {self._show(self.cents[at])}."
                )
            if self.missing[at]:
                said.append(
                    f"Fewer points speak against {owner} than in an honest sample {chance}: some may have been left "
                    "out or changed."
                )
        if len(suspects) > NAMED:
            said.append(f"The same test speaks against {len(suspects) - NAMED:,} more owners.")
        for number in np.flatnonzero(self.cluster_p_values <= self._level)[:NAMED]:
            at = int(np.argmax(self.cluster_influence[number]))
            amount = self.cluster_influence[number, at] * 10**self.digits
            said.append(
                f"The {self.cluster_sizes[number]:,} points of {self.cluster_names[number]} bring {self.owners[at]} "
                f"{self._show(round(amount))}, more than chance explains (p = {self.cluster_p_values[number]:.3g})."
            )
        if not self.alarm and (np.isfinite(self.p_values).any() or self.cluster_names):
            said.append("No owner is favoured more than by an honest sample.")
        return " ".join(said)

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the owners.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per owner: ``owner``, ``payout``, ``excess``, ``p_value``, ``flagged`` points, ``expected`` ones,
            ``without_flagged`` and ``missing``; and for each share such as 0.05 ``without_top[0.05]``,
            ``most_chosen[0.05]`` and ``most_replaced[0.05]``. Money is in units of the currency.
        """
        unit = 10**self.digits
        columns: dict[str, npt.NDArray[Any]] = {
            "owner": owner_column(self.owners),
            "payout": self.cents / unit,
            "excess": self.excess,
            "p_value": self.p_values,
            "flagged": self.flagged.sum(axis=0),
            "expected": self.expected,
            "without_flagged": self.without_flagged / unit,
            "missing": self.missing,
        }
        for name, amounts in (
            ("without_top", self.top),
            ("most_chosen", self.most_chosen),
            ("most_replaced", self.most_replaced),
        ):
            for share, row in zip(self.shares, amounts, strict=True):
                columns[f"{name}[{np.format_float_positional(share, trim='-')}]"] = row / unit
        return to_table(columns, None, kind or self.kind)

    def points_frame(self, kind: str | None = None) -> Any:
        """Tabulate the validation points.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            As in :meth:`to_frame`.

        Returns
        -------
        table
            One row per validation point, the most influential first: ``point``, its position; ``owner``, whom it brings
            most; ``influence``, how much, in units of the currency; ``flagged``, whether it is flagged for that owner.
        """
        best = self.influence.argmax(axis=1)
        most = self.influence[np.arange(best.size), best]
        order = np.lexsort((np.arange(best.size), -most))
        columns: dict[str, npt.NDArray[Any]] = {
            "point": order,
            "owner": owner_column([self.owners[at] for at in best[order]]),
            "influence": most[order],
            "flagged": self.flagged[order, best[order]],
        }
        return to_table(columns, None, kind or self.kind)

    def plot(self, *, top: int = 20, ax: Any = None) -> Any:
        """Draw the effects of single points on each owner; returns the Axes.

        Parameters
        ----------
        top : int, default=20
            Number of owners to draw, those for whom single points matter most.
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_influence

        return plot_influence(self, top=top, ax=ax)

    def __repr__(self) -> str:
        found = f"alarm, suspects={list(self.suspects)}" if self.alarm else "no alarm"
        return f"InfluenceAudit(n_val={self.parameters['n_val']}, n_owners={len(self.owners)}, {found})"


def audit_influence(
    model: Any,
    X_val: Any,
    y_val: Any,
    budget: Any,
    *,
    owners: Any,
    clusters: Any = None,
    reference: Any = "train",
    shares: Sequence[float] = (0.01, 0.05, 0.1),
    alpha: float = 0.05,
    draws: int = 999,
    random_state: int | None = 0,
    policy: Policy | None = None,
    currency: str = "EUR",
) -> InfluenceAudit:
    """Measure effects of single validation points on payouts, bound gains from manipulated points, and test for them.

    Parameters
    ----------
    model : fitted KNN model
        KNNShapley, ThresholdKNNShapley, WeightedKNNShapley or KNNRegressionShapley. It is computed on the CPU.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The validation set.
    budget, owners, policy, currency
        As in :func:`allocate_budget`. Payouts are those of sums over rows.
    clusters : array-like of shape (n_val,), optional
        Source of each point, such as its contributor: clusters are tested too.
    reference : "train", (X, y) or None, default="train"
        Points known to be honest: training rows, each valued without itself, or a trusted sample of the same
        population. None skips the test.
    shares : sequence of float, default=(0.01, 0.05, 0.1)
        Shares of the points that an attacker may control, for the bounds; rounded down to whole points.
    alpha : float, default=0.05
        Probability that an honest sample raises an alarm. With two or more clusters and a reference there are two
        tests, each at half of it; ``draws`` must then be at least ``2 / alpha - 1``.
    draws : int, default=999
        Number of random sets for the test.
    random_state : int, default=0
        Seed of the draws.

    Returns
    -------
    InfluenceAudit

    Notes
    -----
    A point's effect on an owner is the amount that it adds to the owner's contribution, minus the owner's share of the
    amount that it adds to all contributions. Counted rows and shares are computed from validation and reference points
    together. Under honest sampling they are exchangeable: every division into two sets of these sizes is as likely as
    the actual one. The test compares, for each owner, the validation points' mean effect and their number in the upper
    and lower tails of all effects (10%, 5%, 2%, 1%, 0.5%, 0.2%) with random divisions. The largest standardised excess
    over all owners gives the p-value, so that ``alpha`` holds for all owners together. If an upper tail is significant,
    its points are flagged.

    Training rows are valued without themselves, so for the test each validation point leaves out a row of its label.
    The test asks whether the points are like the reference. Honest points from a population other than the training
    rows' raise an alarm too: pass a trusted sample of their population.

    Leaving out one point is exact, from the values of all rows on single points. Bounds hold for any attacker. Those
    for points left out are exact under ``Policy(negatives="carry")`` while no total changes its sign. With a cap in the
    policy the bound is the cap.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> from shapshift.price import audit_influence
    >>> X, y = load_iris(return_X_y=True)
    >>> model = KNNShapley().fit(X[::2], y[::2])
    >>> audit_influence(model, X[1::2], y[1::2], 1000, owners=["ann", "bob", "cid"] * 25)
    InfluenceAudit(n_val=75, n_owners=3, no alarm)
    """
    caller = "audit_influence"
    check.check_number(caller, "alpha", alpha, above=True, most=1.0)
    check.check_count(caller, "draws", draws, at_most=check.MOST)
    seed = check.check_seed(caller, random_state)
    terms = Terms.check(caller, budget, policy, currency)
    taken = _check_shares(shares)
    quiet: Any = check_points_model(caller, model)
    X = quiet._check_points(X_val)
    y = _labels.check_labels(y_val, "y_val", X.shape[0], "X_val")
    ownership = check_owners(owners, quiet.ids_)
    names, codes = (
        ([], np.zeros(y.size, dtype=np.int64)) if clusters is None else check_groups(clusters, y.size, "clusters")
    )
    points = PointValues(quiet, X, y, ownership, terms.policy.negatives)
    compared = _reference(quiet, reference, points)

    totals, n = points.totals(), len(ownership.names)
    clean = check.check_model(caller, model).value(X_val, y_val)
    keys = draw_keys(ownership, clean.ids, terms.budget)
    cents = terms.pay(row_contributions(clean.values, ownership, terms.policy.negatives)[1], keys)[0]
    paid = float_payouts(terms, points.contributions(totals))
    influence = paid - float_payouts(terms, points.without_one(totals))
    rng = np.random.default_rng(seed)
    found = Findings.nothing(y.size, n)
    if compared is not None:
        found = _compare(points, *compared, _of_each(alpha, True, len(names)), draws, rng)
    in_clusters = _compare_clusters(points, codes, len(names), draws, rng)

    # Sets of points to leave out: flagged ones, and those that favour an owner most.
    counts = [_whole_points(share, y.size) for share in taken]
    places = np.argsort(np.argsort(-influence, axis=0, kind="stable"), axis=0, kind="stable")
    left_out = (found.flagged, *(places < k for k in counts))
    own = np.array([_own_without(points, sets, terms, keys, cents) for sets in left_out])
    of_clusters = _pay_without(points, codes[:, None] == np.arange(len(names)), terms, keys)
    ranges = PointRange.of(quiet)

    def bound(slots: list[Slots]) -> list[int]:
        return [most_payout(terms, n, one.most_share()) for one in slots]

    most = [(bound(make_slots(points, k, range(n))), bound(any_points(points, k, range(n), ranges))) for k in counts]
    chosen, replaced = np.array(most, dtype=np.int64).reshape(-1, 2, n).transpose(1, 0, 2)
    return InfluenceAudit(
        owners=ownership.names,
        cents=cents,
        influence=influence,
        excess=found.excess,
        p_values=found.p_values,
        flagged=found.flagged,
        expected=found.expected,
        without_flagged=own[0],
        missing=found.missing,
        shares=taken,
        top=own[1:],
        most_chosen=np.maximum(chosen, cents),
        most_replaced=np.maximum(replaced, cents),
        cluster_names=tuple(names),
        cluster_sizes=np.bincount(codes, minlength=len(names))[: len(names)],
        cluster_influence=(cents - of_clusters) / 10**terms.digits,
        cluster_p_values=in_clusters,
        alpha=float(alpha),
        policy=terms.policy,
        currency=currency,
        digits=terms.digits,
        parameters={
            "n_val": int(y.size),
            "n_reference": 0 if compared is None else compared[1].size,
            "reference": reference if reference is None or isinstance(reference, str) else "given",
            "draws": int(draws),
            "random_state": seed,
            "budget": str(terms.budget),
        },
        fingerprint=quiet.fingerprint_,
        kind=quiet._kind,
    )


def _whole_points(share: float, n_val: int) -> int:
    return int(share * n_val + 1e-9)


def _of_each(alpha: float, compared: Any, n_clusters: int) -> float:
    """Probability of a false alarm of each test: of owners and, where there are at least two, of clusters."""
    return alpha / 2 if compared and n_clusters > 1 else alpha


def _check_shares(shares: Any) -> Floats:
    expected = "a list of numbers from 0 to 1, such as [0.01, 0.05]"
    if isinstance(shares, str | bytes) or not hasattr(shares, "__iter__"):
        raise check.wrong("audit_influence", "shares", expected, shares)
    taken = list(shares)
    for share in taken:
        check.check_number("audit_influence", "shares", share, most=1.0)
    return np.array(taken, dtype=np.float64)


def _pay_without(points: PointValues, sets: Flags, terms: Terms, keys: list[bytes]) -> Cents:
    """Payouts without each set of points, in cents: shape (n_sets, n_owners)."""
    step = max(1, points.room // points.ownership.codes.size)
    paid = [np.empty((0, len(keys)), dtype=np.int64)]
    for start in range(0, sets.shape[1], step):
        totals = points.totals(np.where(sets[:, start : start + step], 0.0, 1.0))
        paid += [terms.pay(points.contributions(left), keys)[0][None] for left in totals.T]
    return np.concatenate(paid)


def _own_without(points: PointValues, sets: Flags, terms: Terms, keys: list[bytes], cents: Cents) -> Cents:
    """Payout of each owner without its own set of points, in cents; the given payout if the set is empty."""
    out, owners = cents.copy(), np.flatnonzero(sets.any(axis=0))
    step = max(1, points.room // max(points.ownership.codes.size, cents.size))
    for start in range(0, owners.size, step):
        here = owners[start : start + step]
        out[here] = np.diagonal(_pay_without(points, sets[:, here], terms, keys)[:, here])
    return out


def _reference(model: Any, reference: Any, points: PointValues) -> tuple[PointValues, PointValues] | None:
    """Return the points to compare, and the points known to be honest; None for no test."""
    if reference is None:
        return None
    if isinstance(reference, str) and reference == "train":
        if not has_training_points(model):
            raise InputError(
                "The 'reference' parameter of audit_influence is 'train', which needs the features of at least 2 "
                "training rows in memory, and a model other than SemiSupervisedKNNShapley, whose beliefs depend on "
                "all rows. Pass honest points as (X, y), or None for no test."
            )
        return without_a_row(points), training_points(model, points.ownership, points.negatives, MOST_REFERENCE)
    if not (isinstance(reference, tuple | list) and len(reference) == 2):
        raise check.wrong("audit_influence", "reference", "'train', a pair (X, y) of honest points, or None", reference)
    X = model._check_points(reference[0])
    y = _labels.check_labels(reference[1], "reference", X.shape[0], "reference")
    return points, PointValues(model, X, y, points.ownership, points.negatives)


@dataclass(frozen=True)
class Findings:
    """Findings of the comparison with honest points; fields as in :class:`InfluenceAudit`."""

    excess: Floats
    p_values: Floats
    flagged: Flags
    expected: Floats
    missing: Flags

    @classmethod
    def nothing(cls, n_val: int, n_owners: int) -> "Findings":
        """Return findings without a test."""
        no, unknown = np.zeros(n_owners, dtype=bool), np.full(n_owners, np.nan)
        return cls(unknown, unknown, np.zeros((n_val, n_owners), dtype=bool), np.zeros(n_owners), no)


def _compare(
    points: PointValues, compared: PointValues, reference: PointValues, alpha: float, draws: int, rng: Any
) -> Findings:
    """Compare validation points with honest ones; see the notes of :func:`audit_influence`."""
    # Both together decide which rows count, so that they differ only by the division into two sets.
    totals = compared.totals() + reference.totals()
    given = np.concatenate([side.counted(totals > 0) for side in (compared, reference)])
    whole = given.sum()
    effects = given - given.sum(axis=1, keepdims=True) * (given.sum(axis=0) / whole if whole > 0 else 0.0)
    chosen = np.arange(len(given)) < points.size
    scores, chance = _excess(effects, chosen, draws, rng, points.room // (4 * (2 * len(TAILS) + 1)))
    excess, n_tails = scores.max(axis=0), len(TAILS)
    p_values, upper, lower = _chances(chance, excess), scores[1 : n_tails + 1], scores[n_tails + 1 :].max(axis=0)
    found = Findings.nothing(points.size, p_values.size)
    clear, fewer = (_chances(chance, tail) <= alpha for tail in (upper.max(axis=0), lower))
    for at in np.flatnonzero(p_values <= alpha):
        # If only the mean is significant, the tail that differs more shows its cause.
        only_mean, more = not (clear[at] or fewer[at]), upper[:, at].max() >= lower[at]
        found.missing[at] = fewer[at] or (only_mean and not more)
        if clear[at] or (only_mean and more):
            beyond = _columns(effects[:, [at]])[1 + upper[:, at].argmax(), :, 0] > 0
            found.flagged[:, at] = beyond[: points.size]
            found.expected[at] = beyond[points.size :].mean() * points.size
    return replace(found, excess=excess, p_values=p_values)


def _columns(effects: Floats) -> Floats:
    """Effects, and whether each is in the upper and (-1) lower tails: shape (n_columns, n_points, n_owners)."""
    cuts = np.quantile(effects, [1 - tail for tail in TAILS] + list(TAILS), axis=0)
    upper, lower = cuts[: len(TAILS), None], cuts[len(TAILS) :, None]
    return np.concatenate([effects[None], effects >= upper, -1.0 * (effects <= lower)])


def _excess(effects: Floats, chosen: Flags, draws: int, rng: Any, room: int) -> tuple[Floats, Floats]:
    """Standardised sums over chosen points, and the largest one of each random choice of the same size.

    Parameters
    ----------
    effects : ndarray of shape (n_points, n_owners)
    chosen : ndarray of shape (n_points,)
    draws : int
    rng : Generator
    room : int
        Most effects (owners times points) compared at a time.

    Returns
    -------
    scores : ndarray of shape (n_columns, n_owners)
        Of the columns of :func:`_columns`.
    chance : ndarray of shape (draws,)
    """
    n, size, n_owners = chosen.size, int(chosen.sum()), effects.shape[1]
    least = 1e-12 * max(1.0, np.abs(effects).max(initial=0.0))
    width = max(1, room // n)
    blocks = [slice(start, start + width) for start in range(0, n_owners, width)]

    def standardised(owners: slice) -> Floats:
        flat = _columns(effects[:, owners]).transpose(1, 0, 2).reshape(n, -1)
        flat -= flat.mean(axis=0)
        spread = np.sqrt((flat**2).sum(axis=0) * (size * (n - size) / (n * max(n - 1, 1))))
        found: Floats = np.divide(flat, spread, out=np.zeros_like(flat), where=spread > least)
        return found

    scores, order = [], _own_order(effects)
    chance, step = np.full(draws, -np.inf), max(1, DRAWN_NUMBERS // n)
    for start in range(0, draws, step):
        sets = rng.permuted(np.tile(np.arange(n) < size, (min(step, draws - start), 1)), axis=1).astype(np.float64)
        for owners in blocks:
            flat = standardised(owners)
            if not start:
                scores.append(flat[chosen].sum(axis=0).reshape(2 * len(TAILS) + 1, -1))
            here = chance[start : start + step]
            np.maximum(here, (sets @ flat[order]).max(axis=1), out=here)
    return np.concatenate(scores, axis=1), chance


def _chances(chance: Floats, scores: Floats) -> Floats:
    """P-values of scores among those of random choices; scores equal up to rounding count."""
    return np.asarray((1 + (chance[:, None] >= scores - ROUNDING).sum(axis=0)) / (chance.size + 1))


def _own_order(effects: Floats) -> npt.NDArray[np.intp]:
    """Order points by their effects on owners, so that the order of points and of owners does not matter."""
    return np.lexsort(np.sort(effects, axis=1).T)


def _compare_clusters(
    points: PointValues, codes: npt.NDArray[np.int64], n_clusters: int, draws: int, rng: Any
) -> Floats:
    """For each cluster, probability that random clusters of these sizes favour any owner at least as clearly."""
    if n_clusters < 2:
        return np.ones(n_clusters)
    given = points.counted(points.totals() > 0)
    whole = given.sum()
    effects = given - given.sum(axis=1, keepdims=True) * (given.sum(axis=0) / whole if whole > 0 else 0.0)
    n, sizes = codes.size, np.bincount(codes)
    spread = np.sqrt(np.outer(sizes * (n - sizes) / (n * (n - 1)), (effects**2).sum(axis=0)))

    def clearest(numbers: npt.NDArray[np.int64]) -> Floats:
        sums = np.zeros((n_clusters, effects.shape[1]))
        np.add.at(sums, numbers, effects)
        scores: Floats = np.divide(sums, spread, out=np.zeros_like(sums), where=spread > 0)
        return np.asarray(scores.max(axis=1))

    scores, effects = clearest(codes), effects[_own_order(effects)]
    chance = np.array([clearest(rng.permutation(codes)).max() for _ in range(draws)])
    return _chances(chance, scores)
