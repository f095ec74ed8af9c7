"""What the recorder does for the ledger's sake: it forgets only what nobody needs, and notices clocks, clones and losses."""

from typing import Any

import pytest
from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.model.retention import Reach, Retention
from headroom.model.usage import DAY, Heartbeat, UsageRow
from headroom.model.world import ref_of
from headroom.sim.clock import SimClock
from headroom.sim.ledger import MemoryLedger
from tests.builders import NOON, a_resource
from tests.runtime.test_recording import HOUR, TEAM, Stage, played, running

MINUTE = 60_000


class JumpingClock(SimClock):
    """A clock that somebody sets; the monotonic one goes on."""

    ahead = 0

    def now(self) -> int:
        return super().now() + self.ahead

    def true(self) -> int:
        return super().now()


class Watched(Stage):
    """A stage whose API server has the right time."""

    def __init__(self, ledger: MemoryLedger | None = None, cluster: str = "here", *, hours: int = 24) -> None:
        clock = JumpingClock(NOON)
        super().__init__(ledger, cluster, clock)
        self.port.server_time = clock.true  # type: ignore[method-assign]  # whatever our own clock says
        self.jumping = clock
        self.budget = a_resource(quota={"gpuHours": "1000", "windowHours": hours})
        self.put(self.budget)

    def put(self, budget: AnyResource) -> None:
        self.port.resources.put(ref_of(budget), budget)


def old_row(days: int, cluster: str = "here") -> UsageRow:
    at = NOON - days * DAY
    return UsageRow(
        cluster=cluster, uid=f"{cluster}-{days}", start=at - HOUR, namespace="lab", pod=f"p{days}", created=at - HOUR,
        observed=at, earliest=at - HOUR, seen_until=at, ended=at, evidence=3, amounts=(("nvidia.com/gpu", 10**6),), labels=TEAM,
    )  # fmt: skip


def a_ledger(cluster: str = "here", **more: Any) -> MemoryLedger:
    """One that has known its cluster for long, may forget, and has rows of 10, 40, 80 and 200 days ago."""
    ledger = MemoryLedger()
    ledger.put([old_row(days, cluster) for days in (10, 40, 80, 200)])
    known: dict[str, Any] = {"cluster": cluster, "known_since": 1, "own": Reach(window=DAY), "looked_at": NOON}
    ledger._retentions[cluster] = Retention(**known | more)
    return ledger


