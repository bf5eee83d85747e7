"""Perturbations of the features, of the labels, and of the selection of points."""

import hashlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError
from shapshift.perturb.base import Checks, Pair, Perturbation, as_perturbation, must_keep_points
from shapshift.perturb.containers import count_points, count_rows, like_features, like_labels, take_rows
from shapshift.valuation import check_returned

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

_share = partial(check.check_number, most=1.0)
_positive = partial(check.check_number, above=True)


def _mapping(caller: str, name: str, value: object, *, to: str, least: int = 0) -> None:
    if not isinstance(value, Mapping) or len(value) < least:
        raise InputError(f"The {name!r} parameter of {caller} must map labels to {to}. Got {check.quoted(value)}.")


class FeaturePerturbation(Perturbation):
    """A perturbation of the features alone."""

    pointwise: ClassVar[bool] = True

    @abstractmethod
    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        """Return changed rows; ``rows`` may be the caller's array, so it must not change."""

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Change the features and return the labels unchanged."""
        table = check.check_features(X_val, "X_val")
        rows = table.rows.toarray() if sparse.issparse(table.rows) else table.rows
        return like_features(self._change(cast(Floats, rows), table.columns, rng), X_val), y_val

    def bind(self, model: Any) -> Self:
        """Raise if the model takes distances, since there are no features to change."""
        if getattr(model, "metric", None) == "precomputed":
            raise InputError(
                f"{self._owner} changes features, but the model has metric='precomputed' and takes distances. Perturb "
                "the features yourself and recompute the distances."
            )
        return self


@dataclass(frozen=True)
class GaussianNoise(FeaturePerturbation):
    """Add independent normal noise to every feature.

    At one seed, the noise of every ``sigma`` is the same up to its scale, so levels differ only by their level.

    Parameters
    ----------
    sigma : float
        Standard deviation of the noise, at least 0.
    relative : bool, default=False
        Take ``sigma`` in units of each feature's standard deviation over the training rows; needs `bind`.
    random_state : int, optional
        See `Perturbation`.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift.perturb import GaussianNoise
    >>> X, y = GaussianNoise(0.5, random_state=0)(np.zeros((4000, 2)), np.zeros(4000))
    >>> print(f"{X.std():.1f}")
    0.5
    """

    sigma: float
    _: KW_ONLY
    relative: bool = False
    _model: ClassVar[Any] = None
    _checks: ClassVar[Checks] = {"sigma": check.check_number, "relative": check.check_flag}

    def bind(self, model: Any) -> Self:
        """Take the training standard deviations from a fitted model, if the noise is relative to them."""
        super().bind(model)
        if not self.relative:
            return self
        if getattr(model, "feature_std_", None) is None:
            raise InputError(
                f"GaussianNoise(relative=True) needs a fitted model with the attribute 'feature_std_'. "
                f"{type(model).__name__} has none (not fitted, sparse rows, or another kind). Use relative=False."
            )
        return self._with(_model=model)

    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        scale: Any = self.sigma
        if self.relative:
            if self._model is None:
                raise InputError("GaussianNoise(relative=True) needs the model: call .bind(model) first.")
            scale = self.sigma * np.asarray(self._model.feature_std_)
            names = getattr(self._model, "feature_names_in_", None)
            check.match_columns(
                check.Table(rows, columns, None, "numpy"), columns and names, self._model.n_features_in_, "X_val"
            )
            if columns is not None and names is not None:
                scale = scale[check.places(names, columns)]
        return np.asarray(rows + scale * rng.standard_normal(rows.shape))


@dataclass(frozen=True)
class LaplaceNoise(FeaturePerturbation):
    """Add independent Laplace noise of scale ``sensitivity / epsilon`` to every feature: the Laplace mechanism.

    `guarantee` says what this protects and what it does not.

    Parameters
    ----------
    epsilon : float
        Privacy parameter, above 0; smaller means more privacy and more noise.
    sensitivity : float, default=1.0
        Largest L1 distance, summed over all features, between any two possible rows. It is stated, not enforced: bound
        the features (clip them) first, in the units they have here.
    random_state : int, optional
        See `Perturbation`.

    Examples
    --------
    >>> from shapshift.perturb import LaplaceNoise
    >>> LaplaceNoise(0.5, sensitivity=2.0).scale
    4.0
    >>> LaplaceNoise.from_scale(4.0, sensitivity=2.0).epsilon
    0.5
    """

    epsilon: float
    _: KW_ONLY
    sensitivity: float = 1.0
    _checks: ClassVar[Checks] = {"epsilon": _positive, "sensitivity": _positive}

    @classmethod
    def from_scale(cls, scale: float, *, sensitivity: float = 1.0, random_state: int | None = None) -> Self:
        """Create the noise from its scale b (its standard deviation is b times the square root of 2)."""
        _positive(cls.__name__, "scale", scale)
        _positive(cls.__name__, "sensitivity", sensitivity)
        return cls(sensitivity / scale, sensitivity=sensitivity, random_state=random_state)

    @property
    def scale(self) -> float:
        """Scale b of the noise."""
        return self.sensitivity / self.epsilon

    @property
    def guarantee(self) -> str:
        """Statement of what the noise guarantees."""
        return (
            f"Each released feature row is {self.epsilon:g}-differentially private with respect to replacing that row "
            f"by one at an L1 distance of at most {self.sensitivity:g} (over all features together), for one release; "
            f"r releases of the same rows cost r * {self.epsilon:g}. Not covered: the labels, which are released as "
            "they are; the number of rows; rows that differ by more than the stated sensitivity, which is not "
            "enforced; several rows of one person; scaling computed from the rows; attacks on floating-point rounding."
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """Name and parameters, with the resulting scale."""
        return super().parameters | {"scale": self.scale}

    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        return rows + self.scale * rng.laplace(size=rows.shape)


@dataclass(frozen=True)
class Round(FeaturePerturbation):
    """Round every feature to a number of decimals (negative: tens, hundreds). Nothing is random.

    Parameters
    ----------
    decimals : int
        Digits after the point.
    random_state : int, optional
        Not used.

    Examples
    --------
    >>> from shapshift.perturb import Round
    >>> Round(1)([[0.12, 3.46]], ["a"])
    (array([[0.1, 3.5]]), ['a'])
    """

    decimals: int
    _checks: ClassVar[Checks] = {"decimals": partial(check.check_count, at_least=-300, at_most=300)}

    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        return np.round(rows, self.decimals)


@dataclass(frozen=True)
class Quantize(FeaturePerturbation):
    """Move every feature to the nearest multiple of a step, or to the middle of one of a few bins. Nothing is random.

    Parameters
    ----------
    step : float, optional
        Distance between the remaining values, above 0.
    bins : int, optional
        Instead of ``step``: number of equally wide bins between the smallest and the largest entry of each column of
        the validation set. Constant columns stay.
    random_state : int, optional
        Not used.

    Examples
    --------
    >>> from shapshift.perturb import Quantize
    >>> Quantize(0.5)([[0.3], [0.9]], [0, 1])[0].ravel()
    array([0.5, 1. ])
    >>> Quantize(bins=2)([[0.0], [1.0], [4.0]], [0, 0, 1])[0].ravel()
    array([1., 1., 3.])
    """

    step: float | None = None
    _: KW_ONLY
    bins: int | None = None
    _either: ClassVar[tuple[str, ...]] = ("step", "bins")
    _checks: ClassVar[Checks] = {"step": _positive, "bins": check.check_count}

    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        if self.step is not None:
            return np.round(rows / self.step) * self.step
        bins = cast(int, self.bins)
        low, high = rows.min(axis=0), rows.max(axis=0)
        # At least the smallest number above 0, which is the spacing of numbers near 0.
        width = np.where(high > low, np.maximum((high - low) / bins, np.nextafter(0.0, 1.0)), 1.0)
        number = np.minimum(np.floor((rows - low) / width), bins - 1)
        return np.where(high > low, low + (number + 0.5) * width, rows)


@dataclass(frozen=True)
class MaskFeatures(FeaturePerturbation):
    """Replace entries, or whole features, by a fill value.

    Parameters
    ----------
    fraction : float
        Probability of masking each entry, or share of masked features, between 0 and 1.
    fill : {"mean", "zero"} or float, default="mean"
        Replacement; "mean" is the column's mean over the given validation set.
    by : {"entry", "feature"}, default="entry"
        Mask each entry independently, or the same random features in all rows.
    random_state : int, optional
        See `Perturbation`.

    Examples
    --------
    >>> from shapshift.perturb import MaskFeatures
    >>> MaskFeatures(1.0, fill=7)([[1.0, 2.0]], [0])[0]
    array([[7., 7.]])
    """

    fraction: float
    _: KW_ONLY
    fill: str | float = "mean"
    by: str = "entry"
    _checks: ClassVar[Checks] = {"fraction": _share, "by": partial(check.check_choice, choices=("entry", "feature"))}

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.fill, str):
            check.check_choice(self._owner, "fill", self.fill, ("mean", "zero"))
        else:
            check.check_number(self._owner, "fill", self.fill, least=-np.inf)

    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        if self.by == "entry":
            masked = rng.random(rows.shape) < self.fraction
        else:
            masked = np.zeros(rows.shape[1], dtype=bool)
            masked[rng.permutation(rows.shape[1])[: round(self.fraction * rows.shape[1])]] = True
        fill = rows.mean(axis=0) if self.fill == "mean" else 0.0 if self.fill == "zero" else self.fill
        return np.where(masked, fill, rows)


@dataclass(frozen=True)
class FlipLabels(Perturbation):
    """Replace labels by others, each independently with its class's probability.

    Parameters
    ----------
    rate : float, optional
        Probability for every label, between 0 and 1.
    rates : mapping from label to float, optional
        Instead of ``rate``: a probability per label; labels that are not named do not change.
    targets : mapping, optional
        Replacement of a flipped label: another label, or a mapping from labels to weights. A label that is not named
        here becomes any other class of the validation set (or of the model, see `bind`) with equal probability.
    random_state : int, optional
        See `Perturbation`.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift.perturb import FlipLabels
    >>> FlipLabels(rates={"cat": 1.0})(np.zeros((3, 1)), ["cat", "dog", "dog"])[1]
    ['dog', 'dog', 'dog']
    """

    rate: float | None = None
    _: KW_ONLY
    rates: Mapping[Any, float] | None = None
    targets: Mapping[Any, Any] | None = None
    pointwise: ClassVar[bool] = True
    _classes: ClassVar[tuple[Any, ...]] = ()
    _either: ClassVar[tuple[str, ...]] = ("rate", "rates")
    _checks: ClassVar[Checks] = {
        "rate": _share,
        "rates": partial(_mapping, to="probabilities, such as {0: 0.1}"),
        "targets": partial(_mapping, to="labels, such as {0: 1}"),
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for rate in (self.rates or {}).values():
            _share(self._owner, "rates", rate)
        for label, target in (self.targets or {}).items():
            weights = target if isinstance(target, Mapping) else {target: 1.0}
            for weight in weights.values():
                check.check_number(self._owner, "targets", weight)
            if label in weights or not sum(weights.values()) > 0:
                raise InputError(
                    f"The 'targets' parameter of FlipLabels must map {check.quoted(label)} to another label. Got "
                    f"{check.quoted(target)}."
                )

    def bind(self, model: Any) -> Self:
        """Allow all classes of the fitted model as new labels."""
        return self._with(_classes=tuple(np.asarray(getattr(model, "classes_", ())).tolist()))

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Flip labels and return the features unchanged."""
        labels = _labels.check_labels(y_val, "y_val", count_rows(X_val), "X_val")
        present, codes = _labels.encode_labels(labels)
        classes = list(dict.fromkeys([*present.tolist(), *self._classes]))
        unknown = [label for label in (*(self.rates or ()), *(self.targets or ())) if label not in classes]
        if unknown:
            raise InputError(
                f"FlipLabels names the label {check.quoted(unknown[0])}, which does not occur. The labels are: "
                f"{check.some(classes)}."
            )
        # Drawn for all rows at once, so that one class's rate does not affect the flips of another.
        draws, choices = rng.random(labels.size), rng.random(labels.size)
        flipped = labels.tolist()
        for code, label in enumerate(present.tolist()):
            rate = self.rate if self.rates is None else self.rates.get(label, 0.0)
            where = np.flatnonzero((codes == code) & (draws < cast(float, rate)))
            if where.size:
                others, weights = self._others(label, classes)
                picks = np.searchsorted(np.cumsum(weights) / np.sum(weights), choices[where], side="right")
                for row, pick in zip(where, picks, strict=True):
                    flipped[row] = others[min(pick, len(others) - 1)]
        return X_val, like_labels(flipped, labels, y_val)

    def _others(self, label: Any, classes: list[Any]) -> tuple[list[Any], list[float]]:
        if self.targets is not None and label in self.targets:
            target = self.targets[label]
            weights = target if isinstance(target, Mapping) else {target: 1.0}
            return list(weights), list(weights.values())
        others = [other for other in classes if other != label]
        if not others:
            raise InputError(
                f"FlipLabels cannot change {check.quoted(label)}, because it is the only label. Call .bind(model) "
                "or give 'targets'."
            )
        return others, [1.0] * len(others)


