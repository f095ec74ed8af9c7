"""Watches: which events come, in which order, from where on, and how they end."""

from __future__ import annotations

from typing import Any

import pytest

from headroom.adapters.kube.errors import Forbidden, Gone, NotFound, class_for
from headroom.adapters.kube.transport import StreamRefused
from tests.contracts.cluster import Cluster, Event, refused
from tests.contracts.objects import config_map, pod, version_of
from tests.processes import PATIENCE_SECONDS

END_OF_INITIAL_EVENTS = "k8s.io/initial-events-end"


async def now(cluster: Cluster, kind: str = "ConfigMap") -> str:
    return version_of(await cluster.listed(kind))


async def test_events_come_in_the_order_of_the_writes(cluster: Cluster) -> None:
    async with cluster.watch("ConfigMap", await now(cluster)) as watch:
        a = await cluster.create(config_map("a"))
        await cluster.create(config_map("b"))
        changed = await cluster.merge(a, {"data": {"x": "1"}})
        await cluster.delete(a)
        events = await watch.take(4)
    assert [(event.type, event.name) for event in events] == [
        ("ADDED", "a"),
        ("ADDED", "b"),
        ("MODIFIED", "a"),
        ("DELETED", "a"),
    ]
    assert [event.version for event in events] == sorted({event.version for event in events})
    assert events[0].object == a
    assert events[2].object == changed


