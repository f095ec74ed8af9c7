"""The queue on disk: it takes everything first, loses nothing that was acknowledged, and all of it arrives, in order."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headroom.adapters.ledger.encoding import BEFORE_ALL
from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.adapters.ledger.queue import QueuedLedger
from headroom.model.errors import Refused, Unavailable
from headroom.model.history import Entry
from headroom.model.usage import DAY, Heartbeat, UsageRow
from headroom.sim.ledger import MemoryLedger
from tests.adapters.ledger.rows import CLUSTER, TODAY, any_row, everything, flat, row, united
from tests.postgres import Postgres


class Outage:
    """A ledger that is away or not, and a clock that is moved by hand."""

    def __init__(self, path: Path, largest: int = 1000) -> None:
        self.ledger = MemoryLedger()
        self.now = 0.0
        self.away = False
        self.writes = 0
        self.ledger.before_write = self._before
        self._path, self._largest = path, largest
        self.queued = self.start()

    def start(self) -> QueuedLedger:
        """A queue as a new process would open it."""
        return QueuedLedger(self.ledger, self._path, largest=self._largest, pause=5, monotonic=lambda: self.now)

    def _before(self) -> None:
        self.writes += 1
        if self.away:
            raise Unavailable("writing to the ledger memory: it is away")


async def until(holds: Callable[[], bool]) -> None:
    """Wait for what goes on by itself."""
    async with asyncio.timeout(120):
        while not holds():  # noqa: ASYNC110  nobody who does it can be asked to tell
            await asyncio.sleep(0.002)


class Hanging(MemoryLedger):
    """A ledger that takes no answer back: its calls begin and do not end until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = asyncio.Event()
        self.asked = 0

    async def write(self, rows: Sequence[UsageRow], heartbeat: Heartbeat | None = None) -> None:
        self.asked += 1
        await self.goes_on.wait()
        await super().write(rows, heartbeat)


@pytest.fixture
def outage(tmp_path: Path) -> Outage:
    return Outage(tmp_path / "queue.db")


async def test_what_is_written_is_in_the_file_first_and_goes_on_by_itself(outage: Outage) -> None:
    at_arrival: list[int] = []
    outage.ledger.before_write = lambda: at_arrival.append(outage.queued.waiting)
    await outage.queued.write([row(1)], Heartbeat(cluster=CLUSTER, complete_until=7))
    assert (at_arrival, outage.queued.waiting) == ([], 1), "durable before the ledger was asked"
    await until(lambda: outage.queued.waiting == 0 and len(at_arrival) == 2)
    assert list(outage.ledger.rows.values()) == [row(1)]
    assert await outage.queued.heartbeats() == {CLUSTER: 7}
    assert (outage.queued.problem, outage.queued.waiting) == ("", 0)
    await outage.queued.close()


async def test_rows_wait_while_it_is_away_and_arrive_oldest_first(outage: Outage) -> None:
    outage.away = True
    for number in (3, 1, 2):
        await outage.queued.write([row(number)], Heartbeat(cluster=CLUSTER, complete_until=number))
    assert outage.ledger.rows == {}
    await outage.queued.send()
    assert "it is away (3 rows wait in " in outage.queued.problem
    outage.away, outage.now = False, 5
    await outage.queued.write([row(4)])
    await outage.queued.send()
    assert list(outage.ledger.rows.values()) == [row(3), row(1), row(2), row(4)]
    assert await outage.queued.heartbeats() == {CLUSTER: 2}, "the last word"
    assert (outage.queued.problem, outage.queued.waiting) == ("", 0)
    await outage.queued.close()


async def test_an_absent_ledger_is_not_asked_at_every_write(outage: Outage) -> None:
    outage.away = True
    for number in range(20):
        await outage.queued.write([row(number)])
        await outage.queued.send()
    assert outage.writes == 1
    outage.now = 5
    await outage.queued.write([row(99)])
    await outage.queued.send()
    assert outage.writes == 2
    await outage.queued.close()


