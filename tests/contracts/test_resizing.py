"""Pods that are resized in place, and our policy on that: the simulator says what the API server says."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube.transport import MERGE_PATCH
from headroom.api.policies import RESIZE, resizing
from tests.contracts import test_hold
from tests.contracts.cluster import Cluster
from tests.contracts.objects import Document
from tests.contracts.test_hold import BECAUSE, denied, make, stand, team_pod

policed_server, cluster = test_hold.policed_server, test_hold.cluster
BOTH = ["nvidia.com/gpu", "cpu"]


def a_pod(name: str = "p", **metadata: Any) -> Document:
    """A pod of 4 cores, with a sidecar."""

    def container(name: str, cpu: str, **more: Any) -> Document:
        return {"name": name, "image": "none", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}, **more}

    sidecar = container("sidecar", "500m", restartPolicy="Always")
    spec = {"containers": [container("main", "4"), container("other", "1")], "initContainers": [sidecar]}
    return team_pod(name, spec=spec, **metadata)


def of(cpu: str, container: str = "main", part: str = "containers", **more: str) -> Document:
    return {"spec": {part: [{"name": container, "resources": {"requests": {"cpu": cpu} | more}}]}}


async def sized(cluster: Cluster, change: Document, user: str = "editor", name: str = "p") -> Document:
    """Send the whole pod to the subresource, changed in some containers and whatever else is given."""
    pod = await cluster.get("Pod", name)
    for part, containers in change["spec"].items():
        asked = {each["name"]: each["resources"] for each in containers}
        for each in pod["spec"][part]:
            for amounts, values in asked.get(each["name"], {}).items():
                each["resources"].setdefault(amounts, {}).update(values)
    pod["metadata"] |= change.get("metadata", {})
    return await cluster.do("PUT", cluster.path("Pod", name) + "/resize", pod, user=user)


def requests(document: Document, part: str = "containers") -> list[str]:
    return [each["resources"]["requests"]["cpu"] for each in document["spec"][part]]


async def test_a_pod_is_resized_in_place(cluster: Cluster) -> None:
    made = await make(cluster, a_pod())
    grown = await sized(cluster, of("8") | {"metadata": {"labels": {"team": "b"}}})
    assert requests(grown) == ["8", "1"]
    assert grown["metadata"]["labels"] == {"team": "a"}
    assert grown["metadata"]["generation"] == made["metadata"]["generation"] + 1
    assert requests(await sized(cluster, of("1", "sidecar", "initContainers")), "initContainers") == ["1"]


@pytest.mark.parametrize(
    "change",
    [
        *(of("64"), of("4001m"), of("2", "other"), of("600m", "sidecar", "initContainers"), of("4.5", memory="512Mi")),
        of("1e18"),
    ],
    ids=["much", "a little", "another container", "a sidecar", "and shrinks", "more than is compared"],
)
async def test_a_covered_pod_does_not_grow_while_a_hold_stands(cluster: Cluster, change: Document) -> None:
    await make(cluster, a_pod())
    spec = await stand(cluster, resources=BOTH)
    told = {"budget": spec["budget"], "because": BECAUSE, "names": "cpu"}
    await denied(sized(cluster, change), RESIZE, resizing.GROWN, f"{cluster.namespace}/p", **told)
    await sized(cluster, change, "releaser")


async def test_to_shrink_and_to_grow_what_is_not_counted_is_free(cluster: Cluster) -> None:
    await make(cluster, a_pod())
    await stand(cluster, resources=BOTH)
    assert requests(await sized(cluster, of("2", memory="8Gi"))) == ["2", "1"]


async def test_a_hold_of_others_or_of_other_resources_lets_it_grow(cluster: Cluster) -> None:
    await make(cluster, a_pod("p", labels={"team": "b"}))
    await make(cluster, a_pod("q"))
    await stand(cluster, resources=["nvidia.com/gpu", "memory"])
    assert requests(await sized(cluster, of("64"))) == ["64", "1"]
    assert requests(await sized(cluster, of("64"), name="q")) == ["64", "1"]


async def test_a_resource_may_be_named_by_its_beginning(cluster: Cluster) -> None:
    await make(cluster, a_pod())
    spec = await stand(cluster, resources=["nvidia.com/gpu", "cp*"])
    told = {"budget": spec["budget"], "because": BECAUSE, "names": "cpu"}
    await denied(sized(cluster, of("5")), RESIZE, resizing.GROWN, f"{cluster.namespace}/p", **told)


async def test_a_limit_alone_is_a_request(cluster: Cluster) -> None:
    plain = team_pod(
        "p", spec={"containers": [{"name": "main", "image": "none", "resources": {"requests": {"memory": "1Gi"}}}]}
    )
    await make(cluster, plain)
    spec = await stand(cluster, resources=BOTH)
    told = {"budget": spec["budget"], "because": BECAUSE, "names": "cpu"}
    change = {"spec": {"containers": [{"name": "main", "resources": {"limits": {"cpu": "3"}}}]}}
    await denied(sized(cluster, change), RESIZE, resizing.GROWN, f"{cluster.namespace}/p", **told)


async def test_a_pod_does_not_grow_in_any_other_way(cluster: Cluster) -> None:
    await make(cluster, a_pod())
    body = a_pod()["spec"] | {"containers": [a_pod()["spec"]["containers"][0]]}
    reply = await cluster.ask("PATCH", cluster.path("Pod", "p"), {"spec": body}, user="admin", content_type=MERGE_PATCH)
    assert reply.status == 422
