"""When values count as stable: the thresholds a verdict rests on."""

from dataclasses import dataclass

import numpy as np

from shapshift.exceptions import InputError

#: Mean, lower and upper bound.
Interval = tuple[float, float, float]

#: From good to bad. "undefined" is better than what is known to be bad, and not as good as what is known to hold.
VERDICTS = ("stable", "undefined", "shifts", "unstable")
#: Values whose standard deviation falls to this share of the clean one are all equal, up to rounding.
COLLAPSED = 1e-9


@dataclass(frozen=True)
class Thresholds:
    """Where "stable" ends and "unstable" begins; all compare means over the repeats of one level.

    A level is unstable if the Spearman correlation with the clean values is below ``unstable_spearman``, more than the
    share ``unstable_flips`` of the rows change sign, or the values collapse: all rows get the same one, so that their
    order is lost. It is stable if the correlation is at least ``stable_spearman``, at most ``stable_flips`` of the rows
    change sign, and the standard deviation of the values is within ``stable_std_change`` of the clean one, relatively.
    Otherwise it shifts. Where a statistic is not defined (a correlation over one row, or with clean values that are
    all equal) and the others do not make the level unstable, the verdict is "undefined".

    Parameters
    ----------
    stable_spearman, unstable_spearman : float
        From -1 to 1, the second at most the first.
    stable_flips, unstable_flips : float
        Shares of the training rows, the second at least the first.
    stable_std_change : float
        At least 0; 0.1 lets the standard deviation change by a tenth.

    Examples
    --------
    >>> Thresholds().judge(spearman=0.95, flips=0.01, std_ratio=0.8)
    'shifts'
    >>> Thresholds(stable_std_change=0.25).judge(spearman=0.95, flips=0.01, std_ratio=0.8)
    'stable'
    >>> Thresholds().judge(spearman=float("nan"), flips=0.0, std_ratio=1.0)
    'undefined'
    """

    stable_spearman: float = 0.9
    unstable_spearman: float = 0.5
    stable_flips: float = 0.05
    unstable_flips: float = 0.25
    stable_std_change: float = 0.1

    def __post_init__(self) -> None:
        for name, lowest, highest in (
            ("stable_spearman", -1.0, 1.0),
            ("unstable_spearman", -1.0, self.stable_spearman),
            ("stable_flips", 0.0, 1.0),
            ("unstable_flips", self.stable_flips, 1.0),
            ("stable_std_change", 0.0, np.inf),
        ):
            value = getattr(self, name)
            number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
            if not number or not lowest <= value <= highest:
                raise InputError(
                    f"The {name!r} parameter of Thresholds must be a number from {lowest:g} to {highest:g}. Got "
                    f"{value!r} instead."
                )
            object.__setattr__(self, name, float(value))

    def judge(self, *, spearman: float, flips: float, std_ratio: float) -> str:
        """Judge one level.

        Parameters
        ----------
        spearman : float
            Correlation with the clean values.
        flips : float
            Share of the rows that change sign.
        std_ratio : float
            Standard deviation of the values over that of the clean values.

        Returns
        -------
        {"stable", "shifts", "unstable", "undefined"}
        """
        if spearman < self.unstable_spearman or flips > self.unstable_flips or std_ratio <= COLLAPSED:
            return "unstable"
        if np.isnan([spearman, flips, std_ratio]).any():
            return "undefined"
        moved = (
            spearman < self.stable_spearman or flips > self.stable_flips or abs(std_ratio - 1) > self.stable_std_change
        )
        return "shifts" if moved else "stable"

    def borderline(self, *, spearman: Interval, flips: Interval, std_ratio: Interval) -> bool:
        """Tell whether another verdict lies within the confidence intervals.

        Each statistic is moved through its interval while the others stay at their means.

        Parameters
        ----------
        spearman, flips, std_ratio : (float, float, float)
            Mean, lower and upper bound, see :meth:`judge`. Bounds that are NaN move nothing.

        Returns
        -------
        bool
        """
        given = {"spearman": spearman, "flips": flips, "std_ratio": std_ratio}
        means = {name: interval[0] for name, interval in given.items()}
        verdict = self.judge(**means)
        for name, (_, low, high) in given.items():
            if np.isnan([low, high]).any():
                continue
            # The bounds will do where more is better or worse throughout; a ratio is best at 1.
            ends = (low, high, min(max(1.0, low), high)) if name == "std_ratio" else (low, high)
            if any(self.judge(**{**means, name: end}) != verdict for end in ends):
                return True
        return False

    def __str__(self) -> str:
        return (
            f"stable: Spearman >= {self.stable_spearman:g}, sign flips in <= {self.stable_flips:.0%} of the rows, and "
            f"std within {self.stable_std_change:.0%}; unstable: Spearman < {self.unstable_spearman:g}, or sign flips "
            f"in > {self.unstable_flips:.0%} of the rows, or all values equal"
        )


def check_thresholds(thresholds: object) -> Thresholds:
    """Refuse anything but Thresholds; None means the default ones."""
    if thresholds is None:
        return Thresholds()
    if not isinstance(thresholds, Thresholds):
        raise InputError(
            "The 'thresholds' parameter must be a Thresholds object, such as Thresholds(stable_spearman=0.8). Got "
            f"{thresholds!r} instead."
        )
    return thresholds
