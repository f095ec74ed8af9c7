"""Events: said once, counted after, and only where the API server lets them stand."""

from __future__ import annotations

from headroom.adapters.kube.errors import Invalid
from headroom.adapters.kube.events import Events
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, budget, owner


def reference(cluster: Cluster, document: Document) -> Document:
    return owner(document) | {"namespace": cluster.namespace}


async def test_an_event_stands_beside_its_object(cluster: Cluster) -> None:
    about = reference(cluster, await cluster.create(budget("a")))
    await Events(cluster.kube, cluster.clock).emit(about, "Warning", "QuotaExceeded", "12 of 10 GPU-hours are used.")
    (event,) = (await cluster.listed("Event"))["items"]
    assert event["involvedObject"] == about
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "QuotaExceeded", 1)
    assert event["message"] == "12 of 10 GPU-hours are used."
    assert await cluster.names("Event", fieldSelector=f"involvedObject.uid={about['uid']}")
    assert not await cluster.names("Event", fieldSelector="reason=Other")


async def test_the_same_again_counts_up_also_after_a_restart(cluster: Cluster) -> None:
    about = reference(cluster, await cluster.create(budget("a")))
    first, second = Events(cluster.kube, cluster.clock), Events(cluster.kube, cluster.clock)
    await first.emit(about, "Normal", "Held", "New pods are queued.")
    await first.emit(about, "Normal", "Held", "New pods are queued.")
    await second.emit(about, "Normal", "Held", "New pods are queued.")
    (event,) = (await cluster.listed("Event"))["items"]
    assert event["count"] == 3


async def test_one_occurrence_counts_once_and_the_next_one_too(cluster: Cluster) -> None:
    about = reference(cluster, await cluster.create(budget("a")))
    for token, count in (("first", 1), ("second", 2)):
        for _ in range(2):
            await Events(cluster.kube, cluster.clock).emit(about, "Normal", "Held", "New pods are queued.", once=token)
        (event,) = (await cluster.listed("Event"))["items"]
        assert event["count"] == count


async def test_a_series_is_a_patch(cluster: Cluster) -> None:
    about = reference(cluster, await cluster.create(budget("a")))
    made = await cluster.create(event_of(about, "a.1"))
    later = {"count": 5, "lastTimestamp": "2026-01-01T00:00:05Z"}
    written = await cluster.merge(made, later)
    assert (written["count"], written["lastTimestamp"]) == (5, "2026-01-01T00:00:05Z")


async def test_an_event_must_stand_in_the_namespace_of_its_object(cluster: Cluster) -> None:
    about = reference(cluster, await cluster.create(budget("a"))) | {"namespace": "elsewhere"}
    with refused(Invalid, 422, "Invalid") as refusal:
        await cluster.create(event_of(about, "a.1"))
    assert [field for field, _ in refusal.value.causes] == ["involvedObject.namespace"]


def event_of(about: Document, name: str) -> Document:
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name},
        "involvedObject": about,
        "type": "Normal",
        "reason": "Held",
        "message": "New pods are queued.",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "count": 1,
    }
