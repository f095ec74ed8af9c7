"""The recorder: turns what happens to pods into rows of usage, at once, and has them in the ledger within a second.

It begins by reading the ledger, waits for a complete view, and unites the two: what went while nobody looked stands as bounds. From
then on every event is a row as it arrives. Rows wait in memory only until the next write; a write that fails is tried again for ever,
and whatever is not durable yet is known by pod, so that nobody lets go of one too early.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, Final

from headroom.core import usage
from headroom.core.usage import KIND, Around, Keeper, Look
from headroom.model import times
from headroom.model.decisions import Decision
from headroom.model.errors import HeadroomError
from headroom.model.facts import Pod
from headroom.model.ports import Ledger, RecorderPort
from headroom.model.times import HOUR, SECOND
from headroom.model.usage import DAY, Heartbeat, Row
from headroom.model.usage_table import UsageTable
from headroom.model.world import LedgerState, World
from headroom.runtime.journal import Journal
from headroom.runtime.surroundings import Surroundings

Key = tuple[str, int, str, int]
Work = Callable[[], Coroutine[Any, Any, None]]

NAME: Final = "usage"
"""Under which the recorder hears of changes."""
PARTS: Final = frozenset({"nodes", "outside", KIND})
WRITE_SECONDS: Final = 1.0
HEARTBEAT_SECONDS: Final = 5.0
REFRESH_SECONDS: Final = 2.0
PRUNE_SECONDS: Final = 3600.0
RETRY_SECONDS: Final = (1.0, 15.0)
SHORTEST_KEPT: Final = 35 * DAY
JOURNAL_SECONDS: Final = 5.0
"""How often who does not lead reads what the leader decided."""
LAST_WORDS_SECONDS: Final = 60.0
MOST_LOOKED_BACK: Final = 200_000
"""Rows in memory up to which those of one window more are kept too."""
GAP_MS: Final = 1000
"""A view that is behind by more than it usually is has a gap."""


class Recorder:
    """Keeps the table of usage and the ledger."""

    def __init__(self, ledger: Ledger, around: Surroundings, *, may_lead: Callable[[], bool] = lambda: True) -> None:
        self._ledger, self._around, self._clock = ledger, around, around.clock
        self._may_lead = may_lead
        self._keeper = Keeper(UsageTable())
        self._port: RecorderPort | None = None
        self._is_recording = False
        self._is_loaded = False
        self._one_at_a_time = asyncio.Lock()
        self._early: list[tuple[Pod, int, int]] = []
        """Pods deleted before the first view was complete: their last state, when that was heard, when they were last there."""
        self.journal = Journal(ledger)
        self._dirty: dict[Key, Row] = {}
        self._unwritten: dict[str, int] = {}
        self._problem = ""
        self._problems: dict[str, str] = {}
        self._complete_until: dict[str, int] = {}
        self._beside: Around | None = None
        self._cursor: int | None = None
        self._done_at: dict[str, float] = {}
        self._waits_since = 0
        self._loaded_since = 0
        self._is_much = False
        self._failures = 0
        self._stopping = False

    # What the port and the plans look at

    @property
    def table(self) -> UsageTable:
        """All rows that matter."""
        return self._keeper.table

    def state(self) -> LedgerState:
        """How well the ledger serves."""
        return LedgerState(
            loaded=self._is_loaded,
            problem=self._problem,
            unwritten=self._unwritten.keys(),
            waiting=len(self._unwritten),
            lag_ms=max(0, self._clock.now() - self._waits_since) if self._unwritten else 0,
            complete_until=self._complete_until,
        )

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
            self._keep(self._keeper.hear(pod, self._surroundings(), self._look()))
            if self._standing(pod.uid) != before:
                self._tell(NAME)

    def gone(self, pod: Pod, seen_until: int) -> None:
        """A pod was deleted."""
        now = self._clock.now()
        # A moment passes between hearing of it and being told.
        since = now if now - seen_until < GAP_MS else seen_until
        if self._is_recording:
            self._keep(self._keeper.lose(pod, self._surroundings(), Look(self.table.cluster, now, since)))
            self._tell(NAME)
        else:
            self._early.append((pod, now, since))

    def _standing(self, uid: str) -> tuple[bool, bool]:
        return self.table.is_alive(uid), uid in self.table.kept

    def _look(self) -> Look:
        """A look now; if the view was behind, what is new may be older than now."""
        assert self._port is not None
        now = self._clock.now()
        since = self._port.missed_since(now)
        return Look(self.table.cluster, now, now if now - since < GAP_MS else since)

    def _surroundings(self) -> Around:
        if self._beside is None:
            assert self._port is not None
            self._beside = usage.around(self._port.world(self._clock.now()))
        return self._beside

    def _keep(self, rows: Iterable[Row]) -> None:
        """New rows wait to be written, and the plans hear that there are some."""
        any_new = False
        for row in rows:
            any_new = True
            if row.key not in self._dirty:
                self._unwritten[row.uid] = self._unwritten.get(row.uid, 0) + 1
            if not self._dirty:
                self._waits_since = self._clock.now()
            self._dirty[row.key] = row
        if any_new:
            self._tell(NAME)

    # Living

    async def run(self) -> None:
        """Unite the ledger with the first complete view, and go on recording and writing, until `stop`."""
        while not self._stopping and (self._port is None or not self._port.complete):
            await self._clock.sleep(0.05)
        while not self._is_loaded and not self._stopping:
            if await self._tried(self._catch_up):
                break
            if not self._is_recording:
                self._begin_without_history()
            # What is seen meanwhile is kept even though the ledger cannot be read: it may have a queue.
            with suppress(HeadroomError):
                await self._write()
            await self._clock.sleep(self._pause())
        self._failures = 0
        while not self._stopping:
            await self._clock.sleep(WRITE_SECONDS)
            await self._tried(self.step)
            # A queue may take what is written while nothing can be read, so only reading is put off.
            if self._is_time("reading", self._pause() if self._failures else 0.0):
                self._did("reading")
                self._failures = 0 if await self._tried(self._read) else self._failures

    async def stop(self) -> None:
        """Write what waits, and say up to when nothing is missing."""
        self._stopping = True
        if self._is_recording:
            self._done_at.pop("heartbeat", None)
            await self._tried(self._write)
            await self._tried(self.journal.write)

    def _pause(self) -> float:
        return min(RETRY_SECONDS[1], RETRY_SECONDS[0] * 2.0 ** min(self._failures - 1, 8))

    async def _tried(self, work: Work) -> bool:
        """Do something with the ledger; a failure is said where people look, and tried again."""
        try:
            await work()
        except HeadroomError as error:
            self._failures += work != self.step
            self._say(work, f"{error}.".replace("..", "."))
            return False
        self._say(work, "")
        return True

    def _say(self, work: Work, problem: str) -> None:
        self._problems[work.__name__] = problem
        # A ledger with a queue takes everything and says by itself that it is not well.
        self._problems["itself"] = getattr(self._ledger, "problem", "")
        problem = next((each for each in self._problems.values() if each), "")
        if problem != self._problem:
            self._problem = problem
            log = self._around.log.warning if problem else self._around.log.info
            log("the ledger cannot be used" if problem else "the ledger is in use", why=problem)
            self._tell("ledger")

    def _begin_without_history(self) -> None:
        """Begin with what is in view; what the ledger has to add is merged in once it can be read."""
        assert self._port is not None
        world = self._port.world(self._clock.now())
        self._keeper, self._beside = Keeper(UsageTable(world.cluster)), None
        # Up to when these pods were seen before, only the ledger knows.
        self._take_in(world, since=0)

    async def _catch_up(self) -> None:
        """Unite what the ledger has with what is in view."""
        assert self._port is not None
        table = self.table if self._is_recording else UsageTable(self._port.world(self._clock.now()).cluster)
        cursor, beats = await self._ledger.cursor(), await self._ledger.heartbeats()
        self._loaded_since = table.complete_since = await self._load(table)
        # From here on nothing waits, so no event can slip in between.
        if not self._is_recording:
            self._keeper, self._beside = Keeper(table), None
        world = self._port.world(self._clock.now())
        since = min(beats.get(world.cluster, 0), world.now)
        self._take_in(world, since)
        self._keep(self._keeper.miss(since, world.now))
        self._cursor, self._is_loaded = cursor, True
        self._complete_until = {name: until for name, until in beats.items() if name != world.cluster}
        self._tell("ledger")
        gap = (world.now - since) // SECOND
        if since and gap > 2 * HEARTBEAT_SECONDS:
            self._around.log.warning("usage was not watched for a while", since=times.text(since), seconds=gap)
        await self._write()

    def _take_in(self, world: World, since: int) -> None:
        """Every pod in view, and those that came and went before."""
        beside, look, found = self._surroundings(), Look(world.cluster, world.now, since), []
        for pod in world.pods:
            found += self._keeper.see(pod, beside, look)
        for pod, at, last in self._early:
            found += self._keeper.lose(pod, beside, Look(world.cluster, at, last))
        self._early.clear()
        self._is_recording = True
        self._keep(found)

    async def _load(self, table: UsageTable) -> int:
        """Read what the largest window needs; the moment from which on all is known."""
        since = self._clock.now() - self._window_ms()
        async for rows in self._ledger.read(since):
            table.extend(rows)
        return since

    async def step(self) -> None:
        """One turn: look again at what prices, claims and budgets change, and write."""
        self._look_again()
        await self._write()
        await self.journal.write()

    async def _read(self) -> None:
        """Read what others wrote and what a longer window needs, and forget the old."""
        if self._is_time("refresh", REFRESH_SECONDS):
            await self._refresh()
            self._did("refresh")
        await self._read_journal()
        now, window = self._clock.now(), self._window_ms()
        if now - window < self._loaded_since:
            # A budget with a longer window has come.
            self._know_since(await self._load(self.table))
            self._tell(NAME)
        if not self._is_much and now - 2 * window < self._loaded_since:
            await self._look_back(now - 2 * window)
        if self._is_time("prune", PRUNE_SECONDS):
            # One window of rows more than half of what may be is two windows of too many.
            self._is_much = len(self.table) > MOST_LOOKED_BACK // (2 if self._is_much else 1)
            kept_since = now - (window if self._is_much else 2 * window)
            self.table.prune(kept_since)
            self._know_since(max(self._loaded_since, kept_since))
            if self._may_lead():
                await self._ledger.prune(now - max(SHORTEST_KEPT, 2 * window))
            self._did("prune")

    async def _read_journal(self) -> None:
        """What was decided before us and beside us. Who has just begun to lead may not have heard the other's last words."""
        if not self._may_lead() or "journal" not in self._done_at:
            self._did("standing by")
        if not self._is_time("standing by", LAST_WORDS_SECONDS) and self._is_time("journal", JOURNAL_SECONDS):
            await self.journal.read(self._clock.now(), self.table.cluster)
            self._did("journal")

    async def _look_back(self, since: int) -> None:
        """Read one window more, for whoever wants to see what the window held before; not where that is very much."""
        async for rows in self._ledger.read(since):
            self.table.extend(rows)
            self._is_much = len(self.table) > MOST_LOOKED_BACK
            if self._is_much:
                return
        self._know_since(since)

    def _know_since(self, moment: int) -> None:
        self._loaded_since = self.table.complete_since = moment

    def _tell(self, what: str) -> None:
        if self._port is not None:
            self._port.outside_changed(what)

    def _look_again(self) -> None:
        """Pods whose price, share or counted resources may be others now."""
        assert self._port is not None
        changes = self._port.take_changes(NAME)
        if not changes or not self._port.complete:
            return
        before, self._beside = self._beside, None
        world, beside = self._port.world(self._clock.now()), self._surroundings()
        uids = {uid for node in changes.nodes for uid in world.pods.by_node[node]}
        if changes.everything or {"namespaces", "device classes"} & changes.outside or not _same(before, beside):
            uids = set(world.pods.uids())
        elif "devices" in changes.outside:
            uids |= {uid for name in world.pods.claiming.values() for uid in world.pods.claiming[name]}
        self._see(world, (pod for uid in sorted(uids) if (pod := world.pods.get(uid)) is not None))

    def _see(self, world: World, pods: Iterable[Pod]) -> None:
        look = Look(world.cluster, world.now, world.now)
        for pod in list(pods):
            self._keep(self._keeper.see(pod, self._surroundings(), look))

    async def _write(self) -> None:
        """Make durable what is not, together with the word up to when nothing is missing."""
        async with self._one_at_a_time:
            assert self._port is not None
            beat = self._heartbeat()
            if not self._dirty and beat is None:
                return
            batch, self._dirty = self._dirty, {}
            try:
                await self._ledger.write(list(batch.values()), beat)
            except BaseException:
                self._put_back(batch)
                raise
            if beat is not None:
                self._did("heartbeat")
            for row in batch.values():
                self._written(row.uid)
            if any(row.uid in self.table.kept for row in batch.values()):
                self._tell("ledger")

    def _heartbeat(self) -> Heartbeat | None:
        """Only who leads, and has seen to everything that the ledger has open, speaks for the cluster."""
        assert self._port is not None
        if not (self._is_loaded and self._port.complete and self._may_lead()):
            return None
        if not self._is_time("heartbeat", HEARTBEAT_SECONDS):
            return None
        return Heartbeat(cluster=self.table.cluster, complete_until=self._port.heard_until(self._clock.now()))

    def _put_back(self, batch: dict[Key, Row]) -> None:
        for key, row in batch.items():
            if key in self._dirty:
                self._written(row.uid)
            self._dirty.setdefault(key, row)

    def _written(self, uid: str) -> None:
        left = self._unwritten[uid] - 1
        if left:
            self._unwritten[uid] = left
        else:
            del self._unwritten[uid]

    async def _refresh(self) -> None:
        """What other replicas and other clusters wrote."""
        assert self._cursor is not None
        rows, self._cursor = await self._ledger.changes(self._cursor)
        new = [row for row in rows if self.table.put(row) is not None]
        beats = await self._ledger.heartbeats()
        others = {name: until for name, until in beats.items() if name != self.table.cluster}
        if new or others != self._complete_until:
            self._complete_until = others
            self._tell(NAME)

    def _is_time(self, what: str, every: float) -> bool:
        return self._clock.monotonic() - self._done_at.get(what, -1e9) >= every

    def _did(self, what: str) -> None:
        self._done_at[what] = self._clock.monotonic()

    def _window_ms(self) -> int:
        """The largest window of any budget, at least a day."""
        assert self._port is not None
        resources = self._port.world(self._clock.now()).resources.values()
        windows = [each.spec.quota.window_hours for each in resources if each.kind == KIND and each.spec]
        return max(DAY, max(windows, default=0) * HOUR)


def _same(before: Around | None, after: Around) -> bool:
    return before is not None and before.decisive == after.decisive
