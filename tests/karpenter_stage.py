"""NodePools, offers and pods for a Karpenter, simulated or real, as documents."""

from __future__ import annotations

from typing import Any

GPU = "nvidia.com/gpu"
REGION = "us-east-1"
ZONES = ("us-east-1a", "us-east-1b")
CLASS: dict[str, Any] = {
    "apiVersion": "karpenter.k8s.aws/v1",
    "kind": "EC2NodeClass",
    "metadata": {"name": "gpu"},
    "spec": {"role": "nodes"},
}


def an_offer(
    kind: str, zone: str, dollars: str, *, sold_out: bool = False, moves: str = "", **spec: Any
) -> dict[str, Any]:
    """A machine type in a zone at a price, with one GPU unless said otherwise."""
    annotations = {"sim.headroom.dev/sold-out": "true"} if sold_out else {}
    annotations |= {"sim.headroom.dev/price-moves": moves} if moves else {}
    given = {"provider": "aws", "region": REGION, "zone": zone, "instanceType": kind, "arch": "amd64"}
    given |= {"vendor": "nvidia", "gpus": "1", "capacityType": "spot", "pricePerHour": dollars}
    name = f"{kind}-{zone}-{(given | spec)['capacityType']}"
    metadata = {"name": name, "annotations": annotations}
    return {"apiVersion": "sim.headroom.dev/v1", "kind": "Offer", "metadata": metadata, "spec": given | spec}


def a_node_pool(
    name: str,
    kinds: list[str],
    *,
    weight: int = 1,
    gpus: int = 100,
    after: str = "2m",
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """A NodePool for some machine types in all zones."""
    requirements = [
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
        {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": kinds},
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": list(ZONES)},
    ]
    ref = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "gpu"}
    template = {"metadata": {"labels": labels or {}}, "spec": {"nodeClassRef": ref, "requirements": requirements}}
    disruption = {"consolidationPolicy": "WhenEmpty", "consolidateAfter": after}
    spec = {"weight": weight, "limits": {GPU: str(gpus)}, "template": template, "disruption": disruption}
    return {"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": spec}


def a_gpu_pod(name: str, *, gpus: int = 1, runs_for: str = "", **spec: Any) -> dict[str, Any]:
    """A pod that asks for GPUs."""
    annotations = {"sim.headroom.dev/runs-for": runs_for} if runs_for else {}
    container = {
        "name": "main",
        "image": "train",
        "resources": {"requests": {GPU: str(gpus)}, "limits": {GPU: str(gpus)}},
    }
    metadata = {"name": name, "namespace": "lab", "annotations": annotations}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]} | spec}
