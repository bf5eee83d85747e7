"""Formulas as MathML, which browsers draw by themselves: no script, no font, and nothing from a network."""

from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)


def formula(node: nodes.Element, *, block: bool) -> str:
    """Turn a formula into MathML; one that cannot be read is shown as it is written, with a warning."""
    try:
        # Few fonts have the reverse solidus operator that docutils writes for \\setminus.
        return latex2mathml.tex2mathml(node.astext(), as_block=block).replace(
            "\N{REVERSE SOLIDUS OPERATOR}", "\N{SET MINUS}"
        )
    except MathError as error:
        log.warning("%s in the formula %s", error, node.astext(), location=node)
        return f"<code>{escape(node.astext())}</code>"


def inline(translator: Any, node: nodes.math) -> None:
    """Write a formula in a line of text."""
    translator.body.append(formula(node, block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    """Write a formula on a line of its own."""
    translator.body.append(f'<div class="math">{formula(node, block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer under the name that conf.py asks for."""
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
