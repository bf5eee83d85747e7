"""The claims of the paper, their readings, and their verdicts: one cell per claim and setting.

A claim is translated to statistics, one number per seed and noise level, and a range in which they should lie. Each
claim is judged by its first reading; the others show the result with another threshold, level or statistic. A cell is
"for" a claim if the whole confidence interval lies in the range, at every level and for every kind of point in the
reading, "against" it if one interval lies outside, and else "undecided".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from experiments.cells import DATASETS, REAL
from experiments.paper import TOP, PaperSettings
from experiments.tables import Interval, interval
from shapshift.mechanism import KINDS, SCENARIOS

HOLDS, PARTLY, FAILS, OPEN = "holds", "holds in part", "does not hold", "undecided"
FOR, AGAINST, UNDECIDED = "for", "against", "undecided"
#: Probability that any interval misses, over all intervals of one question about a claim.
ERROR = 0.05
FACTORS = ("boundary factor", "nonboundary factor")


class Setting(NamedTuple):
    """A dataset and its protocol; the defaults are the paper's."""

    dataset: str
    protocol: str = "balanced"
    utility: str = "soft"

    @property
    def group(self) -> str:
        """Question that the setting belongs to."""
        return "hard utility" if self.utility == "hard" else f"{self.protocol} classes"


def setting_of(row: Any) -> Setting:
    """Return the setting of a row of a table."""
    return Setting(row["dataset"], row["protocol"], row["utility"])


#: All settings, in the order of the matrix.
SETTINGS = (
    *(Setting(name) for name in DATASETS),
    *(Setting(name, "natural") for name in REAL),
    *(Setting(name, utility="hard") for name in DATASETS),
)
GROUPS = tuple(dict.fromkeys(setting.group for setting in SETTINGS))

#: One number per seed (rows) and noise level (columns), for each kind of point or pair in a claim.
Samples = dict[str, pd.DataFrame]


class Runs:
    """Tables of all runs, looked up by setting.

    Parameters
    ----------
    whole, cases : DataFrame
        Runs on whole validation sets, and on single points and pairs: one row per setting, seed, version and level.
    """

    def __init__(self, whole: pd.DataFrame, cases: pd.DataFrame) -> None:
        self._tables: dict[Setting, list[Any]] = {}  # pandas' types do not know columns of several levels
        for table in (whole, cases):
            if table.empty:
                continue
            for _, part in table.groupby(["dataset", "protocol", "utility"], sort=False):
                numbers = part.drop(columns=["dataset", "protocol", "utility"])
                wide = numbers.pivot(index="seed", columns=["version", "sigma"]).sort_index(axis=1)
                self._tables.setdefault(setting_of(part.iloc[0]), []).append(wide)

    def at(self, setting: Setting, statistic: str, version: str) -> pd.DataFrame:
        """Return a statistic, one row per seed and one column per level; KeyError if it was not run."""
        for table in self._tables.get(setting, ()):
            if (statistic, version) in table.columns.droplevel(2):
                found: pd.DataFrame = table[statistic, version]
                return found
        raise KeyError(f"{statistic} of {version} was not run for {setting}")

    def clean(self, setting: Setting, statistic: str) -> pd.Series:
        """Return a statistic of the clean runs, one number per seed."""
        return self.at(setting, statistic, "clean")[0.0]


Statistic = Callable[[Runs, Setting], Samples]


# --- statistics ------------------------------------------------------------------------------------------------------


def change(statistic: str, version: str = "noisy") -> Statistic:
    """Change against the clean run of the same split, in percent."""

    def compute(runs: Runs, setting: Setting) -> Samples:
        clean = runs.clean(setting, statistic)
        return {"": 100 * runs.at(setting, statistic, version).sub(clean, axis=0).div(clean.abs(), axis=0)}

    return compute


def trend(statistic: str, first: float, last: float, level: float) -> Statistic:
    """Change from one level to another in percent of the clean number, assigned to a third level."""

    def compute(runs: Runs, setting: Setting) -> Samples:
        at = runs.at(setting, statistic, "noisy")
        return {"": (100 * (at[last] - at[first]) / runs.clean(setting, statistic).abs()).to_frame(level)}

    return compute


