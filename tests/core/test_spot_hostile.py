"""Attacks on spot pools: a tenant who writes specs and statuses, and a cloud that lies."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.spot_pools_status import Orphan, SoldOut
from headroom.model import times
from headroom.model.actions import CordonNode, DrainNode, EmitEvent, TerminateInstance
from headroom.model.cloud_facts import Gateway, Offer
from headroom.model.facts import Node, Taint
from tests.builders import NOON, a_node, a_pod
from tests.core.spot_stage import (
    HOUR,
    MINUTE,
    SECOND,
    TYPE,
    ZONE,
    a_machine,
    a_slot,
    a_spotpool,
    after,
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
WEBHOOK: dict[str, Any] = {"provider": "webhook", "endpoint": "https://clouds.example/v1"}


def old_node(**fields: Any) -> Node:
    """A node that was there long before any machine of the pool."""
    base: dict[str, Any] = {"addresses": ("10.0.0.0",), "created": NOON - 90 * HOUR, "ready_since": NOON - 90 * HOUR}
    return a_node("victim", gpus=8, **base | fields)


# --- a status that somebody wrote by hand ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["Running", "Draining", "Ending"])
def test_a_status_that_names_a_foreign_machine_does_nothing_to_it(state: str) -> None:
    """Its node is not cordoned or drained, its address is not told, and no gateway sends requests there."""
    gateway = {"adminUrl": "https://kong.example", "upstream": "chat"}
    pool = with_slots(
        a_spotpool(minimum=0, maximum=0, gateway=gateway), a_slot(0, state, at=NOON - MINUTE, node="node-0")
    )
    foreign = a_machine(0, pool="other", public_ip="203.0.113.7")
    pods = [a_pod("theirs", namespace="team-b", node="node-0", phase="Running", started=NOON - HOUR)]
    for node in (its_node(0), its_node(0, **CORDONED)):
        decision = decide(
            pool,
            machines=[foreign],
            nodes=[node],
            pods=pods,
            gateways=[Gateway(pool="team-a/one", at=NOON, ensured=True)],
            listed=NOON,
        )
        assert effects(decision) == []
        assert status_of(decision).instances == ()


@pytest.mark.parametrize("word", ["SoldOut", "Accepted"])
def test_what_came_of_a_token_in_the_hands_of_another_pool_says_nothing(word: str) -> None:
    """Tokens stand in statuses: a tenant who reads one and writes it into a pool of a cloud of their own has it answered as they like."""
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, "Launching", at=NOON - MINUTE))
    stolen = structs.replace(outcome(pool.status.slots[0], word, "ins-9"), pool="team-b/evil")
    decision = decide(pool, launches=[stolen], listed=NOON)
    assert status_of(decision).slots == pool.status.slots
    assert [each.token for each in launches(decision)] == ["token-0"]


# --- machines that claim nodes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "node",
    [
        pytest.param(old_node(provider_id="aws:///us-east-1a/ins-0"), id="by providerID"),
        pytest.param(old_node(), id="by address"),
        pytest.param(
            old_node(taints=(Taint(marks.POOL_FINALIZER, "team-b", "NoSchedule"),)), id="of another namespace"
        ),
    ],
)
def test_a_webhook_cannot_have_a_node_of_others_drained(node: Node) -> None:
    """Whoever runs the service may say any id and any address, so the node must say itself that it is the pool's."""
    pool = with_slots(a_spotpool(minimum=0, maximum=0, **WEBHOOK), a_slot(0, joined_at=""))
    lie = a_machine(0, provider="webhook")
    pods = [a_pod("theirs", namespace="team-b", node="victim", phase="Running", started=NOON - HOUR)]
    decision = decide(pool, machines=[lie], nodes=[node], pods=pods, listed=NOON)
    assert not any(isinstance(each, CordonNode | DrainNode) for each in effects(decision))
    assert status_of(decision).slots[0].node == ""


