"""Ending: who goes first, how the busy are drained, what is replaced, and what happens when the pool itself goes."""

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.core import CAPACITY
from headroom.model.actions import CordonNode, DrainNode, EmitEvent, RemoveFinalizer, TerminateInstance, UncordonNode
from headroom.model.changes import Changes
from tests.builders import NOON, a_pod
from tests.core.spot_stage import (
    HOUR,
    MINUTE,
    SECOND,
    a_machine,
    a_slot,
    a_spotpool,
    a_view,
    after,
    condition,
    decide,
    effects,
    ended,
    its_node,
    launches,
    outcome,
    states,
    status_of,
    with_slots,
)

CORDONED: dict[str, Any] = {"unschedulable": True, "annotations": ((marks.CORDONED_BY, "Spotpool/team-a/one"),)}


def busy(number: int) -> Any:
    return a_pod(f"pod-{number}", node=f"node-{number}", phase="Running", started=NOON - HOUR)


def three(**spec: Any) -> AnyResource:
    return with_slots(
        a_spotpool(**{"minimum": 0, "maximum": 2} | spec),
        *(a_slot(number, node=f"node-{number}") for number in range(3)),
    )


def test_between_minimum_and_maximum_nothing_is_launched_or_ended() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=4), a_slot(0), a_slot(1))
    assert effects(decide(pool, machines=[a_machine(0), a_machine(1)], listed=NOON)) == []


@pytest.mark.parametrize(("desired", "kept"), [(0, 1), (1, 1), (2, 2), (3, 3), (9, 3)])
def test_a_number_is_kept_within_the_limits(desired: int, kept: int) -> None:
    pool = a_spotpool(minimum=1, maximum=3, desired=desired)
    assert len(status_of(decide(pool)).slots) == kept
    many = [a_machine(number) for number in range(5)]
    assert states(decide(pool, machines=many)).count("Running") == kept


def test_intents_go_first_then_pending_then_never_joined_then_idle_then_the_youngest() -> None:
    slots = (
        a_slot(0, node="node-0", at=NOON - 9 * HOUR),
        a_slot(1, node="node-1", at=NOON - 5 * HOUR),
        a_slot(2, node="node-2", at=NOON - 7 * HOUR),
        a_slot(3, joined_at="", at=NOON - 5 * MINUTE),
        a_slot(4, joined_at="", at=NOON - 6 * MINUTE),
        a_slot(5, "Launching", at=NOON - MINUTE),
    )
    machines = [*(a_machine(number) for number in range(4)), a_machine(4, "PENDING")]
    nodes = [its_node(number) for number in range(3)]
    gone = []
    for maximum in range(5, -1, -1):
        pool = with_slots(a_spotpool(minimum=0, maximum=maximum), *slots)
        decision = decide(pool, machines=machines, nodes=nodes, pods=[busy(0), busy(1)], listed=NOON)
        left = {each.slot for each in status_of(decision).slots if each.state in ("Launching", "Running")}
        gone.append({each.slot for each in slots} - left)
    order = [min(after_ - before) for before, after_ in zip([set[int](), *gone], gone, strict=False)]
    assert order == [5, 4, 3, 2, 1, 0]


def test_a_busy_machine_is_cordoned_drained_and_ended_at_the_deadline() -> None:
    pool, machines = three(), [a_machine(number) for number in range(3)]
    nodes = [its_node(number) for number in range(3)]
    pods = [busy(number) for number in range(3)]
    first = decide(pool, machines=machines, nodes=nodes, pods=pods, listed=NOON)
    assert states(first) == ["Running", "Running", "Draining"]
    assert effects(first) == [CordonNode(node="node-2")]
    nodes[2] = its_node(2, **CORDONED)
    pool = after(pool, first)
    soon = decide(pool, machines=machines, nodes=nodes, pods=pods, now=NOON + 5 * SECOND)
    assert effects(soon) == []
    later = decide(pool, machines=machines, nodes=nodes, pods=pods, now=NOON + 10 * SECOND)
    assert effects(later) == [DrainNode(node="node-2")]
    empty = decide(pool, machines=machines, nodes=nodes, pods=pods[:2], now=NOON + 10 * SECOND)
    assert effects(empty) == [TerminateInstance(pool="team-a/one", instance="ins-2")]
    late = decide(pool, machines=machines, nodes=nodes, pods=pods, now=NOON + 300 * SECOND)
    assert effects(late) == [TerminateInstance(pool="team-a/one", instance="ins-2")]
    again = decide(after(pool, late), machines=machines, nodes=nodes, pods=pods, now=NOON + 310 * SECOND)
    assert ended(again) == ["ins-2"]
    machines[2] = a_machine(2, "TERMINATING")
    over = decide(after(pool, late), machines=machines, nodes=nodes, pods=pods, now=NOON + 320 * SECOND)
    assert [each.slot for each in status_of(over).slots] == [0, 1]
    assert effects(over) == []


