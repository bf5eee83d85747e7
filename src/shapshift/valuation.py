"""The result type that every valuation returns and every later step takes."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from shapshift._arrays import object_array
from shapshift.checks.inputs import check_flag, check_type, some, wrong
from shapshift.checks.labels import encode_labels
from shapshift.exceptions import InputError
from shapshift.io.results import Result, lock, to_table
from shapshift.sampling_error import Spread, half_width, points_needed, rank_interval, reliability, sign_probability

Floats = npt.NDArray[np.float64]

# Entropies are rounded logarithms: a threshold above 0 includes what differs from it by rounding.
ENTROPY_ROUNDING = 1e-9
# Values and the mean over their entropy levels differ by less, relative to the largest value.
LEVEL_ROUNDING = 1e-9

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Valuation(Result):
    """Values of training rows on one validation set.

    Attributes
    ----------
    values : ndarray of shape (n_train,)
        Value of each training row, averaged over the validation points.
    ids : ndarray of shape (n_train,)
        Ids of the caller's rows, from the index or ``ids``, in the order of ``values``.
    entropy : ndarray of shape (n_val,)
        Entropy (nats) of the labels of each validation point's nearest training rows, five unless the model says
        otherwise (``boundary_neighbors``).
    boundary : ndarray of shape (n_val,)
        Whether the point is a boundary point: entropy above :attr:`boundary_entropy`, 0 by default.
    level_entropy, level_values, level_counts : ndarray
        The distinct entropies, the mean values over the points at each, and the number of those points (int64; with
        weights their sum, float64). Values are additive over validation points, so these few rows carry every split by
        boundary.
    group_means : ndarray of shape (n_groups, n_train)
        Mean values per validation group, see ``group_values``.
    group_names, group_sizes : tuple
        Group names in order of first appearance, and their numbers of validation points, int; with weights their sums,
        float.
    matrix : ndarray of shape (n_train, n_val) or None
        Value of each row on each single validation point, if requested.
    error_bound : ndarray of shape (n_train,) or None
        Largest possible distance of each value from the exact one, in units of the utility; infinite if unknown. None
        if the values are exact, up to rounding.
    parameters : mapping
        Origin of the values: method, its parameters, sizes.
    fingerprint : str
        Hash of the training rows and labels. Valuations can be compared when their fingerprints agree.
    kind : {"numpy", "pandas", "polars", "pyarrow"}
        The caller's kind of table, which ``to_frame`` returns.
    id_names : tuple
        Names of the levels of the caller's index.
    standard_error : ndarray of shape (n_train,) or None
        Standard error of each value as an estimate of the value on the population that the validation points are a
        sample of. None if it is unknown: with one point, and after a correction that gives none.
        Estimates (:class:`shapshift.SampledShapley`, :class:`shapshift.PosteriorCorrector`) add the error of
        estimating.
    degrees_of_freedom : ndarray of shape (n_train,) or None
        Degrees of freedom of each standard error, for :meth:`interval`.
    group_errors : ndarray of shape (n_groups, n_train) or None
        Standard errors of ``group_means``; infinite in a group of one point.
    group_freedom : ndarray of shape (n_groups,) or None
        Degrees of freedom of the errors in each group.
    variance : ndarray of shape (n_train,) or None
        Sample variance of each row's value over the points, or over clusters of them, see ``clusters`` of ``value``.
    sampling : mapping
        Inputs of :attr:`reliability`: ``units`` (points, or clusters), ``kurtosis`` of the values,
        ``covariance`` of two rows, and ``class_covariance`` of two rows of each class, and ``pearson`` and
        ``spearman``, from halves of the points.
    labels : ndarray of shape (n_train,) or None
        Class of each training row; None for regression, for players that are not rows, and in files of release 0.1.0.
    point_weight : ndarray of shape (n_val,) or None
        Weight of each validation point, 1 on average; None if all have the same weight. Values are then weighted means,
        and ``level_counts`` and ``group_sizes`` sums of weights.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley
    >>> X, y = load_iris(return_X_y=True)
    >>> result = KNNShapley().fit(X[::2], y[::2]).value(X[1::2], y[1::2])
    >>> result.values.shape
    (75,)
    >>> low, high = result.interval(0.95)
    >>> bool((low <= result.values).all())
    True
    """

    archive_kind: ClassVar[str] = "shapshift.Valuation"
    archive_shapes: ClassVar[Mapping[str, str]] = {
        **dict.fromkeys(
            ("values", "ids", "error_bound", "standard_error", "degrees_of_freedom", "variance", "labels"), "n_train"
        ),
        **dict.fromkeys(("entropy", "boundary", "point_weight"), "n_val"),
        **dict.fromkeys(("level_entropy", "level_counts"), "n_levels"),
        **dict.fromkeys(("group_names", "group_sizes", "group_freedom"), "n_groups"),
        "level_values": "n_levels n_train",
        **dict.fromkeys(("group_means", "group_errors"), "n_groups n_train"),
        "matrix": "n_train n_val",
    }

    values: Floats
    ids: npt.NDArray[Any]
    entropy: Floats
    boundary: npt.NDArray[np.bool_]
    level_entropy: Floats
    level_values: Floats
    level_counts: npt.NDArray[Any]
    group_means: Floats
    group_names: tuple[Any, ...]
    group_sizes: tuple[float, ...]
    matrix: Floats | None
    parameters: Mapping[str, Any]
    fingerprint: str
    kind: str = "numpy"
    id_names: tuple[Any, ...] = ("id",)
    error_bound: Floats | None = None
    standard_error: Floats | None = None
    degrees_of_freedom: Floats | None = None
    group_errors: Floats | None = None
    group_freedom: Floats | None = None
    variance: Floats | None = None
    sampling: Mapping[str, Any] = field(default_factory=dict)
    labels: npt.NDArray[Any] | None = None
    point_weight: Floats | None = None

    @property
    def n_train(self) -> int:
        """Number of training rows."""
        return self.values.size

    @property
    def n_val(self) -> int:
        """Number of validation points."""
        return self.entropy.size

    @property
    def group_values(self) -> dict[Any, Floats]:
        """Mean values per group name."""
        return dict(zip(self.group_names, self.group_means, strict=True))

    @property
    def group_counts(self) -> dict[Any, float]:
        """Number of validation points per group name; with weights their sum."""
        return dict(zip(self.group_names, self.group_sizes, strict=True))

    @property
    def boundary_fraction(self) -> float:
        """Share of boundary points in the validation set, by weight if points have weights."""
        if self.point_weight is None:
            return float(self.boundary.mean())
        return float(self.point_weight[self.boundary].sum() / self.point_weight.sum())

    @property
    def boundary_entropy(self) -> float:
        """Entropy above which a point is a boundary point."""
        return float(self.parameters.get("boundary_entropy", 0.0))

    @property
    def boundary_levels(self) -> npt.NDArray[np.bool_]:
        """Which entropy levels are those of boundary points."""
        return is_boundary(self.level_entropy, self.boundary_entropy)

    @property
    def boundary_values(self) -> Floats | None:
        """Mean values over the boundary points; None when there are none."""
        return self._mean_over(self.boundary_levels)

    @property
    def nonboundary_values(self) -> Floats | None:
        """Mean values over the points that are not on a boundary; None when there are none."""
        return self._mean_over(~self.boundary_levels)

    def _mean_over(self, levels: npt.NDArray[np.bool_]) -> Floats | None:
        counts = self.level_counts[levels]
        if counts.sum() == 0:
            return None
        # einsum adds in one order; BLAS kernels of different processors do not.
        mean: Floats = np.einsum("l,ln->n", counts, self.level_values[levels]) / counts.sum()
        return mean

    def stats(self) -> dict[str, Any]:
        """Summarise the distribution of the values.

        Returns
        -------
        dict
            ``mean``, ``std``, ``positive_count``, ``positive_ratio`` and ``quantiles`` (probability to value).
        """
        return {
            **summarize(self.values),
            "quantiles": {q: float(v) for q, v in zip(QUANTILES, np.quantile(self.values, QUANTILES), strict=True)},
        }

    def by_class(self, kind: str | None = None) -> Any:
        """Tabulate the values by class of the training rows.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            As in :meth:`to_frame`.

        Returns
        -------
        table
            One line per class, in sorted order: ``label``, ``rows``, ``share_negative``, ``mean``, and ``reliability``,
            that of the values within the class, from their standard errors; NaN if unknown.

        Raises
        ------
        InputError
            If there are no labels.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from shapshift import KNNShapley
        >>> X, y = load_iris(return_X_y=True)
        >>> found = KNNShapley().fit(X[::2], y[::2]).value(X[1::2], y[1::2])
        >>> found.by_class("pandas")[["label", "rows", "share_negative"]]
          label  rows  share_negative
        0     0    25             0.0
        1     1    25             0.0
        2     2    25             0.0
        """
        facts = self._class_facts()
        if not facts and "n_unlabeled" in self.parameters:
            raise InputError(
                "There are no labels in this Valuation: it is of a semi-supervised model, where rows may have none. "
                "Name classes yourself, one for rows without a label, with dataclasses.replace(valuation, labels=...)."
            )
        if not facts:
            raise InputError(
                "There are no labels in this Valuation: it is of a regression, of players that are not rows, or from "
                "an earlier release. Add them with dataclasses.replace(valuation, labels=y)."
            )
        columns = {name: np.array([one[name] for one in facts]) for name in facts[0] if name != "label"}
        columns["reliability"] = columns["reliability"].astype(np.float64)
        labels = object_array([one["label"] for one in facts])
        return to_table({"label": labels, **columns}, None, kind or self.kind)

    def _class_facts(self) -> list[dict[str, Any]]:
        """Rows, share of negative values, mean and reliability of each class; empty without labels."""
        if self.labels is None:
            return []
        classes, codes = encode_labels(self.labels)
        shared, facts = [*self.sampling.get("class_covariance", ()), *[None] * classes.size], []
        for code, label in enumerate(classes.tolist()):
            inside = codes == code
            values, found = self.values[inside], None
            if self.standard_error is not None and shared[code] is not None:
                found = reliability(values, self.standard_error[inside], shared[code] / self.sampling["units"])
            facts.append(
                {
                    "label": label,
                    "rows": values.size,
                    "share_negative": float((values < 0).mean()),
                    "mean": float(values.mean()),
                    "reliability": None if found is None or np.isnan(found) else float(np.clip(found, 0.0, 1.0)),
                }
            )
        return facts

    def select(self, fraction: float, *, keep_class_shares: bool = True) -> npt.NDArray[np.bool_]:
        """Select the rows with the highest values.

        Parameters
        ----------
        fraction : float
            Share of the rows to keep, above 0 and at most 1; their number is rounded, and is at least one.
        keep_class_shares : bool, default=True
            Keep the highest rows of each class, so that classes have the shares that they have among all rows; see
            :func:`best_first`. Without labels, the highest of all rows are kept.

        Returns
        -------
        ndarray of shape (n_train,)
            True for rows to keep.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from shapshift import KNNShapley
        >>> X, y = load_iris(return_X_y=True)
        >>> kept = KNNShapley().fit(X[::2], y[::2]).value(X[1::2], y[1::2]).select(0.8)
        >>> np.bincount(y[::2][kept])
        array([20, 20, 20])
        """
        _check_share("Valuation.select", "fraction", fraction, whole=True)
        check_flag("Valuation.select", "keep_class_shares", keep_class_shares)
        kept = np.zeros(self.n_train, dtype=np.bool_)
        size = max(int(np.floor(fraction * self.n_train + 0.5)), 1)
        kept[best_first(self.values, self.labels if keep_class_shares else None)[:size]] = True
        return kept

    def interval(self, confidence: float = 0.95, joint: bool = False, *, group: Any = None) -> tuple[Floats, Floats]:
        """Return a confidence interval of each row's value on the population.

        Parameters
        ----------
        confidence : float, default=0.95
            Between 0 and 1.
        joint : bool, default=False
            Whether all intervals hold together with this confidence, or each by itself.
        group : hashable, optional
            A validation group, for the intervals of its values.

        Returns
        -------
        low, high : ndarray of shape (n_train,)
            Value plus and minus Student's t times the standard error, widened by the error bound if there is one.
            Intervals of corrected values cover less, see :class:`shapshift.PosteriorCorrector`. NaN if the error of a
            value is unknown.

        Raises
        ------
        InputError
            If there are no standard errors.

        Examples
        --------
        >>> from sklearn.datasets import load_iris
        >>> from shapshift import KNNShapley
        >>> X, y = load_iris(return_X_y=True)
        >>> low, high = KNNShapley().fit(X[::2], y[::2]).value(X[1::2], y[1::2]).interval()
        >>> bool((low < high).all())
        True
        """
        check_confidence("Valuation.interval", confidence)
        values, error, freedom = self._with_error(group)
        half = half_width(error, freedom, confidence, self.n_train if joint else 1)
        if self.error_bound is not None:
            half = half + self.error_bound
        return values - half, values + half

    def _with_error(self, group: Any = None) -> tuple[Floats, Floats, Any]:
        """Return values, their standard errors and degrees of freedom, of a group or of all points."""
        if self.standard_error is None:
            raise InputError(f"There is no sampling error: {self._why_no_error()}.")
        if group is not None:
            if group not in self.group_names:
                known = some(list(self.group_names)) if self.group_names else "none: pass groups to value"
                raise InputError(f"There is no validation group {group!r}. There are {known}.")
            if self.group_errors is None or self.group_freedom is None:
                raise InputError("There is no sampling error of groups: these values were computed without it.")
            at = self.group_names.index(group)
            return self.group_means[at], self.group_errors[at], self.group_freedom[at]
        freedom: Any = self.degrees_of_freedom
        if freedom is None:  # as in files of release 0.1.0
            observed = self.parameters.get("n_observations")
            freedom = np.inf if observed is None else max(int(observed) - 1, 1)
        return self.values, self.standard_error, freedom

    def _why_no_error(self) -> str:
        """Give the reason why there are no standard errors."""
        if self.n_val == 1:
            return "it takes at least two validation points to see how values vary between them"
        return "these values were corrected, or come from an earlier release, or from a single cluster"

    @property
    def group_standard_errors(self) -> dict[Any, Floats]:
        """Standard errors of the group values, per group name; empty if there are none."""
        return {} if self.group_errors is None else dict(zip(self.group_names, self.group_errors, strict=True))

    @property
    def sign_probability(self) -> Floats:
        """Probability that each row's value on the population is above 0."""
        return sign_probability(*self._with_error())

    def rank_interval(self, confidence: float = 0.95) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
        """Return the best and the worst rank that each row may have on the population, 1 for the highest value.

        Parameters
        ----------
        confidence : float, default=0.95
            Between 0 and 1, of each comparison of two rows.
        """
        check_confidence("Valuation.rank_interval", confidence)
        return rank_interval(*self._with_error(), confidence)

    @property
    def reliability(self) -> float | None:
        """Expected correlation between these values and those on another validation set of the same size.

        Its square root is the correlation with the values on the population. None without standard errors, or if values
        do not differ.
        """
        return self._of_another_set(pearson=True)

    @property
    def reliability_spearman(self) -> float | None:
        """As :attr:`reliability`, for the rank correlation."""
        return self._of_another_set(pearson=False)

    def _of_another_set(self, *, pearson: bool) -> float | None:
        if self.standard_error is None or "units" not in self.sampling:
            return None
        found = self.sampling.get("pearson" if pearson else "spearman")
        if found is None and pearson:
            shared = self.sampling["covariance"] / self.sampling["units"]
            found = reliability(self.values, self.standard_error, shared)
        return None if found is None or np.isnan(found) else float(np.clip(found, 0.0, 1.0))

    def points_needed(self, reliability: float = 0.9) -> float:
        """Return the number of validation points (or clusters) needed for a reliability; infinite if unknown.

        Parameters
        ----------
        reliability : float, default=0.9
            Between 0 and 1.
        """
        _check_share("Valuation.points_needed", "reliability", reliability)
        self._with_error()
        found = self.reliability
        if found is None:
            return np.inf
        needed = points_needed(self.sampling["units"], found, reliability)
        return float(np.ceil(needed)) if np.isfinite(needed) else np.inf

    @property
    def surely_positive(self) -> int:
        """Number of rows whose 95% interval is above 0."""
        return int(np.count_nonzero(self.interval()[0] > 0))

    @property
    def surely_negative(self) -> int:
        """Number of rows whose 95% interval is below 0."""
        return int(np.count_nonzero(self.interval()[1] < 0))

    @property
    def open(self) -> int:
        """Number of rows whose sign another validation set could change: their 95% interval contains 0."""
        low, high = self.interval()
        return self.n_train - int(np.count_nonzero(low > 0)) - int(np.count_nonzero(high < 0))

    def to_frame(self, kind: str | None = None) -> Any:
        """Tabulate the values in the caller's kind of table.

        Parameters
        ----------
        kind : {"pandas", "polars", "pyarrow"}, optional
            Defaults to the kind that was fitted; after NumPy input, pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            One row per training row: its id (the index in pandas), ``value``, ``value_boundary``,
            ``value_nonboundary``, one ``value[name]`` per validation group, ``error_bound`` if values are not exact,
            and ``standard_error`` if known, with ``low`` and ``high``, a 95% interval.
        """
        nothing = np.full(self.n_train, np.nan)
        columns: dict[str, npt.NDArray[Any]] = {"value": self.values}
        if self.error_bound is not None:
            columns["error_bound"] = self.error_bound
        for name, part in (("boundary", self.boundary_values), ("nonboundary", self.nonboundary_values)):
            columns[f"value_{name}"] = nothing if part is None else part
        printed = Counter(str(name) for name in self.group_names)
        for group, means in self.group_values.items():
            # Names that print alike, such as 1 and "1", are distinguished by their repr.
            columns[f"value[{group}]" if printed[str(group)] == 1 else f"value[{group!r}]"] = means
        if self.standard_error is not None:
            columns["standard_error"] = self.standard_error
            columns["low"], columns["high"] = self.interval()
        return to_table(columns, self.ids, kind or self.kind, self.id_names)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the distribution of the values; returns the Axes.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw; a new figure by default.
        """
        from shapshift.plots.results import plot_values

        return plot_values(self, ax=ax)

    def __repr__(self) -> str:
        s = self.stats()
        error = "" if self.error_bound is None else f", error_bound={self.error_bound.max():.3g}"
        error += "" if self.reliability is None else f", reliability={self.reliability:.2f}"
        return (
            f"Valuation(n_train={self.n_train}, n_val={self.n_val}, mean={s['mean']:.3g}, std={s['std']:.3g}, "
            f"positive={s['positive_count']}, boundary_fraction={self.boundary_fraction:.3g}{error})"
        )


def error_fields(spread: Spread) -> dict[str, Any]:
    """Return the fields of a valuation that describe the errors of its values."""
    error, freedom = spread.errors()
    return {
        "variance": lock(spread.variance),
        "standard_error": lock(error),
        "degrees_of_freedom": lock(np.full(error.size, freedom)),
        "sampling": spread.facts(),
    }


def boundary_cut(threshold: float) -> float:
    """Return the entropy above which a point is a boundary point; above a threshold of 0, rounding is allowed for."""
    return threshold + ENTROPY_ROUNDING if threshold > 0 else 0.0


def is_boundary(entropy: Floats, threshold: float) -> npt.NDArray[np.bool_]:
    """Whether entropies are those of boundary points."""
    return entropy > boundary_cut(threshold)


def best_first(values: npt.ArrayLike, labels: npt.NDArray[Any] | None = None) -> npt.NDArray[np.int64]:
    """Return the positions of rows from the highest value to the lowest; every prefix keeps the shares of classes.

    The k-th highest of the n rows of a class gets the key (k - 1/2) / n, and rows are sorted by it: among the first m
    rows each class has its share of m, rounded. Ties go to the larger class, then to the higher value, then to the
    earlier row.

    Parameters
    ----------
    values : array-like of shape (n_rows,)
    labels : ndarray of shape (n_rows,) or None
        Class of each row; None sorts by value alone.

    Examples
    --------
    >>> best_first([3, 2, 1, -1, -2, -3], np.array(["a", "a", "a", "a", "b", "b"]))
    array([0, 4, 1, 2, 5, 3])
    """
    found = np.asarray(values, dtype=np.float64)
    order: npt.NDArray[np.int64] = np.argsort(-found, kind="stable")
    if labels is None:
        return order
    codes = encode_labels(np.asarray(labels))[1]
    sizes, place = np.bincount(codes), np.empty(found.size)
    by_class = order[np.argsort(codes[order], kind="stable")]
    of_class = np.arange(found.size) - (np.cumsum(sizes) - sizes)[codes[by_class]]
    place[by_class] = (2 * of_class + 1) / (2 * sizes[codes[by_class]])
    return np.lexsort((-found, -sizes[codes], place))


def summarize(values: Floats) -> dict[str, Any]:
    """Mean, standard deviation, positive count and positive share of values, used by every summary here.

    Examples
    --------
    >>> summarize(np.array([1.0, 0.0, -1.0, 2.0]))
    {'mean': 0.5, 'std': 1.118, 'positive_count': 2, 'positive_ratio': 0.5}
    """
    positive = int(np.count_nonzero(values > 0))
    return {
        "mean": float(values.mean()),
        "std": float(values.std()),
        "positive_count": positive,
        "positive_ratio": positive / values.size,
    }


def without_error(valuation: Valuation) -> Valuation:
    """Return a valuation without sampling error, for values that were changed."""
    nothing: dict[str, Any] = dict.fromkeys(
        ("standard_error", "degrees_of_freedom", "group_errors", "group_freedom", "variance")
    )
    return replace(valuation, sampling={}, **nothing)


def corrected_by(caller: str, corrector: Any, noisy: Valuation) -> Valuation:
    """Correct values by any object with ``transform(valuation)``, and refuse invalid results of it.

    If a corrector keeps the errors of the noisy values and their means per entropy level unchanged, they are replaced:
    errors are removed, error bounds are infinite, and the means move with the values.
    """
    found = corrector.transform(noisy)
    name = type(corrector).__name__
    got, values = type(found).__name__, None
    if isinstance(found, Valuation):
        values = _numbers(found.values)
        got = "values that are not real numbers" if values is None else f"values of shape {values.shape}"
    if values is None or values.shape != noisy.values.shape:
        raise InputError(
            f"The corrector of {caller} must have a method transform that returns a Valuation with values of shape "
            f"{noisy.values.shape}, such as dataclasses.replace(noisy, values=...). That of {name} returns {got}."
        )
    if not np.isfinite(values).all():
        raise InputError(f"{name}.transform, the corrector of {caller}, returned values that are not finite.")
    if found.fingerprint != noisy.fingerprint or list(found.ids) != list(noisy.ids):
        raise InputError(
            f"{name}.transform, the corrector of {caller}, returned other rows than it was given, or in another order. "
            "Keep ids and fingerprint, and give values in their order."
        )
    changed: dict[str, Any] = {} if values is found.values else {"values": values}
    if not np.array_equal(values, noisy.values):
        if _same(found.standard_error, noisy.standard_error):
            found = without_error(found)
        if _same(found.error_bound, noisy.error_bound):
            changed["error_bound"] = np.full(values.size, np.inf)
        # Values are the mean over levels, unless only the values were changed.
        mean = found._mean_over(np.ones(found.level_counts.size, dtype=bool))
        if mean is not None and np.abs(values - mean).max() > LEVEL_ROUNDING * np.abs(values).max():
            changed["level_values"] = found.level_values + (values - mean)
    if "correction" not in found.parameters:
        changed["parameters"] = {**found.parameters, "correction": {"corrector": name}}
    corrected: Valuation = replace(found, **changed) if changed else found
    return corrected


def _numbers(values: Any) -> Floats | None:
    """Return real numbers as an array; None for anything else."""
    try:
        given = np.asarray(values)
        return None if given.dtype.kind == "c" else given.astype(np.float64, copy=False)
    except (TypeError, ValueError):
        return None


def _same(one: Floats | None, other: Floats | None) -> bool:
    return one is not None and other is not None and np.array_equal(one, other)


def check_confidence(caller: str, confidence: float) -> None:
    """Refuse a confidence that is not between 0 and 1."""
    _check_share(caller, "confidence", confidence)


def _check_share(caller: str, name: str, share: object, *, whole: bool = False) -> None:
    """Refuse a number that is not between 0 and 1; with ``whole``, 1 is allowed."""
    if not (isinstance(share, int | float | np.number) and (0 < share < 1 or (whole and share == 1))):
        raise wrong(caller, name, "above 0 and at most 1" if whole else "above 0 and below 1", share)


def check_valuation(caller: str, name: str, valuation: object) -> None:
    """Refuse anything but a Valuation as the parameter ``name``."""
    check_type(caller, name, valuation, Valuation, "a Valuation, as the value method of a model returns")


def check_returned(caller: str, model: object, returned: object) -> Valuation:
    """Refuse a result of a model's value method that is not a Valuation."""
    if not isinstance(returned, Valuation):
        raise InputError(
            f"The 'model' parameter of {caller} must have a value method that returns a Valuation. That of "
            f"{type(model).__name__} returns {type(returned).__name__}; wrap its values in shapshift.Valuation."
        )
    return returned
