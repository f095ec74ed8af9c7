"""A machine room beside a real cluster: machines with a power switch, the kubelets on them, and whoever may switch them.

A machine that is off has no kubelet: its node is not there yet, or not ready. The room keeps its own books of what harm was done, with
nothing of Headroom: a machine that was switched off with pods on it, or told to while new pods could still come.
"""

import contextlib
import http.client
import itertools
import json
import re
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from headroom.api.marks import CORDONED_BY, USABLE_BY
from tests.control_plane import ControlPlane
from tests.integration.accounts import (
    ENDED,
    GPU,
    OWN_NAMESPACE,
    Account,
    Api,
    Document,
    Operator,
    condition,
    moment,
    seconds,
    text,
)
from tests.integration.enforced import OPERATOR, Cluster, Team, enforcing_operator, is_running, template, wait_for
from tests.power_service import Bmcs, Mode, PowerService

POOLS = "apis/headroom.dev/v1alpha1/powerpools"
PLAYED = "kwok.x-k8s.io/node"
"""The annotation of nodes that KWOK plays. It must be there when a node is made; where it goes later, KWOK lets the node be."""
ENDS_SOON = {"pod-complete.stage.kwok.x-k8s.io/delay": "1s"}
"""Annotations of a pod that ends by itself."""
HASTY = {"idleSeconds": 2, "bootTimeoutSeconds": 60, "minOffSeconds": 0}
"""A policy for people without patience."""
BOOT_SECONDS = 1.0
FORBIDDEN = re.compile(r'^apiserver_request_total\{.*code="403".*\} [1-9]')
MAGIC = b"\xff" * 6


# --- the machines -----------------------------------------------------------------------------------------------------------------


