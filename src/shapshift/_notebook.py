"""How results show themselves in a notebook: a small table and a small picture, as HTML."""

from typing import Any

import numpy as np

from shapshift._facts import audit_facts, value_facts
from shapshift.audit import ShiftAudit
from shapshift.report._page import fill_template
from shapshift.valuation import Valuation

BARS = 40
WIDTH, HEIGHT = 240, 48
SHOWN_LEVELS = 12
# Seen on white and on black alike.
COLOURS = {"stable": "#1a9268", "shifts": "#b07d1a", "unstable": "#d0453b", "undefined": "#767676"}


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
    from shapshift.plots.valuation import count_values

    facts, known = value_facts(valuation), valuation.parameters
    pairs = [
        ("training rows", f"{facts['n_train']:,}"),
        ("validation points", f"{facts['n_val']:,} ({facts['boundary_fraction']:.0%} boundary points)"),
        ("positive", f"{facts['helpful']:,} ({facts['helpful'] / facts['n_train']:.0%})"),
        ("mean, std", f"{facts['mean']:.3g}, {facts['std']:.3g}"),
        ("lowest, median, highest", f"{facts['lowest']:.3g}, {facts['median']:.3g}, {facts['highest']:.3g}"),
    ]
    if facts["error_bound"] is not None:
        worst = facts["error_bound"]
        pairs.append(("largest error", f"at most {worst:.3g}" if np.isfinite(worst) else "not bounded"))
    if "correction" in known:
        pairs.append(("corrected by", str(known["correction"].get("corrector", "yes"))))
    method = ", ".join(f"{name}={known[name]}" for name in ("semivalue", "utility", "n_neighbors") if name in known)
    edges, counts = count_values(valuation.values, BARS)
    step, heights, helps = WIDTH / counts.size, HEIGHT * counts / counts.max(), edges[:-1] + edges[1:] > 0
    return _show(
        title=f"{known.get('method', 'Valuation')} values" + (f" ({method})" if method else ""),
        pairs=pairs,
        said=f"Histogram of the values: {facts['helpful']} positive, {facts['n_train'] - facts['helpful']} not",
        bars=[
            (f"{step * i:.1f}", f"{HEIGHT - height:.1f}", f"{0.9 * step:.1f}", f"{height:.1f}", helps[i])
            for i, height in enumerate(heights.tolist())
            if height
        ],
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
    clean, levels = facts["clean"], [facts["levels"][at] for at in order]
    body = [["clean", "", "", "", "", f"{clean['std']:.3g}", f"{clean['positive_count']:,.0f}"]]
    body += [
        [
            str(level["level"]),
            level["verdict"],
            f"{level['spearman']:.2f}",
            f"{level['top_overlap']:.0%}",
            f"{level['sign_changes']:.0%}",
            f"{level['std']:.3g}",
            f"{level['positive_count']:,.0f}",
        ]
        for level in levels[:SHOWN_LEVELS]
    ]
    rho = np.array([level["spearman"] for level in levels])
    dots: list[tuple[str, str]] = []
    if audit.ordered and np.isfinite(rho).all() and rho.size > 1:  # from 1 at the top to 0 at the bottom
        x, y = np.linspace(4, WIDTH - 4, rho.size), 4 + (HEIGHT - 8) * (1 - np.clip(rho, 0, 1))
        dots = [(f"{a:.1f}", f"{b:.1f}") for a, b in zip(x, y, strict=True)]
    return _show(
        title=f"{audit.n_train:,} values, {audit.repeats} runs per level: {audit.finding}",
        head=[audit.axis, "verdict", "Spearman", "top kept", "sign flips", "std", "positive"],
        body=body,
        more=max(len(levels) - SHOWN_LEVELS, 0),
        said=f"Spearman correlation with the clean values, from {rho[0]:.2f} to {rho[-1]:.2f}",
        dots=dots,
    )


def _show(**content: Any) -> str:
    nothing: dict[str, Any] = {"pairs": (), "head": (), "body": (), "more": 0, "bars": (), "dots": ()}
    size = {"width": WIDTH, "height": HEIGHT, "colours": COLOURS}
    return fill_template("notebook.html.j2", **(nothing | size | content))
