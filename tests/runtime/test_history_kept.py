"""Two clusters on one ledger, whatever happens to their clocks, budgets and versions: no row that a window needs is lost."""

import asyncio
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from headroom.adapters.ledger import schema
from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.adapters.ledger.sqlite import SqliteLedger
from headroom.model.retention import WEEK, Reach, Retention
from headroom.model.usage import DAY, UsageRow
from headroom.model.world import by_ref
from headroom.runtime.recording import Recorder
from headroom.runtime.surroundings import Runtime
from headroom.sim.ledger import MemoryLedger
from tests.adapters.ledger.rows import everything
from tests.builders import NOON, a_resource
from tests.postgres import Postgres
from tests.runtime.test_recording import HOUR, TEAM, Port

AnyLedger = MemoryLedger | SqliteLedger | PostgresLedger

STEP = HOUR
JUMPS = (43 * DAY, -43 * DAY, 4 * HOUR, -4 * HOUR)
WINDOWS = {"daily": 24, "quarterly": 2160}
SPANNING = 600


class HandClock:
    """Moved by the test; what is ahead is set by it too."""

    def __init__(self) -> None:
        self.elapsed = 0
        self.ahead = 0

    def true(self) -> int:
        return NOON + self.elapsed

    def now(self) -> int:
        return self.true() + self.ahead

    def monotonic(self) -> float:
        return self.elapsed / 1000

    async def sleep(self, seconds: float) -> None:
        del seconds
        await asyncio.sleep(0)


class Operator:
    """The operator of one cluster, taken from step to step by hand."""

    def __init__(self, ledger: AnyLedger, cluster: str) -> None:
        self.ledger, self.cluster, self.clock = ledger, cluster, HandClock()
        self.hours = WINDOWS[cluster]
        self.is_readable = True
        self.had: list[tuple[int, int]] = [(NOON, self.hours)]
        """Windows that a budget of it has had, and until when."""
        self.port = Port(self.clock, cluster)  # type: ignore[arg-type]  # a clock like any other
        self.port.server_time = self.clock.true  # type: ignore[method-assign]  # the API server has the right time
        self.recorder: Recorder | None = None

    async def start(self) -> None:
        self.recorder = Recorder(self.ledger, Runtime(clock=self.clock))
        self.recorder.connect(self.port)
        self.show_budgets()
        self.recorder._custodian.look(self.port)
        await self.recorder._catch_up()

    def show_budgets(self) -> None:
        main = a_resource(name="main", quota={"gpuHours": "1", "windowHours": self.hours})
        more = a_resource(name="all", quota={"gpuHours": "1", "windowHours": SPANNING}, homeCluster="daily")
        if not self.is_readable:
            main = structs.replace(main, spec=None)
        self.port.resources = by_ref((main, more))

    async def turn(self) -> None:
        """What a second of the running operator does."""
        assert self.recorder is not None
        self.had.append((self.clock.true(), self.hours))
        self.recorder._custodian.look(self.port)
        await self.recorder.step()
        await self.recorder._read()

    def needs_since(self) -> int:
        """The begin of the largest window that it had within the last week, and of those that span clusters."""
        hours = max(hours for at, hours in self.had if at > self.clock.true() - WEEK)
        return self.clock.true() - max(hours, SPANNING) * HOUR