async def test_writing_the_same_rows_again_does_not_fill_the_queue(tmp_path: Path) -> None:
    outage = Outage(tmp_path / "queue.db", largest=3)
    outage.away = True
    for until in range(10):
        await outage.queued.write([row(number, seen_until=TODAY + DAY + until) for number in (1, 2, 3)])
    assert outage.queued.waiting == 3
    await outage.queued.close()


async def test_a_full_queue_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    outage = Outage(tmp_path / "queue.db", largest=3)
    outage.away = True
    await outage.queued.write([row(1), row(2)])
    await outage.queued.send()
    with pytest.raises(Unavailable, match=r"it is away; its queue .* is full with 3 rows"):
        await outage.queued.write([row(3), row(4)])
    await outage.queued.write([row(3)])
    assert outage.queued.waiting == 3
    outage.away, outage.now = False, 5
    await outage.queued.send()
    assert outage.ledger.rows.keys() == {row(number).key for number in (1, 2, 3)}
    await outage.queued.close()


async def test_what_waits_outlives_a_restart_and_is_read(outage: Outage) -> None:
    await outage.queued.write([row(1)])
    await outage.queued.send()
    outage.away = True
    await outage.queued.write([row(2)], Heartbeat(cluster=CLUSTER, complete_until=9))
    await outage.queued.close()
    again = outage.start()
    assert await again.heartbeats() == {CLUSTER: 9}, "what waits is known too"
    assert {each.uid for each in await flat(again.read(0))} == {row(1).uid, row(2).uid}
    outage.away, outage.now = False, 5
    await again.send()
    assert outage.ledger.rows.keys() == {row(1).key, row(2).key}
    assert await outage.ledger.heartbeats() == {CLUSTER: 9}
    await again.close()


async def test_a_heartbeat_never_overtakes_the_rows_before_it(outage: Outage) -> None:
    """It says that all rows up to its moment are there, so it comes after them, even where sending stops in between."""
    outage.away = True
    await outage.queued.write([row(1)], Heartbeat(cluster=CLUSTER, complete_until=9))
    await outage.queued.write([], Heartbeat(cluster=CLUSTER, complete_until=10))
    await outage.queued.send()
    outage.away, outage.now = False, 5
    seen: list[tuple[int, dict[str, int]]] = []

    def look() -> None:
        seen.append((len(outage.ledger.rows), dict(outage.ledger._heartbeats)))

    outage.ledger.after_write = look
    await outage.queued.send()
    assert seen == [(1, {}), (1, {CLUSTER: 10})]
    await outage.queued.close()


async def test_history_waits_too(outage: Outage) -> None:
    entry = Entry(cluster=CLUSTER, at=1, resource="GPUWorkloadBudget/a/b", reason="Over")
    outage.away = True
    await outage.queued.write([row(1)])
    await outage.queued.note([entry])
    await outage.queued.send()
    assert await outage.ledger.history(BEFORE_ALL, 10) == []
    outage.away, outage.now = False, 5
    await outage.queued.send()
    assert await outage.queued.history(BEFORE_ALL, 10) == [entry]
    await outage.queued.close()


async def test_a_refusal_is_told_and_its_rows_are_safe(outage: Outage) -> None:
    def refuse() -> None:
        raise Refused("writing to the ledger: too new")

    outage.ledger.before_write = refuse
    await outage.queued.write([row(1), row(2)])
    await outage.queued.send()
    assert outage.queued.problem.startswith("writing to the ledger: too new (2 rows wait")
    await outage.queued.close()


async def test_a_ledger_that_hangs_keeps_nobody_waiting_and_counts_as_down(tmp_path: Path) -> None:
    now, hanging = [0.0], Hanging()
    queued = QueuedLedger(hanging, tmp_path / "queue.db", monotonic=lambda: now[0])
    async with asyncio.timeout(120):
        await queued.write([row(1)], Heartbeat(cluster=CLUSTER, complete_until=1))
        await until(lambda: hanging.asked == 1)
        assert queued.problem == ""
        now[0] = 3.1
        await queued.write([row(2)])
        await queued.note([Entry(cluster=CLUSTER, at=1, resource="x", reason="Over")])
        assert "it has not answered yet (3 rows wait in " in queued.problem
        assert queued.lag_seconds == 3.1
        assert [each.uid for each in await flat(queued.read(0))] == [row(1).uid, row(2).uid]
        hanging.goes_on.set()
        await until(lambda: queued.problem == "" and queued.waiting == 0)
    assert hanging.rows.keys() == {row(1).key, row(2).key}
    await queued.close()


