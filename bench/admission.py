"""What the admission policies cost each pod that is created: time, and CPU of the API server, with and without holds.

    make bench NAME=admission                about three minutes
    make bench NAME=admission ARGS=--small   a tenth of that, to see that it works; keeps no results

One client creates pods of one GPU by dry run, one after the other, on a real API server: before the policies are there, with them, with
one hold that gates the pods, with 200 holds of other namespaces, and with 200 that gate the pods. The same for updates of a pod's
status, which kubelets send all the time. The machine is shared, so the CPU of the server tells more than the slowest requests.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from bench import results
from bench.results import Row
from headroom.api import generate
from headroom.api.crd import crd
from headroom.api.kinds import DEFINITIONS
from tests.api.verdicts import Server
from tests.control_plane import ControlPlane, wait_until
from tests.integration.holds import create, gates, hold, made, pod, put, set_holds

REQUESTS, WARM, MANY = 2000, 200, 200
TICKS = os.sysconf("SC_CLK_TCK")


def say(text: str) -> None:
    """A line of progress."""
    print(f"admission: {text}", file=sys.stderr, flush=True)


def cpu(plane: ControlPlane) -> float:
    """Seconds that the API server has used."""
    fields = Path(f"/proc/{plane.pids['kube-apiserver']}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


class Stage:
    """What one kind of request cost in one state of the cluster."""

    def __init__(self, name: str, plane: ControlPlane, request: Callable[[], object], count: int) -> None:
        self.name = name
        for _ in range(WARM):
            request()
        taken, used = [], cpu(plane)
        for _ in range(count):
            began = time.perf_counter()
            request()
            taken.append(time.perf_counter() - began)
        self.cpu = (cpu(plane) - used) / count * 1000
        taken.sort()
        self.p50, self.p99 = taken[count // 2] * 1000, taken[count * 99 // 100] * 1000
        say(f"{name}: p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, CPU {self.cpu:.2f} ms")

    def rows(self, first: "Stage") -> list[Row]:
        """Its figures, and how they compare with the first stage."""
        found = [
            Row(figure=f"{self.name}: p50", value=round(self.p50, 2), unit="ms"),
            Row(figure=f"{self.name}: p99", value=round(self.p99, 2), unit="ms"),
            Row(figure=f"{self.name}: CPU of the API server", value=round(self.cpu, 2), unit="ms"),
        ]
        if self is first:
            return found
        ratio = round(self.p50 / first.p50, 2)
        return [*found, Row(figure=f"{self.name}: p50 / p50 without policies", value=ratio, unit="x")]


def prepare(plane: ControlPlane) -> tuple[Server, Server]:
    """Kinds, a namespace, and a tenant who is not exempt."""
    plane.apply(*(crd(kind) for kind in DEFINITIONS.values()))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
    plane.kubectl("create", "namespace", "hold-a")
    plane.kubectl("create", "clusterrole", "pods", "--verb=create,update", "--resource=pods,pods/status")
    plane.grant("tenant", "pods")
    admin, tenant = Server(plane), Server(plane, "tenant")
    wait_until(lambda: create(tenant, pod())[0] == 201, "the grant is at work")
    return admin, tenant


def install(plane: ControlPlane, tenant: Server) -> None:
    """The policies, once they are at work."""
    plane.kubectl("apply", "-f", str(generate.ROOT / "deploy" / "policies.yaml"))
    forged = pod(annotations={"headroom.dev/protected": "x"})
    wait_until(lambda: create(tenant, forged)[0] == 403, "the policies are at work")


def measure(plane: ControlPlane, count: int) -> list[Row]:
    """All stages, in one run."""
    admin, tenant = prepare(plane)
    running = made(admin, pod("running", nodeName="n"), dry=False)
    status = running | {"status": {"phase": "Running", "message": "x"}}
    creates: list[Stage] = []
    updates: list[Stage] = []

    def stage(name: str, *, gated: bool = False) -> None:
        assert (gates(made(tenant, pod())) != []) == gated
        creates.append(Stage(f"create, {name}", plane, lambda: create(tenant, pod()), count))
        updates.append(Stage(f"status update, {name}", plane, lambda: put(tenant, status, "status"), count))

    stage("no policies")
    install(plane, tenant)
    stage("policies, no hold")
    set_holds(admin, tenant, [hold()])
    stage("one hold that gates it", gated=True)
    others = [hold(f"other-{i}", budget=f"ns-{i}/b", namespaces=[f"ns-{i}"]) for i in range(MANY)]
    set_holds(admin, tenant, others)
    stage(f"{MANY} holds of other namespaces")
    set_holds(admin, tenant, [hold(f"many-{i}", budget=f"hold-a/b-{i:03}") for i in range(MANY)])
    stage(f"{MANY} holds that gate it", gated=True)
    for each in (admin, tenant):
        each.close()
    return [row for found in (creates, updates) for each in found for row in each.rows(found[0])]


def main(arguments: list[str]) -> int:
    """Measure and write the results."""
    is_small = "--small" in arguments
    with ControlPlane(components=()) as plane:
        rows = measure(plane, REQUESTS // 10 if is_small else REQUESTS)
    if is_small:
        print(json.dumps({row.figure: row.value for row in rows}, indent=2))
        return 0
    return 1 if results.write("admission", rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
