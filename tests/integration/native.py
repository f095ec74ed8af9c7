"""A control plane in native mode: the real kube-scheduler, the operator with its own rights, KWOK's pods, and what kubelets make of nodes."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headroom.api import generate
from headroom.api.bandwidth_config import EXTENDED
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from tests.control_plane import ControlPlane, find_assets, lacking
from tests.integration import extended
from tests.integration.accounts import OWN_NAMESPACE, Api, Operator
from tests.integration.extended import Document, Stage

LABEL = "headroom.dev/device-plugin"
PARTS = ("kube-scheduler", "kwok")
LOOKS_EVERY = 0.5
"""Seconds; a real kubelet takes ten."""


class Kubelets:
    """What kubelets do with the resources of their nodes, and on those that KWOK does not play, with pods."""

    def __init__(self, plane: ControlPlane) -> None:
        self._api, self._over = Api(plane), threading.Event()
        self.problems: list[str] = []
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._over.wait(LOOKS_EVERY):
            try:
                nodes = self._api.items("api/v1/nodes?resourceVersion=0")
                for node in nodes:
                    self._recompute(node)
                played = {node["metadata"]["name"]: node for node in nodes if not node["metadata"].get("annotations")}
                for name, node in played.items():
                    self._admit(name, node)
            except (AssertionError, OSError) as problem:  # a node may be gone by now; the next look tells
                self.problems.append(str(problem))

    def _recompute(self, node: Document) -> None:
        """What is allocatable follows from the capacity, whatever anybody wrote."""
        capacity, allocatable = (node["status"].get(part, {}) for part in ("capacity", "allocatable"))
        if capacity != allocatable:
            gone = dict.fromkeys(allocatable.keys() - capacity.keys())
            self._write(node["metadata"]["name"], {"allocatable": gone | capacity})

    def _admit(self, name: str, node: Document) -> None:
        """New pods run if they fit beside those that do; the others are failed."""
        pods = self._api.items(f"api/v1/pods?fieldSelector=spec.nodeName={name}")
        room = {each: number(node["status"].get("allocatable", {}).get(each, "0")) for each in EXTENDED}
        for pod in pods:
            if pod["status"]["phase"] == "Running":
                room = {each: left - asked(pod, each) for each, left in room.items()}
        for pod in pods:
            if pod["status"]["phase"] != "Pending":
                continue
            short = [each for each, left in room.items() if asked(pod, each) > max(left, 0)]
            status = {"phase": "Failed", "reason": f"OutOf{short[0]}"} if short else {"phase": "Running"}
            path = f"api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}/status"
            self._api.send("PATCH", path, {"status": status}, "merge")
            if not short:
                room = {each: left - asked(pod, each) for each, left in room.items()}

    def restart(self, api: Api, name: str) -> None:
        """One without a device plugin's checkpoint: it knows nothing of extended resources, so there are none."""
        nothing = dict.fromkeys(EXTENDED, "0")
        body = {"status": {"capacity": nothing, "allocatable": nothing}}
        api.send("PATCH", f"api/v1/nodes/{name}/status", body, "merge")

    def _write(self, name: str, status: Document) -> None:
        self._api.send("PATCH", f"api/v1/nodes/{name}/status", {"status": status}, "merge")

    def close(self) -> None:
        self._over.set()
        self._thread.join()
        self._api.close()


