"""Changes to the features: noise, rounding, masking."""

from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt
from scipy import sparse

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError
from shapshift.perturb.base import Pair, Perturbation, check_one
from shapshift.perturb.containers import like_features

Floats = npt.NDArray[np.float64]


class FeaturePerturbation(Perturbation):
    """A perturbation of the features alone."""

    pointwise: ClassVar[bool] = True

    @abstractmethod
    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        """Return changed rows; ``rows`` may be the caller's own."""

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Change the features; the labels pass through."""
        table = check.check_features(X_val, "X_val")
        rows = table.rows.toarray() if sparse.issparse(table.rows) else table.rows
        return like_features(self._change(cast(Floats, rows), table.columns, rng), X_val), y_val

    def bind(self, model: Any) -> Self:
        """Refuse models that take distances: there are no features to change."""
        if getattr(model, "metric", None) == "precomputed":
            raise InputError(
                f"{self._owner} changes features, but the model has metric='precomputed' and takes distances. Perturb "
                "the features yourself and compute the distances again."
            )
        return self


@dataclass(frozen=True)
class GaussianNoise(FeaturePerturbation):
    """Add independent normal noise to every feature.

    The noise at one seed is the same for every ``sigma`` up to its size, so levels differ by level alone.

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

    def __post_init__(self) -> None:
        super().__post_init__()
        check.check_number(self._owner, "sigma", self.sigma)
        check.check_flag(self._owner, "relative", self.relative)

    def bind(self, model: Any) -> Self:
        """Take the features' training standard deviations from a fitted model, when noise is relative to them."""
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
                place = {name: j for j, name in enumerate(names)}
                scale = scale[[place[column] for column in columns]]
        return np.asarray(rows + scale * rng.standard_normal(rows.shape))


@dataclass(frozen=True)
class LaplaceNoise(FeaturePerturbation):
    """Add independent Laplace noise of scale ``sensitivity / epsilon`` to every feature: the Laplace mechanism.

    See `guarantee` for what that protects and what it does not.

    Parameters
    ----------
    epsilon : float
        Privacy parameter, above 0; less is more private and more noise.
    sensitivity : float, default=1.0
        Largest L1 distance, summed over all features, by which one row may differ from another. It is stated, not
        enforced: bound the features (clip them) before, in the units they have here.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check.check_number(self._owner, "epsilon", self.epsilon, above=True)
        check.check_number(self._owner, "sensitivity", self.sensitivity, above=True)

    @classmethod
    def from_scale(cls, scale: float, *, sensitivity: float = 1.0, random_state: int | None = None) -> Self:
        """Make the noise from its scale b (its standard deviation is b times the square root of 2)."""
        check.check_number(cls.__name__, "scale", scale, above=True)
        check.check_number(cls.__name__, "sensitivity", sensitivity, above=True)
        return cls(sensitivity / scale, sensitivity=sensitivity, random_state=random_state)

    @property
    def scale(self) -> float:
        """Scale b of the noise."""
        return self.sensitivity / self.epsilon

    @property
    def guarantee(self) -> str:
        """What the noise guarantees, in words."""
        return (
            f"Each released feature row is {self.epsilon:g}-differentially private with respect to replacing that row "
            f"by one at an L1 distance of at most {self.sensitivity:g} (over all features together), for one release; "
            f"r releases of the same rows cost r * {self.epsilon:g}. Not covered: the labels, which are released as "
            "they are; the number of rows; rows that differ by more than the stated sensitivity, which is not "
            "enforced; several rows of one person; scaling computed from the rows; attacks on floating-point rounding."
        )

    @property
    def parameters(self) -> dict[str, Any]:
        """Name and parameters, with the scale they make."""
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check.check_count(self._owner, "decimals", self.decimals, at_least=-300, at_most=300)

    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        return np.round(rows, self.decimals)


@dataclass(frozen=True)
class Quantize(FeaturePerturbation):
    """Move every feature to the nearest multiple of a step, or to the middle of one of a few bins. Nothing is random.

    Parameters
    ----------
    step : float, optional
        Distance between the values that remain, above 0.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one(self._owner, step=self.step, bins=self.bins)
        if self.step is not None:
            check.check_number(self._owner, "step", self.step, above=True)
        else:
            check.check_count(self._owner, "bins", self.bins)

    def _change(self, rows: Floats, columns: list[str] | None, rng: np.random.Generator) -> Floats:
        if self.step is not None:
            return np.round(rows / self.step) * self.step
        bins = cast(int, self.bins)
        low, high = rows.min(axis=0), rows.max(axis=0)
        width = np.where(high > low, (high - low) / bins, 1.0)
        number = np.minimum(np.floor((rows - low) / width), bins - 1)
        return np.where(high > low, low + (number + 0.5) * width, rows)


@dataclass(frozen=True)
class MaskFeatures(FeaturePerturbation):
    """Replace entries, or whole features, by a fill value.

    Parameters
    ----------
    fraction : float
        Between 0 and 1: probability of each entry, or share of the features.
    fill : {"mean", "zero"} or float, default="mean"
        What to put there; "mean" is the column's mean over the validation set as it comes in.
    by : {"entry", "feature"}, default="entry"
        Hide each entry independently, or the same features (a random choice) of all rows.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check.check_number(self._owner, "fraction", self.fraction, most=1.0)
        check.check_choice(self._owner, "by", self.by, ("entry", "feature"))
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
