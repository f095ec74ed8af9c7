"""One row for each kind of others: from it come the watch, the list, the document of `plan -f`, the right to read and the definition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from headroom.adapters import documents, outside
from headroom.adapters.kube.sources import SOURCES, FactSource, of_field
from headroom.api.resources import GROUP
from headroom.cli.preflight import needs
from headroom.model.changes import Topic
from headroom.model.devices import DeviceTable
from headroom.model.world import FACTS
from headroom.runtime.settings import Settings
from headroom.sim.catalog import definitions
from tests.adapters.simulated import Cluster, virtual

ROLES = Path(__file__).parents[2] / "deploy" / "rbac.yaml"
GPU_POD = {"containers": [{"name": "main", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}
every = pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.kind)


def document(source: FactSource, name: str = "x") -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": name} | ({"namespace": "lab"} if source.namespaced else {})
    if source.labels:
        metadata["labels"] = {source.labels: "true"}
    spec = {"jobTemplate": {"spec": {"template": {"spec": GPU_POD}}}} if source.kind == "CronJob" else {}
    return {"apiVersion": source.api_version, "kind": source.kind, "metadata": metadata, "spec": spec}


@every
def test_a_document_becomes_the_fact_of_its_field(source: FactSource) -> None:
    found = documents.read([("-", msgspec.json.encode(document(source)))])
    assert [each.name for each in found.of(source.field)] == ["x"]
    assert not found.ignored
    if source.labels:
        bare = document(source) | {"metadata": {"name": "x", "namespace": "lab"}}
        assert documents.read([("-", msgspec.json.encode(bare))]).facts == {}


@every
def test_the_operator_may_read_what_it_watches(source: FactSource) -> None:
    rules = [each for role in yaml.safe_load_all(ROLES.read_text()) for each in role.get("rules", ())]
    granted = {verb for rule in rules if _is_about(rule, source) for verb in rule["verbs"]}
    assert {"get", "list", "watch"} <= granted
    # In this mode the start asks for most.
    wanted = needs(Settings(bandwidth_mode="Native"))
    asked = {need.verb for need in wanted if (need.resource, need.group) == (source.plural, source.group)}
    assert {"get", "list", "watch"} <= asked


def _is_about(rule: dict[str, Any], source: FactSource) -> bool:
    return source.group in rule.get("apiGroups", ()) and source.plural in rule.get("resources", ())


@every
def test_a_source_has_its_field(source: FactSource) -> None:
    slots = {"claim_templates": "templates", "device_classes": "classes", "device_slices": "slices"}
    assert source.field in FACTS or hasattr(DeviceTable(), slots[source.field])


@virtual
async def test_what_is_new_of_a_source_is_told_by_its_topic_and_name() -> None:
    async with Cluster() as cluster:
        cluster.port.subscribe("all", frozenset(Topic) - {Topic.PODS, Topic.NODES, Topic.UNBOUND, Topic.SIGHT})
        cluster.port.take_changes("all")
        for source in [*of_field("node_pools"), *of_field("node_claims"), *of_field("holds"), *of_field("claims")]:
            cluster.server.put(document(source))
            await cluster.settle()
            declared = FACTS[source.field]
            [(key, fact)] = getattr(cluster.port.world(cluster.clock.now()), source.field).items()
            assert key == getattr(fact, declared.key)
            assert cluster.port.take_changes("all").facts[declared.topic] == {key}


def test_the_simulator_serves_what_is_played_and_what_people_give() -> None:
    served = {(each["spec"]["group"], each["spec"]["names"]["kind"]) for each in definitions()}
    assert {(each.group, each.kind) for each in SOURCES if each.played} <= served
    assert {("sim.headroom.dev", kind) for kind in outside.FIELDS} <= served
    assert all(each.played or each.group not in {group for group, _ in served} - {GROUP} for each in SOURCES)
