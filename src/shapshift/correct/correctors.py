"""Correctors that restore spread and positive count, their files and reports, and the evaluation of a correction."""

import hashlib
import json
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from shapshift.agreement import agreement, distribution
from shapshift.checks import inputs as check
from shapshift.checks.warnings import warn
from shapshift.exceptions import InputError
from shapshift.io.archive import check_header, reading
from shapshift.io.files import write_text
from shapshift.io.results import to_table
from shapshift.io.shown import Shown
from shapshift.valuation import Valuation, check_valuation, summarize, without_error

Floats = npt.NDArray[np.float64]


class CorrectionWarning(UserWarning):
    """A part of the values could not be corrected as requested; the message says what was done instead.

    Examples
    --------
    >>> import warnings
    >>> from shapshift import CorrectionWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", CorrectionWarning)  # stop where a part cannot be corrected
    """


@dataclass(frozen=True)
class CorrectionReport(Shown):
    """Report of one ``transform``.

    Attributes
    ----------
    corrector, rule, rescale, positive, preserve_sum, min_points
        Class and parameters of the corrector; ``positive`` and ``min_points`` as set by the rule or the caller.
    shifted : bool
        Whether a shift was requested; if not, ``shift`` is 0.
    groups : dict
        For each part of the noisy validation set: its number of points there and in the clean set (``points_noisy``,
        ``points_clean``), its ``share`` of the noisy points (for the boundary part: lambda), the factor ``alpha``, the
        ``mean`` that it keeps fixed, and the standard deviations ``std_noisy`` and ``std_clean`` (None if the clean set
        has no such points).
    shift : float
        Number b that was added to all values.
    factor : float
        Factor of ``preserve_sum``: positive values were multiplied by it and the others divided by it; otherwise 1.
    positive_target : int
        Number of positive values on the clean set.
    before, after : dict
        ``mean``, ``std``, ``sum`` and ``positive_count`` of the noisy and the corrected values.
    to_positive, to_negative : int
        Number of rows that the correction made positive, and number of rows that it made non-positive.
    """

    corrector: str
    rule: str
    rescale: str
    shifted: bool
    positive: str
    preserve_sum: bool
    min_points: int
    groups: Mapping[str, Mapping[str, float | None]]
    shift: float
    factor: float
    positive_target: int
    before: Mapping[str, float]
    after: Mapping[str, float]
    to_positive: int
    to_negative: int

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain Python types for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        lines = [
            f"{self.corrector}: {self.to_positive} rows became positive, {self.to_negative} stopped being positive",
            f"  rule {self.rule!r}: positive {self.positive!r}, min_points {self.min_points}, rescale {self.rescale!r}"
            + ("" if self.shifted else ", no shift"),
            f"  shift {self.shift:+.4g}, factor {self.factor:.4g}, clean positive count {self.positive_target}",
        ]
        lines += [
            f"  {name}: {part['points_noisy']} points (clean: {part['points_clean']}), share {part['share']:.3f}, std "
            f"{part['std_noisy']:.4g} x alpha {part['alpha']:.4g}"
            for name, part in self.groups.items()
        ]
        lines += [
            f"  {name}: {self.before[name]:.4g} -> {self.after[name]:.4g}" for name in ("mean", "std", "positive_count")
        ]
        return "\n".join(lines)


def weighted_mean(levels: Floats, counts: npt.NDArray[np.int64]) -> Floats:
    """Mean over levels in sequence: equal rows get equal bits, which a matrix product does not guarantee."""
    total = np.zeros(levels.shape[1])
    for scores, count in zip(levels, counts, strict=True):
        total += count * scores
    total /= counts.sum()
    return total