class BoundaryRule:
    """The boundary points of a validation set, by the rule of a fitted model.

    The last result is cached, because an audit asks for the same set repeatedly.
    """

    def __init__(self, model: Any) -> None:
        self.model = model
        self._last: tuple[bytes, npt.NDArray[np.bool_]] | None = None

    def __call__(self, caller: str, X_val: Any, y_val: Any) -> npt.NDArray[np.bool_]:
        """Return whether each point is a boundary point."""
        if self.model is None:
            raise InputError(f"{caller} needs the model: call .bind(model) first.")
        key = b""
        if getattr(self.model, "metric", None) != "precomputed":
            rows: Any = check.check_features(X_val, "X_val").rows
            parts = (rows.data, rows.indices, rows.indptr) if sparse.issparse(rows) else (rows,)
            key = repr(rows.shape).encode() + b"".join(_hash(part) for part in parts)
            if self._last is not None and self._last[0] == key:
                return self._last[1]
        boundary = check_returned(f"{caller}.bind", self.model, self.model.value(X_val, y_val)).boundary
        self._last = (key, boundary) if key else None
        return boundary


def _hash(array: npt.NDArray[Any]) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(array).data, digest_size=16).digest()


@dataclass(frozen=True)
class OnPoints(Perturbation):
    """Another perturbation applied only to boundary points, or only to the others; needs `bind`.

    Boundary points are those whose nearest training rows disagree (``model.value(X_val, y_val).boundary``, on the given
    points). The perturbation is drawn for all points and kept for the selected ones; the others stay identical bit for
    bit. At one seed, "boundary" and "nonboundary" together therefore change the same points to the same numbers as the
    perturbation alone. Audits give all three the same seeds.

    Parameters
    ----------
    perturbation : Perturbation or function
        It must keep the points in order; resampling is not allowed.
    points : {"boundary", "nonboundary"}
        Points to change.
    random_state : int, optional
        Seed of the perturbation; by default its own.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.data import load_dataset
    >>> from shapshift.perturb import GaussianNoise, OnPoints
    >>> data = load_dataset("gaussian", n_train=200, n_val=100)
    >>> model = KNNShapley().fit(data.X_train, data.y_train)
    >>> X_noisy, _ = OnPoints(GaussianNoise(0.5), "boundary").bind(model)(data.X_val, data.y_val)
    >>> changed = (X_noisy != data.X_val).any(axis=1)
    >>> bool((changed == model.value(data.X_val, data.y_val).boundary).all())
    True
    """

    perturbation: Perturbation
    points: str
    pointwise: ClassVar[bool] = True
    _boundary: ClassVar[BoundaryRule] = BoundaryRule(None)

    def __post_init__(self) -> None:
        super().__post_init__()
        check.check_choice(self._owner, "points", self.points, ("boundary", "nonboundary"))
        inner = as_perturbation(self.perturbation)
        if getattr(inner, "pointwise", None) is False:
            raise InputError(
                f"The 'perturbation' parameter of OnPoints must keep the points, in order, which "
                f"{inner.parameters['name']} does not: it resamples them. Use a perturbation of features or labels."
            )
        seed = self.random_state
        object.__setattr__(self, "perturbation", inner if seed is None else inner.with_seed(seed))

    def with_seed(self, seed: int) -> Self:
        """Return the same with another seed of the perturbation."""
        return super().with_seed(seed)._with(perturbation=self.perturbation.with_seed(seed))

    def bind(self, model: Any) -> Self:
        """Take the model that defines the boundary points, and bind the perturbation to it."""
        return self._with(_boundary=BoundaryRule(model), perturbation=self.perturbation.bind(model))

    @property
    def parameters(self) -> dict[str, Any]:
        """Selected points, and the parameters of the perturbation."""
        return {"name": self._owner, "perturbation": self.perturbation.parameters, "points": self.points}

    @property
    def seeded_by(self) -> dict[str, Any]:
        """Seed parameters of the inner perturbation: at one seed it draws the same for all points and for some."""
        return self.perturbation.seeded_by

    @property
    def _kind(self) -> str:
        return self.perturbation._kind

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Perturb all points, and restore those that are not selected."""
        count_points(X_val, y_val)
        chosen = self._boundary(self._owner, X_val, y_val) == (self.points == "boundary")
        if not chosen.any():
            warn(
                f"None of the {chosen.size} validation points is a {self.points} point, so {self._owner} has no effect."
            )
        labels = _labels.check_labels(y_val, "y_val", chosen.size, "X_val")
        X_new, y_new = self.perturbation._with(_place=self._place)(X_val, y_val)
        must_keep_points(
            "The 'perturbation' parameter of OnPoints must keep the points", self.perturbation, labels, y_new
        )
        if X_new is not X_val:
            X_new = _some_changed(X_new, X_val, chosen)
        if y_new is not y_val:
            new = _labels.check_labels(y_new, "y_val", chosen.size, "X_val").tolist()
            kept = [one if taken else old for one, old, taken in zip(new, labels.tolist(), chosen, strict=True)]
            y_new = like_labels(kept, labels, y_val)
        return X_new, y_new


def _some_changed(X_new: Any, X_val: Any, chosen: npt.NDArray[np.bool_]) -> Any:
    """Return the selected rows of the changed features and the other rows of the original ones."""
    new, old = check.check_features(X_new, "X_val"), check.check_features(X_val, "X_val")
    if new.rows.shape != old.rows.shape or new.columns != old.columns:
        raise InputError(
            f"The 'perturbation' parameter of OnPoints must keep the columns of 'X_val'. Got {new.rows.shape[1]} "
            f"columns for {old.rows.shape[1]}, or columns of other names or order."
        )
    if sparse.issparse(X_val):
        both = sparse.vstack([sparse.csr_array(old.rows), sparse.csr_array(new.rows)], format="csr")
        return both[np.arange(chosen.size) + chosen.size * chosen]
    changed: Any = new.rows.toarray() if sparse.issparse(new.rows) else new.rows
    return like_features(np.where(chosen[:, None], changed, old.rows), X_val)


class ResamplePerturbation(Perturbation):
    """A perturbation that selects points: it keeps, drops or repeats them."""

    pointwise: ClassVar[bool] = False

    @abstractmethod
    def _rows(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Ints:
        """Positions of the points to keep, in order."""

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Select the points."""
        rows = self._rows(X_val, y_val, rng)
        return take_rows(X_val, rows), take_rows(y_val, rows)


