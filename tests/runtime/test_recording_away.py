"""The recorder while its ledger is away, cannot be read, or loses replies."""

import asyncio
from collections.abc import Sequence

from headroom.model.errors import Unavailable
from headroom.model.usage import Heartbeat, UsageRow
from headroom.sim.ledger import MemoryLedger
from tests.builders import NOON
from tests.runtime.test_recording import HOUR, TEAM, Stage, finished, played, running


def test_a_ledger_that_is_away_is_said_and_gets_everything_once_it_is_back() -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()

        def away() -> None:
            raise Unavailable("writing the ledger: nobody answers")

        stage.ledger.before_write = away
        stage.see(running())
        await stage.clock.sleep(3)
        assert "nobody answers" in stage.recorder.state().problem
        assert stage.recorder.state().lag_ms >= 2000
        stage.see(finished(at=1000))
        stage.ledger.before_write = None
        await stage.clock.sleep(20)
        assert stage.recorder.state().problem == ""
        assert not stage.recorder.state().unwritten
        assert [row.ended for row in stage.rows] == [NOON + 1000]

    played(script)


def test_a_reply_that_is_lost_changes_nothing() -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()
        left = [2]

        def lost() -> None:
            left[0] -= 1
            if left[0] >= 0:
                raise Unavailable("writing the ledger: the answer did not come")

        stage.ledger.after_write = lost
        stage.see(running())
        stage.see(finished(at=1000))
        await stage.clock.sleep(20)
        assert not stage.recorder.state().unwritten
        assert len(stage.rows) == 1

    played(script)


def test_a_ledger_that_cannot_be_read_is_tried_again_and_nothing_is_counted_before() -> None:
    async def script() -> None:
        stage = Stage()
        stage.port.pods.put(running())
        failing = [3]
        real = stage.ledger.cursor

        async def cursor() -> int:
            failing[0] -= 1
            if failing[0] >= 0:
                raise Unavailable("reading the ledger: nobody answers")
            return await real()

        stage.ledger.cursor = cursor  # type: ignore[method-assign]  # this ledger is away for a while
        stage.task = asyncio.create_task(stage.recorder.run())
        await stage.clock.sleep(2)
        assert not stage.recorder.state().loaded
        await stage.clock.sleep(30)
        assert stage.recorder.state().loaded
        assert len(stage.rows) == 1

    played(script)


def test_while_the_ledger_cannot_be_read_what_happens_is_written_to_its_queue_all_the_same() -> None:
    async def script() -> None:
        stage = Stage()
        stage.port.pods.put(running("before"))
        away = [True]
        real = stage.ledger.cursor

        async def cursor() -> int:
            if away[0]:
                raise Unavailable("reading the ledger: nobody answers")
            return await real()

        stage.ledger.cursor = cursor  # type: ignore[method-assign]  # it can be written to, as a queue can, and not read
        stage.task = asyncio.create_task(stage.recorder.run())
        await stage.clock.sleep(2)
        stage.see(running("short", start=0))
        stage.lose(finished("short", at=1500, start=0))
        await stage.clock.sleep(20)
        assert not stage.recorder.state().loaded
        assert sorted((row.pod, row.ended) for row in stage.rows) == [("before", None), ("short", NOON + 1500)]
        assert await stage.ledger.heartbeats() == {}, "nobody says that all is known"
        away[0] = False
        await stage.clock.sleep(30)
        assert stage.recorder.state().loaded
        assert sorted((row.pod, row.ended) for row in stage.rows) == [("before", None), ("short", NOON + 1500)]

    played(script)


def test_what_the_ledger_says_of_before_counts_although_it_was_read_late() -> None:
    async def script() -> None:
        stage = Stage()
        pod = running("old", labels=(("team", "b"),), resource_version="9")
        earlier = UsageRow(
            cluster="here",
            uid=pod.uid,
            start=NOON - HOUR,
            earliest=NOON - HOUR,
            seen_until=NOON - HOUR,
            observed=NOON - HOUR + 1,
            version=3,
            namespace="team-a",
            pod="old",
            amounts=(("nvidia.com/gpu", 10**6),),
            labels=TEAM,
        )
        await stage.ledger.write([earlier], Heartbeat(cluster="here", complete_until=NOON - HOUR // 2))
        real, away = stage.ledger.cursor, [True]

        async def cursor() -> int:
            if away[0]:
                raise Unavailable("reading the ledger: nobody answers")
            return await real()

        stage.ledger.cursor = cursor  # type: ignore[method-assign]  # away for a while
        stage.port.pods.put(pod)
        stage.task = asyncio.create_task(stage.recorder.run())
        await stage.clock.sleep(10)
        away[0] = False
        await stage.clock.sleep(30)
        first, second = stage.rows
        assert (first.labels, first.seen_until) == (TEAM, NOON - HOUR // 2)
        assert (second.labels, second.earliest) == (pod.labels, NOON - HOUR // 2)

    played(script)


def test_a_farewell_does_not_overtake_a_write_that_fails() -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()
        await stage.clock.sleep(6)
        real, calls = stage.ledger.write, [0]

        async def write(rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> None:
            calls[0] += 1
            if calls[0] == 1:
                await stage.clock.sleep(3)
                raise Unavailable("writing the ledger: nobody answers")
            await real(rows, heartbeat)

        stage.ledger.write = write  # type: ignore[method-assign]  # the first write takes long, and fails
        stage.see(finished(at=6000))
        await stage.clock.sleep(1.5)
        await stage.recorder.stop()
        assert [row.ended for row in stage.rows] == [NOON + 6000]
        assert not stage.recorder.state().unwritten
        await stage.kill()

    played(script)


def test_while_reading_fails_what_happens_is_still_written_every_second() -> None:
    async def script() -> None:
        stage = Stage()
        await stage.start()

        async def changes(after: int) -> tuple[list[UsageRow], int]:
            raise Unavailable(f"reading the ledger after {after}: nobody answers")

        stage.ledger.changes = changes  # type: ignore[method-assign]  # it takes writes, and cannot be read
        await stage.clock.sleep(60)
        assert "nobody answers" in stage.recorder.state().problem
        stage.see(finished(at=60_000))
        await stage.clock.sleep(1.5)
        assert not stage.recorder.state().unwritten
        assert "nobody answers" in stage.recorder.state().problem

    played(script)


class Queued(MemoryLedger):
    """A ledger that takes everything, and says that something still waits."""

    problem = "The ledger is away; 3 rows wait."


def test_what_a_queue_says_of_itself_is_forgotten_once_it_is_empty() -> None:
    async def script() -> None:
        ledger = Queued()
        stage = Stage(ledger)
        await stage.start()
        assert stage.recorder.state().loaded
        assert "3 rows wait" in stage.recorder.state().problem
        ledger.problem = ""
        await stage.clock.sleep(2)
        assert stage.recorder.state().problem == ""

    played(script)
