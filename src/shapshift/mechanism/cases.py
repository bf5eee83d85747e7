"""The paper's cases and their results: one point, two points, and the neighbours of a point, under noise."""

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import clone

from shapshift.agreement import t_interval
from shapshift.checks import inputs as check
from shapshift.exceptions import InputError
from shapshift.io.results import to_table
from shapshift.io.shown import Shown
from shapshift.knn.shapley import KNNShapley
from shapshift.mechanism.points import (
    KINDS,
    LETTERS,
    SCENARIOS,
    ValidationSet,
    check_validation_set,
    choose_pairs,
    choose_points,
)
from shapshift.perturb import GaussianNoise, as_perturbation
from shapshift.perturb.base import must_keep_points, without_seeds
from shapshift.perturb.containers import take_rows
from shapshift.valuation import Valuation

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Bytes of values held at a time while noisy repeats are valued in chunks.
CHUNK_BYTES = 16 * 2**20
#: Default noise levels.
NOISE = (0.1, 0.2, 0.5, 1.0, 2.0)
# Values smaller than this share of the largest are rounding errors of 0.
ROUNDING = 1e-12


def signs(values: Floats) -> npt.NDArray[np.int8]:
    """Sign of each value: -1, 0 or 1, with 0 for values that are 0 up to rounding.

    On two points of different classes in a two-class problem, rows far from both have a value of exactly 0: they lose
    on one point the amount that they gain on the other. Rounding must not decide whether they count as positive.

    Examples
    --------
    >>> signs(np.array([0.1, -1e-18, -0.2])).tolist()
    [1, 0, -1]
    """
    size = np.abs(values)
    return np.where(size > ROUNDING * size.max(), np.sign(values), 0).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Example:
    """Values of one point or pair before and after one draw of noise.

    Attributes
    ----------
    noise : float
        The noise level.
    before, after : ndarray of shape (n_train,)
        Values of the training rows.
    """

    noise: float
    before: Floats
    after: Floats

    @property
    def lost(self) -> npt.NDArray[np.bool_]:
        """Rows that are positive before and not after."""
        return (signs(self.before) > 0) & (signs(self.after) <= 0)

    @property
    def gained(self) -> npt.NDArray[np.bool_]:
        """Rows that are positive after and not before."""
        return (signs(self.before) <= 0) & (signs(self.after) > 0)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Training rows and validation points in two dimensions.

    Attributes
    ----------
    axes : (str, str)
        Names of the two coordinates: features, or principal components of the training rows if there are more than two
        features.
    rows : ndarray of shape (n_train, 2)
    codes : ndarray of int32 of shape (n_train,)
        Class number of each training row; all 0 if the model does not provide them.
    before, after : ndarray of shape (n_points, 2)
        The validation points before and after the noise.
    """

    axes: tuple[str, str]
    rows: Floats
    codes: npt.NDArray[np.int32]
    before: Floats
    after: Floats


@dataclass(frozen=True, eq=False, repr=False)
class _Case(Shown):
    """Fields and methods of both cases.

    Attributes
    ----------
    parameters : mapping
        Parameters of the result, ready for JSON.
    noise : ndarray of shape (n_levels,)
        Noise levels; the first is 0, the clean points.
    points : ndarray of int64
        Positions in the validation set: one row per point or pair.
    labels : ndarray
        Their labels, in the shape of ``points``.
    entropy : ndarray
        Their neighbour-label entropy before any noise, in the shape of ``points``.
    samples : mapping of str to ndarray of shape (n_levels, n_sets, repeats)
        Every statistic for every level, point or pair, and repeat.
    example : Example
        Values of the first point or pair and the first draw of noise, at one level.
    """

    parameters: Mapping[str, Any]
    noise: Floats
    points: Ints
    labels: npt.NDArray[Any]
    entropy: Floats
    samples: Mapping[str, Floats]
    example: Example

    def interval(self, statistic: str, confidence: float = 0.95) -> tuple[Floats, Floats, Floats]:
        """Mean of a statistic at each level, with the bounds of its confidence interval.

        With one point or pair the interval is over repeats. With several it is over points or pairs, with repeats
        averaged first: repeats at one point say nothing about other points.

        Parameters
        ----------
        statistic : str
            A key of ``samples``.
        confidence : float, default=0.95

        Returns
        -------
        mean, low, high : ndarray of shape (n_levels,)
            Student's t interval; its bounds are NaN with only one observation.
        """
        check.check_choice(type(self).__name__, "statistic", statistic, tuple(self.samples))
        if not 0 < confidence < 1:
            raise InputError(
                f"The 'confidence' parameter must lie between 0 and 1. Got {check.quoted(confidence)} instead."
            )
        observed = self.samples[statistic]
        observed = observed.mean(axis=2) if observed.shape[1] > 1 else observed[:, 0]
        mean, n = observed.mean(axis=1), observed.shape[1]
        return mean, *t_interval(mean, observed.std(axis=1, ddof=1 if n > 1 else 0), n, confidence)

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate every statistic: one row per noise level.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            ``noise``, then mean, ``_low`` and ``_high`` (95% confidence) of each statistic.
        """
        columns: dict[str, npt.NDArray[Any]] = {"noise": self.noise}
        for name in self.samples:
            for suffix, column in zip(("", "_low", "_high"), self.interval(name), strict=True):
                columns[name + suffix] = column
        return to_table(columns, None, kind)