def exact_shift(scores: Floats, wanted: int) -> float:
    """Return the shift that makes ``wanted`` scores positive, or as many as ties allow."""
    distinct, counts = np.unique(scores, return_counts=True)
    at_least = np.append(counts[::-1].cumsum()[::-1], 0)  # number of rows at or above each distinct score, and 0
    cut = at_least.size - 1 - int(np.abs(at_least[::-1] - wanted).argmin())
    if cut == distinct.size:
        return -max(float(distinct[-1]), 0.0)
    high = float(distinct[cut])
    if cut == 0:
        if high > 0:
            return 0.0
        room = (float(distinct[1]) - high) / 2 if distinct.size > 1 else -high
        return -high + max(room, 2 * float(np.spacing(-high)))
    low = float(distinct[cut - 1])
    middle = low / 2 + high / 2
    return -middle if high - middle > 0 >= low - middle else -low  # no number lies between neighbouring floats


def sum_factor(values: Floats, target: float) -> float | None:
    """Return r > 0 such that r times the positive part plus 1/r times the rest sums to ``target``; None without one."""
    gains, losses = float(values[values > 0].sum()), -float(values[values <= 0].sum())
    if gains > 0 and losses > 0:
        root = math.hypot(target, 2 * math.sqrt(gains) * math.sqrt(losses))
        # Two forms of one root of r^2 gains - r target - losses = 0, each used where it has no cancellation.
        return (target + root) / (2 * gains) if target > 0 else 2 * losses / (root - target)
    if gains > 0 and target > 0:
        return max(target / gains, np.finfo(np.float64).tiny)  # a tiny target must not give 0
    if losses > 0 and target < 0:
        return min(losses / -target, 1 / np.finfo(np.float64).tiny)
    return 1.0 if gains == losses == target else None


FORMAT_VERSION = 3
# Files of version 2 store positive and min_points but no rule; they correct as before.
READABLE = (2, FORMAT_VERSION)
# Attributes stored in a file.
FITTED = ("group_std_", "group_counts_", "positive_count_", "n_train_", "parameters_", "fingerprint_")
#: Defaults set by a rule: how the shift is chosen, and the fewest points of a rescaled part.
RULES: Mapping[str, Mapping[str, Any]] = {
    "default": {"positive": "exact", "min_points": 5},
    "paper": {"positive": "nearest", "min_points": 1},
}
#: Points whose scores are rescaled.
KINDS = ("boundary", "nonboundary")
RESCALED = ("all", *KINDS, "none")
# Parameters that define boundary points; a run without a stated entropy has 0.
BOUNDARY_RULE = ("boundary_neighbors", "boundary_entropy")
# Clean and noisy runs are comparable if these agree. A parameter that a model does not state is not compared.
MUST_AGREE = (
    *("method", "estimator", "semivalue", "utility", "n_neighbors", "metric", "ties", *BOUNDARY_RULE),
    *("baseline", "boundary_spread", "radius", "weights", "bandwidth", "bits", "draw"),  # of the related models
    *("point_weight", "order"),
)
KEPT = (*MUST_AGREE, "equal_weights", "weight_digest")
# Their values in runs that do not state them.
UNSTATED = {"boundary_entropy": 0.0, "point_weight": None, "order": None}
# A spread below this share of the largest score is rounding error.
NO_SPREAD = 1e-12


