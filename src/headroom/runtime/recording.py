"""The recorder: turns what happens to pods into rows of usage, at once, and has them in the ledger within a second.

It begins by reading the ledger, waits for a complete view, and unites the two: what went while nobody looked stands as bounds. From
then on every event is a row as it arrives. Rows wait in memory only until the next write; a write that fails is tried again for ever,
and whatever is not durable yet is known by pod, so that no finalizer is removed too early. Writing and reading go on apart from each
other, so a ledger that hangs while it is read takes rows all the same, where it has a queue.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from headroom.core import usage
from headroom.core.usage import KIND, Keeper, Look, PricingContext
from headroom.model import times
from headroom.model.changes import Topic
from headroom.model.decisions import Decision
from headroom.model.errors import HeadroomError
from headroom.model.facts import Pod
from headroom.model.ports import Ledger, RecorderPort
from headroom.model.times import SECOND
from headroom.model.usage import Heartbeat, UsageRow
from headroom.model.usage_table import UsageTable
from headroom.model.world import LedgerState, World
from headroom.runtime.clock import SUSPECT_MS, Due
from headroom.runtime.custody import Custodian, budgets_in, windows
from headroom.runtime.horizon import Horizon
from headroom.runtime.journal import Journal
from headroom.runtime.label_keys import SHORTEST_MS, LabelKeys
from headroom.runtime.surroundings import Runtime
from headroom.runtime.trying import Trying
from headroom.runtime.unwritten import Resending, Unwritten, lacking

NAME: Final = "usage"
"""Under which the recorder hears of changes."""
PARTS: Final = frozenset(
    {KIND, Topic.NODES, Topic.NAMESPACES, Topic.CLAIMS, Topic.DEVICES, Topic.DEVICE_CLASSES, Topic.PRICES, Topic.OFFERS}
)
"""What the price, the share and the counted resources of a pod depend on."""
HEARTBEAT_SECONDS: Final = 5.0
REFRESH_SECONDS: Final = 2.0
PRUNE_SECONDS: Final = 3600.0
PATIENCE_SECONDS: Final = 12.0
"""How long a first reading may take before what happens is recorded without it."""
GAP_MS: Final = 1000
"""A view that is behind by more than it usually is has a gap."""


class Recorder:
    """Keeps the table of usage and the ledger."""

    def __init__(
        self,
        ledger: Ledger,
        around: Runtime,
        *,
        may_lead: Callable[[], bool] = lambda: True,
        holder: str = "",
        accept_loss_before: int = 0,
        labels: frozenset[str] = frozenset(),
    ) -> None:
        """`holder` names this process in the ledger. A ledger without history is accepted beside usage of before that moment.

        `labels` are kept of every row beside those that budgets select by.
        """
        self._ledger, self._around, self._clock = ledger, around, around.clock
        self._may_lead = may_lead
        self._custodian = Custodian(ledger, around, may_lead, holder or uuid.uuid4().hex, accept_loss_before)
        self._keeper = Keeper(UsageTable())
        self._labels = LabelKeys(around.clock, labels)
        self._port: RecorderPort | None = None
        self._is_recording = self._is_loaded = False
        self._one_at_a_time = asyncio.Lock()
        self._early: list[tuple[Pod, int, int]] = []
        """Pods deleted before the first view was complete: their last state, when that was heard, when they were last there."""
        self.journal = Journal(ledger)
        self._unwritten, self._resending = Unwritten(), Resending()
        self._trying = Trying(ledger, around, lambda: self._tell(Topic.LEDGER))
        self._complete_until: dict[str, int] = {}
        self._beside: PricingContext | None = None
        self._cursor = 0
        self._due = Due(around.clock)
        self._horizon = Horizon(ledger)
        self._missing: tuple[int, int, frozenset[str]] | None = None  # seen until when, missing when, and which pods
        self._stopping = False

    # What the port and the plans look at

    @property
    def table(self) -> UsageTable:
        """All rows that matter."""
        return self._keeper.table

    def state(self) -> LedgerState:
        """How well the ledger serves."""
        state = LedgerState(
            loaded=self._is_loaded,
            problem=self._trying.problem,
            unwritten=self._unwritten.pods,
            waiting=len(self._unwritten.pods),
            lag_ms=max(self._unwritten.lag_ms(self._clock.monotonic()), self._trying.lag_ms),
            complete_until=self._complete_until,
            keys=self.table.known_keys,
        )
        return self._custodian.with_doubts(state, self.table.cluster)

    def connect(self, port: RecorderPort) -> None:
        """Look at this port from now on."""
        self._port = port
        port.subscribe(NAME, PARTS, quiet=True)

    def decided(self, decision: Decision, now: int) -> None:
        """A decision that belongs into the history."""
        self.journal.decided(decision, now, self.table.cluster)

    # What happens to pods

    def pod(self, pod: Pod) -> None:
        """A pod came or changed."""
        if self._is_recording:
            before = self._standing(pod.uid)
            self._keep(self._keeper.hear(pod, self._surroundings(pod), self._look()))
            if self._standing(pod.uid) != before:
                self._tell(Topic.USAGE)

    def gone(self, pod: Pod, seen_until: int) -> None:
        """A pod was deleted."""
        now = self._now()
        # A moment passes between hearing of it and being told.
        since = now if now - seen_until < GAP_MS else seen_until
        if self._is_recording:
            self._keep(self._keeper.lose(pod, self._surroundings(pod), Look(self.table.cluster, now, since)))
            self._tell(Topic.USAGE)
        else:
            self._early.append((pod, now, since))

    def _standing(self, uid: str) -> tuple[bool, bool]:
        return self.table.is_alive(uid), uid in self.table.kept

    def _look(self) -> Look:
        """A look now; if the view was behind, what is new may be older than now."""
        assert self._port is not None
        since = self._port.missed_since(now := self._now())
        return Look(self.table.cluster, now, now if now - since < GAP_MS else since)

    @property
    def _window_ms(self) -> int:
        return windows(budgets_in(self._world()))[0]

    def _now(self) -> int:
        return self._clock.now() if self._port is None else self._custodian.now(self._port)

    def _surroundings(self, pod: Pod | None = None) -> PricingContext:
        self._beside = self._beside or usage.around(self._world())
        # Budgets are looked at once a second; who bears a shared claim depends on what they select by at this very moment.
        shares = pod is not None and usage.sharers_of(pod, self._beside.view)
        return usage.around(self._world()) if shares else self._beside

    def _world(self) -> World:
        assert self._port is not None
        return self._port.world(self._now())

    def _keep(self, rows: Iterable[UsageRow]) -> None:
        """New rows wait to be written, and the plans hear that there are some."""
        if self._unwritten.add(rows, self._clock.monotonic()):
            self._tell(Topic.USAGE)

    # Living

    async def run(self) -> None:
        """Unite the ledger with the first complete view, and go on recording and writing, until `stop`."""
        while not self._stopping and (self._port is None or not self._port.complete):
            await self._clock.sleep(0.05)
        if self._port is not None:
            self._custodian.look(self._port)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_reading(), name="reading the ledger")
            tasks.create_task(self._keep_writing(), name="writing the ledger")

    async def _keep_reading(self) -> None:
        while not self._is_loaded and not self._stopping:
            if await self._trying.tried(self._catch_up):
                break
            self._begin_without_history()
            await self._clock.sleep(self._trying.pause())
        self._trying.failures = 0
        while not self._stopping:
            await self._clock.sleep(self._around.pace.record_seconds)
            if self._due.is_time("reading", self._trying.pause()):
                self._due.did("reading")
                if await self._trying.tried(self._read):
                    self._trying.failures = 0

    async def _keep_writing(self) -> None:
        """What is seen is kept even while the ledger cannot be read: it may have a queue."""
        began = self._clock.monotonic()
        while not self._stopping:
            await self._clock.sleep(self._around.pace.record_seconds)
            assert self._port is not None
            if self._custodian.look(self._port):
                self._tell(Topic.LEDGER)
            if self._is_loaded:
                await self._trying.tried(self.step, counts=False)
            elif self._is_recording or self._clock.monotonic() - began >= PATIENCE_SECONDS:
                self._begin_without_history()
                with suppress(HeadroomError):
                    await self._write()

    async def stop(self) -> None:
        """Write what waits, and say up to when nothing is missing."""
        self._stopping = True
        if self._is_recording:
            self._due.now("heartbeat")
            await self._trying.tried(self._write)
            await self._trying.tried(self.journal.write)
            with suppress(HeadroomError):  # it is forgotten by itself after a while
                await self._custodian.end(self.table.cluster)

    def _begin_without_history(self) -> None:
        """Begin with what is in view; what the ledger has to add is merged in once it can be read."""
        if self._is_recording:
            return
        world = self._world()
        self._keeper, self._beside = Keeper(self._labels.new_table(world), SHORTEST_MS), None
        self._take_in(world, since=None)

    async def _catch_up(self) -> None:
        """Unite what the ledger has with what is in view."""
        began, is_disputed = self._now(), await self._custodian.is_disputed(self._world().cluster)
        table = self._labels.new_table(self._world())
        cursor, beats = await self._ledger.cursor(), await self._ledger.heartbeats()
        loaded_since = await self._horizon.load(table, self._now() - self._window_ms)
        await self._custodian.read(self._world(), table)
        # From here on nothing waits, so no event can slip in between.
        world = self._world()
        self._custodian.must_know(world)
        since = beats.get(world.cluster, 0)
        # One whose clock was ahead has spoken of what it could not know.
        since = min(since, world.now) if since <= world.now + SUSPECT_MS else 0
        if self._is_recording:
            self._labels.unite(self.table, table, self._unwritten.rows)
            self._keep(self._keeper.join(self._surroundings(), since))
            self._see(world, world.pods)
        else:
            self._keeper, self._beside = Keeper(table, SHORTEST_MS), None
            self._take_in(world, since)
        self._horizon.reaches(self.table, loaded_since)
        self._missing = since, began, frozenset(self.table.unresolved())
        if not is_disputed:
            self._miss()
        self._cursor, self._is_loaded = cursor, True
        self._complete_until = {name: until for name, until in beats.items() if name != world.cluster}
        self._tell(Topic.LEDGER)
        gap = (world.now - since) // SECOND
        if since and gap > 2 * HEARTBEAT_SECONDS:
            self._around.log.warning("usage was not watched for a while", since=times.text(since), seconds=gap)
        await self._write()
        await self._custodian.begin(world)

    def _miss(self) -> None:
        """What was open in the ledger and not in view at the start is gone, unless it is somebody else's under the same id."""
        missing, self._missing = self._missing, None
        self._keep(self._keeper.miss(*missing) if missing else ())

    def _take_in(self, world: World, since: int | None) -> None:
        """Every pod in view, and those that came and went before; `since` is None if the ledger was not read."""
        beside, look, found = self._surroundings(), Look(world.cluster, world.now, since or 0), []
        see = self._keeper.find if since is None else self._keeper.see
        for pod in world.pods:
            found += see(pod, beside, look)
        for pod, at, last in self._early:
            if since is None:
                found += self._keeper.find(pod, beside, look._replace(at=last))
            found += self._keeper.lose(pod, beside, Look(world.cluster, at, last))
        self._early.clear()
        self._is_recording = True
        self._keep(found)

    async def step(self) -> None:
        """One turn: look again at what prices, claims and budgets change, and write."""
        self._labels.follow(self.table, self._world(), self._unwritten.rows)
        self._look_again()
        self._keep(self._keeper.settle(self._surroundings(), self._look()))
        await self._write()
        await self.journal.write()

    async def _read(self) -> None:
        """Read what others wrote and what a longer window needs, and forget the old."""
        assert self._port is not None
        if self._due.is_time("refresh", REFRESH_SECONDS):
            await self._refresh()
            self._due.did("refresh")
        await self.journal.follow(self._due, leads=self._may_lead(), now=self._now(), cluster=self.table.cluster)
        now, window = self._now(), self._window_ms
        if await self._horizon.lengthen(self.table, now - window):
            self._tell(Topic.USAGE)
        await self._horizon.look_back(self.table, now - 2 * window)
        if await self._labels.read(self.table, self._ledger, self._horizon.since):
            self._see(world := self._world(), world.pods)
            self._tell(Topic.LEDGER)
        if self._due.is_time("prune", PRUNE_SECONDS) and not self._custodian.doubt:
            self._horizon.forget(self.table, now, window)
            self._labels.forget(self.table, self._world())
            self._due.did("prune")
        if await self._custodian.tend(self._port):
            self._tell(Topic.LEDGER)
        if self._custodian.is_alone():
            self._miss()

    def _tell(self, topic: Topic) -> None:
        if self._port is not None:
            self._port.tell(topic)

    def _look_again(self) -> None:
        """Pods whose price, share or counted resources may be others now."""
        assert self._port is not None
        changes = self._port.take_changes(NAME)
        if not changes or not self._port.complete:
            return
        before, self._beside = self._beside, None
        world, beside = self._world(), self._surroundings()
        nodes = {*changes.nodes, *(usage.repriced(before, beside) if before else ())}
        uids = {uid for node in nodes for uid in world.pods.by_node[node]}
        is_other = before is None or before.decisive != beside.decisive
        if changes.everything or {Topic.NAMESPACES, Topic.DEVICE_CLASSES} & changes.facts.keys() or is_other:
            uids = set(world.pods.uids())
        elif Topic.DEVICES in changes.facts:
            uids |= {uid for name in world.pods.claiming.values() for uid in world.pods.claiming[name]}
        self._see(world, (pod for uid in sorted(uids) if (pod := world.pods.get(uid)) is not None))

    def _see(self, world: World, pods: Iterable[Pod]) -> None:
        for pod in list(pods):
            self._keep(self._keeper.see(pod, self._surroundings(), Look(world.cluster, world.now, world.now)))

    async def _write(self) -> None:
        """Make durable what is not, together with the word up to when nothing is missing."""
        async with self._one_at_a_time:
            assert self._port is not None
            beat = self._heartbeat()
            if not self._unwritten and beat is None:
                return
            batch = self._unwritten.take()
            try:
                await self._ledger.write(list(batch.values()), beat)
            except BaseException:
                self._unwritten.put_back(batch)
                raise
            if beat is not None:
                self._due.did("heartbeat")
            self._resending.wrote(batch, self._clock.monotonic())
            self._unwritten.wrote(batch)
            if any(row.uid in self.table.kept for row in batch.values()):
                self._tell(Topic.LEDGER)

    def _heartbeat(self) -> Heartbeat | None:
        """Only who leads, and has seen to everything that the ledger has open, speaks for the cluster."""
        assert self._port is not None
        is_whole = self._is_loaded and self._missing is None and self._port.complete
        may_speak = self._may_lead() and self._custodian.may_vouch()
        if not (is_whole and may_speak and self._due.is_time("heartbeat", HEARTBEAT_SECONDS)):
            return None
        heard = self._port.heard_until(self._custodian.earlier(self._port))
        return Heartbeat(cluster=self.table.cluster, complete_until=heard)

    async def _refresh(self) -> None:
        """What other replicas and other clusters wrote."""
        beats, origin = await self._ledger.heartbeats(), await self._ledger.origin()
        if self._resending.is_behind(origin):
            self._around.log.warning("the ledger's server lacks what another one had: rows are sent again")
            self._cursor = min(self._cursor, origin.last)
            there = [row async for rows in self._ledger.read(self._horizon.since) for row in rows]
            self._unwritten.again(lacking(self.table, there), self._clock.monotonic())
            self.table.extend(there)
            if origin.is_empty:
                await self._custodian.lost_before(self._world(), self._horizon.since)
        self._unwritten.again(self._resending.answered(origin, self._clock.monotonic()), self._clock.monotonic())
        others = {name: until for name, until in beats.items() if name != self.table.cluster}
        is_more, is_new, self._complete_until = True, others != self._complete_until, others
        while is_more:
            rows, self._cursor = await self._ledger.changes(self._cursor)
            is_more, is_new = bool(rows), bool([row for row in rows if self.table.put(row) is not None]) or is_new
        if is_new:
            self._tell(Topic.USAGE)
