"""Leave out of a class's page what scikit-learn's base classes give to every estimator, such as ``set_fit_request``."""

from typing import Any

from sphinx.application import Sphinx


def skip(app: Sphinx, what: str, name: str, member: Any, skipped: bool, options: Any) -> bool | None:
    """Say whether to leave a member out; None leaves it to autodoc."""
    return True if str(getattr(member, "__module__", "")).startswith("sklearn.") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Ask before each member."""
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
