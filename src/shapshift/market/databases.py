"""Storage of a ledger: an SQLite file or a PostgreSQL database, with the same three tables.

Triggers refuse to change or remove an event or blob. The owner of the database can remove the triggers; ``verify``
finds that, and any change.
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

#: SQLite settings that bring a transaction to disk.
SYNCHRONOUS = "EXTRA"
#: Events that a round has at most once.
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
# INSERT OR REPLACE does not fire deletion triggers.
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
# SQLite's locks do not work there.
_NETWORK = {
    *("nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "glusterfs", "lustre", "gpfs", "beegfs", "ncpfs"),
    *("fuse.sshfs", "fuse.glusterfs", "fuse.ceph", "fuse.s3fs", "fuse.rclone", "fuse.gcsfuse", "fuse.davfs"),
}


class UnreachableError(LedgerError):
    """The database does not respond, or another process holds it; the ledger itself may be intact."""


class Database(ABC):
    """A database that can hold a ledger.

    Attributes
    ----------
    name : str
        Location, for messages; never with a password.
    engine : sqlalchemy.Engine
    """

    name: str
    engine: "sqlalchemy.Engine"

    @abstractmethod
    def create(self) -> None:
        """Create the tables of an empty ledger, all or none."""

    @abstractmethod
    def check(self) -> None:
        """Refuse anything but a ledger."""

    @abstractmethod
    def lock(self, connection: "sqlalchemy.Connection") -> None:
        """Wait for the write lock, and hold it until the transaction ends."""

    @abstractmethod
    def faults(self) -> list[str]:
        """List faults of the tables themselves."""

    @contextmanager
    def reading(self) -> Iterator["sqlalchemy.Connection"]:
        """Yield a connection in which each query is its own transaction."""
        with self.telling("be read"), self.engine.connect() as connection:
            yield connection.execution_options(isolation_level="AUTOCOMMIT")

    @contextmanager
    def writing(self) -> Iterator["sqlalchemy.Connection"]:
        """Yield a connection in one transaction that holds the head of the chain; an error rolls it back."""
        with self.telling("be written to"), self.engine.connect() as connection:
            connection = connection.execution_options(shapshift_writing=True)
            with connection.begin():
                self.lock(connection)
                yield connection

    @contextmanager
    def telling(self, what: str) -> Iterator[None]:
        """Translate database errors."""
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
        """Return advice on a database error."""
        if "database is locked" in reason or "lock timeout" in reason:
            return f"another process has been writing to it for {PATIENCE} seconds. Try again when it has ended."
        return reason if reason.endswith((".", "?")) else f"{reason}."

    def close(self) -> None:
        """Close its connections."""
        self.engine.dispose()


class SqliteFile(Database):
    """A ledger in an SQLite file.

    In the journal mode DELETE with synchronous=EXTRA, a committed transaction is on disk, including the removal of its
    journal; an uncommitted one is rolled back when the file is next opened. The ledger is this one file: no other file
    remains after a write.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        from sqlalchemy import create_engine, event
        from sqlalchemy.pool import NullPool

        self.path = Path(path)
        self.name = repr(os.fspath(path))
        if kind := network_file_system(self.path):
            raise LedgerError(
                f"{self.name} is on a network file system ({kind}), where SQLite's locks do not work. Put the ledger "
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
        """Create the file under a temporary name, and rename it when it is complete."""
        target = destination(self.path)
        if not target.parent.is_dir():
            raise LedgerError(f"The folder {str(target.parent)!r} of the ledger does not exist; create it first.")
        # It will hold all sellers' tables: readable by the operator only, unless changed later.
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
                os.link(part, target)  # does not replace an existing file
            except FileExistsError:
                raise LedgerError(f"{self.name} already exists. Give another name, or open it instead.") from None
            except OSError:  # this file system has no hard links
                if target.exists():
                    raise LedgerError(f"{self.name} already exists. Give another name, or open it instead.") from None
                os.replace(part, target)
        finally:
            part.unlink(missing_ok=True)
        sync_folder(target.parent)

    def check(self) -> None:
        """Refuse a missing file, one that is not a database, and tables, views or triggers unlike a ledger's."""
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
                        f"{self.name} is not a shapshift ledger"
                        + (f": what it calls {strange[0][:80]} is not part of one." if strange else ".")
                    )
                formats = connection.execute("SELECT format FROM shapshift_ledger LIMIT 2").fetchall()
            finally:
                connection.close()
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise LedgerError(f"{self.name} is not a shapshift ledger, or it is damaged: {error}.") from None
        _check_format(self.name, formats)

    def lock(self, connection: "sqlalchemy.Connection") -> None:
        """Do nothing: the transaction already holds the write lock."""

    def faults(self) -> list[str]:
        """Missing triggers, and faults that SQLite's own check finds in pages, indexes and types."""
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
    """Type of the network file system of a path; None for a local disk or if unknown."""
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
        """Return advice without passwords."""
        for secret in self._secrets:
            reason = reason.replace(secret, "***")
        told = super().words(" ".join(reason.split()), what)
        if what == "be written to" and "connection" in reason:
            told += (
                " Run the command again when the server responds: the event was written fully or not at all, and no "
                "round is opened or closed twice."
            )
        return told

    def create(self) -> None:
        """Create the tables in one transaction."""
        with self.telling("be created"), self.engine.begin() as connection:
            encoding = connection.exec_driver_sql("SHOW server_encoding").scalar()
            if encoding != "UTF8":
                raise LedgerError(
                    f"The database {self.name} has the encoding {encoding}. A ledger needs one with UTF8: "
                    "CREATE DATABASE ... ENCODING 'UTF8' TEMPLATE template0."
                )
            if self._tables(connection):
                raise LedgerError(f"{self.name} already has a ledger. Name another database, or open it instead.")
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
        """Lock the single row of the ledger's table; commits reach the disk whatever the server's default."""
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{PATIENCE}s'")
        connection.exec_driver_sql(
            "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'"
        )
        held = connection.exec_driver_sql("SELECT format FROM shapshift_ledger FOR UPDATE").fetchall()
        _check_format(self.name, list(held))

    def faults(self) -> list[str]:
        """Triggers that are missing, disabled or changed, and the index that lets a round be closed only once."""
        # Fired before each UPDATE, DELETE or TRUNCATE statement: the bits of tgtype in pg_trigger.h.
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
                faults.append("the index shapshift_once, which keeps rounds from opening or closing twice, was removed")
        return faults


def open_database(caller: str, where: object) -> Database:
    """Database object of a path or URL; not opened yet."""
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
        # The argument may contain a password.
        raise InputError(
            f"The 'where' parameter of {caller} is not a database URL. Write "
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
