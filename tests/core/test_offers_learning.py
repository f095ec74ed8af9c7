"""What Karpenter's machines teach: launches, failures and interruptions, each of the offer that it was."""

from __future__ import annotations

from typing import Any

from headroom.core.offers.learning import TOGETHER_MS, news_of, records_of, with_zone_ids, with_zone_names
from headroom.model import times
from headroom.model.cloud_facts import Experience, LaunchFailure
from headroom.model.facts import NodeClaim, NodePool, Requirement
from headroom.model.world import World
from tests.builders import NOON
from tests.core.offer_stage import CAPACITY, TYPE, ZONE, an_offer

HOUR = times.HOUR
ZONE_ID = "topology.k8s.aws/zone-id"
LABELS = {TYPE: "g5.xlarge", ZONE: "us-east-1a", CAPACITY: "spot"}


def a_claim(name: str = "a", labels: dict[str, str] | None = None, **more: Any) -> NodeClaim:
    given: dict[str, Any] = {"uid": f"uid-{name}", "created": NOON - HOUR, "node_pool": "rung"}
    given |= {"launched": True, "registered": True}
    return NodeClaim(name=name, labels=tuple(sorted((labels or LABELS).items())), **given | more)


def a_pool(**values: tuple[str, ...]) -> NodePool:
    keys = {"types": TYPE, "zones": ZONE, "capacity": CAPACITY}
    given = {"types": ("g5.xlarge",), "zones": ("us-east-1a",), "capacity": ("spot",)} | values
    listed = tuple(Requirement(key=keys[key], operator="In", values=each) for key, each in given.items() if each)
    return NodePool(name="rung", requirements=listed)


def a_world(
    *claims: NodeClaim, pool: NodePool | None = None, failure: LaunchFailure | None = None, **more: Any
) -> World:
    pools = {"rung": pool or a_pool()}
    failures = {failure.claim: failure} if failure else {}
    return World(
        now=NOON, node_claims={each.name: each for each in claims}, node_pools=pools, launch_failures=failures, **more
    )


def failed(reason: str = "NotLaunched", node_pool: str = "rung") -> LaunchFailure:
    return LaunchFailure(claim="x", node_pool=node_pool, at=NOON - 5, reason=reason)


def outcomes(world: World) -> list[tuple[str, str, str]]:
    return [(each.instance_type, each.zone, each.outcome) for each in records_of(world)]


def test_a_machine_that_runs_is_a_launch_that_went_well() -> None:
    (found,) = records_of(a_world(a_claim()))
    assert (found.machine, found.instance_type, found.zone, found.capacity_type) == (
        "uid-a",
        "g5.xlarge",
        "us-east-1a",
        "spot",
    )
    assert (found.began, found.seen_until, found.outcome) == (NOON - HOUR, NOON, "")
    (by_id,) = records_of(a_world(a_claim(labels=LABELS | {ZONE_ID: "use1-az6"})))
    assert by_id.zone == "use1-az6"


def test_only_what_the_cloud_takes_back_is_an_interruption() -> None:
    ending: dict[str, Any] = {"deleting": NOON - 1}
    assert [each.outcome for each in records_of(a_world(a_claim(**ending)))] == ["Interrupted"]
    for claim, pool in (
        (a_claim(**ending, disrupted=True), a_pool()),
        (a_claim(labels=LABELS | {CAPACITY: "on-demand"}, **ending), a_pool()),
        (a_claim(**ending), NodePool(name="rung", deleting=True)),
        (a_claim(**ending, node_pool="gone"), a_pool()),
        (
            a_claim(**ending, registered=False),
            a_pool(),
        ),  # Karpenter gives up one that never joins, and marks that nowhere
        (a_claim(), a_pool()),
    ):
        assert [each.outcome for each in records_of(a_world(claim, pool=pool))] == [""]
    (found,) = records_of(a_world(a_claim(**ending)))
    assert found.seen_until == NOON - 1, "it counts until it was told to end"