async def test_a_deletion_shows_the_last_state_at_the_version_of_the_deletion(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", {"x": "1"}))
    async with cluster.watch("ConfigMap", version_of(made)) as watch:
        await cluster.delete(made)
        deleted = await watch.next()
    assert deleted.type == "DELETED"
    assert deleted.object["data"] == {"x": "1"}
    assert deleted.version > int(version_of(made))


async def test_a_write_that_changes_nothing_makes_no_event(cluster: Cluster) -> None:
    made = await cluster.create(config_map("a", {"x": "1"}))
    async with cluster.watch("ConfigMap", version_of(made)) as watch:
        await cluster.merge(made, {"data": {"x": "1"}})
        await cluster.create(config_map("b"))
        assert (await watch.next()).name == "b"


async def test_a_watch_resumes_without_loss_or_repetition(cluster: Cluster) -> None:
    start = await now(cluster)
    for number in range(5):
        await cluster.create(config_map(f"c{number}"))
    seen = []
    async with cluster.watch("ConfigMap", start) as watch:
        seen += await watch.take(2)
    await cluster.create(config_map("c5"))
    async with cluster.watch("ConfigMap", str(seen[-1].version)) as watch:
        seen += await watch.take(4)
    assert [event.name for event in seen] == [f"c{number}" for number in range(6)]
    assert {event.type for event in seen} == {"ADDED"}


@pytest.mark.parametrize("version", [None, "0"])
async def test_a_watch_without_a_version_begins_with_what_there_is(cluster: Cluster, version: str | None) -> None:
    await cluster.create(config_map("a"))
    await cluster.create(config_map("b"))
    # The server may answer version 0 from a cache that is a moment behind; a list brings it up to date.
    await cluster.listed("ConfigMap")
    async with cluster.watch("ConfigMap", version) as watch:
        events = await watch.take(2)
        await cluster.create(config_map("c"))
        events += await watch.take(1)
    assert sorted((event.type, event.name) for event in events[:2]) == [("ADDED", "a"), ("ADDED", "b")]
    assert events[2].name == "c"


async def test_a_watch_list_ends_its_first_part_with_a_bookmark(cluster: Cluster) -> None:
    await cluster.create(config_map("a"))
    last = await cluster.create(config_map("b"))
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with cluster.watch("ConfigMap", **query) as watch:
        events = await watch.take(3)
        await cluster.create(config_map("c"))
        later = await watch.next()
    assert [(event.type, event.name) for event in events[:2]] == [("ADDED", "a"), ("ADDED", "b")]
    bookmark = events[2]
    assert bookmark.type == "BOOKMARK"
    assert bookmark.object["metadata"]["annotations"] == {END_OF_INITIAL_EVENTS: "true"}
    assert bookmark.object["kind"] == "ConfigMap"
    assert bookmark.version >= int(version_of(last))
    assert (later.type, later.name) == ("ADDED", "c")


async def test_an_empty_watch_list_still_has_its_bookmark(cluster: Cluster) -> None:
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    async with cluster.watch("Lease", **query) as watch:
        bookmark = await watch.next()
    assert bookmark.type == "BOOKMARK"
    assert bookmark.object["metadata"]["annotations"] == {END_OF_INITIAL_EVENTS: "true"}


async def test_a_watch_ends_after_its_time_and_a_bookmark_says_how_far_it_came(cluster: Cluster) -> None:
    start = await now(cluster)
    await cluster.create(config_map("seen", labels={"colour": "red"}))
    query: dict[str, Any] = {"labelSelector": "colour=red", "allowWatchBookmarks": "true", "timeoutSeconds": 3}
    bookmarks: list[Event] = []
    # A real server means to send one two seconds before the end, and now and then comes too late for it.
    for attempt in range(4):
        began = cluster.clock.monotonic()
        async with cluster.watch("ConfigMap", start, **query) as watch:
            assert (await watch.next()).name == "seen"
            unseen = await cluster.create(config_map(f"unseen-{attempt}", labels={"colour": "blue"}))
            bookmarks = await watch.rest()
        assert 2 <= cluster.clock.monotonic() - began <= PATIENCE_SECONDS
        if bookmarks:
            break
    assert {event.type for event in bookmarks} == {"BOOKMARK"}
    assert bookmarks[-1].version >= int(version_of(unseen))
    assert "annotations" not in bookmarks[-1].object["metadata"]


async def test_no_bookmark_comes_unasked(cluster: Cluster) -> None:
    async with cluster.watch("ConfigMap", await now(cluster), timeoutSeconds=1) as watch:
        assert await watch.rest() == []


async def test_an_object_that_leaves_the_selector_is_deleted_for_the_watch(cluster: Cluster) -> None:
    start = await now(cluster)
    async with cluster.watch("ConfigMap", start, labelSelector="colour=red") as watch:
        a = await cluster.create(config_map("a", labels={"colour": "red"}))
        await cluster.create(config_map("b", labels={"colour": "blue"}))
        await cluster.merge(a, {"metadata": {"labels": {"colour": "blue"}}})
        await cluster.merge(a, {"data": {"unseen": "yes"}})
        await cluster.merge(a, {"metadata": {"labels": {"colour": "red"}}})
        events = await watch.take(3)
    assert [(event.type, event.name) for event in events] == [("ADDED", "a"), ("DELETED", "a"), ("ADDED", "a")]
    left = events[1].object
    assert left["metadata"]["labels"] == {"colour": "red"}
    assert int(version_of(left)) > events[0].version
    assert "data" in events[2].object


async def test_a_watch_of_one_name_sees_no_other(cluster: Cluster) -> None:
    start = await now(cluster)
    async with cluster.watch("ConfigMap", start, fieldSelector="metadata.name=b") as watch:
        await cluster.create(config_map("a"))
        await cluster.create(config_map("b"))
        assert (await watch.next()).name == "b"


async def test_a_watch_of_unbound_pods_sees_them_go_when_they_are_bound(cluster: Cluster) -> None:
    node = await cluster.node()
    start = await now(cluster, "Pod")
    async with cluster.watch("Pod", start, fieldSelector="spec.nodeName=") as watch:
        made = await cluster.create(pod("a"))
        await cluster.bind(made, node)
        assert [(event.type, event.name) for event in await watch.take(2)] == [("ADDED", "a"), ("DELETED", "a")]


async def test_a_watch_of_a_namespace_sees_no_other(cluster: Cluster) -> None:
    start = await now(cluster)
    async with cluster.watch("ConfigMap", start) as watch:
        await cluster.do("POST", cluster.path("ConfigMap", namespace="default"), config_map(cluster.namespace))
        await cluster.create(config_map("mine"))
        event = await watch.next()
    assert (event.name, event.object["metadata"]["namespace"]) == ("mine", cluster.namespace)
    await cluster.do("DELETE", cluster.path("ConfigMap", cluster.namespace, namespace="default"))


async def test_a_forgotten_version_is_an_error_event_inside_a_success(forgetful: Cluster) -> None:
    start = await now(forgetful)
    for name in ("a", "b", "c"):
        await forgetful.create(config_map(name))
    await forgetful.compact()
    async with forgetful.watch("ConfigMap", start) as watch:
        event = await watch.next()
    assert event.type == "ERROR"
    assert event.object["kind"] == "Status"
    assert (event.object["code"], event.object["reason"]) == (410, "Expired")
    assert class_for(event.object["code"], event.object["reason"]) is Gone


async def test_the_newest_version_survives_compaction(forgetful: Cluster) -> None:
    await forgetful.create(config_map("a"))
    await forgetful.compact()
    start = await now(forgetful)
    async with forgetful.watch("ConfigMap", start) as watch:
        await forgetful.create(config_map("b"))
        assert (await watch.next()).name == "b"


async def test_a_watch_without_the_right_is_refused_before_it_begins(cluster: Cluster) -> None:
    with pytest.raises(StreamRefused) as refusal:
        async with cluster.watch("ConfigMap", user="nobody") as watch:
            await watch.next()
    assert refusal.value.reply.status == 403


async def test_the_client_turns_a_refused_watch_into_its_typed_error(cluster: Cluster) -> None:
    path = f"/apis/headroom.dev/v1alpha1/namespaces/{cluster.namespace}/nothings"
    with refused(NotFound, 404):
        async for _ in cluster.kube.watch(path, query={}, idle=5):
            pass
    with refused(Forbidden, 403, "Forbidden") as refusal:
        async for _ in cluster.client("nobody").watch(cluster.path("ConfigMap"), query={}, idle=5):
            pass
    assert (refusal.value.verb, refusal.value.resource) == ("watch", "configmaps")
