r"""Rank coefficients of the KNN semivalues: all they need besides the order of the rows.

Sort the ``N`` training rows by distance to one validation point and let ``a_r`` say whether the row at rank ``r``
carries the point's label, ``M`` how many rows do. For every semivalue and both utilities the value at rank ``r`` is

.. math:: v_r = a_r c_r + \sum_{j>r} a_j (c_j - c_{j-1}) + \beta(M)

with a table :math:`c` that depends on ``N``, ``K`` and the semivalue only. This module makes that table in
:math:`O(N + K)` for every semivalue. Two facts do it:

* **Hard utility.** :math:`K c_i` is the probability that fewer than ``K`` of the ``i - 1`` nearer rows were drawn, so
  that row ``i`` still votes. It is 1 up to rank ``K`` and then falls by the probability that the ``K``-th drawn row
  sits exactly at rank ``i``: one closed-form term per rank. Summing the terms from the far end adds positive numbers
  only, so nothing cancels.
* **Soft utility.** :math:`1/\min(K, s+1)` differs from :math:`1/K` only for subsets smaller than ``K - 1``, in which
  every row votes whatever its rank. The soft table is the hard table plus a constant.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal, cast

import numpy as np
import numpy.typing as npt
from scipy import stats

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError

Floats = npt.NDArray[np.float64]
Utility = Literal["soft", "hard"]

SEMIVALUES = ("shapley", "banzhaf", "loo", "calibrated", "filled")
#: Semivalues that depend on K, for values of single rows without an order of joining.
BY_SIZE = ("calibrated", "filled")
#: Smallest subset size of "filled", in multiples of K.
FILLED = 2


@dataclass(frozen=True)
class Beta:
    """The Beta(alpha, beta) semivalue of Kwon and Zou.

    ``Beta(1, 1)`` is the Shapley value; a large ``alpha`` favours small subsets, a large ``beta`` large ones.

    Parameters
    ----------
    alpha, beta : float
        Positive shape parameters.

    Examples
    --------
    >>> from shapshift import Beta, KNNShapley
    >>> KNNShapley(semivalue=Beta(4, 1))
    KNNShapley(semivalue=Beta(alpha=4, beta=1))
    """

    alpha: float
    beta: float

    def __post_init__(self) -> None:
        for name in ("alpha", "beta"):
            shape = getattr(self, name)
            if not (isinstance(shape, int | float | np.number) and 0 < shape < np.inf):
                raise InputError(
                    f"The {name!r} parameter of Beta must be a positive finite number. Got {shape!r} instead."
                )


@dataclass(frozen=True)
class Banzhaf:
    """The weighted Banzhaf value of Li and Yu: every other row is in the subset with probability ``w``.

    ``Banzhaf(0.5)`` is the Banzhaf value, to the byte, and ``Banzhaf(1)`` leave-one-out; the mean over all ``w`` is the
    Shapley value. A small ``w`` favours small subsets: more distant rows then have values, and values vary less between
    validation sets.

    Parameters
    ----------
    w : float
        Above 0 and at most 1.

    Examples
    --------
    >>> from shapshift import Banzhaf, KNNShapley
    >>> KNNShapley(semivalue=Banzhaf(0.1))
    KNNShapley(semivalue=Banzhaf(w=0.1))
    """

    w: float

    def __post_init__(self) -> None:
        w: Any = self.w
        if isinstance(w, bool | np.bool_) or not (isinstance(w, int | float | np.number) and 0 < w <= 1):
            raise InputError(
                f"The 'w' parameter of Banzhaf must be a number above 0 and at most 1. Got {w!r} instead. 0.5 is the "
                "Banzhaf value, 1 is leave-one-out."
            )


#: Weights of the subsets: a name or an object.
Semivalue = str | Beta | Banzhaf


def check_semivalue(caller: str, semivalue: Any, names: tuple[str, ...] = SEMIVALUES) -> None:
    """Refuse anything but the name of a semivalue or a Beta or Banzhaf object."""
    if not isinstance(semivalue, Beta | Banzhaf):
        check.check_choice(caller, "semivalue", semivalue, names, "a Beta(alpha, beta) or a Banzhaf(w) object")


@dataclass(frozen=True)
class RankTable:
    r"""Coefficients of one (N, K, semivalue, utility).

    Attributes
    ----------
    c : ndarray of shape (N,)
        ``c[r]`` belongs to the row at zero-based rank ``r``.
    per_match, empty : float
        :math:`\beta(M) = \text{per\_match} \cdot M - \text{empty} / C` for ``C`` training classes.
    """

    c: Floats
    per_match: float
    empty: float


@dataclass(frozen=True)
class _Draw:
    """Distribution of the subset that a semivalue adds a row to.

    Attributes
    ----------
    size : callable
        Sizes ``s`` to their probability, the subset drawn from the ``N - 1`` other rows.
    kth_at : callable
        Ranks ``i`` (K <= i <= N - 2) to the probability that, drawing from ``N - 2`` rows, the ``K``-th nearest drawn
        row is the one at rank ``i``.
    """

    size: Callable[[Floats], Floats]
    kth_at: Callable[[Floats], Floats]


@lru_cache(maxsize=2)  # shared by all runs of an audit
def rank_table(n_rows: int, n_neighbors: int, semivalue: Semivalue, utility: Utility) -> RankTable:
    """Coefficient table of a KNN semivalue.

    Parameters
    ----------
    n_rows : int
        Number of training rows.
    n_neighbors : int
        K; may exceed ``n_rows``.
    semivalue : {"shapley", "banzhaf", "loo", "calibrated", "filled"}, Beta or Banzhaf
        Weights of the subsets.
    utility : {"soft", "hard"}
        Matches divided by the number of voters, or by K.

    Returns
    -------
    RankTable

    Examples
    --------
    >>> rank_table(4, 2, "shapley", "hard").c
    array([0.5       , 0.5       , 0.33333333, 0.25      ])
    """
    # A soft vote never has more than N voters, so a larger K changes nothing; hard votes are divided by K itself.
    k = min(n_neighbors, n_rows) if utility == "soft" else n_neighbors
    draw = _draw(n_rows, k, semivalue)
    size = draw.size(np.arange(min(k, n_rows - 1) + 1, dtype=np.float64))
    c = _hard_table(n_rows, k, draw, size)
    if utility == "hard":
        return RankTable(_locked(c), 0.0, 0.0)
    if n_rows == 1:
        return RankTable(_locked(np.ones(1)), 0.0, 1.0)
    voters = np.arange(1, k + 1, dtype=np.float64)
    shared = float(np.sum(size[1:k] / voters[1:]))
    c[:-1] += np.sum(_size_among_the_rest(n_rows, size)[: k - 1] * (1 / voters[:-1] - 1 / k))
    c[-1] = shared + shared / (n_rows - 1) + size[0]
    return RankTable(_locked(c), -shared / (n_rows - 1), float(size[0]))


def _locked(c: Floats) -> Floats:
    c.flags.writeable = False
    return c


def size_probabilities(n_players: int, semivalue: Semivalue) -> Floats:
    """Probability of each size, 0 to n_players - 1, of the subset that a semivalue adds a player to.

    Parameters
    ----------
    n_players : int
    semivalue : {"shapley", "banzhaf", "loo"}, Beta or Banzhaf

    Returns
    -------
    ndarray of shape (n_players,)

    Examples
    --------
    >>> size_probabilities(4, "shapley"), size_probabilities(3, "banzhaf")
    (array([0.25, 0.25, 0.25, 0.25]), array([0.25, 0.5 , 0.25]))
    """
    return _draw(n_players, 1, semivalue).size(np.arange(n_players, dtype=np.float64))


def _hard_table(n_rows: int, k: int, draw: _Draw, size: Floats) -> Floats:
    c = np.full(n_rows, 1 / k)  # the K nearest rows always vote
    if n_rows > k:
        c[-1] = size[:k].sum() / k
    if n_rows > k + 1:
        c[-2] = _size_among_the_rest(n_rows, size)[:k].sum() / k
        drops = draw.kth_at(np.arange(k, n_rows - 1, dtype=np.float64)) / k
        c[k:-2] = c[-2] + np.cumsum(drops[:0:-1])[::-1]
    return c


def _size_among_the_rest(n_rows: int, size: Floats) -> Floats:
    """Size distribution on the N - 2 rows other than two compared rows, from the one on N - 1 rows."""
    sizes = np.arange(size.size, dtype=np.float64)
    following = np.append(size[1:], 0.0)
    return (size * (n_rows - 1 - sizes) + following * (sizes + 1)) / (n_rows - 1)


def _draw(n_rows: int, k: int, semivalue: Semivalue) -> _Draw:
    if isinstance(semivalue, Beta):
        return _beta(n_rows, k, float(semivalue.alpha), float(semivalue.beta))
    if isinstance(semivalue, Banzhaf):
        return _leave_one_out(n_rows, k) if semivalue.w == 1 else _banzhaf(n_rows, k, float(semivalue.w))
    makers: dict[str, Callable[[int, int], _Draw]] = {
        "shapley": _shapley,
        "banzhaf": _banzhaf,
        "loo": _leave_one_out,
        "calibrated": lambda n, k: _large(n, k, max(n - 2 * k, 0)),  # Yang et al.
        "filled": lambda n, k: _large(n, k, min(FILLED * k, n - 1)),
    }
    return makers[semivalue](n_rows, k)


def _shapley(n_rows: int, k: int) -> _Draw:
    return _Draw(size=lambda s: np.full(s.shape, 1 / n_rows), kth_at=lambda i: k / (i * (i + 1)))


def _banzhaf(n_rows: int, k: int, w: float = 0.5) -> _Draw:
    return _Draw(
        size=lambda s: np.asarray(stats.binom.pmf(s, n_rows - 1, w)),
        kth_at=lambda i: np.asarray(stats.nbinom.pmf(i - k, k, w)),
    )


def _leave_one_out(n_rows: int, k: int) -> _Draw:
    return _Draw(size=lambda s: (s == n_rows - 1).astype(np.float64), kth_at=lambda i: (i == k).astype(np.float64))


def _beta(n_rows: int, k: int, alpha: float, beta: float) -> _Draw:
    """Each row is drawn with one probability q ~ Beta(beta, alpha): beta-binomial sizes."""
    others = n_rows - 1

    def size(s: Floats) -> Floats:
        start = _log_product(alpha, alpha + beta, others)  # nobody is drawn
        s = s[:-1]
        return _terms(start, (others - s) * (s + beta) / ((s + 1) * (others - s - 1 + alpha)))

    def kth_at(i: Floats) -> Floats:
        start = _log_product(beta, alpha + beta, k)  # all of the K nearest are drawn
        i = i[:-1]
        return _terms(start, i * (i - k + alpha) / ((i - k + 1) * (i + alpha + beta)))

    return _Draw(size, kth_at)


def _large(n_rows: int, k: int, lowest: int) -> _Draw:
    """Sizes uniform over lowest..N-1.

    Uniform sizes make the K-th drawn row fall on rank i with probability K/(i(i+1)); cutting the small sizes off
    multiplies that by a hypergeometric tail, and the lowest remaining size adds one term of its own.
    """
    if lowest == 0:
        return _shapley(n_rows, k)

    def kth_at(i: Floats) -> Floats:
        uniform = k / (i * (i + 1)) * _few_below(n_rows - 1, lowest, k, i + 1)
        edge = _kth_of_fixed_size(n_rows - 2, lowest - 1, k, i)
        return (n_rows * uniform + lowest / (n_rows - 1) * edge) / (n_rows - lowest)

    return _Draw(size=lambda s: (s >= lowest) / (n_rows - lowest), kth_at=kth_at)


def _few_below(population: int, marked: int, k: int, drawn: Floats) -> Floats:
    """P(at most ``k`` of ``drawn`` rows are marked), for drawn = k+1, k+2, .., population."""
    if marked <= k:
        return np.ones_like(drawn)
    n = np.arange(k, population, dtype=np.float64)
    unmarked = population - marked
    start = _log_product(marked - k + 1.0, population - k + 1.0, k)
    step = (unmarked - n + k) * (n + 1) / ((n - k + 1) * (population - n))
    exactly_k = _terms(start, step[:-1])
    next_is_marked = exactly_k * (marked - k) / (population - n)
    below = np.cumsum(next_is_marked[::-1])[::-1]
    # The terms fall from certainty to zero. Dividing by their sum removes the rounding error of a distant start.
    return np.append(below[1:] / below[0], 0.0)[: drawn.size]


def _kth_of_fixed_size(population: int, drawn: int, k: int, i: Floats) -> Floats:
    """P(the k-th of ``drawn`` rows sits at rank ``i``), for i = k, k+1, ..; zero when fewer than k are drawn."""
    if drawn < k:
        return np.zeros_like(i)
    start = _log_product(drawn - k + 1.0, population - k + 1.0, k)
    i = i[:-1]
    terms = _terms(start, i * (population - i - drawn + k) / ((i - k + 1) * (population - i)))
    return cast(Floats, terms / terms.sum())


def _log_product(numerator: float, denominator: float, n: int) -> float:
    r"""Log of :math:`\prod_{j<n} (numerator + j) / (denominator + j)` without the huge factorials."""
    j = np.arange(n, dtype=np.float64)
    return float(np.log1p((numerator - denominator) / (denominator + j)).sum())


def _terms(log_start: float, steps: Floats) -> Floats:
    """Return the sequence that begins at exp(log_start) and is multiplied by each step in turn."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.maximum(steps, 0.0))
    return np.exp(log_start + np.concatenate(([0.0], np.cumsum(logs))))
