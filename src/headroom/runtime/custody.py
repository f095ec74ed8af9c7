"""Looks after the ledger for one cluster: what must be kept of it, what may be forgotten, and whether anybody else claims it.

Only who leads writes here. Nothing is forgotten while a budget cannot be read, while the clock is in doubt or nobody can vouch for it,
or while another operator claims the cluster: what is kept too long costs space, what is forgotten too early is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.core.usage import KIND
from headroom.model import retention, times
from headroom.model.errors import HeadroomError, Refused
from headroom.model.ports import SETTLE_MS, Ledger, RecorderPort
from headroom.model.retention import Retention
from headroom.model.times import HOUR, MINUTE
from headroom.model.usage import DAY, UsageRow
from headroom.model.usage_table import UsageTable
from headroom.model.world import LedgerState, World
from headroom.runtime.clock import SUSPECT_MS, ClockWatch, Doubt, Due
from headroom.runtime.surroundings import Runtime
from headroom.runtime.verdicts import Verdicts

CLAIM_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 60.0
PRUNE_SECONDS: Final = 3600.0
PRUNE_TURN_SECONDS: Final = 2.0
"""For so long at a time: claims, and what others write, come in between."""
BREATH_SECONDS: Final = 0.05
"""Between two parts of a pruning, for those who write."""
RIVAL_CLAIMS: Final = 3
"""So often must another one claim the cluster while we lead: a claim that was under way when we took over comes once."""
RIVAL_SECONDS: Final = 30.0
"""Who has not claimed it for so long is gone."""
ALONE_CLAIMS: Final = 5
"""After so many claims of ours in which nobody else's grew, nobody else is there."""
WRITTEN_LATE_MS: Final = SETTLE_MS + 1000
"""A row that counts at a moment may be written down so much later."""
RECENT: Final = MINUTE // 2 + 2 * SUSPECT_MS
"""A claim of so long ago may be one of somebody who is still there, with two clocks that are off as far as nobody suspects them."""


class Rivals:
    """Notices who goes on claiming a cluster while we lead in it."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, int, float]] = {}
        """For each other holder: its claims, how often they grew before our eyes, and when last."""

    def look(self, others: Mapping[str, int], now: float) -> str:
        """Who it is; empty if nobody."""
        for holder, claims in others.items():
            known, grown, at = self._seen.get(holder, (claims, 0, now))
            self._seen[holder] = (claims, grown + 1, now) if claims > known else (claims, grown, at)
        living = (
            holder
            for holder, (_, grown, at) in sorted(self._seen.items())
            if grown >= RIVAL_CLAIMS and now - at <= RIVAL_SECONDS
        )
        return next(living, "")

    def are_silent(self) -> bool:
        """Whether nobody else's claims have grown before our eyes."""
        return not any(grown for _, grown, _ in self._seen.values())

    def forget(self) -> None:
        """We do not lead: then somebody else may."""
        self._seen.clear()


