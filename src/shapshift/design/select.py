"""Select validation points whose values a stated noise shifts least, and test the selection on fresh noise."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.agreement import spearman
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.design.split import draw_stratified
from shapshift.exceptions import InputError
from shapshift.io.results import to_table
from shapshift.io.shown import Shown
from shapshift.perturb import GaussianNoise, Perturbation, as_perturbation
from shapshift.perturb.base import must_keep_points
from shapshift.perturb.containers import count_rows, take_rows
from shapshift.valuation import Valuation, check_returned

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

STATISTICS = ("shift", "distance", "total", "spearman")
# Shifts below this many standard deviations of the pool's values are rounding errors.
NO_SHIFT = 1e-9


@dataclass(frozen=True, eq=False)
class DesignResult(Shown):
    """A selected validation set, compared on fresh noise with random ones of the same size.

    Each of ``chosen``, ``random`` and ``stratified`` maps the statistics ``shift`` (root mean square difference
    between the set's values with and without noise), ``distance`` (between the set's and the whole pool's values,
    both without noise), ``total`` (between the set's values with noise and the pool's without), all in standard
    deviations of the pool's values, and ``spearman`` (between the set's values with and without noise).

    Attributes
    ----------
    indices : ndarray of int
        Positions in the pool of the selected points, ascending.
    chosen : dict of float
        Statistics of the selection.
    random : dict of ndarray
        Statistics of random sets of the same size, drawn evenly from the pool.
    stratified : dict of ndarray
        Statistics of random sets that keep the pool's class and boundary shares, as the selection does.
    boundary_fraction, pool_boundary_fraction : float
        Share of boundary points in the selection and in the pool.
    parameters : dict
        Parameters of the selection.
    """

    indices: Ints
    chosen: Mapping[str, float]
    random: Mapping[str, Floats]
    stratified: Mapping[str, Floats]
    boundary_fraction: float
    pool_boundary_fraction: float
    parameters: Mapping[str, Any]

    @property
    def score(self) -> float:
        """Shift of the selection on held-out noise."""
        return self.chosen["shift"]

    @property
    def random_interval(self) -> tuple[float, float]:
        """Range of 95 % of the random sets' shifts."""
        low, high = np.quantile(self.random["shift"], [0.025, 0.975])
        return float(low), float(high)

    @property
    def gain(self) -> float:
        """Share of the random sets' mean shift that the selection saves; negative if it is worse, 0 without shifts."""
        return 0.0 if self._still else float(1 - self.score / self.random["shift"].mean())

    @property
    def beats_random(self) -> bool:
        """Whether the selection shifts less than (nearly) all random sets; False if nothing shifts."""
        return self.score < self.random_interval[0] and not self._still

    @property
    def _still(self) -> bool:
        return float(self.random["shift"].mean()) < NO_SHIFT

    @property
    def verdict(self) -> str:
        """One readable line."""
        if self._still:
            return (
                "has nothing to gain: this noise does not shift the values of random choices either; distance to the "
                f"pool's values {self.chosen['distance']:.3f} against {self.random['distance'].mean():.3f}"
            )
        low, high = self.random_interval
        relation = "less than" if self.beats_random else "more than" if self.score > high else "no less than"
        return (
            f"shifts {relation} random choices: {self.score:.3f} against {self.random['shift'].mean():.3f} "
            f"[{low:.3f}, {high:.3f}] ({self.gain:+.0%} saved); distance to the pool's values "
            f"{self.chosen['distance']:.3f} against {self.random['distance'].mean():.3f}"
        )

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate the comparison.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            ``statistic``, ``chosen``, then ``random``, ``random_low``, ``random_high`` (mean and 95 % range) and the
            same for ``stratified``.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "statistic": np.array(STATISTICS),
            "chosen": np.array([self.chosen[name] for name in STATISTICS]),
        }
        for which in ("random", "stratified"):
            sets = np.stack([getattr(self, which)[name] for name in STATISTICS])
            low, high = np.quantile(sets, [0.025, 0.975], axis=1)
            columns |= {which: sets.mean(axis=1), f"{which}_low": low, f"{which}_high": high}
        return to_table(columns, None, kind)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the selection and the random sets; see :mod:`shapshift.plots.results`."""
        from shapshift.plots.results import plot_design

        return plot_design(self, ax=ax)

    def __str__(self) -> str:
        return self.verdict


# Approximate number of (training row, validation point) values held at a time.
CHUNK_VALUES = 2**22


def design_validation(
    model: Any,
    X_pool: Any,
    y_pool: Any,
    m: int,
    *,
    noise: Any,
    repeats: int = 10,
    holdout: int = 10,
    n_random: int = 20,
    fidelity: float = 0.25,
    sketch: int = 512,
    sweeps: int = 5,
    random_state: int | None = 0,
) -> DesignResult:
    r"""Select m points of a pool whose values shift least under a stated noise.

    The values of a set are the mean of its points' value vectors :math:`v_p`. If noise moves point p's vector by
    :math:`\delta_p`, with mean :math:`\bar\delta_p` and variance :math:`\tau_p` over draws independent between points,
    the expected squared shift of a set S is :math:`|\frac1m \sum_S \bar\delta_p|^2 + \frac1{m^2} \sum_S \tau_p`. The
    objective adds ``fidelity`` times :math:`|\frac1m \sum_S v_p - v_{pool}|^2`, since a set with small shifts is
    useless if its values differ from the pool's. It is minimised by swaps between points of the same class and the same
    boundary status, from a random start, so both shares stay those of the pool.

    Only random projections of the vectors are kept, which approximately preserve the norms above; memory is pool size
    times ``sketch``. The selection and random sets of the same size are then compared on full vectors with ``holdout``
    fresh draws of noise, and the result shows whether the selection helped.

    Parameters
    ----------
    model : fitted model
        With ``value(X_val, y_val, matrix=True)``, such as :class:`~shapshift.KNNShapley`.
    X_pool, y_pool
        Candidates: table and labels.
    m : int
        Number of points to select; less than the size of the pool.
    noise : float or perturbation
        Standard deviation of Gaussian feature noise, or a perturbation. It must change the points one by one, keeping
        their number and order; subsampling and the like are refused, and so is a function that returns other labels,
        unless it says ``pointwise = True``.
    repeats : int, default=10
        Draws of noise for the selection; at least 2.
    holdout : int, default=10
        Fresh draws of noise for the comparison.
    n_random : int, default=20
        Number of random sets, and of stratified ones, to compare with; at least 5, to give a meaningful range.
    fidelity : float, default=0.25
        Weight of the distance to the pool's values; 0 minimises shifts only.
    sketch : int, default=512
        Number of random projections; with at most that many training rows the vectors are kept as they are.
    sweeps : int, default=5
        Most passes over the selected points in search of swaps.
    random_state : int, optional
        Same seed, same result.

    Returns
    -------
    DesignResult

    Notes
    -----
    Limits. Selection cannot remove a shift that all candidates share: with strong noise, gains are small. A set chosen
    for small shifts holds the more stable points of each part, and may be further from the pool's values than a random
    one if ``fidelity`` is small; the result reports both. The swaps end in a local minimum. Results for the stated
    noise need not hold for another.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> rng = np.random.default_rng(0)
    >>> X, y = rng.normal(size=(400, 2)), rng.integers(0, 2, 400)
    >>> X[:, 0] += 2 * y
    >>> model = KNNShapley().fit(X[:200], y[:200])
    >>> design = design_validation(model, X[200:], y[200:], 40, noise=0.5, repeats=4, holdout=4)
    >>> design.indices.size, design.beats_random
    (40, True)
    """
    caller = "design_validation"
    model = check.check_model(caller, model)
    _check_matrix(caller, model)
    n_pool = count_rows(X_pool)
    counts = {"m": m, "repeats": repeats, "holdout": holdout, "n_random": n_random, "sketch": sketch, "sweeps": sweeps}
    for name, count in counts.items():
        check.check_count(caller, name, count, {"repeats": 2, "n_random": 5}.get(name, 1), check.MOST)
    if m >= n_pool:
        raise InputError(
            f"The 'm' parameter of {caller} must be below the {n_pool} points of the pool. Got {check.quoted(m)} "
            "instead; there is nothing to select."
        )
    check.check_number(caller, "fidelity", fidelity)
    numeric = isinstance(noise, int | float | np.number) and not isinstance(noise, bool)
    perturbation = (GaussianNoise(float(noise)) if numeric else as_perturbation(noise)).bind(model)
    labels = _labels.check_labels(y_pool, "y_pool", n_pool, "X_pool")
    draws, lots = np.random.SeedSequence(random_state).spawn(2)
    seeds = [int(seed) for seed in draws.generate_state(repeats + holdout)]
    rng = np.random.default_rng(lots)

    pool = _Pool(model, X_pool, y_pool, perturbation, labels)
    vectors, drift, variance, boundary = _sketches(pool, seeds[:repeats], sketch, rng)
    codes = _labels.encode_labels(labels)[1]
    features = np.hstack([drift, math.sqrt(fidelity) * (vectors - vectors.mean(axis=0))])
    start = draw_stratified(codes, boundary, m, rng)
    selected = np.sort(_improve(features, variance, 2 * codes.astype(np.int64) + boundary, start, sweeps, rng))
    sets = [selected]
    sets += [rng.choice(n_pool, m, replace=False) for _ in range(n_random)]
    sets += [draw_stratified(codes, boundary, m, rng) for _ in range(n_random)]
    found = _compare(pool, sets, seeds[repeats:])
    return DesignResult(
        indices=selected,
        chosen={name: float(found[name][0]) for name in STATISTICS},
        random={name: found[name][1 : 1 + n_random] for name in STATISTICS},
        stratified={name: found[name][1 + n_random :] for name in STATISTICS},
        boundary_fraction=float(boundary[selected].mean()),
        pool_boundary_fraction=float(boundary.mean()),
        parameters={
            "m": int(m),
            "n_pool": int(n_pool),
            "noise": perturbation.parameters,
            "repeats": int(repeats),
            "holdout": int(holdout),
            "n_random": int(n_random),
            "fidelity": float(fidelity),
            "sketch": int(sketch),
            "sweeps": int(sweeps),
            "random_state": random_state,
        },
    )


@dataclass(frozen=True)
class _Pool:
    """The candidates, and their value vectors in chunks."""

    model: Any
    X: Any
    y: Any
    perturbation: Perturbation
    labels: npt.NDArray[Any]

    @property
    def size(self) -> int:
        """Number of candidates."""
        return self.labels.size

    def stream(self, seed: int | None, positions: Ints) -> Iterator[tuple[Ints, Valuation]]:
        """Value the points at ``positions`` in chunks, with the noise of a seed, or without noise (None)."""
        X, y = self.X, self.y
        if seed is not None:
            # The whole pool at once: a point's noise must not depend on the other requested points.
            X, y = self.perturbation.with_seed(seed)(X, y)
            must_keep_points(f"'noise' must keep the {self.size} points of the pool", self.perturbation, self.labels, y)
        n_train = getattr(self.model, "codes_", np.empty(CHUNK_VALUES // 64)).size
        step = max(1, CHUNK_VALUES // n_train)
        for lo in range(0, positions.size, step):
            here = positions[lo : lo + step]
            valuation = self.model.value(take_rows(X, here), take_rows(y, here), matrix=True)
            yield here, check_returned("design_validation", self.model, valuation)


def _sketches(
    pool: _Pool, seeds: list[int], size: int, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats, npt.NDArray[np.bool_]]:
    """Projected value vectors, their mean change under noise, the variance of the change, and the boundary mask."""
    everyone = np.arange(pool.size)
    boundary = np.zeros(pool.size, dtype=bool)
    projection: Floats | None = None
    vectors = np.empty((0, 0))
    for here, valuation in pool.stream(None, everyone):
        if vectors.size == 0:
            n_train = valuation.n_train
            projection = None if n_train <= size else rng.normal(size=(n_train, size)) / math.sqrt(size)
            vectors = np.empty((pool.size, min(n_train, size)))
        vectors[here] = _project(valuation, projection)
        boundary[here] = valuation.boundary
    total, squares = np.zeros_like(vectors), np.zeros(pool.size)
    for done, seed in enumerate(seeds):
        for here, valuation in pool.stream(seed, everyone):
            change = _project(valuation, projection) - vectors[here]
            # Relative to the mean of the previous seeds: squares of a common drift would cancel.
            squares[here] += ((change - total[here] / max(done, 1)) ** 2).sum(axis=1) * done / (done + 1)
            total[here] += change
    repeats = len(seeds)
    return vectors, total / repeats, squares / (repeats - 1), boundary


def _check_matrix(caller: str, model: Any) -> None:
    taken = signature(model.value).parameters.values()
    if not any(parameter.name == "matrix" or parameter.kind is Parameter.VAR_KEYWORD for parameter in taken):
        raise InputError(
            f"The 'model' parameter of {caller} must give the values on single points, "
            f"value(X_val, y_val, matrix=True), as KNNShapley does. {type(model).__name__}.value has no 'matrix' "
            "argument."
        )


def _project(valuation: Valuation, projection: Floats | None) -> Floats:
    matrix = valuation.matrix
    if matrix is None:
        raise InputError(
            "The 'model' parameter of design_validation must return a Valuation with a matrix from value(X_val, y_val, "
            "matrix=True). Its matrix is None."
        )
    return matrix.T if projection is None else np.asarray(matrix.T @ projection)


def _improve(
    features: Floats, variance: Floats, strata: Ints, start: Ints, sweeps: int, rng: np.random.Generator
) -> Ints:
    """Swap points within strata while |sum of features|^2 + sum of variances falls."""
    own_cost = (features**2).sum(axis=1) + variance
    members = start.copy()
    free = np.ones(len(features), dtype=bool)
    free[members] = False
    by_stratum = {int(s): np.flatnonzero(strata == s) for s in np.unique(strata)}
    for _ in range(sweeps):
        total = features[members].sum(axis=0)  # recomputed in each sweep, so that rounding errors do not add up
        swapped = False
        for place in rng.permutation(members.size):
            leaving = members[place]
            rest = total - features[leaving]
            candidates = by_stratum[int(strata[leaving])]
            candidates = candidates[free[candidates]]
            if candidates.size == 0:
                continue
            cost = 2 * np.einsum("ij,j->i", features[candidates], rest) + own_cost[candidates]
            best = int(cost.argmin())
            # Excludes the cost of the other points, so it can be negative.
            now = 2 * (features[leaving] * rest).sum() + own_cost[leaving]
            if cost[best] < now - 1e-12 * abs(now):
                entering = candidates[best]
                members[place], free[leaving], free[entering] = entering, True, False
                total = rest + features[entering]
                swapped = True
        if not swapped:
            break
    return members


def _compare(pool: _Pool, sets: list[Ints], seeds: list[int]) -> dict[str, Floats]:
    """Statistics of each set on fresh noise, computed on the full value vectors."""
    weights = np.zeros((pool.size, len(sets)))
    for column, members in enumerate(sets):
        weights[members, column] = 1 / members.size
    used = np.flatnonzero(weights.any(axis=1))

    def values_of(seed: int | None, positions: Ints, weights: Floats) -> Floats:
        total: Any = 0.0
        for here, valuation in pool.stream(seed, positions):
            total = total + np.einsum("np,ps->ns", np.asarray(valuation.matrix), weights[here])
        return np.asarray(total)

    everyone = np.arange(pool.size)
    clean = values_of(None, everyone, np.hstack([weights, np.full((pool.size, 1), 1 / pool.size)]))
    clean, whole = clean[:, :-1], clean[:, -1:]
    unit = float(whole.std()) or 1.0
    squares = {name: np.zeros(len(sets)) for name in ("shift", "total")}
    ranks = np.zeros(len(sets))
    for seed in seeds:
        noisy = values_of(seed, used, weights)
        squares["shift"] += ((noisy - clean) ** 2).mean(axis=0)
        squares["total"] += ((noisy - whole) ** 2).mean(axis=0)
        ranks += [spearman(noisy[:, s], clean[:, s]) for s in range(len(sets))]
    return {
        **{name: np.sqrt(total / len(seeds)) / unit for name, total in squares.items()},
        "distance": np.sqrt(((clean - whole) ** 2).mean(axis=0)) / unit,
        "spearman": ranks / len(seeds),
    }
