"""Devices that pods ask for by ResourceClaims (DRA), where somebody says which classes count as which GPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import structs

from headroom.core.demand.fitting import WHOLE
from headroom.core.demand.units import LeftOut, Room
from headroom.core.usage import CLASSES, DRIVERS
from headroom.model.device_facts import Claim, ClaimTemplate
from headroom.model.facts import Amounts, Pod
from headroom.model.world import World


class ClaimedDevices:
    """What pending pods ask for by claims; what several share is asked for once."""

    def __init__(self, world: World, classes: Mapping[str, str]) -> None:
        """`classes` are those that count, each with the resource whose GPUs its devices are."""
        self._world, self._classes = world, classes
        self._shared: dict[str, str] = {}
        """Claims that somebody asked for, each with that pod's name."""

    def asked(self, pod: Pod) -> Amounts | LeftOut:
        """GPUs that a pod asks for by claims, or why it counts for none."""
        world, space, found = self._world, pod.namespace, dict[str, int]()
        for name in pod.claims:
            claim = world.claims.get(f"{space}/{name}")
            if claim is not None and claim.is_allocated:
                return _left_out(f"Its claim {name} is allocated, so only the node with those devices fits.")
            if claim is not None and self._shared.setdefault(claim.key, pod.key) != pod.key:
                return _left_out(f"It shares claim {name} with pod {self._shared[claim.key]}.")
            self._add(found, claim)
        for name in pod.claim_templates:
            self._add(found, world.devices.templates.get(f"{space}/{name}"))
        return tuple(sorted(found.items())) if found else self._unnamed(pod)

    def _add(self, found: dict[str, int], each: Claim | ClaimTemplate | None) -> None:
        for request in each.requests if each is not None else ():
            choice = next((one for one in request.choices if one.device_class in self._classes), None)
            if choice is not None and not request.is_admin:
                # How many are all of a node's is not known before it is there: at least one.
                many, resource = 1 if choice.takes_all else choice.count, self._classes[choice.device_class]
                found[resource] = found.get(resource, 0) + many * WHOLE

    def _unnamed(self, pod: Pod) -> LeftOut:
        claims = [self._world.claims.get(f"{pod.namespace}/{name}") for name in pod.claims]
        templates = [self._world.devices.templates.get(f"{pod.namespace}/{name}") for name in pod.claim_templates]
        requests = [request for each in (*claims, *templates) if each is not None for request in each.requests]
        named = sorted({choice.device_class for each in requests for choice in each.choices} - {""})
        told = f" of class {', '.join(named)}" if named else ""
        why = f"It requests devices{told} by ResourceClaim, and no pool names such a class (deviceClasses)."
        usual = next((CLASSES[each] for each in named if each in CLASSES), "")
        return LeftOut(reason="DeviceClaims", message=why, resource=usual, classes=tuple(named))


def _left_out(why: str) -> LeftOut:
    return LeftOut(reason="DeviceClaims", message=why)


def devices_on(world: World, node: str, resource: str) -> int:
    """GPUs that drivers show on a node for claims, in millionths."""
    drivers = [driver for driver, name in DRIVERS.items() if name == resource and driver in world.devices.drivers]
    return sum(world.devices.on_nodes(driver).get(node, 0) for driver in drivers)


def with_devices(world: World, room: Room, resources: Collection[str], *, emptied: bool = False) -> Room:
    """A room of a node with the GPUs that are free there for claims, where it has none for requests."""
    free, more = dict(room.free), dict[str, int]()
    for resource in resources:
        there = 0 if free.get(resource) else devices_on(world, room.name, resource)
        if there:
            more[resource] = max(0, there - (0 if emptied else _held(world, room.name, resource)))
    return structs.replace(room, free=tuple(sorted((free | more).items()))) if more else room


def _held(world: World, node: str, resource: str) -> int:
    """GPUs on a node that pods have by claims."""
    pods = [pod for uid in world.pods.by_node[node] if (pod := world.pods.get(uid)) is not None]
    keys = {f"{pod.namespace}/{name}" for pod in pods for name in (*pod.claims, pod.extended_claim) if name}
    claims = [claim for key in sorted(keys) if (claim := world.claims.get(key)) is not None and claim.is_allocated]
    return sum(WHOLE for claim in claims for each in claim.allocated if DRIVERS.get(each.driver) == resource)