@dataclass(frozen=True, eq=False, repr=False)
class CaseOne(_Case):
    """One validation point across noise levels; see :func:`case_one`.

    Attributes
    ----------
    parameters, noise, points, labels, entropy, samples, example
        ``points`` has one entry per point. The statistics in ``samples`` are ``min``, ``max``, ``range``, ``std`` and
        ``positive_count`` of the training rows' values; ``range_ratio`` and ``std_ratio``, to those of the same point
        without noise; ``sign_kept``, the share of rows that are positive both before and after, or neither;
        ``prediction_changed`` (0 or 1; NaN if the model does not provide neighbours), whether the vote of the nearest
        training rows changes (a tie goes to the first class); and ``boundary`` (0 or 1), whether the noisy point is a
        boundary point.
    kind : str
        "boundary", "nonboundary", or "mixed" for given points of both kinds.
    """

    kind: str

    def plot(self, *others: "CaseOne", ax: Any = None) -> Any:
        """Draw values before and after noise, and spread and positive count by noise level, together with ``others``.

        Parameters
        ----------
        *others : same type
            Further cases.
        ax : array of Axes, optional
            Where to draw, two more than there are cases; a new figure by default.

        Returns
        -------
        ndarray of Axes
        """
        from shapshift.plots.mechanism import plot_case_one

        return plot_case_one(self, *others, ax=ax)

    def __repr__(self) -> str:
        ratio = self.interval("std_ratio")[0][-1]
        return f"CaseOne({self.kind}, points={len(self.points)}, std_ratio={ratio:.3g} at noise {self.noise[-1]:g})"


