"""The game: the utility of a coalition of players for any model, on validation points or cells of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import clone, is_regressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import get_scorer
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from shapshift._arrays import take_rows
from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.warnings import collected_warnings
from shapshift.engine.boundary import level_edges, nearest_level
from shapshift.engine.estimate import error_fields, joined_error, random_blocks, spread_of_blocks, with_points
from shapshift.exceptions import InputError
from shapshift.sampled.scorers import UTILITIES, FittedModel, jackknife, name_of
from shapshift.valuation import Valuation, is_boundary

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

#: Models available by name.
NAMED: Mapping[str, Callable[[], Any]] = {
    "logistic": lambda: make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)),
    "naive_bayes": GaussianNB,
    "tree": lambda: DecisionTreeClassifier(max_depth=5),
    "forest": lambda: RandomForestClassifier(20),
    "svm": lambda: make_pipeline(StandardScaler(), SVC()),
    "knn": lambda: KNeighborsClassifier(5),
    "linear": LinearRegression,
    "tree_regression": lambda: DecisionTreeRegressor(max_depth=5),
    "forest_regression": lambda: RandomForestRegressor(20),
}


def named(caller: str, estimator: Any) -> Any:
    """Return the model of that name; anything else is returned unchanged."""
    if not isinstance(estimator, str):
        return estimator
    check.check_choice(caller, "estimator", estimator, tuple(NAMED), "an object with fit(X, y) and predict(X)")
    return NAMED[estimator]()


def check_estimator(caller: str, estimator: Any) -> None:
    """Refuse objects without fit or predict."""
    missing = [name for name in ("fit", "predict") if not callable(getattr(estimator, name, None))]
    if missing or isinstance(estimator, type):
        got = f"the class {estimator.__name__}; pass {estimator.__name__}()" if isinstance(estimator, type) else None
        raise InputError(
            f"The 'estimator' parameter of {caller} must be an object with fit(X, y) and predict(X), such as "
            f"LogisticRegression(). Got {got or type(estimator).__name__} instead."
        )


def predicts_numbers(estimator: Any, utility: Any) -> bool:
    """Whether the task is regression: by the utility, else by the type of the estimator."""
    if isinstance(utility, str) and utility in UTILITIES[1:]:
        return utility == "squared_error"
    if not hasattr(estimator, "__sklearn_tags__"):
        return bool(getattr(estimator, "_estimator_type", None) == "regressor")
    return bool(is_regressor(estimator))


def check_warm_start(caller: str, estimator: Any) -> None:
    """Refuse models that cannot start from an earlier fit on other rows."""
    parameters = estimator.get_params() if hasattr(estimator, "get_params") else {}
    if "warm_start" not in parameters:
        raise InputError(
            f"The 'warm_start' parameter of {caller} needs an estimator with a parameter of that name, and "
            f"{type(estimator).__name__} has none. Use warm_start=False."
        )
    if "n_estimators" in parameters or "max_iter" not in parameters:
        raise InputError(
            f"The 'warm_start' parameter of {caller} does not go with {type(estimator).__name__}: its own warm start "
            "adds members to a model fitted on other rows instead of fitting anew. Use warm_start=False."
        )


def with_seeds(estimator: Any, seed: int) -> Any:
    """Give every ``random_state`` that is None the same seed, so that a coalition has one worth; keep the others."""
    if not hasattr(estimator, "get_params"):
        return estimator
    number = int(np.random.SeedSequence(seed).generate_state(1)[0] >> 1)  # scikit-learn takes 31 bits
    open_seeds = {
        name: number
        for name, value in estimator.get_params(deep=True).items()
        if (name == "random_state" or name.endswith("__random_state")) and value is None
    }
    return estimator.set_params(**open_seeds) if open_seeds else estimator


def describe(estimator: Any) -> str:
    """Class and all parameters of an estimator, as text."""
    # Without get_params, the attributes describe the estimator: only clones are fitted, so it never changes.
    has_own = hasattr(estimator, "get_params")
    own = estimator.get_params(deep=False) if has_own else getattr(estimator, "__dict__", {})
    written = ", ".join(f"{name}={_as_text(value)}" for name, value in sorted(own.items()))
    return f"{type(estimator).__name__}({written})"


def _as_text(value: Any) -> str:
    if hasattr(value, "get_params") and not isinstance(value, type):
        return describe(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_as_text(part) for part in value)}]"
    if callable(value):
        return str(getattr(value, "__qualname__", type(value).__name__))
    return repr(value)


# Smallest probability in logarithms, as in scikit-learn's log_loss.
LEAST_PROBABILITY = float(np.finfo(np.float64).eps)


class UtilityError(InputError):
    """A utility that cannot be computed, for any coalition."""


@dataclass(frozen=True)
class Answers:
    """Utilities of some coalitions, the number of fitted models, and the warnings of these fits."""

    utilities: Floats
    fits: int
    warned: int
    warning: str


@dataclass(frozen=True)
class Game:
    """A model, training rows that belong to players, and points to predict.

    Attributes
    ----------
    estimator : object
        Unfitted; every coalition gets a copy.
    rows, labels : array or frame, ndarray
        Training rows as passed to models, and their labels or targets.
    player_of : ndarray of shape (n_train,)
        Player number of each row.
    points, targets : array or frame, ndarray
        Points to predict and their labels or targets.
    classes : ndarray or None
        Labels seen in training; None for regression.
    codes, target_codes : ndarray
        Class numbers of rows and of points, -1 for a label never seen in training.
    utility : str or callable
        Worth of a fitted model on each point, or its score on all of them.
    cells : ndarray or csr_array of shape (n_points, n_cells)
        Contribution of each point to each cell.
    blocks : int
        Number of cells that are blocks of validation points; these are the last cells.
    reduction : {"mean", "classwise", "own"}
        "mean" and "own" return the cells; "classwise" returns them once for each class, see :class:`ClassWise`.
    on_error : {"raise", "constant"}
        What to do if the model cannot be fitted.
    warm_start : bool
        Whether each fit starts from the one before.
    layout : Cells or None
        Meaning of the cells, for scores of all points; None if scores are not supported.
    """

    estimator: Any
    rows: Any
    labels: npt.NDArray[Any]
    player_of: npt.NDArray[np.int64]
    points: Any
    targets: npt.NDArray[Any]
    classes: npt.NDArray[Any] | None
    codes: npt.NDArray[np.int32]
    target_codes: npt.NDArray[np.int32]
    utility: str | Callable[[Any, Any, Any], Any]
    cells: Any
    reduction: str = "mean"
    on_error: str = "raise"
    warm_start: bool = False
    blocks: int = 0
    layout: "Cells | None" = None

    @property
    def n_players(self) -> int:
        """Number of players."""
        return int(self.player_of.max()) + 1

    def evaluate(self, coalitions: npt.NDArray[Any]) -> Answers:
        """Fit and score one model per coalition; the same coalition always has the same answer."""
        found, fits, messages = [], 0, []
        points, model = self.points, None
        for coalition in coalitions:
            rows = np.repeat(np.arange(self.player_of.size), coalition[self.player_of])
            with collected_warnings() as heard:
                constant = self._constant(rows)
                if constant is None:
                    fits += 1
                    model, worth = self._judged(rows, model, points)
                else:
                    worth = self._in_cells(constant, points)
                found.append(worth)
            messages += heard[:1]
        return Answers(np.array(found), fits, len(messages), messages[0] if messages else "")

    def _constant(self, rows: npt.NDArray[np.int64]) -> "Constant | None":
        """Return the model for no rows or rows of one class, which many estimators refuse."""
        if self.classes is None:
            return Constant(None, np.array([self.labels.mean()])) if rows.size == 0 else None
        if rows.size == 0:
            shares = np.bincount(self.codes, minlength=self.classes.size)
            return Constant(self.classes, shares / shares.sum(), guess=True)
        if (self.codes[rows] == self.codes[rows[0]]).all():
            return self._majority(rows)
        return None

    def _majority(self, rows: npt.NDArray[np.int64]) -> "Constant":
        if self.classes is None:
            return Constant(None, np.array([self.labels[rows].mean()]))
        counts = np.bincount(self.codes[rows], minlength=self.classes.size)
        return Constant(self.classes, (np.arange(self.classes.size) == counts.argmax()).astype(np.float64))

    def _judged(self, rows: npt.NDArray[np.int64], last: Any, points: Any) -> tuple[Any, Floats]:
        """Return a model fitted on rows and its worth in each cell; some models fail only in predict."""
        labels = self.labels[rows]
        model = last if self.warm_start and _can_warm_start(last, labels) else clone(self.estimator, safe=False)
        try:
            model.fit(take_rows(self.rows, rows), labels)
            worth = self._in_cells(model, points)
        except UtilityError:
            raise  # independent of the coalition
        except Exception as error:
            if self.on_error == "constant":
                return None, self._in_cells(self._majority(rows), points)
            raise InputError(
                f"{type(self.estimator).__name__} cannot be used on a coalition of {rows.size} of the "
                f"{self.player_of.size} training rows ({type(error).__name__}: {error}). Pass on_error='constant' to "
                "give such coalitions the worth of their majority class or mean, or choose other parameters of the "
                "estimator."
            ) from error
        return model, worth

    def _in_cells(self, model: Any, points: Any) -> Floats:
        """Worth of a fitted model in each cell."""
        if isinstance(self.utility, str) and self.utility in UTILITIES:
            worth = self._worth(model, points)
        else:
            model = FittedModel(model, self.classes)
            worth = self._asked(model, points, self.targets)
            if worth.ndim == 0:
                return self._scored(model, points, float(worth))
            if worth.shape != self.targets.shape:
                raise UtilityError(
                    "The 'utility' function of SampledShapley must return one number per point, "
                    f"{self.targets.size}, or one number in all. Got shape {worth.shape} instead."
                )
            if not np.isfinite(worth).all():
                raise UtilityError("The 'utility' of SampledShapley must be finite. Some of it is NaN or infinite.")
        if not np.isfinite(worth).all():
            raise InputError("The 'utility' of SampledShapley must be finite. Some of it is NaN or infinite.")
        return self._reduced(worth)

    def _asked(self, model: FittedModel, table: Any, targets: npt.NDArray[Any]) -> Floats:
        """Return the result of a function or scorer on a model; separate its errors from the model's."""
        try:
            return np.asarray(self._score(model, table, targets), dtype=np.float64)
        except Exception as error:
            if model.failure is not None:
                raise model.failure from None
            classes = "" if self.classes is None else f" of {len(np.unique(targets))} classes"
            raise UtilityError(
                f"The 'utility' parameter of SampledShapley is {name_of(self.utility)}, which cannot be used with "
                f"{type(self.estimator).__name__} on {targets.size} validation points{classes} "
                f"({type(error).__name__}: {error}). Scores must be defined for a model of no rows, on every group and "
                "without any one block of points. Choose another one, or a utility of single points such as 'correct'."
            ) from error

    @cached_property
    def _score(self) -> Callable[[Any, Any, Any], Any]:
        found: Callable[[Any, Any, Any], Any] = (
            get_scorer(self.utility) if isinstance(self.utility, str) else self.utility
        )
        return found

    def _scored(self, model: FittedModel, points: Any, whole: float) -> Floats:
        """Return the cells of a score of all points."""
        if self.layout is None:
            raise UtilityError(
                "The 'utility' of SampledShapley is a score of the whole validation set, but matrix=True, "
                "sampler='classwise' and sampler='oob' need the worth of single points. Use a utility of single "
                "points, such as 'correct' or 'neg_log_loss'."
            )

        def score(inside: npt.NDArray[np.bool_]) -> float:
            found = whole
            if not inside.all():
                table = model.part(take_rows(self.points, np.flatnonzero(inside)), points, inside)
                found = float(self._asked(model, table, self.targets[inside]))
            if not np.isfinite(found):
                raise UtilityError(
                    f"The 'utility' of SampledShapley gives {found} on {np.count_nonzero(inside)} of the "
                    f"{inside.size} validation points. A score must be defined on every group and without any block "
                    "of a twentieth of the points: add points of rare classes, or choose another score."
                )
            return found

        return self.layout.scored(score)

    def _worth(self, model: Any, points: Any) -> Floats:
        """Worth of a fitted model on each point."""
        worth: Floats
        if self.utility == "squared_error":
            worth = -((np.asarray(model.predict(points), dtype=np.float64).ravel() - self.targets) ** 2)
        elif isinstance(model, Constant):
            worth = model.chances(self.target_codes)
        elif self.utility in ("probability", "neg_log_loss"):
            worth = self._true_probability(model, points)
        else:
            worth = (self._numbers(model.predict(points)) == self.target_codes).astype(np.float64)
        if self.utility == "neg_log_loss":
            worth = np.log(np.maximum(worth, LEAST_PROBABILITY))
        return worth

    def _true_probability(self, model: Any, points: Any) -> Floats:
        chances = np.asarray(model.predict_proba(points), dtype=np.float64)
        column = np.full(len(self.classes if self.classes is not None else ()) + 1, -1)  # the last: never seen
        column[self._numbers(np.asarray(model.classes_))] = np.arange(chances.shape[1])
        chosen = column[self.target_codes]
        return np.where(chosen >= 0, chances[np.arange(chosen.size), chosen], 0.0)

    def _numbers(self, labels: Any) -> npt.NDArray[np.int64]:
        """Class numbers of predicted labels."""
        classes = [] if self.classes is None else self.classes.tolist()
        known = {label: number for number, label in enumerate(classes)}
        distinct, inverse = np.unique(np.asarray(labels).ravel(), return_inverse=True)
        return np.array([known.get(label, -2) for label in distinct.tolist()], dtype=np.int64)[inverse]

    def _reduced(self, worth: Floats) -> Floats:
        if self.reduction != "classwise" or self.classes is None:
            return self._sums(worth)
        parts = []
        for number in range(self.classes.size):
            own = self.target_codes == number
            parts.append(self._sums(worth * own) * np.exp((worth * ~own).sum() / worth.size))
        return np.concatenate(parts)

    def _sums(self, worth: Floats) -> Floats:
        return np.concatenate([np.asarray(worth @ part, dtype=np.float64) for part in self._cells_and_blocks])

    @cached_property
    def _cells_and_blocks(self) -> list[Any]:
        """Blocks and the other cells, separately: the number of blocks must not change a bit of the values."""
        if not self.blocks:
            return [self.cells]
        return [np.ascontiguousarray(part) for part in np.split(self.cells, [-self.blocks], axis=1)]


