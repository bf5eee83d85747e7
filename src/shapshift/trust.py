"""How far values can be trusted: what another sample of validation points would change, as facts and in words."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # scipy takes a while to load, and --help needs no facts
    from shapshift.valuation import Valuation

#: Correlation with the values on another sample that points are counted for.
WANTED = 0.9


def sampling_facts(valuation: "Valuation") -> dict[str, Any]:
    """Summarise what another sample of validation points would change; None where that is not known.

    ``points_needed`` are those for a reliability of ``WANTED``; ``unknown`` says why there is no reliability.
    """
    facts: dict[str, Any] = dict.fromkeys(
        ("reliability", "reliability_spearman", "points_needed", "surely_positive", "surely_negative", "open")
    )
    facts |= {"n_val": valuation.n_val, "units": int(valuation.sampling.get("units", valuation.n_val)), "unknown": None}
    # A row of one table is valued on all others, of which there is one less.
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
    """Say what another sample of as many points would change, given :func:`sampling_facts`."""
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
    """Say of how many rows the sign is sure, given :func:`sampling_facts`; empty where that is not known."""
    if facts["open"] is None:
        return ""
    return (
        f"{facts['surely_positive']:,} rows are surely positive, {facts['surely_negative']:,} surely negative, and "
        f"{facts['open']:,} open (95% each)"
    )


def reliability_at(facts: Mapping[str, Any], units: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the reliability to be expected of samples of other sizes, given :func:`sampling_facts`.

    Its odds grow in proportion to the number of points.
    """
    odds = units / facts["units"] * facts["reliability"]
    return np.asarray(odds / (odds + 1 - facts["reliability"]))


def sample_sizes(facts: Mapping[str, Any], n: int) -> npt.NDArray[np.float64]:
    """Return ``n`` sample sizes worth drawing, from a tenth of the points to beyond those that are needed."""
    most = max(10 * facts["units"], 2 * (facts["points_needed"] or 0))
    return np.unique(np.geomspace(max(facts["units"] / 10, 1), most, n).round())
