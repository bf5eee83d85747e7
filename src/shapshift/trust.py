"""Reliability of values: what another sample of validation points would change, as facts and in words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # scipy takes a while to load, and --help needs no facts
    from shapshift.valuation import Valuation

#: Correlation with the values on another sample for which the needed points are counted.
WANTED = 0.9
#: Classes that summaries list; of more, those with the largest share of negative values.
LISTED_CLASSES = 10
#: A class is condemned if it has this many rows, more than this share of them negative, and this many times the share
#: of all other rows.
CONDEMNED_ROWS, CONDEMNED_SHARE, CONDEMNED_TIMES = 5, 0.5, 2.0


def sampling_facts(valuation: "Valuation") -> dict[str, Any]:
    """Summarise what another sample of validation points would change; None if that is unknown.

    ``points_needed`` is the number for a reliability of ``WANTED``; ``unknown`` says why there is no reliability.
    """
    facts: dict[str, Any] = dict.fromkeys(
        ("reliability", "reliability_spearman", "points_needed", "surely_positive", "surely_negative", "open")
    )
    facts |= {"n_val": valuation.n_val, "units": int(valuation.sampling.get("units", valuation.n_val)), "unknown": None}
    # A row of one table is valued on all other rows, one fewer.
    apart = valuation.parameters.get("cross", {}).get("by", "group") != "group"
    facts["clustered"] = int(facts["units"] != facts["n_val"] and not apart)
    if valuation.standard_error is None:
        return facts | {"unknown": valuation._why_no_error()}
    facts |= {name: getattr(valuation, name) for name in ("surely_positive", "surely_negative", "open")}
    facts |= {name: getattr(valuation, name) for name in ("reliability", "reliability_spearman")}
    if facts["reliability"] is None:
        return facts | {"unknown": "the values do not differ, or do not say how they vary from point to point"}
    needed = valuation.points_needed(WANTED)
    return facts | {"points_needed": int(needed) if np.isfinite(needed) else None}


def sampled_units(facts: Mapping[str, Any]) -> str:
    """Name what is sampled: validation points, or clusters of them."""
    return "clusters of points" if facts["clustered"] else "points"


def another_sample(facts: Mapping[str, Any]) -> str:
    """Describe what another sample of equally many points would change, given :func:`sampling_facts`."""
    if facts["reliability"] is None:
        return f"what another sample would change is not known: {facts['unknown']}"
    what, n = sampled_units(facts), facts["units"]
    said = f"another sample of {n:,} {what} would agree with these values at a correlation of "
    said += f"{facts['reliability']:.2f}"
    if facts["reliability"] >= WANTED:
        return said
    if facts["points_needed"] is None:
        return f"{said}; how many {what} it takes for {WANTED:g} cannot be told from so few"
    return f"{said}; {facts['points_needed']:,} {what} are needed for {WANTED:g}"


def sure_signs(facts: Mapping[str, Any]) -> str:
    """Count the rows whose sign is certain, in words, given :func:`sampling_facts`; empty if that is unknown."""
    if facts["open"] is None:
        return ""
    return (
        f"{facts['surely_positive']:,} rows are surely positive, {facts['surely_negative']:,} surely negative, and "
        f"{facts['open']:,} open (95% each)"
    )


def reliability_at(facts: Mapping[str, Any], units: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the expected reliability of samples of other sizes, given :func:`sampling_facts`.

    Its odds grow in proportion to the number of points.
    """
    odds = units / facts["units"] * facts["reliability"]
    return np.asarray(odds / (odds + 1 - facts["reliability"]))


def sample_sizes(facts: Mapping[str, Any], n: int) -> npt.NDArray[np.float64]:
    """Return ``n`` sample sizes to draw in a curve, from a tenth of the points to more than are needed."""
    most = max(10 * facts["units"], 2 * (facts["points_needed"] or 0))
    return np.unique(np.geomspace(max(facts["units"] / 10, 1), most, n).round())


def class_facts(valuation: "Valuation") -> dict[str, Any]:
    """Summarise the values by class: ``listed`` classes, their number in ``all``, and the ``condemned`` ones.

    Listed are all classes, or the worst; each has its label, rows, share of negative values, mean, reliability, and the
    share of negative values among all other rows. Empty without labels.
    """
    found, n = valuation._class_facts(), valuation.n_train
    negative = sum(one["share_negative"] * one["rows"] for one in found)
    for one in found:
        others = n - one["rows"]
        one["others_negative"] = (negative - one["share_negative"] * one["rows"]) / others if others else None
    condemned = [one["label"] for one in found if _is_condemned(one)]
    listed = found
    if len(found) > LISTED_CLASSES:
        listed = sorted(found, key=lambda one: -one["share_negative"])[:LISTED_CLASSES]
    weights = valuation.parameters.get("point_weight")
    return {"all": len(found), "listed": listed, "condemned": condemned, "point_weight": weights} if found else {}


def _is_condemned(one: Mapping[str, Any]) -> bool:
    share, others = one["share_negative"], one["others_negative"]
    if others is None or one["rows"] < CONDEMNED_ROWS:
        return False
    return bool(share > CONDEMNED_SHARE and share >= CONDEMNED_TIMES * others)


def condemned_classes(facts: Mapping[str, Any]) -> str:
    """Name the condemned classes and what to do, given :func:`class_facts`; empty if there are none."""
    found = [one for one in facts.get("listed", ()) if one["label"] in facts["condemned"]]
    if not found:
        return ""
    said = "; ".join(
        f"{one['share_negative']:.0%} of the {one['rows']:,} rows of class {one['label']!r} have a negative value on "
        f"these validation points, against {one['others_negative']:.0%} of all other rows"
        for one in found
    )
    balanced = (
        ""
        if facts["point_weight"] == "balanced"
        else ('point_weight="balanced" (--point-weight balanced) gives all classes the same weight, ')
    )
    return (
        f"{said}. Points of other classes outvote such a class: a negative value does not say that a row is wrong, and "
        f"dropping negative rows would drop most of the class. {balanced}find_suspects (shapshift suspects) tells "
        "which labels are probably wrong, and Valuation.select keeps the shares of the classes"
    )


def negative_rows(facts: Mapping[str, Any]) -> str:
    """Count rows with a negative value, and those beyond their sampling error, in words, given ``value_facts``."""
    n, negative, sure = facts["n_train"], facts["negative"], facts["sampling"]["surely_negative"]
    said = f"{negative:,} of {n:,} rows ({negative / n:.0%}) have a negative value on these points"
    return said if sure is None or not negative else f"{said}, {sure:,} of them beyond their sampling error (95%)"