@dataclass(frozen=True, eq=False, repr=False)
class CaseTwo(_Case):
    """Two validation points of different classes across noise levels; see :func:`case_two`.

    Attributes
    ----------
    parameters, noise, points, labels, entropy, samples, example
        ``points`` has one row per pair. The statistics in ``samples`` are ``positive_to_negative`` and
        ``negative_to_positive``, numbers of training rows that stop and start being positive (their difference is the
        change of the positive count); ``positive_to_zero`` and ``zero_to_positive``, those whose value is exactly 0
        after and before (0 is not positive); ``positive_count``; ``positive_change``, from before to after; ``std``;
        and ``std_ratio``, to the std before.
    scenario : str
        "BB", "NN" or "BN", or "mixed" for given pairs of several kinds.
    map : FeatureMap or None
        Map of the training rows and the example's two points; None without training rows.
    """

    scenario: str
    map: FeatureMap | None

    def plot(self, *others: "CaseTwo", ax: Any = None) -> Any:
        """Draw values before against after noise and a map of the changed rows, together with ``others``.

        Parameters
        ----------
        *others : same type
            Further cases.
        ax : array of Axes, optional
            Where to draw, two rows of one per case; a new figure by default.

        Returns
        -------
        ndarray of Axes
        """
        from shapshift.plots.mechanism import plot_case_two

        return plot_case_two(self, *others, ax=ax)

    def plot_levels(self, *others: "CaseTwo", ax: Any = None) -> Any:
        """Draw the numbers of rows that change sign against the noise level, together with ``others``.

        Parameters
        ----------
        *others : same type
            Further cases.
        ax : array of Axes, optional
            Where to draw, one per case; a new figure by default.

        Returns
        -------
        ndarray of Axes
        """
        from shapshift.plots.mechanism import plot_case_two_levels

        return plot_case_two_levels(self, *others, ax=ax)

    def __repr__(self) -> str:
        lost, gained = (self.interval(name)[0][-1] for name in ("positive_to_negative", "negative_to_positive"))
        return (
            f"CaseTwo({self.scenario}, pairs={len(self.points)}, positive_to_negative={lost:.1f}, "
            f"negative_to_positive={gained:.1f} at noise {self.noise[-1]:g})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class NoiseDemo(Shown):
    """One validation point, its noisy version, and the nearest training rows of both; see :func:`noise_demo`.

    Attributes
    ----------
    parameters : mapping
        Parameters of the result, ready for JSON.
    noise : float
    point : int
        Position in the validation set.
    label : object
    map : FeatureMap
    ids : ndarray of shape (n_train,)
        Ids of the training rows.
    classes : ndarray
        Names of the classes, by class number.
    before, after : ndarray of int64
        Positions of the nearest training rows, nearest first.
    id_names : tuple
        Names of the levels of the caller's index.
    """

    parameters: Mapping[str, Any]
    noise: float
    point: int
    label: Any
    map: FeatureMap
    ids: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    before: Ints
    after: Ints
    id_names: tuple[Any, ...] = ("id",)

    @property
    def shared(self) -> Ints:
        """Rows among the nearest both before and after."""
        return np.intersect1d(self.before, self.after)

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate the neighbours: id, class, and rank before and after (1 is the nearest, 0 not among them).

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"

        Returns
        -------
        table
        """
        rows = np.array(list(dict.fromkeys([*self.before.tolist(), *self.after.tolist()])), dtype=np.int64)
        ranks = {}
        for name, nearest in (("rank_before", self.before), ("rank_after", self.after)):
            found = rows[:, None] == nearest[None, :]
            ranks[name] = np.where(found.any(axis=1), found.argmax(axis=1) + 1, 0)
        return to_table({"class": self.classes[self.map.codes[rows]], **ranks}, self.ids[rows], kind, self.id_names)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the whole distribution and a zoom on the point.

        Parameters
        ----------
        ax : array of Axes, optional
            Where to draw, two; a new figure by default.

        Returns
        -------
        ndarray of two Axes
        """
        from shapshift.plots.mechanism import plot_noise_demo

        return plot_noise_demo(self, ax=ax)

    def __repr__(self) -> str:
        return (
            f"NoiseDemo(point={self.point}, noise={self.noise:g}, neighbors={self.before.size}, "
            f"shared={self.shared.size})"
        )


def case_one(
    model: Any,
    X_val: Any,
    y_val: Any,
    *,
    noise: Sequence[float] = NOISE,
    kind: str | None = None,
    point: int | Sequence[int] | None = None,
    n_points: int = 1,
    repeats: int = 20,
    example: float | None = None,
    perturbation: Callable[[float], Any] = GaussianNoise,
    random_state: int = 0,
) -> CaseOne:
    """Track the values from one validation point as noise on that point grows.

    Parameters
    ----------
    model : fitted estimator
        Anything with ``value(X_val, y_val) -> Valuation``. One with ``value_and_neighbors``, such as
        :class:`KNNShapley`, also gives changed predictions.
    X_val, y_val : table and labels
        The validation set to take the point from.
    noise : sequence of float
        Noise levels; level 0, the clean point, is always added first. Every level uses the same draws, scaled to its
        size, so that levels differ only by the noise level.
    kind : {"boundary", "nonboundary"}, optional
        Kind of point to pick (default "boundary"), or required kind of given points (default: any).
    point : int or sequence of int, optional
        Position of the point in the validation set, or several; by default :func:`pick_points` chooses.
    n_points : int, default=1
        Number of points to pick, or fewer if there are not enough.
    repeats : int, default=20
        Draws of noise per point and level.
    example : float, optional
        The level of ``noise`` whose values are kept; by default the middle one.
    perturbation : callable, default=GaussianNoise
        Function that makes a perturbation from a level.
    random_state : int, default=0

    Returns
    -------
    CaseOne

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> model = KNNShapley().fit(X, X[:, 0] > 9)
    >>> result = case_one(model, X + 0.4, X[:, 0] > 9, noise=[1.0], kind="nonboundary")
    >>> result.to_frame()["positive_count"].tolist()
    [10.0, 10.0]
    """
    plan = check_plan("case_one", noise, example, repeats, perturbation, random_state)
    if kind is not None:
        check.check_choice(plan.caller, "kind", kind, KINDS)
    check.check_count(plan.caller, "n_points", n_points)
    val_set = check_validation_set(plan.caller, model, X_val, y_val)
    if point is None:
        sets = choose_points(val_set, kind or "boundary", n_points, random_state)[:, None]
    else:
        sets = _check_points(plan.caller, "point", point, val_set, "n_points", n_points, size=1)
    wanted = None if kind is None else kind[0].upper()
    rule = f"'point' parameter of {plan.caller} must name {kind} points only (see Valuation.boundary)"
    made, letters, _ = _follow(val_set, sets, plan, one_statistics, wanted, rule)
    return CaseOne(**made, kind=LETTERS.get(letters, letters))


def case_two(
    model: Any,
    X_val: Any,
    y_val: Any,
    *,
    noise: Sequence[float] = NOISE,
    scenario: str | None = None,
    points: Any = None,
    n_pairs: int = 1,
    X_train: Any = None,
    repeats: int = 20,
    example: float | None = None,
    perturbation: Callable[[float], Any] = GaussianNoise,
    random_state: int = 0,
) -> CaseTwo:
    """Count the training rows whose value changes sign, on a validation set of two points of different classes.

    Parameters
    ----------
    model, X_val, y_val, noise, repeats, example, perturbation, random_state
        As in :func:`case_one`.
    scenario : {"BB", "NN", "BN"}, optional
        Two boundary points, two non-boundary points, or a boundary point followed by a non-boundary point. Kind of pair
        to pick (default "BB"), or required kind of given points (default: any).
    points : pair of int or sequence of pairs, optional
        Positions in the validation set; by default :func:`pick_pairs` chooses.
    n_pairs : int, default=1
        Number of pairs to pick, or fewer if there are not enough.
    X_train : table of shape (n_train, n_features), optional
        The training rows given to ``fit``, in the same order. Needed only for the map of the changed rows. Other rows,
        or another order, are refused if the model can detect them: :class:`KNNShapley` by its fingerprint, others by
        the standard deviations ``feature_std_`` of the columns, which do not reveal the order.

    Returns
    -------
    CaseTwo

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> model = KNNShapley().fit(X, X[:, 0] > 9)
    >>> case_two(model, X + 0.4, X[:, 0] > 9, noise=[3.0], scenario="NN").to_frame().columns[:3].tolist()
    ['noise', 'positive_to_negative', 'positive_to_negative_low']
    """
    plan = check_plan("case_two", noise, example, repeats, perturbation, random_state)
    if scenario is not None:
        check.check_choice(plan.caller, "scenario", scenario, SCENARIOS)
    check.check_count(plan.caller, "n_pairs", n_pairs)
    val_set = check_validation_set(plan.caller, model, X_val, y_val)
    if points is None:
        sets = choose_pairs(val_set, scenario or "BB", n_pairs, random_state)
    else:
        sets = _check_points(plan.caller, "points", points, val_set, "n_pairs", n_pairs, size=2)
        same = val_set.codes[sets[:, 0]] == val_set.codes[sets[:, 1]]
        if same.any():
            pair = sets[same.argmax()]
            raise InputError(
                f"The 'points' parameter of {plan.caller} must name pairs of points of different classes. Got "
                f"{pair.tolist()}, both of class {check.quoted(val_set.labels[pair[0]])}."
            )
    rule = (
        f"'points' parameter of {plan.caller} must name {scenario} pairs only, in this order (B is a boundary point, "
        "see Valuation.boundary; N is not)"
    )
    made, letters, plane = _follow(val_set, sets, plan, two_statistics, scenario, rule, X_train)
    return CaseTwo(**made, scenario=letters, map=plane)


def noise_demo(
    model: Any,
    X_val: Any,
    y_val: Any,
    X_train: Any,
    *,
    noise: float = 0.1,
    point: int | None = None,
    perturbation: Callable[[float], Any] = GaussianNoise,
    random_state: int = 0,
) -> NoiseDemo:
    """Show how noise on one validation point changes its nearest training rows.

    Parameters
    ----------
    model : KNNShapley
        Or any model with ``value_and_neighbors``.
    X_val, y_val : table and labels
        The validation set to take the point from.
    X_train : table of shape (n_train, n_features)
        The training rows given to ``fit``, checked as in :func:`case_two`. Neighbours use all features, even if more
        than two are drawn as principal components.
    noise : float, default=0.1
        Noise level.
    point : int, optional
        Position in the validation set; by default the boundary point that :func:`pick_points` chooses.
    perturbation, random_state
        As in :func:`case_one`.

    Returns
    -------
    NoiseDemo

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> X = np.arange(20.0).reshape(10, 2)
    >>> model = KNNShapley(n_neighbors=2).fit(X, X[:, 0] > 9)
    >>> demo = noise_demo(model, X + 0.4, X[:, 0] > 9, X, noise=3.0)
    >>> demo.before
    array([4, 5])
    """
    plan = check_plan("noise_demo", noise, None, 1, perturbation, random_state)
    if plan.levels.size != 1 or np.ndim(noise) != 0:
        raise InputError(
            f"The 'noise' parameter of {plan.caller} must be one number. Got {check.quoted(noise)} instead."
        )
    val_set = check_validation_set(plan.caller, model, X_val, y_val)
    if not val_set.has_neighbors:
        raise InputError(
            f"The 'model' parameter of {plan.caller} must have a value_and_neighbors method, as KNNShapley has. Got "
            f"{type(model).__name__} instead."
        )
    if point is None:
        at = choose_points(val_set, "boundary", 1, random_state)
    else:
        at = _check_points(plan.caller, "point", point, val_set, "", 1, size=1)[:1, 0]
    X_clean, X_noisy = take_rows(X_val, at), perturbed(val_set, at, plan, plan.example, 0)[0]
    valuation, before = val_set.model.value_and_neighbors(X_clean, val_set.labels[at])
    _, after = val_set.model.value_and_neighbors(X_noisy, val_set.labels[at])
    return NoiseDemo(
        parameters=parameters(plan, at, valuation),
        noise=plan.example,
        point=int(at[0]),
        label=val_set.labels[at[0]],
        map=projection(X_train, val_set.model, valuation.n_train)(X_clean, X_noisy),
        ids=valuation.ids,
        classes=np.asarray(model.classes_),
        before=before.nearest[0],
        after=after.nearest[0],
        id_names=valuation.id_names,
    )


@dataclass(frozen=True)
class NoisePlan:
    """Checked parameters that all cases share."""

    caller: str
    levels: Floats
    example: float
    repeats: int
    perturbation: Callable[[float], Any]
    random_state: int


def check_plan(
    caller: str,
    noise: Any,
    example: float | None,
    repeats: int,
    perturbation: Callable[[float], Any],
    random_state: int,
) -> NoisePlan:
    """Check the parameters that all cases share."""
    given = np.atleast_1d(np.asarray(noise))
    numbers = given.ndim == 1 and given.dtype.kind in "iuf"
    levels = given.astype(np.float64) if numbers else np.empty(0)
    usable = np.isfinite(levels).all() and np.unique(levels).size == levels.size and (levels >= 0).all()
    if not usable or not (levels > 0).any():
        raise InputError(
            f"The 'noise' parameter of {caller} must hold different numbers of at least 0, with a level above 0. Got "
            f"{check.quoted(noise)} instead."
        )
    levels = levels[levels > 0]  # every case includes the clean points as level 0
    if example is None:
        example = float(levels[levels.size // 2])
    elif example not in levels:
        raise InputError(
            f"The 'example' parameter of {caller} must be one of the noise levels above 0: "
            f"{check.some(levels.tolist())}. Got {example!r} instead."
        )
    if not callable(perturbation):
        raise InputError(
            f"The 'perturbation' parameter of {caller} must be a callable that makes a perturbation from a noise "
            f"level, such as GaussianNoise. Got {perturbation!r} instead."
        )
    check.check_count(caller, "repeats", repeats, at_most=check.MOST)
    check.check_count(caller, "random_state", random_state, 0)
    return NoisePlan(caller, levels, float(example), int(repeats), perturbation, int(random_state))


@dataclass(frozen=True, eq=False)
class SetValues:
    """Values on a validation set of one or two points, and properties of its points."""

    values: Floats
    boundary: npt.NDArray[np.bool_]
    votes: Ints | None


Statistics = Callable[[SetValues, SetValues], dict[str, float]]


def one_statistics(before: SetValues, after: SetValues) -> dict[str, float]:
    """Compute the statistics of case I, described in :class:`CaseOne`."""
    was, now = signs(before.values) > 0, signs(after.values) > 0
    spread = np.ptp(after.values)
    same_vote = np.nan if after.votes is None or before.votes is None else float(after.votes[0] == before.votes[0])
    return {
        "min": after.values.min(),
        "max": after.values.max(),
        "range": spread,
        "std": after.values.std(),
        "positive_count": np.count_nonzero(now),
        "range_ratio": _ratio(spread, np.ptp(before.values)),
        "std_ratio": _ratio(after.values.std(), before.values.std()),
        "sign_kept": float(np.mean(was == now)),
        "prediction_changed": 1 - same_vote,
        "boundary": float(after.boundary[0]),
    }


def two_statistics(before: SetValues, after: SetValues) -> dict[str, float]:
    """Compute the statistics of case II, described in :class:`CaseTwo`."""
    was, now = signs(before.values), signs(after.values)
    return {
        "positive_to_negative": np.count_nonzero((was > 0) & (now <= 0)),
        "negative_to_positive": np.count_nonzero((was <= 0) & (now > 0)),
        "positive_to_zero": np.count_nonzero((was > 0) & (now == 0)),
        "zero_to_positive": np.count_nonzero((was == 0) & (now > 0)),
        "positive_count": np.count_nonzero(now > 0),
        "positive_change": np.count_nonzero(now > 0) - np.count_nonzero(was > 0),
        "std": after.values.std(),
        "std_ratio": _ratio(after.values.std(), before.values.std()),
    }


def _ratio(new: float, old: float) -> float:
    return new / old if old > 0 else np.nan


def _follow(
    val_set: ValidationSet,
    sets: Ints,
    plan: NoisePlan,
    statistics: Statistics,
    wanted: str | None,
    rule: str,
    X_train: Any = None,
) -> tuple[dict[str, Any], str, FeatureMap | None]:
    """Track points or pairs as noise grows.

    Parameters
    ----------
    val_set : ValidationSet
    sets : ndarray of shape (n_sets, 1) or (n_sets, 2)
        Positions of the points or pairs.
    plan : NoisePlan
    statistics : callable
        Function that returns the statistics of the values on a set.
    wanted : str or None
        Required kind of all sets: "B" or "N" for each point, see ``SCENARIOS``.
    rule : str
        Rule for the caller's points, for the message.
    X_train : table, optional
        Training rows for a map of the example.

    Returns
    -------
    fields : dict
        Fields common to both cases.
    letters : str
        Kind of the sets, or "mixed".
    map : FeatureMap or None
    """
    clean = val_set.value_at(sets.ravel()).valuation
    entropy = clean.entropy.reshape(sets.shape)
    draw = None if X_train is None else projection(X_train, val_set.model, clean.n_train)
    found = {"".join("B" if near else "N" for near in points) for points in clean.boundary.reshape(sets.shape)}
    if wanted is not None and found != {wanted}:
        raise InputError(f"The {rule}. Got {_described(sets, entropy)}.")
    samples, example, moved = measure(val_set, sets, plan, clean.n_train, statistics)
    points = sets[:, 0] if sets.shape[1] == 1 else sets
    fields = {
        "parameters": parameters(plan, points, clean),
        "noise": np.append(0.0, plan.levels),
        "points": points,
        "labels": val_set.labels[points],
        "entropy": entropy.reshape(points.shape),
        "samples": samples,
        "example": example,
    }
    plane = None if draw is None else draw(take_rows(val_set.X, sets[0]), moved)
    return fields, found.pop() if len(found) == 1 else "mixed", plane


def measure(
    val_set: ValidationSet, sets: Ints, plan: NoisePlan, n_train: int, statistics: Statistics
) -> tuple[MappingProxyType[str, Floats], Example, Any]:
    """Value each set of points clean and under noise; keep only statistics and one example."""
    samples: dict[str, Floats] = {}
    shape = (plan.levels.size + 1, len(sets), plan.repeats)
    example, moved = None, None

    def record(level: int, at: int, repeat: int | slice, found: dict[str, float]) -> None:
        for name, number in found.items():
            samples.setdefault(name, np.empty(shape))[level, at, repeat] = number

    for at, positions in enumerate(sets):
        X, y = take_rows(val_set.X, positions), val_set.labels[positions]
        (before,) = set_values(val_set, X, y, positions.size, n_train)
        record(0, at, slice(None), statistics(before, before))
        for level, noise in enumerate(plan.levels.tolist(), start=1):
            X, y = perturbed(val_set, positions, plan, noise, at)
            for repeat, after in enumerate(set_values(val_set, X, y, positions.size, n_train)):
                record(level, at, repeat, statistics(before, after))
                if at == 0 and repeat == 0 and noise == plan.example:
                    example = Example(noise, before.values.copy(), after.values.copy())  # not a view of the chunk
                    moved = take_rows(X, np.arange(positions.size))
    assert example is not None  # its level is one of the levels
    return MappingProxyType(samples), example, moved


def set_values(val_set: ValidationSet, X: Any, y: Any, size: int, n_train: int) -> Iterator[SetValues]:
    """Values on consecutive groups of ``size`` points, each a validation set of its own."""
    grouped = "groups" in signature(val_set.model.value).parameters
    step = size * (max(1, CHUNK_BYTES // (8 * n_train)) if grouped else 1)
    for start in range(0, len(y), step):
        rows = np.arange(start, min(start + step, len(y)))
        options = {"groups": rows // size} if grouped else {}
        seen = val_set.value(take_rows(X, rows), y[rows], **options)
        means = seen.valuation.group_means if grouped else seen.valuation.values[None]
        for k, values in enumerate(means):
            own = slice(k * size, (k + 1) * size)
            yield SetValues(values, seen.valuation.boundary[own], None if seen.votes is None else seen.votes[own])


def perturbed(
    val_set: ValidationSet, positions: Ints, plan: NoisePlan, noise: float, at: int
) -> tuple[Any, npt.NDArray[Any]]:
    """All noisy repeats of the same points, concatenated."""
    rows = np.tile(positions, plan.repeats)
    perturb = as_perturbation(plan.perturbation(noise)).bind(val_set.model)
    perturb = perturb.with_seed(int(np.random.SeedSequence([plan.random_state, at]).generate_state(1)[0]))
    labels = val_set.labels[rows]
    X, y = perturb(take_rows(val_set.X, rows), labels)
    must_keep_points(
        f"The 'perturbation' parameter of {plan.caller} must keep the {rows.size} validation points", perturb, labels, y
    )
    return X, np.asarray(y)


def parameters(plan: NoisePlan, sets: Ints, valuation: Valuation) -> MappingProxyType[str, Any]:
    """Parameters of a result, ready for JSON."""
    made = as_perturbation(plan.perturbation(plan.example)).parameters
    return MappingProxyType(
        {
            "case": plan.caller,
            "points": sets.tolist(),
            "noise": plan.levels.tolist(),
            "example": plan.example,
            "repeats": plan.repeats,
            "random_state": plan.random_state,
            "perturbation": without_seeds(made),
            "valuation": {name: value for name, value in valuation.parameters.items() if name != "n_val"},
            "fingerprint": valuation.fingerprint,
        }
    )


def projection(X_train: Any, model: Any, n_train: int) -> Callable[[Any, Any], FeatureMap]:
    """Return a function that places validation points on a map of the training rows.

    Two features are used directly, one is drawn on a line, and more are reduced to the first two principal components
    of the training rows.

    Parameters
    ----------
    X_train : table of shape (n_train, n_features)
        The rows that the model was fitted on, in that order: checked by the model's fingerprint for
        :class:`KNNShapley`, by the standard deviation of each column for other models that provide it
        (``feature_std_``), else only by their number.
    model : fitted estimator
    n_train : int
        Number of rows that the model was fitted on.

    Returns
    -------
    callable
        Takes two tables of points, before and after; returns a FeatureMap.
    """
    table = check.check_features(X_train, "X_train")
    if table.rows.shape[0] != n_train:
        raise InputError(
            f"'X_train' must hold the {n_train} rows that the model was fitted on. Got {table.rows.shape[0]} rows."
        )
    _check_same_rows(X_train, table.rows, model)
    width = table.rows.shape[1]
    names, place = _plane(table.rows, table.columns)
    codes = getattr(model, "codes_", np.zeros(n_train, np.int32))

    def position(X: Any) -> Floats:
        return place(check.match_columns(check.check_features(X, "X_val"), table.columns, width, "X_val").rows)

    return lambda before, after: FeatureMap(names, place(table.rows), codes, position(before), position(after))


def _check_same_rows(X_train: Any, rows: Any, model: Any) -> None:
    """Refuse rows, or an order of rows, that the model was not fitted on, as far as it can detect them."""
    if isinstance(model, KNNShapley):
        with warnings.catch_warnings():  # the fit already warned
            warnings.simplefilter("ignore")
            same = clone(model).fit(X_train, model.classes_[model.codes_]).fingerprint_ == model.fingerprint_
    else:
        spread: Any = getattr(model, "feature_std_", None)
        known = spread is not None and not sparse.issparse(rows)
        same = not known or (np.shape(spread) == rows.shape[1:] and np.allclose(rows.std(axis=0), spread))
    if not same:
        raise InputError(
            "'X_train' must hold the rows that the model was fitted on, in the same order. These differ, or are in "
            "another order: rows would be drawn in the wrong places. Pass the table that was given to fit."
        )


def _plane(rows: Any, columns: list[str] | None) -> tuple[tuple[str, str], Callable[[Any], Floats]]:
    width = rows.shape[1]
    if width <= 2:
        named = columns or [f"feature {j + 1}" for j in range(width)]
        return (named[0], named[1] if width == 2 else ""), _two_columns
    from sklearn.decomposition import PCA  # imported late: only maps need it

    pca = PCA(n_components=2, random_state=0).fit(rows)
    shares = [f"principal component {j + 1} ({share:.0%})" for j, share in enumerate(pca.explained_variance_ratio_)]
    return (shares[0], shares[1]), pca.transform


def _two_columns(X: Any) -> Floats:
    rows = np.asarray(X.toarray() if sparse.issparse(X) else X)
    return rows if rows.shape[1] == 2 else np.column_stack([rows, np.zeros(len(rows))])


def _check_points(
    caller: str, name: str, points: Any, val_set: ValidationSet, count_name: str, count: int, size: int
) -> Ints:
    """Positions given by the caller, of shape (n_sets, size)."""
    if count != 1:
        raise InputError(
            f"{caller} takes {name!r}, which names the points, or {count_name!r}, which picks that many. Got both."
        )
    what = "a position in the validation set, or several" if size == 1 else "a pair of positions, or several pairs"
    given = np.asarray(points)
    if given.ndim < size:
        given = given[None]
    if given.size == 0 or given.dtype.kind not in "iu" or given.ndim != size or (size == 2 and given.shape[1] != 2):
        raise InputError(f"The {name!r} parameter of {caller} must be {what}, as integers. Got {points!r} instead.")
    if given.min() < 0 or given.max() >= val_set.labels.size:
        raise InputError(
            f"The {name!r} parameter of {caller} must be {what}, from 0 to {val_set.labels.size - 1}. Got {points!r} "
            "instead."
        )
    return given.reshape(-1, size).astype(np.int64)


def _described(sets: Ints, entropy: Floats) -> str:
    points = zip(sets.ravel().tolist(), entropy.ravel().tolist(), strict=True)
    listed = [f"{position} (entropy {at:.3g})" for position, at in points]
    return ", ".join(listed[:6]) + (f" and {len(listed) - 6} more" if len(listed) > 6 else "")
