"""What enforcement stands on: holds, owners of pods that are suspended and resumed, and policies that are seen to be there."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator

import pytest
from msgspec import structs

from headroom.adapters.kube.errors import DisruptionBlocked, EvictionImpossible
from headroom.adapters.kube.events import Events
from headroom.adapters.kube.store import KubePort
from headroom.api.budget_hold import BudgetHoldSpec, hold_name
from headroom.api.enforcement import Victim
from headroom.api.kinds import AnyResource
from headroom.api.policies import policies
from headroom.model import actions
from headroom.model.decisions import Ref
from headroom.model.errors import Refused
from headroom.model.facts import Workload
from headroom.model.world import World
from tests.adapters import owners
from tests.adapters.doing import CHORES
from tests.builders import a_resource
from tests.contracts.cluster import Cluster, refused
from tests.contracts.objects import Document, budget, disruption_budget, pod, uid_of, version_of

TRAINER = {"app": "trainer"}
BY = "GPUWorkloadBudget/team-a/one"
LET_GO = {"headroom.dev/suspended", "headroom.dev/released-at"}
SUSPENDED = {"headroom.dev/suspended", "headroom.dev/suspended-by", "headroom.dev/suspended-at"}


class Acting:
    """A port that sees and acts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.port = KubePort(
            cluster.kube,
            Events(cluster.kube, cluster.clock),
            clock=cluster.clock,
            rng=random.Random(1),
        )

    @property
    def world(self) -> World:
        return self.port.world(self.cluster.clock.now())

    def owner(self, kind: str, name: str = "train") -> Workload | None:
        return self.world.workloads.get(f"{kind}/{self.cluster.namespace}/{name}")

    async def see(self) -> None:
        await self.port.start()
        assert await self.port.synced(20), self.port.problems()


@pytest.fixture
async def acting(cluster: Cluster) -> AsyncIterator[Acting]:
    found = Acting(cluster)
    yield found
    await found.port.stop()


@pytest.fixture
async def kinds(cluster: Cluster) -> AsyncIterator[None]:
    """The cluster has JobSets and Kueue for the time of a test."""
    made = [await cluster.create(each) for each in owners.definitions()]

    async def are_served(wanted: bool) -> bool:
        replies = [await cluster.ask("GET", cluster.path(kind)) for kind in ("JobSet", "Workload")]
        return all((reply.status == 200) is wanted for reply in replies)

    await cluster.until(lambda: are_served(True), "JobSets and Workloads are served")
    yield
    for each in made:
        await cluster.delete(each)
    await cluster.until(lambda: are_served(False), "JobSets and Workloads are served no more")


# --- owners ----------------------------------------------------------------------------------------------------------------------


def marks(document: Document) -> set[str]:
    metadata = document["metadata"]
    return (LET_GO | SUSPENDED) & {*metadata.get("labels", {}), *metadata.get("annotations", {})}


@pytest.mark.parametrize("kind", ["Job", "JobSet", "Workload"])
@pytest.mark.usefixtures("kinds")
async def test_an_owner_is_suspended_seen_and_resumed(cluster: Cluster, acting: Acting, kind: str) -> None:
    made = await cluster.create(owners.owner(kind, namespace=cluster.namespace))
    await acting.see()
    assert acting.world.kueue
    name = f"{cluster.namespace}/train"
    for _ in range(2):
        await acting.port.perform(actions.SuspendOwner(kind=kind, object=name), a_resource())
    stored = await cluster.get(kind, "train")
    assert uid_of(stored) == uid_of(made)
    assert marks(stored) == SUSPENDED

    async def suspended() -> bool:
        found = acting.owner(kind)
        return found is not None and (found.suspended, found.suspended_by, found.parts[0].count) == (True, BY, 2)

    await cluster.until(suspended, "it is seen as suspended")
    for _ in range(2):
        await acting.port.perform(actions.ResumeOwner(kind=kind, object=name), a_resource())
    assert marks(await cluster.get(kind, "train")) == LET_GO

    async def resumed() -> bool:
        found = acting.owner(kind)
        return found is not None and not found.suspended and found.released_at is not None and found.is_as_released

    await cluster.until(resumed, "it is seen that it is no longer suspended")
    await acting.port.perform(actions.ResumeOwner(kind=kind, object=name), CHORES)
    assert marks(await cluster.get(kind, "train")) == set()

    async def unmarked() -> bool:
        found = acting.owner(kind)
        return found is None if kind != "Workload" else found is not None and found.released_at is None

    await cluster.until(unmarked, "it is seen as any other")
    reasons = [each["reason"] for each in (await cluster.listed("Event"))["items"] if _is_on(each, made)]
    assert sorted(reasons) == ["Resumed", "Suspended"]


