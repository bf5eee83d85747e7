"""Statements: one table of all owners, and for each owner a page that says what was valued, on what, and how."""

import csv
import hashlib
import io
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError
from shapshift.io.files import write_text
from shapshift.price.allocation import Allocation
from shapshift.price.money import to_decimal

if TYPE_CHECKING:
    from jinja2 import Template

#: Name of the table.
TABLE = "payouts.csv"

# What a spreadsheet takes for the start of a formula; full-width forms are read like the plain ones in some languages.
_WIDE = "\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
_FORMULA = tuple("=+-@\t\r\n" + _WIDE)
_NAME_LENGTH = 40
_FEATURES = 50
_UTF8_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
_LABELS = {
    "n_neighbors": "Nearest neighbours",
    "n_classes": "Classes",
    "boundary_neighbors": "Neighbours that decide about the boundary",
    "boundary_entropy": "Entropy above which a point is at the boundary",
}


def write_statements(
    allocation: Allocation,
    folder: str | os.PathLike[str],
    *,
    title: str = "Statement of payment",
    sources: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    notes: Sequence[str] | None = None,
    max_rows: int = 1000,
    overwrite: bool = False,
) -> list[Path]:
    """Write one CSV table of all owners and one HTML page per owner.

    Parameters
    ----------
    allocation : Allocation
    folder : path-like
        Made if it does not exist.
    title : str
        Heading of the pages.
    sources : mapping of str to str, optional
        What the values were computed from, such as ``{"train": "train.csv (sha256 1f3a...)"}``: listed on each page.
    features : sequence of str, optional
        Names of the features that rows were compared by.
    notes : sequence of str, optional
        What was done to the tables: scaling, encoding, filling in. Every owner reads `sources`, `features` and `notes`:
        name no category, label or file in them that belongs to somebody else.
    max_rows : int, default=1000
        Rows listed on a page, those of largest absolute value; the others are summed up in one line.
    overwrite : bool, default=False
        Whether files of the same names may be replaced. Other files in the folder stay.

    Returns
    -------
    list of Path
        The table, then the pages in the order of ``allocation.owners``.

    Notes
    -----
    Each file is written atomically, the table last, so that it never lists a page that is not there. Pages need no
    network, run no script, and name no owner but their own, no row of others and no label. What comes from the data is
    escaped; in the table, text that a spreadsheet would run as a formula gets an apostrophe in front, and all text
    stands in quotes, so that no list separator inside a name starts a new cell. The table begins with the mark by which
    spreadsheets know UTF-8 (read it with ``encoding="utf-8-sig"``). File names are made of plain letters and a hash,
    whatever an owner is called.
    """
    check.check_type("write_statements", "allocation", allocation, Allocation, "what allocate_budget returned")
    check.check_count("write_statements", "max_rows", max_rows, at_least=0)
    target = Path(folder)
    if os.path.lexists(target) and not target.is_dir():
        raise InputError(f"'folder' must name a folder. Got the file {str(target)!r}; choose another name.")
    context = _context(sources, features, notes)
    names = page_names(allocation.owners)
    table = target / TABLE
    pages = [target / name for name in names]
    present = [path.name for path in [table, *pages] if os.path.lexists(path)]
    if present and not overwrite:
        raise FileExistsError(
            f"The folder {str(target)!r} already holds {check.some(present)}. Choose another folder, or pass "
            "overwrite=True to replace them."
        )
    target.mkdir(parents=True, exist_ok=True)
    about = {
        "allocation": allocation,
        "title": title,
        "total": math.fsum(np.maximum(allocation.contributions, 0.0)),
        "paid": int(np.maximum(allocation.cents, 0).sum()),
        "settings": _settings(allocation),
        "context": context,
    }
    bound, remarks, changes = allocation.bound, allocation.notes, allocation.correction_changes or {}
    for number, (owner, path) in enumerate(zip(allocation.owners, pages, strict=True)):
        page = _template().render(
            about,
            number=number,
            owner=owner,
            bound=bound[number],
            note=remarks.get(owner),
            change=f"{changes.get(owner, 0):+,.{allocation.digits}f}",
            rows=_rows(allocation, number, max_rows),
        )
        write_text(path, page)
    text = payout_table(allocation, names).encode("utf-8", "backslashreplace").decode()
    write_text(table, _UTF8_MARK + text)
    return [table, *pages]