def difference(statistic: str, version: str = "noisy", than: str = "clean") -> Statistic:
    """A statistic of one version minus that of another."""

    def compute(runs: Runs, setting: Setting) -> Samples:
        other = runs.clean(setting, statistic) if than == "clean" else runs.at(setting, statistic, than)
        return {"": runs.at(setting, statistic, version).sub(other, axis=0)}

    return compute


def contrast(statistic: str, version: str, than: str) -> Statistic:
    """Change under one version minus the change under another, in percent of the clean number."""

    def compute(runs: Runs, setting: Setting) -> Samples:
        return {"": change(statistic, version)(runs, setting)[""] - change(statistic, than)(runs, setting)[""]}

    return compute


def gap(statistic: str, version: str, than: str = "noisy") -> Statistic:
    """Distance of one version to the clean run minus that of another, in percent of the clean number."""

    def compute(runs: Runs, setting: Setting) -> Samples:
        mine, other = (change(statistic, name)(runs, setting)[""].abs() for name in (version, than))
        return {"": mine - other}

    return compute


def mainly(statistic: str, version: str, other: str) -> Statistic:
    """Gap that one part of the correction leaves, minus that of the noisy values, and minus that of another part.

    Defined only if noise lowers the statistic at the highest level: otherwise there is no loss to correct.
    """

    def compute(runs: Runs, setting: Setting) -> Samples:
        if change(statistic)(runs, setting)[""].iloc[:, -1].mean() >= 0:
            raise KeyError(f"noise does not lower {statistic} for {setting}")
        return {f"than {name}": gap(statistic, version, name)(runs, setting)[""] for name in ("noisy", other)}

    return compute


def together(statistics: Mapping[str, Statistic]) -> Statistic:
    """Samples of several statistics, with the keys before their names."""
    return lambda runs, setting: {
        f"{key}{name}": frame
        for key, statistic in statistics.items()
        for name, frame in statistic(runs, setting).items()
    }


def ratio(statistic: str, version: str, than: str = "noisy") -> Statistic:
    """A statistic of one version divided by that of another."""

    def compute(runs: Runs, setting: Setting) -> Samples:
        return {"": runs.at(setting, statistic, version) / runs.at(setting, statistic, than)}

    return compute


def plain(statistic: str, *versions: str) -> Statistic:
    """A statistic of each version."""

    def compute(runs: Runs, setting: Setting) -> Samples:
        return {version: runs.at(setting, statistic, version) for version in versions}

    return compute


def count_change(runs: Runs, setting: Setting) -> Samples:
    """Change of the positive count on single points."""
    counts = {kind: runs.at(setting, "positive_count", kind) for kind in ("B", "N")}
    return {kind: count.sub(count[0.0], axis=0) for kind, count in counts.items()}


def cancelled_more(runs: Runs, setting: Setting) -> Samples:
    """Rise of the cancellation on boundary points minus that on the others."""
    rise = {name: difference(f"cancelled_{name}")(runs, setting)[""] for name in KINDS}
    return {"": rise["boundary"] - rise["nonboundary"]}


def lost_per_gained(runs: Runs, setting: Setting) -> Samples:
    """Ratio of rows that stop being positive to rows that become positive."""
    return {
        name: runs.at(setting, "positive_to_negative", name)
        / runs.at(setting, "negative_to_positive", name).clip(lower=1)
        for name in SCENARIOS
    }


def lead_of_nn(statistic: str, sign: int, *, relative: bool = False) -> Statistic:
    """Difference of the fall with two non-boundary points to that in each of the two other scenarios."""

    def compute(runs: Runs, setting: Setting) -> Samples:
        falls = {name: sign * runs.at(setting, statistic, name) for name in SCENARIOS}
        if relative:
            for name in SCENARIOS:
                falls[name] = 100 * falls[name].div(runs.at(setting, "positive_count", name)[0.0], axis=0)
        return {name: falls["NN"] - falls[name] for name in ("BB", "BN")}

    return compute