def test_what_is_being_ended_counts_against_the_ceiling_but_not_for_the_minimum() -> None:
    slots = (a_slot(0), a_slot(1, "Ending"))
    machines = [a_machine(0), a_machine(1)]
    no_surge = decide(with_slots(a_spotpool(minimum=2, maximum=2, maxSurge=0), *slots), machines=machines, listed=NOON)
    assert launches(no_surge) == []
    assert condition(no_surge, "MachinesMissing") == ("True", "SurgeLimit")
    surge = decide(with_slots(a_spotpool(minimum=2, maximum=2, maxSurge=1), *slots), machines=machines, listed=NOON)
    assert len(launches(surge)) == 1


def test_a_machine_that_is_reclaimed_is_replaced_first_then_drained_until_its_moment() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, node="node-0"))
    taken = a_machine(0, reclaim_at=NOON + 2 * MINUTE)
    decision = decide(pool, machines=[taken], nodes=[its_node(0)], pods=[busy(0)], listed=NOON)
    assert states(decision) == ["Draining", "Launching"]
    assert [type(each).__name__ for each in effects(decision)] == ["LaunchInstance", "CordonNode"]
    pool = after(pool, decision)
    nodes = [its_node(0, **CORDONED)]
    waits = decide(pool, machines=[taken], nodes=nodes, pods=[busy(0)], now=NOON + MINUTE)
    assert DrainNode(node="node-0") in effects(waits)
    assert ended(waits) == []
    over = decide(pool, machines=[taken], nodes=nodes, pods=[busy(0)], now=NOON + 2 * MINUTE)
    assert ended(over) == ["ins-0"]


