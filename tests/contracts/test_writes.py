"""Creating, replacing and patching objects: what is kept, what is refused, and with which words."""

from __future__ import annotations

import json

from headroom.adapters.kube.errors import AlreadyExists, Conflict, Invalid, NotFound, Rejected
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import budget, config_map, pod, uid_of, version_of


async def test_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    with refused(NotFound, 404, "NotFound") as refusal:
        await cluster.get("ConfigMap", "nothing")
    assert 'configmaps "nothing" not found' in refusal.value.message


async def test_the_server_names_dates_and_versions_what_it_makes(cluster: Cluster) -> None:
    reply = await cluster.ask("POST", cluster.path("ConfigMap"), config_map("a", uid="mine", generation=7))
    made = json.loads(reply.body)
    assert reply.status == 201
    assert made["metadata"]["namespace"] == cluster.namespace
    assert len(uid_of(made)) == 36
    assert made["metadata"]["creationTimestamp"].endswith("Z")
    assert int(version_of(made)) > 0
    read = await cluster.get("ConfigMap", "a")
    assert read["metadata"] == made["metadata"]
    assert (read["apiVersion"], read["kind"]) == ("v1", "ConfigMap")


async def test_a_name_can_be_taken_only_once(cluster: Cluster) -> None:
    await cluster.create(config_map("a"))
    with refused(AlreadyExists, 409, "AlreadyExists"):
        await cluster.create(config_map("a"))


async def test_a_name_can_be_left_to_the_server(cluster: Cluster) -> None:
    wanted = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "event-"}}
    names = {(await cluster.create(wanted))["metadata"]["name"] for _ in range(3)}
    assert len(names) == 3
    assert all(name.startswith("event-") and len(name) == len("event-") + 5 for name in names)


async def test_an_object_without_a_name_is_invalid(cluster: Cluster) -> None:
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}})
    assert refusal.value.causes[0][0] == "metadata.name"


async def test_a_bad_name_is_invalid(cluster: Cluster) -> None:
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.create(config_map("Not_A_Name"))
    assert [field for field, _ in refusal.value.causes] == ["metadata.name"]


async def test_nothing_can_be_made_in_a_namespace_that_is_missing(cluster: Cluster) -> None:
    with refused(NotFound, 404, "NotFound") as refusal:
        await cluster.kube.create(cluster.path("ConfigMap", namespace="nowhere"), config_map("a"))
    assert 'namespaces "nowhere" not found' in refusal.value.message


