"""A ledger that lost its history, all of it or the usage alone, is not believed beside budgets that have usage."""

from typing import Any

import pytest
from msgspec import structs

from headroom.adapters.ledger.postgres import PostgresLedger
from headroom.model import times
from headroom.model.errors import Refused
from headroom.model.retention import Retention
from headroom.model.usage import DAY
from headroom.runtime.recording import Recorder
from headroom.runtime.surroundings import Runtime
from headroom.sim.ledger import MemoryLedger
from tests.builders import NOON, a_resource
from tests.postgres import Postgres
from tests.runtime.test_custody import Watched, a_ledger, ages, old_row
from tests.runtime.test_recording import HOUR, played, running


def used(stage: Watched, as_of: int = NOON - HOUR, **fields: str) -> None:
    status = structs.replace(stage.budget.status, as_of=times.text(as_of), **fields or {"consumed_gpu_hours": "12.5"})
    stage.put(structs.replace(stage.budget, status=status))


def test_an_empty_ledger_beside_usage_is_not_believed() -> None:
    async def script() -> None:
        stage = Watched()
        used(stage)
        stage.port.pods.put(running())
        await stage.start()
        await stage.clock.sleep(60)
        state = stage.recorder.state()
        assert (state.loaded, state.lost, state.trusted) == (False, True, False)
        assert "has no history of cluster here, although budgets had usage at 2026-11-15T11:00:00Z" in state.problem
        assert "headroom ledger restore" in state.problem
        assert "--accept-history-loss-before 2026-11-15T12:0" in state.problem
        assert len(stage.rows) == 1, "what happens is recorded all the same"
        await stage.kill()
        again = Watched(stage.ledger)
        used(again)
        await again.start()
        assert again.recorder.state().lost, "and the next start is not deceived by that"

    played(script)


@pytest.mark.parametrize("accepted", [NOON - HOUR - 1, NOON - HOUR])
def test_a_loss_is_accepted_for_usage_up_to_a_moment(accepted: int) -> None:
    async def script() -> None:
        stage = Watched()
        stage.recorder = Recorder(
            stage.ledger, Runtime(clock=stage.clock), accept_loss_before=accepted, may_lead=lambda: True
        )
        stage.recorder.connect(stage.port)
        used(stage)
        stage.port.pods.put(running())
        await stage.start()
        is_accepted = accepted >= NOON - HOUR
        assert stage.recorder.state().loaded == is_accepted
        if is_accepted:
            assert stage.recorder.state().known_since == NOON
            await stage.kill()
            again = Watched(stage.ledger)
            used(again, NOON)
            await again.start()
            assert again.recorder.state().loaded, "from then on the ledger knows the cluster"

    played(script)


@pytest.mark.parametrize("nothing", ["", "0", "0.000"])
def test_a_first_start_just_works(nothing: str) -> None:
    async def script() -> None:
        stage = Watched()
        used(stage, consumed_gpu_hours=nothing, upper_gpu_hours=nothing)
        await stage.start()
        assert stage.recorder.state().loaded
        assert stage.recorder.state().known_since == NOON

    played(script)


def test_a_clock_that_is_behind_at_the_first_start_claims_no_history() -> None:
    async def script() -> None:
        stage = Watched()
        stage.jumping.ahead = -43 * DAY
        await stage.start()
        assert stage.recorder.state().known_since == NOON

    played(script)


def test_a_restored_backup_is_believed_again() -> None:
    async def script() -> None:
        stage = Watched()
        used(stage)
        await stage.start()
        assert stage.recorder.state().lost
        stage.ledger.put([old_row(1)])
        await stage.ledger.retain(Retention(cluster="here", known_since=5))
        await stage.clock.sleep(30)
        state = stage.recorder.state()
        assert (state.loaded, state.lost, state.problem, state.known_since) == (True, False, "", 5)

    played(script)


def emptied(known: Retention | None = None) -> MemoryLedger:
    """A ledger that knows its cluster, and of which somebody emptied the table of usage alone."""
    ledger = a_ledger()
    ledger.rows.clear()
    ledger._changed.clear()
    ledger._retentions["here"] = known or ledger._retentions["here"]
    return ledger


def test_usage_that_is_gone_from_a_ledger_that_knows_the_cluster_is_not_believed_either() -> None:
    async def script() -> None:
        ledger = emptied()
        for _ in range(2):
            stage = Watched(ledger)
            used(stage)
            stage.port.pods.put(running())
            await stage.start()
            await stage.clock.sleep(60)
            state = stage.recorder.state()
            assert (state.loaded, state.lost, state.trusted) == (False, True, False)
            assert "has no history of cluster here, although budgets had usage at 2026-11-15T11:00:00Z" in state.problem
            assert len(stage.rows) == 1, "what happens is recorded, and the next start is not deceived by that"
            await stage.kill()
        ledger.put([old_row(20)])
        stage = Watched(ledger)
        used(stage)
        await stage.start()
        await stage.clock.sleep(10)
        assert stage.recorder.state().loaded, "a single row of then will do, be it outside the window of now"

    played(script)


def test_such_a_loss_is_accepted_too_and_history_begins_anew() -> None:
    async def script() -> None:
        stage = Watched(emptied())
        around = Runtime(clock=stage.clock)
        stage.recorder = Recorder(stage.ledger, around, accept_loss_before=NOON - HOUR, may_lead=lambda: True)
        stage.recorder.connect(stage.port)
        used(stage)
        await stage.start()
        assert stage.recorder.state().loaded
        assert stage.recorder.state().known_since == NOON

    played(script)


@pytest.mark.parametrize("why", ["forgotten since", "of another cluster", "nothing was used"])
def test_a_ledger_without_usage_may_be_right(why: str) -> None:
    async def script() -> None:
        stage = Watched(emptied())
        if why == "forgotten since":
            used(stage, NOON - 35 * DAY)
        elif why == "of another cluster":
            stage.budget = a_resource(quota={"gpuHours": "1000", "windowHours": 24}, homeCluster="here")
            stage.ledger.put([old_row(20, "there")])
            used(stage)
        await stage.start()
        assert stage.recorder.state().loaded

    played(script)


def test_a_table_that_is_emptied_in_use_gets_back_what_is_in_memory_and_history_begins_there() -> None:
    async def script() -> None:
        stage = Watched(a_ledger(), hours=30 * 24)
        await stage.start()
        await stage.clock.sleep(10)
        stage.ledger.rows.clear()
        stage.ledger._changed.clear()
        await stage.clock.sleep(10)
        assert ages(stage.ledger) == [10, 40]
        assert NOON - 61 * DAY < stage.recorder.state().known_since < NOON - 59 * DAY

    played(script)


async def test_truncated_in_a_real_database_it_is_noticed_at_once_and_at_the_next_start(postgres: Postgres) -> None:
    url = postgres.new_database()
    name = url.rsplit("/", 1)[1]
    ledger: Any = PostgresLedger(url)
    stage = Watched(ledger)
    stage.port.pods.put(running())
    await ledger.write([old_row(10)])
    await stage.recorder._catch_up()
    await stage.recorder._refresh()
    assert postgres.sql("SELECT count(*) FROM usage", name) == "2"
    postgres.sql("TRUNCATE usage", name)
    await stage.recorder._refresh()
    await stage.recorder._write()
    assert postgres.sql("SELECT pod FROM usage", name) == "p", "what is in memory is sent again"
    postgres.sql("TRUNCATE usage", name)
    again = Watched(ledger)
    used(again)
    with pytest.raises(Refused, match="no history of cluster here, although budgets had usage"):
        await again.recorder._catch_up()
    await ledger.close()
