"""Privacy: rounded or noisy payments that reveal little about single validation points to sellers."""

import hashlib
import hmac
import math
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks.labels import encode_labels
from shapshift.engine.coefficients import BY_SIZE, SEMIVALUES, Banzhaf, Beta, rank_table, size_probabilities
from shapshift.exceptions import InputError
from shapshift.io.shown import Shown
from shapshift.price.money import parse_money
from shapshift.price.owners import OwnerValues
from shapshift.price.points import float_payouts
from shapshift.price.policy import Terms
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Cents = npt.NDArray[np.int64]

# Totals are whole multiples of this share of what one point can change: far finer than the noise.
GRID = 2.0**-24
# Number of draws for the stated cost of noise, and most numbers that the draws may hold.
DRAWS, DRAWN_NUMBERS = 1000, 2**22
LEAST_SECRET = 16
# Positions k of a match that are computed one by one; later ones are grouped in blocks that grow by this share.
SINGLE_PLACES, BLOCK_GROWTH = 100, 0.01
# All parameters that such values depend on. Others, as after pooling or correction, may depend on the points in other
# ways.
KNOWN = frozenset(
    {
        *("method", "n_neighbors", "utility", "semivalue", "metric", "algorithm", "ties", "n_train", "n_val"),
        *("n_classes", "boundary_neighbors", "boundary_entropy"),
    }
)


class Released(NamedTuple):
    """Noisy contributions, from which payments are computed.

    Attributes
    ----------
    contributions : ndarray of shape (n_owners,)
        With noise.
    scale : float
        Mean absolute noise of each; 0 without noise.
    facts : mapping
        Record for :class:`Allocation.parameters`.
    """

    contributions: Floats
    scale: float
    facts: dict[str, Any]


