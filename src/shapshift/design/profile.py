"""Entropy profiles: positions of a validation set and of the training rows relative to the class boundaries."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import special

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS, label_counts
from shapshift.exceptions import InputError
from shapshift.io.results import to_table
from shapshift.io.shown import Shown
from shapshift.knn.shapley import KNNShapley
from shapshift.perturb.containers import take_rows
from shapshift.valuation import is_boundary

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class EntropyProfile(Shown):
    """Distribution of points by the entropy of their neighbours' labels.

    Attributes
    ----------
    levels, shares : ndarray
        Entropies (nats) of the neighbours' labels, and the share of the points at each.
    n_points : int
        Number of points.
    boundary_fraction : float
        Share of points whose neighbours disagree: entropy above ``boundary_entropy``.
    class_shares, class_boundary : dict
        Share of each class among the points, and share of boundary points within it (NaN if the class is absent).
    """

    levels: Floats
    shares: Floats
    n_points: int
    boundary_fraction: float
    class_shares: Mapping[Any, float]
    class_boundary: Mapping[Any, float]


@dataclass(frozen=True, eq=False)
class ProfileComparison(Shown):
    """Comparison of a validation set's entropy profile with that of the training rows.

    Attributes
    ----------
    validation, training : EntropyProfile
        The training profile is leave-one-out: each row among the others.
    distance : float
        Total variation between the two profiles: the share of points that would have to move to another entropy level.
    interval : (float, float)
        95 % interval of the distance under resampling of both sets (multinomial).
    expected : float
        Largest distance explained by chance: the 97.5 % quantile of the distance between two samples of the training
        profile, of the sizes of the two sets. Together with the same limit for the classes, a set drawn like the
        training rows passes 95 times in 100.
    class_distance, class_expected : float
        The same for the shares of the classes.
    """

    validation: EntropyProfile
    training: EntropyProfile
    distance: float
    interval: tuple[float, float]
    expected: float
    class_distance: float
    class_expected: float

    @property
    def representative(self) -> bool:
        """Whether chance explains both distances."""
        return self.distance <= self.expected and self.class_distance <= self.class_expected

    @property
    def verdict(self) -> str:
        """One-line summary.

        For profiles that differ it contains "more" or "fewer boundary points" if the boundary shares account for at
        least half of the distance, else "other entropy levels".
        """
        low, high = self.interval
        near = f"total variation {self.distance:.3f} [{low:.3f}, {high:.3f}], chance allows {self.expected:.3f}"
        theirs, own = self.validation.boundary_fraction, self.training.boundary_fraction
        shares = f"boundary points {theirs:.1%} against {own:.1%} in training"
        if self.representative:
            return f"representative: {shares}; {near}"
        reasons = []
        if self.distance > self.expected:
            mostly = abs(theirs - own) >= self.distance / 2
            more = "more boundary points" if theirs > own else "fewer boundary points"
            reasons.append(more if mostly else "other entropy levels")
        if self.class_distance > self.class_expected:
            reasons.append(f"other class shares (total variation {self.class_distance:.3f})")
        return f"not representative ({', '.join(reasons)}): {shares}; {near}"

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate the shares per entropy level.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            ``entropy``, ``validation``, ``training``.
        """
        columns: dict[str, npt.NDArray[Any]] = {
            "entropy": self.validation.levels,
            "validation": self.validation.shares,
            "training": self.training.shares,
        }
        return to_table(columns, None, kind)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw both profiles side by side; see :mod:`shapshift.plots.results`."""
        from shapshift.plots.results import plot_profile

        return plot_profile(self, ax=ax)

    def __str__(self) -> str:
        return self.verdict


def entropy_profile(
    X_train: Any,
    y_train: Any,
    X_val: Any,
    y_val: Any,
    *,
    n_neighbors: int = BOUNDARY_NEIGHBORS,
    boundary_entropy: float = 0.0,
    metric: str = "euclidean",
    max_rows: int = 5000,
    draws: int = 2000,
    random_state: int | None = 0,
) -> ProfileComparison:
    """Compare a validation set's entropy profile with the training rows' own.

    Every validation point gets the entropy of the labels of its nearest training rows. The reference is the same number
    for each training row among the *other* rows: otherwise it would find itself at distance 0 and look safer than it
    is. A copy of the row elsewhere in the table counts as another row. Ties are broken by row number.

    Parameters
    ----------
    X_train, y_train, X_val, y_val
        Tables and labels, as :class:`~shapshift.KNNShapley` takes them.
    n_neighbors : int, default=5
        Number of neighbours whose labels are used.
    boundary_entropy : float, default=0.0
        Entropy of their labels, in nats, above which a point is a boundary point.
    metric : str, default="euclidean"
        As in :class:`~shapshift.KNNShapley`, except "precomputed".
    max_rows : int, default=5000
        Take the leave-one-out profile from a random sample of this many training rows when there are more; the
        neighbours always come from all rows.
    draws : int, default=2000
        Number of multinomial draws for the interval.
    random_state : int, optional
        Seed of the sample and the draws.

    Returns
    -------
    ProfileComparison

    Examples
    --------
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> X, X_val = rng.normal(size=(500, 2)), rng.normal(size=(200, 2))
    >>> y, y_val = X[:, 0] > 0, X_val[:, 0] > 0
    >>> entropy_profile(X, y, X_val, y_val).representative
    True
    >>> near = np.abs(X_val[:, 0]) < 0.3  # a validation set from around the boundary only
    >>> print(entropy_profile(X, y, X_val[near], y_val[near]).verdict.split(":")[0])
    not representative (more boundary points)
    """
    caller = "entropy_profile"
    for name, count in (("n_neighbors", n_neighbors), ("max_rows", max_rows), ("draws", draws)):
        check.check_count(caller, name, count)
    check.check_number(caller, "boundary_entropy", boundary_entropy)
    if metric == "precomputed":
        raise InputError(
            "The 'metric' parameter of entropy_profile cannot be 'precomputed': the training rows are compared with "
            "each other. Pass the features."
        )
    rng = np.random.default_rng(random_state)
    model = neighbor_model(X_train, y_train, n_neighbors, metric)
    n_train = model.codes_.size
    rows = np.arange(n_train) if n_train <= max_rows else np.sort(rng.choice(n_train, max_rows, replace=False))
    own = leave_one_out_entropy(model, X_train, y_train, rows, n_neighbors)
    neighborhood = model.value_and_neighbors(X_val, y_val)[1]
    theirs = label_entropy(model, neighborhood.nearest[:, :n_neighbors])
    codes = _labels.look_up_labels(_labels.check_labels(y_val, "y_val", theirs.size, "X_val"), model.classes_)
    levels = np.unique(np.concatenate([own, theirs]))
    classes = model.classes_.tolist()
    training = _profile(own, model.codes_[rows], levels, classes, boundary_entropy)
    validation = _profile(theirs, codes, levels, classes, boundary_entropy)
    distance, interval, expected = _distance(validation.shares, training.shares, theirs.size, rows.size, draws, rng)
    # Labels never seen in training form their own class here, with share 0 in training.
    seen = np.array(list(validation.class_shares.values()))
    class_distance, _, class_expected = _distance(
        np.append(seen, max(0.0, 1 - seen.sum())),
        np.append(list(training.class_shares.values()), 0.0),
        theirs.size,
        rows.size,
        draws,
        rng,
    )
    return ProfileComparison(validation, training, distance, interval, expected, class_distance, class_expected)


def _profile(
    entropy: Floats, codes: npt.NDArray[np.int32], levels: Floats, classes: list[Any], threshold: float
) -> EntropyProfile:
    boundary = is_boundary(entropy, threshold)
    members = [codes == number for number in range(len(classes))]
    return EntropyProfile(
        levels=levels,
        shares=np.bincount(np.searchsorted(levels, entropy), minlength=levels.size) / entropy.size,
        n_points=entropy.size,
        boundary_fraction=float(boundary.mean()),
        class_shares={name: float(here.mean()) for name, here in zip(classes, members, strict=True)},
        class_boundary={
            name: float(boundary[here].mean()) if here.any() else float("nan")
            for name, here in zip(classes, members, strict=True)
        },
    )


def _distance(
    theirs: Floats, own: Floats, n_val: int, n_train: int, draws: int, rng: np.random.Generator
) -> tuple[float, tuple[float, float], float]:
    """Total variation, its 95 % interval under resampling, and its 97.5 % quantile without a true difference."""

    def variation(p: Floats, q: Floats) -> Floats:
        return np.asarray(np.abs(p - q).sum(axis=-1) / 2)

    def sample(shares: Floats, size: int) -> Floats:
        shares = np.maximum(shares, 0)
        return np.asarray(rng.multinomial(size, shares / shares.sum(), size=draws) / size)

    resampled = variation(sample(theirs, n_val), sample(own, n_train))
    by_chance = variation(sample(own, n_val), sample(own, n_train))
    low, high = np.quantile(resampled, [0.025, 0.975])
    return float(variation(theirs, own)), (float(low), float(high)), float(np.quantile(by_chance, 0.975))


def neighbor_model(X: Any, y: Any, n_neighbors: int, metric: str) -> KNNShapley:
    """Fit a model with one extra neighbour, since a training row finds itself first."""
    return KNNShapley(n_neighbors=n_neighbors + 1, metric=metric, progress=False).fit(X, y)


def leave_one_out_entropy(model: KNNShapley, X: Any, y: Any, rows: Ints, n_neighbors: int) -> Floats:
    """Entropy of the labels of each training row's nearest *other* training rows.

    Only the row itself is left out. An exact copy elsewhere in the table is another row and stays, as it would for an
    equal new point. Among copies the row may not be listed first, or not at all if there are many; it is removed if
    listed, else the list is cut to length.
    """
    nearest = model.value_and_neighbors(take_rows(X, rows), take_rows(y, rows))[1].nearest
    itself = nearest == rows[:, None]
    itself[~itself.any(axis=1), -1] = True
    return label_entropy(model, nearest[~itself].reshape(rows.size, -1)[:, :n_neighbors])


def label_entropy(model: KNNShapley, nearest: Ints) -> Floats:
    """Entropy (nats) of the labels of the listed training rows; exactly 0 where they agree."""
    # Sorted, so that the same counts give the same bits for any classes.
    counts = np.sort(label_counts(model.codes_[nearest], len(model.classes_)), axis=1)
    entropy: Floats = special.entr(counts / max(nearest.shape[1], 1)).sum(axis=1)
    return np.round(entropy, 12) + 0.0
