"""The journal: what was decided is known at once, outlives the process, and comes from other replicas too."""

import asyncio

from headroom.api.resources import Status
from headroom.model.actions import EmitEvent, RemoveFinalizer
from headroom.model.decisions import Decision, Ref
from headroom.model.history import Entry
from headroom.runtime import journal
from headroom.runtime.journal import Journal
from headroom.sim.ledger import MemoryLedger
from tests.builders import NOON

BUDGET = Ref("GPUWorkloadBudget", "lab", "team-a")


def a_decision(reason: str) -> Decision:
    event = EmitEvent(object=str(BUDGET), event_type="Normal", reason=reason, message="It is.")
    gone = RemoveFinalizer(object="Pod/lab/p")
    return Decision(resource=BUDGET, status=Status(), reason=reason, message="It is.", actions=(event, gone))


def every(_: Entry) -> bool:
    return True


def reasons(of: Journal, since: int = 0, limit: int = 100) -> list[str]:
    return [entry.reason for entry in of.newest(since, limit, every)]


def test_it_is_known_at_once_and_in_the_ledger_after_writing() -> None:
    ledger = MemoryLedger()
    first = Journal(ledger)
    for number, reason in enumerate(("One", "Two", "Three")):
        first.decided(a_decision(reason), NOON + number, "here")
    assert reasons(first) == ["Three", "Two", "One"]
    assert reasons(first, since=NOON + 1) == ["Three", "Two"]
    assert reasons(first, limit=1) == ["Three"]
    assert "RemoveFinalizer" not in first.newest(0, 1, every)[0].actions, "there may be very many of these"
    later = Journal(ledger)
    asyncio.run(later.read(NOON + 10))
    assert reasons(later) == []
    asyncio.run(first.write())
    asyncio.run(later.read(NOON + 10))
    assert reasons(later) == reasons(first)


def test_nothing_is_there_twice_and_late_entries_find_their_place() -> None:
    ledger = MemoryLedger()
    leader, other = Journal(ledger), Journal(ledger)
    leader.decided(a_decision("One"), NOON, "here")
    other.decided(a_decision("Two"), NOON + 5, "here")
    asyncio.run(leader.write())
    asyncio.run(other.write())
    before = leader.generation
    asyncio.run(other.read(NOON + 10))
    asyncio.run(other.read(NOON + 10))
    assert reasons(other) == ["Two", "One"]
    asyncio.run(leader.read(NOON + 10))
    assert reasons(leader) == ["Two", "One"]
    assert leader.generation > before


def test_only_the_newest_are_remembered() -> None:
    full = Journal(MemoryLedger())
    for number in range(journal.MOST_REMEMBERED * 2):
        full.decided(a_decision(str(number)), NOON + number, "here")
    found = reasons(full, limit=10**6)
    assert journal.MOST_REMEMBERED <= len(found) <= journal.MOST_REMEMBERED * 1.1
    assert found[0] == str(journal.MOST_REMEMBERED * 2 - 1)
