"""A PostgreSQL server for tests, in a temporary folder and gone afterwards."""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy

#: The URL of a server that is there already, for tests.
GIVEN = os.environ.get("SHAPSHIFT_POSTGRES", "")


def programs() -> Path | None:
    """Folder of initdb and postgres, the newest there is."""
    on_path = shutil.which("initdb")
    if on_path is not None:
        return Path(on_path).resolve().parent
    found = Path("/usr/lib/postgresql").glob("*/bin")  # Debian's
    return max(found, key=lambda path: float(path.parent.name), default=None)


def missing() -> str:
    """Why there is no server; empty where there can be one."""
    if GIVEN or programs() is not None:
        return ""
    return "no PostgreSQL server here (apt install postgresql), and SHAPSHIFT_POSTGRES names none"


@contextmanager
def server(fsync: str = "on") -> Iterator[str]:
    """Start a server that listens on a socket in its own folder; yield its URL."""
    if GIVEN:
        yield GIVEN
        return
    home = programs()
    assert home is not None, missing()
    # The server refuses to run as root.
    who = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.getuid() == 0 else {}
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the path of a socket must be short
    try:
        if who:
            entry = pwd.getpwnam("postgres")
            os.chown(folder, entry.pw_uid, entry.pw_gid)
        quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "cwd": folder, **who}
        made = subprocess.run(
            [home / "initdb", "-D", folder / "data", "-U", "tests", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
            **quiet,
        )  # fmt: skip
        assert made.returncode == 0, made.stdout.decode()
        with open(folder / "log", "wb") as log:
            running = subprocess.Popen(
                [
                    home / "postgres", "-D", folder / "data", "-k", folder, "-c", "listen_addresses=",
                    "-c", f"fsync={fsync}", "-c", "shared_buffers=32MB", "-c", "max_connections=50",
                ],
                **{**quiet, "stdout": log},
            )  # fmt: skip
        try:
            url = f"postgresql://tests@/postgres?host={folder}"
            for attempt in range(200):
                ready = subprocess.run([home / "pg_isready", "-q", "-h", folder], check=False)
                if ready.returncode == 0:
                    break
                assert running.poll() is None, (folder / "log").read_text()
                assert attempt < 199, "the server does not answer"
                time.sleep(0.05)
            yield url
        finally:
            running.send_signal(signal.SIGINT)  # ends connections too
            running.wait(60)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def schema(url: str) -> Iterator[str]:
    """Make an empty schema; yield the URL whose tables are in it."""
    name = f"test_{secrets.token_hex(8)}"
    engine = sqlalchemy.create_engine(sqlalchemy.make_url(url).set(drivername="postgresql+psycopg"))
    try:
        with engine.begin() as connection:
            connection.exec_driver_sql(f"CREATE SCHEMA {name}")
        try:
            yield f"{url}{'&' if '?' in url else '?'}options=-csearch_path%3D{name}"
        finally:
            with engine.begin() as connection:
                connection.exec_driver_sql(f"DROP SCHEMA {name} CASCADE")
    finally:
        engine.dispose()
