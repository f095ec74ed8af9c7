"""The real Karpenter does what the simulated one does: the side that needs a cluster."""

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from tests.integration.accounts import GPU, condition
from tests.integration.enforced import Team, is_running, template, wait_for
from tests.integration.karpented import NODE_CLAIMS, NODE_POOLS, Karpented
from tests.karpenter_behaviour import ZONE, Behaviour

__all__ = ["TestReal"]

SERIAL = count(1)


class Real:
    """A `Side` beside everything else in one cluster: names are made different for each test."""

    def __init__(self, karpented: Karpented) -> None:
        self._all, self._name = karpented, f"side-{next(SERIAL)}"
        self._team = Team(karpented.cluster, self._name)

    def _own(self, name: str) -> str:
        return f"{self._name}-{name}"

    def sell(self, kind: str, dollars: float, *, sold_out: bool = False) -> None:
        self._all.market.put(self._own(kind), ZONE, dollars, mode="soldOut" if sold_out else "", told=False)

    def pool(self, name: str, kind: str, *, weight: int, gpus: int = 10) -> None:
        requirements = [
            {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [self._own(kind)]},
        ]
        ref = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
        made: dict[str, Any] = {"metadata": {"labels": {"pool": self._name}}}
        made |= {"spec": {"nodeClassRef": ref, "requirements": requirements, "expireAfter": "Never"}}
        disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never", "budgets": [{"nodes": "100%"}]}
        spec: dict[str, Any] = {"weight": weight, "limits": {GPU: str(gpus)}, "template": made}
        body = {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": self._own(name)}}
        self._all.apply_as("tests", body | {"spec": spec | {"disruption": disruption}})

    def pod(self, name: str) -> None:
        self._team.replicas("ReplicaSet", name, 1, template(1, self._name))

    def node_of(self, pod: str) -> str:
        found = [each for each in self._team.pods(f"{pod}-") if is_running(each)]
        return str(found[0]["spec"]["nodeName"]) if found else ""

    def pool_of(self, pod: str) -> str:
        name = self.node_of(pod)
        found = [each for each in self._all.api.items("api/v1/nodes") if each["metadata"]["name"] == name]
        labels = found[0]["metadata"]["labels"] if found else {}
        return str(labels.get("karpenter.sh/nodepool", "")).removeprefix(f"{self._name}-")

    def until(self, holds: Callable[[], bool], what: str) -> None:
        wait_for(holds, what)

    def is_marked(self, node: str) -> bool:
        claims = (each["status"] for each in self._all.api.items(NODE_CLAIMS))
        return any(each.get("nodeName") == node and condition(each, "Drifted")[0] == "True" for each in claims)

    def close(self) -> None:
        """Leave nothing that would cost anything."""
        for each in self._all.api.items(NODE_POOLS):
            if each["metadata"]["name"].startswith(f"{self._name}-"):
                self._all.api.send("DELETE", f"{NODE_POOLS}/{each['metadata']['name']}")


@pytest.fixture
def side(karpented: Karpented) -> Iterator[Real]:
    made = Real(karpented)
    yield made
    made.close()


class TestReal(Behaviour):
    """Every test of the suite."""
