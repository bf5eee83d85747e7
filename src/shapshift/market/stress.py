"""stress_market: gains of sellers' tricks under a payment rule, on given rows."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift._progress import progress_bar
from shapshift.agreement import t_interval
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.exceptions import InputError
from shapshift.io.results import Result, to_table
from shapshift.market.attacks import ATTACKS, Offer, play
from shapshift.price.policy import Terms
from shapshift.price.rule import Rule, pay_owners

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

# Amounts are scaled up by at most 10**MOST_SCALED so that rounding to whole cents hides no gain, and stay below
# 10**LARGEST.
MOST_SCALED, LARGEST = 6, 12


@dataclass(frozen=True, eq=False, repr=False)
class StressTest(Result):
    """Gains of sellers' tricks; see :func:`stress_market`.

    Attributes
    ----------
    attacks : tuple of str
        Names of the tricks.
    attackers : tuple
        Sellers who play them.
    attack, attacker, repeat : ndarray of shape (n_games,)
        Number of the trick, of the seller and of the repeat of each game.
    before, after : ndarray of shape (n_games,)
        Unrounded pay of the seller without and with the trick, in units of the currency; for "merge", of both sellers
        together.
    applies : ndarray of shape (n_games,)
        Whether the trick applies to the seller.
    average : float
        Pay of an average seller without tricks; charges count as 0.
    n_sellers : int
    currency : str
    digits : int
        Decimals of an amount of the currency. A gain below half a unit of the last one counts as 0.
    rule : mapping
        The payment rule, see :meth:`shapshift.price.Rule.from_dict`.
    parameters : mapping
        Budget, seed, and parameters of the valuation.
    kind : str
        Kind of tables, as in the caller's data: "numpy", "pandas", "polars" or "pyarrow".

    Examples
    --------
    >>> from shapshift import KNNShapley, load_dataset, stress_market
    >>> data = load_dataset("wine")
    >>> sellers = ["ann", "bob"] * (len(data.y_train) // 2) + ["ann"] * (len(data.y_train) % 2)
    >>> given = (KNNShapley(), data.X_train, data.y_train, data.X_val, data.y_val, sellers, 100)
    >>> found = stress_market(*given, attackers=["ann"], attacks=["copy"])
    >>> found.to_frame("pyarrow").num_rows
    1
    """

    archive_kind: ClassVar[str] = "shapshift.StressTest"
    archive_shapes: ClassVar[Mapping[str, str]] = dict.fromkeys(
        ("attack", "attacker", "repeat", "before", "after", "applies"), "n_games"
    )

    attacks: tuple[str, ...]
    attackers: tuple[Any, ...]
    attack: Indices
    attacker: Indices
    repeat: Indices
    before: Floats
    after: Floats
    applies: npt.NDArray[np.bool_]
    average: float
    n_sellers: int
    currency: str
    digits: int
    rule: Mapping[str, Any]
    parameters: Mapping[str, Any]
    kind: str = "numpy"

    @property
    def gain(self) -> Floats:
        """Gain of the trick in each game; NaN if it does not apply."""
        return np.where(self.applies, self.after - self.before, np.nan)

    def percent(self, amount: Any) -> Any:
        """Return an amount in % of the pay of an average seller; NaN if nobody is paid."""
        return 100 * amount / self.average if self.average > 0 else amount * np.nan

    def gains_of(self, attack: str) -> Floats:
        """Mean gain of each attacker to whom a trick applies."""
        played = self.applies & (self.attack == self.attacks.index(attack))
        gain, codes = self.gain, np.unique(self.attacker[played])
        means = np.array([gain[played & (self.attacker == at)].mean() for at in codes])
        return np.where(np.abs(means) < self._unit, 0.0, means)

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the games.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind of the training table; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per game: ``attack``, ``attacker``, ``repeat``, ``applies``, pay ``before`` and ``after``, ``gain``
            in money and ``percent``, the gain in % of the pay of an average seller; both NaN if the trick does not
            apply.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "attack": object_array([self.attacks[at] for at in self.attack]),
            "attacker": _labels.owner_column([self.attackers[at] for at in self.attacker]),
            "repeat": self.repeat,
            "applies": self.applies,
            "before": self.before,
            "after": self.after,
            "gain": self.gain,
            "percent": self.percent(self.gain),
        }
        return to_table(columns, None, kind or self.kind)

    def summary(self) -> dict[str, Any]:
        """Summarise the gains of each trick.

        Returns
        -------
        dict
            ``sellers``, ``attackers`` (how many), ``average_pay``, ``currency`` and ``attacks``: a list with, for each
            trick, ``attack``, ``words``, ``attackers`` (how many it applies to), the mean ``gain`` in money with the
            ends ``low`` and ``high`` of its 95% interval, the ``worst`` game, all four also as ``..._percent`` of an
            average seller's pay, and ``gaining``, the share of attackers who gain. Attackers are the sample: an
            attacker's repeats are averaged first, as they are not independent, and the interval is Student's t over
            attackers. It is NaN with fewer than two; all numbers are NaN if the trick applies to nobody.
        """
        found = []
        for number, name in enumerate(self.attacks):
            means = self.gains_of(name)
            entry = dict.fromkeys(("gain", "low", "high", "worst", "gaining"), np.nan)
            if means.size:
                spread = np.asarray(means.std(ddof=1) if means.size > 1 else np.nan)
                low, high = t_interval(np.asarray(means.mean()), spread, means.size)
                worst = np.nanmax(self.gain[self.attack == number])
                entry["gain"], entry["low"], entry["high"] = float(means.mean()), float(low), float(high)
                entry["worst"] = float(worst) if abs(worst) >= self._unit else 0.0
                entry["gaining"] = float((means > 0).mean())
            percents = {f"{key}_percent": self.percent(entry[key]) for key in ("gain", "low", "high", "worst")}
            words = ATTACKS[name].words if name in ATTACKS else name
            found.append({"attack": name, "words": words, "attackers": means.size} | entry | percents)
        return {
            "sellers": self.n_sellers,
            "attackers": len(self.attackers),
            "average_pay": self.average,
            "currency": self.currency,
            "attacks": found,
        }

    @property
    def _unit(self) -> float:
        return 0.5 * 10.0**-self.digits

    def findings(self) -> list[str]:
        """Return sentences on the gains of the tricks, the largest first."""
        if not self.average > 0:
            return ["Nobody is paid anything without tricks, so that no gain can be told in parts of an average pay."]
        facts = self.summary()["attacks"]
        played = sorted((one for one in facts if one["attackers"]), key=lambda one: -one["gain"])
        idle = [one["attack"] for one in played if one["gain"] == 0 and one["worst"] == 0]
        told = [f"Under this rule a seller gains nothing by {_listed(idle)}."] if idle else []
        for one in played:
            if one["attack"] in idle:
                continue
            said = f"A seller who {one['words']} {'loses' if one['gain'] < 0 else 'gains'} on average "
            said += f"{self._said(abs(one['gain']))} of an average seller's pay" if one["gain"] else "nothing"
            ends = f"at most {self._said(one['worst'])}"
            if np.isfinite(one["low"]):
                ends = f"95% interval {self._said(one['low'])} to {self._said(one['high'])}, {ends}"
            if one["low"] <= 0 < one["gain"]:
                n_gain, n = round(one["gaining"] * one["attackers"]), one["attackers"]
                ends += f"; {n_gain} of {n} sellers {'gains' if n_gain == 1 else 'gain'}"
            told.append(f"{said} ({ends}).")
        absent = [one["attack"] for one in facts if not one["attackers"]]
        if absent:
            told.append(f"No attacker could play {_listed(absent)}: that does not apply to these rows.")
        return told

    def _said(self, amount: float) -> str:
        percent = self.percent(amount)
        return f"{percent:,.{0 if abs(percent) >= 10 else 1}f}%"

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the gain of each trick: a dot per attacker, the mean and its 95% interval.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; a new figure by default.

        Returns
        -------
        Axes
        """
        from shapshift.plots.results import plot_stress

        return plot_stress(self, ax=ax)

    def _check_loaded(self) -> None:
        super()._check_loaded()
        for name, numbers in (("attacks", self.attack), ("attackers", self.attacker)):
            if numbers.size and not 0 <= numbers.min() <= numbers.max() < len(getattr(self, name)):
                raise InputError(f"its games name {name} that it does not list")

    def __repr__(self) -> str:
        gains = [f"{one['attack']} {one['gain_percent']:+.0f}%" for one in self.summary()["attacks"]]
        return f"StressTest({len(self.attackers)} of {self.n_sellers} sellers; {', '.join(gains)} of an average pay)"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" or {names[-1]}" if len(names) > 1 else names[0]


def stress_market(
    model: Any,
    X: Any,
    y: Any,
    X_val: Any,
    y_val: Any,
    owners: Any,
    budget: Any,
    *,
    rule: Rule | None = None,
    order: Any = None,
    attacks: Any = tuple(ATTACKS),
    attackers: Any = 4,
    n_repeats: int = 3,
    random_state: int | None = 0,
    currency: str = "EUR",
    progress: bool | None = None,
) -> StressTest:
    """Play sellers' tricks on given rows, and measure their gains under a payment rule.

    Parameters
    ----------
    model : KNNShapley
        Model that values the rows, fitted or not.
    X, y : table of shape (n_train, n_features), array-like of shape (n_train,)
        Numeric training rows, and their labels.
    X_val, y_val : table of shape (n_val, n_features), array-like of shape (n_val,)
        The validation set.
    owners : array-like of shape (n_train,)
        Seller of each row; a pandas Series is matched by its index.
    budget, rule, order, currency
        As in :func:`shapshift.price.pay_owners`.
    attacks : sequence of str, default=all
        Tricks to play, of ``ATTACKS``: "copy", "copy x4", "copy x10, tiny noise", "steal", "near-copy",
        "steal with noise", "random rows", "mixup", "split", "merge", "hide bad rows".
    attackers : int or sequence, default=4
        Number of randomly drawn sellers who play each trick, one at a time; or their names.
    n_repeats : int, default=3
        Number of repeats of each random trick.
    random_state : int or None, default=0
        Seed. Draws of a game depend only on it, the trick, the seller and the repeat.
    progress : bool, default=None

    Returns
    -------
    StressTest

    Notes
    -----
    Payments are computed once for the original rows and once per game: attackers times tricks, times repeats for
    tricks that draw at random. Everything else stays fixed: other sellers do not react, features are not rescaled,
    and added rows come after all others. Gains are differences of payouts before rounding to cents; less than half
    a cent counts as 0, since it comes from rounding sums.

    Examples
    --------
    >>> from shapshift import KNNShapley, stress_market
    >>> from shapshift.price import Policy, Rule
    >>> rows, labels = [[0.0], [1.0], [3.0]], ["a", "b", "b"]
    >>> given = KNNShapley(n_neighbors=1), rows, labels, [[0.9]], ["b"], ["ann", "bob", "cid"], 100
    >>> found = stress_market(*given, rule=Rule("rows", policy=Policy(negatives="clip")), attacks=["copy"])
    >>> found.to_frame("pandas")[["attacker", "before", "after"]].round(2).to_string(index=False).splitlines()[3]
    '     cid    20.0  28.57'
    """
    caller = "stress_market"
    rule = Rule() if rule is None else rule
    check.check_type(caller, "rule", rule, Rule, "a Rule, such as Rule('clusters')")
    check.check_count(caller, "n_repeats", n_repeats)
    seed = check.check_seed(caller, random_state)
    check.check_progress(caller, progress)
    names = [attacks] if isinstance(attacks, str) else list(dict.fromkeys(attacks))
    if not names:
        raise check.wrong(caller, "attacks", "a sequence of at least one trick", attacks)
    for name in names:
        check.check_choice(caller, "attacks", name, tuple(ATTACKS))
    if getattr(model, "metric", None) == "precomputed":
        raise InputError(
            "The 'model' parameter of stress_market must compute distances itself: rows that sellers make up have "
            "features, but no precomputed distances. Choose another metric."
        )
    if rule.pay_by == "precedence" and order is None:
        raise InputError("pay_by='precedence' needs to know when each row was submitted. Pass 'order'.")
    terms = Terms.check(caller, budget, rule.policy, currency)
    table = check.check_features(X, "X")
    points = check.match_columns(check.check_features(X_val, "X_val"), table.columns, table.rows.shape[1], "X_val")
    n = table.rows.shape[0]
    _labels.check_same_order(X, y)
    ownership = _labels.check_owners(owners, _labels.check_ids(None, table.index, n))
    order = None if order is None else _labels.check_labels(order, "order", n, "X", "date or number")
    offer = Offer(table.rows, _labels.check_labels(y, "y", n, "X"), ownership.codes, order)
    offer = offer._replace(order=offer.ranks())
    chosen = _choose(attackers, ownership.names, seed)
    scale, scaled = _scaled(rule, terms)

    def pay(offered: Offer) -> Any:
        whole = Decimal(terms.budget).scaleb(-terms.digits) * scale
        given = (model, offered.X, offered.y, points.rows, y_val, offered.owners, whole)
        options: dict[str, Any] = {"currency": currency, "intervals": False, "progress": False}
        return pay_owners(*given, rule=scaled, order=offered.order, **options)

    def money(cents: int) -> float:
        return float(Fraction(cents, scale * 10**terms.digits))

    def paid(allocation: Any, names: Sequence[int]) -> float:
        of = dict(zip(allocation.owners, allocation.cents.tolist(), strict=True))
        return money(sum(of.get(name, 0) for name in names))

    games = [
        (number, at, repeat)
        for number, name in enumerate(names)
        for at in range(len(chosen))
        for repeat in range(n_repeats if ATTACKS[name].drawn else 1)
    ]
    before, after, applies = np.zeros(len(games)), np.zeros(len(games)), np.ones(len(games), dtype=np.bool_)
    with progress_bar("Playing tricks", len(games) + 1, progress) as advance:
        honest = pay(offer)
        offer = offer._replace(values=honest.row_values)
        advance(1)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # shown once, for the original rows
            for game, (number, at, repeat) in enumerate(games):
                drawn = [seed, list(ATTACKS).index(names[number]), chosen[at], repeat]
                played, own = play(names[number], offer, chosen[at], drawn)
                before[game] = after[game] = paid(honest, own)
                applies[game] = played is not offer
                if applies[game]:
                    after[game] = paid(pay(played), own)
                advance(1)
    number, at, repeat = np.array(games, dtype=np.int64).T
    return StressTest(
        attacks=tuple(names),
        attackers=tuple(ownership.names[code] for code in chosen),
        attack=number,
        attacker=at,
        repeat=repeat,
        before=before,
        after=after,
        applies=applies,
        average=money(int(np.maximum(honest.cents, 0).sum())) / len(ownership.names),
        n_sellers=len(ownership.names),
        currency=currency,
        digits=terms.digits,
        rule=rule.to_dict(),
        parameters={"budget_cents": terms.budget, "random_state": seed, "n_repeats": int(n_repeats)},
        kind=table.kind,
    )


def _choose(attackers: Any, names: tuple[Any, ...], seed: int) -> list[int]:
    """Return the indices of the attackers."""
    if isinstance(attackers, int | np.integer):
        n = min(check.check_count("stress_market", "attackers", attackers), len(names))
        return sorted(np.random.default_rng(seed).choice(len(names), n, replace=False).tolist())
    given = [attackers] if isinstance(attackers, str) else list(dict.fromkeys(attackers))
    unknown = [name for name in given if name not in names]
    if unknown or not given:
        raise InputError(
            f"The 'attackers' parameter of stress_market must be some of the sellers ({check.some(names)}), or a "
            f"number of them. Got {check.quoted(unknown[0] if unknown else attackers)} instead."
        )
    return [names.index(name) for name in given]


def _scaled(rule: Rule, terms: Terms) -> tuple[int, Rule]:
    """Return the factor that makes rounding to cents negligible, and the rule with its amounts scaled by it."""
    policy = rule.policy
    amounts = {
        name: Decimal(getattr(policy, name))
        for name in ("floor", "cap", "reserve", "deposit")
        if getattr(policy, name) is not None and not getattr(policy, name).endswith("%")
    }
    largest = max(Decimal(terms.budget).scaleb(-terms.digits), *amounts.values())
    scale = 10 ** max(0, min(MOST_SCALED, LARGEST - 1 - largest.adjusted()))
    return scale, replace(rule, policy=replace(policy, **{name: each * scale for name, each in amounts.items()}))
