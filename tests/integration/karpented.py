"""A cluster with the real Karpenter, a market of GPU machines, and the operator that ranks them: everything is real but the machines.

What Karpenter did to its nodes is read from a diary of every NodeClaim, with nothing of Headroom.
"""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headroom.api import marks
from tests.integration.accounts import GPU, Document, condition
from tests.integration.enforced import (
    Cluster,
    Team,
    enforced_cluster,
    enforcing_operator,
    is_running,
    template,
    wait_for,
)
from tests.integration.powered import Diary, Site, site_of
from tests.karpenter_lab import REGION, KarpenterLab, Market, definitions, lab_is_lacking

LEFTOVERS = "apis/headroom.dev/v1alpha1/leftovernodepools"
NODE_POOLS = "apis/karpenter.sh/v1/nodepools"
NODE_CLAIMS = "apis/karpenter.sh/v1/nodeclaims"
OWNER = marks.LEFTOVER
A, B, C = (f"{REGION}{letter}" for letter in "abc")
EAGER = {"switchAfter": "1s", "minDwell": "1s", "maxSwitchesPerDay": 1000, "consolidateAfter": "1s"}
"""Of a LeftoverNodePool for people without patience."""
HARM = ("Drifted", "Underutilized")


class Karpented:
    """All of it."""

    def __init__(self, cluster: Cluster, site: Site, folder: Path) -> None:
        self.cluster, self.site, self.plane, self.api = cluster, site, cluster.plane, cluster.api
        self.market = Market(folder)
        self.karpenter = KarpenterLab(self.plane, folder, self.market)
        self.operator = enforcing_operator(self.plane, folder, allow_egress=site.service.url)
        self.operator.program = ("-P", str(Path(__file__).parent / "offering.py"), str(self.market.offers))
        self.claims, self.statuses = Diary(self.plane, NODE_CLAIMS), Diary(self.plane, LEFTOVERS)

    def close(self) -> None:
        """End what looks at it, and Karpenter."""
        for diary in (self.claims, self.statuses):
            diary.close()
        self.karpenter.close()

    def ladder(self, name: str, *weights: int, **spec: Any) -> "Ladder":
        """A LeftoverNodePool for the pods of a new namespace of the same name."""
        made = Ladder(self, name, (weights[0], weights[-1]))
        made.create(**spec)
        return made

    def apply_as(self, manager: str, document: Document) -> None:
        """Server-side apply by somebody who takes what he wants."""
        flags = ("--server-side", "--force-conflicts", f"--field-manager={manager}")
        self.plane.kubectl("apply", *flags, "-f", "-", input=json.dumps(document))

    def node_pool(self, name: str) -> Document | None:
        """One of Karpenter's, if it is there."""
        return next((each for each in self.api.items(NODE_POOLS) if each["metadata"]["name"] == name), None)


@contextlib.contextmanager
def karpented_cluster(folder: Path) -> Iterator[Karpented]:
    """Everything, while it runs."""
    if why := lab_is_lacking():
        pytest.skip(why)  # no Karpenter is built here; in CI a skip fails
    with enforced_cluster(folder, *definitions()) as cluster, site_of(cluster, folder) as site:
        node_class = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass"}
        cluster.plane.apply(node_class | {"metadata": {"name": "default"}, "spec": {}})
        made = Karpented(cluster, site, folder)
        try:
            made.karpenter.start()
            made.operator.start()
            yield made
            made.operator.close()
        finally:
            made.close()


