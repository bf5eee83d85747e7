"""Notebooks of tutorials and examples: links that only the site can follow become names, also inside the archives."""

import json
import re
import zipfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

ROLE = re.compile(r":(\w+):`(~?)([^`]+)`")


def plain(link: re.Match[str]) -> str:
    """Write a link as it can be read in a notebook."""
    role, short, target = link.groups()
    if role == "doc":
        return f"the page *{target.rpartition('/')[2].replace('_', ' ')}*"
    return f"`{target.rpartition('.')[2] if short else target}`"


def rewritten(text: str) -> str:
    """Rewrite the text cells of a notebook."""
    notebook = json.loads(text)
    for cell in notebook["cells"]:
        if cell["cell_type"] == "markdown":
            cell["source"] = [ROLE.sub(plain, line) for line in cell["source"]]
    return json.dumps(notebook, indent=2, ensure_ascii=False) + "\n"


def rewrite(app: Sphinx) -> None:
    """Rewrite what sphinx-gallery has just made."""
    for folder in (Path(app.srcdir, name) for name in app.config.sphinx_gallery_conf["gallery_dirs"]):
        for path in folder.glob("*.ipynb"):
            path.write_text(rewritten(path.read_text(encoding="utf-8")), encoding="utf-8")
        for path in folder.glob("*.zip"):
            with zipfile.ZipFile(path) as archive:
                files = {info: archive.read(info) for info in archive.infolist()}
            with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
                for info, content in files.items():
                    changed = rewritten(content.decode()).encode() if info.filename.endswith(".ipynb") else content
                    archive.writestr(info, changed)


def setup(app: Sphinx) -> dict[str, Any]:
    """Run after sphinx-gallery, which has the usual priority of 500."""
    app.connect("builder-inited", rewrite, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
