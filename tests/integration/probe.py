"""`headroom run` with one more plan that really does something: it evicts the pods labelled `probe=evict`, one after the other.

Run as `python -m tests.integration.probe KUBECONFIG IDENTITY`; the tests kill it, restart it and run several of it.
"""

import asyncio
import sys
from collections.abc import Iterable

from msgspec import structs

from headroom.cli import serving
from headroom.core import PLANS
from headroom.model.actions import EvictPod
from headroom.model.decisions import Decision
from headroom.model.plans import Plan, affected, standing
from headroom.model.world import Changes, World
from headroom.runtime.settings import Settings

KIND = "GPUWorkloadBudget"


def decide(world: World, changes: Changes) -> Iterable[Decision]:
    """Evict the first pod that is not going already."""
    everything = structs.replace(changes, everything=changes.everything or bool(changes.pods))
    victims = sorted(
        (pod for pod in world.pods if ("probe", "evict") in pod.labels and pod.deleting is None),
        key=lambda pod: pod.name,
    )
    due = tuple(
        EvictPod(pod=pod.key, uid=pod.uid, resource_version=pod.resource_version, grace_seconds=0)
        for pod in victims[:1]
    )
    for ref, resource in affected(world, KIND, everything):
        yield structs.replace(standing(world, ref, resource, "Evicts."), actions=due)


PROBE = Plan(name="probe", kind=KIND, wakes_on=frozenset({KIND, "pods"}), at_most_every_ms=100, decide=decide)


def main(kubeconfig: str, identity: str) -> int:
    """Run until told to end."""
    settings = Settings(
        kubeconfig=kubeconfig,
        identity=identity,
        metrics_address="",
        health_address="",
        log_format="json",
        cluster_id="probe",
    )
    plans = (PROBE, *(plan for plan in PLANS if plan.kind != KIND))
    return asyncio.run(serving.serve(settings, plans))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
