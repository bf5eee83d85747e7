"""Results of the cases."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from shapshift.agreement import t_interval
from shapshift.checks import inputs as check
from shapshift.exceptions import InputError
from shapshift.io.results import to_table

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# Values smaller than this share of the largest are rounding errors of 0.
ROUNDING = 1e-12


def signs(values: Floats) -> npt.NDArray[np.int8]:
    """-1, 0 or 1 for each value, 0 for what is 0 up to rounding.

    On two points of different classes out of two, the rows far from both have a value of exactly 0: what they gain on
    one they lose on the other. Rounding must not decide whether they count as positive.

    Examples
    --------
    >>> signs(np.array([0.1, -1e-18, -0.2])).tolist()
    [1, 0, -1]
    """
    size = np.abs(values)
    return np.where(size > ROUNDING * size.max(), np.sign(values), 0).astype(np.int8)


@dataclass(frozen=True, eq=False)
class Example:
    """The values of one point or pair before and after one draw of noise.

    Attributes
    ----------
    noise : float
        The noise level.
    before, after : ndarray of shape (n_train,)
        Values of the training rows.
    """

    noise: float
    before: Floats
    after: Floats

    @property
    def lost(self) -> npt.NDArray[np.bool_]:
        """Rows that are positive before and no longer after."""
        return (signs(self.before) > 0) & (signs(self.after) <= 0)

    @property
    def gained(self) -> npt.NDArray[np.bool_]:
        """Rows that are positive after and were not before."""
        return (signs(self.before) <= 0) & (signs(self.after) > 0)


@dataclass(frozen=True, eq=False)
class FeatureMap:
    """Training rows and validation points in two dimensions.

    Attributes
    ----------
    axes : (str, str)
        What the two coordinates are: features, or principal components of the training rows when there are more than
        two features.
    rows : ndarray of shape (n_train, 2)
    codes : ndarray of int32 of shape (n_train,)
        Class number of each training row; all 0 where the model does not tell.
    before, after : ndarray of shape (n_points, 2)
        The validation points before and after the noise.
    """

    axes: tuple[str, str]
    rows: Floats
    codes: npt.NDArray[np.int32]
    before: Floats
    after: Floats


@dataclass(frozen=True, eq=False, repr=False)
class _Case:
    """Fields and methods of both cases.

    Attributes
    ----------
    parameters : mapping
        What made the result, ready for JSON.
    noise : ndarray of shape (n_levels,)
        Noise levels; the first is 0, the clean points.
    points : ndarray of int64
        Positions in the validation set: one row per point or pair.
    labels : ndarray
        Their labels, in the shape of ``points``.
    entropy : ndarray
        Their neighbour-label entropy before any noise, in the shape of ``points``.
    samples : mapping of str to ndarray of shape (n_levels, n_sets, repeats)
        Every statistic for every level, point or pair, and repeat.
    example : Example
        The first point or pair and the first draw of noise, at one level.
    """

    parameters: Mapping[str, Any]
    noise: Floats
    points: Ints
    labels: npt.NDArray[Any]
    entropy: Floats
    samples: Mapping[str, Floats]
    example: Example

    def interval(self, statistic: str, confidence: float = 0.95) -> tuple[Floats, Floats, Floats]:
        """Mean of a statistic at each level, with the bounds of its confidence interval.

        With one point or pair the interval is over repeats. With several it is over points or pairs, whose repeats
        are averaged first: repeats at one point say nothing about other points.

        Parameters
        ----------
        statistic : str
            A key of ``samples``.
        confidence : float, default=0.95

        Returns
        -------
        mean, low, high : ndarray of shape (n_levels,)
            Student's t interval; its bounds are NaN when there is one observation only.
        """
        check.check_choice(type(self).__name__, "statistic", statistic, tuple(self.samples))
        if not 0 < confidence < 1:
            raise InputError(
                f"The 'confidence' parameter must lie between 0 and 1. Got {check.quoted(confidence)} instead."
            )
        observed = self.samples[statistic]
        observed = observed.mean(axis=2) if observed.shape[1] > 1 else observed[:, 0]
        mean, n = observed.mean(axis=1), observed.shape[1]
        return mean, *t_interval(mean, observed.std(axis=1, ddof=1 if n > 1 else 0), n, confidence)

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate every statistic: one row per noise level.

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"
            "numpy" means pandas if it is installed, else pyarrow.

        Returns
        -------
        table
            ``noise``, then mean, ``_low`` and ``_high`` (95% confidence) of each statistic.
        """
        columns: dict[str, npt.NDArray[Any]] = {"noise": self.noise}
        for name in self.samples:
            for suffix, column in zip(("", "_low", "_high"), self.interval(name), strict=True):
                columns[name + suffix] = column
        return to_table(columns, None, kind)