def test_a_node_may_tell_what_the_cloud_does_not() -> None:
    """Tencent Cloud tells only inside the machine: whoever looks there labels the node."""
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, node="node-0"))
    told = its_node(0, labels=((marks.RECLAIM_AT, str((NOON + 2 * MINUTE) // 1000)),))
    decision = decide(pool, machines=[a_machine(0)], nodes=[told], pods=[busy(0)], listed=NOON)
    assert states(decision) == ["Draining", "Launching"]
    assert condition(decision, "InterruptionNotice") == ("True", "Available")
    assert [each.reason for each in decision.actions if isinstance(each, EmitEvent)].count("Reclaimed") == 1
    over = decide(after(pool, decision), machines=[a_machine(0)], nodes=[told], now=NOON + 2 * MINUTE)
    assert ended(over) == ["ins-0"]


@pytest.mark.parametrize(
    "says", ["", "soon", "-5", "1e12", str(NOON // 1000 - 7200), str(NOON // 1000 + 90_000), "9" * 63]
)
def test_a_node_that_tells_of_another_day_tells_nothing(says: str) -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, node="node-0"))
    node = its_node(0, labels=((marks.RECLAIM_AT, says),))
    decision = decide(pool, machines=[a_machine(0)], nodes=[node], pods=[busy(0)], listed=NOON)
    assert states(decision) == ["Running"]
    assert condition(decision, "InterruptionNotice") == ("False", "Unavailable")


def test_without_surge_nothing_is_launched_beside_what_is_reclaimed() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1, maxSurge=0), a_slot(0, node="node-0"))
    taken = a_machine(0, reclaim_at=NOON + 2 * MINUTE)
    decision = decide(pool, machines=[taken], nodes=[its_node(0)], pods=[busy(0)], listed=NOON)
    assert states(decision) == ["Draining"]
    assert launches(decision) == []


def test_all_reclaimed_at_once_are_replaced_as_far_as_the_surge_goes() -> None:
    pool = with_slots(a_spotpool(minimum=4, maximum=4, maxSurge=2), *(a_slot(number) for number in range(4)))
    taken = [a_machine(number, reclaim_at=NOON + MINUTE) for number in range(4)]
    decision = decide(pool, machines=taken, listed=NOON)
    assert len(launches(decision)) == 2


def test_a_machine_that_never_joins_is_ended_and_three_in_a_row_stop_the_buying() -> None:
    pool, now = a_spotpool(minimum=1, maximum=1, maxSurge=0, joinTimeoutSeconds=600), NOON
    for failed in range(1, 4):
        pool = after(pool, first := decide(pool, now=now))
        [slot] = [each for each in status_of(first).slots if each.state == "Launching"]
        machine = a_machine(slot.slot, name=f"ins-{failed}", launched_at=now)
        accepted = [outcome(slot, "Accepted", machine.name)]
        pool = after(pool, decide(pool, machines=[machine], launches=accepted, now=now))
        assert ended(decide(pool, machines=[machine], now=now + 599 * SECOND)) == []
        late = decide(pool, machines=[machine], now=now + 600 * SECOND)
        assert ended(late) == [machine.name]
        pool, now = after(pool, late), now + 601 * SECOND
        assert pool.status.breaker.failed == failed
        gone = decide(pool, machines=[structs.replace(machine, state="TERMINATING")], now=now)
        assert len(launches(gone)) == (0 if failed == 3 else 1)
        pool = (
            after(pool, decide(pool, machines=[structs.replace(machine, state="TERMINATING")], now=now))
            if failed == 3
            else structs.replace(pool, status=structs.replace(pool.status, slots=()))
        )
    assert condition(decide(pool, now=now), "JoinFailing") == ("True", "NeverJoined")
    assert launches(decide(pool, now=now + 29 * MINUTE)) == []
    wide = structs.replace(pool, spec=structs.replace(pool.spec, minimum=5, maximum=5))
    one = decide(wide, now=now + 31 * MINUTE)
    assert len(launches(one)) == 1, "one at a time until one joins"
    pool = after(wide, one)
    [slot] = status_of(one).slots
    later = now + 32 * MINUTE
    machine = a_machine(slot.slot, launched_at=later)
    node = its_node(slot.slot)
    joined = decide(
        pool, machines=[machine], nodes=[node], launches=[outcome(slot, "Accepted", machine.name)], now=later
    )
    assert status_of(joined).breaker is None
    assert len(launches(joined)) == 4


@pytest.mark.parametrize("state", ["STOPPED", "SHUTDOWN", "TERMINATING", "LAUNCH_FAILED"])
def test_machines_that_end_by_themselves_before_they_join_stop_the_buying_too(state: str) -> None:
    """An image that powers off at its start would be bought for ever."""
    pool = with_slots(a_spotpool(minimum=3, maximum=3), *(a_slot(number, joined_at="") for number in range(3)))
    decision = decide(pool, machines=[a_machine(number, state) for number in range(3)], listed=NOON)
    assert launches(decision) == []
    assert condition(decision, "JoinFailing") == ("True", "NeverJoined")


@pytest.mark.parametrize(
    ("slot", "more"),
    [
        ({}, {}),
        ({"state": "Ending", "joined_at": "", "cause": "NeverJoined"}, {}),
        ({"joined_at": ""}, {"reclaim_at": NOON - MINUTE}),
    ],
    ids=["joined", "ended by us", "reclaimed"],
)
def test_what_ends_for_another_reason_is_no_failure_to_join(slot: dict[str, Any], more: dict[str, Any]) -> None:
    pool = with_slots(a_spotpool(minimum=3, maximum=3), *(a_slot(number, **slot) for number in range(3)))
    decision = decide(pool, machines=[a_machine(number, "SHUTDOWN", **more) for number in range(3)], listed=NOON)
    assert len(launches(decision)) == 3
    assert status_of(decision).breaker is None


def test_a_machine_that_vanishes_before_it_joined_is_a_failure_too() -> None:
    slot = a_slot(0, joined_at="", not_found_since=NOON - 10 * MINUTE)
    decision = decide(with_slots(a_spotpool(minimum=1, maximum=1), slot), machines=[a_machine(0, "NOT_FOUND")])
    breaker = status_of(decision).breaker
    assert breaker is not None
    assert breaker.failed == 1


def test_where_no_node_is_expected_a_running_machine_is_enough() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1, join=False), a_slot(0, joined_at=""))
    decision = decide(pool, machines=[a_machine(0)], listed=NOON)
    assert status_of(decision).slots[0].joined_at
    assert effects(decision) == []


