"""SampledShapley: values of training rows or owners for any model, by sampling."""

import hashlib
import os
from collections.abc import Callable, Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils.validation import check_is_fitted

from shapshift.checks import inputs as check
from shapshift.checks import labels as _labels
from shapshift.checks.identity import UndescribedError, content_hash
from shapshift.checks.labels import check_owners
from shapshift.checks.warnings import collected_warnings
from shapshift.engine.boundary import BOUNDARY_NEIGHBORS
from shapshift.engine.coefficients import Banzhaf, Beta, Semivalue
from shapshift.exceptions import InputError
from shapshift.knn.regression import KNNRegressionShapley
from shapshift.knn.shapley import KNNShapley
from shapshift.sampled._loop import SamplingPlan, run_sampler
from shapshift.sampled.game import (
    Cells,
    Game,
    check_estimator,
    check_warm_start,
    describe,
    make_cells,
    means_of_own_rows,
    named,
    predicts_numbers,
    with_seeds,
)
from shapshift.sampled.rows import read_columns, read_rows
from shapshift.sampled.samplers import Distributional, Sampler, choose_sampler, size_chances
from shapshift.sampled.scorers import UTILITIES, check_utility, name_of, needs_known_labels
from shapshift.valuation import Valuation

SEMIVALUES = ("shapley", "banzhaf", "loo")


