"""The lease of the leader: one winner, whatever the order."""

from __future__ import annotations

import asyncio

import pytest

from headroom.adapters.kube.errors import Invalid, NotFound
from headroom.adapters.kube.leases import KubeLeases
from headroom.model.ports import Lease, LeaseTaken
from tests.contracts.cluster import Cluster, refused


def leases(cluster: Cluster) -> KubeLeases:
    return KubeLeases(cluster.kube, cluster.namespace, "headroom")


async def attempt(cluster: Cluster, holder: str, before: Lease | None) -> Lease | None:
    try:
        return await leases(cluster).write(holder, 15, before)
    except LeaseTaken:
        return None


async def test_there_is_no_lease_at_first(cluster: Cluster) -> None:
    assert await leases(cluster).read() is None


async def test_of_many_who_make_the_lease_one_wins(cluster: Cluster) -> None:
    results = await asyncio.gather(*(attempt(cluster, f"candidate-{number}", None) for number in range(5)))
    (winner,) = [lease for lease in results if lease]
    assert await leases(cluster).read() == winner
    assert winner.transitions == 0


async def test_of_many_who_take_the_lease_over_one_wins(cluster: Cluster) -> None:
    before = await leases(cluster).write("old", 15, None)
    results = await asyncio.gather(*(attempt(cluster, f"candidate-{number}", before) for number in range(5)))
    (winner,) = [lease for lease in results if lease]
    assert await leases(cluster).read() == winner
    assert winner.transitions == 1


async def test_whoever_was_overtaken_cannot_renew(cluster: Cluster) -> None:
    mine = await leases(cluster).write("mine", 15, None)
    theirs = await leases(cluster).write("theirs", 15, mine)
    with pytest.raises(LeaseTaken):
        await leases(cluster).write("mine", 15, mine)
    assert await leases(cluster).read() == theirs


async def test_a_renewal_shows(cluster: Cluster) -> None:
    mine = leases(cluster)
    first = await mine.write("mine", 15, None)
    await cluster.clock.sleep(0.01)
    second = await mine.write("mine", 15, first)
    assert second.version != first.version
    assert second.renewals > first.renewals
    assert (second.holder, second.duration_seconds, second.transitions) == ("mine", 15, 0)


async def test_a_released_lease_is_free_at_once(cluster: Cluster) -> None:
    mine = leases(cluster)
    held = await mine.write("mine", 15, None)
    free = await mine.write("", 1, held)
    assert free.holder == ""
    taken = await leases(cluster).write("next", 15, await leases(cluster).read())
    assert (taken.holder, taken.transitions) == ("next", 1)


async def test_a_lease_that_was_deleted_is_lost(cluster: Cluster) -> None:
    mine = leases(cluster)
    held = await mine.write("mine", 15, None)
    await cluster.do("DELETE", cluster.path("Lease", "headroom"))
    with pytest.raises(LeaseTaken):
        await mine.write("mine", 15, held)


async def test_only_the_uid_keeps_a_deleted_lease_from_coming_back(cluster: Cluster) -> None:
    await leases(cluster).write("mine", 15, None)
    found = await cluster.get("Lease", "headroom")
    await cluster.delete(found)
    path = cluster.path("Lease", "headroom")
    assert (await cluster.ask("PUT", path, found)).status == 409
    del found["metadata"]["uid"]
    # The version alone does not: a Lease may be made by PUT, and then its version is not looked at.
    assert (await cluster.ask("PUT", path, found)).status == 201
    del found["metadata"]["resourceVersion"]
    with refused(Invalid, 422, "Invalid"):
        await cluster.replace(found)


async def test_a_lease_that_does_not_say_how_long_it_lasts_lasts_a_while(cluster: Cluster) -> None:
    await leases(cluster).write("mine", 15, None)
    spec = {"leaseDurationSeconds": None}
    await cluster.kube.merge_patch(cluster.path("Lease", "headroom"), {"spec": spec})
    found = await leases(cluster).read()
    assert found is not None
    assert (found.holder, found.duration_seconds) == ("mine", 15)


async def test_labels_of_others_survive_a_renewal(cluster: Cluster) -> None:
    mine = leases(cluster)
    held = await mine.write("mine", 15, None)
    path = cluster.path("Lease", "headroom")
    await cluster.kube.merge_patch(path, {"metadata": {"labels": {"theirs": "yes"}}})
    with pytest.raises(LeaseTaken):
        await mine.write("mine", 15, held)
    found = await mine.read()
    await mine.write("mine", 15, found)
    assert (await cluster.get("Lease", "headroom"))["metadata"]["labels"] == {"theirs": "yes"}


async def test_what_is_published_stands_on_the_lease_while_it_is_ours(cluster: Cluster) -> None:
    said = {"headroom.dev/here": "8443", "headroom.dev/nothing": ""}
    mine = KubeLeases(cluster.kube, cluster.namespace, "headroom", published=lambda: said)
    held = await mine.write("mine", 15, None)
    assert held.annotations == {"headroom.dev/here": "8443"}
    await cluster.kube.merge_patch(cluster.path("Lease", "headroom"), {"metadata": {"annotations": {"theirs": "yes"}}})
    said["headroom.dev/here"] = "9443"
    held = await mine.write("mine", 15, await mine.read())
    assert held.annotations == {"headroom.dev/here": "9443", "theirs": "yes"}
    free = await mine.write("", 1, held)
    assert free.annotations == {"theirs": "yes"}
    said["headroom.dev/here"] = ""
    assert (await mine.write("mine", 15, free)).annotations == {"theirs": "yes"}


async def test_a_lease_in_no_namespace_is_not_found(cluster: Cluster) -> None:
    with refused(NotFound, 404, "NotFound"):
        await KubeLeases(cluster.kube, "nowhere", "headroom").write("mine", 15, None)
