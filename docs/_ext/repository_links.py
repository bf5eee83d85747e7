"""Links of Markdown pages to what is in the repository and not on the site: on the site the path takes their place.

On a site that may lie anywhere, a link to a file of the source has no target; its path helps whoever has the source.
"""

import os
import re
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

LINK = re.compile(r"(?<!!)\[([^\]\[]+)\]\(([^)\s#:]+)\)")
PAGES = (".md", ".rst")


def show_paths(app: Sphinx, name: str, source: list[str]) -> None:
    """Replace links to folders, and to files outside docs, by their text and path."""
    page = Path(app.env.doc2path(name))
    if page.suffix != ".md":
        return
    docs = Path(app.srcdir)

    def replace(link: re.Match[str]) -> str:
        text, path = link.groups()
        target = Path(os.path.normpath(page.parent / path))
        if not target.exists() or (target.is_file() and target.is_relative_to(docs)):
            return link.group()
        if target == docs.parent / "CHANGELOG.md" or target == docs.parent / "CONTRIBUTING.md":
            here = os.path.relpath(docs / f"{target.stem.lower()}.md", page.parent)
            return f"[{text}]({here})"
        shown = f"`{target.relative_to(docs.parent)}`"
        # With the path as its text, or a part of it, a link says nothing more.
        return shown if text.strip("`").rstrip("/") in shown else f"{text} ({shown})"

    source[0] = LINK.sub(replace, source[0])


def setup(app: Sphinx) -> dict[str, Any]:
    """Look at every page before it is parsed."""
    app.connect("source-read", show_paths)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
