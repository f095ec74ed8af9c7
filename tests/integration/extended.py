"""A control plane whose kube-scheduler asks `headroom extender`, and a crowd of pods that ask for bandwidth.

What is given out is added up from the pods as the API server has them; nothing of Headroom is used to find the truth.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import ssl
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from headroom.api import generate
from headroom.api.bandwidth import MARKER
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from tests.certificates import Authority
from tests.control_plane import ControlPlane
from tests.integration.accounts import fetched
from tests.processes import PATIENCE_SECONDS, Guard, Process, free_ports

Document = dict[str, Any]
NAMESPACE, OWN = "default", "headroom-system"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
AT_ONCE = 32
CARD = 1_000
"""Mbps of a node's card unless it says otherwise: the default of the settings."""
CLIENT = "kube-scheduler"


class ExtenderProcess:
    """`headroom extender` as a user has it, which answers only whoever shows a certificate."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.health = free_ports(2)
        authority = Authority(folder)
        self._files = (*authority.server("extender"), *authority.client(CLIENT, []), authority.file)
        self._guard = Guard(folder)
        self._process: Process | None = None

    def configuration(self) -> Document:
        """What `headroom extender --scheduler-config` prints, with the files of this stage."""
        from typer.testing import CliRunner  # noqa: PLC0415  only to print

        from headroom.cli.main import app  # noqa: PLC0415  as above

        url = f"https://127.0.0.1:{self.port}"
        printed = CliRunner().invoke(app, ["extender", "--scheduler-config", "--certificate", "x", "--url", url]).stdout
        found: Document = yaml.safe_load(printed)
        _, _, certificate, key, authority = map(str, self._files)
        trust = {"caFile": authority, "certFile": certificate, "keyFile": key}
        found["extenders"][0]["tlsConfig"] = trust
        return {name: found[name] for name in ("profiles", "extenders")}

    def start(self, plane: ControlPlane, *, waits: bool = True, **settings: str) -> None:
        """Start it, and wait until it answers."""
        certificate, key, _, _, authority = map(str, self._files)
        given = {
            "kubeconfig": str(plane.account_kubeconfig("headroom-extender", OWN)),
            "namespace": OWN,
            "extender_address": f"127.0.0.1:{self.port}",
            "extender_health_address": f"127.0.0.1:{self.health}",
            "extender_certificate": certificate,
            "extender_key": key,
            "extender_client_authority": authority,
            "extender_client_names": CLIENT,
            **settings,
        }
        environment = {name: value for name, value in os.environ.items() if not name.startswith("HEADROOM_")}
        environment |= {f"HEADROOM_{name.upper()}": value for name, value in given.items()}
        command = [sys.executable, "-m", "headroom", "extender"]
        self._process = Process(command, self.folder / "log", self._guard, environment)
        if waits:
            self._process.wait_ready(self.is_ready)

    def is_ready(self) -> bool:
        """What decides whether its Service leads to it."""
        return bool(fetched(f"http://127.0.0.1:{self.health}/readyz"))

    def kill(self) -> None:
        """End it as a lost machine does."""
        assert self._process is not None
        self._process.kill()
        self._process = None

    def metrics(self) -> dict[str, float]:
        """Its numbers, by name and labels."""
        lines = fetched(f"http://127.0.0.1:{self.health}/metrics").splitlines()
        return {name: float(value) for name, _, value in (each.rpartition(" ") for each in lines if each[:1] != "#")}

    def tls(self, *, known: bool) -> ssl.SSLContext:
        """How somebody reaches it: with a certificate of its authority, or without one."""
        _, _, certificate, key, authority = map(str, self._files)
        context = ssl.create_default_context(cafile=authority)
        if known:
            context.load_cert_chain(certificate, key)
        return context

    @property
    def log(self) -> str:
        return (self.folder / "log").read_text()

    def close(self) -> None:
        """End it in good order, and hold it to its log."""
        if self._process is not None:
            self._process.stop(30)
        self._guard.close()
        assert '"level": "error"' not in self.log, self.log


class Stage:
    """The cluster, and a connection that makes many objects at once."""

    def __init__(self, plane: ControlPlane, log: Callable[[], str]) -> None:
        """`log` is what the part of Headroom at work has written."""
        self.plane, self._log = plane, log
        self._headers = {"Authorization": f"Bearer {plane.admin_token}"}
        self._tls = ssl.create_default_context(cafile=plane.ca_file)

    def send(self, requests: Iterable[tuple[str, str, Document | None]]) -> list[Document]:
        """Method, path and body of each; all must be granted."""
        return asyncio.run(self._send(list(requests)))

    async def _send(self, requests: list[tuple[str, str, Document | None]]) -> list[Document]:
        left, answers = iter(requests), []
        connector = aiohttp.TCPConnector(ssl=self._tls, limit=AT_ONCE)

        async def worker(session: aiohttp.ClientSession) -> None:
            for method, path, body in left:
                kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
                async with session.request(method, path, json=body, headers={"Content-Type": kind}) as reply:
                    found = await reply.json()
                    assert reply.status < 300, found
                    answers.append(found)

        async with aiohttp.ClientSession(self.plane.url, connector=connector, headers=self._headers) as session:
            await asyncio.gather(*(worker(session) for _ in range(AT_ONCE)))
        return answers

    def nodes(self, *names: str, labels: Document | None = None) -> None:
        """Nodes that KWOK plays."""
        size = {"cpu": "640", "memory": "5120Gi", "pods": "200"}
        status = {"capacity": size, "allocatable": size}
        notes = {"kwok.x-k8s.io/node": "fake"}
        self.send(
            (
                "POST",
                "/api/v1/nodes",
                {
                    "metadata": {
                        "name": name,
                        "annotations": notes,
                        "labels": {"pool": name, "kubernetes.io/hostname": name, **(labels or {})},
                    },
                    "status": status,
                },
            )
            for name in names
        )

    def create(self, pods: Iterable[Document]) -> list[Document]:
        """Pods, many at once."""
        return self.send(("POST", PODS, each) for each in pods)

    def pods(self) -> dict[str, Document]:
        """All pods by name."""
        listed = json.loads(self.plane.get(PODS))["items"]
        return {each["metadata"]["name"]: each for each in listed}

    def bound(self, names: Iterable[str]) -> dict[str, str]:
        """On which node each of these is, of those that are on one."""
        found = self.pods()
        nodes = {name: found[name]["spec"].get("nodeName", "") for name in names if name in found}
        return {name: node for name, node in nodes.items() if node}

    def delete(self, *names: str) -> None:
        """Pods go at once."""
        self.send(("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0", None) for name in names)

    def stir(self) -> None:
        """Make the watch of pods show something: what is counted in time is counted as far as it has shown."""
        one = pod(f"stir-{time.monotonic_ns()}", 0, marker=False)
        one["spec"]["schedulerName"] = "nobody"
        self.create([one])

    def refusal(self, name: str) -> str:
        """What the last FailedScheduling event of a pod says."""
        query = f"?fieldSelector=involvedObject.name={name},reason=FailedScheduling"
        found = json.loads(self.plane.get(f"/api/v1/namespaces/{NAMESPACE}/events{query}"))["items"]
        return str(max(found, key=lambda each: int(each["metadata"]["resourceVersion"]))["message"]) if found else ""

    def until(self, condition: Callable[[], bool], what: str, timeout: float = PATIENCE_SECONDS) -> float:
        """Wait for it, and say how long that took."""
        began, pause = time.monotonic(), 0.2
        while not condition():
            if time.monotonic() - began > timeout:
                raise TimeoutError(f"not so after {timeout:.0f} s: {what}\n{self._log()[-3000:]}")
            time.sleep(pause)
            pause = min(pause * 1.5, 2.0)
        return time.monotonic() - began


class Site(Stage):
    """One whose kube-scheduler asks the extender."""

    def __init__(self, plane: ControlPlane, extender: ExtenderProcess) -> None:
        super().__init__(plane, lambda: extender.log)
        self.extender = extender


def pod(
    name: str, mbps: int, *, pool: str = "", owner: str = "", siblings: bool = False, marker: bool = True
) -> Document:
    """A pod that asks for as much in both directions; without the marker the extender is never asked."""
    rates = {f"kubernetes.io/{way}-bandwidth": f"{mbps}M" for way in ("egress", "ingress")} if mbps else {}
    notes = rates | ({"headroom.dev/traffic": "siblings"} if siblings else {})
    metadata: Document = {"name": name, "annotations": notes}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": owner, "uid": f"uid-{owner}"}
        metadata["ownerReferences"] = [reference | {"controller": True}]
    wanted = {"requests": {"cpu": "1", MARKER: "1"}, "limits": {MARKER: "1"}} if marker else {"requests": {"cpu": "1"}}
    spec: Document = {
        "containers": [{"name": "main", "image": "example.com/app:1", "resources": wanted}],
        "tolerations": [{"operator": "Exists"}],
    }
    if pool:
        spec["nodeSelector"] = {"pool": pool}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def given_out(pods: Iterable[Document]) -> Counter[str]:
    """What the pods on each node ask for, in Mbps; siblings that may be link-local are left to their own test."""
    found: Counter[str] = Counter()
    for each in pods:
        notes = each["metadata"].get("annotations", {})
        found[each["spec"].get("nodeName", "")] += int(notes.get("kubernetes.io/egress-bandwidth", "0M")[:-1])
    return found


@contextlib.contextmanager
def extended_cluster(folder: Path) -> Iterator[Site]:
    """A cluster whose kube-scheduler asks the extender."""
    extender = ExtenderProcess(folder)
    parts = ("kube-scheduler", "kwok")
    with ControlPlane(components=parts, scheduler=extender.configuration()) as plane:
        plane.apply(crd(DEFINITIONS["Bandwidth"]))
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=300s")
        plane.kubectl("create", "namespace", OWN)
        plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / "extender.yaml"))
        extender.start(plane)
        try:
            yield Site(plane, extender)
        finally:
            extender.close()
