"""Changes to the labels."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, ClassVar, Self, cast

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.exceptions import InputError
from shapshift.perturb.base import Pair, Perturbation, check_one
from shapshift.perturb.containers import count_rows, like_labels


@dataclass(frozen=True)
class FlipLabels(Perturbation):
    """Replace labels by others, each independently with its class's probability.

    Parameters
    ----------
    rate : float, optional
        Probability for every label, between 0 and 1.
    rates : mapping from label to float, optional
        Instead of ``rate``: a probability per label; labels that are not named stay.
    targets : mapping, optional
        What a flipped label becomes: another label, or a mapping from labels to weights. A label that is not named here
        becomes any other class of the validation set (or of the model, see `bind`) with equal probability.
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

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one(self._owner, rate=self.rate, rates=self.rates)
        for name in ("rates", "targets"):
            mapping = getattr(self, name)
            if mapping is not None and not isinstance(mapping, Mapping):
                raise InputError(
                    f"The {name!r} parameter of FlipLabels must map labels, such as {{0: 0.1}}. Got {mapping!r}."
                )
            object.__setattr__(self, name, None if mapping is None else dict(mapping))
        for rate in [self.rate] if self.rates is None else self.rates.values():
            check.check_number(self._owner, "rate" if self.rates is None else "rates", rate, most=1.0)
        for label, target in (self.targets or {}).items():
            weights = target if isinstance(target, Mapping) else {target: 1.0}
            for weight in weights.values():
                check.check_number(self._owner, "targets", weight)
            if label in weights or not sum(weights.values()) > 0:
                raise InputError(
                    f"The 'targets' parameter of FlipLabels must lead {check.quoted(label)} elsewhere. Got "
                    f"{check.quoted(target)}."
                )

    def bind(self, model: Any) -> Self:
        """Let labels become any class that the model was fitted on."""
        return self._with(_classes=tuple(np.asarray(getattr(model, "classes_", ())).tolist()))

    def apply(self, X_val: Any, y_val: Any, rng: np.random.Generator) -> Pair:
        """Flip labels; the features pass through."""
        labels = _labels.check_labels(y_val, "y_val", count_rows(X_val), "X_val")
        present = _labels.encode_labels(labels)[0].tolist()
        classes = list(dict.fromkeys([*present, *self._classes]))
        unknown = [label for label in (*(self.rates or ()), *(self.targets or ())) if label not in classes]
        if unknown:
            raise InputError(
                f"FlipLabels names the label {check.quoted(unknown[0])}, which does not occur. There are: "
                f"{check.some(classes)}."
            )
        # Drawn for all rows at once, so that one class's rate does not change what happens to another.
        draws, choices = rng.random(labels.size), rng.random(labels.size)
        flipped = labels.tolist()
        for label in present:
            rate = self.rate if self.rates is None else self.rates.get(label, 0.0)
            where = np.flatnonzero(_equal(labels, label) & (draws < cast(float, rate)))
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
                f"FlipLabels has nothing to turn {check.quoted(label)} into: it is the only label. Call "
                ".bind(model) or give "
                "'targets'."
            )
        return others, [1.0] * len(others)


def _equal(labels: npt.NDArray[Any], label: Any) -> npt.NDArray[np.bool_]:
    return np.fromiter((entry == label for entry in labels.tolist()), bool, labels.size)
