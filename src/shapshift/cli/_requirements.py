"""Requirements of shapshift, and whether the installed versions meet them.

Imports only the standard library, because it runs when other libraries are missing or too old.
"""

import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version

_FORM = re.compile(r"(?P<name>[\w.-]+)[^;>]*(?:>=(?P<lowest>[\w.]+))?[^;]*(?:;.*\bextra == ['\"](?P<extra>[^'\"]+))?")


# Extras that only its developers install.
DEVELOPERS = ("docs", "release", "test")


@dataclass(frozen=True)
class Requirement:
    """A distribution that pyproject.toml names.

    Attributes
    ----------
    name : str
    lowest : str
        Lowest version that is supported.
    extra : str or None
        Extra that it belongs to; None if shapshift always needs it.
    installed : str or None
        Installed version; None if there is none.
    """

    name: str
    lowest: str
    extra: str | None
    installed: str | None

    @property
    def outdated(self) -> bool:
        """Whether it is too old, or missing although shapshift always needs it."""
        if self.installed is None:
            return self.extra is None
        return _release(self.installed) < _release(self.lowest)


def requirements() -> list[Requirement]:
    """Everything that shapshift needs or can use, without the tools of its developers."""
    found = [match for line in requires("shapshift") or () if (match := _FORM.match(line))]
    return [
        Requirement(match["name"], match["lowest"] or "0", match["extra"], installed(match["name"]))
        for match in found
        if match["extra"] not in DEVELOPERS
    ]


def installed(name: str) -> str | None:
    """Version of a distribution; None if it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def advice(needed: list[Requirement]) -> str:
    """Name the unmet requirements and the command that installs them; empty if all are met."""
    bad = [each for each in needed if each.outdated]
    if not bad:
        return ""
    said = [f"{each.name} {each.lowest} or later is needed, {each.installed or 'none'} is installed" for each in bad]
    pins = " ".join(f"'{each.name}>={each.lowest}'" for each in bad)
    return f"{'; '.join(said)}. Run: pip install --upgrade {pins}"


def unmet() -> str:
    """Name the libraries that shapshift always needs and that are too old or missing."""
    return advice([each for each in requirements() if each.extra is None])


def _release(text: str) -> tuple[int, ...]:
    """Numbers of a version without trailing zeros: "2.0.0rc1" and "2.0+cpu" become (2,)."""
    found = re.match(r"\d+(?:\.\d+)*", text)
    numbers = [int(part) for part in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