# --- readings and claims ---------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """A statistic and its claimed range.

    Attributes
    ----------
    name : str
    statistic : callable
    levels : tuple of float
        Noise levels of the reading.
    low, high : float
        Bounds of the claimed range.
    parts : {"", "kinds", "levels"}
        Parts (kinds of points or pairs, or noise levels) for which a claim can hold separately: then it holds in part.
    """

    name: str
    statistic: Statistic
    levels: tuple[float, ...]
    low: float = -np.inf
    high: float = np.inf
    parts: str = ""

    def says(self, found: Interval) -> str:
        """Verdict of one interval."""
        if self.low < found.low and found.high < self.high:
            return FOR
        return AGAINST if found.low >= self.high or found.high <= self.low else UNDECIDED


@dataclass(frozen=True)
class Claim:
    """A claim of the paper and its readings.

    Attributes
    ----------
    number : int
    topic : str
    text, short : str
        The paper's statement, and a few words for the figure.
    source : str
        Place in the paper.
    own : tuple of str
        Datasets on which the paper shows it; with balanced classes and the soft utility they are the claim's own
        setting.
    readings : tuple of Reading
        The first one decides the verdict.
    form : str
        Format of the number in a cell.
    before : Statistic, optional
        Number shown before the main one, with an arrow: the effect of noise before correction.
    claimed : bool
        Whether the paper claims it; if not, it is additional information for users.
    """

    number: int
    topic: str
    text: str
    short: str
    source: str
    own: tuple[str, ...]
    readings: tuple[Reading, ...]
    form: str
    shown: tuple[Statistic, ...] = ()
    claimed: bool = True

    def is_own(self, setting: Setting) -> bool:
        """Whether the paper shows this claim in this setting."""
        return setting.dataset in self.own and setting == Setting(setting.dataset)


def claims(settings: PaperSettings) -> list[Claim]:
    """Return every claim, for the noise levels of the settings."""
    level, point, small, modest = settings.level, settings.point_level, settings.small, settings.modest
    strong = settings.strong
    figure2, one, all_seven = ("gaussian", "creditcard"), ("gaussian",), DATASETS
    made: list[Claim] = []

    def add(
        topic: str, text: str, short: str, source: str, own: tuple[str, ...], form: str, *readings: Reading, **more: Any
    ) -> None:
        kept = tuple(reading for reading in readings if set(reading.levels) <= set(settings.noise))
        made.append(Claim(len(made) + 1, topic, text, short, source, own, kept, form, **more))

    def falls(statistic: str, text: str, short: str, *more: Reading) -> None:
        moved = change(statistic)
        add(
            "Shift",
            text,
            short,
            "section 4, figure 2",
            figure2,
            "+.0f%",
            Reading(f"below 0 at noise {level:g}", moved, (level,), high=0),
            Reading(f"below 0 at noise {point:g}", moved, (point,), high=0),
            Reading(f"below 0 from noise {point:g} on", moved, strong, high=0),
            Reading(f"below -10% at noise {level:g}", moved, (level,), high=-10),
            *more,
        )

    falls("mean", "Noise lowers the mean value.", "mean falls")
    falls("std", "Noise compresses values: the standard deviation falls.", "std falls")
    lower = trend("positive_count", point, settings.noise[-1], level)
    falls(
        "positive_count",
        "Fewer values are positive.",
        "positive count falls",
        Reading(f"lower at noise {settings.noise[-1]:g} than at {point:g}", lower, (level,), high=0),
    )
    falls("size", "Values move towards zero: their mean size falls.", "mean |value| falls")
    add(
        "Shift",
        "Even modest noise shifts values: their mean falls.",
        f"mean falls at noise {modest:g}",
        "abstract, section 4",
        figure2,
        "+.1f%",
        Reading(f"mean below 0 at noise {modest:g}", change("mean"), (modest,), high=0),
        Reading(f"standard deviation below 0 at noise {modest:g}", change("std"), (modest,), high=0),
        Reading(f"positive count below 0 at noise {modest:g}", change("positive_count"), (modest,), high=0),
        Reading(f"mean below 0 at noise {small:g}", change("mean"), (small,), high=0),
    )
    add(
        "Shift",
        "Small noise changes the nearest neighbours.",
        f"neighbours kept at noise {small:g}",
        "section 4, figure 1",
        one,
        ".2f",
        Reading(f"overlap below 0.9 at noise {small:g}", plain("jaccard", "noisy"), (small,), high=0.9),
        Reading(f"overlap below 0.5 at noise {small:g}", plain("jaccard", "noisy"), (small,), high=0.5),
        Reading(f"overlap below 0.5 at noise {point:g}", plain("jaccard", "noisy"), (point,), high=0.5),
    )

    def case(text: str, short: str, form: str, *readings: Reading, source: str = "section 5, figure 3") -> None:
        topic = "One point" if source.endswith("3") else "Two points"
        add(topic, text, short, source, one, form, *readings)

    case(
        "One point: the positive count stays (by construction).",
        "count change, rows",
        ".0f",
        Reading("within one row, all levels", count_change, settings.noise, -1, 1, parts="kinds"),
    )
    case(
        "One non-boundary point: signs stay (by construction).",
        "share of signs kept",
        ".2f",
        Reading("above 99%, all levels", plain("sign_kept", "N"), settings.noise, low=0.99),
    )
    typical, average = plain("typical_std", "B"), plain("std_ratio", "B")
    case(
        "One boundary point: the standard deviation falls significantly.",
        "boundary point: std ratio",
        ".2f",
        Reading(f"median ratio below 0.9 at noise {point:g}", typical, (point,), high=0.9),
        Reading(f"median below 0.5 at noise {point:g}", typical, (point,), high=0.5),
        Reading(f"mean below 0.9 at noise {point:g}", average, (point,), high=0.9),
        Reading(f"median below 0.9 at noise {small:g}", typical, (small,), high=0.9),
    )
    typical, average, near = plain("typical_std", "N"), plain("std_ratio", "N"), (small, modest, point)
    case(
        "One non-boundary point: the standard deviation keeps still.",
        "non-boundary point: std ratio",
        ".2f",
        Reading(f"median ratio within 10% of 1, {_listed(near)}", typical, near, 0.9, 1.1, parts="levels"),
        Reading(f"median within 5%, {_listed(near)}", typical, near, 0.95, 1.05, parts="levels"),
        Reading(f"mean within 10%, {_listed(near)}", average, near, 0.9, 1.1, parts="levels"),
    )
    typical, average = plain("typical_range", "N"), plain("range_ratio", "N")
    case(
        "One non-boundary point: the range shrinks a little.",
        "non-boundary point: range ratio",
        ".2f",
        Reading(f"median ratio within 0.5 and 1, {_listed(near)}", typical, near, 0.5, 1, parts="levels"),
        Reading(f"mean within 0.5 and 1, {_listed(near)}", average, near, 0.5, 1, parts="levels"),
        Reading(f"median within 0.5 and 1 at noise {level:g}", typical, (level,), 0.5, 1),
    )
    changed = plain("prediction_changed", "N")
    case(
        "One non-boundary point: the prediction stays.",
        "predictions changed",
        ".1%",
        Reading(f"below 5% of draws, {_listed(near)}", changed, near, high=0.05, parts="levels"),
        Reading(f"below 5% at noise {small:g} only", changed, (small,), high=0.05),
        Reading(f"below 1% at noise {small:g} only", changed, (small,), high=0.01),
    )
    net = plain("positive_change", *SCENARIOS)
    case(
        "Two points: substantially fewer positive values in all scenarios.",
        "two points: count change",
        "+.0f",
        Reading(f"net fall above 50 rows at noise {point:g}", net, (point,), high=-50, parts="kinds"),
        Reading(f"net fall above 50 rows at noise {level:g}", net, (level,), high=-50, parts="kinds"),
        Reading(f"any net fall at noise {point:g}", net, (point,), high=0, parts="kinds"),
        Reading(f"any net fall at noise {level:g}", net, (level,), high=0, parts="kinds"),
        source="section 5, figure 4",
    )
    case(
        "Two points: far more rows turn negative than positive.",
        "rows lost per row gained",
        ".1f",
        Reading(f"lost per gained above 1.5 at noise {point:g}", lost_per_gained, (point,), low=1.5, parts="kinds"),
        Reading(f"ratio above 1 at noise {point:g}", lost_per_gained, (point,), low=1, parts="kinds"),
        Reading(f"ratio above 2 at noise {point:g}", lost_per_gained, (point,), low=2, parts="kinds"),
        Reading(f"ratio above 1.5 at noise {level:g}", lost_per_gained, (level,), low=1.5, parts="kinds"),
        source="section 5, figure 4",
    )
    lead, gross = lead_of_nn("positive_change", -1), lead_of_nn("positive_to_negative", 1)
    both = together({"net, than ": lead, "rows lost, than ": gross})
    falling = together({"": lambda runs, setting: {k: -v for k, v in net(runs, setting).items()}, "NN than ": lead})
    case(
        "Two points: the fall is largest with NN.",
        "lead of NN, rows",
        "+.0f",
        Reading(f"lead above 0, net and of rows lost, noise {point:g}", both, (point,), low=0, parts="kinds"),
        Reading(f"net only, noise {point:g}", lead, (point,), low=0),
        Reading(f"net by more than 100 rows, noise {point:g}", lead, (point,), low=100),
        Reading(f"rows lost only, noise {point:g}", gross, (point,), low=0),
        Reading(
            f"in percent of the count at noise {point:g}",
            lead_of_nn("positive_change", -1, relative=True),
            (point,),
            low=0,
        ),
        source="section 5, figure 4",
    )
    case(
        "The same at other noise levels.",
        "least net fall or lead, rows",
        "+.0f",
        Reading(f"net falls, and lead of NN, above 0 from noise {point:g} on", falling, strong, low=0, parts="kinds"),
        Reading(f"from noise {modest:g} on", falling, settings.from_modest, low=0, parts="kinds"),
        Reading(f"net lead of NN only, from noise {point:g} on", lead, strong, low=0),
        Reading(f"lead of NN in rows lost only, from noise {point:g} on", gross, strong, low=0),
        source="section 5, figure 5",
    )

    def mechanism(text: str, short: str, form: str, *readings: Reading, source: str = "conclusion") -> None:
        add("Mechanism", text, short, source, one, form, *readings)

    on_b, on_n = "noise on boundary", "noise on nonboundary"
    mechanism(
        "Noise on boundary points (B) narrows the range.",
        "noise on B: std change",
        "+.0f%",
        Reading(f"standard deviation falls at noise {level:g}", change("std", on_b), (level,), high=0),
        Reading(f"highest less lowest falls at noise {level:g}", change("range", on_b), (level,), high=0),
        Reading(f"standard deviation falls at noise {point:g}", change("std", on_b), (point,), high=0),
        source="section 5, conclusion",
    )
    spread_contrast = contrast("std", on_b, on_n)
    mechanism(
        "Boundary points account for the shrinking of values.",
        "std: noise on B less on N",
        "+.0f%",
        Reading(f"falls more than by noise on N, noise {level:g}", spread_contrast, (level,), high=0),
        Reading(f"the same at noise {point:g}", spread_contrast, (point,), high=0),
        source="section 5",
    )
    count_contrast = contrast("positive_count", on_n, on_b)
    mechanism(
        "Noise on the others (N) dominates the fall of positive values.",
        "count: noise on N less on B",
        "+.0f%",
        Reading(f"count falls more than by noise on B, noise {level:g}", count_contrast, (level,), high=0),
        Reading(f"the same at noise {point:g}", count_contrast, (point,), high=0),
        Reading(f"by 10 points more at noise {level:g}", count_contrast, (level,), high=-10),
        source="section 5, conclusion",
    )
    cancelled, top = difference("cancelled_boundary"), difference("top_nonboundary")
    mechanism(
        "On B, contributions cancel.",
        "cancellation on B",
        "+.2f",
        Reading(f"cancellation rises at noise {level:g}", cancelled, (level,), low=0),
        Reading(f"cancellation rises at noise {point:g}", cancelled, (point,), low=0),
        Reading(f"rises by 0.1 at noise {level:g}", cancelled, (level,), low=0.1),
    )
    mechanism(
        "Cancellation is mainly an effect on B.",
        "cancellation: on B less on N",
        "+.2f",
        Reading(f"rises more than on N, noise {level:g}", cancelled_more, (level,), low=0),
        Reading(f"the same at noise {point:g}", cancelled_more, (point,), low=0),
    )
    mechanism(
        "On N, positive contributions become less concentrated.",
        f"share of top {TOP:.0%} on N",
        "+.3f",
        Reading(
            f"share of top {TOP:.0%} falls, {_listed((point, level))}", top, (point, level), high=0, parts="levels"
        ),
        Reading(f"at noise {level:g} only", top, (level,), high=0),
        Reading(f"effective number of rows rises at noise {level:g}", change("effective_nonboundary"), (level,), low=0),
        Reading(f"of positive net values, noise {level:g}", difference("net_top_nonboundary"), (level,), high=0),
        Reading(f"on single points, noise {level:g}", difference("point_top_nonboundary"), (level,), high=0),
    )
    mechanism(
        "On N, fewer rows stay positive.",
        "positive rows on N",
        "+.0f%",
        Reading(f"count falls at noise {level:g}", change("positive_nonboundary"), (level,), high=0),
        Reading(f"count falls at noise {point:g}", change("positive_nonboundary"), (point,), high=0),
    )

    def correction(text: str, short: str, form: str, *readings: Reading, source: str, **more: Any) -> None:
        add("Correction", text, short, source, all_seven, form, *readings, **more)

    for statistic, what in (("std", "standard deviation"), ("positive_count", "positive count")):
        nearer = gap(statistic, "boundary")
        construction = " (by construction)" if statistic == "positive_count" else ""
        correction(
            f"The correction restores the {what}{construction}.",
            f"{'std' if statistic == 'std' else 'count'} gap, noisy → corrected",
            ".0f%",
            Reading(f"gap smaller at noise {level:g}", nearer, (level,), high=0),
            Reading(f"gap smaller at noise {point:g}", nearer, (point,), high=0),
            Reading(f"gap smaller from noise {point:g} on", nearer, strong, high=0),
            source="section 6, figures 6 to 8",
            shown=tuple(_size(change(statistic, version)) for version in ("noisy", "boundary")),
        )

    def narrows(version: str, text: str, **more: Any) -> None:
        nearer = ratio("wasserstein", version)
        correction(
            text,
            f"W1, noisy → {'corrected' if version == 'boundary' else 'normalised'}",
            ".2f",
            Reading(f"W1 falls by a quarter at noise {level:g}", nearer, (level,), high=0.75),
            Reading(f"W1 falls at noise {level:g}", nearer, (level,), high=1),
            Reading(f"W1 is halved at noise {level:g}", nearer, (level,), high=0.5),
            Reading(f"W1 falls at noise {point:g}", nearer, (point,), high=1),
            Reading(f"W1 falls from noise {point:g} on", nearer, strong, high=1),
            shown=(plain("wasserstein", "noisy"), plain("wasserstein", version)),
            **more,
        )

    narrows(
        "boundary", "The correction substantially narrows the gap in distribution.", source="section 6, figures 6 to 8"
    )
    for statistic, mine, other, text, short in (
        ("std", *FACTORS, "The boundary factor mainly corrects the spread.", "std gap left: B only | N only"),
        (
            "positive_count",
            *FACTORS[::-1],
            "The non-boundary factor mainly corrects the count.",
            "count gap left: N only | B only",
        ),
    ):
        correction(
            text,
            short,
            ".0f%",
            Reading(
                f"leaves less gap than none and the other, noise {level:g}",
                mainly(statistic, mine, other),
                (level,),
                high=0,
            ),
            Reading(f"the same at noise {point:g}", mainly(statistic, mine, other), (point,), high=0),
            Reading(f"than the other factor only, noise {level:g}", gap(statistic, mine, other), (level,), high=0),
            Reading(f"than the shift alone, noise {level:g}", gap(statistic, mine, "shift"), (level,), high=0),
            source="section 6",
            shown=tuple(_size(change(statistic, version)) for version in (mine, other)),
        )
    for statistic, what, short, says, bounds in (
        ("spearman", "The correction restores the order of rows", "Spearman, noisy → corrected", "rises", (0, np.inf)),
        ("rmse", "The correction restores each row's value", "row error, noisy → corrected", "falls", (-np.inf, 0)),
    ):
        moved = difference(statistic, "boundary", "noisy")
        correction(
            f"{what}.",
            short,
            ".2f",
            Reading(f"{says} at noise {level:g}", moved, (level,), *bounds),
            Reading(f"{says} at noise {point:g}", moved, (point,), *bounds),
            source="not claimed",
            claimed=False,
            shown=(plain(statistic, "noisy"), plain(statistic, "boundary")),
        )
    narrows(
        "entropy",
        "Entropy-aware normalisation narrows the gap in distribution.",
        source="proposed in the abstract and the conclusion, not shown",
        claimed=False,
    )
    return made


def _listed(levels: Sequence[float]) -> str:
    return f"noise {', '.join(f'{level:g}' for level in levels[:-1])} and {levels[-1]:g}"


def _size(statistic: Statistic) -> Statistic:
    """Absolute value of another statistic."""
    return lambda runs, setting: {name: frame.abs() for name, frame in statistic(runs, setting).items()}


# --- judging ---------------------------------------------------------------------------------------------------------


def every(said: Iterable[str]) -> str:
    """Join the verdicts of several levels and kinds of points: one "against" decides; "for" needs all."""
    found = set(said)
    return AGAINST if AGAINST in found else FOR if found == {FOR} else UNDECIDED


class Judged(NamedTuple):
    """Verdict of a cell, the interval least favourable to the claim, and verdicts of the parts for which it does not
    hold."""

    verdict: str
    found: Interval
    partly: str = ""


def judge_cell(samples: Samples, reading: Reading, questions: int) -> Judged:
    """Judge one cell.

    Parameters
    ----------
    samples : dict of str to DataFrame
    reading : Reading
    questions : int
        Number of intervals that share the error probability; each is widened accordingly (Bonferroni).

    Returns
    -------
    Judged
    """
    found = {
        name: [interval(frame[level].dropna(), 1 - ERROR / questions) for level in reading.levels]
        for name, frame in samples.items()
    }
    spoken = {name: [reading.says(each) for each in intervals] for name, intervals in found.items()}
    if reading.parts == "levels":
        levels = zip(reading.levels, *spoken.values(), strict=True)
        said = {f"noise {level:g}": every(kinds) for level, *kinds in levels}
    else:
        said = {name: every(levels) for name, levels in spoken.items()}
    least = min(
        (each for intervals in found.values() for each in intervals),
        key=lambda each: min(each.mean - reading.low, reading.high - each.mean),
    )
    rest = [f"{each} {name}" for name, each in said.items() if each != FOR]
    partly = "; ".join(rest) if reading.parts and 0 < len(rest) < len(said) else ""
    return Judged(every(said.values()), least, partly)


def judge_reading(runs: Runs, reading: Reading, settings: Sequence[Setting]) -> dict[Setting, Judged]:
    """Judge every setting in which a reading was run, as one question."""
    samples: dict[Setting, Samples] = {}
    for setting in settings:
        try:
            samples[setting] = reading.statistic(runs, setting)
        except KeyError:  # not run there
            continue
    questions = len(reading.levels) * sum(len(found) for found in samples.values())
    return {setting: judge_cell(found, reading, questions) for setting, found in samples.items()}


def judge(runs: Runs, made: Sequence[Claim], settings: Sequence[Setting] = SETTINGS) -> pd.DataFrame:
    """Judge every claim in every setting: one row per cell of the matrix."""
    rows = []
    for claim in made:
        reading = claim.readings[0]
        own = [setting for setting in settings if claim.is_own(setting)]
        others = [setting for setting in settings if not claim.is_own(setting)]
        cells = judge_reading(runs, reading, own) | judge_reading(runs, reading, others)
        for setting in (each for each in settings if each in cells):
            said, found, partly = cells[setting]
            rows.append(
                {
                    "claim": claim.number,
                    "dataset": setting.dataset,
                    "protocol": setting.protocol,
                    "utility": setting.utility,
                    "own": claim.is_own(setting),
                    "shown": show(runs, claim, setting, found),
                    "number": found.mean,
                    "low": found.low,
                    "high": found.high,
                    "verdict": said,
                    "partly": partly,
                }
            )
    return pd.DataFrame(rows)


def show(runs: Runs, claim: Claim, setting: Setting, found: Interval) -> str:
    """Format a cell of the matrix."""
    if not claim.shown:
        return write(found.mean, claim.form)
    (level,) = claim.readings[0].levels
    numbers = [statistic(runs, setting) for statistic in claim.shown]
    written = [write(float(frame[level].mean()), claim.form) for parts in numbers for frame in parts.values()]
    return (" | " if "|" in claim.short else "→").join(written)


def write(number: float, form: str) -> str:
    """Format a number; a final percent sign that is not part of the format follows the number."""
    sign = "%" if form.endswith("f%") else ""
    text = f"{number:{form.removesuffix('%') if sign else form}}"
    return (text if set(text) & set("123456789") else text.lstrip("+-")) + sign


def verdict(said: Sequence[str], partly: Sequence[str] = ()) -> str:
    """Judge a claim by the cells of its own setting.

    Parameters
    ----------
    said : sequence of str
        Verdict of each cell.
    partly : sequence of str
        For each cell, the parts for which the claim does not hold while it holds for others.

    Returns
    -------
    str
        It holds if all cells are for it; in part if some are, and at least as many as are against it. Otherwise it does
        not hold if any cell is against it, and is undecided if none is.
    """
    kinds = partly or [""] * len(said)
    sides = [FOR if some else each for each, some in zip(said, kinds, strict=True)]
    if said and set(said) == {FOR}:
        return HOLDS
    if FOR in sides and sides.count(FOR) >= sides.count(AGAINST):
        return PARTLY
    return FAILS if AGAINST in sides else OPEN


def summarize_claims(matrix: pd.DataFrame, made: Sequence[Claim]) -> pd.DataFrame:
    """Verdict of each claim in the paper's own setting, and number of cells for it, there and elsewhere."""
    rows = []
    for claim in made:
        mine = matrix[matrix["claim"] == claim.number]
        own, others = mine[mine["own"]], mine[~mine["own"]]
        groups = [setting_of(row).group for _, row in others.iterrows()]
        row = {
            "claim": claim.number,
            "topic": claim.topic,
            "text": claim.text,
            "source": claim.source,
            "claimed": claim.claimed,
            "reading": claim.readings[0].name,
            "verdict": verdict(own["verdict"].tolist(), own["partly"].tolist()),
            "own_for": int((own["verdict"] == FOR).sum()),
            "own_cells": len(own),
        }
        for group in GROUPS:
            said = others["verdict"][[name == group for name in groups]]
            row[f"{group}_for".replace(" ", "_")] = int((said == FOR).sum())
            row[f"{group}_cells".replace(" ", "_")] = len(said)
        rows.append(row)
    return pd.DataFrame(rows)