class GroupCorrector(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """Base class of both correctors; a subclass assigns each entropy level to a part of the validation set."""

    rule: str
    rescale: str
    shift: bool
    positive: str | None
    preserve_sum: bool
    min_points: int | None
    _fitted: ClassVar[tuple[str, ...]] = FITTED

    def _learn_groups(self, clean: Valuation) -> None:
        """Read the clean levels if the parts depend on them."""

    def _group_names(self, valuation: Valuation) -> list[str]:
        """Name of the part that each entropy level belongs to."""
        raise NotImplementedError

    def fit(self, clean: Valuation, y: Any = None) -> Self:
        """Store the numbers of a clean run that a correction needs.

        Parameters
        ----------
        clean : Valuation
            Values on the clean validation set, not corrected ones.
        y : None
            Ignored.

        Returns
        -------
        self
        """
        self._check_parameters()
        check_uncorrected(type(self).__name__ + ".fit", "clean", clean)
        self._learn_groups(clean)
        parts = self._split(clean)
        self.group_std_ = {name: _spread(scores) for name, _, scores in parts}
        self.group_counts_ = {name: round(float(clean.level_counts[members].sum())) for name, members, _ in parts}
        self.positive_count_ = int(np.count_nonzero(clean.values > 0))
        self.n_train_ = clean.n_train
        self.positive_ratio_ = self.positive_count_ / self.n_train_
        self.parameters_ = {name: clean.parameters[name] for name in KEPT if name in clean.parameters}
        self.fingerprint_ = clean.fingerprint
        return self

    def transform(self, noisy: Valuation) -> Valuation:
        """Correct values computed on another version of the validation set.

        Parameters
        ----------
        noisy : Valuation
            Values of the same training rows by the same method, not yet corrected.

        Returns
        -------
        Valuation
            With corrected ``values`` and ``level_values``, which still average to ``values``.
            ``parameters["correction"]`` holds the report, also stored as ``report_``. ``matrix`` is None and there are
            no validation groups, because the correction acts on parts by entropy, not on points or groups.
        """
        check_is_fitted(self)
        self._check_parameters()
        check_uncorrected(type(self).__name__ + ".transform", "noisy", noisy)
        check_alike("noisy", noisy, self.fingerprint_, self.parameters_)
        levels = np.array(noisy.level_values, dtype=np.float64)
        groups: dict[str, dict[str, float | None]] = {}
        notes: list[str] = []
        for name, members, scores in self._split(noisy):
            mean, spread, count = float(scores.mean()), _spread(scores), round(float(noisy.level_counts[members].sum()))
            kinds = noisy.boundary_levels[members]
            kind = "boundary" if kinds.any() else "nonboundary"
            if self.rescale in KINDS and kinds.any() and not kinds.all():
                raise InputError(
                    f"The 'rescale' parameter of {type(self).__name__} is {self.rescale!r}, but the part {name!r} has "
                    "both boundary and other points, because it was fitted with another 'rescale'. Fit it again."
                )
            alpha = self._alpha(name, spread, count, notes) if self.rescale in ("all", kind) else 1.0
            levels[members] = mean + alpha * (levels[members] - mean)
            groups[name] = {
                "points_noisy": count,
                "points_clean": self.group_counts_.get(name, 0),
                "share": float(count / noisy.level_counts.sum()),
                "alpha": alpha,
                "mean": mean,
                "std_noisy": spread,
                "std_clean": self.group_std_.get(name),
            }
        notes += [
            f"The noisy validation set has no {name} points, the clean one has {count}. These have no effect."
            for name, count in self.group_counts_.items()
            if name not in groups
        ]
        scores = weighted_mean(levels, noisy.level_counts)
        shift = self._shift(scores, notes) if self.shift else 0.0
        values, levels = scores + shift, levels + shift
        factor = sum_factor(values, float(noisy.values.sum())) if self.preserve_sum else 1.0
        if factor is None:
            factor = 1.0
            notes.append(
                "The corrected values all have one sign and cannot have the sum of the noisy ones. The positive "
                "count is kept, the sum is not."
            )
        by_row = np.where(values > 0, factor, 1 / factor)
        values, levels = values * by_row, levels * by_row
        for note in notes:
            warn(note, CorrectionWarning)
        self.report_ = CorrectionReport(
            corrector=type(self).__name__,
            rule=self.rule,
            rescale=self.rescale,
            shifted=bool(self.shift),
            positive=self._setting("positive"),
            preserve_sum=bool(self.preserve_sum),
            min_points=int(self._setting("min_points")),
            groups=groups,
            shift=shift,
            factor=factor,
            positive_target=self.positive_count_,
            before=_summary(noisy.values),
            after=_summary(values),
            to_positive=int(np.count_nonzero((values > 0) & ~(noisy.values > 0))),
            to_negative=int(np.count_nonzero(~(values > 0) & (noisy.values > 0))),
        )
        return replace(
            without_error(noisy),
            values=values,
            level_values=levels,
            group_means=np.empty((0, noisy.n_train)),
            group_names=(),
            group_sizes=(),
            matrix=None,
            # The factors come from values with errors, so a bound on those does not bound the corrected values.
            error_bound=None if noisy.error_bound is None else np.full(noisy.n_train, np.inf),
            parameters={**noisy.parameters, "correction": self.report_.to_dict()},
        )

    def correct(self, model: Any, X_val: Any, y_val: Any) -> Valuation:
        """Value and correct a noisy validation set; called by ``model.value(..., correction=...)``."""
        return self.transform(model.value(X_val, y_val))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted numbers to a JSON file, atomically. The file contains no clean points.

        Parameters
        ----------
        path : path-like
        """
        check_is_fitted(self)
        whole = {
            "format": f"shapshift.{type(self).__name__}",
            "version": FORMAT_VERSION,
            "parameters": self.get_params(),
            "fitted": {name: getattr(self, name) for name in self._fitted},
        }
        # Round trip through JSON, so that NumPy numbers among the parameters become plain ones.
        body = json.loads(json.dumps(whole, allow_nan=False, default=lambda number: number.item()))
        write_text(path, json.dumps({**body, "checksum": _checksum(body)}, allow_nan=False, indent=2) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a corrector written by :meth:`save`.

        Parameters
        ----------
        path : path-like

        Returns
        -------
        corrector
            Ready to ``transform``.

        Raises
        ------
        ValueError
            If the file is missing, damaged, or of another kind.
        """
        kind = f"shapshift.{cls.__name__}"
        with reading(path, kind):
            with open(path, encoding="utf-8") as file:
                body = json.load(file)
            check_header(body, kind, body["version"] if body["version"] in READABLE else FORMAT_VERSION)
            if body.pop("checksum") != _checksum(body):
                raise InputError("its checksum does not match its content")
            corrector = cls(**body["parameters"])
            corrector._check_parameters()
            for name in corrector._fitted:
                setattr(corrector, name, body["fitted"][name])
            corrector.positive_ratio_ = corrector.positive_count_ / corrector.n_train_
        return corrector

    def _split(self, valuation: Valuation) -> list[tuple[str, npt.NDArray[np.int64], Floats]]:
        """Name, levels and mean score of each part."""
        names = self._group_names(valuation)
        parts = []
        for name in dict.fromkeys(names):
            members = np.flatnonzero([other == name for other in names])
            scores = weighted_mean(valuation.level_values[members], valuation.level_counts[members])
            parts.append((name, members, scores))
        return parts

    def _alpha(self, name: str, spread: float, count: int, notes: list[str]) -> float:
        """Return the factor that restores the clean spread of a part, and note if there is none."""
        if name not in self.group_std_:
            notes.append(
                f"The clean validation set has no {name} points, the noisy one has {count}. They are not rescaled."
            )
            return 1.0
        least = self._setting("min_points")
        if min(count, self.group_counts_[name]) < least:
            notes.append(
                f"There are too few {name} points to compare spreads, {self.group_counts_[name]} in the clean and "
                f"{count} in the noisy validation set. They are not rescaled. At least {least} are needed on both "
                "sides; min_points=1 rescales parts of any size."
            )
            return 1.0
        if spread == 0:
            notes.append(f"All rows have equal scores on the {name} points of the noisy set. These are not rescaled.")
            return 1.0
        if self.group_std_[name] == 0:
            notes.append(
                f"All rows have equal scores on the {name} points of the clean set. They become equal here too."
            )
        return self.group_std_[name] / spread

    def _shift(self, scores: Floats, notes: list[str]) -> float:
        """Return b, and note if the positive count cannot be met."""
        if self._setting("positive") == "nearest":
            return -float(np.quantile(scores, 1 - self.positive_ratio_, method="nearest"))
        shift = exact_shift(scores, self.positive_count_)
        reached = int(np.count_nonzero(scores + shift > 0))
        if reached != self.positive_count_:
            notes.append(
                f"{self.positive_count_} values should be positive, but {reached} are, because rows with equal values "
                "get equal signs."
            )
        return shift

    def _setting(self, name: str) -> Any:
        """Return ``positive`` or ``min_points`` as given, else as set by the rule."""
        given = getattr(self, name)
        return RULES[self.rule][name] if given is None else given

    def _check_parameters(self) -> None:
        caller = type(self).__name__
        check.check_choice(caller, "rule", self.rule, tuple(RULES))
        check.check_choice(caller, "rescale", self.rescale, RESCALED)
        check.check_flag(caller, "shift", self.shift)
        check.check_choice(caller, "positive", self._setting("positive"), ("exact", "nearest"))
        check.check_flag(caller, "preserve_sum", self.preserve_sum)
        check.check_count(caller, "min_points", self._setting("min_points"))


def _spread(scores: Floats) -> float:
    """Return the standard deviation over rows; 0 if it is only rounding."""
    spread = float(scores.std())
    return spread if spread > NO_SPREAD * float(np.abs(scores).max()) else 0.0


def _summary(values: Floats) -> dict[str, float]:
    found = summarize(values)
    return {name: found[name] for name in ("mean", "std", "positive_count")} | {"sum": float(values.sum())}


def check_uncorrected(caller: str, name: str, valuation: Valuation) -> None:
    """Refuse anything but a Valuation returned by a model, which can be corrected once."""
    check_valuation(caller, name, valuation)
    if "correction" in valuation.parameters:
        made_by = valuation.parameters["correction"]["corrector"]
        raise InputError(
            f"The {name!r} parameter of {caller} has been corrected already, by {made_by}. Pass the valuation that the "
            "model returned."
        )


def check_alike(name: str, valuation: Valuation, fingerprint: str, clean: Mapping[str, Any]) -> None:
    """Refuse values of rows with another fingerprint than the clean ones, or with other parameters."""
    if valuation.fingerprint != fingerprint:
        raise InputError(
            f"{name!r} has values of other training rows than the clean valuation (their fingerprints differ). Use one "
            "fitted model for both."
        )
    ours, theirs = ({**UNSTATED, **made} for made in (valuation.parameters, clean))
    for made, other in ((ours, theirs), (theirs, ours)):
        if made.get("equal_weights") and other["point_weight"] is None:
            made["point_weight"] = None
    (n_points, digest), (as_many, clean_digest) = (made.get("weight_digest", (0, "")) for made in (ours, theirs))
    if n_points == as_many and digest != clean_digest:
        raise InputError(
            f"{name!r} was computed with other weights of the validation points than the clean valuation. Give "
            "both the same 'point_weight'."
        )
    for key in MUST_AGREE:
        if key in theirs and key in ours and ours[key] != theirs[key]:
            raise InputError(
                f"{name!r} was computed with {key}={ours[key]!r}, the clean valuation with {key}={theirs[key]!r}. "
                "Compute both with the same parameters."
            )


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(body, sort_keys=True, allow_nan=False).encode(), digest_size=16).hexdigest()