class Rack:
    """Machines as they really are."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._gpus: dict[str, tuple[int, str]] = {}
        self._wanted: dict[str, bool] = {}
        self._on: set[str] = set()
        self._timers: list[threading.Timer] = []
        self._lock = threading.Lock()
        self.boot_seconds: dict[str, float] = {}
        """Of machines that are slower or faster than others."""
        self.drivers: dict[str, Callable[[Api, str, int], None]] = {}
        """Of machines whose GPUs are no resource of the node: who publishes them, once the node is there."""
        self.labels: dict[str, dict[str, str]] = {}
        """Of machines whose kubelets give their nodes more labels."""
        self.harm: list[str] = []

    def add(self, name: str, gpus: int, pool: str) -> None:
        """A machine that is off."""
        self._gpus[name] = (gpus, pool)

    def is_on(self, name: str) -> bool:
        """Whether it is on now."""
        return name in self._on

    def switch(self, name: str, on: bool) -> None:
        """Press its button; it takes a while."""
        if not on:
            self._note_harm(name, "was told to sleep", cordoned=True)
        self._wanted[name] = on
        seconds = self.boot_seconds.get(name, BOOT_SECONDS) if on else BOOT_SECONDS / 2
        timer = threading.Timer(seconds, self._change, (name, on))
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def close(self) -> None:
        """Nothing changes any more."""
        for timer in self._timers:
            timer.cancel()
            timer.join()

    def _change(self, name: str, on: bool) -> None:
        with self._lock:
            if self._wanted[name] != on or self.is_on(name) == on:
                return
            if on:
                self._boot(name)
                self._on.add(name)
            else:
                self._note_harm(name, "went off")
                self._on.discard(name)
                self._halt(name)

    def _boot(self, name: str) -> None:
        """The kubelet registers its node, or reports on the one there is, which may still be cordoned."""
        gpus, pool = self._gpus[name]
        driver = self.drivers.get(name)
        offers = {"cpu": "64", "memory": "512Gi", "pods": "110"} | ({} if driver else {GPU: str(gpus)})
        status = {"capacity": offers, "allocatable": offers, "conditions": [_ready("True", "KubeletReady")]}
        metadata: Document = {"annotations": {PLAYED: "fake"}}
        with self._api() as api:
            if any(each["metadata"]["name"] == name for each in api.items("api/v1/nodes")):
                api.send("PATCH", f"api/v1/nodes/{name}/status", {"status": status}, "strategic")
                api.send("PATCH", f"api/v1/nodes/{name}", {"metadata": metadata}, "merge")
            else:
                labels = {"kubernetes.io/hostname": name, "pool": pool} | self.labels.get(name, {})
                metadata |= {"name": name, "labels": labels}
                api.send("POST", "api/v1/nodes", {"metadata": metadata, "status": status})
            if driver:
                driver(api, name, gpus)

    def _halt(self, name: str) -> None:
        """The last words of a kubelet that shuts down."""
        with self._api() as api:
            api.send("PATCH", f"api/v1/nodes/{name}", {"metadata": {"annotations": {PLAYED: None}}}, "merge")
            status = {"conditions": [_ready("False", "KubeletNotReady")]}
            api.send("PATCH", f"api/v1/nodes/{name}/status", {"status": status}, "strategic")

    def _note_harm(self, name: str, what: str, *, cordoned: bool = False) -> None:
        with self._api() as api:
            pods = api.items(f"api/v1/pods?fieldSelector=spec.nodeName={name}")
            self.harm += [f"{name} {what} with pod {pod['metadata']['name']} on it" for pod in pods if _works(pod)]
            nodes = [each for each in api.items("api/v1/nodes") if each["metadata"]["name"] == name]
        if cordoned and not all(each["spec"].get("unschedulable") for each in nodes):
            self.harm.append(f"{name} {what} while pods could still come")

    @contextlib.contextmanager
    def _api(self) -> Iterator[Api]:
        # A connection for each occasion: they come from many threads, and long after one another.
        api = Api(self._plane)
        try:
            yield api
        finally:
            api.close()


def _ready(status: str, reason: str) -> Document:
    at = text(seconds())
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": "as the kubelet says",
        "lastHeartbeatTime": at,
        "lastTransitionTime": at,
    }


def _works(pod: Document) -> bool:
    """Whether somebody would miss it."""
    owners = {each["kind"] for each in pod["metadata"].get("ownerReferences", ())}
    return pod["status"]["phase"] not in ENDED and not owners & {"DaemonSet", "Node"}


def is_refused(pod: Document) -> bool:
    """Whether kube-scheduler found no place for a pod."""
    return condition(pod["status"], "PodScheduled") == ("False", "Unschedulable")


# --- other switches ---------------------------------------------------------------------------------------------------------------


class BmcFollower:
    """Lets machines do what their BMCs say."""

    def __init__(self, bmcs: Bmcs, rack: Rack) -> None:
        self._bmcs, self._rack, self._known = bmcs, rack, dict.fromkeys(bmcs.systems, False)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        while not self._over.wait(0.3):
            for name, before in self._known.items():
                with contextlib.suppress(OSError):  # an answer is missing; the next look tells
                    if self._bmcs.is_on(name) != before:
                        self._known[name] = not before
                        self._rack.switch(name, not before)

    def close(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()


class Ear:
    """A network card that waits for its magic packet."""

    def __init__(self, mac: str, heard: Callable[[], None]) -> None:
        self.packets: list[bytes] = []
        self._magic, self._heard = MAGIC + bytes.fromhex(mac.replace(":", "")) * 16, heard
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.settimeout(0.3)
        self.port: int = self._socket.getsockname()[1]
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):  # nothing came; look whether it is over
                packet = self._socket.recv(2048)
                self.packets.append(packet)
                if packet == self._magic:
                    self._heard()

    def close(self) -> None:
        """Sleep for good."""
        self._over.set()
        self._thread.join()
        self._socket.close()


class Diary:
    """Everything that happened to all objects of a kind; of the pools, unless said otherwise."""

    def __init__(self, plane: ControlPlane, path: str = POOLS) -> None:
        self._path = path
        self._pages: list[Document] = []
        context = ssl.create_default_context(cafile=plane.ca_file)
        self._connection = http.client.HTTPSConnection(urllib.parse.urlsplit(plane.url).netloc, context=context)
        self._headers = {"Authorization": f"Bearer {plane.admin_token}"}
        wait_for(self._opened, f"the API server shows {path}")
        self._thread = threading.Thread(target=self._write, daemon=True)
        self._thread.start()

    def _opened(self) -> bool:
        """A kind that was just made cannot be watched at once."""
        self._connection.request("GET", f"/{self._path}?watch=true", headers=self._headers)
        self._lines = self._connection.getresponse()
        if self._lines.status == http.HTTPStatus.OK:
            return True
        self._lines.read()
        return False

    def _write(self) -> None:
        with contextlib.suppress(OSError, ValueError):  # it is closed while it waits for a line
            while line := self._lines.readline():
                self._pages.append(json.loads(line))

    def all(self, name: str = "") -> list[tuple[str, Document]]:
        """What happened, in order, each with the object as it was then; of one name if it is given."""
        pages = [(each["type"], each["object"]) for each in list(self._pages)]
        return [(what, it) for what, it in pages if name in ("", it["metadata"]["name"])]

    def of(self, pool: str) -> list[Document]:
        """Every status of a pool, in order."""
        return [each["status"] for _, each in self.all(pool) if "status" in each]

    def close(self) -> None:
        """Stop writing."""
        self._connection.sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()


# --- pools ------------------------------------------------------------------------------------------------------------------------


class Site:
    """A cluster and its machine room."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.plane, self.api = cluster, cluster.plane, cluster.api
        self.rack = Rack(cluster.plane)
        self.service = PowerService(self.rack.switch, self.rack.is_on)
        self.diary = Diary(cluster.plane)
        self._audit = folder / "audit.log"

    def pool(self, name: str, *gpus: int) -> "Pool":
        """Machines that are off, with so many GPUs each, for pods of a namespace of the same name; not yet a PowerPool."""
        return Pool(self, name, gpus)

    def operator(self, folder: Path, *allowed: str) -> Operator:
        """One that may call these, with just the rights that it is given in a cluster."""
        return enforcing_operator(self.plane, folder, allow_egress=",".join(allowed))

    def cordons(self, node: str) -> list[tuple[int, bool]]:
        """When the operator cordoned a node (True) or let pods onto it again, in order."""
        found = []
        for line in self._audit.read_text().splitlines():
            if line.endswith("}") and '"resource":"nodes"' in line:
                event = json.loads(line)
                spec = event["requestObject"].get("spec", {})
                granted = event["responseStatus"]["code"] < 300
                if granted and event["objectRef"]["name"] == node and "unschedulable" in spec:
                    found.append((moment(event["requestReceivedTimestamp"]), bool(spec["unschedulable"])))
        return sorted(found)

    def secret(self, name: str, usable_by: str, **values: str) -> None:
        """A Secret that the operator may read, for one pool and one host."""
        body = {"metadata": {"name": name, "annotations": {USABLE_BY: usable_by}}, "stringData": values}
        self.api.send("POST", f"api/v1/namespaces/{OWN_NAMESPACE}/secrets", body)
        role, own = f"headroom-secret-{name}", f"--namespace={OWN_NAMESPACE}"
        only = ("--verb=get", "--resource=secrets", f"--resource-name={name}")
        self.plane.kubectl("create", "role", role, own, *only)
        self.plane.kubectl("create", "rolebinding", role, own, f"--role={role}", f"--user={OPERATOR}")