def test_more_than_half_gone_without_a_word_brakes_everything() -> None:
    slots = [a_slot(number) for number in range(4)]
    pool = with_slots(a_spotpool(minimum=5, maximum=5), *slots)
    half = decide(pool, machines=[a_machine(0), a_machine(1)], listed=NOON)
    assert len(launches(half)) == 1
    more = decide(pool, machines=[a_machine(0)], listed=NOON)
    assert effects(more) == []
    assert condition(more, "Braked") == ("True", "MachinesMissing")
    told = [a_machine(number, "SHUTDOWN") for number in (1, 2, 3)]
    known = decide(pool, machines=[a_machine(0), *told], listed=NOON)
    assert len(launches(known)) == 4, "the cloud said that they ended"


@pytest.mark.parametrize(("listed", "acts"), [(NOON - 5 * MINUTE, True), (NOON - 5 * MINUTE - 1, False), (0, False)])
def test_nothing_is_done_on_an_old_list_or_none(listed: int, acts: bool) -> None:
    pool = with_slots(a_spotpool(minimum=3, maximum=3), a_slot(0, "Launching", at=NOON - MINUTE), a_slot(1, "Ending"))
    decision = decide(pool, machines=[a_machine(1)], listed=listed)
    assert bool(effects(decision)) == acts
    assert condition(decision, "Ready") == (
        ("True", "Reconciled") if acts else ("False", "ListingOld" if listed else "NotListed")
    )
    assert status_of(decision).slots[0].token == "token-0"


def test_foreign_machines_are_never_counted_listed_or_ended() -> None:
    foreign = [
        a_machine(7, name="plain", tags={}),
        a_machine(8, name="of-another-cluster", tags=a_machine(8).tags | {marks.CLUSTER_TAG: "other"}),
        a_machine(9, name="of-another-pool", pool="two"),
        a_machine(6, name="stopped", state="STOPPED", tags={marks.OWNER_TAG: "uid-Spotpool-one"}),
    ]
    pool = with_slots(a_spotpool(minimum=0, maximum=0), a_slot(0))
    decision = decide(pool, a_spotpool("two", minimum=0, maximum=9), machines=[a_machine(0), *foreign], listed=NOON)
    assert ended(decision) == ["ins-0"]
    assert [each.instance_id for each in status_of(decision).instances] == ["ins-0"]


def test_a_machine_whose_tags_are_not_ours_is_not_ended_though_the_status_names_it() -> None:
    pool = with_slots(a_spotpool(minimum=0, maximum=0), a_slot(0))
    decision = decide(pool, machines=[a_machine(0, tags={})], listed=NOON)
    assert ended(decision) == []
    assert states(decision) == ["Running"]