@dataclass(frozen=True, eq=False, repr=False)
class CaseOne(_Case):
    """One validation point across noise levels; see :func:`case_one`.

    Attributes
    ----------
    parameters, noise, points, labels, entropy, samples, example
        ``points`` has one entry per point. The statistics in ``samples`` are ``min``, ``max``, ``range``, ``std`` and
        ``positive_count`` of the training rows' values; ``range_ratio`` and ``std_ratio``, to those of the same point
        without noise; ``sign_kept``, the share of rows that are positive before and after or neither;
        ``prediction_changed`` (0 or 1; NaN where the model does not tell neighbours), whether the vote of the
        nearest training rows changes, an equal vote going to the first class; and ``boundary`` (0 or 1), whether the
        noisy point is a boundary point.
    kind : str
        "boundary", "nonboundary", or "mixed" for given points of both kinds.
    """

    kind: str

    def plot(self, *others: "CaseOne") -> Any:
        """Draw values before and after, and spread and positive count against noise, together with ``others``.

        Returns
        -------
        ndarray of Axes
        """
        from shapshift.plots.mechanism import plot_case_one

        return plot_case_one(self, *others)

    def __repr__(self) -> str:
        ratio = self.interval("std_ratio")[0][-1]
        return f"CaseOne({self.kind}, points={len(self.points)}, std_ratio={ratio:.3g} at noise {self.noise[-1]:g})"


@dataclass(frozen=True, eq=False, repr=False)
class CaseTwo(_Case):
    """Two validation points of different classes across noise levels; see :func:`case_two`.

    Attributes
    ----------
    parameters, noise, points, labels, entropy, samples, example
        ``points`` has one row per pair. The statistics in ``samples`` are ``positive_to_negative`` and
        ``negative_to_positive``, numbers of training rows that stop and start being positive, so that their
        difference is that of the positive counts; ``positive_to_zero`` and ``zero_to_positive``, those among them
        whose value is exactly 0 after and before (0 is not positive); ``positive_count``; ``positive_change``, from
        before to after; ``std``; and ``std_ratio``, to the std before.
    scenario : str
        "BB", "NN" or "BN", or "mixed" for given pairs of several kinds.
    map : FeatureMap or None
        Where the training rows and the example's two points lie; None without training rows.
    """

    scenario: str
    map: FeatureMap | None

    def plot(self, *others: "CaseTwo") -> Any:
        """Draw values before against after and where the changed rows lie, together with ``others``.

        Returns
        -------
        ndarray of Axes
        """
        from shapshift.plots.mechanism import plot_case_two

        return plot_case_two(self, *others)

    def plot_levels(self, *others: "CaseTwo") -> Any:
        """Draw the numbers of rows that change sign against the noise level, together with ``others``.

        Returns
        -------
        ndarray of Axes
        """
        from shapshift.plots.mechanism import plot_case_two_levels

        return plot_case_two_levels(self, *others)

    def __repr__(self) -> str:
        lost, gained = (self.interval(name)[0][-1] for name in ("positive_to_negative", "negative_to_positive"))
        return (
            f"CaseTwo({self.scenario}, pairs={len(self.points)}, positive_to_negative={lost:.1f}, "
            f"negative_to_positive={gained:.1f} at noise {self.noise[-1]:g})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class NoiseDemo:
    """One validation point, its noisy version, and the nearest training rows of both; see :func:`noise_demo`.

    Attributes
    ----------
    parameters : mapping
        What made the result, ready for JSON.
    noise : float
    point : int
        Position in the validation set.
    label : object
    map : FeatureMap
    ids : ndarray of shape (n_train,)
        Ids of the training rows.
    classes : ndarray
        Names of the classes, by class number.
    before, after : ndarray of int64
        Positions of the nearest training rows, nearest first.
    id_names : tuple
        Names of the levels of the caller's index.
    """

    parameters: Mapping[str, Any]
    noise: float
    point: int
    label: Any
    map: FeatureMap
    ids: npt.NDArray[Any]
    classes: npt.NDArray[Any]
    before: Ints
    after: Ints
    id_names: tuple[Any, ...] = ("id",)

    @property
    def shared(self) -> Ints:
        """Rows that are among the nearest both before and after."""
        return np.intersect1d(self.before, self.after)

    def to_frame(self, kind: str = "numpy") -> Any:
        """Tabulate the neighbours: id, class, and rank before and after (1 is the nearest, 0 not among them).

        Parameters
        ----------
        kind : {"numpy", "pandas", "polars", "pyarrow"}, default="numpy"

        Returns
        -------
        table
        """
        rows = np.array(list(dict.fromkeys([*self.before.tolist(), *self.after.tolist()])), dtype=np.int64)
        ranks = {}
        for name, nearest in (("rank_before", self.before), ("rank_after", self.after)):
            found = rows[:, None] == nearest[None, :]
            ranks[name] = np.where(found.any(axis=1), found.argmax(axis=1) + 1, 0)
        return to_table({"class": self.classes[self.map.codes[rows]], **ranks}, self.ids[rows], kind, self.id_names)

    def plot(self) -> Any:
        """Draw the whole distribution and a zoom on the point.

        Returns
        -------
        ndarray of two Axes
        """
        from shapshift.plots.mechanism import plot_noise_demo

        return plot_noise_demo(self)

    def __repr__(self) -> str:
        return (
            f"NoiseDemo(point={self.point}, noise={self.noise:g}, neighbors={self.before.size}, "
            f"shared={self.shared.size})"
        )
