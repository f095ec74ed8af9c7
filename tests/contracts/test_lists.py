"""Reading lists: pages, selectors, and what a resource version promises."""

from __future__ import annotations

import json

import pytest

from headroom.adapters.kube.errors import Gone, NotFound, Rejected, ServerError
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import config_map, pod, version_of

COLOURS = {"a": "red", "b": "blue", "c": "blue"}


async def three(cluster: Cluster) -> None:
    for name, colour in COLOURS.items():
        await cluster.create(config_map(name, labels={"colour": colour, name: "yes"}))


async def test_a_limit_cuts_the_list_into_pages(cluster: Cluster) -> None:
    await three(cluster)
    first = await cluster.listed("ConfigMap", limit=2)
    assert [item["metadata"]["name"] for item in first["items"]] == ["a", "b"]
    assert first["metadata"]["remainingItemCount"] == 1
    second = await cluster.listed("ConfigMap", limit=2, _continue=first["metadata"]["continue"])
    assert [item["metadata"]["name"] for item in second["items"]] == ["c"]
    assert "continue" not in second["metadata"]
    assert "remainingItemCount" not in second["metadata"]


async def test_all_pages_show_the_moment_of_the_first(cluster: Cluster) -> None:
    await three(cluster)
    first = await cluster.listed("ConfigMap", limit=1)
    await cluster.delete(config_map("b"))
    await cluster.merge(config_map("c"), {"data": {"new": "yes"}})
    await cluster.create(config_map("d"))
    rest = await cluster.listed("ConfigMap", limit=500, _continue=first["metadata"]["continue"])
    assert [item["metadata"]["name"] for item in rest["items"]] == ["b", "c"]
    assert "data" not in rest["items"][1]
    assert version_of(rest) == version_of(first)
    assert await cluster.names("ConfigMap") == ["a", "c", "d"]


async def test_the_client_reads_all_pages(cluster: Cluster) -> None:
    await three(cluster)
    pages = [json.loads(body) async for body in cluster.kube.pages(cluster.path("ConfigMap"), limit=1)]
    assert [item["metadata"]["name"] for page in pages for item in page["items"]] == ["a", "b", "c"]
    assert len({version_of(page) for page in pages}) == 1


async def test_an_old_continue_token_is_expired(forgetful: Cluster) -> None:
    await three(forgetful)
    first = await forgetful.listed("ConfigMap", limit=1)
    await forgetful.create(config_map("d"))
    await forgetful.compact()
    with refused(Gone, 410, "Expired"):
        await forgetful.listed("ConfigMap", limit=1, _continue=first["metadata"]["continue"])


async def test_a_continue_token_that_nobody_gave_is_refused(cluster: Cluster) -> None:
    with refused(Rejected, 400, "BadRequest"):
        await cluster.listed("ConfigMap", limit=1, _continue="bm9uc2Vuc2U")


@pytest.mark.parametrize(
    ("selector", "names"),
    [
        ("colour=blue", ["b", "c"]),
        ("colour==blue,b", ["b"]),
        ("colour!=blue", ["a"]),
        ("colour in (red, green)", ["a"]),
        ("colour notin (red)", ["b", "c"]),
        ("a", ["a"]),
        ("!a", ["b", "c"]),
        ("shape!=round", ["a", "b", "c"]),
    ],
)
async def test_labels_select(cluster: Cluster, selector: str, names: list[str]) -> None:
    await three(cluster)
    assert await cluster.names("ConfigMap", labelSelector=selector) == names


async def test_a_selector_that_cannot_be_read_is_refused(cluster: Cluster) -> None:
    with refused(Rejected, 400, "BadRequest"):
        await cluster.listed("ConfigMap", labelSelector="colour in blue")


async def test_fields_select(cluster: Cluster) -> None:
    node = await cluster.node()
    await cluster.create(pod("waits"))
    await cluster.run(await cluster.create(pod("runs")), node)
    assert await cluster.names("Pod", fieldSelector="metadata.name=waits") == ["waits"]
    assert await cluster.names("Pod", fieldSelector=f"spec.nodeName={node}") == ["runs"]
    assert await cluster.names("Pod", fieldSelector="spec.nodeName=") == ["waits"]
    assert await cluster.names("Pod", fieldSelector="status.phase!=Running") == ["waits"]


async def test_a_field_that_cannot_be_selected_is_refused(cluster: Cluster) -> None:
    with refused(Rejected, 400, "BadRequest"):
        await cluster.listed("ConfigMap", fieldSelector="data.colour=red")


async def test_an_empty_list_has_a_version_all_the_same(cluster: Cluster) -> None:
    found = await cluster.listed("Lease")
    assert found["items"] == []
    assert int(version_of(found)) > 0
    assert found["kind"] == "LeaseList"


async def test_a_list_has_the_version_of_the_last_write_at_least(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a"))
    assert int(version_of(await cluster.listed("ConfigMap"))) >= int(version_of(made))


async def test_a_version_of_the_future_is_too_large(cluster: Cluster) -> None:
    now = int(version_of(await cluster.listed("ConfigMap")))
    with refused(ServerError, 504, "Timeout") as refusal:
        await cluster.listed("ConfigMap", resourceVersion=now + 1_000_000)
    assert "Too large resource version" in refusal.value.message
    assert refusal.value.retry_after == 1


async def test_an_exact_version_shows_the_past(cluster: Cluster) -> None:
    await cluster.create(config_map("a"))
    past = await cluster.listed("ConfigMap")
    await cluster.delete(config_map("a"))
    query = {"resourceVersion": version_of(past), "resourceVersionMatch": "Exact"}
    assert await cluster.names("ConfigMap", **query) == ["a"]
    assert version_of(await cluster.listed("ConfigMap", **query)) == version_of(past)
    assert await cluster.names("ConfigMap") == []


async def test_an_exact_version_that_is_forgotten_is_gone(forgetful: Cluster) -> None:
    past = await forgetful.listed("ConfigMap")
    await forgetful.create(config_map("a"))
    await forgetful.create(config_map("b"))
    await forgetful.compact()
    with refused(Gone, 410, "Expired"):
        await forgetful.listed("ConfigMap", resourceVersion=version_of(past), resourceVersionMatch="Exact")


async def test_a_list_of_the_whole_cluster_has_every_namespace(cluster: Cluster) -> None:
    await cluster.create(config_map("mine"))
    found = await cluster.do("GET", cluster.path("ConfigMap", namespace=""))
    assert cluster.namespace in {item["metadata"]["namespace"] for item in found["items"]}
    narrow = await cluster.do("GET", cluster.path("ConfigMap", namespace="nowhere"))
    assert narrow["items"] == []


async def test_an_unknown_kind_is_not_found(cluster: Cluster) -> None:
    with refused(NotFound, 404):
        await cluster.do("GET", f"/apis/headroom.dev/v1alpha1/namespaces/{cluster.namespace}/nothings")
