"""Small builders of facts and resources: a test names only what it is about."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from headroom.api import kinds
from headroom.api.kinds import KINDS, AnyResource
from headroom.api.resources import API_VERSION
from headroom.core.usage import DeviceView, row_of, table_of
from headroom.model.changes import Changes, Topic
from headroom.model.decisions import Ref
from headroom.model.device_facts import AllocatedDevice, Claim, DeviceChoice, DeviceRequest
from headroom.model.devices import DeviceTable
from headroom.model.facts import Node, Pod, Shape
from headroom.model.tables import NodeTable, PodTable
from headroom.model.times import moment
from headroom.model.world import World, by_ref

NOON = moment("2026-11-15T12:00:00Z") or 0

SPECS: dict[str, dict[str, Any]] = {
    "GPUWorkloadBudget": {
        "selector": {"matchLabels": {"team": "a"}},
        "quota": {"gpuHours": "100", "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
    },
    "Spotpool": {"region": "ap-singapore", "instanceType": "GN7.2XLARGE32", "minimum": 2, "maximum": 2},
    "PowerPool": {
        "machines": [
            {
                "name": "worker-1",
                "gpuCount": 4,
                "scaleUpEndpoint": "http://power-api/worker-1/start",
                "scaleDownEndpoint": "http://power-api/worker-1/stop",
            }
        ]
    },
    "Bandwidth": {
        "capacity": {"local": {"ulMbps": 20000, "dlMbps": 20000}, "network": {"ulMbps": 1000, "dlMbps": 1000}}
    },
    "LeftoverNodePool": {"region": "us-east-1", "nodeClassName": "gpu"},
    "ReleaseRequest": {"target": {"kind": "Pod", "name": "train-0"}, "requestedBy": "alice"},
}


def a_document(kind: str, name: str = "one", **spec: Any) -> dict[str, Any]:
    """A valid manifest of a kind, with some of its spec replaced."""
    metadata = {"name": name} | ({"namespace": "team-a"} if KINDS[kind].namespaced else {})
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": metadata, "spec": SPECS[kind] | spec}


def a_resource(kind: str = "GPUWorkloadBudget", name: str = "one", *, generation: int = 1, **spec: Any) -> AnyResource:
    """A resource of a kind as it comes from the API server; wrong specs become problems."""
    document = a_document(kind, name, **spec)
    problems = tuple(kinds.problems(document))
    return AnyResource(
        kind=kind,
        namespace=document["metadata"].get("namespace", ""),
        name=name,
        uid=f"uid-{kind}-{name}",
        generation=generation,
        spec=None if problems else kinds.spec_of(kind, document["spec"]),
        status=KINDS[kind].status(),
        problems=problems,
    )


def a_world(*resources: AnyResource, now: int = NOON, **more: Any) -> World:
    """A world that holds these resources."""
    return World(now=now, resources=by_ref(resources), **more)


def a_used_world(*resources: AnyResource, now: int = NOON, **more: Any) -> World:
    """A world with a complete view: `pods`, `nodes` and `usage` are facts, from which the rows of usage follow."""
    pods, nodes, cluster = PodTable(), NodeTable(), more.get("cluster", "default")
    for pod in more.pop("pods", ()):
        pods.put(pod)
    for node in more.pop("nodes", ()):
        nodes.put(node)
    rows = [row for each in more.pop("usage", ()) if (row := row_of(each, cluster)) is not None]
    world = a_world(*resources, now=now, pods=pods, nodes=nodes, **more)
    return structs.replace(world, usage=table_of(world, rows))


def a_ref(kind: str = "GPUWorkloadBudget", name: str = "one") -> Ref:
    """How `a_resource` of the same arguments is named."""
    return Ref(kind, "team-a" if KINDS[kind].namespaced else "", name)


def a_pod(name: str = "train-0", *, gpus: int = 1, **fields: Any) -> Pod:
    """A pod that asks for whole GPUs."""
    shape = Shape(requests=(("nvidia.com/gpu", gpus * 1_000_000),) if gpus else ())
    defaults: dict[str, Any] = {"uid": f"uid-{name}", "namespace": "team-a", "name": name, "shape": shape}
    return Pod(**(defaults | fields))


def a_node(name: str = "worker-1", *, gpus: int = 8, **fields: Any) -> Node:
    """A ready node with whole GPUs."""
    defaults: dict[str, Any] = {"name": name, "ready": True, "allocatable": (("nvidia.com/gpu", gpus * 1_000_000),)}
    return Node(**(defaults | fields))


def no_devices() -> DeviceView:
    """A cluster without claims and devices."""
    return DeviceView({}, DeviceTable(), PodTable(), NodeTable())


def a_request(device_class: str = "gpu.nvidia.com", count: int = 1, **fields: Any) -> DeviceRequest:
    """A request of a claim for devices of one class."""
    return DeviceRequest(name="r", choices=(DeviceChoice(device_class=device_class, count=count),), **fields)


def a_claim(name: str = "claim", *, namespace: str = "team-a", devices: int = 0, **fields: Any) -> Claim:
    """A claim that asks for devices of NVIDIA, and has them if there are `devices`."""
    driver = fields.pop("driver", "gpu.nvidia.com")
    device_class = fields.pop("device_class", driver)
    allocated = tuple(
        AllocatedDevice(device_class=device_class, driver=driver, pool="n", device=f"gpu-{number}")
        for number in range(devices)
    )
    base: dict[str, Any] = {"requests": (a_request(device_class, devices or 1),), "uid": f"uid-of-claim-{name}"}
    base |= {"allocated": allocated, "is_allocated": bool(devices)}
    return Claim(namespace=namespace, name=name, **base | fields)


def news_of(*topics: Topic) -> Changes:
    """Something about these topics is new, nobody says what."""
    return Changes(facts={topic: set() for topic in topics})