class Fleet:
    """Both clusters, and what must be in the ledger."""

    def __init__(self, ledger: AnyLedger) -> None:
        self.ledger = ledger
        self.operators = {name: Operator(ledger, name) for name in WINDOWS}
        self.written: list[UsageRow] = []

    async def begin(self) -> None:
        for name in WINDOWS:
            self.written += [ended(name, NOON - days * DAY) for days in range(0, 400, 10)]
        await self.ledger.write(self.written)
        for name, operator in self.operators.items():
            # They have run for long: what is too old goes at the next opportunity.
            own, spanning = Reach(window=WINDOWS[name] * HOUR), Reach(window=SPANNING * HOUR)
            known = Retention(cluster=name, known_since=0, own=own, spanning=spanning, looked_at=NOON)
            await self.ledger.retain(known)
            await operator.start()

    async def do(self, event: str, name: str, amount: int) -> None:
        operator = self.operators[name]
        if event == "jump":
            operator.clock.ahead = amount
        elif event == "restart":
            await operator.start()
        elif event == "unreadable":
            operator.is_readable = not operator.is_readable
        elif event == "mistake":
            operator.hours = 1 if operator.hours > 1 else WINDOWS[name]
        elif event == "rollback":
            await self.roll_back()
        else:
            await self.pass_time(amount)
        operator.show_budgets()
        await self.check()

    async def roll_back(self) -> None:
        """An older version runs for a while, and knows nothing of what must be kept."""
        if isinstance(self.ledger, MemoryLedger):
            self.ledger._retentions = {name: Retention(cluster=name, known_since=0) for name in WINDOWS}
        else:
            await self.ledger.migrate(2)
            await self.ledger.migrate(schema.LATEST)

    async def pass_time(self, hours: int) -> None:
        for _ in range(hours):
            for name, operator in self.operators.items():
                operator.clock.elapsed += STEP
                await operator.turn()
                if operator.clock.elapsed % DAY == 0:
                    fresh = ended(name, operator.clock.true())
                    self.written.append(fresh)
                    await self.ledger.write([fresh])

    async def check(self) -> None:
        found = await everything(self.ledger)
        # What no window of a whole week needed may be gone, though a longer one comes after.
        self.written = [row for row in self.written if (row.ended or 0) > self.operators[row.cluster].needs_since()]
        for row in self.written:
            assert row.key in found, f"lost {row}"


def ended(cluster: str, at: int) -> UsageRow:
    return UsageRow(
        cluster=cluster, uid=f"{cluster}-{at}", start=at - HOUR, created=at - HOUR, observed=at, earliest=at - HOUR,
        seen_until=at, ended=at, evidence=3, amounts=(("nvidia.com/gpu", 10**6),), labels=TEAM,
    )  # fmt: skip


names = st.sampled_from(sorted(WINDOWS))
events = st.one_of(
    st.tuples(st.just("jump"), names, st.sampled_from([0, *JUMPS])),
    st.tuples(st.sampled_from(["restart", "unreadable", "mistake", "rollback"]), names, st.just(0)),
    st.tuples(st.just("time"), names, st.sampled_from([1, 3, 30, 170, 400])),
)


async def played(ledger: AnyLedger, script: list[tuple[str, str, int]]) -> Fleet:
    fleet = Fleet(ledger)
    await fleet.begin()
    for event in script:
        await fleet.do(*event)
    return fleet


@settings(max_examples=60, deadline=None)
@given(st.lists(events, max_size=12))
def test_no_row_that_a_window_needs_is_ever_lost(script: list[tuple[str, str, int]]) -> None:
    asyncio.run(played(MemoryLedger(), script))


def test_a_window_that_was_short_for_a_week_needs_nothing_from_before() -> None:
    script = [("mistake", "quarterly", 0), ("time", "daily", 170), ("mistake", "quarterly", 0), ("time", "daily", 1)]
    asyncio.run(played(MemoryLedger(), script))


EVERYTHING: list[tuple[str, str, int]] = [
    *(
        (what, name, amount)
        for name in WINDOWS
        for jump in (*JUMPS, 0)
        for what, amount in (("jump", jump), ("time", 3))
    ),
    *((what, name, 0) for name in WINDOWS for what in ("mistake", "restart", "unreadable", "rollback")),
    ("time", "daily", 100),
    *(("jump", name, 43 * DAY) for name in WINDOWS),
    *(("restart", name, 0) for name in WINDOWS),
    ("time", "daily", 30),
    *(("jump", name, 0) for name in WINDOWS),
    *(("mistake", name, 0) for name in WINDOWS),
    *(("unreadable", name, 0) for name in WINDOWS),
    ("time", "daily", 200),
]


async def all_of_it(ledger: AnyLedger) -> None:
    fleet = await played(ledger, EVERYTHING)
    oldest = {name: min(key[1] for key in await everything(ledger) if key[0] == name) for name in WINDOWS}
    now = fleet.operators["daily"].clock.true() // DAY
    assert now - oldest["daily"] in range(40, 62), "and what is not needed does go, in the end"
    assert now - oldest["quarterly"] in range(170, 192)


def test_all_of_it_at_once() -> None:
    asyncio.run(all_of_it(MemoryLedger()))


async def test_all_of_it_with_real_databases(postgres: Postgres, tmp_path: Path) -> None:
    for ledger in (PostgresLedger(postgres.new_database()), SqliteLedger(tmp_path / "ledger.db")):
        await all_of_it(ledger)
        await ledger.close()