def _is_on(event: Document, document: Document) -> bool:
    return bool(event["involvedObject"].get("uid") == uid_of(document) and event["source"]["component"] == "headroom")


async def test_a_job_that_others_suspended_is_left_alone(cluster: Cluster, acting: Acting) -> None:
    made = await cluster.create(owners.owner("Job", namespace=cluster.namespace, spec={"suspend": True}))
    await acting.see()
    await acting.port.perform(actions.SuspendOwner(kind="Job", object=f"{cluster.namespace}/train"), a_resource())
    stored = await cluster.get("Job", "train")
    assert marks(stored) == set()
    assert stored["metadata"]["generation"] == made["metadata"]["generation"]


async def test_kinds_that_the_cluster_does_not_have_are_no_matter(cluster: Cluster, acting: Acting) -> None:
    await acting.see()
    assert acting.port.complete
    assert not acting.world.kueue
    assert not [each for each in acting.port.problems() if "jobset" in each or "kueue" in each]


# --- holds -----------------------------------------------------------------------------------------------------------------------


async def test_a_hold_is_written_seen_and_deleted(cluster: Cluster, acting: Acting) -> None:
    document = await cluster.create(budget("one"))
    await acting.see()
    key = f"{cluster.namespace}/one"
    spec = BudgetHoldSpec(
        budget=key, namespaces=(cluster.namespace,), resources=("nvidia.com/gpu",), uid=uid_of(document)
    )
    apply = actions.ApplyBudgetHold(budget=key, spec=spec, because="all is used")
    await acting.port.perform(apply, a_resource())
    stored = await cluster.get("BudgetHold", hold_name(key))
    assert stored["spec"]["because"] == "all is used"

    async def standing() -> bool:
        found = acting.world.holds.get(hold_name(key))
        return found is not None and found.spec == structs.replace(spec, because="all is used")

    await cluster.until(standing, "the hold is seen")
    await acting.port.perform(structs.replace(apply, because="other numbers"), a_resource())
    assert version_of(await cluster.get("BudgetHold", hold_name(key))) == version_of(stored)
    for _ in range(2):
        await acting.port.perform(actions.DeleteBudgetHold(budget=key), a_resource())
    await cluster.until_gone(stored)


def _ref(document: Document) -> Ref:
    return Ref(document["kind"], document["metadata"]["namespace"], document["metadata"]["name"])


async def test_our_policies_are_seen_to_be_there(cluster: Cluster, acting: Acting) -> None:
    await acting.see()
    assert "is not installed" in acting.world.hold_problem
    made = [await cluster.create(each) for each in policies()]
    try:

        async def ready() -> bool:
            return acting.world.hold_problem == ""

        await cluster.until(ready, "all policies are seen")
        await cluster.merge(made[-1], {"metadata": {"annotations": {"headroom.dev/policy-hash": "old"}}})

        async def outdated() -> bool:
            return "is of another version" in acting.world.hold_problem

        await cluster.until(outdated, "it is seen that one is of another version")
    finally:
        for each in made:
            await cluster.delete(each)


# --- evictions -------------------------------------------------------------------------------------------------------------------


async def test_two_disruption_budgets_are_a_refusal_in_our_words(cluster: Cluster, acting: Acting) -> None:
    made = await cluster.run(await cluster.create(pod("p", labels=TRAINER)), await cluster.node())
    for name in ("one", "two"):
        await cluster.create(disruption_budget(name, TRAINER, 1))
    name = f"{cluster.namespace}/p"
    evict = actions.EvictPod(pod=name, uid=uid_of(made), resource_version="", grace_seconds=5)
    with refused(EvictionImpossible, 500) as refusal:
        await acting.port.perform(evict, a_resource())
    assert f"evicting pod {name}: more than one PodDisruptionBudget selects it" in refusal.value.message
    assert "deletionTimestamp" not in (await cluster.get("Pod", "p"))["metadata"]


