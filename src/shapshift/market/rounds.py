"""Market: rounds of payment on a ledger, from the commitment to a validation file to statements."""

import csv
import datetime
import hashlib
import io
import json
import math
import os
import secrets
import shutil
import tempfile
import unicodedata
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from shapshift._progress import progress_bar
from shapshift.checks.inputs import some
from shapshift.checks.names import visible
from shapshift.exceptions import InputError, LedgerError
from shapshift.io.files import destination, hidden_prefix, new_name, write_text
from shapshift.io.shown import Shown
from shapshift.knn import KNNShapley
from shapshift.market.chain import START, Row, digest_of, line
from shapshift.market.changes import FACTORS, WORDS, split_change
from shapshift.market.databases import UnreachableError
from shapshift.market.ledger import Event, Ledger, Verification
from shapshift.market.offers import Form, ending, file_bytes, form_of, from_parquet, row_keys, to_parquet
from shapshift.price import Allocation, Policy, allocate_budget, safe_cell, write_statements
from shapshift.price.clusters import Clusters, find_clusters
from shapshift.price.money import minor_digits, parse_locale, show_money, to_decimal
from shapshift.price.policy import Terms as Budget
from shapshift.price.privacy import Privacy
from shapshift.price.rule import Rule, count_by, pay_owners, value_counted
from shapshift.tables import Prepared

PathLike = str | os.PathLike[str]
#: Parameters of the model that a round fixes.
MODEL: dict[str, Any] = {"n_neighbors": 5, "utility": "soft", "metric": "euclidean", "ties": "average"}
#: Seconds of each part of a computation on one core: per table, per row, per row and point, and per two rows of the
#: search for copies. For :meth:`Market.changes_seconds`.
TABLE_SECONDS, ROW_SECONDS, PAIR_SECONDS, SEARCH_SECONDS = 1e-3, 1e-5, 3e-9, 1e-9
_LONGEST = 200
_STRANGE = "it was not written by a market"
_LINE = ("sequence", "kind", "round", "seller", "time", "body", "previous")
# How often a close restarts because a seller submitted during the computation.
_TRIES = 5


@dataclass(frozen=True)
class Terms(Shown):
    """Terms that a round fixes when it is opened.

    Attributes
    ----------
    budget : int
        In cents; one unit of the currency is 10**digits cents.
    currency : str
    digits : int
    period : str
        Period that the round pays for, such as "October 2026".
    rule : Rule
    model : mapping
        Parameters of :class:`~shapshift.KNNShapley`.
    form : Form
        Columns, labels and preparation.
    commitment : str
        SHA-256 of the salt followed by the SHA-256 of the validation file, both in hexadecimal.
    salt : str
        Digest of the salt, which :meth:`Market.close` reveals.
    ending : str
        Ending of the validation file.
    keep : str
        Round whose tables stay on offer; empty without one.
    step, epsilon : str or None
        Rounding and noise, see :class:`~shapshift.Privacy`.
    secret : str
        Digest of the secret of the noise, so that payments can be recomputed; empty without noise.
    """

    budget: int
    currency: str
    digits: int
    period: str
    rule: Rule
    model: Mapping[str, Any]
    form: Form
    commitment: str
    salt: str
    ending: str
    keep: str = ""
    step: str | None = None
    epsilon: str | None = None
    secret: str = ""

    def to_body(self) -> dict[str, Any]:
        """Return the body of an event."""
        made = {**vars(self), "model": dict(self.model), "form": self.form.to_dict()}
        return made | {"rule": json.dumps(self.rule.to_dict(), sort_keys=True)}  # its numbers are not amounts

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> "Terms":
        """Restore terms from the result of :meth:`to_body`."""
        made = {"rule": Rule.from_dict(json.loads(body["rule"])), "form": Form.from_dict(body["form"])}
        return cls(**{name: entry for name, entry in {**body, **made}.items() if name != "blobs"})

    def privacy(self, seed: str | None = None) -> Privacy | None:
        """Return the protection of the validation file."""
        if self.step is None and self.epsilon is None:
            return None
        return Privacy(self.step, None if self.epsilon is None else float(self.epsilon), seed)

    def show(self, cents: int) -> str:
        """Format an amount."""
        return show_money(cents, self.currency, self.digits)


class Offer(NamedTuple):
    """A seller's table: the digest of its blob, its rows, and the number of its event."""

    table: str
    rows: int
    sequence: int


@dataclass(frozen=True)
class Closed(Shown):
    """Payments of a closed round.

    Attributes
    ----------
    round : str
    terms : Terms
    payments : mapping of str to int
        Seller to cents.
    reserve, unallocated : int
        Amount kept back, and amount that could not be paid. With the payments they add up to the budget.
    tables : mapping of str to Offer
        Seller to the valued table.
    validation : str
        Digest of the validation file.
    copies : tuple of tuple
        Seller of the originals, seller of the copies, and number of copied rows.
    previous : str
        Previously closed round; empty for the first.
    time : str
        Time of the close.
    digest : str
        Digest of the close event. Publish it: it commits to this round and all before it.
    allocation : str or None
        Digest of the allocation; None if nobody submitted.
    salt : str
        Salt that proves the commitment, see :func:`commitment`.
    again : bool
        Whether it was already closed before this call.
    """

    round: str
    terms: Terms
    payments: Mapping[str, int]
    reserve: int
    unallocated: int
    tables: Mapping[str, Offer]
    validation: str
    copies: tuple[tuple[str, str, int], ...]
    previous: str
    time: str
    digest: str
    allocation: str | None
    salt: str
    again: bool = False


@dataclass(frozen=True)
class Setting:
    """All inputs of the payments.

    Precedence of other sellers' rows follows the events up to number ``until``, the close of the ``round``; up to the
    last event while it is being closed.
    """

    tables: tuple[tuple[str, str], ...]
    validation: str
    terms: Terms
    round: str
    until: int | None = None

    def valued_by(self) -> tuple[Any, ...]:
        """All inputs of the values: everything except budget and policy."""
        terms = self.terms
        rule = {**terms.rule.to_dict(), "policy": None}
        about = json.dumps([self.validation, terms.ending, rule, dict(terms.model), terms.form.to_dict()])
        return self.tables, about

    def searched_by(self) -> tuple[Any, ...] | None:
        """Arguments of the search for copies besides the features scaled by validation rows; None without a search."""
        rule, form = self.terms.rule, self.terms.form
        return (self.tables, form.label, *form.types, rule.radius, rule.near_copies) if rule.votes_once else None


