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

#: What SQLite does to bring a transaction to the disk.
SYNCHRONOUS = "EXTRA"
#: Events of which a round has one each.
ONCE = "(kind = 'open' OR kind = 'close')"

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
    "shapshift_once": f"CREATE UNIQUE INDEX shapshift_once ON shapshift_events (round, kind) WHERE {ONCE}",
    "shapshift_rounds": "CREATE INDEX shapshift_rounds ON shapshift_events (round, seller)",
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
_REFUSE = f"BEGIN RAISE EXCEPTION '{_REFUSAL}'; END"
_POSTGRES_TRIGGERS = ("shapshift_events_keep", "shapshift_blobs_keep")
_POSTGRES = (
    "CREATE TABLE shapshift_ledger (format INTEGER PRIMARY KEY)",
    "CREATE TABLE shapshift_events (sequence BIGINT PRIMARY KEY, kind TEXT NOT NULL, round TEXT NOT NULL, "
    "seller TEXT NOT NULL, time TEXT NOT NULL, body TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE shapshift_blobs (digest TEXT NOT NULL, part INTEGER NOT NULL, codec INTEGER NOT NULL, "
    "data BYTEA NOT NULL, PRIMARY KEY (digest, part))",
    _SQLITE["shapshift_once"],
    _SQLITE["shapshift_rounds"],
    f"CREATE FUNCTION shapshift_refuse() RETURNS trigger LANGUAGE plpgsql AS $${_REFUSE}$$",
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


class UnreachableError(LedgerError):
    """The database does not answer, or another process keeps it; the ledger itself may be in order."""


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

        driver: Any = self.engine.dialect.dbapi
        try:
            yield
        except (SQLAlchemyError, driver.Error) as error:
            found = error.orig if isinstance(error, DBAPIError) else error
            reason = str(found).strip()
            away = isinstance(found, driver.OperationalError | driver.InterfaceError) and "decode" not in reason
            kind = UnreachableError if away else LedgerError
            # Not "from error": it may hold a URL with a password, and the bodies of events.
            raise kind(f"The ledger {self.name} cannot {what}: {self.words(reason, what)}") from None

    def words(self, reason: str, what: str) -> str:
        """Say what to do about an error of the database."""
        if "database is locked" in reason or "lock timeout" in reason:
            return f"another process has been writing to it for {PATIENCE} seconds. Try again when it has ended."
        return reason if reason.endswith((".", "?")) else f"{reason}."

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
        for setting in ("trusted_schema = OFF", "cell_size_check = ON", f"synchronous = {SYNCHRONOUS}"):
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
    return f"the trigger {name}, which refuses changes, was removed or changed"


def _check_format(name: str, formats: list[Any]) -> None:
    if [tuple(row) for row in formats] != [(FORMAT,)]:
        shown = ", ".join(str(row[0])[:20] for row in formats) or "none"
        raise LedgerError(
            f"The ledger {name} has the format {shown}, and this version of shapshift reads {FORMAT}. Install the "
            "version that wrote it."
        )


class Postgres(Database):
    """A ledger in the first schema of a PostgreSQL database's search path."""

    def __init__(self, url: "sqlalchemy.URL") -> None:
        from sqlalchemy import URL, create_engine

        secrets = [url.password, *(url.query.get(name) for name in ("password", "sslpassword"))]
        self._secrets = [str(secret) for secret in secrets if secret]
        self.name = str(URL.create("postgresql", url.username, None, url.host, url.port, url.database))
        try:
            self.engine = create_engine(
                url.set(drivername="postgresql+psycopg"),
                hide_parameters=True,
                pool_pre_ping=True,
                connect_args={"connect_timeout": 10, "application_name": "shapshift"},
            )
        except ImportError as error:
            raise MissingLibraryError(
                'A ledger in PostgreSQL needs psycopg. Install it with: pip install "shapshift[postgres]".'
            ) from error

    def words(self, reason: str, what: str) -> str:
        """Say what to do, without passwords."""
        for secret in self._secrets:
            reason = reason.replace(secret, "***")
        told = super().words(" ".join(reason.split()), what)
        if what == "be written to" and "connection" in reason:
            told += (
                " Run the command again when the server answers: the event was written whole or not at all, and no "
                "round is opened or closed twice."
            )
        return told

    def create(self) -> None:
        """Make the tables in one transaction."""
        with self.telling("be created"), self.engine.begin() as connection:
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
            if encoding != "UTF8":
                raise LedgerError(
                    f"The database {self.name} has the encoding {encoding}. A ledger needs one with UTF8: "
                    "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0."
                )
            if self._tables(connection):
                raise LedgerError(f"{self.name} has a ledger already. Name another database, or open it as it is.")
            for statement in _POSTGRES:
                connection.exec_driver_sql(statement)
            connection.exec_driver_sql(f"INSERT INTO shapshift_ledger VALUES ({FORMAT})")

    @staticmethod
    def _tables(connection: "sqlalchemy.Connection") -> set[str]:
        names = ", ".join(f"to_regclass('shapshift_{name}')" for name in ("ledger", "events", "blobs"))
        query = f"SELECT relname FROM pg_class WHERE oid IN ({names}) AND relkind IN ('r', 'p')"
        return {row[0] for row in connection.exec_driver_sql(query)}

    def check(self) -> None:
        """Refuse a database without the tables of a ledger."""
        with self.reading() as connection:
            if len(self._tables(connection)) < 3:
                raise LedgerError(
                    f"There is no ledger in {self.name}. Create it: Ledger.create or `shapshift market init`."
                )
            formats = connection.exec_driver_sql("SELECT format FROM shapshift_ledger LIMIT 2").fetchall()
        _check_format(self.name, list(formats))

    def lock(self, connection: "sqlalchemy.Connection") -> None:
        """Lock the one row of the ledger's own table. What is committed shall be on the disk, whatever the default."""
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE}s'")
        connection.exec_driver_sql(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )
        held = connection.exec_driver_sql("SELECT format FROM shapshift_ledger FOR UPDATE").fetchall()
        _check_format(self.name, list(held))

    def faults(self) -> list[str]:
        """Triggers that are gone, switched off or changed, and the index by which a round is closed once."""
        # Before each statement that updates, deletes or truncates: the bits of tgtype in pg_trigger.h.
        query = (
            "SELECT tgname FROM pg_trigger JOIN pg_proc ON pg_proc.oid = tgfoid WHERE NOT tgisinternal "
            "AND tgenabled IN ('O', 'A') AND tgtype = 58 AND tgqual IS NULL AND prosrc = %s AND tgrelid IN "
            "(to_regclass('shapshift_events'), to_regclass('shapshift_blobs'))"
        )
        once = (
            "SELECT count(*) FROM pg_index WHERE indexrelid = to_regclass('shapshift_once') AND indisunique AND "
            "indisvalid AND indrelid = to_regclass('shapshift_events')"
        )
        with self.reading() as connection:
            found = {row[0] for row in connection.exec_driver_sql(query, (_REFUSE,))}
            faults = [_missing_trigger(name) for name in sorted({*_POSTGRES_TRIGGERS} - found)]
            if connection.exec_driver_sql(once).scalar() != 1:
                faults.append("the index shapshift_once, by which no round is opened or closed twice, was removed")
        return faults


