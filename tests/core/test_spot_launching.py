"""Launching: intents before calls, tokens that name one intent, and a slot that is free only on evidence."""

from typing import Any

import pytest
from msgspec import structs

from headroom.api.spot_pools_status import Slot
from headroom.model.actions import AddFinalizer, LaunchInstance
from headroom.model.times import moment
from tests.builders import NOON
from tests.core.spot_stage import (
    HOUR,
    MINUTE,
    POOL,
    TYPE,
    ZONE,
    a_machine,
    a_slot,
    a_spotpool,
    after,
    condition,
    decide,
    effects,
    ended,
    launches,
    outcome,
    states,
    status_of,
    with_slots,
)


def test_a_new_pool_launches_its_minimum_and_marks_itself_first() -> None:
    pool = structs.replace(a_spotpool(minimum=2, maximum=4), finalizers=())
    decision = decide(pool)
    first, *rest = effects(decision)
    assert first == AddFinalizer(object="Spotpool/team-a/one")
    assert [type(each) for each in rest] == [LaunchInstance, LaunchInstance]
    slots = status_of(decision).slots
    assert [(each.slot, each.state, each.instance_type, each.zone) for each in slots] == [
        (0, "Launching", TYPE, ZONE),
        (1, "Launching", TYPE, ZONE),
    ]
    assert [(each.pool, each.slot, each.token) for each in launches(decision)] == [
        (POOL, each.slot, each.token) for each in slots
    ]
    assert decision.reason == "Launching"


def test_an_intent_is_sent_again_with_its_token_until_its_outcome_is_known() -> None:
    pool = after(a_spotpool(), decide(a_spotpool()))
    tokens = [each.token for each in pool.status.slots]
    unknown = [outcome(each, "Unknown") for each in pool.status.slots]
    again = decide(pool, launches=unknown, now=NOON + MINUTE)
    assert [each.token for each in launches(again)] == tokens
    assert status_of(again).slots == pool.status.slots


def test_tokens_differ_by_slot_moment_cluster_and_place() -> None:
    first = [each.token for each in status_of(decide(a_spotpool())).slots]
    later = [each.token for each in status_of(decide(a_spotpool(), now=NOON + 1)).slots]
    elsewhere = [each.token for each in status_of(decide(a_spotpool(), cluster="other")).slots]
    other = [each.token for each in status_of(decide(a_spotpool(imageId="img-2"))).slots]
    every = [*first, *later, *elsewhere, *other]
    assert len(set(every)) == len(every)
    assert all(len(each) <= 64 and each.isascii() for each in every)


def test_an_accepted_launch_is_a_machine_that_counts_before_it_is_listed() -> None:
    pool = with_slots(a_spotpool(), a_slot(0, "Launching"), a_slot(1, "Launching"))
    accepted = [outcome(each, "Accepted", f"ins-{each.slot}") for each in pool.status.slots]
    decision = decide(pool, launches=accepted, listed=NOON)
    assert states(decision) == ["Running", "Running"]
    assert effects(decision) == []
    assert sum(each.count for each in status_of(decision).purchases) == 2


@pytest.mark.parametrize("word", ["SoldOut", "PriceTooLow", "QuotaReached", "Refused"])
def test_a_refusal_gives_the_slot_up_and_the_next_alternative_is_tried_at_once(word: str) -> None:
    spec: dict[str, Any] = {"instanceType": None, "instanceTypes": [TYPE, "GN8"], "minimum": 1, "maximum": 1}
    pool = with_slots(a_spotpool(**spec), a_slot(0, "Launching", at=NOON - MINUTE))
    decision = decide(pool, launches=[outcome(pool.status.slots[0], word)])
    refused, slot = status_of(decision).slots
    assert (refused.state, refused.cause) == ("Cancelling", "Refused")
    assert (slot.state, slot.instance_type) == ("Launching", "GN8")
    assert slot.token != pool.status.slots[0].token
    [rest] = status_of(decision).sold_out
    assert (rest.instance_type, rest.zone, rest.failures) == (TYPE, "*" if word == "QuotaReached" else ZONE, 1)
    assert condition(decision, "SoldOut") == ("True", word)


@pytest.mark.parametrize(
    ("word", "kept"), [("Unknown", ("Cancelling", "Unanswered", "")), ("Accepted", ("Running", "", "ins-0"))]
)
def test_a_refusal_of_another_process_says_nothing_of_our_own_call(word: str, kept: tuple[str, str, str]) -> None:
    refused = a_slot(0, "Cancelling", at=NOON - 2 * MINUTE, cause="Refused")
    pool = with_slots(a_spotpool(minimum=1, maximum=1), refused)
    decision = decide(pool, launches=[outcome(refused, word, "ins-0" if word == "Accepted" else "")], listed=NOON)
    slot = status_of(decision).slots[0]
    assert (slot.state, slot.cause, slot.instance_id) == kept
    assert status_of(decide(pool, listed=NOON)).slots[0].token != refused.token, "without a call of ours it is free"


def test_what_is_sold_out_rests_longer_each_time_and_success_ends_that() -> None:
    pool, now, pauses = a_spotpool(minimum=1, maximum=1), NOON, []
    for _ in range(5):
        decision = decide(pool, now=now)
        [slot] = status_of(decision).slots
        pool = after(pool, decision)
        refused = decide(pool, now=now + 1000, launches=[outcome(slot, "SoldOut")])
        assert states(refused) == ["Cancelling"]
        [rest] = status_of(refused).sold_out
        until = moment(rest.until) or 0
        pauses.append((until - now - 1000) // MINUTE)
        assert not launches(decide(after(pool, refused), now=until - 1))
        pool, now = after(pool, refused), until
    assert pauses == [5, 10, 10, 10, 10]
    decision = decide(pool, now=now)
    [slot] = status_of(decision).slots
    accepted = decide(after(pool, decision), now=now + 1000, launches=[outcome(slot, "Accepted", "ins-0")])
    assert status_of(accepted).sold_out == ()


def test_an_unknown_outcome_never_frees_a_slot() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, "Launching", at=NOON - 40 * MINUTE))
    decision = decide(pool, launches=[outcome(pool.status.slots[0], "Unknown")], listed=NOON)
    assert status_of(decision).slots == pool.status.slots