def test_what_is_not_needed_any_more_is_cancelled_and_counts_until_a_late_list() -> None:
    pool = with_slots(a_spotpool(minimum=0, maximum=0), a_slot(0, "Launching", at=NOON - MINUTE))
    decision = decide(pool, listed=NOON)
    assert states(decision) == ["Cancelling"]
    assert effects(decision) == []
    pool = structs.replace(after(pool, decision), spec=a_spotpool(minimum=1, maximum=1).spec)
    late = NOON + 35 * MINUTE
    assert states(decide(pool, listed=late, now=late)) == ["Cancelling"], "it may still come"
    assert states(decide(pool, listed=late + 1, now=late + 1)) == ["Launching"]
    refused = decide(pool, launches=[outcome(pool.status.slots[0], "SoldOut")], listed=NOON)
    assert [slot.cause for slot in status_of(refused).slots] == ["Refused"]
    assert states(decide(after(pool, refused), listed=NOON + MINUTE, now=NOON + MINUTE)) == []
    came = decide(pool, machines=[a_machine(0)], listed=NOON)
    assert states(came) == ["Running"]


def test_paused_cancels_what_is_under_way_and_does_nothing_else() -> None:
    pool = with_slots(
        a_spotpool(minimum=0, maximum=0, paused=True), a_slot(0, "Launching", at=NOON - MINUTE), a_slot(1)
    )
    decision = decide(pool, machines=[a_machine(1)], listed=NOON)
    assert states(decision) == ["Cancelling", "Running"]
    assert effects(decision) == []
    assert condition(decision, "Ready") == ("True", "Paused")


@pytest.mark.parametrize(("more", "word"), [({"paused": True}, "Paused"), ({}, "Stopped")])
def test_a_pool_that_is_deleted_while_nothing_may_end_says_both(more: dict[str, Any], word: str) -> None:
    pool = structs.replace(with_slots(a_spotpool(minimum=0, maximum=1, **more), a_slot(0)), deleting=True)
    decision = decide(pool, machines=[a_machine(0)], listed=NOON, stopped=word == "Stopped")
    assert effects(decision) == []
    assert decision.reason == word
    end = {"Paused": "the pause ends.", "Stopped": "the stop ends."}[word]
    assert decision.message.endswith(f"It is being deleted; 1 machine stays until {end}")
    kept = structs.replace(pool, spec=structs.replace(pool.spec, deletion_policy="Retain"))
    told = decide(kept, machines=[a_machine(0)], listed=NOON, stopped=word == "Stopped")
    assert told.message.endswith(f"It is being deleted; its machines stay until {end}")


def test_the_kill_switch_ends_all_effects() -> None:
    pool = with_slots(a_spotpool(minimum=2, maximum=2), a_slot(0, "Launching", at=NOON - MINUTE), a_slot(1, "Ending"))
    decision = decide(pool, machines=[a_machine(1)], listed=NOON, stopped=True)
    assert decision.actions == ()
    assert states(decision) == ["Launching", "Ending"]


def test_deleting_drains_and_ends_all_machines_and_then_lets_the_object_go() -> None:
    pool = structs.replace(three(maximum=3), deleting=True)
    machines, nodes = [a_machine(number) for number in range(3)], [its_node(number) for number in range(3)]
    first = decide(pool, machines=machines, nodes=nodes, pods=[busy(0)], listed=NOON)
    assert states(first) == ["Draining"] * 3
    assert RemoveFinalizer(object="Spotpool/team-a/one") not in effects(first)
    nodes = [its_node(number, **CORDONED) for number in range(3)]
    pool = after(pool, first)
    later = decide(pool, machines=machines, nodes=nodes, pods=[busy(0)], now=NOON + 20 * SECOND)
    assert ended(later) == ["ins-1", "ins-2"]
    gone = [a_machine(number, "SHUTDOWN") for number in range(3)]
    over = decide(after(pool, later), machines=gone, now=NOON + MINUTE)
    assert effects(over) == [RemoveFinalizer(object="Spotpool/team-a/one")]
    stopped = [a_machine(0, "STOPPED"), *gone[1:]]
    left = decide(after(pool, later), machines=stopped, now=NOON + MINUTE)
    assert effects(left) == [TerminateInstance(pool="team-a/one", instance="ins-0")]


def lifted(*pools: AnyResource, **more: Any) -> list[str]:
    """The nodes that lose a cordon that is left over."""
    return [each.node for each in CAPACITY.chores(a_view(*pools, **more)) if isinstance(each, UncordonNode)]


