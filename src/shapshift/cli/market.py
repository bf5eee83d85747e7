"""``shapshift market init``, ``open``, ``submit``, ``close``, ``statement``, ``verify`` and ``export``."""

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from shapshift.cli._commands import command
from shapshift.cli._data import parse_semivalue
from shapshift.cli._errors import Code, CommandError
from shapshift.cli._options import argument, option
from shapshift.cli._run import Run

if TYPE_CHECKING:
    from shapshift.market.rounds import Closed, Market
    from shapshift.price.privacy import Privacy
    from shapshift.price.rule import Rule

# Sellers in a table of the terminal.
SHOWN = 20
# Most seconds that are spent by default on why payments changed.
MOST_SECONDS = 60
_ENVIRONMENT = "env:"


@dataclass(frozen=True)
class Where:
    """The ledger."""

    ledger: str = argument(
        "SQLite file, or a URL such as postgresql://user@host/name; env:NAME reads it from the environment, so that a "
        "password stays out of the history of the shell.",
        metavar="LEDGER",
        recorded=False,
    )


@dataclass(frozen=True)
class Which(Where):
    """The ledger and a round."""

    round: str = argument("Name of the round, such as 2026-10.", metavar="ROUND", recorded=False)


@dataclass(frozen=True)
class Issuer:
    """The operator of the market."""

    panel: ClassVar[str] = "Statements"
    issuer: str = option("", "Name of the payer, on every statement.", metavar="TEXT", recorded=False)
    contact: str = option("", "Contact for sellers, on every statement.", metavar="TEXT", recorded=False)
    currency: str = option("EUR", "Currency of rounds that name none.", metavar="TEXT", recorded=False)
    locale: str = option("en", "Language of amounts and dates on statements.", metavar="NAME", recorded=False)


@dataclass(frozen=True)
class Validation:
    """The validation file."""

    panel: ClassVar[str] = "Validation"
    val: Path | None = option(None, "The validation rows: one file.", metavar="FILE", recorded=False)


@dataclass(frozen=True)
class Form:
    """Roles of columns."""

    panel: ClassVar[str] = "Columns"
    label: str | None = option(None, "Label column.", "-y", metavar="COLUMN", recorded=False)
    id: str | None = option(None, "Row id column of sellers' tables.", metavar="COLUMN", recorded=False)
    drop: list[str] | None = option(None, "Columns of FILE that are not features.", metavar="COLUMN", recorded=False)
    features: list[str] | None = option(None, "Feature columns; by default all remaining columns.", recorded=False)
    scale: Literal["standard", "robust", "none"] = option(
        "standard", "Scaling of number columns, fitted on the validation rows.", recorded=False
    )
    impute: Literal["median", "mean", "most_frequent"] | None = option(
        None, "How to fill in missing values; without this option they are an error.", recorded=False
    )


