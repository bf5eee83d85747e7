"""Choice of validation points to analyse, by neighbour-label entropy and a reproducible rule."""

import itertools
from collections import deque
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.boundary import majority
from shapshift.exceptions import InputError
from shapshift.perturb.containers import count_rows, take_rows
from shapshift.valuation import Valuation, check_returned

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: Kinds of points: near a class boundary or not.
KINDS = ("boundary", "nonboundary")
#: Kinds of pairs: two boundary points, two non-boundary points, or a boundary point followed by a non-boundary point.
SCENARIOS = ("BB", "NN", "BN")
#: Letters for the kinds of points in a pair.
LETTERS = {"B": "boundary", "N": "nonboundary"}


def pick_points(
    model: Any, X_val: Any, y_val: Any, *, kind: str = "boundary", n_points: int = 1, random_state: int = 0
) -> Ints:
    """Choose validation points near a class boundary, or away from it.

    Boundary points are those of the highest entropy among the labels of their nearest training rows. Non-boundary
    points are all others (by default of entropy 0) whose neighbours vote for the point's own label (if there are none,
    for any label).

    A single point is chosen deterministically. Its class is the most frequent validation label that has candidates
    (ties by the order of labels). Among its candidates, it has the median distance from their mean, so it is neither
    central nor an outlier. Several points are a random sample of the candidates of all classes; if the highest entropy
    has too few boundary points, points of the next lower one are added.

    Parameters
    ----------
    model : fitted estimator
        Anything with ``value(X_val, y_val) -> Valuation``.
    X_val, y_val : table and labels
        The validation set.
    kind : {"boundary", "nonboundary"}, default="boundary"
    n_points : int, default=1
        Number to choose, or fewer if there are not enough.
    random_state : int, default=0
        Seed of the sample of several points.

    Returns
    -------
    ndarray of int64
        Positions in the validation set.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> model = KNNShapley().fit(X, X[:, 0] > 9)
    >>> pick_points(model, X, X[:, 0] > 9, kind="nonboundary")
    array([5])
    """
    check.check_choice("pick_points", "kind", kind, KINDS)
    check.check_count("pick_points", "n_points", n_points)
    check.check_count("pick_points", "random_state", random_state, 0)
    return choose_points(check_validation_set("pick_points", model, X_val, y_val), kind, n_points, random_state)


def pick_pairs(
    model: Any, X_val: Any, y_val: Any, *, scenario: str = "BB", n_pairs: int = 1, random_state: int = 0
) -> Ints:
    """Choose pairs of validation points of different classes.

    Each point of a pair is chosen within its class as :func:`pick_points` does. A single pair comes from the two most
    frequent classes that have such points; in scenario "BN" the boundary point is from the more frequent class. Several
    pairs cycle through all combinations of classes, in scenario "BN" in both orders, and use no point twice.

    Parameters
    ----------
    model, X_val, y_val, random_state
        As in :func:`pick_points`.
    scenario : {"BB", "NN", "BN"}, default="BB"
        Two boundary points, two non-boundary points, or a boundary point followed by a non-boundary point.
    n_pairs : int, default=1
        Number to choose, or fewer if there are not enough.

    Returns
    -------
    ndarray of int64 of shape (n_pairs, 2)
        Positions in the validation set.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> X = np.arange(20.0).reshape(-1, 1)
    >>> model = KNNShapley().fit(X, X[:, 0] > 9)
    >>> pick_pairs(model, X, X[:, 0] > 9, scenario="NN")
    array([[ 5, 17]])
    """
    check.check_choice("pick_pairs", "scenario", scenario, SCENARIOS)
    check.check_count("pick_pairs", "n_pairs", n_pairs)
    check.check_count("pick_pairs", "random_state", random_state, 0)
    return choose_pairs(check_validation_set("pick_pairs", model, X_val, y_val), scenario, n_pairs, random_state)


@dataclass(frozen=True, eq=False)
class PointValues:
    """Values on some validation points, and the votes of their nearest training rows if the model provides them."""

    valuation: Valuation
    votes: Ints | None


@dataclass(frozen=True, eq=False)
class ValidationSet:
    """A model and the checked validation set from which points are chosen."""

    caller: str
    model: Any
    X: Any
    labels: npt.NDArray[Any]
    codes: npt.NDArray[np.int32]

    @property
    def has_neighbors(self) -> bool:
        """Whether the model provides the nearest training rows."""
        return hasattr(self.model, "value_and_neighbors") and hasattr(self.model, "codes_")

    def value_at(self, positions: Ints) -> PointValues:
        """Value the points at given positions, without noise."""
        return self.value(take_rows(self.X, positions), self.labels[positions])

    def value(self, X: Any, y: Any, **options: Any) -> PointValues:
        """Value points. A tied vote goes to the first class."""
        if not self.has_neighbors:
            return PointValues(check_returned(self.caller, self.model, self.model.value(X, y, **options)), None)
        valuation, neighborhood = self.model.value_and_neighbors(X, y, **options)
        check_returned(self.caller, self.model, valuation)
        return PointValues(valuation, majority(self.model.codes_[neighborhood.nearest]))


