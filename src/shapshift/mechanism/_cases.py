"""The paper's cases: one point, two points, and the neighbours of a point, before and after noise."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift import _validation as check
from shapshift.mechanism._maps import projection
from shapshift.mechanism._measure import check_plan, measure, one_statistics, parameters, perturbed, two_statistics
from shapshift.mechanism._points import (
    KINDS,
    SCENARIOS,
    Look,
    Source,
    choose_pairs,
    choose_points,
    open_source,
)
from shapshift.mechanism._results import CaseOne, CaseTwo, NoiseDemo
from shapshift.perturb import GaussianNoise
from shapshift.perturb.containers import take_rows

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NOISE = (0.1, 0.2, 0.5, 1.0, 2.0)


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
    """Follow the values that one validation point gives, as noise on that point grows.

    Parameters
    ----------
    model : fitted estimator
        Anything with ``value(X_val, y_val) -> Valuation``. One with ``value_and_neighbors``, such as
        :class:`KNNShapley`, tells changed predictions too.
    X_val, y_val : table and labels
        The validation set to take the point from.
    noise : sequence of float
        Noise levels; level 0, the clean point, is always added in front. Draws are the same at every level up to
        their size, so that levels differ by the noise alone.
    kind : {"boundary", "nonboundary"}, optional
        Which kind of point to pick (default "boundary"), or what given points must be (default: anything).
    point : int or sequence of int, optional
        Position of the point in the validation set, or several; by default :func:`pick_points` chooses.
    n_points : int, default=1
        How many points to pick; fewer where there are not so many.
    repeats : int, default=20
        Draws of noise per point and level.
    example : float, optional
        The level of ``noise`` whose values are kept; by default the middle one.
    perturbation : callable, default=GaussianNoise
        Makes a perturbation from a level.
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
        check.check_choice(plan.owner, "kind", kind, KINDS)
    check.check_count(plan.owner, "n_points", n_points)
    source = open_source(plan.owner, model, X_val, y_val)
    if point is None:
        sets = choose_points(source, kind or "boundary", n_points, random_state)[:, None]
    else:
        sets = _check_points(plan.owner, "point", point, source, "n_points", n_points, size=1)
    seen, entropy = _look_at(source, sets)
    found = {KINDS[0] if at > 0 else KINDS[1] for at in entropy[:, 0]}
    if kind is not None and found != {kind}:
        raise ValueError(
            f"The 'point' parameter of {plan.owner} must name {kind} points only (a boundary point has entropy above "
            f"0). Got {_described(sets, entropy)}."
        )
    samples, kept, _ = measure(source, sets, plan, seen.valuation.n_train, one_statistics)
    return CaseOne(
        parameters=parameters(plan, sets[:, 0], seen.valuation),
        noise=np.append(0.0, plan.levels),
        points=sets[:, 0],
        labels=source.labels[sets[:, 0]],
        entropy=entropy[:, 0],
        samples=samples,
        example=kept,
        kind=found.pop() if len(found) == 1 else "mixed",
    )


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
        Two boundary points, two points that are none, or the first a boundary point and the second not. What to pick
        (default "BB"), or what given points must be (default: anything).
    points : pair of int or sequence of pairs, optional
        Positions in the validation set; by default :func:`pick_pairs` chooses.
    n_pairs : int, default=1
        How many pairs to pick; fewer where there are not so many.
    X_train : table of shape (n_train, n_features), optional
        The training rows as they were given to ``fit``, in the same order. Needed only to show where the changed rows
        lie. Other rows, or another order, are refused where the model can tell: :class:`KNNShapley` by its
        fingerprint, others by the standard deviations ``feature_std_`` of the columns, which do not tell the order.

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
        check.check_choice(plan.owner, "scenario", scenario, SCENARIOS)
    check.check_count(plan.owner, "n_pairs", n_pairs)
    source = open_source(plan.owner, model, X_val, y_val)
    if points is None:
        sets = choose_pairs(source, scenario or "BB", n_pairs, random_state)
    else:
        sets = _check_points(plan.owner, "points", points, source, "n_pairs", n_pairs, size=2)
        same = source.codes[sets[:, 0]] == source.codes[sets[:, 1]]
        if same.any():
            pair = sets[same.argmax()]
            raise ValueError(
                f"The 'points' parameter of {plan.owner} must name pairs of points of different classes. Got "
                f"{pair.tolist()}, both of class {source.labels[pair[0]]!r}."
            )
    seen, entropy = _look_at(source, sets)
    draw = None if X_train is None else projection(X_train, source.model, seen.valuation.n_train)
    found = {"".join("B" if at > 0 else "N" for at in pair) for pair in entropy}
    if scenario is not None and found != {scenario}:
        raise ValueError(
            f"The 'points' parameter of {plan.owner} must name {scenario} pairs only, in this order (B is a boundary "
            f"point, with entropy above 0; N is not). Got {_described(sets, entropy)}."
        )
    samples, kept, moved = measure(source, sets, plan, seen.valuation.n_train, two_statistics)
    return CaseTwo(
        parameters=parameters(plan, sets, seen.valuation),
        noise=np.append(0.0, plan.levels),
        points=sets,
        labels=source.labels[sets],
        entropy=entropy,
        samples=samples,
        example=kept,
        scenario=found.pop() if len(found) == 1 else "mixed",
        map=None if draw is None else draw(getattr(model, "codes_", None), take_rows(X_val, sets[0]), moved),
    )


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
        Or anything that has ``value_and_neighbors``.
    X_val, y_val : table and labels
        The validation set to take the point from.
    X_train : table of shape (n_train, n_features)
        The training rows as they were given to ``fit``, checked as in :func:`case_two`. Neighbours are those in all
        features, also where more than two are drawn as principal components.
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
        raise ValueError(f"The 'noise' parameter of {plan.owner} must be one number. Got {noise!r} instead.")
    source = open_source(plan.owner, model, X_val, y_val)
    if not source.has_neighbors:
        raise TypeError(
            f"The 'model' parameter of {plan.owner} must have a value_and_neighbors method, as KNNShapley has. Got "
            f"{type(model).__name__} instead."
        )
    if point is None:
        at = choose_points(source, "boundary", 1, random_state)
    else:
        at = _check_points(plan.owner, "point", point, source, "", 1, size=1)[:1, 0]
    X_clean, X_noisy = take_rows(X_val, at), perturbed(source, at, plan, plan.example, 0)[0]
    valuation, before = source.model.value_and_neighbors(X_clean, source.labels[at])
    _, after = source.model.value_and_neighbors(X_noisy, source.labels[at])
    return NoiseDemo(
        parameters=parameters(plan, at, valuation),
        noise=plan.example,
        point=int(at[0]),
        label=source.labels[at[0]],
        map=projection(X_train, source.model, valuation.n_train)(model.codes_, X_clean, X_noisy),
        ids=valuation.ids,
        classes=np.asarray(model.classes_),
        before=before.nearest[0],
        after=after.nearest[0],
    )