@pytest.mark.parametrize(
    "says",
    [
        {"labels": ((marks.INSTANCE, "ins-0"),)},
        {"taints": (Taint(marks.POOL_FINALIZER, "team-a", "NoSchedule"),), "provider_id": "any://x/ins-0"},
        {"taints": (Taint(marks.POOL_FINALIZER, "team-a", "NoSchedule"),)},
    ],
)
def test_a_node_that_says_so_is_that_of_a_webhooks_machine(says: dict[str, Any]) -> None:
    pool = with_slots(a_spotpool(minimum=0, maximum=1, **WEBHOOK), a_slot(0, joined_at=""))
    decision = decide(pool, machines=[a_machine(0, provider="webhook")], nodes=[old_node(**says)], listed=NOON)
    assert status_of(decision).slots[0].node == "victim"


def test_a_node_with_the_pools_taint_is_not_that_of_just_any_machine() -> None:
    taints = (Taint(marks.POOL_FINALIZER, "team-a", "NoSchedule"),)
    slot = a_slot(0, node="victim", at=NOON - MINUTE)
    pool = with_slots(a_spotpool(minimum=0, maximum=0), slot)
    node = old_node(taints=taints, addresses=("10.0.0.99",))
    assert effects(decide(pool, machines=[a_machine(0)], nodes=[node], listed=NOON))[0] == TerminateInstance(
        pool="team-a/one", instance="ins-0"
    )


def test_an_address_alone_does_not_make_an_old_node_the_machines() -> None:
    """Private addresses are given twice: in a network of the tenant's own a machine has that of any node."""
    pool = with_slots(a_spotpool(minimum=0, maximum=1), a_slot(0, joined_at=""))
    for node, name in (
        (old_node(), ""),
        (old_node(created=NOON - MINUTE), "victim"),
        (old_node(ready_since=NOON - MINUTE), "victim"),  # a name that an earlier machine had
    ):
        decision = decide(pool, machines=[a_machine(0)], nodes=[node], listed=NOON)
        assert status_of(decision).slots[0].node == name


# --- clouds that lie about time -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at", [NOON - MINUTE, NOON - 59 * MINUTE, times.moment("0001-01-01T00:00:00Z")])
def test_a_notice_for_a_moment_that_is_over_leaves_pods_their_time(at: int) -> None:
    """A cloud whose clock is behind, or a late notice: the machine runs, so it is drained and not cut off."""
    pool = with_slots(a_spotpool(minimum=0, maximum=1), a_slot(0, node="node-0"))
    machines, pods = [a_machine(0, reclaim_at=at)], [a_pod("busy", node="node-0", phase="Running", started=NOON - HOUR)]
    decision = decide(pool, machines=machines, nodes=[its_node(0)], pods=pods, listed=NOON)
    assert states(decision) == ["Draining"]
    assert ended(decision) == []
    pool = after(pool, decision)
    for seconds, gone in ((299, []), (300, ["ins-0"])):
        now = NOON + seconds * SECOND
        later = decide(pool, machines=machines, nodes=[its_node(0, **CORDONED)], pods=pods, now=now, listed=now)
        assert ended(later) == gone


# --- services that lie about prices ---------------------------------------------------------------------------------------------


def test_a_service_behind_another_webhook_says_nothing_of_prices_and_stock() -> None:
    """Two tenants may use the same words for region, zone and type."""
    pool = a_spotpool(minimum=1, maximum=1, maxPricePerHour="1", **WEBHOOK)
    own = an_offer("own", price_per_hour=900_000, at=NOON - 10 * MINUTE, endpoint=WEBHOOK["endpoint"])
    lies = (
        an_offer("lie", price_per_hour=900_000, available=False, at=NOON, endpoint="https://evil.example"),
        an_offer("lie", price_per_hour=5_000_000, at=NOON, endpoint="https://evil.example"),
    )
    for lie in lies:
        assert len(launches(decide(pool, offers=[own, lie], listed=NOON))) == 1
        assert launches(decide(pool, offers=[lie], listed=NOON)) == []


def an_offer(name: str, **fields: Any) -> Offer:
    base: dict[str, Any] = {"provider": "webhook", "region": "ap-singapore", "zone": ZONE, "instance_type": TYPE}
    return Offer(name=name, **base | fields)


# --- clouds that say much -------------------------------------------------------------------------------------------------------


