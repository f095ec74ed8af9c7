"""The pages of spot pools: every pool with its machines and what they cost, and one pool slot by slot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from headroom.api.kinds import AnyResource
from headroom.api.quantities import NANO, InvalidQuantity, nano
from headroom.api.spot_pools import Spotpool, SpotpoolSpec
from headroom.api.spot_pools_status import SLOT_STATES, Slot, SpotpoolStatus
from headroom.core import usage
from headroom.model import conditions, times
from headroom.model.decisions import Decision, Ref
from headroom.model.usage import DAY
from headroom.model.world import World
from headroom.runtime.journal import MOST_REMEMBERED
from headroom.web.pages import parts
from headroom.web.pages.parts import Model
from headroom.web.scope import Scope
from headroom.web.view import OperatorView

MOST_HISTORY: Final = 100
_STANDING: Final = {
    "JoinFailing": "bad",
    "Braked": "warn",
    "MachinesMissing": "warn",
    "Unserved": "warn",
    "GatewayFailing": "warn",
    "Orphans": "warn",
}
"""Conditions shown in place of the number of machines, most urgent first, with their tone."""
_ENDED: Final = ("Succeeded", "Failed")
EXAMPLE: Final = """\
apiVersion: headroom.dev/v1alpha1
kind: Spotpool
metadata: {name: inference, namespace: team-a}
spec:
  provider: aws           # or tencent, or webhook
  region: us-east-1
  zones: [us-east-1a, us-east-1b]
  instanceTypes: [g5.12xlarge, g6.12xlarge]
  minimum: 0
  maximum: 4
  desired: Demand         # launched for pending pods, ended when idle
  maxPricePerHour: "3.50"
  imageId: ami-gpu
  template: {gpuCount: 4}
  credentialsSecretRef: {name: spot-keys}