class Custodian:
    """One cluster's share in a ledger."""

    def __init__(
        self,
        ledger: Ledger,
        around: Runtime,
        may_lead: Callable[[], bool],
        holder: str,
        accept_loss_before: int = 0,
    ) -> None:
        """`holder` names this process in the ledger. A ledger without history is accepted beside usage of before that moment."""
        self._ledger, self._around, self._clock = ledger, around, around.clock
        self._may_lead, self._holder, self._accept_loss_before = may_lead, holder, accept_loss_before
        self._watch = ClockWatch(around.clock)
        self._rivals, self._verdicts = Rivals(), Verdicts(ledger, around.clock)
        self._known: dict[str, Retention] = {}
        self._server_time: int | None = None
        self._claims = 0
        self._due = Due(around.clock)
        self.rival = ""
        """Who else leads under this cluster's id."""
        self.is_lost = False
        """The ledger knows nothing of this cluster, although budgets have usage in their status."""
        self._is_emptied = False
        """It knows the cluster, and has no usage of it from when budgets had some."""

    @property
    def doubt(self) -> Doubt:
        """What speaks against our clock."""
        return self._watch.doubt

    def with_doubts(self, state: LedgerState, cluster: str) -> LedgerState:
        """How well the ledger serves, with what speaks against believing it."""
        known = self._known.get(cluster)
        return structs.replace(
            state,
            lost=self.is_lost,
            known_since=known.known_since if known else 0,
            rival=self.rival,
            clock_offset_ms=self.doubt.offset_ms,
            clock_step_ms=self.doubt.step_ms,
            verdicts=self._verdicts.known,
        )

    def may_vouch(self) -> bool:
        """Whether we may say up to when nothing is missing."""
        return not self.doubt and not self.rival

    def look(self, port: RecorderPort) -> bool:
        """Compare our clock with the API server's; whether that is news."""
        before, self._server_time = self.doubt, port.server_time()
        after = self._watch.look(self._server_time)
        if bool(before) != bool(after):
            log = self._around.log.warning if after else self._around.log.info
            log(
                "the clock is suspect: usage is still counted; pruning and heartbeats stop"
                if after
                else "the clock is correct again",
                offset_seconds=after.offset_ms // 1000,
                step_seconds=after.step_ms // 1000,
            )
        return before != after

    def now(self, port: RecorderPort) -> int:
        """Our time; the earlier one where the API server's is another, since what is counted too long cannot be taken back."""
        now, server = self._clock.now(), port.server_time()
        return now if server is None or abs(now - server) <= SUSPECT_MS else min(now, server)

    def earlier(self, port: RecorderPort) -> int:
        """Our time, but never later than the API server's."""
        now, server = self._clock.now(), port.server_time()
        return now if server is None else min(now, server)

    async def read(self, world: World, table: UsageTable) -> None:
        """What is known of all clusters, and whether there is any usage beside it; `table` has that of the largest window."""
        self._known = await self._ledger.retentions()
        self._is_emptied = world.cluster in self._known and await self._lacks_usage(world, table)

    async def _lacks_usage(self, world: World, table: UsageTable) -> bool:
        """Whether there is no row from when budgets had usage, although none of those may have been forgotten since."""
        kept_since = world.now - retention.kept_for(self._known, world.cluster)
        needed = [each for each in usage_told(world) if each.since >= kept_since]
        if not needed or any(each.is_in(table) for each in needed):
            return False
        # All there is: a window that was longer then may have had only what is older.
        async for rows in self._ledger.read(kept_since):
            if any(each.may_be(row) for row in rows for each in needed):
                return False
        return True

    def must_know(self, world: World) -> None:
        """Raise if the ledger knows nothing of this cluster, although its budgets speak of usage that only a ledger can tell of."""
        told = [each.as_of for each in usage_told(world) if each.as_of > self._accept_loss_before]
        self.is_lost = (self._is_emptied or world.cluster not in self._known) and bool(told)
        if self.is_lost:
            raise Refused(
                f"reading the ledger {getattr(self._ledger, 'place', '')}: it has no history of cluster {world.cluster}, "
                f"although budgets had usage at {times.text(max(told))}. Nothing is enforced and nothing is released; restore "
                "a backup with `headroom ledger restore`, or accept the loss with --accept-history-loss-before "
                f"{times.text(world.now)} (HEADROOM_ACCEPT_HISTORY_LOSS_BEFORE)"
            )

    async def begin(self, world: World) -> None:
        """The ledger begins to know this cluster, unless it does already, or anew if its rows are gone."""
        # A clock that is behind would claim to know what was before.
        now = max(world.now, self._server_time or 0)
        if self._is_emptied:
            await self.lost_before(world, now)
        elif world.cluster not in self._known:
            own, spanning = windows(budgets_in(world))
            fresh = Retention(cluster=world.cluster, known_since=now)
            await self._retain(retention.looked(fresh, own, spanning, world.now))

    async def lost_before(self, world: World, moment: int) -> None:
        """What was before that moment is not in the ledger any more."""
        known = self._known.get(world.cluster)
        if known is not None and known.known_since < moment:
            await self._retain(structs.replace(known, known_since=moment))
        self._is_emptied = False

    async def tend(self, port: RecorderPort) -> bool:
        """Claim the cluster, keep and forget what must be, tell and hear verdicts; whether there is news."""
        world, rival = port.world(self._clock.now()), self.rival
        if not self._may_lead():
            self._rivals.forget()
            self.rival, self._claims = "", 0
            return bool(rival)
        if self._due.is_time("claim", CLAIM_SECONDS):
            await self._claim(world)
        if self._due.is_time("look", LOOK_SECONDS) and self._may_change(port):
            own, spanning = windows(budgets_in(world))
            before, self._known = self._known.get(world.cluster), await self._ledger.retentions()
            known = self._known.get(world.cluster)
            if known is None:
                # The database was emptied while in use. Rows of the window are in memory, and sent again.
                since = max(before.known_since, world.now - own) if before else world.now
                known = Retention(cluster=world.cluster, known_since=since)
            await self._retain(retention.looked(known, own, spanning, world.now))
            self._due.did("look")
        if self._due.is_time("prune", PRUNE_SECONDS) and self._may_change(port) and await self._prune(port, world):
            self._due.did("prune")
        is_news = False
        with suppress(HeadroomError):  # who is not heard is not followed; nothing else depends on it
            is_news = await self._verdicts.exchange(world, may_vouch=self._may_change(port) and not self.is_lost)
        return is_news or self.rival != rival

    async def is_disputed(self, cluster: str) -> bool:
        """Whether somebody else leads under this cluster's id now: its pods need not be in our view.

        A claim of a moment ago may be that of a process which died; one that is renewed is not.
        """
        before, now = await self._others(cluster), self._clock.now()
        if not any(abs(now - at) < RECENT for at in before.values()):
            return False
        await self._clock.sleep(CLAIM_SECONDS + 2)
        return await self._others(cluster) != before

    async def _others(self, cluster: str) -> dict[str, int]:
        return {holder: at for holder, at in (await self._ledger.claimed(cluster)).items() if holder != self._holder}

    def is_alone(self) -> bool:
        """Whether we have led for long enough, and nobody else was heard meanwhile."""
        return self._may_lead() and self._claims >= ALONE_CLAIMS and self._rivals.are_silent()

    async def end(self, cluster: str) -> None:
        """We lead no more."""
        if self._due.was_done("claim"):
            await self._ledger.unclaim(cluster, self._holder)

    def _may_change(self, port: RecorderPort) -> bool:
        """Whether what must be kept is known for sure."""
        self.look(port)  # a clock that was set since the last look would do its harm at once
        if not (port.complete and self._may_lead() and self._server_time is not None) or self.doubt or self.rival:
            return False
        return all(each.spec is not None for each in budgets_in(port.world(self._clock.now())))

    async def _claim(self, world: World) -> None:
        claims = await self._ledger.claim(world.cluster, self._holder, world.now)
        others = {holder: count for holder, count in claims.items() if holder != self._holder}
        before, self.rival = self.rival, self._rivals.look(others, self._clock.monotonic())
        self._due.did("claim")
        self._claims += 1
        if self.rival and not before:
            self._around.log.error(
                "another operator writes under this cluster's id; this happens after a cluster is cloned: nothing is pruned or enforced",
                cluster=world.cluster,
                other=self.rival,
            )
        elif before and not self.rival:
            self._around.log.info("no other operator writes under this cluster's id now", cluster=world.cluster)

    async def _prune(self, port: RecorderPort, world: World) -> bool:
        """Forget a part of what may be forgotten, for a moment; whether nothing of it is left."""
        known = await self._ledger.retentions()
        before = retention.forgettable(known, world.cluster, min(world.now, self.earlier(port)))
        if before is None:
            return True
        mine, began, gone, part = known[world.cluster], self._clock.monotonic(), 0, -1
        if before > mine.known_since:
            # First: whoever dies in the middle has then promised too little, not too much.
            await self._retain(structs.replace(mine, known_since=before))
        while part and self._may_change(port) and self._clock.monotonic() - began < PRUNE_TURN_SECONDS:
            part = await self._ledger.prune(world.cluster, before)
            gone += part
            await self._clock.sleep(BREATH_SECONDS)
        if gone:
            self._around.log.info("removed usage that no window needs", rows=gone, before=times.text(before))
        return part == 0

    async def _retain(self, kept: Retention) -> None:
        await self._ledger.retain(kept)
        self._known = {**self._known, kept.cluster: kept}


