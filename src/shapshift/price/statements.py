"""Statements: a table of all owners, and a page per owner with the payment, its reasons, and how to contest it."""

import csv
import datetime
import hashlib
import io
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from shapshift.checks import inputs as check
from shapshift.exceptions import InputError
from shapshift.io.files import write_text
from shapshift.price.allocation import POINTS, Allocation
from shapshift.price.money import local_money, parse_locale, parse_money, round_parts, to_decimal, whole_weights
from shapshift.price.rule import Rule

if TYPE_CHECKING:
    from babel import Locale
    from jinja2 import Template

#: Name of the table.
TABLE = "payouts.csv"

# Characters that start a formula in a spreadsheet; some languages read the full-width forms like the plain ones.
_WIDE = "\N{FULLWIDTH EQUALS SIGN}\N{FULLWIDTH PLUS SIGN}\N{FULLWIDTH HYPHEN-MINUS}\N{FULLWIDTH COMMERCIAL AT}"
_FORMULA = tuple("=+-@\t\r\n" + _WIDE)
_NAME_LENGTH = 40
_FEATURES = 50
_UTF8_MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
# Parameters that reveal nothing about other owners or the validation points; those that do are named, not shown.
_SHOWN = {
    "method": "Method",
    "n_neighbors": "Nearest neighbours",
    "utility": "Utility",
    "semivalue": "Semivalue",
    "metric": "Metric",
    "algorithm": "Algorithm",
    "ties": "Ties",
    "tol": "Tolerance",
    "n_val": "Validation points",
    "copy_discount": "Discount for copies",
}
_NAMED = {
    "point_weight": ("Weights", "validation points were weighted"),
    "pool": ("Pooling", "training rows were used beside the validation points"),
    **dict.fromkeys(
        ("correction", "posterior"), ("Correction", "values were corrected for noise in the validation points")
    ),
}


@dataclass(frozen=True)
class Letterhead:
    """Text shared by all pages, ready to be shown.

    Attributes
    ----------
    title : str
    facts : mapping
        Date, period, round, issuer and contact, where known.
    until : str
        Last day to contest a payment; empty without one.
    locale : babel.Locale
    """

    title: str
    facts: Mapping[str, str]
    until: str
    locale: "Locale"

    @property
    def write_to(self) -> str:
        """Contact for questions."""
        return self.facts.get("Contact") or self.facts.get("Issued by") or "whoever sent you this statement"


