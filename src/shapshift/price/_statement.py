"""Statements: one table of all owners, and for each owner a page that says what was valued, on what, and how."""

import csv
import hashlib
import html
import io
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from shapshift import _validation as check
from shapshift._files import write_atomically
from shapshift.price._allocation import Allocation
from shapshift.price._money import show_money, to_decimal

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
        What was done to the tables: scaling, encoding, filling in.
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
    network, run no script, and name no owner but their own. What comes from the data is escaped; in the table, text
    that a spreadsheet would run as a formula gets an apostrophe in front, and all text stands in quotes, so that no
    list separator inside a name starts a new cell. The table begins with the mark by which spreadsheets know UTF-8
    (read it with ``encoding="utf-8-sig"``). File names are made of plain letters and a
    hash, whatever an owner is called.
    """
    if not isinstance(allocation, Allocation):
        raise TypeError(
            "The 'allocation' parameter of write_statements must be what allocate_budget returned. Got "
            f"{type(allocation).__name__} instead."
        )
    check.check_count("write_statements", "max_rows", max_rows, at_least=0)
    target = Path(folder)
    if target.exists() and not target.is_dir():
        raise ValueError(f"'folder' must name a folder. Got the file {str(target)!r}; choose another name.")
    context = _context(sources, features, notes)
    names = page_names(allocation.owners)
    table = target / TABLE
    pages = [target / name for name in names]
    present = [path.name for path in [table, *pages] if path.exists()]
    if present and not overwrite:
        raise FileExistsError(
            f"The folder {str(target)!r} already holds {check.some(present)}. Choose another folder, or pass "
            "overwrite=True to replace them."
        )
    target.mkdir(parents=True, exist_ok=True)
    for number, path in enumerate(pages):
        _write(path, page(allocation, number, title, max_rows, context))
    _write(table, _UTF8_MARK + payout_table(allocation, names))
    return [table, *pages]


def payout_table(allocation: Allocation, pages: list[str]) -> str:
    """Make the table of all owners as CSV text."""
    audited, corrected = allocation.low is not None, allocation.corrected is not None
    header = ["owner", "rows", "value", "contribution", "contribution_share", "payout", "currency", "pay_share"]
    header += ["bound", "low", "high", "interval", "draws"] if audited else ["bound"]
    header += ["sampling_low", "sampling_high"] * (allocation.sampling_low is not None)
    header += ["uncorrected"] * (allocation.uncorrected is not None)
    header += ["corrected", "change"] * corrected + ["note"] * bool(allocation.notes) + ["page"]
    out = io.StringIO()
    # Text in quotes: where ";" or a tab separates cells, what follows one in a name must not become a cell.
    writer = csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(header)
    total, paid = math.fsum(allocation.contributions), int(allocation.cents.sum())
    bound, notes, changes = allocation.bound, allocation.notes, allocation.correction_changes
    for i, owner in enumerate(allocation.owners):
        contribution = float(allocation.contributions[i])
        row: list[Any] = [cell(owner), int(allocation.row_counts[i]), float(allocation.values[i]), contribution]
        row += [contribution / total if total else 0.0, to_decimal(allocation.cents[i]), cell(allocation.currency)]
        row += [int(allocation.cents[i]) / paid if paid else 0.0, bound[i]]
        if allocation.low is not None and allocation.high is not None:
            row += [to_decimal(allocation.low[i]), to_decimal(allocation.high[i]), cell(allocation.interval)]
            row.append(allocation.parameters.get("interval", {}).get("draws", ""))
        if allocation.sampling_low is not None and allocation.sampling_high is not None:
            row += [to_decimal(allocation.sampling_low[i]), to_decimal(allocation.sampling_high[i])]
        if allocation.uncorrected is not None:
            row.append(to_decimal(allocation.uncorrected[i]))
        if allocation.corrected is not None and changes is not None:
            row += [to_decimal(allocation.corrected[i]), changes[owner]]
        if notes:
            row.append(notes.get(owner, ""))
        writer.writerow([*row, pages[i]])
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


def page(
    allocation: Allocation, number: int, title: str, max_rows: int, context: Mapping[str, str] | None = None
) -> str:
    """Make one owner's page."""
    owner = str(allocation.owners[number])
    body = [
        f"<h1>{_text(title)}</h1>",
        f"<p class=owner>{_text(owner)}</p>",
        f"<p class=amount>{_text(show_money(allocation.cents[number], allocation.currency))}</p>",
        *[f"<p>{_text(said)}</p>" for said in _around(allocation, number)],
        "<h2>How the amount comes about</h2>",
        _facts(_amounts(allocation, number)),
        "<h2>What was valued, on what, and how</h2>",
        _facts(_method(allocation) | dict(context or {})),
        "<h2>Rules of payment</h2>",
        f"<ul>{''.join(f'<li>{_text(said)}</li>' for said in allocation.policy.sentences(allocation.currency))}</ul>",
        "<h2>Rows</h2>",
        _rows(allocation, number, max_rows),
    ]
    return (
        "<!doctype html>\n<html lang=en><head><meta charset=utf-8>\n"
        "<meta name=viewport content='width=device-width, initial-scale=1'>\n"
        "<meta http-equiv=Content-Security-Policy content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        f"<title>{_text(title)}: {_text(owner)}</title>\n<style>{_STYLE}</style></head>\n"
        "<body><main>\n" + "\n".join(body) + "\n</main></body></html>\n"
    )


