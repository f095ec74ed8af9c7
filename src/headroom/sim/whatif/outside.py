"""What a replay plays beside the cluster: things that plans act on and that bring nodes and facts, such as machines with switches."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from headroom.model.facts import Node

if TYPE_CHECKING:
    from headroom.sim.whatif.cluster import ReplayCluster


class StandIn(Protocol):
    """Stands in for one thing outside. Its methods marked `carries_out` do what plans decide; its facts are in `ReplayCluster.facts`."""

    def stage(self, nodes: dict[str, Node]) -> list[Node]:
        """Before anything happens: put the nodes that are its own among those that the cluster shows; returns those that may come."""
        ...

    def has(self, node: str) -> bool:
        """Whether a node is one of its own, so that pods there matter to whoever decides on it."""
        ...


Makes = Callable[["ReplayCluster"], StandIn]
