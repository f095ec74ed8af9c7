"""The ways in which pods ask for bandwidth here: what their pods, nodes and kube-scheduler look like."""

from collections.abc import Mapping
from typing import Any

import msgspec

from bench.live.server import Document
from bench.placing.policies import OFF
from bench.placing.stage import NAMESPACE
from headroom.api import bandwidth_config
from headroom.api.bandwidth_config import LOCALITY

GROUP = 10
"""Pods of one owner."""
GPUS, CPUS, MEMORY = 8, 64, "512Gi"
NETWORK_MBPS, LOCAL_MBPS, POD_MBPS = 25_000, 100_000, 100
"""Of a node's NIC, of its virtual switch, and what a pod asks for, up and down."""
RESOURCES = {name: LOCAL_MBPS if "local" in name else NETWORK_MBPS for name in bandwidth_config.EXTENDED}
ANNOTATIONS = {f"kubernetes.io/{way}-bandwidth": f"{POD_MBPS}M" for way in ("egress", "ingress")}
EVERY_NODE = {"percentageOfNodesToScore": 100}
DRA = "resource.k8s.io/v1"
CLAIMS = f"/apis/{DRA}/namespaces/{NAMESPACE}/resourceclaims"
NIC = "nic.example.com"
GATE = "example.com/held"


class Way(msgspec.Struct, frozen=True, kw_only=True):
    """One of them. Of `one_in` pods one asks for bandwidth, and the others are none of its business."""

    name: str
    mode: str = OFF
    """What our policies add to pods that ask for bandwidth."""
    offers: Mapping[str, int] = {}
    """What nodes have for that."""
    is_near: bool = False
    """With a preference for nodes that have pods of its own group."""
    is_claimed: bool = False
    """With a claim on a part of the node's NIC."""
    one_in: int = 1
    settings: Mapping[str, Any] = {}
    """Of kube-scheduler."""

    def asks(self, number: int) -> bool:
        """Whether the pod of this number asks for bandwidth."""
        return number % self.one_in == 0


PLAIN = Way(name="plain")
NATIVE = Way(name="native", mode=bandwidth_config.NATIVE, offers=RESOURCES)
NEAR = msgspec.structs.replace(NATIVE, name="native with locality", is_near=True)
EXTENDER = Way(name="extender", mode=bandwidth_config.EXTENDER)
WIDE = msgspec.structs.replace(EXTENDER, name="extender, every node scored", settings=EVERY_NODE)
WIDE_PLAIN = msgspec.structs.replace(PLAIN, name="plain, every node scored", settings=EVERY_NODE)
WIDE_NEAR = msgspec.structs.replace(NEAR, name="native with locality, every node scored", settings=EVERY_NODE)
BESIDE_NATIVE = msgspec.structs.replace(NATIVE, name="unrelated pods beside native ones", one_in=10)
BESIDE_EXTENDER = msgspec.structs.replace(EXTENDER, name="unrelated pods beside an extender's", one_in=10)
CLAIMED = Way(name="DRA consumable capacity", is_claimed=True)


def node(number: int) -> Document:
    """A machine with eight GPUs; what it offers of its links stands in its annotations."""
    name = f"node-{number:05d}"
    capacity = {"cpu": str(CPUS), "memory": MEMORY, "pods": "110", "nvidia.com/gpu": str(GPUS)}
    links = {"network-bandwidth": f"{NETWORK_MBPS}M", "local-bandwidth": f"{LOCAL_MBPS}M"}
    metadata = {
        "name": name,
        "labels": {"kubernetes.io/hostname": name},
        "annotations": {f"headroom.dev/{key}": value for key, value in links.items()},
    }
    conditions = [{"type": "Ready", "status": "True"}]
    status = {"capacity": capacity, "allocatable": capacity, "conditions": conditions}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def pod(way: Way, number: int, prefix: str = "p", node_name: str = "") -> Document:
    """The pod of this number, with one GPU; ten after another have the same owner."""
    name, group, asks = f"{prefix}-{number:05d}", f"{prefix}-{number // GROUP:04d}", way.asks(number)
    requests = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}
    container: Document = {"name": "main", "image": "example.com/train:1"}
    container["resources"] = {"requests": requests, "limits": {"nvidia.com/gpu": "1"}}
    spec: Document = {"containers": [container], "restartPolicy": "Never"}
    if node_name:
        spec["nodeName"] = node_name
    else:
        spec["schedulingGates"] = [{"name": GATE}]
    if asks and way.is_claimed and not node_name:
        container["resources"]["claims"] = [{"name": "nic"}]
        spec["resourceClaims"] = [{"name": "nic", "resourceClaimName": name}]
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": group, "uid": group, "controller": True}
    metadata = {"name": name, "labels": {"group": group}, "ownerReferences": [owner]}
    if asks and way.mode != OFF:
        metadata["annotations"] = ANNOTATIONS | ({LOCALITY: "group"} if way.is_near else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


# Dynamic Resource Allocation: the node's NIC is a device that many claims share.


def device_class() -> Document:
    """All NICs."""
    selector = {"cel": {"expression": f"device.driver == '{NIC}'"}}
    return {"apiVersion": DRA, "kind": "DeviceClass", "metadata": {"name": NIC}, "spec": {"selectors": [selector]}}


def nic(number: int) -> Document:
    """What a driver would say of the node's NIC."""
    name = f"node-{number:05d}"
    capacity = {way: {"value": str(NETWORK_MBPS)} for way in ("egress", "ingress")}
    device = {"name": "nic", "allowMultipleAllocations": True, "capacity": capacity}
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": NIC, "nodeName": name, "pool": pool, "devices": [device]}
    return {"apiVersion": DRA, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def claim(number: int, prefix: str = "p") -> Document:
    """A part of a NIC, for the pod of this number."""
    capacity = {"requests": {way: str(POD_MBPS) for way in ("egress", "ingress")}}
    request = {"name": "nic", "exactly": {"deviceClassName": NIC, "count": 1, "capacity": capacity}}
    metadata = {"name": f"{prefix}-{number:05d}"}
    return {
        "apiVersion": DRA,
        "kind": "ResourceClaim",
        "metadata": metadata,
        "spec": {"devices": {"requests": [request]}},
    }