@dataclass(frozen=True)
class Subsample(ResamplePerturbation):
    """Keep a random part of the validation set, without repeats and in the same order.

    Parameters
    ----------
    fraction : float, optional
        Share of the points to keep, above 0 and at most 1; at least one point stays.
    n : int, optional
        Instead of ``fraction``: number of points to keep.
    random_state : int, optional
        See `Perturbation`.

    Examples
    --------
    >>> from shapshift.perturb import Subsample
    >>> len(Subsample(0.25, random_state=0)([[0.0]] * 8, list("abcdefgh"))[1])
    2
    """

    fraction: float | None = None
    _: KW_ONLY
    n: int | None = None
    _either: ClassVar[tuple[str, ...]] = ("fraction", "n")
    _checks: ClassVar[Checks] = {"fraction": partial(_positive, most=1.0), "n": check.check_count}

    def _rows(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Ints:
        total = count_points(X_val, y_val)
        count = self.n if self.fraction is None else max(1, round(self.fraction * total))
        if cast(int, count) > total:
            raise InputError(
                f"The 'n' parameter of Subsample must be at most the number of points, {total}. Got {self.n}."
            )
        return np.sort(rng.permutation(total)[:count])


@dataclass(frozen=True)
class ShiftPriors(ResamplePerturbation):
    """Resample the validation set to given class shares.

    Points of a class are repeated only if it has too few, and then as evenly as possible; otherwise a random part of
    them is kept. Counts are rounded so that they sum to the size; the order does not change.

    Parameters
    ----------
    shares : mapping from label to float
        Share of each class. Classes that are not named divide the rest in their present proportions; if all are named,
        the shares must sum to 1.
    n : int, optional
        Size of the result; by default unchanged.
    random_state : int, optional
        See `Perturbation`.

    Examples
    --------
    >>> from shapshift.perturb import ShiftPriors
    >>> X, y = ShiftPriors({"a": 0.75}, random_state=0)([[0.0], [1.0], [2.0], [3.0]], ["a", "a", "b", "b"])
    >>> y
    ['a', 'a', 'a', 'b']
    """

    shares: Mapping[Any, float]
    _: KW_ONLY
    n: int | None = None
    _checks: ClassVar[Checks] = {
        "shares": partial(_mapping, to="shares, such as {0: 0.3}", least=1),
        "n": check.check_count,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        for share in self.shares.values():
            _share(self._owner, "shares", share)
        if sum(self.shares.values()) > 1 + 1e-9:
            raise InputError(
                f"The 'shares' parameter of ShiftPriors must sum to at most 1. Got {check.quoted(self.shares)}."
            )

    def _rows(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Ints:
        labels = _labels.check_labels(y_val, "y_val", count_rows(X_val), "X_val")
        classes, codes = _labels.encode_labels(labels)
        names, counts = classes.tolist(), np.bincount(codes)
        absent = [label for label in self.shares if label not in names and self.shares[label] > 0]
        if absent:
            raise InputError(
                f"ShiftPriors has no point to draw for the label {check.quoted(absent[0])}. The labels are "
                f"{check.some(names)}."
            )
        free = np.array([name not in self.shares for name in names])
        left = 1.0 - sum(self.shares.values())
        if not free.any() and abs(left) > 1e-9:
            raise InputError(
                f"The 'shares' parameter of ShiftPriors names all classes, so it must sum to 1. Got "
                f"{check.quoted(self.shares)}."
            )
        rest = max(left, 0.0) * counts / max(1, counts[free].sum())
        shares = np.array([self.shares.get(name, part) for name, part in zip(names, rest, strict=True)])
        groups = [np.flatnonzero(codes == code) for code in range(len(names))]
        return _resample(groups, largest_remainders(shares, self.n or labels.size), rng)


@dataclass(frozen=True)
class BoundaryCoverage(ResamplePerturbation):
    """Resample the validation set to a given share of boundary points; needs `bind`.

    Boundary points are those whose nearest training rows disagree (``model.value(X_val, y_val).boundary``, on the given
    points). Points of a group are repeated only if it has too few, and then as evenly as possible; the order does not
    change. If the share needs points of an empty group, a ValueError is raised.

    Parameters
    ----------
    fraction : float
        Share of boundary points, between 0 and 1.
    n : int, optional
        Size of the result; by default unchanged.
    random_state : int, optional
        See `Perturbation`.

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> from shapshift.data import load_dataset
    >>> from shapshift.perturb import BoundaryCoverage
    >>> data = load_dataset("gaussian", n_train=200, n_val=100)
    >>> model = KNNShapley().fit(data.X_train, data.y_train)
    >>> half = BoundaryCoverage(0.5, random_state=0).bind(model)
    >>> model.value(*half(data.X_val, data.y_val)).boundary_fraction
    0.5
    """

    fraction: float
    _: KW_ONLY
    n: int | None = None
    _boundary: ClassVar[BoundaryRule] = BoundaryRule(None)
    _checks: ClassVar[Checks] = {"fraction": _share, "n": check.check_count}

    def bind(self, model: Any) -> Self:
        """Take the model that defines the boundary points."""
        return self._with(_boundary=BoundaryRule(model))

    def _rows(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Ints:
        boundary = self._boundary(self._owner, X_val, y_val)
        groups = [np.flatnonzero(boundary), np.flatnonzero(~boundary)]
        counts = largest_remainders(np.array([self.fraction, 1 - self.fraction]), self.n or boundary.size)
        for rows, count, kind in zip(groups, counts, ("boundary", "non-boundary"), strict=True):
            if count and not rows.size:
                raise InputError(
                    f"BoundaryCoverage({self.fraction:g}) needs {count} {kind} points, but none of the {boundary.size} "
                    f"validation points is one. Ask for fraction={float(kind != 'boundary'):g}, or use other points."
                )
        return _resample(groups, counts, rng)


def largest_remainders(shares: Floats, total: int) -> Ints:
    """Whole numbers in the given proportions that sum to ``total``: the largest remainders are rounded up."""
    exact = np.round(shares / shares.sum() * total, 9)
    counts: Ints = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _resample(groups: Sequence[Ints], counts: Ints, rng: np.random.Generator) -> Ints:
    """``counts[g]`` rows of each group, ascending; row frequencies within a group differ by at most one."""
    chosen = []
    for rows, count in zip(groups, counts.tolist(), strict=True):
        if count:
            whole, rest = divmod(count, rows.size)
            chosen += [np.repeat(rows, whole), rng.permutation(rows)[:rest]]
    return np.sort(np.concatenate(chosen))