async def test_a_row_that_says_more_while_it_is_sent_is_sent_again(tmp_path: Path) -> None:
    hanging = Hanging()
    queued = QueuedLedger(hanging, tmp_path / "queue.db")
    await queued.write([row(1)])
    await until(lambda: hanging.asked == 1)
    await queued.write([row(1, ended=TODAY + 9, evidence=3)])
    hanging.goes_on.set()
    await until(lambda: queued.waiting == 0)
    assert [each.ended for each in hanging.rows.values()] == [TODAY + 9]
    await queued.close()


async def test_a_full_disk_of_the_queue_does_not_stop_a_ledger_that_answers(tmp_path: Path) -> None:
    ledger = MemoryLedger()
    queued = QueuedLedger(ledger, tmp_path / "queue.db", largest=0)
    await queued.write([row(1)], Heartbeat(cluster=CLUSTER, complete_until=1))
    assert ledger.rows.keys() == {row(1).key}
    assert await ledger.heartbeats() == {CLUSTER: 1}
    await queued.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["up", "down", "lost reply", "restart"]), st.lists(any_row(), max_size=3)), max_size=8
    )
)
def test_whatever_happens_the_ledger_ends_with_all_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, list[UsageRow]]]
) -> None:
    async def scenario() -> None:
        outage = Outage(tmp_path_factory.mktemp("queue") / "queue.db")

        def lose_the_reply() -> None:
            raise Unavailable("writing to the ledger memory: no reply")

        for event, rows in events:
            outage.away = event == "down"
            outage.ledger.after_write = lose_the_reply if event == "lost reply" else None
            outage.now += 5
            if event == "restart":
                await outage.queued.close()
                outage.queued = outage.start()
            await outage.queued.write(rows)
            await outage.queued.send()
            written = united([each for _, known in events[: events.index((event, rows)) + 1] for each in known])
            assert written.keys() <= {each.key for each in await flat(outage.queued.read(BEFORE_ALL))}
        outage.away, outage.now, outage.ledger.after_write = False, outage.now + 5, None
        await outage.queued.send()
        assert outage.queued.waiting == 0
        assert await everything(outage.ledger) == united([each for _, rows in events for each in rows])
        await outage.queued.close()

    asyncio.run(scenario())


async def test_with_a_real_server_that_is_killed(own_postgres: Postgres, tmp_path: Path) -> None:
    queued = QueuedLedger(PostgresLedger(own_postgres.new_database(), timeout=5), tmp_path / "queue.db", pause=0)
    await queued.write([row(1)])
    await until(lambda: queued.waiting == 0)
    own_postgres.kill()
    for number in range(2, 50):
        await queued.write([row(number)], Heartbeat(cluster=CLUSTER, complete_until=number))
    await until(lambda: "48 rows wait" in queued.problem)
    own_postgres.start()
    await queued.write([row(50)])
    await until(lambda: queued.problem == "" and queued.waiting == 0)
    assert len(await everything(queued)) == 50
    assert await queued.heartbeats() == {CLUSTER: 49}
    await queued.close()


async def test_with_a_real_server_that_is_stopped_a_write_takes_no_longer(
    own_postgres: Postgres, tmp_path: Path
) -> None:
    queued = QueuedLedger(PostgresLedger(own_postgres.new_database(), timeout=300), tmp_path / "queue.db", pause=0)
    await queued.write([row(1)])
    await until(lambda: queued.waiting == 0)
    with own_postgres.stopped():
        async with asyncio.timeout(100):  # far less than the 300 s that a call may take
            for number in range(2, 50):
                await queued.write([row(number)])
            await until(lambda: "it has not answered yet (48 rows wait" in queued.problem)
            with pytest.raises(Unavailable, match="did not answer within 3s"):
                await queued.cursor()
    await until(lambda: queued.problem == "" and queued.waiting == 0)
    assert len(await everything(queued)) == 49
    await queued.close()
