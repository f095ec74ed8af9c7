"""A plan for tests that really does something: it evicts the pods labelled `probe=evict`, one after the other."""

from collections.abc import Iterable

from msgspec import structs

from headroom.core import PLANS
from headroom.model.actions import EvictPod
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Decision
from headroom.model.plans import Plan, affected, standing
from headroom.model.world import World

KIND = "GPUWorkloadBudget"


def decide(world: World, changes: Changes) -> Iterable[Decision]:
    """Evict the first pod that is not going already."""
    everything = structs.replace(changes, everything=changes.everything or bool(changes.pods))
    wanted = (pod for pod in world.pods if ("probe", "evict") in pod.labels and pod.deleting is None)
    due = tuple(
        EvictPod(pod=pod.key, uid=pod.uid, resource_version=pod.resource_version, grace_seconds=0)
        for pod in sorted(wanted, key=lambda pod: pod.name)[:1]
    )
    for ref, resource in affected(world, KIND, everything):
        yield structs.replace(standing(world, ref, resource, "Evicts."), actions=due)


PROBE = Plan(name="probe", kinds=(KIND,), wakes_on=frozenset({Topic.PODS}), at_most_every_ms=100, decide=decide)
PROBE_PLANS = (PROBE, *(plan for plan in PLANS if plan.kinds[0] != KIND))
