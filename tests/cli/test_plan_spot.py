"""`headroom plan -f` with machines and offers of a cloud as documents: they are the complete view of now."""

import json
from typing import Any

from tests.cli.conftest import Headroom

NOW = "2026-11-15T12:00:00Z"
POOL = """\
apiVersion: headroom.dev/v1alpha1
kind: Spotpool
metadata: {name: inference, namespace: team-a, uid: u-1}
spec:
  region: ap-singapore
  zones: [ap-singapore-2, ap-singapore-3]
  instanceType: GN7.2XLARGE32
  minimum: 2
  maximum: 3
  maxPricePerHour: "1.5"
---
"""
MACHINE = """\
apiVersion: sim.headroom.dev/v1
kind: Instance
metadata: {name: %s}
spec:
  provider: tencent
  region: ap-singapore
  zone: ap-singapore-2
  instanceType: GN7.2XLARGE32
  state: %s
  node: %s
  launchedAt: 2026-11-15T11:00:00Z
  tags: {headroom.dev/cluster: default, headroom.dev/owner-uid: %s, headroom.dev/slot: "0"}
---
apiVersion: v1
kind: Node
metadata: {name: node-%s}
status: {conditions: [{type: Ready, status: "True"}], allocatable: {nvidia.com/gpu: 1}}
---
"""
OFFER = """\
apiVersion: sim.headroom.dev/v1
kind: Offer
metadata: {name: offer}
spec: {provider: tencent, region: ap-singapore, zone: ap-singapore-3, instanceType: GN7.2XLARGE32, pricePerHour: "1.2", available: true}
---
"""


def machine(name: str, state: str = "RUNNING", owner: str = "u-1") -> str:
    return MACHINE % (name, state, f"node-{name}", owner, name)


def planned(headroom: Headroom, *documents: str, more: tuple[str, ...] = ()) -> dict[str, Any]:
    done = headroom("plan", "-f", "-", "--now", NOW, "-o", "json", *more, stdin="".join(documents).encode())
    assert done.code == 0, done.err + done.out
    found = json.loads(done.out)
    return next(each for each in found["decisions"] if each["resource"]["kind"] == "Spotpool")


def effects(decision: dict[str, Any]) -> list[dict[str, Any]]:
    return [each for each in decision["actions"] if each["type"] != "EmitEvent"]


def test_what_is_missing_is_launched_where_the_offer_is(headroom: Headroom) -> None:
    decision = planned(headroom, POOL, machine("ins-1"), OFFER)
    mark, launch = effects(decision)
    assert mark == {"type": "AddFinalizer", "object": "Spotpool/team-a/inference"}
    assert launch.pop("token") == decision["status"]["slots"][1]["token"]
    assert launch == {
        "type": "LaunchInstance",
        "pool": "team-a/inference",
        "slot": 1,
        "instanceType": "GN7.2XLARGE32",
        "zone": "ap-singapore-3",
    }
    assert decision["status"]["instances"] == [{"instanceId": "ins-1"}]


def test_without_an_offer_below_the_cap_nothing_is_launched(headroom: Headroom) -> None:
    decision = planned(headroom, POOL, machine("ins-1"))
    assert effects(decision) == []
    assert decision["reason"] == "PriceUnknown"


def test_machines_of_others_do_not_count(headroom: Headroom) -> None:
    foreign = machine("ins-9", owner="u-2")
    other_cluster = planned(headroom, POOL, machine("ins-1"), OFFER, more=("--cluster-id", "prod"))
    assert len(effects(other_cluster)) == 3
    assert [each["type"] for each in effects(planned(headroom, POOL, foreign, OFFER))].count("LaunchInstance") == 2
    assert planned(headroom, POOL, foreign, OFFER)["status"]["orphanCount"] == 1


def test_a_stopped_machine_is_ended_and_replaced(headroom: Headroom) -> None:
    decision = planned(headroom, POOL, machine("ins-1"), machine("ins-2", "STOPPED"), OFFER)
    assert [each["type"] for each in effects(decision)] == ["AddFinalizer", "LaunchInstance", "TerminateInstance"]
    assert effects(decision)[2] == {"type": "TerminateInstance", "pool": "team-a/inference", "instance": "ins-2"}