@dataclass(frozen=True)
class Verified(Shown):
    """Result of a check of a ledger.

    Attributes
    ----------
    chain : Verification
    recomputed : int
        Number of recomputed payments.
    faults : tuple of str
        Faults, in sentences; empty without faults.
    """

    chain: Verification
    recomputed: int
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


class _Seen:
    """First seller of each row, from the events of a ledger in order.

    A submission counts for the rows that were on offer when its round was closed. Rows withdrawn before were never
    valued, so nobody can block others with rows at no cost.

    Attributes
    ----------
    own : dict
        Seller to rows and the events that first submitted them.
    first : dict
        Row to the event that first submitted it, and its seller.
    """

    def __init__(self, ledger: Ledger, form: Form) -> None:
        self._ledger, self._form = ledger, form
        self.own: dict[str, dict[tuple[Any, ...], int]] = defaultdict(dict)
        self.first: dict[tuple[Any, ...], tuple[int, str]] = {}
        self._offered: dict[str, dict[str, tuple[str, dict[tuple[Any, ...], int]]]] = defaultdict(dict)
        self._valued: set[tuple[str, str]] = set()
        self._at = 0

    def advance(self, until: int | None) -> bool:
        """Read events up to that number; returns False if later ones were already read."""
        if until is not None and until <= self._at:
            return until == self._at
        for event in self._ledger.events(after=self._at):
            if until is not None and event.sequence > until:
                break
            self._at = event.sequence
            if event.kind == "submit":
                self._offer(event)
            elif event.kind == "withdraw":
                self._offered[event.round].pop(event.seller, None)
            elif event.kind == "close":
                self.close(event.round)
        return True

    def _offer(self, event: Event) -> None:
        table = event.content["table"]
        before = self._offered[event.round].get(event.seller, ("", {}))[1]
        rows: dict[tuple[Any, ...], int] = {}
        if (event.seller, table) not in self._valued:
            content = from_parquet(self._ledger.blob(table))
            if {*self._form.types, self._form.label} <= set(content.column_names):
                rows = {row: before.get(row, event.sequence) for row in row_keys(content, self._form)}
        self._offered[event.round][event.seller] = table, rows

    def close(self, round: str) -> None:
        """Count the rows that are on offer in a round."""
        for seller, (table, rows) in self._offered.pop(round, {}).items():
            self._valued.add((seller, table))
            for row, sequence in rows.items():
                self.own[seller][row] = min(self.own[seller].get(row, sequence), sequence)
                self.first[row] = min(self.first.get(row, (sequence, seller)), (sequence, seller))


class _BehindError(Exception):
    """An event was appended to a round since its events were read."""


def commitment(salt: str, digest: str) -> str:
    """Return the commitment to a validation file, published before the file is revealed.

    Examples
    --------
    The result of ``printf %s%s SALT DIGEST | sha256sum``:

    >>> commitment("00", "ff")[:8]
    '8909cde2'
    """
    return hashlib.sha256(f"{salt}{digest}".encode()).hexdigest()