def payout_table(allocation: Allocation, pages: list[str]) -> str:
    """Make the table of all owners as CSV text."""
    # Of those who contribute; who is charged pays back to the buyer.
    n, paid = len(pages), int(np.maximum(allocation.cents, 0).sum())
    total = math.fsum(np.maximum(allocation.contributions, 0.0))
    amounts = {
        name: [to_decimal(amount, allocation.digits) for amount in cents]
        for name, cents in allocation.amounts().items()
    }
    columns: dict[str, Sequence[Any]] = {
        "owner": [cell(owner) for owner in allocation.owners],
        "rows": allocation.row_counts.tolist(),
        **{name: numbers.tolist() for name, numbers in allocation.measures().items()},
        "contribution_share": [own / total if total else 0.0 for own in allocation.contributions.tolist()],
        "payout": amounts.pop("payout"),
        "currency": [cell(allocation.currency)] * n,
        "pay_share": [cents / paid if paid else 0.0 for cents in allocation.cents.tolist()],
        "bound": allocation.bound,
    }
    columns |= {name: amounts.pop(name) for name in ("sampling_low", "sampling_high") if name in amounts}
    if "low" in amounts:
        columns |= {name: amounts.pop(name) for name in ("low", "high")}
        columns["interval"] = [cell(allocation.interval)] * n
        columns["draws"] = [allocation.parameters.get("interval", {}).get("draws", "")] * n
    columns |= amounts
    if notes := allocation.notes:
        columns["note"] = [notes.get(owner, "") for owner in allocation.owners]
    columns["page"] = pages
    out = io.StringIO()
    # Text in quotes: where ";" or a tab separates cells, what follows one in a name must not become a cell.
    writer = csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def cell(entry: Any) -> Any:
    """Leave numbers as they are and turn anything else into text that no spreadsheet runs."""
    if isinstance(entry, np.generic):
        entry = entry.item()
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        return entry
    text = str(entry)
    # NUL ends a cell in some readers; spaces in front of a formula are skipped by others.
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"'{text}" if text.lstrip(" \N{NO-BREAK SPACE}").startswith(_FORMULA) or text[:1].isspace() else text


def page_names(owners: tuple[Any, ...]) -> list[str]:
    """File names of the pages: safe on every system, different for different owners, never one of the table."""
    names: list[str] = []
    taken: set[str] = set()
    for owner in owners:
        plain = unicodedata.normalize("NFKD", str(owner)).encode("ascii", "ignore").decode()
        slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:_NAME_LENGTH].strip("-")
        mark = hashlib.blake2b(
            f"{type(owner).__name__}:{owner!r}".encode("utf-8", "backslashreplace"), digest_size=6
        ).hexdigest()
        name, again = "-".join(part for part in ("owner", slug, mark) if part), 2
        while (unique := name if again == 2 and name not in taken else f"{name}-{again}") in taken:
            again += 1
        taken.add(unique)
        names.append(unique + ".html")
    return names


@cache
def _template() -> "Template":
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup, escape

    def plain(entry: Any) -> Markup:
        # Control characters are no HTML, and direction marks would let a name rewrite the line it stands in.
        return escape("".join(c if c.isprintable() else " " for c in str(entry)))

    def isolated(entry: Any) -> Any:
        if isinstance(entry, Markup):  # of the template itself
            return entry
        text = plain(entry)
        return text if text.isascii() else Markup("<bdi>{}</bdi>").format(text)

    environment = Environment(
        loader=PackageLoader("shapshift", "price/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=isolated,
    )
    environment.filters |= {"plain": plain, "some": check.some, "unlabelled": _without_labels}
    return environment.get_template("statement.html.j2")


def _settings(allocation: Allocation) -> dict[str, str]:
    """Parameters of the values that the template does not name itself."""
    facts = {}
    for name, setting in allocation.parameters.items():
        if name == "point_weight":
            facts["Weights"] = "validation points were weighted"
        elif name not in ("n_train", "n_val", "boundary_fraction", "interval", "weight_digest", "equal_weights"):
            said = (
                ", ".join(f"{key}: {part}" for key, part in setting.items()) if isinstance(setting, dict) else setting
            )
            facts[_LABELS.get(name, str(name).replace("_", " ").capitalize())] = str(said)
    return facts


def _without_labels(said: str) -> str:
    """Levels without what their parameters map from: that are labels, and some may occur in others' rows only."""
    return re.sub(r"=[\[{].*[\]}]", "=...", said, flags=re.DOTALL)


def _context(
    sources: Mapping[str, str] | None, features: Sequence[str] | None, notes: Sequence[str] | None
) -> dict[str, str]:
    """Turn what the caller knows about where the values come from into facts."""
    for name, given in (("features", features), ("notes", notes)):
        if isinstance(given, str):
            raise InputError(f"The {name!r} parameter of write_statements must be a list of strings. Got {given!r}.")
    sources = {} if sources is None else sources
    check.check_type(
        "write_statements", "sources", sources, Mapping, "a mapping of names to texts, such as {'train': 'train.csv'}"
    )
    facts = {f"Source: {name}": str(said) for name, said in sources.items()}
    if features is not None:
        shown = ", ".join(map(str, features[:_FEATURES]))
        more = f" and {len(features) - _FEATURES:,} more" if len(features) > _FEATURES else ""
        facts["Features"] = f"{len(features):,}: {shown}{more}"
    if notes:
        facts["Preparation"] = "; ".join(map(str, notes))
    return facts


def _rows(allocation: Allocation, number: int, max_rows: int) -> Iterator[tuple[Any, float, float]]:
    """Id, value and what counts of it, for the rows of largest absolute value; the others are summed up in one."""
    rows = np.flatnonzero(allocation.codes == number)
    values = allocation.row_values[rows]
    counted = (
        np.maximum(values, 0.0) if allocation.policy.negatives == "clip" and allocation.basis == "rows" else values
    )
    order = np.argsort(-np.abs(values), kind="stable")
    for at in order[:max_rows]:
        yield allocation.ids[rows[at]], values[at], counted[at]
    rest = order[max_rows:]
    if rest.size:
        yield f"{rest.size:,} more rows", math.fsum(values[rest]), math.fsum(counted[rest])