@pytest.mark.parametrize("names", [("one",), ("one", "two")])
async def test_a_refusal_names_its_budgets_and_a_deletion_passes_them(
    cluster: Cluster, acting: Acting, names: tuple[str, ...]
) -> None:
    made = await cluster.run(await cluster.create(pod("p", labels=TRAINER)), await cluster.node())
    for name in names:
        await cluster.create(disruption_budget(name, TRAINER, 1))
    name, uid = f"{cluster.namespace}/p", uid_of(made)
    evict = actions.EvictPod(pod=name, uid=uid, resource_version="", grace_seconds=5)
    with refused((DisruptionBlocked, EvictionImpossible)[len(names) - 1], (429, 500)[len(names) - 1]):
        await acting.port.perform(evict, a_resource())
    refusal = acting.world.pods.refused[uid]
    assert refusal.by == tuple(f"{cluster.namespace}/{each}" for each in names)
    other = actions.DeletePod(pod=name, uid="another", resource_version="", grace_seconds=5)
    await acting.port.perform(other, a_resource())
    assert "deletionTimestamp" not in (await cluster.get("Pod", "p"))["metadata"]
    delete = structs.replace(other, uid=uid)
    await acting.port.perform(delete, a_resource())
    assert (await cluster.get("Pod", "p"))["metadata"]["deletionGracePeriodSeconds"] == 5
    assert uid in acting.world.pods.evicted
    await acting.port.perform(delete, a_resource())  # it goes already


async def gang(cluster: Cluster, acting: Acting) -> tuple[list[Document], AnyResource]:
    """Three running pods, and a budget of which the view shows that they are being stopped together."""
    document, node = await cluster.create(budget("one")), await cluster.node()
    ranks = [await cluster.run(await cluster.create(pod(f"p-{each}", labels=TRAINER)), node) for each in range(3)]
    await acting.see()
    found = acting.world.resources[_ref(document)]
    victim = Victim(unit="JobSet/x/train", action="Evict", at="2026-01-01T00:00:00Z", uids=tuple(map(uid_of, ranks)))
    await acting.port.write_status(found, structs.replace(found.status, victim=victim))

    async def seen() -> bool:
        known = [acting.world.pods.get(uid_of(each)) for each in ranks]
        return all(each is not None and each.phase == "Running" for each in known)

    await cluster.until(seen, "all ranks are seen to run")
    return ranks, found


@pytest.mark.parametrize("healthy", [2, 0, None])
async def test_a_gang_goes_as_a_whole_or_not_at_all(cluster: Cluster, acting: Acting, healthy: int | None) -> None:
    ranks, found = await gang(cluster, acting)
    if healthy is not None:
        await cluster.create(disruption_budget("pdb", TRAINER, healthy))

        async def counted() -> bool:
            status = (await cluster.get("PodDisruptionBudget", "pdb")).get("status", {})
            return bool(status.get("currentHealthy") == 3 and status["disruptionsAllowed"] == 3 - healthy)

        await cluster.until(counted, "the disruption budget is counted")
    for each in ranks:
        name = f"{cluster.namespace}/{each['metadata']['name']}"
        evict = actions.EvictPod(pod=name, uid=uid_of(each), resource_version="", grace_seconds=5)
        if healthy == 2:
            why = "its gang JobSet/x/train could not be evicted as a whole: PodDisruptionBudget pdb allows 1 of 3 now"
            with pytest.raises(Refused, match=f"evicting pod {name}: {why}"):
                await acting.port.perform(evict, found)
        else:
            await acting.port.perform(evict, found)
    left = [await cluster.get("Pod", each["metadata"]["name"]) for each in ranks]
    assert ["deletionTimestamp" in each["metadata"] for each in left] == [healthy != 2] * 3


@pytest.mark.parametrize("action", ["EvictPod", "PausePod"])
async def test_what_was_done_to_a_pod_is_said_on_it(cluster: Cluster, acting: Acting, action: str) -> None:
    made = await cluster.run(await cluster.create(pod("p")), await cluster.node())
    target = {"pod": f"{cluster.namespace}/p", "uid": uid_of(made)}
    if action == "EvictPod":
        await acting.port.perform(actions.EvictPod(**target, resource_version="", grace_seconds=5), a_resource())
    else:
        await acting.port.perform(actions.PausePod(**target), a_resource())
    [event] = [each for each in (await cluster.listed("Event"))["items"] if _is_on(each, made)]
    assert (event["reason"], event["type"]) == ("Evicted" if action == "EvictPod" else "Paused", "Warning")
    assert event["message"] == "GPUWorkloadBudget team-a/one"
