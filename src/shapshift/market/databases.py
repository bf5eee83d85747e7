"""Where a ledger is kept: an SQLite file or a PostgreSQL database, with the same three tables.

Triggers refuse that an event or blob is changed or removed. Whoever owns the database can remove them; that, and what
was changed, is what ``verify`` finds.
"""

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from shapshift.exceptions import InputError, LedgerError, MissingLibraryError
from shapshift.io.files import destination, hidden_prefix, new_file, sync_folder
from shapshift.market.chain import FORMAT, MOST_BODY

if TYPE_CHECKING:
    import sqlalchemy

#: Seconds to wait for another process that writes.
PATIENCE = 60

_TEXT = "{0} TEXT NOT NULL CHECK (typeof({0}) = 'text')"
_SQLITE = {
    "shapshift_ledger": "CREATE TABLE shapshift_ledger (format INTEGER PRIMARY KEY)",
    "shapshift_events": "CREATE TABLE shapshift_events (sequence INTEGER PRIMARY KEY, "
    + ", ".join(map(_TEXT.format, ("kind", "round", "seller", "time", "body", "digest")))
    + ")",
    "shapshift_blobs": "CREATE TABLE shapshift_blobs ("
    + _TEXT.format("digest")
    + ", part INTEGER NOT NULL, codec INTEGER NOT NULL, data BLOB NOT NULL CHECK (typeof(data) = 'blob'), "
    "PRIMARY KEY (digest, part))",
    "shapshift_once": "CREATE UNIQUE INDEX shapshift_once ON shapshift_events (round, kind) "
    "WHERE kind = 'open' OR kind = 'close'",
    "shapshift_rounds": "CREATE INDEX shapshift_rounds ON shapshift_events (round)",
    "shapshift_sellers": "CREATE INDEX shapshift_sellers ON shapshift_events (seller)",
}
_REFUSAL = "a ledger is append-only"
# An insert with OR REPLACE asks no trigger of deletions.
_SQLITE_TRIGGERS = {
    f"{table}_{what}": f"CREATE TRIGGER {table}_{what} BEFORE {what.upper()} ON {table} {when}"
    f"BEGIN SELECT RAISE(ABORT, '{_REFUSAL}'); END"
    for table, what, when in (
        ("shapshift_events", "update", ""),
        ("shapshift_events", "delete", ""),
        (
            "shapshift_events",
            "insert",
            "WHEN NEW.sequence <> (SELECT coalesce(max(sequence), 0) + 1 FROM shapshift_events) ",
        ),
        ("shapshift_blobs", "update", ""),
        ("shapshift_blobs", "delete", ""),
        (
            "shapshift_blobs",
            "insert",
            "WHEN EXISTS (SELECT 1 FROM shapshift_blobs WHERE digest = NEW.digest AND part = NEW.part) ",
        ),
    )
}
_POSTGRES_TRIGGERS = ("shapshift_events_keep", "shapshift_blobs_keep")
_POSTGRES = (
    "CREATE TABLE shapshift_ledger (format INTEGER PRIMARY KEY)",
    "CREATE TABLE shapshift_events (sequence BIGINT PRIMARY KEY, kind TEXT NOT NULL, round TEXT NOT NULL, "
    "seller TEXT NOT NULL, time TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE shapshift_blobs (digest TEXT NOT NULL, part INTEGER NOT NULL, codec INTEGER NOT NULL, "
    "data BYTEA NOT NULL, PRIMARY KEY (digest, part))",
    _SQLITE["shapshift_once"],
    _SQLITE["shapshift_rounds"],
    _SQLITE["shapshift_sellers"],
    "CREATE FUNCTION shapshift_refuse() RETURNS trigger LANGUAGE plpgsql AS "
    f"$$BEGIN RAISE EXCEPTION '{_REFUSAL}'; END$$",
    *(
        f"CREATE TRIGGER {table}_keep BEFORE UPDATE OR DELETE OR TRUNCATE ON {table} "
        "FOR EACH STATEMENT EXECUTE FUNCTION shapshift_refuse()"
        for table in ("shapshift_events", "shapshift_blobs")
    ),
)
# The locks of SQLite do not hold there.
_NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ncpfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.davfs"),
}


