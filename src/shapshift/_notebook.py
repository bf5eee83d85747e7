"""How results show themselves in a notebook: a small table and a small picture, as HTML."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from shapshift.audit import ShiftAudit
    from shapshift.valuation import Valuation

BARS = 40
WIDTH, HEIGHT = 240, 48
SHOWN_LEVELS = 12
# Seen on white and on black alike.
POSITIVE, OTHER, LINE = "#2b8cc4", "#d5722a", "#888888"
VERDICTS = {"stable": "#1a9268", "shifts": "#b07d1a", "unstable": "#d0453b", "undefined": "#767676"}


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
    stats = valuation.stats()
    known = valuation.parameters
    method = ", ".join(f"{name}={known[name]}" for name in ("semivalue", "utility", "n_neighbors") if name in known)
    quantiles = stats["quantiles"]
    rows = [
        ("training rows", f"{valuation.n_train:,}"),
        ("validation points", f"{valuation.n_val:,} ({valuation.boundary_fraction:.0%} boundary points)"),
        ("positive", f"{stats['positive_count']:,} ({stats['positive_ratio']:.0%})"),
        ("mean, std", f"{stats['mean']:.3g}, {stats['std']:.3g}"),
        ("lowest, median, highest", f"{quantiles[0.0]:.3g}, {quantiles[0.5]:.3g}, {quantiles[1.0]:.3g}"),
    ]
    if valuation.error_bound is not None:
        worst = float(valuation.error_bound.max())
        rows.append(("largest error", f"at most {worst:.3g}" if np.isfinite(worst) else "not bounded"))
    rows += [("corrected by", str(known["correction"].get("corrector", "yes")))] if "correction" in known else []
    title = f"{known.get('method', 'Valuation')} values" + (f" ({method})" if method else "")
    return _box(title, _pairs(rows) + _histogram(valuation.values))


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
    flips = (audit.statistic("flips_to_negative")[0] + audit.statistic("flips_to_positive")[0]) / audit.n_train
    columns = [audit.statistic(name)[0] for name in ("spearman", "top_overlap", "std", "positive_count")]
    head = [audit.axis, "verdict", "Spearman", "top kept", "sign flips", "std", "positive"]
    body = [
        ["clean", "", "", "", "", f"{audit.clean['std']:.3g}", f"{audit.clean['positive_count']:,.0f}"],
    ]
    for place in np.argsort(audit.positions, kind="stable")[:SHOWN_LEVELS]:
        rho, top, std, positive = (column[place] for column in columns)
        body.append(
            [
                str(audit.levels[place]),
                audit.verdicts[place],
                f"{rho:.2f}",
                f"{top:.0%}",
                f"{flips[place]:.0%}",
                f"{std:.3g}",
                f"{positive:,.0f}",
            ]
        )
    more = len(audit.levels) - SHOWN_LEVELS
    rest = f"<div>and {more} more levels, see to_frame()</div>" if more > 0 else ""
    title = f"{audit.n_train:,} values, {audit.repeats} runs per level: {audit.finding}"
    return _box(title, _table(head, body) + rest + _curve(audit))


def _box(title: str, content: str) -> str:
    return (
        '<div style="font-family:system-ui,sans-serif;font-size:13px;line-height:1.5">'
        f'<div style="font-weight:600;margin-bottom:4px">{escape(title)}</div>{content}</div>'
    )


def _pairs(rows: Sequence[tuple[str, str]]) -> str:
    cells = "".join(
        f'<tr><th style="text-align:left;font-weight:400;padding:1px 12px 1px 0">{escape(name)}</th>'
        f'<td style="text-align:left;padding:1px 0">{escape(text)}</td></tr>'
        for name, text in rows
    )
    return f'<table style="margin:0;font-size:inherit">{cells}</table>'


def _table(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    def cell(text: str) -> str:
        colour = f";color:{VERDICTS[text]};font-weight:600" if text in VERDICTS else ""
        return f'<td style="text-align:right;padding:1px 0 1px 14px{colour}">{escape(text)}</td>'

    first = "".join(f'<th style="text-align:right;padding:1px 0 1px 14px">{escape(name)}</th>' for name in head)
    rest = "".join(f"<tr>{''.join(cell(text) for text in row)}</tr>" for row in body)
    return f'<table style="margin:0;font-size:inherit"><thead><tr>{first}</tr></thead><tbody>{rest}</tbody></table>'


def _histogram(values: Any) -> str:
    # Inside, as plots may be imported only where something is drawn.
    from shapshift.plots.valuation import histogram_edges

    edges = histogram_edges(values, BARS)
    inside = np.clip(np.where(values == 0, np.nextafter(0, -1), values), edges[0], edges[-1])
    counts, _ = np.histogram(inside, bins=edges)
    step = WIDTH / counts.size
    bars = "".join(
        f'<rect x="{step * i:.1f}" y="{HEIGHT - HEIGHT * n / counts.max():.1f}" width="{0.9 * step:.1f}" '
        f'height="{HEIGHT * n / counts.max():.1f}" fill="{POSITIVE if (edges[i] + edges[i + 1]) / 2 > 0 else OTHER}"/>'
        for i, n in enumerate(counts.tolist())
        if n
    )
    positive = int(np.count_nonzero(values > 0))
    return _svg(bars, f"Histogram of the values: {positive} positive, {values.size - positive} not")


def _curve(audit: ShiftAudit) -> str:
    """Draw Spearman against the level, from 1 at the top to 0 at the bottom."""
    rho = audit.statistic("spearman")[0][np.argsort(audit.positions, kind="stable")]
    if not audit.ordered or not np.isfinite(rho).all() or rho.size < 2:
        return ""
    x = np.linspace(4, WIDTH - 4, rho.size)
    y = 4 + (HEIGHT - 8) * (1 - np.clip(rho, 0, 1))
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
    dots = "".join(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="2.5" fill="{OTHER}"/>' for a, b in zip(x, y, strict=True))
    frame = "".join(
        f'<line x1="0" x2="{WIDTH}" y1="{at}" y2="{at}" stroke="{LINE}" stroke-dasharray="3 3" stroke-opacity=".5"/>'
        for at in (4, HEIGHT - 4)
    )
    line = f'<polyline points="{points}" fill="none" stroke="{OTHER}" stroke-width="2"/>'
    return _svg(frame + line + dots, f"Spearman correlation with the clean values, from {rho[0]:.2f} to {rho[-1]:.2f}")


def _svg(content: str, said: str) -> str:
    return (
        f'<svg role="img" aria-label="{escape(said)}" width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'style="display:block;margin-top:6px"><title>{escape(said)}</title>{content}</svg>'
    )