def open_database(caller: str, where: object) -> Database:
    """Database of a path or URL; nothing is opened yet."""
    try:
        import sqlalchemy
    except ImportError as error:
        raise MissingLibraryError(
            'A ledger needs SQLAlchemy. Install it with: pip install "shapshift[market]".'
        ) from error
    if not isinstance(where, str | os.PathLike) or not os.fspath(where):
        raise InputError(
            f"The 'where' parameter of {caller} must be the path of a file or a URL such as "
            f"postgresql://user@host/database. Got {type(where).__name__} instead."
        )
    if "://" not in (address := os.fspath(where)):
        return SqliteFile(where)
    try:
        url = sqlalchemy.make_url(address)
    except (sqlalchemy.exc.ArgumentError, ValueError):
        # What was given may hold a password.
        raise InputError(
            f"The 'where' parameter of {caller} is no URL of a database. Write "
            "postgresql://user:password@host/database, with %40 for an @ in the password and %3A for a colon."
        ) from None
    if url.drivername == "sqlite" and url.database:
        return SqliteFile(url.database)
    if url.drivername in ("postgresql", "postgres", "postgresql+psycopg"):
        return Postgres(url)
    raise InputError(
        f"The 'where' parameter of {caller} must be the path of an SQLite file or a URL that begins with "
        f"postgresql://. Got one that begins with {url.drivername}:// instead."
    )