class SampledShapley(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    r"""Value of every training row, or owner, for any model, estimated from models fitted on coalitions.

    ``fit`` checks and keeps the training rows. ``value`` takes a validation set, fits the model on many coalitions of
    rows and returns the contribution of each row (or owner) to predicting the validation set, with a standard error.

    Parameters
    ----------
    estimator : estimator or str
        A classifier or regressor of scikit-learn, any object with ``fit(X, y)`` and ``predict(X)``, or the name of a
        common model: "logistic", "naive_bayes", "tree", "forest", "svm", "knn", and for regression "linear",
        "tree_regression", "forest_regression". It is copied for every coalition. If its ``random_state`` is None, all
        copies get the same seed, so that a coalition has one worth.
    semivalue : {"shapley", "banzhaf", "loo"}, Beta, Banzhaf or Distributional, default="shapley"
        Weights of the coalitions. "loo" is leave-one-out.
    sampler : str or Sampler, default="auto"
        How coalitions are drawn: a name, or an object of :mod:`shapshift.sampled`:

        - "permutation", "truncated", "antithetic", "stratified": players join in random orders. All semivalues but
          "loo".
        - "complementary", "group_testing": Shapley values only.
        - "msr": maximum sample reuse, Banzhaf values only.
        - "learned": a regressor learns the worth of coalitions. All semivalues but "loo".
        - "loo": one fit per player; "exact": all coalitions, for up to 16 players. Both without error.
        - "classwise": CS-Shapley. The class-wise utility replaces the mean over validation points.
        - "oob": Data-OOB, bootstrap models scored on the rows they have not seen. The validation set is not used.

        "auto" enumerates all coalitions if ``max_fits`` allows it, and otherwise uses "msr" for Banzhaf, "loo" for
        leave-one-out and "permutation" for the rest.
    utility : {"auto", "correct", "probability", "neg_log_loss", "squared_error"}, str or callable, default="auto"
        Worth of a fitted model on each validation point: whether its label is predicted; the predicted probability of
        its label; the logarithm of that; minus the squared error. "auto" is "correct" for classifiers and
        "squared_error" for regressors. A function ``(model, X_val, y_val) -> array of shape (n_val,)`` is accepted too.
        Any other scorer of scikit-learn, by name ("f1_macro", "roc_auc", "r2") or as an object, and a function that
        returns one number, is a score of the whole validation set, see Notes.
    max_fits : int, default=10000
        Budget of model fits. It is never exceeded.
    tol : float, default=None
        Stop when no estimation error exceeds this many standard deviations of the values (their spread without the part
        added by sampling). The error of the validation set is excluded, since more fits do not reduce it. If
        ``max_fits`` is spent first, a warning says so. None spends the whole budget.
    on_error : {"raise", "constant"}, default="raise"
        What to do if the estimator cannot be fitted on a coalition: raise an error that names its size, or use the
        worth of a constant model, the majority class or the mean of its rows. Empty coalitions and rows of one class
        are never passed to the estimator, see Notes. Errors of the utility are always raised.
    warm_start : bool, default=False
        Start each fit from the previous one if the coalitions of a request follow each other (an order of players). The
        estimator must have a parameter of that name. Coalitions are then not looked up in the cache. A solver that
        accepts the previous solution gives the next row no value: use a smaller tolerance in the estimator.
    boundary_neighbors, boundary_entropy
        As in :class:`shapshift.KNNShapley`; regression has no entropy, see :class:`shapshift.KNNRegressionShapley`.
    cache : int or str, default="64MB"
        Memory for utilities of coalitions that may recur, in bytes or such as "64MB"; 0 keeps none. It never changes a
        value.
    checkpoint : path-like, default=None
        A file that a run writes about once a second (less often if writing is slow: it takes at most a twentieth of the
        time), at its end and on interruption. A run with the same data and parameters resumes from it, also with a
        larger ``max_fits`` or a smaller ``tol``; any other run is refused. Functions and objects are compared by their
        source file, closures and attributes. A killed process loses the fits since the last write and those in
        progress; with ``warm_start``, the unfinished wave of about 256 fits.
    random_state : int or None, default=0
        Seed. None draws one, which the result reports.
    n_jobs : int, default=None
        Number of workers, in the backend that ``joblib.parallel_config`` is set to (processes by default). It never
        changes a value.
    progress : bool, default=None
        Show a progress bar with fits per second and time left; None shows it in terminals and notebooks only.

    Attributes
    ----------
    players_ : tuple
        Names of the players: owners, or the ids of the rows.
    classes_ : ndarray
        Labels seen in training; not set for regression.
    n_features_in_ : int
        Number of features.
    ids_ : ndarray
        Ids in the order of the values: of rows, or names of owners.
    fingerprint_ : str
        Hash of the training rows, labels and players.

    Notes
    -----
    The worth of no rows is that of a guess: 1/C for each validation point with C classes, minus the squared distance to
    the training mean in regression. Rows of one class are worth the constant prediction of that class.

    *Scores.* A score is not a mean over validation points. All entropy levels then have the values of the whole set, a
    group has those of the score of its own points, and the error of the validation set comes from leaving out each of
    20 blocks of points (jackknife): a score must be defined without any one of them. There is no ``matrix``;
    "classwise" and "oob" take utilities of single points only. Functions and scorers see a model that knows all classes
    of the training rows: ``predict_proba`` has a column for each class, 0 for classes missing from the coalition. No
    rows are scored as a model that predicts the most frequent class and gives all classes the same probability; in
    regression, the training mean. A probability of 0 counts as 2.2e-16 in "neg_log_loss", as in scikit-learn: the first
    row of a class then gains up to 36 nats on each point of the class.

    Utilities are kept per validation point, so that results have groups and entropy levels like those of
    :class:`shapshift.KNNShapley`. Levels come from the nearest training rows in feature space, for regression as in
    :class:`shapshift.KNNRegressionShapley`. Under "classwise", the part of a validation point is the contribution of
    the points of its class through it; under "oob", all points have the same values.

    Standard errors have two parts. The estimation error comes from the spread between independent rounds of the
    sampler. After few rounds many players have made no difference yet, so variances are shrunk towards their mean over
    the players. Under "oob", one extra observation is added, as far off as a guess is from the full model, so that rows
    that were always predicted alike get an interval too. The error of the validation set comes from the values on 20
    random blocks of its points, or of its clusters, estimated by the same fits. Sampling adds to the differences
    between blocks, so with few fits this part is too large rather than too small. ``sampling["estimation_error"]`` is
    the share of estimation in the mean squared error. "loo" and "exact" have the second part alone, "oob" the first.
    With one validation point there is no standard error. Up to 12 groups have errors of their own.

    :meth:`shapshift.Valuation.interval` covers the semivalue on the population of the validation points; under
    "classwise" the class-wise value given the contribution of the points of other classes; under "oob" the mean over
    all bootstrap samples that lack the player. Under "truncated" it covers the gains of players until an order is
    truncated, and not the bias of truncation: if more players are never worth less, truncation takes less than
    ``tolerance`` from each value.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.naive_bayes import GaussianNB
    >>> from shapshift import SampledShapley
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SampledShapley(GaussianNB(), max_fits=300, progress=False).fit(X[::10], y[::10])
    >>> found = model.value(X[1::2], y[1::2])
    >>> found.values.shape, bool((found.standard_error < 0.1).all())
    ((15,), True)
    >>> found.parameters["n_fits"] <= 300
    True
    """

    def __init__(
        self,
        estimator: Any,
        *,
        semivalue: Semivalue | Distributional = "shapley",
        sampler: str | Sampler = "auto",
        utility: str | Callable[[Any, Any, Any], Any] = "auto",
        max_fits: int = 10_000,
        tol: float | None = None,
        on_error: str = "raise",
        warm_start: bool = False,
        boundary_neighbors: int = BOUNDARY_NEIGHBORS,
        boundary_entropy: float = 0.0,
        cache: int | str = "64MB",
        checkpoint: str | os.PathLike[str] | None = None,
        random_state: int | None = 0,
        n_jobs: int | None = None,
        progress: bool | None = None,
    ) -> None:
        self.estimator = estimator
        self.semivalue = semivalue
        self.sampler = sampler
        self.utility = utility
        self.max_fits = max_fits
        self.tol = tol
        self.on_error = on_error
        self.warm_start = warm_start
        self.boundary_neighbors = boundary_neighbors
        self.boundary_entropy = boundary_entropy
        self.cache = cache
        self.checkpoint = checkpoint
        self.random_state = random_state
        self.n_jobs = n_jobs
        self.progress = progress

    def fit(self, X: Any, y: Any, *, ids: Any = None, players: Any = None) -> Self:
        """Check and keep the training rows.

        Parameters
        ----------
        X : table of shape (n_train, n_features)
            NumPy array, pandas or polars frame, pyarrow table, torch tensor, nested list or scipy sparse matrix. Text,
            categories, dates and missing values need an estimator that handles them, such as a pipeline with a
            ColumnTransformer: it is fitted once to check this. Models get a pandas frame unchanged, and other tables of
            numbers as an array if the estimator accepts it, else unchanged or as a pandas frame.
        y : array-like of shape (n_train,)
            Labels, or numbers for a regressor.
        ids : array-like of shape (n_train,), optional
            Row ids; by default the table's index, or 0..n_train-1.
        players : array-like of shape (n_train,), optional
            Owner of each row: all rows of an owner join a coalition together, and there is one value per owner. By
            default every row is a player.

        Returns
        -------
        self
        """
        self._check_parameters()
        _labels.check_same_order(X, y)
        numbers = predicts_numbers(self._model(), self.utility)

        def fit_once(rows: Any) -> None:
            self._try(rows, checked_labels(rows.shape[0]), rows)

        def checked_labels(n_rows: int) -> npt.NDArray[Any]:
            found = _labels.check_labels(y, "y", n_rows, "X")
            return check_numbers(found, "y") if numbers else found

        read = read_rows(X, fit_once)[0]
        table, n_rows = read.table, read.table.rows.shape[0]
        labels = checked_labels(n_rows)
        row_ids = _labels.check_ids(ids, table.index, n_rows)
        classes, codes = (None, np.zeros(n_rows, dtype=np.int32)) if numbers else _labels.encode_labels(labels)
        ownership = None if players is None else check_owners(check_players(players, n_rows), row_ids, "players")
        self._rows, self._y, self.codes_, self._ownership = read, labels, codes, ownership
        self.__dict__.pop("classes_", None)
        if classes is not None:
            self.classes_ = classes
        self._player_of = np.arange(n_rows) if ownership is None else ownership.codes
        self.n_features_in_ = int(read.rows.shape[1])
        self._id_names = table.index_names if ids is None and ownership is None else ("id",)
        self.ids_ = (
            row_ids if ownership is None else _labels.check_ids(list(ownership.names), None, len(ownership.names))
        )
        self.players_ = tuple(self.ids_.tolist())
        self.fingerprint_ = fingerprint(read.identity, labels, self._player_of)
        # Boundary points do not depend on the valued model.
        near: Any = KNNRegressionShapley(progress=False) if classes is None else KNNShapley(progress=False)
        near.set_params(boundary_neighbors=self.boundary_neighbors)
        if classes is not None:
            near.set_params(boundary_entropy=self.boundary_entropy)
        self._near = near.fit(table.rows, labels if classes is None else codes)
        return self

    def value(
        self,
        X_val: Any,
        y_val: Any,
        *,
        groups: Any = None,
        clusters: Any = None,
        point_weight: Any = None,
        matrix: bool = False,
    ) -> Valuation:
        """Value every training row, or owner, on a validation set.

        Parameters
        ----------
        X_val : table of shape (n_val, n_features)
            Validation points, in any container that ``fit`` takes; columns are matched by name.
        y_val : array-like of shape (n_val,)
            Their labels or targets. A label never seen in training gives a warning, and an error if a scorer of
            probabilities would confuse it with another class.
        groups : array-like of shape (n_val,), optional
            One name per validation point; the result then also has the mean per group.
        clusters : array-like of shape (n_val,), optional
            For points that depend on each other, such as several readings of one patient: one name per point, equal
            for points of one cluster. Standard errors then count clusters instead of points.
        point_weight
            Only for the KNN models; must be None here. Use ``utility="balanced_accuracy"`` for classes of equal weight.
        matrix : bool, default=False
            Also return each player's value on each single point. The cache and a checkpoint then hold a number per
            validation point for every coalition.

        Returns
        -------
        Valuation
            With ``standard_error``. Its ``parameters`` have the numbers of fits and rounds, the utilities of all rows
            and of none, the reason for stopping, and the precision reached.
        """
        check_is_fitted(self, "fingerprint_")
        self._check_parameters()
        check.check_flag("SampledShapley.value", "matrix", matrix)
        if point_weight is not None:
            raise InputError(
                "The 'point_weight' parameter of SampledShapley.value must be None: the utility gives all points the "
                "same weight. Use SampledShapley(utility='balanced_accuracy') for classes of equal weight, or your own "
                "scorer."
            )
        points = self._rows.points(X_val, lambda points: self._try(self._rows.rows, self._y, points))
        n_val = points.table.rows.shape[0]
        labels = _labels.check_labels(y_val, "y_val", n_val, "X_val")
        if self._regression:
            targets, target_codes = check_numbers(labels, "y_val"), np.zeros(n_val, dtype=np.int32)
        else:
            targets, target_codes = labels, _labels.look_up_labels(labels, self.classes_)
            if (target_codes < 0).any() and needs_known_labels(self._utility):
                raise InputError(
                    f"The 'utility' parameter of {type(self).__name__} is {name_of(self.utility)}, which compares "
                    "probabilities with classes, and 'y_val' has labels never seen in training. Leave out these points,"
                    " or use utility='neg_log_loss' or 'probability'."
                )
        # Boundary points depend on the neighbours' labels, not on the point's own label.
        near = self._near.value(points.table.rows, np.zeros(n_val, dtype=np.int64))
        cells = make_cells(near, self._near._levels(), groups, clusters, matrix)
        seed = check.check_seed("SampledShapley", self.random_state)
        n_players = len(self.players_)
        sampler = choose_sampler("SampledShapley", self.sampler, self.semivalue, n_players, int(self.max_fits))
        game = self._game(sampler, points.rows, targets, target_codes, cells, seed)
        about = self._about(sampler, seed, n_val)
        own = sampler.reduction == "own"
        plan = SamplingPlan(
            sampler=sampler,
            chances=size_chances(n_players, self.semivalue),
            total=np.ones(1) if own else cells.total,
            seed=seed,
            max_fits=int(self.max_fits),
            blocks=game.blocks,
            tol=self.tol,
            classes=self._player_classes(),
            n_jobs=self.n_jobs,
            progress=self.progress,
            cache_bytes=cache_bytes("SampledShapley", self.cache),
            checkpoint=self.checkpoint,
            identity=self._identity(game, (self._rows if own else points).identity, sampler, about),
        )
        outcome = run_sampler(game, plan)
        outcome.warn(self.tol, int(self.max_fits))
        near_boundary = {
            key: near.parameters[key]
            for key in ("boundary_neighbors", "boundary_entropy", "boundary_rule")
            if key in near.parameters
        }
        return cells.to_valuation(
            # Players scored on their own rows have the same values on all validation points.
            outcome.cells * cells.reduction.sum(axis=0) if own else outcome.cells,
            outcome.standard_error,
            outcome.degrees_of_freedom,
            blocks=not own,
            ids=self.ids_,
            parameters=about | outcome.describe() | near_boundary,
            fingerprint=self.fingerprint_,
            kind=self._rows.table.kind,
            id_names=self._id_names,
            labels=None if self._regression or self._ownership is not None else self._y,
        )

    def _game(
        self,
        sampler: Sampler,
        points: Any,
        targets: npt.NDArray[Any],
        target_codes: npt.NDArray[np.int32],
        cells: Cells,
        seed: int,
    ) -> Game:
        matrix: Any = cells.reduction
        if sampler.reduction == "own":
            # Models are scored on the training rows; each player has the mean over its own rows.
            points, targets, target_codes = self._rows.rows, self._y, self.codes_
            matrix = means_of_own_rows(self._player_of, len(self.players_))
        model = with_seeds(clone(self._model(), safe=False), seed)
        if self.warm_start:
            model.set_params(warm_start=True)
        return Game(
            estimator=model,
            rows=self._rows.rows,
            labels=self._y,
            player_of=self._player_of,
            points=points,
            targets=targets,
            classes=None if self._regression else self.classes_,
            codes=self.codes_,
            target_codes=target_codes,
            utility=self._utility,
            cells=matrix,
            blocks=0 if sampler.reduction == "own" else cells.n_last,
            reduction=sampler.reduction,
            on_error=self.on_error,
            warm_start=bool(self.warm_start),
            layout=None if cells.single or sampler.reduction != "mean" else cells,
        )

    def _about(self, sampler: Sampler, seed: int, n_val: int) -> dict[str, Any]:
        """Parameters of the result."""
        return {
            "method": type(self).__name__,
            "task": "regression" if self._regression else "classification",
            "worth": worth_in_words(self._model(), self._utility, own=sampler.reduction == "own"),
            "estimator": describe(self._model()),
            "semivalue": str(self.semivalue),
            "sampler": str(sampler),
            "utility": name_of(self.utility),
            "on_error": self.on_error,
            "warm_start": bool(self.warm_start),
            "n_train": self._player_of.size,
            "n_players": len(self.players_),
            "n_val": n_val,
            "n_classes": None if self._regression else len(self.classes_),
            "max_fits": int(self.max_fits),
            "tol": None if self.tol is None else float(self.tol),
            "random_state": seed,
        }

    @property
    def _regression(self) -> bool:
        return not hasattr(self, "classes_")

    @property
    def _utility(self) -> Any:
        return ("squared_error" if self._regression else "correct") if self.utility == "auto" else self.utility

    def _model(self) -> Any:
        return named(type(self).__name__, self.estimator)

    def _try(self, rows: Any, labels: npt.NDArray[Any], points: Any) -> None:
        """Check that the model can be fitted on all rows and predict; rows of one class are never fitted."""
        if not predicts_numbers(self._model(), self.utility) and len(set(labels.tolist())) == 1:
            return
        with collected_warnings():
            with_seeds(clone(self._model(), safe=False), 0).fit(rows, labels).predict(points)

    def _player_classes(self) -> npt.NDArray[np.int64] | None:
        """Class of each player; None if a player has rows of several classes, or without classes."""
        if self._regression:
            return None
        classes = np.zeros(len(self.players_), dtype=np.int64)
        classes[self._player_of] = self.codes_
        return classes if (classes[self._player_of] == self.codes_).all() else None

    def _identity(self, game: Game, points: Any, sampler: Sampler, about: Mapping[str, Any]) -> dict[str, str]:
        """Return everything that a checkpoint depends on."""
        settings = ("estimator", "semivalue", "sampler", "utility", "on_error", "warm_start", "random_state")
        if self.checkpoint is None:
            return {}
        found = {name: str(about[name]) for name in settings}
        for name, given in (("estimator", self._model()), ("sampler", sampler), ("utility", self.utility)):
            try:
                found |= {} if isinstance(given, str) else {f"{name} by content": content_hash(given)}
            except UndescribedError as error:
                raise InputError(
                    f"The 'checkpoint' parameter of {type(self).__name__} cannot be used with this {name}: a later run "
                    f"cannot check that it has the same one ({error}). Use one made of functions, numbers, texts "
                    "and arrays, or pass checkpoint=None."
                ) from error
        return {
            "training rows": self.fingerprint_,
            "validation set or groups": fingerprint(points, game.targets, game.cells),
            **found,
        }

    def _check_parameters(self) -> None:
        """Refuse invalid parameters and combinations."""
        owner, model, utility = type(self).__name__, self._model(), self.utility
        check_estimator(owner, model)
        if not isinstance(self.semivalue, Beta | Banzhaf | Distributional):
            offered = "a Beta(alpha, beta), Banzhaf(w) or Distributional(n) object"
            check.check_choice(owner, "semivalue", self.semivalue, SEMIVALUES, offered)
        choose_sampler(owner, self.sampler, self.semivalue)
        check_utility(owner, utility)
        if utility in ("probability", "neg_log_loss") and not hasattr(model, "predict_proba"):
            raise InputError(
                f"The 'utility' parameter of {owner} is {utility!r}, but {type(model).__name__} has no "
                "predict_proba. Use utility='correct', or an estimator that has it."
            )
        check.check_count(owner, "max_fits", self.max_fits)
        if self.tol is not None:
            check.check_number(owner, "tol", self.tol, above=True)
        check.check_choice(owner, "on_error", self.on_error, ("raise", "constant"))
        check.check_flag(owner, "warm_start", self.warm_start)
        if self.warm_start:
            check_warm_start(owner, model)
        cache_bytes(owner, self.cache)
        check.check_jobs(owner, self.n_jobs)
        check.check_progress(owner, self.progress)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "fingerprint_")