def compare_readings(runs: Runs, made: Sequence[Claim], settings: Sequence[Setting] = SETTINGS) -> pd.DataFrame:
    """Verdict of each reading of each claim in the paper's own setting."""
    rows = []
    for claim in made:
        own = [setting for setting in settings if claim.is_own(setting)]
        for number, reading in enumerate(claim.readings):
            judged = judge_reading(runs, reading, own).values()
            said = [each.verdict for each in judged]
            rows.append(
                {
                    "claim": claim.number,
                    "reading": reading.name,
                    "ours": number == 0,
                    "verdict": verdict(said, [each.partly for each in judged]),
                    **{side: said.count(side) for side in (FOR, AGAINST, UNDECIDED)},
                }
            )
    return pd.DataFrame(rows)


def first_levels(runs: Runs, settings: PaperSettings, where: Sequence[Setting]) -> pd.DataFrame:
    """The lowest noise level at which each effect is significant, for each dataset; empty if none is."""
    effects = {"mean": "mean falls", "std": "standard deviation falls", "positive_count": "positive count falls"}
    questions = len(effects) * len(settings.noise)
    rows = []
    for setting in where:
        row: dict[str, Any] = {"dataset": setting.dataset}
        for statistic, name in effects.items():
            moved = change(statistic)(runs, setting)[""]
            found = (s for s in settings.noise if interval(moved[s], 1 - ERROR / questions).high < 0)
            row[name] = next(found, np.nan)
        rows.append(row)
    return pd.DataFrame(rows)
