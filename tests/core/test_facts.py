"""A fact is declared at its field of the World, and everything that treats facts alike reads it there."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import structs

from headroom.model import batch_facts, cloud_facts, device_facts, facts
from headroom.model.changes import Topic
from headroom.model.snapshots import load, save
from headroom.model.world import FACTS, World

GIVEN: dict[type, dict[str, Any]] = {
    facts.SwitchCall: {"machine": "n1", "command": "Wake", "at": 1, "outcome": "Accepted"},
    facts.NodeClaim: {"name": "n1", "uid": "u"},
    facts.NodePool: {"name": "n1", "uid": "u"},
    facts.Workload: {"kind": "Job", "uid": "u", "namespace": "lab", "name": "n1"},
    batch_facts.CronJob: {"uid": "u", "namespace": "lab", "name": "n1"},
    device_facts.Claim: {"namespace": "lab", "name": "n1", "uid": "u"},
    cloud_facts.Listing: {"pool": "n1", "at": 1, "problem": "Throttled"},
    cloud_facts.Launch: {"token": "n1", "pool": "lab/spot", "at": 1, "outcome": "SoldOut"},
    facts.NodeClass: {"kind": "EC2NodeClass", "name": "n1", "uid": "u", "spec": {"role": "r"}},
    cloud_facts.LaunchFailure: {"claim": "n1", "node_pool": "p", "at": 1},
    cloud_facts.WriteProblem: {"object": "n1", "action": "ApplyNodePool", "at": 1, "message": "no"},
    cloud_facts.PoolWrite: {"node_pool": "n1", "uid": "u", "at": 1, "asked": "a", "made": "b"},
    cloud_facts.OfferFeed: {"pool": "n1", "at": 1, "problem": "Prices"},
    cloud_facts.Experience: {"offer": "n1", "launches": 2, "failures": 1},
    cloud_facts.Gateway: {"pool": "n1", "at": 1, "ours": ("10.0.0.1:8080",)},
}
KEYS = {"workloads": "Job/lab/n1", "cron_jobs": "CronJob/lab/n1", "claims": "lab/n1", "node_classes": "EC2NodeClass/n1"}

SETTINGS = {"unseen", "pool_namespaces"}
"""Mappings that are no facts; they are saved under their own names."""


def test_what_an_administrator_set_for_spot_pools_comes_back_from_json() -> None:
    world = World(now=1_000, instances_given=False, pool_namespaces={"lab/spot": ("team-a",)}, end_orphans=True)
    found = load(save(world))
    assert (found.instances_given, found.pool_namespaces, found.end_orphans) == (False, {"lab/spot": ("team-a",)}, True)


@pytest.mark.parametrize("name", FACTS)
def test_every_declared_fact_comes_back_from_json(name: str) -> None:
    declared = FACTS[name]
    fact = declared.type(**GIVEN.get(declared.type, {"name": "n1"}))
    found: Any = declared.named([fact])
    assert found == {KEYS.get(name, "n1"): fact}
    world = World(**{"now": 1_000, name: found})
    assert getattr(load(save(world)), name) == found


def test_an_older_snapshot_that_lacks_a_fact_is_read_without_it() -> None:
    world = World(now=1_000)
    for name in FACTS:
        text = save(world).replace(f' "{name}": [],\n'.encode(), b"").replace(f',\n "{name}": []'.encode(), b"")
        assert f'"{name}"'.encode() not in text
        assert save(load(text)) == save(world)


def test_every_mapping_of_facts_in_the_world_is_declared() -> None:
    """One that is not would be lost in a snapshot."""
    mappings = {each.name for each in structs.fields(World) if each.default_factory is dict}
    assert mappings == {*FACTS, *SETTINGS}
    assert {each.topic for each in FACTS.values()} <= set(Topic)
