"""Server-side apply: who owns which field."""

from __future__ import annotations

import json

from headroom.adapters.kube.errors import Conflict, Invalid
from headroom.adapters.kube.transport import APPLY_PATCH
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, budget, config_map, pod, version_of


def owners(document: Document) -> set[str]:
    return {entry["manager"] for entry in document["metadata"].get("managedFields", [])}


async def test_apply_makes_what_is_not_there(cluster: Cluster) -> None:
    path, query = cluster.path("ConfigMap", "a"), {"fieldManager": "ours"}
    wanted = config_map("a", {"x": "1"})
    first = await cluster.ask("PATCH", path, wanted, query=query, content_type=APPLY_PATCH)
    again = await cluster.ask("PATCH", path, wanted, query=query, content_type=APPLY_PATCH)
    assert (first.status, again.status) == (201, 200)
    assert owners(json.loads(first.body)) == {"ours"}


async def test_applying_the_same_again_keeps_the_version(cluster: Cluster) -> None:
    first = await cluster.apply(config_map("a", {"x": "1"}, labels={"colour": "red"}), "ours")
    again = await cluster.apply(config_map("a", {"x": "1"}, labels={"colour": "red"}), "ours")
    assert version_of(again) == version_of(first)


async def test_a_field_of_somebody_else_is_a_conflict_that_names_them(cluster: Cluster) -> None:
    await cluster.apply(config_map("a", {"x": "1", "y": "1"}), "theirs")
    with refused(Conflict, 409, "Conflict") as refusal:
        await cluster.apply(config_map("a", {"x": "2"}), "ours")
    assert refusal.value.causes == ((".data.x", 'conflict with "theirs"'),)
    assert "theirs" in refusal.value.message
    assert (await cluster.get("ConfigMap", "a"))["data"] == {"x": "1", "y": "1"}


async def test_a_field_that_a_plain_write_set_is_a_conflict_too(cluster: Cluster) -> None:
    await cluster.apply(config_map("a", {"x": "1"}), "ours")
    path = cluster.path("ConfigMap", "a")
    patch = {"data": {"x": "2"}}
    await cluster.do(
        "PATCH", path, patch, query={"fieldManager": "people"}, content_type="application/merge-patch+json"
    )
    with refused(Conflict, 409, "Conflict") as refusal:
        await cluster.apply(config_map("a", {"x": "1"}), "ours")
    field, message = refusal.value.causes[0]
    assert field == ".data.x"
    assert message.startswith('conflict with "people"')


async def test_force_takes_a_field_over(cluster: Cluster) -> None:
    await cluster.apply(config_map("a", {"x": "1", "y": "1"}), "theirs")
    written = await cluster.apply(config_map("a", {"x": "2"}), "ours", force=True)
    assert written["data"] == {"x": "2", "y": "1"}
    with refused(Conflict, 409, "Conflict"):
        await cluster.apply(config_map("a", {"x": "1", "y": "1"}), "theirs")


async def test_the_same_value_may_have_two_owners(cluster: Cluster) -> None:
    await cluster.apply(config_map("a", {"x": "1"}), "theirs")
    written = await cluster.apply(config_map("a", {"x": "1"}), "ours")
    assert owners(written) == {"theirs", "ours"}
    left = await cluster.apply(config_map("a", {}), "theirs")
    assert left["data"] == {"x": "1"}


async def test_a_field_that_is_left_out_is_removed_if_it_was_ours(cluster: Cluster) -> None:
    await cluster.apply(config_map("a", {"x": "1", "y": "1"}), "ours")
    await cluster.apply(config_map("a", {"z": "1"}), "theirs")
    written = await cluster.apply(config_map("a", {"x": "1"}), "ours")
    assert written["data"] == {"x": "1", "z": "1"}


async def test_apply_wants_to_know_who_asks(cluster: Cluster) -> None:
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.do("PATCH", cluster.path("ConfigMap", "a"), config_map("a"), content_type=APPLY_PATCH)
    assert [field for field, _ in refusal.value.causes] == ["fieldManager"]


async def test_the_parts_of_a_custom_resource_have_owners_too(cluster: Cluster) -> None:
    await cluster.apply(budget("a"), "theirs")
    ours = {"apiVersion": "headroom.dev/v1alpha1", "kind": "GPUWorkloadBudget", "metadata": {"name": "a"}}
    with refused(Conflict, 409, "Conflict") as refusal:
        await cluster.apply(ours | {"spec": {"quota": {"windowHours": 48}}}, "ours")
    assert [field for field, _ in refusal.value.causes] == [".spec.quota.windowHours"]
    written = await cluster.apply(ours | {"spec": {"paused": True}}, "ours")
    assert written["spec"]["paused"] is True
    assert written["spec"]["quota"]["windowHours"] == 24


async def test_items_of_a_keyed_list_have_owners_of_their_own(cluster: Cluster) -> None:
    made = await cluster.create(budget("a"))
    assert "status" not in made
    for owner in ("one", "two"):
        condition = {"type": owner.title(), "status": "True", "reason": "Said", "message": "", "lastTransitionTime": ""}
        condition["lastTransitionTime"] = "2026-01-01T00:00:00Z"
        body = {key: made[key] for key in ("apiVersion", "kind")} | {"metadata": {"name": "a"}}
        written = await cluster.apply(body | {"status": {"conditions": [condition]}}, owner, part="status")
    assert [condition["type"] for condition in written["status"]["conditions"]] == ["One", "Two"]


async def test_a_gate_is_lifted_by_a_patch_of_its_list(cluster: Cluster) -> None:
    made = await cluster.create(pod("a", gates=("example.com/theirs", "headroom.dev/budget")))
    written = await cluster.json_patch(
        made,
        {"op": "test", "path": "/metadata/uid", "value": made["metadata"]["uid"]},
        {"op": "remove", "path": "/spec/schedulingGates/1"},
    )
    assert written["spec"]["schedulingGates"] == [{"name": "example.com/theirs"}]
