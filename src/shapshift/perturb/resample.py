"""Other choices among the points: fewer of them, or in other proportions."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.exceptions import InputError
from shapshift.perturb.base import Pair, Perturbation, check_one
from shapshift.perturb.containers import count_points, count_rows, take_rows
from shapshift.valuation import check_returned

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Subsample(Perturbation):
    """Keep a random part of the validation set, without repeats and in its order.

    Parameters
    ----------
    fraction : float, optional
        Share of the points to keep, above 0 and at most 1; at least one point stays.
    n : int, optional
        Instead of ``fraction``: how many points to keep.
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
    pointwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one(self._owner, fraction=self.fraction, n=self.n)
        if self.fraction is not None:
            check.check_number(self._owner, "fraction", self.fraction, above=True, most=1.0)
        else:
            check.check_count(self._owner, "n", self.n)

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Keep some points."""
        total = count_points(X_val, y_val)
        count = self.n if self.fraction is None else max(1, round(self.fraction * total))
        if cast(int, count) > total:
            raise InputError(
                f"The 'n' parameter of Subsample must be at most the {total} points there are. Got {self.n}."
            )
        rows = np.sort(rng.permutation(total)[:count])
        return take_rows(X_val, rows), take_rows(y_val, rows)


@dataclass(frozen=True)
class ShiftPriors(Perturbation):
    """Resample the validation set to given class shares.

    Points of a class are repeated only when it has too few, and then as evenly as possible; otherwise a random part of
    them is kept. Counts are rounded so that they sum to the size; the order stays.

    Parameters
    ----------
    shares : mapping from label to float
        Share of each class. Classes that are not named divide what is left in their present proportions; if all are
        named, the shares must sum to 1.
    n : int, optional
        Size of the result; by default as before.
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
    pointwise: ClassVar[bool] = False

    def __post_init__(self) -> None:
        super().__post_init__()
        given: object = self.shares
        if not isinstance(given, Mapping) or not given:
            raise InputError(
                f"The 'shares' parameter of ShiftPriors must map labels to shares, such as {{0: 0.3}}. Got "
                f"{check.quoted(given)}."
            )
        object.__setattr__(self, "shares", dict(self.shares))
        for share in self.shares.values():
            check.check_number(self._owner, "shares", share, most=1.0)
        if sum(self.shares.values()) > 1 + 1e-9:
            raise InputError(
                f"The 'shares' parameter of ShiftPriors must sum to at most 1. Got {check.quoted(self.shares)}."
            )
        if self.n is not None:
            check.check_count(self._owner, "n", self.n)

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Resample the points."""
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
        rows = _resample(groups, largest_remainders(shares, self.n or labels.size), rng)
        return take_rows(X_val, rows), take_rows(y_val, rows)


@dataclass(frozen=True)
class BoundaryCoverage(Perturbation):
    """Resample the validation set to a given share of boundary points; needs `bind`.

    Boundary points are those whose five nearest training rows disagree (``model.value(X_val, y_val).boundary``, on the
    points as they come in). Points of a group are repeated only when it has too few, and then as evenly as possible;
    the order stays. If the share asks for a group of which there is no point at all, that is a ValueError: nothing can
    be resampled from an empty group.

    Parameters
    ----------
    fraction : float
        Share of boundary points, between 0 and 1.
    n : int, optional
        Size of the result; by default as before.
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
    pointwise: ClassVar[bool] = False
    _model: ClassVar[Any] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        check.check_number(self._owner, "fraction", self.fraction, most=1.0)
        if self.n is not None:
            check.check_count(self._owner, "n", self.n)

    def bind(self, model: Any) -> Self:
        """Take the model whose neighbours define the boundary points."""
        return self._with(_model=model)

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Resample the points."""
        if self._model is None:
            raise InputError("BoundaryCoverage needs the model: call .bind(model) first.")
        boundary = check_returned("BoundaryCoverage.bind", self._model, self._model.value(X_val, y_val)).boundary
        groups = [np.flatnonzero(boundary), np.flatnonzero(~boundary)]
        counts = largest_remainders(np.array([self.fraction, 1 - self.fraction]), self.n or boundary.size)
        for rows, count, kind in zip(groups, counts, ("boundary", "non-boundary"), strict=True):
            if count and not rows.size:
                raise InputError(
                    f"BoundaryCoverage({self.fraction:g}) needs {count} {kind} points, but none of the {boundary.size} "
                    f"validation points is one. Ask for fraction={float(kind != 'boundary'):g}, or use other points."
                )
        chosen = _resample(groups, counts, rng)
        return take_rows(X_val, chosen), take_rows(y_val, chosen)


def largest_remainders(shares: Floats, total: int) -> Ints:
    """Whole numbers in the given proportions that sum to ``total``: the largest remainders are rounded up."""
    exact = np.round(shares / shares.sum() * total, 9)
    counts: Ints = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def _resample(groups: Sequence[Ints], counts: Ints, rng: np.random.Generator) -> Ints:
    """``counts[g]`` rows of each group, every row equally often up to one; ascending."""
    chosen = []
    for rows, count in zip(groups, counts.tolist(), strict=True):
        if count:
            whole, rest = divmod(count, rows.size)
            chosen += [np.repeat(rows, whole), rng.permutation(rows)[:rest]]
    return np.sort(np.concatenate(chosen))
