"""Market: rounds of payment on a ledger, from the commitment to a validation file to statements."""

import csv
import hashlib
import io
import json
import os
import secrets
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa

from shapshift._progress import progress_bar
from shapshift.checks.inputs import some
from shapshift.checks.names import visible
from shapshift.exceptions import InputError
from shapshift.io.files import destination, hidden_prefix, new_name, write_text
from shapshift.knn import KNNShapley
from shapshift.market.chain import digest_of, line
from shapshift.market.changes import FACTORS, WORDS, split_change
from shapshift.market.ledger import Event, Ledger, Verification
from shapshift.market.offers import Form, ending, file_bytes, form_of, from_parquet, row_keys, to_parquet
from shapshift.price import Allocation, Policy, safe_cell, write_statements
from shapshift.price.clusters import find_clusters
from shapshift.price.money import minor_digits, show_money, to_decimal
from shapshift.price.policy import Terms as Budget
from shapshift.price.privacy import Privacy
from shapshift.price.rule import Rule, pay_owners
from shapshift.price.statements import page_names

PathLike = str | os.PathLike[str]
#: Parameters of the model that a round fixes.
MODEL: dict[str, Any] = {"n_neighbors": 5, "utility": "soft", "metric": "euclidean", "ties": "average"}
_LONGEST = 200
_LINE = ("sequence", "kind", "round", "seller", "time", "body", "previous")
# How often a close begins anew because a seller submitted while it was computed.
_TRIES = 5


@dataclass(frozen=True)
class Terms:
    """What a round fixes when it is opened.

    Attributes
    ----------
    budget : int
        In cents, of which 10**digits make one of the currency.
    currency : str
    digits : int
    period : str
        What is paid for, such as "October 2026".
    rule : Rule
    model : mapping
        Parameters of :class:`~shapshift.KNNShapley`.
    form : Form
        Columns, labels and preparation.
    commitment : str
        SHA-256 of the salt and the SHA-256 of the validation file, both in hexadecimal, one after the other.
    salt : str
        Digest of the salt, which :meth:`Market.close` reveals.
    ending : str
        Ending of the validation file.
    keep : str
        Round whose tables stay on offer; empty for none.
    step, epsilon : str or None
        Rounding and noise, see :class:`~shapshift.Privacy`.
    secret : str
        Digest of what the noise comes from, so that payments can be computed again; empty without noise.
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
        return made | {"rule": json.dumps(self.rule.to_dict(), sort_keys=True)}  # numbers in it are no amounts

    @classmethod
    def from_body(cls, body: Mapping[str, Any]) -> "Terms":
        """Make them from what :meth:`to_body` returned."""
        made = {"rule": Rule.from_dict(json.loads(body["rule"])), "form": Form.from_dict(body["form"])}
        return cls(**{name: entry for name, entry in {**body, **made}.items() if name != "blobs"})

    def privacy(self, seed: str | None = None) -> Privacy | None:
        """Return how payments are kept from telling what is in the validation file."""
        if self.step is None and self.epsilon is None:
            return None
        return Privacy(self.step, None if self.epsilon is None else float(self.epsilon), seed)

    def show(self, cents: int) -> str:
        """Write an amount for a reader."""
        return show_money(cents, self.currency, self.digits)


class Offer(NamedTuple):
    """A seller's table: the digest of its blob, its rows, and the number of the event that brought it."""

    table: str
    rows: int
    sequence: int