def test_a_failed_launch_is_one_of_every_offer_it_could_have_been() -> None:
    pool = a_pool(types=("g5.xlarge", "g5.2xlarge"), zones=("us-east-1a", "us-east-1b"))
    found = outcomes(a_world(pool=pool, failure=failed()))
    assert found == [
        ("g5.2xlarge", "us-east-1a", "Failed"),
        ("g5.2xlarge", "us-east-1b", "Failed"),
        ("g5.xlarge", "us-east-1a", "Failed"),
        ("g5.xlarge", "us-east-1b", "Failed"),
    ]
    narrow = a_claim("x", labels={TYPE: "g5.2xlarge"}, launched=False)
    assert {kind for kind, _, _ in outcomes(a_world(narrow, pool=pool, failure=failed()))} == {"g5.2xlarge"}


def test_launches_that_fail_together_are_one_failure() -> None:
    at = NOON - NOON % TOGETHER_MS
    failures = {
        f"x-{number}": LaunchFailure(claim=f"x-{number}", node_pool="rung", at=at + number * times.SECOND)
        for number in range(400)
    }
    found = records_of(World(now=NOON + HOUR, node_pools={"rung": a_pool()}, launch_failures=failures))
    assert [(each.began - at) // times.SECOND for each in found] == [0, 300], "the first of each five minutes"


def test_a_failure_that_says_nothing_of_an_offer_is_none() -> None:
    many = tuple(f"g5.{number}xlarge" for number in range(65))
    for pool, failure in (
        (a_pool(), failed("NodeClassNotReady")),
        (a_pool(), failed(node_pool="gone")),
        (a_pool(types=()), failed()),
        (a_pool(zones=()), failed()),
        (a_pool(types=many), failed()),
    ):
        assert records_of(a_world(pool=pool, failure=failure)) == []


def test_nothing_is_told_of_what_is_not_seen_or_not_known() -> None:
    assert records_of(a_world(a_claim(), unseen={"nodeclaims.karpenter.sh": "down"})) == []
    assert records_of(a_world(a_claim(), cluster="")) == []
    assert records_of(a_world(a_claim(launched=False))) == []
    assert records_of(a_world(a_claim(labels={TYPE: "g5.xlarge"}))) == []


def test_the_ledger_hears_of_news_only() -> None:
    world = a_world(a_claim(), a_claim("b"), failure=failed())
    first = records_of(world)
    written = {each.key: each for each in first}
    assert news_of(first, {}, HOUR) == first
    assert news_of(first, written, HOUR) == []
    ended = records_of(a_world(a_claim(), a_claim("b", deleting=NOON)))
    assert [each.machine for each in news_of(ended, written, HOUR)] == ["uid-b"]
    later = records_of(World(now=NOON + HOUR, node_claims=world.node_claims, node_pools=world.node_pools))
    assert [each.machine for each in news_of(later, written, HOUR)] == ["uid-a", "uid-b"]


def test_zones_are_shared_by_id_and_read_by_name() -> None:
    offers = [an_offer(zone="us-east-1a"), an_offer(zone="us-east-1b")]
    (found,) = with_zone_ids(records_of(a_world(a_claim())), offers)
    assert found.zone == "use1-az6"
    told = [
        Experience(offer="g5.xlarge/use1-az6/spot", launches=2, failures=1, interruptions=1, machine_ms=HOUR + 5),
        Experience(offer="g5.xlarge/us-east-1a/spot", launches=1, machine_ms=HOUR),
        Experience(offer="g5.xlarge/apne1-az1/spot", launches=1),
    ]
    assert with_zone_names(told, offers) == {
        "g5.xlarge/us-east-1a/spot": Experience(
            offer="g5.xlarge/us-east-1a/spot", launches=3, failures=1, interruptions=1, machine_ms=2 * HOUR
        ),
        "g5.xlarge/apne1-az1/spot": Experience(offer="g5.xlarge/apne1-az1/spot", launches=1),
    }
