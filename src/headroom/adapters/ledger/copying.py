"""From one ledger into another. Rows merge, so a copy can be repeated, and never takes anything away."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Protocol

from msgspec import Struct

from headroom.adapters.ledger.encoding import BEFORE_ALL
from headroom.adapters.ledger.sqlite import SqliteLedger
from headroom.model.errors import Refused
from headroom.model.history import Entry
from headroom.model.retention import Retention, united
from headroom.model.usage import Heartbeat, UsageRow

ALL_HISTORY: Final = 2**62
AT_ONCE: Final = 10_000


class CopySource(Protocol):
    """What can be copied."""

    def read(self, since: int) -> AsyncIterator[list[UsageRow]]:
        """All rows that may reach beyond `since`."""
        ...

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is complete."""
        ...

    async def history(self, since: int, limit: int, cluster: str = "") -> list[Entry]:
        """Entries from that moment on, the newest first."""
        ...

    async def retentions(self) -> dict[str, Retention]:
        """What is known of each cluster, and must be kept of it."""
        ...


class CopyTarget(Protocol):
    """What can be copied into."""

    async def merge(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> int:
        """Merge rows; how many were new or said something new."""
        ...

    async def note(self, entries: Sequence[Entry]) -> None:
        """Add to the history."""
        ...

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is complete."""
        ...

    async def retentions(self) -> dict[str, Retention]:
        """What is known of each cluster, and must be kept of it."""
        ...

    async def retain(self, retention: Retention) -> None:
        """Write what must be kept of a cluster."""
        ...


class Copied(Struct, frozen=True):
    """What a copy did."""

    rows: int
    new: int
    """Rows that the target did not have, or of which it knew less."""


async def copy(source: CopySource, target: CopyTarget, progress: Callable[[int], None] = lambda _: None) -> Copied:
    """Everything that is in the source, merged into the target; `progress` hears how many rows are done."""
    # Asked for first and written last: a heartbeat says that all rows before it are there.
    heartbeats, kept = await source.heartbeats(), await source.retentions()
    done = new = 0
    first = dict(heartbeats)
    async for rows in source.read(BEFORE_ALL):
        for row in rows:
            first[row.cluster] = min(row.observed, first.get(row.cluster, row.observed))
        new += await target.merge(rows)
        done += len(rows)
        progress(done)
    entries = await source.history(BEFORE_ALL, ALL_HISTORY)
    for begin in range(0, len(entries), AT_ONCE):
        await target.note(entries[begin : begin + AT_ONCE])
    # A copy is older than who writes to the target now: it never takes a word back.
    there, known = await target.heartbeats(), await target.retentions()
    for cluster, until in heartbeats.items():
        if until > there.get(cluster, BEFORE_ALL):
            await target.merge([], Heartbeat(cluster=cluster, complete_until=until))
    # What an older version wrote is known from its first row on.
    kept = {name: Retention(cluster=name, known_since=at) for name, at in first.items()} | kept
    for cluster, retention in kept.items():
        other = known.get(cluster, retention)
        earlier = heartbeats if retention.known_since < other.known_since else there
        await target.retain(united(retention, other, earlier.get(cluster, BEFORE_ALL)))
    return Copied(done, new)


async def backup(source: CopySource, file: Path, progress: Callable[[int], None] = lambda _: None) -> None:
    """The whole ledger as one SQLite file, which is there only when it is whole."""
    with _unfinished(file) as unfinished:
        if isinstance(source, SqliteLedger):
            await source.backup(unfinished)
            return
        target = SqliteLedger(unfinished)
        try:
            await target.heartbeats()  # so that the file is there even if nothing is copied
            await copy(source, target, progress)
        finally:
            await target.close()


@contextmanager
def _unfinished(file: Path) -> Iterator[Path]:
    """A file beside the one that is wanted, which becomes it when all went well."""
    if file.exists():
        raise Refused(f"backing up to {file}: the file exists; name another one")
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{file.name}-", dir=file.parent))
    except OSError as error:
        raise Refused(f"backing up to {file}: {error.strerror or error}; name another file") from error
    try:
        yield folder / file.name
        with (folder / file.name).open("rb") as written:
            os.fsync(written.fileno())
        (folder / file.name).rename(file)
    except OSError as error:
        raise Refused(f"backing up to {file}: {error.strerror or error}; name another file") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)
