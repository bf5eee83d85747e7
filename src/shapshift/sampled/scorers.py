"""Scores of a whole validation set as the worth of a coalition: scorers of scikit-learn and similar functions."""

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.metrics import get_scorer, get_scorer_names

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError

#: Utilities of single validation points.
UTILITIES = ("auto", "correct", "probability", "neg_log_loss", "squared_error")
ANSWERS = ("predict", "predict_proba", "decision_function")


def check_utility(caller: str, utility: Any) -> None:
    """Refuse anything but a utility, a function, or the name of a scorer."""
    if not callable(utility) and utility not in (*UTILITIES, *get_scorer_names()):
        offered = "the name of a scikit-learn scorer such as 'f1_macro', or a function (model, X_val, y_val)"
        check.check_choice(caller, "utility", utility, UTILITIES, offered)


def name_of(utility: Any) -> str:
    """Name of a utility; for a function, its module and qualified name."""
    if isinstance(utility, str):
        return utility
    if hasattr(utility, "_score_func"):  # the repr of a scikit-learn scorer has its parameters
        return repr(utility)
    utility = utility.func if isinstance(utility, functools.partial) else utility
    return f"{utility.__module__}.{getattr(utility, '__qualname__', type(utility).__qualname__)}"


def needs_known_labels(utility: Any) -> bool:
    """Whether a utility is a scorer that assumes one column of probabilities per label of the points, in order."""
    scorer = get_scorer(utility) if isinstance(utility, str) and utility not in UTILITIES else utility
    return bool(getattr(scorer, "_response_method", "predict") != "predict")


class FittedModel(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """A model fitted on a coalition, as utility functions see it: it knows all classes of the training rows.

    ``predict_proba`` has a column for each of them, 0 for classes missing from the coalition; if any is missing there
    is no ``decision_function``. Everything else is that of the fitted model. Each table is predicted once; parts of it,
    see :meth:`part`, are looked up.

    Parameters
    ----------
    fitted : object
        A fitted estimator, or a constant model.
    classes : ndarray or None
        Classes of the training rows; None for regression.

    Attributes
    ----------
    failure : Exception or None
        Error of the model in a prediction; any other error belongs to the utility function.
    """

    def __init__(self, fitted: Any, classes: npt.NDArray[Any] | None) -> None:
        self.fitted = fitted
        self.failure: Exception | None = None
        self._known: dict[str, tuple[Any, npt.NDArray[Any]]] = {}
        self._part: tuple[Any, Any, npt.NDArray[np.bool_]] | None = None
        self._columns = None
        if classes is not None:
            own = np.asarray(getattr(fitted, "classes_", classes)).tolist()
            place = {label: number for number, label in enumerate(classes.tolist())}
            self.classes_ = classes
            if own != classes.tolist() and all(label in place for label in own):
                self._columns = [place[label] for label in own]

    def part(self, table: Any, points: Any, inside: npt.NDArray[np.bool_]) -> Any:
        """Return ``table`` after noting that it holds the rows ``inside`` of ``points``."""
        self._part = (table, points, inside)
        return table

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("fitted", "classes_"):
            raise AttributeError(name)
        if name == "decision_function" and self._columns is not None:
            raise AttributeError("without all classes, its decision function cannot be compared with others")
        found = getattr(self.fitted, name)
        if name not in ANSWERS:
            return found

        def answer(X: Any) -> npt.NDArray[Any]:
            return self._answer(name, X)

        answer.__name__ = name  # read by scorers
        return answer

    def _answer(self, name: str, table: Any) -> npt.NDArray[Any]:
        if self._part is not None and table is self._part[0]:
            return self._answer(name, self._part[1])[self._part[2]]
        if name not in self._known or self._known[name][0] is not table:
            try:
                found = np.asarray(getattr(self.fitted, name)(table))
                if found.dtype.kind == "f" and not np.isfinite(found).all():
                    raise InputError(f"{name} gives NaN or infinity")
            except Exception as error:
                self.failure = error
                raise
            if name == "predict_proba" and self._columns is not None:
                narrow, found = found, np.zeros((found.shape[0], self.classes_.size))
                found[:, self._columns] = narrow
            self._known[name] = (table, found)
        return self._known[name][1].copy()  # callers may modify it

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.estimator_type = "classifier" if hasattr(self, "classes_") else "regressor"
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return True


def jackknife(
    score: Callable[[npt.NDArray[np.bool_]], float],
    whole: float,
    inside: npt.NDArray[np.bool_],
    block_of: npt.NDArray[np.int64],
) -> dict[int, float]:
    """Pseudo-values of the blocks of some points, whose variance estimates that of a score over the points.

    With h the number of points over that of a block, the pseudo-value of a block is h times the score of all points
    minus h - 1 times the score without the block (Busing et al. 1999). For a score that is a mean over points, this is
    the mean over the block.

    Parameters
    ----------
    score : callable
        Score of the points where an array is true.
    whole : float
        Score of the points ``inside``.
    inside : ndarray of bool
    block_of : ndarray of int

    Returns
    -------
    dict of int to float

    Examples
    --------
    >>> x = np.array([1.0, 3.0, 5.0])
    >>> jackknife(lambda part: float(x[part].mean()), 3.0, np.ones(3, dtype=bool), np.array([0, 0, 1]))
    {0: 2.0, 1: 5.0}
    """
    blocks, sizes = np.unique(block_of[inside], return_counts=True)
    if blocks.size == 1:
        return {int(blocks[0]): whole}
    times = dict(zip(blocks.tolist(), (sizes.sum() / sizes).tolist(), strict=True))
    return {block: h * whole - (h - 1) * score(inside & (block_of != block)) for block, h in times.items()}