class Constant:
    """A model without a fit, with the same answer for all points.

    Parameters
    ----------
    classes : ndarray or None
        None for regression.
    shares : ndarray
        Probability of each class; in regression, the one predicted number.
    guess : bool
        Whether all classes get the same probability; the predicted label is still the most frequent one.
    """

    def __init__(self, classes: npt.NDArray[Any] | None, shares: Floats, *, guess: bool = False) -> None:
        self.classes_, self.shares, self.guess = classes, shares, guess

    def predict(self, points: Any) -> npt.NDArray[Any]:
        """Return the same label or number for every point."""
        answer = self.shares if self.classes_ is None else self.classes_[[int(self.shares.argmax())]]
        return np.repeat(answer, points.shape[0])

    def predict_proba(self, points: Any) -> Floats:
        """Return the same probabilities for every point."""
        return np.tile(self._probabilities(), (points.shape[0], 1))

    def chances(self, target_codes: npt.NDArray[np.int32]) -> Floats:
        """Probability of each point's label; 0 for labels never seen in training."""
        return np.append(self._probabilities(), 0.0)[target_codes]

    def _probabilities(self) -> Floats:
        return np.full(self.shares.size, 1 / self.shares.size) if self.guess else self.shares


def _can_warm_start(model: Any, labels: npt.NDArray[Any]) -> bool:
    """Whether a fitted model can start another fit: it must have seen the same classes."""
    if model is None:
        return False
    classes = getattr(model, "classes_", None)
    return classes is None or np.array_equal(np.asarray(classes), np.unique(labels))