class NativeSite(Stage):
    """The cluster, its kubelets and the operator."""

    def __init__(self, plane: ControlPlane, operator: Operator) -> None:
        super().__init__(plane, lambda: operator.log)
        self.operator, self.kubelets, self.api = operator, Kubelets(plane), Api(plane)

    def node(self, name: str) -> Document:
        found: Document = json.loads(self.plane.get(f"/api/v1/nodes/{name}"))
        return found

    def published(self, name: str) -> tuple[dict[str, int], dict[str, int]]:
        """Capacity and allocatable of a node's bandwidth, by short names."""
        status = self.node(name)["status"]
        has = (status.get(part, {}) for part in ("capacity", "allocatable"))
        capacity, allocatable = (
            {key.removeprefix("headroom.dev/"): number(value) for key, value in each.items() if key in EXTENDED}
            for each in has
        )
        return capacity, allocatable

    def publishes(self, name: str, **mbps: int) -> bool:
        """Whether a node publishes exactly that."""
        wanted = {key.replace("_", "-"): each for key, each in mbps.items()}
        return self.published(name) == (wanted, wanted)

    def is_whole(self, name: str) -> bool:
        """Whether a node publishes what the settings say of it."""
        return self.publishes(
            name, egress_mbps=1000, ingress_mbps=1000, local_egress_mbps=19000, local_ingress_mbps=19000
        )

    def taints(self, name: str) -> list[str]:
        """Our taints of a node."""
        found = self.node(name)["spec"].get("taints", [])
        return [f"{each['key']}:{each['effect']}" for each in found if each["key"].startswith("headroom.dev/")]

    def condition(self, name: str, type_: str) -> tuple[str, str]:
        """Status and reason of a condition of a node's Bandwidth."""
        found = json.loads(self.plane.get(f"/apis/headroom.dev/v1alpha1/bandwidths/{name}"))
        every = found.get("status", {}).get("conditions", [])
        return next(((each["status"], each["reason"]) for each in every if each["type"] == type_), ("", ""))

    def say(self, name: str, spec: Document) -> None:
        """What a person writes into a node's Bandwidth."""
        self.api.send("PATCH", f"apis/headroom.dev/v1alpha1/bandwidths/{name}", {"spec": spec}, "merge")

    def label(self, name: str, value: str | None) -> None:
        """Attest a device plugin, or do so no more."""
        self.api.send("PATCH", f"api/v1/nodes/{name}", {"metadata": {"labels": {LABEL: value}}}, "merge")

    def attested(self, *names: str, **labels: str) -> None:
        """Nodes with a device plugin, once all of them publish what they have."""
        self.nodes(*names, labels={LABEL: "true", **labels})
        self.until(lambda: all(map(self.is_whole, names)), "the nodes publish their bandwidth")


def pod(name: str, mbps: int, *, pool: str = "", **requests: str) -> Document:
    """A pod that asks for as much in both directions, and natively for what is said. It goes nowhere but to nodes without our taint."""
    found = extended.pod(name, mbps, pool=pool, marker=False)
    not_ready = {"key": "node.kubernetes.io/not-ready", "operator": "Exists"}
    found["spec"]["tolerations"] = [not_ready]  # nobody here takes that taint from new nodes
    if requests:
        wanted = {f"headroom.dev/{key.replace('_', '-')}": each for key, each in requests.items()}
        found["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1", **wanted}, "limits": wanted}
    return found


def asked(pod: Document, name: str) -> int:
    """What a pod requests of one resource."""
    wanted = (each.get("resources", {}).get("requests", {}) for each in pod["spec"]["containers"])
    return sum(number(each.get(name, "0")) for each in wanted)


def number(quantity: str) -> int:
    """A whole amount as the API server writes it."""
    units = {"k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15, "E": 10**18}
    return int(quantity[:-1]) * units[quantity[-1]] if quantity[-1] in units else int(quantity)


@contextlib.contextmanager
def native_cluster(folder: Path) -> Iterator[NativeSite]:
    """A cluster whose kube-scheduler counts bandwidth, with the operator as it is deployed."""
    assets = find_assets()
    if why := lacking(assets, PARTS):
        pytest.skip(why)  # no control plane is built here; in CI a skip fails
    with ControlPlane(assets, components=PARTS) as plane:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        for file in ("rbac.yaml", "roles.yaml", "policies.yaml"):
            plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / file))
        rights = {"kubeconfig": str(plane.account_kubeconfig("headroom", OWN_NAMESPACE))}
        operator = Operator(plane, folder, bandwidth_mode="Native", **rights)
        operator.start()
        site = NativeSite(plane, operator)
        try:
            yield site
        finally:
            site.kubelets.close()
            operator.close()
            site.api.close()
