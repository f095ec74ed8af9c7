"""A cluster as the contract tests see it, whichever is behind: the simulator, or a real API server.

The words here are the HTTP verbs of the API and a few things that need another hand on each side: a kubelet, compaction, users.
Every refusal is raised as the adapter's own typed error, so a test can ask for the type and for the raw status together.
"""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Self, TypeVar, cast

import pytest

from headroom.adapters.kube import errors, paths
from headroom.adapters.kube.client import Kube
from headroom.adapters.kube.errors import ApiError
from headroom.adapters.kube.transport import JSON, Reply, Transport
from headroom.model.ports import Clock
from tests.contracts.objects import Document, namespace
from tests.processes import PATIENCE_SECONDS

T = TypeVar("T")

LONGEST_PAUSE = 0.2
"""How long a test waits for controllers and events; far more than they need."""


@dataclass(frozen=True)
class Plural:
    group: str
    version: str
    name: str
    namespaced: bool = True


_ADMISSION = "admissionregistration.k8s.io"
PLURALS = {
    "BudgetHold": Plural("headroom.dev", "v1alpha1", "budgetholds", namespaced=False),
    "BudgetIndex": Plural("headroom.dev", "v1alpha1", "budgetindexes", namespaced=False),
    "BandwidthConfig": Plural("headroom.dev", "v1alpha1", "bandwidthconfigs", namespaced=False),
    "ConfigMap": Plural("", "v1", "configmaps"),
    "CustomResourceDefinition": Plural("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False),
    "Event": Plural("", "v1", "events"),
    "GPUWorkloadBudget": Plural("headroom.dev", "v1alpha1", "gpuworkloadbudgets"),
    "Job": Plural("batch", "v1", "jobs"),
    "JobSet": Plural(*paths.OWNERS["JobSet"]),
    "Lease": Plural("coordination.k8s.io", "v1", "leases"),
    "MutatingAdmissionPolicy": Plural(_ADMISSION, "v1", "mutatingadmissionpolicies", namespaced=False),
    "MutatingAdmissionPolicyBinding": Plural(_ADMISSION, "v1", "mutatingadmissionpolicybindings", namespaced=False),
    "Namespace": Plural("", "v1", "namespaces", namespaced=False),
    "Node": Plural("", "v1", "nodes", namespaced=False),
    "Pod": Plural("", "v1", "pods"),
    "PodDisruptionBudget": Plural("policy", "v1", "poddisruptionbudgets"),
    "PowerPool": Plural("headroom.dev", "v1alpha1", "powerpools", namespaced=False),
    "DeviceClass": Plural("resource.k8s.io", "v1", "deviceclasses", namespaced=False),
    "ResourceClaim": Plural("resource.k8s.io", "v1", "resourceclaims"),
    "ResourceClaimTemplate": Plural("resource.k8s.io", "v1", "resourceclaimtemplates"),
    "ResourceSlice": Plural("resource.k8s.io", "v1", "resourceslices", namespaced=False),
    "ReleaseRequest": Plural("headroom.dev", "v1alpha1", "releaserequests"),
    "SubjectAccessReview": Plural("authorization.k8s.io", "v1", "subjectaccessreviews", namespaced=False),
    "TokenReview": Plural("authentication.k8s.io", "v1", "tokenreviews", namespaced=False),
    "ValidatingAdmissionPolicy": Plural(_ADMISSION, "v1", "validatingadmissionpolicies", namespaced=False),
    "ValidatingAdmissionPolicyBinding": Plural(_ADMISSION, "v1", "validatingadmissionpolicybindings", namespaced=False),
    "Workload": Plural(*paths.OWNERS["Workload"]),
}


@dataclass(frozen=True)
class Event:
    """One line of a watch."""

    type: str
    object: Document

    @property
    def name(self) -> str:
        return str(self.object["metadata"].get("name", ""))

    @property
    def version(self) -> int:
        return int(self.object["metadata"]["resourceVersion"])


@dataclass
class Watch:
    """An open watch."""

    lines: AsyncIterator[bytes]
    seen: list[Event] = field(default_factory=list)

    async def next(self) -> Event:
        """The next event; it fails the test when none comes, or the server ends the watch."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            line = await anext(self.lines, b"")
        assert line, "the server ended the watch"
        event = Event(**json.loads(line))
        self.seen.append(event)
        return event

    async def take(self, count: int) -> list[Event]:
        """So many events."""
        return [await self.next() for _ in range(count)]

    async def rest(self) -> list[Event]:
        """All events until the server ends the watch."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            return [Event(**json.loads(line)) async for line in self.lines]


class Cluster(ABC):
    """One namespace of one cluster, for one test."""

    def __init__(self, namespace: str, clock: Clock) -> None:
        self.namespace = namespace
        self.clock = clock
        self._nodes: list[str] = []

    async def __aenter__(self) -> Self:
        await self.do("POST", self.path("Namespace"), namespace(self.namespace))
        return self

    async def __aexit__(self, *_: object) -> None:
        """Clear away what others could stumble over. The namespace stays: deleting hundreds takes a real controller minutes."""
        for node in self._nodes:
            await self.ask("DELETE", self.path("Node", node))
        await self.close()

    async def node(self) -> str:
        """The name of a new node without a kubelet, so that nothing moves its pods but the test."""
        return str((await self.make_node())["metadata"]["name"])

    async def make_node(self) -> Document:
        name = f"{self.namespace}-node-{len(self._nodes)}"
        self._nodes.append(name)
        capacity = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": "8"}
        status = {"capacity": capacity, "allocatable": capacity}
        # Pods that other tests left behind must not find their way here.
        spec = {"taints": [{"key": "contracts", "effect": "NoSchedule"}]}
        document = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status}
        return await self.create(document)

    @property
    def kube(self) -> Kube:
        """The adapter's client, as `admin`."""
        return self.client("admin")

    def client(self, user: str) -> Kube:
        return Kube(self.transport(user), self.clock)

    # What each side does in its own way

    @abstractmethod
    def transport(self, user: str = "admin") -> Transport:
        """A connection as `admin`, who may do everything, as `nobody`, who may do nothing, or as some other token's owner."""

    @abstractmethod
    def token(self, user: str) -> str:
        """A token: of `admin` or `nobody`, or one that is `expired` or `unknown`."""

    @abstractmethod
    async def compact(self) -> None:
        """Make the server forget every version but the present."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of all connections."""

    # Addresses

    def path(self, kind: str, name: str = "", part: str = "", namespace: str | None = None) -> str:
        plural = PLURALS[kind]
        where = (self.namespace if namespace is None else namespace) if plural.namespaced else ""
        return paths.of(plural.group, plural.version, plural.name, where, name, part)

    def path_of(self, document: Document, part: str = "") -> str:
        metadata = document["metadata"]
        return self.path(document["kind"], metadata["name"], part, metadata.get("namespace"))

    # Verbs

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        content_type: str = JSON,
        user: str = "admin",
    ) -> Reply:
        """One request and its answer, whatever it is."""
        sent = b"" if body is None else json.dumps(body).encode()
        return await self.transport(user).request(method, path, query=query, body=sent, content_type=content_type)

    async def do(self, method: str, path: str, body: Any = None, **more: Any) -> Document:
        """One request that must succeed; else its typed error is raised."""
        reply = await self.ask(method, path, body, **more)
        if reply.status >= 300:
            raise errors.from_reply(reply, f"{method} {path}")
        return _read(reply.body)

    async def get(self, kind: str, name: str, **more: Any) -> Document:
        return await self.do("GET", self.path(kind, name), **more)

    async def listed(self, kind: str, *, user: str = "admin", **query: Any) -> Document:
        """A list; `_continue` stands for the query parameter that is no Python name."""
        asked = {name.lstrip("_"): str(value) for name, value in query.items()}
        return await self.do("GET", self.path(kind), query=asked, user=user)

    async def names(self, kind: str, **query: Any) -> list[str]:
        return [item["metadata"]["name"] for item in (await self.listed(kind, **query))["items"]]

    async def create(self, document: Document, **query: str) -> Document:
        return await self.do("POST", self.path(document["kind"]), document, query=query)

    async def replace(self, document: Document, part: str = "") -> Document:
        return _read(await self.kube.replace(self.path_of(document, part), document))

    async def merge(self, document: Document, patch: Document, part: str = "") -> Document:
        return _read(await self.kube.merge_patch(self.path_of(document, part), patch))

    async def strategic(self, document: Document, patch: Document, part: str = "") -> Document:
        return _read(await self.kube.strategic_patch(self.path_of(document, part), patch))

    async def json_patch(self, document: Document, *steps: Document) -> Document:
        return _read(await self.kube.json_patch(self.path_of(document), steps))

    async def apply(self, document: Document, owner: str, *, force: bool = False, part: str = "") -> Document:
        return _read(await self.kube.apply(self.path_of(document, part), document, owner=owner, force=force))

    async def delete(self, document: Document, **options: Any) -> Document:
        return _read(await self.kube.delete(self.path_of(document), **options))

    async def evict(self, pod: Document, **options: Any) -> Document:
        name, wanted = pod["metadata"]["name"], {"uid": pod["metadata"].get("uid", ""), **options}
        return _read(await self.kube.evict(self.namespace, name, **wanted))

    async def exists(self, document: Document) -> bool:
        return (await self.ask("GET", self.path_of(document))).status == 200

    # Watching and waiting

    @asynccontextmanager
    async def watch(
        self, kind: str, version: str | None = None, *, user: str = "admin", **query: Any
    ) -> AsyncIterator[Watch]:
        asked = {"watch": "true"} | {name: str(value) for name, value in query.items()}
        if version is not None:
            asked["resourceVersion"] = version
        lines = self.transport(user).stream(self.path(kind), query=asked, idle=PATIENCE_SECONDS)
        async with aclosing(cast("AsyncGenerator[bytes, None]", lines)):
            yield Watch(lines)

    async def until(self, probe: Callable[[], Awaitable[T]], what: str) -> T:
        """The first true answer; fails the test if controllers take too long."""
        end, pause = self.clock.monotonic() + PATIENCE_SECONDS, 0.02
        while not (found := await probe()):
            assert self.clock.monotonic() < end, f"waited in vain until {what}"
            await self.clock.sleep(pause)
            pause = min(pause * 1.5, LONGEST_PAUSE)
        return found

    async def until_gone(self, document: Document) -> None:
        async def gone() -> bool:
            return not await self.exists(document)

        await self.until(gone, f"{document['kind']} {document['metadata']['name']} is gone")

    # A kubelet's and a scheduler's work by hand

    async def bind(self, pod: Document, node: str) -> Document:
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod["metadata"]["name"]},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        return await self.do("POST", self.path_of(pod, "binding"), binding)

    async def run(self, pod: Document, node: str) -> Document:
        """Bind a pod and have it Running and Ready."""
        await self.bind(pod, node)
        state = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
        status = {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [
                {"name": "main", "image": "none", "imageID": "", "ready": True, "restartCount": 0, "state": state}
            ],
        }
        return await self.merge(pod, {"status": status}, "status")


def _read(body: bytes) -> Document:
    return cast("Document", json.loads(body))


@contextmanager
def refused(kind: type[ApiError], status: int, reason: str = "") -> Iterator[pytest.ExceptionInfo[Any]]:
    """The body must be refused with exactly this typed error, HTTP status and, where given, reason."""
    with pytest.raises(kind) as caught:
        yield caught
    error = caught.value
    assert type(error) is kind
    assert error.status == status, error.message
    assert not reason or error.reason == reason, error.message
