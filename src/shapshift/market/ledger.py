"""The append-only ledger of a market: events, with the tables and results that they refer to.

Events form a chain: each contains the digest of the previous one (see :mod:`shapshift.market.chain`). Blobs are stored
under their own digests, which the events name.
"""

import datetime
import hashlib
import os
import shutil
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter, methodcaller
from pathlib import Path
from sys import getsizeof
from typing import TYPE_CHECKING, Any, Self

from shapshift._progress import progress_bar
from shapshift.checks.names import quoted
from shapshift.exceptions import InputError, LedgerError
from shapshift.io.files import destination, hidden_prefix, new_name, sync_folder, written
from shapshift.market.chain import (
    FORMAT,
    MOST_BODY,
    PAGE,
    START,
    Chain,
    Event,
    Row,
    Verification,
    canonical,
    check_body,
    check_name,
    check_payments,
    digest_of,
    is_digest,
    line,
    verify_export,
)
from shapshift.market.databases import ONCE, Database, UnreachableError, open_database

if TYPE_CHECKING:
    import sqlalchemy

__all__ = ["Event", "Ledger", "Verification", "digest_of", "verify_export"]

# Bytes of a blob in one row of the database, before compression.
_PART = 8 * 2**20
# Events, and bytes of their bodies, that verify reads at a time.
_FETCHED = 20_000
_ENOUGH = 64 * 2**20
_PLAIN, _ZLIB = 0, 1

_COLUMNS = "e.sequence, e.kind, e.round, e.seller, e.time, e.body, e.digest"
_LAST = "SELECT sequence, time, digest FROM shapshift_events ORDER BY sequence DESC LIMIT 1"
_INSERT = (
    "INSERT INTO shapshift_events (sequence, kind, round, seller, time, body, digest) "
    "VALUES (:sequence, :kind, :round, :seller, :time, :body, :digest)"
)


def utc_now() -> datetime.datetime:
    """Time of this machine's clock."""
    return datetime.datetime.now(datetime.UTC)