@dataclass(frozen=True)
class Terms:
    """Amount and terms of the payment."""

    panel: ClassVar[str] = "Payment"
    budget: str | None = option(None, "Amount to pay out, such as 10000.", metavar="AMOUNT", recorded=False)
    period: str = option("", "Period that is paid for, such as 'October 2026'.", metavar="TEXT", recorded=False)
    keep: bool = option(
        False,
        "Keep tables of the last closed round on offer, unless their sellers submit others or withdraw.",
        recorded=False,
    )
    pay_by: Literal["clusters", "rows", "owners", "precedence"] = option(
        "clusters",
        "clusters: copies and near copies of a row count once, for whoever was first; invites copies too noisy for the "
        "radius. rows: all rows; invites copies. owners: a seller's rows entering together; invites splitting into two "
        "names. precedence: rows in the order of submission; invites being first, and near copies.",
        recorded=False,
    )
    semivalue: str | None = option(None, "As in 'shapshift value'; by default that of --pay-by.", recorded=False)
    radius: float | None = option(None, "Distance of near copies; by default from the data.", recorded=False)
    near_copies: bool = option(
        False,
        "Test each seller for copies with more noise than the radius. Honest repeated measurements look the same.",
        recorded=False,
    )
    policy: Literal["carry", "clip"] = option(
        "carry",
        "carry: rows with negative values reduce what their seller is paid; without --deposit that invites hiding bad "
        "rows under a second name. clip: treat negative values as zero; invites random rows.",
        recorded=False,
    )
    deposit: str = option(
        "0", "With carry, the most that a seller with a negative total is charged.", metavar="AMOUNT", recorded=False
    )
    cap: str | None = option(
        None,
        "Maximum payment: an amount, or a share such as 30%; invites splitting into several names.",
        metavar="AMOUNT",
        recorded=False,
    )
    reserve: str = option(
        "0", "Part of the budget to keep back: an amount, or a share such as 5%.", metavar="AMOUNT", recorded=False
    )
    odd_cents: Literal["draw", "keep"] = option(
        "draw", "Indivisible cents between exactly equal sellers: draw by hash, or keep back.", recorded=False
    )
    round_to: str | None = option(None, "Round payments to multiples of this.", metavar="AMOUNT", recorded=False)
    epsilon: float | None = option(
        None, "Add noise, so that payments do not reveal FILE: differential privacy.", recorded=False
    )
    currency: str | None = option(None, "Currency; by default that of the ledger.", metavar="TEXT", recorded=False)


@dataclass(frozen=True)
class Model:
    """How rows are valued."""

    panel: ClassVar[str] = "Method"
    neighbors: int = option(5, "K of the KNN classifier.", "-k", metavar="K", min=1, recorded=False)
    utility: Literal["soft", "hard"] = option(
        "soft", "soft: divide votes by the number of voters; hard: by K.", recorded=False
    )
    metric: Literal["euclidean", "sqeuclidean", "manhattan", "cosine"] = option(
        "euclidean", "Distance between rows.", recorded=False
    )
    ties: Literal["average", "index"] = option("average", "Rows at equal distance.", recorded=False)


@dataclass(frozen=True)
class Work:
    """How much of the machine is used."""

    panel: ClassVar[str] = "Method"
    jobs: int = option(-1, "Threads; -1 is all processors. Never changes a result.", "-j", metavar="N", recorded=False)
    max_memory: str | None = option(None, "Memory limit for what valuing allocates.", metavar="SIZE", recorded=False)

    @property
    def options(self) -> dict[str, Any]:
        """Return parameters of a model."""
        return {"n_jobs": self.jobs, "max_memory": self.max_memory}


@dataclass(frozen=True)
class Submission(Which):
    """A seller's table."""

    seller: str = argument("Name of the seller.", metavar="SELLER", recorded=False)
    rows: Path | None = argument(
        "The seller's rows: one file of any format that 'shapshift value' reads.",
        default=None,
        metavar="[ROWS]",
        recorded=False,
    )
    withdraw: bool = option(False, "Withdraw the seller's table from the round instead.", recorded=False)


@dataclass(frozen=True)
class One:
    """One seller, or all."""

    panel: ClassVar[str] = "Output"
    seller: str | None = option(None, "Only what concerns this seller.", metavar="NAME", recorded=False)


@dataclass(frozen=True)
class Pages:
    """Folder and text of statements."""

    panel: ClassVar[str] = "Output"
    out: Path | None = option(None, "Folder of the statements.", "-o", metavar="FOLDER", recorded=False)
    force: bool = option(False, "Replace existing statements.", "-f", recorded=False)
    contest_until: str | None = option(None, "Last date to contest a payment.", metavar="YYYY-MM-DD", recorded=False)
    changes: bool | None = option(
        None,
        "Explain why payments changed since the previous round.",
        "--changes/--no-changes",
        show_default="if that takes at most about a minute",
        recorded=False,
    )


