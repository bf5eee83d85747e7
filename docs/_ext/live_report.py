"""The page of `shapshift demo`, made while the site is built, so that readers open what this version writes."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx


def make_report(app: Sphinx, failed: Exception | None) -> None:
    """Run the demo, and put its page and one statement to a seller beside start/report.html."""
    if failed or app.builder.format != "html":
        return
    with tempfile.TemporaryDirectory() as folder:
        demo = Path(folder, "demo")
        subprocess.run(
            [sys.executable, "-m", "shapshift", "demo", "--out", demo, "--quiet"],
            check=True,
            cwd=folder,
            stdout=subprocess.DEVNULL,
        )
        target = Path(app.outdir, "start", "demo")
        target.mkdir(parents=True, exist_ok=True)
        shutil.copy(demo / "report.html", target)
        (statement,) = (demo / "statements").glob("owner-delta-*.html")
        shutil.copy(statement, target / "statement.html")


def setup(app: Sphinx) -> dict[str, Any]:
    """Run after the pages are written."""
    app.connect("build-finished", make_report)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
