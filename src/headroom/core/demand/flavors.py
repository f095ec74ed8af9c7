"""Where pods go to which Kueue has given quota: the ResourceFlavors of their Workload say so, and Kueue writes it into the pods."""

from __future__ import annotations

import msgspec
from msgspec import structs

from headroom.model.facts import Shape, WorkloadPart
from headroom.model.world import World


def flavored(world: World, part: WorkloadPart) -> Shape | None:
    """The shape of pods that are made of a template; None if nobody knows it."""
    shape = part.shape
    for name in part.flavors:
        flavor = world.flavors.get(name)
        if flavor is None or shape is None:
            return None
        selector = dict(shape.node_selector) | dict(flavor.labels)
        tolerations = _joined(shape.tolerations, flavor.tolerations)
        shape = structs.replace(shape, node_selector=tuple(sorted(selector.items())), tolerations=tolerations)
    return shape


def _joined(first: str, second: str) -> str:
    """Two lists in JSON as one; what cannot be read stays as it is, and fits nowhere."""
    if not (first and second):
        return first or second
    try:
        mine, others = (msgspec.json.decode(each, type=list[msgspec.Raw]) for each in (first, second))
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return first
    return msgspec.json.encode([*mine, *others]).decode()
