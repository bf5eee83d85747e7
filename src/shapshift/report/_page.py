"""From parts to one HTML file: templates, data, and a policy that lets nothing in or out."""

import base64
import hashlib
import json
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined

from shapshift.checks.names import visible

_LICENCES = ("NOTICE", "LICENSE-zrender", "LICENSE-d3")


def render(page: Mapping[str, Any], charts: Mapping[str, Any]) -> bytes:
    """Fill the template.

    Parameters
    ----------
    page : mapping
        What the template shows; every text in it is escaped.
    charts : mapping
        What the scripts draw, by chart id.

    Returns
    -------
    bytes
        The same for the same input: nothing on the page depends on the time or the machine.
    """
    style, library = _read("report.css"), _read("vendor/echarts.report.min.js")
    script = _read("charts.js") + _read("page.js")
    # Only these very scripts and this style may run; nothing may be loaded from or sent to anywhere.
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
        **page,
        policy=policy,
        style=style,
        library=library,
        script=script,
        data=as_json(_readable(charts)),
        licences=[_read(f"vendor/{name}").strip() for name in _LICENCES],
    )
    return text.encode("utf-8")


def fill_template(name: str, **content: Any) -> str:
    """Fill a template of this package; every text in ``content`` is escaped."""
    return _environment().from_string(_read(name)).render(**content)


def as_json(data: Any) -> str:
    r"""Write JSON that cannot end the script element it stands in, nor open another.

    Examples
    --------
    >>> as_json({"name": "</script>"})
    '{"name":"\\u003c/script\\u003e"}'
    """
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))  # ASCII: no line separators that end a string
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


@cache
def _read(name: str) -> str:
    folder = "" if name.startswith("vendor/") else "templates/"
    text = files("shapshift.report").joinpath(folder + name).read_text(encoding="utf-8")
    # Windows may have checked the files out with other line ends, which a browser would undo before hashing.
    return text.replace("\r\n", "\n")


@cache
def _environment() -> Environment:
    return Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, finalize=_finalize
    )


def _finalize(entry: Any) -> Any:
    # What is marked safe is code of this package.
    return visible(entry) if isinstance(entry, str) and not hasattr(entry, "__html__") else entry


def _readable(data: Any) -> Any:
    """Texts in the data of charts as :func:`visible` makes them."""
    if isinstance(data, str):
        return visible(data)
    if isinstance(data, Mapping):
        return {key: _readable(part) for key, part in data.items()}
    return [_readable(part) for part in data] if isinstance(data, list | tuple) else data


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode("utf-8")).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