def _around(allocation: Allocation, number: int) -> Iterator[str]:
    if allocation.low is not None and allocation.high is not None:
        low, high = show_money(allocation.low[number]), show_money(allocation.high[number], allocation.currency)
        yield f"Between {low} and {high} would have been paid under {allocation.interval} in the validation set."
    if allocation.sampling_low is not None and allocation.sampling_high is not None:
        low = show_money(allocation.sampling_low[number])
        high = show_money(allocation.sampling_high[number], allocation.currency)
        yield f"Owner values are sampled: with 95% confidence, exact ones would pay between {low} and {high}."
    changes = allocation.correction_changes
    if allocation.corrected is not None and changes is not None:
        after = show_money(allocation.corrected[number], allocation.currency)
        change = f"{changes[allocation.owners[number]]:+,.2f}"
        if allocation.uncorrected is None:
            yield f"With values corrected for the shift, {after} ({change})."
        else:
            before = show_money(allocation.uncorrected[number], allocation.currency)
            yield f"On the noisy validation set {before} would have been paid, and {after} after correction ({change})."
    note = allocation.notes.get(allocation.owners[number])
    if note is not None:
        yield note


def _amounts(allocation: Allocation, number: int) -> dict[str, str]:
    total, paid = math.fsum(allocation.contributions), int(allocation.cents.sum())
    own = float(allocation.contributions[number])
    facts = {
        "Rows": f"{allocation.row_counts[number]:,} of {allocation.codes.size:,}",
        "Total value": f"{allocation.values[number]:.6g}",
        "Contribution": f"{own:.6g} of {total:.6g}" + (f" ({own / total:.2%} of all contributions)" if total else ""),
        "Share of what is paid out": f"{allocation.cents[number] / paid:.2%}" if paid else "nothing is paid out",
        "Floor or cap": {"floor": "this payout is at the floor", "cap": "this payout is at the cap"}.get(
            allocation.bound[number], "neither binds this payout"
        ),
        "Owners": f"{len(allocation.owners):,}",
        "Budget": show_money(allocation.budget_cents, allocation.currency),
    }
    for name, cents in (("Kept back", allocation.reserve_cents), ("Not allocated", allocation.unallocated_cents)):
        if cents:
            facts[name] = show_money(cents, allocation.currency)
    return facts


def _method(allocation: Allocation) -> dict[str, str]:
    known = dict(allocation.parameters)
    counted = "positive values" if allocation.policy.negatives == "clip" else "values"
    facts = {
        "Contribution is": f"the sum of the {counted} of the owner's rows"
        if allocation.basis == "rows"
        else "the value of all the owner's rows entering together",
        "Training rows": f"{allocation.codes.size:,}",
        "Validation points": f"{known.pop('n_val'):,}",
        "Share of boundary points": f"{known.pop('boundary_fraction'):.1%}",
    }
    known.pop("n_train")
    interval = known.pop("interval", None)
    if interval is not None:
        facts["Interval"] = _interval(interval)
        if "sigma" in interval:
            facts["\N{GREEK SMALL LETTER SIGMA} is"] = interval["sigma"]
    for name, setting in known.items():
        said = ", ".join(f"{key}: {part}" for key, part in setting.items()) if isinstance(setting, dict) else setting
        facts[_LABELS.get(name, str(name).replace("_", " ").capitalize())] = str(said)
    return facts | {"Fingerprint of the training rows": allocation.fingerprint}


