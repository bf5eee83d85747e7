"""What is known of a table beside its columns, carried in the metadata of its schema."""

import difflib
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from shapshift._validation import some

_KEY = b"shapshift"


@dataclass(frozen=True)
class About:
    """Where a table came from.

    Attributes
    ----------
    source : str
        How messages call the file, empty for a table that was not read from one.
    notes : list of str
        What reading it involved that its owner may want to know.
    roles : dict
        Columns with a fixed meaning in the format: "label", "id", "owner".
    """

    source: str = ""
    notes: list[str] = field(default_factory=list)
    roles: Mapping[str, str] = field(default_factory=dict)


def marked(table: Any, about: About) -> Any:
    """Return the table with this knowledge attached, in place of any other metadata."""
    return table.replace_schema_metadata({_KEY: json.dumps(asdict(about)).encode()})


def about(table: Any) -> About:
    """Knowledge attached to a table by :func:`marked`."""
    stored = (table.schema.metadata or {}).get(_KEY)
    return About(**json.loads(stored)) if stored else About()


def no_column(what: str, name: object, columns: Sequence[str], where: str, hint: str = "") -> ValueError:
    """Return the error for a column that is not there."""
    lowered = {column.lower(): column for column in reversed(columns)}
    close = difflib.get_close_matches(str(name).lower(), list(lowered), n=1)
    return ValueError(
        f"{what} {name!r} is not a column of {where}. It has {len(columns)}: {some(columns)}."
        + (f" Did you mean {lowered[close[0]]!r}?" if close else "")
        + hint
    )


def repeated(names: Sequence[str]) -> list[str]:
    """Names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]
