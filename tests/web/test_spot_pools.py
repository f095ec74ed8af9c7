"""The pages of spot pools as data: what a pool and its slots are doing, for what each viewer may see."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from headroom.api.kinds import problems
from headroom.model.times import HOUR, MINUTE, SECOND, text
from headroom.runtime.journal import Journal
from headroom.sim.ledger import MemoryLedger
from headroom.web.pages import Model, frame, framed
from headroom.web.pages.spot_pools import EXAMPLE
from headroom.web.scope import EVERYTHING, Scope
from tests.builders import NOON, a_resource, a_used_world
from tests.core.stage import running
from tests.web import pools, spots
from tests.web.showing import Made, page_at

TEAM = Scope(namespaces=frozenset({"team-a"}))
ELSEWHERE = Scope(namespaces=frozenset({"elsewhere"}), nodes=True)


def made_of(*left: pools.Left, **more: Any) -> Made:
    made = Made(a_used_world(*(each.resource for each in left), **(spots.facts_of() | more)))
    made.journal = Journal(MemoryLedger())  # the plans would have their own word
    pools.leave(made, *left)
    return made


def shown(made: Made, *address: str, scope: Scope = EVERYTHING) -> Model:
    body = page_at(*address)(made.view(), scope)
    assert body is not None
    return framed(frame(made.view()), scope, "") | body


@pytest.fixture
def made() -> Made:
    pods = [running("train", HOUR, gpus=3, node="spot-0"), running("done", HOUR, node="spot-0", phase="Succeeded")]
    return made_of(spots.troubled(), pods=pods, nodes=spots.nodes_of())


def test_a_pool_is_told_in_numbers_and_in_words(made: Made) -> None:
    assert shown(made, "spot")["pools"]["team-a/inference"] == {
        "namespace": "team-a",
        "name": "inference",
        "state": "JoinFailing",
        "tone": "bad",
        "provider": "aws",
        "region": "us-east-1",
        "types": ["g5.12xlarge", "g6.12xlarge"],
        "size": 4,
        "minimum": 1,
        "maximum": 6,
        "desired": "Demand",
        "states": {"Launching": 1, "Cancelling": 1, "Running": 2, "Draining": 1, "Ending": 1},
        "pricePerHour": "6.25",
        "unservedPods": 3,
        "orphans": 1,
        "reason": "Launching",
        "message": "4 machines, 1 launching.",
    }


STEADY = spots.SLOTS[:2]


@pytest.mark.parametrize(
    ("status", "spec", "state", "tone"),
    [
        ({"slots": STEADY}, {}, "Steady", "good"),
        ({}, {}, "Changing", "good"),
        (
            {"conditions": (spots.READY, spots.NOTICES), "sold_out": spots.SOLD_OUT, "slots": STEADY},
            {},
            "Steady",
            "good",
        ),
        ({"conditions": (spots.READY, spots.ORPHANS)}, {}, "Orphans", "warn"),
        ({"conditions": (spots.READY, spots.ORPHANS, spots.WITHOUT)}, {}, "Unserved", "warn"),
        ({"conditions": (spots.READY, spots.WITHOUT, spots.MISSING)}, {}, "MachinesMissing", "warn"),
        ({"conditions": (spots.READY, spots.MISSING, spots.BRAKED)}, {}, "Braked", "warn"),
        ({"conditions": (spots.READY, spots.BRAKED, spots.FAILING)}, {}, "JoinFailing", "bad"),
        ({"conditions": (spots.condition("Ready", "ListingOld", "Old.", "False"),)}, {}, "NotReady", "bad"),
        ({"size": None, "conditions": ()}, {}, "Waiting", "idle"),
        ({}, {"paused": True}, "Paused", "idle"),
    ],
)
def test_the_state_is_one_word(status: dict[str, Any], spec: dict[str, Any], state: str, tone: str) -> None:
    row = shown(made_of(spots.a_spot_pool(spec=spec, **status)), "spot")["pools"]["team-a/inference"]
    assert (row["state"], row["tone"]) == (state, tone)


def test_each_slot_says_what_it_is_doing(made: Made) -> None:
    found = shown(made, "spot", "team-a", "inference")["slots"]
    assert list(found) == ["0", "1", "2", "3", "4", "10"]
    assert found["0"] == {
        "state": "Running",
        "since": text(NOON - 2 * HOUR),
        "instance": "i-000",
        "cloudState": "RUNNING",
        "publicIp": "203.0.113.7",
        "type": "g5.12xlarge",
        "zone": "us-east-1a",
        "node": "spot-0",
        "nodeState": "ready",
        "gpus": "4",
        "allocated": "3",
        "pricePerHour": "2.2",
        "launchedAt": text(NOON - 2 * HOUR),
        "joinedAt": text(NOON - 115 * MINUTE),
    }
    assert (found["3"]["nodeState"], found["3"]["reclaimAt"]) == ("cordoned", text(NOON + 150 * SECOND))
    assert found["2"] == {
        "state": "Launching",
        "since": text(NOON - MINUTE),
        "type": "g5.12xlarge",
        "zone": "us-east-1b",
    }


def test_one_pool_has_what_rests_who_is_unserved_and_its_settings(made: Made) -> None:
    page = shown(made, "spot", "team-a", "inference")
    assert [(each["type"], each["zone"], each["reason"]) for each in page["soldOut"]] == [
        ("g5.12xlarge", "us-east-1b", "SoldOut"),
        ("g6.12xlarge", "*", "QuotaReached"),
    ]
    assert [each["pod"] for each in page["unserved"]] == ["team-a/huge"]
    pool = page["pool"]
    assert (pool["purchases"], pool["orphans"]) == (3, 1)
    assert pool["listedAt"] == text(NOON - 12 * SECOND)
    assert pool["settings"]["maxPricePerHour"] == "3.50"


def test_who_sees_one_namespace_sees_its_pools_and_no_others() -> None:
    made = made_of(spots.a_spot_pool(), spots.a_spot_pool("other", namespace="elsewhere"))
    assert list(shown(made, "spot", scope=TEAM)["pools"]) == ["team-a/inference"]
    assert "example" not in shown(made, "spot", scope=TEAM)
    assert page_at("spot", "elsewhere", "other")(made.view(), TEAM) is None
    assert page_at("spot", "team-a", "inference")(made.view(), TEAM) is not None
    assert page_at("spot", "team-a", "inference")(made.view(), ELSEWHERE) is None
    assert page_at("spot", "team-a", "nothing")(made.view(), EVERYTHING) is None


def test_nodes_tell_what_their_machines_cost_and_when_they_are_taken_back(made: Made) -> None:
    found = shown(made, "nodes")["nodes"]
    assert (found["spot-0"]["pricePerHour"], "reclaimAt" in found["spot-0"]) == ("2.2", False)
    assert found["spot-3"]["reclaimAt"] == text(NOON + 150 * SECOND)


def test_an_invalid_pool_says_what_is_wrong_with_it() -> None:
    made = Made(a_used_world(a_resource("Spotpool", "broken", maximum=1, minimum=2)))
    namespace = next(iter(shown(made, "spot")["pools"].values()))["namespace"]
    page = shown(made, "spot", namespace, "broken")
    assert (page["pool"]["state"], page["slots"]) == ("Invalid", {})
    assert "must be at least minimum" in page["pool"]["problems"][0]


def test_without_a_pool_there_is_one_to_begin_with() -> None:
    page = shown(Made(a_used_world()), "spot")
    assert (page["pools"], page["example"]) == ({}, EXAMPLE)
    assert problems(yaml.safe_load(EXAMPLE)) == []
