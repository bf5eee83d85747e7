"""What all correctors share: fit, transform, files."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from shapshift import _validation as check
from shapshift._archive import check_header, reading
from shapshift._files import write_text
from shapshift._warn import warn
from shapshift.correct.arithmetic import exact_shift, sum_factor, weighted_mean
from shapshift.correct.report import CorrectionReport, CorrectionWarning
from shapshift.valuation import Valuation, summarize

Floats = npt.NDArray[np.float64]

FORMAT_VERSION = 2
#: A part with fewer points than this on either side is not rescaled, unless the caller says otherwise.
MIN_POINTS = 5
# A clean and a noisy run are comparable when these agree; a model that does not state one of them is not held to it.
MUST_AGREE = (
    *("method", "estimator", "semivalue", "utility", "n_neighbors", "metric", "ties", "boundary_neighbors"),
    *("baseline", "boundary_spread", "radius", "weights", "bandwidth", "bits", "draw"),  # of the relatives
)
# A spread below this share of the largest score is rounding, not spread.
NO_SPREAD = 1e-12


class GroupCorrector(BaseEstimator):  # type: ignore[misc]  # scikit-learn ships no types
    """What both correctors share; a subclass says to which part of a validation set an entropy level belongs."""

    positive: str
    preserve_sum: bool
    min_points: int

    def _learn_groups(self, clean: Valuation) -> None:
        """Look at the clean levels where the parts depend on them."""

    def _group_names(self, levels: Floats) -> list[str]:
        """Name of the part that each entropy level belongs to."""
        raise NotImplementedError

    def fit(self, clean: Valuation, y: Any = None) -> Self:
        """Note the numbers of a clean run that a correction needs.

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
        self.group_counts_ = {name: int(clean.level_counts[members].sum()) for name, members, _ in parts}
        self.positive_count_ = int(np.count_nonzero(clean.values > 0))
        self.n_train_ = clean.n_train
        self.positive_ratio_ = self.positive_count_ / self.n_train_
        self.parameters_ = {name: clean.parameters[name] for name in MUST_AGREE if name in clean.parameters}
        self.fingerprint_ = clean.fingerprint
        return self

    def transform(self, noisy: Valuation) -> Valuation:
        """Correct values computed on another version of the validation set.

        Parameters
        ----------
        noisy : Valuation
            Values of the same training rows, by the same method, not corrected yet.

        Returns
        -------
        Valuation
            With corrected ``values`` and, by the same maps, ``level_values``, which still average to ``values``.
            ``parameters["correction"]`` holds the report, also kept as ``report_``. ``matrix`` is None and there are
            no validation groups: the correction acts on the split by entropy, which both cut across.
        """
        check_is_fitted(self)
        self._check_parameters()
        self._check_comparable(noisy)
        levels = np.array(noisy.level_values, dtype=np.float64)
        groups: dict[str, dict[str, float | None]] = {}
        notes: list[str] = []
        for name, members, scores in self._split(noisy):
            mean, spread, count = float(scores.mean()), _spread(scores), int(noisy.level_counts[members].sum())
            alpha = self._alpha(name, spread, count, notes)
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
            f"The noisy validation set has no {name} points, the clean one has {count}: they count for nothing."
            for name, count in self.group_counts_.items()
            if name not in groups
        ]
        scores = weighted_mean(levels, noisy.level_counts)
        shift = self._shift(scores, notes)
        values, levels = scores + shift, levels + shift
        factor = sum_factor(values, float(noisy.values.sum())) if self.preserve_sum else 1.0
        if factor is None:
            factor = 1.0
            notes.append(
                "The corrected values are all of one sign and cannot have the sum of the noisy ones: the positive "
                "count is kept, the sum is not."
            )
        by_row = np.where(values > 0, factor, 1 / factor)
        values, levels = values * by_row, levels * by_row
        for note in notes:
            warn(note, CorrectionWarning)
        self.report_ = CorrectionReport(
            corrector=type(self).__name__,
            positive=self.positive,
            preserve_sum=bool(self.preserve_sum),
            min_points=int(self.min_points),
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
            noisy,
            values=values,
            level_values=levels,
            group_means=np.empty((0, noisy.n_train)),
            group_names=(),
            group_sizes=(),
            matrix=None,
            # The maps were learned from values with errors, so a bound on those says nothing about these.
            error_bound=None if noisy.error_bound is None else np.full(noisy.n_train, np.inf),
            standard_error=None,  # of the values as they were
            parameters={**noisy.parameters, "correction": self.report_.to_dict()},
        )

    def correct(self, model: Any, X_val: Any, y_val: Any) -> Valuation:
        """Value a noisy validation set and correct; what ``model.value(..., correction=...)`` calls."""
        return self.transform(model.value(X_val, y_val))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted numbers to a JSON file, atomically. It holds nothing of the clean points.

        Parameters
        ----------
        path : path-like
        """
        check_is_fitted(self)
        whole = {
            "format": f"shapshift.{type(self).__name__}",
            "version": FORMAT_VERSION,
            "parameters": self.get_params(),
            "fitted": {name: getattr(self, name) for name in self._fitted_names()},
        }
        # There and back, so that NumPy numbers among the parameters become plain ones.
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
            If the file is missing, damaged, or something else.
        """
        kind = f"shapshift.{cls.__name__}"
        with reading(path, kind):
            with open(path, encoding="utf-8") as file:
                body = json.load(file)
            check_header(body, kind, FORMAT_VERSION)
            if body.pop("checksum") != _checksum(body):
                raise ValueError("its checksum does not match its content")
            corrector = cls(**body["parameters"])
            corrector._check_parameters()
            for name in corrector._fitted_names():
                setattr(corrector, name, body["fitted"][name])
            corrector.positive_ratio_ = corrector.positive_count_ / corrector.n_train_
        return corrector

    def _split(self, valuation: Valuation) -> list[tuple[str, npt.NDArray[np.int64], Floats]]:
        """Name, levels and mean score of each part."""
        names = self._group_names(valuation.level_entropy)
        parts = []
        for name in dict.fromkeys(names):
            members = np.flatnonzero([other == name for other in names])
            scores = weighted_mean(valuation.level_values[members], valuation.level_counts[members])
            parts.append((name, members, scores))
        return parts

    def _alpha(self, name: str, spread: float, count: int, notes: list[str]) -> float:
        """Return the factor that restores the clean spread of a part, and note where there is none."""
        if name not in self.group_std_:
            notes.append(
                f"The clean validation set has no {name} points, the noisy one has {count}: they keep their spread."
            )
            return 1.0
        if min(count, self.group_counts_[name]) < self.min_points:
            notes.append(
                f"There are too few {name} points to compare spreads, {self.group_counts_[name]} in the clean and "
                f"{count} in the noisy validation set: they keep their spread. At least {self.min_points} are needed "
                "on both sides; min_points=1 rescales whatever there is."
            )
            return 1.0
        if spread == 0:
            notes.append(
                f"All rows have equal scores on the {name} points of the noisy set: nothing is rescaled there."
            )
            return 1.0
        if self.group_std_[name] == 0:
            notes.append(
                f"All rows have equal scores on the {name} points of the clean set: they become equal here too."
            )
        return self.group_std_[name] / spread

    def _shift(self, scores: Floats, notes: list[str]) -> float:
        """Return b, and note where the positive count cannot be met."""
        if self.positive == "nearest":
            return -float(np.quantile(scores, 1 - self.positive_ratio_, method="nearest"))
        shift = exact_shift(scores, self.positive_count_)
        reached = int(np.count_nonzero(scores + shift > 0))
        if reached != self.positive_count_:
            notes.append(
                f"{self.positive_count_} values should be positive, {reached} are: rows with equal values cannot be "
                "told apart."
            )
        return shift

    def _fitted_names(self) -> tuple[str, ...]:
        return ("group_std_", "group_counts_", "positive_count_", "n_train_", "parameters_", "fingerprint_")

    def _check_parameters(self) -> None:
        owner = type(self).__name__
        check.check_choice(owner, "positive", self.positive, ("exact", "nearest"))
        check.check_flag(owner, "preserve_sum", self.preserve_sum)
        check.check_count(owner, "min_points", self.min_points)

    def _check_comparable(self, noisy: Valuation) -> None:
        check_uncorrected(type(self).__name__ + ".transform", "noisy", noisy)
        if noisy.fingerprint != self.fingerprint_:
            raise ValueError(
                "'noisy' values other training rows than the clean valuation did (their fingerprints differ). Use one "
                "fitted model for both, or fit the corrector on a clean valuation of these rows."
            )
        check_alike("noisy", noisy, self.parameters_)