@dataclass(frozen=True)
class Proof:
    """Further checks."""

    panel: ClassVar[str] = "Checks"
    head: str | None = option(
        None,
        "A digest that was noted or published earlier: the ledger must contain it.",
        metavar="DIGEST",
        recorded=False,
    )
    recompute: bool = option(False, "Compute every payment again, and compare to the cent.", recorded=False)


@dataclass(frozen=True)
class Target(Where):
    """Target of an export."""

    folder: Path = argument("A folder that does not exist yet.", metavar="FOLDER", recorded=False)


@command(
    "market init",
    *(Where, Issuer),
    writes=False,
    examples=[
        "shapshift market init market.db --issuer 'Example Ltd' --contact payments@example.org",
        "shapshift market init env:MARKET_URL --currency CHF --locale de",
    ],
)
def init(run: Run) -> None:
    """Make a ledger for rounds of payment: an SQLite file, or tables in a PostgreSQL database."""
    from shapshift.market.rounds import Market

    given = {name: getattr(run[Issuer], name) for name in ("issuer", "contact", "currency", "locale")}
    with Market.create(location(run[Where].ledger), **given) as market:
        run.terminal.document({"command": run.command, "ledger": without_password(run[Where].ledger), **market.about})
    run.terminal.line(f"The ledger {without_password(run[Where].ledger)} is ready, in {given['currency']}.", "bold")
    _next(run, "open", "ROUND", "--val val.parquet --label LABEL --budget 10000")


@command(
    "market open",
    *(Which, Validation, Form, Terms, Model),
    writes=False,
    examples=[
        "shapshift market open market.db 2026-10 --val val.parquet --label y --budget 10000",
        "shapshift market open market.db 2026-11 --val val.parquet --label y --budget 12000 --keep --deposit 50",
    ],
)
def open_round(run: Run) -> None:
    """Open a round: fix its terms, and commit to a validation file without showing it.

    The columns of sellers' tables are read from FILE. The file itself is not stored until the round is closed, so
    keep it. Publish the printed commitment before sellers submit.
    """
    terms, form, model = run[Terms], run[Form], run[Model]
    if terms.budget is None:
        raise CommandError("--budget must say what to share out, such as --budget 10000.")
    with _market(run) as market:
        made = market.open(
            run[Which].round,
            _validation(run),
            terms.budget,
            label=form.label,
            id=form.id,
            drop=_split(form.drop),
            features=_split(form.features) or None,
            scale=form.scale,
            impute=form.impute or False,
            rule=_rule(terms),
            model={"n_neighbors": model.neighbors, **{n: getattr(model, n) for n in ("utility", "metric", "ties")}},
            currency=terms.currency,
            period=terms.period,
            keep=terms.keep,
            privacy=_privacy(terms),
        )
        kept = list(market.offers(run[Which].round))
    said, invited = made.rule.sentences(made.currency, made.digits), made.rule.invites(ledger=True)
    run.terminal.document(
        {
            "command": run.command,
            "round": run[Which].round,
            "budget": made.show(made.budget),
            "commitment": made.commitment,
            "features": list(made.form.types),
            "labels": list(made.form.labels),
            "kept": kept,
            "rule": said,
            "invites": invited,
        }
    )
    run.terminal.line(f"Round {run[Which].round} is open: {made.show(made.budget)} will be paid.", "bold")
    if kept:
        run.terminal.line(f"On offer from round {made.keep}: the tables of {_count(len(kept), 'seller')}.")
    run.terminal.line("\nPublish this commitment to the validation file before sellers submit:")
    run.terminal.line(f"  {made.commitment}", "bold")
    run.terminal.line(f"Keep {run[Validation].val} as it is: only this exact file can close the round.\n")
    for sentence in said:
        run.terminal.line(sentence)
    run.terminal.line(f"What this invites: {' '.join(invited)}")
    _next(run, "submit", run[Which].round, "SELLER rows.csv")


