"""Results for people: lines and tables in the terminal, and the page."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift._facts import audit_facts, evaluation_facts, payout_facts, value_facts
from shapshift.cli._data import Data, sentence
from shapshift.cli._options import Page
from shapshift.cli._run import Run, frame
from shapshift.cli._terminal import Terminal
from shapshift.trust import another_sample, condemned_classes, negative_rows, sure_signs

if TYPE_CHECKING:
    from shapshift.audit import ShiftAudit, Thresholds
    from shapshift.correct import CorrectionEvaluation
    from shapshift.knn.explain import Explanation
    from shapshift.price import Allocation, Clusters, Rule
    from shapshift.valuation import Valuation

SHOWN = 5
# (training row, validation point) pairs up to which rows on a page are explained: some ten seconds of work.
EXPLAINED_PAIRS = 10**9
VERDICT_STYLES = {
    **dict.fromkeys(("reliable", "stable"), "green"),
    **dict.fromkeys(("usable", "undefined", "shifts"), "yellow"),
    **dict.fromkeys(("unreliable", "unstable"), "red"),
}


def value_table(valuation: "Valuation", data: Data, **more: Any) -> Any:
    """One line per training row: id, value and its parts, rank, label, owner."""
    from scipy.stats import rankdata

    owners = data.arrays.owners
    more["rank"] = rankdata(-valuation.values, method="min").astype(np.int64)
    more["label"] = data.arrays.y_train
    added = frame(more | ({} if owners is None else {"owner": owners}))
    table = valuation.to_frame("pyarrow")
    for name in added.column_names:
        table = table.append_column(name, added[name])
    return table


def extremes(valuation: "Valuation", data: Data) -> dict[str, list[dict[str, Any]]]:
    """List the least and the most valuable rows, for JSON."""
    order = np.argsort(valuation.values, kind="stable")
    n = min(SHOWN, valuation.n_train)
    low, high = (None, None) if valuation.standard_error is None else valuation.interval()
    return {
        name: [
            {"id": valuation.ids[i], "value": float(valuation.values[i]), "label": data.arrays.y_train[i]}
            | ({} if low is None or high is None else {"low": float(low[i]), "high": float(high[i])})
            | ({} if data.arrays.owners is None else {"owner": data.arrays.owners[i]})
            for i in rows
        ]
        for name, rows in (("most", order[::-1][:n]), ("least", order[:n]))
    }


def show_values(terminal: Terminal, valuation: "Valuation", data: Data) -> dict[str, Any]:
    """Print how reliable values are, how many are negative, by class, and which rows are highest and lowest.

    Returns these facts.
    """
    ends = extremes(valuation, data)
    facts = value_facts(valuation) | ends
    n = facts["n_train"]
    numbers = valuation.parameters.get("task") == "regression"
    where = "where the targets of nearby rows differ" if numbers else "near a class boundary"
    cross = valuation.parameters.get("cross")
    points = f"{facts['n_val']:,} {'validation points' if cross is None else 'rows of the same table'}"
    terminal.line(f"Valued {n:,} training rows on {points}, {facts['boundary_fraction']:.0%} of them {where}.")
    if cross is not None:
        terminal.line(who_saw_whom(cross))
    if facts["point_weight"] is not None:
        terminal.line(how_points_count(facts["point_weight"]))
    if "order" in facts:
        terminal.line(f"Rows joined in {facts['order']['classes']:,} classes, one after the other.")
    if "pool" in facts:
        terminal.line(what_was_borrowed(facts["pool"]))
    if n > 1 and np.allclose(valuation.values, valuation.values[0], rtol=1e-9, atol=0):
        terminal.line(
            f"All rows have the same value, {valuation.values[0]:+.3e}: these validation points do not tell them apart."
        )
        return facts
    show_sample(terminal, facts["sampling"])
    terminal.line(sentence(negative_rows(facts)))
    show_classes(terminal, facts["classes"])
    rows, styles = [], []
    for style, part in (("green", ends["most"]), ("red", ends["least"][::-1])):
        for one in part:
            label = f"{one['label']:.6g}" if numbers else one["label"]
            row = {"row": one["id"], ">value": f"{one['value']:+.3e}"}
            if "low" in one:
                row[">95% interval"] = f"{number(one['low'], '+.1e')} to {number(one['high'], '+.1e')}"
            row["label"] = label
            rows.append(row | ({"owner": one["owner"]} if "owner" in one else {}))
            styles.append(style if (one["value"] > 0) == (style == "green") else "")
    terminal.table("Most and least valuable rows", rows, styles)
    return facts


def show_classes(terminal: Terminal, facts: Mapping[str, Any]) -> None:
    """Tabulate the values by class, and name the condemned classes."""
    if not facts or facts["all"] < 2:
        return
    rows, styles = [], []
    for one in facts["listed"]:
        rows.append(
            {
                "class": one["label"],
                ">rows": f"{one['rows']:,}",
                ">negative": f"{one['share_negative']:.0%}",
                ">mean value": f"{one['mean']:+.3e}",
                ">reliability": "-" if one["reliability"] is None else f"{one['reliability']:.2f}",
            }
        )
        styles.append("red" if one["label"] in facts["condemned"] else "")
    worst = f", the worst {len(rows)} of {facts['all']:,}" if len(rows) < facts["all"] else ""
    terminal.table(f"Values by class{worst}", rows, styles)
    if said := condemned_classes(facts):
        terminal.line(sentence(said), "bold red")


def who_saw_whom(cross: Mapping[str, Any]) -> str:
    """State which rows of one table were valued on which."""
    fewest, most = cross["points_per_row"]
    points = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    mean, folds = f"each value is the mean over {points}", cross["folds"]
    told = {
        "row": f"No row was valued on itself: {mean} other rows.",
        "features": f"No row was valued on its own fold of {folds}: {mean} rows.",
        "group": f"No row was valued on its own group, {cross.get('groups', 0):,} in {folds} folds: {mean} rows.",
        "time": f"Rows were valued on later rows only, in {folds} steps: {mean} rows. The last "
        f"{cross.get('rows_without_value', 0):,} have no later rows and no value.",
    }
    return told[cross["by"]]


def how_points_count(point_weight: str) -> str:
    """State the weights of the validation points."""
    alike = "so that all classes have the same total weight" if point_weight == "balanced" else "as given"
    return f"Validation points have weights, {alike}."


def what_was_borrowed(pool: Mapping[str, Any]) -> str:
    """State how much of the pooled values comes from the training rows, and why."""
    if pool["weight"] == pool["share_weight"] == 0:
        return f"No training rows were used as further points: {pool['why']}."
    return (
        f"Pooled with {pool['rows']:,} training rows as further points: they make {pool['weight']:.0%} of each label's "
        f"values and {pool['share_weight']:.0%} of the shares of labels, because {pool['why']}. The expected squared "
        f"error is {pool['gain']:.2f} of that without them."
    )


def show_sample(terminal: Terminal, sampling: Mapping[str, Any], thresholds: "Thresholds | None" = None) -> None:
    """Print what another sample of validation points would change."""
    from shapshift.audit import Thresholds

    verdict = (thresholds or Thresholds()).judge_sample(sampling["reliability"])
    terminal.line(sentence(another_sample(sampling)), VERDICT_STYLES[verdict])
    if sampling["open"] is not None:
        terminal.line(sentence(sure_signs(sampling)))


def show_audit(terminal: Terminal, audit: "ShiftAudit") -> dict[str, Any]:
    """Print what another sample would change, the levels and the verdict; return the facts."""
    facts = audit_facts(audit)
    show_sample(terminal, audit.sampling, audit.thresholds)
    rows = []
    for one in facts["levels"]:
        agreement, level = number(one["spearman"], ".3f"), one["level"]
        if np.isfinite(one["spearman_low"]):
            agreement += f" [{one['spearman_low']:.3f}, {one['spearman_high']:.3f}]"
        row = {
            "level": f"{level:g}" if isinstance(level, float) else level,
            ">rank agreement (95%)": agreement,
            ">spread change": number(one["spread_change"], "+.0%"),
            ">positive": f"{one['positive_count']:,.0f}",
            ">signs changed": f"{one['sign_changes']:.1%}",
            ">neighbours kept": number(one["neighbor_jaccard"], ".2f"),
            "verdict": one["verdict"],
        }
        rows.append(row)
    terminal.table(
        f"Under {'noise' if audit.axis == 'noise' else 'perturbation'}, {audit.repeats} runs per level",
        rows,
        [VERDICT_STYLES[row["verdict"]] if row["verdict"] != "stable" else "" for row in rows],
    )
    terminal.line(
        f"Verdict: {facts['verdict']}. {sentence(facts['finding'])}",
        VERDICT_STYLES[facts["verdict"]],
    )
    return facts


def show_evaluation(terminal: Terminal, evaluation: "CorrectionEvaluation") -> dict[str, Any]:
    """Compare noisy and corrected values with the clean ones; return the facts."""
    facts = evaluation_facts(evaluation)
    entries = [
        ("rank agreement", "rows", "spearman", ".3f"),
        ("same sign", "rows", "sign_agreement", ".1%"),
        ("error (clean std = 1)", "rows", "rmse", ".3f"),
        ("spread (clean = 1)", "distribution", "std_ratio", ".3f"),
        ("distance between distributions", "distribution", "wasserstein", ".3g"),
    ]
    rows = [
        {"": title, **{f">{which}": number(facts[aspect][which][name], form) for which in ("noisy", "corrected")}}
        for title, aspect, name, form in entries
    ]
    terminal.table("Against the clean values", rows)
    return facts


def show_payouts(terminal: Terminal, allocation: "Allocation", shown: int = 20) -> dict[str, Any]:
    """Tabulate who is paid what, best paid first; return the facts."""
    facts = payout_facts(allocation)
    best = sorted(facts["owners"], key=lambda one: -one["payout"])
    rows = []
    for one in best[:shown]:
        row = {"owner": one["owner"], ">rows": f"{one['rows']:,}", ">contribution": f"{one['contribution']:+.4f}"}
        row[">payout"] = f"{one['payout']:,}"
        if "sampling_low" in one:
            row[">95% interval"] = f"{one['sampling_low']:,} to {one['sampling_high']:,}"
        if "low" in one:
            row[f">range under {facts['interval']}"] = f"{one['low']:,} to {one['high']:,}"
        if "corrected" in one:
            row[">corrected"] = f"{one['corrected']:,}"
        rows.append(row)
    terminal.table(f"Payouts of {facts['budget']:,} {facts['currency']}".rstrip(), rows)
    if len(best) > shown:
        terminal.line(f"... and {len(best) - shown:,} more owners, see statements/payouts.csv")
    amounts = {
        "Kept back": facts["reserve"],
        "Collected from deposits, back to the buyer": facts["collected"],
        "Not allocated": facts["unallocated"] - facts["collected"],
    }
    for name, amount in amounts.items():
        if amount:
            terminal.line(f"{name}: {amount:,} {facts['currency']}".rstrip())
    return facts


def show_copies(terminal: Terminal, found: "Clusters", *, paid: bool) -> None:
    """Print how many rows repeat earlier ones, who has copies of whose rows, and the radius.

    Parameters
    ----------
    terminal : Terminal
    found : Clusters
    paid : bool
        Whether copies are paid too.
    """
    if found.representatives.size == found.first.size:
        return
    repeated, *radius = found.findings()
    terminal.line(repeated.replace("do not vote", "are paid too") if paid else repeated)
    pairs = found.duplicates.owners_frame("pyarrow").to_pylist()
    rows = [
        {"first": one["owner"], "copied by": one["other"], ">rows": f"{one['rows']:,}", ">exact": f"{one['exact']:,}"}
        for one in pairs[:SHOWN]
    ]
    if rows:
        terminal.table("Copies across owners", rows)
    if len(pairs) > SHOWN:
        terminal.line(f"... and {len(pairs) - SHOWN:,} more pairs of owners, see duplicates.csv")
    for said in radius:
        terminal.note(said)


def copies_facts(found: "Clusters") -> dict[str, Any]:
    """Return these facts for JSON."""
    return {
        "rows_that_repeat": int(found.first.size - found.representatives.size),
        "radius": found.radius,
        "honest": found.honest,
        "owners": found.duplicates.owners_frame("pyarrow").to_pylist(),
    }


def show_rule(terminal: Terminal, rule: "Rule", allocation: "Allocation") -> dict[str, Any]:
    """Print the payment rule and what it invites; return both for JSON."""
    said, invites = rule.sentences(allocation.currency, allocation.digits, allocation.parameters), rule.invites()
    for sentence_ in said:
        terminal.line(sentence_)
    for sentence_ in invites:
        terminal.note(sentence_)
    return {"rule": {**rule.to_dict(), "sentences": said, "invites": invites}}


def number(value: float, form: str) -> str:
    """Write a number, or a dash where there is none."""
    return format(value, form) if np.isfinite(value) else "-"


def shows_features(run: Run, data: Data) -> bool:
    """Whether a page shows feature values of single rows: by default not if rows have owners."""
    asked = run[Page].raw_features
    return run.page is not None and (asked if asked is not None else data.arrays.owners is None)


def explain_ends(data: Data, model: Any, valuation: "Valuation") -> "Explanation | None":
    """Explain the rows that a page lists; None if that would take long, or the method has no explanations."""
    from shapshift.report._table import TABLE_ROWS, listed_rows

    known = valuation.ids.tolist()
    if not hasattr(model, "explain") or len(set(known)) < len(known) or len(known) * valuation.n_val > EXPLAINED_PAIRS:
        return None
    if "pool" in valuation.parameters:
        return None
    asked = np.concatenate(listed_rows(valuation, TABLE_ROWS))
    found: Explanation = model.explain(*data.points, valuation.ids[asked], n_points=3, n_neighbors=3)
    return with_point_ids(found, data) if found.is_of(valuation) else None


def with_point_ids(found: "Explanation", data: Data) -> "Explanation":
    """Name the validation points of an explanation by their ids, if the table has ids."""
    ids = data.arrays.ids_val
    return found if ids is None else replace(found, points={**found.points, "id": ids[found.points["position"]]})


def write_page(run: Run, data: Data, model: Any = None, **results: Any) -> None:
    """Write the page, when one was asked for.

    Parameters
    ----------
    run : Run
    data : Data
    model : object, optional
        Fitted, to explain the rows that the page lists: where features of single rows are shown.
    **results
        What :func:`shapshift.report.build_report` takes: ``valuation``, ``audit``, ``noisy``, ...
    """
    if run.page is None:
        return
    from shapshift.report import build_report

    if shows_features(run, data):
        X_train, X_val = (table.select(data.feature_columns()) for table in (data.train, data.val))
        notes = data.arrays.notes
        results["explanation"] = explain_ends(data, model, results["valuation"])
        run.terminal.note("The page shows feature values of single rows; --no-raw-features leaves them out.")
    else:
        X_train = X_val = None
        notes = [
            *data.preparation(),
            "feature values of single rows, and the map made from them, are left out of this page"
            + (", since the rows have owners" if run[Page].raw_features is None else "")
            + "; ids, labels and owners of rows are on it",
        ]
        run.terminal.note(
            "The page leaves out feature values of single rows; --raw-features shows them. It names rows and owners."
        )
    cross = results["valuation"].parameters.get("cross")
    notes = [*map(sentence, notes), *([] if cross is None else [who_saw_whom(cross)])]
    pool = results["valuation"].parameters.get("pool")
    notes += [] if pool is None else [what_was_borrowed(pool)]
    weights = results["valuation"].parameters.get("point_weight")
    notes += [] if weights is None else [how_points_count(weights)]
    with run.terminal.busy("Writing the page"):
        build_report(
            run.page_path(),
            X_train=X_train,
            X_val=X_val,
            y_train=data.arrays.y_train,
            owners=data.arrays.owners,
            notes=notes,
            parameters={"command": run.command, "seed": run.seed, **run.files()},
            **results,
        )
