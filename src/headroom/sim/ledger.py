"""A ledger in memory: the same rules, with no disk. Its writes can be made to fail, before or after they took effect."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from weakref import WeakKeyDictionary

from msgspec import structs

from headroom.adapters import outside
from headroom.adapters.kube.transport import Transport
from headroom.core.usage import row_of
from headroom.model.cloud_facts import Experience
from headroom.model.errors import Misconfigured
from headroom.model.facts import Usage
from headroom.model.history import Entry
from headroom.model.machine_records import KEPT, MachineRecord
from headroom.model.ports import Origin
from headroom.model.retention import Retention
from headroom.model.usage import DAY, Heartbeat, UsageRow, merged
from headroom.model.verdicts import HomeVerdict
from headroom.sim.answers import Body
from headroom.sim.apiserver import ApiServer
from headroom.sim.catalog import NAMESPACE
from headroom.sim.connection import SimTransport

Key = tuple[str, int, str, int]


class MemoryLedger:
    """A `Ledger` as a dict; it never waits."""

    def __init__(self) -> None:
        self.rows: dict[Key, UsageRow] = {}
        self.before_write: Callable[[], None] | None = None
        """Called before each write; what it raises, the writer gets, and nothing was written."""
        self.after_write: Callable[[], None] | None = None
        """Called after each write; what it raises, the writer gets, and all was written."""
        self._changed: dict[Key, int] = {}
        self._last = 0
        self._heartbeats: dict[str, int] = {}
        self._history: dict[tuple[int, bytes], Entry] = {}
        self._retentions: dict[str, Retention] = {}
        self._claims: dict[str, dict[str, tuple[int, int]]] = {}
        self._verdicts: dict[str, tuple[HomeVerdict, ...]] = {}
        self._machines: dict[tuple[str, str, str, str, str], MachineRecord] = {}
        self.server, self.connections = "", 0
        """What `origin` tells."""

    async def write(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> None:
        """Merge rows with those there are, all or none."""
        await self.merge(rows, heartbeat)

    async def merge(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> int:
        """The same; how many rows were new or said something new."""
        if self.before_write is not None:
            self.before_write()
        changed = self.put(rows)
        if heartbeat is not None:
            self._heartbeats[heartbeat.cluster] = heartbeat.complete_until
        if self.after_write is not None:
            self.after_write()
        return changed

    def put(self, rows: Sequence[UsageRow]) -> int:
        """Merge rows, at once and without fail; how many were new or said something new."""
        changed = [key for key, row in _together(rows).items() if self._merge_one(key, row)]
        self._last += bool(changed)
        for key in changed:
            self._changed.pop(key, None)
            self._changed[key] = self._last
        return len(changed)

    async def read(self, since: int) -> AsyncIterator[list[UsageRow]]:
        """All rows that may reach beyond `since`."""
        found = [row for row in self.rows.values() if (over := _surely_over(row)) is None or over > since]
        if found:
            yield found

    async def changes(self, after: int) -> tuple[list[UsageRow], int]:
        """Rows written after the cursor."""
        found = []
        # What changed last stands last, so nobody has to look at all that ever changed.
        for key in reversed(self._changed):
            if self._changed[key] <= after:
                break
            found.append(self.rows[key])
        return found[::-1], self._last

    async def cursor(self) -> int:
        """The cursor that stands for everything written so far."""
        return self._last

    async def heartbeats(self) -> dict[str, int]:
        """Up to when each cluster's view is in the ledger."""
        return dict(self._heartbeats)

    async def prune(self, cluster: str, before: int) -> int:
        """Forget a cluster's rows that were over before that moment, and its history from before it; how many there were."""
        gone = [key for key, row in self.rows.items() if row.cluster == cluster and _is_over(row, before)]
        for key in gone:
            del self.rows[key], self._changed[key]
        old = [key for key, each in self._history.items() if each.cluster == cluster and each.at < before]
        for noted in old:
            del self._history[noted]
        return len(gone) + len(old)

    async def retentions(self) -> dict[str, Retention]:
        """What is known of each cluster, and must be kept of it."""
        return dict(self._retentions)

    async def retain(self, retention: Retention) -> None:
        """Write what must be kept of a cluster."""
        self._retentions[retention.cluster] = retention

    async def claim(self, cluster: str, holder: str, now: int) -> dict[str, int]:
        """Say that `holder` leads in a cluster; how often each holder said so."""
        claims = self._claims.get(cluster, {})
        claims[holder] = claims.get(holder, (0, 0))[0] + 1, now
        self._claims[cluster] = {name: each for name, each in claims.items() if each[1] >= now - DAY}
        return {name: count for name, (count, _) in self._claims[cluster].items()}

    async def claimed(self, cluster: str) -> dict[str, int]:
        """When each holder last said so."""
        return {holder: at for holder, (_, at) in self._claims.get(cluster, {}).items()}

    async def unclaim(self, cluster: str, holder: str) -> None:
        """Say that it leads no more."""
        self._claims.get(cluster, {}).pop(holder, None)

    async def publish(self, cluster: str, verdicts: Sequence[HomeVerdict]) -> None:
        """Write all verdicts of a home cluster, in place of those before."""
        self._verdicts[cluster] = tuple(verdicts)

    async def verdicts(self) -> tuple[HomeVerdict, ...]:
        """What every home cluster said last."""
        return tuple(each for _, told in sorted(self._verdicts.items()) for each in told)

    async def record_machines(self, records: Sequence[MachineRecord]) -> None:
        """Merge records with those there are."""
        for each in records:
            known = self._machines.get(each.key, each)
            self._machines[each.key] = structs.replace(
                known,
                began=min(known.began, each.began),
                seen_until=max(known.seen_until, each.seen_until),
                outcome=max(known.outcome, each.outcome, key=("", "Failed", "Interrupted").index),
            )
        oldest = max((each.seen_until for each in records), default=0) - KEPT
        clusters = {each.cluster for each in records}
        for key in [
            key for key, each in self._machines.items() if each.cluster in clusters and each.seen_until < oldest
        ]:
            del self._machines[key]

    async def experience(self, since: int, until: int) -> list[Experience]:
        """What all clusters saw between two moments."""
        found: dict[str, Experience] = {}
        for each in self._machines.values():
            if each.seen_until >= since and each.began <= until:
                offer = f"{each.instance_type}/{each.zone}/{each.capacity_type}"
                known = found.get(offer, Experience(offer=offer))
                failed, ran = each.outcome == "Failed", min(each.seen_until, until) - max(each.began, since)
                found[offer] = structs.replace(
                    known,
                    launches=known.launches + (each.began >= since),
                    failures=known.failures + failed,
                    interruptions=known.interruptions + (each.outcome == "Interrupted"),
                    machine_ms=known.machine_ms + (0 if failed else max(0, ran)),
                )
        return [found[offer] for offer in sorted(found)]

    async def origin(self) -> Origin:
        """Which server answers."""
        is_empty = not self.rows
        return Origin(server=self.server, connections=self.connections, last=self._last, is_empty=is_empty)

    def knows(self, cluster: str) -> None:
        """All that ever happened in a cluster is here."""
        self._retentions.setdefault(cluster, Retention(cluster=cluster, known_since=0))

    def fall_back(self, to: int) -> None:
        """Lose every row that was written after that number, as a replica that takes over too early does."""
        for key in [key for key, number in self._changed.items() if number > to]:
            del self.rows[key], self._changed[key]
        self._last = to
        self.connections += 1

    async def note(self, entries: Sequence[Entry]) -> None:
        """Add to the history."""
        self._history |= {(entry.at, entry.key): entry for entry in entries}

    async def history(self, since: int, limit: int, cluster: str = "") -> list[Entry]:
        """Entries from that moment on, the newest first: of all clusters, or of one."""
        newest_first = sorted(self._history.items(), reverse=True)
        found = (entry for (at, _), entry in newest_first if at >= since and cluster in ("", entry.cluster))
        return list(itertools.islice(found, limit))

    async def close(self) -> None:
        """There is nothing to close; what was written stays, as it does in a file."""

    def _merge_one(self, key: Key, row: UsageRow) -> bool:
        before = self.rows.get(key)
        self.rows[key] = row if before is None else merged(before, row)
        return self.rows[key] != before


