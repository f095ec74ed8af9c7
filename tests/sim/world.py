"""What the tests of the simulator share: a server on a virtual clock, and short ways to ask it."""

import json
import random
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from headroom.adapters.kube.transport import JSON, MERGE_PATCH, Reply, Transport
from headroom.sim.apiserver import ApiServer
from headroom.sim.clock import SimClock, run_virtual

T = TypeVar("T")
START = 1_767_225_600_000
BUDGETS = "/apis/headroom.dev/v1alpha1/namespaces/default/gpuworkloadbudgets"
PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"


def simulated(work: Callable[[ApiServer], Awaitable[T]], seed: int = 1) -> T:
    """Do `work` with a fresh server, on a loop whose time is simulated."""

    async def all_of_it() -> T:
        return await work(ApiServer(SimClock(START), random.Random(seed)))

    return run_virtual(all_of_it)


async def ask(to: Transport, method: str, path: str, body: Any = None, **query: str) -> Reply:
    sent = b"" if body is None else json.dumps(body).encode()
    kind = MERGE_PATCH if method == "PATCH" else JSON
    return await to.request(method, path, query=query, body=sent, content_type=kind)


def read(reply: Reply) -> Any:
    return json.loads(reply.body)


def config_map(name: str, **data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data or {"a": "b"}}


def budget(name: str = "b") -> dict[str, Any]:
    spec = {
        "selector": {"matchLabels": {"team": "a"}},
        "quota": {"gpuHours": "10", "windowHours": 24},
        "enforcement": {"action": "AlertOnly"},
    }
    return {
        "apiVersion": "headroom.dev/v1alpha1",
        "kind": "GPUWorkloadBudget",
        "metadata": {"name": name},
        "spec": spec,
    }


def pod(name: str = "p", gpus: int = 1, **annotations: str) -> dict[str, Any]:
    notes = {f"sim.headroom.dev/{key.replace('_', '-')}": value for key, value in annotations.items()}
    container = {"name": "main", "image": "none:1", "resources": {"limits": {"nvidia.com/gpu": str(gpus)}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "annotations": notes},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 10},
    }


def node(name: str = "n1", gpus: int = 4, **spec: Any) -> dict[str, Any]:
    status = {"allocatable": {"cpu": "8", "nvidia.com/gpu": str(gpus)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}