@command(
    "market submit",
    Submission,
    writes=False,
    examples=[
        "shapshift market submit market.db 2026-10 ann rows.csv",
        "shapshift market submit market.db 2026-11 ann --withdraw",
    ],
)
def submit(run: Run) -> None:
    """Submit a seller's table to an open round, or withdraw it.

    A table replaces the one that the seller submitted before. Of two sellers with the same row, the first is the one
    who submitted it first, in any round. Columns that the round does not have are not
    stored.
    """
    given = run[Submission]
    if (given.rows is None) != given.withdraw:
        raise CommandError("Name the file of the seller's rows, or use --withdraw; not both.")
    notes: list[str] = []
    with _market(run, given) as market:
        if given.rows is None:
            event, told = market.withdraw(given.round, given.seller), "has withdrawn"
        else:
            before = market.offers(given.round).get(given.seller)
            event, notes = market.submit(given.round, given.seller, given.rows)
            told = f"has {_count(event.content['rows'], 'row')} on offer"
            told += f", in place of {before.rows:,}" if before else ""
    for note in notes:
        run.terminal.note(note)
    facts = {"round": given.round, "seller": given.seller, "receipt": event.digest, **event.content}
    run.terminal.document({"command": run.command, **facts})
    run.terminal.line(f"Round {given.round}: {given.seller} {told}.", "bold")
    run.terminal.line(f"Receipt: {event.digest} (event {event.sequence}, {event.time})")
    _next(run, "close", given.round, "--val val.parquet", given)


@command(
    "market close",
    *(Which, Validation, Work),
    writes=False,
    examples=["shapshift market close market.db 2026-10 --val val.parquet"],
)
def close(run: Run) -> None:
    """Value the tables of a round, pay, and close it.

    FILE must be the file that the round was opened with. Payments and everything that they were computed from are
    written together or not at all. A killed command can be repeated; on a closed round the command shows what was
    paid and pays nothing.
    """
    with _market(run) as market:
        closed = market.close(run[Which].round, _validation(run), **run[Work].options, progress=run.terminal.progress)
    facts = {"command": run.command, **_facts(closed), "closed_before": closed.again}
    run.terminal.document(facts)
    if closed.again:
        run.terminal.line(
            f"Round {closed.round} was already closed, at {closed.time}. Nothing is paid again.", "yellow"
        )
    _show_closed(run, closed)
    if closed.payments:
        _next(run, "statement", closed.round, "--out statements")
    else:
        run.terminal.line("No seller has submitted a table, so nobody is paid.")


@command(
    "market statement",
    *(Which, One, Pages),
    writes=False,
    examples=[
        "shapshift market statement market.db 2026-10 --out statements",
        "shapshift market statement market.db 2026-11 --seller ann --out for_ann",
    ],
)
def statement(run: Run) -> None:
    """Write the statements of a closed round, from the ledger alone.

    If there is a previous round, they say why a payment changed: the seller's own rows, other sellers, the validation
    set, the budget and the policy, which add up to the change to the cent.
    """
    pages, which, seller = run[Pages], run[Which], run[One].seller
    if pages.out is None:
        raise CommandError("--out must name the folder of the statements, such as --out statements.")
    with _market(run) as market:
        closed = market.closed(which.round)
        changes, asked, why = pages.changes, None if seller is None else [seller], {}
        if changes is None:
            seconds = market.changes_seconds(which.round, asked, most=MOST_SECONDS)
            changes = seconds <= MOST_SECONDS
            if not changes:
                fewer = "; with --seller NAME --changes, for one seller alone" if seller is None else ""
                run.terminal.note(
                    f"Why payments changed is left out: it takes about {_duration(seconds)} to compute on one core. "
                    f"Ask for it with --changes{fewer}."
                )
        if changes:
            with run.terminal.busy("Computing why payments changed"):
                why = market.changes(which.round, asked, progress=run.terminal.progress)
        written = market.write_statements(
            which.round, pages.out, seller=seller, why=why, contest_until=pages.contest_until, overwrite=pages.force
        )
    split = {name: {part: _amount(closed, cents) for part, cents in parts.items()} for name, parts in why.items()}
    run.terminal.document(
        {
            "command": run.command,
            "round": which.round,
            "previous": closed.previous,
            "files": [str(path) for path in written],
            "changes": split,
        }
    )
    rows = [
        {"seller": name, ">change": _money(closed, sum(parts.values()))}
        | {f">{part}": _money(closed, cents) for part, cents in parts.items()}
        for name, parts in why.items()
    ]
    if rows:
        run.terminal.line(f"Why payments changed since round {closed.previous}, in {closed.terms.currency}:")
    _table(run, "Changes", rows)
    run.terminal.line(f"Statements: {pages.out}/ ({_count(len(written), 'file')})", "bold")