def windows(budgets: list[AnyResource]) -> tuple[int, int]:
    """The largest window of all budgets, at least a day, and the largest of those that span clusters."""
    readable = [each.spec for each in budgets if each.spec is not None]
    own = [each.quota.window_hours * HOUR for each in readable]
    spanning = [each.quota.window_hours * HOUR for each in readable if each.home_cluster]
    return max([DAY, *own]), max(spanning, default=0)


def budgets_in(world: World) -> list[AnyResource]:
    """All budgets, those that cannot be read too."""
    return [each for each in world.resources.values() if each.kind == KIND]


class UsageTold(NamedTuple):
    """That a budget has usage in its status."""

    cluster: str
    """Whose; empty if it may be any cluster's."""
    since: int
    """The begin of its window then; 0 if that cannot be read."""
    as_of: int
    """The moment of which the status speaks."""

    def may_be(self, row: UsageRow) -> bool:
        """Whether a row may be part of it; one that was written later is not."""
        return self.cluster in ("", row.cluster) and row.observed <= self.as_of + WRITTEN_LATE_MS

    def is_in(self, table: UsageTable) -> bool:
        """Whether a table has such a row."""
        groups = set(table.column("group")[table.column("observed") <= self.as_of + WRITTEN_LATE_MS].tolist())
        return any(self.cluster in ("", table.groups[each].terms.cluster) for each in groups)


def usage_told(world: World) -> list[UsageTold]:
    """What budgets' statuses say of usage, where they say that there was some."""
    found = []
    for each in budgets_in(world):
        used = (each.status.consumed_gpu_hours, each.status.upper_gpu_hours, each.status.consumed_usd)
        if any(text.strip("0.") for text in used):
            as_of = times.moment(each.status.as_of) or 0
            since = 0 if each.spec is None else as_of - each.spec.quota.window_hours * HOUR
            is_own = each.spec is not None and not each.spec.home_cluster
            found.append(UsageTold(world.cluster if is_own else "", since, as_of))
    return found
