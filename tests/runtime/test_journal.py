"""The journal: what was decided is known at once, outlives the process, and comes from other replicas too."""

import asyncio

from headroom.api.budget_hold import BudgetHoldSpec
from headroom.api.resources import Status
from headroom.model.actions import (
    Action,
    ApplyBudgetHold,
    EmitEvent,
    EvictPod,
    ReleasePod,
    RemoveFinalizer,
    SuspendOwner,
)
from headroom.model.decisions import Decision, Ref
from headroom.model.usage import DAY
from headroom.runtime import journal
from headroom.runtime.journal import Journal, JournalEvent, Noted
from headroom.sim.ledger import MemoryLedger
from tests.builders import NOON

BUDGET = Ref("GPUWorkloadBudget", "lab", "team-a")


def a_decision(reason: str) -> Decision:
    event = EmitEvent(object=str(BUDGET), event_type="Normal", reason=reason, message="It is.")
    gone = RemoveFinalizer(object="Pod/lab/p")
    return Decision(resource=BUDGET, status=Status(), reason=reason, message="It is.", actions=(event, gone))


def every(_: Noted) -> bool:
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
    assert first.newest(0, 1, every)[0].count == 0, "events are the message again, and finalizers are very many"
    later = Journal(ledger)
    asyncio.run(later.read(NOON + 10, "here"))
    assert reasons(later) == []
    asyncio.run(first.write())
    asyncio.run(later.read(NOON + 10, "here"))
    assert reasons(later) == reasons(first)


def test_nothing_is_there_twice_and_late_entries_find_their_place() -> None:
    ledger = MemoryLedger()
    leader, other = Journal(ledger), Journal(ledger)
    leader.decided(a_decision("One"), NOON, "here")
    other.decided(a_decision("Two"), NOON + 5, "here")
    asyncio.run(leader.write())
    asyncio.run(other.write())
    asyncio.run(other.read(NOON + 10, "here"))
    asyncio.run(other.read(NOON + 10, "here"))
    assert reasons(other) == ["Two", "One"]
    asyncio.run(leader.read(NOON + 10, "here"))
    assert reasons(leader) == ["Two", "One"]


def test_only_the_newest_are_remembered() -> None:
    full = Journal(MemoryLedger())
    for number in range(journal.MOST_REMEMBERED * 2):
        full.decided(a_decision(str(number)), NOON + number, "here")
    found = reasons(full, limit=10**6)
    assert journal.MOST_REMEMBERED <= len(found) <= journal.MOST_REMEMBERED * 1.1
    assert found[0] == str(journal.MOST_REMEMBERED * 2 - 1)


def test_what_stands_from_before_is_read_however_early_something_is_decided() -> None:
    ledger = MemoryLedger()
    before = Journal(ledger)
    for number in range(100):
        before.decided(a_decision(f"Old{number}"), NOON - DAY + number, "here")
    asyncio.run(before.write())
    after = Journal(ledger)
    after.decided(a_decision("New"), NOON, "here")
    asyncio.run(after.read(NOON + 1000, "here"))
    assert len(reasons(after, limit=200)) == 101


def test_another_cluster_is_none_of_our_business() -> None:
    ledger = MemoryLedger()
    there = Journal(ledger)
    there.decided(a_decision("Elsewhere"), NOON, "there")
    asyncio.run(there.write())
    here = Journal(ledger)
    asyncio.run(here.read(NOON + 10, "here"))
    assert reasons(here) == []


def test_actions_are_told_in_words_and_only_so_many() -> None:
    evictions = tuple(
        EvictPod(pod=f"lab/p{number}", uid="u", resource_version="1", grace_seconds=1) for number in range(50)
    )
    decision = Decision(resource=BUDGET, status=Status(), reason="Go", message="It goes.", actions=evictions)
    full = Journal(MemoryLedger())
    full.decided(decision, NOON, "here")
    [found] = full.newest(0, 1, every)
    assert (found.count, len(found.actions), found.actions[0]) == (50, journal.MOST_ACTIONS, "EvictPod lab/p0")
    assert found.ref == BUDGET


def told(*actions: Action, message: str = "12 of 10 used.") -> tuple[str, str]:
    """Reason and message under which a decision with these actions is remembered."""
    decision = Decision(resource=BUDGET, status=Status(), reason="WithinBudget", message=message, actions=actions)
    kept = Journal(MemoryLedger())
    kept.decided(decision, NOON, "here")
    [found] = kept.newest(0, 1, every)
    return found.reason, found.message


def test_what_was_done_comes_before_how_things_stand() -> None:
    released = [ReleasePod(pod=f"lab/p{number}", uid="u") for number in range(5)]
    assert told() == ("WithinBudget", "12 of 10 used.")
    assert told(*released) == ("Releasing", "Releases lab/p0, lab/p1, lab/p2 and 2 more. 12 of 10 used.")
    assert told(SuspendOwner(kind="Job", object="lab/j")) == ("Suspending", "Suspends Job/lab/j. 12 of 10 used.")
    assert told(ApplyBudgetHold(budget="lab/team-a", spec=BudgetHoldSpec(budget="lab/team-a"))) == (
        "HoldBegins",
        "New pods are queued from now on. 12 of 10 used.",
    )


def test_no_sentence_stands_twice_in_an_entry() -> None:
    over = "Over quota: 240.1 of 240 GPU-hours in the last 24h. Back under quota at 10:45."
    news = [
        EmitEvent(object=str(BUDGET), event_type="Warning", reason=reason, message=f"{says}{over}")
        for reason, says in (("QuotaExceeded", ""), ("StepReached", "100% of the quota is used: step Hold is active. "))
    ]
    assert told(*news)[1] == f"{over} 100% of the quota is used: step Hold is active."
    begins = ApplyBudgetHold(budget="lab/team-a", spec=BudgetHoldSpec(budget="lab/team-a"))
    assert told(begins, message=f"{over} New pods will be queued.")[1] == f"New pods are queued from now on. {over}"


def test_an_event_is_the_news_itself() -> None:
    step = EmitEvent(
        object=str(BUDGET), event_type="Warning", reason="StepReached", message="80% of the quota are used."
    )
    of_a_pod = EmitEvent(object="Pod/lab/p", event_type="Normal", reason="Released", message="It starts.")
    assert told(step) == ("StepReached", "80% of the quota are used.")
    assert told(of_a_pod) == ("WithinBudget", "12 of 10 used.")
    evict = EvictPod(pod="lab/p", uid="u", resource_version="1", grace_seconds=1)
    assert told(step, evict) == ("Evicting", "Evicts lab/p. 80% of the quota are used.")


def test_events_are_kept_one_by_one_and_only_a_few_are_spelt_out() -> None:
    def turned(number: int) -> EmitEvent:
        name = f"w{number}"
        return EmitEvent(
            object=str(BUDGET), event_type="Normal", reason="MachineOn", message=f"{name} is on.", machine=name
        )

    decision = Decision(
        resource=BUDGET, status=Status(), reason="Steady", message="All is well.", actions=tuple(map(turned, range(8)))
    )
    kept = Journal(MemoryLedger())
    kept.decided(decision, NOON, "here")
    [found] = kept.newest(0, 1, every)
    assert found.news == tuple(JournalEvent("MachineOn", f"w{number} is on.", f"w{number}") for number in range(8))
    assert found.message == "w0 is on. w1 is on. w2 is on. w3 is on. w4 is on. And 3 more."
