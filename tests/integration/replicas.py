"""Operators as processes beside a control plane, for tests and benchmarks that kill them."""

import itertools
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from tests.builders import a_document
from tests.control_plane import ControlPlane, wait_until
from tests.processes import PATIENCE_SECONDS

ROOT = Path(__file__).parents[2]
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "resources": [{"group": "", "resources": ["pods/eviction"]}]}, {"level": "None"}],
}


def audited(folder: Path) -> list[str]:
    """Flags with which the API server keeps a list of evictions that outlives it."""
    (folder / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
    return [f"--audit-policy-file={folder / 'audit-policy.json'}", f"--audit-log-path={folder / 'audit.log'}"]


class Replicas:
    """Probe operators on one control plane, each with a name of its own."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self._folder = plane, folder
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        self._numbers = itertools.count(1)

    def prepare(self, pods: int) -> None:
        """Install the kinds, one budget, and pods that stay when they are evicted, so that a second eviction could be seen."""
        self.plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
        names = ("team-a", "headroom-system")
        self.plane.apply(*({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in names))
        plurals = {kind.plural for kind in DEFINITIONS.values()}
        wait_until(lambda: plurals <= set(self.plane.kubectl("api-resources").split()), "the kinds are served")
        self.plane.apply(a_document("GPUWorkloadBudget", "probe"))
        self.add_pods(pods)

    def add_pods(self, count: int, prefix: str = "victim") -> None:
        """More pods to evict."""
        if count:
            self.plane.apply(*(_victim(f"{prefix}-{number:03d}") for number in range(count)))

    def start(self, user: str = "admin") -> str:
        """One more operator; returns its identity."""
        identity = f"op-{next(self._numbers)}"
        # A folder for each: these replicas share no disk.
        arguments = [str(self.plane.kubeconfig(user)), identity, str(self.plane.folder / f"{identity}-state")]
        command = [sys.executable, "-m", "tests.integration.probe", *arguments]
        with (self.plane.folder / f"{identity}.log").open("wb") as log:
            self.running[identity] = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT)
        return identity

    def end(self, identity: str, how: signal.Signals) -> int:
        """End one operator, and wait for it."""
        process = self.running.pop(identity)
        process.send_signal(how)
        return process.wait(PATIENCE_SECONDS)

    def end_all(self) -> None:
        """Kill whatever still runs."""
        for identity in list(self.running):
            self.end(identity, signal.SIGKILL)

    def log(self, identity: str) -> str:
        """What an operator wrote."""
        return (self.plane.folder / f"{identity}.log").read_text()

    def leader(self) -> str:
        """Who holds the lease; empty for nobody."""
        try:
            text = self.plane.get("/apis/coordination.k8s.io/v1/namespaces/headroom-system/leases/headroom")
        except OSError:
            return ""
        found: dict[str, Any] = json.loads(text)
        return str(found["spec"].get("holderIdentity") or "")

    def leading(self) -> str:
        """Who of those that run holds the lease; one that was killed holds it a while longer."""
        wait_until(lambda: self.leader() in self.running, "one that runs leads")
        return self.leader()

    def going(self) -> int:
        """Pods that were evicted at least once."""
        items = json.loads(self.plane.get("/api/v1/namespaces/team-a/pods"))["items"]
        return sum("deletionTimestamp" in item["metadata"] for item in items)

    def wait_for(self, evicted: int) -> float:
        """Wait until so many pods were evicted; returns the seconds that took."""
        began = time.monotonic()
        wait_until(lambda: self.going() >= evicted, f"{evicted} pods evicted")
        return time.monotonic() - began

    def evictions(self) -> Counter[str]:
        """How often the API server granted the eviction of each pod, by its own audit log."""
        lines = (self._folder / "audit.log").read_text().splitlines()
        events = [json.loads(line) for line in lines if line.endswith("}")]
        return Counter(each["objectRef"]["name"] for each in events if each["responseStatus"]["code"] == 201)


def _victim(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "team-a", "labels": {"probe": "evict"}, "finalizers": ["example.com/stay"]}
    container = {"name": "main", "image": "example.com/train:1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}
