"""Keys of another cloud account: nobody there knows the machines of the slots, and that says nothing of them."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api.kinds import AnyResource
from headroom.model.cloud_facts import Instance, Listing
from headroom.model.decisions import Decision
from tests.builders import NOON
from tests.core.spot_stage import (
    HOUR,
    MINUTE,
    POOL,
    a_machine,
    a_slot,
    a_spotpool,
    after,
    condition,
    decide,
    effects,
    launches,
    outcome,
    states,
    status_of,
    with_slots,
)

OURS, OTHER = "111122223333", "444455556666"


def listed(pool: AnyResource, account: str, now: int = NOON, **more: Any) -> Decision:
    """What is decided once the machines were listed with keys of an account."""
    listing = Listing(pool=POOL, at=now, account=account)
    return decide(pool, now=now, instances_given=False, listings={POOL: listing}, **more)


def unknown(number: int) -> Instance:
    return a_machine(number, "NOT_FOUND", tags={})


def test_a_pool_takes_up_the_account_that_it_first_launches_in() -> None:
    decision = listed(a_spotpool(minimum=1, maximum=1), OURS)
    assert len(launches(decision)) == 1
    assert status_of(decision).account == OURS
    old = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0))
    assert status_of(listed(old, OURS, machines=[a_machine(0)])).account == OURS, "of a status that says nothing"


@pytest.mark.parametrize("deleting", [False, True])
def test_what_another_account_does_not_know_is_no_evidence(deleting: bool) -> None:
    """The pool would buy everything anew, or let the object go and leave machines behind that cost for ever."""
    slots = (
        a_slot(0, at=NOON - 5 * HOUR, not_found_since=NOON - HOUR),
        a_slot(1, "Ending", at=NOON - 5 * HOUR, not_found_since=NOON - HOUR),
        a_slot(2, "Cancelling", at=NOON - 5 * HOUR),
    )
    pool = structs.replace(with_slots(a_spotpool(minimum=3, maximum=3), *slots, account=OURS), deleting=deleting)
    decision = listed(pool, OTHER, machines=[unknown(0), unknown(1)])
    assert effects(decision) == []
    assert status_of(decision).slots == slots
    assert status_of(decision).account == OURS
    assert condition(decision, "Ready") == ("False", "OtherAccount")
    assert f"account {OURS}" in decision.message
    assert f"account {OTHER}" in decision.message


def test_with_its_own_keys_it_goes_on() -> None:
    pool = with_slots(a_spotpool(minimum=2, maximum=2), a_slot(0), account=OURS)
    waits = after(pool, listed(pool, OTHER, machines=[unknown(0)]))
    decision = listed(waits, OURS, now=NOON + MINUTE, machines=[a_machine(0)])
    assert states(decision) == ["Running", "Launching"]
    assert condition(decision, "Ready")[0] == "True"


def test_a_launch_that_another_account_accepted_is_not_taken_for_the_slots() -> None:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, "Launching", at=NOON - MINUTE), account=OURS)
    accepted = [outcome(pool.status.slots[0], "Accepted", "ins-9")]
    assert status_of(listed(pool, OTHER, launches=accepted)).slots == pool.status.slots


def test_a_pool_without_slots_may_move_and_a_cloud_without_accounts_never_does() -> None:
    empty = with_slots(a_spotpool(minimum=1, maximum=1), account=OURS)
    assert status_of(listed(empty, OTHER)).account == OTHER
    silent = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0), account="")
    assert status_of(listed(silent, "", machines=[a_machine(0)])).account == ""
    known = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0), account=OURS)
    assert status_of(listed(known, "", machines=[a_machine(0)])).account == OURS
