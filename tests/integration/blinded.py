"""A cluster in motion behind a proxy that answers wrongly: a hold with queued pods, a suspended Job, evictions, and machines.

The API server's audit log and the power service tell what the operator really did; a cell compares that with what is due.
"""

import contextlib
import json
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from headroom.api import generate
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from headroom.api.marks import GATE
from tests.control_plane import ControlPlane, wait_until
from tests.fault_proxy import Fault, FaultProxy
from tests.integration.accounts import GPU, OWN_NAMESPACE, Api, Document, Operator
from tests.power_service import PowerService

TEAM = "team"
BUDGETS = f"apis/headroom.dev/v1alpha1/namespaces/{TEAM}/gpuworkloadbudgets"
PODS = f"api/v1/namespaces/{TEAM}/pods"
QUEUED = 3
WELL_SECONDS = 60.0
LONGEST_SECONDS = 180.0
"""A cell that is not well by then is given up."""
_NO_EFFECTS = {"leases", "events", "selfsubjectaccessreviews", "subjectaccessreviews", "tokenreviews"}
_AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Metadata", "users": ["headroom"], "verbs": ["create", "update", "patch", "delete"]},
        {"level": "None"},
    ],
}
_OURS = "/apis/headroom.dev/v1alpha1/"


def _of(*plurals: str) -> Callable[[str], bool]:
    """Requests for these collections and their objects."""
    return lambda path: any(f"/{plural}" in f"{path}/" for plural in plurals)


PATHS: dict[str, Callable[[str], bool]] = {
    "gpuworkloadbudgets": _of("gpuworkloadbudgets"),
    "powerpools": _of("powerpools"),
    "budgetholds": _of("budgetholds"),
    "budgetindexes": _of("budgetindexes"),
    "spotpools, bandwidths, leftovernodepools": _of("spotpools", "bandwidths", "leftovernodepools"),
    "all kinds of headroom.dev": lambda path: path.startswith(_OURS),
    "pods": _of("pods"),
    "nodes": _of("nodes"),
    "namespaces": lambda path: path == "/api/v1/namespaces",
    "jobs": _of("jobs"),
    "configmaps": _of("configmaps"),
    "leases": _of("leases"),
    "resourceclaims": _of("resourceclaims"),
    "jobsets, workloads, nodepools, nodeclaims": _of("jobsets", "workloads", "nodepools", "nodeclaims"),
    "admission policies": lambda path: path.startswith("/apis/admissionregistration"),
    "discovery": lambda path: path.rstrip("/").count("/") <= 3 and path.startswith("/apis"),
    "every path": lambda _: True,
}


class Outcome(NamedTuple):
    """What came of one cell."""

    fault: str
    path: str
    seconds: float
    effects: tuple[str, ...]
    """What was done although it would not have been without the fault."""
    well_after: float
    """Seconds after the end of the fault until the operator is ready and writes statuses again."""
    noticed: bool
    """Whether it was not ready while the fault lasted."""


