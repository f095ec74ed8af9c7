"""The fleet at a glance, as plain data: who leads, what is allocated, how each budget stands. Nothing is decided here.

The numbers and words are those of the dashboard, from the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headroom.adapters.kube.client import Kube
    from headroom.api.kinds import AnyResource
    from headroom.model.decisions import Decision, Ref
    from headroom.model.tables import PodTable
    from headroom.model.world import World
    from headroom.runtime.settings import Settings

PATIENCE: Final = 2
"""A lease that was not renewed for so many times its length is nobody's: clocks may differ by the rest."""


def glance(world: World, decisions: Mapping[Ref, Decision] | None = None, namespace: str = "") -> dict[str, Any]:
    """Everything but the operator itself. With decisions these speak, else the operator's last status."""
    from msgspec import structs

    from headroom.cli.capabilities import FACES, face_of
    from headroom.core import usage
    from headroom.model import times
    from headroom.web.pages.overview import fleet_of, nodes_asleep
    from headroom.web.pages.parts import amount, decimal

    known = decisions or {}
    refs = [ref for ref in sorted(world.resources) if not namespace or ref.namespace == namespace]
    if namespace:
        world = structs.replace(world, pods=_those_in(world, namespace))
    fleet = fleet_of(world) | nodes_asleep(world, known)
    if not len(world.nodes):
        # Nodes that are not given, or that one may not see, hold GPUs all the same.
        placed = (pod for pod in world.pods if pod.node and pod.phase in ("Pending", "Running"))
        fleet["held"] = decimal(sum(usage.gpus_of(world, pod) for pod in placed))
    if namespace:
        fleet = {
            name: each for name, each in fleet.items() if name in ("held", "starting", "running", "waiting", "heldPods")
        }
    found: dict[str, Any] = {"at": times.text(world.now), "cluster": world.cluster, "fleet": fleet}
    if not namespace and world.ledger.loaded:
        sums = usage.uncovered(world)
        found["uncovered"] = {"gpuHours": amount(sums.gpu_ms, usage.GPU_HOUR), "burnRateGpus": decimal(sums.burn)}
    for kind, face in FACES.items():
        if face.row is not None:
            of_kind = (ref for ref in refs if ref.kind == kind)
            found[face.section] = [face.row(world, world.resources[ref], known.get(ref)) for ref in of_kind]
    others = [ref for ref in refs if face_of(ref.kind).row is None]
    found["others"] = [_other(ref, world.resources[ref], known.get(ref)) for ref in others]
    if namespace and not found["budgets"]:
        spaces = {ref.namespace for ref in world.resources if ref.namespace} | set(world.namespaces)
        found |= {"namespace": namespace, "otherNamespaces": [] if namespace in spaces else sorted(spaces)}
    return found


def _those_in(world: World, namespace: str) -> PodTable:
    """The pods of a namespace."""
    from headroom.model.tables import PodTable

    found = PodTable()
    for pod in world.pods:
        if pod.namespace == namespace:
            found.put(pod)
    return found


# --- the operator -----------------------------------------------------------------------------------------------------------


async def operator(kube: Kube, settings: Settings) -> dict[str, Any]:
    """Who leads, and whether the lease is fresh; what may not be seen is left out."""
    from headroom.adapters.kube import errors
    from headroom.adapters.kube.leases import KubeLeases
    from headroom.model import times

    try:
        lease = await KubeLeases(kube, settings.operator_namespace, settings.lease_name).read()
    except errors.Forbidden:
        return {"seen": False}
    if lease is None or not lease.holder:
        return {"seen": True, "leads": False}
    renewed = times.moment(lease.renewals) or 0
    age = max(0, kube.clock.now() - renewed)
    leads = age <= PATIENCE * lease.duration_seconds * times.SECOND
    return {"seen": True, "leads": leads, "holder": lease.holder, "renewedAt": times.text(renewed), "ageMs": age}


# --- resources --------------------------------------------------------------------------------------------------------------


def _other(ref: Ref, resource: AnyResource, decision: Decision | None) -> dict[str, Any]:
    from headroom.model import conditions

    status = decision.status if decision else resource.status
    ready = conditions.find(status.conditions, "Ready")
    wrong = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
    return {
        "kind": ref.kind,
        **({"namespace": ref.namespace} if ref.namespace else {}),
        "name": ref.name,
        "ready": "False" if wrong else ready.status if ready else "Unknown",
        "reason": "Invalid" if wrong else ready.reason if ready else "Waiting",
        "message": wrong or (ready.message if ready else "No decision has been made yet."),
    }