async def test_the_address_and_the_body_must_agree(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    with refused(Rejected, 400, "BadRequest"):
        await cluster.kube.replace(cluster.path("ConfigMap", "b"), made)
    with refused(Rejected, 400, "BadRequest"):
        await cluster.create(config_map("a", namespace="elsewhere"))


async def test_a_new_object_must_have_no_version(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    await cluster.delete(made)
    reply = await cluster.ask("POST", cluster.path("ConfigMap"), made)
    assert reply.status == 500
    assert b"resourceVersion should not be set on objects to be created" in reply.body


async def test_what_is_no_json_is_a_bad_request(cluster: Cluster) -> None:
    reply = await cluster.transport().request("POST", cluster.path("ConfigMap"), body=b"{")
    assert reply.status == 400


# Whole objects


async def test_replacing_on_top_of_an_old_version_is_a_conflict(cluster: Cluster) -> None:
    old = await cluster.create(config_map("a", {"by": "first"}))
    await cluster.merge(old, {"data": {"by": "second"}})
    with refused(Conflict, 409, "Conflict") as refusal:
        await cluster.replace(old | {"data": {"by": "third"}})
    assert "the object has been modified" in refusal.value.message
    assert (await cluster.get("ConfigMap", "a"))["data"] == {"by": "second"}


async def test_replacing_the_newest_version_takes_everything_over(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", {"x": "1", "y": "2"}, labels={"colour": "red"}))
    written = await cluster.replace(
        config_map("a", {"x": "3"}, resourceVersion=version_of(made), namespace=cluster.namespace)
    )
    assert written["data"] == {"x": "3"}
    assert "labels" not in written["metadata"]
    assert uid_of(written) == uid_of(made)
    assert written["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert int(version_of(written)) > int(version_of(made))


async def test_replacing_without_a_version_depends_on_the_kind(cluster: Cluster) -> None:
    await cluster.create(config_map("a"))
    written = await cluster.replace(config_map("a", {"x": "1"}))
    assert written["data"] == {"x": "1"}
    await cluster.create(budget("a"))
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.replace(budget("a"))
    assert [field for field, _ in refusal.value.causes] == ["metadata.resourceVersion"]


async def test_replacing_another_object_of_the_same_name_is_a_conflict(cluster: Cluster) -> None:
    old = await cluster.create(config_map("a"))
    await cluster.delete(old)
    await cluster.create(config_map("a"))
    del old["metadata"]["resourceVersion"]
    with refused(Conflict, 409, "Conflict"):
        await cluster.replace(old)


async def test_replacing_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    await cluster.delete(made)
    for gone in (made, config_map("a")):
        with refused(NotFound, 404, "NotFound"):
            await cluster.replace(gone)


# Patches


async def test_a_merge_patch_sets_and_null_removes(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", {"x": "1", "y": "2"}, labels={"colour": "red"}))
    written = await cluster.merge(made, {"data": {"x": None, "z": "3"}, "metadata": {"labels": None}})
    assert written["data"] == {"y": "2", "z": "3"}
    assert "labels" not in written["metadata"]


async def test_a_merge_patch_replaces_a_list_as_a_whole(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", finalizers=["example.com/one", "example.com/two"]))
    written = await cluster.merge(made, {"metadata": {"finalizers": ["example.com/three"]}})
    assert written["metadata"]["finalizers"] == ["example.com/three"]
    await cluster.merge(made, {"metadata": {"finalizers": None}})


async def test_patching_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    with refused(NotFound, 404, "NotFound"):
        await cluster.merge(config_map("a"), {"data": {"x": "1"}})


async def test_a_json_patch_does_all_or_nothing(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", {"x": "1"}))
    add = {"op": "add", "path": "/data/y", "value": "2"}
    with refused(Invalid, 422, "Invalid"):
        await cluster.json_patch(made, add, {"op": "test", "path": "/data/x", "value": "other"})
    assert (await cluster.get("ConfigMap", "a"))["data"] == {"x": "1"}
    written = await cluster.json_patch(made, {"op": "test", "path": "/data/x", "value": "1"}, add)
    assert written["data"] == {"x": "1", "y": "2"}


async def test_a_json_patch_adds_replaces_and_removes_in_lists(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", annotations={"example.com/x": "1"}, finalizers=["e.com/a", "e.com/b"]))
    written = await cluster.json_patch(
        made,
        {"op": "remove", "path": "/metadata/finalizers/0"},
        {"op": "add", "path": "/metadata/finalizers/-", "value": "e.com/c"},
        {"op": "replace", "path": "/metadata/annotations/example.com~1x", "value": "2"},
    )
    assert written["metadata"]["finalizers"] == ["e.com/b", "e.com/c"]
    assert written["metadata"]["annotations"] == {"example.com/x": "2"}
    await cluster.merge(made, {"metadata": {"finalizers": None}})


async def test_a_json_patch_cannot_remove_what_is_not_there(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", {"x": "1"}))
    with refused(Invalid, 422, "Invalid"):
        await cluster.json_patch(made, {"op": "remove", "path": "/data/y"})


async def test_an_unknown_form_of_patch_is_refused(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    reply = await cluster.ask("PATCH", cluster.path_of(made), {}, content_type="text/plain")
    assert reply.status == 415


async def test_a_patch_meant_for_another_version_is_a_conflict(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", {"x": "1"}))
    await cluster.merge(made, {"data": {"x": "2"}})
    with refused(Conflict, 409, "Conflict"):
        await cluster.merge(made, {"metadata": {"resourceVersion": version_of(made)}, "data": {"x": "3"}})
    newest = await cluster.get("ConfigMap", "a")
    right = {"metadata": {"resourceVersion": version_of(newest), "uid": uid_of(newest)}, "data": {"x": "4"}}
    assert (await cluster.merge(made, right))["data"] == {"x": "4"}


async def test_a_patch_meant_for_another_uid_is_a_conflict_though_the_server_says_invalid(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", {"x": "1"}))
    other = await cluster.create(config_map("b"))
    with refused(Conflict, 422, "Invalid") as refusal:
        await cluster.merge(made, {"metadata": {"uid": uid_of(other)}, "data": {"x": "2"}})
    assert {field for field, _ in refusal.value.causes} == {"metadata.uid"}
    assert (await cluster.get("ConfigMap", "a"))["data"] == {"x": "1"}


async def test_a_write_that_changes_nothing_keeps_the_version(cluster: Cluster) -> None:
    made = await cluster.create(budget("a", labels={"colour": "red"}))
    assert version_of(await cluster.merge(made, {"metadata": {"labels": {"colour": "red"}}})) == version_of(made)
    assert version_of(await cluster.merge(made, {"metadata": {"annotations": {"none": None}}})) == version_of(made)
    assert version_of(await cluster.replace(made)) == version_of(made)
    step = {"op": "replace", "path": "/spec/quota/windowHours", "value": 24}
    assert version_of(await cluster.json_patch(made, step)) == version_of(made)


async def test_a_trial_changes_nothing(cluster: Cluster) -> None:
    tried = await cluster.create(config_map("a"), dryRun="All")
    assert tried["metadata"]["uid"]
    assert not await cluster.exists(config_map("a"))


async def test_every_write_has_a_later_version_than_the_one_before(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    changed = [await cluster.merge(made, {"data": {"x": str(number)}}) for number in range(3)]
    later = await cluster.create(pod("later"))
    versions = [int(version_of(each)) for each in (made, *changed, later)]
    assert versions == sorted(set(versions))


async def test_fields_of_metadata_that_are_the_servers_cannot_be_changed(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    written = await cluster.merge(made, {"metadata": {"creationTimestamp": "2001-01-01T00:00:00Z", "generation": 9}})
    assert written["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    assert written["metadata"].get("generation") == made["metadata"].get("generation")
