"""Our own kinds: status apart from spec, defaults, and the rules of their schemas."""

from __future__ import annotations

import pytest

from headroom.adapters.kube import paths
from headroom.adapters.kube.errors import Conflict, Invalid, NotFound, Rejected
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, budget, uid_of, version_of

KIND = "GPUWorkloadBudget"


def with_spec(changes: Document) -> Document:
    made = budget("a")
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = made["spec"]
        for parent in parents:
            place = place[parent]
        if value is None:
            del place[last]
        else:
            place[last] = value
    return made


async def test_defaults_are_filled_in(cluster: Cluster) -> None:
    made = await cluster.create(budget("a"))
    assert made["spec"]["gpuResourceName"] == "nvidia.com/gpu"
    assert made["spec"]["paused"] is False
    assert made["spec"]["enforcement"]["gracePeriodSeconds"] == 30
    assert made["metadata"]["generation"] == 1


async def test_a_field_that_is_removed_gets_its_default_again(cluster: Cluster) -> None:
    made = await cluster.create(with_spec({"gpuResourceName": "cpu"}))
    written = await cluster.merge(made, {"spec": {"gpuResourceName": None}})
    assert written["spec"]["gpuResourceName"] == "nvidia.com/gpu"


async def test_a_plain_write_leaves_the_status_alone(cluster: Cluster) -> None:
    made = await cluster.create(budget("a") | {"status": {"trackedPods": 9}})
    assert "status" not in made
    await cluster.merge(made, {"status": {"trackedPods": 3}}, "status")
    read = await cluster.get(KIND, "a")
    written = await cluster.replace(read | {"status": {"trackedPods": 9}})
    assert written["status"]["trackedPods"] == 3
    assert version_of(written) == version_of(read)
    merged = await cluster.merge(made, {"status": {"trackedPods": 9}})
    assert merged["status"]["trackedPods"] == 3


async def test_a_write_of_the_status_leaves_the_rest_alone(cluster: Cluster) -> None:
    made = await cluster.create(budget("a", labels={"colour": "red"}))
    patch = {
        "metadata": {"labels": {"colour": "blue"}, "annotations": {"example.com/x": "1"}},
        "spec": {"paused": True},
        "status": {"trackedPods": 3},
    }
    written = await cluster.merge(made, patch, "status")
    assert written["status"]["trackedPods"] == 3
    assert written["spec"] == made["spec"]
    assert written["metadata"]["labels"] == {"colour": "red"}
    assert "annotations" not in written["metadata"]
    assert written["metadata"]["generation"] == 1
    assert int(version_of(written)) > int(version_of(made))


async def test_only_a_new_spec_is_a_new_generation(cluster: Cluster) -> None:
    made = await cluster.create(budget("a"))
    labelled = await cluster.merge(made, {"metadata": {"labels": {"colour": "red"}}})
    assert labelled["metadata"]["generation"] == 1
    changed = await cluster.merge(made, {"spec": {"paused": True}})
    assert changed["metadata"]["generation"] == 2
    same = await cluster.merge(made, {"spec": {"paused": True}})
    assert same["metadata"]["generation"] == 2


async def test_a_status_is_written_to_exactly_the_object_it_is_about(cluster: Cluster) -> None:
    old = await cluster.create(budget("a"))
    await cluster.delete(old)
    new = await cluster.create(budget("a"))
    path = paths.status(KIND, cluster.namespace, "a")
    with refused(Conflict, 409, "Conflict"):
        await cluster.kube.patch_status(path, {"trackedPods": 1}, uid=uid_of(old))
    assert "status" not in await cluster.get(KIND, "a")
    await cluster.kube.patch_status(path, {"trackedPods": 2}, uid=uid_of(new), resource_version=version_of(new))
    with refused(Conflict, 409, "Conflict"):
        await cluster.kube.patch_status(path, {"trackedPods": 3}, uid=uid_of(new), resource_version=version_of(new))
    assert (await cluster.get(KIND, "a"))["status"]["trackedPods"] == 2


async def test_only_a_test_in_a_json_patch_guards_the_uid_of_a_status(cluster: Cluster) -> None:
    made = await cluster.create(budget("a"))
    other = await cluster.create(budget("b"))
    # A merge patch may name any uid here: the server takes the metadata of the object that it finds.
    written = await cluster.merge(made, {"metadata": {"uid": uid_of(other)}, "status": {"trackedPods": 1}}, "status")
    assert written["status"]["trackedPods"] == 1
    assert uid_of(written) == uid_of(made)
    path = cluster.path(KIND, "a", "status")
    guard = {"op": "test", "path": "/metadata/uid", "value": uid_of(other)}
    with refused(Invalid, 422, "Invalid"):
        await cluster.kube.json_patch(path, [guard, {"op": "add", "path": "/status/trackedPods", "value": 2}])
    with refused(Conflict, 409, "Conflict"):
        metadata = {**written["metadata"], "uid": uid_of(other)}
        await cluster.kube.replace(path, {**written, "metadata": metadata, "status": {"trackedPods": 2}})
    assert (await cluster.get(KIND, "a"))["status"]["trackedPods"] == 1