def _look_at(source: Source, sets: Ints) -> tuple[Look, Floats]:
    """Value the clean points once, for their entropies in the shape of ``sets``."""
    seen = source.look(sets.ravel())
    return seen, seen.entropy.reshape(sets.shape)


def _check_points(owner: str, name: str, points: Any, source: Source, count_name: str, count: int, size: int) -> Ints:
    """Positions that the caller names, as (n_sets, size)."""
    if count != 1:
        raise ValueError(
            f"{owner} takes {name!r}, which names the points, or {count_name!r}, which picks that many. Got both."
        )
    what = "a position in the validation set, or several" if size == 1 else "a pair of positions, or several pairs"
    given = np.asarray(points)
    if given.ndim < size:
        given = given[None]
    if given.size == 0 or given.dtype.kind not in "iu" or given.ndim != size or (size == 2 and given.shape[1] != 2):
        raise ValueError(f"The {name!r} parameter of {owner} must be {what}, as integers. Got {points!r} instead.")
    if given.min() < 0 or given.max() >= source.labels.size:
        raise ValueError(
            f"The {name!r} parameter of {owner} must be {what}, from 0 to {source.labels.size - 1}. Got {points!r} "
            "instead."
        )
    return given.reshape(-1, size).astype(np.int64)


def _described(sets: Ints, entropy: Floats) -> str:
    points = zip(sets.ravel().tolist(), entropy.ravel().tolist(), strict=True)
    listed = [f"{position} (entropy {at:.3g})" for position, at in points]
    return ", ".join(listed[:6]) + (f" and {len(listed) - 6} more" if len(listed) > 6 else "")