class Blinded:
    """One control plane with its operator behind a proxy."""

    def __init__(
        self, plane: ControlPlane, proxy: FaultProxy, operator: Operator, service: PowerService, log: Path
    ) -> None:
        self._plane, self._proxy, self._operator, self._service, self._log = plane, proxy, operator, service, log
        self._cell = 0

    @contextlib.contextmanager
    def _api(self) -> Iterator[Api]:
        api = Api(self._plane)
        try:
            yield api
        finally:
            api.close()

    # What runs there

    def prepare(self) -> None:
        """Set the stage and wait until everything is under way."""
        began = _text(time.time() - 3600)
        with self._api() as api:
            api.send("POST", "api/v1/namespaces", {"metadata": {"name": TEAM}})
            _node(api, "plain", {})
            _node(api, "busy-0", {"pool": "rack"})
            api.send("POST", BUDGETS, _budget("canary", "AlertOnly", "100"))
            for name, action in (("held", "Hold"), ("stops", "Suspend"), ("evicts", "Evict")):
                api.send("POST", BUDGETS, _budget(name, action, "0.001"))
            _running(api, "runs", "held", began)
            _running(api, "works", "free", began, node="busy-0", gpus=8)
            job = api.send("POST", f"apis/batch/v1/namespaces/{TEAM}/jobs", _job())
            _running(api, "job-0", "stops", began, owner=job)
            api.send("POST", "apis/headroom.dev/v1alpha1/powerpools", self._pool())
        self._wait("the Job is suspended", self._is_suspended)
        with self._api() as api:
            api.send("DELETE", f"{PODS}/job-0?gracePeriodSeconds=0")
        self._wait("the hold stands", lambda: bool(self._items("apis/headroom.dev/v1alpha1/budgetholds")))
        with self._api() as api:
            for number in range(QUEUED):
                api.send("POST", PODS, _pod(f"queued-{number}", "held"))
            api.send("POST", PODS, _pod("needs-a-machine", "free", selector={"pool": "rack"}))
            waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/2 nodes"}
            waits["lastTransitionTime"] = _text(time.time())
            status = {"status": {"conditions": [waits]}}
            api.send("PATCH", f"{PODS}/needs-a-machine/status", status, "strategic")
        self._wait("pods are queued", lambda: self._queued() == QUEUED)
        self._wait("a machine is woken", lambda: ("sleeps-0", "start") in self._service.commands("sleeps-0"))
        self._evict_one()

    def _pool(self) -> Document:
        machines = []
        for name in ("busy-0", "sleeps-0"):
            url = f"{self._service.url}/{name}"
            machines.append(
                {"name": name, "gpuCount": 8, "scaleUpEndpoint": f"{url}/start", "scaleDownEndpoint": f"{url}/stop"}
            )
        policy = {"idleSeconds": 5, "bootTimeoutSeconds": 86400, "minOffSeconds": 0}
        spec = {"machines": machines, "template": {"labels": {"pool": "rack"}}, "policy": policy}
        return {"apiVersion": "headroom.dev/v1alpha1", "kind": "PowerPool", "metadata": {"name": "rack"}, "spec": spec}

    def _items(self, path: str) -> list[Document]:
        with self._api() as api:
            return api.items(path)

    def _queued(self) -> int:
        pods = [each for each in self._items(PODS) if each["metadata"]["name"].startswith("queued-")]
        gates = [[gate["name"] for gate in each["spec"].get("schedulingGates", ())] for each in pods]
        return sum(GATE in each for each in gates)

    def _is_suspended(self) -> bool:
        return all(each["spec"]["suspend"] for each in self._items(f"apis/batch/v1/namespaces/{TEAM}/jobs"))

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        wait_until(holds, what)

    # One cell

    def cell(self, fault: Fault | None, path: str, seconds: float) -> Outcome:
        """A fault on a path for so long, with evictions under way; without a fault, what comes anyway."""
        self._cell += 1
        before, told = self._effects(), len(self._service.commands("busy-0", "sleeps-0"))
        victim = self._add_victim()
        if fault is not None:
            self._proxy.answer_with(fault, PATHS[path])
        noticed = self._watch_for(seconds)
        self._proxy.heal()
        healed = time.monotonic()
        well = self._well_again(healed)
        self._wait(f"{victim} is evicted", lambda: self._effects()[f"create pods/eviction {TEAM}/{victim}"] > 0)
        found = self._effects() - before - Counter([f"create pods/eviction {TEAM}/{victim}"])
        switched = self._service.commands("busy-0", "sleeps-0")[told:]
        effects = [*found.elements(), *(f"{command} {machine}" for machine, command in switched)]
        effects += self._let_go()
        self._remove(victim)
        return Outcome(fault or "none", path, seconds, tuple(effects), round(well, 1), noticed)

    def _watch_for(self, seconds: float) -> bool:
        ends, noticed = time.monotonic() + seconds, False
        while time.monotonic() < ends:
            time.sleep(min(0.5, max(0.0, ends - time.monotonic())))
            noticed = noticed or not self.is_ready()
        return noticed

    def is_ready(self) -> bool:
        """Whether /readyz says so."""
        with contextlib.suppress(OSError):  # which an answer of 503 is too
            return bool(urllib.request.urlopen(f"http://{self._operator.health}/readyz", timeout=60).status == 200)
        return False

    def _well_again(self, healed: float) -> float:
        """Seconds until it is ready and has decided on a spec that is newer than the end of the fault."""
        with self._api() as api:
            quota = {"quota": {"gpuHours": str(100 + self._cell)}}
            wanted = api.send("PATCH", f"{BUDGETS}/canary", {"spec": quota}, "merge")["metadata"]["generation"]
        while time.monotonic() - healed < LONGEST_SECONDS:
            with self._api() as api:
                seen = api.send("GET", f"{BUDGETS}/canary").get("status", {}).get("observedGeneration")
            if seen == wanted and self.is_ready():
                return time.monotonic() - healed
            time.sleep(0.25)
        return LONGEST_SECONDS

    def _add_victim(self) -> str:
        name = f"victim-{self._cell}"
        with self._api() as api:
            _running(api, name, "evicts", _text(time.time() - 3600), finalizers=["example.com/stay"])
        return name

    def _evict_one(self) -> None:
        victim = self._add_victim()
        self._wait("a pod is evicted", lambda: self._effects()[f"create pods/eviction {TEAM}/{victim}"] > 0)
        self._remove(victim)

    def _remove(self, name: str) -> None:
        with self._api() as api:
            api.send("PATCH", f"{PODS}/{name}", {"metadata": {"finalizers": None}}, "merge")
            api.send("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")
        wait_until(lambda: all(each["metadata"]["name"] != name for each in self._items(PODS)), f"{name} is gone")

    def _let_go(self) -> Iterator[str]:
        if self._queued() != QUEUED:
            yield "pods were released"
        if not self._is_suspended():
            yield "the Job was resumed"
        if not self._items("apis/headroom.dev/v1alpha1/budgetholds"):
            yield "the hold was deleted"

    def _effects(self) -> Counter[str]:
        """What the operator did and was granted, by the audit log; statuses, events and the lease are no effects."""
        found: Counter[str] = Counter()
        for line in self._log.read_text().splitlines():
            if not line.endswith("}"):
                continue
            event = json.loads(line)
            about = event.get("objectRef", {})
            sub = about.get("subresource", "")
            is_granted = event["responseStatus"].get("code", 500) < 300
            if is_granted and about.get("resource") not in _NO_EFFECTS and sub != "status":
                what = about.get("resource", "") + (f"/{sub}" if sub else "")
                found[f"{event['verb']} {what} {about.get('namespace', '')}/{about.get('name', '')}"] += 1
        return found