class BoundaryCorrector(GroupCorrector):
    r"""Restore spread and positive count, with separate corrections of boundary and other points.

    For the boundary points B (entropy above the ``boundary_entropy`` of the model, 0 by default) and the others N of
    the noisy set, with :math:`s^G_i` the mean value of row i over part G, :math:`\mu_G, \sigma_G` its mean and standard
    deviation over rows and :math:`\lambda` the share of boundary points:

    .. math::

        \bar s_i = \lambda [\mu_B + \alpha_B (s^B_i - \mu_B)] + (1 - \lambda) [\mu_N + \alpha_N (s^N_i - \mu_N)], \quad
        \alpha_G = \sigma_G^{clean} / \sigma_G^{noisy}, \quad \tilde s_i = \bar s_i + b

    Parameters
    ----------
    rule : {"default", "paper"}, default="default"
        Defaults of ``positive`` and ``min_points``. "paper" is the published behaviour, ``positive="nearest"`` and
        ``min_points=1``, so that parts of any size are rescaled. "default" is ``positive="exact"`` and
        ``min_points=5``, which meets the positive count and does not rescale small parts.
    rescale : {"all", "boundary", "nonboundary", "none"}, default="all"
        Part to rescale; the other keeps its spread (alpha 1). "all" is published.
    shift : bool, default=True
        Whether to shift the values to the clean positive count; if not, b is 0.
    positive : {"exact", "nearest"}, optional
        How b is chosen; by default set by the rule. "exact": half-way between the two values that the clean positive
        count separates, so that the count is met exactly; if equal values make that impossible, the nearest possible
        count (the lower of two) with a warning. If no row, or every row, should be positive, b is 0 if that already
        holds, else it moves the highest value to 0, or the lowest just above. "nearest" is the published rule: b is
        minus the nearest order statistic at the quantile 1 - rho; that row gets exactly 0 and the count can be off by
        one.
    preserve_sum : bool, default=False
        Keep the sum of the noisy values (which is the accuracy on the noisy set, by efficiency). The shift by b changes
        the sum, and undoing b would change the positive count. So the positive values are multiplied, and the others
        divided, by the one factor that restores the sum. Signs, positive count and the order of the rows do not change;
        the spread is then met only roughly. If no value has the sign of the sum, no such factor exists, and the sum is
        not kept, with a warning.
    min_points : int, optional
        A part with fewer points than this in the clean or in the noisy set is not rescaled (alpha 1), with a warning.
        By default set by the rule. 1 is the published formula, which rescales parts of any size.

    Attributes
    ----------
    group_std_ : dict
        Standard deviation of the clean scores for "nonboundary" and "boundary", if there are such points.
    group_counts_ : dict
        Number of clean points in each of these parts.
    positive_count_, positive_ratio_ : int, float
        Positive values on the clean set, and their share rho.
    n_train_, fingerprint_, parameters_
        Training rows and method of the stored numbers.
    report_ : CorrectionReport
        Report of the last ``transform``.

    Notes
    -----
    Degenerate parts, each with a :class:`CorrectionWarning`: a part is not rescaled (alpha 1) if only the noisy set has
    it, if it has fewer than ``min_points`` points on either side, or if all rows have equal noisy scores in it. A part
    that only the clean set has is ignored. If all rows have equal clean scores in a part, alpha is 0, as in the
    formula.

    The size of a part matters. Its scores are means over its points, and means over few points have a wider spread over
    the rows than means over many: on one point every row near it has a score of its own, while over a hundred points
    the scores average out. So :math:`\sigma_G` falls as the part grows. Alpha is too high if a part is smaller in the
    clean set than in the noisy one, and too low if it is larger, with or without noise. Against the same 40 noisy
    boundary points, 1 clean one can give an alpha of 9.1, 5 of them 2.9 and 45 of them 1.2 (the "gaussian" data, 500
    training rows, noise 0.5). Compare sets of similar size and boundary share: the report gives the counts on both
    sides, and ``min_points`` excludes only the most extreme cases.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> rng = np.random.default_rng(0)
    >>> X, X_val = rng.normal(size=(200, 2)), rng.normal(size=(100, 2))
    >>> y, y_val = (X[:, 0] > 0).astype(int), (X_val[:, 0] > 0).astype(int)
    >>> model = KNNShapley().fit(X, y)
    >>> clean, noisy = model.value(X_val, y_val), model.value(X_val + rng.normal(size=X_val.shape), y_val)
    >>> corrector = BoundaryCorrector().fit(clean)
    >>> corrected = corrector.transform(noisy)
    >>> [v.stats()["positive_count"] for v in (clean, noisy, corrected)]
    [181, 162, 181]
    >>> published = BoundaryCorrector(rule="paper").fit(clean)
    >>> published.transform(noisy).stats()["positive_count"]  # one row is at 0
    180
    """

    def __init__(
        self,
        *,
        rule: str = "default",
        rescale: str = "all",
        shift: bool = True,
        positive: str | None = None,
        preserve_sum: bool = False,
        min_points: int | None = None,
    ) -> None:
        self.rule = rule
        self.rescale = rescale
        self.shift = shift
        self.positive = positive
        self.preserve_sum = preserve_sum
        self.min_points = min_points

    def _group_names(self, valuation: Valuation) -> list[str]:
        return ["boundary" if above else "nonboundary" for above in valuation.boundary_levels]