"""
"""A first manifest for viewers without a pool."""


def model(view: OperatorView, scope: Scope) -> Model:
    """The page of all visible pools, without its frame."""
    world = view.world()
    seen = [(ref, each) for ref, each in world.of_kind(Spotpool.kind.name) if scope.sees(ref.namespace)]
    pools = {f"{ref.namespace}/{ref.name}": pool_row(each, view.loop.decisions.get(ref)) for ref, each in seen}
    return {"pools": pools} if pools else {"pools": {}, "example": EXAMPLE}


def pool(view: OperatorView, scope: Scope, namespace: str, name: str) -> Model | None:
    """The page of one pool without its frame; None if it does not exist or the viewer may not see it."""
    world, ref = view.world(), Ref(Spotpool.kind.name, namespace, name)
    resource = world.resources.get(ref)
    if resource is None or not scope.sees(namespace):
        return None
    decision = view.loop.decisions.get(ref)
    status = status_of(resource, decision)
    entries = view.journal.newest(world.now - 7 * DAY, MOST_REMEMBERED, lambda each: each.resource == str(ref))
    return {
        "pool": pool_row(resource, decision) | _details(world, resource, status),
        "slots": {str(each.slot): slot_row(world, each) for each in status.slots},
        "mayListNodes": scope.nodes,
        "soldOut": [
            parts.known(
                {
                    "type": each.instance_type,
                    "zone": each.zone,
                    "reason": each.reason or "SoldOut",
                    "failures": each.failures,
                    "until": each.until,
                }
            )
            for each in status.sold_out
        ],
        "unserved": [
            {"pod": each.pod, "pods": each.pods, "reason": each.reason, "message": each.message}
            for each in status.unserved
        ],
        "history": parts.entries(entries[:MOST_HISTORY]),
    }


def status_of(resource: AnyResource, decision: Decision | None) -> SpotpoolStatus:
    """The last decided status of a pool, else the one in the cluster."""
    status = decision.status if decision else resource.status
    assert isinstance(status, SpotpoolStatus)
    return status


def pool_row(resource: AnyResource, decision: Decision | None) -> Model:
    """One pool in a few numbers and words."""
    row: Model = {"namespace": resource.namespace, "name": resource.name}
    if resource.spec is None:
        said = "; ".join(f"{each.field} {each.message}" for each in resource.problems)
        return row | {"state": "Invalid", "tone": "bad", "reason": "InvalidSpec", "message": said}
    status, spec = status_of(resource, decision), resource.spec
    states = [each.state for each in status.slots]
    state, tone = _state(resource, status)
    return row | parts.known(
        {
            "state": state,
            "tone": tone,
            "provider": spec.provider,
            "region": spec.region,
            "types": list(spec.types),
            "size": status.size,
            "minimum": spec.minimum,
            "maximum": spec.maximum,
            "desired": spec.desired,
            "states": {each: states.count(each) for each in SLOT_STATES if each in states},
            "pricePerHour": price_per_hour(status),
            "unservedPods": sum(each.pods for each in status.unserved),
            "orphans": status.orphan_count or None,
            "reason": decision.reason if decision else "Waiting",
            "message": decision.message if decision else "No decision has been made yet.",
        }
    )


def price_per_hour(status: SpotpoolStatus) -> str | None:
    """The known cost of all machines of a pool per hour; None if no price is known."""
    amounts = [nano(each.price_per_hour) for each in status.slots if each.instance_id and each.price_per_hour]
    found = [each for each in amounts if not isinstance(each, InvalidQuantity)]
    return parts.decimal(sum(found) * usage.MICRO // NANO) if found else None


def slot_row(world: World, slot: Slot) -> Model:
    """One slot: its state, machine and node."""
    node = world.nodes.get(slot.node) if slot.node else None
    instance = world.instances.get(slot.instance_id)
    return parts.known(
        {
            "state": slot.state,
            "since": slot.since,
            "instance": slot.instance_id,
            "cloudState": instance.state if instance else "",
            "publicIp": instance.public_ip if instance else "",
            "type": slot.instance_type,
            "zone": slot.zone,
            "node": slot.node,
            "nodeState": "" if node is None else _readiness(node.ready, node.unschedulable),
            "gpus": parts.decimal(usage.gpus_on(world, node)) if node else None,
            "allocated": parts.decimal(_allocated(world, slot.node)) if node else None,
            "pricePerHour": slot.price_per_hour,
            "launchedAt": slot.launched_at,
            "joinedAt": slot.joined_at,
            "idleSince": slot.idle_since,
            "reclaimAt": slot.reclaim_at,
            "notFoundSince": slot.not_found_since,
            "cause": slot.cause,
        }
    )


def machines_of_nodes(world: World, decisions: Mapping[Ref, Decision]) -> dict[str, Model]:
    """By node name: the price of its machine, and when the cloud reclaims it."""
    found: dict[str, Model] = {}
    for ref, resource in world.of_kind(Spotpool.kind.name):
        for slot in status_of(resource, decisions.get(ref)).slots:
            if slot.node:
                found[slot.node] = parts.known({"pricePerHour": slot.price_per_hour, "reclaimAt": slot.reclaim_at})
    return found


def _readiness(ready: bool, cordoned: bool) -> str:
    return "not ready" if not ready else "cordoned" if cordoned else "ready"


def _allocated(world: World, node: str) -> int:
    on_it = (pod for uid in world.pods.by_node[node] if (pod := world.pods.get(uid)) is not None)
    return sum(usage.gpus_of(world, pod) for pod in on_it if pod.phase not in _ENDED)


def _state(resource: AnyResource, status: SpotpoolStatus) -> tuple[str, str]:
    """One word for the state of a pool, and its tone. The words only summarize the status."""
    if resource.deleting:
        return "Deleting", "idle"
    if resource.spec.paused:
        return "Paused", "idle"
    ready = conditions.find(status.conditions, "Ready")
    if status.size is None and (ready is None or ready.status != "False"):
        return "Waiting", "idle"
    if ready is not None and ready.status == "False":
        return "NotReady", "bad"
    for type_, tone in _STANDING.items():
        if conditions.holds(status.conditions, type_):
            return type_, tone
    is_changing = any(each.state != "Running" for each in status.slots)
    return ("Changing", "good") if is_changing else ("Steady", "good")


def _details(world: World, resource: AnyResource, status: SpotpoolStatus) -> Model:
    listing = world.listings.get(f"{resource.namespace}/{resource.name}")
    found: Model = {
        "conditions": [
            {"type": each.type, "status": each.status, "reason": each.reason, "message": each.message}
            | {"since": each.last_transition_time}
            for each in status.conditions
        ],
        "problems": [f"{each.field} {each.message}" for each in resource.problems],
        "purchases": sum(each.count for each in status.purchases),
        "listedAt": times.text(listing.at) if listing and listing.at else "",
    }
    if isinstance(resource.spec, SpotpoolSpec):
        found["settings"] = _settings(resource.spec)
    return parts.known(found)


def _settings(spec: SpotpoolSpec) -> Model:
    return parts.known(
        {
            "zones": [each for each in spec.all_zones if each],
            "allocation": spec.allocation,
            "maxSurge": spec.max_surge,
            "maxPricePerHour": "" if spec.max_price_per_hour is None else str(spec.max_price_per_hour),
            "maxPurchasesPerHour": spec.max_purchases_per_hour,
            "order": spec.order,
            "join": spec.join,
            "joinTimeoutSeconds": spec.join_timeout_seconds,
            "idleSeconds": spec.idle_seconds,
            "drainSeconds": spec.drain_seconds,
            "deletionPolicy": spec.deletion_policy,
            "chargeType": spec.instance_charge_type,
            "gpuCount": spec.template.gpu_count,
            "gateway": spec.gateway.upstream if spec.gateway else "",
        }
    )