def ages(ledger: MemoryLedger) -> list[int]:
    return sorted((NOON - row.ended) // DAY for row in ledger.rows.values() if row.ended is not None)


def test_what_no_window_has_needed_for_35_days_is_forgotten() -> None:
    async def script() -> None:
        stage = Watched(a_ledger())
        await stage.start()
        await stage.clock.sleep(10)
        assert ages(stage.ledger) == [10]
        assert stage.recorder.state().known_since == NOON + 1000 - 35 * DAY, "and what is known begins later"

    played(script)


def test_a_window_that_a_budget_had_within_the_week_still_counts() -> None:
    async def script() -> None:
        stage = Watched(a_ledger(own=Reach(window=90 * DAY)))
        await stage.start()
        await stage.clock.sleep(10)
        assert ages(stage.ledger) == [10, 40, 80]

    played(script)


def test_another_clusters_rows_are_not_ours_to_forget() -> None:
    async def script() -> None:
        ledger = a_ledger()
        ledger.put([old_row(days, "there") for days in (50, 300)])
        stage = Watched(ledger)
        await stage.start()
        await stage.clock.sleep(10)
        assert ages(ledger) == [10, 50, 300]

    played(script)


def test_a_budget_of_another_cluster_that_spans_all_needs_ours() -> None:
    async def script() -> None:
        ledger = a_ledger()
        ledger._retentions["there"] = Retention(cluster="there", known_since=1, spanning=Reach(window=90 * DAY))
        stage = Watched(ledger)
        await stage.start()
        await stage.clock.sleep(10)
        assert ages(ledger) == [10, 40, 80]

    played(script)


def unreadable(stage: Watched) -> None:
    other = a_resource(name="newer")
    stage.put(structs.replace(other, spec=None, problems=()))


def ahead_at_start(stage: Watched) -> None:
    stage.jumping.ahead = 43 * DAY


def behind_at_start(stage: Watched) -> None:
    stage.jumping.ahead = -4 * HOUR


def untold(stage: Watched) -> None:
    stage.port.server_time = lambda: None  # type: ignore[method-assign]  # a proxy that takes the Date away


def stands_by(stage: Watched) -> None:
    stage.leads = False


@pytest.mark.parametrize("doubt", [unreadable, ahead_at_start, behind_at_start, untold, stands_by])
def test_nothing_is_forgotten_while_anything_is_in_doubt(doubt: Any) -> None:
    async def script() -> None:
        stage = Watched(a_ledger())
        doubt(stage)
        # The last look was by the same clock, so that nothing looks like an outage.
        known = structs.replace(stage.ledger._retentions["here"], looked_at=NOON + stage.jumping.ahead)
        stage.ledger._retentions["here"] = known
        await stage.start()
        await stage.clock.sleep(600)
        assert ages(stage.ledger) == [10, 40, 80, 200]

    played(script)


def test_a_clock_that_jumps_in_flight_is_noticed_before_it_does_harm() -> None:
    async def script() -> None:
        stage = Watched(a_ledger(prune_from=NOON + 2 * HOUR))
        stage.port.pods.put(running())
        await stage.start()
        beats = await stage.ledger.heartbeats()
        await stage.clock.sleep(3 * 3600)
        stage.jumping.ahead = 43 * DAY
        before = (await stage.ledger.heartbeats())["here"]
        assert before > beats["here"]
        await stage.clock.sleep(2 * 3600)
        assert 10 in ages(stage.ledger)
        assert (await stage.ledger.heartbeats())["here"] <= before + 5000, "no heartbeat speaks of the future"
        state = stage.recorder.state()
        assert (state.clock_offset_ms, state.trusted, state.problem) == (43 * DAY, False, "")
        stage.jumping.ahead = 0
        await stage.clock.sleep(2)
        assert stage.recorder.state().clock_offset_ms == 0
        assert stage.recorder.state().trusted
        assert stage.recorder.state().clock_step_ms == -43 * DAY, "it was set, and may be set again"
        await stage.clock.sleep(700)
        assert stage.recorder.state().clock_step_ms == 0
        assert (await stage.ledger.heartbeats())["here"] > before + HOUR

    played(script)


def test_what_happens_while_the_clock_is_ahead_is_told_with_the_earlier_time() -> None:
    async def script() -> None:
        stage = Watched()
        await stage.start()
        pod = running("p")
        stage.see(pod)
        stage.jumping.ahead = 4 * HOUR
        await stage.clock.sleep(60)
        stage.lose(pod, seen_until=stage.clock.now())
        await stage.clock.sleep(2)
        (row,) = stage.rows
        assert row.ended is not None
        assert row.ended <= NOON + 2 * MINUTE

    played(script)


def test_a_heartbeat_of_a_clock_that_was_ahead_is_lowered_and_proves_nothing() -> None:
    async def script() -> None:
        ledger = MemoryLedger()
        stage = Watched(ledger)
        stage.port.pods.put(running())
        await stage.start()
        await stage.kill()
        await ledger.write([], Heartbeat(cluster="here", complete_until=NOON + 4 * HOUR))
        ledger.knows("here")
        later = Watched(ledger)
        later.jumping.start_ms = NOON + 3 * HOUR
        await later.start()
        (row,) = later.rows
        assert row.seen_until <= NOON + MINUTE, "nobody saw it since"
        assert row.gone_by is not None
        assert (await ledger.heartbeats())["here"] <= NOON + 3 * HOUR

    played(script)


# --- two operators under one id ----------------------------------------------------------------------------------------------------


def test_two_that_lead_under_one_id_notice_each_other_and_neither_prunes_until_one_is_gone() -> None:
    async def script() -> None:
        ledger = MemoryLedger()
        one, other = Watched(ledger), Watched(ledger)
        for stage in (one, other):
            await stage.start()
        await one.clock.sleep(30)
        for stage in (one, other):
            assert stage.recorder.state().rival
            assert not stage.recorder.state().trusted
            assert "ledger" in stage.port.told
        ledger.put([old_row(days) for days in (40, 200)])
        ledger._retentions["here"] = structs.replace(ledger._retentions["here"], prune_from=0)
        await one.clock.sleep(2 * 3600)
        assert ages(ledger) == [40, 200]
        await other.kill()
        await one.clock.sleep(60)
        assert one.recorder.state().rival == ""
        assert one.recorder.state().trusted
        await one.clock.sleep(2 * 3600)
        assert ages(ledger) == []

    played(script)


def test_the_pods_of_a_clone_are_not_called_gone() -> None:
    async def script() -> None:
        ledger = MemoryLedger()
        one, clone = Watched(ledger), Watched(ledger)
        one.port.pods.put(running("theirs"))
        await one.start()
        await one.clock.sleep(8)
        clone.port.pods.put(running("ours"))
        await clone.start()
        await one.clock.sleep(120)
        assert [(row.pod, row.gone_by) for row in clone.rows] == [("ours", None), ("theirs", None)]
        await one.kill()
        await one.clock.sleep(200)
        again = Watched(ledger)
        again.jumping.start_ms = clone.clock.now()
        again.port.pods.put(running("ours"))
        await clone.kill()
        await again.start()
        assert not [row for row in again.rows if row.gone_by], (
            "a claim of a moment ago may be somebody's who is still there"
        )
        await again.clock.sleep(60)
        assert [row.pod for row in again.rows if row.gone_by] == ["theirs"]
        assert (await ledger.heartbeats())["here"] > again.clock.now() - 15_000

    played(script)


@pytest.mark.parametrize("ahead", [-50, 50])
def test_the_pods_of_a_clone_with_another_clock_are_not_called_gone(ahead: int) -> None:
    async def script() -> None:
        ledger = MemoryLedger()
        one, clone = Watched(ledger), Watched(ledger)
        one.jumping.ahead = ahead * 1000
        one.port.pods.put(running("theirs"))
        await one.start()
        await one.clock.sleep(8)
        await clone.start()
        await one.clock.sleep(120)
        assert [(row.pod, row.gone_by) for row in clone.rows] == [("theirs", None)]

    played(script)


@pytest.mark.parametrize("graceful", [True, False])
def test_a_new_leader_of_the_same_cluster_is_no_rival(graceful: bool) -> None:
    async def script() -> None:
        ledger = MemoryLedger()
        old, new = Watched(ledger), Watched(ledger)
        new.leads = False
        for stage in (old, new):
            await stage.start()
        for _ in range(4):
            await old.clock.sleep(60)
            if graceful:
                old.leads = False
            else:
                # It is stopped in the middle, and claims once more when it is woken.
                await old.ledger.claim("here", "late", old.clock.now())
                await old.kill()
            new.leads = True
            for _ in range(60):
                await new.clock.sleep(1)
                assert not new.recorder.state().rival
            if not graceful:
                await new.kill()
                return
            old, new = new, old

    played(script)


# --- a server that takes over and lacks rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("tells_who_it_is", [True, False])
def test_rows_that_a_new_server_lacks_are_sent_again(tells_who_it_is: bool) -> None:
    async def script() -> None:
        stage = Watched()
        await stage.start()
        cursor = await stage.ledger.cursor()
        stage.see(running("lost"))
        await stage.clock.sleep(20)
        assert [row.pod for row in stage.rows] == ["lost"]
        stage.ledger.fall_back(cursor)
        if tells_who_it_is:
            stage.ledger.server = "1/00000002"
        # Others write, so that its count is as high as that of the one before.
        stage.ledger.put([old_row(1, "there")])
        stage.ledger.put([old_row(2, "there")])
        assert "lost" not in [row.pod for row in stage.rows]
        await stage.clock.sleep(10)
        assert "lost" in [row.pod for row in stage.rows]
        assert not stage.recorder.state().unwritten

    played(script)


def test_a_database_that_was_emptied_while_in_use_gets_back_what_is_in_memory() -> None:
    """After the next start nobody would know of it: only this process still has the rows."""

    async def script() -> None:
        stage = Watched(a_ledger(), hours=30 * 24)
        ledger = stage.ledger
        await stage.start()
        await stage.clock.sleep(10)
        ledger.fall_back(0)
        ledger._retentions.clear()
        await stage.clock.sleep(90)
        assert ages(ledger)[0] == 10
        known = (await ledger.retentions())["here"]
        assert NOON - 31 * DAY < known.known_since < NOON - 29 * DAY

    played(script)