def cache_bytes(caller: str, cache: Any) -> int:
    """Bytes that the cache may take; 0 keeps nothing.

    Examples
    --------
    >>> cache_bytes("SampledShapley", "64MB"), cache_bytes("SampledShapley", 0)
    (64000000, 0)
    """
    return 0 if cache == 0 else check.parse_memory(cache, caller, "cache") or 0


def check_players(players: Any, n_rows: int) -> Any:
    """Refuse a number of owners other than the number of rows before they are matched."""
    size = len(players) if hasattr(players, "__len__") and not isinstance(players, str) else n_rows
    if size != n_rows:
        raise InputError(
            f"The 'players' parameter must name the owner of each of the {n_rows} training rows, so there cannot be "
            f"more owners than rows. Got {size} entries; pass one per row, in their order."
        )
    return players


def check_numbers(labels: npt.NDArray[Any], name: str) -> npt.NDArray[np.float64]:
    """Return targets as floats; refuse targets that are not numbers."""
    try:
        return labels.astype(np.float64)
    except (TypeError, ValueError):
        raise InputError(
            f"{name!r} must hold numbers for a regressor. Got {labels[0]!r}; use a classifier for such labels."
        ) from None


def worth_in_words(model: Any, utility: Any, *, own: bool) -> str:
    """Sentence that defines the utility of a set of rows on one validation point, for the report.

    Examples
    --------
    >>> worth_in_words([], "squared_error", own=False)
    'minus the squared error of list, fitted on it'
    """
    fitted = f"{type(model).__name__}, fitted on it"
    if own:
        return f"how well {fitted}, predicts the training rows it lacks"
    said = {
        "correct": f"whether {fitted}, predicts its label",
        "probability": f"the probability that {fitted}, gives its label",
        "neg_log_loss": f"the logarithm of the probability that {fitted}, gives its label",
        "squared_error": f"minus the squared error of {fitted}",
    }
    return said[utility] if utility in UTILITIES else f"what {name_of(utility)} says of {fitted}"


def fingerprint(*parts: Any) -> str:
    """Hash of tables and columns."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        _update(digest, part)
    return digest.hexdigest()


def _update(digest: Any, part: Any) -> None:
    """Feed a table or column to a hash."""
    if sparse.issparse(part):
        for array in (part.data, part.indices, part.indptr):
            _update(digest, array)
        return
    if not isinstance(part, np.ndarray) or (part.ndim == 2 and part.dtype.kind == "O"):
        digest.update(repr([tuple(column) for column in read_columns(part)]).encode())
        return
    digest.update(repr((part.shape, part.dtype.kind)).encode())
    digest.update(repr(part.tolist()).encode() if part.dtype.kind in "OUS" else np.ascontiguousarray(part).data)
