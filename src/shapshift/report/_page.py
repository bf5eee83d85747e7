"""One HTML file from its parts: templates, data, and a policy that blocks all network access."""

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from shapshift.checks.names import visible

_LICENCES = ("NOTICE", "LICENSE-zrender", "LICENSE-d3")


def render(page: Mapping[str, Any], charts: Mapping[str, Any]) -> bytes:
    """Fill the template.

    Parameters
    ----------
    page : mapping
        Content of the template; every text in it is escaped.
    charts : mapping
        Data that the scripts draw, by chart id.

    Returns
    -------
    bytes
        The same for the same input: nothing on the page depends on the time or the machine.
    """
    style, library = _read("templates/report.css"), _read("vendor/echarts.report.min.js")
    script = _read("templates/charts.js") + _read("templates/page.js")
    # Only these scripts and this style may run; nothing may be loaded or sent.
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hash(library)} {_hash(script)}",
            f"style-src {_hash(style)}",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    text = fill_template(
        "report.html.j2",
        **{**page, "explained": _readable(page["explained"])},
        policy=policy,
        style=style,
        library=library,
        script=script,
        data=_readable(charts),
        licences=[_read(f"vendor/{name}").strip() for name in _LICENCES],
    )
    return text.encode("utf-8")


def fill_template(name: str, **content: Any) -> str:
    """Fill a template of this package; every text in ``content`` is escaped."""
    return _environment().get_template(name).render(**content)


@cache
def _read(name: str) -> str:
    text = files("shapshift.report").joinpath(name).read_text(encoding="utf-8")
    # Windows may have checked the files out with other line ends, which a browser would undo before hashing.
    return text.replace("\r\n", "\n")


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("shapshift.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_finalize,
    )
    # "tojson" writes JSON that cannot end its script element or open another.
    made.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    return made


def _finalize(entry: Any) -> Any:
    # Only code of this package is marked safe.
    return visible(entry) if isinstance(entry, str) and not hasattr(entry, "__html__") else entry


def _readable(data: Any) -> Any:
    """Texts in the data of charts, escaped by :func:`visible`."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, Mapping):
        return {key: _readable(part) for key, part in data.items()}
    return [_readable(part) for part in data] if isinstance(data, list | tuple) else data


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
