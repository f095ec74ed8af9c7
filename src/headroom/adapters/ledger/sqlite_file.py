"""One SQLite file on disk: who may open it, how it is made, and what its failures mean.

A new file is made beside its place and moved there when it is whole. So a file without tables is a damaged one, never a new one.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final
from urllib.parse import quote

from headroom.adapters.ledger import schema
from headroom.adapters.ledger.schema import SQLITE
from headroom.model.errors import HeadroomError, Refused, Unavailable

BUSY_SECONDS: Final = 10.0
DAMAGE: Final = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}
_PRIMARY_CODE: Final = 0xFF


def failure(doing: str, path: Path, error: Exception) -> HeadroomError:
    """What went wrong, as one of our errors."""
    if isinstance(error, OverflowError | UnicodeError | sqlite3.IntegrityError | sqlite3.InterfaceError):
        return Refused(f"{doing} the ledger {path}: it cannot store this: {error}")
    code = getattr(error, "sqlite_errorcode", 0) & _PRIMARY_CODE
    if code in DAMAGE or type(error) is sqlite3.DatabaseError:
        return damaged(doing, path, str(error))
    if code == sqlite3.SQLITE_FULL:
        return Unavailable(f"{doing} the ledger {path}: the disk is full; free some space or enlarge the volume")
    return Unavailable(f"{doing} the ledger {path}: {error}; check the disk and the permissions of this file")


def damaged(doing: str, path: Path, why: str) -> Refused:
    """The file is not what was written; only a person can decide what to do about it."""
    return Refused(
        f"{doing} the ledger {path}: this is not a ledger, or it is damaged ({why}); check the path, and if it is "
        "the ledger, move it away and restore a backup with `headroom ledger restore`"
    )


def identity(path: Path) -> tuple[int, int] | None:
    """Which file is at a path now; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def vanished(doing: str, file: str, ledger: Path) -> Refused:
    """A file was deleted or replaced while it was open."""
    return Refused(
        f"{doing} the ledger {ledger}: {file} was deleted or replaced while in use; stop Headroom, put the file back "
        "or restore a backup with `headroom ledger restore`, and start it again"
    )


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing, on disk when this returns."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def take_lock(path: Path) -> int:
    """Make sure that nobody else writes to this file; the lock goes with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise Refused(
            f"opening the ledger {path}: another process has it open for writing; stop that one first, "
            "or use PostgreSQL, which several can share"
        ) from None
    return lock


def opened(path: Path, *, read_only: bool) -> sqlite3.Connection:
    """A connection to a file that must be there. WAL and FULL: what was committed outlives a loss of power."""
    mode = "ro" if read_only else "rw"
    uri = f"file:{quote(str(path.absolute()))}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None, cached_statements=64)
    if not read_only:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        # Rows come in the order of random uids: pages that are written back less often are written back fuller.
        connection.execute("PRAGMA wal_autocheckpoint = 8192")
    connection.execute("PRAGMA cache_size = -32768")
    return connection


def must_be_whole(path: Path) -> None:
    """Refuse a ledger of which a part is gone, where SQLite would quietly begin an empty one."""
    if path.exists():
        if path.stat().st_size == 0:
            raise damaged("opening", path, "it is empty")
    elif Path(f"{path}-wal").exists():
        raise damaged("opening", path, "it is gone, and its -wal file is still there")


def check_pages(connection: sqlite3.Connection, path: Path) -> None:
    """Read every page once: better a refusal at the start than half a ledger later."""
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise damaged("opening", path, found.splitlines()[-1])


def create(path: Path) -> None:
    """A new, empty ledger: all of it, or no file."""
    unfinished = Path(f"{path}.new")
    for leftover in (unfinished, Path(f"{unfinished}-journal")):
        leftover.unlink(missing_ok=True)
    # Usage tells who runs what: for nobody but us. SQLite gives the files beside it the same permissions.
    os.close(os.open(unfinished, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(sqlite3.connect(unfinished, isolation_level=None)) as connection, transaction(connection):
        connection.execute(schema.VERSION_TABLE)
        connection.execute(schema.FIRST_VERSION)
        for statement in schema.way(SQLITE, 0, schema.LATEST):
            connection.execute(statement)
    unfinished.rename(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def version_of(connection: sqlite3.Connection, path: Path) -> int:
    """The schema version of an open file."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'schema_version'").fetchone()[0]
    if not tables:
        raise Refused(f"opening the ledger {path}: this SQLite file is not a ledger of Headroom; name another file")
    version: int = connection.execute("SELECT version FROM schema_version").fetchone()[0]
    return version


def migrate(connection: sqlite3.Connection, path: Path, wanted: int) -> None:
    """Go up or down to a version, in one transaction."""
    with transaction(connection):
        version = version_of(connection, path)
        if version != wanted:
            for statement in schema.way(SQLITE, version, wanted):
                connection.execute(statement)