@dataclass(frozen=True)
class Closed:
    """What a closed round paid.

    Attributes
    ----------
    round : str
    terms : Terms
    payments : mapping of str to int
        Seller to cents.
    reserve, unallocated : int
        What is kept back, and what could not be paid. With the payments they add up to the budget.
    tables : mapping of str to Offer
        Seller to the table that was valued.
    validation : str
        Digest of the validation file.
    copies : tuple of tuple
        Seller who was first, seller with copies, and number of such rows.
    previous : str
        Round that was closed before; empty for the first.
    time : str
        When it was closed.
    digest : str
        Digest of the event, to be published: it fixes this round and all before it.
    allocation : str or None
        Digest of the allocation; None where nobody had submitted.
    salt : str
        What proves the commitment, see :func:`commitment`.
    again : bool
        Whether it had been closed before this call.
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
    """Everything that payments are computed from."""

    tables: tuple[tuple[str, str], ...]
    validation: str
    terms: Terms


@dataclass(frozen=True)
class Verified:
    """What a check of a ledger found.

    Attributes
    ----------
    chain : Verification
    recomputed : int
        Payments that were computed again.
    faults : tuple of str
        What is wrong, in sentences; empty where all is well.
    """

    chain: Verification
    recomputed: int
    faults: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.faults


class _BehindError(Exception):
    """Something was appended to a round since its events were read."""


def commitment(salt: str, digest: str) -> str:
    """Return what is published about a validation file before it is shown.

    Examples
    --------
    As ``printf %s%s SALT DIGEST | sha256sum`` says:

    >>> commitment("00", "ff")[:8]
    '8909cde2'
    """
    return hashlib.sha256(f"{salt}{digest}".encode()).hexdigest()


class Market:
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
        self._seen: dict[tuple[str, ...], dict[tuple[Any, ...], int]] = {}
        self._paid: dict[str, Mapping[str, int]] = {}
        self._files: dict[str, bytes] = {}

    @classmethod
    def create(
        cls, where: PathLike, *, issuer: str = "", contact: str = "", currency: str = "EUR", locale: str = "en"
    ) -> Self:
        """Make a ledger.

        Parameters
        ----------
        where : path-like or str
            Where nothing is yet.
        issuer, contact : str
            Who pays, and whom a seller asks: on every statement.
        currency : str
            Of rounds that name none.
        locale : str
            Language of amounts and dates on statements, such as "de".
        """
        minor_digits("create", currency)
        Ledger.create(where).close()
        market = cls(where)
        body = {"issuer": issuer, "contact": contact, "currency": currency, "locale": locale}
        market.ledger.append("init", body)
        return market

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.ledger.close()

    @property
    def about(self) -> Mapping[str, str]:
        """Issuer, contact, currency and locale."""
        return next((event.content for event in self.ledger.events(kind="init")), {})

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
        """Open a round: fix its terms, and commit to a validation file without showing it.

        Parameters
        ----------
        round : str
            A new name, such as "2026-10".
        validation : path-like
            The validation table. Its digest counts, and what sellers' tables must look like is read from it; the file
            itself is not stored before :meth:`close`, so keep it.
        budget : money
            What is shared out.
        label, id, drop, features, scale, impute
            Columns and preparation, see :class:`~shapshift.tables.TableSpec`. Scales and fill values are fitted on the
            validation rows, so that no seller moves them. ``id`` is a column of sellers' tables.
        rule : Rule, optional
            How payments follow from values. Without a floor: it would be paid to every name.
        model : mapping, optional
            Parameters ``n_neighbors``, ``utility``, ``metric`` and ``ties`` of :class:`~shapshift.KNNShapley`.
        currency : str, optional
            By default that of the ledger.
        period : str
            What is paid for, in words; by default the name of the round.
        keep : bool
            Whether tables of the round that was closed last stay on offer, unless their sellers submit or withdraw.
        privacy : Privacy, optional
            Rounding or noise, without a seed: the ledger keeps one, and it is never revealed to sellers.

        Returns
        -------
        Terms
            Their ``commitment`` is to be published before sellers submit.
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
                raise InputError(f"There is a round {round!r} already. Choose another name.")

        self._rehearse(terms, content)
        blobs = {terms.salt: salt.encode()} | ({terms.secret: seed.encode()} if noisy else {})
        self.ledger.append("open", terms.to_body(), round=round, blobs=blobs, allowed=allowed)
        return terms

    def _rehearse(self, terms: Terms, content: bytes) -> None:
        """Pay for a few validation rows: terms that cannot be computed must not open a round that nobody can close."""
        data = terms.form.arrays(content, terms.ending)
        rows, budget = (data.X_train[:20], data.y_train[:20]), to_decimal(terms.budget, terms.digits)
        several = np.arange(len(rows[1]))
        model = KNNShapley(**terms.model, n_jobs=1)
        options: dict[str, Any] = {"rule": terms.rule, "privacy": terms.privacy(), "currency": terms.currency}
        pay_owners(model, *rows, *rows, several % 2, budget, order=several // 2, progress=False, **options)

    def _kept(self, form: Form) -> str:
        """Name of the round whose tables stay on offer."""
        last = self._last_closed()
        if not last:
            raise InputError("No round has been closed yet, so there are no tables to keep. Leave 'keep' out.")
        old = self.terms(last).form
        if (old.types, old.label, old.id) != (form.types, form.label, form.id):
            raise InputError(
                f"Tables of round {last!r} cannot stay on offer: its columns or their types are others. It has "
                f"{some([*old.types, old.label])}. Leave 'keep' out and let sellers submit again."
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
        return next((event.round for event in reversed(list(self.ledger.events(kind="close")))), "")

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
        return _offers(self._kept_tables(Terms.from_body(self._opened(round, events).content)), events)

    def _kept_tables(self, terms: Terms) -> Mapping[str, Offer]:
        return self.closed(terms.keep).tables if terms.keep else {}

    def submit(self, round: str, seller: str, rows: PathLike) -> tuple[Event, list[str]]:
        """Submit a seller's table to an open round; it takes the place of an earlier one of this seller.

        Parameters
        ----------
        round, seller : str
        rows : path-like
            A table with the columns of the round. Other columns are left out and not stored.

        Returns
        -------
        event : Event
            Its digest is the receipt.
        notes : list of str

        Notes
        -----
        A row's precedence counts from the first time that this seller submitted a row of the same features and label,
        in whichever round: correcting other rows, or withdrawing for a month, does not cost it.
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
        """Take a seller's table off an open round."""
        _check_name("seller", seller)
        kept = self._kept_tables(self.terms(round))

        def allowed(events: Sequence[Event]) -> None:
            self._check_open(round, events)
            if seller not in _offers(kept, events):
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
        """Value the tables of a round, pay, and close it; of a closed round, return what it paid.

        Parameters
        ----------
        round : str
        validation : path-like
            The very file that the round was opened with.
        n_jobs, max_memory, progress
            As in :class:`~shapshift.KNNShapley`.

        Returns
        -------
        Closed

        Notes
        -----
        Everything is written in one transaction, or nothing is: a call that is killed can be repeated. What is
        submitted while payments are computed is counted, as they are then computed again.
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
                    f"SHA-256, {digest}, does not fit the commitment {terms.commitment}. Use that very file, byte for "
                    "byte; saving it anew can change it."
                )
            self._forget()
            self._files[digest] = content
            offers = _offers(self._kept_tables(terms), events)
            setting = Setting(tuple((seller, offer.table) for seller, offer in offers.items()), digest, terms)
            paid = self._allocate(setting, n_jobs=n_jobs, max_memory=max_memory, progress=progress)
            body, blobs = _paid(setting, paid)
            body |= {
                "salt": salt,
                "previous": self._last_closed(),
                "tables": [[seller, *offer] for seller, offer in offers.items()],
            }
            known = [event.sequence for event in events]

            def allowed(now: Sequence[Event], known: list[int] = known) -> None:
                if [event.sequence for event in now] != known:
                    raise _BehindError

            try:
                self.ledger.append("close", body, round=round, blobs={**blobs, digest: content}, allowed=allowed)
            except _BehindError:
                continue
            return self.closed(round)
        raise InputError(
            f"Round {round!r} was not closed: sellers submitted each time while payments were computed, {_TRIES} "
            "times. Try again when they have done."
        )

    def closed(self, round: str) -> Closed:
        """Return what a closed round paid."""
        return self._closed(round, list(self.ledger.events(round=round)))

    def _closed(self, round: str, events: Sequence[Event]) -> Closed:
        terms = Terms.from_body(self._opened(round, events).content)
        event = next((event for event in events if event.kind == "close"), None)
        if event is None:
            raise InputError(f"Round {round!r} is still open. Close it first.")
        body = event.content
        return Closed(
            round=round,
            terms=terms,
            payments=dict(map(tuple, body["payments"])),
            reserve=body["reserve"],
            unallocated=body["unallocated"],
            tables={seller: Offer(*offer) for seller, *offer in body["tables"]},
            validation=body["validation"],
            copies=tuple((first, other, rows) for first, other, rows in body["copies"]),
            previous=body["previous"],
            time=event.time,
            digest=event.digest,
            allocation=body["allocation"],
            salt=body["salt"],
        )

    def allocation(self, round: str) -> Allocation:
        """Allocation of a closed round to which sellers submitted."""
        closed = self.closed(round)
        if closed.allocation is None:
            raise InputError(f"Nobody had submitted to round {round!r}, so nothing was allocated.")
        with tempfile.TemporaryDirectory(prefix="shapshift-") as folder:
            path = Path(folder, "allocation.npz")
            path.write_bytes(self.ledger.blob(closed.allocation))
            return Allocation.load(path)

    def _allocate(self, setting: Setting, **options: Any) -> tuple[Allocation, Any] | None:
        """Allocate a budget; returns also the position of the first row that each row is a copy of."""
        if not setting.tables:
            return None
        terms, form = setting.terms, setting.terms.form
        tables = {seller: from_parquet(self.ledger.blob(digest)) for seller, digest in setting.tables}
        sizes = [table.num_rows for table in tables.values()]
        wanted = [*form.types, form.label]
        rows = pa.concat_tables([table.select(wanted) for table in tables.values()])
        data = form.arrays(self._file(setting.validation), terms.ending, rows)
        order = [self._first_seen(seller, table, form) for seller, table in tables.items()]
        ids = [
            table[form.id].to_pylist() if form.id else list(map(str, range(1, table.num_rows + 1)))
            for table in tables.values()
        ]
        offered: dict[str, Any] = {
            "owners": np.repeat(np.array(list(tables)), sizes),
            "order": np.concatenate(order),
            "ids": np.array([each for part in ids for each in part]),
        }
        allocation = pay_owners(
            KNNShapley(**terms.model, **options),
            data.X_val,
            data.y_val,
            data.X_train,
            data.y_train,
            budget=to_decimal(terms.budget, terms.digits),
            rule=terms.rule,
            currency=terms.currency,
            privacy=terms.privacy(self.ledger.blob(terms.secret).decode() if terms.secret else None),
            progress=options.get("progress"),
            **offered,
        )
        first = allocation.first
        if first is None:
            first = find_clusters(data.X_val, data.y_val, radius=0, progress=False, **offered).first
        return allocation, first

    def _forget(self) -> None:
        """Forget what was kept for repeated valuations, as the ledger may have grown."""
        self._seen, self._paid, self._files = {}, {}, {}

    def _file(self, digest: str) -> bytes:
        return self._files[digest] if digest in self._files else self.ledger.blob(digest)

    def _first_seen(self, seller: str, table: Any, form: Form) -> Any:
        """Sequence number of the event by which the seller submitted each row for the first time."""
        columns = [*form.types, form.label]
        key = (seller, *columns)
        if key not in self._seen:
            seen: dict[tuple[Any, ...], int] = {}
            done: set[str] = set()
            for event in self.ledger.events(kind="submit", seller=seller):
                if event.content["table"] in done:
                    continue
                done.add(event.content["table"])
                earlier = from_parquet(self.ledger.blob(event.content["table"]))
                if set(columns) <= set(earlier.column_names):
                    for row in row_keys(earlier, form):
                        seen.setdefault(row, event.sequence)
            self._seen[key] = seen
        return np.array([self._seen[key][row] for row in row_keys(table, form)], dtype=np.int64)

    def changes(
        self, round: str, sellers: Sequence[str] | None = None, *, progress: bool | None = None, **options: Any
    ) -> dict[str, dict[str, int]]:
        """Say why payments changed since the round before.

        Parameters
        ----------
        round : str
            A closed round.
        sellers : sequence of str, optional
            By default all who were paid in it or in the one before. Each can need up to eight valuations.
        progress : bool, optional
        **options
            ``n_jobs`` and ``max_memory``, as in :class:`~shapshift.KNNShapley`.

        Returns
        -------
        dict
            Seller to the cents that each of :data:`~shapshift.market.changes.FACTORS` changed the payment by; they add
            up to the change exactly. Empty without a round before, where that was paid in another currency, and where
            payments are rounded or noisy.

        Notes
        -----
        The payment is computed for each combination of what changed being old or new, and split by
        :func:`~shapshift.market.changes.split_change`. A seller who is new or has left owes the whole change to own
        rows. Where the columns of the rounds differ, rows of one cannot be valued on the other's validation set: own
        rows, other sellers and the validation set then changed together, and this is listed under the validation set.
        """
        new = self.closed(round)
        old = self.closed(new.previous) if new.previous else None
        if old is None or old.terms.currency != new.terms.currency:
            return {}
        if any(one.terms.privacy() is not None for one in (old, new)):
            return {}
        self._forget()
        asked = sorted({*old.tables, *new.tables}) if sellers is None else list(sellers)
        strange = [seller for seller in asked if seller not in old.tables and seller not in new.tables]
        if strange:
            raise InputError(f"No table of {some(strange)} was in round {old.round!r} or {new.round!r}.")
        found = {}
        with progress_bar("Why payments changed", len(asked), progress) as advance:
            for seller in asked:
                found[seller] = self._change(old, new, seller, options)
                advance(1)
        return found

    def _change(self, old: Closed, new: Closed, seller: str, options: Mapping[str, Any]) -> dict[str, int]:
        before, after = old.payments.get(seller, 0), new.payments.get(seller, 0)
        none = dict.fromkeys(FACTORS, 0)
        if seller not in old.tables or seller not in new.tables:
            return none | {"own rows": after - before}
        rounds = (old, new)
        tables = [{name: offer.table for name, offer in each.tables.items()} for each in rounds]
        own = [each.pop(seller) for each in tables]
        terms, validation = [each.terms for each in rounds], [each.validation for each in rounds]
        sources = [(form.label, dict(form.types)) for form in (each.form for each in terms)]
        differs = {
            "own rows": own[0] != own[1],
            "other sellers": tables[0] != tables[1],
            "validation set": validation[0] != validation[1] or terms[0].form != terms[1].form,
            "budget": terms[0].budget != terms[1].budget,
            "policy": (terms[0].rule, terms[0].model) != (terms[1].rule, terms[1].model),
        }
        together = sources[0] != sources[1]
        changed = [name for name in FACTORS if differs[name] and not (together and name in FACTORS[:2])]

        def pay(new_ones: frozenset[str]) -> int:
            if len(new_ones) in (0, len(changed)):
                return after if new_ones else before
            at = {name: int(name in new_ones) for name in FACTORS}
            if together:
                at |= dict.fromkeys(FACTORS[:2], at["validation set"])
            rows = {**tables[at["other sellers"]], seller: own[at["own rows"]]}
            by, on = terms[at["policy"]], at["validation set"]
            fixed = replace(by, budget=terms[at["budget"]].budget, form=terms[on].form, ending=terms[on].ending)
            setting = Setting(tuple(sorted(rows.items())), validation[on], fixed)
            return self._payments(setting, options).get(seller, 0)

        return none | split_change(pay, changed)

    def _payments(self, setting: Setting, options: Mapping[str, Any]) -> Mapping[str, int]:
        """Payments, computed once for equal settings."""
        terms = setting.terms
        about = [setting.tables, setting.validation, terms.budget, terms.rule.to_dict(), dict(terms.model)]
        key = json.dumps([*about, terms.form.to_dict()])
        if key not in self._paid:
            paid = self._allocate(setting, progress=False, **options)
            self._paid[key] = {} if paid is None else dict(_payments(paid[0]))
        return self._paid[key]

    def write_statements(
        self,
        round: str,
        folder: PathLike,
        *,
        seller: str | None = None,
        why: Mapping[str, Mapping[str, int]] | None = None,
        overwrite: bool = False,
    ) -> list[Path]:
        """Write the statements of a closed round, from the ledger alone.

        Parameters
        ----------
        round : str
        folder : path-like
        seller : str, optional
            Write the page of this seller only; by default all pages and a table of all payments.
        why : mapping, optional
            What :meth:`changes` returned: pages then say why payments changed since the round before.
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
        if seller is None:
            return write_statements(allocation, folder, overwrite=overwrite, **options)
        target = Path(folder)
        page = target / page_names(allocation.owners)[allocation.owners.index(seller)]
        if os.path.lexists(page) and not overwrite:
            raise FileExistsError(f"There is a file {str(page)!r} already. Choose another folder, or replace it.")
        with tempfile.TemporaryDirectory(prefix="shapshift-") as apart:
            write_statements(allocation, apart, **options)
            target.mkdir(parents=True, exist_ok=True)
            return [write_text(page, Path(apart, page.name).read_text(encoding="utf-8"))]

    def verify(
        self, *, head: str | None = None, recompute: bool = False, progress: bool | None = None, **options: Any
    ) -> Verified:
        """Check the ledger, what rounds promised, and with ``recompute`` every payment.

        Parameters
        ----------
        head : str, optional
            A digest that was noted or published, such as that of a close: the chain must have it.
        recompute : bool
            Whether payments are computed again from the tables in the ledger and compared to the cent.
        progress : bool, optional
        **options
            ``n_jobs`` and ``max_memory``, as in :class:`~shapshift.KNNShapley`.

        Returns
        -------
        Verified
        """
        chain = self.ledger.verify(head=head, progress=progress)
        self._forget()
        paid, faults = 0, [] if chain.fault is None else [chain.fault]
        if chain.ok:
            names = [event.round for event in self.ledger.events(kind="close")]
            with progress_bar("Checking rounds", len(names), progress) as advance:
                for name in names:
                    events = list(self.ledger.events(round=name))
                    closed = self._closed(name, events)
                    found = list(self._faults(closed, events))
                    if recompute:
                        found += self._differences(closed, options)
                        paid += len(closed.payments)
                    faults += [f"Round {name!r}: {fault}" for fault in found]
                    advance(1)
        return Verified(chain, paid, tuple(faults))

    def _faults(self, closed: Closed, events: Sequence[Event]) -> Iterator[str]:
        """Promises that a closed round did not keep."""
        if commitment(closed.salt, closed.validation) != closed.terms.commitment:
            yield "the validation file is not the one that it was opened with."
        if events[-1].kind != "close":
            yield f"something came after it was closed: {events[-1].kind}."
        if dict(closed.tables) != _offers(self._kept_tables(closed.terms), events):
            yield "the tables that were valued are not those that were on offer."
        if set(closed.payments) != set(closed.tables):
            yield "those who were paid are not those who had submitted."
        if closed.unallocated + closed.reserve + sum(closed.payments.values()) != closed.terms.budget:
            yield "the payments do not add up to the budget that it was opened with."

    def _differences(self, closed: Closed, options: Mapping[str, Any]) -> Iterator[str]:
        """Payments that come out otherwise when they are computed again."""
        tables = tuple((seller, offer.table) for seller, offer in closed.tables.items())
        again = self._payments(Setting(tables, closed.validation, closed.terms), options)
        show = closed.terms.show
        for seller, cents in closed.payments.items():
            if again.get(seller, 0) != cents:
                yield f"{seller!r} was paid {show(cents)}. Computed again, it is {show(again.get(seller, 0))}."

    def export(self, folder: PathLike, *, seller: str | None = None, progress: bool | None = None) -> list[Path]:
        """Write the ledger as files that anybody can check, or what concerns one seller.

        Parameters
        ----------
        folder : path-like
            Must not exist.
        seller : str, optional
            Write this seller's own events and tables, and what this seller was paid: nothing of others, nor of the
            validation files. By default everything, see :meth:`shapshift.market.ledger.Ledger.export`; with the salts
            of rounds that are still open, so it is for auditors.
        progress : bool, optional

        Returns
        -------
        list of Path
            What was written.
        """
        if seller is None:
            whole = self.ledger.export(folder, progress=progress)
            return sorted(path for path in whole.iterdir())
        events = list(self.ledger.events(seller=seller))
        if not events:
            raise InputError(f"Seller {seller!r} never submitted anything to this ledger.")
        target = Path(folder)
        if os.path.lexists(target):
            raise FileExistsError(f"There is {str(target)!r} already. Choose another folder.")
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


def _offers(kept: Mapping[str, Offer], events: Sequence[Event]) -> dict[str, Offer]:
    """Tables on offer, by seller, after the events of a round."""
    found = dict(kept)
    for event in events:
        if event.kind == "submit":
            content = event.content
            found[event.seller] = Offer(content["table"], content["rows"], event.sequence)
        elif event.kind == "withdraw":
            found.pop(event.seller, None)
    return dict(sorted(found.items()))


def _paid(setting: Setting, paid: tuple[Allocation, Any] | None) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return what the event of a close says about payments, and the blob of the allocation."""
    terms = setting.terms
    body: dict[str, Any] = {"budget": terms.budget, "validation": setting.validation, "version": version("shapshift")}
    if paid is None:
        _, _, reserve = terms.rule.policy.cents(terms.budget, terms.digits)
        none: dict[str, Any] = {"payments": [], "copies": [], "allocation": None}
        return body | none | {"reserve": reserve, "unallocated": terms.budget - reserve}, {}
    allocation, first = paid
    with tempfile.TemporaryDirectory(prefix="shapshift-") as folder:
        path = Path(folder, "allocation.npz")
        allocation.save(path)
        content = path.read_bytes()
    body |= {
        "payments": _payments(allocation),
        "reserve": allocation.reserve_cents,
        "unallocated": allocation.unallocated_cents,
        "allocation": digest_of(content),
        "copies": _copies(allocation, first),
    }
    return body, {body["allocation"]: content}


def _payments(allocation: Allocation) -> list[list[Any]]:
    return [list(one) for one in sorted(zip(map(str, allocation.owners), allocation.cents.tolist(), strict=True))]


def _copies(allocation: Allocation, first: Any) -> list[list[Any]]:
    """Sellers whose rows are copies of a row that another seller submitted before, with how many."""
    codes, firsts = allocation.codes, allocation.codes[first]
    others = firsts != codes
    pairs = Counter(zip(firsts[others].tolist(), codes[others].tolist(), strict=True))
    named = [[str(allocation.owners[a]), str(allocation.owners[b]), rows] for (a, b), rows in pairs.items()]
    return sorted(named, key=lambda one: (-one[2], one[0], one[1]))


def _check_name(what: str, name: Any) -> None:
    """Refuse names that are empty, long, or do not show as they are."""
    said = f"The name of a {what} must be text of 1 to {_LONGEST} characters"
    if not isinstance(name, str) or not name.strip() or len(name) > _LONGEST:
        got = f"{len(name):,} characters" if isinstance(name, str) and len(name) > _LONGEST else repr(name)
        raise InputError(f"{said}. Got {got}.")
    if name != name.strip() or visible(name, keep="") != name:
        raise InputError(
            f"{said} without spaces at its ends, line breaks and invisible characters. Got {visible(name, keep='')!r}."
        )