def _interval(about: Mapping[str, Any]) -> str:
    what = "lowest and highest payout" if about["bounds"] == "range" else "5% and 95% quantiles of the payout"
    levels = len(about["levels"])
    return (
        f"{what} over {about['draws']:,} draws, {about['draws_per_level']:,} at {'each of ' * (levels > 1)}{levels} "
        f"level{'s' * (levels > 1)} ({check.some(about['levels'])}), and the unperturbed validation set"
    )


def _context(
    sources: Mapping[str, str] | None, features: Sequence[str] | None, notes: Sequence[str] | None
) -> dict[str, str]:
    """Turn what the caller knows about where the values come from into facts."""
    for name, given in (("features", features), ("notes", notes)):
        if isinstance(given, str):
            raise TypeError(f"The {name!r} parameter of write_statements must be a list of strings. Got {given!r}.")
    if sources is not None and not isinstance(sources, Mapping):
        raise TypeError(
            "The 'sources' parameter of write_statements must map names to texts, such as {'train': 'train.csv'}. Got "
            f"{type(sources).__name__} instead."
        )
    facts = {f"Source: {name}": str(said) for name, said in (sources or {}).items()}
    if features is not None:
        shown = ", ".join(map(str, features[:_FEATURES]))
        more = f" and {len(features) - _FEATURES:,} more" if len(features) > _FEATURES else ""
        facts["Features"] = f"{len(features):,}: {shown}{more}"
    if notes:
        facts["Preparation"] = "; ".join(map(str, notes))
    return facts


def _rows(allocation: Allocation, number: int, max_rows: int) -> str:
    rows = np.flatnonzero(allocation.codes == number)
    values = allocation.row_values[rows]
    order = np.argsort(-np.abs(values), kind="stable")
    shown, rest = order[:max_rows], order[max_rows:]
    clipped = allocation.policy.negatives == "clip" and allocation.basis == "rows"
    lines = []
    for at in shown:
        counted = max(values[at], 0.0) if clipped else values[at]
        lines.append(f"<tr><td>{_text(allocation.ids[rows[at]])}<td>{values[at]:+.4e}<td>{counted:+.4e}")
    if rest.size:
        left = values[rest]
        counted = math.fsum(np.maximum(left, 0.0) if clipped else left)
        lines.append(f"<tr><td>{rest.size:,} more rows<td>{math.fsum(left):+.4e}<td>{counted:+.4e}")
    note = "" if allocation.basis == "rows" else "<p>For information: the amount rests on all rows together.</p>"
    return (
        f"{note}<div class=wide><table><thead><tr><th>Row<th>Value<th>Counted as</thead><tbody>{''.join(lines)}"
        "</tbody></table></div>"
    )


def _facts(facts: dict[str, str]) -> str:
    return "<dl>" + "".join(f"<dt>{_text(name)}<dd>{_text(said)}" for name, said in facts.items()) + "</dl>"


def _text(entry: Any) -> str:
    # Control characters are no HTML, and direction marks would let a name rewrite the line it stands in.
    plain = "".join(c if c.isprintable() else " " for c in str(entry))
    return f"<bdi>{html.escape(plain)}</bdi>" if not plain.isascii() else html.escape(plain)


def _write(path: Path, text: str) -> None:
    content = text.encode("utf-8", "backslashreplace")

    def write(file: BinaryIO) -> None:
        file.write(content)

    write_atomically(path, write)


_STYLE = """
:root{color-scheme:light dark}
body{font:16px/1.5 system-ui,sans-serif;margin:0;padding:1.5rem;overflow-wrap:anywhere}
main{max-width:46rem;margin:auto}
h1{font-size:1.1rem;font-weight:600;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}
.owner{font-size:1.5rem;margin:.3rem 0}.amount{font-size:2.2rem;font-weight:700;margin:.3rem 0 1rem}
dl{display:grid;grid-template-columns:minmax(9rem,1fr) 2fr;gap:.3rem 1rem;margin:0}dt{opacity:.75}dd{margin:0}
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:.25rem .5rem;border-bottom:1px solid #8884}
th:first-child,td:first-child{text-align:left}
@media(max-width:30rem){dl{grid-template-columns:1fr}dd{margin-bottom:.5rem}}
"""
