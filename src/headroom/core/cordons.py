"""Nodes that stay cordoned although whoever did it is gone, or has nothing to do with the node any more: one chore for all capabilities."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator

from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.model.actions import UncordonNode
from headroom.model.decisions import Ref
from headroom.model.facts import Node
from headroom.model.world import World

Owns = Callable[[World, AnyResource, Node], bool]
"""Whether a resource may cordon a node."""


def left_over(world: World, kinds: Container[str], owns: Owns) -> Iterator[UncordonNode]:
    """Lift such cordons, for the kinds whose resources cordon nodes."""
    for node in world.nodes:
        by = dict(node.annotations).get(marks.CORDONED_BY, "") if node.annotations else ""
        kind, *rest = by.split("/")
        if kind not in kinds or not 1 <= len(rest) <= 2:
            continue
        owner = world.resources.get(Ref(kind, rest[0] if len(rest) == 2 else "", rest[-1]))
        if owner is None or not owns(world, owner, node):
            yield UncordonNode(node=node.name, by=by)
