"""The facts about each kind of result, as plain data.

The terminal, JSON documents, the page and notebooks all present these facts; none computes its own. Classes of upper
layers (``ShiftAudit``, ``CorrectionEvaluation``, ``Allocation``) are not imported here.
"""

from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shapshift.trust import class_facts, sampling_facts

if TYPE_CHECKING:  # scipy takes a while to load, and --help needs no facts
    from shapshift.valuation import Valuation

# Statistics of an audit whose means are listed for each level.
LISTED = (
    *("spearman", "std", "positive_count", "flips_to_negative", "flips_to_positive"),
    *("neighbor_jaccard", "top_overlap"),
)


def value_facts(valuation: "Valuation") -> dict[str, Any]:
    """Summarise the values: how many are positive and negative, how they are distributed, and by class."""
    stats = valuation.stats()
    quantiles = stats["quantiles"]
    return {
        "n_train": valuation.n_train,
        "n_val": valuation.n_val,
        "positive": stats["positive_count"],
        "negative": int((valuation.values < 0).sum()),
        "mean": stats["mean"],
        "std": stats["std"],
        "sum": float(valuation.values.sum()),
        "lowest": quantiles[0.0],
        "median": quantiles[0.5],
        "highest": quantiles[1.0],
        "boundary_fraction": valuation.boundary_fraction,
        "sampling": sampling_facts(valuation),
        "classes": class_facts(valuation),
        "error_bound": None if valuation.error_bound is None else float(valuation.error_bound.max()),
        "fingerprint": valuation.fingerprint,
        "point_weight": valuation.parameters.get("point_weight"),
        **{
            name: dict(valuation.parameters[name])
            for name in ("cross", "pool", "order")
            if name in valuation.parameters
        },
    }


def explanation_facts(explanation: Any) -> list[dict[str, Any]]:
    """For each explained row: the sources of its value, the points that contribute most, and its nearest rows."""
    columns = {"id": "ids", "label": "labels", "value": "values"}
    columns |= {name: name for name in ("positive", "negative", "neutral", "gain", "loss", "near")}
    rows = [
        {name: getattr(explanation, field)[i] for name, field in columns.items()}
        | {"sentence": sentence, "points": [], "neighbors": []}
        for i, sentence in enumerate(explanation.sentences)
    ]
    for listed in ("points", "neighbors"):
        table = getattr(explanation, listed)
        names = [name for name in table if name != "row"]
        for row, *entries in zip(table.get("row", ()), *(table[name] for name in names), strict=True):
            rows[row][listed].append(dict(zip(names, entries, strict=True)))
    return rows


def audit_facts(audit: Any) -> dict[str, Any]:
    """Verdict, and the statistics of each level, in the order of the audit."""
    means = {name: audit.statistic(name)[0] for name in LISTED}
    _, low, high = audit.statistic("spearman")
    flips, spread = flip_shares(audit), audit.clean["std"]
    return {
        "verdict": audit.verdict,
        "finding": audit.finding,
        "sampling": {"verdict": audit.sampling_verdict, **audit.sampling},
        "clean": {name: audit.clean[name] for name in ("std", "positive_count")},
        "levels": [
            {
                "level": level,
                "verdict": audit.verdicts[at],
                **{name: float(mean[at]) for name, mean in means.items()},
                "spearman_low": float(low[at]),
                "spearman_high": float(high[at]),
                "sign_changes": float(flips[at]),
                "spread_change": float(means["std"][at] / spread - 1) if spread > 0 else np.nan,
            }
            for at, level in enumerate(audit.levels)
        ],
        "mean_stability": float(np.mean(audit.rows["stability"])),
        "repeats": audit.repeats,
    }


def level_name(audit: Any) -> str:
    """Name the axis of the levels: their quantity and unit."""
    name = str(audit.axis).capitalize()
    if audit.axis != "noise":
        return name
    return name + (" (in stds of each feature)" if audit.perturbations[0].get("relative") else " (standard deviation)")


def flip_shares(audit: Any) -> npt.NDArray[np.float64]:
    """Share of the rows that change sign, at each level."""
    lost, gained = (audit.statistic(name)[0] for name in ("flips_to_negative", "flips_to_positive"))
    return np.asarray((lost + gained) / audit.n_train)


def worst_level(audit: Any) -> int:
    """Find the level, by its place in the audit, at which the values agree least with the clean ones."""
    rho = audit.statistic("spearman")[0]
    return int(np.nanargmin(rho)) if np.isfinite(rho).any() else int(np.nanargmax(flip_shares(audit)))


def evaluation_facts(evaluation: Any) -> dict[str, Any]:
    """Comparison of noisy and corrected values with the clean ones: as distributions, and row by row."""
    return {"distribution": evaluation.distribution, "rows": evaluation.rows}


def payout_facts(allocation: Any) -> dict[str, Any]:
    """Amounts of an allocation, as decimal numbers so that no cent is lost; owners in the order of the allocation."""
    names = ("sampling_low", "sampling_high", "low", "high", "corrected")
    columns = {"payout": allocation.cents} | {name: getattr(allocation, name) for name in names}
    known = {name: cents for name, cents in columns.items() if cents is not None}
    notes, measures = allocation.notes, allocation.measures()

    def amount(cents: Any) -> Decimal:
        return Decimal(int(cents)).scaleb(-allocation.digits)

    return {
        "budget": amount(allocation.budget_cents),
        "reserve": amount(allocation.reserve_cents),
        "unallocated": amount(allocation.unallocated_cents),
        "collected": amount(allocation.collected_cents),
        "currency": allocation.currency,
        "basis": allocation.basis,
        "interval": allocation.interval or None,
        "owners": [
            {
                "owner": owner,
                "rows": int(allocation.row_counts[at]),
                **{name: float(numbers[at]) for name, numbers in measures.items()},
                **{name: amount(cents[at]) for name, cents in known.items()},
                **({"note": notes[owner]} if owner in notes else {}),
            }
            for at, owner in enumerate(allocation.owners)
        ],
    }
