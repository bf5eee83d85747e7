"""How results show themselves in a notebook: a small table and a small picture, as HTML."""

import numpy as np

from shapshift._facts import audit_facts, explanation_facts, value_facts
from shapshift.audit import ShiftAudit
from shapshift.duplicates import Duplicates
from shapshift.knn.explain import Explanation
from shapshift.report._format import cell, figure
from shapshift.report._page import fill_template
from shapshift.suspects import Suspects
from shapshift.trust import another_sample, condemned_classes, sure_signs
from shapshift.valuation import Valuation

BARS = 40
WIDTH, HEIGHT = 240, 48
SHOWN_LEVELS = 12
SHOWN_SUSPECTS = 10
SHOWN_ROWS = 5


def valuation_html(valuation: Valuation) -> str:
    """Show a valuation.

    Parameters
    ----------
    valuation : Valuation

    Returns
    -------
    str
        HTML without scripts; every text is escaped.
    """
    # Inside, as plots may be imported only where something is drawn.
    from shapshift.plots.results import count_values, histogram_edges

    known, facts = valuation.parameters, value_facts(valuation)
    edges = histogram_edges(valuation.values, BARS)
    counts = count_values(valuation.values, edges)
    step, heights, helps = WIDTH / counts.size, HEIGHT * counts / counts.max(), edges[:-1] + edges[1:] > 0
    return fill_template(
        "notebook.html.j2",
        width=WIDTH,
        height=HEIGHT,
        values=facts,
        another=another_sample(facts["sampling"]),
        signs=sure_signs(facts["sampling"]),
        classes=facts["classes"],
        condemned=condemned_classes(facts["classes"]),
        ends=_ends(valuation),
        known=known,
        method=", ".join(f"{name}={known[name]}" for name in ("semivalue", "utility", "n_neighbors") if name in known),
        bars=[
            (f"{step * i:.1f}", f"{HEIGHT - height:.1f}", f"{0.9 * step:.1f}", f"{height:.1f}", helps[i])
            for i, height in enumerate(heights.tolist())
            if height
        ],
    )


def _ends(valuation: Valuation) -> list[tuple[str, str, str]]:
    """Name, id and value with its interval of the highest and the lowest row; nothing without standard errors."""
    if valuation.standard_error is None:
        return []
    low, high = valuation.interval()
    order = np.argsort(valuation.values, kind="stable")
    return [
        (name, str(valuation.ids[at]), f"{valuation.values[at]:.3g} ({low[at]:.3g} to {high[at]:.3g})")
        for name, at in (("highest", order[-1]), ("lowest", order[0]))
    ]


def explanation_html(explanation: Explanation) -> str:
    """Show an explanation.

    Parameters
    ----------
    explanation : Explanation

    Returns
    -------
    str
        HTML without scripts; every text is escaped.
    """
    rows = explanation_facts(explanation)
    return fill_template(
        "notebook.html.j2",
        explained=rows[:SHOWN_ROWS],
        more=max(len(rows) - SHOWN_ROWS, 0),
        n_val=explanation.n_val,
        cell=cell,
        figure=figure,
    )


def audit_html(audit: ShiftAudit) -> str:
    """Show an audit.

    Parameters
    ----------
    audit : ShiftAudit

    Returns
    -------
    str
        HTML without scripts; every text is escaped.
    """
    facts, order = audit_facts(audit), np.argsort(audit.positions, kind="stable")
    levels = [facts["levels"][at] for at in order]
    rho = np.array([level["spearman"] for level in levels])
    dots: list[tuple[str, str]] = []
    if audit.ordered and np.isfinite(rho).all() and rho.size > 1:  # from 1 at the top to 0 at the bottom
        x, y = np.linspace(4, WIDTH - 4, rho.size), 4 + (HEIGHT - 8) * (1 - np.clip(rho, 0, 1))
        dots = [(f"{a:.1f}", f"{b:.1f}") for a, b in zip(x, y, strict=True)]
    return fill_template(
        "notebook.html.j2",
        width=WIDTH,
        height=HEIGHT,
        audit=audit,
        clean=facts["clean"],
        levels=levels[:SHOWN_LEVELS],
        more=max(len(levels) - SHOWN_LEVELS, 0),
        ends=(rho[0], rho[-1]),
        dots=dots,
    )


def suspects_html(suspects: Suspects) -> str:
    """Show suspects.

    Parameters
    ----------
    suspects : Suspects

    Returns
    -------
    str
        HTML without scripts; every text is escaped.
    """
    rows = suspects.ranking()[: min(int(suspects.flagged.sum()), SHOWN_SUSPECTS)].tolist()
    return fill_template(
        "notebook.html.j2",
        suspects=suspects,
        first=[
            (
                *(str(column[i]) for column in (suspects.ids, suspects.label, suspects.suggested)),
                f"{suspects.probability[i]:.2f}",
                suspects.reason[i],
            )
            for i in rows
        ],
        more=int(suspects.flagged.sum()) - len(rows),
        classes=[{**one, "label": str(one["label"])} for one in suspects.class_rows()[:SHOWN_LEVELS]],
    )


def duplicates_html(duplicates: Duplicates) -> str:
    """Show how many duplicates there are.

    Parameters
    ----------
    duplicates : Duplicates

    Returns
    -------
    str
        HTML without scripts; every text is escaped.
    """
    return fill_template("notebook.html.j2", duplicates=duplicates.summary())
