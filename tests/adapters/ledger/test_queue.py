"""The queue on disk: while the ledger is away nothing that was acknowledged is lost, and all of it arrives, in order."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headroom.adapters.ledger.encoding import BEFORE_ALL
from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.adapters.ledger.queue import QueuedLedger
from headroom.model.errors import Refused, Unavailable
from headroom.model.history import Entry
from headroom.model.usage import DAY, Heartbeat, Row
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


@pytest.fixture
def outage(tmp_path: Path) -> Outage:
    return Outage(tmp_path / "queue.db")


async def test_a_ledger_that_answers_is_written_to_at_once(outage: Outage) -> None:
    await outage.queued.write([row(1)], Heartbeat(cluster=CLUSTER, complete_until=7))
    assert list(outage.ledger.rows.values()) == [row(1)]
    assert await outage.queued.heartbeats() == {CLUSTER: 7}
    assert (outage.queued.problem, outage.queued.waiting) == ("", 0)
    await outage.queued.close()


async def test_rows_wait_while_it_is_away_and_arrive_oldest_first(outage: Outage) -> None:
    outage.away = True
    for number in (3, 1, 2):
        await outage.queued.write([row(number)], Heartbeat(cluster=CLUSTER, complete_until=number))
    assert outage.ledger.rows == {}
    assert "it is away (3 rows wait in " in outage.queued.problem
    outage.away, outage.now = False, 5
    await outage.queued.write([row(4)])
    assert list(outage.ledger.rows.values()) == [row(3), row(1), row(2), row(4)]
    assert await outage.queued.heartbeats() == {CLUSTER: 3}
    assert (outage.queued.problem, outage.queued.waiting) == ("", 0)
    await outage.queued.close()


async def test_an_absent_ledger_is_not_asked_at_every_write(outage: Outage) -> None:
    outage.away = True
    for number in range(20):
        await outage.queued.write([row(number)])
    assert outage.writes == 1
    outage.now = 5
    await outage.queued.write([row(99)])
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
    with pytest.raises(Unavailable, match=r"it is away; its queue .* is full with 3 rows"):
        await outage.queued.write([row(3), row(4)])
    await outage.queued.write([row(3)])
    assert outage.queued.waiting == 3
    outage.away, outage.now = False, 5
    await outage.queued.write([row(2)])
    assert outage.ledger.rows.keys() == {row(number).key for number in (1, 2, 3)}
    await outage.queued.close()


async def test_what_waits_outlives_a_restart_and_is_read(outage: Outage) -> None:
    await outage.queued.write([row(1)])
    outage.away = True
    await outage.queued.write([row(2)], Heartbeat(cluster=CLUSTER, complete_until=9))
    await outage.queued.close()
    again = outage.start()
    assert {each.uid for each in await flat(again.read(0))} == {row(1).uid, row(2).uid}
    outage.away = False
    await again.write([])
    assert outage.ledger.rows.keys() == {row(1).key, row(2).key}
    assert await outage.ledger.heartbeats() == {CLUSTER: 9}
    await again.close()


async def test_a_heartbeat_never_overtakes_the_rows_before_it(outage: Outage) -> None:
    """It says that all rows up to its moment are there, so it comes after them, even where sending stops in between."""
    outage.away = True
    await outage.queued.write([row(1)], Heartbeat(cluster=CLUSTER, complete_until=9))
    await outage.queued.write([], Heartbeat(cluster=CLUSTER, complete_until=10))
    outage.away, outage.now = False, 5
    seen: list[tuple[int, dict[str, int]]] = []

    def look() -> None:
        seen.append((len(outage.ledger.rows), dict(outage.ledger._heartbeats)))

    outage.ledger.after_write = look
    await outage.queued.write([])
    assert seen == [(1, {}), (1, {CLUSTER: 10})]
    await outage.queued.close()


async def test_history_waits_too(outage: Outage) -> None:
    entry = Entry(cluster=CLUSTER, at=1, resource="GPUWorkloadBudget/a/b", reason="Over")
    outage.away = True
    await outage.queued.write([row(1)])
    await outage.queued.note([entry])
    assert await outage.ledger.history(BEFORE_ALL, 10) == []
    outage.away, outage.now = False, 5
    await outage.queued.write([])
    assert await outage.queued.history(BEFORE_ALL, 10) == [entry]
    await outage.queued.close()


async def test_a_refusal_is_the_writers_to_hear_unless_its_rows_are_safe(outage: Outage) -> None:
    def refuse() -> None:
        raise Refused("writing to the ledger: too new")

    outage.ledger.before_write = refuse
    with pytest.raises(Refused, match="too new"):
        await outage.queued.write([row(1)])
    outage.away = True
    outage.ledger.before_write = outage._before
    await outage.queued.write([row(1)])
    outage.ledger.before_write, outage.now = refuse, 5
    await outage.queued.write([row(2)])
    assert outage.queued.problem.startswith("writing to the ledger: too new (2 rows wait")
    await outage.queued.close()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.sampled_from(["up", "down", "lost reply", "restart"]), st.lists(any_row(), max_size=3)), max_size=8
    )
)
def test_whatever_happens_the_ledger_ends_with_all_that_was_written(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, list[Row]]]
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
            written = united([each for _, known in events[: events.index((event, rows)) + 1] for each in known])
            assert written.keys() <= {each.key for each in await flat(outage.queued.read(BEFORE_ALL))}
        outage.away, outage.now, outage.ledger.after_write = False, outage.now + 5, None
        await outage.queued.write([])
        assert outage.queued.waiting == 0
        assert await everything(outage.ledger) == united([each for _, rows in events for each in rows])
        await outage.queued.close()

    asyncio.run(scenario())


async def test_with_a_real_server_that_is_killed(own_postgres: Postgres, tmp_path: Path) -> None:
    queued = QueuedLedger(PostgresLedger(own_postgres.new_database(), timeout=5), tmp_path / "queue.db", pause=0)
    await queued.write([row(1)])
    own_postgres.kill()
    for number in range(2, 50):
        await queued.write([row(number)], Heartbeat(cluster=CLUSTER, complete_until=number))
    assert "48 rows wait" in queued.problem
    own_postgres.start()
    await queued.write([row(50)])
    assert queued.problem == ""
    assert len(await everything(queued)) == 50
    assert await queued.heartbeats() == {CLUSTER: 49}
    await queued.close()