@dataclass(frozen=True)
class Privacy(Shown):
    """Protection of the validation set: rounding or noise on payments.

    A seller who submits a table repeatedly, adding or removing a row each time, can infer validation points from the
    payments. Rounding makes that harder; noise limits it provably.

    Parameters
    ----------
    step : money, optional
        Payments are rounded to multiples of this amount, by largest remainder, so that they never exceed the budget;
        the rest stays unallocated. Payments at the policy's floor, cap or deposit are not rounded. Rounding gives no
        guarantee: a seller near the boundary between two multiples sees small changes.
    epsilon : float, optional
        Laplace noise on the total of each owner, of scale ``sensitivity / epsilon``. If one validation point is
        replaced by any other, no set of payments becomes more probable by a factor above ``exp(epsilon)``:
        epsilon-differential privacy of the validation points. Payments of several rounds on the same points add up: ten
        rounds of 0.1 are one of 1.
    seed : str or bytes, optional
        A secret of at least 16 characters or bytes. The noise is derived from it and from all inputs of the payments:
        repeating a round gives the same payments, and any change gives fresh noise. By default the system draws the
        noise, and runs cannot be repeated. Anyone who knows the secret can remove the noise. Results do not contain it.

    Notes
    -----
    The sensitivity is the largest change of all totals together when one of ``n_val`` points is replaced: at most 2 L /
    n_val, with L the largest possible sum of absolute values of all rows on one point. For rows as players, a row at
    rank j that is the k-th match adds c_j to its own value and takes c_(j-1) - c_j from each nearer row; on a point,
    values of matching rows are never negative, and values of others never positive. So of M matches L is at most the
    sum over k = 1..M of the largest c_j + (j - 2k + 1)(c_(j-1) - c_j), j >= k, and (2M - N) beta(M). For any players, L
    is at most the sum over sizes s of p_s G / (s + 1): a player that joins changes the utility by no more than its
    share of the rows that vote, and the shares of all players are 1 (not used for "calibrated" and "filled"). That is
    the harmonic number of G for Shapley values, 1 / w for weighted Banzhaf values. The smaller bound is used. Totals of
    owners, and sums of positive values, change by no more than the values of their rows. Both bounds hold for ties.

    Only the payments are private. Statements omit everything else computed from the points (parts of single rows,
    sampling intervals, audits); do not show it to sellers in another way. Preparation fitted on the validation table is
    not covered.

    Random numbers have 53 bits, so noise never exceeds 37 times its scale; exact Laplace noise would with probability
    1e-16 for each owner.

    Examples
    --------
    >>> from shapshift import Privacy
    >>> Privacy(step=10, epsilon=1.0)
    Privacy(step=10, epsilon=1.0)
    """

    step: Any = None
    epsilon: float | None = None
    seed: str | bytes | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.step is None and self.epsilon is None:
            raise InputError("Privacy needs 'step', 'epsilon' or both. Got neither.")
        if self.epsilon is not None:
            check.check_number("Privacy", "epsilon", self.epsilon, above=True)
        if self.step is not None and parse_money("Privacy", "step", self.step, digits=4) == 0:
            raise InputError("The 'step' parameter of Privacy must be above 0. Leave it out to round to cents.")
        if self.seed is not None:
            check.check_type("Privacy", "seed", self.seed, (str, bytes), "a secret text or bytes, or None")
            if len(self.seed) < LEAST_SECRET:
                raise InputError(
                    f"The 'seed' parameter of Privacy must have at least {LEAST_SECRET} characters or bytes: a shorter "
                    "one can be guessed. Use such as secrets.token_bytes(32), and keep it."
                )

    def release(
        self, contributions: Floats, keys: Sequence[bytes], valuation: Valuation, values: OwnerValues | None
    ) -> Released:
        """Add noise to the owners' contributions.

        Parameters
        ----------
        contributions : ndarray of shape (n_owners,)
        keys : sequence of bytes
            One per owner, derived from its rows.
        valuation, values
            Sources of the contributions, see :func:`shapshift.price.allocate_budget`.
        """
        facts: dict[str, Any] = {} if self.step is None else {"step": str(self.step)}
        if self.epsilon is None:
            return Released(contributions, 0.0, facts)
        sensitivity = 2 * point_norm(valuation, values) / valuation.n_val
        grid, n = sensitivity * GRID, contributions.size
        scale = sensitivity * (1 + n * GRID) / self.epsilon  # rounding to the grid changes each total by up to one step
        whole = np.rint(contributions / grid)
        order = sorted(range(n), key=lambda at: (keys[at], whole[at]))
        about = hashlib.sha256(f"{valuation.fingerprint} {self.epsilon!r} {sensitivity!r}".encode())
        for at in order:
            about.update(keys[at] + contributions[at].tobytes())
        noise = np.empty(n)
        noise[order] = _laplace(self._secret(), about.digest(), n, scale / grid)
        facts |= {"epsilon": float(self.epsilon), "sensitivity": sensitivity, "scale": scale}
        return Released(grid * (whole + noise), scale, facts)

    def _secret(self) -> bytes:
        if self.seed is None:
            return secrets.token_bytes(32)
        return self.seed.encode("utf-8", "surrogatepass") if isinstance(self.seed, str) else self.seed

    def rounded(self, paid: Cents, terms: Terms, contributions: Floats, keys: Sequence[bytes]) -> Cents:
        """Round payments, in cents, to multiples of the step; their sum does not grow beyond what was paid.

        Between equal remainders the larger contribution decides, and then the key.
        """
        if self.step is None:
            return paid
        step = self.cents(terms)
        floor, cap, _ = terms.limits
        held = np.isin(paid, [floor, floor if cap is None else cap, -terms.deposit])
        left = np.where(held, 0, np.sign(paid) * (np.abs(paid) % step))
        down = np.maximum(paid - left, np.where(paid > 0, floor, paid.min(initial=0)))
        spare = int((paid - down)[paid > 0].sum()) // step
        order = sorted(np.flatnonzero(left > 0).tolist(), key=lambda at: (-left[at], -contributions[at], keys[at]))
        for at in order:
            if spare and down[at] % step == 0 and (cap is None or down[at] + step <= cap):
                down[at], spare = down[at] + step, spare - 1
        return np.asarray(down, dtype=np.int64)

    def cents(self, terms: Terms) -> int:
        """Step in cents of a currency."""
        return parse_money("Privacy", "step", self.step, terms.digits)

    def cost(self, released: Released, terms: Terms) -> tuple[Cents, Cents]:
        """Mean and 95% quantile of the change of each payment due to noise, in cents.

        Estimated from fresh noise around the released contributions, so that stating it reveals nothing more about the
        points.
        """
        n = released.contributions.size
        draws = max(100, min(DRAWS, DRAWN_NUMBERS // max(n, 1)))
        drawn = np.random.default_rng(0).laplace(scale=released.scale, size=(draws, n)) + released.contributions
        moved = np.abs(_float_cents(terms, drawn) - _float_cents(terms, released.contributions[None]))
        return (
            np.ceil(moved.mean(axis=0)).astype(np.int64),
            np.ceil(np.quantile(moved, 0.95, axis=0)).astype(np.int64),
        )


def point_norm(valuation: Valuation, values: OwnerValues | None = None) -> float:
    """Bound the sum of the absolute values of all players on one point, see :class:`Privacy`.

    Parameters
    ----------
    valuation : Valuation
        Exact values of KNNShapley, each point counted alike.
    values : OwnerValues, optional
        Where owners are the players.

    Returns
    -------
    float
    """
    parameters = valuation.parameters
    other = sorted({*parameters} - KNOWN)
    if parameters.get("method") != "KNNShapley" or parameters.get("algorithm") != "exact" or other:
        named = f"{parameters.get('method')} ({parameters.get('algorithm', 'sampled')})"
        raise InputError(
            "The 'epsilon' parameter of Privacy needs exact values of KNNShapley without pooling, weights or "
            f"correction: what one validation point can change is known for these. Got {named}"
            f"{f' with {check.some(other)}' if other else ''}. Use 'step', or pay other values."
        )
    if values is not None:
        if math.isnan(values.certificate):  # from release 0.1.0, possibly sampled
            raise InputError("The 'epsilon' parameter of Privacy needs exact values of owners. Compute them again.")
        semivalue = _semivalue(values.parameters["semivalue"])
        return _size_bound(size_probabilities(len(values.owners), semivalue))
    semivalue, n = _semivalue(parameters["semivalue"]), int(parameters["n_train"])  # rows that vote
    bound = math.inf if semivalue in BY_SIZE else _size_bound(size_probabilities(n, semivalue))
    if valuation.labels is None:
        raise InputError(
            "The 'epsilon' parameter of Privacy needs a valuation that has the labels of its rows. Add them with "
            "dataclasses.replace(valuation, labels=y)."
        )
    counts = np.bincount(encode_labels(valuation.labels)[1])
    table = rank_table(n, int(parameters["n_neighbors"]), semivalue, parameters["utility"])
    # A point may have a label that no row has. If some rows do not vote, the number of voters of a label is unknown.
    matches = np.append(counts, 0) if n == valuation.n_train else np.arange(min(n, int(counts.max())) + 1)
    beta = table.per_match * matches - table.empty / int(parameters["n_classes"])
    by_rank = _best_places(table.c, int(matches.max()))[matches] + (2 * matches - n) * beta
    return min(bound, float(by_rank.max()))


def _size_bound(probabilities: Floats) -> float:
    """Bound for players of any kind, given the probability of each size of the subset that a player joins."""
    n = probabilities.size
    return float(np.sum(probabilities * (n / np.arange(1, n + 1))))


def _best_places(c: Floats, most: int) -> Floats:
    """Return sums over k = 1..m of the largest c_j + (j - 2k + 1)(c_(j-1) - c_j), j >= k, m = 0..most.

    The term decreases with k, so the first of a block of positions bounds the others.
    """
    ranks, falls = np.arange(1, c.size + 1), np.append(0.0, c[:-1] - c[1:])
    lines, sums, k = c + (ranks + 1) * falls, np.zeros(most + 1), 1
    while k <= most:
        after = min(k + max(1, int((k - SINGLE_PLACES) * BLOCK_GROWTH)), most + 1)
        best = float((lines[k - 1 :] - 2 * k * falls[k - 1 :]).max())
        sums[k:after] = sums[k - 1] + best * np.arange(1, after - k + 1)
        k = after
    return sums


def _semivalue(said: str) -> Any:
    """Parse a semivalue as it is written in results."""
    if found := re.fullmatch(r"Beta\(alpha=([\d.e+-]+), beta=([\d.e+-]+)\)", said):
        return Beta(float(found[1]), float(found[2]))
    if found := re.fullmatch(r"Banzhaf\(w=([\d.e+-]+)\)", said):
        return Banzhaf(float(found[1]))
    if said not in SEMIVALUES:
        raise InputError(f"The 'epsilon' parameter of Privacy does not know the semivalue {said!r}. Use 'step'.")
    return said


def _laplace(secret: bytes, about: bytes, n: int, scale: float) -> Floats:
    """Draw ``n`` whole numbers k with probabilities in proportion to exp(-abs(k) / scale)."""
    drawn = np.empty((n, 2))
    for at in range(n):
        bits = hmac.digest(secret, about + at.to_bytes(8, "big"), "sha256")
        # Above 0 and below 1.
        drawn[at] = [(int.from_bytes(part, "big") >> 11) * 2.0**-53 + 2.0**-54 for part in (bits[:8], bits[8:16])]
    whole = np.floor(-np.log(drawn) * scale)
    return np.asarray(whole[:, 0] - whole[:, 1])


def _float_cents(terms: Terms, contributions: Floats) -> Floats:
    """Payments before rounding, in cents; contributions of shape (..., n_owners)."""
    positive = np.maximum(contributions, 0.0)
    paid: Floats = float_payouts(terms, positive) * 10**terms.digits
    if deposit := terms.deposit:
        whole = positive.sum(axis=-1, keepdims=True)
        rate = np.divide(terms.budget - terms.limits[2], whole, out=np.zeros_like(whole), where=whole > 0)
        paid -= np.minimum(rate * np.maximum(-contributions, 0.0), deposit)
    return paid