def test_a_list_of_a_thousand_new_machines_is_no_thousand_events() -> None:
    """Each event is a write, and a service could name others every ten seconds."""
    machines = [a_machine(number) for number in range(1000)]
    decision = decide(a_spotpool(minimum=0, maximum=1000), machines=machines, listed=NOON)
    told = [each.message for each in decision.actions if isinstance(each, EmitEvent)]
    assert len(told) == 10
    assert told[-1].endswith("The same applies to 990 more.")


@pytest.mark.parametrize("owner", ["nobody", "two"])
def test_machines_that_a_webhook_invents_do_not_decide_whether_orphans_end(owner: str) -> None:
    """Neither that they stay, nor that they end although most of them are orphans only since a backup was restored."""
    orphan = a_machine(50, pool="gone")
    ours = [a_machine(number) for number in range(2 if owner == "nobody" else 0)]
    invented = [a_machine(number, pool=owner, provider="webhook", name=f"w-{number}") for number in range(100, 120)]
    first = times.text(NOON - 2 * HOUR)
    pool = with_slots(
        a_spotpool(minimum=0, maximum=2),
        *(a_slot(number) for number in range(len(ours))),
        orphans=(Orphan(instance_id="ins-50", since=first),),
    )
    other = a_spotpool("two", minimum=0, maximum=50, **WEBHOOK)
    decision = decide(pool, other, machines=[*ours, orphan, *invented], end_orphans=True, listed=NOON)
    assert ended(decision) == (["ins-50"] if owner == "nobody" else [])


# --- clocks that were turned back -----------------------------------------------------------------------------------------------


def test_what_a_clock_wrote_that_was_a_year_ahead_is_waited_for_no_longer_than_usual() -> None:
    ahead = NOON + 365 * 24 * HOUR
    slots = (
        a_slot(0, "Draining", at=ahead, node="node-0"),
        a_slot(1, at=ahead, joined_at=""),
        a_slot(2, "Cancelling", at=ahead),
    )
    rest = SoldOut(instance_type=TYPE, zone=ZONE, failures=1, until=times.text(ahead), reason="SoldOut")
    pool = with_slots(a_spotpool(minimum=3, maximum=3), *slots, sold_out=(rest,))
    machines, nodes = [a_machine(0), a_machine(1)], [its_node(0, **CORDONED)]
    pods = [a_pod("busy", node="node-0", phase="Running", started=NOON - HOUR)]
    pool = after(pool, decide(pool, machines=machines, nodes=nodes, pods=pods, listed=NOON))
    now = NOON + 36 * MINUTE
    later = decide(pool, machines=machines, nodes=nodes, pods=pods, now=now, listed=now)
    assert ended(later) == ["ins-0", "ins-1"]
    assert len(launches(later)) > 0
    assert "Cancelling" not in states(later)


@pytest.mark.parametrize("state", ["Launching", "Cancelling", "Running"])
def test_an_intent_without_a_token_is_none(state: str) -> None:
    """Each repeated call for it would buy one more machine, whatever the limits."""
    pool = with_slots(a_spotpool(minimum=0, maximum=5), a_slot(0, state, NOON, token="", instance_id=""))
    decision = decide(pool, listed=NOON)
    assert launches(decision) == []
    assert status_of(decision).slots == ()


@pytest.mark.parametrize("state", ["Launching", "Cancelling"])
@pytest.mark.parametrize("token", ["", "t" * 40])
def test_a_slot_with_a_machine_is_no_intent_whatever_it_says(state: str, token: str) -> None:
    """Its call would buy another one beside the machine that it has, or, once given up, the machine would be bought again."""
    pool = with_slots(a_spotpool(minimum=1, maximum=3), a_slot(0, state, NOON - HOUR, token=token, instance_id="ins-0"))
    decision = decide(pool, machines=[a_machine(0)], nodes=[its_node(0)], listed=NOON)
    assert launches(decision) == []
    assert states(decision) == ["Running"]
    absent = decide(pool, listed=NOON)
    assert launches(absent) == []
    assert states(absent) == ["Running"], "not to be in the list is no evidence"