@command(
    "market verify",
    *(Where, Proof, Work),
    writes=False,
    examples=[
        "shapshift market verify market.db",
        "shapshift market verify market.db --head 1f3a... --recompute",
    ],
)
def verify(run: Run) -> None:
    """Check that nothing in a ledger was changed, and that rounds followed their terms.

    With --recompute every payment is computed again from the tables in the ledger and compared to the cent. Without a
    digest that was noted or published earlier (--head), nobody can tell that the last events were cut off.
    """
    proof = run[Proof]
    with _market(run) as market:
        found = market.verify(
            head=proof.head, recompute=proof.recompute, progress=run.terminal.progress, **run[Work].options
        )
    chain = found.chain
    facts = {"ok": found.ok, "faults": list(found.faults), "recomputed": found.recomputed, **vars(chain)}
    run.terminal.document({"command": run.command, **facts})
    if not found.ok:
        raise CommandError("\n".join(["The ledger fails its check:", *found.faults]), Code.OTHER_BYTES)
    run.terminal.line(
        f"No fault was found: {_count(chain.events, 'event')}, {_count(chain.closed, 'closed round')}, "
        f"{_count(chain.payments, 'payment')}.",
        "green",
    )
    if proof.recompute:
        run.terminal.line(f"Computed again, and the same to the cent: {_count(found.recomputed, 'payment')}.")
    run.terminal.line(f"Head: {chain.head}")
    if proof.head is None:
        run.terminal.line("Note the head, and pass it to --head next time, to detect events that were cut off.")


@command(
    "market export",
    *(Target, One),
    writes=False,
    examples=[
        "shapshift market export market.db for_auditor",
        "shapshift market export market.db for_ann --seller ann",
    ],
)
def export(run: Run) -> None:
    """Write a ledger as files that an auditor can check without it, or what concerns one seller.

    The export for an auditor holds all tables, validation files of closed rounds and the salts of open ones. That for a
    seller holds the seller's own events, tables and payments, and nothing of others.
    """
    target, seller = run[Target], run[One].seller
    with _market(run, target) as market:
        written = market.export(target.folder, seller=seller, progress=run.terminal.progress)
    run.terminal.document({"command": run.command, "folder": str(target.folder), "files": [p.name for p in written]})
    whose = "The ledger" if seller is None else f"What concerns {seller}"
    run.terminal.line(f"{whose} is in {target.folder}/ ({', '.join(path.name for path in written[:8])}).", "bold")


@contextmanager
def _market(run: Run, given: Where | None = None) -> Iterator["Market"]:
    from shapshift.market.rounds import Market

    where = given or (run[Which] if run.has(Which) else run[Where])
    with Market(location(where.ledger)) as market:
        yield market


def location(text: str) -> str:
    """Return the path or URL of a ledger, read from the environment where that is asked for."""
    if not text.startswith(_ENVIRONMENT):
        return text
    name = text.removeprefix(_ENVIRONMENT)
    if not os.environ.get(name):
        raise CommandError(f"LEDGER says {text!r}, but the environment has no variable {name!r}. Set it first.")
    return os.environ[name]