def assert_all_was_allowed(site: Site, operator: Operator) -> None:
    """The operator never asked for more than its rights."""
    assert [line for line in site.plane.metrics().splitlines() if FORBIDDEN.match(line)] == []
    assert "orbidden" not in operator.log


@contextlib.contextmanager
def site_of(cluster: Cluster, folder: Path) -> Iterator[Site]:
    """The machine room, while it is staffed."""
    made = Site(cluster, folder)
    with made.service:
        yield made
    made.rack.close()
    made.diary.close()


class Pool(Team):
    """A namespace whose pods choose the machines of one pool."""

    def __init__(self, site: Site, name: str, gpus: Sequence[int]) -> None:
        Account.__init__(self, site.api, name)  # nobody but the test edits here, so nobody needs a grant
        self.plane, self.audit = site.plane, site.cluster.audit
        self.site, self.rack, self.service, self.name = site, site.rack, site.service, name
        self.machines = {f"{name}-{number}": count for number, count in enumerate(gpus, 1)}
        for machine, count in self.machines.items():
            self.rack.add(machine, count, name)

    # Making it

    def create(self, policy: Document | None = None, **spec: Any) -> None:
        """The PowerPool, switched by the power service unless machines are given otherwise."""
        body = {"apiVersion": "headroom.dev/v1alpha1", "kind": "PowerPool", "metadata": {"name": self.name}}
        base = {"machines": self.documents(), "template": {"labels": {"pool": self.name}}}
        self.api.send("POST", POOLS, body | {"spec": base | {"policy": HASTY | (policy or {})} | spec})

    def documents(self) -> list[Document]:
        """The machines as they stand in the spec."""
        return [
            {"name": name, "gpuCount": count, "scaleUpEndpoint": self.url(name, "start")} | self.stops(name)
            for name, count in self.machines.items()
        ]

    def url(self, machine: str, command: str) -> str:
        """Where the power service is told so."""
        return f"{self.service.url}/{machine}/{command}"

    def stops(self, machine: str) -> Document:
        """How it is sent to sleep."""
        return {"scaleDownEndpoint": self.url(machine, "stop")}

    def edit(self, **spec: Any) -> None:
        """Another spec."""
        self.api.send("PATCH", f"{POOLS}/{self.name}", {"spec": spec}, "merge")

    def remove(self) -> None:
        """The PowerPool goes."""
        self.api.send("DELETE", f"{POOLS}/{self.name}")

    def turn_on(self, *machines: str) -> None:
        """By hand, as people do."""
        for machine in machines:
            self.rack.switch(machine, True)
        wait_for(lambda: all(map(self.is_ready, machines)), f"{', '.join(machines)} are on")

    def work(self, name: str, gpus: int = 1, spec: Document | None = None, **metadata: Any) -> None:
        """A pod for one of the machines."""
        made = template(gpus, self.name, **metadata)
        self.send("Pod", name, made["spec"] | (spec or {}), **made["metadata"])

    def daemon(self, name: str, machine: str) -> None:
        """A pod that a DaemonSet has on a machine; its controller does not run here."""
        labels = {"app": name}
        made = template(0, self.name, labels=labels)
        path = f"apis/apps/v1/namespaces/{self.namespace}/daemonsets"
        spec = {"selector": {"matchLabels": labels}, "template": made}
        owner = self.api.send("POST", path, {"metadata": {"name": name}, "spec": spec})["metadata"]
        by = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name, "uid": owner["uid"], "controller": True}
        metadata = made["metadata"] | {"ownerReferences": [by]}
        self.send("Pod", name, made["spec"] | {"nodeName": machine}, **metadata)

    # Looking at it

    def commands(self, *machines: str) -> list[tuple[str, str]]:
        """Which machines were told what, in order; all of the pool unless some are named."""
        return self.service.commands(*(machines or self.machines))

    def pool_status(self) -> Document:
        """As it is written now."""
        found: Document = self.api.send("GET", f"{POOLS}/{self.name}").get("status", {})
        return found

    def state(self, machine: str) -> str:
        """What the pool says that a machine is doing."""
        return str(self.known(machine).get("state", ""))

    def states(self, machine: str) -> list[str]:
        """All that the pool ever said that a machine is doing, in order."""
        told = [each for page in self.site.diary.of(self.name) for each in page.get("machines", ())]
        return [state for state, _ in itertools.groupby(each["state"] for each in told if each["name"] == machine)]

    def known(self, machine: str) -> Document:
        """All that the pool says of a machine."""
        return next((each for each in self.pool_status().get("machines", ()) if each["name"] == machine), {})

    def says(self, kind: str) -> tuple[str, str, str]:
        """Whether a condition of the pool holds, why, and in which words."""
        status = self.pool_status()
        words = [str(each["message"]) for each in status.get("conditions", ()) if each["type"] == kind]
        return *condition(status, kind), "".join(words)

    def unserved(self) -> dict[str, tuple[str, str]]:
        """Its own pods for which nothing is woken, each with the reason as a word and as a sentence."""
        told = [each for each in self.pool_status().get("unserved", ()) if each["pod"].startswith(f"{self.name}/")]
        return {each["pod"]: (each["reason"], each["message"]) for each in told}

    def runs(self, *names: str) -> bool:
        """Whether exactly these pods run."""
        return self.names(is_running) == set(names)

    def node(self, machine: str) -> Document:
        """As it is now; empty while there is none."""
        found = [each for each in self.api.items("api/v1/nodes") if each["metadata"]["name"] == machine]
        return found[0] if found else {}

    def is_ready(self, machine: str) -> bool:
        """Whether pods can start there, were it not for cordons."""
        return condition(self.node(machine).get("status", {}), "Ready")[0] == "True"

    def is_cordoned(self, machine: str) -> bool:
        """Whether the pool keeps new pods away."""
        node = self.node(machine)
        by = node.get("metadata", {}).get("annotations", {}).get(CORDONED_BY, "")
        return bool(node["spec"].get("unschedulable")) and by == f"PowerPool/{self.name}"

    def is_free(self, machine: str) -> bool:
        """Whether nothing of ours is left on its node."""
        node = self.node(machine)
        return not node["spec"].get("unschedulable") and CORDONED_BY not in node["metadata"].get("annotations", {})


# --- pools that several tests begin with ------------------------------------------------------------------------------------------


def served_badly(site: Site, name: str, mode: Mode, **spec: Document) -> Pool:
    """A pod for which one of two machines is enough; the power service treats the first badly."""
    pool = site.pool(name, 4, 4)
    site.service.modes[f"{name}-1"] = mode
    pool.create(**spec)
    pool.work("train", 4)
    return pool


def busy(site: Site, name: str, *gpus: int) -> Pool:
    """Machines of which the first is on, with a pod."""
    pool = site.pool(name, *gpus)
    pool.turn_on(f"{name}-1")
    pool.work("busy")
    wait_for(lambda: pool.runs("busy"), "the pod runs")
    pool.create()
    return pool


def was_tried(pool: Pool) -> bool:
    """Whether a machine was ever woken on trial."""
    return any(status.get("trials") for status in pool.site.diary.of(pool.name))