# Largest number of block cells; with more, groups have no errors of their own.
BLOCK_CELLS = 256


@dataclass(frozen=True, eq=False)
class Cells:
    """How utilities of single points are summed per cell, and how the sums become means.

    Attributes
    ----------
    entropy : ndarray of shape (n_val,)
    threshold : float
        Entropy above which a point is a boundary point.
    level_of, group_of : ndarray of shape (n_val,)
    level_entropy : ndarray
        The levels that occur.
    group_names : tuple
    single : bool
        Whether every point is a cell; otherwise every level, group and block is one.
    block_of : ndarray of shape (n_val,)
        Random block of each point; points of a cluster share a block.
    units : int
        Points, or clusters of them.
    """

    entropy: Floats
    threshold: float
    level_of: Integers
    level_entropy: Floats
    group_of: Integers
    group_names: tuple[Any, ...]
    single: bool
    block_of: Integers
    units: int

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return int(self.block_of.max()) + 1

    @property
    def n_parts(self) -> int:
        """Cells of a block: one for each group, or one if there would be too many."""
        n_groups = len(self.group_names)
        return n_groups if 0 < n_groups * self.n_blocks <= BLOCK_CELLS else 1

    @property
    def n_last(self) -> int:
        """Number of cells that are blocks or parts of them, the last ones; 0 if every point is a cell."""
        return 0 if self.single else self.n_blocks * self.n_parts

    @cached_property
    def members(self) -> Floats:
        """Indicator matrix of points by level, group and part of a block, the columns in this order."""
        part_of = self.block_of * self.n_parts + (self.group_of if self.n_parts > 1 else 0)
        return np.hstack(
            [
                of[:, None] == np.arange(size)
                for of, size in (
                    (self.level_of, self.level_entropy.size),
                    (self.group_of, len(self.group_names)),
                    (part_of, self.n_blocks * self.n_parts),
                )
            ]
        ).astype(np.float64)

    @cached_property
    def reduction(self) -> Floats:
        """``utilities @ reduction`` are the sums over the points of each cell, divided by the number of all points."""
        return (np.eye(self.entropy.size) if self.single else self.members) / self.entropy.size

    @property
    def total(self) -> Floats:
        """1 for the cells that add up to the whole validation set, else 0."""
        n_cells, n_levels = self.reduction.shape[1], self.level_entropy.size
        return np.where(self.single | (np.arange(n_cells) < n_levels), 1.0, 0.0)

    def scored(self, score: Callable[[npt.NDArray[np.bool_]], float]) -> Floats:
        """Return the cells of a score, which is not a mean over points.

        Every level has the score of all points, every group the score of its own points, and blocks have the
        pseudo-values of the jackknife.

        Parameters
        ----------
        score : callable
            Score of the points where an array of shape (n_val,) is true.
        """
        everything = np.ones(self.entropy.size, dtype=bool)
        whole = score(everything)
        members = [self.group_of == number for number in range(len(self.group_names))]
        groups = [score(inside) for inside in members]
        parts = np.zeros((self.n_blocks, self.n_parts))
        of_parts = list(zip(members, groups, strict=True)) if self.n_parts == len(members) else [(everything, whole)]
        for number, (inside, found) in enumerate(of_parts):
            for block, pseudo in jackknife(score, found, inside, self.block_of).items():
                parts[block, number] = pseudo
        scores = np.concatenate([np.full(self.level_entropy.size, whole), groups, parts.ravel()])
        return np.asarray(scores * self.reduction.sum(axis=0))

    def to_valuation(self, sums: Floats, error: Floats, freedom: Floats, *, blocks: bool, **about: Any) -> Valuation:
        """Turn sums per player and cell, as ``reduction`` makes them, into a result.

        Parameters
        ----------
        sums : ndarray of shape (n_players, n_cells)
        error, freedom : ndarray of shape (n_players,)
            Standard errors of estimating the values on exactly these points, and their degrees of freedom.
        blocks : bool
            Whether the values depend on the validation points.
        **about
            All other fields of the Valuation.
        """
        n_val, n_levels, named = self.entropy.size, self.level_entropy.size, -self.n_blocks * self.n_parts
        counts = self.members.sum(axis=0).astype(np.int64)
        means = (sums @ self.members[:, :named] if self.single else sums[:, :named]).T * (n_val / counts[:named])[
            :, None
        ]
        level_values, level_counts = np.ascontiguousarray(means[:n_levels]), counts[:n_levels]
        values, group_means = level_counts @ level_values / n_val, np.ascontiguousarray(means[n_levels:])
        found: dict[str, Any] = {"standard_error": error, "degrees_of_freedom": freedom}
        if blocks:
            by_part = n_val * (sums @ self.members[:, named:] if self.single else sums[:, named:])
            shape = (self.n_blocks, self.n_parts)
            found = self._errors(
                values, group_means, by_part.reshape(-1, *shape), counts[named:].reshape(shape), (error, freedom)
            )
        return Valuation(
            values=values,
            entropy=self.entropy,
            boundary=is_boundary(self.entropy, self.threshold),
            level_entropy=self.level_entropy,
            level_values=level_values,
            level_counts=level_counts,
            group_means=group_means,
            group_names=self.group_names,
            group_sizes=tuple(counts[n_levels:named].tolist()),
            matrix=sums * n_val if self.single else None,
            **found,
            **about,
        )

    def _errors(
        self, values: Floats, group_means: Floats, by_part: Floats, sizes: Integers, estimated: tuple[Floats, Floats]
    ) -> dict[str, Any]:
        """Return the error fields of a Valuation, with the estimation error and the error of the validation set.

        Parameters
        ----------
        values, group_means : ndarray
        by_part : ndarray of shape (n_players, n_blocks, n_parts)
            Sums of the values over the points of each part of a block.
        sizes : ndarray of shape (n_blocks, n_parts)
            Number of points of each.
        estimated : tuple
            Standard errors of estimating, and their degrees of freedom.
        """
        spread = spread_of_blocks(values, by_part.sum(axis=2).T, sizes.sum(axis=1))
        if spread is None:
            return {}
        found = error_fields(spread, self.units, *estimated)
        if self.n_parts == len(self.group_names):
            errors, freedoms = [], []
            for group, means in enumerate(group_means):
                of_group = spread_of_blocks(means, by_part[:, :, group].T, sizes[:, group])
                error, freedom = (
                    (np.full(values.size, np.inf), np.ones(1))
                    if of_group is None
                    else joined_error(*with_points(of_group, *estimated))
                )
                errors.append(error)
                freedoms.append(freedom.min())
            found |= {"group_errors": np.array(errors), "group_freedom": np.array(freedoms)}
        return found