_LEDGERS: WeakKeyDictionary[ApiServer, MemoryLedger] = WeakKeyDictionary()


def ledger_of(transport: Transport) -> MemoryLedger:
    """The ledger of a simulated cluster: like a disk, it outlives the processes that write to it."""
    assert isinstance(transport, SimTransport)
    return of_server(transport.server)


def of_server(server: ApiServer) -> MemoryLedger:
    """The same, for whoever has the server itself."""
    return _LEDGERS.setdefault(server, MemoryLedger())


def remember(server: ApiServer, documents: Iterable[Body]) -> None:
    """Let a simulated cluster have a past: documents of kind Usage are rows of its ledger."""
    cluster = server.store.get(NAMESPACE, "", "kube-system")
    name, ledger = cluster.uid if cluster else "", of_server(server)
    ledger.put([_row(document, name) for document in documents])
    ledger.knows(name)


def _row(document: Body, cluster: str) -> UsageRow:
    usage, problems = outside.fact("Usage", document)
    assert isinstance(usage, Usage)
    row = row_of(usage, cluster)
    if problems or row is None:
        why = "; ".join(f"{field} {message}" for field, message in problems)
        raise Misconfigured(f"setting the stage: Usage {usage.name}: {why}")
    return row


def _together(rows: Sequence[UsageRow]) -> dict[Key, UsageRow]:
    found: dict[Key, UsageRow] = {}
    for row in rows:
        found[row.key] = merged(found[row.key], row) if row.key in found else row
    return found


def _is_over(row: UsageRow, before: int) -> bool:
    over = _surely_over(row)
    return over is not None and over < before and row.day <= before // DAY


def _surely_over(row: UsageRow) -> int | None:
    return row.gone_by if row.ended is None else row.ended