def check_validation_set(caller: str, model: Any, X_val: Any, y_val: Any) -> ValidationSet:
    """Check a validation set, beyond the checks of the model."""
    model = check.check_model(caller, model)
    if getattr(model, "metric", None) == "precomputed":
        raise InputError(
            f"{caller} adds noise to features, but the model was fitted with metric='precomputed' and knows distances "
            "only. Fit it on features."
        )
    labels = _labels.check_labels(y_val, "y_val", count_rows(X_val), "X_val")
    classes = getattr(model, "classes_", None)
    codes = _labels.encode_labels(labels)[1] if classes is None else _labels.look_up_labels(labels, classes)
    return ValidationSet(caller, model, X_val, labels, codes)


def choose_points(val_set: ValidationSet, kind: str, n_points: int, random_state: int) -> Ints:
    """Choose points, see :func:`pick_points`."""
    seen = val_set.value_at(np.arange(val_set.labels.size))
    candidates = _candidates(val_set, kind, seen)
    if candidates.size == 0:
        raise InputError(
            f"There is no {kind} point in the validation set: the labels of the nearest training rows "
            f"{'never' if kind == 'boundary' else 'always'} disagree. Pass more validation points, or name a point."
        )
    if n_points == 1:
        own = (candidates[val_set.codes[candidates] == code] for code in _by_frequency(val_set))
        candidates = next(positions for positions in own if positions.size)
    rng = np.random.default_rng(random_state)
    return _in_order(val_set, candidates, seen.valuation.entropy, n_points, rng)[:n_points]


def choose_pairs(val_set: ValidationSet, scenario: str, n_pairs: int, random_state: int) -> Ints:
    """Choose pairs, see :func:`pick_pairs`."""
    seen = val_set.value_at(np.arange(val_set.labels.size))
    by_frequency = _by_frequency(val_set)
    rng = np.random.default_rng(random_state)
    pools: dict[tuple[str, int], deque[int]] = {}
    for letter in sorted(set(scenario)):
        candidates = _candidates(val_set, LETTERS[letter], seen)
        for code in by_frequency:
            own = candidates[val_set.codes[candidates] == code]
            pools[letter, code] = deque(_in_order(val_set, own, seen.valuation.entropy, n_pairs, rng).tolist())
    two_ways = scenario[0] != scenario[1]
    classes = list((itertools.permutations if two_ways else itertools.combinations)(by_frequency, 2))
    pairs: list[tuple[int, int]] = []
    while classes and len(pairs) < n_pairs:
        for pair in tuple(classes):
            first, second = pools[scenario[0], pair[0]], pools[scenario[1], pair[1]]
            if first and second:
                pairs.append((first.popleft(), second.popleft()))
            else:
                classes.remove(pair)
    if not pairs:
        raise InputError(
            f"There is no {scenario} pair in the validation set (B is a boundary point, N is not): two such points of "
            "different classes are needed. Pass more validation points, or name the points."
        )
    return np.array(pairs[:n_pairs], dtype=np.int64)


def _candidates(val_set: ValidationSet, kind: str, seen: PointValues) -> Ints:
    """Positions of all points of a kind."""
    known, boundary = val_set.codes >= 0, seen.valuation.boundary
    if kind == "boundary":
        return np.flatnonzero(known & boundary)
    inside = known & ~boundary
    clear = inside if seen.votes is None else inside & (seen.votes == val_set.codes)
    return np.flatnonzero(clear if clear.any() else inside)


def _by_frequency(val_set: ValidationSet) -> list[int]:
    """Class numbers that occur, in order of decreasing frequency."""
    codes, counts = np.unique(val_set.codes[val_set.codes >= 0], return_counts=True)
    order: list[int] = codes[np.argsort(-counts, kind="stable")].tolist()
    return order


def _in_order(val_set: ValidationSet, candidates: Ints, entropy: Floats, wanted: int, rng: np.random.Generator) -> Ints:
    """Candidates in order of choice: by decreasing entropy, then the typical one alone, or at random."""
    if candidates.size == 0:
        return candidates
    if wanted == 1:
        top = candidates[entropy[candidates] == entropy[candidates].max()]
        middle = np.argsort(_distance_from_mean(val_set, top), kind="stable")[(top.size - 1) // 2]
        return np.array([top[middle]])
    shuffled = candidates[rng.permutation(candidates.size)]
    return shuffled[np.argsort(-entropy[shuffled], kind="stable")]


def _distance_from_mean(val_set: ValidationSet, positions: Ints) -> Floats:
    rows: Any = check.check_features(take_rows(val_set.X, positions), "X_val").rows
    mean = np.asarray(rows.mean(axis=0)).ravel()
    if sparse.issparse(rows):  # subtracting the mean would make it dense
        squares = rows.multiply(rows).sum(axis=1) - 2 * (rows @ mean) + (mean * mean).sum()
        return np.sqrt(np.maximum(np.asarray(squares, dtype=np.float64), 0))
    return np.asarray(np.linalg.norm(rows - mean, axis=1), dtype=np.float64)