def _spread(scores: Floats) -> float:
    """Return the standard deviation over rows, 0 where it is nothing but rounding."""
    spread = float(scores.std())
    return spread if spread > NO_SPREAD * float(np.abs(scores).max()) else 0.0


def _summary(values: Floats) -> dict[str, float]:
    found = summarize(values)
    return {name: found[name] for name in ("mean", "std", "positive_count")} | {"sum": float(values.sum())}


def check_valuation(owner: str, name: str, valuation: object) -> None:
    """Refuse anything but a Valuation."""
    if not isinstance(valuation, Valuation):
        raise TypeError(
            f"The {name!r} parameter of {owner} must be a Valuation, as the value method of a model returns. Got "
            f"{type(valuation).__name__} instead."
        )


def check_uncorrected(owner: str, name: str, valuation: Valuation) -> None:
    """Refuse anything but a Valuation as a model returned it: a correction is made for those, once."""
    check_valuation(owner, name, valuation)
    if "correction" in valuation.parameters:
        made_by = valuation.parameters["correction"]["corrector"]
        raise ValueError(
            f"The {name!r} parameter of {owner} has been corrected already, by {made_by}. Pass the valuation that the "
            "model returned."
        )


def check_alike(name: str, valuation: Valuation, clean: Mapping[str, Any]) -> None:
    """Refuse values that were computed otherwise than the clean ones, given the parameters of these."""
    for key in MUST_AGREE:
        if key in clean and key in valuation.parameters and valuation.parameters[key] != clean[key]:
            raise ValueError(
                f"{name!r} was computed with {key}={valuation.parameters[key]!r}, the clean valuation with "
                f"{key}={clean[key]!r}. Compute both alike."
            )


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.blake2b(json.dumps(body, sort_keys=True, allow_nan=False).encode(), digest_size=16).hexdigest()