def test_an_intent_that_is_an_hour_old_is_not_sent_any_more() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, "Launching", at=NOON - HOUR))
    decision = decide(pool, listed=NOON)
    assert states(decision) == ["Cancelling"]
    assert launches(decision) == []


def test_a_machine_that_shows_up_ends_the_waiting_for_its_launch() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, "Launching", at=NOON - MINUTE))
    decision = decide(pool, machines=[a_machine(0, "PENDING")], listed=NOON)
    [slot] = status_of(decision).slots
    assert (slot.state, slot.instance_id, slot.token) == ("Running", "ins-0", "token-0")
    assert launches(decision) == []


def test_a_lost_status_is_made_up_by_adoption_and_nothing_is_bought() -> None:
    pool = a_spotpool(minimum=3, maximum=3)
    decision = decide(pool, machines=[a_machine(number) for number in (0, 1, 5)], listed=NOON)
    assert [(each.slot, each.instance_id) for each in status_of(decision).slots] == [
        (0, "ins-0"),
        (1, "ins-1"),
        (5, "ins-5"),
    ]
    assert effects(decision) == []


def test_two_machines_of_one_slot_are_two_slots_and_the_known_one_keeps_it() -> None:
    pool = with_slots(a_spotpool(minimum=2, maximum=2), a_slot(0))
    twin = a_machine(0, name="ins-elder", launched_at=NOON - 5 * HOUR)
    decision = decide(pool, machines=[twin, a_machine(0)], listed=NOON)
    assert {each.instance_id: each.slot for each in status_of(decision).slots} == {"ins-0": 0, "ins-elder": 1}
    unknown = decide(a_spotpool(), machines=[a_machine(0), twin], listed=NOON)
    assert {each.instance_id: each.slot for each in status_of(unknown).slots} == {"ins-elder": 0, "ins-0": 1}


def test_a_status_that_names_one_machine_twice_has_it_once() -> None:
    twice = a_slot(1, instance_id="ins-0")
    decision = decide(with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0), twice), machines=[a_machine(0)])
    assert [each.slot for each in status_of(decision).slots] == [0]


def test_a_cloud_that_names_one_machine_for_two_tokens_is_not_believed() -> None:
    pool = with_slots(a_spotpool(), a_slot(0), a_slot(1, "Launching"))
    decision = decide(
        pool, machines=[a_machine(0)], launches=[outcome(pool.status.slots[1], "Accepted", "ins-0")], listed=NOON
    )
    assert states(decision) == ["Running", "Cancelling"]
    assert effects(decision) == []


@pytest.mark.parametrize("state", ["STOPPING", "STOPPED", "SHUTDOWN", "TERMINATING", "LAUNCH_FAILED"])
def test_a_machine_that_is_none_any_more_is_replaced_at_once(state: str) -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1, maxSurge=0), a_slot(0))
    decision = decide(pool, machines=[a_machine(0, state)], listed=NOON)
    [slot] = status_of(decision).slots
    assert (slot.slot, slot.state) == (0, "Launching")
    assert ended(decision) == (["ins-0"] if state in ("STOPPED", "LAUNCH_FAILED") else [])


@pytest.mark.parametrize("state", ["PENDING", "RUNNING", "STARTING", "REBOOTING", "SOME_NEW_WORD", ""])
def test_any_other_state_counts(state: str) -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0))
    decision = decide(pool, machines=[a_machine(0, state)], listed=NOON)
    assert [each.instance_id for each in status_of(decision).slots] == ["ins-0"]


def test_not_to_be_in_the_list_is_no_evidence() -> None:
    pool = with_slots(a_spotpool(minimum=3, maximum=3), *(a_slot(number, at=NOON - 5 * HOUR) for number in range(3)))
    decision = decide(pool, machines=[a_machine(1), a_machine(2)], listed=NOON)
    assert status_of(decision).slots[0].instance_id == "ins-0"
    assert effects(decision) == []


def test_not_found_by_id_is_evidence_once_it_lasts_and_the_machine_is_old_enough() -> None:
    def told(at: int, since: int | None) -> list[Slot]:
        more: dict[str, Any] = {"not_found_since": since} if since is not None else {}
        pool = with_slots(a_spotpool(minimum=0, maximum=1), a_slot(0, at=at, **more))
        return list(status_of(decide(pool, machines=[a_machine(0, "NOT_FOUND")], listed=NOON)).slots)

    [slot] = told(NOON - HOUR, None)
    assert slot.not_found_since == "2026-11-15T12:00:00Z"
    assert len(told(NOON - HOUR, NOON - 2 * MINUTE + 1)) == 1
    assert len(told(NOON - 35 * MINUTE, NOON - 10 * MINUTE)) == 1
    assert told(NOON - HOUR, NOON - 2 * MINUTE) == []


def test_a_machine_that_comes_back_is_known_again() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, not_found_since=NOON - MINUTE))
    [slot] = status_of(decide(pool, machines=[a_machine(0)], listed=NOON)).slots
    assert slot.not_found_since == ""