class Database(ABC):
    """A database that can hold a ledger.

    Attributes
    ----------
    name : str
        Where it is, for messages: never with a password.
    engine : sqlalchemy.Engine
    """

    name: str
    engine: "sqlalchemy.Engine"

    @abstractmethod
    def create(self) -> None:
        """Make the tables of an empty ledger, all or none."""

    @abstractmethod
    def check(self) -> None:
        """Refuse what is no ledger."""

    @abstractmethod
    def lock(self, connection: "sqlalchemy.Connection") -> None:
        """Wait until nobody else writes, and keep it so until the transaction ends."""

    @abstractmethod
    def faults(self) -> list[str]:
        """Find what is wrong with the tables themselves."""

    @contextmanager
    def reading(self) -> Iterator["sqlalchemy.Connection"]:
        """Yield a connection in which each query stands alone."""
        with self.telling("be read"), self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def writing(self) -> Iterator["sqlalchemy.Connection"]:
        """Yield a connection in one transaction that holds the head of the chain; an error takes all of it back."""
        with self.telling("be written to"), self.engine.connect() as connection:
            connection = connection.execution_options(shapshift_writing=True)
            with connection.begin():
                self.lock(connection)
                yield connection

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Put errors of the database into words."""
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as error:
            reason = str(error.orig if isinstance(error, DBAPIError) else error).strip()
            raise LedgerError(f"The ledger {self.name} cannot {what}: {self.words(reason)}") from None

    def words(self, reason: str) -> str:
        """Say what to do about an error of the database."""
        if "locked" in reason:
            return f"another process has been writing to it for {PATIENCE} seconds. Try again when it has ended."
        if "shapshift_once" in reason or "UNIQUE constraint failed" in reason:
            return "another process wrote the same event first. Run the command again to see what is there."
        return f"{reason}."

    def close(self) -> None:
        """Close its connections."""
        self.engine.dispose()


class SqliteFile(Database):
    """A ledger in a file of its own.

    In the journal mode DELETE with synchronous=EXTRA a transaction that was committed is on the disk, its journal's
    removal included; one that was not is rolled back by whoever opens the file next. The file alone is the ledger:
    there is none beside it once nobody writes.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool

        self.path = Path(path)
        self.name = repr(os.fspath(path))
        if kind := network_file_system(self.path):
            raise LedgerError(
                f"{self.name} is on a network file system ({kind}), where SQLite's locks do not hold. Put the ledger "
                "on a local disk, or in PostgreSQL: postgresql://user@host/database."
            )
        self.engine = create_engine("sqlite://", creator=lambda: self._connect(self.path), poolclass=NullPool)

        @event.listens_for(self.engine, "begin")
        def _begin(connection: "sqlalchemy.Connection") -> None:
            if connection.get_execution_options().get("shapshift_writing"):
                connection.exec_driver_sql("BEGIN IMMEDIATE")

    @staticmethod
    def _connect(path: Path) -> sqlite3.Connection:
        address = f"file:{quote(os.path.abspath(path))}?mode=rw"
        connection = sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 2 * MOST_BODY)
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", "synchronous = EXTRA"):
            connection.execute(f"PRAGMA {setting}")
        return connection

    def create(self) -> None:
        """Make the file under another name, and give it its own when it is whole."""
        target = destination(self.path)
        if not target.parent.is_dir():
            raise LedgerError(f"The folder {str(target.parent)!r} of the ledger does not exist; create it first.")
        # It will hold all sellers' tables: for the operator alone, unless that is changed later.
        handle, part = new_file(target.parent, hidden_prefix(target), 0o600)
        os.close(handle)
        try:
            connection = self._connect(part)
            try:
                connection.execute("BEGIN IMMEDIATE")
                for statement in (*_SQLITE.values(), *_SQLITE_TRIGGERS.values()):
                    connection.execute(statement)
                connection.execute("INSERT INTO shapshift_ledger VALUES (?)", (FORMAT,))
                connection.execute("COMMIT")
            finally:
                connection.close()
            try:
                os.link(part, target)  # refuses to replace anything
            except FileExistsError:
                raise LedgerError(f"{self.name} exists already. Give another name, or open it as it is.") from None
            except OSError:  # no links on this file system
                if target.exists():
                    raise LedgerError(f"{self.name} exists already. Give another name, or open it.") from None
                os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        sync_folder(target.parent)

    def check(self) -> None:
        """Refuse a file that is missing, no database, or has other tables, views or triggers than a ledger's."""
        if not self.path.is_file():
            raise LedgerError(
                f"There is no ledger {self.name}. Create it with Ledger.create or `shapshift market init`."
            )
        try:
            connection = self._connect(self.path)
            try:
                found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
                known = {**_SQLITE, **_SQLITE_TRIGGERS}
                strange = sorted(repr(name) for name, sql in found.items() if known.get(name) != sql)
                if strange or not found.keys() >= _SQLITE.keys():
                    raise LedgerError(
                        f"{self.name} is no ledger of shapshift"
                        + (f": what it calls {strange[0][:80]} is not part of one." if strange else ".")
                    )
                formats = connection.execute("SELECT format FROM shapshift_ledger LIMIT 2").fetchall()
            finally:
                connection.close()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LedgerError(f"{self.name} is no ledger of shapshift, or it is damaged: {error}.") from None
        _check_format(self.name, formats)

    def lock(self, connection: "sqlalchemy.Connection") -> None:
        """Nothing: the transaction has begun as the only one that may write."""

    def faults(self) -> list[str]:
        """Triggers that are gone, and what SQLite's own check finds in pages, indexes and types."""
        connection = self._connect(self.path)
        try:
            found = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'")}
            missing = [_missing_trigger(name) for name in sorted(_SQLITE_TRIGGERS.keys() - found)]
            checked = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
        except sqlite3.Error as error:
            return [f"the file is damaged: {error}"]
        finally:
            connection.close()
        return missing + ([] if checked == "ok" else [f"the file is damaged: {checked}"])


