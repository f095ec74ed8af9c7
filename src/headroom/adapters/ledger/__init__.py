"""Where usage is kept: SQLite in one file, or PostgreSQL by URL. Same tables, same rules."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from headroom.model.errors import Misconfigured

if TYPE_CHECKING:
    from headroom.adapters.ledger.postgres import PostgresLedger
    from headroom.adapters.ledger.sqlite import SqliteLedger

FORMS: Final = "a path, sqlite:///PATH (absolute), or postgresql://USER:PASSWORD@HOST:PORT/DATABASE"


def open_ledger(url: str, *, read_only: bool = False) -> SqliteLedger | PostgresLedger:
    """The ledger of a URL. Nothing is opened before its first use, so it may be unreachable for now."""
    scheme = url.partition("://")[0] if "://" in url else ""
    if scheme in ("postgres", "postgresql"):
        return _postgres(url, read_only=read_only)
    # Three slashes or four: other programs write an absolute path with four.
    path = "/" + url.removeprefix("sqlite://").lstrip("/") if url.startswith("sqlite:///") else url
    # What is wrong is not repeated: it may be a URL with a password in it.
    if scheme not in ("", "sqlite") or not path or (scheme and not path.startswith("/")) or path.endswith("/"):
        raise Misconfigured(f"opening the ledger: its URL must be {FORMS}")
    from headroom.adapters.ledger.sqlite import SqliteLedger  # noqa: PLC0415  only the one that is used is loaded

    return SqliteLedger(path, read_only=read_only)


def _postgres(url: str, *, read_only: bool) -> PostgresLedger:
    try:
        parts = urlsplit(url)
        named = bool(parts.path.strip("/")) and (parts.port is None or parts.port > 0)
    except ValueError:
        named = False
    if not named:
        raise Misconfigured(f"opening the ledger: its URL must name a server and a database; it is {FORMS}")
    try:
        from headroom.adapters.ledger.postgres import PostgresLedger  # noqa: PLC0415  its driver is an extra
    except ImportError:
        raise Misconfigured(
            "opening the ledger: PostgreSQL needs the package asyncpg; install headroom[postgres]"
        ) from None
    return PostgresLedger(url, read_only=read_only)
