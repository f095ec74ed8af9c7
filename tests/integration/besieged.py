"""A budget at its limit, the hostile tenant that it stops, and two tenants beside it: what each of them ran, and who lost a pod."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.integration.accounts import GPU, HOUR, Document, Operator, now
from tests.integration.enforced import (
    RUNS_ON,
    Cluster,
    Team,
    enforced_cluster,
    enforcing_operator,
    fill_ledger,
    is_gated,
    is_running,
    template,
    used,
    wait_for,
)
from tests.integration.hostile import GANG, NEIGHBOUR, SPACE, THEIRS, Tenant, prepare, rounds

LADDER = [
    {"at": "100%", "action": "Hold"},
    {"at": "110%", "action": "Suspend"},
    {"at": "120%", "action": "Evict"},
]
BEFORE, QUOTA = 100, "70"
"""GPU-hours that were used before, and the quota from some moment on: nothing leaves the window, so nothing is ever released."""
RELEASED = 2
"""GPUs of the Job that somebody with the right to do so releases."""
STARTS = 8
"""GPUs with which the tenant goes into the hold."""
PATIENCE = 240
"""Seconds to wait for the cluster: an hour of this may share its machine."""
OTHERS = {"team": "b", GANG: THEIRS}


class Siege:
    """One tenant against its budget, and what an administrator sees of it."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        self._cluster = cluster
        self.team, self.neighbour = cluster.team(SPACE), cluster.team(NEIGHBOUR)
        self.tenant = Tenant(cluster.plane, seed)
        self.others: dict[str, str] = {}
        """The pods of others, by uid."""
        self.began = self.released = self._last = 0
        self._first: set[str] = set()
        self._bound: set[str] = set()
        self.past = 0.0
        """GPU-milliseconds of the tenant since the hold began."""
        self.intruders: set[str] = set()
        """Pods with GPUs that ran under the hold though neither running before nor released."""
        self.peak_released = 0

    def prepare(self) -> None:
        """Everybody runs, and the tenant has laid by what it can."""
        plane = self._cluster.plane
        device = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu.example.com"}}
        plane.apply(device | {"spec": {}})
        enforcement = {"gracePeriodSeconds": 0, "steps": LADDER}
        self.team.budget(quota={"gpuHours": "1000", "windowHours": 24}, enforcement=enforcement)
        for space in (self.team, self.neighbour):
            space.budget(
                "others", {"team": "b"}, quota={"gpuHours": "1000", "windowHours": 24}, enforcement=enforcement
            )
            self._settle(space)
        wait_for(lambda: "consumedGpuHours" in self.team.status(), "the budget is counted", PATIENCE)
        prepare(self.tenant)
        wait_for(lambda: len(self._tenants_running()) == STARTS, "the tenant's pods run", PATIENCE)
        wait_for(lambda: self.team.status().get("burnRateGpus") == str(STARTS), "all are counted", PATIENCE)
        plane.kubectl("label", "namespace", SPACE, "headroom.dev/require-budget=")

    def _settle(self, space: Team) -> None:
        """The others move in."""
        space.job(THEIRS, 2, template(labels=OTHERS, annotations=RUNS_ON))
        for number in range(2):
            space.pod(f"other-{number}", labels=OTHERS)
        wait_for(lambda: len(space.names(is_running)) == 4, "the others run", PATIENCE)
        self.others |= {pod["metadata"]["uid"]: f"{space.namespace}/{pod['metadata']['name']}" for pod in space.pods()}

    def _tenants_running(self) -> list[Document]:
        found = (pod for pod in self.team.pods() if pod["metadata"]["uid"] not in self.others and _gpus(pod))
        return [pod for pod in found if pod["status"]["phase"] == "Running"]

    def hold(self) -> None:
        """The quota falls below what was used; once new pods are queued, the hold has begun."""
        self.team.change("team", quota={"gpuHours": QUOTA})
        probe = template() | {"apiVersion": "v1", "kind": "Pod"}
        probe["metadata"] = probe["metadata"] | {"name": "probe"}
        path = f"{self.team.path('Pod')}?dryRun=All"
        wait_for(lambda: is_gated(self.team.api.send("POST", path, probe)), "new pods are queued", PATIENCE)
        self._first = {pod["metadata"]["uid"] for pod in self._tenants_running()}
        self._bound = self.team.audit.bound(SPACE)
        self.began = self._last = now()

    def release(self) -> None:
        """Somebody with the right to it releases one Job, as it is now."""
        made = template(annotations=RUNS_ON)
        self.team.job("freed", RELEASED, made)
        wait_for(lambda: len(self.team.names(is_gated, "freed-")) == RELEASED, "its pods are queued", PATIENCE)
        self.released = now()
        config = self._cluster.plane.kubeconfig("releaser")
        command = [sys.executable, "-m", "headroom", "release", f"job/{SPACE}/freed", "--kubeconfig", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    def look(self) -> None:
        """What runs now has run since the last look."""
        at, running = now(), self._tenants_running()
        self.past += sum(map(_gpus, running)) * (at - self._last)
        self._last = at
        freed = [pod for pod in running if pod["metadata"]["name"].startswith("freed-")]
        self.peak_released = max(self.peak_released, sum(map(_gpus, freed)))
        new = (pod for pod in running if pod["metadata"]["uid"] not in self._first and pod not in freed)
        self.intruders |= {pod["metadata"]["name"] for pod in new}

    def play(self, seconds: float) -> None:
        """The whole script, every move at least once, and again until that time has passed."""
        rounds(self.tenant, self.look, lambda: now() - self.began >= seconds * 1000)
        self.look()
        bound = self.team.audit.bound(SPACE) - self._bound
        self.intruders |= {name for name in bound if not name.startswith(("freed-", "plain-"))}

    @property
    def allowed(self) -> float:
        """GPU-hours: of what ran when the hold began, had all of it gone on, and of what was released."""
        first = len(self._first) * (self._last - self.began)
        return (first + RELEASED * (self._last - self.released)) / HOUR

    @property
    def past_quota(self) -> float:
        """GPU-hours since the hold began."""
        return self.past / HOUR

    def lost(self) -> set[str]:
        """The pods of others that are gone, or on their way out."""
        found = [pod for space in (self.team, self.neighbour) for pod in space.pods() if is_running(pod)]
        there = {pod["metadata"]["uid"] for pod in found}
        return {name for uid, name in self.others.items() if uid not in there}


def _gpus(pod: Document) -> int:
    return sum(int(each.get("resources", {}).get("limits", {}).get(GPU, 0)) for each in pod["spec"]["containers"])


@contextlib.contextmanager
def besieged(folder: Path, seed: int = 1) -> Iterator[Siege]:
    """A cluster and its operator, in which a budget has just begun to hold."""
    (folder / "audit").mkdir()
    with enforced_cluster(folder / "audit") as cluster:
        operator: Operator = enforcing_operator(cluster.plane, folder)
        fill_ledger(operator, [used(cluster.plane, SPACE, BEFORE, now() - 2 * HOUR, now() - HOUR)])
        operator.start()
        try:
            siege = Siege(cluster, seed)
            with contextlib.closing(siege.tenant):
                siege.prepare()
                siege.hold()
                siege.release()
                yield siege
        finally:
            operator.close()