@contextlib.contextmanager
def blinded(folder: Path) -> Iterator[Blinded]:
    """A control plane of its own, with everything under way."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "audit-policy.json").write_text(json.dumps(_AUDIT))
    log = folder / "audit.log"
    flags = (f"--audit-policy-file={folder / 'audit-policy.json'}", f"--audit-log-path={log}")
    made = ControlPlane(components=(), apiserver_flags=flags)
    made.add_token_user("headroom")
    on: set[str] = {"busy-0"}
    service = PowerService(lambda _machine, _on: None, on.__contains__)
    with made as plane, service, FaultProxy(plane) as proxy:
        plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        for file in ("rbac.yaml", "roles.yaml", "policies.yaml"):
            plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / file))
        plane.grant("headroom", "headroom-operator")
        own = ("--role=headroom-operator", "--user=headroom", f"--namespace={OWN_NAMESPACE}")
        plane.kubectl("create", "rolebinding", "headroom-user", *own)
        kubeconfig = str(proxy.kubeconfig(folder, "headroom"))
        operator = Operator(plane, folder, kubeconfig=kubeconfig, allow_egress=service.url)
        operator.start()
        found = Blinded(plane, proxy, operator, service, log)
        try:
            found.prepare()
            yield found
        finally:
            operator.close()


# --- objects -------------------------------------------------------------------------------------------------------------------


def _text(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _budget(name: str, action: str, hours: str) -> Document:
    enforcement = {"action": action} | ({} if action == "AlertOnly" else {"gracePeriodSeconds": 0})
    spec = {"selector": {"matchLabels": {"app": name}}, "quota": {"gpuHours": hours, "windowHours": 24}}
    meta = {"apiVersion": "headroom.dev/v1alpha1", "kind": "GPUWorkloadBudget", "metadata": {"name": name}}
    return meta | {"spec": spec | {"enforcement": enforcement}}


def _node(api: Api, name: str, labels: Document) -> None:
    offers = {"cpu": "64", "memory": "512Gi", "pods": "110", GPU: "8"}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "lastHeartbeatTime": _text(time.time())}
    status = {"capacity": offers, "allocatable": offers, "conditions": [ready]}
    api.send("POST", "api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})


def _pod(
    name: str, app: str, *, gpus: int = 1, node: str = "", selector: Document | None = None, **metadata: Any
) -> Document:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: str(gpus)}}}
    spec: Document = {"restartPolicy": "Never", "containers": [container]}
    spec |= ({"nodeName": node} if node else {}) | ({"nodeSelector": selector} if selector else {})
    return {"metadata": {"name": name, "labels": {"app": app}, **metadata}, "spec": spec}


def _running(
    api: Api, name: str, app: str, began: str, *, node: str = "plain", owner: Document | None = None, **metadata: Any
) -> None:
    if owner is not None:
        by = {"apiVersion": "batch/v1", "kind": "Job", "name": owner["metadata"]["name"], "controller": True}
        metadata["ownerReferences"] = [by | {"uid": owner["metadata"]["uid"]}]
    api.send("POST", PODS, _pod(name, app, node=node, **metadata))
    runs = {"name": "main", "image": "x", "imageID": "", "ready": True, "restartCount": 0}
    state = {"state": {"running": {"startedAt": began}}}
    status = {"phase": "Running", "startTime": began, "containerStatuses": [runs | state]}
    api.send("PATCH", f"{PODS}/{name}/status", {"status": status}, "strategic")


def _job() -> Document:
    container = {"name": "main", "image": "x", "resources": {"limits": {GPU: "1"}}}
    template = {"metadata": {"labels": {"app": "stops"}}, "spec": {"restartPolicy": "Never", "containers": [container]}}
    return {"metadata": {"name": "train"}, "spec": {"suspend": False, "template": template}}