def without_password(text: str) -> str:
    """Return the LEDGER argument without its password."""
    return re.sub(r"(?<=://)([^/@:]*):[^/@]*@", r"\1:***@", text)


def _validation(run: Run) -> Path:
    path = run[Validation].val
    if path is None:
        raise CommandError("--val must name the validation file, such as --val val.parquet.")
    return path


def _split(given: list[str] | None) -> list[str]:
    return [part.strip() for entry in given or [] for part in entry.split(",") if part.strip()]


def _rule(terms: Terms) -> "Rule":
    from shapshift.price import Policy
    from shapshift.price.rule import Rule

    policy = Policy(
        negatives=terms.policy,
        deposit=terms.deposit,
        cap=terms.cap,
        reserve=terms.reserve,
        odd_cents=terms.odd_cents,
    )
    semivalue = None if terms.semivalue is None else parse_semivalue(terms.semivalue)
    return Rule(terms.pay_by, semivalue, terms.radius, policy, terms.near_copies)


def _privacy(terms: Terms) -> "Privacy | None":
    from shapshift.price.privacy import Privacy

    return Privacy(terms.round_to, terms.epsilon) if (terms.round_to, terms.epsilon) != (None, None) else None


def _next(run: Run, name: str, round: str, rest: str, given: Where | None = None) -> None:
    where = given or (run[Which] if run.has(Which) else run[Where])
    words = shlex.join([without_password(where.ledger), round])
    run.terminal.line(f"Next: shapshift market {name} {words} {rest}", "cyan")


def _count(n: int, thing: str) -> str:
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def _duration(seconds: float) -> str:
    return f"{seconds / 60:,.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.0f} hours"


def _money(closed: "Closed", cents: int) -> str:
    from shapshift.price.money import show_money

    return show_money(cents, "", closed.terms.digits)


def _amount(closed: "Closed", cents: int) -> str:
    """Write an amount for programs."""
    return _money(closed, cents).replace(",", "")


def _facts(closed: "Closed") -> dict[str, Any]:
    return {
        "round": closed.round,
        "currency": closed.terms.currency,
        "budget": _amount(closed, closed.terms.budget),
        "payments": {seller: _amount(closed, cents) for seller, cents in closed.payments.items()},
        "reserve": _amount(closed, closed.reserve),
        "unallocated": _amount(closed, closed.unallocated),
        "copies": [{"first": first, "copies": other, "rows": rows} for first, other, rows in closed.copies],
        "closed": closed.time,
        "head": closed.digest,
    }


def _show_closed(run: Run, closed: "Closed") -> None:
    rows = [{"first": first, "has copies": other, ">rows": f"{n:,}"} for first, other, n in closed.copies]
    if rows:
        copied, paid = sum(n for *_, n in closed.copies), "not paid" if closed.terms.rule.votes_once else "paid too"
        run.terminal.line(f"Copies of what another seller submitted before: {_count(copied, 'row')}, {paid}.")
    _table(run, "Copies", rows)
    payments = [
        {"seller": seller, ">rows": f"{closed.tables[seller].rows:,}", ">payment": _money(closed, cents)}
        for seller, cents in sorted(closed.payments.items(), key=lambda one: (-one[1], one[0]))
    ]
    run.terminal.line(f"Payments of round {closed.round}, {closed.terms.show(closed.terms.budget)}:")
    _table(run, "Payments", payments)
    for name, cents in (("Kept back", closed.reserve), ("Not allocated", closed.unallocated)):
        if cents:
            run.terminal.line(f"{name}: {closed.terms.show(cents)}")
    run.terminal.line(f"Publish this digest, which fixes all payments so far: {closed.digest}")


def _table(run: Run, title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    run.terminal.table(title, rows[:SHOWN])
    if len(rows) > SHOWN:
        run.terminal.line(f"... and {len(rows) - SHOWN:,} more; --json has all of them.")