def make_cells(near: Valuation, levels: Floats, groups: Any, clusters: Any, single: bool) -> Cells:
    """Lay out the cells of a validation set.

    Parameters
    ----------
    near : Valuation
        Has the entropy and boundary flag of each point.
    levels : ndarray
        Entropies for which sums are kept, ascending from 0.
    groups, clusters : array-like or None
    single : bool
        Whether every point is a cell of its own.
    """
    n_val, entropy, threshold = near.n_val, near.entropy, near.boundary_entropy
    edges = level_edges(levels, threshold)
    present, level_of = np.unique(nearest_level(entropy, edges), return_inverse=True)
    names, group_of = ([], np.zeros(n_val, dtype=np.int64)) if groups is None else _labels.check_groups(groups, n_val)
    unit_of = np.arange(n_val) if clusters is None else _labels.check_groups(clusters, n_val, "clusters")[1]
    units = int(unit_of.max()) + 1
    block_of = random_blocks(units)[unit_of]
    return Cells(entropy, threshold, level_of, levels[present], group_of, tuple(names), single, block_of, units)


def means_of_own_rows(player_of: Integers, n_players: int) -> sparse.csr_array:
    """Return the contribution of each training row to the mean over its player's rows, of shape (n_train, n_players).

    Examples
    --------
    >>> means_of_own_rows(np.array([0, 1, 1]), 2).toarray()
    array([[1. , 0. ],
           [0. , 0.5],
           [0. , 0.5]])
    """
    shares = 1.0 / np.bincount(player_of, minlength=n_players)[player_of]
    return sparse.csr_array((shares, player_of, np.arange(player_of.size + 1)), shape=(player_of.size, n_players))
