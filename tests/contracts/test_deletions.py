"""Deleting: finalizers, preconditions, owners, grace, and whole namespaces."""

from __future__ import annotations

import json

from headroom.adapters.kube.errors import Conflict, Forbidden, Invalid, NotFound
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import budget, config_map, namespace, owner, pod, uid_of, version_of

OURS = "headroom.dev/ours"


async def test_what_is_deleted_is_gone_at_once(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    reply = await cluster.ask("DELETE", cluster.path_of(made))
    assert reply.status == 200
    assert json.loads(reply.body)["status"] == "Success"
    with refused(NotFound, 404, "NotFound"):
        await cluster.get("ConfigMap", "a")
    with refused(NotFound, 404, "NotFound"):
        await cluster.delete(made)


async def test_a_pod_that_goes_at_once_is_first_seen_to_be_going(cluster: Cluster) -> None:
    made = await cluster.create(pod("a"))
    async with cluster.watch("Pod", version_of(made)) as watch:
        await cluster.delete(made)
        going, gone = await watch.take(2)
    assert (going.type, gone.type) == ("MODIFIED", "DELETED")
    assert going.object["metadata"]["deletionGracePeriodSeconds"] == 0
    assert going.object["metadata"]["generation"] == gone.object["metadata"]["generation"] == 2
    assert going.version < gone.version


async def test_the_next_object_of_the_same_name_is_another_one(cluster: Cluster) -> None:
    old = await cluster.create(config_map("a"))
    await cluster.delete(old)
    new = await cluster.create(config_map("a"))
    assert uid_of(new) != uid_of(old)
    assert int(version_of(new)) > int(version_of(old))


async def test_a_deletion_meant_for_another_uid_is_a_conflict(cluster: Cluster) -> None:
    old = await cluster.create(config_map("a"))
    await cluster.delete(old, uid=uid_of(old))
    new = await cluster.create(config_map("a"))
    with refused(Conflict, 409, "Conflict") as refusal:
        await cluster.delete(old, uid=uid_of(old))
    assert uid_of(new) in refusal.value.message
    assert await cluster.exists(new)


async def test_a_deletion_meant_for_another_version_is_a_conflict(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    changed = await cluster.merge(made, {"data": {"x": "1"}})
    with refused(Conflict, 409, "Conflict"):
        await cluster.delete(made, resource_version=version_of(made))
    await cluster.delete(made, resource_version=version_of(changed))
    assert not await cluster.exists(made)


async def test_a_finalizer_holds_an_object_back_until_it_is_removed(cluster: Cluster) -> None:
    made = await cluster.create(budget("a", finalizers=[OURS]))
    async with cluster.watch("GPUWorkloadBudget", version_of(made)) as watch:
        going = await cluster.delete(made)
        assert going["metadata"]["deletionTimestamp"]
        assert going["metadata"]["deletionGracePeriodSeconds"] == 0
        assert going["metadata"]["generation"] == 2
        assert (await cluster.get("GPUWorkloadBudget", "a"))["metadata"]["finalizers"] == [OURS]
        await cluster.merge(made, {"metadata": {"finalizers": None}})
        assert not await cluster.exists(made)
        events = await watch.take(2)
    assert [event.type for event in events] == ["MODIFIED", "DELETED"]


async def test_deleting_twice_is_deleting_once(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", finalizers=[OURS]))
    first = await cluster.delete(made)
    again = await cluster.delete(made)
    assert version_of(again) == version_of(first)
    assert again["metadata"]["deletionTimestamp"] == first["metadata"]["deletionTimestamp"]
    await cluster.merge(made, {"metadata": {"finalizers": None}})


async def test_what_is_being_deleted_can_be_changed_but_gets_no_new_finalizer(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", finalizers=[OURS]))
    await cluster.delete(made)
    changed = await cluster.merge(made, {"data": {"x": "1"}})
    assert changed["data"] == {"x": "1"}
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.merge(made, {"metadata": {"finalizers": [OURS, "example.com/late"]}})
    assert {field for field, _ in refusal.value.causes} == {"metadata.finalizers"}
    await cluster.merge(made, {"metadata": {"finalizers": None}})


async def test_what_belongs_to_a_deleted_owner_is_collected(cluster: Cluster) -> None:
    made = await cluster.create(config_map("owner"))
    child = await cluster.create(config_map("child", ownerReferences=[owner(made)]))
    other = await cluster.create(config_map("other"))
    await cluster.delete(made)
    await cluster.until_gone(child)
    assert await cluster.exists(other)


async def test_a_child_of_two_owners_outlives_the_first(cluster: Cluster) -> None:
    one, two = await cluster.create(config_map("one")), await cluster.create(config_map("two"))
    child = await cluster.create(config_map("child", ownerReferences=[owner(one), owner(two)]))
    lonely = await cluster.create(config_map("lonely", ownerReferences=[owner(one)]))
    await cluster.delete(one)
    await cluster.until_gone(lonely)
    assert await cluster.exists(child)
    await cluster.delete(two)
    await cluster.until_gone(child)


async def test_an_owner_that_never_was_does_not_keep_its_child(cluster: Cluster) -> None:
    made = await cluster.create(config_map("owner"))
    await cluster.delete(made)
    await cluster.create(config_map("owner"))
    child = await cluster.create(config_map("child", ownerReferences=[owner(made)]))
    await cluster.until_gone(child)


async def test_orphans_are_left_alone(cluster: Cluster) -> None:
    made = await cluster.create(config_map("owner"))
    child = await cluster.create(config_map("child", ownerReferences=[owner(made)]))
    await cluster.delete(made, propagation="Orphan")
    await cluster.until_gone(made)
    assert "ownerReferences" not in (await cluster.get("ConfigMap", "child"))["metadata"]
    assert uid_of(await cluster.get("ConfigMap", "child")) == uid_of(child)


async def test_an_unbound_pod_goes_at_once(cluster: Cluster) -> None:
    made = await cluster.create(pod("a"))
    await cluster.delete(made)
    assert not await cluster.exists(made)


async def test_a_bound_pod_gets_its_grace_and_waits_for_its_kubelet(cluster: Cluster) -> None:
    made = await cluster.run(await cluster.create(pod("a")), await cluster.node())
    going = await cluster.delete(made)
    metadata = going["metadata"]
    assert metadata["deletionGracePeriodSeconds"] == 30
    assert metadata["deletionTimestamp"] > metadata["creationTimestamp"]
    assert (await cluster.get("Pod", "a"))["status"]["phase"] == "Running"
    again = await cluster.delete(made)
    assert again["metadata"]["deletionTimestamp"] == metadata["deletionTimestamp"]
    await cluster.delete(made, grace_seconds=0)
    assert not await cluster.exists(made)


async def test_grace_can_be_asked_for_and_shortened(cluster: Cluster) -> None:
    made = await cluster.run(await cluster.create(pod("a")), await cluster.node())
    longer = await cluster.delete(made, grace_seconds=60)
    assert longer["metadata"]["deletionGracePeriodSeconds"] == 60
    shorter = await cluster.delete(made, grace_seconds=5)
    assert shorter["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter["metadata"]["deletionTimestamp"] < longer["metadata"]["deletionTimestamp"]


async def test_a_pod_that_has_ended_needs_no_grace(cluster: Cluster) -> None:
    made = await cluster.run(await cluster.create(pod("a")), await cluster.node())
    await cluster.merge(made, {"status": {"phase": "Succeeded"}}, "status")
    await cluster.delete(made)
    assert not await cluster.exists(made)


async def test_a_namespace_takes_all_that_is_in_it_along(cluster: Cluster) -> None:
    name = f"{cluster.namespace}-doomed"
    await cluster.create(namespace(name))
    path = cluster.path("ConfigMap", namespace=name)
    await cluster.kube.create(path, config_map("held", finalizers=[OURS]))
    await cluster.do("DELETE", cluster.path("Namespace", name))

    async def closed() -> bool:
        return bool((await cluster.get("Namespace", name))["status"]["phase"] == "Terminating")

    await cluster.until(closed, "the namespace is closed")
    with refused(Forbidden, 403, "Forbidden") as refusal:
        await cluster.kube.create(path, config_map("late"))
    assert "being terminated" in refusal.value.message
    assert refusal.value.verb == ""
    held = cluster.path("ConfigMap", "held", namespace=name)

    async def deleting() -> bool:
        return "deletionTimestamp" in (await cluster.do("GET", held))["metadata"]

    await cluster.until(deleting, "what is in it is being deleted")
    await cluster.kube.merge_patch(held, {"metadata": {"finalizers": None}})