class Ladder(Team):
    """A namespace whose pods choose the nodes of one LeftoverNodePool."""

    def __init__(self, all_: Karpented, name: str, weights: tuple[int, int]) -> None:
        super().__init__(all_.cluster, name)
        self.all, self.name = all_, name
        self.market = all_.market
        self._weights = {"min": weights[0], "max": weights[1]}
        self.steady: dict[str, str] = {}
        """Pods that must stay where they are, each with its machine type."""

    # Making it

    def create(self, **spec: Any) -> None:
        """The LeftoverNodePool."""
        base: Document = {"region": REGION, "nodeClassKind": "KWOKNodeClass", "nodeClassName": "default"}
        base |= {"labels": {"pool": self.name}, "weights": self._weights, "onDemandFallback": False, "maxZones": 3}
        body = {"apiVersion": "headroom.dev/v1alpha1", "kind": "LeftoverNodePool", "metadata": {"name": self.name}}
        self.api.send("POST", LEFTOVERS, body | {"spec": base | EAGER | spec})

    def edit(self, **spec: Any) -> None:
        """Another spec."""
        self.api.send("PATCH", f"{LEFTOVERS}/{self.name}", {"spec": spec}, "merge")

    def remove(self) -> None:
        """The LeftoverNodePool goes."""
        self.api.send("DELETE", f"{LEFTOVERS}/{self.name}")

    def work(self, name: str, count: int = 1) -> None:
        """So many pods with a GPU each, that are made again when they go."""
        self.replicas("Deployment", name, count, template(1, self.name))

    def scale(self, name: str, count: int) -> None:
        """More or fewer of them."""
        self.api.send("PATCH", self.path("Deployment", name), {"spec": {"replicas": count}}, "merge")

    # Looking at it

    def document(self) -> Document | None:
        """The LeftoverNodePool, if it is there."""
        return next((each for each in self.api.items(LEFTOVERS) if each["metadata"]["name"] == self.name), None)

    def found(self) -> Document:
        """The LeftoverNodePool, which is there."""
        return self.api.send("GET", f"{LEFTOVERS}/{self.name}")

    def ladder_status(self) -> Document:
        """As it is written now."""
        found: Document = (self.document() or {}).get("status", {})
        return found

    def rungs(self, state: str = "Active") -> list[Document]:
        """Those in a state, best first."""
        return [each for each in self.ladder_status().get("rungs", ()) if each["state"] == state]

    def kinds(self, state: str = "Active") -> list[str]:
        """The first machine type of each rung in a state, best first."""
        return [each["instanceTypes"][0] for each in self.rungs(state)]

    def says(self) -> tuple[str, str, str]:
        """Whether it is ready, why, and in which words."""
        status = self.ladder_status()
        words = [str(each["message"]) for each in status.get("conditions", ()) if each["type"] == "Ready"]
        return *condition(status, "Ready"), "".join(words)

    def node_pools(self) -> list[Document]:
        """Its NodePools, heaviest first."""
        found = [each for each in self.api.items(NODE_POOLS) if _owner(each) == self.name]
        return sorted(found, key=lambda each: -each["spec"].get("weight", 0))

    def by_weight(self) -> list[str]:
        """The first machine type of each NodePool that may add nodes, heaviest first."""
        able = {each["name"] for each in self.rungs()}
        return [kind_of(each) for each in self.node_pools() if each["metadata"]["name"] in able]

    def node_claims(self, node_pool: str = "") -> list[Document]:
        """Its machines; of one NodePool if it is named."""
        begins = node_pool or f"leftover-{self.name}-"
        return [each for each in self.api.items(NODE_CLAIMS) if _pool(each).startswith(begins)]

    def rested(self) -> set[str]:
        """The NodePools that ever rested."""
        told = [each for status in self.all.statuses.of(self.name) for each in status.get("rungs", ())]
        return {each["name"] for each in told if each["state"] == "Resting"}

    def running(self, prefix: str = "") -> dict[str, str]:
        """Its pods that run, by their uid, each with the machine type that it runs on."""
        nodes = {each["metadata"]["name"]: each["metadata"]["labels"] for each in self.api.items("api/v1/nodes")}
        return {
            each["metadata"]["uid"]: nodes[each["spec"]["nodeName"]]["node.kubernetes.io/instance-type"]
            for each in self.pods(f"{prefix}-" if prefix else "")
            if is_running(each) and each["spec"]["nodeName"] in nodes
        }

    def serve(self, name: str, count: int = 1) -> list[str]:
        """Pods that find a machine; the types of these."""
        self.work(name, count)
        wait_for(lambda: len(self.running(name)) == count, f"{name} runs")
        return sorted(self.running(name).values())

    def wait_for_rungs(self, *kinds: str) -> None:
        """Until its NodePools stand, in this order of their first machine types."""
        wait_for(lambda: self.by_weight() == [*kinds], f"the NodePools of {self.name} are {', '.join(kinds)}")


def harm_to(all_: Karpented, ladder: str, *conditions: str) -> list[str]:
    """The machines of a ladder that Karpenter replaced, or was going to, each with why; by some conditions, if they are given."""
    found = set()
    for _, claim in all_.claims.all():
        if _pool(claim).startswith(f"leftover-{ladder}"):
            for each in claim.get("status", {}).get("conditions", ()):
                bad = each["type"] == "Drifted" or (each["type"] == "DisruptionReason" and each["reason"] in HARM)
                if bad and each["status"] == "True" and each["type"] in (conditions or (each["type"],)):
                    found.add(f"{claim['metadata']['name']}: {each['type']}, {each['reason']}")
    return sorted(found)


def gpu_limits(node_pool: Document) -> str:
    """How many GPUs it may have."""
    return str(node_pool["spec"]["limits"][GPU])


def written_by(manager: str, document: Document) -> Document:
    """The fields that somebody manages."""
    found = (each["fieldsV1"] for each in document["metadata"]["managedFields"] if each["manager"] == manager)
    return next(found, {})


def _pool(claim: Document) -> str:
    return str(claim["metadata"]["labels"]["karpenter.sh/nodepool"])


def _owner(node_pool: Document) -> str:
    return str(node_pool["metadata"].get("labels", {}).get(OWNER, ""))


def kind_of(node_pool: Document) -> str:
    """Its first machine type by name."""
    listed = {each["key"]: each["values"] for each in node_pool["spec"]["template"]["spec"]["requirements"]}
    return str(listed["node.kubernetes.io/instance-type"][0])