class Market(Shown):
    r"""Rounds of payment on a ledger.

    Parameters
    ----------
    where : path-like or str
        An SQLite file, or a URL such as ``postgresql://host/name``; made by :meth:`create`.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from shapshift.market.rounds import Market
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     val, ann, bob = (Path(folder, f"{name}.csv") for name in ("val", "ann", "bob"))
    ...     _ = val.write_text("size,class\n1.0,a\n1.2,a\n3.1,b\n2.9,b\n")
    ...     _ = ann.write_text("size,class\n1.1,a\n3.0,b\n")
    ...     _ = bob.write_text("size,class\n1.3,a\n2.5,a\n")
    ...     with Market.create(Path(folder, "market.db"), issuer="Example Ltd") as market:
    ...         terms = market.open("2026-10", val, 100, label="class", model={"n_neighbors": 1})
    ...         _ = market.submit("2026-10", "ann", ann), market.submit("2026-10", "bob", bob)
    ...         closed = market.close("2026-10", val)
    ...         dict(closed.payments), market.close("2026-10", val).again
    ({'ann': 10000, 'bob': 0}, True)
    """

    def __init__(self, where: PathLike) -> None:
        self.ledger = Ledger(where)
        self._seen: dict[tuple[str, ...], _Seen] = {}
        self._valued: dict[tuple[Any, ...], tuple[Any, ...]] = {}
        self._clusters: dict[tuple[Any, ...], Clusters] = {}
        self._files: dict[str, bytes] = {}

    @classmethod
    def create(
        cls, where: PathLike, *, issuer: str = "", contact: str = "", currency: str = "EUR", locale: str = "en"
    ) -> Self:
        """Create a ledger.

        Parameters
        ----------
        where : path-like or str
            Location without a ledger.
        issuer, contact : str
            Payer, and contact for sellers, shown on every statement.
        currency : str
            Currency of rounds that name none.
        locale : str
            Language of amounts and dates on statements, such as "de".
        """
        minor_digits("create", currency)
        parse_locale("create", locale)
        try:
            Ledger.create(where).close()
        except LedgerError:
            if not _unfinished(where):
                raise
        market = cls(where)
        body = {"issuer": issuer, "contact": contact, "currency": currency, "locale": locale}

        def allowed(events: Sequence[Event]) -> None:
            if events:
                raise LedgerError(f"{market.ledger!r} already exists. Open it instead of creating it.")

        market.ledger.append("init", body, allowed=allowed)
        return market

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.ledger.close()

    @property
    def about(self) -> Mapping[str, str]:
        """Issuer, contact, currency and locale."""
        found = next((event.content for event in self.ledger.events(kind="init")), None)
        if found is None:
            raise LedgerError(f"{self.ledger!r} was not completed. Run `shapshift market init` for it again.")
        return found

    def open(
        self,
        round: str,
        validation: PathLike,
        budget: Any,
        *,
        label: str | None,
        id: str | None = None,
        drop: Sequence[str] = (),
        features: Sequence[str] | None = None,
        scale: str = "standard",
        impute: str | bool = False,
        rule: Rule | None = None,
        model: Mapping[str, Any] | None = None,
        currency: str | None = None,
        period: str = "",
        keep: bool = False,
        privacy: Privacy | None = None,
    ) -> Terms:
        """Open a round: fix its terms, and commit to a validation file without revealing it.

        Parameters
        ----------
        round : str
            A new name, such as "2026-10".
        validation : path-like
            The validation table. Its digest is committed, and the required form of sellers' tables is read from it. The
            file itself is not stored before :meth:`close`, so keep it.
        budget : money
            Amount to share out.
        label, id, drop, features, scale, impute
            Columns and preparation, see :class:`~shapshift.tables.TableSpec`. Scales and fill values are fitted on the
            validation rows, so that no seller affects them. ``id`` is a column of sellers' tables.
        rule : Rule, optional
            Rule of payment. It must not have a floor, which would be paid to every name.
        model : mapping, optional
            Parameters ``n_neighbors``, ``utility``, ``metric`` and ``ties`` of :class:`~shapshift.KNNShapley`.
        currency : str, optional
            By default that of the ledger.
        period : str
            Period that the round pays for, in words; by default the name of the round.
        keep : bool
            Whether tables of the last closed round stay on offer, unless their sellers submit or withdraw.
        privacy : Privacy, optional
            Rounding or noise, without a seed: the ledger stores one and never reveals it to sellers.

        Returns
        -------
        Terms
            Publish their ``commitment`` before sellers submit.
        """
        _check_name("round", round)
        rule, currency = Rule() if rule is None else rule, currency or self.about["currency"]
        if Policy(floor=rule.policy.floor) != Policy():
            raise InputError(
                "A round has no floor: it would be paid to every name, and whoever submits under enough names could "
                "use up the budget. Leave it out."
            )
        money = Budget.check("open", budget, rule.policy, currency)
        _ = money.limits
        chosen = MODEL | dict(model or {})
        if len(chosen) > len(MODEL):
            raise InputError(f"The 'model' parameter of open must have keys among {some(list(MODEL))}.")
        KNNShapley(**chosen)._check_parameters()
        content = file_bytes(os.fspath(validation))
        form, _ = form_of(
            content, os.fspath(validation), label, id=id, drop=drop, features=features, scale=scale, impute=impute
        )
        salt, seed = secrets.token_hex(32), secrets.token_hex(32)
        noisy = privacy is not None and privacy.epsilon is not None
        terms = Terms(
            budget=money.budget,
            currency=currency,
            digits=money.digits,
            period=period or round,
            rule=rule,
            model=chosen,
            form=form,
            commitment=commitment(salt, digest_of(content)),
            salt=digest_of(salt.encode()),
            ending=ending(os.fspath(validation)),
            keep=self._kept(form) if keep else "",
            step=None if privacy is None or privacy.step is None else str(privacy.step),
            epsilon=None if privacy is None or privacy.epsilon is None else repr(float(privacy.epsilon)),
            secret=digest_of(seed.encode()) if noisy else "",
        )

        def allowed(events: Sequence[Event]) -> None:
            if events:
                known = Terms.from_body(self._opened(round, events).content).commitment
                raise InputError(
                    f"There is a round {round!r} already, with the commitment {known}. Choose another name."
                )

        self._rehearse(terms, content)
        blobs = {terms.salt: salt.encode()} | ({terms.secret: seed.encode()} if noisy else {})
        self.ledger.append("open", terms.to_body(), round=round, blobs=blobs, allowed=allowed)
        return terms

    def _rehearse(self, terms: Terms, content: bytes) -> None:
        """Pay for a few validation rows: a round whose payments cannot be computed must not be opened."""
        data = terms.form.arrays(content, terms.ending)
        rows, budget = (data.X_train[:20], data.y_train[:20]), to_decimal(terms.budget, terms.digits)
        several = np.arange(len(rows[1]))
        model = KNNShapley(**terms.model, n_jobs=1)
        options: dict[str, Any] = {"rule": terms.rule, "privacy": terms.privacy(), "currency": terms.currency}
        pay_owners(model, *rows, *rows, several % 2, budget, order=several // 2, progress=False, **options)

    def _kept(self, form: Form) -> str:
        """Name of the round whose tables stay on offer, checked."""
        last = self._last_closed()
        if not last:
            raise InputError("No round has been closed yet, so there are no tables to keep. Leave 'keep' out.")
        old = self.terms(last).form
        if (old.types, old.label, old.id) != (form.types, form.label, form.id):
            raise InputError(
                f"Tables of round {last!r} cannot stay on offer: its columns or their types differ. It has "
                f"{some([*old.types, old.label])}. Leave 'keep' out and let sellers submit again."
            )
        if old.kinds != form.kinds:
            raise InputError(
                f"Tables of round {last!r} cannot stay on offer: its labels are {some(list(old.labels))}, and those of "
                f"the validation file are {some(list(form.labels))}, of another kind. Write them as before, or leave "
                "'keep' out and let sellers submit again."
            )
        if not set(old.labels) <= set(form.labels):
            gone = [label for label in old.labels if label not in form.labels]
            raise InputError(
                f"Tables of round {last!r} cannot stay on offer: the validation file has no row of label {some(gone)} "
                "any more. Add one, or leave 'keep' out."
            )
        if old.impute and not form.impute:
            raise InputError(
                f"Tables of round {last!r} cannot stay on offer: they may have missing values, which it filled in. Say "
                "how with 'impute', or leave 'keep' out."
            )
        return last

    def _last_closed(self) -> str:
        # One event at a time: close events of large rounds are long.
        return next(iter(deque((event.round for event in self.ledger.events(kind="close")), maxlen=1)), "")

    def terms(self, round: str) -> Terms:
        """Terms of a round."""
        return Terms.from_body(self._opened(round, list(self.ledger.events(round=round, kind="open"))).content)

    def _opened(self, round: str, events: Sequence[Event]) -> Event:
        found = next((event for event in events if event.kind == "open"), None)
        if found is None:
            known = self.ledger.rounds()
            raise InputError(
                f"There is no round {round!r}. "
                + (f"The last ones are {some(known[:-6:-1])}." if known else "None has been opened yet.")
            )
        return found

    def offers(self, round: str) -> dict[str, Offer]:
        """Sellers whose tables are on offer, sorted by name, with their tables."""
        events = list(self.ledger.events(round=round))
        return _offers(self._kept_tables(Terms.from_body(self._opened(round, events).content)), map(_offer, events))

    def _kept_tables(self, terms: Terms) -> Mapping[str, Offer]:
        return self.closed(terms.keep).tables if terms.keep else {}

    def submit(self, round: str, seller: str, rows: PathLike) -> tuple[Event, list[str]]:
        """Submit a seller's table to an open round; it replaces an earlier one of this seller.

        Parameters
        ----------
        round, seller : str
        rows : path-like
            A table with the columns of the round. Other columns are not stored.

        Returns
        -------
        event : Event
            Its digest is the receipt.
        notes : list of str

        Notes
        -----
        A row's precedence counts from the first time that this seller submitted a row with the same features and label,
        in any round: correcting other rows, or withdrawing for a month, does not lose it. Rows withdrawn before their
        round was closed do not count. A row that another seller submitted first does not vote, even if that seller is
        not in this round; under the rules "rows" and "precedence" it is only listed.
        """
        _check_name("seller", seller)
        terms = self.terms(round)
        table, digest, notes = terms.form.read_offer(os.fspath(rows))
        content = to_parquet(table)
        body = {"table": digest_of(content), "rows": table.num_rows, "file": digest}
        event = self.ledger.append(
            "submit",
            body,
            round=round,
            seller=seller,
            blobs={body["table"]: content},
            allowed=lambda events: self._check_open(round, events),
        )
        return event, notes

    def withdraw(self, round: str, seller: str) -> Event:
        """Withdraw a seller's table from an open round."""
        _check_name("seller", seller)
        kept = self._kept_tables(self.terms(round))

        def allowed(events: Sequence[Event]) -> None:
            self._check_open(round, events)
            if seller not in _offers(kept, map(_offer, events)):
                raise InputError(f"Seller {seller!r} has no table in round {round!r}; there is nothing to withdraw.")

        return self.ledger.append("withdraw", {}, round=round, seller=seller, allowed=allowed)

    def _check_open(self, round: str, events: Sequence[Event]) -> None:
        self._opened(round, events)
        if any(event.kind == "close" for event in events):
            raise InputError(f"Round {round!r} is closed: nothing about it can change. Submit to an open round.")

    def close(
        self,
        round: str,
        validation: PathLike,
        *,
        n_jobs: int = -1,
        max_memory: int | str | None = None,
        progress: bool | None = None,
    ) -> Closed:
        """Value the tables of a round, compute payments, and close it; for a closed round, return its payments.

        Parameters
        ----------
        round : str
        validation : path-like
            The same file that the round was opened with.
        n_jobs, max_memory, progress
            As in :class:`~shapshift.KNNShapley`.

        Returns
        -------
        Closed

        Notes
        -----
        The close is one transaction: an interrupted call can be repeated. If a seller submits during the computation,
        payments are computed again with the new table.
        """
        for _ in range(_TRIES):
            events = list(self.ledger.events(round=round))
            terms = Terms.from_body(self._opened(round, events).content)
            if any(event.kind == "close" for event in events):
                return replace(self.closed(round), again=True)
            content = file_bytes(os.fspath(validation))
            digest, salt = digest_of(content), self.ledger.blob(terms.salt).decode()
            if commitment(salt, digest) != terms.commitment:
                raise InputError(
                    f"{os.fspath(validation)!r} is not the validation file that round {round!r} was opened with: its "
                    f"SHA-256, {digest}, does not fit the commitment {terms.commitment}. Use the same file, byte for "
                    "byte; saving it again can change it."
                )
            self._forget()
            self._files[digest] = content
            offers = _offers(self._kept_tables(terms), map(_offer, events))
            setting = Setting(tuple((seller, offer.table) for seller, offer in offers.items()), digest, terms, round)
            paid = self._allocate(setting, n_jobs=n_jobs, max_memory=max_memory, progress=progress)
            body, blobs = _paid(setting, paid)
            previous = self._last_closed()
            body |= {
                "salt": salt,
                "previous": previous,
                "tables": [[seller, *offer] for seller, offer in offers.items()],
            }
            known = [event.sequence for event in events]

            def allowed(now: Sequence[Event], known: list[int] = known, previous: str = previous) -> None:
                if [event.sequence for event in now] != known or self._last_closed() != previous:
                    raise _BehindError

            try:
                self.ledger.append("close", body, round=round, blobs={**blobs, digest: content}, allowed=allowed)
            except _BehindError:
                continue
            return self.closed(round)
        raise InputError(
            f"Round {round!r} was not closed: sellers submitted each time while payments were computed, {_TRIES} "
            "times. Try again when they have finished."
        )

    def closed(self, round: str) -> Closed:
        """Return the payments of a closed round."""
        opened = self._opened(round, list(self.ledger.events(round=round, kind="open")))
        event = self._close_of(round)
        return _closed(round, opened.content, event.content, event.time, event.digest)

    def _close_of(self, round: str) -> Event:
        event = next(self.ledger.events(round=round, kind="close"), None)
        if event is None:
            raise InputError(f"Round {round!r} is still open. Close it first.")
        return event

    def allocation(self, round: str) -> Allocation:
        """Allocation of a closed round with submissions."""
        closed = self.closed(round)
        if closed.allocation is None:
            why = f"No row of round {round!r} counts" if closed.tables else f"Nobody had submitted to round {round!r}"
            raise InputError(f"{why}, so nothing was allocated.")
        with tempfile.TemporaryDirectory(prefix="shapshift-") as folder:
            path = Path(folder, "allocation.npz")
            path.write_bytes(self.ledger.blob(closed.allocation))
            found = Allocation.load(path)
        if dict(map(tuple, _payments(found))) != closed.payments:
            raise LedgerError(
                f"The payments of round {round!r} differ from its allocation: one of them was written by hand. "
                "Run `shapshift market verify` with --recompute."
            )
        return found

    def _allocate(self, setting: Setting, **options: Any) -> tuple[Allocation | None, list[list[Any]]]:
        """Allocate a budget, None if no row counts; also returns the copies between sellers."""
        if not setting.tables:
            return None, []
        data, offered, sources = self._offered(setting)
        if setting.terms.rule.votes_once and offered["earlier"].all():
            return None, _copies(offered["owners"], np.full(len(sources), -1), sources)
        allocation = pay_owners(
            KNNShapley(**setting.terms.model, **options),
            data.X_val,
            data.y_val,
            data.X_train,
            data.y_train,
            rule=setting.terms.rule,
            progress=options.get("progress"),
            **offered,
            **self._money(setting.terms),
        )
        first = allocation.first
        if first is None:
            own = np.arange(len(sources))
            first = (
                own
                if offered["earlier"].all()
                else (find_clusters(data.X_val, data.y_val, radius=0, progress=False, **offered).first)
            )
            first = np.where(offered["earlier"], -1, first)
        return allocation, _copies(offered["owners"], first, sources)

    def _offered(self, setting: Setting) -> tuple[Prepared, dict[str, Any], Any]:
        """Features and labels, see :meth:`Form.arrays`; sellers, order and ids of rows; first seller of each row."""
        form = setting.terms.form
        tables = {seller: from_parquet(self.ledger.blob(digest)) for seller, digest in setting.tables}
        sizes = [table.num_rows for table in tables.values()]
        wanted = [*form.types, form.label]
        rows = pa.concat_tables([table.select(wanted) for table in tables.values()])
        data = form.arrays(self._file(setting.validation), setting.terms.ending, rows)
        seen = [self._first_seen(seller, table, setting) for seller, table in tables.items()]
        owners, sources = np.repeat(np.array(list(tables)), sizes), np.concatenate([each[1] for each in seen])
        ids = [
            table[form.id].to_pylist() if form.id else list(map(str, range(1, table.num_rows + 1)))
            for table in tables.values()
        ]
        return (
            data,
            {
                "owners": owners,
                "order": np.concatenate([each[0] for each in seen]),
                "ids": np.array([each for part in ids for each in part]),
                "earlier": owners != sources,
            },
            sources,
        )

    def _money(self, terms: Terms) -> dict[str, Any]:
        secret = self.ledger.blob(terms.secret).decode() if terms.secret else None
        budget = to_decimal(terms.budget, terms.digits)
        return {"budget": budget, "currency": terms.currency, "privacy": terms.privacy(secret)}

    def _forget(self) -> None:
        """Clear the cache of repeated valuations, since the ledger may have grown."""
        self._seen, self._valued, self._clusters, self._files = {}, {}, {}, {}

    def _file(self, digest: str) -> bytes:
        return self._files[digest] if digest in self._files else self.ledger.blob(digest)

    def _first_seen(self, seller: str, table: Any, setting: Setting) -> Any:
        """For each row, the event in which its seller first submitted it, and the first of all sellers to submit it.

        Events after the close of the round affect neither, so payments can be recomputed.
        """
        form = setting.terms.form
        columns = (*form.types, form.label)
        if columns not in self._seen or not self._seen[columns].advance(setting.until):
            self._seen[columns] = _Seen(self.ledger, form)
            self._seen[columns].advance(setting.until)
        seen = self._seen[columns]
        seen.close(setting.round)  # while it is being closed
        keys = row_keys(table, form)
        order = np.array([seen.own[seller][row] for row in keys], dtype=np.int64)
        return order, np.array([seen.first[row][1] for row in keys])

    def changes(
        self, round: str, sellers: Sequence[str] | None = None, *, progress: bool | None = None, **options: Any
    ) -> dict[str, dict[str, int]]:
        """Split the change of payments since the previous round among its causes.

        Parameters
        ----------
        round : str
            A closed round.
        sellers : sequence of str, optional
            By default all who were paid in it or in the previous one. Each needs up to 16 valuations of all rows if
            everything changed, and 8 if the model and the basis of payment are the same; see :meth:`changes_seconds`.
        progress : bool, optional
        **options
            ``n_jobs`` and ``max_memory``, as in :class:`~shapshift.KNNShapley`.

        Returns
        -------
        dict
            Seller to the change in cents due to each of :data:`~shapshift.market.changes.FACTORS`; they add up to the
            total change exactly. Empty without a previous round, after a change of currency, and if payments are
            rounded or noisy.

        Notes
        -----
        The payment is computed for each combination of old and new factors, and split by
        :func:`~shapshift.market.changes.split_change`. For a seller who is new or has left, the whole change is due to
        own rows. If the columns of the rounds differ, rows of one cannot be valued on the other's validation set: the
        joint effect of own rows, other sellers and the validation set is then listed under the validation set.
        """
        old, new = self._compared(round)
        if old is None:
            return {}
        self._forget()
        asked = sorted({*old.tables, *new.tables}) if sellers is None else list(sellers)
        strange = [seller for seller in asked if seller not in old.tables and seller not in new.tables]
        if strange:
            raise InputError(f"No table of {some(strange)} was in round {old.round!r} or {new.round!r}.")
        found = {}
        with progress_bar("Why payments changed", len(asked), progress) as advance:
            for seller in asked:
                found[seller] = self._change(old, new, seller, partial(self._payment, seller, options))
                # Other sellers need the combinations with all tables old or all new too.
                shared = [tuple((name, offer.table) for name, offer in each.tables.items()) for each in (old, new)]
                for kept in (self._valued, self._clusters):
                    for key in [key for key in kept if key[0] not in shared]:
                        del kept[key]
                advance(1)
        return found

    def changes_seconds(self, round: str, sellers: Sequence[str] | None = None, *, most: float = math.inf) -> float:
        """Estimate the duration of :meth:`changes` on one core.

        Parameters
        ----------
        round : str
            A closed round.
        sellers : sequence of str, optional
            As in :meth:`changes`.
        most : float
            Once the examined sellers exceed this, the others are assumed to need the same on average.

        Returns
        -------
        float
            Seconds, accurate to a factor of about 3; 0 if there is nothing to compute.
        """
        old, new = self._compared(round)
        if old is None:
            return 0.0
        both = (old, new)
        names = sorted({*old.tables, *new.tables}) if sellers is None else list(sellers)
        asked = [name for name in names if name in old.tables and name in new.tables]
        if not asked:
            return 0.0
        points = {each.validation: int(self.allocation(each.round).parameters["n_val"]) for each in both}
        sizes = {offer.table: offer.rows for each in both for offer in each.tables.values()}
        seconds = 0.0
        known: set[tuple[Any, ...]] = set()

        def count(setting: Setting) -> int:
            nonlocal seconds
            rows, by = sum(sizes[table] for _, table in setting.tables), setting.searched_by()
            steps = {setting.valued_by(): _cost(rows, points[setting.validation], len(setting.tables))}
            if by is not None:
                steps[*by, setting.validation] = rows * rows * SEARCH_SECONDS
            seconds += sum(cost for key, cost in steps.items() if key not in known)
            known.update(steps)
            return 0

        for done, seller in enumerate(asked, 1):
            self._change(old, new, seller, count)
            if seconds > most:
                return seconds * len(asked) / done
        return seconds

    def _compared(self, round: str) -> tuple[Closed | None, Closed]:
        """Return the previous round (None if payments are not comparable) and a closed round."""
        new = self.closed(round)
        old = self.closed(new.previous) if new.previous else None
        if old is None or old.terms.currency != new.terms.currency:
            return None, new
        return None if any(one.terms.privacy() is not None for one in (old, new)) else old, new

    def _change(self, old: Closed, new: Closed, seller: str, paid: Callable[[Setting], int]) -> dict[str, int]:
        before, after = old.payments.get(seller, 0), new.payments.get(seller, 0)
        none = dict.fromkeys(FACTORS, 0)
        if seller not in old.tables or seller not in new.tables:
            return none | {"own rows": after - before}
        rounds = (old, new)
        tables = [{name: offer.table for name, offer in each.tables.items()} for each in rounds]
        own = [each.pop(seller) for each in tables]
        terms, validation = [each.terms for each in rounds], [each.validation for each in rounds]
        sources = [(form.label, dict(form.types), form.kinds) for form in (each.form for each in terms)]
        differs = {
            "own rows": own[0] != own[1],
            "other sellers": tables[0] != tables[1],
            "validation set": validation[0] != validation[1] or terms[0].form != terms[1].form,
            "budget": terms[0].budget != terms[1].budget,
            "policy": (terms[0].rule, terms[0].model) != (terms[1].rule, terms[1].model),
        }
        together = sources[0] != sources[1]
        changed = [name for name in FACTORS if differs[name] and not (together and name in FACTORS[:2])]
        until = self._close_of(new.round).sequence

        def pay(new_ones: frozenset[str]) -> int:
            if len(new_ones) in (0, len(changed)):
                return after if new_ones else before
            at = {name: int(name in new_ones) for name in FACTORS}
            if together:
                at |= dict.fromkeys(FACTORS[:2], at["validation set"])
            rows = {**tables[at["other sellers"]], seller: own[at["own rows"]]}
            by, on = terms[at["policy"]], at["validation set"]
            fixed = replace(by, budget=terms[at["budget"]].budget, form=terms[on].form, ending=terms[on].ending)
            return paid(Setting(tuple(sorted(rows.items())), validation[on], fixed, new.round, until))

        return none | split_change(pay, changed)

    def _payment(self, seller: str, options: Mapping[str, Any], setting: Setting) -> int:
        return self._payments(setting, options).get(seller, 0)

    def _payments(self, setting: Setting, options: Mapping[str, Any]) -> Mapping[str, int]:
        """Payments; rows are valued once for settings that differ only in budget and policy."""
        if not setting.tables:
            return {}
        key = setting.valued_by()
        if key not in self._valued:
            self._valued[key] = self._value(setting, options)
        if not self._valued[key]:
            return {}
        owners, valuation, values = self._valued[key]
        shared: dict[str, Any] = {"policy": setting.terms.rule.policy, **self._money(setting.terms)}
        return dict(map(tuple, _payments(allocate_budget(valuation, owners=owners, values=values, **shared))))

    def _value(self, setting: Setting, options: Mapping[str, Any]) -> tuple[Any, ...]:
        """Sellers of the rows, values of the rows, and values of sellers if they are the players."""
        data, offered, _ = self._offered(setting)
        rule, rows, labels = setting.terms.rule, data.X_val, data.y_val
        if rule.votes_once and offered["earlier"].all():
            return ()
        clusters, by = None, setting.searched_by()
        if by is not None:
            key = (*by, rows.shape, hashlib.sha256(np.ascontiguousarray(rows).data).hexdigest())
            if key not in self._clusters:
                alike: dict[str, Any] = {"radius": rule.radius, "near_copies": rule.near_copies, "progress": False}
                self._clusters[key] = find_clusters(rows, labels, **offered, **alike)
            clusters = self._clusters[key]
        model = KNNShapley(**setting.terms.model, progress=False, **options)
        fitted = count_by(model, rule, rows, labels, **offered, clusters=clusters)
        about: dict[str, Any] = {"intervals": False, "progress": False}
        owners = offered["owners"]
        return owners, *value_counted(fitted, rule, data.X_train, data.y_train, owners, **about)

    def write_statements(
        self,
        round: str,
        folder: PathLike,
        *,
        seller: str | None = None,
        why: Mapping[str, Mapping[str, int]] | None = None,
        contest_until: datetime.date | str | None = None,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write the statements of a closed round, using only the ledger.

        Parameters
        ----------
        round : str
        folder : path-like
        seller : str, optional
            Write the page of this seller only; by default all pages and a table of all payments.
        why : mapping, optional
            Result of :meth:`changes`: pages then explain the change of payments since the previous round.
        contest_until : date or str, optional
            Last day to contest a payment, such as "2026-12-18".
        overwrite : bool
            Whether files of the same names may be replaced.

        Returns
        -------
        list of Path
            As :func:`~shapshift.price.write_statements` returns them.
        """
        closed, allocation, about = self.closed(round), self.allocation(round), self.about
        if seller is not None and seller not in closed.payments:
            raise InputError(f"Seller {seller!r} was not in round {round!r}. It paid {some(list(closed.payments))}.")
        options: dict[str, Any] = {
            "issuer": about["issuer"] or None,
            "contact": about["contact"] or None,
            "period": closed.terms.period,
            "date": closed.time[:10],
            "contest_until": contest_until,
            "locale": about["locale"],
            "round_name": round,
            "sources": {"ledger": f"event {closed.digest[:12]}"},
            "features": list(closed.terms.form.types),
            "notes": closed.terms.form.preparation(),
            "change": {
                name: [(WORDS[part], cents) for part, cents in parts.items() if cents]
                for name, parts in (why or {}).items()
            },
        }
        return write_statements(allocation, folder, owner=seller, overwrite=overwrite, **options)

    def verify(
        self, *, head: str | None = None, recompute: bool = False, progress: bool | None = None, **options: Any
    ) -> Verified:
        """Check the ledger, the commitments of its rounds, and with ``recompute`` every payment.

        Parameters
        ----------
        head : str, optional
            A noted or published digest, such as that of a close: the chain must contain it.
        recompute : bool
            Whether to recompute payments from the tables in the ledger and compare them to the cent.
        progress : bool, optional
        **options
            ``n_jobs`` and ``max_memory``, as in :class:`~shapshift.KNNShapley`.

        Returns
        -------
        Verified
        """
        self._forget()
        told: list[str] = []
        paid: list[str] = []
        rounds: dict[str, list[Row]] = defaultdict(list)
        tables: dict[str, Mapping[str, Offer]] = {}  # of the last closed round, which the next one may keep

        def look(rows: Sequence[Row]) -> None:
            for row in rows:
                rounds[row[2]].append(row)
                if row[1] == "close":
                    told.extend(self._faults(row[2], rounds.pop(row[2]), tables))
                    paid.append(row[2])

        chain = self.ledger.verify(head=head, progress=progress, look=look)
        if chain.fault is not None:
            return Verified(chain, 0, (chain.fault,))
        later = [(name, rounds[name][0][1]) for name in paid if name in rounds]
        told += [f"Round {name!r}: something came after it was closed: {kind}." for name, kind in later]
        strange = {name for name in paid if any(one.startswith(f"Round {name!r}: {_STRANGE}") for one in told)}
        recomputed = 0
        with progress_bar("Computing payments", len(paid), progress if recompute else False) as advance:
            for name in paid if recompute else ():
                advance(1)
                if name in strange:
                    continue
                closed = self.closed(name)
                told += [f"Round {name!r}: {fault}" for fault in self._differences(closed, options)]
                recomputed += len(closed.payments)
        return Verified(chain, recomputed, tuple(told))

    def _faults(self, round: str, rows: Sequence[Row], tables: dict[str, Mapping[str, Offer]]) -> Iterator[str]:
        """Broken commitments of a round, from its events up to its close; notes its tables."""
        try:
            *others, (_, _, _, _, time, body, digest) = rows
            opened = json.loads(next(row[5] for row in others if row[1] == "open"))
            closed = _closed(round, opened, json.loads(body), time, digest)
            contents = json.loads(f"[{','.join([row[5] for row in others])}]")
            changes = [
                (kind, seller, sequence, content)
                for (sequence, kind, _, seller, *_), content in zip(others, contents, strict=True)
            ]
            keep = closed.terms.keep
            offers = _offers(tables[keep] if keep in tables else self._kept_tables(closed.terms), changes)
            tables.clear()
            tables[round] = closed.tables
        except UnreachableError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            reason = visible(f"{type(error).__name__}: {error}"[:80], keep="")
            yield f"Round {round!r}: {_STRANGE} ({reason})."
            return
        if commitment(closed.salt, closed.validation) != closed.terms.commitment:
            yield f"Round {round!r}: the validation file is not the one that it was opened with."
        if closed.tables != offers:
            yield f"Round {round!r}: the tables that were valued are not those that were on offer."
        if closed.payments.keys() != closed.tables.keys():
            yield f"Round {round!r}: those who were paid are not those who had submitted."
        if closed.unallocated + closed.reserve + sum(closed.payments.values()) != closed.terms.budget:
            yield f"Round {round!r}: the payments do not add up to the budget that it was opened with."

    def _differences(self, closed: Closed, options: Mapping[str, Any]) -> Iterator[str]:
        """Payments that differ when they are recomputed."""
        tables = tuple((seller, offer.table) for seller, offer in closed.tables.items())
        until = self._close_of(closed.round).sequence
        again = self._payments(Setting(tables, closed.validation, closed.terms, closed.round, until), options)
        self._valued, self._clusters = {}, {}  # each round has its own tables
        show = closed.terms.show
        for seller, cents in closed.payments.items():
            if again.get(seller, 0) != cents:
                yield f"{seller!r} was paid {show(cents)}. Computed again, it is {show(again.get(seller, 0))}."

    def export(self, folder: PathLike, *, seller: str | None = None, progress: bool | None = None) -> list[Path]:
        """Write the ledger as files that anybody can check, or the part of one seller.

        Parameters
        ----------
        folder : path-like
            Must not exist.
        seller : str, optional
            Write this seller's own events, tables and payments: nothing of others or of the validation files. By
            default everything, see :meth:`shapshift.market.ledger.Ledger.export`. That includes the salts of open
            rounds, so give it to auditors only.
        progress : bool, optional

        Returns
        -------
        list of Path
            Written files.
        """
        if seller is None:
            whole = self.ledger.export(folder, progress=progress)
            return sorted(path for path in whole.iterdir())
        events = list(self.ledger.events(seller=seller))
        if not events:
            raise InputError(f"Seller {seller!r} never submitted anything to this ledger.")
        target = Path(folder)
        if os.path.lexists(target):
            raise FileExistsError(f"{str(target)!r} already exists. Choose another folder.")
        hidden = new_name(destination(target).parent, hidden_prefix(target))
        hidden.mkdir(0o700, parents=True)
        try:
            lines = [line(*(getattr(event, name) for name in _LINE)) for event in events]
            write_text(hidden / "events.jsonl", "".join(f"{each}\n" for each in lines))
            write_text(hidden / "payments.csv", self._payments_csv(seller))
            for event in (event for event in events if event.kind == "submit"):
                (hidden / f"table-{event.sequence}.parquet").write_bytes(self.ledger.blob(event.content["table"]))
            os.rename(hidden, target)
        except BaseException:
            shutil.rmtree(hidden, ignore_errors=True)
            raise
        return sorted(target.iterdir())

    def _payments_csv(self, seller: str) -> str:
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\r\n", quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(["round", "period", "closed", "rows", "payment", "currency"])
        for event in self.ledger.events(kind="close"):
            closed = self.closed(event.round)
            if seller in closed.payments:
                terms, rows = closed.terms, closed.tables[seller].rows
                amount = to_decimal(closed.payments[seller], terms.digits)
                cells = (closed.round, terms.period, closed.time, rows, amount, terms.currency)
                writer.writerow([safe_cell(each) if isinstance(each, str) else each for each in cells])
        return out.getvalue()


def _cost(rows: int, points: int, tables: int) -> float:
    """Seconds of one valuation: reading the tables, preparing their rows, and comparing rows with points."""
    return tables * TABLE_SECONDS + rows * ROW_SECONDS + rows * points * PAIR_SECONDS


def _closed(round: str, opened: Mapping[str, Any], body: Mapping[str, Any], time: str, digest: str) -> Closed:
    """Return the payments of a round, from the bodies of its open and close events."""
    return Closed(
        round=round,
        terms=Terms.from_body(opened),
        payments=dict(map(tuple, body["payments"])),
        reserve=body["reserve"],
        unallocated=body["unallocated"],
        tables={offer[0]: Offer._make(offer[1:]) for offer in body["tables"]},
        validation=body["validation"],
        copies=tuple((first, other, rows) for first, other, rows in body["copies"]),
        previous=body["previous"],
        time=time,
        digest=digest,
        allocation=body["allocation"],
        salt=body["salt"],
    )


def _offer(event: Event) -> tuple[str, str, int, Mapping[str, Any]]:
    return event.kind, event.seller, event.sequence, event.content


def _offers(kept: Mapping[str, Offer], changes: Iterable[tuple[str, str, int, Mapping[str, Any]]]) -> dict[str, Offer]:
    """Tables on offer, by seller, after the events of a round, given by kind, seller, sequence number and content."""
    found = dict(kept)
    for kind, seller, sequence, content in changes:
        if kind == "submit":
            found[seller] = Offer(content["table"], content["rows"], sequence)
        elif kind == "withdraw":
            found.pop(seller, None)
    return dict(sorted(found.items()))


def _unfinished(where: PathLike) -> bool:
    """Whether the ledger has no event, as after an interrupted creation."""
    try:
        with Ledger(where) as there:
            return there.head() == START
    except LedgerError:
        return False


def _paid(setting: Setting, paid: tuple[Allocation | None, list[list[Any]]]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return the payments for the body of a close event, and the blob of the allocation."""
    terms = setting.terms
    body: dict[str, Any] = {"budget": terms.budget, "validation": setting.validation, "version": version("shapshift")}
    allocation, copies = paid
    if allocation is None:
        _, _, reserve = terms.rule.policy.cents(terms.budget, terms.digits)
        none: dict[str, Any] = {
            "payments": [[seller, 0] for seller, _ in setting.tables],
            "copies": copies,
            "allocation": None,
        }
        return body | none | {"reserve": reserve, "unallocated": terms.budget - reserve}, {}
    with tempfile.TemporaryDirectory(prefix="shapshift-") as folder:
        path = Path(folder, "allocation.npz")
        allocation.save(path)
        content = path.read_bytes()
    body |= {
        "payments": _payments(allocation),
        "reserve": allocation.reserve_cents,
        "unallocated": allocation.unallocated_cents,
        "allocation": digest_of(content),
        "copies": copies,
    }
    return body, {body["allocation"]: content}


def _payments(allocation: Allocation) -> list[list[Any]]:
    return [list(one) for one in sorted(zip(map(str, allocation.owners), allocation.cents.tolist(), strict=True))]


def _copies(owners: Any, first: Any, sources: Any) -> list[list[Any]]:
    """Sellers with copies of rows that another seller submitted before, and the number of copies."""
    firsts = np.where(first < 0, sources, owners[first])
    pairs = Counter(zip(firsts.tolist(), owners.tolist(), strict=True))
    named = [[a, b, rows] for (a, b), rows in pairs.items() if a != b]
    return sorted(named, key=lambda one: (-one[2], one[0], one[1]))


def _check_name(what: str, name: Any) -> None:
    """Refuse names that are empty, too long, or not displayed as written."""
    said = f"The name of a {what} must be text of 1 to {_LONGEST} characters"
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST:
        got = f"{len(name):,} characters" if isinstance(name, str) and len(name) > _LONGEST else repr(name)
        raise InputError(f"{said}. Got {got}.")
    if unicodedata.normalize("NFC", name) != name:
        raise InputError(f"{said} in Unicode's composed form (NFC). Write {unicodedata.normalize('NFC', name)!r}.")
    if name != name.strip() or visible(name, keep="") != name:
        raise InputError(
            f"{said} without spaces at its ends, line breaks and invisible characters. Got {visible(name, keep='')!r}."
        )