def write_statements(
    allocation: Allocation,
    folder: str | os.PathLike[str],
    *,
    title: str = "Statement of payment",
    issuer: str | None = None,
    contact: str | None = None,
    period: str | tuple[datetime.date | str, datetime.date | str] | None = None,
    round_name: str | None = None,
    date: datetime.date | str | None = None,
    contest_until: datetime.date | str | None = None,
    locale: str = "en",
    sources: Mapping[str, str] | None = None,
    features: Sequence[str] | None = None,
    notes: Sequence[str] | None = None,
    change: Mapping[Any, Sequence[tuple[str, int]]] | None = None,
    max_rows: int = 1000,
    owner: Any = None,
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
    issuer, contact : str, optional
        Payer, and contact for questions.
    period : str or pair of dates, optional
        Period that the payment covers, such as "October 2026" or ``("2026-10-01", "2026-10-31")``.
    round_name : str, optional
        Name of the round.
    date, contest_until : date or str, optional
        Date of the statement, and last day to contest a payment: dates, or text such as "2026-11-18".
    locale : str, default="en"
        Format of numbers, amounts and dates, such as "de", "de_CH" or "ja". Sentences are English.
    sources : mapping of str to str, optional
        Inputs of the values, such as ``{"train": "train.csv (sha256 1f3a...)"}``; listed on each page.
    features : sequence of str, optional
        Names of the features that rows were compared by.
    notes : sequence of str, optional
        Preparation of the tables: scaling, encoding, filling in. Every owner reads `sources`, `features` and `notes`:
        do not name a category, label or file of another owner in them.
    change : mapping of owner to list of (str, int), optional
        Reasons why a payment differs from that of the last round, and the change in cents due to each. Omitted when
        payments are rounded or noisy.
    max_rows : int, default=1000
        Number of rows listed on a page, those with the largest parts of the payment; one line sums up the others.
    owner : hashable, optional
        Write the page of this owner alone, and no table.
    overwrite : bool, default=False
        Whether files of the same names may be replaced. Other files in the folder stay.

    Returns
    -------
    list of Path
        The table, then the pages in the order of ``allocation.owners``.

    Notes
    -----
    Each file is written atomically, and the table last: every page that it lists exists. Pages need no
    network, run no script, print on A4 or Letter, and name no owner but their own, no row of others, no label, and no
    number about other owners: not how many there are, the values of their rows, or the budget, unless the policy has a
    limit that is a share of the budget. Text from the data is escaped. In the table, text that a spreadsheet would run
    as a formula gets a leading apostrophe, and all text is quoted, so that a list separator inside a name does not
    start a new cell. The table begins with the byte-order mark by which spreadsheets recognise UTF-8 (read it with
    ``encoding="utf-8-sig"``). File names consist of plain letters and a hash, whatever the owner's name.

    The parts of rows add up to the payment to the cent, by largest remainder. If owners are the players, or payments
    are rounded or noisy (see :class:`Privacy`), no parts are shown. With rounding or noise no intervals are shown
    either, because they would reveal what rounding and noise hide. For the same reason, leave a digest of the
    validation table out of `sources` then.

    The reference on a page is a hash of the page's content; the table lists it too.

    Examples
    --------
    >>> import tempfile
    >>> from sklearn.datasets import load_iris
    >>> from shapshift import KNNShapley, allocate_budget, write_statements
    >>> X, y = load_iris(return_X_y=True)
    >>> values = KNNShapley().fit(X[::2], y[::2]).value(X[1::2], y[1::2])
    >>> pay = allocate_budget(values, 100, owners=["ann", "bob", "cid"] * 25)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     written = write_statements(pay, folder, issuer="Example Ltd")
    >>> written[0].name, len(written)
    ('payouts.csv', 4)
    """
    check.check_type("write_statements", "allocation", allocation, Allocation, "what allocate_budget returned")
    check.check_count("write_statements", "max_rows", max_rows, at_least=0)
    target = Path(folder)
    if os.path.lexists(target) and not target.is_dir():
        raise InputError(f"'folder' must name a folder. Got the file {str(target)!r}; choose another name.")
    context = _context(sources, features, notes)
    change = {} if change is None else change
    expected = "a mapping of owners to lists of (words, cents)"
    check.check_type("write_statements", "change", change, Mapping, expected)
    head = letterhead(
        title=title,
        issuer=issuer,
        contact=contact,
        period=period,
        round_name=round_name,
        date=date,
        contest_until=contest_until,
        locale=locale,
    )
    names = page_names(allocation.owners)
    table = target / TABLE
    pages = [target / name for name in names]
    chosen = range(len(pages))
    if owner is not None:
        if owner not in allocation.owners:
            raise check.wrong("write_statements", "owner", "one of the owners that are paid", owner)
        chosen = range(at := allocation.owners.index(owner), at + 1)
    written = [*([table] if owner is None else []), *(pages[number] for number in chosen)]
    present = [path.name for path in written if os.path.lexists(path)]
    if present and not overwrite:
        raise FileExistsError(
            f"The folder {str(target)!r} already holds {check.some(present)}. Choose another folder, or pass "
            "overwrite=True to replace them."
        )
    target.mkdir(parents=True, exist_ok=True)
    about = {"pay": allocation, "head": head, "technical": _technical(allocation) | context}
    references = []
    for number in chosen:
        name = allocation.owners[number]
        page = Page(allocation, number, head, () if allocation.private else tuple(change.get(name, ())), max_rows)
        references.append(page.reference)
        write_text(pages[number], _template().render(about, page=page, owner=name, i=number))
    if owner is not None:
        return written
    text = payout_table(allocation, names, references).encode("utf-8", "backslashreplace").decode()
    write_text(table, _UTF8_MARK + text)
    return written


@dataclass(frozen=True, eq=False)
class Page:
    """Content of one owner's page.

    Attributes
    ----------
    pay : Allocation
    number : int
        Of the owner.
    head : Letterhead
    change : tuple of (str, int)
        Reasons why the payment differs from the last one, and the change in cents due to each.
    max_rows : int
    """

    pay: Allocation
    number: int
    head: Letterhead
    change: tuple[tuple[str, int], ...]
    max_rows: int

    @property
    def cents(self) -> int:
        """The payment."""
        return int(self.pay.cents[self.number])

    @cached_property
    def rows(self) -> npt.NDArray[np.int64]:
        """Positions of the owner's rows."""
        return np.flatnonzero(self.pay.codes == self.number)

    def count(self, number: int) -> str:
        """Write a number."""
        from babel.numbers import format_decimal

        return format_decimal(int(number), locale=self.head.locale)

    def counted(self, number: int, one: str, many: str) -> str:
        """Write a number of things."""
        return f"{self.count(number)} {one if number == 1 else many}"

    def money(self, cents: int, *, signed: bool = False) -> Any:
        """Write an amount, with a plus sign if asked for."""
        from markupsafe import Markup

        text = local_money(int(cents), _printable(self.pay.currency), self.pay.digits, self.head.locale)
        return Markup("<bdi>{}{}</bdi>").format("+" if signed and cents > 0 else "", text)

    @cached_property
    def parts(self) -> list[int] | None:
        """Part of each row in cents; None where no part of the payment belongs to a single row."""
        pay = self.pay
        if pay.basis != "rows" or pay.private:
            return None
        values = pay.row_values[self.rows]
        weights = whole_weights(np.append(np.maximum(values, 0.0) if pay.policy.negatives == "clip" else values, 1.0))
        *weights, one = weights
        whole = sum(weights)
        if not pay.bound[self.number] and (whole > 0 or (whole < 0 and self.cents < 0)):
            return round_parts(weights, Fraction(self.cents, whole))
        return round_parts(weights, self._rate() / one)

    def _rate(self) -> Fraction:
        """Cents per unit of value paid to owners who are at neither the floor nor the cap."""
        pay = self.pay
        free = (pay.contributions > 0) & (np.array(pay.bound) == "") & (pay.cents > 0)
        whole = math.fsum(pay.contributions[free])
        return Fraction(int(pay.cents[free].sum())) / Fraction(whole) if whole > 0 else Fraction(0)

    @cached_property
    def copies(self) -> dict[int, str]:
        """Remarks on rows for which an earlier row counts, by position among the owner's rows."""
        if self.pay.first is None:
            return {}
        first, own = self.pay.first[self.rows], set(self.rows.tolist())
        return {
            at: f"like your row {self.pay.ids[first[at]]}, which counts for both"
            if int(first[at]) in own
            else "like a row that was submitted earlier, which counts instead"
            for at in np.flatnonzero(first != self.rows).tolist()
        }

    @cached_property
    def account(self) -> list[tuple[str, int]]:
        """Breakdown of the payment: lines of words and cents."""
        if self.parts is None:
            return []
        more = [part for part in self.parts if part > 0]
        less = [part for part in self.parts if part < 0]
        silent = len(self.parts) - len(more) - len(less) - len(self.copies)  # copies have value 0
        lines = [(f"{self.counted(len(more), 'row', 'rows')} that added to the result", sum(more))] if more else []
        if less:
            lines.append((f"Deductions: {self.counted(len(less), 'row', 'rows')} that lowered the result", sum(less)))
        if silent > 0:
            lines.append((f"{self.counted(silent, 'row', 'rows')} without effect on the payment", 0))
        if self.copies:
            lines.append((f"{self.counted(len(self.copies), 'row', 'rows')} like others that count already", 0))
        if self.adjustment:
            words = {"floor": "Raised to the agreed minimum", "cap": "Lowered to the agreed maximum"}
            words["deposit"] = "More than your deposit is not charged"
            lines.append((words.get(self.pay.bound[self.number], "A total below zero is not charged"), self.adjustment))
        return lines

    @cached_property
    def adjustment(self) -> int:
        """Difference that floor, cap or deposit make to the sum of the rows' parts, in cents."""
        return 0 if self.parts is None else self.cents - sum(self.parts)

    @cached_property
    def remarks(self) -> bool:
        """Whether any row has a remark."""
        return bool(self.copies) or (self.parts is not None and min(self.parts, default=0) < 0)

    @property
    def row_lines(self) -> Iterator[tuple[Any, int | None, str]]:
        """Id, part and remark of the rows with the largest parts; one line for the others."""
        parts = [0] * self.rows.size if self.parts is None else self.parts
        order = sorted(range(len(parts)), key=lambda at: -abs(parts[at]))
        shown = None if self.parts is None else parts
        for at in order[: self.max_rows]:
            said = self.copies.get(at, "deduction" if parts[at] < 0 else "")
            yield self.pay.ids[self.rows[at]], None if shown is None else shown[at], said
        if rest := order[self.max_rows :]:
            more = f"{self.counted(len(rest), 'more row', 'more rows')}"
            yield more, None if shown is None else sum(parts[at] for at in rest), ""

    @property
    def rule(self) -> list[str]:
        """Sentences that describe the rule of payment."""
        pay = self.pay
        said = pay.parameters.get("rule")
        if said is None:
            return pay.policy.sentences(pay.currency, pay.digits)
        return Rule.from_dict(said).sentences(pay.currency, pay.digits, pay.parameters)

    @cached_property
    def step(self) -> int:
        """Rounding step of payments, in cents; 0 without rounding."""
        step = self.pay.parameters.get("privacy", {}).get("step")
        return 0 if step is None else parse_money("Privacy", "step", step, self.pay.digits)

    @cached_property
    def reference(self) -> str:
        """Hash of the page's content."""
        shown = [
            repr(self.pay.owners[self.number]),
            *(self.head.title, *self.head.facts.values(), self.pay.currency, str(self.cents)),
            *(f"{row} {part} {said}" for row, part, said in self.row_lines),
        ]
        digest = hashlib.sha256("\n".join(shown).encode("utf-8", "backslashreplace")).hexdigest()
        return "-".join(digest[at : at + 4] for at in range(0, 16, 4))

    @property
    def sampled_points(self) -> bool:
        """Whether the interval is about the sample of validation points."""
        return self.pay.sampled == POINTS


def payout_table(allocation: Allocation, pages: list[str], references: list[str]) -> str:
    """Make the table of all owners as CSV text."""
    n, paid = len(pages), int(np.maximum(allocation.cents, 0).sum())
    counted = np.maximum(allocation.contributions, 0.0).tolist()
    total = math.fsum(counted)
    amounts = {
        name: [to_decimal(amount, allocation.digits) for amount in cents]
        for name, cents in allocation.amounts().items()
    }
    columns: dict[str, Sequence[Any]] = {
        "owner": [cell(owner) for owner in allocation.owners],
        "rows": allocation.row_counts.tolist(),
        "value": allocation.values.tolist(),
        "contribution": allocation.contributions.tolist(),
        "contribution_share": [own / total if total else 0.0 for own in counted],
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
    if allocation.first is not None:
        copies = allocation.first != np.arange(allocation.first.size)
        columns["copies"] = np.bincount(allocation.codes[copies], minlength=n).tolist()
    columns["reference"] = references
    columns["page"] = pages
    out = io.StringIO()
    # Text in quotes: where ";" or a tab separates cells, one inside a name must not start a new cell.
    writer = csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_NONNUMERIC)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return out.getvalue()


def cell(entry: Any) -> Any:
    """Return numbers unchanged and anything else as text that no spreadsheet runs.

    Examples
    --------
    >>> from shapshift.price import safe_cell
    >>> safe_cell("=1+1"), safe_cell("ann"), safe_cell(2)
    ("'=1+1", 'ann', 2)
    """
    if isinstance(entry, np.generic):
        entry = entry.item()
    if isinstance(entry, int | float) and not isinstance(entry, bool):
        return entry
    text = str(entry)
    # NUL ends a cell in some readers; spaces in front of a formula are skipped by others.
    text = text.replace("\0", "\N{REPLACEMENT CHARACTER}")
    return f"'{text}" if text.lstrip(" \N{NO-BREAK SPACE}").startswith(_FORMULA) or text[:1].isspace() else text


def csv_text(header: Sequence[str], rows: Any, *, as_input: bool = False) -> str:
    """Return CSV for spreadsheets: no text runs as a formula, all text is quoted, and accents are read correctly.

    A table that is to be read again keeps its text: a label "+" with an apostrophe before it would be another label.
    """
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n", quoting=csv.QUOTE_NONNUMERIC)
    for row in [header, *rows]:
        writer.writerow(["" if entry is None else entry if as_input else cell(entry) for entry in row])
    return "\ufeff" + out.getvalue()


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
        return escape(_printable(str(entry)))

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


def _printable(text: str) -> str:
    """Text without control characters, which are no HTML, and direction marks, which would rewrite the line."""
    return "".join(c if c.isprintable() else " " for c in text)


def _technical(allocation: Allocation) -> dict[str, str]:
    """Return technical facts that reveal nothing about other owners or the validation points."""
    parameters = allocation.parameters
    facts = {said: str(parameters[name]) for name, said in _SHOWN.items() if name in parameters}
    facts |= dict(said for name, said in _NAMED.items() if name in parameters)
    if "owner_values" in parameters:
        facts["Players"] = f"owners; semivalue {parameters['owner_values']['semivalue']}"
    if "clusters" in parameters:
        facts["Rows are alike"] = (
            f"within {parameters['clusters']['radius']:.3g} standard deviations of the features, with equal labels"
        )
    if interval := parameters.get("interval"):
        levels = interval["levels"]
        facts["Disturbed validation points"] = (
            f"{'lowest and highest payout' if interval['bounds'] == 'range' else '5% and 95% quantiles of the payout'} "
            f"over {interval['draws']:,} draws, {interval['draws_per_level']:,} at {'each of ' * (len(levels) > 1)}"
            f"{len(levels)} level{'s' * (len(levels) > 1)} ({_without_labels(check.some(levels))}), and the "
            "undisturbed validation points"
        )
        if "sigma" in interval:
            facts["\N{GREEK SMALL LETTER SIGMA} is"] = interval["sigma"]
    if private := parameters.get("privacy"):
        facts["Privacy of the validation points"] = ", ".join(
            f"{name} {private[name]}" for name in ("step", "epsilon") if name in private
        )
    if any(str(limit).endswith("%") for limit in (allocation.policy.cap, allocation.policy.reserve)):
        facts["Budget"] = allocation.show(allocation.budget_cents)
    return facts | {"Fingerprint of the training rows": allocation.fingerprint}


def _without_labels(said: str) -> str:
    """Levels without the keys of their parameters: the keys are labels, and some may occur only in rows of others."""
    return re.sub(r"=[\[{].*[\]}]", "=...", said, flags=re.DOTALL)


def _context(
    sources: Mapping[str, str] | None, features: Sequence[str] | None, notes: Sequence[str] | None
) -> dict[str, str]:
    """Return facts about the source of the values, from the caller's arguments."""
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


def letterhead(
    *,
    title: str = "",
    issuer: str | None = None,
    contact: str | None = None,
    period: Any = None,
    round_name: str | None = None,
    date: Any = None,
    contest_until: Any = None,
    locale: str = "en",
) -> Letterhead:
    """Check the text shared by all pages, see :func:`write_statements`."""
    from babel.dates import format_date, format_interval

    language = parse_locale("write_statements", locale)
    texts = {"title": title, "issuer": issuer, "contact": contact, "round_name": round_name}
    for name, text in texts.items():
        if text is not None:
            check.check_type("write_statements", name, text, str, "a string")
    if period is not None and not isinstance(period, str):
        if not isinstance(period, Sequence) or len(period) != 2:
            raise InputError(
                "The 'period' parameter of write_statements must be text such as 'October 2026', or a pair of dates. "
                f"Got {period!r} instead."
            )
        start, end = (_as_date("period", day) for day in period)
        if end < start:
            raise InputError(f"The 'period' parameter of write_statements ends before it starts. Got {period!r}.")
        period = format_interval(start, end, "yMMMMd", locale=language)
    day, until = (
        "" if given is None else format_date(_as_date(name, given), "long", locale=language)
        for name, given in (("date", date), ("contest_until", contest_until))
    )
    facts = {"Date": day, "Period": period, "Round": round_name, "Issued by": issuer, "Contact": contact}
    return Letterhead(title, {name: said for name, said in facts.items() if said}, until, language)


def _as_date(name: str, given: Any) -> datetime.date:
    if isinstance(given, datetime.date):
        return given
    try:
        return datetime.date.fromisoformat(given)
    except (TypeError, ValueError):
        raise InputError(
            f"The {name!r} parameter of write_statements must be a date, or text such as '2026-11-18'. Got {given!r}."
        ) from None