def test_the_node_of_a_machine_that_is_ending_stays_cordoned_while_it_looks_ready() -> None:
    """kube-scheduler would bind pods to it that die at once."""
    pool, ending = a_spotpool(minimum=0, maximum=1), [a_machine(0, "TERMINATING")]
    node = its_node(0, **CORDONED)
    assert lifted(pool, machines=ending, nodes=[node]) == []
    assert lifted(pool, machines=[], nodes=[node]) == ["node-0"]
    assert lifted(pool, machines=[a_machine(0)], nodes=[node]) == ["node-0"]
    assert lifted(pool, machines=ending, nodes=[structs.replace(node, ready=False)]) == ["node-0"]


def test_a_deleted_pool_stays_until_the_nodes_of_its_machines_are_down() -> None:
    """Once it is gone nobody knows whose cordon it is, and it is lifted."""
    pool = structs.replace(a_spotpool(minimum=0, maximum=1), deleting=True)
    machines, node = [a_machine(0, "SHUTDOWN")], its_node(0, **CORDONED)
    waits = decide(pool, machines=machines, nodes=[node], listed=NOON)
    assert effects(waits) == []
    assert "1 node is still ready" in waits.message
    down = structs.replace(node, ready=False)
    for nodes in ([down], []):
        assert effects(decide(pool, machines=machines, nodes=nodes, listed=NOON)) == [
            RemoveFinalizer(object="Spotpool/team-a/one")
        ]
    world = a_view(pool, machines=machines, nodes=[down], listed=NOON)
    little = CAPACITY.decide(world, Changes(nodes={"node-0"}))
    assert [each.resource.name for each in little] == ["one"]


@pytest.mark.parametrize("policy", ["Terminate", "Retain"])
def test_a_launch_of_unknown_outcome_keeps_the_object(policy: str) -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1, deletionPolicy=policy), a_slot(0, "Launching", at=NOON - MINUTE))
    pool = structs.replace(pool, deleting=True)
    decision = decide(pool, listed=NOON)
    assert states(decision) == ["Cancelling"]
    assert effects(decision) == []
    late = NOON + 35 * MINUTE + 1
    assert effects(decide(after(pool, decision), listed=late, now=late)) == [
        RemoveFinalizer(object="Spotpool/team-a/one")
    ]


def test_a_pool_that_retains_its_machines_goes_at_once() -> None:
    pool = structs.replace(three(maximum=3, deletionPolicy="Retain"), deleting=True)
    machines = [a_machine(number) for number in range(3)]
    decision = decide(pool, machines=machines, listed=NOON)
    assert effects(decision) == [RemoveFinalizer(object="Spotpool/team-a/one")]
    assert states(decision) == ["Running"] * 3


def test_a_pool_that_is_deleted_does_not_wait_for_machines_of_another_owner() -> None:
    """Its status was restored from a backup, and names what its former self launched."""
    pool = structs.replace(three(maximum=3), deleting=True)
    machines = [a_machine(0, pool="former"), a_machine(1, tags={}), a_machine(2, "SHUTDOWN")]
    decision = decide(pool, machines=machines, listed=NOON)
    assert effects(decision) == []
    assert [each.instance_id for each in status_of(decision).slots] == ["ins-1"], "its tags may yet come"
    machines = [a_machine(0, pool="former"), a_machine(1, pool="former"), a_machine(2, "SHUTDOWN")]
    assert effects(decide(pool, machines=machines, listed=NOON)) == [RemoveFinalizer(object="Spotpool/team-a/one")]


def test_an_object_is_not_let_go_on_an_old_list() -> None:
    pool = structs.replace(a_spotpool(), deleting=True)
    assert effects(decide(pool, listed=NOON - HOUR)) == []
    assert effects(decide(pool, listed=NOON)) == [RemoveFinalizer(object="Spotpool/team-a/one")]


def test_a_cordon_of_ours_is_lifted_from_a_machine_that_stays() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, node="node-0"))
    decision = decide(pool, machines=[a_machine(0)], nodes=[its_node(0, **CORDONED)], listed=NOON)
    assert effects(decision) == [UncordonNode(node="node-0")]