class EntropyNormalizer(GroupCorrector):
    """As :class:`BoundaryCorrector` with one part per entropy level, for any number of classes.

    Parameters
    ----------
    bins : int, default=None
        None: every entropy level is a part of its own. Otherwise the levels are cut into at most this many parts, at
        the quantiles of the clean points' entropies; a level is never split, so there can be fewer. If the clean set
        has only boundary points or only others, the points of the missing kind form one more part, which keeps its
        spread.
    rule : {"default", "paper"}, default="default"
        See :class:`BoundaryCorrector`.
    rescale : {"all", "boundary", "nonboundary", "none"}, default="all"
        See :class:`BoundaryCorrector`. With "boundary" or "nonboundary", no part of ``bins`` has points of both kinds.
    shift : bool, default=True
        See :class:`BoundaryCorrector`.
    positive : {"exact", "nearest"}, optional
        See :class:`BoundaryCorrector`.
    preserve_sum : bool, default=False
        See :class:`BoundaryCorrector`.
    min_points : int, optional
        See :class:`BoundaryCorrector`. Parts are smaller here, so it matters more; fewer ``bins`` make larger parts.

    Attributes
    ----------
    group_std_ : dict
        Standard deviation of the clean scores of each part, by name.
    group_counts_ : dict
        Number of clean points in each part.
    edges_ : list of float
        With ``bins``: the highest entropy of each part but the last. Else empty.
    positive_count_, positive_ratio_, n_train_, fingerprint_, parameters_, report_
        See :class:`BoundaryCorrector`.

    Notes
    -----
    Levels that occur on one side only, and levels of few points, follow the rules of :class:`BoundaryCorrector`; its
    note on the size of a part applies too.

    Examples
    --------
    >>> import numpy as np
    >>> from shapshift import KNNShapley
    >>> rng = np.random.default_rng(0)
    >>> X, X_val = rng.normal(size=(300, 2)), rng.normal(size=(150, 2))
    >>> y, y_val = (np.digitize(Z[:, 0], [-0.5, 0.5]) for Z in (X, X_val))
    >>> model = KNNShapley().fit(X, y)
    >>> clean, noisy = model.value(X_val, y_val), model.value(X_val + 0.5 * rng.normal(size=X_val.shape), y_val)
    >>> normalizer = EntropyNormalizer(bins=3).fit(clean)
    >>> normalizer.transform(noisy).stats()["positive_count"] == normalizer.positive_count_
    True
    """

    _fitted = (*FITTED, "edges_")

    def __init__(
        self,
        *,
        bins: int | None = None,
        rule: str = "default",
        rescale: str = "all",
        shift: bool = True,
        positive: str | None = None,
        preserve_sum: bool = False,
        min_points: int | None = None,
    ) -> None:
        self.bins = bins
        self.rule = rule
        self.rescale = rescale
        self.shift = shift
        self.positive = positive
        self.preserve_sum = preserve_sum
        self.min_points = min_points

    def _learn_groups(self, clean: Valuation) -> None:
        self.edges_: list[float] = []
        if self.bins is not None:
            order = np.argsort(clean.level_entropy)
            reached = clean.level_counts[order].cumsum()
            cuts = np.searchsorted(reached, np.arange(1, self.bins) * (reached[-1] / self.bins) - 1e-9)
            edges = {float(clean.level_entropy[order][cut]) for cut in np.unique(cuts) if cut < order.size - 1}
            # Otherwise points on the other side of the boundary, absent here or not to be rescaled, would join this
            # part.
            if np.unique(clean.boundary_levels).size == 1 or self.rescale in KINDS:
                edges.add(clean.boundary_entropy)
            self.edges_ = sorted(edges)

    def _group_names(self, valuation: Valuation) -> list[str]:
        levels = valuation.level_entropy
        if self.bins is None:
            return [f"entropy {level:.6f}" for level in levels]
        bounds = ["0", *(f"{edge:.6f}" for edge in self.edges_), "up"]
        # Levels are rounded logarithms, so an edge includes levels that differ from it only by rounding.
        numbers = np.searchsorted(self.edges_, levels - 1e-9)
        return [f"entropy {bounds[i]} to {bounds[i + 1]}" for i in numbers]

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.bins is not None:
            check.check_count(type(self).__name__, "bins", self.bins)


