"""The NodePools that LeftoverNodePools write, kept in a replay so that a decision is done once. Nobody makes nodes of them there."""

from __future__ import annotations

from typing import Any

from headroom.adapters.kube import karpenter, raw
from headroom.api import marks
from headroom.api.kinds import AnyResource
from headroom.model import actions
from headroom.model.facts import Node, NodeClass, NodePool
from headroom.model.handlers import carries_out
from headroom.sim.whatif.cluster import ReplayCluster

KIND = "LeftoverNodePool"


class Ladders:
    """What plans decide about NodePools and node classes, done to facts."""

    def __init__(self, cluster: ReplayCluster) -> None:
        self._cluster = cluster
        self._pools: dict[str, NodePool] = dict(cluster.case.facts.get("node_pools", {}))
        self._classes: dict[str, NodeClass] = dict(cluster.case.facts.get("node_classes", {}))
        self._specs: dict[str, dict[str, Any]] = {}
        cluster.facts |= {"node_pools": self._pools, "node_classes": self._classes}

    def stage(self, _nodes: dict[str, Node]) -> list[Node]:
        """Nodes are those of the record: no more come."""
        return []

    def has(self, _node: str) -> bool:
        """No node is one of theirs."""
        return False

    @carries_out(actions.ApplyNodePool)
    def apply(self, action: actions.ApplyNodePool, by: AnyResource | None) -> bool:
        """A NodePool says that from now on."""
        if by is None:
            return False
        spec = {**self._specs.get(action.node_pool, {}), **action.spec} if action.only else action.spec
        if self._specs.get(action.node_pool) == spec:
            return False
        self._specs[action.node_pool] = spec
        metadata = {
            "name": action.node_pool,
            "uid": action.uid or action.node_pool,
            "labels": {marks.LEFTOVER: by.name},
        }
        document = {"metadata": metadata, "spec": spec}
        self._pools[action.node_pool] = karpenter.node_pool_of(raw.fitted(document, karpenter.NodePoolWire))
        return self._acted()

    @carries_out(actions.DeleteNodePool)
    def delete(self, action: actions.DeleteNodePool, _by: AnyResource | None) -> bool:
        """It is gone."""
        self._specs.pop(action.node_pool, None)
        return self._pools.pop(action.node_pool, None) is not None and self._acted()

    @carries_out(actions.ApplyNodeClass)
    def make_class(self, action: actions.ApplyNodeClass, by: AnyResource | None) -> bool:
        """A node class is there from now on."""
        key = f"{action.kind}/{action.node_class}"
        if by is None or key in self._classes:
            return False
        labels = ((marks.LEFTOVER, by.name),)
        self._classes[key] = NodeClass(
            kind=action.kind, name=action.node_class, uid=key, labels=labels, spec=action.spec
        )
        return self._acted()

    @carries_out(actions.DeleteNodeClass)
    def delete_class(self, action: actions.DeleteNodeClass, _by: AnyResource | None) -> bool:
        """It is gone."""
        return self._classes.pop(f"{action.kind}/{action.node_class}", None) is not None and self._acted()

    def _acted(self) -> bool:
        self._cluster.urgent.add(KIND)
        return True
