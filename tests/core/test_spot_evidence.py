"""What proves that a slot is free, and what does not: each of these let a pool buy one too many, or end a machine under its pods."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.core.spot_pools.places import NOT_FOUND
from headroom.model.cloud_facts import Instance
from headroom.model.facts import Pod, Shape
from tests.builders import NOON, a_pod
from tests.core.spot_stage import (
    GPU,
    HOUR,
    MINUTE,
    SECOND,
    a_machine,
    a_slot,
    a_spotpool,
    after,
    decide,
    ended,
    its_node,
    launches,
    outcome,
    states,
    status_of,
    with_slots,
)

ONE: dict[str, Any] = {"minimum": 1, "maximum": 1}


def with_token(machine: Instance, token: str, slot: int = 0) -> Instance:
    return structs.replace(machine, tags=machine.tags | {marks.TOKEN_TAG: token, marks.SLOT_TAG: str(slot)})


def busy(number: int = 0) -> Pod:
    return a_pod(node=f"node-{number}", phase="Running", shape=Shape(requests=((GPU, 1_000_000),)))


def unknown(number: int = 0) -> Instance:
    return Instance(name=f"ins-{number}", provider="tencent", region="ap-singapore", state=NOT_FOUND)


def test_an_intent_that_waited_long_for_its_call_does_not_make_its_machine_old() -> None:
    fresh = a_slot(0, at=NOON - 50 * MINUTE, since=NOON - 5 * MINUTE, seen_at="", joined_at="")
    pool = with_slots(a_spotpool(**ONE), structs.replace(fresh, not_found_since="2026-11-15T11:56:00Z"))
    decision = decide(pool, machines=[unknown()], listed=NOON)
    assert states(decision) == ["Running"], "it was launched five minutes ago, and reads may lag by thirty"
    assert not launches(decision)


@pytest.mark.parametrize(("asked", "left"), [(NOON, []), (NOON - 36 * MINUTE, ["Running"])])
def test_not_found_is_no_evidence_after_the_cloud_was_last_asked(asked: int, left: list[str]) -> None:
    slot = a_slot(0, at=NOON - 70 * MINUTE, not_found_since=NOON - 37 * MINUTE)
    decision = decide(with_slots(a_spotpool(minimum=0, maximum=1), slot), machines=[unknown()], listed=asked)
    assert states(decision) == left


def test_a_machine_of_an_earlier_intent_is_not_taken_for_that_of_this_one() -> None:
    pool = with_slots(a_spotpool(minimum=0, maximum=2), a_slot(0, "Launching", at=NOON - MINUTE))
    decision = decide(pool, machines=[with_token(a_machine(7), "token-of-before")], listed=NOON)
    slots = status_of(decision).slots
    assert [(each.slot, each.state, each.instance_id) for each in slots] == [
        (0, "Launching", ""),
        (1, "Running", "ins-7"),
    ]


@pytest.mark.parametrize("state", ["Launching", "Cancelling"])
@pytest.mark.parametrize(("word", "left"), [("RUNNING", ["Running"]), ("LAUNCH_FAILED", []), ("SHUTDOWN", [])])
def test_the_token_on_a_machine_tells_what_became_of_an_intent(state: str, word: str, left: list[str]) -> None:
    pool = with_slots(a_spotpool(minimum=0, maximum=1), a_slot(0, state, at=NOON - MINUTE))
    machine = with_token(a_machine(7, word), "token-0", slot=5)
    decision = decide(pool, machines=[machine], listed=NOON)
    assert states(decision) == left
    assert sum(each.count for each in status_of(decision).purchases) == 1, "it was bought, whatever became of it"


def test_of_two_machines_with_one_token_each_has_a_slot() -> None:
    pool = with_slots(a_spotpool(minimum=0, maximum=2), a_slot(0, "Launching", at=NOON - MINUTE))
    copied = [with_token(a_machine(number), "token-0") for number in (7, 8)]
    assert states(decide(pool, machines=copied, listed=NOON)) == ["Running", "Running"]


def test_what_was_refused_counts_while_another_call_may_be_on_its_way() -> None:
    zones: dict[str, Any] = {"availabilityZone": None, "zones": ["a", "b"], "maxSurge": 0}
    pool = with_slots(a_spotpool(**ONE, **zones), a_slot(0, "Launching", at=NOON - SECOND, zone="a"))
    refusal = [outcome(pool.status.slots[0], "SoldOut")]
    first = decide(pool, launches=refusal, listed=NOON)
    assert (states(first), launches(first)) == (["Cancelling"], [])
    pool = after(pool, first)
    soon, late = NOON + 59 * SECOND, NOON + 60 * SECOND
    assert states(decide(pool, launches=refusal, listed=soon, now=soon)) == ["Cancelling"]
    then = decide(pool, launches=refusal, listed=late, now=late)
    assert [each.zone for each in launches(then)] == ["b"]
    came = decide(pool, machines=[with_token(a_machine(7), "token-0")], launches=refusal, listed=soon, now=soon)
    assert [(each.state, each.instance_id) for each in status_of(came).slots] == [("Running", "ins-7")]


def test_what_was_refused_counts_until_a_list_has_begun_that_would_show_the_machine_of_another_call() -> None:
    """Of two operators one was refused and the other got a machine a moment later; the first freed the slot on an old list."""
    refused = a_slot(0, "Cancelling", at=NOON, cause="Refused")
    pool, late = with_slots(a_spotpool(minimum=1, maximum=1, maxSurge=0), refused), NOON + 90 * SECOND
    for listed, left in ((NOON - SECOND, ["Cancelling"]), (NOON + 59 * SECOND, ["Cancelling"])):
        assert states(decide(pool, listed=listed, now=late)) == left
    assert states(decide(pool, listed=NOON + 60 * SECOND, now=late)) == ["Launching"]


def test_an_intent_that_is_given_up_unseen_counts_as_bought() -> None:
    pool = with_slots(a_spotpool(minimum=0, maximum=0), a_slot(0, "Cancelling", at=NOON - 36 * MINUTE))
    decision = decide(pool, listed=NOON)
    assert states(decision) == []
    assert [each.minute for each in status_of(decision).purchases] == ["2026-11-15T11:24:00Z"]


def test_a_node_is_drained_although_no_list_shows_its_machine_now() -> None:
    pool = structs.replace(with_slots(a_spotpool(**ONE), a_slot(0, at=NOON - 10 * MINUTE)), deleting=True)
    decision = decide(pool, machines=[unknown()], nodes=[its_node()], pods=[busy()], listed=NOON)
    assert states(decision) == ["Draining"]
    assert ended(decision) == []


def test_a_machine_that_never_joined_is_drained_if_pods_have_come_all_the_same() -> None:
    pool = with_slots(a_spotpool(**ONE), a_slot(0, at=NOON - HOUR, joined_at=""))
    gone_dark = its_node(ready=False, ready_since=None, unready_since=NOON - 20 * MINUTE)
    assert states(decide(pool, machines=[a_machine()], nodes=[gone_dark], pods=[busy()], listed=NOON))[0] == "Draining"
    assert states(decide(pool, machines=[a_machine()], nodes=[gone_dark], listed=NOON))[0] == "Ending"