def network_file_system(path: Path, mounts: str = "/proc/self/mountinfo") -> str | None:
    """Kind of the network file system that a path is on; None for a local disk and where the system does not tell."""
    place = os.path.realpath(path)
    found: tuple[int, str] = (0, "")
    with suppress(OSError), open(mounts, encoding="utf-8", errors="replace") as file:
        for entry in file:
            before, separator, after = entry.partition(" - ")
            if not separator:
                continue
            mount = before.split()[4].encode().decode("unicode_escape")
            if os.path.join(place, "").startswith(os.path.join(mount, "")):
                found = max(found, (len(mount), after.split()[0]))
    return found[1] if found[1] in _NETWORK else None


def _missing_trigger(name: str) -> str:
    return f"the trigger {name}, which refuses changes, was removed"


def _check_format(name: str, formats: list[Any]) -> None:
    if [tuple(row) for row in formats] != [(FORMAT,)]:
        shown = ", ".join(str(row[0])[:20] for row in formats) or "none"
        raise LedgerError(
            f"The ledger {name} has the format {shown}, and this version of shapshift reads {FORMAT}. Install the "
            "version that wrote it."
        )


def open_database(caller: str, where: str | os.PathLike[str]) -> Database:
    """Database of a path or URL; nothing is opened yet."""
    try:
        import sqlalchemy  # noqa: F401
    except ImportError as error:
        raise MissingLibraryError(
            'A ledger needs SQLAlchemy. Install it with: pip install "shapshift[market]".'
        ) from error
    if not isinstance(where, str | os.PathLike) or not os.fspath(where):
        raise InputError(
            f"The 'where' parameter of {caller} must be the path of a file or a URL such as "
            f"postgresql://user@host/database. Got {type(where).__name__} instead."
        )
    return SqliteFile(where)