class Ledger:
    """Events and blobs in an SQLite file or a PostgreSQL database.

    Every transaction is on disk when it returns; nothing is ever changed or removed.

    Parameters
    ----------
    where : path-like or str
        Path of an SQLite file, or a URL: ``postgresql://user@host/database``.
    clock : callable
        Function that returns the time as a datetime with a time zone.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> folder = tempfile.TemporaryDirectory()
    >>> with Ledger.create(Path(folder.name) / "market.db") as ledger:
    ...     event = ledger.append("open", {"budget": 100_00}, round="2026-01")
    ...     paid = {"payments": [["Ann", 60_00], ["Bob", 40_00]], "budget": 100_00, "reserve": 0, "unallocated": 0}
    ...     event = ledger.append("close", paid, round="2026-01")
    ...     ledger.verify().ok, ledger.rounds(), event.sequence
    (True, ['2026-01'], 2)
    >>> folder.cleanup()
    """

    def __init__(self, where: str | os.PathLike[str], *, clock: Callable[[], datetime.datetime] = utc_now) -> None:
        self._database: Database = open_database("Ledger", where)
        self._clock = clock
        try:
            self._database.check()
        except BaseException:
            self._database.close()
            raise

    @classmethod
    def create(cls, where: str | os.PathLike[str], *, clock: Callable[[], datetime.datetime] = utc_now) -> Self:
        """Create an empty ledger and open it.

        Parameters
        ----------
        where, clock
            See :class:`Ledger`. The file must not exist; the database must not contain a ledger.
        """
        database = open_database("Ledger.create", where)
        try:
            database.create()
        finally:
            database.close()
        return cls(where, clock=clock)

    def __repr__(self) -> str:
        return f"Ledger({self._database.name})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the database."""
        self._database.close()

    def append(
        self,
        kind: str,
        body: Mapping[str, Any],
        *,
        round: str = "",
        seller: str = "",
        blobs: Mapping[str, bytes | None] | None = None,
        allowed: Callable[[list[Event]], object] | None = None,
    ) -> Event:
        """Add an event and its blobs atomically.

        Parameters
        ----------
        kind : str
            A round has at most one "open" and one "close". A "close" needs an "open", and its body ``payments`` (pairs
            of seller and amount), ``reserve`` and ``unallocated`` that add up to its ``budget``.
        body : mapping
            JSON without floats: amounts are integers of the minor unit, other numbers text. The key "blobs" is
            reserved.
        round, seller : str
            Round and seller that the event concerns.
        blobs : mapping of str to bytes or None
            Blobs by SHA-256; None for one that is already in the ledger. Their list is added to the body as ``blobs``.
        allowed : callable
            Receives the events of the round while other writers are locked out, and raises if the event must not be
            added.

        Returns
        -------
        Event

        Raises
        ------
        LedgerError
            If the ledger refuses the event, or the database does not respond.
        """
        check_name("kind", kind), check_name("round", round), check_name("seller", seller)
        check_body(body)
        parts = {digest: _packed(digest, data) for digest, data in (blobs or {}).items()}
        text = canonical({**body, **({"blobs": sorted(parts)} if parts else {})})
        if len(text.encode()) > MOST_BODY:
            raise InputError(
                f"The 'body' parameter of append must have at most {MOST_BODY:,} bytes as JSON. Got "
                f"{len(text.encode()):,}: give tables as blobs."
            )
        if kind == "close":
            try:
                check_payments(body)
            except LedgerError as error:
                raise LedgerError(f"The round {round!r} cannot be closed: {error}.") from None
        with self._database.writing() as connection:
            if allowed is not None:
                allowed(list(self._select(connection, round=round)))
            self._check_once(connection, kind, round)
            self._write_blobs(connection, parts)
            event = self._next(connection, kind, round, seller, text)
            fields = {name: getattr(event, name) for name in ("sequence", "kind", "round", "seller", "time", "body")}
            _execute(connection, _INSERT, **fields, digest=event.digest)
        return event

    def events(
        self, kind: str | None = None, round: str | None = None, seller: str | None = None, after: int = 0
    ) -> Iterator[Event]:
        """Events in the order of addition, each with its digest checked.

        Parameters
        ----------
        kind, round, seller : str or None
            Filters; None takes all.
        after : int
            Only those with a greater sequence number.
        """
        while True:
            with self._database.reading() as connection:
                page = list(self._select(connection, after, kind=kind, round=round, seller=seller))
            yield from page
            if not page:
                return
            after = page[-1].sequence

    def rounds(self) -> list[str]:
        """Names of the rounds in the order of opening."""
        return [event.round for event in self.events(kind="open")]

    def head(self) -> str:
        """Digest of the last event, 64 zeros without one. Publishing it commits the operator to all events so far."""
        with self._database.reading() as connection:
            last = _execute(connection, _LAST).first()
        return START if last is None else str(last.digest)

    def blob(self, digest: str) -> bytes:
        """Return the blob of a digest, checked against it.

        Raises
        ------
        LedgerError
            If the blob is missing or was changed.
        """
        if not is_digest(digest):
            raise InputError(f"The 'digest' parameter of blob must be 64 hexadecimal digits. Got {quoted(digest)}.")
        with self._database.reading() as connection:
            return b"".join(_read_blob(connection, digest))

    def verify(
        self,
        head: str | None = None,
        progress: bool | None = None,
        look: Callable[[list[Row]], object] | None = None,
    ) -> Verification:
        """Check everything: the chain from its first event, sequence, times, rounds, payments, blobs and tables.

        Parameters
        ----------
        head : str or None
            Digest of an event that the chain must contain: an earlier, noted or published result of :meth:`head`.
            Without it, events removed from the end, or a rewritten chain, cannot be detected.
        progress : bool or None
            None shows a bar in terminals and notebooks.
        look : callable
            Receives batches of checked events in order: tuples of sequence, kind, round, seller, time, body and digest.

        Returns
        -------
        Verification
            With the first fault in words; a fault raises no error.

        Raises
        ------
        LedgerError
            If the database does not respond.
        """
        chain = Chain(head)
        blobs = 0
        fault = None
        try:
            with ThreadPoolExecutor(1) as apart:
                tables = apart.submit(self._database.faults)
                for page in self._checked_pages(chain, progress):
                    if look is not None:
                        look(page)
                chain.finish()
                for _ in self._checked_blobs(chain):
                    blobs += 1
            fault = next(iter(tables.result()), None)
        except UnreachableError:
            raise
        except LedgerError as error:
            fault = str(error)
        return chain.result(blobs, fault)

    def export(self, folder: str | os.PathLike[str], progress: bool | None = None) -> Path:
        """Write the chain and its blobs as files that :func:`verify_export` checks without a database.

        Parameters
        ----------
        folder : path-like
            Must not exist. ``events.jsonl`` gets the lines of the events, ``blobs`` a file for each digest, and
            ``ledger.json`` the format and the digest of the last event.
        progress : bool or None
            None shows a bar in terminals and notebooks.

        Raises
        ------
        LedgerError
            At the first fault of the ledger; the folder is not created.
        """
        target = destination(folder)
        if target.exists() or not target.parent.is_dir():
            raise InputError(
                f"The 'folder' parameter of export must name a new folder in one that exists. {str(target)!r} "
                f"{'already exists' if target.exists() else 'is in a folder that does not exist'}."
            )
        part = new_name(target.parent, hidden_prefix(target))
        part.mkdir(0o700)
        try:
            chain = Chain()
            (part / "blobs").mkdir()
            with open(part / "events.jsonl", "wb") as file:
                previous = START
                for page in self._checked_pages(chain, progress):
                    for row in page:
                        file.write(f"{line(*row[:6], previous)}\n".encode())
                        previous = row[6]
                file.flush()
                os.fsync(file.fileno())
            for digest, pieces in self._checked_blobs(chain):
                written(part / "blobs" / digest, methodcaller("writelines", pieces))
            note = canonical({"events": chain.events, "format": FORMAT, "head": chain.head})
            written(part / "ledger.json", lambda out: out.write(f"{note}\n".encode()))
            os.rename(part, target)
        except BaseException:
            shutil.rmtree(part, ignore_errors=True)
            raise
        sync_folder(target.parent)
        return Path(folder)

    def _next(self, connection: "sqlalchemy.Connection", kind: str, round: str, seller: str, body: str) -> Event:
        """Make the next event."""
        last = _execute(connection, _LAST).first()
        sequence, earliest, previous = (last.sequence + 1, last.time, last.digest) if last else (1, "", START)
        now = self._clock()
        if now.tzinfo is None:
            raise InputError(f"The 'clock' parameter of Ledger must return times with a time zone. Got {now!r}.")
        time = max(now.astimezone(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), earliest)
        digest = digest_of(line(sequence, kind, round, seller, time, body, previous).encode())
        return Event(sequence, kind, round, seller, time, body, previous, digest)

    @staticmethod
    def _check_once(connection: "sqlalchemy.Connection", kind: str, round: str) -> None:
        if kind not in ("open", "close"):
            return
        query = f"SELECT kind, time FROM shapshift_events WHERE round = :round AND {ONCE}"
        found = {row.kind: row.time for row in _execute(connection, query, round=round)}
        if kind in found:
            done = "opened" if kind == "open" else "closed"
            raise LedgerError(f"The round {round!r} was {done} at {found[kind]}, and that cannot be done twice.")
        if kind == "close" and "open" not in found:
            raise LedgerError(f"The round {round!r} was never opened, and cannot be closed.")

    @staticmethod
    def _write_blobs(connection: "sqlalchemy.Connection", parts: dict[str, list[tuple[int, bytes]] | None]) -> None:
        for digest, pieces in parts.items():
            there = "SELECT 1 FROM shapshift_blobs WHERE digest = :digest LIMIT 1"
            if _execute(connection, there, digest=digest).first() is not None:
                continue
            if pieces is None:
                raise LedgerError(f"The ledger has no blob {digest}. Give its bytes.")
            for part, (codec, data) in enumerate(pieces):
                _execute(
                    connection,
                    "INSERT INTO shapshift_blobs (digest, part, codec, data) VALUES (:digest, :part, :codec, :data)",
                    digest=digest, part=part, codec=codec, data=data,
                )  # fmt: skip

    @staticmethod
    def _select(connection: "sqlalchemy.Connection", after: int | None = None, **chosen: str | None) -> Iterator[Event]:
        """Events with their digests checked; with ``after``, one page of the following events."""
        given = {name: value for name, value in chosen.items() if value is not None}
        conditions = [f"e.{name} = :{name}" for name in given]
        if once := given.get("kind") in ("open", "close"):
            conditions.append(ONCE.replace("kind", "e.kind"))
        # The sum keeps SQLite from using the sequence's index where another one is better.
        conditions.append("e.sequence + 0 > :after" if once or "round" in given else "e.sequence > :after")
        query = (
            f"SELECT {_COLUMNS}, p.digest AS previous FROM shapshift_events e "
            "LEFT JOIN shapshift_events p ON p.sequence = e.sequence - 1 "
            f"WHERE {' AND '.join(conditions)} ORDER BY e.sequence" + ("" if after is None else f" LIMIT {PAGE}")
        )
        for sequence, kind, round_, seller, time, body, digest, before in _execute(
            connection, query, after=after or 0, **given
        ):
            previous = before or START
            try:
                right = digest_of(line(sequence, kind, round_, seller, time, body, previous).encode()) == digest
            except (TypeError, ValueError):
                right = False
            if not right:
                raise LedgerError(f"Event {sequence} does not have its digest: it was changed. Verify the ledger.")
            yield Event(sequence, kind, round_, seller, time, body, previous, digest)

    def _checked_pages(self, chain: Chain, progress: bool | None) -> Iterator[list[Row]]:
        """All current events, page by page: no lock is held while they are checked."""
        with self._database.reading() as connection:
            last = _execute(connection, _LAST).first()
        total = 0 if last is None else last.sequence
        after = -(2**62)  # before the lowest possible sequence, so that a wrong one is found
        with progress_bar("Verifying", max(total, 1), progress) as advance:
            while after < total:
                query = (
                    f"SELECT {_COLUMNS} FROM shapshift_events e WHERE e.sequence > {after} "
                    f"AND e.sequence <= {total} ORDER BY e.sequence LIMIT {_FETCHED}"
                )
                page: list[Row] = []
                size = 0
                with self._database.reading() as connection:
                    # The driver's own cursor: SQLAlchemy's takes as long as everything else together.
                    cursor = connection.connection.cursor()
                    cursor.execute(query)
                    while size < _ENOUGH and (some := cursor.fetchmany(100)):
                        page += some
                        size += sum(map(getsizeof, map(itemgetter(5), some)))
                    cursor.close()
                if not page:
                    return
                for start in range(0, len(page), PAGE):
                    chain.extend(page[start : start + PAGE])
                yield page
                advance(len(page))
                after = page[-1][0]

    def _checked_blobs(self, chain: Chain) -> Iterator[tuple[str, list[bytes]]]:
        """All blobs, checked."""
        named = set(chain.blobs)
        after = ""
        while True:
            with self._database.reading() as connection:
                query = "SELECT DISTINCT digest FROM shapshift_blobs WHERE digest > :after ORDER BY digest LIMIT 100"
                page = [row.digest for row in _execute(connection, query, after=after)]
                for digest in page:
                    if not (is_digest(digest) and bytes.fromhex(digest) in chain.blobs):
                        raise LedgerError(f"the blob {quoted(digest)[:80]} is named by no event")
                    yield digest, _read_blob(connection, digest)
                    named.discard(bytes.fromhex(digest))
            if not page:
                break
            after = page[-1]
        if named:
            raise LedgerError(f"the blob {min(named).hex()}, which an event names, is missing")


