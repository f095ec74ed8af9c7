"""What became of machines, in all ledgers: written twice it says the same, and every cluster reads what all have seen."""

from __future__ import annotations

from typing import Any

from headroom.model import times
from headroom.model.cloud_facts import Experience
from headroom.model.machine_records import KEPT, WEEK, MachineRecord
from tests.adapters.ledger.rows import CLUSTER, TODAY, Kept

OTHER = "another"
HOUR = times.HOUR


def a_record(machine: str = "a", cluster: str = CLUSTER, **more: Any) -> MachineRecord:
    given: dict[str, Any] = {"instance_type": "g5.xlarge", "zone": "use1-az6", "capacity_type": "spot"}
    given |= {"began": TODAY - 2 * HOUR, "seen_until": TODAY - HOUR}
    return MachineRecord(cluster=cluster, machine=machine, **given | more)


async def read(ledger: Kept, now: int = TODAY) -> list[Experience]:
    return await ledger.experience(now - WEEK, now)


async def test_there_is_none_at_first(ledger: Kept) -> None:
    await ledger.record_machines([])
    assert await read(ledger) == []


async def test_clusters_share_what_they_saw(ledger: Kept) -> None:
    await ledger.record_machines([a_record(), a_record("b", outcome="Failed", seen_until=TODAY - 2 * HOUR)])
    await ledger.record_machines([a_record("a", OTHER, outcome="Interrupted", seen_until=TODAY)])
    await ledger.record_machines([a_record("a", OTHER, zone="use1-az1", capacity_type="on-demand")])
    assert await read(ledger) == [
        Experience(offer="g5.xlarge/use1-az1/on-demand", launches=1, machine_ms=HOUR),
        Experience(offer="g5.xlarge/use1-az6/spot", launches=3, failures=1, interruptions=1, machine_ms=3 * HOUR),
    ]


async def test_what_is_told_twice_late_or_by_two_is_told_once(ledger: Kept) -> None:
    one = a_record()
    later = a_record(seen_until=TODAY, outcome="Interrupted")
    for _ in range(2):
        for each in (later, one):
            await ledger.record_machines([each])
    assert await read(ledger) == [
        Experience(offer="g5.xlarge/use1-az6/spot", launches=1, interruptions=1, machine_ms=2 * HOUR)
    ]


async def test_a_week_counts_and_what_is_old_is_forgotten(ledger: Kept) -> None:
    long = a_record(began=TODAY - 20 * 24 * HOUR, seen_until=TODAY)
    await ledger.record_machines([long])
    assert await read(ledger) == [Experience(offer="g5.xlarge/use1-az6/spot", machine_ms=WEEK)]
    assert await read(ledger, TODAY + WEEK + 1) == []
    mine, theirs = a_record("b", seen_until=TODAY + KEPT + 1, began=TODAY + KEPT), a_record("c", OTHER)
    await ledger.record_machines([theirs])
    await ledger.record_machines([mine])
    every = await ledger.experience(0, TODAY + 2 * KEPT)
    assert [(each.launches, each.machine_ms) for each in every] == [(2, HOUR + 1)], "the old one is gone, theirs is not"


async def test_a_clock_that_is_ahead_brings_no_time_that_has_not_passed(ledger: Kept) -> None:
    await ledger.record_machines([a_record(began=TODAY - HOUR, seen_until=TODAY + 10 * HOUR)])
    await ledger.record_machines([a_record("b", began=TODAY + HOUR, seen_until=TODAY + 2 * HOUR)])
    assert await read(ledger) == [Experience(offer="g5.xlarge/use1-az6/spot", launches=1, machine_ms=HOUR)]


async def test_names_that_are_odd_harm_nothing(ledger: Kept) -> None:
    await ledger.record_machines([a_record("x\x00'; DROP TABLE machines", instance_type="ü'\"", zone="z\n")])
    assert [each.launches for each in await read(ledger)] == [1]