async def test_a_status_of_the_wrong_form_is_invalid(cluster: Cluster) -> None:
    made = await cluster.create(budget("a"))
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.merge(made, {"status": {"trackedPods": "three"}}, "status")
    assert refusal.value.causes[0][0] == "status.trackedPods"


async def test_a_status_of_what_is_not_there_is_not_found(cluster: Cluster) -> None:
    with refused(NotFound, 404, "NotFound"):
        await cluster.merge(budget("a"), {"status": {"trackedPods": 1}}, "status")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"quota.gpuHours": "0"}, "spec.quota.gpuHours"),
        ({"quota.gpuHours": "-5"}, "spec.quota.gpuHours"),
        ({"quota.gpuHours": "lots"}, "spec.quota.gpuHours"),
        ({"quota.windowHours": 0}, "spec.quota.windowHours"),
        ({"quota.windowHours": None}, "spec.quota.windowHours"),
        ({"quota.windowHours": "24"}, "spec.quota.windowHours"),
        ({"enforcement.action": "Explode"}, "spec.enforcement.action"),
        ({"selector": {}}, "spec.selector"),
        (
            {"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            "spec.selector.matchExpressions[0].values",
        ),
    ],
)
async def test_a_spec_that_breaks_a_rule_is_invalid_and_the_field_is_named(
    cluster: Cluster, changes: Document, field: str
) -> None:
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.create(with_spec(changes))
    assert next(cause for cause, _ in refusal.value.causes if cause != "<nil>") == field
    assert not await cluster.exists(budget("a"))


async def test_a_rule_says_what_it_wants(cluster: Cluster) -> None:
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.create(with_spec({"quota.gpuHours": "0"}))
    assert any("must be more than 0 and at most 1000000000" in message for _, message in refusal.value.causes)


async def test_a_patch_cannot_break_a_rule_either(cluster: Cluster) -> None:
    made = await cluster.create(budget("a"))
    with refused(Invalid, 422, "Invalid"):
        await cluster.merge(made, {"spec": {"quota": {"gpuHours": "-1"}}})
    assert (await cluster.get(KIND, "a"))["spec"]["quota"]["gpuHours"] == "10"


async def test_an_unknown_field_is_refused_when_asked_for_and_dropped_otherwise(cluster: Cluster) -> None:
    with refused(Rejected, 400, "BadRequest") as refusal:
        await cluster.create(with_spec({"colour": "red"}), fieldValidation="Strict")
    assert 'unknown field "spec.colour"' in refusal.value.message
    made = await cluster.create(with_spec({"colour": "red"}))
    assert "colour" not in made["spec"]


async def test_a_resource_without_a_spec_is_invalid(cluster: Cluster) -> None:
    bare = budget("a")
    del bare["spec"]
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.create(bare)
    assert refusal.value.causes[0][0] == "spec"


def definition(group: str) -> Document:
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"things.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }


async def test_a_kind_comes_and_goes_with_its_definition(cluster: Cluster) -> None:
    group = f"{cluster.namespace}.example.com"
    definitions = paths.of("apiextensions.k8s.io", "v1", "customresourcedefinitions")
    things = paths.of(group, "v1", "things", cluster.namespace)
    thing = {"apiVersion": f"{group}/v1", "kind": "Thing", "metadata": {"name": "a"}}

    async def is_served() -> bool:
        return (await cluster.ask("GET", things)).status == 200

    async def is_gone() -> bool:
        return not await is_served()

    for _ in range(2):
        with refused(NotFound, 404):
            await cluster.do("GET", things)
        await cluster.do("POST", definitions, definition(group))
        await cluster.until(is_served, "the kind is served")
        assert (await cluster.do("GET", things))["items"] == []
        await cluster.until(lambda: made(cluster, things, thing), "the kind takes objects")
        await cluster.do("DELETE", f"{definitions}/things.{group}")
        await cluster.until(is_gone, "the kind is gone")


async def made(cluster: Cluster, path: str, document: Document) -> bool:
    """A new kind may be served for reading a moment before it takes writes."""
    return (await cluster.ask("POST", path, document)).status == 201
