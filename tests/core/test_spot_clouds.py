"""What clouds and their neighbours bring: prices, orphans, gateways, nodes by their names, and lies."""

from typing import Any

import pytest
from msgspec import structs

from headroom.api import marks
from headroom.api.spot_pools_status import Purchases
from headroom.model.actions import AddGatewayTarget, RemoveGatewayTarget
from headroom.model.cloud_facts import Gateway, Offer
from tests.builders import NOON, a_node
from tests.core.spot_stage import (
    HOUR,
    MINUTE,
    POOL,
    TYPE,
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

ZONES: dict[str, Any] = {"availabilityZone": None, "zones": ["a", "b"], "minimum": 1, "maximum": 1}


def an_offer(zone: str, price: int | None, kind: str = TYPE, **fields: Any) -> Offer:
    base: dict[str, Any] = {"provider": "tencent", "region": "ap-singapore", "zone": zone, "instance_type": kind}
    return Offer(name=f"{kind}/{zone}/{price}", price_per_hour=price, **base | {"at": NOON - MINUTE} | fields)


def first_zone(*offers: Offer, **spec: Any) -> str | None:
    found = launches(decide(a_spotpool(**ZONES | spec), offers=offers))
    return found[0].zone if found else None


# --- prices ---------------------------------------------------------------------------------------------------------------------


def test_alternatives_are_tried_as_listed_or_by_price() -> None:
    offers = an_offer("a", 2_000_000), an_offer("b", 1_000_000)
    assert first_zone(*offers) == "a"
    assert first_zone(*offers, allocation="LowestPrice") == "b"
    assert first_zone(offers[0], allocation="LowestPrice") == "a", "a known price comes before an unknown one"


def test_the_price_cap_needs_a_known_price_at_or_below_it() -> None:
    assert first_zone(an_offer("b", 1_500_000), maxPricePerHour="1.5") == "b"
    assert first_zone(an_offer("b", 1_500_001), maxPricePerHour="1.5") is None
    assert first_zone(maxPricePerHour="1.5") is None
    assert first_zone(an_offer("b", 1_000_000, at=NOON - 2 * HOUR), maxPricePerHour="1.5") is None, "too old"
    dear = decide(
        a_spotpool(**ZONES | {"maxPricePerHour": 1}), offers=[an_offer("a", 2_000_000), an_offer("b", 3_000_000)]
    )
    assert condition(dear, "MachinesMissing") == ("True", "PriceTooHigh")
    assert "$2.00" in dear.message


@pytest.mark.parametrize("price", [0, -1, 10**15])
def test_absurd_prices_are_neither_cheap_nor_accepted(price: int) -> None:
    assert first_zone(an_offer("b", price), maxPricePerHour="1.5") is None
    assert first_zone(an_offer("a", price), an_offer("b", 2_000_000), allocation="LowestPrice") == "b"


def test_offers_of_other_clouds_regions_and_charge_types_do_not_count() -> None:
    for other in ({"provider": "aws"}, {"region": "ap-tokyo"}, {"capacity_type": "on-demand"}):
        assert first_zone(an_offer("b", 1, **other), maxPricePerHour="1.5") is None
    assert first_zone(an_offer("b", 1, capacity_type="SPOTPAID"), maxPricePerHour="1.5") == "b"


def test_the_newest_offer_counts_and_what_is_sold_out_is_passed_over() -> None:
    newer = an_offer("a", 9_000_000, at=NOON)
    assert first_zone(an_offer("a", 1_000_000), newer, an_offer("b", 2_000_000), allocation="LowestPrice") == "b"
    assert first_zone(an_offer("a", 1, available=False)) == "b"


def test_purchases_of_the_last_hour_are_limited() -> None:
    pool = a_spotpool(minimum=5, maximum=5, maxPurchasesPerHour=3)
    first = decide(pool)
    assert len(launches(first)) == 3
    assert condition(first, "MachinesMissing") == ("True", "PurchaseLimit")
    accepted = [outcome(each, "Accepted", f"ins-{each.slot}") for each in status_of(first).slots]
    machines = [a_machine(number, "SHUTDOWN", reclaim_at=NOON) for number in range(3)]
    lost = decide(after(pool, first), launches=accepted, machines=machines, listed=NOON)
    assert launches(lost) == [], "all three were bought, and are gone"
    pool = after(pool, lost)
    assert launches(decide(pool, listed=NOON + HOUR, now=NOON + HOUR)) == []
    assert len(launches(decide(pool, listed=NOON + HOUR + MINUTE, now=NOON + HOUR + MINUTE))) == 3


def test_unless_said_otherwise_ten_an_hour_or_twice_the_maximum() -> None:
    assert len(launches(decide(a_spotpool(minimum=8, maximum=8)))) == 8
    bought = Purchases(minute="2026-11-15T11:30:00Z", count=9)
    pool = with_slots(a_spotpool(minimum=4, maximum=4), purchases=(bought,))
    assert len(launches(decide(pool))) == 1


# --- orphans --------------------------------------------------------------------------------------------------------------------


def strays(count: int) -> list[Any]:
    return [a_machine(number, name=f"stray-{number}", pool="gone") for number in range(count)]


def test_orphans_are_reported_by_the_first_pool_and_left_alone() -> None:
    own = [a_machine(number) for number in range(2)]
    one, two = a_spotpool("one"), a_spotpool("two", minimum=0)
    decision = decide(one, two, machines=[*own, *strays(1)], listed=NOON)
    assert [each.instance_id for each in status_of(decision).orphans] == ["stray-0"]
    assert status_of(decision).orphan_count == 1
    assert condition(decision, "Orphans") == ("True", "NoOwner")
    assert ended(decision) == []
    assert status_of(decide(two, one, machines=[*own, *strays(1)], listed=NOON)).orphans == ()


def test_with_the_setting_orphans_end_an_hour_after_first_sight() -> None:
    own = [a_machine(number) for number in range(2)]
    pool = with_slots(a_spotpool(), a_slot(0), a_slot(1))
    first = decide(pool, machines=[*own, *strays(2)], end_orphans=True, listed=NOON)
    pool = after(pool, first)
    early, late = NOON + HOUR - 1, NOON + HOUR
    assert ended(decide(pool, machines=[*own, *strays(2)], end_orphans=True, listed=early, now=early)) == []
    assert ended(decide(pool, machines=[*own, *strays(2)], end_orphans=True, listed=late, now=late)) == [
        "stray-0",
        "stray-1",
    ]
    assert ended(decide(pool, machines=[*own, *strays(3)], end_orphans=True, listed=late, now=late)) == [], (
        "more than half"
    )
    stopped = decide(pool, machines=[*own, *strays(2)], end_orphans=True, listed=late, now=late, stopped=True)
    assert ended(stopped) == []


def test_a_restored_backup_with_new_uids_ends_nothing_and_reports_all() -> None:
    old = [a_machine(number, pool="before") for number in range(3)]
    pool = a_spotpool(minimum=0, maximum=3)
    for now in (NOON, NOON + 2 * HOUR):
        decision = decide(pool, machines=old, end_orphans=True, listed=now, now=now)
        assert ended(decision) == []
        assert status_of(decision).orphan_count == 3
        pool = after(pool, decision)


# --- gateways -------------------------------------------------------------------------------------------------------------------


def test_the_gateway_gets_what_is_missing_and_loses_what_is_stale() -> None:
    gateway = {"adminUrl": "http://kong:8001", "upstream": "llama", "port": 8080}
    pool = with_slots(a_spotpool(gateway=gateway, join=False), a_slot(0), a_slot(1))
    machines = [a_machine(0, public_ip="1.0.0.1"), a_machine(1, public_ip="1.0.0.2")]
    known = Gateway(pool=POOL, at=NOON, ours=("1.0.0.1:8080", "1.0.0.3:8080"), others=("9.9.9.9:80",), ensured=True)
    decision = decide(pool, machines=machines, gateways=[known], listed=NOON)
    assert effects(decision) == [
        AddGatewayTarget(pool=POOL, gateway_target="1.0.0.2:8080"),
        RemoveGatewayTarget(pool=POOL, gateway_target="1.0.0.3:8080"),
    ]
    settled = structs.replace(known, ours=("1.0.0.1:8080", "1.0.0.2:8080"))
    assert effects(decide(pool, machines=machines, gateways=[settled], listed=NOON)) == []
    unread = structs.replace(known, at=0)
    assert effects(decide(pool, machines=machines, gateways=[unread], listed=NOON)) == []
    bare = structs.replace(settled, ensured=False)
    assert effects(decide(pool, machines=machines, gateways=[bare], listed=NOON)) == [
        AddGatewayTarget(pool=POOL, gateway_target="1.0.0.1:8080")
    ]
    pending = [machines[0], structs.replace(machines[1], state="PENDING")]
    assert effects(decide(pool, machines=pending, gateways=[settled], listed=NOON)) == [
        RemoveGatewayTarget(pool=POOL, gateway_target="1.0.0.2:8080")
    ]


# --- nodes ----------------------------------------------------------------------------------------------------------------------


def joined(**node: Any) -> str:
    pool = with_slots(a_spotpool(minimum=1, maximum=1), a_slot(0, joined_at="", at=NOON - MINUTE))
    decision = decide(pool, machines=[a_machine(0)], nodes=[a_node("n", **node)], listed=NOON)
    return status_of(decision).slots[0].node


def test_a_node_is_known_by_provider_id_then_label_then_address() -> None:
    assert joined(provider_id="qcloud:///2/ins-0") == "n"
    assert joined(labels=((marks.INSTANCE, "ins-0"),)) == "n"
    assert joined(addresses=("10.0.0.0",)) == "n"
    assert joined(provider_id="qcloud:///2/xins-0") == ""


def test_a_label_or_address_is_no_evidence_against_what_the_cloud_wrote() -> None:
    assert joined(provider_id="qcloud:///2/ins-9", labels=((marks.INSTANCE, "ins-0"),)) == ""
    assert joined(provider_id="qcloud:///2/ins-9", addresses=("10.0.0.0",)) == ""
    assert joined(labels=((marks.INSTANCE, "ins-9"),), addresses=("10.0.0.0",)) == ""


# --- lies -----------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("off", [-HOUR, HOUR])
def test_a_clock_that_is_an_hour_off_launches_and_ends_nothing_more(off: int) -> None:
    pool = with_slots(a_spotpool(), a_slot(0, at=NOON + off), a_slot(1, "Launching", at=NOON + off))
    machines = [a_machine(0, launched_at=NOON + off), a_machine(1, launched_at=NOON + off)]
    decision = decide(pool, machines=machines, listed=NOON)
    assert states(decision) == ["Running", "Running"]
    assert effects(decision) == []


def test_machines_that_vanish_and_come_back_are_the_same_ones() -> None:
    pool = with_slots(a_spotpool(), a_slot(0), a_slot(1))
    gone = decide(pool, machines=[a_machine(0)], listed=NOON)
    assert effects(gone) == []
    back = decide(after(pool, gone), machines=[a_machine(0), a_machine(1)], listed=NOON + MINUTE, now=NOON + MINUTE)
    assert [each.instance_id for each in status_of(back).slots] == ["ins-0", "ins-1"]
    assert effects(back) == []


def test_slot_tags_that_make_no_sense_are_adopted_all_the_same() -> None:
    machines = [
        a_machine(0, name=f"ins-{text!r}", tags=a_machine(0).tags | {marks.SLOT_TAG: text})
        for text in ("", "-1", "x", "9" * 50, "٣")
    ]
    decision = decide(a_spotpool(minimum=0, maximum=5), machines=machines, listed=NOON)
    assert sorted(each.slot for each in status_of(decision).slots) == [0, 1, 2, 3, 4]