@dataclass(frozen=True, eq=False, repr=False)
class CorrectionEvaluation(Shown):
    """Agreement of corrected values with the clean ones, as a distribution and row by row.

    Attributes
    ----------
    distribution : dict of dict
        For "clean", "noisy" (if given) and "corrected": see :func:`shapshift.agreement.distribution`.
    rows : dict of dict
        The same for :func:`shapshift.agreement.agreement`, and ``sign_agreement``, the share of rows with the same
        sign. The entries of "clean" show full agreement.
    values : dict of ndarray
        The values compared.
    """

    distribution: Mapping[str, Mapping[str, float]]
    rows: Mapping[str, Mapping[str, float]]
    values: Mapping[str, Floats]

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate: one row per statistic, one column per valuation.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            ``aspect`` ("distribution" or "rows"), ``statistic``, ``clean``, ``noisy`` (if given), ``corrected``.
        """
        entries = [(aspect, name) for aspect in ("distribution", "rows") for name in getattr(self, aspect)["clean"]]
        columns: dict[str, npt.NDArray[Any]] = {
            "aspect": np.array([aspect for aspect, _ in entries]),
            "statistic": np.array([name for _, name in entries]),
        }
        for which in self.values:
            columns[which] = np.array([getattr(self, aspect)[which][name] for aspect, name in entries])
        return to_table(columns, None, kind)

    def plot(self, *, ax: Any = None) -> Any:
        """Draw the distributions, and the clean values against the others; see :mod:`shapshift.plots.results`."""
        from shapshift.plots.results import plot_correction

        return plot_correction(self, ax=ax)

    def __repr__(self) -> str:
        def line(aspect: str, name: str) -> str:
            parts = [getattr(self, aspect)[which][name] for which in self.values if which != "clean"]
            return f"{name} " + " -> ".join(f"{part:.3g}" for part in parts)

        shown = [("distribution", name) for name in ("std_ratio", "positive_difference", "wasserstein")]
        shown += [("rows", name) for name in ("spearman", "rmse", "sign_agreement")]
        return f"CorrectionEvaluation({', '.join(line(*entry) for entry in shown)})"


def evaluate(
    corrected: Valuation, clean: Valuation, noisy: Valuation | None = None, *, top: float = 0.1
) -> CorrectionEvaluation:
    """Compare corrected with clean values, as distributions and row by row.

    Parameters
    ----------
    corrected, clean : Valuation
        Values of the same training rows, computed with the same method and parameters.
    noisy : Valuation, optional
        The values before the correction, for comparison.
    top : float or int, default=0.1
        Share or number of rows in the top and bottom sets that are compared.

    Returns
    -------
    CorrectionEvaluation

    Examples
    --------
    >>> from shapshift import KNNShapley
    >>> model = KNNShapley(n_neighbors=1).fit([[0.0], [1.0], [3.0]], ["a", "b", "b"])
    >>> clean = model.value([[0.9], [0.2]], ["b", "a"])
    >>> evaluate(clean, clean).rows["corrected"]["spearman"]
    1.0
    """
    given = {"clean": clean} | ({} if noisy is None else {"noisy": noisy}) | {"corrected": corrected}
    for name, valuation in given.items():
        check_valuation("evaluate", name, valuation)
        check_alike(name, valuation, clean.fingerprint, clean.parameters)
    rows = {name: agreement(valuation.values, clean.values, top=top) for name, valuation in given.items()}
    for entry in rows.values():
        entry["sign_agreement"] = 1 - (entry["flips_to_negative"] + entry["flips_to_positive"]) / clean.n_train
    return CorrectionEvaluation(
        distribution={name: distribution(valuation.values, clean.values) for name, valuation in given.items()},
        rows=rows,
        values={name: valuation.values for name, valuation in given.items()},
    )