def _execute(connection: "sqlalchemy.Connection", query: str, **values: object) -> Any:
    from sqlalchemy import text

    return connection.execute(text(query), values)


def _packed(digest: object, data: object) -> list[tuple[int, bytes]] | None:
    """Cut a blob into parts, each compressed if that saves space."""
    if not is_digest(digest):
        raise InputError(f"The 'blobs' parameter of append must have SHA-256 digests as keys. Got {quoted(digest)}.")
    if data is None:
        return None
    if not isinstance(data, bytes):
        raise InputError(f"The 'blobs' parameter of append must have bytes. Got {type(data).__name__} for {digest}.")
    if digest_of(data) != digest:
        raise InputError(f"The 'blobs' parameter of append has bytes under {digest} that have another digest.")
    parts = []
    for start in range(0, max(len(data), 1), _PART):
        piece = data[start : start + _PART]
        small = zlib.compress(piece, 1)
        parts.append((_ZLIB, small) if len(small) < 0.9 * len(piece) else (_PLAIN, piece))
    return parts


def _read_blob(connection: "sqlalchemy.Connection", digest: str) -> list[bytes]:
    """Parts of a blob, checked against its digest."""
    query = "SELECT part, codec, data FROM shapshift_blobs WHERE digest = :digest ORDER BY part"
    pieces: list[bytes] = []
    whole = hashlib.sha256()
    for part, codec, data in _execute(connection, query, digest=digest):
        piece = bytes(data) if codec == _PLAIN else _unpacked(data)
        if part != len(pieces) or piece is None or len(piece) > _PART:
            raise LedgerError(f"the blob {digest} is damaged: its part {part} is wrong")
        whole.update(piece)
        pieces.append(piece)
    if not pieces:
        raise LedgerError(f"the blob {digest} is not in the ledger")
    if whole.hexdigest() != digest:
        raise LedgerError(f"the blob {digest} was changed: its bytes have another digest")
    return pieces


def _unpacked(data: bytes) -> bytes | None:
    """Decompress a part, up to the largest size of a part."""
    unpacking = zlib.decompressobj()
    try:
        piece = unpacking.decompress(data, _PART + 1)
    except zlib.error:
        return None
    return piece if unpacking.eof else None
