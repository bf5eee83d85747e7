"""Results as lines and tables in the terminal."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy.stats import rankdata

from shapshift.audit import ShiftAudit
from shapshift.cli._data import Data
from shapshift.cli._run import frame
from shapshift.cli._terminal import Terminal
from shapshift.correct import CorrectionEvaluation
from shapshift.price import Allocation, show_money
from shapshift.valuation import Valuation

SHOWN = 5
VERDICT_STYLES = {"stable": "green", "shifts": "yellow", "unstable": "red", "undefined": "yellow"}


def value_table(valuation: Valuation, data: Data, **more: Any) -> Any:
    """One line per training row: id, value and its parts, rank, label, owner."""
    values = valuation.to_frame("pyarrow")
    columns = {name: values[name] for name in values.column_names} | more
    columns["rank"] = rankdata(-valuation.values, method="min").astype(np.int64)
    columns["label"] = data.arrays.y_train
    if data.arrays.owners is not None:
        columns["owner"] = data.arrays.owners
    return frame(
        {name: column.combine_chunks() if hasattr(column, "chunks") else column for name, column in columns.items()}
    )


def describe_values(valuation: Valuation) -> dict[str, Any]:
    """Summarise a valuation for JSON."""
    stats = valuation.stats()
    return {
        "n_train": valuation.n_train,
        "n_val": valuation.n_val,
        "helpful": stats["positive_count"],
        "harmful": int((valuation.values < 0).sum()),
        "mean": stats["mean"],
        "std": stats["std"],
        "sum": float(valuation.values.sum()),
        "boundary_fraction": valuation.boundary_fraction,
        "fingerprint": valuation.fingerprint,
    }


def extremes(valuation: Valuation, data: Data) -> dict[str, list[dict[str, Any]]]:
    """List the least and the most valuable rows, for JSON."""
    order = np.argsort(valuation.values, kind="stable")
    n = min(SHOWN, valuation.n_train)
    return {
        name: [
            {"id": valuation.ids[i], "value": float(valuation.values[i]), "label": data.arrays.y_train[i]}
            | ({} if data.arrays.owners is None else {"owner": data.arrays.owners[i]})
            for i in rows
        ]
        for name, rows in (("most", order[::-1][:n]), ("least", order[:n]))
    }


def show_values(terminal: Terminal, valuation: Valuation, data: Data) -> None:
    """Say how many rows help, and which most and least."""
    said = describe_values(valuation)
    n = valuation.n_train
    numbers = valuation.parameters.get("task") == "regression"
    where = "where the targets of nearby rows differ" if numbers else "near a class boundary"
    terminal.line(
        f"Valued {n:,} training rows on {valuation.n_val:,} validation points, {valuation.boundary_fraction:.0%} of "
        f"them {where}."
    )
    terminal.line(
        f"{said['helpful']:,} rows help ({said['helpful'] / n:.0%}), {said['harmful']:,} do harm "
        f"({said['harmful'] / n:.0%})."
    )
    error = valuation.standard_error
    if error is not None and (error > 0).any():
        low, high = valuation.interval()
        sure = int(np.count_nonzero((low > 0) | (high < 0)))
        terminal.line(
            f"These are estimates with standard errors of up to {np.nanmax(error):.2g}: the sign of {sure:,} values "
            f"({sure / n:.0%}) is settled at 95% each."
        )
    ends = extremes(valuation, data)
    owned = data.arrays.owners is not None
    rows, styles = [], []
    for style, part in (("green", ends["most"]), ("red", ends["least"][::-1])):
        for row in part:
            label = f"{row['label']:.6g}" if numbers else row["label"]
            rows.append([row["id"], f"{row['value']:+.3e}", label, *([row["owner"]] if owned else [])])
            styles.append(style if (row["value"] > 0) == (style == "green") else "")
    terminal.table(
        "Most and least valuable rows", ["row", ">value", "label", *(["owner"] if owned else [])], rows, styles
    )


def describe_audit(audit: ShiftAudit) -> dict[str, Any]:
    """Summarise an audit for JSON."""
    names = ("spearman", "std", "positive_count", "flips_to_negative", "flips_to_positive", "neighbor_jaccard")
    return {
        "verdict": audit.verdict,
        "finding": audit.finding,
        "levels": [
            {"level": level, "verdict": verdict, **{name: float(audit.statistic(name)[0][i]) for name in names}}
            for i, (level, verdict) in enumerate(zip(audit.levels, audit.verdicts, strict=True))
        ],
        "mean_stability": float(np.mean(audit.rows["stability"])),
        "repeats": audit.repeats,
    }


def show_audit(terminal: Terminal, audit: ShiftAudit) -> None:
    """Table of the levels, and the verdict in one line."""
    mean = {
        name: audit.statistic(name)
        for name in ("spearman", "std", "positive_count", "flips_to_negative", "flips_to_positive", "neighbor_jaccard")
    }
    rows = []
    for i, (level, verdict) in enumerate(zip(audit.levels, audit.verdicts, strict=True)):
        rho, low, high = (part[i] for part in mean["spearman"])
        flips = mean["flips_to_negative"][0][i] + mean["flips_to_positive"][0][i]
        change = mean["std"][0][i] / audit.clean["std"] - 1 if audit.clean["std"] > 0 else np.nan
        rows.append(
            [
                f"{level:g}" if isinstance(level, float) else level,
                number(rho, ".3f") + (f" [{low:.3f}, {high:.3f}]" if np.isfinite(low) else ""),
                number(change, "+.0%"),
                f"{mean['positive_count'][0][i]:,.0f}",
                f"{flips / audit.n_train:.1%}",
                number(mean["neighbor_jaccard"][0][i], ".2f"),
                verdict,
            ]
        )
    columns = [
        "level",
        ">rank agreement (95%)",
        ">spread",
        ">positive",
        ">signs changed",
        ">neighbours kept",
        "verdict",
    ]
    terminal.table(
        f"Under {'noise' if audit.axis == 'noise' else 'perturbation'}, {audit.repeats} runs per level",
        columns,
        rows,
        [VERDICT_STYLES[verdict] if verdict != "stable" else "" for verdict in audit.verdicts],
    )
    terminal.line(
        f"Verdict: {audit.verdict}. {audit.finding[:1].upper()}{audit.finding[1:]}.", VERDICT_STYLES[audit.verdict]
    )


def show_evaluation(terminal: Terminal, evaluation: CorrectionEvaluation) -> None:
    """Noisy and corrected values against the clean ones."""
    entries = [
        ("rank agreement", "rows", "spearman", ".3f"),
        ("signs as when clean", "rows", "sign_agreement", ".1%"),
        ("error, in clean stds", "rows", "rmse", ".3f"),
        ("spread, clean is 1", "distribution", "std_ratio", ".3f"),
        ("distance of distributions", "distribution", "wasserstein", ".3g"),
    ]
    rows = [
        [title, *(number(getattr(evaluation, aspect)[which][name], form) for which in ("noisy", "corrected"))]
        for title, aspect, name, form in entries
    ]
    terminal.table("Against the clean values", ["", ">noisy", ">corrected"], rows)


def describe_payouts(allocation: Allocation) -> dict[str, Any]:
    """Summarise payouts for JSON; amounts are text, so that no cent is lost."""
    owners = []
    for i, owner in enumerate(allocation.owners):
        entry: dict[str, Any] = {"owner": owner, "rows": int(allocation.row_counts[i])}
        entry |= {"value": float(allocation.values[i]), "payout": amount(allocation.cents[i])}
        if allocation.low is not None and allocation.high is not None:
            entry |= {"low": amount(allocation.low[i]), "high": amount(allocation.high[i])}
        if allocation.corrected is not None:
            entry["corrected"] = amount(allocation.corrected[i])
        owners.append(entry)
    return {
        "budget": amount(allocation.budget_cents),
        "reserve": amount(allocation.reserve_cents),
        "unallocated": amount(allocation.unallocated_cents),
        "currency": allocation.currency,
        "basis": allocation.basis,
        "interval": allocation.interval or None,
        "owners": owners,
    }


def show_payouts(terminal: Terminal, allocation: Allocation, shown: int = 20) -> None:
    """Table of who is paid what, best paid first."""
    columns = ["owner", ">rows", ">value", ">payout"]
    audited = allocation.low is not None and allocation.high is not None
    columns += [f">between, under {allocation.interval}"] * audited + [">corrected"] * (
        allocation.corrected is not None
    )
    order = np.argsort(-allocation.cents, kind="stable")
    rows = []
    for i in order[:shown]:
        row = [allocation.owners[i], f"{allocation.row_counts[i]:,}", f"{allocation.values[i]:+.4f}"]
        row.append(show_money(allocation.cents[i]))
        if allocation.low is not None and allocation.high is not None:
            row.append(f"{show_money(allocation.low[i])} to {show_money(allocation.high[i])}")
        if allocation.corrected is not None:
            row.append(show_money(allocation.corrected[i]))
        rows.append(row)
    terminal.table(f"Payouts of {show_money(allocation.budget_cents, allocation.currency)}", columns, rows)
    if len(order) > shown:
        terminal.line(f"... and {len(order) - shown:,} more owners, see statements/payouts.csv")
    for name, cents in (("Kept back", allocation.reserve_cents), ("Not allocated", allocation.unallocated_cents)):
        if cents:
            terminal.line(f"{name}: {show_money(cents, allocation.currency)}")


def amount(cents: int) -> str:
    """Cents as a plain amount."""
    return show_money(cents).replace(",", "")


def number(value: float, form: str) -> str:
    """Write a number, or a dash where there is none."""
    return format(value, form) if np.isfinite(value) else "-"


def evaluation_result(evaluation: CorrectionEvaluation) -> Mapping[str, Any]:
    """Summarise an evaluation for JSON."""
    return {"distribution": evaluation.distribution, "rows": evaluation.rows}
